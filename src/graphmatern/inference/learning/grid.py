"""A density of up to three parameters on a grid around its mode.

On a grid whose steps are about a standard deviation along the axes of the curvature, sums of a smooth density with one
mode are as exact as integrals (the trapezoidal rule converges faster than any power of the step). The grid grows from
the mode to wherever the density is not yet small, so that skewness and long tails are followed.
"""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
from scipy.special import logsumexp

from graphmatern.inference.learning.explore import Explored

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from graphmatern.inference.learning.parameters import Coordinate

    Floats = NDArray[np.float64]

__all__ = ["MOST_PARAMETERS", "explore_grid"]

MOST_PARAMETERS = 3
_STEPS = {1: 0.6, 2: 0.9, 3: 1.1}  # in standard deviations, by the number of parameters
_GROWS = 4.0  # nats below the top, down to which points get neighbours
_LEAST_CURVATURE = 0.15  # of an axis; less is a tail, not a scale
_MOST_POINTS = 400


def explore_grid(
    log_density: Callable[[Floats], float], mode: Floats, hessian: Floats, coordinates: Sequence[Coordinate]
) -> Explored:
    """Evaluate a density on a grid.

    Parameters
    ----------
    log_density : callable
        Up to a constant; −∞ where it cannot be computed.
    mode : ndarray, shape (d,)
        Where it is largest, about; d is at most 3.
    hessian : ndarray, shape (d, d)
        Of the negative log density there, about.
    coordinates : sequence of Coordinate
        Bounds.
    """
    d = len(mode)
    low, high = np.array([(one.low, one.high) for one in coordinates]).T
    curvatures, vectors = np.linalg.eigh(hessian)
    axes = _STEPS[d] * vectors / np.sqrt(np.maximum(curvatures, _LEAST_CURVATURE))

    def evaluate(place: tuple[int, ...]) -> float:
        at = mode + axes @ np.array(place)
        return log_density(at) if ((at >= low) & (at <= high)).all() else -np.inf

    origin = (0,) * d
    values = {origin: evaluate(origin)}
    top = values[origin]
    waiting = [(-top, origin)]  # the most likely first, so that what is passed over matters least
    ways = [tuple(sign * (k == axis) for k in range(d)) for axis, sign in product(range(d), (-1, 1))]
    while waiting and len(values) < _MOST_POINTS:
        negative, place = heappop(waiting)
        if -negative < top - _GROWS:
            break
        for way in ways:
            near = tuple(a + b for a, b in zip(place, way, strict=True))
            if near not in values:
                values[near] = evaluate(near)
                top = max(top, values[near])
                heappush(waiting, (-values[near], near))
    points = mode + np.array(list(values)) @ axes.T
    logs = np.array(list(values.values()))
    kept = np.isfinite(logs)
    total = float(logsumexp(logs[kept]))
    log_cell = float(np.linalg.slogdet(axes)[1])
    return Explored(points[kept], np.exp(logs[kept] - total), logs[kept], total + log_cell)
