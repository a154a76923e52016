"""Sites on dense matrices: processes given by features, or by their covariance, at the observations.

With features R, f = R z with z ~ N(0, I), and under sites z has precision I + Rᵀ diag(η) R, which is positive definite
exactly where the sites leave a distribution. With a covariance K, which may be singular, positive sites give
S₊ = K − K D (I + D K D)⁻¹ D K with D² = diag(η), and the few negative ones correct it:
S = S₊ + S₊ T (I − T S₊ T)⁻¹ T S₊ with T² = −diag(η). That takes fewer than half the operations of features with
R Rᵀ = K, but loses digits to sites far stronger than the prior.
"""

from __future__ import annotations

from abc import abstractmethod
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import scipy.linalg as la

from graphmatern.errors import NotPositiveDefiniteError
from graphmatern.inference.process import Conditioned, Solution

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from graphmatern.inference.observations import Group

    Floats = NDArray[np.float64]

STRONG_SITE = 1e5  # a site times the prior variance: beyond it, subtraction costs too many digits

__all__ = ["STRONG_SITE", "CovarianceConditioned", "cholesky_or_raise", "precision_of_features", "root_of"]


def cholesky_or_raise(matrix: Floats) -> Floats:
    """Lower Cholesky factor of a symmetric matrix, which is overwritten; raises where negative sites spoil it."""
    factor, failed = la.lapack.dpotrf(matrix.T, lower=1, overwrite_a=1)
    if failed:
        raise NotPositiveDefiniteError("negative sites outweigh the prior", -1)
    return np.asarray(factor)


def precision_of_features(features: Floats, precision: Floats) -> Floats:
    """I + Rᵀ diag(η) R; shape (r, r)."""
    found = features.T @ (precision[:, None] * features)
    found[np.diag_indices_from(found)] += 1.0
    return np.asarray(found)


def root_of(covariance: Floats) -> Floats:
    """R with R Rᵀ = K for a covariance that may be singular; shape (n, n)."""
    try:
        return np.asarray(la.cholesky(covariance, lower=True, check_finite=False))
    except la.LinAlgError:
        values, vectors = la.eigh(covariance, check_finite=False)
        return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))


class CovarianceConditioned(Conditioned):
    """A process whose covariance at the observations is known, under any sites: S = K − VᵀV + WᵀW.

    Subclasses say how K depends on the engine's coordinates.

    Parameters
    ----------
    group : Group
        What was observed where.
    precision : ndarray, shape (n,)
        η.
    covariance : ndarray, shape (n, n)
        K at the observations.
    """

    def __init__(self, group: Group, precision: Floats, covariance: Floats) -> None:
        super().__init__(group, precision)
        self.prior_covariance = covariance
        self._covariance: Floats | None = covariance
        self._removed: Floats | None = None  # V
        self._added: Floats | None = None  # W
        self._log_determinant = 0.0
        strongest = float((precision * np.diag(covariance)).max(initial=0.0))
        if strongest < STRONG_SITE:
            self._condition_covariance(covariance)
        else:
            self._covariance = None
            self._condition_features(root_of(covariance))

    def _condition_features(self, features: Floats) -> None:
        factor = cholesky_or_raise(precision_of_features(features, self.precision))
        self._added = la.blas.dtrsm(1.0, factor, features.T, lower=1)
        self._log_determinant = 2.0 * float(np.log(np.diag(factor)).sum())

    def _condition_covariance(self, covariance: Floats) -> None:
        # Transposed views of symmetric matrices are in Fortran's order, which LAPACK then need not copy.
        precision = self.precision
        root = np.sqrt(np.maximum(precision, 0.0))
        scaled = covariance * root
        inner = scaled * root[:, None]
        inner[np.diag_indices_from(inner)] += 1.0
        factor = cholesky_or_raise(inner)
        removed = la.blas.dtrsm(1.0, factor, scaled.T, lower=1, overwrite_b=1)
        self._removed = removed
        self._log_determinant = 2.0 * float(np.log(np.diag(factor)).sum())
        negative = np.flatnonzero(precision < 0.0)
        if not len(negative):
            return
        root = np.sqrt(-precision[negative])
        rows = root[:, None] * (covariance[negative] - removed[:, negative].T @ removed)
        inner = -rows[:, negative] * root
        inner[np.diag_indices_from(inner)] += 1.0
        factor = cholesky_or_raise(inner)
        self._log_determinant += 2.0 * float(np.log(np.diag(factor)).sum())
        self._added = la.blas.dtrsm(1.0, factor, rows, lower=1)

    @property
    def log_determinant(self) -> float:
        """Log det (I + K diag(η))."""
        return self._log_determinant

    def variance(self) -> Floats:
        """Variances of f(x) under the sites; shape (n,)."""
        found = np.zeros(1) if self._covariance is None else np.diag(self._covariance).copy()
        if self._removed is not None:
            found = found - np.einsum("ij,ij->j", self._removed, self._removed)
        return found if self._added is None else found + np.einsum("ij,ij->j", self._added, self._added)

    def _times(self, columns: Floats) -> Floats:
        """S X; shape (n, k)."""
        found = np.zeros(columns.shape) if self._covariance is None else self._covariance @ columns
        if self._removed is not None:
            found = found - self._removed.T @ (self._removed @ columns)
        return found if self._added is None else found + self._added.T @ (self._added @ columns)

    def solve(self, potentials: Floats) -> Solution:
        """Means under the sites, for potentials of shape (n, k)."""
        mean = self._times(potentials)
        return Solution(potentials - self.precision[:, None] * mean, mean)

    @cached_property
    def inverse(self) -> Floats:
        """C⁻¹ = η − η S η; shape (n, n)."""
        precision = self.precision
        found = np.diag(precision)
        if self._covariance is not None:
            found -= self._covariance * precision * precision[:, None]
        if self._removed is not None:
            half = self._removed * precision
            found += half.T @ half
        if self._added is not None:
            half = self._added * precision
            found -= half.T @ half
        return np.asarray(found)

    def gradient(self, solution: Solution, weights: Floats, count: float = 1.0) -> Floats:
        """See `Conditioned.gradient`: the derivative in K is ½ (count C⁻¹ − α weights αᵀ)."""
        change = count * self.inverse - solution.alpha @ weights @ solution.alpha.T
        return self.pull_back(0.5 * change)

    @abstractmethod
    def pull_back(self, change: Floats) -> Floats:
        """Derivatives in the engine's coordinates, from those in K; shape (n_coordinates,)."""
