"""Properties that must hold: limits, heat equation, symmetries, continuous kernels, extremes."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.linalg import expm
from scipy.special import gamma, kv

import graphmatern as gm
from reference import dense_kernel, dense_laplacian, matern_psi
from strategies import graphs


def matrix(kernel: gm.Kernel, graph: gm.Graph, **options: bool) -> np.ndarray:
    return kernel.on(graph, **options).matrix().detach().numpy()


@given(graphs())
def test_matern_tends_to_diffusion(graph: gm.Graph) -> None:
    eigenvalues = torch.as_tensor(graph.spectrum().eigenvalues.copy())
    limit = gm.Diffusion(0.9).psi(eigenvalues).detach()
    errors = []
    for nu in (1e2, 1e4, 1e6):
        kernel = gm.Matern(nu, 0.9)
        scaled = (kernel.log_psi(eigenvalues) + nu * torch.log(2 * kernel.nu / kernel.lengthscale**2)).exp()
        errors.append((scaled.detach() - limit).abs().max().item())
    # The error is of order 1 / ν; 1e-8 is what cancellation leaves of the factor (2ν/κ²)^ν at ν = 1e6.
    assert errors[1] <= 0.02 * errors[0] + 1e-9
    assert errors[2] <= 0.02 * errors[1] + 1e-8
    np.testing.assert_allclose(matrix(gm.Matern(1e8, 0.9), graph), matrix(gm.Diffusion(0.9), graph), atol=1e-5)


@given(graphs())
def test_random_walk_tends_to_diffusion(graph: gm.Graph) -> None:
    lengthscale = 1.4
    limit = matrix(gm.Diffusion(lengthscale), graph, normalized=True)
    errors = [
        np.abs(matrix(gm.RandomWalk(p, 1 - lengthscale**2 / (2 * p)), graph) - limit).max() for p in (20, 200, 2000)
    ]
    assert errors[1] <= 0.15 * errors[0] + 1e-12
    assert errors[2] <= 0.15 * errors[1] + 1e-12


@pytest.mark.parametrize(("steps", "laziness"), [(1, 0.5), (2, 0.0), (5, 0.7)])
def test_random_walk_diagonal_is_the_return_probability(steps: int, laziness: float) -> None:
    graph = gm.make_roads(40, seed=2)
    weights = graph.weights.toarray()
    step = laziness * np.eye(graph.n_nodes) + (1 - laziness) * weights / weights.sum(axis=1, keepdims=True)
    returns = np.diag(np.linalg.matrix_power(step, steps))
    diagonal = gm.RandomWalk(steps, laziness).on(graph).diag().detach().numpy()
    np.testing.assert_allclose(diagonal / diagonal.sum(), returns / returns.sum(), atol=1e-14)


@given(graphs(masses=True), st.floats(0.0, 5.0), st.booleans())
def test_heat_flow_is_the_matrix_exponential(graph: gm.Graph, time: float, normalized: bool) -> None:
    laplacian = dense_laplacian(graph, normalized=normalized)
    start = np.random.default_rng(0).standard_normal((graph.n_nodes, 2))
    expected = expm(-time * laplacian) @ start
    np.testing.assert_allclose(gm.heat_flow(graph, start, time, normalized=normalized), expected, atol=1e-11)
    np.testing.assert_allclose(
        gm.heat_flow(graph, start[:, 0], time, normalized=normalized), expected[:, 0], atol=1e-11
    )


@pytest.mark.parametrize("time", [1e-8, 0.1, 3.0, 1000.0])
def test_heat_flow_on_a_larger_graph(time: float) -> None:
    graph = gm.make_roads(600, seed=1)
    start = np.zeros(graph.n_nodes)
    start[7] = 1.0
    flowed = gm.heat_flow(graph, start, time)
    spectrum = graph.spectrum()
    expected = spectrum.eigenvectors @ (np.exp(-time * spectrum.eigenvalues) * (spectrum.eigenvectors.T @ start))
    np.testing.assert_allclose(flowed, expected, atol=1e-12)
    assert flowed.sum() == pytest.approx(1.0, abs=1e-11)  # heat is conserved


def test_heat_flow_solves_the_heat_equation() -> None:
    graph = gm.make_roads(200, seed=1)
    start = np.random.default_rng(0).standard_normal(graph.n_nodes)
    h, time = 1e-4, 0.3
    before, now, after = (gm.heat_flow(graph, start, t) for t in (time - h, time, time + h))
    # Central differences: the error is h² / 6 times the third derivative in time.
    np.testing.assert_allclose((after - before) / (2 * h), -(graph.laplacian() @ now), atol=1e-3)


def test_heat_flow_refuses_nonsense() -> None:
    graph = gm.make_roads(10)
    with pytest.raises(gm.errors.KernelError, match=r"`time` must be at least 0; received -1.0"):
        gm.heat_flow(graph, np.ones(graph.n_nodes), -1.0)
    with pytest.raises(gm.errors.TableError, match="`values` must hold finite numbers; received nan in row 1"):
        gm.heat_flow(graph, [1.0, float("nan")], 1.0)
    with pytest.raises(gm.errors.TableError, match=r"`values` must have shape"):
        gm.heat_flow(graph, [1.0, 2.0], 1.0)


@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize("kernel", [gm.Matern(1.5, 2.0), gm.Diffusion(1.0)])
def test_complete_graph_has_equal_variances(kernel: gm.Kernel, normalized: bool) -> None:
    diagonal = kernel.on(gm.Graph.from_networkx(nx.complete_graph(9)), normalized).diag().detach().numpy()
    np.testing.assert_allclose(diagonal, 1.0, rtol=1e-13)


@pytest.mark.parametrize("kernel", [gm.Matern(1.5, 2.0), gm.Matern(0.3, 9.0), gm.Diffusion(1.0)])
@pytest.mark.parametrize("leaves", [2, 3, 20])
def test_centre_of_a_star(kernel: gm.Kernel, leaves: int) -> None:
    star = gm.Graph.from_networkx(nx.star_graph(leaves))
    plain, normalised = (kernel.on(star, which).diag().detach().numpy() for which in (False, True))
    assert plain[0] < plain[1:].min()
    assert normalised[0] > normalised[1:].max()


def test_equal_degree_does_not_mean_equal_variance() -> None:
    path = gm.Graph.from_networkx(nx.path_graph(7))
    variance = gm.Matern(1.5, 3.0).on(path).diag().detach().numpy()
    assert abs(variance[1] - variance[3]) > 0.01  # both have two neighbours


def euclidean_matern(distance: np.ndarray, nu: float, lengthscale: float) -> np.ndarray:
    scaled = np.sqrt(2 * nu) * np.maximum(distance, 1e-12) / lengthscale
    return np.asarray(2 ** (1 - nu) / gamma(nu) * scaled**nu * kv(nu, scaled))


@pytest.mark.parametrize(("dimension", "side", "tolerance"), [(1, 401, 2e-3), (2, 41, 3e-2)])
def test_grid_tends_to_the_euclidean_kernel(dimension: int, side: int, tolerance: float) -> None:
    # In units of the spacing, far from the border; the error is of order 1 / lengthscale².
    nu, lengthscale = 1.5, 20.0 if dimension == 1 else 4.0
    grid = gm.Graph.from_networkx(nx.grid_graph([side] * dimension))
    smoothness = nu + dimension / 2
    kernel = gm.Matern(smoothness, lengthscale * np.sqrt(smoothness / nu))
    middle = side // 2
    centre = middle if dimension == 1 else (middle, middle)
    line = [middle + k if dimension == 1 else (middle + k, middle) for k in range(13)]
    column = kernel.on(grid).matrix([centre], line).detach().numpy()[0]
    expected = euclidean_matern(np.arange(13.0), nu, lengthscale)
    np.testing.assert_allclose(column / column[0], expected, atol=tolerance)


def test_grid_converges_at_second_order() -> None:
    errors = []
    for refinement in (1, 2, 4):
        grid = gm.Graph.from_networkx(nx.path_graph(160 * refinement + 1))
        nu, lengthscale = 1.5, 4.0 * refinement
        line = 80 * refinement + refinement * np.arange(13)
        column = gm.Matern(2.0, lengthscale * np.sqrt(2.0 / nu)).on(grid).matrix([80 * refinement], line)
        found = column.detach().numpy()[0]
        errors.append(np.abs(found / found[0] - euclidean_matern(np.arange(13.0), nu, 4.0)).max())
    assert np.log2(errors[0] / errors[1]) > 1.8
    assert np.log2(errors[1] / errors[2]) > 1.8


@pytest.mark.parametrize("weights", ["unit", "gaussian"])
def test_neighbours_on_a_circle_tend_to_its_kernel(weights: str) -> None:
    nu, lengthscale, n = 1.5, 0.5, 400
    angle = 2 * np.pi * np.arange(n) / n
    points = np.column_stack([np.cos(angle), np.sin(angle)])
    graph = gm.Graph.from_points(points, n_neighbors=6, weights=weights)  # type: ignore[arg-type]
    # Δ ≈ −c d²/dθ² with c half the second moment of the weights around a node.
    row = graph.weights[[0]].toarray()[0]
    offset = np.minimum(angle, 2 * np.pi - angle)
    c = 0.5 * (row * offset**2).sum()
    smoothness = nu + 0.5
    kernel = gm.Matern(smoothness, lengthscale * np.sqrt(smoothness / nu) / np.sqrt(c))
    column = kernel.on(graph).matrix([0], graph.nodes).detach().numpy()[0]
    frequency = np.arange(1, 2000)
    psi = (2 * nu / lengthscale**2 + np.concatenate([[0], frequency]) ** 2.0) ** -smoothness
    exact = psi[0] + 2 * np.cos(np.outer(angle, frequency)) @ psi[1:]
    np.testing.assert_allclose(column / column[0], exact / exact[0], atol=5e-3)


def test_smoothness_on_graph_and_manifold() -> None:
    """The paper's figure: ν_g = 3/2, κ_g = √3 κ on the graph is ν = 1/2, κ on a surface."""
    nu_graph, nu, lengthscale = 1.5, 0.5, 1.3
    assert 2 * nu_graph / (np.sqrt(3) * lengthscale) ** 2 == pytest.approx(2 * nu / lengthscale**2)


@pytest.mark.parametrize("nu", [0.1, 1.0, 200.0])
@pytest.mark.parametrize("lengthscale", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6, None])
def test_extreme_parameters_stay_finite(nu: float, lengthscale: float, scale: float | None) -> None:
    rng = np.random.default_rng(0)
    base = gm.make_roads(60, seed=0)
    weights = 10.0 ** rng.uniform(-6, 6, len(base.edges)) if scale is None else scale * base.edges["weight"]
    graph = gm.Graph.from_edges(base.edges, weight=np.asarray(weights))
    kernels = [gm.Matern(nu, lengthscale), gm.Diffusion(lengthscale)]
    for kernel in kernels:
        for normalized in (False, True):
            found = kernel.on(graph, normalized).matrix()
            assert torch.isfinite(found).all()
            kernel.zero_grad()
            torch.autograd.backward(found.square().mean())
            for parameter in kernel.parameters():
                assert parameter.grad is not None
                assert torch.isfinite(parameter.grad).all()
            assert found.detach().diagonal().mean().item() == pytest.approx(1.0, rel=1e-10)
    if scale is not None:
        # With weights of one magnitude eigenvalues have relative accuracy about 1e-15 λ_max / λ_2 =
        # 1e-12, and log Ψ has ν times that as absolute accuracy.
        expected = dense_kernel(graph, matern_psi(nu, lengthscale))
        found_matrix = matrix(gm.Matern(nu, lengthscale), graph)
        np.testing.assert_allclose(found_matrix, expected, atol=1e-9 * max(1.0, nu) * np.abs(expected).max())


def test_one_node_and_isolated_nodes() -> None:
    single = gm.Graph.from_adjacency([[0.0]])
    for kernel in (gm.Matern(), gm.Diffusion(), gm.RandomWalk(), gm.InverseCosine()):
        assert matrix(kernel, single).item() == pytest.approx(1.0, rel=1e-14)
    pair = gm.Graph.from_edges([("a", "b")], nodes=["a", "b", "alone"])
    for kernel in (gm.Matern(), gm.Diffusion(), gm.RandomWalk(), gm.InverseCosine()):
        covariance = matrix(kernel, pair)
        assert np.abs(covariance[2, :2]).max() == 0.0
        assert covariance[2, 2] > covariance[0, 0]  # nobody to share with


@pytest.mark.parametrize("lengthscale", [1e-100, 1e-50, 1e50, 1e100])
def test_limits_of_the_parameters_stay_finite(lengthscale: float) -> None:
    graph = gm.Graph.from_edges([("a", "b"), ("b", "c")])
    white, constant = np.eye(3), np.ones((3, 3))
    for kernel in (gm.Matern(1.5, lengthscale), gm.Matern(100.0, lengthscale), gm.Diffusion(lengthscale)):
        found = kernel.on(graph).matrix()
        np.testing.assert_allclose(found.detach(), white if lengthscale < 1 else constant, atol=1e-12)
        torch.autograd.backward(found.square().sum())
        assert all(torch.isfinite(p.grad).all() for p in kernel.parameters() if p.grad is not None)
