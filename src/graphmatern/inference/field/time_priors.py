"""Priors of the parameters of a kernel on time, in the coordinates that are moved."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from gpytorch.constraints import Interval
from gpytorch.kernels import PeriodicKernel

from graphmatern.inference.learning.priors import Beta, LogNormal, Prior

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from graphmatern.inference.field.time_kernel import FreeNumber, TimeKernel

    Floats = NDArray[np.float64]

__all__ = ["Registered", "time_priors"]

_REACH, _STEPS = 20.0, 4001  # around the start, in the coordinate, where quantiles of registered priors are looked for
_SPREAD, _WIDER = 1.3, 1.5  # of logarithms: of times, as of lengthscales on graphs; of everything else


class Registered(Prior):
    """A prior that was registered with a kernel on time, of one of its numbers.

    GPyTorch's density is that of the number v; that of its coordinate x is p(v) dv/dx.

    Parameters
    ----------
    number : FreeNumber
        The number, with its prior.
    """

    def __init__(self, number: FreeNumber) -> None:
        self._number = number
        self._grid = number.start + np.linspace(-_REACH, _REACH, _STEPS)
        with np.errstate(all="ignore"):
            logs = self.log_density(self._grid)[0]
            density = np.exp(logs - np.nanmax(logs))
        density = np.where(np.isfinite(density), density, 0.0)
        self._below = (np.cumsum(density) - 0.5 * density) / density.sum()

    def __repr__(self) -> str:
        return f"Registered({self._number.prior!r})"

    def log_density(self, x: Floats) -> tuple[Floats, Floats, Floats]:
        """Log density of the coordinate and its first and second derivatives; shapes as ``x``."""
        at = torch.from_numpy(np.array(x, dtype=np.float64)).requires_grad_()
        value = self._number.value(at)
        (slope,) = torch.autograd.grad(value.sum(), at, create_graph=True)
        density = self._number.prior.log_prob(value).reshape(at.shape) + torch.log(slope)
        (first,) = torch.autograd.grad(density.sum(), at, create_graph=True)
        second = torch.zeros_like(first)
        if first.requires_grad:
            (second,) = torch.autograd.grad(first.sum(), at)
        return density.detach().numpy(), first.detach().numpy(), second.numpy()

    def quantile(self, share: Floats) -> Floats:
        """Quantiles of the coordinate, from a table."""
        return np.asarray(np.interp(share, self._below, self._grid))


def time_priors(time: TimeKernel, gap: float, span: float) -> list[Prior] | None:
    """Proper priors of all that is learned; None if the scale of some number is unknown and no prior was given.

    Registered ones count. Lengthscales and periods have log-normal ones around the geometric mean of gap and span,
    within a factor of 13 with 95 %, or from gap to span where that is more; other positive numbers around their start,
    within a factor of 19; numbers between two bounds have Beta(2, 2) there.

    Parameters
    ----------
    time : TimeKernel
        The kernel.
    gap, span : float
        Median difference of successive times, and between the first and the last.
    """
    numbers = time.free_numbers()
    if time.has_other_priors:
        return None
    found = [_prior_of(one, gap, max(span, gap)) for one in numbers]
    return None if any(one is None for one in found) else found  # type: ignore[return-value]


def _prior_of(number: FreeNumber, gap: float, span: float) -> Prior | None:
    if number.prior is not None:
        return Registered(number) if _is_single(number.prior) else None
    if number.low is None:
        bounded = type(number.constraint) is Interval and number.constraint.enforced
        return Beta(2.0, 2.0) if bounded else None
    in_time = number.word == "period_length" or (
        number.word == "lengthscale" and not isinstance(number.owner, PeriodicKernel)
    )
    if in_time:
        return LogNormal(float(np.sqrt(gap * span)), max(_SPREAD, 0.25 * float(np.log(span / gap))))
    return LogNormal(float(np.exp(number.start)), _WIDER)


def _is_single(prior: Any) -> bool:
    """Whether a prior is one of a single number."""
    return len(prior.event_shape) == 0 and int(np.prod(tuple(prior.batch_shape))) == 1
