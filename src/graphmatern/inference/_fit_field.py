"""Fitting a field on nodes × times: which method, from which start, and what comes out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
from gpytorch.kernels import MaternKernel

from graphmatern._validation import FaultList
from graphmatern.errors import KernelError, NumericalError, ResourceError
from graphmatern.inference._field_engine import FieldEngine
from graphmatern.inference._field_posterior import FieldPosterior
from graphmatern.inference._fit_spectral import eigenpairs_used
from graphmatern.inference._fitting import START_LENGTHSCALES, FittedEngine, minimise
from graphmatern.inference._markov_time import markov_order
from graphmatern.inference._optimize import curvature
from graphmatern.inference._rules import Parameter
from graphmatern.inference._state_space import kept_steps, state_space_memory
from graphmatern.inference._time_kernel import TimeKernel
from graphmatern.kernels import Matern
from graphmatern.sparse._resources import available_memory, format_bytes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from graphmatern.graph import Graph
    from graphmatern.inference._fill_in import IterativeOptions
    from graphmatern.inference._fitting import FitOptions
    from graphmatern.inference._kronecker import FieldGrid
    from graphmatern.inference._optimize import Optimum
    from graphmatern.kernels import Kernel

    Floats = NDArray[np.float64]

__all__ = ["FieldProblem", "FittedField", "choose_method", "default_probes", "fit_field", "order_of"]

_FEW_CELLS = 3000  # observed cells up to which a dense evaluation takes about a second (evidence/field_methods.md)
_PATCH_CELLS = 1500  # of a part of the grid on which a fit to more cells begins
_DEAR_GRID = 200_000  # cells beyond which an evaluation takes seconds
_SAMPLE_CELLS = 60_000  # of a larger part, on which a fit to a dear grid goes on; or,
_ENOUGH_NATS = 0.02  # gain at which a fit to a dear grid stops: parameters are then within a fifth of their errors
_FIT_TOLERANCE = 1e-4  # of solves in a fit to a dear grid
_SAMPLE_SHARE = 0.04  # where that is more, this share of the cells: it costs a hundredth of the whole
_DEFAULT_ORDER = 1  # derivatives of the process behind the default kernel on time
_START_GAPS = (1.0, 5.0, 25.0)  # lengthscales in time that are tried, in units of the median gap between times


@dataclass(frozen=True, eq=False)
class FieldProblem:
    """What to fit to what.

    Attributes
    ----------
    graph : Graph
        The graph.
    kernel : Kernel, optional
        Kernel on the graph with starting values, which the fit changes; by default Matérn, started from the data.
    time_kernel : gpytorch.kernels.Kernel, optional
        Kernel on time with starting values; by default Matérn 3/2, started from the data.
    grid : FieldGrid
        The observations.
    constant : bool
        Whether the mean is an unknown constant rather than 0.
    n_eigenpairs : int, optional
        Eigenpairs of the graph; all of a graph of moderate size by default.
    method : {"kronecker", "dense", "state-space", "iterative"}
        How to solve.
    iterative : IterativeOptions
        Accuracy of the iterative method.
    options : FitOptions
        How to fit.
    """

    graph: Graph
    kernel: Kernel | None
    time_kernel: Any
    grid: FieldGrid
    constant: bool
    n_eigenpairs: int | None
    method: str
    iterative: IterativeOptions
    options: FitOptions


@dataclass(frozen=True, eq=False)
class FittedField(FittedEngine):
    """What a fit returns."""

    posterior: FieldPosterior  # type: ignore[assignment]
    time: TimeKernel | None = None


def choose_method(grid: FieldGrid, wanted: str, order: int | None = None) -> tuple[str, str]:
    """Name of the method to use, and the reason in a sentence.

    Parameters
    ----------
    grid : FieldGrid
        The observations.
    wanted : {"auto", "kronecker", "dense", "state-space", "iterative"}
        What the caller asked for.
    order : int, optional
        `markov_order` of the kernel on time.
    """
    times, nodes = grid.shape
    n, missing = grid.n_observed, 1.0 - grid.n_observed / grid.y.size
    faults = FaultList("nothing was fitted", KernelError)
    if wanted == "kronecker" and not grid.is_complete:
        received = f"{missing:.1%} of {times:,} × {nodes:,} cells missing"
        raise faults.raise_now("engine", "can be 'kronecker' for whole grids only", received, "Use 'auto'.")
    if wanted == "state-space" and order is None:
        rule = "can be 'state-space' for a Matérn `time_kernel` of nu 0.5, 1.5 or 2.5 only, scaled or not"
        raise faults.raise_now("engine", rule, "another time kernel", "Use 'auto'.")
    method = wanted
    if grid.is_complete and wanted in ("auto", "iterative"):
        method = "kronecker"
    elif wanted == "auto":
        method = "dense" if n <= _FEW_CELLS else "iterative"
    if wanted == "auto" and order is not None:
        # Exact numbers are worth twice the time of estimates; other exact ones are left for a clear gain only.
        worth = 2.0 if method == "iterative" else 0.5
        if seconds("state-space", grid, order) < worth * seconds(method, grid):
            method = "state-space"
    if method == "dense":
        reason = f"{n:,} cells with holes: one Cholesky factor, exact"
        needed = 8 * 4 * n**2
    elif method == "kronecker":
        reason = f"all {times:,} × {nodes:,} cells are observed: Kronecker algebra, exact"
        needed = 8 * (4 * times**2 + 4 * nodes**2 + 8 * grid.y.size)
    elif method == "state-space":
        assert order is not None
        reason = f"{times:,} times of {nodes:,} nodes, Matérn in time: a Kalman filter, exact"
        needed = 8 * state_space_memory(times, nodes, order)
    else:
        reason = f"{n:,} of {times:,} × {nodes:,} cells: the others are filled in by conjugate gradients"
        needed = 8 * (6 * times**2 + 4 * nodes**2 + 40 * grid.y.size)
    if wanted == method:
        reason = "asked for"
    if needed > 0.8 * available_memory():
        raise ResourceError(
            f"{times:,} times × {nodes:,} nodes need about {format_bytes(needed)} of memory with the method "
            f"{method!r}, of {format_bytes(available_memory())} available. Round times to a common grid, "
            "aggregate them, or leave nodes out."
        )
    return method, reason


def seconds(method: str, grid: FieldGrid, order: int = 0) -> float:
    """About how long an evaluation with its gradient takes: operations by constants measured on one core.

    See evidence/field_methods.py, which writes these beside what it measures.

    Parameters
    ----------
    method : {"kronecker", "dense", "state-space", "iterative"}
        Which.
    grid : FieldGrid
        The observations.
    order : {0, 1, 2}
        Derivatives in the states of the state-space method.
    """
    times, nodes = (float(number) for number in grid.shape)
    n = float(grid.n_observed)
    if method == "kronecker":
        return 3e-10 * (times**3 + nodes**3)
    if method == "dense":
        return 3e-8 * n**2 + 4e-11 * n**3
    if method == "state-space":
        states = (order + 1) * grid.shape[1]
        again = 1.0 if kept_steps(*grid.shape, states) == grid.shape[0] else 2.0  # what is not kept is made again
        return again * (1.5e-4 * times + (2.7e-8 * times + 1.4e-10 * n) * states**2)
    return 8e-10 * times**3 + 1e-9 * default_probes(grid) * times * nodes * (times + nodes)


def default_probes(grid: FieldGrid) -> int:
    """Probes for the log-determinant: the more cells, the smaller its relative error, and the dearer a probe."""
    return int(np.clip(2_000_000 // max(grid.y.size, 1), 4, 32))


def fit_field(problem: FieldProblem) -> FittedField:
    """Learn the parameters of both kernels and the noise, and condition on the observations."""
    options, grid = problem.options, problem.grid
    kernel = Matern(1.5, START_LENGTHSCALES[0]) if problem.kernel is None else problem.kernel
    if isinstance(kernel, Matern):
        kernel.set_params(nu=kernel.values()["nu"])  # from here on it has a value
    bound = kernel.on(problem.graph, options.normalized, eigenpairs_used(problem.graph, problem.n_eigenpairs))
    time = TimeKernel(_default_time_kernel(grid) if problem.time_kernel is None else problem.time_kernel)

    dear = grid.y.size > _DEAR_GRID  # every evaluation counts; else steps that trust no patch are safer

    def engine_for(part: FieldGrid, method: str) -> FieldEngine:
        iterative = replace(problem.iterative, fit_tolerance=_FIT_TOLERANCE) if dear else problem.iterative
        return FieldEngine(bound, time, part, constant=problem.constant, method=method, options=iterative)

    engine = engine_for(grid, problem.method)
    parameters = _parameters(engine, options)
    start = engine.position()
    if options.learn_noise:
        start = np.append(start, options.log_noise)
    hessian: Floats | None = None
    if options.known is None and options.optimizer is not None:
        if grid.n_observed <= 4 * _PATCH_CELLS:
            start = _choose_start(_objective(engine, options), start, parameters, problem, grid)
        else:
            # What a patch says is nearly right, and so is its curvature, for as many patches as there are.
            rough = engine_for(densest_patch(problem.graph, grid, _PATCH_CELLS), "dense")
            start = _choose_start(_objective(rough, options), start, parameters, problem, grid)
            start, hessian = _fit_patch(rough, start, parameters, options)
        if hessian is not None and dear:
            limit = max(_SAMPLE_CELLS, int(_SAMPLE_SHARE * grid.y.size))
            part = densest_patch(problem.graph, grid, limit)
            rough = engine_for(part, choose_method(part, "auto", time.order)[0])
            start, hessian = _fit_patch(rough, start, parameters, options, hessian)
        if hessian is not None:
            hessian = grid.n_observed * hessian
    objective = _objective(engine, options)
    if dear:
        optimum, penalised = minimise(objective, start, parameters, options, hessian, dear=_ENOUGH_NATS)
    else:
        optimum, penalised = minimise(objective, start, parameters, options)
    if problem.method == "iterative" and not optimum.converged:
        optimum = _forgive(optimum, grid.n_observed)
    count = len(optimum.position) - int(options.learn_noise)
    log_noise = float(optimum.position[-1]) if options.learn_noise else options.log_noise
    system = engine.system_at(optimum.position[:count], log_noise)
    posterior = FieldPosterior(bound, time, system, constant=problem.constant)
    return FittedField(
        problem.method, kernel, float(np.exp(log_noise)), posterior, optimum, parameters, penalised, time=time
    )


def _forgive(optimum: Optimum, count: int) -> Optimum:
    """Call an optimum found where what is left to gain, about g² / n nats, is less than iterations can resolve."""
    steepest = float(np.abs(optimum.gradient).max(initial=0.0))
    return replace(optimum, converged=steepest < 0.05 * np.sqrt(count))


def _default_time_kernel(grid: FieldGrid) -> MaternKernel:
    kernel = MaternKernel(nu=_DEFAULT_ORDER + 0.5).double()
    kernel.lengthscale = _START_GAPS[1] * median_gap(grid.times)
    return kernel


def order_of(time_kernel: Any) -> int | None:
    """`markov_order` of a caller's kernel on time, or of the default one."""
    return _DEFAULT_ORDER if time_kernel is None else markov_order(time_kernel)


def median_gap(times: Floats) -> float:
    """Median difference of successive times, 1 where there is only one time."""
    return float(np.median(np.diff(times))) if len(times) > 1 else 1.0


def _parameters(engine: FieldEngine, options: FitOptions) -> list[Parameter]:
    """What is learned, with bounds: graph, time, noise."""
    own = [name.replace("raw_", "").replace("_terms", "terms") for name in engine.graph_names]
    found = [options.rules.parameter(label) for label in own]
    pairs = zip(engine.time.labels, engine.time.bounds(), strict=True)
    found += [Parameter(label, low, high) for label, (low, high) in pairs]
    return [*found, options.rules.parameter("noise")] if options.learn_noise else found


def _objective(engine: FieldEngine, options: FitOptions) -> Any:
    def objective(theta: Floats) -> tuple[float, Floats]:
        if not options.learn_noise:
            value, gradient, _ = engine.evaluate(theta, options.log_noise)
            return value, gradient
        value, gradient, in_noise = engine.evaluate(theta[:-1], float(theta[-1]))
        return value, np.append(gradient, in_noise)

    return objective


def _choose_start(
    objective: Any, start: Floats, parameters: list[Parameter], problem: FieldProblem, grid: FieldGrid
) -> Floats:
    """The most likely of a few lengthscales, on the graph and in time, where the caller named none."""
    labels = [one.label for one in parameters]
    choices: list[tuple[int, tuple[float, ...]]] = []
    if problem.kernel is None:
        choices.append((labels.index("lengthscale"), START_LENGTHSCALES))
    if problem.time_kernel is None:
        gap = median_gap(grid.times)
        choices.append((labels.index("time.lengthscale"), tuple(gap * factor for factor in _START_GAPS)))
    best, least = start, np.inf
    for values in product(*(values for _, values in choices)):
        trial = start.copy()
        for (place, _), value in zip(choices, values, strict=True):
            trial[place] = np.log(value)
        found = objective(trial)[0] if choices else 0.0
        if found < least:
            best, least = trial, found
    return best


def _fit_patch(
    engine: FieldEngine,
    start: Floats,
    parameters: list[Parameter],
    options: FitOptions,
    per_cell: Floats | None = None,
) -> tuple[Floats, Floats | None]:
    """Optimum on a part of the grid, and the curvature there for a single cell, made positive definite."""
    count = engine.grid.n_observed
    try:
        guess = None if per_cell is None else count * per_cell
        found, penalised = minimise(_objective(engine, options), start, parameters, options, guess)
        values, vectors = np.linalg.eigh(curvature(penalised, found.position, 1e-3) / count)
    except NumericalError:
        return start, None
    values = np.maximum(np.abs(values), 1e-4 * float(np.abs(values).max()))
    return found.position, (vectors * values) @ vectors.T


def densest_patch(graph: Graph, grid: FieldGrid, limit: int) -> FieldGrid:
    """A part of the grid of at most ``limit`` cells: neighbouring nodes, successive times, as few holes as possible.

    Parameters
    ----------
    graph : Graph
        The graph.
    grid : FieldGrid
        The observations.
    limit : int
        Cells at most.
    """
    n_times, n_nodes = grid.shape
    width = int(np.clip(round(np.sqrt(limit)), max(1, limit // n_times), n_nodes))
    height = min(n_times, max(1, limit // width))
    centre = int(np.argmax(grid.observed.sum(axis=0)))
    distance = graph.distances([graph.nodes[grid.nodes[centre]]])[0][grid.nodes]
    columns = np.sort(np.argsort(distance, kind="stable")[:width])
    total = np.concatenate([[0], np.cumsum(grid.observed[:, columns].sum(axis=1))])
    first = int(np.argmax(total[height:] - total[:-height]))
    rows = slice(first, first + height)
    return replace(
        grid,
        nodes=grid.nodes[columns],
        times=grid.times[rows],
        y=grid.y[rows][:, columns],
        observed=grid.observed[rows][:, columns],
    )
