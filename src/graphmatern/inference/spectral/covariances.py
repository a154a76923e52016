"""Covariances Φ diag(w) Φᵀ at the observations for many weights w, mostly without the features.

The weights are a function of the eigenvalues with a few parameters, so the vectors w of a whole posterior lie, to many
digits, in a space of some dozens of dimensions. With an orthonormal basis q of that space and the matrices Φ diag(q) Φᵀ
a covariance is a short sum of matrices of n rows, whatever the number of eigenvectors.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import scipy.linalg as la

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = ["ACCURACY", "ACCURACY_UNDER_SITES", "SpannedCovariances", "weighted_products"]

_WORTHWHILE = 8  # eigenvectors for each matrix that may be kept
_MOST, _MOST_BYTES = 128, 2**28  # matrices, and what they take together
ACCURACY = 1e-8  # of covariances, relative to noise that is known; evidences are then off by less than that
ACCURACY_UNDER_SITES = 1e-12  # relative to variances, as sites of any strength may follow
_ENTRIES_AT_ONCE = 2**21
_ROUNDING = 4.0 * np.finfo(float).eps


def weighted_products(features: Floats, weights: Floats) -> Floats:
    """Φ diag(w) Φᵀ for weights of which none is negative: its lower triangle; shape (n, n), in Fortran's order."""
    return np.asarray(la.blas.dsyrk(1.0, features * np.sqrt(weights), lower=1))


class SpannedCovariances:
    """Covariances of features with weights, made from a space of weights that grows as it is asked for more.

    Parameters
    ----------
    features : ndarray, shape (n, n_features)
        Φ, in Fortran's order.
    """

    def __init__(self, features: Floats) -> None:
        self._features = features
        n, n_features = features.shape
        squares = features**2
        self._variances = squares.sum(axis=0) / max(n, 1)
        self._largest_row = float(squares.sum(axis=1).max(initial=0.0))
        packed = n * (n + 1) // 2
        self._most = min(_MOST, n_features // _WORTHWHILE, _MOST_BYTES // (8 * max(packed, 1)))
        self._span, self._matrices = np.empty((self._most, n_features)), np.empty((self._most, packed))
        self._count = 0

    def lower(self, weights: Floats, noise: float, accuracy: float) -> Floats:
        """Φ diag(w) Φᵀ: its lower triangle, what is above it undefined; shape (n, n), in Fortran's order.

        Parameters
        ----------
        weights : ndarray, shape (n_features,)
            w, none negative.
        noise : float
            Least noise variance that will be added.
        accuracy : float
            Largest error of an entry, relative to the noise or, where that is less, to the average variance.
        """
        scale = min(noise, float(self._variances @ weights))
        span = self._span[: self._count]
        parts = span @ weights
        rest = weights - parts @ span
        missing = self._largest_row * float(np.abs(rest).max(initial=0.0))
        if missing > max(accuracy * scale, _ROUNDING * self._largest_row * float(weights.max(initial=0.0))):
            if self._count >= self._most:
                return weighted_products(self._features, weights)
            again = span @ rest  # what rounding left of the span in the rest
            parts = np.append(parts + again, self._keep(rest - again @ span))
        found, _ = la.lapack.dtfttr(len(self._features), parts @ self._matrices[: self._count], uplo="L")
        return np.asarray(found)

    def many(self, weights: Floats, noise: Floats | None = None) -> Floats:
        """Φ diag(w) Φᵀ for many weights; shape (m, n, n).

        Parameters
        ----------
        weights : ndarray, shape (m, n_features)
            w, none negative.
        noise : ndarray, shape (m,), optional
            Least noise variance that will be added to each: entries are off by no more than 1e-8 of that; without it by
            no more than 1e-12 of the average variance.
        """
        n = len(self._features)
        average = weights @ self._variances
        rounding = _ROUNDING * self._largest_row * weights.max(axis=1, initial=0.0)
        wanted = ACCURACY_UNDER_SITES * average if noise is None else ACCURACY * np.minimum(noise, average)
        allowed = np.maximum(wanted, rounding)
        rest = weights - (weights @ self._span[: self._count].T) @ self._span[: self._count]
        while True:
            excess = self._largest_row * np.abs(rest).max(axis=1, initial=0.0) / np.maximum(allowed, 1e-300)
            worst = int(np.argmax(excess))
            if excess[worst] <= 1.0 or self._count >= self._most:
                break
            span = self._span[: self._count]
            own = rest[worst] - (span @ rest[worst]) @ span  # what rounding left of the span
            self._keep(own)
            rest -= np.outer(rest @ self._span[self._count - 1], self._span[self._count - 1])
        parts = weights @ self._span[: self._count].T
        packed = [la.lapack.dtfttr(n, matrix, uplo="L")[0] for matrix in self._matrices[: self._count]]
        lower = np.tril(np.reshape(packed, (-1, n, n)))
        whole = lower + np.tril(lower, -1).transpose(0, 2, 1)
        found: Floats = (parts @ whole.reshape(-1, n * n)).reshape(-1, n, n)
        others = np.flatnonzero(excess > 1.0)
        for some in np.array_split(others, 1 + len(others) * self._features.size // _ENTRIES_AT_ONCE):
            found[some] = np.matmul(self._features * weights[some, None, :], self._features.T)
        return found

    def _keep(self, rest: Floats) -> float:
        """Keep the matrix of a direction that was missing; return the length of what pointed there."""
        count = self._count
        length = float(np.linalg.norm(rest))
        direction = self._span[count] = rest / length
        # Two symmetric products take half the time of a general one, as much as a covariance itself.
        up, down = direction > 0, direction < 0
        matrix = weighted_products(self._features[:, up], direction[up])
        matrix -= weighted_products(self._features[:, down], -direction[down])
        self._matrices[count], _ = la.lapack.dtrttf(matrix, uplo="L")
        self._count += 1
        return length
