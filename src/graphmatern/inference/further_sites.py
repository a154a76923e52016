"""Further sites on a process, through its covariances alone: dense in the number of sites, for any engine."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import scipy.linalg as la

from graphmatern.errors import NotPositiveDefiniteError, ResourceError
from graphmatern.inference.dense import root_of
from graphmatern.inference.process import Predictive

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Longs = NDArray[np.int64]

__all__ = ["UnderFurtherSites"]

_MOST = 12_000  # sites whose covariance, a dense matrix, is factorised
_AT_ONCE = 256


class UnderFurtherSites(Predictive):
    """A process with covariance C under sites τ at nodes x: C − C_·x (C_xx + diag(1/τ))⁻¹ C_x·.

    Parameters
    ----------
    predictive : Predictive
        The process without them.
    nodes : ndarray of int64, shape (m,)
        x; repeats are allowed.
    precision : ndarray, shape (m,)
        τ; sites of precision 0 change no covariance.
    """

    def __init__(self, predictive: Predictive, nodes: Longs, precision: Floats) -> None:
        if len(nodes) > _MOST:
            raise ResourceError(
                f"{len(nodes):,} further measurements would need a dense matrix of as many rows with this engine; "
                f"at most {_MOST:,} are possible. Use fewer candidates, or engine='markov' or 'spectral'."
            )
        self._base, self._all, self._precision = predictive, nodes, precision
        self._nodes = nodes[precision != 0.0]
        self._noise = 1.0 / precision[precision != 0.0]

    @cached_property
    def _inverse(self) -> Floats:
        """(C_xx + diag(1/τ))⁻¹."""
        inner = self._base.covariances(self._nodes)
        inner[np.diag_indices_from(inner)] += self._noise
        if (self._noise > 0.0).all():
            factor = la.cho_factor(inner, lower=True, check_finite=False)
            return np.asarray(la.cho_solve(factor, np.eye(len(inner)), check_finite=False))
        # Sites that are taken away: there is a process left where I + τ C has only positive eigenvalues.
        values, vectors = la.eigh(inner)
        if int((values < 0.0).sum()) != int((self._noise < 0.0).sum()):
            raise NotPositiveDefiniteError("negative sites outweigh the prior", -1)
        return np.asarray((vectors / values) @ vectors.T)

    def means(self, nodes: Longs, potentials: Floats) -> Floats:
        """Means of f at some nodes, for potentials of the earlier sites and of these; shape (n_nodes, k)."""
        first = len(potentials) - len(self._all)
        own = potentials[first:]
        at = self._base.means(np.concatenate([nodes, self._all]), potentials[:first])
        moved = at[: len(nodes)] + self._base.covariance_times(nodes, self._all, own)  # potentials at precision 0
        reached = at[len(nodes) :] + self._base.covariance_times(self._all, self._all, own)
        return np.asarray(moved - self._gain(nodes, reached[self._precision != 0.0]))

    def _gain(self, nodes: Longs, values: Floats) -> Floats:
        """C_·x (C_xx + diag(1/τ))⁻¹ values; shape (n_nodes, k)."""
        return self._base.covariance_times(nodes, self._nodes, self._inverse @ values)

    def covariance_times(self, nodes: Longs, others: Longs, weights: Floats) -> Floats:
        """Covariances of f between some nodes and others, times weights; shape (n_nodes, k)."""
        own = self._base.covariance_times(nodes, others, weights)
        return np.asarray(own - self._gain(nodes, self._base.covariance_times(self._nodes, others, weights)))

    def _cross(self, nodes: Longs) -> Floats:
        """C between some nodes and x; shape (n_nodes, m)."""
        return self._base.covariance_times(nodes, self._nodes, np.eye(len(self._nodes)))

    def variances(self, nodes: Longs) -> Floats:
        """Variances of f at some nodes; shape (n_nodes,)."""
        found = self._base.variances(nodes).copy()
        for start in range(0, len(nodes), max(_AT_ONCE, 2**24 // max(1, len(self._nodes)))):
            part = slice(start, start + max(_AT_ONCE, 2**24 // max(1, len(self._nodes))))
            cross = self._cross(nodes[part])
            found[part] -= np.einsum("ij,ij->i", cross @ self._inverse, cross)
        return np.maximum(found, 0.0)

    def covariances(self, nodes: Longs) -> Floats:
        """Covariance of f at some nodes; shape (n_nodes, n_nodes)."""
        cross = self._cross(nodes)
        found = self._base.covariances(nodes) - cross @ self._inverse @ cross.T
        return np.asarray(0.5 * (found + found.T))

    def deviations(self, n_samples: int, nodes: Longs, rng: np.random.Generator) -> Floats:
        """Draws of f minus its mean; shape (n_samples, n_nodes)."""
        return np.asarray((root_of(self.covariances(nodes)) @ rng.standard_normal((len(nodes), n_samples))).T)
