"""Loops over the entries of block matrices: where they lie in the panels, and sums of them; see `_blocks`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from graphmatern.sparse._compile import inline, jit

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from graphmatern.sparse._structure import Structure

    Ints = NDArray[np.int32]
    Longs = NDArray[np.int64]
    Floats = NDArray[np.float64]

__all__ = [
    "block_outputs",
    "block_traces",
    "expanded_rows",
    "load_blocks",
    "parents",
    "row_segments",
    "spread_signs",
    "unknown_places",
]


@jit
def row_segments(tree: Structure) -> tuple[Ints, Ints]:
    """First row and number of those rows of a supernode that are columns of the same ancestor, for each of them."""
    first = np.empty(len(tree.rows), np.int32)
    count = np.empty(len(tree.rows), np.int32)
    for s in range(len(tree.height)):
        begin = tree.row_start[s]
        end = tree.row_start[s + 1]
        p = begin
        while p < end:
            q = p
            ancestor = tree.supernode[tree.rows[p]]
            while q < end and tree.supernode[tree.rows[q]] == ancestor:
                q += 1
            for k in range(p, q):
                first[k] = p - begin
                count[k] = q - p
            p = q
    return first, count


@jit
def expanded_rows(tree: Structure, p: int) -> Ints:
    """Rows below the columns of each supernode of the block matrix, in ascending order."""
    rows = np.empty(p * len(tree.rows), np.int32)
    free = 0
    for s in range(len(tree.height)):
        q = tree.row_start[s]
        while q < tree.row_start[s + 1]:
            ancestor = tree.supernode[tree.rows[q]]
            begin = tree.start[ancestor]
            width = tree.start[ancestor + 1] - begin
            last = q
            while last < tree.row_start[s + 1] and tree.supernode[tree.rows[last]] == ancestor:
                last += 1
            for a in range(p):
                for r in range(q, last):
                    rows[free] = p * begin + a * width + tree.rows[r] - begin
                    free += 1
            q = last
    return rows


@jit
def parents(tree: Structure) -> Ints:
    """Parent of each supernode, -1 for roots."""
    parent = np.full(len(tree.height), -1, np.int32)
    for s in range(len(tree.height)):
        for k in range(tree.child_start[s], tree.child_start[s + 1]):
            parent[tree.child[k]] = s
    return parent


@jit
def unknown_places(tree: Structure, p: int) -> Longs:
    """Place of unknown a of node j, both in the order of elimination; shape (n, p)."""
    places = np.empty((tree.start[len(tree.height)], p), np.int64)
    for s in range(len(tree.height)):
        begin = tree.start[s]
        width = tree.start[s + 1] - begin
        for q in range(width):
            for a in range(p):
                places[begin + q, a] = p * begin + a * width + q
    return places


@jit
def spread_signs(tree: Structure, signs: NDArray[np.int8]) -> NDArray[np.int8]:
    """Sign of each pivot of the block matrix, from those of the unknowns."""
    found = np.empty(tree.start[len(tree.height)] * len(signs), np.int8)
    for s in range(len(tree.height)):
        begin = tree.start[s]
        width = tree.start[s + 1] - begin
        for a in range(len(signs)):
            for q in range(width):
                found[len(signs) * begin + a * width + q] = signs[a]
    return found


@inline
def _row(tree: Structure, segments: tuple[Ints, Ints], p: int, s: int, row: int) -> tuple[int, int]:
    """Place in the front of the first unknown of a row of supernode s, and how far apart its unknowns are."""
    width = tree.start[s + 1] - tree.start[s]
    if row < width:
        return row, width
    first, count = segments
    r = tree.row_start[s] + row - width
    return p * (width + first[r]) + row - width - first[r], count[r]


@inline
def _entry(width: int, height: int, q: int, row: int, begin: int, step: int, a: int, b: int) -> int:
    """Place in a panel of the entry between unknown a of column q and b of a row, whose unknowns `_row` has found."""
    if row < width and b < a:  # above the diagonal
        return (b * width + row) * height + a * width + q
    return (a * width + q) * height + begin + b * step


@jit
def load_blocks(
    tree: Structure,
    segments: tuple[Ints, Ints],
    constant: Floats,
    linear: Floats,
    output: Floats,
    values: Floats,
    added: Floats,
    pairs: Longs,
    panels: Floats,
    diagonal: Floats,
) -> None:
    """Write J₀ ⊗ I + J₁ ⊗ A + w wᵀ ⊗ diag(added) to the panels; A by its lower triangle, all in the factor's order."""
    p = len(output)
    panels[:] = 0.0
    for s in range(len(tree.height)):
        begin = tree.start[s]
        width = tree.start[s + 1] - begin
        height = p * tree.height[s]
        panel = p * p * tree.panel[s]
        for q in range(width):
            j = begin + q
            k = tree.entry_start[j]
            for a in range(p):
                for b in range(a, p):
                    value = constant[a, b] + linear[a, b] * values[k] + added[j] * output[a] * output[b]
                    panels[panel + _entry(width, height, q, q, q, width, a, b)] = value
                    if a == b:
                        diagonal[p * begin + a * width + q] = value
            for k in range(tree.entry_start[j] + 1, tree.entry_start[j + 1]):
                row = tree.entry_row[k]
                first, step = _row(tree, segments, p, s, row)
                for pair in range(len(pairs)):
                    a = pairs[pair, 0]
                    b = pairs[pair, 1]
                    panels[panel + _entry(width, height, q, row, first, step, a, b)] = linear[a, b] * values[k]


@jit
def block_traces(
    tree: Structure,
    segments: tuple[Ints, Ints],
    values: Floats,
    weights: Floats,
    pairs: Longs,
    panels: Floats,
    plain: Floats,
    weighted: Floats,
    mixed: Floats,
) -> None:
    """Add Σ_j Z_jj, Σ_j d_j Z_jj and Σ_ij A_ij Z_ij, p × p blocks, to the last three; the last for some pairs only."""
    p = len(plain)
    for s in range(len(tree.height)):
        width = tree.start[s + 1] - tree.start[s]
        height = p * tree.height[s]
        panel = p * p * tree.panel[s]
        for q in range(width):
            j = tree.start[s] + q
            own = values[tree.entry_start[j]]
            for a in range(p):
                for b in range(a, p):
                    z = panels[panel + _entry(width, height, q, q, q, width, a, b)]
                    plain[a, b] += z
                    weighted[a, b] += weights[j] * z
                    mixed[a, b] += own * z
            for k in range(tree.entry_start[j] + 1, tree.entry_start[j + 1]):
                row = tree.entry_row[k]
                first, step = _row(tree, segments, p, s, row)
                for pair in range(len(pairs)):
                    a = pairs[pair, 0]
                    b = pairs[pair, 1]
                    z = values[k] * panels[panel + _entry(width, height, q, row, first, step, a, b)]
                    mixed[min(a, b), max(a, b)] += z * (2.0 if a == b else 1.0)  # of the entry, and of its transpose
    for a in range(p):
        for b in range(a):
            plain[a, b] = plain[b, a]
            weighted[a, b] = weighted[b, a]
            mixed[a, b] = mixed[b, a]


@jit
def block_outputs(
    tree: Structure,
    segments: tuple[Ints, Ints],
    output: Floats,
    panels: Floats,
    beside: bool,
    out: Floats,
) -> None:
    """wᵀ Z_ij w on the pattern of A, entries of its lower triangle (m,); or of the diagonal only, (n,)."""
    p = len(output)
    for s in range(len(tree.height)):
        width = tree.start[s + 1] - tree.start[s]
        height = p * tree.height[s]
        panel = p * p * tree.panel[s]
        for q in range(width):
            j = tree.start[s] + q
            for k in range(tree.entry_start[j], tree.entry_start[j + 1] if beside else tree.entry_start[j] + 1):
                row = tree.entry_row[k]
                first, step = _row(tree, segments, p, s, row)
                total = 0.0
                for a in range(p):
                    for b in range(p):
                        if output[a] != 0.0 and output[b] != 0.0:
                            place = panel + _entry(width, height, q, row, first, step, a, b)
                            total += output[a] * output[b] * panels[place]
                out[k if beside else j] = total
