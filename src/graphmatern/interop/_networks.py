"""Graphs from and to other libraries' objects: OSMnx, PyTorch Geometric."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from graphmatern._validation import FaultList, abbreviate
from graphmatern.errors import GraphError, TableError
from graphmatern.graph import Graph

if TYPE_CHECKING:
    from collections.abc import Hashable

    import networkx as nx
    import pandas as pd

    from graphmatern.graph._graph import ParallelRule

__all__ = ["from_osmnx", "to_pyg"]


def from_osmnx(streets: nx.MultiDiGraph[Any], *, parallel: ParallelRule = "sum") -> Graph:
    """Make a graph from a street network of OSMnx, with its lengths, positions and geometry.

    OSMnx represents a two-way street by two edges; here it is one. To put predictions back, use
    ``networkx.set_node_attributes(streets, table.to_dict("index"))`` with a table indexed by node, such as that of
    `GraphGPRegressor.predict_table`.

    Parameters
    ----------
    streets : networkx.MultiDiGraph or networkx.MultiGraph
        As returned by ``osmnx.graph_from_place`` and its relatives: nodes with "x" and "y", edges with "length" and,
        if they are not straight, "geometry".
    parallel : {"sum", "mean_length", "first", "error"}
        What to do with different streets between the same two junctions; see `Graph.from_edges`.

    Returns
    -------
    Graph
        Nodes are named as in ``streets``; weights follow from the lengths.

    Examples
    --------
    >>> import graphmatern as gm, networkx as nx
    >>> streets = nx.MultiDiGraph(crs="epsg:4326")
    >>> streets.add_node(11, x=8.50, y=47.40)
    >>> streets.add_node(12, x=8.51, y=47.40)
    >>> for u, v in [(11, 12), (12, 11)]:
    ...     _ = streets.add_edge(u, v, osmid=7, length=753.0, reversed=u > v)
    >>> gm.interop.from_osmnx(streets).edges[["source", "target", "length"]]
       source  target  length
    0      11      12   753.0
    """
    faults = FaultList("no graph was made", GraphError)
    if not hasattr(streets, "is_multigraph"):
        remedy = "Pass what osmnx.graph_from_place returns."
        raise faults.raise_now("streets", "must be a networkx MultiDiGraph", f"a {type(streets).__name__}", remedy)
    lacking = [node for node, data in streets.nodes(data=True) if "x" not in data or "y" not in data]
    if lacking:
        faults.add(
            "streets", "must have 'x' and 'y' at every node", f"nodes without: {abbreviate(lacking)}", "Add them."
        )
    bare = [(u, v) for u, v, data in streets.edges(data=True) if "length" not in data]
    if bare:
        remedy = "Add them: osmnx.distance.add_edge_lengths."
        faults.add("streets", "must have 'length' at every edge", f"edges without: {abbreviate(bare)}", remedy)
    faults.raise_if_any()
    # Positions in the graph, since node names need not be ordered.
    rank = {node: place for place, node in enumerate(streets.nodes)}
    seen: dict[Hashable, tuple[Any, Any, Any]] = {}
    for u, v, data in streets.edges(data=True):
        seen.setdefault(_street(rank[u], rank[v], data), (u, v, data))
    rows = list(seen.values())
    return Graph.from_edges(
        [(u, v) for u, v, _ in rows],
        length=[data["length"] for *_, data in rows],
        id=list(range(len(rows))),
        geometry=[data.get("geometry") for *_, data in rows],
        nodes=list(streets.nodes),
        positions=[(data["x"], data["y"]) for _, data in streets.nodes(data=True)],
        parallel=parallel,
    )


def _street(u: int, v: int, data: dict[str, Any]) -> Hashable:
    """What the two directions of one street have in common."""
    line = data.get("geometry")
    points = None if line is None else tuple(map(tuple, np.round(np.array(line.coords)[:, :2], 9).tolist()))
    if points is not None:
        points = min(points, points[::-1])
    names = data.get("osmid")
    ways = tuple(sorted(map(str, names))) if isinstance(names, list) else str(names)
    return min(u, v), max(u, v), ways, points, None if points is not None else round(float(data["length"]), 6)


def to_pyg(graph: Graph, attributes: pd.DataFrame | None = None) -> Any:
    """Make a PyTorch Geometric graph; `Graph.from_pyg` converts back.

    Parameters
    ----------
    graph : Graph
        The graph.
    attributes : DataFrame, optional
        Values to attach, indexed by node name, such as predictions; numeric columns become tensors of shape
        (n_nodes,), NaN where a node is missing.

    Returns
    -------
    torch_geometric.data.Data
        With ``edge_index`` (each edge in both directions), ``edge_weight``, ``num_nodes``, ``node_names``, ``pos``
        where positions are known, and one tensor per column of ``attributes``.

    Examples
    --------
    >>> import graphmatern as gm
    >>> graph = gm.make_roads(50, seed=0)
    >>> data = gm.interop.to_pyg(graph)
    >>> again = gm.Graph.from_pyg(data, nodes=data.node_names)
    >>> abs(again.weights - graph.weights).max()
    np.float64(0.0)
    """
    try:
        from torch_geometric.data import Data
    except ImportError as error:
        raise ImportError(
            "PyTorch Geometric is not installed: pip install 'graphmatern[pyg]', or torch-geometric"
        ) from error
    weights = graph.weights.tocoo()
    data = Data(
        edge_index=torch.as_tensor(np.stack([weights.row, weights.col]).astype(np.int64)),
        edge_weight=torch.tensor(weights.data),
        num_nodes=graph.n_nodes,
    )
    data.node_names = list(graph.nodes)
    if graph.positions is not None:
        data.pos = torch.tensor(graph.positions)
    if attributes is not None:
        for name, values in _node_columns(graph, attributes).items():
            data[name] = torch.as_tensor(values)
    return data


def _node_columns(graph: Graph, attributes: pd.DataFrame) -> dict[str, np.ndarray[Any, Any]]:
    """Numeric columns in the order of the nodes."""
    faults = FaultList("no PyTorch Geometric graph was made", TableError)
    places = graph.locate(attributes.index)
    columns = {}
    for name in attributes:
        column = attributes[name]
        if column.dtype.kind not in "buif":
            faults.add(
                "attributes",
                "must have numeric columns",
                f"{name!r} of type {column.dtype}",
                "Drop or encode this column.",
            )
            continue
        values = np.full(graph.n_nodes, np.nan)
        values[places] = column.to_numpy(dtype=np.float64)
        columns[str(name)] = values
    taken = {"edge_index", "edge_weight", "num_nodes", "node_names", "pos"} & set(columns)
    if taken:
        faults.add("attributes", "must not use the names of the graph's own tensors", abbreviate(taken), "Rename them.")
    faults.raise_if_any()
    return columns
