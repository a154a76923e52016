"""Reading values at nodes, or at points on edges, from a table; with word of what was guessed."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from graphmatern._validation import FaultList, abbreviate
from graphmatern.errors import TableError
from graphmatern.graph._names import index_of_names
from graphmatern.graph._table_files import read_table
from graphmatern.graph._tables import as_written
from graphmatern.io._columns import NameMatcher, by_name, is_numeric, node_column, position_columns, wanted_column

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from graphmatern.graph import Graph

__all__ = ["ValueColumns", "ValueReading", "insert_sensors", "read_values"]

_ROAD = r"(^|[_\s])(road|edge|segment|link|street)([_\s]|$)"
_LARGEST = 1e100  # variances, too, must be numbers
_NEARLY = 0.8  # share of numbers from which what is not a number is a slip of the pen


@dataclass(frozen=True)
class ValueColumns:
    """Columns that the caller named; the others are guessed.

    Attributes
    ----------
    node, value, noise : str, optional
        Node names, values, standard deviations of the values' errors.
    road, distance, fraction : str, optional
        For values at points on edges: the edge's id, and the distance from its source or the share of it.
    """

    node: str | None = None
    value: str | None = None
    noise: str | None = None
    road: str | None = None
    distance: str | None = None
    fraction: str | None = None


@dataclass
class ValueReading:
    """Values, and how they were read.

    Attributes
    ----------
    graph : Graph
        The graph, with new nodes where values lie on its edges.
    places : ndarray of int64, shape (n,)
        Positions of the nodes with a value.
    values : ndarray, shape (n,)
        Numbers, or texts.
    noise : ndarray, shape (n,), optional
        Standard deviations of the values' errors.
    name : str
        What the values are called.
    notes : list of str
        What was guessed, in words.
    """

    graph: Graph
    places: NDArray[np.int64]
    values: NDArray[Any]
    noise: NDArray[np.float64] | None
    name: str
    notes: list[str] = field(default_factory=list)

    @property
    def is_numeric(self) -> bool:
        """Whether the values are numbers."""
        return self.values.dtype.kind == "f"


def read_values(
    path: str | Path,
    graph: Graph,
    columns: ValueColumns | None = None,
    *,
    texts: bool | None = None,
    ignore_unknown: bool = False,
) -> ValueReading:
    """Read values at nodes from a CSV, TSV, Parquet or Excel file.

    Parameters
    ----------
    path : str or Path
        Table with a column of node names (or of edge ids and distances) and a column of values; an empty value means
        not observed.
    graph : Graph
        The graph.
    columns : ValueColumns, optional
        Columns by name; guessed where not given.
    texts : bool, optional
        Whether the values are names of classes; by default, where they do not read as numbers.
    ignore_unknown : bool
        Whether rows that name no node are left out rather than refused.

    Returns
    -------
    ValueReading
    """
    columns = columns or ValueColumns()
    table = read_table(path, TableError)
    faults = FaultList(f"{getattr(path, 'name', path)} was not read", TableError)
    if len(table) == 0:
        raise faults.raise_now("file", "must have rows", "a header alone", "Each row is a value at a node.")
    value = wanted_column(table, columns.value, "value", faults)
    noise = wanted_column(table, columns.noise, "noise-std", faults)
    node = wanted_column(table, columns.node, "node", faults)
    faults.raise_if_any()
    named = [column for column in (value, noise) if column is not None]
    points = None if node is not None else _point_columns(table, graph, columns, named, faults)
    if points is not None:
        graph, codes, note = _on_edges(table, graph, points, faults)
        used = [*points, *named]
    else:
        node, codes, note = _at_nodes(table, graph, node, named, faults)
        used = [node, *named]
    if value is None:
        value = _value_column(table, used, faults)
    notes = [f"{note}, values from {str(value)!r}" + ("" if noise is None else f", errors from {str(noise)!r}")]
    unknown = codes < 0
    if unknown.any() and ignore_unknown:
        notes.append(f"{int(unknown.sum()):,} of {len(codes):,} rows name no node of the graph and are left out")
    elif unknown.any():
        graph._parts.names.note_unknown(list(table[node][unknown].dropna().unique()) or ["(empty)"], str(node), faults)
        faults.raise_if_any()
    found = _values(table[value], texts, str(value), faults)
    observed = ~pd.isna(found) & ~unknown
    if not observed.any():
        raise faults.raise_now(str(value), "must hold at least one value at a node", "none", "Fill in some cells.")
    empty = int((pd.isna(found) & ~unknown).sum())
    if empty:
        notes.append(f"{empty:,} empty values: not observed")
    errors = None if noise is None else _standard_deviations(table[noise][observed], str(noise), faults)
    return ValueReading(graph, codes[observed], found[observed], errors, str(value), notes)


def _at_nodes(
    table: pd.DataFrame, graph: Graph, node: Any, taken: list[Any], faults: FaultList
) -> tuple[Any, NDArray[np.int64], str]:
    matcher = NameMatcher(graph.nodes)
    if node is None:
        node, _ = node_column(table, matcher, taken)
    if node is None:
        received = f"columns {abbreviate(map(str, table.columns))} without any"
        remedy = f"The graph's nodes are called {abbreviate(graph.nodes[:3], graph.n_nodes)}; see also --road."
        raise faults.raise_now("file", "must have a column of node names", received, remedy)
    return node, matcher.codes(table[node]), f"nodes from {str(node)!r}"


def _value_column(table: pd.DataFrame, used: list[Any], faults: FaultList) -> Any:
    """The last column of numbers, or the only one left; coordinates only where there is nothing else."""
    places = position_columns(table) or ()
    rest = [column for column in table.columns if column not in used and column not in places]
    rest = rest or [column for column in table.columns if column not in used]
    numeric = [column for column in rest if _share_of_numbers(table[column]) >= _NEARLY]
    if numeric:
        return numeric[-1]
    if len(rest) != 1:
        received = f"columns {abbreviate(map(str, rest))}" if rest else "no other column"
        raise faults.raise_now("file", "must have a column of values", received, "Name it with --value.")
    return rest[0]


def _share_of_numbers(column: pd.Series[Any]) -> float:
    known = column.dropna()
    if is_numeric(known):
        return 1.0
    if len(known) == 0 or any(isinstance(item, bool | np.bool_) for item in known[:10]):
        return 0.0
    return float(pd.to_numeric(known.astype(str), errors="coerce").notna().mean())


def _values(column: pd.Series[Any], texts: bool | None, name: str, faults: FaultList) -> NDArray[Any]:
    """Numbers, or names of classes; missing ones are NaN."""
    share = _share_of_numbers(column)
    if texts or (texts is None and share < _NEARLY):
        found = np.empty(len(column), dtype=object)
        found[:] = [np.nan if missing else str(item) for item, missing in zip(column, column.isna(), strict=True)]
        return found
    text = column if pd.api.types.is_numeric_dtype(column.dtype) else column.astype("string")
    numbers = np.asarray(pd.to_numeric(text, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan))
    bad = (np.isnan(numbers) & column.notna().to_numpy()) | (np.abs(numbers) > _LARGEST)
    if bad.any():
        rows = [f"{item!r:.40} in row {row + 1}" for row, item in zip(np.flatnonzero(bad), column[bad], strict=True)]
        received = ", ".join(rows[:3]) + ("" if len(rows) <= 3 else f", ... ({len(rows)} in all)")
        remedy = "Correct these cells, or empty them: empty means not observed."
        raise faults.raise_now(name, f"must hold numbers of at most {_LARGEST:g}", received, remedy)
    return numbers


def _standard_deviations(column: pd.Series[Any], name: str, faults: FaultList) -> NDArray[np.float64]:
    numbers = np.asarray(
        pd.to_numeric(column.astype("string"), errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
    )
    bad = ~(np.isfinite(numbers) & (numbers > 0))
    if bad.any():
        received = f"others in rows {abbreviate(np.flatnonzero(bad))}"
        raise faults.raise_now(name, "must hold positive standard deviations", received, "Correct these cells.")
    return numbers


# ---------------------------------------------------------------------- points on edges
def _point_columns(
    table: pd.DataFrame, graph: Graph, columns: ValueColumns, taken: list[Any], faults: FaultList
) -> tuple[Any, Any, str] | None:
    """Columns of edge ids and of distances (or shares), and which it is; None where values lie at nodes."""
    road = wanted_column(table, columns.road, "road", faults)
    distance = wanted_column(table, columns.distance, "distance", faults)
    fraction = wanted_column(table, columns.fraction, "fraction", faults)
    faults.raise_if_any()
    asked = columns.road is not None or columns.distance is not None or columns.fraction is not None
    free = [column for column in table.columns if column not in (*taken, road, distance, fraction)]
    if road is None:
        matcher = NameMatcher(graph._rows.identifiers)
        candidates = [column for column in free if re.search(_ROAD, str(column).lower())]
        road = next((c for c in candidates if (matcher.codes(table[c].dropna()) >= 0).all()), None)
    if distance is None and fraction is None:
        numeric = [column for column in free if column != road and is_numeric(table[column])]
        distance = next(iter(by_name(numeric, "distance")), None)
        fraction = None if distance is not None else next(iter(by_name(numeric, "fraction")), None)
    if road is None or (distance is None and fraction is None):
        if asked:
            received = f"columns {abbreviate(map(str, table.columns))}"
            remedy = "Name both: --road with --distance or --fraction."
            raise faults.raise_now("file", "must have columns of road ids and of distances", received, remedy)
        return None
    return (road, distance, "distance") if distance is not None else (road, fraction, "fraction")


def _on_edges(
    table: pd.DataFrame, graph: Graph, points: tuple[Any, Any, str], faults: FaultList
) -> tuple[Graph, NDArray[np.int64], str]:
    """Insert every different point as a node; rows at the same point share it, and the ends of a road are its nodes."""
    road, place, kind = points
    rows = graph._rows
    matcher = NameMatcher(rows.identifiers)
    edge = matcher.codes(table[road])
    along = pd.to_numeric(table[place].astype("string"), errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
    if (edge < 0).any():
        unknown = abbreviate(table[road][edge < 0].astype(str).unique())
        remedy = f"Roads are called {abbreviate(rows.identifiers[:3], len(rows))}."
        raise faults.raise_now(str(road), "must hold ids of roads of the graph", unknown, remedy)
    if kind == "distance" and rows.length is None:
        remedy = "Give the graph a column of lengths, or use --fraction."
        raise faults.raise_now(str(place), "needs roads with lengths", "a graph without", remedy)
    whole = np.ones(len(table)) if kind == "fraction" else np.asarray(rows.length)[edge]
    codes = np.where(along == 0, rows.source[edge], np.where(along == whole, rows.target[edge], -1))
    inside = codes < 0
    new = pd.DataFrame({"road": rows.identifiers[edge], "along": along})[inside]
    unique = new.drop_duplicates()
    names = _point_names(table[inside], new, unique, graph, taken=[road, place])
    note = f"points on roads from {str(road)!r} and {str(place)!r}"
    if len(unique) == 0:
        return graph, codes, note
    # Whole numbers among whole numbers; a mixture stays one.
    [written] = as_written([pd.Series(names)]) if graph.nodes.dtype.kind == "i" else [names]
    unique = unique.set_axis(index_of_names(list(written)))
    bigger = graph.subdivide(
        unique,
        edge="road",
        distance="along" if kind == "distance" else None,
        fraction="along" if kind == "fraction" else None,
    )
    number = pd.MultiIndex.from_frame(unique).get_indexer(pd.MultiIndex.from_frame(new))
    codes[inside] = graph.n_nodes + number
    return bigger, codes, f"{note}: {len(unique):,} new nodes"


def _point_names(
    table: pd.DataFrame, new: pd.DataFrame, unique: pd.DataFrame, graph: Graph, taken: list[Any]
) -> list[str]:
    """Names of points: from a column that has one for each, else made of road and place."""
    matcher = NameMatcher(graph.nodes)
    point = new.groupby(["road", "along"], sort=False).ngroup()
    for column in table.columns:
        entries = table[column]
        if column in taken or entries.isna().any() or is_fractional(entries):
            continue
        different = entries.astype(str)
        one_each = different.groupby(point).nunique().max() == 1 and different.nunique() == len(unique)
        if one_each and (matcher.codes(entries) < 0).all():
            return different.groupby(point, sort=False).first().tolist()
    return [f"{road} at {along:g}" for road, along in zip(unique["road"], unique["along"], strict=True)]


def is_fractional(column: pd.Series[Any]) -> bool:
    """Whether a column holds numbers with decimals, which make poor names."""
    return is_numeric(column) and bool((pd.to_numeric(column) % 1 != 0).any())


def insert_sensors(path: str | Path, graph: Graph, columns: ValueColumns | None = None) -> tuple[Graph, list[str]]:
    """Insert the sensors of a table (name, road, distance) into a graph of roads.

    Parameters
    ----------
    path : str or Path
        Table with a column of road ids and one of distances from the road's source, or of shares of it.
    graph : Graph
        The roads.
    columns : ValueColumns, optional
        Columns by name; guessed where not given.

    Returns
    -------
    graph : Graph
        With the sensors as nodes.
    notes : list of str
        What was guessed, in words.
    """
    columns = columns or ValueColumns()
    table = read_table(path, TableError)
    faults = FaultList(f"{getattr(path, 'name', path)} was not read", TableError)
    points = _point_columns(table, graph, columns, [], faults)
    if points is None:
        received = f"columns {abbreviate(map(str, table.columns))}"
        remedy = "Name them: --road with --distance or --fraction."
        raise faults.raise_now("sensors", "must have columns of road ids and of distances", received, remedy)
    found, _, note = _on_edges(table, graph, points, faults)
    return found, [f"sensors: {note}"]
