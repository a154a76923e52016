"""Fields on nodes × times: the ways to compute against the dense product kernel, and the estimator around them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
import torch
from gpytorch.constraints import GreaterThan, Interval
from gpytorch.kernels import ConstantKernel, LinearKernel, MaternKernel, PeriodicKernel, RBFKernel, ScaleKernel
from gpytorch.priors import LogNormalPrior
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import graphmatern as gm
from field_reference import (
    CITY,
    RHO,
    dense_field,
    make_engine,
    make_grid,
    make_posterior,
    matern_time,
    wave_table,
    with_holes,
)
from graphmatern.errors import KernelError, ModelFileError, NumericalWarning, ResourceError, TableError
from graphmatern.inference import _fit_field
from graphmatern.inference._field_posterior import FieldPosterior
from graphmatern.inference._fill_in import IterativeOptions
from graphmatern.inference._fit_field import choose_method, densest_patch
from graphmatern.inference._kronecker import FieldGrid
from graphmatern.inference._time_kernel import TimeKernel
from reference import dense_kernel, matern_psi
from strategies import graphs

if TYPE_CHECKING:
    from pathlib import Path

METHODS = [("kronecker", 0.0)] + [(method, share) for method in ("dense", "state-space") for share in (0.0, 0.1, 0.6)]


def test_the_product_kernel_is_the_formula() -> None:
    """The engines' pieces against formulas written down: Matérn 3/2 in time, the dense reference on the graph."""
    engine = make_engine(CITY, make_grid(CITY, 7, 1.0, missing=0.0, seed=0), "kronecker")
    np.testing.assert_allclose(
        engine.time.values(engine.grid.times), matern_time(1, engine.grid.times, 2.5), atol=1e-12
    )
    expected = dense_kernel(CITY, matern_psi(1.3, 3.0), variance=1.2)
    np.testing.assert_allclose(engine.bound.matrix().detach().numpy(), expected, atol=1e-12)


@pytest.mark.parametrize(("method", "missing"), METHODS)
@pytest.mark.parametrize("share", [1.0, 0.5])
@pytest.mark.parametrize("n_eigenpairs", [None, 9])
def test_exact_methods_equal_the_dense_product_kernel(
    method: str, missing: float, share: float, n_eigenpairs: int | None
) -> None:
    engine = make_engine(CITY, make_grid(CITY, 11, share, missing=missing, seed=3), method, n_eigenpairs=n_eigenpairs)
    new_times = np.array([-1.0, 4.5, 12.0])
    expected = dense_field(engine, new_times)
    position = engine.position()
    value, gradient, in_noise = engine.evaluate(position, np.log(RHO))
    assert value == pytest.approx(expected.value, rel=1e-10)

    def dense_value(theta: np.ndarray) -> float:
        engine.move(theta[:-1])
        return float(dense_field(engine, new_times[:0], float(np.exp(theta[-1]))).value)

    whole = np.append(position, np.log(RHO))
    step = 2e-3
    for k, found in enumerate([*gradient, in_noise]):
        direction = step * np.eye(len(whole))[k]
        differences = [dense_value(whole + m * direction) - dense_value(whole - m * direction) for m in (1, 2, 3)]
        sixth_order = (45 * differences[0] - 9 * differences[1] + differences[2]) / (60 * step)
        assert found == pytest.approx(sixth_order, rel=1e-8, abs=1e-7)
    engine.move(position)

    posterior = make_posterior(engine)
    assert posterior.log_marginal_likelihood() == pytest.approx((-expected.value, 0.0), rel=1e-10)
    times = np.concatenate([engine.grid.times, new_times])
    cells = posterior.cells(times, np.arange(CITY.n_nodes))
    shape = (len(times), CITY.n_nodes)
    np.testing.assert_allclose(posterior.mean(cells), expected.mean.reshape(shape), rtol=1e-8, atol=1e-9)
    variance = np.diag(expected.covariance).reshape(shape)
    np.testing.assert_allclose(posterior.variance(cells), variance, rtol=1e-8, atol=1e-9)
    pairs = (np.array([0, 12, 13, 0]), np.array([5, 5, 20, 21]))
    chosen = np.ravel_multi_index(pairs, shape)
    few = posterior.cells(times, np.arange(CITY.n_nodes), pairs)
    np.testing.assert_allclose(posterior.mean(few), expected.mean[chosen], rtol=1e-8)
    np.testing.assert_allclose(posterior.variance(few), variance.ravel()[chosen], rtol=1e-8)
    covariance = posterior.covariance(times, np.arange(CITY.n_nodes), pairs)
    np.testing.assert_allclose(covariance, expected.covariance[np.ix_(chosen, chosen)], rtol=1e-7, atol=1e-9)


@given(graphs(masses=True), st.integers(0, 10_000), st.sampled_from([0.0, 0.3]), st.booleans())
@settings(max_examples=40)
def test_exact_methods_on_any_graph(graph: gm.Graph, seed: int, missing: float, filtered: bool) -> None:
    grid = make_grid(graph, 5, 0.7, missing=missing, seed=seed)
    engine = make_engine(graph, grid, "state-space" if filtered else "kronecker" if grid.is_complete else "dense")
    expected = dense_field(engine, np.zeros(0))
    assert engine.evaluate(engine.position(), np.log(RHO))[0] == pytest.approx(expected.value, rel=1e-8)
    posterior = make_posterior(engine)
    cells = posterior.cells(grid.times, np.arange(graph.n_nodes))
    np.testing.assert_allclose(posterior.mean(cells).ravel(), expected.mean, rtol=1e-7, atol=1e-8)
    np.testing.assert_allclose(posterior.variance(cells).ravel(), np.diag(expected.covariance), rtol=1e-7, atol=1e-8)


# ---------------------------------------------------------------------- the iterative method
@pytest.mark.parametrize("missing", [0.1, 0.6])
@pytest.mark.parametrize("share", [1.0, 0.5])
@pytest.mark.parametrize("n_eigenpairs", [None, 9])
def test_filling_in_equals_the_dense_product_kernel(missing: float, share: float, n_eigenpairs: int | None) -> None:
    """Means, quadratic forms and variances of few cells to the tolerance; the rest within its stated error."""
    grid = make_grid(CITY, 11, share, missing=missing, seed=3)
    engine = make_engine(CITY, grid, "iterative", n_eigenpairs=n_eigenpairs, n_probes=64)
    expected = dense_field(engine, np.zeros(0))
    posterior = make_posterior(engine)
    cells = posterior.cells(grid.times, np.arange(CITY.n_nodes))
    np.testing.assert_allclose(posterior.mean(cells).ravel(), expected.mean, rtol=1e-8, atol=1e-9)
    pairs = (np.array([0, 3, 10, 7]), np.array([5, 5, 20, 21]))
    chosen = np.ravel_multi_index(pairs, (11, CITY.n_nodes))
    few = posterior.variance(posterior.cells(grid.times, np.arange(CITY.n_nodes), pairs))
    np.testing.assert_allclose(few, np.diag(expected.covariance)[chosen], rtol=1e-8)
    value, error = posterior.log_marginal_likelihood()
    assert 0.0 < error < 1.0
    assert abs(value + expected.value) < 4.0 * error
    # Variances of many cells come from draws; see the relative error in the documentation, here of 50 draws.
    ratio = posterior.variance(cells).ravel() / np.diag(expected.covariance)
    assert 0.3 < ratio.min() < 1.0 < ratio.max() < 2.5
    assert ratio.mean() == pytest.approx(1.0, abs=0.1)


@pytest.mark.parametrize("n_eigenpairs", [None, 9])
def test_gradient_of_the_estimate_is_its_derivative(n_eigenpairs: int | None) -> None:
    """With the same probes the estimated likelihood is a smooth function, whose gradient is exact."""
    engine = make_engine(CITY, make_grid(CITY, 9, 0.6, missing=0.5, seed=2), "iterative", n_eigenpairs=n_eigenpairs)
    whole = np.append(engine.position(), np.log(RHO))
    _, gradient, in_noise = engine.evaluate(whole[:-1], whole[-1])
    for k, found in enumerate([*gradient, in_noise]):
        direction = 1e-4 * np.eye(len(whole))[k]
        after, before = (engine.evaluate(x[:-1], x[-1])[0] for x in (whole + direction, whole - direction))
        assert found == pytest.approx((after - before) / 2e-4, rel=1e-5, abs=1e-5)


def test_large_holes_converge_and_failures_are_reported() -> None:
    grid = make_grid(CITY, 60, 1.0, missing=0.0, seed=0)
    observed = grid.observed.copy()
    observed[10:40, ::2] = False  # long outages
    grid = FieldGrid(grid.nodes, grid.times, grid.y * observed, observed)
    engine = make_engine(CITY, grid, "iterative", tolerance=1e-8)
    system = engine.system(engine.time.values(grid.times), engine.bound.weights().detach().numpy(), 1e-3)
    solved = system.solve(grid.data(constant=True))
    dense = make_engine(CITY, grid, "dense")
    expected = dense.system(system.covariance.time, system.covariance.weights, 1e-3).solve(grid.data(constant=True))
    np.testing.assert_allclose(solved, expected, atol=1e-6 * np.abs(expected).max())
    assert system.fill_in.iterations > 30  # type: ignore[attr-defined]
    engine.options = IterativeOptions(1e-8, 3, 2, 2, 0)
    system = engine.system(system.covariance.time, system.covariance.weights, 1e-3)
    with pytest.warns(NumericalWarning, match="3 iterations at a relative residual"):
        system.solve(grid.data(constant=True))


@pytest.mark.parametrize(
    ("method", "missing"), [("kronecker", 0.0), ("dense", 0.3), ("state-space", 0.3), ("iterative", 0.3)]
)
def test_samples_have_the_posteriors_moments(method: str, missing: float) -> None:
    graph = gm.make_roads(12, seed=0)
    engine = make_engine(graph, make_grid(graph, 4, 1.0, missing=missing, seed=1), method, tolerance=1e-8)
    posterior = make_posterior(engine)
    new_times = np.array([engine.grid.times[1], 11.0])
    nodes = np.array([0, 3])
    n = 2000
    draws = posterior.sample(n, new_times, nodes, np.random.default_rng(0)).reshape(n, 4)
    pairs = (np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1]))
    mean = posterior.mean(posterior.cells(new_times, nodes)).ravel()
    cov = posterior.covariance(new_times, nodes, pairs)
    z_mean = (draws.mean(axis=0) - mean) / np.sqrt(np.diag(cov) / n)
    error = np.sqrt((np.outer(np.diag(cov), np.diag(cov)) + cov**2) / n)
    z_cov = (np.cov(draws.T, bias=True) - cov) / error
    assert np.abs(z_mean).max() < 4.5
    assert np.abs(z_cov).max() < 4.5


# ---------------------------------------------------------------------- kernels on time
TIME_KERNELS = {
    "matern": MaternKernel(nu=0.5),
    "sum": ScaleKernel(MaternKernel(nu=2.5)) + ScaleKernel(PeriodicKernel()),
    "product": ScaleKernel(RBFKernel() * PeriodicKernel()),
    "linear": ScaleKernel(LinearKernel()) + MaternKernel(nu=1.5),
    "bounded": MaternKernel(nu=1.5, lengthscale_constraint=Interval(0.1, 20.0)),
    "above": MaternKernel(nu=1.5, lengthscale_constraint=GreaterThan(0.3)),
    "prior": MaternKernel(nu=1.5, lengthscale_prior=LogNormalPrior(0.0, 0.5)),
}


@pytest.mark.parametrize("name", TIME_KERNELS)
def test_any_time_kernel_has_exact_gradients(name: str) -> None:
    grid = make_grid(CITY, 8, 0.4, missing=0.0, seed=5)
    engine = make_engine(CITY, grid, "kronecker", time=TIME_KERNELS[name])
    position = engine.position()
    _, gradient, _ = engine.evaluate(position, np.log(RHO))
    assert len(engine.time.labels) == len(engine.time.position()) == len(engine.time.bounds())
    for k, found in enumerate(gradient):
        direction = 1e-5 * np.eye(len(position))[k]
        after, before = (engine.evaluate(x, np.log(RHO))[0] for x in (position + direction, position - direction))
        assert found == pytest.approx((after - before) / 2e-5, rel=1e-4, abs=1e-4)


def test_time_kernels_are_checked_and_held() -> None:
    with pytest.raises(KernelError, match="must be a GPyTorch kernel"):
        TimeKernel(gm.Matern())
    with pytest.raises(KernelError, match="one input, time"):
        TimeKernel(RBFKernel(ard_num_dims=2))
    held = MaternKernel(nu=1.5)
    held.raw_lengthscale.requires_grad_(False)
    kernel = TimeKernel(held)
    assert kernel.labels == []
    assert "(held)" in kernel.describe()
    table = wave_table().iloc[:6]
    model = gm.GraphFieldRegressor(CITY, time_kernel=held, time_unit="h").fit(table)
    assert model.time_kernel_.lengthscale.item() == pytest.approx(held.lengthscale.item())
    assert held.raw_lengthscale.dtype == torch.float32  # the caller's kernel is left alone


# ---------------------------------------------------------------------- the estimator
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
    assert (left.get_title(), right.get_title()) == ("mean", "standard deviation")
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
    with pytest.raises(KernelError, match="whole grids only"):
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


def test_methods_are_chosen_by_size() -> None:
    shape = (50, 100)
    y, holes = np.zeros(shape), np.ones(shape, dtype=bool)
    holes[0, 0] = False
    nodes, times = np.arange(100), np.arange(50.0)
    assert choose_method(FieldGrid(nodes, times, y, ~np.zeros(shape, dtype=bool)), "auto")[0] == "kronecker"
    assert choose_method(FieldGrid(nodes, times, y, holes), "auto")[0] == "iterative"
    assert choose_method(FieldGrid(nodes[:10], times, y[:, :10], holes[:, :10]), "auto")[0] == "dense"
    assert choose_method(FieldGrid(nodes, times, y, holes), "dense") == ("dense", "asked for")
    huge = np.broadcast_to(np.zeros(1), (2**20, 2**9))
    many = np.broadcast_to(np.array([True]), huge.shape)
    with pytest.raises(ResourceError, match="Round times"):
        choose_method(FieldGrid(nodes, times, huge, many), "auto")


def test_patches_are_near_and_full() -> None:
    observed = np.zeros((40, CITY.n_nodes), dtype=bool)
    observed[25:35] = True
    grid = FieldGrid(np.arange(CITY.n_nodes), np.arange(40.0), np.zeros(observed.shape), observed)
    patch = densest_patch(CITY, grid, 100)
    assert patch.shape == (10, 10)
    assert patch.observed.all()
    assert patch.times[0] == 25.0


def test_large_fits_begin_on_a_patch(monkeypatch: pytest.MonkeyPatch) -> None:
    """More cells than a patch holds: the start and the curvature come from it, and few evaluations are left."""
    monkeypatch.setattr(_fit_field, "_DEAR_GRID", 5000)
    graph = gm.make_roads(130, seed=2)
    rng = np.random.default_rng(0)
    times = np.arange(80.0)
    time_root = np.linalg.cholesky(matern_time(1, times, 4.0) + 1e-10 * np.eye(80))
    space = np.linalg.cholesky(dense_kernel(graph, matern_psi(1.5, 4.0)) + 1e-10 * np.eye(graph.n_nodes))
    field = time_root @ rng.standard_normal((80, graph.n_nodes)) @ space.T
    table = pd.DataFrame(field + 0.3 * rng.standard_normal(field.shape), index=times, columns=graph.nodes)
    table = with_holes(table, 0.3)
    model = gm.GraphFieldRegressor(graph, KERNEL, n_probes=4, n_draws=2).fit(table)
    assert model.engine_ == "iterative"
    assert model.converged_
    assert model.n_evaluations_ < 15
    assert model.time_kernel_.lengthscale.item() == pytest.approx(4.0, rel=0.2)
    assert np.sqrt(model.noise_) * model.y_scale_ == pytest.approx(0.3, rel=0.05)
