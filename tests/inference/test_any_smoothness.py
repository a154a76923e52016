"""Smoothnesses that are no integers, by the Markov engine: approximation, continuity, agreement, and whole fits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import graphmatern as gm
from graphmatern.errors import KernelError, NumericalError
from graphmatern.inference import Observations, Problem, Search
from graphmatern.inference.markov import cost
from graphmatern.inference.markov.fractional_engine import FractionalEngine
from graphmatern.inference.markov.pencil import matern_pencil
from graphmatern.inference.markov.rational import as_resolvents, fraction, largest_error, terms_for, widest_ratio
from graphmatern.inference.sites.gaussian import GaussianObjective
from graphmatern.likelihoods import Gaussian
from reference import dense_kernel, matern_psi

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

ROADS = gm.make_roads(90, seed=4)
WEIGHED = gm.Graph.from_adjacency(ROADS.weights, masses=np.random.default_rng(1).uniform(0.5, 2.0, ROADS.n_nodes))


def _covariance(graph: gm.Graph, kernel: Any, normalized: bool) -> NDArray[np.float64]:
    values = kernel.values()
    psi = matern_psi(values["nu"], values["lengthscale"])
    return dense_kernel(graph, psi, variance=values["variance"], normalized=normalized)


# ---------------------------------------------------------------------- the approximation
@given(beta=st.floats(1e-7, 1.0 - 1e-7), n_terms=st.integers(1, 10), error=st.sampled_from([1e-2, 1e-4, 1e-6]))
@settings(max_examples=60)
def test_fractions_keep_their_promise(beta: float, n_terms: int, error: float) -> None:
    ratio = widest_ratio(n_terms, error)
    if ratio == 0.0:
        assert largest_error(n_terms, 1.5) > error
        return
    found = fraction(beta, n_terms, ratio)
    y = np.geomspace(1.0, ratio, 500)
    power = found(y) / y**beta
    assert np.abs(power - 1.0).max() <= 1.01 * error * min(1.0, 8.0 * beta * (1.0 - beta) + 1e-9)
    assert found.constant > 0.0
    assert (found.weights > 0.0).all()
    assert ((found.rates > 0.0) & (found.rates < 1.0)).all()
    inverse = as_resolvents(found)
    assert inverse.constant >= 0.0
    assert (inverse.weights > 0.0).all()  # so that the sum is a covariance
    assert ((inverse.rates > 0.0) & (inverse.rates <= 1.0 + 1e-12)).all()
    lift = y[:, None] - 1.0
    again = inverse.constant + np.sum(inverse.weights / (1.0 + inverse.rates * lift), axis=1)
    np.testing.assert_allclose(again * found(y), 1.0, rtol=1e-9)


def test_few_terms_are_enough() -> None:
    """Best positive fractions of the literature: 1e-3, 8e-5 and 6e-6 for three, four and five terms at R = 100."""
    assert largest_error(3, 100.0) < 4e-4
    assert largest_error(4, 100.0) < 3e-5
    assert largest_error(5, 1000.0) < 6e-5
    assert terms_for(1e4, 1e-4) == 6
    assert terms_for(1.0, 1e-4) == 1
    with pytest.raises(NumericalError, match="relative_error"):
        terms_for(1e11, 1e-8)


@pytest.mark.parametrize("nu", [0.2, 0.9, 1.0 + 1e-4, 1.5, 2.3, 3.0 - 1e-4, 3.7, 4.4])
def test_pencils(nu: float) -> None:
    """Values, determinants, and derivatives by differences."""
    lift = np.concatenate([[0.0], np.geomspace(1e-3, 999.0, 30)])
    pencil = matern_pencil(nu, 5, 1000.0)
    value, in_nu, in_lift = pencil.kernel(lift)
    assert pencil.size == 5 + int(nu)
    np.testing.assert_allclose(value * (1.0 + lift) ** nu, 1.0, rtol=6e-5)
    step = 1e-5
    up, down = (matern_pencil(nu + sign * step, 5, 1000.0).kernel(lift)[0] for sign in (1, -1))
    np.testing.assert_allclose(in_nu, (up - down) / (2.0 * step), rtol=0.0, atol=1e-8)
    near = (pencil.kernel(lift * np.exp(step))[0] - pencil.kernel(lift * np.exp(-step))[0]) / (2.0 * step)
    np.testing.assert_allclose(in_lift, near, rtol=0.0, atol=1e-8)
    assert pencil.zeros is not None
    for x in lift[1:]:
        determinant = np.linalg.slogdet(pencil.constant + x * pencil.linear)[1]
        roots = nu // 1 * np.log1p(x) + np.log1p(pencil.zeros.rates * x).sum()
        assert determinant == pytest.approx(pencil.log_constant[0] + roots, abs=1e-9)
        # Quasi-definite: eigenvalues of the blocks of each sign have that sign.
        matrix, signs = pencil.constant + x * pencil.linear, np.array(pencil.signs)
        for sign in set(pencil.signs):
            block = matrix[np.ix_(signs == sign, signs == sign)]
            assert (sign * np.linalg.eigvalsh(block) > -1e-12).all()


# ---------------------------------------------------------------------- the engine
def _problem(graph: gm.Graph, kernel: gm.Kernel | None, normalized: bool = False, **options: Any) -> Problem:
    rng = np.random.default_rng(0)
    nodes = rng.permutation(graph.n_nodes)[:40]
    observations = Observations(nodes, rng.standard_normal((40, 1)), np.ones((graph.n_nodes, 1)))
    return Problem(graph, kernel, Gaussian(0.1), observations, normalized, **options)


def _evidence(problem: Problem) -> GaussianObjective:
    return GaussianObjective(FractionalEngine(problem, problem.observations.groups), problem)


def _exact(graph: gm.Graph, kernel: Any, normalized: bool, problem: Problem) -> float:
    """Negative log marginal likelihood from dense matrices."""
    covariance = _covariance(graph, kernel, normalized)
    group = problem.observations.groups[0]
    inner = covariance[np.ix_(group.nodes, group.nodes)] + 0.1 * np.eye(len(group.nodes))
    inverse, design, y = np.linalg.inv(inner), group.design, group.y[:, 0]
    information = design.T @ inverse @ design
    rest = y - design @ np.linalg.solve(information, design.T @ inverse @ y)
    free = len(y) - design.shape[1]
    value = rest @ inverse @ rest + np.linalg.slogdet(inner)[1] + np.linalg.slogdet(information)[1]
    return float(0.5 * (value + free * np.log(2.0 * np.pi)))


@pytest.mark.parametrize("error", [1e-4, 1e-6])
@pytest.mark.parametrize(("graph", "normalized"), [(ROADS, False), (WEIGHED, True)], ids=["plain", "masses"])
@pytest.mark.parametrize("nu", [0.3, 1.5, 2.5, 3.7])
def test_covariance_and_evidence_keep_the_stated_error(
    nu: float, graph: gm.Graph, normalized: bool, error: float
) -> None:
    for lengthscale in (1.0, 7.0, 50.0):
        kernel = gm.Matern(nu, lengthscale, 1.2, fixed=("nu", "lengthscale", "variance"))
        problem = _problem(graph, kernel, normalized, relative_error=error, search=Search(optimizer=None))
        engine = FractionalEngine(problem, problem.observations.groups)
        every = np.arange(graph.n_nodes)
        nothing = np.zeros(len(problem.observations.nodes))
        found = engine.at(engine.start).predictive(0, nothing).covariances(every)
        expected = _covariance(graph, kernel, normalized)
        size = np.sqrt(np.outer(np.diag(expected), np.diag(expected)))
        assert np.abs((found - expected) / size).max() < 2.0 * error  # itself, and the average that scales it
        value = GaussianObjective(engine, problem).value(_noise())
        assert abs(value - _exact(graph, kernel, normalized, problem)) < error * len(nothing)


def _noise() -> NDArray[np.float64]:
    return np.log([0.1])


@pytest.mark.parametrize("nu", [1.0, 2.0, 3.0])
def test_nothing_jumps_at_integers(nu: float) -> None:
    """The evidence on both sides of an integer is that of the integer's own engine."""
    step = 1e-6
    values = []
    for change in (-step, 0.0, step):
        kernel = gm.Matern(nu + change, 3.0, 1.2, fixed=("nu",))
        model = gm.GraphGPRegressor(ROADS, kernel, engine="markov", optimizer=None, noise=0.1)
        rng = np.random.default_rng(0)
        model.fit(ROADS.nodes[:50], rng.standard_normal(50))
        assert ("n_fields" in model._fit.report) is (change != 0.0)
        values.append(model.log_marginal_likelihood_)
    below, at, above = values
    assert abs(below - at) < 1e-4
    assert abs(above - at) < 1e-4
    # What is left is the slope: the same on both sides, up to what fields leave.
    assert (above - at) == pytest.approx(at - below, abs=1e-3 * step * 50)


def test_gradient_of_the_evidence() -> None:
    for nu in (0.6, 1.5, 2.5):
        problem = _problem(WEIGHED, gm.Matern(nu, 4.0, 1.2))
        objective = _evidence(problem)
        engine = objective._engine
        theta = np.concatenate([engine.start, _noise()])
        engine.prepare(engine.start)
        _, gradient = objective(theta)
        for k in range(len(theta)):
            step = np.zeros(len(theta))
            step[k] = 1e-4
            near = objective.value(theta + step) - objective.value(theta - step)
            far = objective.value(theta + 2 * step) - objective.value(theta - 2 * step)
            assert gradient[k] == pytest.approx((8.0 * near - far) / 12e-4, abs=2e-8)


@pytest.mark.parametrize("nu", [0.4, 1.5, 2.5])
def test_average_variances_from_resolvents(nu: float) -> None:
    """Without blocks where partial fractions keep their digits, with derivatives; the same as through blocks."""
    engine = FractionalEngine(_problem(WEIGHED, gm.Matern(nu, 4.0, 1.2)), [])
    log_nu, log_kappa = np.log(nu), np.log(4.0)
    values = np.linalg.eigvalsh(WEIGHED.laplacian().toarray())
    pencil, c = engine._pencil_at(log_nu, log_kappa), 2.0 * nu / 16.0
    found = engine.workspace.determinants.average(pencil, c, slopes=True)
    through_blocks = engine._average_through_blocks(pencil, c, slopes=True)
    if nu > 2.0:
        assert found is None
    else:
        np.testing.assert_allclose(np.asarray(found), np.asarray(through_blocks), rtol=1e-9)
    masses = np.asarray(WEIGHED.masses)
    _, vectors = np.linalg.eigh(WEIGHED.laplacian().toarray())
    diagonal = vectors**2 @ pencil.kernel(np.maximum(values, 0.0) / c)[0]
    assert through_blocks.value == pytest.approx(np.mean(diagonal / masses), rel=1e-10)


# ---------------------------------------------------------------------- whole fits
def _drawn(nu: float, seed: int = 0) -> tuple[Any, Any]:
    graph, rng = gm.make_roads(220, seed=1), np.random.default_rng(seed)
    covariance = _covariance(graph, gm.Matern(nu, 4.0, 1.0), False)
    path = np.linalg.cholesky(covariance + 1e-10 * np.eye(graph.n_nodes)) @ rng.standard_normal(graph.n_nodes)
    nodes = rng.permutation(graph.n_nodes)[:150]
    return graph, (graph.nodes[nodes], path[nodes] + 0.2 * rng.standard_normal(150))


def test_a_learned_smoothness_is_the_spectral_engines(tmp_path: Path) -> None:
    graph, data = _drawn(1.5)
    models = [
        gm.GraphGPRegressor(graph, gm.Matern(1.3), engine=engine, integrate=False, relative_error=1e-6).fit(*data)
        for engine in ("spectral", "markov")
    ]
    spectral, markov = models
    assert markov.log_marginal_likelihood_ == pytest.approx(spectral.log_marginal_likelihood_, abs=2e-4)
    for name, value in spectral.kernel_.values().items():
        assert markov.kernel_.values()[name] == pytest.approx(value, rel=2e-2)
    means = [model.predict(return_std=True) for model in models]
    for one, other in zip(*means, strict=True):
        np.testing.assert_allclose(one, other, atol=5e-3)
    assert "Markov fields" in markov.summary()
    markov.save(tmp_path / "model.gm")
    again = gm.load(tmp_path / "model.gm")
    for one, other in zip(again.predict(return_std=True), means[1], strict=True):
        np.testing.assert_allclose(one, other, rtol=0.0, atol=1e-9)


def test_a_large_graph_learns_its_smoothness() -> None:
    """Left to itself, a graph too large for eigenpairs gets the Markov engine, and ν is no integer."""
    graph = gm.make_roads(4_500, seed=0)
    rng = np.random.default_rng(1)
    nodes = rng.permutation(graph.n_nodes)[:300]
    model = gm.GraphGPRegressor(graph, gm.Matern(1.5, 3.0), integrate=False).fit(
        graph.nodes[nodes], np.sin(nodes / 400.0) + 0.1 * rng.standard_normal(300)
    )
    assert model.engine_ == "markov"
    assert "any value" in model.engine_reason_
    assert model.kernel_.values()["nu"] % 1.0 != 0.0


def test_a_rough_search_comes_first_and_leaves_no_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, data = _drawn(1.5)
    settings_of: dict[str, Any] = {"engine": "markov", "integrate": False, "relative_error": 1e-5}
    at_once = gm.GraphGPRegressor(graph, gm.Matern(1.3), **settings_of).fit(*data)
    monkeypatch.setattr(cost, "_LARGE", 10)
    seen: list[tuple[bool, int | None]] = []
    plain = FractionalEngine.at

    def at(engine: FractionalEngine, position: NDArray[np.float64]) -> Any:
        found = plain(engine, position)
        seen.append((engine.rough, engine._terms))
        return found

    monkeypatch.setattr(FractionalEngine, "at", at)
    roughly = gm.GraphGPRegressor(graph, gm.Matern(1.3), **settings_of).fit(*data)
    assert seen[0][0]
    assert not seen[-1][0]
    assert seen[0][1] < seen[-1][1]  # type: ignore[operator]
    assert roughly._fit.report["relative_error"] <= 1e-5
    assert roughly.log_marginal_likelihood_ == pytest.approx(at_once.log_marginal_likelihood_, abs=1e-3)
    for name, value in at_once.kernel_.values().items():
        assert roughly.kernel_.values()[name] == pytest.approx(value, rel=2e-2)


def test_integers_that_are_given_are_kept() -> None:
    graph, data = _drawn(1.5)
    model = gm.GraphGPRegressor(graph, gm.Matern(2, 3.0), engine="markov", integrate=False).fit(*data)
    assert model.kernel_.values()["nu"] == 2.0
    assert "n_fields" not in model._fit.report


def test_classes_with_a_smoothness_between() -> None:
    graph, (nodes, y) = _drawn(1.5)
    labels = np.where(y > 0, "high", "low")
    kernel = gm.Matern(1.5, 3.0, fixed=("nu",))
    found = [
        gm.GraphGPClassifier(graph, kernel, likelihood="bernoulli", inference=engine, integrate=False, normalized=False)
        .fit(nodes[:60], labels[:60])
        .predict_proba(graph.nodes)
        for engine in ("spectral", "markov")
    ]
    np.testing.assert_allclose(found[1], found[0], atol=5e-3)


def test_other_kernels_are_refused() -> None:
    graph, data = _drawn(1.5)
    with pytest.raises(KernelError, match="few Markov fields"):
        gm.GraphGPRegressor(graph, gm.Diffusion(2.0), engine="markov").fit(*data)
