"""Roads as lines: GeoJSON and WKT files, whose line ends are the nodes where no names are given."""

from __future__ import annotations

import json
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from graphmatern._validation import FaultList, abbreviate
from graphmatern.graph._geometry import parse_line
from graphmatern.tables import existing_file, read_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from graphmatern.errors import InputError

    Lines = list[NDArray[np.float64]]

__all__ = [
    "are_areas",
    "cut_at_junctions",
    "end_names_and_places",
    "line_lengths",
    "lines_of_features",
    "parse_lines",
    "read_geojson",
    "read_table_or_features",
    "read_wkt",
]

_EARTH_RADIUS = 6_371_008.8  # metres, the mean of the International Union of Geodesy and Geophysics
_LARGEST_TEXT = 2 << 30  # bytes


def _read_text(path: Path, faults: FaultList) -> str:
    size = path.stat().st_size
    if size > _LARGEST_TEXT:
        raise faults.raise_now("file", f"must have at most {_LARGEST_TEXT:,} bytes", f"{size:,}", "Use Parquet.")
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise faults.raise_now("file", "must be text encoded in UTF-8", str(error)[:120], "Save it as UTF-8.") from None


def read_geojson(path: Path, faults: FaultList) -> list[Any]:
    """Features of a GeoJSON file."""
    text = _read_text(path, faults)
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise faults.raise_now("file", "must be GeoJSON", str(error)[:120], "Check where it breaks off.") from None
    features = content.get("features") if isinstance(content, dict) else None
    if not isinstance(features, list):
        received = f"a {type(content).__name__} without features"
        raise faults.raise_now("file", "must be a GeoJSON FeatureCollection", received, "Export it as features.")
    return features


def are_areas(features: list[Any]) -> bool:
    """Whether most features of a GeoJSON file are polygons."""
    geometries = [one.get("geometry") for one in features if isinstance(one, dict)]
    kinds = [one.get("type") for one in geometries if isinstance(one, dict)]
    return 2 * sum(kind in ("Polygon", "MultiPolygon") for kind in kinds) > len(features)


def lines_of_features(features: list[Any], faults: FaultList) -> tuple[Lines, pd.DataFrame]:
    """Lines among the features of a GeoJSON file, and the table of their properties.

    Every part of a MultiLineString is a line of its own; geometries of other types are left out.

    Returns
    -------
    lines : list of ndarray (n_points, 2)
    properties : DataFrame
        One row per line; ``id`` is the feature's where it has one.
    """
    drawn: list[Any] = []
    rows: list[dict[str, Any]] = []
    others: list[str] = []
    for feature in features:
        geometry = feature.get("geometry") if isinstance(feature, dict) else None
        kind = geometry.get("type") if isinstance(geometry, dict) else None
        coordinates = geometry.get("coordinates") if isinstance(geometry, dict) else None
        if kind not in ("LineString", "MultiLineString") or not isinstance(coordinates, list):
            others.append(str(kind))
            continue
        properties = feature.get("properties")
        row = {str(k): v for k, v in properties.items()} if isinstance(properties, dict) else {}
        if "id" in feature and "id" not in row:
            row["id"] = feature["id"]
        for part in [coordinates] if kind == "LineString" else coordinates:
            drawn.append(part)
            rows.append(row)
    if not drawn:
        received = f"geometries of type {abbreviate(sorted(set(others)))}" if others else "no features"
        raise faults.raise_now(
            "file", "must hold LineStrings or Polygons", received, "Give roads as lines, or areas as polygons."
        )
    lines = parse_lines(drawn, faults)
    table = pd.DataFrame(rows, index=range(len(rows)))
    if "id" in table and table["id"].astype(str).duplicated().any():
        table = table.drop(columns="id")
    return lines, table


def read_table_or_features(path: str | Path, error: type[InputError], notes: list[str]) -> pd.DataFrame:
    """Read a table, or the properties of a GeoJSON file's features, with the coordinates of points as x and y."""
    if Path(path).suffix.lower() not in {".geojson", ".json"}:
        return read_table(path, error, notes)
    file = existing_file(path, "GeoJSON")
    faults = FaultList(f"{file.name} was not read", error)
    rows = []
    for feature in read_geojson(file, faults):
        properties, geometry = (_member(feature, name) for name in ("properties", "geometry"))
        row = {name: _cell(entry) for name, entry in properties.items()}
        place = geometry.get("coordinates")
        if geometry.get("type") == "Point" and isinstance(place, list) and len(place) >= 2:
            row |= {"x": _cell(place[0]), "y": _cell(place[1])}
        rows.append(row)
    table = pd.DataFrame(rows).dropna(axis="columns", how="all")
    if table.empty:
        remedy = "Give points, or features with properties."
        raise faults.raise_now("file", "must hold values", "features without any", remedy)
    return table


def _member(feature: Any, name: str) -> dict[str, Any]:
    found = feature.get(name) if isinstance(feature, dict) else None
    return found if isinstance(found, dict) else {}


def _cell(entry: Any) -> Any:
    """One cell of a table: a number or a text, as in a file of text; None where it is empty."""
    if isinstance(entry, str):
        return entry.strip() or None
    return entry if entry is None or isinstance(entry, int | float) else str(entry)


def read_wkt(path: Path, faults: FaultList) -> Lines:
    """Read one WKT LINESTRING per line of a text; empty lines are left out."""
    texts = [line for line in _read_text(path, faults).splitlines() if line.strip()]
    if not texts:
        raise faults.raise_now("file", "must hold LINESTRINGs", "an empty file", "Write one per line.")
    return parse_lines(texts, faults)


def parse_lines(drawn: Sequence[Any], faults: FaultList) -> Lines:
    """Polylines from WKT or coordinates; every one that is wrong is noted."""
    lines: Lines = []
    bad: list[str] = []
    for row, item in enumerate(drawn):
        try:
            lines.append(parse_line(item))
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            bad.append(f"line {row}: {str(error)[:60]}")
    if bad:
        remedy = "Correct or remove these."
        raise faults.raise_now("geometry", "must hold lines of two points or more", abbreviate(bad), remedy)
    return lines


def _are_degrees(lines: Lines) -> bool:
    points = np.vstack(lines)
    return bool((np.abs(points) <= [180.0, 90.0]).all())


def line_lengths(lines: Lines) -> tuple[NDArray[np.float64], str]:
    """Lengths of lines, and their unit: metres on the sphere where the coordinates can be degrees.

    Examples
    --------
    >>> lengths, unit = line_lengths([np.array([[0.0, 0.0], [0.0, 1.0]])])
    >>> round(float(lengths[0])), unit
    (111195, 'metres, from longitude and latitude')
    """
    if not _are_degrees(lines):
        steps = [np.hypot(*np.diff(line, axis=0).T) for line in lines]
        return np.array([step.sum() for step in steps]), "the unit of the coordinates"
    found = []
    for line in lines:
        longitude, latitude = np.radians(line.T)
        half = np.sin(np.diff(latitude) / 2) ** 2
        half = half + np.cos(latitude[:-1]) * np.cos(latitude[1:]) * np.sin(np.diff(longitude) / 2) ** 2
        found.append(float(np.sum(2.0 * _EARTH_RADIUS * np.arcsin(np.sqrt(np.minimum(half, 1.0))))))
    return np.array(found), "metres, from longitude and latitude"


def cut_at_junctions(lines: Lines) -> tuple[Lines, NDArray[np.int64], NDArray[np.float64]]:
    """Cut lines at inner points that they share with another line: T-junctions, and crossings drawn with a point.

    Returns
    -------
    pieces : list of ndarray (n_points, 2)
        In the order of the lines, and along them.
    line : ndarray of int64, shape (n_pieces,)
        The line of each.
    share : ndarray, shape (n_pieces,)
        Of that line's length.

    Examples
    --------
    >>> road, lane = np.array([[0.0, 0.0], [1.0, 0.0], [4.0, 0.0]]), np.array([[1.0, 0.0], [1.0, 1.0]])
    >>> pieces, line, share = cut_at_junctions([road, lane])
    >>> line.tolist(), share.tolist()
    ([0, 0, 1], [0.25, 0.75, 1.0])
    """
    keys = [[_point_name(point) for point in line] for line in lines]
    met = Counter(key for line in keys for key in set(line))
    pieces: Lines = []
    owner, share = [], []
    for number, (line, names) in enumerate(zip(lines, keys, strict=True)):
        inner = [k for k in range(1, len(line) - 1) if met[names[k]] > 1]
        bounds = [0, *inner, len(line) - 1]
        steps = np.hypot(*np.diff(line, axis=0).T)
        total = float(steps.sum())
        for start, end in pairwise(bounds):
            pieces.append(line[start : end + 1])
            owner.append(number)
            share.append(float(steps[start:end].sum()) / total if total > 0 else 1.0 / (len(bounds) - 1))
    return pieces, np.array(owner, dtype=np.int64), np.array(share)


def _point_name(point: NDArray[np.float64]) -> str:
    """Coordinates in ten digits: points that agree in them are one."""
    x, y = (float(number) + 0.0 for number in point)  # −0 is 0
    return f"{x:.10g} {y:.10g}"


def end_names_and_places(lines: Lines) -> tuple[list[str], list[str], dict[str, tuple[float, float]]]:
    """Names of both ends of every line, made of their coordinates, and where they lie.

    Ends that agree to ten digits are one node.

    Examples
    --------
    >>> end_names_and_places([np.array([[0.5, 1.0], [2.0, 1.0]])])[:2]
    (['0.5 1'], ['2 1'])
    """
    places: dict[str, tuple[float, float]] = {}
    ends: tuple[list[str], list[str]] = ([], [])
    for line in lines:
        for side, point in zip(ends, (line[0], line[-1]), strict=True):
            name = _point_name(point)
            places.setdefault(name, (float(point[0]) + 0.0, float(point[1]) + 0.0))
            side.append(name)
    return *ends, places
