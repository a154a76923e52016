"""One contract for all engines: whatever they compute equals the dense reference.

An engine more is tested by a line more in `contenders.ENGINES`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import logit

import graphmatern as gm
from contenders import ENGINES, Contender, cases
from dense_process import (
    GRAPHS,
    LAYOUTS,
    DenseSites,
    assert_close,
    exact,
    five_point_gradient,
    mixed_sites,
    noise_sites,
)
from graphmatern.errors import NotPositiveDefiniteError
from graphmatern.inference import Conditioned, Observations
from strategies import graphs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]


engines = pytest.mark.parametrize("contender", ENGINES, ids=str)
in_all_cases = pytest.mark.parametrize(("contender", "graph", "layout"), cases(ENGINES, GRAPHS, LAYOUTS))


class Case:
    """A contender on a graph with observations, at coordinates that are not where it starts."""

    def __init__(self, contender: Contender, graph: gm.Graph, normalized: bool, observations: Observations) -> None:
        self.contender, self.graph, self.normalized = contender, graph, normalized
        self.groups = observations.groups
        self.engine = contender.engine(graph, normalized, observations)
        shift = np.random.default_rng(3).uniform(-0.2, 0.2, len(self.engine.start))
        self.position = self.engine.start + shift
        self.prior = self.prior_at(self.position)
        self.every = np.arange(graph.n_nodes)

    def prior_at(self, position: Floats) -> Any:
        return self.contender.prior(self.graph, self.engine.kernel(position), self.normalized)

    def sites(self) -> Iterator[tuple[int, Any, Floats]]:
        """Number, group and precisions: noise, and sites of all signs where the engine bears them."""
        for k, group in enumerate(self.groups):
            yield k, group, noise_sites(group.noise)
            if self.contender.any_sites and len(group.nodes):
                yield k, group, mixed_sites(self.prior, group.nodes, 0.5)

    def dense(self, group: Any, precision: Floats) -> DenseSites:
        return DenseSites(self.prior, group.nodes, precision)


def make_case(contender: Contender, graph: str, layout: str) -> Case:
    built, normalized = GRAPHS[graph]
    return Case(contender, built, normalized, LAYOUTS[layout](built))


def assert_conditioned(case: Case) -> None:
    """All that a likelihood asks for, at the observations."""
    process, rng = case.engine.at(case.position), np.random.default_rng(1)
    for k, group, precision in case.sites():
        dense, conditioned = case.dense(group, precision), process.condition(k, precision)
        potentials = rng.standard_normal((len(precision), 3))
        mean = dense.means(potentials)[group.nodes]
        solution = conditioned.solve(potentials)
        assert_close(conditioned.log_determinant, dense.log_determinant)
        assert_close(solution.mean, mean)
        assert_close(solution.alpha, potentials - precision[:, None] * mean)
        variance = np.diag(dense.covariance_at_data())
        if case.contender.variances:
            assert_close(conditioned.variance(), variance)
        assert_close(conditioned.used(), precision @ variance)
        assert_close(conditioned.unexplained(), dense.unexplained())
        divergence = 0.5 * (dense.log_determinant - precision @ variance)
        assert_close(conditioned.covariance_divergence(variance), divergence)


def assert_gradient(case: Case, digits: float = 1e-9) -> None:
    rng = np.random.default_rng(4)
    for k, group, precision in case.sites():
        potentials = rng.standard_normal((len(precision), 2))
        alpha = potentials - precision[:, None] * case.dense(group, precision).means(potentials)[group.nodes]
        weights = np.array([[1.0, -0.3], [-0.3, 0.7]])

        def value(position: Floats, group: Any = group, precision: Floats = precision, alpha: Floats = alpha) -> float:
            dense = DenseSites(case.prior_at(position), group.nodes, precision)
            return dense.objective(alpha, np.array([[1.0, -0.3], [-0.3, 0.7]]), 2.0)

        expected = five_point_gradient(value, case.position)
        conditioned = case.engine.at(case.position).condition(k, precision)
        assert_close(conditioned.gradient(conditioned.solve(potentials), weights, 2.0), expected, digits)


@in_all_cases
def test_at_the_observations(contender: Contender, graph: str, layout: str) -> None:
    assert_conditioned(make_case(contender, graph, layout))


@in_all_cases
def test_gradient(contender: Contender, graph: str, layout: str) -> None:
    assert_gradient(make_case(contender, graph, layout))


@in_all_cases
def test_quadratic_forms_of_data(contender: Contender, graph: str, layout: str) -> None:
    """Of values and linear effects; what was solved for them serves the gradient, and spoils nothing."""
    case = make_case(contender, graph, layout)
    for k, group in enumerate(case.groups):
        precision, data = noise_sites(group.noise), group.data
        dense = case.dense(group, precision)
        alpha = dense.inverse() @ data
        weights = np.full((data.shape[1], data.shape[1]), 0.2) + np.eye(data.shape[1])
        conditioned = case.engine.at(case.position).condition(k, precision)
        found = conditioned.solve_data()
        assert_close(found.forms, data.T @ alpha)
        assert_close(found.misfit, alpha.T @ (alpha / precision[:, None]))
        assert_close(conditioned.log_determinant, dense.log_determinant)
        gradient = conditioned.gradient(found.solution, weights, 3.0)
        again = case.engine.at(case.position).condition(k, precision)
        assert_close(gradient, again.gradient(again.solve(precision[:, None] * data), weights, 3.0))
        assert_close(conditioned.used(), again.used())


@in_all_cases
def test_at_all_nodes(contender: Contender, graph: str, layout: str) -> None:
    case = make_case(contender, graph, layout)
    edges = case.graph.edges
    sources, targets = (case.graph.locate(edges[end]) for end in ("source", "target"))
    chosen = np.array([5, 0, 5, 11])
    rng = np.random.default_rng(1)
    for at_once in (False, True):  # before and after the same sites were conditioned on, whose work may be used again
        for k, group, precision in case.sites():
            process = case.engine.at(case.position)
            if at_once:
                process.condition(k, precision)
            predictive, dense = process.predictive(k, precision), case.dense(group, precision)
            case.engine.at(case.engine.start)  # which leaves it valid
            potentials = rng.standard_normal((len(precision), 2))
            covariance = dense.covariance()
            assert_close(predictive.means(case.every, potentials), dense.means(potentials))
            assert_close(predictive.variances(case.every), np.diag(covariance))
            assert_close(predictive.covariances(case.every), covariance)
            assert_close(predictive.edge_covariances(sources, targets), covariance[sources, targets])
            assert_close(predictive.means(chosen, potentials), dense.means(potentials)[chosen])
            assert_close(predictive.variances(chosen), np.diag(covariance)[chosen])
            assert_close(predictive.covariances(chosen), covariance[np.ix_(chosen, chosen)])


@engines
@pytest.mark.parametrize("layout", ["few", "more than nodes"])
def test_under_further_sites(contender: Contender, layout: str) -> None:
    """Products with covariances, and measurements that are added and taken away again."""
    case = make_case(contender, "pieces" if contender.plain else "normalised pieces with masses", layout)
    more, others, rng = np.array([5, 0, 5, 11]), np.array([3, 7, 3]), np.random.default_rng(2)
    noise = np.array([0.3, 1.2, 0.7, 0.1])
    for k, group, precision in case.sites():
        predictive, dense = case.engine.at(case.position).predictive(k, precision), case.dense(group, precision)
        before, weights = dense.covariance(), rng.standard_normal((3, 2))
        assert_close(predictive.covariance_times(case.every, others, weights), before[:, others] @ weights)
        gain = np.linalg.solve(before[np.ix_(more, more)] + np.diag(noise), before[more])
        after = before - before[:, more] @ gain
        further = predictive.with_sites(more, 1.0 / noise)
        assert_close(further.variances(case.every), np.diag(after))
        assert_close(further.covariances(others), after[np.ix_(others, others)])
        assert_close(further.covariance_times(more, others, weights), after[np.ix_(more, others)] @ weights)
        old, new = rng.standard_normal((len(precision), 2)), rng.standard_normal((4, 2))
        means = dense.means(old) + before[:, more] @ new
        found = further.means(case.every, np.vstack([old, new]))
        assert_close(found, means - gain.T @ means[more])
        again = further.with_sites(more, -1.0 / noise)
        assert_close(again.variances(case.every), np.diag(before), 1e-8)


@engines
@pytest.mark.parametrize("layout", ["few", "more than nodes"])
def test_draws_have_the_moments_of_the_process(contender: Contender, layout: str) -> None:
    case = make_case(contender, "pieces" if contender.plain else "normalised pieces with masses", layout)
    n, rng = 5000, np.random.default_rng(7)
    for k, group, precision in case.sites():
        predictive = case.engine.at(case.position).predictive(k, precision)
        draws = predictive.deviations(n, case.every, rng)
        covariance = case.dense(group, precision).covariance()
        variance = np.diag(covariance)
        assert draws.shape == (n, len(case.every))
        # The largest of 12 + 78 z-scores exceeds 5 once in 20,000 runs; the seed is fixed.
        assert np.abs(draws.mean(axis=0) / np.sqrt(variance / n)).max() < 5.0
        error = np.sqrt((np.outer(variance, variance) + covariance**2) / n)
        assert np.abs((draws.T @ draws / n - covariance) / error).max() < 5.0


@pytest.mark.parametrize(("contender", "graph"), cases([one for one in ENGINES if one.any_sites], GRAPHS))
def test_sites_that_outweigh_the_prior_are_refused(contender: Contender, graph: str) -> None:
    for layout in LAYOUTS:
        case = make_case(contender, graph, layout)
        for k, group in enumerate(case.groups):
            if len(group.nodes) < 3:
                continue
            process, possible = case.engine.at(case.position), mixed_sites(case.prior, group.nodes, 0.99)
            process.condition(k, possible)
            impossible = mixed_sites(case.prior, group.nodes, 1.01)
            with pytest.raises(NotPositiveDefiniteError):
                process.condition(k, impossible)
            again = process.condition(k, possible)  # the failure left nothing behind
            assert_close(again.log_determinant, case.dense(group, possible).log_determinant, 1e-7)


# Parameters of sums, as there are with features, have paths for names.
@pytest.mark.parametrize(
    ("contender", "graph"), cases([one for one in ENGINES if "features" not in one.options], GRAPHS)
)
def test_coordinates(contender: Contender, graph: str) -> None:
    """The start is the kernel's own; variance and derivatives are those of the parameters they are named after."""
    case = make_case(contender, graph, "few")
    engine = case.engine
    kernel: Any = contender.kernel
    assert engine.kernel(engine.start).values() == pytest.approx(kernel.values(), rel=1e-10)  # type: ignore[operator]
    labels = [one.label for one in engine.coordinates]
    assert len(labels) == len(engine.start)
    assert set(labels) == set(kernel.values()) - set(kernel.fixed)
    # Traces of moments are of lower degree, which shows most where a kernel falls slowly (Leroux).
    error = 1e-3 if contender.name == "moments, Leroux" else 1e-5 if contender.costly else 1e-9
    average = np.trace(case.prior.seen + case.prior.unseen) / case.graph.n_nodes
    assert engine.average_variance(case.position) == pytest.approx(average, rel=error)

    def logarithms(position: Floats) -> Floats:
        values = engine.kernel(position).values()  # type: ignore[operator]
        return np.array([logit(values[label]) if label == "mixing" else np.log(values[label]) for label in labels])

    assert_close(engine.jacobian(case.position), five_point_gradient(logarithms, case.position).T)
    for one in (engine.start, *engine.other_starts()):
        assert one.shape == engine.start.shape
        case.engine.at(one)


@pytest.mark.parametrize(
    ("contender", "graph", "layout"), cases([one for one in ENGINES if one.informs], GRAPHS, LAYOUTS)
)
def test_information(contender: Contender, graph: str, layout: str) -> None:
    """½ tr C⁻¹∂C C⁻¹∂C, in the coordinates and in −log η; it guides a search, for which three digits are enough."""
    case = make_case(contender, graph, layout)
    for k, group in enumerate(case.groups):
        precision = noise_sites(group.noise)
        if not len(precision):
            continue

        def covariance(theta: Floats, group: Any = group, precision: Floats = precision) -> Floats:
            prior = case.prior_at(theta[:-1])
            return np.asarray(prior.seen[np.ix_(group.nodes, group.nodes)] + np.diag(np.exp(theta[-1]) / precision))

        theta = np.append(case.position, 0.0)
        inverse = np.linalg.inv(covariance(theta))
        slopes = inverse @ five_point_gradient(covariance, theta)
        expected = np.array([[0.5 * np.sum(a * b.T) for b in slopes] for a in slopes])
        conditioned = case.engine.at(case.position).condition(k, precision)
        assert_close(conditioned.information(), expected, 1e-3)


@pytest.mark.parametrize("contender", [one for one in ENGINES if one.prior is exact and not one.costly], ids=str)
@settings(max_examples=12)
@given(graph=graphs(masses=True), normalized=st.booleans(), seed=st.integers(0, 100))
def test_on_graphs_of_all_shapes(contender: Contender, graph: gm.Graph, normalized: bool, seed: int) -> None:
    if contender.plain:
        graph, normalized = gm.Graph.from_adjacency(graph.weights), False
    rng = np.random.default_rng(seed)
    nodes = rng.integers(0, graph.n_nodes, int(rng.integers(1, 2 + graph.n_nodes)))
    y, design = rng.standard_normal((len(nodes), 2)), np.ones((graph.n_nodes, 1))
    case = Case(contender, graph, normalized, Observations(nodes, y, design, rng.uniform(0.5, 2.0, len(nodes))))
    assert_conditioned(case)
    assert_gradient(case)
    for k, group, precision in case.sites():
        found = case.engine.at(case.position).predictive(k, precision).covariances(case.every)
        assert_close(found, case.dense(group, precision).covariance())


def test_every_way_of_conditioning_is_met() -> None:
    """No class of the package that conditions a process escapes this file."""

    def kinds(base: Any) -> set[Any]:
        return {one for child in base.__subclasses__() for one in (kinds(child) or {child})}

    met = set()
    for contender in ENGINES:
        for layout in LAYOUTS:
            case = make_case(contender, "connected", layout)
            precision = noise_sites(case.groups[-1].noise)
            met.add(type(case.engine.at(case.position).condition(len(case.groups) - 1, precision)))
    assert {one for one in kinds(Conditioned) if one.__module__.startswith("graphmatern.")} <= met
