"""Quantiles from distribution functions, and distribution functions given f."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from scipy import stats

from graphmatern.likelihoods import Gaussian, Poisson, StudentT, find_quantile

if TYPE_CHECKING:
    from graphmatern.likelihoods._numbers import Numeric


@pytest.mark.parametrize("level", [0.001, 0.025, 0.5, 0.95, 0.9999])
@pytest.mark.parametrize(
    "distribution",
    [
        stats.norm([1.0, -5.0], [1e-3, 20.0]),
        stats.t(2.1, [0.0, 7.0], [1.0, 1e-6]),
        stats.lognorm([0.2, 1.5], scale=[1.0, 1e4]),
        stats.uniform([0.0, 3.0], [1.0, 0.1]),
    ],
)
def test_quantiles_of_known_distributions(distribution: stats.rv_continuous, level: float) -> None:
    calls = []

    def cdf(x: np.ndarray) -> np.ndarray:
        calls.append(1)
        return np.asarray(distribution.cdf(x))

    found = find_quantile(cdf, level, np.asarray(distribution.mean()), np.asarray(distribution.var()))
    np.testing.assert_allclose(distribution.cdf(found), level, rtol=0.0, atol=2e-11)
    assert len(calls) <= 40  # bisection alone takes as many for eleven digits


def test_few_evaluations_are_enough_for_a_mixture_with_heavy_tails() -> None:
    rng = np.random.default_rng(0)
    centres, scales = rng.standard_normal((30, 200)), np.exp(rng.standard_normal((30, 200)))
    mixture = stats.t(4.0, centres, scales)
    mean = centres.mean(axis=0)
    variance = (mixture.var() + (centres - mean) ** 2).mean(axis=0)
    calls = []

    def cdf(x: np.ndarray) -> np.ndarray:
        calls.append(1)
        return np.asarray(mixture.cdf(x).mean(axis=0))

    found = find_quantile(cdf, 0.975, mean, variance)
    np.testing.assert_allclose(cdf(found), 0.975, rtol=0.0, atol=1e-11)
    assert len(calls) <= 15


@pytest.mark.parametrize("likelihood", [Gaussian(0.3), StudentT(0.7, 2.5), StudentT(2.0, 50.0), Poisson()])
@pytest.mark.parametrize("size", [3, 15_000])
def test_distribution_functions_given_f(likelihood: Numeric, size: int) -> None:
    rng = np.random.default_rng(1)
    f = rng.standard_normal((2, size))
    y = np.floor(5.0 * rng.standard_normal(size)) if isinstance(likelihood, Poisson) else rng.standard_cauchy(size)
    np.testing.assert_allclose(likelihood.cdf_given(y, f), likelihood.given(f).cdf(y), rtol=0.0, atol=2e-11)
