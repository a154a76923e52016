"""Processes given by their covariance at the observed nodes, a sum of matrices that depend on no parameter."""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from graphmatern.inference.dense import CovarianceConditioned
from graphmatern.inference.moments.operator import coefficients_from_values
from graphmatern.inference.moments.predictive import MomentPredictive
from graphmatern.inference.observations import sum_by_node
from graphmatern.inference.process import Process
from graphmatern.sparse import KrylovRows, kept_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from graphmatern.inference.moments.operator import LaplacianOperator
    from graphmatern.inference.moments.prior import NodePrior, PriorField
    from graphmatern.inference.moments.values import KernelValues
    from graphmatern.inference.observations import Group
    from graphmatern.sparse import ChebyshevProducts

    Floats = NDArray[np.float64]
    Longs = NDArray[np.int64]

__all__ = ["MomentProcess", "NodeConditioned", "NodeProcess", "ObservedNodes"]


_AMPLE = 0.1  # times the tolerance


class ObservedNodes:
    """The distinct observed nodes of all groups, and combinations of moments between them.

    Parameters
    ----------
    groups : list of Group
        The observations.
    """

    def __init__(self, groups: Sequence[Group]) -> None:
        self.nodes, place = np.unique(np.concatenate([group.nodes for group in groups]), return_inverse=True)
        ends = np.cumsum([len(group.nodes) for group in groups])
        self.places = np.split(place, ends[:-1])
        self._moments: Floats | None = None
        self._kept: dict[int, tuple[Floats, Floats]] = {}
        self._rows: KrylovRows | None = None
        self.directions = np.zeros((1, 0))
        self._matrices = np.zeros((0, 0))

    def release(self) -> None:
        """Forget the blocks from which higher degrees would go on."""
        self._kept.clear()
        if self._rows is not None:
            self._rows.release()

    def make(
        self,
        operator: LaplacianOperator,
        degree: int,
        directions: Floats,
        function: Callable[[Floats], Floats],
        tolerance: float,
    ) -> None:
        """Compute moments up to a degree, and their combinations for values in the span of some directions.

        Parameters
        ----------
        operator : LaplacianOperator
            Products with the Laplacian.
        degree : int
            Of polynomials.
        directions : ndarray, shape (degree + 1, n_directions)
            In which values at the Chebyshev points vary.
        function : callable
            The kernel's function of eigenvalues of S, shape (m,) → (1, m), relative to its largest value. Where the
            degree is so high that fewer products may do, there are as many as this one needs.
        tolerance : float
            Of K, relative in spectral norm.
        """
        self.directions = directions
        n, coefficients = len(self.nodes), coefficients_from_values(degree) @ directions
        if operator.products.may_settle(degree):
            combined = self._settled(operator.products, coefficients, function, tolerance)
        else:
            if self._moments is None or len(self._moments) < degree + 1:
                self._moments = operator.products.moments(self.nodes, degree, self._moments, self._kept)
            combined = (coefficients.T @ self._moments[: degree + 1].reshape(degree + 1, -1)).reshape(-1, n, n)
        for one in combined:  # what rounding spoils, strong sites would magnify
            one += one.T.copy()
            one *= 0.5
        self._matrices = operator.unscaled(combined, self.nodes).reshape(-1, n * n)

    def _settled(
        self,
        products: ChebyshevProducts,
        coefficients: Floats,
        function: Callable[[Floats], Floats],
        tolerance: float,
    ) -> Floats:
        """Combinations by Lanczos' method; shape (n_directions, n, n)."""
        n, degree = len(self.nodes), len(coefficients) - 1

        def units(part: slice) -> Floats:
            return products.rows.units(self.nodes[part])

        def functions(eigenvalues: Floats) -> Floats:
            return np.asarray(coefficients.T @ np.cos(np.arange(degree + 1)[:, None] * np.arccos(eigenvalues)))

        if self._rows is None:
            self._moments = None
            keep = kept_bytes(products.n, n) > 0.0
            self._rows = KrylovRows(products, n, units, lambda block: products.taken(block, self.nodes), keep=keep)
        # More than is needed now, as it will be needed soon.
        self._rows.settle(function, _AMPLE * tolerance, 2 * degree)
        return self._rows.of(functions)

    @property
    def by_lanczos(self) -> bool:
        """Whether Lanczos' method is used."""
        return self._rows is not None

    def serves(self, function: Callable[[Floats], Floats], tolerance: float) -> bool:
        """Whether the vectors that Lanczos' method has made are enough for a kernel's function; see `make`."""
        return self._rows is not None and self._rows.serves(function, tolerance)

    def covariance(self, values: Floats) -> Floats:
        """K between the distinct nodes, for values at the Chebyshev points; shape (n, n)."""
        n = len(self.nodes)
        return np.asarray(((values @ self.directions) @ self._matrices).reshape(n, n))

    def pull_back(self, change: Floats) -> Floats:
        """Derivatives in the values, from those in K; shape (degree + 1,)."""
        return np.asarray(self.directions @ (self._matrices @ change.ravel()))


class NodeProcess(Process):
    """A process given by its covariance at the distinct observed nodes.

    Parameters
    ----------
    observed : ObservedNodes
        The observed nodes.
    groups : sequence of Group
        The observations.
    covariance : ndarray, shape (n_distinct, n_distinct)
        K there.
    prior : callable
        Makes the process on all nodes, for predictions.
    """

    def __init__(
        self, observed: ObservedNodes, groups: Sequence[Group], covariance: Floats, prior: Callable[[], NodePrior]
    ) -> None:
        self.observed, self.groups, self.node_covariance = observed, groups, covariance
        self._make_prior = prior

    def condition(self, group: int, precision: Floats) -> NodeConditioned:
        """Put sites on a group; see `Process.condition`."""
        return NodeConditioned(self, group, precision)

    def covariance(self, group: int) -> Floats:
        """K at the observations of a group; shape (n, n)."""
        place = self.observed.places[group]
        if np.array_equal(place, np.arange(len(self.node_covariance))):
            return self.node_covariance
        return self.node_covariance[np.ix_(place, place)]

    @cached_property
    def prior(self) -> NodePrior:
        """The process on all nodes."""
        return self._make_prior()

    def predictive(self, group: int, precision: Floats) -> MomentPredictive:
        """Return the process at any node; see `Process.predictive`."""
        return MomentPredictive(self.prior, self.condition(group, precision))

    def pull_back(self, group: int, change: Floats) -> Floats:
        """Derivatives in the engine's coordinates, from those in K at a group's observations; shape (n_free,)."""
        n, place = len(self.observed.nodes), self.observed.places[group]
        return self.pull_back_nodes(sum_by_node(place, sum_by_node(place, change, n).T, n))

    @abstractmethod
    def pull_back_nodes(self, change: Floats) -> Floats:
        """The same from derivatives in `node_covariance`."""


class MomentProcess(NodeProcess):
    """A process at given values of the kernel's function.

    Parameters
    ----------
    observed : ObservedNodes
        The observed nodes.
    groups : sequence of Group
        The observations.
    values : KernelValues
        The kernel's function at the Chebyshev points.
    prior : callable
        Makes the process on all nodes, for predictions.
    """

    def __init__(
        self,
        observed: ObservedNodes,
        groups: Sequence[Group],
        values: KernelValues,
        prior: Callable[[], PriorField],
    ) -> None:
        super().__init__(observed, groups, observed.covariance(values.numbers), prior)
        self._values = values

    def pull_back_nodes(self, change: Floats) -> Floats:
        """Derivatives in the kernel's free parameters, from those in K between the nodes; shape (n_free,)."""
        return self._values.pull_back(self.observed.pull_back(change))


class NodeConditioned(CovarianceConditioned):
    """Through K at the observations."""

    def __init__(self, process: NodeProcess, group: int, precision: Floats) -> None:
        self._process, self._number = process, group
        super().__init__(process.groups[group], precision, process.covariance(group))

    def pull_back(self, change: Floats) -> Floats:
        """Derivatives in the engine's coordinates, from those in K."""
        return self._process.pull_back(self._number, change)
