"""How good predictions with uncertainty are, against values that were held back.

Functions of numbers drop cells whose true value is NaN (not observed) and average over the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import ndtr, ndtri

from graphmatern._validation import FaultList, abbreviate, as_numbers, check_whole
from graphmatern.errors import TableError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    Floats = NDArray[np.float64]

__all__ = [
    "accuracy",
    "classification_report",
    "coverage",
    "crps",
    "expected_calibration_error",
    "log_loss",
    "nlpd",
    "r2",
    "regression_report",
    "reliability_curve",
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


# ---------------------------------------------------------------------- classes
def _label_codes(y: Sequence[Any], classes: Sequence[Any], shape: tuple[int, ...], argument: str) -> NDArray[np.int64]:
    """Places of labels among the classes; every label must be one of them."""
    faults = FaultList("no score", TableError)
    place = {label: k for k, label in enumerate(classes)}
    labels = list(y)
    strange = [label for label in dict.fromkeys(labels) if label not in place]
    if strange:
        faults.add(argument, f"must hold labels among {abbreviate(classes)}", abbreviate(strange), "Correct them.")
    if shape != (len(labels), len(place)):
        rule = f"must have shape ({len(labels)}, {len(place)}), a row per label and a column per class"
        faults.add("probabilities", rule, f"shape {shape}", "See `predict_proba`.")
    if not labels:
        faults.add(argument, "must hold at least one label", "none", "Score some nodes.")
    faults.raise_if_any()
    return np.array([place[label] for label in labels], dtype=np.int64)


def accuracy(y: Sequence[Any], predicted: Sequence[Any]) -> float:
    """Share of labels that were predicted.

    Parameters
    ----------
    y : sequence of hashable, shape (n,)
        True labels.
    predicted : sequence of hashable, shape (n,)
        Predictions.

    Examples
    --------
    >>> accuracy(["a", "b"], ["a", "a"])
    0.5
    """
    truth, guess = list(y), list(predicted)
    if len(truth) != len(guess) or not truth:
        faults = FaultList("no score", TableError)
        received = f"{len(guess)} for {len(truth)}"
        raise faults.raise_now("predicted", "must have one prediction per label, of at least one", received, "Check.")
    return float(np.mean([own == its for own, its in zip(truth, guess, strict=True)]))


def log_loss(y: Sequence[Any], probabilities: ArrayLike, classes: Sequence[Any]) -> float:
    """Average negative log probability of the true labels, in nats; less is better.

    Parameters
    ----------
    y : sequence of hashable, shape (n,)
        True labels.
    probabilities : array_like, shape (n, n_classes)
        Predictions.
    classes : sequence of hashable, shape (n_classes,)
        Labels of the columns.

    Examples
    --------
    >>> round(log_loss(["a"], [[0.5, 0.5]], ["a", "b"]), 4)
    0.6931
    """
    share = np.asarray(probabilities, dtype=np.float64)
    codes = _label_codes(y, classes, share.shape, "y")
    return float(-np.mean(np.log(np.maximum(share[np.arange(len(codes)), codes], np.finfo(float).tiny))))


def reliability_curve(
    y: Sequence[Any], probabilities: ArrayLike, classes: Sequence[Any], n_bins: int = 10
) -> dict[str, Floats]:
    """How often predictions made with some confidence are right.

    Parameters
    ----------
    y : sequence of hashable, shape (n,)
        True labels.
    probabilities : array_like, shape (n, n_classes)
        Predictions; the confidence is the largest of a row.
    classes : sequence of hashable, shape (n_classes,)
        Labels of the columns.
    n_bins : int
        Bins of equal width between 0 and 1; empty ones are left out.

    Returns
    -------
    dict of ndarray
        confidence (average), accuracy, count: one entry per bin.

    Examples
    --------
    >>> curve = reliability_curve(["a", "b"], [[0.9, 0.1], [0.9, 0.1]], ["a", "b"])
    >>> curve["confidence"], curve["accuracy"]
    (array([0.9]), array([0.5]))
    """
    faults = FaultList("no score", TableError)
    check_whole("n_bins", n_bins, faults, minimum=1, remedy="10 is usual.")
    faults.raise_if_any()
    share = np.asarray(probabilities, dtype=np.float64)
    codes = _label_codes(y, classes, share.shape, "y")
    confidence, right = share.max(axis=1), share.argmax(axis=1) == codes
    place = np.minimum((confidence * n_bins).astype(np.int64), n_bins - 1)
    count = np.bincount(place, minlength=n_bins)
    used = count > 0
    mean, hits = (np.bincount(place, weights=x, minlength=n_bins)[used] / count[used] for x in (confidence, right))
    return {"confidence": mean, "accuracy": hits, "count": count[used].astype(np.float64)}


def expected_calibration_error(
    y: Sequence[Any], probabilities: ArrayLike, classes: Sequence[Any], n_bins: int = 10
) -> float:
    """Average distance between confidence and accuracy over the bins of a `reliability_curve`; less is better.

    Parameters
    ----------
    y : sequence of hashable, shape (n,)
        True labels.
    probabilities : array_like, shape (n, n_classes)
        Predictions.
    classes : sequence of hashable, shape (n_classes,)
        Labels of the columns.
    n_bins : int
        Bins of equal width between 0 and 1.

    Examples
    --------
    >>> round(expected_calibration_error(["a", "b"], [[0.9, 0.1], [0.9, 0.1]], ["a", "b"]), 3)
    0.4
    """
    curve = reliability_curve(y, probabilities, classes, n_bins)
    return float(np.average(np.abs(curve["confidence"] - curve["accuracy"]), weights=curve["count"]))


def classification_report(y: Sequence[Any], probabilities: ArrayLike, classes: Sequence[Any]) -> dict[str, float]:
    """All scores at once.

    Parameters
    ----------
    y : sequence of hashable, shape (n,)
        True labels.
    probabilities : array_like, shape (n, n_classes)
        Predictions.
    classes : sequence of hashable, shape (n_classes,)
        Labels of the columns.

    Returns
    -------
    dict
        accuracy, log_loss, calibration_error.

    Examples
    --------
    >>> sorted(classification_report(["a"], [[0.5, 0.5]], ["a", "b"]))
    ['accuracy', 'calibration_error', 'log_loss']
    """
    loss = log_loss(y, probabilities, classes)  # first: it checks the shapes
    most = np.asarray(probabilities, dtype=np.float64).argmax(axis=1)
    return {
        "accuracy": accuracy(y, [classes[k] for k in most]),
        "log_loss": loss,
        "calibration_error": expected_calibration_error(y, probabilities, classes),
    }
