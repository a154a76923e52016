"""The probability that correlated Gaussian variables are all positive, by expectation propagation.

Each condition g_c > 0 becomes a Gaussian factor exp(β g_c − ½ α g_c²) whose moments match (Cunningham, Hennig and
Lacoste-Julien 2011). All variables of one observation are updated at once, and all observations at once.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy.special import log_ndtr

from graphmatern.sparse import small_inverses

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = ["Orthant", "orthant", "positive_part"]

_UPDATES = 200
_DAMPED_AFTER = 20  # updates, from which on they go half the way
_MOST_LEFT = 0.7  # of the observations that go on, for those that have settled to be left out
_LEAST_VARIANCE = 1e-12  # of what a condition leaves, relative to what it had


class Orthant(NamedTuple):
    """Conditions of positivity, approximated.

    Attributes
    ----------
    log_probability : ndarray, shape (n,)
        That all variables are positive.
    precision, potential : ndarray, shape (n, k)
        α and β of the factors.
    """

    log_probability: Floats
    precision: Floats
    potential: Floats


def positive_part(mean: Floats, variance: Floats) -> tuple[Floats, Floats, Floats]:
    """Gaussian variables given that they are positive; shapes all alike.

    Returns
    -------
    log_mass, slope, bend : ndarray
        Logarithm of the probability, and its first two derivatives in the mean.
    """
    deviation = np.sqrt(variance)
    z = mean / deviation
    log_mass = log_ndtr(z)
    ratio = np.exp(-0.5 * z**2 - 0.5 * math.log(2.0 * math.pi) - log_mass)
    return log_mass, ratio / deviation, -ratio * (z + ratio) / variance


def orthant(
    mean: Floats, covariance: Floats, start: tuple[Floats, Floats] | None = None, tolerance: float = 1e-9
) -> Orthant:
    """Probability that all of k Gaussian variables are positive, n times over.

    Parameters
    ----------
    mean : ndarray, shape (n, k)
        Of the variables.
    covariance : ndarray, shape (n, k, k)
        Positive definite.
    start : pair of ndarray, shape (n, k), optional
        Precisions and potentials to begin with.
    tolerance : float
        Updates end where moments change by less, in standard deviations.
    """
    eye = np.eye(mean.shape[1])
    found, live = np.empty(len(mean)), np.arange(len(mean))
    alphas, betas = np.zeros((2, *mean.shape)) if start is None else (start[0].copy(), start[1].copy())
    alpha, beta, inverse = alphas, betas, small_inverses(covariance)
    shift = np.einsum("nij,nj->ni", inverse, mean)
    for number in range(1, _UPDATES + 1):
        posterior = small_inverses(inverse + alpha[:, :, None] * eye)
        m, v = np.einsum("nij,nj->ni", posterior, shift + beta), np.einsum("nii->ni", posterior)
        left = 1.0 - alpha * v
        own_mean, own_variance = (m - v * beta) / left, v / left
        log_mass, slope, bend = positive_part(own_mean, own_variance)
        kept = np.maximum(1.0 + own_variance * bend, _LEAST_VARIANCE)
        change = -bend / kept - alpha, (slope - own_mean * bend) / kept - beta
        moved = np.abs(change[1] - change[0] * m) * np.sqrt(v) + np.abs(change[0]) * v
        going = (moved.max(axis=1, initial=0.0) > tolerance) & (number < _UPDATES)
        share = 1.0 if number <= _DAMPED_AFTER else 0.5
        if going.sum() > _MOST_LEFT * len(live):
            alpha, beta = alpha + share * change[0], beta + share * change[1]
            continue
        # What has settled is done with; few observations take much longer than the others.
        own = 0.5 * np.log(left) + left * (own_mean * (beta - 0.5 * alpha * own_mean) + 0.5 * own_variance * beta**2)
        together = np.einsum("ni,ni->n", m, shift + beta) - np.einsum("ni,ni->n", mean[live], shift)
        _, log_determinant = np.linalg.slogdet(eye + covariance[live] * alpha[:, None, :])
        found[live] = 0.5 * together - 0.5 * log_determinant + (log_mass - own).sum(axis=1)
        alphas[live], betas[live] = alpha, beta
        if not going.any():
            break
        live, inverse, shift = live[going], inverse[going], shift[going]
        alpha, beta = (old[going] + share * new[going] for old, new in zip((alpha, beta), change, strict=True))
    return Orthant(found, alphas, betas)
