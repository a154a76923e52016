"""Integrated fits against dense integration over a grid of parameters, on a tiny graph."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest

import graphmatern as gm
from graphmatern.errors import NumericalWarning
from graphmatern.inference import Observations, PriorsAndBounds, Problem
from graphmatern.inference.learning.default_priors import default_priors
from graphmatern.inference.learning.explore import explore
from graphmatern.inference.learning.integrate import Effort, is_worth_it
from graphmatern.likelihoods import Gaussian, Poisson, StudentT
from reference import dense_kernel, matern_psi

CITY = gm.make_roads(40, seed=3)
RNG = np.random.default_rng(5)
FIELD = gm.Matern(2, 4.0).on(CITY).sample(random_state=2).numpy()[0]
PLACES = RNG.permutation(CITY.n_nodes)[:14]
NOISE = 0.1
Y = FIELD[PLACES] + np.sqrt(NOISE) * RNG.standard_normal(len(PLACES))
PRIORS = {"lengthscale": gm.LogNormal(4.0, 0.8), "variance": gm.LogNormal(1.0, 0.8)}
LOGS = np.stack(np.meshgrid(np.log(4.0) + np.linspace(-4, 4, 61) * 0.8, np.linspace(-4, 4, 61) * 0.8), axis=-1)
POINTS = LOGS.reshape(-1, 2)


def cell(table: Any, row: Any, column: str) -> float:
    return float(table.loc[row, column])


def model(engine: Any = "spectral", **options: Any) -> gm.GraphGPRegressor:
    return gm.GraphGPRegressor(
        CITY,
        gm.Matern(2, 3.0, fixed=("nu",)),
        engine=engine,
        likelihood=Gaussian(NOISE, fixed=("noise",)),
        normalize_y=False,
        priors=PRIORS,
        integrate=True,
        **options,
    )


@cache
def dense(left_out: int | None = None) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """Weights of all grid points, means and variances of f at every node there, and the log evidence; flat mean."""
    kept = [k for k in range(len(Y)) if k != left_out]
    y, places = Y[kept], PLACES[kept]
    logs, means, variances = [], [], []
    for log_kappa, log_variance in POINTS:
        k = dense_kernel(CITY, matern_psi(2, np.exp(log_kappa)), variance=np.exp(log_variance))
        inverse = np.linalg.inv(k[np.ix_(places, places)] + NOISE * np.eye(len(y)))
        h = np.ones(len(y))
        information, cross = h @ inverse @ h, h @ inverse @ y
        level = cross / information
        squares = y @ inverse @ y - cross**2 / information
        sign = -np.linalg.slogdet(inverse)[1]
        evidence = -0.5 * (sign + squares + np.log(information) + (len(y) - 1) * np.log(2 * np.pi))
        prior = sum(
            -PRIORS[name].penalty(float(x))[0] for name, x in (("lengthscale", log_kappa), ("variance", log_variance))
        )
        logs.append(evidence + prior)
        gain = k[:, places] @ inverse
        means.append(level + gain @ (y - level))
        d = 1.0 - gain @ h
        variances.append(np.diag(k) - np.einsum("ij,ij->i", gain, k[:, places]) + d**2 / information)
    weights = np.exp(np.array(logs) - max(logs))
    cell = (LOGS[0, 1, 0] - LOGS[0, 0, 0]) * (LOGS[1, 0, 1] - LOGS[0, 0, 1])
    return weights / weights.sum(), np.array(means), np.array(variances), max(logs) + np.log(weights.sum() * cell)


@pytest.mark.parametrize("engine", ["spectral", "markov", "moments"])
def test_it_is_what_a_dense_grid_says(engine: Any) -> None:
    fit = model(engine).fit(CITY.nodes[PLACES], Y)
    weights, means, variances, log_evidence = dense()
    assert fit.log_evidence_ == pytest.approx(log_evidence, abs=0.1)
    table = fit.hyperparameters_
    assert list(table.index) == ["lengthscale", "range", "sigma"]
    for name, values in (("lengthscale", np.exp(POINTS[:, 0])), ("sigma", np.exp(0.5 * POINTS[:, 1]))):
        expected = weights @ values
        spread = np.sqrt(weights @ (values - expected) ** 2)
        assert abs(cell(table, name, "mean") - expected) < 0.15 * spread
        assert cell(table, name, "sd") == pytest.approx(spread, rel=0.2)
        distinct, place = np.unique(values.round(12), return_inverse=True)
        share = np.bincount(place, weights)
        median = np.interp(0.5, np.cumsum(share) - 0.5 * share, distinct)
        assert abs(cell(table, name, "50%") - median) < 0.15 * spread
    mean, std = fit.predict(return_std=True)
    expected_mean = weights @ means
    expected_std = np.sqrt(weights @ (variances + (means - expected_mean) ** 2))
    assert np.abs((mean - expected_mean) / expected_std).max() < 0.05
    np.testing.assert_allclose(std, expected_std, rtol=0.05)
    # The plug-in fit is too sure of itself.
    plugged = gm.GraphGPRegressor(
        CITY, gm.Matern(2, 3.0, fixed=("nu",)), engine=engine, likelihood=Gaussian(NOISE, fixed=("noise",)),
        normalize_y=False, integrate=False,
    ).fit(CITY.nodes[PLACES], Y)  # fmt: skip
    assert plugged.predict(return_std=True)[1].mean() < expected_std.mean()


def test_quantiles_are_those_of_the_mixture() -> None:
    from scipy.special import ndtr

    fit = model().fit(CITY.nodes[PLACES], Y)
    weights, means, variances, _ = dense()
    table = fit.predict_table(level=0.9)
    for column, level in (("lower", 0.05), ("upper", 0.95)):
        below = weights @ ndtr((table[column].to_numpy() - means) / np.sqrt(variances))
        np.testing.assert_allclose(below, level, atol=0.012)
    noisy = weights @ ndtr((table["observation_upper"].to_numpy() - means) / np.sqrt(variances + NOISE))
    np.testing.assert_allclose(noisy, 0.95, atol=0.012)
    above = weights @ ndtr((means - 0.5) / np.sqrt(variances))
    np.testing.assert_allclose(fit.exceedance(0.5).to_numpy(), above, atol=0.02)


def test_leaving_out_changes_what_is_known_of_the_parameters() -> None:
    """Weights are those without the observation: against the dense grid fitted to the others."""
    table = model().fit(CITY.nodes[PLACES], Y).loo()
    for k in (0, 3, 7):
        weights, means, variances, log_evidence = dense(k)
        here = means[:, PLACES[k]]
        mean = weights @ here
        std = np.sqrt(weights @ (variances[:, PLACES[k]] + (here - mean) ** 2) + NOISE)
        assert abs(cell(table, k, "mean") - mean) < 0.1 * std
        assert cell(table, k, "std") == pytest.approx(std, rel=0.05)
        # p(y_i | others) is a ratio of evidences.
        assert cell(table, k, "log_density") == pytest.approx(dense()[3] - log_evidence, abs=0.05)


def test_more_data_weigh_the_parameters_anew() -> None:
    fewer = model().fit(CITY.nodes[PLACES[:10]], Y[:10])
    more = fewer.condition_on(CITY.nodes[PLACES[10:]], Y[10:])
    weights, means, variances, log_evidence = dense()
    expected = weights @ means
    std = np.sqrt(weights @ (variances + (means - expected) ** 2))
    assert np.abs((more.predict() - expected) / std).max() < 0.15
    assert more.log_evidence_ == pytest.approx(log_evidence, abs=0.3)
    assert cell(more.hyperparameters_, "sigma", "mean") > 0.0
    assert more.n_evaluations_ == 1


def test_smoothnesses_that_are_tried_have_a_share_each() -> None:
    fit = gm.GraphGPRegressor(CITY, engine="markov", integrate=True).fit(CITY.nodes[PLACES], Y)
    row = fit.hyperparameters_.astype(float).T["nu"].to_dict()
    assert 1.0 <= row["2.5%"] <= row["mean"] <= row["97.5%"] <= 3.0
    assert row["sd"] > 0.1
    integrated = fit._fit.integrated
    assert integrated is not None
    kernels = {component.kernel.values()["nu"] for component in integrated.components}  # type: ignore[operator]
    assert len(kernels) > 1


def test_default_priors_follow_the_units_of_data_and_graph() -> None:
    def of(graph: gm.Graph, y: np.ndarray, likelihood: Any = None, rules: Any = None) -> Any:
        observed = Observations(np.arange(len(y)), y[:, None], np.ones((graph.n_nodes, 1)))
        return default_priors(
            Problem(graph, None, likelihood or Gaussian(), observed, rules=rules or PriorsAndBounds())
        )

    y = FIELD
    small, large = of(CITY, y), of(CITY, 10.0 * y + 3.0)
    assert large["variance"].median == pytest.approx(100.0 * small["variance"].median)
    assert large["noise"].median == pytest.approx(100.0 * small["noise"].median)
    heavier = gm.Graph.from_adjacency(4.0 * CITY.weights)
    assert of(heavier, y)["lengthscale"].median == pytest.approx(0.5 * small["lengthscale"].median)
    assert of(CITY, y, Poisson())["variance"].median == 1.0
    outlier = np.append(y[:-1], 1e6)
    assert of(CITY, outlier, StudentT())["scale"].median < 1.0  # one gross outlier does not count
    assert of(CITY, np.full_like(y, 7.0))["variance"].median == 1.0
    given = PriorsAndBounds({"noise": (0.01, 1.0)}, {"nu": gm.Gamma(2.0, 1.0)})
    assert of(CITY, y, rules=given)["noise"] == gm.LogNormal(0.1, 0.5 * float(np.log(100.0)))
    assert of(CITY, y, rules=given)["nu"] == gm.Gamma(2.0, 1.0)


def test_auto_integrates_where_it_can_matter() -> None:
    assert is_worth_it(10, 40, "spectral")
    assert not is_worth_it(3_000, 40, "spectral")
    assert is_worth_it(10, 50_000, "markov")
    assert not is_worth_it(10, 50_000, "moments")


@pytest.fixture
def missed(monkeypatch: pytest.MonkeyPatch) -> None:
    """All points are hopeless next to the mode."""

    def missing(*given: Any, **options: Any) -> Any:
        found = explore(*given, **options)
        return replace(found, values=found.values - 100.0)

    monkeypatch.setattr("graphmatern.inference.learning.integrate.explore", missing)


@pytest.mark.usefixtures("missed")
def test_a_missed_mode_is_plugged_in_and_said(tmp_path: Any) -> None:
    """Where approximations break down around the mode, what is left is no posterior."""
    with pytest.warns(NumericalWarning, match="plugged in, not integrated over"):
        found = model().fit(CITY.nodes[PLACES], Y)
    plugged = model().set_params(integrate=False).fit(CITY.nodes[PLACES], Y)
    for ours, theirs in zip(found.predict(return_std=True), plugged.predict(return_std=True), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9)
    found.save(tmp_path / "missed.gm")
    np.testing.assert_array_equal(gm.load(tmp_path / "missed.gm").predict(), found.predict())


@pytest.mark.usefixtures("missed")
def test_fields_say_so_too() -> None:
    table = pd.DataFrame(np.outer([0.5, 1.0, -1.0, 0.3], Y), columns=CITY.nodes[PLACES])
    with pytest.warns(NumericalWarning, match="plugged in, not integrated over"):
        found: Any = gm.GraphFieldRegressor(CITY, integrate=True).fit(table)
    assert found._fit.integrated is None
    assert np.isfinite(found.predict_table()["mean"]).all()


def test_large_graphs_take_fewer_points() -> None:
    small = Effort(50)
    large = Effort(50, large=True)
    assert large.n_points(3) < small.n_points(3)
    assert small.for_share(0.1) is small
    assert large.for_share(0.5).n_points(3) == pytest.approx(0.5 * large.n_points(3), abs=1)
    assert large.for_share(1e-6).n_points(3) == pytest.approx(0.3 * large.n_points(3), abs=1)
    assert Effort(50, dense=True, large=True).n_components < Effort(50, dense=True).n_components
    assert Effort(50, dense=True).accuracy is not None
    assert Effort(500, dense=True).accuracy is None
