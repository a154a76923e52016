"""Sites on dense matrices: processes given by features, or by their covariance, at the observations.

With features R, f = R z with z ~ N(0, I), and under q, z has precision I + Rᵀ diag(η₂) R, which is positive definite
exactly where q exists. With a covariance K, which may be singular, positive sites give S₊ = K − K D (I + D K D)⁻¹ D K
with D² = diag(η₂), and the few negative ones correct it: S = S₊ + S₊ T (I − T S₊ T)⁻¹ T S₊ with T² = −diag(η₂). That
takes fewer than half the operations of features with R Rᵀ = K, but loses digits to sites far stronger than the prior.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import scipy.linalg as la

from graphmatern.errors import NotPositiveDefiniteError
from graphmatern.inference._sites import LatentPrior, Marginals

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from graphmatern.inference._sites import Sites

    Floats = NDArray[np.float64]

_STRONG = 1e5  # a site times the prior variance: beyond it, subtraction costs too many digits

__all__ = ["DensePrior", "cholesky_or_raise", "precision_of_features"]


def cholesky_or_raise(matrix: Floats) -> Floats:
    """Lower Cholesky factor of a symmetric matrix, which is overwritten; raises where negative sites spoil it."""
    factor, failed = la.lapack.dpotrf(matrix.T, lower=1, overwrite_a=1)
    if failed:
        raise NotPositiveDefiniteError("negative sites outweigh the prior", -1)
    return np.asarray(factor)


def precision_of_features(features: Floats, second: Floats) -> Floats:
    """I + Rᵀ diag(η₂) R; shape (r, r)."""
    precision = features.T @ (second[:, None] * features)
    precision[np.diag_indices_from(precision)] += 1.0
    return np.asarray(precision)


class _Posterior(NamedTuple):
    """Covariance of one process under q, as S = K − VᵀV + WᵀW; log det of its precision against the prior's."""

    covariance: Floats | None  # K, (n, n)
    removed: Floats | None  # V, (r, n)
    added: Floats | None  # W, (k, n)
    log_determinant: float

    def variance(self) -> Floats:
        """Diagonal; shape (n,)."""
        found = np.zeros(1) if self.covariance is None else np.diag(self.covariance).copy()
        if self.removed is not None:
            found = found - np.einsum("ij,ij->j", self.removed, self.removed)
        return found if self.added is None else found + np.einsum("ij,ij->j", self.added, self.added)

    def times(self, vector: Floats) -> Floats:
        """S x; shape (n,)."""
        found = np.zeros(len(vector)) if self.covariance is None else self.covariance @ vector
        if self.removed is not None:
            found = found - self.removed.T @ (self.removed @ vector)
        return found if self.added is None else found + self.added.T @ (self.added @ vector)

    def scaled(self, second: Floats) -> Floats:
        """diag(η₂) S diag(η₂); shape (n, n)."""
        found = np.zeros((len(second), len(second)))
        if self.covariance is not None:
            found += self.covariance * second * second[:, None]
        if self.removed is not None:
            half = self.removed * second
            found -= half.T @ half
        if self.added is not None:
            half = self.added * second
            found += half.T @ half
        return found


def _root_of(covariance: Floats) -> Floats:
    """R with R Rᵀ = K for a covariance that may be singular; shape (n, n)."""
    try:
        return np.asarray(la.cholesky(covariance, lower=True, check_finite=False))
    except la.LinAlgError:
        values, vectors = la.eigh(covariance, check_finite=False)
        return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))


def _by_features(features: Floats, second: Floats) -> _Posterior:
    factor = cholesky_or_raise(precision_of_features(features, second))
    half = la.blas.dtrsm(1.0, factor, features.T, lower=1)
    return _Posterior(None, None, half, 2.0 * float(np.log(np.diag(factor)).sum()))


def _by_covariance(covariance: Floats, second: Floats) -> _Posterior:
    # Transposed views of symmetric matrices are in Fortran's order, which LAPACK then need not copy.
    root = np.sqrt(np.maximum(second, 0.0))
    scaled = covariance * root
    inner = scaled * root[:, None]
    inner[np.diag_indices_from(inner)] += 1.0
    factor = cholesky_or_raise(inner)
    removed = la.blas.dtrsm(1.0, factor, scaled.T, lower=1, overwrite_b=1)
    log_determinant = 2.0 * float(np.log(np.diag(factor)).sum())
    negative = np.flatnonzero(second < 0.0)
    if not len(negative):
        return _Posterior(covariance, removed, None, log_determinant)
    root = np.sqrt(-second[negative])
    rows = root[:, None] * (covariance[negative] - removed[:, negative].T @ removed)
    inner = -rows[:, negative] * root
    inner[np.diag_indices_from(inner)] += 1.0
    factor = cholesky_or_raise(inner)
    log_determinant += 2.0 * float(np.log(np.diag(factor)).sum())
    return _Posterior(covariance, removed, la.blas.dtrsm(1.0, factor, rows, lower=1), log_determinant)


class DensePrior(LatentPrior):
    """Processes given by features or covariance at the observations; what is differentiated is up to subclasses.

    Parameters
    ----------
    features : ndarray, shape (n, r)
        R. Where there are more of them than observations, their covariance R Rᵀ is used instead.
    covariance : ndarray, shape (n, n), optional
        K, where there are no features.
    """

    def __init__(self, features: Floats | None, covariance: Floats | None = None) -> None:
        if features is not None and features.shape[0] < features.shape[1]:
            covariance, features = features @ features.T, None
        self._root, self._covariance = features, covariance

    @property
    def in_function_space(self) -> bool:
        """Whether the covariance is used."""
        return self._covariance is not None

    def _posterior(self, second: Floats) -> _Posterior:
        if self._covariance is not None:
            if (second * np.diag(self._covariance)).max(initial=0.0) < _STRONG:
                return _by_covariance(self._covariance, second)
            if self._root is None:
                self._root = _root_of(self._covariance)
        assert self._root is not None
        return _by_features(self._root, second)

    def marginals(self, sites: Sites) -> Marginals:
        """Marginals of q; see `LatentPrior.marginals`."""
        mean, variance = np.empty(sites.first.shape), np.empty(sites.first.shape)
        log_determinant = 0.0
        for c, (first, second) in enumerate(zip(*sites, strict=True)):
            posterior = self._posterior(second)
            mean[c], variance[c] = posterior.times(first), posterior.variance()
            log_determinant += posterior.log_determinant
        return Marginals(mean, variance, log_determinant)

    def covariance_gradient(self, sites: Sites, marginals: Marginals) -> Floats:
        """Derivative of KL(q ‖ p) in the prior covariance K at the observations, at fixed q; shape (n, n).

        It is ½ Σ (G − α αᵀ) over the processes, with G = K⁻¹ − K⁻¹SK⁻¹ = H − HSH, H = diag(η₂), α = K⁻¹m = η₁ − η₂m.
        """
        total = np.diag(sites.second.sum(axis=0))
        for second in sites.second:
            total -= self._posterior(second).scaled(second)
        alpha = sites.first - sites.second * marginals.mean
        total -= alpha.T @ alpha
        return 0.5 * total
