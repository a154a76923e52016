"""Polynomials of a sparse matrix, as values on the pattern of its highest power.

Q = Σ c_j Δ^j has one pattern for all coefficients c. The powers are computed once and stored as values of the
permuted lower triangle (`Analysis.lower_positions`), so that forming Q and traces with it are single passes over
memory in the order in which the factorisation reads and writes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np
from scipy import sparse

from graphmatern._validation import FaultList, check_whole
from graphmatern.errors import ResourceError
from graphmatern.sparse._analysis import analyze
from graphmatern.sparse._compile import jit
from graphmatern.sparse._factor import float_buffer
from graphmatern.sparse._pattern import canonical, power_nnz
from graphmatern.sparse._resources import available_memory, format_bytes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from graphmatern.sparse._factor import SelectedInverse
    from graphmatern.sparse._structure import Structure

    Ints = NDArray[np.int32]
    Longs = NDArray[np.int64]
    Floats = NDArray[np.float64]

__all__ = ["MatrixPolynomial"]


@jit
def _expand(indptr: Longs, indices: Ints, small_indptr: Longs, small_indices: Ints, small: Floats, out: Floats) -> None:
    """Write values on a pattern to a pattern that contains it, both with sorted indices; zeros elsewhere."""
    for j in range(len(indptr) - 1):
        q = small_indptr[j]
        end = small_indptr[j + 1]
        for p in range(indptr[j], indptr[j + 1]):
            if q < end and small_indices[q] == indices[p]:
                out[p] = small[q]
                q += 1
            else:
                out[p] = 0.0


@jit
def _multiply(
    indptr: Longs,
    indices: Ints,
    small_indptr: Longs,
    small_indices: Ints,
    small: Floats,
    last_indptr: Longs,
    last_indices: Ints,
    last: Floats,
    out: Floats,
) -> None:
    """Write the product of two symmetric matrices that commute, ``small`` and ``last``, to a pattern that holds it."""
    sums = np.zeros(len(indptr) - 1)
    for j in range(len(indptr) - 1):
        for q in range(small_indptr[j], small_indptr[j + 1]):
            k = small_indices[q]
            for p in range(last_indptr[k], last_indptr[k + 1]):
                sums[last_indices[p]] += small[q] * last[p]
        for p in range(indptr[j], indptr[j + 1]):
            out[p] = sums[indices[p]]
        for q in range(small_indptr[j], small_indptr[j + 1]):
            k = small_indices[q]
            for p in range(last_indptr[k], last_indptr[k + 1]):
                sums[last_indices[p]] = 0.0  # zeros of ``last`` may lie outside the pattern


@jit
def _traces(tree: Structure, panels: Floats, powers: Floats, identity: Floats, degree: int) -> Floats:
    """tr(Z Δ^j) for j = 0, ..., degree, with Z symmetric and stored in panels."""
    result = np.zeros(degree + 1)
    for s in range(len(tree.height)):
        column = tree.panel[s]
        for i in range(tree.start[s], tree.start[s + 1]):
            first = tree.entry_start[i]
            own = panels[column + tree.entry_row[first]]
            result[0] += own * identity[i]
            for j in range(degree):
                total = 0.0
                for k in range(first + 1, tree.entry_start[i + 1]):
                    total += panels[column + tree.entry_row[k]] * powers[j, k]
                result[j + 1] += own * powers[j, first] + 2.0 * total
            column += tree.height[s]
    return result


@jit
def _forms(tree: Structure, values: Floats, identity: Floats, x: Floats, y: Floats) -> tuple[float, float]:
    """Xᵀ diag(identity) y and xᵀAy, A given by its lower triangle, all in the order of the factor."""
    plain = 0.0
    mixed = 0.0
    for s in range(len(tree.height)):
        begin = tree.start[s]
        width = tree.start[s + 1] - begin
        shift = tree.row_start[s] - width
        for i in range(begin, begin + width):
            first = tree.entry_start[i]
            from_x = 0.5 * values[first] * x[i]
            from_y = 0.5 * values[first] * y[i]
            for p in range(first + 1, tree.entry_start[i + 1]):
                row = tree.entry_row[p]
                j = begin + row if row < width else np.int64(tree.rows[shift + row])
                from_x += values[p] * x[j]
                from_y += values[p] * y[j]
            plain += identity[i] * x[i] * y[i]
            mixed += from_x * y[i] + from_y * x[i]
    return plain, mixed


def _checked(
    matrix: sparse.sparray | sparse.spmatrix, degree: int, scaling: Floats | None, check: bool
) -> sparse.csc_array:
    """Return a copy of a symmetric, finite matrix with sorted indices and its whole diagonal."""
    faults = FaultList("no polynomial was made")
    check_whole("degree", degree, faults, minimum=1, remedy="Powers are whole numbers.")
    faults.raise_if_any()
    if not check:
        rows = cast("sparse.csr_array", matrix)
        return sparse.csc_array((rows.data, rows.indices, rows.indptr), shape=rows.shape)  # its own transpose
    canonical(matrix)  # raises unless it is square, its pattern symmetric, its diagonal stored
    base = sparse.csc_array(matrix, dtype=np.float64, copy=True)
    base.sum_duplicates()
    n = base.shape[0]
    if not np.isfinite(base.data).all():
        faults.add(
            "matrix", "must hold finite numbers", "other values", "Look for divisions by zero in its construction."
        )
    elif abs(base - base.T).max() > 1e-10 * abs(base).max():
        faults.add("matrix", "must be symmetric", "different values at mirrored positions", "Pass `(A + A.T) / 2`.")
    if scaling is not None and (np.shape(scaling) != (n,) or not np.isfinite(scaling).all()):
        faults.add("scaling", f"must be {n} finite numbers", f"shape {np.shape(scaling)}", "One per row.")
    faults.raise_if_any()
    return base


class MatrixPolynomial:
    """Matrices S (c_0 I + c_1 Δ + ... + c_degree Δ^degree) S, for one symmetric Δ, one diagonal S and many c.

    Parameters
    ----------
    matrix : scipy sparse matrix, shape (n, n)
        Δ, symmetric, its whole diagonal stored.
    degree : int
        Highest power, at least 1.
    scaling : ndarray (n,), optional
        Diagonal of S; 1 by default.
    n_threads, memory_limit
        As for `analyze`.
    check : bool
        Whether to check the matrix; if not, it must be a csr_array with sorted indices.

    Attributes
    ----------
    analysis : Analysis
        Of the pattern of Δ^degree.

    Raises
    ------
    ResourceError
        If the power or its factor would not fit into memory; it was not formed.

    Examples
    --------
    >>> import numpy as np, scipy.sparse as sp
    >>> path = sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(5, 5))
    >>> square = MatrixPolynomial(path, 2)
    >>> factor = square.analysis.factorize_lower(square.lower(np.array([1.0, 2.0, 1.0])))  # (1 + Δ)²
    >>> bool(np.isclose(factor.logdet(), 2 * np.linalg.slogdet(np.eye(5) + path.toarray())[1]))
    True
    """

    def __init__(
        self,
        matrix: sparse.sparray | sparse.spmatrix,
        degree: int,
        *,
        scaling: Floats | None = None,
        n_threads: int | None = None,
        memory_limit: float | None = None,
        check: bool = True,
    ) -> None:
        base = _checked(matrix, degree, scaling, check)
        pattern = self._power_pattern(base, degree, memory_limit)
        self.analysis = analyze(pattern, n_threads=n_threads, memory_limit=memory_limit, check=False)
        positions = self.analysis.lower_positions
        indptr, indices = self.analysis._indptr, self.analysis._indices
        self._powers = np.empty((degree, len(positions)))
        outer: Floats | None = None
        if scaling is not None:
            column = np.repeat(scaling, np.diff(indptr))
            outer = column * scaling[indices]
        full = base.data
        if degree > 1:
            own_indptr, own_indices = canonical(base, check=False)
            full = np.empty(len(indices))
            _expand(indptr, indices, own_indptr, own_indices, base.data, full)
        for j in range(degree):
            if j:
                product = np.empty(len(indices))
                last = (own_indptr, own_indices, base.data) if j == 1 else (indptr, indices, full)
                _multiply(indptr, indices, own_indptr, own_indices, base.data, *last, product)
                full = product
            np.take(full if outer is None else full * outer, positions, out=self._powers[j])
        permutation = self.analysis.permutation
        self._identity = np.ones(len(permutation)) if scaling is None else scaling[permutation] ** 2
        self._nothing = np.zeros(len(permutation))
        self._diagonal = self.analysis._structure.entry_start[:-1]

    @staticmethod
    def _power_pattern(base: sparse.csc_array, degree: int, memory_limit: float | None) -> sparse.csc_array:
        """Pattern of the highest power, once its size is known to be affordable."""
        limit = 0.8 * available_memory() if memory_limit is None else memory_limit
        per_entry = 16 + 4 * degree  # pattern, values, half of each power
        count = power_nnz(base, degree, limit=int(limit / per_entry) + 1, check=False)
        if count * per_entry > limit:
            raise ResourceError(
                f"power {degree} of a matrix of {base.shape[0]:,} rows and {base.nnz:,} entries has at least {count:,} "
                f"entries, which take {format_bytes(count * per_entry)} before any factorisation; the limit is "
                f"{format_bytes(limit)}. A node with many neighbours makes powers dense: use a lower power, or another "
                "engine"
            )
        ones = sparse.csc_array((np.ones(base.nnz), base.indices, base.indptr), shape=base.shape)
        pattern = ones
        for _ in range(degree - 1):
            pattern = sparse.csc_array(pattern @ ones)
        pattern.sort_indices()
        return pattern

    @property
    def degree(self) -> int:
        """Highest power."""
        return len(self._powers)

    def lower(
        self,
        coefficients: Floats,
        extra: Floats | None = None,
        out: Floats | None = None,
        *,
        ordered: bool = False,
    ) -> Floats:
        """Values of the permuted lower triangle, as `Factor.update_lower` takes them.

        Parameters
        ----------
        coefficients : ndarray (degree + 1,)
            c_0, ..., c_degree.
        extra : ndarray (n,), optional
            A diagonal to add, in the caller's order.
        out : ndarray (m,), optional
            Where to write.
        ordered : bool
            Whether ``extra`` is in the order of the factor instead.
        """
        size = self._powers.shape[1]
        out = np.empty(size) if out is None else float_buffer(out, size, "out")
        terms = float_buffer(np.asarray(coefficients, np.float64), self.degree + 1, "coefficients")
        added = self._nothing
        if extra is not None:
            added = float_buffer(np.asarray(extra, np.float64), self.analysis.n, "extra")
            added = added if ordered else added[self.analysis.permutation]
        np.multiply(self._powers[0], terms[1], out=out)
        for power, term in zip(self._powers[1:], terms[2:], strict=True):
            out += term * power
        out[self._diagonal] += terms[0] * self._identity + added
        return out

    def values(self, coefficients: Floats, extra: Floats | None = None) -> Floats:
        """Values on ``analysis.pattern``, both triangles; shape (nnz,)."""
        lower = self.lower(coefficients, extra)
        full = np.empty(len(self.analysis._indices))
        full[self.analysis.lower_positions] = lower
        full[self.analysis.mirror_positions] = lower
        return full

    def traces(self, inverse: SelectedInverse, degree: int | None = None) -> Floats:
        """tr(Z S Δ^j S) for j = 0, ..., degree, for a selected inverse Z of the same analysis; shape (degree + 1,).

        Parameters
        ----------
        inverse : SelectedInverse
            Z.
        degree : int, optional
            Where to stop; by default the highest power.
        """
        if inverse.analysis is not self.analysis:
            faults = FaultList("no traces were computed")
            remedy = "Use the selected inverse of a factor of `analysis`."
            raise faults.raise_now("inverse", "must belong to the same analysis", "another", remedy)
        highest = self.degree if degree is None else degree
        return _traces(self.analysis._structure, inverse._panels, self._powers, self._identity, highest)

    def forms(self, x: Floats) -> tuple[Floats, Floats]:
        """XᵀS²X and XᵀSΔSX for x (n, k), whose rows are in the order of the factor; each of shape (k, k)."""
        columns = np.ascontiguousarray(x.T)
        plain, mixed = np.empty((len(columns), len(columns))), np.empty((len(columns), len(columns)))
        for a, one in enumerate(columns):
            for b, other in enumerate(columns[: a + 1]):
                found = _forms(self.analysis._structure, self._powers[0], self._identity, one, other)
                plain[a, b], mixed[a, b] = plain[b, a], mixed[b, a] = found
        return plain, mixed

    def pull_back(self, gradient: Floats) -> Floats:
        """Gradient in the coefficients, given that (nnz,) in the `values`; shape (degree + 1,)."""
        lower = gradient[self.analysis.lower_positions]
        other = gradient[self.analysis.mirror_positions]
        other[self._diagonal] = 0.0
        lower = lower + other
        own = float(lower[self._diagonal] @ self._identity)
        return np.concatenate([[own], self._powers @ lower])
