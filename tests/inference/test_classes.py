"""Coupled classes: exact posteriors by quadrature, dense matrices of all processes at once, every engine."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.linalg import block_diag
from scipy.stats import multivariate_normal

import graphmatern as gm
from contenders import Contender, cases
from dense_process import exact
from graphmatern.errors import LikelihoodError
from graphmatern.inference import Observations, Problem, Search, learn
from graphmatern.inference.sites.classes import match_classes
from graphmatern.inference.sites.marginals import LatentField
from graphmatern.inference.sites.matching import match_moments
from graphmatern.inference.sites.objective import SiteObjective
from graphmatern.inference.sites.updates import SiteLikelihood
from graphmatern.inference.spectral.engine import SpectralEngine
from graphmatern.likelihoods import Bernoulli, Likelihood, MultinomialProbit, orthant
from site_cases import BY_SITES, GRAPH, NODES, TAU

Floats = NDArray[np.float64]

UNRESTRICTED = [one for one in BY_SITES if one.prior is exact and not getattr(one.make, "restricts", False)]
LABELS = np.array([0.0, 2, 1, 1, 0, 2, 1, 0])
DESIGN = np.column_stack([np.ones(GRAPH.n_nodes), np.random.default_rng(2).standard_normal(GRAPH.n_nodes)])
CITY = gm.make_roads(33, seed=4)
KERNEL = gm.Matern(2, 3.0, 4.0)


def objective_of(contender: Contender) -> tuple[SiteObjective, Floats]:
    """The evidence of three classes, one node labelled twice, with effects; and where it is looked at."""
    observations = Observations(NODES, LABELS[:, None], DESIGN)
    problem = replace(
        contender.problem(GRAPH, False, observations), likelihood=MultinomialProbit(3), effect_precision=TAU
    )
    engine = contender.make(problem, SiteObjective.groups(problem))
    objective = SiteObjective(engine, problem)
    objective.finish()
    return objective, np.concatenate([engine.start, objective.start])


@pytest.mark.parametrize("contender", [case.values[0] for case in cases(UNRESTRICTED, ["probit"])], ids=str)
def test_every_engine_against_all_processes_in_one_matrix(contender: Contender) -> None:
    """The same sites on one Gaussian of all classes at all nodes; the evidence's gradient by differences."""
    objective, theta = objective_of(contender)
    _, gradient = objective(theta)
    assert objective.settled
    for k, step in enumerate(1e-4 * np.eye(len(theta))):
        numeric = (objective(theta + step)[0] - objective(theta - step)[0]) / 2e-4
        assert gradient[k] == pytest.approx(numeric, rel=1e-5, abs=2e-6)
    posterior = objective.posterior(theta)
    beta, alpha = objective.sites()
    prior = contender.prior(GRAPH, contender.kernel, False).seen + DESIGN @ DESIGN.T / TAU
    n = GRAPH.n_nodes
    # Conditions are on differences of f + ε, noise and all: their precisions go to f's by (1/α + noise)⁻¹.
    precision, potential = np.zeros((3 * n, 3 * n)), np.zeros(3 * n)
    for i, (node, label) in enumerate(zip(NODES, LABELS.astype(int), strict=True)):
        others = [c for c in range(3) if c != label]
        ahead = np.zeros((2, 3 * n))
        ahead[:, label * n + node] = 1.0
        ahead[[0, 1], [c * n + node for c in others]] = -1.0
        a, b = alpha[others, i], beta[others, i]
        between = np.linalg.inv(np.diag(1.0 / a) + np.eye(2) + 1.0)
        precision += ahead.T @ between @ ahead
        potential += ahead.T @ between @ (b / a)
    everything = np.kron(np.eye(3), prior)
    covariance = np.linalg.solve(np.eye(3 * n) + everything @ precision, everything)
    every = np.arange(n)
    np.testing.assert_allclose(posterior.latent_mean(every), (covariance @ potential).reshape(3, n), atol=1e-7)
    blocks = covariance.reshape(3, n, 3, n)
    np.testing.assert_allclose(posterior.class_covariance(every), np.einsum("anbn->nab", blocks), atol=1e-7)
    np.testing.assert_allclose(posterior.latent_covariance(every, 1), blocks[1, :, 1], atol=1e-7)
    own = block_diag(*(part.predictive.covariances(every) for part in posterior.parts))
    beside = np.hstack([posterior.beside(every, c) for c in range(3)])
    np.testing.assert_allclose(own + beside.T @ beside, covariance, atol=1e-7)
    draws = posterior.joint_samples(40_000, every[:3], np.random.default_rng(0)).reshape(-1, 9)
    np.testing.assert_allclose(np.cov(draws.T), blocks[:, :3, :, :3].reshape(9, 9), atol=0.04 * covariance.max())
    alone = posterior.latent_samples(40_000, every[:3], np.random.default_rng(1), 2)
    np.testing.assert_allclose(np.cov(alone.T), blocks[2, :3, 2, :3], atol=0.04 * covariance.max())


def on_city(likelihood: Likelihood, nodes: Any, y: Any) -> tuple[LatentField, SiteLikelihood]:
    y = np.asarray(y, dtype=np.float64)
    observations = Observations(np.asarray(nodes), y[:, None], np.zeros((CITY.n_nodes, 0)))
    engine = SpectralEngine(Problem(CITY, KERNEL, likelihood, observations), observations.replicates)
    latent = LatentField(engine.at(engine.start), observations.replicates, 0.0)
    return latent, SiteLikelihood(torch.from_numpy(y), likelihood, np.zeros(len(y)))


def test_two_classes_are_probit_regression() -> None:
    """With (f_1 − f_0) / √2 for its process, which has the same covariance; its moments are by 32 nodes."""
    rng = np.random.default_rng(0)
    nodes, y = rng.integers(0, CITY.n_nodes, 15), rng.integers(0, 2, 15)
    two = match_classes(*on_city(MultinomialProbit(2), nodes, y))
    one = match_moments(*on_city(Bernoulli(), nodes, y))
    assert two.converged
    assert one.converged
    assert two.evidence == pytest.approx(one.evidence, abs=1e-6)
    gap = np.array([-1.0, 1.0]) / np.sqrt(2.0)
    np.testing.assert_allclose(two.posterior.mean @ gap, one.marginals.mean[0], atol=1e-4)
    np.testing.assert_allclose(gap @ two.posterior.covariance @ gap, one.marginals.variance[0], atol=1e-4)


@pytest.mark.parametrize("labels", [[0], [0, 0, 1], [2, 2, 2, 2]])
def test_three_classes_at_one_node_against_the_exact_posterior(labels: list[int]) -> None:
    """The likelihood sees two differences, over which a grid is the truth; the common level keeps its prior."""
    likelihood = MultinomialProbit(3)
    latent, observed = on_city(likelihood, [5] * len(labels), labels)
    found = match_classes(latent, observed)
    assert found.converged
    variance = float(latent.covariance[0, 0])
    x = np.linspace(-8.0, 8.0, 321) * np.sqrt(2.0 * variance)
    gaps = np.stack(np.meshgrid(x, x, indexing="ij"), axis=-1).reshape(-1, 2)
    f = torch.from_numpy(np.column_stack([np.zeros(len(gaps)), gaps]).T.copy())

    def log_probability(label: int) -> Floats:
        return likelihood.log_prob(torch.full((f.shape[1],), label), f).numpy()

    prior = multivariate_normal.pdf(gaps, np.zeros(2), variance * (np.eye(2) + 1.0)) * (x[1] - x[0]) ** 2
    density = prior * np.exp(np.sum([log_probability(label) for label in labels], axis=0))
    mass = density.sum()
    centred = f.numpy() - f.numpy().mean(axis=0)
    mean = centred @ density / mass
    covariance = (density * (centred - mean[:, None])) @ (centred - mean[:, None]).T / mass + variance / 3.0
    deviation = np.sqrt(np.diag(covariance))
    assert found.evidence == pytest.approx(np.log(mass), abs=0.06)
    np.testing.assert_array_less(np.abs(found.posterior.mean[0] - mean) / deviation, 0.05)
    np.testing.assert_allclose(np.sqrt(np.diag(found.posterior.covariance[0])), deviation, rtol=0.03)
    np.testing.assert_allclose(found.posterior.covariance[0], covariance, atol=0.06 * variance)
    truth = [float(np.exp(log_probability(c)) @ density / mass) for c in range(3)]
    share = likelihood.joint_probabilities(found.posterior.mean[:1], found.posterior.covariance[:1])[0]
    np.testing.assert_allclose(share, truth, atol=0.01)


def test_probability_of_an_orthant() -> None:
    rng = np.random.default_rng(0)
    roots = rng.standard_normal((6, 3, 3))
    covariance, mean = roots @ roots.transpose(0, 2, 1) + 0.5 * np.eye(3), rng.standard_normal((6, 3))
    found = np.exp(orthant(mean, covariance).log_probability)
    expected = [multivariate_normal.cdf(m, np.zeros(3), c) for m, c in zip(mean, covariance, strict=True)]
    np.testing.assert_allclose(found, expected, atol=0.02)
    alone = orthant(mean[:, :1], covariance[:, :1, :1]).log_probability
    np.testing.assert_allclose(alone, multivariate_normal.logcdf(mean[:, 0] / np.sqrt(covariance[:, 0, 0])), rtol=1e-9)


@pytest.mark.parametrize("variance", [5.0, 50.0])
def test_new_observations_where_there_are_labels(variance: float) -> None:
    """A large process is cut off by its label, which no Gaussian tells: it is off by 0.06 where the variance is 50."""
    labelled, every = np.array([4, 20]), np.array([20, 8, 4])
    observations = Observations(labelled, np.array([[1.0], [0.0]]), np.zeros((CITY.n_nodes, 0)))
    kernel, likelihood = gm.Matern(2, 3.0, variance), MultinomialProbit(4)
    found = learn(Problem(CITY, kernel, likelihood, observations, search=Search(None)), "spectral").posterior
    root = np.linalg.cholesky(kernel.on(CITY).matrix(every, every).detach().numpy())
    draws = torch.from_numpy(root @ np.random.default_rng(0).standard_normal((80_000, 3, 4)))
    with torch.no_grad():
        logs = torch.stack([likelihood.log_prob(torch.full((3,), c), draws.transpose(1, 2)) for c in range(4)])
    weights = torch.exp(logs[1, :, 2] + logs[0, :, 0])
    expected = torch.einsum("cns,n->sc", torch.exp(logs), weights / weights.sum()).numpy()
    np.testing.assert_allclose(found.class_probabilities(every), expected, atol=0.015)


def test_extreme_variances_are_borne() -> None:
    """Separable classes have most evidence where the noise vanishes beside the processes."""
    nodes, y = np.arange(20), (np.arange(20) > 9).astype(float) + (np.arange(20) > 14)
    observations = Observations(nodes, y[:, None], np.zeros((CITY.n_nodes, 0)))
    for variance in (1e-6, 1e6):
        kernel = gm.Matern(2, 3.0, variance)
        fit = learn(Problem(CITY, kernel, MultinomialProbit(3), observations, search=Search(None)), "spectral")
        assert fit.settled
        assert np.isfinite(fit.log_evidence)
        posterior = fit.posterior
        share = MultinomialProbit(3).joint_probabilities(
            posterior.latent_mean(nodes).T, posterior.class_covariance(nodes)
        )
        np.testing.assert_allclose(share.sum(axis=1), 1.0, atol=1e-9)
        assert (share[nodes, y.astype(int)] > (0.33 if variance < 1.0 else 0.75)).all()


def test_restricted_processes_are_refused() -> None:
    observations = Observations(NODES, LABELS[:, None], np.zeros((GRAPH.n_nodes, 0)))
    problem = Problem(GRAPH, gm.Matern(), MultinomialProbit(3), observations, search=Search(None))
    with pytest.raises(LikelihoodError, match=r"inducing nodes.*Use 'softmax' or 'robustmax'"):
        learn(problem, "inducing")
    with pytest.raises(LikelihoodError, match="Use 'softmax'"):
        MultinomialProbit(3).expected_log_prob(*(torch.zeros(3, 1),) * 3)
