"""Covariates of the mean, predictions on edges, samples in blocks, scores: against dense algebra."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest

import graphmatern as gm
from graphmatern import metrics
from graphmatern.errors import TableError
from reference import dense_kernel, matern_psi

if TYPE_CHECKING:
    from pathlib import Path

CITY = gm.make_roads(80, seed=1)
N = CITY.n_nodes
RNG = np.random.default_rng(11)
TABLE = pd.DataFrame(
    {"height": 400.0 + 50.0 * RNG.standard_normal(N), "lanes": RNG.integers(1, 4, N).astype(float)}, index=CITY.nodes
)
FIELD = gm.Matern(2, 4.0).on(CITY).sample(random_state=4).numpy()[0]
Y = 10.0 + 0.02 * TABLE["height"].to_numpy() - 3.0 * TABLE["lanes"].to_numpy() + FIELD
PLACES = RNG.permutation(N)[:40]
NOISY = Y + 0.2 * RNG.standard_normal(N)
ENGINES: list[Any] = ["spectral", "markov"]


def dense_universal_kriging(
    model: gm.GraphGPRegressor, design: np.ndarray, kernel: gm.Matern, noise: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Coefficients, their covariance, means and covariance at all nodes: in the units of y, without standardising."""
    y, scale = NOISY[PLACES], model.y_scale_
    found = kernel.values()
    k = scale**2 * dense_kernel(CITY, matern_psi(found["nu"], found["lengthscale"]), variance=found["variance"])
    inverse = np.linalg.inv(k[np.ix_(PLACES, PLACES)] + scale**2 * noise * np.eye(len(y)))
    h = design[PLACES]
    spread = np.linalg.inv(h.T @ inverse @ h)
    beta = spread @ h.T @ inverse @ y
    cross = k[:, PLACES]
    d = design - cross @ inverse @ h
    mean = design @ beta + cross @ inverse @ (y - h @ beta)
    return beta, spread, mean, k - cross @ inverse @ cross.T + d @ spread @ d.T


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("mean", ["constant", "zero"])
def test_coefficients_and_predictions_equal_universal_kriging(engine: Any, mean: Any) -> None:
    kernel = gm.Matern(2, 4.0, 0.5)
    normalize = mean == "constant"
    model = gm.GraphGPRegressor(
        CITY,
        kernel,
        engine=engine,
        mean=mean,
        noise=0.05,
        covariates=TABLE.sample(frac=1.0, random_state=0),
        optimizer=None,
        normalize_y=normalize,
    )
    model.fit(CITY.nodes[PLACES], NOISY[PLACES])
    design = TABLE.to_numpy()
    if mean == "constant":
        design = np.column_stack([np.ones(N), design])
    beta, spread, expected, covariance = dense_universal_kriging(model, design, kernel, 0.05)
    table = model.coefficients_
    assert list(table.index) == [*(["(constant)"] if mean == "constant" else []), "height", "lanes"]
    np.testing.assert_allclose(table["mean"], beta, rtol=1e-8)
    np.testing.assert_allclose(table["sd"], np.sqrt(np.diag(spread)), rtol=1e-8)
    found, cov = model.predict(return_cov=True)
    np.testing.assert_allclose(found, expected, rtol=1e-8)
    np.testing.assert_allclose(cov, covariance, rtol=1e-6, atol=1e-8)
    assert "height" in model.summary()


def test_covariates_help_and_are_recovered() -> None:
    with_them = gm.GraphGPRegressor(CITY, covariates=TABLE).fit(CITY.nodes[PLACES], NOISY[PLACES])
    without = gm.GraphGPRegressor(CITY).fit(CITY.nodes[PLACES], NOISY[PLACES])
    rest = np.setdiff1d(np.arange(N), PLACES)
    assert with_them.evaluate(CITY.nodes[rest], NOISY[rest])["rmse"] < 0.5 * without.evaluate(rest, NOISY[rest])["rmse"]
    truth = {"height": 0.02, "lanes": -3.0}
    for name, value in truth.items():
        row = with_them.coefficients_.loc[name]
        assert abs(row["mean"] - value) < 4 * row["sd"]


def test_an_array_of_covariates_is_in_the_order_of_the_nodes() -> None:
    kernel = gm.Matern(1, 3.0)
    by_table = gm.GraphGPRegressor(CITY, kernel, covariates=TABLE, optimizer=None).fit(PLACES, NOISY[PLACES])
    by_array = gm.GraphGPRegressor(CITY, kernel, covariates=TABLE.to_numpy(), optimizer=None).fit(PLACES, NOISY[PLACES])
    np.testing.assert_allclose(by_table.predict(), by_array.predict(), rtol=1e-13)
    assert list(by_array.coefficients_.index) == ["(constant)", "x0", "x1"]
    single = gm.GraphGPRegressor(CITY, kernel, covariates=TABLE["lanes"], optimizer=None).fit(PLACES, NOISY[PLACES])
    assert list(single.coefficients_.index) == ["(constant)", "lanes"]
    more = by_table.condition_on([1], [3.0])
    assert len(more.coefficients_) == 3


HOLES = TABLE.copy()
HOLES.iloc[3, 0] = np.nan
BAD: dict[str, tuple[Any, str]] = {
    "rows missing": (TABLE.iloc[3:], "`covariates` must have a row for every node"),
    "twice": (pd.concat([TABLE, TABLE.iloc[:2]]), "must have one row per node"),
    "NaN": (HOLES, "covariates['height']` must hold finite numbers"),
    "text": (TABLE.assign(name="a"), "covariates['name']` must hold finite numbers"),
    "constant": (TABLE.assign(one=1.0), "must not be linearly dependent"),
    "copy": (TABLE.assign(again=2 * TABLE["lanes"] + 1), "must not be linearly dependent"),
    "short array": (np.zeros((3, 2)), "must have a row for each of the"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_covariates(case: str) -> None:
    covariates, words = BAD[case]
    with pytest.raises(TableError) as caught:
        gm.GraphGPRegressor(CITY, covariates=covariates).fit(PLACES, NOISY[PLACES])
    assert words in str(caught.value)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("many", [False, True])
def test_points_on_edges_interpolate_the_joint_distribution(engine: Any, many: bool) -> None:
    chosen = np.arange(N) if many else PLACES
    model = gm.GraphGPRegressor(CITY, gm.Matern(1, 2.0), engine=engine, optimizer=None, covariates=TABLE)
    model.fit(chosen, NOISY[chosen])
    edges = CITY.edges.sample(25, random_state=0)
    share = np.random.default_rng(0).random(25)
    points = pd.DataFrame({"road": edges["id"].to_numpy(), "at": share * edges["length"].to_numpy(), "share": share})
    mean, std = model.predict_on_edges(points, edge="road", distance="at", return_std=True)
    everywhere, cov = model.predict(return_cov=True)
    i, j = CITY.locate(edges["source"]), CITY.locate(edges["target"])
    rows = np.zeros((25, N))
    rows[np.arange(25), i] += 1 - share
    rows[np.arange(25), j] += share
    np.testing.assert_allclose(mean, rows @ everywhere, rtol=1e-10)
    np.testing.assert_allclose(std, np.sqrt(np.diag(rows @ cov @ rows.T)), rtol=1e-7)
    noisy = model.predict_on_edges(points, edge="road", fraction="share", return_std=True, observation=True)[1]
    assert (noisy > std).all()
    ends = pd.DataFrame({"edge": edges["id"].to_numpy(), "t": np.zeros(25)})
    np.testing.assert_allclose(model.predict_on_edges(ends, fraction="t"), everywhere[i], rtol=1e-12)


def test_points_beyond_an_edge_are_refused() -> None:
    model = gm.GraphGPRegressor(CITY, gm.Matern(1, 2.0), optimizer=None).fit(PLACES, NOISY[PLACES])
    with pytest.raises(TableError, match="must lie from 0 to 1"):
        model.predict_on_edges({"edge": [CITY.edges["id"][0]], "t": [1.5]}, fraction="t")
    with pytest.raises(TableError, match="must hold ids of edges"):
        model.predict_on_edges({"edge": ["nowhere"], "t": [0.5]}, fraction="t")


@pytest.mark.parametrize("engine", ENGINES)
def test_samples_in_blocks_have_the_posteriors_moments(engine: Any) -> None:
    model = gm.GraphGPRegressor(CITY, gm.Matern(2, 3.0), engine=engine, noise=0.1, optimizer=None, covariates=TABLE)
    model.fit(PLACES[:15], NOISY[PLACES[:15]])
    nodes, n = [0, 5, 9], 12_000
    blocks = list(model.iter_samples(n, nodes, random_state=1, batch_size=500))
    assert {len(block) for block in blocks} == {500}
    draws = np.concatenate(blocks)
    mean, cov = model.predict(nodes, return_cov=True)
    variance = np.diag(cov)
    # Largest of 3 + 9 z-scores; 4.5 standard errors have p < 1e-4.
    assert np.abs((draws.mean(axis=0) - mean) / np.sqrt(variance / n)).max() < 4.5
    error = np.sqrt((np.outer(variance, variance) + cov**2) / n)
    assert np.abs((np.cov(draws.T, bias=True) - cov) / error).max() < 4.5
    with pytest.raises(TableError, match="`batch_size` must be a whole number"):
        model.iter_samples(3, batch_size=0)


def test_scores_of_a_model() -> None:
    model = gm.GraphGPRegressor(CITY, gm.Matern(2, 3.0), integrate=False).fit(PLACES, NOISY[PLACES])
    rest = np.setdiff1d(np.arange(N), PLACES)
    mean, std = model.predict(rest, return_std=True, observation=True)
    assert model.evaluate(rest, NOISY[rest]) == metrics.regression_report(NOISY[rest], mean, std)
    assert model.evaluate(pd.Series(NOISY[rest], index=rest)) == model.evaluate(rest, NOISY[rest])
    with_holes = np.where(np.arange(len(rest)) < 5, np.nan, NOISY[rest])
    assert model.score(rest, with_holes) == metrics.r2(NOISY[rest][5:], mean[5:])
    replicates = np.column_stack([NOISY[PLACES], NOISY[PLACES] + 1.0])
    both = gm.GraphGPRegressor(CITY, gm.Matern(2, 3.0)).fit(PLACES, replicates)
    assert both.score(PLACES, replicates) > 0.5
    assert np.isfinite(both.evaluate(PLACES, replicates)["nlpd"])


def test_known_noise_gives_intervals_of_new_observations_their_size() -> None:
    variance = np.full(40, 4.0)
    model = gm.GraphGPRegressor(CITY, gm.Matern(2, 3.0)).fit(PLACES, NOISY[PLACES], noise_variance=variance)
    _, std = model.predict([0], return_std=True)
    _, noisy = model.predict([0], return_std=True, observation=True)
    assert noisy[0] ** 2 == pytest.approx(std[0] ** 2 + 4.0)


# ---------------------------------------------------------------------- covariates of observations
ASKED = np.array([0, 7, 19])


def observed_twice(seed: int = 0) -> tuple[gm.Graph, Any, pd.DataFrame]:
    """Every third node observed twice, at different ages."""
    rng = np.random.default_rng(seed)
    graph = gm.make_roads(60, seed=2)
    nodes = np.repeat(graph.nodes[::3], 2)
    ages = pd.DataFrame({"age": rng.uniform(20.0, 80.0, len(nodes)), "dose": rng.standard_normal(len(nodes))})
    return graph, nodes, ages


@pytest.mark.parametrize("engine", ENGINES)
def test_covariates_of_observations_equal_universal_kriging(engine: Any) -> None:
    graph, nodes, ages = observed_twice()
    height = np.random.default_rng(1).standard_normal(graph.n_nodes)
    y = 0.02 * ages["age"] + np.random.default_rng(3).standard_normal(len(nodes))
    kernel = gm.Matern(2.0, lengthscale=3.0, variance=0.7, fixed=("nu", "lengthscale", "variance"))
    model = gm.GraphGPRegressor(graph, kernel, engine=engine, noise=0.3, normalize_y=False, optimizer=None,
                                covariates=height, integrate=False)  # fmt: skip
    model.fit(nodes, y.to_numpy(), covariates=ages)
    at = graph.locate(nodes)
    covariance = kernel.on(graph).matrix().numpy()
    h = np.column_stack([np.ones(len(at)), height[at], ages])
    c = covariance[np.ix_(at, at)] + 0.3 * np.eye(len(at))
    information = h.T @ np.linalg.solve(c, h)
    b = np.linalg.solve(information, h.T @ np.linalg.solve(c, y))
    assert model.coefficients_.index.tolist() == ["(constant)", "x0", "age", "dose"]
    np.testing.assert_allclose(model.coefficients_["mean"], b, atol=1e-7)
    np.testing.assert_allclose(model.coefficients_["sd"], np.sqrt(np.diag(np.linalg.inv(information))), atol=1e-7)
    wanted = np.column_stack([np.ones(3), height[ASKED], np.full(3, 50.0), [0.5, -1.0, 2.0]])
    cross = np.linalg.solve(c, covariance[np.ix_(at, ASKED)])
    d = wanted - cross.T @ h
    mean = wanted @ b + cross.T @ (y - h @ b)
    variance = np.diag(covariance)[ASKED] - np.einsum("ij,ij->j", covariance[np.ix_(at, ASKED)], cross)
    variance += np.einsum("ni,ij,nj->n", d, np.linalg.inv(information), d)
    asked = {"dose": [0.5, -1.0, 2.0], "age": 50.0}
    found = model.predict(graph.nodes[ASKED], return_std=True, covariates=asked)
    np.testing.assert_allclose(found, [mean, np.sqrt(variance)], atol=1e-7)
    # At the mean of those observed where nothing is said.
    middle = {name: float(ages[name].mean()) for name in ages}
    np.testing.assert_allclose(model.predict(), model.predict(covariates=middle), atol=1e-9)
    # What was fitted to the observations, and each of them left out, with covariates of their own.
    fitted = h @ b + covariance[np.ix_(at, at)] @ np.linalg.solve(c, y - h @ b)
    np.testing.assert_allclose(model.fitted_table()["fitted"], fitted, atol=1e-7)
    rest = np.delete(np.arange(len(at)), 4)
    again = gm.GraphGPRegressor(graph, kernel, engine=engine, noise=0.3, normalize_y=False, optimizer=None,
                                covariates=height, integrate=False)  # fmt: skip
    again.fit(nodes[rest], y.to_numpy()[rest], covariates=ages.iloc[rest].reset_index(drop=True))
    alone = again.predict([nodes[4]], return_std=True, observation=True, covariates=ages.iloc[[4]].to_numpy())
    np.testing.assert_allclose(model.loo().loc[4, ["mean", "std"]].to_numpy(float), np.ravel(alone), atol=1e-7)
    joined = again.condition_on([nodes[4]], [y[4]], covariates=ages.iloc[[4]].reset_index(drop=True))
    np.testing.assert_allclose(joined.predict(covariates=middle), model.predict(), atol=1e-7)


def test_ages_of_cases_are_recovered_and_kept_in_files(tmp_path: Path) -> None:
    graph, _, _ = observed_twice()
    rng = np.random.default_rng(5)
    nodes = np.repeat(graph.nodes[::2], 2)
    cases = pd.DataFrame({"old": rng.integers(0, 2, len(nodes)).astype(float)}, index=nodes)
    f = 0.4 * gm.Matern(2.0, lengthscale=5.0).on(graph).sample(random_state=1).numpy()[0]
    people = rng.uniform(5.0, 20.0, len(nodes))
    counts = rng.poisson(people * np.exp(f[graph.locate(nodes)] + 0.8 * cases["old"].to_numpy()))
    model = gm.GraphGPRegressor(graph, gm.Matern(2.0), likelihood="poisson")
    model.fit(nodes, counts, exposure=people, covariates=cases.to_numpy())
    row = model.coefficients_.loc["x0"]
    assert abs(row["mean"] - 0.8) < 3.0 * row["sd"] < 1.0
    old, young = (model.predict(covariates={"x0": value}) for value in (1.0, 0.0))
    assert abs(np.log(old / young).mean() - 0.8) < 0.5
    scores = model.evaluate(nodes, counts, exposure=people, covariates=cases.to_numpy())
    assert scores["nlpd"] < model.loo()["log_density"].mean() * -1.0
    assert (model.exceedance(1.0, covariates={"x0": 1.0}) > model.exceedance(1.0, covariates={"x0": 0.0})).all()
    model.save(tmp_path / "model.gm")
    np.testing.assert_allclose(gm.load(tmp_path / "model.gm").predict(covariates={"x0": 1.0}), old, rtol=1e-7)


def test_faults_of_covariates_of_observations() -> None:
    graph, nodes, ages = observed_twice()
    y = np.arange(len(nodes), dtype=float)
    options: dict[str, Any] = {"optimizer": None, "integrate": False}
    model = gm.GraphGPRegressor(graph, gm.Matern(1.0), **options)
    broken = ages.assign(age=np.where(np.arange(len(nodes)) == 3, np.nan, ages["age"]))
    with pytest.raises(TableError, match=r"covariates\['age'\]"):
        model.fit(nodes, y, covariates=broken)
    model.fit(nodes, np.where(np.arange(len(nodes)) == 3, np.nan, y), covariates=broken)  # where nothing was observed
    with pytest.raises(TableError, match="a row for each of 36 values"):
        model.fit(nodes, y, covariates=ages.to_numpy()[:5])
    with pytest.raises(TableError, match="linearly dependent"):
        model.fit(nodes, y, covariates=ages.assign(twice=2.0 * ages["age"]))
    with pytest.raises(TableError, match="must have different names"):
        gm.GraphGPRegressor(graph, gm.Matern(1.0), covariates=pd.Series(0.0, graph.nodes, name="age"), **options).fit(
            nodes, y, covariates=ages
        )
    model.fit(nodes, y, covariates=ages)
    with pytest.raises(TableError, match="none called 'dose'"):
        model.predict(covariates={"age": 3.0})
    with pytest.raises(TableError, match="must have 2 columns"):
        model.predict(covariates=np.zeros((graph.n_nodes, 3)))
    with pytest.raises(TableError, match="must be those of `fit`: age, dose; received none"):
        model.evaluate(nodes, y)
    with pytest.raises(TableError, match="must be those of `fit`: age, dose; received none"):
        model.condition_on(nodes, y)
    with pytest.raises(TableError, match="unless `fit` was given"):
        gm.GraphGPRegressor(graph, gm.Matern(1.0), **options).fit(nodes, y).predict(covariates={"age": 3.0})
