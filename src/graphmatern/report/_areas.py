"""Areas of nodes, such as districts: outlines from whatever people have them in."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from graphmatern._validation import FaultList, abbreviate
from graphmatern.errors import TableError
from graphmatern.tables import existing_file, required_library

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from graphmatern.graph import Graph

    Floats = NDArray[np.float64]
    Rings = list[Floats]

__all__ = ["centres_of", "read_area_file", "read_areas"]


def read_areas(graph: Graph, areas: Any) -> list[Rings]:
    """Outlines of the area of every node, in node order.

    Parameters
    ----------
    graph : Graph
        The graph.
    areas : GeoDataFrame, GeoSeries, Series or mapping
        By node name: shapely polygons, GeoJSON geometries, WKT, or coordinates of shape (n_points, 2). Nodes that are
        absent have no area; names that are not nodes are refused.

    Returns
    -------
    list of list of ndarray (n_points, 2)
        Outer and inner outlines alike.
    """
    faults = FaultList("no areas were read", TableError)
    given = getattr(areas, "geometry", areas)
    if not hasattr(given, "items"):
        remedy = "Such as a GeoDataFrame whose index has the node names."
        raise faults.raise_now("areas", "must be outlines by node name", type(areas).__name__, remedy)
    found: list[Rings] = [[] for _ in range(graph.n_nodes)]
    unknown, wrong = [], []
    for name, shape in given.items():
        if name not in graph:
            unknown.append(name)
            continue
        if shape is None:
            continue
        try:
            found[int(graph.locate([name])[0])] = _rings(shape)
        except (TypeError, ValueError, KeyError) as error:
            wrong.append(f"{name}: {str(error)[:60]}")
    if unknown:
        faults.add("areas", "must be named as the nodes are", abbreviate(unknown), "Set the index to the node names.")
    if wrong:
        faults.add("areas", "must be polygons", abbreviate(wrong), "Correct or remove these.")
    if not any(found) and not len(faults):
        faults.add("areas", "must have at least one polygon", "none", "Set the index to the node names.")
    faults.raise_if_any()
    return found


def read_area_file(path: str | Path, graph: Graph, name: str | None = None) -> dict[Any, Any]:
    """Areas of a GeoJSON file by node name, for `read_areas`; areas that are not nodes are left out.

    Parameters
    ----------
    path : str or Path
        The file.
    graph : Graph
        The graph, whose nodes are named as the areas are.
    name : str, optional
        Property with the name; by default the one in which most nodes are found.
    """
    faults = FaultList("no areas were read", TableError)
    try:
        content = json.loads(existing_file(path, "GeoJSON").read_text(encoding="utf-8-sig"))
        features = [one for one in content["features"] if one.get("geometry")]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        remedy = "Export the areas as a FeatureCollection."
        raise faults.raise_now("areas", "must be GeoJSON with features", str(error)[:120], remedy) from None
    nodes = {str(node): node for node in graph.nodes}
    rows = [{**(one.get("properties") or {}), **({"id": one["id"]} if "id" in one else {})} for one in features]
    counts = Counter(key for row in rows for key, value in row.items() if str(value) in nodes)
    chosen = name if name is not None else max(counts, key=lambda key: counts[key], default=None)
    if chosen is None or not counts[chosen]:
        received = f"properties {abbreviate(sorted({str(key) for row in rows for key in row}))}"
        raise faults.raise_now("areas", "must have a property with node names", received, "Say which: --area-name.")
    pairs = zip(rows, features, strict=True)
    return {nodes[str(row[chosen])]: one["geometry"] for row, one in pairs if str(row.get(chosen)) in nodes}


def _rings(shape: Any) -> Rings:
    """Outlines of one area."""
    if isinstance(shape, str):
        shape = required_library("shapely", "reading WKT").from_wkt(shape)
    geometry = getattr(shape, "__geo_interface__", shape)
    if not isinstance(geometry, dict):
        return [_ring(geometry)]
    kind = geometry.get("type")
    if kind == "Feature":
        return _rings(geometry["geometry"])
    if kind not in ("Polygon", "MultiPolygon"):
        raise ValueError(f"a {kind} has no area")
    polygons = [geometry["coordinates"]] if kind == "Polygon" else geometry["coordinates"]
    return [_ring(ring) for polygon in polygons for ring in polygon]


def _ring(points: Any) -> Floats:
    ring = np.asarray([point[:2] for point in points], dtype=np.float64)
    if ring.ndim != 2 or len(ring) < 3 or not np.isfinite(ring).all():
        raise ValueError("an outline needs three points or more, all finite")
    return ring[:-1] if (ring[0] == ring[-1]).all() else ring


def centres_of(areas: list[Rings]) -> Floats:
    """A point for every area: the centre of mass of its largest outline; NaN without one. Shape (n_nodes, 2)."""
    centres = np.full((len(areas), 2), np.nan)
    for place, rings in enumerate(areas):
        largest = 0.0
        for ring in rings:
            start, end = ring - ring[0], np.roll(ring, -1, axis=0) - ring[0]
            cross = start[:, 0] * end[:, 1] - end[:, 0] * start[:, 1]
            area = float(abs(cross.sum()))
            if area > largest:
                largest = area
                centres[place] = ring[0] + ((start + end) * cross[:, None]).sum(axis=0) / (3.0 * cross.sum())
    return centres
