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
    # False position (Illinois) on the probit scale, on which normal distribution functions are straight lines.
    target = float(ndtri(level))
    slack = 1e-9 * deviation + 1e-300
    low, high = low - slack, high + slack

    def away(x: Floats) -> tuple[Floats, Floats]:
        share = cdf(x)
        return share - level, np.clip(ndtri(share), -8.0, 8.0) - target

    at_low, at_high = away(low)[1], away(high)[1]
    x = 0.5 * (low + high)
    for step in range(_STEPS):
        with np.errstate(invalid="ignore", divide="ignore"):
            inner = low - at_low * (high - low) / (at_high - at_low)
        usable = np.isfinite(inner) & (inner > low) & (inner < high) & (step % 8 != 7)
        x = np.where(usable, inner, 0.5 * (low + high))
        error, at_x = away(x)
        if (np.abs(error) <= _EXACT).all() or (high - low <= 1e-13 * np.maximum(1.0, np.abs(x))).all():
            break
        right = error >= 0
        at_low, at_high = np.where(right, 0.5 * at_low, at_x), np.where(right, at_x, 0.5 * at_high)
        low, high = np.where(right, low, x), np.where(right, x, high)
    return np.asarray(x)
