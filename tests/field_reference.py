"""Fields on nodes × times by the product kernel, cell by cell, and what tests of them share."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from gpytorch.constraints import GreaterThan, Interval
from gpytorch.kernels import LinearKernel, MaternKernel, PeriodicKernel, RBFKernel, ScaleKernel
from gpytorch.priors import LogNormalPrior

import graphmatern as gm
from graphmatern.inference.field import FieldEffects, FieldGrid, FieldPosterior, IterativeOptions, TimeKernel
from graphmatern.inference.field.objective import FieldObjective
from reference import dense_kernel, matern_psi

CITY = gm.make_roads(30, seed=1)
RHO = 0.1
TIME_KERNELS: dict[str, Any] = {
    "matern": MaternKernel(nu=0.5),
    "sum": ScaleKernel(MaternKernel(nu=2.5)) + ScaleKernel(PeriodicKernel()),
    "product": ScaleKernel(RBFKernel() * PeriodicKernel()),
    "linear": ScaleKernel(LinearKernel()) + MaternKernel(nu=1.5),
    "bounded": MaternKernel(nu=1.5, lengthscale_constraint=Interval(0.1, 20.0)),
    "above": MaternKernel(nu=1.5, lengthscale_constraint=GreaterThan(0.3)),
    "prior": MaternKernel(nu=1.5, lengthscale_prior=LogNormalPrior(0.0, 0.5)),
}


def matern_time(order: int, times: np.ndarray, lengthscale: float) -> np.ndarray:
    """Matérn 1/2, 3/2, 5/2, written down."""
    scaled = np.sqrt(2.0 * order + 1.0) * np.abs(times[:, None] - times) / lengthscale
    polynomial = [1.0, 1.0 + scaled, 1.0 + scaled + scaled**2 / 3.0][order]
    return np.asarray(polynomial * np.exp(-scaled))


class DenseField:
    """The product kernel on all cells of nodes × times, cell by cell."""

    def __init__(self, time: np.ndarray, nodes: np.ndarray, observed: np.ndarray, y: np.ndarray, rho: float) -> None:
        whole = np.kron(time, nodes)
        self.cells = np.flatnonzero(observed.ravel())
        c = whole[np.ix_(self.cells, self.cells)] + rho * np.eye(len(self.cells))
        inverse = np.linalg.inv(c)
        h, values = np.ones(len(self.cells)), y.ravel()[self.cells]
        information = h @ inverse @ h
        beta = h @ inverse @ values / information
        residual = values - beta * h
        n = len(values)
        self.value = 0.5 * (
            np.linalg.slogdet(c)[1] + residual @ inverse @ residual + np.log(information) + (n - 1) * np.log(2 * np.pi)
        )
        cross = whole[:, self.cells]
        d = 1.0 - cross @ inverse @ h
        self.mean = beta + cross @ inverse @ residual
        self.covariance = whole - cross @ inverse @ cross.T + np.outer(d, d) / information


def make_grid(graph: gm.Graph, n_times: int, share: float, *, missing: float, seed: int) -> FieldGrid:
    """Random values at random times and nodes, with holes."""
    rng = np.random.default_rng(seed)
    nodes = np.sort(rng.permutation(graph.n_nodes)[: max(1, round(share * graph.n_nodes))])
    times = np.sort(rng.uniform(0.0, 10.0, n_times))
    observed = rng.uniform(size=(n_times, len(nodes))) >= missing
    observed[0, 0] = True
    return FieldGrid(nodes, times, rng.standard_normal(observed.shape) * observed, observed)


def constant_mean(graph: gm.Graph) -> FieldEffects:
    return FieldEffects(np.ones((graph.n_nodes, 1)))


def make_objective(
    graph: gm.Graph,
    grid: FieldGrid,
    method: str,
    *,
    n_eigenpairs: int | None = None,
    kernel: gm.Kernel | None = None,
    time: Any = None,
    tolerance: float = 1e-12,
    n_probes: int = 4,
    n_draws: int = 50,
) -> FieldObjective:
    options = IterativeOptions(tolerance, 2000, n_probes, n_draws, 0)
    if time is None:
        time = MaternKernel(nu=1.5)
        time.lengthscale = 2.5
    bound = (gm.Matern(1.3, 3.0, 1.2) if kernel is None else kernel).on(graph, n_eigenpairs=n_eigenpairs)
    return FieldObjective(bound, TimeKernel(time), grid, effects=constant_mean(graph), method=method, options=options)


def make_posterior(objective: FieldObjective, rho: float = RHO) -> FieldPosterior:
    system = objective.system_at(with_noise(objective, rho))
    return FieldPosterior(objective.bound.spectrum, objective.time, system, effects=objective.effects)


def with_noise(objective: FieldObjective, rho: float = RHO) -> np.ndarray:
    """Where the kernels are, and a noise variance."""
    return np.append(objective.position(), np.log(rho))


def dense_field(objective: FieldObjective, new_times: np.ndarray, rho: float = RHO) -> DenseField:
    """The dense twin of an objective, at the grid's times and new ones, at all nodes."""
    grid, bound = objective.grid, objective.bound
    times = np.concatenate([grid.times, new_times])
    nodes = bound.matrix().detach().numpy()
    observed = np.zeros((len(times), bound.graph.n_nodes), dtype=bool)
    y = np.zeros(observed.shape)
    observed[: len(grid.times), grid.nodes] = grid.observed
    y[: len(grid.times), grid.nodes] = grid.y
    return DenseField(objective.time.values(times), nodes, observed, y, rho)


def wave_table(n_times: int = 20, seed: int = 0) -> pd.DataFrame:
    """Draws from a field with Matérn 3/2 in time, by the hour."""
    rng = np.random.default_rng(seed)
    root = np.linalg.cholesky(matern_time(1, np.arange(float(n_times)), 5.0) + 1e-10 * np.eye(n_times))
    space = np.linalg.cholesky(dense_kernel(CITY, matern_psi(1.5, 4.0)) + 1e-10 * np.eye(CITY.n_nodes))
    field = root @ rng.standard_normal((n_times, CITY.n_nodes)) @ space.T
    values = 50.0 + 10.0 * (field + 0.2 * rng.standard_normal(field.shape))
    return pd.DataFrame(values, index=pd.date_range("2024-03-01", periods=n_times, freq="h"), columns=CITY.nodes)


def with_holes(table: pd.DataFrame, share: float, seed: int = 1) -> pd.DataFrame:
    return table.mask(np.random.default_rng(seed).uniform(size=table.shape) < share)
