"""Collect every fault of an input before raising one exception that lists them all."""

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
    "described",
    "name_rows",
    "note_choice",
    "note_flag",
    "plain_array",
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


def described(value: object) -> str:
    """Name the type of a value, and its package: other packages have a Graph as well.

    Examples
    --------
    >>> import networkx
    >>> described(networkx.Graph()), described("a")
    ('a networkx Graph', 'a str')
    """
    package = type(value).__module__.partition(".")[0]
    return f"a {'' if package in ('builtins', 'graphmatern') else package + ' '}{type(value).__name__}"


def name_rows(rows: Iterable[int]) -> str:
    """Name rows by their numbers.

    Examples
    --------
    >>> name_rows([3]), name_rows([3, 5])
    ('row 3', 'rows 3, 5')
    """
    known = list(rows)
    return f"row{'s' if len(known) > 1 else ''} {abbreviate(known)}"


def describe_rows(bad: np.ndarray[Any, np.dtype[np.bool_]], values: Sequence[Any] | np.ndarray[Any, Any]) -> str:
    """Describe the values at which a mask is true, with their rows (and columns), counted from 0.

    Examples
    --------
    >>> describe_rows(np.array([False, True]), [1.0, -2.0])
    '-2.0 in row 1'
    """
    array = np.asarray(values)
    places = np.argwhere(bad)
    shown = []
    for place in places[:_SHOWN]:
        where = [f"row {place[0]}" if axis == 0 else f"column {place[axis]}" for axis in range(len(place))]
        shown.append(_short_repr(array[tuple(place)]) + (f" in {', '.join(where)}" if where else ""))
    text = ", ".join(shown)
    return text if len(places) <= _SHOWN else f"{text}, ... ({len(places)} in all)"


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
    """Return ``values`` as float64; note entries that are not numbers as one fault, those out of bounds as another.

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
    raw = plain_array(values)
    if raw is None:
        faults.add(argument, "must be an array of numbers", type(values).__name__, "Rows must be of equal length.")
        return np.full(0, np.nan)
    if raw.dtype.kind in "buif":
        numbers = np.array(raw, dtype=np.float64)  # a copy: the caller may go on to change theirs
    elif raw.dtype.kind in "OUST":
        numbers = np.array([_as_float(item) for item in raw.ravel()], dtype=np.float64).reshape(raw.shape)
    else:
        faults.add(argument, "must hold real numbers", f"type {raw.dtype}", "Convert them first.")
        return np.full(raw.shape, np.nan)
    infinite = ~np.isfinite(numbers)
    if infinite.any():
        faults.add(argument, "must hold finite numbers", describe_rows(infinite, raw), remedy)
    low = (numbers <= minimum if above else numbers < minimum) & ~infinite
    if low.any():
        rule = f"must be {'above' if above else 'at least'} {minimum:g}"
        faults.add(argument, rule, describe_rows(low, numbers), remedy)
    return numbers


def plain_array(values: Any) -> np.ndarray[Any, Any] | None:
    """Return anything array-like as an array, without interpretation; None if that fails."""
    if isinstance(values, np.ma.MaskedArray):
        return np.asarray(np.ma.filled(values.astype(np.float64), np.nan))
    try:
        if hasattr(values, "detach"):  # a tensor, of any device and precision
            values = values.detach().cpu().double()
        return np.asarray(values)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        try:
            return np.asarray(values, dtype=object)
        except ValueError:
            return None


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
    number = np.nan if isinstance(value, bool | np.bool_ | str) else _as_float(value)
    if not (np.isfinite(number) and number > 0):
        faults.add(argument, "must be a positive, finite number", _short_repr(value), remedy)


def check_flag(argument: str, value: object, error: type[InputError]) -> bool:
    """Return ``value`` as a bool; raise unless it is one."""
    faults = FaultList("wrong option", error)
    note_flag(argument, value, faults)
    faults.raise_if_any()
    return bool(value)


def note_flag(argument: str, value: object, faults: FaultList) -> None:
    """Note a fault unless ``value`` is a bool."""
    if not isinstance(value, bool | np.bool_):
        faults.add(argument, "must be True or False", _short_repr(value), "Choose one.")


def random_generator(random_state: Any, error: type[InputError]) -> np.random.Generator:
    """Return a generator for a seed: None, a whole number of at least 0, or a generator."""
    if random_state is None or isinstance(random_state, np.random.Generator):
        return np.random.default_rng(random_state)
    faults = FaultList("no random numbers", error)
    check_whole("random_state", random_state, faults, minimum=0, remedy="Leave it out for a random seed.")
    faults.raise_if_any()
    return np.random.default_rng(int(random_state))


def _as_float(item: Any) -> float:
    try:
        return float(item)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        return np.nan


def check_choice(argument: str, value: object, choices: Sequence[str], error: type[InputError]) -> None:
    """Raise unless ``value`` is one of ``choices``."""
    faults = FaultList("wrong option", error)
    note_choice(argument, value, choices, faults)
    faults.raise_if_any()


def note_choice(argument: str, value: object, choices: Sequence[str], faults: FaultList) -> None:
    """Note a fault unless ``value`` is one of ``choices``."""
    if not isinstance(value, str) or value not in choices:
        spelled = " or ".join(repr(choice) for choice in choices)
        faults.add(argument, f"must be {spelled}", _short_repr(value), "Choose one of these.")


def warn(message: str, category: type[GraphMaternWarning]) -> None:
    """Issue a warning that points at the caller's line outside this package."""
    frame = inspect.currentframe()
    level = 1
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "graphmatern":
        frame = frame.f_back
        level += 1
    warnings.warn(message, category, stacklevel=level)
