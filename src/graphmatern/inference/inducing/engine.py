"""Inducing nodes and leading eigenvectors: q is restricted to a few coefficients, and can be learned from batches."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from graphmatern.inference.inducing.features import NodeFeatures, spread_out_nodes
from graphmatern.inference.inducing.process import FeatureProcess
from graphmatern.inference.learning.parameters import START_LENGTHSCALES, free_parameters, move_parameters
from graphmatern.inference.process import Engine
from graphmatern.inference.spectral.engine import eigenpairs_used, starting_kernel, typical_starts
from graphmatern.kernels import Matern

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from graphmatern.inference.learning.problem import Problem
    from graphmatern.inference.observations import Group
    from graphmatern.kernels import Kernel

    Floats = NDArray[np.float64]
    Longs = NDArray[np.int64]

__all__ = ["EigenvectorEngine", "InducingEngine"]

_MOST = 500  # inducing nodes or eigenvectors, unless asked for


class InducingEngine(Engine):
    """Values at inducing nodes; its coordinates are the kernel's free parameters, unconstrained.

    Of the problem's settings it knows ``inducing`` (positions of nodes), ``n_inducing``, and ``covariance`` ("full" or
    "diagonal"); `graphmatern.inference.inducing.stochastic` knows more.

    Parameters
    ----------
    problem : Problem
        What to fit.
    groups : list of Group
        The observations.
    """

    name: ClassVar[str] = "inducing"
    restricts: ClassVar[bool] = True

    def __init__(self, problem: Problem, groups: list[Group]) -> None:
        self.groups = groups
        self._kernel = starting_kernel(problem)
        count = eigenpairs_used(problem.graph, problem.n_eigenpairs)
        self._bound = self._kernel.on(problem.graph, problem.normalized, count)
        self._basis = self._bound.basis()
        self._raw, self.coordinates, self.start = free_parameters(self._kernel, problem.rules)
        self._diagonal = problem.settings.get("covariance", "full") == "diagonal"
        self.inducing = self._choose(problem)

    @classmethod
    def candidates(cls, problem: Problem, groups: list[Group]) -> Sequence[Callable[[], Self]]:
        """The engine itself."""
        return [lambda: cls(problem, groups)]

    def _choose(self, problem: Problem) -> Longs | int:
        """Positions of the inducing nodes: those asked for, those observed, or as many of these, spread out."""
        given = problem.settings.get("inducing")
        if given is not None:
            return np.unique(np.asarray(given, dtype=np.int64))
        places = np.unique(np.concatenate([group.nodes for group in self.groups]))
        typical = Matern(1.5, START_LENGTHSCALES[1]) if problem.kernel is None else self._kernel
        bound = typical.on(problem.graph, self._bound.spectrum.normalized, self._bound.spectrum.n_eigenpairs)
        scale = bound.weights().detach().numpy() ** 0.5
        features = self._basis.numpy()[places] * scale
        return spread_out_nodes(features, places, problem.settings.get("n_inducing") or _MOST)

    def features(self, position: Floats) -> NodeFeatures:
        """Φ at some coordinates."""
        move_parameters(self._raw, position)
        return self.features_now()

    def features_now(self) -> NodeFeatures:
        """Φ where the kernel's parameters are, differentiable in them."""
        return NodeFeatures(self._basis, self._bound.weights(), self.inducing, self._raw)

    @property
    def raw(self) -> list[Any]:
        """Unconstrained parameters of the kernel that are learned."""
        return self._raw

    def at(self, position: Floats) -> FeatureProcess:
        """Return the process at some coordinates."""
        return FeatureProcess(self.features(position), self.groups, diagonal=self._diagonal)

    def kernel(self, position: Floats) -> Kernel:
        """Return the kernel at some coordinates, a copy."""
        move_parameters(self._raw, position)
        return copy.deepcopy(self._kernel)

    def other_starts(self) -> list[Floats]:
        """Typical lengthscales."""
        return typical_starts(self.coordinates, self.start)

    @property
    def matrix_size(self) -> int:
        """Rows of the largest dense matrix that is factorised often."""
        return self.inducing if isinstance(self.inducing, int) else len(self.inducing)

    def report(self, position: Floats) -> dict[str, Any]:
        """The inducing nodes."""
        del position
        return {"inducing": self.inducing}


class EigenvectorEngine(InducingEngine):
    """Coefficients on the leading eigenvectors, of which the prior is diagonal."""

    name: ClassVar[str] = "eigenvectors"

    def _choose(self, problem: Problem) -> int:
        """Number of eigenvectors."""
        return min(problem.settings.get("n_inducing") or _MOST, self._bound.spectrum.n_eigenpairs)
