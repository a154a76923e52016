"""Inserting nodes that lie on edges."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from graphmatern._validation import FaultList, abbreviate, as_numbers
from graphmatern.errors import TableError
from graphmatern.graph._edge_rows import EdgeRows, mean_over_length
from graphmatern.graph._geometry import cut_line, point_along
from graphmatern.graph._names import NodeNames, join_indexes
from graphmatern.graph._parts import GraphParts, checked

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["parts_subdivided", "places_on_edges"]


def parts_subdivided(
    parts: GraphParts,
    rows: EdgeRows,
    points: pd.DataFrame,
    *,
    edge: str,
    distance: str | None,
    fraction: str | None,
    name: str | None,
    position: tuple[str, ...] | None,
) -> GraphParts:
    """Parts of the graph with the points as nodes; see `Graph.subdivide`."""
    faults = FaultList("the points were not inserted", TableError)
    points = _table(points, faults)
    if parts.masses is not None:
        faults.add("graph", "must have no node masses", "masses", "Insert the points first, then give masses.")
    width = 0 if parts.positions is None else parts.positions.shape[1]
    if position is not None and len(position) != width:
        known = f"{len(position)} columns for {width}-dimensional positions" if width else "a graph without positions"
        faults.add("position", "must have a column for each dimension of the positions", known, "Change or omit it.")
    _check_options(rows, points, edge, distance, fraction, name, position, faults)
    faults.raise_if_any()
    new_names = _new_names(parts, points, name, faults)
    row_of_point = _row_numbers(rows, points[edge], edge, faults)
    share = _shares(rows, row_of_point, points, distance, fraction, faults)
    places = None
    if position is not None:
        places = as_numbers(points[list(position)].to_numpy(), "position", faults)
    _check_clear(row_of_point, share, points.index, faults)
    faults.raise_if_any()

    n_old = len(parts.names)
    order = np.lexsort((share, row_of_point))
    pieces = _cut_rows(rows, row_of_point[order], share[order], n_old + order)
    names = NodeNames(join_indexes(parts.names.index, new_names))
    positions = _positions(parts, rows, row_of_point, share, places)
    return checked(GraphParts(pieces.merge(len(names), parts.parallel), names, pieces, positions, None, parts.parallel))


def places_on_edges(
    rows: EdgeRows, points: Any, *, edge: str, distance: str | None, fraction: str | None
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """Ends of the edges that points lie on, and the shares between; see `Graph.locate_on_edges`."""
    faults = FaultList("the points were not found", TableError)
    points = _table(points, faults)
    _check_options(rows, points, edge, distance, fraction, None, None, faults)
    faults.raise_if_any()
    row = _row_numbers(rows, points[edge], edge, faults)
    share = _shares(rows, row, points, distance, fraction, faults, ends=True)
    faults.raise_if_any()
    return rows.source[row], rows.target[row], share


def _table(points: Any, faults: FaultList) -> pd.DataFrame:
    """Return the points as a table, or say why that cannot be."""
    try:
        return points if isinstance(points, pd.DataFrame) else pd.DataFrame(points)
    except (TypeError, ValueError):
        received = f"a {type(points).__name__}"
        raise faults.raise_now("points", "must be a table", received, "Pass a DataFrame.") from None


def _check_options(
    rows: EdgeRows,
    points: pd.DataFrame,
    edge: str,
    distance: str | None,
    fraction: str | None,
    name: str | None,
    position: tuple[str, ...] | None,
    faults: FaultList,
) -> None:
    columns = {"edge": edge, "distance": distance, "fraction": fraction, "name": name}
    wanted = [(argument, column) for argument, column in columns.items() if column is not None]
    wanted += [("position", column) for column in position or ()]
    for argument, column in wanted:
        count = int(np.sum(np.asarray(points.columns == column)))
        if count != 1:
            received = f"{column!r} with columns {abbreviate(points.columns)}"
            faults.add(argument, "must be one column of `points`", received, "Name one of the columns.")
    if (distance is None) == (fraction is None):
        received = "neither" if distance is None else "both"
        faults.add(
            "distance",
            "or `fraction` must be given, not both",
            received,
            "Say where on its edge a point lies.",
        )
    elif distance is not None and rows.length is None:
        faults.add("distance", "needs edges with lengths", "a graph without", "Use `fraction=`, or give lengths.")


def _new_names(parts: GraphParts, points: pd.DataFrame, name: str | None, faults: FaultList) -> pd.Index[Any]:
    built = NodeNames.build(points.index if name is None else points[name], faults, "name" if name else "points.index")
    if built is None:
        return pd.Index([])
    taken = parts.names.codes(built.index) >= 0
    if taken.any():
        remedy = "Rename the points; with `name=` they can have a column of names."
        faults.add("name" if name else "points.index", "must be new", abbreviate(built.index[taken]), remedy)
    return built.index


def _row_numbers(rows: EdgeRows, edges: pd.Series[Any], column: str, faults: FaultList) -> NDArray[np.int64]:
    try:
        found = NodeNames(rows.identifiers).codes(edges)
    except TypeError as error:
        raise faults.raise_now(column, "must hold ids of edges", str(error), "See `graph.edges`.") from None
    if (found < 0).any():
        unknown = abbreviate(edges[found < 0].unique())
        remedy = "See `graph.edges`; self-loops are not among them."
        faults.add(column, "must hold ids of edges", unknown, remedy)
    return found


def _shares(
    rows: EdgeRows,
    row_of_point: NDArray[np.int64],
    points: pd.DataFrame,
    distance: str | None,
    fraction: str | None,
    faults: FaultList,
    *,
    ends: bool = False,
) -> NDArray[np.float64]:
    """How far along its edge each point lies, from 0 to 1; whether at the ends, too, is the caller's choice."""
    if fraction is not None:
        share = as_numbers(points[fraction], fraction, faults)
        outside = (share < 0) | (share > 1) if ends else (share <= 0) | (share >= 1)
        bound, given = "1", share
    else:
        assert distance is not None
        assert rows.length is not None
        given = as_numbers(points[distance], distance, faults)
        known = row_of_point >= 0
        share = np.full(len(given), 0.5)
        share[known] = given[known] / rows.length[row_of_point[known]]
        outside = ((given < 0) | (share > 1) if ends else (given <= 0) | (share >= 1)) & known
        bound = "the edge's length"
    if outside.any():
        received = f"{abbreviate(given[outside])} at rows {abbreviate(points.index[outside])}"
        rule = f"must lie from 0 to {bound}" if ends else f"must lie above 0 and below {bound}"
        remedy = "Correct them." if ends else "A point at an end of an edge is the node there: use that node's name."
        faults.add(distance or fraction or "", rule, received, remedy)
    return np.asarray(share)


def _check_clear(
    row_of_point: NDArray[np.int64], share: NDArray[np.float64], names: pd.Index[Any], faults: FaultList
) -> None:
    """Note points at the same place."""
    together = pd.DataFrame({"row": row_of_point, "share": share}).duplicated(keep=False).to_numpy()
    together = together & (row_of_point >= 0) & np.isfinite(share)
    if together.any():
        received = f"points {abbreviate(names[together])} on top of each other"
        faults.add("points", "must lie apart", received, "Keep one node and give it several observations.")


def _cut_rows(rows: EdgeRows, row: NDArray[np.int64], share: NDArray[np.float64], node: NDArray[np.int64]) -> EdgeRows:
    """Cut edges at points sorted by edge and share; pieces replace their edge in place."""
    # Every edge contributes one piece per point on it and one more.
    n_cuts = np.bincount(row, minlength=len(rows))
    parent = np.repeat(np.arange(len(rows)), n_cuts + 1)
    first = np.cumsum(n_cuts + 1) - (n_cuts + 1)
    slot = first[row] + np.arange(len(row)) - (np.cumsum(n_cuts) - n_cuts)[row]
    source, target = rows.source[parent], rows.target[parent]
    begin, end = np.zeros(len(parent)), np.ones(len(parent))
    target[slot], source[slot + 1] = node, node
    end[slot], begin[slot + 1] = share, share
    part = end - begin
    length = None if rows.length is None else rows.length[parent] * part
    # Weights that came from lengths do so again; others are conductances, whose pieces are in series.
    if rows.weighting == "length" and length is not None:
        weight = mean_over_length(length)
    else:
        weight = rows.weight[parent] / part
    geometry: list[Any] | None = None
    if rows.geometry is not None:
        geometry = []
        bounds = np.concatenate([[0], np.cumsum(n_cuts)])
        for number, line in enumerate(rows.geometry):
            cuts = share[bounds[number] : bounds[number + 1]]
            geometry += [None] * (len(cuts) + 1) if line is None else cut_line(line, cuts)
    ids = _piece_ids(rows, parent, n_cuts, first)
    return EdgeRows(source, target, weight, length, geometry, ids, rows.weighting)


def _piece_ids(
    rows: EdgeRows, parent: NDArray[np.int64], n_cuts: NDArray[np.int64], first: NDArray[np.int64]
) -> pd.Index[Any]:
    """Whole edges keep their id; pieces are called (id, 0), (id, 1), ..."""
    ids = rows.identifiers
    rank = np.arange(len(parent)) - first[parent]
    names = [(ids[edge], int(number)) if n_cuts[edge] else ids[edge] for edge, number in zip(parent, rank, strict=True)]
    return pd.Index(names, dtype=object, tupleize_cols=False)


def _positions(
    parts: GraphParts,
    rows: EdgeRows,
    row: NDArray[np.int64],
    share: NDArray[np.float64],
    given: NDArray[np.float64] | None,
) -> NDArray[np.float64] | None:
    if parts.positions is None:
        return None
    if given is None:
        start, end = parts.positions[rows.source[row]], parts.positions[rows.target[row]]
        given = start + share[:, None] * (end - start)
        if rows.geometry is not None and parts.positions.shape[1] == 2:
            for point, number in enumerate(row):
                line = rows.geometry[number]
                if line is not None:
                    given[point] = point_along(line, share[point : point + 1])[0]
    return np.vstack([parts.positions, given])
