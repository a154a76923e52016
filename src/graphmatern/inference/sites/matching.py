"""Expectation propagation: sites that match the moments each observation would give by itself.

Without its own site the process at observation i has the *cavity* N(m₋, v₋), the one that the others leave. The true
likelihood times this cavity has the mass Z(m₋, v₋) = E p(y | f), and its mean and variance follow from the derivatives
of log Z; the site is to be such that q has these moments. At the fixed point

    log p(y) ≈ log ∫ p(f) Π site_i df + Σ [log Z_i − log ∫ cavity_i site_i df],

which is stationary in the sites, so that it changes with a parameter as if these were fixed (Minka 2001; Seeger 2005).
Unlike the best Gaussian in the sense of the evidence lower bound, which settles on one explanation of an outlier and is
too sure of it, q covers them all.

With a power below 1 each site stands for that power of its likelihood, many times over (Minka 2004): cavities keep the
rest of the site, the terms of the sum are divided by the power, and the limit 0 is the evidence lower bound. Parameters
are learned at 0.8, where updates converge that would not at 1, and whose evidence does not tempt the search to where
every observation is half an outlier. Where parameters are integrated over they are weighed at 1, because lower powers
prefer too much noise; predictions are made at 1 too, wherever that has a fixed point nearby.

Updates need not converge. They are damped, and extrapolated, where that brings them nearer to a fixed point; else a
double loop takes over (Opper and Winther 2005): with the marginals held from which the cavities are taken, what stands
above is convex in the sites, and is minimised; then the marginals are those of q, and so on. Sites that do not come to
rest all the same are reported as such.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from graphmatern._validation import warn
from graphmatern.errors import NumericalError, NumericalWarning
from graphmatern.inference.sites.marginals import Sites
from graphmatern.inference.sites.updates import Approximation, Extrapolation, evaluate_sites, fit_sites, residual_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from graphmatern.inference.sites.marginals import LatentField, Marginals
    from graphmatern.inference.sites.updates import SiteLikelihood, SiteState

    Floats = NDArray[np.float64]

__all__ = [
    "HOPELESS",
    "REFINED",
    "MatchedState",
    "MomentMatching",
    "Tilted",
    "evaluate_matched",
    "expected_log_sites",
    "has_cavities",
    "match_moments",
    "tilt",
]

_LEAST_LEFT = 1e-10  # share of the precision at an observation that its own site must leave to the others
_MOST_VARIANCE = 100.0  # of a cavity, relative to the prior's: negative sites may raise it, but not as far as that
_LEAST_VARIANCE = 1e-8  # of what an observation leaves, relative to the cavity's: less is rounding
_SHARES, _LEAST_SHARE = (0.8, 0.3), 2.0**-20  # of the way to their targets that sites go at once
_CLEARLY = 0.8  # of the squared distance to a fixed point that may be left by an update
_POWERS = (0.8, 0.5, 0.0)  # tried in turn
_MOST_UPDATES = 80  # at one power
_UPDATES_TO_WEIGH, _OUTER_TO_WEIGH = 20, 2  # where parameters are only weighed: likely ones take about four updates
HOPELESS = 20.0  # nats below the best evidence, where parameters have no weight
REFINED = 1e-12  # how exact the sites of predictions are; see `match_moments`
_PATIENCE = 3  # parameters that a search may try in vain before the power is lowered
_INNER = 10  # steps of the inner loop at most
_SLACK = 1e-12  # by which rounding may raise what is minimised, relative to its size


@dataclass(frozen=True, eq=False)
class MatchedState:
    """Sites with everything that was computed from them.

    Attributes
    ----------
    sites : Sites
        The sites.
    marginals : Marginals
        Of q.
    cavity_mean, cavity_variance : ndarray, shape (n_latents, n)
        Of f at each observation without its own site, known offsets left out.
    target : Sites
        Sites that match the moments.
    evidence : float
        Approximate log evidence.
    power : float
        Of the likelihood that a site stands for at a time.
    converged : bool
        Whether the updates came to rest.
    n_iterations : int
        Updates taken.
    """

    sites: Sites
    marginals: Marginals
    cavity_mean: Floats
    cavity_variance: Floats
    target: Sites
    evidence: float
    power: float = 1.0
    converged: bool = False
    n_iterations: int = 0
    n_clipped = 0

    @property
    def distance(self) -> Floats:
        """How far the sites are from their targets; see `updates.residual_of`."""
        return residual_of(self.sites, self.target, self.marginals)

    def log_likelihood(self, observed: SiteLikelihood) -> torch.Tensor:
        """What the evidence owes to the likelihood and its parameters, differentiable in these."""
        mean, variance = (torch.from_numpy(x) for x in (self.cavity_mean + observed.offset, self.cavity_variance))
        return observed.likelihood.marginal_log_power(observed.y, mean, variance, self.power).sum() / self.power

    def gradient(self, latent: LatentField) -> Floats:
        """Derivative of the negative evidence in the engine's coordinates, at a fixed point."""
        return latent.gradient(self.sites, self.marginals)


class MomentMatching(Approximation):
    """The approximation by expectation propagation, with the first power whose updates converge.

    Parameters
    ----------
    power : float
        To begin with.

    Attributes
    ----------
    power : float
        In use now; it is lowered if updates do not converge.
    """

    def __init__(self, power: float = _POWERS[0]) -> None:
        self.power = power
        self._failures = 0  # at this power, while there was somewhere to turn back to

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
    ) -> MatchedState | SiteState:
        """Find a fixed point; see `match_moments`.

        Raises
        ------
        NumericalError
            Where there is none and one was ``searching`` from parameters that have one, the first few times: such a
            search had better turn back. Always, where parameters are ``weighing`` against each other: evidences of
            different powers do not compare.
        """
        most = _UPDATES_TO_WEIGH if weighing else _MOST_UPDATES
        limited = options | {"max_iterations": min(most, options.get("max_iterations", most))}
        if weighing:
            limited["max_outer_steps"] = _OUTER_TO_WEIGH
            limited["hopeless"] = -np.inf if compared_with is None else compared_with - HOPELESS
        while self.power > 0.0:
            # Away from a fixed point the evidence says nothing: there is no comparing before the updates end.
            found = match_moments(latent, observed, start, power=self.power, **limited)
            if found.converged:
                return found
            self._failures += not weighing
            if weighing or (searching and self._failures <= _PATIENCE):
                raise NumericalError(
                    "expectation propagation does not converge. Likely cause: parameters under which "
                    "observations contradict each other."
                )
            self.power, self.changed = max(power for power in _POWERS if power < self.power), True
            self._failures = 0
        return fit_sites(latent, observed, start, compared_with=compared_with, **options)

    def refine(self, latent: LatentField, observed: SiteLikelihood, state: Any) -> Any:
        """The fixed point of full expectation propagation next to another, where it is found; else the other."""
        with contextlib.suppress(NumericalError):
            full = evaluate_matched(latent, observed, state.sites)
            found = _iterate(latent, observed, full, REFINED, _MOST_UPDATES)
            if found.converged:
                return found
        return state

    def evaluate(self, latent: LatentField, observed: SiteLikelihood, sites: Sites) -> MatchedState | SiteState:
        """Take sites as they are."""
        if self.power == 0.0:
            return evaluate_sites(latent, observed, sites)
        return evaluate_matched(latent, observed, sites, power=self.power)

    def warn_of_fallback(self) -> None:
        """Warn where the updates came to rest at a low power only."""
        if self.power < _POWERS[0]:
            what = f"power {self.power:g} of it was" if self.power else "variational inference was"
            warn(
                f"observations contradict each other so much that expectation propagation does not converge: {what} "
                "used instead, whose standard deviations near such observations may be too small. Look for conflicting "
                "values at the same nodes, or start from a larger noise",
                NumericalWarning,
            )


def evaluate_matched(
    latent: LatentField,
    observed: SiteLikelihood,
    sites: Sites,
    *,
    power: float = 1.0,
    held: Marginals | None = None,
) -> MatchedState:
    """Marginals, cavities, targets and evidence of given sites.

    Parameters
    ----------
    latent : LatentField
        The latent processes.
    observed : SiteLikelihood
        The observations.
    sites : Sites
        The sites.
    power : float
        Of the likelihood that a site stands for at a time.
    held : Marginals, optional
        From which the cavities are taken; those of q by default.

    Raises
    ------
    NumericalError
        Where q or a cavity does not exist.
    """
    marginals = latent.marginals(sites)
    outer = marginals if held is None else held
    if not has_cavities(sites, outer.variance, latent.prior_variance, power).all():
        raise NumericalError("a site outweighs what the others leave. Likely cause: sites of other parameters.")
    found = tilt(observed, sites, outer.mean, outer.variance, power)
    target, mean, variance = found.target, marginals.mean, marginals.variance
    if held is not None:
        target = Sites(
            target.first + (held.mean / held.variance - mean / variance) / power,
            target.second + (1.0 / held.variance - 1.0 / variance) / power,
        )
    # log ∫ p(f) Π site df from KL(q ‖ p) = E log Π site − that.
    of_sites = float(expected_log_sites(sites, mean, variance).sum()) - marginals.divergence
    evidence = of_sites + float(found.gains.sum())
    if not np.isfinite(evidence):
        raise NumericalError(
            "the approximate evidence is not finite. Likely causes: (a) observations far beyond what the likelihood "
            "allows; (b) parameters so extreme that rounding hides the data."
        )
    return MatchedState(sites, marginals, found.cavity_mean, found.cavity_variance, target, evidence, power)


class Tilted(NamedTuple):
    """Single observations beside their cavities; arrays of the shape of the sites.

    Attributes
    ----------
    cavity_mean, cavity_variance : ndarray
        Of f without its own site, known offsets left out.
    target : Sites
        Sites that match the moments.
    gains : ndarray
        Log mass of the likelihood, less that of the site, over the power.
    """

    cavity_mean: Floats
    cavity_variance: Floats
    target: Sites
    gains: Floats


def has_cavities(sites: Sites, variance: Floats, prior_variance: Floats, power: float) -> NDArray[np.bool_]:
    """Whether each observation's process exists without its own site, given its variance with it."""
    left = 1.0 - power * sites.second * variance
    return np.asarray((left > _LEAST_LEFT) & (variance < left * _MOST_VARIANCE * prior_variance))


def expected_log_sites(sites: Sites, mean: Floats, variance: Floats) -> Floats:
    """Means of the logarithms of the sites under q."""
    return sites.first * mean - 0.5 * sites.second * (mean**2 + variance)


def tilt(observed: SiteLikelihood, sites: Sites, mean: Floats, variance: Floats, power: float) -> Tilted:
    """What each observation alone makes of its cavity, from the moments with its own site."""
    first, second = (power * one for one in sites)
    left = 1.0 - second * variance
    own_mean, own_variance = (mean - variance * first) / left, variance / left
    # q is close to each of the distributions whose moments it is to match.
    near = torch.from_numpy(mean + observed.offset), torch.from_numpy(variance)
    found = observed.likelihood.marginal(
        observed.y, torch.from_numpy(own_mean + observed.offset), torch.from_numpy(own_variance), power, near
    )
    slope = found.in_mean.numpy()
    # ∂Z/∂v = ½ ∂²Z/∂m² for a Gaussian average, so this is the second derivative of log Z in the mean.
    bend = 2.0 * found.in_variance.numpy() - slope**2
    kept = np.maximum(1.0 + own_variance * bend, _LEAST_VARIANCE)
    target = Sites((slope - own_mean * bend) / (power * kept), -bend / (power * kept))
    own = 0.5 * np.log(left) + left * (own_mean * (first - 0.5 * second * own_mean) + 0.5 * own_variance * first**2)
    return Tilted(own_mean, own_variance, target, (found.value.numpy() - own) / power)


def match_moments(
    latent: LatentField,
    observed: SiteLikelihood,
    start: Sites | None = None,
    *,
    tolerance: float = 1e-12,
    max_iterations: int = 200,
    max_outer_steps: int | None = None,
    hopeless: float = -np.inf,
    power: float = 1.0,
) -> MatchedState:
    """Find a fixed point of expectation propagation at fixed parameters.

    Parameters
    ----------
    latent : LatentField
        The latent processes.
    observed : SiteLikelihood
        The observations.
    start : Sites, optional
        Where to start; by default from the likelihood's guess at f.
    tolerance : float
        The updates end where half the squared distance between sites and targets, in Fisher's metric, is this small
        relative to 1 + |evidence|.
    max_iterations : int
        Updates at most.
    max_outer_steps : int, optional
        Of these, by the double loop, which takes long; no limit by default.
    hopeless : float
        An evidence below which nobody asks for it more exactly; updates then end where they are.
    power : float
        Of the likelihood that a site stands for at a time.

    Returns
    -------
    MatchedState
        Where nothing came to rest, that with the sites nearest to their targets.
    """
    found = None
    if start is not None:
        with contextlib.suppress(NumericalError):
            state = evaluate_matched(latent, observed, start, power=power)
            found = _iterate(latent, observed, state, tolerance, max_iterations, max_outer_steps, hopeless)
    # Sites of other parameters may not suit these; but where few steps are allowed, they are not to be wasted.
    if found is None or not (found.converged or max_outer_steps is not None):
        first = _first_state(latent, observed, power)
        fresh = _iterate(latent, observed, first, tolerance, max_iterations, max_outer_steps, hopeless)
        if found is None or fresh.converged or _size(fresh) < _size(found):
            found = fresh
    return found


def _first_state(latent: LatentField, observed: SiteLikelihood, power: float) -> MatchedState:
    """A state without sites of other parameters: the prior, which sides with no observation against another."""
    nothing = np.zeros(observed.start().first.shape)
    return evaluate_matched(latent, observed, Sites(nothing, nothing), power=power)


def _size(state: MatchedState) -> float:
    """About what is left to gain."""
    return 0.5 * float(state.distance @ state.distance)


def _iterate(
    latent: LatentField,
    observed: SiteLikelihood,
    state: MatchedState,
    tolerance: float,
    max_iterations: int,
    max_outer_steps: int | None = None,
    hopeless: float = -np.inf,
) -> MatchedState:
    """Update sites until they are at rest; see `match_moments`."""
    memory, best, outer_steps = Extrapolation(), state, 0
    for count in range(max_iterations):
        size = _size(state)
        best = state if size < _size(best) else best
        at_rest = size <= tolerance * (1.0 + min(abs(state.evidence), state.distance.size))
        if at_rest or state.evidence + 2.0 * size < hopeless:  # twice what is left to gain, about
            return replace(state, converged=True, n_iterations=count)
        guess = memory.extrapolate(state.target, state.distance)
        found = None if guess is None else _nearer(latent, observed, state, guess)
        for share in _SHARES:
            if found is None:
                found = _nearer(latent, observed, state, state.sites.towards(state.target, share))
        if found is None:
            if outer_steps == max_outer_steps:
                break
            found, outer_steps = _outer_step(latent, observed, state), outer_steps + 1
        state = found
    return replace(best, n_iterations=max_iterations)


def _nearer(latent: LatentField, observed: SiteLikelihood, state: MatchedState, sites: Sites) -> MatchedState | None:
    """The state with other sites, where it exists and is clearly nearer to a fixed point."""
    found = _try(latent, observed, sites, state.power)
    return found if found is not None and _size(found) < _CLEARLY * _size(state) else None


def _outer_step(latent: LatentField, observed: SiteLikelihood, state: MatchedState) -> MatchedState:
    """One outer step of the double loop, its inner minimum roughly found."""
    inner, share, enough = state, 1.0, 0.05 * _size(state)
    for _ in range(_INNER):
        found = None
        while found is None and share >= _LEAST_SHARE:
            found = _try(latent, observed, inner.sites.towards(inner.target, share), state.power, state.marginals)
            if found is None or found.evidence > inner.evidence + _SLACK * (1.0 + abs(inner.evidence)):
                found, share = None, 0.5 * share
        if found is None:
            break
        inner, share = found, min(1.0, 2.0 * share)
        if _size(inner) <= enough:
            break
    for _ in range(60):
        moved = _try(latent, observed, inner.sites, state.power)
        if moved is not None:
            return moved
        # With the marginals of q some cavity may be lost: go part of the way.
        inner = replace(inner, sites=state.sites.towards(inner.sites, 0.5))
    return state


def _try(
    latent: LatentField, observed: SiteLikelihood, sites: Sites, power: float, held: Marginals | None = None
) -> MatchedState | None:
    """The state with some sites, where q and all cavities exist; else None."""
    try:
        return evaluate_matched(latent, observed, sites, power=power, held=held)
    except NumericalError:
        return None
