"""Marginal likelihood of a field on nodes × times, with its gradient in all parameters."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from graphmatern.inference.field.covariance import FieldCovariance, FieldEffects, ObservedBasis
from graphmatern.inference.field.posterior import FieldPosterior, gather_evidence
from graphmatern.inference.field.state_space import StateSpace
from graphmatern.inference.field.systems import FewCells, FieldSystem, ManyCells, WholeGrid
from graphmatern.inference.learning.parameters import PriorsAndBounds, move_parameters, one_by_one

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from graphmatern.inference.effects import GaussianEvidence
    from graphmatern.inference.field.covariance import FieldGrid
    from graphmatern.inference.field.fill_in import IterativeOptions
    from graphmatern.inference.field.time_kernel import TimeKernel
    from graphmatern.inference.learning.parameters import Coordinate
    from graphmatern.kernels import BoundKernel

    Floats = NDArray[np.float64]

__all__ = ["FieldObjective"]


class _Evaluation(NamedTuple):
    """The objective at one point, and what its gradient is made of."""

    value: float
    system: FieldSystem
    evidence: GaussianEvidence
    solved: Floats
    time: torch.Tensor
    weights: torch.Tensor
    time_prior: torch.Tensor | None


class FieldObjective:
    """Negative log marginal likelihood of the observed cells, linear effects of the mean integrated out.

    It is a function of the free parameters of the kernel on the graph and of that on time, unconstrained, and last of
    the logarithm of the noise variance.

    Parameters
    ----------
    bound : BoundKernel
        Kernel on the graph; its parameters are moved in place.
    time : TimeKernel
        Kernel on time; likewise.
    grid : FieldGrid
        The observations.
    effects : FieldEffects
        Linear effects of the mean.
    method : {"kronecker", "dense", "state-space", "iterative"}
        How to solve.
    options : IterativeOptions
        Of the iterative method.
    noise : Coordinate
        Bounds and prior of the noise variance.
    time_priors : bool
        Whether log priors registered with the kernel on time, densities of its parameters, count; else they have a part
        in the priors of the coordinates.
    """

    #: What an integration asks of any objective: Gaussian noise has no sites, and the curvature is not known.
    information = None

    def __init__(
        self,
        bound: BoundKernel,
        time: TimeKernel,
        grid: FieldGrid,
        *,
        effects: FieldEffects,
        method: str,
        options: IterativeOptions,
        noise: Coordinate | None = None,
        time_priors: bool = True,
    ) -> None:
        self.bound = bound
        self.time = time
        self.grid = grid
        self.effects = effects
        self.method = method
        self.options = options
        self.coordinates = [PriorsAndBounds().coordinate("noise") if noise is None else noise]
        self._time_priors = time_priors
        self._basis = ObservedBasis(bound.spectrum.basis[grid.nodes])
        self._filled: Floats | None = None
        self._latest: tuple[Floats, FieldSystem] | None = None
        self._raw = [parameter for parameter in bound.kernel.parameters() if parameter.requires_grad]

    def position(self) -> Floats:
        """Free parameters of both kernels, unconstrained; shape (n_free,)."""
        own = [parameter.item() for parameter in self._raw]
        return np.concatenate([np.array(own), self.time.position()])

    def move(self, theta: Floats) -> None:
        """Set the free parameters of both kernels, the first n_free numbers."""
        count = len(self._raw)
        move_parameters(self._raw, theta[:count])
        self.time.move(theta[count:])

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

    def system_at(self, theta: Floats) -> FieldSystem:
        """Move there and return the equations: those of the latest evaluation, if it was there."""
        self.move(theta)
        if self._latest is not None and np.array_equal(self._latest[0], theta):
            return self._latest[1]
        time, weights = self.time_covariance().detach().numpy(), self.bound.weights().detach().cpu().numpy()
        return self.system(time, weights, float(np.exp(theta[-1])))

    def _evaluate(self, theta: Floats) -> _Evaluation:
        self.move(theta)
        time, weights, rho = self.time_covariance(), self.bound.weights(), float(np.exp(theta[-1]))
        self._latest = None  # its memory is needed
        system = self.system(time.detach().numpy(), weights.detach().cpu().numpy(), rho)
        evidence, solved = gather_evidence(system, self.effects, system.log_determinant(), in_fit=True)
        if isinstance(system, ManyCells):
            self._filled = system.filled
        self._latest = theta.copy(), system
        value, prior = evidence.negative_log_likelihood(), self.time.log_prior() if self._time_priors else None
        if prior is not None:
            value -= prior.item()
        return _Evaluation(value, system, evidence, solved, time, weights, prior)

    def sites(self) -> None:
        """None: noise that is Gaussian."""
        return

    def posterior(self, theta: Floats, sites: None = None) -> FieldPosterior:
        """Condition on the observations, at some parameters; later evaluations change nothing about it."""
        del sites
        system = self.system_at(theta)
        return FieldPosterior(self.bound.spectrum, copy.deepcopy(self.time), system, effects=self.effects)

    def values(self, thetas: Floats) -> Floats:
        """Values at many parameters, infinite where numbers break down; shape (m,)."""
        return one_by_one(self.value, thetas)

    def value(self, theta: Floats) -> float:
        """Return the value alone, which takes a fraction of the time that the derivatives take."""
        return self._evaluate(theta).value

    def __call__(self, theta: Floats) -> tuple[float, Floats]:
        """Value and derivatives.

        Parameters
        ----------
        theta : ndarray, shape (n_free + 1,)
            `position`, and the logarithm of the noise variance.

        Returns
        -------
        value : float
        gradient : ndarray, shape (n_free + 1,)
        """
        at = self._evaluate(theta)
        # C changes −2 log p by tr C⁻¹∂C − vᵀ∂C v − Σ c_i u_iᵀ∂C u_i: v = C⁻¹(y − Hβ), and u_i = C⁻¹H e_i with c and e
        # the eigenpairs of the covariance of β.
        fields, factors = at.solved[:1], np.ones(1)
        found = at.evidence.effects
        if found.count:
            spread, turn = np.linalg.eigh(found.covariance)
            residual = at.solved[0] - np.tensordot(found.mean, at.solved[1:], 1)
            fields = np.concatenate([residual[None], np.tensordot(turn.T, at.solved[1:], 1)])
            factors = np.append(1.0, spread)
        change = at.system.trace_derivatives()
        change.add(at.system.form_derivatives(fields, factors), -1.0)
        on_graph = np.zeros(len(self._raw))
        if self._raw:
            cotangent = torch.from_numpy(0.5 * change.in_weights)
            slopes = torch.autograd.grad(at.weights, self._raw, cotangent, allow_unused=True)
            on_graph = np.array([0.0 if slope is None else slope.item() for slope in slopes])
        outputs, cotangents = [at.time], [torch.from_numpy(0.5 * change.in_time)]
        if at.time_prior is not None:
            outputs.append(at.time_prior)
            cotangents.append(torch.tensor(-1.0, dtype=at.time_prior.dtype))
        in_time = self.time.pull(outputs, cotangents)
        in_log_noise = 0.5 * at.system.covariance.rho * change.in_noise
        return at.value, np.concatenate([on_graph, in_time, [in_log_noise]])
