"""A mixture's verbs against sums over its components, and against many draws."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.special import logsumexp

import graphmatern as gm
from graphmatern.inference import Mixture

CITY = gm.make_roads(50, seed=2)
RNG = np.random.default_rng(3)
FIELD = gm.Matern(2, 4.0).on(CITY).sample(2, random_state=1).numpy()
SEEN = RNG.permutation(CITY.n_nodes)[:20]
PLACES = np.arange(CITY.n_nodes)


def mixture_of(likelihood: Any, replicates: int = 1) -> tuple[gm.GraphGPRegressor, Mixture]:
    y: Any = FIELD[:replicates, SEEN].T + 0.3 * np.random.default_rng(0).standard_normal((len(SEEN), replicates))
    if likelihood == "poisson":
        y = np.random.default_rng(1).poisson(np.exp(0.5 + y))
    model = gm.GraphGPRegressor(CITY, gm.Matern(2, 3.0, fixed=("nu",)), likelihood=likelihood).fit(CITY.nodes[SEEN], y)
    assert isinstance(model.posterior_, Mixture)
    return model, model.posterior_


@pytest.mark.parametrize("likelihood", ["gaussian", "poisson", "student_t"])
def test_means_variances_and_densities_are_weighted_sums(likelihood: str) -> None:
    _, mixture = mixture_of(likelihood, replicates=2)
    w, parts = mixture.weights, mixture.components
    assert w.sum() == pytest.approx(1.0)
    for observation in (False, True):
        pairs = [one.moments(PLACES, observation=observation) for one in parts]
        mean = sum(a * m for a, (m, _) in zip(w, pairs, strict=True))
        square = sum(a * (v + m**2) for a, (m, v) in zip(w, pairs, strict=True))
        found = mixture.moments(PLACES, observation=observation)
        np.testing.assert_allclose(found[0], mean, rtol=1e-10)
        np.testing.assert_allclose(found[1], square - mean**2, rtol=1e-6, atol=1e-10)
    y = np.ones(len(PLACES))
    logs = [np.log(a) + one.log_density(PLACES, y, replicate=1) for a, one in zip(w, parts, strict=True)]
    np.testing.assert_allclose(mixture.log_density(PLACES, y, replicate=1), logsumexp(logs, axis=0), rtol=1e-10)
    np.testing.assert_allclose(np.diag(mixture.covariance(PLACES)), mixture.moments(PLACES)[1][0], rtol=1e-6)
    np.testing.assert_allclose(
        np.diag(mixture.latent_covariance(PLACES)), mixture.latent_variance(PLACES)[0], rtol=1e-6
    )
    assert mixture.coefficient_covariance.shape == (1, 1, 1)
    assert mixture.coefficient_covariance[0, 0, 0] > np.average(
        [one.coefficient_covariance[0, 0, 0] for one in parts], weights=w
    )


@pytest.mark.parametrize("likelihood", ["gaussian", "poisson", "student_t"])
def test_quantiles_exceedances_and_draws_agree(likelihood: str) -> None:
    _, mixture = mixture_of(likelihood)
    nodes = PLACES[:6]
    n = 20_000
    draws = np.concatenate(list(mixture.samples(n, nodes, np.random.default_rng(0), 0, 5000)))
    fresh = mixture.draw_observations(n, nodes, np.random.default_rng(1))
    for level in (0.1, 0.5, 0.975):
        for values, observation in ((draws, False), (fresh, True)):
            quantile = mixture.quantile(nodes, level, observation=observation)
            below, at_most = (values < quantile - 1e-9).mean(axis=0), (values <= quantile + 1e-9).mean(axis=0)
            # Six shares of 20,000 draws: 0.015 is more than four standard errors.
            assert (below <= level + 0.015).all()
            assert (at_most >= level - 0.015).all()
    np.testing.assert_allclose(mixture.exceedance(nodes, 0.8), (draws > 0.8).mean(axis=0), atol=0.02)
    np.testing.assert_allclose(mixture.exceedance(nodes, 1.0, observation=True), (fresh > 1.0).mean(axis=0), atol=0.02)
    # Where nothing was counted, the tails of a rate are so long that no number of draws tells its variance.
    seen = np.sort(SEEN)[:6]
    draws = np.concatenate(list(mixture.samples(n, seen, np.random.default_rng(0), 0, 5000)))
    spread = np.abs(np.cov(draws.T) - mixture.covariance(seen)).max()
    assert spread < 0.15 * mixture.covariance(seen).max()


def test_one_component_is_that_component() -> None:
    _, mixture = mixture_of("gaussian")
    part = mixture.components[0]
    alone = Mixture([lambda: part], np.ones(1), part.likelihood)
    for observation in (False, True):
        np.testing.assert_allclose(
            alone.quantile(PLACES, 0.9, observation=observation),
            part.quantile(PLACES, 0.9, observation=observation),
            rtol=1e-8,
        )
    ours, theirs = alone.left_out()[0], part.left_out()[0]
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9)
    for one, other in zip(alone.pointwise(), part.pointwise(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9)
    assert "1 components" in repr(alone)


@pytest.mark.parametrize("likelihood", ["gaussian", "poisson"])
def test_waic_is_that_of_draws(likelihood: str) -> None:
    model, mixture = mixture_of(likelihood)
    nodes = SEEN
    f = np.concatenate([mixture.latent_samples(2000, nodes, np.random.default_rng(k)) for k in range(10)])
    parts = mixture.pointwise()
    variance = parts.mean_squared_log - parts.mean_log**2
    assert (variance > 0).all()
    assert (parts.log_expected > parts.mean_log).all()  # Jensen
    if likelihood == "poisson":
        import torch

        y = torch.from_numpy(model._data.y[:, 0])
        with torch.no_grad():
            logs = model.likelihood_.log_prob(y, torch.from_numpy(f + model._level)[:, None]).numpy()
        np.testing.assert_allclose(parts.mean_log, logs.mean(axis=0), atol=0.1)
        np.testing.assert_allclose(parts.log_expected, np.log(np.exp(logs).mean(axis=0)), atol=0.05)
