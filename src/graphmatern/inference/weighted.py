"""Mixtures: what follows from weights and components alone, whichever posteriors these are.

With weights w_k, means are Σ w_k m_k, variances Σ w_k (v_k + (m_k − m)²), probabilities and densities Σ w_k p_k, and
quantiles those of the mixture of distributions.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Generic, TypeVar

import numpy as np
from scipy.special import logsumexp, ndtr, ndtri

from graphmatern.inference.skewness import relax, stretch
from graphmatern.likelihoods import find_quantile

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = ["Normals", "Weighted", "weighted_quantiles"]

_Posterior = TypeVar("_Posterior")
_LEAST = 1e-300  # variance, so that none is divided by 0


def weighted_quantiles(values: Floats, weights: Floats, levels: Floats) -> Floats:
    """Quantiles of weighted values, between the middles of the steps; NaN where a value is not known.

    Parameters
    ----------
    values, weights : ndarray, shape (n,)
        The values, and their weights, which add up to 1.
    levels : ndarray, shape (k,)
        Between 0 and 1.

    Examples
    --------
    >>> weighted_quantiles(np.array([3.0, 1.0, 2.0]), np.array([0.25, 0.25, 0.5]), np.array([0.5])).tolist()
    [2.0]
    """
    if not np.isfinite(values).all():
        return np.full(len(levels), np.nan)
    order = np.argsort(values)
    middle = np.cumsum(weights[order]) - 0.5 * weights[order]
    return np.interp(levels, middle, values[order])


class Normals:
    """A mixture of normal distributions, or of skewed ones, at each of some places.

    Parameters
    ----------
    weights : ndarray, shape (n_components,)
        They add up to 1.
    means, variances : ndarray, shape (n_components, ...)
        Of the components, at every place.
    skewness : ndarray, shape (n_components, ...), optional
        Of the components, where they are not normal but shifted log-normal. Densities and scores know nothing of it.

    Examples
    --------
    >>> two = Normals(np.array([0.5, 0.5]), np.array([[-1.0], [1.0]]), np.array([[1.0], [1.0]]))
    >>> two.mean.tolist(), two.variance.tolist(), two.quantile(0.5).round(6).tolist()
    ([0.0], [2.0], [0.0])
    """

    def __init__(self, weights: Floats, means: Floats, variances: Floats, skewness: Floats | None = None) -> None:
        self.weights, self._means, self._variances = weights, means, variances
        self._skewness = skewness

    def _average(self, values: Floats) -> Floats:
        return np.asarray(np.tensordot(self.weights, values, axes=1))

    @cached_property
    def mean(self) -> Floats:
        """Means; shape (...)."""
        return self._average(self._means)

    @cached_property
    def variance(self) -> Floats:
        """Variances; shape (...)."""
        return self._average(self._variances + (self._means - self.mean) ** 2)

    def with_noise(self, variances: Floats) -> Normals:
        """The same plus independent noise, of one variance for each component; shape (n_components,)."""
        shape = (-1,) + (1,) * (self._means.ndim - 1)
        return Normals(self.weights, self._means, self._variances + variances.reshape(shape))

    @cached_property
    def _deviations(self) -> Floats:
        return np.sqrt(np.maximum(self._variances, _LEAST))

    def _scores(self, x: Floats | float) -> Floats:
        """Standard normal variables that stand for x; shape (n_components, ...)."""
        scores = (x - self._means) / self._deviations
        return scores if self._skewness is None else relax(scores, self._skewness)

    def cdf(self, x: Floats | float) -> Floats:
        """Probabilities of at most x; shape (...)."""
        return self._average(ndtr(self._scores(x)))

    def above(self, x: Floats | float) -> Floats:
        """Probabilities of more than x; shape (...)."""
        return self._average(ndtr(-self._scores(x)))

    def quantile(self, level: float) -> Floats:
        """Where the distribution function reaches a level; shape (...)."""
        if len(self.weights) == 1:
            score = ndtri(level) if self._skewness is None else stretch(float(ndtri(level)), self._skewness[0])
            return np.asarray(self._means[0] + score * np.sqrt(self._variances[0]))
        return find_quantile(self.cdf, level, self.mean, self.variance)

    def log_density(self, x: Floats) -> Floats:
        """Log densities at x; shape (...)."""
        z = (x - self._means) / self._deviations
        logs = -0.5 * z**2 - np.log(self._deviations) - 0.5 * np.log(2.0 * np.pi)
        shape = (-1,) + (1,) * (logs.ndim - 1)
        return np.asarray(logsumexp(logs, axis=0, b=self.weights.reshape(shape)))

    def crps(self, x: Floats) -> Floats:
        """Continuous ranked probability scores at x (Grimit et al. 2006); shape (...)."""
        spread = np.zeros(self.mean.shape)
        for weight, mean, variance in zip(self.weights, self._means, self._variances, strict=True):
            spread += weight * self._average(_mean_size(mean - self._means, variance + self._variances))
        return np.asarray(self._average(_mean_size(x - self._means, self._variances)) - 0.5 * spread)


def _mean_size(mean: Floats, variance: Floats) -> Floats:
    """Mean of |x| for normal x; shape as ``mean``."""
    deviation = np.sqrt(np.maximum(variance, _LEAST))
    z = mean / deviation
    density = np.exp(-0.5 * z**2) / np.sqrt(2.0 * np.pi)
    return np.asarray(mean * (2.0 * ndtr(z) - 1.0) + 2.0 * deviation * density)


class Weighted(Generic[_Posterior]):
    """Posteriors with weights.

    Parameters
    ----------
    makers : sequence of callable
        Return the posterior of each component; called when it is first needed.
    weights : ndarray, shape (n_components,)
        They add up to 1.
    """

    def __init__(self, makers: Sequence[Callable[[], _Posterior]], weights: Floats) -> None:
        self._makers, self.weights = list(makers), weights

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self.weights)} components of {self.components[0]!r})"

    @cached_property
    def components(self) -> list[_Posterior]:
        """The posteriors."""
        return [make() for make in self._makers]

    def _average(self, values: Sequence[Floats]) -> Floats:
        return np.asarray(np.tensordot(self.weights, np.stack(values), axes=1))

    def _combined(self, pairs: Sequence[tuple[Floats, Floats]]) -> tuple[Floats, Floats]:
        """Mean and variance of the mixture, given those of the components."""
        both = Normals(self.weights, *(np.stack(values) for values in zip(*pairs, strict=True)))
        return both.mean, both.variance

    def _combined_covariance(self, means: Sequence[Floats], covariances: Sequence[Floats]) -> Floats:
        """Covariance of the mixture, given means of shape (n,) and covariances of the components; shape (n, n)."""
        away = np.stack(means) - self._average(means)
        return np.asarray(self._average(covariances) + away.T @ (self.weights[:, None] * away))

    def _drawn(self, n_samples: int, rng: np.random.Generator, draw: Callable[[_Posterior, int], Floats]) -> Floats:
        """Draws of all components, as many from each as its weight has it, in random order; shape (n_samples, ...)."""
        counts = rng.multinomial(n_samples, self.weights)
        parts = [draw(one, int(count)) for one, count in zip(self.components, counts, strict=True) if count]
        return rng.permutation(np.concatenate(parts))
