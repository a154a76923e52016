"""Numeric Cholesky factorisation: supernodal, multifrontal.

The panel of a supernode receives the entries of the matrix and those of its children's update matrices that
lie in its columns; its columns are factorised; what they subtract from the rows below, together with the
rest of the children's matrices, is its own update matrix.  Small fronts, of which sparse graphs have very
many, are handled by loops; large ones by BLAS.

Reference: J. W. H. Liu, "The multifrontal method for sparse matrix solution", SIAM Review 34 (1992) 82–109.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from graphmatern.sparse import _blas
from graphmatern.sparse._compile import inline, jit
from graphmatern.sparse._structure import SMALL_FRONT

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from graphmatern.sparse._blas import Blas
    from graphmatern.sparse._structure import Structure

    Ints = NDArray[np.int32]
    Longs = NDArray[np.int64]
    Floats = NDArray[np.float64]

__all__ = ["PIVOT_TOLERANCE", "SYMMETRY_TOLERANCE", "factorize_runs", "load_panels"]

#: A pivot smaller than this part of the diagonal entry it started from is rounding error: the matrix is
#: singular to working precision, even if the error happens to be positive.
PIVOT_TOLERANCE = 1e-13

#: Entries (i, j) and (j, i) may differ by this part of their size, or of the diagonal entries i and j.
SYMMETRY_TOLERANCE = 1e-10


@inline
def gather(
    source: NDArray[np.integer],
    mirror: NDArray[np.integer],
    first: int,
    last: int,
    check: bool,
    values: Floats,
    lower: Floats,
) -> bool:
    """Copy entries ``first`` to ``last - 1`` of the permuted lower triangle from the caller's values.

    In a loop of its own because the caller's values lie in random order: the processor waits for many
    at once. Returns whether some value may be at fault: it differs from its transpose, or either is not
    finite.
    """
    if len(values) == 0:  # the caller has written the lower triangle itself
        return False
    if not check:
        for k in range(first, last):
            lower[k] = values[source[k]]
        return False
    suspects = 0
    for k in range(first, last):
        value = values[source[k]]
        other = values[mirror[k]]
        lower[k] = value
        size = abs(value) + abs(other)
        suspects += not (abs(value - other) <= SYMMETRY_TOLERANCE * size < np.inf)
    return suspects > 0


@inline
def load_panel(tree: Structure, s: int, lower: Floats, factor: Floats) -> None:
    """Write the entries of the matrix to the panel of supernode s, zeros elsewhere."""
    begin = tree.panel[s]
    for k in range(begin, tree.panel[s + 1]):
        factor[k] = 0.0
    for j in range(tree.start[s], tree.start[s + 1]):
        for k in range(tree.entry_start[j], tree.entry_start[j + 1]):
            factor[begin + tree.entry_row[k]] = lower[k]
        begin += tree.height[s]


@jit
def load_panels(
    tree: Structure, mirror: NDArray[np.integer], check: bool, values: Floats, lower: Floats, factor: Floats
) -> bool:
    """Write the entries of the matrix to all panels; return whether some value may be at fault."""
    suspect = gather(tree.source, mirror, 0, len(tree.source), check, values, lower)
    for s in range(len(tree.height)):
        load_panel(tree, s, lower, factor)
    return suspect


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
        for i in range(k, size):
            factor[target + tree.relative[begin + i]] += stack[origin + i]


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
        for i in range(k, size):
            stack[target + tree.relative[begin + i]] += stack[origin + i]
        k += 1


@inline
def smallest_pivot(tree: Structure, column: int, lower: Floats) -> float:
    """Return what a pivot must exceed, given the entry of the matrix that it started from."""
    return PIVOT_TOLERANCE * abs(lower[tree.entry_start[column]])


@inline
def _factor_small(tree: Structure, s: int, lower: Floats, factor: Floats) -> int:
    """Factorise the columns of a small front; return the first column whose pivot has the wrong sign, or -1."""
    width = tree.start[s + 1] - tree.start[s]
    height = tree.height[s]
    panel = tree.panel[s]
    for k in range(width):
        column = panel + k * height
        sign = tree.sign[tree.start[s] + k]
        pivot = sign * factor[column + k]
        if not pivot > smallest_pivot(tree, tree.start[s] + k, lower):
            return k
        root = np.sqrt(pivot)
        factor[column + k] = root
        scale = sign / root
        for i in range(k + 1, height):
            factor[column + i] *= scale
        for j in range(k + 1, width):
            weight = sign * factor[column + j]
            target = panel + j * height
            for i in range(j, height):
                factor[target + i] -= weight * factor[column + i]
    return -1


@inline
def _update_small(tree: Structure, s: int, factor: Floats, stack: Floats, mine: int) -> None:
    """Write the update matrix of a small front, the negative of B S Bᵀ for the rows B below its columns.

    Four columns of B at a time, so that each entry of the result is touched seldom; where fewer are
    left, the first stands in for those missing, with weight zero.
    """
    width = tree.start[s + 1] - tree.start[s]
    height = tree.height[s]
    below = height - width
    rows = tree.panel[s] + width
    for first in range(0, width, 4):
        column = tree.start[s] + first
        a = rows + first * height
        b = a + height if first + 1 < width else a
        c = b + height if first + 2 < width else a
        d = c + height if first + 3 < width else a
        for j in range(below):
            p = tree.sign[column] * factor[a + j]
            q = tree.sign[column + 1] * factor[b + j] if b != a else 0.0
            r = tree.sign[column + 2] * factor[c + j] if c != a else 0.0
            t = tree.sign[column + 3] * factor[d + j] if d != a else 0.0
            target = mine + j * below
            if first == 0:
                for i in range(j, below):
                    stack[target + i] = -(p * factor[a + i] + q * factor[b + i] + r * factor[c + i] + t * factor[d + i])
            else:
                for i in range(j, below):
                    stack[target + i] -= p * factor[a + i] + q * factor[b + i] + r * factor[c + i] + t * factor[d + i]


@inline
def end_of_run(tree: Structure, s: int, first: int, last: int) -> int:
    """Return the end of the columns of supernode s, from ``first`` on and before ``last``, that have one sign."""
    begin = tree.start[s]
    end = first + 1
    while end < last and tree.sign[begin + end] == tree.sign[begin + first]:
        end += 1
    return end


@inline
def negate(tree: Structure, s: int, first: int, last: int, bottom: int, panels: Floats) -> None:
    """Change the sign of some columns of a front if their pivots are negative: from the diagonal to row ``bottom``."""
    if tree.sign[tree.start[s] + first] < 0:
        for k in range(first, last):
            column = tree.panel[s] + k * np.int64(tree.height[s])
            for i in range(k, bottom):
                panels[column + i] = -panels[column + i]


@inline
def _factor_large(blas: Blas, tree: Structure, s: int, lower: Floats, factor: Floats, stack: Floats, mine: int) -> int:
    """Do the same as `_factor_small` and `_update_small`, with BLAS: columns of one sign at a time."""
    width = tree.start[s + 1] - tree.start[s]
    height = tree.height[s]
    panel = tree.panel[s]
    below = height - width
    first = 0 * width  # not a literal, for which all functions that take it would be compiled once more
    while first < width:
        last = end_of_run(tree, s, first, width)
        size = last - first
        sign = float(tree.sign[tree.start[s] + first])
        negate(tree, s, first, last, height, factor)
        corner = factor.ctypes.data + 8 * (panel + first * (height + np.int64(1)))
        info = _blas.potrf(blas, size, corner, height)
        if info != 0:
            return first + info - 1
        for k in range(first, last):
            root = factor[panel + k * height + k]
            if not root * root > smallest_pivot(tree, tree.start[s] + k, lower):
                return k
        if last < height:
            rows = corner + 8 * size
            _blas.trsm(blas, True, True, height - last, size, corner, height, rows, height)
        if last < width:
            beside = factor.ctypes.data + 8 * (panel + last * (height + np.int64(1)))
            n, m = width - last, height - last
            _blas.gemm(blas, False, True, m, n, size, -sign, rows, height, rows, height, 1.0, beside, height)
        if below > 0:
            rows = corner + 8 * (width - first)
            update = stack.ctypes.data + 8 * mine
            kept = 0.0 if first == 0 else 1.0
            _blas.syrk(blas, below, size, -sign, rows, height, kept, update, below)
        first = last
    return -1


@inline
def find_rows(tree: Structure, s: int, first: int, ancestor: int, where: Longs) -> int:
    """Set ``where[i]`` to the position in the front of ``ancestor`` of row i of s, from ``first`` on.

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
    k = 0 * size
    while k < size:
        ancestor = tree.supernode[tree.rows[tree.row_start[s] + k]]
        beyond = find_rows(tree, s, k, ancestor, where)
        while k < beyond:
            target = tree.panel[ancestor] + where[k] * tree.height[ancestor]
            for i in range(k, size):
                factor[target + where[i]] += stack[mine + k * size + i]
            k += 1


@inline
def place(tree: Structure, s: int, shift: int) -> int:
    """Return where the update matrix of s lies; ``shift`` is where the stack of this thread begins."""
    return tree.offset[s] + (shift if tree.in_task[s] else 0)


@inline
def open_front(tree: Structure, s: int, shift: int, loaded: bool, lower: Floats, factor: Floats, stack: Floats) -> None:
    """Fill the panel of supernode s with the entries of the matrix and of its children's update matrices."""
    if not loaded:
        load_panel(tree, s, lower, factor)
    for k in range(tree.child_start[s], tree.child_start[s + 1]):
        c = tree.child[k]
        if not tree.detached[c]:
            _add_to_panel(tree, s, c, place(tree, c, shift), factor, stack)


@inline
def close_front(tree: Structure, s: int, shift: int, factor: Floats, stack: Floats, where: Longs) -> None:
    """Add to the update matrix of supernode s what its children leave to it; pass it on if s is detached."""
    mine = place(tree, s, shift)
    for k in range(tree.child_start[s], tree.child_start[s + 1]):
        c = tree.child[k]
        if not tree.detached[c]:
            _add_to_update(tree, s, c, place(tree, c, shift), mine, stack)
    if tree.detached[s]:
        _add_to_ancestors(tree, s, mine, factor, stack, where)


@inline
def _factorize_one(
    tree: Structure,
    s: int,
    shift: int,
    loaded: bool,
    lower: Floats,
    factor: Floats,
    stack: Floats,
    blas: Blas,
    where: Longs,
) -> int:
    """Factorise supernode s; return the first of its columns whose pivot has the wrong sign, or -1."""
    open_front(tree, s, shift, loaded, lower, factor, stack)
    width = tree.start[s + 1] - tree.start[s]
    height = tree.height[s]
    mine = place(tree, s, shift)
    if height <= SMALL_FRONT or width <= 2:
        failed = _factor_small(tree, s, lower, factor)
        if failed == -1:
            _update_small(tree, s, factor, stack, mine)
    else:
        failed = _factor_large(blas, tree, s, lower, factor, stack, mine)
    if failed == -1:
        close_front(tree, s, shift, factor, stack, where)
    return failed


@jit
def factorize_runs(
    tree: Structure,
    mirror: NDArray[np.integer],
    starts: Longs,
    ends: Longs,
    shift: int,
    loaded: bool,
    check: bool,
    values: Floats,
    lower: Floats,
    factor: Floats,
    stack: Floats,
    table: Longs,
    where: Longs,
) -> tuple[int, bool]:
    """Factorise the supernodes of the given runs, in ascending order.

    Parameters
    ----------
    mirror : (m,)
        Positions in ``values`` of the transposes of ``tree.source``.
    starts, ends : (n_runs,)
        First supernode of each run, and one past its last.
    shift : int
        Where the stack of this thread begins in ``stack``.
    loaded : bool
        Whether `load_panels` has been called.  It must be if any supernode is detached.
    check : bool
        Whether to compare values with their transposes.
    values : (nnz,)
        The matrix, on the pattern that was analysed.
    lower : (m,)
        Room for the permuted lower triangle of the matrix.
    factor : (n_entries,)
        The panels; written.
    stack, where
        Working memory.
    table : (8,)
        Addresses of BLAS routines.

    Returns
    -------
    column : int
        The (permuted) column whose pivot has the wrong sign, or -1.
    suspect : bool
        Whether some value may be at fault.
    """
    blas = _blas.workspace(table)
    suspect = False
    for run in range(len(starts)):
        if not loaded:
            first = tree.entry_start[tree.start[starts[run]]]
            last = tree.entry_start[tree.start[ends[run]]]
            suspect |= gather(tree.source, mirror, first, last, check, values, lower)
        for s in range(starts[run], ends[run]):
            failed = _factorize_one(tree, s, shift, loaded, lower, factor, stack, blas, where)
            if failed != -1:
                return tree.start[s] + failed, suspect
    return -1, suspect
