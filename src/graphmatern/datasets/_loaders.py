"""The data sets: from the folder GRAPHMATERN_DATA names, else downloaded and converted."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy.sparse import csr_array

from graphmatern._validation import FaultList, check_choice
from graphmatern.datasets._convert import cora_tables, monday_speeds, road_tables
from graphmatern.datasets._remote import fetch
from graphmatern.errors import DataNotFoundError, GraphError
from graphmatern.graph import Graph

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = [
    "Dataset",
    "how_to_use_a_copy",
    "load_cora",
    "load_traffic",
    "load_traffic_mondays",
    "load_traffic_raw",
    "local_folder",
]

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
_CORA_PUBLIC = (
    "Cora: 2,708 papers on machine learning in 7 topics, joined where one cites the other, with the public split into\n"
    "140 papers for training, 500 for validation and 1,000 for tests.\n"
    "Source: LINQS, as redistributed at github.com/kimiyoung/planetoid; no licence is stated."
)
_PAPER_HOUR = pd.Timestamp("2017-01-02 17:30")
_ROAD_FILES = ("V.csv", "E.csv", "PtE.csv", "Y.csv", "lines.shp")


@dataclass(frozen=True)
class Dataset:
    """A graph and values at some or all of its nodes.

    Attributes
    ----------
    graph : Graph
        The graph.
    values : Series or DataFrame
        Indexed by node name.
    features : csr_array, shape (n_nodes, n_features), optional
        What else is known at the nodes, in the order of the graph's.
    description : str
        What it is, where it comes from, and under which licence.
    """

    graph: Graph
    values: pd.Series[Any] | pd.DataFrame
    description: str
    features: csr_array[Any] | None = None


def local_folder(name: str, files: Sequence[str]) -> Path | None:
    """Return the local folder of a data set, None where there is no copy; one that lacks files is an error."""
    root = os.environ.get("GRAPHMATERN_DATA")
    folder = Path(root or "") / name
    if not root or not folder.is_dir():
        return None
    missing = [file for file in files if not (folder / file).is_file()]
    if missing:
        raise DataNotFoundError(
            f"there is no {', no '.join(missing)} in {str(folder)!r} (from GRAPHMATERN_DATA); "
            "complete the folder, or remove it to have the data downloaded"
        )
    return folder


def how_to_use_a_copy(name: str, files: Sequence[str]) -> str:
    return (
        f"To use a copy, put {', '.join(files)} into a folder {name!r}, and set the environment variable "
        "GRAPHMATERN_DATA to the folder above it."
    )


_PAPER_FILES = ("nodes.csv", "edges.csv", "speeds.csv")
_MONDAY_FILES = ("nodes.csv", "edges.csv", "speeds_mondays.csv")
_RAW_FILES = ("intersections.csv", "roads.csv", "sensors.csv")
_CORA_FILES = ("citations.csv", "topics.csv")
_PUBLIC_FILES = ("nodes.csv", "edges.csv", "words.csv")
_N_WORDS = 1433


def load_traffic(parallel: str = "sum", *, geometry: bool = False) -> Dataset:
    """Load the paper's traffic graph and the speeds on Monday 2 January 2017, 17:30.

    Parameters
    ----------
    parallel : {"sum", "mean_length", "first"}
        What becomes of the one pair of nodes with two roads; see `Graph.from_edges`.
    geometry : bool
        Whether to build the graph from the raw roads, so that edges can be drawn as they run. This is also what
        happens where there is no local copy of the paper's own graph: segment lengths differ by up to 24 m from the
        paper's (another map projection), and sensors are named by their number.

    Returns
    -------
    Dataset
        1,016 nodes, of which 325 are sensors with a speed; ``values`` keeps the order of the file.
    """
    check_choice("parallel", parallel, ("sum", "mean_length", "first"), GraphError)
    folder = local_folder("traffic", _PAPER_FILES)
    when = "Monday 2 January 2017, 17:30"
    if folder is not None and not geometry:
        speeds = pd.read_csv(folder / "speeds.csv").set_index("node")["speed_mph"]
        return Dataset(_paper_graph(folder, parallel), speeds, _TRAFFIC.format(when=when, origin=_PAPER_GRAPH))
    if folder is not None:
        speeds = pd.read_csv(folder / "speeds.csv").set_index("sensor")["speed_mph"].rename_axis("node")
    else:
        speeds = _remote_mondays("traffic", _PAPER_FILES)[_PAPER_HOUR].rename("speed_mph")
    return Dataset(_subdivided_graph(parallel), speeds, _TRAFFIC.format(when=when, origin=_RAW_GRAPH))


def _remote_mondays(name: str, files: Sequence[str]) -> pd.DataFrame:
    # The roads are needed as well: where there is no connection, one message names all files.
    wanted = (
        ["Y.csv"] if local_folder("traffic_raw", _RAW_FILES) else ["Y.csv", *(f for f in _ROAD_FILES if f != "Y.csv")]
    )
    return monday_speeds(fetch(wanted, how_to_use_a_copy(name, files))[0])


def _paper_graph(folder: Path, parallel: str) -> Graph:
    nodes = pd.read_csv(folder / "nodes.csv").set_index("node")
    edges = pd.read_csv(folder / "edges.csv")
    return _quietly_from_edges(
        edges,
        length="length_m",
        nodes=nodes.index,
        positions=nodes[["longitude", "latitude"]],
        parallel=parallel,
    )


def _subdivided_graph(parallel: str) -> Graph:
    """Insert the sensors into the raw roads."""
    roads, sensors = _raw_roads(parallel)
    return roads.subdivide(sensors, edge="road", distance="distance_m", position=("longitude", "latitude"))


def _quietly_from_edges(edges: pd.DataFrame, **options: Any) -> Graph:
    """Make a graph whose parallel edges are known and described, so that no warning is due."""
    from graphmatern.graph._build import parts_from_edges

    return Graph._from_parts(parts_from_edges(edges, **options, warn_parallel=False))


def load_traffic_mondays() -> Dataset:
    """Load the paper's traffic graph and the speeds at 17:30 on 26 Mondays of 2017.

    Returns
    -------
    Dataset
        ``values`` has one row per sensor (node) and one column per time. Without a local copy the graph is built from
        the raw roads, see `load_traffic`.
    """
    folder = local_folder("traffic", _MONDAY_FILES)
    when = "26 Mondays of 2017, 17:30"
    if folder is None:
        table = _remote_mondays("traffic", _MONDAY_FILES)
        return Dataset(_subdivided_graph("sum"), table, _TRAFFIC.format(when=when, origin=_RAW_GRAPH))
    long = pd.read_csv(folder / "speeds_mondays.csv", parse_dates=["time"])
    order = long["node"].unique()
    table = long.pivot(index="node", columns="time", values="speed_mph").loc[order]
    return Dataset(_paper_graph(folder, "sum"), table, _TRAFFIC.format(when=when, origin=_PAPER_GRAPH))


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
    graph, sensors = _raw_roads("sum")
    return Dataset(graph, sensors, _TRAFFIC.format(when="which are not included here", origin=_RAW_GRAPH))


def _raw_roads(parallel: str) -> tuple[Graph, pd.DataFrame]:
    folder = local_folder("traffic_raw", _RAW_FILES)
    if folder is None:
        files = fetch(_ROAD_FILES, how_to_use_a_copy("traffic_raw", _RAW_FILES))
        nodes, roads, sensors = road_tables(*files)
    else:
        nodes = pd.read_csv(folder / "intersections.csv").set_index("node")
        roads = pd.read_csv(folder / "roads.csv")
        sensors = pd.read_csv(folder / "sensors.csv").set_index("sensor")
    graph = _quietly_from_edges(
        roads,
        length="length_m",
        id="road",
        geometry="geometry",
        nodes=nodes.index,
        positions=nodes[["longitude", "latitude"]],
        parallel=parallel,
    )
    return graph, sensors


def load_cora(*, largest_component: bool | None = None, split: str | None = None, words: bool = False) -> Dataset:
    """Load the Cora citation network and the topics of its papers.

    Parameters
    ----------
    largest_component : bool, optional
        Whether to keep only the largest connected component: by default, as the paper does, unless there is a split.
    split : {"public"}, optional
        The split that most papers on node classification use, in a numbering of its own: ``values`` is then a table of
        topic and split ("train", "validation", "test", or missing). It needs a local copy.
    words : bool
        Whether to load which of 1,433 words each paper contains, for ``features``; with the public split only.

    Returns
    -------
    Dataset
        Nodes in ascending paper number: 2,485 in the largest component, 2,708 in all.

    Examples
    --------
    Classification with words, all choices left to the evidence::

        cora = datasets.load_cora(split="public", words=True)
        topics = cora.values["topic"].where(cora.values["split"] == "train")
        model = gm.GraphGPClassifier(cora.graph, features=cora.features).fit(topics.dropna())
    """
    if split is not None:
        check_choice("split", split, ("public",), GraphError)
        return _public_cora(bool(largest_component), words)
    if words:
        faults = FaultList("nothing was loaded", GraphError)
        raise faults.raise_now("words", "must be False without a split", "True", "Use split='public'.")
    largest_component = True if largest_component is None else largest_component
    folder = local_folder("cora", _CORA_FILES)
    if folder is None:
        citations, topics = cora_tables(fetch(["cora.zip"], how_to_use_a_copy("cora", _CORA_FILES))[0])
    else:
        topics = pd.read_csv(folder / "topics.csv").set_index("paper")["topic"]
        citations = pd.read_csv(folder / "citations.csv")
    topics = topics.sort_index()
    citations = citations[citations["cited"] != citations["citing"]]
    graph = Graph.from_edges(citations, source="cited", target="citing", nodes=np.asarray(topics.index))
    if largest_component:
        graph = graph.largest_component()
    return Dataset(graph, topics.loc[graph.nodes], _CORA)


def _public_cora(largest_component: bool, words: bool) -> Dataset:
    """Cora with the public split, from a local copy: what is published of it are files that execute code when read."""
    folder = local_folder("cora_public", _PUBLIC_FILES)
    if folder is None:
        raise DataNotFoundError(
            "Cora's public split is not downloaded, as it is published as Python pickles only, which may execute "
            f"anything. {how_to_use_a_copy('cora_public', _PUBLIC_FILES)}"
        )
    table = pd.read_csv(folder / "nodes.csv").set_index("node").sort_index()
    edges = pd.read_csv(folder / "edges.csv")
    graph = Graph.from_edges(edges, source="source", target="target", nodes=np.asarray(table.index))
    features = None
    if words:
        pairs = pd.read_csv(folder / "words.csv")
        places = graph.locate(pairs["node"].to_numpy()), pairs["word"].to_numpy()
        features = csr_array((np.ones(len(pairs)), places), shape=(graph.n_nodes, _N_WORDS))
    if largest_component:
        whole, graph = graph, graph.largest_component()
        table = table.loc[graph.nodes]
        features = None if features is None else csr_array(features[whole.locate(graph.nodes)])
    return Dataset(graph, table, _CORA_PUBLIC, features)
