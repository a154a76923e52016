"""Gaussian process regression on the nodes of a graph."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import pandas as pd
from scipy.stats import norm
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.exceptions import NotFittedError

from graphmatern._validation import FaultList, check_choice, check_positive, check_whole, random_generator, warn
from graphmatern.errors import KernelError, NumericalWarning, TableError
from graphmatern.estimators._data import TrainingData, read_observations
from graphmatern.estimators._files import Savable, spectrum_from_state, spectrum_state
from graphmatern.inference._fitting import FitOptions, FittedEngine, fit_markov, fit_spectral
from graphmatern.inference._observations import group_replicates
from graphmatern.inference._optimize import Optimum
from graphmatern.kernels import Matern
from graphmatern.plotting import plot_prediction

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from numpy.typing import ArrayLike, NDArray

    from graphmatern.graph import Graph
    from graphmatern.kernels import Kernel

    Floats = NDArray[np.float64]

__all__ = ["GraphGPRegressor"]

_DENSE_NODES = 3000  # nodes up to which all eigenpairs are cheap
_DEFAULT_EIGENPAIRS = 500


class GraphGPRegressor(Savable, RegressorMixin, BaseEstimator):  # type: ignore[misc]
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
    normalize_y : bool
        Whether to subtract the mean of y and divide by its standard deviation before all else.
    optimizer : {"lbfgs", "adam"} or None
        What maximises the marginal likelihood; None keeps the starting values.
    max_iterations : int
        Iterations of the optimiser at most.
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
        Of the normalised values, the constant included.
    engine_ : str
        Engine used.
    engine_reason_ : str
        Why, in a sentence.
    gradient_norm_ : float
        Largest derivative of the marginal likelihood at the end.
    converged_ : bool
        Whether the optimiser was satisfied.
    n_evaluations_ : int
        Evaluations of the marginal likelihood.
    y_mean_, y_scale_ : float
        Convert normalised units: ``y = y_mean_ + y_scale_ * normalised``.
    informed_ : ndarray of bool, shape (n_nodes,)
        Whether data reach the node's connected component.

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
        normalize_y: bool = True,
        optimizer: Literal["lbfgs", "adam"] | None = "lbfgs",
        max_iterations: int = 200,
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
        self.normalize_y = normalize_y
        self.optimizer = optimizer
        self.max_iterations = max_iterations
        self.n_threads = n_threads
        self.verbose = verbose

    # ------------------------------------------------------------------ fitting
    def fit(self, nodes: Any, y: ArrayLike | None = None, *, noise_variance: ArrayLike | None = None) -> Self:
        """Learn the kernel's parameters and condition on the data.

        Parameters
        ----------
        nodes : sequence of hashable, Series or DataFrame
            Names of the observed nodes, in any order, repeats allowed; or the values themselves, indexed by node name.
        y : array_like, shape (n,) or (n, n_replicates), optional
            Values; NaN means not observed. Several columns are replicates that share the parameters.
        noise_variance : array_like, shape (n,), optional
            Known noise variance of every value, in the units of y; then only their common factor, 1 at the start, is
            held, not learned.

        Returns
        -------
        self
        """
        self._check_options()
        data = read_observations(self.graph, nodes, y, noise_variance)
        self._normalise(data)
        self._learn(data)
        if not self.converged_:
            message = self._fitted.message
            warn(f"the fit stopped early: {message}; raise max_iterations or change the start", NumericalWarning)
        return self

    def _check_options(self) -> None:
        check_choice("engine", self.engine, ("auto", "spectral", "markov"), KernelError)
        check_choice("mean", self.mean, ("constant", "zero"), KernelError)
        if self.optimizer is not None:
            check_choice("optimizer", self.optimizer, ("lbfgs", "adam"), KernelError)
        faults = FaultList("nothing was fitted", KernelError)
        if self.noise is not None:
            check_positive("noise", self.noise, faults, remedy="Leave it out for a value from the data.")
        check_whole("max_iterations", self.max_iterations, faults, minimum=1, remedy="Allow at least one.")
        faults.raise_if_any()

    def _normalise(self, data: TrainingData) -> None:
        observed = data.y[~np.isnan(data.y)]
        self.y_mean_ = float(observed.mean()) if self.normalize_y else 0.0
        scale = float(observed.std()) if self.normalize_y else 1.0
        self.y_scale_ = scale if scale > 1e-12 * max(1.0, abs(self.y_mean_)) else 1.0

    @property
    def _uses_normalized(self) -> bool:
        if self.normalized is None:
            return self.kernel is not None and self.kernel.requires_normalized
        return self.normalized

    @property
    def _n_eigenpairs_used(self) -> int | None:
        if self.n_eigenpairs is None and self.graph.n_nodes > _DENSE_NODES:
            return _DEFAULT_EIGENPAIRS
        return self.n_eigenpairs

    def _learn(self, data: TrainingData, known: Optimum | None = None) -> None:
        """Fit by the engine that suits graph and kernel, or take up where an earlier fit ended."""
        kernel = None if self.kernel is None else copy.deepcopy(self.kernel)
        if known is None:
            name, smoothness, self.engine_reason_ = self._choose_engine(kernel)
        else:
            name = self.engine_
            smoothness = (round(self.kernel_.values()["nu"]),) if name == "markov" else ()  # type: ignore[operator]
        y = (data.y - self.y_mean_) / self.y_scale_
        noise = np.ones(len(y)) if data.noise is None else data.noise / self.y_scale_**2
        design = np.ones((len(y), 1 if self.mean == "constant" else 0))
        batches = group_replicates(data.nodes, y, noise, design)
        node_design = np.ones((self.graph.n_nodes, design.shape[1]))
        options = FitOptions(
            normalized=self._uses_normalized,
            noise=self.noise if data.noise is None else 1.0,
            learn_noise=data.noise is None,
            optimizer=self.optimizer,
            max_iterations=self.max_iterations,
            progress=self.verbose,
            known=known,
        )
        if name == "markov":
            found = fit_markov(
                self.graph, kernel, smoothness, batches, node_design, n_threads=self.n_threads, options=options
            )
        else:
            count = self._n_eigenpairs_used
            found = fit_spectral(self.graph, kernel, batches, node_design, n_eigenpairs=count, options=options)
        self._data = data
        self._adopt(found)

    def _choose_engine(self, kernel: Kernel | None) -> tuple[str, tuple[int, ...], str]:
        """Engine, the smoothnesses it tries, and the reason."""
        smoothness: tuple[int, ...] = (1, 2, 3)
        whole = kernel is None
        if isinstance(kernel, Matern):
            nu = kernel.values()["nu"]
            whole = nu == round(nu) and nu >= 1
            smoothness = (int(nu),) if whole else ()
        if self.engine == "markov":
            if not whole:
                faults = FaultList("nothing was fitted", KernelError)
                received = repr(kernel)
                remedy = "Use Matern with nu = 1, 2 or 3, or engine='spectral'."
                raise faults.raise_now(
                    "kernel", "must be Matérn of integer smoothness for engine='markov'", received, remedy
                )
            return "markov", smoothness, "asked for"
        if self.engine == "spectral":
            return "spectral", smoothness, "asked for"
        n = self.graph.n_nodes
        if n <= _DENSE_NODES:
            return "spectral", smoothness, f"{n:,} nodes: all eigenpairs are cheap, any smoothness can be learned"
        if whole and self.n_eigenpairs is None:
            return "markov", smoothness, f"{n:,} nodes and integer smoothness: the sparse precision is exact and fast"
        return "spectral", smoothness, f"{n:,} nodes and a kernel without sparse precision: leading eigenpairs"

    def _adopt(self, found: FittedEngine) -> None:
        self.engine_ = found.engine
        self.kernel_ = found.kernel
        self.noise_ = found.noise
        self.posterior_ = found.posterior
        self.log_marginal_likelihood_ = found.log_marginal_likelihood
        self.gradient_norm_ = found.gradient_norm
        self.converged_ = found.converged
        self.n_evaluations_ = found.n_evaluations
        self._fitted = found
        reached = np.zeros(self.graph.n_components, dtype=bool)
        reached[self.graph.components[self._data.nodes]] = True
        self.informed_ = reached[self.graph.components]
        self._standard_errors: dict[str, float] | None = None

    # ------------------------------------------------------------------ model files
    def _state(self) -> dict[str, Any]:
        spectral = self.engine_ == "spectral"
        return {
            "data": dict(vars(self._data)),
            "y_mean_": self.y_mean_,
            "y_scale_": self.y_scale_,
            "engine_": self.engine_,
            "engine_reason_": self.engine_reason_,
            "kernel_": self.kernel_,
            "optimum": dict(vars(self._fitted.optimum)),
            "standard_errors": self._standard_errors,
            "spectrum": spectrum_state(self.graph, self._n_eigenpairs_used, self._uses_normalized)
            if spectral
            else None,
        }

    def _restore(self, state: dict[str, Any]) -> None:
        for name in ("y_mean_", "y_scale_", "engine_", "engine_reason_", "kernel_"):
            setattr(self, name, state[name])
        spectrum_from_state(self.graph, state["spectrum"])
        self._learn(TrainingData(**state["data"]), Optimum(**state["optimum"]))
        self._standard_errors = state["standard_errors"]

    # ------------------------------------------------------------------ prediction
    def _require_fit(self) -> None:
        if not hasattr(self, "posterior_"):
            raise NotFittedError("this GraphGPRegressor is not fitted yet: call `fit` first")

    def _squeeze(self, values: Floats) -> Floats:
        """One column per replicate, unless there is only one."""
        return values[:, 0] if values.shape[1] == 1 else values

    def predict(
        self,
        nodes: Any = None,
        return_std: bool = False,
        return_cov: bool = False,
        observation: bool = False,
    ) -> Any:
        """Predict at nodes.

        Parameters
        ----------
        nodes : sequence of hashable, optional
            Node names; all nodes by default.
        return_std : bool
            Whether to return standard deviations as well.
        return_cov : bool
            Whether to return the covariance as well (of the first replicate).
        observation : bool
            Whether these are those of a new noisy observation, rather than of the process itself.

        Returns
        -------
        mean : ndarray, shape (n_names,) or (n_names, n_replicates)
        std : ndarray, shape as ``mean``
            If ``return_std``.
        cov : ndarray, shape (n_names, n_names)
            If ``return_cov``.
        """
        self._require_fit()
        places = self.graph.locate(nodes)
        mean = self.y_mean_ + self.y_scale_ * self.posterior_.mean(places)
        found = [self._squeeze(mean)]
        added = self.noise_ if observation else 0.0
        if return_std:
            variance = self.posterior_.variance(places) + added
            found.append(self._squeeze(self.y_scale_ * np.sqrt(variance)))
        if return_cov:
            covariance = self.posterior_.covariance(places) + added * np.eye(len(places))
            found.append(self.y_scale_**2 * covariance)
        return found[0] if len(found) == 1 else tuple(found)

    def predict_table(self, level: float = 0.95) -> pd.DataFrame:
        """Predictions at every node (of the first replicate), with intervals, in a table indexed by node name.

        Parameters
        ----------
        level : float
            Probability of the intervals.

        Returns
        -------
        DataFrame
            Columns mean, std, lower, upper (of the process), observation_lower, observation_upper (of a new
            observation) and informed (False where no data reach the node's component).
        """
        self._require_fit()
        if not 0.0 < level < 1.0:
            faults = FaultList("no table", TableError)
            raise faults.raise_now("level", "must lie between 0 and 1", repr(level), "0.95 is usual.")
        places = np.arange(self.graph.n_nodes)
        mean = self.y_mean_ + self.y_scale_ * self.posterior_.mean(places)[:, 0]
        variance = self.posterior_.variance(places)[:, 0]
        std, noisy = (self.y_scale_ * np.sqrt(variance + added) for added in (0.0, self.noise_))
        half = float(norm.ppf(0.5 + 0.5 * level))
        return pd.DataFrame(
            {
                "mean": mean,
                "std": std,
                "lower": mean - half * std,
                "upper": mean + half * std,
                "observation_lower": mean - half * noisy,
                "observation_upper": mean + half * noisy,
                "informed": self.informed_,
            },
            index=self.graph.nodes,
        )

    def sample(self, n_samples: int = 1, nodes: Any = None, random_state: int | None = None) -> Floats:
        """Draw functions from the posterior (of the first replicate); shape (n_samples, n_names)."""
        self._require_fit()
        faults = FaultList("no samples", TableError)
        check_whole("n_samples", n_samples, faults, minimum=1, remedy="Draw at least one.")
        faults.raise_if_any()
        rng = random_generator(random_state, TableError)
        draws = self.posterior_.sample(n_samples, self.graph.locate(nodes), rng)
        return np.asarray(self.y_mean_ + self.y_scale_ * draws)

    def condition_on(self, nodes: Any, y: ArrayLike | None = None) -> Self:
        """Return a model with more data and the same parameters, without learning again."""
        self._require_fit()
        more = read_observations(self.graph, nodes, y, None)
        if self._data.noise is not None or more.y.shape[1] != self._data.y.shape[1]:
            faults = FaultList("nothing was added", TableError)
            received = f"{more.y.shape[1]} columns" if self._data.noise is None else "known noise variances"
            rule = "must have as many replicates as before, without known noise variances"
            raise faults.raise_now("y", rule, received, "Fit again with all data.")
        other = copy.copy(self)
        joined = TrainingData(np.concatenate([self._data.nodes, more.nodes]), np.vstack([self._data.y, more.y]), None)
        other.kernel, other.noise, other.optimizer = self.kernel_, self.noise_, None
        other.engine = self.engine_  # type: ignore[assignment]
        other._learn(joined)
        other.kernel, other.noise, other.optimizer, other.engine = self.kernel, self.noise, self.optimizer, self.engine
        return other

    def loo(self) -> pd.DataFrame:
        """Leave-one-out predictions of the observations, in closed form.

        Returns
        -------
        DataFrame
            One row per observation: node, replicate, y, mean, std (of the observation given all others).
        """
        self._require_fit()
        tables = []
        observed = ~np.isnan(self._data.y)
        for columns, means, variances in self.posterior_.leave_one_out():
            rows = np.flatnonzero(observed[:, columns[0]])
            for k, column in enumerate(columns):
                tables.append(
                    pd.DataFrame(
                        {
                            "node": self.graph.nodes[self._data.nodes[rows]],
                            "replicate": column,
                            "y": self._data.y[rows, column],
                            "mean": self.y_mean_ + self.y_scale_ * means[:, k],
                            "std": self.y_scale_ * np.sqrt(variances),
                        }
                    )
                )
        return pd.concat(tables, ignore_index=True)

    def standard_errors(self) -> dict[str, float]:
        """Standard errors of the logarithms of the learned parameters, from the curvature of the likelihood."""
        self._require_fit()
        if self._standard_errors is None:
            self._standard_errors = self._fitted.standard_errors()
        return dict(self._standard_errors)

    def plot(self, axes: Sequence[Axes] | None = None, *, label: str = "") -> NDArray[Any]:
        """Draw the predictions (of the first replicate) and, beside them, how sure they are.

        Parameters
        ----------
        axes : sequence of two Axes, optional
            Where to draw; a new figure by default.
        label : str
            What is predicted, with its unit.

        Returns
        -------
        ndarray of two Axes
            Mean and standard deviation of the process; nodes with data have a ring.
        """
        self._require_fit()
        table = self.predict_table()
        observed = np.unique(self._data.nodes[~np.isnan(self._data.y[:, 0])])
        marked = self.graph.nodes[observed]
        return plot_prediction(self.graph, table["mean"], table["std"], axes, label=label, marked=marked)

    def summary(self) -> str:
        """Describe the fit in a few lines of text."""
        self._require_fit()
        noise = self.y_scale_ * np.sqrt(self.noise_)
        state = "converged" if self.converged_ else "stopped early"
        return "\n".join(
            [
                f"{int((~np.isnan(self._data.y)).sum()):,} observations on {self.graph!r}",
                f"engine    {self.engine_} ({self.engine_reason_})",
                f"kernel    {self.kernel_!r}",
                f"noise     {self.noise_:.4g} (standard deviation {noise:.4g} in the units of y)",
                f"log marginal likelihood {self.log_marginal_likelihood_:.4f}",
                f"optimum   {state}, {self.n_evaluations_} evaluations, largest derivative {self.gradient_norm_:.1e}",
            ]
        )
