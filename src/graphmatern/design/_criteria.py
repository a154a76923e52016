"""What a measurement is worth: three criteria, each a function of all candidates that follows the choice.

With C the covariance of the process given what is known, r the noise variances of candidates and all logarithms
natural, the gain of measuring at s is

* entropy: ½ log(1 + C_ss / r_s), the information that the measurement has about the process, so that the entropy of the
  process falls by as much. With equal noise the largest gain is where the measurement itself is most uncertain;
* mutual information (Krause, Singh and Guestrin 2008): ½ log [var(y_s | y_A) / var(y_s | y_B)] with A the candidates
  chosen and B all others but s; adds up to the mutual information of y_A and y_(V∖A), V being all candidates;
* variance: Σ_t C_ts² / (C_ss + r_s) / |T|, by which the average variance over targets T falls.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from graphmatern.design._belief import Belief

    Floats = NDArray[np.float64]
    Longs = NDArray[np.int64]

__all__ = ["CRITERIA", "AverageVariance", "Criterion", "Entropy", "MutualInformation", "squared_columns"]

_FEW = 5_000  # candidates whose columns are computed one by one
_AT_ONCE = 64
_STEP = 0.02  # of the difference quotients, relative to the largest variance of any combination of the targets
_POWERS = 6  # products from which that variance is estimated
_STENCIL = np.array([[2.0 / 3.0, -1.0 / 12.0, 0.0], [0.75, -0.15, 1.0 / 60.0]])  # of orders 4 and 6


class Criterion(ABC):
    """Gains of all candidates, given what is chosen.

    Parameters
    ----------
    belief : Belief
        What is known; the criterion moves it.
    candidates, targets : ndarray of int64
        Places among the nodes that the belief looks at.
    noise : ndarray, shape (n_candidates,)
        Noise variances of measurements; negative ones are those of measurements to be taken away, and infinite ones
        those of none at all.
    """

    def __init__(self, belief: Belief, candidates: Longs, targets: Longs, noise: Floats) -> None:
        self.belief, self.candidates, self.targets, self.noise = belief, candidates, targets, noise

    @abstractmethod
    def gains(self) -> Floats:
        """What each candidate would add; shape (n_candidates,)."""

    def measure(self, chosen: int) -> None:
        """Measure at a candidate."""
        if np.isfinite(self.noise[chosen]):  # else there is nothing to be taken away
            self.belief.measure(int(self.candidates[chosen]), float(self.noise[chosen]))

    def verify(self, chosen: int) -> bool:
        """Whether the gain of a candidate is more than an estimate; if not, it is one no longer."""
        if not np.isfinite(self.noise[chosen]):
            return True
        return self.belief.verify(int(self.candidates[chosen]), float(self.noise[chosen]))

    #: Largest relative error of the gains that is not rounding.
    error = 0.0


class Entropy(Criterion):
    """The information that a measurement has about the process, in nats."""

    def gains(self) -> Floats:
        """½ log(1 + C_ss / r_s)."""
        with np.errstate(divide="ignore", invalid="ignore"):
            found = 0.5 * np.log1p(self.belief.variances[self.candidates] / self.noise)
        # A sensor without which some coefficient is not determined: all is lost.
        return np.where(np.isnan(found), -np.inf, found)


class MutualInformation(Criterion):
    """What a measurement adds to the mutual information between the chosen candidates and all others, in nats."""

    def __init__(self, belief: Belief, candidates: Longs, targets: Longs, noise: Floats) -> None:
        super().__init__(belief, candidates, targets, noise)
        # A belief in which all candidates are measured; those chosen are taken out again.
        self._others = belief.under(candidates, noise)

    def gains(self) -> Floats:
        """½ log [var(y_s | y_A) / var(y_s | y_B)]; with c the variance of f_s under its own measurement as well,
        var(y_s | y_B) = r² / (r − c).
        """  # noqa: D205
        own = self.belief.variances[self.candidates] / self.noise
        others = self._others.variances[self.candidates] / self.noise
        return np.asarray(0.5 * (np.log1p(own) + np.log1p(-np.minimum(others, 1.0 - 1e-15))))

    def measure(self, chosen: int) -> None:
        """Measure at a candidate, which is no longer among the others."""
        super().measure(chosen)
        self._others.measure(int(self.candidates[chosen]), -float(self.noise[chosen]))


class AverageVariance(Criterion):
    """By how much a measurement lowers the average variance over the targets.

    With v = c / √(C_ss + r) the column of a measurement, the squares of all other columns over the targets change by
    −2 v ∘ (C Π v) + v² ‖Πv‖² with Π the projection on the targets: one more product, and all gains are exact.
    """

    def __init__(self, belief: Belief, candidates: Longs, targets: Longs, noise: Floats) -> None:
        super().__init__(belief, candidates, targets, noise)
        self._squares, self.error = squared_columns(belief, candidates, targets)

    def gains(self) -> Floats:
        """Σ_t C_ts² / (C_ss + r_s) / |T|."""
        total = self.belief.variances[self.candidates] + self.noise
        return np.asarray(self._squares / total / len(self.targets))

    def measure(self, chosen: int) -> None:
        """Measure at a candidate."""
        place, noise = int(self.candidates[chosen]), float(self.noise[chosen])
        if not np.isfinite(noise):
            return
        column = self.belief.column(place)
        total = float(column[place]) + noise
        column = column / np.sqrt(abs(total))
        own, at = column[self.targets], column[self.candidates]
        spread = self.belief.times(self.targets, own[:, None])[self.candidates, 0]
        self._squares += at * (at * float(own @ own) - 2.0 * np.sign(total) * spread)
        np.maximum(self._squares, 0.0, out=self._squares)
        super().measure(chosen)


CRITERIA: dict[str, type[Criterion]] = {
    "entropy": Entropy,
    "mutual_information": MutualInformation,
    "variance": AverageVariance,
}


# ---------------------------------------------------------------------- sums of squares of columns
def squared_columns(belief: Belief, candidates: Longs, targets: Longs, few: int = _FEW) -> tuple[Floats, float]:
    """Σ_t C_ts² for each candidate s, and a bound of the relative error that is not rounding.

    Up to ``few`` candidates column by column. Beyond, from variances alone: sites of precision h at all targets change
    the covariance to (C⁻¹ + hΠ)⁻¹ = C − h CΠC + …, so the derivative of the variances at h = 0 is what is wanted. A
    difference quotient of order 6 takes six factorisations, whatever the number of candidates; how far it is from that
    of order 4 bounds its error.

    Parameters
    ----------
    belief : Belief
        What is known, before any measurement one by one.
    candidates, targets : ndarray of int64
        Places among the nodes that it looks at.
    few : int
        Number of candidates up to which columns are computed.

    Returns
    -------
    squares : ndarray, shape (n_candidates,)
    error : float
    """
    if len(candidates) <= few:
        found = np.empty(len(candidates))
        for start in range(0, len(candidates), _AT_ONCE):
            part = candidates[start : start + _AT_ONCE]
            columns = belief.times(part, np.eye(len(part)))[targets]
            found[start : start + _AT_ONCE] = np.einsum("ij,ij->j", columns, columns)
        return found, 0.0
    return _by_differences(belief, candidates, targets)


def _by_differences(belief: Belief, candidates: Longs, targets: Longs) -> tuple[Floats, float]:
    """Through variances under weak sites at the targets; see `squared_columns`."""
    step = _STEP / _largest_variance(belief, targets)
    orders = np.zeros((2, len(candidates)))
    for k in range(3):
        at = [belief.under(targets, np.full(len(targets), sign / ((k + 1) * step))).variances for sign in (-1.0, 1.0)]
        orders += _STENCIL[:, [k]] * (at[0] - at[1])[candidates] / step
    error = float(np.max(np.abs(orders[1] - orders[0]) / np.maximum(orders[1], 1e-300), initial=0.0))
    return orders[1], error


def _largest_variance(belief: Belief, targets: Longs) -> float:
    """About that of any combination of the targets, of length 1, and rather more: by the power method."""
    vector = np.random.default_rng(0).standard_normal((len(targets), 1))
    size = 0.0
    for _ in range(_POWERS):
        vector = belief.times(targets, vector / np.linalg.norm(vector))[targets]
        size = float(np.linalg.norm(vector))
    return 2.0 * max(size, float(belief.variances[targets].max()))
