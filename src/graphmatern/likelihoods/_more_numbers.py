"""Further likelihoods of numbers: counts with more zeros, shares of trials, and positive measurements."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import scipy
import torch
from scipy.special import expit, logit

from graphmatern._parameters import Parameter, half_open_unit, positive
from graphmatern._validation import describe_rows
from graphmatern.likelihoods._numbers import Counts, Numeric, _exp

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from graphmatern._validation import FaultList

    Floats = NDArray[np.float64]

__all__ = ["Binomial", "GammaNoise", "ZeroInflatedPoisson", "join_trials", "split_trials"]

_BASE = 2.0**26  # successes and trials below it share one number exactly
_FLOOR = 1e-300


class ZeroInflatedPoisson(Counts):
    """Counts with excess zeros: 0 with probability `zeros`, otherwise Poisson with rate e^f.

    Parameters
    ----------
    zeros : float
        Share of excess zeros, in [0, 1).
    fixed : iterable of str
        ``("zeros",)`` holds it fixed.

    Examples
    --------
    >>> import torch
    >>> from graphmatern.likelihoods import ZeroInflatedPoisson
    >>> nothing = ZeroInflatedPoisson(zeros=0.3).log_prob(torch.tensor([0.0]), torch.tensor([[1.0]]))
    >>> round(nothing.exp().item(), 4)  # 0.3 + 0.7 exp(-e)
    0.3462
    """

    zeros = Parameter(half_open_unit)
    log_concave: ClassVar[bool] = False
    _default_points: ClassVar[int] = 64  # zeros have a bend

    def __init__(self, zeros: float = 0.2, fixed: tuple[str, ...] = ()) -> None:
        super().__init__(zeros=zeros, fixed=fixed)

    def log_prob(self, y: torch.Tensor, f: torch.Tensor) -> torch.Tensor:
        """Log-probability of the counts; see `Likelihood.log_prob`."""
        own, share = f[..., 0, :], self.zeros
        rate = _exp(own)
        some = torch.log1p(-share) + y * own - rate - torch.lgamma(y + 1.0)
        none = torch.logaddexp(torch.log(share + _FLOOR).expand_as(own), torch.log1p(-share) - rate)
        return torch.where(y == 0, none, some)

    def response_moments(self, mean: torch.Tensor, variance: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean and variance of the expected count (1 − zeros) e^f."""
        rate, spread = super().response_moments(mean, variance)
        kept = 1.0 - self.zeros
        return kept * rate, kept**2 * spread

    def observation_moments(self, mean: torch.Tensor, variance: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean and variance of a new count."""
        rate, spread = super().response_moments(mean, variance)
        kept = 1.0 - self.zeros
        return kept * rate, kept * (rate + spread + rate**2) - (kept * rate) ** 2

    def response_covariance(self, mean: Floats, covariance: Floats) -> Floats:
        """Covariance of the expected counts."""
        return (1.0 - self.zeros.item()) ** 2 * super().response_covariance(mean, covariance)

    def response(self, f: Floats) -> Floats:
        """(1 − zeros) e^f."""
        return (1.0 - self.zeros.item()) * super().response(f)

    def inverse_response(self, level: Floats) -> Floats:
        """Log of an expected count over 1 − zeros."""
        return super().inverse_response(level / (1.0 - self.zeros.item()))

    def given(self, f: Floats) -> Any:
        """The distribution of a count."""
        return _InflatedPoisson(self.zeros.item(), np.minimum(np.exp(np.minimum(f, 100.0)), 1e15))


class _InflatedPoisson:
    """A frozen distribution with what `Numeric` asks of one: `cdf`, `rvs`, and of which kind it is."""

    def __init__(self, zeros: float, rate: Floats) -> None:
        self._zeros, self._poisson = zeros, scipy.stats.poisson(rate)
        self.dist = scipy.stats.poisson

    def cdf(self, y: Any) -> Any:
        """Probability of at most y."""
        return np.where(np.asarray(y) < 0, 0.0, self._zeros + (1.0 - self._zeros) * self._poisson.cdf(y))

    def rvs(self, size: Any, random_state: np.random.Generator) -> Any:
        """Draws."""
        drawn = self._poisson.rvs(size=size, random_state=random_state)
        return np.where(random_state.random(size) < self._zeros, 0, drawn)


class GammaNoise(Numeric):
    """Positive measurements, such as costs and durations: y has a gamma distribution of mean e^f.

    Parameters
    ----------
    dispersion : float
        Squared coefficient of variation: the standard deviation of y is √dispersion times its mean.
    fixed : iterable of str
        ``("dispersion",)`` holds it fixed.

    Examples
    --------
    >>> import torch
    >>> from graphmatern.likelihoods import GammaNoise
    >>> GammaNoise(dispersion=1.0).log_prob(torch.tensor([2.0]), torch.tensor([[0.0]])).item()  # exponential
    -2.0
    """

    dispersion = Parameter(positive)
    in_own_units: ClassVar[bool] = True

    def typical_latent(self, y: Floats, exposure: Floats) -> float:
        """Log of the average."""
        del exposure
        return math.log(float(y.mean()))

    def __init__(self, dispersion: float = 0.3, fixed: tuple[str, ...] = ()) -> None:
        super().__init__(dispersion=dispersion, fixed=fixed)

    def note_faults(self, y: Floats, faults: FaultList) -> None:
        """Note as faults what is not positive."""
        bad = np.isfinite(y) & (y <= 0)
        if bad.any():
            rule = "must hold positive numbers for GammaNoise"
            faults.add("y", rule, describe_rows(bad, y), "Use another likelihood for these.")

    def log_prob(self, y: torch.Tensor, f: torch.Tensor) -> torch.Tensor:
        """Log density; see `Likelihood.log_prob`."""
        own, shape = f[..., 0, :], 1.0 / self.dispersion
        ratio = y * _exp(-own)
        return shape * (torch.log(shape) - own - ratio) + (shape - 1.0) * torch.log(y) - torch.lgamma(shape)

    def starting_sites(self, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Logarithms of the values, whose variance is about the dispersion."""
        return torch.log(y)[None], (torch.ones_like(y) / self.dispersion.detach())[None]

    def response_moments(self, mean: torch.Tensor, variance: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean and variance of e^f, which is log-normal."""
        level = torch.exp((mean[0] + 0.5 * variance[0]).clamp_max(100.0))
        return level, level**2 * torch.expm1(variance[0].clamp_max(100.0))

    def observation_moments(self, mean: torch.Tensor, variance: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean and variance of a new value."""
        level, spread = self.response_moments(mean, variance)
        return level, spread + self.dispersion * (spread + level**2)

    def response_covariance(self, mean: Floats, covariance: Floats) -> Floats:
        """Covariance of e^f."""
        level = self.response(mean + 0.5 * np.diag(covariance))
        return np.asarray(np.outer(level, level) * np.expm1(np.minimum(covariance, 100.0)))

    def response(self, f: Floats) -> Floats:
        """e^f."""
        return np.exp(np.minimum(f, 100.0))

    def inverse_response(self, level: Floats) -> Floats:
        """Log of a level."""
        with np.errstate(divide="ignore"):
            return np.log(np.maximum(level, 0.0))

    def given(self, f: Floats) -> Any:
        """The gamma distribution of mean e^f."""
        shape = 1.0 / self.dispersion.item()
        return scipy.stats.gamma(shape, scale=self.response(f) / shape)


def join_trials(successes: Any, trials: Any) -> Any:
    """Successes and trials in one number each, exactly, which is how `Binomial` takes its observations."""
    return successes + _BASE * trials


def split_trials(y: Any) -> tuple[Any, Any]:
    """Successes and trials."""
    trials = y // _BASE
    return y - _BASE * trials, trials


class Binomial(Numeric):
    """Successes among trials, each with probability p = 1/(1 + e^(−f)).

    Observations are ``join_trials(successes, trials)``; the estimators do that (``fit(nodes, y, trials=…)``). The
    response is p, and a new observation is a single trial.

    Examples
    --------
    >>> import torch
    >>> from graphmatern.likelihoods import Binomial, join_trials
    >>> y = join_trials(torch.tensor([3.0], dtype=torch.float64), 4.0)
    >>> round(Binomial().log_prob(y, torch.zeros(1, 1, dtype=torch.float64)).exp().item(), 4)  # 4 / 16
    0.25
    """

    in_own_units: ClassVar[bool] = True

    def __init__(self) -> None:
        super().__init__()

    def typical_latent(self, y: Floats, exposure: Floats) -> float:
        """Logit of the share of successes, with one more success and failure, as there may be none."""
        del exposure
        successes, trials = split_trials(y)
        return float(logit((successes.sum() + 1.0) / (trials.sum() + 2.0)))

    def observation_cdf(self, y: Floats, mean: Floats, variance: Floats) -> Floats:
        """Of as many trials as ``y`` has, by quadrature; see `Numeric.observation_cdf`."""
        successes, trials = split_trials(y)
        nodes, weights = self.quadrature
        share = expit(mean + np.sqrt(variance) * nodes[:, None])
        return np.asarray(weights @ scipy.stats.binom.cdf(successes, np.maximum(trials, 1.0), share))

    def note_faults(self, y: Floats, faults: FaultList) -> None:
        """Note as faults what are not whole numbers of successes, at most as many as trials."""
        successes, trials = split_trials(y)
        bad = np.isfinite(y) & ((y < 0) | (successes != np.round(successes)) | (successes > trials))
        if bad.any():
            rule = "must hold successes, whole numbers from 0 to `trials`"
            faults.add("y", rule, describe_rows(bad, np.where(y < 0, y, successes)), "Correct them, or their trials.")

    def log_prob(self, y: torch.Tensor, f: torch.Tensor) -> torch.Tensor:
        """Log-probability of the successes; see `Likelihood.log_prob`."""
        successes, trials = split_trials(y)
        own = f[..., 0, :]
        ways = torch.lgamma(trials + 1.0) - torch.lgamma(successes + 1.0) - torch.lgamma(trials - successes + 1.0)
        found: torch.Tensor = ways + successes * own - trials * torch.nn.functional.softplus(own)
        return found

    def two_sided(self, y: torch.Tensor) -> bool:
        """Whether there are successes and failures; see `Likelihood.two_sided`."""
        successes, trials = split_trials(y)
        return bool((successes > 0).any() and (successes < trials).any())

    def starting_sites(self, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits of the shares, whose precision is about trials × p (1 − p)."""
        successes, trials = split_trials(y)
        share = (successes + 0.5) / (trials + 1.0)
        return torch.logit(share)[None], ((trials + 1.0) * share * (1.0 - share))[None]

    def response_moments(self, mean: torch.Tensor, variance: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean and variance of p, by quadrature."""
        share = torch.sigmoid(self._quadrature(mean, variance))[:, 0]
        level = self._average(share)
        return level, (self._average(share**2) - level**2).clamp_min(0.0)

    def observation_moments(self, mean: torch.Tensor, variance: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean and variance of a single new trial."""
        level, _ = self.response_moments(mean, variance)
        return level, level * (1.0 - level)

    def response_covariance(self, mean: Floats, covariance: Floats) -> Floats:
        """Covariance of p, to first order but for the diagonal."""
        moments = (torch.from_numpy(np.ascontiguousarray(x))[None] for x in (mean, np.diag(covariance)))
        with torch.no_grad():
            _, exact = self.response_moments(*moments)
        share = expit(mean / np.sqrt(1.0 + math.pi / 8.0 * np.diag(covariance)))
        slope = share * (1.0 - share)
        found = slope[:, None] * covariance * slope
        found[np.diag_indices_from(found)] = exact.numpy()
        return np.asarray(found)

    def response(self, f: Floats) -> Floats:
        """1/(1 + e^(−f))."""
        return np.asarray(expit(f))

    def inverse_response(self, level: Floats) -> Floats:
        """Logit of a probability."""
        return np.asarray(logit(np.clip(level, 0.0, 1.0)))

    def given(self, f: Floats) -> Any:
        """A single trial."""
        return scipy.stats.bernoulli(expit(f))
