"""What every likelihood can do; a likelihood itself is a few parameters and one formula, log p(y | f).

Shapes: latent processes come first, so means, variances and values of f are (n_latents, n), also where n_latents is 1;
observations y and everything per observation are (n,). All tensors are float64.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from functools import cache, partial
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple, Self

import numpy as np
import torch

from graphmatern._parameters import Parameterized
from graphmatern.errors import LikelihoodError

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from graphmatern._validation import FaultList

    Near = tuple[torch.Tensor, torch.Tensor]

__all__ = ["Expectation", "Likelihood", "gauss_hermite", "smallest_variance"]

entries_at_once = 2**22  # of the largest array an expectation forms
smallest_variance = 1e-100  # so that a standard deviation has a derivative


@cache
def gauss_hermite(n_points: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Nodes and weights (n_points,) of Gauss–Hermite quadrature for a standard normal variable."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(n_points)
    return torch.tensor(nodes), torch.tensor(weights / weights.sum())


class Expectation(NamedTuple):
    """Expected log-likelihoods, or logarithms of expected likelihoods, and their derivatives; without gradients.

    Attributes
    ----------
    value : Tensor, shape (n,)
        E log p(y | f), or log E p(y | f).
    in_mean, in_variance : Tensor, shape (n_latents, n)
        Its derivatives.
    """

    value: torch.Tensor
    in_mean: torch.Tensor
    in_variance: torch.Tensor


class Likelihood(Parameterized, ABC):
    """How one observation depends on the latent processes at its node.

    Subclasses define `log_prob`, and either keep the expectation by Gauss–Hermite quadrature (one latent process) or
    define `expected_log_prob`.

    Parameters
    ----------
    fixed : iterable of str
        Parameters that are held fixed while others are learned.
    n_points : int
        Points of the quadrature.
    """

    _error = LikelihoodError
    n_latents: int = 1
    #: Whether adding one number to all latent processes changes nothing.
    shift_invariant: ClassVar[bool] = False
    #: Whether multiplying all latent processes by one positive number changes nothing: their variance is not learned.
    scale_invariant: ClassVar[bool] = False
    #: Whether y = f + Gaussian noise, whose sites are known: the evidence is then exact.
    gaussian: ClassVar[bool] = False
    #: Whether log p(y | f) is concave in f: then the ELBO has one optimum, whose sites are not negative.
    log_concave: ClassVar[bool] = True
    #: How sites are fitted: "bound" maximises the evidence lower bound (variational inference), "moments" matches the
    #: moments that each observation alone would give (expectation propagation), which is as good where p(y | f) has one
    #: mode and light tails, and better elsewhere; "classes" does so with the correlation between classes kept.
    approximation: ClassVar[Literal["bound", "moments", "classes"]] = "bound"
    _default_points: ClassVar[int] = 32

    def __init__(self, *, fixed: tuple[str, ...] = (), n_points: int | None = None, **values: float) -> None:
        super().__init__(fixed=fixed, **values)
        self._n_points = self._default_points if n_points is None else n_points

    @property
    def _nodes(self) -> torch.Tensor:
        return gauss_hermite(self._n_points)[0]

    @property
    def _weights(self) -> torch.Tensor:
        return gauss_hermite(self._n_points)[1]

    def __sklearn_clone__(self) -> Self:
        return copy.deepcopy(self)

    # ------------------------------------------------------------------ the formula
    @abstractmethod
    def log_prob(self, y: torch.Tensor, f: torch.Tensor) -> torch.Tensor:
        """Log-likelihood of each observation.

        Parameters
        ----------
        y : Tensor, shape (n,)
            Observations.
        f : Tensor, shape (..., n_latents, n)
            Latent values; leading dimensions are samples.

        Returns
        -------
        Tensor, shape (..., n)
        """

    def note_faults(self, y: NDArray[np.float64], faults: FaultList) -> None:
        """Note as faults observations that the likelihood cannot give rise to; none by default."""

    def two_sided(self, y: torch.Tensor) -> bool:
        """Whether observations y, shape (n,), bound f from both sides, so that its level has a nearly normal posterior.

        If not, as with counts that are all zero, Gaussian sites that match moments one by one say together far more
        than the observations do.
        """
        del y
        return True

    def starting_sites(self, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """A first guess at f and at its precision, from the observations alone.

        Returns
        -------
        centre, precision : Tensor, shape (n_latents, n)
        """
        shape = (self.n_latents, len(y))
        return torch.zeros(shape, dtype=torch.float64), torch.ones(shape, dtype=torch.float64)

    # ------------------------------------------------------------------ expectations
    @property
    def quadrature(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Nodes and weights for a standard normal variable; each of shape (n_points,)."""
        return self._nodes.numpy(), self._weights.numpy()

    def _quadrature(self, mean: torch.Tensor, variance: torch.Tensor) -> torch.Tensor:
        """Latent values at the nodes of the quadrature; shape (n_points, n_latents, n)."""
        deviation = variance.clamp_min(smallest_variance).sqrt()
        return mean + deviation * self._nodes[:, None, None]

    def _average(self, values: torch.Tensor) -> torch.Tensor:
        """Weighted average over the first dimension, the nodes of the quadrature."""
        found: torch.Tensor = torch.tensordot(self._weights, values, dims=1)
        return found

    def expected_log_prob(self, y: torch.Tensor, mean: torch.Tensor, variance: torch.Tensor) -> torch.Tensor:
        """Expected log-likelihood of each observation under Gaussian marginals, differentiable.

        Parameters
        ----------
        y : Tensor, shape (n,)
            Observations.
        mean, variance : Tensor, shape (n_latents, n)
            Of the latent processes at their nodes. Known offsets, such as the logarithm of an exposure, are part of
            the mean.

        Returns
        -------
        Tensor, shape (n,)
        """
        return self._average(self.log_prob(y, self._quadrature(mean, variance)))

    def predictive_log_prob(self, y: torch.Tensor, mean: torch.Tensor, variance: torch.Tensor) -> torch.Tensor:
        """Log of the expected likelihood, log E p(y | f), by quadrature over one latent process.

        Parameters
        ----------
        y : Tensor, shape (n,)
            Observations.
        mean, variance : Tensor, shape (1, n)
            Of the latent process.

        Returns
        -------
        Tensor, shape (n,)
        """
        return self.marginal_log_power(y, mean, variance, 1.0)

    def _entries_per_observation(self) -> int:
        """Entries per observation of the largest array `expected_log_prob` forms."""
        return len(self._nodes) * self.n_latents

    def observations_at_once(self) -> int:
        """How many observations an expectation takes at a time; parameters may have a value for each of so many."""
        return max(1, entries_at_once // self._entries_per_observation())

    def expectation(self, y: torch.Tensor, mean: torch.Tensor, variance: torch.Tensor) -> Expectation:
        """Expected log-likelihoods and their derivatives in mean and variance, a block of observations at a time.

        Parameters
        ----------
        y : Tensor, shape (n,)
            Observations.
        mean, variance : Tensor, shape (n_latents, n)
            Of the latent processes at their nodes.

        Returns
        -------
        Expectation
        """
        return self._with_derivatives(self.expected_log_prob, y, mean, variance)

    def marginal_log_power(
        self, y: torch.Tensor, mean: torch.Tensor, variance: torch.Tensor, power: float, near: Near | None = None
    ) -> torch.Tensor:
        """Log E p(y | f)^power, by quadrature over one latent process; shapes as in `predictive_log_prob`.

        Parameters
        ----------
        y : Tensor, shape (n,)
            Observations.
        mean, variance : Tensor, shape (1, n)
            Of the latent process.
        power : float
            Of the likelihood.
        near : pair of Tensor, shape (1, n), optional
            Mean and variance of a distribution close to p(y | f)^power N(f; mean, variance), around which the nodes of
            the quadrature are placed: few are near the observation where the process by itself varies a lot.
        """
        log_weights = torch.log(self._weights)[:, None]
        if near is None:
            return torch.logsumexp(log_weights + power * self.log_prob(y, self._quadrature(mean, variance)), dim=0)
        centre, width = near[0], near[1].clamp_min(smallest_variance).sqrt()
        f = centre + width * self._nodes[:, None, None]
        own = variance.clamp_min(smallest_variance)
        ratio = 0.5 * self._nodes[:, None] ** 2 + (torch.log(width / own.sqrt()) - 0.5 * (f - mean) ** 2 / own)[:, 0]
        return torch.logsumexp(log_weights + ratio + power * self.log_prob(y, f), dim=0)

    def marginal(
        self, y: torch.Tensor, mean: torch.Tensor, variance: torch.Tensor, power: float, near: Near | None = None
    ) -> Expectation:
        """Log E p(y | f)^power and its derivatives; shapes as in `expectation`, ``near`` as in `marginal_log_power`."""
        return self._with_derivatives(partial(self.marginal_log_power, power=power), y, mean, variance, near)

    def _with_derivatives(
        self,
        function: Callable[..., torch.Tensor],
        y: torch.Tensor,
        mean: torch.Tensor,
        variance: torch.Tensor,
        near: Near | None = None,
    ) -> Expectation:
        """Values and derivatives of a function of y, mean and variance, a block of observations at a time."""
        size = self.observations_at_once()
        blocks = []
        for start in range(0, max(1, len(y)), size):
            part = slice(start, start + size)
            m, v = (x[:, part].detach().clone().requires_grad_() for x in (mean, variance))
            with torch.enable_grad():
                value = function(y[part], m, v, **({} if near is None else {"near": tuple(x[:, part] for x in near)}))
                derivatives = torch.autograd.grad(value.sum(), (m, v))
            blocks.append((value.detach(), *derivatives))
        values, in_mean, in_variance = (torch.cat(parts, dim=-1) for parts in zip(*blocks, strict=True))
        return Expectation(values, in_mean, in_variance)
