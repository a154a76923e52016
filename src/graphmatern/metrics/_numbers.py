"""Scores of predicted numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import betaincinv, ndtr, ndtri

from graphmatern._validation import FaultList, abbreviate, as_numbers
from graphmatern.errors import TableError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Floats = NDArray[np.float64]

__all__ = [
    "calibration_curve",
    "coverage",
    "crps",
    "crps_from_draws",
    "crps_from_quantiles",
    "half_width",
    "nlpd",
    "r2",
    "regression_report",
    "rmse",
]


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
    """Share of the variance of ``y`` that predictions explain; 1 is perfect, 0 as good as predicting the mean of ``y``.

    Parameters
    ----------
    y : array_like, any shape
        True values; NaN cells are dropped.
    mean : array_like, shape of ``y``
        Predictions.

    Returns
    -------
    float
        NaN if all values are equal and not predicted exactly: the share is then undefined.

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
    """Average negative log density of the true values under normal predictions, in nats; lower is better.

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
    """Average continuous ranked probability score of normal predictions, in the units of ``y``; lower is better.

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


def crps_from_quantiles(y: ArrayLike, quantiles: ArrayLike, levels: ArrayLike) -> float:
    """Average continuous ranked probability score of predictions given by their quantiles; lower is better.

    For predictions that are not normal, such as counts. In the units of ``y``.

    Parameters
    ----------
    y : array_like, any shape
        True values; NaN cells are dropped.
    quantiles : array_like, shape (n_levels, ...)
        Quantiles of new observations, one array like ``y`` per level.
    levels : array_like, shape (n_levels,)
        Their probabilities, increasing, between 0 and 1. Evenly spaced ones, (k − ½) / n for k = 1 to n, are best;
        the tails beyond the first and the last are ignored, so the score is a little low with few levels.

    Notes
    -----
    CRPS = 2 ∫ (1{y < q_τ} − τ) (q_τ − y) dτ over τ from 0 to 1 (Laio and Tamea 2007), each level standing for the
    probabilities that are nearer to it than to the others.

    Examples
    --------
    >>> from scipy.stats import poisson
    >>> levels = (np.arange(200) + 0.5) / 200
    >>> round(crps_from_quantiles([3.0], poisson.ppf(levels, 4.0)[:, None], levels), 3)
    0.584
    """
    faults = FaultList("no score", TableError)
    share = as_numbers(levels, "levels", faults)
    inside = share.ndim == 1 and len(share) > 0 and bool(((share > 0.0) & (share < 1.0)).all())
    if len(faults) == 0 and (not inside or (np.diff(share) <= 0.0).any()):
        faults.add("levels", "must increase, between 0 and 1", abbreviate(share.ravel()), "Give one per quantile.")
    values, points = _beside(y, quantiles, "quantiles", len(share) if share.ndim else 0, faults)
    edges = np.concatenate([[0.0], (share[1:] + share[:-1]) / 2.0, [1.0]])
    loss = ((values < points) - share[:, None]) * (points - values)
    return float(2.0 * np.mean(np.diff(edges) @ loss))


def crps_from_draws(y: ArrayLike, draws: ArrayLike) -> float:
    """Average continuous ranked probability score of predictions given by draws from them; lower is better.

    For predictions that are not normal, such as counts. In the units of ``y``.

    Parameters
    ----------
    y : array_like, any shape
        True values; NaN cells are dropped.
    draws : array_like, shape (n_draws, ...)
        Independent draws of new observations, at least two; two correct digits take hundreds.

    Notes
    -----
    E|X − y| − ½ E|X − X′| with the averages over draws, pairs of different draws for the second: without bias,
    whatever the number of draws (Zamo and Naveau 2018).

    Examples
    --------
    >>> round(crps_from_draws([1.0], [[0.0], [2.0], [4.0]]), 2)
    0.33
    """
    faults = FaultList("no score", TableError)
    count = int(np.shape(draws)[0]) if np.ndim(draws) else 0
    if count < 2:
        faults.add("draws", "must have at least two rows", f"{count}", "Draw more.")
    values, points = _beside(y, draws, "draws", count, faults)
    points = np.sort(points, axis=0)
    # Of n sorted draws, the k-th is the larger of k − 1 pairs and the smaller of n − k.
    larger = np.arange(count, dtype=np.float64)
    spread = (2.0 * larger - (count - 1.0)) @ points / (count * (count - 1.0))
    return float(np.mean(np.abs(points - values).mean(axis=0) - spread))


def _beside(y: ArrayLike, predicted: ArrayLike, name: str, count: int, faults: FaultList) -> tuple[Floats, Floats]:
    """True values, shape (n,), and what is predicted for each of them, shape (count, n); NaN cells are dropped."""
    values = as_numbers(y, "y", FaultList("", TableError))
    points = as_numbers(predicted, name, faults)
    if points.shape != (count, *values.shape):
        rule = f"must have shape {(count, *values.shape)}, an array like `y` per row"
        faults.add(name, rule, f"shape {points.shape}", "The first axis counts them.")
    known = ~np.isnan(values)
    if not known.any():
        faults.add("y", "must hold at least one value", f"shape {values.shape}", "NaN cells are dropped.")
    faults.raise_if_any()
    return values[known], points[:, known]


def coverage(y: ArrayLike, mean: ArrayLike, std: ArrayLike, level: float = 0.95) -> float:
    """Share of the true values inside central intervals; near ``level`` if predictions are calibrated.

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


def calibration_curve(pit: ArrayLike, levels: ArrayLike) -> tuple[Floats, Floats, Floats]:
    """Shares of values inside their central intervals, and the range in which they should be.

    Parameters
    ----------
    pit : array_like, shape (n,)
        Probabilities that predictions gave to values below each observed one (probability integral transforms).
    levels : array_like, shape (n_levels,)
        Probabilities of the intervals.

    Returns
    -------
    inside, low, high : ndarray, shape (n_levels,)
        Share inside; and a band that holds that of an ideal model with probability 95 % at each level, were the values
        independent of each other.

    Examples
    --------
    >>> inside, low, high = calibration_curve([0.1, 0.4, 0.6, 0.9], [0.5, 0.9])
    >>> inside.tolist()
    [0.5, 1.0]
    """
    faults = FaultList("no calibration", TableError)
    shares = as_numbers(pit, "pit", faults, minimum=0.0)
    asked = as_numbers(levels, "levels", faults, minimum=0.0)
    if shares.ndim != 1 or not len(shares) or (shares > 1.0).any():
        faults.add("pit", "must be one-dimensional, of shares from 0 to 1", f"shape {shares.shape}", "See `loo`.")
    faults.raise_if_any()
    n = len(shares)
    # Level at which each value just lies inside its interval; uniform for an ideal model.
    needed = np.sort(np.abs(2.0 * shares - 1.0))
    inside = np.searchsorted(needed, asked, side="right") / n
    low, high = (betaincinv(asked * n + 0.5, (1.0 - asked) * n + 0.5, q) for q in (0.025, 0.975))
    return inside, np.asarray(low, dtype=np.float64), np.asarray(high, dtype=np.float64)


def half_width(level: Any) -> float:
    """Half the width of the central interval of a standard normal variable.

    Parameters
    ----------
    level : float
        Probability of the interval, between 0 and 1.

    Examples
    --------
    >>> round(half_width(0.95), 2)
    1.96
    """
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
