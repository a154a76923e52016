"""The part of a process that lives on the graph alone: through eigenpairs of moderate graphs, else through moments."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from graphmatern.inference.moments.engine import MomentsEngine
from graphmatern.inference.moments.process import MomentProcess
from graphmatern.inference.spectral.engine import eigenpairs_used
from graphmatern.kernels import SumKernel

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from graphmatern.inference.learning.parameters import Coordinate
    from graphmatern.inference.learning.problem import Problem
    from graphmatern.inference.moments.prior import PriorField
    from graphmatern.inference.observations import Group
    from graphmatern.kernels import Kernel

    Floats = NDArray[np.float64]
    Longs = NDArray[np.int64]

__all__ = ["AtObserved", "EigenPrior", "GraphPart", "graph_part"]


@dataclass(frozen=True, eq=False)
class AtObserved:
    """The part at given parameters.

    Attributes
    ----------
    covariance : Tensor, shape (n, n)
        Between the distinct observed nodes, differentiable in the kernel's parameters or, where ``pull_back`` is there,
        a leaf.
    prior : callable
        Makes the part on all nodes.
    pull_back : callable, optional
        Derivatives in the part's own free parameters, from those in the covariance.
    """

    covariance: torch.Tensor
    prior: Callable[[], EigenPrior | PriorField]
    pull_back: Callable[[Floats], Floats] | None = None


class GraphPart(ABC):
    """A kernel on the graph, at the observed nodes and on all nodes."""

    @abstractmethod
    def at(self, position: Floats) -> AtObserved:
        """The part where its free parameters are, which are in the kernel itself already."""

    def bounded(self, coordinates: Sequence[Coordinate]) -> list[Coordinate]:
        """Coordinates of its free parameters, with bounds that it can bear."""
        return list(coordinates)

    def begin_roughly(self) -> None:
        """See `Engine.begin_roughly`."""
        return

    def refine(self, conditioned: Callable[[], Any]) -> bool:
        """See `Engine.refine`."""
        del conditioned
        return False

    def release(self) -> None:
        """Give back working memory."""
        return

    def report(self, position: Floats) -> dict[str, Any]:
        """What a fit that ended here should say."""
        del position
        return {}


def graph_part(problem: Problem, terms: Sequence[Kernel], nodes: Longs, groups: list[Group]) -> GraphPart:
    """The part of some kernels on the graph, whose parameters it shares, at observed nodes."""
    kernel = terms[0] if len(terms) == 1 else SumKernel(*terms)
    if eigenpairs_used(problem.graph, None) is None:
        return _Eigenpairs(problem, kernel, nodes)
    return _Moments(problem, kernel, groups)


class _Eigenpairs(GraphPart):
    """All eigenpairs."""

    def __init__(self, problem: Problem, kernel: Kernel, nodes: Longs) -> None:
        self._bound = kernel.on(problem.graph, bool(problem.normalized))
        self._basis = self._bound.spectrum.basis
        self._rows = torch.from_numpy(np.ascontiguousarray(self._basis[nodes]))

    def at(self, position: Floats) -> AtObserved:
        """The part at its parameters."""
        del position
        weights = self._bound.weights()
        numbers = weights.detach().numpy().copy()
        return AtObserved((self._rows * weights) @ self._rows.T, lambda: EigenPrior(self._basis, numbers))


class _Moments(GraphPart):
    """Chebyshev moments, through an engine of their own."""

    def __init__(self, problem: Problem, kernel: Kernel, groups: list[Group]) -> None:
        self._engine = MomentsEngine(replace(problem, kernel=copy.deepcopy(kernel)), groups)

    def at(self, position: Floats) -> AtObserved:
        """The part at its parameters."""
        process = self._engine.at(position)
        assert isinstance(process, MomentProcess)
        leaf = torch.tensor(process.node_covariance, requires_grad=True)
        return AtObserved(leaf, lambda: process.prior, process.pull_back_nodes)  # type: ignore[arg-type,return-value]

    def bounded(self, coordinates: Sequence[Coordinate]) -> list[Coordinate]:
        """Lengthscales that polynomials can express."""
        own = self._engine.coordinates
        return [replace(one, low=at.low, high=at.high) for one, at in zip(coordinates, own, strict=True)]

    def begin_roughly(self) -> None:
        """Let kernels be rough at first."""
        self._engine.begin_roughly()

    def refine(self, conditioned: Callable[[], Any]) -> bool:
        """Exact kernels from here on."""
        return self._engine.refine(conditioned)

    def release(self) -> None:
        """Give back what moments of higher degrees would go on from."""
        self._engine.release()

    def report(self, position: Floats) -> dict[str, Any]:
        """Degree and errors."""
        return self._engine.report(position)


class EigenPrior:
    """A kernel on all nodes, through eigenpairs: what `PriorField` is through products.

    Parameters
    ----------
    basis : ndarray, shape (n_nodes, n_eigenpairs)
        Eigenvectors on the nodes.
    weights : ndarray, shape (n_eigenpairs,)
        Variances of their coefficients.
    """

    def __init__(self, basis: Floats, weights: Floats) -> None:
        self._basis, self._weights = basis, weights

    def kept_columns(self, nodes: Longs) -> Floats:
        """K between all nodes and some; shape (n_nodes, n)."""
        return np.asarray(self._basis @ (self._weights[:, None] * self._basis[nodes].T))

    columns = kept_columns

    def between(self, left: Longs, right: Longs, *, keep: bool) -> Floats:
        """K between some nodes and others; shape (n_left, n_right)."""
        del keep
        return np.asarray((self._basis[left] * self._weights) @ self._basis[right].T)

    @cached_property
    def _diagonal(self) -> Floats:
        return np.asarray(self._basis**2 @ self._weights)

    def variances(self, nodes: Longs) -> Floats:
        """Variances of some nodes; shape (n,)."""
        return self._diagonal[nodes]

    def variance_errors(self, nodes: Longs) -> Floats:
        """No errors; shape (n,)."""
        return np.zeros(len(nodes))

    def draw(self, count: int, rng: np.random.Generator) -> Floats:
        """Draws; shape (n_nodes, count)."""
        scaled = np.sqrt(self._weights)[:, None] * rng.standard_normal((len(self._weights), count))
        return np.asarray(self._basis @ scaled)

    def join(self, others: Sequence[Any]) -> None:
        """Nothing is shared."""
        del others
