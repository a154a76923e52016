"""Our likelihoods in GPyTorch's models."""

from __future__ import annotations

from typing import Any

import gpytorch
import numpy as np
import pytest
import torch

import graphmatern as gm
from graphmatern import likelihoods
from graphmatern.errors import LikelihoodError
from graphmatern.inference import fit_stochastic
from graphmatern.interop import EigenvectorStrategy, NodeKernel, NodeLikelihood

ONE: list[Any] = [
    likelihoods.Gaussian(noise=0.3),
    likelihoods.StudentT(scale=0.4, df=5.0),
    likelihoods.Poisson(),
    likelihoods.NegativeBinomial(dispersion=0.7),
    likelihoods.Bernoulli(),
    likelihoods.Bernoulli("logit"),
]
SEVERAL: list[Any] = [likelihoods.Softmax(3), likelihoods.RobustMax(3)]
Y = torch.tensor([0.0, 1.0, 1.0, 0.0], dtype=torch.float64)


def normal(n: int = 4, tasks: int = 1) -> Any:
    rng = np.random.default_rng(0)
    root = torch.as_tensor(rng.standard_normal((n * tasks, n * tasks))) * 0.3
    covariance = root @ root.T + 0.1 * torch.eye(n * tasks)
    if tasks == 1:
        return gpytorch.distributions.MultivariateNormal(torch.as_tensor(rng.standard_normal(n)), covariance)
    mean = torch.as_tensor(rng.standard_normal((n, tasks)))
    return gpytorch.distributions.MultitaskMultivariateNormal(mean, covariance)


@pytest.mark.parametrize("own", ONE + SEVERAL, ids=repr)
def test_expectations_and_conditionals_are_ours(own: Any) -> None:
    likelihood, q = NodeLikelihood(own), normal(tasks=own.n_latents)
    mean, variance = (part.reshape(4, -1).mT for part in (q.mean, q.variance))
    found = likelihood.expected_log_prob(Y, q)
    np.testing.assert_allclose(found.detach(), own.expected_log_prob(Y, mean, variance).detach(), rtol=1e-12)
    # A conditional distribution, f given with leading samples.
    f = q.mean + torch.zeros(5, *q.mean.shape)
    ours = own.log_prob(Y, f.unsqueeze(-2) if own.n_latents == 1 else f.mT)
    np.testing.assert_allclose(likelihood(f).log_prob(Y).detach(), ours.detach(), rtol=1e-9)


@pytest.mark.parametrize("own", ONE + SEVERAL, ids=repr)
def test_predictive_densities(own: Any) -> None:
    """Log marginals by ten thousand samples, where they are not exact."""
    likelihood, q = NodeLikelihood(own), normal(tasks=own.n_latents)
    f = torch.as_tensor(np.random.default_rng(1).standard_normal((40_000, *q.mean.shape))) * q.variance.sqrt() + q.mean
    dense = own.log_prob(Y, f.unsqueeze(-2) if own.n_latents == 1 else f.mT).logsumexp(dim=0) - np.log(40_000)
    torch.manual_seed(0)
    with gpytorch.settings.num_likelihood_samples(10_000), torch.random.fork_rng():
        found = likelihood.log_marginal(Y, q)
    np.testing.assert_allclose(found.detach(), dense.detach(), atol=0.05)
    assert likelihood(q).sample().shape[-1] == 4


class Model(gpytorch.models.ApproximateGP):  # type: ignore[misc]
    def __init__(self, graph: gm.Graph, n_latents: int) -> None:
        kernel = NodeKernel(graph, gm.Matern(lengthscale=2.0, fixed=("nu", "lengthscale", "variance")))
        q = gpytorch.variational.NaturalVariationalDistribution(
            graph.n_nodes, batch_shape=torch.Size([n_latents]), mean_init_std=0.0
        )
        strategy = EigenvectorStrategy(self, kernel, q)
        super().__init__(
            gpytorch.variational.IndependentMultitaskVariationalStrategy(strategy, num_tasks=n_latents, task_dim=-1)
        )
        self.mean_module, self.covar_module = gpytorch.means.ZeroMean(), kernel
        self.double()

    def forward(self, x: torch.Tensor) -> gpytorch.distributions.MultivariateNormal:
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


@pytest.mark.parametrize("own", SEVERAL, ids=repr)
def test_classes_in_a_gpytorch_training_loop(own: Any) -> None:
    """GPyTorch's ELBO, its natural gradients and its multitask strategy end where our own fit ends."""
    graph = gm.make_roads(40, seed=1)
    field = graph.spectrum().basis[:, 1]
    x, y = torch.arange(0, graph.n_nodes, 2)[:, None], torch.as_tensor(np.digitize(field, [-0.1, 0.1])[::2]).double()
    model, likelihood = Model(graph, 3), NodeLikelihood(own)
    objective = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=len(y))
    optimizer = gpytorch.optim.NGD(model.variational_parameters(), num_data=len(y), lr=0.5)
    for _ in range(60):
        optimizer.zero_grad()
        loss = -objective(model.train()(x), y)
        loss.backward()
        optimizer.step()
    kernel = gm.Matern(lengthscale=2.0, fixed=("nu", "lengthscale", "variance"))
    fit = fit_stochastic(graph, kernel, own, x[:, 0].numpy(), y.numpy(), form="eigenvectors")
    assert -loss.item() * len(y) == pytest.approx(fit.elbo, abs=1e-4)
    with torch.no_grad():
        found = likelihood(model.eval()(x)).probs
    moments = (torch.as_tensor(part) for part in fit.latent_marginals(x[:, 0].numpy()))
    np.testing.assert_allclose(found, own.probabilities(*moments).mT, atol=1e-3)


def test_parameters_are_learned() -> None:
    likelihood = NodeLikelihood(likelihoods.StudentT(fixed=("df",)))
    assert [name for name, p in likelihood.named_parameters() if p.requires_grad] == ["likelihood.raw_scale"]
    likelihood.expected_log_prob(Y, normal()).sum().backward()
    assert likelihood.likelihood.raw_scale.grad is not None


def test_wrong_number_of_processes() -> None:
    with pytest.raises(LikelihoodError, match="must describe 3 latent processes"):
        NodeLikelihood(likelihoods.Softmax(3)).expected_log_prob(Y, normal())
    with pytest.raises(LikelihoodError, match="must describe 1 latent process,"):
        NodeLikelihood(likelihoods.Poisson()).expected_log_prob(Y, normal(tasks=3))
