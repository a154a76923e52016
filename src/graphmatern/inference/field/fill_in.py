"""Grids with gaps: missing values by conjugate gradients, their log-determinant by Lanczos quadrature.

With C the covariance of the whole grid, o its observed and m its missing cells, A = (C⁻¹)_mm is the conditional
precision of the missing values given the observed ones. Solves with C, and so products with A, are quick in the modes.

    x = −A⁻¹ (C⁻¹)_mo y           fills in the missing values,
    C_oo⁻¹ y = (C⁻¹ [y; x])_o     (the missing part of which is 0), and
    log det C_oo = log det C + log det A.

ρ A = I − (K C⁻¹)_mm has its eigenvalues in (0, 1], and far from 0 where holes are scattered: a smooth field cannot live
on them. Then a dozen or two iterations do.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import scipy.linalg as la

from graphmatern._validation import warn
from graphmatern.errors import NumericalWarning
from graphmatern.inference.field.covariance import FormSum

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from graphmatern.inference.field.covariance import Derivatives, Modes

    Floats = NDArray[np.float64]
    Flags = NDArray[np.bool_]

__all__ = ["Estimate", "FillIn", "IterativeOptions"]

_PLAIN_ITERATIONS = 30  # before a preconditioner, which doubles the cost of an iteration, is worth it


@dataclass(frozen=True)
class IterativeOptions:
    """How accurate the iterations are.

    Attributes
    ----------
    tolerance : float
        Norm of C_oo⁻¹y at the missing cells, where it should vanish, relative to that at the observed ones.
    max_iterations : int
        Iterations at most, of a solve or of a probe.
    n_probes : int
        Random vectors for the log-determinant; they stay the same, so that the estimate is a smooth function of the
        parameters.
    n_draws : int
        Draws from which variances of many cells are estimated: their part due to missing values is then known to a
        relative error of √(2 / n_draws).
    seed : int
        Of probes and draws.
    progress : bool, optional
        Whether to show progress of the draws; by default, where the error stream is a terminal.
    fit_tolerance : float
        What ``tolerance`` is raised to while parameters are learned: 1e-4 moves them by hundredths of their errors.
        A tenth of it goes for the quadrature of every probe.
    """

    tolerance: float
    max_iterations: int
    n_probes: int
    n_draws: int
    seed: int
    progress: bool | None = None
    fit_tolerance: float = 0.0


@dataclass(frozen=True, eq=False)
class Estimate:
    """An estimate of log det A.

    Attributes
    ----------
    value : float
        Mean over the probes.
    error : float
        Its standard error.
    sharper, sharper_error : float
        The same with tr A, which is known, as a control variate.
    derivatives : Derivatives
        Of ``value``.
    """

    value: float
    error: float
    sharper: float
    sharper_error: float
    derivatives: Derivatives


class FillIn:
    """Conditional distribution of the missing cells.

    Parameters
    ----------
    modes : Modes
        Of the whole grid.
    missing : ndarray of bool, shape (n_times, n_nodes)
        Which cells are missing; at least one.
    options : IterativeOptions
        How accurate.
    """

    def __init__(self, modes: Modes, missing: Flags, options: IterativeOptions) -> None:
        self._modes = modes
        self._missing = missing
        self._places = np.flatnonzero(missing)
        self._count = len(self._places)
        self._options = options
        self.iterations = 0

    def _embed(self, values: Floats) -> Floats:
        """Put values of missing cells, shape (k, n_missing), into grids of zeros."""
        grids = np.zeros((len(values), self._missing.size))
        grids[:, self._places] = values
        return grids.reshape(-1, *self._missing.shape)

    def _take(self, fields: Floats) -> Floats:
        """Values of fields at the missing cells; shape (k, n_missing)."""
        return fields.reshape(len(fields), -1)[:, self._places]

    def _multiply(self, values: Floats) -> tuple[Floats, Floats]:
        """A values, shape (k, n_missing), and the modes of C⁻¹ values."""
        solved, modes = self._modes.solve(self._embed(values))
        return self._take(solved), modes

    def fill(self, data: Floats, start: Floats | None = None, *, at_least: float = 0.0) -> Floats:
        """Fill in fields, 0 at missing cells, with the conditional means there.

        Parameters
        ----------
        data : ndarray, shape (k, n_times, n_nodes)
            Fields.
        start : ndarray, shape as ``data``, optional
            Fields filled in for other parameters, to start from.
        at_least : float
            What to raise the tolerance to.

        Returns
        -------
        ndarray, shape as ``data``
        """
        filled = data.copy() if start is None else np.where(self._missing, start, data)
        solved = self._modes.solve(filled)[0]
        tolerance = max(self._options.tolerance, at_least)
        allowed = tolerance * np.linalg.norm(solved * ~self._missing, axis=(1, 2))
        values = self._conjugate_gradients(-self._take(solved), allowed)
        return filled + self._embed(values)

    def _conjugate_gradients(self, right: Floats, allowed: Floats) -> Floats:
        """A⁻¹ right, up to residuals of the norms allowed; shape (k, n_missing).

        Without preconditioner at first, which is best for scattered holes; then, for large holes or little noise, with
        (C^(1/2))_mm, half-way between A⁻¹ where neighbours determine a missing value and where nothing does.
        """
        plain = min(_PLAIN_ITERATIONS, self._options.max_iterations)
        solution, residual, self.iterations = self._iterate(right, allowed, plain, precondition=False)
        if (np.linalg.norm(residual, axis=1) > allowed).any():
            left = self._options.max_iterations - plain
            more, residual, count = self._iterate(residual, allowed, left, precondition=True)
            solution, self.iterations = solution + more, self.iterations + count
        excess = float((np.linalg.norm(residual, axis=1) / np.maximum(allowed, 1e-300)).max())
        if excess > 1.0:
            warn(
                f"filling in {self._count:,} missing cells stopped after {self.iterations} iterations at a relative "
                f"residual of {excess * self._options.tolerance:.1e}, not {self._options.tolerance:.0e}. "
                "Likely causes: (a) very little noise; (b) times or nodes with hardly any observations: leave them out",
                NumericalWarning,
            )
        return solution

    def _iterate(self, right: Floats, allowed: Floats, count: int, *, precondition: bool) -> tuple[Floats, Floats, int]:
        """Conjugate gradients: solutions, residuals, iterations."""
        solution, residual = np.zeros_like(right), right
        direction, before = np.zeros_like(right), np.zeros(len(right))
        for done in range(count):
            if (np.linalg.norm(residual, axis=1) <= allowed).all():
                return solution, residual, done
            better = self._take(self._modes.root(self._embed(residual))) if precondition else residual
            energy = np.einsum("ij,ij->i", residual, better)
            direction = better + _ratio(energy, before) * direction
            before = energy
            product, _ = self._multiply(direction)
            length = _ratio(energy, np.einsum("ij,ij->i", direction, product))
            solution = solution + length * direction
            residual = residual - length * product
        return solution, residual, count

    def added_variance(self, time: Floats, nodes: Floats) -> float:
        """Variance of a prediction with covariances k = time ⊗ nodes to the grid that is due to the missing values."""
        right = self._take(self._modes.solve(np.outer(time, nodes)[None])[0])
        allowed = self._options.tolerance * np.linalg.norm(right, axis=1)
        return float(np.sum(right * self._conjugate_gradients(right, allowed)))

    # ------------------------------------------------------------------ log-determinant
    @cached_property
    def log_determinant(self) -> Estimate:
        """Log det A."""
        options, modes = self._options, self._modes
        rng = np.random.default_rng(options.seed)
        change = FormSum(modes)
        values, products = [], []
        for _ in range(options.n_probes):
            probe = rng.choice(np.array([-1.0, 1.0]), self._count)
            one = self._quadrature(probe)
            values.append(one.value)
            products.append(one.product)
            change.add(one.fields, one.factors / options.n_probes, one.norms)
        value, error = _mean_and_error(np.array(values))
        # log a is near the chord from (1/ρ, −log ρ) to where a smooth field would be: a share of the cells is missing.
        share = self._count / self._missing.size
        slope = -np.log1p(-share) / share * modes.rho
        trace = float(modes.inverse_diagonal()[self._missing].sum())
        sharper, sharper_error = _mean_and_error(np.array(values) - slope * (np.array(products) - trace))
        return Estimate(value, error, sharper, sharper_error, change.derivatives(-1.0))

    def _quadrature(self, probe: Floats) -> _Quadrature:
        """Zᵀ log(A) z by Lanczos, with full reorthogonalisation, and what its derivative is made of."""
        square = float(probe @ probe)
        vector = probe / np.sqrt(square)
        vectors, fields = [vector], []
        diagonal: list[float] = []
        beside: list[float] = []
        value, allowed = np.inf, max(self._options.tolerance, 0.1 * self._options.fit_tolerance)
        while True:
            product, modes = self._multiply(vector[None])
            product = product[0]
            fields.append(modes[0])
            diagonal.append(float(vector @ product))
            ritz, rotation = la.eigh_tridiagonal(np.array(diagonal), np.array(beside))
            ritz = np.maximum(ritz, 1e-300)
            before, value = value, square * float(rotation[0] ** 2 @ np.log(ritz))
            done = abs(value - before) <= allowed * abs(value)
            for _ in range(2):  # once more: rounding spoils the first round
                for other in vectors:
                    product -= (other @ product) * other
            size = float(np.linalg.norm(product))
            if done or size <= 1e-12 * abs(diagonal[0]) or len(vectors) >= self._options.max_iterations:
                break
            vector = product / size
            vectors.append(vector)
            beside.append(size)
        # ∂ zᵀ log(A) z = Σ L_ab (v_aᵀz)(v_bᵀz) v_aᵀ ∂A v_b over Ritz pairs, L the divided differences of log.
        logs = np.log(ritz)
        gap = ritz[:, None] - ritz
        close = np.abs(gap) <= 1e-8 * np.maximum(ritz[:, None], ritz)
        divided = np.where(close, 2.0 / (ritz[:, None] + ritz), (logs[:, None] - logs) / np.where(close, 1.0, gap))
        start = np.sqrt(square) * rotation[0]
        factors, mixing = la.eigh(rotation @ (divided * np.outer(start, start)) @ rotation.T)
        kept = factors > 1e-12 * factors.max()  # log is operator monotone: none is negative but by rounding
        factors, mixing = factors[kept], mixing[:, kept]
        mixed = np.tensordot(mixing.T, np.stack(fields), axes=1)
        norms = np.einsum("kts,kts->k", mixed, mixed)
        if self._modes.n_null:
            starts = self._embed(mixing.T @ np.stack(vectors))
            inside = starts @ self._modes.node_vectors
            outside = np.einsum("kts,kts->k", starts, starts) - np.einsum("kts,kts->k", inside, inside)
            norms = norms + outside / self._modes.rho**2
        return _Quadrature(value, square * diagonal[0], factors, mixed, norms)


@dataclass(frozen=True, eq=False)
class _Quadrature:
    """One probe: zᵀ log(A) z, zᵀ A z, and the derivative −Σ factor · uᵀ ∂C u, with modes and squared norms of u."""

    value: float
    product: float
    factors: Floats
    fields: Floats
    norms: Floats


def _ratio(numerator: Floats, denominator: Floats) -> Floats:
    """Ratios as a column, 0 where the denominator is: at the first step, or where nothing is left to do."""
    ratios = np.divide(numerator, denominator, out=np.zeros_like(numerator), where=denominator > 0)
    return np.asarray(ratios[:, None])


def _mean_and_error(values: Floats) -> tuple[float, float]:
    """Mean and its standard error; infinite for a single value."""
    error = float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else np.inf
    return float(values.mean()), error
