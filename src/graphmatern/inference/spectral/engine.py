"""The spectral engine: any kernel, through eigenpairs."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import torch

from graphmatern.graph import largest_eigenvalue_bound
from graphmatern.inference.learning.parameters import (
    START_LENGTHSCALES,
    free_parameters,
    many_weights,
    move_parameters,
)
from graphmatern.inference.process import Engine
from graphmatern.inference.spectral.process import GroupBasis, SpectralProcess
from graphmatern.kernels import Matern, hold_variance

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from graphmatern.graph import Graph
    from graphmatern.inference.learning.parameters import Coordinate
    from graphmatern.inference.learning.problem import Problem
    from graphmatern.inference.observations import Group
    from graphmatern.kernels import BoundKernel, Kernel

    Floats = NDArray[np.float64]

__all__ = [
    "DENSE_NODES",
    "SpectralEngine",
    "eigenpairs_used",
    "starting_kernel",
    "typical_starts",
]

DENSE_NODES = 3000  # up to here all eigenpairs are cheap
_DEFAULT_EIGENPAIRS = 500
_CROWDED = 25  # edges per node
_MANY_AT_ONCE = 160  # observations, up to which Python takes longer than the arithmetic
_STEP = 1e-4  # for derivatives of the weights in the parameters, where some digits are enough


def eigenpairs_used(graph: Graph, wanted: int | None) -> int | None:
    """How many eigenpairs are used: as many as wanted, else all of a graph of moderate size; None means all.

    Graphs with many edges count as moderate for longer, as nothing sparse is faster there.
    """
    crowded = graph.n_nodes <= 2 * DENSE_NODES and graph.n_edges > _CROWDED * graph.n_nodes
    return _DEFAULT_EIGENPAIRS if wanted is None and graph.n_nodes > DENSE_NODES and not crowded else wanted


def starting_kernel(problem: Problem) -> Kernel:
    """A copy of the problem's kernel, or the default one, ready to be moved."""
    kernel = Matern(1.5, START_LENGTHSCALES[0]) if problem.kernel is None else copy.deepcopy(problem.kernel)
    if isinstance(kernel, Matern):
        kernel.set_params(nu=kernel.values()["nu"])  # from here on it has a value
    if problem.likelihood.scale_invariant:
        hold_variance(kernel)
    return kernel


def typical_starts(coordinates: Sequence[Coordinate], start: Floats) -> list[Floats]:
    """Starting points with lengthscales that suit many data sets; none where no lengthscale, or several, are learned.

    Parameters
    ----------
    coordinates : sequence of Coordinate
        Unconstrained parameters of a kernel.
    start : ndarray, shape (n_coordinates,)
        Where these are: what is neither a smoothness, a lengthscale nor a variance stays there.
    """
    labels = [one.label for one in coordinates]
    if labels.count("lengthscale") != 1:
        return []
    starts = []
    for lengthscale in START_LENGTHSCALES:
        usual = {"nu": 1.5, "variance": 1.0, "lengthscale": lengthscale}
        starts.append(np.array([np.log(usual[k]) if k in usual else x for k, x in zip(labels, start, strict=True)]))
    return starts


class SpectralEngine(Engine):
    """Exact inference for any kernel; its coordinates are the kernel's free parameters, unconstrained.

    Parameters
    ----------
    problem : Problem
        What to fit.
    groups : list of Group
        The observations.
    """

    name: ClassVar[str] = "spectral"
    has_information = True
    to_gain = 1e-8  # one evaluation more, of milliseconds, and parameters are exact to some 1e-4

    def __init__(self, problem: Problem, groups: list[Group]) -> None:
        self.groups = groups
        self._kernel = starting_kernel(problem)
        count = eigenpairs_used(problem.graph, problem.n_eigenpairs)
        self.bound: BoundKernel = self._kernel.on(problem.graph, problem.normalized, count)
        basis = self.bound.spectrum.basis
        self._bases = [GroupBasis(basis[group.nodes], group) for group in groups]
        self._raw, self.coordinates, self.start = free_parameters(self._kernel, problem.rules)
        self._many = problem.updates > 1

    @classmethod
    def candidates(cls, problem: Problem, groups: list[Group]) -> Sequence[Callable[[], Self]]:
        """The engine itself."""
        return [lambda: cls(problem, groups)]

    def _weights(self, position: Floats) -> torch.Tensor:
        move_parameters(self._raw, position)
        return self.bound.weights()

    def at(self, position: Floats) -> SpectralProcess:
        """Return the process at some coordinates."""
        weights = self._weights(position)
        return SpectralProcess(
            self.bound.spectrum.basis,
            self._bases,
            weights,
            self._raw,
            lambda: self._slopes(position, weights.detach().cpu().numpy()),
            many=self._many,
        )

    def covariances_at(self, positions: Floats, noise: Floats | None = None) -> list[Floats] | None:
        """Many small covariances; see `Engine.covariances_at`."""
        if max(len(basis.features) for basis in self._bases) > _MANY_AT_ONCE:
            return None
        weights = many_weights(self.bound.weights, self._raw, positions)
        return [basis.covariances.many(weights, noise) for basis in self._bases]

    def _slopes(self, position: Floats, weights: Floats) -> Floats:
        """Derivatives of the logarithms of the weights; shape (n_eigenpairs, n_coordinates)."""
        slopes = np.zeros((len(weights), len(position)))
        for place, step in enumerate(_STEP * np.eye(len(position))):
            with torch.no_grad():
                moved = self._weights(position + step).cpu().numpy()
            both = (weights > 0) & (moved > 0)
            slopes[both, place] = np.log(moved[both] / weights[both]) / _STEP
        return slopes

    def kernel(self, position: Floats) -> Kernel:
        """Return the kernel at some coordinates, a copy."""
        move_parameters(self._raw, position)
        return copy.deepcopy(self._kernel)

    def other_starts(self) -> list[Floats]:
        """Typical lengthscales, where there is one to be learned."""
        return typical_starts(self.coordinates, self.start)

    def average_variance(self, position: Floats) -> float:
        """Average prior variance over the nodes."""
        weights = self._weights(position).detach().cpu().numpy()
        spectrum = self.bound.spectrum
        return float(weights @ spectrum.squared_norms) / spectrum.n_nodes

    @property
    def matrix_size(self) -> int:
        """Rows of the largest dense matrix that is factorised often."""
        return min(super().matrix_size, self.bound.spectrum.n_eigenpairs)

    def report(self, position: Floats) -> dict[str, Any]:
        """Bound on the prior variance that a truncated spectrum loses at every node, and its share over all nodes."""
        kept = self.average_variance(position) * self.bound.spectrum.n_nodes
        lost = prior_variance_lost(self.bound)
        return {"prior_loss": lost, "prior_loss_share": float(lost.sum() / (kept + lost.sum()))}


def prior_variance_lost(bound: BoundKernel) -> Floats:
    """Bound on the prior variance that eigenvectors left out would add at every node; shape (n_nodes,).

    At node i it is max Ψ over the eigenvalues left out, times a (1 − Σ u_s(i)²) / m_i: the eigenvectors of all
    eigenvalues together have squared entries that add up to 1. Zero where none is left out.
    """
    spectrum = bound.spectrum
    n = spectrum.n_nodes
    if spectrum.n_eigenpairs == n:
        return np.zeros(n)
    known = spectrum.eigenvalues
    beyond = np.linspace(known[-1], largest_eigenvalue_bound(bound.graph.laplacian(spectrum.normalized)), 65)
    norms = np.append(spectrum.squared_norms, np.zeros(len(beyond)))
    with torch.no_grad():
        # Of squared norm 0, these do not change the amplitude; Ψ need not fall everywhere, so look at all of it.
        every = torch.as_tensor(np.append(known, beyond))
        weights = bound.kernel.spectral_weights(every, torch.as_tensor(norms), n)
    largest = float(weights[len(known) :].max())
    inverse_mass = 1.0 if bound.graph.masses is None else 1.0 / bound.graph.masses
    covered = np.einsum("is,is->i", spectrum.basis, spectrum.basis)
    return np.asarray(largest * np.maximum(inverse_mass - covered, 0.0))
