"""Densities on a grid, and what is added to the bound before they are weighed, against integrals that are known."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.integrate import quad

import graphmatern as gm
from graphmatern.inference import Observations, Problem, Search
from graphmatern.inference.learning.explore import moments_of
from graphmatern.inference.learning.grid import explore_grid
from graphmatern.inference.learning.parameters import Coordinate
from graphmatern.inference.sites.objective import SiteObjective
from graphmatern.inference.spectral.engine import SpectralEngine
from graphmatern.likelihoods import Bernoulli, NegativeBinomial, Poisson


@pytest.mark.parametrize("d", [1, 2, 3])
def test_a_normal_density_is_exact(d: int) -> None:
    root = np.eye(d) + 0.3 * np.random.default_rng(0).standard_normal((d, d))
    covariance = root @ root.T
    density = stats.multivariate_normal(np.arange(d) / 4.0, covariance)
    coordinates = [Coordinate(f"x{k}", -30.0, 30.0) for k in range(d)]
    # Neither mode nor curvature need be exact.
    found = explore_grid(
        lambda x: float(density.logpdf(x)) + 2.0,
        np.arange(d) / 4.0 + 0.1,
        1.2 * np.asarray(np.linalg.inv(covariance), np.float64),
        coordinates,
    )
    mean, spread = moments_of(found.points, found.weights)
    assert found.log_integral == pytest.approx(2.0, abs=0.03)
    np.testing.assert_allclose(mean, np.arange(d) / 4.0, atol=0.02)
    np.testing.assert_allclose(spread, covariance, atol=0.04 * covariance.max())
    assert len(found.points) < {1: 20, 2: 70, 3: 300}[d]


def test_a_long_tail_is_followed_to_its_bound() -> None:
    """x = logit of a share whose density is Beta(30, 1/2): its tail falls by half a nat per unit."""

    def log_density(x: np.ndarray) -> float:
        return float(30.0 * -np.logaddexp(0.0, -x[0]) + 0.5 * -np.logaddexp(0.0, x[0]))

    mode = np.array([np.log(60.0)])
    share = 60.0 / 61.0
    found = explore_grid(log_density, mode, np.array([[30.5 * share * (1.0 - share)]]), [Coordinate("x", -14.0, 14.0)])
    shares = 1.0 / (1.0 + np.exp(-found.points[:, 0]))
    assert found.weights @ shares == pytest.approx(30.0 / 30.5, abs=2e-3)
    assert found.points.max() <= 14.0


@pytest.mark.parametrize(
    ("likelihood", "y"), [(Poisson(), 2.0), (Poisson(), 0.0), (NegativeBinomial(0.5), 3.0), (Bernoulli("logit"), 1.0)]
)
def test_the_evidence_of_one_observation_is_exact(likelihood: gm.likelihoods.Likelihood, y: float) -> None:
    graph = gm.Graph.from_edges([("a", "b")])
    observations = Observations(np.array([0]), np.array([[y]]), np.zeros((2, 0)), offset=np.array([0.4]))
    kernel = gm.Leroux(1.7, 0.0)
    problem = Problem(graph, kernel, likelihood, observations, search=Search(None), effect_precision=1.0)
    objective = SiteObjective(SpectralEngine(problem, SiteObjective.groups(problem)), problem)
    found = -objective.value(np.concatenate([SpectralEngine(problem, []).start, objective.start]))

    def integrand(f: float) -> float:
        value = likelihood.log_prob(torch.tensor([y]), torch.tensor([[f + 0.4]], dtype=torch.float64)).item()
        return float(np.exp(value) * stats.norm.pdf(f, scale=np.sqrt(1.7)))

    assert found == pytest.approx(np.log(quad(integrand, -12.0, 12.0)[0]), abs=1e-6)
