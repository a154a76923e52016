"""Roads as lines: GeoJSON and WKT files, whose line ends are the nodes where no names are given."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from graphmatern._validation import FaultList, abbreviate
from graphmatern.graph._geometry import parse_line

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    Lines = list[NDArray[np.float64]]

__all__ = ["end_names_and_places", "line_lengths", "parse_lines", "read_geojson", "read_wkt"]

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


def read_geojson(path: Path, faults: FaultList) -> tuple[Lines, pd.DataFrame]:
    """Read the lines of a GeoJSON file and the table of their properties.

    Every part of a MultiLineString is a line of its own; geometries of other types are left out.

    Returns
    -------
    lines : list of ndarray (n_points, 2)
    properties : DataFrame
        One row per line; ``id`` is the feature's where it has one.
    """
    text = _read_text(path, faults)
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise faults.raise_now("file", "must be GeoJSON", str(error)[:120], "Check where it breaks off.") from None
    features = content.get("features") if isinstance(content, dict) else None
    if not isinstance(features, list):
        received = f"a {type(content).__name__} without features"
        raise faults.raise_now("file", "must be a GeoJSON FeatureCollection", received, "Export it as features.")
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
        raise faults.raise_now("file", "must hold LineStrings", received, "Give the roads as lines.")
    lines = parse_lines(drawn, faults)
    table = pd.DataFrame(rows, index=range(len(rows)))
    if "id" in table and table["id"].astype(str).duplicated().any():
        table = table.drop(columns="id")
    return lines, table


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
            x, y = (float(number) + 0.0 for number in point)  # −0 is 0
            name = f"{x:.10g} {y:.10g}"
            places.setdefault(name, (x, y))
            side.append(name)
    return *ends, places
