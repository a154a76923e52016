"""What a factorisation takes at least, known before anything is ordered."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp

from graphmatern.sparse import _ordering, early_cost, power_nnz, predict_cost, small_cost
from graphmatern.sparse._minimum_degree import minimum_degree

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


SMALL = {
    "grid": nx.grid_2d_graph(30, 40),
    "tree": nx.random_labeled_tree(700, seed=0),
    "hubs": nx.barabasi_albert_graph(900, 3, seed=0),
    "pieces": nx.disjoint_union(nx.cycle_graph(50), nx.empty_graph(20)),
}


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("power", [1, 2])
def test_small_costs_are_those_of_an_analysis(name: str, power: int) -> None:
    matrix = pattern(SMALL[name])
    whole = sp.csc_array(matrix @ matrix) if power == 2 else matrix
    own = minimum_degree(whole.indptr.astype(np.int64), whole.indices.astype(np.int32), 10.0)
    found, expected = small_cost(matrix, power, 1), predict_cost(whole, ordering=own, n_threads=1)
    assert found is not None
    chosen = predict_cost(whole, n_threads=1)  # through SuperLU as well
    assert chosen.ordering == "minimum_degree"
    assert abs(chosen.nnz_factor - found.nnz_factor) <= 0.1 * found.nnz_factor
    for one, other in [
        (found.nnz_factor, expected.nnz_factor),
        (found.memory_bytes, expected.memory_bytes),
        (found.seconds, expected.seconds),
    ]:
        assert 0.7 * other <= one <= 1.5 * other
    assert power_nnz(matrix, power) == whole.nnz


def test_large_costs_are_left_to_an_analysis() -> None:
    assert small_cost(sp.eye_array(20_001, format="csc")) is None
    assert small_cost(pattern(nx.complete_graph(300)), 2) is None  # products
    assert small_cost(pattern(nx.barabasi_albert_graph(4_000, 6, seed=0))) is None  # operations


def test_stored_zeros_are_part_of_small_patterns() -> None:
    matrix = pattern(nx.path_graph(50))
    matrix.data[:] = 0.0
    assert power_nnz(matrix, 2, check=False) == 50 + 2 * 49 + 2 * 48
