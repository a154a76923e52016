"""Graphs made up for demonstrations, tests and benchmarks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.spatial import Delaunay

from graphmatern._validation import FaultList, check_positive, check_whole
from graphmatern.errors import GraphError
from graphmatern.graph._graph import Graph

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["make_roads"]


def make_roads(n: int, seed: int = 0, *, keep: float = 0.7, spacing: float = 100.0) -> Graph:
    """Make a planar graph that looks like a road network.

    Random points are joined where the circle on their connection as diameter holds no third point (the
    Gabriel graph), some of these roads are left out at random, and the largest component is kept.

    Parameters
    ----------
    n : int
        Number of points drawn, at least 4; about 97 % of them end up in the largest component.
    seed : int
        Seed of the random numbers.
    keep : float
        Share of the roads that is kept.
    spacing : float
        Side of the square that each point has on average, in the unit of positions and lengths (metres, say).

    Returns
    -------
    Graph
        With positions and lengths; nodes are named 0, 1, ...

    Examples
    --------
    >>> import graphmatern as gm
    >>> gm.make_roads(1000, seed=0)
    Graph(967 nodes, 1362 edges)
    """
    faults = FaultList("no roads were made", GraphError)
    check_whole("n", n, faults, minimum=4, remedy="Ask for more points.")
    check_whole("seed", seed, faults, minimum=0, remedy="Choose another seed.")
    check_positive("keep", keep, faults, remedy="Choose a share of at most 1.")
    if not len(faults) and keep > 1.0:
        faults.add("keep", "must be at most 1", repr(keep), "Choose such a share.")
    check_positive("spacing", spacing, faults, remedy="Choose such a length.")
    faults.raise_if_any()
    rng = np.random.default_rng(seed)
    points = rng.random((n, 2))
    edges = _gabriel_edges(points)
    edges = edges[rng.random(len(edges)) < keep]
    points *= spacing * np.sqrt(n)
    length = np.linalg.norm(points[edges[:, 0]] - points[edges[:, 1]], axis=1)
    graph = Graph.from_edges(edges, length=length, nodes=range(n), positions=points)
    largest = graph.largest_component()
    # Named anew, with weights relative to the mean length of the roads that are left.
    position = np.full(n, -1)
    position[largest.nodes] = np.arange(largest.n_nodes)
    kept = (position[edges] >= 0).all(axis=1)
    return Graph.from_edges(
        position[edges[kept]],
        length=length[kept],
        nodes=range(largest.n_nodes),
        positions=points[largest.nodes],
    )


def _gabriel_edges(points: NDArray[np.float64]) -> NDArray[np.int64]:
    """Edges of the Gabriel graph, sorted; shape (n_edges, 2).

    They are the edges of the Delaunay triangulation that face no obtuse angle.
    """
    n = len(points)
    triangles = Delaunay(points).simplices.astype(np.int64)
    keys, facing_obtuse = [], []
    for first, second, third in ((0, 1, 2), (1, 2, 0), (2, 0, 1)):
        start, end, opposite = triangles[:, first], triangles[:, second], triangles[:, third]
        to_start, to_end = points[start] - points[opposite], points[end] - points[opposite]
        keys.append(np.minimum(start, end) * n + np.maximum(start, end))
        facing_obtuse.append(keys[-1][np.einsum("ij,ij->i", to_start, to_end) < 0])
    kept = np.setdiff1d(np.concatenate(keys), np.concatenate(facing_obtuse))
    return np.column_stack(np.divmod(kept, n))
