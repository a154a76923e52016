"""Expectation propagation: fixed points against a sequential one with moments on a grid, and the truth."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy import stats
from scipy.stats import multivariate_normal

import graphmatern as gm
from contenders import Contender, cases
from dense_process import exact
from graphmatern.errors import NumericalWarning
from graphmatern.inference import Observations, Problem, Search, learn
from graphmatern.inference.sites.marginals import LatentField, Sites
from graphmatern.inference.sites.matching import MomentMatching, match_moments
from graphmatern.inference.sites.updates import SiteLikelihood, fit_sites
from graphmatern.inference.spectral.engine import SpectralEngine
from graphmatern.likelihoods import Gaussian, Likelihood, StudentT
from site_cases import BY_SITES, GRAPH, Y, joined, objective_of, observe

Floats = NDArray[np.float64]

UNRESTRICTED = [one for one in BY_SITES if one.prior is exact and not getattr(one.make, "restricts", False)]
CITY = gm.make_roads(33, seed=4)


def tilted(y: float, mean: float, variance: float, likelihood: StudentT, power: float) -> tuple[float, float, float]:
    """Mass, mean and variance of a power of the likelihood times a Gaussian, on a fine grid."""
    width = np.sqrt(variance)
    f = np.linspace(mean - 12 * width, mean + 12 * width, 20_001)
    scale, df = likelihood.scale.item(), likelihood.df.item()
    density = stats.t.pdf(y - f, df, 0.0, scale) ** power * np.exp(-0.5 * ((f - mean) / width) ** 2)
    mass, first, second = (float(density @ f**k) for k in range(3))
    average = first / mass
    return mass * (f[1] - f[0]) / width / np.sqrt(2.0 * np.pi), average, second / mass - average**2


@cache
def one_by_one(power: float) -> tuple[float, Floats, Floats]:
    """Evidence, means and variances by the textbook's algorithm: one site at a time, dense matrices."""
    likelihood, values = Y["student_t"]
    assert isinstance(likelihood, StudentT)
    contender = UNRESTRICTED[0]
    covariance, _, _, offset = joined(contender.prior(GRAPH, contender.kernel, False), observe(values))
    y = np.array(values).ravel()
    y = y[~np.isnan(y)]
    n = len(y)
    eta, potential, evidence = np.zeros(n), np.zeros(n), np.zeros(n)
    for _ in range(150):
        for i in range(n):
            s = np.linalg.solve(np.eye(n) + covariance * eta, covariance)
            v, m = s[i, i], (s @ potential)[i]
            v_out = 1.0 / (1.0 / v - power * eta[i])
            m_out = v_out * (m / v - power * potential[i])
            mass, mean, variance = tilted(y[i], m_out + offset[i], v_out, likelihood, power)
            eta[i] = (1.0 / variance - 1.0 / v_out) / power
            potential[i] = ((mean - offset[i]) / variance - m_out / v_out) / power
            evidence[i] = np.log(mass) - 0.5 * np.log(variance / v_out)
            evidence[i] -= 0.5 * (mean - offset[i]) ** 2 / variance - 0.5 * m_out**2 / v_out
    s = np.linalg.solve(np.eye(n) + covariance * eta, covariance)
    means = s @ potential
    of_sites = 0.5 * potential @ means - 0.5 * np.linalg.slogdet(np.eye(n) + covariance * eta)[1]
    return float(of_sites + evidence.sum() / power), means, np.diag(s)


@pytest.mark.parametrize("contender", [case.values[0] for case in cases(UNRESTRICTED, ["student_t"])], ids=str)
def test_every_engine_finds_the_fixed_point(contender: Contender) -> None:
    """Several replicates, a hole, offsets, outliers, and effects that the replicates share."""
    objective, theta = objective_of(contender, "student_t")
    objective.finish()
    value, _ = objective(theta)
    evidence, *_ = one_by_one(MomentMatching().power)
    _, mean, variance = one_by_one(1.0)  # of which predictions are made
    assert objective.settled
    assert -value == pytest.approx(evidence, abs=1e-7)
    posterior = objective.posterior(theta)
    for part in posterior.parts:
        row = int(part.group.columns[0])
        rows = (slice(0, 8), slice(8, 15))[row]
        found = [one[row] for one in posterior.at_observations(part)]
        np.testing.assert_allclose(found, [mean[rows], variance[rows]], atol=1e-6)


def on_city(likelihood: Likelihood, nodes: Any, y: Any, kernel: gm.Kernel) -> tuple[LatentField, SiteLikelihood]:
    y = np.asarray(y, dtype=np.float64)
    observations = Observations(np.asarray(nodes), y[:, None], np.zeros((CITY.n_nodes, 0)))
    engine = SpectralEngine(Problem(CITY, kernel, StudentT(), observations), observations.replicates)
    latent = LatentField(engine.at(engine.start), observations.replicates, 0.0)
    return latent, SiteLikelihood(torch.from_numpy(y), likelihood, np.zeros(len(y)))


@pytest.mark.parametrize("power", [1.0, 0.5])
def test_gaussian_noise_is_exact(power: float) -> None:
    """Its sites are known, whatever the power and wherever one begins."""
    rng, kernel = np.random.default_rng(0), gm.Matern(2, 3.0, 1.7)
    nodes, y = rng.integers(0, CITY.n_nodes, 12), rng.standard_normal(12)
    latent, observed = on_city(Gaussian(0.3), nodes, y, kernel)
    found = match_moments(latent, observed, Sites(np.ones((1, 12)), np.full((1, 12), 0.1)), power=power)
    covariance = kernel.on(CITY).matrix(CITY.nodes[nodes]).detach().numpy() + 0.3 * np.eye(12)
    assert found.converged
    assert found.evidence == pytest.approx(multivariate_normal.logpdf(y, np.zeros(12), covariance), abs=1e-8)
    np.testing.assert_allclose(found.sites.second, 1.0 / 0.3, rtol=1e-5)
    np.testing.assert_allclose(found.sites.first[0], y / 0.3, rtol=1e-5, atol=1e-5)


def test_updates_end_early_only_where_there_is_no_hope() -> None:
    nodes, y = np.arange(12), np.linspace(-1.0, 1.0, 12)
    latent, observed = on_city(StudentT(0.3, 4.0), nodes, y, gm.Matern(1.5, 3.0))
    found = match_moments(latent, observed)
    same = match_moments(latent, observed, hopeless=found.evidence - 20.0)
    assert same.evidence == found.evidence
    early = match_moments(latent, observed, hopeless=found.evidence + 1000.0)
    assert early.n_iterations == 0 < found.n_iterations


@pytest.mark.parametrize("away", [1.0, 2.5, 8.0])
def test_two_nodes_against_the_exact_posterior(away: float) -> None:
    """Two neighbours, of which the second may be an outlier: quadrature on a grid is the truth."""
    kernel, likelihood, nodes = gm.Matern(2, 3.0, 1.0), StudentT(0.2, 4.0), np.array([3, 7])
    latent, observed = on_city(likelihood, nodes, [0.3, 0.3 + away], kernel)
    covariance = kernel.on(CITY).matrix(CITY.nodes[nodes]).detach().numpy()
    x = np.linspace(-6.0, 6.0, 1201)
    f = np.stack(np.meshgrid(x, x, indexing="ij"), axis=-1)
    density = multivariate_normal.pdf(f, np.zeros(2), covariance)
    density *= stats.t.pdf(observed.y.numpy() - f, 4.0, 0.0, 0.2).prod(axis=-1)
    mass = density.sum()
    mean = np.einsum("ij,ijk->k", density, f) / mass
    deviation = np.sqrt(np.einsum("ij,ijk->k", density, (f - mean) ** 2) / mass)
    matching = MomentMatching()
    found = matching.refine(latent, observed, matching.fit(latent, observed, None))
    assert found.converged
    assert found.evidence == pytest.approx(np.log(mass * (x[1] - x[0]) ** 2), abs=0.05)
    np.testing.assert_array_less(np.abs(found.marginals.mean[0] - mean) / deviation, 0.1)
    np.testing.assert_allclose(np.sqrt(found.marginals.variance[0]), deviation, rtol=0.1)
    bound = fit_sites(latent, observed)  # what it replaces

    def error(variance: Floats) -> float:
        return float(np.abs(np.sqrt(variance) / deviation - 1.0).max())

    assert error(found.marginals.variance[0]) < error(bound.marginals.variance[0])
    assert bound.elbo < found.evidence


def contradicting() -> tuple[Any, Floats, gm.Kernel, StudentT]:
    """Repeated measurements with little noise that disagree wildly, so that the updates by themselves go astray."""
    rng = np.random.default_rng(0)
    nodes = rng.integers(0, CITY.n_nodes, 40)
    y = rng.standard_normal(40) * np.where(rng.random(40) < 0.2, 8.0, 1.0)
    return nodes, y, gm.Matern(2, 3.0, 1.0), StudentT(0.1, 3.0)


def test_contradictions_are_weathered_and_reported() -> None:
    nodes, y, kernel, likelihood = contradicting()
    latent, observed = on_city(likelihood, nodes, y, kernel)
    matching = MomentMatching()
    found = matching.fit(latent, observed, None, max_iterations=200, tolerance=1e-10)
    assert found.converged
    assert matching.power < MomentMatching().power
    assert matching.changed
    observations = Observations(nodes, y[:, None], np.zeros((CITY.n_nodes, 0)))
    with pytest.warns(NumericalWarning, match="contradict each other"):
        fit = learn(Problem(CITY, kernel, likelihood, observations, search=Search(None)), "spectral")
    assert fit.settled
    assert -fit.optimum.value == pytest.approx(found.evidence, abs=1e-4)
