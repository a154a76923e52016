"""Pictures of a graph, of a function on its nodes, of relative risks, and of a kernel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from graphmatern._validation import FaultList
from graphmatern.errors import InputError
from graphmatern.plotting._areas import draw_areas, risk_scale
from graphmatern.plotting._colours import add_colorbar, find_colours
from graphmatern.plotting._maps import GREY, draw_map, draw_network, mark_nodes, new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colorbar import Colorbar
    from matplotlib.colors import Colormap
    from numpy.typing import ArrayLike, NDArray

    from graphmatern.graph import Graph
    from graphmatern.kernels import BoundKernel

    Floats = NDArray[np.float64]

__all__ = ["plot_field", "plot_graph", "plot_kernel", "plot_risk", "plot_variance"]


def plot_graph(graph: Graph, ax: Axes | None = None) -> Axes:
    """Draw a graph, along the geometry of its edges where it is known.

    Parameters
    ----------
    graph : Graph
        The graph. Positions in three dimensions are seen from above and to the side. Without positions, or with more
        dimensions, a layout is computed that preserves distances along edges as well as possible in the plane. Areas of
        the nodes are drawn beneath the edges between them.
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
    draw_network(ax, graph, None, 0.5, {}).set_color("0.4")
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
        The graph; see `plot_graph` for where its nodes are drawn. If it has areas (`Graph.from_polygons`,
        `Graph.with_areas`), these are coloured instead.
    values : array_like, tensor, Series or mapping, shape (n_nodes,)
        The function, in node order or by node name. Nodes with NaN or without a value are grey.
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
        A bar shows the scale if it is known; a map with a computed layout says so.

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
    """Draw relative risks as colours on a logarithmic scale around 1: double and half the risk are equally strong.

    Parameters
    ----------
    graph : Graph
        The graph. Its areas are coloured if it has any (`Graph.from_polygons`, `Graph.with_areas`), otherwise its
        nodes.
    risk : array_like, tensor, Series or mapping, shape (n_nodes,)
        Relative risks, in node order or by node name, such as the means of `GraphGPRegressor.risk_table`. Nodes
        with NaN or without a value are grey.
    ax : Axes, optional
        Where to draw; a new figure by default.
    label : str
        Text at the colour bar.
    largest : float, optional
        Risk at the upper end of the colour bar; its inverse is at the lower end. By default 98 % of the risks lie
        between, and arrows show that there are others beyond.
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
    colours = find_colours(cmap).with_extremes(bad=GREY)
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
