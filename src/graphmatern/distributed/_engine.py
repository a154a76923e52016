"""The moments engine over processes: the same algorithms, on rows that PETSc and MPI multiply and sum."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from graphmatern.distributed._names import block_bounds
from graphmatern.distributed._operator import spread_operator
from graphmatern.errors import ResourceError
from graphmatern.inference import Observations
from graphmatern.inference.learning.rehearsal import may_be_parted
from graphmatern.inference.moments.engine import MomentsEngine
from graphmatern.sparse import available_memory, format_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, Self

    from numpy.typing import NDArray

    from graphmatern.distributed._graph import DistributedGraph
    from graphmatern.inference import Problem
    from graphmatern.inference.moments.operator import LaplacianOperator
    from graphmatern.inference.observations import Group

    Longs = NDArray[np.int64]

__all__ = ["SpreadEngine"]

_PART, _SEEDS = 200, 8  # observed nodes that are fitted first, around as many places


class SpreadEngine(MomentsEngine):
    """Any kernel on a graph that is spread over processes; see `MomentsEngine`.

    Observations are of this process's nodes, by their places here; in a rehearsal, which has few, every process has
    all of them, by their keys.
    """

    name: ClassVar[str] = "spread moments"

    @staticmethod
    def _make_operator(problem: Problem) -> LaplacianOperator:
        graph: Any = problem.graph
        return spread_operator(graph, bool(problem.normalized))

    def _are_many(self) -> bool:
        return not self._problem.settings.get("rehearsal", False)

    def _check_size(self) -> None:
        """Refuse what there is no memory for on some process."""
        graph: Any = self._problem.graph
        processes = graph.processes
        if not self._many:
            return
        width = self.accuracy.n_probes + sum(group.data.shape[1] for group in self.groups)
        needed = 8 * (6 * len(self._observed.nodes) * width + 8 * graph.rows.n_here * 32)
        if processes.largest(float(needed - 0.8 * available_memory())) > 0.0:
            raise ResourceError(
                f"a fit needs about {format_bytes(needed)} of memory on this process, beside the graph, of "
                f"{format_bytes(available_memory())} available. Use more processes, or more machines."
            )

    @classmethod
    def candidates(cls, problem: Problem, groups: list[Group]) -> Sequence[Callable[[], Self]]:
        """The engine itself, made here and now: threads that talk to other processes would talk at cross purposes."""
        engine = cls(problem, groups)
        return [lambda: engine]

    @classmethod
    def rehearsal(cls, problem: Problem) -> Problem | None:
        """Some of many observations, on all processes."""
        graph: Any = problem.graph
        count = graph.rows.total(len(np.unique(problem.observations.nodes)))
        if problem.settings.get("rehearsal") or count <= cls.most_dense or not may_be_parted(problem):
            return None
        return part_of_observations(problem, count)


def part_of_observations(problem: Problem, count: int) -> Problem:
    """The problem with some neighbourhoods of the observed nodes: as on one machine, the same nodes."""
    graph: Any = problem.graph
    rows, processes, observed = graph.rows, graph.processes, problem.observations
    seeds = np.unique(_chosen(graph, np.unique(observed.nodes), np.random.default_rng(0).choice(count, _SEEDS)))
    near = _neighbourhood(graph, seeds, int(_PART * graph.n_nodes / count))
    places, stand = rows.find(near)
    seen = np.zeros(len(near))
    seen[stand] = np.isin(places, observed.nodes)
    kept = near[processes.total(seen) > 0.0][:_PART]
    here = np.flatnonzero(np.isin(rows.keys[observed.nodes], kept))
    order = np.argsort(processes.joined(problem.settings["observation_rows"][here]))

    def joined(values: Any) -> Any:
        return None if values is None else processes.joined(values[here])[order]

    design = np.broadcast_to(np.ones((1, observed.n_effects)), (graph.n_nodes, observed.n_effects))
    observations = Observations(
        processes.joined(rows.keys[observed.nodes[here]])[order],
        joined(observed.y),
        design,
        joined(observed.noise),
        joined(observed.offset),
    )
    settings = {**problem.settings, "rehearsal": True}
    return replace(problem, observations=observations, search=replace(problem.search, n_restarts=0), settings=settings)


def _chosen(graph: DistributedGraph, places: Longs, ranks: Longs) -> Longs:
    """Keys of observed nodes, by how many keys of others come before."""
    processes = graph.processes
    bounds = block_bounds(graph.n_nodes, processes.size)
    keys = graph.rows.keys[places]
    (mine,), _ = processes.send([keys], np.searchsorted(bounds, keys, side="right") - 1)
    mine, before = np.sort(mine), processes.before(len(mine))
    here = (ranks >= before) & (ranks < before + len(mine))
    return processes.joined(mine[ranks[here] - before])


def _neighbourhood(graph: DistributedGraph, seeds: Longs, size: int) -> Longs:
    """Keys of the nodes nearest to some seeds by number of edges, about ``size`` of them; the same everywhere."""
    rows, weights = graph.rows, graph.weights
    neighbours = graph.of_neighbours(rows.keys.astype(np.float64)).astype(np.int64)
    rings, ring, reached = [seeds], seeds, seeds
    while len(reached) < size and len(ring):
        places, _ = rows.find(ring)
        around = [neighbours[weights.indptr[place] : weights.indptr[place + 1]] for place in places.tolist()]
        every = np.unique(graph.processes.joined(np.concatenate([seeds[:0], *around])))
        ring = np.setdiff1d(every, reached)[: size - len(reached)]
        reached = np.union1d(reached, ring)
        rings.append(ring)
    return np.concatenate(rings)
