"""Collecting every fault of an input before raising one exception that lists them all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from graphmatern.errors import Fault, InputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["FaultList", "abbreviate", "check_choice", "describe_rows"]

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


def check_choice(argument: str, value: object, choices: Sequence[str], error: type[InputError]) -> None:
    """Raise unless ``value`` is one of ``choices``."""
    if value not in choices:
        spelled = " or ".join(repr(choice) for choice in choices)
        fault = Fault(argument, f"must be {spelled}", _short_repr(value), "Choose one of these.")
        raise error("wrong option", [fault])
