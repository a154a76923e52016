"""Large fronts near the roots of the tree, on which all threads work together.

There are few of them, and they come one after the other, so that threads cannot be given different ones.
Their dense matrices are cut into blocks instead; BLAS itself stays on one thread in each block.  Each
function below is one step of what `graphmatern.sparse._numeric` and `graphmatern.sparse._selected` do with
a front, applied to one block.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from graphmatern.sparse import _blas, _numeric, _selected
from graphmatern.sparse._compile import jit

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from graphmatern.sparse._structure import Structure
    from graphmatern.sparse._threads import Crew

    Longs = NDArray[np.int64]
    Floats = NDArray[np.float64]
    Blocks = list[tuple[int, int]]

__all__ = ["factorize_front", "invert_front"]

_BLOCK = 256  # columns factorised, or updated, at a time


@jit
def _open(
    tree: Structure,
    mirror: NDArray[np.integer],
    s: int,
    loaded: bool,
    check: bool,
    values: Floats,
    lower: Floats,
    factor: Floats,
    stack: Floats,
) -> bool:
    """Fill the panel of front s; return whether some value may be at fault."""
    suspect = False
    if not loaded:
        first = tree.entry_start[tree.start[s]]
        last = tree.entry_start[tree.start[s + 1]]
        suspect = _numeric.gather(tree.source, mirror, first, last, check, values, lower)
    _numeric.open_front(tree, s, 0, loaded, lower, factor, stack)
    return suspect


@jit
def _factor_diagonal(tree: Structure, s: int, begin: int, end: int, lower: Floats, factor: Floats, table: Longs) -> int:
    """Factorise the diagonal block of columns ``begin`` to ``end - 1``; return the one that failed, or -1."""
    height = tree.height[s]
    blas = _blas.workspace(table)
    _numeric.negate(tree, s, begin, end, height, factor)
    corner = tree.panel[s] + begin * height + begin
    info = _blas.potrf(blas, end - begin, factor.ctypes.data + 8 * corner, height)
    if info != 0:
        return begin + info - 1
    for k in range(begin, end):
        root = factor[tree.panel[s] + k * height + k]
        if not root * root > _numeric.smallest_pivot(tree, tree.start[s] + k, lower):
            return k
    return -1


@jit
def _solve_rows(
    panel: int, height: int, begin: int, end: int, first: int, last: int, factor: Floats, table: Longs
) -> None:
    """Divide rows ``first`` to ``last - 1`` of columns ``begin`` to ``end - 1`` by their diagonal block."""
    blas = _blas.workspace(table)
    column = factor.ctypes.data + 8 * (panel + begin * height)
    _blas.trsm(blas, True, True, last - first, end - begin, column + 8 * begin, height, column + 8 * first, height)


@jit
def _update_columns(
    panel: int, height: int, begin: int, end: int, first: int, last: int, sign: float, factor: Floats, table: Longs
) -> None:
    """Subtract what columns ``begin`` to ``end - 1`` ask for from columns ``first`` to ``last - 1``."""
    blas = _blas.workspace(table)
    data = factor.ctypes.data
    rows = data + 8 * (panel + begin * height + first)
    target = data + 8 * (panel + first * height + first)
    _blas.gemm(
        blas,
        False,
        True,
        height - first,
        last - first,
        end - begin,
        -sign,
        rows,
        height,
        rows,
        height,
        1.0,
        target,
        height,
    )


@jit
def _update_below(
    tree: Structure,
    s: int,
    first: int,
    last: int,
    factor: Floats,
    stack: Floats,
    mine: int,
    table: Longs,
) -> None:
    """Write columns ``first`` to ``last - 1`` of the update matrix."""
    blas = _blas.workspace(table)
    width = tree.start[s + 1] - tree.start[s]
    height = tree.height[s]
    below = height - width
    target = stack.ctypes.data + 8 * (mine + first * below + first)
    begin = 0
    while begin < width:
        end = _numeric.end_of_run(tree, s, begin, width)
        rows = factor.ctypes.data + 8 * (tree.panel[s] + begin * np.int64(height) + width + first)
        _blas.gemm(
            blas,
            False,
            True,
            below - first,
            last - first,
            end - begin,
            -float(tree.sign[tree.start[s] + begin]),
            rows,
            height,
            rows,
            height,
            0.0 if begin == 0 else 1.0,
            target,
            below,
        )
        begin = end


@jit
def _close(tree: Structure, s: int, factor: Floats, stack: Floats, where: Longs) -> None:
    _numeric.close_front(tree, s, 0, factor, stack, where)


def _blocks(begin: int, end: int, size: int) -> Blocks:
    """Cut a range into pieces of at most ``size``."""
    return [(k, min(k + size, end)) for k in range(begin, end, size)]


def _blocks_of_one_sign(signs: NDArray[np.int8], size: int) -> Blocks:
    """Cut columns into pieces of at most ``size``, each with pivots of one sign."""
    ends = [*(np.flatnonzero(np.diff(signs)) + 1).tolist(), len(signs)]
    return [piece for begin, end in zip([0, *ends], ends, strict=False) for piece in _blocks(begin, end, size)]


def factorize_front(
    crew: Crew,
    tree: Structure,
    mirror: NDArray[np.integer],
    s: int,
    loaded: bool,
    check: bool,
    values: Floats,
    lower: Floats,
    factor: Floats,
    stack: Floats,
    table: Longs,
    where: Longs,
) -> tuple[int, bool]:
    """Factorise supernode s, in no task, on all threads; the arguments are those of `factorize_runs`."""
    suspect = _open(tree, mirror, s, loaded, check, values, lower, factor, stack)
    width = int(tree.start[s + 1] - tree.start[s])
    height, panel, mine = int(tree.height[s]), int(tree.panel[s]), int(tree.offset[s])
    signs = tree.sign[tree.start[s] : tree.start[s + 1]]
    for begin, end in _blocks_of_one_sign(signs, _BLOCK):
        failed = _factor_diagonal(tree, s, begin, end, lower, factor, table)
        if failed != -1:
            return int(tree.start[s]) + failed, suspect
        rows = _blocks(end, height, max(_BLOCK, -(-(height - end) // crew.n_threads)))

        def solve(task: int, _worker: int, begin: int = begin, end: int = end, rows: Blocks = rows) -> None:
            _solve_rows(panel, height, begin, end, *rows[task], factor, table)

        crew.run(len(rows), solve)
        columns = _blocks(end, width, _BLOCK)

        def update(task: int, _worker: int, begin: int = begin, end: int = end, columns: Blocks = columns) -> None:
            _update_columns(panel, height, begin, end, *columns[task], float(signs[begin]), factor, table)

        crew.run(len(columns), update)
    pieces = _blocks(0, height - width, _BLOCK)
    crew.run(
        len(pieces),
        lambda task, _: _update_below(tree, s, *pieces[task], factor, stack, mine, table),
    )
    _close(tree, s, factor, stack, where)
    return -1, suspect


@jit
def _read(tree: Structure, s: int, inverse: Floats, stack: Floats, where: Longs) -> None:
    _selected.read_from_ancestors(tree, s, tree.offset[s], inverse, stack, where)


@jit
def _hand_on(tree: Structure, s: int, inverse: Floats, stack: Floats) -> None:
    _selected.hand_to_children(tree, s, 0, inverse, stack)


@jit
def _invert_diagonal(tree: Structure, s: int, factor: Floats, inverse: Floats, table: Longs) -> None:
    _selected.invert_diagonal(_blas.workspace(table), tree, s, factor, inverse)


@jit
def _y_rows(
    panel: int, width: int, height: int, first: int, last: int, factor: Floats, room: Floats, table: Longs
) -> None:
    """Write rows ``first`` to ``last - 1`` of Y = L[R, J] L[J, J]⁻¹."""
    below = height - width
    for k in range(width):
        column = panel + k * height + width
        for i in range(first, last):
            room[k * below + i] = factor[column + i]
    corner = factor.ctypes.data + 8 * panel
    _blas.trsm(
        _blas.workspace(table),
        True,
        False,
        last - first,
        width,
        corner,
        height,
        room.ctypes.data + 8 * first,
        below,
    )


@jit
def _z_rows(
    panel: int,
    width: int,
    height: int,
    first: int,
    last: int,
    inverse: Floats,
    stack: Floats,
    mine: int,
    room: Floats,
    table: Longs,
) -> None:
    """Write columns ``first`` to ``last - 1`` of Z[R, J] = -Z[R, R] Y."""
    below = height - width
    y = room.ctypes.data + 8 * first * below
    target = inverse.ctypes.data + 8 * (panel + first * height + width)
    block = stack.ctypes.data + 8 * mine
    _blas.symm(_blas.workspace(table), below, last - first, -1.0, block, below, y, below, 0.0, target, height)


@jit
def _z_columns(
    panel: int, width: int, height: int, first: int, last: int, inverse: Floats, room: Floats, table: Longs
) -> None:
    """Subtract Yᵀ Z[R, J] from columns ``first`` to ``last - 1`` of Z[J, J], at and below the diagonal."""
    below = height - width
    y = room.ctypes.data + 8 * first * below
    rows = inverse.ctypes.data + 8 * (panel + first * height + width)
    target = inverse.ctypes.data + 8 * (panel + first * height + first)
    _blas.gemm(
        _blas.workspace(table),
        True,
        False,
        width - first,
        last - first,
        below,
        -1.0,
        y,
        below,
        rows,
        height,
        1.0,
        target,
        height,
    )


def invert_front(
    crew: Crew,
    tree: Structure,
    s: int,
    factor: Floats,
    inverse: Floats,
    stack: Floats,
    room: Floats,
    table: Longs,
    where: Longs,
) -> None:
    """Compute the selected inverse of supernode s, in no task, on all threads; see `invert_runs`."""
    width = int(tree.start[s + 1] - tree.start[s])
    height, panel, mine = int(tree.height[s]), int(tree.panel[s]), int(tree.offset[s])
    if tree.detached[s]:
        _read(tree, s, inverse, stack, where)
    below = height - width
    rows = _blocks(0, below, max(_BLOCK, -(-below // crew.n_threads)))

    def first_step(task: int, _worker: int) -> None:
        if task == 0:
            _invert_diagonal(tree, s, factor, inverse, table)
        else:
            _y_rows(panel, width, height, *rows[task - 1], factor, room, table)

    crew.run(1 + len(rows), first_step)
    if below > 0:
        columns = _blocks(0, width, max(64, -(-width // crew.n_threads)))
        crew.run(
            len(columns),
            lambda task, _: _z_rows(panel, width, height, *columns[task], inverse, stack, mine, room, table),
        )
        pieces = _blocks(0, width, 128)
        crew.run(
            len(pieces),
            lambda task, _: _z_columns(panel, width, height, *pieces[task], inverse, room, table),
        )
    _hand_on(tree, s, inverse, stack)
