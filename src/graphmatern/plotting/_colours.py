"""Colour maps, the values at their ends, and the bars that explain them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from graphmatern._validation import FaultList
from graphmatern.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colorbar import Colorbar
    from matplotlib.colors import Colormap
    from numpy.typing import ArrayLike

__all__ = ["UNSURE", "add_colorbar", "colour_limits", "find_colours"]

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
