"""From the sources' own files to plain tables. Only text, zip archives of text and shapefiles are read."""

from __future__ import annotations

import io
import zipfile
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from graphmatern.errors import DataNotFoundError
from graphmatern.graph._geometry import point_along

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

__all__ = ["cora_tables", "monday_speeds", "road_tables"]


def road_tables(
    vertices: Path, edges: Path, points: Path, speeds: Path, lines: Path
) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Tables of intersections, roads and sensors.

    Parameters
    ----------
    vertices : Path
        Columns id, x, y.
    edges : Path
        Columns id, V1, V2, length in metres.
    points : Path
        Per sensor: E, the row of its road counted from 0, and length, metres along the road's geometry.
    speeds : Path
        Its header names the sensors, in the order of ``points``.
    lines : Path
        Shapefile, one polyline per row of ``edges``. It may run from V2 to V1.

    Returns
    -------
    intersections : DataFrame
        Indexed by node: longitude, latitude.
    roads : DataFrame
        road, source, target, length_m, geometry (arrays, from source to target).
    sensors : DataFrame
        Indexed by sensor: road, distance_m from the road's source, longitude, latitude (on the road).
    """
    intersections = pd.read_csv(vertices).set_index("id")[["x", "y"]]
    intersections = intersections.rename_axis("node").rename(columns={"x": "longitude", "y": "latitude"})
    table = pd.read_csv(edges)
    geometry = _polylines(lines)
    if len(geometry) != len(table):
        raise DataNotFoundError(f"{lines.name} has {len(geometry)} lines for the {len(table)} roads of {edges.name}")
    source, target = table["V1"].to_numpy(), table["V2"].to_numpy()
    # Distances are measured along the geometry, so the road starts where the geometry does.
    begins = np.array([line[0] for line in geometry])
    to_first, to_second = (
        np.hypot(*(begins - intersections.loc[ends].to_numpy()).T) for ends in (table["V1"], table["V2"])
    )
    turned = to_second < to_first
    roads = pd.DataFrame(
        {
            "road": np.arange(len(table)),
            "source": np.where(turned, target, source),
            "target": np.where(turned, source, target),
            "length_m": table["length"],
            "geometry": geometry,
        }
    )
    sensors = pd.read_csv(points).rename(columns={"E": "road", "length": "distance_m"})
    names = pd.read_csv(speeds, nrows=0, index_col=0).columns.astype(np.int64)
    sensors.index = pd.Index(names, name="sensor")
    share = sensors["distance_m"].to_numpy() / roads["length_m"].to_numpy()[sensors["road"]]
    places = np.array(
        [point_along(geometry[road], np.array([s]))[0] for road, s in zip(sensors["road"], share, strict=True)]
    )
    return intersections, roads, sensors.assign(longitude=places[:, 0], latitude=places[:, 1])


def _polylines(path: Path) -> list[NDArray[np.float64]]:
    """Coordinates of every polyline of a shapefile."""
    try:
        import shapefile
    except ImportError:
        raise DataNotFoundError(
            "reading the geometry of the roads needs pyshp: install `graphmatern[io]`, or set GRAPHMATERN_DATA"
        ) from None
    with shapefile.Reader(shp=io.BytesIO(path.read_bytes())) as reader:
        return [np.array(shape.points, dtype=np.float64)[:, :2] for shape in reader.iterShapes()]


def monday_speeds(path: Path) -> pd.DataFrame:
    """Speeds in miles per hour: one row per sensor, one column per time."""
    table = pd.read_csv(path, index_col=0, parse_dates=[0]).T
    table.index = pd.Index(table.index.astype(np.int64), name="node")
    table.columns.name = "time"
    return table


def cora_tables(archive: Path) -> tuple[pd.DataFrame, pd.Series[Any]]:
    """Citations (cited, citing) and topics by paper, from the archive's two text files; the word flags are left."""
    with zipfile.ZipFile(archive) as files:
        names = {name.rpartition("/")[2]: name for name in files.namelist()}
        missing = [name for name in ("cora.cites", "cora.content") if name not in names]
        if missing:
            raise DataNotFoundError(f"there is no {', no '.join(missing)} in {archive.name}")
        with files.open(names["cora.cites"]) as stream:
            citations = pd.read_csv(stream, sep="\t", header=None, names=["cited", "citing"])
        with files.open(names["cora.content"]) as stream:
            rows = [line.split("\t") for line in stream.read().decode().splitlines()]
    papers = pd.Index([int(row[0]) for row in rows], name="paper")
    return citations, pd.Series([row[-1] for row in rows], index=papers, name="topic")
