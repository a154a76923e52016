"""Log-determinants and solutions of sparse systems, differentiable in the values of the matrix."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.autograd.function import once_differentiable

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from graphmatern.sparse import Analysis, Factor

__all__ = ["sparse_logdet", "sparse_solve"]


def _to_numpy(tensor: torch.Tensor) -> NDArray[np.float64]:
    return np.asarray(tensor.detach().cpu().numpy(), dtype=np.float64)


class _LogDet(torch.autograd.Function):
    """log det A, with ∂ log det A / ∂A = A⁻¹ on the pattern, from the selected inverse."""

    @staticmethod
    def forward(ctx: Any, values: torch.Tensor, analysis: Analysis, factor: Factor | None) -> torch.Tensor:
        factor = analysis.factorize(_to_numpy(values)) if factor is None else factor
        ctx.factor, ctx.dtype = factor, values.dtype
        return torch.tensor(factor.logdet(), dtype=torch.float64, device=values.device)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        factor: Factor = ctx.factor
        inverse = factor.selected_inverse().on_pattern()
        return (gradient * torch.from_numpy(inverse).to(gradient)).to(ctx.dtype), None, None


class _Solve(torch.autograd.Function):
    """x = A⁻¹ b; with w = A⁻¹ ∂x the gradients are w in b and −(w xᵀ + x wᵀ) / 2 on the pattern."""

    @staticmethod
    def forward(
        ctx: Any, values: torch.Tensor, b: torch.Tensor, analysis: Analysis, factor: Factor | None
    ) -> torch.Tensor:
        ctx.factor = analysis.factorize(_to_numpy(values)) if factor is None else factor
        ctx.solution = ctx.factor.solve(_to_numpy(b))
        return torch.from_numpy(ctx.solution.copy()).to(b.device)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, torch.Tensor, None, None]:
        factor: Factor = ctx.factor
        adjoint = factor.solve(_to_numpy(gradient))
        in_values = None
        if ctx.needs_input_grad[0]:
            pattern = factor.analysis.pattern
            row = pattern.indices
            column = np.repeat(np.arange(pattern.shape[1]), np.diff(pattern.indptr))
            w, x = np.atleast_2d(adjoint.T), np.atleast_2d(ctx.solution.T)
            total = np.zeros(len(row))
            for one, other in zip(w, x, strict=True):
                total -= 0.5 * (one[row] * other[column] + other[row] * one[column])
            in_values = torch.from_numpy(total).to(gradient)
        return in_values, torch.from_numpy(adjoint).to(gradient), None, None


def sparse_logdet(values: torch.Tensor, analysis: Analysis, factor: Factor | None = None) -> torch.Tensor:
    """Log-determinant of a sparse positive definite matrix, differentiable in its values.

    Parameters
    ----------
    values : Tensor, shape (nnz,)
        Values on ``analysis.pattern``, symmetric.
    analysis : Analysis
        Of the pattern.
    factor : Factor, optional
        Of this matrix, where it is at hand.

    Returns
    -------
    Tensor, shape ()
        Its gradient is that of the symmetric matrix: entries (i, j) and (j, i) each receive (A⁻¹)_ij.

    Examples
    --------
    >>> import scipy.sparse as sp, torch
    >>> from graphmatern.sparse import analyze
    >>> A = sp.diags_array([2.0, 4.0]).tocsc()
    >>> values = torch.tensor(A.data, requires_grad=True)
    >>> sparse_logdet(values, analyze(A)).backward()
    >>> values.grad
    tensor([0.5000, 0.2500], dtype=torch.float64)
    """
    result: torch.Tensor = _LogDet.apply(values, analysis, factor)  # type: ignore[no-untyped-call]
    return result


def sparse_solve(
    values: torch.Tensor, b: torch.Tensor, analysis: Analysis, factor: Factor | None = None
) -> torch.Tensor:
    """Solution of A x = b for a sparse positive definite matrix, differentiable in its values and in b.

    Parameters
    ----------
    values : Tensor, shape (nnz,)
        Values on ``analysis.pattern``, symmetric.
    b : Tensor, shape (n,) or (n, k)
        Right-hand sides.
    analysis : Analysis
        Of the pattern.
    factor : Factor, optional
        Of this matrix, where it is at hand.

    Returns
    -------
    Tensor, shape as ``b``
    """
    right = b if b.is_floating_point() else b.to(torch.float64)
    result: torch.Tensor = _Solve.apply(values, right, analysis, factor)  # type: ignore[no-untyped-call]
    return result
