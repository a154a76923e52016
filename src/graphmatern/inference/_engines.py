"""The engines of regression, and which of them suits a graph and a kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphmatern._validation import FaultList, check_choice
from graphmatern.errors import KernelError, ResourceError
from graphmatern.inference._fit_markov import fit_markov, smoothnesses
from graphmatern.inference._fit_spectral import DENSE_NODES, fit_spectral
from graphmatern.inference._markov import markov_precision

if TYPE_CHECKING:
    from collections.abc import Callable

    from graphmatern.inference._fit_sites import SiteProblem
    from graphmatern.inference._fitting import FitProblem, FittedEngine

__all__ = ["ENGINES", "choose_engine"]

#: An engine more is a line more here, and a rule in `choose_engine`.
ENGINES: dict[str, Callable[[FitProblem], FittedEngine]] = {"spectral": fit_spectral, "markov": fit_markov}

_SECONDS = 60.0  # of one factorisation: beyond that, leading eigenpairs are the lesser evil


def choose_engine(problem: FitProblem | SiteProblem, wanted: str) -> tuple[str, str]:
    """Name of the engine to use, and the reason in a sentence.

    Parameters
    ----------
    problem : FitProblem or SiteProblem
        What is to be fitted.
    wanted : str
        An engine's name, or "auto".
    """
    check_choice("engine", wanted, ("auto", *ENGINES), KernelError)
    n, kernel = problem.graph.n_nodes, problem.kernel
    possible = smoothnesses(kernel, problem.options.rules)
    if wanted == "markov" and not smoothnesses(kernel):
        faults = FaultList("nothing was fitted", KernelError)
        rule = "must be Matérn of integer smoothness for engine='markov'"
        remedy = "Use Matern with nu = 1, 2 or 3, or engine='spectral'."
        raise faults.raise_now("kernel", rule, repr(kernel), remedy)
    if wanted != "auto":
        return wanted, "asked for"
    if n <= DENSE_NODES:
        return "spectral", f"{n:,} nodes: all eigenpairs are cheap, any smoothness can be learned"
    if problem.n_eigenpairs is not None:
        return "spectral", f"{problem.n_eigenpairs:,} eigenpairs were asked for"
    if not possible:
        return "spectral", f"{n:,} nodes and a kernel without sparse precision: leading eigenpairs"
    try:
        precision = markov_precision(
            problem.graph, possible[0], normalized=problem.options.normalized, n_threads=problem.n_threads
        )
    except ResourceError:
        return "spectral", f"{n:,} nodes whose sparse precision would not fit into memory: leading eigenpairs"
    cost = precision.analysis.cost
    if cost.seconds > _SECONDS:
        reason = f"{n:,} nodes that fill in: a factorisation would take about {cost.seconds:.0f} s; leading eigenpairs"
        return "spectral", reason
    entries = f"{cost.nnz_factor / n:.0f} entries per node in the factor"
    return "markov", f"{n:,} nodes and integer smoothness: the sparse precision is exact and fast ({entries})"
