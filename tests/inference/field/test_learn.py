"""Learning fields: starts, parts of large grids, what is kept."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from gpytorch.kernels import MaternKernel, ScaleKernel

import graphmatern as gm
from field_reference import CITY, constant_mean, make_grid, make_objective, matern_time, with_noise
from graphmatern.inference import Fit, Known, PriorsAndBounds, Search
from graphmatern.inference.field import FieldEffects, FieldGrid, FieldProblem, IterativeOptions, learn_field
from graphmatern.inference.field.learn import densest_patch
from reference import dense_kernel, matern_psi

OPTIONS = IterativeOptions(1e-6, 1000, 4, 2, 0)


def draw_field(graph: gm.Graph, n_times: int, missing: float, seed: int = 0) -> FieldGrid:
    """Matérn 3/2 of lengthscale 4 in time, Matérn 3/2 of lengthscale 4 on the graph, noise of variance 0.09."""
    rng = np.random.default_rng(seed)
    times = np.arange(float(n_times))
    time_root = np.linalg.cholesky(matern_time(1, times, 4.0) + 1e-10 * np.eye(n_times))
    space = np.linalg.cholesky(dense_kernel(graph, matern_psi(1.5, 4.0)) + 1e-10 * np.eye(graph.n_nodes))
    y = time_root @ rng.standard_normal((n_times, graph.n_nodes)) @ space.T
    y = y + 0.3 * rng.standard_normal(y.shape)
    observed = rng.uniform(size=y.shape) >= missing
    return FieldGrid(np.arange(graph.n_nodes), times, y * observed, observed)


def problem(graph: gm.Graph, grid: FieldGrid, method: str = "dense", **options: Any) -> FieldProblem:
    usual: dict[str, Any] = {
        "kernel": gm.Matern(1.5, 3.0, fixed=("nu",)),
        "time_kernel": None,
        "effects": constant_mean(graph),
        "normalized": False,
        "n_eigenpairs": None,
        "iterative": OPTIONS,
    }
    return FieldProblem(graph=graph, grid=grid, method=method, **(usual | options))


def predictions(fit: Fit) -> np.ndarray:
    cells = fit.posterior.cells(np.array([2.5, 30.0]), np.arange(CITY.n_nodes))
    return np.stack([fit.posterior.mean(cells), fit.posterior.variance(cells)])


def noise_of(fit: Fit) -> float:
    return fit.likelihood.values()["noise"]


def lengthscale_of(fit: Fit) -> float:
    assert isinstance(fit.kernel, gm.Matern)
    return fit.kernel.values()["lengthscale"]


def test_a_fit_recovers_the_parameters() -> None:
    fit = learn_field(problem(CITY, draw_field(CITY, 30, 0.3)))
    assert (fit.engine, fit.converged, fit.at_bounds) == ("dense", True, [])
    assert fit.gradient_norm < 1e-2
    labels = [one.label for one in fit.coordinates]
    assert labels == ["lengthscale", "variance", "time.lengthscale", "noise"]
    assert noise_of(fit) == pytest.approx(0.09, rel=0.25)
    assert fit.posterior.time.kernel.lengthscale.item() == pytest.approx(4.0, rel=0.3)
    assert fit.posterior.log_marginal_likelihood() == pytest.approx((fit.log_evidence, 0.0), rel=1e-10)
    errors = fit.standard_errors()
    assert set(errors) == set(labels)
    assert 0.0 < errors["noise"] < 0.2


def test_methods_learn_the_same() -> None:
    grid = draw_field(CITY, 15, 0.3)
    dense, filtered = (learn_field(problem(CITY, grid, method)) for method in ("dense", "state-space"))
    np.testing.assert_allclose(filtered.optimum.position, dense.optimum.position, atol=1e-4)
    assert filtered.log_evidence == pytest.approx(dense.log_evidence, abs=1e-7)
    np.testing.assert_allclose(predictions(filtered), predictions(dense), rtol=1e-3, atol=1e-5)
    options = IterativeOptions(1e-8, 1000, 32, 200, 0)
    iterative = learn_field(problem(CITY, grid, "iterative", iterative=options))
    value, error = iterative.posterior.log_marginal_likelihood()
    assert error > 0.0
    assert abs(value - dense.log_evidence) < 4.0 * error + 0.1


@pytest.mark.parametrize("method", ["dense", "iterative"])
def test_what_is_known_is_taken_up(method: str) -> None:
    grid = draw_field(CITY, 12, 0.3)
    options = {"iterative": IterativeOptions(1e-10, 1000, 4, 50, 0)}
    fit = learn_field(problem(CITY, grid, method, **options))
    same = problem(CITY, grid, method, kernel=fit.kernel, time_kernel=fit.posterior.time.kernel, **options)
    again = learn_field(same, Known(fit.optimum))
    assert again.optimum is fit.optimum
    np.testing.assert_allclose(predictions(again), predictions(fit), rtol=1e-8, atol=1e-9)
    assert noise_of(again) == noise_of(fit)
    assert repr(again.kernel) == repr(fit.kernel)


def test_callers_kernels_and_results_are_left_alone() -> None:
    """A fit changes neither the kernels that it was given nor, evaluated again, those that it returned."""
    kernel, time_kernel = gm.Matern(1.2, 3.0), ScaleKernel(MaternKernel(nu=0.5))
    before = [copy.deepcopy(module.state_dict()) for module in (kernel, time_kernel)]
    fit = learn_field(problem(CITY, draw_field(CITY, 10, 0.2), kernel=kernel, time_kernel=time_kernel))
    for module, state in zip((kernel, time_kernel), before, strict=True):
        assert all(torch.equal(value, state[name]) for name, value in module.state_dict().items())
    shown, numbers = (repr(fit.kernel), fit.posterior.time.describe()), predictions(fit)
    fit.objective(fit.optimum.position + 0.5)
    assert (repr(fit.kernel), fit.posterior.time.describe()) == shown
    np.testing.assert_array_equal(predictions(fit), numbers)


def test_parameters_are_kept_without_an_optimizer() -> None:
    fit = learn_field(problem(CITY, draw_field(CITY, 8, 0.2), noise=0.25, search=Search(optimizer=None)))
    assert lengthscale_of(fit) == pytest.approx(3.0)
    assert noise_of(fit) == pytest.approx(0.25)
    assert fit.optimum.message == "parameters kept"


def test_a_bad_start_is_no_promise() -> None:
    """From kernels whose own values are flat in the parameters, a fit ends where one from the data ends."""
    grid = draw_field(CITY, 20, 0.3)
    fast, short = MaternKernel(nu=1.5), gm.Matern(1.5, 5e-3, fixed=("nu",))
    fast.lengthscale = 1e-4
    expected = learn_field(problem(CITY, grid))
    found = learn_field(problem(CITY, grid, kernel=short, time_kernel=fast))
    assert found.log_evidence == pytest.approx(expected.log_evidence, abs=1e-6)
    assert found.optimum.n_evaluations < 2 * expected.optimum.n_evaluations


def test_starts_lie_within_bounds_and_heed_priors() -> None:
    grid = draw_field(CITY, 10, 0.2)
    rules = PriorsAndBounds({"lengthscale": (0.5, 1.5)}, {"noise": gm.LogNormal(0.01, 0.1)})
    fit = learn_field(problem(CITY, grid, rules=rules, search=Search(max_iterations=1)))
    assert 0.5 <= lengthscale_of(fit) <= 1.5
    fit = learn_field(problem(CITY, grid, rules=rules))
    assert fit.at_bounds == ["lengthscale"]
    assert noise_of(fit) < 0.03
    value, _ = fit.objective(fit.optimum.position)
    assert value == pytest.approx(fit.optimum.value, rel=1e-12)
    assert fit.log_evidence == pytest.approx(fit.posterior.log_marginal_likelihood()[0], rel=1e-10)


def test_patches_are_near_and_full() -> None:
    observed = np.zeros((40, CITY.n_nodes), dtype=bool)
    observed[25:35] = True
    grid = FieldGrid(np.arange(CITY.n_nodes), np.arange(40.0), np.zeros(observed.shape), observed)
    patch = densest_patch(CITY, grid, 100)
    assert patch.shape == (10, 10)
    assert patch.observed.all()
    assert patch.times[0] == 25.0


def test_large_fits_begin_on_a_patch() -> None:
    """More cells than a patch holds: the start and the curvature come from it, and few evaluations are left."""
    graph = gm.make_roads(130, seed=2)
    fit = learn_field(problem(graph, draw_field(graph, 80, 0.3), "iterative"), costly_cells=5000)
    assert fit.converged
    assert fit.optimum.n_evaluations < 15
    assert fit.posterior.time.kernel.lengthscale.item() == pytest.approx(4.0, rel=0.2)
    assert np.sqrt(noise_of(fit)) == pytest.approx(0.3, rel=0.05)


@pytest.mark.parametrize("precision", [0.0, 0.5])
@pytest.mark.parametrize("method", ["dense", "kronecker"])
def test_gradient_with_several_effects(method: str, precision: float) -> None:
    grid = make_grid(CITY, 5, 0.4, missing=0.0 if method == "kronecker" else 0.3, seed=2)
    objective = make_objective(CITY, grid, method)
    rng = np.random.default_rng(0)
    design = np.column_stack([np.ones(CITY.n_nodes), rng.standard_normal((CITY.n_nodes, 2))])
    objective.effects = FieldEffects(design, precision)
    theta = with_noise(objective)
    _, gradient = objective(theta)
    for k, step in enumerate(1e-5 * np.eye(len(theta))):
        numeric = (objective(theta + step)[0] - objective(theta - step)[0]) / 2e-5
        assert gradient[k] == pytest.approx(numeric, rel=1e-5, abs=1e-5)
