"""Names of nodes, spread over processes: who is who, and numbers that depend on the files alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from graphmatern.distributed._processes import Processes

    Longs = NDArray[np.int64]
    Names = NDArray[Any]

__all__ = ["NameDirectory", "block_bounds"]


def block_bounds(n: int, size: int) -> Longs:
    """Where the blocks of numbers begin and end that belong to each process, until something better is known."""
    return np.arange(size + 1, dtype=np.int64) * n // size


def _homes(names: Names, size: int) -> Longs:
    """Which process knows a name: any would do, as long as all agree."""
    hashed = pd.util.hash_array(names, categorize=False)
    return np.asarray(hashed % np.uint64(size), dtype=np.int64)


class NameDirectory:
    """Numbers nodes by where their names first stand in the files, as a `Graph` made of the same rows would.

    Parameters
    ----------
    processes : Processes
        All of them.
    names : ndarray, shape (n,)
        Names that this process has read: whole numbers or text, the same everywhere.
    places : ndarray of int64, shape (n,)
        Where they stand among the names of all files.

    Attributes
    ----------
    n_nodes : int
        How many there are.
    """

    def __init__(self, processes: Processes, names: Names, places: Longs) -> None:
        self._processes = processes
        codes, own = pd.factorize(names)
        own = np.asarray(own)
        first = np.full(len(own), np.iinfo(np.int64).max)
        np.minimum.at(first, codes, places)
        (known, stand), sent = processes.send([own, first], _homes(own, processes.size))
        number, self.names = pd.factorize(known)
        self.names = np.asarray(self.names)
        earliest = np.full(len(self.names), np.iinfo(np.int64).max)
        np.minimum.at(earliest, number, stand)
        self.numbers = self._ranked(earliest)
        self.n_nodes = int(processes.total(len(self.names)))
        self._index = pd.Index(self.names)
        self._keys: Longs = np.asarray(sent.answer(self.numbers[number]), dtype=np.int64)[codes]

    def take_keys(self) -> Longs:
        """Numbers of the nodes that were read, given away as they are many; shape (n,)."""
        keys, self._keys = self._keys, np.zeros(0, dtype=np.int64)
        return keys

    def _ranked(self, places: Longs) -> Longs:
        """How many places of all processes come before each; places are all different."""
        processes = self._processes
        most = int(processes.largest(int(places.max(initial=0)))) + 1
        bounds = block_bounds(most, processes.size)
        (received,), sent = processes.send([places], np.searchsorted(bounds, places, side="right") - 1)
        rank = np.empty(len(received), dtype=np.int64)
        rank[np.argsort(received)] = np.arange(len(received)) + processes.before(len(received))
        return np.asarray(sent.answer(rank), dtype=np.int64)

    def find(self, names: Names) -> Longs:
        """Numbers of nodes; −1 where there is none of that name; shape (n,)."""
        (asked,), sent = self._processes.send([names], _homes(names, self._processes.size))
        place = self._index.get_indexer(pd.Index(asked)) if len(self._index) else np.full(len(asked), -1)
        found = np.full(len(asked), -1, dtype=np.int64)
        found[place >= 0] = self.numbers[place[place >= 0]]
        return np.asarray(sent.answer(found), dtype=np.int64)
