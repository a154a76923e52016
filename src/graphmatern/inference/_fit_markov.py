"""Fitting Matérn kernels of integer smoothness through sparse precisions."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from graphmatern._validation import FaultList
from graphmatern.errors import KernelError, NumericalError, ResourceError
from graphmatern.graph import Graph
from graphmatern.inference._fitting import (
    START_LENGTHSCALES,
    FitProblem,
    FittedEngine,
    Learned,
    minimise,
    warn_of_lost_noise,
)
from graphmatern.inference._markov import markov_precision
from graphmatern.inference._markov_engine import MarkovEngine
from graphmatern.inference._observations import Batch
from graphmatern.inference._optimize import curvature
from graphmatern.inference._posterior import Posterior
from graphmatern.inference._rules import Parameter, Rules
from graphmatern.kernels import Matern
from graphmatern.sparse import power_nnz

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from graphmatern.errors import GraphMaternError
    from graphmatern.inference._fit_sites import SiteProblem
    from graphmatern.inference._fitting import FitOptions
    from graphmatern.kernels import Kernel

    Floats = NDArray[np.float64]
    Longs = NDArray[np.int64]

__all__ = ["MarkovCoordinates", "best_smoothness", "check_time", "fit_markov", "smoothnesses"]

# A fit on part of a large graph comes first: it finds good starting values and the curvature for little.
_LARGE = 60_000  # nodes
_PARTS, _PART_SHARE, _PART_NODES = 8, 30, (12_000, 40_000)
_PART_OBSERVATIONS = 500  # fewer say too little
_OPEN_SECONDS = 5.0  # of one factorisation, for smoothnesses that are only tried
_OPERATIONS_PER_SECOND = 3e10
# Fits end in terms of the likelihood, not of derivatives: along a ridge, where data say little, these are long above
# zero. Of a part less is enough, since the whole graph will move the parameters by more.
_TO_GAIN, _PART_TO_GAIN = 1e-7, 2e-3  # nats

Fit = TypeVar("Fit", bound=Learned)


def smoothnesses(kernel: object, rules: Rules | None = None) -> tuple[int, ...]:
    """Integer smoothnesses to try for a kernel, within bounds; none where it has no sparse precision."""
    if kernel is None or (isinstance(kernel, Matern) and kernel.chooses_nu):
        allowed = Rules().parameter("nu") if rules is None else rules.parameter("nu")
        return tuple(nu for nu in (1, 2, 3) if allowed.low <= np.log(nu) <= allowed.high)
    if isinstance(kernel, Matern):
        nu = kernel.values()["nu"]
        return (int(nu),) if nu == round(nu) and nu >= 1 else ()
    return ()


def fit_markov(problem: FitProblem) -> FittedEngine:
    """Fit through sparse precisions, the most likely of several smoothnesses where the kernel leaves that open."""
    kernel = problem.kernel
    assert kernel is None or isinstance(kernel, Matern)
    return best_smoothness(kernel, problem.options.rules, lambda nu: _fit_one_smoothness(problem, kernel, nu))


def best_smoothness(kernel: Kernel | None, rules: Rules, fit: Callable[[int], Fit]) -> Fit:
    """Return the most likely fit of those with the smoothnesses a kernel leaves open, within bounds and by its prior.

    Smoothnesses that take too much memory or time, or break down numerically, are passed over unless none is left.
    """
    possible = smoothnesses(kernel, rules)
    if not possible:
        faults = FaultList("nothing was fitted", KernelError)
        rule = "must include a whole number from 1 to 3 for engine='markov'"
        raise faults.raise_now("bounds", rule, f"'nu': {rules.bounds['nu']!r}", "Or use engine='spectral'.")
    prior = rules.parameter("nu").prior
    found: dict[int, Fit] = {}
    refused: GraphMaternError | None = None
    for nu in possible:
        try:
            found[nu] = fit(nu)
        except (ResourceError, NumericalError, KernelError) as error:
            refused = error if refused is None else refused
    if not found:
        assert refused is not None
        raise refused

    def posterior(nu: int) -> float:
        penalty = 0.0 if prior is None else prior.penalty(float(np.log(nu)))[0]
        return found[nu].log_marginal_likelihood - penalty

    return found[max(found, key=posterior)]


def check_time(problem: FitProblem | SiteProblem, nu: int) -> None:
    """Refuse a smoothness that is only tried, not asked for, where its factorisations would take long."""
    if nu == 1 or len(smoothnesses(problem.kernel)) == 1:
        return
    graph, normalized = problem.graph, problem.options.normalized
    # A factor with h entries in n columns takes at least h²/n operations, and has no fewer entries than Δ^ν.
    most = int(2.0 * np.sqrt(_OPEN_SECONDS * _OPERATIONS_PER_SECOND * graph.n_nodes))
    fits = power_nnz(graph.laplacian(normalized), nu, limit=most) < most
    if fits:
        precision = markov_precision(graph, nu, normalized=normalized, n_threads=problem.n_threads)
        fits = precision.analysis.cost.seconds <= _OPEN_SECONDS
    if not fits:
        raise ResourceError(f"ν = {nu} was not tried, since it would take long here. To use it, name it in the kernel.")


def lengthscale_rule(engine: MarkovEngine, rules: Rules) -> Parameter:
    """Bounds and prior of the lengthscale, which rounding keeps from becoming too long."""
    longest = engine.precision.longest_lengthscale()
    found = rules.parameter("lengthscale", high=float(np.log(longest)))
    if found.low >= found.high:
        faults = FaultList("nothing was fitted", KernelError)
        rule = f"must allow lengthscales below {longest:.4g}, the longest that ν = {engine.precision.nu} bears here"
        received = f"'lengthscale': {rules.bounds['lengthscale']!r}"
        raise faults.raise_now("bounds", rule, received, "Use a smaller ν, or engine='spectral'.")
    return found


class MarkovCoordinates:
    """The free coordinates of a fit: logarithms of lengthscale, amplitude or variance, and others such as the noise.

    In the amplitude an evaluation needs no trace of Q⁻¹, so it stands in for the variance unless something is said
    about that: it is held, bounded, or has a prior.

    Parameters
    ----------
    engine : MarkovEngine
        For prior variances.
    evaluate : callable
        Value and gradient, given log κ, log a and the others.
    fixed : sequence of str
        Kernel parameters that are held; "amplitude" holds a.
    base : ndarray, shape (2 + n_others,)
        Where to begin: log κ, log a and the others.
    rules : Rules
        Bounds and priors.
    others : sequence of Parameter or None
        What the other coordinates are; None for those that are held.
    """

    def __init__(
        self,
        engine: MarkovEngine,
        evaluate: Callable[..., tuple[float, Floats]],
        fixed: Sequence[str],
        base: Floats,
        rules: Rules,
        others: Sequence[Parameter | None],
    ) -> None:
        self.engine, self.evaluate = engine, evaluate
        self.in_variance = "variance" in fixed or (rules.concerns("variance") and "amplitude" not in fixed)
        self.base = base.copy()
        if self.in_variance:
            self.base[1] += np.log(engine.average_variance(base[0]))
        amplitude = Parameter("variance", base[1] - 30.0, base[1] + 30.0)  # named after what it stands in for
        held = "variance" in fixed or "amplitude" in fixed
        every = [
            None if "lengthscale" in fixed else lengthscale_rule(engine, rules),
            None if held else rules.parameter("variance") if self.in_variance else amplitude,
            *others,
        ]
        self.free = np.array([one is not None for one in every])
        self.parameters = [one for one in every if one is not None]

    @property
    def start(self) -> Floats:
        """Where to begin; shape (n_free,)."""
        return np.asarray(self.base[self.free])

    def point(self, theta: Floats) -> Floats:
        """Logarithms of lengthscale and amplitude, and the others; shape as ``base``."""
        found = self.base.copy()
        found[self.free] = theta
        if self.in_variance:
            found[1] -= np.log(self.engine.average_variance(found[0]))
        return found

    def objective(self, theta: Floats) -> tuple[float, Floats]:
        """Negative log marginal likelihood and its gradient in the free coordinates."""
        point = self.point(theta)
        value, gradient = self.evaluate(*point)
        if self.in_variance and self.free[0]:
            # The amplitude follows the lengthscale, so that the average variance stays.
            gradient[0] -= gradient[1] * self.engine.average_variance_slope(point[0])
        return value, gradient[self.free]

    def jacobian(self, theta: Floats) -> Floats:
        """Derivatives of log lengthscale, log variance and the others in the coordinates; shape (n_free, n_free)."""
        found = np.eye(len(self.base))
        if not self.in_variance and self.free[0]:
            found[1, 0] = self.engine.average_variance_slope(self.point(theta)[0])
        return np.asarray(found[np.ix_(self.free, self.free)])


def _noise(options: FitOptions) -> list[Parameter | None]:
    return [options.rules.parameter("noise") if options.learn_noise else None]


def _fit_one_smoothness(problem: FitProblem, kernel: Matern | None, nu: int) -> FittedEngine:
    check_time(problem, nu)
    options = problem.options
    base, hessian = _analysed_and_started(problem, kernel, nu)
    engine = MarkovEngine(
        problem.graph, nu, problem.batches, normalized=options.normalized, n_threads=problem.n_threads
    )
    fixed = () if kernel is None else tuple(name for name in kernel.fixed if name != "nu")
    if base is None:
        base = _start(engine, kernel, options)
    coordinates = MarkovCoordinates(engine, engine.evaluate, fixed, base, options.rules, _noise(options))
    to_gain = _TO_GAIN if hessian is None else None  # with the curvature known, fewer steps lead as near
    optimum, penalised = minimise(
        coordinates.objective, coordinates.start, coordinates.parameters, options, hessian, dear=to_gain
    )
    point = coordinates.point(optimum.position)
    lengthscale, amplitude, rho = np.exp(point).tolist()
    conditioned = engine.conditioned(point)
    variance = amplitude * engine.average_variance(point[0])
    if kernel is not None and "variance" in kernel.fixed:
        variance = kernel.values()["variance"]  # what is held stays to the last digit
    fitted = Matern(nu, lengthscale, variance, fixed=("nu", *fixed))
    warn_of_lost_noise(variance, problem.batches, rho)
    engine.release()
    return FittedEngine(
        "markov",
        fitted,
        rho,
        Posterior(conditioned, problem.node_design),
        optimum,
        coordinates.parameters,
        penalised,
        jacobian=lambda: coordinates.jacobian(optimum.position),
    )


def _start(engine: MarkovEngine, kernel: Matern | None, options: FitOptions) -> Floats:
    """Starting point: the kernel's own, or the most likely of a few lengthscales; shape (3,)."""
    candidates: tuple[float, ...] = START_LENGTHSCALES if kernel is None else (kernel.values()["lengthscale"],)
    if options.optimizer is not None and not (kernel is not None and "lengthscale" in kernel.fixed):
        allowed = lengthscale_rule(engine, options.rules)
        candidates = tuple(dict.fromkeys(float(np.clip(k, *np.exp([allowed.low, allowed.high]))) for k in candidates))
    variance = 1.0 if kernel is None else kernel.values()["variance"]
    starts = []
    for lengthscale in candidates:
        log_kappa = float(np.log(lengthscale))
        log_a = float(np.log(variance / engine.average_variance(log_kappa)))
        starts.append(np.array([log_kappa, log_a, options.log_noise]))
    return starts[0] if len(starts) == 1 else min(starts, key=lambda point: engine.evaluate(*point)[0])


def _analysed_and_started(problem: FitProblem, kernel: Matern | None, nu: int) -> tuple[Floats | None, Floats | None]:
    """Return what `_start_from_part` does; a large graph is analysed meanwhile, by a thread of its own."""
    if problem.graph.n_nodes < _LARGE or problem.n_threads == 1:
        return _start_from_part(problem, kernel, nu)
    with ThreadPoolExecutor(1) as pool:
        normalized, n_threads = problem.options.normalized, problem.n_threads
        analysed = pool.submit(markov_precision, problem.graph, nu, normalized=normalized, n_threads=n_threads)
        found = _start_from_part(problem, kernel, nu)
        analysed.result()
    return found


def _start_from_part(problem: FitProblem, kernel: Matern | None, nu: int) -> tuple[Floats | None, Floats | None]:
    """Optimum and curvature on part of a large graph, scaled to the whole; None where that is not worth it."""
    options = problem.options
    n = problem.graph.n_nodes
    plain = options.optimizer == "lbfgs" and not options.rules.concerns("variance")
    if n < _LARGE or options.known is not None or not plain or (kernel is not None and set(kernel.fixed) - {"nu"}):
        return None, None
    part = _part_of(problem, int(np.clip(n // _PART_SHARE, *_PART_NODES)))
    observed = sum(batch.n_replicates * len(batch.nodes) for batch in part.batches)
    if observed < _PART_OBSERVATIONS or not options.learn_noise:
        return None, None
    engine = MarkovEngine(part.graph, nu, part.batches, normalized=options.normalized, n_threads=problem.n_threads)
    try:
        coordinates = MarkovCoordinates(
            engine, engine.evaluate, (), _start(engine, kernel, options), options.rules, _noise(options)
        )
        optimum, penalised = minimise(
            coordinates.objective, coordinates.start, coordinates.parameters, part.options, dear=_PART_TO_GAIN
        )
        hessian = curvature(penalised, optimum.position)
    except NumericalError:
        return None, None
    everything = sum(batch.n_replicates * len(batch.nodes) for batch in problem.batches)
    bound = min((one.high - x for one, x in zip(coordinates.parameters, optimum.position, strict=True)), default=0.0)
    if not np.isfinite(hessian).all() or np.linalg.eigvalsh(hessian)[0] <= 0.0 or bound < 1e-3:
        return None, None
    return optimum.position, hessian * (everything / observed)


def _part_of(problem: FitProblem, size: int) -> FitProblem:
    """The problem on a few neighbourhoods of observed nodes, together of about ``size`` nodes."""
    graph = problem.graph
    rng = np.random.default_rng(0)
    seeds = rng.choice(np.unique(np.concatenate([batch.nodes for batch in problem.batches])), _PARTS)
    kept = np.sort(_neighbourhood(graph, np.unique(seeds), size))
    place = np.full(graph.n_nodes, -1)
    place[kept] = np.arange(len(kept))
    weights = graph.weights[kept][:, kept]
    masses = None if graph.masses is None else graph.masses[kept]
    batches = []
    for batch in problem.batches:
        inside = np.flatnonzero(place[batch.nodes] >= 0)
        if len(inside):
            batches.append(
                Batch(
                    place[batch.nodes[inside]],
                    batch.y[inside],
                    batch.noise[inside],
                    batch.design[inside],
                    batch.columns,
                )
            )
    options = replace(problem.options, n_restarts=0)
    return replace(
        problem,
        graph=Graph.from_adjacency(weights, masses=masses),
        batches=batches,
        node_design=problem.node_design[kept],
        options=options,
    )


def _neighbourhood(graph: Graph, seeds: Longs, size: int) -> Longs:
    """Nodes nearest to some seeds by number of edges, about ``size`` of them."""
    pointers, neighbours = graph.weights.indptr, graph.weights.indices
    reached = np.zeros(graph.n_nodes, dtype=bool)
    reached[seeds] = True
    rings, ring, count = [seeds], seeds, len(seeds)
    while count < size and len(ring):
        starts, lengths = pointers[ring], pointers[ring + 1] - pointers[ring]
        offsets = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        around = np.unique(neighbours[np.repeat(starts, lengths) + offsets])
        ring = around[~reached[around]][: size - count].astype(np.int64)
        reached[ring] = True
        rings.append(ring)
        count += len(ring)
    return np.concatenate(rings).astype(np.int64)
