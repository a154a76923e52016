"""Rational approximations of the powers y^β, 0 < β < 1, on an interval [1, R].

Powers are mixtures of resolvents, y^β = b + ∫ (y − 1) / (1 + γ (y − 1)) dμ(γ) with μ ≥ 0, and so are the rational
functions that equal them at 2m + 1 points of the interval (multipoint Padé approximants of a Stieltjes function):

    r(y) = b + Σ_i e_i l / (1 + γ_i l),     1 / r(y) = k_0 + Σ_j k_j / (1 + τ_j l),     l = y − 1,

with b, e_i, k_j ≥ 0 and 0 < γ_i, τ_j < 1, whatever the points. Those of Zolotarev make the largest relative error least
for β = 1/2, and nearly so for other β. The points do not depend on β: all coefficients are smooth functions of it, and
r is exactly 1 and y at the ends, β = 0 and 1.

References
----------
* E. I. Zolotarev, "Application of elliptic functions to questions of functions deviating least and most from zero"
  (1877).
* G. A. Baker, P. Graves-Morris, "Padé Approximants", 2nd ed. (1996), chapter 5: Stieltjes series.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import scipy
from scipy.special import ellipj, ellipkm1

from graphmatern.errors import NumericalError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = ["MOST_TERMS", "Fraction", "Resolvents", "as_resolvents", "fraction", "terms_for", "widest_ratio"]

#: Terms at most: more are not needed for ratios of 1e9 and errors of 1e-6.
MOST_TERMS = 16

_STEP = 0.5  # of the logit of β, from one solution to the next
_CORRECTIONS = 12  # Newton steps for each of them, at most
_PER_TERM = 400  # points at which the error is measured
_LEAST_RATIO, _LARGEST_RATIO = 1.5, 1e12


@dataclass(frozen=True, eq=False)
class Fraction:
    """r(y) = b + Σ_i e_i l / (1 + γ_i l), l = y − 1, and its derivative in β.

    Attributes
    ----------
    constant : float
        b.
    weights, rates : ndarray, shape (m,)
        e and γ.
    constant_slope : float
        Derivative of b in β.
    weights_slope, rates_slope : ndarray, shape (m,)
        Derivatives of e and γ.
    """

    constant: float
    weights: Floats
    rates: Floats
    constant_slope: float
    weights_slope: Floats
    rates_slope: Floats

    def __call__(self, y: Floats) -> Floats:
        """Values at some y."""
        lift = np.asarray(y)[..., None] - 1.0
        return np.asarray(self.constant + np.sum(self.weights * lift / (1.0 + self.rates * lift), axis=-1))


@dataclass(frozen=True, eq=False)
class Resolvents:
    """k_0 + Σ_j k_j / (1 + τ_j l), and its derivative.

    Attributes
    ----------
    constant : float
        k_0.
    weights, rates : ndarray, shape (m,)
        k and τ.
    constant_slope, weights_slope, rates_slope
        Their derivatives.
    """

    constant: float
    weights: Floats
    rates: Floats
    constant_slope: float
    weights_slope: Floats
    rates_slope: Floats


def _points(n_terms: int, ratio: float) -> Floats:
    """Zolotarev's 2m + 1 points in [1, R]: R dn²((2k − 1) K / (4m + 2)), with 1/R the complementary parameter."""
    count = 2 * n_terms + 1
    quarter = ellipkm1(1.0 / ratio)
    _, cosine, _, _ = ellipj((2.0 * np.arange(count) + 1.0) / (2.0 * count) * quarter, 1.0 - 1.0 / ratio)
    # dn² = cn² + (1 − k²) sn², without the cancellation of 1 − k² sn².
    return np.asarray(ratio * (cosine**2 + (1.0 - cosine**2) / ratio))


def _half(points: Floats) -> Floats:
    """(b, log e, logit γ) at β = 1/2, which is explicit for all points; shape (2m + 1,).

    With z = √y the interpolant is r = z (P − N) / (P + N), P and N being Π (z ± z_k): on the imaginary axis, z = iω,
    r = ω cot Θ(ω) with Θ(ω) = Σ atan(ω / z_k), so that poles lie where Θ is a multiple of π.
    """
    roots, m = np.sqrt(points), len(points) // 2
    poles = np.array(
        [
            np.exp(
                scipy.optimize.brentq(
                    lambda s, i=i: np.arctan(np.exp(s) / roots).sum() - i * np.pi, -60.0, 60.0, xtol=1e-14
                )
            )
            for i in range(1, m + 1)
        ]
    )
    slopes = np.sum(roots / (roots**2 + poles[:, None] ** 2), axis=1)
    product = np.prod((1.0 - roots) / (1.0 + roots))
    log_weights = np.log(2.0 * poles**2 / slopes) - 2.0 * np.log1p(poles**2)
    return np.concatenate([[(1.0 - product) / (1.0 + product)], log_weights, -2.0 * np.log(poles)])


def _unpack(parameters: Floats) -> tuple[Floats, Floats]:
    m = len(parameters) // 2
    return np.exp(parameters[1 : m + 1]), 1.0 / (1.0 + np.exp(-parameters[m + 1 :]))


def _interpolant(parameters: Floats, lift: Floats) -> tuple[Floats, Floats]:
    """Values of r, and their derivatives in (b, log e, logit γ)."""
    weights, rates = _unpack(parameters)
    share = 1.0 / (1.0 + rates * lift[:, None])
    terms = weights * lift[:, None] * share
    slopes = -terms * lift[:, None] * share * rates * (1.0 - rates)
    return parameters[0] + terms.sum(axis=1), np.hstack([np.ones((len(lift), 1)), terms, slopes])


def _tangent(parameters: Floats, points: Floats, beta: float) -> Floats:
    """Derivatives of (b, log e, logit γ) in β."""
    _, matrix = _interpolant(parameters, points - 1.0)
    return _solve(matrix, points, points**beta * np.log(points), beta)


def _solve(matrix: Floats, points: Floats, right: Floats, beta: float) -> Floats:
    """Solve for changes of the parameters, conditions relative to their size."""
    scale = points**-beta
    return np.asarray(np.linalg.lstsq(matrix * scale[:, None], right * scale, rcond=None)[0], dtype=np.float64)


def _corrected(parameters: Floats, points: Floats, beta: float) -> Floats:
    """Newton's method from a near solution."""
    target = points**beta
    for _ in range(_CORRECTIONS):
        value, matrix = _interpolant(parameters, points - 1.0)
        step = _solve(matrix, points, target - value, beta)
        largest = float(np.abs(step).max())
        parameters = parameters + step / max(1.0, largest)
        if largest < 1e-9:  # convergence is quadratic: what is left is rounding
            break
    return parameters


@lru_cache(maxsize=256)
def _parameters(n_terms: int, ratio: float, number: int) -> Floats:
    """(b, log e, logit γ) where the logit of β is a multiple of a step, by following the solution from β = 1/2."""
    points = _points(n_terms, ratio)
    if number == 0:
        return _half(points)
    before = number - int(np.sign(number))
    near = _parameters(n_terms, ratio, before)
    return _followed(near, points, before * _STEP, number * _STEP)


def _followed(parameters: Floats, points: Floats, start: float, end: float) -> Floats:
    """The solution at one logit of β, from that at another."""
    beta = _logistic(start)
    ahead = parameters + (end - start) * beta * (1.0 - beta) * _tangent(parameters, points, beta)
    return _corrected(ahead, points, _logistic(end))


def _logistic(x: float) -> float:
    return float(1.0 / (1.0 + np.exp(-x)))


def fraction(beta: float, n_terms: int, ratio: float) -> Fraction:
    """The rational function r of type (m, m) that equals y^β at 2m + 1 points of [1, R].

    Parameters
    ----------
    beta : float
        Between 0 and 1, both excluded.
    n_terms : int
        m.
    ratio : float
        R.

    Examples
    --------
    >>> import numpy as np
    >>> from graphmatern.inference.markov.rational import fraction
    >>> y = np.geomspace(1.0, 1000.0)
    >>> bool(np.abs(fraction(0.3, 5, 1000.0)(y) / y**0.3 - 1.0).max() < 1e-4)
    True
    """
    logit = float(np.log(beta) - np.log1p(-beta))
    number = round(logit / _STEP)
    points = _points(n_terms, ratio)
    found = _followed(_parameters(n_terms, ratio, number), points, number * _STEP, logit)
    value, _ = _interpolant(found, points - 1.0)
    if not np.abs(value / points**beta - 1.0).max() < 1e-9:
        raise NumericalError(f"no rational approximation of y^{beta:.6g} on [1, {ratio:.4g}] with {n_terms} terms")
    tangent, m = _tangent(found, points, beta), n_terms
    weights, rates = _unpack(found)
    weights_slope, rates_slope = weights * tangent[1 : m + 1], rates * (1.0 - rates) * tangent[m + 1 :]
    order = np.argsort(-rates)
    return Fraction(
        float(found[0]),
        weights[order],
        rates[order],
        float(tangent[0]),
        weights_slope[order],
        rates_slope[order],
    )


def as_resolvents(given: Fraction) -> Resolvents:
    """1 / r as a sum of resolvents, derivatives included.

    The zeros −1/τ_j of r lie between its poles −1/γ_i: τ_1 > γ_1 > τ_2 > γ_2 ...
    """
    weights, rates = given.weights, given.rates
    gaps = np.array([_gaps(given, j) for j in range(len(rates))])  # τ_j − γ_i, without cancellation
    taus = rates + np.diag(gaps)
    lift, share = -1.0 / taus[:, None], taus[:, None] / gaps  # l, and 1 / (1 + γ_i l)
    slope = np.sum(weights * share**2, axis=1)  # of r in l, at its zeros
    ks = taus / slope
    # How zeros move, ∂r + r′ ∂l = 0, and what becomes of k_j = τ_j / r′(l_j).
    terms = given.weights_slope * lift * share - weights * given.rates_slope * (lift * share) ** 2
    moved = -(given.constant_slope + terms.sum(axis=1)) / slope
    taus_slope = taus**2 * moved
    inner = given.rates_slope * lift + rates * moved[:, None]
    slope_change = np.sum(given.weights_slope * share**2 - 2.0 * weights * share**3 * inner, axis=1)
    constant = 1.0 / (given.constant + np.sum(weights / rates))
    total = given.constant_slope + np.sum(given.weights_slope / rates - weights * given.rates_slope / rates**2)
    return Resolvents(
        float(constant),
        ks,
        taus,
        float(-(constant**2) * total),
        (taus_slope - ks * slope_change) / slope,
        taus_slope,
    )


def _gaps(given: Fraction, j: int) -> Floats:
    """τ_j − γ_i for all i, τ_j being the zero of b − Σ_i e_i / (τ − γ_i) between γ_j and the rate above; shape (m,)."""
    weights, rates = given.weights, given.rates
    apart = rates[j] - rates
    # As a share of the way, or beyond the first rate as a share of a bound, on a scale that resolves both ends.
    width = rates[j - 1] - rates[j] if j else 2.0 * weights.sum() / given.constant

    def gaps(s: float) -> Floats:
        found: Floats = apart + width * _logistic(s)
        found[j] = width * _logistic(s)
        if j:
            found[j - 1] = -width * _logistic(-s)
        return found

    root = scipy.optimize.brentq(
        lambda s: float(given.constant - np.sum(weights / gaps(s))), -300.0, 300.0, xtol=1e-13, rtol=1e-15
    )
    return gaps(root)


@lru_cache(maxsize=1024)
def largest_error(n_terms: int, ratio: float) -> float:
    """Largest relative error on [1, R] over all β: that at β = 1/2, and a little more: few terms do worst near 0.6."""
    y = np.geomspace(1.0, ratio, _PER_TERM * n_terms)
    parameters = _half(_points(n_terms, ratio))
    value, _ = _interpolant(parameters, y - 1.0)
    return 1.05 * float(np.abs(value / np.sqrt(y) - 1.0).max())


@lru_cache(maxsize=256)
def widest_ratio(n_terms: int, relative_error: float) -> float:
    """Largest R for which m terms keep the relative error on [1, R] below a bound, whatever β; 0 if there is none."""

    def excess(log_ratio: float) -> float:
        return float(np.log(largest_error(n_terms, float(np.exp(log_ratio))) / relative_error))

    low, high = np.log(_LEAST_RATIO), np.log(_LARGEST_RATIO)
    if excess(high) <= 0.0:
        return _LARGEST_RATIO
    return float(np.exp(scipy.optimize.brentq(excess, low, high, xtol=1e-3) - 1e-3)) if excess(low) < 0.0 else 0.0


def terms_for(ratio: float, relative_error: float) -> int:
    """Least number of terms that keep the relative error on [1, R] below a bound, whatever β."""
    for n_terms in range(1, MOST_TERMS + 1):
        if widest_ratio(n_terms, relative_error) >= max(ratio, _LEAST_RATIO + 0.01):
            return n_terms
    raise NumericalError(
        f"a relative error of {relative_error:.0e} on [1, {ratio:.2e}] takes more than {MOST_TERMS} terms. Likely "
        "causes: (a) a very long lengthscale; (b) weights of very different size. Allow a larger `relative_error`, or "
        "shorter lengthscales"
    )
