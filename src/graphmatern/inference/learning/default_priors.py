"""Weak priors for parameters that have none: whoever integrates over parameters needs proper ones."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from graphmatern.inference.learning.integrate import is_normal
from graphmatern.inference.learning.parameters import PriorsAndBounds
from graphmatern.inference.learning.priors import Beta, LogNormal, PCPrior
from graphmatern.kernels import ArealKernel
from graphmatern.likelihoods import Categorical, Gaussian, StudentT

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from graphmatern.graph import Graph
    from graphmatern.inference.learning.priors import Prior
    from graphmatern.inference.learning.problem import Problem

    Floats = NDArray[np.float64]

__all__ = ["default_priors", "variance_of", "weak_priors", "with_default_priors"]

_VARIANCE_OF_CLASSES = 20.0  # centre of its prior; see `default_priors`


def default_priors(problem: Problem) -> dict[str, Prior]:
    """Weak priors for parameters that have none: proper, and of the scale of the data and of the graph.

    * nu: log-normal around 1.5, between 0.2 and 11 with 95 %; smoother processes are all alike.
    * lengthscale: log-normal around the geometric mean of one edge and √N edges, about the width of a road map, within
      a factor of 13 with 95 %: shorter ones are noise, longer ones a constant. An edge is one of typical weight.
    * variance: log-normal around the variance of the data (1 for rates), within a factor of 19 with 95 %: over a
      lengthscale longer than the graph, the process varies more than the data show. For classes around 20: beside noise
      of variance 1, arctan(1 / √20) / π = 7 % of labels are then not what the process says; between 25 % and 1.6 %.
    * noise: log-normal around a tenth of the variance of the data, within a factor of 28 with 95 %; for Student's t
      the scale is that of a standard deviation, and df − 2 is around 8, within a factor of 20.
    * dispersion of counts: log-normal around 0.3, within a factor of 19. Laziness is Beta(2, 2), the share
      of zeros uniform.
    * of features, smoothing is log-normal around three edges, within a factor of 7 with 95 %, and bandwidth around 1.
    * of areas, mixing is Beta(1/2, 1/2), and the standard deviation has a `PCPrior`: above 1 with 1 % for rates and
      classes (Simpson et al. 2017), above three times that of the data for measurements.
    """
    spread = _variance_of_data(problem)
    found = weak_priors(problem.graph, bool(problem.normalized), problem.rules, spread)
    if isinstance(problem.kernel, ArealKernel) and not problem.rules.concern("variance"):
        measured = isinstance(problem.likelihood, Gaussian | StudentT)
        found["variance"] = PCPrior(above=3.0 * float(np.sqrt(spread)) if measured else 1.0, probability=0.01)
    return found


def weak_priors(graph: Graph, normalized: bool, rules: PriorsAndBounds, spread: float) -> dict[str, Prior]:
    """`default_priors` on one of a graph's Laplacians, where the data have a given variance, ``spread``."""
    neighbours = max(2.0 * graph.n_edges / graph.n_nodes, 1e-3)
    typical = float(graph.laplacian(normalized).diagonal().mean()) / neighbours
    edge = 1.0 / np.sqrt(typical) if typical > 0 else 1.0
    usual: dict[str, Prior] = {
        "nu": LogNormal(1.5, 1.0),
        "lengthscale": LogNormal(edge * graph.n_nodes**0.25, 1.3),
        "variance": LogNormal(spread, 1.5),
        "noise": LogNormal(0.1 * spread, 1.7),
        "scale": LogNormal(float(np.sqrt(0.1 * spread)), 0.85),
        "df": LogNormal(8.0, 1.5),
        "dispersion": LogNormal(0.3, 1.5),
        "laziness": Beta(2.0, 2.0),
        "mixing": Beta(0.5, 0.5),
        "zeros": Beta(1.0, 1.0),
        "smoothing": LogNormal(3.0 * edge, 1.0),
        "bandwidth": LogNormal(1.0, 1.0),
    }
    for word, (low, high) in rules.bounds.items():
        if word in usual and word not in ("laziness", "mixing", "zeros"):  # whoever gives bounds knows more than we do
            usual[word] = LogNormal(float(np.sqrt(low) * np.sqrt(high)), 0.5 * float(np.log(high / low)))
    return usual | dict(rules.priors)


def _variance_of_data(problem: Problem) -> float:
    """Of numbers, around their mean unless the model has none; 1 for rates and where all are alike; see above."""
    if isinstance(problem.likelihood, Categorical):
        return _VARIANCE_OF_CLASSES
    if not isinstance(problem.likelihood, Gaussian | StudentT):
        return 1.0
    y = problem.observations.y[~np.isnan(problem.observations.y)]
    return variance_of(y, bool(problem.observations.n_effects), robust=isinstance(problem.likelihood, StudentT))


def variance_of(y: Floats, constant: bool, *, robust: bool = False) -> float:
    """Variance of numbers, around their mean unless the model has none; 1 where all are alike."""
    if robust:
        centre = float(np.median(y)) if constant else 0.0
        found = float(np.median(np.abs(y - centre)) / 0.6745) ** 2
    else:
        found = float(np.mean((y - (float(y.mean()) if constant else 0.0)) ** 2))
    return found if 1e-12 < found < np.inf else 1.0


def with_default_priors(problem: Problem) -> Problem:
    """The problem with proper priors for all of its parameters.

    On large graphs the variance has none: it would take factorisations, and many observations say what it is.
    """
    priors = default_priors(problem)
    if is_normal(problem) and not problem.rules.concern("variance"):
        del priors["variance"]
    return replace(problem, rules=PriorsAndBounds(problem.rules.bounds, priors))
