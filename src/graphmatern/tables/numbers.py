"""Columns of numbers, which may be written as text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["is_fractional", "is_numeric", "share_of_numbers", "to_numbers"]


def to_numbers(column: pd.Series[Any]) -> NDArray[np.float64]:
    """Entries as numbers, NaN where there is none; shape (n_rows,)."""
    plain = pd.api.types.is_numeric_dtype(column.dtype) and not pd.api.types.is_bool_dtype(column.dtype)
    text = column if plain else column.astype("string")
    return np.asarray(pd.to_numeric(text, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan))


def share_of_numbers(column: pd.Series[Any]) -> float:
    """Share of numbers among the entries that are there; 0 where none is."""
    known = column.dropna()
    return float((~np.isnan(to_numbers(known))).mean()) if len(known) else 0.0


def is_numeric(column: pd.Series[Any]) -> bool:
    """Whether every entry that is there reads as a number, and there is one."""
    return share_of_numbers(column) == 1.0


def is_fractional(column: pd.Series[Any]) -> bool:
    """Whether a column holds numbers with decimals, which make poor names."""
    return is_numeric(column) and bool((to_numbers(column.dropna()) % 1 != 0).any())
