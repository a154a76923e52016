"""From what a caller asks for to places and numbers, all faults reported at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from graphmatern._validation import FaultList, abbreviate, as_numbers, check_positive, check_whole, describe_rows
from graphmatern.design._measurable import Measurable, of_bound_kernel
from graphmatern.errors import TableError
from graphmatern.graph import index_of_names
from graphmatern.kernels import BoundKernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from graphmatern.graph import Graph

    Floats = NDArray[np.float64]
    Longs = NDArray[np.int64]

__all__ = ["Wishes", "read_measurable", "read_nodes", "read_noise", "read_values", "read_wishes"]


def read_measurable(model: Any, subject: str) -> Measurable:
    """The process of a model, or of a kernel bound to a graph."""
    if isinstance(model, BoundKernel):
        return of_bound_kernel(model)
    if not hasattr(model, "measurable"):
        rule = "must be a regressor, fitted or with a kernel and a noise variance, or a kernel bound to a graph"
        remedy = "Pass gm.GraphGPRegressor(...) or kernel.on(graph); a classifier has `suggest`."
        raise FaultList(subject, TableError).raise_now("model", rule, f"a {type(model).__name__}", remedy)
    found: Measurable = model.measurable()
    return found


def read_nodes(graph: Graph, names: Any, argument: str, faults: FaultList) -> Longs:
    """Positions of nodes, each once; faults are noted."""
    try:
        index = index_of_names(names)
        codes = np.asarray(graph.names.codes(index))
    except (TypeError, pd.errors.InvalidIndexError) as error:
        faults.add(argument, "must be a 1-D sequence of node names", str(error), "Use a list.")
        return np.zeros(0, dtype=np.int64)
    if (codes < 0).any():
        graph.names.note_unknown(index[codes < 0], argument, faults)
    if index.has_duplicates:
        twice = index[index.duplicated()].unique()
        faults.add(argument, "must name each node once", abbreviate(twice), "Remove the repetitions.")
    found: Longs = np.unique(codes[codes >= 0]) if index.has_duplicates else codes[codes >= 0]
    return found


def read_values(graph: Graph, values: Any, nodes: Longs, argument: str, faults: FaultList, remedy: str) -> Floats:
    """A positive number for each of some nodes: one for all, by node name, or in the order of the nodes; (n,)."""
    if isinstance(values, pd.Series | Mapping):
        series = values if isinstance(values, pd.Series) else pd.Series(values, dtype=object)
        codes = np.asarray(graph.names.codes(index_of_names(series.index)))
        known = np.full(graph.n_nodes, np.nan)
        numbers = as_numbers(series.to_numpy(), argument, faults, minimum=0.0, above=True, remedy=remedy)
        known[codes[codes >= 0]] = numbers[codes >= 0]
        named = np.zeros(graph.n_nodes, dtype=bool)
        named[codes[codes >= 0]] = True
        if not named[nodes].all():
            missing = graph.nodes[nodes[~named[nodes]]]
            faults.add(argument, "must have an entry for every candidate", f"none for {abbreviate(missing)}", remedy)
        return known[nodes]
    numbers = as_numbers(values, argument, faults, minimum=0.0, above=True, remedy=remedy)
    if numbers.shape not in ((), nodes.shape):
        rule = f"must be one number, one for each of {len(nodes)} nodes in their order, or a Series by node name"
        faults.add(argument, rule, f"shape {numbers.shape}", "Index them by node name.")
        return np.ones(len(nodes))
    return np.broadcast_to(numbers, nodes.shape).copy()


def read_noise(measurable: Measurable, noise: Any, nodes: Longs, faults: FaultList) -> list[Floats]:
    """Noise variances of measurements at some nodes, for each version of the process; each of shape (n,)."""
    if noise is None:
        if any(one.noise is None for one in measurable.versions):
            rule = "must be given if the model has none, as with a kernel"
            faults.add("noise", rule, "none", "Pass the variance of a sensor's error, or one for each node.")
            return [np.ones(len(nodes)) for _ in measurable.versions]
        every = (np.broadcast_to(one.noise, (measurable.graph.n_nodes,)) for one in measurable.versions)  # type: ignore[arg-type]
        return [own[nodes] for own in every]
    remedy = "Noise variances are positive, in the squared unit of the measurements."
    own = read_values(measurable.graph, noise, nodes, "noise", faults, remedy) / measurable.unit**2
    return [own for _ in measurable.versions]


@dataclass(frozen=True, eq=False)
class Wishes:
    """What to choose from, and what for.

    Attributes
    ----------
    most : int
        How many to choose at most.
    candidates, targets, existing : ndarray of int64
        Positions of nodes.
    noise : list of ndarray, shape (n_candidates,)
        Noise variances of candidates for each version of the process, in its own unit.
    existing_noise : list of ndarray, shape (n_existing,)
        Likewise.
    costs : ndarray, shape (n_candidates,), optional
        Unless all cost the same.
    budget : float
        What may be spent; infinite where that does not matter.
    """

    most: int
    candidates: Longs
    targets: Longs
    existing: Longs
    noise: list[Floats]
    existing_noise: list[Floats]
    costs: Floats | None
    budget: float


def read_wishes(
    measurable: Measurable,
    n: Any,
    *,
    candidates: Any,
    targets: Any,
    existing: Any,
    noise: Any,
    costs: Any,
    budget: Any,
    subject: str,
) -> Wishes:
    """Check all that was asked for; one error names everything that is wrong."""
    graph, faults = measurable.graph, FaultList(subject, TableError)
    there = np.zeros(0, dtype=np.int64) if existing is None else read_nodes(graph, existing, "existing", faults)
    if candidates is None:
        free = np.ones(graph.n_nodes, dtype=bool)
        free[there] = False
        free[measurable.observed] = False
        chosen = np.flatnonzero(free)
    else:
        chosen = read_nodes(graph, candidates, "candidates", faults)
    aims = np.arange(graph.n_nodes) if targets is None else read_nodes(graph, targets, "targets", faults)
    if not len(aims) and not len(faults):
        faults.add("targets", "must name at least one node", "none", "Leave it out for all nodes.")
    if n is None:
        if budget is None:
            faults.add("n", "must be given if there is no budget", "None", "Give the number of nodes, or a budget.")
    elif isinstance(n, int | np.integer) and not isinstance(n, bool) and n > len(chosen):
        rule = f"must be at most the number of candidates, {len(chosen)}"
        faults.add("n", rule, str(n), "Ask for fewer, or name more candidates.")
    else:
        check_whole("n", n, faults, minimum=1, remedy="Choose at least one.")
    prices = None
    if costs is not None:
        prices = read_values(graph, costs, chosen, "costs", faults, "Every candidate costs something, above 0.")
    if budget is not None:
        check_positive("budget", budget, faults, remedy="Leave it out if cost does not matter.")
    own = read_noise(measurable, noise, np.concatenate([chosen, there]), faults)
    low = [np.isnan(one) | (one <= 0.0) for one in own]
    if not len(faults) and any(bad.any() for bad in low):
        received = describe_rows(low[0], own[0])
        faults.add("noise", "must be above 0", received, "For an exact sensor, use a very small variance.")
    faults.raise_if_any()
    cheapest = 1.0 if prices is None else float(prices.min())
    if budget is not None and cheapest > float(budget):
        rule = f"must pay for the cheapest candidate, which costs {cheapest:g}"
        raise faults.raise_now("budget", rule, f"{float(budget):g}", "Raise it, or name cheaper candidates.")
    m = len(chosen)
    return Wishes(
        len(chosen) if n is None else int(n),
        chosen,
        aims,
        there,
        [one[:m] for one in own],
        [one[m:] for one in own],
        prices,
        np.inf if budget is None else float(budget),
    )
