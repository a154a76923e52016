"""Gaussian process regression on the nodes of a graph."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin

from graphmatern._validation import FaultList, check_positive, note_choice, note_flag, warn
from graphmatern.errors import KernelError, NumericalWarning, TableError
from graphmatern.estimators._common import check_fit_options, normalisation, reached_by, rules_of, uses_normalized
from graphmatern.estimators._covariates import read_covariates
from graphmatern.estimators._data import TrainingData, join_observations, read_observations
from graphmatern.estimators._files import Savable, spectrum_from_state, spectrum_state
from graphmatern.estimators._noise import make_likelihood, noise_variance, site_observations, starting_mean
from graphmatern.estimators._results import RegressionResults
from graphmatern.inference._engines import ENGINES, choose_engine
from graphmatern.inference._fit_sites import SITE_ENGINES, SiteFit, SiteProblem
from graphmatern.inference._fit_spectral import eigenpairs_used
from graphmatern.inference._fitting import FitOptions, FitProblem, FittedEngine
from graphmatern.inference._observations import group_replicates
from graphmatern.inference._optimize import Optimum
from graphmatern.inference._responses import ResponsePosterior
from graphmatern.inference._sites import Sites
from graphmatern.likelihoods import Gaussian
from graphmatern.likelihoods._numbers import Counts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import ArrayLike, NDArray

    from graphmatern.graph import Graph
    from graphmatern.inference._rules import LogNormal
    from graphmatern.kernels import Kernel
    from graphmatern.likelihoods import Numeric

    Floats = NDArray[np.float64]

__all__ = ["GraphGPRegressor"]

_LOST_SHARE = 0.1  # of the prior variance: with more of it lost, intervals are visibly too narrow


class GraphGPRegressor(RegressionResults, Savable, RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Gaussian process regression on a graph: values at some nodes in, predictions at all nodes out.

    Parameters
    ----------
    graph : Graph
        The graph.
    kernel : Kernel, optional
        Kernel with starting values, in units in which y has variance 1; fixed parameters are kept. By default a Matérn
        kernel whose starting values are chosen from the data.
    normalized : bool, optional
        Which Laplacian; by default the normalised one only where the kernel requires it.
    engine : {"auto", "spectral", "markov"}
        How to compute: through eigenpairs (any kernel), or through sparse precisions (Matérn of integer smoothness;
        millions of nodes). Both are exact and agree.
    n_eigenpairs : int, optional
        Eigenpairs of the spectral engine; all by default, up to 3,000 nodes, beyond that 500.
    noise : float, optional
        Starting value of the noise variance, in units in which y has variance 1.
    mean : {"constant", "zero"}
        Mean of the process; a constant is integrated out under a flat prior.
    covariates : DataFrame, Series or array_like, shape (n_nodes, n_covariates), optional
        Values at every node that enter the mean linearly, with coefficients under a flat prior that are integrated out
        (`coefficients_`): a table indexed by node name, or an array in the order of the nodes.
    normalize_y : bool
        Whether to subtract the mean of y and divide by its standard deviation before all else; counts are left as
        they are.
    likelihood : {"gaussian", "student_t", "poisson", "negative_binomial"} or likelihood
        How observations depend on the process: with Gaussian noise, with outliers, or as counts whose rate is e^f. A
        likelihood object (`graphmatern.likelihoods`) sets starting values and holds parameters. All but Gaussian
        noise are fitted by variational inference, with one replicate and without covariates, and predictions are those
        of the response: the rate of a count of exposure 1.
    optimizer : {"lbfgs", "adam"} or None
        What maximises the marginal likelihood; None keeps the starting values.
    max_iterations : int
        Iterations of the optimiser at most.
    learning_rate : float
        Step size of Adam, in logarithms of the parameters.
    n_restarts : int
        Further starting points, drawn at random around the first; the best optimum is kept.
    bounds : dict of str to (float, float), optional
        Least and largest value of parameters, such as ``{"lengthscale": (1.0, 50.0), "noise": (0.01, 1.0)}``.
    priors : dict of str to LogNormal, optional
        Priors of parameters, such as ``{"lengthscale": gm.LogNormal(median=10.0, spread=1.0)}``.
    random_state : int, optional
        Seed of the restarts.
    n_threads : int, optional
        Threads of the Markov engine.
    verbose : bool, optional
        Whether to show progress; by default, where the error stream is a terminal.

    Attributes
    ----------
    kernel_ : Kernel
        Learned kernel, in normalised units.
    noise_ : float
        Learned noise variance, in normalised units; relative to the known variances where those are given.
    log_marginal_likelihood_ : float
        Of the normalised values, the constant included; unless the noise is Gaussian, the evidence lower bound.
    likelihood_ : Likelihood
        Likelihood with the learned parameters, in normalised units.
    engine_ : str
        Engine used.
    engine_reason_ : str
        Why, in a sentence.
    gradient_norm_ : float
        Largest derivative of the marginal likelihood at the end.
    converged_ : bool
        Whether the optimiser was satisfied.
    at_bounds_ : list of str
        Parameters that ended at a bound.
    n_evaluations_ : int
        Evaluations of the marginal likelihood.
    y_mean_, y_scale_ : float
        Convert normalised units: ``y = y_mean_ + y_scale_ * normalised``.
    informed_ : ndarray of bool, shape (n_nodes,)
        Whether data reach the node's connected component.
    coefficients_ : DataFrame
        Coefficients of the mean and their standard deviations, in the units of y.
    prior_variance_lost_ : ndarray, shape (n_nodes,)
        Bound on the prior variance that a truncated spectrum loses at every node, in normalised units; zero where
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
        engine: Literal["auto", "spectral", "markov"] = "auto",
        n_eigenpairs: int | None = None,
        noise: float | None = None,
        mean: Literal["constant", "zero"] = "constant",
        covariates: Any = None,
        normalize_y: bool = True,
        likelihood: Literal["gaussian", "student_t", "poisson", "negative_binomial"] | Numeric = "gaussian",
        optimizer: Literal["lbfgs", "adam"] | None = "lbfgs",
        max_iterations: int = 200,
        learning_rate: float = 0.1,
        n_restarts: int = 0,
        bounds: Mapping[str, tuple[float, float]] | None = None,
        priors: Mapping[str, LogNormal] | None = None,
        random_state: int | None = None,
        n_threads: int | None = None,
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
        self.normalize_y = normalize_y
        self.likelihood = likelihood
        self.optimizer = optimizer
        self.max_iterations = max_iterations
        self.learning_rate = learning_rate
        self.n_restarts = n_restarts
        self.bounds = bounds
        self.priors = priors
        self.random_state = random_state
        self.n_threads = n_threads
        self.verbose = verbose

    def fit(
        self,
        nodes: Any,
        y: ArrayLike | None = None,
        *,
        noise_variance: ArrayLike | None = None,
        exposure: ArrayLike | None = None,
    ) -> Self:
        """Learn the kernel's parameters and condition on the data.

        Parameters
        ----------
        nodes : sequence of hashable, Series or DataFrame
            Names of the observed nodes, in any order, repeats allowed; or the values themselves, indexed by node name.
        y : array_like, shape (n,) or (n, n_replicates), optional
            Values; NaN means not observed. Several columns are replicates that share the parameters.
        noise_variance : array_like, shape (n,), optional
            Known noise variance of every value, in the units of y; no noise is learned then.
        exposure : array_like, shape (n,), optional
            For how long, or over how much, each count was taken: its rate is multiplied by this.

        Returns
        -------
        self
        """
        self._check_options()
        data = read_observations(self.graph, nodes, y, noise_variance, exposure)
        likelihood = make_likelihood(self, data)
        covariates = read_covariates(self.graph, self.covariates, constant=self.mean == "constant")
        covariates.check(data.nodes)
        for name in ("posterior_", "_fitted"):  # a fit that fails must not leave half of the last one behind
            self.__dict__.pop(name, None)
        self._covariates = covariates
        self._normalise(data, scaled=not isinstance(likelihood, Counts))
        self._learn(data)
        self._warn_of_trouble()
        return self

    def _check_options(self) -> None:
        faults = FaultList("nothing was fitted", KernelError)
        note_choice("engine", self.engine, ("auto", *ENGINES), faults)
        note_choice("mean", self.mean, ("constant", "zero"), faults)
        note_flag("normalize_y", self.normalize_y, faults)
        if self.noise is not None:
            check_positive("noise", self.noise, faults, remedy="Leave it out for a value from the data.")
        check_fit_options(self, ["noise", "scale", "df", "dispersion"], faults)

    def _normalise(self, data: TrainingData, scaled: bool) -> None:
        observed = data.y[~np.isnan(data.y)]
        self.y_mean_, self.y_scale_ = normalisation(observed) if scaled and self.normalize_y else (0.0, 1.0)

    def _options(self, data: TrainingData, known: Optimum | None) -> FitOptions:
        return FitOptions(
            normalized=uses_normalized(self),
            noise=1.0 if data.noise is not None else None if self.noise is None else float(self.noise),
            learn_noise=data.noise is None,
            optimizer=self.optimizer,
            max_iterations=self.max_iterations,
            learning_rate=self.learning_rate,
            n_restarts=self.n_restarts,
            seed=self.random_state,
            rules=rules_of(self),
            progress=self.verbose,
            known=known,
        )

    def _problem(self, data: TrainingData, kernel: Kernel | None, known: Optimum | None) -> FitProblem:
        """What the engines are to fit, in normalised units."""
        y = (data.y - self.y_mean_) / self.y_scale_
        noise = np.ones(len(y)) if data.noise is None else data.noise / self.y_scale_ / self.y_scale_
        design = self._covariates.design
        return FitProblem(
            graph=self.graph,
            kernel=copy.deepcopy(kernel),
            batches=group_replicates(data.nodes, y, noise, design[data.nodes]),
            node_design=design,
            n_eigenpairs=self.n_eigenpairs,
            n_threads=self.n_threads,
            options=self._options(data, known),
        )

    def _site_problem(
        self,
        data: TrainingData,
        likelihood: Numeric,
        kernel: Kernel | None,
        known: Optimum | None,
        start: Sites | None,
        mean: float | None,
    ) -> SiteProblem:
        """What the site engines are to fit, in normalised units."""
        observed = site_observations(data, likelihood, self.y_mean_, self.y_scale_)
        learn_mean = self.mean == "constant"
        if mean is None:
            mean = starting_mean(observed) if learn_mean else 0.0
        return SiteProblem(
            graph=self.graph,
            kernel=copy.deepcopy(kernel),
            observed=observed,
            options=self._options(data, known),
            mean=mean,
            learn_mean=learn_mean,
            n_eigenpairs=self.n_eigenpairs,
            n_threads=self.n_threads,
            start=start,
        )

    def _learn(
        self,
        data: TrainingData,
        known: Optimum | None = None,
        start: Sites | None = None,
        mean: float | None = None,
    ) -> None:
        """Fit by the engine that suits graph and kernel, or take up where an earlier fit ended."""
        kernel = self.kernel if known is None else self.kernel_
        likelihood = make_likelihood(self, data)
        self._data = data
        if likelihood is None:
            problem = self._problem(data, kernel, known)
            self._choose(problem, known)
            exact = ENGINES[self.engine_](problem)
            self.noise_, self.posterior_ = exact.noise, exact.posterior
            self.likelihood_: Numeric = Gaussian(exact.noise)
            self._adopt(exact)
        else:
            sites = self._site_problem(data, likelihood, kernel, known, start, mean)
            self._choose(sites, known)
            found = SITE_ENGINES[self.engine_](sites)
            self.noise_, self.likelihood_ = noise_variance(likelihood), likelihood
            self.posterior_ = ResponsePosterior(found, sites.observed, likelihood, learned_mean=sites.learn_mean)
            self._adopt(found)

    def _choose(self, problem: FitProblem | SiteProblem, known: Optimum | None) -> None:
        if known is None:
            self.engine_, self.engine_reason_ = choose_engine(problem, self.engine)

    def _adopt(self, found: FittedEngine | SiteFit) -> None:
        self.kernel_ = found.kernel
        self.log_marginal_likelihood_ = found.log_marginal_likelihood
        self.gradient_norm_ = found.gradient_norm
        self.converged_ = found.optimum.converged
        self.n_evaluations_ = found.optimum.n_evaluations
        self.at_bounds_ = found.at_bounds
        lost = found.prior_loss
        self.prior_variance_lost_ = np.zeros(self.graph.n_nodes) if lost is None else lost
        self._fitted = found
        self.informed_ = reached_by(self.graph, self._data.nodes)
        self._standard_errors: dict[str, float] | None = None
        self._fit_options: dict[str, Any] = self.get_params(deep=False)

    def _warn_of_trouble(self) -> None:
        found = self._fitted
        if not self.converged_:
            message = found.optimum.message
            warn(f"the fit stopped early: {message}; raise max_iterations or change the start", NumericalWarning)
        if found.prior_loss_share > _LOST_SHARE:
            warn(
                f"the eigenpairs used lose up to {found.prior_loss_share:.0%} of the prior variance: predictions away "
                "from the data are too sure of themselves (variance starvation). Use more eigenpairs, or engine="
                "'markov' with a Matérn kernel of integer smoothness",
                NumericalWarning,
            )

    # ------------------------------------------------------------------ model files
    def _state(self) -> dict[str, Any]:
        pairs = None
        if self.engine_ == "spectral":
            fitted_as = type(self)(**self._options_of_fit())
            count = eigenpairs_used(self.graph, fitted_as.n_eigenpairs)
            pairs = spectrum_state(self.graph, count, uses_normalized(fitted_as))
        return {
            "data": dict(vars(self._data)),
            "y_mean_": self.y_mean_,
            "y_scale_": self.y_scale_,
            "engine_": self.engine_,
            "engine_reason_": self.engine_reason_,
            "kernel_": self.kernel_,
            "optimum": dict(vars(self._fitted.optimum)),
            "sites": list(self._fitted.state.sites) if isinstance(self._fitted, SiteFit) else None,
            "standard_errors": self._standard_errors,
            "spectrum": pairs,
        }

    def _restore(self, state: dict[str, Any]) -> None:
        for name in ("y_mean_", "y_scale_", "engine_", "engine_reason_", "kernel_"):
            setattr(self, name, state[name])
        spectrum_from_state(self.graph, state["spectrum"])
        self._covariates = read_covariates(self.graph, self.covariates, constant=self.mean == "constant")
        sites = None if state.get("sites") is None else Sites(*state["sites"])
        self._learn(TrainingData(**state["data"]), Optimum(**state["optimum"]), sites)
        self._standard_errors = state["standard_errors"]

    # ------------------------------------------------------------------ more of it
    def condition_on(
        self,
        nodes: Any,
        y: ArrayLike | None = None,
        *,
        noise_variance: ArrayLike | None = None,
        exposure: ArrayLike | None = None,
    ) -> Self:
        """Return a model with more data and the same parameters, without learning again.

        Parameters
        ----------
        nodes : sequence of hashable, Series or DataFrame
            Node names; or values indexed by node name.
        y : array_like, shape (n,) or (n, n_replicates), optional
            Values; NaN means not observed.
        noise_variance : array_like, shape (n,), optional
            Known noise variance of every value, where `fit` was given those.
        exposure : array_like, shape (n,), optional
            Exposures of counts.
        """
        self._require_fit()
        subject = "nothing was added"
        had, more = self._data, read_observations(self.graph, nodes, y, noise_variance, exposure, subject=subject)
        faults = FaultList(subject, TableError)
        if more.y.shape[1] != had.y.shape[1]:
            rule = f"must have as many replicates as before, {had.y.shape[1]}"
            faults.add("y", rule, str(more.y.shape[1]), "Fill up with NaN what was not observed.")
        if (more.noise is None) != (had.noise is None):
            rule = "must be given if, and only if, it was given to `fit`"
            received = "none" if more.noise is None else "some"
            faults.add("noise_variance", rule, received, "Or fit again with all data.")
        faults.raise_if_any()
        joined = join_observations(had, more)
        options = self._options_of_fit()
        kept: dict[str, Any] = {"kernel": self.kernel_, "optimizer": None, "engine": self.engine_}
        sites = isinstance(self._fitted, SiteFit)
        kept |= {"likelihood": self.likelihood_} if sites else {"noise": self.noise_}
        other = type(self)(**{**options, **kept})
        for name in ("y_mean_", "y_scale_", "_covariates"):
            setattr(other, name, getattr(self, name))
        other._learn(joined, mean=self._fitted.mean if isinstance(self._fitted, SiteFit) else None)
        other.set_params(**{name: options[name] for name in kept})
        other._fit_options = options
        other.engine_reason_ = self.engine_reason_
        return other

    def standard_errors(self) -> dict[str, float]:
        """Standard errors of the logarithms of the learned parameters, from the curvature of the likelihood.

        Returns
        -------
        dict of str to float
            An error of 0.1 means that the parameter is known to about 10 %; NaN where the likelihood has no peak.
        """
        self._require_fit()
        if self._standard_errors is None:
            self._standard_errors = self._fitted.standard_errors()
        return dict(self._standard_errors)

    def summary(self) -> str:
        """Describe the fit in a few lines of text."""
        self._require_fit()
        if isinstance(self._fitted, SiteFit):
            spread, bound = f"likelihood {self.likelihood_!r}", "evidence lower bound"
        else:
            noise = self.y_scale_ * np.sqrt(self._observation_noise)
            spread = f"noise     {self.noise_:.4g} (standard deviation {noise:.4g} in the units of y)"
            bound = "log marginal likelihood"
        state = "converged" if self.converged_ else "stopped early"
        lines = [
            f"{int((~np.isnan(self._data.y)).sum()):,} observations on {self.graph!r}",
            f"engine    {self.engine_} ({self.engine_reason_})",
            f"kernel    {self.kernel_!r}",
            spread,
            f"{bound} {self.log_marginal_likelihood_:.4f}",
            f"optimum   {state}, {self.n_evaluations_} evaluations, largest derivative {self.gradient_norm_:.1e}",
        ]
        if self.at_bounds_:
            lines.append(f"bounds    {', '.join(self.at_bounds_)} ended at a bound")
        if len(self._covariates.names) > 1 or self.covariates is not None:
            table = self.coefficients_
            pairs = [f"{name} {row['mean']:.4g} ± {row['std']:.2g}" for name, row in table.iterrows()]
            lines.append(f"mean      {', '.join(pairs)}")
        if self.prior_variance_lost_.any():
            lost = float(self.prior_variance_lost_.mean())
            lines.append(f"truncated at most {lost:.3g} of prior variance lost per node, on average")
        return "\n".join(lines)
