"""Chebyshev polynomials that single out the smallest eigenvalues of a sparse symmetric matrix.

All threads share the rows of one block of columns, as a row of the block then fills whole cache lines, however many
threads there are; `ChebyshevProducts` does so for few columns only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from graphmatern.sparse._compile import jit
from graphmatern.sparse._resources import available_threads
from graphmatern.sparse._threads import Crew

if TYPE_CHECKING:
    from types import TracebackType

    from numpy.typing import NDArray
    from scipy.sparse import csr_array

    Floats = NDArray[np.float64]
    Longs = NDArray[np.int64]

__all__ = ["ChebyshevFilter"]

_TOGETHER = 32  # columns of a block
_FEW_ENTRIES = 100_000  # of matrix and block that are not worth a second thread


@jit
def _step(
    rows: tuple[int, int],
    indptr: Longs,
    indices: NDArray[np.int32],
    values: Floats,
    current: Floats,
    previous: Floats,
    factors: tuple[float, float, float],
) -> None:
    """Previous ← α A current + β current + γ previous, in some rows."""
    alpha, beta, gamma = factors
    n_columns = current.shape[1]
    total = np.empty(n_columns)
    for row in range(rows[0], rows[1]):
        for column in range(n_columns):
            total[column] = beta * current[row, column] + gamma * previous[row, column]
        for k in range(indptr[row], indptr[row + 1]):
            value = alpha * values[k]
            source = indices[k]
            for column in range(n_columns):
                total[column] += value * current[source, column]
        for column in range(n_columns):
            previous[row, column] = total[column]


class ChebyshevFilter:
    """Products of a symmetric matrix, and polynomials of it, with blocks of vectors; a context for its threads.

    Parameters
    ----------
    matrix : csr_array, shape (n, n)
        Symmetric.
    n_threads : int, optional
        Threads; one per processor by default.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> with ChebyshevFilter(sp.csr_array(np.diag([0.0, 1.0, 2.0]))) as filtered:
    ...     filtered.apply(np.ones((3, 1)), 2, 1.0, 2.0, at=0.0)[:, 0]  # T_2, scaled, at −3, −1, 1
    array([1.        , 0.05882353, 0.05882353])
    """

    def __init__(self, matrix: csr_array[Any], n_threads: int | None = None) -> None:
        self.n = matrix.shape[0]
        self.nnz = int(matrix.nnz)
        self._indptr = matrix.indptr.astype(np.int64)
        self._indices = matrix.indices.astype(np.int32)
        self._values: Floats = np.asarray(matrix.data, dtype=np.float64)
        threads = available_threads() if n_threads is None else n_threads
        # More parts than threads, of equal numbers of entries: a thread that was held up delays the others less.
        parts = 1 if threads == 1 or self.nnz * _TOGETHER < _FEW_ENTRIES else 4 * threads
        bounds = np.searchsorted(self._indptr, np.linspace(0, self.nnz, parts + 1)[1:-1])
        self._bounds = np.unique(np.concatenate([[0], bounds, [self.n]])).tolist()
        self._crew = Crew(threads)

    def __enter__(self) -> ChebyshevFilter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._crew.__exit__(kind, error, trace)

    def _combine(self, current: Floats, previous: Floats, factors: tuple[float, float, float]) -> None:
        bounds = self._bounds

        def work(part: int, _worker: int) -> None:
            rows = (bounds[part], bounds[part + 1])
            _step(rows, self._indptr, self._indices, self._values, current, previous, factors)

        self._crew.run(len(bounds) - 1, work)

    def product(self, block: Floats) -> Floats:
        """A V; shape (n, k)."""
        found = np.empty(block.shape)
        for part in _slices(block.shape[1]):
            image = np.zeros((self.n, found[:, part].shape[1]))
            self._combine(np.ascontiguousarray(block[:, part]), image, (1.0, 0.0, 0.0))
            found[:, part] = image
        return found

    def apply(self, block: Floats, degree: int, low: float, high: float, *, at: float) -> Floats:
        """Apply T_degree, which stays within ±1 on an interval, divided by its value at a point below that.

        Parameters
        ----------
        block : ndarray, shape (n, k)
            V.
        degree : int
            At least 1.
        low, high : float
            Interval of the eigenvalues to be damped.
        at : float
            Below ``low``; the polynomial is 1 there, and larger yet below.

        Returns
        -------
        ndarray, shape (n, k)
        """
        found = np.empty(block.shape)
        for part in _slices(block.shape[1]):
            found[:, part] = self._filtered(np.array(block[:, part], order="C"), degree, low, high, at)
        return found

    def _filtered(self, current: Floats, degree: int, low: float, high: float, at: float) -> Floats:
        # The scaled recursion of Zhou, Saad, Tiago and Chelikowsky (2006): nothing overflows at high degrees.
        half, centre = 0.5 * (high - low), 0.5 * (high + low)
        scale = first = half / (at - centre)
        previous = np.zeros_like(current)
        self._combine(current, previous, (first / half, -first * centre / half, 0.0))
        previous, current = current, previous
        for _ in range(degree - 1):
            following = 1.0 / (2.0 / first - scale)
            factor = 2.0 * following / half
            self._combine(current, previous, (factor, -factor * centre, -scale * following))
            previous, current = current, previous
            scale = following
        return current


def _slices(width: int) -> list[slice]:
    return [slice(start, min(start + _TOGETHER, width)) for start in range(0, width, _TOGETHER)]
