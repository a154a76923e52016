"""How good predictions with uncertainty are, against values that were held back.

All functions drop cells whose true value is NaN (not observed) and average over the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import ndtr, ndtri

from graphmatern._validation import FaultList, as_numbers
from graphmatern.errors import TableError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Floats = NDArray[np.float64]

__all__ = ["coverage", "crps", "nlpd", "r2", "regression_report", "rmse"]


def _aligned(y: ArrayLike, mean: ArrayLike, std: ArrayLike | None = None) -> tuple[Floats, Floats, Floats]:
    """True values, means and standard deviations where there is a true value; one dimension each."""
    faults = FaultList("no score", TableError)
    ignored = FaultList("", TableError)
    values = as_numbers(y, "y", ignored)
    means = as_numbers(mean, "mean", faults)
    deviations = np.ones_like(means) if std is None else as_numbers(std, "std", faults, minimum=0.0, above=True)
    for name, array in (("mean", means), ("std", deviations)):
        if array.shape != values.shape:
            faults.add(name, f"must have the shape {values.shape} of `y`", f"shape {array.shape}", "One per value.")
    faults.raise_if_any()
    known = ~np.isnan(values)
    if not known.any():
        raise faults.raise_now("y", "must hold at least one value", f"shape {values.shape}", "NaN cells are dropped.")
    return values[known], means[known], deviations[known]


def rmse(y: ArrayLike, mean: ArrayLike) -> float:
    """Root mean squared error.

    Parameters
    ----------
    y : array_like, any shape
        True values; NaN cells are dropped.
    mean : array_like, shape of ``y``
        Predictions.

    Examples
    --------
    >>> rmse([1.0, 2.0], [1.0, 4.0])
    1.4142135623730951
    """
    values, means, _ = _aligned(y, mean)
    return float(np.sqrt(np.mean((values - means) ** 2)))


def r2(y: ArrayLike, mean: ArrayLike) -> float:
    """Share of the variance of ``y`` that predictions explain; 1 is perfect, 0 is what the mean of ``y`` reaches.

    Parameters
    ----------
    y : array_like, any shape
        True values; NaN cells are dropped.
    mean : array_like, shape of ``y``
        Predictions.

    Returns
    -------
    float
        NaN where all values are equal and not predicted exactly: no share can be named.

    Examples
    --------
    >>> r2([1.0, 2.0, 3.0], [1.0, 2.0, 3.0])
    1.0
    """
    values, means, _ = _aligned(y, mean)
    left, total = np.sum((values - means) ** 2), np.sum((values - values.mean()) ** 2)
    if total == 0.0:
        return 1.0 if left == 0.0 else float("nan")
    return float(1.0 - left / total)


def nlpd(y: ArrayLike, mean: ArrayLike, std: ArrayLike) -> float:
    """Average negative log density of the true values under normal predictions, in nats; less is better.

    Parameters
    ----------
    y : array_like, any shape
        True values; NaN cells are dropped.
    mean, std : array_like, shape of ``y``
        Predictions; for noisy values, ``std`` is that of a new observation.

    Examples
    --------
    >>> round(nlpd([0.0], [0.0], [1.0]), 4)
    0.9189
    """
    values, means, deviations = _aligned(y, mean, std)
    z = (values - means) / deviations
    return float(np.mean(0.5 * z**2 + np.log(deviations) + 0.5 * np.log(2 * np.pi)))


def crps(y: ArrayLike, mean: ArrayLike, std: ArrayLike) -> float:
    """Average continuous ranked probability score of normal predictions, in the units of ``y``; less is better.

    Parameters
    ----------
    y : array_like, any shape
        True values; NaN cells are dropped.
    mean, std : array_like, shape of ``y``
        Predictions; for noisy values, ``std`` is that of a new observation.

    Notes
    -----
    The closed form of Gneiting and Raftery (2007): σ (z (2Φ(z) − 1) + 2φ(z) − 1/√π) with z = (y − μ)/σ.

    Examples
    --------
    >>> round(crps([0.0], [0.0], [1.0]), 4)
    0.2337
    """
    values, means, deviations = _aligned(y, mean, std)
    z = (values - means) / deviations
    density = np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi)
    return float(np.mean(deviations * (z * (2 * ndtr(z) - 1) + 2 * density - 1 / np.sqrt(np.pi))))


def coverage(y: ArrayLike, mean: ArrayLike, std: ArrayLike, level: float = 0.95) -> float:
    """Share of the true values inside central intervals; near ``level`` where predictions are calibrated.

    Parameters
    ----------
    y : array_like, any shape
        True values; NaN cells are dropped.
    mean, std : array_like, shape of ``y``
        Predictions; for noisy values, ``std`` is that of a new observation.
    level : float
        Probability of the intervals.

    Examples
    --------
    >>> coverage([0.0, 3.0], [0.0, 0.0], [1.0, 1.0])
    0.5
    """
    values, means, deviations = _aligned(y, mean, std)
    return float(np.mean(np.abs(values - means) <= half_width(level) * deviations))


def half_width(level: Any) -> float:
    """Half the width of the central interval of a standard normal variable; refuses what is no probability."""
    if not isinstance(level, float | int | np.floating) or not 0.0 < level < 1.0:
        faults = FaultList("no interval", TableError)
        raise faults.raise_now("level", "must lie between 0 and 1", repr(level), "0.95 is usual.")
    return float(ndtri(0.5 + 0.5 * level))


def regression_report(y: ArrayLike, mean: ArrayLike, std: ArrayLike) -> dict[str, float]:
    """All scores at once.

    Parameters
    ----------
    y : array_like, any shape
        True values; NaN cells are dropped.
    mean, std : array_like, shape of ``y``
        Predictions; for noisy values, ``std`` is that of a new observation.

    Returns
    -------
    dict
        rmse, r2, nlpd, crps, coverage_50, coverage_90, coverage_95.

    Examples
    --------
    >>> sorted(regression_report([0.0, 1.0], [0.0, 0.5], [1.0, 1.0]))
    ['coverage_50', 'coverage_90', 'coverage_95', 'crps', 'nlpd', 'r2', 'rmse']
    """
    found = {"rmse": rmse(y, mean), "r2": r2(y, mean), "nlpd": nlpd(y, mean, std), "crps": crps(y, mean, std)}
    return found | {f"coverage_{k}": coverage(y, mean, std, k / 100) for k in (50, 90, 95)}
