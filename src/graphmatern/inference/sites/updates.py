"""Variational inference by natural-gradient updates of Gaussian sites.

q(f) is proportional to p(f) Π exp(η₁ f(x) − ½ η₂ f(x)²), with one site (η₁, η₂) per observation and latent process: its
precision is that of the prior plus η₂ at the observed nodes. This is the best Gaussian q there is, since the optimum
has this form (Opper and Archambeau 2009), and its natural gradient needs only marginals: with E the expected
log-likelihood, the optimum has η₂ = −2 ∂E/∂v and η₁ = ∂E/∂m + η₂ m (Khan and Lin 2017). Linear effects are part of f;
known offsets are added before the likelihood sees it.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from graphmatern.errors import NumericalError
from graphmatern.inference.sites.marginals import Marginals, Sites

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from graphmatern.inference.sites.marginals import LatentField
    from graphmatern.likelihoods import Expectation, Likelihood

    Floats = NDArray[np.float64]

__all__ = [
    "Approximation",
    "BoundMaximisation",
    "Extrapolation",
    "SiteLikelihood",
    "SiteState",
    "evaluate_sites",
    "fit_sites",
    "residual_of",
]

_SMALLEST_STEP = 2.0**-16
_APPROACH, _APPROACH_SHARE = 10, 0.3  # updates of a careful beginning, and how far each goes
_COARSE = 1e-2  # of its distance from the ELBO it is compared with, to which an ELBO must be known
_ROUNDING = 1e-9  # relative gains that rounding may hide
_SLACK = 1e-12  # by which rounding may lower an ELBO, relative to its size


@dataclass(frozen=True, eq=False)
class SiteLikelihood:
    """The observations of all replicates, joined, and how they depend on the latent processes.

    Attributes
    ----------
    y : Tensor, shape (n,)
        Observations, as the likelihood wants them.
    likelihood : Likelihood
        Of each observation.
    offset : ndarray, shape (n,)
        Known part of the latent mean, such as the logarithm of an exposure.
    """

    y: torch.Tensor
    likelihood: Likelihood
    offset: Floats

    def start(self) -> Sites:
        """Sites to begin with, from the likelihood's guess at f; each of shape (n_latents, n)."""
        centre, precision = (guess.numpy() for guess in self.likelihood.starting_sites(self.y))
        return Sites(precision * (centre - self.offset), precision.copy())

    def latent_mean(self, marginals: Marginals) -> torch.Tensor:
        """Mean of f, offsets included; shape (n_latents, n)."""
        return torch.from_numpy(marginals.mean + self.offset)

    def expectation(self, marginals: Marginals) -> Expectation:
        """Expected log-likelihoods with derivatives, under q."""
        variance = torch.from_numpy(marginals.variance)
        return self.likelihood.expectation(self.y, self.latent_mean(marginals), variance)


@dataclass(frozen=True, eq=False)
class SiteState:
    """Sites with everything that was computed from them.

    Attributes
    ----------
    sites : Sites
        The sites.
    marginals : Marginals
        Of q.
    expectation : Expectation
        Of the log-likelihoods.
    elbo : float
        Evidence lower bound.
    converged : bool
        Whether the updates came to rest.
    n_iterations : int
        Updates taken.
    n_clipped : int
        Updates in which negative sites were set to 0, the last resort; 0 where the optimum was found all the same.
    history : list of float
        The ELBO before the first and after every update.
    """

    sites: Sites
    marginals: Marginals
    expectation: Expectation
    elbo: float
    converged: bool = False
    n_iterations: int = 0
    n_clipped: int = 0
    history: list[float] = field(default_factory=list)

    @property
    def evidence(self) -> float:
        """What stands for the log evidence."""
        return self.elbo

    def log_likelihood(self, observed: SiteLikelihood) -> torch.Tensor:
        """What the ELBO owes to the likelihood and its parameters, differentiable in these."""
        mean, variance = observed.latent_mean(self.marginals), torch.from_numpy(self.marginals.variance)
        return observed.likelihood.expected_log_prob(observed.y, mean, variance).sum()

    def gradient(self, latent: LatentField) -> Floats:
        """Derivative of the negative ELBO in the engine's coordinates, at the optimum over the sites."""
        return latent.gradient(self.sites, self.marginals)

    def target(self) -> Sites:
        """Where the natural gradient points: sites that match the expectations under the present q."""
        second = -2.0 * self.expectation.in_variance.numpy()
        return Sites(self.expectation.in_mean.numpy() + second * self.marginals.mean, second)


class Approximation:
    """A way to fit sites, which are what parameters are learned with and predictions are made with alike.

    Attributes
    ----------
    changed : bool
        Whether another way was resorted to, so that evidences of before and after do not compare; whoever compares them
        sets this back.
    """

    changed = False

    def refine(self, latent: LatentField, observed: SiteLikelihood, state: Any) -> Any:
        """The state that predictions are made with."""
        del latent, observed
        return state

    def warn_of_fallback(self) -> None:
        """Warn where another way was resorted to."""


class BoundMaximisation(Approximation):
    """The approximation that maximises the evidence lower bound; see `fit_sites`."""

    def fit(
        self,
        latent: LatentField,
        observed: SiteLikelihood,
        start: Sites | None,
        *,
        searching: bool = False,
        weighing: bool = False,
        **options: Any,
    ) -> SiteState:
        """Find the best sites; there are always some."""
        del searching, weighing
        return fit_sites(latent, observed, start, **options)

    def evaluate(self, latent: LatentField, observed: SiteLikelihood, sites: Sites) -> SiteState:
        """Take sites as they are."""
        return evaluate_sites(latent, observed, sites)


def evaluate_sites(latent: LatentField, observed: SiteLikelihood, sites: Sites) -> SiteState:
    """Marginals, expectations and ELBO of given sites."""
    marginals = latent.marginals(sites)
    if observed.likelihood.shift_invariant:
        sites, marginals = _centred(sites, marginals)
    expectation = observed.expectation(marginals)
    elbo = float(expectation.value.sum().item()) - marginals.divergence
    if not np.isfinite(elbo):
        raise NumericalError(
            "the evidence lower bound is not finite. Likely causes: (a) observations far beyond what the likelihood "
            "allows; (b) parameters so extreme that rounding hides the data."
        )
    return SiteState(sites, marginals, expectation, elbo, history=[elbo])


def _centred(sites: Sites, marginals: Marginals) -> tuple[Sites, Marginals]:
    """Remove what the means of all processes have in common, which such a likelihood does not see.

    Its Kullback–Leibler divergence goes with it, so the ELBO can only rise; plain updates remove it slowly. With K⁻¹m =
    η₁ − η₂ m linear in m, the sites of the new means follow.
    """
    first, second = sites
    weights = first - second * marginals.mean
    own_weights = weights - weights.mean(axis=0)
    mean = marginals.mean - marginals.mean.mean(axis=0)
    gained = 0.5 * float(np.sum(weights * marginals.mean) - np.sum(own_weights * mean))
    centred = Sites(own_weights + second * mean, second)
    return centred, marginals._replace(mean=mean, divergence=marginals.divergence - gained)


def fit_sites(
    latent: LatentField,
    observed: SiteLikelihood,
    start: Sites | None = None,
    *,
    tolerance: float = 1e-12,
    max_iterations: int = 200,
    compared_with: float | None = None,
) -> SiteState:
    """Maximise the ELBO over the sites at fixed parameters.

    Each update moves the sites towards their targets, all the way where that raises the ELBO, else by half, a quarter,
    and so on. Targets may be negative; a step whose q would have no positive definite precision is too long. Where the
    last updates foretell where the sequence leads (Anderson's extrapolation) and the ELBO agrees, it goes there.

    Parameters
    ----------
    latent : LatentField
        The latent processes.
    observed : SiteLikelihood
        The observations.
    start : Sites, optional
        Where to start; by default from the likelihood's guess at f.
    tolerance : float
        The updates end where a full one would gain about this much, relative to 1 + |ELBO|.
    max_iterations : int
        Updates at most.
    compared_with : float, optional
        The ELBO at other parameters, to compare with: the further from it, the sooner the updates may end.

    Returns
    -------
    SiteState
        Its ELBO is at least that of the start.
    """
    found = None
    if start is not None:
        with contextlib.suppress(NumericalError):
            state = evaluate_sites(latent, observed, start)
            found = _climb(latent, observed, state, tolerance, max_iterations, compared_with)
    if found is None or not found.converged:  # sites of other parameters may not suit these
        fresh = _first_state(latent, observed)
        if found is None or fresh.elbo > found.elbo:
            found = _climb(latent, observed, fresh, tolerance, max_iterations, compared_with)
    return found


def _first_state(latent: LatentField, observed: SiteLikelihood) -> SiteState:
    """A state to climb from, without sites of other parameters.

    Where the log-likelihood is not concave the ELBO has several optima. Observations that the first guess has on the
    wrong side get negative sites, and long steps give them up for lost; short ones without negative sites bring most of
    them over first.
    """
    state = evaluate_sites(latent, observed, observed.start())
    if observed.likelihood.log_concave:
        return state
    for _ in range(_APPROACH):
        first, second = state.target()
        target = Sites(first, np.maximum(second, 0.0))
        state = evaluate_sites(latent, observed, state.sites.towards(target, _APPROACH_SHARE))
    return state


def _climb(
    latent: LatentField,
    observed: SiteLikelihood,
    state: SiteState,
    tolerance: float,
    max_iterations: int,
    compared_with: float | None,
) -> SiteState:
    """Update the sites of a state until nothing is gained; see `fit_sites`."""
    memory = Extrapolation()
    history, clipped, share, converged = [state.elbo], 0, 1.0, False
    for _ in range(max_iterations):
        target = state.target()
        residual = residual_of(state.sites, target, state.marginals)
        # From a start without sites the ELBO of counts may be -1e44: relative to that, anything would be converged.
        scale = 1.0 + min(abs(state.elbo), 1e3 * len(residual))
        enough = (
            tolerance * scale
            if compared_with is None
            else max(tolerance * scale, _COARSE * abs(state.elbo - compared_with))
        )
        gain = 0.5 * float(residual @ residual)
        if gain <= enough:
            converged, clipped = True, 0  # at rest without clipping: how it came here does not matter
            break
        guess = memory.extrapolate(target, residual)
        found = None if guess is None else _try(latent, observed, guess, above=state.elbo)
        if found is None:
            if guess is not None:
                memory = Extrapolation()
            stepped = _ascend(latent, observed, state, target, share)
            if stepped is None and gain <= _ROUNDING * scale:
                converged, clipped = True, 0
                break
            if stepped is None:
                positive = Sites(target.first, np.maximum(target.second, 0.0))
                stepped = _ascend(latent, observed, state, positive, 1.0)
                if stepped is None:
                    break
                clipped += 1
            found, share = stepped[0], min(1.0, 2.0 * stepped[1])
        state = found
        history.append(state.elbo)
    return SiteState(
        state.sites, state.marginals, state.expectation, state.elbo, converged, len(history) - 1, clipped, history
    )


def residual_of(sites: Sites, target: Sites, marginals: Marginals) -> Floats:
    """How far the sites are from their targets; half its square is about what a full step gains; (2 n_latents n,).

    The metric is Fisher's for each marginal: a site moves its mean by v (η₁ − η₂ m) and its log-variance by v η₂.
    """
    m, v = marginals.mean, marginals.variance
    first, second = (its - own for own, its in zip(sites, target, strict=True))
    return np.concatenate([(np.sqrt(v) * (first - second * m)).ravel(), (np.sqrt(0.5) * v * second).ravel()])


class Extrapolation:
    """The last few sites and residuals, for extrapolation (Anderson 1965)."""

    def __init__(self, size: int = 20) -> None:
        self._size = size
        self._targets: list[Floats] = []
        self._residuals: list[Floats] = []

    def extrapolate(self, target: Sites, residual: Floats) -> Sites | None:
        """Note the present sites, and return where the sequence seems to lead; None before there is one."""
        self._targets = [*self._targets[-self._size :], np.stack(target)]
        self._residuals = [*self._residuals[-self._size :], residual]
        if len(self._residuals) < 3:
            return None
        changes = np.stack([one - residual for one in self._residuals[:-1]], axis=1)
        weights, *_ = np.linalg.lstsq(changes, -residual, rcond=1e-8)
        latest = self._targets[-1]
        moved = latest + sum(w * (one - latest) for w, one in zip(weights, self._targets[:-1], strict=True))
        return Sites(*moved) if np.isfinite(moved).all() else None


def _try(latent: LatentField, observed: SiteLikelihood, sites: Sites, above: float) -> SiteState | None:
    """The state with some sites, where q exists and its ELBO is high enough; else None."""
    try:
        found = evaluate_sites(latent, observed, sites)
    except NumericalError:
        return None
    return found if found.elbo >= above - _SLACK * (1.0 + abs(above)) else None


def _ascend(
    latent: LatentField, observed: SiteLikelihood, state: SiteState, target: Sites, share: float
) -> tuple[SiteState, float] | None:
    """The state after the longest step, from ``share`` on, that does not lower the ELBO; None where there is none."""
    while share >= _SMALLEST_STEP:
        found = _try(latent, observed, state.sites.towards(target, share), above=state.elbo)
        if found is not None:
            return found, share
        share *= 0.5
    return None
