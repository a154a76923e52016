"""Kernels of areas through sparse precisions: ICAR, BYM2 and Leroux.

Leroux's process is a Matérn process of smoothness 1 in other words: its precision (ρΔ + (1 − ρ)I)/τ² is (c I + Δ)/a
with c = (1 − ρ)/ρ and a = τ²/ρ.

The other two are f = g + e, with g of covariance w₁ Δ⁻/s and e ~ N(0, w₂) in every area by itself; ICAR has w₂ = 0. A
site on f, of precision h and potential p, is one on g, of precision h̃ = h/(1 + w₂h) and potential p̃ = p/(1 + w₂h): what
is left has the precision of g, which is sparse, and sums to zero in every component (`IntrinsicFactor`).
"""

from __future__ import annotations

import copy
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np

from graphmatern.errors import NotPositiveDefiniteError
from graphmatern.graph import IntrinsicFactor, intrinsic_structure
from graphmatern.inference.learning.parameters import free_parameters, move_parameters
from graphmatern.inference.markov.precision import markov_precision
from graphmatern.inference.markov.process import MarkovProcess, Workspace
from graphmatern.inference.observations import sum_by_node
from graphmatern.inference.process import Conditioned, Engine, Predictive, Process, Solution
from graphmatern.kernels import Leroux, hold_variance

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from graphmatern.graph import IntrinsicStructure
    from graphmatern.inference.learning.problem import Problem
    from graphmatern.inference.observations import Group
    from graphmatern.kernels import ArealKernel, Kernel

    Floats = NDArray[np.float64]
    Longs = NDArray[np.int64]

__all__ = ["AreaPredictive", "ArealEngine", "IntrinsicEngine", "LerouxEngine", "areal_engine", "shares_of"]

_LEAST_MIXING = 1e-9  # of Leroux's, at which areas are independent but for rounding
_AT_ONCE = 64  # columns that are solved together


def shares_of(kernel: Kernel) -> tuple[float, float]:
    """Variances w₁ and w₂ of what neighbours share and of what areas have by themselves."""
    values: dict[str, float] = kernel.values()  # type: ignore[operator]
    mixing = values.get("mixing", 1.0)
    return values["variance"] * mixing, values["variance"] * (1.0 - mixing)


class ArealEngine(Engine):
    """Exact inference for kernels of areas; its coordinates are the kernel's free parameters, unconstrained.

    Parameters
    ----------
    problem : Problem
        What to fit.
    groups : list of Group
        The observations.
    """

    name: ClassVar[str] = "markov"
    to_gain: float = 1e-7

    def __init__(self, problem: Problem, groups: list[Group]) -> None:
        self._problem, self.groups = problem, groups
        assert problem.kernel is not None
        problem.kernel.choose_laplacian(problem.graph, problem.normalized)
        self._kernel: ArealKernel = copy.deepcopy(problem.kernel)  # type: ignore[assignment]
        if problem.likelihood.scale_invariant:
            hold_variance(self._kernel)
        self._raw, self.coordinates, self.start = free_parameters(self._kernel, problem.rules)

    @classmethod
    def candidates(cls, problem: Problem, groups: list[Group]) -> Sequence[Callable[[], Self]]:
        """The engine itself."""
        return [lambda: cls(problem, groups)]

    def kernel(self, position: Floats) -> Kernel:
        """Return the kernel at some coordinates, a copy."""
        move_parameters(self._raw, position)
        return copy.deepcopy(self._kernel)

    def _values(self, position: Floats) -> tuple[float, float]:
        """Variance and mixing at some coordinates; ICAR's mixing is 1."""
        move_parameters(self._raw, position)
        mixing = getattr(self._kernel, "mixing", None)
        return self._kernel.variance.item(), 1.0 if mixing is None else mixing.item()

    def _chain(self, in_variance: float, in_mixing: float) -> Floats:
        """Derivatives in the coordinates, from those in log σ² and logit ρ."""
        found = {"variance": in_variance, "mixing": in_mixing}
        return np.array([found[one.label] for one in self.coordinates])


def areal_engine(problem: Problem) -> type[ArealEngine]:
    """Which engine serves a problem's kernel."""
    return LerouxEngine if isinstance(problem.kernel, Leroux) else IntrinsicEngine


class LerouxEngine(ArealEngine):
    """Leroux's kernel, as a Matérn kernel of smoothness 1."""

    def __init__(self, problem: Problem, groups: list[Group]) -> None:
        super().__init__(problem, groups)
        precision = markov_precision(problem.graph, 1, normalized=False, n_threads=problem.n_threads)
        self.workspace = Workspace(precision)

    def at(self, position: Floats) -> MarkovProcess:
        """Return the process at some coordinates."""
        variance, mixing = self._values(position)
        mixing = max(mixing, _LEAST_MIXING)
        lengthscale, amplitude = float(np.sqrt(2.0 * mixing / (1.0 - mixing))), variance / mixing

        def chain(gradient: Floats) -> Floats:
            # log κ = ½ logit ρ + constant, and log a = log τ² − log ρ.
            return self._chain(float(gradient[1]), float(0.5 * gradient[0] - (1.0 - mixing) * gradient[1]))

        return MarkovProcess(self.workspace, self.groups, lengthscale, amplitude, chain, dense=False)

    def average_variance(self, position: Floats) -> float:
        """Average prior variance over the nodes."""
        process = self.at(position)
        prior = self.workspace.shifted(process.precision.shift(process.lengthscale))
        return process.amplitude * prior.trace / process.precision.graph.n_nodes

    def release(self) -> None:
        """Give back the memory of factors."""
        self.workspace.release()


class IntrinsicEngine(ArealEngine):
    """ICAR and BYM2, sums to zero kept exactly."""

    def __init__(self, problem: Problem, groups: list[Group]) -> None:
        super().__init__(problem, groups)
        self.structure = intrinsic_structure(problem.graph, problem.n_threads)
        self.memory: IntrinsicFactor | None = None

    def at(self, position: Floats) -> IntrinsicProcess:
        """Return the process at some coordinates."""
        return IntrinsicProcess(self, *self._values(position))

    def average_variance(self, position: Floats) -> float:
        """Average prior variance over the nodes."""
        variance, mixing = self._values(position)
        relative = float(np.mean(self.structure.variances / self.structure.scale))
        return variance * (1.0 - mixing + mixing * relative)

    def release(self) -> None:
        """Give back the memory of factors."""
        self.memory = None


class IntrinsicProcess(Process):
    """A process with given variance σ² and mixing ρ: w₁ = σ²ρ and w₂ = σ²(1 − ρ).

    Parameters
    ----------
    engine : IntrinsicEngine
        Whose memory is used, and whose coordinates gradients are in.
    variance, mixing : float
        σ² and ρ.
    """

    def __init__(self, engine: IntrinsicEngine, variance: float, mixing: float) -> None:
        self._engine, self.structure = engine, engine.structure
        self.variance, self.mixing = variance, mixing
        self.own = variance * (1.0 - mixing)
        # w₁/s, at every node in the order of the factor.
        self.shared = variance * mixing / self.structure.scale[self.structure.analysis.permutation]

    def condition(self, group: int, precision: Floats) -> IntrinsicConditioned:
        """Put sites on a group; see `Process.condition`."""
        memory, self._engine.memory = self._engine.memory, None
        found = IntrinsicConditioned(self, self._engine.groups[group], precision, memory)
        self._engine.memory = found.factor
        return found

    def chain(self, in_shared: float, in_own: float) -> Floats:
        """Derivatives in the engine's coordinates, from those in log w₁ and log w₂."""
        return self._engine._chain(in_shared + in_own, (1.0 - self.mixing) * in_shared - self.mixing * in_own)

    def predictive(self, group: int, precision: Floats) -> AreaPredictive:
        """Return the process at any node; see `Process.predictive`."""
        nodes = self._engine.groups[group].nodes
        return AreaPredictive(self.structure, self.variance * self.mixing, self.own, nodes, precision)


class _AreaSites:
    """Sites on f turned into sites on g, at every node in the order of the factor.

    Attributes
    ----------
    added : ndarray, shape (n_nodes,)
        h, added up over the observations of each node.
    shrink : ndarray, shape (n_nodes,)
        1/(1 + w₂h).
    """

    def __init__(self, places: Longs, precision: Floats, own: float, n_nodes: int) -> None:
        self.added = sum_by_node(places, precision[:, None], n_nodes)[:, 0]
        if not (1.0 + own * self.added > 0.0).all():
            raise NotPositiveDefiniteError("negative sites outweigh the prior", -1)
        self.shrink = 1.0 / (1.0 + own * self.added)
        self.on_shared = self.added * self.shrink


class _AreaSolution(Solution):
    """Means with Δ⁻α/s as well, at the nodes in the order of the factor; shape (n_nodes, k)."""

    def __init__(self, alpha: Floats, mean: Floats, by_node: Floats, structured: Floats) -> None:
        super().__init__(alpha, mean)
        self.by_node, self.structured = by_node, structured


class IntrinsicConditioned(Conditioned):
    """Through the factor of g's precision."""

    def __init__(
        self, process: IntrinsicProcess, group: Group, precision: Floats, memory: IntrinsicFactor | None
    ) -> None:
        super().__init__(group, precision)
        self._process, self._structure = process, process.structure
        self._places = process.structure.rank[group.nodes]
        self._sites = _AreaSites(self._places, precision, process.own, process.structure.n_nodes)
        self.factor = IntrinsicFactor(process.structure, process.shared * self._sites.on_shared, memory)
        own = -float(np.log(self._sites.shrink).sum())
        self._log_determinant = own + self.factor.log_determinant - process.structure.log_determinant
        # Taken now, while the memory is ours.
        self._diagonal = process.shared * self.factor.diagonal_ordered()

    @property
    def log_determinant(self) -> float:
        """Log det (I + K diag(η))."""
        return self._log_determinant

    def solve(self, potentials: Floats) -> _AreaSolution:
        """Means under the sites, for potentials of shape (n, k)."""
        process, shrink = self._process, self._sites.shrink[:, None]
        right = sum_by_node(self._places, potentials, self._structure.n_nodes) * shrink
        unit = right.copy()  # Δ⁻α / s times w₁ is the mean of g
        self.factor.solve_ordered(unit)
        g = process.shared[:, None] * unit
        alpha = right - self._sites.on_shared[:, None] * g
        mean = (g + process.own * alpha)[self._places]
        return _AreaSolution(potentials - self.precision[:, None] * mean, mean, alpha, g)

    @cached_property
    def _variance(self) -> Floats:
        shrink = self._sites.shrink
        return np.asarray(self._process.own * shrink + shrink**2 * self._diagonal)

    def variance(self) -> Floats:
        """Variances of f(x) under the sites; shape (n,)."""
        return self._variance[self._places]

    def used(self) -> float:
        """Σ η var f(x)."""
        return float(self._sites.added @ self._variance)

    def gradient(self, solution: _AreaSolution, weights: Floats, count: float = 1.0) -> Floats:
        """See `Conditioned.gradient`: the derivatives of K are those of w₁ Δ⁻/s and of w₂ I."""
        own, shared = self._process.own, self._sites.on_shared
        alpha, g = solution.by_node, solution.structured
        in_shared = count * float(shared @ self._diagonal) - float(np.sum(weights * (alpha.T @ g)))
        in_own = count * float(shared @ (1.0 - shared * self._diagonal)) - float(np.sum(weights * (alpha.T @ alpha)))
        return self._process.chain(0.5 * in_shared, 0.5 * own * in_own)


class AreaPredictive(Predictive):
    """The process under sites at any area, and its two parts by themselves.

    Parameters
    ----------
    structure : IntrinsicStructure
        The Laplacian and its components.
    shared, own : float
        w₁ and w₂.
    observed : ndarray of int64, shape (n,)
        Positions of the observed nodes.
    precision : ndarray, shape (n,)
        η.
    """

    def __init__(
        self, structure: IntrinsicStructure, shared: float, own: float, observed: Longs, precision: Floats
    ) -> None:
        self._structure, self._own = structure, own
        self._shared = shared / structure.scale
        self._observed = observed
        self._sites = _AreaSites(observed, precision, own, structure.n_nodes)  # in the order of the nodes
        self._added = (self._shared * self._sites.on_shared)[structure.analysis.permutation]

    @cached_property
    def _factor(self) -> IntrinsicFactor:
        return IntrinsicFactor(self._structure, self._added)

    @cached_property
    def _diagonal(self) -> Floats:
        """Variances of g; shape (n_nodes,)."""
        return self._shared * self._factor.diagonal()

    def _means(self, potentials: Floats) -> tuple[Floats, Floats]:
        """Means of g and of e at all nodes; each of shape (n_nodes, k)."""
        right = sum_by_node(self._observed, potentials, self._structure.n_nodes) * self._sites.shrink[:, None]
        g = self._shared[:, None] * self._factor.solve(right)
        return g, self._own * (right - self._sites.on_shared[:, None] * g)

    def means(self, nodes: Longs, potentials: Floats) -> Floats:
        """Means of f at some nodes; shape (n_nodes, k)."""
        g, e = self._means(potentials)
        return np.asarray((g + e)[nodes])

    def part_means(self, potentials: Floats) -> tuple[Floats, Floats]:
        """Means of what neighbours share and of what areas have by themselves, at all nodes; (n_nodes, k) each."""
        return self._means(potentials)

    def part_variances(self) -> tuple[Floats, Floats]:
        """Variances of these; shape (n_nodes,) each."""
        # e = f − g: given g, it has mean −w₂h̃g, apart from the data, and variance w₂/(1 + w₂h).
        sites = self._sites
        return self._diagonal, self._own * sites.shrink + (self._own * sites.on_shared) ** 2 * self._diagonal

    def variances(self, nodes: Longs) -> Floats:
        """Variances of f at some nodes; shape (n_nodes,)."""
        shrink = self._sites.shrink
        return np.asarray((self._own * shrink + shrink**2 * self._diagonal)[nodes])

    def covariances(self, nodes: Longs) -> Floats:
        """Covariance of f at some nodes; shape (n_nodes, n_nodes)."""
        n, shrink = self._structure.n_nodes, self._sites.shrink
        found = np.empty((len(nodes), len(nodes)))
        for start in range(0, len(nodes), _AT_ONCE):
            part = slice(start, min(start + _AT_ONCE, len(nodes)))
            right = np.zeros((n, part.stop - part.start))
            right[nodes[part], np.arange(right.shape[1])] = 1.0
            found[:, part] = (self._shared[:, None] * self._factor.solve(right))[nodes]
        found *= shrink[nodes][:, None] * shrink[nodes]
        found += np.where(nodes[:, None] == nodes, self._own * shrink[nodes], 0.0)
        return 0.5 * (found + found.T)

    def deviations(self, n_samples: int, nodes: Longs, rng: np.random.Generator) -> Floats:
        """Draws of f minus its mean; shape (n_samples, n_nodes)."""
        shrink, found = self._sites.shrink, np.empty((n_samples, len(nodes)))
        for start in range(0, n_samples, _AT_ONCE):
            part = slice(start, min(start + _AT_ONCE, n_samples))
            count = part.stop - part.start
            g = np.sqrt(self._shared)[:, None] * self._factor.draw(count, rng)
            white = rng.standard_normal((self._structure.n_nodes, count))
            f = shrink[:, None] * g + np.sqrt(self._own * shrink)[:, None] * white
            found[part] = f[nodes].T
        return found
