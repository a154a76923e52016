"""Analysis of a sparsity pattern: everything about a factorisation that does not depend on values."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.sparse import csc_array, csr_array

from graphmatern._validation import FaultList, check_whole
from graphmatern.errors import ResourceError
from graphmatern.sparse import _pattern, _resources, _symbolic
from graphmatern.sparse._ordering import check_ordering, choose, separator_size
from graphmatern.sparse._resources import Cost, bytes_needed, check_cost, predicted_seconds
from graphmatern.sparse._structure import SMALL_FRONT, Structure, make_plan

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray
    from scipy.sparse import sparray, spmatrix

    from graphmatern.sparse._factor import Factor
    from graphmatern.sparse._ordering import Elimination
    from graphmatern.sparse._structure import Plan

__all__ = ["Analysis", "Layout", "analyze", "early_cost", "least_cost", "predict_cost", "separator_cost"]

#: Offsets into the factor are 64-bit, and byte addresses must fit as well.  A name of its own for a test
#: to lower.
MAX_ENTRIES = 2**59

_FEW = 5_000  # nodes that are ordered at once
_DOUBT = 0.5  # a bisection of a graph with hubs may be twice as costly as the best ordering


class _Near(NamedTuple):
    """The pattern with its nodes renumbered so that neighbours lie close to each other in memory.

    On a million nodes in random order this halves the time of all that follows.
    """

    order: NDArray[np.int32]  # (n,) the caller's number of each node
    indptr: NDArray[np.int64]
    indices: NDArray[np.int32]


class Layout:
    """Where the entries of a factor lie, and how its supernodes are shared among threads.

    Parameters
    ----------
    structure : Structure
        Supernodes, and places in the working memory.
    plan : Plan
        How these are shared.
    permutation : ndarray (n,)
        Row ``permutation[k]`` of A is row k of P A Pᵀ.
    n_threads : int
        Threads that factorise at the same time.
    """

    def __init__(self, structure: Structure, plan: Plan, permutation: NDArray[np.int32], n_threads: int) -> None:
        self._structure, self._plan, self.permutation, self.n_threads = structure, plan, permutation, n_threads
        self.n = len(permutation)
        self.n_entries = int(structure.panel[-1])
        self.has_signs = bool((structure.sign < 0).any())
        below = structure.height - np.diff(structure.start)
        self._max_below = int(below.max(initial=0))
        self._room = int(max((below * np.diff(structure.start)).max(initial=0), SMALL_FRONT**2))

    @cached_property
    def _panel_diagonal(self) -> NDArray[np.int64]:
        """Places (n,) of the diagonal in matrices stored in panels, in the order of the factor."""
        tree = self._structure
        column = np.arange(self.n) - tree.start[tree.supernode]
        return np.asarray(tree.panel[tree.supernode] + column * (tree.height[tree.supernode] + np.int64(1)))

    @property
    def working_entries(self) -> int:
        """Entries of the working memory: the stacks, and room for one block of a front for each thread."""
        plan = self._plan
        stacks = plan.waiting + plan.top_stack + plan.task_stack * self.n_threads
        return stacks + (self._room + self._max_below) * self.n_threads


class Analysis(Layout):
    """The structure of a factorisation P A Pᵀ = L Lᵀ, for all matrices A of one pattern; made by `analyze`.

    Attributes
    ----------
    n : int
        Rows of the matrix.
    nnz_factor : int
        Entries of L, diagonal included, as the ordering implies them.
    n_entries : int
        Entries of the panels in which L is stored: `nnz_factor`, zeros that make small panels
        larger, and the upper triangles of the diagonal blocks.
    flops : float
        Floating-point operations of one factorisation.
    memory_bytes : int
        Memory for one factor, its selected inverse and their working memory, and for this analysis.
    predicted_seconds : float
        Rough time of one factorisation.
    permutation : ndarray (n,)
        Row ``permutation[k]`` of A is row k of P A Pᵀ.
    ordering : str
        Name of the ordering used.
    n_threads : int
        Threads that factorise at the same time.

    Notes
    -----
    *Writing values directly.*  All ``values`` are aligned with ``pattern``: the value of entry (i, j) lies at
    that position ``p`` between ``pattern.indptr[j]`` and ``pattern.indptr[j + 1]`` where
    ``pattern.indices[p] == i``.  `diagonal_positions` (n,) are the positions of the diagonal, so that
    ``values[diagonal_positions] += d`` adds a diagonal matrix; `lower_positions` and `mirror_positions` (m,)
    are the positions of the entries (i, j) of the lower triangle of P A Pᵀ and of their transposes.  Only
    values at `lower_positions` are read by the numeric kernels; the others serve to check symmetry.
    """

    def __init__(
        self,
        indptr: NDArray[np.int64],
        indices: NDArray[np.int32],
        near: _Near,
        elimination: Elimination,
        n_threads: int,
        unknowns: int = 1,
    ) -> None:
        self._indptr = indptr
        self._indices = indices
        self.ordering = elimination.name
        n = len(indptr) - 1
        self.nnz_factor = elimination.nnz
        self.flops = elimination.flops
        order, start, height, tree, supernode = _symbolic.supernodes(elimination.parent, elimination.counts, unknowns)
        permutation = elimination.permutation[order]
        panel = np.zeros(len(start), np.int64)
        np.cumsum(np.diff(start) * height, out=panel[1:])
        row_start, rows = _symbolic.row_lists(near.indptr, near.indices, permutation, start, height, tree, supernode)
        child_start, child = _symbolic.children_lists(tree)
        # Positions in the caller's values, in 32 bits where they fit.
        narrow = len(indices) <= _pattern.INT32_LIMIT
        n_lower = (len(indices) + n) // 2
        source: NDArray[np.integer] = np.empty(n_lower, np.int32) if narrow else np.empty(n_lower, np.int64)
        entry_start, entry_row = _symbolic.entry_positions(
            near.indptr, near.indices, indptr[near.order], permutation, start, row_start, rows, source
        )
        plan = make_plan(start, height, tree, child_start, child, int(panel[-1]), n_threads)
        structure = Structure(
            start=start,
            height=height,
            sign=np.ones(n, np.int8),
            supernode=supernode,
            row_start=row_start,
            rows=rows,
            relative=_symbolic.relative_rows(start, tree, row_start, rows, child_start, child),
            child_start=child_start,
            child=child,
            panel=panel,
            entry_start=entry_start,
            source=source,
            entry_row=entry_row,
            offset=plan.offset,
            in_task=plan.in_task,
            detached=plan.detached,
        )
        super().__init__(structure, plan, near.order[permutation], n_threads)

    def __repr__(self) -> str:
        return (
            f"<Analysis of {self.n} rows: {self.nnz_factor} entries in the factor, "
            f"{self.flops:.3g} operations, {self.ordering} ordering, {self.n_threads} threads>"
        )

    @property
    def memory_bytes(self) -> int:
        """Memory for one factor, its selected inverse and their working memory, and for this analysis."""
        structure = sum(array.nbytes for array in self._structure) + self._indptr.nbytes + self._indices.nbytes
        return structure + self._mirror_bytes + 8 * (2 * self.n_entries + self.working_entries)

    @property
    def _mirror_bytes(self) -> int:
        return int(self._structure.source.nbytes)

    @property
    def predicted_seconds(self) -> float:
        """Rough time of one factorisation."""
        return predicted_seconds(self.n, self.n_entries, self.flops, self.n_threads)

    @property
    def cost(self) -> Cost:
        """Predicted cost of a factorisation and its selected inverse."""
        return Cost(self.ordering, self.nnz_factor, self.flops, self.memory_bytes, self.predicted_seconds)

    @cached_property
    def pattern(self) -> csc_array:
        """Pattern in the caller's ordering, indices sorted, with ones for data; ``values`` align with it."""
        from scipy import sparse

        data = np.ones(len(self._indices))
        return sparse.csc_array((data, self._indices, self._indptr), shape=(self.n, self.n))

    @property
    def lower_positions(self) -> NDArray[np.integer]:
        """Positions (m,) in ``values`` of the lower triangle of P A Pᵀ, column by column, diagonal first."""
        return self._structure.source

    @cached_property
    def mirror_positions(self) -> NDArray[np.integer]:
        """Positions (m,) in ``values`` of the transposes of `lower_positions`."""
        mirror = _pattern.transpose_positions(self._indptr, self._indices)
        return mirror[self.lower_positions].astype(self.lower_positions.dtype)

    @cached_property
    def diagonal_positions(self) -> NDArray[np.integer]:
        """Positions (n,) in ``values`` of the diagonal."""
        positions = np.empty(self.n, self.lower_positions.dtype)
        positions[self.permutation] = self.lower_positions[self._structure.entry_start[:-1]]
        return positions

    def factorize(self, values: ArrayLike, *, check: bool = True) -> Factor:
        """Factorise the matrix with the given values.

        Parameters
        ----------
        values : array_like (nnz,)
            Values on `pattern`.
        check : bool
            Whether to look for values that are not finite or not symmetric.

        Returns
        -------
        Factor

        Raises
        ------
        NotPositiveDefiniteError
            If the matrix is not positive definite, or singular to working precision.
        InputError
            If the values have the wrong shape, are not finite or not symmetric.
        """
        from graphmatern.sparse._factor import Factor

        factor = Factor(self)
        factor.update(values, check=check)
        return factor

    def factorize_lower(self, lower: NDArray[np.float64]) -> Factor:
        """Factorise the matrix with the given permuted lower triangle (m,); see `Factor.update_lower`."""
        from graphmatern.sparse._factor import Factor

        factor = Factor(self)
        factor.update_lower(lower)
        return factor


def _prepare(
    pattern: spmatrix | sparray,
    ordering: str | ArrayLike,
    n_threads: int | None,
    check: bool,
) -> tuple[NDArray[np.int64], NDArray[np.int32], _Near, Elimination, int, Cost]:
    """Order the pattern and predict the cost of its factorisation."""
    if n_threads is None:
        n_threads = _resources.available_threads()
    else:
        faults = FaultList("no analysis was made")
        check_whole("n_threads", n_threads, faults, minimum=1, remedy="Leave it out to use all processors.")
        faults.raise_if_any()
    indptr, indices = _pattern.canonical(pattern, check=check)
    n = len(indptr) - 1
    wanted = check_ordering(ordering, n)
    order = _pattern.breadth_first(indptr, indices)
    near = _Near(order, *_pattern.relabel(indptr, indices, order))
    if isinstance(wanted, str):
        elimination = choose(near.indptr, near.indices, wanted)
    else:
        label = np.empty(n, np.int32)
        label[order] = np.arange(n, dtype=np.int32)
        elimination = choose(near.indptr, near.indices, label[wanted])
        elimination = elimination._replace(name=ordering if isinstance(ordering, str) else "given")
    seconds = predicted_seconds(n, elimination.nnz, elimination.flops, n_threads)
    memory = bytes_needed(n, len(indices), elimination.nnz)
    cost = Cost(elimination.name, elimination.nnz, elimination.flops, memory, seconds)
    return indptr, indices, near, elimination, n_threads, cost


def predict_cost(
    pattern: spmatrix | sparray, *, ordering: str | ArrayLike = "auto", n_threads: int | None = None
) -> Cost:
    """Predict the cost of factorising matrices of a pattern, without the memory that this would take.

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> predict_cost(sp.eye_array(1000, format="csc")).nnz_factor
    1000
    """
    return _prepare(pattern, ordering, n_threads, True)[-1]


def separator_cost(pattern: spmatrix | sparray, n_threads: int | None = None) -> Cost | None:
    """Cost that factorising a pattern has at least, about, from one bisection; None for few nodes, or too many entries.

    A graph whose halves only many nodes separate has a dense front of as many rows.

    Parameters
    ----------
    pattern : scipy sparse matrix, shape (n, n)
        Its pattern must be symmetric.
    n_threads : int, optional
        Threads that factorise at the same time; by default, one for each processor.
    """
    matrix: csr_array[Any] = csr_array(pattern)  # type: ignore[call-overload]
    n = matrix.shape[0]
    if n <= _FEW or matrix.nnz > _pattern.INT32_LIMIT:
        return None
    threads = _resources.available_threads() if n_threads is None else n_threads
    size = separator_size(matrix.indptr.astype(np.int64), matrix.indices.astype(np.int32))
    flops, entries = _DOUBT * size**3 / 3.0, int(_DOUBT * size**2 / 2.0)
    return Cost("metis", entries, flops, 20 * entries, predicted_seconds(n, entries, flops, threads))


def early_cost(
    pattern: spmatrix | sparray, *, enough: float, least: Cost | None = None, n_threads: int | None = None
) -> Cost | None:
    """Cost that factorising a pattern has at least, about, where that is plenty already: found before it is ordered.

    To factorise the part between the rows with most entries takes less than the whole.

    Parameters
    ----------
    pattern : scipy sparse matrix, shape (n, n)
        Its pattern must be symmetric and hold the whole diagonal.
    enough : float
        Seconds of a factorisation beyond which a lower bound will do; below, None is returned.
    least : Cost, optional
        What `separator_cost` says, where that is known.
    n_threads : int, optional
        Threads that factorise at the same time; by default, one for each processor.
    """
    least = separator_cost(pattern, n_threads) if least is None else least
    if least is not None and least.seconds > enough:
        return least
    matrix: csr_array[Any] = csr_array(pattern)  # type: ignore[call-overload]
    n = matrix.shape[0]
    for hubs in (2_500, 10_000):
        if n > 2 * hubs:
            kept = np.sort(np.argsort(-np.diff(matrix.indptr), kind="stable")[:hubs])
            part = predict_cost(csc_array(matrix[kept][:, kept]), n_threads=n_threads)
            if part.seconds > enough:
                return part
    return None


def least_cost(pattern: spmatrix | sparray, *, enough: float) -> tuple[Cost, bool]:
    """Predict the cost of factorising matrices of a pattern, or a lower bound if that is already too much.

    Parameters
    ----------
    pattern : scipy sparse matrix, shape (n, n)
        Its pattern must be symmetric and hold the whole diagonal.
    enough : float
        Seconds of a factorisation beyond which a lower bound suffices.

    Returns
    -------
    cost : Cost
    at_least : bool
        Whether it is a lower bound.
    """
    part = early_cost(pattern, enough=enough)
    return (predict_cost(pattern), False) if part is None else (part, True)


def analyze(
    pattern: spmatrix | sparray,
    *,
    ordering: str | ArrayLike = "auto",
    n_threads: int | None = None,
    memory_limit: float | None = None,
    max_seconds: float | None = None,
    check: bool = True,
    unknowns: int = 1,
) -> Analysis:
    """Analyse a symmetric sparsity pattern for Cholesky factorisation.

    Parameters
    ----------
    pattern : scipy sparse matrix, shape (n, n)
        Its pattern must be symmetric and hold the whole diagonal; explicit zeros count, values do not.
    ordering : {"auto", "metis", "minimum_degree", "natural"} or array_like of int (n,)
        Order of elimination.  A permutation ``p`` means that row ``p[k]`` is eliminated in step k;
        equivalent orders may be used in its place.
    n_threads : int, optional
        Threads that factorise at the same time; by default, one for each processor.
    memory_limit : float, optional
        Bytes; by default, most of what the machine has available.
    max_seconds : float, optional
        Limit on the predicted time of one factorisation; by default, none.
    check : bool
        Whether to check that the pattern is symmetric.
    unknowns : int
        Number of unknowns per row for which supernodes are chosen; see `BlockAnalysis`.

    Returns
    -------
    Analysis

    Raises
    ------
    InputError
        If the pattern or the ordering is invalid.
    ResourceError
        If the factorisation would exceed a limit; no memory for it has been allocated.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> A = sp.diags_array([-1.0, 2.5, -1.0], offsets=[-1, 0, 1], shape=(5, 5)).tocsr().tocsc()
    >>> factor = analyze(A).factorize(A.data)
    >>> bool(np.isclose(factor.logdet(), np.linalg.slogdet(A.toarray())[1]))
    True
    >>> inverse = factor.selected_inverse()
    >>> bool(np.allclose(inverse.diagonal(), np.diag(np.linalg.inv(A.toarray()))))
    True
    """
    indptr, indices, near, elimination, n_threads, cost = _prepare(pattern, ordering, n_threads, check)
    check_cost(cost, memory_limit, max_seconds)
    if elimination.nnz >= MAX_ENTRIES:
        raise ResourceError(f"the factor has {elimination.nnz} entries, more than offsets can count ({MAX_ENTRIES})")
    analysis = Analysis(indptr, indices, near, elimination, n_threads, unknowns)
    check_cost(analysis.cost, memory_limit, max_seconds)
    return analysis
