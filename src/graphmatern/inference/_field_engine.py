"""Marginal likelihood of a field on nodes × times, with its gradient in all parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from graphmatern.inference._field_systems import FewCells, FieldSystem, ManyCells, WholeGrid
from graphmatern.inference._kronecker import FieldCovariance, NodeBasis
from graphmatern.inference._observations import Moments
from graphmatern.inference._state_space import StateSpace

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from graphmatern.inference._fill_in import IterativeOptions
    from graphmatern.inference._kronecker import FieldGrid
    from graphmatern.inference._time_kernel import TimeKernel
    from graphmatern.kernels import BoundKernel

    Floats = NDArray[np.float64]

__all__ = ["FieldEngine"]


class FieldEngine:
    """Marginal likelihood of the observed cells, a constant mean integrated out under a flat prior.

    Parameters
    ----------
    bound : BoundKernel
        Kernel on the graph; its parameters are moved in place.
    time : TimeKernel
        Kernel on time; likewise.
    grid : FieldGrid
        The observations.
    constant : bool
        Whether the mean is an unknown constant rather than 0.
    method : {"kronecker", "dense", "state-space", "iterative"}
        How to solve.
    options : IterativeOptions
        Of the iterative method.
    """

    def __init__(
        self,
        bound: BoundKernel,
        time: TimeKernel,
        grid: FieldGrid,
        *,
        constant: bool,
        method: str,
        options: IterativeOptions,
    ) -> None:
        self.bound = bound
        self.time = time
        self.grid = grid
        self.constant = constant
        self.method = method
        self.options = options
        self._basis = NodeBasis(bound.spectrum._basis[grid.nodes])
        self._filled: Floats | None = None
        self._latest: tuple[Floats, FieldSystem] | None = None
        self._free = [parameter for parameter in bound.kernel.parameters() if parameter.requires_grad]

    @property
    def graph_names(self) -> list[str]:
        """Names of the free parameters of the kernel on the graph."""
        return [name for name, parameter in self.bound.kernel.named_parameters() if parameter.requires_grad]

    def position(self) -> Floats:
        """Free parameters of both kernels, unconstrained; shape (n_free,)."""
        own = [parameter.detach().item() for parameter in self._free]
        return np.concatenate([np.array(own), self.time.position()])

    def move(self, position: Floats) -> None:
        """Set the free parameters of both kernels."""
        with torch.no_grad():
            for parameter, value in zip(self._free, position, strict=False):
                parameter.fill_(float(value))
        self.time.move(position[len(self._free) :])

    def time_covariance(self) -> torch.Tensor:
        """What the method needs to know of time, differentiable: K_T, or a Markov kernel's rate and variance."""
        return self.time.rate_and_variance() if self.method == "state-space" else self.time.matrix(self.grid.times)

    def system(self, time: Floats, weights: Floats, rho: float) -> FieldSystem:
        """Return the equations of the observed cells at given `time_covariance`, weights of eigenvectors and noise."""
        covariance = FieldCovariance(time, self._basis, weights, rho)
        if self.method == "kronecker":
            return WholeGrid(covariance, self.grid)
        if self.method == "dense":
            return FewCells(covariance, self.grid)
        if self.method == "state-space":
            assert self.time.order is not None
            return StateSpace(covariance, self.grid, self.time.order)
        return ManyCells(covariance, self.grid, self.options, self._filled)

    def system_at(self, position: Floats, log_noise: float) -> FieldSystem:
        """Move there and return the equations: those of the latest evaluation, if it was there."""
        self.move(position)
        if self._latest is not None and np.array_equal(self._latest[0], np.append(position, log_noise)):
            return self._latest[1]
        time, weights = self.time_covariance().detach().numpy(), self.bound.weights().detach().cpu().numpy()
        return self.system(time, weights, float(np.exp(log_noise)))

    def evaluate(self, position: Floats, log_noise: float) -> tuple[float, Floats, float]:
        """Negative log marginal likelihood, less the log priors of the time kernel, and its derivatives.

        Parameters
        ----------
        position : ndarray, shape (n_free,)
            As `position` returns.
        log_noise : float
            Logarithm of the noise variance.

        Returns
        -------
        value : float
        gradient : ndarray, shape (n_free,)
        in_log_noise : float
        """
        self.move(position)
        time, weights, rho = self.time_covariance(), self.bound.weights(), float(np.exp(log_noise))
        self._latest = None  # its memory is needed
        system = self.system(time.detach().numpy(), weights.detach().cpu().numpy(), rho)
        moments, solved = gather_moments(system, self.constant, system.log_determinant(), in_fit=True)
        if isinstance(system, ManyCells):
            self._filled = system.filled
        self._latest = np.append(position, log_noise), system
        # C changes −2 log p by tr C⁻¹∂C − vᵀ∂C v − c hᵀC⁻¹∂C C⁻¹h: v = C⁻¹(y − βh), c the variance of β.
        fields, factors = solved[:1], np.ones(1)
        if self.constant:
            beta, variance = moments.solve()
            fields, factors = np.stack([solved[0] - beta[0] * solved[1], solved[1]]), np.array([1.0, variance[0, 0]])
        change = system.trace_derivatives()
        change.add(system.form_derivatives(fields, factors), -1.0)
        gradient = np.zeros(len(self._free))
        if self._free:
            pulled = torch.autograd.grad(
                weights, self._free, torch.from_numpy(0.5 * change.in_weights), allow_unused=True
            )
            gradient = np.array([0.0 if g is None else g.item() for g in pulled])
        outputs, cotangents = [time], [torch.from_numpy(0.5 * change.in_time)]
        value = moments.negative_log_likelihood()
        prior = self.time.log_prior()
        if prior is not None:
            value -= prior.detach().item()
            outputs.append(prior)
            cotangents.append(torch.tensor(-1.0, dtype=prior.dtype))
        in_time = self.time.pull(outputs, cotangents)
        return value, np.concatenate([gradient, in_time]), 0.5 * rho * change.in_noise


def gather_moments(
    system: FieldSystem, constant: bool, log_determinant: float, *, in_fit: bool = False
) -> tuple[Moments, Floats]:
    """Quadratic forms of the observations, and C⁻¹ of values and ones; shape (1 or 2, n_times, n_nodes)."""
    forms, solved = system.forms(system.grid.data(constant), in_fit=in_fit)
    moments = Moments(int(constant))
    moments.add(log_determinant, forms, 1, system.grid.n_observed)
    return moments, solved
