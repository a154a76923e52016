"""Figures 3 and 4: predicted speeds on San Jose's highways, and how sure they are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from graphmatern.plotting import plot_graph
from graphmatern.reproduce._kernels import Protocol
from graphmatern.reproduce._traffic import fit_traffic, split_sensors, traffic_data

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from graphmatern.graph import Graph

    Floats = NDArray[np.float64]

__all__ = ["draw_junction", "draw_traffic", "opposite_sensors", "traffic_map"]

_ACROSS_M = 60.0  # sensors of opposite carriageways are at most this far apart
_AROUND_M = 1_000.0  # by road, they are at least this far apart
_JUNCTION_M, _JUNCTION_NODES = 900.0, 20  # a junction has so many forks within so many metres
_METRES_PER_DEGREE = 111_200.0


def traffic_map(seed: int, protocol: dict[str, Any]) -> dict[str, Any]:
    """Predictions of the Matérn kernel on Δ at every node of the graph that follows the roads."""
    data = traffic_data(geometry=True)
    graph, names, speeds = data.graph, data.values.index, data.values.to_numpy()
    train, _ = split_sensors(seed, len(speeds))
    model = fit_traffic(graph, names[train], speeds[train], "matern", False, Protocol(**protocol))
    mean, std = model.predict(return_std=True)
    nearest = graph.distances(names[train]).min(axis=0)
    pair = opposite_sensors(graph, names, mean)
    return {
        "mean": mean.tolist(),
        "std": std.tolist(),
        "train": names[train].tolist(),
        "distance_to_nearest_sensor_m": nearest.tolist(),
        "opposite_sensors": pair,
        "kernel": repr(model.kernel_),
    }


def _metres(graph: Graph) -> Floats:
    """Positions in metres, on a plane that touches the map's middle."""
    assert graph.positions is not None
    scale = np.cos(np.radians(graph.positions[:, 1].mean()))
    return np.asarray(_METRES_PER_DEGREE * graph.positions * [scale, 1.0])


def opposite_sensors(graph: Graph, sensors: Any, mean: Floats) -> dict[str, Any]:
    """Two sensors across from each other at a junction, on carriageways whose predicted speeds differ most.

    They are near each other on the map and far apart by road: a process on the plane could not tell them apart.
    """
    places = graph.locate(sensors)
    metres = _metres(graph)
    position = metres[places]
    forks = metres[np.diff(graph.weights.indptr) >= 3]
    at_junction = (np.hypot(*(position[:, None] - forks[None]).transpose(2, 0, 1)) < _JUNCTION_M).sum(axis=1)
    across = np.hypot(*(position[:, None] - position[None]).transpose(2, 0, 1))
    around = graph.distances(sensors)[:, places]
    gap = np.abs(mean[places][:, None] - mean[places][None])
    gap[(across > _ACROSS_M) | (around < _AROUND_M) | (at_junction < _JUNCTION_NODES)[:, None]] = -1.0
    one, other = (int(k) for k in np.unravel_index(gap.argmax(), gap.shape))
    return {
        "sensors": [int(sensors[one]), int(sensors[other])],
        "metres_across": float(across[one, other]),
        "metres_by_road": float(around[one, other]),
        "mean_mph": [float(mean[places[one]]), float(mean[places[other]])],
    }


# ---------------------------------------------------------------------- drawing
def draw_traffic(result: dict[str, Any]) -> Figure:
    """Figure 3: the whole map."""
    return _draw(result, None)


def draw_junction(result: dict[str, Any]) -> Figure:
    """Figure 4: one junction."""
    graph = traffic_data(geometry=True).graph
    assert graph.positions is not None
    centre = graph.positions[graph.locate(result["opposite_sensors"]["sensors"])].mean(axis=0)
    return _draw(result, centre)


def _draw(result: dict[str, Any], centre: Floats | None, half_width_m: float = 1_300.0) -> Figure:
    import matplotlib.pyplot as plt

    graph = traffic_data(geometry=True).graph
    mean, std = np.array(result["mean"]), np.array(result["std"])
    top = float(np.quantile(std, 0.9))
    figure, axes = plt.subplots(1, 2, figsize=(13, 5.6), layout="constrained")
    panels = [
        ("predicted speed", mean, "cividis", (float(mean.min()), float(mean.max())), "neither"),
        ("standard deviation", std, "plasma", (float(std.min()), top), "max"),
    ]
    wide = 2.0 if centre is None else 3.5
    for ax, (title, values, cmap, limits, extend) in zip(axes, panels, strict=True):
        lines = _roads(ax, graph, values, cmap, limits, wide)
        _mark(ax, graph, result["train"], 5.0 if centre is None else 30.0)
        ax.set_title(title)
        bar = figure.colorbar(lines, ax=ax, label="miles per hour", shrink=0.8, aspect=25, pad=0.02, extend=extend)
        bar.outline.set_visible(False)
        if centre is not None:
            up = half_width_m / _METRES_PER_DEGREE
            aside = up / np.cos(np.radians(centre[1]))
            ax.set(xlim=(centre[0] - aside, centre[0] + aside), ylim=(centre[1] - up, centre[1] + up))
    return figure


def _roads(ax: Axes, graph: Graph, values: Floats, cmap: str, limits: tuple[float, float], width: float) -> Any:
    """Roads as they run, their colour changing evenly from one node to the next."""
    from matplotlib.collections import LineCollection
    from matplotlib.colors import Normalize

    plot_graph(graph, ax)
    for artist in list(ax.collections):
        artist.remove()  # only the aspect and the scale are wanted
    rows = graph._rows
    assert rows.geometry is not None
    pieces, colours = [], []
    for source, target, line in zip(rows.source, rows.target, rows.geometry, strict=True):
        assert line is not None
        arc = np.concatenate([[0.0], np.cumsum(np.hypot(*np.diff(line, axis=0).T))])
        # Long straight stretches are cut, so that colours change along them, too.
        at = np.unique(np.concatenate([arc, np.linspace(0.0, arc[-1], 12)]))
        points = np.column_stack([np.interp(at, arc, line[:, axis]) for axis in (0, 1)])
        share = 0.5 * (at[1:] + at[:-1]) / arc[-1]
        pieces.append(np.stack([points[:-1], points[1:]], axis=1))
        colours.append((1.0 - share) * values[source] + share * values[target])
    lines = LineCollection(
        list(np.concatenate(pieces)),
        array=np.concatenate(colours),
        cmap=cmap,
        norm=Normalize(*limits),
        linewidths=width,
        capstyle="round",
        rasterized=True,
        zorder=1,
    )
    ax.add_collection(lines)
    ax.autoscale_view()
    return lines


def _mark(ax: Axes, graph: Graph, sensors: Any, size: float) -> None:
    assert graph.positions is not None
    x, y = graph.positions[graph.locate(sensors)].T
    ax.scatter(x, y, s=size, facecolors="white", edgecolors="black", linewidths=0.5, zorder=3)


MAP_CAPTION = (
    "Speeds on San Jose's highways, Monday 2 January 2017, 17:30, predicted from 250 sensors (white dots) by a Matérn "
    "process on the road graph: mean and standard deviation of the process. Colours of the standard deviation end at "
    "its 90th percentile; it grows with the distance by road to the nearest sensor. Roads © OpenStreetMap contributors."
)
JUNCTION_CAPTION = (
    "One junction of figure 3. Opposite carriageways, some {metres:.0f} m apart on the map, have predicted speeds of "
    "{slow:.0f} and {fast:.0f} miles per hour: between them lie {around:.1f} km of road. Roads © OpenStreetMap "
    "contributors."
)
