"""Products of a sparse symmetric matrix with blocks of vectors, and the Chebyshev polynomials made of them.

With S the matrix shifted and scaled to eigenvalues in [−1, 1], T_k(S) V follows from T_{k+1} = 2 S T_k − T_{k−1}. A
block of a few columns goes through all degrees by itself, so that it stays in cache and need not wait for others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import csr_array, eye_array

from graphmatern.sparse._compile import jit
from graphmatern.sparse._resources import available_threads
from graphmatern.sparse._threads import Crew

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Longs = NDArray[np.int64]
    Kept = dict[int, tuple[Floats, Floats]]

__all__ = ["ChebyshevProducts"]

_CACHE_ENTRIES = 2**16  # numbers of one block that stay in the cache of a processor
_KEPT_BYTES = 2**29  # of blocks that are kept to go on from
_COLUMNS = (8, 32)  # of a block, at least and at most


@jit
def _step(
    indptr: Longs, indices: NDArray[np.int32], values: Floats, current: Floats, previous: Floats, factor: float
) -> None:
    """Previous ← factor S current − previous."""
    n_rows, n_columns = current.shape
    total = np.empty(n_columns)
    for row in range(n_rows):
        for column in range(n_columns):
            total[column] = -previous[row, column]
        for k in range(indptr[row], indptr[row + 1]):
            value = factor * values[k]
            source = indices[k]
            for column in range(n_columns):
                total[column] += value * current[source, column]
        for column in range(n_columns):
            previous[row, column] = total[column]


class ChebyshevProducts:
    """Chebyshev polynomials of a symmetric matrix, applied to blocks of vectors on all processors.

    Parameters
    ----------
    matrix : csr_array, shape (n, n)
        Symmetric.
    low, high : float
        Between which its eigenvalues lie.
    n_threads : int, optional
        Threads; one per processor by default.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> products = ChebyshevProducts(sp.csr_array(np.diag([0.0, 1.0, 2.0])), 0.0, 2.0)
    >>> products.apply(np.array([0.0, 0.0, 1.0]), np.ones((3, 1)))[:, 0]  # T_2 at −1, 0, 1
    array([ 1., -1.,  1.])
    """

    def __init__(self, matrix: csr_array[Any], low: float, high: float, n_threads: int | None = None) -> None:
        centre, half = 0.5 * (high + low), 0.5 * (high - low)
        n = matrix.shape[0]
        shift = eye_array(n, format="csr") * centre
        scaled: csr_array[Any] = csr_array((matrix.astype(np.float64) - shift) / (half or 1.0))
        scaled.sort_indices()
        self.n = n
        self.nnz = int(scaled.nnz)
        self.diagonal: Floats = scaled.diagonal()
        self._indptr = scaled.indptr.astype(np.int64)
        self._indices = scaled.indices.astype(np.int32)
        self._values: Floats = np.asarray(scaled.data, dtype=np.float64)
        self._n_threads = available_threads() if n_threads is None else n_threads

    def _run(self, block: Floats, degree: int, visit: Callable[[int, Floats, Floats], None]) -> None:
        """Call ``visit`` with k, T_k V and T_{k−1} V for k up to a degree; the block is overwritten."""
        previous, current = np.zeros_like(block), block
        visit(0, current, previous)
        for k in range(1, degree + 1):
            _step(self._indptr, self._indices, self._values, current, previous, 1.0 if k == 1 else 2.0)
            previous, current = current, previous
            visit(k, current, previous)

    def _in_blocks(self, count: int, work: Callable[[slice], None]) -> None:
        width = int(np.clip(_CACHE_ENTRIES // self.n, *_COLUMNS))
        width = max(1, min(width, -(-count // self._n_threads)))
        starts = range(0, count, width)
        with Crew(self._n_threads) as crew:
            crew.run(len(starts), lambda task, _worker: work(slice(starts[task], min(starts[task] + width, count))))

    def moments(self, nodes: Longs, degree: int, known: Floats | None = None, kept: Kept | None = None) -> Floats:
        """T_k(S)[x, x] for k up to a degree; shape (degree + 1, n_x, n_x).

        Parameters
        ----------
        nodes : ndarray of int64, shape (n_x,)
            x, each once.
        degree : int
            Largest k.
        known : ndarray, shape (at least 2, n_x, n_x), optional
            Moments of lower degrees, with which ``kept`` was filled.
        kept : dict, optional
            Where the last two blocks are kept, to go on from there another time; only where they are not too large.
        """
        found = np.empty((degree + 1, len(nodes), len(nodes)))
        kept = None if 16 * self.n * len(nodes) > _KEPT_BYTES else kept
        first = 0 if known is None or not kept else len(known)
        if first:
            assert known is not None
            found[:first] = known

        def work(part: slice) -> None:
            if first:
                assert kept is not None
                previous, current = kept[part.start]
            else:
                previous, current = np.zeros((2, self.n, part.stop - part.start))
                current[nodes[part], np.arange(current.shape[1])] = 1.0
                found[0, :, part] = current[nodes]
            for k in range(max(first, 1), degree + 1):
                _step(self._indptr, self._indices, self._values, current, previous, 1.0 if k == 1 else 2.0)
                previous, current = current, previous
                found[k, :, part] = current[nodes]
            if kept is not None:
                kept[part.start] = previous, current

        self._in_blocks(len(nodes), work)
        return found

    def apply(self, coefficients: Floats, columns: Floats) -> Floats:
        """Σ_k c_k T_k(S) V; shape as ``columns``, (n, k)."""
        found = np.empty(columns.shape)

        def work(part: slice) -> None:
            total = np.zeros((self.n, part.stop - part.start))

            def visit(k: int, current: Floats, _previous: Floats) -> None:
                if coefficients[k] != 0.0:
                    np.add(total, coefficients[k] * current, out=total)

            self._run(np.ascontiguousarray(columns[:, part]), len(coefficients) - 1, visit)
            found[:, part] = total

        self._in_blocks(columns.shape[1], work)
        return found

    def traces(self, weights: Floats | None, degree: int, probes: Floats) -> Floats:
        """Estimates of Σ_i weight_i T_k(S)[i, i] for k up to a degree, from each probe; shape (degree + 1, n_probes).

        Parameters
        ----------
        weights : ndarray, shape (n,), optional
            1 by default; then products up to half the degree suffice, as T_{j+k} = 2 T_j T_k − T_|j−k|.
        degree : int
            Largest k.
        probes : ndarray, shape (n, n_probes)
            Entries ±1.
        """
        found = np.empty((degree + 2, probes.shape[1]))

        def work(part: slice) -> None:
            block = np.ascontiguousarray(probes[:, part])
            weighted = block if weights is None else weights[:, None] * block
            weighted = weighted.copy()

            def visit(k: int, current: Floats, previous: Floats) -> None:
                if weights is not None or k < 2:
                    found[k, part] = np.einsum("ij,ij->j", weighted, current)
                if weights is None and k > 0:
                    if k > 1:
                        found[2 * k - 1, part] = 2.0 * np.einsum("ij,ij->j", previous, current) - found[1, part]
                    found[2 * k, part] = 2.0 * np.einsum("ij,ij->j", current, current) - self.n

            self._run(block, degree if weights is not None else -(-degree // 2), visit)

        self._in_blocks(probes.shape[1], work)
        return found[: degree + 1]
