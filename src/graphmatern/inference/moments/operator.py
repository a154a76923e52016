"""A Laplacian as a source of Chebyshev polynomials: its range, its products, its traces.

A kernel a Ψ(Δ) is replaced by the polynomial that interpolates it at Chebyshev points, which stand in for eigenvalues:
it is linear in the values w = a Ψ(λ) there, so K = Σ w P with matrices P that depend on no parameter.
"""

from __future__ import annotations

import copy
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy
import torch
from scipy.sparse import csr_array, eye_array

from graphmatern.graph import largest_eigenvalue_bound
from graphmatern.inference.moments.device import DeviceProducts
from graphmatern.sparse import ChebyshevProducts, cubed_diagonal

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from graphmatern.graph import Graph
    from graphmatern.sparse import Rows

    Floats = NDArray[np.float64]
    Longs = NDArray[np.int64]

__all__ = ["LaplacianOperator", "chebyshev_points", "coefficients_from_values", "laplacian_operator"]

_EXACT_NODES = 2_000  # up to here, traces come from all eigenpairs
_PROBES = 32  # for traces of larger graphs
_DEGREES = 32  # by which degrees of traces are raised
_PAIRS = 200  # of entries, for each entry, that may be looked at for triangles
_SEED = 20210413


def chebyshev_points(degree: int) -> Floats:
    """Points in [−1, 1], from 1 to −1, at which a polynomial of a degree interpolates; shape (degree + 1,)."""
    return np.cos(np.pi * (np.arange(degree + 1) + 0.5) / (degree + 1))


@lru_cache(maxsize=8)
def coefficients_from_values(degree: int) -> Floats:
    """Matrix from values at `chebyshev_points` to coefficients of T_0, T_1, …; shape (degree + 1, degree + 1)."""
    k = np.arange(degree + 1)
    matrix = (2.0 / (degree + 1)) * np.cos(np.pi * np.outer(k, k + 0.5) / (degree + 1))
    matrix[0] *= 0.5
    return np.asarray(matrix)


def laplacian_operator(
    graph: Graph, normalized: bool, n_threads: int | None = None, device: str = "cpu", dtype: str = "float64"
) -> LaplacianOperator:
    """The operator of a graph's Laplacian, made once and kept with the graph."""

    def make() -> LaplacianOperator:
        def products(matrix: csr_array[Any], low: float, high: float) -> ChebyshevProducts:
            if device == "cpu" and dtype == "float64":
                return ChebyshevProducts(matrix, low, high, n_threads)
            return DeviceProducts(matrix, low, high, torch.device(device), getattr(torch, dtype))

        return LaplacianOperator(graph, normalized=normalized, products=products)

    return graph.cached(("moments", normalized, n_threads, device, dtype), make)


class LaplacianOperator:
    """Chebyshev polynomials of one of a graph's Laplacians, node masses included.

    Parameters
    ----------
    graph : Graph
        The graph.
    normalized : bool
        Which Laplacian.
    products : callable
        Makes what multiplies, from a matrix and bounds on its eigenvalues.
    """

    def __init__(
        self,
        graph: Graph,
        *,
        normalized: bool,
        products: Callable[[csr_array[Any], float, float], ChebyshevProducts] = ChebyshevProducts,
    ) -> None:
        laplacian = graph.laplacian(normalized)
        self.graph, self.normalized = graph, normalized
        self.high = _largest_eigenvalue(graph, normalized)
        self.products = products(laplacian, 0.0, self.high)
        self._begin()

    def _begin(self) -> None:
        """Nothing was computed yet."""
        graph = self.graph
        self._root_mass = None if graph.masses is None else np.sqrt(graph.masses)
        self._norms: dict[int, Floats] = {}
        self._traces: tuple[Floats, Floats] | None = None
        self._estimates: Floats | None = None  # of traces, from each probe, and blocks to go on from
        self._kept: dict[int, tuple[Any, Any]] = {}

    @cached_property
    def single(self) -> LaplacianOperator:
        """The same with products in single precision, where that is faster."""
        twin = copy.copy(self)
        twin.products = self.products.single
        return twin

    @property
    def rows(self) -> Rows:
        """Who holds which nodes; where that is not all in one place, arguments and results are of those here."""
        return self.products.rows

    def eigenvalues(self, degree: int) -> Floats:
        """Chebyshev points in the range of the Laplacian's eigenvalues; shape (degree + 1,)."""
        return np.asarray(0.5 * self.high * (1.0 + chebyshev_points(degree)))

    def squared_norms(self, degree: int) -> Floats:
        """What stands in for the squared norms of eigenvectors at the Chebyshev points: traces, spread over them.

        Returns
        -------
        ndarray, shape (degree + 1,)
        """
        if degree not in self._norms:
            self._norms[degree] = np.asarray(coefficients_from_values(degree).T @ self.traces(degree)[0])
        return self._norms[degree]

    def truncation_errors(self, function: Callable[[Floats], Floats], most: int) -> Floats:
        """Largest error of the polynomial of each degree up to ``most``, relative to the function's largest value.

        Parameters
        ----------
        function : callable
            From eigenvalues, shape (n,), to values, shape (..., n); of several functions the worst counts.
        most : int
            The highest degree.

        Returns
        -------
        ndarray, shape (most + 1,)
        """
        finer = 2 * most + 1
        values = function(self.eigenvalues(finer)).reshape(-1, finer + 1)
        sizes = np.abs(scipy.fft.dct(values)) / (finer + 1)  # the first is twice what it should be, and is not used
        tails = np.cumsum(sizes[:, ::-1], axis=1)[:, ::-1][:, 1 : most + 2]
        return np.asarray((tails / np.abs(values).max(axis=1, keepdims=True)).max(axis=0))

    def pointwise_error(self, function: Callable[[Floats], Floats], degree: int) -> float:
        """Largest error of the polynomial of a degree, relative to the function at the same or the average eigenvalue.

        Parameters
        ----------
        function : callable
            From eigenvalues, shape (n,), to values, shape (n,).
        degree : int
            Of the polynomial.
        """
        finer = 4 * degree + 3
        values = function(np.concatenate([self.eigenvalues(degree), self.eigenvalues(finer), [self._average]]))
        known, exact, typical = np.split(values, [degree + 1, degree + finer + 2])
        coefficients = np.zeros(finer + 1)
        coefficients[: degree + 1] = scipy.fft.dct(known) / (degree + 1)
        coefficients[0] *= 0.5
        found = scipy.fft.dct(0.5 * coefficients, type=3) + 0.5 * coefficients[0]
        return float((np.abs(found - exact) / (np.abs(exact) + np.abs(typical))).max())

    @cached_property
    def _average(self) -> float:
        """The average eigenvalue."""
        return float(0.5 * self.high * (1.0 + self.rows.total(float(self.products.diagonal.sum())) / self.rows.n))

    def leading(self, coefficients: Floats, share: float) -> Floats:
        """As many coefficients as leave out no more than a share of the average prior variance."""
        average = abs(float(coefficients @ self.traces(len(coefficients) - 1)[0])) / self.rows.n
        left_out = np.append(np.cumsum(np.abs(coefficients[::-1]))[::-1][1:], 0.0)
        return coefficients[: 1 + int(np.argmax(left_out <= share * average))]

    def unscaled(self, matrices: Floats, nodes: Longs) -> Floats:
        """A^(−½) X A^(−½) for matrices between some nodes; shape (..., n, n)."""
        if self._root_mass is None:
            return matrices
        scale = self._root_mass[nodes]
        return np.asarray(matrices / scale / scale[:, None])

    def apply(self, coefficients: Floats, columns: Floats) -> Floats:
        """A^(−½) Σ c_k T_k(S) A^(−½) V on all nodes; shape as ``columns``, (n_nodes, k)."""
        if self._root_mass is None:
            return self.products.apply(coefficients, columns)
        scale = self._root_mass[:, None]
        if isinstance(columns, torch.Tensor):
            scale = self.products.block(scale)
        return self.products.apply(coefficients, columns / scale) / scale

    def polynomials(self, coefficients: Floats, columns: Floats) -> Floats:
        """`apply` for several polynomials at once, coefficients (degree + 1, n_sets); shape (n_sets, n_nodes, k)."""
        if self._root_mass is None:
            return self.products.polynomials(coefficients, columns)
        scale = self._root_mass[:, None]
        return np.asarray(self.products.polynomials(coefficients, columns / scale) / scale)

    def apply_root(self, coefficients: Floats, columns: Floats) -> Floats:
        """A^(−½) Σ c_k T_k(S) V: draws of a process, from white noise, for coefficients of a square root."""
        found = self.products.apply(coefficients, columns)
        return found if self._root_mass is None else np.asarray(found / self._root_mass[:, None])

    def row_squares(self, nodes: Longs, coefficients: Floats, columns: Floats) -> Floats:
        """Sums of the squares of every row of A^(−½) Σ c_k T_k(S) A^(−½) V, V at some nodes; shape (n_nodes,)."""
        if self._root_mass is None:
            return self.products.row_squares(nodes, coefficients, columns)
        found = self.products.row_squares(nodes, coefficients, columns / self._root_mass[nodes][:, None])
        return np.asarray(found / self._root_mass**2)

    def between(self, nodes: Longs, coefficients: Floats, columns: Floats) -> Floats:
        """A^(−½) Σ c_k T_k(S) A^(−½) between some nodes, each once, times columns; shape (n_sets, n, k).

        ``coefficients`` has a column for each set, shape (degree + 1, n_sets).
        """
        if self._root_mass is None:
            return self.products.between(nodes, coefficients, columns)
        scale = self._root_mass[nodes][:, None]
        return np.asarray(self.products.between(nodes, coefficients, columns / scale) / scale)

    def forms(self, nodes: Longs, left: Floats, right: Floats, degree: int) -> Floats:
        """Forms uᵀ A^(−½) T_k(S) A^(−½) v between some nodes, for pairs of columns; shape (degree + 1, k)."""
        if self._root_mass is None:
            return self.products.forms(nodes, left, right, degree)
        scale = self._root_mass[nodes][:, None]
        return self.products.forms(nodes, left / scale, right / scale, degree)

    @cached_property
    def null_vectors(self) -> Floats:
        """The vector that the Laplacian maps to 0, of length 1 within each connected component; shape (n_nodes,)."""
        graph = self.graph
        if self.normalized:
            vector = np.sqrt(graph.degrees)
            vector[graph.degrees == 0.0] = 1.0  # an isolated node
        else:
            vector = np.ones(self.rows.n_here) if self._root_mass is None else self._root_mass
        squares: Floats = np.bincount(graph.components, weights=vector**2).astype(np.float64)
        lengths = np.sqrt(self.rows.across(squares[:, None])[:, 0])
        return np.asarray(vector / lengths[graph.components])

    @cached_property
    def null_basis(self) -> csr_array[Any]:
        """Null vectors as columns, one for each connected component that is here; shape (n_nodes, n_components)."""
        components, n = self.graph.components, self.rows.n_here
        entries = self.null_vectors, components, np.arange(n + 1)
        return csr_array(entries, shape=(n, int(components.max(initial=-1)) + 1))

    def along_null(self, columns: Floats) -> Floats:
        """The projection of columns, or of a block, on what the Laplacian maps to 0; shape (n_nodes, k)."""
        if isinstance(self.products, DeviceProducts) and isinstance(columns, torch.Tensor):
            return self.products.along(self.null_vectors, self.graph.components, columns)
        return np.asarray(self.null_basis @ self.rows.across(self.null_basis.T @ columns))

    @cached_property
    def cubed_diagonal(self) -> Floats | None:
        """The diagonal of S³; None where it is not known, or would take longer than a few probes. Shape (n_nodes,)."""
        if not self.rows.whole:
            return None
        laplacian = self.graph.laplacian(self.normalized)
        half = 0.5 * self.high
        scaled = csr_array((laplacian - half * eye_array(self.rows.n, format="csr")) / half)
        return cubed_diagonal(scaled, _PAIRS * laplacian.nnz)

    @cached_property
    def exact_traces(self) -> bool:
        """Whether traces are exact rather than estimated."""
        return self.rows.n <= _EXACT_NODES

    def traces(self, degree: int) -> tuple[Floats, Floats]:
        """Tr A^(−1) T_k(S) for k up to a degree, and deviations of single estimates from it.

        Returns
        -------
        traces : ndarray, shape (degree + 1,)
        deviations : ndarray, shape (degree + 1, n_probes)
            Zero where traces are exact.
        """
        if self._traces is None or len(self._traces[0]) <= degree:
            most = _DEGREES * -(-degree // _DEGREES)  # a little more than is needed now will be needed soon
            self._traces = self._exact(most) if self.exact_traces else self._estimated(most)
        return self._traces[0][: degree + 1], self._traces[1][: degree + 1]

    def _exact(self, degree: int) -> tuple[Floats, Floats]:
        spectrum = self.graph.spectrum(normalized=self.normalized)
        angles = np.arccos(np.clip(2.0 * spectrum.eigenvalues / (self.high or 1.0) - 1.0, -1.0, 1.0))
        traces = np.cos(np.outer(np.arange(degree + 1), angles)) @ spectrum.squared_norms
        return traces, np.zeros((degree + 1, 1))

    def _estimated(self, degree: int) -> tuple[Floats, Floats]:
        rows = self.rows
        probes = rows.signs(_PROBES, _SEED)
        weights = None if self.graph.masses is None else 1.0 / self.graph.masses
        # In double precision, though probes differ by far more: results must not depend on who multiplies.
        self._estimates = self.products.traces(weights, degree, probes, self._estimates, self._kept)
        inverse_mass = np.ones(rows.n_here) if weights is None else weights
        found = self._estimates.copy()
        found[0] = rows.total(float(inverse_mass.sum()))
        # Traces of S, S² and the projection on null vectors are known. Where probes get these wrong, they get others
        # wrong as well: smooth kernels are small differences of large traces, and no error must be mended alone.
        along = rows.dots(probes, self.along_null(inverse_mass[:, None] * probes))
        squares = self.products.diagonal, self.products.squared_diagonal, self.null_vectors**2
        known = rows.total(np.stack(squares) @ inverse_mass)[:, None]
        controls = np.stack([found[1], 0.5 * (found[2] + found[0]), along]) - known
        away = controls - controls.mean(axis=1, keepdims=True)
        slopes = np.linalg.lstsq(away.T, (found - found.mean(axis=1, keepdims=True)).T, rcond=1e-10)[0]
        found -= slopes.T @ controls
        traces = found.mean(axis=1)
        used = np.sqrt((_PROBES - 1) / (_PROBES - 1 - len(controls)))  # by as many slopes
        return traces, used * (found - traces[:, None])


def _largest_eigenvalue(graph: Graph, normalized: bool) -> float:
    """A close upper bound on the Laplacian's eigenvalues."""
    bound = largest_eigenvalue_bound(graph.laplacian(normalized))
    if normalized:
        return min(bound, 2.0) or 1.0
    if graph.masses is None and graph.n_edges:
        # No eigenvalue of D − W exceeds the largest sum of the degrees of two neighbours (Anderson and Morley 1985).
        rows = np.repeat(np.arange(graph.n_nodes), np.diff(graph.weights.indptr))
        bound = min(bound, float((graph.degrees[rows] + graph.degrees[graph.weights.indices]).max()))
    return bound or 1.0
