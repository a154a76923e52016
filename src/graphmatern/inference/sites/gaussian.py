"""Gaussian noise: sites that are known, so that the evidence is exact."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import numpy as np
import torch

from graphmatern.errors import NumericalError
from graphmatern.inference.effects import Effects, GaussianEvidence
from graphmatern.inference.learning.parameters import (
    free_parameters,
    move_parameters,
    one_by_one,
    spread_parameters,
)
from graphmatern.inference.posterior import Part, Posterior
from graphmatern.inference.sites.many import gaussian_forms, parts_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from graphmatern.inference.learning.optimize import Optimum
    from graphmatern.inference.learning.parameters import Objective
    from graphmatern.inference.learning.problem import Problem
    from graphmatern.inference.observations import Group
    from graphmatern.inference.process import Conditioned, DataForms, Engine, Process
    from graphmatern.likelihoods import Gaussian

    Floats = NDArray[np.float64]

__all__ = ["GaussianObjective"]


class GaussianObjective:
    """Negative log marginal likelihood as a function of the engine's coordinates and of the log noise variance.

    Parameters
    ----------
    engine : Engine
        The prior.
    problem : Problem
        What to fit; its likelihood is Gaussian.
    """

    first_step = 1.0
    n_clipped = 0
    settled = True

    def __init__(self, engine: Engine, problem: Problem) -> None:
        self._engine, self._problem = engine, problem
        self.likelihood: Gaussian = copy.deepcopy(problem.likelihood)  # type: ignore[assignment]
        self._raw, self.coordinates, self.start = free_parameters(self.likelihood, problem.rules)
        self.to_gain = engine.to_gain
        self._latest: tuple[Floats, Process, list[tuple[Conditioned, int]]] | None = None

    @staticmethod
    def groups(problem: Problem) -> list[Group]:
        """Observations that share sites."""
        return problem.observations.groups

    def _split(self, theta: Floats) -> Floats:
        """Set the noise; return the engine's coordinates."""
        count = len(theta) - len(self._raw)
        move_parameters(self._raw, theta[count:])
        return theta[:count]

    def _precision(self, group: Group) -> Floats:
        return np.asarray(1.0 / (self.likelihood.noise.item() * group.noise))

    def value(self, theta: Floats) -> float:
        """Value alone, which takes less time."""
        with torch.no_grad():
            return self._evaluate(theta)[0]

    def values(self, thetas: Floats) -> Floats:
        """Values at many parameters, infinite where numbers break down; shape (m,)."""
        found = [self._values(some) for some in parts_of(thetas, self._engine.groups)]
        return np.concatenate([np.zeros(0), *found])

    def _values(self, thetas: Floats) -> Floats:
        count = len(thetas[0]) - len(self._raw)
        with spread_parameters(self._raw, thetas[:, count:].T):
            noise = np.broadcast_to(self.likelihood.noise.detach().numpy(), len(thetas))
        groups = self._engine.groups
        least = min(float(group.noise.min(initial=np.inf)) for group in groups)
        covariances = self._engine.covariances_at(thetas[:, :count], noise * least)
        if covariances is None:
            return one_by_one(self.value, thetas)
        evidence = GaussianEvidence(Effects(self._problem.observations.n_effects, self._problem.effect_precision))
        for group, covariance in zip(groups, covariances, strict=True):
            log_determinants, forms = gaussian_forms(covariance, noise[:, None] * group.noise, group.data)
            evidence.add(log_determinants, forms, group.n_replicates, len(group.noise))
        try:
            return np.asarray(evidence.negative_log_likelihood())
        except NumericalError:  # of some of them
            return one_by_one(self.value, thetas)

    def _evaluate(
        self, theta: Floats
    ) -> tuple[float, Process, GaussianEvidence, list[tuple[Conditioned, DataForms, int]]]:
        """Value, and what its gradient is made of."""
        self._latest = None  # its process is no longer valid
        process = self._engine.at(self._split(theta))
        effects = Effects(self._problem.observations.n_effects, self._problem.effect_precision)
        evidence = GaussianEvidence(effects)
        solved: list[tuple[Conditioned, DataForms, int]] = []
        for k, group in enumerate(self._engine.groups):
            conditioned = process.condition(k, self._precision(group))
            forms = conditioned.solve_data()
            log_determinant = conditioned.log_determinant - conditioned.log_precision()
            evidence.add(log_determinant, forms.forms, group.n_replicates, conditioned.count)
            solved.append((conditioned, forms, group.n_replicates))
        lost = sum(r * float(one.precision @ one.unexplained()) for one, _, r in solved)
        return evidence.negative_log_likelihood() + 0.5 * lost, process, evidence, solved

    def __call__(self, theta: Floats) -> tuple[float, Floats]:
        """Value and gradient."""
        value, process, evidence, solved = self._evaluate(theta)
        gradient, in_noise = np.zeros(len(self._engine.coordinates)), 0.0
        for conditioned, forms, r in solved:
            weights = evidence.form_weights(r)
            gradient += conditioned.gradient(forms.solution, weights, r)
            # R changes by itself per log ρ: log det C by tr C⁻¹R = n − used, a form by −αᵀRα.
            own = r * (conditioned.count - conditioned.used()) - float(np.sum(weights * forms.misfit))
            lost = 0.5 * r * float(conditioned.precision @ conditioned.unexplained())
            in_noise += 0.5 * own - lost
        self._latest = theta.copy(), process, [(conditioned, r) for conditioned, _, r in solved]
        return value, np.append(gradient, [in_noise] * len(self._raw))

    @property
    def position(self) -> Floats:
        """Where the objective was last evaluated; shape (n_coordinates,)."""
        assert self._latest is not None
        return self._latest[0]

    @property
    def information(self) -> Callable[[], Floats] | None:
        """Fisher information where the objective was last evaluated, which stands for the Hessian; None if unknown."""
        return self._information if self._engine.has_information else None

    def _information(self) -> Floats:
        """That coefficients of linear effects are estimated is left out."""
        assert self._latest is not None
        size = len(self._engine.coordinates) + len(self._raw)
        return np.asarray(sum(r * conditioned.information()[:size, :size] for conditioned, r in self._latest[2]))

    def posterior(self, theta: Floats, sites: None = None) -> Posterior:
        """Return the processes given the observations at some parameters; the sites follow from the noise."""
        del sites
        own = self._split(theta)
        # The process of the last evaluation still has its factor.
        here = self._latest is not None and np.array_equal(self._latest[0], theta)
        process = self._latest[1] if here and self._latest is not None else self._engine.at(own)
        self._latest = None
        observations = self._problem.observations
        parts = []
        for k, group in enumerate(self._engine.groups):
            precision = self._precision(group)
            potentials = precision[:, None] * group.data[:, : group.n_replicates]
            parts.append(Part(process.predictive(k, precision), group, 0, precision, potentials))
        return Posterior(parts, observations, copy.deepcopy(self.likelihood), self._problem.effect_precision)

    def restart(self, optimum: Optimum, objective: Objective) -> bool:
        """Whether the engine wants another search, with better estimates."""

        def conditioned() -> list[tuple[Conditioned, int]]:
            if self._latest is None or not np.array_equal(self._latest[0], optimum.position):
                objective(optimum.position)
            assert self._latest is not None
            return self._latest[2]

        return self._engine.refine(conditioned)

    def finish(self) -> None:
        """Nothing was approximate."""

    def resume(self, theta: Floats) -> None:
        """Nothing is needed but the parameters."""

    def sites(self) -> None:
        """Nothing: the sites follow from the noise."""
