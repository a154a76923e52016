"""The Markov engine: Matérn kernels of integer smoothness, through sparse precisions.

Other smoothnesses, and those that are learned, are `FractionalEngine`'s.

Its coordinates are log κ and log a: in the amplitude an evaluation needs no trace of Q⁻¹, so it stands in for the
variance unless something is said about that: it is held, bounded, or has a prior.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from math import comb
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from graphmatern._validation import FaultList
from graphmatern.errors import KernelError, ResourceError
from graphmatern.inference.learning.parameters import START_LENGTHSCALES, Coordinate
from graphmatern.inference.learning.rehearsal import is_large, part_of_graph
from graphmatern.inference.markov.areal import areal_engine
from graphmatern.inference.markov.cost import ROUGHLY, is_learned, prefers_solves, smoothnesses
from graphmatern.inference.markov.precision import markov_precision
from graphmatern.inference.markov.process import MarkovProcess, Workspace
from graphmatern.inference.markov.scale import lengthscale_coordinate, moves_variance, scale_coordinate
from graphmatern.inference.process import Engine
from graphmatern.kernels import ArealKernel, Diffusion, Matern
from graphmatern.sparse import power_nnz

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from graphmatern.inference.learning.problem import Problem
    from graphmatern.inference.observations import Group
    from graphmatern.kernels import Kernel

    Floats = NDArray[np.float64]

__all__ = ["MarkovEngine"]

_OPEN_SECONDS = 5.0  # of one factorisation, for smoothnesses that are only tried
_OPERATIONS_PER_SECOND = 3e10
_LOG_RANGE = 30.0  # of the amplitude, either way; the variance has bounds of its own
_ACCURATE = 1e-4  # estimated relative error up to which a smoothness may be chosen unasked


class MarkovEngine(Engine):
    """Exact inference for one integer smoothness.

    Parameters
    ----------
    problem : Problem
        What to fit.
    groups : list of Group
        The observations.
    nu : int
        Smoothness.
    """

    name: ClassVar[str] = "markov"
    to_gain: float = 1e-7

    def __init__(self, problem: Problem, groups: list[Group], nu: int) -> None:
        self._problem, self.groups = problem, groups
        self._given: Matern | None = problem.kernel  # type: ignore[assignment]
        self._open = len(smoothnesses(problem.kernel)) > 1
        graph, normalized = problem.graph, bool(problem.normalized)
        if self._open and nu > 1:
            _check_time(problem, nu)
        self.precision = markov_precision(graph, nu, normalized=normalized, n_threads=problem.n_threads)
        self.workspace = Workspace(self.precision)
        self._smoother: Any = None
        held = set() if self._given is None else set(self._given.fixed)
        self._in_variance = moves_variance(problem, held)
        # The amplitude, named after what it stands in for, around one that gives a variance near 1.
        diagonal = self.precision.mean_diagonal
        centre = nu * float(np.log(self.precision.shift(START_LENGTHSCALES[1]) + diagonal))
        scale = Coordinate("variance", centre - _LOG_RANGE, centre + _LOG_RANGE)
        every = [
            None if "lengthscale" in held else self._lengthscale(),
            scale_coordinate(problem, held, scale),
        ]
        self._free = np.array([one is not None for one in every])
        self.coordinates = [one for one in every if one is not None]
        self._dense = prefers_solves(problem, groups, self.precision.analysis.cost)

    @classmethod
    def rehearsal(cls, problem: Problem) -> Problem | None:
        """Part of a large graph, roughly where smoothnesses are approximate."""
        # With several fields at every node, evaluations outweigh the analysis.
        part = part_of_graph(problem, beside=not is_learned(problem)) if is_large(problem) else None
        return None if part is None else replace(part, relative_error=max(problem.relative_error, ROUGHLY))

    @classmethod
    def candidates(cls, problem: Problem, groups: list[Group]) -> Sequence[Callable[[], Engine]]:
        """One engine for each integer smoothness that is tried, or one for all others."""
        from graphmatern.inference.markov.fractional_engine import FractionalEngine

        if isinstance(problem.kernel, ArealKernel):
            return areal_engine(problem).candidates(problem, groups)
        if problem.kernel is not None and not isinstance(problem.kernel, Matern):
            faults = FaultList("nothing was fitted", KernelError)
            rule = "must be Matérn, or a kernel of areas, for engine='markov'"
            remedy = "Use Matern, or engine='moments' or 'spectral' for other kernels."
            if isinstance(problem.kernel, Diffusion):
                remedy = (
                    "exp(−κ²λ/2) falls faster than any sum of few Markov fields: use Matern with a larger nu, or "
                    "engine='moments' or 'spectral'."
                )
            raise faults.raise_now("kernel", rule, repr(problem.kernel), remedy)
        possible = smoothnesses(problem.kernel, problem.rules)
        if is_learned(problem):
            return FractionalEngine.candidates(problem, groups)
        return [lambda nu=nu: cls(problem, groups, nu) for nu in possible]  # type: ignore[misc]

    # ------------------------------------------------------------------ coordinates
    @cached_property
    def _base(self) -> Floats:
        """Where the kernel lies; on large graphs this takes a factorisation, and is not always asked for."""
        values = {} if self._given is None else self._given.values()
        lengthscale = values.get("lengthscale", START_LENGTHSCALES[0])
        if self._free[0] and self._problem.search.optimizer is not None:
            bounds = self.coordinates[0]
            lengthscale = float(np.clip(lengthscale, *np.exp([bounds.low, bounds.high])))
        return self._point(lengthscale, values.get("variance", 1.0))

    @property
    def start(self) -> Floats:  # type: ignore[override]
        """Where the kernel's own values lie; shape (n_coordinates,)."""
        return np.asarray(self._base[self._free])

    def _point(self, lengthscale: float, variance: float) -> Floats:
        """Log κ, and log σ² or log a, whichever is moved; shape (2,)."""
        log_kappa = float(np.log(lengthscale))
        scale = variance if self._in_variance else variance / self.unit_variance(log_kappa)
        return np.array([log_kappa, np.log(scale)])

    def _lengthscale(self) -> Coordinate:
        """Bounds and prior of the lengthscale, which rounding keeps from becoming too long."""
        longest, where = self.precision.longest_lengthscale(), f" (ν = {self.precision.nu})"
        remedy = "Use a smaller ν, or engine='spectral'."
        return lengthscale_coordinate(self._problem.rules, longest, where, remedy)

    def point(self, position: Floats) -> Floats:
        """Log κ and log a at some coordinates; shape (2,)."""
        found = np.empty(2) if self._free.all() else self._base.copy()
        found[self._free] = position
        if self._in_variance:
            found[1] -= np.log(self.unit_variance(found[0]))
        return found

    def at(self, position: Floats) -> MarkovProcess:
        """Return the process at some coordinates."""
        point = self.point(position)
        # One by one, as `unit_variance` does it: the same shift to the last bit is not factorised anew.
        lengthscale, amplitude = float(np.exp(point[0])), float(np.exp(point[1]))

        def chain(gradient: Floats) -> Floats:
            if self._in_variance and self._free[0]:
                # The amplitude follows the lengthscale, so that the average variance stays.
                gradient[0] -= gradient[1] * self.unit_variance_slope(point[0])
            return np.asarray(gradient[self._free])

        return MarkovProcess(self.workspace, self.groups, lengthscale, amplitude, chain, dense=self._dense)

    def other_starts(self) -> list[Floats]:
        """Typical lengthscales within the bounds, where it is learned."""
        if not self._free[0]:
            return []
        bounds = self.coordinates[0]
        variance = 1.0 if self._free[1] or self._given is None else self._given.values()["variance"]
        lengthscales = dict.fromkeys(
            float(np.exp(np.clip(np.log(k), bounds.low, bounds.high))) for k in START_LENGTHSCALES
        )
        return [self._point(lengthscale, variance)[self._free] for lengthscale in lengthscales]

    # ------------------------------------------------------------------ the prior variance
    def unit_variance(self, log_lengthscale: float) -> float:
        """Average prior variance over the nodes at amplitude 1: tr(A^(−½) M^(−ν) A^(−½)) / N."""
        lengthscale = float(np.exp(log_lengthscale))
        if self.precision.shifted is self.precision.polynomial:  # ν = 1 and no masses: Q is M
            return self.workspace.shifted(self.precision.shift(lengthscale)).trace / self.precision.graph.n_nodes
        _, inverse = self.workspace.posterior(self.precision.coefficients(lengthscale, 1.0))
        return float(inverse.diagonal_ordered().mean())

    def unit_variance_slope(self, log_lengthscale: float) -> float:
        """Derivative of log `unit_variance` in log κ.

        d/dc tr(A^(−½) M^(−ν) A^(−½)) = −ν tr(A^(−½) M^(−ν−1) A^(−½)): the average variance of the next smoothness, at
        the same shift c = 2ν/κ².
        """
        precision = self.precision
        nu, c = precision.nu, precision.shift(float(np.exp(log_lengthscale)))
        if self._smoother is None:
            self._smoother = precision.next_polynomial()
        lower = self._smoother.lower(np.array([comb(nu + 1, j) * c ** (nu + 1 - j) for j in range(nu + 2)]))
        smoother = float(self._smoother.analysis.factorize_lower(lower).diagonal_of_inverse().mean())
        return 2.0 * c * nu * smoother / self.unit_variance(log_lengthscale)

    def average_variance(self, position: Floats) -> float:
        """Average prior variance over the nodes."""
        if self._given is not None and "variance" in self._given.fixed and self._in_variance:
            return self._given.values()["variance"]  # what is held stays to the last digit
        log_kappa, log_a = self.point(position)
        return float(np.exp(log_a) * self.unit_variance(log_kappa))

    def kernel(self, position: Floats) -> Kernel:
        """Return the kernel at some coordinates."""
        fixed = () if self._given is None else tuple(name for name in self._given.fixed if name != "nu")
        lengthscale = float(np.exp(self.point(position)[0]))
        return Matern(self.precision.nu, lengthscale, self.average_variance(position), fixed=("nu", *fixed))

    def jacobian(self, position: Floats) -> Floats:
        """Derivatives of log lengthscale and log variance in the coordinates; shape (n_free, n_free)."""
        found = np.eye(2)
        if not self._in_variance and self._free[0]:
            found[1, 0] = self.unit_variance_slope(self.point(position)[0])
        return np.asarray(found[np.ix_(self._free, self._free)])

    def values_of(self, positions: Floats) -> dict[str, Floats]:
        """Values of lengthscale and variance at some positions; see `Engine.values_of`."""
        found = super().values_of(positions)
        if not self._in_variance and "variance" in found:
            found["variance"] = np.array([self.average_variance(position) for position in positions])
        return found

    @property
    def distinguished_by(self) -> tuple[str, float] | None:
        """The smoothness, where several are tried."""
        return ("nu", float(self.precision.nu)) if self._open else None

    def log_prior(self) -> float:
        """Log prior of the smoothness, where several are tried."""
        prior = self._problem.rules.priors.get("nu") if self._open else None
        return 0.0 if prior is None else -prior.penalty(float(np.log(self.precision.nu)))[0]

    # ------------------------------------------------------------------ the fit
    def bounded(self, position: Floats) -> Self | None:
        """Return an engine that moves the variance itself, where the amplitude has taken it out of its bounds."""
        if self._in_variance or len(self.coordinates) < 2 or self._problem.likelihood.scale_invariant:
            return None
        low, high = self._problem.rules.allowed("variance")
        if low <= self.average_variance(position) <= high:
            return None
        return type(self)(replace(self._problem, in_variance=True), self.groups, self.precision.nu)

    def release(self) -> None:
        """Give back the memory of factors and selected inverses."""
        self.workspace.release()
        self._smoother = None

    def trusted(self, position: Floats) -> bool:
        """Whether an optimum of this smoothness is accurate enough to be preferred to another's."""
        return self.precision.relative_error(float(np.exp(self.point(position)[0]))) < _ACCURATE

    def report(self, position: Floats) -> dict[str, Any]:
        """Nothing, but warn where rounding shows, unless the smoothness was chosen with that in mind."""
        if not (self._open and self.trusted(position)):
            self.precision.warn_if_inaccurate(float(np.exp(self.point(position)[0])))
        return {}


def _check_time(problem: Problem, nu: int) -> None:
    """Refuse a smoothness that is only tried, not asked for, where its factorisations would take long."""
    graph, normalized = problem.graph, bool(problem.normalized)
    # A factor with h entries in n columns takes at least h²/n operations, and has no fewer entries than Δ^ν.
    most = int(2.0 * np.sqrt(_OPEN_SECONDS * _OPERATIONS_PER_SECOND * graph.n_nodes))
    fits = power_nnz(graph.laplacian(normalized), nu, limit=most) < most
    if fits:
        precision = markov_precision(graph, nu, normalized=normalized, n_threads=problem.n_threads)
        fits = precision.analysis.cost.seconds <= _OPEN_SECONDS
    if not fits:
        raise ResourceError(f"ν = {nu} was not tried because it would take long here. To use it, set it in the kernel.")
