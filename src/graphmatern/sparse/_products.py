"""Products of a sparse symmetric matrix with blocks of vectors, and the Chebyshev polynomials made of them.

With S the matrix shifted and scaled to eigenvalues in [−1, 1], T_k(S) V follows from T_{k+1} = 2 S T_k − T_{k−1}. A
block of a few dozen columns goes through all degrees by itself: wide enough to use whole cache lines, narrow enough to
stay in cache on graphs of moderate size.
"""

from __future__ import annotations

import copy
from contextlib import contextmanager
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.polynomial import chebyshev
from scipy.sparse import csr_array, eye_array

from graphmatern._progress import bar
from graphmatern.sparse._lanczos import KrylovSpace
from graphmatern.sparse._resources import available_memory, available_threads
from graphmatern.sparse._row_blocks import Rows
from graphmatern.sparse._rows import SharedRows, product_seconds
from graphmatern.sparse._threads import Crew

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Longs = NDArray[np.int64]
    Kept = dict[int, tuple[Any, Any]]

__all__ = ["ChebyshevProducts", "kept_bytes"]

_KEPT_SHARE = 0.25  # of the memory, for blocks that are kept to go on from
# From where on Lanczos' method may pay: degrees, and entries of the matrix. How exact it is, relative to polynomials.
_HIGH_DEGREE, _MANY_ENTRIES, _SETTLED = 96, 100_000, 1e-12
_ROW_BYTES = 256  # of a block; with fewer, loading indices costs more than using them


def _uncounted(_columns: int) -> None:
    """Nothing is shown."""


def kept_bytes(n: int, n_columns: int) -> float:
    """Bytes of two blocks of columns that are kept to go on from; 0 where there is no memory for them."""
    found = 16.0 * n * n_columns
    return found if found <= _KEPT_SHARE * available_memory() else 0.0


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

    Attributes
    ----------
    rows : Rows
        Who holds which rows of the blocks. Here that is all of them; where it is not, ``nodes`` are places among the
        rows of this process, but for `moments`, which takes keys.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> products = ChebyshevProducts(sp.csr_array(np.diag([0.0, 1.0, 2.0])), 0.0, 2.0)
    >>> products.apply(np.array([0.0, 0.0, 1.0]), np.ones((3, 1)))[:, 0]  # T_2 at −1, 0, 1
    array([ 1., -1.,  1.])
    """

    #: Entries of blocks that callers make, at most: with more, only memory is lost.
    block_entries = 2**24

    def __init__(self, matrix: csr_array[Any], low: float, high: float, n_threads: int | None = None) -> None:
        centre, half = 0.5 * (high + low), 0.5 * (high - low)
        n = matrix.shape[0]
        shift = eye_array(n, format="csr") * centre
        scaled: csr_array[Any] = csr_array((matrix.astype(np.float64) - shift) / (half or 1.0))
        scaled.sum_duplicates()
        scaled.eliminate_zeros()  # the diagonal, where the matrix is a normalised Laplacian
        self.n = n
        self.rows = Rows(n)
        self.nnz = int(scaled.nnz)
        self.diagonal: Floats = scaled.diagonal()
        self.squared_diagonal: Floats = np.asarray(scaled.multiply(scaled).sum(axis=1)).ravel()  # of S²
        self._n_threads = available_threads() if n_threads is None else n_threads
        self._count: Callable[[int], None] = _uncounted
        self._gapless = False  # whether Lanczos' method was tried in vain
        self._hold(scaled)

    @cached_property
    def single(self) -> ChebyshevProducts:
        """The same in single precision: half as much to move, for estimates whose errors are far larger."""
        twin = copy.copy(self)
        twin._dtype, twin._matrix = np.dtype(np.float32), self._matrix.single()
        return twin

    # ------------------------------------------------------------------ what another device does its own way
    def _hold(self, scaled: csr_array[Any]) -> None:
        self._dtype: Any = np.dtype(np.float64)
        self._matrix: Any = SharedRows(scaled, self._n_threads)

    def _block(self, columns: Floats) -> Any:
        """A copy of some columns, on the device."""
        return np.array(columns, dtype=self._dtype, order="C")

    def block(self, columns: Floats) -> Any:
        """Columns where products are made, for verbs that take such blocks; shape (n, k)."""
        return columns

    def numbers(self, block: Any) -> Floats:
        """A block, where numpy can use it; shape (n, k)."""
        return self._numbers(block)

    def scattered(self, nodes: Longs, columns: Floats) -> Any:
        """A block of columns that are not 0 at some nodes, each once; shape (n, k)."""
        found = self._zeros(self.n, columns.shape[1])
        self.put(found, nodes, columns)
        return found

    def put(self, block: Any, nodes: Longs, columns: Floats) -> None:
        """Set rows of a block, each once."""
        block[self._rows(nodes)] = self._block(columns)

    def taken(self, block: Any, nodes: Longs) -> Floats:
        """Rows of a block; shape (n_x, k)."""
        return self._numbers(block[self._rows(nodes)])

    def row_dots(self, a: Any, b: Any) -> Floats:
        """Inner products of the rows of two blocks; shape (n,)."""
        return np.asarray(np.einsum("ij,ij->i", a, b))

    def _zeros(self, *shape: int) -> Any:
        return np.zeros(shape, dtype=self._dtype)

    def _numbers(self, block: Any) -> Floats:
        """A block, back from the device."""
        return np.asarray(block)

    def _own_dots(self, a: Any, b: Any) -> Floats:
        """Inner products of the columns of two blocks over the rows that are here, in double precision; shape (k,)."""
        return np.asarray(np.einsum("ij,ij->j", a, b, dtype=np.float64))

    def _dots(self, a: Any, b: Any) -> Floats:
        """Inner products of the columns of two blocks, in double precision; shape (k,)."""
        return self.rows.total(self._own_dots(a, b))

    def _rows(self, nodes: Longs) -> Any:
        """What rows of a block are taken by."""
        return nodes

    def _advance(
        self,
        current: Any,
        previous: Any,
        k: int,
        totals: Any = None,
        coefficients: Sequence[float] = (),
        crew: Crew | None = None,
    ) -> tuple[Any, Any]:
        """T_k V and T_{k−1} V from T_{k−1} V and T_{k−2} V, which is overwritten; adds the former to totals."""
        self._matrix.combine(current, previous, (1.0 if k == 1 else 2.0, 0.0, -1.0), totals, coefficients, crew)
        self._count(current.shape[1])
        return previous, current

    def project(self, current: Any, previous: Any, kept: Floats, scale: Floats, crew: Crew | None) -> Floats:
        """Previous ← scale · (S current + kept · previous) and its inner products with current; see `SharedRows`."""
        return self._matrix.project(current, previous, kept, scale, crew)

    def subtract(
        self,
        current: Any,
        previous: Any,
        factors: Floats,
        totals: Any = None,
        coefficients: Floats | None = None,
        crew: Crew | None = None,
    ) -> Floats:
        """Previous −= factor · current, whose squares are found; totals as in `SharedRows.subtract`."""
        return self._matrix.subtract(current, previous, factors, totals, coefficients, crew)

    def seconds(self, n_columns: float, degree: float) -> float:
        """Seconds that products are expected to take; the same for all processes that share rows."""
        return product_seconds(self.nnz, n_columns, degree, self._n_threads)

    def _in_blocks(self, count: int, work: Callable[[slice, Crew | None], None]) -> None:
        """Call ``work`` for slices of columns: on a processor each where there are many, else on all for each."""
        most = _ROW_BYTES // self._dtype.itemsize
        with Crew(self._n_threads) as crew:
            if count > most and self._n_threads > 1:
                starts = range(0, count, min(most, -(-count // self._n_threads)))
                width = starts.step
                crew.run(len(starts), lambda task, _: work(slice(starts[task], min(starts[task] + width, count)), None))
            else:
                for start in range(0, count, most):
                    work(slice(start, min(start + most, count)), crew if self._n_threads > 1 else None)

    def _may_keep(self, n_columns: int) -> bool:
        """Whether there is memory to keep two blocks of so many columns."""
        return n_columns == 0 or kept_bytes(self.n, n_columns) > 0.0

    @contextmanager
    def _counting(self, what: str, n_columns: int, degree: int) -> Iterator[None]:
        """Show the progress of products, where they take long."""
        with bar(what, n_columns * degree, self.seconds(n_columns, degree)) as count:
            self._count = count
            try:
                yield
            finally:
                self._count = _uncounted

    def may_settle(self, degree: int) -> bool:
        """Whether polynomials of a degree may take far fewer products by Lanczos' method, and more is to be saved."""
        large = degree >= _HIGH_DEGREE and self.nnz >= _MANY_ENTRIES
        return large and isinstance(self._matrix, SharedRows) and self._dtype == np.float64

    # ------------------------------------------------------------------ verbs
    def moments(
        self,
        nodes: Longs,
        degree: int,
        known: Floats | None = None,
        kept: Kept | None = None,
        *,
        at: Longs | None = None,
    ) -> Floats:
        """T_k(S)[y, x] for k up to a degree, y = x by default; shape (degree + 1, n_y, n_x).

        Parameters
        ----------
        nodes : ndarray of int64, shape (n_x,)
            x, each once.
        degree : int
            Largest k.
        known : ndarray, shape (at least 2, n_y, n_x), optional
            Moments of lower degrees, with which ``kept`` was filled.
        kept : dict, optional
            Where the last two blocks are kept, to go on from there another time; only where they are not too large.
        at : ndarray of int64, shape (n_y,), optional
            y.
        """
        at = nodes if at is None else at
        found = np.empty((degree + 1, len(at), len(nodes)))
        kept = kept if self._may_keep(len(nodes)) else None
        first = 0 if known is None or not kept else len(known)
        if first:
            assert known is not None
            found[:first] = known
        rows, places = self._rows(at), self._rows(nodes)

        def work(part: slice, crew: Crew | None) -> None:
            if first:
                assert kept is not None
                current, previous = kept[part.start]
            else:
                width = part.stop - part.start
                current, previous = self._zeros(self.n, width), self._zeros(self.n, width)
                current[places[part], range(width)] = 1.0
                found[0, :, part] = self._numbers(current[rows])
            for k in range(max(first, 1), degree + 1):
                current, previous = self._advance(current, previous, k, crew=crew)
                found[k, :, part] = self._numbers(current[rows])
            if kept is not None:
                kept[part.start] = current, previous

        with self._counting("moments", len(nodes), degree + 1 - max(first, 1)):
            self._in_blocks(len(nodes), work)
        return found

    def apply(self, coefficients: Floats, columns: Floats) -> Floats:
        """Σ_k c_k T_k(S) V; shape as ``columns``, (n, k), which may be a block (`block`), as is then what is found."""
        return self.polynomials(coefficients[:, None], columns)[0]

    def polynomials(self, coefficients: Floats, columns: Floats) -> Floats:
        """Several polynomials at once, Σ_k c_k T_k(S) V for every column c of coefficients; (n_sets, n, n_columns).

        ``columns`` may be a block (`block`); then so is what is found.
        """
        found = np.empty((coefficients.shape[1], *columns.shape))

        def work(part: slice, crew: Crew | None) -> None:
            found[:, :, part] = self._numbers(self._summed(coefficients, self._block(columns[:, part]), crew))

        with self._counting("products", columns.shape[1], len(coefficients) - 1):
            self._in_blocks(columns.shape[1], work)
        return found

    def _summed(self, coefficients: Floats, current: Any, crew: Crew | None) -> Any:
        """Σ_k c_k T_k(S) V for every column c of coefficients, and a block V that is overwritten; (n_sets, n, k)."""
        degree = len(coefficients) - 1
        if self.may_settle(degree) and not self._gapless:
            sizes = np.abs(coefficients).sum(axis=0)

            def polynomials(eigenvalues: Floats) -> Floats:
                return np.asarray(chebyshev.chebval(eigenvalues, coefficients), dtype=np.float64)

            def relative(eigenvalues: Floats) -> Floats:
                return polynomials(eigenvalues) / np.where(sizes > 0.0, sizes, 1.0)[:, None]

            space = KrylovSpace(self, current, crew)
            if space.settle(relative, _SETTLED, degree // 3):
                self._count(current.shape[1] * degree)
                return space.sums(polynomials, current)
            self._gapless = True
        previous = self._zeros(*current.shape)
        totals = self._zeros(coefficients.shape[1], *current.shape)
        for total, coefficient in zip(totals, coefficients[0].tolist(), strict=True):
            total += coefficient * current
        for k in range(1, len(coefficients)):
            current, previous = self._advance(current, previous, k, totals, coefficients[k].tolist(), crew)
        return totals

    def row_squares(self, nodes: Longs, coefficients: Floats, columns: Floats) -> Floats:
        """Sums of the squares of every row of Σ_k c_k T_k(S)[:, x] V; shape (n,).

        Parameters
        ----------
        nodes : ndarray of int64, shape (n_x,)
            x, each once.
        coefficients : ndarray, shape (degree + 1,)
            c.
        columns : ndarray, shape (n_x, n_columns)
            V.
        """
        found, lock, rows = np.zeros(self.n), Lock(), self._rows(nodes)

        def work(part: slice, crew: Crew | None) -> None:
            current = self._zeros(self.n, columns[:, part].shape[1])
            current[rows] = self._block(columns[:, part])
            total = self._summed(coefficients[:, None], current, crew)[0]
            own = self._numbers((total * total).sum(1))
            with lock:
                np.add(found, own, out=found)

        with self._counting("products", columns.shape[1], len(coefficients) - 1):
            self._in_blocks(columns.shape[1], work)
        return found

    def between(self, nodes: Longs, coefficients: Floats, columns: Floats) -> Floats:
        """Σ_k c_k T_k(S)[x, x] V for several sets of coefficients; shape (n_sets, n_x, n_columns).

        Parameters
        ----------
        nodes : ndarray of int64, shape (n_x,)
            x, each once.
        coefficients : ndarray, shape (degree + 1, n_sets)
            One set in each column.
        columns : ndarray, shape (n_x, n_columns)
            V.
        """
        found = np.empty((coefficients.shape[1], *columns.shape))
        rows = self._rows(nodes)

        def work(part: slice, crew: Crew | None) -> None:
            shape = self.n, columns[:, part].shape[1]
            current, previous = self._zeros(*shape), self._zeros(*shape)
            current[rows] = self._block(columns[:, part])
            totals = [c * current[rows] for c in coefficients[0].tolist()]
            for k in range(1, len(coefficients)):
                current, previous = self._advance(current, previous, k, crew=crew)
                here = current[rows]
                for total, c in zip(totals, coefficients[k].tolist(), strict=True):
                    total += c * here
            for number, total in enumerate(totals):
                found[number, :, part] = self._numbers(total)

        with self._counting("products", columns.shape[1], len(coefficients) - 1):
            self._in_blocks(columns.shape[1], work)
        return found

    def forms(self, nodes: Longs, left: Floats, right: Floats, degree: int) -> Floats:
        """Forms uᵀ T_k(S)[x, x] v of pairs of columns, for k up to a degree; shape (degree + 1, n_columns).

        Parameters
        ----------
        nodes : ndarray of int64, shape (n_x,)
            x, each once.
        left, right : ndarray, shape (n_x, n_columns)
            Columns u and v.
        degree : int
            Largest k.
        """
        found = np.empty((degree + 1, left.shape[1]))
        rows = self._rows(nodes)

        def work(part: slice, crew: Crew | None) -> None:
            other = self._block(left[:, part])
            current, previous = self._zeros(self.n, other.shape[1]), self._zeros(self.n, other.shape[1])
            current[rows] = self._block(right[:, part])
            for k in range(degree + 1):
                if k:
                    current, previous = self._advance(current, previous, k, crew=crew)
                found[k, part] = self._own_dots(other, current[rows])

        with self._counting("products", left.shape[1], degree):
            self._in_blocks(left.shape[1], work)
        return self.rows.total(found)

    def traces(
        self,
        weights: Floats | None,
        degree: int,
        probes: Floats,
        known: Floats | None = None,
        kept: Kept | None = None,
    ) -> Floats:
        """Estimates zᵀ diag(weights) T_k(S) z of Σ_i weight_i T_k(S)[i, i] from each probe z; (degree + 1, n_probes).

        Columns of the identity for probes give T_k(S)[i, i] of single nodes.

        Parameters
        ----------
        weights : ndarray, shape (n,), optional
            1 by default; then products up to half the degree suffice, as T_{j+k} = 2 T_j T_k − T_|j−k|.
        degree : int
            Largest k.
        probes : ndarray, shape (n, n_probes)
            Entries ±1 for estimates of traces.
        known : ndarray, shape (an odd number from 3 on, n_probes), optional
            Estimates of lower degrees, with which ``kept`` was filled.
        kept : dict, optional
            Where the last two blocks are kept, to go on from there another time.
        """
        found = np.empty((degree + 2, probes.shape[1]))
        kept = kept if self._may_keep(probes.shape[1]) else None
        half = weights is None
        last = -(-degree // 2) if half else degree
        first = 0
        if known is not None and kept:
            found[: len(known)] = known
            first = 1 + (len(known) // 2 if half else len(known) - 1)

        def work(part: slice, crew: Crew | None) -> None:
            weighted = None if weights is None else self._block(weights[:, None] * probes[:, part])
            if first:
                assert kept is not None
                current, previous = kept[part.start]
            else:
                current = self._block(probes[:, part])
                previous = self._zeros(*current.shape)
            for k in range(first, last + 1):
                if k:
                    current, previous = self._advance(current, previous, k, crew=crew)
                if weighted is not None:
                    found[k, part] = self._dots(weighted, current)
                elif k == 0:
                    found[0, part] = self._dots(current, current)
                else:
                    odd = self._dots(previous, current)
                    found[2 * k - 1, part] = odd if k == 1 else 2.0 * odd - found[1, part]
                    found[2 * k, part] = 2.0 * self._dots(current, current) - found[0, part]
            if kept is not None:
                kept[part.start] = current, previous

        with self._counting("traces", probes.shape[1], last + 1 - max(first, 1)):
            self._in_blocks(probes.shape[1], work)
        return found[: degree + 1]
