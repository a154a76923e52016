"""From what a caller passes to `fit` to batches of observations in normalised units."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from graphmatern._validation import FaultList, abbreviate, as_numbers
from graphmatern.errors import TableError

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


def read_observations(graph: Graph, nodes: Any, y: Any, noise: Any, exposure: Any = None) -> TrainingData:
    """Check what was passed to ``fit``; every fault is reported at once.

    Parameters
    ----------
    graph : Graph
        The graph.
    nodes : sequence of hashable, Series or DataFrame
        Node names; or values indexed by node name, where ``y`` is None.
    y : array_like, shape (n,) or (n, n_replicates), optional
        Values; NaN means not observed.
    noise : array_like, shape (n,), optional
        Known noise variances.
    exposure : array_like, shape (n,), optional
        Exposures of counts.
    """
    faults = FaultList("nothing was fitted", TableError)
    if y is None:
        if not isinstance(nodes, pd.Series | pd.DataFrame):
            received = f"a {type(nodes).__name__} and no `y`"
            remedy = "Pass node names and values, or a Series indexed by node name."
            raise faults.raise_now("nodes", "must come with `y`, or be a Series or DataFrame", received, remedy)
        nodes, y = nodes.index, nodes.to_numpy()
    try:
        codes = graph._parts.names.codes(nodes)
    except TypeError as error:
        raise faults.raise_now("nodes", "must be a 1-D sequence of node names", str(error), "Use a list.") from None
    if (codes < 0).any():
        graph._parts.names.note_unknown(pd.Index(list(nodes), tupleize_cols=False)[codes < 0], "nodes", faults)
    checked = FaultList("", TableError)
    values = as_numbers(y, "y", checked)
    if values.ndim == 1:
        values = values[:, None]
    if values.ndim != 2 or len(values) != len(codes):
        rule = f"must have shape ({len(codes)},) or ({len(codes)}, n_replicates)"
        raise faults.raise_now("y", rule, f"shape {np.shape(y)}", "One value per node named.")
    if np.isinf(values).any() or (len(checked) and np.asarray(y).dtype.kind not in "buif"):
        bad = np.flatnonzero((~np.isfinite(values)).any(axis=1))
        faults.add(
            "y",
            "must hold numbers, or NaN for what was not observed",
            f"others in rows {abbreviate(bad)}",
            "Correct them.",
        )
    known = {"noise_variance": noise, "exposure": exposure}
    positive: dict[str, Floats] = {}
    for name, given in known.items():
        if given is not None:
            positive[name] = as_numbers(given, name, faults, minimum=0.0, above=True)
            shape = positive[name].shape
            if shape != (len(codes),):
                faults.add(name, f"must have shape ({len(codes)},)", f"shape {shape}", "One per value.")
    faults.raise_if_any()
    kept = ~np.isnan(values).all(axis=1)
    if not kept.any():
        raise faults.raise_now("y", "must hold at least one value", "none", "NaN means not observed.")
    variances, exposures = (positive[name][kept] if name in positive else None for name in known)
    return TrainingData(codes[kept], values[kept], variances, exposures)


def join_observations(one: TrainingData, other: TrainingData) -> TrainingData:
    """Put two sets of observations together; where only one has exposures, those of the other are 1."""
    exposure = None
    if one.exposure is not None or other.exposure is not None:
        exposure = np.concatenate([np.ones(len(x.nodes)) if x.exposure is None else x.exposure for x in (one, other)])
    return TrainingData(np.concatenate([one.nodes, other.nodes]), np.vstack([one.y, other.y]), None, exposure)
