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
from graphmatern.errors import EdgeWarning, GraphError, GraphMaternWarning, UnknownNodeError
from graphmatern.sparse import _pattern
from strategies import graphs

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

ROADS = pd.DataFrame({"from": ["a", "b", "c", "b"], "to": ["b", "c", "a", "a"], "metres": [1.0, 2.0, 4.0, 3.0]})


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
    with pytest.warns(EdgeWarning, match="1 of 4 edges repeats a pair"):
        graph = gm.Graph.from_edges(ROADS, length="metres", parallel=parallel)  # type: ignore[arg-type]
    assert weight_of(graph, "a", "b") == pytest.approx(expected, rel=1e-15)
    assert graph.n_edges == 3
    assert len(graph.edges) == 4


def test_an_edge_listed_twice_is_suspected() -> None:
    twice = pd.concat([ROADS[:3], ROADS[1:2]])
    with pytest.warns(EdgeWarning, match=r"It has the same length as well: .* use parallel='first'"):
        gm.Graph.from_edges(twice, length="metres")
    with pytest.warns(EdgeWarning, match=r"\(parallel='sum'\)$"):
        gm.Graph.from_edges(ROADS, length="metres")


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
    with pytest.warns(GraphMaternWarning, match="look the same: 1, '1'"):
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
    with pytest.raises(GraphError, match=r"must have the attribute 'weight' at every edge.*\[1, 2\]"):
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


def csv(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "edges.csv"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("source,target\n1,2\n2,3\n3,X\n", ["1", "2", "3", "X"]),
        ("source,target\n01,1\n1,2\n", ["01", "1", "2"]),
        ("source,target\n1,2\n2,3\n", [1, 2, 3]),
        ("source,target\n1.0,1\n1e3,1000\n", ["1.0", "1", "1e3", "1000"]),
        ("source,target\nA, B\nB ,C\n", ["A", "B", "C"]),
        ("cited,citing\na,b\n", ["a", "b"]),
        ("source;target\na;b\n", ["a", "b"]),
        ("road,from,to\nr1,a,b\n", ["a", "b"]),
    ],
)
def test_both_ends_of_a_file_are_read_alike(tmp_path: Path, text: str, names: list[object]) -> None:
    assert gm.Graph.from_edges(csv(tmp_path, text)).nodes.tolist() == names


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("source,target\na,b,5\nb,c,6\n", "readable table"),
        ("", "readable table"),
        ("source,target\na,b\nc,d,e,f\n", "readable table"),
        ("source|target\na|b\n", "separator of the file"),
        ("source,target,source\na,b,c\n", "different column names"),
        ("street,first,second,metres\nx,a,b,1\n", "Name them: `source=` and `target=`"),
        ("source,target\na,\n", "name a node in every row"),
    ],
)
def test_files_that_cannot_be_read_as_edges(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(GraphError, match=words):
        gm.Graph.from_edges(csv(tmp_path, text))


def test_binary_junk_is_not_a_table(tmp_path: Path) -> None:
    for suffix in (".csv", ".parquet"):
        path = tmp_path / f"junk{suffix}"
        path.write_bytes(bytes(range(256)))
        with pytest.raises(GraphError, match="readable table"):
            gm.Graph.from_edges(path)


def test_large_numbers_stay_apart() -> None:
    big = 2**62
    unsigned = pd.DataFrame(
        {"source": np.array([big, big + 1]), "target": np.array([big + 2, big + 3], dtype=np.uint64)}
    )
    assert gm.Graph.from_edges(unsigned).n_nodes == 4
    assert gm.Graph.from_edges([(big, 1.0), (big + 1, 2.0)]).n_nodes == 4
    assert gm.Graph.from_edges([(2**63 + 1, -1), (2**63 + 2, -2)]).n_nodes == 4
    graph = gm.Graph.from_edges([(big, big + 1), (big + 1, big + 2)])
    assert graph.locate([float(big)]).tolist() == [0]
    cut = graph.subdivide(pd.DataFrame({"edge": [0], "share": [0.5]}, index=[0.5]), fraction="share")
    assert cut.locate([big + 2, 0.5]).tolist() == [2, 3]


def test_edges_keep_their_numbers_when_others_are_dropped() -> None:
    with pytest.warns(EdgeWarning, match="self-loop"):
        graph = gm.Graph.from_edges([("a", "a"), ("a", "b"), ("b", "c"), ("x", "y")])
    assert graph.edges["id"].tolist() == [1, 2, 3]
    part = graph.subgraph(["b", "c"])
    assert part.edges["id"].tolist() == [2]
    cut = graph.subdivide({"edge": [1], "share": [0.5]}, fraction="share")  # type: ignore[arg-type]
    assert cut.distances(["a"])[0, cut.locate(["b"])[0]] == 2


def test_columns_are_what_the_caller_named() -> None:
    table = pd.DataFrame([["b", "a", "x"], ["c", "b", "y"]])
    assert gm.Graph.from_edges(table, source=1, target=0).nodes.tolist() == ["a", "b", "c"]
    with pytest.raises(GraphError, match="for both"):
        gm.Graph.from_edges(table, source=1, target=1)
    with pytest.raises(GraphError, match="'target', which occurs 2 times"):
        gm.Graph.from_edges(pd.DataFrame([["a", "b", "c"]], columns=["source", "target", "target"]))


def test_small_asymmetries_beside_large_weights_are_found() -> None:
    weights = np.zeros((4, 4))
    weights[0, 1] = weights[1, 0] = 1e13
    weights[2, 3], weights[3, 2] = 1.0, 5.0
    with pytest.raises(GraphError, match=r"must be symmetric.*\(2, 3\)"):
        gm.Graph.from_adjacency(weights)


def test_neighbours_do_not_depend_on_the_unit() -> None:
    points = np.random.default_rng(0).random((40, 2))
    expected = gm.Graph.from_points(points, 4)
    for unit in (1e-160, 1e-10, 1e160):
        found = gm.Graph.from_points(points * unit, 4)
        np.testing.assert_allclose(found.weights.toarray(), expected.weights.toarray(), rtol=1e-9)
    assert expected.has_lengths
    with pytest.warns(EdgeWarning, match="too long for the bandwidth"):
        gm.Graph.from_points(points, 4, bandwidth=1e-3)
    table = pd.DataFrame(points, index=[f"p{i}" for i in range(40)])
    assert gm.Graph.from_points(table, 4).nodes[3] == "p3"


def test_the_callers_arrays_are_copied() -> None:
    weight, length = np.array([1.0, 2.0]), np.array([1.0, 3.0])
    one = gm.Graph.from_edges([("a", "b"), ("b", "c")], weight=weight)
    other = gm.Graph.from_edges([("a", "b"), ("b", "c")], length=length)
    weight[:], length[:] = 99.0, 99.0
    assert one.edges["weight"].tolist() == [1.0, 2.0]
    assert other.edges["length"].tolist() == [1.0, 3.0]


def test_equal_graphs_have_equal_hashes() -> None:
    edges = gm.Graph.from_edges([("b", "c"), ("a", "b")], nodes=["a", "b", "c"])
    matrix = gm.Graph.from_adjacency([[0, 1, 0], [1, 0, 1], [0, 1, 0]], nodes=["a", "b", "c"])
    assert edges == matrix
    assert hash(edges) == hash(matrix)
    assert gm.Graph.from_edges([], nodes=["a"]) == gm.Graph.from_adjacency([[0]], nodes=["a"])
    with pytest.warns(EdgeWarning):
        doubled = gm.Graph.from_edges([("a", "b"), ("a", "b")], weight=[1.0, 1.0])
    assert doubled != gm.Graph.from_edges([("a", "b")], weight=[2.0])


@pytest.mark.parametrize(
    "make",
    [
        lambda: gm.Graph.from_edges([("a", "b"), ("b", "c")], length=[1e-320, 1.0]),
        lambda: gm.Graph.from_edges([("a", "b"), ("b", "c")], weight=[1e308, 1e308]),
        lambda: gm.Graph.from_edges([("a", "b")], masses=[1e-320, 1.0]),
    ],
)
def test_overflow_is_refused(make: Callable[[], gm.Graph]) -> None:
    with pytest.raises(GraphError, match="must not overflow"):
        make()


def test_tiny_weights_have_a_normalised_laplacian() -> None:
    graph = gm.Graph.from_edges([("a", "b")], weight=[1e-300])
    assert graph.laplacian(normalized=True).toarray().tolist() == [[1.0, -1.0], [-1.0, 1.0]]


@pytest.mark.parametrize(
    "make",
    [
        lambda: gm.Graph.from_edges(None),
        lambda: gm.Graph.from_edges(5),
        lambda: gm.Graph.from_edges({"source": ["a", "b"], "target": ["b"]}),
        lambda: gm.Graph.from_edges([(["x"], ["y"])]),
        lambda: gm.Graph.from_edges([("a", "b")], weight=[10**400]),
        lambda: gm.Graph.from_edges([("a", "b")], weight=np.array(["2020-01-01"], dtype="datetime64[D]")),
        lambda: gm.Graph.from_edges([("a", "b")], weight=[1 + 2j]),
        lambda: gm.Graph.from_edges([("a", "b")], parallel=np.array([1])),  # type: ignore[arg-type]
        lambda: gm.Graph.from_edges([("a", "b")], id=[["x"]]),
        lambda: gm.Graph.from_adjacency((3, 3)),
        lambda: gm.Graph.from_adjacency(np.array([[0, None], [None, 0]], dtype=object)),
        lambda: gm.Graph.from_adjacency(pd.DataFrame([[0, 1], [1, 0]], index=["a", "b"], columns=["b", "a"])),
        lambda: gm.Graph.from_mesh([[0, 0], [1, 0]], [[0, 1], [1]]),
        lambda: gm.make_roads(10).remove_hanging_nodes(-1),
        lambda: gm.make_roads(10).laplacian("no"),  # type: ignore[arg-type]
        lambda: gm.make_roads(10, spacing="1"),  # type: ignore[arg-type]
        lambda: gm.make_roads(10, seed=-1),
    ],
)
def test_junk_gets_a_typed_error(make: Callable[[], object]) -> None:
    with pytest.raises(GraphError):
        make()


def test_tensors_are_data_too() -> None:
    weight = torch.tensor([2.0], requires_grad=True)
    assert gm.Graph.from_edges([("a", "b")], weight=weight).weights.data.tolist() == [2.0, 2.0]


def test_geometry_round_trip_through_networkx() -> None:
    line = np.array([[0.0, 0.0], [1.0, 1.0], [2.0, 0.0]])
    graph = gm.Graph.from_edges([("a", "b")], geometry=[line])
    again = gm.Graph.from_networkx(graph.to_networkx(), geometry="geometry")
    np.testing.assert_array_equal(again.edges["geometry"][0], line)


def test_from_pyg_in_one_direction_with_weights() -> None:
    data = types.SimpleNamespace(
        edge_index=torch.tensor([[0, 2], [1, 1]]), num_nodes=3, edge_weight=torch.tensor([1.0, 2.0])
    )
    assert gm.Graph.from_pyg(data).weights.toarray()[1].tolist() == [1.0, 0.0, 2.0]


def test_unweighted_repeats_count_once_after_subdivision() -> None:
    graph = gm.Graph.from_edges([("a", "b"), ("b", "a"), ("b", "c")])
    cut = graph.subdivide(pd.DataFrame({"edge": [2], "share": [0.5]}, index=["s"]), fraction="share")
    assert weight_of(cut, "a", "b") == 1.0
    assert gm.Graph.from_networkx(graph.to_networkx()).weights.data.max() == 1.0


def test_self_loops_do_not_change_the_mean_length() -> None:
    for rule in ("sum", "mean_length", "first"):
        with pytest.warns(EdgeWarning):
            graph = gm.Graph.from_edges([("a", "a"), ("a", "b")], length=[997.0, 1.0], parallel=rule)
        assert weight_of(graph, "a", "b") == 1.0


def test_a_weight_matrix_that_needs_no_correction_is_taken_as_it_is() -> None:
    rng = np.random.default_rng(0)
    half = sp.random_array((300, 300), density=0.01, rng=rng)
    weights = sp.csr_array(sp.triu(half, k=1) + sp.triu(half, k=1).T)
    plain = gm.Graph.from_adjacency(weights)
    for other in (weights.toarray(), weights.tocoo(), weights.tocsc()):
        assert gm.Graph.from_adjacency(other) == plain
    weights.data[:] = 7.0  # the graph has a copy
    assert plain.weights.data.max() < 1.0
    # One wrong entry is still found.
    for wrong in (-1.0, np.nan, np.inf, 3.0):
        spoiled = plain.weights.tocsr(copy=True)
        spoiled.data[0] = wrong
        with pytest.raises(gm.errors.GraphError):
            gm.Graph.from_adjacency(spoiled)


@given(graph=graphs())
def test_large_matrices_are_checked_and_completed_in_one_pass(graph: gm.Graph) -> None:
    """What compiled code does for many entries is what scipy does for few."""
    weights = graph.weights
    lists = weights.indptr, weights.indices
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_pattern, "_MANY", -1)
        laplacian = graph.laplacian()
        assert _pattern.is_symmetric(*lists, weights.data)
        for k in range(min(weights.nnz, 3)):
            other = weights.data.copy()
            other[k] *= 2.0
            assert not _pattern.is_symmetric(*lists, other)
            one_way = weights.copy()
            one_way.data[k] = 0.0
            one_way.eliminate_zeros()
            assert not _pattern.is_symmetric(one_way.indptr, one_way.indices, one_way.data)
    plain = graph.laplacian()
    for part in ("indptr", "indices", "data"):
        assert np.array_equal(getattr(laplacian, part), getattr(plain, part))
        assert getattr(laplacian, part).dtype == getattr(plain, part).dtype
    assert laplacian.has_sorted_indices
