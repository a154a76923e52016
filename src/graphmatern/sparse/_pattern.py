"""Symmetric sparsity patterns in compressed columns: checks, traversal, relabelling, size of powers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np

from graphmatern._validation import FaultList, check_whole
from graphmatern.errors import ResourceError
from graphmatern.sparse._compile import jit
from graphmatern.sparse._small import small_power

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from scipy.sparse import sparray, spmatrix

    Integers = NDArray[np.integer]
    Ints = NDArray[np.int32]
    Longs = NDArray[np.int64]
    Floats = NDArray[np.float64]

__all__ = [
    "breadth_first",
    "canonical",
    "connected",
    "is_symmetric",
    "power_nnz",
    "relabel",
    "transpose_positions",
    "with_diagonal",
]

#: Node numbers and, where they fit, positions in the caller's values are kept in 32 bits; all offsets
#: into the factor in 64.  A name of its own so that a test can lower it.
INT32_LIMIT = 2**31 - 1

_MANY = 200_000  # entries of a pattern for which compiled code is worth loading


@jit
def _fault(indptr: Longs, indices: Ints) -> tuple[int, int, int]:
    """Return (0, 0, 0) for a symmetric pattern with a full diagonal, else (1, i, j) or (2, i, i).

    Code 1: entry (i, j) is there and (j, i) is not; code 2: the diagonal entry i is missing.
    """
    n = len(indptr) - 1
    # Column by column, the transposes of the entries met so far fill each column from its top.
    filled = indptr[:-1].copy()
    for j in range(n):
        diagonal = False
        for p in range(indptr[j], indptr[j + 1]):
            i = indices[p]
            diagonal |= i == j
            q = filled[i]
            if q >= indptr[i + 1] or indices[q] != j:
                return 1, i, j
            filled[i] = q + 1
        if not diagonal:
            return 2, j, j
    return 0, 0, 0


def canonical(pattern: spmatrix | sparray | Any, *, check: bool = True) -> tuple[Longs, Ints]:
    """Return ``indptr`` (n + 1,) and sorted ``indices`` (nnz,) of a symmetric pattern with a full diagonal.

    Stored zeros belong to the pattern; repeated entries count once.
    """
    from scipy import sparse

    faults = FaultList("no analysis was made")
    if not sparse.issparse(pattern):
        raise faults.raise_now("pattern", "must be a SciPy sparse matrix", type(pattern).__name__, "Convert it.")
    pattern = cast("Any", pattern)
    if pattern.ndim != 2 or pattern.shape[0] != pattern.shape[1]:
        raise faults.raise_now("pattern", "must be square", f"shape {pattern.shape}", "Pass a square matrix.")
    n = pattern.shape[0]
    if n > INT32_LIMIT:
        raise ResourceError(f"a matrix of {n} rows exceeds the largest that can be analysed ({INT32_LIMIT})")
    # Rows and columns of a symmetric pattern are the same lists.
    columns = pattern if pattern.format in ("csc", "csr") else pattern.tocsc()
    if not (columns.has_canonical_format and columns.has_sorted_indices):
        ones = np.ones(len(columns.indices), np.int8)
        columns = sparse.csc_array((ones, columns.indices.copy(), columns.indptr.copy()), shape=(n, n))
        columns.sum_duplicates()
    # Copies: the caller may go on to change the matrix.
    indptr = np.array(columns.indptr, np.int64)
    indices = np.array(columns.indices, np.int32)
    if check:
        code, i, j = _fault(indptr, indices)
        if code == 1:
            remedy = "Pass `pattern + pattern.T`."
            faults.add("pattern", "must be symmetric", f"an entry for only one of ({i}, {j}) and ({j}, {i})", remedy)
        if code == 2:
            remedy = "Add `scipy.sparse.eye(n)`, or store explicit zeros."
            faults.add("pattern", "must hold the whole diagonal", f"no entry ({i}, {i})", remedy)
        faults.raise_if_any()
    return indptr, indices


@jit
def breadth_first(indptr: Longs, indices: Ints) -> Ints:
    """Return the nodes (n,) in breadth-first order, component after component.

    Neighbours get numbers close to each other, so that what follows finds them in the processor's cache.
    """
    n = len(indptr) - 1
    order = np.empty(n, np.int32)
    seen = np.zeros(n, np.bool_)
    write = 0
    for root in range(n):
        if seen[root]:
            continue
        seen[root] = True
        read = write
        order[write] = root
        write += 1
        while read < write:
            j = order[read]
            read += 1
            for p in range(indptr[j], indptr[j + 1]):
                i = indices[p]
                if not seen[i]:
                    seen[i] = True
                    order[write] = i
                    write += 1
    return order


@jit
def relabel(indptr: Longs, indices: Ints, order: Ints) -> tuple[Longs, Ints]:
    """Return the pattern (indices not sorted) whose node k is node ``order[k]`` of the given one."""
    n = len(indptr) - 1
    label = np.empty(n, np.int32)
    new_indptr = np.empty(n + 1, np.int64)
    new_indptr[0] = 0
    for k in range(n):
        j = order[k]
        label[j] = k
        new_indptr[k + 1] = new_indptr[k] + indptr[j + 1] - indptr[j]
    new_indices = np.empty(len(indices), np.int32)
    for k in range(n):
        j = order[k]
        shift = new_indptr[k] - indptr[j]
        for p in range(indptr[j], indptr[j + 1]):
            new_indices[shift + p] = label[indices[p]]
    return new_indptr, new_indices


def connected(indptr: Longs, indices: Ints) -> Longs:
    """Return the number (n,) of each node's connected component, counted in the order of their first nodes."""
    if len(indices) > _MANY:
        return _connected(indptr, indices)
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    n = len(indptr) - 1
    graph = csr_array((np.ones(len(indices), bool), indices, indptr), shape=(n, n))
    labels = connected_components(graph, directed=False)[1]
    first = np.unique(labels, return_index=True)[1]
    return np.argsort(np.argsort(first))[labels]


@jit
def _connected(indptr: Longs, indices: Ints) -> Longs:
    """Find what `connected` returns."""
    n = len(indptr) - 1
    # Every node points to one of its component with a smaller number, the first to itself.
    first = np.arange(n)
    for j in range(n):
        a = j
        for p in range(indptr[j], indptr[j + 1]):
            if indices[p] >= j:
                continue
            while first[a] != a:
                first[a] = first[first[a]]
                a = first[a]
            b = np.int64(indices[p])
            while first[b] != b:
                first[b] = first[first[b]]
                b = first[b]
            if a < b:
                first[b] = a
            else:
                first[a] = b
    count = 0
    for j in range(n):
        if first[j] == j:
            first[j] = count
            count += 1
        else:
            first[j] = first[first[j]]
    return first


def is_symmetric(indptr: Integers, indices: Ints, values: Floats) -> bool:
    """Whether a square matrix with sorted indices equals its transpose, bit by bit."""
    if len(indices) > _MANY:
        return bool(_is_symmetric(indptr, indices, values))
    from scipy.sparse import csr_array

    n = len(indptr) - 1
    mirror = csr_array((values, indices, indptr), shape=(n, n)).tocsc()
    pairs = ((indptr, mirror.indptr), (indices, mirror.indices), (values, mirror.data))
    return all(np.array_equal(one, other) for one, other in pairs)


@jit
def _is_symmetric(indptr: Integers, indices: Ints, values: Floats) -> bool:
    """Find what `is_symmetric` returns, without a transpose in memory."""
    # Row by row, the transposes of the entries met so far fill each row from its left.
    filled = indptr[:-1].copy()
    for i in range(len(filled)):
        for p in range(indptr[i], indptr[i + 1]):
            j = indices[p]
            q = filled[j]
            if q >= indptr[j + 1] or indices[q] != i or values[q] != values[p]:
                return False
            filled[j] = q + 1
    return True


def with_diagonal(indptr: Integers, indices: Ints, values: Floats, diagonal: Floats) -> tuple[Integers, Ints, Floats]:
    """Return a matrix with sorted indices and no diagonal with one put in."""
    n = len(indptr) - 1
    if len(indices) > _MANY:
        found = np.empty(n + 1, indptr.dtype), np.empty(len(indices) + n, np.int32), np.empty(len(indices) + n)
        _with_diagonal(indptr, indices, values, diagonal, *found)
        return found
    own = np.arange(n)
    rows = np.repeat(own, np.diff(indptr))
    right = indices > rows
    new_indices, new_values = np.empty(len(indices) + n, np.int32), np.empty(len(indices) + n)
    # Every row before one puts in an entry, and so does its own before what lies to the right.
    places = np.arange(len(indices)) + rows + right
    new_indices[places], new_values[places] = indices, values
    places = indptr[:-1] + own + np.bincount(rows[~right], minlength=n)
    new_indices[places], new_values[places] = own, diagonal
    return (indptr + np.arange(n + 1)).astype(indptr.dtype), new_indices, new_values


@jit
def _with_diagonal(
    indptr: Integers,
    indices: Ints,
    values: Floats,
    diagonal: Floats,
    new_indptr: Integers,
    new_indices: Ints,
    new_values: Floats,
) -> None:
    """Write what `with_diagonal` returns, in one pass."""
    write = 0
    for i in range(len(diagonal)):
        new_indptr[i] = write
        p = indptr[i]
        while p < indptr[i + 1] and indices[p] < i:
            new_indices[write] = indices[p]
            new_values[write] = values[p]
            write += 1
            p += 1
        new_indices[write] = i
        new_values[write] = diagonal[i]
        write += 1
        while p < indptr[i + 1]:
            new_indices[write] = indices[p]
            new_values[write] = values[p]
            write += 1
            p += 1
    new_indptr[-1] = write


@jit
def transpose_positions(indptr: Longs, indices: Ints) -> Longs:
    """Return, for each position (nnz,) of a symmetric pattern, the position of the transposed entry."""
    filled = indptr[:-1].copy()
    mirror = np.empty(len(indices), np.int64)
    for j in range(len(filled)):
        for p in range(indptr[j], indptr[j + 1]):
            i = indices[p]
            mirror[p] = filled[i]
            filled[i] += 1
    return mirror


@jit
def _count_ball(indptr: Longs, indices: Ints, radius: int, limit: int) -> int:
    """Count pairs of nodes at most ``radius`` steps apart, or stop once there are more than ``limit``."""
    n = len(indptr) - 1
    seen = np.full(n, -1, np.int32)
    ball = np.empty(n, np.int32)
    total = 0
    for centre in range(n):
        seen[centre] = centre
        ball[0] = centre
        write = 1
        read = 0
        for _ in range(radius):
            end = write
            for k in range(read, end):
                j = ball[k]
                for p in range(indptr[j], indptr[j + 1]):
                    i = indices[p]
                    if seen[i] != centre:
                        seen[i] = centre
                        ball[write] = i
                        write += 1
            read = end
        total += write
        if total > limit:
            return total
    return total


def power_nnz(matrix: spmatrix | sparray, nu: int, *, limit: int | None = None, check: bool = True) -> int:
    """Count the entries of the pattern of ``matrix ** nu`` without forming it.

    Parameters
    ----------
    matrix : scipy sparse matrix, shape (n, n)
        Its pattern must be symmetric and hold the diagonal.
    nu : int
        The power, at least 0.
    limit : int, optional
        Stop counting above this; the count returned is then some number larger than ``limit``.
    check : bool
        Whether to check that the pattern is symmetric and holds the diagonal.

    Returns
    -------
    int
        Number of pairs of nodes at most ``nu`` steps apart: the pattern, barring cancellation.

    Examples
    --------
    The square of a star is dense.

    >>> import scipy.sparse as sp
    >>> star = sp.eye(100, format="lil"); star[0] = 1; star[:, 0] = 1
    >>> power_nnz(star, 1), power_nnz(star, 2)
    (298, 10000)
    """
    faults = FaultList("nothing was counted")
    check_whole("nu", nu, faults, minimum=0, remedy="Powers are whole numbers.")
    faults.raise_if_any()
    indptr, indices = canonical(matrix, check=check)
    if nu == 1:
        return len(indices)
    small = small_power(indptr, indices, nu)
    if small is not None:
        return small.nnz
    return int(_count_ball(indptr, indices, nu, 2**62 if limit is None else limit))
