"""A fit to part of a large graph comes first: it finds good starting values and the curvature for little."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from graphmatern.errors import GraphMaternError, NumericalError
from graphmatern.graph import Graph
from graphmatern.inference.learning.optimize import curvature

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from graphmatern.inference.learning.problem import Problem
    from graphmatern.inference.process import Engine

    Floats = NDArray[np.float64]
    Longs = NDArray[np.int64]

__all__ = ["is_large", "may_be_parted", "neighbourhood", "part_of_graph", "part_of_observations", "rehearse"]

_LARGE = 60_000  # nodes
_PARTS, _PART_LEAST = 8, 12_000
_PART_SHARE, _PART_MOST = 30, 40_000
_BESIDE_SHARE, _BESIDE_MOST = 10, 100_000
_PART_OBSERVATIONS = 500  # fewer say too little
# Less is enough than on the whole graph, which will move the parameters by more.
_TO_GAIN = 2e-3  # nats


def is_large(problem: Problem) -> bool:
    """Whether a part of the graph should be fitted first."""
    return problem.graph.n_nodes >= _LARGE and may_be_parted(problem)


def may_be_parted(problem: Problem) -> bool:
    """Whether a part of the problem has the same parameters."""
    kernel = problem.kernel
    held = set() if kernel is None else set(getattr(kernel, "fixed", ())) - {"nu"}
    return (
        problem.likelihood.gaussian
        and not problem.likelihood.fixed
        and not held
        and not problem.rules.concern("variance")
    )


def rehearse(
    problem: Problem, part: Problem, kind: type[Engine], number: int, search: Callable[..., Any]
) -> tuple[Floats, Floats | None] | None:
    """Optimum of a part, and its curvature scaled to the whole if that is not known better; None where it failed.

    Parameters
    ----------
    problem, part : Problem
        The problem, and the part of it.
    kind : type of Engine
        The engine.
    number : int
        Which of its candidates to fit.
    search : callable
        Searches for the optimum of a problem with an engine; returns it, and the objective without and with priors.
    """
    try:
        engine = kind.candidates(part, part.observations.groups)[number]()
        optimum, _, penalised = search(part, engine, None, None, _TO_GAIN)
        if part.graph is problem.graph:
            return optimum.position, None
        hessian = curvature(penalised, optimum.position)
        coordinates = [*engine.coordinates, part.rules.coordinate("noise")]
    except (NumericalError, GraphMaternError):
        return None
    room = min((one.high - x for one, x in zip(coordinates, optimum.position, strict=True)), default=0.0)
    if not np.isfinite(hessian).all() or np.linalg.eigvalsh(hessian)[0] <= 0.0 or room < 1e-3:
        return None
    return optimum.position, hessian * (problem.observations.count / part.observations.count)


def part_of_graph(problem: Problem, *, beside: bool = False) -> Problem | None:
    """The problem on a few neighbourhoods of observed nodes; None where these say too little.

    Parameters
    ----------
    problem : Problem
        The whole.
    beside : bool
        Whether the part is fitted in the time that the analysis of the whole takes anyway: it may then be larger, which
        saves an evaluation of the whole.
    """
    graph, observed = problem.graph, problem.observations
    share, most = (_BESIDE_SHARE, _BESIDE_MOST) if beside else (_PART_SHARE, _PART_MOST)
    size = int(np.clip(graph.n_nodes // share, _PART_LEAST, most))
    rng = np.random.default_rng(0)
    seeds = rng.choice(np.unique(observed.nodes), _PARTS)
    kept = np.sort(neighbourhood(graph, np.unique(seeds), size))
    place = np.full(graph.n_nodes, -1)
    place[kept] = np.arange(len(kept))
    masses = None if graph.masses is None else graph.masses[kept]
    rows = np.flatnonzero(place[observed.nodes] >= 0)
    some = observed.take(rows)
    observations = replace(some, nodes=place[some.nodes], node_design=observed.node_design[kept])
    if observations.count < _PART_OBSERVATIONS:
        return None
    return replace(
        problem,
        graph=Graph.from_adjacency(graph.weights[kept][:, kept], masses=masses),
        observations=observations,
        search=replace(problem.search, n_restarts=0),
    )


def part_of_observations(problem: Problem, count: int) -> Problem | None:
    """The problem with some neighbourhoods of the observed nodes, ``count`` nodes; None where it would be another."""
    graph, observed = problem.graph, problem.observations
    if not may_be_parted(problem):
        return None
    nodes = np.unique(observed.nodes)
    seeds = np.unique(np.random.default_rng(0).choice(nodes, _PARTS))
    near = neighbourhood(graph, seeds, int(count * graph.n_nodes / len(nodes)))
    kept = np.zeros(graph.n_nodes, dtype=bool)
    kept[near[np.isin(near, nodes)][:count]] = True
    rows = np.flatnonzero(kept[observed.nodes])
    return replace(problem, observations=observed.take(rows), search=replace(problem.search, n_restarts=0))


def neighbourhood(graph: Graph, seeds: Longs, size: int) -> Longs:
    """Nodes nearest to some seeds by number of edges, about ``size`` of them."""
    pointers, neighbours = graph.weights.indptr, graph.weights.indices
    reached = np.zeros(graph.n_nodes, dtype=bool)
    reached[seeds] = True
    rings, ring, count = [seeds], seeds, len(seeds)
    while count < size and len(ring):
        starts, lengths = pointers[ring], pointers[ring + 1] - pointers[ring]
        offsets = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        around = np.unique(neighbours[np.repeat(starts, lengths) + offsets])
        ring = around[~reached[around]][: size - count].astype(np.int64)
        reached[ring] = True
        rings.append(ring)
        count += len(ring)
    return np.concatenate(rings).astype(np.int64)
