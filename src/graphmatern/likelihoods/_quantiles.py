"""Quantiles of distributions whose distribution function, mean and variance are known."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.special import ndtri

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = ["find_quantile"]

_LARGEST_COUNT = 1e15
_STEPS = 200  # at most; some eight are usual
_EXACT = 1e-11  # of probabilities


def find_quantile(
    cdf: Callable[[Floats], Floats], level: float, mean: Floats, variance: Floats, *, whole: bool = False
) -> Floats:
    """Find where a distribution function reaches a level; shape (n,).

    Parameters
    ----------
    cdf : callable
        Probabilities of at most x, for x of shape (n,).
    level : float
        Between 0 and 1.
    mean, variance : ndarray, shape (n,)
        Of the distributions: by Cantelli's inequality they bound the quantile.
    whole : bool
        Whether these are counts.
    """
    deviation = np.sqrt(np.maximum(variance, 0.0))
    low = mean - deviation * np.sqrt((1.0 - level) / level)
    high = mean + deviation * np.sqrt(level / (1.0 - level))
    if whole:
        low, high = np.full_like(low, -1.0), np.ceil(np.clip(high, 0.0, _LARGEST_COUNT)) + 1.0
        while (high - low > 1.0).any():
            middle = np.floor(0.5 * (low + high))
            enough = cdf(middle) >= level
            low, high = np.where(enough, low, middle), np.where(enough, middle, high)
        return np.asarray(high)
    # On the probit scale, on which normal distribution functions are straight lines.
    target = float(ndtri(level))
    slack = 1e-9 * deviation + 1e-300
    low, high = low - slack, high + slack
    guess = mean + target * deviation

    def away(x: Floats) -> tuple[Floats, Floats]:
        share = cdf(x)
        return share - level, np.clip(ndtri(share), -8.0, 8.0) - target

    # Inverse quadratic interpolation where it is safe, bisection elsewhere (Chandrupatla 1997): the root lies between
    # a, the newest point, and b; c is the one before.
    a, b, share = low, high, np.clip((guess - low) / (high - low), 0.01, 0.99)
    at_a, at_b = away(a)[1], away(b)[1]
    x, found = guess, np.zeros(guess.shape, dtype=bool)
    for _ in range(_STEPS):
        x = np.where(found, x, a + share * (b - a))
        error, at_x = away(x)
        found |= (np.abs(error) <= _EXACT) | (np.abs(b - a) <= 1e-13 * np.maximum(1.0, np.abs(x)))
        if found.all():
            break
        beyond = np.sign(at_x) == np.sign(at_a)
        c, at_c = np.where(beyond, a, b), np.where(beyond, at_a, at_b)
        b, at_b = np.where(beyond, b, a), np.where(beyond, at_b, at_a)
        a, at_a = x, at_x
        with np.errstate(invalid="ignore", divide="ignore"):
            place, height = (a - b) / (c - b), (at_a - at_b) / (at_c - at_b)
            safe = (height**2 < place) & ((1.0 - height) ** 2 < 1.0 - place)
            inner = at_a / (at_b - at_a) * at_c / (at_b - at_c)
            inner += (c - a) / (b - a) * at_a / (at_c - at_a) * at_b / (at_c - at_b)
        share = np.clip(np.where(safe & np.isfinite(inner), inner, 0.5), 1e-14, 1.0 - 1e-14)
    return np.asarray(x)
