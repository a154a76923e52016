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

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from graphmatern.inference.moments.operator import LaplacianOperator
    from graphmatern.inference.moments.prior import NodePrior, PriorField
    from graphmatern.inference.moments.values import KernelValues
    from graphmatern.inference.observations import Group

    Floats = NDArray[np.float64]
    Longs = NDArray[np.int64]

__all__ = ["MomentProcess", "NodeConditioned", "NodeProcess", "ObservedNodes"]


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
        self.directions = np.zeros((1, 0))
        self._matrices = np.zeros((0, 0))

    def release(self) -> None:
        """Forget the blocks from which higher degrees would go on."""
        self._kept.clear()

    def make(self, operator: LaplacianOperator, degree: int, directions: Floats) -> None:
        """Compute moments up to a degree, and their combinations for values in the span of some directions."""
        if self._moments is None or len(self._moments) < degree + 1:
            self._moments = operator.products.moments(self.nodes, degree, self._moments, self._kept)
        flat = self._moments[: degree + 1].reshape(degree + 1, -1)
        self.directions = directions
        n = len(self.nodes)
        combined = ((directions.T @ coefficients_from_values(degree).T) @ flat).reshape(-1, n, n)
        for one in combined:  # what rounding spoils, strong sites would magnify
            one += one.T.copy()
            one *= 0.5
        self._matrices = operator.unscaled(combined, self.nodes).reshape(-1, n * n)

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
