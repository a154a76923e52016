"""Skewed variables: normal ones, stretched to one side.

A shifted log-normal variable has any mean, variance and skewness γ, and is an increasing function of a standard normal
one: with ω³ + 3ω² − 4 = γ², h² = log ω and r² = ω − 1,

    x = ± [exp(± h z − h² / 2) − 1] / r,

of the sign of γ, has mean 0, variance 1 and skewness γ, and is z itself in the limit γ → 0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = ["relax", "stretch"]

_STRAIGHT = 1e-4  # skewness that shows nowhere


def _shape(skewness: Floats) -> tuple[Floats, Floats, Floats]:
    """Sign, h and r; shapes as ``skewness``."""
    size = np.maximum(np.abs(skewness), _STRAIGHT)
    root = np.cbrt(1.0 + 0.5 * size**2 + size * np.sqrt(1.0 + 0.25 * size**2))
    squared = (root - 1.0) ** 2 / root  # ω − 1, without cancellation
    return np.where(skewness < 0.0, -1.0, 1.0), np.sqrt(np.log1p(squared)), np.sqrt(squared)


def stretch(z: Floats | float, skewness: Floats) -> Floats:
    """A variable of mean 0, variance 1 and some skewness, from a standard normal one; shapes broadcast.

    Examples
    --------
    >>> stretch(np.array([-2.0, 0.0, 2.0]), np.array(-0.5)).round(3).tolist()
    [-2.239, 0.081, 1.752]
    """
    sign, h, r = _shape(skewness)
    return np.asarray(np.where(np.abs(skewness) < _STRAIGHT, z, sign * np.expm1(sign * h * z - 0.5 * h**2) / r))


def relax(x: Floats, skewness: Floats) -> Floats:
    """The standard normal variable that `stretch` maps to x, ±∞ where there is none; shapes broadcast."""
    sign, h, r = _shape(skewness)
    with np.errstate(divide="ignore", invalid="ignore"):
        found = sign * (np.log1p(np.maximum(sign * r * x, -1.0)) + 0.5 * h**2) / h
    return np.asarray(np.where(np.abs(skewness) < _STRAIGHT, x, found))
