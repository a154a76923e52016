"""A mixture of posteriors, one for each of some parameters, with the verbs of a single one.

Averages are those of `graphmatern.inference.weighted`. Leaving out an observation changes what is known of the
parameters: p(θ | y₋ᵢ) ∝ p(θ | y) / p(yᵢ | y₋ᵢ, θ), so its weights are w_k / p_k(yᵢ | y₋ᵢ).
"""

from __future__ import annotations

from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import logsumexp

from graphmatern.inference.checks import LeftOut, Pointwise
from graphmatern.inference.posterior import Draws
from graphmatern.inference.weighted import Normals, Weighted
from graphmatern.likelihoods import find_quantile

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from graphmatern.inference.posterior import Posterior
    from graphmatern.likelihoods import Likelihood

    Floats = NDArray[np.float64]
    Longs = NDArray[np.int64]

__all__ = ["Mixture"]


class Mixture(Draws, Weighted["Posterior"]):
    """A mixture of posteriors of the same processes.

    Parameters
    ----------
    makers : sequence of callable
        Return the posterior of each component; called when it is first needed.
    weights : ndarray, shape (n_components,)
        They add up to 1.
    likelihood : Likelihood
        At the mode of the parameters.
    """

    def __init__(self, makers: Sequence[Callable[[], Posterior]], weights: Floats, likelihood: Likelihood) -> None:
        super().__init__(makers, weights)
        self._likelihood = likelihood
        self._replaced: Likelihood | None = None

    @cached_property
    def components(self) -> list[Posterior]:
        """The posteriors."""
        found = [make() for make in self._makers]
        for first, *others in zip(*(one.parts for one in found), strict=True):
            first.predictive.join([one.predictive for one in others])
        if self._replaced is not None:
            for one in found:
                one.likelihood = self._replaced
        return found

    @property
    def likelihood(self) -> Likelihood:
        """The likelihood at the mode; setting it replaces that of every component."""
        return self._likelihood

    @likelihood.setter
    def likelihood(self, likelihood: Likelihood) -> None:
        self._likelihood = self._replaced = likelihood
        self.__dict__.pop("components", None)

    @property
    def n_latents(self) -> int:
        """Number of latent processes."""
        return self.components[0].n_latents

    @property
    def n_replicates(self) -> int:
        """Number of replicates."""
        return self.components[0].n_replicates

    # ------------------------------------------------------------------ linear effects
    def given(self, design: Floats) -> Mixture:
        """The same, to be asked of nodes with these linear effects; see `Posterior.given`."""
        return Mixture([partial(one.given, design) for one in self.components], self.weights, self._likelihood)

    @property
    def coefficients(self) -> Floats:
        """Means of the coefficients; shape (n_latents, n_effects)."""
        return self._average([one.coefficients for one in self.components])

    @property
    def coefficient_covariance(self) -> Floats:
        """Covariances of the coefficients; shape (n_latents, n_effects, n_effects)."""
        mean = self.coefficients
        away = [one.coefficients - mean for one in self.components]
        return self._average(
            [
                one.coefficient_covariance + d[:, :, None] * d[:, None, :]
                for one, d in zip(self.components, away, strict=True)
            ]
        )

    def part_variances(self) -> dict[str, float]:
        """How much each part of the processes varies over the observations; see `Posterior.part_variances`."""
        every = [one.part_variances() for one in self.components]
        return {name: float(self._average([np.array(own[name]) for own in every])) for name in every[0]}

    # ------------------------------------------------------------------ latent processes
    def _latent_moments(self, nodes: Longs) -> tuple[Floats, Floats]:
        return self._combined([(one.latent_mean(nodes), one.latent_variance(nodes)) for one in self.components])

    def latent_mean(self, nodes: Longs) -> Floats:
        """Means of η; shape (n_latents · n_replicates, n_nodes)."""
        return self._average([one.latent_mean(nodes) for one in self.components])

    def latent_variance(self, nodes: Longs) -> Floats:
        """Variances of η; shape (n_latents · n_replicates, n_nodes)."""
        return self._latent_moments(nodes)[1]

    def latent_covariance(self, nodes: Longs, row: int = 0) -> Floats:
        """Covariance of one process; shape (n_nodes, n_nodes)."""
        means = [one.latent_mean(nodes)[row] for one in self.components]
        return self._combined_covariance(means, [one.latent_covariance(nodes, row) for one in self.components])

    def latent_samples(self, n_samples: int, nodes: Longs, rng: np.random.Generator, row: int = 0) -> Floats:
        """Draws of one process; shape (n_samples, n_nodes)."""
        return self._drawn(n_samples, rng, lambda one, count: one.latent_samples(count, nodes, rng, row))

    def joint_samples(self, n_samples: int, nodes: Longs, rng: np.random.Generator) -> Floats:
        """Draws of all latent processes, of the first replicate; shape (n_samples, n_latents, n_nodes)."""
        return self._drawn(n_samples, rng, lambda one, count: one.joint_samples(count, nodes, rng))

    def class_probabilities(self, nodes: Longs) -> Floats:
        """Probabilities of the classes; shape (n_nodes, n_classes)."""
        return self._average([one.class_probabilities(nodes) for one in self.components])

    # ------------------------------------------------------------------ numbers: the response and new observations
    def moments(
        self, nodes: Longs, *, observation: bool = False, offset: Floats | float = 0.0
    ) -> tuple[Floats, Floats]:
        """Means and variances of the response g(η), or of new observations; see `Posterior.moments`."""
        return self._combined([one.moments(nodes, observation=observation, offset=offset) for one in self.components])

    def variance_errors(self, nodes: Longs, *, offset: Floats | float = 0.0) -> Floats:
        """Standard errors of the variances of `moments`; see `Posterior.variance_errors`. Components share probes."""
        return self._average([one.variance_errors(nodes, offset=offset) for one in self.components])

    def edge_moments(
        self, sources: Longs, targets: Longs, shares: Floats, *, observation: bool = False
    ) -> tuple[Floats, Floats]:
        """Means and variances on edges; see `Posterior.edge_moments`."""
        return self._combined(
            [one.edge_moments(sources, targets, shares, observation=observation) for one in self.components]
        )

    def covariance(self, nodes: Longs, replicate: int = 0, *, offset: Floats | float = 0.0) -> Floats:
        """Covariance of the response of one replicate; shape (n_nodes, n_nodes)."""
        means = [one.moments(nodes, offset=offset)[0][replicate] for one in self.components]
        covariances = [one.covariance(nodes, replicate, offset=offset) for one in self.components]
        return self._combined_covariance(means, covariances)

    def quantile(
        self, nodes: Longs, level: float, *, observation: bool, replicate: int = 0, offset: Floats | float = 0.0
    ) -> Floats:
        """Quantile of the response or of a new observation of one replicate; shape (n_nodes,)."""
        options: dict[str, Any] = {"replicate": replicate, "offset": offset}
        if observation:
            mean, variance = (one[replicate] for one in self.moments(nodes, observation=True, offset=offset))
            whole = self.components[0].counts
            return find_quantile(lambda y: self.cdf(nodes, y, **options), level, mean, variance, whole=whole)
        # That of η, mapped by an increasing function.
        means = np.stack([one.latent_mean(nodes)[replicate] + offset for one in self.components])
        variances = np.stack([one.latent_variance(nodes)[replicate] for one in self.components])
        every = [one.latent_skewness(nodes) for one in self.components]
        skewness = np.stack([one[replicate] for one in every if one is not None]) if every[0] is not None else None
        return self.response_of(Normals(self.weights, means, variances, skewness).quantile(level))

    def cdf(self, nodes: Longs, y: Floats, *, replicate: int = 0, offset: Floats | float = 0.0) -> Floats:
        """Probabilities that new observations are at most ``y``; shape (n_nodes,)."""
        return self._average([one.cdf(nodes, y, replicate=replicate, offset=offset) for one in self.components])

    def exceedance(
        self, nodes: Longs, threshold: Floats | float, *, observation: bool = False, replicate: int = 0,
        offset: Floats | float = 0.0,
    ) -> Floats:  # fmt: skip
        """Probabilities that the response or a new observation is above a threshold; shape (n_nodes,)."""
        options = {"observation": observation, "replicate": replicate, "offset": offset}
        return self._average([one.exceedance(nodes, threshold, **options) for one in self.components])  # type: ignore[arg-type]

    def log_density(self, nodes: Longs, y: Floats, *, replicate: int = 0, offset: Floats | float = 0.0) -> Floats:
        """Log density, or log probability of a count, of new observations; shape (n_nodes,)."""
        logs = [one.log_density(nodes, y, replicate=replicate, offset=offset) for one in self.components]
        return np.asarray(logsumexp(np.log(self.weights)[:, None] + np.stack(logs), axis=0))

    def draw_observations(
        self,
        n_samples: int,
        nodes: Longs,
        rng: np.random.Generator,
        *,
        replicate: int = 0,
        offset: Floats | float = 0.0,
    ) -> Floats:
        """New observations of one replicate, each by itself; shape (n_samples, n_nodes)."""
        options: dict[str, Any] = {"replicate": replicate, "offset": offset}
        return self._drawn(n_samples, rng, lambda one, count: one.draw_observations(count, nodes, rng, **options))

    def response_of(self, latent: Floats) -> Floats:
        """The response g(η) of latent values; shape as ``latent``."""
        return self.components[0].response_of(latent)

    # ------------------------------------------------------------------ observations against what others say of them
    def left_out(self) -> dict[int, LeftOut]:
        """Observations given all others, by replicate; see `Posterior.left_out`."""
        every = [one.left_out() for one in self.components]
        return {column: self._left_out([own[column] for own in every]) for column in every[0]}

    def _left_out(self, parts: Sequence[LeftOut]) -> LeftOut:
        logs = np.stack([one.log_density for one in parts])
        # Where an observation alone determines a coefficient, nothing is known without it, whatever the parameters.
        relative = np.log(self.weights)[:, None] - np.where(np.isfinite(logs), logs, 0.0)
        total = logsumexp(relative, axis=0)
        weights = np.exp(relative - total)
        means, variances = np.stack([one.mean for one in parts]), np.stack([one.variance for one in parts])
        mean = np.sum(weights * means, axis=0)
        with np.errstate(invalid="ignore"):
            variance = np.sum(weights * (variances + (means - mean) ** 2), axis=0)
        undetermined = ~np.isfinite(logs).all(axis=0)
        return LeftOut(
            mean,
            np.where(undetermined, np.inf, variance),
            np.where(undetermined, -np.inf, -total),
            np.sum(weights * np.stack([one.pit for one in parts]), axis=0),
        )

    def left_out_classes(self) -> Floats:
        """Class probabilities of labelled nodes given all other labels; see `Posterior.left_out_classes`."""
        every = np.stack([one.left_out_classes() for one in self.components])
        codes = self.components[0].class_codes
        own = every[:, np.arange(len(codes)), codes]
        weights = self.weights[:, None] / np.maximum(own, 1e-300)
        weights /= weights.sum(axis=0)
        return np.asarray(np.einsum("kn,knc->nc", weights, every))

    def pointwise(self) -> Pointwise:
        """Log-likelihoods of single observations; see `Posterior.pointwise`."""
        parts = [one.pointwise() for one in self.components]
        logs = np.stack([one.log_expected for one in parts])
        return Pointwise(
            np.asarray(logsumexp(np.log(self.weights)[:, None] + logs, axis=0)),
            self._average([one.mean_log for one in parts]),
            self._average([one.mean_squared_log for one in parts]),
        )
