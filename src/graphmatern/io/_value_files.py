"""Reading values at nodes, or at points on edges, from a table; with word of what was guessed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from graphmatern._validation import FaultList, abbreviate
from graphmatern.errors import TableError
from graphmatern.graph._attach import rounded
from graphmatern.graph._names import index_of_names
from graphmatern.io._area_columns import AreaColumns
from graphmatern.io._roads import read_table_or_features
from graphmatern.tables import (
    NameMatcher,
    PointColumns,
    ValueColumns,
    as_written,
    looks_like_numbers,
    node_column,
    point_columns,
    position_columns,
    read_numbers,
    to_numbers,
    unused_columns,
    uses_decimal_commas,
    value_column,
    wanted_column,
)

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from graphmatern.graph import Graph

__all__ = ["ValueReading", "insert_sensors", "read_values"]

_LARGEST = 1e100  # variances, too, must be numbers


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
    exposure : ndarray, shape (n,), optional
        Exposures of counts.
    covariates : DataFrame, optional
        Covariates of every node, indexed by node name.
    trials : ndarray, shape (n,), optional
        Trials of which values are successes.
    """

    graph: Graph
    places: NDArray[np.int64]
    values: NDArray[Any]
    noise: NDArray[np.float64] | None
    name: str
    notes: list[str] = field(default_factory=list)
    exposure: NDArray[np.float64] | None = None
    covariates: pd.DataFrame | None = None
    trials: NDArray[np.float64] | None = None

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
    counts: bool = False,
) -> ValueReading:
    """Read values at nodes from a CSV, TSV, Parquet, Excel or GeoJSON file.

    Parameters
    ----------
    path : str or Path
        Table with a column of node names (or of edge ids and distances) and a column of values; an empty value means
        not observed. The features of a GeoJSON file are rows, their properties columns.
    graph : Graph
        The graph.
    columns : ValueColumns, optional
        Columns by name; guessed where not given.
    texts : bool, optional
        Whether the values are names of classes; by default, where they do not read as numbers.
    ignore_unknown : bool
        Whether rows that name no node are left out rather than refused.
    counts : bool
        Whether the values must be counts, whole numbers of at least 0.

    Returns
    -------
    ValueReading
    """
    columns = columns or ValueColumns()
    said: list[str] = []
    table = read_table_or_features(path, TableError, said)
    faults = FaultList(f"{getattr(path, 'name', path)} was not read", TableError)
    if len(table) == 0:
        raise faults.raise_now("file", "must have rows", "only a header", "Each row is a value at a node.")
    value = wanted_column(table, columns.value, "value", faults)
    noise = wanted_column(table, columns.noise, "noise-std", faults)
    node = wanted_column(table, columns.node, "node", faults)
    exposure = wanted_column(table, columns.exposure, "exposure", faults)
    trials = wanted_column(table, columns.trials, "trials", faults)
    covariates = [wanted_column(table, name, "covariate", faults) for name in columns.covariates]
    if (columns.value is not None and value is None) or (columns.node is not None and node is None):
        faults.raise_if_any()
    covariates = [column for column in covariates if column is not None]
    named = [column for column in (value, noise, exposure, trials, *covariates) if column is not None]
    points = None if node is not None else point_columns(table, _roads(graph), columns, named, faults)
    if points is not None:
        graph, codes, note = _on_edges(table, graph, points, faults)
        used = [points.road, points.along, *named]
    elif node is None and (pair := _coordinates(table, graph, named)) is not None:
        graph, codes, note = _on_nearest(table, graph, pair, columns.snap_limit, faults)
        used = [*pair, *named]
    else:
        node, codes, note = _at_nodes(table, graph, node, named, covariates, faults)
        used = [node, *named]
    if value is None:
        value = value_column(table, used, faults, counts=counts)
    covariates = _true_covariates(covariates, value, node, faults)
    notes = [f"{note}, values from {str(value)!r}" + ("" if noise is None else f", errors from {str(noise)!r}")]
    unknown = codes < 0
    if unknown.any() and ignore_unknown:
        notes.append(f"{int(unknown.sum()):,} of {len(codes):,} rows name no node of the graph and are left out")
    elif unknown.any():
        graph._parts.names.note_unknown(list(table[node][unknown].dropna().unique()) or ["(empty)"], str(node), faults)
    notes += [*said, *unused_columns(table, [*used, value], () if exposure is None else ("exposure",))]
    found = _values(table[value], texts, faults)
    beside = AreaColumns(table, codes, graph, faults, str(node))
    exposures = beside.exposures(exposure, found, counts=counts, value=str(value))
    attempts = beside.trials(trials, found, value=str(value))
    known = beside.covariates(covariates)
    observed = ~pd.isna(found) & ~unknown
    errors = None
    if noise is not None:
        rule = "must hold positive standard deviations where there are values"
        needed = table[noise].astype(object).where(observed, 1)
        errors = read_numbers(needed, rule, faults, remedy="Correct these cells.", minimum=0.0, above=True)[observed]
    faults.raise_if_any()
    if found.dtype == np.float64 and uses_decimal_commas(table[value]):
        notes.append(f"decimal commas in {str(value)!r}")
    if not observed.any():
        raise faults.raise_now(str(value), "must hold at least one value at a node", "none", "Fill in some cells.")
    empty = int((pd.isna(found) & ~unknown).sum())
    if empty:
        notes.append(f"{empty:,} empty values: not observed")
    people, tried = (None if one is None else one[observed] for one in (exposures, attempts))
    return ValueReading(graph, codes[observed], found[observed], errors, str(value), notes, people, known, tried)


def _true_covariates(columns: list[Any], value: Any, node: Any, faults: FaultList) -> list[Any]:
    """The columns that can be covariates: neither the nodes' names nor what is to be explained."""
    for role, taken in (("names the nodes", node), ("holds the values", value)):
        if taken is not None and taken in columns:
            rule = f"must name another column than the one that {role}"
            faults.add("covariate", rule, repr(str(taken)), "Leave it out, or name a column of numbers.")
    return [column for column in columns if column not in (node, value)]


def _at_nodes(
    table: pd.DataFrame, graph: Graph, node: Any, taken: list[Any], covariates: list[Any], faults: FaultList
) -> tuple[Any, NDArray[np.int64], str]:
    matcher = NameMatcher(graph.nodes)
    if node is None:
        node = node_column(table, matcher, taken)
        among = node_column(table, matcher, [column for column in taken if column not in covariates])
        if among in covariates and (node is None or not table[node].is_unique) and table[among].is_unique:
            node = among  # a slip, of which `_true_covariates` tells
    if node is None:
        received = f"columns {abbreviate(map(str, table.columns))} without any"
        shown = graph.nodes[:3] if graph.n_nodes > 5 else graph.nodes
        remedy = f"The graph's nodes are called {abbreviate(shown, graph.n_nodes)}; see also --road."
        entries = (table[column].dropna().unique()[:3].tolist() for column in table.columns if column not in taken)
        remedy += next(filter(None, map(graph._parts.names.hint, entries)), "")
        if position_columns(table) is not None:
            remedy += " Coordinates can be used where the graph has positions: --nodes."
        raise faults.raise_now("file", "must have a column of node names", received, remedy)
    return node, matcher.codes(table[node]), f"nodes from {str(node)!r}"


def _coordinates(table: pd.DataFrame, graph: Graph, taken: list[Any]) -> tuple[Any, Any] | None:
    """Columns of coordinates, where nothing else says where values lie and the graph is a map."""
    geometry = graph._rows.geometry
    is_map = (graph.positions is not None and graph.positions.shape[1] == 2) or (geometry and None not in geometry)
    pair = position_columns(table) if is_map else None
    matcher = NameMatcher(graph.nodes)
    column = node_column(table, matcher, [*taken, *(pair or ())])
    if pair is None or column is None:
        return pair
    # Values may look like names, where these are numbers: names are what leaves a column of values, too.
    others = [one for one in table.columns if one not in (column, *pair)]
    is_named = matcher.share(table[column]) > 0.5 and (taken or any(looks_like_numbers(table[one]) for one in others))
    return None if is_named else pair


def _on_nearest(
    table: pd.DataFrame, graph: Graph, pair: tuple[Any, Any], limit: float | None, faults: FaultList
) -> tuple[Graph, NDArray[np.int64], str]:
    """Insert points given by coordinates on the nearest edges, and say how far they were moved."""
    rule = "must hold coordinates of every value"
    places = [read_numbers(table[column], rule, faults, remedy="Correct these cells.") for column in pair]
    faults.raise_if_any()
    new = pd.DataFrame({"x": places[0], "y": places[1]})
    names = _point_names(table, new.set_axis(["road", "along"], axis=1), new.drop_duplicates(), graph, taken=list(pair))
    spots = new.drop_duplicates().set_axis(index_of_names(names))
    try:
        bigger, report = graph.attach(spots, x="x", y="y", limit=limit)
    except TableError as error:
        [fault] = error.faults
        remedy = "Check these coordinates, remove the rows, or raise --snap-limit."
        raise faults.raise_now(" and ".join(map(str, pair)), fault.rule, fault.received, remedy) from None
    number = pd.MultiIndex.from_frame(spots).get_indexer(pd.MultiIndex.from_frame(new))
    codes = bigger.locate(report["node"].tolist())[number]
    moved = report["moved"]
    unit = " m" if graph.is_geographic else ""
    words = f"{len(spots):,} places from {str(pair[0])!r} and {str(pair[1])!r} moved to the nearest edge"
    middle, most = (f"{rounded(far)}{unit}" for far in (moved.median(), moved.max()))
    words += f" (median distance {middle}, {most} at most: {moved.idxmax()})"
    return bigger, codes, words


def _values(column: pd.Series[Any], texts: bool | None, faults: FaultList) -> NDArray[Any]:
    """Numbers, or names of classes; missing ones are NaN."""
    if texts or (texts is None and not looks_like_numbers(column)):
        found = np.empty(len(column), dtype=object)
        found[:] = [np.nan if missing else str(item) for item, missing in zip(column, column.isna(), strict=True)]
        return found
    remedy = (
        "Correct these cells, or empty them: empty means not observed. Names of classes need --task classification."
    )
    rule = f"must hold numbers of at most {_LARGEST:g}"
    return read_numbers(column, rule, faults, remedy=remedy, largest=_LARGEST, missing=True)


# ---------------------------------------------------------------------- points on edges
def _roads(graph: Graph) -> NameMatcher:
    return NameMatcher(graph._rows.identifiers)


def _on_edges(
    table: pd.DataFrame, graph: Graph, points: PointColumns, faults: FaultList
) -> tuple[Graph, NDArray[np.int64], str]:
    """Insert every different point as a node; rows at the same point share it, and the ends of a road are its nodes."""
    road, place, is_distance = points
    rows = graph._rows
    edge = _roads(graph).codes(table[road])
    along = read_numbers(
        table[place], "must say where on its road each point lies", faults, remedy="Correct these cells."
    )
    if (edge < 0).any():
        unknown = abbreviate(table[road][edge < 0].astype(str).unique())
        remedy = f"Roads are called {abbreviate(rows.identifiers[:3], len(rows))}."
        raise faults.raise_now(str(road), "must hold ids of roads of the graph", unknown, remedy)
    if is_distance and rows.length is None:
        remedy = "Give the graph a column of lengths, or use --fraction."
        raise faults.raise_now(str(place), "needs roads with lengths", "a graph without", remedy)
    faults.raise_if_any()
    whole = np.asarray(rows.length)[edge] if is_distance else np.ones(len(table))
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
    distance, fraction = ("along", None) if is_distance else (None, "along")
    bigger = graph.subdivide(unique, edge="road", distance=distance, fraction=fraction)
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
        if column in taken or entries.isna().any() or (to_numbers(entries) % 1 > 0).any():  # decimals make poor names
            continue
        different = entries.astype(str)
        one_each = different.groupby(point).nunique().max() == 1 and different.nunique() == len(unique)
        if one_each and (matcher.codes(entries) < 0).all():
            return different.groupby(point, sort=False).first().tolist()
    return [f"{road} at {along:g}" for road, along in zip(unique["road"], unique["along"], strict=True)]


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
    notes: list[str] = []
    table = read_table_or_features(path, TableError, notes)
    faults = FaultList(f"{getattr(path, 'name', path)} was not read", TableError)
    points = point_columns(table, _roads(graph), columns, [], faults)
    if points is None:
        received = f"columns {abbreviate(map(str, table.columns))}"
        remedy = "Name them: --road with --distance or --fraction."
        raise faults.raise_now("sensors", "must have columns of road ids and of distances", received, remedy)
    found, _, note = _on_edges(table, graph, points, faults)
    return found, [f"sensors: {note}", *notes]
