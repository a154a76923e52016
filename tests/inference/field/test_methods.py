"""Which method solves which grid."""

from __future__ import annotations

import numpy as np
import pytest
from gpytorch.kernels import MaternKernel, RBFKernel

from graphmatern.errors import KernelError, ResourceError
from graphmatern.inference.field import FieldGrid, choose_method, default_probes, order_of
from graphmatern.inference.field.methods import seconds


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


def test_whole_grids_only() -> None:
    with pytest.raises(KernelError, match="complete grids"):
        choose_method(grid_of(20, 20), "kronecker")


def test_probes_and_orders() -> None:
    assert default_probes(grid_of(20, 20)) == 32
    assert default_probes(grid_of(2000, 2000)) == 4
    assert [order_of(kernel) for kernel in (None, MaternKernel(nu=2.5), RBFKernel())] == [1, 2, None]


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
    with pytest.raises(KernelError, match="`engine` can be 'state-space' only for a Matérn `time_kernel`"):
        choose_method(grid_of(20, 20), "state-space", None)
