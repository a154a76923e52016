"""From class labels of any type to codes, and back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from graphmatern._validation import FaultList, abbreviate, warn
from graphmatern.errors import GraphMaternWarning, TableError
from graphmatern.estimators._data import names_and_values, node_codes

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from graphmatern.graph import Graph

__all__ = ["LabelData", "label_array", "read_labels", "stored_labels"]


@dataclass(frozen=True, eq=False)
class LabelData:
    """Labelled nodes.

    Attributes
    ----------
    nodes : ndarray of int64, shape (n,)
        Positions of the labelled nodes.
    codes : ndarray of int64, shape (n,)
        Places of their labels in ``classes``.
    classes : ndarray, shape (n_classes,)
        The labels, sorted if possible.
    """

    nodes: NDArray[np.int64]
    codes: NDArray[np.int64]
    classes: NDArray[Any]


def read_labels(graph: Graph, nodes: Any, y: Any, classes: Any = None) -> LabelData:
    """Check what was passed to ``fit`` or ``score``; every fault is reported at once.

    Parameters
    ----------
    graph : Graph
        The graph.
    nodes : sequence of hashable, or Series
        Node names; or labels indexed by node name, where ``y`` is None.
    y : sequence of hashable, optional
        Labels; None, NaN and NA mean not labelled.
    classes : sequence of hashable, optional
        All labels there are; by default those of a categorical Series, or those that occur.
    """
    faults = FaultList("no labels were read", TableError)
    nodes, y = names_and_values(nodes, y, faults)
    if classes is None and isinstance(getattr(y, "dtype", None), pd.CategoricalDtype):
        classes = list(y.dtype.categories)
    _, places = node_codes(graph, nodes, faults)
    labels = _as_list(y, "y", faults)
    if len(labels) != len(places):
        raise faults.raise_now("y", f"must have {len(places)} labels, one per node", f"{len(labels)}", "Check them.")
    known = np.array([not _is_missing(label) for label in labels], dtype=bool)
    kept = [label for label, keep in zip(labels, known, strict=True) if keep]
    if not kept:
        raise faults.raise_now("y", "must hold at least one label", "none", "None and NaN mean not labelled.")
    if classes is None:
        _warn_of_unlabelled(kept)
    every = _in_order(kept) if classes is None else _distinct(_as_list(classes, "classes", faults))
    place = {label: k for k, label in enumerate(every)}
    strange = [label for label in _distinct(kept) if label not in place]
    if strange:
        faults.add("y", f"must hold labels among {abbreviate(every)}", abbreviate(strange), "Name all in `classes`.")
    faults.raise_if_any()
    codes = np.array([place[label] for label in kept], dtype=np.int64)
    return LabelData(places[known], codes, label_array(every))


def _as_list(values: Any, argument: str, faults: FaultList) -> list[Any]:
    """Labels as a list of plain, hashable values."""
    if isinstance(values, str) or not hasattr(values, "__iter__") or getattr(values, "ndim", 1) != 1:
        received = f"a {type(values).__name__}"
        raise faults.raise_now(argument, "must be a 1-D sequence of labels", received, "Use a list or a Series.")
    if getattr(values, "dtype", None) is not None and values.dtype.kind in "mM":
        values = pd.Index(values)  # NumPy would make integers of dates
    found = values.tolist() if hasattr(values, "tolist") else list(values)
    for label in found:
        try:
            hash(label)
        except TypeError:
            remedy = "Use texts, numbers, dates or tuples."
            raise faults.raise_now(argument, "must hold hashable labels", repr(label)[:60], remedy) from None
    return found


def _warn_of_unlabelled(labels: list[Any]) -> None:
    """Warn where −1 seems to stand for no label, as in scikit-learn's semi-supervised learning: most labels are −1."""
    others = {label for label in labels if label != -1}
    if 2 * labels.count(-1) > len(labels) and len(others) > 1 and all(type(one) is int and one >= 0 for one in others):
        warn(
            "most labels are -1, which is treated as a class of its own; use None or NaN for nodes without a label",
            GraphMaternWarning,
        )


def _is_missing(label: Any) -> bool:
    return label is None or label is pd.NA or label is pd.NaT or (isinstance(label, float) and np.isnan(label))


def _distinct(labels: Iterable[Any]) -> list[Any]:
    return list(dict.fromkeys(labels))


def _in_order(labels: Iterable[Any]) -> list[Any]:
    """Distinct labels, sorted if they can be compared, otherwise in order of appearance."""
    found = _distinct(labels)
    try:
        return sorted(found)
    except TypeError:
        return found


def label_array(labels: list[Any]) -> NDArray[Any]:
    """Labels as an array whose entries are the labels; tuples and mixtures of types are kept."""
    if len({type(label) for label in labels}) == 1 and isinstance(labels[0], str | int | float | bool):
        return np.array(labels)
    found = np.empty(len(labels), dtype=object)
    found[:] = labels
    return found


def stored_labels(labels: NDArray[Any]) -> Any:
    """Labels as stored in model files: dates as an index, which keeps their type."""
    every = labels.tolist()
    dates = all(isinstance(label, pd.Timestamp) for label in every)
    return pd.DatetimeIndex(every) if dates else every
