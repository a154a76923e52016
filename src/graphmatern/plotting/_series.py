"""Curves over time: a prediction with its uncertainty, and what was observed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from graphmatern.metrics import half_width
from graphmatern.plotting._maps import new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import ArrayLike

__all__ = ["plot_series"]


def plot_series(
    times: Any,
    mean: ArrayLike,
    std: ArrayLike | None,
    ax: Axes | None = None,
    *,
    band: tuple[ArrayLike, ArrayLike] | None = None,
    observed: tuple[Any, ArrayLike] | None = None,
    level: float = 0.95,
    label: str = "",
) -> Axes:
    """Draw a prediction over time as a line in a band, and observations as dots.

    Parameters
    ----------
    times : sequence of numbers or dates, shape (n_times,)
        Increasing times.
    mean : array_like, shape (n_times,)
        Predictions.
    std : array_like, shape (n_times,), optional
        Their standard deviations; not needed if ``band`` is given.
    ax : Axes, optional
        Where to draw; a new figure by default.
    band : tuple of array_like, each of shape (n_times,), optional
        Lower and upper end of the band; by default that of normal predictions.
    observed : tuple of (times, values), optional
        Observations.
    level : float
        Probability of the band.
    label : str
        What is predicted, with its unit.

    Returns
    -------
    Axes

    Examples
    --------
    >>> import graphmatern as gm, numpy as np
    >>> axes = gm.plotting.plot_series([0.0, 1.0, 2.0], [0.0, 1.0, 0.5], np.ones(3), observed=([1.0], [1.2]))
    """
    ax = new_axes(ax)
    middle = np.asarray(mean, dtype=np.float64)
    if band is None:
        half = half_width(level) * np.asarray(std, dtype=np.float64)
        band = middle - half, middle + half
    (line,) = ax.plot(times, middle, linewidth=1.8, label="mean")
    name, colour = f"{100 * level:g} % interval", line.get_color()
    ax.fill_between(times, *band, color=colour, alpha=0.2, linewidth=0, label=name)
    if observed is not None:
        ax.plot(*observed, linestyle="", marker="o", markersize=4, color="black", label="observed", zorder=3)
    if isinstance(times, pd.DatetimeIndex):
        from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

        locator = AutoDateLocator(tz=times.tz, maxticks=8)  # type: ignore[no-untyped-call]
        ax.xaxis.set_major_locator(locator)
        ax.xaxis.set_major_formatter(ConciseDateFormatter(locator, tz=times.tz))  # type: ignore[no-untyped-call]
    ax.spines[["top", "right"]].set_visible(False)
    ax.set_ylabel(label)
    ax.legend(frameon=False, fontsize="small")
    return ax
