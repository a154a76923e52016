"""Maps: a graph, a function on its nodes, a kernel seen from one node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from graphmatern._validation import FaultList
from graphmatern.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import LineCollection, PathCollection
    from numpy.typing import ArrayLike, NDArray

    from graphmatern.graph import Graph
    from graphmatern.kernels import BoundKernel

__all__ = ["plot_field", "plot_graph", "plot_kernel"]

_EDGE_COLOUR = "0.75"


def _axes(ax: Axes | None) -> Axes:
    import matplotlib.pyplot as plt

    return plt.subplots(figsize=(6, 5), layout="constrained")[1] if ax is None else ax


def _layout(graph: Graph) -> NDArray[np.float64]:
    """Positions in the plane, computed once and kept with the graph."""
    return graph._cached("layout", lambda: _find_layout(graph))


def _find_layout(graph: Graph) -> NDArray[np.float64]:
    """Positions in the plane: the graph's own, else by springs, or by eigenvectors where it is large."""
    if graph.positions is not None and graph.positions.shape[1] >= 2:
        return graph.positions[:, :2]
    if graph.positions is not None:
        return np.column_stack([graph.positions[:, 0], np.zeros(graph.n_nodes)])
    from networkx import spring_layout

    if graph.n_nodes <= 500:
        placed = spring_layout(graph.to_networkx(), seed=0)
        return np.array([placed[node] for node in graph.nodes])
    vectors = graph.spectrum(graph.n_components + 2, normalized=True).eigenvectors
    return np.asarray(vectors[:, -2:])


def _edge_lines(graph: Graph, **style: Any) -> LineCollection:
    """Edges as drawn: along their geometry where known, else straight."""
    from matplotlib.collections import LineCollection

    places = _layout(graph)
    rows = graph._rows
    straight = np.stack([places[rows.source], places[rows.target]], axis=1)
    lines: Any = straight
    if rows.geometry is not None:
        lines = [own if line is None else line for own, line in zip(straight, rows.geometry, strict=True)]
    return LineCollection(lines, zorder=1, rasterized=len(rows) > 5_000, **style)


def _marker_size(n_nodes: int) -> float:
    return float(np.clip(16_000 / max(n_nodes, 1), 0.5, 60.0))


def plot_graph(graph: Graph, ax: Axes | None = None) -> Axes:
    """Draw the edges of a graph, along their geometry where it is known.

    Parameters
    ----------
    graph : Graph
        The graph. Without positions it is laid out by springs, or by eigenvectors where it is large.
    ax : Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    Axes
    """
    ax = _axes(ax)
    lines = _edge_lines(graph, colors=_EDGE_COLOUR, linewidths=0.8)
    _draw(ax, graph, lines, color=_EDGE_COLOUR, s=0.3 * _marker_size(graph.n_nodes))
    return ax


def _draw(ax: Axes, graph: Graph, lines: LineCollection, **style: Any) -> PathCollection:
    """Add edges and nodes to a map without a frame."""
    places = _layout(graph)
    ax.add_collection(lines)
    x, y = places.T
    nodes = ax.scatter(x, y, linewidths=0, zorder=2, rasterized=graph.n_nodes > 5_000, **style)
    ax.autoscale_view()
    _set_aspect(ax, places)
    ax.set_axis_off()
    return nodes


def _set_aspect(ax: Axes, places: NDArray[np.float64]) -> None:
    """Equal distances look equal; degrees of longitude are shorter than degrees of latitude."""
    low, high = places.min(axis=0), places.max(axis=0)
    in_range = max(-low[0], high[0]) <= 180 and max(-low[1], high[1]) <= 90
    is_degrees = in_range and (high - low).max() < 5 and np.abs(places).min(axis=0).max() > 10
    ax.set_aspect(1.0 / np.cos(np.radians(places[:, 1].mean())) if is_degrees else 1.0)


def plot_field(
    graph: Graph,
    values: ArrayLike,
    ax: Axes | None = None,
    *,
    label: str = "",
    cmap: str = "viridis",
    limits: tuple[float, float] | None = None,
) -> Axes:
    """Draw a function on the nodes as colours on a map; an edge has the mean colour of its ends.

    Parameters
    ----------
    graph : Graph
        The graph.
    values : array_like, tensor, Series or mapping, shape (n_nodes,)
        The function, in node order or by node name. Where it is NaN or missing, the map is grey.
    ax : Axes, optional
        Where to draw; a new figure by default.
    label : str
        Text at the colour bar: what is shown, with its unit.
    cmap : str
        Colour map.
    limits : tuple of float, optional
        Values at the ends of the colour bar.

    Returns
    -------
    Axes
    """
    numbers = graph.arrange(values, missing=True)
    if numbers.ndim != 1:
        faults = FaultList("nothing was drawn", InputError)
        rule = f"must have shape ({graph.n_nodes},)"
        raise faults.raise_now("values", rule, f"shape {numbers.shape}", "One value per node.")
    from matplotlib import colormaps

    ax = _axes(ax)
    known = numbers[np.isfinite(numbers)]
    low, high = limits or ((known.min(), known.max()) if len(known) else (0.0, 1.0))
    beyond = (bool((known < low).any()), bool((known > high).any()))
    extend = {(True, True): "both", (True, False): "min", (False, True): "max"}.get(beyond, "neither")
    colours = colormaps[cmap].with_extremes(bad=_EDGE_COLOUR)
    rows = graph._rows
    lines = _edge_lines(graph, array=0.5 * (numbers[rows.source] + numbers[rows.target]), cmap=colours, linewidths=1.8)
    lines.set_clim(low, high)
    size = _marker_size(graph.n_nodes)
    nodes = _draw(ax, graph, lines, c=numbers, s=size, cmap=colours, vmin=low, vmax=high)
    figure = ax.figure
    assert figure is not None
    figure.colorbar(nodes, ax=ax, label=label, shrink=0.8, extend=extend)
    return ax


def plot_kernel(bound: BoundKernel, node: Any, ax: Axes | None = None) -> Axes:
    """Draw the covariance of every node with one of them, which is marked by a cross.

    Parameters
    ----------
    bound : BoundKernel
        A kernel bound to a graph.
    node : hashable
        Name of the node.
    ax : Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    Axes
    """
    column = bound.matrix(bound.graph.nodes, [node]).detach().cpu().numpy()[:, 0]
    ax = plot_field(bound.graph, column, ax, label="covariance", limits=(min(0.0, column.min()), column.max()))
    x, y = _layout(bound.graph)[bound.graph.locate([node])[0]]
    ax.scatter(x, y, marker="x", color="black", s=60, zorder=3)
    return ax
