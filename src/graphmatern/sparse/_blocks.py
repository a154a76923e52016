"""Matrices with p × p blocks on the pattern of an n × n matrix, from the analysis of the latter.

B = J₀ ⊗ I + J₁ ⊗ A + w wᵀ ⊗ diag(d), for small symmetric J₀, J₁ and a vector w, has p unknowns at each of A's n nodes.
Its factor has a block wherever that of A has an entry: order of elimination, tree, supernodes and rows are those of A,
each column being p columns. Within a supernode, all first unknowns come first, then all second ones, and so on. Nothing
of size p² n is kept besides the factor: values are written to the panels straight from those of A.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from graphmatern.errors import NotPositiveDefiniteError
from graphmatern.sparse import _block_kernels, _symbolic
from graphmatern.sparse._analysis import Layout
from graphmatern.sparse._factor import Factor, SelectedInverse
from graphmatern.sparse._resources import Cost, check_cost, predicted_seconds
from graphmatern.sparse._structure import Structure, make_plan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from graphmatern.sparse._analysis import Analysis

    Longs = NDArray[np.int64]
    Floats = NDArray[np.float64]

__all__ = ["BlockAnalysis", "BlockFactor", "BlockInverse"]


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
        If the factorisation would not fit; no memory for it has been allocated.

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
        start, height, parent, row_start, rows = (
            p * tree.start,
            p * tree.height,
            _block_kernels.parents(tree),
            p * tree.row_start,
            _block_kernels.expanded_rows(tree, p),
        )
        panel = p * p * tree.panel
        child_start, child = tree.child_start, tree.child
        plan = make_plan(start, height, parent, child_start, child, int(panel[-1]), base.n_threads)
        n = int(start[-1])
        structure = Structure(
            start=start,
            height=height,
            sign=_block_kernels.spread_signs(tree, np.array(signs, np.int8)),
            supernode=np.repeat(np.arange(len(height), dtype=np.int32), np.diff(start)),
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
        self.places = _block_kernels.unknown_places(tree, p)
        permutation = np.empty(n, np.int32)
        permutation[self.places] = base.permutation[:, None]  # of what fails, the node is named
        super().__init__(structure, plan, permutation, base.n_threads)
        self._segments = _block_kernels.row_segments(tree)

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
            _block_kernels.load_blocks(
                tree,
                blocks._segments,
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
        _block_kernels.block_traces(
            blocks.base._structure, blocks._segments, values, weights, _pairs(linear), self._panels, *found
        )
        return found

    def output_diagonal(self, output: Floats) -> Floats:
        """wᵀ Z_jj w for every node, in the order of elimination; shape (n,)."""
        blocks, out = self.analysis, np.empty(self.analysis.base.n)
        _block_kernels.block_outputs(blocks.base._structure, blocks._segments, output, self._panels, False, out)
        return out

    def output_lower(self, output: Floats) -> Floats:
        """wᵀ Z_ij w on the pattern of A, in the order of ``analysis.base.lower_positions``; shape (m,)."""
        blocks, tree = self.analysis, self.analysis.base._structure
        out = np.empty(len(tree.source))
        _block_kernels.block_outputs(tree, blocks._segments, output, self._panels, True, out)
        return out
