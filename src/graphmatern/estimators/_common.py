"""What regression and classification have in common: options, and where data reach."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from graphmatern._validation import check_positive, check_whole, note_choice, note_flag
from graphmatern.graph import Graph
from graphmatern.inference._rules import Rules
from graphmatern.kernels import Kernel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from graphmatern._validation import FaultList

__all__ = ["check_fit_options", "normalisation", "reached_by", "rules_of", "uses_normalized"]


def check_fit_options(estimator: Any, labels: Sequence[str], faults: FaultList) -> None:
    """Check the options of a fit; all faults are reported at once.

    Parameters
    ----------
    estimator : GraphGPRegressor, GraphGPClassifier or GraphFieldRegressor
        The estimator.
    labels : sequence of str
        Parameters beyond the kernel's, which bounds and priors may name.
    faults : FaultList
        Those found so far.
    """
    if estimator.optimizer is not None:
        note_choice("optimizer", estimator.optimizer, ("lbfgs", "adam"), faults)
    for name in ("normalized", "verbose"):
        if getattr(estimator, name) is not None:
            note_flag(name, getattr(estimator, name), faults)
    if not isinstance(estimator.graph, Graph):
        remedy = "Make one with gm.Graph.from_edges, from_networkx or another constructor."
        faults.add("graph", "must be a graphmatern Graph", f"a {type(estimator.graph).__name__}", remedy)
    kernel = estimator.kernel
    if kernel is not None and not isinstance(kernel, Kernel):
        remedy = "Such as gm.Matern(nu=1.5, lengthscale=3.0)."
        faults.add("kernel", "must be a kernel of this package", f"a {type(kernel).__name__}", remedy)
    check_whole("max_iterations", estimator.max_iterations, faults, minimum=1, remedy="Allow at least one.")
    if hasattr(estimator, "learning_rate"):
        check_positive("learning_rate", estimator.learning_rate, faults, remedy="0.1 is usual.")
    check_whole("n_restarts", estimator.n_restarts, faults, minimum=0, remedy="0 starts once.")
    if estimator.random_state is not None:
        check_whole("random_state", estimator.random_state, faults, minimum=0, remedy="Leave it out for any.")
    if estimator.n_eigenpairs is not None:
        remedy = "Leave it out for a good number."
        check_whole("n_eigenpairs", estimator.n_eigenpairs, faults, minimum=1, remedy=remedy)
    if getattr(estimator, "n_threads", None) is not None:
        check_whole("n_threads", estimator.n_threads, faults, minimum=1, remedy="Leave it out to use all processors.")
    faults.raise_if_any()
    names = ["nu", "lengthscale"] if kernel is None else [name for name, _ in kernel.named_parameters()]
    every = [*(name.replace("raw_", "") for name in names), "variance", *labels]
    rules_of(estimator).check(every, faults)
    faults.raise_if_any()


def normalisation(values: NDArray[np.float64]) -> tuple[float, float]:
    """Mean and standard deviation of some numbers; a median and 1 where they are all alike."""
    # In units of a power of two next to the largest value: their squares neither overflow nor vanish.
    unit = int(np.frexp(np.abs(values).max())[1])
    moderate = np.ldexp(values, -unit)
    spread = float(moderate.std())
    if spread <= 1e-12:
        return float(np.median(values)), 1.0
    return float(np.ldexp(moderate.mean(), unit)), float(np.ldexp(spread, unit))


def rules_of(estimator: Any) -> Rules:
    """Bounds and priors of an estimator."""
    return Rules(*({} if rules is None else rules for rules in (estimator.bounds, estimator.priors)))


def uses_normalized(estimator: Any) -> bool:
    """Whether an estimator uses the normalised Laplacian: as asked for, or where its kernel requires it."""
    if estimator.normalized is None:
        return estimator.kernel is not None and bool(estimator.kernel.requires_normalized)
    return bool(estimator.normalized)


def reached_by(graph: Graph, nodes: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether each node shares its connected component with one of some nodes; shape (n_nodes,)."""
    reached = np.zeros(graph.n_components, dtype=bool)
    reached[graph.components[nodes]] = True
    return np.asarray(reached[graph.components])
