"""Weighted points against densities whose integrals are known."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from graphmatern.inference.learning.explore import Explored, explore, few_of, moments_of, normal_points
from graphmatern.inference.learning.parameters import Coordinate
from graphmatern.inference.learning.priors import LogNormal

WIDE = [Coordinate(f"x{k}", -30.0, 30.0, LogNormal(1.0, 3.0)) for k in range(4)]


def test_a_normal_density_in_four_dimensions() -> None:
    rng = np.random.default_rng(0)
    root = np.eye(4) + 0.3 * rng.standard_normal((4, 4))
    covariance = root @ root.T
    density = stats.multivariate_normal(np.arange(4.0) / 4, covariance)
    found = explore(
        lambda points: np.atleast_1d(density.logpdf(points)) + 2.0,
        np.arange(4.0) / 4,
        np.linalg.inv(covariance).astype(np.float64),
        WIDE,
        256,
    )
    mean, spread = moments_of(found.points, found.weights)
    sd = np.sqrt(np.diag(covariance))
    assert found.log_integral == pytest.approx(2.0, abs=0.1)
    assert np.abs((mean - np.arange(4.0) / 4) / sd).max() < 0.1
    assert np.abs(np.sqrt(np.diag(spread)) / sd - 1.0).max() < 0.15
    assert found.effective > 80


def test_a_skew_density_that_is_cut_off_by_a_bound() -> None:
    """x = log of an exponential variable has a long tail to the left; a bound takes away its right half."""
    coordinates = [Coordinate("x", -30.0, 0.0, LogNormal(1.0, 3.0))]
    found = explore(lambda points: (points - np.exp(points))[:, 0], np.array([0.0]), np.eye(1), coordinates, 200)
    grid = np.linspace(-30.0, 0.0, 20001)
    density = np.exp(grid - np.exp(grid))
    total = np.trapezoid(density, grid)
    expected = np.trapezoid(grid * density, grid) / total
    assert found.log_integral == pytest.approx(np.log(total), abs=0.05)
    assert (found.weights @ found.points[:, 0]) == pytest.approx(expected, abs=0.1)
    assert found.points.max() <= 0.0


def test_a_second_mode_is_found() -> None:
    def log_densities(points: np.ndarray) -> np.ndarray:
        near = -0.5 * ((points - 1.0) ** 2).sum(axis=1) / 0.25
        far = -0.5 * ((points + 1.5) ** 2).sum(axis=1) / 0.25
        return np.asarray(np.logaddexp(near, far - 0.5))

    coordinates = [Coordinate("x", -30.0, 30.0, LogNormal(1.0, 3.0)) for _ in range(2)]
    found = explore(log_densities, np.ones(2), 4.0 * np.eye(2), coordinates, 256)
    share = found.weights[found.points[:, 0] < -0.25].sum()
    assert share == pytest.approx(1.0 / (1.0 + np.exp(0.5)), abs=0.1)


def test_points_that_break_down_have_no_weight() -> None:
    def log_densities(points: np.ndarray) -> np.ndarray:
        return np.where(points[:, 0] > 0.5, -np.inf, -0.5 * (points**2).sum(axis=1))

    found = explore(log_densities, np.zeros(2), np.eye(2), WIDE[:2], 64)
    assert found.points[:, 0].max() <= 0.5
    assert found.weights.sum() == pytest.approx(1.0)


def test_points_of_a_normal_density() -> None:
    root = np.array([[1.0, 0.0, 0.0], [0.5, 0.8, 0.0], [-0.3, 0.1, 0.4]])
    covariance, mode = root @ root.T, np.array([1.0, -2.0, 0.5])
    found = normal_points(3.0, mode, np.linalg.inv(covariance), WIDE[:3])
    mean, spread = moments_of(found.points, found.weights)
    np.testing.assert_allclose(mean, mode, atol=1e-12)
    np.testing.assert_allclose(spread, covariance, rtol=1e-9)
    top = stats.multivariate_normal(mode, covariance).logpdf(mode)
    assert found.log_integral == pytest.approx(3.0 - top)


def test_nothing_to_explore() -> None:
    found = explore(lambda _: np.array([3.0]), np.zeros(0), np.zeros((0, 0)), [], 64)
    assert found.points.shape == (1, 0)
    assert found.log_integral == 3.0


def test_a_few_points_keep_means_and_covariances() -> None:
    def log_densities(points: np.ndarray) -> np.ndarray:
        return np.asarray(-0.5 * (points**2).sum(axis=1) - 0.1 * np.exp(points[:, 0]))

    found = explore(log_densities, np.zeros(3), np.eye(3), WIDE[:3], 200)
    chosen, weights = few_of(found, 24)
    assert len(chosen) <= 24
    assert len(set(chosen.tolist())) == len(chosen)
    assert weights.min() >= 0.0
    mean, covariance = moments_of(found.points, found.weights)
    own_mean, own_covariance = moments_of(found.points[chosen], weights)
    np.testing.assert_allclose(own_mean, mean, atol=0.02)
    np.testing.assert_allclose(own_covariance, covariance, atol=0.03)


def test_long_tails_get_more_points() -> None:
    """Points are drawn until means and deviations are known as well as was asked for, and not where they are anyway."""
    seen: list[int] = []

    def with_a_corner(points: np.ndarray) -> np.ndarray:  # an exponential tail to the left, a steep wall to the right
        seen.append(len(points))
        x, z = points.T
        return np.asarray(-0.2 * np.abs(x) - np.where(x > 0.0, 5.0 * x, 0.0) - 0.5 * (z - 0.3 * x) ** 2)

    mode, hessian = np.zeros(2), np.eye(2)
    few = explore(with_a_corner, mode, hessian, WIDE[:2], 120)
    once = sum(seen)
    seen.clear()
    more = explore(with_a_corner, mode, hessian, WIDE[:2], 120, accuracy=0.05)
    again = sum(seen)
    assert again > 1.3 * once
    assert more.effective > 1.3 * few.effective
    shares = more.weights**2
    mean = more.weights @ more.points
    spread = more.weights @ (more.points - mean) ** 2
    assert np.sqrt(shares @ ((more.points - mean) ** 2 / spread)).max() < 0.1
    seen.clear()
    explore(with_a_corner, mode, hessian, WIDE[:2], 120, accuracy=1.0)
    assert sum(seen) == once


def test_few_of_very_many_points() -> None:
    """Only the heaviest can be chosen, but they stand for all."""
    rng = np.random.default_rng(2)
    points = rng.standard_t(6.0, (5_000, 2))
    weights = rng.exponential(size=5_000)
    weights /= weights.sum()
    chosen, own = few_of(Explored(points, weights, np.zeros(5_000), 0.0), 48)
    assert weights[chosen].min() > np.quantile(weights, 0.7)
    mean, covariance = moments_of(points, weights)
    own_mean, own_covariance = moments_of(points[chosen], own)
    np.testing.assert_allclose(own_mean, mean, atol=0.02)
    np.testing.assert_allclose(own_covariance, covariance, atol=0.05)
