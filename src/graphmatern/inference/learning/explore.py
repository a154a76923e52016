"""Points and weights that stand for a density around its mode.

With few observations the density of the parameters has long tails, ridges and second modes, so points are drawn rather
than put on a grid, and weighted by importance: first around the mode, with scales of their own up and down each axis of
the curvature, and from the prior; then twice with the mean and covariance of the points so far, a little wider and with
heavy tails: what follows the points more closely misses more. The weights are those of all proposals together (Veach
and Guibas 1995; Cappé et al. 2004), with the largest ones cut (Ionides 2008). Where points are many, rounds go on until
means and deviations are known well enough. In the end a few points are kept whose weighted means and covariances are
those of all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import scipy.linalg as la
from scipy.special import gammaincinv, gammaln, logsumexp, ndtri, stdtrit

from graphmatern.inference.learning.halton import scrambled_halton

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from graphmatern.inference.learning.parameters import Coordinate

    Floats = NDArray[np.float64]
    Longs = NDArray[np.int64]

__all__ = ["Explored", "explore", "few_of", "moments_of", "normal_points"]

_AXIS_STEP = 1.5  # along an axis, in standard deviations, where its scale is measured
_SCALES = (0.2, 3.0)  # of the curvature's, least and largest
_LEAST_CURVATURE = 0.3  # of an axis: less is the prior's, which the points from it cover
_WIDER = 1.2  # than the scales measured
_DF = 5.0  # of the tails around the mode
_FITTED_DF, _FITTED_WIDTH = 4.0, 1.25  # of the proposals with the mean and covariance of points
_SHARES = (0.15, 0.25, 0.25, 0.35)  # of all points: around the mode, from the prior, twice with the points' covariance
_MORE_ROUNDS = 4  # at most, where the parameters are not known well enough
_CANDIDATES = 1_200  # the heaviest points, among which a few are chosen
_FLATTENED = 0.7  # power of weights that a few points dominate
_RIDGE = 1e-3  # on the change of weights
_INSIDE = 1e-9  # of shares, away from 0 and 1


@dataclass(frozen=True, eq=False)
class Explored:
    """Weighted points.

    Attributes
    ----------
    points : ndarray, shape (n, d)
        Coordinates.
    weights : ndarray, shape (n,)
        They add up to 1.
    values : ndarray, shape (n,)
        Log densities.
    log_integral : float
        Log of the integral of the density.
    """

    points: Floats
    weights: Floats
    values: Floats
    log_integral: float

    @property
    def effective(self) -> float:
        """As many equal weights would know as much."""
        return float(1.0 / np.sum(self.weights**2))


def explore(
    log_densities: Callable[[Floats], Floats],
    mode: Floats,
    hessian: Floats,
    coordinates: Sequence[Coordinate],
    n_points: int,
    *,
    accuracy: float | None = None,
    seed: int = 0,
) -> Explored:
    """Draw points that stand for a density.

    Parameters
    ----------
    log_densities : callable
        From points, shape (n, d), to log densities up to a constant, shape (n,); −∞ where one cannot be computed.
    mode : ndarray, shape (d,)
        About where it is largest.
    hessian : ndarray, shape (d, d)
        Of the negative log density there, about.
    coordinates : sequence of Coordinate
        Bounds, and priors from which some points are drawn.
    n_points : int
        About how many points.
    accuracy : float, optional
        Standard error of means, and relative one of deviations, in deviations: up to four more rounds of points are
        drawn where an error is larger.
    seed : int
        Of the points.
    """
    d = len(mode)
    if not d:
        value = float(log_densities(mode[None])[0])
        return Explored(mode[None], np.ones(1), np.array([value]), value)
    low, high = np.array([(one.low, one.high) for one in coordinates]).T
    counts = [max(8, round(share * n_points)) for share in _SHARES]
    around = _around_mode(log_densities, mode, hessian, low, high)
    used: list[tuple[int, _Proposal]] = [(counts[0], around), (counts[1], _FromPrior(coordinates))]
    points, values = np.empty((0, d)), np.empty(0)
    weights, log_integral, drawn = np.empty(0), 0.0, 0
    planned, more = counts[2:], _MORE_ROUNDS
    while True:
        for number, (size, proposal) in list(enumerate(used))[drawn:]:
            uniform = np.clip(scrambled_halton(proposal.n_uniform, size, seed + number), _INSIDE, 1 - _INSIDE)
            new = proposal.draw(uniform)
            inside = ((new >= low) & (new <= high)).all(axis=1)
            points = np.vstack([points, new])
            found = np.full(size, -np.inf)
            found[inside] = log_densities(new[inside])
            values = np.append(values, found)
        drawn = len(used)
        total = sum(size for size, _ in used)
        proposed = logsumexp([np.log(size / total) + one.log_density(points) for size, one in used], axis=0)
        log_weights = values - proposed
        log_integral = float(logsumexp(log_weights) - np.log(total))
        # Cut where a single point would say too much.
        weights = np.exp(np.minimum(log_weights - log_integral, 0.5 * np.log(total)))
        weights /= weights.sum()
        if planned:
            count = planned.pop(0)
        elif more and accuracy is not None and _largest_error(points, weights) > accuracy:
            count, more = counts[-1], more - 1
        else:
            break
        dominated = 1.0 / np.sum(weights**2) < 0.3 * total
        flat = weights**_FLATTENED if dominated else weights
        used.append((count, _FittedT(points, flat / flat.sum())))
    kept = np.flatnonzero(weights > 0)
    return Explored(points[kept], weights[kept] / weights[kept].sum(), values[kept], log_integral)


def normal_points(top: float, mode: Floats, hessian: Floats, coordinates: Sequence[Coordinate]) -> Explored:
    """Points that stand for a normal density: two on each axis, with its mean and covariance.

    Parameters
    ----------
    top : float
        Log density at the mode.
    mode : ndarray, shape (d,)
        Where it is largest.
    hessian : ndarray, shape (d, d)
        Of the negative log density there.
    coordinates : sequence of Coordinate
        Bounds, into which the points are moved.
    """
    d = len(mode)
    low, high = np.array([(one.low, one.high) for one in coordinates]).reshape(-1, 2).T
    curvatures, vectors = np.linalg.eigh(hessian)
    curvatures = np.maximum(curvatures, _LEAST_CURVATURE)
    away = np.sqrt(d) * vectors / np.sqrt(curvatures)
    points = np.clip(np.concatenate([mode + away.T, mode - away.T]), low, high)
    log_integral = top + 0.5 * (d * np.log(2.0 * np.pi) - float(np.log(curvatures).sum()))
    return Explored(points, np.full(2 * d, 0.5 / d), np.full(2 * d, top - 0.5 * d), log_integral)


def _around_mode(
    log_densities: Callable[[Floats], Floats], mode: Floats, hessian: Floats, low: Floats, high: Floats
) -> _SplitT:
    """A proposal around the mode whose scales, up and down each axis, follow from how the density falls there."""
    curvatures, vectors = np.linalg.eigh(hessian)
    axes = vectors / np.sqrt(np.maximum(curvatures, _LEAST_CURVATURE))
    top = float(log_densities(mode[None])[0])
    scales = np.ones((2, len(mode)))
    for k, axis in enumerate(axes.T):
        for side, sign in enumerate((-1.0, 1.0)):
            step = _AXIS_STEP
            for _ in range(2):
                there = np.clip(mode + sign * step * axis, low, high)
                fall = max(top - float(log_densities(there[None])[0]), 0.02)
                scales[side, k] = np.clip(step / np.sqrt(2.0 * fall), *_SCALES)
                if 0.2 < fall < 6.0:
                    break
                step *= 0.4 if fall >= 6.0 else 2.5
    return _SplitT(mode, axes, _WIDER * scales)


def moments_of(points: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """Weighted mean and covariance; shapes (d,) and (d, d)."""
    mean = weights @ points
    away = points - mean
    return mean, away.T @ (weights[:, None] * away)


def _largest_error(points: Floats, weights: Floats) -> float:
    """The largest standard error of a mean, in deviations, or of the logarithm of a deviation."""
    mean = weights @ points
    squared = (points - mean) ** 2
    squared /= np.maximum(weights @ squared, 1e-300)
    of_means = weights**2 @ squared
    of_deviations = 0.25 * (weights**2 @ (squared - 1.0) ** 2)
    return float(np.sqrt(np.maximum(of_means, of_deviations).max()))


# ---------------------------------------------------------------------- proposals
class _Proposal:
    """Where points come from: draws from uniform numbers, and their log density."""

    n_uniform: int

    def draw(self, uniform: Floats) -> Floats:
        raise NotImplementedError

    def log_density(self, points: Floats) -> Floats:
        raise NotImplementedError


class _SplitT(_Proposal):
    """Student's t along each of some axes, with one scale below and another above the mode."""

    def __init__(self, centre: Floats, axes: Floats, scales: Floats) -> None:
        self._centre, self._axes, (self._below, self._above) = centre, axes, scales
        self._inverse, self._log_volume = np.linalg.inv(axes), float(np.linalg.slogdet(axes)[1])
        self.n_uniform = len(centre)

    def draw(self, uniform: Floats) -> Floats:
        share = self._below / (self._below + self._above)
        is_below = uniform < share
        mapped = np.where(is_below, 0.5 * uniform / share, 0.5 + 0.5 * (uniform - share) / (1.0 - share))
        z = stdtrit(_DF, np.clip(mapped, _INSIDE, 1 - _INSIDE)) * np.where(is_below, self._below, self._above)
        return np.asarray(self._centre + z @ self._axes.T)

    def log_density(self, points: Floats) -> Floats:
        z = (points - self._centre) @ self._inverse.T
        constant = gammaln(0.5 * (_DF + 1)) - gammaln(0.5 * _DF) - 0.5 * np.log(_DF * np.pi)
        scaled = z / np.where(z < 0, self._below, self._above)
        single = np.log(2.0 / (self._below + self._above)) + constant - 0.5 * (_DF + 1) * np.log1p(scaled**2 / _DF)
        return np.asarray(single.sum(axis=1) - self._log_volume)


class _FromPrior(_Proposal):
    """The prior; uniform within the bounds where there is none."""

    def __init__(self, coordinates: Sequence[Coordinate]) -> None:
        self._coordinates = coordinates
        self.n_uniform = len(coordinates)

    def draw(self, uniform: Floats) -> Floats:
        columns = [
            one.low + u * (one.high - one.low) if one.prior is None else one.prior.quantile(u)
            for one, u in zip(self._coordinates, uniform.T, strict=True)
        ]
        return np.column_stack(columns)

    def log_density(self, points: Floats) -> Floats:
        total = np.zeros(len(points))
        for one, x in zip(self._coordinates, points.T, strict=True):
            total += -np.log(one.high - one.low) if one.prior is None else one.prior.log_density(x)[0]
        return total


class _FittedT(_Proposal):
    """Student's t with the mean of weighted points, and a scale from their covariance."""

    def __init__(self, points: Floats, weights: Floats) -> None:
        self._mean, covariance = moments_of(points, weights)
        covariance[np.diag_indices_from(covariance)] *= 1.0 + 1e-6
        self._root = _FITTED_WIDTH * root_of(covariance)
        self.n_uniform = len(self._mean) + 1

    def draw(self, uniform: Floats) -> Floats:
        squared = 2.0 * gammaincinv(0.5 * _FITTED_DF, uniform[:, -1:])  # χ², by its quantiles
        heavy = np.sqrt(_FITTED_DF / squared)
        return np.asarray(self._mean + (heavy * ndtri(uniform[:, :-1])) @ self._root.T)

    def log_density(self, points: Floats) -> Floats:
        d, df = points.shape[1], _FITTED_DF
        white = la.solve_triangular(self._root, (points - self._mean).T, lower=True)
        constant = gammaln(0.5 * (df + d)) - gammaln(0.5 * df) - 0.5 * d * np.log(df * np.pi)
        single = constant - np.log(np.diag(self._root)).sum()
        return np.asarray(single - 0.5 * (df + d) * np.log1p((white**2).sum(axis=0) / df))


def root_of(covariance: Floats) -> Floats:
    """Lower Cholesky factor, of a matrix that rounding may have left without one; shape (d, d)."""
    scale = np.sqrt(np.maximum(np.diag(covariance), 1e-12))
    values, vectors = np.linalg.eigh(covariance / np.outer(scale, scale))
    fixed = (vectors * np.maximum(values, 1e-6)) @ vectors.T
    return np.asarray(scale[:, None] * la.cholesky(fixed, lower=True))


def _overlaps(some: Floats, points: Floats) -> Floats:
    """−log(1 + squared distance) of all pairs, shape (m, n); in place, as making room takes longer than the rest."""
    found = some @ (-2.0 * points.T)
    found += (some**2).sum(axis=1)[:, None]
    found += (points**2).sum(axis=1)
    np.maximum(found, 0.0, out=found)
    np.log1p(found, out=found)
    return np.negative(found, out=found)


# ---------------------------------------------------------------------- fewer points
def few_of(explored: Explored, count: int) -> tuple[Longs, Floats]:
    """Choose a few of the points, and weights that keep the mean and covariance of all.

    Parameters
    ----------
    explored : Explored
        The points.
    count : int
        How many to keep at most.

    Returns
    -------
    chosen : ndarray of int64, shape (k,)
        Positions of points.
    weights : ndarray, shape (k,)
        They add up to 1.
    """
    points, weights = explored.points, explored.weights
    if len(points) <= count:
        return np.arange(len(points)), weights
    mean, covariance = moments_of(points, weights)
    white = la.solve_triangular(root_of(covariance), (points - mean).T, lower=True).T
    # Herding (Welling 2009): each point is where the chosen ones so far represent the density worst. A point with much
    # weight is chosen again and again. The kernel has no scale, so that tails are represented as well as the middle.
    heaviest = np.sort(np.argsort(weights, kind="stable")[-_CANDIDATES:])
    overlap = _overlaps(white[heaviest], white)
    wanted, overlap = overlap @ weights, overlap[:, heaviest]
    had, times = np.zeros((2, len(heaviest)))
    for number in range(count):
        best = int(np.argmax(wanted - had / (number + 1)))
        times[best] += 1
        had += overlap[best]
    kept = np.flatnonzero(times)
    return heaviest[kept], _tilted(white, weights, heaviest[kept], times[kept] / count)


def _tilted(white: Floats, weights: Floats, kept: Longs, start: Floats) -> Floats:
    """The weights nearest to some start whose first and second moments are those of all points."""
    first, second = np.triu_indices(white.shape[1])
    features = np.hstack([white, white[:, first] * white[:, second]])
    target, own = weights @ features, features[kept]
    multiplier, base = np.zeros(own.shape[1]), np.log(start)

    def dual(at: Floats) -> float:
        return float(logsumexp(base + own @ at) - at @ target + 0.5 * _RIDGE * at @ at)

    found = start / start.sum()
    for _ in range(50):
        log_weights = base + own @ multiplier
        found = np.exp(log_weights - logsumexp(log_weights))
        slope = found @ own - target + _RIDGE * multiplier
        curvature = (own * found[:, None]).T @ own - np.outer(found @ own, found @ own) + _RIDGE * np.eye(len(slope))
        step = -np.linalg.solve(curvature, slope)
        gain = float(slope @ step)
        if -gain < 1e-10:
            break
        size, value = 1.0, dual(multiplier)
        while dual(multiplier + size * step) > value + 1e-4 * size * gain and size > 1e-6:
            size *= 0.5
        multiplier = multiplier + size * step
    return np.asarray(found)
