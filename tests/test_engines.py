"""Spectral and Markov engine against the dense reference: marginal likelihood and its gradient."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import graphmatern as gm
from graphmatern.inference._markov_engine import MarkovEngine
from graphmatern.inference._observations import Batch, group_replicates
from graphmatern.inference._spectral import SpectralEngine
from reference import dense_kernel, dense_laplacian, matern_psi


def dense_likelihood(covariance: np.ndarray, batches: list[Batch], rho: float) -> float:
    """−log p with the coefficients of the design integrated out, in one big Gaussian; the constant included."""
    y, design, blocks = [], [], []
    for batch in batches:
        block = covariance[np.ix_(batch.nodes, batch.nodes)] + rho * np.diag(batch.noise)
        for column in batch.y.T:
            y.append(column)
            design.append(batch.design)
            blocks.append(block)
    values, h = np.concatenate(y), np.vstack(design)
    c: np.ndarray = sp.block_diag(blocks).toarray()
    inverse = np.linalg.inv(c)
    p = h.shape[1]
    total = np.linalg.slogdet(c)[1] + values @ inverse @ values + (len(values) - p) * np.log(2 * np.pi)
    if p:
        information, cross = h.T @ inverse @ h, h.T @ inverse @ values
        total += np.linalg.slogdet(information)[1] - cross @ np.linalg.solve(information, cross)
    return float(0.5 * total)


def graph_and_data(case: str, seed: int = 0) -> tuple[gm.Graph, list[Batch]]:
    rng = np.random.default_rng(seed)
    base = gm.make_roads(60, seed=1)
    n = base.n_nodes
    options: dict[str, Any] = {"masses": rng.uniform(0.5, 2.0, n)} if case == "masses" else {}
    edges = base.edges
    if case == "disconnected":
        edges = edges[(edges["source"] < n // 2) == (edges["target"] < n // 2)]
    graph = gm.Graph.from_edges(edges, length="length", nodes=base.nodes, **options)
    count = 70 if case == "many" else 25
    nodes = rng.integers(0, n, count) if case in {"repeats", "many"} else rng.permutation(n)[:count]
    if case == "all nodes":
        nodes = np.arange(n)
    y = rng.standard_normal((len(nodes), 3 if case in {"replicates", "holes"} else 1))
    if case == "holes":
        y[rng.random(y.shape) < 0.3] = np.nan
    noise = rng.uniform(0.5, 2.0, len(nodes)) if case == "unequal noise" else np.ones(len(nodes))
    design = np.ones((len(nodes), 1)) if case != "no mean" else np.zeros((len(nodes), 0))
    if case == "covariates":
        design = np.column_stack([design, rng.standard_normal((len(nodes), 2))])
    return graph, group_replicates(nodes, y, noise, design)


CASES = [
    "plain", "no mean", "masses", "repeats", "many", "all nodes", "unequal noise", "replicates", "holes", "covariates",
    "disconnected",
]  # fmt: skip


def numeric_gradient(function: Any, point: np.ndarray, step: float = 1e-5) -> np.ndarray:
    steps = step * np.eye(len(point))
    return np.array([(function(point + e) - function(point - e)) / (2 * step) for e in steps])


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize("nu", [1, 2, 3])
def test_engines_agree_with_the_dense_reference(case: str, normalized: bool, nu: int) -> None:
    graph, batches = graph_and_data(case)
    lengthscale, variance, rho = 2.0, 1.3, 0.2
    expected = dense_likelihood(
        dense_kernel(graph, matern_psi(nu, lengthscale), variance=variance, normalized=normalized), batches, rho
    )
    kernel = gm.Matern(nu, lengthscale, variance)
    spectral = SpectralEngine(graph, kernel, batches, normalized=normalized)
    value, gradient, in_log_noise = spectral.evaluate(spectral.position(), np.log(rho))
    assert value == pytest.approx(expected, rel=1e-9)

    def dense(position: np.ndarray) -> float:
        smooth, kappa, sigma = np.exp(position[:3])
        covariance = dense_kernel(graph, matern_psi(smooth, kappa), variance=sigma, normalized=normalized)
        return dense_likelihood(covariance, batches, float(np.exp(position[3])))

    point = np.log([nu, lengthscale, variance, rho])
    np.testing.assert_allclose([*gradient, in_log_noise], numeric_gradient(dense, point), rtol=1e-5, atol=1e-6)

    markov = MarkovEngine(graph, nu, batches, normalized=normalized)
    amplitude = variance / markov.average_variance(np.log(lengthscale))
    value, gradient = markov.evaluate(np.log(lengthscale), np.log(amplitude), np.log(rho))
    assert value == pytest.approx(expected, rel=1e-8)
    shifted = dense_laplacian(graph, normalized=normalized)
    root = np.ones(graph.n_nodes) if graph.masses is None else np.sqrt(graph.masses)

    def in_amplitude(position: np.ndarray) -> float:
        kappa, a, noise = np.exp(position)
        precision = np.linalg.matrix_power(shifted + 2 * nu / kappa**2 * np.eye(graph.n_nodes), nu) / a
        covariance = np.linalg.inv(root[:, None] * precision * root)
        return dense_likelihood(covariance, batches, float(noise))

    point = np.log([lengthscale, amplitude, rho])
    np.testing.assert_allclose(gradient, numeric_gradient(in_amplitude, point), rtol=1e-5, atol=1e-6)
    # The buffers are used again.
    again, _ = markov.evaluate(np.log(lengthscale), np.log(amplitude), np.log(rho))
    assert again == pytest.approx(value, rel=1e-13)


def test_truncated_spectrum_in_both_spaces() -> None:
    graph, batches = graph_and_data("covariates")
    kernel = gm.Matern(1.5, 2.0)
    for count in (5, 10, 30):
        engine = SpectralEngine(graph, kernel, batches, normalized=False, n_eigenpairs=count)
        covariance = engine.bound.matrix().detach().numpy()
        value, _, _ = engine.evaluate(engine.position(), np.log(0.1))
        assert value == pytest.approx(dense_likelihood(covariance, batches, 0.1), rel=1e-9)


@pytest.mark.parametrize("nu", [1, 2])
def test_slope_of_the_average_variance(nu: int) -> None:
    graph, batches = graph_and_data("masses")
    engine = MarkovEngine(graph, nu, batches, normalized=False)
    step = 1e-5
    after, before = (np.log(engine.average_variance(0.7 + h)) for h in (step, -step))
    assert engine.average_variance_slope(0.7) == pytest.approx((after - before) / (2 * step), rel=1e-6)


@pytest.mark.parametrize("count", [12, 40, None])
def test_the_information_of_the_spectral_engine_is_that_of_the_dense_covariance(count: int | None) -> None:
    """In function space, in feature space, and where every node is observed once."""
    graph = gm.make_roads(30, seed=2)
    n = graph.n_nodes
    rng = np.random.default_rng(0)
    nodes = np.arange(n) if count is None else rng.integers(0, n, count)
    noise = np.ones(n) if count is None else rng.uniform(0.5, 2.0, count)
    y = rng.standard_normal((len(nodes), 3))
    batch = Batch(nodes, y, noise, np.ones((len(nodes), 1)), np.arange(3))
    engine = SpectralEngine(graph, gm.Matern(1.5, 3.0, 0.7), [batch], normalized=False)
    position, log_noise = engine.position(), -1.2
    engine.evaluate(position, log_noise)
    found = engine.information()

    def covariance(theta: np.ndarray) -> np.ndarray:
        engine.move(theta[:-1])
        features = engine.bound.basis().numpy()[nodes]
        weights = engine.bound.weights().detach().numpy()
        return np.asarray((features * weights) @ features.T + np.diag(np.exp(theta[-1]) * noise))

    theta = np.append(position, log_noise)
    inverse = np.linalg.inv(covariance(theta))
    steps = 1e-5 * np.eye(len(theta))
    slopes = [inverse @ (covariance(theta + step) - covariance(theta - step)) / 2e-5 for step in steps]
    expected = np.array([[1.5 * np.sum(a * b.T) for b in slopes] for a in slopes])  # 3 replicates
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)
