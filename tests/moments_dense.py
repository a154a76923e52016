"""How far the moments engine is from dense matrices, for every kernel and likelihood: for tests and evidence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import networkx as nx
import numpy as np

import graphmatern as gm
from dense_process import Stacked, exact, five_point_gradient
from graphmatern.inference import Observations, Problem, Search
from graphmatern.inference.moments.engine import MomentsEngine
from graphmatern.inference.sites.gaussian import GaussianObjective
from graphmatern.inference.sites.objective import SiteObjective
from graphmatern.likelihoods import (
    Bernoulli,
    Gaussian,
    Likelihood,
    NegativeBinomial,
    Poisson,
    RobustMax,
    Softmax,
    StudentT,
)
from toy_engine import ToyEngine

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

#: Kernels, and whether they bear the plain Laplacian.
KERNELS: dict[str, tuple[gm.Kernel, bool]] = {
    "Matérn": (gm.Matern(1.7, 1.6, 1.3), True),
    "diffusion": (gm.Diffusion(1.4, 0.8), True),
    "random walk": (gm.RandomWalk(4, 0.4, 1.2), False),
    "inverse cosine": (gm.InverseCosine(1.1), False),
    "sum": (gm.Matern(2.5, 2.0, 0.7) + gm.Diffusion(0.7, 0.5), True),
    "multiple": (0.6 * (gm.Matern(1.2, 1.1, 1.5) + 2.0 * gm.Diffusion(1.0, 0.3)), True),
}
LAPLACIANS = [(name, normalized) for name, (_, plain) in KERNELS.items() for normalized in ([False, True][not plain :])]
LIKELIHOODS: dict[str, Likelihood] = {
    "Poisson": Poisson(),
    "negative binomial": NegativeBinomial(0.4),
    "Student's t": StudentT(0.3, 4.0),
    "probit": Bernoulli(),
    "logit": Bernoulli("logit"),
    "softmax": Softmax(3),
    "robust maximum": RobustMax(3),
}


def power_law(n: int) -> gm.Graph:
    return gm.Graph.from_networkx(nx.barabasi_albert_graph(n, 3, seed=1))


def block_model(n: int) -> gm.Graph:
    sizes = [n // 4] * 4
    near, far = 24.0 / n, 2.0 / n
    chances = [[near if i == j else far for j in range(4)] for i in range(4)]
    return gm.Graph.from_networkx(nx.stochastic_block_model(sizes, chances, seed=2))  # with nodes alone


def nearest_neighbours(n: int) -> gm.Graph:
    points = np.random.default_rng(3).standard_normal((n, 8))
    return gm.Graph.from_points(points, n_neighbors=8)


GRAPHS = {"power law": power_law, "block model": block_model, "nearest neighbours": nearest_neighbours}


def _apart(found: Any, expected: Any) -> float:
    """Largest difference, relative to the largest entry or to 1, which is the size of the process."""
    found, expected = np.asarray(found), np.asarray(expected)
    known = np.isfinite(expected)  # an observation that is left out may have determined a coefficient by itself
    if not np.array_equal(known, np.isfinite(found)):
        return np.inf
    scale = max(1.0, float(np.abs(expected[known]).max(initial=0.0)))
    return float(np.abs(found[known] - expected[known]).max(initial=0.0)) / scale


def gaussian_errors(
    graph: gm.Graph, kernel: gm.Kernel, normalized: bool, n_observed: int, seed: int = 0, effect_precision: float = 0.0
) -> dict[str, float]:
    """Against one big normal distribution: two replicates, one with a hole, repeats, unequal noise and a covariate."""
    rng = np.random.default_rng(seed)
    nodes = rng.integers(0, graph.n_nodes, n_observed)
    y = rng.standard_normal((n_observed, 2))
    y[0, 1] = np.nan
    design = np.column_stack([np.ones(graph.n_nodes), rng.standard_normal(graph.n_nodes)])
    made = Observations(nodes, y, design, rng.uniform(0.5, 2.0, n_observed), rng.standard_normal(n_observed))
    search = Search(optimizer=None)
    problem = Problem(graph, kernel, Gaussian(0.3), made, normalized, search=search, effect_precision=effect_precision)
    engine = MomentsEngine(problem, made.groups)
    objective = GaussianObjective(engine, problem)
    theta = np.concatenate([engine.start + 0.1, objective.start])

    def dense_at(theta: Floats) -> Stacked:
        return Stacked(exact(graph, engine.kernel(theta[:-1]), normalized), made, float(np.exp(theta[-1])))

    dense = dense_at(theta)
    value, gradient = objective(theta)
    slope = five_point_gradient(lambda at: -dense_at(at).log_evidence(effect_precision), theta, 1e-3)
    found = {
        "evidence": _apart(-value, dense.log_evidence(effect_precision)),
        "gradient": _apart(gradient, slope),
        "mean": 0.0,
        "variance": 0.0,
        "covariance": 0.0,
        "leave one out": 0.0,
    }
    posterior, every = objective.posterior(theta), np.arange(graph.n_nodes)
    for k in range(2):
        mean, covariance, *_ = dense.posterior(k, effect_precision)
        for name, own, expected in (
            ("mean", posterior.latent_mean(every)[k], mean),
            ("variance", posterior.latent_variance(every)[k], np.diag(covariance)),
            ("covariance", posterior.latent_covariance(every, k), covariance),
        ):
            found[name] = max(found[name], _apart(own, expected))
    rows = {pair: row for row, pair in enumerate(zip(dense.replicate.tolist(), dense.y.tolist(), strict=True))}
    for part, mean, variance in posterior.leave_one_out():
        for column, k in enumerate(part.group.columns.tolist()):
            for i in range(0, len(part.group.nodes), 1 + len(part.group.nodes) // 8):
                node = int(part.group.nodes[i])
                row = rows[k, float(part.group.y[i, column] - part.group.offset[i])]
                mean_without, without, *_ = dense.without(row).posterior(k, effect_precision)
                own = [mean[i, column], variance[i]]
                found["leave one out"] = max(
                    found["leave one out"], _apart(own, [mean_without[node], without[node, node]])
                )
    return found


def likelihood_errors(
    graph: gm.Graph, kernel: gm.Kernel, normalized: bool, likelihood: Likelihood, n_observed: int, seed: int = 0
) -> dict[str, float]:
    """Against the same sites on one dense covariance matrix."""
    rng = np.random.default_rng(seed)
    nodes = rng.integers(0, graph.n_nodes, n_observed)
    if likelihood.n_latents > 1 or isinstance(likelihood, Bernoulli):
        y = rng.integers(0, max(2, likelihood.n_latents), n_observed).astype(float)
    else:
        y = rng.standard_normal(n_observed) if isinstance(likelihood, StudentT) else rng.poisson(2.0, n_observed) * 1.0
    made = Observations(nodes, y[:, None], np.ones((graph.n_nodes, 1)))
    search = Search(optimizer=None)
    problem = Problem(graph, kernel, likelihood, made, normalized, search=search, effect_precision=0.3)
    every, results = np.arange(graph.n_nodes), []
    for kind in (MomentsEngine, ToyEngine):
        engine: Any = kind(problem, SiteObjective.groups(problem))
        objective = SiteObjective(engine, problem)
        objective.finish()
        theta = np.concatenate([engine.start + 0.1, objective.start])
        value, gradient = objective(theta)
        posterior = objective.posterior(theta)
        left_out = [np.concatenate([mean.ravel(), variance]) for _, mean, variance in posterior.leave_one_out()]
        results.append(
            {
                "evidence": value,
                "gradient": gradient,
                "mean": posterior.latent_mean(every),
                "variance": posterior.latent_variance(every),
                "covariance": posterior.latent_covariance(every, 0),
                "leave one out": np.concatenate(left_out),
            }
        )
    return {name: _apart(own, results[1][name]) for name, own in results[0].items()}
