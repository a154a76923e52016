"""Predictions on a map, with their uncertainty beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from graphmatern._validation import FaultList
from graphmatern.errors import InputError
from graphmatern.plotting._fields import add_colorbar, draw_map, mark_nodes, plot_field

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from numpy.typing import ArrayLike, NDArray

    from graphmatern.graph import Graph

__all__ = ["plot_classes", "plot_prediction"]

# Paul Tol's "muted" scheme, which readers with any kind of colour vision can tell apart.
_CLASS_COLOURS = (
    "#332288", "#DDCC77", "#117733", "#CC6677", "#88CCEE", "#882255", "#44AA99", "#999933", "#AA4499", "#777777",
)  # fmt: skip


def _pair_of_axes(axes: Sequence[Axes] | None) -> NDArray[Any]:
    if axes is None:
        import matplotlib.pyplot as plt

        return np.asarray(plt.subplots(1, 2, figsize=(12, 5), layout="constrained")[1])
    pair = np.asarray(axes, dtype=object).ravel()
    if len(pair) != 2:
        faults = FaultList("nothing was drawn", InputError)
        rule = "must be two: one for the prediction, one for its uncertainty"
        raise faults.raise_now("axes", rule, f"{len(pair)}", "Make them with plt.subplots(1, 2).")
    return pair


def plot_prediction(
    graph: Graph,
    mean: ArrayLike,
    std: ArrayLike,
    axes: Sequence[Axes] | None = None,
    *,
    label: str = "",
    limits: tuple[float, float] | None = None,
    marked: Any = None,
) -> NDArray[Any]:
    """Draw predictions and, beside them, their standard deviations.

    Parameters
    ----------
    graph : Graph
        The graph.
    mean, std : array_like, Series or mapping, shape (n_nodes,)
        Predictions and their standard deviations, in node order or by node name.
    axes : sequence of two Axes, optional
        Where to draw; a new figure by default.
    label : str
        What is predicted, with its unit.
    limits : tuple of float, optional
        Values at the ends of the colour bar of the mean.
    marked : sequence of hashable, optional
        Names of the nodes with data, which get a ring.

    Returns
    -------
    ndarray of two Axes

    Examples
    --------
    >>> import graphmatern as gm, numpy as np
    >>> city = gm.make_roads(50)
    >>> left, right = gm.plotting.plot_prediction(city, city.degrees, np.ones(city.n_nodes))
    """
    pair = _pair_of_axes(axes)
    plot_field(graph, mean, pair[0], label=label, limits=limits, marked=marked).set_title("mean")
    # A few nodes far from all data exceed the rest by far; the colours are for the rest.
    spread = graph.arrange(std, missing=True)
    clipped = (np.nanmin(spread), np.nanquantile(spread, 0.98)) if np.isfinite(spread).any() else None
    plot_field(graph, spread, pair[1], label=label, limits=clipped, cmap="plasma", marked=marked)
    pair[1].set_title("standard deviation")
    return pair


def plot_classes(
    graph: Graph,
    probabilities: ArrayLike,
    classes: Sequence[Any],
    axes: Sequence[Axes] | None = None,
    *,
    marked: Any = None,
) -> NDArray[Any]:
    """Draw the most probable class of every node and, beside it, how uncertain that is.

    Parameters
    ----------
    graph : Graph
        The graph.
    probabilities : array_like or DataFrame, shape (n_nodes, n_classes)
        Probability of every class, in node order or by node name.
    classes : sequence of hashable, length n_classes
        Names of the classes. Of two, the probability of the second is drawn instead.
    axes : sequence of two Axes, optional
        Where to draw; a new figure by default.
    marked : sequence of hashable, optional
        Names of the nodes with a label, which get a ring.

    Returns
    -------
    ndarray of two Axes
        The uncertainty is the entropy of the probabilities, divided by that of equal probabilities.

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
        raise faults.raise_now("probabilities", rule, f"shape {share.shape}", "One column per class, two at least.")
    pair = _pair_of_axes(axes)
    if len(classes) == 2:
        plot_field(graph, share[:, 1], pair[0], cmap="cividis", limits=(0.0, 1.0), marked=marked)
        pair[0].set_title(f"probability of {classes[1]}")
    else:
        _draw_categories(pair[0], graph, share.argmax(axis=1), classes)
        if marked is not None:
            mark_nodes(pair[0], graph, marked)
        pair[0].set_title("most probable class")
    with np.errstate(divide="ignore", invalid="ignore"):
        entropy = -np.where(share > 0, share * np.log(share), 0.0).sum(axis=1) / np.log(len(classes))
    plot_field(graph, entropy, pair[1], cmap="plasma", limits=(0.0, 1.0), marked=marked, label="1 = all equally likely")
    pair[1].set_title("uncertainty (entropy)")
    return pair


def _draw_categories(ax: Axes, graph: Graph, codes: NDArray[np.int64], classes: Sequence[Any]) -> None:
    """Colour nodes by class, edges in grey; the colour bar names the classes."""
    from matplotlib import colormaps
    from matplotlib.colors import BoundaryNorm, ListedColormap

    count = len(classes)
    several = _CLASS_COLOURS[:count] if count <= len(_CLASS_COLOURS) else colormaps["turbo"](np.linspace(0, 1, count))
    norm = BoundaryNorm(np.arange(count + 1) - 0.5, count)
    nodes = draw_map(ax, graph, None, node_scale=1.5)
    nodes.set(array=codes, cmap=ListedColormap(several), norm=norm)
    bar = add_colorbar(ax, nodes, "")
    bar.set_ticks(list(range(count)), labels=[str(name) for name in classes])
    bar.ax.tick_params(length=0)
