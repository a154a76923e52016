"""Fitting: starting values from the data, the optimiser on either engine, and what comes out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from graphmatern.errors import ResourceError
from graphmatern.inference._markov_engine import MarkovEngine
from graphmatern.inference._optimize import Optimum, curvature, find_minimum
from graphmatern.inference._posterior import MarkovConditioned, Posterior, SpectralConditioned
from graphmatern.inference._spectral import SpectralEngine
from graphmatern.kernels import Matern

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from graphmatern.graph import Graph
    from graphmatern.inference._observations import Batch
    from graphmatern.kernels import Kernel

    Floats = NDArray[np.float64]

__all__ = ["FitOptions", "FittedEngine", "fit_markov", "fit_spectral"]

_START_NOISE = 0.1
_START_LENGTHSCALES = (2.0, 8.0, 32.0)
_LOG_NOISE_BOUNDS = (np.log(1e-6), np.log(1e4))  # with less noise, rounding decides
# Of logarithms, by the end of a parameter's name.
_BOUNDS = {
    "nu": (np.log(0.05), np.log(100.0)),
    "lengthscale": (np.log(1e-3), np.log(1e5)),
    "variance": (np.log(1e-6), np.log(1e6)),
    "laziness": (-15.0, 15.0),
}


@dataclass(frozen=True)
class FitOptions:
    """What both engines need to know about a fit.

    Attributes
    ----------
    normalized : bool
        Which Laplacian.
    noise : float, optional
        Noise variance to start from.
    learn_noise : bool
        Whether it is learned.
    optimizer : {"lbfgs", "adam"} or None
        None keeps the starting values.
    max_iterations : int
        Iterations at most.
    progress : bool, optional
        Whether to show progress; by default, where the error stream is a terminal.
    known : Optimum, optional
        Where an earlier fit to the same data ended: nothing is searched, and the outcome is that fit's to the last bit.
    """

    normalized: bool
    noise: float | None
    learn_noise: bool
    optimizer: str | None
    max_iterations: int
    progress: bool | None
    known: Optimum | None = None

    @property
    def log_noise(self) -> float:
        """Logarithm of the noise variance to start from."""
        return float(np.log(_START_NOISE if self.noise is None else self.noise))


@dataclass(frozen=True, eq=False)
class FittedEngine:
    """What a fit returns, whichever engine it used."""

    engine: str
    kernel: Kernel
    noise: float
    posterior: Posterior
    optimum: Optimum
    names: list[str]
    objective: Callable[[Floats], tuple[float, Floats]]

    @property
    def log_marginal_likelihood(self) -> float:
        """Of the normalised values, the constant included."""
        return -self.optimum.value

    @property
    def gradient_norm(self) -> float:
        """Largest derivative at the end."""
        return float(np.abs(self.optimum.gradient).max(initial=0.0))

    @property
    def converged(self) -> bool:
        """Whether the optimiser was satisfied."""
        return self.optimum.converged

    @property
    def n_evaluations(self) -> int:
        """Evaluations of the marginal likelihood."""
        return self.optimum.n_evaluations

    @property
    def message(self) -> str:
        """Why the optimiser stopped."""
        return self.optimum.message

    def standard_errors(self) -> dict[str, float]:
        """Standard errors of the free parameters, from the inverse of the Hessian; NaN where it is not positive."""
        hessian = curvature(self.objective, self.optimum.position)
        covariance = np.linalg.pinv(hessian)
        with np.errstate(invalid="ignore"):
            return dict(zip(self.names, np.sqrt(np.diag(covariance)).tolist(), strict=True))


def _minimise(
    objective: Callable[[Floats], tuple[float, Floats]],
    start: Floats,
    bounds: list[tuple[float, float]],
    options: FitOptions,
) -> Optimum:
    if options.known is not None:
        return options.known
    if options.optimizer is None or len(start) == 0:
        value, gradient = objective(start)
        return Optimum(start, value, gradient, 1, True, "parameters kept")
    return find_minimum(
        objective,
        start,
        bounds,
        method=options.optimizer,
        max_iterations=options.max_iterations,
        progress=options.progress,
    )


def _bounds_of(names: list[str]) -> list[tuple[float, float]]:
    return [next(bound for key, bound in _BOUNDS.items() if name.endswith(key)) for name in names]


def fit_spectral(
    graph: Graph,
    kernel: Kernel | None,
    batches: Sequence[Batch],
    node_design: Floats,
    *,
    n_eigenpairs: int | None,
    options: FitOptions,
) -> FittedEngine:
    """Fit any kernel through eigenpairs; see `GraphGPRegressor` for the parameters."""
    choose_start = kernel is None
    kernel = Matern(1.5, _START_LENGTHSCALES[0]) if kernel is None else kernel
    engine = SpectralEngine(graph, kernel, batches, normalized=options.normalized, n_eigenpairs=n_eigenpairs)
    names, learn_noise, log_noise = engine.names, options.learn_noise, options.log_noise

    def objective(theta: Floats) -> tuple[float, Floats]:
        level = theta[-1] if learn_noise else log_noise
        value, gradient, in_noise = engine.evaluate(theta[: len(names)], float(level))
        return value, np.append(gradient, in_noise) if learn_noise else gradient

    start = engine.position()
    if learn_noise:
        start = np.append(start, log_noise)
    if choose_start and options.known is None:
        place = names.index("raw_lengthscale")
        starts = [np.concatenate([start[:place], [np.log(k)], start[place + 1 :]]) for k in _START_LENGTHSCALES]
        start = min(starts, key=lambda theta: objective(theta)[0])
    bounds = _bounds_of(names) + ([_LOG_NOISE_BOUNDS] if learn_noise else [])
    optimum = _minimise(objective, start, bounds, options)
    engine.move(optimum.position[: len(names)])
    rho = float(np.exp(optimum.position[-1] if learn_noise else log_noise))
    conditioned = [SpectralConditioned(engine.bound, batch, rho) for batch in batches]
    labels = [name.replace("raw_", "") for name in names] + (["noise"] if learn_noise else [])
    return FittedEngine("spectral", kernel, rho, Posterior(conditioned, node_design), optimum, labels, objective)


def fit_markov(
    graph: Graph,
    kernel: Kernel | None,
    smoothness: Sequence[int],
    batches: Sequence[Batch],
    node_design: Floats,
    *,
    n_threads: int | None,
    options: FitOptions,
) -> FittedEngine:
    """Fit a Matérn kernel of integer smoothness through sparse precisions, the most likely of several.

    Smoothnesses whose factors do not fit into memory are passed over, unless none is left.
    """
    best: FittedEngine | None = None
    refused: ResourceError | None = None
    for nu in smoothness:
        start = kernel if isinstance(kernel, Matern) else None
        try:
            found = _fit_one_smoothness(graph, start, nu, batches, node_design, n_threads=n_threads, options=options)
        except ResourceError as error:
            refused = error
            continue
        if best is None or found.log_marginal_likelihood > best.log_marginal_likelihood:
            best = found
    if best is None:
        assert refused is not None
        raise refused
    return best


def _fit_one_smoothness(
    graph: Graph,
    kernel: Matern | None,
    nu: int,
    batches: Sequence[Batch],
    node_design: Floats,
    *,
    n_threads: int | None,
    options: FitOptions,
) -> FittedEngine:
    engine = MarkovEngine(graph, nu, batches, normalized=options.normalized, n_threads=n_threads)
    fixed = () if kernel is None else tuple(name for name in kernel.fixed if name != "nu")
    log_noise = options.log_noise
    holds_variance = "variance" in fixed
    free = np.array(["lengthscale" not in fixed, not holds_variance, options.learn_noise])

    def full(theta: Floats) -> Floats:
        point = base.copy()
        point[free] = theta
        if holds_variance:
            point[1] = np.log(variance / engine.average_variance(point[0]))
        return point

    def objective(theta: Floats) -> tuple[float, Floats]:
        point = full(theta)
        value, gradient = engine.evaluate(*point)
        if holds_variance and free[0]:
            # The amplitude follows the lengthscale, so that the average variance stays.
            gradient[0] -= gradient[1] * engine.average_variance_slope(point[0])
        return value, gradient[free]

    candidates = _START_LENGTHSCALES if kernel is None else (kernel.values()["lengthscale"],)
    if options.known is not None:
        candidates = candidates[:1]
    variance = 1.0 if kernel is None else kernel.values()["variance"]
    starts = []
    for lengthscale in candidates:
        log_kappa = float(np.log(lengthscale))
        log_a = float(np.log(variance / engine.average_variance(log_kappa)))
        starts.append(np.array([log_kappa, log_a, log_noise]))
    base = starts[0]
    if len(starts) > 1:
        base = min(starts, key=lambda point: engine.evaluate(*point)[0])
    low, high = _BOUNDS["lengthscale"]
    high = min(high, float(np.log(engine.precision.longest_lengthscale())))
    bounds = [(low, high), (base[1] - 30.0, base[1] + 30.0), _LOG_NOISE_BOUNDS]
    chosen = [bound for bound, is_free in zip(bounds, free, strict=True) if is_free]
    optimum = _minimise(objective, base[free], chosen, options)
    log_kappa, log_a, log_rho = full(optimum.position)
    lengthscale, amplitude, rho = (float(np.exp(value)) for value in (log_kappa, log_a, log_rho))
    fitted = Matern(nu, lengthscale, amplitude * engine.average_variance(log_kappa), fixed=("nu", *fixed))
    engine.release()
    conditioned = [MarkovConditioned(engine.precision, lengthscale, amplitude, batch, rho) for batch in batches]
    labels = [name for name, is_free in zip(("lengthscale", "amplitude", "noise"), free, strict=True) if is_free]
    return FittedEngine("markov", fitted, rho, Posterior(conditioned, node_design), optimum, labels, objective)
