"""Gaussian noise: evidence, gradient and posterior against one big normal distribution, effects integrated out."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from contenders import ENGINES, Contender, cases
from dense_process import GRAPHS, LAYOUTS, Stacked, assert_close, five_point_gradient
from graphmatern.errors import NumericalError
from graphmatern.inference import Observations
from graphmatern.inference.sites.gaussian import GaussianObjective
from graphmatern.likelihoods import Gaussian

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

engines = pytest.mark.parametrize("contender", ENGINES, ids=str)


class Case:
    def __init__(self, contender: Contender, graph: str, layout: str, effect_precision: float) -> None:
        self.graph, self.normalized = GRAPHS[graph]
        self.observations, self.contender = LAYOUTS[layout](self.graph), contender
        self.effect_precision = effect_precision
        problem = contender.problem(self.graph, self.normalized, self.observations)
        self.engine = contender.make(problem, self.observations.groups)
        problem = replace(problem, likelihood=Gaussian(0.3), effect_precision=effect_precision)
        self.objective = GaussianObjective(self.engine, problem)
        self.theta = np.concatenate([self.engine.start + 0.1, self.objective.start])

    def stacked(self, theta: Floats) -> Stacked:
        prior = self.contender.prior(self.graph, self.engine.kernel(theta[:-1]), self.normalized)
        return Stacked(prior, self.observations, float(np.exp(theta[-1])))


@pytest.mark.parametrize(
    ("contender", "graph", "layout"), cases(ENGINES, ["masses", "normalised pieces with masses"], LAYOUTS)
)
@pytest.mark.parametrize("effect_precision", [0.0, 0.3])
def test_evidence_and_its_gradient(contender: Contender, graph: str, layout: str, effect_precision: float) -> None:
    case = Case(contender, graph, layout, effect_precision)
    expected = five_point_gradient(lambda theta: -case.stacked(theta).log_evidence(effect_precision), case.theta)
    value, gradient = case.objective(case.theta)
    assert value == pytest.approx(-case.stacked(case.theta).log_evidence(effect_precision), rel=1e-9, abs=1e-9)
    assert_close(gradient, expected)


@pytest.mark.parametrize(("contender", "layout"), cases(ENGINES, ["repeats", "more than nodes", "holes"]))
@pytest.mark.parametrize("effect_precision", [0.0, 0.3])
def test_posterior(contender: Contender, layout: str, effect_precision: float) -> None:
    case = Case(contender, "connected" if contender.plain else "masses", layout, effect_precision)
    dense, posterior = case.stacked(case.theta), case.objective.posterior(case.theta)
    every = np.arange(case.graph.n_nodes)
    edges = case.graph.edges
    ends = [case.graph.locate(edges[end]) for end in ("source", "target")]
    share = np.linspace(0.0, 1.0, len(edges))
    edge_means, edge_variances = posterior.on_edges(ends[0], ends[1], share)
    rows = np.zeros((len(edges), len(every)))
    rows[np.arange(len(edges)), ends[0]] += 1.0 - share
    rows[np.arange(len(edges)), ends[1]] += share
    for k in range(posterior.n_replicates):
        mean, covariance, b, spread = dense.posterior(k, effect_precision)
        assert_close(posterior.latent_mean(every)[k], mean)
        assert_close(posterior.latent_variance(every)[k], np.diag(covariance))
        assert_close(posterior.latent_covariance(every, k), covariance)
        assert_close(edge_means[k], rows @ mean)
        assert_close(edge_variances[k], np.diag(rows @ covariance @ rows.T))
    assert_close(posterior.coefficients, b[None])
    assert_close(posterior.coefficient_covariance, spread[None])


@engines
@pytest.mark.parametrize("effect_precision", [0.0, 0.3])
def test_leaving_one_out_is_leaving_one_out(contender: Contender, effect_precision: float) -> None:
    """Given the others of all replicates, by computing everything again without it."""
    case = Case(contender, "connected", "holes", effect_precision)
    dense, posterior = case.stacked(case.theta), case.objective.posterior(case.theta)
    found: dict[tuple[int, int], tuple[float, float]] = {}
    for part, mean, variance in posterior.leave_one_out():
        for column, k in enumerate(part.group.columns):
            for i, node in enumerate(part.group.nodes):
                found[int(k), int(node)] = mean[i, column], variance[i]
    assert len(found) == len(dense.y)
    for row, (k, node) in enumerate(zip(dense.replicate.tolist(), dense.nodes.tolist(), strict=True)):
        mean, covariance, *_ = dense.without(row).posterior(k, effect_precision)
        assert_close(found[k, node], [mean[node], covariance[node, node]])


@engines
def test_draws_of_the_posterior(contender: Contender) -> None:
    case = Case(contender, "connected" if contender.plain else "masses", "holes", 0.0)
    posterior = case.objective.posterior(case.theta)
    every, n, rng = np.arange(case.graph.n_nodes), 5000, np.random.default_rng(11)
    for k in range(posterior.n_replicates):
        mean, covariance, *_ = case.stacked(case.theta).posterior(k, 0.0)
        off = posterior.latent_samples(n, every, rng, k) - mean
        variance = np.diag(covariance)
        # The largest of 12 + 78 z-scores exceeds 5 once in 20,000 runs; the seed is fixed.
        assert np.abs(off.mean(axis=0) / np.sqrt(variance / n)).max() < 5.0
        error = np.sqrt((np.outer(variance, variance) + covariance**2) / n)
        assert np.abs((off.T @ off / n - covariance) / error).max() < 5.0


def test_effects_that_the_data_do_not_determine_are_an_error_with_causes() -> None:
    graph, _ = GRAPHS["connected"]
    design = np.column_stack([np.ones(graph.n_nodes), np.zeros(graph.n_nodes)])
    observations = Observations(np.array([0, 3, 5]), np.array([[1.0], [2.0], [0.5]]), design)
    contender = ENGINES[0]
    problem = replace(contender.problem(graph, False, observations), likelihood=Gaussian(0.3))
    engine = contender.make(problem, observations.groups)
    objective: Any = GaussianObjective(engine, problem)
    with pytest.raises(NumericalError, match="not determined by the data"):
        objective(np.append(engine.start, 0.0))
