"""Our variational strategies in GPyTorch's models."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import gpytorch
import numpy as np
import pytest
import torch

import graphmatern as gm
from graphmatern import likelihoods
from graphmatern.errors import KernelError
from graphmatern.interop import EigenvectorStrategy, InducingNodeStrategy, NodeKernel, NodeLikelihood
from reference import dense_kernel, matern_psi

if TYPE_CHECKING:
    from collections.abc import Callable

GRAPH = gm.make_roads(55, seed=3)
N = GRAPH.n_nodes
KERNEL = gm.Matern(nu=1.5, lengthscale=2.0, variance=1.3)
NODES = np.random.default_rng(5).permutation(N)[:25]
EVERY = torch.arange(N).double()[:, None]


class Model(gpytorch.models.ApproximateGP):  # type: ignore[misc]
    def __init__(self, strategy: Callable[[Any], Any], kernel: Any) -> None:
        super().__init__(strategy(self))
        self.mean_module, self.covar_module = gpytorch.means.ZeroMean(), kernel
        self.double()

    def forward(self, x: torch.Tensor) -> gpytorch.distributions.MultivariateNormal:
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def node_kernel(**options: Any) -> NodeKernel:
    kernel = NodeKernel(GRAPH, KERNEL, **options)
    kernel.double()
    kernel.load_kernel(KERNEL)
    return kernel


def natural(n: int) -> Any:
    return gpytorch.variational.NaturalVariationalDistribution(n, mean_init_std=0.0)


@pytest.mark.parametrize("form", ["eigenvectors", "inducing"])
def test_the_best_q_is_the_exact_posterior(form: str) -> None:
    """Gaussian noise, all eigenvectors or all observed nodes: one natural gradient step of size 1 leads there."""
    noise, y = 0.2, torch.as_tensor(np.random.default_rng(0).standard_normal(len(NODES)))
    x, kernel = torch.as_tensor(NODES)[:, None], node_kernel()

    def strategy(model: Any) -> Any:
        if form == "eigenvectors":
            return EigenvectorStrategy(model, kernel, natural(N))
        return InducingNodeStrategy(model, kernel, x, natural(len(NODES)), jitter_val=1e-10)

    model, likelihood = Model(strategy, kernel), NodeLikelihood(likelihoods.Gaussian(noise=noise))
    objective = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=len(y))
    optimizer = gpytorch.optim.NGD(model.variational_parameters(), num_data=len(y), lr=1.0)
    (-objective(model.train()(x), y)).backward()
    optimizer.step()
    prior = dense_kernel(GRAPH, matern_psi(1.5, 2.0), variance=1.3)
    k, cross = prior[np.ix_(NODES, NODES)] + noise * np.eye(len(NODES)), prior[:, NODES]
    evidence = -0.5 * (y.numpy() @ np.linalg.solve(k, y.numpy()) + np.linalg.slogdet(2 * np.pi * k)[1])
    assert objective(model(x), y).item() * len(y) == pytest.approx(evidence, abs=1e-6)
    with torch.no_grad():
        q = model.eval()(EVERY)
    np.testing.assert_allclose(q.mean, cross @ np.linalg.solve(k, y.numpy()), atol=1e-6)
    np.testing.assert_allclose(q.covariance_matrix, prior - cross @ np.linalg.solve(k, cross.T), atol=1e-6)


@pytest.mark.parametrize("full", [True, False])
def test_inducing_nodes_are_gpytorchs(full: bool) -> None:
    """The same q(f), in training and after it, and the same divergence as GPyTorch's own strategy."""
    kernel, z = node_kernel(), torch.as_tensor(NODES[:10]).double()[:, None]
    variational = gpytorch.variational
    kind = variational.CholeskyVariationalDistribution if full else variational.MeanFieldVariationalDistribution
    theirs = Model(
        lambda model: variational.VariationalStrategy(
            model, z, kind(10), learn_inducing_locations=False, jitter_val=1e-10
        ),
        kernel,
    )
    ours = Model(lambda model: InducingNodeStrategy(model, kernel, z, kind(10), jitter_val=1e-10), kernel)
    for model in (theirs, ours):
        model.variational_strategy.variational_params_initialized.fill_(1)
    pairs = zip(theirs.variational_parameters(), ours.variational_parameters(), strict=True)
    for one, other in pairs:
        random = torch.randn(one.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
        one.data.copy_(1.0 + 0.3 * random)
        other.data.copy_(one)
    for mode in (True, False):
        one, other = (model.train(mode)(EVERY) for model in (theirs, ours))
        np.testing.assert_allclose(other.mean.detach(), one.mean.detach(), atol=1e-8)
        np.testing.assert_allclose(other.variance.detach(), one.variance.detach(), atol=1e-8)
    np.testing.assert_allclose(other.covariance_matrix.detach(), one.covariance_matrix.detach(), atol=1e-8)
    divergence = [model.variational_strategy.kl_divergence().item() for model in (theirs, ours)]
    assert divergence[0] == pytest.approx(divergence[1])


def test_eigenvectors_in_a_sum_with_other_kernels() -> None:
    """Where q is the prior of the coefficients, the process has its prior: that of the other kernel stays."""
    kernel = node_kernel(active_dims=[0])
    other = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel(active_dims=[1]))
    model = Model(lambda model: EigenvectorStrategy(model, kernel, natural(N)), kernel + other)
    x = torch.stack([torch.as_tensor(NODES).double(), torch.linspace(0, 1, len(NODES)).double()], dim=1)
    q, prior = model.eval()(x), model.forward(x)
    np.testing.assert_allclose(q.covariance_matrix.detach(), prior.covariance_matrix.detach(), atol=1e-9)
    assert model.train()(x).variance.shape == (len(NODES),)


def test_more_eigenvectors_raise_the_bound() -> None:
    x, y = torch.as_tensor(NODES)[:, None], torch.as_tensor((NODES % 3 == 0).astype(float))
    bounds, kernel = [], node_kernel()
    for count in (5, 20, N):
        model = Model(partial(EigenvectorStrategy, kernel=kernel, variational_distribution=natural(count)), kernel)
        objective = gpytorch.mlls.VariationalELBO(NodeLikelihood(likelihoods.Bernoulli()), model, num_data=len(y))
        optimizer = gpytorch.optim.NGD(model.variational_parameters(), num_data=len(y), lr=0.5)
        for _ in range(40):
            optimizer.zero_grad()
            loss = -objective(model.train()(x), y)
            loss.backward()
            optimizer.step()
        bounds.append(-loss.item())
    assert bounds[0] < bounds[1] < bounds[2]


def test_too_many_eigenvectors() -> None:
    kernel = node_kernel(n_eigenpairs=5)
    with pytest.raises(KernelError, match=r"as the kernel has eigenpairs \(5\); received 6"):
        Model(lambda model: EigenvectorStrategy(model, kernel, natural(6)), kernel)
