"""Kernel parameters: numbers with a domain, stored unconstrained so that any optimiser can move them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, overload

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from graphmatern.kernels._base import SpectralKernel

__all__ = ["Domain", "KernelParameter", "half_open_unit", "positive"]


@dataclass(frozen=True)
class Domain:
    """Where a parameter may lie, and the change of variables that makes it unconstrained.

    Attributes
    ----------
    rule : str
        In words, for messages: "must be ...".
    contains : callable
        Whether a number lies in the domain.
    free : callable
        From the parameter to an unconstrained number (of a float).
    bound : callable
        Back again (of a tensor, differentiable).
    """

    rule: str
    contains: Callable[[float], bool]
    free: Callable[[torch.Tensor], torch.Tensor]
    bound: Callable[[torch.Tensor], torch.Tensor]


positive = Domain(
    "must be a positive number, from 1e-100 to 1e100",  # so that squares and ratios are numbers, too
    lambda value: 1e-100 <= value <= 1e100,
    torch.log,
    torch.exp,
)
# α = 1 − 1 / (1 + e^x): 0 is x = −∞, which a float holds and exp maps back exactly.
half_open_unit = Domain(
    "must lie in [0, 1)",
    lambda value: 0.0 <= value < 1.0,
    torch.logit,
    torch.sigmoid,
)


class KernelParameter:
    """A kernel's parameter: reads as a tensor, is set with a number, is stored unconstrained.

    Parameters
    ----------
    domain : Domain
        Where it may lie.

    Notes
    -----
    The unconstrained value is the ``torch.nn.Parameter`` called ``raw_<name>``, a scalar in float64.
    """

    def __init__(self, domain: Domain) -> None:
        self.domain = domain

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name
        self.raw_name = f"raw_{name}"

    @overload
    def __get__(self, kernel: None, owner: type) -> KernelParameter: ...
    @overload
    def __get__(self, kernel: SpectralKernel, owner: type) -> torch.Tensor: ...
    def __get__(self, kernel: SpectralKernel | None, owner: type) -> Any:
        if kernel is None:
            return self
        return self.domain.bound(getattr(kernel, self.raw_name))

    def __set__(self, kernel: SpectralKernel, value: float | torch.Tensor) -> None:
        number = kernel._check_parameter(self, value)
        raw = getattr(kernel, self.raw_name)
        with torch.no_grad():
            raw.copy_(self.domain.free(torch.as_tensor(number, dtype=torch.float64)))

    def create(self, kernel: SpectralKernel, value: float, *, fixed: bool) -> None:
        """Register the unconstrained value with the kernel."""
        free = self.domain.free(torch.as_tensor(value, dtype=torch.float64))
        kernel.register_parameter(self.raw_name, torch.nn.Parameter(free, requires_grad=not fixed))
