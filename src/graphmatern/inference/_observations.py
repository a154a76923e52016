"""Observations as the engines see them: which nodes, which values, how noisy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from graphmatern.errors import NumericalError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = ["Batch", "Moments", "group_replicates", "sum_by_node"]


@dataclass(frozen=True, eq=False)
class Batch:
    """Replicates observed at the same places.

    Attributes
    ----------
    nodes : ndarray of int64, shape (n,)
        Positions of the observed nodes; repeats are allowed.
    y : ndarray, shape (n, n_replicates)
        Values, without missing ones.
    noise : ndarray, shape (n,)
        Noise variances relative to the noise parameter.
    design : ndarray, shape (n, n_covariates)
        Covariates whose coefficients have a flat prior and are integrated out; a constant mean is a column of ones.
        The replicates share the coefficients.
    columns : ndarray of int64, shape (n_replicates,)
        Which replicates these are.
    """

    nodes: NDArray[np.int64]
    y: Floats
    noise: Floats
    design: Floats
    columns: NDArray[np.int64]

    @property
    def n_replicates(self) -> int:
        """Number of replicates."""
        return int(self.y.shape[1])


def group_replicates(nodes: NDArray[np.int64], y: Floats, noise: Floats, design: Floats) -> list[Batch]:
    """Split values of shape (n, n_replicates) with NaN into batches of replicates observed at the same places."""
    observed = ~np.isnan(y)
    if observed.all():
        return [Batch(nodes, y, noise, design, np.arange(y.shape[1]))]
    patterns, label = np.unique(observed, axis=1, return_inverse=True)
    batches = []
    for k in range(patterns.shape[1]):
        rows = np.flatnonzero(patterns[:, k])
        columns = np.flatnonzero(label.ravel() == k)
        batches.append(Batch(nodes[rows], y[np.ix_(rows, columns)], noise[rows], design[rows], columns))
    return batches


def sum_by_node(nodes: NDArray[np.int64], values: Floats, n_nodes: int) -> Floats:
    """Add up rows of values that belong to the same node; shape (n_nodes, k)."""
    found = np.zeros((n_nodes, values.shape[1]))
    if len(nodes):  # counts of nothing are whole numbers, not sums
        for k, column in enumerate(values.T):
            found[:, k] = np.bincount(nodes, weights=column, minlength=n_nodes)
    return found


class Moments:
    """Marginal likelihood of all batches from their quadratic forms, coefficients integrated out.

    With C the covariance of a batch, each adds R log det C (R replicates), YᵀC⁻¹Y, HᵀC⁻¹Y and R HᵀC⁻¹H. Then

        −2 log p = Σ R log det C + tr YᵀC⁻¹Y − gᵀ S⁻¹ g + log det S + (n − p) log 2π,

    with S = Σ R HᵀC⁻¹H and g = Σ HᵀC⁻¹Y 1.
    """

    def __init__(self, n_covariates: int) -> None:
        self.log_determinant = 0.0
        self.squares = 0.0
        self.cross = np.zeros(n_covariates)
        self.information = np.zeros((n_covariates, n_covariates))
        self.count = 0

    def add(self, log_determinant: float, forms: Floats, n_replicates: int, count: int) -> None:
        """Add a batch.

        Parameters
        ----------
        log_determinant : float
            log det C.
        forms : ndarray, shape (R + p, R + p)
            [Y H]ᵀ C⁻¹ [Y H].
        n_replicates : int
            R.
        count : int
            Observations of one replicate.
        """
        r = n_replicates
        self.log_determinant += r * log_determinant
        self.squares += float(np.trace(forms[:r, :r]))
        self.cross += forms[r:, :r].sum(axis=1)
        self.information += r * forms[r:, r:]
        self.count += r * count

    def solve(self) -> tuple[Floats, Floats]:
        """Estimates of the coefficients and their covariance; shapes (p,) and (p, p)."""
        try:
            covariance = np.asarray(np.linalg.inv(self.information), dtype=np.float64)
        except np.linalg.LinAlgError:
            raise NumericalError(
                "the coefficients of the mean are not determined by the data. Likely causes: (a) covariates that are "
                "linear combinations of each other; (b) parameters so extreme that rounding hides the data."
            ) from None
        return covariance @ self.cross, covariance

    def negative_log_likelihood(self) -> float:
        """−log p, the constant included."""
        p = len(self.cross)
        total = self.log_determinant + self.squares + (self.count - p) * np.log(2 * np.pi)
        if p:
            coefficients, _ = self.solve()
            total += float(np.linalg.slogdet(self.information)[1]) - float(self.cross @ coefficients)
        return float(0.5 * total)

    def derivative(self, log_determinant: float, forms: Floats, n_replicates: int) -> float:
        """Derivative of −log p, given those of log det C and of the forms of one batch."""
        r = n_replicates
        total = r * log_determinant + float(np.trace(forms[:r, :r]))
        if len(self.cross):
            beta, covariance = self.solve()
            total -= 2.0 * float(beta @ forms[r:, :r].sum(axis=1))
            total += r * float(beta @ forms[r:, r:] @ beta) + r * float(np.sum(covariance * forms[r:, r:]))
        return float(0.5 * total)
