"""The entries of the inverse on the pattern of the factor: supernodal Takahashi recursion.

For one supernode with columns J and rows R below them, L being the factor and Z the inverse,

    Z[R, J] = -Z[R, R] Y,    Z[J, J] = (L[J, J] S L[J, J]ᵀ)⁻¹ - Yᵀ Z[R, J],    Y = L[R, J] L[J, J]⁻¹,

S having the signs of its pivots, ±1, and Z[R, R] is known once the ancestors are done, because R lies in
their fronts.  So the tree is walked from its roots down, each supernode handing to its children the blocks
Z[R, R] they need, in the places where the factorisation had their update matrices.

References
----------
* K. Takahashi, J. Fagan, M.-S. Chin, "Formation of a sparse bus impedance matrix and its application to short
  circuit study", PICA Conference (1973) 63–69.
* A. M. Erisman, W. F. Tinney, "On computing certain elements of the inverse of a sparse matrix", Comm. ACM 18
  (1975) 177–179.
* L. Lin, C. Yang, J. C. Meza, J. Lu, L. Ying, W. E, "SelInv", ACM Trans. Math. Softw. 37 (2011) 40.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from graphmatern.sparse import _blas
from graphmatern.sparse._compile import inline, jit
from graphmatern.sparse._numeric import end_of_run, find_rows, negate, place
from graphmatern.sparse._structure import SMALL_FRONT

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from graphmatern.sparse._blas import Blas
    from graphmatern.sparse._structure import Structure

    Longs = NDArray[np.int64]
    Floats = NDArray[np.float64]

__all__ = ["hand_to_children", "invert_diagonal", "invert_runs", "read_from_ancestors"]


@inline
def read_from_ancestors(tree: Structure, s: int, mine: int, inverse: Floats, stack: Floats, where: Longs) -> None:
    """Gather Z[R, R] of a detached supernode from the panels of its ancestors."""
    size = tree.row_start[s + 1] - tree.row_start[s]
    k = 0 * size
    while k < size:
        ancestor = tree.supernode[tree.rows[tree.row_start[s] + k]]
        beyond = find_rows(tree, s, k, ancestor, where)
        while k < beyond:
            origin = tree.panel[ancestor] + where[k] * tree.height[ancestor]
            for i in range(k, size):
                stack[mine + k * size + i] = inverse[origin + where[i]]
            k += 1


@inline
def _hand_to_child(tree: Structure, s: int, c: int, mine: int, theirs: int, inverse: Floats, stack: Floats) -> None:
    """Write Z[R, R] of child c, taken from the panel of s and from Z[R, R] of s."""
    begin = tree.row_start[c]
    size = tree.row_start[c + 1] - begin
    width = tree.start[s + 1] - tree.start[s]
    height = tree.height[s]
    below = height - width
    panel = tree.panel[s]
    k = 0
    while k < size and tree.relative[begin + k] < width:
        origin = panel + tree.relative[begin + k] * height
        target = theirs + k * size
        for i in range(k, size):
            stack[target + i] = inverse[origin + tree.relative[begin + i]]
        k += 1
    while k < size:
        origin = mine + (tree.relative[begin + k] - width) * below - width
        target = theirs + k * size
        for i in range(k, size):
            stack[target + i] = stack[origin + tree.relative[begin + i]]
        k += 1


@inline
def hand_to_children(tree: Structure, s: int, shift: int, inverse: Floats, stack: Floats) -> None:
    """Write Z[R, R] of all children of s that are not detached."""
    mine = place(tree, s, shift)
    for k in range(tree.child_start[s], tree.child_start[s + 1]):
        c = tree.child[k]
        if not tree.detached[c]:
            _hand_to_child(tree, s, c, mine, place(tree, c, shift), inverse, stack)


@inline
def _invert_small(
    tree: Structure, s: int, factor: Floats, inverse: Floats, stack: Floats, mine: int, front: Floats
) -> None:
    """Apply the recursion column by column; ``front`` (height²,) has room for the whole front of Z."""
    panel = tree.panel[s]
    width = tree.start[s + 1] - tree.start[s]
    height = tree.height[s]
    below = height - width
    for k in range(below):
        origin = mine + k * below
        target = (width + k) * height + width
        front[target + k] = stack[origin + k]
        for i in range(k + 1, below):
            value = stack[origin + i]
            front[target + i] = value
            front[(width + i) * height + width + k] = value
    for k in range(width - 1, -1, -1):
        column = panel + k * height
        scale = 1.0 / factor[column + k]
        target = k * height
        for i in range(k + 1, height):
            front[target + i] = 0.0
        for j in range(k + 1, height, 4):  # four columns at a time; column j stands in for those missing
            a = j * height
            b = a + height if j + 1 < height else a
            c = b + height if j + 2 < height else a
            d = c + height if j + 3 < height else a
            p = factor[column + j] * scale
            q = factor[column + j + 1] * scale if b != a else 0.0
            r = factor[column + j + 2] * scale if c != a else 0.0
            t = factor[column + j + 3] * scale if d != a else 0.0
            for i in range(k + 1, height):
                front[target + i] -= p * front[a + i] + q * front[b + i] + r * front[c + i] + t * front[d + i]
        diagonal = tree.sign[tree.start[s] + k] * scale * scale
        for i in range(k + 1, height):
            diagonal -= factor[column + i] * scale * front[target + i]
        front[target + k] = diagonal
        for i in range(k + 1, height):
            front[i * height + k] = front[target + i]
        for i in range(k):
            inverse[column + i] = 0.0
        for i in range(k, height):
            inverse[column + i] = front[target + i]


@inline
def invert_diagonal(blas: Blas, tree: Structure, s: int, factor: Floats, inverse: Floats) -> None:
    """Write (L[J, J] S L[J, J]ᵀ)⁻¹ = WᵀSW, W being L[J, J]⁻¹: rows of W of one sign at a time."""
    panel = tree.panel[s]
    width = tree.start[s + 1] - tree.start[s]
    height = tree.height[s]
    for k in range(width):
        column = panel + k * height
        for i in range(k):
            inverse[column + i] = 0.0
        for i in range(k, width):
            inverse[column + i] = factor[column + i]
    corner = inverse.ctypes.data + 8 * panel
    _blas.trtri(blas, width, corner, height)
    first = 0 * width
    while first < width:
        last = end_of_run(tree, s, first, width)
        size = last - first
        sign = float(tree.sign[tree.start[s] + first])
        rows = corner + 8 * first
        own = rows + 8 * first * np.int64(height)
        if first > 0:
            _blas.gemm(blas, True, False, first, first, size, sign, rows, height, rows, height, 1.0, corner, height)
            _blas.trmm(blas, size, first, sign, own, height, rows, height)
        _blas.lauum(blas, size, own, height)
        negate(tree, s, first, last, last, inverse)
        first = last


@inline
def _invert_large(
    blas: Blas, tree: Structure, s: int, factor: Floats, inverse: Floats, stack: Floats, mine: int, room: Floats
) -> None:
    """Apply the recursion to whole blocks with BLAS; ``room`` holds Y, (below, width)."""
    panel = tree.panel[s]
    width = tree.start[s + 1] - tree.start[s]
    height = tree.height[s]
    below = height - width
    for k in range(width):
        column = panel + k * height + width
        for i in range(below):
            room[k * below + i] = factor[column + i]
    corner = inverse.ctypes.data + 8 * panel
    y = room.ctypes.data
    if below > 0:
        _blas.trsm(blas, True, False, below, width, factor.ctypes.data + 8 * panel, height, y, below)
    invert_diagonal(blas, tree, s, factor, inverse)
    if below > 0:
        rows = corner + 8 * width
        _blas.symm(blas, below, width, -1.0, stack.ctypes.data + 8 * mine, below, y, below, 0.0, rows, height)
        _blas.gemm(blas, True, False, width, width, below, -1.0, y, below, rows, height, 1.0, corner, height)


@jit
def invert_runs(
    tree: Structure,
    starts: Longs,
    ends: Longs,
    shift: int,
    factor: Floats,
    inverse: Floats,
    stack: Floats,
    room: Floats,
    table: Longs,
    where: Longs,
) -> None:
    """Compute the selected inverse of the supernodes of the given runs, in descending order.

    Parameters
    ----------
    starts, ends : (n_runs,)
        First supernode of each run, and one past its last, in ascending order.
    shift : int
        Where the stack of this thread begins in ``stack``.
    factor : (n_entries,)
        The panels of the factor.
    inverse : (n_entries,)
        The lower triangle of the inverse in the same places; written.  What lies above the diagonal
        of a panel has no meaning.
    stack, room, where
        Working memory; ``room`` has at least ``SMALL_FRONT ** 2`` and the largest |R| × |J| entries.
    table : (8,)
        Addresses of BLAS routines.
    """
    blas = _blas.workspace(table)
    for run in range(len(starts) - 1, -1, -1):
        for s in range(ends[run] - 1, starts[run] - 1, -1):
            mine = place(tree, s, shift)
            if tree.detached[s]:
                read_from_ancestors(tree, s, mine, inverse, stack, where)
            if tree.height[s] <= SMALL_FRONT:
                _invert_small(tree, s, factor, inverse, stack, mine, room)
            else:
                _invert_large(blas, tree, s, factor, inverse, stack, mine, room)
            hand_to_children(tree, s, shift, inverse, stack)
