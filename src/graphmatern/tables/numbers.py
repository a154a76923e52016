"""Columns of numbers, which may be written as text, with decimal points or decimal commas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from graphmatern._validation import FaultList

__all__ = ["is_numeric", "looks_like_numbers", "read_numbers", "to_numbers", "uses_decimal_commas"]

_COMMA = r"[+-]?(?:\d{1,3}(?:\.\d{3})+|\d*),\d+(?:[eE][+-]?\d+)?"  # 20,5 and 1.234,5
_POINT = r"[+-]?(?:\d+\.\d*|\.\d+)(?:[eE][+-]?\d+)?"
_THOUSANDS = r"[+-]?[1-9]\d{0,2}(?:,\d{3})+"  # 1,234 may be either
_LIKE_A_NUMBER = r"[+-]?[.,]?\d[\d.,'’\s]*(?:[eE][+-]?\d+)?"


def _is_plain(column: pd.Series[Any]) -> bool:
    return pd.api.types.is_numeric_dtype(column.dtype) and not pd.api.types.is_bool_dtype(column.dtype)


def uses_decimal_commas(column: pd.Series[Any]) -> bool:
    """Whether some entries have a decimal comma, beyond doubt, and none a decimal point.

    Examples
    --------
    >>> uses_decimal_commas(pd.Series(["20,5", "1.234,5", "7"]))
    True
    >>> uses_decimal_commas(pd.Series(["1,234", "12,500"]))
    False
    """
    if _is_plain(column):
        return False
    text = column.dropna().astype(str)
    text = text if text.str.contains(",", regex=False).any() else text[:0]  # quick where there are a million rows
    commas = text.str.fullmatch(_COMMA) & ~text.str.fullmatch(_THOUSANDS)
    return bool(commas.any()) and not text.str.fullmatch(_POINT).any()


def to_numbers(column: pd.Series[Any]) -> NDArray[np.float64]:
    """Entries as numbers, NaN where there is none; shape (n_rows,)."""
    text = column if _is_plain(column) else column.astype("string")
    if uses_decimal_commas(column):
        pointed = text.str.replace(".", "", regex=False).str.replace(",", ".", regex=False)
        text = text.mask(text.str.fullmatch(_COMMA).fillna(False).astype(bool), pointed)
    return np.asarray(pd.to_numeric(text, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan))


def is_numeric(column: pd.Series[Any]) -> bool:
    """Whether every entry that is there reads as a number, and there is one."""
    known = column.dropna()
    return len(known) > 0 and not np.isnan(to_numbers(known)).any()


def looks_like_numbers(column: pd.Series[Any]) -> bool:
    """Whether numbers are meant: at least half of the entries look like some, or one has decimals.

    Then what does not read as a number is a slip of the pen.
    """
    if _is_plain(column):
        return True
    text = column.dropna().astype(str)
    return bool(text.str.fullmatch(_LIKE_A_NUMBER).mean() >= 0.5 or text.str.fullmatch(f"{_COMMA}|{_POINT}").any())


def read_numbers(
    column: pd.Series[Any],
    rule: str,
    faults: FaultList,
    *,
    remedy: str,
    minimum: float = -np.inf,
    above: bool = False,
    largest: float = np.finfo(np.float64).max,
    missing: bool = False,
) -> NDArray[np.float64]:
    """Entries as numbers; those that break the rule are noted as one fault, with their rows, counted from 1.

    Parameters
    ----------
    column : Series
        The column; its name stands in the message.
    rule : str
        What must hold, in words.
    faults : FaultList
        Where the fault is noted.
    remedy : str
        What to do about it.
    minimum, largest : float
        Bounds.
    above : bool
        Whether ``minimum`` itself is refused.
    missing : bool
        Whether empty entries, which become NaN, are allowed.

    Returns
    -------
    ndarray, shape (n_rows,)
    """
    numbers, empty = to_numbers(column), column.isna().to_numpy()
    inside = (np.abs(numbers) <= largest) & (numbers > minimum if above else numbers >= minimum)
    bad = np.flatnonzero(~(inside | empty) if missing else ~inside)
    if len(bad):
        shown = [f"{'nothing' if empty[row] else repr(column.iloc[row])[:40]} in row {row + 1}" for row in bad[:3]]
        received = ", ".join(shown) + ("" if len(bad) <= 3 else f", ... ({len(bad)} in all)")
        if any("," in str(column.iloc[row]) for row in bad):
            remedy = f"Write numbers with a decimal point and without separators: 1234.5. {remedy}"
        faults.add(str(column.name), rule, received, remedy)
    return numbers
