"""Counts on small patterns through scipy, where to compile our own code would take longer than all the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import csc_array, csr_array, diags_array
from scipy.sparse.csgraph import reverse_cuthill_mckee

from graphmatern.sparse._resources import Cost, available_threads, bytes_needed, predicted_seconds

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from scipy.sparse import sparray, spmatrix

    Integers = NDArray[np.integer]

__all__ = ["small_cost", "small_ordering", "small_power"]

_NODES = 20_000
_OPERATIONS = 5e9  # that SuperLU has done in two seconds
_QUICK = 1e9  # that it has done in some tenths of a second
_PRODUCTS = 5_000_000  # entries that are multiplied to form a power


def small_power(indptr: Integers, indices: Integers, power: int) -> csr_array[Any] | None:
    """Pattern of a power of a symmetric matrix that holds its diagonal; None where that is slow, or the power is 0."""
    n = len(indptr) - 1
    if n > _NODES or power == 0:
        return None
    steps = np.diff(indptr).astype(np.int64)
    found = base = csr_array((np.ones(len(indices), bool), indices, indptr), shape=(n, n))
    for _ in range(power - 1):
        if steps[found.indices].sum() > _PRODUCTS:
            return None
        found = csr_array(found @ base)
    return found


def small_cost(pattern: spmatrix | sparray, power: int = 1, n_threads: int | None = None) -> Cost | None:
    """Predict the cost of factorising a power of a small pattern, without compiling anything; None where that is slow.

    SuperLU orders and factorises a matrix of this pattern, if its profile shows that it does not take long. Its
    minimum degree ordering has the fill of ours to some per cent.

    Parameters
    ----------
    pattern : scipy sparse matrix, shape (n, n)
        Its pattern must be symmetric and hold the whole diagonal.
    power : int
        At least 1.
    n_threads : int, optional
        Threads that factorise at the same time; by default, one for each processor.

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> small_cost(sp.eye_array(1000, format="csc")).nnz_factor
    1000
    """
    given: csr_array[Any] = csr_array(pattern)  # type: ignore[call-overload]
    n = given.shape[0]
    matrix = small_power(given.indptr, given.indices, power)
    factor = None if matrix is None else _factor(matrix, _OPERATIONS)
    if factor is None or matrix is None:
        return None
    counts = np.diff(factor.L.indptr).astype(np.float64)
    nnz, flops = int(counts.sum()), float(counts @ counts)
    seconds = predicted_seconds(n, nnz, flops, available_threads() if n_threads is None else n_threads)
    return Cost("minimum_degree", nnz, flops, bytes_needed(n, len(matrix.indices), nnz), seconds)


def small_ordering(indptr: Integers, indices: Integers) -> NDArray[np.int32] | None:
    """Minimum degree ordering of a small pattern, without compiling anything; None where that is slow."""
    matrix = small_power(indptr, indices, 1)
    factor = None if matrix is None else _factor(matrix, _QUICK)
    if factor is None:
        return None
    order = np.argsort(factor.perm_c).astype(np.int32)
    # Hubs come last, as in `minimum_degree`, where pivots of a singular matrix are told from rounding.
    is_hub = np.diff(indptr)[order] > max(16.0, 10.0 * np.sqrt(len(order)))
    return np.concatenate([order[~is_hub], order[is_hub]])


def _factor(matrix: csr_array[Any], most: float) -> Any:
    """SuperLU's factor of a matrix of this pattern; None where that may take more operations."""
    if _profile_operations(matrix) > most:
        return None
    from scipy.sparse.linalg import splu

    # Positive definite: no pivoting.
    dominant = csc_array(diags_array(np.diff(matrix.indptr) + 1.0) - matrix.astype(np.float64))
    return splu(dominant, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True})


def _profile_operations(matrix: csr_array[Any]) -> float:
    """Operations of a factorisation within the profile of an ordering by bands: more than a good one takes."""
    order = reverse_cuthill_mckee(matrix, symmetric_mode=True)
    banded = csr_array(matrix[order][:, order]).tocoo()
    rows = np.arange(matrix.shape[0])
    first = rows.copy()
    np.minimum.at(first, banded.coords[0], banded.coords[1])
    return float(((rows - first + 1.0) ** 2).sum())
