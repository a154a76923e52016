"""Laplacians, components, subgraphs, distances, hanging nodes, points on edges, meshes."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from scipy.spatial import ConvexHull, Delaunay

import graphmatern as gm
from graphmatern.errors import EdgeWarning, GraphError
from reference import dense_laplacian
from strategies import graphs


@given(graphs(weight_decades=6, masses=True), st.booleans())
def test_laplacian_equals_the_definition(graph: gm.Graph, normalized: bool) -> None:
    laplacian = graph.laplacian(normalized).toarray()
    expected = dense_laplacian(graph, normalized=normalized)
    np.testing.assert_allclose(laplacian, expected, rtol=1e-13, atol=1e-13 * np.abs(expected).max())
    np.testing.assert_array_equal(laplacian, laplacian.T)  # exactly
    isolated = graph.degrees == 0
    assert not laplacian[isolated].any()
    # Every diagonal entry is stored, also where it is 0, and indices are sorted.
    assert graph.laplacian(normalized).nnz == graph.weights.nnz + graph.n_nodes
    assert graph.laplacian(normalized).has_canonical_format


@given(graphs(weight_decades=1, masses=True), st.booleans())
def test_spectrum_reproduces_the_laplacian(graph: gm.Graph, normalized: bool) -> None:
    spectrum = graph.spectrum(normalized=normalized)
    laplacian = graph.laplacian(normalized)
    scale = max(1.0, abs(laplacian).max())
    assert (np.diff(spectrum.eigenvalues) >= 0).all()
    np.testing.assert_allclose(spectrum.eigenvectors.T @ spectrum.eigenvectors, np.eye(graph.n_nodes), atol=1e-12)
    difference = laplacian @ spectrum.eigenvectors - spectrum.eigenvectors * spectrum.eigenvalues
    np.testing.assert_allclose(spectrum.residuals, np.linalg.norm(difference, axis=0), atol=1e-14 * scale)
    assert spectrum.residuals.max() <= 1e-12 * scale
    if normalized:
        assert spectrum.eigenvalues.max() <= 2.0 + 1e-12


@given(graphs(weight_decades=6, masses=True), st.booleans())
def test_null_space_has_one_dimension_per_component(graph: gm.Graph, normalized: bool) -> None:
    spectrum = graph.spectrum(normalized=normalized)
    assert (spectrum.eigenvalues == 0).sum() == graph.n_components
    assert (spectrum.eigenvalues >= 0).all()
    null = spectrum.eigenvectors[:, : graph.n_components]
    scale = max(1.0, abs(graph.laplacian(normalized)).max())
    assert np.abs(graph.laplacian(normalized) @ null).max() <= 1e-13 * scale
    # Each null vector lives on one component.
    for column in null.T:
        assert len(np.unique(graph.components[column != 0])) == 1


@given(graphs())
def test_signs_are_deterministic(graph: gm.Graph) -> None:
    vectors = graph.spectrum().eigenvectors
    size = np.abs(vectors)
    first = np.argmax(size >= (1 - 1e-6) * size.max(axis=0), axis=0)
    assert (vectors[first, np.arange(vectors.shape[1])] > 0).all()


@given(graphs(), st.integers(1, 20), st.booleans())
def test_truncated_spectrum_is_the_beginning_of_the_full_one(graph: gm.Graph, count: int, normalized: bool) -> None:
    kept = min(count, graph.n_nodes)
    truncated = graph.spectrum(count, normalized)  # not yet cached: computed by itself
    full = graph.spectrum(None, normalized)
    assert truncated.n_eigenpairs == kept
    np.testing.assert_allclose(truncated.eigenvalues, full.eigenvalues[:kept], atol=1e-11)
    assert graph.spectrum(count, normalized).is_complete == (kept == graph.n_nodes)
    assert graph.spectrum(None, normalized) is full  # cached


def test_spectrum_of_known_graphs() -> None:
    n = 12
    angles = 2 * np.pi * np.arange(n) / n
    cycle = gm.Graph.from_networkx(nx.cycle_graph(n)).spectrum().eigenvalues
    np.testing.assert_allclose(cycle, np.sort(2 - 2 * np.cos(angles)), atol=1e-13)
    complete = gm.Graph.from_networkx(nx.complete_graph(n)).spectrum(normalized=True).eigenvalues
    np.testing.assert_allclose(complete, [0.0] + [n / (n - 1)] * (n - 1), atol=1e-13)
    bipartite = gm.Graph.from_networkx(nx.complete_bipartite_graph(3, 4)).spectrum(normalized=True)
    assert bipartite.eigenvalues[-1] == pytest.approx(2.0, abs=1e-13)


@given(graphs())
def test_components_agree_with_networkx(graph: gm.Graph) -> None:
    expected = {frozenset(part) for part in nx.connected_components(graph.to_networkx())}
    found = {frozenset(graph.nodes[graph.components == c]) for c in range(graph.n_components)}
    assert found == expected
    assert graph.largest_component().n_nodes == max(map(len, expected))


@given(graphs())
def test_distances_agree_with_networkx(graph: gm.Graph) -> None:
    lengths = 1.0 + np.arange(len(graph.edges), dtype=float)
    table = graph.edges.assign(length=lengths)
    with_lengths = gm.Graph.from_edges(table, length="length", nodes=graph.nodes)
    start = graph.nodes[0]
    for current, attribute in ((with_lengths, "length"), (graph, None)):
        expected = nx.single_source_dijkstra_path_length(current.to_networkx(), start, weight=attribute)
        found = current.distances([start])[0]
        for node, distance in zip(graph.nodes, found, strict=True):
            assert distance == pytest.approx(expected.get(node, np.inf))


def test_of_parallel_roads_the_shorter_counts() -> None:
    with pytest.warns(EdgeWarning):
        graph = gm.Graph.from_edges([("a", "b"), ("b", "a")], length=[5.0, 3.0])
    assert graph.distances(["a"])[0, 1] == 3.0


def test_subgraph_keeps_weights_order_and_table() -> None:
    graph = gm.Graph.from_edges(
        [("a", "b"), ("b", "c"), ("c", "d")],
        length=[1.0, 2.0, 3.0],
        id=["x", "y", "z"],
        positions=np.eye(4)[:, :2],
    )
    part = graph.subgraph(["c", "b"])
    assert part.edges[["id", "length"]].to_numpy().tolist() == [["y", 2.0]]
    assert part.weights[0, 1] == 1.0  # mean length of the whole graph over 2
    assert part.positions is not None
    assert part.positions.tolist() == [[0, 0], [0, 1]]
    with pytest.raises(GraphError, match="without repetitions"):
        graph.subgraph(["a", "a"])


def test_hanging_nodes_are_removed_in_rounds() -> None:
    cycle_with_tail = gm.Graph.from_edges([(0, 1), (1, 2), (2, 0), (2, 3), (3, 4)])
    assert cycle_with_tail.remove_hanging_nodes(1).nodes.tolist() == [0, 1, 2, 3]
    assert cycle_with_tail.remove_hanging_nodes().nodes.tolist() == [0, 1, 2]
    assert cycle_with_tail.remove_hanging_nodes(0) == cycle_with_tail
    assert gm.Graph.from_edges([(0, 1)]).remove_hanging_nodes().n_nodes == 1


@given(graphs())
def test_removing_hanging_nodes_leaves_none_and_no_fewer_components(graph: gm.Graph) -> None:
    rest = graph.remove_hanging_nodes()
    assert not (np.diff(rest.weights.indptr) == 1).any()
    assert rest.n_components == graph.n_components


def test_subdivide_inserts_points_in_order_of_distance() -> None:
    road = gm.Graph.from_edges(
        [("a", "b"), ("b", "c")],
        length=[10.0, 20.0],
        id=["r1", "r2"],
        positions={"a": (0, 0), "b": (10, 0), "c": (10, 20)},
        geometry=["LINESTRING (0 0, 5 0, 10 0)", None],
    )
    sensors = pd.DataFrame({"road": ["r1", "r1", "r2"], "at": [7.0, 2.0, 5.0]}, index=["late", "early", "other"])
    cut = road.subdivide(sensors, edge="road", distance="at")
    assert cut.nodes.tolist() == ["a", "b", "c", "late", "early", "other"]
    table = cut.edges
    assert table["source"].tolist() == ["a", "early", "late", "b", "other"]
    assert table["target"].tolist() == ["early", "late", "b", "other", "c"]
    assert table["length"].tolist() == pytest.approx([2.0, 5.0, 3.0, 5.0, 15.0], rel=1e-14)
    assert table["id"].tolist() == [("r1", 0), ("r1", 1), ("r1", 2), ("r2", 0), ("r2", 1)]
    np.testing.assert_allclose(table["weight"], 6.0 / table["length"])
    np.testing.assert_allclose(table["geometry"][1], [[2, 0], [5, 0], [7, 0]], atol=1e-14)
    assert cut.positions is not None
    np.testing.assert_allclose(cut.positions[3:], [[7, 0], [2, 0], [10, 5]])


def test_subdivide_acts_before_parallel_edges_are_merged() -> None:
    with pytest.warns(EdgeWarning):
        ring = gm.Graph.from_edges([("a", "b"), ("a", "b")], length=[10.0, 10.0])
    cut = ring.subdivide(pd.DataFrame({"edge": [1], "at": [5.0]}, index=["s"]), distance="at")
    assert cut.n_edges == 3


def test_subdivide_without_lengths_puts_resistances_in_series() -> None:
    graph = gm.Graph.from_edges([("a", "b")], weight=[2.0])
    cut = graph.subdivide(pd.DataFrame({"edge": [0], "share": [0.25]}, index=["s"]), fraction="share")
    assert cut.edges["weight"].tolist() == pytest.approx([8.0, 2.0 / 0.75])
    # The new node changes nothing between the old ones: eliminating it gives back the old weight.
    dense = cut.laplacian().toarray()
    schur = dense[:2, :2] - np.outer(dense[:2, 2], dense[2, :2]) / dense[2, 2]
    np.testing.assert_allclose(schur, graph.laplacian().toarray(), atol=1e-14)


def icosphere(rounds: int) -> tuple[np.ndarray, np.ndarray]:
    """Points of a subdivided icosahedron on the unit sphere and their triangles, oriented outwards."""
    golden = (1 + 5**0.5) / 2
    points = np.array([[0, s, t * golden] for s in (-1, 1) for t in (-1, 1)])
    points = np.vstack([np.roll(points, k, axis=1) for k in range(3)])
    for _ in range(rounds):
        triangles = ConvexHull(points).simplices
        edges = np.unique(
            np.sort(np.vstack([triangles[:, [0, 1]], triangles[:, [1, 2]], triangles[:, [2, 0]]]), axis=1),
            axis=0,
        )
        points = np.vstack([points, points[edges].sum(axis=1)])
        points /= np.linalg.norm(points, axis=1, keepdims=True)
    points = points / np.linalg.norm(points, axis=1, keepdims=True)
    triangles = ConvexHull(points).simplices
    corner = points[triangles]
    inwards = (
        np.einsum("ij,ij->i", np.cross(corner[:, 1] - corner[:, 0], corner[:, 2] - corner[:, 0]), corner[:, 0]) < 0
    )
    triangles[inwards] = triangles[inwards][:, ::-1]
    return points, triangles


def test_sphere_mesh_has_the_spheres_eigenvalues() -> None:
    expected = np.repeat([0.0, 2.0, 6.0, 12.0], [1, 3, 5, 7])  # l (l + 1), 2 l + 1 times
    errors = []
    for rounds in (1, 2, 3):
        graph = gm.Graph.from_mesh(*icosphere(rounds))
        assert graph.masses is not None
        errors.append(np.abs(graph.spectrum(16).eigenvalues - expected).max())
        assert graph.masses.sum() == pytest.approx(4 * np.pi, rel=0.2)
    # Second order: each round halves the mesh size.
    assert errors[1] < errors[0] / 3
    assert errors[2] < errors[1] / 3
    assert errors[2] < 0.2


def test_cotangent_weights_of_a_square() -> None:
    square = gm.Graph.from_mesh([[0, 0], [1, 0], [1, 1], [0, 1]], [[0, 1, 2], [0, 2, 3]])
    weights = square.weights.toarray()
    assert weights[0, 1] == pytest.approx(0.5)  # cot 45° / 2
    assert weights[0, 2] == 0.0  # two right angles
    assert square.n_edges == 4


def test_flips_make_the_mesh_delaunay_without_changing_the_surface() -> None:
    kite = np.array([[0, 0], [4, 0], [2, 0.5], [2, -0.5]])
    flipped = gm.Graph.from_mesh(kite, [[0, 1, 2], [1, 0, 3]], obtuse="flip")
    by_hand = gm.Graph.from_mesh(kite, [[3, 2, 0], [2, 3, 1]])
    np.testing.assert_allclose(flipped.weights.toarray(), by_hand.weights.toarray(), atol=1e-12)
    assert flipped.masses is not None
    assert flipped.masses.sum() == pytest.approx(2.0)


def test_flips_of_a_planar_mesh_give_its_delaunay_triangulation() -> None:
    rng = np.random.default_rng(0)
    points, triangles = icosphere(2)
    points = points * [1.0, 1.0, 3.0]  # stretched: many obtuse angles
    points += 0.03 * rng.standard_normal(points.shape)
    with pytest.raises(GraphError, match="obtuse='flip'"):
        gm.Graph.from_mesh(points, triangles)
    graph = gm.Graph.from_mesh(points, triangles, obtuse="flip")
    assert (graph.weights.data > 0).all()
    # The Dirichlet energy of a constant is 0, and Euler's formula still gives the number of edges.
    assert len(triangles) * 3 // 2 >= graph.n_edges > len(triangles)
    assert graph.masses is not None
    assert np.abs(graph.laplacian() @ np.sqrt(graph.masses)).max() < 1e-10


def test_summary_names_what_matters() -> None:
    text = gm.make_roads(100, seed=1).summary()
    for word in ("nodes", "edges", "components", "neighbours", "weights", "lengths", "positions"):
        assert word in text
    assert "isolated" in gm.Graph.from_adjacency(sp.csr_array((1, 1))).summary()


def test_meshes_need_no_orientation_and_may_drop_their_boundary() -> None:
    points, triangles = icosphere(1)
    points = points * [1.0, 1.0, 2.5]
    expected = gm.Graph.from_mesh(points, triangles, obtuse="flip")
    shuffled = triangles.copy()
    shuffled[::3] = shuffled[::3][:, ::-1]
    np.testing.assert_allclose(
        gm.Graph.from_mesh(points, shuffled, obtuse="flip").weights.toarray(), expected.weights.toarray(), atol=1e-12
    )
    flat = np.random.default_rng(0).random((60, 2))
    simplices = Delaunay(flat).simplices
    with pytest.raises(GraphError, match="obtuse='clip'"):
        gm.Graph.from_mesh(flat, simplices, obtuse="flip")
    with pytest.warns(EdgeWarning, match="negative weights dropped"):
        graph = gm.Graph.from_mesh(flat, simplices, obtuse="clip")
    assert graph.has_lengths
    assert graph.masses is not None
    assert graph.masses.sum() == pytest.approx(ConvexHull(flat).volume)


def test_hanging_nodes_of_a_long_path() -> None:
    n = 20_001
    path = gm.Graph.from_edges(np.column_stack([np.arange(n - 1), np.arange(1, n)]))
    assert path.remove_hanging_nodes().nodes.tolist() == [n // 2]


def test_dense_spectra_have_a_limit() -> None:
    with pytest.raises(gm.errors.ResourceError, match="GiB"):
        gm.Graph.from_adjacency(sp.csr_array((200_000, 200_000))).spectrum()


def test_graphs_and_spectra_introduce_themselves() -> None:
    graph = gm.Graph.from_edges([("<b>a</b>", "b & c"), ("b & c", "d")], length=[1.0, 2.0])
    assert repr(graph.spectrum(2)) == "Spectrum(2 of 3 eigenpairs, from 0 to 0.951)"
    assert repr(graph.spectrum(normalized=True)) == "Spectrum(all 3 eigenpairs, from 0 to 2, normalized)"
    html = graph._repr_html_()
    assert "3 nodes, 2 edges" in html
    assert "&lt;b&gt;a&lt;/b&gt;" in html
    assert "b &amp; c" in html
    assert "<b>a</b>" not in html
    assert "http" not in html
    assert len(gm.make_roads(500, seed=0)._repr_html_()) < 2000
    ET.fromstring(html)  # every tag is closed
