"""Predictions of processes given by eigenpairs, through prior covariances and through the directions that data see."""

from __future__ import annotations

import numpy as np
import pytest

import graphmatern as gm
from graphmatern.inference.dense import STRONG_SITE
from graphmatern.inference.spectral.predictive import SeenDirections, SpectralPredictive


@pytest.mark.parametrize(
    ("lowest", "highest"), [(0.0, 1e4), (0.0, 1e7), (-0.1, 10.0)], ids=["moderate", "strong", "negative"]
)
def test_dense_reference(lowest: float, highest: float) -> None:
    """Means and variances at other nodes are those of the dense formulas, whatever the sites."""
    rng = np.random.default_rng(0)
    spectrum = gm.make_roads(120, seed=3).spectrum()
    weights = (0.3 + spectrum.eigenvalues) ** -1.5
    k = spectrum.basis * weights @ spectrum.basis.T
    observed, nodes = rng.choice(len(k), 40, replace=False), np.arange(len(k))
    precision = rng.uniform(lowest, highest, 40)
    precision[0] = lowest
    potentials = precision[:, None] * rng.standard_normal((40, 2))
    assert (highest * k.diagonal().max() < STRONG_SITE) == (highest < 1e7)

    seen = SeenDirections(spectrum.basis, weights, observed)
    ours = SpectralPredictive(seen, precision)
    inner = np.eye(40) + k[np.ix_(observed, observed)] * precision
    expected = k[:, observed] @ np.linalg.solve(inner.T, potentials)
    np.testing.assert_allclose(ours.means(nodes, potentials), expected, rtol=1e-8, atol=1e-8)
    covariance = k - k[:, observed] * precision @ np.linalg.solve(inner, k[observed])
    np.testing.assert_allclose(ours.variances(nodes), covariance.diagonal(), rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(ours.variances(observed), covariance.diagonal()[observed], rtol=1e-8, atol=1e-9)


def test_directions_are_not_sought_for_moderate_sites() -> None:
    """They take longer than all the rest."""
    spectrum = gm.make_roads(120, seed=3).spectrum()
    seen = SeenDirections(spectrum.basis, np.ones(spectrum.n_eigenpairs), np.arange(10))
    ours = SpectralPredictive(seen, np.ones(10))
    ours.means(np.arange(50), np.ones((10, 1)))
    ours.variances(np.arange(50))
    assert "_split" not in vars(seen)
    SpectralPredictive(seen, np.full(10, 1e6)).variances(np.arange(50))
    assert "_split" in vars(seen)
