"""Products of a sparse matrix with blocks of columns: the one loop behind all Chebyshev and Krylov methods."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import numpy as np

from graphmatern.sparse._compile import inline, intrinsic, jit
from graphmatern.sparse._resources import available_threads

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray
    from scipy.sparse import csr_array

    from graphmatern.sparse._threads import Crew

    Floats = NDArray[np.float64]
    Longs = NDArray[np.int64]

__all__ = ["SharedRows", "SplitRows", "product_seconds"]

# Seconds per entry and column of a product on one processor: in cache, and what is added where graphs outgrow it.
_PER_PRODUCT, _FROM_MEMORY, _OUTGROWN = 0.4e-9, 0.7e-9, 3_000_000

_AHEAD = 16  # entries
_IN_CACHE, _LINE = 4_000_000, 64  # bytes; rows of smaller blocks are near enough
_ROWS_IN_CACHE = 2_048  # of blocks of up to 256 bytes a row


def product_seconds(nnz: int, n_columns: float, degree: float, n_threads: int | None = None) -> float:
    """About how long a polynomial of a matrix with ``nnz`` entries takes, applied to some columns."""
    per_product = _PER_PRODUCT + _FROM_MEMORY * min(1.0, nnz / _OUTGROWN)
    return per_product * float(nnz) * n_columns * degree / (available_threads() if n_threads is None else n_threads)


@intrinsic
def _load_soon(_typing_context: Any, address: Any) -> Any:
    """Ask for the cache line at an address, which need not be valid, without waiting for it."""
    from llvmlite import ir
    from numba import types
    from numba.core import cgutils

    def generate(context: Any, builder: Any, _signature: Any, values: Any) -> Any:
        pointer, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [pointer, number, number, number])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0i8")  # type: ignore[no-untyped-call]
        how = [ir.Constant(number, one) for one in (0, 3, 1)]  # to read, often, data
        builder.call(function, [builder.inttoptr(values[0], pointer), *how])
        return context.get_dummy_value()

    return types.void(address), generate


@inline
def _load_rows(first: int, row_bytes: int, indices: NDArray[np.int32], start: int, stop: int) -> None:
    """Ask for rows of a block that starts at an address."""
    for k in range(start, min(stop, len(indices))):
        address = first + indices[k] * row_bytes
        for line in range(0, row_bytes, _LINE):
            _load_soon(address + line)


@inline
def _add_row(
    indices: NDArray[np.int32],
    values: Floats,
    start: int,
    end: int,
    factor: float,
    current: Floats,
    out: Floats,
    ahead: int,
) -> None:
    """Add α times a row of S current to ``out``.

    Entries are taken four at a time, so that a row of the result is loaded and stored once for all four. The rows that
    later entries need are asked for ahead of time, as no processor guesses where a graph leads.
    """
    k, n_columns = start, current.shape[1]
    block, row_bytes = current.ctypes.data, current.strides[0]
    while k + 3 < end:
        _load_rows(block, row_bytes, indices, k + ahead, k + ahead + 4)
        a, b, c, d = factor * values[k], factor * values[k + 1], factor * values[k + 2], factor * values[k + 3]
        w, x, y, z = current[indices[k]], current[indices[k + 1]], current[indices[k + 2]], current[indices[k + 3]]
        for column in range(n_columns):
            out[column] += (a * w[column] + b * x[column]) + (c * y[column] + d * z[column])
        k += 4
    while k < end:
        _load_rows(block, row_bytes, indices, k + ahead, k + ahead + 1)
        a, w = factor * values[k], current[indices[k]]
        for column in range(n_columns):
            out[column] += a * w[column]
        k += 1


@jit
def _step(
    indptr: Longs,
    indices: NDArray[np.int32],
    values: Floats,
    first: int,
    last: int,
    current: Floats,
    previous: Floats,
    factors: Floats,
    totals: Floats,
    coefficients: Floats,
) -> None:
    """Previous ← α S current + β current + γ previous, and every total += coefficient · previous, in some rows."""
    factor, own, kept = factors
    n_columns = current.shape[1]
    ahead = _AHEAD if current.shape[0] * current.strides[0] > _IN_CACHE else len(indices)
    for row in range(first, last):
        out = previous[row]
        if own == 0.0:
            for column in range(n_columns):
                out[column] *= kept
        else:
            here = current[row]
            for column in range(n_columns):
                out[column] = own * here[column] + kept * out[column]
        _add_row(indices, values, indptr[row], indptr[row + 1], factor, current, out, ahead)
        for number in range(len(coefficients)):
            coefficient = coefficients[number]
            if coefficient != 0.0:
                into = totals[number, row]
                for column in range(n_columns):
                    into[column] += coefficient * out[column]


@jit
def _project(
    indptr: Longs,
    indices: NDArray[np.int32],
    values: Floats,
    first: int,
    last: int,
    current: Floats,
    previous: Floats,
    kept: Floats,
    scale: Floats,
    dots: Floats,
) -> None:
    """Previous ← scale · (S current + kept · previous), and its inner products with current, column by column."""
    n_columns = current.shape[1]
    ahead = _AHEAD if current.shape[0] * current.strides[0] > _IN_CACHE else len(indices)
    dots[:] = 0.0
    for row in range(first, last):
        out, here = previous[row], current[row]
        for column in range(n_columns):
            out[column] *= kept[column]
        _add_row(indices, values, indptr[row], indptr[row + 1], values.dtype.type(1.0), current, out, ahead)
        for column in range(n_columns):
            out[column] *= scale[column]
            dots[column] += out[column] * here[column]


@jit
def _subtract(
    first: int,
    last: int,
    current: Floats,
    previous: Floats,
    factors: Floats,
    squares: Floats,
    totals: Floats,
    coefficients: Floats,
) -> None:
    """Previous −= factor · current, its squares, and every total += coefficient · previous, column by column."""
    n_columns = current.shape[1]
    squares[:] = 0.0
    for row in range(first, last):
        out, here = previous[row], current[row]
        for column in range(n_columns):
            out[column] -= factors[column] * here[column]
            squares[column] += out[column] * out[column]
        for number in range(len(coefficients)):
            into, own = totals[number, row], coefficients[number]
            for column in range(n_columns):
                into[column] += own[column] * out[column]


class SharedRows:
    """A sparse matrix whose rows are multiplied with blocks of columns, by one thread or by several together.

    Parameters
    ----------
    matrix : csr_array, shape (n, n)
        The matrix.
    n_threads : int
        Threads that share rows.
    """

    def __init__(self, matrix: csr_array[Any], n_threads: int) -> None:
        self._indptr = matrix.indptr.astype(np.int64)
        self._indices = matrix.indices.astype(np.int32)
        self._values = np.asarray(matrix.data, dtype=np.float64)
        # More parts than threads, of equal numbers of entries, as hubs have many: one that is held up delays less.
        inner = np.searchsorted(self._indptr, np.linspace(0, matrix.nnz, 4 * n_threads + 1)[1:-1])
        self._bounds: list[int] = np.unique(np.concatenate([[0], inner, [matrix.shape[0]]])).tolist()

    @property
    def entries(self) -> tuple[Longs, NDArray[np.int32], Floats]:
        """Where rows begin, columns, and values."""
        return self._indptr, self._indices, self._values

    def single(self) -> SharedRows:
        """The same matrix in single precision, for blocks of such numbers."""
        twin = copy.copy(self)
        twin._values = self._values.astype(np.float32)
        return twin

    def combine(
        self,
        current: Any,
        previous: Any,
        factors: tuple[float, float, float],
        totals: Any = None,
        coefficients: Sequence[float] = (),
        crew: Crew | None = None,
    ) -> None:
        """Previous ← α S current + β current + γ previous, and every total += coefficient · previous.

        Parameters
        ----------
        current, previous : ndarray, shape (n, k)
            Blocks of the matrix's precision.
        factors : tuple of float
            α, β and γ.
        totals : ndarray, shape (n_totals, n, k), optional
            What the result is added to.
        coefficients : sequence of float, length n_totals
            Times these.
        crew : Crew, optional
            Threads that share the rows; by default the calling one does it all.
        """
        kind = self._values.dtype
        matrix = self._indptr, self._indices, self._values
        into = current[None, :0] if totals is None else totals
        numbers = np.array(factors, dtype=kind), np.array(coefficients, dtype=kind)
        bounds = self._bounds if crew is not None else [0, len(self._indptr) - 1]

        def some_rows(task: int, _worker: int) -> None:
            _step(*matrix, bounds[task], bounds[task + 1], current, previous, numbers[0], into, numbers[1])

        _shared(len(bounds) - 1, some_rows, crew)

    def project(self, current: Any, previous: Any, kept: Floats, scale: Floats, crew: Crew | None = None) -> Floats:
        """Previous ← scale · (S current + kept · previous), with a factor for each column.

        Returns
        -------
        ndarray, shape (k,)
            Inner products of the columns of the result and of ``current``.
        """
        kind = self._values.dtype
        matrix, numbers = (self._indptr, self._indices, self._values), (kept.astype(kind), scale.astype(kind))
        bounds = self._bounds if crew is not None else [0, len(self._indptr) - 1]
        dots = np.empty((len(bounds) - 1, current.shape[1]))

        def some_rows(task: int, _worker: int) -> None:
            _project(*matrix, bounds[task], bounds[task + 1], current, previous, *numbers, dots[task])

        _shared(len(bounds) - 1, some_rows, crew)
        return np.asarray(dots.sum(axis=0))

    def subtract(
        self,
        current: Any,
        previous: Any,
        factors: Floats,
        totals: Any = None,
        coefficients: Floats | None = None,
        crew: Crew | None = None,
    ) -> Floats:
        """Previous −= factor · current, and every total += coefficient · previous, with a factor for each column.

        Returns
        -------
        ndarray, shape (k,)
            Sums of the squares of the columns of the result.
        """
        kind, width = self._values.dtype, current.shape[1]
        bounds = self._bounds if crew is not None else [0, len(self._indptr) - 1]
        squares = np.empty((len(bounds) - 1, width))
        into = current[None, :0] if totals is None else totals
        numbers = factors.astype(kind), (np.zeros((0, width)) if coefficients is None else coefficients).astype(kind)

        def some_rows(task: int, _worker: int) -> None:
            rows = bounds[task], bounds[task + 1]
            _subtract(*rows, current, previous, numbers[0], squares[task], into, numbers[1])

        _shared(len(bounds) - 1, some_rows, crew)
        return np.asarray(squares.sum(axis=0))


def _shared(n_tasks: int, work: Callable[[int, int], None], crew: Crew | None) -> None:
    """Do tasks, by all of a crew or by the calling thread."""
    if crew is not None:
        crew.run(n_tasks, work)
        return
    for task in range(n_tasks):
        work(task, 0)


@jit
def _add(
    indptr: Longs,
    indices: NDArray[np.int32],
    values: Floats,
    first: int,
    last: int,
    others: Floats,
    previous: Floats,
    factor: float,
    totals: Floats,
    coefficients: Floats,
) -> None:
    """Previous += α X others, and every total += coefficient · previous, in some rows."""
    n_columns = others.shape[1]
    ahead = _AHEAD if others.shape[0] * others.strides[0] > _IN_CACHE else len(indices)
    for row in range(first, last):
        out = previous[row]
        _add_row(indices, values, indptr[row], indptr[row + 1], factor, others, out, ahead)
        for number in range(len(coefficients)):
            coefficient = coefficients[number]
            if coefficient != 0.0:
                into = totals[number, row]
                for column in range(n_columns):
                    into[column] += coefficient * out[column]


class SplitRows:
    """A sparse matrix in two parts, whose products with two blocks are summed.

    Parameters
    ----------
    own : csr_array, shape (n, n)
        Multiplies the block that `SharedRows.combine` has.
    others : csr_array, shape (n, n_others)
        Multiplies a block of other rows.
    """

    def __init__(self, own: csr_array[Any], others: csr_array[Any]) -> None:
        self._own = SharedRows(own, 1)
        self._others = SharedRows(others, 1)

    def single(self) -> SplitRows:
        """The same matrix in single precision, for blocks of such numbers."""
        twin = copy.copy(self)
        twin._own, twin._others = self._own.single(), self._others.single()
        return twin

    def combine(
        self,
        current: Any,
        others: Any,
        previous: Any,
        factors: tuple[float, float, float],
        totals: Any = None,
        coefficients: Sequence[float] = (),
    ) -> None:
        """Previous ← α (S current + X others) + β current + γ previous, and every total += coefficient · previous."""
        n, kind = current.shape[0], current.dtype
        numbers, of_totals = np.array(factors, dtype=kind), np.array(coefficients, dtype=kind)
        into = current[None, :0] if totals is None else totals
        own, other = self._own.entries, self._others.entries
        if not len(others):
            _step(*own, 0, n, current, previous, numbers, into, of_totals)
            return
        # A few rows at a time, which stay in cache between the two parts.
        for first in range(0, n, _ROWS_IN_CACHE):
            rows = first, min(first + _ROWS_IN_CACHE, n)
            _step(*own, *rows, current, previous, numbers, into, of_totals[:0])
            _add(*other, *rows, others, previous, numbers[0], into, of_totals)
