"""Rows of other processes that products need, fetched before every product."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from graphmatern.distributed._processes import Processes

    Longs = NDArray[np.int64]

__all__ = ["Halo"]


class Halo:
    """Rows of blocks of vectors that other processes hold.

    Parameters
    ----------
    processes : Processes
        All of them.
    n_here : int
        Rows of this process.
    ghosts : ndarray of int64, shape (n_ghosts,)
        Numbers of the rows that it needs, ascending, as the processes hold them one after the other.
    """

    def __init__(self, processes: Processes, n_here: int, ghosts: Longs) -> None:
        self._processes, self.ghosts = processes, ghosts
        first = processes.before(n_here)
        starts = np.array(processes.gathered(first))
        owners = np.searchsorted(starts, ghosts, side="right") - 1
        (asked,), sent = processes.send([ghosts], owners)
        self._asked = asked - first
        self._counts, self._incoming = sent.incoming, sent.counts
        self._room: dict[str, NDArray[Any]] = {}

    def fetch(self, block: NDArray[Any]) -> NDArray[Any]:
        """Rows of a block that all processes have, in memory that the next call overwrites; shape (n_ghosts, k)."""
        sent = self._of("sent", block, len(self._asked))
        np.take(block, self._asked, axis=0, out=sent, mode="clip")  # else numpy makes a copy of all first
        found = self._of("found", block, len(self.ghosts))
        self._processes.swap(sent, self._counts, found, self._incoming)
        return found

    def _of(self, name: str, like: NDArray[Any], n_rows: int) -> NDArray[Any]:
        """Memory for rows like those of a block, the same as last time where that suffices."""
        size = n_rows * like.shape[1] * like.itemsize
        if name not in self._room or self._room[name].size < size:
            self._room[name] = np.empty(size, dtype=np.uint8)
        return self._room[name][:size].view(like.dtype).reshape(n_rows, like.shape[1])
