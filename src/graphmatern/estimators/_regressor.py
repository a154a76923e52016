"""Gaussian process regression on the nodes of a graph."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from graphmatern._validation import FaultList, check_positive, note_choice, note_flag
from graphmatern.design import of_prior
from graphmatern.errors import KernelError
from graphmatern.estimators._area_results import AreaResults
from graphmatern.estimators._base import reached_by
from graphmatern.estimators._data import TrainingData, join_observations, read_observations
from graphmatern.estimators._files import SPECTRAL_ENGINES, spectrum_from_state, spectrum_state
from graphmatern.estimators._hyperparameters import integrated_from_state, integrated_state
from graphmatern.estimators._options import check_options, device_of, documented, rules_of, uses_normalized
from graphmatern.estimators._regression_problem import (
    LIKELIHOODS,
    check_trials,
    covariates_of,
    effect_precision,
    likelihood_of,
    problem_of,
    scale_of,
)
from graphmatern.estimators._results import noise_of
from graphmatern.estimators._scores import RegressionScores
from graphmatern.inference import (
    ENGINES,
    Known,
    Optimum,
    PriorsAndBounds,
    Search,
    eigenpairs_used,
    learn,
    update_weights,
    with_default_priors,
)
from graphmatern.likelihoods import Gaussian, Numeric
from graphmatern.report import counted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import ArrayLike

    from graphmatern.design import Measurable
    from graphmatern.graph import Graph
    from graphmatern.inference import Fit, Prior
    from graphmatern.kernels import Kernel

__all__ = ["GraphGPRegressor"]

_PINNED = 1e14  # of a constant mean that is known


@documented
class GraphGPRegressor(RegressionScores, AreaResults):
    """Gaussian process regression on a graph: from values at some nodes to predictions at all of them.

    Parameters
    ----------
    <graph>
    kernel : Kernel, optional
        Kernel with starting values, in units in which y has variance 1; fixed parameters are kept. By default a Matérn
        kernel whose starting values are chosen from the data.
    <normalized>
    engine : {"auto", "spectral", "markov", "moments", "features", "inducing", "eigenvectors"}
        How to compute: with eigenpairs (any kernel), sparse precisions (Matérn; millions of nodes on road-like graphs),
        or Chebyshev moments at the observed nodes (any kernel; social, citation and nearest-neighbour graphs). These
        agree: exactly, or to ``relative_error`` if a Matérn kernel's smoothness is not an integer.
        "features" is the only one that takes features, and is chosen if there are any.
        "inducing" and "eigenvectors" restrict the posterior to inducing nodes or leading eigenvectors.
    <n_eigenpairs>
    noise : float, optional
        Starting value of the noise variance, in units in which y has variance 1.
    mean : {"constant", "zero"}
        Mean of the process; a constant is integrated out. Replicates share it.
    covariates : DataFrame, Series or array_like, shape (n_nodes, n_covariates), optional
        Values at every node that enter the mean linearly, with coefficients that replicates share and that are
        integrated out (`coefficients_`): a table indexed by node name, or an array in the order of the nodes.
    <features>
    normalize_y : bool
        Whether first to subtract the mean of y and divide by its standard deviation, or robust versions of these
        (the median, and the median distance from it) if outliers are expected; counts are left as they are.
    likelihood : {"gaussian", "student_t", "poisson", "negative_binomial", "zero_inflated_poisson", "binomial", "gamma"}
        How observations depend on the process: with Gaussian noise, with outliers, as counts whose rate is e^f, as
        successes among trials of probability 1/(1 + e^(−f)), or as positive numbers of mean e^f. A
        likelihood object (`graphmatern.likelihoods`) sets starting values and fixes parameters. Counts are fitted by
        variational inference, noise with outliers by expectation propagation. Predictions are of the response: for
        counts, the rate at exposure 1. Coefficients of the mean have a flat prior with Gaussian noise, otherwise a
        normal one, in units of f per standard deviation of the covariate: of standard deviation 10 with outliers, of
        2.5 on logarithms and logits. To change it, use ``priors={"coefficients": gm.Normal(1.0)}``, or a covariate's
        name or "(constant)" instead of "coefficients", in units of f (of y for measurements).
    <optimizer>
    <max_iterations>
    <learning_rate>
    <n_restarts>
    <bounds>
    <priors>
    <integrate>
    <random_state>
    <relative_error>
    <n_threads>
    <device>
    <dtype>
    <max_seconds>
    <verbose>

    Attributes
    ----------
    kernel_ : Kernel
        Learned kernel, in normalised units: the most likely one.
    noise_ : float
        Learned noise variance, in normalised units; relative to the known variances if these are given.
    log_marginal_likelihood_ : float
        Of the normalised values at the parameters of `kernel_`, including the constant: exact for Gaussian noise,
        expectation propagation's approximation for noise with outliers, the evidence lower bound for counts.
    log_evidence_ : float
        The same with the parameters integrated out, for comparing models.
    hyperparameters_ : DataFrame
        What is known about the parameters: mode, mean, sd, 2.5%, 50% and 97.5%, in the units of y.
    likelihood_ : Likelihood
        Likelihood with the learned parameters, in normalised units.
    engine_ : str
        Engine used.
    engine_reason_ : str
        Why, in a sentence.
    gradient_norm_ : float
        Largest derivative of the marginal likelihood at the end.
    converged_ : bool
        Whether the optimiser converged.
    at_bounds_ : list of str
        Parameters that ended at a bound.
    n_evaluations_ : int
        Evaluations of the marginal likelihood.
    y_mean_, y_scale_ : float
        Convert normalised units: ``y = y_mean_ + y_scale_ * normalised``.
    informed_ : ndarray of bool, shape (n_nodes,)
        Whether data reach the node's connected component.
    coefficients_ : DataFrame
        Coefficients of the mean, in the units of y (of f for counts): mean, sd, 2.5%, 50% and 97.5%.
    prior_variance_lost_ : ndarray, shape (n_nodes,)
        Bound on the prior variance that a truncated spectrum loses at every node, in normalised units; zero if
        nothing is truncated.

    Examples
    --------
    >>> import graphmatern as gm, numpy as np
    >>> city = gm.make_roads(300, seed=0)
    >>> truth = gm.Matern(nu=2, lengthscale=8.0).on(city).sample(random_state=0).numpy()[0]
    >>> observed = city.nodes[::3]
    >>> model = gm.GraphGPRegressor(city).fit(observed, truth[::3])
    >>> mean, std = model.predict(return_std=True)
    >>> bool(np.mean(np.abs(truth - mean) < 1.96 * std + 1e-9) > 0.8)
    True
    """

    def __init__(
        self,
        graph: Graph,
        kernel: Kernel | None = None,
        *,
        normalized: bool | None = None,
        engine: str = "auto",
        n_eigenpairs: int | None = None,
        noise: float | None = None,
        mean: Literal["constant", "zero"] = "constant",
        covariates: Any = None,
        features: Any = None,
        normalize_y: bool = True,
        likelihood: Literal[
            "gaussian", "student_t", "poisson", "negative_binomial", "zero_inflated_poisson", "binomial", "gamma"
        ]
        | Numeric = "gaussian",
        optimizer: Literal["quasi-newton", "lbfgs", "adam"] | None = "quasi-newton",
        max_iterations: int = 200,
        learning_rate: float = 0.1,
        n_restarts: int = 0,
        bounds: Mapping[str, tuple[float, float]] | None = None,
        priors: Mapping[str, Prior] | None = None,
        integrate: Literal["auto"] | bool = "auto",
        random_state: int | None = None,
        relative_error: float = 1e-4,
        n_threads: int | None = None,
        device: str = "cpu",
        dtype: Literal["float64", "float32"] = "float64",
        max_seconds: float | None = None,
        verbose: bool | None = None,
    ) -> None:
        self.graph = graph
        self.kernel = kernel
        self.normalized = normalized
        self.engine = engine
        self.n_eigenpairs = n_eigenpairs
        self.noise = noise
        self.mean = mean
        self.covariates = covariates
        self.features = features
        self.normalize_y = normalize_y
        self.likelihood = likelihood
        self.optimizer = optimizer
        self.max_iterations = max_iterations
        self.learning_rate = learning_rate
        self.n_restarts = n_restarts
        self.bounds = bounds
        self.priors = priors
        self.integrate = integrate
        self.random_state = random_state
        self.relative_error = relative_error
        self.n_threads = n_threads
        self.device = device
        self.dtype = dtype
        self.max_seconds = max_seconds
        self.verbose = verbose

    def fit(
        self,
        nodes: Any,
        y: ArrayLike | None = None,
        *,
        noise_variance: ArrayLike | None = None,
        exposure: ArrayLike | None = None,
        trials: ArrayLike | None = None,
        covariates: Any = None,
    ) -> Self:
        """Learn the kernel's parameters and condition on the data.

        Parameters
        ----------
        nodes : sequence of hashable, Series or DataFrame
            Names of the observed nodes, in any order, repeats allowed; or the values themselves, indexed by node name.
        y : array_like, shape (n,) or (n, n_replicates), optional
            Values; NaN means not observed. Several columns are replicates that share the parameters.
        noise_variance : array_like, shape (n,), optional
            Known noise variance of every value, in the units of y; then no noise is learned.
        exposure : array_like, shape (n,), optional
            The time, population or area that each count refers to; its rate is multiplied by this. An exposure of 0
            allows only a count of 0, which carries no information.
        trials : array_like, shape (n,), optional
            Numbers of trials of which ``y`` are the successes, for likelihood="binomial".
        covariates : DataFrame or array_like, shape (n, n_covariates), optional
            Covariates of every value, such as the age group counted, in addition to those of nodes in the constructor.
            `predict` takes them as well.

        Returns
        -------
        self
        """
        self._check_options()
        data = read_observations(self.graph, nodes, y, noise_variance, exposure, trials, covariates)
        check_trials(self, trials)
        self._adopt(self._learn(data))
        self._warn_of_trouble()
        return self

    def _check_options(self) -> None:
        faults = FaultList("nothing was fitted", KernelError)
        note_choice("engine", self.engine, ("auto", *ENGINES), faults)
        note_choice("mean", self.mean, ("constant", "zero"), faults)
        note_flag("normalize_y", self.normalize_y, faults)
        if not isinstance(self.likelihood, Numeric):
            note_choice("likelihood", self.likelihood, tuple(LIKELIHOODS), faults)
        if self.noise is not None:
            check_positive("noise", self.noise, faults, remedy="Leave it out for a value from the data.")
        held = self.likelihood.fixed if isinstance(self.likelihood, Numeric) else ()
        check_options(self, ["noise", "scale", "df", "dispersion", "zeros"], faults, held)

    def _learn(self, data: TrainingData) -> dict[str, Any]:
        """Learn from data; returns every fitted attribute."""
        likelihood = likelihood_of(self, data)
        scale, level = scale_of(self, data, likelihood)
        problem = problem_of(self, data, scale, level, likelihood=likelihood)
        return self._attributes(data, scale, level, learn(problem, self.engine))

    def _attributes(
        self, data: TrainingData, scale: tuple[float, float], level: float, fit: Fit, reason: str | None = None
    ) -> dict[str, Any]:
        """Every fitted attribute."""
        noise = noise_of(fit.likelihood)
        if data.noise is not None:  # new observations are as noisy as those seen, on average
            fit.posterior.likelihood = Gaussian(noise * float(data.noise.mean()) / scale[1] / scale[1])
        lost, covariates = fit.report.get("prior_loss"), covariates_of(self, data, scale[1])
        return {
            "_data": data,
            "_fit": fit,
            "_level": level,
            "_effect_precision": effect_precision(covariates, fit.likelihood),
            "_covariates": covariates,
            "y_mean_": scale[0],
            "y_scale_": scale[1],
            "engine_": fit.engine,
            "engine_reason_": fit.reason if reason is None else reason,
            "kernel_": fit.kernel,
            "likelihood_": fit.likelihood,
            "normalized_": fit.normalized,
            "noise_": noise,
            "posterior_": fit.posterior,
            "log_marginal_likelihood_": fit.log_evidence,
            "gradient_norm_": fit.gradient_norm,
            "converged_": fit.converged,
            "n_evaluations_": fit.optimum.n_evaluations,
            "at_bounds_": fit.at_bounds,
            "prior_variance_lost_": np.zeros(self.graph.n_nodes) if lost is None else lost,
            "informed_": reached_by(self.graph, data.nodes, everywhere=fit.kernel.uses_features),
        }

    # ------------------------------------------------------------------ model files
    def _state(self) -> dict[str, Any]:
        pairs = None
        if self.engine_ in SPECTRAL_ENGINES:
            count = eigenpairs_used(self.graph, self._fit_options["n_eigenpairs"])
            pairs = spectrum_state(self.graph, count, self._fit.normalized)
        return {
            "data": dict(vars(self._data)),
            "y_mean_": self.y_mean_,
            "y_scale_": self.y_scale_,
            "level": self._level,
            "effect_precision": self._effect_precision,
            "engine_": self.engine_,
            "engine_reason_": self.engine_reason_,
            "normalized": self._fit.normalized,
            "kernel_": self.kernel_,
            "optimum": dict(vars(self._fit.optimum)),
            "sites": self._fit.sites,
            "integrated": integrated_state(self._fit.integrated),
            "inducing": self._fit.report.get("inducing"),
            "n_fields": self._fit.report.get("n_fields"),
            "standard_errors": self._standard_errors,
            "spectrum": pairs,
        }

    def _attributes_from(self, state: dict[str, Any]) -> dict[str, Any]:
        spectrum_from_state(self.graph, state["spectrum"])
        data, optimum = TrainingData(**state["data"]), Optimum(**state["optimum"])
        scale, level = (state["y_mean_"], state["y_scale_"]), state.get("level", 0.0)
        options: dict[str, Any] = {
            "kernel": state["kernel_"],
            "settings": {"inducing": state.get("inducing"), "n_fields": state.get("n_fields")},
            "normalized": state.get("normalized", uses_normalized(self)),
        }
        problem = problem_of(self, data, scale, level, **options)
        if "effect_precision" in state:
            problem = replace(problem, effect_precision=state["effect_precision"])
        elif state.get("sites") is not None and self.mean == "constant":
            # Of a file in which the constant mean was a parameter of its own, the last, and not integrated out.
            level = float(optimum.position[-1])
            optimum = replace(optimum, position=optimum.position[:-1], gradient=optimum.gradient[:-1])
            problem = problem_of(self, data, scale, level, **options)
            problem = replace(problem, effect_precision=_PINNED)
        integrated = integrated_from_state(state.get("integrated"))
        known = Known(optimum, None if problem.likelihood.gaussian else state["sites"], integrated)
        fit = learn(problem, state["engine_"], known)
        attributes = self._attributes(data, scale, level, fit, state["engine_reason_"])
        return attributes | {"_effect_precision": problem.effect_precision}

    # ------------------------------------------------------------------ more data
    def measurable(self) -> Measurable:
        """The process as `place_sensors` sees it: given the data, or the prior if the model is not fitted."""
        if self.__sklearn_is_fitted__():
            return super().measurable()
        self._check_options()
        if self.kernel is None:
            faults = FaultList("there is no process yet", KernelError)
            raise faults.raise_now("kernel", "must be given if the model is not fitted", "none", "Or fit it first.")
        options = {name: getattr(self, name) for name in ("n_eigenpairs", "n_threads", "dtype", "max_seconds")}
        own: dict[str, Any] = {"normalized": uses_normalized(self), "device": device_of(self), **options}
        return of_prior(self.graph, self.kernel, noise=self.noise, engine=self.engine, **own)

    def condition_on(
        self,
        nodes: Any,
        y: ArrayLike | None = None,
        *,
        noise_variance: ArrayLike | None = None,
        exposure: ArrayLike | None = None,
        trials: ArrayLike | None = None,
        covariates: Any = None,
    ) -> Self:
        """Return a model with more data and the same parameters, without refitting.

        Parameters
        ----------
        nodes : sequence of hashable, Series or DataFrame
            Node names; or values indexed by node name.
        y : array_like, shape (n,) or (n, n_replicates), optional
            Values; NaN means not observed.
        noise_variance : array_like, shape (n,), optional
            Known noise variance of every value, if `fit` was given them.
        exposure : array_like, shape (n,), optional
            Exposures of counts.
        trials : array_like, shape (n,), optional
            Trials, if `fit` was given them.
        covariates : DataFrame or array_like, shape (n, n_covariates), optional
            Covariates of every value, if `fit` was given them.
        """
        self._require_fit()
        subject = "nothing was added"
        check_trials(self, trials)
        had = self._data
        more = read_observations(self.graph, nodes, y, noise_variance, exposure, trials, covariates, subject=subject)
        joined, other = join_observations(had, more, subject), type(self)(**self._fit_options)
        scale = self.y_mean_, self.y_scale_
        kept = {
            "kernel": self.kernel_,
            "normalized": self._fit.normalized,
            "rules": PriorsAndBounds(),
            "search": Search(None, progress=self.verbose),
        }
        problem = problem_of(other, joined, scale, self._level, **kept)
        if had.noise is None:
            problem = replace(problem, likelihood=self.likelihood_)
        if self._fit.integrated is not None:  # in the coordinates in which it was learned
            problem = with_default_priors(replace(problem, rules=rules_of(other)))
        fit = learn(problem, self.engine_)
        if self._fit.integrated is not None:
            integrated = update_weights(problem, self.engine_, self._fit.integrated, fit.likelihood)
            fit = replace(fit, posterior=integrated.posterior, integrated=integrated)
        return other._adopt(other._attributes(joined, scale, self._level, fit, self.engine_reason_))

    def summary(self) -> str:
        """Describe the fit in a few lines of text."""
        self._require_fit()
        if self._fit.likelihood.gaussian:
            noise = self.y_scale_ * np.sqrt(noise_of(self.posterior_.likelihood))
            spread = f"noise     {self.noise_:.4g} (standard deviation {noise:.4g} in the units of y)"
            evidence = "log marginal likelihood"
        else:
            spread = f"likelihood {self.likelihood_!r}"
            matched = self.likelihood_.approximation == "moments"
            evidence = "approximate log evidence" if matched else "evidence lower bound"
        lines = [
            f"{counted(int((~np.isnan(self._data.y)).sum()), 'observation')} on {self.graph!r}",
            f"engine    {self.engine_} ({self.engine_reason_})",
            f"kernel    {self.kernel_!r}",
            spread,
            f"{evidence} {self.log_marginal_likelihood_:.4f}",
            *self._share_lines(),
            *self._fit_lines(),
        ]
        if len(self._covariates.names) > 1 or self._fit_options["covariates"] is not None:
            table = self.coefficients_
            pairs = [f"{name} {row['mean']:.4g} ± {row['sd']:.2g}" for name, row in table.iterrows()]
            lines.append(f"mean      {', '.join(pairs)}")
        if self.prior_variance_lost_.any():
            lost = float(self.prior_variance_lost_.mean())
            lines.append(f"truncated at most {lost:.3g} of prior variance lost per node, on average")
        return "\n".join(lines)
