"""Graphs from and to GeoDataFrames."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from graphmatern._validation import FaultList, check_choice
from graphmatern.errors import GraphError, InputError
from graphmatern.io import edge_table, graph_from_lines, node_shapes
from graphmatern.tables import required_library

if TYPE_CHECKING:
    import pandas as pd

    from graphmatern.graph import Graph
    from graphmatern.graph._graph import ParallelRule

__all__ = ["from_geopandas", "to_geopandas"]


def from_geopandas(
    roads: Any,
    *,
    source: str | None = None,
    target: str | None = None,
    weight: str | None = None,
    length: str | None = None,
    id: str | None = None,  # noqa: A002
    parallel: ParallelRule = "sum",
) -> Graph:
    """Make a graph of roads from a GeoDataFrame of lines.

    Lines are joined where their ends coincide, and where one meets another part-way (T-junctions). The graph
    keeps the coordinates as they are: longitudes and latitudes give lengths in metres.

    Parameters
    ----------
    roads : GeoDataFrame or GeoSeries
        LineStrings, or MultiLineStrings, whose parts become lines of their own.
    source, target, weight, length, id : str, optional
        Columns with the names of the ends, weights, lengths and names of the roads; by default guessed from their
        headers.
    parallel : {"sum", "mean_length", "first", "error"}
        What to do with several roads between the same two nodes; see `Graph.from_edges`.

    Returns
    -------
    Graph

    Examples
    --------
    >>> import geopandas, graphmatern as gm, shapely
    >>> lines = [shapely.LineString([(0, 0), (1, 0), (4, 0)]), shapely.LineString([(1, 0), (1, 1)])]
    >>> gm.interop.from_geopandas(geopandas.GeoSeries(lines))
    Graph(4 nodes, 3 edges)
    """
    faults = FaultList("no graph was made", GraphError)
    if not hasattr(roads, "geom_type"):
        remedy = "Graph.from_edges takes other tables."
        raise faults.raise_now("roads", "must be a GeoDataFrame of lines", type(roads).__name__, remedy)
    parts = roads.explode(ignore_index=True)
    kinds = sorted({str(kind) for kind in parts.geom_type} - {"LineString", "LinearRing"})
    if kinds or not len(parts):
        raise faults.raise_now("roads", "must hold lines", ", ".join(kinds) or "nothing", "Select the lines.")
    shapes = parts.geometry
    table = parts.drop(columns=shapes.name) if hasattr(parts, "columns") else None
    columns = {"source": source, "target": target, "weight": weight, "length": length, "id": id}
    return graph_from_lines(list(shapes), table, parallel=parallel, **columns).graph


def to_geopandas(
    graph: Graph, table: pd.DataFrame | None = None, *, of: Literal["edges", "nodes"] = "edges", crs: Any = None
) -> Any:
    """Return a graph, and a table about its nodes, as a GeoDataFrame.

    Parameters
    ----------
    graph : Graph
        A graph with positions, or with geometry.
    table : DataFrame, optional
        One row per node, such as `GraphGPRegressor.predict_table` gives it.
    of : {"edges", "nodes"}
        A line per edge (see `io.edge_table` for how numbers are combined), or a point, or the area, per node.
    crs : optional
        Coordinate system; by default longitudes and latitudes (EPSG:4326) if the coordinates can be those.

    Returns
    -------
    GeoDataFrame

    Examples
    --------
    >>> import graphmatern as gm
    >>> road = gm.Graph.from_edges([("a", "b")], positions={"a": [8.5, 47.4], "b": [8.6, 47.4]})
    >>> gm.interop.to_geopandas(road).geometry.iloc[0].wkt
    'LINESTRING (8.5 47.4, 8.6 47.4)'
    """
    geopandas = required_library("geopandas", "making a GeoDataFrame")
    shapely = required_library("shapely", "making a GeoDataFrame")
    shape = required_library("shapely.geometry", "making a GeoDataFrame").shape
    check_choice("of", of, ("edges", "nodes"), InputError)
    known = table if table is not None else _empty(graph)
    if of == "nodes":
        if graph.positions is None or graph.positions.shape[1] < 2:
            faults = FaultList("no GeoDataFrame was made", GraphError)
            raise faults.raise_now("graph", "must have positions", "a graph without", "Use of='edges'.")
        rows, shapes = known, [shape(one) for one in node_shapes(graph)]
    else:
        rows, shapes = edge_table(known, graph), [shapely.LineString(line) for line in graph.edge_lines()]
    system = "EPSG:4326" if crs is None and graph.is_geographic else crs
    return geopandas.GeoDataFrame(rows.copy(), geometry=shapes, crs=system)


def _empty(graph: Graph) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame(index=graph.nodes)
