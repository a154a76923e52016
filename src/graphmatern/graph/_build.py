"""From what a caller passes to the parts of a graph, with every fault reported at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import scipy.sparse as sp

from graphmatern._validation import FaultList, abbreviate, as_numbers, check_choice
from graphmatern.errors import DataNotFoundError, GraphError
from graphmatern.graph._edge_rows import PARALLEL_RULES, EdgeRows, mean_over_length, warn_of_loops
from graphmatern.graph._geometry import parse_line
from graphmatern.graph._names import NodeNames, index_of_names

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["GraphParts", "node_array", "parts_from_adjacency", "parts_from_edges", "read_table"]


@dataclass(frozen=True, eq=False)
class GraphParts:
    """What a graph is made of, validated.

    Attributes
    ----------
    weights : csr_array, shape (n_nodes, n_nodes)
        Symmetric, sorted, zero diagonal.
    names : NodeNames
        Names of the nodes.
    rows : EdgeRows, optional
        The edge table; None where it follows from ``weights``.
    positions : ndarray, shape (n_nodes, n_dimensions), optional
        Coordinates of the nodes.
    masses : ndarray, shape (n_nodes,), optional
        Node masses; None means 1 for all.
    parallel : str
        How parallel rows were merged.
    """

    weights: sp.csr_array
    names: NodeNames
    rows: EdgeRows | None = None
    positions: NDArray[np.float64] | None = None
    masses: NDArray[np.float64] | None = None
    parallel: str = "sum"


def read_table(path: str | Path) -> pd.DataFrame:
    """Read a CSV, TSV or Parquet file, chosen by its suffix; only empty CSV fields are missing values."""
    path = Path(path)
    if not path.is_file():
        raise DataNotFoundError(
            f"there is no file {str(path)!r}; give the path of a CSV, TSV or Parquet file"
        )
    if path.suffix.lower() in {".parquet", ".pq"}:
        return pd.read_parquet(path)
    separator = "\t" if path.suffix.lower() in {".tsv", ".tab"} else ","
    # A node may well be called "NA".
    return pd.read_csv(path, sep=separator, keep_default_na=False, na_values=[""])


def _edge_columns(
    edges: Any, source: str | None, target: str | None, faults: FaultList
) -> tuple[pd.DataFrame | None, Any, Any]:
    """Return the table (if there is one) and the two columns of node names."""
    if isinstance(edges, str | Path):
        edges = read_table(edges)
    if isinstance(edges, Mapping):
        edges = pd.DataFrame(edges)
    if isinstance(edges, pd.DataFrame):
        if edges.shape[1] < 2 and source is None:
            raise faults.raise_now(
                "edges",
                "must have two columns of node names",
                f"columns {list(edges)}",
                "Add the other column.",
            )
        ends = [source or _default_column(edges, "source", 0), target or _default_column(edges, "target", 1)]
        columns = [
            _column(edges, name, argument, faults)
            for name, argument in zip(ends, ("source", "target"), strict=True)
        ]
        return edges, *columns
    pairs = edges if isinstance(edges, np.ndarray) else list(edges)
    if isinstance(pairs, np.ndarray) and pairs.ndim == 2 and pairs.shape[1] == 2:
        return None, pairs[:, 0], pairs[:, 1]
    if isinstance(pairs, list) and all(isinstance(pair, tuple | list) and len(pair) == 2 for pair in pairs):
        return None, [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    shape = f"an array of shape {pairs.shape}" if isinstance(pairs, np.ndarray) else abbreviate(pairs)
    raise faults.raise_now(
        "edges",
        "must be a DataFrame, the path of a table, an (n, 2) array or a sequence of pairs of node names",
        shape,
        "Pass weights or lengths by `weight=` or `length=`.",
    )


def _default_column(table: pd.DataFrame, name: str, place: int) -> Any:
    return name if name in table.columns else table.columns[place]


def _column(table: pd.DataFrame | None, name: Any, argument: str, faults: FaultList) -> Any:
    """Return a column by its name, or an array that was passed instead of a name."""
    if name is None or not isinstance(name, str | int | tuple):
        return name
    if table is None or name not in table.columns:
        columns = "no table" if table is None else f"columns {abbreviate(table.columns)}"
        faults.add(
            argument, "must be a column of `edges`", f"{name!r} with {columns}", "Name one of the columns."
        )
        return None
    column = table[name]
    if isinstance(column, pd.DataFrame):
        faults.add(
            argument,
            "must name one column",
            f"{name!r}, which stands {column.shape[1]} times",
            "Rename them.",
        )
        return None
    return column


def _end_names(column: Any, argument: str, faults: FaultList) -> pd.Index[Any] | None:
    """Return one column of node names, without missing ones."""
    try:
        index = index_of_names([] if column is None else column)
    except TypeError as error:
        faults.add(argument, "must hold hashable node names", str(error), "Use strings or numbers.")
        return None
    missing = np.asarray(pd.isna(index), dtype=bool)
    if missing.any():
        received = f"missing names at rows {abbreviate(np.flatnonzero(missing))}"
        faults.add(argument, "must name a node in every row", received, "Fill in or remove these rows.")
        return None
    return index


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
    if isinstance(values, Mapping):
        keys = pd.Index(list(values), tupleize_cols=False)
        listed = list(values.values())
        values = pd.DataFrame(listed, index=keys) if columns else pd.Series(listed, index=keys)
    if isinstance(values, pd.Series | pd.DataFrame):
        if values.index.has_duplicates:
            repeated = values.index[values.index.duplicated()].unique()
            faults.add(
                argument, "must have one entry per node", f"repeats of {abbreviate(repeated)}", "Remove them."
            )
            return None
        rows = index_of_names(values.index).get_indexer(names.index)
        if (rows < 0).any():
            absent = names.index[rows < 0]
            faults.add(
                argument,
                "must cover every node",
                f"nothing for {abbreviate(absent)}",
                "Add the missing nodes.",
            )
            return None
        values = values.to_numpy()[rows]
    numbers = as_numbers(values, argument, faults, minimum=minimum, above=True)
    wanted = 2 if columns else 1
    if numbers.ndim != wanted or len(numbers) != len(names) or (columns and numbers.shape[1] < 1):
        shape = f"({len(names)}, n_dimensions)" if columns else f"({len(names)},)"
        faults.add(
            argument, f"must have shape {shape}", f"shape {numbers.shape}", "One row per node, in node order."
        )
    return np.array(numbers) if len(faults) == before else None


def _per_edge(
    values: Any, n_rows: int, argument: str, faults: FaultList, *, minimum: float = 0.0, above: bool = False
) -> NDArray[np.float64] | None:
    """Return one number per edge row."""
    if values is None:
        return None
    remedy = "Correct these rows, or remove the edges." if not above else "Give every edge a positive length."
    numbers = as_numbers(values, argument, faults, minimum=minimum, above=above, remedy=remedy)
    if numbers.shape != (n_rows,):
        faults.add(
            argument, f"must have one entry per edge ({n_rows})", f"shape {numbers.shape}", "Check the table."
        )
    return numbers


def _geometries(column: Any, n_rows: int, faults: FaultList) -> list[NDArray[np.float64] | None] | None:
    """Parse one polyline per row; missing ones are None."""
    if column is None:
        return None
    lines: list[NDArray[np.float64] | None] = []
    bad: dict[int, str] = {}
    for row, item in enumerate(column):
        try:
            lines.append(None if item is None or item is pd.NA or item != item else parse_line(item))
        except (TypeError, ValueError) as error:
            bad[row] = str(error)
    if bad:
        received = abbreviate([f"row {row}: {reason}" for row, reason in bad.items()])
        faults.add(
            "geometry", "must hold WKT LINESTRINGs or lines", received, "Correct or empty these cells."
        )
    elif len(lines) != n_rows:
        faults.add(
            "geometry", f"must have one entry per edge ({n_rows})", f"{len(lines)}", "Check the table."
        )
    return lines


def _edge_ids(column: Any, n_rows: int, faults: FaultList) -> pd.Index[Any] | None:
    if column is None:
        return None
    ids = NodeNames.build(column, faults, "id")
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
        both = ends[0].append(ends[1])
        order = np.arange(2 * m).reshape(2, m).T.ravel()
        codes, unique = pd.factorize(both.take(order), sort=False)
        names: NodeNames | None = NodeNames(index_of_names(unique))
        codes = codes.astype(np.int64)
        return names, codes[0::2], codes[1::2]
    names = NodeNames.build(nodes, faults)
    if names is None:
        return None, np.zeros(0, np.int64), np.zeros(0, np.int64)
    source, target = (np.asarray(names.index.get_indexer(end), dtype=np.int64) for end in ends)
    for codes, end, argument in ((source, ends[0], "source"), (target, ends[1], "target")):
        if (codes < 0).any():
            names.note_unknown(end[codes < 0], argument, faults)
    return names, source, target


def _require_nodes(names: NodeNames | None, faults: FaultList) -> None:
    if names is not None and len(names) == 0:
        faults.add(
            "nodes", "must name at least one node", "none", "Give edges, or `nodes=` for isolated nodes."
        )


def parts_from_edges(
    edges: Any,
    *,
    source: str | None,
    target: str | None,
    weight: Any,
    length: Any,
    id: Any,  # noqa: A002
    geometry: Any,
    nodes: Any,
    positions: Any,
    masses: Any,
    parallel: str,
    warn_parallel: bool = True,
) -> GraphParts:
    """Validate an edge list and merge it; see `Graph.from_edges` for the parameters."""
    check_choice("parallel", parallel, PARALLEL_RULES, GraphError)
    faults = FaultList("no graph was made", GraphError)
    table, first, second = _edge_columns(edges, source, target, faults)
    ends = _end_names(first, "source", faults), _end_names(second, "target", faults)
    n_rows = 0 if ends[0] is None else len(ends[0])
    if weight is not None and length is not None:
        faults.add(
            "length", "must not be given with `weight`", "both", "Weights follow from lengths; give one."
        )
    weights = _per_edge(_column(table, weight, "weight", faults), n_rows, "weight", faults)
    lengths = _per_edge(_column(table, length, "length", faults), n_rows, "length", faults, above=True)
    if parallel == "mean_length" and length is None:
        faults.add(
            "parallel", "must not be 'mean_length' without lengths", "no `length`", "Use 'sum' or 'first'."
        )
    lines = _geometries(_column(table, geometry, "geometry", faults), n_rows, faults)
    ids = _edge_ids(_column(table, id, "id", faults), n_rows, faults)
    names: NodeNames | None = None
    codes = np.zeros(0, np.int64), np.zeros(0, np.int64)
    if ends[0] is not None and ends[1] is not None:
        names, *codes = _node_names(nodes, (ends[0], ends[1]), faults)  # type: ignore[assignment]
        _require_nodes(names, faults)
    places = (
        None
        if positions is None or names is None
        else node_array(positions, names, "positions", faults, columns=True)
    )
    mass = (
        None if masses is None or names is None else node_array(masses, names, "masses", faults, minimum=0.0)
    )
    faults.raise_if_any()
    assert names is not None
    if lengths is not None:
        row_weight = mean_over_length(lengths)
    else:
        row_weight = np.ones(n_rows) if weights is None else weights
    rows = EdgeRows(codes[0], codes[1], row_weight, lengths, lines, ids).without_loops()
    weighted = weights is not None or lengths is not None
    _treat_parallel(rows, names, parallel, weighted=weighted, warn_parallel=warn_parallel)
    return GraphParts(
        rows.merge(len(names), parallel, weighted=weighted), names, rows, places, mass, parallel
    )


def _treat_parallel(
    rows: EdgeRows, names: NodeNames, parallel: str, *, weighted: bool, warn_parallel: bool
) -> None:
    """Warn of parallel rows, or raise where the caller wants that."""
    if parallel == "error":
        keys = pd.Series(rows.pair_keys(len(names)))
        repeated = np.flatnonzero(keys.duplicated())
        if len(repeated):
            pairs = [(names.index[rows.source[row]], names.index[rows.target[row]]) for row in repeated[:5]]
            received = abbreviate(pairs, len(repeated))
            faults = FaultList("no graph was made", GraphError)
            raise faults.raise_now(
                "edges",
                "must not repeat a pair of nodes",
                received,
                "Merge them, or choose another `parallel=`.",
            )
    elif weighted and warn_parallel:
        rows.warn_of_parallel(len(names), parallel)


def parts_from_adjacency(adjacency: Any, *, nodes: Any, positions: Any, masses: Any) -> GraphParts:
    """Validate a weight matrix; see `Graph.from_adjacency` for the parameters."""
    faults = FaultList("no graph was made", GraphError)
    try:
        matrix = sp.csr_array(adjacency, dtype=np.float64, copy=True)
    except (TypeError, ValueError):
        received = f"a {type(adjacency).__name__} that is not one"
        raise faults.raise_now(
            "adjacency", "must be a 2-D matrix of numbers", received, "Check it."
        ) from None
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise faults.raise_now(
            "adjacency", "must be square", f"shape {matrix.shape}", "One row and one column per node."
        )
    matrix.sum_duplicates()
    _note_bad_weights(matrix, faults)
    n = matrix.shape[0]
    names = NodeNames.default(n) if nodes is None else NodeNames.build(nodes, faults)
    if names is not None and len(names) != n:
        faults.add(
            "nodes", f"must name every row ({n})", f"{len(names)} names", "One name per row, in order."
        )
        names = None
    _require_nodes(names, faults)
    if np.isfinite(matrix.data).all():
        _note_asymmetry(matrix, faults)
    places = (
        None
        if positions is None or names is None
        else node_array(positions, names, "positions", faults, columns=True)
    )
    mass = (
        None if masses is None or names is None else node_array(masses, names, "masses", faults, minimum=0.0)
    )
    faults.raise_if_any()
    assert names is not None
    return GraphParts(_clean(matrix), names, None, places, mass)


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
    difference = abs(matrix - matrix.T).tocoo()
    bad = difference.data > 1e-12 * np.abs(matrix.data).max(initial=0.0)
    if bad.any():
        received = f"different values at {_cells(difference, bad)} and their mirror images"
        faults.add("adjacency", "must be symmetric", received, "Use (W + W.T) / 2 for an undirected graph.")


def _clean(matrix: sp.csr_array) -> sp.csr_array:
    """Return the exactly symmetric matrix without its diagonal, with a warning for self-loops."""
    warn_of_loops(int(np.count_nonzero(matrix.diagonal())))
    upper = sp.triu(matrix, k=1, format="csr")
    upper.eliminate_zeros()
    full = sp.csr_array(upper + upper.T)
    full.sort_indices()
    return full
