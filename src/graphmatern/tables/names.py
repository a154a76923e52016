"""Columns of names: how they are written, and which column holds those that are known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

__all__ = ["NameMatcher", "as_text", "as_written", "node_column"]


def as_written(columns: Sequence[Any]) -> list[Any]:
    """Turn columns of text into whole numbers, if all of them are whole numbers as one would write them."""
    numbers = []
    for column in columns:
        number = pd.to_numeric(column, errors="coerce")
        if number.isna().any() or (number.abs() >= 2**53).any() or (number % 1 != 0).any():
            return list(columns)
        whole = number.astype(np.int64)
        if (whole.astype(str) != column.astype(str)).any():  # "007", "1.0", "1e3"
            return list(columns)
        numbers.append(whole)
    return numbers


def as_text(entry: Any) -> str:
    """How a name reads; a whole number without a decimal point."""
    if isinstance(entry, float | np.floating) and np.isfinite(entry) and float(entry).is_integer():
        return str(int(entry))
    return str(entry).strip()


class NameMatcher:
    """Looks names up by how they read: 7, 7.0 and "7" are one name, unless there are several of these.

    Parameters
    ----------
    names : pandas.Index
        What there is.
    """

    def __init__(self, names: pd.Index[Any]) -> None:
        self._texts = pd.Index([as_text(name) for name in names], dtype=object)
        self._names = names
        self._is_clear = not self._texts.has_duplicates

    def codes(self, column: Iterable[Any]) -> NDArray[np.int64]:
        """Positions of names, −1 where there is none; shape (n_entries,)."""
        entries = list(column)
        if self._is_clear:
            texts = pd.Index([as_text(entry) for entry in entries], dtype=object)
            return np.asarray(self._texts.get_indexer(texts), dtype=np.int64)
        exact = {name: place for place, name in enumerate(self._names)}
        return np.array([exact.get(entry, -1) for entry in entries], dtype=np.int64)

    def share(self, column: pd.Series[Any]) -> float:
        """Share of names among the entries that are there; 0 where none is."""
        known = column.dropna()
        return float((self.codes(known) >= 0).mean()) if len(known) else 0.0


def node_column(table: pd.DataFrame, matcher: NameMatcher, taken: Sequence[Any] = ()) -> Any:
    """Column most of whose entries are names, the first of equals; None where no entry is one."""
    shares = {column: matcher.share(table[column]) for column in table.columns if column not in taken}
    best = max(shares, key=lambda column: shares[column], default=None)
    return None if best is None or shares[best] == 0.0 else best
