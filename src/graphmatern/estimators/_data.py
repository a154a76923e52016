"""From what a caller passes to `fit` to batches of observations in normalised units."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from graphmatern._validation import FaultList, abbreviate, as_numbers, plain_array
from graphmatern.errors import TableError
from graphmatern.graph._names import index_of_names

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from graphmatern.graph import Graph

    Floats = NDArray[np.float64]

__all__ = ["TrainingData", "join_observations", "read_observations"]


@dataclass(frozen=True, eq=False)
class TrainingData:
    """Observations in the caller's units.

    Attributes
    ----------
    nodes : ndarray of int64, shape (n,)
        Positions of the observed nodes.
    y : ndarray, shape (n, n_replicates)
        Values; NaN where a replicate was not observed.
    noise : ndarray, shape (n,), optional
        Known noise variances.
    exposure : ndarray, shape (n,), optional
        For how long, or over how much, each count was taken.
    """

    nodes: NDArray[np.int64]
    y: Floats
    noise: Floats | None
    exposure: Floats | None = None


def read_observations(
    graph: Graph, nodes: Any, y: Any, noise: Any = None, exposure: Any = None, *, subject: str = "nothing was fitted"
) -> TrainingData:
    """Check what was passed to ``fit`` and its like; every fault is reported at once.

    Parameters
    ----------
    graph : Graph
        The graph.
    nodes : sequence of hashable, Series or DataFrame
        Node names; or values indexed by node name, where ``y`` is None.
    y : array_like, shape (n,) or (n, n_replicates), optional
        Values; NaN, None and NA mean not observed.
    noise : array_like, shape (n,), optional
        Known noise variances; a Series is matched by node name where the values have names as well.
    exposure : array_like, shape (n,), optional
        Exposures of counts; likewise.
    subject : str
        What did not happen, if something is wrong.
    """
    faults = FaultList(subject, TableError)
    if y is None:
        if not isinstance(nodes, pd.Series | pd.DataFrame):
            received = f"a {type(nodes).__name__} and no `y`"
            remedy = "Pass node names and values, or a Series indexed by node name."
            raise faults.raise_now("nodes", "must come with `y`, or be a Series or DataFrame", received, remedy)
        nodes, y = nodes.index, nodes.to_numpy()
        noise = _by_name(noise, nodes, "noise_variance", faults)
        exposure = _by_name(exposure, nodes, "exposure", faults)
    try:
        nodes = index_of_names(nodes)
        codes = graph._parts.names.codes(nodes)
    except (TypeError, pd.errors.InvalidIndexError) as error:
        raise faults.raise_now("nodes", "must be a 1-D sequence of node names", str(error), "Use a list.") from None
    if (codes < 0).any():
        graph._parts.names.note_unknown(nodes[codes < 0], "nodes", faults)
    values, wrong = _values(y)
    if values.ndim != 2 or len(values) != len(codes):
        rule = f"must have shape ({len(codes)},) or ({len(codes)}, n_replicates)"
        raise faults.raise_now("y", rule, f"shape {np.shape(values)}", "One value per node named.")
    if wrong.any():
        bad = np.flatnonzero(wrong.any(axis=1))
        rule = "must hold numbers, or NaN for what was not observed"
        faults.add("y", rule, f"others in rows {abbreviate(bad)}", "Correct them.")
    kept = np.asarray(~np.isnan(values).all(axis=1))
    variances = _positive(noise, "noise_variance", kept, faults)
    exposures = _positive(exposure, "exposure", kept, faults)
    faults.raise_if_any()
    if not kept.any():
        raise faults.raise_now("y", "must hold at least one value", "none", "NaN means not observed.")
    return TrainingData(codes[kept], values[kept], variances, exposures)


def join_observations(one: TrainingData, other: TrainingData) -> TrainingData:
    """Put two sets of observations together; where only one has exposures, those of the other are 1."""
    exposure = None
    if one.exposure is not None or other.exposure is not None:
        exposure = np.concatenate([np.ones(len(x.nodes)) if x.exposure is None else x.exposure for x in (one, other)])
    noise = None if one.noise is None or other.noise is None else np.concatenate([one.noise, other.noise])
    return TrainingData(np.concatenate([one.nodes, other.nodes]), np.vstack([one.y, other.y]), noise, exposure)


def _values(y: Any) -> tuple[Floats, NDArray[np.bool_]]:
    """Values as columns, NaN where there is none, and which are neither finite numbers nor missing."""
    values = as_numbers(y, "y", FaultList("", TableError))
    wrong = np.isinf(values)
    raw = plain_array(y)
    if raw is not None and raw.dtype.kind not in "buif":
        wrong |= np.isnan(values) & ~np.asarray(pd.isna(raw))
    return (values[:, None], wrong[:, None]) if values.ndim == 1 else (values, wrong)


def _by_name(given: Any, names: pd.Index[Any], argument: str, faults: FaultList) -> Any:
    """What was given per value, in the order of the values where both have node names."""
    if not isinstance(given, pd.Series) or given.index.equals(names):
        return given
    if not given.index.is_unique:
        rule = "must have the index of the values, or each node once"
        raise faults.raise_now(argument, rule, "another index with repeats", "Pass an array to go by position.")
    return given.reindex(names)


def _positive(given: Any, argument: str, kept: NDArray[np.bool_], faults: FaultList) -> Floats | None:
    """Positive numbers, one per value that was observed; what is given for others is of no concern."""
    if given is None:
        return None
    numbers = as_numbers(given, argument, FaultList("", TableError))
    if numbers.shape != kept.shape:
        faults.add(argument, f"must have shape {kept.shape}", f"shape {numbers.shape}", "One per value.")
        return None
    numbers[~kept] = 1.0
    return as_numbers(numbers, argument, faults, minimum=0.0, above=True)[kept]
