"""Graphs of nearest neighbours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from graphmatern._validation import FaultList, as_numbers, check_choice, check_positive, check_whole
from graphmatern.errors import GraphError
from graphmatern.graph import _build

if TYPE_CHECKING:
    from graphmatern.graph._build import GraphParts

__all__ = ["parts_from_points"]


def parts_from_points(
    points: Any, *, n_neighbors: int, weights: str, bandwidth: float | None, nodes: Any
) -> GraphParts:
    """Parts of the graph of nearest neighbours; see `Graph.from_points`."""
    from sklearn.neighbors import kneighbors_graph

    check_choice("weights", weights, ("gaussian", "unit"), GraphError)
    faults = FaultList("no graph was made", GraphError)
    places = as_numbers(points, "points", faults, remedy="Remove or fill in these points.")
    if places.ndim != 2 or places.size == 0:
        received = f"shape {places.shape}"
        raise faults.raise_now(
            "points", "must have shape (n_nodes, n_dimensions)", received, "One row per point."
        )
    n_nodes = len(places)
    remedy = "Ask for fewer neighbours, or give more points."
    check_whole("n_neighbors", n_neighbors, faults, minimum=1, maximum=max(n_nodes - 1, 1), remedy=remedy)
    if bandwidth is not None:
        check_positive("bandwidth", bandwidth, faults, remedy="Leave it out for the default.")
    faults.raise_if_any()
    if n_nodes == 1:
        return _build.parts_from_adjacency(sp.csr_array((1, 1)), nodes=nodes, positions=places, masses=None)
    distance = sp.csr_array(kneighbors_graph(places, n_neighbors, mode="distance"))
    # Either direction counts. Maxima of distances would lose pairs of coinciding points, so shift by 1.
    distance.data += 1.0
    both = sp.csr_array(distance.maximum(distance.T))
    width = bandwidth or float(distance.data.reshape(n_nodes, n_neighbors).max(axis=1).mean() - 1.0)
    if weights == "unit":
        both.data[:] = 1.0
    else:
        both.data = np.exp(-0.5 * ((both.data - 1.0) / (width or 1.0)) ** 2)
    return _build.parts_from_adjacency(both, nodes=nodes, positions=places, masses=None)
