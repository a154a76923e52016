"""All latent processes and their linear effects under sites, at fixed parameters.

With sites on η(x) = f(x) + h(x)ᵀb the coefficients b ~ N(0, 1/τ) are integrated with the processes, as if f had the
covariance K + HHᵀ/τ: with m = S p and M = S η H from the process alone, D = H − M says how means change with b, which
has information A = τI + HᵀηD; then the means are m + D b̂ and the variances grow by DA⁻¹Dᵀ.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from graphmatern.inference.effects import Effects, form_weights

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from graphmatern.inference.observations import Group
    from graphmatern.inference.process import Process

    Floats = NDArray[np.float64]

__all__ = ["LatentField", "Marginals", "Sites"]


class Sites(NamedTuple):
    """Natural parameters of the sites: potentials and precisions; each of shape (n_latents, n)."""

    first: Floats
    second: Floats

    def towards(self, other: Sites, share: float) -> Sites:
        """Move a share of the way to others; shares above 0 and up to 1."""
        if share == 1.0:
            return other
        return Sites(*((1.0 - share) * own + share * its for own, its in zip(self, other, strict=True)))


class Marginals(NamedTuple):
    """Of q at the observations, known offsets left out.

    Attributes
    ----------
    mean, variance : ndarray, shape (n_latents, n)
        Moments of η(x).
    divergence : float
        KL(q ‖ p), summed over the latent processes.
    effects : list of ndarray, each of shape (n_effects, n_effects)
        Covariance of the linear effects of each latent process.
    """

    mean: Floats
    variance: Floats
    divergence: float
    effects: list[Floats]


class LatentField:
    """Independent latent processes with one covariance, each with linear effects.

    Parameters
    ----------
    process : Process
        The covariance, at fixed parameters.
    groups : list of Group
        The replicates, of which the observations are joined in this order.
    effect_precision : float
        τ.
    """

    def __init__(self, process: Process, groups: list[Group], effect_precision: float) -> None:
        self.process, self._groups, self._precision = process, groups, effect_precision
        ends = np.cumsum([len(group.nodes) for group in groups])
        self._parts = [slice(end - len(group.nodes), end) for group, end in zip(groups, ends, strict=True)]
        self._n_effects = groups[0].design.shape[1]

    @cached_property
    def prior_variance(self) -> Floats:
        """Variances of η(x) before the data; shape (n,)."""
        nothing = np.zeros((1, self._parts[-1].stop))
        return np.asarray(self.marginals(Sites(nothing, nothing)).variance[0])

    @cached_property
    def covariance(self) -> Floats:
        """Prior covariance of η(x), effects included, of the only replicate; shape (n, n)."""
        (group,) = self._groups
        found = self.process.condition(0, np.zeros(len(group.nodes))).solve(np.eye(len(group.nodes))).mean
        found = 0.5 * (found + found.T)
        return found + group.design @ group.design.T / self._precision if self._n_effects else found

    def pull_back(self, in_covariance: Floats) -> Floats:
        """Derivatives in the engine's coordinates, from those in `covariance`, symmetric; shape (n_coordinates,)."""
        n = len(in_covariance)
        conditioned = self.process.condition(0, np.zeros(n))
        return conditioned.gradient(conditioned.solve(np.eye(n)), -2.0 * in_covariance, 0.0)

    def marginals(self, sites: Sites) -> Marginals:
        """Marginals of q.

        Raises
        ------
        NotPositiveDefiniteError
            Where negative sites outweigh the prior.
        """
        mean, variance = np.empty(sites.first.shape), np.empty(sites.first.shape)
        divergence, covariances = 0.0, []
        for c, (first, second) in enumerate(zip(*sites, strict=True)):
            effects = Effects(self._n_effects, self._precision)
            unexplained, covariance_part = np.zeros(len(first)), 0.0
            sensitivity = np.empty((len(first), self._n_effects))
            for k, (group, part) in enumerate(zip(self._groups, self._parts, strict=True)):
                eta = second[part]
                conditioned = self.process.condition(k, eta)
                solution = conditioned.solve(self._potentials(group, first[part], eta))
                mean[c, part], sensitivity[part] = solution.mean[:, 0], group.design - solution.mean[:, 1:]
                variance[c, part], unexplained[part] = conditioned.variance(), conditioned.unexplained()
                covariance_part += conditioned.covariance_divergence(variance[c, part])
                effects.add(group.design.T @ (eta[:, None] * sensitivity[part]), group.design.T @ solution.alpha[:, 0])
            if self._n_effects:
                mean[c] += sensitivity @ effects.mean
                added = np.einsum("ni,ij,nj->n", sensitivity, effects.covariance, sensitivity)
                variance[c] += added
                covariance_part += 0.5 * (effects.log_determinant - float(second @ added))
                covariances.append(effects.covariance)
            divergence += 0.5 * float((first - second * mean[c]) @ mean[c]) + covariance_part
            variance[c] += unexplained
        return Marginals(mean, variance, divergence, covariances)

    def gradient(self, sites: Sites, marginals: Marginals) -> Floats:
        """Derivative of the negative ELBO in the engine's coordinates, at the optimum over the sites."""
        total: Floats | float = 0.0
        for c, (first, second) in enumerate(zip(*sites, strict=True)):
            weights = np.ones((1, 1))
            if self._n_effects:
                alpha = first - second * marginals.mean[c]
                mean = sum(g.design.T @ alpha[part] for g, part in zip(self._groups, self._parts, strict=True))
                weights = form_weights(np.asarray(mean) / self._precision, marginals.effects[c], 1)
            for k, (group, part) in enumerate(zip(self._groups, self._parts, strict=True)):
                conditioned = self.process.condition(k, second[part])
                solution = conditioned.solve(self._potentials(group, first[part], second[part]))
                total = total + conditioned.gradient(solution, weights)
        return np.asarray(total)

    @staticmethod
    def _potentials(group: Group, first: Floats, second: Floats) -> Floats:
        """Potentials of the process alone: those of the sites, and ηH; shape (n, 1 + n_effects)."""
        return np.column_stack([first, second[:, None] * group.design])
