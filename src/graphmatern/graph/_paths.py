"""Shortest paths."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp
from scipy.sparse.csgraph import dijkstra

from graphmatern.graph._edge_rows import EdgeRows, canonical

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["path_lengths"]


def path_lengths(weights: sp.csr_array, rows: EdgeRows, sources: NDArray[np.int64]) -> NDArray[np.float64]:
    """Lengths of the shortest paths from some nodes to all; see `Graph.distances`."""
    if rows.length is None:
        return np.asarray(dijkstra(weights.copy(), directed=False, indices=sources, unweighted=True))
    # Of parallel edges the shortest counts; coordinate matrices would add them up.
    order = np.argsort(rows.length, kind="stable")
    _, first = np.unique(rows.pair_keys(weights.shape[0])[order], return_index=True)
    kept = order[first]
    ends = rows.source[kept], rows.target[kept]
    matrix = canonical(sp.csr_array((rows.length[kept], ends), shape=weights.shape))
    return np.asarray(dijkstra(matrix, directed=False, indices=sources))
