"""What the evidence lower bound leaves out, to leading order, where parameters are weighed against each other.

With R the log-likelihood of an observation less its site, log p(y) = ELBO + log E e^(ΣR) − E ΣR under q. At the optimum
R has no constant slope or curvature left, so that different observations are correlated only through the third power of
the correlation of q: each by itself, Σ (log E e^R − E R) is nearly all of it (on 1,921 districts with few cases, all
but 0.007 of 15 nats). For a single observation it is exact.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from graphmatern.inference.sites.updates import SiteLikelihood, SiteState

__all__ = ["beyond_the_bound"]


def beyond_the_bound(observed: SiteLikelihood, state: SiteState) -> float:
    """Log evidence less the lower bound, in nats, for one latent process.

    Parameters
    ----------
    observed : SiteLikelihood
        The observations.
    state : SiteState
        The best sites.
    """
    nodes, weights = observed.likelihood.quadrature
    mean, variance = state.marginals.mean[0], np.maximum(state.marginals.variance[0], 0.0)
    f = mean + np.sqrt(variance) * nodes[:, None]
    with torch.no_grad():
        log_prob = observed.likelihood.log_prob(observed.y, torch.from_numpy(f + observed.offset)[:, None]).numpy()
    left = log_prob - (state.sites.first[0] - 0.5 * state.sites.second[0] * f) * f
    away = left - weights @ left
    return float(np.log(np.maximum(weights @ np.exp(np.minimum(away, 500.0)), 1e-300)).sum())
