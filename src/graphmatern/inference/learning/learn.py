"""Learning the parameters of a problem: with which engine, from which candidates, and what is kept."""

from __future__ import annotations

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
from graphmatern.inference.learning.default_priors import with_default_priors
from graphmatern.inference.learning.integrate import (
    Component,
    Effort,
    Integrated,
    Searched,
    integrate,
    is_worth_it,
    recompose,
    reweigh,
)
from graphmatern.inference.learning.parameters import information_with_priors
from graphmatern.inference.learning.problem import Fit, Known, Problem
from graphmatern.inference.learning.rehearsal import rehearse
from graphmatern.inference.learning.search import objective_of, search_candidate
from graphmatern.inference.mixture import Mixture
from graphmatern.inference.sites.gaussian import GaussianObjective
from graphmatern.inference.sites.objective import SiteObjective
from graphmatern.likelihoods import Gaussian

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from graphmatern.inference.process import Engine
    from graphmatern.likelihoods import Likelihood

    Floats = NDArray[np.float64]

__all__ = ["learn", "update_weights"]

_DOUBT = 2.0  # nats by which an optimum that rounding touches must be better than another candidate's
_CHEAP = 2.0  # predicted seconds of fits on both Laplacians


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
        _progress.announce(f"fit with {cost.method}", cost.seconds, cost.memory)
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
        found = integrate(Effort.of(problem, fit.engine), sound, _mix_with(fit.likelihood))
        if found is None:
            return fit
        integrated = found
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
            made[key] = engine, objective_of(engine, own, None)
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
            hint = rehearse(problem, part, kind, number, search_candidate)
            engine = made.result()
    else:
        engine = make()
    optimum, objective, penalised = search_candidate(problem, engine, known, hint)
    count = len(engine.coordinates)
    bounded = engine.bounded(optimum.position[:count]) if known is None and problem.search.optimizer else None
    if bounded is not None:
        engine.release()
        engine = bounded
        optimum, objective, penalised = search_candidate(problem, engine, None, None)
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


def _warn_of_lost_noise(prior_variance: float, problem: Problem, noise: float) -> None:
    """Warn where the noise is so small beside the prior variance that rounding shows, with an estimate."""
    known = problem.observations.noise
    least = noise * (1.0 if known is None else float(known.min()))
    error = np.finfo(float).eps * prior_variance / least
    if error > 1e-6:
        warn(
            f"a noise variance of {least / prior_variance:.0e} times the prior variance is close to rounding error: "
            f"results have an estimated relative error of {error:.0e}. Use more noise, or bounds that keep it larger",
            NumericalWarning,
        )
