"""Fields whose kernel on time is Markov: the filter against the dense product kernel."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel

import graphmatern as gm
from field_reference import (
    CITY,
    RHO,
    DenseField,
    dense_field,
    make_grid,
    make_objective,
    make_posterior,
    matern_time,
    with_noise,
)
from graphmatern.errors import NumericalError
from graphmatern.inference.field import FieldPosterior
from graphmatern.inference.field.markov_time import MarkovChain, markov_order
from graphmatern.inference.field.state_space import StateSpace

if TYPE_CHECKING:
    from graphmatern.inference.field.objective import FieldObjective

MASSES = gm.Graph.from_adjacency(CITY.weights, masses=np.random.default_rng(0).uniform(0.5, 2.0, CITY.n_nodes))


def scaled_matern(order: int, lengthscale: float = 2.5, variance: float = 1.75) -> ScaleKernel:
    kernel = ScaleKernel(MaternKernel(nu=order + 0.5)).double()
    kernel.outputscale = variance
    kernel.base_kernel.lengthscale = lengthscale
    return kernel


def assert_dense(objective: FieldObjective, rho: float, rtol: float = 1e-8) -> None:
    """Likelihood and gradient of the filter are those of a dense factor."""
    theta = with_noise(objective, rho)
    found, expected = objective(theta), dense_twin(objective)(theta)
    assert found[0] == pytest.approx(expected[0], rel=rtol)
    np.testing.assert_allclose(found[1], expected[1], rtol=rtol, atol=rtol * np.abs(expected[1][:-1]).max())


def dense_twin(objective: FieldObjective) -> FieldObjective:
    parts = objective.bound, objective.time, objective.grid
    return type(objective)(*parts, effects=objective.effects, method="dense", options=objective.options)


@pytest.mark.parametrize("order", [0, 1, 2])
@pytest.mark.parametrize("missing", [0.0, 0.1, 0.6])
@pytest.mark.parametrize(("graph", "share", "n_eigenpairs"), [(MASSES, 1.0, None), (MASSES, 0.5, None), (CITY, 1.0, 9)])
def test_the_filter_equals_the_product_kernel(
    order: int, missing: float, graph: gm.Graph, share: float, n_eigenpairs: int | None
) -> None:
    """Irregular times, nodes with masses, new times before, among and after; kernel on time written down."""
    grid = make_grid(graph, 13, share, missing=missing, seed=3)
    objective = make_objective(graph, grid, "state-space", time=scaled_matern(order), n_eigenpairs=n_eigenpairs)
    times = np.concatenate([grid.times, [-2.0, -0.1, 4.5, 4.6, 12.0, 15.0]])
    observed = np.zeros((len(times), graph.n_nodes), dtype=bool)
    y = np.zeros(observed.shape)
    observed[:13, grid.nodes], y[:13, grid.nodes] = grid.observed, grid.y
    nodes = objective.bound.matrix().detach().numpy()
    expected = DenseField(1.75 * matern_time(order, times, 2.5), nodes, observed, y, RHO)

    assert objective.value(with_noise(objective)) == pytest.approx(expected.value, rel=1e-10)
    assert_dense(objective, RHO)
    posterior = make_posterior(objective)
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
    objective = make_objective(CITY, grid, "state-space", kernel=kernel, time=scaled_matern(order))
    assert_dense(objective, rho)
    filtered, dense = make_posterior(objective, rho), make_posterior(dense_twin(objective), rho)
    new = np.concatenate([grid.times[[0, 12, 15]], grid.times[[12]] + 0.1])
    for one in ("mean", "variance"):
        found, expected = (getattr(p, one)(p.cells(new, np.arange(CITY.n_nodes))) for p in (filtered, dense))
        np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-9)


def test_stretches_are_computed_again_where_memory_is_short() -> None:
    grid = make_grid(CITY, 23, 0.5, missing=0.3, seed=4)
    observed = grid.observed.copy()
    observed[[0, 7, 22]] = False  # times without any value
    grid = replace(grid, observed=observed, y=grid.y * observed)
    objective = make_objective(CITY, grid, "state-space", time=scaled_matern(2))
    assert_dense(objective, RHO)
    roomy = objective.system_at(with_noise(objective))
    short = StateSpace(roomy.covariance, grid, 2, kept_numbers=1)
    assert short.n_stretches == 5
    assert short.log_determinant() == pytest.approx(roomy.log_determinant(), rel=1e-12)
    data = grid.data(np.ones((grid.shape[1], 1)))
    np.testing.assert_allclose(short.solve(data), roomy.solve(data), rtol=1e-10, atol=1e-12)
    found, expected = short.trace_derivatives(), roomy.trace_derivatives()
    for name in ("in_time", "in_weights", "in_noise"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), rtol=1e-10)
    posterior = FieldPosterior(objective.bound.spectrum, objective.time, short, effects=objective.effects)
    dense = dense_field(objective, np.zeros(0))
    cells = posterior.cells(grid.times, np.arange(CITY.n_nodes))
    np.testing.assert_allclose(posterior.mean(cells).ravel(), dense.mean, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(posterior.variance(cells).ravel(), np.diag(dense.covariance), rtol=1e-8)


def test_errors_do_not_grow_with_the_times() -> None:
    """Many times, close together: variances at the first ones, the last that are computed."""
    grid = make_grid(CITY, 400, 0.1, missing=0.1, seed=0)
    objective = make_objective(CITY, grid, "state-space", time=scaled_matern(1))
    assert_dense(objective, RHO)
    filtered, dense = make_posterior(objective), make_posterior(dense_twin(objective))
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


def test_parameters_that_are_not_finite_are_reported() -> None:
    objective = make_objective(CITY, make_grid(CITY, 4, 0.5, missing=0.0, seed=0), "state-space")
    weights = objective.bound.weights().detach().numpy()
    with pytest.raises(NumericalError, match="not positive definite"):
        objective.system(np.array([np.inf, 1.0]), weights, RHO)
    with pytest.raises(NumericalError, match="noise variance"):
        objective.system(np.array([1.0, 1.0]), weights, 0.0)
