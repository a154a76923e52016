"""The engine for features and the graph together: exact inference between the observed nodes.

The part on the graph comes from eigenpairs or moments, parts on features from their smoothed inner products; their sum
is a matrix of observed × observed nodes, differentiable in every parameter. All nodes matter for predictions only.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from graphmatern._validation import FaultList
from graphmatern.errors import KernelError, ResourceError
from graphmatern.inference.features.graph_part import GraphPart, graph_part
from graphmatern.inference.features.observed import ObservedFeatures
from graphmatern.inference.features.prior import FeaturePart, JointPrior
from graphmatern.inference.features.process import FeatureProcess, Terms, variance_of
from graphmatern.inference.features.smoothing import smoother_for
from graphmatern.inference.learning.parameters import START_LENGTHSCALES, free_parameters, move_parameters
from graphmatern.inference.moments.engine import MomentsEngine
from graphmatern.inference.moments.process import ObservedNodes
from graphmatern.inference.process import Engine
from graphmatern.inference.spectral.engine import starting_kernel
from graphmatern.kernels import CosineFeatures, Matern, RBFFeatures, kernel_terms

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from graphmatern.inference.features.graph_part import AtObserved
    from graphmatern.inference.features.matrix import FeatureMatrix
    from graphmatern.inference.learning.problem import Problem
    from graphmatern.inference.observations import Group
    from graphmatern.kernels import Kernel

    Floats = NDArray[np.float64]

__all__ = ["FeatureEngine", "default_kernel"]

_START_SMOOTHING = 2.0
# Lengthscales of the graph's part, and of smoothing, to start from; the longer first: that makes ready for the shorter.
_TYPICAL = ((8.0, 4.0), (2.0, 1.0))


def default_kernel(matrix: FeatureMatrix) -> Kernel:
    """Graph and features: angles between what is counted, such as words, and distances between measurements."""
    kind = CosineFeatures if matrix.sparse else RBFFeatures
    return Matern(1.5, START_LENGTHSCALES[0]) + kind(_START_SMOOTHING)


class FeatureEngine(Engine):
    """Exact inference with features; its coordinates are the kernel's free parameters, unconstrained.

    Parameters
    ----------
    problem : Problem
        What to fit, with features.
    groups : list of Group
        The observations.
    """

    name: ClassVar[str] = "features"
    longest_step = 0.7
    to_gain = 1e-6

    def __init__(self, problem: Problem, groups: list[Group]) -> None:
        faults = FaultList("nothing was fitted", KernelError)
        if problem.features is None:
            remedy = "Give `features`, or leave the engine to the estimator."
            raise faults.raise_now("features", "must be given for engine='features'", "none", remedy)
        self.groups, self._problem, self._matrix = groups, problem, problem.features
        given = problem.kernel if problem.kernel is not None else default_kernel(self._matrix)
        self._kernel = starting_kernel(replace(problem, kernel=given))
        self._kernel.check_laplacian(bool(problem.normalized))
        self._on_graph, self._on_features, self._interactions = kernel_terms(self._kernel)
        self._raw, self.coordinates, self.start = free_parameters(self._kernel, problem.rules)
        self._observed = ObservedNodes(groups)
        self._check_size()
        self._features = [
            ObservedFeatures(smoother_for(problem, kernel), self._observed.nodes, kernel)
            for kernel in self._on_features
        ]
        self._graph: GraphPart | None = None
        owners = {id(raw) for term in self._on_graph for raw in term.parameters()}
        self._places = np.flatnonzero([id(raw) in owners for raw in self._raw])
        if self._on_graph:
            self._graph = graph_part(problem, self._on_graph, self._observed.nodes, groups)
        self._bound()

    def _check_size(self) -> None:
        count = len(self._observed.nodes)
        if count > MomentsEngine.most_dense:
            raise ResourceError(
                f"features need dense matrices between the observed nodes, here {count:,}; they are limited to "
                f"{MomentsEngine.most_dense:,}. Fit a part of the observations, or leave out `features`."
            )

    def _bound(self) -> None:
        """Bound lengthscales by what polynomials can express."""
        if self._graph is not None:
            bounded = self._graph.bounded([self.coordinates[place] for place in self._places])
            for place, coordinate in zip(self._places, bounded, strict=True):
                self.coordinates[place] = coordinate
        for own in self._features:
            longest = float(np.log(own.smoother.longest))
            for number, raw in enumerate(self._raw):
                if raw is own.kernel.raw_smoothing:
                    one = self.coordinates[number]
                    self.coordinates[number] = replace(one, high=min(one.high, longest))

    @classmethod
    def candidates(cls, problem: Problem, groups: list[Group]) -> Sequence[Callable[[], Self]]:
        """The engine itself."""
        return [lambda: cls(problem, groups)]

    # ------------------------------------------------------------------ the process
    def at(self, position: Floats) -> FeatureProcess:
        """Return the process at some coordinates."""
        move_parameters(self._raw, position)
        own = None if self._graph is None else self._graph.at(position[self._places])
        terms = Terms(None if own is None else own.covariance, self._on_graph, self._features, self._interactions)
        here = position.copy()

        def prior() -> JointPrior:
            return self._prior(here, own)

        pull_back = None if own is None else own.pull_back
        return FeatureProcess(self._observed, self.groups, terms, self._raw, pull_back, self._places, prior)

    def _prior(self, position: Floats, graph: AtObserved | None) -> JointPrior:
        """The process on all nodes."""
        move_parameters(self._raw, position)
        return JointPrior(
            None if graph is None else graph.prior(),
            [FeaturePart(own.smoother, copy.deepcopy(own.kernel)) for own in self._features],
            interaction=sum(float(one.variance.item()) for one in self._interactions),
            graph_variance=sum(float(variance_of(one).item()) for one in self._on_graph),
            n_nodes=self._problem.graph.n_nodes,
        )

    def kernel(self, position: Floats) -> Kernel:
        """Return the kernel at some coordinates, a copy."""
        move_parameters(self._raw, position)
        return copy.deepcopy(self._kernel)

    def average_variance(self, position: Floats) -> float:
        """Average prior variance over the nodes, about."""
        move_parameters(self._raw, position)
        graph = sum(float(variance_of(one).item()) for one in self._on_graph)
        return graph + sum(float(one.variance.item()) for one in (*self._on_features, *self._interactions))

    def other_starts(self) -> list[Floats]:
        """Typical lengthscales of the graph's part and of smoothing."""
        starts = []
        for lengthscale, smoothing in _TYPICAL:
            usual = {"lengthscale": np.log(lengthscale), "smoothing": np.log(smoothing)}
            words = [one.label.rpartition(".")[2] for one in self.coordinates]
            starts.append(np.array([usual.get(word, x) for word, x in zip(words, self.start, strict=True)]))
        return starts

    def begin_roughly(self) -> None:
        """Let the graph's part be rough; see `MomentsEngine.begin_roughly`."""
        if self._graph is not None:
            self._graph.begin_roughly()

    def refine(self, conditioned: Callable[[], Any]) -> bool:
        """Exact kernels from here on."""
        return self._graph is not None and self._graph.refine(conditioned)

    def release(self) -> None:
        """Give back what moments of higher degrees would go on from."""
        if self._graph is not None:
            self._graph.release()

    def report(self, position: Floats) -> dict[str, Any]:
        """What the graph's part has to say."""
        return {} if self._graph is None else self._graph.report(position[self._places])
