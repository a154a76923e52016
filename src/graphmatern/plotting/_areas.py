"""Maps of areas: choropleths, and relative risks on a scale around 1."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from graphmatern._validation import FaultList, as_numbers
from graphmatern.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import PathCollection
    from matplotlib.colors import LogNorm
    from matplotlib.path import Path
    from numpy.typing import NDArray

    from graphmatern.graph import Graph

    Floats = NDArray[np.float64]

__all__ = ["draw_areas", "risk_scale"]

_LEAST_RANGE = 1.25  # of a scale of risks that are all alike
_MANY = 5_000  # areas from which vector formats hold a picture instead of every outline


def draw_areas(ax: Axes, graph: Graph, values: Floats | None, **style: Any) -> PathCollection:
    """Draw the areas of a graph's nodes, holes left open, into axes without a frame.

    Parameters
    ----------
    ax : Axes
        Where to draw.
    graph : Graph
        A graph with areas. Those of nodes without one are left out, and counted below the map.
    values : ndarray, shape (n_nodes,), optional
        What the colours say; pale areas by default.
    **style
        Colour map and norm.
    """
    from matplotlib.collections import PathCollection
    from matplotlib.path import Path

    assert graph.areas is not None
    # A hole turns the other way, so that it stays open when all outlines are filled as one.
    paths = [
        Path.make_compound_path(*map(_closed, rings)) if rings else Path(np.empty((0, 2))) for rings in graph.areas
    ]
    width = float(np.clip(12.0 / np.sqrt(graph.n_nodes), 0.1, 0.8))
    fill = {"facecolors": "0.93"} if values is None else {"array": values, **style}
    shapes = PathCollection(
        paths,
        linewidths=width,
        edgecolors="white" if values is not None else "0.7",
        zorder=1,
        rasterized=graph.n_nodes > _MANY,
        **fill,
    )
    ax.add_collection(shapes, autolim=False)
    points = np.vstack([ring for rings in graph.areas for ring in rings])
    ax.update_datalim(points)
    ax.autoscale_view()
    lost = sum(not rings for rings in graph.areas)
    if lost:
        said = f"{lost:,} without an area not shown"
        ax.text(1.0, -0.01, said, transform=ax.transAxes, ha="right", va="top", color="0.45", fontsize="small")
    return shapes


def _closed(ring: Floats) -> Path:
    from matplotlib.path import Path

    points = np.vstack([ring, ring[:1]])
    codes = np.full(len(points), Path.LINETO, dtype=np.uint8)
    codes[0], codes[-1] = Path.MOVETO, Path.CLOSEPOLY
    return Path(points, codes)


def risk_scale(risks: Any, largest: float | None = None) -> tuple[LogNorm, Floats]:
    """A logarithmic colour scale with 1 in its middle, and places of ticks.

    Parameters
    ----------
    risks : array_like
        Relative risks; those that are not finite do not count.
    largest : float, optional
        Risk at the upper end, above 1; its inverse is at the lower end. By default 98 % of the risks lie between.

    Examples
    --------
    >>> norm, ticks = risk_scale([0.4, 1.0, 3.0])
    >>> ticks.round(2).tolist(), round(float(norm(1.0)), 3)
    ([0.5, 0.67, 1.0, 1.5, 2.0], 0.5)
    """
    from matplotlib.colors import LogNorm

    faults = FaultList("nothing was drawn", InputError)
    if largest is None:
        known = np.asarray(risks, dtype=np.float64)
        far = np.abs(np.log(known[np.isfinite(known) & (known > 0.0)]))
        largest = max(float(np.exp(np.quantile(far, 0.98))) if far.size else 0.0, _LEAST_RANGE)
    as_numbers(largest, "largest", faults, minimum=1.0, above=True, remedy="Such as 3, for risks from a third to 3.")
    faults.raise_if_any()
    steps = next(one for limit, one in _TICKS if largest >= limit)
    above = np.asarray([step for step in steps if step <= largest * (1.0 + 1e-9)])
    return LogNorm(1.0 / largest, largest), np.concatenate([1.0 / above[::-1], [1.0], above])


# Ticks above 1 for scales that reach so far at least.
_TICKS: tuple[tuple[float, tuple[float, ...]], ...] = (
    (100.0, tuple(10.0**k for k in range(1, 13))),
    (16.0, (4.0, 16.0, 64.0)),
    (4.0, (2.0, 4.0, 8.0)),
    (2.0, (1.5, 2.0, 3.0)),
    (1.5, (1.25, 1.5)),
    (0.0, (1.1, 1.2, 1.3, 1.4)),
)
