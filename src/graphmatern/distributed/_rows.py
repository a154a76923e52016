"""Rows of blocks of vectors that are spread over processes, and products with them."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from graphmatern.distributed._processes import load_petsc
from graphmatern.sparse import ChebyshevProducts, Rows, SplitRows, product_seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from scipy.sparse import csr_array

    from graphmatern.distributed._halo import Halo
    from graphmatern.distributed._processes import Processes

    Floats = NDArray[np.float64]
    Longs = NDArray[np.int64]

__all__ = ["SpreadProducts", "SpreadRows", "petsc_matrix"]

_Sum = TypeVar("_Sum", float, int, "NDArray[np.float64]")


class SpreadRows(Rows):
    """Rows of which every process holds some.

    Parameters
    ----------
    processes : Processes
        All of them.
    keys : ndarray of int64, shape (n_here,)
        Numbers of this process's rows, ascending; over all processes, 0 to n − 1.
    """

    def __init__(self, processes: Processes, keys: Longs) -> None:
        self.processes, self.keys = processes, keys
        self.n_here, self.n = len(keys), int(processes.total(len(keys)))
        self.whole = processes.size == 1
        self._shared: tuple[Longs, Longs, int] = np.zeros(0, np.int64), np.zeros(0, np.int64), 0

    def share(self, here: Longs, group: Longs, n_groups: int) -> None:
        """Say which connected components of these rows go on elsewhere: their labels here, and as what."""
        self._shared = here, group, n_groups

    @property
    def n_each(self) -> int:
        """Rows of each process, about."""
        return -(-self.n // self.processes.size)

    def total(self, found: _Sum) -> _Sum:
        """Sum of what every process found in its rows."""
        summed: _Sum = self.processes.total(found)
        return summed

    def largest(self, found: float) -> float:
        """The largest of what every process found."""
        return float(self.processes.largest(found))

    def across(self, sums: Floats) -> Floats:
        """Sums over whole connected components, from those over this process's rows; shape (n, k)."""
        here, group, n_groups = self._shared
        if n_groups == 0:
            return sums
        shared = np.zeros((n_groups, sums.shape[1]))
        shared[group] = sums[here]
        found = sums.copy()
        found[here] = self.processes.total(shared)[group]
        return found

    def every(self, places: Longs) -> Longs:
        """Keys of what all processes named."""
        return np.unique(self.processes.joined(self.keys[places]))

    def find(self, keys: Longs) -> tuple[Longs, Longs]:
        """Places of rows that are here, and where they stand among the keys."""
        places = np.searchsorted(self.keys, keys)
        here = places < self.n_here
        here[here] = self.keys[places[here]] == keys[here]
        return places[here], np.flatnonzero(here)


def petsc_matrix(processes: Processes, rows: csr_array[Any]) -> Any:
    """A square PETSc matrix from this process's rows, numbered as the processes hold them; shape (n_here, n)."""
    PETSc = load_petsc()
    n_here, n = rows.shape
    kind = PETSc.IntType
    entries = rows.indptr.astype(kind), rows.indices.astype(kind), rows.data.astype(PETSc.ScalarType)
    del processes  # PETSc's own world is the same
    return PETSc.Mat().createAIJ(((n_here, n), (n_here, n)), csr=entries, comm=PETSc.COMM_WORLD)


class _SpreadMatrix:
    """Rows of a matrix that are here, in two parts: columns that are rows here, and columns that others hold.

    Blocks have a row for each node, so that what one entry needs is contiguous: on a power-law graph of a million nodes
    PETSc's dense matrices, whose columns are, take twice as long.

    Parameters
    ----------
    matrix : csr_array, shape (n_here, n)
        The rows.
    first : int
        Number of the first of them among all.
    halo : Halo
        Fetches rows that others hold.
    """

    def __init__(self, matrix: csr_array[Any], first: int, halo: Halo) -> None:
        from scipy.sparse import csr_array as csr

        n, columns = matrix.shape[0], matrix.indices
        own = (columns >= first) & (columns < first + n)
        before = np.concatenate([[0], np.cumsum(own)])[matrix.indptr]
        others = np.searchsorted(halo.ghosts, columns[~own])
        parts = (columns[own] - first, before, own, n), (others, matrix.indptr - before, ~own, len(halo.ghosts))
        self._rows = SplitRows(*(csr((matrix.data[at], j, start), shape=(n, width)) for j, start, at, width in parts))
        self._halo = halo

    def single(self) -> _SpreadMatrix:
        """The same in single precision."""
        twin = copy.copy(self)
        twin._rows = self._rows.single()
        return twin

    def combine(
        self,
        current: Any,
        previous: Any,
        factors: tuple[float, float, float],
        totals: Any = None,
        coefficients: Sequence[float] = (),
        crew: Any = None,
    ) -> None:
        """See `SharedRows.combine`; all processes call it together."""
        del crew
        self._rows.combine(current, self._halo.fetch(current), previous, factors, totals, coefficients)


class SpreadProducts(ChebyshevProducts):
    """Chebyshev polynomials of a symmetric matrix whose rows are spread over processes.

    Parameters
    ----------
    rows : SpreadRows
        Who holds which rows.
    halo : Halo
        Fetches rows that others hold.
    matrix : csr_array, shape (n_here, n)
        This process's rows; columns are numbered as the processes hold them, one after the other.
    low, high : float
        Between which its eigenvalues lie.
    """

    def __init__(self, rows: SpreadRows, halo: Halo, matrix: csr_array[Any], low: float, high: float) -> None:
        from scipy.sparse import csr_array as csr
        from scipy.sparse import eye_array

        centre, half = 0.5 * (high + low), 0.5 * (high - low)
        processes = rows.processes
        self.rows, self._processes = rows, processes
        self.n = rows.n_here
        first = processes.before(self.n)
        unit = eye_array(self.n, rows.n, k=first, format="csr")
        scaled: csr_array[Any] = csr((matrix - centre * unit) / (half or 1.0))
        scaled.eliminate_zeros()
        self.nnz = int(processes.total(int(scaled.nnz)))
        self.diagonal = np.asarray(scaled.diagonal(k=first))[: self.n]
        self.squared_diagonal = np.asarray(scaled.multiply(scaled).sum(axis=1)).ravel()
        self._n_threads = 1
        self._count = _uncounted
        self._dtype = np.dtype(np.float64)
        self._matrix = _SpreadMatrix(scaled, first, halo)

    def seconds(self, n_columns: float, degree: float) -> float:
        """Seconds that products are expected to take; the same everywhere."""
        return product_seconds(self.nnz, n_columns, degree, self._processes.size)

    def _may_keep(self, n_columns: int) -> bool:
        return self.rows.total(int(super()._may_keep(n_columns))) == self._processes.size

    def moments(
        self,
        nodes: Longs,
        degree: int,
        known: Floats | None = None,
        kept: Any = None,
        *,
        at: Longs | None = None,
    ) -> Floats:
        """T_k(S)[y, x] for k up to a degree, between nodes given by their keys; the same everywhere."""
        del known, kept  # too few columns for that to be worth their memory
        at = nodes if at is None else at
        found = np.zeros((degree + 1, len(at), len(nodes)))
        places, stand = self.rows.find(at)

        def work(part: slice, crew: Any) -> None:
            current = self._block(self.rows.units(nodes[part]))
            previous = self._zeros(*current.shape)
            for k in range(degree + 1):
                if k:
                    current, previous = self._advance(current, previous, k, crew=crew)
                found[k, stand, part] = current[places]

        with self._counting("moments", len(nodes), degree):
            self._in_blocks(len(nodes), work)
        return self.rows.total(found)


def _uncounted(_columns: int) -> None:
    """Nothing is shown."""
