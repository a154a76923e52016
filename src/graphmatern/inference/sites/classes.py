"""Expectation propagation for classes, with the correlation between their processes kept.

A label y says that f_y + ε_y exceeds every other f_c + ε_c, with ε ~ N(0, 1): that differences of processes are
positive, and nothing of their common level. The processes are then no longer independent, and treating them as if
they were is overconfident. Each condition becomes a Gaussian factor exp(β g − ½ α g²) of the difference g
(`likelihoods.orthant`). Given a level a of the observation, integrated over the real line, its factors are sites on one
process each: with the noise integrated out they have precisions d_y = 1 and d_c = α / (1 + α),

    exp(t_c (f_c + a) − ½ d_c (f_c + a)²),   t_y = 0,   t_c = −β / (1 + α).

So the processes are coupled only through the levels of the n observations, linear effects that they share: with
E_c = (K + 1/d_c)⁻¹ the levels have information A = Σ E_c, and all that follows costs n_classes + 1 factorisations of
(n, n) matrices (Riihimäki, Jylänki and Vehtari 2013). The cavity of an observation, its whole site taken out, is a
correlated Gaussian of the n_classes values there.

Everything comes from K at the observations, which any engine has.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.linalg as la

from graphmatern._validation import FaultList
from graphmatern.errors import LikelihoodError, NumericalError
from graphmatern.inference.cavities import class_cavities, site_of_classes
from graphmatern.inference.sites.marginals import Sites
from graphmatern.inference.sites.updates import Approximation, Extrapolation
from graphmatern.likelihoods import differences, orthant

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from graphmatern.inference.process import Engine
    from graphmatern.inference.sites.marginals import LatentField
    from graphmatern.inference.sites.updates import SiteLikelihood
    from graphmatern.likelihoods import Orthant

    Floats = NDArray[np.float64]
    Longs = NDArray[np.int64]

__all__ = [
    "ClassState",
    "CoupledClasses",
    "CoupledProcesses",
    "check_suits",
    "evaluate_classes",
    "match_classes",
    "sites_of_labels",
]

_CLEARLY = 0.8  # of the squared distance to a fixed point that may be left by an update
_LEAST_PRECISION = 1e-30  # of a site, to divide by


@dataclass(frozen=True, eq=False)
class ClassState:
    """Factors of the conditions with everything that was computed from them.

    Attributes
    ----------
    sites : Sites
        Potentials β and precisions α of the factors, 0 for the label itself; each of shape (n_classes, n).
    target : Sites
        Factors that match the moments.
    distance : ndarray
        How far from each other these are; half its square is about what is left to gain.
    evidence : float
        Approximate log evidence.
    precision, potential : ndarray, shape (n_classes, n)
        Of the sites on the processes, given that the levels are at their means.
    posterior : CoupledProcesses
        The processes at the observations.
    converged : bool
        Whether the updates came to rest.
    n_iterations : int
        Updates taken.
    """

    sites: Sites
    target: Sites
    distance: Floats
    evidence: float
    precision: Floats
    potential: Floats
    posterior: CoupledProcesses
    converged: bool = False
    n_iterations: int = 0
    n_clipped = 0

    def gradient(self, latent: LatentField) -> Floats:
        """Derivative of the negative evidence in the engine's coordinates, at a fixed point."""
        return latent.pull_back(-self.posterior.in_covariance())

    def log_likelihood(self, observed: SiteLikelihood) -> Any:
        """Nothing is to be learned of this likelihood."""
        raise NotImplementedError(repr(observed.likelihood))


class CoupledClasses(Approximation):
    """The approximation that keeps the correlation between classes; see `match_classes`."""

    def fit(
        self,
        latent: LatentField,
        observed: SiteLikelihood,
        start: Sites | None,
        *,
        searching: bool = False,
        weighing: bool = False,
        compared_with: float | None = None,
        **options: Any,
    ) -> ClassState:
        """Find the fixed point."""
        del searching, weighing, compared_with
        return match_classes(latent, observed, start, **options)

    def evaluate(self, latent: LatentField, observed: SiteLikelihood, sites: Sites) -> ClassState:
        """Take sites as they are."""
        return evaluate_classes(latent, observed, sites)


def match_classes(
    latent: LatentField,
    observed: SiteLikelihood,
    start: Sites | None = None,
    *,
    tolerance: float = 1e-12,
    max_iterations: int = 200,
) -> ClassState:
    """Find the fixed point of expectation propagation at fixed parameters; the likelihood is log-concave.

    Parameters
    ----------
    latent : LatentField
        The latent processes.
    observed : SiteLikelihood
        The labels.
    start : Sites, optional
        Factors to begin with; by default none.
    tolerance : float
        The updates end where half the squared distance is this small, relative to 1 + |evidence|.
    max_iterations : int
        Updates at most.
    """
    state = None
    if start is not None:
        with contextlib.suppress(NumericalError):
            state = evaluate_classes(latent, observed, start)
    if state is None:
        nothing = np.zeros((observed.likelihood.n_latents, len(observed.y)))
        state = evaluate_classes(latent, observed, Sites(nothing, nothing))
    memory, share, best = Extrapolation(), 1.0, state
    for count in range(max_iterations):
        size = _size(state)
        best = state if size < _size(best) else best
        if size <= tolerance * (1.0 + abs(state.evidence)):
            return replace(state, converged=True, n_iterations=count)
        guess = memory.extrapolate(state.target, state.distance)
        found = None
        if guess is not None and (guess.second >= 0.0).all():
            with contextlib.suppress(NumericalError):
                found = evaluate_classes(latent, observed, guess)
        if found is None or _size(found) > _CLEARLY * size:
            found = evaluate_classes(latent, observed, state.sites.towards(state.target, share))
            share = max(0.1, 0.5 * share) if _size(found) > size else min(1.0, 1.5 * share)
        state = found
    return replace(best, n_iterations=max_iterations)


def _size(state: ClassState) -> float:
    return 0.5 * float(state.distance @ state.distance)


def evaluate_classes(latent: LatentField, observed: SiteLikelihood, sites: Sites) -> ClassState:
    """Moments, targets and evidence of given factors.

    Raises
    ------
    NumericalError
        Where rounding leaves no distribution.
    """
    n_classes = observed.likelihood.n_latents
    label = observed.y.numpy().astype(np.int64)
    others, ahead = _compared(label, n_classes)
    alpha, beta = (np.take_along_axis(one.T, others, axis=1) for one in (sites.second, sites.first))
    d, t = _given_levels(label, others, alpha, beta, n_classes)
    posterior = CoupledProcesses(latent.covariance, d, t)
    mean, covariance = posterior.mean, posterior.covariance
    cavity = class_cavities(mean, covariance, d, t)
    try:
        conditions = _conditions(ahead, cavity.mean, cavity.covariance, (alpha, beta))
    except np.linalg.LinAlgError:
        raise NumericalError("the cavities of the labels are singular. Likely cause: extreme parameters.") from None
    # log ∫ cavity site df, for a site exp(vᵀf − ½ fᵀΠf): with Σ = (Σ₋⁻¹ + Π)⁻¹ the covariance of q.
    _, shrunk = np.linalg.slogdet(cavity.left)
    own_mean, matrix, vector = cavity.mean, cavity.precision, cavity.potential
    mixed = vector - _times(matrix, own_mean)
    own = 0.5 * shrunk + _dot(own_mean, vector) - 0.5 * _dot(own_mean, _times(matrix, own_mean))
    own += 0.5 * _dot(mixed, _times(covariance, mixed))
    log_determinant = posterior.log_determinant - float(np.log(d.sum(axis=1)).sum())
    evidence = 0.5 * float(np.sum(vector * mean)) - 0.5 * log_determinant
    evidence += float(conditions.log_probability.sum() - own.sum())
    if not np.isfinite(evidence):
        raise NumericalError("the approximate evidence is not finite. Likely cause: extreme parameters.")
    target = Sites(*(_spread_out(one, others, n_classes) for one in (conditions.potential, conditions.precision)))
    # In Fisher's metric of each difference; see `updates.residual_of`.
    gap = _times(ahead, mean)
    v = np.einsum("nci,nij,ncj->nc", ahead, covariance, ahead) + 2.0
    v = v / (1.0 + v * alpha)
    by_potential, by_precision = conditions.potential - beta, conditions.precision - alpha
    distance = np.concatenate(
        [(np.sqrt(v) * (by_potential - by_precision * gap)).ravel(), (np.sqrt(0.5) * v * by_precision).ravel()]
    )
    potential = t - d * posterior.level[:, None]
    return ClassState(
        sites,
        target,
        distance,
        evidence,
        d.T.copy(),
        potential.T.copy(),
        posterior,
    )


def sites_of_labels(labels: Longs, mean: Floats, covariance: Floats) -> tuple[Floats, Floats]:
    """Sites exp(vᵀf − ½ fᵀΠf) of labels, each the best with all other sites as they are.

    Parameters
    ----------
    labels : ndarray of int64, shape (n,)
        Their codes.
    mean : ndarray, shape (n, n_classes)
        Of the processes there, without the label.
    covariance : ndarray, shape (n, n_classes, n_classes)
        Between them.

    Returns
    -------
    precision : ndarray, shape (n, n_classes, n_classes)
        Π.
    potential : ndarray, shape (n, n_classes)
        v.
    """
    n_classes = mean.shape[1]
    others, ahead = _compared(labels, n_classes)
    found = _conditions(ahead, mean, covariance)
    return site_of_classes(*_given_levels(labels, others, found.precision, found.potential, n_classes))


def _compared(label: Longs, n_classes: int) -> tuple[Longs, Floats]:
    """The other classes (n, n_classes − 1), and what maps f to its differences (n, n_classes − 1, n_classes)."""
    others = np.array([np.delete(np.arange(n_classes), c) for c in range(n_classes)])
    ahead = np.stack([differences(n_classes, c) for c in range(n_classes)])
    return others[label], ahead[label]


def _conditions(ahead: Floats, mean: Floats, covariance: Floats, start: tuple[Floats, Floats] | None = None) -> Orthant:
    """Factors of the differences, noise and all, for the processes at observations without their sites."""
    spread = ahead @ (covariance + np.eye(mean.shape[1])) @ ahead.transpose(0, 2, 1)
    return orthant(_times(ahead, mean), spread, start)


def _given_levels(label: Longs, others: Longs, alpha: Floats, beta: Floats, n_classes: int) -> tuple[Floats, Floats]:
    """Precisions and potentials of the sites given the levels; each of shape (n, n_classes)."""
    d, t = np.ones((len(label), n_classes)), np.zeros((len(label), n_classes))
    np.put_along_axis(d, others, alpha / (1.0 + alpha), axis=1)
    np.put_along_axis(t, others, -beta / (1.0 + alpha), axis=1)
    return d, t


def _spread_out(values: Floats, others: Longs, n_classes: int) -> Floats:
    """Values of the other classes, as one row per class, 0 for the label; shape (n_classes, n)."""
    found = np.zeros((len(values), n_classes))
    np.put_along_axis(found, others, values, axis=1)
    return found.T.copy()


def _times(matrices: Floats, vectors: Floats) -> Floats:
    return np.asarray(np.einsum("nij,nj->ni", matrices, vectors))


def _dot(one: Floats, other: Floats) -> Floats:
    return np.asarray(np.einsum("ni,ni->n", one, other))


class CoupledProcesses:
    """Processes with covariance K under sites (d, t) and the levels of n observations, which they share.

    Parameters
    ----------
    k : ndarray, shape (n, n)
        K.
    d, t : ndarray, shape (n, n_classes)
        Precisions and potentials of the sites given the levels.

    Attributes
    ----------
    mean : ndarray, shape (n, n_classes)
        Of the processes at the observations.
    covariance : ndarray, shape (n, n_classes, n_classes)
        Between them.
    root : ndarray, shape (n, n)
        L with LLᵀ = A, the information on the levels.
    level : ndarray, shape (n,)
        Means of the levels.
    log_determinant : float
        Σ log det (I + K d_c) + log det A.
    """

    def __init__(self, k: Floats, d: Floats, t: Floats) -> None:
        n, n_classes = d.shape
        on_diagonal = np.diag_indices(n)
        information, cross = np.zeros((n, n)), np.zeros(n)
        self._inverses, explained, weights = [], [], []
        log_determinant = 0.0
        for c in range(n_classes):
            root = np.sqrt(np.maximum(d[:, c], _LEAST_PRECISION))
            inner = root[:, None] * k * root
            inner[on_diagonal] += 1.0
            factor = _cholesky(inner)
            log_determinant += 2.0 * float(np.log(np.diag(factor)).sum())
            inverse, _ = la.lapack.dpotri(factor, lower=1, overwrite_c=1)
            diagonal = np.diag(inverse).copy()
            inverse = inverse + inverse.T  # the other triangle is zero
            inverse[on_diagonal] = diagonal
            e = root[:, None] * inverse * root  # E_c
            # K E_c, from √d K √d = B − I with B what was inverted.
            shrunk = inverse * root * (-1.0 / root)[:, None]
            shrunk[on_diagonal] += 1.0
            self._inverses.append(e)
            explained.append(shrunk)
            weights.append(t[:, c] - t[:, c] @ shrunk)
            information += e
            cross += weights[-1]
        self.root = _cholesky(information)
        self.log_determinant = log_determinant + 2.0 * float(np.log(np.diag(self.root)).sum())
        self.level = la.cho_solve((self.root, True), cross, check_finite=False)
        self._weights = np.column_stack([w - e @ self.level for w, e in zip(weights, self._inverses, strict=True)])
        self.mean = k @ self._weights
        self.covariance = np.empty((n, n_classes, n_classes))
        own = [np.diag(k) - np.einsum("ij,ij->i", one, k) for one in explained]
        halves = [la.lapack.dtrtrs(self.root, one.T, lower=1, overwrite_b=1)[0].T for one in explained]
        for c in range(n_classes):
            for other in range(c + 1):
                shared = np.einsum("ik,ik->i", halves[c], halves[other])
                self.covariance[:, c, other] = self.covariance[:, other, c] = shared
            self.covariance[:, c, c] += own[c]

    def in_covariance(self) -> Floats:
        """Derivative of the log evidence in K at fixed sites: ½ Σ (w wᵀ − E + E A⁻¹ E); shape (n, n)."""
        found = self._weights @ self._weights.T
        for e in self._inverses:
            half, _ = la.lapack.dtrtrs(self.root, e, lower=1)
            found += half.T @ half - e
        return np.asarray(0.5 * found)


def _cholesky(matrix: Floats) -> Floats:
    """L with LLᵀ a symmetric matrix, whose place it takes; called hundreds of times, often for small matrices."""
    found, fault = la.lapack.dpotrf(matrix.T, lower=1, overwrite_a=1)
    if fault or not np.isfinite(found[-1, -1]):
        raise NumericalError("rounding leaves the classes no joint distribution: extreme parameters.")
    return np.asarray(found)


def check_suits(engine: Engine) -> None:
    """Raise where classes cannot be coupled: for restricted q, and for replicates."""
    if engine.restricts or len(engine.groups) != 1:
        faults = FaultList("nothing was fitted", LikelihoodError)
        rule = "must be another with inducing nodes, with eigenvectors, and with replicates"
        raise faults.raise_now("likelihood", rule, "MultinomialProbit", "Use 'softmax' or 'robustmax'.")
