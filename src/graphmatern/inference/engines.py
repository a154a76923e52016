"""The engines there are, and which of them suits a problem."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from graphmatern._validation import check_choice
from graphmatern.errors import KernelError, ResourceError
from graphmatern.inference.inducing.engine import EigenvectorEngine, InducingEngine
from graphmatern.inference.markov.engine import MarkovEngine, smoothnesses
from graphmatern.inference.markov.precision import markov_precision
from graphmatern.inference.moments.engine import MomentsEngine, moments_seconds
from graphmatern.inference.spectral.engine import SpectralEngine, eigenpairs_used
from graphmatern.sparse import hub_cost, power_nnz

if TYPE_CHECKING:
    from graphmatern.inference.learning.problem import Problem
    from graphmatern.inference.process import Engine
    from graphmatern.sparse import Cost

__all__ = ["ENGINES", "Choice", "choose_engine", "register_engine", "sparse_cost"]

#: An engine more is a line more here, and a rule in `choose_engine` if it is to be chosen by itself.
ENGINES: dict[str, type[Engine]] = {
    engine.name: engine for engine in (SpectralEngine, MarkovEngine, MomentsEngine, InducingEngine, EigenvectorEngine)
}

# Seconds of one operation in dense linear algebra, of evaluations of a fit, and of products with one entry and column.
_PER_FLOP, _EVALUATIONS = 1e-10, 25
_PER_ENTRY = 4e-9  # seconds of one solution, per entry of the factor
_TYPICAL_LENGTHSCALE = 8.0
_LONG = 10.0  # seconds of one factorisation, of which a fit takes a hundred
_SOON = 5.0  # seconds of a fit that need not be faster
_MOST_ENTRIES = 300_000_000  # of a power of the Laplacian
_MOST_OBSERVED = 4_000  # nodes whose covariance is dense
_UNEQUAL = 10.0  # largest degree, relative to the mean, from which on the plain Laplacian is a poor guide
_WORTH = 3.0  # how many times as fast another engine must be to be preferred to all eigenpairs


class Choice(NamedTuple):
    """Which engine and which Laplacian to use, and why."""

    engine: str
    reason: str
    normalized: bool


def register_engine(engine: type[Engine]) -> None:
    """Let estimators use an engine of one's own by its name."""
    ENGINES[engine.name] = engine


def choose_engine(problem: Problem, wanted: str) -> Choice:
    """Which engine to use, on which Laplacian where that was left open, and the reason in a sentence.

    Parameters
    ----------
    problem : Problem
        What is to be fitted.
    wanted : str
        An engine's name, or "auto".
    """
    check_choice("engine", wanted, ("auto", *ENGINES), KernelError)
    if wanted != "auto":
        return Choice(wanted, "asked for", bool(problem.normalized))
    if (problem.device, problem.dtype) != ("cpu", "float64"):
        normalized = _is_unequal(problem) if problem.normalized is None else problem.normalized
        return Choice("moments", f"{problem.dtype} on {problem.device} was asked for", normalized)
    n, possible = problem.graph.n_nodes, smoothnesses(problem.kernel, problem.rules)
    plain = replace(problem, normalized=bool(problem.normalized))
    if eigenpairs_used(problem.graph, None) is None or problem.n_eigenpairs is not None:
        return _with_eigenpairs(plain, possible)
    cost = sparse_cost(plain, possible[0]) if possible else None
    if cost is not None and _markov_seconds(problem, cost, len(possible)) <= max(_SOON, _moments_seconds(problem)):
        entries = f"{cost.nnz_factor / n:.0f} entries per node in the factor"
        reason = f"{n:,} nodes and integer smoothness: the sparse precision is exact and fast ({entries})"
        return Choice("markov", reason, plain.normalized is True)
    return _without_factors(problem, "fill in" if possible else "a kernel without sparse precision")


def _markov_seconds(problem: Problem, cost: Cost, n_smoothnesses: int) -> float:
    """About how long a fit through sparse factors takes: selected inverses at every update, or solves once."""
    if cost.seconds > _LONG:
        return np.inf
    by_inverses = problem.updates * 4.0 * cost.seconds
    observed = float(problem.observations.count)
    by_solves = _PER_ENTRY * observed * cost.nnz_factor + problem.updates * 3.0 * observed**3 * _PER_FLOP
    return _EVALUATIONS * n_smoothnesses * (min(by_inverses, by_solves) if problem.updates > 1 else by_inverses)


def _moments_seconds(problem: Problem) -> float:
    """About how long a fit through moments takes, for a lengthscale of some edges."""
    graph, observed = problem.graph, float(len(np.unique(problem.observations.nodes)))
    if observed > _MOST_OBSERVED:
        return np.inf
    largest = 2.0 if problem.normalized or _is_unequal(problem) else 2.0 * float(graph.degrees.max(initial=0.0))
    degree = 12.0 * np.sqrt(largest * _TYPICAL_LENGTHSCALE**2 / 3.0)
    products = moments_seconds(2 * graph.n_edges + graph.n_nodes, int(observed), int(degree))
    return products + _EVALUATIONS * problem.updates * 3.0 * observed**3 * _PER_FLOP


def _is_unequal(problem: Problem) -> bool:
    """Whether the Laplacian is left open, and degrees are so unequal that it should be the normalised one."""
    degrees = problem.graph.degrees
    return problem.normalized is None and float(degrees.max(initial=0.0)) > _UNEQUAL * float(degrees.mean())


def _with_eigenpairs(problem: Problem, possible: tuple[int, ...]) -> Choice:
    """All eigenpairs of a moderate graph, or as many as were asked for, unless sparse factors are far faster."""
    n, normalized = problem.graph.n_nodes, bool(problem.normalized)
    if problem.n_eigenpairs is not None:
        return Choice("spectral", f"{problem.n_eigenpairs:,} eigenpairs were asked for", normalized)
    size = float(min(problem.observations.count, n))
    spectral = _EVALUATIONS * problem.updates * 3.0 * size**3 * _PER_FLOP
    if possible and spectral > 10.0:
        cost = sparse_cost(problem, possible[0])
        markov = np.inf if cost is None else _EVALUATIONS * problem.updates * 4.0 * cost.seconds * len(possible)
        if markov * _WORTH < spectral:
            reason = f"{n:,} nodes, of which {int(size):,} are observed: sparse factors are faster than dense matrices"
            return Choice("markov", reason, normalized)
    return Choice("spectral", f"{n:,} nodes: all eigenpairs are cheap, any smoothness can be learned", normalized)


def _without_factors(problem: Problem, why: str) -> Choice:
    """Moments where the observations are not too many, else leading eigenpairs."""
    graph, observed = problem.graph, len(np.unique(problem.observations.nodes))
    normalized, note = problem.normalized, ""
    if normalized is None:
        normalized = _is_unequal(problem)
        note = ", on the normalised Laplacian as degrees are very unequal" if normalized else ""
    n = f"{graph.n_nodes:,} nodes"
    if observed <= _MOST_OBSERVED:
        reason = f"{n} that {why}: exact through moments at {observed:,} observed nodes{note}"
        return Choice("moments", reason, normalized)
    return Choice("spectral", f"{n} that {why}, with {observed:,} observed: leading eigenpairs{note}", normalized)


def sparse_cost(problem: Problem, nu: int) -> Cost | None:
    """Cost of factorising the precision of smoothness ν; None where its pattern alone would be too large."""
    normalized = bool(problem.normalized)
    laplacian = problem.graph.laplacian(normalized)
    if power_nnz(laplacian, nu, limit=_MOST_ENTRIES, check=False) > _MOST_ENTRIES:
        return None
    try:
        hubs = hub_cost(laplacian, enough=_LONG)
        if hubs is not None:
            return hubs
        return markov_precision(problem.graph, nu, normalized=normalized, n_threads=problem.n_threads).analysis.cost
    except ResourceError:
        return None
