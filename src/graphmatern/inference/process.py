"""The seam between likelihoods and engines: a latent process under Gaussian sites.

A process f ~ N(0, K) on the nodes has sites exp(p f(x) − ½ η f(x)²) at observed nodes x, with precisions η and
potentials p. Gaussian noise of variance r is the site η = 1/r, p = y/r that never changes; any other likelihood has
sites that are updated until they match it (`graphmatern.inference.sites`). All that a likelihood, an optimiser or a
prediction needs to know follows from four small classes, which every engine implements:

* `Engine`: the processes of one kind on one graph, as a function of unconstrained coordinates;
* `Process`: one of them, at given coordinates;
* `Conditioned`: that process under sites, seen from the observations: what learning needs;
* `Predictive`: the same, seen from any node: what predictions need.

With S the covariance of f(x) under the sites, C⁻¹ = η − η S η stands for (K_xx + diag(1/η))⁻¹, also where some η are 0
or negative.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from graphmatern.inference.learning.parameters import Coordinate
    from graphmatern.inference.learning.problem import Problem
    from graphmatern.inference.observations import Group
    from graphmatern.kernels import Kernel

    Floats = NDArray[np.float64]
    Longs = NDArray[np.int64]

__all__ = ["Conditioned", "DataForms", "Engine", "Family", "Predictive", "Process", "Solution"]


class Solution:
    """What follows from the sites' potentials, k columns of them.

    Parameters
    ----------
    alpha : ndarray, shape (n, k)
        p − η m, with m = S p the means of f(x): what the covariance with f(x) maps to the means everywhere.
    mean : ndarray, shape (n, k)
        m.
    """

    def __init__(self, alpha: Floats, mean: Floats) -> None:
        self.alpha, self.mean = alpha, mean


@dataclass(frozen=True, eq=False)
class DataForms:
    """Quadratic forms of a group's data D, k columns.

    Attributes
    ----------
    forms : ndarray, shape (k, k)
        Dᵀ C⁻¹ D.
    misfit : ndarray, shape (k, k)
        αᵀ diag(1/η) α: the part of the forms that is due to noise.
    solution : object
        For `Conditioned.gradient`; engines may keep in it what they need there.
    """

    forms: Floats
    misfit: Floats
    solution: Any


class Conditioned(ABC):
    """A process under sites, at the observations.

    Parameters
    ----------
    group : Group
        What was observed where.
    precision : ndarray, shape (n,)
        η, one for each observation of the group.
    """

    def __init__(self, group: Group, precision: Floats) -> None:
        self.group, self.precision = group, precision

    @property
    @abstractmethod
    def log_determinant(self) -> float:
        """Log det (I + K_xx diag(η))."""

    @abstractmethod
    def solve(self, potentials: Floats) -> Solution:
        """Means under the sites, for potentials of shape (n, k)."""

    @abstractmethod
    def variance(self) -> Floats:
        """Variances of f(x) under the sites; shape (n,)."""

    @abstractmethod
    def gradient(self, solution: Any, weights: Floats, count: float = 1.0) -> Floats:
        """Derivatives of ½ [count · log det (I + Kη) − tr(weights αᵀKα)] in the engine's coordinates, at fixed α and η.

        Parameters
        ----------
        solution : Solution
            What `solve` returned, or the ``solution`` of what `solve_data` returned, k columns.
        weights : ndarray, shape (k, k)
            Symmetric.
        count : float
            How many processes share these sites.

        Returns
        -------
        ndarray, shape (n_coordinates,)
        """

    # ------------------------------------------------------------------ what follows, unless an engine knows better
    def used(self) -> float:
        """Σ η var f(x): how many observations' worth of freedom the process uses."""
        return float(self.precision @ self.variance())

    @property
    def count(self) -> int:
        """Observations, whoever holds them."""
        return len(self.precision)

    def log_precision(self) -> float:
        """Sum of log η over the observations, whoever holds them."""
        return float(np.log(self.precision).sum())

    def covariance_divergence(self, variance: Floats) -> float:
        """What the covariance contributes to KL(q ‖ p), given the variances of f(x)."""
        return 0.5 * (self.log_determinant - float(self.precision @ variance))

    def unexplained(self) -> Floats:
        """Prior variance at the observations that the sites cannot reach; 0 unless an engine approximates; (n,)."""
        return np.zeros(len(self.precision))

    def solve_data(self) -> DataForms:
        """Solve for the group's data D as potentials ηD, where all η are positive.

        After it, `log_determinant`, `used` and `gradient` stay valid.
        """
        data = self.group.data
        solution = self.solve(self.precision[:, None] * data)
        misfit = solution.alpha.T @ (solution.alpha / self.precision[:, None])
        return DataForms(misfit + solution.mean.T @ solution.alpha, misfit, solution)

    def information(self) -> Floats:
        """Fisher information of one replicate in the engine's coordinates and, last, in −log η, if it is known."""
        raise NotImplementedError


class Predictive(ABC):
    """A process under sites, at any node."""

    @abstractmethod
    def means(self, nodes: Longs, potentials: Floats) -> Floats:
        """Means of f at some nodes for potentials of shape (n, k); shape (n_nodes, k)."""

    @abstractmethod
    def variances(self, nodes: Longs) -> Floats:
        """Variances of f at some nodes; shape (n_nodes,)."""

    @abstractmethod
    def covariances(self, nodes: Longs) -> Floats:
        """Covariance of f at some nodes; shape (n_nodes, n_nodes)."""

    @abstractmethod
    def deviations(self, n_samples: int, nodes: Longs, rng: np.random.Generator) -> Floats:
        """Draws of f minus its mean; shape (n_samples, n_nodes)."""

    def variance_errors(self, nodes: Longs) -> Floats:
        """Standard errors of `variances` of the same nodes, where these are estimated; else 0; (n_nodes,)."""
        return np.zeros(len(nodes))

    # ------------------------------------------------------------------ what follows, unless an engine knows better
    def total(self, found: Floats) -> Floats:
        """Sum over all observations of what was summed over those that are here: mostly that is all of them."""
        return found

    def covariance_times(self, nodes: Longs, others: Longs, weights: Floats) -> Floats:
        """Covariances of f between some nodes and others, times weights (n_others, k); shape (n_nodes, k)."""
        found = np.empty((len(nodes), weights.shape[1]))
        for start in range(0, len(nodes), 512):
            part = nodes[start : start + 512]
            both = self.covariances(np.concatenate([part, others]))
            found[start : start + 512] = both[: len(part), len(part) :] @ weights
        return found

    def with_sites(self, nodes: Longs, precision: Floats) -> Predictive:
        """The same process under further sites, whose potentials come after those of the others.

        Parameters
        ----------
        nodes : ndarray of int64, shape (m,)
            Positions of nodes.
        precision : ndarray, shape (m,)
            Precisions; negative ones take sites away.
        """
        from graphmatern.inference.further_sites import UnderFurtherSites

        return UnderFurtherSites(self, nodes, precision)

    def unexplained(self, nodes: Longs) -> Floats:
        """Prior variance at some nodes that the sites cannot reach; 0 unless an engine approximates; (n_nodes,)."""
        return np.zeros(len(nodes))

    def join(self, others: Sequence[Predictive]) -> None:
        """Share work with others that will be asked the same: those of other parameters, under their own sites."""
        del others

    def edge_covariances(self, sources: Longs, targets: Longs) -> Floats:
        """Covariances of f between the ends of edges; shape (n_edges,)."""
        found = np.empty(len(sources))
        for start in range(0, len(sources), 128):
            part = slice(start, start + 128)
            nodes, place = np.unique(np.concatenate([sources[part], targets[part]]), return_inverse=True)
            first, second = np.split(place, 2)
            found[part] = self.covariances(nodes)[first, second]
        return found


class Process(ABC):
    """A process at given parameters."""

    @abstractmethod
    def condition(self, group: int, precision: Floats) -> Conditioned:
        """Put sites on the observations of one of the engine's groups.

        Memory may be used again: what is returned is valid until the next call.

        Raises
        ------
        NotPositiveDefiniteError
            Where negative sites outweigh the prior.
        """

    @abstractmethod
    def predictive(self, group: int, precision: Floats) -> Predictive:
        """Return the process under these sites at any node; it stays valid."""


class Family(ABC):
    """Processes of one kind, as a function of unconstrained coordinates: what is said about parameters.

    Attributes
    ----------
    coordinates : list of Coordinate
        What can be learned, with bounds and priors.
    """

    coordinates: list[Coordinate]

    @abstractmethod
    def kernel(self, position: Floats) -> Kernel:
        """Return the kernel at some coordinates, a copy."""

    @property
    @abstractmethod
    def matrix_size(self) -> int:
        """Rows of the largest dense matrix that is factorised often."""

    # ------------------------------------------------------------------ what follows, unless a family knows better
    def values_of(self, positions: Floats) -> dict[str, Floats]:
        """Values of the parameters that the coordinates are named after, at some positions; each of shape (n,)."""
        columns = zip(self.coordinates, positions.T, strict=True)
        return {one.label: np.asarray(one.value(x)) for one, x in columns}

    @property
    def distinguished_by(self) -> tuple[str, float] | None:
        """Name and value of what distinguishes this family among its candidates, if anything."""
        return None

    def log_prior(self) -> float:
        """Log prior of what distinguishes this family among its candidates."""
        return 0.0

    def trusted(self, position: Floats) -> bool:
        """Whether an optimum found here is accurate enough to be preferred to other candidates'."""
        del position
        return True

    def release(self) -> None:
        """Give back working memory; it is taken again when needed."""
        return

    def report(self, position: Floats) -> dict[str, Any]:
        """What a fit that ended here should say beside its numbers; warns of what is wrong there."""
        del position
        return {}


class Engine(Family):
    """Processes of one kind on one graph, as a function of unconstrained coordinates.

    Attributes
    ----------
    name : str
        What users call it.
    coordinates : list of Coordinate
        What can be learned, with bounds and priors.
    start : ndarray, shape (n_coordinates,)
        Where the kernel's own values lie.
    groups : list of Group
        What was observed where.
    """

    name: ClassVar[str]
    start: Floats
    groups: list[Group]

    @classmethod
    @abstractmethod
    def candidates(cls, problem: Problem, groups: list[Group]) -> Sequence[Callable[[], Engine]]:
        """Engines to try for a problem; the one with the most evidence is kept.

        Parameters
        ----------
        problem : Problem
            What to fit.
        groups : list of Group
            The observations, together where they share sites.

        Raises
        ------
        KernelError
            Where the engine cannot serve the kernel.
        """

    @abstractmethod
    def at(self, position: Floats) -> Process:
        """Return the process at some coordinates; the last one returned is the only one that is valid."""

    # ------------------------------------------------------------------ what follows, unless an engine knows better
    #: Nats to be gained at which a search may stop.
    to_gain: float = 1e-6
    #: Longest step of a search in any coordinate.
    longest_step: float = 2.0
    #: Whether evaluations are rough, until `refine` is called.
    rough: bool = False
    #: Whether `Conditioned.information` is there to guide a search.
    has_information: bool = False
    #: Whether the evidence is estimated from probes: its derivatives are then too rough to take differences of.
    estimates: bool = False
    #: Whether q is restricted, so that some prior variance stays out of the sites' reach.
    restricts: ClassVar[bool] = False

    @classmethod
    def rehearsal(cls, problem: Problem) -> Problem | None:
        """A small part of a large problem, which should be fitted first; None where that is not worth it."""
        del problem
        return None

    def other_starts(self) -> list[Floats]:
        """Starting points that suit many data sets, beside the kernel's own."""
        return []

    def simpler(self) -> list[Callable[[], Engine]]:
        """Makers of engines that take far less and lead to a good start; tried in turn until one is no better."""
        return []

    def start_from(self, other: Engine, position: Floats) -> Floats:
        """Coordinates that stand for the optimum of one of the `simpler` engines."""
        del other
        return position

    def covariances_at(self, positions: Floats, noise: Floats | None = None) -> list[Floats] | None:
        """Prior covariances of the observations at many coordinates, where these are so small that it saves time.

        Parameters
        ----------
        positions : ndarray, shape (m, n_coordinates)
            Coordinates.
        noise : ndarray, shape (m,), optional
            Least noise variance that will be added to each; errors may be so large that it hides them.

        Returns
        -------
        list of ndarray, each of shape (m, n, n)
            One for each group; None where it had better be done one by one.
        """
        del positions, noise
        return None

    def prepare(self, position: Floats) -> None:
        """Make ready for a search from here, what is approximate in particular; nothing of that changes on the way."""
        del position

    def average_variance(self, position: Floats) -> float:
        """Average prior variance over the nodes; by default the kernel's."""
        values: dict[str, float] = self.kernel(position).values()  # type: ignore[operator]
        return values.get("variance", 1.0)

    def jacobian(self, position: Floats) -> Floats:
        """Derivatives of the logarithms of the parameters that the coordinates are named after."""
        return np.eye(len(position))

    def bounded(self, position: Floats) -> Engine | None:
        """Another engine to go on with, where an optimum of this one lies out of bounds that it cannot enforce."""
        del position
        return None

    def begin_roughly(self) -> None:
        """Evaluate roughly until `refine` is called, where that saves time: a search leaves most of it behind."""
        return

    def refine(self, conditioned: Callable[[], Sequence[tuple[Conditioned, int]]]) -> bool:
        """Whether estimates proved too rough at an optimum, and were made better for another search from there.

        Parameters
        ----------
        conditioned : callable
            Returns the groups at the optimum, after their gradients, and the replicates of each.
        """
        del conditioned
        return False

    def refinement(self) -> dict[str, Any]:
        """What `refine` changed, in plain numbers, for records of a search."""
        return {}

    def refine_as(self, refinement: dict[str, Any]) -> None:
        """Be as an engine was that returned this from `refinement`."""
        del refinement

    @property
    def matrix_size(self) -> int:
        """Rows of the largest dense matrix that is factorised often."""
        return max(len(group.nodes) for group in self.groups)
