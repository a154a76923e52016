"""Writing predictions: CSV, TSV, Parquet or GeoJSON, whole or not at all."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from graphmatern._validation import FaultList
from graphmatern.errors import InputError
from graphmatern.io._atomic import replacing
from graphmatern.tables import required_library

if TYPE_CHECKING:
    import pandas as pd

    from graphmatern.graph import Graph

__all__ = ["OUTPUT_SUFFIXES", "check_output", "write_node_table"]

OUTPUT_SUFFIXES = (".csv", ".tsv", ".parquet", ".geojson")


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
    if suffix == ".geojson" and graph is not None and (graph.positions is None or graph.positions.shape[1] < 2):
        remedy = "Give a table of nodes with longitude and latitude (--nodes), or write CSV."
        raise faults.raise_now("file", "needs positions of the nodes", "a graph without", remedy)
    return suffix


def write_node_table(table: pd.DataFrame, path: str | Path, graph: Graph) -> None:
    """Write a table of nodes; its format is chosen by the file's suffix.

    Parameters
    ----------
    table : DataFrame
        One row per node, indexed by node name.
    path : str or Path
        File ending in .csv, .tsv, .parquet or .geojson (a point per node; the graph must have positions).
    graph : Graph
        The graph.
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
            with temporary.open("w", encoding="utf-8") as file:
                _write_points(named, index, graph, file)
        else:
            named.to_csv(temporary, index=False, sep="\t" if suffix == ".tsv" else ",", lineterminator="\n")


def _write_points(table: pd.DataFrame, names: pd.Index[Any], graph: Graph, file: Any) -> None:
    assert graph.positions is not None
    places = graph.positions[graph.locate(names), :3].tolist()
    rows = table.astype(object).where(table.notna(), None).to_dict("records")
    file.write('{"type": "FeatureCollection", "features": [\n')
    for number, (place, row) in enumerate(zip(places, rows, strict=True)):
        properties = {str(key): _plain(item) for key, item in row.items()}
        feature = {"type": "Feature", "geometry": {"type": "Point", "coordinates": place}, "properties": properties}
        file.write(("" if number == 0 else ",\n") + json.dumps(feature, ensure_ascii=False))
    file.write("\n]}\n")


def _plain(item: Any) -> Any:
    """JSON has no infinities."""
    value = item.item() if isinstance(item, np.generic) else item
    return None if isinstance(value, float) and not np.isfinite(value) else value
