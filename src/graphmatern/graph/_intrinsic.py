"""The Laplacian as the precision of functions that sum to zero in every connected component, exactly.

Δ has a null vector, the constant, in every component, so that Δ + D may be singular, or nearly so. It is factorised
with a pin: P = Δ + D + k eeᵀ, e a node of the component. The covariance of functions u with 1ᵀu = 0 follows from that
of P by a correction of rank two, first to condition on the sum, then to take the pin out again: with S = P⁻¹,
U = [1, e] and C = UᵀSU − diag(0, 1/k), it is S − SU C⁻¹ UᵀS, and det Zᵀ(Δ + D)Z, Z an orthonormal basis of the
functions that sum to zero, is −k det C det P / n. Components do not touch each other, so that two solutions serve all
of them. An isolated node is not a component in this sense: it has precision 1.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import scipy.linalg as la
import scipy.sparse as sp

from graphmatern.errors import NotPositiveDefiniteError
from graphmatern.graph._spectrum import Spectrum
from graphmatern.sparse import MatrixPolynomial

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from graphmatern.graph._graph import Graph
    from graphmatern.sparse import Analysis, Factor, SelectedInverse

    Floats = NDArray[np.float64]
    Longs = NDArray[np.int64]

__all__ = ["IntrinsicFactor", "IntrinsicStructure", "intrinsic_spectrum", "intrinsic_structure"]

_MOST_NEGATIVE = 500  # entries that are taken away one by one, where that is needed
_TERMS = np.array([0.0, 1.0])  # of the polynomial that is Δ


class IntrinsicStructure:
    """The Laplacian of a graph, with 1 for isolated nodes, and the components in which functions sum to zero.

    Parameters
    ----------
    graph : Graph
        The graph.
    n_threads : int, optional
        Threads that factorise.

    Attributes
    ----------
    isolated : ndarray of bool, shape (n_nodes,)
        Nodes without neighbours.
    polynomial : MatrixPolynomial
        Of the matrix, up to degree 1.
    """

    def __init__(self, graph: Graph, n_threads: int | None = None) -> None:
        self.n_nodes = graph.n_nodes
        sizes = np.bincount(graph.components)
        self.isolated = np.asarray(sizes[graph.components] == 1)
        matrix = sp.csr_array(graph.laplacian() + sp.diags_array(self.isolated.astype(float)))
        matrix.sort_indices()
        self.polynomial = MatrixPolynomial(matrix, 1, n_threads=n_threads, check=False)
        order = self.analysis.permutation
        self.rank = np.empty(graph.n_nodes, np.int64)
        self.rank[order] = np.arange(graph.n_nodes)
        # Components of more than one node, numbered anew; all isolated nodes share one number more, with weight 0.
        proper = np.cumsum(sizes > 1) - 1
        self.n_components = int((sizes > 1).sum())
        of_node = np.where(self.isolated, self.n_components, proper[graph.components])
        self.labels = of_node[order]  # in the order of the factor, like all below
        self.member = ~self.isolated[order]
        self.sizes = np.bincount(self.labels, minlength=self.n_components + 1)[: self.n_components].astype(float)
        degrees = graph.degrees[order]
        by_degree = np.argsort(degrees, kind="stable")
        self.pins = np.empty(self.n_components, np.int64)
        inside = by_degree[self.member[by_degree]]
        self.pins[self.labels[inside]] = inside  # the last one stays: a node of the largest degree
        self.strength = degrees[self.pins]
        self.component_of = graph.components

    @property
    def analysis(self) -> Analysis:
        """Analysis of the pattern."""
        return self.polynomial.analysis

    def sums(self, x: Floats) -> Floats:
        """Sums over components of a function in the order of the factor; shape (n_components,)."""
        total = np.bincount(self.labels, weights=x, minlength=self.n_components + 1)
        return np.asarray(total[: self.n_components], dtype=np.float64)

    def spread(self, values: Floats) -> Floats:
        """One value per component at each of its nodes, 0 at isolated ones, in the order of the factor; (n_nodes,)."""
        return np.append(values, 0.0)[self.labels]

    @cached_property
    def _without_sites(self) -> tuple[Floats, float]:
        """Marginal variances of functions with precision Δ, (n_nodes,), and the log-determinant of that."""
        factor = IntrinsicFactor(self)
        return factor.diagonal(), factor.log_determinant

    @property
    def variances(self) -> Floats:
        """Diagonal of the generalised inverse of Δ, 1 at isolated nodes; shape (n_nodes,)."""
        return self._without_sites[0]

    @property
    def log_determinant(self) -> float:
        """Logarithm of the product of the eigenvalues that are not zero."""
        return self._without_sites[1]

    @cached_property
    def scale(self) -> Floats:
        """Geometric mean of the marginal variances in the component of every node, 1 at isolated nodes; (n_nodes,)."""
        logs = np.log(self.variances)
        mean = np.bincount(self.component_of, weights=logs) / np.bincount(self.component_of)
        return np.asarray(np.exp(mean[self.component_of]))


class IntrinsicFactor:
    """Functions that sum to zero in every component, with precision Δ + diag(added).

    Parameters
    ----------
    structure : IntrinsicStructure
        Δ.
    added : ndarray, shape (n_nodes,), optional
        What is added to the diagonal, in the order of the factor; nothing by default.
    memory : IntrinsicFactor, optional
        One that is no longer needed, whose memory is used again.

    Raises
    ------
    NotPositiveDefiniteError
        Where negative entries outweigh the rest.
    """

    def __init__(
        self, structure: IntrinsicStructure, added: Floats | None = None, memory: IntrinsicFactor | None = None
    ) -> None:
        self._of = structure
        n = structure.n_nodes
        diagonal = np.zeros(n) if added is None else added
        self.factor: Factor
        self._inverse: SelectedInverse | None = None if memory is None else memory._inverse
        self._inverted = False
        self._more: Floats | None = None  # W, where the covariance is that of the factor plus WᵀW
        self._more_log_determinant = 0.0
        negative = np.flatnonzero(diagonal < 0.0)
        try:
            self.factor = self._pinned(diagonal, None if memory is None else memory.factor)
            negative = negative[:0]
        except NotPositiveDefiniteError:
            if not 0 < len(negative) <= _MOST_NEGATIVE:
                raise
            # The pinned matrix may be indefinite where functions that sum to zero still have a distribution.
            self.factor = self._pinned(np.maximum(diagonal, 0.0), None)
        # S1 and Se, each for all components at once.
        both = np.zeros((n, 2))
        both[:, 0] = structure.member
        both[structure.pins, 1] = 1.0
        self.factor.solve_ordered(both)
        self._by_sum, self._by_pin = np.ascontiguousarray(both[:, 0]), np.ascontiguousarray(both[:, 1])
        self._c11 = structure.sums(self._by_sum)
        self._c12 = self._by_sum[structure.pins]
        self._c22 = self._by_pin[structure.pins] - 1.0 / structure.strength
        # What the pin takes away from the precision of a function that sums to zero, and must not take all of it.
        self._minus_det = self._c12**2 - self._c11 * self._c22
        if not (self._minus_det > 0.0).all() or not (self._c11 > 0.0).all():
            raise NotPositiveDefiniteError("negative sites outweigh the prior", -1)
        if len(negative):
            self._take_away(negative, np.sqrt(-diagonal[negative]))

    def _pinned(self, added: Floats, factor: Factor | None) -> Factor:
        """Factor of P, in the memory of another where there is one."""
        polynomial, diagonal = self._of.polynomial, added.copy()
        diagonal[self._of.pins] += self._of.strength
        if factor is None:
            return polynomial.analysis.factorize_lower(polynomial.lower(_TERMS, diagonal, ordered=True))
        polynomial.lower(_TERMS, diagonal, out=factor.lower_values, ordered=True)
        factor.update_lower()
        return factor

    def _take_away(self, places: Longs, roots: Floats) -> None:
        """Take away squares from the precision at some places: Σ₊ + Σ₊T(I − TΣ₊T)⁻¹TΣ₊."""
        columns = np.zeros((self._of.n_nodes, len(places)))
        columns[places, np.arange(len(places))] = roots
        self.solve_ordered(columns)
        inner = np.eye(len(places)) - roots[:, None] * columns[places]
        try:
            lower = la.cholesky(0.5 * (inner + inner.T), lower=True)
        except la.LinAlgError:
            raise NotPositiveDefiniteError("negative sites outweigh the prior", -1) from None
        self._more = np.asarray(la.solve_triangular(lower, columns.T, lower=True))
        self._more_log_determinant = 2.0 * float(np.log(np.diag(lower)).sum())

    @property
    def log_determinant(self) -> float:
        """Log det ZᵀPZ, isolated nodes included."""
        own = np.log(self._of.strength * self._minus_det / self._of.sizes).sum()
        return float(self.factor.logdet() + own + self._more_log_determinant)

    def _correction(self, sums: Floats, pinned: Floats) -> tuple[Floats, Floats]:
        """C⁻¹ (sums, pinned), component by component."""
        c11, c12, c22, det = self._c11, self._c12, self._c22, -self._minus_det
        return (c22 * sums - c12 * pinned) / det, (c11 * pinned - c12 * sums) / det

    def _corrected(self, x: Floats) -> None:
        """Turn solutions with the pin into those that sum to zero, in place; shape (n_nodes, k)."""
        spread = self._of.spread
        for column in x.T:
            first, second = self._correction(self._of.sums(column), column[self._of.pins])
            column -= self._by_sum * spread(first) + self._by_pin * spread(second)

    def solve_ordered(self, x: Floats) -> None:
        """Covariance times some columns, in place, in the order of the factor; shape (n_nodes, k)."""
        more = None if self._more is None else self._more.T @ (self._more @ x)
        self.factor.solve_ordered(x)
        self._corrected(x)
        if more is not None:
            x += more

    def solve(self, b: Floats) -> Floats:
        """Covariance times some columns, in the order of the nodes; shape (n_nodes, k)."""
        x = b[self._of.analysis.permutation]
        self.solve_ordered(x)
        return np.asarray(x[self._of.rank])

    def diagonal_ordered(self) -> Floats:
        """Marginal variances in the order of the factor; shape (n_nodes,)."""
        if not self._inverted:
            self._inverse = self.factor.selected_inverse(self._inverse)
            self._inverted = True
        assert self._inverse is not None
        v, w = self._by_sum, self._by_pin
        spread, det = self._of.spread, -self._minus_det
        form = spread(self._c22 / det) * v * v - 2.0 * spread(self._c12 / det) * v * w + spread(self._c11 / det) * w * w
        found = np.asarray(self._inverse.diagonal_ordered() - form)
        return found if self._more is None else found + np.einsum("ij,ij->j", self._more, self._more)

    def diagonal(self) -> Floats:
        """Marginal variances; shape (n_nodes,)."""
        return np.asarray(self.diagonal_ordered()[self._of.rank])

    def draw(self, count: int, rng: np.random.Generator) -> Floats:
        """Random functions with this precision, in the order of the nodes; shape (n_nodes, count)."""
        structure, n = self._of, self._of.n_nodes
        x = self.factor.solve_upper(rng.standard_normal((n, count)))[structure.analysis.permutation]
        normal = rng.standard_normal((structure.n_components, count))
        # Given that the sum is zero, and then without the pin, which adds variance along one function.
        ratio = structure.spread(self._c12 / self._c11)
        along = self._by_pin - self._by_sum * ratio
        width = 1.0 / np.sqrt(self._minus_det / self._c11)
        for column, white in zip(x.T, normal.T, strict=True):
            column -= self._by_sum * structure.spread(structure.sums(column) / self._c11)
            column += along * structure.spread(width * white)
        if self._more is not None:
            x += self._more.T @ rng.standard_normal((len(self._more), count))
        return np.asarray(x[structure.rank])


def intrinsic_structure(graph: Graph, n_threads: int | None = None) -> IntrinsicStructure:
    """Return the `IntrinsicStructure` of a graph, made once and kept with it."""
    return graph.cached(("intrinsic", n_threads), lambda: IntrinsicStructure(graph, n_threads))


def intrinsic_spectrum(graph: Graph, n_eigenpairs: int | None = None) -> Spectrum:
    """Eigenpairs of the Laplacian scaled so that in each component the variances 1/λ give have geometric mean 1.

    An isolated node has eigenvalue 1; each other component has eigenvalue 0 once.
    """

    def compute() -> Spectrum:
        plain, structure = graph.spectrum(n_eigenpairs), intrinsic_structure(graph)
        home = np.abs(plain.eigenvectors).argmax(axis=0)  # eigenvectors live in one component each
        values = np.where(structure.isolated[home], 1.0, plain.eigenvalues * structure.scale[home])
        order = np.argsort(values, kind="stable")
        return Spectrum(values[order], plain.eigenvectors[:, order], False, None, plain.residuals[order])

    return graph.cached(("intrinsic spectrum", n_eigenpairs), compute)
