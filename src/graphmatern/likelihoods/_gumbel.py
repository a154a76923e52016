"""Expectations of exp(−e^(u + f)) for Gaussian f, with their derivatives: the factors of the softmax expectation."""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd.function import once_differentiable

__all__ = ["gumbel_factors"]


class _Factors(torch.autograd.Function):
    """One pass over (grid, quadrature, class, observation) gives values and derivatives, and keeps neither."""

    @staticmethod
    def forward(
        ctx: Any,
        mean: torch.Tensor,
        deviation: torch.Tensor,
        u: torch.Tensor,
        nodes: torch.Tensor,
        weights: torch.Tensor,
    ) -> torch.Tensor:
        value = torch.zeros((len(u), *mean.shape), dtype=mean.dtype)
        in_mean, in_deviation = torch.zeros_like(value), torch.zeros_like(value)
        for node, weight in zip(nodes.tolist(), weights.tolist(), strict=True):
            growing = torch.exp((u[:, None] + (mean + node * deviation)).clamp_max(7.0))  # e^(−e^7) is 0
            falling = weight * torch.exp(-growing)
            value += falling
            slope = falling.mul_(growing)
            in_mean -= slope
            in_deviation -= node * slope
        ctx.save_for_backward(in_mean, in_deviation)
        return value

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        in_mean, in_deviation = ctx.saved_tensors
        return (gradient * in_mean).sum(dim=0), (gradient * in_deviation).sum(dim=0), None, None, None


def gumbel_factors(
    mean: torch.Tensor, deviation: torch.Tensor, u: torch.Tensor, nodes: torch.Tensor, weights: torch.Tensor
) -> torch.Tensor:
    """E exp(−e^(u + f)) for f ~ N(mean, deviation²), differentiable in both.

    Parameters
    ----------
    mean, deviation : Tensor, shape (n_classes, n)
        Of f.
    u : Tensor, shape (n_grid, n)
        Where to evaluate.
    nodes, weights : Tensor, shape (n_points,)
        Gauss–Hermite rule of a standard normal variable.

    Returns
    -------
    Tensor, shape (n_grid, n_classes, n)
    """
    found: torch.Tensor = _Factors.apply(mean, deviation, u, nodes, weights)  # type: ignore[no-untyped-call]
    return found
