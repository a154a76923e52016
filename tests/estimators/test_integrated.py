"""Estimators whose parameters are integrated over: tables, files, more data, odd cases."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
from scipy.special import logsumexp

import graphmatern as gm
from graphmatern.errors import KernelError, TableError
from graphmatern.inference import Mixture

if TYPE_CHECKING:
    from pathlib import Path

CITY = gm.make_roads(60, seed=4)
RNG = np.random.default_rng(1)
FIELD = gm.Matern(2, 4.0).on(CITY).sample(random_state=1).numpy()[0]
SEEN = RNG.permutation(CITY.n_nodes)[:25]
NAMES = CITY.nodes[SEEN]
Y = 20.0 + 5.0 * FIELD[SEEN] + RNG.standard_normal(len(SEEN))
COUNTS = RNG.poisson(np.exp(1.0 + FIELD[SEEN]))
LABELS = np.where(FIELD[SEEN] > 0, "high", "low")


def fitted(name: str) -> Any:
    if name == "classes":
        return gm.GraphGPClassifier(CITY).fit(NAMES, LABELS)
    if name == "two classes":
        return gm.GraphGPClassifier(CITY, likelihood="bernoulli", inference="markov").fit(NAMES, LABELS)
    if name == "counts":
        return gm.GraphGPRegressor(CITY, likelihood="poisson").fit(NAMES, COUNTS, exposure=np.full(len(SEEN), 2.0))
    if name == "conditioned":
        return gm.GraphGPRegressor(CITY).fit(NAMES[:20], Y[:20]).condition_on(NAMES[20:], Y[20:])
    if name == "sum":
        return gm.GraphGPRegressor(CITY, gm.Matern(1, 2.0, fixed=("nu",)) + gm.Diffusion(5.0)).fit(NAMES, Y)
    engine, likelihood = name.split()
    options: dict[str, Any] = {"likelihood": likelihood}
    return gm.GraphGPRegressor(CITY, engine=engine, **options).fit(NAMES, Y)


CASES = [
    "spectral gaussian",
    "markov gaussian",
    "moments gaussian",
    "spectral student_t",
    "counts",
    "conditioned",
    "sum",
    "classes",
    "two classes",
]


@pytest.mark.parametrize("name", CASES)
def test_files_keep_the_mixture(name: str, tmp_path: Path) -> None:
    model = fitted(name)
    assert isinstance(model.posterior_, Mixture)
    assert np.isfinite(model.log_evidence_)
    table = model.hyperparameters_
    assert list(table.columns) == ["mode", "mean", "sd", "2.5%", "50%", "97.5%"]
    assert np.isfinite(table.to_numpy()).all()
    assert (table["2.5%"] <= table["50%"]).all()
    assert (table["50%"] <= table["97.5%"]).all()
    assert "integrated over the parameters" in model.summary()
    model.save(tmp_path / "model.gm")
    for again in (gm.load(tmp_path / "model.gm"), pickle.loads(pickle.dumps(model))):
        assert isinstance(again.posterior_, Mixture)
        pd.testing.assert_frame_equal(again.predict_table(), model.predict_table(), rtol=1e-10)
        pd.testing.assert_frame_equal(again.hyperparameters_, table)
        pd.testing.assert_frame_equal(again.loo(), model.loo(), rtol=1e-8)
        assert again.log_evidence_ == model.log_evidence_
        assert again.summary() == model.summary()


def test_parameters_are_in_the_units_of_the_values() -> None:
    one = gm.GraphGPRegressor(CITY).fit(NAMES, Y).hyperparameters_
    ten = gm.GraphGPRegressor(CITY).fit(NAMES, 10.0 * Y - 7.0).hyperparameters_
    assert list(one.index) == ["nu", "lengthscale", "range", "sigma", "noise"]
    for name in ("sigma", "noise"):
        np.testing.assert_allclose(ten.loc[name], 10.0 * one.loc[name], rtol=1e-6)
    np.testing.assert_allclose(ten.loc["lengthscale"], one.loc["lengthscale"], rtol=1e-6)
    np.testing.assert_allclose(ten.loc["range"], one.loc["range"], rtol=1e-6)
    assert one.attrs["range"] == "measured"
    raw = gm.GraphGPRegressor(CITY, normalize_y=False).fit(NAMES, Y).hyperparameters_
    np.testing.assert_allclose(raw.loc["sigma"], one.loc["sigma"], rtol=0.05)  # priors follow the data


@pytest.mark.parametrize("integrate", [True, False])
def test_points_are_what_the_table_sums_up(integrate: bool) -> None:
    model = gm.GraphGPRegressor(CITY, integrate=integrate).fit(NAMES, Y)
    points, table = model.hyperparameter_points(), model.hyperparameters_
    weight = points.pop("weight")
    assert list(points) == list(table.index)
    assert weight.sum() == pytest.approx(1.0)
    np.testing.assert_allclose(weight.to_numpy() @ points.to_numpy(), table["mean"])


def test_a_plugged_in_fit_has_a_table_from_the_curvature() -> None:
    model = gm.GraphGPRegressor(CITY, gm.Matern(2, 3.0, fixed=("nu",)), integrate=False).fit(NAMES, Y)
    table, errors = model.hyperparameters_, model.standard_errors()
    assert not isinstance(model.posterior_, Mixture)
    assert np.isnan(model.log_evidence_)
    ratio = float(np.log(table["97.5%"]["lengthscale"] / table["mode"]["lengthscale"]))
    assert ratio == pytest.approx(1.96 * errors["lengthscale"], rel=0.05)
    kept = gm.GraphGPRegressor(CITY, optimizer=None).fit(NAMES, Y)
    assert not isinstance(kept.posterior_, Mixture)


@pytest.mark.parametrize("engine", ["spectral", "markov"])
@pytest.mark.parametrize("y", [[3.0, 4.0, 8.0], [5.0, 5.0, 5.0], [0.0, 0.0, 0.0]], ids=["three", "constant", "zeros"])
def test_three_values_are_no_reason_to_be_sure(engine: Any, y: list[float]) -> None:
    """Warnings are errors here."""
    model = gm.GraphGPRegressor(CITY, engine=engine).fit(NAMES[:3], y)
    table = model.predict_table()
    numbers = table.drop(columns="informed").to_numpy()
    assert np.isfinite(numbers).all()
    assert (table["lower"] < table["mean"]).all()
    assert (table["mean"] < table["upper"]).all()
    parameters = model.hyperparameters_
    assert np.isfinite(parameters.to_numpy()).all()
    assert float(parameters["97.5%"]["lengthscale"] / parameters["2.5%"]["lengthscale"]) > 5.0
    if y[0] != y[1]:
        wide = (table["upper"] - table["lower"]).mean()
        assert wide > 2.0 * np.std(y)


def _drawn_counts(graph: gm.Graph, y: list[int], asked: list[int]) -> tuple[Any, Any]:
    """Rates at some nodes, drawn from the documented priors, and the weights that counts at the first nodes give."""
    rng, n = np.random.default_rng(0), 60_000
    laplacian = graph.laplacian().toarray()
    values, vectors = np.linalg.eigh(laplacian)
    edge = 1.0 / np.sqrt(np.diag(laplacian).mean() / (2.0 * graph.n_edges / graph.n_nodes))
    medians, spreads = np.array([1.5, edge * graph.n_nodes**0.25, 1.0]), np.array([1.0, 1.3, 1.5])
    nu, lengthscale, variance = (medians * np.exp(spreads * rng.standard_normal((n, 3)))).T[:, :, None]
    logs = -nu * np.log(2.0 * nu / lengthscale**2 + np.maximum(values, 0.0))
    share = np.exp(logs - logsumexp(logs, axis=1, keepdims=True))
    coefficients = np.sqrt(variance * graph.n_nodes * share) * rng.standard_normal(share.shape)
    constant = np.log((sum(y) + 1.0) / len(y)) + 2.5 * rng.standard_normal((n, 1))
    rates = np.exp(constant + coefficients @ vectors[[*range(len(y)), *asked]].T)
    log_weights = (np.array(y) * np.log(rates[:, : len(y)]) - rates[:, : len(y)]).sum(axis=1)
    return rates[:, len(y) :], np.exp(log_weights - logsumexp(log_weights))


@pytest.mark.parametrize(("y", "of_limit", "of_middle"), [([0] * 20, 0.2, 0.08), ([3, 5, 4, 2, 6], 0.1, 0.025)])
def test_few_counts_say_what_they_exactly_say(y: list[int], of_limit: float, of_middle: float) -> None:
    """Counts that are all zero give an upper limit that so few of them can tell, and not a rate of next to nothing."""
    graph, asked = gm.make_roads(60, seed=1), [20, 40]
    rates, weights = _drawn_counts(graph, y, asked)
    assert 1.0 / np.sum(weights**2) > 1000.0
    model = gm.GraphGPRegressor(graph, likelihood="poisson", integrate=True, verbose=False).fit(list(range(len(y))), y)
    table = model.predict_table().loc[asked]
    for k in range(len(asked)):
        order = np.argsort(rates[:, k])
        middle, upper = np.interp([0.5, 0.975], np.cumsum(weights[order]), rates[order, k])
        assert table["upper"].iloc[k] == pytest.approx(upper, rel=of_limit)
        assert model.exceedance(middle, asked).iloc[k] == pytest.approx(0.5, abs=of_middle)
    if not sum(y):
        assert (table["upper"] > 0.08).all()
        assert (table["upper"] < 0.2).all()


def test_bounds_are_kept_and_reported() -> None:
    bounds = {"lengthscale": (0.001, 0.5), "noise": (1e-4, 1e-3)}
    model = gm.GraphGPRegressor(CITY, bounds=bounds).fit(NAMES, Y)
    assert "lengthscale" in model.at_bounds_
    assert "ended at a bound" in model.summary()
    table = model.hyperparameters_
    assert 0.001 <= float(table["2.5%"]["lengthscale"]) <= float(table["97.5%"]["lengthscale"]) <= 0.5


def test_a_component_without_data_keeps_its_prior() -> None:
    two = gm.Graph.from_edges([(0, 1), (1, 2), (2, 3), (10, 11), (11, 12)])
    model = gm.GraphGPRegressor(two).fit([0, 1, 2, 3], [1.0, 2.0, 3.0, 2.0])
    table = model.predict_table()
    assert np.isfinite(table.drop(columns="informed").to_numpy()).all()
    alone = ~table["informed"].to_numpy()
    assert table["std"].to_numpy()[alone].min() > table["std"].to_numpy()[~alone].max()


def test_thresholds() -> None:
    model = gm.GraphGPRegressor(CITY).fit(NAMES, Y)
    above = model.exceedance(22.0)
    assert above.index.equals(CITY.nodes)
    draws = model.sample(4000, random_state=0)
    np.testing.assert_allclose(above, (draws > 22.0).mean(axis=0), atol=0.05)
    some = CITY.nodes[:3]
    joint = model.joint_exceedance(15.0, some, n_samples=4000, random_state=0)
    assert joint == pytest.approx((model.sample(4000, some, random_state=0) > 15.0).all(axis=1).mean())
    assert joint <= model.exceedance(15.0, some).min() + 0.03
    noisy = model.exceedance(22.0, observation=True)
    assert np.abs(noisy - 0.5).mean() < np.abs(above - 0.5).mean()
    rates = gm.GraphGPRegressor(CITY, likelihood="poisson").fit(NAMES, COUNTS)
    assert rates.exceedance(0.0).min() > 1.0 - 1e-12
    assert (rates.exceedance(1.0, exposure=3.0) >= rates.exceedance(1.0)).all()
    with pytest.raises(TableError, match="single number"):
        model.exceedance([1.0, 2.0])
    each = model.exceedance([15.0, 22.0], CITY.nodes[:2])
    assert each.tolist() == pytest.approx([model.exceedance(15.0).iloc[0], model.exceedance(22.0).iloc[1]])


def test_left_out_values_are_calibrated_and_criteria_prefer_the_truth() -> None:
    model = gm.GraphGPRegressor(CITY).fit(NAMES, Y)
    table = model.loo()
    assert table["pit"].between(0.0, 1.0).all()
    assert 0.35 < table["pit"].mean() < 0.65
    criteria = model.information_criteria()
    assert criteria["elpd_loo"] == pytest.approx(table["log_density"].sum())
    assert 0.0 < criteria["p_waic"] < len(Y)
    shuffled = gm.GraphGPRegressor(CITY).fit(NAMES, RNG.permutation(Y))
    assert criteria["elpd_loo"] > shuffled.information_criteria()["elpd_loo"]
    assert model.log_evidence_ > shuffled.log_evidence_


def test_left_out_labels() -> None:
    model = gm.GraphGPClassifier(CITY, likelihood="bernoulli").fit(NAMES, LABELS)
    table = model.loo()
    assert table["node"].tolist() == NAMES.tolist()
    assert table["label"].tolist() == LABELS.tolist()
    assert (table["log_density"] == np.log(table["probability"])).all()
    # A label says something about its own node: without it, less is known.
    own = model.predict_proba(NAMES)[np.arange(len(NAMES)), (LABELS == "low").astype(int)]
    assert (table["probability"] < own).mean() > 0.9
    # Against fits without that label, at the parameters that all labels give; the other sites would change a little.
    k = 4
    kept = np.arange(len(NAMES)) != k
    for likelihood in ("bernoulli", "probit"):
        options: dict[str, Any] = {"likelihood": likelihood, "optimizer": None, "normalized": model.normalized_}
        plain = gm.GraphGPClassifier(CITY, model.kernel_, **options).fit(NAMES, LABELS)
        without = gm.GraphGPClassifier(CITY, model.kernel_, **options).fit(NAMES[kept], LABELS[kept])
        expected = without.predict_proba([NAMES[k]])[0, list(plain.classes_).index(LABELS[k])]
        assert plain.loo()["probability"][k] == pytest.approx(expected, abs=0.05)


def test_integrate_is_a_flag_or_auto() -> None:
    with pytest.raises(KernelError, match="integrate"):
        gm.GraphGPRegressor(CITY, integrate="always").fit(NAMES, Y)  # type: ignore[arg-type]


def test_both_laplacians_have_their_share() -> None:
    """The mixture is that of the fits on either, weighted by their evidences; a prior of one half each."""
    both, plain, scaled = (
        gm.GraphGPClassifier(CITY, normalized=which).fit(NAMES, LABELS) for which in (None, False, True)
    )
    evidences = np.array([plain.log_evidence_, scaled.log_evidence_])
    assert both.log_evidence_ == pytest.approx(np.logaddexp(*evidences) - np.log(2.0), abs=1e-6)
    share = 1.0 / (1.0 + np.exp(evidences[0] - evidences[1]))
    integrated = both._fit.integrated
    assert integrated is not None
    assert integrated.share_normalized == pytest.approx(share, abs=0.02)
    assert {one.normalized for one in integrated.components} == {False, True}
    expected = (1.0 - share) * plain.predict_proba() + share * scaled.predict_proba()
    assert np.abs(both.predict_proba() - expected).max() < 0.01
    assert "Laplacian plain" in both.summary()
    # The table is that of the Laplacian with more evidence.
    own = scaled if both.normalized_ else plain
    pd.testing.assert_frame_equal(both.hyperparameters_, own.hyperparameters_)
    assert "Laplacian" not in plain.summary()


def test_the_summary_says_what_the_data_leave_open() -> None:
    parts = gm.Graph.from_adjacency(np.kron(np.eye(2), np.ones((4, 4)) - np.eye(4)))
    few = gm.GraphGPRegressor(parts, integrate=True).fit([0, 1, 3], [1.0, 2.0, 4.0])
    assert "the data say little about nu, lengthscale" in few.summary()
    assert "4 nodes are in components without data: predictions there are the prior's" in few.summary()
    assert "all values are the same" not in few.summary()
    same = gm.GraphGPRegressor(parts, integrate=True).fit([0, 5], [3.0, 3.0])
    assert "all values are the same" in same.summary()
    assert gm.GraphGPRegressor(parts).fit([2], [3.0]).summary().startswith("1 observation on")
    city = gm.make_roads(150, seed=0)
    smooth = gm.Matern(nu=2, lengthscale=10).on(city).sample(random_state=0).numpy()[0]
    many = gm.GraphGPRegressor(city, integrate=True).fit(city.nodes, smooth)
    assert "caution" not in many.summary()
