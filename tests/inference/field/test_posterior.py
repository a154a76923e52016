"""The field given the observed cells: draws."""

from __future__ import annotations

import numpy as np
import pytest

import graphmatern as gm
from field_reference import make_grid, make_objective, make_posterior


@pytest.mark.parametrize(
    ("method", "missing"), [("kronecker", 0.0), ("dense", 0.3), ("state-space", 0.3), ("iterative", 0.3)]
)
def test_samples_have_the_posteriors_moments(method: str, missing: float) -> None:
    graph = gm.make_roads(12, seed=0)
    objective = make_objective(graph, make_grid(graph, 4, 1.0, missing=missing, seed=1), method, tolerance=1e-8)
    posterior = make_posterior(objective)
    new_times = np.array([objective.grid.times[1], 11.0])
    nodes = np.array([0, 3])
    n = 2000
    draws = posterior.sample(n, new_times, nodes, np.random.default_rng(0)).reshape(n, 4)
    pairs = (np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1]))
    mean = posterior.mean(posterior.cells(new_times, nodes)).ravel()
    cov = posterior.covariance(new_times, nodes, pairs)
    z_mean = (draws.mean(axis=0) - mean) / np.sqrt(np.diag(cov) / n)
    error = np.sqrt((np.outer(np.diag(cov), np.diag(cov)) + cov**2) / n)
    z_cov = (np.cov(draws.T, bias=True) - cov) / error
    assert np.abs(z_mean).max() < 4.5
    assert np.abs(z_cov).max() < 4.5
