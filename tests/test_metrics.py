"""Scores against numerical integration, scikit-learn and simulation."""

from __future__ import annotations

import numpy as np
import pytest
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
