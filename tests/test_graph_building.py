"""Making graphs from edges, matrices and other libraries' objects."""

from __future__ import annotations

import copy
import pickle
import types
from typing import TYPE_CHECKING

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given

import graphmatern as gm
from graphmatern.errors import EdgeWarning, GraphError, UnknownNodeError
from strategies import graphs

if TYPE_CHECKING:
    from pathlib import Path

ROADS = pd.DataFrame(
    {"from": ["a", "b", "c", "b"], "to": ["b", "c", "a", "a"], "metres": [1.0, 2.0, 4.0, 3.0]}
)


def weight_of(graph: gm.Graph, one: object, other: object) -> float:
    i, j = graph.locate([one, other])
    return float(graph.weights[i, j])


def test_weight_is_mean_length_over_length() -> None:
    graph = gm.Graph.from_edges(ROADS[:3], source="from", target="to", length="metres")
    mean = 7.0 / 3.0
    assert weight_of(graph, "a", "b") == pytest.approx(mean)
    assert weight_of(graph, "c", "b") == pytest.approx(mean / 2)
    assert graph.nodes.tolist() == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("parallel", "expected"),
    [("sum", 2.5 / 1.0 + 2.5 / 3.0), ("mean_length", 2.5 / 2.0), ("first", 2.5 / 1.0)],
)
def test_parallel_edges_are_merged_with_a_count(parallel: str, expected: float) -> None:
    with pytest.warns(EdgeWarning, match="1 of 4 edges repeat a pair"):
        graph = gm.Graph.from_edges(ROADS, length="metres", parallel=parallel)  # type: ignore[arg-type]
    assert weight_of(graph, "a", "b") == pytest.approx(expected, rel=1e-15)
    assert graph.n_edges == 3
    assert len(graph.edges) == 4


def test_parallel_edges_can_be_refused() -> None:
    with pytest.raises(GraphError, match=r"must not repeat a pair of nodes.*'b', 'a'"):
        gm.Graph.from_edges(ROADS, length="metres", parallel="error")


def test_rows_without_weights_collapse_silently() -> None:
    graph = gm.Graph.from_edges([("a", "b"), ("b", "a"), ("a", "b")])
    assert graph.weights.toarray().tolist() == [[0, 1], [1, 0]]


def test_both_directions_get_a_hint() -> None:
    with pytest.warns(EdgeWarning, match="parallel='first'"):
        gm.Graph.from_edges([("a", "b"), ("b", "a")], weight=[1.0, 1.0])


def test_self_loops_are_dropped_with_a_count() -> None:
    with pytest.warns(EdgeWarning, match="2 self-loops dropped"):
        graph = gm.Graph.from_edges([(1, 1), (1, 2), (2, 2)])
    assert graph.n_edges == 1
    with pytest.warns(EdgeWarning, match="1 self-loop dropped"):
        assert gm.Graph.from_adjacency([[3.0, 1.0], [1.0, 0.0]]).n_edges == 1


def test_a_warning_points_at_the_callers_line() -> None:
    with pytest.warns(EdgeWarning) as caught:
        gm.Graph.from_edges([(1, 1), (1, 2)])
    assert caught[0].filename == __file__


def test_zero_weight_means_no_edge() -> None:
    graph = gm.Graph.from_edges([("a", "b"), ("b", "c")], weight=[0.0, 2.0])
    assert graph.n_edges == 1
    assert graph.n_components == 2


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".parquet"])
def test_edges_from_a_file(tmp_path: Path, suffix: str) -> None:
    table = pd.DataFrame({"source": ["NA", "b"], "target": ["b", "c"], "w": [1.5, 2.5]})
    path = tmp_path / f"edges{suffix}"
    if suffix == ".parquet":
        table.to_parquet(path)
    else:
        table.to_csv(path, index=False, sep="\t" if suffix == ".tsv" else ",")
    graph = gm.Graph.from_edges(path, weight="w")
    assert graph.nodes.tolist() == ["NA", "b", "c"]
    assert weight_of(graph, "NA", "b") == 1.5


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"roads\.csv"):
        gm.Graph.from_edges(tmp_path / "roads.csv")


def test_names_of_any_hashable_kind() -> None:
    names = [(0, 0), (0, 1), "x", 7, frozenset({1})]
    graph = gm.Graph.from_edges([(names[0], names[1])], nodes=names)
    assert list(graph.nodes) == names
    assert graph.locate([names[4], (0, 1)]).tolist() == [4, 1]
    assert (0, 1) in graph
    assert "nowhere" not in graph
    assert [] not in graph


def test_numbers_and_strings_stay_apart() -> None:
    graph = gm.Graph.from_edges([(1, "1")])
    assert graph.n_nodes == 2
    with pytest.raises(UnknownNodeError, match="write 2, a int"):
        gm.Graph.from_edges([(1, 2)]).locate(["2"])


def test_a_single_string_is_not_a_list_of_names() -> None:
    with pytest.raises(UnknownNodeError, match="Put names in a list"):
        gm.Graph.from_edges([("a", "b")]).locate("ab")


def test_positions_and_masses_by_name_or_in_order() -> None:
    by_name = gm.Graph.from_edges(
        [("a", "b")], positions={"b": (2, 3), "a": (0, 1)}, masses=pd.Series({"b": 5.0, "a": 4.0})
    )
    in_order = gm.Graph.from_edges([("a", "b")], positions=[[0, 1], [2, 3]], masses=[4.0, 5.0])
    assert by_name == in_order
    assert by_name.positions is not None
    assert by_name.positions.tolist() == [[0, 1], [2, 3]]


@pytest.mark.parametrize("as_matrix", [np.asarray, sp.csr_array, sp.coo_matrix, sp.csc_matrix])
def test_from_adjacency(as_matrix: type) -> None:
    dense = np.array([[0, 2, 0], [2, 0, 0.5], [0, 0.5, 0]])
    graph = gm.Graph.from_adjacency(as_matrix(dense), nodes=["a", "b", "c"])
    assert graph.weights.toarray().tolist() == dense.tolist()
    assert graph.edges["weight"].tolist() == [2.0, 0.5]


def test_the_callers_matrix_is_left_alone() -> None:
    matrix = sp.csr_array(np.array([[0.0, 1.0], [1.0, 0.0]]))
    gm.Graph.from_adjacency(matrix)
    matrix.data[0] = 5.0  # still writable


def test_networkx_round_trip() -> None:
    with pytest.warns(EdgeWarning):
        graph = gm.Graph.from_edges(ROADS, length="metres", positions={"a": (0, 0), "b": (1, 0), "c": (0, 1)})
    with pytest.warns(EdgeWarning):
        again = gm.Graph.from_networkx(graph.to_networkx(), length="length")
    assert again.nodes.tolist() == graph.nodes.tolist()
    np.testing.assert_array_equal(again.weights.toarray(), graph.weights.toarray())
    np.testing.assert_array_equal(again.positions, graph.positions)


def test_networkx_weights_and_attributes() -> None:
    plain = nx.path_graph(3)
    assert gm.Graph.from_networkx(plain).weights.sum() == 4.0
    plain.edges[0, 1]["weight"] = 3.0
    with pytest.raises(GraphError, match=r"must stand at every edge.*\[1, 2\]"):
        gm.Graph.from_networkx(plain)
    table = pd.DataFrame({"mean": [1.0, 2.0, 3.0]}, index=[0, 1, 2])
    out = gm.Graph.from_networkx(nx.path_graph(3)).to_networkx(attributes=table)
    assert out.nodes[2]["mean"] == 3.0


def test_directed_graphs_are_refused_with_the_remedy() -> None:
    with pytest.raises(GraphError, match="to_undirected"):
        gm.Graph.from_networkx(nx.DiGraph([(0, 1)]))


def test_from_pyg_accepts_one_or_both_directions() -> None:
    both = types.SimpleNamespace(edge_index=torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]), num_nodes=4)
    one = types.SimpleNamespace(edge_index=torch.tensor([[0, 1], [1, 2]]), num_nodes=4)
    graph = gm.Graph.from_pyg(both)
    assert graph == gm.Graph.from_pyg(one)
    assert graph.n_nodes == 4
    assert graph.n_components == 2
    weighted = types.SimpleNamespace(
        edge_index=both.edge_index, num_nodes=3, edge_weight=torch.tensor([2.0, 2.0, 1.0, 7.0])
    )
    with pytest.raises(GraphError, match="must be symmetric"):
        gm.Graph.from_pyg(weighted)


def test_nearest_neighbours_include_coinciding_points() -> None:
    points = [[0.0, 0.0], [0.0, 0.0], [1.0, 0.0], [5.0, 0.0]]
    graph = gm.Graph.from_points(points, n_neighbors=1, weights="gaussian", bandwidth=1.0)
    assert weight_of(graph, 0, 1) == 1.0
    assert weight_of(graph, 2, 3) == pytest.approx(np.exp(-8.0))
    assert gm.Graph.from_points(points, 1, weights="unit").weights.data.tolist() == [1.0] * graph.weights.nnz


@given(graphs(weight_decades=6))
def test_content_survives_copies_and_pickles(graph: gm.Graph) -> None:
    graph.spectrum()
    assert copy.deepcopy(graph) is graph
    assert copy.copy(graph) is graph
    again = pickle.loads(pickle.dumps(graph))
    assert again == graph
    assert hash(again) == hash(graph)
    with pytest.raises(ValueError, match="read-only"):
        again.weights.data[:] = 0.0
    assert graph.subgraph(list(graph.nodes)) == graph


def test_graphs_compare_by_content() -> None:
    one = gm.Graph.from_edges([("a", "b")])
    assert one == gm.Graph.from_edges([("a", "b")])
    assert one != gm.Graph.from_edges([("a", "c")])
    assert one != gm.Graph.from_edges([("a", "b")], weight=[2.0])
    assert one != gm.Graph.from_edges([("a", "b")], masses=[1.0, 2.0])
    assert one != "a graph"


def test_pickles_do_not_carry_the_spectrum() -> None:
    graph = gm.make_roads(300)
    before = len(pickle.dumps(graph))
    graph.spectrum()
    assert len(pickle.dumps(graph)) == before


def test_no_graph_without_a_constructor() -> None:
    with pytest.raises(TypeError, match="from_edges"):
        gm.Graph()


def test_make_roads_is_planar_connected_and_reproducible() -> None:
    roads = gm.make_roads(400, seed=3)
    assert roads == gm.make_roads(400, seed=3)
    assert roads != gm.make_roads(400, seed=4)
    assert roads.n_components == 1
    assert nx.check_planarity(roads.to_networkx())[0]
    lengths = roads.edges["length"].to_numpy()
    ends = [roads.positions[roads.locate(roads.edges[column])] for column in ("source", "target")]  # type: ignore[index]
    np.testing.assert_allclose(lengths, np.linalg.norm(ends[0] - ends[1], axis=1), rtol=1e-12)
    np.testing.assert_allclose(roads.edges["weight"], lengths.mean() / lengths)
