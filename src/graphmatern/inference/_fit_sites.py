"""Learning parameters by the converged ELBO of the sites, on either engine.

At the optimum over the sites the ELBO changes with a parameter as if q were fixed (envelope theorem), so its gradient
costs no more than that of a Gaussian marginal likelihood.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from graphmatern.inference._fit_markov import MarkovCoordinates, best_smoothness, check_time
from graphmatern.inference._fit_spectral import eigenpairs_used, prior_loss
from graphmatern.inference._fitting import START_LENGTHSCALES, Learned, minimise
from graphmatern.inference._markov_engine import MarkovEngine
from graphmatern.inference._optimize import Optimum
from graphmatern.inference._rules import Parameter
from graphmatern.inference._sites import fit_sites
from graphmatern.inference._sites_markov import MarkovPosterior, markov_prior
from graphmatern.inference._sites_spectral import SpectralPosterior, SpectralPrior
from graphmatern.inference._spectral import blas_threads
from graphmatern.kernels import Matern, SumKernel

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from graphmatern.graph import Graph
    from graphmatern.inference._fitting import FitOptions
    from graphmatern.inference._rules import Objective
    from graphmatern.inference._sites import LatentPosterior, LatentPrior, SiteObservations, Sites, SiteState
    from graphmatern.kernels import Kernel
    from graphmatern.likelihoods import Likelihood

    Floats = NDArray[np.float64]
    Longs = NDArray[np.int64]

__all__ = ["SITE_ENGINES", "SiteFit", "SiteProblem", "fit_markov_sites", "fit_spectral_sites", "hold_variance"]

_BOUNDS = {"noise": (1e-6, 1e4), "scale": (1e-4, 1e4), "df": (2.05, 1e3), "dispersion": (1e-6, 1e3)}
_MEAN = Parameter("mean", -1e3, 1e3)
# While the parameters move: how many nats they need not gain, and how exact the sites are, relative to the ELBO. Where
# the ELBO has several optima, which differ by nats, there is no point in more.
_PRECISION = {True: (5e-7, 1e-10), False: (1e-4, 1e-8)}
_TO_COMPARE, _TO_KEEP = 1e-5, 1e-12  # how exact the sites are where two optima are compared, and at the end
_FIRST_STEP = 0.5  # in logarithms: far from the optimum the sites converge slowly
_UPDATES, _LAST_UPDATES = 60, 1000  # of the sites at most, on the way and at the end
_ROUNDS = 4  # times that the sites are begun afresh, at most
_FRESH_GAIN = 1e-4  # of the ELBO, by which a fresh beginning must be better


@dataclass(frozen=True, eq=False)
class SiteProblem:
    """What to fit to what.

    Attributes
    ----------
    graph : Graph
        The graph.
    kernel : Kernel, optional
        Of every latent process, with starting values, which the fit may change; by default a Matérn kernel started from
        the data.
    observed : SiteObservations
        The observations; the fit may change the parameters of their likelihood.
    options : FitOptions
        How to fit.
    mean : float
        Constant mean of the latent processes, or where to start it.
    learn_mean : bool
        Whether it is learned.
    n_eigenpairs : int, optional
        Eigenpairs of an engine that uses them; its own choice by default.
    n_threads : int, optional
        Threads of an engine that factorises.
    start : Sites, optional
        Sites to begin with; from the likelihood by default.
    """

    graph: Graph
    kernel: Kernel | None
    observed: SiteObservations
    options: FitOptions
    mean: float = 0.0
    learn_mean: bool = False
    n_eigenpairs: int | None = None
    n_threads: int | None = None
    start: Sites | None = None


@dataclass(frozen=True, eq=False)
class SiteFit(Learned):
    """What a fit returns, whichever engine it used.

    Attributes
    ----------
    engine : str
        Name of the engine.
    kernel : Kernel
        With the learned parameters.
    likelihood : Likelihood
        With the learned parameters.
    mean : float
        Constant mean of the latent processes.
    state : SiteState
        Sites, marginals and ELBO.
    posterior : LatentPosterior
        The latent processes under q, means without the constant.
    optimum : Optimum
        Where the optimiser stopped.
    parameters : list of Parameter
        What was learned.
    objective : callable
        What was minimised.
    jacobian : callable, optional
        Derivatives of the logarithms of the parameters named, in the coordinates the optimiser moved.
    prior_loss : ndarray, shape (n_nodes,), optional
        Bound on the prior variance that a truncated spectrum loses at every node.
    prior_loss_share : float
        Its share of the prior variance, over all nodes.
    """

    engine: str
    kernel: Kernel
    likelihood: Likelihood
    mean: float
    state: SiteState
    posterior: LatentPosterior
    optimum: Optimum
    parameters: list[Parameter]
    objective: Objective
    jacobian: Callable[[], Floats] | None = None
    prior_loss: Floats | None = None
    prior_loss_share: float = 0.0

    @property
    def elbo(self) -> float:
        """Evidence lower bound."""
        return self.state.elbo

    @property
    def converged(self) -> bool:
        """Whether optimiser and sites came to rest."""
        return self.optimum.converged and self.state.converged

    @property
    def n_clipped(self) -> int:
        """Updates in which negative sites were set to 0, the last resort."""
        return self.state.n_clipped

    def latent_marginals(self, nodes: Longs) -> tuple[Floats, Floats]:
        """Means, the constant included, and variances of the latent processes; each of shape (n_latents, n_nodes)."""
        return self.mean + self.posterior.mean(nodes), self.posterior.variance(nodes)

    def covariance(self, nodes: Longs, latent: int = 0) -> Floats:
        """Covariance of one latent process; shape (n_nodes, n_nodes)."""
        return self.posterior.covariance(nodes, latent)

    def sample(self, n_samples: int, nodes: Longs, rng: np.random.Generator) -> Floats:
        """Draw functions, the constant mean included; shape (n_samples, n_latents, n_nodes)."""
        return self.mean + self.posterior.sample(n_samples, nodes, rng)


class _Bound:
    """The negative converged ELBO as a function of all parameters; sites are begun from the best found so far."""

    def __init__(self, problem: SiteProblem, prior: Callable[..., LatentPrior]) -> None:
        self._observed, self._prior = problem.observed, prior
        self._learn_mean, self._mean = problem.learn_mean, problem.mean
        likelihood = problem.observed.likelihood
        self._raw = {name: raw for name, raw in likelihood.named_parameters() if raw.requires_grad}
        self.others = [self._parameter(name.removeprefix("raw_"), problem) for name in self._raw]
        self.start = [raw.item() for raw in self._raw.values()]
        if self._learn_mean:
            self.others.append(_MEAN)
            self.start.append(self._mean)
        self.state: SiteState | None = None
        self._begin, self._best = problem.start, -np.inf
        self._settled = False  # while the parameters move, the sites need not be exact

    def _parameter(self, name: str, problem: SiteProblem) -> Parameter:
        """Bounds and prior of a parameter of the likelihood, in its unconstrained coordinate."""
        rules, domain = problem.options.rules, type(problem.observed.likelihood)._parameter(name).domain
        bounds = torch.tensor(rules.bounds.get(name, _BOUNDS[name]), dtype=torch.float64)
        low, high = domain.free(bounds).tolist()
        return Parameter(name, low, high, rules.priors.get(name))

    def _tolerance(self) -> float:
        """How exact the sites must be, relative to the ELBO."""
        log_concave = self._observed.likelihood.log_concave
        if self._settled:
            return _TO_KEEP
        if self._begin is None and not log_concave:  # afresh: to see where that leads
            return _TO_COMPARE
        return _PRECISION[log_concave][1]

    def move(self, others: Floats) -> float:
        """Set the parameters of the likelihood; return the mean."""
        with torch.no_grad():
            for raw, value in zip(self._raw.values(), others, strict=False):
                raw.fill_(float(value))
        return float(others[-1]) if self._learn_mean else self._mean

    def evaluate(self, coordinates: Floats, others: Floats) -> tuple[float, Floats]:
        """Value and gradient in the engine's coordinates and the others."""
        observed, mean = self._observed, self.move(others)
        prior = self._prior(coordinates)
        state = fit_sites(
            prior,
            observed,
            self._begin,
            mean=mean,
            tolerance=self._tolerance(),
            max_iterations=_LAST_UPDATES if self._settled else _UPDATES,
            rival=None if self._settled or self._best == -np.inf else self._best,
        )
        self.state = state
        if state.elbo > self._best:
            self._best, self._begin = state.elbo, state.sites
        in_others = []
        if self._raw:
            variance = torch.from_numpy(state.marginals.variance)
            value = observed.likelihood.expected_log_prob(
                observed.y, observed.latent_mean(state.marginals, mean), variance
            )
            in_others = [-g.item() for g in torch.autograd.grad(value.sum(), list(self._raw.values()))]
        if self._learn_mean:
            in_others.append(-float(state.expectation.in_mean.sum()))
        return -state.elbo, np.concatenate([prior.gradient(state.sites, state.marginals), in_others])

    def minimise(
        self, objective: Objective, start: Floats, parameters: list[Parameter], options: FitOptions
    ) -> tuple[Optimum, Objective]:
        """Minimise from a start; where sites begun afresh do better at the end, go on from there.

        The ELBO of a likelihood that is not log-concave has several maxima over the sites, and the way there decides.
        """
        count = 0
        to_gain, _ = _PRECISION[self._observed.likelihood.log_concave]
        for _ in range(_ROUNDS):
            optimum, penalised = minimise(objective, start, parameters, options, first_step=_FIRST_STEP, dear=to_gain)
            count += optimum.n_evaluations
            if options.known is not None or self._observed.likelihood.log_concave:
                break
            kept, self._begin = self._begin, None
            value, _ = penalised(optimum.position)
            if not value < optimum.value - _FRESH_GAIN * (1.0 + abs(optimum.value)):
                self._begin = kept
                break
            start = optimum.position
        self._settled = True
        objective(optimum.position)
        return (
            Optimum(optimum.position, optimum.value, optimum.gradient, count, optimum.converged, optimum.message),
            penalised,
        )


def hold_variance(kernel: Kernel) -> None:
    """Hold the variance of a kernel, of its first term where it is a sum: for likelihoods that do not see the scale."""
    term = kernel.terms[0] if isinstance(kernel, SumKernel) else kernel
    raw = getattr(term, "raw_variance", None)
    if raw is not None:
        raw.requires_grad_(False)


def fit_spectral_sites(problem: SiteProblem) -> SiteFit:
    """Fit through eigenpairs: any kernel, continuous smoothness."""
    options, observed = problem.options, problem.observed
    choose_start = problem.kernel is None
    kernel = Matern(1.5, START_LENGTHSCALES[0]) if problem.kernel is None else problem.kernel
    if isinstance(kernel, Matern):
        kernel.set_params(nu=kernel.values()["nu"])  # from here on it has a value
    if observed.likelihood.scale_invariant:
        hold_variance(kernel)
    bound_kernel = kernel.on(problem.graph, options.normalized, eigenpairs_used(problem.graph, problem.n_eigenpairs))
    named = {name: raw for name, raw in kernel.named_parameters() if raw.requires_grad}

    def prior(position: Floats) -> LatentPrior:
        with torch.no_grad():
            for raw, value in zip(named.values(), position, strict=True):
                raw.fill_(float(value))
        return SpectralPrior(bound_kernel, observed.nodes)

    bound = _Bound(problem, prior)

    def objective(theta: Floats) -> tuple[float, Floats]:
        return bound.evaluate(theta[: len(named)], theta[len(named) :])

    start = np.array([*(raw.item() for raw in named.values()), *bound.start])
    labels = [name.replace("raw_", "").replace("_terms", "terms") for name in named]
    parameters = [*(options.rules.parameter(label) for label in labels), *bound.others]
    with blas_threads(min(len(observed.nodes), bound_kernel.spectrum.n_eigenpairs)):
        if choose_start and options.known is None:
            place = list(named).index("raw_lengthscale")
            starts = [np.concatenate([start[:place], [np.log(k)], start[place + 1 :]]) for k in START_LENGTHSCALES]
            start = min(starts, key=lambda theta: objective(theta)[0])
        optimum, penalised = bound.minimise(objective, start, parameters, options)
    prior(optimum.position[: len(named)])
    mean = bound.move(optimum.position[len(named) :])
    assert bound.state is not None
    posterior = SpectralPosterior(bound_kernel, observed.nodes, bound.state.sites)
    lost, share = prior_loss(bound_kernel)
    return SiteFit(
        "spectral",
        kernel,
        observed.likelihood,
        mean,
        bound.state,
        posterior,
        optimum,
        parameters,
        penalised,
        prior_loss=lost,
        prior_loss_share=share,
    )


def fit_markov_sites(problem: SiteProblem) -> SiteFit:
    """Fit through sparse precisions: Matérn kernels of integer smoothness, the best of several where that is open."""
    kernel = problem.kernel
    assert kernel is None or isinstance(kernel, Matern)
    with blas_threads(len(problem.observed.nodes)):
        return best_smoothness(kernel, problem.options.rules, lambda nu: _fit_one_smoothness(problem, kernel, nu))


def _fit_one_smoothness(problem: SiteProblem, kernel: Matern | None, nu: int) -> SiteFit:
    check_time(problem, nu)
    options, observed = problem.options, problem.observed
    engine = MarkovEngine(problem.graph, nu, [], normalized=options.normalized, n_threads=problem.n_threads)
    fixed = () if kernel is None else tuple(name for name in kernel.fixed if name != "nu")
    n_latents, _ = observed.shape

    def prior(coordinates: Floats) -> LatentPrior:
        lengthscale, amplitude = np.exp(coordinates).tolist()
        return markov_prior(engine, observed.nodes, n_latents, lengthscale, amplitude)

    bound = _Bound(problem, prior)

    def evaluate(log_lengthscale: float, log_amplitude: float, *others: float) -> tuple[float, Floats]:
        return bound.evaluate(np.array([log_lengthscale, log_amplitude]), np.array(others))

    variance = 1.0 if kernel is None else kernel.values()["variance"]
    starts = []
    for lengthscale in START_LENGTHSCALES if kernel is None else (kernel.values()["lengthscale"],):
        log_kappa = float(np.log(lengthscale))
        log_a = float(np.log(variance / engine.average_variance(log_kappa)))
        starts.append(np.array([log_kappa, log_a, *bound.start]))
    base = starts[0] if len(starts) == 1 else min(starts, key=lambda point: evaluate(*point)[0])
    # Where the likelihood does not see the scale, the amplitude is held instead of the variance: no trace is needed.
    held = (*fixed, "amplitude") if observed.likelihood.scale_invariant else fixed
    coordinates = MarkovCoordinates(engine, evaluate, held, base, options.rules, bound.others)
    optimum, penalised = bound.minimise(coordinates.objective, coordinates.start, coordinates.parameters, options)
    point = coordinates.point(optimum.position)
    lengthscale, amplitude = np.exp(point[:2]).tolist()
    mean = bound.move(point[2:])
    fitted = Matern(nu, lengthscale, amplitude * engine.average_variance(point[0]), fixed=("nu", *fixed))
    engine.release()
    assert bound.state is not None
    posterior = MarkovPosterior(engine.precision, observed.nodes, bound.state.sites, lengthscale, amplitude)
    return SiteFit(
        "markov",
        fitted,
        observed.likelihood,
        mean,
        bound.state,
        posterior,
        optimum,
        coordinates.parameters,
        penalised,
        jacobian=lambda: coordinates.jacobian(optimum.position),
    )


SITE_ENGINES: dict[str, Callable[[SiteProblem], SiteFit]] = {
    "spectral": fit_spectral_sites,
    "markov": fit_markov_sites,
}
