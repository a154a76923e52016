"""Matrices with p × p blocks on the pattern of an n × n matrix, from the analysis of the latter.

B = J₀ ⊗ I + J₁ ⊗ A + w wᵀ ⊗ diag(d), for small symmetric J₀, J₁ and a vector w, has p unknowns at each of A's n nodes.
Its factor has a block wherever that of A has an entry: order of elimination, tree, supernodes and rows are those of A,
each column being p columns. Within a supernode, all first unknowns come first, then all second ones, and so on; where
the sign of their pivots changes, a supernode is cut in two, so that each has one sign. Nothing of size p² n is kept
besides the factor: values are written to the panels straight from those of A.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from graphmatern.errors import NotPositiveDefiniteError
from graphmatern.sparse import _symbolic
from graphmatern.sparse._analysis import Layout
from graphmatern.sparse._compile import inline, jit
from graphmatern.sparse._factor import Factor, SelectedInverse
from graphmatern.sparse._resources import Cost, check_cost, predicted_seconds
from graphmatern.sparse._structure import Structure, make_plan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from graphmatern.sparse._analysis import Analysis

    Ints = NDArray[np.int32]
    Longs = NDArray[np.int64]
    Floats = NDArray[np.float64]

__all__ = ["BlockAnalysis", "BlockFactor", "BlockInverse"]


@jit
def _segments(tree: Structure) -> tuple[Ints, Ints]:
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


@inline
def _expanded_rows(tree: Structure, cuts: Longs, start: Longs, row_start: Longs) -> Ints:
    """Rows below the columns of each supernode of the block matrix, in ascending order."""
    size = len(tree.height)
    groups = len(cuts) - 1
    p = cuts[groups]
    rows = np.empty(row_start[size * groups], np.int32)
    for s in range(size):
        first = row_start[s * groups + groups - 1]  # the rows below all columns, once
        free = first
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
        for g in range(groups - 1):
            k = s * groups + g
            to = row_start[k]
            for column in range(start[k + 1], p * tree.start[s + 1]):
                rows[to] = column
                to += 1
            for r in range(first, free):
                rows[to] = rows[r]
                to += 1
    return rows


@jit
def _expanded(tree: Structure, cuts: Longs) -> tuple[Longs, Ints, Ints, Ints, Longs, Ints]:
    """Supernodes of the block matrix: start, height, parent, supernode of each column, row_start and rows.

    ``cuts`` (n_groups + 1,) says where the sign of the unknowns changes.
    """
    size = len(tree.height)
    groups = len(cuts) - 1
    p = cuts[groups]
    n = tree.start[size]
    start = np.empty(size * groups + 1, np.int64)
    height = np.empty(size * groups, np.int32)
    parent = np.full(size * groups, -1, np.int32)
    supernode = np.empty(n * p, np.int32)
    row_start = np.zeros(size * groups + 1, np.int64)
    for s in range(size):
        width = tree.start[s + 1] - tree.start[s]
        below = tree.height[s] - width
        for g in range(groups):
            k = s * groups + g
            start[k] = p * tree.start[s] + cuts[g] * width
            rest = (p - cuts[g + 1]) * width + p * below
            height[k] = (cuts[g + 1] - cuts[g]) * width + rest
            row_start[k + 1] = row_start[k] + rest
            supernode[start[k] : start[k] + (cuts[g + 1] - cuts[g]) * width] = k
            if g + 1 < groups:
                parent[k] = k + 1
        for c in range(tree.child_start[s], tree.child_start[s + 1]):
            parent[tree.child[c] * groups + groups - 1] = s * groups
    start[size * groups] = n * p
    return start, height, parent, supernode, row_start, _expanded_rows(tree, cuts, start, row_start)


@jit
def _unknowns(tree: Structure, p: int) -> Longs:
    """Place of unknown a of node j, both in the order of elimination; shape (n, p)."""
    places = np.empty((tree.start[len(tree.height)], p), np.int64)
    for s in range(len(tree.height)):
        begin = tree.start[s]
        width = tree.start[s + 1] - begin
        for q in range(width):
            for a in range(p):
                places[begin + q, a] = p * begin + a * width + q
    return places


@inline
def _entry(
    tree: Structure,
    blocks: tuple[Ints, Ints, Longs, Longs, Longs, Ints],
    s: int,
    q: int,
    row: int,
    a: int,
    b: int,
) -> int:
    """Place in the panels of the entry between unknown a of column q of supernode s, and b of a row of its front."""
    first, count, cuts, group, panel, height = blocks
    width = tree.start[s + 1] - tree.start[s]
    column = a * width + q
    if row < width:
        other = b * width + row
        if other < column:
            column, other = other, column
            a = b
    else:
        r = tree.row_start[s] + row - width
        other = cuts[-1] * (width + first[r]) + b * count[r] + row - width - first[r]
    k = s * (len(cuts) - 1) + group[a]
    skipped = cuts[group[a]] * width
    return panel[k] + (column - skipped) * np.int64(height[k]) + other - skipped


@jit
def _load(
    tree: Structure,
    blocks: tuple[Ints, Ints, Longs, Longs, Longs, Ints],
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
        for q in range(width):
            j = begin + q
            k = tree.entry_start[j]
            for a in range(p):
                for b in range(a, p):
                    value = constant[a, b] + linear[a, b] * values[k] + added[j] * output[a] * output[b]
                    panels[_entry(tree, blocks, s, q, q, a, b)] = value
                    if a == b:
                        diagonal[p * begin + a * width + q] = value
            for k in range(tree.entry_start[j] + 1, tree.entry_start[j + 1]):
                for pair in range(len(pairs)):
                    a = pairs[pair, 0]
                    b = pairs[pair, 1]
                    panels[_entry(tree, blocks, s, q, tree.entry_row[k], a, b)] = linear[a, b] * values[k]


@jit
def _block_traces(
    tree: Structure,
    blocks: tuple[Ints, Ints, Longs, Longs, Longs, Ints],
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
        for q in range(tree.start[s + 1] - tree.start[s]):
            j = tree.start[s] + q
            own = values[tree.entry_start[j]]
            for a in range(p):
                for b in range(a, p):
                    z = panels[_entry(tree, blocks, s, q, q, a, b)]
                    plain[a, b] += z
                    weighted[a, b] += weights[j] * z
                    mixed[a, b] += own * z
                    if a != b:
                        plain[b, a] += z
                        weighted[b, a] += weights[j] * z
                        mixed[b, a] += own * z
            for k in range(tree.entry_start[j] + 1, tree.entry_start[j + 1]):
                for pair in range(len(pairs)):
                    a = pairs[pair, 0]
                    b = pairs[pair, 1]
                    z = values[k] * panels[_entry(tree, blocks, s, q, tree.entry_row[k], a, b)]
                    mixed[a, b] += z  # of the entry, and of its transpose
                    mixed[b, a] += z


@jit
def _outputs(
    tree: Structure,
    blocks: tuple[Ints, Ints, Longs, Longs, Longs, Ints],
    output: Floats,
    panels: Floats,
    beside: bool,
    out: Floats,
) -> None:
    """wᵀ Z_ij w on the pattern of A, entries of its lower triangle (m,); or of the diagonal only, (n,)."""
    p = len(output)
    for s in range(len(tree.height)):
        for q in range(tree.start[s + 1] - tree.start[s]):
            j = tree.start[s] + q
            for k in range(tree.entry_start[j], tree.entry_start[j + 1] if beside else tree.entry_start[j] + 1):
                total = 0.0
                for a in range(p):
                    for b in range(p):
                        if output[a] != 0.0 and output[b] != 0.0:
                            place = _entry(tree, blocks, s, q, tree.entry_row[k], a, b)
                            total += output[a] * output[b] * panels[place]
                out[k if beside else j] = total


class BlockAnalysis(Layout):
    """The structure of factorisations of block matrices, from that of matrices A of one pattern.

    Parameters
    ----------
    base : Analysis
        Of A.
    signs : sequence of int
        Sign of the pivots of each unknown, in the order of elimination: all 1 for positive definite matrices.
    memory_limit : float, optional
        Bytes; by default, most of what the machine has available.

    Attributes
    ----------
    places : ndarray (n, p)
        Rows of the block matrix that belong to node j of A, nodes and unknowns in the order of elimination.

    Raises
    ------
    ResourceError
        If the factorisation would not fit; no memory for it has been taken.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> from graphmatern.sparse import BlockAnalysis, analyze
    >>> A = sp.diags_array([-1.0, 2.5, -1.0], offsets=[-1, 0, 1], shape=(50, 50)).tocsr().tocsc()
    >>> base = analyze(A)
    >>> constant, linear, output = np.eye(2), np.array([[1.0, 0.5], [0.5, 1.0]]), np.array([1.0, 0.0])
    >>> values = A.data[base.lower_positions]
    >>> factor = BlockAnalysis(base, (1, 1)).factorize(constant, linear, output, values, np.zeros(50))
    >>> dense = np.kron(constant, np.eye(50)) + np.kron(linear, A.toarray())
    >>> bool(np.isclose(factor.logdet(), np.linalg.slogdet(dense)[1]))
    True
    """

    def __init__(self, base: Analysis, signs: Sequence[int], memory_limit: float | None = None) -> None:
        self.base, self.signs = base, tuple(signs)
        tree, p = base._structure, len(signs)
        check_cost(self.predict(base, p), memory_limit, None)
        changes = np.flatnonzero(np.diff(np.array(signs)))
        self._cuts = np.concatenate([[0], changes + 1, [p]]).astype(np.int64)
        groups = len(self._cuts) - 1
        start, height, parent, supernode, row_start, rows = _expanded(tree, self._cuts)
        panel = np.zeros(len(start), np.int64)
        np.cumsum(np.diff(start) * height, out=panel[1:])
        child_start, child = _symbolic.children_lists(parent)
        plan = make_plan(start, height, parent, child_start, child, int(panel[-1]), base.n_threads)
        n = int(start[-1])
        structure = Structure(
            start=start,
            height=height,
            sign=np.tile(np.array([signs[cut] for cut in self._cuts[:-1]], np.int8), len(tree.height)),
            supernode=supernode,
            row_start=row_start,
            rows=rows,
            relative=_symbolic.relative_rows(start, parent, row_start, rows, child_start, child),
            child_start=child_start,
            child=child,
            panel=panel,
            entry_start=np.arange(n + 1),  # only the diagonal is kept, to judge pivots by
            source=np.zeros(n, np.int32),
            entry_row=np.zeros(0, np.int32),
            offset=plan.offset,
            in_task=plan.in_task,
            detached=plan.detached,
        )
        self.places = _unknowns(tree, p)
        permutation = np.empty(n, np.int32)
        permutation[self.places] = base.permutation[:, None]  # of what fails, the node is named
        super().__init__(structure, plan, permutation, base.n_threads)
        group = np.repeat(np.arange(groups), np.diff(self._cuts))
        self._blocks = (*_segments(tree), self._cuts, group, panel, height)

    @staticmethod
    def predict(base: Analysis, size: int) -> Cost:
        """Cost of factorisations with ``size`` unknowns per node, from that with one."""
        entries, flops = base.nnz_factor * size**2, base.flops * size**3
        seconds = predicted_seconds(base.n * size, entries, flops, base.n_threads)
        memory = int(2.0 * 8 * base.n_entries * size**2 + base.memory_bytes + 60 * base.n * size)
        return Cost(base.ordering, entries, flops, memory, seconds)

    @property
    def size(self) -> int:
        """Unknowns per node, p."""
        return len(self.signs)

    def factorize(self, constant: Floats, linear: Floats, output: Floats, values: Floats, added: Floats) -> BlockFactor:
        """Factorise J₀ ⊗ I + J₁ ⊗ A + w wᵀ ⊗ diag(added); see `BlockFactor.update_blocks`."""
        factor = BlockFactor(self)
        factor.update_blocks(constant, linear, output, values, added)
        return factor


def _pairs(linear: Floats) -> Longs:
    """Pairs of unknowns that J₁ couples."""
    return np.argwhere(linear != 0.0)


class BlockFactor(Factor):
    """The factorisation L S Lᵀ of a block matrix; made by `BlockAnalysis.factorize`."""

    analysis: BlockAnalysis  # type: ignore[assignment]  # of which it uses what a `Layout` has

    def __init__(self, analysis: BlockAnalysis) -> None:
        super().__init__(analysis)  # type: ignore[arg-type]

    def update_blocks(self, constant: Floats, linear: Floats, output: Floats, values: Floats, added: Floats) -> None:
        """Factorise another matrix in the memory of this one.

        Parameters
        ----------
        constant, linear : ndarray (p, p)
            J₀ and J₁, symmetric; unknowns in the order of elimination.
        output : ndarray (p,)
            w.
        values : ndarray (m,)
            Lower triangle of A in the order of ``analysis.base.lower_positions``.
        added : ndarray (n,)
            d, in the order of elimination.

        Raises
        ------
        NotPositiveDefiniteError
            If a pivot has the wrong sign, or is zero to working precision.
        """
        blocks = self.analysis
        with self._lock:
            self._ready = False
            diagonal = self._work.lower
            tree = blocks.base._structure
            _load(
                tree,
                blocks._blocks,
                constant,
                linear,
                output,
                values,
                added,
                _pairs(linear),
                self._panels,
                diagonal,
            )
            column, _ = self._factorize(np.empty(0), False)
            if column >= 0:
                node = int(blocks.permutation[column])
                raise NotPositiveDefiniteError(
                    f"the block matrix ({blocks.base.n} nodes, {blocks.size} unknowns each) has a pivot of the wrong "
                    f"sign at node {node}. Likely causes: (a) a lengthscale so long that rounding decides; (b) "
                    "negative sites that outweigh the prior.",
                    node,
                )
            self._ready = True

    def _load(self, mirror: NDArray[np.integer], values: Floats, check: bool) -> tuple[bool, bool]:
        del mirror, values, check
        return True, False  # `update_blocks` has

    def selected_inverse(self, out: SelectedInverse | None = None) -> BlockInverse:
        """Compute the entries of the inverse on the pattern of the factor."""
        found = super().selected_inverse(BlockInverse(self.analysis) if out is None else out)
        assert isinstance(found, BlockInverse)
        return found


class BlockInverse(SelectedInverse):
    """Entries of the inverse Z of a block matrix on the pattern of its factor."""

    analysis: BlockAnalysis  # type: ignore[assignment]  # of which it uses what a `Layout` has

    def __init__(self, analysis: BlockAnalysis) -> None:
        super().__init__(analysis)  # type: ignore[arg-type]

    def traces(self, values: Floats, weights: Floats, linear: Floats) -> tuple[Floats, Floats, Floats]:
        """Σ_j Z_jj, Σ_j d_j Z_jj, and Σ_ij A_ij Z_ij where ``linear`` is not zero, each of shape (p, p).

        Parameters
        ----------
        values : ndarray (m,)
            Lower triangle of A in the order of ``analysis.base.lower_positions``.
        weights : ndarray (n,)
            d, in the order of elimination.
        linear : ndarray (p, p)
            Which pairs of unknowns are asked for.
        """
        blocks, p = self.analysis, self.analysis.size
        found = np.zeros((p, p)), np.zeros((p, p)), np.zeros((p, p))
        _block_traces(blocks.base._structure, blocks._blocks, values, weights, _pairs(linear), self._panels, *found)
        return found

    def output_diagonal(self, output: Floats) -> Floats:
        """wᵀ Z_jj w for every node, in the order of elimination; shape (n,)."""
        blocks, out = self.analysis, np.empty(self.analysis.base.n)
        _outputs(blocks.base._structure, blocks._blocks, output, self._panels, False, out)
        return out

    def output_lower(self, output: Floats) -> Floats:
        """wᵀ Z_ij w on the pattern of A, in the order of ``analysis.base.lower_positions``; shape (m,)."""
        blocks, tree = self.analysis, self.analysis.base._structure
        out = np.empty(len(tree.source))
        _outputs(tree, blocks._blocks, output, self._panels, True, out)
        return out
