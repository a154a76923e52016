"""Cholesky factors and selected inverses: the objects that hold numbers."""

from __future__ import annotations

import threading
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from graphmatern.errors import Fault, InputError, NotPositiveDefiniteError, NumericalError
from graphmatern.sparse import _solve, _values
from graphmatern.sparse._blas import addresses, single_threaded_blas
from graphmatern.sparse._fronts import factorize_front, invert_front
from graphmatern.sparse._numeric import factorize_runs, load_panels
from graphmatern.sparse._selected import invert_runs
from graphmatern.sparse._threads import Crew

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray
    from scipy.sparse import csc_array

    from graphmatern.sparse._analysis import Analysis, Layout

    Floats = NDArray[np.float64]
    Longs = NDArray[np.int64]

__all__ = ["Factor", "SelectedInverse", "float_buffer"]

_COLUMNS_AT_ONCE = 64  # right-hand sides solved for together
_COLUMNS_PER_THREAD = 8  # fewer are not worth a second pass over the factor


def _aligned(size: int) -> Floats:
    """Return an array (size,) that begins at a multiple of 64 bytes.

    The last digit of what vector instructions compute can depend on where a vector begins.
    """
    raw = np.empty(size + 8)
    return raw[(-raw.ctypes.data % 64) // 8 :][:size]


class _Workspace:
    """Working memory of one factor."""

    def __init__(self, analysis: Layout) -> None:
        plan = analysis._plan
        n_threads = analysis.n_threads
        self.shifts = [plan.waiting + plan.top_stack + t * plan.task_stack for t in range(n_threads)]
        self.stack = _aligned(self.shifts[-1] + plan.task_stack + 1)
        self.rooms = [_aligned(analysis._room) for _ in range(n_threads)]
        self.where = [np.empty(analysis._max_below + 1, np.int64) for _ in range(n_threads)]
        self.tasks = [(np.array([a]), np.array([b])) for a, b in zip(plan.task_start, plan.task_end, strict=True)]
        self.lower = np.empty(len(analysis._structure.source))


class Factor:
    """The Cholesky factorisation P A Pᵀ = L Lᵀ of a sparse matrix; made by `Analysis.factorize`.

    Different factors, even of the same analysis, may be used from different threads at the same time; calls on one
    factor wait for each other if they must.

    Attributes
    ----------
    analysis : Analysis
        The structure of the factorisation.
    """

    def __init__(self, analysis: Analysis) -> None:
        self.analysis = analysis
        self._panels = _aligned(analysis.n_entries)
        self._work = _Workspace(analysis)
        self._lock = threading.RLock()
        self._ready = False

    def update(self, values: ArrayLike, *, check: bool = True) -> None:
        """Factorise another matrix of the same pattern in the memory of this one.

        Parameters
        ----------
        values : array_like (nnz,)
            Values on ``analysis.pattern``.
        check : bool
            Whether to look for values that are not finite or not symmetric.  Without it, only
            the lower triangle of P A Pᵀ is read.

        Raises
        ------
        NotPositiveDefiniteError
            If the matrix is not positive definite, or singular to working precision.  The
            factor cannot be used until an update succeeds.
        InputError
            If the values have the wrong shape, are not finite or not symmetric.
        """
        given = _values_array(values, self.analysis)
        with self._lock:
            self._ready = False
            column, suspect = self._factorize(given, check)
            if suspect or (check and column >= 0):
                _check_values(given, self.analysis)
            if column >= 0:
                raise _not_positive_definite(int(self.analysis.permutation[column]), self.analysis.n)
            self._ready = True

    def __getstate__(self) -> tuple[Analysis, Floats | None]:
        return self.analysis, self._panels if self._ready else None

    def __setstate__(self, state: tuple[Analysis, Floats | None]) -> None:
        analysis, panels = state
        self.__init__(analysis)  # type: ignore[misc]
        if panels is not None:
            np.copyto(self._panels, panels)  # copies of a factor do not share its memory
            self._ready = True

    @property
    def lower_values(self) -> Floats:
        """Buffer (m,) for the lower triangle of P A Pᵀ, in the order of ``analysis.lower_positions``."""
        return self._work.lower

    def update_lower(self, lower: Floats | None = None) -> None:
        """Factorise another matrix, given by its permuted lower triangle: `update` for hot loops.

        Parameters
        ----------
        lower : ndarray (m,), optional
            Values in the order of ``analysis.lower_positions``; without it, those that the caller has
            written to `lower_values`.

        Raises
        ------
        NotPositiveDefiniteError
            As for `update`; also for values that are not finite.
        """
        if lower is not None:
            lower = float_buffer(lower, len(self._work.lower), "lower")
        with self._lock:
            self._ready = False
            if lower is not None:
                np.copyto(self._work.lower, lower)
            column, _ = self._factorize(np.empty(0), False)
            if column >= 0:
                raise _not_positive_definite(int(self.analysis.permutation[column]), self.analysis.n)
            self._ready = True

    def _factorize(self, values: Floats, check: bool) -> tuple[int, bool]:
        """Compute the factor.

        Returns the permuted column at which that failed, or -1, and whether some value may be at fault.
        """
        tree, work, table = self.analysis._structure, self._work, addresses()
        mirror = self.analysis.mirror_positions if check else tree.source
        lower, panels, stack = work.lower, self._panels, work.stack
        loaded, suspect = self._load(mirror, values, check)
        results: list[tuple[int, bool]] = [(-1, suspect)]

        def run(starts: Longs, ends: Longs, shift: int, where: Longs) -> None:
            results.append(
                factorize_runs(
                    tree,
                    mirror,
                    starts,
                    ends,
                    shift,
                    loaded,
                    check,
                    values,
                    lower,
                    panels,
                    stack,
                    table,
                    where,
                )
            )

        def run_task(task: int, worker: int) -> None:
            run(*work.tasks[task], work.shifts[worker], work.where[worker])

        with single_threaded_blas(), Crew(self.analysis.n_threads) as crew:
            crew.run(len(work.tasks), run_task)
            where = work.where[0]
            for starts, ends, front in self.analysis._plan.steps:
                if any(column >= 0 for column, _ in results):
                    break
                if front < 0:
                    run(starts, ends, 0, where)
                else:
                    results.append(
                        factorize_front(
                            crew,
                            tree,
                            mirror,
                            front,
                            loaded,
                            check,
                            values,
                            lower,
                            panels,
                            stack,
                            table,
                            where,
                        )
                    )
        failed = [column for column, _ in results if column >= 0]
        return min(failed, default=-1), any(suspect for _, suspect in results)

    def _load(self, mirror: NDArray[np.integer], values: Floats, check: bool) -> tuple[bool, bool]:
        """Write the matrix to all panels where that must be done at once; return whether it was, and looks at fault.

        Update matrices of detached supernodes are added to panels whose turn has not come.
        """
        tree = self.analysis._structure
        if not tree.detached.any():
            return False, False
        return True, load_panels(tree, mirror, check, values, self._work.lower, self._panels)

    def _require(self) -> None:
        if not self._ready:
            raise NumericalError(
                "this factor holds no factorisation: its last update failed. Update it with the values of a "
                "positive definite matrix first."
            )

    def logdet(self) -> float:
        """Return the logarithm of the determinant of A.

        Examples
        --------
        >>> import scipy.sparse as sp
        >>> from graphmatern.sparse import analyze
        >>> A = sp.eye_array(3, format="csc")
        >>> analyze(A).factorize(A.data).logdet()
        0.0
        """
        with self._lock:
            self._require()
            return 2.0 * float(np.log(self._panels[self.analysis._panel_diagonal]).sum())

    def solve(self, b: ArrayLike) -> Floats:
        """Return A⁻¹ b, for b of shape (n,) or (n, k)."""
        return self._solve(b, lower=True, upper=True)

    def solve_ordered(self, x: Floats, times: int = 1) -> None:
        """Replace x (n, k), whose rows are in the order of the factor, by (P A Pᵀ)⁻ᵗⁱᵐᵉˢ x: `solve` for hot loops.

        Parameters
        ----------
        x : ndarray (n, k)
            C-contiguous, of float64; overwritten.
        times : int
            How often to solve.
        """
        n, shape = self.analysis.n, np.shape(x)
        if len(shape) != 2 or shape[0] != n or not x.flags.c_contiguous:
            fault = Fault("x", f"must be C-contiguous, of shape ({n}, k)", f"shape {shape}", "One row for each node.")
            raise InputError("nothing was solved", [fault])
        float_buffer(x.reshape(-1), x.size, "out")
        # Each thread takes some of the columns.
        count = max(1, min(self.analysis.n_threads, shape[1] // _COLUMNS_PER_THREAD))
        parts = [slice(begin, end) for begin, end in pairwise(np.linspace(0, shape[1], count + 1, dtype=int))]

        def run(task: int, _worker: int) -> None:
            part = np.ascontiguousarray(x[:, parts[task]])
            for _ in range(times):
                self._solve_in_place(part, lower=True, upper=True, one=False)
            if count > 1:  # otherwise it is x itself
                x[:, parts[task]] = part

        with self._lock:
            self._require()
            with single_threaded_blas(), Crew(self.analysis.n_threads) as crew:
                crew.run(count, run)

    def solve_lower(self, b: ArrayLike) -> Floats:
        """Return L⁻¹ P b, for b of shape (n,) or (n, k); the result is in the order of the factor."""
        return self._solve(b, lower=True, upper=False)

    def solve_upper(self, b: ArrayLike) -> Floats:
        """Return Pᵀ L⁻ᵀ b, for b of shape (n,) or (n, k).

        For independent standard normal b the result has covariance A⁻¹.
        """
        return self._solve(b, lower=False, upper=True)

    def solve_upper_ordered(self, b: Floats) -> Floats:
        """Return L⁻ᵀ b, for b of shape (n, k), in the order of the factor: `solve_upper` without the permutation."""
        x = np.array(_right_hand_side(b, self.analysis.n), order="C")
        with self._lock, single_threaded_blas():
            self._require()
            self._solve_in_place(x, lower=False, upper=True, one=False)
        return x

    def _solve(self, b: ArrayLike, *, lower: bool, upper: bool) -> Floats:
        right = _right_hand_side(b, self.analysis.n)
        permutation = self.analysis.permutation
        result = np.empty(right.shape)

        def solve_block(columns: Any, one: bool) -> None:
            block = right[columns]
            x = np.take(block, permutation, axis=0) if lower else np.array(block, order="C")
            x = np.ascontiguousarray(x)
            self._solve_in_place(x, lower=lower, upper=upper, one=one)
            if upper:
                result[(permutation, *columns[1:])] = x
            else:
                result[columns] = x

        if right.ndim == 1:
            with self._lock:
                self._require()
                solve_block((slice(None),), True)
            return result
        blocks = range(0, right.shape[1], _COLUMNS_AT_ONCE)

        def run(task: int, _worker: int) -> None:
            begin = blocks[task]
            solve_block((slice(None), slice(begin, begin + _COLUMNS_AT_ONCE)), False)

        with self._lock, single_threaded_blas(), Crew(self.analysis.n_threads) as crew:
            self._require()
            crew.run(len(blocks), run)
        return result

    def _solve_in_place(self, x: Floats, *, lower: bool, upper: bool, one: bool) -> None:
        structure, table = self.analysis._structure, addresses()
        if not one and x.shape[1] == 1:
            x, one = x.reshape(-1), True
        room = np.empty(self.analysis._max_below * (1 if one else x.shape[1]) + 1)
        if one:
            if lower:
                _solve.lower_one(structure, self._panels, x, room)
            if lower and upper and self.analysis.has_signs:
                _solve.flip(structure, x.reshape(-1, 1))
            if upper:
                _solve.upper_one(structure, self._panels, x, room)
            return
        if lower:
            _solve.lower_many(structure, self._panels, x, room, table)
        if lower and upper and self.analysis.has_signs:
            _solve.flip(structure, x)
        if upper:
            _solve.upper_many(structure, self._panels, x, room, table)

    def selected_inverse(self, out: SelectedInverse | None = None) -> SelectedInverse:
        """Compute the entries of A⁻¹ on the pattern of L.

        Parameters
        ----------
        out : SelectedInverse, optional
            An earlier result for the same analysis, to be overwritten; without it, memory is allocated.

        Returns
        -------
        SelectedInverse
        """
        if out is None:
            out = SelectedInverse(self.analysis)
        elif not isinstance(out, SelectedInverse) or out.analysis is not self.analysis:
            fault = Fault("out", "must belong to the same analysis", repr(out), "Leave it out the first time.")
            raise InputError("no selected inverse was computed", [fault])
        tree, work, table = self.analysis._structure, self._work, addresses()
        panels, inverse, stack = self._panels, out._panels, work.stack

        def run(starts: Longs, ends: Longs, shift: int, worker: int) -> None:
            room, where = work.rooms[worker], work.where[worker]
            invert_runs(tree, starts, ends, shift, panels, inverse, stack, room, table, where)

        def run_task(task: int, worker: int) -> None:
            run(*work.tasks[task], work.shifts[worker], worker)

        with self._lock, single_threaded_blas(), Crew(self.analysis.n_threads) as crew:
            self._require()
            for starts, ends, front in reversed(self.analysis._plan.steps):
                if front < 0:
                    run(starts, ends, 0, 0)
                else:
                    room, where = work.rooms[0], work.where[0]
                    invert_front(crew, tree, front, panels, inverse, stack, room, table, where)
            crew.run(len(work.tasks), run_task)
        return out

    def diagonal_of_inverse(self) -> Floats:
        """Return the diagonal (n,) of A⁻¹: the marginal variances if A is a precision matrix."""
        return self.selected_inverse().diagonal()


class SelectedInverse:
    """Entries of A⁻¹ on the pattern of the factor of A; made by `Factor.selected_inverse`.

    Attributes
    ----------
    analysis : Analysis
        The structure of the factorisation.
    """

    def __init__(self, analysis: Analysis) -> None:
        self.analysis = analysis
        self._panels = _aligned(analysis.n_entries)

    def diagonal_ordered(self) -> Floats:
        """Return the diagonal (n,) of A⁻¹ in the order of the factor: `diagonal` for hot loops."""
        return self._panels[self.analysis._panel_diagonal]

    def diagonal(self, out: Floats | None = None) -> Floats:
        """Return the diagonal (n,) of A⁻¹."""
        out = np.empty(self.analysis.n) if out is None else float_buffer(out, self.analysis.n, "out")
        out[self.analysis.permutation] = self.diagonal_ordered()
        return out

    def on_pattern(self, out: Floats | None = None) -> Floats:
        """Return A⁻¹ on the pattern of A, (nnz,), aligned with ``analysis.pattern``, both triangles."""
        size = len(self.analysis._indices)
        out = np.empty(size) if out is None else float_buffer(out, size, "out")
        _values.on_pattern(self.analysis._structure, self.analysis.mirror_positions, self._panels, out)
        return out

    def trace(self, values: ArrayLike) -> float:
        """Return tr(A⁻¹ B) for symmetric B with ``values`` (nnz,) on ``analysis.pattern``."""
        given = _values_array(values, self.analysis, "no trace was computed")
        return float(_values.trace(self.analysis._structure, self._panels, given))

    def to_csc(self) -> csc_array:
        """Return all selected entries, both triangles, as a sparse matrix in the caller's ordering."""
        from scipy import sparse

        n = self.analysis.n
        row, column, value = _values.lower_triangle(self.analysis._structure, self.analysis.permutation, self._panels)
        other = row != column
        rows = np.concatenate([row, column[other]])
        columns = np.concatenate([column, row[other]])
        return sparse.coo_array((np.concatenate([value, value[other]]), (rows, columns)), shape=(n, n)).tocsc()


def float_buffer(array: object, size: int, argument: str) -> Floats:
    """Return an array that compiled code may read and write without looking; raise if it may not."""
    good = isinstance(array, np.ndarray) and array.shape == (size,) and array.dtype == np.float64
    if not good or not array.flags.c_contiguous or (argument == "out" and not array.flags.writeable):  # type: ignore[attr-defined]
        received = f"shape {array.shape}, type {array.dtype}" if isinstance(array, np.ndarray) else type(array).__name__
        rule = f"must be a contiguous float64 array of shape ({size},)"
        raise InputError("nothing was computed", [Fault(argument, rule, received, "Make one with np.empty.")])
    return array  # type: ignore[return-value]


def _array(values: Any) -> NDArray[Any]:
    """Return anything array-like as an array; a ragged list, which is not, as one of objects."""
    try:
        return np.asarray(values.detach().cpu() if hasattr(values, "detach") else values)
    except ValueError:
        return np.empty(0, dtype=object)


def _values_array(values: ArrayLike, analysis: Analysis, subject: str = "nothing was factorised") -> Floats:
    """Return the values as a contiguous array of the right shape and type."""
    array = _array(values)
    nnz = len(analysis._indices)
    if array.shape != (nnz,) or array.dtype.kind not in "fiu":
        rule = f"must be {nnz} real numbers, one for each entry of `analysis.pattern`"
        received = f"an array of shape {array.shape} and type {array.dtype}"
        remedy = "Sort the indices of the matrix and pass its `data`."
        raise InputError(subject, [Fault("values", rule, received, remedy)])
    return np.ascontiguousarray(array, np.float64)


def _right_hand_side(b: ArrayLike, n: int) -> Floats:
    array = _array(b)
    if array.ndim not in (1, 2) or array.shape[0] != n or array.dtype.kind not in "fiub":
        rule = f"must be real numbers of shape ({n},) or ({n}, k)"
        received = f"an array of shape {array.shape} and type {array.dtype}"
        raise InputError("nothing was solved", [Fault("b", rule, received, "Pass one row for each node.")])
    return array.astype(np.float64, copy=False)


def _check_values(values: Floats, analysis: Analysis) -> None:
    """Raise unless all values are finite and symmetric."""
    code, position = _values.first_fault(analysis._structure, analysis.mirror_positions, values)
    if code == 0:
        return
    i = int(analysis._indices[position])
    j = int(np.searchsorted(analysis._indptr, position, side="right")) - 1
    if code == 1:
        rule, received = "must be finite", f"{values[position]} at ({i}, {j})"
        remedy = "Look for divisions by zero and overflow where the matrix is made."
    else:
        rule, received = "must be symmetric", f"different values at ({i}, {j}) and ({j}, {i})"
        remedy = "Sort the indices of the matrix before taking its `data`; if they are, pass `(A + A.T) / 2`."
    raise InputError("nothing was factorised", [Fault("values", rule, received, remedy)])


def _not_positive_definite(column: int, n: int) -> NotPositiveDefiniteError:
    return NotPositiveDefiniteError(
        f"the matrix ({n} rows) is not positive definite: elimination broke down at row and column {column}. "
        "Likely causes: (a) a Laplacian without a positive term on its diagonal is singular; (b) a "
        "lengthscale so large that this term vanishes in rounding; (c) negative weights, sites or noise "
        "variances.",
        column,
    )
