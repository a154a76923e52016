"""Rows of blocks of vectors that are spread over processes, and products with them by PETSc."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from graphmatern.distributed._processes import load_petsc
from graphmatern.sparse import ChebyshevProducts, Rows, product_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray
    from scipy.sparse import csr_array

    from graphmatern.distributed._processes import Processes

    Floats = NDArray[np.float64]
    Longs = NDArray[np.int64]

__all__ = ["PetscProducts", "SpreadRows", "petsc_matrix"]

_Sum = TypeVar("_Sum", float, int, "NDArray[np.float64]")

_COLUMNS = 32  # of a block


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


class PetscProducts(ChebyshevProducts):
    """Chebyshev polynomials of a symmetric matrix whose rows are spread over processes.

    Parameters
    ----------
    rows : SpreadRows
        Who holds which rows.
    matrix : csr_array, shape (n_here, n)
        This process's rows; columns are numbered as the processes hold them, one after the other.
    low, high : float
        Between which its eigenvalues lie.
    """

    def __init__(self, rows: SpreadRows, matrix: csr_array[Any], low: float, high: float) -> None:
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
        self._matrix = petsc_matrix(processes, scaled)
        self._images: dict[int, Any] = {}

    @cached_property
    def single(self) -> ChebyshevProducts:
        """The same: PETSc has one precision."""
        return self

    def _block(self, columns: Floats) -> Floats:
        return np.array(columns, order="F")

    def _zeros(self, *shape: int) -> Floats:
        return np.swapaxes(np.zeros((*shape[:-2], shape[-1], shape[-2])), -1, -2)  # columns are contiguous, as PETSc's

    def _times(self, block: Floats) -> Floats:
        """S times a block, in memory that the next product of this width overwrites; shape (n_here, k)."""
        PETSc = load_petsc()
        width = block.shape[1]
        sizes = (self.n, self.rows.n), (PETSc.DECIDE, width)
        wrapped = PETSc.Mat().createDense(sizes, array=np.asfortranarray(block), comm=PETSc.COMM_WORLD)
        image = self._images.get(width)
        if image is None:
            if len(self._images) > 4:  # as conjugate gradients end column by column
                self._images.popitem()[1].destroy()
            image = self._images[width] = self._matrix.matMult(wrapped)
        else:
            self._matrix.matMult(wrapped, result=image)
        wrapped.destroy()
        return np.asarray(image.getDenseArray())

    def _advance(
        self,
        current: Floats,
        previous: Floats,
        k: int,
        totals: Any = None,
        coefficients: Sequence[float] = (),
        crew: Any = None,
    ) -> tuple[Floats, Floats]:
        del crew
        image = self._times(current)
        if k > 1:
            image *= 2.0
        np.subtract(image, previous, out=previous)
        for number, coefficient in enumerate(coefficients):
            if totals is not None and coefficient != 0.0:
                np.multiply(previous, coefficient, out=image)
                totals[number] += image
        self._count(current.shape[1])
        return previous, current

    def seconds(self, n_columns: float, degree: float) -> float:
        """Seconds that products are expected to take; the same everywhere."""
        return product_seconds(self.nnz, n_columns, degree, self._processes.size)

    def _may_keep(self, n_columns: int) -> bool:
        return self.rows.total(int(super()._may_keep(n_columns))) == self._processes.size

    def _in_blocks(self, count: int, work: Callable[[slice, Any], None]) -> None:
        for start in range(0, count, _COLUMNS):
            work(slice(start, min(start + _COLUMNS, count)), None)

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
