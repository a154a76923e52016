"""Smoothed features z = Φ(Δ) X, for many nodes or features at a time and several lengthscales at once.

Two ways lead there. Lanczos' method smooths with any filter on any graph. The Matérn filter is the solution of
(I + ½ κ²Δ) z = x, which sparse factors give far sooner where the graph does not fill in, for lengthscales of any size.
With node masses A, z = A^(−½) Φ(Δ) A^(½) X: features that are the same everywhere stay so.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from scipy.sparse import csc_array, eye_array

from graphmatern.inference.markov.cost import sparse_cost
from graphmatern.inference.moments.degrees import MOST_DEGREE, first_below
from graphmatern.inference.moments.operator import laplacian_operator
from graphmatern.sparse import KrylovRows, analyze, apply_functions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from graphmatern.inference.learning.problem import Problem
    from graphmatern.inference.moments.operator import LaplacianOperator
    from graphmatern.kernels import FeatureKernel
    from graphmatern.sparse import Analysis

    Floats = NDArray[np.float64]
    Longs = NDArray[np.int64]

__all__ = ["FactorSmoother", "KrylovSmoother", "Smoother", "smoother_for"]

_TOLERANCE = 1e-10  # of Φ, which is at most 1
_MOST_STEPS = 2 * MOST_DEGREE  # rounding makes some of them superfluous
_ENTRIES_AT_ONCE = 2**25  # of a block of columns
_SEEN = 0.5  # Φ at the smallest of some eigenvalues, where it is 1 at 0
_LONGEST = 1e6  # lengthscale, where nothing else limits it
_PER_ENTRY = 4.0  # cost of an entry of a factor, solved with twice, relative to one of the Laplacian in a product
_TYPICAL_DEGREE = 100
# Cost of an entry of the features in a product, relative to one of the Laplacian; and the same of narrow ones.
_PER_FEATURE, _PER_NARROW = 2.0, 0.3
_SOON = 1.0  # seconds of a factorisation


def smoother_for(problem: Problem, kernel: FeatureKernel) -> Smoother:
    """The way to smooth that takes less on a problem's graph."""
    assert problem.features is not None
    if kernel.filter == "matern":
        cost = sparse_cost(problem, 1)
        products = _TYPICAL_DEGREE * (2 * problem.graph.n_edges + problem.graph.n_nodes)
        if cost is not None and cost.seconds < _SOON and _PER_ENTRY * cost.nnz_factor < products:
            return FactorSmoother(problem, kernel)
    return KrylovSmoother(problem, kernel)


class Smoother(ABC):
    """Φ(Δ) of one kernel's filter, at any lengthscales.

    Parameters
    ----------
    problem : Problem
        With the graph and the features.
    kernel : FeatureKernel
        Which filter.

    Attributes
    ----------
    high : float
        A bound on the Laplacian's eigenvalues.
    longest : float
        The longest lengthscale that can be used.
    shorter, longer : float
        How many times shorter and longer lengthscales than are needed now should be made ready for.
    """

    longest: float = _LONGEST
    shorter: ClassVar[float] = 12.0
    longer: ClassVar[float] = 12.0

    def __init__(self, problem: Problem, kernel: FeatureKernel) -> None:
        assert problem.features is not None
        self._kernel, self.matrix, self.graph = kernel, problem.features, problem.graph
        self.n_nodes, self.normalized = problem.graph.n_nodes, bool(problem.normalized)
        self._operator: LaplacianOperator = laplacian_operator(
            problem.graph, self.normalized, problem.n_threads, problem.device, problem.dtype
        )
        self.high = self._operator.high
        masses = problem.graph.masses
        self._root_mass = None if masses is None else np.sqrt(masses)[:, None]

    @abstractmethod
    def _filtered(self, columns: Floats, smoothings: Sequence[float]) -> Floats:
        """Φ(Δ) V for several lengthscales; shape (n_smoothings, n_nodes, k)."""

    @property
    def width(self) -> int:
        """How many columns are smoothed at a time."""
        return int(np.clip(_ENTRIES_AT_ONCE // self.n_nodes, 32, 512))

    def smooth(self, columns: Floats, smoothings: Sequence[float]) -> Floats:
        """Smoothed columns on all nodes; shape (n_smoothings, n_nodes, k)."""
        if self._root_mass is None:
            return self._filtered(columns, smoothings)
        return np.asarray(self._filtered(self._root_mass * columns, smoothings) / self._root_mass)

    def weights(self, nodes: Longs, smoothings: Sequence[float]) -> Floats:
        """With which weights features of all nodes are averaged at some nodes; (n_smoothings, n_nodes, n)."""
        units = self._operator.rows.units(nodes)
        if self._root_mass is None:
            return self._filtered(units, smoothings)
        return np.asarray(self._filtered(units / self._root_mass, smoothings) * self._root_mass)

    def rows(self, nodes: Longs, smoothings: Sequence[float]) -> Floats:
        """Smoothed features of some nodes, each once; shape (n_smoothings, n, n_features)."""
        found = np.empty((len(smoothings), len(nodes), self.matrix.n_features))
        width = max(32, self.width // len(smoothings))
        for start in range(0, len(nodes), width):
            part = slice(start, start + width)
            for number, one in enumerate(self.weights(nodes[part], smoothings)):
                found[number, part] = self.matrix.transposed_times(one).T
        return found


class KrylovSmoother(Smoother):
    """Any filter on any graph, by products; all lengthscales share them."""

    shorter, longer = 8.0, 4.0  # longer ones take more products

    def __init__(self, problem: Problem, kernel: FeatureKernel) -> None:
        super().__init__(problem, kernel)
        self.longest = self._longest()

    def _degree(self, smoothing: float) -> int | None:
        """Degree that a lengthscale needs; None where it would be absurd."""

        def values(points: Floats) -> Floats:
            with torch.no_grad():
                return np.asarray(self._kernel.phi(torch.as_tensor(points), smoothing).numpy())

        for most in (64, 256, 1024, MOST_DEGREE):
            if values(self._operator.eigenvalues(2 * most + 1)[-1:])[0] < _SEEN:
                continue  # between the points Φ falls from 1 to nearly 0, which they do not see
            found = first_below(self._operator.truncation_errors(values, most), _TOLERANCE)
            if found is not None:
                return found
        return None

    def _longest(self) -> float:
        low, high = np.log(1e-3), np.log(_LONGEST)
        if self._degree(_LONGEST) is not None:
            return _LONGEST
        for _ in range(20):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if self._degree(float(np.exp(middle))) is not None else (low, middle)
        return float(np.exp(low))

    def _functions(self, eigenvalues: Floats, smoothings: Sequence[float]) -> Floats:
        """Φ at some lengthscales, for eigenvalues of S; shape (n_smoothings, m)."""
        points = torch.as_tensor(0.5 * self.high * (1.0 + eigenvalues))
        with torch.no_grad():
            return np.stack([self._kernel.phi(points, one).numpy() for one in smoothings])

    def _filtered(self, columns: Floats, smoothings: Sequence[float]) -> Floats:
        every = partial(self._functions, smoothings=smoothings)
        slowest = partial(self._functions, smoothings=[max(smoothings)])
        return apply_functions(self._operator.products, every, slowest, columns, _TOLERANCE, _MOST_STEPS)

    def rows(self, nodes: Longs, smoothings: Sequence[float]) -> Floats:
        """Smoothed features of some nodes; all lengthscales share products, of which only these features are kept."""
        matrix, products = self.matrix, self._operator.products
        per_feature = _PER_NARROW if matrix.narrow and matrix.sparse else _PER_FEATURE
        by_node = len(nodes) * (products.nnz + per_feature * matrix.n_entries) < matrix.n_features * products.nnz
        root = np.ones((1, 1)) if self._root_mass is None else self._root_mass
        own = root[nodes] if len(root) > 1 else root

        def columns(part: slice) -> Floats:
            return products.rows.units(nodes[part]) if by_node else root * matrix.block(part.start, part.stop)

        def take(block: Any) -> Floats:
            if not by_node:
                return products.taken(block, nodes) / own
            numbers = products.numbers(block)
            return matrix.transposed_times(numbers if self._root_mass is None else root * numbers)

        rows = KrylovRows(products, len(nodes) if by_node else matrix.n_features, columns, take)
        rows.settle(partial(self._functions, smoothings=[max(smoothings)]), _TOLERANCE, _MOST_STEPS)
        found = rows.of(partial(self._functions, smoothings=smoothings))
        return found.transpose(0, 2, 1) / own if by_node else found


class FactorSmoother(Smoother):
    """The Matérn filter by sparse factors, one for each lengthscale."""

    def __init__(self, problem: Problem, kernel: FeatureKernel) -> None:
        super().__init__(problem, kernel)
        self._identity = csc_array(eye_array(self.n_nodes))
        self._laplacian = csc_array(problem.graph.laplacian(self.normalized))
        n_threads = problem.n_threads

        def make() -> Analysis:
            return analyze(self._matrix(1.0), n_threads=n_threads)

        self._analysis: Analysis = problem.graph.cached(("smoothing", self.normalized, n_threads), make)

    def _matrix(self, smoothing: float) -> Any:
        return csc_array(self._identity + 0.5 * smoothing**2 * self._laplacian)

    def _filtered(self, columns: Floats, smoothings: Sequence[float]) -> Floats:
        found = np.empty((len(smoothings), *columns.shape))
        for place, one in enumerate(smoothings):
            found[place] = self._analysis.factorize(self._matrix(one).data).solve(columns)
        return found
