"""The estimator of fields on nodes × times."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import torch
from gpytorch.kernels import ConstantKernel, MaternKernel, RBFKernel, ScaleKernel
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import graphmatern as gm
from field_reference import CITY, TIME_KERNELS, matern_time, wave_table, with_holes
from graphmatern.errors import KernelError, ModelFileError, NumericalWarning, TableError
from graphmatern.inference.field import FieldPosterior
from reference import dense_kernel, matern_psi

if TYPE_CHECKING:
    from pathlib import Path

KERNEL = gm.Matern(1.5, 3.0, fixed=("nu",))


def test_a_fit_recovers_the_field() -> None:
    whole = wave_table()
    table = with_holes(whole, 0.3)
    model = gm.GraphFieldRegressor(CITY, KERNEL, time_unit="h").fit(table)
    assert model.engine_ == "dense"
    assert model.converged_
    assert model.gradient_norm_ < 1e-2
    assert 2.5 < model.time_kernel_.lengthscale.item() < 10.0
    assert 0.1 < np.sqrt(model.noise_) * model.y_scale_ / 10.0 < 0.3
    scores = model.evaluate(whole.mask(table.notna()))
    assert scores["rmse"] < 7.0
    assert 0.88 < scores["coverage_95"] < 1.0
    filled = model.fill_in()
    assert filled.notna().all().all()
    pd.testing.assert_frame_equal(filled.where(table.notna()), table, check_freq=False)
    mean, std = model.forecast(3, [0, 4], return_std=True, observation=True)
    assert mean.index.tolist() == [table.index[-1] + pd.Timedelta(k, "h") for k in (1, 2, 3)]
    assert (std.iloc[0] < std.iloc[2]).all()
    assert "3/2" not in model.summary()
    assert "time      MaternKernel(nu=1.5" in model.summary()
    errors = model.standard_errors()
    assert set(errors) == {"lengthscale", "variance", "time.lengthscale", "noise"}
    assert 0.0 < errors["noise"] < 0.5


def test_all_engines_agree() -> None:
    table = with_holes(wave_table(12), 0.3)
    fits = {
        engine: gm.GraphFieldRegressor(CITY, KERNEL, time_unit="h", engine=engine, n_probes=32, n_draws=200).fit(table)
        for engine in ("dense", "iterative")
    }
    dense, iterative = fits["dense"], fits["iterative"]
    assert iterative.log_marginal_likelihood_error_ > 0.0
    allowed = 4.0 * iterative.log_marginal_likelihood_error_ + 0.1
    assert abs(dense.log_marginal_likelihood_ - iterative.log_marginal_likelihood_) < allowed
    assert iterative.noise_ == pytest.approx(dense.noise_, rel=0.1)
    (mean, std), (other_mean, other_std) = (fit.predict_grid(return_std=True) for fit in (dense, iterative))
    assert np.abs(mean - other_mean).to_numpy().max() < 0.1 * std.to_numpy().max()
    assert np.abs(other_std / std - 1.0).to_numpy().mean() < 0.05


def test_layouts_and_kinds_of_times_agree() -> None:
    wide = with_holes(wave_table(8), 0.2)
    options: dict[str, Any] = {"optimizer": None, "time_unit": "h"}
    expected = gm.GraphFieldRegressor(CITY, KERNEL, MaternKernel(nu=0.5), **options).fit(wide)
    long = wide.rename_axis("when").reset_index().melt("when", var_name="place", value_name="speed").dropna()
    shuffled = long.sample(frac=1.0, random_state=0)
    hours = (shuffled["when"] - wide.index[0]) / pd.Timedelta("1h")
    variants: dict[str, tuple[Any, ...]] = {
        "long": (shuffled,),
        "text": (shuffled.assign(when=shuffled["when"].astype(str)),),
        "numbers": (shuffled.assign(when=hours),),
        "lists": (shuffled["place"].tolist(), list(shuffled["when"]), shuffled["speed"].to_numpy()),
    }
    for name, arguments in variants.items():
        model = gm.GraphFieldRegressor(CITY, KERNEL, MaternKernel(nu=0.5), **options)
        model.fit(*arguments, node="place", time="when", value="speed")
        found, wanted = model.predict_grid().to_numpy(), expected.predict_grid().to_numpy()
        np.testing.assert_allclose(found, wanted, rtol=1e-9, err_msg=name)
    zoned = wide.tz_localize("America/New_York")
    model = gm.GraphFieldRegressor(CITY, KERNEL, MaternKernel(nu=0.5), **options).fit(zoned)
    np.testing.assert_allclose(model.predict_grid().to_numpy(), expected.predict_grid().to_numpy(), rtol=1e-9)
    moment = zoned.index[3].tz_convert("UTC")
    assert model.predict([0], [moment])[0] == pytest.approx(model.predict_grid([0]).iloc[3, 0])
    assert str(model.predict_grid(times=[moment]).index.tz) == "America/New_York"


def test_predictions_of_cells_grids_and_tables_agree() -> None:
    table = with_holes(wave_table(10), 0.2)
    model = gm.GraphFieldRegressor(CITY, KERNEL, time_unit="h", optimizer=None).fit(table)
    times = [table.index[2] + pd.Timedelta("20min"), table.index[-1]]
    mean, std = model.predict_grid([3, 9], times, return_std=True, observation=True)
    names, stamps = [9, 3, 9], [times[1], times[0], times[0]]
    cells, cell_std, cov = model.predict(names, stamps, return_std=True, return_cov=True, observation=True)
    np.testing.assert_allclose(cells, [mean.loc[t, n] for n, t in zip(names, stamps, strict=True)], rtol=1e-10)
    np.testing.assert_allclose(cell_std, [std.loc[t, n] for n, t in zip(names, stamps, strict=True)], rtol=1e-10)
    np.testing.assert_allclose(np.sqrt(np.diag(cov)), cell_std, rtol=1e-8)
    long = model.predict_table([3, 9], times).set_index(["time", "node"])
    row = long.loc[(times[1], 9)]
    assert row["mean"] == pytest.approx(mean.loc[times[1], 9])
    assert row["observation_upper"] - row["mean"] == pytest.approx(1.959964 * std.loc[times[1], 9], rel=1e-6)
    assert model.sample(3, [3, 9], times, random_state=0).shape == (3, 2, 2)


def test_more_data_without_learning_again() -> None:
    table = wave_table(10)
    options: dict[str, Any] = {"optimizer": None, "normalize_y": False, "noise": 0.5, "time_unit": "h"}
    part = gm.GraphFieldRegressor(CITY, KERNEL, MaternKernel(nu=0.5), **options).fit(table.iloc[2:7])
    whole = part.condition_on(table.iloc[7:])
    expected = clone(part).fit(table.iloc[2:])
    np.testing.assert_allclose(whole.predict_grid().to_numpy(), expected.predict_grid().to_numpy(), rtol=1e-9)
    assert len(part.times_) == 5
    assert whole.get_params(deep=False) == part.get_params(deep=False)
    part.set_params(engine="dense", n_eigenpairs=3)  # for the next fit; this one stays as it was
    assert part.condition_on(table.iloc[7:]).engine_ == "kronecker"
    with pytest.raises(TableError, match="at most one value per node and time"):
        part.condition_on(table.iloc[5:7])
    with pytest.raises(TableError, match="must be dates without a time zone"):
        part.condition_on(table.iloc[7:].tz_localize("UTC"))


def test_conditioning_solves_once(monkeypatch: pytest.MonkeyPatch) -> None:
    table = wave_table(10)
    part = gm.GraphFieldRegressor(CITY, KERNEL, time_unit="h", optimizer=None).fit(table.iloc[:7])
    made: list[FieldPosterior] = []
    whole_init = FieldPosterior.__init__

    def counted(self: FieldPosterior, *arguments: Any, **options: Any) -> None:
        made.append(self)
        whole_init(self, *arguments, **options)

    monkeypatch.setattr(FieldPosterior, "__init__", counted)
    part.condition_on(table.iloc[7:])
    assert len(made) == 1


def test_wrong_options_are_all_named() -> None:
    wrong: dict[str, Any] = {"time_unit": "y", "engine": "fast", "mean": 0, "normalize_y": 1, "noise": -1.0}
    wrong |= {"optimizer": "sgd", "max_iterations": 0, "n_eigenpairs": 0, "tolerance": 0.0, "random_state": None}
    with pytest.raises(KernelError) as caught:
        gm.GraphFieldRegressor(CITY, **wrong).fit(wave_table(3))
    assert {fault.argument for fault in caught.value.faults} == set(wrong)
    with pytest.raises(KernelError, match="must be a graphmatern Graph"):
        gm.GraphFieldRegressor("city").fit(wave_table(3))  # type: ignore[arg-type]
    model = gm.GraphFieldRegressor(CITY, KERNEL, optimizer=None).fit(wave_table(3))
    model.graph = gm.make_roads(30, seed=5)
    with pytest.raises(NotFittedError, match="another graph"):
        model.predict_grid()


@pytest.mark.parametrize("name", ["default", "sum", "bounded", "product"])
def test_saved_models_predict_the_same(name: str, tmp_path: Path) -> None:
    time_kernel = None if name == "default" else TIME_KERNELS[name]
    table = with_holes(wave_table(8), 0.2).tz_localize("Europe/Berlin")
    optimizer: Any = "lbfgs" if name == "default" else None
    model = gm.GraphFieldRegressor(CITY, KERNEL, time_kernel, time_unit="h", optimizer=optimizer).fit(table)
    model.save(tmp_path / "field.gm")
    again = gm.load(tmp_path / "field.gm")
    pd.testing.assert_frame_equal(again.predict_grid(), model.predict_grid(), check_exact=True)
    pd.testing.assert_frame_equal(again.forecast(2), model.forecast(2), check_exact=True)
    assert again.summary() == model.summary()


def test_time_kernels_that_cannot_be_stored(tmp_path: Path) -> None:
    table = wave_table(5)
    for kernel, words in ((TIME_KERNELS["prior"], "priors"), (CustomKernel(nu=0.5), "CustomKernel")):
        model = gm.GraphFieldRegressor(CITY, KERNEL, kernel, time_unit="h", optimizer=None).fit(table)
        with pytest.raises(ModelFileError, match=words):
            model.save(tmp_path / "field.gm")


class CustomKernel(MaternKernel):  # type: ignore[misc]
    """A kernel of the caller's."""


def test_pictures() -> None:
    table = with_holes(wave_table(10), 0.2)
    model = gm.GraphFieldRegressor(CITY, KERNEL, time_unit="h", optimizer=None).fit(table)
    left, right = model.plot_map(table.index[3], label="speed")
    assert (left.get_title(), right.get_title()) == (
        "2024-03-01 03:00:00: predicted mean",
        "standard deviation (pale: uncertain)",
    )
    axes = model.plot_node(CITY.nodes[4], label="speed")
    assert np.size(axes.lines[1].get_xdata()) == table[CITY.nodes[4]].notna().sum()
    axes.figure.canvas.draw()
    plt.close("all")


def test_odd_data_have_right_answers() -> None:
    one = gm.GraphFieldRegressor(CITY, KERNEL, optimizer=None).fit([0], [5.0], [7.0])
    assert one.predict([0], [5.0])[0] == pytest.approx(7.0)
    assert one.forecast(1).shape == (1, CITY.n_nodes)
    flat = gm.GraphFieldRegressor(CITY, KERNEL, optimizer=None).fit([0, 1, 0, 1], [0, 0, 1, 1], [4.0] * 4)
    np.testing.assert_allclose(flat.predict_grid().to_numpy(), 4.0, atol=1e-9)
    pair = gm.Graph.from_edges([("a", "b"), ("c", "d")])
    model = gm.GraphFieldRegressor(pair, KERNEL, optimizer=None).fit(["a", "b"], [0.0, 1.0], [3.0, 4.0])
    table = model.predict_table(times=[0.5])
    assert table["informed"].tolist() == [True, True, False, False]
    assert table["std"].iloc[2] > table["std"].iloc[0]


def test_a_fit_that_stops_early_says_so() -> None:
    with pytest.warns(NumericalWarning, match="stopped early"):
        gm.GraphFieldRegressor(CITY, gm.Matern(1, 0.1), time_unit="h", max_iterations=1).fit(wave_table(6))


def test_bad_options() -> None:
    table = wave_table(4)
    with pytest.raises(KernelError, match="complete grids"):
        gm.GraphFieldRegressor(CITY, engine="kronecker").fit(with_holes(table, 0.3))
    with pytest.raises(KernelError, match="`time_kernel` must be a GPyTorch kernel"):
        gm.GraphFieldRegressor(CITY, time_kernel=KERNEL).fit(table)
    with pytest.raises(KernelError, match="`kernel` must be a kernel of this package"):
        gm.GraphFieldRegressor(CITY, MaternKernel()).fit(table)
    with pytest.raises(KernelError, match="`time_unit` must be 's' or"):
        gm.GraphFieldRegressor(CITY, time_unit="days").fit(table)  # type: ignore[arg-type]
    with pytest.raises(KernelError, match="`n_probes` must be a whole number"):
        gm.GraphFieldRegressor(CITY, n_probes=0, tolerance=-1.0).fit(table)
    model = gm.GraphFieldRegressor(CITY)
    for call in (model.predict_grid, model.summary, model.fill_in, lambda: model.predict([0], [0.0])):
        with pytest.raises(NotFittedError):
            call()


@pytest.mark.data
def test_mondays_of_traffic() -> None:
    """Hidden speeds from neighbours and other Mondays, parameters as learned in evidence/field_mondays.py."""
    data = gm.datasets.load_traffic_mondays()
    table = data.values.T
    hidden = np.random.default_rng(0).uniform(size=table.shape) < 0.2
    kernel = gm.Matern(1.3, 15.0, 0.6) + gm.Diffusion(1e-3, 0.2, fixed=("lengthscale",))
    weeks = ConstantKernel() + ScaleKernel(MaternKernel(nu=0.5))
    weeks.kernels[0].constant = torch.tensor([0.8])
    weeks.kernels[1].outputscale = 0.4
    weeks.kernels[1].base_kernel.lengthscale = 0.4
    model = gm.GraphFieldRegressor(data.graph, kernel, weeks, time_unit="W", noise=0.02, optimizer=None, n_draws=64)
    scores = model.fit(table.mask(hidden)).evaluate(table.where(hidden))
    assert model.engine_ == "iterative"
    assert scores["rmse"] < 6.5  # one process per Monday: 11.0; the sensor's mean: 9.2
    assert 0.93 < scores["coverage_95"] < 0.97
    never_seen = table.columns[::11]
    model.fit(table.drop(columns=never_seen))
    assert model.engine_ == "kronecker"
    assert model.evaluate(table[never_seen])["rmse"] < 12.0


def test_time_kernels_may_be_held() -> None:
    held = MaternKernel(nu=1.5)
    held.raw_lengthscale.requires_grad_(False)
    table = wave_table().iloc[:6]
    model = gm.GraphFieldRegressor(CITY, time_kernel=held, time_unit="h").fit(table)
    assert model.time_kernel_.lengthscale.item() == pytest.approx(held.lengthscale.item())
    assert held.raw_lengthscale.dtype == torch.float32  # the caller's kernel is left alone


def test_the_filter_needs_a_markov_kernel() -> None:
    with pytest.raises(KernelError, match="`engine` can be 'state-space' only for a Matérn `time_kernel`"):
        gm.GraphFieldRegressor(CITY, time_kernel=RBFKernel(), engine="state-space").fit(wave_table(4))


def test_fits_agree_and_are_kept(tmp_path: Path) -> None:
    """The estimator with the filter against the dense one: parameters, predictions, samples, more data, model files."""
    table = with_holes(wave_table(12), 0.3)
    options: dict[str, Any] = {"time_unit": "h"}
    model = gm.GraphFieldRegressor(CITY, KERNEL, engine="state-space", **options).fit(table)
    dense = gm.GraphFieldRegressor(CITY, KERNEL, engine="dense", **options).fit(table)
    assert (model.engine_, model.engine_reason_, model.log_marginal_likelihood_error_) == (
        "state-space",
        "asked for",
        0,
    )
    assert model.log_marginal_likelihood_ == pytest.approx(dense.log_marginal_likelihood_, abs=1e-6)
    assert model.noise_ == pytest.approx(dense.noise_, rel=1e-3)
    (mean, std), (other_mean, other_std) = (one.forecast(3, return_std=True) for one in (model, dense))
    pd.testing.assert_frame_equal(mean, other_mean, rtol=1e-3)
    pd.testing.assert_frame_equal(std, other_std, rtol=1e-3)
    assert model.sample(2, random_state=0).shape == (2, 12, CITY.n_nodes)
    later = wave_table(14).iloc[12:]
    pd.testing.assert_frame_equal(
        model.condition_on(later).predict_grid(), dense.condition_on(later).predict_grid(), rtol=1e-3
    )
    model.save(tmp_path / "field.gm")
    again = gm.load(tmp_path / "field.gm")
    pd.testing.assert_frame_equal(again.predict_grid(), model.predict_grid(), check_exact=True)
    assert again.summary() == model.summary()


def test_long_series_are_filtered() -> None:
    """By itself, on a whole day of half-minutes from three sensors; means interpolate between the times."""
    rng = np.random.default_rng(0)
    times = np.sort(rng.uniform(0.0, 1440.0, 2000))
    wave = np.sin(times / 60.0)[:, None] * np.array([1.0, 0.9, 0.8])
    table = pd.DataFrame(wave + 0.1 * rng.standard_normal(wave.shape), index=times, columns=CITY.nodes[[0, 1, 2]])
    table = with_holes(table, 0.3)
    model = gm.GraphFieldRegressor(CITY, KERNEL, optimizer=None, noise=0.02).fit(table)
    assert model.engine_ == "state-space"
    at = np.linspace(10.0, 1430.0, 7)
    np.testing.assert_allclose(model.predict([CITY.nodes[0]] * 7, at), np.sin(at / 60.0), atol=0.2)


@pytest.mark.parametrize("engine", ["dense", "iterative", "state-space"])
def test_covariates_equal_universal_kriging(engine: Any, tmp_path: Path) -> None:
    """Means, variances and coefficients from dense matrices of all cells."""
    rng, times = np.random.default_rng(0), np.arange(6.0)
    height = pd.Series(rng.standard_normal(CITY.n_nodes), CITY.nodes, name="height")
    table = pd.DataFrame(rng.standard_normal((6, CITY.n_nodes)) + 2.0 * height.to_numpy(), times, CITY.nodes)
    table = table.iloc[:, ::3].mask(rng.uniform(size=(6, len(CITY.nodes[::3]))) < 0.2)
    time_kernel = MaternKernel(nu=1.5)
    time_kernel.lengthscale = 2.0
    options: dict[str, Any] = {"optimizer": None, "noise": 0.3, "normalize_y": False, "tolerance": 1e-11}
    model = gm.GraphFieldRegressor(
        CITY, gm.Matern(1.5, 3.0, 0.8), time_kernel, engine=engine, covariates=height, integrate=False, **options
    ).fit(table)
    space = dense_kernel(CITY, matern_psi(1.5, 3.0), variance=0.8)
    covariance = np.kron(matern_time(1, times, 2.0), space)
    whole = table.reindex(columns=CITY.nodes).to_numpy().ravel()
    seen = ~np.isnan(whole)
    design = np.tile(np.column_stack([np.ones(CITY.n_nodes), height]), (6, 1))
    inverse = np.linalg.inv(covariance[np.ix_(seen, seen)] + 0.3 * np.eye(seen.sum()))
    h = design[seen]
    spread = np.linalg.inv(h.T @ inverse @ h)
    beta = spread @ h.T @ inverse @ whole[seen]
    cross = covariance[:, seen] @ inverse
    d = design - cross @ h
    mean = design @ beta + cross @ (whole[seen] - h @ beta)
    variance = np.diag(covariance - cross @ covariance[seen] + d @ spread @ d.T)
    found, std = model.predict_grid(CITY.nodes, times, return_std=True)
    np.testing.assert_allclose(np.ravel(found), mean, atol=1e-6)
    np.testing.assert_allclose(np.ravel(std), np.sqrt(variance), rtol=0.2 if engine == "iterative" else 1e-6)
    coefficients = model.coefficients_
    assert coefficients.index.tolist() == ["(constant)", "height"]
    np.testing.assert_allclose(coefficients["mean"], beta, atol=1e-6)
    np.testing.assert_allclose(coefficients["sd"], np.sqrt(np.diag(spread)), atol=1e-6)
    model.save(tmp_path / "field.gm")
    np.testing.assert_allclose(gm.load(tmp_path / "field.gm").coefficients_, coefficients, rtol=1e-5)
