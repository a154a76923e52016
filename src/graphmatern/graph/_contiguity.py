"""Graphs of areas that border on each other, from their outlines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from graphmatern._validation import FaultList, abbreviate, note_choice, warn
from graphmatern.errors import EdgeWarning, GraphError
from graphmatern.graph._areas import area_rings, centres_of, is_path, read_features, rings_by_polygon
from graphmatern.graph._edge_rows import EdgeRows
from graphmatern.graph._names import NodeNames
from graphmatern.graph._parts import GraphParts
from graphmatern.tables import required_library

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Longs = NDArray[np.int64]

__all__ = ["parts_from_polygons"]

# Borders must be longer than so many times the tolerance: near a corner, both areas lie within it of each other.
_LONGER = 10.0
# Properties that name an area, if every area has one of its own.
_NAMES = ("name", "id", "code", "geoid", "district", "area")


def parts_from_polygons(areas: Any, *, contiguity: str, tolerance: float, nodes: Any, links: Any) -> GraphParts:
    """Parts of the graph of areas that border on each other; see `Graph.from_polygons`."""
    faults = FaultList("no graph was made", GraphError)
    note_choice("contiguity", contiguity, ("queen", "rook"), faults)
    if not (isinstance(tolerance, int | float | np.number) and np.isfinite(tolerance) and tolerance >= 0.0):
        rule, remedy = "must be a distance of at least 0", "0 joins areas that touch; to bridge gaps, give their width."
        faults.add("tolerance", rule, repr(tolerance), remedy)
    given, shapes = _named(areas, nodes, faults)
    remedy = "Name each area once; areas in several pieces are MultiPolygons (GeoDataFrame.dissolve)."
    names = NodeNames.default(len(shapes)) if given is None else NodeNames.build(given, faults, remedy=remedy)
    if names is not None and len(names) != len(shapes):
        faults.add("nodes", f"must name every area ({len(shapes)})", f"{len(names)} names", "One name per area.")
        names = None
    if not shapes:
        faults.add("areas", "must have at least one polygon", "none", "Give one per area.")
    labels = list(range(len(shapes))) if names is None else list(names.index)
    rings, wrong = [], []
    for name, shape in zip(labels, shapes, strict=True):
        try:
            rings.append([] if shape is None else area_rings(shape))
            if not rings[-1]:
                raise ValueError("has no outline")
        except (TypeError, ValueError, KeyError) as error:
            wrong.append(f"{name}: {str(error)[:60]}")
    if wrong:
        faults.add("areas", "must be polygons", abbreviate(wrong), "Correct or remove these.")
    more = _links(links, names, faults)
    faults.raise_if_any()
    assert names is not None
    pairs = np.vstack([_neighbours(rings, contiguity, float(tolerance)), more])
    low, high = np.unique(np.sort(pairs, axis=1), axis=0).T if len(pairs) else (pairs[:, 0], pairs[:, 1])
    rows = EdgeRows(low, high, np.ones(len(low)), weighting="unit")
    weights = rows.merge(len(names), "first")
    alone = names.index[np.diff(weights.indptr) == 0]
    if len(alone) and len(names) > 1:
        border, stay = ("borders", "It is an island") if len(alone) == 1 else ("border", "They are islands")
        warn(
            f"{len(alone)} of {len(names):,} areas {border} on no other: {abbreviate(alone)}. {stay}: join such areas "
            "through `links`, as a ferry would, or bridge gaps between outlines with `tolerance`",
            EdgeWarning,
        )
    return GraphParts(weights, names, rows, centres_of(rings), areas=rings)


def _named(areas: Any, nodes: Any, faults: FaultList) -> tuple[Any, list[Any]]:
    """Names, where they are given in some way, and geometries."""
    if is_path(areas):
        rows, shapes = read_features(areas, faults)
        table = pd.DataFrame(rows, dtype=object)
        column = guess_names(table) if nodes is None else nodes if isinstance(nodes, str) else None
        return (_column(table, column, faults) if column is not None else nodes), list(shapes)
    if hasattr(areas, "geom_type"):
        shapes = list(areas.geometry)
        if isinstance(nodes, str):
            return _column(areas, nodes, faults), shapes
        return areas.index if nodes is None else nodes, shapes
    if hasattr(areas, "items"):
        pairs = list(areas.items())
        return [name for name, _ in pairs] if nodes is None else nodes, [shape for _, shape in pairs]
    if isinstance(areas, list | tuple | np.ndarray):
        return nodes, list(areas)
    remedy = "Give a GeoDataFrame, the path of a GeoJSON file, or a list of shapely polygons."
    raise faults.raise_now("areas", "must be polygons", type(areas).__name__, remedy)


def guess_names(table: pd.DataFrame) -> str | None:
    """The property that names areas: one that tells them apart, if possible one called so, or else of texts."""
    telling = [
        column
        for column in table.columns
        if table[column].notna().all()
        and all(isinstance(one, str | int) for one in table[column])
        and table[column].is_unique
    ]
    called = [column for word in _NAMES for column in telling if str(column).lower() == word]
    texts = [column for column in telling if all(isinstance(one, str) for one in table[column])]
    return str((called or texts or telling)[0]) if telling else None


def _column(table: Any, column: str, faults: FaultList) -> Any:
    if column not in getattr(table, "columns", ()):
        received = f"{column!r} among {abbreviate(map(str, getattr(table, 'columns', ())))}"
        raise faults.raise_now("nodes", "must be a column or property of the areas", received, "Name one of them.")
    return list(table[column])


def _links(links: Any, names: NodeNames | None, faults: FaultList) -> Longs:
    """Pairs of positions of areas that are joined in any case; shape (n_links, 2)."""
    pairs = [] if links is None else list(links)
    if any(isinstance(pair, str) or not hasattr(pair, "__len__") or len(pair) != 2 for pair in pairs):
        faults.add("links", "must be pairs of names", abbreviate(pairs), "For instance [('orkney', 'caithness')].")
        return np.zeros((0, 2), np.int64)
    if names is None or not pairs:
        return np.zeros((0, 2), np.int64)
    ends = [name for pair in pairs for name in pair]
    codes = names.codes(ends)
    if (codes < 0).any():
        names.note_unknown([name for name, code in zip(ends, codes, strict=True) if code < 0], "links", faults)
    found = codes.reshape(-1, 2)
    if (found[:, 0] == found[:, 1]).any():
        own = [ends[2 * k] for k in np.flatnonzero(found[:, 0] == found[:, 1])]
        faults.add("links", "must join two areas", f"{abbreviate(own)} with itself", "Remove these.")
    return found


def _neighbours(rings: list[list[NDArray[np.float64]]], contiguity: str, tolerance: float) -> Longs:
    """Pairs of positions of areas that border on each other; shape (n_pairs, 2)."""
    shapely = required_library("shapely", "finding areas that border on each other")
    shapes = np.array([_polygon(shapely, one) for one in rings], dtype=object)
    # An outline that crosses itself has no inside that a point could be tested for.
    invalid = ~shapely.is_valid(shapes)
    shapes[invalid] = shapely.make_valid(shapes[invalid])
    tree = shapely.STRtree(shapes)
    if tolerance > 0.0:
        first, second = tree.query(shapes, predicate="dwithin", distance=tolerance)
    else:
        first, second = tree.query(shapes, predicate="intersects")
    once = first < second
    first, second = first[once], second[once]
    if contiguity == "rook":
        # Areas that touch share a line or points; what they share has a length in the first case only.
        if tolerance > 0.0:
            shared = shapely.intersection(shapely.boundary(shapes[first]), shapely.buffer(shapes[second], tolerance))
        else:
            shared = shapely.intersection(shapes[first], shapes[second])
        kept = shapely.length(shared) > _LONGER * tolerance
        first, second = first[kept], second[kept]
    return np.column_stack([first, second]).astype(np.int64)


def _polygon(shapely: Any, rings: list[NDArray[np.float64]]) -> Any:
    polygons = [shapely.Polygon(outer, holes) for outer, *holes in rings_by_polygon(rings)]
    return polygons[0] if len(polygons) == 1 else shapely.MultiPolygon(polygons)
