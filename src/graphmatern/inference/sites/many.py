"""The evidence at many parameters at once, where matrices are small: arithmetic is then less than what Python adds.

Arrays have a first axis for parameters. What does not come to rest here had better be looked at by itself, with all the
care that `graphmatern.inference.sites.matching` takes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from graphmatern.inference.dense import STRONG_SITE
from graphmatern.inference.learning.parameters import spread_parameters
from graphmatern.inference.sites.marginals import Sites
from graphmatern.inference.sites.matching import HOPELESS, expected_log_sites, has_cavities, tilt

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from graphmatern.inference.observations import Group
    from graphmatern.inference.sites.matching import Tilted
    from graphmatern.inference.sites.updates import SiteLikelihood

    Floats = NDArray[np.float64]
    Flags = NDArray[np.bool_]

__all__ = ["Matched", "gaussian_forms", "match_many", "parts_of"]

_ENTRIES_AT_ONCE = 2**20  # of matrices
_IN_CACHE = 8  # as many fewer observations than fit into memory
_UPDATES = 40
_SHARE, _LEAST_SHARE = 1.0, 0.1  # of the way to their targets that sites go at once
_CLEARLY = 0.8  # of the squared distance to a fixed point that may be left by an update


def parts_of(thetas: Floats, groups: Sequence[Group]) -> list[Floats]:
    """Parameters in parts, for each of which all matrices fit into memory."""
    most = max(1, _ENTRIES_AT_ONCE // max(len(group.nodes) ** 2 + 1 for group in groups))
    return [thetas[start : start + most] for start in range(0, len(thetas), most)]


def gaussian_forms(covariance: Floats, noise: Floats, data: Floats) -> tuple[Floats, Floats]:
    """Log-determinants of C = K + R, and forms DᵀC⁻¹D.

    Parameters
    ----------
    covariance : ndarray, shape (m, n, n)
        K.
    noise : ndarray, shape (m, n)
        Diagonals of R.
    data : ndarray, shape (n, k)
        D.

    Returns
    -------
    log_determinants : ndarray, shape (m,)
        Infinite where C is not positive definite.
    forms : ndarray, shape (m, k, k)
        Something finite there.
    """
    factor, failed = _factors(torch.from_numpy(covariance) + torch.diag_embed(torch.from_numpy(noise)))
    white = torch.linalg.solve_triangular(factor, torch.from_numpy(data).expand(len(factor), *data.shape), upper=False)
    determinants = _log_determinants(factor)
    determinants[failed] = np.inf
    return determinants.numpy(), (white.mT @ white).numpy()


def _factors(matrices: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Cholesky factors, and where there are none: there it is that of the identity."""
    factor, info = torch.linalg.cholesky_ex(matrices)
    failed = (info != 0) | ~torch.isfinite(factor.diagonal(dim1=-2, dim2=-1)).all(dim=-1)
    factor[failed] = torch.eye(matrices.shape[-1], dtype=matrices.dtype)
    return factor, failed


def _log_determinants(factor: torch.Tensor) -> torch.Tensor:
    return 2.0 * torch.log(factor.diagonal(dim1=-2, dim2=-1)).sum(dim=-1)


class _Marginals(NamedTuple):
    """Of q: moments, (m, n), KL(q ‖ p), (m,), and whether q exists, (m,)."""

    mean: Floats
    variance: Floats
    divergence: Floats
    exist: Flags


def _marginals(covariance: Floats, sites: Sites) -> _Marginals:
    """Marginals under sites: first the positive ones, then the negative ones."""
    prior = torch.from_numpy(covariance)
    first, second = (torch.from_numpy(one) for one in sites)
    root = second.clamp_min(0.0).sqrt()
    scaled = root[:, :, None] * prior
    factor, failed = _factors(scaled * root[:, None, :] + torch.eye(prior.shape[-1], dtype=prior.dtype))
    removed = torch.linalg.solve_triangular(factor, scaled, upper=False)
    variance = prior.diagonal(dim1=-2, dim2=-1) - (removed**2).sum(dim=1)
    mean = (prior @ first[:, :, None] - removed.mT @ (removed @ first[:, :, None]))[:, :, 0]
    determinant = _log_determinants(factor)
    some = torch.nonzero((second < 0.0).any(dim=1))[:, 0]
    if len(some):
        negative = (-second[some]).clamp_min(0.0).sqrt()
        rows = negative[:, :, None] * (prior[some] - removed[some].mT @ removed[some])
        inner = torch.eye(prior.shape[-1], dtype=prior.dtype) - rows * negative[:, None, :]
        factor, its_failed = _factors(inner)
        added = torch.linalg.solve_triangular(factor, rows, upper=False)
        variance[some] += (added**2).sum(dim=1)
        mean[some] += (added.mT @ (added @ first[some][:, :, None]))[:, :, 0]
        determinant[some] += _log_determinants(factor)
        failed[some] |= its_failed
    divergence = 0.5 * (((first - second * mean) * mean).sum(dim=1) + determinant - (second * variance).sum(dim=1))
    exist = ~failed & (variance > 0.0).all(dim=1) & torch.isfinite(mean).all(dim=1)
    return _Marginals(mean.numpy(), variance.numpy(), divergence.numpy(), exist.numpy())


@dataclass(frozen=True)
class Matched:
    """Sites at many parameters.

    Attributes
    ----------
    sites : Sites
        Each of shape (m, n).
    evidence : ndarray, shape (m,)
        Approximate log evidence.
    size : ndarray, shape (m,)
        Half the squared distance of the sites from their targets: about what is left to gain.
    target : Sites
        Those that match the moments.
    at_rest : ndarray of bool, shape (m,)
        Whether the updates came to rest.
    """

    sites: Sites
    evidence: Floats
    size: Floats
    target: Sites
    at_rest: Flags

    def __getitem__(self, rows: Flags | NDArray[np.int64]) -> Matched:
        """Some of them."""
        sites, target = (Sites(*(one[rows] for one in both)) for both in (self.sites, self.target))
        return Matched(sites, self.evidence[rows], self.size[rows], target, self.at_rest[rows])

    def sites_at(self, row: int) -> Sites:
        """Sites of one set of parameters, each of shape (1, n)."""
        return Sites(*(np.array(one[row, None]) for one in self.sites))

    def put(self, rows: NDArray[np.int64], other: Matched) -> None:
        """Replace some of them."""
        for own, its in zip((*self.sites, *self.target), (*other.sites, *other.target), strict=True):
            own[rows] = its
        self.evidence[rows], self.size[rows], self.at_rest[rows] = other.evidence, other.size, other.at_rest


def match_many(
    covariance: Floats,
    observed: SiteLikelihood,
    raw: Sequence[Any],
    columns: Floats,
    start: Sites,
    *,
    tolerance: float,
    best: float,
) -> Matched:
    """Find fixed points of expectation propagation; see `graphmatern.inference.sites.matching.match_moments`.

    Parameters
    ----------
    covariance : ndarray, shape (m, n, n)
        Of η(x) before the data, linear effects included.
    observed : SiteLikelihood
        The observations, of one latent process.
    raw : sequence of torch.nn.Parameter
        Free parameters of its likelihood.
    columns : ndarray, shape (n_free, m)
        Their values.
    start : Sites
        Where to start, each of shape (m, n).
    tolerance : float
        Relative to 1 + |evidence|.
    best : float
        The best evidence so far: what is hopelessly below it need not be known exactly.
    """
    n = covariance.shape[1]
    prior_variance = np.diagonal(covariance, axis1=1, axis2=2)

    most = max(1, observed.likelihood.observations_at_once() // (_IN_CACHE * n))

    def evaluate(rows: NDArray[np.int64], sites: Sites) -> Matched:
        found = _unknown(len(rows), n)
        for begin in range(0, len(rows), most):
            part = np.arange(begin, min(begin + most, len(rows)))
            some = rows[part]
            with spread_parameters(raw, np.repeat(columns[:, some], n, axis=1)):
                own = Sites(*(one[part] for one in sites))
                found.put(part, _evaluated(covariance[some], prior_variance[some], observed, own))
        return found

    every = np.arange(len(covariance))
    found = evaluate(every, start)
    lost = np.flatnonzero(~np.isfinite(found.evidence))
    nothing = np.zeros((len(lost), n))
    found.put(lost, evaluate(lost, Sites(nothing, nothing)))
    share = np.full(len(covariance), _SHARE)
    for _ in range(_UPDATES):
        enough = tolerance * (1.0 + np.minimum(np.abs(found.evidence), 2.0 * n))
        hopeless = found.evidence + 2.0 * found.size < best - HOPELESS
        found.at_rest[:] = np.isfinite(found.evidence) & ((found.size <= enough) | hopeless)
        rows = np.flatnonzero(~found.at_rest & (share >= _LEAST_SHARE) & np.isfinite(found.evidence))
        if not len(rows):
            break
        own, its_share = found[rows], share[rows, None]
        towards = (one + its_share * (its - one) for one, its in zip(own.sites, own.target, strict=True))
        moved = evaluate(rows, Sites(*towards))
        nearer = moved.size < _CLEARLY * own.size
        found.put(rows[nearer], moved[nearer])
        share[rows] = np.where(nearer, np.minimum(2.0 * share[rows], _SHARE), 0.4 * share[rows])
    return found


def _unknown(m: int, n: int) -> Matched:
    """Room for m sets of sites."""
    first, second, its_first, its_second = np.zeros((4, m, n))
    sizes, nothing = np.full(m, np.inf), np.full(m, -np.inf)
    return Matched(Sites(first, second), nothing, sizes, Sites(its_first, its_second), np.zeros(m, dtype=bool))


def _evaluated(covariance: Floats, prior_variance: Floats, observed: SiteLikelihood, sites: Sites) -> Matched:
    """Evidence and targets of given sites; an evidence of −∞ where there is none."""
    marginals = _marginals(covariance, sites)
    fine = marginals.exist & (np.abs(sites.second) * prior_variance < STRONG_SITE).all(axis=1)
    fine &= has_cavities(sites, marginals.variance, prior_variance, 1.0).all(axis=1)
    safe = fine[:, None]
    mean, variance = np.where(safe, marginals.mean, 0.0), np.where(safe, marginals.variance, prior_variance)
    used = Sites(*(np.where(safe, one, 0.0) for one in sites))
    tilted = _tilted(observed, used, mean, variance)
    gains = expected_log_sites(used, mean, variance).sum(axis=1) - marginals.divergence + tilted.gains.sum(axis=1)
    first, second = (its - one for one, its in zip(used, tilted.target, strict=True))
    # As `updates.residual_of` has it, of each set of parameters.
    distance = variance * (first - second * mean) ** 2 + 0.5 * (variance * second) ** 2
    size = 0.5 * distance.sum(axis=1)
    fine &= np.isfinite(gains) & np.isfinite(size)
    evidence, size = np.where(fine, gains, -np.inf), np.where(fine, size, np.inf)
    return Matched(used, evidence, size, tilted.target, np.zeros(len(fine), dtype=bool))


def _tilted(observed: SiteLikelihood, sites: Sites, mean: Floats, variance: Floats) -> Tilted:
    """See `matching.tilt`: to a likelihood all observations of all parameters are so many observations."""
    m, n = mean.shape
    every = replace(observed, y=observed.y.repeat(m), offset=np.tile(observed.offset, m))
    flat = Sites(*(one.reshape(1, -1) for one in sites))
    found = tilt(every, flat, mean.reshape(1, -1), variance.reshape(1, -1), 1.0)
    cavities = found.cavity_mean.reshape(m, n), found.cavity_variance.reshape(m, n)
    return found._replace(
        cavity_mean=cavities[0],
        cavity_variance=cavities[1],
        target=Sites(*(one.reshape(m, n) for one in found.target)),
        gains=found.gains.reshape(m, n),
    )
