"""Maps: a graph, a function on its nodes, a kernel seen from one node, prior variances."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from graphmatern._validation import FaultList
from graphmatern.errors import InputError
from graphmatern.plotting._areas import draw_areas, risk_scale
from graphmatern.plotting._carriageways import carriageway_shifts
from graphmatern.plotting._layout import DEGREE, Layout, find_layout, map_scale

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import LineCollection, PathCollection
    from matplotlib.colorbar import Colorbar
    from matplotlib.colors import Colormap
    from numpy.typing import ArrayLike, NDArray

    from graphmatern.graph import Graph
    from graphmatern.kernels import BoundKernel

    Floats = NDArray[np.float64]

__all__ = [
    "UNSURE",
    "add_colorbar",
    "colour_limits",
    "draw_map",
    "find_colours",
    "mark_nodes",
    "new_axes",
    "plot_field",
    "plot_graph",
    "plot_kernel",
    "plot_risk",
    "plot_variance",
]

_EDGE_COLOUR = "0.75"
_APART = 0.62  # of a line's width by which each of two carriageways is moved
_MANY = 5_000  # nodes or edges from which vector formats hold a picture instead of every line


def new_axes(ax: Axes | None) -> Axes:
    """Return the axes given, or those of a new figure."""
    import matplotlib.pyplot as plt

    return plt.subplots(figsize=(6, 5), layout="constrained")[1] if ax is None else ax


# Colours of uncertainty on light and on dark paper: what is sure stands out, what is not fades into the paper.
UNSURE = ("unsure", "unsure_on_dark")
_OWN_COLOURS = {
    "unsure": ("#2d1160", "#5b3a94", "#8d75b8", "#bdb0d6", "#e0daeb"),
    "unsure_on_dark": ("#f3e9ff", "#c3aee6", "#8f7abf", "#5d4f86", "#37334f"),
}


def find_colours(cmap: str | Colormap) -> Colormap:
    """Return a colour map by its name; raise where there is none of that name.

    Parameters
    ----------
    cmap : str or Colormap
        A map, the name of one of matplotlib's, or one of `UNSURE`.
    """
    from matplotlib import colormaps
    from matplotlib.colors import LinearSegmentedColormap

    if isinstance(cmap, str) and cmap in _OWN_COLOURS:
        return LinearSegmentedColormap.from_list(cmap, _OWN_COLOURS[cmap])

    try:
        return colormaps.get_cmap(cmap)
    except (TypeError, ValueError):
        faults = FaultList("nothing was drawn", InputError)
        remedy = "Such as 'viridis'; list(matplotlib.colormaps) has all of them."
        raise faults.raise_now("cmap", "must be a colour map of matplotlib", repr(cmap), remedy) from None


def colour_limits(values: ArrayLike, low: float = 0.01, high: float = 0.99) -> tuple[float, float]:
    """Values at the ends of a colour scale: quantiles, since a few that exceed the rest by far would grey out the rest.

    Parameters
    ----------
    values : array_like
        Numbers; those that are not finite do not count.
    low, high : float
        Shares of them below the two ends.

    Examples
    --------
    >>> colour_limits([1.0, 2.0, float("nan"), 3.0], 0.0, 1.0)
    (1.0, 3.0)
    """
    numbers = np.asarray(values, dtype=np.float64)
    known = numbers[np.isfinite(numbers)]
    if not known.size:
        return 0.0, 1.0
    ends = np.quantile(known, [low, high])
    return float(ends[0]), float(ends[1])


def add_colorbar(ax: Axes, mappable: Any, label: str, extend: str = "neither") -> Colorbar:
    """Add a slim colour bar at the right of a map."""
    figure = ax.figure
    assert figure is not None
    bar = figure.colorbar(mappable, ax=ax, label=label, shrink=0.75, aspect=25, pad=0.02, extend=extend)
    bar.outline.set_visible(False)
    return bar


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
    return _draw_nodes(ax, graph, values, node_scale, style)


def _finish_map(ax: Axes, graph: Graph) -> None:
    """Equal distances look equal, there is no frame, and a bar gives the scale where it is known."""
    layout = find_layout(graph)
    ax.set_aspect(layout.aspect)
    ax.set_axis_off()
    _add_scale_bar(ax, graph, layout)


def _draw_nodes(
    ax: Axes, graph: Graph, values: Floats | None, node_scale: float, style: dict[str, Any]
) -> PathCollection:
    layout, rows = find_layout(graph), graph._rows
    front = np.arange(graph.n_nodes) if layout.depth is None else np.argsort(layout.depth)
    order = np.arange(len(rows))
    if layout.depth is not None:
        order = np.argsort(layout.depth[rows.source] + layout.depth[rows.target])
    width = float(np.clip(60.0 / np.sqrt(max(len(rows), 1)), 0.3, 2.0))
    size = float(np.clip((8_000 if layout.is_map else 20_000) / graph.n_nodes, 0.3, 60.0)) * node_scale
    fixed = {"color": _EDGE_COLOUR} if values is None else {"c": values[front], **style}
    if values is not None and layout.is_map:
        along = 0.5 * (values[rows.source] + values[rows.target])
        lines = _edge_lines(graph, layout, order, array=along[order], linewidths=width, **style)
    else:
        lines = _edge_lines(
            graph, layout, order, colors=_EDGE_COLOUR, linewidths=width if layout.is_map else 0.4 * width
        )
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


def plot_graph(graph: Graph, ax: Axes | None = None) -> Axes:
    """Draw a graph, along the geometry of its edges where it is known.

    Parameters
    ----------
    graph : Graph
        The graph. Positions in three dimensions are seen from above and to the side. Without positions, or with more
        dimensions, it is laid out so that distances along edges are kept as far as the plane allows. Areas of the
        nodes are drawn beneath the edges between them.
    ax : Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    Axes

    Examples
    --------
    >>> import graphmatern as gm
    >>> ax = gm.plotting.plot_graph(gm.make_roads(50))
    """
    ax = new_axes(ax)
    if graph.areas is not None:
        draw_areas(ax, graph, None)
    _draw_nodes(ax, graph, None, 0.5, {}).set_color("0.4")
    return ax


def plot_field(
    graph: Graph,
    values: ArrayLike,
    ax: Axes | None = None,
    *,
    label: str = "",
    cmap: str | Colormap = "viridis",
    limits: tuple[float, float] | None = None,
    marked: Any = None,
    title: str = "",
) -> Axes:
    """Draw a function on the nodes as colours on a map; an edge has the mean colour of its ends.

    Parameters
    ----------
    graph : Graph
        The graph; see `plot_graph` for where its nodes are drawn. Where it has areas (`Graph.from_polygons`,
        `Graph.with_areas`) these are coloured instead.
    values : array_like, tensor, Series or mapping, shape (n_nodes,)
        The function, in node order or by node name. Where it is NaN or missing, the map is grey.
    ax : Axes, optional
        Where to draw; a new figure by default.
    label : str
        Text at the colour bar: what is shown, with its unit.
    cmap : str or Colormap
        Colour map.
    limits : tuple of float, optional
        Values at the ends of the colour bar.
    marked : sequence of hashable, optional
        Names of nodes to mark with a ring, such as those with data.
    title : str
        What the map shows, and when.

    Returns
    -------
    Axes
        A bar gives the scale where it is known; a map with a computed layout says so.

    Examples
    --------
    >>> import graphmatern as gm
    >>> city = gm.make_roads(50)
    >>> ax = gm.plotting.plot_field(city, city.degrees, label="degree", marked=city.nodes[:3])
    """
    from matplotlib.colors import Normalize

    numbers = _one_each(graph, values, "values")
    find_colours(cmap)  # refused before a figure is made
    ax = new_axes(ax)
    known = numbers[np.isfinite(numbers)]
    low, high = limits or ((known.min(), known.max()) if len(known) else (0.0, 1.0))
    _draw_coloured(ax, graph, numbers, Normalize(low, high), cmap, label)
    if marked is not None:
        mark_nodes(ax, graph, marked)
    if title:
        ax.set_title(title)
    return ax


def plot_risk(
    graph: Graph,
    risk: ArrayLike,
    ax: Axes | None = None,
    *,
    label: str = "relative risk",
    largest: float | None = None,
    title: str = "",
    cmap: str | Colormap = "RdBu_r",
) -> Axes:
    """Draw relative risks as colours on a logarithmic scale around 1: twice and half the risk are equally strong.

    Parameters
    ----------
    graph : Graph
        The graph. Its areas are coloured where it has them (`Graph.from_polygons`, `Graph.with_areas`), else its nodes.
    risk : array_like, tensor, Series or mapping, shape (n_nodes,)
        Relative risks, in node order or by node name, such as the means of `GraphGPRegressor.risk_table`. Where they
        are NaN or missing, the map is grey.
    ax : Axes, optional
        Where to draw; a new figure by default.
    label : str
        Text at the colour bar.
    largest : float, optional
        Risk at the upper end of the colour bar; its inverse is at the lower end. By default 98 % of the risks lie
        between, and arrows show that others lie beyond.
    title : str
        What the map shows, and when.
    cmap : str or Colormap
        Diverging colour map.

    Returns
    -------
    Axes

    Examples
    --------
    >>> import graphmatern as gm, shapely
    >>> graph = gm.Graph.from_polygons([shapely.box(k, 0, k + 1, 1) for k in range(3)])
    >>> ax = gm.plotting.plot_risk(graph, [0.5, 1.0, 2.0])
    """
    numbers = _one_each(graph, risk, "risk")
    if (numbers < 0.0).any():
        faults = FaultList("nothing was drawn", InputError)
        received = f"{int((numbers < 0.0).sum())} negative ones"
        raise faults.raise_now("risk", "must be at least 0", received, "Give risks, not their logarithms.")
    norm, ticks = risk_scale(numbers, largest)
    ax = new_axes(ax)
    bar = _draw_coloured(ax, graph, np.where(numbers == 0.0, 1e-300, numbers), norm, cmap, label)
    bar.set_ticks(list(ticks), labels=[f"{tick:.2g}" for tick in ticks])
    bar.minorticks_off()
    if title:
        ax.set_title(title)
    return ax


def _one_each(graph: Graph, values: ArrayLike, argument: str) -> Floats:
    """Values in node order, one for each node."""
    numbers = graph.arrange(values, missing=True)
    if numbers.ndim != 1:
        faults = FaultList("nothing was drawn", InputError)
        rule = f"must have shape ({graph.n_nodes},)"
        raise faults.raise_now(argument, rule, f"shape {numbers.shape}", "One value per node.")
    return numbers


def _draw_coloured(ax: Axes, graph: Graph, numbers: Floats, norm: Any, cmap: str | Colormap, label: str) -> Colorbar:
    """Draw a map and its colour bar, with arrows where numbers lie beyond its ends."""
    colours = find_colours(cmap).with_extremes(bad=_EDGE_COLOUR)
    known = numbers[np.isfinite(numbers)]
    beyond = (bool((known < norm.vmin).any()), bool((known > norm.vmax).any()))
    extend = {(True, True): "both", (True, False): "min", (False, True): "max"}.get(beyond, "neither")
    return add_colorbar(ax, draw_map(ax, graph, numbers, cmap=colours, norm=norm), label, extend)


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

    Examples
    --------
    >>> import graphmatern as gm
    >>> ax = gm.plotting.plot_kernel(gm.Matern(lengthscale=3.0).on(gm.make_roads(50)), node=7)
    """
    column = bound.matrix(bound.graph.nodes, [node]).detach().cpu().numpy()[:, 0]
    ax = plot_field(bound.graph, column, ax, label="covariance", limits=(min(0.0, column.min()), column.max()))
    mark_nodes(ax, bound.graph, [node], marker="x")
    return ax


def plot_variance(bound: BoundKernel, ax: Axes | None = None) -> Axes:
    """Draw the prior variance of every node, which the graph makes larger in some places than in others.

    Parameters
    ----------
    bound : BoundKernel
        A kernel bound to a graph.
    ax : Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    Axes

    Examples
    --------
    >>> import graphmatern as gm
    >>> ax = gm.plotting.plot_variance(gm.Matern(lengthscale=3.0).on(gm.make_roads(50)))
    """
    variance = bound.diag().detach().cpu().numpy()
    # Ends of dead-end roads exceed the rest by far; the colours are for the rest.
    low, high = float(variance.min()), float(np.quantile(variance, 0.99))
    return plot_field(bound.graph, variance, ax, label="prior variance", cmap="plasma", limits=(low, high))
