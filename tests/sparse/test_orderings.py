"""Orderings of large graphs, tried on small ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given

from graphmatern.sparse import _ordering, analyze
from graphmatern.sparse._low_degrees import eliminate_low_degrees
from graphs_zoo import KINDS
from strategies import graphs

if TYPE_CHECKING:
    import graphmatern as gm


def with_diagonal(adjacency: sp.csr_array) -> sp.csr_array:
    return sp.csr_array(adjacency + sp.eye_array(adjacency.shape[0]))


def lists_of(matrix: sp.csr_array) -> tuple[np.ndarray, np.ndarray]:
    return matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32)


@given(graph=graphs())
def test_nodes_of_low_degree_are_eliminated_as_gauss_would(graph: gm.Graph) -> None:
    """What is left is the graph after elimination, and each node had two neighbours at most when its turn came."""
    order, n_done, indptr, indices = eliminate_low_degrees(*lists_of(with_diagonal(graph.weights)))
    assert np.array_equal(np.sort(order), np.arange(graph.n_nodes))
    near = {k: set(graph.weights[[k]].indices.tolist()) for k in range(graph.n_nodes)}
    for node in order[:n_done].tolist():
        around = near.pop(node)
        assert len(around) <= 2
        for one in around:
            near[one] = (near[one] | around) - {one, node}
    left = order[n_done:].tolist()
    for k, node in enumerate(left):
        found = [left[i] for i in indices[indptr[k] : indptr[k + 1]]]
        assert len(found) == len(set(found))
        assert set(found) == near[node]
        assert len(found) > 2 or any(len(near[one]) > 16 for one in found)


@pytest.mark.parametrize("shape", ["path", "cycle", "tree", "star of hubs"])
def test_sparse_graphs_stay_sparse(shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_ordering, "_MANY_NODES", 0)
    monkeypatch.setattr(_ordering, "_LOW_SHARE", -1.0)
    monkeypatch.setattr(_ordering, "small_ordering", lambda *_: None)
    made = {
        "path": nx.path_graph(300),
        "cycle": nx.cycle_graph(300),
        "tree": nx.random_labeled_tree(300, seed=0),
        "star of hubs": nx.compose(nx.star_graph(100), nx.relabel_nodes(nx.star_graph(100), lambda k: k + 100)),
    }[shape]
    n = made.number_of_nodes()
    analysis = analyze(with_diagonal(sp.csr_array(nx.to_scipy_sparse_array(made))))
    assert analysis.nnz_factor <= 3 * n
    if shape != "cycle":
        assert analysis.nnz_factor == 2 * n - 1  # no fill


@pytest.mark.parametrize("kind", KINDS)
def test_low_degrees_first_costs_no_fill(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = with_diagonal(KINDS[kind](600))
    monkeypatch.setattr(_ordering, "small_ordering", lambda *_: None)
    plain = analyze(matrix, ordering="minimum_degree")
    monkeypatch.setattr(_ordering, "_MANY_NODES", 0)
    monkeypatch.setattr(_ordering, "_LOW_SHARE", -1.0)
    found = analyze(matrix, ordering="minimum_degree")
    assert np.array_equal(np.sort(found.permutation), np.arange(matrix.shape[0]))
    assert found.nnz_factor <= 1.1 * plain.nnz_factor


@pytest.mark.parametrize(("kind", "pays"), [("roads", False), ("grid", False), ("expander", True)])
def test_dissection_is_tried_where_it_may_pay(kind: str, pays: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []
    dissect = _ordering._metis

    def recorded(indptr: np.ndarray, indices: np.ndarray) -> np.ndarray:
        tried.append(kind)
        return dissect(indptr, indices)

    monkeypatch.setattr(_ordering, "_metis", recorded)
    expander = nx.to_scipy_sparse_array(nx.random_regular_graph(8, 2000, seed=0))
    matrix = with_diagonal(sp.csr_array(expander) if kind == "expander" else KINDS[kind](1500))
    found = analyze(matrix)
    assert bool(tried) == pays
    assert found.flops <= analyze(matrix, ordering="minimum_degree").flops
