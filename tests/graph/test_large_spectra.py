"""The smallest eigenpairs of larger graphs, against dense decompositions and closed forms."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
import scipy.linalg as la
import scipy.sparse as sp

import graphmatern as gm
from graphmatern.graph import _eigen, _spectrum


@pytest.fixture
def everything_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let small components take the way of large ones."""
    monkeypatch.setattr(_spectrum, "_SMALL", 30)


@pytest.fixture(params=["factorised", "filtered"])
def _way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "filtered":
        monkeypatch.setattr(_eigen, "_factorised_seconds", lambda *_: np.inf)


def compare(graph: gm.Graph, count: int, *, normalized: bool = False) -> gm.Spectrum:
    """Compare with the dense decomposition: values, residuals, orthogonality, the invariant subspace."""
    found = graph.spectrum(count, normalized)
    laplacian = graph.laplacian(normalized).toarray()
    expected = la.eigvalsh(laplacian)[:count]
    scale = np.abs(laplacian).sum(axis=1).max()
    assert not found.is_complete
    np.testing.assert_allclose(found.eigenvalues, expected, atol=1e-9 * scale)
    assert found.residuals.max() <= 1e-9 * scale
    np.testing.assert_allclose(found.eigenvectors.T @ found.eigenvectors, np.eye(count), atol=1e-11)
    assert (found.eigenvalues == 0).sum() == min(graph.n_components, count)
    return found


@pytest.mark.usefixtures("everything_is_large", "_way")
@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize("count", [1, 2, 40])
def test_roads(normalized: bool, count: int) -> None:
    compare(gm.make_roads(500, seed=1), count, normalized=normalized)


@pytest.mark.usefixtures("everything_is_large", "_way")
@pytest.mark.parametrize(
    "shape",
    [nx.path_graph(400), nx.grid_graph([20, 20]), nx.balanced_tree(3, 5), nx.barabasi_albert_graph(300, 2, seed=0)],
    ids=["path", "grid", "tree", "scale-free"],
)
def test_other_shapes(shape: nx.Graph) -> None:  # type: ignore[type-arg]
    compare(gm.Graph.from_networkx(shape), 50)


@pytest.mark.usefixtures("everything_is_large")
def test_multiplicities_above_the_block_size() -> None:
    """A star of n leaves has the eigenvalue 1 n − 1 times; a Krylov space of one block sees 16 of them."""
    found = compare(gm.Graph.from_networkx(nx.star_graph(300)), 60)
    np.testing.assert_allclose(found.eigenvalues[1:], 1.0, atol=1e-10)
    # Twenty equal parts on a ring: each eigenvalue of a part comes in a cluster.
    ring = nx.disjoint_union_all([nx.path_graph(20) for _ in range(20)])
    ring.add_edges_from([(20 * i, (20 * i + 20) % 400) for i in range(20)], weight=1e-6)
    nx.set_edge_attributes(ring, {edge: 1.0 for edge in ring.edges if "weight" not in ring.edges[edge]}, "weight")
    compare(gm.Graph.from_networkx(ring), 70)


@pytest.mark.usefixtures("everything_is_large")
def test_components_are_merged() -> None:
    parts = [gm.make_roads(200, seed=seed).weights for seed in (0, 1)]
    graph = gm.Graph.from_adjacency(sp.block_diag([*parts, np.zeros((3, 3))]))
    assert graph.n_components == 5
    compare(graph, 45)


@pytest.mark.usefixtures("everything_is_large")
def test_masses_and_wide_weights() -> None:
    base = gm.make_roads(400, seed=2)
    rng = np.random.default_rng(0)
    weighted = gm.Graph.from_edges(
        base.edges, weight=10.0 ** rng.uniform(-2, 2, len(base.edges)), masses=rng.uniform(0.5, 2.0, base.n_nodes)
    )
    compare(weighted, 30)


def test_a_large_graph_by_its_closed_form() -> None:
    n, count = 20_000, 30
    path = gm.Graph.from_edges(np.column_stack([np.arange(n - 1), np.arange(1, n)]))
    expected = 4.0 * np.sin(0.5 * np.pi * np.arange(count) / n) ** 2
    found = path.spectrum(count)
    np.testing.assert_allclose(found.eigenvalues, expected, atol=1e-12)
    assert path.spectrum(count) is found  # kept with the graph
    assert gm.Matern().on(path, n_eigenpairs=count).diag().mean().item() == pytest.approx(1.0)


@pytest.mark.usefixtures("everything_is_large")
@pytest.mark.parametrize("count", [64, 100, 127])
def test_large_eigenspaces(count: int) -> None:
    """A hypercube has the eigenvalues 2k, binomial(9, k) times: Krylov spaces run out of directions."""
    compare(gm.Graph.from_networkx(nx.convert_node_labels_to_integers(nx.hypercube_graph(9))), count)


@pytest.mark.usefixtures("everything_is_large", "_way")
@pytest.mark.parametrize("weight", [1e-200, 1e-80, 1e80, 1e200])
def test_the_unit_of_the_weights_does_not_matter(weight: float) -> None:
    grid = nx.convert_node_labels_to_integers(nx.grid_graph([20, 20]))
    expected = gm.Graph.from_networkx(grid).spectrum(30).eigenvalues
    nx.set_edge_attributes(grid, dict.fromkeys(grid.edges, weight), "weight")
    found = gm.Graph.from_networkx(grid).spectrum(30)
    np.testing.assert_allclose(found.eigenvalues / weight, expected, atol=1e-9)
