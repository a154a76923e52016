"""Triangular solves with the factor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphmatern.sparse import _blas
from graphmatern.sparse._compile import inline, jit
from graphmatern.sparse._structure import SMALL_FRONT

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from graphmatern.sparse._blas import Blas
    from graphmatern.sparse._structure import Structure

    Ints = NDArray[np.int32]
    Longs = NDArray[np.int64]
    Floats = NDArray[np.float64]

__all__ = [
    "flip",
    "lower_many",
    "lower_one",
    "upper_many",
    "upper_one",
]


@jit
def lower_one(tree: Structure, factor: Floats, b: Floats, room: Floats) -> None:
    """Overwrite b (n,), in the order of the factor, by L⁻¹ b.

    ``room`` is as long as the longest list of rows.
    """
    for s in range(len(tree.height)):
        begin = tree.start[s]
        width = tree.start[s + 1] - begin
        height = tree.height[s]
        below = height - width
        row = tree.row_start[s]
        # What is subtracted from the rows below is collected first: they lie far apart in b.
        for k in range(width):
            column = tree.panel[s] + k * height
            x = b[begin + k] / factor[column + k]
            b[begin + k] = x
            for i in range(k + 1, width):
                b[begin + i] -= factor[column + i] * x
            column += width
            if k == 0:
                for i in range(below):
                    room[i] = factor[column + i] * x
            else:
                for i in range(below):
                    room[i] += factor[column + i] * x
        for i in range(below):
            b[tree.rows[row + i]] -= room[i]


@jit
def upper_one(tree: Structure, factor: Floats, b: Floats, room: Floats) -> None:
    """Overwrite b (n,), in the order of the factor, by L⁻ᵀ b."""
    for s in range(len(tree.height) - 1, -1, -1):
        begin = tree.start[s]
        width = tree.start[s + 1] - begin
        height = tree.height[s]
        below = height - width
        row = tree.row_start[s]
        for i in range(below):
            room[i] = b[tree.rows[row + i]]
        for k in range(width - 1, -1, -1):
            column = tree.panel[s] + k * height
            x = b[begin + k]
            for i in range(k + 1, width):
                x -= factor[column + i] * b[begin + i]
            for i in range(below):
                x -= factor[column + width + i] * room[i]
            b[begin + k] = x / factor[column + k]


@jit
def flip(tree: Structure, b: Floats) -> None:
    """Overwrite b (n, m), in the order of the factor, by S b, S being the signs of the pivots."""
    for k in range(len(tree.sign)):
        if tree.sign[k] < 0:
            for c in range(b.shape[1]):
                b[k, c] = -b[k, c]


@inline
def _by_loops(width: int, height: int, n_right: int) -> bool:
    """Decide whether a front is too small for BLAS."""
    return height <= SMALL_FRONT or width <= 2 or width * (height + 0.0) * n_right < 20_000


@inline
def _lower_small(tree: Structure, s: int, factor: Floats, b: Floats) -> None:
    begin = tree.start[s]
    width = tree.start[s + 1] - begin
    height = tree.height[s]
    row = tree.row_start[s] - width
    for k in range(width):
        column = tree.panel[s] + k * height
        x = b[begin + k]
        scale = 1.0 / factor[column + k]
        for c in range(b.shape[1]):
            x[c] *= scale
        for i in range(k + 1, height):
            y = b[begin + i] if i < width else b[tree.rows[row + i]]
            weight = factor[column + i]
            for c in range(b.shape[1]):
                y[c] -= weight * x[c]


@inline
def _upper_small(tree: Structure, s: int, factor: Floats, b: Floats) -> None:
    begin = tree.start[s]
    width = tree.start[s + 1] - begin
    height = tree.height[s]
    row = tree.row_start[s] - width
    for k in range(width - 1, -1, -1):
        column = tree.panel[s] + k * height
        x = b[begin + k]
        for i in range(k + 1, height):
            y = b[begin + i] if i < width else b[tree.rows[row + i]]
            weight = factor[column + i]
            for c in range(b.shape[1]):
                x[c] -= weight * y[c]
        scale = 1.0 / factor[column + k]
        for c in range(b.shape[1]):
            x[c] *= scale


# A row-major block of right-hand sides (rows, n_right) is, to BLAS, a column-major matrix (n_right,
# rows): its transpose.  So X = L⁻¹ B is computed as Xᵀ = Bᵀ L⁻ᵀ.


@inline
def _lower_large(blas: Blas, tree: Structure, s: int, factor: Floats, b: Floats, room: Floats) -> None:
    begin = tree.start[s]
    width = tree.start[s + 1] - begin
    height = tree.height[s]
    below = height - width
    m = b.shape[1]
    corner = factor.ctypes.data + 8 * tree.panel[s]
    x = b.ctypes.data + 8 * begin * m
    _blas.trsm(blas, True, True, m, width, corner, height, x, m)
    if below > 0:
        rows = corner + 8 * width
        _blas.gemm(blas, False, True, m, below, width, 1.0, x, m, rows, height, 0.0, room.ctypes.data, m)
        for i in range(below):
            y = b[tree.rows[tree.row_start[s] + i]]
            for c in range(m):
                y[c] -= room[i * m + c]


@inline
def _upper_large(blas: Blas, tree: Structure, s: int, factor: Floats, b: Floats, room: Floats) -> None:
    begin = tree.start[s]
    width = tree.start[s + 1] - begin
    height = tree.height[s]
    below = height - width
    m = b.shape[1]
    corner = factor.ctypes.data + 8 * tree.panel[s]
    x = b.ctypes.data + 8 * begin * m
    if below > 0:
        for i in range(below):
            y = b[tree.rows[tree.row_start[s] + i]]
            for c in range(m):
                room[i * m + c] = y[c]
        rows = corner + 8 * width
        _blas.gemm(blas, False, False, m, width, below, -1.0, room.ctypes.data, m, rows, height, 1.0, x, m)
    _blas.trsm(blas, True, False, m, width, corner, height, x, m)


@jit
def lower_many(tree: Structure, factor: Floats, b: Floats, room: Floats, table: Longs) -> None:
    """Overwrite b (n, m), row-major and in the order of the factor, by L⁻¹ b.

    ``room`` holds m times as many entries as the longest list of rows.
    """
    blas = _blas.workspace(table)
    for s in range(len(tree.height)):
        if _by_loops(tree.start[s + 1] - tree.start[s], tree.height[s], b.shape[1]):
            _lower_small(tree, s, factor, b)
        else:
            _lower_large(blas, tree, s, factor, b, room)


@jit
def upper_many(tree: Structure, factor: Floats, b: Floats, room: Floats, table: Longs) -> None:
    """Overwrite b (n, m), row-major and in the order of the factor, by L⁻ᵀ b."""
    blas = _blas.workspace(table)
    for s in range(len(tree.height) - 1, -1, -1):
        if _by_loops(tree.start[s + 1] - tree.start[s], tree.height[s], b.shape[1]):
            _upper_small(tree, s, factor, b)
        else:
            _upper_large(blas, tree, s, factor, b, room)
