"""Ways to solve with the covariance of a grid's observed cells: whole grids, few cells, many with gaps.

Write C for the covariance of the whole grid and o, m for its observed and missing cells.

* `WholeGrid`: no cell is missing; everything is diagonal in the modes. Exact.
* `FewCells`: Cholesky factor of C_oo, n × n. Exact.
* `ManyCells`: the missing values are filled in with their conditional means, then the grid is whole. They solve
  (C⁻¹)_mm x = −(C⁻¹)_mo y by conjugate gradients, and log det C_oo = log det C + log det (C⁻¹)_mm, the last term by
  Lanczos quadrature on random probes; see `graphmatern.inference.field.fill_in`.
* `StateSpace`, in a module of its own: any holes, few nodes, and a kernel on time that is Markov. Exact.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import scipy.linalg as la
from tqdm import tqdm

from graphmatern.errors import NumericalError
from graphmatern.inference.field.covariance import Derivatives, weight_derivatives
from graphmatern.inference.field.fill_in import FillIn

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from graphmatern.inference.field.covariance import FieldCovariance, FieldGrid, Modes
    from graphmatern.inference.field.fill_in import IterativeOptions
    from graphmatern.inference.field.time_kernel import TimeKernel

    Floats = NDArray[np.float64]
    Longs = NDArray[np.int64]

__all__ = ["Cells", "FewCells", "FieldSystem", "ManyCells", "WholeGrid"]

_CHUNK = 2**24  # numbers in a temporary array
_DRAW_TOLERANCE = 1e-4  # of the solves behind draws, whose number leaves far more


class Cells:
    """Covariances between some cells and the grid: k_T(t, T), k_S(s, S) at distinct times and nodes, and which pairs.

    Parameters
    ----------
    kernel : TimeKernel
        Kernel on time.
    times, grid_times : ndarray, shape (n_new_times,) and (n_times,)
        New times, and those of the grid.
    nodes : ndarray, shape (n_new_nodes, n_nodes)
        k_S between new nodes and those of the grid.
    pairs : tuple of ndarray of int64, optional
        Row of ``times`` and row of ``nodes`` of every cell; by default all pairs.
    node_variance : ndarray, shape (n_new_nodes,)
        k_S(s, s).
    node_design : ndarray, shape (n_new_nodes, p)
        Linear effects at the new nodes.
    """

    def __init__(
        self,
        kernel: TimeKernel,
        times: Floats,
        grid_times: Floats,
        nodes: Floats,
        pairs: tuple[Longs, Longs] | None = None,
        *,
        node_variance: Floats,
        node_design: Floats,
    ) -> None:
        self.times = times
        self.nodes = nodes
        self.pairs = pairs
        self._kernel = kernel
        self._grid_times = grid_times
        self._node_variance, self._node_design = node_variance, node_design

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of results: (n_new_times, n_new_nodes), or (n_cells,) where pairs are given."""
        return (len(self.times), len(self.nodes)) if self.pairs is None else (len(self.pairs[0]),)

    @cached_property
    def time(self) -> Floats:
        """k_T between new times and those of the grid, which not every system needs; shape (n_new_times, n_times)."""
        return self._kernel.values(self.times, self._grid_times)

    def design(self) -> Floats:
        """Linear effects of the cells; shape (p, *shape)."""
        rows = self._node_design.T
        if self.pairs is None:
            return np.broadcast_to(rows[:, None, :], (len(rows), *self.shape))
        return np.asarray(rows[:, self.pairs[1]])

    def prior_variance(self) -> Floats:
        """Prior variances of the cells."""
        of_time = self._kernel.diagonal(self.times)
        if self.pairs is None:
            return np.outer(of_time, self._node_variance)
        return np.asarray(of_time[self.pairs[0]] * self._node_variance[self.pairs[1]])

    def contract(self, time: Floats, middle: Floats, nodes: Floats) -> Floats:
        """Σ_ab time(t, a) middle(a, b) nodes(s, b) at the cells; leading dimensions of ``middle`` are kept."""
        return self.gather(time @ middle, nodes)

    def gather(self, left: Floats, nodes: Floats) -> Floats:
        """Σ_b left(t, b) nodes(s, b) at the cells; leading dimensions of ``left`` are kept."""
        if self.pairs is None:
            return np.asarray(left @ nodes.T)
        sums = np.empty((*left.shape[:-2], len(self.pairs[0])))
        step = max(1, _CHUNK // max(1, left.shape[-1] * int(np.prod(left.shape[:-2]))))
        for start in range(0, sums.shape[-1], step):
            part = slice(start, start + step)
            t, s = self.pairs[0][part], self.pairs[1][part]
            sums[..., part] = np.einsum("...pb,pb->...p", left[..., t, :], nodes[s])
        return sums

    def each(self) -> tuple[Longs, Longs]:
        """Rows of ``times`` and of ``nodes`` of every cell, one after the other."""
        if self.pairs is not None:
            return self.pairs
        t, s = np.divmod(np.arange(len(self.times) * len(self.nodes)), len(self.nodes))
        return t, s


class FieldSystem(ABC):
    """Solves with the covariance C_oo of the observed cells at given parameters.

    Parameters
    ----------
    covariance : FieldCovariance
        Time, K_S, ρ.
    grid : FieldGrid
        Which cells are observed.
    """

    batch = 1  # fields that are best solved for at once, where there are many

    def __init__(self, covariance: FieldCovariance, grid: FieldGrid) -> None:
        self.covariance = covariance
        self.grid = grid

    @abstractmethod
    def log_determinant(self) -> float:
        """Log det C_oo."""

    def best_log_determinant(self) -> tuple[float, float]:
        """Log det C_oo for a report, and its standard error, 0 where it is exact."""
        return self.log_determinant(), 0.0

    @abstractmethod
    def solve(self, data: Floats) -> Floats:
        """C_oo⁻¹ data for fields that are 0 at missing cells, as the solutions are; shape (k, n_times, n_nodes)."""

    def forms(self, data: Floats, *, in_fit: bool = False) -> tuple[Floats, Floats]:  # noqa: ARG002
        """Quadratic forms dataᵀ C_oo⁻¹ data, shape (k, k), and the solutions, as accurate as a fit needs or more."""
        solved = self.solve(data)
        return np.einsum("its,jts->ij", data, solved), solved

    @abstractmethod
    def trace_derivatives(self) -> Derivatives:
        """Derivatives of `log_determinant`."""

    def form_derivatives(self, fields: Floats, factors: Floats) -> Derivatives:
        """Derivatives of Σ factor · ⟨X, C X⟩ over some fields X of shape (k, n_times, n_nodes)."""
        return self.covariance.form_derivatives(fields, factors)

    def project(self, cells: Cells, field: Floats) -> Floats:
        """Σ_ab k_T(t, a) field(a, b) k_S(s, b) at cells; shape ``cells.shape``."""
        return cells.contract(cells.time, field, cells.nodes)

    @abstractmethod
    def explained(self, cells: Cells) -> Floats:
        """Prior minus posterior variance at cells, kᵀ C_oo⁻¹ k; shape ``cells.shape``."""


class WholeGrid(FieldSystem):
    """Every cell is observed."""

    def log_determinant(self) -> float:
        """Log det C."""
        return self.covariance.modes.log_determinant()

    def solve(self, data: Floats) -> Floats:
        """C⁻¹ data."""
        return self.covariance.modes.solve(data)[0]

    def trace_derivatives(self) -> Derivatives:
        """Derivatives of log det C."""
        return self.covariance.modes.trace_derivatives()

    def explained(self, cells: Cells) -> Floats:
        """Prior minus posterior variance at cells."""
        return _explained_by_whole_grid(self.covariance.modes, cells)


def _explained_by_whole_grid(modes: Modes, cells: Cells) -> Floats:
    """kᵀ C⁻¹ k at cells."""
    time, nodes = cells.time @ modes.time_vectors, cells.nodes @ modes.node_vectors
    return cells.contract(time**2, 1.0 / modes.variances, nodes**2)


class FewCells(FieldSystem):
    """Cholesky factor of the covariance of the observed cells."""

    @cached_property
    def _places(self) -> tuple[Longs, Longs]:
        """Time and node of every observed cell, sorted by time."""
        t, s = np.nonzero(self.grid.observed)
        return t, s

    @cached_property
    def _factor(self) -> Floats:
        t, s = self._places
        matrix = self.covariance.time[np.ix_(t, t)]
        matrix *= self.covariance.nodes[np.ix_(s, s)]
        matrix[np.arange(len(t)), np.arange(len(t))] += self.covariance.rho
        try:
            return np.asarray(la.cholesky(matrix, lower=True, overwrite_a=True, check_finite=False))
        except la.LinAlgError:
            raise NumericalError(
                "the covariance of the observed cells is not positive definite. Likely causes: (a) a noise variance "
                "near 0: raise it; (b) parameters that are not finite."
            ) from None

    def log_determinant(self) -> float:
        """Log det C_oo."""
        return 2.0 * float(np.log(np.diag(self._factor)).sum())

    def solve(self, data: Floats) -> Floats:
        """C_oo⁻¹ data."""
        t, s = self._places
        solution = np.zeros_like(data)
        solution[:, t, s] = la.cho_solve((self._factor, True), data[:, t, s].T, check_finite=False).T
        return solution

    @cached_property
    def _inverse(self) -> Floats:
        lower, _ = la.lapack.dpotri(self._factor, lower=1)  # above the diagonal, zeros as in the factor
        inverse = lower + lower.T
        inverse[np.diag_indices_from(inverse)] *= 0.5
        return np.asarray(inverse)

    def trace_derivatives(self) -> Derivatives:
        """Derivatives of log det C_oo: C_oo⁻¹, times the other factor, summed over cells of equal times or nodes."""
        t, s = self._places
        covariance, inverse = self.covariance, self._inverse
        in_time = _sum_by_label(inverse * covariance.nodes[np.ix_(s, s)], t, len(covariance.time))
        in_nodes = _sum_by_label(inverse * covariance.time[np.ix_(t, t)], s, len(covariance.nodes))
        in_weights = weight_derivatives(in_nodes, covariance.basis.basis)
        return Derivatives(in_time, in_weights, float(np.trace(inverse)))

    def explained(self, cells: Cells) -> Floats:
        """Prior minus posterior variance at cells."""
        t, s = self._places
        rows, columns = cells.each()
        explained = np.empty(len(rows))
        step = max(1, _CHUNK // len(t))
        for start in range(0, len(rows), step):
            part = slice(start, start + step)
            cross = cells.time[rows[part]][:, t] * cells.nodes[columns[part]][:, s]
            white = la.solve_triangular(self._factor, cross.T, lower=True, check_finite=False)
            explained[part] = np.einsum("ij,ij->j", white, white)
        return explained.reshape(cells.shape)


def _sum_by_label(matrix: Floats, label: Longs, count: int) -> Floats:
    """Sum the entries of a matrix over rows and columns of equal label; shape (count, count)."""
    order = np.argsort(label, kind="stable")
    present, first = np.unique(label[order], return_index=True)
    rows = np.add.reduceat(matrix[order], first, axis=0)
    sums = np.add.reduceat(rows[:, order], first, axis=1)
    summed = np.zeros((count, count))
    summed[np.ix_(present, present)] = sums
    return summed


class ManyCells(FieldSystem):
    """Missing cells are filled in by conjugate gradients."""

    def __init__(
        self, covariance: FieldCovariance, grid: FieldGrid, options: IterativeOptions, start: Floats | None = None
    ) -> None:
        super().__init__(covariance, grid)
        self.options = options
        self.fill_in = FillIn(covariance.modes, ~grid.observed, options)
        self._start = start
        self.filled: Floats | None = None

    def log_determinant(self) -> float:
        """Log det C_oo, estimated."""
        return self.covariance.modes.log_determinant() + self.fill_in.log_determinant.value

    def best_log_determinant(self) -> tuple[float, float]:
        """Log det C_oo for a report, with a control variate that `log_determinant` lacks, and its standard error."""
        estimate = self.fill_in.log_determinant
        return self.covariance.modes.log_determinant() + estimate.sharper, estimate.sharper_error

    def solve(self, data: Floats) -> Floats:
        """C_oo⁻¹ data, to the tolerance; missing cells, where rounding leaves a little, are set to 0."""
        return self.covariance.modes.solve(self.fill_in.fill(data))[0] * self.grid.observed

    def forms(self, data: Floats, *, in_fit: bool = False) -> tuple[Floats, Floats]:
        """Quadratic forms and solutions; filled in, the forms' errors are of second order in the tolerance."""
        start = self._start if self.filled is None else self.filled
        same = start is not None and start.shape == data.shape
        at_least = self.options.fit_tolerance if in_fit else 0.0
        self.filled = self.fill_in.fill(data, start if same else None, at_least=at_least)
        solved = self.covariance.modes.solve(self.filled)[0]
        return np.einsum("its,jts->ij", self.filled, solved), solved

    def trace_derivatives(self) -> Derivatives:
        """Derivatives of `log_determinant`, those of the estimate for the same probes."""
        derivatives = self.covariance.modes.trace_derivatives()
        derivatives.add(self.fill_in.log_determinant.derivatives)
        return derivatives

    @cached_property
    def _deviations(self) -> Floats:
        """C⁻¹ e for draws e of the missing values around their conditional means; shape (n_draws, ...)."""
        rng = np.random.default_rng(self.options.seed + 1)
        modes, missing = self.covariance.modes, ~self.grid.observed
        solved = []
        hidden = None if self.options.progress is None else not self.options.progress
        for _ in tqdm(range(self.options.n_draws), desc="variances", unit=" draws", disable=hidden, leave=False):
            drawn = self.draw(rng)[None]
            filled = self.fill_in.fill(drawn * self.grid.observed, at_least=_DRAW_TOLERANCE)
            error = (drawn - filled) * missing
            solved.append(modes.solve(error)[0][0])
        return np.stack(solved)

    def draw(self, rng: np.random.Generator) -> Floats:
        """A draw of all cells from the prior, noise included; shape (n_times, n_nodes)."""
        modes = self.covariance.modes
        normal = rng.standard_normal(modes.variances.shape)
        field = modes.leave(np.sqrt(np.outer(modes.d, modes.g)) * normal)
        return np.asarray(field + np.sqrt(modes.rho) * rng.standard_normal(self.grid.shape))

    def explained(self, cells: Cells) -> Floats:
        """Prior minus posterior variance at cells.

        Had the missing values been observed, it would be that of a whole grid; not knowing them adds the variance of
        the prediction over their conditional distribution: exactly, by one solve a cell, for few cells; from draws for
        many.
        """
        whole = _explained_by_whole_grid(self.covariance.modes, cells)
        if len(cells.each()[0]) <= self.options.n_draws:
            added = np.array([self.fill_in.added_variance(*cross) for cross in self._crosses(cells)])
            return np.asarray(whole - added.reshape(cells.shape))
        squares = np.zeros(cells.shape)
        for deviation in self._deviations:
            squares += cells.contract(cells.time, deviation, cells.nodes) ** 2
        return np.asarray(whole - squares / len(self._deviations))

    @staticmethod
    def _crosses(cells: Cells) -> Iterator[tuple[Floats, Floats]]:
        for row, column in zip(*cells.each(), strict=True):
            yield cells.time[row], cells.nodes[column]
