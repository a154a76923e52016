"""Fields whose kernel on time is Markov: the filter against the dense product kernel and in the estimator."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel

import graphmatern as gm
from field_reference import (
    CITY,
    RHO,
    DenseField,
    dense_field,
    make_engine,
    make_grid,
    make_posterior,
    matern_time,
    wave_table,
    with_holes,
)
from graphmatern.errors import KernelError, NumericalError
from graphmatern.inference import _state_space
from graphmatern.inference._fit_field import choose_method, seconds
from graphmatern.inference._kronecker import FieldGrid
from graphmatern.inference._markov_time import MarkovChain, markov_order

if TYPE_CHECKING:
    from pathlib import Path

    from graphmatern.inference._field_engine import FieldEngine

KERNEL = gm.Matern(1.5, 3.0, fixed=("nu",))
MASSES = gm.Graph.from_adjacency(CITY.weights, masses=np.random.default_rng(0).uniform(0.5, 2.0, CITY.n_nodes))


def scaled_matern(order: int, lengthscale: float = 2.5, variance: float = 1.75) -> ScaleKernel:
    kernel = ScaleKernel(MaternKernel(nu=order + 0.5)).double()
    kernel.outputscale = variance
    kernel.base_kernel.lengthscale = lengthscale
    return kernel


def assert_dense(engine: FieldEngine, rho: float, rtol: float = 1e-8) -> None:
    """Likelihood and gradient of the filter are those of a dense factor."""
    dense = replace_method(engine)
    found, expected = (one.evaluate(engine.position(), np.log(rho)) for one in (engine, dense))
    assert found[0] == pytest.approx(expected[0], rel=rtol)
    np.testing.assert_allclose(found[1], expected[1], rtol=rtol, atol=rtol * np.abs(expected[1]).max())
    assert found[2] == pytest.approx(expected[2], rel=rtol)


def replace_method(engine: FieldEngine) -> FieldEngine:
    return type(engine)(engine.bound, engine.time, engine.grid, constant=True, method="dense", options=engine.options)


@pytest.mark.parametrize("order", [0, 1, 2])
@pytest.mark.parametrize("missing", [0.0, 0.1, 0.6])
@pytest.mark.parametrize(("graph", "share", "n_eigenpairs"), [(MASSES, 1.0, None), (MASSES, 0.5, None), (CITY, 1.0, 9)])
def test_the_filter_equals_the_product_kernel(
    order: int, missing: float, graph: gm.Graph, share: float, n_eigenpairs: int | None
) -> None:
    """Irregular times, nodes with masses, new times before, among and after; kernel on time written down."""
    grid = make_grid(graph, 13, share, missing=missing, seed=3)
    engine = make_engine(graph, grid, "state-space", time=scaled_matern(order), n_eigenpairs=n_eigenpairs)
    times = np.concatenate([grid.times, [-2.0, -0.1, 4.5, 4.6, 12.0, 15.0]])
    observed = np.zeros((len(times), graph.n_nodes), dtype=bool)
    y = np.zeros(observed.shape)
    observed[:13, grid.nodes], y[:13, grid.nodes] = grid.observed, grid.y
    nodes = engine.bound.matrix().detach().numpy()
    expected = DenseField(1.75 * matern_time(order, times, 2.5), nodes, observed, y, RHO)

    assert engine.evaluate(engine.position(), np.log(RHO))[0] == pytest.approx(expected.value, rel=1e-10)
    assert_dense(engine, RHO)
    posterior = make_posterior(engine)
    assert posterior.log_marginal_likelihood() == pytest.approx((-expected.value, 0.0), rel=1e-10)
    cells = posterior.cells(times, np.arange(graph.n_nodes))
    variance = np.diag(expected.covariance)
    np.testing.assert_allclose(posterior.mean(cells).ravel(), expected.mean, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(posterior.variance(cells).ravel(), variance, rtol=1e-8)
    pairs = (np.array([15, 3, 15, 18, 13]), np.array([2, 5, 7, 7, 0]))
    chosen = np.ravel_multi_index(pairs, observed.shape)
    few = posterior.cells(times, np.arange(graph.n_nodes), pairs)
    np.testing.assert_allclose(posterior.mean(few), expected.mean[chosen], rtol=1e-8)
    np.testing.assert_allclose(posterior.variance(few), variance[chosen], rtol=1e-8)
    covariance = posterior.covariance(times, np.arange(graph.n_nodes), pairs)
    np.testing.assert_allclose(covariance, expected.covariance[np.ix_(chosen, chosen)], rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("order", [0, 1, 2])
@pytest.mark.parametrize("hard", ["close times", "smooth on the graph", "little noise", "far apart", "far from zero"])
def test_hard_cases_keep_their_digits(order: int, hard: str) -> None:
    grid = make_grid(CITY, 30, 0.8, missing=0.3, seed=3)
    kernel: gm.Kernel = gm.Matern(1.3, 3.0, 1.2)
    rho = RHO
    if hard == "close times":
        times = grid.times.copy()
        times[10:20] = times[10] + 1e-9 * np.arange(10)
        grid = replace(grid, times=np.sort(times))
    elif hard == "smooth on the graph":
        kernel = gm.Diffusion(20.0)  # of rank 3 or so
    elif hard == "little noise":
        rho = 1e-4
    elif hard == "far apart":
        grid = replace(grid, times=1e6 * grid.times)
    else:
        grid = replace(grid, times=1e5 + grid.times)
    engine = make_engine(CITY, grid, "state-space", kernel=kernel, time=scaled_matern(order))
    assert_dense(engine, rho)
    filtered, dense = make_posterior(engine, rho), make_posterior(replace_method(engine), rho)
    new = np.concatenate([grid.times[[0, 12, 15]], grid.times[[12]] + 0.1])
    for one in ("mean", "variance"):
        found, expected = (getattr(p, one)(p.cells(new, np.arange(CITY.n_nodes))) for p in (filtered, dense))
        np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-9)


def test_stretches_are_recomputed_where_memory_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    grid = make_grid(CITY, 23, 0.5, missing=0.3, seed=4)
    observed = grid.observed.copy()
    observed[[0, 7, 22]] = False  # times without any value
    grid = replace(grid, observed=observed, y=grid.y * observed)
    monkeypatch.setattr(_state_space, "_STORED", 1)
    engine = make_engine(CITY, grid, "state-space", time=scaled_matern(2))
    assert_dense(engine, RHO)
    posterior = make_posterior(engine)
    assert posterior.system._n_parts == 5  # type: ignore[attr-defined]
    expected = dense_field(engine, np.zeros(0))
    cells = posterior.cells(grid.times, np.arange(CITY.n_nodes))
    np.testing.assert_allclose(posterior.mean(cells).ravel(), expected.mean, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(posterior.variance(cells).ravel(), np.diag(expected.covariance), rtol=1e-8)


def test_errors_do_not_grow_with_the_times() -> None:
    """Many times, close together: variances at the first ones, the last that are computed."""
    grid = make_grid(CITY, 400, 0.1, missing=0.1, seed=0)
    engine = make_engine(CITY, grid, "state-space", time=scaled_matern(1))
    assert_dense(engine, RHO)
    filtered, dense = make_posterior(engine), make_posterior(replace_method(engine))
    found, expected = (p.variance(p.cells(np.array([-0.1, 0.05]), np.arange(CITY.n_nodes))) for p in (filtered, dense))
    np.testing.assert_allclose(found, expected, rtol=1e-9)


@pytest.mark.parametrize("order", [0, 1, 2])
def test_chains_are_matern_processes(order: int) -> None:
    chain = MarkovChain(order, np.sqrt(2 * order + 1) / 2.5)
    times = np.array([0.0, 0.5, 0.500001, 3.0])
    covariance = matern_time(order, times, 2.5)
    for k, time in enumerate(times):
        transition, added = chain.step(np.array([time]))
        assert (transition[0] @ chain.stationary)[0, 0] == pytest.approx(covariance[0, k], rel=1e-12)
        slope = (chain.step(np.array([time + 1e-5]))[1] - chain.step(np.array([abs(time - 1e-5)]))[1]) / 2e-5
        if time:
            np.testing.assert_allclose(chain.added_slope(transition)[0] * chain.rate, slope[0], atol=1e-7)
        assert np.linalg.eigvalsh(added[0]).min() > -1e-15
    draws = chain.draw(times, 20_000, np.random.default_rng(0))
    np.testing.assert_allclose(draws @ draws.T / 20_000, covariance, atol=0.05)


def test_which_kernels_are_markov() -> None:
    class Custom(MaternKernel):  # type: ignore[misc]
        """A kernel of the caller's."""

    assert [markov_order(MaternKernel(nu=nu)) for nu in (0.5, 1.5, 2.5)] == [0, 1, 2]
    assert markov_order(ScaleKernel(ScaleKernel(MaternKernel(nu=2.5)))) == 2
    others = (RBFKernel(), MaternKernel() + MaternKernel(), ScaleKernel(RBFKernel()), Custom(nu=0.5), None)
    assert [markov_order(kernel) for kernel in others] == [None] * len(others)


def grid_of(n_times: int, n_nodes: int, *, holes: bool = True) -> FieldGrid:
    observed = np.ones((n_times, n_nodes), dtype=bool)
    observed[0, 0] = not holes
    return FieldGrid(np.arange(n_nodes), np.arange(float(n_times)), np.zeros(observed.shape), observed)


def test_the_filter_is_chosen_where_it_is_cheapest() -> None:
    method, reason = choose_method(grid_of(2000, 50), "auto", 1)
    assert (method, reason) == ("state-space", "2,000 times of 50 nodes, Matérn in time: a Kalman filter, exact")
    assert seconds("state-space", grid_of(2000, 50), 1) < 0.2 * seconds("iterative", grid_of(2000, 50))
    assert choose_method(grid_of(2000, 50), "auto")[0] == "iterative"  # a kernel on time that is not Markov
    assert choose_method(grid_of(2000, 50), "iterative", 1) == ("iterative", "asked for")
    assert choose_method(grid_of(10_000, 50, holes=False), "auto", 1)[0] == "state-space"
    assert choose_method(grid_of(500, 50, holes=False), "auto", 1)[0] == "kronecker"
    assert choose_method(grid_of(200, 600), "auto", 1)[0] == "iterative"
    assert choose_method(grid_of(300, 9), "auto", 1)[0] == "state-space"
    assert choose_method(grid_of(20, 20), "auto", 1)[0] == "dense"
    with pytest.raises(KernelError, match="`engine` can be 'state-space' for a Matérn `time_kernel`"):
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


def test_parameters_that_are_not_finite_are_reported() -> None:
    engine = make_engine(CITY, make_grid(CITY, 4, 0.5, missing=0.0, seed=0), "state-space")
    weights = engine.bound.weights().detach().numpy()
    with pytest.raises(NumericalError, match="not positive definite"):
        engine.system(np.array([np.inf, 1.0]), weights, RHO)
    with pytest.raises(NumericalError, match="noise variance"):
        engine.system(np.array([1.0, 1.0]), weights, 0.0)
