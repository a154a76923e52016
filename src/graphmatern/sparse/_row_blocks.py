"""Who holds which rows of blocks of vectors: everything here, or every process of several its own.

Algorithms that work on blocks with a row for each node sum over rows through `Rows`, and draw their probes by the rows'
numbers; then the same code runs on one machine and on many, with the same probes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Longs = NDArray[np.int64]

__all__ = ["Rows", "signs_of"]

_Sum = TypeVar("_Sum", float, int, "NDArray[np.float64]")

_GOLDEN, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def _mixed(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of SplitMix64 (Steele, Lea and Flood 2014): every bit depends on every bit."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(_FIRST)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(_SECOND)
    return numbers ^ (numbers >> np.uint64(31))


def signs_of(keys: Longs, count: int, seed: int, first: int = 0) -> Floats:
    """Random signs that depend on nothing but the number of a row, that of a probe, and a seed; (n_keys, count).

    Parameters
    ----------
    keys : ndarray of int64, shape (n_keys,)
        Numbers of rows.
    count : int
        Number of probes.
    seed : int
        At least 0.
    first : int
        Number of the first probe.

    Examples
    --------
    >>> import numpy as np
    >>> some = signs_of(np.arange(4), 3, seed=0)
    >>> np.array_equal(signs_of(np.array([2]), 2, seed=0, first=1), some[2:3, 1:])
    True
    """
    found = np.empty((len(keys), count))
    own = keys.astype(np.uint64) * np.uint64(_GOLDEN)
    for word in range(first // 64, -(-(first + count) // 64)):
        start = np.array([(seed << 20) + word + 1], dtype=np.uint64)
        mixed = _mixed(own + _mixed(start)).astype("<u8")
        bits = np.unpackbits(mixed.view(np.uint8).reshape(-1, 8), axis=1, bitorder="little")
        low, high = max(first, 64 * word), min(first + count, 64 * word + 64)
        found[:, low - first : high - first] = bits[:, low - 64 * word : high - 64 * word]
    found *= 2.0
    found -= 1.0
    return found


class Rows:
    """All rows, here.

    Parameters
    ----------
    n : int
        How many there are.

    Attributes
    ----------
    n, n_here : int
        Rows in all, and of this process.
    whole : bool
        Whether these are the same.
    keys : ndarray of int64, shape (n_here,)
        Numbers of this process's rows among all; they do not depend on who holds them.
    """

    whole = True

    def __init__(self, n: int) -> None:
        self.n = self.n_here = n
        self.keys: Longs = np.arange(n)

    @property
    def n_each(self) -> int:
        """Rows of each process, about: the same number everywhere."""
        return self.n

    # ------------------------------------------------------------------ what several processes do together
    def total(self, found: _Sum) -> _Sum:
        """Sum of what every process found in its rows; the same everywhere."""
        return found

    def largest(self, found: float) -> float:
        """The largest of what every process found."""
        return found

    def across(self, sums: Floats) -> Floats:
        """Sums over each connected component of this process's rows, from those over its own; shape (n, k)."""
        return sums

    def every(self, places: Longs) -> Longs:
        """Keys of what all processes named by places of theirs, ascending, each once."""
        return np.unique(places)

    # ------------------------------------------------------------------ what follows
    def find(self, keys: Longs) -> tuple[Longs, Longs]:
        """Places of rows that are here, and where they stand among the keys."""
        return keys, np.arange(len(keys))

    def taken(self, keys: Longs, block: Floats) -> Floats:
        """Rows of a block by their keys, the same everywhere; shape (n_keys, k)."""
        places, stand = self.find(keys)
        found = np.zeros((len(keys), block.shape[1]))
        found[stand] = block[places]
        return self.total(found)

    def units(self, keys: Longs) -> Floats:
        """Columns of the identity; shape (n_here, n_keys)."""
        places, stand = self.find(keys)
        found = np.zeros((self.n_here, len(keys)))
        found[places, stand] = 1.0
        return found

    def signs(self, count: int, seed: int, first: int = 0, at: Longs | None = None) -> Floats:
        """Probes of ±1, at all rows of this process or at some places; shape (n_here or n_places, count)."""
        return signs_of(self.keys if at is None else self.keys[at], count, seed, first)

    def dots(self, a: Floats, b: Floats) -> Floats:
        """Inner products of the columns of two blocks; shape (k,)."""
        return self.total(np.asarray(np.einsum("ij,ij->j", a, b)))
