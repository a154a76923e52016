"""Areas of nodes, such as districts: outlines in any of the usual forms."""

from __future__ import annotations

import json
import os
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np

from graphmatern._validation import FaultList, abbreviate
from graphmatern.errors import TableError
from graphmatern.tables import existing_file, required_library

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from graphmatern.graph._names import NodeNames

    Floats = NDArray[np.float64]
    Rings = list[Floats]

__all__ = ["area_geometry", "area_rings", "centres_of", "is_path", "read_areas", "read_features", "rings_by_polygon"]

_NOT_FINITE = "an outline needs three points or more, all finite"


def is_path(areas: object) -> bool:
    """Whether areas are given as the path of a file."""
    return isinstance(areas, str | os.PathLike)


def read_areas(areas: Any, names: NodeNames, column: str | None = None) -> list[Rings]:
    """Outlines of the area of every node; see `Graph.with_areas`."""
    faults = FaultList("no areas were read", TableError)
    if is_path(areas):
        given: Any = _named_features(areas, names, column, faults)
    else:
        if column is not None and hasattr(areas, "columns"):
            if column not in areas.columns:
                received = f"columns {abbreviate(map(str, areas.columns))}"
                raise faults.raise_now("name", "must be a column of the areas", repr(column), f"There are {received}.")
            areas = areas.set_index(column)
        given = getattr(areas, "geometry", areas)
    if not hasattr(given, "items"):
        remedy = "Give a GeoDataFrame whose index has the node names."
        raise faults.raise_now("areas", "must be outlines by node name", type(areas).__name__, remedy)
    found: list[Rings] = [[] for _ in range(len(names))]
    unknown, wrong = [], []
    items = list(given.items())
    places = names.codes([name for name, _ in items])
    for place, (name, shape) in zip(places, items, strict=True):
        if place < 0:
            unknown.append(name)
            continue
        if shape is None:
            continue
        try:
            found[place] = area_rings(shape)
        except (TypeError, ValueError, KeyError) as error:
            wrong.append(f"{name}: {str(error)[:60]}")
    if unknown:
        faults.add("areas", "must have the names of nodes", abbreviate(unknown), "Set the index to the node names.")
    if wrong:
        faults.add("areas", "must be polygons", abbreviate(wrong), "Correct or remove these.")
    if not any(found) and not len(faults):
        faults.add("areas", "must have at least one polygon", "none", "Set the index to the node names.")
    faults.raise_if_any()
    return found


def read_features(path: Any, faults: FaultList) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Properties, with the feature's id as ``id``, and geometries of a GeoJSON file; features without one are left out.

    Parameters
    ----------
    path : str or Path
        The file.
    faults : FaultList
        What to raise where it is not GeoJSON.
    """
    try:
        content = json.loads(existing_file(path, "GeoJSON").read_text(encoding="utf-8-sig"))
        features = [one for one in content["features"] if one.get("geometry")]
        rows = [{**(one.get("properties") or {}), **({"id": one["id"]} if "id" in one else {})} for one in features]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        remedy = "Export the areas as a FeatureCollection."
        raise faults.raise_now("areas", "must be GeoJSON with features", str(error)[:120], remedy) from None
    return rows, [one["geometry"] for one in features]


def _named_features(path: Any, names: NodeNames, column: str | None, faults: FaultList) -> dict[Any, Any]:
    """Geometries of a GeoJSON file by node name; areas that are not nodes are left out.

    By default the name is the property in which most nodes are found.
    """
    rows, geometries = read_features(path, faults)
    nodes = {str(node): node for node in names.index}
    counts = Counter(key for row in rows for key, value in row.items() if str(value) in nodes)
    chosen = column if column is not None else max(counts, key=lambda key: counts[key], default=None)
    if chosen is None or not counts[chosen]:
        received = f"properties {abbreviate(sorted({str(key) for row in rows for key in row}))}"
        remedy = "Name it with `name`, or --area-name."
        raise faults.raise_now("areas", "must have a property with node names", received, remedy)
    pairs = zip(rows, geometries, strict=True)
    return {nodes[str(row[chosen])]: shape for row, shape in pairs if str(row.get(chosen)) in nodes}


def area_rings(shape: Any) -> Rings:
    """Outlines of one area: outer ones counter-clockwise, holes clockwise.

    Parameters
    ----------
    shape : shapely geometry, GeoJSON mapping, str or array_like of shape (n_points, 2)
        A polygon or several; text is WKT.

    Raises
    ------
    ValueError, TypeError, KeyError
        If it is not an area.
    """
    if isinstance(shape, str):
        shape = required_library("shapely", "reading WKT").from_wkt(shape)
    geometry = getattr(shape, "__geo_interface__", shape)
    if not isinstance(geometry, dict):
        return [_ring(geometry, 1.0)]
    kind = geometry.get("type")
    if kind == "Feature":
        return area_rings(geometry["geometry"])
    if kind not in ("Polygon", "MultiPolygon"):
        raise ValueError(f"a {kind} has no area")
    polygons = [geometry["coordinates"]] if kind == "Polygon" else geometry["coordinates"]
    return [_ring(ring, -1.0 if k else 1.0) for polygon in polygons for k, ring in enumerate(polygon)]


def _ring(points: Any, sign: float) -> Floats:
    """A ring without its last point, which is the first again; turned so that its area has the sign."""
    ring = np.asarray([point[:2] for point in points], dtype=np.float64)
    if ring.ndim != 2 or len(ring) < 3 or not np.isfinite(ring).all():
        raise ValueError(_NOT_FINITE)
    ring = ring[:-1] if (ring[0] == ring[-1]).all() else ring
    return ring if sign * _twice_area(ring)[0] >= 0.0 else np.ascontiguousarray(ring[::-1])


def rings_by_polygon(rings: Rings) -> list[Rings]:
    """The outlines of an area polygon by polygon: the outer one, then its holes, which `area_rings` turns clockwise."""
    polygons: list[Rings] = []
    for ring in rings:
        if polygons and _twice_area(ring)[0] < 0.0:
            polygons[-1].append(ring)
        else:
            polygons.append([ring])
    return polygons


def area_geometry(rings: Rings) -> dict[str, Any]:
    """The outlines of an area as a GeoJSON geometry."""
    closed = [[[*ring.tolist(), ring[0].tolist()] for ring in polygon] for polygon in rings_by_polygon(rings)]
    if len(closed) == 1:
        return {"type": "Polygon", "coordinates": closed[0]}
    return {"type": "MultiPolygon", "coordinates": closed}


def _twice_area(ring: Floats) -> tuple[float, Floats]:
    """Twice the area, positive counter-clockwise, and the point that it balances on."""
    start, end = ring - ring[0], np.roll(ring, -1, axis=0) - ring[0]
    cross = start[:, 0] * end[:, 1] - end[:, 0] * start[:, 1]
    total = float(cross.sum())
    if total == 0.0:
        return 0.0, ring.mean(axis=0)
    return total, ring[0] + ((start + end) * cross[:, None]).sum(axis=0) / (3.0 * total)


def centres_of(areas: list[Rings]) -> Floats:
    """A point for every area: the centre of mass of its largest outline; NaN without one. Shape (n_nodes, 2)."""
    centres = np.full((len(areas), 2), np.nan)
    for place, rings in enumerate(areas):
        if rings:
            found = [_twice_area(ring) for ring in rings]
            centres[place] = max(found, key=lambda one: one[0])[1]
    return centres
