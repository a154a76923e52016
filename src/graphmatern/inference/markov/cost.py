"""What the Markov engine would take, before anything is factorised."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from graphmatern.errors import ResourceError
from graphmatern.graph import largest_eigenvalue_bound
from graphmatern.inference.markov.precision import markov_precision
from graphmatern.inference.markov.rational import MOST_TERMS, terms_for, widest_ratio
from graphmatern.kernels import ArealKernel, Matern
from graphmatern.sparse import BlockAnalysis, early_cost, power_nnz, separator_cost, small_cost

if TYPE_CHECKING:
    from collections.abc import Callable

    from graphmatern.inference.learning.parameters import PriorsAndBounds
    from graphmatern.inference.learning.problem import Problem
    from graphmatern.inference.observations import Group
    from graphmatern.sparse import Cost

__all__ = [
    "LONG",
    "MOST_ENTRIES",
    "ROUGHLY",
    "begins_roughly",
    "block_cost",
    "is_learned",
    "prefers_solves",
    "smoothnesses",
    "sparse_cost",
]

#: Seconds of one factorisation, of which a fit takes a hundred, beyond which it matters no more how many.
LONG = 10.0
#: Entries of a power of the Laplacian.
MOST_ENTRIES = 300_000_000
#: Relative error of covariances in a first search, where smoothnesses are approximate.
ROUGHLY = 1e-2

_LARGE = 10_000  # nodes for which such a search is worth it
_TYPICAL_LENGTHSCALE = 8.0


def smoothnesses(kernel: object, rules: PriorsAndBounds | None = None) -> tuple[int, ...]:
    """Integer smoothnesses to try for a kernel, within bounds; none where it is given and no integer."""
    if kernel is None or (isinstance(kernel, Matern) and kernel.chooses_nu):
        low, high = (0.0, np.inf) if rules is None else rules.allowed("nu")
        return tuple(nu for nu in (1, 2, 3) if low <= nu <= high)
    if isinstance(kernel, Matern):
        nu = kernel.values()["nu"]
        return (int(nu),) if nu == round(nu) and nu >= 1 else ()
    return (1,) if isinstance(kernel, ArealKernel) else ()  # a precision of the pattern of the Laplacian


def is_learned(problem: Problem) -> bool:
    """Whether a smoothness is given but no integer, so that it is learned unless it is held, or bounds leave none."""
    kernel = problem.kernel
    if kernel is not None and not isinstance(kernel, Matern):
        return False
    return not smoothnesses(kernel, problem.rules) or problem.settings.get("n_fields") is not None


def begins_roughly(problem: Problem) -> bool:
    """Whether a search with few fields comes first where the smoothness is no integer."""
    large = problem.graph.n_nodes >= _LARGE and problem.search.optimizer == "quasi-newton"
    return large and problem.likelihood.gaussian and problem.relative_error < ROUGHLY


def prefers_solves(problem: Problem, groups: list[Group], cost: Cost, unknowns: int = 1) -> bool:
    """Whether K_xx at the observations, by solves, takes less than selected inverses for as many updates.

    Parameters
    ----------
    problem : Problem
        What to fit.
    groups : list of Group
        The observations.
    cost : Cost
        Of a factorisation with one unknown per node.
    unknowns : int
        How many there are at every node.
    """
    updates, p = problem.updates, unknowns
    sizes = [len(np.unique(group.nodes)) for group in groups]
    by_solves = sum(4.0 * p**2 * n * cost.nnz_factor + updates * 3.0 * n**3 for n in sizes)
    by_inverses = updates * len(sizes) * p**3 * (3.0 * cost.flops + 20.0 * cost.nnz_factor)
    fits = sum(sizes) * p * problem.graph.n_nodes < 2**26  # the solutions are dense
    return updates > 1 and fits and by_solves < by_inverses


def sparse_cost(problem: Problem, nu: int, is_plenty: Callable[[Cost], bool] | None = None) -> Cost | None:
    """Cost of factorising the precision of smoothness ν, a lower bound where it takes long; None if out of reach.

    Parameters
    ----------
    problem : Problem
        What to fit.
    nu : int
        The smoothness.
    is_plenty : callable, optional
        Whether a lower bound is so much already that more need not be known: nothing is ordered then.
    """
    graph, normalized, n_threads = problem.graph, bool(problem.normalized), problem.n_threads

    def bound() -> Cost | None:
        return graph.cached(("separator cost",), lambda: separator_cost(graph.laplacian(normalized)))

    if is_plenty is not None:
        least = bound()
        if least is not None and is_plenty(least):
            return least

    def compute() -> Cost | None:
        laplacian = graph.laplacian(normalized)
        small = small_cost(laplacian, nu, n_threads)
        if small is not None:
            return small
        if power_nnz(laplacian, nu, limit=MOST_ENTRIES, check=False) > MOST_ENTRIES:
            return None
        try:
            early = early_cost(laplacian, enough=LONG, least=bound())
            if early is not None:
                return early
            return markov_precision(graph, nu, normalized=normalized, n_threads=n_threads).analysis.cost
        except ResourceError:
            return None

    return graph.cached(("sparse cost", nu, normalized, n_threads), compute)


def block_cost(problem: Problem, is_plenty: Callable[[Cost], bool] | None = None) -> Cost | None:
    """Cost of factorising the block precision of a smoothness that is not an integer; see `sparse_cost`."""
    single = sparse_cost(problem, 1, is_plenty)
    if single is None or single.seconds > LONG or (is_plenty is not None and is_plenty(single)):
        return single
    graph, normalized = problem.graph, bool(problem.normalized)
    base = markov_precision(graph, 1, normalized=normalized, n_threads=problem.n_threads).analysis
    values = {} if problem.kernel is None else problem.kernel.values()  # type: ignore[operator]
    nu, lengthscale = values.get("nu", 1.5), max(values.get("lengthscale", 0.0), _TYPICAL_LENGTHSCALE)
    error = problem.relative_error
    ratio = 1.0 + largest_eigenvalue_bound(graph.laplacian(normalized)) * lengthscale**2 / (2.0 * nu)
    terms = terms_for(min(ratio, widest_ratio(MOST_TERMS, error)), error)
    return BlockAnalysis.predict(base, terms + int(nu))
