"""Times of observations: numbers or dates, checked, and as numbers in a unit."""

from __future__ import annotations

import datetime as dt
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from graphmatern._validation import FaultList, describe_rows, name_rows
from graphmatern.errors import TableError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = ["TIME_UNITS", "TimeAxis", "read_times"]

TIME_UNITS = ("s", "min", "h", "D", "W")
_OFFSET = re.compile(r"\d{2}:?\d{2}.*?(Z|[+-]\d{2}(?::?\d{2})?)$")
_WHAT = "must be numbers, dates, or texts in ISO 8601 form such as 2017-01-02 17:30"


def read_times(values: Any, argument: str, faults: FaultList) -> pd.Index[Any] | None:
    """Return times as an index of floats or of dates of one zone; what is wrong is noted, and None returned.

    Parameters
    ----------
    values : sequence
        Numbers, dates (pandas, NumPy or Python) or texts in ISO 8601 form.
    argument : str
        Its name, for the messages.
    faults : FaultList
        Where faults are noted.
    """
    if isinstance(values, str | bytes) or not hasattr(values, "__iter__"):
        faults.add(argument, "must be a sequence of times", repr(values), "Put it in a list, even a single one.")
        return None
    index = values if isinstance(values, pd.Index) else pd.Index(values, tupleize_cols=False)
    if index.nlevels > 1:
        faults.add(argument, _WHAT, f"{index.nlevels} levels", "Keep the level that holds the times.")
        return None
    if isinstance(index, pd.PeriodIndex):
        index = index.to_timestamp()
    missing = np.asarray(pd.isna(index), dtype=bool)
    if missing.any():
        received = f"none in {name_rows(np.flatnonzero(missing))}"
        faults.add(argument, "must have a time in every row", received, "Remove these rows.")
        return None
    if isinstance(index, pd.DatetimeIndex):
        return index
    if index.dtype.kind in "iuf":
        return _numbers(index.to_numpy(dtype=np.float64), argument, faults)
    if index.dtype.kind in "bmc":
        faults.add(argument, _WHAT, f"type {index.dtype}", "Convert them first.")
        return None
    return _from_objects(list(index), argument, faults)


def _numbers(values: Floats, argument: str, faults: FaultList) -> pd.Index[Any] | None:
    bad = ~np.isfinite(values)
    if bad.any():
        faults.add(argument, "must be finite", describe_rows(bad, values), "Correct or remove these rows.")
        return None
    return pd.Index(values)


def _from_objects(items: list[Any], argument: str, faults: FaultList) -> pd.Index[Any] | None:
    """Times of a column that pandas did not recognise: texts, Python dates, mixtures."""
    kinds = np.array([_kind(item) for item in items])
    unknown = kinds == "?"
    if unknown.any():
        received = describe_rows(unknown, np.array(items, dtype=object))
        remedy = "Correct these rows, or convert the column with pd.to_datetime and its format."
        faults.add(argument, _WHAT, received, remedy)
        return None
    if len(set(kinds)) > 1:
        received = " and ".join(f"{kind} in row {int(np.argmax(kinds == kind))}" for kind in sorted(set(kinds)))
        faults.add(argument, "must be all numbers or all dates", received, "Convert them to one kind.")
        return None
    if kinds[:1].tolist() == ["a number"]:
        return _numbers(np.array([_float(item) for item in items]), argument, faults)
    zones = np.array([_zone(item) for item in items])
    if len(set(zones)) > 1:
        received = ", ".join(f"{zone} in row {int(np.argmax(zones == zone))}" for zone in dict.fromkeys(zones))
        remedy = "Convert the column with pd.to_datetime(column, utc=True), which treats times without a zone as UTC."
        faults.add(argument, "must all have the same time zone, or none", received, remedy)
        return None
    has_zone = bool(len(zones)) and zones[0] != "no zone"
    if items and isinstance(items[0], str):
        stamps = pd.DatetimeIndex(pd.to_datetime(items, format="ISO8601", utc=has_zone))
        return stamps if not has_zone or zones[0] == "+00:00" else stamps.tz_convert(_offset(zones[0]))
    return pd.DatetimeIndex(items)


def _kind(item: Any) -> str:
    """What an item is: a number, a date, or neither."""
    if isinstance(item, int | float | np.integer | np.floating) and not isinstance(item, bool):
        return "a number"
    if isinstance(item, str):
        if not item.strip()[:1].isdigit():  # pandas knows words such as "now"
            return "?"
        return "?" if pd.isna(pd.to_datetime(item, format="ISO8601", errors="coerce", utc=True)) else "a date"
    return "a date" if isinstance(item, dt.date | np.datetime64) else "?"


def _zone(item: Any) -> str:
    """Name of a date's time zone, or of a text's offset."""
    if isinstance(item, str):
        found = _OFFSET.search(item.strip())
        if not found or ":" not in item:
            return "no zone"
        digits = found.group(1).replace("Z", "+0000").replace(":", "")
        return f"{digits[:3]}:{digits[3:] or '00'}".replace("-00:00", "+00:00")
    zone = getattr(item, "tzinfo", None)
    return "no zone" if zone is None else str(zone)


def _float(item: Any) -> float:
    try:
        return float(item)
    except OverflowError:
        return np.inf


def _offset(text: str) -> dt.timezone:
    hours, minutes = int(text[1:3]), int(text[3:].lstrip(":") or 0)
    return dt.timezone((1 if text[0] == "+" else -1) * dt.timedelta(hours=hours, minutes=minutes))


@dataclass(frozen=True)
class TimeAxis:
    """Conversion of times to numbers.

    Attributes
    ----------
    origin : Timestamp, optional
        The date that becomes 0; None if times are numbers, which are used as they are.
    unit : str
        The unit, if times are dates.
    """

    origin: pd.Timestamp | None
    unit: str

    @classmethod
    def of(cls, times: pd.Index[Any], unit: str) -> TimeAxis:
        """The axis for observed times, increasing."""
        return cls(times[0] if isinstance(times, pd.DatetimeIndex) else None, unit)

    def read(self, values: Any, argument: str = "times") -> pd.Index[Any]:
        """Check times to predict at: of the same kind, with a zone where the observed ones have one."""
        faults = FaultList("no prediction", TableError)
        index = read_times(values, argument, faults)
        if index is not None:
            received, expected = _describe(index), "numbers"
            if self.origin is not None:
                expected = "dates without a time zone" if self.origin.tzinfo is None else "dates with a time zone"
            if received != expected and len(index):
                faults.add(argument, f"must be {expected}, as those observed", received, "Convert them.")
        faults.raise_if_any()
        assert index is not None
        if isinstance(index, pd.DatetimeIndex) and self.origin is not None and self.origin.tzinfo is not None:
            return index.tz_convert(self.origin.tzinfo)
        return index

    def numbers(self, times: pd.Index[Any]) -> Floats:
        """Times as numbers; shape (n_times,)."""
        if self.origin is None:
            return np.asarray(times, dtype=np.float64)
        assert isinstance(times, pd.DatetimeIndex)
        return np.asarray((times - self.origin) / self.step(1.0), dtype=np.float64)

    def step(self, count: float) -> Any:
        """A difference of times, from a number of units."""
        return count if self.origin is None else pd.Timedelta(count, self.unit).round("us")  # type: ignore[arg-type]


def _describe(index: pd.Index[Any]) -> str:
    if not isinstance(index, pd.DatetimeIndex):
        return "numbers"
    return "dates without a time zone" if index.tz is None else "dates with a time zone"
