"""Writing a search down as it goes, so that it can begin again where it was stopped.

A search is a deterministic function of what its objective returns. So its whole state is the list of these: whoever
repeats it with the list at hand gets to the same place without computing anything, and goes on from there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = ["Journal"]

_SAME = 1e-9  # relative difference of positions that are one, on different machines


class Journal:
    """What a search has asked for, and what it was told.

    Parameters
    ----------
    entries : sequence of dict
        What is known from before, in its order.
    save : callable
        Called with all entries whenever there is one more; they consist of numbers, texts and lists of these.

    Examples
    --------
    >>> import numpy as np
    >>> kept = []
    >>> journal = Journal([{"what": "evaluation", "at": [1.0], "value": 2.5}], kept.append)
    >>> journal.recall("evaluation", np.array([1.0]))["value"]
    2.5
    >>> journal.recall("evaluation", np.array([3.0])) is None
    True
    >>> journal.add("evaluation", np.array([3.0]), value=0.5)
    >>> len(kept[-1])
    2
    """

    def __init__(self, entries: Sequence[dict[str, Any]], save: Callable[[list[dict[str, Any]]], None]) -> None:
        self._entries, self._save, self._next = list(entries), save, 0

    def recall(self, what: str, position: Floats) -> dict[str, Any] | None:
        """What was told when this was asked last time; None where it was not, from where on nothing is recalled."""
        if self._next >= len(self._entries):
            return None
        entry = self._entries[self._next]
        known = np.asarray(entry["at"], dtype=np.float64)
        same = entry["what"] == what and known.shape == position.shape
        if not same or not np.allclose(known, position, rtol=_SAME, atol=_SAME):
            del self._entries[self._next :]
            return None
        self._next += 1
        return entry

    def add(self, what: str, position: Floats, **told: Any) -> None:
        """Write down what was told."""
        del self._entries[self._next :]
        self._entries.append({"what": what, "at": position.tolist(), **told})
        self._next = len(self._entries)
        self._save(self._entries)
