"""Sensors that were chosen: where they are, and what remains uncertain."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from graphmatern._validation import FaultList
from graphmatern.errors import TableError
from graphmatern.plotting._fields import plot_field
from graphmatern.plotting._layout import find_layout
from graphmatern.plotting._maps import draw_map

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from numpy.typing import ArrayLike, NDArray

    from graphmatern.graph import Graph

__all__ = ["plot_placement"]

_NUMBERED = 60  # sensors that get their numbers; more would hide each other
_COLOUR = "#c8102e"


def plot_placement(
    graph: Graph,
    table: pd.DataFrame,
    axes: Any = None,
    *,
    values: ArrayLike | None = None,
    label: str = "",
    existing: Any = None,
) -> NDArray[Any]:
    """Draw chosen nodes on a map, numbered in their order, and the uncertainty that remains after each.

    Parameters
    ----------
    graph : Graph
        The graph; see `plot_graph` for where its nodes are drawn.
    table : DataFrame
        What `place_sensors`, `remove_sensors` or ``classifier.suggest`` returned.
    axes : Axes or sequence of two Axes, optional
        Where to draw; a new figure by default. A single one shows the map alone.
    values : array_like or Series, shape (n_nodes,), optional
        Colours of the map, such as the standard deviations before; grey by default.
    label : str
        What the colours are, with their unit.
    existing : sequence of hashable, optional
        Names of nodes that already have sensors; they get a ring.

    Returns
    -------
    ndarray of Axes
        The map, and the curve of the remaining standard deviations, on average and at most, or of scores of
        suggestions.

    Examples
    --------
    >>> import graphmatern as gm
    >>> city = gm.make_roads(60, seed=0)
    >>> table = gm.place_sensors(gm.Matern(1.5, 3.0).on(city), 5, noise=0.1)
    >>> len(gm.plotting.plot_placement(city, table))
    2
    """
    import matplotlib.pyplot as plt

    missing = [name for name in ("node", "order") if name not in table.columns]
    if missing:
        faults = FaultList("nothing was drawn", TableError)
        rule = "must have the columns node and order"
        raise faults.raise_now("table", rule, f"columns {list(table.columns)}", "Pass what `place_sensors` returned.")
    if axes is None:
        _, axes = plt.subplots(1, 2, figsize=(11, 4.6), layout="constrained", width_ratios=(1.25, 1))
    drawn = np.atleast_1d(axes).ravel()[:2]
    _draw_chosen(drawn[0], graph, table, values, label, existing)
    if len(drawn) > 1:
        _draw_curve(drawn[1], table)
    return np.asarray(drawn)


def _draw_chosen(
    ax: Axes, graph: Graph, table: pd.DataFrame, values: ArrayLike | None, label: str, existing: Any
) -> None:
    if values is None:
        draw_map(ax, graph, None, node_scale=0.5).set_color("0.55")
    else:
        plot_field(graph, values, ax, label=label)
    places = find_layout(graph).places
    if existing is not None:
        x, y = places[graph.locate(existing)].T
        ax.scatter(x, y, s=28, facecolors="white", edgecolors="black", linewidths=1.0, zorder=4)
    x, y = places[graph.locate(table["node"])].T
    few = len(table) <= _NUMBERED
    ax.scatter(x, y, s=110 if few else 12, color=_COLOUR, edgecolors="white", linewidths=0.8 if few else 0.2, zorder=5)
    for number, left, up in zip(table["order"], x, y, strict=True) if few else ():
        ax.annotate(
            str(number), (left, up), ha="center", va="center_baseline", fontsize=6.5, color="white", zorder=6,
            fontweight="bold",
        )  # fmt: skip


def _draw_curve(ax: Axes, table: pd.DataFrame) -> None:
    from matplotlib.ticker import MaxNLocator

    order = table["order"].to_numpy()
    if "mean_std" in table:
        for name, words, style in (("mean_std", "average", "-"), ("max_std", "largest", "--")):
            before = table.attrs.get(name)
            x, y = (order, table[name].to_numpy()) if before is None else (
                np.append(0, order), np.append(before, table[name].to_numpy())
            )  # fmt: skip
            ax.plot(x, y, style, color=_COLOUR if style == "-" else "0.35", linewidth=2, label=words)
        ax.set(ylabel="standard deviation that remains", xlabel="sensors removed" if "loss" in table else "sensors")
        ax.legend(frameon=False)
    else:
        ax.plot(order, table["score"].to_numpy(), color=_COLOUR, linewidth=2, marker="o", markersize=4)
        ax.set(ylabel="score, given those before", xlabel="labels")
    ax.set_ylim(bottom=0)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))  # sensors are whole
    ax.spines[["top", "right"]].set_visible(False)
