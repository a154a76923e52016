"""The search for the parameters of one engine: where it starts, when it starts again, and where it ends."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from graphmatern.errors import KernelError, NumericalError, ResourceError
from graphmatern.inference.learning.optimize import Optimum, find_minimum, settle
from graphmatern.inference.learning.parameters import information_with_priors, with_priors
from graphmatern.inference.sites.gaussian import GaussianObjective
from graphmatern.inference.sites.objective import SiteObjective
from graphmatern.inference.sites.recorded import RecordedObjective
from graphmatern.inference.threads import small_matrix_threads

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from graphmatern.inference.learning.optimize import Hessian
    from graphmatern.inference.learning.parameters import Coordinate, Objective
    from graphmatern.inference.learning.problem import Known, Problem, Search
    from graphmatern.inference.process import Engine

    Floats = NDArray[np.float64]

__all__ = ["objective_of", "ranked", "search_candidate", "search_minimum"]

_RESTART_SPREAD = 1.5  # of the unconstrained coordinates: a factor of 4 or so either way
_ALL_NOISE = 0.1  # prior variance, relative to the noise, at which a search may have missed a better optimum
_LESS = 3.0  # by which the logarithm of the noise is lowered to look for it
_ENOUGH_TO_START = 1e-2  # nats to be gained at which a search for a start may stop
_ENOUGH_NEARBY = 2e-4  # at which one with a good picture of the curvature may
_ROUNDS = 4  # restarts of the sites, at most


def objective_of(engine: Engine, problem: Problem, known: Known | None) -> Any:
    """The negative log evidence: exact for Gaussian noise, else its bound at the best sites."""
    if problem.exact:
        kept = problem.search.journal is not None and known is None
        return RecordedObjective(engine, problem) if kept else GaussianObjective(engine, problem)
    return SiteObjective(engine, problem, None if known is None else known.sites)


def search_candidate(
    problem: Problem,
    engine: Engine,
    known: Known | None,
    hint: tuple[Floats, Floats | None] | None,
    to_gain: float | None = None,
) -> tuple[Optimum, Any, Objective]:
    """Optimum, objective without and with priors; ``hint`` is an optimum and a curvature to begin with."""
    with small_matrix_threads(engine.matrix_size):
        objective = objective_of(engine, problem, known)
        coordinates = [*engine.coordinates, *objective.coordinates]
        penalised = with_priors(objective, coordinates)
        if known is not None:
            objective.resume(known.optimum.position)
            return known.optimum, objective, penalised
        if problem.search.optimizer is not None and coordinates:
            engine.begin_roughly()
        hessian: Hessian | None = None
        others: list[Floats] = []
        if hint is not None:
            start, hessian = hint
        else:
            simpler = _start_of_simpler(problem, engine)
            start = np.concatenate([engine.start, objective.start]) if simpler is None else simpler
            if simpler is None and problem.search.optimizer is not None and coordinates:
                start, *others = _ranked_starts(penalised, start, engine, problem, objective.start)
        engine.prepare(start[: len(engine.coordinates)])
        scoring = information_with_priors(objective, coordinates)
        hessian = hessian if scoring is None else scoring
        nearby = hint is not None or engine.rough

        def search(start: Floats) -> Optimum:
            return search_minimum(
                penalised,
                start,
                coordinates,
                problem.search,
                hessian=hessian,
                first_step=objective.first_step,
                to_gain=_enough(objective, engine, nearby, to_gain),
                longest_step=engine.longest_step,
            )

        count = 0
        for _ in range(_ROUNDS):
            optimum = search(start)
            count += optimum.n_evaluations
            if others and _is_all_noise(engine, objective, optimum.position):
                # Other starts, with as much noise or less, may lead elsewhere.
                less = np.concatenate([np.zeros(len(engine.coordinates)), np.full(len(objective.start), -_LESS)])
                for rival in (other + change for other in others for change in (0.0, less)):
                    with contextlib.suppress(NumericalError):  # a start may be nonsense, the first may not
                        elsewhere = search(rival)
                        count += elsewhere.n_evaluations
                        optimum = min(optimum, elsewhere, key=lambda one: one.value)
            curvature = optimum.hessian if engine.rough else None
            if not objective.restart(optimum, penalised):
                break
            start, hessian = optimum.position, hessian if curvature is None else curvature
        if engine.estimates:
            # Rounding alone leads conjugate gradients, and with them the search, along slightly different ways.
            settled = settle(penalised, optimum, [(one.low, one.high) for one in coordinates])
            count, optimum = count + settled.n_evaluations - optimum.n_evaluations, settled.ahead()
        if not problem.exact:  # what was approximate on the way is to be exact now
            objective.finish()
            value, gradient = penalised(optimum.position)
            optimum = replace(optimum, value=value, gradient=gradient)
        return replace(optimum, n_evaluations=count), objective, penalised


def _enough(objective: Any, engine: Engine, nearby: bool, to_gain: float | None) -> float:
    """Nats to be gained at which a search may stop: more while evaluations are rough, or the curvature is known."""
    if to_gain is None:
        to_gain = max(_ENOUGH_NEARBY, objective.to_gain) if nearby else objective.to_gain
    return max(to_gain, _ENOUGH_TO_START) if engine.rough else to_gain


def _start_of_simpler(problem: Problem, engine: Engine) -> Floats | None:
    """Where the best of an engine's simpler ones leads; None where there is none."""
    best: Optimum | None = None
    start = None
    for make in engine.simpler():
        with contextlib.suppress(ResourceError, NumericalError, KernelError):
            other = make()
            optimum, _, _ = search_candidate(problem, other, None, None, _ENOUGH_TO_START)
            if best is not None and optimum.value >= best.value:
                break
            best, count = optimum, len(other.coordinates)
            own = engine.start_from(other, optimum.position[:count])
            start = np.concatenate([own, optimum.position[count:]])
            other.release()
    return start


def _is_all_noise(engine: Engine, objective: Any, theta: Floats) -> bool:
    """Whether an optimum explains the data as Gaussian noise and next to nothing else."""
    if not isinstance(objective, GaussianObjective) or not objective.coordinates:
        return False
    return engine.average_variance(theta[:-1]) < _ALL_NOISE * float(np.exp(theta[-1]))


def _ranked_starts(penalised: Objective, own: Floats, engine: Engine, problem: Problem, others: Floats) -> list[Floats]:
    """The kernel's own values and those that suit many data sets, the most likely first: a start is not a promise."""
    low, high = ([getattr(one, end) for one in engine.coordinates] for end in ("low", "high"))
    typical = [np.concatenate([np.clip(start, low, high), others]) for start in engine.other_starts()]
    starts = typical if problem.kernel is None and typical else [own, *typical]
    if len(starts) == 1:
        return starts
    return [start for start, value in ranked(starts, lambda one: penalised(one)[0]) if np.isfinite(value)] or [own]


def ranked(starts: Sequence[Floats], value: Callable[[Floats], float]) -> list[tuple[Floats, float]]:
    """Starts and their values, the least first; those at which numbers break down have infinite ones."""
    values = []
    for start in starts:
        try:
            values.append(value(start))
        except NumericalError:
            values.append(np.inf)
    return [(starts[k], values[k]) for k in np.argsort(values, kind="stable")]


def search_minimum(
    objective: Objective,
    start: Floats,
    coordinates: Sequence[Coordinate],
    search: Search,
    *,
    hessian: Hessian | None = None,
    first_step: float = 1.0,
    to_gain: float | None = None,
    longest_step: float = 2.0,
) -> Optimum:
    """Find the best parameters from one or several starting points.

    Parameters
    ----------
    objective : callable
        Value and gradient, priors included.
    start : ndarray, shape (n_coordinates,)
        Where to begin.
    coordinates : sequence of Coordinate
        Bounds.
    search : Search
        How to look, and from how many points.
    hessian : ndarray or callable, optional
        A guess of the curvature at the start, or a function that returns one of where the objective was last evaluated.
    first_step : float
        Longest first step in any direction without such a guess.
    to_gain : float, optional
        BFGS is used, and stops where it expects to gain less than this; L-BFGS by default.
    longest_step : float
        Longest step of BFGS in any direction.
    """
    if search.optimizer is None or not coordinates:
        value, gradient = objective(start)
        return Optimum(start, value, gradient, 1, True, "parameters kept")
    bounds = [(one.low, one.high) for one in coordinates]
    rng = np.random.default_rng(search.seed)
    starts = [start] + [start + _RESTART_SPREAD * rng.standard_normal(len(start)) for _ in range(search.n_restarts)]
    best: Optimum | None = None
    count = 0
    for number, one in enumerate(starts):
        guess = hessian if number == 0 or callable(hessian) else None
        frugal = "bfgs" if to_gain is not None or guess is not None else "lbfgs"
        try:
            found = find_minimum(
                objective,
                one,
                bounds,
                method="adam" if search.optimizer == "adam" else frugal,
                max_iterations=search.max_iterations,
                learning_rate=search.learning_rate,
                hessian=guess,
                first_step=first_step,
                longest_step=longest_step,
                variances=np.array([one.is_variance for one in coordinates]),
                **({} if to_gain is None else {"to_gain": to_gain}),
                progress=search.progress,
            )
        except NumericalError:
            if number == 0:  # a random start may be nonsense, the first may not
                raise
            continue
        count += found.n_evaluations
        if best is None or found.value < best.value:
            best = found
    assert best is not None
    return replace(best, n_evaluations=count)
