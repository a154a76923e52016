"""The prior of BYM2's mixing that penalises complexity, which depends on the map.

With R the scaled intrinsic covariance, areas have the covariance Σ(ρ) = (1 − ρ)I + ρR, and ρ = 0 is the simple model.
The distance d(ρ) = √(2 KL) with 2 KL = tr Σ − N − log det Σ is exponential (Riebler, Sørbye, Simpson and Rue 2016).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import scipy
from scipy.special import expit

from graphmatern._validation import FaultList
from graphmatern.errors import KernelError
from graphmatern.inference.learning.priors import Prior
from graphmatern.inference.learning.problem import Problem
from graphmatern.inference.markov.areal import IntrinsicEngine
from graphmatern.inference.observations import Observations
from graphmatern.kernels import ICAR
from graphmatern.likelihoods import Gaussian

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from graphmatern.graph import Graph
    from graphmatern.inference.learning.priors import PCPrior

    Floats = NDArray[np.float64]

__all__ = ["MixingPrior", "mixing_prior"]

# Logits of ρ between which the density is tabulated; beyond, its logarithm goes on straight.
_LOW, _HIGH, _STEPS = -8.0, 12.0, 61


class MixingPrior(Prior):
    """A density of logit ρ by its table.

    Parameters
    ----------
    x : ndarray, shape (n,)
        Logits of ρ, increasing.
    log_distance, slope : ndarray, shape (n,)
        Log d there, and its derivative in the logit.
    rate : float
        Of the exponential distribution of d.
    """

    suits = ("mixing",)

    def __init__(self, x: Floats, log_distance: Floats, slope: Floats, rate: float) -> None:
        self._x, self._log_distance, self._rate = x, log_distance, rate
        values = np.log(rate) - rate * np.exp(log_distance) + log_distance + np.log(slope)
        self._table = scipy.interpolate.CubicSpline(x, values)

    def log_density(self, x: Floats) -> tuple[Floats, Floats, Floats]:
        """From the table; see `Prior.log_density`."""
        inside = np.clip(x, self._x[0], self._x[-1])
        slope = self._table(inside, 1)
        value = self._table(inside) + slope * (x - inside)
        return value, slope, np.where(x == inside, self._table(inside, 2), 0.0)

    def quantile(self, share: Floats) -> Floats:
        """Quantiles of the logit."""
        wanted = np.log(-np.log1p(-np.asarray(share)) / self._rate)
        inside = np.clip(wanted, self._log_distance[0], self._log_distance[-1])
        found = scipy.interpolate.CubicSpline(self._log_distance, self._x)(inside)
        below = np.minimum(wanted - self._log_distance[0], 0.0)
        end = (self._log_distance[-1] - self._log_distance[-2]) / (self._x[-1] - self._x[-2])
        return np.asarray(found + below + np.maximum(wanted - self._log_distance[-1], 0.0) / end)


def mixing_prior(graph: Graph, prior: PCPrior) -> MixingPrior:
    """Prior of BYM2's mixing on a graph, such that it is below ``prior.below`` with ``prior.probability``.

    Parameters
    ----------
    graph : Graph
        The map.
    prior : PCPrior
        Of which ``below`` is a share.
    """
    x, log_distance, slope = graph.cached("distances of mixing", lambda: _distances(graph))
    assert prior.below is not None
    at = float(np.log(prior.below) - np.log1p(-prior.below))
    log_at = float(scipy.interpolate.CubicSpline(x, log_distance)(np.clip(at, x[0], x[-1]))) + min(
        at - float(x[0]), 0.0
    )
    return MixingPrior(x, log_distance, slope, float(-np.log1p(-prior.probability) / np.exp(log_at)))


def _distances(graph: Graph) -> tuple[Floats, Floats, Floats]:
    """Logits x of ρ, log d there, and its derivative in x."""
    n = graph.n_nodes
    if graph.n_edges == 0:
        faults = FaultList("nothing was fitted", KernelError)
        remedy = "Without neighbours there is nothing to mix."
        raise faults.raise_now("priors", "of mixing must be on a graph with edges", "none", remedy)
    everywhere = Observations(np.arange(n), np.zeros((n, 1)), np.zeros((n, 0)))
    problem = Problem(graph, ICAR(1.0), Gaussian(), everywhere)
    engine = IntrinsicEngine(problem, everywhere.groups)
    mean_variance = engine.average_variance(np.zeros(1))
    grid, half, slopes = np.linspace(_LOW, _HIGH, _STEPS), [], []
    for x in grid:
        # log det Σ = N log(1 − ρ) + log det (I + e^x R): ρ / (1 − ρ) is the variance of an intrinsic process.
        rho = float(expit(x))
        conditioned = engine.at(np.array([x])).condition(0, np.ones(n))
        solution = conditioned.solve(np.zeros((n, 1)))
        in_log = 2.0 * float(conditioned.gradient(solution, np.zeros((1, 1)))[0])
        half.append(n * rho * (mean_variance - 1.0) - n * np.log1p(-rho) - conditioned.log_determinant)
        slopes.append(n * rho * (1.0 - rho) * (mean_variance - 1.0) + n * rho - in_log)
    twice = np.maximum(np.array(half), 1e-300)  # 2 KL = d², whose derivative is 2 d d′
    engine.release()
    return grid, 0.5 * np.log(twice), np.maximum(np.array(slopes) / (2.0 * twice), 1e-12)
