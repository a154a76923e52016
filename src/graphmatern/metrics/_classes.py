"""Scores of predicted classes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from graphmatern._validation import FaultList, abbreviate, check_whole
from graphmatern.errors import TableError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    Floats = NDArray[np.float64]

__all__ = ["accuracy", "classification_report", "expected_calibration_error", "log_loss", "reliability_curve"]


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
    """Share of labels predicted correctly.

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
        raise faults.raise_now(
            "predicted",
            "must have one prediction per label, and at least one",
            received,
            "Pass arrays of equal length.",
        )
    return float(np.mean([own == its for own, its in zip(truth, guess, strict=True)]))


def log_loss(y: Sequence[Any], probabilities: ArrayLike, classes: Sequence[Any]) -> float:
    """Average negative log probability of the true labels, in nats; lower is better.

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
    """Average distance between confidence and accuracy over the bins of a `reliability_curve`; lower is better.

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
