"""Inverses of many small matrices: LAPACK takes longer to be called than to invert one of nine rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from graphmatern.sparse._compile import inline, jit

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = ["small_inverses"]

_LANES = 8  # matrices that are inverted together, as processors do the same to so many numbers at once
_MANY, _ROWS = 1_000, 32  # matrices from which on compiled code pays, and rows up to which it does


def small_inverses(matrices: Floats) -> Floats:
    """Inverses of symmetric, positive definite matrices; shape (n, k, k).

    Examples
    --------
    >>> import numpy as np
    >>> small_inverses(np.array([[[2.0, 0.0], [0.0, 4.0]]]))
    array([[[0.5 , 0.  ],
            [0.  , 0.25]]])
    """
    n, k, _ = matrices.shape
    if n < _MANY or k > _ROWS:
        return np.asarray(np.linalg.inv(matrices))
    found = np.empty((n, k, k))
    _invert(np.ascontiguousarray(matrices, dtype=np.float64), found)
    return found


@inline
def _sweep(a: Floats, p: int, scaled: Floats, factor: Floats) -> None:
    """Sweep row p of several matrices, whose entries j stand side by side."""
    width, first = len(scaled), p * _LANES
    for t in range(width):
        factor[t] = a[p, first + t % _LANES]
    for t in range(width):
        scaled[t] = a[p, t] / factor[t]
    for lane in range(_LANES):
        scaled[first + lane] = 1.0 / a[p, first + lane]
    for i in range(len(a)):
        for t in range(width):
            factor[t] = a[i, first + t % _LANES]
        for lane in range(_LANES):
            a[i, first + lane] = 0.0
        for t in range(width):
            a[i, t] -= factor[t] * scaled[t]
    a[p] = scaled


@jit
def _invert(matrices: Floats, found: Floats) -> None:
    """Sweep all rows of each matrix; positive definite ones need no pivots."""
    n, k, _ = matrices.shape
    a, scaled, factor = np.empty((k, k * _LANES)), np.empty(k * _LANES), np.empty(k * _LANES)
    for start in range(0, n, _LANES):
        for lane in range(_LANES):
            own = matrices[min(start + lane, n - 1)]
            for i in range(k):
                for j in range(k):
                    a[i, j * _LANES + lane] = own[i, j]
        for p in range(k):
            _sweep(a, p, scaled, factor)
        for lane in range(min(_LANES, n - start)):
            for i in range(k):
                for j in range(k):
                    found[start + lane, i, j] = a[i, j * _LANES + lane]
