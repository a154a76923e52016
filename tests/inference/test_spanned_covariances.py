"""Covariances from a space of weights: as exact as asked, whatever the weights, and computed afresh where that ends."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import graphmatern as gm
from graphmatern.inference.spectral import covariances
from graphmatern.inference.spectral.covariances import SpannedCovariances


def features_of(seed: int, n: int, n_features: int) -> np.ndarray:
    """Rows of an orthonormal matrix, as eigenvectors have them."""
    orthonormal, _ = np.linalg.qr(np.random.default_rng(seed).standard_normal((n_features, n_features)))
    return np.asfortranarray(orthonormal[:n])


def matern_weights(eigenvalues: np.ndarray, nu: float, lengthscale: float) -> np.ndarray:
    shape = (1.0 + eigenvalues * lengthscale**2 / (2.0 * nu)) ** -nu
    return np.asarray(shape / shape.mean())


@given(
    seed=st.integers(0, 20),
    n=st.integers(1, 30),
    noise=st.sampled_from([1e-6, 1e-2, 1.0, np.inf]),
    parameters=st.lists(st.tuples(st.floats(0.2, 20.0), st.floats(0.1, 100.0)), min_size=1, max_size=30),
)
def test_sums_are_the_covariances(seed: int, n: int, noise: float, parameters: list[tuple[float, float]]) -> None:
    features = features_of(seed, n, 160)
    eigenvalues = np.linspace(0.0, 5.0, 160)
    spanned = SpannedCovariances(features)
    for nu, lengthscale in parameters:
        weights = matern_weights(eigenvalues, nu, lengthscale)
        found = np.tril(spanned.lower(weights, noise, 1e-8))
        expected = np.tril((features * weights) @ features.T)
        allowed = 1e-8 * min(noise, float(np.trace(expected)) / n) + 1e-13 * weights.max()
        np.testing.assert_allclose(found, expected, rtol=0.0, atol=allowed)


def test_most_covariances_of_a_posterior_are_short_sums(monkeypatch: pytest.MonkeyPatch) -> None:
    computed: list[int] = []
    products = covariances.weighted_products

    def counted(features: np.ndarray, weights: np.ndarray) -> np.ndarray:
        computed.append(len(weights))
        return products(features, weights)

    monkeypatch.setattr(covariances, "weighted_products", counted)
    rng = np.random.default_rng(0)
    spanned = SpannedCovariances(features_of(0, 20, 800))
    for _ in range(400):
        nu, lengthscale = np.exp(rng.normal([0.5, 1.0], 0.3))
        spanned.lower(matern_weights(np.linspace(0.0, 5.0, 800), nu, lengthscale), 0.1, 1e-8)
    assert 0 < len(computed) <= 80  # two for each matrix that is kept


def test_what_no_space_holds_is_computed() -> None:
    features = features_of(1, 12, 64)  # room for eight matrices
    spanned = SpannedCovariances(features)
    rng = np.random.default_rng(2)
    for _ in range(30):
        weights = rng.random(64)
        expected = np.tril((features * weights) @ features.T)
        np.testing.assert_allclose(np.tril(spanned.lower(weights, 1.0, 1e-8)), expected, rtol=0.0, atol=1e-12)


def test_weights_of_nothing() -> None:
    assert not np.tril(SpannedCovariances(features_of(0, 3, 16)).lower(np.zeros(16), 1.0, 1e-8)).any()


@pytest.mark.parametrize("likelihood", ["gaussian", "poisson"])
def test_integrated_evidences_do_not_depend_on_it(
    likelihood: Literal["gaussian", "poisson"], monkeypatch: pytest.MonkeyPatch
) -> None:
    city = gm.make_city(150, seed=0)
    y = np.random.default_rng(0).poisson(3.0, 20)

    def evidence() -> float:
        model = gm.GraphGPRegressor(city, likelihood=likelihood, engine="spectral", integrate=True, verbose=False)
        return model.fit(city.nodes[::5][:20], y).log_evidence_

    spanned = evidence()
    monkeypatch.setattr(covariances, "_MOST", 0)
    assert spanned == pytest.approx(evidence(), abs=1e-7)
