"""Chebyshev polynomials that single out the smallest eigenvalues of a sparse symmetric matrix.

All threads share the rows of one block of columns, as a row of the block then fills whole cache lines, however many
threads there are; `ChebyshevProducts` does so for few columns only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from graphmatern.sparse._resources import available_threads
from graphmatern.sparse._rows import SharedRows
from graphmatern.sparse._threads import Crew

if TYPE_CHECKING:
    from types import TracebackType

    from numpy.typing import NDArray
    from scipy.sparse import csr_array

    Floats = NDArray[np.float64]

__all__ = ["ChebyshevFilter"]

_TOGETHER = 32  # columns of a block
_FEW_ENTRIES = 100_000  # of matrix and block that are not worth a second thread


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
        threads = available_threads() if n_threads is None else n_threads
        self._matrix = SharedRows(matrix, threads)
        self._crew = Crew(threads)
        self._shared = threads > 1 and self.nnz * _TOGETHER >= _FEW_ENTRIES

    def __enter__(self) -> ChebyshevFilter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._crew.__exit__(kind, error, trace)

    def _combine(self, current: Floats, previous: Floats, factors: tuple[float, float, float]) -> None:
        """Previous ← α A current + β current + γ previous."""
        self._matrix.combine(current, previous, factors, crew=self._crew if self._shared else None)

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
