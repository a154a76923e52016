"""A kernel's function at Chebyshev points, as a function of the kernel's free parameters."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch

from graphmatern.inference.learning.parameters import pull_back

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = ["KernelValues"]


class KernelValues:
    """Values a Ψ(λ) at the Chebyshev points of a degree, with derivatives.

    Parameters
    ----------
    values : Tensor, shape (degree + 1,)
        Differentiable in ``free``.
    free : sequence of Tensor
        The kernel's free parameters, unconstrained.
    """

    def __init__(self, values: torch.Tensor, free: Sequence[torch.Tensor]) -> None:
        self._values, self._free = values, free
        self.numbers: Floats = values.detach().numpy()
        self.degree = len(values) - 1

    def pull_back(self, change: Floats) -> Floats:
        """Derivatives in the free parameters, from those in the values; shape (n_free,)."""
        return pull_back([self._values], [change], self._free)

    @cached_property
    def derivatives(self) -> Floats:
        """Derivatives of the values in the free parameters; shape (degree + 1, n_free)."""
        found = np.zeros((self.degree + 1, len(self._free)))
        if not self._free:
            return found
        # What pulls back is linear in the cotangent: its derivatives there are what pushes forward.
        cotangent = torch.zeros_like(self._values, requires_grad=True)
        total = (self._values * cotangent).sum()
        pulled = torch.autograd.grad(total, self._free, create_graph=True, allow_unused=True)
        for place, one in enumerate(pulled):
            if one is not None:
                found[:, place] = torch.autograd.grad(one, cotangent, retain_graph=True)[0].numpy()
        return found
