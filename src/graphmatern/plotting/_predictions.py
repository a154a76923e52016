"""Predictions on a map, next to their uncertainty."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from graphmatern._validation import FaultList
from graphmatern.errors import InputError
from graphmatern.plotting._colours import UNSURE, add_colorbar, colour_limits, find_colours
from graphmatern.plotting._fields import plot_field
from graphmatern.plotting._maps import draw_map, mark_nodes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from numpy.typing import ArrayLike, NDArray

    from graphmatern.graph import Graph

__all__ = ["CLASS_COLOURS", "plot_classes", "plot_prediction", "two_axes"]

# Paul Tol's "muted" scheme, which readers with any kind of colour vision can tell apart.
CLASS_COLOURS = (
    "#332288", "#DDCC77", "#117733", "#CC6677", "#88CCEE", "#882255", "#44AA99", "#999933", "#AA4499", "#777777",
)  # fmt: skip
_CONTINUOUS = 256  # colours of a map whose neighbours look alike; a map of fewer is a list of different ones


def _chosen_axes(axes: Sequence[Axes] | None, ax: Axes | None) -> NDArray[Any]:
    """Where to draw: a single Axes for the prediction alone, or two, those of a new figure by default."""
    faults = FaultList("nothing was drawn", InputError)
    if ax is not None:
        if axes is not None:
            raise faults.raise_now("ax", "must be left out if `axes` are given", "both", "Give one of the two.")
        single = np.empty(1, dtype=object)
        single[0] = ax
        return single
    return two_axes(axes)


def two_axes(axes: Sequence[Axes] | None) -> NDArray[Any]:
    """Where to draw two maps: side by side in a new figure by default."""
    faults = FaultList("nothing was drawn", InputError)
    if axes is None:
        import matplotlib.pyplot as plt

        return np.asarray(plt.subplots(1, 2, figsize=(12, 5), layout="constrained")[1])
    pair = np.asarray(axes, dtype=object).ravel()
    if len(pair) != 2:
        rule = "must be two: one for the prediction, one for its uncertainty"
        remedy = "Make them with plt.subplots(1, 2); `ax` takes one, for the prediction alone."
        raise faults.raise_now("axes", rule, f"{len(pair)}", remedy)
    return pair


def plot_prediction(
    graph: Graph,
    mean: ArrayLike,
    std: ArrayLike,
    axes: Sequence[Axes] | None = None,
    *,
    ax: Axes | None = None,
    label: str = "",
    unit: str = "",
    title: str = "",
    cmap: str | Colormap = "viridis",
    limits: tuple[float, float] | None = None,
    marked: Any = None,
) -> NDArray[Any]:
    """Draw predictions and, next to them, how uncertain they are: the paler, the less certain.

    Parameters
    ----------
    graph : Graph
        The graph.
    mean, std : array_like, Series or mapping, shape (n_nodes,)
        Predictions and their standard deviations, in node order or by node name.
    axes : sequence of two Axes, optional
        Where to draw; a new figure by default.
    ax : Axes, optional
        Where to draw the predictions alone.
    label : str
        What is predicted, with its unit.
    unit : str
        The unit alone, for the colour bars: "mph" and "± mph"; by default the label is on both.
    title : str
        What is predicted, and when.
    cmap : str or Colormap
        Colour map of the mean.
    limits : tuple of float, optional
        Values at the ends of the colour bar of the mean.
    marked : sequence of hashable, optional
        Names of the nodes with data, which get a ring.

    Returns
    -------
    ndarray of Axes
        Two of them, or the one given as ``ax``.

    Examples
    --------
    >>> import graphmatern as gm, numpy as np
    >>> city = gm.make_roads(50)
    >>> left, right = gm.plotting.plot_prediction(city, city.degrees, np.ones(city.n_nodes))
    """
    pair = _chosen_axes(axes, ax)
    bar = label or unit
    plot_field(graph, mean, pair[0], label=bar, cmap=cmap, limits=limits, marked=marked)
    pair[0].set_title(f"{title}: predicted mean" if title else "predicted mean")
    if len(pair) == 1:
        return pair
    # A few nodes far from all data exceed the rest by far; the colours are for the rest.
    spread = graph.arrange(std, missing=True)
    clipped = colour_limits(spread, 0.0, 0.98) if np.isfinite(spread).any() else None
    plot_field(
        graph, spread, pair[1], label=f"± {unit or label}".rstrip(), limits=clipped, cmap=UNSURE[0], marked=marked
    )
    pair[1].set_title("standard deviation (pale: uncertain)")
    return pair


def plot_classes(
    graph: Graph,
    probabilities: ArrayLike,
    classes: Sequence[Any],
    axes: Sequence[Axes] | None = None,
    *,
    ax: Axes | None = None,
    cmap: str | Colormap | None = None,
    marked: Any = None,
) -> NDArray[Any]:
    """Draw the most probable class of every node and, next to it, how uncertain that is.

    Parameters
    ----------
    graph : Graph
        The graph.
    probabilities : array_like or DataFrame, shape (n_nodes, n_classes)
        Probability of every class, in node order or by node name.
    classes : sequence of hashable, length n_classes
        Names of the classes. With two, the probability of the second is drawn instead.
    axes : sequence of two Axes, optional
        Where to draw; a new figure by default.
    ax : Axes, optional
        Where to draw the classes alone.
    cmap : str or Colormap, optional
        Colour map of the classes, or of the probability of the second of two: the first colours of a map of few, such
        as "tab10", are used. By default colours that can be told apart with any kind of colour vision.
    marked : sequence of hashable, optional
        Names of the nodes with a label, which get a ring.

    Returns
    -------
    ndarray of Axes
        Two of them, or the one given as ``ax``. The uncertainty is the entropy of the probabilities, divided by that
        of equal probabilities.

    Examples
    --------
    >>> import graphmatern as gm, numpy as np
    >>> city = gm.make_roads(50)
    >>> share = city.positions / city.positions.sum(axis=1, keepdims=True)
    >>> left, right = gm.plotting.plot_classes(city, share, ["west", "south"])
    """
    share = graph.arrange(probabilities)
    if share.ndim != 2 or share.shape[1] != len(classes) or len(classes) < 2:
        faults = FaultList("nothing was drawn", InputError)
        rule = f"must have shape ({graph.n_nodes}, {max(len(classes), 2)})"
        raise faults.raise_now("probabilities", rule, f"shape {share.shape}", "One column per class, at least two.")
    pair = _chosen_axes(axes, ax)
    if len(classes) == 2:
        plot_field(graph, share[:, 1], pair[0], cmap=cmap or "cividis", limits=(0.0, 1.0), marked=marked)
        pair[0].set_title(f"probability of {classes[1]}")
    else:
        _draw_categories(pair[0], graph, share.argmax(axis=1), classes, cmap)
        if marked is not None:
            mark_nodes(pair[0], graph, marked, label="labelled")
        pair[0].set_title("most probable class")
    if len(pair) == 1:
        return pair
    with np.errstate(divide="ignore", invalid="ignore"):
        entropy = -np.where(share > 0, share * np.log(share), 0.0).sum(axis=1) / np.log(len(classes))
    plot_field(
        graph, entropy, pair[1], cmap=UNSURE[0], limits=(0.0, 1.0), marked=marked, label="1 = all equally likely"
    )
    pair[1].set_title("uncertainty (entropy)")
    return pair


def _class_colours(count: int, cmap: str | Colormap | None) -> Any:
    """One colour per class; shape (count, 4), or names of colours."""
    if cmap is None and count <= len(CLASS_COLOURS):
        return CLASS_COLOURS[:count]
    colours = find_colours("turbo" if cmap is None else cmap)
    if colours.N >= _CONTINUOUS:
        return colours(np.linspace(0.0, 1.0, count))
    if count > colours.N:
        faults = FaultList("nothing was drawn", InputError)
        rule, remedy = f"must have a colour for each of {count} classes", "Use another, such as 'turbo'."
        raise faults.raise_now("cmap", rule, f"{colours.name!r} with {colours.N}", remedy)
    return colours(np.arange(count))


def _draw_categories(
    ax: Axes, graph: Graph, codes: NDArray[np.int64], classes: Sequence[Any], cmap: str | Colormap | None
) -> None:
    """Colour nodes by class, edges in grey; the colour bar names the classes."""
    from matplotlib.colors import BoundaryNorm, ListedColormap

    count = len(classes)
    colours = ListedColormap(_class_colours(count, cmap))
    norm = BoundaryNorm(np.arange(count + 1) - 0.5, count)
    nodes = draw_map(ax, graph, None, node_scale=1.5)
    nodes.set(array=codes, cmap=colours, norm=norm)
    bar = add_colorbar(ax, nodes, "")
    bar.set_ticks(list(range(count)), labels=[str(name) for name in classes])
    bar.ax.tick_params(length=0)
