"""Inducing nodes and eigenvectors: exact where they can be, equal to dense optimisers, unbiased in batches."""

from __future__ import annotations

from typing import Any

import gpytorch
import numpy as np
import pytest
import torch

import graphmatern as gm
from graphmatern import likelihoods
from graphmatern.errors import InputError, KernelError
from graphmatern.inference import fit_stochastic
from graphmatern.inference._stochastic import spread_out_nodes
from graphmatern.inference._stochastic_model import NodeGP, Trainer
from graphmatern.interop import EigenvectorStrategy, InducingNodeStrategy, NodeKernel
from reference import dense_kernel, matern_psi

GRAPH = gm.make_roads(55, seed=3)
N = GRAPH.n_nodes
KERNEL = gm.Matern(nu=1.5, lengthscale=2.0, variance=1.3)
RNG = np.random.default_rng(5)
NODES = RNG.permutation(N)[:25]
LATENT = GRAPH.spectrum().basis[:, 1:4].sum(axis=1) * N**0.5
PRIOR = dense_kernel(GRAPH, matern_psi(1.5, 2.0), variance=1.3)
FORMS: list[dict[str, Any]] = [{"form": "inducing"}, {"form": "eigenvectors"}]


@pytest.mark.parametrize("form", FORMS, ids=lambda form: str(form["form"]))
def test_gaussian_noise_gives_the_exact_posterior(form: dict[str, Any]) -> None:
    y = LATENT[NODES] + 0.3 * RNG.standard_normal(len(NODES))
    nodes, y = np.append(NODES, NODES[:3]), np.append(y, y[:3] + 0.2)  # some observed twice
    noise = 0.2
    fit = fit_stochastic(GRAPH, KERNEL, likelihoods.Gaussian(noise=noise), nodes, y, mean=0.4, optimizer=None, **form)
    k = PRIOR[np.ix_(nodes, nodes)] + noise * np.eye(len(nodes))
    residual = y - 0.4
    evidence = -0.5 * (residual @ np.linalg.solve(k, residual) + np.linalg.slogdet(2 * np.pi * k)[1])
    assert fit.elbo == pytest.approx(evidence, abs=1e-6)
    cross = PRIOR[:, nodes]
    posterior = PRIOR - cross @ np.linalg.solve(k, cross.T)
    mean, variance = fit.latent_marginals(np.arange(N))
    np.testing.assert_allclose(mean[0], 0.4 + cross @ np.linalg.solve(k, residual), atol=1e-6)
    np.testing.assert_allclose(variance[0], np.diag(posterior), atol=1e-6)
    np.testing.assert_allclose(fit.covariance(np.arange(N)), posterior, atol=1e-6)
    assert fit.converged
    draws = fit.sample(4000, np.arange(N), np.random.default_rng(0))[:, 0]
    np.testing.assert_allclose(draws.mean(axis=0), mean[0], atol=0.1)
    np.testing.assert_allclose(np.cov(draws.T), posterior, atol=0.1)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: str(form["form"]))
def test_parameters_reach_the_optimum_of_the_marginal_likelihood(form: dict[str, Any]) -> None:
    y = LATENT[NODES] + 0.3 * np.random.default_rng(1).standard_normal(len(NODES))
    start = gm.Matern(nu=1.5, lengthscale=2.0, variance=1.0, fixed=("nu",))
    fit = fit_stochastic(GRAPH, start, likelihoods.Gaussian(noise=0.1), NODES, y, **form)
    exact = gm.GraphGPRegressor(GRAPH, start, engine="spectral", noise=0.1, mean="zero", normalize_y=False)
    exact.fit(GRAPH.nodes[NODES], y)
    assert fit.elbo == pytest.approx(exact.log_marginal_likelihood_, abs=1e-5)
    assert isinstance(fit.kernel, gm.Matern)
    assert fit.kernel.fixed == ("nu",)
    assert isinstance(exact.kernel_, gm.Matern)
    assert fit.kernel.values()["lengthscale"] == pytest.approx(exact.kernel_.values()["lengthscale"], rel=1e-2)
    assert start.values()["variance"] == 1.0  # the caller's kernel is untouched


CASES: dict[str, tuple[Any, Any]] = {
    "bernoulli": (likelihoods.Bernoulli(), (LATENT[NODES] > 0).astype(float)),
    "softmax": (likelihoods.Softmax(3), np.digitize(LATENT[NODES], [-0.5, 0.5]).astype(float)),
    "poisson": (likelihoods.Poisson(), np.floor(np.exp(LATENT[NODES]) * 1.5)),
}


def dense_optimum(likelihood: Any, y: Any, root: Any, *, diagonal: bool) -> tuple[float, Any, Any]:
    """Maximise the ELBO over q(v), f = root v at the observations, with torch's L-BFGS and no structure at all."""
    phi, targets = torch.as_tensor(root), torch.as_tensor(y)
    count, latents = phi.shape[1], likelihood.n_latents
    m = torch.zeros(latents, count, dtype=torch.float64, requires_grad=True)
    raw = torch.eye(count, dtype=torch.float64).repeat(latents, 1, 1).requires_grad_()
    optimizer = torch.optim.LBFGS(
        [m, raw], max_iter=3000, tolerance_grad=1e-9, tolerance_change=1e-14, line_search_fn="strong_wolfe"
    )

    def factor() -> torch.Tensor:
        return torch.diag_embed(torch.diagonal(raw, dim1=-2, dim2=-1)) if diagonal else raw.tril()

    def negative_elbo() -> Any:
        s = factor()
        expected = likelihood.expected_log_prob(targets, m @ phi.T, ((phi @ s) ** 2).sum(dim=-1)).sum()
        log_det = 2 * torch.diagonal(s, dim1=-2, dim2=-1).abs().log().sum()
        return 0.5 * ((s**2).sum() + (m**2).sum() - m.numel() - log_det) - expected

    def closure() -> Any:
        optimizer.zero_grad()
        loss = negative_elbo()
        loss.backward()
        return loss

    optimizer.step(closure)  # type: ignore[no-untyped-call]
    s = factor().detach()
    return -negative_elbo().item(), (m.detach() @ phi.T).numpy(), ((phi @ s) ** 2).sum(dim=-1).numpy()


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("form", FORMS, ids=lambda form: str(form["form"]))
def test_equals_a_dense_optimiser(case: str, form: dict[str, Any]) -> None:
    likelihood, y = CASES[case]
    fit = fit_stochastic(GRAPH, KERNEL, likelihood, NODES, y, optimizer=None, **form)
    root = np.linalg.cholesky(PRIOR[np.ix_(NODES, NODES)])
    elbo, mean, variance = dense_optimum(likelihood, y, root, diagonal=False)
    assert fit.elbo == pytest.approx(elbo, abs=1e-5)
    found = fit.latent_marginals(NODES)
    np.testing.assert_allclose(found[0], mean, atol=1e-5)
    np.testing.assert_allclose(found[1], variance, atol=1e-5)


@pytest.mark.parametrize("case", ["bernoulli", "softmax"])
@pytest.mark.parametrize("form", FORMS, ids=lambda form: str(form["form"]))
def test_diagonal_covariance_equals_a_dense_optimiser(form: dict[str, Any], case: str) -> None:
    likelihood, y = CASES[case]
    fit = fit_stochastic(GRAPH, KERNEL, likelihood, NODES, y, optimizer=None, covariance="diagonal", **form)
    if form["form"] == "inducing":
        order = np.sort(NODES)  # whitening by a Cholesky factor depends on the order
        root = np.linalg.cholesky(PRIOR[np.ix_(order, order)])[np.searchsorted(order, NODES)]
    else:
        values, vectors = GRAPH.spectrum().eigenvalues, GRAPH.spectrum().basis
        weights = matern_psi(1.5, 2.0)(values)
        root = (vectors * np.sqrt(weights * 1.3 * N / weights.sum()))[NODES]
    elbo, mean, variance = dense_optimum(likelihood, y, root, diagonal=True)
    assert fit.elbo == pytest.approx(elbo, abs=1e-5)
    found = fit.latent_marginals(NODES)
    np.testing.assert_allclose(found[0], mean, atol=1e-4)
    np.testing.assert_allclose(found[1], variance, atol=1e-4)
    full = fit_stochastic(GRAPH, KERNEL, likelihood, NODES, y, optimizer=None, **form)
    assert fit.elbo < full.elbo


@pytest.mark.parametrize("case", ["bernoulli", "poisson", "softmax"])
def test_elbo_rises_with_every_eigenvector(case: str) -> None:
    likelihood, y = CASES[case]
    counts = [1, 2, 5, 10, 20, 35, N]
    elbos = [
        fit_stochastic(GRAPH, KERNEL, likelihood, NODES, y, form="eigenvectors", n_inducing=m, optimizer=None).elbo
        for m in counts
    ]
    assert (np.diff(elbos) > -1e-8).all()
    assert elbos[-1] - elbos[0] > 1.0


def test_forms_agree_on_a_larger_graph() -> None:
    graph = gm.make_roads(330, seed=0)
    rng = np.random.default_rng(2)
    nodes = rng.permutation(graph.n_nodes)[:60]
    y = (graph.spectrum().basis[nodes, 2] + 0.02 * rng.standard_normal(60) > 0).astype(float)
    kernel, likelihood = gm.Matern(nu=1.5, lengthscale=3.0, fixed=("nu",)), likelihoods.Bernoulli("logit")
    every = np.arange(graph.n_nodes)
    found = []
    for form in FORMS:
        fit = fit_stochastic(graph, kernel, likelihood, nodes, y, **form)
        moments = (torch.as_tensor(part) for part in fit.latent_marginals(every))
        found.append(likelihood.probabilities(*moments).numpy())
    np.testing.assert_allclose(found[0], found[1], atol=0.01)


# ---------------------------------------------------------------------- strategies inside GPyTorch
class Model(gpytorch.models.ApproximateGP):  # type: ignore[misc]
    def __init__(self, make_strategy: Any, kernel: Any) -> None:
        super().__init__(make_strategy(self))
        self.mean_module, self.covar_module = gpytorch.means.ZeroMean(), kernel
        self.double()

    def forward(self, x: torch.Tensor) -> gpytorch.distributions.MultivariateNormal:
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def node_kernel() -> Any:
    return NodeKernel(GRAPH, KERNEL).double()


def natural(count: int, **options: Any) -> Any:
    return gpytorch.variational.NaturalVariationalDistribution(count, mean_init_std=0.0, **options)


@pytest.mark.parametrize("full", [True, False])
def test_inducing_node_strategy_equals_gpytorchs(full: bool) -> None:
    z, kernel = torch.as_tensor(NODES[:10]).double()[:, None], node_kernel()
    variational = gpytorch.variational
    kind = variational.CholeskyVariationalDistribution if full else variational.MeanFieldVariationalDistribution
    theirs = Model(
        lambda self: variational.VariationalStrategy(
            self, z, kind(10), learn_inducing_locations=False, jitter_val=1e-10
        ),
        kernel,
    )
    ours = Model(lambda self: InducingNodeStrategy(self, kernel, z, kind(10), jitter_val=1e-10), kernel)
    torch.manual_seed(0)
    for model in (theirs, ours):
        model.variational_strategy.variational_params_initialized.fill_(1)
    for one, other in zip(
        theirs.variational_strategy._variational_distribution.parameters(),
        ours.variational_strategy._variational_distribution.parameters(),
        strict=True,
    ):
        one.data.copy_(torch.randn(one.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1)) * 0.3)
        one.data += 1.0
        other.data.copy_(one)
    x = torch.arange(N).double()[:, None]
    for mode in (True, False):
        one, other = (model.train(mode)(x) for model in (theirs, ours))
        np.testing.assert_allclose(other.mean.detach(), one.mean.detach(), atol=1e-8)
        np.testing.assert_allclose(other.variance.detach(), one.variance.detach(), atol=1e-8)
    np.testing.assert_allclose(other.covariance_matrix.detach(), one.covariance_matrix.detach(), atol=1e-8)
    kl = [model.variational_strategy.kl_divergence().item() for model in (theirs, ours)]
    assert kl[0] == pytest.approx(kl[1])


def test_natural_step_equals_gpytorchs_ngd() -> None:
    likelihood, y = CASES["bernoulli"]
    kernel = node_kernel()
    model = Model(lambda self: EigenvectorStrategy(self, kernel, natural(12)), kernel)
    optimizer = gpytorch.optim.NGD(model.variational_parameters(), num_data=len(y), lr=0.3)
    own = NodeGP(node_kernel(), 1, 12, diagonal=False, constant=0.0)
    x, targets = torch.as_tensor(NODES)[:, None], torch.as_tensor(y)
    trainer = Trainer(own, likelihood, x, targets, torch.zeros(len(y)).double(), diagonal=False)
    for _ in range(4):
        optimizer.zero_grad()
        q = model.train()(x)
        expected = likelihood.expected_log_prob(targets, q.mean[None], q.variance[None]).sum()
        (-(expected - model.variational_strategy.kl_divergence()) / len(y)).backward()
        optimizer.step()
        trainer.q = trainer.natural_step(0.3)
    model.variational_strategy._clear_cache()
    theirs = model.variational_strategy.variational_distribution
    np.testing.assert_allclose(trainer.q.mean[0], theirs.mean.detach(), atol=1e-9)
    np.testing.assert_allclose(
        (trainer.q.factor @ trainer.q.factor.mT)[0], theirs.covariance_matrix.detach(), atol=1e-9
    )


def test_eigenvector_strategy_in_a_sum_with_other_kernels() -> None:
    """With a Gaussian likelihood the best q over all eigenvectors and the rest of the prior stays a bound."""
    kernel = NodeKernel(GRAPH, KERNEL, active_dims=[0]).double()
    other = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel(active_dims=[1]))
    model = Model(lambda self: EigenvectorStrategy(self, kernel, natural(N)), kernel + other)
    x = torch.stack([torch.as_tensor(NODES).double(), torch.linspace(0, 1, len(NODES)).double()], dim=1)
    q = model.eval()(x)
    prior = model.forward(x)
    np.testing.assert_allclose(q.covariance_matrix.detach(), prior.covariance_matrix.detach(), atol=1e-9)
    assert model.train()(x).variance.shape == (len(NODES),)


def test_too_many_eigenvectors() -> None:
    kernel = NodeKernel(GRAPH, KERNEL, n_eigenpairs=5)
    with pytest.raises(KernelError, match=r"as the kernel has eigenpairs \(5\); received 6"):
        Model(lambda self: EigenvectorStrategy(self, kernel, natural(6)), kernel)


def test_fitted_model_is_a_gpytorch_model() -> None:
    likelihood, y = CASES["softmax"]
    for covariance in ("full", "diagonal"):
        fit = fit_stochastic(GRAPH, KERNEL, likelihood, NODES, y, optimizer=None, covariance=covariance)
        q = fit.model(torch.as_tensor(NODES)[:, None])
        expected = likelihood.expected_log_prob(torch.as_tensor(y), q.mean, q.variance).sum()
        elbo = expected - fit.model.variational_strategy.kl_divergence().sum()
        assert fit.elbo == pytest.approx(elbo.item(), abs=1e-6)


# ---------------------------------------------------------------------- batches and samples
def make_trainer(n_samples: int | None = None, seed: int = 0) -> Trainer:
    likelihood, y = CASES["poisson"]
    model = NodeGP(node_kernel(), 1, 12, diagonal=False, constant=0.0)
    generator = torch.Generator().manual_seed(seed)
    x, offset = torch.as_tensor(NODES)[:, None], torch.zeros(len(y)).double()
    return Trainer(
        model, likelihood, x, torch.as_tensor(y), offset, diagonal=False, n_samples=n_samples, generator=generator
    )


def gradients(trainer: Trainer, rows: torch.Tensor | None) -> tuple[Any, Any, Any]:
    """Gradient in the parameters, and where a full natural step would lead."""
    value = trainer.elbo(rows)
    hyper = torch.autograd.grad(value, list(trainer.parameters.values()))
    target = trainer.natural_step(1.0, rows)
    return (
        np.array([one.item() for one in hyper]),
        target.precision.numpy(),
        (target.precision @ target.mean[..., None]).numpy(),
    )


def after_a_step(trainer: Trainer) -> Trainer:
    trainer.q = trainer.natural_step(0.5)
    return trainer


def test_batches_are_unbiased() -> None:
    trainer = after_a_step(make_trainer())
    full = gradients(trainer, None)
    batches = torch.arange(len(NODES)).reshape(5, 5)
    parts = [gradients(trainer, rows) for rows in batches]
    for whole, pieces in zip(full, zip(*parts, strict=True), strict=True):
        np.testing.assert_allclose(np.mean(pieces, axis=0), whole, rtol=1e-10, atol=1e-10)


def test_sampled_expectations_are_unbiased() -> None:
    exact = after_a_step(make_trainer())
    sampled = make_trainer(n_samples=2)
    sampled.q = exact.q
    full = gradients(exact, None)[0]
    batches = torch.arange(len(NODES)).reshape(5, 5)
    draws = np.array([gradients(sampled, batches[i % 5])[0] for i in range(700)])
    error = draws.std(axis=0) / np.sqrt(len(draws))
    assert (np.abs(draws.mean(axis=0) - full) < 4.0 * error).all()
    assert (error < 0.2 * np.abs(full) + 0.1).all()


@pytest.mark.parametrize("options", [{"batch_size": 10}, {"batch_size": 10, "n_samples": 4}])
@pytest.mark.parametrize("covariance", ["full", "diagonal"])
def test_stochastic_steps_approach_the_optimum(options: dict[str, Any], covariance: Any) -> None:
    likelihood, y = CASES["bernoulli"]
    start = gm.Matern(nu=1.5, lengthscale=1.0, variance=0.5, fixed=("nu",))
    common: dict[str, Any] = {"form": "eigenvectors", "covariance": covariance}
    best = fit_stochastic(GRAPH, start, likelihood, NODES, y, **common)
    kept = fit_stochastic(GRAPH, start, likelihood, NODES, y, optimizer=None, **common)
    fit = fit_stochastic(GRAPH, start, likelihood, NODES, y, n_steps=400, **options, **common)
    assert len(fit.history) == 400
    assert kept.elbo < fit.elbo <= best.elbo + 1e-6
    assert best.elbo - fit.elbo < 0.15 * (best.elbo - kept.elbo)


def test_the_seed_decides() -> None:
    likelihood, y = CASES["bernoulli"]
    options: dict[str, Any] = {"n_steps": 20, "batch_size": 10, "n_samples": 2}
    elbos = [fit_stochastic(GRAPH, KERNEL, likelihood, NODES, y, random_state=s, **options).elbo for s in (1, 1, 2)]
    assert elbos[0] == elbos[1] != elbos[2]


@pytest.mark.parametrize("covariance", ["full", "diagonal"])
@pytest.mark.parametrize("form", FORMS, ids=lambda form: str(form["form"]))
def test_the_elbo_that_is_maximised_is_the_one_reported(form: dict[str, Any], covariance: Any) -> None:
    """With fewer features than observations, and classes: residual prior and shifted means must both count."""
    likelihood, y = CASES["softmax"]
    node = node_kernel()
    variables = 10 if form["form"] == "eigenvectors" else torch.as_tensor(NODES[:10]).double()[:, None]
    model = NodeGP(node, 3, variables, diagonal=covariance == "diagonal", constant=0.0)
    x, zeros = torch.as_tensor(NODES)[:, None], torch.zeros(len(y)).double()
    trainer = Trainer(model, likelihood, x, torch.as_tensor(y), zeros, diagonal=covariance == "diagonal")
    assert trainer.settle()
    best = trainer.elbo().item()
    assert best == pytest.approx(trainer.settled_elbo, abs=1e-8)
    for size in (0.05, 0.5, 1.0):  # a fixed point of the natural gradient
        trainer.q = trainer.natural_step(size)
        assert trainer.elbo().item() == pytest.approx(best, abs=1e-6)


def test_robust_max_and_negative_sites() -> None:
    labels = np.digitize(LATENT[NODES], [-0.5, 0.5]).astype(float)
    labels[:4] = (labels[:4] + 1) % 3  # contradictions
    for form in FORMS:
        fit = fit_stochastic(GRAPH, gm.Matern(lengthscale=3.0), likelihoods.RobustMax(3), NODES, labels, **form)
        assert np.isfinite(fit.elbo)
        mean, _ = fit.latent_marginals(NODES)
        assert (mean.argmax(axis=0) == labels).mean() > 0.7


def test_inducing_nodes_are_spread_out() -> None:
    chosen = spread_out_nodes(node_kernel(), np.arange(N), 12)
    assert len(chosen) == 12
    left = np.trace(PRIOR) - np.trace(PRIOR[:, chosen] @ np.linalg.solve(PRIOR[np.ix_(chosen, chosen)], PRIOR[chosen]))
    rng = np.random.default_rng(0)
    for _ in range(20):
        other = rng.permutation(N)[:12]
        rest = np.trace(PRIOR) - np.trace(PRIOR[:, other] @ np.linalg.solve(PRIOR[np.ix_(other, other)], PRIOR[other]))
        assert left < rest
    np.testing.assert_array_equal(spread_out_nodes(node_kernel(), np.array([4, 2, 2]), 12), [2, 4])
    poor = NodeKernel(GRAPH, KERNEL, n_eigenpairs=3).double()
    assert len(spread_out_nodes(poor, np.arange(N), 12)) == 3


def test_offsets_and_a_learned_mean() -> None:
    rng = np.random.default_rng(3)
    exposure = rng.uniform(0.5, 4.0, len(NODES))
    y = rng.poisson(np.exp(2.0 + 0.3 * LATENT[NODES]) * exposure).astype(float)
    kernel = gm.Matern(lengthscale=2.0, variance=0.1, fixed=("nu", "lengthscale", "variance"))
    fit = fit_stochastic(GRAPH, kernel, likelihoods.Poisson(), NODES, y, offset=np.log(exposure), learn_mean=True)
    assert fit.mean == pytest.approx(2.0, abs=0.25)
    mean, _ = fit.latent_marginals(NODES)
    assert np.corrcoef(mean[0], LATENT[NODES])[0, 1] > 0.8


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"form": "nodes"}, "'inducing' or 'eigenvectors'"),
        ({"covariance": "some"}, "'full' or 'diagonal'"),
        ({"optimizer": "sgd"}, "'lbfgs' or 'adam'"),
        ({"batch_size": 0}, "`batch_size` must be a whole number"),
        ({"n_samples": 3}, "left out for RobustMax"),
        ({"inducing": [N]}, "must hold positions of nodes"),
        ({"offset": [0.0]}, "one value per node"),
        ({"learning_rate": -1.0, "natural_rate": 0.0}, "2 faults"),
    ],
)
def test_wrong_options(options: dict[str, Any], message: str) -> None:
    likelihood = likelihoods.RobustMax(2)
    with pytest.raises(InputError, match=message):
        fit_stochastic(GRAPH, KERNEL, likelihood, NODES, np.zeros(len(NODES)), **options)


def test_wrong_observations() -> None:
    with pytest.raises(InputError, match="codes of classes"):
        fit_stochastic(GRAPH, KERNEL, likelihoods.Bernoulli(), NODES, np.full(len(NODES), 2.0))
    with pytest.raises(InputError, match="must hold finite numbers"):
        fit_stochastic(GRAPH, KERNEL, likelihoods.Gaussian(), NODES, np.full(len(NODES), np.nan))
    with pytest.raises(InputError, match="must hold positions of nodes"):
        fit_stochastic(GRAPH, KERNEL, likelihoods.Gaussian(), np.array([0.5]), [1.0])
