"""From what a caller passes to the parts of a graph, with every fault reported at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import scipy.sparse as sp

from graphmatern._validation import FaultList, abbreviate, as_numbers, check_choice
from graphmatern.errors import GraphError, TableError
from graphmatern.graph._edge_rows import PARALLEL_RULES, EdgeRows, canonical, mean_over_length, warn_of_loops
from graphmatern.graph._geometry import parse_line
from graphmatern.graph._names import NodeNames, end_names, index_of_names, join_indexes, warn_of_lookalikes
from graphmatern.graph._parts import GraphParts, checked
from graphmatern.sparse._pattern import is_symmetric
from graphmatern.tables import edge_columns, table_column

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["arranged", "node_array", "parts_from_adjacency", "parts_from_edges"]


def node_array(
    values: Any,
    names: NodeNames,
    argument: str,
    faults: FaultList,
    *,
    columns: bool = False,
    minimum: float = -np.inf,
) -> NDArray[np.float64] | None:
    """Arrange per-node numbers in node order.

    Parameters
    ----------
    values : array_like, mapping, Series or DataFrame
        An array is in node order; the others are looked up by node name.
    names : NodeNames
        The nodes.
    argument : str
        Name for the messages.
    faults : FaultList
        Where faults are noted.
    columns : bool
        Whether each node has several numbers (shape (n_nodes, n_columns)) or one.
    minimum : float
        Values must be above this.

    Returns
    -------
    ndarray or None
        None where a fault was noted.
    """
    before = len(faults)
    if isinstance(values, Mapping | pd.Series | pd.DataFrame):
        values = _by_name(values, names, argument, faults)
        if values is None:
            return None
    numbers = as_numbers(values, argument, faults, minimum=minimum, above=True)
    wanted = 2 if columns else 1
    if len(faults) == before and (numbers.ndim != wanted or numbers.shape[0] != len(names) or 0 in numbers.shape):
        shape = f"({len(names)}, n_dimensions)" if columns else f"({len(names)},)"
        faults.add(argument, f"must have shape {shape}", f"shape {numbers.shape}", "One row per node, in node order.")
    return numbers if len(faults) == before else None


def _by_name(values: Any, names: NodeNames, argument: str, faults: FaultList) -> Any:
    """Return values given by node name in node order; None where some are missing or repeated."""
    if isinstance(values, Mapping):
        given, rows = index_of_names(list(values)), list(values.values())
    else:
        given, rows = index_of_names(values.index), values.to_numpy()
    if given.has_duplicates:
        repeated = given[given.duplicated()].unique()
        faults.add(argument, "must have one entry per node", f"repeats of {abbreviate(repeated)}", "Remove them.")
        return None
    place = NodeNames(given).codes(names.index)
    if (place < 0).any():
        absent = abbreviate(names.index[place < 0])
        faults.add(argument, "must cover every node", f"nothing for {absent}", "Add the missing nodes.")
        return None
    return [rows[k] for k in place] if isinstance(rows, list) else rows[place]


def arranged(values: Any, names: NodeNames, *, missing: bool) -> NDArray[np.float64]:
    """Arrange values in node order; see `Graph.arrange`."""
    faults = FaultList("no values in node order", TableError)
    if isinstance(values, Mapping):
        values = pd.Series(list(values.values()), index=index_of_names(list(values)))
    if isinstance(values, pd.Series | pd.DataFrame):
        known = names.codes(values.index) >= 0
        if not known.all():
            names.note_unknown(values.index[~known], "values", faults)
        if missing and not values.index.has_duplicates:
            values = values.reindex(names.index)
        else:
            values = _by_name(values, names, "values", faults)
        faults.raise_if_any()
    found = FaultList("no values in node order", TableError)
    numbers = as_numbers(values, "values", found)
    if not (missing and numbers.dtype == np.float64 and not np.isinf(numbers).any()):
        found.raise_if_any()
    if numbers.ndim not in (1, 2) or len(numbers) != len(names):
        rule = f"must have shape ({len(names)},) or ({len(names)}, n_columns)"
        raise faults.raise_now("values", rule, f"shape {numbers.shape}", "One row per node, in node order.")
    return numbers


def _per_edge(
    values: Any, n_rows: int, argument: str, faults: FaultList, *, above: bool = False
) -> NDArray[np.float64] | None:
    """Return one number per edge row."""
    if values is None:
        return None
    remedy = "Give every edge a positive length." if above else "Correct these rows, or remove the edges."
    before = len(faults)
    numbers = as_numbers(values, argument, faults, minimum=0.0, above=above, remedy=remedy)
    if len(faults) == before and numbers.shape != (n_rows,):
        rule = f"must have one entry per edge ({n_rows})"
        faults.add(argument, rule, f"shape {numbers.shape}", "Check the table.")
    return numbers


def _geometries(column: Any, n_rows: int, faults: FaultList) -> list[NDArray[np.float64] | None] | None:
    """Parse one polyline per row; missing ones are None."""
    if column is None:
        return None
    lines: list[NDArray[np.float64] | None] = []
    bad: dict[int, str] = {}
    for row, item in enumerate(column):
        missing = item is None or item is pd.NA or (isinstance(item, float) and np.isnan(item))
        try:
            lines.append(None if missing else parse_line(item))
        except (TypeError, ValueError) as error:
            bad[row] = str(error)
    if bad:
        received = abbreviate([f"row {row}: {reason}" for row, reason in bad.items()])
        faults.add("geometry", "must hold WKT LINESTRINGs or lines", received, "Correct or empty these cells.")
    elif len(lines) != n_rows:
        faults.add("geometry", f"must have one entry per edge ({n_rows})", f"{len(lines)}", "Check the table.")
    return lines


def _edge_ids(column: Any, n_rows: int, faults: FaultList) -> pd.Index[Any] | None:
    if column is None:
        return None
    remedy = "Give every edge an id of its own, or leave `id` out: row numbers serve as well."
    ids = NodeNames.build(column, faults, "id", remedy)
    if ids is not None and len(ids) != n_rows:
        faults.add("id", f"must have one entry per edge ({n_rows})", f"{len(ids)}", "Check the table.")
    return None if ids is None else ids.index


def _node_names(
    nodes: Any, ends: tuple[pd.Index[Any], pd.Index[Any]], faults: FaultList
) -> tuple[NodeNames | None, NDArray[np.int64], NDArray[np.int64]]:
    """Return the names and the position of both ends of every edge."""
    if nodes is None:
        # Order of first appearance, row by row.
        m = len(ends[0])
        order = np.arange(2 * m).reshape(2, m).T.ravel()
        codes, unique = pd.factorize(join_indexes(*ends).take(order), sort=False)
        warn_of_lookalikes(unique)
        codes = codes.astype(np.int64)
        return NodeNames(index_of_names(unique)), codes[0::2], codes[1::2]
    names = NodeNames.build(nodes, faults)
    if names is None:
        return None, np.zeros(0, np.int64), np.zeros(0, np.int64)
    source, target = (names.codes(end) for end in ends)
    for codes, end, argument in ((source, ends[0], "source"), (target, ends[1], "target")):
        if (codes < 0).any():
            names.note_unknown(end[codes < 0], argument, faults)
    return names, source, target


def _node_parts(
    names: NodeNames | None, positions: Any, masses: Any, faults: FaultList
) -> tuple[NDArray[np.float64] | None, NDArray[np.float64] | None]:
    """Positions and masses in node order, where given."""
    places = mass = None
    if names is not None:
        if len(names) == 0:
            remedy = "Give edges, or `nodes=` for isolated nodes."
            faults.add("nodes", "must name at least one node", "none", remedy)
        elif positions is not None:
            places = node_array(positions, names, "positions", faults, columns=True)
        if masses is not None:
            mass = node_array(masses, names, "masses", faults, minimum=0.0)
    return places, mass


def parts_from_edges(
    edges: Any,
    *,
    source: Any = None,
    target: Any = None,
    weight: Any = None,
    length: Any = None,
    id: Any = None,  # noqa: A002
    geometry: Any = None,
    nodes: Any = None,
    positions: Any = None,
    masses: Any = None,
    parallel: str = "sum",
    warn_parallel: bool = True,
    keep_lengths: bool = False,
) -> GraphParts:
    """Validate an edge list and merge it; see `Graph.from_edges` for the parameters.

    With ``keep_lengths``, lengths may stand beside weights, which do not follow from them then.
    """
    check_choice("parallel", parallel, PARALLEL_RULES, GraphError)
    faults = FaultList("no graph was made", GraphError)
    others = {"weight": weight, "length": length, "id": id, "geometry": geometry}
    table, first, second = edge_columns(edges, source, target, others, faults)
    ends = end_names(first, "source", faults), end_names(second, "target", faults)
    n_rows = 0 if ends[0] is None else len(ends[0])
    if weight is not None and length is not None and not keep_lengths:
        faults.add("length", "must not be given with `weight`", "both", "Weights follow from lengths; give one.")
    if parallel == "mean_length" and length is None:
        remedy = "Use 'sum' or 'first'."
        faults.add("parallel", "must not be 'mean_length' without lengths", "no `length`", remedy)
    weights = _per_edge(table_column(table, weight, "weight", faults), n_rows, "weight", faults)
    lengths = _per_edge(table_column(table, length, "length", faults), n_rows, "length", faults, above=True)
    lines = _geometries(table_column(table, geometry, "geometry", faults), n_rows, faults)
    ids = _edge_ids(table_column(table, id, "id", faults), n_rows, faults)
    names: NodeNames | None = None
    start = end = np.zeros(0, np.int64)
    if ends[0] is not None and ends[1] is not None:
        names, start, end = _node_names(nodes, (ends[0], ends[1]), faults)
    places, mass = _node_parts(names, positions, masses, faults)
    faults.raise_if_any()
    assert names is not None
    weighting = "weight" if weights is not None else "unit" if lengths is None else "length"
    row_weight = np.ones(n_rows) if weights is None else weights
    rows = EdgeRows(start, end, row_weight, lengths, lines, ids, weighting).without_loops()
    if rows.length is not None and weighting == "length":
        with np.errstate(over="ignore"):
            rows = replace(rows, weight=mean_over_length(rows.length))
    _treat_parallel(rows, names, parallel, warn_parallel=warn_parallel)
    return checked(GraphParts(rows.merge(len(names), parallel), names, rows, places, mass, parallel))


def _treat_parallel(rows: EdgeRows, names: NodeNames, parallel: str, *, warn_parallel: bool) -> None:
    """Warn of parallel rows, or raise where the caller wants that."""
    if parallel == "error":
        repeated = np.flatnonzero(pd.Series(rows.pair_keys(len(names))).duplicated())
        if len(repeated):
            pairs = [(names.index[rows.source[row]], names.index[rows.target[row]]) for row in repeated[:5]]
            received = abbreviate(pairs, len(repeated))
            faults = FaultList("no graph was made", GraphError)
            remedy = "Merge them, or choose another `parallel=`."
            raise faults.raise_now("edges", "must not repeat a pair of nodes", received, remedy)
    elif rows.weighting != "unit" and warn_parallel:
        rows.warn_of_parallel(len(names), parallel)


def parts_from_adjacency(adjacency: Any, *, nodes: Any, positions: Any, masses: Any) -> GraphParts:
    """Validate a weight matrix; see `Graph.from_adjacency` for the parameters."""
    faults = FaultList("no graph was made", GraphError)
    if isinstance(adjacency, pd.DataFrame):
        if nodes is None:
            nodes = adjacency.index
            if not adjacency.columns.equals(nodes):
                received = f"rows {abbreviate(nodes)} and columns {abbreviate(adjacency.columns)}"
                faults.add("adjacency", "must have the same names for rows and columns", received, "Reorder them.")
        adjacency = adjacency.to_numpy()
    given = _proper(adjacency)
    matrix = _matrix(adjacency, faults) if given is None else given
    n = matrix.shape[0]
    names = NodeNames.default(n) if nodes is None else NodeNames.build(nodes, faults)
    if names is not None and len(names) != n:
        faults.add("nodes", f"must name every row ({n})", f"{len(names)} names", "One name per row, in order.")
        names = None
    if given is None and np.isfinite(matrix.data).all():
        _note_asymmetry(matrix, faults)
    places, mass = _node_parts(names, positions, masses, faults)
    faults.raise_if_any()
    assert names is not None
    return checked(GraphParts(_clean(matrix) if given is None else given, names, None, places, mass))


def _proper(adjacency: Any) -> sp.csr_array | None:
    """Return a copy of a matrix that needs no correction, which is soon found out; None otherwise."""
    if not isinstance(adjacency, sp.csr_array | sp.csr_matrix) or adjacency.dtype != np.float64:
        return None
    if adjacency.shape[0] != adjacency.shape[1] or not adjacency.has_canonical_format:
        return None
    matrix = canonical(sp.csr_array(adjacency, copy=True))
    if not (matrix.data > 0).all() or not np.isfinite(matrix.data).all() or matrix.diagonal().any():
        return None
    return matrix if is_symmetric(matrix.indptr, matrix.indices, matrix.data) else None


def _matrix(adjacency: Any, faults: FaultList) -> sp.csr_array:
    """Return a square matrix; entries at fault are noted."""
    was_sparse = isinstance(adjacency, sp.sparray | sp.spmatrix)
    if not was_sparse:
        # Never handed to scipy as it is: a tuple would be read as its internal representation.
        adjacency = as_numbers(adjacency, "adjacency", faults, minimum=0.0, remedy="0 means no edge.")
    elif adjacency.dtype.kind not in "buif":
        received = f"type {adjacency.dtype}"
        raise faults.raise_now("adjacency", "must hold real numbers", received, "Convert it first.")
    if adjacency.ndim != 2 or adjacency.shape[0] != adjacency.shape[1]:
        remedy = "One row and one column per node."
        raise faults.raise_now("adjacency", "must be a square matrix", f"shape {adjacency.shape}", remedy)
    matrix = sp.csr_array(adjacency, dtype=np.float64, copy=True)
    matrix.sum_duplicates()
    if was_sparse:
        _note_bad_weights(matrix, faults)
    return matrix


def _cells(matrix: sp.coo_array, chosen: NDArray[np.bool_]) -> str:
    """Spell out the rows and columns of some entries."""
    rows, columns = matrix.coords[0][chosen], matrix.coords[1][chosen]
    return abbreviate(list(zip(rows[:6].tolist(), columns[:6].tolist(), strict=True)), len(rows))


def _note_bad_weights(matrix: sp.csr_array, faults: FaultList) -> None:
    """Note entries that are not finite or below 0, with their place."""
    entries = matrix.tocoo()
    infinite = ~np.isfinite(entries.data)
    for bad, rule in (
        (infinite, "must hold finite numbers"),
        ((entries.data < 0) & ~infinite, "must be at least 0"),
    ):
        if bad.any():
            received = f"{abbreviate(np.unique(entries.data[bad]))} at {_cells(entries, bad)}"
            faults.add("adjacency", rule, received, "Correct these entries; 0 means no edge.")


def _note_asymmetry(matrix: sp.csr_array, faults: FaultList) -> None:
    """Note entries that differ from their mirror image by more than rounding."""
    mirror = sp.csr_array(matrix.T)
    excess = sp.coo_array(abs(matrix - mirror) - 1e-12 * abs(matrix).maximum(abs(mirror)))
    bad = excess.data > 0
    if bad.any():
        received = f"different values at {_cells(excess, bad)} and their mirror images"
        faults.add("adjacency", "must be symmetric", received, "Use (W + W.T) / 2 for an undirected graph.")


def _clean(matrix: sp.csr_array) -> sp.csr_array:
    """Return the exactly symmetric matrix without its diagonal, with a warning for self-loops."""
    warn_of_loops(int(np.count_nonzero(matrix.diagonal())))
    upper = sp.triu(matrix, k=1, format="csr")
    upper.eliminate_zeros()
    return canonical(sp.csr_array(upper + upper.T))
