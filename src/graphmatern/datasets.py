"""Real data sets, with their sources and licences. They are read from the folder GRAPHMATERN_DATA names."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from graphmatern._validation import check_choice
from graphmatern.errors import DataNotFoundError, GraphError
from graphmatern.graph import Graph

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Dataset", "load_cora", "load_traffic", "load_traffic_mondays", "load_traffic_raw"]

_TRAFFIC = (
    "Speeds in miles per hour at 325 sensors on San Jose's highways, {when}.\n"
    "Source: Caltrans PeMS, through {origin}. Roads: © OpenStreetMap contributors (ODbL)."
)
_PAPER_GRAPH = "github.com/vabor112/pems-regression (Apache-2.0), the graph of the paper's experiment"
_RAW_GRAPH = "github.com/davidbolin/MetricGraph, folder examples/data.pems"
_CORA = (
    "Cora: 2,708 papers on machine learning in 7 topics, joined where one cites the other.\n"
    "Source: LINQS, as redistributed at github.com/spbu-math-cs/Graph-Gaussian-Processes; no licence is stated."
)


@dataclass(frozen=True)
class Dataset:
    """A graph and values at some or all of its nodes.

    Attributes
    ----------
    graph : Graph
        The graph.
    values : Series or DataFrame
        Indexed by node name.
    description : str
        What it is, where it comes from, and under which licence.
    """

    graph: Graph
    values: pd.Series[Any] | pd.DataFrame
    description: str


def _folder(name: str, files: Sequence[str]) -> Path:
    """Return the folder of a data set, or say what is missing and where it should be."""
    root = os.environ.get("GRAPHMATERN_DATA")
    if not root:
        raise DataNotFoundError(
            f"the environment variable GRAPHMATERN_DATA is not set; set it to the folder that holds {name!r} "
            f"with the files {', '.join(files)}"
        )
    folder = Path(root) / name
    missing = [file for file in files if not (folder / file).is_file()]
    if missing:
        raise DataNotFoundError(f"there is no {', no '.join(missing)} in {str(folder)!r} (from GRAPHMATERN_DATA)")
    return folder


def load_traffic(parallel: str = "sum") -> Dataset:
    """Load the paper's traffic graph and the speeds on Monday 2 January 2017, 17:30.

    Parameters
    ----------
    parallel : {"sum", "mean_length", "first"}
        What becomes of the one pair of nodes with two roads; see `Graph.from_edges`.

    Returns
    -------
    Dataset
        1,016 nodes, of which 325 are sensors with a speed; ``values`` keeps the order of the file.
    """
    check_choice("parallel", parallel, ("sum", "mean_length", "first"), GraphError)
    folder = _folder("traffic", ["nodes.csv", "edges.csv", "speeds.csv"])
    speeds = pd.read_csv(folder / "speeds.csv").set_index("node")["speed_mph"].rename("speed_mph")
    description = _TRAFFIC.format(when="Monday 2 January 2017, 17:30", origin=_PAPER_GRAPH)
    return Dataset(_traffic_graph(folder, parallel), speeds, description)


def _traffic_graph(folder: Path, parallel: str) -> Graph:
    nodes = pd.read_csv(folder / "nodes.csv").set_index("node")
    edges = pd.read_csv(folder / "edges.csv")
    return _quietly_from_edges(
        edges,
        length="length_m",
        nodes=nodes.index,
        positions=nodes[["longitude", "latitude"]],
        parallel=parallel,
    )


def _quietly_from_edges(edges: pd.DataFrame, **options: Any) -> Graph:
    """Make a graph whose parallel edges are known and described, so that no warning is due."""
    from graphmatern.graph._build import parts_from_edges

    return Graph._from_parts(parts_from_edges(edges, **options, warn_parallel=False))


def load_traffic_mondays() -> Dataset:
    """Load the paper's traffic graph and the speeds at 17:30 on 26 Mondays of 2017.

    Returns
    -------
    Dataset
        ``values`` has one row per sensor (node) and one column per time.
    """
    folder = _folder("traffic", ["nodes.csv", "edges.csv", "speeds_mondays.csv"])
    long = pd.read_csv(folder / "speeds_mondays.csv", parse_dates=["time"])
    order = long["node"].unique()
    table = long.pivot(index="node", columns="time", values="speed_mph").loc[order]
    description = _TRAFFIC.format(when="26 Mondays of 2017, 17:30", origin=_PAPER_GRAPH)
    return Dataset(_traffic_graph(folder, "sum"), table, description)


def load_traffic_raw() -> Dataset:
    """Load the roads before the sensors were inserted, and where the sensors are.

    Returns
    -------
    Dataset
        The graph has 691 intersections and 848 roads with geometry; ``values`` is the table of sensors:
        road, distance from the road's source in metres, longitude, latitude.

    Examples
    --------
    The paper's graph is made by inserting the sensors (lengths differ by up to 24 m: another map projection)::

        data = load_traffic_raw()
        graph = data.graph.subdivide(
            data.values, edge="road", distance="distance_m", position=("longitude", "latitude")
        )
    """
    folder = _folder("traffic_raw", ["intersections.csv", "roads.csv", "sensors.csv"])
    nodes = pd.read_csv(folder / "intersections.csv").set_index("node")
    graph = _quietly_from_edges(
        pd.read_csv(folder / "roads.csv"),
        length="length_m",
        id="road",
        geometry="geometry",
        nodes=nodes.index,
        positions=nodes[["longitude", "latitude"]],
    )
    sensors = pd.read_csv(folder / "sensors.csv").set_index("sensor")
    return Dataset(graph, sensors, _TRAFFIC.format(when="which are not included here", origin=_RAW_GRAPH))


def load_cora(*, largest_component: bool = True) -> Dataset:
    """Load the Cora citation network and the topics of its papers.

    Parameters
    ----------
    largest_component : bool
        Whether to keep only the largest connected component, as the paper does.

    Returns
    -------
    Dataset
        Nodes in ascending paper number: 2,485 in the largest component, 2,708 in all.
    """
    folder = _folder("cora", ["citations.csv", "topics.csv"])
    topics = pd.read_csv(folder / "topics.csv").set_index("paper")["topic"].sort_index()
    citations = pd.read_csv(folder / "citations.csv")
    citations = citations[citations["cited"] != citations["citing"]]
    graph = Graph.from_edges(citations, source="cited", target="citing", nodes=np.asarray(topics.index))
    if largest_component:
        graph = graph.largest_component()
    return Dataset(graph, topics.loc[graph.nodes], _CORA)
