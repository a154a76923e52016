"""Which degree a kernel needs: the error of a polynomial in its place is known before any product is made."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from graphmatern.inference.moments.operator import LaplacianOperator

    Floats = NDArray[np.float64]
    Weights = Callable[..., torch.Tensor]

__all__ = [
    "FIRST_DEGREE",
    "MOST_DEGREE",
    "TOLERANCE",
    "ample_degree",
    "first_below",
    "rough_degree",
    "rough_error",
    "truncation_errors",
]

#: Of K, relative in spectral norm.
TOLERANCE = 1e-10
FIRST_DEGREE, MOST_DEGREE = 16, 2_000


def _values(weights: Weights) -> Callable[[Floats], Floats]:
    """A kernel's function of eigenvalues; its scale does not matter, so that any positive norms serve."""

    def values(points: Floats) -> Floats:
        with torch.no_grad():
            found = weights(torch.as_tensor(points), torch.ones(len(points), dtype=torch.float64), 1)
        return np.asarray(found.numpy())

    return values


def truncation_errors(weights: Weights, operator: LaplacianOperator, most: int) -> Floats:
    """Errors of polynomials of each degree up to ``most`` in place of a kernel's function; shape (most + 1,).

    ``weights`` is `Kernel.spectral_weights`, or something like it.
    """
    return operator.truncation_errors(_values(weights), most)


def rough_error(weights: Weights, operator: LaplacianOperator, degree: int) -> float:
    """Largest error of a polynomial of some degree, relative to the kernel's function at the same eigenvalue.

    Where the function is below its value at the average eigenvalue, relative to that: what is small next to the
    average prior variance does not matter. Long lengthscales need far lower degrees by this measure than relative to
    the largest value, which a single eigenvector may have.
    """
    return operator.pointwise_error(_values(weights), degree)


def rough_degree(weights: Weights, operator: LaplacianOperator, most: int, tolerance: float) -> int:
    """The first degree at which `rough_error` is small enough; ``most`` where there is none below."""
    low, high = 0, most
    while high > low + 1:
        middle = (low + high) // 2
        low, high = (low, middle) if rough_error(weights, operator, middle) <= tolerance else (middle, high)
    return high


def ample_degree(degree: int, most: int = MOST_DEGREE) -> int:
    """A little more than is needed now, as it will be needed soon."""
    return int(np.clip(1.25 * degree, FIRST_DEGREE, most))


def first_below(errors: Floats, tolerance: float) -> int | None:
    """The first degree whose error is small enough; None where there is none."""
    enough = np.flatnonzero(errors <= tolerance)
    return int(enough[0]) if len(enough) else None
