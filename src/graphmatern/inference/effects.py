"""Linear effects: coefficients b of η(x) = h(x)ᵀb + f(x), integrated out together with the process.

The coefficients are shared by the replicates of a process. Each is N(0, 1/τ) before the data, or flat where τ = 0. With
C the covariance of a group's observations given b, information A = τI + Σ HᵀC⁻¹H and cross products g = Σ HᵀC⁻¹y add up
over groups and replicates; then b has mean A⁻¹g and covariance A⁻¹.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.linalg as la

from graphmatern.errors import NotPositiveDefiniteError, NumericalError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = ["Effects", "GaussianEvidence", "form_weights"]


class Effects:
    """Coefficients of linear effects given the data, from what groups of observations add.

    Parameters
    ----------
    n_effects : int
        Number of coefficients.
    precision : float
        τ; 0 for a flat prior.
    """

    def __init__(self, n_effects: int, precision: float = 0.0) -> None:
        self.count, self._precision = n_effects, precision
        self.information = precision * np.eye(n_effects)
        self.cross = np.zeros(n_effects)

    def add(self, information: Floats, cross: Floats) -> None:
        """Add what a group says: shapes (..., p, p) and (..., p), the first axes for many parameters at once."""
        self.information = self.information + information
        self.cross = self.cross + cross

    @cached_property
    def _factor(self) -> Floats:
        if not np.isfinite(self.information).all():
            raise NumericalError(
                "the coefficients of the mean are not finite. Likely cause: parameters so extreme that rounding hides "
                "the data."
            )
        try:
            return np.asarray(np.linalg.cholesky(self.information), dtype=np.float64)
        except np.linalg.LinAlgError:
            if self._precision > 0.0:
                raise NotPositiveDefiniteError("negative sites outweigh the prior", -1) from None
            raise NumericalError(
                "the coefficients of the mean are not determined by the data. Likely causes: (a) covariates that are "
                "linear combinations of each other; (b) parameters so extreme that rounding hides the data."
            ) from None

    @cached_property
    def covariance(self) -> Floats:
        """Covariance of the coefficients; shape (p, p)."""
        return np.asarray(la.cho_solve((self._factor, True), np.eye(self.count)))

    @cached_property
    def mean(self) -> Floats:
        """Means of the coefficients; shape (p,)."""
        return np.asarray(la.cho_solve((self._factor, True), self.cross))

    @property
    def explained(self) -> Any:
        """GᵀA⁻¹g, or many of them."""
        if not self.count:
            return 0.0
        white = np.linalg.solve(self._factor, self.cross[..., None])[..., 0]
        return np.sum(white**2, axis=-1)

    @property
    def log_determinant(self) -> Any:
        """Log det A, relative to the prior's where that is proper; or many of them."""
        if not self.count:
            return 0.0
        own = 2.0 * np.log(np.diagonal(self._factor, axis1=-2, axis2=-1)).sum(axis=-1)
        return own - self.count * np.log(self._precision) if self._precision else own

    @property
    def flat(self) -> int:
        """Number of coefficients with a flat prior."""
        return 0 if self._precision else self.count


class GaussianEvidence:
    """Marginal likelihood of all groups with Gaussian noise, from their quadratic forms, coefficients integrated out.

    With C the covariance of a group of R replicates Y and H its effects,

        −2 log p = Σ R log det C + tr YᵀC⁻¹Y − gᵀA⁻¹g + log det A + (n − p) log 2π,

    where p counts the coefficients with a flat prior.

    Parameters
    ----------
    effects : Effects
        Coefficients, to which nothing was added yet.
    """

    def __init__(self, effects: Effects) -> None:
        self.effects = effects
        self._total: Any = 0.0
        self._count = 0

    def add(self, log_determinant: Any, forms: Floats, n_replicates: int, count: int) -> None:
        """Add a group.

        Parameters
        ----------
        log_determinant : float or ndarray, shape (...,)
            log det C; many of them for many parameters at once.
        forms : ndarray, shape (..., R + p, R + p)
            [Y H]ᵀ C⁻¹ [Y H].
        n_replicates : int
            R.
        count : int
            Observations of one replicate.
        """
        r = n_replicates
        self._total = self._total + r * log_determinant + np.trace(forms[..., :r, :r], axis1=-2, axis2=-1)
        self._count += r * count
        self.effects.add(r * forms[..., r:, r:], forms[..., r:, :r].sum(axis=-1))

    def negative_log_likelihood(self) -> Any:
        """−log p, the constant included; or many of them."""
        effects = self.effects
        total = self._total + (self._count - effects.flat) * np.log(2 * np.pi)
        return 0.5 * (total + effects.log_determinant - effects.explained)

    def form_weights(self, n_replicates: int) -> Floats:
        """Weights W with which the forms of a group enter the derivative of −2 log p: ⟨W, ∂forms⟩; (R + p, R + p)."""
        if not self.effects.count:
            return np.eye(n_replicates)
        return form_weights(self.effects.mean, self.effects.covariance, n_replicates)


def form_weights(mean: Floats, covariance: Floats, n_replicates: int) -> Floats:
    """Σ (y − Hb̂)ᵀC⁻¹(y − Hb̂) + R tr(HᵀC⁻¹H cov(b)) as ⟨W, [Y H]ᵀC⁻¹[Y H]⟩; W has shape (R + p, R + p)."""
    r = n_replicates
    residual = np.vstack([np.eye(r), np.outer(-mean, np.ones(r))])
    weights = residual @ residual.T
    weights[r:, r:] += r * covariance
    return np.asarray(weights)
