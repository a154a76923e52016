"""Any likelihood: parameters learned by the converged ELBO of the sites.

At the optimum over the sites the ELBO changes with a parameter as if q were fixed (envelope theorem), so its gradient
costs no more than that of a Gaussian marginal likelihood.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from graphmatern.inference.learning.parameters import free_parameters, move_parameters
from graphmatern.inference.posterior import Part, Posterior
from graphmatern.inference.sites.marginals import LatentField, Sites
from graphmatern.inference.sites.updates import SiteLikelihood, evaluate_sites, fit_sites

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from graphmatern.inference.learning.optimize import Optimum
    from graphmatern.inference.learning.parameters import Objective
    from graphmatern.inference.learning.problem import Problem
    from graphmatern.inference.observations import Group
    from graphmatern.inference.process import Engine
    from graphmatern.inference.sites.updates import SiteState

    Floats = NDArray[np.float64]

__all__ = ["SiteObjective"]

# While the parameters move: how many nats they need not gain, and how exact the sites are, relative to the ELBO. Where
# the ELBO has several optima, which differ by nats, there is no point in more.
_WHILE_MOVING = {True: (5e-7, 1e-10), False: (1e-4, 1e-8)}
_TO_WEIGH = 1e-5  # how exact the sites are, relative to the ELBO, where parameters are only given a weight
_TO_COMPARE, _TO_KEEP = 1e-5, 1e-12  # how exact the sites are where two optima are compared, and at the end
_UPDATES, _LAST_UPDATES = 60, 1000  # of the sites at most, on the way and at the end
_FRESH_GAIN = 1e-4  # of the ELBO, by which fresh sites must be better


class SiteObjective:
    """Negative ELBO at the best sites, as a function of the engine's coordinates and the likelihood's parameters.

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
        self._state: SiteState | None = None
        self._at: Floats | None = None  # where the sites are exact
        self._begin, self._best = None if sites is None else Sites(*sites), -np.inf
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
        state = fit_sites(
            latent,
            self._observed,
            self._begin,
            tolerance=self._tolerance(),
            max_iterations=_LAST_UPDATES if self._final else _UPDATES,
            compared_with=None if self._final or self._best == -np.inf else self._best,
        )
        self._state, self._at = state, theta.copy() if self._final else None
        if state.elbo > self._best:
            self._best, self._begin = state.elbo, state.sites
        in_likelihood = []
        if self._raw:
            variance = torch.from_numpy(state.marginals.variance)
            mean = self._observed.latent_mean(state.marginals)
            value = self.likelihood.expected_log_prob(self._observed.y, mean, variance)
            in_likelihood = [-one.item() for one in torch.autograd.grad(value.sum(), self._raw)]
        return -state.elbo, np.concatenate([latent.gradient(state.sites, state.marginals), in_likelihood])

    def value(self, theta: Floats) -> float:
        """Value alone, of sites that are begun from the best found so far and are exact enough to compare."""
        state = fit_sites(
            self._field(theta),
            self._observed,
            self._begin,
            tolerance=_TO_WEIGH,
            max_iterations=_UPDATES,
            compared_with=None if self._best == -np.inf else self._best,
        )
        self._state, self._at = state, None
        return -state.elbo

    def begin_afresh(self, optimum: Optimum, objective: Objective) -> bool:
        """Whether fresh sites do clearly better at an optimum; if so, the search should go on with them.

        The ELBO of a likelihood that is not log-concave has several maxima over the sites, and the way there decides.
        """
        if self._engine.refine(list):
            self._best = -np.inf  # of another kernel, nearly the same
            return True
        if self.likelihood.log_concave:
            return False
        kept, self._begin = self._begin, None
        value, _ = objective(optimum.position)
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
        state = evaluate_sites(self._field(theta), self._observed, self._begin)
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
        """Natural parameters of the sites."""
        assert self._state is not None
        return list(self._state.sites)

    def posterior(self, theta: Floats, sites: Sequence[Floats] | None = None) -> Posterior:
        """Return the processes given the observations at some parameters, with the best sites or with given ones."""
        if sites is not None:
            self._field(theta)
            found = Sites(*sites)
        else:
            self._final = True
            if self._at is None or not np.array_equal(self._at, theta):
                self(theta)
            assert self._state is not None
            found = self._state.sites
        process = self._engine.at(theta[: len(theta) - len(self._raw)])
        parts, end = [], 0
        for k, group in enumerate(self._engine.groups):
            start, end = end, end + len(group.nodes)
            for c, (first, second) in enumerate(zip(*found, strict=True)):
                precision = second[start:end]
                predictive = process.predictive(k, precision)
                parts.append(Part(predictive, group, c, precision, first[start:end, None]))
        likelihood = copy.deepcopy(self.likelihood)
        return Posterior(parts, self._problem.observations, likelihood, self._problem.effect_precision)
