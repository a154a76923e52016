"""Smoothed features z = Φ(Δ) X at some nodes or at all of them, by Chebyshev products.

Over all lengthscales of a filter, Φ at the Chebyshev points is a combination of a dozen functions P_r that depend on
none: Φ = Σ a_r P_r. So one pass over the graph gives Y_r = P_r(Δ)[x, :] X at the observed nodes x, and from then on
inner products are zᵀz′ = Σ a_r a_s Y_r Y_sᵀ, exact, with exact derivatives in the lengthscale, for n × n numbers each.
A pass multiplies unit vectors of observed nodes, never features, which stay sparse.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from graphmatern.errors import NumericalError, ResourceError
from graphmatern.inference.moments.degrees import MOST_DEGREE, TOLERANCE, first_below
from graphmatern.inference.moments.operator import coefficients_from_values
from graphmatern.sparse import available_memory, format_bytes

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from graphmatern.inference.features.matrix import FeatureMatrix
    from graphmatern.inference.moments.operator import LaplacianOperator
    from graphmatern.kernels import FeatureKernel

    Floats = NDArray[np.float64]
    Longs = NDArray[np.int64]

__all__ = ["ObservedFeatures", "Smoother"]

_AHEAD = 2.5  # how many times longer lengthscales than are needed now are covered, as they will be needed soon
_SHORTEST, _GRID = 1e-2, 96  # lengthscales from which the functions P_r are found
_KEPT = 1e-12  # relative size of those that are left out
_ENTRIES_AT_ONCE = 2**25  # of a block of products
_ENTRIES_OF_PAIRS = 2**27  # of inner products that are kept


class Smoother:
    """Φ(Δ) as polynomials of a graph's Laplacian, for features.

    With node masses A, z = A^(−½) Φ(Δ) A^(½) X: features that are the same everywhere stay so.

    Parameters
    ----------
    operator : LaplacianOperator
        Polynomials of the Laplacian.
    matrix : FeatureMatrix
        X.
    """

    def __init__(self, operator: LaplacianOperator, matrix: FeatureMatrix) -> None:
        self.operator, self.matrix = operator, matrix
        self.n_nodes = operator.graph.n_nodes
        masses = operator.graph.masses
        self._root_mass = None if masses is None else np.sqrt(masses)

    def degree(self, kernel: FeatureKernel, smoothing: float, tolerance: float = TOLERANCE) -> int | None:
        """Degree that a lengthscale needs; None where it would be absurd."""

        def values(points: Floats) -> Floats:
            with torch.no_grad():
                return np.asarray(kernel.phi(torch.as_tensor(points), smoothing).numpy())

        for most in (64, 256, 1024, MOST_DEGREE):
            found = first_below(self.operator.truncation_errors(values, most), tolerance)
            if found is not None:
                return found
        return None

    def coefficients(self, kernel: FeatureKernel, smoothing: float, tolerance: float = TOLERANCE) -> Floats:
        """Chebyshev coefficients of Φ at a lengthscale; shape (degree + 1,)."""
        degree = self.degree(kernel, smoothing, tolerance)
        degree = MOST_DEGREE if degree is None else degree
        with torch.no_grad():
            values = kernel.phi(torch.as_tensor(self.operator.eigenvalues(degree)), smoothing).numpy()
        return np.asarray(coefficients_from_values(degree) @ values)

    @property
    def width(self) -> int:
        """How many columns go through the products at a time."""
        return int(np.clip(_ENTRIES_AT_ONCE // self.n_nodes, 32, 512))

    def filtered(self, nodes: Longs, coefficients: Floats) -> Floats:
        """A^(½) Σ c_k T_k A^(−½) at columns of some nodes, as features are averaged there; (n_sets, n_nodes, n)."""
        units = self.operator.units(nodes)
        if self._root_mass is None:
            return self.operator.products.polynomials(coefficients, units)
        found = self.operator.products.polynomials(coefficients, units / self._root_mass[:, None])
        return np.asarray(found * self._root_mass[:, None])

    def rows(self, nodes: Longs, coefficients: Floats) -> Floats:
        """Smoothed features of some nodes, each once, for several filters (degree + 1, n_sets); (n_sets, n, p)."""
        found = np.empty((coefficients.shape[1], len(nodes), self.matrix.n_features))
        for start in range(0, len(nodes), self.width):
            part = slice(start, start + self.width)
            for number, one in enumerate(self.filtered(nodes[part], coefficients)):
                found[number, part] = self.matrix.transposed_times(one).T
        return found

    def columns(self, start: int, stop: int, coefficients: Floats) -> Floats:
        """Some smoothed features of all nodes, for several filters; shape (n_sets, n_nodes, stop − start)."""
        return self.smooth(self.matrix.block(start, stop), coefficients)

    def smooth(self, columns: Floats, coefficients: Floats) -> Floats:
        """Smooth columns on all nodes by several filters; shape (n_sets, n_nodes, k)."""
        if self._root_mass is None:
            return self.operator.products.polynomials(coefficients, columns)
        scale = self._root_mass[:, None]
        return np.asarray(self.operator.products.polynomials(coefficients, scale * columns) / scale)


class ObservedFeatures:
    """Inner products of smoothed features between observed nodes, as a function of the filter's lengthscale.

    Parameters
    ----------
    smoother : Smoother
        Polynomials of the Laplacian, and the features.
    nodes : ndarray of int64, shape (n,)
        Observed nodes, each once.
    kernel : FeatureKernel
        Whose lengthscale moves.
    """

    def __init__(self, smoother: Smoother, nodes: Longs, kernel: FeatureKernel) -> None:
        self._smoother, self._nodes, self.kernel = smoother, nodes, kernel
        self._covered = 0.0
        self._directions = self._points = torch.zeros(0)
        self._pairs: torch.Tensor | None = None
        self._rows: torch.Tensor | None = None
        self.spread = smoother.matrix.spread(kernel.takes_differences)
        self.longest = self._longest()

    def _longest(self) -> float:
        """The longest lengthscale that polynomials of the highest degree can express."""
        low, high = -6.0, 14.0
        if self._smoother.degree(self.kernel, float(np.exp(high))) is not None:
            return float(np.exp(high))
        for _ in range(20):
            middle = 0.5 * (low + high)
            fits = self._smoother.degree(self.kernel, float(np.exp(middle))) is not None
            low, high = (middle, high) if fits else (low, middle)
        return float(np.exp(low))

    def _cover(self, smoothing: float) -> None:
        """Make ready for all lengthscales up to one, and somewhat longer ones."""
        if smoothing <= self._covered:
            return
        if smoothing > self.longest * (1.0 + 1e-9):
            raise NumericalError(
                f"smoothing={smoothing:.3g} needs polynomials of too high a degree on this graph. Likely causes: (a) a "
                "long lengthscale: bound it; (b) degrees over many orders of magnitude: use normalized=True."
            )
        self._covered = min(_AHEAD * smoothing, self.longest)
        degree = self._smoother.degree(self.kernel, self._covered)
        assert degree is not None
        points = torch.as_tensor(self._smoother.operator.eigenvalues(degree))
        grid = np.geomspace(min(_SHORTEST, smoothing), self._covered, _GRID)
        with torch.no_grad():
            values = np.stack([self.kernel.phi(points, float(one)).numpy() for one in grid], axis=1)
        left, sizes, _ = np.linalg.svd(values, full_matrices=False)
        directions = left[:, sizes > _KEPT * sizes[0]]
        self._points, self._directions = points, torch.from_numpy(directions.T.copy())
        self._multiply(coefficients_from_values(degree) @ directions)

    def _multiply(self, coefficients: Floats) -> None:
        """The pass over the graph: features of the observed nodes by all functions P_r, and their inner products."""
        n, count, smoother = len(self._nodes), coefficients.shape[1], self._smoother
        matrix = smoother.matrix
        few = min(matrix.n_features, smoother.n_nodes)
        pairs = count * (count + 1) // 2
        direct = pairs * n**2 > _ENTRIES_OF_PAIRS
        needed = 8.0 * n * count * (2 * matrix.n_features if direct else few + (count + 1) * n / 2)
        if needed > 0.7 * available_memory():
            raise ResourceError(
                f"smoothed features of {n:,} observed nodes need about {format_bytes(needed)} of memory, of "
                f"{format_bytes(available_memory())} available. Use fewer observations or fewer features."
            )
        self._pairs = self._rows = None
        if direct:
            self._rows = torch.from_numpy(smoother.rows(self._nodes, coefficients).reshape(count, -1))
            return
        # Y_r = L_r X with rows L_r of the filter: what has fewer columns is kept.
        if matrix.n_features <= smoother.n_nodes:
            left = smoother.rows(self._nodes, coefficients)
        else:
            left = np.empty((count, n, smoother.n_nodes))
            for start in range(0, n, smoother.width):
                part = slice(start, start + smoother.width)
                left[:, part] = smoother.filtered(self._nodes[part], coefficients).transpose(0, 2, 1)
        found = np.empty((pairs, n, n))
        place = 0
        for s in range(count):
            own = left[s].T
            right = own if matrix.n_features <= smoother.n_nodes else matrix.times(matrix.transposed_times(own))
            for r in range(s + 1):
                product = left[r] @ right
                found[place] = 0.5 * (product + product.T) if r == s else product + product.T
                place += 1
        self._pairs = torch.from_numpy(found.reshape(pairs, -1))

    def inner(self) -> torch.Tensor:
        """zᵀz′ between the observed nodes, differentiable in the kernel's parameters; shape (n, n)."""
        n = len(self._nodes)
        self._cover(float(self.kernel.smoothing.item()))
        weights = self._directions @ self.kernel.phi(self._points)
        if self._rows is not None:
            features = (weights @ self._rows).reshape(n, -1)
            return features @ features.T
        assert self._pairs is not None
        count = len(weights)
        first, second = np.tril_indices(count)
        return ((weights[first] * weights[second]) @ self._pairs).reshape(n, n)
