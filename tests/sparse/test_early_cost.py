"""What a factorisation takes at least, known before anything is ordered."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp

from graphmatern.sparse import _ordering, early_cost, predict_cost

GRAPHS = {
    "grid": (nx.grid_2d_graph(75, 75), 75),
    "hubs": (nx.barabasi_albert_graph(6_000, 4, seed=0), None),
    "neighbours of all": (nx.wheel_graph(6_000), 20),
}


def pattern(graph: Any) -> sp.csc_array:
    return sp.csc_array(nx.to_scipy_sparse_array(graph) + sp.eye_array(graph.number_of_nodes()))


@pytest.mark.parametrize("name", GRAPHS)
def test_bisections_foretell_costs(name: str) -> None:
    graph, size = GRAPHS[name]
    matrix = pattern(graph)
    found = _ordering.separator_size(matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32))
    if size is not None:
        assert found <= 1.3 * size
    whole = predict_cost(matrix)
    assert 0.5 * found**3 / 3.0 <= whole.flops  # it is a lower bound, about
    if name == "hubs":
        assert found**3 / 3.0 > 0.05 * whole.flops  # and not far below
        early = early_cost(matrix, enough=0.01 * whole.seconds)
        assert early is not None
        assert 0.01 * whole.seconds < early.seconds < whole.seconds
    assert early_cost(matrix, enough=2.0 * whole.seconds) is None


def test_nothing_separates_nodes_without_edges() -> None:
    empty = sp.eye_array(10, format="csc")
    assert _ordering.separator_size(empty.indptr.astype(np.int64), empty.indices.astype(np.int32)) == 0
