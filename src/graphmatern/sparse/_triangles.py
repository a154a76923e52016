"""Triangles of a sparse symmetric matrix: what the diagonal of its third power is made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import csr_array

from graphmatern.sparse._compile import jit

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Longs = NDArray[np.int64]

__all__ = ["cubed_diagonal"]


@jit
def _add_triangles(indptr: Longs, indices: Longs, values: Floats, found: Floats) -> None:
    """Add twice the product of the entries of every triangle to its three corners; rows hold later columns only."""
    beside = np.zeros(len(found))
    for a in range(len(found)):
        first, last = indptr[a], indptr[a + 1]
        for k in range(first, last):
            beside[indices[k]] = values[k]
        for k in range(first, last):
            b = indices[k]
            for j in range(indptr[b], indptr[b + 1]):
                c = indices[j]
                if beside[c] != 0.0:
                    product = 2.0 * values[k] * values[j] * beside[c]
                    found[a] += product
                    found[b] += product
                    found[c] += product
        for k in range(first, last):
            beside[indices[k]] = 0.0


def cubed_diagonal(matrix: csr_array[Any], most: float = np.inf) -> Floats | None:
    """Diagonal of the third power of a symmetric matrix; shape (n,).

    Parameters
    ----------
    matrix : csr_array, shape (n, n)
        Symmetric.
    most : float
        How many pairs of entries may be looked at; None is returned where it would take more. Rows with few entries
        come first, so that hubs are hardly looked at from.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> cubed_diagonal(sp.csr_array(np.ones((3, 3))))
    array([9., 9., 9.])
    """
    n = matrix.shape[0]
    rank = np.empty(n, dtype=np.int64)
    rank[np.argsort(np.diff(matrix.indptr), kind="stable")] = np.arange(n)
    rows = np.repeat(rank, np.diff(matrix.indptr))
    columns = rank[matrix.indices]
    later = columns > rows
    forward = csr_array((matrix.data[later], (rows[later], columns[later])), shape=(n, n))
    lengths = np.diff(forward.indptr)
    if float(np.bincount(forward.indices, minlength=n) @ lengths) > most:
        return None
    found = np.zeros(n)
    _add_triangles(forward.indptr.astype(np.int64), forward.indices.astype(np.int64), forward.data, found)
    # Other closed walks of three steps stay where they are, once or always.
    own = matrix.diagonal()
    squares = matrix.multiply(matrix)
    along = squares @ own - own**3 + 2.0 * own * (np.asarray(squares.sum(axis=1)).ravel() - own**2)
    return np.asarray(found[rank] + along + own**3)
