"""The regressor: predictions against the dense reference, data of all kinds, odd inputs."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV

import graphmatern as gm
from graphmatern.errors import KernelError, NumericalError, NumericalWarning, TableError, UnknownNodeError
from reference import dense_kernel, matern_psi

if TYPE_CHECKING:
    from pathlib import Path

CITY = gm.make_roads(60, seed=1)


def dense_posterior(
    covariance: np.ndarray, places: np.ndarray, y: np.ndarray, noise: np.ndarray, constant: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance at all nodes, by universal kriging where the mean is an unknown constant."""
    cross = covariance[:, places]
    c = covariance[np.ix_(places, places)] + np.diag(noise)
    inverse = np.linalg.inv(c)
    mean, spread = cross @ inverse @ y, covariance - cross @ inverse @ cross.T
    if constant:
        h = np.ones(len(y))
        information = h @ inverse @ h
        beta = h @ inverse @ y / information
        sensitivity = 1.0 - cross @ inverse @ h
        mean = beta + cross @ inverse @ (y - beta * h)
        spread = spread + np.outer(sensitivity, sensitivity) / information
    return mean, spread


@pytest.mark.parametrize("engine", ["spectral", "markov"])
@pytest.mark.parametrize("mean", ["constant", "zero"])
@pytest.mark.parametrize("nu", [1, 2, 3])
def test_predictions_equal_the_dense_reference(engine: Any, mean: Any, nu: int) -> None:
    rng = np.random.default_rng(0)
    places = rng.integers(0, CITY.n_nodes, 30)  # repeats included
    y = 5.0 + 3.0 * rng.standard_normal(30)
    noise = rng.uniform(0.1, 0.5, 30)
    kernel = gm.Matern(nu, 2.0, 1.3)
    model = gm.GraphGPRegressor(CITY, kernel, engine=engine, mean=mean, optimizer=None)
    model.fit(CITY.nodes[places], y, noise_variance=noise)
    scale, shift = y.std(), y.mean()
    covariance = dense_kernel(CITY, matern_psi(nu, 2.0), variance=1.3)
    expected, spread = dense_posterior(
        covariance, places, (y - shift) / scale, noise / scale**2, constant=mean == "constant"
    )
    found, std = model.predict(return_std=True)
    np.testing.assert_allclose(found, shift + scale * expected, rtol=1e-8)
    np.testing.assert_allclose(std, scale * np.sqrt(np.diag(spread)), rtol=1e-8)
    chosen = [7, 3, 20]
    _, cov = model.predict(chosen, return_cov=True)
    np.testing.assert_allclose(cov, scale**2 * spread[np.ix_(chosen, chosen)], rtol=1e-8, atol=1e-10)
    # Leave-one-out, by leaving one out.
    table = model.loo()
    for left in (0, 13):
        rest = np.delete(np.arange(30), left)
        one, one_spread = dense_posterior(
            covariance, places[rest], (y[rest] - shift) / scale, noise[rest] / scale**2, constant=mean == "constant"
        )
        assert table["mean"][left] == pytest.approx(shift + scale * one[places[left]], rel=1e-8)
        variance = one_spread[places[left], places[left]] * scale**2 + noise[left]
        assert table["std"][left] == pytest.approx(np.sqrt(variance), rel=1e-8)


@pytest.mark.parametrize("engine", ["spectral", "markov"])
def test_samples_have_the_posteriors_moments(engine: Any) -> None:
    rng = np.random.default_rng(0)
    places = rng.permutation(CITY.n_nodes)[:12]
    model = gm.GraphGPRegressor(CITY, gm.Matern(2, 3.0), engine=engine, noise=0.2, optimizer=None)
    model.fit(CITY.nodes[places], rng.standard_normal(12))
    nodes = [0, 5, 9, 30]
    n = 20_000
    draws = model.sample(n, nodes, random_state=3)
    mean, cov = model.predict(nodes, return_cov=True)
    variance = np.diag(cov)
    # Largest of 4 + 16 z-scores; 4.5 standard errors have p < 2e-4.
    z_mean = (draws.mean(axis=0) - mean) / np.sqrt(variance / n)
    error = np.sqrt((np.outer(variance, variance) + cov**2) / n)
    z_cov = (np.cov(draws.T, bias=True) - cov) / error
    assert np.abs(z_mean).max() < 4.5
    assert np.abs(z_cov).max() < 4.5
    np.testing.assert_array_equal(model.sample(2, nodes, random_state=3), model.sample(2, nodes, random_state=3))


def parameters(model: gm.GraphGPRegressor) -> dict[str, float]:
    assert isinstance(model.kernel_, gm.Matern)
    return model.kernel_.values()


def test_engines_find_the_same_optimum() -> None:
    rng = np.random.default_rng(0)
    truth = gm.Matern(2, 5.0).on(CITY).sample(random_state=1).numpy()[0]
    y = pd.Series(truth + 0.2 * rng.standard_normal(len(truth)), index=CITY.nodes)[::2]
    kernel = gm.Matern(2, 3.0, fixed=("nu",))
    fits = [
        gm.GraphGPRegressor(CITY, kernel, engine=engine, integrate=False).fit(y) for engine in ("spectral", "markov")
    ]
    spectral, markov = fits
    assert spectral.log_marginal_likelihood_ == pytest.approx(markov.log_marginal_likelihood_, abs=1e-6)
    assert parameters(spectral) == pytest.approx(parameters(markov), rel=1e-3)
    assert spectral.noise_ == pytest.approx(markov.noise_, rel=1e-3)
    assert max(fit.gradient_norm_ for fit in fits) < 1e-3
    held = gm.Matern(2, 3.0, 1.0, fixed=("nu", "variance"))
    fits = [gm.GraphGPRegressor(CITY, held, engine=engine, integrate=False).fit(y) for engine in ("spectral", "markov")]
    assert fits[0].log_marginal_likelihood_ == pytest.approx(fits[1].log_marginal_likelihood_, abs=1e-6)
    assert [parameters(fit)["variance"] for fit in fits] == pytest.approx([1.0, 1.0], rel=1e-9)
    errors = [fit.standard_errors() for fit in fits]
    assert errors[0] == pytest.approx(errors[1], rel=1e-2)


def test_series_with_holes_and_replicates() -> None:
    values = pd.Series(np.nan, index=CITY.nodes)
    values.loc[[3, 8, 12, 20]] = np.array([1.0, 2.0, 3.0, 2.5])
    by_series = gm.GraphGPRegressor(CITY, gm.Matern(1, 2.0), optimizer=None).fit(values)
    by_names = gm.GraphGPRegressor(CITY, gm.Matern(1, 2.0), optimizer=None).fit([20, 12, 8, 3], [2.5, 3.0, 2.0, 1.0])
    np.testing.assert_allclose(by_series.predict(), by_names.predict(), rtol=1e-12)
    table = pd.DataFrame({"monday": values, "tuesday": values + 1.0, "wednesday": values.where(values > 1.5)})
    for engine in ("spectral", "markov"):
        model = gm.GraphGPRegressor(CITY, gm.Matern(1, 2.0), engine=engine, optimizer=None).fit(table)
        mean, std = model.predict([3, 8], return_std=True)
        assert mean.shape == std.shape == (2, 3)
        assert std[0, 2] > std[0, 0]  # not observed on Wednesday
        assert len(model.loo()) == 11


def test_conditioning_on_more_data() -> None:
    rng = np.random.default_rng(0)
    y = rng.standard_normal(20)
    model = gm.GraphGPRegressor(CITY, gm.Matern(2, 3.0), normalize_y=False, optimizer=None, noise=0.1)
    part = model.fit(CITY.nodes[:10], y[:10])
    before = part.predict()
    whole = part.condition_on(CITY.nodes[10:20], y[10:])
    expected = clone(model).fit(CITY.nodes[:20], y)
    np.testing.assert_allclose(whole.predict(), expected.predict(), rtol=1e-10)
    np.testing.assert_array_equal(part.predict(), before)


def test_conditioning_with_known_noise_replicates_and_covariates() -> None:
    rng = np.random.default_rng(0)
    y, noise = rng.standard_normal((20, 3)), rng.uniform(0.1, 1.0, 20)
    y[rng.random(y.shape) < 0.3] = np.nan
    for engine in ("spectral", "markov"):
        model = gm.GraphGPRegressor(
            CITY,
            gm.Matern(2, 3.0),
            engine=engine,
            normalize_y=False,
            optimizer=None,
            covariates=rng.standard_normal((CITY.n_nodes, 1)),
        )
        part = clone(model).fit(CITY.nodes[:10], y[:10], noise_variance=noise[:10])
        whole = part.condition_on(CITY.nodes[10:20], y[10:], noise_variance=noise[10:])
        expected = model.fit(CITY.nodes[:20], y, noise_variance=noise)
        np.testing.assert_allclose(whole.predict(return_std=True), expected.predict(return_std=True), rtol=1e-10)
        assert whole.log_marginal_likelihood_ == pytest.approx(expected.log_marginal_likelihood_, rel=1e-12)
        with pytest.raises(TableError) as caught:
            part.condition_on([0], [1.0])
        assert [fault.argument for fault in caught.value.faults] == ["y", "noise_variance"]


def test_components_without_data_are_marked() -> None:
    graph = gm.Graph.from_edges([("a", "b"), ("c", "d")])
    for engine in ("spectral", "markov"):
        model = gm.GraphGPRegressor(graph, gm.Matern(1, 1.0), engine=engine, optimizer=None).fit(["a"], [3.0])
        table = model.predict_table()
        assert table["informed"].tolist() == [True, True, False, False]
        assert table["std"]["c"] > table["std"]["a"]
        assert (table["observation_upper"] > table["upper"]).all()


def test_scikit_learns_tools() -> None:
    truth = gm.Matern(2, 5.0).on(CITY).sample(random_state=1).numpy()[0]
    model = gm.GraphGPRegressor(CITY, gm.Matern(2, 3.0, fixed=("nu",)), optimizer=None)
    assert clone(model).graph is CITY
    search = GridSearchCV(model, {"kernel__lengthscale": [0.01, 5.0], "noise": [0.01]}, cv=3)
    search.fit(np.asarray(CITY.nodes), truth)
    assert search.best_params_["kernel__lengthscale"] == 5.0
    assert model.fit(CITY.nodes, truth).score(CITY.nodes, truth) > 0.9
    assert "observations" in model.summary()


def test_a_fit_that_fails_leaves_the_last_one_as_it_was() -> None:
    model = gm.GraphGPRegressor(CITY, gm.Matern(1, 3.0), optimizer=None).fit([0, 1], [1.0, 2.0])
    expected, table, summary = model.predict(return_std=True), model.loo(), model.summary()
    model.set_params(noise=1e-30)
    with pytest.raises(NumericalError):
        model.fit([0, 0], [1e3, 2e3])
    with pytest.raises(TableError):
        model.fit(["nowhere"], [1.0])
    np.testing.assert_array_equal(model.predict(return_std=True), expected)
    pd.testing.assert_frame_equal(model.loo(), table)
    assert model.summary() == summary


@pytest.mark.parametrize("engine", ["spectral", "markov"])
def test_options_set_after_the_fit_are_for_the_next_one(engine: Any, tmp_path: Path) -> None:
    """Copies, files and more data are those of the model that was fitted."""
    rng = np.random.default_rng(0)
    y = rng.standard_normal(20)
    changes: list[dict[str, Any]] = [
        {"mean": "zero"}, {"normalized": True}, {"n_eigenpairs": 5}, {"covariates": None},
        {"bounds": {"variance": (1.0, 2.0)}}, {"kernel": gm.RandomWalk(4, 0.6)},
    ]  # fmt: skip
    covariates = rng.standard_normal((CITY.n_nodes, 1))
    for change in changes:
        model = gm.GraphGPRegressor(CITY, gm.Matern(1, 3.0), engine=engine, optimizer=None, covariates=covariates)
        model.fit(CITY.nodes[:20], y)
        expected, more = model.predict(), model.condition_on([30], [1.0]).predict()
        model.set_params(**change)
        np.testing.assert_array_equal(copy.deepcopy(model).predict(), expected)
        name = next(iter(change))
        assert type(copy.deepcopy(model).get_params()[name]) is type(change[name])
        model.save(tmp_path / "model.gm")
        np.testing.assert_array_equal(gm.load(tmp_path / "model.gm").predict(), expected)
        np.testing.assert_allclose(model.condition_on([30], [1.0]).predict(), more, rtol=1e-12)
    model.set_params(graph=gm.make_roads(60, seed=2))
    with pytest.raises(NotFittedError, match="another graph"):
        model.predict()


@pytest.mark.parametrize("engine", ["spectral", "markov"])
def test_standard_errors_leave_the_kernel_alone(engine: Any) -> None:
    truth = gm.Matern(2, 5.0).on(CITY).sample(random_state=1).numpy()[0]
    model = gm.GraphGPRegressor(CITY, gm.Matern(2, 3.0, fixed=("nu",)), engine=engine)
    model.fit(CITY.nodes, truth, noise_variance=np.full(len(truth), 0.05))
    before = parameters(model)
    assert set(model.standard_errors()) == {"lengthscale", "variance"}
    assert parameters(model) == before


def test_noise_variances_are_matched_by_name_where_values_have_names() -> None:
    y, noise = pd.Series([1.0, 2.0, 4.0], index=[3, 8, 12]), pd.Series([0.1, 1.0, 5.0], index=[3, 8, 12])
    model = gm.GraphGPRegressor(CITY, gm.Matern(1, 2.0), optimizer=None)
    expected = model.fit(y, noise_variance=noise).predict()
    everywhere = noise.reindex(CITY.nodes[::-1])  # NaN where nothing was observed
    np.testing.assert_array_equal(model.fit(y, noise_variance=everywhere).predict(), expected)
    holes = y.reindex(CITY.nodes)
    np.testing.assert_allclose(model.fit(holes, noise_variance=noise).predict(), expected, rtol=1e-12)
    with pytest.raises(TableError, match="each of them once"):
        model.fit(y, noise_variance=pd.concat([noise, noise]))
    with pytest.raises(TableError, match=r"`noise_variance` must hold finite numbers; received nan in row 2"):
        model.fit(y, noise_variance=noise.iloc[:2])


def test_what_is_missing_may_be_none_or_na() -> None:
    model = gm.GraphGPRegressor(CITY, gm.Matern(1, 2.0), optimizer=None)
    expected = model.fit([0, 2], [1.0, 3.0]).predict()
    for missing in (None, pd.NA, np.nan):
        values: list[Any] = [1.0, missing, 3.0]
        np.testing.assert_array_equal(model.fit([0, 1, 2], values).predict(), expected)


def test_scores_of_what_cannot_be_scored() -> None:
    model = gm.GraphGPRegressor(CITY, gm.Matern(1, 2.0), optimizer=None).fit([0, 2], [1.0, 3.0])
    series = pd.Series([1.0, 2.0], index=[4, 5])
    assert model.score(series) == model.score([4, 5], [[1.0], [2.0]]) == model.evaluate(series)["r2"]
    for score in (model.score, model.evaluate):
        with pytest.raises(TableError, match="no score: `y` must hold numbers"):
            score([4, 5], [1.0, np.inf])
        with pytest.raises(TableError, match="no score: `y` must have as many columns"):
            score([4, 5], np.ones((2, 2)))


CASES: dict[str, tuple[Any, ...]] = {
    "ragged": ([0, 1], [[1.0], [1.0, 2.0]], "NaN for what was not observed"),
    "mask": (np.ones(CITY.n_nodes, dtype=bool), np.zeros(CITY.n_nodes), "booleans, but names are numbers"),
    "unknown node": (["nowhere"], [1.0], "`nodes` must be names of nodes"),
    "empty": ([], [], "`y` must hold at least one value"),
    "all missing": ([0, 1], [np.nan, np.nan], "`y` must hold at least one value"),
    "infinite": ([0, 1], [1.0, np.inf], "NaN for what was not observed"),
    "text": ([0, 1], ["a", "b"], "NaN for what was not observed"),
    "too few": ([0, 1], [1.0], "must have shape"),
    "no values": ([0, 1], None, "must be given with `y`"),
}


@pytest.mark.parametrize("case", CASES)
def test_bad_data(case: str) -> None:
    nodes, y, words = CASES[case]
    with pytest.raises(TableError) as caught:
        gm.GraphGPRegressor(CITY).fit(nodes, y)
    assert words in str(caught.value)


def test_all_bad_options_are_reported_at_once() -> None:
    wrong: dict[str, Any] = {
        "kernel": gm.Matern, "normalized": "yes", "engine": None, "n_eigenpairs": 0, "noise": -1.0, "mean": "median",
        "normalize_y": 1, "optimizer": "sgd", "max_iterations": 0, "learning_rate": 0.0, "n_restarts": -1,
        "random_state": 1.5, "n_threads": 0, "verbose": "no",
    }  # fmt: skip
    with pytest.raises(KernelError) as caught:
        gm.GraphGPRegressor(CITY, **wrong).fit([0], [1.0])
    assert {fault.argument for fault in caught.value.faults} == set(wrong)


def test_a_mask_is_no_list_of_names() -> None:
    model = gm.GraphGPRegressor(CITY, gm.Matern(1, 2.0), optimizer=None).fit([0, 2], [1.0, 3.0])
    with pytest.raises(UnknownNodeError, match=r"graph.nodes\[mask\]"):
        model.predict(np.arange(CITY.n_nodes) > 5)
    with pytest.raises(TableError, match="`return_std` must be True or False"):
        model.predict([0], return_std="no")  # type: ignore[arg-type]


def test_bad_options() -> None:
    with pytest.raises(KernelError, match="falls faster than any sum of few Markov fields"):
        gm.GraphGPRegressor(CITY, gm.Diffusion(1.5), engine="markov").fit([0], [1.0])
    for error in (0.0, 0.5, 2, np.float32(1.0), "small"):
        with pytest.raises(KernelError, match="relative_error"):
            gm.GraphGPRegressor(CITY, relative_error=error).fit([0], [1.0])  # type: ignore[arg-type]
    with pytest.raises(KernelError, match="'auto' or 'spectral' or 'markov'"):
        gm.GraphGPRegressor(CITY, engine="fast").fit([0], [1.0])
    with pytest.raises(NotFittedError):
        gm.GraphGPRegressor(CITY).predict()
    with pytest.raises(TableError, match="`noise_variance` must be above 0"):
        gm.GraphGPRegressor(CITY).fit([0, 1], [1.0, 2.0], noise_variance=[0.0, 1.0])


@pytest.mark.parametrize("engine", ["spectral", "markov"])
def test_odd_data_have_right_answers(engine: Any) -> None:
    rng = np.random.default_rng(0)
    kernel = gm.Matern(1, 3.0, fixed=("nu",))
    constant = gm.GraphGPRegressor(CITY, kernel, engine=engine).fit(CITY.nodes[:10], np.full(10, 4.0))
    np.testing.assert_allclose(constant.predict(), 4.0, atol=1e-3)
    single = gm.GraphGPRegressor(CITY, kernel, engine=engine, optimizer=None).fit([0], [7.0])
    assert single.predict([0])[0] == pytest.approx(7.0)
    many = np.repeat(np.asarray(CITY.nodes), 3)
    full = gm.GraphGPRegressor(CITY, kernel, engine=engine, optimizer=None).fit(many, rng.standard_normal(len(many)))
    assert np.isfinite(full.predict(return_std=True)[1]).all()


def test_a_fit_that_stops_early_says_so() -> None:
    truth = gm.Matern(2, 5.0).on(CITY).sample(random_state=1).numpy()[0]
    with pytest.warns(NumericalWarning, match="stopped early"):
        gm.GraphGPRegressor(CITY, gm.Matern(1, 0.1), max_iterations=1).fit(CITY.nodes, truth)
    with pytest.warns(NumericalWarning, match="10 steps of Adam"):
        gm.GraphGPRegressor(CITY, gm.Matern(1, 0.1), optimizer="adam", max_iterations=10).fit(CITY.nodes, truth)


@pytest.mark.data
def test_traffic_reaches_the_known_optimum() -> None:
    """The negative log marginal likelihood of this split is 59.10 without the constant."""
    data = gm.datasets.load_traffic()
    train = np.random.default_rng(0).permutation(325)[:250]
    model = gm.GraphGPRegressor(data.graph, gm.Matern(1.5, 3.0), mean="zero", n_eigenpairs=500, integrate=False)
    model.fit(data.values.index[train], data.values.to_numpy()[train])
    assert -model.log_marginal_likelihood_ - 125 * np.log(2 * np.pi) <= 59.11
    assert model.engine_ == "spectral"
    assert model.converged_


def test_auto_chooses_the_markov_engine_for_large_graphs() -> None:
    graph = gm.make_roads(4000, seed=0)
    truth = gm.Matern(1, 6.0).on(graph, n_eigenpairs=800).sample(random_state=0).numpy()[0]
    observed = np.arange(0, graph.n_nodes, 5)
    y = truth[observed] + 0.1 * np.random.default_rng(1).standard_normal(len(observed))
    model = gm.GraphGPRegressor(graph).fit(observed, y)
    assert model.engine_ == "markov"
    assert "factors are sparse" in model.engine_reason_
    assert model.converged_
    hidden = np.setdiff1d(np.arange(graph.n_nodes), observed)
    mean, std = model.predict(hidden, return_std=True)
    assert np.sqrt(np.mean((mean - truth[hidden]) ** 2)) < 0.8 * truth[hidden].std()
    assert 0.9 < np.mean(np.abs(mean - truth[hidden]) < 1.96 * std) < 0.99


def test_eigenpairs_too_few_for_a_rough_kernel_are_told() -> None:
    graph = gm.make_roads(100, seed=0)
    model = gm.GraphGPRegressor(graph, gm.Matern(0.5, 0.5), engine="spectral", n_eigenpairs=10, optimizer=None)
    with pytest.warns(gm.errors.NumericalWarning, match="lose up to"):
        model.fit(graph.nodes[:20], np.sin(np.arange(20.0)))
