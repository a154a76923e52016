"""Matérn processes of any smoothness as marginals of Markov processes with several unknowns per node.

With y = 1 + Δ/c, c = 2ν/κ², a Matérn process has covariance a c^(−ν) y^(−ν). Let n = ⌊ν⌋, and let r be the rational
approximation of y^(ν−n) (`rational.fraction`). In powers of l = y − 1 = Δ/c,

    q = y^n r = a_0 + a_1 l + ... + a_n l^n + l^(n+1) Σ_i s_i / (1 + γ_i l),    all coefficients positive,

and 1/q = v + wᵀ (J₀ + l J₁)⁻¹ w for small symmetric matrices J₀, J₁ of m + n rows: a field with as many unknowns per
node as rows, of precision J₀ ⊗ I + J₁ ⊗ Δ/c, which couples neighbours only and fills in like M = cI + Δ itself, block
by block. For n = 0 it is the sum of m independent Markov fields, and white noise of variance v. For n ≥ 1 the process
is one of the unknowns; others carry l² Σ s_i / (1 + γ_i l) as a Schur complement, with negative sign. J is then
quasi-definite (Vanderbei 1995): it has a factorisation L S Lᵀ with known signs S, in every order that `signs` allows.
Sums of independent fields would take m (n + 1) unknowns per separator node instead of m + n.

As ν passes an integer, coefficients vanish on one side or the other, and r is exact there: nothing jumps.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from math import comb
from typing import TYPE_CHECKING

import numpy as np

from graphmatern.inference.markov.rational import Fraction, as_resolvents, fraction

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from graphmatern.inference.markov.rational import Resolvents

    Floats = NDArray[np.float64]

__all__ = ["Pencil", "matern_pencil"]

_NEAREST = 1e-8  # to an integer that ν may come


@dataclass(frozen=True, eq=False)
class Pencil:
    """1/q(l) = v + wᵀ (J₀ + l J₁)⁻¹ w, and its derivative in ν.

    Attributes
    ----------
    constant, linear : ndarray, shape (p, p)
        J₀ and J₁, symmetric; unknowns in the order of elimination.
    output : ndarray, shape (p,)
        w.
    white : float
        v.
    signs : tuple of int
        Signs of the pivots, in the order of elimination.
    constant_slope, linear_slope, output_slope, white_slope
        Derivatives in ν.
    power : int
        n.
    zeros : Resolvents
        Where det (J₀ + l J₁) = det J₀ (1 + l)^n Π_j (1 + τ_j l) is zero: τ, and its derivative.
    """

    constant: Floats
    linear: Floats
    output: Floats
    white: float
    signs: tuple[int, ...]
    constant_slope: Floats
    linear_slope: Floats
    output_slope: Floats
    white_slope: float
    power: int = 0
    zeros: Resolvents | None = None

    @property
    def size(self) -> int:
        """Unknowns per node, p."""
        return len(self.output)

    @cached_property
    def log_constant(self) -> tuple[float, float]:
        """Log |det J₀|, and its derivative in ν."""
        slope = float(np.trace(np.linalg.solve(self.constant, self.constant_slope)))
        return float(np.linalg.slogdet(self.constant)[1]), slope

    def kernel(self, lift: Floats) -> tuple[Floats, Floats, Floats]:
        """1/q at some l, and its derivatives in ν and in log l."""
        found, in_nu, in_lift = (np.empty(len(lift)) for _ in range(3))
        for k, x in enumerate(lift):
            solved = np.linalg.solve(self.constant + x * self.linear, self.output)
            found[k] = self.white + self.output @ solved
            changed = self.constant_slope + x * self.linear_slope
            in_nu[k] = self.white_slope + 2.0 * self.output_slope @ solved - solved @ changed @ solved
            in_lift[k] = -x * (solved @ self.linear @ solved)
        return found, in_nu, in_lift


def matern_pencil(nu: float, n_terms: int, ratio: float) -> Pencil:
    """The pencil of (1 + l)^ν.

    Parameters
    ----------
    nu : float
        Smoothness; integers are moved by 1e-8.
    n_terms : int
        m.
    ratio : float
        R: the relative error is that of `rational.fraction` for 1 + l up to R.

    Examples
    --------
    >>> import numpy as np
    >>> from graphmatern.inference.markov.pencil import matern_pencil
    >>> pencil = matern_pencil(1.5, n_terms=5, ratio=1000.0)
    >>> pencil.size
    6
    >>> y = np.geomspace(1.0, 1000.0, 7)
    >>> bool(np.abs(pencil.kernel(y - 1.0)[0] * y**1.5 - 1.0).max() < 1e-4)
    True
    """
    n = int(np.floor(nu))
    beta = float(np.clip(nu - n, _NEAREST, 1.0 - _NEAREST))
    given = fraction(beta, n_terms, ratio)
    coefficients, slopes = _taylor(n, given)
    rest = (1.0 - given.rates) ** n
    rest_slope = -n * (1.0 - given.rates) ** (n - 1) * given.rates_slope if n else np.zeros(n_terms)
    tail = replace(
        given, weights=given.weights * rest, weights_slope=given.weights_slope * rest + given.weights * rest_slope
    )
    return replace(_realize(coefficients, slopes, tail), power=n, zeros=as_resolvents(given))


def _taylor(n: int, given: Fraction) -> tuple[Floats, Floats]:
    """a_0, ..., a_n and their derivatives: of b (1 + l)^n + Σ_i e_i l (1 + l)^n / (1 + γ_i l)."""
    weights, rates = given.weights, given.rates
    found = np.array([given.constant * comb(n, k) for k in range(n + 1)])
    slopes = np.array([given.constant_slope * comb(n, k) for k in range(n + 1)])
    for k in range(1, n + 1):
        powers = np.arange(k)  # of −γ, beside (n over k − 1 − power)
        binomials = np.array([comb(n, k - 1 - int(power)) for power in powers])
        shares = np.sum(binomials * (-rates[:, None]) ** powers, axis=1)
        inner = np.where(powers > 0, powers, 0) * (-rates[:, None]) ** np.maximum(powers - 1, 0)
        changes = -np.sum(binomials * inner, axis=1) * given.rates_slope
        found[k] += weights @ shares
        slopes[k] += given.weights_slope @ shares + weights @ changes
    return found, slopes


def _realize(coefficients: Floats, slopes: Floats, tail: Fraction) -> Pencil:
    """The pencil of Σ_k a_k l^k + l^(n+1) Σ_i s_i / (1 + γ_i l)."""
    n, m = len(coefficients) - 1, len(tail.weights)
    if n == 0:
        found = as_resolvents(replace(tail, constant=float(coefficients[0]), constant_slope=float(slopes[0])))
        root = np.sqrt(found.weights)
        return Pencil(
            np.eye(m),
            np.diag(found.rates),
            root,
            found.constant,
            (1,) * m,
            np.zeros((m, m)),
            np.diag(found.rates_slope),
            0.5 * found.weights_slope / root,
            found.constant_slope,
        )
    if n == 1:
        root, last = np.sqrt(tail.weights), np.zeros(m + 1)
        last[-1] = 1.0
        return Pencil(
            np.diag([-1.0] * m + [float(coefficients[0])]),
            _framed(-np.diag(tail.rates), root, coefficients[1]),
            last,
            0.0,
            (*(-1,) * m, 1),
            np.diag([0.0] * m + [float(slopes[0])]),
            _framed(-np.diag(tail.rates_slope), 0.5 * tail.weights_slope / root, slopes[1]),
            np.zeros(m + 1),
            0.0,
        )
    # l² g, g = a_2 + ...: the Schur complement of −1/g, which in turn is that of the pencil of g. What −1/g stands for
    # comes last: it has no diagonal of its own, or a small one, before the others are eliminated.
    inner = _realize(coefficients[2:], slopes[2:], tail)
    p = inner.size
    last, nothing = np.zeros(p + 1), np.zeros(p)
    last[-1] = 1.0
    return Pencil(
        _framed(_framed(inner.constant, nothing, coefficients[0]), np.append(inner.output, 0.0), -inner.white),
        _framed(_framed(inner.linear, nothing, coefficients[1]), last, 0.0),
        np.append(last, 0.0),
        0.0,
        (*inner.signs, 1, -1),
        _framed(
            _framed(inner.constant_slope, nothing, slopes[0]), np.append(inner.output_slope, 0.0), -inner.white_slope
        ),
        _framed(_framed(inner.linear_slope, nothing, slopes[1]), np.zeros(p + 1), 0.0),
        np.zeros(p + 2),
        0.0,
    )


def _framed(inner: Floats, side: Floats, corner: float) -> Floats:
    """A symmetric matrix with one more row and column."""
    return np.block([[inner, side[:, None]], [side[None], np.array([[corner]])]])
