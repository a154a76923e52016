"""Skewed marginals of counts and of two classes, against draws from the prior, weighted by the likelihood."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.polynomial.hermite_e import hermegauss

import graphmatern as gm
from graphmatern.inference import Observations, Posterior, Problem, Search, skewed
from graphmatern.inference.sites.objective import SiteObjective
from graphmatern.inference.skewed import SkewedPosterior
from graphmatern.inference.skewness import relax, stretch
from graphmatern.inference.spectral.engine import SpectralEngine
from graphmatern.likelihoods import Bernoulli, Binomial, Likelihood, NegativeBinomial, Poisson, join_trials

PATH = gm.Graph.from_edges([("a", "b"), ("b", "c"), ("c", "d")])
SEEN, EVERY = np.array([0, 1, 3]), np.arange(4)


@given(st.floats(-1.5, 1.5))
def test_a_stretched_variable_has_the_moments_it_should(skewness: float) -> None:
    z, weights = hermegauss(80)
    x = stretch(z, np.array(skewness))
    found = [weights @ x**power / weights.sum() for power in (1, 2, 3)]
    np.testing.assert_allclose(found, [0.0, 1.0, skewness], atol=2e-4)
    np.testing.assert_allclose(relax(x, np.array(skewness)), z, atol=1e-6)
    assert (np.diff(x) > 0).all()


def test_nothing_lies_beyond_the_end_of_a_stretched_variable() -> None:
    assert relax(np.array([-9.0, 9.0]), np.array([0.8, -0.8])).tolist() == [-np.inf, np.inf]


def any_posterior_of(likelihood: Likelihood, y: Any, lengthscale: float = 2.0) -> tuple[Posterior, np.ndarray]:
    """The posterior at fixed parameters, skewed or not, and the prior covariance."""
    kernel = gm.Matern(1.5, lengthscale, 1.5)
    seen = SEEN[: len(y)]
    observations = Observations(seen, np.asarray(y, float)[:, None], np.ones((4, 1)), offset=np.full(len(y), 0.3))
    problem = Problem(PATH, kernel, likelihood, observations, search=Search(None), effect_precision=0.5)
    engine = SpectralEngine(problem, SiteObjective.groups(problem))
    objective = SiteObjective(engine, problem)
    theta = np.concatenate([engine.start, objective.start])
    (found,) = objective.settled_at(theta[None])
    assert found is not None
    _, sites = found
    return objective.posterior(theta, sites), kernel.on(PATH).matrix().detach().numpy() + 1.0 / 0.5


def posterior_of(likelihood: Likelihood, y: Any, lengthscale: float = 2.0) -> tuple[SkewedPosterior, np.ndarray]:
    """The same, where it is skewed."""
    found, covariance = any_posterior_of(likelihood, y, lengthscale)
    assert isinstance(found, SkewedPosterior)
    return found, covariance


def by_draws(likelihood: Likelihood, y: Any, covariance: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Values of η at all nodes, drawn from the prior, and their weights given the data."""
    values = np.linalg.cholesky(covariance) @ np.random.default_rng(0).standard_normal((4, 500_000))
    log_weights = np.zeros(values.shape[1])
    for observation, f in zip(y, torch.from_numpy(values[SEEN[: len(y)]] + 0.3), strict=True):
        each = torch.full((len(f),), float(observation), dtype=torch.float64)
        log_weights += likelihood.log_prob(each, f[None]).detach().numpy()
    weights = np.exp(log_weights - log_weights.max())
    return values, weights / weights.sum()


CASES = [
    (Poisson(), [0.0, 1.0, 0.0]),
    (Poisson(), [2.0, 0.0, 5.0]),
    (NegativeBinomial(0.4), [0.0, 1.0, 2.0]),
    (Bernoulli("logit"), [1.0, 1.0, 0.0]),
]


@pytest.mark.parametrize(("likelihood", "y"), CASES)
def test_moments_and_skewness_of_the_process(likelihood: Likelihood, y: list[float]) -> None:
    """Two orders better than what is left out: the true skewness is up to half a unit."""
    posterior, covariance = posterior_of(likelihood, y)
    values, weights = by_draws(likelihood, y, covariance)
    mean = values @ weights
    deviation = np.sqrt((values - mean[:, None]) ** 2 @ weights)
    skewness = (values - mean[:, None]) ** 3 @ weights / deviation**3
    assert np.abs(skewness).max() > 0.1
    np.testing.assert_allclose(posterior.latent_mean(EVERY)[0], mean, atol=0.02 * deviation.min())
    np.testing.assert_allclose(np.sqrt(posterior.latent_variance(EVERY)[0]), deviation, rtol=0.02)
    found = posterior.latent_skewness(EVERY)
    assert found is not None
    np.testing.assert_allclose(found[0], skewness, atol=0.25 * np.abs(skewness).max())


@pytest.mark.parametrize(("likelihood", "y"), CASES[:3])
def test_limits_rates_and_probabilities(likelihood: Any, y: list[float]) -> None:
    posterior, covariance = posterior_of(likelihood, y)
    values, weights = by_draws(likelihood, y, covariance)
    rates = np.exp(values + 0.3)
    mean, _ = posterior.moments(EVERY, offset=0.3)
    np.testing.assert_allclose(mean[0], rates @ weights, rtol=0.03)
    for threshold in (0.5, 1.5):
        above = posterior.exceedance(EVERY, threshold, offset=0.3)
        np.testing.assert_allclose(above, (rates > threshold) @ weights, atol=0.02)
    given_rates = likelihood.given(values + 0.3)
    for count in (0.0, 2.0):
        at_most = given_rates.cdf(np.full(values.shape, count)) @ weights
        seen = np.full(4, count)
        np.testing.assert_allclose(posterior.cdf(EVERY, seen, offset=0.3), at_most, atol=0.01)
    of_zero = given_rates.cdf(np.zeros(values.shape)) @ weights
    np.testing.assert_allclose(np.exp(posterior.log_density(EVERY, np.zeros(4), offset=0.3)), of_zero, atol=0.01)


def test_one_count_of_zero_far_below_its_level() -> None:
    """With hardly a prior nothing but an upper limit is known, which a normal distribution puts far too high."""
    posterior, covariance = posterior_of(Poisson(), [0.0], lengthscale=20.0)
    x = np.linspace(-25.0, 12.0, 200_001)
    density = np.exp(-0.5 * x**2 / covariance[0, 0] - np.exp(x + 0.3))
    below = np.cumsum(density) / density.sum()
    for level in (0.025, 0.5, 0.975):
        exact = np.interp(level, below, x)
        found = np.log(posterior.quantile(np.array([0]), level, observation=False))[0]
        assert found == pytest.approx(exact, abs=0.06 * np.sqrt(covariance[0, 0]))


@pytest.mark.parametrize(
    ("likelihood", "y"),
    [
        (Poisson(), [0.0] * 3),
        (Bernoulli(), [1.0] * 3),
        (Binomial(), join_trials(np.arange(2.0, 5.0), np.arange(2.0, 5.0))),
    ],
)
def test_observations_that_bound_the_process_from_one_side_only(likelihood: Likelihood, y: Any) -> None:
    """Sites that match moments one by one would together know far more than such observations tell."""
    assert not likelihood.two_sided(torch.as_tensor(y))
    found, _ = any_posterior_of(likelihood, y)
    assert not isinstance(found, SkewedPosterior)
    assert found.latent_skewness(EVERY) is None


def test_draws_have_the_marginals() -> None:
    posterior, _ = posterior_of(Poisson(), [0.0, 1.0, 0.0])
    drawn = posterior.latent_samples(20_000, EVERY, np.random.default_rng(0))
    for level in (0.05, 0.95):
        found = np.log(posterior.quantile(EVERY, level, observation=False))
        np.testing.assert_allclose((drawn <= found).mean(axis=0), level, atol=0.006)
    counts = posterior.draw_observations(20_000, EVERY, np.random.default_rng(1), offset=0.3)
    np.testing.assert_allclose((counts == 0).mean(axis=0), posterior.cdf(EVERY, np.zeros(4), offset=0.3), atol=0.015)


def test_two_classes() -> None:
    likelihood, y = CASES[3]
    posterior, covariance = posterior_of(likelihood, y)
    values, weights = by_draws(likelihood, y, covariance)
    share = 1.0 / (1.0 + np.exp(-values)) @ weights
    np.testing.assert_allclose(posterior.class_probabilities(EVERY)[:, 1], share, atol=0.005)


def test_large_problems_are_taken_for_normal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(skewed, "_MOST_COVARIANCES", 2)
    posterior, _ = posterior_of(Poisson(), [0.0, 1.0, 0.0])
    assert posterior.latent_skewness(EVERY) is None
    mean, variance = posterior.latent_mean(EVERY)[0], posterior.latent_variance(EVERY)[0]
    found = posterior.quantile(EVERY, 0.975, observation=False)
    np.testing.assert_allclose(found, np.exp(mean + 1.959964 * np.sqrt(variance)), rtol=1e-6)
    np.testing.assert_allclose(posterior.moments(EVERY)[0][0], np.exp(mean + 0.5 * variance), rtol=1e-10)


def test_an_integrated_fit_is_skewed_all_the_way() -> None:
    rng = np.random.default_rng(0)
    graph = gm.make_roads(40, seed=2)
    names = graph.nodes[:15]
    model = gm.GraphGPRegressor(graph, likelihood="poisson", integrate=True).fit(names, rng.poisson(0.6, 15))
    low, high = (model.posterior_.quantile(np.arange(40), q, observation=False) for q in (0.025, 0.975))
    middle = model.posterior_.quantile(np.arange(40), 0.5, observation=False)
    assert (np.log(middle / low) > np.log(high / middle)).mean() > 0.9  # to the left, on the logarithmic scale
    above = model.posterior_.exceedance(np.arange(40), middle)
    np.testing.assert_allclose(above, 0.5, atol=1e-8)
