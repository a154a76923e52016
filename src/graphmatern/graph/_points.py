"""Graphs of nearest neighbours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from graphmatern._validation import FaultList, as_numbers, check_choice, check_positive, check_whole, warn
from graphmatern.errors import EdgeWarning, GraphError
from graphmatern.graph._edge_rows import EdgeRows
from graphmatern.graph._names import NodeNames
from graphmatern.graph._parts import GraphParts, checked

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["parts_from_points"]


def parts_from_points(
    points: Any, *, n_neighbors: int, weights: str, bandwidth: float | None, nodes: Any
) -> GraphParts:
    """Parts of the graph of nearest neighbours; see `Graph.from_points`."""
    check_choice("weights", weights, ("gaussian", "unit"), GraphError)
    faults = FaultList("no graph was made", GraphError)
    if isinstance(points, pd.DataFrame):
        nodes = points.index if nodes is None else nodes
        points = points.to_numpy()
    places = as_numbers(points, "points", faults, remedy="Remove or fill in these points.")
    if places.ndim != 2 or places.size == 0:
        received = f"shape {places.shape}"
        raise faults.raise_now("points", "must have shape (n_nodes, n_dimensions)", received, "One row per point.")
    n = len(places)
    remedy = "Ask for fewer neighbours, or give more points."
    check_whole("n_neighbors", n_neighbors, faults, minimum=1, maximum=max(n - 1, 1), remedy=remedy)
    if bandwidth is not None:
        check_positive("bandwidth", bandwidth, faults, remedy="Leave it out for the default.")
    names = NodeNames.default(n) if nodes is None else NodeNames.build(nodes, faults)
    if names is not None and len(names) != n:
        faults.add("nodes", f"must name every point ({n})", f"{len(names)} names", "One name per point, in order.")
    faults.raise_if_any()
    assert names is not None
    rows = _neighbour_rows(places, n_neighbors, weights, bandwidth)
    return checked(GraphParts(rows.merge(n, "first"), names, rows, places))


def _neighbour_rows(places: NDArray[np.float64], n_neighbors: int, weights: str, bandwidth: float | None) -> EdgeRows:
    """Pairs of which either is among the other's nearest neighbours, each once."""
    from sklearn.neighbors import NearestNeighbors

    n = len(places)
    if n == 1:
        empty = np.zeros(0, np.int64)
        return EdgeRows(empty, empty, np.zeros(0))
    # Neighbours are the same in any unit; in this one, squares neither overflow nor vanish.
    unit = np.abs(places).max() or 1.0
    distance, neighbour = NearestNeighbors(n_neighbors=n_neighbors).fit(places / unit).kneighbors()
    start, end = np.repeat(np.arange(n), n_neighbors), neighbour.ravel().astype(np.int64)
    low, high = np.minimum(start, end), np.maximum(start, end)
    _, first = np.unique(low * np.int64(n) + high, return_index=True)
    apart = distance.ravel()[first]
    weight = np.ones(len(first))
    if weights == "gaussian":
        width = float(distance.max(axis=1).mean()) if bandwidth is None else bandwidth / unit
        if width > 0:
            weight = np.exp(-0.5 * (apart / width) ** 2)
        if (weight == 0).any():
            count = int((weight == 0).sum())
            warn(f"{count} of {len(weight)} edges are too long for the bandwidth: their weight is 0", EdgeWarning)
    length = apart * unit if apart.all() else None  # points that coincide have no length between them
    return EdgeRows(low[first], high[first], weight, length)
