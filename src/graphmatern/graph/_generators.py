"""Generated graphs for demonstrations, tests and benchmarks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from graphmatern._validation import FaultList, check_positive, check_whole
from graphmatern.errors import GraphError
from graphmatern.graph._graph import Graph

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["make_city", "make_roads"]

_BLOCK = 100.0  # metres: side of the square that a junction of a city has on average


def make_roads(n: int, seed: int = 0, *, keep: float = 0.7, spacing: float = 100.0) -> Graph:
    """Make a planar graph that looks like a road network.

    Two random points are joined if the circle whose diameter is the line between them contains no third point
    (the Gabriel graph), some of these roads are removed at random, and the largest component is kept.

    Parameters
    ----------
    n : int
        Number of points drawn, at least 4; about 97 % of them end up in the largest component.
    seed : int
        Seed of the random numbers.
    keep : float
        Share of the roads to keep.
    spacing : float
        Side of the average square per point, in the unit of positions and lengths (for instance metres).

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
        faults.add("keep", "must be at most 1", repr(keep), "Choose a share from 0 to 1.")
    check_positive("spacing", spacing, faults, remedy="Choose such a length.")
    faults.raise_if_any()
    rng = np.random.default_rng(seed)
    points = rng.random((n, 2))
    edges = _gabriel_edges(points)
    edges = edges[rng.random(len(edges)) < keep]
    points *= spacing * np.sqrt(n)
    length = np.linalg.norm(points[edges[:, 0]] - points[edges[:, 1]], axis=1)
    return _largest(points, edges, length)


def make_city(n: int, seed: int = 0, *, bridges: int = 2, motorway_speed: float = 4.0) -> Graph:
    """Make the streets of a city whose map is misleading: two rivers with few bridges, and two motorways.

    Streets are those of `make_roads`. Two rivers cross the city, each with a few bridges; two motorways join junctions
    eight blocks apart. Neighbours on the map may thus be far apart by road, and vice versa.

    Parameters
    ----------
    n : int
        Number of junctions drawn, at least 100; about 90 % of them are kept, the others lie in a river or are cut off.
    seed : int
        Seed of the random numbers.
    bridges : int
        Bridges over each river, not counting those of motorways.
    motorway_speed : float
        Speed on a motorway relative to streets. Its length is that of a street that takes as long.

    Returns
    -------
    Graph
        With positions and lengths in metres; nodes are named 0, 1, ... Motorways have the ids "motorway 0",
        "motorway 1", ...; streets have numbers.

    Examples
    --------
    >>> import graphmatern as gm
    >>> gm.make_city(1000, seed=0)
    Graph(913 nodes, 1543 edges)
    """
    faults = FaultList("no city was made", GraphError)
    check_whole("n", n, faults, minimum=100, remedy="Ask for more junctions.")
    check_whole("seed", seed, faults, minimum=0, remedy="Choose another seed.")
    check_whole("bridges", bridges, faults, minimum=1, remedy="Without bridges the city falls apart.")
    check_positive("motorway_speed", motorway_speed, faults, remedy="1 is the speed on streets.")
    faults.raise_if_any()
    rng = np.random.default_rng(seed)
    side = _BLOCK * np.sqrt(n)
    points = rng.random((n, 2)) * side
    rivers = [(axis, rng.uniform(0.4, 0.6) * side, rng.uniform(0.0, 2.0 * np.pi)) for axis in (0, 1)]
    for river in rivers:
        points = points[np.abs(_offset(points, river, side)) > 0.7 * _BLOCK]
    edges = _gabriel_edges(points)
    edges = edges[rng.random(len(edges)) < 0.9]
    for river in rivers:
        edges = _keep_bridges(edges, points, river, side, bridges)
    length = np.linalg.norm(points[edges[:, 0]] - points[edges[:, 1]], axis=1)
    fast = np.concatenate([_motorway(points, *ends) for ends in _diagonals(side)])
    fast_length = np.linalg.norm(points[fast[:, 0]] - points[fast[:, 1]], axis=1) / motorway_speed
    ids: list[Any] = [*range(len(edges)), *(f"motorway {k}" for k in range(len(fast)))]
    return _largest(points, np.concatenate([edges, fast]), np.concatenate([length, fast_length]), ids)


def _offset(points: NDArray[np.float64], river: tuple[int, float, float], side: float) -> NDArray[np.float64]:
    """Distance from a river that winds across the map along one axis, negative on one of its sides."""
    axis, start, phase = river
    bends = 0.12 * side * np.sin(1.5 * 2.0 * np.pi * points[:, axis] / side + phase)
    return np.asarray(points[:, 1 - axis] - start - bends)


def _keep_bridges(
    edges: NDArray[np.int64],
    points: NDArray[np.float64],
    river: tuple[int, float, float],
    side: float,
    bridges: int,
) -> NDArray[np.int64]:
    """Drop the streets over a river but for some bridges, evenly spread along it."""
    bank = _offset(points, river, side) > 0
    crossing = np.flatnonzero(bank[edges[:, 0]] != bank[edges[:, 1]])
    if len(crossing) == 0:
        return edges
    along = points[edges[crossing], river[0]].mean(axis=1)
    wanted = (np.arange(bridges) + 0.5) / bridges * side
    kept = crossing[np.abs(along[:, None] - wanted).argmin(axis=0)]
    return np.delete(edges, np.setdiff1d(crossing, kept), axis=0)


def _diagonals(side: float) -> list[tuple[NDArray[np.float64], NDArray[np.float64]]]:
    """Ends of the motorways: from corner to corner, off the very corners."""
    low, high = 0.08 * side, 0.92 * side
    return [(np.array([low, low]), np.array([high, high])), (np.array([low, high]), np.array([high, low]))]


def _motorway(points: NDArray[np.float64], start: NDArray[np.float64], end: NDArray[np.float64]) -> NDArray[np.int64]:
    """Edges between the junctions nearest to points eight blocks apart on a line."""
    count = max(int(np.linalg.norm(end - start) / (8.0 * _BLOCK)), 2)
    places = start + np.linspace(0.0, 1.0, count + 1)[:, None] * (end - start)
    stops = ((points[None] - places[:, None]) ** 2).sum(axis=2).argmin(axis=1)
    return np.column_stack([stops[:-1], stops[1:]])


def _largest(
    points: NDArray[np.float64], edges: NDArray[np.int64], length: NDArray[np.float64], ids: list[Any] | None = None
) -> Graph:
    """Largest component, its nodes named 0, 1, ..., with weights relative to the mean length of its own edges."""
    n = len(points)
    largest = Graph.from_edges(edges, length=length, nodes=range(n)).largest_component()
    position = np.full(n, -1)
    position[largest.nodes] = np.arange(largest.n_nodes)
    kept = np.flatnonzero((position[edges] >= 0).all(axis=1))
    return Graph.from_edges(
        position[edges[kept]],
        length=length[kept],
        id=None if ids is None else [ids[row] for row in kept],
        nodes=range(largest.n_nodes),
        positions=points[largest.nodes],
    )


def _gabriel_edges(points: NDArray[np.float64]) -> NDArray[np.int64]:
    """Edges of the Gabriel graph, sorted; shape (n_edges, 2).

    They are the edges of the Delaunay triangulation that face no obtuse angle.
    """
    from scipy.spatial import Delaunay

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
