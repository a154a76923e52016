"""The Markov engine for smoothnesses that are not integers, or are learned.

Its coordinates are log ν, log κ and a logarithm that stands in for the variance: z = log a − ν log(c + d), c = 2ν/κ², d
the mean of the Laplacian's diagonal. At fixed z the average variance changes little with ν and κ, and an evaluation
needs no trace of K. Where something is said about the variance, it is moved itself.

The number m of fields is chosen for the lengthscale at which a search begins, with room to spare, and stays the same in
that search; the interval [c, cR] on which m fields keep the relative error promised is as wide as possible. An optimum
beyond it makes for another search, with more fields. On large graphs a search with few fields comes first: their number
p counts with p³.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from graphmatern.inference.learning.parameters import START_LENGTHSCALES, Coordinate
from graphmatern.inference.markov.cost import ROUGHLY, begins_roughly, prefers_solves
from graphmatern.inference.markov.determinants import Average
from graphmatern.inference.markov.engine import MarkovEngine
from graphmatern.inference.markov.fractional import block_precision
from graphmatern.inference.markov.fractional_process import BlockProcess, BlockWorkspace
from graphmatern.inference.markov.pencil import matern_pencil
from graphmatern.inference.markov.rational import MOST_TERMS, largest_error, terms_for, widest_ratio
from graphmatern.inference.markov.scale import lengthscale_coordinate, moves_variance, scale_coordinate
from graphmatern.inference.process import Engine
from graphmatern.kernels import Matern

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from graphmatern.inference.learning.problem import Problem
    from graphmatern.inference.markov.pencil import Pencil
    from graphmatern.inference.observations import Group
    from graphmatern.inference.process import Conditioned
    from graphmatern.kernels import Kernel

    Floats = NDArray[np.float64]

__all__ = ["FractionalEngine"]

_LARGEST_NU = 6.0
_LARGEST_RATIO = 1e9  # of (c + λ_max) / c: beyond, rounding shows
_LOG_RANGE = 30.0  # of z, either way; the variance has bounds of its own
_TYPICAL_UNKNOWNS = 7  # at every node
_ROOM = 1.5  # times the lengthscale at which a search begins, for which fields are chosen
_LITTLE_ROOM = 1.1  # where a rough search has just ended
_MORE_ROOM = 3.0  # where no second search follows
_PERTURBATION = 1e-2  # of the sites, for derivatives of the average variance


@lru_cache(maxsize=64)
def _pencil(nu: float, n_terms: int, ratio: float) -> Pencil:
    return matern_pencil(nu, n_terms, ratio)


class FractionalEngine(Engine):
    """Inference for any smoothness, fixed or learned, with a stated error of the covariance.

    Parameters
    ----------
    problem : Problem
        What to fit; ``settings["n_fields"]`` is m where an earlier fit has chosen it.
    groups : list of Group
        The observations.
    """

    name: ClassVar[str] = "markov"
    to_gain: float = 1e-6

    def __init__(self, problem: Problem, groups: list[Group]) -> None:
        self._problem, self.groups = problem, groups
        self._given: Matern | None = problem.kernel  # type: ignore[assignment]
        self.relative_error = problem.relative_error
        self.rough = False
        graph, normalized = problem.graph, bool(problem.normalized)
        self.precision = block_precision(graph, normalized=normalized, n_threads=problem.n_threads)
        self.workspace = BlockWorkspace(self.precision)
        self._mean_diagonal = float(self.precision.laplacian.diagonal().mean())
        self._terms: int | None = problem.settings.get("n_fields")
        self._ratio = 0.0 if self._terms is None else widest_ratio(self._terms, self.relative_error)
        self._averages: dict[tuple[float, float, int], Average] = {}  # the latest, those with derivatives too
        self._last: tuple[float, float] | None = None  # log ν and log κ of the last process
        held = set() if self._given is None else set(self._given.fixed)
        self._in_variance = moves_variance(problem, held)
        scale = Coordinate("variance", -_LOG_RANGE, _LOG_RANGE)
        every = [
            None if "nu" in held else problem.rules.coordinate("nu", high=float(np.log(_LARGEST_NU))),
            None if "lengthscale" in held else self._lengthscale(),
            scale_coordinate(problem, held, scale),
        ]
        self._free = np.array([one is not None for one in every])
        self.coordinates = [one for one in every if one is not None]
        self._dense = prefers_solves(problem, groups, self.precision.shifted.analysis.cost, _TYPICAL_UNKNOWNS)

    @classmethod
    def candidates(cls, problem: Problem, groups: list[Group]) -> Sequence[Callable[[], FractionalEngine]]:
        """The engine itself: `MarkovEngine.candidates` decides where it serves."""
        return [lambda: cls(problem, groups)]

    # ------------------------------------------------------------------ coordinates
    def _lengthscale(self) -> Coordinate:
        """Bounds and prior of the lengthscale, which rounding keeps from becoming too long."""
        nu = 1.0 if self._given is None else self._given.values()["nu"]
        widest = min(_LARGEST_RATIO, widest_ratio(MOST_TERMS, self.relative_error))
        largest = max(self.precision.largest, 1e-300)
        longest = float(np.sqrt(2.0 * nu * widest / largest))
        return lengthscale_coordinate(self._problem.rules, longest, "", "Or use engine='spectral'.")

    @cached_property
    def _base(self) -> Floats:
        """Where the kernel lies: log ν, log κ, and log σ² or z, whichever is moved; shape (3,)."""
        values = {} if self._given is None else self._given.values()
        return self._point(self._base_logs[0], self._base_logs[1], values.get("variance", 1.0))

    @cached_property
    def _base_logs(self) -> Floats:
        """Log ν and log κ where the kernel lies; shape (2,)."""
        values = {} if self._given is None else self._given.values()  # where it was left open, ν = 1.5
        wanted = values.get("nu", 1.5), values.get("lengthscale", START_LENGTHSCALES[0])
        logs = np.log(wanted)
        if self._problem.search.optimizer is not None:
            for place, one in zip(np.flatnonzero(self._free), self.coordinates, strict=True):
                if place < 2:
                    logs[place] = np.clip(logs[place], one.low, one.high)
        return np.asarray(logs)

    def _point(self, log_nu: float, log_kappa: float, variance: float) -> Floats:
        unit = 1.0 if self._in_variance else self.unit_variance(log_nu, log_kappa)
        return np.array([log_nu, log_kappa, np.log(variance / unit)])

    @property
    def start(self) -> Floats:  # type: ignore[override]
        """Where the kernel's own values lie; shape (n_coordinates,)."""
        return np.asarray(self._base[self._free])

    def point(self, position: Floats) -> Floats:
        """Log ν, log κ and z at some coordinates; shape (3,)."""
        found = np.empty(3) if self._free.all() else self._base.copy()
        found[self._free] = position
        if self._in_variance:
            found[2] -= np.log(self.unit_variance(found[0], found[1]))
        return found

    def _shift(self, log_nu: float, log_kappa: float) -> float:
        """C = 2ν/κ²."""
        return float(2.0 * np.exp(log_nu - 2.0 * log_kappa))

    def _pencil_at(self, log_nu: float, log_kappa: float) -> Pencil:
        if self._terms is None:
            self._choose_terms(log_nu, log_kappa, _MORE_ROOM)
        assert self._terms is not None
        return _pencil(float(np.exp(log_nu)), self._terms, self._ratio)

    def at(self, position: Floats) -> BlockProcess:
        """Return the process at some coordinates."""
        log_nu, log_kappa, z = self.point(position)
        nu, c = float(np.exp(log_nu)), self._shift(log_nu, log_kappa)
        scale = float(np.exp(z + nu * np.log1p(self._mean_diagonal / c)))

        def chain(gradient: Floats) -> Floats:
            found = self._chain(gradient, nu, c)
            if self._in_variance and self._free[:2].any():
                # z follows ν and κ, so that the average variance stays.
                found[:2] -= found[2] * self.unit_variance_slopes(log_nu, log_kappa)
            return np.asarray(found[self._free])

        self._last = float(log_nu), float(log_kappa)
        pencil = self._pencil_at(log_nu, log_kappa)
        return BlockProcess(self.workspace, self.groups, pencil, c, scale, chain, dense=self._dense)

    def _chain(self, gradient: Floats, nu: float, c: float) -> Floats:
        """Derivatives in log ν, log κ and z, from those in ν, log c and log s = z + ν log(1 + d/c)."""
        in_nu, in_shift, in_scale = gradient
        share = self._mean_diagonal / (c + self._mean_diagonal)
        lift = float(np.log1p(self._mean_diagonal / c))
        return np.array(
            [
                nu * in_nu + in_shift + nu * in_scale * (lift - share),
                -2.0 * in_shift + 2.0 * nu * share * in_scale,
                in_scale,
            ]
        )

    # ------------------------------------------------------------------ the number of fields
    def _needed(self, log_nu: float, log_kappa: float) -> float:
        """(c + λ_max) / c."""
        return 1.0 + self.precision.largest / self._shift(log_nu, log_kappa)

    def _choose_terms(self, log_nu: float, log_kappa: float, room: float) -> None:
        """Take as many fields as lengthscales up to ``room`` times this one need."""
        needed = self._needed(log_nu, log_kappa + np.log(room)) if self._free[1] else self._needed(log_nu, log_kappa)
        error = max(self.relative_error, ROUGHLY) if self.rough else self.relative_error
        widest = min(_LARGEST_RATIO, widest_ratio(MOST_TERMS, error))
        self._terms = terms_for(min(needed, widest), error)
        self._ratio = widest_ratio(self._terms, error)

    def prepare(self, position: Floats) -> None:
        """Choose the number of fields for a search from here."""
        log_nu, log_kappa = self._without_scale(position)
        gaussian = self._problem.likelihood.gaussian
        self._choose_terms(log_nu, log_kappa, _ROOM if gaussian else _MORE_ROOM)

    def begin_roughly(self) -> None:
        """Take few fields for a first search on a large graph."""
        self.rough = begins_roughly(self._problem)

    def refine(self, conditioned: Callable[[], Sequence[tuple[Conditioned, int]]]) -> bool:
        """Whether the last search was rough, or ended beyond the lengthscales for which fields were chosen."""
        del conditioned
        if self._last is None or (not self.rough and self._needed(*self._last) <= self._ratio):
            return False
        room = _LITTLE_ROOM if self.rough else _ROOM
        self.rough = False
        self.workspace.release()  # before more is asked for
        self._choose_terms(*self._last, room)
        return True

    def _without_scale(self, position: Floats) -> tuple[float, float]:
        found = np.append(self._base_logs, 0.0)
        found[self._free] = position
        return float(found[0]), float(found[1])

    # ------------------------------------------------------------------ the prior variance
    def unit_variance(self, log_nu: float, log_kappa: float) -> float:
        """Average prior variance over the nodes at z = 0."""
        average = self._average(log_nu, log_kappa, slopes=False).value
        c = self._shift(log_nu, log_kappa)
        return average * float(np.exp(np.exp(log_nu) * np.log1p(self._mean_diagonal / c)))

    def unit_variance_slopes(self, log_nu: float, log_kappa: float) -> Floats:
        """Derivatives of log `unit_variance` in log ν and log κ; shape (2,)."""
        average = self._average(log_nu, log_kappa, slopes=True)
        slopes = np.array([average.in_nu / average.value, average.in_shift / average.value, 1.0])
        return self._chain(slopes, float(np.exp(log_nu)), self._shift(log_nu, log_kappa))[:2]

    def _average(self, log_nu: float, log_kappa: float, *, slopes: bool) -> Average:
        """Average of 1/q over the nodes, its derivatives where they are asked for."""
        pencil, c = self._pencil_at(log_nu, log_kappa), self._shift(log_nu, log_kappa)
        key = float(log_nu), float(log_kappa), 2 * int(self._terms or 0) + slopes
        if key not in self._averages:
            found = self.workspace.determinants.average(pencil, c, slopes=slopes)
            if found is None:
                found = self._average_through_blocks(pencil, c, slopes=slopes)
            while len(self._averages) > 3:
                del self._averages[next(iter(self._averages))]
            self._averages[key] = found
        return self._averages[key]

    def _average_through_blocks(self, pencil: Pencil, c: float, *, slopes: bool) -> Average:
        """The same from the selected inverse of the prior precision.

        With W = w wᵀ ⊗ diag(1/m), tr J⁻¹W changes by −tr J⁻¹ ∂J J⁻¹W, which is the derivative in ε of
        tr (J + εW)⁻¹ ∂J at ε = 0: by differences of traces, of sixth order, as they are smooth in ε.
        """
        inverse_mass = 1.0 / self.precision.root_mass**2
        field = self.workspace.field(pencil, c, np.zeros(len(inverse_mass)))
        value = float(np.mean((pencil.white + field.output_variances()) * inverse_mass))
        if not slopes:
            return Average(value, 0.0, 0.0)
        step = _PERTURBATION / float(inverse_mass.max())
        weighted = field.traces(inverse_mass)[1]
        in_nu = pencil.white_slope * float(inverse_mass.sum())
        in_nu += 2.0 * float(pencil.output_slope @ weighted @ pencil.output)
        in_shift = 0.0
        for factor, weight in ((-3, -1.0), (-2, 9.0), (-1, -45.0), (1, 45.0), (2, -9.0), (3, 1.0)):
            plain, _, mixed = self.workspace.field(pencil, c, factor * step * inverse_mass).traces(inverse_mass)
            own = np.sum(plain * pencil.constant_slope) + np.sum(mixed * pencil.linear_slope)
            in_nu += weight * float(own) / (60.0 * step)
            in_shift -= weight * float(np.sum(mixed * pencil.linear)) / (60.0 * step)
        return Average(value, in_nu / len(inverse_mass), in_shift / len(inverse_mass))

    def average_variance(self, position: Floats) -> float:
        """Average prior variance over the nodes."""
        if self._given is not None and "variance" in self._given.fixed and self._in_variance:
            return self._given.values()["variance"]  # what is held stays to the last digit
        log_nu, log_kappa, z = self.point(position)
        return float(np.exp(z) * self.unit_variance(log_nu, log_kappa))

    def kernel(self, position: Floats) -> Kernel:
        """Return the kernel at some coordinates."""
        fixed = () if self._given is None else tuple(self._given.fixed)
        log_nu, log_kappa, _ = self.point(position)
        values = float(np.exp(log_nu)), float(np.exp(log_kappa))
        if self._given is not None:  # what is held stays to the last digit
            held = self._given.values()
            values = (
                held["nu"] if "nu" in fixed else values[0],
                held["lengthscale"] if "lengthscale" in fixed else values[1],
            )
        return Matern(*values, self.average_variance(position), fixed=fixed)

    def jacobian(self, position: Floats) -> Floats:
        """Derivatives of the logarithms of ν, κ and σ² in the coordinates; shape (n_free, n_free)."""
        found = np.eye(3)
        if not self._in_variance and self._free[:2].any():
            log_nu, log_kappa, _ = self.point(position)
            found[2, :2] = self.unit_variance_slopes(log_nu, log_kappa)
        return np.asarray(found[np.ix_(self._free, self._free)])

    def values_of(self, positions: Floats) -> dict[str, Floats]:
        """Values of the parameters at some positions; see `Engine.values_of`."""
        found = super().values_of(positions)
        if not self._in_variance and "variance" in found:
            found["variance"] = np.array([self.average_variance(position) for position in positions])
        return found

    # ------------------------------------------------------------------ the fit
    def simpler(self) -> list[Callable[[], Engine]]:
        """Engines of integer smoothness: those within bounds, or the nearest where it is held."""
        if self._problem.search.optimizer is None or not self._free[1:].any():
            return []
        if self._free[0]:
            low, high = self._problem.rules.allowed("nu")
            possible = [nu for nu in (1, 2, 3) if low <= nu <= high] or [1]
        else:
            possible = [int(np.clip(np.round(np.exp(self._base_logs[0])), 1, 3))]
        return [lambda nu=nu: MarkovEngine(self._problem, self.groups, nu) for nu in possible]  # type: ignore[misc]

    def start_from(self, other: Engine, position: Floats) -> Floats:
        """Coordinates like those of an engine of integer smoothness, with the same correlations at long distances."""
        assert isinstance(other, MarkovEngine)
        nearest = float(other.precision.nu)
        found = np.append(self._base_logs, 0.0) if self._free[2] else self._base.copy()
        if self._free[0]:
            found[0] = np.clip(np.log(nearest), self.coordinates[0].low, self.coordinates[0].high)
        log_kappa, log_a = other.point(position)
        if self._free[1]:
            bounds = self.coordinates[int(self._free[0])]
            found[1] = np.clip(log_kappa + 0.5 * (found[0] - np.log(nearest)), bounds.low, bounds.high)
        if self._free[2] and self._in_variance:
            found[2] = np.log(other.average_variance(position))
        elif self._free[2]:
            shift = 2.0 * nearest * np.exp(-2.0 * log_kappa)
            found[2] = log_a - nearest * np.log(shift + self._mean_diagonal)
        return np.asarray(found[self._free])

    def bounded(self, position: Floats) -> FractionalEngine | None:
        """Return an engine that moves the variance itself, where z has taken it out of its bounds."""
        if self._in_variance or not self._free[2] or self._problem.likelihood.scale_invariant:
            return None
        low, high = self._problem.rules.allowed("variance")
        if low <= self.average_variance(position) <= high:
            return None
        return type(self)(replace(self._problem, in_variance=True), self.groups)

    def release(self) -> None:
        """Give back the memory of factors and selected inverses."""
        self.workspace.release()

    def report(self, position: Floats) -> dict[str, Any]:
        """Number of fields, and the relative error of the covariance here."""
        log_nu, log_kappa, _ = self.point(position)
        self._pencil_at(log_nu, log_kappa)
        assert self._terms is not None
        needed = min(max(self._needed(log_nu, log_kappa), 2.0), 1e12)
        return {"n_fields": self._terms, "relative_error": largest_error(self._terms, max(self._ratio, needed))}
