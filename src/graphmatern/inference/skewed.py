"""A posterior whose marginals are skewed, as those of counts, of two classes and near outliers are.

Under sites that match moments, mean and variance are right, and what an observation adds to the third cumulant of the
process at its own node is known: it is t_j v_j³, that of its likelihood times the cavity. To first order the process at
node i then has the third cumulant Σ_j t_j c_ij³, with c the covariance under q (the simplified Laplace approximation of
Rue, Martino and Chopin 2009, about the matched moments instead of the mode). Marginals are shifted log-normal
(`graphmatern.inference.skewness`), joint draws have them over the correlation of q. Correlations, and
observations given all others, are those of q.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from scipy.special import logsumexp

from graphmatern.inference.posterior import Posterior
from graphmatern.inference.skewness import stretch
from graphmatern.inference.weighted import Normals
from graphmatern.likelihoods import find_quantile

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from graphmatern.inference.posterior import Part

    Floats = NDArray[np.float64]
    Longs = NDArray[np.int64]

__all__ = ["SkewedPosterior"]

_MOST_COVARIANCES = 2**18  # between nodes and observations; beyond that, marginals are taken for normal
_LARGEST = 1.5  # skewness that a first order can tell


class SkewedPosterior(Posterior):
    """One latent process for each replicate, under sites that match moments; parameters as of `Posterior`."""

    def latent_skewness(self, nodes: Longs) -> Floats | None:
        """Skewness of η; shape (n_replicates, n_nodes)."""
        if len(nodes) * max(len(part.precision) for part in self.parts) > _MOST_COVARIANCES:
            return None
        return self._remembered("skewness", nodes, self._find_skewness)

    def _find_skewness(self, nodes: Longs) -> Floats:
        found = np.zeros((self.n_replicates, len(nodes)))
        variance = np.maximum(self.latent_variance(nodes), 1e-300)
        for part, mean, left in self.leave_one_out():
            seen = part.group.nodes
            covariance = part.predictive.covariance_times(nodes, seen, np.eye(len(seen)))
            if self._observations.n_effects:
                own, its = self.sensitivity(part, nodes), self.where_seen(part.group).sensitivity(part, seen)
                covariance = covariance + own @ self.effects[part.latent].covariance @ its.T
            rows = self._rows(part)
            found[rows] = covariance**3 @ self._thirds(part, mean[:, 0], left) / variance[rows] ** 1.5
        return np.clip(found, -_LARGEST, _LARGEST)

    def _thirds(self, part: Part, mean: Floats, variance: Floats) -> Floats:
        """The t of each observation, whose mean and variance given all others are known; shape (n,)."""
        nodes, weights = self.likelihood.quadrature
        row = self._rows(part)[0]
        centre, spread = (one[row] for one in self.at_observations(part))
        # Quadrature about q, which is close to the likelihood times the cavity.
        away = np.sqrt(spread) * nodes[:, None]
        known = np.isfinite(variance)
        with torch.no_grad():
            f = torch.from_numpy(centre + part.group.offset + away)[:, None]
            logs = self.likelihood.log_prob(torch.from_numpy(part.group.y[:, 0].copy()), f).numpy()
        own = np.where(known, (centre + away - mean) ** 2 / np.where(known, variance, 1.0), 0.0)
        logs = logs + np.log(weights)[:, None] + 0.5 * nodes[:, None] ** 2 - 0.5 * own
        shares = np.exp(logs - logsumexp(logs, axis=0))
        from_mean = away - np.sum(shares * away, axis=0)
        return np.asarray(np.sum(shares * from_mean**3, axis=0) / spread**3)

    # ------------------------------------------------------------------ what follows from the marginals
    def _values(self, nodes: Longs, replicate: int, offset: Floats | float) -> tuple[Floats, Floats] | None:
        """Weights (k,) and values (k, n_nodes) of η for averages over it; None where those of q are used."""
        skewness = self.latent_skewness(nodes)
        if skewness is None:
            return None
        mean, deviation = self.latent_mean(nodes)[replicate] + offset, np.sqrt(self.latent_variance(nodes)[replicate])
        scores, weights = self.likelihood.quadrature
        return weights, mean + deviation * stretch(scores[:, None], skewness[replicate])

    def moments(
        self, nodes: Longs, *, observation: bool = False, offset: Floats | float = 0.0
    ) -> tuple[Floats, Floats]:
        """See `Posterior.moments`."""
        rows = []
        for replicate in range(self.n_replicates):
            points = self._values(nodes, replicate, offset)
            if points is None:
                return super().moments(nodes, observation=observation, offset=offset)
            weights, values = points
            both = Normals(weights, *self.response(values, np.zeros_like(values), observation=observation))
            rows.append((both.mean, both.variance))
        means, variances = (np.stack(one) for one in zip(*rows, strict=True))
        return means, variances

    def covariance(self, nodes: Longs, replicate: int = 0, *, offset: Floats | float = 0.0) -> Floats:
        """The correlations of `Posterior.covariance`, with the variances of `moments`."""
        found = super().covariance(nodes, replicate, offset=offset)
        scale = np.sqrt(self.moments(nodes, offset=offset)[1][replicate] / np.maximum(np.diag(found), 1e-300))
        return np.asarray(found * scale[:, None] * scale)

    def _marginal(self, nodes: Longs, replicate: int, offset: Floats | float) -> Normals:
        skewness = self.latent_skewness(nodes)
        return Normals(
            np.ones(1),
            self.latent_mean(nodes)[[replicate]] + offset,
            self.latent_variance(nodes)[[replicate]],
            None if skewness is None else skewness[[replicate]],
        )

    def quantile(
        self, nodes: Longs, level: float, *, observation: bool, replicate: int = 0, offset: Floats | float = 0.0
    ) -> Floats:
        """See `Posterior.quantile`."""
        if not observation:
            return self.response_of(self._marginal(nodes, replicate, offset).quantile(level))
        mean, variance = (one[replicate] for one in self.moments(nodes, observation=True, offset=offset))
        return find_quantile(
            lambda y: self.cdf(nodes, y, replicate=replicate, offset=offset), level, mean, variance, whole=self.counts
        )

    def cdf(self, nodes: Longs, y: Floats, *, replicate: int = 0, offset: Floats | float = 0.0) -> Floats:
        """See `Posterior.cdf`."""
        points = self._values(nodes, replicate, offset)
        if points is None:
            return super().cdf(nodes, y, replicate=replicate, offset=offset)
        weights, values = points
        return np.asarray(weights @ self._numeric.cdf_given(y, values))

    def exceedance(
        self, nodes: Longs, threshold: Floats | float, *, observation: bool = False, replicate: int = 0,
        offset: Floats | float = 0.0,
    ) -> Floats:  # fmt: skip
        """See `Posterior.exceedance`."""
        if observation:
            return super().exceedance(nodes, threshold, observation=True, replicate=replicate, offset=offset)
        level = self._numeric.inverse_response(np.broadcast_to(np.asarray(threshold, np.float64), (len(nodes),)))
        return self._marginal(nodes, replicate, offset).above(level)

    def log_density(self, nodes: Longs, y: Floats, *, replicate: int = 0, offset: Floats | float = 0.0) -> Floats:
        """See `Posterior.log_density`."""
        points = self._values(nodes, replicate, offset)
        if points is None:
            return super().log_density(nodes, y, replicate=replicate, offset=offset)
        return self._log_expected(np.ascontiguousarray(y, dtype=np.float64), *points)

    def _log_expected(self, y: Floats, weights: Floats, values: Floats) -> Floats:
        """Log E p(y | η); shape (n_nodes,)."""
        with torch.no_grad():
            logs = self.likelihood.log_prob(torch.from_numpy(y), torch.from_numpy(values)[:, None]).numpy()
        return np.asarray(logsumexp(logs, axis=0, b=weights[:, None]))

    def class_probabilities(self, nodes: Longs) -> Floats:
        """See `Posterior.class_probabilities`."""
        points = self._values(nodes, 0, 0.0)
        if points is None:
            return super().class_probabilities(nodes)
        second = np.exp(self._log_expected(np.ones(len(nodes)), *points))
        return np.stack([1.0 - second, second], axis=1)

    def draw_observations(
        self,
        n_samples: int,
        nodes: Longs,
        rng: np.random.Generator,
        *,
        replicate: int = 0,
        offset: Floats | float = 0.0,
    ) -> Floats:
        """See `Posterior.draw_observations`."""
        white = rng.standard_normal((n_samples, len(nodes)))
        return self._numeric.draw(self._stretched(white, nodes, replicate) + offset, rng)

    def latent_samples(self, n_samples: int, nodes: Longs, rng: np.random.Generator, row: int = 0) -> Floats:
        """See `Posterior.latent_samples`."""
        found = super().latent_samples(n_samples, nodes, rng, row)
        deviation = np.sqrt(np.maximum(self.latent_variance(nodes)[row], 1e-300))
        return self._stretched((found - self.latent_mean(nodes)[row]) / deviation, nodes, row)

    def _stretched(self, white: Floats, nodes: Longs, row: int) -> Floats:
        """Draws of η from draws of its standard scores under q; shape as ``white``, (n_samples, n_nodes)."""
        skewness = self.latent_skewness(nodes)
        scores = white if skewness is None else stretch(white, skewness[row])
        return np.asarray(self.latent_mean(nodes)[row] + np.sqrt(self.latent_variance(nodes)[row]) * scores)
