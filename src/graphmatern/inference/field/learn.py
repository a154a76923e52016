"""Learning a field on nodes × times: from which start, on which parts of the grid, and what comes out."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from gpytorch.kernels import MaternKernel

from graphmatern._validation import FaultList
from graphmatern.errors import KernelError, NumericalError
from graphmatern.inference.field.markov_time import markov_order
from graphmatern.inference.field.methods import choose_method
from graphmatern.inference.field.objective import FieldObjective
from graphmatern.inference.field.posterior import FieldMixture
from graphmatern.inference.field.time_kernel import TimeKernel
from graphmatern.inference.field.time_priors import time_priors
from graphmatern.inference.learning.integrate import (
    Effort,
    Searched,
    integrate,
    is_worth_it,
    recompose,
    reweigh,
    variance_of,
    weak_priors,
)
from graphmatern.inference.learning.learn import search_minimum
from graphmatern.inference.learning.optimize import curvature
from graphmatern.inference.learning.parameters import (
    START_LENGTHSCALES,
    Coordinate,
    PriorsAndBounds,
    free_parameters,
    move_parameters,
    with_priors,
)
from graphmatern.inference.learning.problem import Fit, Search
from graphmatern.inference.process import Family
from graphmatern.inference.spectral.engine import eigenpairs_used, typical_starts
from graphmatern.kernels import Matern
from graphmatern.likelihoods import Gaussian

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray

    from graphmatern.graph import Graph
    from graphmatern.inference.field.covariance import FieldGrid
    from graphmatern.inference.field.fill_in import IterativeOptions
    from graphmatern.inference.field.time_kernel import FreeNumber
    from graphmatern.inference.learning.optimize import Optimum
    from graphmatern.inference.learning.priors import Prior
    from graphmatern.inference.learning.problem import Known
    from graphmatern.kernels import BoundKernel, Kernel

    Floats = NDArray[np.float64]

__all__ = ["COSTLY_CELLS", "FieldProblem", "densest_patch", "learn_field", "median_gap", "order_of", "update_field"]

COSTLY_CELLS = 200_000  # beyond which an evaluation takes seconds
_START_NOISE = 0.1
_PATCH_CELLS = 1500  # of the part of the grid on which a fit to more than four times as many cells begins
_SAMPLE_CELLS = 60_000  # of a larger part, on which a fit to a costly grid goes on; or,
_SAMPLE_SHARE = 0.04  # where that is more, this share of the cells: it costs a hundredth of the whole
_ENOUGH_NATS = 0.02  # gain at which a fit to a costly grid stops: parameters are then within a fifth of their errors
_FIT_TOLERANCE = 1e-4  # of solves in a fit to a costly grid
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
        Kernel on the graph with starting values; by default Matérn, started from the data. It is not changed.
    time_kernel : gpytorch.kernels.Kernel, optional
        Kernel on time with starting values; by default Matérn 3/2, started from the data. It is not changed.
    grid : FieldGrid
        The observations.
    constant : bool
        Whether the mean is an unknown constant rather than 0.
    normalized : bool
        Which Laplacian.
    n_eigenpairs : int, optional
        Eigenpairs of the graph; all of a graph of moderate size by default.
    method : {"kronecker", "dense", "state-space", "iterative"}
        How to solve.
    iterative : IterativeOptions
        Accuracy of the iterative method.
    noise : float, optional
        Noise variance to start from; 0.1 by default.
    rules : PriorsAndBounds
        What is known about the parameters of ``kernel`` and the noise. What ``time_kernel`` knows of its own counts.
    search : Search
        How to look for the best of them.
    integrate : bool or "auto"
        Whether to integrate over the parameters after the search; "auto" where that is worth it.
    """

    graph: Graph
    kernel: Kernel | None
    time_kernel: Any
    grid: FieldGrid
    constant: bool
    normalized: bool
    n_eigenpairs: int | None
    method: str
    iterative: IterativeOptions
    noise: float | None = None
    rules: PriorsAndBounds = field(default_factory=PriorsAndBounds)
    search: Search = field(default_factory=Search)
    integrate: bool | str = False


def learn_field(problem: FieldProblem, known: Known | None = None, *, costly_cells: int = COSTLY_CELLS) -> Fit:
    """Learn the parameters of both kernels and the noise, and condition on the observations.

    Parameters
    ----------
    problem : FieldProblem
        What to fit to what.
    known : Known, optional
        Where an earlier fit ended; then nothing is searched.
    costly_cells : int
        Cells of a grid beyond which every evaluation counts: parameters are learned from parts of it, and on the whole
        of it in few steps, up to a fraction of their standard errors.

    Returns
    -------
    Fit
        Its ``posterior`` is a `FieldPosterior` or a `FieldMixture`, its ``engine`` the method.
    """
    if known is None:
        problem = replace(problem, integrate=_integrates(problem))
    else:
        problem = replace(problem, integrate=known.integrated is not None)
    model = _Model.of(problem, costly=problem.grid.y.size > costly_cells)
    fit, searched = _learn(model, known)
    if not problem.integrate or not model.coordinates:
        return fit
    mix = partial(FieldMixture, mode=fit.posterior)
    if known is None or known.integrated is None:
        integrated = integrate(Effort(problem.grid.n_observed), [searched], mix)
    else:
        components = known.integrated.components
        makers = [partial(searched.objective.posterior, one.position) for one in components]
        integrated = recompose(components, makers, mix, known.integrated)
    return replace(fit, posterior=integrated.posterior, integrated=integrated)


def update_field(problem: FieldProblem, known: Known) -> Fit:
    """Condition on more data at the parameters of an earlier fit, weighing them anew where they were integrated over.

    Parameters
    ----------
    problem : FieldProblem
        With all data, and the kernels that were learned.
    known : Known
        Where the earlier fit ended.
    """
    problem = replace(problem, integrate=known.integrated is not None)
    model = _Model.of(problem, costly=False)
    fit, searched = _learn(model, known)
    if known.integrated is None:
        return fit
    objectives = [(model, searched.objective)] * len(known.integrated.components)
    integrated = reweigh(known.integrated, objectives, partial(FieldMixture, mode=fit.posterior))
    return replace(fit, posterior=integrated.posterior, integrated=integrated)


def _learn(model: _Model, known: Known | None) -> tuple[Fit, Searched]:
    """The mode of the parameters, and the field there."""
    problem = model.problem
    objective = model.objective(problem.grid, problem.method)
    penalised = with_priors(objective, model.every)
    optimum = _search(model, objective) if known is None else known.optimum
    posterior = objective.posterior(optimum.position)
    kernel, likelihood = copy.deepcopy(model.bound.kernel), Gaussian(float(np.exp(optimum.position[-1])))
    fit = Fit(problem.method, "", problem.normalized, kernel, likelihood, posterior, optimum, model.every, penalised)
    return fit, Searched(model, objective, penalised, optimum)


def _integrates(problem: FieldProblem) -> bool:
    """Whether the parameters are integrated over: where that was asked for, and there are some to be learned."""
    if problem.search.optimizer is None or problem.integrate is False:
        return False
    proper = time_priors(_time_kernel(problem), 1.0, 1.0) is not None
    if problem.integrate == "auto":
        count, n_nodes = problem.grid.n_observed, problem.graph.n_nodes
        return proper and is_worth_it(count, n_nodes, problem.method)
    if not proper:
        rule = "must be False for kernels with parameters of which nothing is known"
        faults = FaultList("nothing was fitted", KernelError)
        remedy = "Register a prior for each of its parameters with the kernel, or give them bounds."
        raise faults.raise_now("integrate", rule, f"True and {_time_kernel(problem).describe()}", remedy)
    return True


@dataclass(frozen=True, eq=False)
class _Model(Family):
    """The kernels, whose parameters the objectives on the whole grid and on parts of it move.

    Attributes
    ----------
    problem : FieldProblem
        What to fit.
    bound, time : BoundKernel, TimeKernel
        Kernels on the graph and on time.
    coordinates : list of Coordinate
        What is learned of the kernels: on the graph, then on time.
    noise : Coordinate
        What is learned last.
    start : ndarray, shape (n_coordinates + 1,)
        The kernels' own values, and the noise.
    n_graph : int
        How many coordinates belong to the kernel on the graph.
    costly : bool
        Whether every evaluation counts; else steps that trust no part of the grid are safer.
    """

    problem: FieldProblem
    bound: BoundKernel
    time: TimeKernel
    coordinates: list[Coordinate]
    noise: Coordinate
    start: Floats
    n_graph: int
    costly: bool

    @property
    def every(self) -> list[Coordinate]:
        """All that is learned: graph, time, noise."""
        return [*self.coordinates, self.noise]

    @property
    def matrix_size(self) -> int:
        """Rows of the largest dense matrix that is factorised often."""
        grid = self.problem.grid
        return grid.n_observed if self.problem.method == "dense" else max(grid.shape)

    def kernel(self, position: Floats) -> Kernel:
        """Return the kernel on the graph at some coordinates, a copy."""
        kernel = copy.deepcopy(self.bound.kernel)
        raw = [parameter for parameter in kernel.parameters() if parameter.requires_grad]
        move_parameters(raw, position[: self.n_graph])
        return kernel

    @classmethod
    def of(cls, problem: FieldProblem, *, costly: bool) -> _Model:
        kernel = Matern(1.5, START_LENGTHSCALES[0]) if problem.kernel is None else copy.deepcopy(problem.kernel)
        if isinstance(kernel, Matern):
            kernel.set_params(nu=kernel.values()["nu"])  # from here on it has a value
        count = eigenpairs_used(problem.graph, problem.n_eigenpairs)
        bound = kernel.on(problem.graph, problem.normalized, count)
        time, rules = _time_kernel(problem), problem.rules
        of_time: list[Prior] | None = None
        if problem.integrate:
            spread = variance_of(problem.grid.y[problem.grid.observed], problem.constant)
            priors = weak_priors(problem.graph, problem.normalized, rules, spread)
            rules = PriorsAndBounds(rules.bounds, priors)
            of_time = time_priors(time, median_gap(problem.grid.times), float(np.ptp(problem.grid.times)))
        _, on_graph, own = free_parameters(kernel, rules)
        in_time = _time_coordinates(time, of_time)
        log_noise = np.log(_START_NOISE if problem.noise is None else problem.noise)
        start = np.concatenate([own, time.position(), [log_noise]])
        noise = rules.coordinate("noise")
        return cls(problem, bound, time, [*on_graph, *in_time], noise, start, len(own), costly)

    def objective(self, part: FieldGrid, method: str) -> FieldObjective:
        """The objective on a part of the grid."""
        problem = self.problem
        options = replace(problem.iterative, fit_tolerance=_FIT_TOLERANCE) if self.costly else problem.iterative
        return FieldObjective(
            self.bound,
            self.time,
            part,
            constant=problem.constant,
            method=method,
            options=options,
            noise=self.noise,
            time_priors=not problem.integrate,
        )


def _time_coordinates(time: TimeKernel, priors: Sequence[Prior] | None) -> list[Coordinate]:
    """How an optimiser sees the parameters of a kernel on time."""
    numbers = time.free_numbers()
    every = [None] * len(numbers) if priors is None else priors

    def values(number: FreeNumber) -> Callable[[Floats], Floats]:
        return lambda x: number.value(torch.from_numpy(np.array(x, dtype=np.float64))).detach().numpy()

    return [
        Coordinate(one.label, *bounds, prior, values(one))
        for one, bounds, prior in zip(numbers, time.bounds(), every, strict=True)
    ]


def _search(model: _Model, objective: FieldObjective) -> Optimum:
    """The best parameters."""
    problem, grid = model.problem, model.problem.grid
    start, per_cell = model.start, None
    if problem.search.optimizer is not None:
        start, per_cell = _begin(model, objective)
    optimum = search_minimum(
        with_priors(objective, model.every),
        start,
        model.every,
        problem.search,
        hessian=None if per_cell is None else grid.n_observed * per_cell,
        to_gain=_ENOUGH_NATS if model.costly else None,
    )
    if problem.method == "iterative" and not optimum.converged:
        # What is left to gain, about g² / n nats, may be less than estimates can resolve.
        steepest = float(np.abs(optimum.gradient).max(initial=0.0))
        optimum = replace(optimum, converged=steepest < 0.05 * np.sqrt(grid.n_observed))
    return optimum


def _begin(model: _Model, objective: FieldObjective) -> tuple[Floats, Floats | None]:
    """Where to begin on the whole grid and, where every evaluation counts, the curvature there for a single cell.

    What a part of the grid says is nearly right, and so is its curvature, for as many parts as there are.
    """
    problem, grid = model.problem, model.problem.grid
    if grid.n_observed <= 4 * _PATCH_CELLS:
        return _choose_start(model, objective), None
    patch = model.objective(densest_patch(problem.graph, grid, _PATCH_CELLS), "dense")
    start, per_cell = _learn_part(model, patch, _choose_start(model, patch))
    if per_cell is not None:
        limit = max(_SAMPLE_CELLS, int(_SAMPLE_SHARE * grid.y.size))
        part = densest_patch(problem.graph, grid, limit)
        sample = model.objective(part, choose_method(part, "auto", model.time.order)[0])
        start, per_cell = _learn_part(model, sample, start, per_cell)
    return start, per_cell


def _choose_start(model: _Model, objective: FieldObjective) -> Floats:
    """The most likely of the kernels' own values and of a few lengthscales, in time and on the graph.

    Where the caller gave a kernel on the graph, lengthscales in time are compared at its own values, then those on the
    graph at the best of them: all pairs would take half as long as the fit.
    """
    problem, own, count = model.problem, model.start, model.n_graph
    on_graph = typical_starts(model.coordinates[:count], own[:count])
    gap = median_gap(problem.grid.times)
    in_time = model.time.starts([factor * gap for factor in _START_GAPS])
    if problem.time_kernel is not None or not in_time:
        in_time = [own[count:-1], *in_time]
    if problem.kernel is None and on_graph:
        return _most_likely(model, objective, product(on_graph, in_time))[0]
    if not on_graph and len(in_time) == 1:
        return own
    start, value = _most_likely(model, objective, product([own[:count]], in_time))
    if on_graph:
        other, other_value = _most_likely(model, objective, product(on_graph, [start[count:-1]]))
        start = other if other_value < value else start
    return start


def _most_likely(
    model: _Model, objective: FieldObjective, pairs: Iterable[tuple[Floats, Floats]]
) -> tuple[Floats, float]:
    """The best of some starts on the graph and in time, and its value; the first where numbers break down at all."""
    low, high = np.array([(one.low, one.high) for one in model.every]).T
    penalised = with_priors(lambda theta: (objective.value(theta), np.zeros_like(theta)), model.every)
    starts: list[Floats] = [np.clip(np.concatenate([*pair, model.start[-1:]]), low, high) for pair in pairs]
    values = []
    for start in starts:
        try:
            values.append(penalised(start)[0])
        except NumericalError:
            values.append(np.inf)
    place = int(np.argmin(values))
    return starts[place], values[place]


def _learn_part(
    model: _Model, objective: FieldObjective, start: Floats, per_cell: Floats | None = None
) -> tuple[Floats, Floats | None]:
    """Optimum on a part of the grid and, where every evaluation counts, the curvature there for a single cell.

    The curvature is made positive definite. Where numbers break down, the start is returned.
    """
    count = objective.grid.n_observed
    penalised = with_priors(objective, model.every)
    guess = None if per_cell is None else count * per_cell
    try:
        optimum = search_minimum(penalised, start, model.every, model.problem.search, hessian=guess)
        if not model.costly:
            return optimum.position, None
        values, vectors = np.linalg.eigh(curvature(penalised, optimum.position, 1e-3) / count)
    except NumericalError:
        return start, None
    values = np.maximum(np.abs(values), 1e-4 * float(np.abs(values).max()))
    return optimum.position, (vectors * values) @ vectors.T


def _time_kernel(problem: FieldProblem) -> TimeKernel:
    """The caller's kernel on time, or the default one."""
    return TimeKernel(_default_time_kernel(problem.grid) if problem.time_kernel is None else problem.time_kernel)


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
