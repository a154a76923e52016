"""Fields whose parameters are integrated over, against dense matrices."""

from __future__ import annotations

import pickle
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
from gpytorch.kernels import MaternKernel, PeriodicKernel, ScaleKernel
from gpytorch.priors import GammaPrior, LogNormalPrior
from scipy.special import logsumexp, ndtr

import graphmatern as gm
from field_reference import CITY, DenseField, matern_time, wave_table, with_holes
from graphmatern.errors import KernelError, TableError
from graphmatern.inference.field import FieldMixture, FieldPosterior, TimeKernel
from graphmatern.inference.field.time_priors import time_priors
from reference import dense_kernel, matern_psi

if TYPE_CHECKING:
    from pathlib import Path

TABLE = with_holes(wave_table(6, seed=3), 0.5, seed=2).iloc[:, :14]
HOURS = np.arange(6.0)


def cell(table: Any, row: Any, column: str) -> float:
    return float(table.loc[row, column])


@cache
def model(engine: Any = "auto") -> gm.GraphFieldRegressor:
    return gm.GraphFieldRegressor(CITY, time_unit="h", engine=engine).fit(TABLE)


def dense(table: pd.DataFrame, nu: float, lengthscale: float, variance: float, time: float, noise: float) -> DenseField:
    """The field at all nodes and the table's times, normalised."""
    values = table.to_numpy()
    y = (table.reindex(columns=CITY.nodes) - float(np.nanmean(values))) / float(np.nanstd(values))
    hours = (table.index - table.index[0]) / pd.Timedelta("1h")
    return DenseField(
        matern_time(1, np.asarray(hours), time),
        dense_kernel(CITY, matern_psi(nu, lengthscale), variance=variance),
        y.notna().to_numpy(),
        y.fillna(0.0).to_numpy(),
        noise,
    )


@pytest.mark.parametrize("engine", ["dense", "state-space"])
def test_the_mixture_is_one_of_dense_posteriors(engine: Any) -> None:
    fit = model(engine)
    assert isinstance(fit.posterior_, FieldMixture)
    integrated = fit._fit.integrated
    assert integrated is not None
    weights = np.array([one.weight for one in integrated.components])
    weights /= weights.sum()
    twins = [dense(TABLE, *np.exp(one.position).tolist()) for one in integrated.components]
    for one, twin in zip(integrated.components, twins, strict=True):
        assert one.value == pytest.approx(twin.value, abs=1e-6)
    means, noises = np.stack([twin.mean for twin in twins]), np.exp([one.position[-1] for one in integrated.components])
    variances = np.stack([np.diag(twin.covariance) for twin in twins])
    mean = weights @ means
    away = means - mean
    covariance = np.tensordot(weights, np.stack([twin.covariance for twin in twins]), 1) + away.T @ (
        weights[:, None] * away
    )
    unit, level = fit.y_scale_, fit.y_mean_
    table = fit.predict_table(level=0.9)
    np.testing.assert_allclose(table["mean"], level + unit * mean, rtol=1e-7)
    np.testing.assert_allclose(table["std"], unit * np.sqrt(np.diag(covariance)), rtol=1e-6)
    for column, share in (("lower", 0.05), ("upper", 0.95)):
        x = (table[column].to_numpy() - level) / unit
        np.testing.assert_allclose(weights @ ndtr((x - means) / np.sqrt(variances)), share, atol=1e-6)
        x = (table[f"observation_{column}"].to_numpy() - level) / unit
        noisy = np.sqrt(variances + noises[:, None])
        np.testing.assert_allclose(weights @ ndtr((x - means) / noisy), share, atol=1e-6)
    above = weights @ ndtr((means - (55.0 - level) / unit) / np.sqrt(variances))
    np.testing.assert_allclose(fit.exceedance(55.0).to_numpy().ravel(), above, atol=1e-7)
    names, stamps = [3, 17, 3], TABLE.index[[0, 2, 5]]
    cells = [int(np.flatnonzero(h == HOURS)[0]) * CITY.n_nodes + int(n) for h, n in zip((0, 2, 5), names, strict=True)]
    found, std, joint = fit.predict(names, stamps, return_std=True, return_cov=True, observation=True)
    noise = float(weights @ noises)
    np.testing.assert_allclose(found, level + unit * mean[cells], rtol=1e-7)
    np.testing.assert_allclose(joint, unit**2 * (covariance[np.ix_(cells, cells)] + noise * np.eye(3)), rtol=1e-5)
    np.testing.assert_allclose(std, np.sqrt(np.diag(joint)), rtol=1e-7)


def test_draws_are_those_of_the_mixture() -> None:
    fit = model("dense")
    nodes, times = [0, 5], TABLE.index[[1, 4]]
    draws = fit.sample(4000, nodes, times, random_state=0)
    mean, std = fit.predict_grid(nodes, times, return_std=True)
    np.testing.assert_allclose(draws.mean(axis=0), mean, atol=5 * std.to_numpy().max() / np.sqrt(4000))
    np.testing.assert_allclose(draws.std(axis=0), std, rtol=0.1)
    share = (draws > 55.0).mean(axis=0)
    np.testing.assert_allclose(share, fit.exceedance(55.0, nodes, times), atol=0.04)


PRIORS: dict[str, Any] = {"noise": gm.LogNormal(0.1, 0.8), "variance": gm.LogNormal(1.0, 0.5)}


def held(**options: Any) -> gm.GraphFieldRegressor:
    """Two parameters, the variance and the noise, with priors of the caller's."""
    time = MaternKernel(nu=1.5)
    time.lengthscale = 4.0
    time.raw_lengthscale.requires_grad_(False)
    kernel = gm.Matern(1.5, 4.0, fixed=("nu", "lengthscale"))
    return gm.GraphFieldRegressor(CITY, kernel, time, time_unit="h", priors=PRIORS, **options)


def test_evidence_and_deviations_are_those_of_a_dense_grid() -> None:
    few = TABLE.iloc[:, :7]
    fit = held().fit(few)
    z = np.linspace(-3.5, 3.5, 15)
    logs, means, variances, points = [], [], [], []
    for a in z:
        for b in z:
            variance, noise = np.exp(0.5 * a), 0.1 * np.exp(0.8 * b)
            twin = dense(few, 1.5, 4.0, variance, 4.0, noise)
            logs.append(-twin.value - 0.5 * (a**2 + b**2) - np.log(2 * np.pi))
            means.append(twin.mean)
            variances.append(np.diag(twin.covariance))
            points.append((np.sqrt(variance), np.sqrt(noise)))
    top = max(logs)
    weights = np.exp(np.array(logs) - top)
    assert fit.log_evidence_ == pytest.approx(top + np.log(weights.sum() * (z[1] - z[0]) ** 2), abs=0.1)
    weights /= weights.sum()
    mean = weights @ np.array(means)
    std = np.sqrt(weights @ (np.array(variances) + (np.array(means) - mean) ** 2))
    table = fit.predict_table()
    assert np.abs((table["mean"] - fit.y_mean_) / fit.y_scale_ - mean).max() < 0.06 * std.min()
    np.testing.assert_allclose(table["std"] / fit.y_scale_, std, rtol=0.05)
    known = fit.hyperparameters_
    assert list(known.index) == ["sigma", "noise"]
    for name, values in zip(known.index, np.array(points).T, strict=True):
        expected = weights @ values
        spread = np.sqrt(weights @ (values - expected) ** 2)
        assert abs(cell(known, name, "mean") / fit.y_scale_ - expected) < 0.15 * spread
        assert cell(known, name, "sd") / fit.y_scale_ == pytest.approx(spread, rel=0.2)


def test_files_keep_the_mixture(tmp_path: Path) -> None:
    fit = model()
    assert list(fit.hyperparameters_.index) == ["nu", "lengthscale", "range", "sigma", "time.lengthscale", "noise"]
    assert np.isfinite(fit.hyperparameters_.to_numpy()).all()
    assert "integrated over the parameters" in fit.summary()
    assert "time.lengthscale" in fit.summary()
    fit.save(tmp_path / "model.gm")
    for again in (gm.load(tmp_path / "model.gm"), pickle.loads(pickle.dumps(fit))):
        assert isinstance(again.posterior_, FieldMixture)
        pd.testing.assert_frame_equal(again.predict_table(), fit.predict_table(), rtol=1e-10)
        pd.testing.assert_frame_equal(again.hyperparameters_, fit.hyperparameters_)
        assert again.log_evidence_ == fit.log_evidence_
        assert again.summary() == fit.summary()


def test_more_data_weigh_the_parameters_anew(tmp_path: Path) -> None:
    first = model().condition_on(wave_table(6, seed=3).iloc[:, 14:20])
    assert isinstance(first.posterior_, FieldMixture)
    before, after = (one._fit.integrated for one in (model(), first))
    assert before is not None
    assert after is not None
    y = TABLE.join(wave_table(6, seed=3).iloc[:, 14:20])
    shift, unit = first.y_mean_, first.y_scale_
    logs = []
    for one in before.components:
        nu, lengthscale, variance, time, noise = np.exp(one.position)
        whole = DenseField(
            matern_time(1, HOURS, time),
            dense_kernel(CITY, matern_psi(nu, lengthscale), variance=variance),
            y.reindex(columns=CITY.nodes).notna().to_numpy(),
            ((y.reindex(columns=CITY.nodes) - shift) / unit).fillna(0.0).to_numpy(),
            noise,
        )
        logs.append(np.log(one.weight) + one.value - whole.value)
    expected = np.exp(np.array(logs) - max(logs))
    np.testing.assert_allclose([one.weight for one in after.components], expected / expected.sum(), rtol=1e-5)
    assert first.log_evidence_ == pytest.approx(model().log_evidence_ + logsumexp(logs), abs=1e-5)
    first.save(tmp_path / "more.gm")
    pd.testing.assert_frame_equal(gm.load(tmp_path / "more.gm").predict_table(), first.predict_table(), rtol=1e-10)


def test_scores_are_those_of_mixtures() -> None:
    fit, truth = model("dense"), wave_table(6, seed=3).where(TABLE.reindex(columns=CITY.nodes).isna())
    scores = fit.evaluate(truth)
    rows, columns = np.nonzero(truth.notna().to_numpy())
    y = truth.to_numpy()[rows, columns]
    marginals = fit.posterior_.marginals(HOURS, np.arange(CITY.n_nodes)).with_noise(fit.posterior_.noises)
    rng = np.random.default_rng(0)
    component = rng.choice(len(fit.posterior_.weights), 20_000, p=fit.posterior_.weights)
    parts = [one.marginals(HOURS, np.arange(CITY.n_nodes)) for one in fit.posterior_.components]
    means = np.stack([one.mean[rows, columns] for one in parts])
    stds = np.sqrt(np.stack([one.variance[rows, columns] for one in parts]) + fit.posterior_.noises[:, None])
    draws = fit.y_mean_ + fit.y_scale_ * (
        means[component] + stds[component] * rng.standard_normal((len(component), len(y)))
    )
    assert scores["crps"] == pytest.approx(gm.metrics.crps_from_draws(y, draws), rel=0.02)
    density = marginals.log_density((np.nan_to_num(truth.to_numpy()) - fit.y_mean_) / fit.y_scale_)[rows, columns]
    assert scores["nlpd"] == pytest.approx(float(np.log(fit.y_scale_) - density.mean()), rel=1e-9)
    low, high = np.quantile(draws, [0.05, 0.95], axis=0)
    assert scores["coverage_90"] == pytest.approx(float(((low <= y) & (y <= high)).mean()), abs=0.02)


def test_intervals_cover_what_they_say() -> None:
    """Parameters drawn from the priors, twenty cells each: plugged in, intervals would be too narrow."""
    space = np.linalg.cholesky(dense_kernel(CITY, matern_psi(1.5, 4.0)) + 1e-10 * np.eye(CITY.n_nodes))
    time = np.linalg.cholesky(matern_time(1, HOURS, 4.0) + 1e-10 * np.eye(6))
    shares: dict[bool, list[float]] = {True: [], False: []}
    for seed in range(16):
        rng = np.random.default_rng(seed)
        variance, noise = np.exp(0.5 * rng.standard_normal()), 0.1 * np.exp(0.8 * rng.standard_normal())
        field = 5.0 + np.sqrt(variance) * time @ rng.standard_normal((6, CITY.n_nodes)) @ space.T
        y = field + np.sqrt(noise) * rng.standard_normal(field.shape)
        seen = rng.permutation(field.size)[:12]
        table = pd.DataFrame(np.where(np.isin(np.arange(field.size), seen).reshape(field.shape), y, np.nan))
        table.index, table.columns = TABLE.index, CITY.nodes
        for way in (True, False):
            found = held(normalize_y=False, integrate=way).fit(table).predict_table(table.columns, TABLE.index, 0.9)
            truth = field.ravel()
            shares[way].append(float(((found["lower"] <= truth) & (truth <= found["upper"])).mean()))
    error = float(np.std(shares[True])) / np.sqrt(len(shares[True]))
    assert abs(np.mean(shares[True]) - 0.9) < 2.5 * error + 0.01
    assert np.mean(shares[False]) < np.mean(shares[True]) - 0.01


def test_few_or_equal_values() -> None:
    three = gm.GraphFieldRegressor(CITY).fit([0, 5, 9], [0.0, 1.0, 3.0], [2.0, 5.0, 3.0])
    constant = gm.GraphFieldRegressor(CITY).fit([0, 5, 9, 0], [0.0, 1.0, 3.0, 4.0], [7.0] * 4)
    for fit in (three, constant):
        assert isinstance(fit.posterior_, FieldMixture)
        table = fit.predict_table()
        assert np.isfinite(table.select_dtypes("number").to_numpy()).all()
        assert np.isfinite(fit.hyperparameters_.to_numpy()).all()
        assert np.isfinite(fit.log_evidence_)
        assert "integrated over" in fit.summary()
    assert (three.predict_table()["std"] > 0.3).mean() > 0.5
    np.testing.assert_allclose(constant.predict_table()["mean"], 7.0, rtol=1e-6)
    islands = gm.Graph.from_edges([("a", "b"), ("b", "c"), ("x", "y")])
    apart = gm.GraphFieldRegressor(islands).fit(
        ["a", "b", "c"] * 2, [0.0] * 3 + [1.0] * 3, [1.0, 2.0, 2.5, 0.8, 2.2, 2.0]
    )
    table = apart.predict_table(["b", "x"], [0.0])
    assert table["informed"].tolist() == [True, False]
    assert table["std"].is_monotonic_increasing


def test_auto_decides_by_the_number_of_cells_and_by_what_is_known() -> None:
    plain = gm.GraphFieldRegressor(CITY, time_unit="h", optimizer=None).fit(TABLE)
    assert isinstance(plain.posterior_, FieldPosterior)
    assert np.isnan(plain.log_evidence_)
    many = gm.GraphFieldRegressor(CITY, gm.Matern(1, 4.0, fixed=("nu",)), time_unit="h").fit(wave_table(90))
    assert isinstance(many.posterior_, FieldPosterior)
    asked = gm.GraphFieldRegressor(
        CITY, gm.Matern(1, 4.0, fixed=("nu",)), time_unit="h", engine="kronecker", integrate=True
    ).fit(wave_table(90))
    assert isinstance(asked.posterior_, FieldMixture)
    with pytest.raises(KernelError, match="integrate"):
        gm.GraphFieldRegressor(CITY, integrate="often").fit(TABLE)  # type: ignore[arg-type]
    with pytest.raises(TableError, match="threshold"):
        model().exceedance([1.0, 2.0])  # type: ignore[arg-type]


class Shared(MaternKernel):  # type: ignore[misc]
    """A kernel with a prior of something that is no parameter."""

    def __init__(self) -> None:
        super().__init__(nu=1.5)
        self.register_prior("rate_prior", GammaPrior(2.0, 1.0), lambda module: 1.0 / module.lengthscale)


def test_priors_of_kernels_on_time() -> None:
    gap, span = 1.0, 20.0
    periodic = TimeKernel(ScaleKernel(PeriodicKernel()))
    of = dict(zip(periodic.labels, time_priors(periodic, gap, span) or [], strict=True))
    assert of["time.base_kernel.period_length"] == gm.LogNormal(float(np.sqrt(20.0)), 1.3)
    assert of["time.base_kernel.lengthscale"].spread == 1.5  # type: ignore[attr-defined]
    (wide,) = time_priors(TimeKernel(MaternKernel(nu=0.5)), 1.0, 1e6) or []
    assert wide.spread == pytest.approx(0.25 * np.log(1e6))  # type: ignore[attr-defined]
    # A registered prior is one of the parameter; the density of the coordinate, its logarithm, integrates to 1.
    for prior in (LogNormalPrior(0.5, 0.4), GammaPrior(3.0, 1.5)):
        (found,) = time_priors(TimeKernel(MaternKernel(nu=1.5, lengthscale_prior=prior)), gap, span) or []
        x = np.linspace(-12.0, 6.0, 20_001)
        density, slope, bend = found.log_density(x)
        assert np.exp(density).sum() * (x[1] - x[0]) == pytest.approx(1.0, abs=1e-6)
        np.testing.assert_allclose(np.gradient(density, x)[1:-1], slope[1:-1], atol=2e-3)
        np.testing.assert_allclose(np.gradient(slope, x)[1:-1], bend[1:-1], atol=2e-3)
        below = np.cumsum(np.exp(density)) * (x[1] - x[0])
        np.testing.assert_allclose(np.interp(found.quantile(np.array([0.1, 0.5])), x, below), [0.1, 0.5], atol=2e-3)
    assert time_priors(TimeKernel(Shared()), gap, span) is None
    auto = gm.GraphFieldRegressor(CITY, gm.Matern(1, 4.0, fixed=("nu",)), Shared(), time_unit="h").fit(TABLE)
    assert isinstance(auto.posterior_, FieldPosterior)
    with pytest.raises(KernelError, match="Register a prior"):
        gm.GraphFieldRegressor(CITY, None, Shared(), time_unit="h", integrate=True).fit(TABLE)


def test_a_prior_registered_with_the_kernel_counts() -> None:
    """A narrow one leaves the lengthscale where it is."""
    kernel = MaternKernel(nu=1.5, lengthscale_prior=LogNormalPrior(float(np.log(2.0)), 0.02))
    fit = gm.GraphFieldRegressor(CITY, gm.Matern(1, 4.0, fixed=("nu",)), kernel, time_unit="h").fit(TABLE)
    assert cell(fit.hyperparameters_, "time.lengthscale", "mean") == pytest.approx(2.0, rel=0.03)
    assert 0.01 < cell(fit.hyperparameters_, "time.lengthscale", "sd") < 0.08
