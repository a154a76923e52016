"""Counts by area: risks, residuals, the two parts of BYM2, exposures of 0, criteria."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import graphmatern as gm
from graphmatern.errors import KernelError, TableError
from reference import areal_kernel

EDGES = [(i, j) for i in range(9) for j in (i + 1, i + 3) if j < 9] + [(9, 10), (10, 11)]
ISLANDS = gm.Graph.from_edges(EDGES, nodes=range(13))


@pytest.fixture(scope="module")
def model() -> gm.GraphGPRegressor:
    rng = np.random.default_rng(0)
    exposure = rng.uniform(2.0, 9.0, 13)
    y = rng.poisson(exposure * np.exp(0.5 * rng.standard_normal(13)))
    kernel, x = gm.BYM2(0.4, 0.6), rng.standard_normal(13)
    return gm.GraphGPRegressor(ISLANDS, kernel, likelihood="poisson", covariates=x).fit(range(13), y, exposure=exposure)


def test_risks(model: gm.GraphGPRegressor) -> None:
    table = model.risk_table()
    mean, std = model.predict(return_std=True)
    np.testing.assert_allclose(table["mean"], mean)
    np.testing.assert_allclose(table["sd"], std)
    np.testing.assert_allclose(table["above"], model.exceedance(1.0))
    draws = model.sample(20_000, random_state=0)
    for name, level in (("lower", 0.025), ("median", 0.5), ("upper", 0.975)):
        np.testing.assert_allclose(table[name], np.quantile(draws, level, axis=0), rtol=0.06)
    assert (table["lower"] < table["median"]).all()
    assert list(model.risk_table(2.0)["above"] < table["above"]) == [True] * 13


def test_risks_are_relative_to_all_areas_where_exposures_are_people(model: gm.GraphGPRegressor) -> None:
    data = model._data
    people = 1e4 * np.asarray(data.exposure)
    kernel = gm.BYM2(0.4, 0.6)
    fitted = gm.GraphGPRegressor(ISLANDS, kernel, likelihood="poisson", optimizer=None, integrate=False)
    fitted.fit(range(13), data.y[:, 0], exposure=people)
    rate = data.y.sum() / people.sum()
    table = fitted.risk_table(1.2)
    assert table.attrs["reference"] == pytest.approx(rate)
    assert model.risk_table().attrs["reference"] == 1.0
    np.testing.assert_allclose(table["mean"] * rate, fitted.predict())
    np.testing.assert_allclose(table["upper"] * rate, fitted.predict_table()["upper"])
    np.testing.assert_allclose(table["above"], fitted.exceedance(1.2 * rate))


def test_fitted_counts_and_residuals(model: gm.GraphGPRegressor) -> None:
    table = model.fitted_table()
    fitted = model.predict(range(13), exposure=table["exposure"].to_numpy())
    np.testing.assert_allclose(table["fitted"], fitted)
    np.testing.assert_allclose(table["residual"], table["y"] - fitted)
    assert (table["sd"] ** 2 > table["fitted"]).all()
    assert table["pearson"].abs().max() < 4.0


def test_deviance_information_criterion(model: gm.GraphGPRegressor) -> None:
    found, table = model.information_criteria(), model.fitted_table()
    latent = model.posterior_.latent_mean(np.arange(13))[0] + model._level + np.log(table["exposure"].to_numpy())
    at_mean = -2.0 * stats.poisson(np.exp(latent)).logpmf(table["y"]).sum()
    assert found["dic"] - 2.0 * found["p_dic"] == pytest.approx(at_mean, rel=1e-9)
    assert 1.0 < found["p_dic"] < 13.0
    assert found["dic"] == pytest.approx(found["waic"], abs=8.0)


@pytest.mark.parametrize("engine", ["markov", "spectral"])
def test_parts_of_areas(engine: Any) -> None:
    """With Gaussian noise, where both are known in closed form."""
    rng = np.random.default_rng(1)
    x, y, nodes = rng.standard_normal(13), rng.standard_normal(10), np.array([0, 1, 2, 3, 5, 7, 8, 10, 12, 12])
    model = gm.GraphGPRegressor(
        ISLANDS, gm.BYM2(0.8, 0.7), noise=0.3, optimizer=None, normalize_y=False, covariates=x, engine=engine,
        priors={"coefficients": gm.Normal(1.5)},
    ).fit(nodes, y)  # fmt: skip
    design = np.column_stack([np.ones(13), x])
    shared, own = 0.7 * areal_kernel(ISLANDS, "BYM2", 0.8, 1.0), 0.3 * 0.8 * np.eye(13)
    every = shared + own + 1.5**2 * design @ design.T
    weights = np.linalg.inv(every[np.ix_(nodes, nodes)] + 0.3 * np.eye(10))
    found = model.area_parts()
    for name, part in (("structured", shared), ("unstructured", own)):
        across = part[:, nodes]
        np.testing.assert_allclose(found[name], across @ weights @ y, atol=1e-8)
        variance = np.diag(part - across @ weights @ across.T)
        np.testing.assert_allclose(found[f"{name}_sd"], np.sqrt(np.maximum(variance, 0.0)), atol=1e-7)


def test_parts_of_an_integrated_fit_add_up(model: gm.GraphGPRegressor) -> None:
    parts = model.area_parts()
    assert np.abs(np.bincount(ISLANDS.components[:12], parts["structured"][:12])).max() < 1e-9
    mean = model.coefficients_["mean"]
    x = model._covariates.design[:, 1] * np.sqrt(np.var(model.covariates)) + np.mean(model.covariates)
    linear = mean["(constant)"] + mean["x0"] * x
    latent = model.posterior_.latent_mean(np.arange(13))[0] + model._level
    # Coefficients and parts are averages over the same components, weighed alike.
    np.testing.assert_allclose(parts["structured"] + parts["unstructured"] + linear, latent, atol=1e-8)
    with pytest.raises(KernelError, match="must be BYM2 or ICAR"):
        gm.GraphGPRegressor(ISLANDS, gm.Leroux(), optimizer=None).fit([0, 1], [1.0, 2.0]).area_parts()


def test_areas_without_people() -> None:
    """No case among nobody says nothing; a case among nobody is a fault."""
    exposure = pd.Series(np.linspace(1.0, 4.0, 13), index=ISLANDS.nodes)
    cases = pd.Series(np.arange(13) % 4, index=ISLANDS.nodes)
    kernel = gm.BYM2(0.4, 0.6)
    exposure[[4, 8]], cases[[4, 8]] = 0.0, 0
    some = gm.GraphGPRegressor(ISLANDS, kernel, likelihood="poisson", optimizer=None).fit(cases, exposure=exposure)
    fewer = gm.GraphGPRegressor(ISLANDS, kernel, likelihood="poisson", optimizer=None).fit(
        cases.drop([4, 8]), exposure=exposure.drop([4, 8])
    )
    np.testing.assert_allclose(some.predict(), fewer.predict())
    assert some.predict([4], exposure=[0.0]) < 1e-200
    assert some.risk_table()["mean"].min() > 0.1
    cases[8] = 2
    with pytest.raises(TableError, match="must be above 0 for counts above 0; received 0 for 8"):
        some.fit(cases, exposure=exposure)


@pytest.mark.parametrize("name", ["zero_inflated_poisson", "binomial", "gamma"])
def test_further_likelihoods(name: Any, tmp_path: Any) -> None:
    """Fitted, stored, predicted; the constant is where the data are."""
    rng = np.random.default_rng(5)
    graph = gm.Graph.from_edges([(i, j) for i in range(60) for j in (i + 1, i + 6) if j < 60])
    f = 0.5 + 0.8 * gm.ICAR().on(graph).sample(random_state=0).numpy()[0]
    trials = rng.integers(5, 30, 60)
    drawn = {
        "zero_inflated_poisson": rng.poisson(4.0 * np.exp(f)) * (rng.random(60) < 0.7),
        "binomial": rng.binomial(trials, 1.0 / (1.0 + np.exp(-f))),
        "gamma": rng.gamma(20.0, np.exp(f) / 20.0),
    }
    y = drawn[name]
    beside: dict[str, Any] = {"trials": trials} if name == "binomial" else {}
    # What areas have by themselves cannot be told from the dispersion of single measurements.
    kernel = gm.ICAR() if name == "gamma" else gm.BYM2()
    model = gm.GraphGPRegressor(graph, kernel, likelihood=name, integrate=False).fit(graph.nodes, y, **beside)
    truth = {"zero_inflated_poisson": 0.7 * 4.0 * np.exp(f), "binomial": 1.0 / (1.0 + np.exp(-f)), "gamma": np.exp(f)}
    mean, std = model.predict(return_std=True)
    assert np.mean(np.abs(mean - truth[name]) < 2.5 * std) > 0.8
    assert np.corrcoef(mean, truth[name])[0, 1] > 0.4
    model.save(tmp_path / "model.gm")
    np.testing.assert_allclose(gm.load(tmp_path / "model.gm").predict(), mean, rtol=1e-6)
    left_out = model.loo()
    assert np.isfinite(left_out[["mean", "log_density", "pit"]].to_numpy()).all()
    assert 0.3 < left_out["pit"].mean() < 0.7
    assert model.fitted_table()["residual"].abs().max() < 1.0 + 20.0 * (name != "binomial")
    if name == "zero_inflated_poisson":
        learned: Any = model.likelihood_
        assert 0.1 < learned.zeros.item() < 0.5
    more = model.condition_on([0], [y[0]], **({"trials": [trials[0]]} if beside else {}))
    assert more.predict([0], return_std=True)[1] < std[0] * 1.05


def test_faults_of_trials() -> None:
    model = gm.GraphGPRegressor(ISLANDS, gm.BYM2(), likelihood="binomial", optimizer=None)
    with pytest.raises(TableError, match="if, and only if, the likelihood is binomial"):
        model.fit([0, 1], [1, 2])
    with pytest.raises(TableError, match="whole numbers from 0 to `trials`"):
        model.fit([0, 1], [1, 5], trials=[3, 4])
