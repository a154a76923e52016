"""Scrambled Halton points: those of `scipy.stats.qmc.Halton`, whose import takes longer than a small fit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["scrambled_halton"]

_BITS = 54  # of the digits that are scrambled


def scrambled_halton(d: int, count: int, seed: int) -> NDArray[np.float64]:
    """Points that fill the unit cube evenly; shape (count, d).

    Each coordinate is the radical inverse in a prime base, its digits permuted at random, place by place (Owen 2017).
    """
    rng = np.random.default_rng(seed)
    columns = []
    for base in _primes(d):
        places = int(np.ceil(_BITS / np.log2(base))) - 1
        permutations = np.repeat(np.arange(base)[None], places, axis=0)
        for one in permutations:
            rng.shuffle(one)
        left, found, unit = np.arange(count), np.zeros(count), 1.0 / base
        for one in permutations:
            left, digits = np.divmod(left, base)
            found += one[digits] * unit
            unit /= base
        columns.append(found)
    return np.column_stack(columns)


def _primes(count: int) -> list[int]:
    found: list[int] = []
    number = 2
    while len(found) < count:
        if all(number % one for one in found):
            found.append(number)
        number += 1
    return found
