"""What is known about parameters, and whether predictions are calibrated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from graphmatern._validation import FaultList, as_numbers, check_whole
from graphmatern.errors import TableError
from graphmatern.plotting._maps import new_axes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matplotlib.axes import Axes
    from numpy.typing import ArrayLike, NDArray

__all__ = ["plot_hyperparameters", "plot_pit"]

_BANDWIDTH = 0.35  # of marginals, in standard deviations of the logarithm


def plot_hyperparameters(
    values: Mapping[str, ArrayLike],
    weights: ArrayLike | None = None,
    axes: Any = None,
    *,
    mode: Mapping[str, float] | None = None,
) -> NDArray[Any]:
    """Draw the marginal density of every parameter, and every pair of parameters, on logarithmic axes.

    Parameters
    ----------
    values : mapping of str to array_like, each of shape (n,)
        Positive values of each parameter, at points that represent their joint distribution.
    weights : array_like, shape (n,), optional
        Of these points; equal by default.
    axes : ndarray of Axes, shape (d, d), optional
        Where to draw; a new figure by default.
    mode : mapping of str to float, optional
        The most likely values, drawn as lines.

    Returns
    -------
    ndarray of Axes, shape (d, d)
        Marginals on the diagonal, pairs below it; the area of a point is its weight.

    Examples
    --------
    >>> import graphmatern as gm, numpy as np
    >>> rng = np.random.default_rng(0)
    >>> draws = {"sigma": np.exp(rng.standard_normal(50)), "noise": np.exp(rng.standard_normal(50))}
    >>> gm.plotting.plot_hyperparameters(draws).shape
    (2, 2)
    """
    import matplotlib.pyplot as plt

    faults = FaultList("nothing was drawn", TableError)
    numbers = {name: as_numbers(given, name, faults, minimum=0.0, above=True) for name, given in values.items()}
    sizes = {len(np.atleast_1d(one)) for one in numbers.values()}
    count = sizes.pop() if len(sizes) == 1 else 0
    share = np.ones(count) if weights is None else as_numbers(weights, "weights", faults, minimum=0.0)
    if not count or share.shape != (count,):
        received = ", ".join(f"{name} {one.shape}" for name, one in numbers.items()) or "none"
        faults.add(
            "values", "must be arrays of one length, and `weights` of the same length", received, "One per point."
        )
    faults.raise_if_any()
    share = share / share.sum()
    names, d = list(numbers), len(numbers)
    if axes is None:
        _, axes = plt.subplots(d, d, figsize=(2.2 * d + 0.8, 2.0 * d + 0.6), squeeze=False, layout="constrained")
    grid: NDArray[Any] = np.asarray(axes).reshape(d, d)
    for row, name in enumerate(names):
        for column, other in enumerate(names):
            ax = grid[row, column]
            if column > row:
                ax.set_visible(False)
                continue
            ax.set_xscale("log")
            ax.spines[["top", "right"]].set_visible(False)
            if row == column:
                _draw_marginal(ax, np.log(numbers[name]), share)
                if mode is not None and name in mode:
                    ax.axvline(mode[name], color="0.5", linewidth=1, linestyle=(0, (4, 3)))
            else:
                area = 120.0 * share / share.max()
                ax.scatter(numbers[other], numbers[name], s=area, color="C0", alpha=0.4, linewidth=0)
                ax.set_yscale("log")
            if row == d - 1:
                ax.set_xlabel(other)
            if column == 0 and row:
                ax.set_ylabel(name)
    return grid


def _draw_marginal(ax: Axes, logs: NDArray[np.float64], share: NDArray[np.float64]) -> None:
    """A weighted sum of normal densities of the logarithm."""
    mean = float(share @ logs)
    width = _BANDWIDTH * max(float(np.sqrt(share @ (logs - mean) ** 2)), 1e-6)
    grid = np.linspace(logs[share > 1e-4].min() - 3 * width, logs[share > 1e-4].max() + 3 * width, 200)
    density = np.exp(-0.5 * ((grid[:, None] - logs) / width) ** 2) @ share
    ax.fill_between(np.exp(grid), density, color="C0", alpha=0.25, linewidth=0)
    ax.plot(np.exp(grid), density, color="C0", linewidth=2)
    ax.set_yticks([])
    ax.set_ylim(bottom=0.0)


def plot_pit(pit: ArrayLike, ax: Axes | None = None, *, n_bins: int = 10, label: str | None = None) -> Axes:
    """Draw the histogram of probability integral transforms: flat if predictions are calibrated.

    Parameters
    ----------
    pit : array_like, shape (n,)
        Probabilities that predictions gave to values below the observed ones, such as ``model.loo()["pit"]``.
    ax : Axes, optional
        Where to draw; a new figure by default.
    n_bins : int
        Number of bins.
    label : str, optional
        Name of the bars, for a legend.

    Returns
    -------
    Axes
        A hump in the middle means that predictions are underconfident, peaks at both ends that they are overconfident.
        The grey band holds a bar of an ideal model with probability 95 %, if the values were independent.

    Examples
    --------
    >>> import graphmatern as gm, numpy as np
    >>> ax = gm.plotting.plot_pit(np.random.default_rng(0).random(200))
    """
    faults = FaultList("nothing was drawn", TableError)
    values = as_numbers(pit, "pit", faults, minimum=0.0)
    check_whole("n_bins", n_bins, faults, minimum=2, remedy="10 is usual.")
    if values.ndim != 1 or not len(values) or (values > 1.0).any():
        faults.add("pit", "must be one-dimensional, of shares from 0 to 1", f"shape {values.shape}", "See `loo`.")
    faults.raise_if_any()
    ax = new_axes(ax)
    from scipy.stats import binom  # takes long to import

    low, high = (float(binom.ppf(q, len(values), 1.0 / n_bins)) for q in (0.025, 0.975))
    ax.axhspan(low, high, color="0.9", linewidth=0, zorder=0)
    ax.axhline(len(values) / n_bins, color="0.5", linewidth=1, linestyle=(0, (4, 3)))
    ax.hist(values, bins=n_bins, range=(0.0, 1.0), color="C0", alpha=0.6, edgecolor="white", label=label)
    ax.set(xlim=(0, 1), xlabel="probability integral transform", ylabel="observations")
    ax.spines[["top", "right"]].set_visible(False)
    return ax
