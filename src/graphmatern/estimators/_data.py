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

__all__ = ["TrainingData", "read_observations"]


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
    """

    nodes: NDArray[np.int64]
    y: Floats
    noise: Floats | None


def read_observations(graph: Graph, nodes: Any, y: Any, noise: Any) -> TrainingData:
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
    variances = None
    if noise is not None:
        variances = as_numbers(noise, "noise_variance", faults, minimum=0.0, above=True)
        if variances.shape != (len(codes),):
            faults.add(
                "noise_variance", f"must have shape ({len(codes)},)", f"shape {variances.shape}", "One per value."
            )
    faults.raise_if_any()
    kept = ~np.isnan(values).all(axis=1)
    if not kept.any():
        raise faults.raise_now("y", "must hold at least one value", "none", "NaN means not observed.")
    return TrainingData(codes[kept], values[kept], None if variances is None else variances[kept])
