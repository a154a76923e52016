"""Parameters integrated, not plugged in: p(f | y) = ∫ p(f | θ, y) p(θ | y) dθ as a mixture over a few θ.

Whoever integrates needs proper priors. Parameters for which the caller gave none have weak ones, of the scale of the
data and of the graph (`graphmatern.inference.learning.default_priors`); the search for the mode uses the same density
that is integrated.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import logsumexp

from graphmatern._validation import warn
from graphmatern.errors import NumericalError, NumericalWarning
from graphmatern.inference.learning.explore import Explored, explore, few_of, normal_points
from graphmatern.inference.learning.grid import MOST_PARAMETERS, explore_grid
from graphmatern.inference.learning.optimize import curvature
from graphmatern.inference.learning.parameters import information_with_priors
from graphmatern.inference.threads import small_matrix_threads
from graphmatern.kernels import ArealKernel

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from graphmatern.inference.learning.optimize import Optimum
    from graphmatern.inference.learning.parameters import Coordinate, Objective
    from graphmatern.inference.learning.problem import Problem
    from graphmatern.inference.process import Family
    from graphmatern.kernels import Kernel

    Floats = NDArray[np.float64]
    Longs = NDArray[np.int64]
    Mix = Callable[[Sequence[Any], Floats], Any]

__all__ = [
    "Component",
    "Effort",
    "Integrated",
    "Searched",
    "integrate",
    "is_normal",
    "is_worth_it",
    "recompose",
    "reweigh",
]

_MOST_OBSERVATIONS, _MOST_NODES, _MOST_NODES_OF_MOMENTS = 2_000, 60_000, 6_000  # beyond, "auto" does not integrate
_POINTS = (48, 120, 240, 400)  # for one, two, three and more parameters, where evaluations take next to no time
_CHEAP = 100  # observations
_ACCURACY = 0.05  # deviations, of means of parameters, where many points at once take little
_LARGE, _LEAST_SHARE = 3_000, 0.3  # nodes, beyond which an evaluation takes long; of the points, for one of many modes
# Components of the mixture: where dense, on few nodes and many, then with sites of their own; where not dense; of many
# classes; where they differ less; where they take long.
_KEPT_MOST, _KEPT_MANY, _KEPT_WITH_SITES, _KEPT, _KEPT_OF_CLASSES, _KEPT_SOME, _KEPT_FEW = 256, 128, 96, 64, 32, 24, 8
_QUICK_CLASSES = 2_000  # nodes × classes, whose probabilities take no time
_SHARE_OF_PARTS = 0.5  # of the points, where a process has several parts, of which one often matters little
_HOPELESS = 8.0  # nats by which a candidate is worse than the best, so that it has no part in the mixture
_LEAST_WEIGHT = 1e-3  # of a component
_MISSED = 20.0  # nats by which all points are worse than the mode, so that they say nothing of its surroundings


# ---------------------------------------------------------------------- decisions
def is_worth_it(count: int, n_nodes: int, engine: str) -> bool:
    """Whether integrating costs at most a few times the fit, and can matter.

    It adds about a share of (number of parameters) / (number of observations) to the variances; with thousands of
    observations that makes no difference. With moments, components share products, of the highest degree among them:
    with some thousand nodes it takes about four times the fit.

    Parameters
    ----------
    count, n_nodes : int
        Observations, and nodes of the graph.
    engine : str
        Name of the engine, or of a field's method.
    """
    most = _MOST_NODES_OF_MOMENTS if engine in ("moments", "features") else _MOST_NODES
    return count <= _MOST_OBSERVATIONS and n_nodes <= most


def is_normal(problem: Problem) -> bool:
    """Whether there are so many observations on so many nodes that the density is taken to be normal."""
    return problem.observations.count > _MOST_OBSERVATIONS and problem.graph.n_nodes > _MOST_NODES


@dataclass(frozen=True)
class Effort:
    """How much integrating may take.

    Attributes
    ----------
    count : int
        Observations: the more, the longer an evaluation takes, and the closer the density is to normal.
    exact : bool
        Whether the evidence is known exactly, at once.
    slow : bool
        Whether predictions of a component take long.
    classes : bool
        Whether that is due to classes alone, of which there are few enough.
    dense : bool
        Whether everything is done by small dense matrices.
    normal : bool
        Whether the density is taken to be normal.
    areas : bool
        Whether the kernel is one of areas, which have one mode and few parameters: a grid serves them.
    large : bool
        Whether the graph is so large that an evaluation takes long.
    share : float
        Of the points that are usual.
    """

    count: int
    exact: bool = True
    slow: bool = False
    classes: bool = False
    dense: bool = False
    normal: bool = False
    areas: bool = False
    large: bool = False
    share: float = 1.0

    @classmethod
    def of(cls, problem: Problem, engine: str) -> Effort:
        """What suits a problem, with an engine."""
        by_engine, n_latents = engine in ("moments", "features"), problem.likelihood.n_latents
        classes, quick = n_latents > 1, problem.graph.n_nodes * n_latents <= _QUICK_CLASSES
        return cls(
            problem.observations.count,
            problem.exact,
            slow=by_engine or classes,
            classes=classes and quick and not by_engine,
            dense=engine == "spectral" and not classes,
            normal=is_normal(problem),
            areas=isinstance(problem.kernel, ArealKernel),
            large=problem.graph.n_nodes > _LARGE,
            share=_SHARE_OF_PARTS if engine == "features" else 1.0,
        )

    def for_share(self, share: float) -> Effort:
        """What suits a candidate with some share in the mixture, relative to the largest."""
        return replace(self, share=self.share * max(share, _LEAST_SHARE)) if self.large else self

    def n_points(self, n_parameters: int) -> int:
        """How many points are evaluated: fewer where each takes longer, and the density is closer to normal."""
        most = _POINTS[min(n_parameters, len(_POINTS)) - 1] if n_parameters else 1
        share = float(np.clip(_CHEAP / self.count, 0.25, 1.0))
        if self.count <= _CHEAP and self.dense and n_parameters in (3, 4, 5):  # noise with outliers has five
            share = 4.0 if self.exact or n_parameters < 5 else 2.5
        elif self.count <= _CHEAP and not self.slow and not self.large and n_parameters in (3, 4):
            share = 3.0 if self.exact else 2.0
        return max(24, round(most * self.share * share * (1.0 if self.exact else 0.8)))

    @property
    def accuracy(self) -> float | None:
        """How well means of parameters must be known, in deviations, before no more points are drawn."""
        return _ACCURACY if self.dense and self.count <= _CHEAP else None

    @property
    def n_components(self) -> int:
        """How many of them the mixture has, about."""
        if self.slow:
            return _KEPT_OF_CLASSES if self.classes and self.count <= _CHEAP else _KEPT_FEW
        if self.count > _CHEAP:
            return _KEPT_SOME
        if not self.dense:
            return _KEPT
        if not self.exact:
            return _KEPT_WITH_SITES
        return _KEPT_MANY if self.large else _KEPT_MOST


# ---------------------------------------------------------------------- integration
@dataclass(frozen=True, eq=False)
class Searched:
    """An engine's candidate whose mode was found.

    Attributes
    ----------
    engine : Family
        The candidate.
    objective : GaussianObjective, SiteObjective or FieldObjective
        Negative log evidence.
    penalised : callable
        With priors.
    optimum : Optimum
        The mode.
    normalized : bool
        Which Laplacian.
    """

    engine: Family
    objective: Any
    penalised: Objective
    optimum: Optimum
    normalized: bool = False

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
    normalized : bool, optional
        Which Laplacian; by default that of the fit.
    """

    kernel: Kernel
    position: Floats
    weight: float
    value: float
    sites: list[Floats] | None = None
    normalized: bool | None = None


@dataclass(frozen=True, eq=False)
class Integrated:
    """What is known of the parameters.

    Attributes
    ----------
    posterior : Mixture or FieldMixture, optional
        Processes and coefficients; None while it is yet to be made.
    components : list of Component
        What it is made of.
    draws : dict of str to ndarray, each of shape (n,)
        Values of the parameters at all points that were evaluated, in normalised units; those on the Laplacian of the
        fit, where there are two, as a lengthscale on one means nothing on the other.
    weights : ndarray, shape (n,)
        Of these.
    log_evidence : float
        Log marginal likelihood of the normalised values, the parameters integrated out.
    effective : float
        As many independent draws would know as much about the parameters.
    """

    posterior: Any
    components: list[Component]
    draws: dict[str, Floats] = field(default_factory=dict)
    weights: Floats = field(default_factory=lambda: np.ones(1))
    log_evidence: float = np.nan
    effective: float = 1.0

    @property
    def share_normalized(self) -> float:
        """Share of the normalised Laplacian in the mixture."""
        return float(sum(one.weight for one in self.components if one.normalized))


def integrate(effort: Effort, searched: Sequence[Searched], mix: Mix) -> Integrated | None:
    """Integrate over the parameters, of all candidates that have a part in it; None where their modes were missed.

    Parameters
    ----------
    effort : Effort
        How much it may take.
    searched : sequence of Searched
        Candidates with their modes, the best first; all parameters have priors.
    mix : callable
        Makes a mixture of functions that return components, and of their weights.
    """
    heights = np.array([one.engine.log_prior() - one.optimum.value for one in searched])
    shown = [place for place, height in enumerate(heights) if height > heights.max() - _HOPELESS]
    kept = [searched[place] for place in shown]
    relative = np.exp(heights[shown] - heights.max())
    explored = [_explore(effort.for_share(float(share)), one) for one, share in zip(kept, relative, strict=True)]
    pairs = [(one, own) for one, own in zip(kept, explored, strict=True) if _is_hit(one, own)]
    if not pairs:
        warn(
            "the parameters are plugged in, not integrated over, so intervals are too narrow: near the most probable "
            "ones, no others could be evaluated. Likely causes: (a) values or counts over many orders of magnitude; "
            "(b) bounds or priors far from what the data say",
            NumericalWarning,
        )
        return None
    kept, explored = [one for one, _ in pairs], [own for _, own in pairs]
    logs = np.array([own.log_integral + one.engine.log_prior() for one, own in zip(kept, explored, strict=True)])
    shares = np.exp(logs - logsumexp(logs))
    # Priors of candidates, such as integer smoothnesses, are relative to those of all that were tried.
    every = logsumexp([one.engine.log_prior() for one in searched])
    # Parameters on one Laplacian say nothing about those on another: each needs nearly as many components as one alone.
    laplacians = len({one.normalized for one in kept})
    components: list[Component] = []
    makers = []
    for one, own, share in zip(kept, explored, shares, strict=True):
        if share < _LEAST_WEIGHT:
            continue
        chosen, weights = few_of(own, max(4, round(effort.n_components * min(1.0, laplacians * share))))
        kept_here = weights >= _LEAST_WEIGHT
        for component in _components(one, own, chosen[kept_here], share * weights[kept_here]):
            components.append(component)
            makers.append(partial(one.objective.posterior, component.position, component.sites))
        one.engine.release()
    weights = np.array([component.weight for component in components])
    same = [place for place, one in enumerate(kept) if one.normalized == searched[0].normalized] or [0]
    draws, all_weights = (
        ({}, np.ones(1))
        if effort.normal
        else _draws([kept[k] for k in same], [explored[k] for k in same], shares[same])
    )
    return Integrated(
        mix(makers, weights / weights.sum()),
        components,
        draws,
        all_weights,
        float(logsumexp(logs) - every),
        float(1.0 / np.sum(all_weights**2)),
    )


def _explore(effort: Effort, searched: Searched) -> Explored:
    """Points for one candidate."""

    def log_densities(positions: Floats) -> Floats:
        priors = [searched.log_prior(position) - own_prior for position in positions]
        return np.asarray(np.array(priors) - searched.objective.values(positions))

    def log_density(position: Floats) -> float:
        return float(log_densities(position[None])[0])

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
        if effort.normal and len(mode):
            return normal_points(-searched.optimum.value, mode, hessian, coordinates)
        if effort.areas and 0 < len(mode) <= MOST_PARAMETERS:
            return explore_grid(log_density, mode, hessian, coordinates)
        return explore(log_densities, mode, hessian, coordinates, effort.n_points(len(mode)), accuracy=effort.accuracy)


def _is_hit(searched: Searched, explored: Explored) -> bool:
    """Whether some point is about as good as the mode; where approximations break down around it, none is."""
    return float(explored.values.max(initial=-np.inf)) > -searched.optimum.value - _MISSED


def _curvature(searched: Searched, position: Floats, step: float) -> Floats:
    """Of the negative log density: the Fisher information where it is known, else by differences."""
    information = information_with_priors(searched.objective, searched.coordinates)
    if information is None:
        return curvature(searched.penalised, position, step)
    searched.objective(position)
    return information()


def _components(searched: Searched, explored: Explored, places: Longs, weights: Floats) -> list[Component]:
    """Some of the points, with their sites."""
    positions, engine = explored.points[places], searched.engine
    if searched.objective.sites() is not None:
        with small_matrix_threads(engine.matrix_size):
            settled = searched.objective.settled_at(positions)
    else:
        priors = [searched.log_prior(position) - engine.log_prior() for position in positions]
        settled = [(prior - float(value), None) for prior, value in zip(priors, explored.values[places], strict=True)]
    kernels = [engine.kernel(position[: len(engine.coordinates)]) for position in positions]
    rows = zip(kernels, positions, weights, settled, strict=True)
    return [
        Component(kernel, position, float(weight), found[0], found[1], searched.normalized)
        for kernel, position, weight, found in rows
        if found is not None
    ]


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


def recompose(components: Sequence[Component], makers: Sequence[Any], mix: Mix, known: Integrated) -> Integrated:
    """The mixture of given components: those of a file, or with new weights.

    Parameters
    ----------
    components : sequence of Component
        Its parts.
    makers : sequence of callable
        Return the posterior of each.
    mix : callable
        Makes a mixture of them.
    known : Integrated
        Whose draws and evidence are taken over.
    """
    weights = np.array([one.weight for one in components])
    return replace(known, posterior=mix(makers, weights / weights.sum()), components=list(components))


def reweigh(integrated: Integrated, objectives: Sequence[tuple[Family, Any]], mix: Mix) -> Integrated:
    """The same parameters with more data: by Bayes' rule, weights grow with the evidence that is added.

    Parameters
    ----------
    integrated : Integrated
        What was known before.
    objectives : sequence of tuple of Family and objective
        Of each component, with all data.
    mix : callable
        Makes a mixture of functions that return components, and of their weights.
    """
    found, makers, draws = [], [], []
    for (family, objective), one in zip(objectives, integrated.components, strict=True):
        try:
            value = objective.value(one.position)
        except NumericalError:
            continue
        sites = objective.sites()
        found.append(replace(one, value=value, sites=sites, weight=float(np.log(one.weight)) + one.value - value))
        makers.append(partial(objective.posterior, one.position, sites))
        count = len(family.coordinates)
        table = family.values_of(one.position[None, :count])
        others = zip(objective.coordinates, one.position[count:], strict=True)
        table |= {c.label: np.asarray(c.value(np.array([x]))) for c, x in others}
        own: dict[str, float] = getattr(one.kernel, "values", dict)()
        draws.append({label: table[label][0] if label in table else own[label] for label in integrated.draws})
    if not found:
        raise NumericalError(
            "none of the previously likely parameters can be reconciled with all data. Likely cause: new data "
            "that contradict the old ones; fit all data together."
        )
    logs = np.array([one.weight for one in found])
    weights = np.exp(logs - logsumexp(logs))
    components = [replace(one, weight=float(weight)) for one, weight in zip(found, weights, strict=True)]
    added = replace(
        integrated,
        draws={label: np.array([row[label] for row in draws]) for label in integrated.draws},
        weights=weights,
        log_evidence=integrated.log_evidence + float(logsumexp(logs)),
        effective=float(1.0 / np.sum(weights**2)),
    )
    return recompose(components, makers, mix, added)
