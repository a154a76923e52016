"""Whether a model can be trusted, as curves and sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from graphmatern.metrics import calibration_curve, reliability_curve
from graphmatern.report._content import number, percent

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from graphmatern.graph import Graph
    from graphmatern.kernels import Kernel

    Floats = NDArray[np.float64]

__all__ = ["class_checks", "number_checks", "range_check"]

_BINS = 10
_FEW = 8  # values: with fewer, a curve says nothing
_WHOLE = 2_000  # nodes up to which correlations are measured on the whole graph
_PART = 1_000  # nodes of the neighbourhood where they are measured otherwise


def number_checks(pit: ArrayLike, level: float = 0.95) -> dict[str, Any]:
    """Calibration of left-out numbers.

    Parameters
    ----------
    pit : array_like, shape (n,)
        Probability integral transforms, such as ``model.loo()["pit"]``; NaN is left out.
    level : float
        Probability of the interval that the verdict is about.

    Examples
    --------
    >>> number_checks(np.linspace(0.01, 0.99, 50))["verdict"][:40]
    'Each of the 50 values was left out and p'
    """
    shares = np.asarray(pit, dtype=np.float64)
    shares = shares[np.isfinite(shares)]
    n = len(shares)
    if n < _FEW:
        words = f"Too few values ({n}) to check predictions against." if n else ""
        return {"calibration": None, "pit": None, "verdict": words}
    levels = np.linspace(0.0, 1.0, 51)
    inside, low, high = calibration_curve(shares, levels)
    (hit,), (least,), (most,) = calibration_curve(shares, [level])
    words = (
        f"Each of the {n:,} values was left out and predicted from the others: {percent(hit)} of them lie in their "
        f"{percent(level)} intervals. "
    )
    if hit < least:
        words += "That is less than it should be: the intervals are too narrow."
    elif hit > most:
        words += "That is more than it should be: the intervals are wider than necessary."
    else:
        words += "That is as it should be: the intervals can be trusted."
    counts = np.histogram(shares, _BINS, (0.0, 1.0))[0]
    from scipy.stats import binom  # takes long to import

    low_count, high_count = (float(binom.ppf(q, n, 1.0 / _BINS)) for q in (0.025, 0.975))
    return {
        "calibration": {
            "title": "Intervals cover what they claim",
            "words": "The line should follow the dashed one; deviations within the grey band may be chance.",
            "x": "probability of the interval",
            "y": "share of values inside",
            "level": _rounded(levels),
            "inside": _rounded(inside),
            "low": _rounded(low),
            "high": _rounded(high),
        },
        "pit": {
            "title": "Values spread evenly over their predictions",
            "words": "Flat is good. A hump means too cautious, peaks at both ends overconfident, a slope biased.",
            "counts": counts.tolist(),
            "low": low_count,
            "high": high_count,
            "expected": n / _BINS,
        },
        "verdict": words,
    }


def class_checks(codes: ArrayLike, shares: ArrayLike) -> dict[str, Any]:
    """Calibration of left-out labels.

    Parameters
    ----------
    codes : array_like of int, shape (n,)
        True classes.
    shares : array_like, shape (n, n_classes)
        Probabilities given all other labels.

    Examples
    --------
    >>> class_checks([0, 1] * 10, [[0.9, 0.1], [0.2, 0.8]] * 10)["verdict"][:43]
    'Each of the 20 labels was left out and pred'
    """
    true, probabilities = np.asarray(codes), np.asarray(shares, dtype=np.float64)
    n = len(true)
    if n < _FEW:
        return {"calibration": None, "pit": None, "verdict": f"Too few labels ({n}) to check predictions against."}
    right = float((probabilities.argmax(axis=1) == true).mean())
    claimed = float(probabilities.max(axis=1).mean())
    words = (
        f"Each of the {n:,} labels was left out and predicted from the others: {percent(right)} were right, and the "
        f"model expected {percent(claimed)}."
    )
    curve = reliability_curve(true.tolist(), probabilities, range(probabilities.shape[1]), _BINS)
    confidence, counted = curve["confidence"], curve["count"]
    from scipy.stats import binom

    low, high = (binom.ppf(q, counted, confidence) / counted for q in (0.025, 0.975))
    return {
        "calibration": {
            "title": "Probabilities mean what they say",
            "words": "The line should follow the dashed one; deviations within the grey band may be chance.",
            "x": "probability of the predicted class",
            "y": "share of predictions that are right",
            "level": _rounded(confidence),
            "inside": _rounded(curve["accuracy"]),
            "low": _rounded(low),
            "high": _rounded(high),
        }
        if len(confidence) > 1
        else None,
        "pit": None,
        "verdict": words,
    }


def range_check(kernel: Kernel, graph: Graph, *, normalized: bool, unit: str) -> dict[str, Any] | None:
    """Correlation against distance along the edges, or None where there is none to show.

    On a large graph it is measured in a neighbourhood of a thousand nodes: correlations are local.
    """
    if graph.n_edges == 0:
        return None
    part, where = graph, ""
    if graph.n_nodes > _WHOLE:
        part, where = _neighbourhood(graph), f" Measured in a neighbourhood of {_PART:,} nodes."
    found = kernel.on(part, normalized=normalized).range()
    table = found.table
    if len(table) < 2:
        return None
    of_lengths = unit or "in the unit of the edges’ lengths"
    name = f"distance along the edges, {of_lengths if found.unit == 'length' else 'in edges'}"
    short = unit if found.unit == "length" else "edges"
    half, tenth = (number(one, short) for one in (found.half, found.tenth))
    words = (
        f"Half of the correlation is left after {half}" if np.isfinite(found.half) else "It never falls below one half"
    )
    words += f", a tenth after {tenth}." if np.isfinite(found.tenth) else "."
    distance = np.concatenate([[0.0], table["distance"]])
    # Beyond the reach of correlation there is nothing to see.
    end = max(3, int(np.searchsorted(distance, 3.0 * found.tenth)) + 1)
    columns = {name: np.concatenate([[1.0], table[name]])[:end] for name in ("low", "median", "high")}
    return {
        "title": "Correlation against distance",
        "words": f"{words} The band holds half of all pairs of nodes at that distance.{where}",
        "name": name,
        "distance": _rounded(distance[:end]),
        **{key: _rounded(one) for key, one in columns.items()},
    }


def _neighbourhood(graph: Graph) -> Graph:
    """The nodes nearest to one in the middle of the largest component, with the edges between them."""
    largest = np.flatnonzero(graph.components == np.bincount(graph.components).argmax())
    start = graph.nodes[largest[len(largest) // 2]]
    distance = graph.distances([start])[0]
    nearest = np.argsort(distance, kind="stable")[: min(_PART, len(largest))]
    return graph.subgraph(graph.nodes[np.sort(nearest)])


def _rounded(values: Floats) -> list[float]:
    return [float(f"{value:.5g}") for value in values]
