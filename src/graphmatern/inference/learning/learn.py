"""Learning the parameters of a problem: starts, restarts, the search, and what is kept."""

from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from graphmatern import _progress
from graphmatern._validation import warn
from graphmatern.errors import GraphMaternError, KernelError, NumericalError, NumericalWarning, ResourceError
from graphmatern.inference.engines import ENGINES, UNEQUAL, choose_engine, predicted_cost
from graphmatern.inference.inducing.stochastic import train
from graphmatern.inference.learning.integrate import (
    Component,
    Effort,
    Integrated,
    Searched,
    integrate,
    is_worth_it,
    recompose,
    reweigh,
    with_default_priors,
)
from graphmatern.inference.learning.optimize import Optimum, find_minimum
from graphmatern.inference.learning.parameters import information_with_priors, with_priors
from graphmatern.inference.learning.problem import Fit, Known, Problem, Search
from graphmatern.inference.learning.rehearsal import rehearse
from graphmatern.inference.mixture import Mixture
from graphmatern.inference.sites.gaussian import GaussianObjective
from graphmatern.inference.sites.objective import SiteObjective
from graphmatern.inference.sites.recorded import RecordedObjective
from graphmatern.inference.threads import small_matrix_threads
from graphmatern.likelihoods import Gaussian

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from graphmatern.inference.learning.optimize import Hessian
    from graphmatern.inference.learning.parameters import Coordinate, Objective
    from graphmatern.inference.process import Engine
    from graphmatern.likelihoods import Likelihood

    Floats = NDArray[np.float64]

__all__ = ["learn", "search_minimum", "update_weights"]

_RESTART_SPREAD = 1.5  # of the unconstrained coordinates: a factor of 4 or so either way
_DOUBT = 2.0  # nats by which an optimum that rounding touches must be better than another candidate's
_ALL_NOISE = 0.1  # prior variance, relative to the noise, at which a search may have missed a better optimum
_LESS = 3.0  # by which the logarithm of the noise is lowered to look for it
_ENOUGH_TO_START = 1e-2  # nats to be gained at which a search for a start may stop
_ENOUGH_NEARBY = 2e-4  # at which one with a good picture of the curvature may
_CHEAP = 2.0  # predicted seconds of fits on both Laplacians
_ROUNDS = 4  # restarts of the sites, at most


def learn(problem: Problem, engine: str = "auto", known: Known | None = None) -> Fit:
    """Learn the parameters and condition on the observations.

    Parameters
    ----------
    problem : Problem
        What to fit to what.
    engine : str
        Name of the engine, or "auto".
    known : Known, optional
        Where an earlier fit to the same data ended; then ``engine`` names its engine.

    Returns
    -------
    Fit
        That of the engine's candidate with the most evidence. Candidates that take too much memory or time, or break
        down numerically, are passed over unless none is left.
    """
    with _progress.showing(problem.search.progress):
        if known is None:
            return _learn_anew(problem, engine)
        name, reason, normalized = choose_engine(replace(problem, max_seconds=None), engine)
        problem = replace(problem, integrate=known.integrated is not None)
        return _integrated([_learn(replace(problem, normalized=normalized), name, reason, known)], known)


def _learn_anew(problem: Problem, engine: str) -> Fit:
    """Learn with the engine that suits the problem; what takes long is announced."""
    name, reason, normalized = choose_engine(problem, engine)
    problem = replace(problem, integrate=_integrates(problem, name))
    # On a large graph the prediction takes an analysis, which otherwise runs beside the fit of a part.
    cost = predicted_cost(replace(problem, normalized=normalized), name) if _progress.is_shown() else None
    if cost is not None:
        _progress.announce(f"fit through {cost.method}", cost.seconds, cost.memory)
    if problem.compares and problem.normalized is None and _is_cheap(problem, name):
        return _integrated(_learn_both(problem, name, reason.removesuffix(UNEQUAL)))
    return _integrated([_learn(replace(problem, normalized=normalized), name, reason)])


def _learn_both(problem: Problem, name: str, reason: str) -> list[_Learned]:
    """Learn on both Laplacians; the one with more evidence comes first, and the only one where the other is refused."""
    found: list[_Learned] = []
    for which in (False, True):
        try:
            found.append(_learn(replace(problem, normalized=which), name, reason))
        except (ResourceError, NumericalError):
            if which and not found:
                raise
    best, *others = sorted(found, key=lambda one: -one.fit.log_evidence)
    words = {False: "plain", True: "normalised"}
    own = words[best.fit.normalized]
    if others:
        values = ", ".join(f"{one.fit.log_evidence:.2f} {words[one.fit.normalized]}" for one in found)
        more = f"the {own} Laplacian has more evidence ({values})"
    else:
        more = f"only the {own} Laplacian is within reach"
    return [replace(best, fit=replace(best.fit, reason=f"{reason}; {more}")), *others]


def _integrates(problem: Problem, engine: str) -> bool:
    """Whether the parameters are integrated over: where that was asked for, and there are some to be learned."""
    if problem.in_batches or problem.search.optimizer is None:
        return False
    worth = is_worth_it(problem.observations.count, problem.graph.n_nodes, engine)
    return worth if problem.integrate == "auto" else bool(problem.integrate)


def _is_cheap(problem: Problem, engine: str) -> bool:
    """Whether fitting on both Laplacians takes seconds."""
    if engine == "spectral":
        return problem.graph.n_nodes <= 3_000 and problem.observations.count <= 400
    if engine != "moments":
        return False
    costs = [predicted_cost(replace(problem, normalized=which), engine) for which in (False, True)]
    limit = _CHEAP if problem.max_seconds is None else min(_CHEAP, problem.max_seconds)
    return sum(cost.seconds for cost in costs if cost is not None) <= limit


@dataclass(frozen=True, eq=False)
class _Learned:
    """A fit on one Laplacian.

    Attributes
    ----------
    problem : Problem
        What was fitted, with all priors.
    fit : Fit
        The best candidate's.
    sound : list of Searched
        Candidates that may have a part in a mixture, the best first.
    """

    problem: Problem
    fit: Fit
    sound: list[Searched]


def _learn(problem: Problem, name: str, reason: str, known: Known | None = None) -> _Learned:
    """Learn with one engine on one Laplacian."""
    problem = with_default_priors(problem) if problem.integrate else problem
    kind: type[GaussianObjective] | type[SiteObjective] = GaussianObjective if problem.exact else SiteObjective
    groups = kind.groups(problem)
    if problem.in_batches:
        inducing = ENGINES[name].candidates(problem, groups)[0]()
        return _Learned(problem, train(problem, inducing, reason, known), [])  # type: ignore[arg-type]
    learned: list[tuple[float, Searched, Fit]] = []
    refused: GraphMaternError | None = None
    for number, make in enumerate(ENGINES[name].candidates(problem, groups)):
        try:
            searched, fit = _learn_candidate(problem, ENGINES[name], number, make, reason, known)
        except (ResourceError, NumericalError, KernelError) as error:
            refused = error if refused is None else refused
            continue
        own = fit.optimum.position[: len(searched.engine.coordinates)]
        rank = fit.log_evidence + searched.engine.log_prior() - (0.0 if searched.engine.trusted(own) else _DOUBT)
        if problem.integrate:
            learned.append((rank, searched, fit))
        elif not learned or rank > learned[0][0]:
            learned = [(rank, searched, fit)]
    if not learned:
        assert refused is not None
        raise refused
    learned.sort(key=lambda one: -one[0])
    _, chosen, fit = learned[0]
    count = len(chosen.engine.coordinates)
    fit = replace(fit, report=chosen.engine.report(fit.optimum.position[:count]))
    # What rounding touches has no part in a mixture, unless there is nothing else.
    sound = [one for _, one, _ in learned if one.engine.trusted(one.own)] or [chosen]
    return _Learned(problem, fit, sound)


def _integrated(learned: Sequence[_Learned], known: Known | None = None) -> Fit:
    """The first of some fits, integrated over its parameters, where that is wanted, and over those of the others."""
    problem, fit = learned[0].problem, learned[0].fit
    if not problem.integrate or not fit.coordinates:
        return fit
    if known is not None and known.integrated is not None:
        integrated = _restored(problem, fit.engine, known.integrated, fit)
    else:
        sound = [candidate for one in learned for candidate in one.sound]
        integrated = integrate(Effort.of(problem, fit.engine), sound, _mix_with(fit.likelihood))
    return replace(fit, posterior=integrated.posterior, integrated=integrated)


def _mix_with(likelihood: Likelihood) -> Callable[[Sequence[Any], Floats], Mixture]:
    """What makes mixtures of posteriors."""
    return partial(Mixture, likelihood=likelihood)


def _objectives(problem: Problem, name: str, components: Sequence[Component]) -> list[tuple[Engine, Any]]:
    """The engine and the objective of each component; those of one smoothness on one Laplacian share theirs."""
    kind: type[GaussianObjective] | type[SiteObjective] = GaussianObjective if problem.exact else SiteObjective
    groups = kind.groups(problem)
    made: dict[tuple[float | None, bool | None], tuple[Engine, Any]] = {}
    found = []
    for one in components:
        held = name == "markov" and "nu" in one.kernel.fixed  # type: ignore[operator]
        normalized = problem.normalized if one.normalized is None else one.normalized
        key = one.kernel.values()["nu"] if held else None, normalized  # type: ignore[operator]
        if key not in made:
            own = replace(problem, kernel=one.kernel, normalized=normalized)
            engine = ENGINES[name].candidates(own, groups)[0]()
            made[key] = engine, _objective(engine, own, None)
        found.append(made[key])
    return found


def _restored(problem: Problem, name: str, integrated: Integrated, fit: Fit) -> Integrated:
    """The mixture of components that were stored."""
    pairs = zip(_objectives(problem, name, integrated.components), integrated.components, strict=True)
    makers = [partial(objective.posterior, one.position, one.sites) for (_, objective), one in pairs]
    return recompose(integrated.components, makers, _mix_with(fit.likelihood), integrated)


def update_weights(problem: Problem, name: str, integrated: Integrated, likelihood: Likelihood) -> Integrated:
    """The same parameters with more data; see `reweigh`.

    Parameters
    ----------
    problem : Problem
        With all data.
    name : str
        The engine.
    integrated : Integrated
        What was known before.
    likelihood : Likelihood
        At the mode.
    """
    objectives = _objectives(problem, name, integrated.components)
    return reweigh(integrated, objectives, _mix_with(likelihood))


def _objective(engine: Engine, problem: Problem, known: Known | None) -> Any:
    """The negative log evidence: exact for Gaussian noise, else its bound at the best sites."""
    if problem.exact:
        kept = problem.search.journal is not None and known is None
        return RecordedObjective(engine, problem) if kept else GaussianObjective(engine, problem)
    return SiteObjective(engine, problem, None if known is None else known.sites)


def _learn_candidate(
    problem: Problem,
    kind: type[Engine],
    number: int,
    make: Callable[[], Engine],
    reason: str,
    known: Known | None,
) -> tuple[Searched, Fit]:
    """Learn with one of an engine's candidates."""
    hint = None
    part = kind.rehearsal(problem) if known is None and problem.search.optimizer == "quasi-newton" else None
    if part is not None:
        # A large graph is analysed by a thread of its own while a part of it is fitted.
        with ThreadPoolExecutor(1) as pool:
            made = pool.submit(make)
            hint = rehearse(problem, part, kind, number, _search_candidate)
            engine = made.result()
    else:
        engine = make()
    optimum, objective, penalised = _search_candidate(problem, engine, known, hint)
    if engine.estimates:
        # Rounding alone leads conjugate gradients, and with them the search, along slightly different ways. The last
        # step, which costs nothing, takes these to one place.
        optimum = optimum.ahead()
    count = len(engine.coordinates)
    bounded = engine.bounded(optimum.position[:count]) if known is None and problem.search.optimizer else None
    if bounded is not None:
        engine.release()
        engine = bounded
        optimum, objective, penalised = _search_candidate(problem, engine, None, None)
    position = optimum.position
    own = position[:count]
    posterior = objective.posterior(position)
    every = [*engine.coordinates, *objective.coordinates]
    fit = Fit(
        engine.name,
        reason,
        bool(problem.normalized),
        engine.kernel(own),
        posterior.likelihood,
        posterior,
        optimum,
        every,
        penalised,
        jacobian=lambda: _jacobian(engine, own, len(position)),
        information=information_with_priors(objective, every) if engine.estimates else None,
        sites=objective.sites(),
        settled=objective.settled,
        n_clipped=objective.n_clipped,
    )
    if isinstance(fit.likelihood, Gaussian):
        _warn_of_lost_noise(engine.average_variance(own), problem, fit.likelihood.noise.item())
    engine.release()
    return Searched(engine, objective, penalised, optimum, bool(problem.normalized)), fit


def _jacobian(engine: Engine, own: Floats, size: int) -> Floats:
    """Derivatives of the logarithms of the parameters in all coordinates; shape (size, size)."""
    found = np.eye(size)
    found[: len(own), : len(own)] = engine.jacobian(own)
    return found


def _search_candidate(
    problem: Problem,
    engine: Engine,
    known: Known | None,
    hint: tuple[Floats, Floats | None] | None,
    to_gain: float | None = None,
) -> tuple[Optimum, Any, Objective]:
    """Optimum, objective without and with priors; ``hint`` is an optimum and a curvature to begin with."""
    with small_matrix_threads(engine.matrix_size):
        objective = _objective(engine, problem, known)
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
            optimum, _, _ = _search_candidate(problem, other, None, None, _ENOUGH_TO_START)
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
    values = []
    for start in starts:
        try:
            values.append(penalised(start)[0])
        except NumericalError:
            values.append(np.inf)
    order = [k for k in np.argsort(values, kind="stable") if np.isfinite(values[k])]
    return [starts[k] for k in order] or [own]


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


def _warn_of_lost_noise(prior_variance: float, problem: Problem, noise: float) -> None:
    """Warn where the noise is so small beside the prior variance that rounding shows, with an estimate."""
    known = problem.observations.noise
    least = noise * (1.0 if known is None else float(known.min()))
    error = np.finfo(float).eps * prior_variance / least
    if error > 1e-6:
        warn(
            f"a noise variance of {least / prior_variance:.0e} times the prior variance is near what rounding leaves: "
            f"results have an estimated relative error of {error:.0e}. Use more noise, or bounds that keep it up",
            NumericalWarning,
        )
