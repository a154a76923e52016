"""Maps of a graph: its edges and nodes, or its areas, with a scale and with marks at some nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from graphmatern.plotting._areas import draw_areas
from graphmatern.plotting._carriageways import carriageway_shifts
from graphmatern.plotting._layout import DEGREE, Layout, find_layout, map_scale

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import LineCollection, PathCollection
    from numpy.typing import NDArray

    from graphmatern.graph import Graph

    Floats = NDArray[np.float64]

__all__ = ["GREY", "draw_map", "draw_network", "mark_nodes", "new_axes"]

GREY = "0.75"  # edges, and what is not known
_APART = 0.62  # of a line's width by which each of two carriageways is moved
_MANY = 5_000  # nodes or edges from which vector formats hold a picture instead of every line


def new_axes(ax: Axes | None) -> Axes:
    """Return the axes given, or those of a new figure."""
    import matplotlib.pyplot as plt

    return plt.subplots(figsize=(6, 5), layout="constrained")[1] if ax is None else ax


def _edge_lines(graph: Graph, layout: Layout, order: NDArray[np.int64], **style: Any) -> LineCollection:
    """Edges as drawn: along their geometry where known, else straight."""
    from matplotlib.collections import LineCollection

    rows = graph._rows
    straight = np.stack([layout.places[rows.source], layout.places[rows.target]], axis=1)[order]
    lines: Any = straight
    if rows.geometry is not None and layout.is_map:
        lines = [own if line is None else line for own, line in zip(straight, rows.geometry, strict=True)]
    return LineCollection(lines, zorder=1, rasterized=len(rows) > _MANY, capstyle="round", **style)


def _draw_apart(ax: Axes, graph: Graph, lines: LineCollection, order: NDArray[np.int64], width: float) -> None:
    """Add lines to a map, carriageways beside each other however small the map."""
    ax.add_collection(lines)
    shifts = carriageway_shifts(graph)
    if shifts is None or ax.figure is None:
        return
    # Lines that are moved by points no longer count when the map's extent is found: say it first.
    ax.update_datalim(np.vstack(lines.get_segments()))
    lines.set_offsets(shifts[order] * (_APART * width / 72.0))
    lines.set_offset_transform(ax.figure.dpi_scale_trans)


def draw_map(ax: Axes, graph: Graph, values: Floats | None, *, node_scale: float = 1.0, **style: Any) -> PathCollection:
    """Draw edges and nodes, or the areas of the nodes where these are known, without a frame; return nodes or areas.

    Parameters
    ----------
    ax : Axes
        Where to draw.
    graph : Graph
        The graph.
    values : ndarray, shape (n_nodes,), optional
        What the colours say. On a map an edge has the mean of its ends; with a computed layout, edges are grey.
    node_scale : float
        Factor of the size of the nodes.
    **style
        Colour map and norm.
    """
    if graph.areas is not None:
        shapes = draw_areas(ax, graph, values, **style)
        _finish_map(ax, graph)
        return shapes
    return draw_network(ax, graph, values, node_scale, style)


def _finish_map(ax: Axes, graph: Graph) -> None:
    """Equal distances look equal, there is no frame, and a bar gives the scale where it is known."""
    layout = find_layout(graph)
    ax.set_aspect(layout.aspect)
    ax.set_axis_off()
    _add_scale_bar(ax, graph, layout)


def draw_network(
    ax: Axes, graph: Graph, values: Floats | None, node_scale: float, style: dict[str, Any]
) -> PathCollection:
    """Draw edges and nodes, whether or not there are areas; see `draw_map`."""
    layout, rows = find_layout(graph), graph._rows
    front = np.arange(graph.n_nodes) if layout.depth is None else np.argsort(layout.depth)
    order = np.arange(len(rows))
    if layout.depth is not None:
        order = np.argsort(layout.depth[rows.source] + layout.depth[rows.target])
    width = float(np.clip(60.0 / np.sqrt(max(len(rows), 1)), 0.3, 2.0))
    size = float(np.clip((8_000 if layout.is_map else 20_000) / graph.n_nodes, 0.3, 60.0)) * node_scale
    fixed = {"color": GREY} if values is None else {"c": values[front], **style}
    if values is not None and layout.is_map:
        along = 0.5 * (values[rows.source] + values[rows.target])
        lines = _edge_lines(graph, layout, order, array=along[order], linewidths=width, **style)
    else:
        lines = _edge_lines(graph, layout, order, colors=GREY, linewidths=width if layout.is_map else 0.4 * width)
    _draw_apart(ax, graph, lines, order, width)
    x, y = layout.places[front].T
    nodes = ax.scatter(x, y, s=size, linewidths=0, zorder=2, rasterized=graph.n_nodes > _MANY, **fixed)
    ax.autoscale_view()
    if not layout.is_map and graph.n_nodes > 1:
        said = "no positions known:\nneighbours lie near each other"  # in two lines: panels may be narrow
        ax.text(1.0, -0.01, said, transform=ax.transAxes, ha="right", va="top", color="0.45", fontsize="small")
    _finish_map(ax, graph)
    return nodes


def _add_scale_bar(ax: Axes, graph: Graph, layout: Layout) -> None:
    """Add a bar of a round length below a map, where the length of its unit is known; it follows when one zooms in."""
    from matplotlib.lines import Line2D

    unit = DEGREE / layout.aspect if layout.is_degrees else map_scale(graph)
    if unit is None or not np.ptp(layout.places[:, 0]) > 0:
        return
    # Below the axes, not below the nodes: a map that is zoomed in would else make room for a bar that is far away.
    below = ax.get_xaxis_transform()
    bar = Line2D([], [], color="0.3", linewidth=2, solid_capstyle="butt", zorder=3, transform=below, clip_on=False)
    ax.add_artist(bar)
    text = ax.text(0.0, -0.03, "", ha="center", va="top", color="0.3", fontsize="small", transform=below)

    def measure(_: Axes) -> None:
        left, right = ax.get_xlim()
        room = 0.25 * abs(right - left) * unit
        power = 10.0 ** np.floor(np.log10(room))
        length = max(factor * power for factor in (1, 2, 5) if factor * power <= room)
        start = right - np.copysign(length / unit, right - left)
        bar.set_data([start, right], [-0.015, -0.015])
        text.set_x(0.5 * (start + right))
        in_metres = f"{length / 1000:,g} km" if length >= 1000 else f"{length:g} m"
        text.set_text(in_metres if layout.is_degrees else f"{length:,g}")

    measure(ax)
    ax.callbacks.connect("xlim_changed", measure)


def mark_nodes(ax: Axes, graph: Graph, nodes: Any, marker: str = "o", label: str = "observed") -> None:
    """Mark some nodes of a map, by name: with rings, which a legend explains, or with crosses.

    Rings shrink with their number, so that the field between them is seen; on a map of areas that are all to be marked
    they say nothing, and are left out.
    """
    chosen = graph.locate(nodes)
    if graph.areas is not None and len(np.unique(chosen)) == graph.n_nodes:
        return
    places = find_layout(graph).places[chosen]
    count = max(len(places), 1)
    size = float(np.clip(1_800 / count, 1.5, 26.0))
    x, y = places.T
    if marker != "o":
        ax.scatter(x, y, s=30.0, marker=marker, linewidths=1.5, zorder=3, color="black")
        return
    style: dict[str, Any] = {"facecolors": "none", "edgecolors": "black"}
    width = float(np.clip(6.0 / np.sqrt(count), 0.25, 0.8))
    rings = ax.scatter(
        x, y, s=size, marker=marker, linewidths=width, zorder=3, label=f"{label} ({len(places):,})", **style
    )
    below: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (0.0, 0.0), "borderpad": 0.0}
    if len(places):
        ax.legend(handles=[rings], frameon=False, fontsize="small", handletextpad=0.2, **below)
