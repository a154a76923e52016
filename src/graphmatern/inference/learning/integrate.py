"""Parameters integrated, not plugged in: p(f | y) = ∫ p(f | θ, y) p(θ | y) dθ as a mixture over a few θ.

Whoever integrates needs proper priors. Parameters for which the caller gave none have weak ones, of the scale of the
data and of the graph (`default_priors`); the search for the mode uses the same density that is integrated.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import logsumexp

from graphmatern.errors import NumericalError
from graphmatern.inference.learning.explore import Explored, explore, few_of, normal_points
from graphmatern.inference.learning.grid import MOST_PARAMETERS, explore_grid
from graphmatern.inference.learning.optimize import curvature
from graphmatern.inference.learning.parameters import PriorsAndBounds
from graphmatern.inference.learning.priors import Beta, LogNormal, PCPrior
from graphmatern.inference.mixture import Mixture
from graphmatern.inference.threads import small_matrix_threads
from graphmatern.kernels import ArealKernel
from graphmatern.likelihoods import Gaussian, StudentT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from graphmatern.inference.learning.optimize import Optimum
    from graphmatern.inference.learning.parameters import Coordinate, Objective
    from graphmatern.inference.learning.priors import Prior
    from graphmatern.inference.learning.problem import Problem
    from graphmatern.inference.process import Engine
    from graphmatern.kernels import Kernel
    from graphmatern.likelihoods import Likelihood

    Floats = NDArray[np.float64]

__all__ = [
    "Component",
    "Integrated",
    "Searched",
    "default_priors",
    "integrate",
    "is_worth_it",
    "recompose",
    "with_default_priors",
]

_MOST_OBSERVATIONS, _MOST_NODES, _MOST_NODES_OF_MOMENTS = 2_000, 60_000, 3_000  # beyond, "auto" does not integrate
_POINTS = (48, 96, 160, 256)  # for one, two, three and more parameters, where evaluations take next to no time
_CHEAP = 160  # observations
_KEPT, _KEPT_SOME, _KEPT_FEW = 24, 12, 8  # components of the mixture; where they differ less; where they take long
_HOPELESS = 8.0  # nats by which a candidate is worse than the best, so that it has no part in the mixture
_LEAST_WEIGHT = 1e-3  # of a component


# ---------------------------------------------------------------------- priors and decisions
def default_priors(problem: Problem) -> dict[str, Prior]:
    """Weak priors for parameters that have none: proper, and of the scale of the data and of the graph.

    * nu: log-normal around 1.5, between 0.2 and 11 with 95 %; smoother processes are all alike.
    * lengthscale: log-normal around the geometric mean of one edge and √N edges, about the width of a road map, within
      a factor of 13 with 95 %: shorter ones are noise, longer ones a constant. An edge is one of typical weight.
    * variance: log-normal around the variance of the data (1 for classes and rates), within a factor of 19 with 95 %:
      over a lengthscale longer than the graph, the process varies more than the data show.
    * noise: log-normal around a tenth of the variance of the data, within a factor of 28 with 95 %; for Student's t
      the scale is that of a standard deviation, and df − 2 is around 8, within a factor of 20.
    * dispersion of counts: log-normal around 0.3, within a factor of 19. Laziness is Beta(2, 2), the share
      of zeros uniform.
    * of areas, mixing is Beta(1/2, 1/2), and the standard deviation has a `PCPrior`: above 1 with 1 % for rates and
      classes (Simpson et al. 2017), above three times that of the data for measurements.
    """
    graph, rules = problem.graph, problem.rules
    neighbours = max(2.0 * graph.n_edges / graph.n_nodes, 1e-3)
    typical = float(graph.laplacian(bool(problem.normalized)).diagonal().mean()) / neighbours
    edge = 1.0 / np.sqrt(typical) if typical > 0 else 1.0
    spread = _variance_of_data(problem)
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
    }
    if isinstance(problem.kernel, ArealKernel):
        typical = isinstance(problem.likelihood, Gaussian | StudentT)
        usual["variance"] = PCPrior(above=3.0 * float(np.sqrt(spread)) if typical else 1.0, probability=0.01)
    for word, (low, high) in rules.bounds.items():
        if word in usual and word not in ("laziness", "mixing", "zeros"):  # whoever gives bounds knows more than we do
            usual[word] = LogNormal(float(np.sqrt(low) * np.sqrt(high)), 0.5 * float(np.log(high / low)))
    return usual | dict(rules.priors)


def _variance_of_data(problem: Problem) -> float:
    """Of numbers, around their mean unless the model has none; 1 for rates and classes, and where all are alike."""
    if not isinstance(problem.likelihood, Gaussian | StudentT):
        return 1.0
    y = problem.observations.y[~np.isnan(problem.observations.y)]
    centre = float(np.median(y)) if problem.observations.n_effects else 0.0
    if isinstance(problem.likelihood, Gaussian):
        found = float(np.mean((y - (float(y.mean()) if problem.observations.n_effects else 0.0)) ** 2))
    else:
        found = float(np.median(np.abs(y - centre)) / 0.6745) ** 2
    return found if 1e-12 < found < np.inf else 1.0


def is_worth_it(problem: Problem, engine: str) -> bool:
    """Whether integrating costs at most a few times the fit, and can matter.

    It adds about a share of (number of parameters) / (number of observations) to the variances; with thousands of
    observations nobody sees that. Through moments, every component of the mixture predicts by products of its own.
    """
    most = _MOST_NODES_OF_MOMENTS if engine == "moments" else _MOST_NODES
    return problem.observations.count <= _MOST_OBSERVATIONS and problem.graph.n_nodes <= most


def with_default_priors(problem: Problem) -> Problem:
    """The problem with proper priors for all of its parameters.

    On large graphs the variance has none: it would take factorisations, and many observations say what it is.
    """
    priors = default_priors(problem)
    if _is_normal(problem) and not problem.rules.concern("variance"):
        del priors["variance"]
    return replace(problem, rules=PriorsAndBounds(problem.rules.bounds, priors))


def _is_normal(problem: Problem) -> bool:
    """Whether there are so many observations on so many nodes that the density is taken to be normal."""
    return problem.observations.count > _MOST_OBSERVATIONS and problem.graph.n_nodes > _MOST_NODES


def _n_points(problem: Problem, n_parameters: int) -> int:
    """How many points are evaluated: fewer where each takes longer, and the density is closer to normal."""
    most = _POINTS[min(n_parameters, len(_POINTS)) - 1] if n_parameters else 1
    count = problem.observations.count
    share = float(np.clip(_CHEAP / count, 0.25, 1.0))
    return max(24, round(most * share * (1.0 if problem.exact else 0.4)))


# ---------------------------------------------------------------------- integration
@dataclass(frozen=True, eq=False)
class Searched:
    """An engine's candidate whose mode was found.

    Attributes
    ----------
    engine : Engine
        The candidate.
    objective : GaussianObjective or SiteObjective
        Negative log evidence.
    penalised : callable
        With priors.
    optimum : Optimum
        The mode.
    """

    engine: Engine
    objective: Any
    penalised: Objective
    optimum: Optimum

    @property
    def coordinates(self) -> list[Coordinate]:
        """What was learned."""
        return [*self.engine.coordinates, *self.objective.coordinates]

    @property
    def own(self) -> Floats:
        """The engine's coordinates at the mode."""
        return self.optimum.position[: len(self.engine.coordinates)]

    def log_prior(self, position: Floats) -> float:
        """Log prior of the parameters, and of what distinguishes the engine among its candidates."""
        pairs = zip(self.coordinates, position, strict=True)
        own = -sum(one.prior.penalty(float(x))[0] for one, x in pairs if one.prior is not None)
        return own + self.engine.log_prior()


@dataclass(frozen=True, eq=False)
class Component:
    """One set of parameters of the mixture.

    Attributes
    ----------
    kernel : Kernel
        At these parameters; it tells candidates apart.
    position : ndarray, shape (d,)
        Coordinates.
    weight : float
        All weights add up to 1.
    value : float
        Negative log evidence.
    sites : list of ndarray, optional
        Unless these are Gaussian noise.
    """

    kernel: Kernel
    position: Floats
    weight: float
    value: float
    sites: list[Floats] | None = None


@dataclass(frozen=True, eq=False)
class Integrated:
    """What is known of the parameters.

    Attributes
    ----------
    posterior : Mixture, optional
        Processes and coefficients; None while it is yet to be made.
    components : list of Component
        What it is made of.
    draws : dict of str to ndarray, each of shape (n,)
        Values of the parameters at all points that were evaluated, in normalised units.
    weights : ndarray, shape (n,)
        Of these.
    log_evidence : float
        Log marginal likelihood of the normalised values, the parameters integrated out.
    effective : float
        As many independent draws would know as much about the parameters.
    """

    posterior: Mixture | None
    components: list[Component]
    draws: dict[str, Floats] = field(default_factory=dict)
    weights: Floats = field(default_factory=lambda: np.ones(1))
    log_evidence: float = np.nan
    effective: float = 1.0


def integrate(problem: Problem, searched: Sequence[Searched], likelihood: Likelihood) -> Integrated:
    """Integrate over the parameters, of all candidates that have a part in it.

    Parameters
    ----------
    problem : Problem
        What was fitted, with priors of all parameters.
    searched : sequence of Searched
        Candidates with their modes, the best first.
    likelihood : Likelihood
        At the mode, for what is said about one.
    """
    heights = np.array([one.engine.log_prior() - one.optimum.value for one in searched])
    kept = [one for one, height in zip(searched, heights, strict=True) if height > heights.max() - _HOPELESS]
    explored = [_explore(problem, one) for one in kept]
    logs = np.array([own.log_integral + one.engine.log_prior() for one, own in zip(kept, explored, strict=True)])
    shares = np.exp(logs - logsumexp(logs))
    # Priors of candidates, such as integer smoothnesses, are relative to those of all that were tried.
    every = logsumexp([one.engine.log_prior() for one in searched])
    slow = problem.likelihood.n_latents > 1 or kept[0].engine.name == "moments"
    budget = _KEPT_FEW if slow else _KEPT_SOME if problem.observations.count > _CHEAP else _KEPT
    components: list[Component] = []
    makers = []
    for one, own, share in zip(kept, explored, shares, strict=True):
        if share < _LEAST_WEIGHT:
            continue
        chosen, weights = few_of(own, max(4, round(budget * share)))
        for place, weight in zip(chosen, weights, strict=True):
            if weight < _LEAST_WEIGHT:
                continue
            component = _component(one, own, int(place), share * float(weight))
            components.append(component)
            makers.append(partial(one.objective.posterior, component.position, component.sites))
        one.engine.release()
    weights = np.array([component.weight for component in components])
    draws, all_weights = _draws(kept, explored, shares) if not _is_normal(problem) else ({}, np.ones(1))
    return Integrated(
        Mixture(makers, weights / weights.sum(), likelihood),
        components,
        draws,
        all_weights,
        float(logsumexp(logs) - every),
        float(1.0 / np.sum(all_weights**2)),
    )


def _explore(problem: Problem, searched: Searched) -> Explored:
    """Points for one candidate."""

    def log_density(position: Floats) -> float:
        try:
            return float(-searched.objective.value(position) + searched.log_prior(position) - own_prior)
        except NumericalError:
            return -np.inf

    own_prior, coordinates = searched.engine.log_prior(), searched.coordinates
    mode = searched.optimum.position
    low, high = np.array([(one.low, one.high) for one in coordinates]).reshape(-1, 2).T
    with small_matrix_threads(searched.engine.matrix_size):
        hessian = np.eye(len(mode))
        if len(mode):
            step = 1e-3
            inside = np.clip(mode, low + step, high - step)
            try:
                hessian = _curvature(searched, inside, step)
            except NumericalError:
                hessian = np.eye(len(mode))
        if _is_normal(problem) and len(mode):
            return normal_points(-searched.optimum.value, mode, hessian, coordinates)
        # Kernels of areas have one mode and few parameters.
        if isinstance(problem.kernel, ArealKernel) and 0 < len(mode) <= MOST_PARAMETERS:
            return explore_grid(log_density, mode, hessian, coordinates)
        return explore(log_density, mode, hessian, coordinates, _n_points(problem, len(mode)))


def _curvature(searched: Searched, position: Floats, step: float) -> Floats:
    """Of the negative log density: the Fisher information where it is known, else by differences."""
    if searched.objective.information is None:
        return curvature(searched.penalised, position, step)
    searched.objective(position)
    pairs = zip(searched.coordinates, position, strict=True)
    of_priors = [0.0 if one.prior is None else one.prior.curvature(float(x)) for one, x in pairs]
    return np.asarray(searched.objective.information() + np.diag(of_priors))


def _component(searched: Searched, explored: Explored, place: int, weight: float) -> Component:
    """One of the points, with its sites."""
    position, engine = explored.points[place], searched.engine
    sites = None
    if searched.objective.sites() is not None:
        value, sites = searched.objective.settled_at(position)
    else:
        value = searched.log_prior(position) - engine.log_prior() - float(explored.values[place])
    return Component(engine.kernel(position[: len(engine.coordinates)]), position, weight, value, sites)


def _draws(
    searched: Sequence[Searched], explored: Sequence[Explored], shares: Floats
) -> tuple[dict[str, Floats], Floats]:
    """Values of the parameters at all points, and their weights; the smoothness where candidates differ in it."""
    columns: list[dict[str, Floats]] = []
    for one, own in zip(searched, explored, strict=True):
        n = len(one.engine.coordinates)
        table = one.engine.values_of(own.points[:, :n])
        table |= {
            c.label: np.asarray(c.value(x)) for c, x in zip(one.objective.coordinates, own.points[:, n:].T, strict=True)
        }
        if one.engine.distinguished_by is not None:
            label, value = one.engine.distinguished_by
            table = {label: np.full(len(own.points), value), **table}
        columns.append(table)
    joined = {label: np.concatenate([table[label] for table in columns]) for label in columns[0]}
    weights = np.concatenate([share * own.weights for share, own in zip(shares, explored, strict=True)])
    return joined, weights / weights.sum()


def recompose(
    components: Sequence[Component], makers: Sequence[Any], likelihood: Likelihood, known: Integrated | None = None
) -> Integrated:
    """The mixture of given components: those of a file, or with new weights.

    Parameters
    ----------
    components : sequence of Component
        Its parts.
    makers : sequence of callable
        Return the posterior of each.
    likelihood : Likelihood
        At the mode.
    known : Integrated, optional
        Whose draws and evidence are taken over.
    """
    weights = np.array([one.weight for one in components])
    mixture = Mixture(makers, weights / weights.sum(), likelihood)
    if known is None:
        return Integrated(mixture, list(components))
    return replace(known, posterior=mixture, components=list(components))
