"""Learning a field on nodes × times: from which start, on which parts of the grid, and what comes out."""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import partial
from itertools import product
from typing import TYPE_CHECKING

import numpy as np

from graphmatern._validation import FaultList
from graphmatern.errors import KernelError, NumericalError
from graphmatern.inference.field.methods import choose_method
from graphmatern.inference.field.posterior import FieldMixture
from graphmatern.inference.field.problem import START_GAPS, FieldModel, median_gap, time_kernel_of
from graphmatern.inference.field.time_priors import time_priors
from graphmatern.inference.learning.integrate import (
    Effort,
    Searched,
    integrate,
    is_worth_it,
    recompose,
    reweigh,
)
from graphmatern.inference.learning.optimize import curvature
from graphmatern.inference.learning.parameters import with_priors
from graphmatern.inference.learning.problem import Fit
from graphmatern.inference.learning.search import ranked, search_minimum
from graphmatern.inference.spectral.engine import typical_starts
from graphmatern.likelihoods import Gaussian

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from graphmatern.graph import Graph
    from graphmatern.inference.field.covariance import FieldGrid
    from graphmatern.inference.field.objective import FieldObjective
    from graphmatern.inference.field.problem import FieldProblem
    from graphmatern.inference.learning.optimize import Optimum
    from graphmatern.inference.learning.problem import Known

    Floats = NDArray[np.float64]

__all__ = ["COSTLY_CELLS", "densest_patch", "learn_field", "update_field"]

COSTLY_CELLS = 200_000  # beyond which an evaluation takes seconds
_PATCH_CELLS = 1500  # of the part of the grid on which a fit to more than four times as many cells begins
_SAMPLE_CELLS = 60_000  # of a larger part, on which a fit to a costly grid goes on; or,
_SAMPLE_SHARE = 0.04  # where that is more, this share of the cells: it costs a hundredth of the whole
_ENOUGH_NATS = 0.02  # gain at which a fit to a costly grid stops: parameters are then within a fifth of their errors


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
    model = FieldModel.of(problem, costly=problem.grid.y.size > costly_cells)
    fit, searched = _learn(model, known)
    if not problem.integrate or not model.coordinates:
        return fit
    mix = partial(FieldMixture, mode=fit.posterior)
    if known is None or known.integrated is None:
        found = integrate(Effort(problem.grid.n_observed), [searched], mix)
        if found is None:
            return fit
        integrated = found
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
    model = FieldModel.of(problem, costly=False)
    fit, searched = _learn(model, known)
    if known.integrated is None:
        return fit
    objectives = [(model, searched.objective)] * len(known.integrated.components)
    integrated = reweigh(known.integrated, objectives, partial(FieldMixture, mode=fit.posterior))
    return replace(fit, posterior=integrated.posterior, integrated=integrated)


def _learn(model: FieldModel, known: Known | None) -> tuple[Fit, Searched]:
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
    proper = time_priors(time_kernel_of(problem), 1.0, 1.0) is not None
    if problem.integrate == "auto":
        count, n_nodes = problem.grid.n_observed, problem.graph.n_nodes
        return proper and is_worth_it(count, n_nodes, problem.method)
    if not proper:
        rule = "must be False for kernels with parameters of which nothing is known"
        faults = FaultList("nothing was fitted", KernelError)
        remedy = "Register a prior for each of its parameters with the kernel, or give them bounds."
        raise faults.raise_now("integrate", rule, f"True and {time_kernel_of(problem).describe()}", remedy)
    return True


def _search(model: FieldModel, objective: FieldObjective) -> Optimum:
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


def _begin(model: FieldModel, objective: FieldObjective) -> tuple[Floats, Floats | None]:
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


def _choose_start(model: FieldModel, objective: FieldObjective) -> Floats:
    """The most likely of the kernels' own values and of a few lengthscales, in time and on the graph.

    Where the caller gave a kernel on the graph, lengthscales in time are compared at its own values, then those on the
    graph at the best of them: all pairs would take half as long as the fit.
    """
    problem, own, count = model.problem, model.start, model.n_graph
    on_graph = typical_starts(model.coordinates[:count], own[:count])
    gap = median_gap(problem.grid.times)
    in_time = model.time.starts([factor * gap for factor in START_GAPS])
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
    model: FieldModel, objective: FieldObjective, pairs: Iterable[tuple[Floats, Floats]]
) -> tuple[Floats, float]:
    """The best of some starts on the graph and in time, and its value; the first where numbers break down at all."""
    low, high = np.array([(one.low, one.high) for one in model.every]).T
    penalised = with_priors(lambda theta: (objective.value(theta), np.zeros_like(theta)), model.every)
    starts: list[Floats] = [np.clip(np.concatenate([*pair, model.start[-1:]]), low, high) for pair in pairs]
    return ranked(starts, lambda one: penalised(one)[0])[0]


def _learn_part(
    model: FieldModel, objective: FieldObjective, start: Floats, per_cell: Floats | None = None
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
