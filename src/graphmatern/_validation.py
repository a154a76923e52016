"""Collecting every fault of an input before raising one exception that lists them all."""

from __future__ import annotations

import inspect
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from graphmatern.errors import Fault, InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from graphmatern.errors import GraphMaternWarning

__all__ = [
    "FaultList",
    "abbreviate",
    "as_numbers",
    "check_choice",
    "check_positive",
    "check_whole",
    "describe_rows",
    "warn",
]

_SHOWN = 5  # items of a long list that a message spells out


def abbreviate(items: Iterable[object], total: int | None = None) -> str:
    """Spell out the first few items and count the rest.

    Examples
    --------
    >>> abbreviate(["a", "b"])
    "'a', 'b'"
    >>> abbreviate(range(1000))
    '0, 1, 2, 3, 4, ... (1000 in all)'
    """
    known = list(items)
    count = len(known) if total is None else total
    shown = ", ".join(_short_repr(item) for item in known[:_SHOWN])
    return shown if count <= _SHOWN else f"{shown}, ... ({count} in all)"


def describe_rows(bad: np.ndarray[Any, np.dtype[np.bool_]], values: Sequence[object] | np.ndarray) -> str:
    """Describe the values at which a mask is true, with their positions.

    Examples
    --------
    >>> describe_rows(np.array([False, True]), [1.0, -2.0])
    '-2.0 at position 1'
    """
    positions = np.flatnonzero(bad)
    shown = [f"{_short_repr(values[p])} at position {p}" for p in positions[:_SHOWN]]
    text = ", ".join(shown)
    return text if len(positions) <= _SHOWN else f"{text}, ... ({len(positions)} in all)"


def _short_repr(item: object) -> str:
    """Return ``repr`` without NumPy's type names, cut to a readable length."""
    text = repr(item.item() if isinstance(item, np.generic) else item)
    return text if len(text) <= 60 else text[:57] + "..."


class FaultList:
    """Faults found so far; `raise_if_any` turns them into one exception.

    Parameters
    ----------
    subject : str
        What is being made or done; the first words of the message.
    error : type of InputError
        The exception to raise.

    Examples
    --------
    >>> faults = FaultList("no graph was made")
    >>> faults.add("weight", "must be at least 0", "-1.0", "Use positive weights.")
    >>> len(faults)
    1
    """

    def __init__(self, subject: str, error: type[InputError] = InputError) -> None:
        self._subject = subject
        self._error = error
        self._faults: list[Fault] = []

    def __len__(self) -> int:
        return len(self._faults)

    def add(self, argument: str, rule: str, received: str, remedy: str) -> None:
        """Note one fault."""
        self._faults.append(Fault(argument, rule, received, remedy))

    def raise_if_any(self) -> None:
        """Raise the exception with all faults noted so far, if there are any."""
        if self._faults:
            raise self._error(self._subject, self._faults)

    def raise_now(self, argument: str, rule: str, received: str, remedy: str) -> InputError:
        """Return the exception with one last fault added, for a caller that cannot go on."""
        self.add(argument, rule, received, remedy)
        return self._error(self._subject, self._faults)


def as_numbers(
    values: object,
    argument: str,
    faults: FaultList,
    *,
    minimum: float = -np.inf,
    above: bool = False,
    remedy: str = "Correct or remove these entries.",
) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return ``values`` as float64, noting as one fault each what is not a number or out of bounds.

    Parameters
    ----------
    values : array_like
        What the caller passed, of any shape.
    argument : str
        Its name, for the messages.
    faults : FaultList
        Where faults are noted.
    minimum : float
        Least value allowed.
    above : bool
        Whether ``minimum`` itself is refused.
    remedy : str
        What to do about values out of bounds.

    Returns
    -------
    ndarray of float64
        Entries that are not numbers are NaN.
    """
    try:
        numbers = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raw = np.asarray(values, dtype=object)
        numbers = np.array([_as_float(item) for item in raw.ravel()]).reshape(raw.shape)
    flat, shown = numbers.ravel(), np.asarray(values, dtype=object).ravel()
    infinite = ~np.isfinite(flat)
    if infinite.any():
        faults.add(argument, "must hold finite numbers", describe_rows(infinite, shown), remedy)
    low = flat <= minimum if above else flat < minimum
    low &= ~infinite
    if low.any():
        rule = f"must be {'above' if above else 'at least'} {minimum:g}"
        faults.add(argument, rule, describe_rows(low, flat), remedy)
    return numbers


def check_whole(
    argument: str, value: object, faults: FaultList, *, minimum: int, maximum: int | None = None, remedy: str
) -> None:
    """Note a fault unless ``value`` is a whole number within bounds."""
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not whole or value < minimum or (maximum is not None and value > maximum):  # type: ignore[operator]
        bounds = f"of at least {minimum}" if maximum is None else f"from {minimum} to {maximum}"
        faults.add(argument, f"must be a whole number {bounds}", _short_repr(value), remedy)


def check_positive(argument: str, value: Any, faults: FaultList, *, remedy: str) -> None:
    """Note a fault unless ``value`` is a positive finite number."""
    number = np.nan if isinstance(value, bool) else _as_float(value)
    if not (np.isfinite(number) and number > 0):
        faults.add(argument, "must be a positive, finite number", _short_repr(value), remedy)


def _as_float(item: Any) -> float:
    try:
        return float(item)
    except (TypeError, ValueError):
        return np.nan


def check_choice(argument: str, value: object, choices: Sequence[str], error: type[InputError]) -> None:
    """Raise unless ``value`` is one of ``choices``."""
    if value not in choices:
        spelled = " or ".join(repr(choice) for choice in choices)
        fault = Fault(argument, f"must be {spelled}", _short_repr(value), "Choose one of these.")
        raise error("wrong option", [fault])


def warn(message: str, category: type[GraphMaternWarning]) -> None:
    """Issue a warning that points at the caller's line outside this package."""
    frame = inspect.currentframe()
    level = 1
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "graphmatern":
        frame = frame.f_back
        level += 1
    warnings.warn(message, category, stacklevel=level)
