"""Many observations: what is estimated keeps to its stated errors, and the rest is as exact as with few.

That every formula is right follows from the contract of all engines, where there are as many probes as nodes.
"""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import networkx as nx
import numpy as np
import pytest

import graphmatern as gm
from contenders import KrylovMomentsEngine
from dense_process import DenseSites, assert_close, exact
from graphmatern.errors import NumericalError, NumericalWarning, ResourceError
from graphmatern.inference import Observations, Problem, Search
from graphmatern.inference.moments import engine as moments_engine
from graphmatern.inference.moments import krylov
from graphmatern.inference.moments.engine import MomentsEngine
from graphmatern.inference.moments.krylov import Accuracy, KrylovProcess, conjugate_gradients
from graphmatern.likelihoods import Gaussian
from graphmatern.sparse import Rows

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

HUBS = gm.Graph.from_networkx(nx.barabasi_albert_graph(600, 3, seed=3))
TRUE = gm.Matern(2.0, 3.0, 1.0)
SMOOTH = gm.Matern(2.0, 3.0, 1.0, fixed=("nu",))
NOISE = 0.05
OPTIONS: dict[str, Any] = {"engine": "moments", "normalized": True}


def draw(seed: int, nodes: Any, n_replicates: int = 1) -> Floats:
    """Noisy values of the process, the mean 0."""
    rng = np.random.default_rng(seed)
    covariance = exact(HUBS, TRUE, True).seen
    root = np.linalg.cholesky(covariance + 1e-10 * np.eye(HUBS.n_nodes))
    fields = root @ rng.standard_normal((HUBS.n_nodes, n_replicates))
    return np.asarray(fields[nodes] + np.sqrt(NOISE) * rng.standard_normal((len(nodes), n_replicates)))


NODES = np.random.default_rng(0).permutation(600)[:400]
VALUES = draw(1, NODES)[:, 0]


@pytest.fixture
def few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """More than 150 observed nodes are many."""
    monkeypatch.setattr(MomentsEngine, "most_dense", 150)


def problem(observations: Observations, kernel: gm.Kernel = TRUE, **options: Any) -> Problem:
    return Problem(HUBS, kernel, Gaussian(NOISE), observations, True, **{"search": Search(optimizer=None), **options})


def observed(n_replicates: int = 1) -> Observations:
    return Observations(NODES, draw(1, NODES, n_replicates), np.zeros((HUBS.n_nodes, 0)))


# ---------------------------------------------------------------------- conjugate gradients
def test_columns_converge_each_by_itself() -> None:
    rng = np.random.default_rng(0)
    matrix = np.diag(np.geomspace(1.0, 1e4, 80))
    columns = rng.standard_normal((80, 5))
    columns[:, 1] = 0.0
    columns[:, 2] = np.eye(80)[3]  # an eigenvector: one iteration
    tolerance = np.array([1e-10, 1e-10, 1e-10, 1e-2, 1e-6])
    found = conjugate_gradients(lambda x: matrix @ x, columns, tolerance, Rows(80))
    residual = np.linalg.norm(columns - matrix @ found.solution, axis=0)
    assert (residual <= 1.01 * tolerance * np.linalg.norm(columns, axis=0)).all()
    lengths = np.isfinite(found.steps).sum(axis=0)
    assert lengths[1] == 0
    assert lengths[2] == 1
    assert lengths[3] < lengths[4] < lengths[0]


def test_iterations_without_end_name_the_causes() -> None:
    rng = np.random.default_rng(0)
    matrix = np.diag(np.geomspace(1.0, 1e16, 3_000))
    with pytest.raises(NumericalError, match=r"bounds=.*noise.*engine='spectral'"):
        conjugate_gradients(lambda x: np.diag(matrix)[:, None] * x, rng.standard_normal((3_000, 1)), 1e-14, Rows(3_000))


# ---------------------------------------------------------------------- exact, where there are as many probes as nodes
def test_sites_may_be_zero() -> None:
    made = observed()
    engine = KrylovMomentsEngine(problem(made), made.groups)
    precision = np.random.default_rng(0).uniform(0.5, 30.0, len(NODES))
    precision[::3] = 0.0
    potentials = np.where(precision > 0.0, np.random.default_rng(1).standard_normal(len(NODES)), 0.0)[:, None]
    process = engine.at(engine.start)
    dense = DenseSites(exact(HUBS, TRUE, True), NODES, precision)
    conditioned = process.condition(0, precision)
    assert_close(conditioned.log_determinant, dense.log_determinant, 1e-8)
    assert_close(conditioned.solve(potentials).mean, dense.means(potentials)[NODES], 1e-8)
    predictive = process.predictive(0, precision)
    some = np.arange(0, 600, 7)
    assert_close(predictive.means(some, potentials), dense.means(potentials)[some], 1e-8)
    assert_close(predictive.covariances(some), dense.covariance()[np.ix_(some, some)], 1e-8)


def test_negative_sites_are_refused() -> None:
    made = observed()
    engine = KrylovMomentsEngine(problem(made), made.groups)
    with pytest.raises(ResourceError, match="engine='spectral'"):
        engine.at(engine.start).condition(0, np.full(len(NODES), -0.1))


# ---------------------------------------------------------------------- estimated
@pytest.mark.parametrize("n_replicates", [1, 3])
def test_single_probes_say_how_far_the_evidence_and_its_gradient_are_off(n_replicates: int) -> None:
    """Within 4 standard errors of the exact ones; replicates multiply both."""
    made = observed(n_replicates)
    weights, found = np.eye(n_replicates), {}
    for name, accuracy in (("exact", KrylovMomentsEngine.accuracy), ("estimated", Accuracy())):
        engine = KrylovMomentsEngine(problem(made), made.groups)
        engine.accuracy = accuracy
        conditioned: Any = engine.at(engine.start).condition(0, np.full(len(NODES), 1.0 / NOISE))
        gradient = conditioned.gradient(conditioned.solve_data().solution, weights, n_replicates)
        found[name] = conditioned, np.append(gradient, 0.5 * n_replicates * (len(NODES) - conditioned.used()))
    (exactly, true_gradient), (roughly, gradient) = found["exact"], found["estimated"]
    assert exactly.exact
    assert not roughly.exact
    of_evidence, of_gradient = roughly.deviations()
    assert of_evidence.shape == (16,)
    error = of_evidence.std(ddof=1) / 4.0
    assert 1e-3 < error < 10.0
    assert abs(0.5 * (roughly.log_determinant - exactly.log_determinant)) < 4.0 * error
    errors = n_replicates * of_gradient.std(axis=0, ddof=1) / 4.0
    assert (np.abs(gradient - true_gradient) < 4.0 * errors).all()
    assert (errors > 0.05 * np.abs(gradient - true_gradient)).all()
    assert all(not one.any() for one in exactly.deviations())
    # Of the Fisher information no more than an idea is needed.
    ratio = np.diag(roughly.information()) / np.diag(exactly.information())
    assert (np.abs(ratio - 1.0) < 0.5).all()


@pytest.mark.usefixtures("few_are_many")
def test_a_fit_keeps_to_its_stated_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    model: Any = gm.GraphGPRegressor(HUBS, SMOOTH, **OPTIONS).fit(NODES, VALUES)
    report = model._fit.report
    assert report["probes"] >= 16
    assert set(report["parameter_errors"]) == {"lengthscale", "variance", "noise"}
    monkeypatch.setattr(MomentsEngine, "most_dense", 4_000)
    fixed = gm.GraphGPRegressor(HUBS, model.kernel_, likelihood=model.likelihood_, optimizer=None, **OPTIONS)
    dense = fixed.fit(NODES, VALUES)
    assert abs(model.log_marginal_likelihood_ - dense.log_marginal_likelihood_) < 4.0 * report["evidence_error"]
    exact_fit: Any = gm.GraphGPRegressor(HUBS, SMOOTH, **OPTIONS).fit(NODES, VALUES)
    assert "probes" not in exact_fit._fit.report
    truth = {**exact_fit.kernel_.values(), "noise": exact_fit.likelihood_.noise.item()}
    found = {**model.kernel_.values(), "noise": model.likelihood_.noise.item()}
    for name, error in report["parameter_errors"].items():
        allowed = np.hypot(4.0 * error, 0.1 * exact_fit.standard_errors()[name])  # searches stop a little early
        assert abs(np.log(found[name] / truth[name])) < allowed, name


@pytest.mark.usefixtures("few_are_many")
def test_rough_searches_end_where_exact_ones_do(monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"integrate": False, **OPTIONS}
    made: list[tuple[bool, int, str]] = []
    at = MomentsEngine.at

    def noted(engine: MomentsEngine, position: Floats) -> Any:
        process = at(engine, position)
        if isinstance(process, KrylovProcess):
            made.append((engine.rough, process.degree, process.operator.products._dtype.name))
        return process

    monkeypatch.setattr(MomentsEngine, "at", noted)
    found: Any = gm.GraphGPRegressor(HUBS, SMOOTH, **options).fit(NODES, VALUES)
    rough, exact_ones = ([one for one in made if one[0] == which] for which in (True, False))
    assert {one[2] for one in rough} == {"float32"}
    assert {one[2] for one in exact_ones} == {"float64"}
    assert len(rough) > len(exact_ones) >= 1
    assert made[-1] in exact_ones
    assert found._fit.report["truncation_error"] <= Accuracy().kernel
    monkeypatch.setattr(MomentsEngine, "begin_roughly", lambda _: None)
    exactly: Any = gm.GraphGPRegressor(HUBS, SMOOTH, **options).fit(NODES, VALUES)
    errors = exactly.standard_errors()
    for name, value in exactly.kernel_.values().items():
        if name in errors:
            assert abs(np.log(found.kernel_.values()[name] / value)) < 0.1 * errors[name], name


@pytest.mark.usefixtures("few_are_many")
def test_one_long_lengthscale_does_not_make_all_later_evaluations_slow() -> None:
    """Rough degrees are kept where a lower one would make the evidence jump, but never beyond what is exact."""
    made = observed()
    engine: Any = MomentsEngine(problem(made, SMOOTH), made.groups)
    engine.begin_roughly()
    lengthscale = [one.label for one in engine.coordinates].index("lengthscale")
    far = engine.start.copy()
    far[lengthscale] += 2.0
    first, highest, last = (engine.at(one).degree for one in (engine.start, far, engine.start))
    exact_engine: Any = MomentsEngine(problem(made, SMOOTH), made.groups)
    exactly = exact_engine.at(engine.start).degree
    assert first < exactly < highest
    assert last == exactly


@pytest.mark.usefixtures("few_are_many")
@pytest.mark.parametrize("size", [1e-6, 1e-3])
def test_what_is_learned_does_not_depend_on_rounding_in_rough_evaluations(
    size: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it differs between one process and several; with more of it, exact searches begin elsewhere."""
    times, rng = KrylovProcess.times, np.random.default_rng(8)

    def otherwise(process: KrylovProcess, nodes: Any, columns: Floats) -> Floats:
        image = times(process, nodes, columns)
        single = process.operator.products._dtype.name == "float32"
        return image * (1.0 + size * rng.standard_normal(image.shape)) if single else image

    found = []
    for method in (times, otherwise):
        monkeypatch.setattr(KrylovProcess, "times", method)
        model: Any = gm.GraphGPRegressor(HUBS, SMOOTH, integrate=False, **OPTIONS).fit(NODES, VALUES)
        found.append(np.array([*model.kernel_.values().values(), model.noise_]))
    assert (found[0] != found[1]).any()
    np.testing.assert_allclose(found[1], found[0], rtol=1e-6)


@pytest.mark.usefixtures("few_are_many")
def test_combinations_of_columns_are_not_solved_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    made = observed()
    engine = MomentsEngine(problem(made), made.groups)
    predictive: Any = engine.at(engine.start).predictive(0, np.full(len(NODES), 1.0 / NOISE))
    columns = np.random.default_rng(0).standard_normal((len(NODES), 3))
    some = np.arange(600)
    first = predictive.means(some, columns[:, :2])
    solved, inner = [], krylov.conjugate_gradients

    def counted(*given: Any) -> Any:
        solved.append(given[1].shape[1])
        return inner(*given)

    monkeypatch.setattr(krylov, "conjugate_gradients", counted)
    combined = predictive.means(some, columns[:, :2] @ np.array([[2.0], [-0.5]]))
    assert solved == []
    assert_close(combined[:, 0], 2.0 * first[:, 0] - 0.5 * first[:, 1], 1e-8)
    both = predictive.means(some, columns[:, [0, 2]])
    assert solved == [1]
    assert_close(both[:, 0], first[:, 0], 1e-8)
    fresh = engine.at(engine.start).predictive(0, np.full(len(NODES), 1.0 / NOISE))
    assert_close(both[:, 1], fresh.means(some, columns[:, [2]])[:, 0], 1e-7)


@pytest.mark.usefixtures("few_are_many")
def test_standard_errors_are_numbers_or_said_to_be_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Derivatives in single precision are too rough to take differences of; the Fisher information is not."""
    options = {"integrate": False, **OPTIONS}
    found = gm.GraphGPRegressor(HUBS, SMOOTH, dtype="float32", **options).fit(NODES, VALUES).standard_errors()
    bounds = {"noise": (1e-6, 1e-3)}
    held = gm.GraphGPRegressor(HUBS, SMOOTH, dtype="float32", bounds=bounds, **options).fit(NODES, VALUES)
    assert "noise ended at a bound: no standard error" in held.summary()
    moved = next(line for line in held.summary().splitlines() if "may have moved" in line)
    assert "lengthscale" in moved
    assert "noise" not in moved
    with pytest.warns(NumericalWarning, match=r"no standard error.*: noise \(at a bound\)\."):
        errors = held.standard_errors()
    assert np.isnan(errors.pop("noise"))
    assert np.isfinite(list(errors.values())).all()
    monkeypatch.setattr(MomentsEngine, "most_dense", 4_000)
    expected = gm.GraphGPRegressor(HUBS, SMOOTH, **options).fit(NODES, VALUES).standard_errors()
    for name, error in expected.items():  # from probes, and expected, beside the curvature at these data
        assert found[name] == pytest.approx(error, rel=0.35), name


@pytest.mark.usefixtures("few_are_many")
def test_predictions_are_those_of_dense_matrices(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the same parameters: with covariates, unequal noise, repeated nodes and replicates."""
    rng = np.random.default_rng(4)
    nodes = np.concatenate([NODES, NODES[:20]])
    y = draw(5, nodes, 3)
    y[rng.random(y.shape) < 0.02] = np.nan
    covariates = rng.standard_normal((HUBS.n_nodes, 2))
    noise = rng.uniform(0.02, 0.2, len(nodes))
    asked, models = np.arange(0, 600, 11), {}
    for most in (150, 4_000):
        monkeypatch.setattr(MomentsEngine, "most_dense", most)
        made = gm.GraphGPRegressor(HUBS, TRUE, optimizer=None, covariates=covariates, **OPTIONS)
        models[most] = made.fit(nodes, y, noise_variance=noise)
    many, dense = models[150], models[4_000]
    assert "evidence_error" in many._fit.report
    assert "parameter_errors" not in many._fit.report  # none was learned
    for found, expected in zip(
        many.predict(asked, return_std=True), dense.predict(asked, return_std=True), strict=True
    ):
        np.testing.assert_allclose(found, expected, atol=1e-6)
    np.testing.assert_allclose(
        many.predict(asked, return_cov=True)[1], dense.predict(asked, return_cov=True)[1], atol=1e-6
    )


@pytest.mark.usefixtures("few_are_many")
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_variances_of_all_nodes_keep_to_their_stated_errors(dtype: Any) -> None:
    """Observed ones too, which are small; single precision goes through torch."""
    model: Any = gm.GraphGPRegressor(HUBS, TRUE, likelihood=Gaussian(NOISE), optimizer=None, dtype=dtype, **OPTIONS)
    model.fit(NODES, VALUES)
    predictive = model.posterior_.parts[0].predictive
    every = np.arange(HUBS.n_nodes)
    found, errors = predictive.variances(every), predictive.variance_errors(every)
    dense = DenseSites(exact(HUBS, TRUE, True), NODES, np.full(len(NODES), 1.0 / NOISE))
    truth = np.diag(dense.covariance())
    scores = (found - truth) / errors
    assert np.sqrt(np.mean(scores**2)) < 1.3
    assert np.abs(scores).max() < 6.0
    assert np.sqrt(np.mean((found / truth - 1.0) ** 2)) < 0.015


@pytest.mark.usefixtures("few_are_many")
def test_a_rehearsal_with_some_of_the_observations_comes_first() -> None:
    made = observed()
    part = MomentsEngine.rehearsal(problem(made, gm.Matern(2.0, 3.0)))
    assert part is not None
    assert part.graph is HUBS
    assert set(part.observations.nodes) < set(NODES)
    held = problem(made, gm.Matern(2.0, 3.0, fixed=("lengthscale",)))
    assert MomentsEngine.rehearsal(held) is None
    few = Observations(NODES[:100], VALUES[:100, None], np.zeros((HUBS.n_nodes, 0)))
    assert MomentsEngine.rehearsal(problem(few)) is None


@pytest.mark.usefixtures("few_are_many")
def test_more_probes_are_taken_where_they_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moments_engine, "_ROUGH", 1e-3)
    monkeypatch.setattr(moments_engine, "_FINE", 1e-3)
    model = gm.GraphGPRegressor(HUBS, SMOOTH, **OPTIONS).fit(NODES, VALUES)
    assert model._fit.report["probes"] == 128
    assert MomentsEngine.accuracy.n_probes == 16  # that fit's own


@pytest.mark.usefixtures("few_are_many")
def test_held_parameters_have_no_errors() -> None:
    held = Gaussian(NOISE, fixed=("noise",))
    kernel = gm.Matern(2.0, 3.0, fixed=("nu", "variance"))
    model = gm.GraphGPRegressor(HUBS, kernel, likelihood=held, **OPTIONS).fit(NODES, VALUES)
    assert set(model._fit.report["parameter_errors"]) == {"lengthscale"}
    kernel = gm.Matern(2.0, 3.0, fixed=("nu", "variance", "lengthscale"))
    model = gm.GraphGPRegressor(HUBS, kernel, likelihood=held, **OPTIONS).fit(NODES, VALUES)
    assert "parameter_errors" not in model._fit.report
    assert model._fit.report["evidence_error"] > 0.0


# ---------------------------------------------------------------------- around it
@pytest.mark.usefixtures("few_are_many")
@pytest.mark.parametrize("likelihood", ["poisson", "student_t"])
def test_other_likelihoods_are_refused_before_any_work(monkeypatch: pytest.MonkeyPatch, likelihood: Any) -> None:
    def never(*_: Any) -> None:
        raise AssertionError("work was done")

    monkeypatch.setattr(KrylovProcess, "condition", never)
    with pytest.raises(ResourceError, match=r"here 400; engine='moments' makes them for up to 150.*engine='spectral'"):
        gm.GraphGPRegressor(HUBS, likelihood=likelihood, **OPTIONS).fit(NODES, np.abs(np.round(VALUES)))
    with pytest.raises(ResourceError, match="engine='spectral'"):
        gm.GraphGPClassifier(HUBS, **OPTIONS).fit(NODES, VALUES > 0)


@pytest.mark.usefixtures("few_are_many")
def test_files_pickles_and_more_data(tmp_path: Path) -> None:
    model = gm.GraphGPRegressor(HUBS, TRUE, optimizer=None, **OPTIONS).fit(NODES, VALUES)
    asked = np.arange(50)
    mean, std = model.predict(asked, return_std=True)
    model.save(tmp_path / "many.gm")
    for again in (pickle.loads(pickle.dumps(model)), gm.load(tmp_path / "many.gm")):
        for found, expected in zip(again.predict(asked, return_std=True), (mean, std), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-7)
    new = np.setdiff1d(np.arange(600), NODES)[:5]
    more = model.condition_on(new, np.full(5, 0.3))
    assert more.engine_ == "moments"
    assert (more.predict(new, return_std=True)[1] < model.predict(new, return_std=True)[1]).all()


@pytest.mark.usefixtures("few_are_many")
def test_draws_have_the_covariance_of_the_posterior() -> None:
    model = gm.GraphGPRegressor(HUBS, TRUE, optimizer=None, **OPTIONS).fit(NODES, VALUES)
    asked = np.arange(6)
    mean, covariance = model.predict(asked, return_cov=True)
    draws = model.sample(3_000, asked, random_state=0)
    draws = draws.reshape(3_000, 6)
    variance = np.diag(covariance)
    assert np.abs((draws.mean(axis=0) - mean) / np.sqrt(variance / 3_000)).max() < 5.0
    error = np.sqrt((np.outer(variance, variance) + covariance**2) / 3_000)
    assert np.abs((np.cov(draws.T) - covariance) / error).max() < 5.0
