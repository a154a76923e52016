"""The list of engines, what each would cost, and which of them suits a problem."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from graphmatern._progress import duration
from graphmatern._validation import FaultList, check_choice
from graphmatern.errors import KernelError, ResourceError
from graphmatern.inference.features.engine import FeatureEngine
from graphmatern.inference.inducing.engine import EigenvectorEngine, InducingEngine
from graphmatern.inference.markov.cost import (
    LONG,
    MOST_ENTRIES,
    begins_roughly,
    block_cost,
    is_learned,
    smoothnesses,
    sparse_cost,
)
from graphmatern.inference.markov.engine import MarkovEngine
from graphmatern.inference.moments.engine import MomentsEngine, dense_bytes
from graphmatern.inference.spectral.engine import SpectralEngine, eigenpairs_used
from graphmatern.kernels import ArealKernel, Matern
from graphmatern.sparse import available_memory, format_bytes, kept_bytes, power_nnz, product_seconds

if TYPE_CHECKING:
    from collections.abc import Callable

    from graphmatern.inference.learning.problem import Problem
    from graphmatern.inference.process import Engine
    from graphmatern.sparse import Cost

__all__ = [
    "ENGINES",
    "UNEQUAL",
    "Choice",
    "EngineCost",
    "choose_engine",
    "predict_costs",
    "predicted_cost",
    "register_engine",
]

#: A new engine is a line here, and a rule in `choose_engine` if it is to be chosen automatically.
ENGINES: dict[str, type[Engine]] = {
    engine.name: engine
    for engine in (SpectralEngine, MarkovEngine, MomentsEngine, InducingEngine, EigenvectorEngine, FeatureEngine)
}

# Seconds of one operation in dense linear algebra, of evaluations of a fit, and of products with one entry and column.
_PER_FLOP, _EVALUATIONS = 1e-10, 25
_ASKED_SHARE = 0.4  # of evaluations, by what they take, where a rough search comes first
_PER_ENTRY = 4e-9  # seconds of one solution, per entry of the factor
_PER_STEP, _PER_NODE = 2e-3, 3e-7  # seconds of an evaluation through factors beside these, and of each node in it
_MOST_LARGER = 30.0  # times, beyond which it does not matter how much larger a precision is
_TYPICAL_LENGTHSCALE = 8.0
_COLUMNS_AT_WORK = 256  # of all nodes, on all processors
_COLUMNS_OF_MANY = 1_000  # columns that are multiplied in a fit with many observations, about
_DEGREE = 8.0  # of polynomials, relative to the square root of how far a kernel's function falls
_PER_EVALUATION = 0.03  # seconds of an evaluation through moments beside dense matrices
_SOON = 5.0  # seconds of a fit that need not be faster
_UNEQUAL = 10.0  # largest degree, relative to the mean, from which on the plain Laplacian is a poor guide
_STEEP = (
    400.0  # largest degree, in mean weights of an edge, from which on the plain Laplacian takes long to smooth with
)
#: How a reason ends where degrees decided on the Laplacian.
UNEQUAL = ", on the normalised Laplacian as degrees are very unequal"
_WORTH = 3.0  # how many times as fast another engine must be to be preferred to all eigenpairs
_FASTER = 5.0  # how many times as fast moments must be to be preferred to factors, which allow longer lengthscales


class Choice(NamedTuple):
    """Which engine and which Laplacian to use, and why."""

    engine: str
    reason: str
    normalized: bool


@dataclass(frozen=True)
class EngineCost:
    """Predicted cost of a fit with one engine.

    Attributes
    ----------
    engine : str
        Its name.
    method : str
        What it computes with.
    seconds, memory : float
        Approximate; memory in bytes. Infinite if out of the question.
    at_least : bool
        Whether these are lower bounds, already beyond what is sensible.
    """

    engine: str
    method: str
    seconds: float
    memory: float
    at_least: bool = False

    def __str__(self) -> str:
        if np.isinf(self.seconds):
            return f"{self.engine} ({self.method}) out of reach"
        bound = "more than " if self.at_least else "about "
        return f"{self.engine} ({self.method}) {bound}{duration(self.seconds)}, {format_bytes(self.memory)}"

    def fits(self, max_seconds: float) -> bool:
        """Whether it keeps within a time limit and the free memory."""
        return not self.at_least and self.seconds <= max_seconds and self.memory <= available_memory()


def register_engine(engine: type[Engine]) -> None:
    """Make an engine available to the estimators by its name."""
    ENGINES[engine.name] = engine


def choose_engine(problem: Problem, wanted: str) -> Choice:
    """Which engine to use, on which Laplacian if that was left open, and the reason in a sentence.

    Parameters
    ----------
    problem : Problem
        What is to be fitted.
    wanted : str
        An engine's name, or "auto".

    Raises
    ------
    ResourceError
        If every engine that may be used would take longer than ``problem.max_seconds``.
    """
    check_choice("engine", wanted, ("auto", *ENGINES), KernelError)
    if problem.features is not None:
        return _with_features(problem, wanted)
    preferred = _preferred(problem) if wanted == "auto" else Choice(wanted, "asked for", bool(problem.normalized))
    return preferred if problem.max_seconds is None else _within(problem, preferred, wanted, problem.max_seconds)


def _with_features(problem: Problem, wanted: str) -> Choice:
    """The only engine that knows features; on the plain Laplacian, unless that takes polynomials of high degrees."""
    assert problem.features is not None
    if wanted not in ("auto", FeatureEngine.name):
        faults = FaultList("nothing was fitted", KernelError)
        rule = "must be 'auto' or 'features' if features are given"
        raise faults.raise_now("engine", rule, repr(wanted), "Leave it out, or leave out `features`.")
    observed, normalized, note = len(np.unique(problem.observations.nodes)), problem.normalized, ""
    if normalized is None:
        weights, degrees = problem.graph.weights.data, problem.graph.degrees
        normalized = bool(len(weights)) and float(degrees.max()) > _STEEP * float(weights.mean())
        note = UNEQUAL if normalized else ""
    words = f"{problem.features.n_features:,} feature{'s' if problem.features.n_features > 1 else ''}"
    return Choice(FeatureEngine.name, f"{words} at each node: exact at {observed:,} observed nodes{note}", normalized)


def _within(problem: Problem, preferred: Choice, wanted: str, limit: float) -> Choice:
    """The preferred engine where its prediction keeps within a limit, else the fastest that does."""
    problem = replace(problem, normalized=preferred.normalized)
    cost = predicted_cost(problem, preferred.engine)
    if cost is None or cost.fits(limit):
        return preferred
    every = predict_costs(problem)
    fitting = [one for one in every if one.fits(limit)]
    if wanted == "auto" and fitting:
        best = min(fitting, key=lambda one: one.seconds)
        reason = f"{best}; {preferred.engine} would exceed max_seconds={limit:g}"
        return Choice(best.engine, reason, preferred.normalized)
    subject = "every engine" if wanted == "auto" else f"engine={wanted!r}"
    remedy = f"Use engine={fitting[0].engine!r}" if fitting else "Fit fewer nodes, ask for fewer eigenpairs"
    raise ResourceError(
        f"nothing was fitted: {subject} is predicted to exceed max_seconds={limit:g} or the free memory. "
        f"Predictions: {'; '.join(map(str, every))}. {remedy}, or raise max_seconds."
    )


def predict_costs(problem: Problem) -> list[EngineCost]:
    """Predicted cost of a fit with each exact engine that can serve a problem."""
    costs = (predicted_cost(problem, name) for name in _COSTS)
    return [cost for cost in costs if cost is not None]


def predicted_cost(problem: Problem, engine: str) -> EngineCost | None:
    """Predicted cost of a fit with an engine; None if it cannot serve the problem or has no prediction."""
    return _COSTS[engine](problem) if engine in _COSTS else None


def _preferred(problem: Problem) -> Choice:
    """The engine that suits a problem, whatever its cost."""
    if (problem.device, problem.dtype) != ("cpu", "float64"):
        normalized = _is_unequal(problem) if problem.normalized is None else problem.normalized
        return Choice("moments", f"{problem.dtype} on {problem.device} was requested", normalized)
    n = problem.graph.n_nodes
    plain = replace(problem, normalized=bool(problem.normalized))
    if eigenpairs_used(problem.graph, None) is None or problem.n_eigenpairs is not None:
        return _with_eigenpairs(plain)
    limit = max(_SOON, _FASTER * _moments_seconds(problem))
    markov = _markov_cost(plain, limit)
    if markov is not None and not markov.at_least and markov.seconds <= limit:
        time = duration(markov.seconds)
        reason = f"{n:,} nodes and {_kind(plain)}: factors are sparse, and a fit takes about {time}"
        return Choice("markov", reason, plain.normalized is True)
    return _without_factors(problem, "have a kernel without sparse precision" if markov is None else "fill in")


def _kind(problem: Problem) -> str:
    """What makes factors sparse."""
    if isinstance(problem.kernel, ArealKernel):
        return "a kernel of areas"
    return "smoothness of any value through several Markov fields" if is_learned(problem) else "integer smoothness"


def _evaluations(problem: Problem) -> int:
    """How often sites are conditioned on in a fit, about."""
    return problem.updates * (_EVALUATIONS if problem.search.optimizer is not None else 1)


def _spectral_cost(problem: Problem) -> EngineCost:
    """Eigenpairs once, then dense matrices of as many rows as there are eigenpairs or observations."""
    graph, count = problem.graph, eigenpairs_used(problem.graph, problem.n_eigenpairs)
    used = graph.n_nodes if count is None else min(count, graph.n_nodes)
    seconds, memory = graph.spectrum_cost(used, bool(problem.normalized))
    if not _is_diagonal(problem):
        seconds += _evaluations(problem) * 3.0 * float(min(problem.observations.count, used)) ** 3 * _PER_FLOP
    name = f"all {used:,} eigenpairs" if used == graph.n_nodes else f"{used:,} eigenpairs"
    return EngineCost("spectral", name, seconds, memory)


def _is_diagonal(problem: Problem) -> bool:
    """Whether eigenvectors make all matrices diagonal: Gaussian noise, equal at every node, each observed once."""
    seen, n = problem.observations, problem.graph.n_nodes
    once = len(seen.nodes) == n and len(np.unique(seen.nodes)) == n and seen.count == seen.y.size
    return problem.exact and once and seen.noise is None and problem.graph.masses is None


def _markov_cost(problem: Problem, limit: float = np.inf) -> EngineCost | None:
    """Selected inverses at every update; or, where there are many updates, solves once for every observation.

    It does not matter by how much a fit exceeds ``limit`` seconds.
    """
    if problem.kernel is not None and not isinstance(problem.kernel, Matern | ArealKernel):
        return None
    if is_learned(problem):
        return _block_cost(problem, limit)
    possible = smoothnesses(problem.kernel, problem.rules)
    smooth = "" if isinstance(problem.kernel, ArealKernel) else f", smoothness {' or '.join(map(str, possible))}"
    method = f"sparse factors{smooth}"
    sizes = [1.0] * len(possible)

    def exceeds(cost: Cost) -> bool:
        return _seconds_with_factors(problem, cost, sizes) > limit

    cost = sparse_cost(problem, possible[0], exceeds)
    if cost is None:
        return EngineCost("markov", method, np.inf, np.inf, at_least=True)
    at_least = cost.seconds > LONG or exceeds(cost)
    sizes = sizes if at_least else _relative_sizes(problem, possible)
    seconds = _seconds_with_factors(problem, cost, sizes)
    return EngineCost("markov", method, seconds, max(sizes) * cost.memory_bytes, at_least=at_least)


def _seconds_with_factors(problem: Problem, cost: Cost, sizes: list[float]) -> float:
    """Of a fit, for precisions that take as many times what the first takes."""
    observed, overhead = float(problem.observations.count), _PER_STEP + _PER_NODE * problem.graph.n_nodes
    seconds = _evaluations(problem) * sum(4.0 * cost.seconds * size + overhead for size in sizes)
    if problem.updates == 1:
        return seconds
    dense = problem.updates * 3.0 * observed**3 * _PER_FLOP
    solves = sum(_PER_ENTRY * observed * cost.nnz_factor * size + dense for size in sizes)
    return min(seconds, _evaluations(problem) / problem.updates * solves)


def _block_cost(problem: Problem, limit: float) -> EngineCost:
    """Blocks of several fields at every node: what they take beside, a start from integers included, is little."""
    # Most evaluations are rough on a large graph.
    count = _evaluations(problem) * (_ASKED_SHARE if begins_roughly(problem) else 1.0)
    overhead = 10.0 * _PER_STEP + _PER_NODE * problem.graph.n_nodes

    def seconds(cost: Cost) -> float:
        return count * (4.0 * cost.seconds + overhead)

    cost = block_cost(problem, lambda one: seconds(one) > limit)
    given = problem.kernel if isinstance(problem.kernel, Matern) else Matern()
    smoothness = f"{given.values()['nu']:.4g}" if "nu" in given.fixed else "learned"
    method = f"sparse factors of several fields, smoothness {smoothness}"
    if cost is None:
        return EngineCost("markov", method, np.inf, np.inf, at_least=True)
    at_least = cost.seconds > LONG or seconds(cost) > limit
    return EngineCost("markov", method, seconds(cost), cost.memory_bytes, at_least=at_least)


def _relative_sizes(problem: Problem, possible: tuple[int, ...]) -> list[float]:
    """How many times larger precisions of other smoothnesses are than the first, which is about what they cost more."""
    if len(possible) == 1:
        return [1.0]
    laplacian = problem.graph.laplacian(bool(problem.normalized))
    first = power_nnz(laplacian, possible[0], limit=MOST_ENTRIES, check=False)
    most = int(_MOST_LARGER * first)
    return [min(power_nnz(laplacian, nu, limit=most, check=False), most) / first for nu in possible]


def _moments_seconds(problem: Problem) -> float:
    """About how long a fit through moments takes, for a lengthscale of some edges."""
    graph, observed = problem.graph, len(np.unique(problem.observations.nodes))
    largest = 2.0 if problem.normalized or _is_unequal(problem) else 2.0 * float(graph.degrees.max(initial=0.0))
    scale = np.sqrt(largest * _TYPICAL_LENGTHSCALE**2 / 3.0)
    nnz = 2 * graph.n_edges + graph.n_nodes
    if observed > MomentsEngine.most_dense and not problem.exact:
        return np.inf  # variances at all observations are out of reach
    dense = observed <= MomentsEngine.most_dense
    products = product_seconds(nnz, observed if dense else _COLUMNS_OF_MANY, int(_DEGREE * scale))
    flops = 3.0 * problem.updates * float(observed if dense else 0) ** 3
    return products + _evaluations(problem) / problem.updates * (_PER_EVALUATION + flops * _PER_FLOP)


def _moments_cost(problem: Problem) -> EngineCost:
    """Products once, then dense matrices; with many observed nodes, products at every evaluation."""
    observed, n = len(np.unique(problem.observations.nodes)), problem.graph.n_nodes
    if observed > MomentsEngine.most_dense:
        method, memory = f"conjugate gradients at {observed:,} observed nodes", 8.0 * (200.0 * observed + 200.0 * n)
    else:
        method = f"moments at {observed:,} observed nodes"
        memory = dense_bytes(observed) + 8.0 * _COLUMNS_AT_WORK * n + 2.0 * kept_bytes(n, observed)
    return EngineCost("moments", method, _moments_seconds(problem), memory)


def _is_unequal(problem: Problem) -> bool:
    """Whether the Laplacian is left open, and degrees are so unequal that it should be the normalised one."""
    degrees = problem.graph.degrees
    return problem.normalized is None and float(degrees.max(initial=0.0)) > _UNEQUAL * float(degrees.mean())


def _with_eigenpairs(problem: Problem) -> Choice:
    """All eigenpairs of a moderate graph, or as many as were asked for, unless sparse factors are far faster."""
    n, normalized = problem.graph.n_nodes, bool(problem.normalized)
    if problem.n_eigenpairs is not None:
        return Choice("spectral", f"{problem.n_eigenpairs:,} eigenpairs were requested", normalized)
    spectral = _spectral_cost(problem).seconds
    if spectral > 2.0 * _SOON:
        markov = _markov_cost(problem, spectral / _WORTH)
        if markov is not None and not markov.at_least and markov.seconds * _WORTH < spectral:
            saved = f"sparse factors take about {duration(markov.seconds)}, dense matrices {duration(spectral)}"
            return Choice("markov", f"{n:,} nodes and {_kind(problem)}: {saved}", normalized)
        return Choice(
            "spectral", f"{n:,} nodes: all eigenpairs, and dense matrices: about {duration(spectral)}", normalized
        )
    more = ", any smoothness can be learned" if problem.kernel is None or isinstance(problem.kernel, Matern) else ""
    return Choice("spectral", f"{n:,} nodes: all eigenpairs are cheap{more}", normalized)


def _without_factors(problem: Problem, why: str) -> Choice:
    """Moments, unless the observations are too many for a likelihood that needs their variances."""
    graph, observed = problem.graph, len(np.unique(problem.observations.nodes))
    normalized, note = problem.normalized, ""
    if normalized is None:
        normalized = _is_unequal(problem)
        note = UNEQUAL if normalized else ""
    n = f"{graph.n_nodes:,} nodes"
    if observed <= MomentsEngine.most_dense:
        reason = f"{n} that {why}: exact through moments at {observed:,} observed nodes{note}"
        return Choice("moments", reason, normalized)
    if problem.exact:
        reason = f"{n} that {why}: conjugate gradients at {observed:,} observed nodes{note}"
        return Choice("moments", reason, normalized)
    return Choice("spectral", f"{n} that {why}, with {observed:,} observed: leading eigenpairs{note}", normalized)


#: Predictions for the engines that "auto" knows; an engine of your own may have a line here as well.
_COSTS: dict[str, Callable[[Problem], EngineCost | None]] = {
    "spectral": _spectral_cost,
    "markov": _markov_cost,
    "moments": _moments_cost,
}
