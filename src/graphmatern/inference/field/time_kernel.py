"""A GPyTorch kernel on times, its free parameters as one vector for the optimiser."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from gpytorch.kernels import Kernel as GPyTorchKernel

from graphmatern._validation import FaultList
from graphmatern.errors import KernelError, NumericalError
from graphmatern.inference.field.markov_time import markov_covariance, markov_order, rate_and_variance

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = ["FreeNumber", "TimeKernel"]

_LOG_RANGE = 12.0  # how far a logarithm may move from its starting value, either way


@dataclass(frozen=True, eq=False)
class FreeNumber:
    """One number of a kernel on time that is learned.

    Attributes
    ----------
    label : str
        Its name.
    owner : gpytorch.kernels.Kernel
        The part of the kernel that it belongs to.
    word : str
        What that calls it.
    start : float
        Coordinate from which it starts.
    constraint : gpytorch.constraints.Interval, optional
        Where it may lie.
    low : float, optional
        What it exceeds by the exponential of its coordinate; None where the coordinate is GPyTorch's.
    prior : gpytorch.priors.Prior, optional
        What was registered for it.
    """

    label: str
    owner: Any
    word: str
    start: float
    constraint: Any
    low: float | None
    prior: Any

    def value(self, coordinate: torch.Tensor) -> torch.Tensor:
        """From coordinates to values, differentiable; shape as ``coordinate``."""
        if self.low is not None:
            return self.low + torch.exp(coordinate)
        found: torch.Tensor = coordinate if self.constraint is None else self.constraint.transform(coordinate)
        return found


class TimeKernel:
    """A covariance function of time.

    Positive parameters are moved as logarithms (of what exceeds their lower bound), so that seconds and years are
    equally easy; others as GPyTorch stores them. Parameters with ``requires_grad=False`` are held. Priors registered
    with the kernel count.

    Parameters
    ----------
    kernel : gpytorch.kernels.Kernel
        Any kernel on one-dimensional inputs; it is copied, in float64.

    Examples
    --------
    >>> from gpytorch.kernels import MaternKernel
    >>> kernel = TimeKernel(MaternKernel(nu=1.5))
    >>> kernel.labels, kernel.matrix(np.array([0.0, 1.0])).shape
    (['time.lengthscale'], torch.Size([2, 2]))
    """

    def __init__(self, kernel: Any) -> None:
        faults = FaultList("nothing was fitted", KernelError)
        if not isinstance(kernel, GPyTorchKernel):
            received = f"a {type(kernel).__name__}"
            raise faults.raise_now(
                "time_kernel", "must be a GPyTorch kernel", received, "Such as MaternKernel(nu=1.5)."
            )
        if len(kernel.batch_shape) or (kernel.ard_num_dims or 1) != 1:
            received = f"batch shape {tuple(kernel.batch_shape)}, {kernel.ard_num_dims} dimensions"
            raise faults.raise_now("time_kernel", "must be one kernel of one input, time", received, "Drop these.")
        self.kernel = copy.deepcopy(kernel).double()
        self._start = [self._to_free(parameter, constraint) for _, parameter, constraint in self._learned()]

    @property
    def order(self) -> int | None:
        """Derivatives that make the process Markov; None if there are none, or it is not known."""
        return markov_order(self.kernel)

    def rate_and_variance(self) -> torch.Tensor:
        """What describes a Markov kernel beside its order, differentiable; shape (2,)."""
        return rate_and_variance(self.kernel)

    def _learned(self) -> Iterator[tuple[str, torch.nn.Parameter, Any]]:
        for name, parameter, constraint in self.kernel.named_parameters_and_constraints():
            if parameter.requires_grad:
                yield name, parameter, constraint

    @property
    def labels(self) -> list[str]:
        """Names of the free parameters, one per number."""
        names = []
        for name, parameter, _ in self._learned():
            plain = "time." + name.replace("raw_", "")
            count = parameter.numel()
            names += [plain] if count == 1 else [f"{plain}[{k}]" for k in range(count)]
        return names

    def free_numbers(self) -> list[FreeNumber]:
        """What is learned, number by number, in the order of `position`."""
        registered = {name.removesuffix("_prior"): prior for name, _, prior, _, _ in self.kernel.named_priors()}
        found = []
        labels, starts = iter(self.labels), iter(np.concatenate([np.zeros(0), *self._start]).tolist())
        for name, parameter, constraint in self._learned():
            path, _, word = name.replace("raw_", "").rpartition(".")
            prior = registered.get(name.replace("raw_", ""))
            owner, low = self.kernel.get_submodule(path), self._lower(constraint)
            found += [
                FreeNumber(next(labels), owner, word, next(starts), constraint, low, prior)
                for _ in range(parameter.numel())
            ]
        return found

    @property
    def has_other_priors(self) -> bool:
        """Whether priors are registered for something else than parameters, such as a function of several."""
        own = {name.replace("raw_", "") for name, _ in self.kernel.named_parameters()}
        return any(name.removesuffix("_prior") not in own for name, *_ in self.kernel.named_priors())

    @staticmethod
    def _lower(constraint: Any) -> float | None:
        """Lower bound of a parameter that is bounded below only; None for all others."""
        if constraint is None or not constraint.enforced:
            return None
        low, high = constraint.lower_bound, constraint.upper_bound
        bounded_below = low.numel() == 1 and bool(torch.isfinite(low).all()) and bool(torch.isinf(high).all())
        return float(low) if bounded_below else None

    @classmethod
    def _to_free(cls, parameter: torch.nn.Parameter, constraint: Any) -> Floats:
        raw = parameter.detach()
        low = cls._lower(constraint)
        free = raw if low is None else torch.log(constraint.transform(raw) - low)
        return np.asarray(free.numpy(), dtype=np.float64).ravel().copy()

    def position(self) -> Floats:
        """Free parameters as the optimiser sees them; shape (n_free,)."""
        parts = [self._to_free(parameter, constraint) for _, parameter, constraint in self._learned()]
        return np.concatenate([np.zeros(0), *parts])

    def starts(self, lengthscales: Sequence[float]) -> list[Floats]:
        """Positions with other lengthscales; none unless the kernel is Matérn, scaled or not, and learns its own.

        Parameters
        ----------
        lengthscales : sequence of float
            In the unit of the times.
        """
        position, place = self.position(), 0
        for name, parameter, constraint in self._learned():
            low = self._lower(constraint)
            if self.order is not None and name.endswith("raw_lengthscale") and low is not None:
                inside = [value for value in lengthscales if value > low]
                return [np.r_[position[:place], np.log(value - low), position[place + 1 :]] for value in inside]
            place += parameter.numel()
        return []

    def bounds(self) -> list[tuple[float, float]]:
        """Where they may move, from where they were when this object was made."""
        ranges = []
        for (_, _, constraint), start in zip(self._learned(), self._start, strict=True):
            reach = np.inf if self._lower(constraint) is None else _LOG_RANGE
            ranges += [(float(value - reach), float(value + reach)) for value in start]
        return ranges

    def move(self, position: Floats) -> None:
        """Set the free parameters."""
        place = 0
        for _, parameter, constraint in self._learned():
            free = torch.from_numpy(position[place : place + parameter.numel()].copy()).reshape(parameter.shape)
            place += parameter.numel()
            low = self._lower(constraint)
            with torch.no_grad():
                parameter.copy_(free if low is None else constraint.inverse_transform(low + torch.exp(free)))

    def pull(self, outputs: Sequence[torch.Tensor], cotangents: Sequence[torch.Tensor]) -> Floats:
        """Derivatives in `position` of Σ ⟨output, cotangent⟩; shape (n_free,)."""
        learned = list(self._learned())
        if not learned:
            return np.zeros(0)
        wanted = [parameter for _, parameter, _ in learned]
        slopes = torch.autograd.grad(outputs, wanted, cotangents, allow_unused=True)
        parts = []
        for (_, parameter, constraint), slope in zip(learned, slopes, strict=True):
            derivative = torch.zeros_like(parameter) if slope is None else slope.detach()
            low = self._lower(constraint)
            if low is not None:
                raw = parameter.detach().clone().requires_grad_()
                value = constraint.transform(raw)
                (in_raw,) = torch.autograd.grad(value.sum(), raw)
                derivative = derivative * (value.detach() - low) / in_raw  # by way of the logarithm
            parts.append(derivative.reshape(-1).numpy())
        return np.concatenate(parts)

    def matrix(self, first: Floats, second: Floats | None = None) -> torch.Tensor:
        """Covariances between times, differentiable; shape (n_first, n_second)."""
        a = torch.from_numpy(np.array(first, dtype=np.float64))
        b = a if second is None else torch.from_numpy(np.array(second, dtype=np.float64))
        covariance: torch.Tensor
        if self.order is None:
            covariance = self.kernel(a[:, None], None if second is None else b[:, None]).to_dense()
        else:
            covariance = markov_covariance(self.kernel, a, b)
        if not bool(torch.isfinite(covariance).all()):
            raise NumericalError(
                "the time kernel's matrix is not finite. Likely causes: (a) parameters at their limits; (b) times "
                "far from 0 in the time unit: choose a larger unit or subtract an origin."
            )
        return 0.5 * (covariance + covariance.T) if second is None else covariance

    def values(self, first: Floats, second: Floats | None = None) -> Floats:
        """Covariances between times as plain numbers; shape (n_first, n_second)."""
        with torch.no_grad():
            return np.asarray(self.matrix(first, second).numpy())

    def diagonal(self, times: Floats) -> Floats:
        """Variances at times; shape (n_times,)."""
        with torch.no_grad():
            points = torch.from_numpy(np.array(times, dtype=np.float64))[:, None]
            variances: torch.Tensor = self.kernel(points, diag=True)
            return np.asarray(variances.numpy(), dtype=np.float64)

    def log_prior(self) -> torch.Tensor | None:
        """Sum of the log densities of the priors registered with the kernel; None where there are none."""
        terms = [prior.log_prob(closure(module)).sum() for _, module, prior, closure, _ in self.kernel.named_priors()]
        return torch.stack(terms).sum() if terms else None

    def describe(self) -> str:
        """One line: the kernel's type and its parameters."""
        numbers = []
        for name, parameter, constraint in self.kernel.named_parameters_and_constraints():
            value = parameter.detach() if constraint is None else constraint.transform(parameter.detach())
            spelled = ", ".join(f"{number:.6g}" for number in value.reshape(-1).tolist())
            held = "" if parameter.requires_grad else " (held)"
            numbers.append(f"{name.replace('raw_', '')}={spelled}{held}")
        nu = f"nu={self.kernel.nu}, " if hasattr(self.kernel, "nu") else ""
        return f"{type(self.kernel).__name__}({nu}{', '.join(numbers)})"
