"""Values on the pattern that was analysed: checks, and reading matrices stored in panels."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from graphmatern.sparse._compile import jit
from graphmatern.sparse._numeric import SYMMETRY_TOLERANCE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from graphmatern.sparse._structure import Structure

    Ints = NDArray[np.int32]
    Longs = NDArray[np.int64]
    Floats = NDArray[np.float64]

__all__ = ["first_fault", "lower_triangle", "on_pattern", "trace"]

_CHUNK = 4096


@jit
def first_fault(tree: Structure, mirror: NDArray[np.integer], values: Floats) -> tuple[int, int]:
    """Return (code, position) of the first value at fault: 0 none, 1 not finite, 2 not symmetric."""
    for j in range(len(tree.entry_start) - 1):
        if not np.isfinite(values[tree.source[tree.entry_start[j]]]):
            return 1, tree.source[tree.entry_start[j]]
    for j in range(len(tree.entry_start) - 1):
        s = tree.supernode[j]
        width = tree.start[s + 1] - tree.start[s]
        own = abs(values[tree.source[tree.entry_start[j]]])
        for k in range(tree.entry_start[j] + 1, tree.entry_start[j + 1]):
            p = tree.source[k]
            row = tree.entry_row[k]
            i = tree.start[s] + row if row < width else tree.rows[tree.row_start[s] + row - width]
            other = abs(values[tree.source[tree.entry_start[i]]])
            difference = abs(values[p] - values[mirror[k]])
            if not difference <= SYMMETRY_TOLERANCE * (own + other):  # also if it is NaN
                finite = np.isfinite(values[p]) and np.isfinite(values[mirror[k]])
                if finite:
                    return 2, p
                return 1, mirror[k] if np.isfinite(values[p]) else p
    return 0, 0


@jit
def on_pattern(tree: Structure, mirror: NDArray[np.integer], panels: Floats, out: Floats) -> None:
    """Write the entries of a symmetric matrix stored in panels to ``out`` (nnz,), both triangles."""
    for s in range(len(tree.height)):
        column = tree.panel[s]
        for j in range(tree.start[s], tree.start[s + 1]):
            for k in range(tree.entry_start[j], tree.entry_start[j + 1]):
                value = panels[column + tree.entry_row[k]]
                out[tree.source[k]] = value
                out[mirror[k]] = value
            column += tree.height[s]


@jit
def trace(tree: Structure, panels: Floats, values: Floats) -> float:
    """Return tr(Z B) for symmetric Z stored in panels and B given by values on the pattern."""
    diagonal = 0.0
    rest = 0.0
    buffer = np.empty(_CHUNK)
    first = 0  # entries from here on, up to `last`, are in the buffer
    last = 0
    for s in range(len(tree.height)):
        column = tree.panel[s]
        for j in range(tree.start[s], tree.start[s + 1]):
            diagonal += panels[column + tree.entry_row[tree.entry_start[j]]] * values[tree.source[tree.entry_start[j]]]
            for k in range(tree.entry_start[j] + 1, tree.entry_start[j + 1]):
                if k >= last:
                    first = k
                    last = min(k + _CHUNK, len(tree.source))
                    for i in range(first, last):
                        buffer[i - first] = values[tree.source[i]]
                rest += panels[column + tree.entry_row[k]] * buffer[k - first]
            column += tree.height[s]
    return diagonal + 2.0 * rest


@jit
def lower_triangle(tree: Structure, permutation: Ints, panels: Floats) -> tuple[Ints, Ints, Floats]:
    """Return a lower triangle stored in panels as rows, columns (caller's order) and values."""
    total = 0
    for s in range(len(tree.height)):
        width = tree.start[s + 1] - tree.start[s]
        total += width * tree.height[s] - width * (width - 1) // 2
    row = np.empty(total, np.int32)
    column = np.empty(total, np.int32)
    value = np.empty(total)
    count = 0
    for s in range(len(tree.height)):
        begin = tree.start[s]
        width = tree.start[s + 1] - begin
        for k in range(width):
            for i in range(k, tree.height[s]):
                node = begin + i if i < width else tree.rows[tree.row_start[s] + i - width]
                row[count] = permutation[node]
                column[count] = permutation[begin + k]
                value[count] = panels[tree.panel[s] + k * tree.height[s] + i]
                count += 1
    return row, column, value
