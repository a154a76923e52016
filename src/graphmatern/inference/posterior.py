"""What the likelihood makes of the latent processes: the response, new observations, and classes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch
from scipy.special import ndtr, ndtri

from graphmatern.inference import checks
from graphmatern.inference.cavities import class_cavities
from graphmatern.inference.latents import NODES_AT_ONCE, Latents, Part
from graphmatern.inference.threads import small_matrix_threads
from graphmatern.likelihoods import Binomial, Counts, MultinomialProbit

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from graphmatern.inference.cavities import Cavities
    from graphmatern.inference.observations import Observations
    from graphmatern.likelihoods import Categorical, Likelihood, Numeric

    Floats = NDArray[np.float64]
    Longs = NDArray[np.int64]

__all__ = ["Draws", "Part", "Posterior"]


class Draws(ABC):
    """Draws of the response, a few at a time, of whatever has draws of the latent processes."""

    @abstractmethod
    def latent_samples(self, n_samples: int, nodes: Longs, rng: np.random.Generator, row: int = 0) -> Floats:
        """Draws of one process; shape (n_samples, n_nodes)."""

    @abstractmethod
    def response_of(self, latent: Floats) -> Floats:
        """The response g(η) of latent values; shape as ``latent``."""

    def samples(
        self,
        n_samples: int,
        nodes: Longs,
        rng: np.random.Generator,
        replicate: int,
        size: int,
        *,
        offset: Floats | float = 0.0,
    ) -> Iterator[Floats]:
        """Draws of the response of one replicate, ``size`` at a time; each of shape (up to size, n_nodes)."""
        for start in range(0, n_samples, size):
            drawn = self.latent_samples(min(size, n_samples - start), nodes, rng, replicate)
            yield self.response_of(drawn + offset)


class Posterior(Latents, Draws):
    """Latent processes given the observations, and the response g(η) of numbers or the probabilities of classes.

    Parameters
    ----------
    parts, observations, effect_precision, levels
        As `Latents` has them.
    likelihood : Likelihood
        With the learned parameters.
    """

    def __init__(
        self,
        parts: Sequence[Part],
        observations: Observations,
        likelihood: Likelihood,
        effect_precision: float,
        levels: Floats | None = None,
    ) -> None:
        super().__init__(parts, observations, effect_precision, levels)
        self.likelihood = likelihood

    def __repr__(self) -> str:
        where = f"{len(np.unique(self._observations.nodes)):,} of {len(self._observations.node_design):,} nodes"
        return f"Posterior({self.n_latents} latent, {self.n_replicates} replicates, observed at {where})"

    def class_probabilities(self, nodes: Longs) -> Floats:
        """Probabilities of the classes, the uncertainty of the processes included; shape (n_nodes, n_classes)."""
        likelihood: Categorical = self.likelihood  # type: ignore[assignment]
        if self._levels is not None and isinstance(likelihood, MultinomialProbit):
            with small_matrix_threads(len(self.class_codes)):
                blocks = [likelihood.joint_probabilities(*moments) for moments in self.class_moments(nodes)]
            joint = np.concatenate([np.zeros((0, self.n_latents)), *blocks])
            if self._given is None:
                row_of = dict(zip(self.parts[0].group.nodes.tolist(), range(len(self.class_codes)), strict=True))
                labelled = np.flatnonzero(np.isin(nodes, list(row_of)))
                rows = np.array([row_of[node] for node in nodes[labelled].tolist()], dtype=np.int64)
                joint[labelled] = checks.classes_beside_labels(self, rows)
            return joint
        mean, variance, blocks = self.latent_mean(nodes), self.latent_variance(nodes), []
        with torch.no_grad():
            for start in range(0, max(1, len(nodes)), NODES_AT_ONCE):
                part = slice(start, start + NODES_AT_ONCE)
                moments = (torch.from_numpy(np.ascontiguousarray(x[:, part])) for x in (mean, variance))
                blocks.append(likelihood.probabilities(*moments).numpy())
        found = np.concatenate(blocks, axis=1).T
        return np.asarray(found / found.sum(axis=1, keepdims=True))

    # ------------------------------------------------------------------ numbers: the response and new observations
    @property
    def _numeric(self) -> Numeric:
        return self.likelihood  # type: ignore[return-value]

    def moments(
        self, nodes: Longs, *, observation: bool = False, offset: Floats | float = 0.0
    ) -> tuple[Floats, Floats]:
        """Means and variances of the response g(η), or of new observations; each of shape (n_replicates, n_nodes).

        Parameters
        ----------
        nodes : ndarray of int64, shape (n_nodes,)
            Positions of nodes.
        observation : bool
            Whether of new observations.
        offset : ndarray, shape (n_nodes,), or float
            Known part of η, such as the logarithm of an exposure.
        """
        return self.response(self.latent_mean(nodes) + offset, self.latent_variance(nodes), observation=observation)

    def variance_errors(self, nodes: Longs, *, offset: Floats | float = 0.0) -> Floats:
        """Standard errors of the variances that `moments` gives, where an engine estimates them; else 0.

        Returns
        -------
        ndarray, shape (n_replicates, n_nodes)
        """
        found = np.zeros((self.n_latents * self.n_replicates, len(nodes)))
        for part in self.parts:
            found[self._rows(part)] = part.predictive.variance_errors(nodes)
        if not found.any():
            return found
        mean, variance = self.latent_mean(nodes) + offset, self.latent_variance(nodes)
        own, moved = (self.response(mean, one, observation=False)[1] for one in (variance, variance + found))
        return np.asarray(np.abs(moved - own))

    def response(self, mean: Floats, variance: Floats, *, observation: bool) -> tuple[Floats, Floats]:
        """Means and variances of the response or of a new observation, given those of η; shapes as these."""
        find = self._numeric.observation_moments if observation else self._numeric.response_moments
        with torch.no_grad():
            flat = (
                torch.from_numpy(np.ascontiguousarray(x, dtype=np.float64)).reshape(1, -1) for x in (mean, variance)
            )
            found = find(*flat)
        return found[0].numpy().reshape(mean.shape), found[1].numpy().reshape(mean.shape)

    def edge_moments(
        self, sources: Longs, targets: Longs, shares: Floats, *, observation: bool = False
    ) -> tuple[Floats, Floats]:
        """Means and variances of the response, or of new observations, on edges; each of shape (n_replicates, n)."""
        return self.response(*self.on_edges(sources, targets, shares), observation=observation)

    @property
    def counts(self) -> bool:
        """Whether observations are whole numbers."""
        return isinstance(self.likelihood, Counts | Binomial)

    def response_of(self, latent: Floats) -> Floats:
        """The response g(η) of latent values; shape as ``latent``."""
        return self._numeric.response(latent)

    def covariance(self, nodes: Longs, replicate: int = 0, *, offset: Floats | float = 0.0) -> Floats:
        """Covariance of the response of one replicate; shape (n_nodes, n_nodes)."""
        mean = self.latent_mean(nodes)[replicate] + offset
        return self._numeric.response_covariance(mean, self.latent_covariance(nodes, replicate))

    def _latent(self, nodes: Longs, replicate: int, offset: Floats | float) -> tuple[Floats, Floats]:
        """Means and variances of η of one replicate; each of shape (n_nodes,)."""
        return self.latent_mean(nodes)[replicate] + offset, self.latent_variance(nodes)[replicate]

    def quantile(
        self, nodes: Longs, level: float, *, observation: bool, replicate: int = 0, offset: Floats | float = 0.0
    ) -> Floats:
        """Quantile of the response or of a new observation of one replicate; shape (n_nodes,)."""
        mean, variance = self._latent(nodes, replicate, offset)
        if observation:
            return self._numeric.observation_quantile(level, mean, variance)
        return self._numeric.response(mean + float(ndtri(level)) * np.sqrt(variance))

    def cdf(self, nodes: Longs, y: Floats, *, replicate: int = 0, offset: Floats | float = 0.0) -> Floats:
        """Probabilities that new observations are at most ``y``; shape (n_nodes,)."""
        mean, variance = self._latent(nodes, replicate, offset)
        return self._numeric.observation_cdf(y, mean, variance)

    def exceedance(
        self, nodes: Longs, threshold: Floats | float, *, observation: bool = False, replicate: int = 0,
        offset: Floats | float = 0.0,
    ) -> Floats:  # fmt: skip
        """Probabilities that the response or a new observation is above a threshold; shape (n_nodes,)."""
        level = np.broadcast_to(np.asarray(threshold, dtype=np.float64), (len(nodes),))
        if observation:
            return 1.0 - self.cdf(nodes, level, replicate=replicate, offset=offset)
        mean, variance = self._latent(nodes, replicate, offset)
        away = mean - self._numeric.inverse_response(level)
        return np.asarray(ndtr(away / np.sqrt(np.maximum(variance, 1e-300))))

    def log_density(self, nodes: Longs, y: Floats, *, replicate: int = 0, offset: Floats | float = 0.0) -> Floats:
        """Log density, or log probability of a count, of new observations; shape (n_nodes,)."""
        mean, variance = self._latent(nodes, replicate, offset)
        with torch.no_grad():
            columns = (torch.from_numpy(np.ascontiguousarray(x))[None] for x in (mean, variance))
            return self._numeric.predictive_log_prob(torch.from_numpy(y), *columns).numpy()

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
        mean, variance = self._latent(nodes, replicate, offset)
        return self._numeric.draw(mean + np.sqrt(variance) * rng.standard_normal((n_samples, len(nodes))), rng)

    # ------------------------------------------------------------------ observations against what others say of them
    def left_out(self) -> dict[int, checks.LeftOut]:
        """Observations given all others, by replicate."""
        return checks.left_out(self)

    def left_out_classes(self) -> Floats:
        """Class probabilities of labelled nodes given all other labels; shape (n, n_classes)."""
        return checks.left_out_classes(self)

    @cached_property
    def label_cavities(self) -> Cavities:
        """What all other labels say of the coupled processes at each label."""
        nodes = self.parts[0].group.nodes
        d = np.stack([part.precision for part in self.parts], axis=1)
        t = np.hstack([part.potentials for part in self.parts])
        with small_matrix_threads(len(nodes)):
            return class_cavities(self.latent_mean(nodes).T, self.class_covariance(nodes), d, t)

    @property
    def class_codes(self) -> Longs:
        """Codes of the labels that were seen; shape (n,)."""
        return checks.class_codes(self)

    def pointwise(self) -> checks.Pointwise:
        """Log-likelihoods of single observations, for WAIC."""
        return checks.pointwise(self)
