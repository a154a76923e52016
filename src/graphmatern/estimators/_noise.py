"""Regression with noise that is not Gaussian: from options and data to what the site engines fit."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from graphmatern._validation import FaultList, check_choice
from graphmatern.errors import KernelError, TableError
from graphmatern.inference._sites import SiteObservations
from graphmatern.likelihoods import Gaussian, NegativeBinomial, Numeric, Poisson, StudentT
from graphmatern.likelihoods._numbers import Counts

if TYPE_CHECKING:
    from graphmatern.estimators._data import TrainingData

__all__ = ["make_likelihood", "noise_variance", "site_observations", "starting_mean"]

_LIKELIHOODS = {"gaussian": None, "student_t": StudentT, "poisson": Poisson, "negative_binomial": NegativeBinomial}


def make_likelihood(estimator: Any, data: TrainingData) -> Numeric | None:
    """The likelihood of a regressor, checked against its data; None for Gaussian noise, which needs none.

    Parameters
    ----------
    estimator : GraphGPRegressor
        The estimator.
    data : TrainingData
        Its data.
    """
    wanted = estimator.likelihood
    if isinstance(wanted, Numeric):
        likelihood: Numeric | None = copy.deepcopy(wanted)
    else:
        check_choice("likelihood", wanted, tuple(_LIKELIHOODS), KernelError)
        kind = _LIKELIHOODS[wanted]
        likelihood = None if kind is None else kind()
        if isinstance(likelihood, StudentT) and estimator.noise is not None:
            likelihood.scale = float(np.sqrt(estimator.noise))
    faults = FaultList("nothing was fitted", TableError)
    if data.exposure is not None and not isinstance(likelihood, Counts):
        faults.add("exposure", "must be left out unless `y` holds counts", "some", "Use likelihood='poisson'.")
    if likelihood is not None and not isinstance(likelihood, Gaussian):
        name = f"likelihood={wanted!r}"
        if data.y.shape[1] > 1:
            faults.add("y", f"must have one column for {name}", f"{data.y.shape[1]}", "Fit each replicate by itself.")
        if data.noise is not None:
            faults.add("noise_variance", f"must be left out for {name}", "some", "Use Gaussian noise.")
        if estimator.covariates is not None:
            faults.add("covariates", f"must be left out for {name}", "some", "Use Gaussian noise.")
        likelihood.note_faults(data.y, faults)
    faults.raise_if_any()
    return likelihood


def site_observations(data: TrainingData, likelihood: Numeric, y_mean: float, y_scale: float) -> SiteObservations:
    """The observations in normalised units; exposures become offsets."""
    y = (data.y[:, 0] - y_mean) / y_scale
    offset = np.zeros(len(y)) if data.exposure is None else np.log(data.exposure)
    return SiteObservations(data.nodes, torch.from_numpy(np.ascontiguousarray(y)), likelihood, offset)


def starting_mean(observed: SiteObservations) -> float:
    """Constant mean of the latent process to start from: of counts, the logarithm of the overall rate."""
    if not isinstance(observed.likelihood, Counts):
        return 0.0
    return float(np.log((observed.y.sum().item() + 0.5) / np.exp(observed.offset).sum()))


def noise_variance(likelihood: Numeric) -> float:
    """Variance of the noise, in normalised units; NaN for counts, where it follows the rate."""
    if isinstance(likelihood, Counts):
        return float("nan")
    nothing = torch.zeros((1, 1), dtype=torch.float64)
    with torch.no_grad():
        return float(likelihood.observation_moments(nothing, nothing)[1].item())
