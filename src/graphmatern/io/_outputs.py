"""Writing predictions: CSV, TSV, Parquet or GeoJSON, whole or not at all."""

from __future__ import annotations

import json
import shutil
import tempfile
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from graphmatern._validation import FaultList
from graphmatern.errors import InputError
from graphmatern.graph import area_geometry
from graphmatern.io._atomic import replacing
from graphmatern.tables import required_library

if TYPE_CHECKING:
    from graphmatern.graph import Graph

__all__ = ["OUTPUT_SUFFIXES", "check_output", "edge_table", "node_shapes", "write_node_table"]

OUTPUT_SUFFIXES = (".csv", ".tsv", ".parquet", ".geojson", ".gpkg")
_MAPS = (".geojson", ".gpkg")


def check_output(path: str | Path, graph: Graph | None = None) -> str:
    """Return the suffix of a file that `write_node_table` can write; raise before any work is done."""
    file = Path(path)
    suffix = file.suffix.lower()
    faults = FaultList(f"{file.name} was not written", InputError)
    if suffix not in OUTPUT_SUFFIXES:
        rule = f"must end in {', '.join(OUTPUT_SUFFIXES)}"
        raise faults.raise_now("output", rule, repr(file.name), "The ending chooses the format.")
    if suffix == ".parquet":
        required_library("pyarrow", "writing a Parquet file")
    if suffix == ".gpkg":
        required_library("geopandas", "writing a GeoPackage")
    if suffix in _MAPS and graph is not None and (graph.positions is None or graph.positions.shape[1] < 2):
        remedy = "Give a table of nodes with longitude and latitude (--nodes), or write CSV."
        raise faults.raise_now("file", "needs positions of the nodes", "a graph without", remedy)
    return suffix


def write_node_table(table: pd.DataFrame, path: str | Path, graph: Graph, *, lines: bool = False) -> None:
    """Write a table of nodes, or of all edges; its format is chosen by the file's suffix.

    Parameters
    ----------
    table : DataFrame
        One row per node, indexed by node name.
    path : str or Path
        File ending in .csv, .tsv, .parquet, .geojson or .gpkg (the last two need a graph with positions).
    graph : Graph
        The graph.
    lines : bool
        Whether GeoJSON has a line per edge, rather than a point (or the area) per node; see `edge_table`. A
        GeoPackage has a layer of each, "edges" and "nodes".
    """
    suffix = check_output(path, graph)
    named = table.copy()
    index = table.index
    plain = index.dtype.kind in "iu" or suffix == ".csv" or suffix == ".tsv"
    named.insert(0, "node", np.asarray(index) if plain else [str(name) for name in index])
    with replacing(path) as temporary:
        if suffix == ".parquet":
            named.to_parquet(temporary, index=False)
        elif suffix == ".geojson":
            shapes = _lines(graph) if lines else node_shapes(graph, index)
            with temporary.open("w", encoding="utf-8") as file:
                _write_features(edge_table(table, graph) if lines else named, shapes, file)
        elif suffix == ".gpkg":
            _write_geopackage(named, edge_table(table, graph), graph, temporary)
        else:
            named.to_csv(temporary, index=False, sep="\t" if suffix == ".tsv" else ",", lineterminator="\n")


def edge_table(table: pd.DataFrame, graph: Graph) -> pd.DataFrame:
    """A table of the nodes as one of the edges, for maps of lines.

    Parameters
    ----------
    table : DataFrame
        One row per node, in node order.
    graph : Graph
        The graph.

    Returns
    -------
    DataFrame
        Columns edge, source and target, then those of the table: the mean of the numbers at both ends (of standard
        deviations, that is at least the one in the middle of the edge), whether both ends are so, and of other columns
        the entry of the first end.

    Examples
    --------
    >>> import graphmatern as gm, pandas as pd
    >>> road = gm.Graph.from_edges([("a", "b")])
    >>> edge_table(pd.DataFrame({"mean": [1.0, 3.0]}, index=["a", "b"]), road)
       edge source target  mean
    0     0      a      b   2.0
    """
    rows = graph._rows
    names = np.asarray(graph.nodes, dtype=object)
    found: dict[str, Any] = {"edge": rows.identifiers, "source": names[rows.source], "target": names[rows.target]}
    for column in table.columns:
        if column in ("x", "y", "z"):
            continue
        values = table[column].to_numpy()
        first, second = values[rows.source], values[rows.target]
        if values.dtype == bool:
            found[str(column)] = first & second
        else:
            found[str(column)] = 0.5 * (first + second) if values.dtype.kind in "fiu" else first
    return pd.DataFrame(found)


def node_shapes(graph: Graph, names: Any = None) -> list[dict[str, Any]]:
    """GeoJSON geometries of some nodes: their areas where the graph has them, else points."""
    assert graph.positions is not None
    chosen = graph.locate(names)
    areas = graph.areas or [[]] * graph.n_nodes
    return [
        area_geometry(areas[k]) if areas[k] else {"type": "Point", "coordinates": graph.positions[k, :3].tolist()}
        for k in chosen
    ]


def _lines(graph: Graph) -> list[dict[str, Any]]:
    return [{"type": "LineString", "coordinates": line.tolist()} for line in graph.edge_lines()]


def _write_geopackage(nodes: pd.DataFrame, edges: pd.DataFrame, graph: Graph, path: Path) -> None:
    geopandas = required_library("geopandas", "writing a GeoPackage")
    shapes = required_library("shapely.geometry", "writing a GeoPackage").shape
    assert graph.positions is not None
    system = "EPSG:4326" if graph.is_geographic else None
    with tempfile.TemporaryDirectory() as folder:
        whole = Path(folder) / "map.gpkg"  # a name that the format asks for
        _write_layers(whole, nodes, edges, graph, geopandas, shapes, system)
        shutil.copyfile(whole, path)


def _write_layers(
    path: Path, nodes: pd.DataFrame, edges: pd.DataFrame, graph: Graph, geopandas: Any, shapes: Any, system: str | None
) -> None:
    for layer, table, geometry in (("edges", edges, _lines(graph)), ("nodes", nodes, node_shapes(graph))):
        plain = table.rename(columns=str)
        for column in plain.columns:
            if plain[column].dtype == object:
                plain[column] = plain[column].map(str)
        frame = geopandas.GeoDataFrame(plain, geometry=[shapes(one) for one in geometry], crs=system)
        with warnings.catch_warnings():  # a map in a plane of its own has no coordinate system to be told
            warnings.filterwarnings("ignore", "'crs' was not provided", UserWarning)
            frame.to_file(path, layer=layer, driver="GPKG", engine="pyogrio")


def _write_features(table: pd.DataFrame, shapes: list[dict[str, Any]], file: Any) -> None:
    rows = table.astype(object).where(table.notna(), None).to_dict("records")
    file.write('{"type": "FeatureCollection", "features": [\n')
    for number, (shape, row) in enumerate(zip(shapes, rows, strict=True)):
        properties = {str(key): _plain(item) for key, item in row.items()}
        feature = {"type": "Feature", "geometry": shape, "properties": properties}
        file.write(("" if number == 0 else ",\n") + json.dumps(feature, ensure_ascii=False))
    file.write("\n]}\n")


def _plain(item: Any) -> Any:
    """JSON has no infinities."""
    value = item.item() if isinstance(item, np.generic) else item
    return None if isinstance(value, float) and not np.isfinite(value) else value
