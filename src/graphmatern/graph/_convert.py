"""Graphs from and to the objects of networkx and PyTorch Geometric."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from graphmatern._validation import FaultList, abbreviate, as_numbers, warn
from graphmatern.errors import EdgeWarning, GraphError, TableError
from graphmatern.graph import _build

if TYPE_CHECKING:
    import networkx as nx
    import pandas as pd

    from graphmatern.graph._edge_rows import EdgeRows
    from graphmatern.graph._parts import GraphParts

__all__ = ["parts_from_networkx", "parts_from_pyg", "to_networkx"]


def _edge_attribute(edges: list[Any], attribute: str | None, faults: FaultList, *, optional: bool) -> list[Any] | None:
    """Values of an edge attribute; None where no edge has it and it is optional."""
    if attribute is None:
        return None
    values = [data.get(attribute) for *_, data in edges]
    missing = [ends for (*ends, _), value in zip(edges, values, strict=True) if value is None]
    if len(missing) == len(values) and optional:
        return None
    if missing:
        rule = f"must have the attribute {attribute!r} at every edge"
        faults.add("graph", rule, f"edges without it: {abbreviate(missing)}", "Add it, or pass another name or None.")
    return values


def _node_positions(graph: nx.Graph[Any], position: str | tuple[str, ...] | None, faults: FaultList) -> Any:
    """Coordinates from node attributes, in the order of the nodes."""
    attributes = [data for _, data in graph.nodes(data=True)]
    if position is None:
        complete = {name for name in ("pos", "x", "y") if attributes and all(name in data for data in attributes)}
        position = "pos" if "pos" in complete else ("x", "y")
        if not complete.issuperset([position] if position == "pos" else position):
            return None
    names: tuple[str, ...] = (position,) if isinstance(position, str) else position
    lacking = [node for node, data in graph.nodes(data=True) if any(name not in data for name in names)]
    if lacking:
        faults.add(
            "position",
            f"must be attributes of every node ({names})",
            f"nodes without: {abbreviate(lacking)}",
            "Add them.",
        )
        return None
    if isinstance(position, str):
        return [tuple(data[position]) for data in attributes]
    return [tuple(data[name] for name in names) for data in attributes]


def parts_from_networkx(
    graph: nx.Graph[Any],
    *,
    weight: str | None,
    length: str | None,
    geometry: str | None,
    position: str | tuple[str, ...] | None,
    masses: Any,
    parallel: str,
) -> GraphParts:
    """Parts of a networkx graph; see `Graph.from_networkx`."""
    faults = FaultList("no graph was made", GraphError)
    if not hasattr(graph, "is_directed"):
        received = f"a {type(graph).__name__}"
        raise faults.raise_now("graph", "must be a networkx Graph or MultiGraph", received, "Use another constructor.")
    if graph.is_directed():
        remedy = "Call its `to_undirected()` first; for streets of OSMnx, use `graphmatern.interop.from_osmnx`."
        raise faults.raise_now("graph", "must be undirected", f"a {type(graph).__name__}", remedy)
    edges = list(graph.edges(data=True))
    lengths = _edge_attribute(edges, length, faults, optional=False)
    weights = None if length is not None else _edge_attribute(edges, weight, faults, optional=weight == "weight")
    beside = length is None and weights is not None and parallel != "mean_length" and _all_have_lengths(edges)
    if beside:
        lengths = [data["length"] for *_, data in edges]
    elif length is None and weight is not None and any("length" in data for *_, data in edges):
        used = "all weights are 1" if weights is None else f"{weight!r} is"
        hint = "to use it, or weight=None for weights of 1" if weights is None else "to use it instead"
        warn(f"edges have the attribute 'length', which is not used: {used}; pass length='length' {hint}", EdgeWarning)
    places = _node_positions(graph, position, faults)
    faults.raise_if_any()
    lines = None if geometry is None else [data.get(geometry) for *_, data in edges]
    return _build.parts_from_edges(
        [(first, second) for first, second, _ in edges],
        source=None,
        target=None,
        weight=weights,
        length=lengths,
        id=None,
        geometry=lines,
        nodes=list(graph.nodes),
        positions=places,
        masses=masses,
        parallel=parallel,
        keep_lengths=beside,
    )


def _all_have_lengths(edges: list[Any]) -> bool:
    """Whether the attribute "length" of every edge is a positive number."""
    lengths = as_numbers([data.get("length", np.nan) for *_, data in edges], "length", FaultList(""))
    return len(lengths) > 0 and bool((np.isfinite(lengths) & (lengths > 0)).all())


def _as_numpy(tensor: Any) -> np.ndarray[Any, Any] | None:
    """Return a tensor of any device as an array, without importing torch."""
    if tensor is None:
        return None
    return np.asarray(tensor.detach().cpu().numpy() if hasattr(tensor, "detach") else tensor)


def parts_from_pyg(data: Any, *, weight: str | None, nodes: Any) -> GraphParts:
    """Parts of a PyTorch Geometric graph; see `Graph.from_pyg`."""
    faults = FaultList("no graph was made", GraphError)
    pairs = _as_numpy(getattr(data, "edge_index", None))
    if pairs is None or pairs.ndim != 2 or pairs.shape[0] != 2:
        received = "none" if pairs is None else f"shape {pairs.shape}"
        raise faults.raise_now("data.edge_index", "must have shape (2, n_edges)", received, "Check the object.")
    attribute = weight or "edge_weight"
    given = _as_numpy(getattr(data, attribute, None))
    if weight is not None and given is None:
        faults.add("weight", "must be an attribute of `data`", repr(weight), "Name another, or leave it out.")
    values = np.ones(pairs.shape[1]) if given is None else as_numbers(given, attribute, faults).ravel()
    n_nodes = int(getattr(data, "num_nodes", None) or (pairs.max(initial=-1) + 1))
    if pairs.size and (pairs.min() < 0 or pairs.max() >= n_nodes):
        faults.add(
            "data.edge_index",
            f"must lie in 0..{n_nodes - 1}",
            f"{pairs.min()}..{pairs.max()}",
            "Check num_nodes.",
        )
    if len(values) != pairs.shape[1]:
        faults.add(
            attribute,
            f"must have one entry per edge ({pairs.shape[1]})",
            f"{len(values)}",
            "Check the object.",
        )
    faults.raise_if_any()
    matrix = sp.coo_array((values.astype(np.float64), (pairs[0], pairs[1])), shape=(n_nodes, n_nodes)).tocsr()
    if given is None:
        matrix.data[:] = 1.0
    if given is None:
        matrix = sp.csr_array(matrix.maximum(matrix.T))
    elif (matrix.multiply(matrix.T) - sp.diags_array(matrix.diagonal() ** 2)).count_nonzero() == 0:
        # No edge stands in both directions.
        matrix = sp.csr_array(matrix + matrix.T)
    return _build.parts_from_adjacency(
        matrix, nodes=nodes, positions=_as_numpy(getattr(data, "pos", None)), masses=None
    )


def to_networkx(parts: GraphParts, rows: EdgeRows, attributes: pd.DataFrame | None) -> nx.Graph[Any]:
    """Make a networkx graph; see `Graph.to_networkx`."""
    import networkx as nx

    index = parts.names.index
    n_nodes = len(index)
    if rows.weighting == "unit":  # repeats of unweighted edges count once
        rows = rows.take(np.unique(rows.pair_keys(n_nodes), return_index=True)[1])
    has_parallel = len(np.unique(rows.pair_keys(n_nodes))) < len(rows)
    graph: nx.Graph[Any] = nx.MultiGraph() if has_parallel else nx.Graph()
    graph.add_nodes_from(index)
    ends = zip(index[rows.source], index[rows.target], strict=True)
    for row, (first, second) in enumerate(ends):
        data: dict[str, Any] = {"weight": float(rows.weight[row])}
        if rows.ids is not None:
            data["id"] = rows.ids[row]
        if rows.length is not None:
            data["length"] = float(rows.length[row])
        if rows.geometry is not None and rows.geometry[row] is not None:
            data["geometry"] = rows.geometry[row]
        graph.add_edge(first, second, **data)
    if parts.positions is not None:
        nx.set_node_attributes(graph, dict(zip(index, map(tuple, parts.positions.tolist()), strict=True)), "pos")
    if attributes is not None:
        faults = FaultList("no networkx graph was made", TableError)
        known = parts.names.codes(attributes.index) >= 0
        if not known.all():
            parts.names.note_unknown(attributes.index[~known], "attributes", faults)
        faults.raise_if_any()
        for column in attributes:
            nx.set_node_attributes(graph, attributes[column].to_dict(), str(column))
    return graph
