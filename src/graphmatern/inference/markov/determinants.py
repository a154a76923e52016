"""Log-determinants and traces of resolvents (I + Δ/s)⁻¹, of which those of Matérn processes of any smoothness are made.

A shift s takes one factorisation with one unknown per node and its selected inverse: far less than a block matrix does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from graphmatern.inference.markov.fractional import BlockPrecision
    from graphmatern.inference.markov.pencil import Pencil
    from graphmatern.sparse import Factor

    Floats = NDArray[np.float64]

__all__ = ["Average", "Determinants"]

_KEPT = 256  # shifts
_NEAREST = 0.03  # of a rate to 1, below which partial fractions lose digits
_STEP = 0.01  # of log s, for derivatives of traces, which are smooth in it


class _Resolved(NamedTuple):
    """What is known at one shift."""

    log_determinant: float  # of I + Δ/s
    slope: float  # its derivative in log s
    average: float  # of the diagonal of (I + Δ/s)⁻¹ over masses


class Average(NamedTuple):
    """Average over the nodes of a process's variance, and its derivatives in ν (at the same c) and log c."""

    value: float
    in_nu: float
    in_shift: float


class Determinants:
    """log det (I + Δ/s) and averages of the diagonal of its inverse, for some shifts; the latest are kept.

    Parameters
    ----------
    precision : BlockPrecision
        The Laplacian.
    """

    def __init__(self, precision: BlockPrecision) -> None:
        self.precision = precision
        self._factor: Factor | None = None
        self._inverse: Any = None
        self._known: dict[float, _Resolved] = {}
        self._weights: Floats | None = None

    def factor(self, shift: float) -> Factor:
        """Factor of sI + Δ, valid until the next call."""
        polynomial = self.precision.shifted
        coefficients = np.array([shift, 1.0])
        if self._factor is None:
            self._factor = polynomial.analysis.factorize_lower(polynomial.lower(coefficients))
        else:
            polynomial.lower(coefficients, out=self._factor.lower_values)
            self._factor.update_lower()
        return self._factor

    def __call__(self, shift: float) -> _Resolved:
        """Log det (I + Δ/s), its derivative in log s, and the average of the diagonal of (I + Δ/s)⁻¹ over masses."""
        if shift not in self._known:
            factor, n = self.factor(shift), self.precision.graph.n_nodes
            self._inverse = factor.selected_inverse(self._inverse)
            diagonal = shift * self._inverse.diagonal_ordered()
            if self._weights is None:
                self._weights = self.precision.root_mass[factor.analysis.permutation] ** -2
            self._known[shift] = _Resolved(
                factor.logdet() - n * float(np.log(shift)),
                float(diagonal.sum()) - n,
                float(self._weights @ diagonal) / n,
            )
            while len(self._known) > _KEPT:
                del self._known[next(iter(self._known))]
        return self._known[shift]

    def of_pencil(self, pencil: Pencil, shift: float) -> tuple[float, float, float]:
        """Log |det (J₀ ⊗ I + J₁ ⊗ Δ/c)|, and its derivatives in ν (at the same c) and log c."""
        assert pencil.zeros is not None
        n = self.precision.graph.n_nodes
        constant, slope = pencil.log_constant
        value, in_nu, in_shift = n * constant, n * slope, 0.0
        if pencil.power:
            own = self(shift)
            value, in_shift = value + pencil.power * own.log_determinant, pencil.power * own.slope
        for rate, rate_slope in zip(pencil.zeros.rates, pencil.zeros.rates_slope, strict=True):
            own = self(float(shift / rate))
            value, in_shift = value + own.log_determinant, in_shift + own.slope
            in_nu -= own.slope * rate_slope / rate
        return float(value), float(in_nu), float(in_shift)

    # ------------------------------------------------------------------ the average variance
    def _average_slope(self, shift: float) -> float:
        """Derivative of the average of the diagonal in log s, by differences of fourth order."""
        near, far = (self(shift * np.exp(k * _STEP)).average - self(shift * np.exp(-k * _STEP)).average for k in (1, 2))
        return float((8.0 * near - far) / (12.0 * _STEP))

    def average(self, pencil: Pencil, shift: float, *, slopes: bool = False) -> Average | None:
        """Average of the diagonal of y^(−n) (k_0 + Σ_j k_j / (1 + τ_j l)) over masses; None where that needs blocks.

        For n = 1 partial fractions are k_j / (1 − τ_j) (1/y − τ_j / (1 + τ_j l)).

        Parameters
        ----------
        pencil : Pencil
            Of the smoothness ν.
        shift : float
            c.
        slopes : bool
            Whether derivatives are needed, which take more; they are 0 otherwise.
        """
        zeros = pencil.zeros
        assert zeros is not None
        gaps = 1.0 - zeros.rates
        if pencil.power > 1 or (pencil.power == 1 and gaps.min() < _NEAREST):
            return None
        shifts = (shift / zeros.rates).tolist()
        averages = np.array([self(own).average for own in shifts])
        changes = np.array([self._average_slope(own) for own in shifts]) if slopes else np.zeros(len(shifts))
        if pencil.power == 0:
            alone = float(np.mean(self.precision.root_mass**-2.0))
            value = zeros.constant * alone + zeros.weights @ averages
            in_nu = zeros.constant_slope * alone + zeros.weights_slope @ averages
            in_nu -= (zeros.weights * changes) @ (zeros.rates_slope / zeros.rates)
            return Average(float(value), float(in_nu), float(zeros.weights @ changes))
        alone, change = self(shift).average, self._average_slope(shift) if slopes else 0.0
        weights, apart = zeros.weights / gaps, alone - zeros.rates * averages
        value = zeros.constant * alone + weights @ apart
        in_nu = zeros.constant_slope * alone + (zeros.weights_slope / gaps) @ apart
        in_nu += (weights * zeros.rates_slope) @ (apart / gaps - averages + changes)
        in_shift = zeros.constant * change + weights @ (change - zeros.rates * changes)
        return Average(float(value), float(in_nu), float(in_shift))

    def release(self) -> None:
        """Give back the memory of factors."""
        self._factor = self._inverse = None
