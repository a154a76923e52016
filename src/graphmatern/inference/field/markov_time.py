"""Matérn processes of smoothness 1/2, 3/2, 5/2 in time as Markov chains of a value and its first derivatives.

In units in which the rate λ = √(2ν)/lengthscale is 1 and the variance is 1, the states (f, f′, …) of a process with p
derivatives move by dx = F x dt + √q e dw, F the companion matrix of (s + 1)^(p + 1) and e the last unit vector. F + I
is nilpotent, so the transition over a gap x is A(x) = e⁻ˣ Σ_k xᵏ (F + I)ᵏ / k!, without a matrix exponential. P∞ is the
stationary covariance, and what a gap adds is W(x) = P∞ − A P∞ Aᵀ. The derivatives are A′ = A F and W′ = q A e eᵀ Aᵀ.
"""

from __future__ import annotations

from math import comb, factorial
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.linalg as la
import torch
from gpytorch.kernels import MaternKernel, ScaleKernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = ["ChainProduct", "MarkovChain", "markov_covariance", "markov_order", "rate_and_variance"]

_FAR = 1e3  # rate × gap beyond which e⁻ˣ is 0
_POLYNOMIALS = ((1.0,), (1.0, 1.0), (1.0, 1.0, 1.0 / 3.0))  # the covariance is e⁻ˣ times these, by powers of x


def markov_order(kernel: Any) -> int | None:
    """Derivatives in the state of a time kernel: 0, 1, 2 for Matérn 1/2, 3/2, 5/2, scaled or not; None for others."""
    if type(kernel) is ScaleKernel:  # a subclass may be anything
        return markov_order(kernel.base_kernel)
    if type(kernel) is MaternKernel and kernel.nu in (0.5, 1.5, 2.5):
        return int(kernel.nu)
    return None


def rate_and_variance(kernel: Any) -> torch.Tensor:
    """√(2ν)/lengthscale and variance of a kernel that has a `markov_order`, differentiable; shape (2,)."""
    if type(kernel) is ScaleKernel:
        rate, variance = rate_and_variance(kernel.base_kernel)
        return torch.stack([rate, variance * kernel.outputscale.reshape(())])
    rate = (2.0 * kernel.nu) ** 0.5 / kernel.lengthscale.reshape(())
    return torch.stack([rate, torch.ones_like(rate)])


def markov_covariance(kernel: Any, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """Covariances of a kernel that has a `markov_order` between times, differentiable; shape (n_first, n_second).

    Differences are taken before they are squared, unlike in GPyTorch: near times far from 0 keep their digits.
    """
    order = markov_order(kernel)
    assert order is not None
    rate, variance = rate_and_variance(kernel)
    x = rate * (first[:, None] - second).abs()
    polynomial = torch.full_like(x, _POLYNOMIALS[order][-1])
    for coefficient in _POLYNOMIALS[order][-2::-1]:
        polynomial = polynomial * x + coefficient
    covariance: torch.Tensor = variance * polynomial * torch.exp(-x)
    return covariance


class MarkovChain:
    """States of a Matérn process of unit variance at successive times.

    Parameters
    ----------
    order : {0, 1, 2}
        Derivatives.
    rate : float
        λ; the states are derivatives in units of it.

    Examples
    --------
    >>> chain = MarkovChain(1, rate=2.0)
    >>> transition, added = chain.step(np.array([0.25]))
    >>> np.round(transition[0, 0, 0] * chain.stationary[0, 0], 6) == np.round(1.5 * np.exp(-0.5), 6)
    np.True_
    """

    def __init__(self, order: int, rate: float) -> None:
        self.rate = rate
        self.n_states = order + 1
        self.drift = np.diag(np.ones(order), 1)
        self.drift[-1] = [-comb(self.n_states, k) for k in range(self.n_states)]
        last = np.zeros((self.n_states, self.n_states))
        last[-1, -1] = 1.0
        unscaled = la.solve_continuous_lyapunov(self.drift, -last)
        self.stationary: Floats = unscaled / unscaled[0, 0]
        self._diffusion = 1.0 / float(unscaled[0, 0])

    def step(self, gaps: Floats) -> tuple[Floats, Floats]:
        """Transitions A and added covariances W; shapes (n_gaps, n_states, n_states).

        W is the difference of numbers near 1: its error is that of rounding a variance, which does no harm where
        covariances, not precisions, are computed with.
        """
        x = np.minimum(self.rate * gaps, _FAR)[:, None, None]
        nilpotent = self.drift + np.eye(self.n_states)
        terms = (x**k * np.linalg.matrix_power(nilpotent, k) / factorial(k) for k in range(self.n_states))
        transition = np.exp(-x) * sum(terms)
        added = self.stationary - transition @ self.stationary @ transition.swapaxes(1, 2)
        return transition, 0.5 * (added + added.swapaxes(1, 2))

    def added_slope(self, transition: Floats) -> Floats:
        """W′ = q A e eᵀ Aᵀ, the derivatives of W in rate × gap; shape as ``transition``."""
        last = transition[:, :, -1]
        return np.asarray(self._diffusion * last[:, :, None] * last[:, None, :])

    def draw(self, times: Floats, count: int, rng: np.random.Generator) -> Floats:
        """Independent draws of the process at increasing times; shape (n_times, count)."""
        transition, added = self.step(np.diff(times))
        size, turn = np.linalg.eigh(np.concatenate([self.stationary[None], added]))
        roots = turn * np.sqrt(np.maximum(size, 0.0))[:, None, :]
        shocks = roots @ rng.standard_normal((len(times), self.n_states, count))
        state, values = shocks[0], np.empty((len(times), count))
        values[0] = state[0]
        for row in range(1, len(times)):
            state = transition[row - 1] @ state + shocks[row]
            values[row] = state[0]
        return values


class ChainProduct:
    """K_T X for a field X at increasing times, without K_T, and what its derivatives need.

    A field X gives derivatives whole_t = e₀ X_t + carried_t in the states, carried_t = A_tᵀ whole_{t+1}, from the last
    time to the first; and these the states' covariances with it, states_{t+1} = A_t states_t + W_t whole_{t+1}, whose
    first rows are K_T X.

    Parameters
    ----------
    chain : MarkovChain
        The process, of unit variance.
    times : ndarray, shape (n_times,)
        Increasing.
    field : ndarray, shape (n_times, n_columns)
        X.

    Attributes
    ----------
    carried, whole, states : ndarray, shape (n_times, n_states, n_columns)
    """

    def __init__(self, chain: MarkovChain, times: Floats, field: Floats) -> None:
        self._chain, self._times = chain, times
        transition, added = chain.step(np.diff(times))
        self.carried = np.zeros((len(times), chain.n_states, field.shape[1]))
        self.whole = np.zeros_like(self.carried)
        self.whole[:, 0] = field
        for row in range(len(times) - 2, -1, -1):
            self.carried[row] = transition[row].T @ self.whole[row + 1]
            self.whole[row] += self.carried[row]
        self.states = np.empty_like(self.carried)
        self.states[0] = chain.stationary @ self.whole[0]
        for row in range(1, len(times)):
            self.states[row] = transition[row - 1] @ self.states[row - 1] + added[row - 1] @ self.whole[row]

    def at(self, times: Floats) -> Floats:
        """k_T(times, T) X at any times, in any order; shape (n_new_times, n_columns)."""
        after = np.searchsorted(self._times, times, side="right")  # the time in T that comes next
        last = len(self._times) - 1
        to_next = np.maximum(self._times[np.minimum(after, last)] - times, 0.0)
        whole = self._chain.step(to_next)[0].swapaxes(1, 2) @ self.whole[np.minimum(after, last)]
        whole[after > last] = 0.0
        transition, added = self._chain.step(np.maximum(times - self._times[np.maximum(after - 1, 0)], 0.0))
        product = transition[:, :1] @ self.states[np.maximum(after - 1, 0)] + added[:, :1] @ whole
        product[after == 0] = self._chain.stationary[:1] @ whole[after == 0]
        return np.asarray(product[:, 0])
