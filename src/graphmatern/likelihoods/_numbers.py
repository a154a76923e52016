"""Likelihoods of numbers: measurements, with and without outliers, and counts."""

from __future__ import annotations

import math
from abc import abstractmethod
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import scipy
import torch
from scipy.special import ndtr, ndtri, pdtr, stdtr

from graphmatern._parameters import Domain, Parameter, positive
from graphmatern._validation import describe_rows
from graphmatern.likelihoods._base import Expectation, Likelihood
from graphmatern.likelihoods._quantiles import find_quantile

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from graphmatern._validation import FaultList
    from graphmatern.likelihoods._base import Near

    Floats = NDArray[np.float64]

__all__ = ["Counts", "Gaussian", "NegativeBinomial", "Numeric", "Poisson", "StudentT"]

_LARGEST_EXPONENT = 100.0
_LOG_TWO_PI = math.log(2.0 * math.pi)
_FAR, _WORTH_A_TABLE = 12.0, 20_000  # where tables of t end, and values from which one pays
_LARGEST_GRID = 1000  # nodes of the trapezoidal rule over the scales of a mixture
_NEARLY_GAUSSIAN = 1e4  # degrees of freedom, beyond which the difference is not worth a finer grid
above_two = Domain(
    "must be above 2, so that the variance is finite, and at most 1e100",
    lambda value: 2.0 < value <= 1e100,
    lambda value: torch.log(value - 2.0),
    lambda free: 2.0 + torch.exp(free),
)


def _exp(x: torch.Tensor) -> torch.Tensor:
    """e^x, continued as a straight line where it would overflow: an optimiser that strays there finds its way back."""
    bounded = x.clamp_max(_LARGEST_EXPONENT)
    return torch.exp(bounded) * (1.0 + (x - bounded))


class Numeric(Likelihood):
    """A likelihood of numbers, with one latent process f and a response g(f), the mean of y given f."""

    #: Whether some observations may be far off, so that mean and standard deviation say little about the rest.
    expects_outliers: ClassVar[bool] = False
    #: Whether observations must stay in their own units, as f is on another scale: counts, shares, positive numbers.
    in_own_units: ClassVar[bool] = False

    def typical_latent(self, y: Floats, exposure: Floats) -> float:
        """A level around which f is expected, from observations and exposures, where `in_own_units`; 0 by default."""
        del y, exposure
        return 0.0

    def response_moments(self, mean: torch.Tensor, variance: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean and variance of the response g(f); by default f itself.

        Parameters
        ----------
        mean, variance : Tensor, shape (1, n)
            Of the latent process.

        Returns
        -------
        mean, variance : Tensor, shape (n,)
        """
        return mean[0], variance[0]

    @abstractmethod
    def observation_moments(self, mean: torch.Tensor, variance: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean and variance of a new observation; shapes as in `response_moments`."""

    def response(self, f: Floats) -> Floats:
        """g(f), an increasing function; shape as ``f``. By default f itself."""
        return f

    def inverse_response(self, level: Floats) -> Floats:
        """The f with g(f) = level, −∞ where there is none; shape as ``level``. By default the level itself."""
        return level

    def response_covariance(self, mean: Floats, covariance: Floats) -> Floats:
        """Covariance of the response, given means (n,) and covariances (n, n) of f; by default that of f."""
        del mean
        return covariance

    @abstractmethod
    def given(self, f: Floats) -> Any:
        """Distribution of y given f, as a frozen scipy distribution of shape as ``f``."""

    def observation_quantile(self, level: float, mean: Floats, variance: Floats) -> Floats:
        """Quantile of a new observation, f integrated out by quadrature; shape (n,).

        Parameters
        ----------
        level : float
            Between 0 and 1.
        mean, variance : ndarray, shape (n,)
            Of the latent process.
        """
        with torch.no_grad():
            moments = (torch.from_numpy(np.ascontiguousarray(x, dtype=np.float64))[None] for x in (mean, variance))
            centre, spread = (one.numpy() for one in self.observation_moments(*moments))
        nodes, weights = self.quadrature
        f = mean + np.sqrt(variance) * nodes[:, None]
        whole = isinstance(self.given(f[:1]).dist, scipy.stats.rv_discrete)
        return find_quantile(lambda y: np.asarray(weights @ self.cdf_given(y, f)), level, centre, spread, whole=whole)

    def observation_cdf(self, y: Floats, mean: Floats, variance: Floats) -> Floats:
        """Probability that a new observation is at most ``y``, f integrated out by quadrature; shape (n,)."""
        nodes, weights = self.quadrature
        return np.asarray(weights @ self.cdf_given(y, mean + np.sqrt(variance) * nodes[:, None]))

    def cdf_given(self, y: Floats, f: Floats) -> Floats:
        """Probabilities of at most ``y`` given f; shape as ``f``. SciPy's distributions take far longer than these."""
        return np.asarray(self.given(f).cdf(y))

    def draw(self, f: Floats, rng: np.random.Generator) -> Floats:
        """Draw one observation for each latent value; shape as ``f``."""
        return np.asarray(self.given(f).rvs(size=np.shape(f), random_state=rng), dtype=np.float64)


class Gaussian(Numeric):
    """Gaussian noise, y = f + ε with ε ~ N(0, noise).

    Parameters
    ----------
    noise : float
        Variance of the noise.
    fixed : iterable of str
        ``("noise",)`` holds it fixed.

    Examples
    --------
    >>> import torch
    >>> from graphmatern.likelihoods import Gaussian
    >>> Gaussian(noise=0.1).log_prob(torch.tensor([1.0]), torch.tensor([[0.9]])).detach().numpy().round(4)
    array([0.1824], dtype=float32)
    """

    noise = Parameter(positive)
    gaussian: ClassVar[bool] = True

    def __init__(self, noise: float = 0.1, fixed: tuple[str, ...] = ()) -> None:
        super().__init__(noise=noise, fixed=fixed)

    def log_prob(self, y: torch.Tensor, f: torch.Tensor) -> torch.Tensor:
        """Log N(y | f, noise); see `Likelihood.log_prob`."""
        return -0.5 * (_LOG_TWO_PI + torch.log(self.noise) + (y - f[..., 0, :]) ** 2 / self.noise)

    def expected_log_prob(self, y: torch.Tensor, mean: torch.Tensor, variance: torch.Tensor) -> torch.Tensor:
        """In closed form; see `Likelihood.expected_log_prob`."""
        return self.log_prob(y, mean) - 0.5 * variance[0] / self.noise

    def starting_sites(self, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The observations themselves, which is exact."""
        return y[None], (torch.ones_like(y) / self.noise.detach())[None]

    def observation_moments(self, mean: torch.Tensor, variance: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean and variance of a new observation."""
        return mean[0], variance[0] + self.noise

    def marginal_log_power(
        self, y: torch.Tensor, mean: torch.Tensor, variance: torch.Tensor, power: float, near: Near | None = None
    ) -> torch.Tensor:
        """In closed form; see `Likelihood.marginal_log_power`."""
        del near
        noise = self.noise / power
        constant = 0.5 * torch.log(noise) - 0.5 * power * (_LOG_TWO_PI + torch.log(self.noise))
        spread = variance[0] + noise
        return constant - 0.5 * (torch.log(spread) + (y - mean[0]) ** 2 / spread)

    def observation_quantile(self, level: float, mean: Floats, variance: Floats) -> Floats:
        """In closed form; see `Numeric.observation_quantile`."""
        return np.asarray(mean + np.sqrt(variance + self.noise.item()) * ndtri(level))

    def observation_cdf(self, y: Floats, mean: Floats, variance: Floats) -> Floats:
        """In closed form; see `Numeric.observation_cdf`."""
        return np.asarray(ndtr((y - mean) / np.sqrt(variance + self.noise.item())))

    def given(self, f: Floats) -> Any:
        """N(f, noise)."""
        return scipy.stats.norm(f, math.sqrt(self.noise.item()))


class StudentT(Numeric):
    """Noise with heavy tails, for measurements with outliers: (y − f) / scale has a t distribution.

    Parameters
    ----------
    scale : float
        Scale of the noise.
    df : float
        Degrees of freedom, above 2; the fewer, the heavier the tails.
    fixed : iterable of str
        Parameters that are held fixed while others are learned.

    Examples
    --------
    >>> import torch
    >>> from graphmatern.likelihoods import StudentT
    >>> far = StudentT(scale=0.1).log_prob(torch.tensor([5.0]), torch.zeros(1, 1))
    >>> round(far.item(), 1)  # a Gaussian of this scale: -1248.6
    -14.8
    """

    scale = Parameter(positive)
    df = Parameter(above_two)
    log_concave: ClassVar[bool] = False
    expects_outliers: ClassVar[bool] = True
    approximation: ClassVar[Literal["bound", "moments", "classes"]] = "moments"

    def __init__(self, scale: float = 0.3, df: float = 4.0, fixed: tuple[str, ...] = ()) -> None:
        super().__init__(scale=scale, df=df, fixed=fixed)

    def log_prob(self, y: torch.Tensor, f: torch.Tensor) -> torch.Tensor:
        """Log density of the t distribution; see `Likelihood.log_prob`."""
        squared = ((y - f[..., 0, :]) / self.scale) ** 2
        return _t_constant(self.df, self.scale**2) - 0.5 * (self.df + 1.0) * torch.log1p(squared / self.df)

    def starting_sites(self, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """As if the noise were Gaussian, of the same variance."""
        noise = self.scale.detach() ** 2 * self.df.detach() / (self.df.detach() - 2.0)
        return y[None], (torch.ones_like(y) / noise)[None]

    def _entries_per_observation(self) -> int:
        return _LARGEST_GRID

    def marginal_log_power(
        self, y: torch.Tensor, mean: torch.Tensor, variance: torch.Tensor, power: float, near: Near | None = None
    ) -> torch.Tensor:
        """As a mixture over the precision of the noise; see `Likelihood.marginal_log_power`.

        A power of a t density is another, but for a constant. With w ~ Gamma(df / 2, df / 2) the noise is
        N(0, scale² / w), so f is integrated out in closed form, and the integral over log w is smooth, however narrow
        the noise is beside f and however far off y lies.
        """
        del near
        constant, squared_scale, df = self._powered(power)
        logs, _ = _scale_mixture(y - mean[0], variance[0], squared_scale, df)
        return constant + torch.logsumexp(logs, dim=0)

    def marginal(
        self, y: torch.Tensor, mean: torch.Tensor, variance: torch.Tensor, power: float, near: Near | None = None
    ) -> Expectation:
        """With derivatives in closed form, which takes a third of the time; see `Likelihood.marginal`."""
        del near
        size, blocks = self.observations_at_once(), []
        with torch.no_grad():
            constant, squared_scale, df = self._powered(power)
            for start in range(0, max(1, len(y)), size):
                part = slice(start, start + size)
                away = y[part] - mean[0, part]
                logs, precision = _scale_mixture(away, variance[0, part], squared_scale, df)
                value = torch.logsumexp(logs, dim=0)
                shares = torch.exp(logs - value) * precision
                in_mean = away * shares.sum(dim=0)
                in_variance = 0.5 * (away**2 * (shares * precision).sum(dim=0) - shares.sum(dim=0))
                blocks.append((constant + value, in_mean[None], in_variance[None]))
        values, in_mean, in_variance = (torch.cat(parts, dim=-1) for parts in zip(*blocks, strict=True))
        return Expectation(values, in_mean, in_variance)

    def _powered(self, power: float) -> tuple[torch.Tensor | float, torch.Tensor, torch.Tensor]:
        """The power of the density as another t density: logarithm of the factor, squared scale, df."""
        if power == 1.0:
            return 0.0, self.scale**2, self.df
        df = power * (self.df + 1.0) - 1.0
        squared_scale = self.scale**2 * self.df / df
        return power * _t_constant(self.df, self.scale**2) - _t_constant(df, squared_scale), squared_scale, df

    def observation_moments(self, mean: torch.Tensor, variance: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean and variance of a new observation."""
        return mean[0], variance[0] + self.scale**2 * self.df / (self.df - 2.0)

    def cdf_given(self, y: Floats, f: Floats) -> Floats:
        """Those of the t distribution around f."""
        away = (y - f) / self.scale.item()
        if away.size < _WORTH_A_TABLE:
            return np.asarray(stdtr(self.df.item(), away))
        return np.asarray(_t_shares(self.df.item())(np.clip(np.arcsinh(away), -_FAR, _FAR)))

    def given(self, f: Floats) -> Any:
        """The t distribution around f."""
        return scipy.stats.t(self.df.item(), f, self.scale.item())


@lru_cache(maxsize=256)
def _t_shares(df: float) -> scipy.interpolate.CubicHermiteSpline:
    """Distribution function of t at sinh(u), as a function of u: to 1e-10, and several times as fast."""
    u = np.linspace(-_FAR, _FAR, 4097)
    density = np.exp(scipy.stats.t.logpdf(np.sinh(u), df)) * np.cosh(u)
    return scipy.interpolate.CubicHermiteSpline(u, stdtr(df, np.sinh(u)), density)


def _t_constant(df: torch.Tensor, squared_scale: torch.Tensor) -> torch.Tensor:
    """Log density of a t distribution at its centre."""
    return torch.lgamma(0.5 * (df + 1.0)) - torch.lgamma(0.5 * df) - 0.5 * torch.log(math.pi * df * squared_scale)


def _scale_mixture(
    away: torch.Tensor, variance: torch.Tensor, squared_scale: torch.Tensor, df: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The sum of a t and a Gaussian variable as a mixture of Gaussian ones.

    Parameters
    ----------
    away, variance : Tensor, shape (n,)
        Where, and variance of the Gaussian one.
    squared_scale, df : Tensor, scalars or of shape (n,)
        Of the t distribution.

    Returns
    -------
    logs, precision : Tensor, shape (k, n)
        Logarithms of the parts of its density, and their precisions.
    """
    df = df.clamp_max(_NEARLY_GAUSSIAN)
    squared = away**2
    with torch.no_grad():
        # Gamma's density of log w falls by e^(−40) within this of its peak at 0; an outlier adds a peak at
        # w = df / (df + away² / scale²).
        reach = 80.0 / df + torch.sqrt(160.0 / df)
        low, high = -torch.log1p(squared / (squared_scale * df)) - reach, torch.log1p(reach)
        # Of the width of a peak; of narrow ones no more than leaves e^(−34), as singularities are π / 2 away.
        step = (0.7 * torch.sqrt(2.0 / (df + 1.0))).clamp_max(0.29)
        most_steps = ((high - low) / step).max().item() if len(away) else 1.0
        count = int(min(_LARGEST_GRID, math.ceil(most_steps) + 1))
        u = low + (high - low) * torch.linspace(0.0, 1.0, count, dtype=torch.float64)[:, None]
    # Logarithm of Gamma's density of log w: its constant and its peak together, as both are large where df is.
    half = 0.5 * df
    log_density = half * torch.log(half) - half - torch.lgamma(half) + half * (u - torch.expm1(u))
    spread = variance + squared_scale * torch.exp(-u)
    inner = log_density - 0.5 * (_LOG_TWO_PI + torch.log(spread) + squared / spread)
    return inner + torch.log((high - low) / (count - 1)), 1.0 / spread


class Counts(Numeric):
    """Counts with a logarithmic link: the rate is e^f. Exposures enter as offsets log(exposure) of the latent mean."""

    in_own_units: ClassVar[bool] = True

    def typical_latent(self, y: Floats, exposure: Floats) -> float:
        """Log of the rate with one more event than there were, as there may be none."""
        return math.log((float(y.sum()) + 1.0) / float(exposure.sum()))

    def note_faults(self, y: Floats, faults: FaultList) -> None:
        """Note as faults what is not a count."""
        bad = np.isfinite(y) & ((y < 0) | (y != np.round(y)))
        if bad.any():
            rule = f"must hold counts, whole numbers of at least 0, for {type(self).__name__}"
            faults.add("y", rule, describe_rows(bad, y), "Use exposures for rates, or another likelihood.")

    def two_sided(self, y: torch.Tensor) -> bool:
        """Whether any count is above 0; see `Likelihood.two_sided`."""
        return bool((y > 0).any())

    def starting_sites(self, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Logarithms of the counts, whose variance is about one over the count."""
        return torch.log(y + 0.5)[None], (y + 0.5)[None]

    def response_moments(self, mean: torch.Tensor, variance: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean and variance of the rate e^f, which is log-normal."""
        rate = _exp(mean[0] + 0.5 * variance[0])
        return rate, rate**2 * torch.expm1(variance[0].clamp_max(_LARGEST_EXPONENT))

    def response_covariance(self, mean: Floats, covariance: Floats) -> Floats:
        """Covariance of the rates, which are log-normal."""
        rate = self.response(mean + 0.5 * np.diag(covariance))
        return np.asarray(np.outer(rate, rate) * np.expm1(np.minimum(covariance, _LARGEST_EXPONENT)))

    def response(self, f: Floats) -> Floats:
        """e^f."""
        return np.exp(np.minimum(f, _LARGEST_EXPONENT))

    def inverse_response(self, level: Floats) -> Floats:
        """Log of a rate."""
        with np.errstate(divide="ignore"):
            return np.log(np.maximum(level, 0.0))


class Poisson(Counts):
    """Counts: y has a Poisson distribution of rate e^f.

    Examples
    --------
    >>> import torch
    >>> from graphmatern.likelihoods import Poisson
    >>> exposure = torch.tensor([2.0])
    >>> Poisson().log_prob(torch.tensor([3.0]), torch.log(exposure)[None]).numpy().round(4)
    array([-1.7123], dtype=float32)
    """

    def __init__(self) -> None:
        super().__init__()

    def log_prob(self, y: torch.Tensor, f: torch.Tensor) -> torch.Tensor:
        """Y f − e^f − log y!; see `Likelihood.log_prob`."""
        own = f[..., 0, :]
        return y * own - _exp(own) - torch.lgamma(y + 1.0)

    def expected_log_prob(self, y: torch.Tensor, mean: torch.Tensor, variance: torch.Tensor) -> torch.Tensor:
        """In closed form, since E e^f = e^(m + v/2); see `Likelihood.expected_log_prob`."""
        return y * mean[0] - _exp(mean[0] + 0.5 * variance[0]) - torch.lgamma(y + 1.0)

    def observation_moments(self, mean: torch.Tensor, variance: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean and variance of a new count."""
        rate, spread = self.response_moments(mean, variance)
        return rate, rate + spread

    def cdf_given(self, y: Floats, f: Floats) -> Floats:
        """Those of the Poisson distribution of rate e^f."""
        found = pdtr(np.floor(np.maximum(y, 0.0)), np.minimum(self.response(f), 1e15))
        return np.asarray(np.where(y < 0.0, 0.0, found))

    def given(self, f: Floats) -> Any:
        """The Poisson distribution of rate e^f."""
        return scipy.stats.poisson(np.minimum(self.response(f), 1e15))


class NegativeBinomial(Counts):
    """Counts that vary more than Poisson's: mean μ = e^f and variance μ + dispersion μ².

    Parameters
    ----------
    dispersion : float
        0 corresponds to Poisson counts.
    fixed : iterable of str
        ``("dispersion",)`` holds it fixed.

    Examples
    --------
    >>> import torch
    >>> from graphmatern.likelihoods import NegativeBinomial
    >>> y = torch.arange(50, dtype=torch.float64)
    >>> p = NegativeBinomial(dispersion=0.5).log_prob(y, torch.ones(1, 50, dtype=torch.float64)).exp()
    >>> round(p.sum().item(), 6), round((p @ y).item(), 4)  # probabilities of counts, whose mean is e
    (1.0, 2.7183)
    """

    dispersion = Parameter(positive)

    def __init__(self, dispersion: float = 0.5, fixed: tuple[str, ...] = ()) -> None:
        super().__init__(dispersion=dispersion, fixed=fixed)

    def log_prob(self, y: torch.Tensor, f: torch.Tensor) -> torch.Tensor:
        """Log-probability of the counts; see `Likelihood.log_prob`."""
        own, log_shape = f[..., 0, :], -torch.log(self.dispersion)
        shape = torch.exp(log_shape)
        constant = torch.lgamma(y + shape) - torch.lgamma(shape) - torch.lgamma(y + 1.0) + shape * log_shape
        return constant + y * own - (y + shape) * torch.logaddexp(log_shape.expand_as(own), own)

    def observation_moments(self, mean: torch.Tensor, variance: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean and variance of a new count."""
        rate, spread = self.response_moments(mean, variance)
        return rate, rate + spread + self.dispersion * (spread + rate**2)

    def given(self, f: Floats) -> Any:
        """The negative binomial distribution of mean e^f."""
        shape = 1.0 / self.dispersion.item()
        return scipy.stats.nbinom(shape, shape / (shape + np.minimum(self.response(f), 1e15)))
