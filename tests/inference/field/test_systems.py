"""Ways to solve with a field's covariance, each against the dense product kernel: likelihood, gradient, predictions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from field_reference import (
    CITY,
    dense_field,
    make_grid,
    make_objective,
    make_posterior,
    matern_time,
    with_noise,
)
from graphmatern.errors import NumericalWarning
from graphmatern.inference.field import FieldGrid, IterativeOptions
from reference import dense_kernel, matern_psi
from strategies import graphs

if TYPE_CHECKING:
    import graphmatern as gm

METHODS = [("kronecker", 0.0)] + [(method, share) for method in ("dense", "state-space") for share in (0.0, 0.1, 0.6)]


def test_the_product_kernel_is_the_formula() -> None:
    """The objective's pieces against formulas written down: Matérn 3/2 in time, the dense reference on the graph."""
    objective = make_objective(CITY, make_grid(CITY, 7, 1.0, missing=0.0, seed=0), "kronecker")
    np.testing.assert_allclose(
        objective.time.values(objective.grid.times), matern_time(1, objective.grid.times, 2.5), atol=1e-12
    )
    expected = dense_kernel(CITY, matern_psi(1.3, 3.0), variance=1.2)
    np.testing.assert_allclose(objective.bound.matrix().detach().numpy(), expected, atol=1e-12)


@pytest.mark.parametrize(("method", "missing"), METHODS)
@pytest.mark.parametrize("share", [1.0, 0.5])
@pytest.mark.parametrize("n_eigenpairs", [None, 9])
def test_exact_methods_equal_the_dense_product_kernel(
    method: str, missing: float, share: float, n_eigenpairs: int | None
) -> None:
    objective = make_objective(
        CITY, make_grid(CITY, 11, share, missing=missing, seed=3), method, n_eigenpairs=n_eigenpairs
    )
    new_times = np.array([-1.0, 4.5, 12.0])
    expected = dense_field(objective, new_times)
    theta = with_noise(objective)
    value, gradient = objective(theta)
    assert value == pytest.approx(expected.value, rel=1e-10)
    assert objective.value(theta) == value

    def dense_value(at: np.ndarray) -> float:
        objective.move(at)
        return float(dense_field(objective, new_times[:0], float(np.exp(at[-1]))).value)

    step = 2e-3
    for k, found in enumerate(gradient):
        direction = step * np.eye(len(theta))[k]
        differences = [dense_value(theta + m * direction) - dense_value(theta - m * direction) for m in (1, 2, 3)]
        sixth_order = (45 * differences[0] - 9 * differences[1] + differences[2]) / (60 * step)
        assert found == pytest.approx(sixth_order, rel=1e-8, abs=1e-7)
    objective.move(theta)

    posterior = make_posterior(objective)
    assert posterior.log_marginal_likelihood() == pytest.approx((-expected.value, 0.0), rel=1e-10)
    times = np.concatenate([objective.grid.times, new_times])
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
    method = "state-space" if filtered else "kronecker" if grid.is_complete else "dense"
    objective = make_objective(graph, grid, method)
    expected = dense_field(objective, np.zeros(0))
    assert objective(with_noise(objective))[0] == pytest.approx(expected.value, rel=1e-8)
    posterior = make_posterior(objective)
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
    objective = make_objective(CITY, grid, "iterative", n_eigenpairs=n_eigenpairs, n_probes=64)
    expected = dense_field(objective, np.zeros(0))
    posterior = make_posterior(objective)
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
    objective = make_objective(
        CITY, make_grid(CITY, 9, 0.6, missing=0.5, seed=2), "iterative", n_eigenpairs=n_eigenpairs
    )
    theta = with_noise(objective)
    gradient = objective(theta)[1]
    for k, found in enumerate(gradient):
        direction = 1e-4 * np.eye(len(theta))[k]
        after, before = (objective.value(x) for x in (theta + direction, theta - direction))
        assert found == pytest.approx((after - before) / 2e-4, rel=1e-5, abs=1e-5)


def test_large_holes_converge_and_failures_are_reported() -> None:
    grid = make_grid(CITY, 60, 1.0, missing=0.0, seed=0)
    observed = grid.observed.copy()
    observed[10:40, ::2] = False  # long outages
    grid = FieldGrid(grid.nodes, grid.times, grid.y * observed, observed)
    objective = make_objective(CITY, grid, "iterative", tolerance=1e-8)
    system = objective.system(objective.time.values(grid.times), objective.bound.weights().detach().numpy(), 1e-3)
    data = grid.data(np.ones((grid.shape[1], 1)))
    solved = system.solve(data)
    dense = make_objective(CITY, grid, "dense")
    expected = dense.system(system.covariance.time, system.covariance.weights, 1e-3).solve(
        grid.data(np.ones((grid.shape[1], 1)))
    )
    np.testing.assert_allclose(solved, expected, atol=1e-6 * np.abs(expected).max())
    assert system.fill_in.iterations > 30  # type: ignore[attr-defined]
    objective.options = IterativeOptions(1e-8, 3, 2, 2, 0)
    system = objective.system(system.covariance.time, system.covariance.weights, 1e-3)
    with pytest.warns(NumericalWarning, match="3 iterations at a relative residual"):
        system.solve(grid.data(np.ones((grid.shape[1], 1))))
