"""Products of a sparse symmetric matrix with blocks of vectors, and the Chebyshev polynomials made of them.

With S the matrix shifted and scaled to eigenvalues in [−1, 1], T_k(S) V follows from T_{k+1} = 2 S T_k − T_{k−1}. A
block of a few dozen columns goes through all degrees by itself: wide enough to use whole cache lines, narrow enough to
stay in cache on graphs of moderate size.
"""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import csr_array, eye_array

from graphmatern.sparse._compile import jit
from graphmatern.sparse._resources import available_memory, available_threads
from graphmatern.sparse._threads import Crew

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Longs = NDArray[np.int64]
    Kept = dict[int, tuple[Any, Any]]

__all__ = ["ChebyshevProducts"]

_KEPT_SHARE = 0.25  # of the memory, for blocks that are kept to go on from
_COLUMNS = 32  # of a block; with fewer, loading indices costs more than using them


@jit
def _step(
    indptr: Longs,
    indices: NDArray[np.int32],
    values: Floats,
    first: int,
    last: int,
    current: Floats,
    previous: Floats,
    factor: float,
    total: Floats,
    coefficient: float,
) -> None:
    """Previous ← factor S current − previous, and total += coefficient previous, in some rows.

    Entries are taken four at a time, so that a row of the result is loaded and stored once for all four.
    """
    n_columns = current.shape[1]
    for row in range(first, last):
        k, end = indptr[row], indptr[row + 1]
        out = previous[row]
        for column in range(n_columns):
            out[column] = -out[column]
        while k + 3 < end:
            a, b, c, d = factor * values[k], factor * values[k + 1], factor * values[k + 2], factor * values[k + 3]
            w, x, y, z = current[indices[k]], current[indices[k + 1]], current[indices[k + 2]], current[indices[k + 3]]
            for column in range(n_columns):
                out[column] += (a * w[column] + b * x[column]) + (c * y[column] + d * z[column])
            k += 4
        while k < end:
            a, w = factor * values[k], current[indices[k]]
            for column in range(n_columns):
                out[column] += a * w[column]
            k += 1
        if coefficient != 0.0:
            into = total[row]
            for column in range(n_columns):
                into[column] += coefficient * out[column]


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
        scaled.sum_duplicates()
        scaled.eliminate_zeros()  # the diagonal, where the matrix is a normalised Laplacian
        self.n = n
        self.nnz = int(scaled.nnz)
        self.diagonal: Floats = scaled.diagonal()
        self.squared_diagonal: Floats = np.asarray(scaled.multiply(scaled).sum(axis=1)).ravel()  # of S²
        self._n_threads = available_threads() if n_threads is None else n_threads
        self._hold(scaled)

    # ------------------------------------------------------------------ what another device does its own way
    def _hold(self, scaled: csr_array[Any]) -> None:
        self._indptr = scaled.indptr.astype(np.int64)
        self._indices = scaled.indices.astype(np.int32)
        self._values: Floats = np.asarray(scaled.data, dtype=np.float64)

    def _block(self, columns: Floats) -> Any:
        """A copy of some columns, on the device."""
        return np.array(columns, dtype=np.float64, order="C")

    def _zeros(self, n_columns: int) -> Any:
        return np.zeros((self.n, n_columns))

    def _numbers(self, block: Any) -> Floats:
        """A block, back from the device."""
        return np.asarray(block)

    def _rows(self, nodes: Longs) -> Any:
        """What rows of a block are taken by."""
        return nodes

    def _advance(
        self, current: Any, previous: Any, k: int, total: Any = None, coefficient: float = 0.0, crew: Crew | None = None
    ) -> tuple[Any, Any]:
        """T_k V and T_{k−1} V from T_{k−1} V and T_{k−2} V, which is overwritten; adds the former to a total."""
        matrix = self._indptr, self._indices, self._values
        into = current[:0] if total is None else total
        factor, n_tasks = (1.0 if k == 1 else 2.0), 1 if crew is None else 4 * self._n_threads
        # Equal shares of the entries, not of the rows: hubs have many.
        inner = np.searchsorted(self._indptr, np.linspace(0, self.nnz, n_tasks + 1)[1:-1]).tolist()
        bounds = [0, *inner, self.n]

        def some_rows(task: int, _worker: int) -> None:
            first, last = bounds[task], bounds[task + 1]
            if first < last:
                _step(*matrix, first, last, current, previous, factor, into, coefficient)

        if crew is None:
            some_rows(0, 0)
        else:
            crew.run(n_tasks, some_rows)
        return previous, current

    def _in_blocks(self, count: int, work: Callable[[slice, Crew | None], None]) -> None:
        """Call ``work`` for slices of columns: on a processor each where there are many, else on all for each."""
        with Crew(self._n_threads) as crew:
            if count > _COLUMNS and self._n_threads > 1:
                starts = range(0, count, min(_COLUMNS, -(-count // self._n_threads)))
                width = starts.step
                crew.run(len(starts), lambda task, _: work(slice(starts[task], min(starts[task] + width, count)), None))
            else:
                for start in range(0, count, _COLUMNS):
                    work(slice(start, min(start + _COLUMNS, count)), crew if self._n_threads > 1 else None)

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
        kept = None if 16.0 * self.n * len(nodes) > _KEPT_SHARE * available_memory() else kept
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
                current, previous = self._zeros(width), self._zeros(width)
                current[places[part], range(width)] = 1.0
                found[0, :, part] = self._numbers(current[rows])
            for k in range(max(first, 1), degree + 1):
                current, previous = self._advance(current, previous, k, crew=crew)
                found[k, :, part] = self._numbers(current[rows])
            if kept is not None:
                kept[part.start] = current, previous

        self._in_blocks(len(nodes), work)
        return found

    def apply(self, coefficients: Floats, columns: Floats) -> Floats:
        """Σ_k c_k T_k(S) V; shape as ``columns``, (n, k)."""
        found = np.empty(columns.shape)

        def work(part: slice, crew: Crew | None) -> None:
            current = self._block(columns[:, part])
            previous, total = self._zeros(current.shape[1]), coefficients[0] * current
            for k in range(1, len(coefficients)):
                current, previous = self._advance(current, previous, k, total, float(coefficients[k]), crew)
            found[:, part] = self._numbers(total)

        self._in_blocks(columns.shape[1], work)
        return found

    def polynomials(self, coefficients: Floats, columns: Floats) -> Floats:
        """Several polynomials at once, Σ_k c_k T_k(S) V for every column c of coefficients; (n_sets, n, n_columns)."""
        found = np.empty((coefficients.shape[1], *columns.shape))

        def work(part: slice, crew: Crew | None) -> None:
            current = self._block(columns[:, part])
            previous = self._zeros(current.shape[1])
            totals = [c * current for c in coefficients[0].tolist()]
            for k in range(1, len(coefficients)):
                current, previous = self._advance(current, previous, k, crew=crew)
                for total, c in zip(totals, coefficients[k].tolist(), strict=True):
                    if c != 0.0:
                        total += c * current
            for number, total in enumerate(totals):
                found[number, :, part] = self._numbers(total)

        self._in_blocks(columns.shape[1], work)
        return found

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
            width = columns[:, part].shape[1]
            current, previous = self._zeros(width), self._zeros(width)
            current[rows] = self._block(columns[:, part])
            total = float(coefficients[0]) * current
            for k in range(1, len(coefficients)):
                current, previous = self._advance(current, previous, k, total, float(coefficients[k]), crew)
            own = self._numbers((total * total).sum(1))
            with lock:
                np.add(found, own, out=found)

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
            current, previous = self._zeros(columns[:, part].shape[1]), self._zeros(columns[:, part].shape[1])
            current[rows] = self._block(columns[:, part])
            totals = [c * current[rows] for c in coefficients[0].tolist()]
            for k in range(1, len(coefficients)):
                current, previous = self._advance(current, previous, k, crew=crew)
                here = current[rows]
                for total, c in zip(totals, coefficients[k].tolist(), strict=True):
                    total += c * here
            for number, total in enumerate(totals):
                found[number, :, part] = self._numbers(total)

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
            current, previous = self._zeros(other.shape[1]), self._zeros(other.shape[1])
            current[rows] = self._block(right[:, part])
            for k in range(degree + 1):
                if k:
                    current, previous = self._advance(current, previous, k, crew=crew)
                found[k, part] = self._numbers((other * current[rows]).sum(0))

        self._in_blocks(left.shape[1], work)
        return found

    def traces(self, weights: Floats | None, degree: int, probes: Floats) -> Floats:
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
        """
        found = np.empty((degree + 2, probes.shape[1]))

        def dot(a: Any, b: Any) -> Floats:
            return self._numbers((a * b).sum(0))

        def work(part: slice, crew: Crew | None) -> None:
            block = probes[:, part] if weights is None else weights[:, None] * probes[:, part]
            weighted, current = self._block(block), self._block(probes[:, part])
            previous = self._zeros(current.shape[1])
            for k in range((degree if weights is not None else -(-degree // 2)) + 1):
                if k:
                    current, previous = self._advance(current, previous, k, crew=crew)
                if weights is not None or k < 2:
                    found[k, part] = dot(weighted, current)
                if weights is None and k > 0:
                    if k > 1:
                        found[2 * k - 1, part] = 2.0 * dot(previous, current) - found[1, part]
                    found[2 * k, part] = 2.0 * dot(current, current) - found[0, part]

        self._in_blocks(probes.shape[1], work)
        return found[: degree + 1]
