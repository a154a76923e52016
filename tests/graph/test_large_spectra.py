"""The smallest eigenpairs of larger graphs, against dense decompositions and closed forms."""

from __future__ import annotations

from typing import TYPE_CHECKING

import networkx as nx
import numpy as np
import pytest
import scipy.linalg as la
import scipy.sparse as sp

import graphmatern as gm
from graphmatern.graph import _eigen, _filtered, _spectrum
from graphmatern.graph._krylov import BlockKrylov, in_unit
from graphmatern.sparse import ChebyshevFilter

if TYPE_CHECKING:
    from collections.abc import Callable


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


@pytest.mark.usefixtures("everything_is_large", "_way")
def test_multiplicities_above_the_block_size() -> None:
    """A star of n leaves has the eigenvalue 1 n − 1 times; a Krylov space of one block sees 16 of them."""
    found = compare(gm.Graph.from_networkx(nx.star_graph(300)), 60)
    np.testing.assert_allclose(found.eigenvalues[1:], 1.0, atol=1e-10)
    # Twenty equal parts on a ring: each eigenvalue of a part comes in a cluster.
    ring = nx.disjoint_union_all([nx.path_graph(20) for _ in range(20)])
    ring.add_edges_from([(20 * i, (20 * i + 20) % 400) for i in range(20)], weight=1e-6)
    nx.set_edge_attributes(ring, {edge: 1.0 for edge in ring.edges if "weight" not in ring.edges[edge]}, "weight")
    compare(gm.Graph.from_networkx(ring), 70)


@pytest.mark.usefixtures("everything_is_large", "_way")
def test_components_are_merged() -> None:
    parts = [gm.make_roads(200, seed=seed).weights for seed in (0, 1)]
    graph = gm.Graph.from_adjacency(sp.block_diag([*parts, np.zeros((3, 3))]))
    assert graph.n_components == 5
    compare(graph, 45)


@pytest.mark.usefixtures("everything_is_large", "_way")
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


@pytest.mark.usefixtures("everything_is_large", "_way")
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


def hubs(n: int, seed: int = 0) -> gm.Graph:
    """A power-law graph with unequal weights."""
    rng = np.random.default_rng(seed)
    shape = nx.barabasi_albert_graph(n, 5, seed=seed)
    edges = np.array(shape.edges)
    return gm.Graph.from_edges(edges, weight=rng.uniform(0.5, 2.0, len(edges)))


def neighbours(n: int) -> gm.Graph:
    return gm.Graph.from_points(np.random.default_rng(1).standard_normal((n, 20)), 8)


def communities(n: int) -> gm.Graph:
    """Thirty dense blocks, loosely joined: as many eigenvalues far below all others."""
    sizes, share = [n // 30] * 30, 0.4 * np.eye(30) + 0.003
    return gm.Graph.from_networkx(nx.stochastic_block_model(sizes, share.tolist(), seed=0))


@pytest.mark.usefixtures("everything_is_large")
@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize("make", [hubs, neighbours, communities])
def test_graphs_that_fill_in(
    make: Callable[[int], gm.Graph], normalized: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_eigen, "_factorised_seconds", lambda *_: np.inf)
    monkeypatch.setattr(_filtered, "subspace_iteration", lambda *_: pytest.fail("the Krylov space was not enough"))
    compare(make(900), 100, normalized=normalized)


@pytest.mark.usefixtures("everything_is_large")
def test_filters_with_masses_components_and_isolated_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_eigen, "_factorised_seconds", lambda *_: np.inf)
    weights = sp.block_diag([hubs(400).weights, hubs(300, seed=1).weights, np.zeros((4, 4))])
    masses = np.random.default_rng(0).uniform(0.3, 3.0, 704)
    graph = gm.Graph.from_adjacency(weights, masses=masses)
    assert graph.n_components == 6
    compare(graph, 50)
    compare(graph, 50, normalized=True)


def way(graph: gm.Graph, count: int, *, normalized: bool) -> str:
    scaled, _ = in_unit(graph.laplacian(normalized))
    root = np.sqrt(graph.degrees) if normalized else np.ones(graph.n_nodes)
    with ChebyshevFilter(scaled) as filtered:
        chosen = _eigen._choose_way(scaled, filtered, (root / np.linalg.norm(root))[:, None], count)
    return "factorised" if chosen.sketch is None else "filtered"


def test_the_cheaper_way_is_chosen_beforehand() -> None:
    """Roads have factors with few entries; graphs with hubs fill in."""
    for normalized in (False, True):
        assert way(gm.make_roads(5_000, seed=0), 100, normalized=normalized) == "factorised"
        assert way(hubs(5_000), 100, normalized=normalized) == "filtered"
    seconds, memory = hubs(5_000).spectrum_cost(100, normalized=True)
    assert 0.0 < seconds < np.inf
    assert memory >= 8 * 5_000 * 100
    known = gm.make_roads(2_000, seed=0)
    known.spectrum(10)
    assert known.spectrum_cost(10)[0] == 0.0  # it is there already


@pytest.mark.parametrize("shape", ["hubs", "path"])
def test_the_sketch_of_a_spectrum(shape: str) -> None:
    """The edge lies above the wanted eigenvalues, not far above, and the top above all."""
    graph = hubs(1_200) if shape == "hubs" else gm.Graph.from_networkx(nx.path_graph(1_200))
    scaled, unit = in_unit(graph.laplacian())
    values = la.eigvalsh(graph.laplacian().toarray()) / unit
    null = np.full((1_200, 1), 1_200**-0.5)
    with ChebyshevFilter(scaled) as filtered:
        sketch = _filtered.outline(filtered, null, 100, np.random.default_rng(0))
    assert values[100] < sketch.edge < values[300]
    assert values[-1] < sketch.top
    assert sketch.bottom == pytest.approx(values[1], rel=0.2, abs=1e-3)


@pytest.mark.usefixtures("everything_is_large")
def test_missed_eigenvectors_are_noticed() -> None:
    graph = hubs(400)
    values, vectors = la.eigh(graph.laplacian().toarray())
    operator = (vectors * np.exp(-values)) @ vectors.T
    krylov = BlockKrylov(lambda block: operator @ block, np.zeros((400, 0)), 20, np.random.default_rng(0))
    every, least = vectors[:, :20], float(np.exp(-values[19]))
    assert not krylov.probe(every, least, steps=6)
    assert krylov.probe(np.delete(every, 7, axis=1), least, steps=6)
