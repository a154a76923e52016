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
from graphmatern.inference import Observations, Problem, learn
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
    observations = Observations(x[:, 0].numpy(), y.numpy()[:, None], node_design=np.zeros((graph.n_nodes, 0)))
    fit = learn(Problem(graph, kernel, own, observations), "spectral")
    assert -loss.item() * len(y) == pytest.approx(fit.log_evidence, abs=1e-4)
    with torch.no_grad():
        found = likelihood(model.eval()(x)).probs
    nodes = x[:, 0].numpy()
    moments = (
        torch.as_tensor(part) for part in (fit.posterior.latent_mean(nodes), fit.posterior.latent_variance(nodes))
    )
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


# ---------------------------------------------------------------------- exposures
COUNTS: list[Any] = [likelihoods.Poisson(), likelihoods.NegativeBinomial(dispersion=0.7)]
HOURS = torch.tensor([0.5, 1.0, 3.0, 24.0], dtype=torch.float64)


@pytest.mark.parametrize("own", COUNTS, ids=repr)
def test_exposures_raise_the_latent_mean(own: Any) -> None:
    """Whatever a count's exposure enters, it enters as an offset log(exposure)."""
    likelihood, q = NodeLikelihood(own), normal()
    y = torch.tensor([0.0, 1.0, 4.0, 20.0], dtype=torch.float64)
    moved = gpytorch.distributions.MultivariateNormal(q.mean + HOURS.log(), q.covariance_matrix)
    found = likelihood.expected_log_prob(y, q, exposure=HOURS).detach()
    np.testing.assert_allclose(found, likelihood.expected_log_prob(y, moved).detach(), rtol=1e-12)
    np.testing.assert_allclose(found, own.expected_log_prob(y, moved.mean[None], q.variance[None]).detach(), rtol=1e-12)
    f = q.mean + torch.zeros(3, 4)
    np.testing.assert_allclose(likelihood(f, exposure=HOURS).mean.detach(), (HOURS * f.exp()).detach(), rtol=1e-10)
    densities, means = [], []
    for dist, options in ((q, {"exposure": HOURS}), (moved, {})):
        with torch.random.fork_rng():
            torch.manual_seed(0)
            densities.append(likelihood.log_marginal(y, dist, **options).detach())
            torch.manual_seed(0)
            means.append(likelihood(dist, **options).mean.detach())
    np.testing.assert_allclose(densities[0], densities[1], rtol=1e-8)
    np.testing.assert_allclose(means[0], means[1], rtol=1e-8)


def test_exposures_in_gpytorchs_objectives() -> None:
    """The ELBO with exposures is that of our own engine with offsets."""
    graph = gm.make_roads(40, seed=1)
    nodes = np.arange(0, graph.n_nodes, 2)
    rng = np.random.default_rng(0)
    exposure = rng.uniform(0.5, 20.0, len(nodes))
    y = rng.poisson(exposure * np.exp(3.0 * graph.spectrum().basis[nodes, 1])).astype(float)
    kernel = NodeKernel(graph, gm.Matern(lengthscale=2.0))
    q = gpytorch.variational.NaturalVariationalDistribution(graph.n_nodes, mean_init_std=0.0)

    class Rates(gpytorch.models.ApproximateGP):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(EigenvectorStrategy(self, kernel, q))
            self.mean_module, self.covar_module = gpytorch.means.ZeroMean(), kernel
            self.double()

        def forward(self, x: torch.Tensor) -> gpytorch.distributions.MultivariateNormal:
            return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    model, likelihood = Rates(), NodeLikelihood(likelihoods.Poisson())
    x, targets, hours = torch.as_tensor(nodes)[:, None], torch.as_tensor(y), torch.as_tensor(exposure)
    objective = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=len(y))
    optimizer = gpytorch.optim.NGD(model.variational_parameters(), num_data=len(y), lr=0.5)
    for _ in range(60):
        optimizer.zero_grad()
        loss = -objective(model.train()(x), targets, exposure=hours)
        loss.backward()
        optimizer.step()
    observations = Observations(nodes, y[:, None], np.zeros((graph.n_nodes, 0)), offset=np.log(exposure))
    held = gm.Matern(lengthscale=2.0, fixed=("nu", "lengthscale", "variance"))
    fit = learn(Problem(graph, held, likelihoods.Poisson(), observations), "spectral")
    assert -loss.item() * len(y) == pytest.approx(fit.log_evidence, abs=1e-4)


@pytest.mark.parametrize("own", [one for one in ONE + SEVERAL if not isinstance(one, likelihoods.Counts)], ids=repr)
def test_exposures_are_refused_where_nothing_is_counted(own: Any) -> None:
    likelihood, q = NodeLikelihood(own), normal(tasks=own.n_latents)
    for method in (likelihood.expected_log_prob, likelihood.log_marginal):
        with pytest.raises(LikelihoodError, match="`exposure` must be left out except for counts"):
            method(Y, q, exposure=HOURS)
    for given in (q, q.mean):
        with pytest.raises(LikelihoodError, match="`exposure` must be left out except for counts"):
            likelihood(given, exposure=HOURS)


def test_bad_exposures_and_unknown_options() -> None:
    likelihood = NodeLikelihood(likelihoods.Poisson())
    with pytest.raises(LikelihoodError, match=r"must be positive; received 0\.0"):
        likelihood.expected_log_prob(Y, normal(), exposure=torch.zeros(4))
    with pytest.raises(LikelihoodError, match=r"shape \(4,\); received shape \(3,\)"):
        likelihood.expected_log_prob(Y, normal(), exposure=HOURS[:3])
    with pytest.raises(TypeError, match="noise"):
        likelihood.expected_log_prob(Y, normal(), noise=HOURS)  # type: ignore[call-arg]


# ---------------------------------------------------------------------- trials, and zeros of their own
def test_distributions_of_binomial_and_zero_inflated_counts() -> None:
    f = torch.tensor([-1.0, 0.2, 1.5], dtype=torch.float64)
    inflated = likelihoods.ZeroInflatedPoisson(0.3)
    y = torch.tensor([0.0, 2.0, 5.0], dtype=torch.float64)
    made: Any = NodeLikelihood(inflated)(f)
    np.testing.assert_allclose(made.log_prob(y).detach(), inflated.log_prob(y, f[None]).detach(), rtol=1e-12)
    np.testing.assert_allclose(made.mean.detach(), 0.7 * f.exp(), rtol=1e-12)
    binomial, trials = likelihoods.Binomial(), torch.tensor([3.0, 4.0, 9.0], dtype=torch.float64)
    made = NodeLikelihood(binomial)(f, trials=trials)
    joined = likelihoods.join_trials(y, trials)
    np.testing.assert_allclose(made.log_prob(y).detach(), binomial.log_prob(joined, f[None]), rtol=1e-10)
    np.testing.assert_allclose(NodeLikelihood(binomial)(f).mean, torch.sigmoid(f), rtol=1e-12)
    q = gpytorch.distributions.MultivariateNormal(f, 0.3 * torch.eye(3, dtype=torch.float64))
    likelihood = NodeLikelihood(binomial)
    found = likelihood.expected_log_prob(y, q, trials=trials)
    np.testing.assert_allclose(found, likelihood.expected_log_prob(joined, q), rtol=1e-12)
    direct = binomial.predictive_log_prob(joined, q.mean[None], q.variance[None])
    np.testing.assert_allclose(likelihood.log_marginal(y, q, trials=trials), direct, rtol=1e-12)
    assert likelihood(q, trials=trials).mean.shape[-1] == 3
    with pytest.raises(LikelihoodError, match="must be left out except for binomial"):
        NodeLikelihood(inflated).expected_log_prob(y, q, trials=trials)


def test_other_likelihoods_are_refused_at_once() -> None:
    other: Any = gpytorch.likelihoods.GaussianLikelihood()
    with pytest.raises(LikelihoodError, match=r"received a gpytorch GaussianLikelihood.*need no NodeLikelihood"):
        gm.interop.NodeLikelihood(other)
