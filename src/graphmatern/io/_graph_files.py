"""Reading a graph from a file of any of the formats, with word of what was guessed."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from graphmatern._validation import FaultList, abbreviate, name_rows
from graphmatern.errors import GraphError, TableError
from graphmatern.graph import Graph
from graphmatern.graph._contiguity import guess_names
from graphmatern.io._matrices import read_matrix_market, read_npz
from graphmatern.io._roads import (
    are_areas,
    cut_at_junctions,
    end_names_and_places,
    line_lengths,
    lines_of_features,
    parse_lines,
    read_geojson,
    read_table_or_features,
    read_wkt,
)
from graphmatern.tables import (
    TABLE_SUFFIXES,
    EdgeColumns,
    NameMatcher,
    as_written,
    edge_roles,
    existing_file,
    first_words,
    node_column,
    position_columns,
    read_numbers,
    read_table,
    required_library,
    uses_decimal_commas,
)

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

__all__ = ["GraphReading", "graph_from_lines", "read_graph"]

_KINDS = "CSV, TSV, Parquet or Excel edge list, GraphML, GeoJSON, WKT, Matrix Market or npz"
_SUFFIXES = (*TABLE_SUFFIXES, ".graphml", ".geojson", ".json", ".wkt", ".mtx", ".npz")


@dataclass
class GraphReading:
    """A graph, and how it was read.

    Attributes
    ----------
    graph : Graph
        The graph.
    notes : list of str
        What was guessed, in words.
    nodes : DataFrame, optional
        The table of nodes, in node order, where there was one.
    """

    graph: Graph
    notes: list[str] = field(default_factory=list)
    nodes: pd.DataFrame | None = None


def read_graph(
    path: str | Path,
    *,
    source: str | None = None,
    target: str | None = None,
    weight: str | None = None,
    length: str | None = None,
    id: str | None = None,  # noqa: A002
    geometry: str | None = None,
    nodes: str | Path | None = None,
    parallel: str = "sum",
    area_name: str | None = None,
    contiguity: str = "queen",
    tolerance: float = 0.0,
    links: str | Path | None = None,
    values: str | Path | None = None,
) -> GraphReading:
    r"""Read a graph from a file, its format chosen by the file's suffix.

    Parameters
    ----------
    path : str or Path
        Edge list (CSV, TSV, Parquet, Excel), GraphML, GeoJSON or WKT roads, GeoJSON areas, Matrix Market or npz file.
    source, target, weight, length, id, geometry : str, optional
        Columns of an edge list, or attributes of edges; guessed from their names where not given.
    nodes : str or Path, optional
        Table with a column of node names and, where known, coordinates.
    parallel : {"sum", "mean_length", "first", "error"}
        What becomes of several edges between the same two nodes; see `Graph.from_edges`.
    area_name, contiguity, tolerance
        Of areas: the property with their names, and which are neighbours; see `Graph.from_polygons`.
    links : str or Path, optional
        Table of two columns, with the names of areas that are neighbours in any case, such as those that a ferry joins.
    values : str or Path, optional
        Table whose rows name the nodes; of the properties of areas, the one that it uses is taken for their names.

    Returns
    -------
    GraphReading

    Examples
    --------
    >>> import tempfile, pathlib
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder, "roads.csv")
    ...     _ = path.write_text("from,to,metres\na,b,100\nb,c,300\n")
    ...     reading = read_graph(path)
    >>> reading.graph, reading.notes
    (Graph(3 nodes, 2 edges), ["edges from 'from' to 'to', length 'metres'"])
    """
    file = existing_file(path, _KINDS)
    faults = FaultList(f"{file.name} was not read", GraphError)
    suffix = file.suffix.lower()
    if links is not None and suffix not in {".geojson", ".json"}:
        remedy = "Add rows to the list of edges instead."
        raise faults.raise_now("links", "must be left out unless the graph is a file of areas", suffix, remedy)
    notes: list[str] = []
    table = None if nodes is None else read_table_or_features(nodes, GraphError, notes)
    given = {"source": source, "target": target, "weight": weight, "length": length, "id": id, "geometry": geometry}
    if suffix in TABLE_SUFFIXES:
        reading = _from_table(read_table(file, notes=notes), given, table, parallel, faults)
    elif suffix == ".graphml":
        reading = _from_graphml(file, given, parallel, faults)
    elif suffix in {".geojson", ".json"}:
        features = read_geojson(file, faults)
        if are_areas(features):
            name = area_name if area_name is not None else _area_names(features, values)
            pairs = None if links is None else _link_pairs(links, features, name)
            reading = _from_polygons(file, name, contiguity, tolerance, pairs)
        else:
            lines, properties = lines_of_features(features, faults)
            reading = _from_lines(lines, properties, given, parallel, faults)
    elif suffix == ".wkt":
        reading = _from_lines(read_wkt(file, faults), pd.DataFrame(), given, parallel, faults)
    elif suffix == ".mtx":
        reading = _from_matrix(read_matrix_market(file, faults))
    elif suffix == ".npz":
        content = read_npz(file, faults)
        if isinstance(content, pd.DataFrame):
            reading = _from_table(content, given, table, parallel, faults)
        else:
            reading = _from_matrix(content)
    else:
        raise faults.raise_now("file", f"must end in {', '.join(_SUFFIXES)}", repr(file.name), "Convert it first.")
    if table is not None and reading.nodes is None:
        reading = _with_nodes(reading, table, faults)
    reading.notes += notes
    return reading


def _describe(roles: EdgeColumns) -> str:
    text = f"edges from {str(roles.source)!r} to {str(roles.target)!r}"
    for role in ("length", "weight", "id", "geometry"):
        column = getattr(roles, role)
        if column is not None:
            text += f", {role} {str(column)!r}"
    return text + ("" if roles.length is not None or roles.weight is not None else ", all of weight 1")


def _edge_options(table: pd.DataFrame, roles: EdgeColumns, faults: FaultList) -> dict[str, Any]:
    """Weights, lengths and ids as `Graph.from_edges` takes them; what is wrong with the numbers is noted."""
    found: dict[str, Any] = {"weight": None, "length": None, "id": None if roles.id is None else table[roles.id]}
    for role, column in (("weight", roles.weight), ("length", roles.length)):
        if column is not None:
            above = role == "length"
            rule = f"must hold {role}s {'above' if above else 'of at least'} 0"
            remedy = (
                f"Correct these cells; if the column is something else, rename it, or name the right one: --{role}."
            )
            found[role] = read_numbers(table[column], rule, faults, remedy=remedy, minimum=0.0, above=above)
            if uses_decimal_commas(table[column]):
                roles.notes.append(f"decimal commas in {str(column)!r}")
    return found


# ---------------------------------------------------------------------- edge lists
def _from_table(
    table: pd.DataFrame, given: dict[str, str | None], nodes: pd.DataFrame | None, parallel: str, faults: FaultList
) -> GraphReading:
    if len(table) == 0:
        raise faults.raise_now("file", "must have rows", "only a header", "Each row is an edge.")
    roles = edge_roles(table, given, faults)
    faults.raise_if_any()
    if roles.geometry is not None and roles.source is None and roles.target is None:
        known = table[roles.geometry].notna()
        lines = parse_lines(list(table.loc[known, roles.geometry]), faults)
        kept = {name: None if name == "geometry" else column for name, column in given.items()}
        return _from_lines(lines, table[known].drop(columns=roles.geometry), kept, parallel, faults)
    if roles.source is None or roles.target is None:
        received = f"columns {abbreviate(map(str, table.columns))}"
        remedy = "Name them with --source and --target; the separator of the file may be another character."
        raise faults.raise_now("file", "must have two columns of node names", received, remedy)
    ends = [table[roles.source], table[roles.target]]
    for option, end in zip(("source", "target"), ends, strict=True):
        if end.isna().any():
            received = f"nothing in {name_rows(np.flatnonzero(end.isna()) + 1)}"
            remedy = f"Fill in or remove these rows; if another column names the nodes, give it with --{option}."
            faults.add(str(end.name), f"must name the {option} of every edge", received, remedy)
    options = _edge_options(table, roles, faults) | {
        "geometry": None if roles.geometry is None else table[roles.geometry]
    }
    faults.raise_if_any()
    notes = [_describe(roles), *roles.notes]
    if roles.id is not None and all(isinstance(item, str) for item in options["id"]):
        options["id"] = as_written([options["id"]])[0]
    if nodes is None:
        first, second = as_written(ends) if _are_texts(ends) else ends
        graph = Graph.from_edges({"source": first, "target": second}, **options, parallel=parallel)  # type: ignore[arg-type]
        return GraphReading(graph, notes)
    column, names, places, more = _node_table(nodes, pd.concat(ends), faults)
    first, second, names = as_written([*ends, names]) if _are_texts([*ends, names]) else (*ends, names)
    graph = Graph.from_edges(
        {"source": first, "target": second},
        **options,
        nodes=list(names),
        positions=places,
        parallel=parallel,  # type: ignore[arg-type]
    )
    return GraphReading(graph, [*notes, *more], nodes.drop(columns=column))


def _are_texts(columns: list[Any]) -> bool:
    return all(pd.api.types.is_string_dtype(column) for column in columns)


def _node_table(
    nodes: pd.DataFrame, names: Any, faults: FaultList
) -> tuple[Any, pd.Series[Any], NDArray[np.float64] | None, list[str]]:
    """Column of names, the names, coordinates where known, and what was guessed."""
    column = node_column(nodes, NameMatcher(pd.Index(pd.unique(np.asarray(names, dtype=object)))))
    if column is None:
        received = f"columns {abbreviate(map(str, nodes.columns))}"
        remedy = "One column must hold the names that the edges use."
        raise faults.raise_now("nodes", "must have a column of node names", received, remedy)
    note = f"nodes from {str(column)!r}"
    places, more = _positions(nodes.drop(columns=column), faults)
    return column, nodes[column], places, [note + more]


def _positions(nodes: pd.DataFrame, faults: FaultList) -> tuple[NDArray[np.float64] | None, str]:
    """Coordinates of nodes, where columns are called so, and words for them."""
    pair = position_columns(nodes)
    if pair is None:
        return None, ""
    remedy = "Correct these cells; if the columns are something else, rename them."
    places = [read_numbers(nodes[name], "must hold coordinates of every node", faults, remedy=remedy) for name in pair]
    faults.raise_if_any()
    return np.column_stack(places), f", positions {str(pair[0])!r} and {str(pair[1])!r}"


def _with_nodes(reading: GraphReading, nodes: pd.DataFrame, faults: FaultList) -> GraphReading:
    """Arrange the table of nodes in the order of a graph that has its nodes already."""
    graph = reading.graph
    matcher = NameMatcher(graph.nodes)
    column = node_column(nodes, matcher)
    codes = np.full(len(nodes), -1) if column is None else matcher.codes(nodes[column])
    order = np.full(graph.n_nodes, -1)
    order[codes[codes >= 0]] = np.flatnonzero(codes >= 0)
    if (order < 0).any():
        absent = abbreviate(graph.nodes[order < 0])
        raise faults.raise_now("nodes", "must have a row for every node", f"nothing for {absent}", "Add these rows.")
    table = nodes.iloc[order].drop(columns=column)
    note = f"nodes from {str(column)!r}"
    if graph.positions is None:
        places, more = _positions(table, faults)
        note += more
        graph = graph if places is None else Graph._from_parts(replace(graph._parts, positions=places))
    return GraphReading(graph, [*reading.notes, note], table)


# ---------------------------------------------------------------------- areas, lines, matrices, GraphML
def _from_polygons(
    file: Path, name: str | None, contiguity: str, tolerance: float, links: list[tuple[Any, Any]] | None
) -> GraphReading:
    """Areas that border on each other."""
    graph = Graph.from_polygons(file, nodes=name, contiguity=contiguity, tolerance=tolerance, links=links)  # type: ignore[arg-type]
    shared = "a point or a line" if contiguity == "queen" else "a line"
    called = "areas" if name is None else f"areas named by {name!r}"
    notes = [f"{called}, such as {abbreviate(graph.nodes[:1])}; those that share {shared} are neighbours"]
    if links:
        notes.append(f"{len(links):,} links beside")
    return GraphReading(graph, notes)


def _link_pairs(path: str | Path, features: list[Any], name: str | None) -> list[tuple[Any, Any]]:
    """Pairs of areas from a table of two columns, with a header or without, by the names that the areas have."""
    table = read_table(path, GraphError, [])
    shaped = [one for one in features if isinstance(one, dict) and one.get("geometry")]
    names = list(range(len(shaped))) if name is None else [(one.get("properties") or {}).get(name) for one in shaped]
    matcher = NameMatcher(pd.Index(names, dtype=object))
    if table.shape[1] < 2:
        faults = FaultList(f"{getattr(path, 'name', path)} was not read", GraphError)
        received = f"{table.shape[1]} column{'s' if table.shape[1] != 1 else ''}"
        raise faults.raise_now("links", "must have two columns of names", received, "Each row joins two areas.")
    rows = list(table.iloc[:, :2].itertuples(index=False, name=None))
    first = (table.columns[0], table.columns[1])
    if (matcher.codes(first) >= 0).all():  # there is no header
        rows.insert(0, first)
    codes = matcher.codes([entry for row in rows for entry in row]).reshape(-1, 2)
    return [
        tuple(entry if code < 0 else names[code] for entry, code in zip(row, own, strict=True))
        for row, own in zip(rows, codes, strict=True)
    ]


def _area_names(features: list[Any], values: str | Path | None) -> str | None:
    """The property that names areas: the one whose entries a table of values uses, or else one that looks like it."""
    properties = [one.get("properties") for one in features if isinstance(one, dict) and one.get("geometry")]
    table = pd.DataFrame([one if isinstance(one, dict) else {} for one in properties], dtype=object)
    likely = guess_names(table)
    if values is None or likely is None:
        return likely
    given = read_table_or_features(values, TableError, [])

    def named(column: Any) -> float:
        """How many areas the table names at best; counts may look like numbers of areas, but of fewer."""
        matcher = NameMatcher(pd.Index(table[column], dtype=object))
        codes = [matcher.codes(given[one].dropna()) for one in given.columns if given[one].notna().any()]
        return max((len(np.unique(code[code >= 0])) * float((code >= 0).mean()) for code in codes), default=0.0)

    whole = [column for column in table.columns if table[column].notna().all()]
    unique = [column for column in whole if not table[column].map(str).duplicated().any()]
    return str(max([likely, *unique], key=named))  # the likely one wins among equals


def _from_lines(
    lines: list[NDArray[np.float64]],
    properties: pd.DataFrame,
    given: dict[str, str | None],
    parallel: str,
    faults: FaultList,
) -> GraphReading:
    """Roads between the ends of lines; the ends have names of their own where the properties say so."""
    table = properties.reset_index(drop=True) if len(properties) else pd.DataFrame(index=range(len(lines)))
    roles = edge_roles(table, {**given, "geometry": None}, faults, guess_ends=False)
    faults.raise_if_any()
    options = _edge_options(table, roles, faults)
    faults.raise_if_any()
    notes: list[str] = []
    if roles.source is None or roles.target is None:
        lines = _joined(lines, options, notes)
    first, second, places = end_names_and_places(lines)
    if roles.source is not None and roles.target is not None:
        first, second = (table[end].tolist() for end in (roles.source, roles.target))
        ends = zip([*first, *second], [*(line[0] for line in lines), *(line[-1] for line in lines)], strict=True)
        places = {name: (float(x), float(y)) for name, (x, y) in ends}
        notes.append(_describe(roles))
    else:
        notes.append(f"{len(lines):,} lines joined where their ends coincide; nodes are named by their coordinates")
    if options["weight"] is None and options["length"] is None:
        options["length"], unit = line_lengths(lines)
        notes.append(f"lengths are those of the lines, in {unit}")
    graph = Graph.from_edges(
        {"source": first, "target": second},
        **options,
        geometry=lines,
        positions=places,
        parallel=parallel,  # type: ignore[arg-type]
    )
    return GraphReading(graph, [*notes, *roles.notes])


def _joined(lines: list[NDArray[np.float64]], options: dict[str, Any], notes: list[str]) -> list[NDArray[np.float64]]:
    """Lines cut where others meet them on the way; lengths, weights and ids follow."""
    pieces, line, share = cut_at_junctions(lines)
    cut = len(pieces) - len(lines)
    if not cut:
        return lines
    notes.append(f"lines were split where others meet them, giving {cut:,} more")
    if options["length"] is not None:
        options["length"] = np.asarray(options["length"])[line] * share
    if options["weight"] is not None:
        options["weight"] = np.asarray(options["weight"])[line] / share  # resistances in series
    if options["id"] is not None:
        ids = list(options["id"])
        part = pd.Series(line).groupby(line).cumcount()
        whole = np.bincount(line)[line] == 1
        options["id"] = [
            ids[row] if alone else f"{ids[row]}.{k + 1}" for row, k, alone in zip(line, part, whole, strict=True)
        ]
    return pieces


def graph_from_lines(
    lines: Any, properties: pd.DataFrame | None = None, *, parallel: str = "sum", **columns: str | None
) -> GraphReading:
    """Make a graph of roads from lines: nodes where ends agree, and where one meets another on the way.

    Parameters
    ----------
    lines : sequence
        WKT, shapely lines or coordinates. Longitudes and latitudes give lengths in metres.
    properties : DataFrame, optional
        One row per line. Columns of lengths or weights, ids, and names of the ends are guessed from their names.
    parallel : {"sum", "mean_length", "first", "error"}
        What becomes of several lines between the same two nodes; see `Graph.from_edges`.
    **columns
        ``source``, ``target``, ``weight``, ``length`` and ``id``: columns of ``properties``.

    Examples
    --------
    >>> reading = graph_from_lines(["LINESTRING (0 0, 1 0, 4 0)", "LINESTRING (1 0, 1 1)"])
    >>> reading.graph
    Graph(4 nodes, 3 edges)
    """
    faults = FaultList("no graph was made", GraphError)
    given = {role: columns.pop(role, None) for role in ("source", "target", "weight", "length", "id")}
    if columns:
        remedy = "Those are source, target, weight, length and id."
        raise faults.raise_now("columns", "must be roles that columns have", abbreviate(columns), remedy)
    table = pd.DataFrame(index=range(len(lines))) if properties is None else properties
    return _from_lines(parse_lines(list(lines), faults), table, given, parallel, faults)


def _from_matrix(matrix: Any) -> GraphReading:
    return GraphReading(Graph.from_adjacency(matrix), ["a matrix of weights; nodes are numbered from 0"])


def _from_graphml(path: Path, given: dict[str, str | None], parallel: str, faults: FaultList) -> GraphReading:
    etree = required_library("defusedxml.ElementTree", "reading a GraphML file")
    import networkx as nx

    try:
        etree.parse(path, forbid_dtd=True)  # no entities that grow to gigabytes, no files from elsewhere
        found: Any = nx.read_graphml(path)
    # networkx lets whatever goes wrong in its parser through.
    except Exception as error:  # noqa: BLE001
        raise faults.raise_now("file", "must be readable GraphML", first_words(error), "Export it again.") from None
    notes = []
    if found.is_directed():
        found = found.to_undirected()
        notes.append("edges were directed; directions are left out, and an edge and its reverse count once")
    attributes = pd.DataFrame([data for *_, data in found.edges(data=True)])
    roles = edge_roles(attributes, {**given, "source": None, "target": None, "id": None}, faults, guess_ends=False)
    faults.raise_if_any()
    names = {role: getattr(roles, role) for role in ("length", "weight", "geometry")}
    used = [f"{role} {name!r}" for role, name in names.items() if name is not None]
    notes += [", ".join(used) if used else "edges without lengths or weights, all of weight 1", *roles.notes]
    graph = Graph.from_networkx(
        found,
        weight=roles.weight,
        length=roles.length,
        geometry=roles.geometry,
        parallel=parallel,  # type: ignore[arg-type]
    )
    return GraphReading(graph, notes)
