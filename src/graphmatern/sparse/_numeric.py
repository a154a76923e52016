"""Numeric Cholesky factorisation: supernodal, multifrontal.

The panel of a supernode receives the entries of the matrix and those of its children's update matrices that lie in its
columns; its columns are factorised; what they subtract from the rows below, together with the rest of the
children's matrices, is its own update matrix.  Small fronts, of which sparse graphs have very many, are handled by
loops; large ones by BLAS.

Reference: J. W. H. Liu, "The multifrontal method for sparse matrix solution", SIAM Review 34 (1992) 82–109.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from graphmatern.sparse import _blas
from graphmatern.sparse._compile import inline, jit
from graphmatern.sparse._structure import SMALL_FRONT

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from graphmatern.sparse._structure import Structure

    Ints = NDArray[np.int32]
    Longs = NDArray[np.int64]
    Floats = NDArray[np.float64]

__all__ = ["PIVOT_TOLERANCE", "factorize_runs", "load_panels"]

#: A pivot smaller than this part of the diagonal entry it started from is rounding error: the matrix is singular to
#: working precision, even if the error happens to be positive.
PIVOT_TOLERANCE = 64 * float(np.finfo(np.float64).eps)


@inline
def load_panel(tree: Structure, s: int, values: Floats, factor: Floats) -> None:
    """Write the entries of the matrix to the panel of supernode s, zeros elsewhere."""
    begin = tree.panel[s]
    for k in range(begin, tree.panel[s + 1]):
        factor[k] = 0.0
    for j in range(tree.start[s], tree.start[s + 1]):
        for k in range(tree.entry_start[j], tree.entry_start[j + 1]):
            factor[begin + tree.entry_row[k]] = values[tree.source[k]]
        begin += tree.height[s]


@jit
def load_panels(tree: Structure, values: Floats, factor: Floats) -> None:
    """Write the entries of the matrix to all panels."""
    for s in range(len(tree.height)):
        load_panel(tree, s, values, factor)


@inline
def _add_to_panel(tree: Structure, s: int, c: int, update: int, factor: Floats, stack: Floats) -> None:
    """Add those columns of the update matrix of child c that are columns of s."""
    begin = tree.row_start[c]
    size = tree.row_start[c + 1] - begin
    width = tree.start[s + 1] - tree.start[s]
    panel = tree.panel[s]
    height = tree.height[s]
    for k in range(size):
        column = tree.relative[begin + k]
        if column >= width:
            break
        target = panel + column * height
        origin = update + k * size
        for l in range(k, size):
            factor[target + tree.relative[begin + l]] += stack[origin + l]


@inline
def _add_to_update(tree: Structure, s: int, c: int, update: int, mine: int, stack: Floats) -> None:
    """Add those columns of the update matrix of child c that are rows below the columns of s."""
    begin = tree.row_start[c]
    size = tree.row_start[c + 1] - begin
    width = tree.start[s + 1] - tree.start[s]
    below = tree.height[s] - width
    k = 0
    while k < size and tree.relative[begin + k] < width:
        k += 1
    while k < size:
        target = mine + (tree.relative[begin + k] - width) * below - width
        origin = update + k * size
        for l in range(k, size):
            stack[target + tree.relative[begin + l]] += stack[origin + l]
        k += 1


@inline
def _smallest_pivot(tree: Structure, column: int, values: Floats) -> float:
    """Return what a pivot must exceed, given the entry of the matrix that it started from."""
    return PIVOT_TOLERANCE * values[tree.source[tree.entry_start[column]]]


@inline
def _factor_small(tree: Structure, s: int, values: Floats, factor: Floats) -> int:
    """Factorise the columns of a small front; return the first column whose pivot is not positive, or -1."""
    width = tree.start[s + 1] - tree.start[s]
    height = tree.height[s]
    panel = tree.panel[s]
    for k in range(width):
        column = panel + k * height
        pivot = factor[column + k]
        if not pivot > _smallest_pivot(tree, tree.start[s] + k, values):
            return k
        root = np.sqrt(pivot)
        factor[column + k] = root
        scale = 1.0 / root
        for i in range(k + 1, height):
            factor[column + i] *= scale
        for j in range(k + 1, width):
            weight = factor[column + j]
            target = panel + j * height
            for i in range(j, height):
                factor[target + i] -= weight * factor[column + i]
    return -1


@inline
def _update_small(factor: Floats, panel: int, width: int, height: int, stack: Floats, mine: int) -> None:
    """Write the update matrix of a small front, the negative of B Bᵀ for the rows B below its columns."""
    below = height - width
    rows = panel + width
    for j in range(below):
        target = mine + j * below
        weight = factor[rows + j]
        for i in range(j, below):
            stack[target + i] = -weight * factor[rows + i]
        for k in range(1, width):
            column = rows + k * height
            weight = factor[column + j]
            for i in range(j, below):
                stack[target + i] -= weight * factor[column + i]


@inline
def _factor_large(
    blas: Any, tree: Structure, s: int, values: Floats, factor: Floats, stack: Floats, mine: int
) -> int:
    """Do the same as `_factor_small` and `_update_small`, with BLAS."""
    width = tree.start[s + 1] - tree.start[s]
    height = tree.height[s]
    panel = tree.panel[s]
    below = height - width
    corner = factor.ctypes.data + 8 * panel
    info = _blas.potrf(blas, width, corner, height)
    if info != 0:
        return info - 1
    for k in range(width):
        root = factor[panel + k * height + k]
        if not root * root > _smallest_pivot(tree, tree.start[s] + k, values):
            return k
    if below > 0:
        rows = corner + 8 * width
        _blas.trsm(blas, True, True, below, width, corner, height, rows, height)
        update = stack.ctypes.data + 8 * mine
        _blas.syrk(blas, below, width, -1.0, rows, height, 0.0, update, below)
    return -1


@inline
def find_rows(tree: Structure, s: int, first: int, ancestor: int, where: Longs) -> int:
    """Set ``where[l]`` to the position in the front of ``ancestor`` of row l of s, for all l from ``first`` on.

    Returns the number of the first row that is not a column of the ancestor.
    """
    rows = tree.rows
    begin = tree.row_start[s]
    end = tree.row_start[s + 1]
    width = tree.start[ancestor + 1] - tree.start[ancestor]
    p = begin + first
    while p < end and rows[p] < tree.start[ancestor + 1]:
        where[p - begin] = rows[p] - tree.start[ancestor]
        p += 1
    beyond = p - begin
    low = tree.row_start[ancestor]
    while p < end:
        high = tree.row_start[ancestor + 1]
        while high - low > 1:
            middle = (low + high) // 2
            if rows[middle] <= rows[p]:
                low = middle
            else:
                high = middle
        where[p - begin] = width + low - tree.row_start[ancestor]
        p += 1
    return beyond


@inline
def _add_to_ancestors(tree: Structure, s: int, mine: int, factor: Floats, stack: Floats, where: Longs) -> None:
    """Add the update matrix of a detached supernode to the panels of its ancestors."""
    size = tree.row_start[s + 1] - tree.row_start[s]
    k = 0
    while k < size:
        ancestor = tree.supernode[tree.rows[tree.row_start[s] + k]]
        beyond = find_rows(tree, s, k, ancestor, where)
        while k < beyond:
            target = tree.panel[ancestor] + where[k] * tree.height[ancestor]
            for l in range(k, size):
                factor[target + where[l]] += stack[mine + k * size + l]
            k += 1


@inline
def place(tree: Structure, s: int, shift: int) -> int:
    """Return where the update matrix of s lies; ``shift`` is where the stack of this thread begins."""
    return tree.offset[s] + (shift if tree.in_task[s] else 0)


@inline
def _factorize_one(
    tree: Structure, s: int, shift: int, loaded: bool, values: Floats, factor: Floats, stack: Floats, blas: Any,
    where: Longs,
) -> int:
    """Factorise supernode s; return the first of its columns whose pivot is not positive, or -1."""
    if not loaded:
        load_panel(tree, s, values, factor)
    width = tree.start[s + 1] - tree.start[s]
    height = tree.height[s]
    panel = tree.panel[s]
    mine = place(tree, s, shift)
    for k in range(tree.child_start[s], tree.child_start[s + 1]):
        c = tree.child[k]
        if not tree.detached[c]:
            _add_to_panel(tree, s, c, place(tree, c, shift), factor, stack)
    if height <= SMALL_FRONT or width <= 2:
        failed = _factor_small(tree, s, values, factor)
        if failed == -1:
            _update_small(factor, panel, width, height, stack, mine)
    else:
        failed = _factor_large(blas, tree, s, values, factor, stack, mine)
    if failed != -1:
        return failed
    for k in range(tree.child_start[s], tree.child_start[s + 1]):
        c = tree.child[k]
        if not tree.detached[c]:
            _add_to_update(tree, s, c, place(tree, c, shift), mine, stack)
    if tree.detached[s]:
        _add_to_ancestors(tree, s, mine, factor, stack, where)
    return -1


@jit
def factorize_runs(
    tree: Structure, starts: Longs, ends: Longs, shift: int, loaded: bool, values: Floats, factor: Floats,
    stack: Floats, table: Longs, where: Longs,
) -> int:
    """Factorise the supernodes of the given runs, in ascending order.

    Parameters
    ----------
    starts, ends : (n_runs,)
        First supernode of each run, and one past its last.
    shift : int
        Where the stack of this thread begins in ``stack``.
    loaded : bool
        Whether `load_panels` has been called.  It must be if any supernode is detached.
    values : (nnz,)
        The matrix, on the pattern that was analysed.
    factor : (n_entries,)
        The panels; written.
    stack, where
        Working memory.
    table : (6,)
        Addresses of BLAS routines.

    Returns
    -------
    int
        The (permuted) column whose pivot is not positive, or -1.
    """
    blas = _blas.workspace(table)
    for run in range(len(starts)):
        for s in range(starts[run], ends[run]):
            failed = _factorize_one(tree, s, shift, loaded, values, factor, stack, blas, where)
            if failed != -1:
                return tree.start[s] + failed
    return -1
