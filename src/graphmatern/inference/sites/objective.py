"""Any likelihood: parameters learned by what the converged sites make of the log evidence.

Where the sites are at rest, the evidence lower bound and the evidence of expectation propagation alike change with a
parameter as if the sites were fixed (envelope theorem), so their gradient costs no more than that of a Gaussian
marginal likelihood.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from graphmatern.errors import NumericalError
from graphmatern.inference.learning.parameters import free_parameters, move_parameters, one_by_one
from graphmatern.inference.posterior import Part, Posterior
from graphmatern.inference.sites.classes import ClassState, CoupledClasses, check_suits
from graphmatern.inference.sites.many import match_many, parts_of
from graphmatern.inference.sites.marginals import LatentField, Sites
from graphmatern.inference.sites.matching import REFINED, MomentMatching
from graphmatern.inference.sites.updates import BoundMaximisation, SiteLikelihood
from graphmatern.inference.skewed import SkewedPosterior

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from graphmatern.inference.learning.optimize import Optimum
    from graphmatern.inference.learning.parameters import Objective
    from graphmatern.inference.learning.problem import Problem
    from graphmatern.inference.observations import Group
    from graphmatern.inference.process import Engine
    from graphmatern.inference.sites.many import Matched
    from graphmatern.inference.sites.matching import MatchedState
    from graphmatern.inference.sites.updates import SiteState
    from graphmatern.likelihoods import Likelihood

    Floats = NDArray[np.float64]

__all__ = ["SiteObjective"]

# While the parameters move: how many nats they need not gain, and how exact the sites are, relative to the ELBO. Where
# the ELBO has several optima, which differ by nats, there is no point in more.
_WHILE_MOVING = {True: (5e-7, 1e-10), False: (1e-4, 1e-8)}
_TO_WEIGH = 0.05  # nats to be gained at which the sites may stop, where parameters are only given a weight
_TO_WEIGH_MANY = 0.01  # where that takes little
_NEAR = 10.0  # nats below the best evidence, from where on sites are not gone on from
_TO_COMPARE, _TO_KEEP = 1e-5, 1e-12  # how exact the sites are where two optima are compared, and at the end
_UPDATES, _LAST_UPDATES = 60, 1000  # of the sites at most, on the way and at the end
_FRESH_GAIN = 1e-4  # of the ELBO, by which fresh sites must be better


def _approximation(likelihood: Likelihood, engine: Engine) -> MomentMatching | CoupledClasses | BoundMaximisation:
    """How sites are fitted."""
    if likelihood.approximation == "classes":
        check_suits(engine)
        return CoupledClasses()
    # A restricted q leaves part of the prior out of reach, which only the bound accounts for.
    if likelihood.approximation == "moments" and not engine.restricts:
        return MomentMatching()
    return BoundMaximisation()


class SiteObjective:
    """Negative log evidence by the best sites, as a function of coordinates of the engine and of the likelihood.

    The search for the sites begins from the best found so far.

    Parameters
    ----------
    engine : Engine
        The prior.
    problem : Problem
        What to fit.
    sites : list of ndarray, optional
        Sites to begin with.
    """

    first_step = 0.5  # in logarithms: far from the optimum the sites converge slowly
    information = None

    def __init__(self, engine: Engine, problem: Problem, sites: list[Floats] | None = None) -> None:
        self._engine, self._problem = engine, problem
        self.likelihood = copy.deepcopy(problem.likelihood)
        groups = engine.groups
        y = torch.from_numpy(np.concatenate([group.y[:, 0] for group in groups]))
        self._observed = SiteLikelihood(y, self.likelihood, np.concatenate([group.offset for group in groups]))
        self._raw, self.coordinates, self.start = free_parameters(self.likelihood, problem.rules)
        self.to_gain, _ = _WHILE_MOVING[self.likelihood.log_concave]
        self._approximation = _approximation(self.likelihood, engine)
        # The bound favours parameters at which the posterior is closer to normal, and its q is too narrow: where
        # parameters are integrated out, moments are matched instead, which never fails for such likelihoods.
        own = self.likelihood
        suits = own.log_concave and own.n_latents == 1 and (own.two_sided(y) or len(y) == 1) and not engine.restricts
        # Powers below 1, with which one searches, prefer too much noise.
        matches = suits or isinstance(self._approximation, MomentMatching)
        self._weighing = MomentMatching(power=1.0) if matches else self._approximation
        self._weighed = False  # whether that has found a fixed point
        # Parameters that have been weighed and are likely, and their sites.
        self._near_sites: list[Any] = []
        self._near = np.empty((0, len(engine.coordinates) + len(self.coordinates)))
        self._state: SiteState | MatchedState | ClassState | None = None
        self._at: Floats | None = None  # where the sites are exact
        self._begin, self._best = None if sites is None else Sites(*sites), -np.inf
        self._changed = False  # whether the approximation changed during the search
        self._final = False  # while the parameters move, the sites need not be exact

    @staticmethod
    def groups(problem: Problem) -> list[Group]:
        """Observations that share sites: every replicate by itself."""
        return problem.observations.replicates

    def _tolerance(self) -> float:
        """How exact the sites must be, relative to the ELBO."""
        if self._final:
            return _TO_KEEP
        if self._begin is None and not self.likelihood.log_concave:  # to see where fresh sites lead
            return _TO_COMPARE
        return _WHILE_MOVING[self.likelihood.log_concave][1]

    def _field(self, theta: Floats) -> LatentField:
        """Set the likelihood's parameters; return the latent processes."""
        count = len(theta) - len(self._raw)
        move_parameters(self._raw, theta[count:])
        return LatentField(self._engine.at(theta[:count]), self._engine.groups, self._problem.effect_precision)

    def __call__(self, theta: Floats) -> tuple[float, Floats]:
        """Value and gradient."""
        latent = self._field(theta)
        state = self._approximation.fit(
            latent,
            self._observed,
            self._begin,
            tolerance=self._tolerance(),
            max_iterations=_LAST_UPDATES if self._final else _UPDATES,
            searching=not self._final and self._best > -np.inf,
            compared_with=None if self._final or self._best == -np.inf else self._best,
        )
        self._state, self._at = state, theta.copy() if self._final else None
        if self._approximation.changed:  # what was found before is no longer comparable
            self._best, self._changed, self._approximation.changed = -np.inf, True, False
        if state.evidence > self._best:
            self._best, self._begin = state.evidence, state.sites
        in_likelihood = []
        if self._raw:
            found = torch.autograd.grad(state.log_likelihood(self._observed), self._raw)
            in_likelihood = [-one.item() for one in found]
        return -state.evidence, np.concatenate([state.gradient(latent), in_likelihood])

    def value(self, theta: Floats) -> float:
        """Value alone, of sites that are begun from the best found so far and are exact enough to compare."""
        latent = self._field(theta)
        if self._begin is None and self._weighing is not self._approximation:
            # The bound has an optimum wherever one begins.
            roughly = self._approximation.fit(latent, self._observed, None, tolerance=_TO_COMPARE)
            self._begin = roughly.sites
        options: dict[str, Any] = {
            "tolerance": _TO_COMPARE if self._best == -np.inf else _TO_WEIGH / (1.0 + abs(self._best)),
            "max_iterations": _UPDATES,
            "compared_with": None if self._best == -np.inf else self._best,
        }
        begin = self._nearest(theta)
        try:
            state = self._weighing.fit(latent, self._observed, begin, weighing=True, **options)
        except NumericalError:
            if self._weighed or self._weighing is self._approximation:
                raise
            self._weighing = self._approximation  # the mode comes first: if not there, then nowhere
            state = self._weighing.fit(latent, self._observed, self._begin, weighing=True, **options)
        self._weighed = True
        self._remember(theta, state.evidence, state.sites)
        self._state, self._at = state, None
        return -state.evidence

    def values(self, thetas: Floats) -> Floats:
        """Values at many parameters, infinite where numbers break down; shape (m,)."""
        found = [self._values(some) for some in parts_of(thetas, self._engine.groups)]
        return np.concatenate([np.zeros(0), *found])

    def _values(self, thetas: Floats) -> Floats:
        # The mode comes first.
        matched = self._matched(thetas, _TO_WEIGH_MANY / (1.0 + abs(self._best))) if self._weighed else None
        if matched is None:
            return one_by_one(self.value, thetas)
        values = -matched.evidence
        for place in np.flatnonzero(matched.at_rest).tolist():
            self._remember(thetas[place], float(matched.evidence[place]), matched.sites_at(place))
        others = np.flatnonzero(~matched.at_rest)
        values[others] = one_by_one(self.value, thetas[others])
        return values

    def _matched(self, thetas: Floats, tolerance: float) -> Matched | None:
        """Sites at many parameters, where they are found together: by expectation propagation with small matrices."""
        groups, count = self._engine.groups, len(self._engine.coordinates)
        one_way = isinstance(self._weighing, MomentMatching) and self._weighing.power == 1.0
        covariances = self._engine.covariances_at(thetas[:, :count]) if one_way and len(groups) == 1 else None
        if covariances is None or self._begin is None:
            return None
        (covariance,), (group,) = covariances, groups
        if group.design.shape[1]:
            covariance = covariance + group.design @ group.design.T / self._problem.effect_precision
        known = [self._nearest(theta) for theta in thetas]
        start = Sites(*(np.concatenate([sites[k] for sites in known]) for k in range(2)))
        likelihood = thetas[:, count:].T
        return match_many(
            covariance, self._observed, self._raw, likelihood, start, tolerance=tolerance, best=self._best
        )

    def _remember(self, theta: Floats, evidence: float, sites: Any) -> None:
        """Sites to begin with nearby, unless these parameters are unlikely."""
        if self._best == -np.inf or evidence > self._best - _NEAR:
            self._near = np.vstack([self._near, theta])
            self._near_sites.append(sites)

    def _nearest(self, theta: Floats) -> Any:
        """Sites of the nearest parameters that are known, else of the mode."""
        if not self._near_sites:
            return self._begin
        return self._near_sites[int(np.argmin(np.sum((self._near - theta) ** 2, axis=1)))]

    def restart(self, optimum: Optimum, objective: Objective) -> bool:
        """Whether the search should go on: because fresh sites do clearly better, or the approximation has changed.

        A likelihood that is not log-concave has several optima over the sites, and the way there decides.
        """
        if self._changed:
            self._changed = False
            return True
        if self._engine.refine(list):
            self._best = -np.inf  # of another kernel, nearly the same
            return True
        if self.likelihood.log_concave:
            return False
        kept, self._begin = self._begin, None
        try:
            value, _ = objective(optimum.position)
        except NumericalError:  # the restart found nothing
            value = np.inf
        if value < optimum.value - _FRESH_GAIN * (1.0 + abs(optimum.value)):
            return True
        self._begin = kept
        return False

    def finish(self) -> None:
        """From here on sites are exact."""
        self._final = True

    def resume(self, theta: Floats) -> None:
        """Take the sites as they were given: those of an earlier fit at these parameters."""
        assert self._begin is not None
        self._final = True
        state = self._approximation.evaluate(self._field(theta), self._observed, self._begin)
        self._state, self._at = replace(state, converged=True), theta.copy()

    @property
    def n_clipped(self) -> int:
        """Updates in which negative sites were set to 0, the last resort."""
        return 0 if self._state is None else self._state.n_clipped

    @property
    def settled(self) -> bool:
        """Whether the sites came to rest."""
        return self._state is not None and self._state.converged

    def sites(self) -> list[Floats]:
        """Natural parameters of the sites, those of the last posterior where there was one."""
        assert self._state is not None
        return list(self._state.sites)

    def settled_at(self, thetas: Floats) -> list[tuple[float, list[Floats]] | None]:
        """Values at many parameters, and the sites that predictions are made with there; None where there are none."""
        found: list[tuple[float, list[Floats]] | None] = []
        for some in parts_of(thetas, self._engine.groups):
            matched = self._matched(some, REFINED)
            for place, theta in enumerate(some):
                if matched is not None and matched.at_rest[place]:
                    found.append((-float(matched.evidence[place]), list(matched.sites_at(place))))
                    continue
                near = matched.sites_at(place) if matched is not None and matched.size[place] <= _TO_WEIGH else None
                found.append(self._settled(theta, near))
        return found

    def _settled(self, theta: Floats, near: Sites | None) -> tuple[float, list[Floats]] | None:
        """The same for one, from sites near those that are looked for."""
        try:
            if near is None:
                self.value(theta)
            else:
                self._state = self._weighing.evaluate(self._field(theta), self._observed, near)
        except NumericalError:
            return None
        assert self._state is not None
        value = -self._state.evidence
        self._state = self._weighing.refine(self._field(theta), self._observed, self._state)
        return value, self.sites()

    def _best_sites(self, theta: Floats, latent: LatentField) -> Sites:
        """The best sites at some parameters, exact."""
        self._final = True
        if self._at is None or not np.array_equal(self._at, theta):
            self(theta)
        assert self._state is not None
        self._approximation.warn_of_fallback()
        self._state = self._approximation.refine(latent, self._observed, self._state)
        return self._state.sites

    def posterior(self, theta: Floats, sites: Sequence[Floats] | None = None) -> Posterior:
        """Return the processes given the observations at some parameters, with the best sites or with given ones."""
        latent, levels = self._field(theta), None
        found = self._best_sites(theta, latent) if sites is None else Sites(*sites)
        if isinstance(self._approximation, CoupledClasses):
            state = self._state if sites is None else self._approximation.evaluate(latent, self._observed, found)
            assert isinstance(state, ClassState)
            found, levels = Sites(state.potential, state.precision), state.posterior.root
        parts, end = [], 0
        for k, group in enumerate(self._engine.groups):
            start, end = end, end + len(group.nodes)
            for c, (first, second) in enumerate(zip(*found, strict=True)):
                precision = second[start:end]
                predictive = latent.process.predictive(k, precision)
                parts.append(Part(predictive, group, c, precision, first[start:end, None]))
        likelihood, observations = copy.deepcopy(self.likelihood), self._problem.observations
        if sites is not None and self._weighing is not self._approximation:
            return SkewedPosterior(parts, observations, likelihood, self._problem.effect_precision)
        return Posterior(parts, observations, likelihood, self._problem.effect_precision, levels)
