"""Curves: calibration, spectra, correlation against distance."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy.special import ndtr

from graphmatern._validation import FaultList, as_numbers
from graphmatern.errors import TableError
from graphmatern.metrics import calibration_curve
from graphmatern.plotting._maps import new_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from numpy.typing import ArrayLike

    from graphmatern.kernels import BoundKernel

__all__ = ["plot_calibration", "plot_range", "plot_spectrum"]


def _plain(ax: Axes) -> None:
    """Leave only the frame's left and bottom lines."""
    ax.spines[["top", "right"]].set_visible(False)


def plot_calibration(
    y: ArrayLike, mean: ArrayLike, std: ArrayLike, ax: Axes | None = None, *, label: str | None = None
) -> Axes:
    """Draw how often values lie inside their central intervals, against how often they should.

    Parameters
    ----------
    y : array_like, shape (n,)
        Values that the predictions have not seen, such as ``y`` of ``model.loo()``.
    mean, std : array_like, shape (n,)
        Their predictions, with standard deviations of observations.
    ax : Axes, optional
        Where to draw; a new figure by default. Curves of several models may share axes.
    label : str, optional
        Name of the curve, for a legend.

    Returns
    -------
    Axes
        The grey band holds the curve of an ideal model with probability 95 % at each level, were the values
        independent of each other; neighbouring values are not, and stray further.

    Examples
    --------
    >>> import graphmatern as gm, numpy as np
    >>> y = np.random.default_rng(0).standard_normal(200)
    >>> ax = gm.plotting.plot_calibration(y, np.zeros(200), np.ones(200))
    """
    faults = FaultList("nothing was drawn", TableError)
    values, centre = as_numbers(y, "y", faults), as_numbers(mean, "mean", faults)
    spread = as_numbers(std, "std", faults, minimum=0.0, above=True)
    if values.ndim != 1 or not len(values) or not values.shape == centre.shape == spread.shape:
        received = f"shapes {values.shape}, {centre.shape}, {spread.shape}"
        faults.add(
            "y", "must be one-dimensional, and `mean` and `std` of the same shape", received, "One of each per value."
        )
    faults.raise_if_any()
    ax = new_axes(ax)
    levels = np.linspace(0.0, 1.0, 101)
    inside, low, high = calibration_curve(ndtr((values - centre) / spread), levels)
    if not ax.lines:
        ax.fill_between(levels, low, high, color="0.9", linewidth=0)
        ax.plot([0, 1], [0, 1], color="0.5", linewidth=1, linestyle=(0, (4, 3)))
    ax.plot(levels, inside, linewidth=2, label=label)
    ax.set(xlim=(0, 1), ylim=(0, 1), xlabel="probability of the interval", ylabel="share of values inside")
    ax.set_aspect(1.0)
    _plain(ax)
    return ax


def plot_spectrum(bound: BoundKernel, ax: Axes | None = None, *, label: str | None = None) -> Axes:
    """Draw how much prior variance lies on each eigenvector of the Laplacian.

    Parameters
    ----------
    bound : BoundKernel
        A kernel bound to a graph.
    ax : Axes, optional
        Where to draw; a new figure by default. Curves of several kernels may share axes.
    label : str, optional
        Name of the curve, for a legend; by default the kernel with the number of eigenpairs that hold 99 % of its
        variance, which are enough for the spectral engine.

    Returns
    -------
    Axes
        Variances a Ψ(λ) against eigenvalues λ, which are the ticks at the bottom.

    Examples
    --------
    >>> import graphmatern as gm
    >>> ax = gm.plotting.plot_spectrum(gm.Matern(lengthscale=3.0).on(gm.make_roads(50)))
    """
    ax = new_axes(ax)
    values = bound.spectrum.eigenvalues
    weights = bound.weights().detach().cpu().numpy()
    if label is None:
        held = np.cumsum(weights) / weights.sum()
        count = int(np.searchsorted(held, 0.99)) + 1
        label = f"{bound.kernel!r}\n99 % of the variance in {count:,} of {len(values):,} eigenpairs"
    first = not ax.lines
    marker = "o" if len(values) <= 50 else None
    seen = np.where(weights < weights.max() * 1e-8, np.nan, weights)  # the rest of a diffusion kernel is rounding
    ax.plot(values, seen, linewidth=2, marker=marker, markersize=4, label=label)
    if first:
        shown = values[np.unique(np.linspace(0, len(values) - 1, 400).astype(int))]
        heights = np.zeros(len(shown))
        ax.plot(shown, heights, "|", color="0.6", markersize=9, transform=ax.get_xaxis_transform(), clip_on=False)
    ax.set_yscale("log")
    which = "normalised Laplacian" if bound.spectrum.normalized else "Laplacian"
    ax.set(xlabel=f"eigenvalue of the {which}", ylabel="variance of the coefficient")
    ax.legend(frameon=False, loc="upper right", fontsize="small")
    _plain(ax)
    return ax


def plot_range(bound: BoundKernel, ax: Axes | None = None, *, label: str | None = None) -> Axes:
    """Draw how the correlation falls with distance along the edges.

    Parameters
    ----------
    bound : BoundKernel
        A kernel bound to a graph.
    ax : Axes, optional
        Where to draw; a new figure by default. Curves of several kernels may share axes.
    label : str, optional
        Name of the curve, for a legend; by default the kernel and the distance at which the correlation is one half.

    Returns
    -------
    Axes
        The median over pairs of nodes, in a band from quartile to quartile; see `BoundKernel.range`.

    Examples
    --------
    >>> import graphmatern as gm
    >>> ax = gm.plotting.plot_range(gm.Matern(lengthscale=3.0).on(gm.make_roads(50)))
    """
    found = bound.range()
    ax = new_axes(ax)
    if label is None:
        where = f"one half at {found.half:.3g}" if np.isfinite(found.half) else "never below one half"
        label = f"{bound.kernel!r}\n{where}"
    reach = 0.0 if not ax.lines else ax.get_xlim()[1]
    if not ax.lines:
        for level in (0.5, 0.1):
            ax.axhline(level, color="0.8", linewidth=1, linestyle=(0, (4, 3)), zorder=0)
    curves = {name: np.concatenate([[1.0], found.table[name]]) for name in ("low", "median", "high")}
    distance = np.concatenate([[0.0], found.table["distance"]])
    marker = "o" if len(distance) <= 3 else None
    (line,) = ax.plot(distance, curves["median"], linewidth=2, marker=marker, label=label)
    ax.fill_between(distance, curves["low"], curves["high"], color=line.get_color(), alpha=0.2, linewidth=0)
    unit = "in the unit of lengths" if found.unit == "length" else "in edges"
    ax.set(xlabel=f"distance along the graph, {unit}", ylabel="correlation")
    # Where hardly any correlation is left, there is nothing to see.
    ax.set_xlim(0.0, max(reach, min(distance[-1], 3.0 * found.tenth), 1e-9))
    ax.set_ylim(top=1.02)
    ax.legend(frameon=False, loc="upper right", fontsize="small")
    _plain(ax)
    return ax
