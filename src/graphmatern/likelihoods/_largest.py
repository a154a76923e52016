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

__all__ = ["grid_sizes", "largest_with_derivatives", "probability_of_largest", "trapezoids"]

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


def _above_others(
    label: NDArray[np.int64], mean: Floats, deviation: Floats, nodes: Floats
) -> tuple[NDArray[np.int64], Floats, Floats]:
    """Who the others are, their deviations, and z_c on the grid; (n_variables − 1, n), twice, and with the grid."""
    columns = np.arange(len(label))
    # The others, in any order.
    others = np.array([np.delete(np.arange(len(mean)), k) for k in range(len(mean))])[label].T
    m, s = mean[others, columns], deviation[others, columns]
    own = mean[label, columns] + deviation[label, columns] * nodes[:, None]
    return others, s, (own - m[:, None]) / s[:, None]


def probability_of_largest(label: NDArray[np.int64], mean: Floats, deviation: Floats, count: int) -> Floats:
    """Probability that the labelled variable is the largest, shape (n,); see `largest_with_derivatives`."""
    nodes, weights = trapezoids(count)
    _, _, z = _above_others(label, mean, deviation, nodes)
    return np.asarray(weights @ ndtr(z).prod(axis=0))


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
    others, s, z = _above_others(label, mean, deviation, nodes)
    below = ndtr(z)
    density = np.exp(-0.5 * z**2) * (1.0 / math.sqrt(2.0 * math.pi))
    # Products over all others but one, without dividing by what may be 0: those before times those after.
    before = np.empty_like(below)
    before[0] = 1.0
    np.cumprod(below[:-1], axis=0, out=before[1:])
    after = np.empty_like(below)
    after[-1] = 1.0
    after[:-1] = np.cumprod(below[:0:-1], axis=0)[::-1]
    probability = weights @ (before[-1] * below[-1])
    slope = before * after * density / s[:, None]
    in_mean, in_deviation = np.empty(mean.shape), np.empty(mean.shape)
    by_mean = np.einsum("q,cqn->cn", weights, slope)
    in_mean[others, columns] = -by_mean
    in_mean[label, columns] = by_mean.sum(axis=0)
    in_deviation[others, columns] = -np.einsum("q,cqn->cn", weights, slope * z)
    in_deviation[label, columns] = np.einsum("q,qn->n", weights * nodes, slope.sum(axis=0))
    return probability, in_mean, in_deviation
