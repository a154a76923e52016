"""From the options and the data of a regression to the problem that is learned, in normalised units."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import numpy as np

from graphmatern._validation import FaultList
from graphmatern.errors import TableError
from graphmatern.estimators._base import normalisation
from graphmatern.estimators._covariates import read_covariates
from graphmatern.estimators._features import read_features
from graphmatern.estimators._options import device_of, rules_of, search_of, uses_normalized
from graphmatern.inference import Observations, Problem
from graphmatern.likelihoods import (
    Binomial,
    Counts,
    GammaNoise,
    Gaussian,
    NegativeBinomial,
    Numeric,
    Poisson,
    StudentT,
    ZeroInflatedPoisson,
)

if TYPE_CHECKING:
    from graphmatern.estimators._covariates import Covariates
    from graphmatern.estimators._data import TrainingData
    from graphmatern.estimators._regressor import GraphGPRegressor
    from graphmatern.likelihoods import Likelihood

__all__ = [
    "LIKELIHOODS",
    "check_trials",
    "covariates_of",
    "effect_precision",
    "likelihood_of",
    "problem_of",
    "scale_of",
]

LIKELIHOODS: dict[str, type[Numeric]] = {
    "gaussian": Gaussian,
    "student_t": StudentT,
    "poisson": Poisson,
    "negative_binomial": NegativeBinomial,
    "zero_inflated_poisson": ZeroInflatedPoisson,
    "binomial": Binomial,
    "gamma": GammaNoise,
}
# Of coefficients where a flat prior could be improper. On the scales of logarithms and logits a standard deviation of
# 2.5 is usual: with a wider one, counts that are all zero would speak for rates far below what so few can tell.
_EFFECT_PRECISION, _OWN_UNITS_EFFECT_PRECISION = 0.01, 0.16


def check_trials(model: GraphGPRegressor, trials: Any) -> None:
    """Refuse trials without a binomial likelihood, and vice versa."""
    binomial = model.likelihood == "binomial" or isinstance(model.likelihood, Binomial)
    if binomial == (trials is None):
        faults = FaultList("nothing was fitted", TableError)
        rule = "must be given if, and only if, the likelihood is binomial"
        received = f"{'none' if trials is None else 'some'} for likelihood={model.likelihood!r}"
        raise faults.raise_now("trials", rule, received, "Pass the number of trials of each value.")


def likelihood_of(model: GraphGPRegressor, data: TrainingData) -> Numeric:
    """The likelihood with its starting values, checked against the data."""
    if isinstance(model.likelihood, Numeric):
        likelihood = copy.deepcopy(model.likelihood)
    else:
        likelihood = LIKELIHOODS[model.likelihood]()
        if model.noise is not None and isinstance(likelihood, Gaussian):
            likelihood.noise = float(model.noise)
        if model.noise is not None and isinstance(likelihood, StudentT):
            likelihood.scale = float(np.sqrt(model.noise))
    faults = FaultList("nothing was fitted", TableError)
    if data.exposure is not None and not isinstance(likelihood, Counts):
        faults.add("exposure", "must be left out unless `y` holds counts", "some", "Use likelihood='poisson'.")
    likelihood.note_faults(data.y, faults)
    if data.noise is not None:
        if not likelihood.gaussian:
            rule = f"must be left out for likelihood={model.likelihood!r}"
            faults.add("noise_variance", rule, "some", "Use Gaussian noise.")
        likelihood = Gaussian(1.0, fixed=("noise",))
    faults.raise_if_any()
    return likelihood


def covariates_of(model: GraphGPRegressor, data: TrainingData, y_scale: float) -> Covariates:
    """The linear effects: a constant mean, the nodes' covariates, and the observations' own."""
    options: dict[str, Any] = {"constant": model.mean == "constant", "priors": model.priors}
    return read_covariates(model.graph, model.covariates, **options, y_scale=y_scale, own=data.own)


def effect_precision(covariates: Covariates, likelihood: Likelihood) -> Any:
    """Prior precisions of the coefficients: flat with Gaussian noise, unless the user has said otherwise."""
    if likelihood.gaussian:
        return covariates.precision(0.0)
    in_own_units = isinstance(likelihood, Numeric) and likelihood.in_own_units
    return covariates.precision(_OWN_UNITS_EFFECT_PRECISION if in_own_units else _EFFECT_PRECISION)


def scale_of(model: GraphGPRegressor, data: TrainingData, likelihood: Numeric) -> tuple[tuple[float, float], float]:
    """Mean and scale of the values, and a level around which the constant mean of counts is expected."""
    observed = ~np.isnan(data.y)
    if not likelihood.in_own_units:
        if not model.normalize_y:
            return (0.0, 1.0), 0.0
        return normalisation(data.y[observed], robust=likelihood.expects_outliers), 0.0
    if covariates_of(model, data, 1.0).placed or model.mean != "constant":
        return (0.0, 1.0), 0.0
    exposure = np.ones(len(data.y)) if data.exposure is None else data.exposure
    return (0.0, 1.0), likelihood.typical_latent(data.y[observed], (observed * exposure[:, None])[observed])


def problem_of(
    model: GraphGPRegressor, data: TrainingData, scale: tuple[float, float], level: float, **options: Any
) -> Problem:
    """What is to be learned, in normalised units."""
    y_mean, y_scale = scale
    likelihood = options.pop("likelihood", None) or likelihood_of(model, data)
    covariates = covariates_of(model, data, y_scale)
    covariates.check(data.nodes, data.covariates)
    offset = level if data.exposure is None else level + np.log(data.exposure)
    observations = Observations(
        data.nodes,
        (data.y - y_mean) / y_scale,
        covariates.design,
        None if data.noise is None else data.noise / y_scale / y_scale,
        np.broadcast_to(offset, data.nodes.shape),
        covariates.design_of(data.nodes, data.covariates),
    )
    return Problem(
        **{
            "graph": model.graph,
            "kernel": model.kernel,
            "likelihood": likelihood,
            "observations": observations,
            "normalized": uses_normalized(model),
            "rules": rules_of(model),
            "search": search_of(model),
            "n_eigenpairs": model.n_eigenpairs,
            "relative_error": model.relative_error,
            "n_threads": model.n_threads,
            "device": device_of(model),
            "dtype": model.dtype,
            "max_seconds": model.max_seconds,
            "effect_precision": effect_precision(covariates, likelihood),
            "integrate": model.integrate,
            "features": read_features(model.graph, model.features),
            **options,
        }
    )
