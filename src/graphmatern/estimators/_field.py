"""Gaussian process regression on the nodes of a graph over time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import pandas as pd

from graphmatern._validation import FaultList, check_positive, check_whole, note_choice, note_flag
from graphmatern.errors import KernelError
from graphmatern.estimators._base import normalisation, reached_by
from graphmatern.estimators._covariates import read_covariates
from graphmatern.estimators._field_data import FieldData, read_field
from graphmatern.estimators._field_scores import FieldScores
from graphmatern.estimators._files import FIELD_ENGINES, spectrum_from_state, spectrum_state
from graphmatern.estimators._hyperparameters import integrated_from_state, integrated_state
from graphmatern.estimators._options import check_options, documented, rules_of, search_of, uses_normalized
from graphmatern.estimators._results import noise_of
from graphmatern.estimators._times import TIME_UNITS, TimeAxis
from graphmatern.inference import Known, Optimum, eigenpairs_used
from graphmatern.inference.field import (
    FieldEffects,
    FieldGrid,
    FieldProblem,
    IterativeOptions,
    choose_method,
    default_probes,
    learn_field,
    order_of,
    update_field,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpytorch.kernels import Kernel as GPyTorchKernel
    from numpy.typing import ArrayLike

    from graphmatern.graph import Graph
    from graphmatern.inference import Prior
    from graphmatern.kernels import Kernel

__all__ = ["GraphFieldRegressor"]

_MOST_ITERATIONS = 1000  # of conjugate gradients and Lanczos


@documented
class GraphFieldRegressor(FieldScores):
    """Gaussian process regression on a graph over time: from values at some nodes and times to predictions at all.

    The covariance of two cells is the product of one between their times and one between their nodes, k(t, t′) k(i,
    i′), plus noise.

    Parameters
    ----------
    <graph>
    kernel : Kernel, optional
        Kernel on the graph with starting values, in units in which the values have variance 1; its variance is that of
        the field. By default a Matérn kernel whose starting values are chosen from the data.
    time_kernel : gpytorch.kernels.Kernel, optional
        Any GPyTorch kernel on time: Matérn, periodic, sums and products, with starting values; parameters with
        ``requires_grad=False`` are held. If it has a scale of its own, fix the variance of ``kernel``. By default
        Matérn 3/2, with starting values from the data.
    time_unit : {"s", "min", "h", "D", "W"}
        Unit of the parameters of ``time_kernel`` if times are dates. Numbers are used as they are.
    <normalized>
    engine : {"auto", "kronecker", "dense", "state-space", "iterative"}
        How to compute: complete grids by Kronecker algebra; up to 3,000 cells with gaps by a dense Cholesky factor; few
        nodes at many times by a Kalman filter, if ``time_kernel`` is Matérn, scaled or not; all others by filling in
        the gaps with conjugate gradients. All but the last are exact.
    <n_eigenpairs>
    noise : float, optional
        Starting value of the noise variance, in units in which the values have variance 1.
    mean : {"constant", "zero"}
        Mean of the field; a constant is integrated out.
    covariates : DataFrame, Series or array_like, shape (n_nodes, n_covariates), optional
        Values at every node that enter the mean linearly, the same at all times, with coefficients that are integrated
        out (`coefficients_`): a table indexed by node name, or an array in the order of the nodes. Coefficients have a
        flat prior; ``priors={"coefficients": gm.Normal(1.0)}`` sets another, as does a covariate's name or
        "(constant)" in place of "coefficients".
    normalize_y : bool
        Whether first to subtract the mean of the values and divide by their standard deviation.
    <optimizer>
    <max_iterations>
    <n_restarts>
    bounds : dict of str to (float, float), optional
        Smallest and largest values of parameters of ``kernel`` and of the noise; ``time_kernel`` has its own
        constraints.
    priors : dict of str to Prior, optional
        Priors of the same parameters. Those registered with ``time_kernel`` count as well.
    <integrate>
        Lengthscales and periods of ``time_kernel`` have a weak prior as well, around the geometric mean of the gap
        between times and the whole time observed (a factor of 13 either way, or the whole range between the two if that
        is wider); its other parameters around their starting values (19).
    tolerance : float
        Relative residual at which the iterative engine stops.
    n_probes : int, optional
        Random probes for the iterative engine's log-determinant; 4 to 32 by default, fewer for larger grids.
    n_draws : int
        Draws from which the iterative engine estimates variances of more cells than this: their part due to missing
        values is then known to a relative error of √(2 / n_draws). For fewer cells it solves for each.
    random_state : int
        Seed of probes, draws and restarts.
    <verbose>

    Attributes
    ----------
    kernel_, time_kernel_ : Kernel, gpytorch.kernels.Kernel
        Learned kernels, in normalised units and in ``time_unit``.
    noise_ : float
        Learned noise variance, in normalised units.
    log_marginal_likelihood_, log_marginal_likelihood_error_ : float
        Of the normalised values at the parameters of `kernel_`, the constant included, and its standard error: 0 if it
        is exact.
    log_evidence_ : float
        The same with the parameters integrated out, for comparing models.
    hyperparameters_ : DataFrame
        What is known about the parameters: mode, mean, sd, 2.5%, 50% and 97.5%; times are in ``time_unit``.
    coefficients_ : DataFrame
        Coefficients of the mean, in the units of y: mean, sd, 2.5%, 50% and 97.5%.
    engine_, engine_reason_ : str
        Engine used, and why.
    gradient_norm_ : float
        Largest derivative of the marginal likelihood at the end.
    converged_ : bool
        Whether the optimiser converged.
    n_evaluations_ : int
        Evaluations of the marginal likelihood.
    y_mean_, y_scale_ : float
        Convert normalised units: ``y = y_mean_ + y_scale_ * normalised``.
    nodes_, times_ : Index
        Nodes and times with observations, in order.
    informed_ : ndarray of bool, shape (n_nodes,)
        Whether data reach the node's connected component.

    Notes
    -----
    Use `GraphGPRegressor` with several columns (replicates) if the times are independent of each other, such as days
    far apart: they share the parameters, not the values, which costs less. Use this class if observations at one time
    say something about another.

    Examples
    --------
    >>> import graphmatern as gm, numpy as np, pandas as pd
    >>> city = gm.make_roads(40, seed=0)
    >>> hours = pd.date_range("2024-01-01", periods=12, freq="h")
    >>> wave = np.sin(np.arange(12) / 3)[:, None] * np.cos(city.positions[:, 0] / 300)
    >>> table = pd.DataFrame(wave, index=hours, columns=city.nodes)
    >>> table.iloc[3:6, 0] = np.nan
    >>> model = gm.GraphFieldRegressor(city, time_unit="h").fit(table)
    >>> bool(abs(model.predict([city.nodes[0]], [hours[4]])[0] - wave[4, 0]) < 0.2)
    True
    >>> model.forecast(2).shape == (2, city.n_nodes)
    True
    """

    def __init__(
        self,
        graph: Graph,
        kernel: Kernel | None = None,
        time_kernel: GPyTorchKernel | None = None,
        *,
        time_unit: Literal["s", "min", "h", "D", "W"] = "D",
        normalized: bool | None = None,
        engine: Literal["auto", "kronecker", "dense", "state-space", "iterative"] = "auto",
        n_eigenpairs: int | None = None,
        noise: float | None = None,
        mean: Literal["constant", "zero"] = "constant",
        covariates: Any = None,
        normalize_y: bool = True,
        optimizer: Literal["quasi-newton", "lbfgs", "adam"] | None = "quasi-newton",
        max_iterations: int = 200,
        n_restarts: int = 0,
        bounds: Mapping[str, tuple[float, float]] | None = None,
        priors: Mapping[str, Prior] | None = None,
        integrate: Literal["auto"] | bool = "auto",
        tolerance: float = 1e-6,
        n_probes: int | None = None,
        n_draws: int = 32,
        random_state: int = 0,
        verbose: bool | None = None,
    ) -> None:
        self.graph = graph
        self.kernel = kernel
        self.time_kernel = time_kernel
        self.time_unit = time_unit
        self.normalized = normalized
        self.engine = engine
        self.n_eigenpairs = n_eigenpairs
        self.noise = noise
        self.mean = mean
        self.covariates = covariates
        self.normalize_y = normalize_y
        self.optimizer = optimizer
        self.max_iterations = max_iterations
        self.n_restarts = n_restarts
        self.bounds = bounds
        self.priors = priors
        self.integrate = integrate
        self.tolerance = tolerance
        self.n_probes = n_probes
        self.n_draws = n_draws
        self.random_state = random_state
        self.verbose = verbose

    # ------------------------------------------------------------------ fitting
    def fit(
        self,
        data: Any,
        times: Any = None,
        y: ArrayLike | None = None,
        *,
        node: str = "node",
        time: str = "time",
        value: str = "value",
    ) -> Self:
        """Learn the kernels' parameters and condition on the data.

        Parameters
        ----------
        data : DataFrame or sequence of hashable
            A long table, with a row per observation and the columns named below; a wide table, with a row per time (its
            index) and a column per node; or node names. NaN means not observed.
        times : sequence, optional
            Times, if ``data`` holds node names: numbers, or dates.
        y : array_like, optional
            Values, if ``data`` holds node names.
        node, time, value : str
            Columns of a long table.

        Returns
        -------
        self
        """
        self._check_options()
        field = read_field(self.graph, data, times, y, node=node, time=time, value=value)
        observed = field.y[~np.isnan(field.y)]
        scale = normalisation(observed) if self.normalize_y else (0.0, 1.0)
        axis = TimeAxis.of(field.times, self.time_unit)
        method = choose_method(self._grid(field, axis, scale), self.engine, order_of(self.time_kernel))
        attributes = self._learn(field, axis, scale, method)
        evidence = attributes["posterior_"].mode.log_marginal_likelihood()
        attributes["log_marginal_likelihood_"], attributes["log_marginal_likelihood_error_"] = evidence
        self._adopt(attributes)
        self._warn_of_trouble()
        return self

    def _check_options(self) -> None:
        faults = FaultList("nothing was fitted", KernelError)
        note_choice("time_unit", self.time_unit, TIME_UNITS, faults)
        note_choice("engine", self.engine, ("auto", *FIELD_ENGINES), faults)
        note_choice("mean", self.mean, ("constant", "zero"), faults)
        note_flag("normalize_y", self.normalize_y, faults)
        if self.noise is not None:
            check_positive("noise", self.noise, faults, remedy="Leave it out for a value from the data.")
        check_positive("tolerance", self.tolerance, faults, remedy="1e-6 is usual.")
        if self.n_probes is not None:
            check_whole("n_probes", self.n_probes, faults, minimum=2, remedy="Leave it out for the default.")
        check_whole("n_draws", self.n_draws, faults, minimum=2, remedy="32 is usual.")
        if self.random_state is None:  # probes must stay the same
            faults.add("random_state", "must be a whole number", "None", "Use 0, for instance.")
        check_options(self, ["noise"], faults)

    @staticmethod
    def _grid(data: FieldData, axis: TimeAxis, scale: tuple[float, float]) -> FieldGrid:
        """The observations in normalised units, times as numbers."""
        observed = ~np.isnan(data.y)
        y = np.where(observed, (data.y - scale[0]) / scale[1], 0.0)
        return FieldGrid(data.nodes, axis.numbers(data.times), y, observed)

    def _learn(
        self,
        data: FieldData,
        axis: TimeAxis,
        scale: tuple[float, float],
        method: tuple[str, str],
        kernels: tuple[Any, Any] | None = None,
        known: Known | None = None,
        *,
        more: bool = False,
    ) -> dict[str, Any]:
        """Learn from data, or continue from an earlier fit (to fewer data); returns every fitted attribute."""
        grid = self._grid(data, axis, scale)
        probes = default_probes(grid) if self.n_probes is None else self.n_probes
        kernel, time_kernel = (self.kernel, self.time_kernel) if kernels is None else kernels
        covariates = read_covariates(
            self.graph, self.covariates, constant=self.mean == "constant", priors=self.priors, y_scale=scale[1]
        )
        covariates.check(data.nodes)
        problem = FieldProblem(
            graph=self.graph,
            kernel=kernel,
            time_kernel=time_kernel,
            grid=grid,
            effects=FieldEffects(covariates.design, covariates.precision(0.0)),
            normalized=bool(uses_normalized(self)),
            n_eigenpairs=self.n_eigenpairs,
            method=method[0],
            iterative=IterativeOptions(
                self.tolerance, _MOST_ITERATIONS, probes, self.n_draws, self.random_state, self.verbose
            ),
            noise=None if self.noise is None else float(self.noise),
            rules=rules_of(self),
            search=search_of(self),
            integrate=self.integrate,
        )
        fit = learn_field(problem, known) if known is None or not more else update_field(problem, known)
        return {
            "_data": data,
            "_axis": axis,
            "_fit": fit,
            "_covariates": covariates,
            "y_mean_": scale[0],
            "y_scale_": scale[1],
            "engine_": method[0],
            "engine_reason_": method[1],
            "kernel_": fit.kernel,
            "time_kernel_": fit.posterior.mode.time.kernel,
            "noise_": noise_of(fit.likelihood),
            "posterior_": fit.posterior,
            "gradient_norm_": fit.gradient_norm,
            "converged_": fit.converged,
            "n_evaluations_": fit.optimum.n_evaluations,
            "at_bounds_": fit.at_bounds,
            "nodes_": self.graph.nodes[data.nodes],
            "times_": data.times,
            "informed_": reached_by(self.graph, data.nodes),
        }

    def condition_on(
        self,
        data: Any,
        times: Any = None,
        y: ArrayLike | None = None,
        *,
        node: str = "node",
        time: str = "time",
        value: str = "value",
    ) -> Self:
        """Return a model with more data and the same parameters, without refitting.

        Parameters
        ----------
        data, times, y, node, time, value
            As in `fit`; new cells only.
        """
        self._require_fit()
        more = read_field(self.graph, data, times, y, node=node, time=time, value=value)
        joined = self._data.join(FieldData(more.nodes, self._axis.read(more.times), more.y))
        other, scale = type(self)(**self._fit_options), (self.y_mean_, self.y_scale_)
        wanted = "auto" if other.engine == "kronecker" else other.engine  # there may be gaps now
        method = choose_method(self._grid(joined, self._axis, scale), wanted, order_of(self.time_kernel_))
        kernels, known = (self.kernel_, self.time_kernel_), Known(self._fit.optimum, None, self._fit.integrated)
        return other._adopt(other._learn(joined, self._axis, scale, method, kernels, known, more=True))

    # ------------------------------------------------------------------ model files
    def _state(self) -> dict[str, Any]:
        fitted_as = type(self)(**self._fit_options)
        count = eigenpairs_used(self.graph, fitted_as.n_eigenpairs)
        names = ("y_mean_", "y_scale_", "engine_", "engine_reason_", "kernel_", "time_kernel_")
        optional = ("log_marginal_likelihood_", "log_marginal_likelihood_error_")
        return {
            "data": dict(vars(self._data)),
            "origin": None if self._axis.origin is None else pd.DatetimeIndex([self._axis.origin]),  # keeps its zone
            "attributes": {name: getattr(self, name) for name in (*names, *optional) if hasattr(self, name)},
            "optimum": dict(vars(self._fit.optimum)),
            "integrated": integrated_state(self._fit.integrated),
            "standard_errors": self._standard_errors,
            "spectrum": spectrum_state(self.graph, count, bool(uses_normalized(fitted_as))),
        }

    def _attributes_from(self, state: dict[str, Any]) -> dict[str, Any]:
        kept, origin = state["attributes"], state["origin"]
        spectrum_from_state(self.graph, state["spectrum"])
        attributes = self._learn(
            FieldData(**state["data"]),
            TimeAxis(None if origin is None else origin[0], self.time_unit),
            (kept["y_mean_"], kept["y_scale_"]),
            (kept["engine_"], kept["engine_reason_"]),
            (kept["kernel_"], kept["time_kernel_"]),
            Known(Optimum(**state["optimum"]), None, integrated_from_state(state.get("integrated"))),
        )
        return {**attributes, **kept}
