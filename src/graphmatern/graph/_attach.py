"""Points in the plane, such as sensors by longitude and latitude, moved to the nearest edge and inserted there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pandas as pd

from graphmatern._validation import FaultList, abbreviate, as_numbers
from graphmatern.errors import GraphError, TableError
from graphmatern.tables import position_columns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from graphmatern.graph._edge_rows import EdgeRows
    from graphmatern.graph._graph import Graph

    Floats = NDArray[np.float64]
    Longs = NDArray[np.int64]

__all__ = ["are_degrees", "attach", "edge_lines", "rounded"]

_G = TypeVar("_G", bound="Graph")

_METRES_PER_DEGREE = 6_371_008.8 * np.pi / 180.0  # of latitude, on the mean sphere
_AT_END = 1e-9  # share of an edge: nearer, a point is its end


def are_degrees(points: Floats) -> bool:
    """Whether coordinates can be longitudes and latitudes."""
    return bool((np.abs(points) <= [180.0, 90.0]).all())


def rounded(distance: float) -> str:
    """A distance as one would say it: without decimals where there are hundreds."""
    return f"{distance:,.0f}" if distance >= 100.0 else f"{distance:.3g}"


def edge_lines(rows: EdgeRows, positions: Floats | None) -> list[Floats]:
    """Polylines of the edges: their geometry where known, else straight between their ends."""
    geometry: Sequence[Floats | None] = rows.geometry or [None] * len(rows)
    if positions is None and any(line is None for line in geometry):
        faults = FaultList("there are no lines", GraphError)
        remedy = "Give the graph positions of its nodes, or the geometry of its edges."
        raise faults.raise_now("graph", "must have positions", "a graph without", remedy)
    ends = zip(rows.source, rows.target, geometry, strict=True)
    return [np.asarray(positions)[[s, t], :2] if line is None else line for s, t, line in ends]


def attach(graph: _G, points: Any, *, x: str | None, y: str | None, limit: float | None) -> tuple[_G, pd.DataFrame]:
    """A graph with the points on its nearest edges, and a report of where they went; see `Graph.attach`."""
    names, places = _read_points(points, x, y)
    lines = graph.edge_lines()
    edge, share, moved, spot = _nearest_on_edges(lines, places)
    if limit is None:
        scale = _METRES_PER_DEGREE if graph.is_geographic else 1.0
        limit = 0.5 * scale * float(np.mean([np.hypot(*np.diff(line, axis=0).T).sum() for line in lines]))
    far = moved > limit
    if far.any():
        faults = FaultList("the points were not attached", TableError)
        worst = np.flatnonzero(far)[np.argsort(-moved[far])]
        unit = " m" if graph.is_geographic else ""
        received = abbreviate([f"{names[k]} ({rounded(moved[k])}{unit} away)" for k in worst])
        remedy = "Check the coordinates, leave these out, or raise `limit`."
        rule = f"must lie within {rounded(limit)}{unit} of an edge"
        raise faults.raise_now("points", rule, received, remedy)
    report = pd.DataFrame(
        {"edge": graph._rows.identifiers[edge], "fraction": share, "moved": moved, "x": spot[:, 0], "y": spot[:, 1]},
        index=names,
    )
    bigger, nodes = _inserted(graph, report)
    report.insert(0, "node", nodes)
    return bigger, report


def _read_points(points: Any, x: str | None, y: str | None) -> tuple[pd.Index[Any], Floats]:
    """Names and coordinates of points, from a table or a GeoDataFrame."""
    faults = FaultList("the points were not attached", TableError)
    if not isinstance(points, pd.DataFrame | pd.Series):
        remedy = "Give a table with longitude and latitude, or a GeoDataFrame of points."
        raise faults.raise_now("points", "must be a table of points", type(points).__name__, remedy)
    if x is None and y is None and hasattr(points, "geom_type"):
        kinds = set(points.geom_type)
        if kinds != {"Point"}:
            raise faults.raise_now("points", "must be points", abbreviate(sorted(map(str, kinds))), "Use centroids.")
        shapes = points.geometry
        return points.index, np.column_stack([shapes.x, shapes.y]).astype(np.float64)
    table = points.to_frame() if isinstance(points, pd.Series) else points
    pair = (x, y) if x is not None and y is not None else position_columns(table)
    if pair is None or any(column not in table.columns for column in pair):
        received = f"columns {abbreviate(map(str, table.columns))}"
        raise faults.raise_now("points", "must have columns of coordinates", received, "Name them: `x` and `y`.")
    places = np.column_stack([as_numbers(table[column], str(column), faults) for column in pair])
    faults.raise_if_any()
    return table.index, places


def _nearest_on_edges(lines: list[Floats], points: Floats) -> tuple[Longs, Floats, Floats, Floats]:
    """The nearest edge of each point, and the nearest place on it.

    Parameters
    ----------
    lines : list of ndarray (n_points, 2)
        The edges.
    points : ndarray, shape (n, 2)
        The points.

    Returns
    -------
    edge : ndarray of int64, shape (n,)
    share : ndarray, shape (n,)
        Of the line's length before that place.
    moved : ndarray, shape (n,)
        Distance from the point: metres where coordinates are degrees, else in their unit.
    place : ndarray, shape (n, 2)
    """
    corners = np.vstack(lines)
    # In metres around the middle of the map, or as they are.
    scale = np.ones(2)
    if are_degrees(corners) and are_degrees(points):
        scale = _METRES_PER_DEGREE * np.array([np.cos(np.radians(corners[:, 1].mean())), 1.0])
    starts, ends, edge, before = _segments([line * scale for line in lines])
    where = points * scale
    # Long segments are cut for the search, so that the middle of the nearest piece is near.
    length = np.hypot(*(ends - starts).T)
    piece = 2.0 * max(float(np.median(length)), 1e-12)
    count = np.maximum(np.ceil(length / piece).astype(np.int64), 1)
    owner = np.repeat(np.arange(len(length)), count)
    step = (np.arange(len(owner)) - np.repeat(np.cumsum(count) - count, count) + 0.5) / count[owner]
    from scipy.spatial import cKDTree

    tree = cKDTree(starts[owner] + step[:, None] * (ends - starts)[owner])
    bound = tree.query(where)[0]
    found = tree.query_ball_point(where, bound + 0.5 * piece + 1e-9)
    share, moved, place = np.empty(len(points)), np.empty(len(points)), np.empty((len(points), 2))
    chosen = np.empty(len(points), dtype=np.int64)
    total = np.bincount(edge, length, minlength=len(lines))
    for k, near in enumerate(found):
        segment = np.unique(owner[near])
        along = ends[segment] - starts[segment]
        size = np.maximum((along**2).sum(axis=1), 1e-300)
        t = np.clip(((where[k] - starts[segment]) * along).sum(axis=1) / size, 0.0, 1.0)
        foot = starts[segment] + t[:, None] * along
        distance = np.hypot(*(foot - where[k]).T)
        best = int(distance.argmin())
        s = segment[best]
        chosen[k], moved[k], place[k] = edge[s], distance[best], foot[best] / scale
        share[k] = (before[s] + t[best] * length[s]) / max(total[edge[s]], 1e-300)
    return chosen, np.clip(share, 0.0, 1.0), moved, place


def _segments(lines: list[Floats]) -> tuple[Floats, Floats, Longs, Floats]:
    """Starts and ends of all straight pieces, the lines they belong to, and the lengths before them."""
    starts = np.vstack([line[:-1] for line in lines])
    ends = np.vstack([line[1:] for line in lines])
    edge = np.repeat(np.arange(len(lines)), [len(line) - 1 for line in lines])
    length = np.hypot(*(ends - starts).T)
    run = np.cumsum(length) - length
    first = np.concatenate([[0], np.cumsum([len(line) - 1 for line in lines])[:-1]])
    return starts, ends, edge, run - run[first][edge]


def _inserted(graph: _G, report: pd.DataFrame) -> tuple[_G, list[Any]]:
    """A graph with the points of the report as nodes, and the names of their nodes."""
    rows = graph._rows
    row = pd.Index(rows.identifiers).get_indexer(pd.Index(report["edge"]))
    share = report["fraction"].to_numpy()
    ends = np.where(share < _AT_END, rows.source[row], np.where(share > 1.0 - _AT_END, rows.target[row], -1))
    nodes: list[Any] = [graph.nodes[int(end)] if end >= 0 else None for end in ends]
    new: dict[tuple[int, float], Any] = {}
    for k in np.flatnonzero(ends < 0):
        spot = (int(row[k]), round(float(share[k]), 12))
        if spot not in new:
            name = report.index[int(k)]
            taken = name in graph or name in new.values()
            new[spot] = f"{name} at {len(new)}" if taken else name
        nodes[k] = new[spot]
    if not new:
        return graph, nodes
    spots = pd.DataFrame(
        {"edge": rows.identifiers[[r for r, _ in new]], "fraction": [f for _, f in new]},
        index=pd.Index(list(new.values()), tupleize_cols=False),
    )
    return graph.subdivide(spots, fraction="fraction"), nodes
