"""Regression whose noise is not Gaussian: the process through its response, in the units in which it was observed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from scipy.special import ndtri

from graphmatern._validation import FaultList
from graphmatern.errors import KernelError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from graphmatern.inference._fit_sites import SiteFit
    from graphmatern.inference._sites import SiteObservations
    from graphmatern.likelihoods import Numeric

    Floats = NDArray[np.float64]
    Longs = NDArray[np.int64]

__all__ = ["ResponsePosterior"]


class ResponsePosterior:
    """Predictions of the response g(f), such as a rate e^f, and of new observations; exposures are 1.

    It says what `Posterior` says about f itself.

    Parameters
    ----------
    fit : SiteFit
        The fit.
    observed : SiteObservations
        What it was fitted to.
    likelihood : Numeric
        With the learned parameters.
    learned_mean : bool
        Whether the latent process has a constant mean.
    """

    n_replicates = 1

    def __init__(self, fit: SiteFit, observed: SiteObservations, likelihood: Numeric, *, learned_mean: bool) -> None:
        self._fit, self._observed, self._likelihood = fit, observed, likelihood
        self.coefficients = np.array([fit.mean] if learned_mean else [])
        # Maximised over, not integrated out: of its uncertainty nothing is known.
        self.coefficient_covariance = np.full((len(self.coefficients),) * 2, np.nan)

    def _moments(self, mean: Floats, variance: Floats, *, observation: bool) -> tuple[Floats, Floats]:
        """Mean and variance of the response or of a new observation, given those of f; shapes (n,)."""
        likelihood = self._likelihood
        find = likelihood.observation_moments if observation else likelihood.response_moments
        with torch.no_grad():
            found = find(torch.from_numpy(mean)[None], torch.from_numpy(variance)[None])
        return found[0].numpy(), found[1].numpy()

    def _latent(self, nodes: Longs) -> tuple[Floats, Floats]:
        mean, variance = self._fit.latent_marginals(nodes)
        return mean[0].copy(), variance[0].copy()

    def mean(self, nodes: Longs) -> Floats:
        """Means of the response; shape (n_nodes, 1)."""
        return self._moments(*self._latent(nodes), observation=False)[0][:, None]

    def variance(self, nodes: Longs) -> Floats:
        """Variances of the response; shape (n_nodes, 1)."""
        return self._moments(*self._latent(nodes), observation=False)[1][:, None]

    def noise(self, nodes: Longs) -> Floats:
        """What the variance of a new observation adds to that of the response; shape (n_nodes, 1)."""
        latent = self._latent(nodes)
        whole, own = (self._moments(*latent, observation=which)[1] for which in (True, False))
        return np.asarray(whole - own)[:, None]

    def covariance(self, nodes: Longs, replicate: int = 0) -> Floats:
        """Covariance of the response; shape (n_nodes, n_nodes)."""
        del replicate
        return self._likelihood.response_covariance(self._latent(nodes)[0], self._fit.covariance(nodes))

    def quantile(self, nodes: Longs, level: float, *, observation: bool) -> Floats:
        """Quantile of the response or of a new observation; shape (n_nodes,)."""
        mean, variance = self._latent(nodes)
        if observation:
            return self._likelihood.observation_quantile(level, mean, variance)
        return self._likelihood.response(mean + float(ndtri(level)) * np.sqrt(variance))

    def log_density(self, nodes: Longs, y: Floats) -> Floats:
        """Log density, or log probability of a count, of new observations; shape (n_nodes,)."""
        mean, variance = (torch.from_numpy(x)[None] for x in self._latent(nodes))
        with torch.no_grad():
            return self._likelihood.predictive_log_prob(torch.from_numpy(y), mean, variance).numpy()

    def samples(
        self, n_samples: int, nodes: Longs, rng: np.random.Generator, replicate: int, size: int
    ) -> Iterator[Floats]:
        """Draws of the response, ``size`` at a time; each of shape (up to size, n_nodes)."""
        del replicate
        for start in range(0, n_samples, size):
            drawn = self._fit.sample(min(size, n_samples - start), nodes, rng)
            yield self._likelihood.response(drawn[:, 0])

    def on_edges(self, *places: object) -> tuple[Floats, Floats]:
        """Refuse: between nodes a response is not linear."""
        del places
        faults = FaultList("no predictions on edges", KernelError)
        received = type(self._likelihood).__name__
        raise faults.raise_now("likelihood", "must be Gaussian for this", received, "Insert points: Graph.subdivide.")

    def leave_one_out(self) -> list[tuple[Longs, Floats, Floats]]:
        """Mean and variance of each observation given all others, about: its site is taken out of q.

        Returns
        -------
        list of (columns, means, variances)
            One entry, as there is one replicate; means of shape (n, 1), variances of shape (n,).
        """
        state, observed = self._fit.state, self._observed
        m, v = state.marginals.mean[0], state.marginals.variance[0]
        precision = 1.0 / v - state.sites.second[0]
        variance = 1.0 / precision
        mean = variance * (m / v - state.sites.first[0]) + observed.offset + self._fit.mean
        means, variances = self._moments(mean, variance, observation=True)
        return [(np.zeros(1, dtype=np.int64), means[:, None], variances)]
