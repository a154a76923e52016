"""Features of the nodes: from the caller's table, array or sparse matrix to what the engine uses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy.sparse import csr_array, issparse

from graphmatern._validation import FaultList, abbreviate, as_numbers
from graphmatern.errors import TableError
from graphmatern.inference import FeatureMatrix

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from graphmatern.graph import Graph

    Floats = NDArray[np.float64]

__all__ = ["read_features"]

_FEW = 0.5  # share of entries that are not 0, below which nonnegative features are counts of something


def read_features(graph: Graph, features: Any) -> FeatureMatrix | None:
    """Check features; every fault is reported at once.

    Sparse features, and others that are mostly 0 and never negative, are kept as they are; all others are measurements,
    and are standardised column by column. Columns that are constant say nothing and are dropped.

    Parameters
    ----------
    graph : Graph
        The graph.
    features : DataFrame, Series, array_like or sparse matrix, optional
        One row per node: a table indexed by node name, in any order, or an array or matrix in the order of the nodes.
    """
    if features is None:
        return None
    faults = FaultList("nothing was fitted", TableError)
    values: Any = _in_order(graph, features, faults)
    faults.raise_if_any()
    sparse = bool(issparse(values))
    rows = _broken_rows(values, sparse)
    if len(rows):
        received = f"NaN or infinite for {abbreviate(graph.nodes[rows])}"
        remedy = "Fill these in, by 0 or an average, or drop the columns."
        raise faults.raise_now("features", "must be finite numbers at every node", received, remedy)
    if not issparse(values) and values.size and values.min() >= 0.0 and np.mean(values != 0.0) < _FEW:
        values = csr_array(values)
    values = _sparse_columns(values) if issparse(values) else _standardised(values)
    if not values.shape[1]:
        remedy = "Leave out `features`, or give ones that differ between nodes."
        raise faults.raise_now("features", "must have a column that is not constant", "none", remedy)
    return FeatureMatrix(values)


def _broken_rows(values: Any, sparse: bool) -> NDArray[np.int64]:
    """Rows with entries that are not finite."""
    if sparse:
        entries = values.tocoo()
        return np.unique(entries.coords[0][~np.isfinite(entries.data)])
    return np.flatnonzero(~np.isfinite(values).all(axis=1))


def _in_order(graph: Graph, features: Any, faults: FaultList) -> Any:
    """Features in the order of the nodes, as a sparse matrix or an array of floats."""
    n = graph.n_nodes
    if isinstance(features, pd.Series):
        features = features.to_frame("feature")
    if isinstance(features, pd.DataFrame):
        return _rows_of_table(graph, features, faults)
    if issparse(features):
        values: Any = csr_array(features, dtype=np.float64)  # type: ignore[call-overload]
    else:
        values = as_numbers(features, "features", FaultList("nothing was fitted", TableError))  # NaN for what is none
        values = values[:, None] if values.ndim == 1 else values
    if values.ndim != 2 or values.shape[0] != n:
        rule = f"must have a row for each of the {n} nodes, or be a table indexed by node name"
        raise faults.raise_now("features", rule, f"shape {np.shape(features)}", "Complete it.")
    return values


def _rows_of_table(graph: Graph, features: pd.DataFrame, faults: FaultList) -> Any:
    codes = graph.names.codes(features.index)
    missing = np.setdiff1d(np.arange(graph.n_nodes), codes)
    if len(missing):
        received = f"none for {abbreviate(graph.nodes[missing])}, {len(missing):,} in all"
        remedy = "Predictions need them everywhere: fill these rows in, or leave the nodes out of the graph."
        faults.add("features", "must have a row for every node", received, remedy)
    known = codes >= 0
    if len(np.unique(codes[known])) < known.sum():
        twice = features.index[known & pd.Index(codes).duplicated(keep=False)].unique()
        faults.add("features", "must have one row per node", f"several for {abbreviate(twice)}", "Keep one.")
    wrong = [name for name, kind in features.dtypes.items() if not _is_number(kind)]
    if wrong:
        remedy = "Turn categories into columns of 0 and 1, with pandas.get_dummies."
        faults.add("features", "must have columns of numbers", f"other types in {abbreviate(wrong)}", remedy)
    faults.raise_if_any()
    order = np.empty(graph.n_nodes, dtype=np.int64)
    order[codes[known]] = np.flatnonzero(known)
    if features.shape[1] and all(isinstance(kind, pd.SparseDtype) for kind in features.dtypes):
        return csr_array(features.sparse.to_coo(), dtype=np.float64)[order]  # type: ignore[attr-defined]
    return features.to_numpy(dtype=np.float64, na_value=np.nan)[order]


def _is_number(kind: Any) -> bool:
    return bool(pd.api.types.is_numeric_dtype(kind)) and not pd.api.types.is_complex_dtype(kind)


def _sparse_columns(values: Any) -> csr_array[Any]:
    values = csr_array(values)
    values.sum_duplicates()
    values.eliminate_zeros()
    used = np.flatnonzero(np.bincount(values.indices, minlength=values.shape[1]))
    return values if len(used) == values.shape[1] else csr_array(values[:, used])


def _standardised(values: Floats) -> Floats:
    centred = values - values.mean(axis=0)
    scale = centred.std(axis=0)
    varies = scale > 1e-12 * np.abs(values).max(axis=0, initial=0.0)
    return np.asarray(centred[:, varies] / scale[varies])
