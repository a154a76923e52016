"""Kernels on time: any of GPyTorch's, their free parameters, their files."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from gpytorch.constraints import GreaterThan, Interval
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel

import graphmatern as gm
from field_reference import CITY, TIME_KERNELS, make_grid, make_objective, with_noise
from graphmatern.errors import KernelError, ModelFileError
from graphmatern.inference.field import TimeKernel, time_kernel_from_plain, time_kernel_to_plain


@pytest.mark.parametrize("name", TIME_KERNELS)
def test_any_time_kernel_has_exact_gradients(name: str) -> None:
    grid = make_grid(CITY, 8, 0.4, missing=0.0, seed=5)
    objective = make_objective(CITY, grid, "kronecker", time=TIME_KERNELS[name])
    theta = with_noise(objective)
    gradient = objective(theta)[1]
    assert len(objective.time.labels) == len(objective.time.position()) == len(objective.time.bounds())
    for k, found in enumerate(gradient):
        direction = 1e-5 * np.eye(len(theta))[k]
        after, before = (objective.value(x) for x in (theta + direction, theta - direction))
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
    assert kernel.starts([1.0, 2.0]) == []
    assert held.raw_lengthscale.dtype == torch.float32  # the caller's kernel is left alone


def test_starts_have_the_lengthscales_asked_for() -> None:
    for base in (MaternKernel(nu=1.5), MaternKernel(nu=0.5, lengthscale_constraint=GreaterThan(0.3))):
        kernel = TimeKernel(ScaleKernel(base))
        kernel.kernel.outputscale = 3.0
        starts = kernel.starts([0.5, 4.0])
        for start, lengthscale in zip(starts, (0.5, 4.0), strict=True):
            kernel.move(start)
            assert kernel.kernel.base_kernel.lengthscale.item() == pytest.approx(lengthscale, rel=1e-10)
            assert kernel.kernel.outputscale.item() == pytest.approx(3.0, rel=1e-10)
    assert len(kernel.starts([0.2, 4.0])) == 1  # the other lies below the constraint
    assert TimeKernel(MaternKernel(nu=1.5, lengthscale_constraint=Interval(0.1, 20.0))).starts([1.0]) == []
    assert TimeKernel(RBFKernel()).starts([1.0]) == []  # of others nobody knows what is typical


@pytest.mark.parametrize("name", [name for name in TIME_KERNELS if name != "prior"])
def test_files_keep_every_digit(name: str) -> None:
    kernel = TimeKernel(TIME_KERNELS[name]).kernel
    again = time_kernel_from_plain(time_kernel_to_plain(kernel))
    times = torch.arange(4.0).double()
    np.testing.assert_array_equal(again(times).to_dense().detach(), kernel(times).to_dense().detach())
    assert TimeKernel(again).bounds() == TimeKernel(kernel).bounds()


def test_kernels_that_cannot_be_stored() -> None:
    class Custom(MaternKernel):  # type: ignore[misc]
        """A kernel of the caller's."""

    for kernel, words in ((TIME_KERNELS["prior"], "priors"), (Custom(nu=0.5), "Custom")):
        with pytest.raises(ModelFileError, match=words):
            time_kernel_to_plain(kernel)
    plain = time_kernel_to_plain(MaternKernel(nu=0.5))
    with pytest.raises(ModelFileError, match="does not know"):
        time_kernel_from_plain(plain | {"kernel": "Nonsense"})
    with pytest.raises(ModelFileError, match="does not fit"):
        time_kernel_from_plain(plain | {"parameters": [["raw_x", np.ones(1), True, None]]})
