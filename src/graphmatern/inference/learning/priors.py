"""Priors of parameters, each one formula in the coordinate that is moved.

A positive parameter θ is moved as x = log θ, a share as x = logit θ (and the degrees of freedom of Student's t as x =
log(df − 2), so that a prior of "df" is one of df − 2). Densities are those of x, the Jacobian included: the fit
maximises over x, and integrates over it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from scipy.special import betaincinv, betaln, expit, gammaincinv, gammaln, log_expit, logit, ndtri

from graphmatern._validation import FaultList, check_positive
from graphmatern.errors import KernelError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = ["Beta", "Gamma", "HalfNormal", "LogNormal", "Normal", "OfRoot", "PCPrior", "Prior"]

_SHARES = ("laziness", "mixing", "zeros")
_HUGE = 300.0  # of a logarithm: beyond, exponentials overflow


class Prior(ABC):
    """A prior in the coordinate x that the fit moves."""

    #: Parameters that it suits, by the last word of their label; by default all but shares.
    suits: ClassVar[tuple[str, ...] | None] = None

    @abstractmethod
    def log_density(self, x: Floats) -> tuple[Floats, Floats, Floats]:
        """Log density of x, the constant included, and its first and second derivatives; shapes as ``x``."""

    @abstractmethod
    def quantile(self, share: Floats) -> Floats:
        """Quantiles of x; shape as ``share``."""

    def penalty(self, x: float) -> tuple[float, float]:
        """Negative log density of x, its constant included, and its derivative."""
        value, slope, _ = self.log_density(np.float64(x))  # type: ignore[arg-type]
        return -float(value), -float(slope)

    def curvature(self, x: float) -> float:
        """Second derivative of `penalty`."""
        return -float(self.log_density(np.float64(x))[2])  # type: ignore[arg-type]

    def suitable(self, label: str) -> bool:
        """Whether it suits a parameter, by the last word of its label."""
        word = label.rpartition(".")[2]
        return word not in _SHARES if self.suits is None else word in self.suits

    def _check(self, **numbers: float) -> None:
        """Raise unless all of these are positive."""
        faults = FaultList("no prior was made", KernelError)
        for name, value in numbers.items():
            check_positive(name, value, faults, remedy=f"See the documentation of gm.{type(self).__name__}.")
        faults.raise_if_any()


@dataclass(frozen=True)
class LogNormal(Prior):
    """A log-normal prior: the logarithm of the parameter is normal, and the fit maximises over that logarithm.

    Parameters
    ----------
    median : float
        Median of the parameter, and the mode of its logarithm.
    spread : float
        Standard deviation of its logarithm: 0.7 allows a factor of 2 either way, 2.3 a factor of 10.

    Examples
    --------
    >>> import graphmatern as gm
    >>> city = gm.make_roads(200, seed=0)
    >>> y = gm.Matern(nu=1, lengthscale=5.0).on(city).sample(random_state=0).numpy()[0]
    >>> tight = gm.LogNormal(median=2.0, spread=0.01)
    >>> model = gm.GraphGPRegressor(city, gm.Matern(nu=1, fixed="nu"), priors={"lengthscale": tight})
    >>> round(model.fit(city.nodes, y).kernel_.lengthscale.item(), 1)
    2.0
    """

    median: float
    spread: float

    def __post_init__(self) -> None:
        self._check(median=self.median, spread=self.spread)

    def log_density(self, x: Floats) -> tuple[Floats, Floats, Floats]:
        """−z²/2 with z = (x − log median) / spread; see `Prior.log_density`."""
        z = (x - np.log(self.median)) / self.spread
        value = -0.5 * z**2 - np.log(self.spread) - 0.5 * np.log(2 * np.pi)
        return value, -z / self.spread, np.full_like(z, -(self.spread**-2))

    def quantile(self, share: Floats) -> Floats:
        """Quantiles of the logarithm."""
        return np.asarray(np.log(self.median) + self.spread * ndtri(share))


@dataclass(frozen=True)
class HalfNormal(Prior):
    """A normal prior of the parameter, cut off at 0: favours small values, and makes large ones unlikely.

    Parameters
    ----------
    scale : float
        Two thirds of the probability are below this value, 95 % below twice it.

    Examples
    --------
    >>> import graphmatern as gm
    >>> gm.HalfNormal(scale=0.5)
    HalfNormal(scale=0.5)
    """

    scale: float

    def __post_init__(self) -> None:
        self._check(scale=self.scale)

    def log_density(self, x: Floats) -> tuple[Floats, Floats, Floats]:
        """X − θ²/(2 scale²); see `Prior.log_density`."""
        square = np.exp(np.minimum(2.0 * (x - np.log(self.scale)), _HUGE))
        value = 0.5 * np.log(2.0 / np.pi) - np.log(self.scale) + x - 0.5 * square
        return value, 1.0 - square, -2.0 * square

    def quantile(self, share: Floats) -> Floats:
        """Quantiles of the logarithm."""
        return np.asarray(np.log(self.scale) + np.log(ndtri(0.5 + 0.5 * share)))


@dataclass(frozen=True)
class Normal(Prior):
    """A normal prior of coefficients of the mean, around 0.

    Parameters
    ----------
    scale : float
        Its standard deviation, in the units of y (of the latent process for counts) per unit of the covariate. The
        prior of the constant is around 0 for counts, otherwise around the mean of the values.

    Examples
    --------
    >>> import graphmatern as gm
    >>> priors = {"coefficients": gm.Normal(1.0), "(constant)": gm.Normal(5.0)}
    """

    scale: float
    suits: ClassVar[tuple[str, ...] | None] = ()

    def __post_init__(self) -> None:
        self._check(scale=self.scale)

    def log_density(self, x: Floats) -> tuple[Floats, Floats, Floats]:
        """−z²/2 with z = x / scale; see `Prior.log_density`."""
        z = x / self.scale
        value = -0.5 * z**2 - np.log(self.scale) - 0.5 * np.log(2 * np.pi)
        return value, -z / self.scale, np.full_like(z, -(self.scale**-2))

    def quantile(self, share: Floats) -> Floats:
        """Quantiles of the coefficient."""
        return np.asarray(self.scale * ndtri(share))


@dataclass(frozen=True)
class OfRoot(Prior):
    """A prior of σ where σ² is what is moved.

    Parameters
    ----------
    inner : Prior
        Of σ.
    """

    inner: Prior

    def log_density(self, x: Floats) -> tuple[Floats, Floats, Floats]:
        """That of log σ = x / 2; see `Prior.log_density`."""
        value, slope, curvature = self.inner.log_density(0.5 * x)
        return value - np.log(2.0), 0.5 * slope, 0.25 * curvature

    def quantile(self, share: Floats) -> Floats:
        """Quantiles of log σ²."""
        return 2.0 * self.inner.quantile(share)


@dataclass(frozen=True)
class Gamma(Prior):
    """A gamma prior of the parameter.

    Parameters
    ----------
    shape : float
        1 for an exponential distribution; above it, values near 0 are unlikely.
    rate : float
        The mean is shape / rate.

    Examples
    --------
    >>> import graphmatern as gm
    >>> gm.Gamma(shape=2.0, rate=0.1)  # of degrees of freedom, after Juárez and Steel (2010)
    Gamma(shape=2.0, rate=0.1)
    """

    shape: float
    rate: float

    def __post_init__(self) -> None:
        self._check(shape=self.shape, rate=self.rate)

    def log_density(self, x: Floats) -> tuple[Floats, Floats, Floats]:
        """Shape · x − rate · θ; see `Prior.log_density`."""
        scaled = np.exp(np.minimum(x + np.log(self.rate), _HUGE))
        value = self.shape * (x + np.log(self.rate)) - gammaln(self.shape) - scaled
        return value, self.shape - scaled, -scaled

    def quantile(self, share: Floats) -> Floats:
        """Quantiles of the logarithm."""
        found = np.maximum(gammaincinv(self.shape, share), np.finfo(float).tiny)
        return np.asarray(np.log(found) - np.log(self.rate))


@dataclass(frozen=True)
class Beta(Prior):
    """A beta prior of a share, a parameter between 0 and 1 such as the laziness of a random walk.

    Parameters
    ----------
    a, b : float
        The mean is a / (a + b); 1 and 1 are a uniform prior.

    Examples
    --------
    >>> import graphmatern as gm
    >>> gm.Beta(2.0, 2.0)
    Beta(a=2.0, b=2.0)
    """

    a: float
    b: float
    suits: ClassVar[tuple[str, ...] | None] = _SHARES

    def __post_init__(self) -> None:
        self._check(a=self.a, b=self.b)

    def log_density(self, x: Floats) -> tuple[Floats, Floats, Floats]:
        """A log θ + b log(1 − θ) in x = logit θ; see `Prior.log_density`."""
        theta = expit(x)
        value = self.a * log_expit(x) + self.b * log_expit(-x) - betaln(self.a, self.b)
        return value, self.a * (1.0 - theta) - self.b * theta, -(self.a + self.b) * theta * (1.0 - theta)

    def quantile(self, share: Floats) -> Floats:
        """Quantiles of the logit."""
        return np.asarray(logit(betaincinv(self.a, self.b, share)))


@dataclass(frozen=True)
class PCPrior(Prior):
    """A prior that penalises complexity (Simpson et al. 2017; Fuglstad et al. 2019), said by one probability.

    Parameters
    ----------
    below : float, optional
        Of a lengthscale: it is below this with the probability given. Short lengthscales are the complex ones;
        1 / lengthscale is exponential, as in two dimensions. Of the mixing of `BYM2`, a share: likewise; much mixing is
        complex, how much depends on the map (Riebler et al. 2016).
    above : float, optional
        Of a variance or the noise: its square root, a standard deviation σ, is above this with the probability given.
        Large ones are complex; σ is exponential.
    probability : float
        Between 0 and 1.

    Examples
    --------
    >>> import graphmatern as gm
    >>> gm.PCPrior(below=1.0, probability=0.05)  # a lengthscale, hardly below 1
    PCPrior(below=1.0, above=None, probability=0.05)
    >>> gm.PCPrior(above=3.0, probability=0.01)  # of a variance: a standard deviation, hardly above 3
    PCPrior(below=None, above=3.0, probability=0.01)
    >>> gm.PCPrior(below=0.5, probability=2 / 3).probability > 0.6  # of mixing: more likely below a half than above
    True
    """

    below: float | None = None
    above: float | None = None
    probability: float = 0.05

    def __post_init__(self) -> None:
        faults = FaultList("no prior was made", KernelError)
        if (self.below is None) == (self.above is None):
            given = "none" if self.below is None else "both"
            remedy = "For instance gm.PCPrior(above=3.0, probability=0.01)."
            faults.add("below", "or `above` must be given, only one of them", given, remedy)
        bound = self.below if self.above is None else self.above
        if bound is not None:
            name = "below" if self.above is None else "above"
            check_positive(name, bound, faults, remedy="It is a lengthscale, or a standard deviation.")
        if not 0.0 < self.probability < 1.0:
            faults.add("probability", "must lie between 0 and 1", repr(self.probability), "Such as 0.05.")
        faults.raise_if_any()

    @property
    def _power_and_rate(self) -> tuple[float, float]:
        """P and λ: θ^p is exponential of rate λ."""
        if self.below is not None:
            return -1.0, -np.log(self.probability) * self.below
        assert self.above is not None
        return 0.5, -np.log(self.probability) / self.above

    def log_density(self, x: Floats) -> tuple[Floats, Floats, Floats]:
        """P x − λθ^p with θ^p exponential: p = −1 for a lengthscale, ½ for a variance; see `Prior.log_density`."""
        p, rate = self._power_and_rate
        scaled = np.exp(np.minimum(p * x + np.log(rate), _HUGE))
        return np.log(abs(p) * rate) + p * x - scaled, p - p * scaled, -(p**2) * scaled

    def quantile(self, share: Floats) -> Floats:
        """Quantiles of the logarithm."""
        p, rate = self._power_and_rate
        exponential = -np.log(share) if p < 0 else -np.log1p(-share)
        return np.asarray(np.log(exponential / rate) / p)

    def suitable(self, label: str) -> bool:
        """Whether it suits a parameter: a lengthscale (or, on a map, mixing), or a variance."""
        word = label.rpartition(".")[2]
        return word in (("lengthscale", "mixing") if self.below is not None else ("variance", "noise"))
