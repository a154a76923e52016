"""Scores against numerical integration, scikit-learn and simulation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import quad
from scipy.stats import norm
from sklearn.metrics import r2_score, root_mean_squared_error

from graphmatern import metrics
from graphmatern.errors import TableError

RNG = np.random.default_rng(20261)
Y, MEAN, STD = RNG.normal(size=40), RNG.normal(size=40), RNG.uniform(0.2, 3.0, 40)


def test_point_scores_agree_with_scikit_learn() -> None:
    assert metrics.rmse(Y, MEAN) == pytest.approx(root_mean_squared_error(Y, MEAN), rel=1e-14)
    assert metrics.r2(Y, MEAN) == pytest.approx(r2_score(Y, MEAN), rel=1e-14)


def test_densities_agree_with_scipy() -> None:
    assert metrics.nlpd(Y, MEAN, STD) == pytest.approx(-np.mean(norm.logpdf(Y, MEAN, STD)), rel=1e-14)


def test_ranked_probability_score_is_the_integral_it_stands_for() -> None:
    expected = []
    for y, mean, std in zip(Y[:5], MEAN[:5], STD[:5], strict=True):
        below = quad(lambda x, m=mean, s=std: norm.cdf(x, m, s) ** 2, -40, y)[0]
        above = quad(lambda x, m=mean, s=std: norm.sf(x, m, s) ** 2, y, 40)[0]
        expected.append(below + above)
    assert metrics.crps(Y[:5], MEAN[:5], STD[:5]) == pytest.approx(np.mean(expected), rel=1e-7)


@pytest.mark.parametrize("level", [0.5, 0.9, 0.95])
def test_coverage_of_calibrated_predictions(level: float) -> None:
    n = 20_000
    y = np.random.default_rng(5).normal(2.0, 3.0, n)
    found = metrics.coverage(y, np.full(n, 2.0), np.full(n, 3.0), level)
    assert abs(found - level) < 4 * np.sqrt(level * (1 - level) / n)


def test_cells_that_were_not_observed_are_dropped() -> None:
    y = np.array([[0.0, np.nan], [1.0, 2.0]])
    mean, std = np.zeros((2, 2)), np.ones((2, 2))
    kept = np.array([0.0, 1.0, 2.0])
    assert metrics.regression_report(y, mean, std) == metrics.regression_report(kept, np.zeros(3), np.ones(3))


def test_equal_values_have_no_share_to_explain() -> None:
    assert metrics.r2([1.0, 1.0], [1.0, 1.0]) == 1.0
    assert np.isnan(metrics.r2([1.0, 1.0], [1.0, 2.0]))


def test_faults_are_reported_together() -> None:
    with pytest.raises(TableError) as caught:
        metrics.nlpd([1.0, 2.0], [1.0], [0.0, 1.0])
    assert "`mean` must have the shape (2,)" in str(caught.value)
    assert "`std` must be above 0" in str(caught.value)
    with pytest.raises(TableError, match="at least one value"):
        metrics.rmse([np.nan], [1.0])
    with pytest.raises(TableError, match="between 0 and 1"):
        metrics.coverage([1.0], [1.0], [1.0], level=95)


def exact_count_score(y: int, distribution: Any) -> float:
    """CRPS of a count, from its definition: the sum of (F(k) − 1{y ≤ k})² over whole numbers k."""
    k = np.arange(2000)
    return float(np.sum((distribution.cdf(k) - (y <= k)) ** 2))


@pytest.mark.parametrize(
    "distribution", [stats.poisson(0.3), stats.poisson(7.0), stats.nbinom(2.0, 0.1)], ids=["rare", "some", "spread"]
)
def test_scores_of_counts_are_those_of_the_definition(distribution: Any) -> None:
    y = np.array([0, 1, 5, 30])
    expected = np.mean([exact_count_score(one, distribution) for one in y])
    levels = (np.arange(4000) + 0.5) / 4000
    quantiles = np.repeat(distribution.ppf(levels)[:, None], len(y), axis=1)
    assert metrics.crps_from_quantiles(y, quantiles, levels) == pytest.approx(expected, rel=2e-3)
    draws = distribution.rvs((20_000, len(y)), random_state=0)
    assert metrics.crps_from_draws(y, draws) == pytest.approx(expected, rel=0.01)


def test_scores_of_normal_predictions_agree_with_the_closed_form() -> None:
    rng = np.random.default_rng(0)
    y, mean, std = rng.standard_normal((2, 3)), rng.standard_normal((2, 3)), rng.uniform(0.5, 2.0, (2, 3))
    y[0, 1] = np.nan
    expected = metrics.crps(y, mean, std)
    levels = (np.arange(2000) + 0.5) / 2000
    quantiles = mean + std * stats.norm.ppf(levels)[:, None, None]
    assert metrics.crps_from_quantiles(y, quantiles, levels) == pytest.approx(expected, rel=1e-3)
    uneven = np.concatenate([levels[:1000:7], levels[1000:]])  # fewer levels below the median count for more
    below = mean + std * stats.norm.ppf(uneven)[:, None, None]
    assert metrics.crps_from_quantiles(y, below, uneven) == pytest.approx(expected, rel=1e-2)
    draws = mean + std * rng.standard_normal((20_000, 2, 3))
    assert metrics.crps_from_draws(y, draws) == pytest.approx(expected, rel=0.02)


def test_scores_of_few_draws_are_unbiased() -> None:
    rng = np.random.default_rng(0)
    found = np.mean([metrics.crps_from_draws([0.5], rng.standard_normal((2, 1))) for _ in range(20_000)])
    assert found == pytest.approx(metrics.crps([0.5], [0.0], [1.0]), abs=0.02)
    draws = rng.standard_normal((7, 1))  # a loop over pairs
    pairs = np.mean([abs(a - b) for i, a in enumerate(draws[:, 0]) for j, b in enumerate(draws[:, 0]) if i != j])
    assert metrics.crps_from_draws([0.5], draws) == pytest.approx(np.abs(draws - 0.5).mean() - 0.5 * pairs, rel=1e-12)


@pytest.mark.parametrize(
    ("score", "argument"),
    [
        (lambda: metrics.crps_from_quantiles([1.0], [[1.0], [2.0]], [0.7, 0.3]), "levels"),
        (lambda: metrics.crps_from_quantiles([1.0], [[1.0], [2.0]], [0.0, 1.0]), "levels"),
        (lambda: metrics.crps_from_quantiles([1.0], [[1.0, 2.0]], [0.3, 0.7]), "quantiles"),
        (lambda: metrics.crps_from_quantiles([np.nan], [[1.0]], [0.5]), "y"),
        (lambda: metrics.crps_from_draws([1.0], [[1.0]]), "draws"),
        (lambda: metrics.crps_from_draws([1.0, 2.0], [[1.0], [2.0]]), "draws"),
        (lambda: metrics.crps_from_draws([1.0], 3.0), "draws"),
    ],
)
def test_wrong_quantiles_and_draws_are_refused(score: Any, argument: str) -> None:
    with pytest.raises(TableError) as caught:
        score()
    assert caught.value.faults[0].argument == argument
