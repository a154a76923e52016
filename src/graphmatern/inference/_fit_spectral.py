"""Fitting any kernel through eigenpairs."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import numpy as np

from graphmatern.inference._fitting import START_LENGTHSCALES, FittedEngine, minimise, warn_of_lost_noise
from graphmatern.inference._posterior import Posterior, SpectralConditioned
from graphmatern.inference._spectral import SpectralEngine, blas_threads, prior_variance_lost
from graphmatern.kernels import Matern

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from graphmatern.graph import Graph
    from graphmatern.inference._fitting import FitProblem
    from graphmatern.kernels import BoundKernel

    Floats = NDArray[np.float64]

__all__ = ["DENSE_NODES", "eigenpairs_used", "fit_spectral", "prior_loss"]

DENSE_NODES = 3000  # up to here all eigenpairs are cheap
_DEFAULT_EIGENPAIRS = 500
_TO_GAIN = 1e-6  # nats: evaluations are cheap


def eigenpairs_used(graph: Graph, wanted: int | None) -> int | None:
    """How many eigenpairs are used: as many as wanted, else all of a graph of moderate size; None means all."""
    return _DEFAULT_EIGENPAIRS if wanted is None and graph.n_nodes > DENSE_NODES else wanted


def prior_loss(bound: BoundKernel) -> tuple[Floats, float]:
    """Bound on the prior variance that a truncated spectrum loses at every node, and its share over all nodes."""
    lost = prior_variance_lost(bound)
    kept = float(bound.weights().detach().cpu().numpy() @ bound.spectrum.squared_norms)
    return lost, float(lost.sum() / (kept + lost.sum()))


def fit_spectral(problem: FitProblem) -> FittedEngine:
    """Fit through eigenpairs: all of them on graphs of moderate size, else the leading ones."""
    count = eigenpairs_used(problem.graph, problem.n_eigenpairs)
    problem.graph.spectrum(count, problem.options.normalized)  # by all threads
    rank = problem.graph.n_nodes if count is None else count
    with blas_threads(max(min(len(batch.nodes), rank) for batch in problem.batches)):
        return _fit(problem)


def _fit(problem: FitProblem) -> FittedEngine:
    options = problem.options
    choose_start = problem.kernel is None
    kernel = Matern(1.5, START_LENGTHSCALES[0]) if problem.kernel is None else problem.kernel
    count = eigenpairs_used(problem.graph, problem.n_eigenpairs)
    if isinstance(kernel, Matern):
        kernel.set_params(nu=kernel.values()["nu"])  # from here on it has a value
    engine = SpectralEngine(problem.graph, kernel, problem.batches, normalized=options.normalized, n_eigenpairs=count)
    names, learn_noise, log_noise = engine.names, options.learn_noise, options.log_noise

    def objective(theta: Floats) -> tuple[float, Floats]:
        level = theta[-1] if learn_noise else log_noise
        value, gradient, in_noise = engine.evaluate(theta[: len(names)], float(level))
        return value, np.append(gradient, in_noise) if learn_noise else gradient

    start = engine.position()
    if learn_noise:
        start = np.append(start, log_noise)
    labels = [name.replace("raw_", "").replace("_terms", "terms") for name in names]
    parameters = [options.rules.parameter(label) for label in labels + (["noise"] if learn_noise else [])]
    if choose_start and options.known is None:
        place = names.index("raw_lengthscale")
        starts = [np.concatenate([start[:place], [np.log(k)], start[place + 1 :]]) for k in START_LENGTHSCALES]
        start = min(starts, key=lambda theta: objective(theta)[0])

    def information() -> Floats:
        found = engine.information()
        return found if learn_noise else found[:-1, :-1]

    optimum, penalised = minimise(objective, start, parameters, options, information, dear=_TO_GAIN)
    engine.move(optimum.position[: len(names)])
    rho = float(np.exp(optimum.position[-1] if learn_noise else log_noise))
    posterior = Posterior(
        [SpectralConditioned(engine.bound, batch, rho) for batch in problem.batches], problem.node_design
    )
    lost, share = prior_loss(engine.bound)
    spectrum = engine.bound.spectrum
    total = float(engine.bound.weights().detach().cpu().numpy() @ spectrum.squared_norms)
    warn_of_lost_noise(total / spectrum.n_nodes, problem.batches, rho)
    return FittedEngine(
        "spectral",
        copy.deepcopy(kernel),  # the engine goes on moving its own
        rho,
        posterior,
        optimum,
        parameters,
        penalised,
        prior_loss=lost,
        prior_loss_share=share,
    )
