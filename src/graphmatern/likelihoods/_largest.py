"""The probability that one of several Gaussian variables is the largest, with its derivatives in closed form.

With x the standardised own variable and z_c = (m_y + s_y x − m_c) / s_c for each other,
P = ∫ φ(x) Π Φ(z_c) dx, ∂P/∂m_c = −∫ φ(x) φ(z_c) / s_c Π' Φ dx with c left out of the product, and so on. One pass over
a grid gives all of them, where differentiating through the graph of operations takes several.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import ndtr

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = ["common_grid", "grid_sizes", "largest_with_derivatives", "probabilities_of_largest", "trapezoids"]

REACH = 8.5  # standard deviations beyond which a normal density is 0 in float64
LARGEST_GRID = 600


def grid_sizes(ratios: Floats) -> NDArray[np.int64]:
    """Nodes that the trapezoidal rule needs for φ(x) Π Φ(r x + b), given Σ r² of each observation.

    In the complex plane that function grows no faster than exp((1 + Σ r²) |Im x|² / 2), so a step of h leaves an
    error of exp(−2π² / (h² (1 + Σ r²))): here 1e-12, up to the largest grid.
    """
    step = math.pi * np.sqrt(2.0 / (27.6 * (1.0 + ratios)))
    return np.asarray(np.minimum(LARGEST_GRID, np.ceil(2.0 * REACH / step) + 1), dtype=np.int64)


def trapezoids(count: int) -> tuple[Floats, Floats]:
    """Nodes and weights of the trapezoidal rule against the standard normal density."""
    nodes = np.linspace(-REACH, REACH, count)
    weights = np.exp(-0.5 * nodes**2)
    return nodes, weights / weights.sum()


def _products_of_others(factors: Floats) -> Floats:
    """Products over the first axis of all but one: those before times those after, as one of them may be 0."""
    before, after = np.empty_like(factors), np.empty_like(factors)
    before[0] = after[-1] = 1.0
    np.cumprod(factors[:-1], axis=0, out=before[1:])
    after[:-1] = np.cumprod(factors[:0:-1], axis=0)[::-1]
    before *= after
    return before


def common_grid(mean: Floats, deviation: Floats) -> tuple[Floats, Floats, NDArray[np.int64]]:
    """Where one grid for all variables begins and ends, and how many nodes it needs; each of shape (n,).

    Below the largest m − 8.5 s some variable is sure to be larger. The step follows from Σ s⁻² as in `grid_sizes`.
    """
    low, high = (mean - REACH * deviation).max(axis=0), (mean + REACH * deviation).max(axis=0)
    step = math.pi * np.sqrt(2.0 / (27.6 * (1.0 / deviation**2).sum(axis=0)))
    count = np.minimum(LARGEST_GRID, np.ceil((high - low) / step) + 1)
    return low, high, count.astype(np.int64)


def probabilities_of_largest(mean: Floats, deviation: Floats, low: Floats, high: Floats, count: int) -> Floats:
    """Probability of each of several independent Gaussian variables to be the largest.

    Parameters
    ----------
    mean, deviation : ndarray, shape (n_variables, n)
        Of the variables.
    low, high : ndarray, shape (n,)
        Ends of the grid; see `common_grid`.
    count : int
        Its nodes.

    Returns
    -------
    ndarray, shape (n_variables, n)
    """
    x = np.linspace(low, high, count)
    z = (x - mean[:, None]) / deviation[:, None]  # (n_variables, count, n)
    density = np.exp(-0.5 * z**2) * (1.0 / math.sqrt(2.0 * math.pi)) / deviation[:, None]
    return np.asarray((high - low) / (count - 1) * (density * _products_of_others(ndtr(z))).sum(axis=1))


def largest_with_derivatives(
    label: NDArray[np.int64], mean: Floats, deviation: Floats, count: int
) -> tuple[Floats, Floats, Floats]:
    """Probability that the labelled variable is the largest.

    Parameters
    ----------
    label : ndarray, shape (n,)
        Which variable.
    mean, deviation : ndarray, shape (n_variables, n)
        Of independent Gaussian variables.
    count : int
        Nodes of the grid.

    Returns
    -------
    probability : ndarray, shape (n,)
    in_mean, in_deviation : ndarray, shape (n_variables, n)
        Derivatives.
    """
    nodes, weights = trapezoids(count)
    columns = np.arange(len(label))
    # The others, in any order: (n_variables − 1, n).
    others = np.array([np.delete(np.arange(len(mean)), k) for k in range(len(mean))])[label].T
    m, s = mean[others, columns], deviation[others, columns]
    own = mean[label, columns] + deviation[label, columns] * nodes[:, None]
    z = (own - m[:, None]) / s[:, None]  # (n_variables − 1, count, n)
    below = ndtr(z)
    density = np.exp(-0.5 * z**2) * (1.0 / math.sqrt(2.0 * math.pi))
    rest = _products_of_others(below)
    probability = weights @ (rest[-1] * below[-1])
    slope = rest * density / s[:, None]
    in_mean, in_deviation = np.empty(mean.shape), np.empty(mean.shape)
    by_mean = np.einsum("q,cqn->cn", weights, slope)
    in_mean[others, columns] = -by_mean
    in_mean[label, columns] = by_mean.sum(axis=0)
    in_deviation[others, columns] = -np.einsum("q,cqn->cn", weights, slope * z)
    in_deviation[label, columns] = np.einsum("q,qn->n", weights * nodes, slope.sum(axis=0))
    return probability, in_mean, in_deviation
