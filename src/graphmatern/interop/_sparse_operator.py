"""Sparse precision matrices as linear operators: exact solutions and log-determinants from a sparse factorisation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from linear_operator.operators import DiagLinearOperator, LinearOperator
from linear_operator.utils.memoize import cached

from graphmatern.inference import sparse_logdet, sparse_solve
from graphmatern.sparse._pattern import transpose_positions

if TYPE_CHECKING:
    from graphmatern.inference import MarkovPrecision
    from graphmatern.sparse import Analysis, Factor

__all__ = ["SparsePrecisionLinearOperator"]


class _Layout:
    """Where the entries of a pattern stand; each of shape (nnz,), `diagonal` of shape (n,)."""

    def __init__(self, analysis: Analysis) -> None:
        pattern = analysis.pattern
        indptr, indices = pattern.indptr.astype(np.int64), pattern.indices
        columns = np.repeat(np.arange(analysis.n), np.diff(indptr))
        self.row = torch.as_tensor(indices.astype(np.int64))
        self.column = torch.as_tensor(columns)
        self.mirror = torch.as_tensor(transpose_positions(indptr, indices))
        self.diagonal = torch.as_tensor(analysis.diagonal_positions.astype(np.int64))
        self.key = self.column * analysis.n + self.row  # increasing


_layouts: WeakKeyDictionary[Analysis, _Layout] = WeakKeyDictionary()


class SparsePrecisionLinearOperator(LinearOperator):  # type: ignore[misc]
    """A sparse, symmetric, positive definite matrix as a linear operator.

    Solutions, log-determinants and inverse quadratic forms come from one sparse Cholesky factorisation, their gradients
    from the selected inverse: exact, and without any matrix of size n × n. Adding a diagonal and multiplying by a
    number keep the operator sparse. Operations that the library defines through dense matrices (``cholesky``,
    ``eigh``, ...) remain dense.

    Parameters
    ----------
    values : Tensor, shape (..., nnz)
        Values on ``analysis.pattern``; leading dimensions are batches. Only the symmetric part of the matrix counts.
    analysis : Analysis
        Of the pattern (`graphmatern.sparse.analyze`).

    Examples
    --------
    >>> import torch
    >>> import graphmatern as gm
    >>> from graphmatern.inference import MarkovPrecision
    >>> precision = MarkovPrecision(gm.make_roads(300, seed=0), nu=1)
    >>> lengthscale = torch.tensor(3.0, requires_grad=True)
    >>> Q = gm.interop.SparsePrecisionLinearOperator.from_markov(precision, lengthscale, torch.tensor(1.0))
    >>> posterior = Q.add_diagonal(torch.full((Q.shape[-1],), 10.0))  # every node observed with variance 0.1
    >>> form, log_determinant = posterior.inv_quad_logdet(torch.ones(Q.shape[-1], 1), logdet=True)
    >>> (form + log_determinant).backward()
    >>> lengthscale.grad.isfinite()
    tensor(True)
    """

    def __init__(self, values: torch.Tensor, analysis: Analysis) -> None:
        super().__init__(values, analysis=analysis)
        self.values, self.analysis = values, analysis

    @classmethod
    def from_markov(
        cls, precision: MarkovPrecision, lengthscale: torch.Tensor, amplitude: torch.Tensor
    ) -> SparsePrecisionLinearOperator:
        """Precision of a Matérn process of integer smoothness, differentiable in both arguments.

        Parameters
        ----------
        precision : MarkovPrecision
            Graph and smoothness.
        lengthscale, amplitude : Tensor, shape ()
            κ and a.
        """
        return cls(precision.values(lengthscale, amplitude), precision.analysis)

    def _check_args(self, values: Any, analysis: Analysis) -> str | None:
        count = analysis.pattern.nnz
        if not torch.is_tensor(values) or values.dim() < 1 or values.shape[-1] != count:
            return f"values must be a tensor of shape (..., {count}), the entries of the pattern; got {values!r:.80}"
        return None

    @property
    def _layout(self) -> _Layout:
        if self.analysis not in _layouts:
            _layouts[self.analysis] = _Layout(self.analysis)
        return _layouts[self.analysis]

    def _symmetric(self) -> torch.Tensor:
        """Values of the symmetric part; shape (..., nnz)."""
        return 0.5 * (self.values + self.values[..., self._layout.mirror])

    # ------------------------------------------------------------------ the matrix
    def _size(self) -> torch.Size:
        return torch.Size([*self.values.shape[:-1], self.analysis.n, self.analysis.n])

    def _transpose_nonbatch(self) -> SparsePrecisionLinearOperator:
        return self

    def _diagonal(self) -> torch.Tensor:
        return self.values[..., self._layout.diagonal]

    def _expand_batch(self, batch_shape: torch.Size | list[int]) -> SparsePrecisionLinearOperator:
        return type(self)(self.values.expand(*batch_shape, self.values.shape[-1]), self.analysis)

    def _get_indices(self, row_index: Any, col_index: Any, *batch_indices: Any) -> torch.Tensor:
        layout = self._layout
        wanted = col_index * self.analysis.n + row_index
        place = torch.searchsorted(layout.key, wanted).clamp_max(len(layout.key) - 1)
        found: torch.Tensor = self._symmetric()[(*batch_indices, place)]
        return torch.where(layout.key[place] == wanted, found, torch.zeros_like(found))

    def _matmul(self, rhs: torch.Tensor) -> torch.Tensor:
        layout, values = self._layout, self._symmetric()
        right = rhs.unsqueeze(-1) if rhs.dim() == 1 else rhs
        terms = values.unsqueeze(-1) * right[..., layout.column, :]
        shape = *terms.shape[:-2], self.analysis.n, right.shape[-1]
        product = torch.zeros(shape, dtype=terms.dtype, device=terms.device).index_add(-2, layout.row, terms)
        return product.squeeze(-1) if rhs.dim() == 1 else product

    def _t_matmul(self, rhs: torch.Tensor) -> torch.Tensor:
        return self._matmul(rhs)

    def _bilinear_derivative(self, left_vecs: torch.Tensor, right_vecs: torch.Tensor) -> tuple[torch.Tensor]:
        layout = self._layout
        left, right = (x.unsqueeze(-1) if x.dim() == 1 else x for x in (left_vecs, right_vecs))
        gradient = (left[..., layout.row, :] * right[..., layout.column, :]).sum(dim=-1)
        gradient = 0.5 * (gradient + gradient[..., layout.mirror])
        return (gradient.sum_to_size(self.values.shape),)

    def to_dense(self) -> torch.Tensor:
        """The matrix; shape (..., n, n)."""
        layout, values = self._layout, self._symmetric()
        dense = torch.zeros(self.shape, dtype=values.dtype, device=values.device)
        dense[..., layout.row, layout.column] = values
        return dense

    # ------------------------------------------------------------------ what stays sparse
    def add_diagonal(self, diag: torch.Tensor) -> SparsePrecisionLinearOperator:
        """Add a diagonal matrix; ``diag`` of shape (..., n), (..., 1) or ()."""
        added = diag.expand(*self.shape[:-1]) if diag.dim() else diag.expand(self.shape[:-1])
        shape = *added.shape[:-1], self.values.shape[-1]
        values = self.values.expand(shape).index_add(-1, self._layout.diagonal, added.to(self.values.dtype))
        return type(self)(values, self.analysis)

    def _mul_constant(self, other: Any) -> SparsePrecisionLinearOperator:
        factor = other.unsqueeze(-1) if torch.is_tensor(other) and other.dim() else other
        return type(self)(self.values * factor, self.analysis)

    def __add__(self, other: Any) -> Any:
        if isinstance(other, DiagLinearOperator):
            return self.add_diagonal(other._diagonal())
        if isinstance(other, SparsePrecisionLinearOperator) and other.analysis is self.analysis:
            return type(self)(self.values + other.values, self.analysis)
        return super().__add__(other)

    # ------------------------------------------------------------------ solutions and log-determinants
    @cached(name="sparse_factors", ignore_args=True)  # type: ignore[untyped-decorator]
    def _factors(self) -> list[Factor]:
        """One factor for each matrix of the batch."""
        values = self._symmetric().detach().double().reshape(-1, self.values.shape[-1]).cpu().numpy()
        return [self.analysis.factorize(one) for one in values]

    def _exact_values(self) -> torch.Tensor:
        """Symmetric values in float64, one row for each matrix of the batch."""
        return self._symmetric().double().reshape(-1, self.values.shape[-1])

    def solve(self, right_tensor: torch.Tensor, left_tensor: torch.Tensor | None = None) -> torch.Tensor:
        """A⁻¹ R, or L A⁻¹ R; shapes as in ``LinearOperator.solve``."""
        right = right_tensor.unsqueeze(-1) if right_tensor.dim() == 1 else right_tensor
        if right.shape[-2] != self.analysis.n:
            raise RuntimeError(f"a right-hand side of shape {tuple(right.shape)} does not fit {tuple(self.shape)}")
        solution = self._solve_all(right).to(right_tensor.dtype)
        solution = solution.squeeze(-1) if right_tensor.dim() == 1 else solution
        return solution if left_tensor is None else left_tensor @ solution

    def _solve_all(self, right: torch.Tensor) -> torch.Tensor:
        """A⁻¹ R in float64; shape (..., n, k)."""
        batch = torch.broadcast_shapes(self.batch_shape, right.shape[:-2])  # type: ignore[no-untyped-call]
        values, factors, n = self._exact_values(), self._factors(), self.analysis.n
        # Batches of right-hand sides are further columns of each system.
        flat = right.double().expand(*batch, *right.shape[-2:]).reshape(-1, len(factors), n, right.shape[-1])
        stacked = flat.permute(1, 2, 0, 3).reshape(len(factors), n, -1)
        found = [
            sparse_solve(one, b, self.analysis, factor) for one, b, factor in zip(values, stacked, factors, strict=True)
        ]
        solved = torch.stack(found).reshape(len(factors), n, flat.shape[0], right.shape[-1]).permute(2, 0, 1, 3)
        return solved.reshape(*batch, n, right.shape[-1])

    def _solve(self, rhs: torch.Tensor, preconditioner: Any = None, num_tridiag: int = 0) -> Any:
        if num_tridiag:  # stochastic Lanczos quadrature, which wants conjugate gradients
            return super()._solve(rhs, preconditioner, num_tridiag=num_tridiag)
        return self.solve(rhs)

    def logdet(self) -> torch.Tensor:
        """Log-determinants; shape of the batch."""
        pairs = zip(self._exact_values(), self._factors(), strict=True)
        found = torch.stack([sparse_logdet(values, self.analysis, factor) for values, factor in pairs])
        return found.reshape(self.batch_shape).to(self.values.dtype)

    def inv_quad_logdet(
        self, inv_quad_rhs: torch.Tensor | None = None, logdet: bool = False, reduce_inv_quad: bool = True
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """RᵀA⁻¹R, its trace or its diagonal, and log det A; zeros for what is not asked for."""
        form = log_determinant = torch.zeros(self.batch_shape, dtype=self.dtype, device=self.device)
        if inv_quad_rhs is not None:
            right = inv_quad_rhs.unsqueeze(-1) if inv_quad_rhs.dim() == 1 else inv_quad_rhs
            form = (right * self.solve(right)).sum(dim=-2)
            form = form.sum(dim=-1) if reduce_inv_quad else form
        if logdet:
            log_determinant = self.logdet()
        return form, log_determinant

    def inv_quad(self, inv_quad_rhs: torch.Tensor, reduce_inv_quad: bool = True) -> torch.Tensor:
        """RᵀA⁻¹R, its trace or its diagonal."""
        return self.inv_quad_logdet(inv_quad_rhs, reduce_inv_quad=reduce_inv_quad)[0]
