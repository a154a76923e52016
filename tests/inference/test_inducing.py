"""Inducing nodes and eigenvectors: exact where they can be, equal to dense optimisers, unbiased in batches."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import gpytorch
import numpy as np
import pytest
import torch

import graphmatern as gm
from dense_process import largest_elbo
from graphmatern.inference import ENGINES, Fit, Observations, Problem, Search, learn
from graphmatern.inference.inducing.features import spread_out_nodes
from graphmatern.inference.inducing.stochastic import Coefficients, Trainer
from graphmatern.interop import EigenvectorStrategy, NodeKernel
from graphmatern.likelihoods import Bernoulli, Gaussian, Likelihood, Poisson, RobustMax, Softmax
from reference import dense_kernel, dense_spectrum, matern_psi

if TYPE_CHECKING:
    from graphmatern.inference.inducing.engine import InducingEngine

GRAPH = gm.make_roads(55, seed=3)
N = GRAPH.n_nodes
KERNEL = gm.Matern(nu=1.5, lengthscale=2.0, variance=1.3)
NODES = np.random.default_rng(5).permutation(N)[:25]
LATENT = GRAPH.spectrum().basis[:, 1:4].sum(axis=1) * N**0.5
PRIOR = dense_kernel(GRAPH, matern_psi(1.5, 2.0), variance=1.3)
FORMS = ["inducing", "eigenvectors"]
CASES: dict[str, tuple[Likelihood, Any]] = {
    "bernoulli": (Bernoulli(), (LATENT[NODES] > 0).astype(float)),
    "softmax": (Softmax(3), np.digitize(LATENT[NODES], [-0.5, 0.5]).astype(float)),
    "poisson": (Poisson(), np.floor(np.exp(LATENT[NODES]) * 1.5)),
    "gaussian": (Gaussian(0.2), LATENT[NODES] + 0.3 * np.random.default_rng(1).standard_normal(25)),
}
KEPT = Search(optimizer=None)
forms = pytest.mark.parametrize("form", FORMS)


def problem_of(case: str, search: Search = KEPT, kernel: gm.Kernel = KERNEL, **settings: Any) -> Problem:
    likelihood, y = CASES[case]
    observations = Observations(NODES, y[:, None], np.zeros((N, 0)))
    return Problem(GRAPH, kernel, likelihood, observations, search=search, settings=settings)


def moments(fit: Fit, nodes: Any = NODES) -> tuple[Any, Any]:
    return fit.posterior.latent_mean(nodes), fit.posterior.latent_variance(nodes)


# ---------------------------------------------------------------------- optima
@forms
def test_parameters_reach_the_optimum_of_the_marginal_likelihood(form: str) -> None:
    """With as many inducing nodes as observations, or all eigenvectors, nothing is lost."""
    start = gm.Matern(nu=1.5, lengthscale=2.0, variance=1.0, fixed=("nu",))
    fits = [learn(problem_of("gaussian", Search(), start), engine) for engine in (form, "spectral")]
    assert fits[0].log_evidence == pytest.approx(fits[1].log_evidence, abs=1e-5)
    own, exact = (fit.kernel.values() for fit in fits)  # type: ignore[operator]
    assert own == pytest.approx(exact, rel=1e-2)
    assert start.values()["variance"] == 1.0  # the caller's kernel is untouched


@forms
@pytest.mark.parametrize("case", CASES)
def test_diagonal_covariance_equals_a_dense_optimiser(form: str, case: str) -> None:
    likelihood, y = CASES[case]
    fit = learn(problem_of(case, covariance="diagonal"), form)
    if form == "inducing":
        order = np.sort(NODES)  # whitening by a Cholesky factor depends on the order
        root = np.linalg.cholesky(PRIOR[np.ix_(order, order)])[np.searchsorted(order, NODES)]
    else:
        values, basis = dense_spectrum(GRAPH)
        weights = matern_psi(1.5, 2.0)(values)
        root = (basis * np.sqrt(weights * 1.3 * N / weights.sum()))[NODES]
    none = np.zeros(len(NODES))
    elbo, mean, variance = largest_elbo(root, none, none, y, likelihood, diagonal=True)
    assert fit.log_evidence == pytest.approx(elbo, abs=1e-5)
    np.testing.assert_allclose(moments(fit)[0], mean, atol=2e-3)  # where the ELBO is flat to 1e-6
    np.testing.assert_allclose(moments(fit)[1], variance, atol=2e-3)
    assert fit.log_evidence < learn(problem_of(case), form).log_evidence


@forms
@pytest.mark.parametrize("case", CASES)
def test_gradient_with_a_diagonal_covariance(form: str, case: str) -> None:
    fit = learn(problem_of(case, covariance="diagonal", n_inducing=10), form)
    theta = fit.optimum.position
    _, gradient = fit.objective(theta)
    for k, step in enumerate(1e-4 * np.eye(len(theta))):
        numeric = (fit.objective(theta + step)[0] - fit.objective(theta - step)[0]) / 2e-4
        assert gradient[k] == pytest.approx(numeric, rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("case", CASES)
def test_the_bound_rises_with_every_eigenvector(case: str) -> None:
    counts = [1, 2, 5, 10, 20, 35, N]
    bounds = [learn(problem_of(case, n_inducing=m), "eigenvectors").log_evidence for m in counts]
    assert (np.diff(bounds) > -1e-8).all()
    assert bounds[-1] - bounds[0] > 1.0
    assert bounds[-1] == pytest.approx(learn(problem_of(case), "spectral").log_evidence, abs=1e-7)


def test_forms_agree_on_a_larger_graph() -> None:
    graph = gm.make_roads(330, seed=0)
    rng = np.random.default_rng(2)
    nodes = rng.permutation(graph.n_nodes)[:60]
    labels = graph.spectrum().basis[nodes, 2] + 0.02 * rng.standard_normal(60) > 0
    kernel = gm.Matern(nu=1.5, lengthscale=3.0, fixed=("nu",))
    found = []
    for form in FORMS:
        model = gm.GraphGPClassifier(graph, kernel, likelihood=Bernoulli("logit"), inference=form)
        found.append(model.fit(graph.nodes[nodes], labels).predict_proba())
    np.testing.assert_allclose(found[0], found[1], atol=0.01)


def test_robust_max_and_negative_sites() -> None:
    labels = np.digitize(LATENT[NODES], [-0.5, 0.5])
    labels[:4] = (labels[:4] + 1) % 3  # contradictions
    for form in FORMS:
        model = gm.GraphGPClassifier(GRAPH, gm.Matern(lengthscale=3.0), inference=form, likelihood=RobustMax(3))
        model.fit(GRAPH.nodes[NODES], labels)
        assert np.isfinite(model.elbo_)
        assert model.score(GRAPH.nodes[NODES], labels) > 0.7


@forms
def test_counts_with_exposures_and_a_mean(form: Any) -> None:
    rng = np.random.default_rng(3)
    exposure = rng.uniform(0.5, 4.0, len(NODES))
    y = rng.poisson(np.exp(2.0 + 0.3 * LATENT[NODES]) * exposure)
    kernel = gm.Matern(lengthscale=2.0, variance=0.1, fixed=("nu", "lengthscale", "variance"))
    model = gm.GraphGPRegressor(GRAPH, kernel, engine=form, likelihood="poisson")
    model.fit(GRAPH.nodes[NODES], y, exposure=exposure)
    assert model.coefficients_.loc["(constant)", "mean"] == pytest.approx(2.0, abs=0.25)
    assert np.corrcoef(np.log(model.predict(GRAPH.nodes[NODES])), LATENT[NODES])[0, 1] > 0.8


def test_inducing_nodes_are_spread_out() -> None:
    def left(chosen: Any) -> float:
        explained = PRIOR[:, chosen] @ np.linalg.solve(PRIOR[np.ix_(chosen, chosen)], PRIOR[chosen])
        return float(np.trace(PRIOR - explained))

    every = np.arange(N)
    root: Any = np.linalg.cholesky(PRIOR)
    chosen = spread_out_nodes(root, every, 12)
    assert len(chosen) == 12
    rng = np.random.default_rng(0)
    assert left(chosen) < min(left(rng.permutation(N)[:12]) for _ in range(20))
    np.testing.assert_array_equal(spread_out_nodes(root[[2, 4]], np.array([2, 4]), 12), [2, 4])
    poor = KERNEL.on(GRAPH, n_eigenpairs=3)
    features = (poor.basis() * poor.weights().sqrt()).detach().numpy()
    assert len(spread_out_nodes(features, every, 12)) == 3  # all others follow from these


# ---------------------------------------------------------------------- batches and samples
def trainer_of(case: str, form: str = "eigenvectors", n_inducing: int = 12, **settings: Any) -> tuple[Trainer, Any]:
    problem = problem_of(case, replace(KEPT, seed=0), n_inducing=n_inducing, **settings)
    engine: Any = ENGINES[form].candidates(problem, problem.observations.replicates)[0]()
    return Trainer(problem, engine), engine


def gradients(trainer: Trainer, engine: InducingEngine, rows: torch.Tensor | None) -> tuple[Any, Any, Any]:
    """Gradient in the parameters, and where a full natural step would lead."""
    hyper = torch.autograd.grad(trainer.elbo(rows), engine.raw)
    target = trainer.natural_step(1.0, rows)
    weighted = target.precision @ target.mean[..., None]
    return np.array([one.item() for one in hyper]), target.precision.numpy(), weighted.numpy()


BATCHES = torch.arange(len(NODES)).reshape(5, 5)


@forms
@pytest.mark.parametrize("case", ["poisson", "softmax"])
def test_batches_are_unbiased(form: str, case: str) -> None:
    trainer, engine = trainer_of(case, form)
    trainer.q = trainer.natural_step(0.5)
    full = gradients(trainer, engine, None)
    parts = [gradients(trainer, engine, rows) for rows in BATCHES]
    digits = 1e-10 if case == "poisson" else 1e-7  # softmax: the quadrature's range is that of the batch
    for whole, pieces in zip(full, zip(*parts, strict=True), strict=True):
        np.testing.assert_allclose(np.mean(pieces, axis=0), whole, rtol=digits, atol=digits)
    bounds = [trainer.elbo(rows).item() for rows in BATCHES]
    assert np.mean(bounds) == pytest.approx(trainer.elbo().item(), rel=digits)


def test_sampled_expectations_are_unbiased() -> None:
    exact, engine = trainer_of("poisson")
    exact.q = exact.natural_step(0.5)
    sampled, its_engine = trainer_of("poisson", n_samples=2)
    sampled.q = exact.q
    full = gradients(exact, engine, None)[0]
    draws = np.array([gradients(sampled, its_engine, BATCHES[i % 5])[0] for i in range(700)])
    error = draws.std(axis=0) / np.sqrt(len(draws))
    assert (np.abs(draws.mean(axis=0) - full) < 4.0 * error).all()  # three z-scores; the seed is fixed
    assert (error < 0.2 * np.abs(full) + 0.1).all()


@forms
@pytest.mark.parametrize("covariance", ["full", "diagonal"])
@pytest.mark.parametrize("case", ["softmax", "poisson"])
def test_the_converged_sites_are_a_fixed_point_of_natural_steps(form: str, covariance: str, case: str) -> None:
    """One ELBO, one optimum: with fewer features than observations the residual prior must count in both."""
    problem = problem_of(case, n_inducing=10, covariance=covariance)
    engine: Any = ENGINES[form].candidates(problem, problem.observations.replicates)[0]()
    fit = learn(problem, form)
    trainer = Trainer(problem, engine)
    features = engine.features_now().explained(NODES)[0].detach()
    assert fit.sites is not None
    first, second = (torch.from_numpy(one) for one in fit.sites)
    precision = torch.eye(10, dtype=torch.float64) + (features.T * second[:, None]) @ features
    root = torch.linalg.cholesky(precision)
    mean = torch.cholesky_solve((first @ features)[..., None], root)[..., 0]
    trainer.q = Coefficients(mean, precision, root, diagonal=covariance == "diagonal")
    assert trainer.elbo().item() == pytest.approx(fit.log_evidence, abs=1e-8)
    for size in (0.05, 0.5, 1.0):
        trainer.q = trainer.natural_step(size)
        assert trainer.elbo().item() == pytest.approx(fit.log_evidence, abs=1e-6)


def test_natural_steps_equal_gpytorchs() -> None:
    """On the same eigenvectors, by GPyTorch's own optimiser."""
    likelihood, y = CASES["bernoulli"]
    kernel = NodeKernel(GRAPH, KERNEL).double()
    q = gpytorch.variational.NaturalVariationalDistribution(12, mean_init_std=0.0)

    class Model(gpytorch.models.ApproximateGP):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(EigenvectorStrategy(self, kernel, q))
            self.mean_module, self.covar_module = gpytorch.means.ZeroMean(), kernel
            self.double()

        def forward(self, x: torch.Tensor) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    model = Model()
    optimizer = gpytorch.optim.NGD(model.variational_parameters(), num_data=len(y), lr=0.3)
    trainer, engine = trainer_of("bernoulli")
    x, targets = torch.as_tensor(NODES)[:, None], torch.as_tensor(y)
    for _ in range(4):
        optimizer.zero_grad()
        at = model.train()(x)
        expected = likelihood.expected_log_prob(targets, at.mean[None], at.variance[None]).sum()
        (-(expected - model.variational_strategy.kl_divergence()) / len(y)).backward()
        optimizer.step()
        trainer.q = trainer.natural_step(0.3)
    at = model.train()(x)
    features, residual = engine.features_now().explained(NODES)
    mean, variance = trainer.q.moments(features)
    np.testing.assert_allclose(mean[0].detach(), at.mean.detach(), atol=1e-7)
    np.testing.assert_allclose((residual + variance[0]).detach(), at.variance.detach(), atol=1e-7)


@forms
@pytest.mark.parametrize("covariance", ["full", "diagonal"])
@pytest.mark.parametrize("settings", [{"batch_size": 10}, {"batch_size": 10, "n_samples": 4}, {"steps": True}], ids=str)
def test_steps_approach_the_optimum(form: str, covariance: str, settings: dict[str, Any]) -> None:
    start = gm.Matern(nu=1.5, lengthscale=1.0, variance=0.5, fixed=("nu",))
    best = learn(problem_of("bernoulli", Search(), start, covariance=covariance), form)
    kept = learn(problem_of("bernoulli", KEPT, start, covariance=covariance), form)
    search = Search("adam", learning_rate=0.05, seed=0)
    fit = learn(problem_of("bernoulli", search, start, covariance=covariance, n_steps=400, **settings), form)
    assert len(fit.report["history"]) == 400
    assert kept.log_evidence < fit.log_evidence <= best.log_evidence + 1e-6
    assert best.log_evidence - fit.log_evidence < 0.15 * (best.log_evidence - kept.log_evidence)


@forms
@pytest.mark.parametrize("options", [{"batch_size": 10}, {"optimizer": "adam"}], ids=str)
def test_classifiers_learn_from_batches(form: Any, options: dict[str, Any]) -> None:
    labels = np.digitize(LATENT, [-0.5, 0.5])
    kernel = gm.Matern(nu=1.5, lengthscale=2.0, fixed=("nu",))
    common: dict[str, Any] = {"inference": form, "likelihood": "softmax", "integrate": False}
    exact = gm.GraphGPClassifier(GRAPH, kernel, **common).fit(GRAPH.nodes[NODES], labels[NODES])
    fits = [
        gm.GraphGPClassifier(GRAPH, kernel, n_steps=150, random_state=seed, **common, **options).fit(
            GRAPH.nodes[NODES], labels[NODES]
        )
        for seed in (1, 1, 2)
    ]
    assert fits[0].elbo_ == fits[1].elbo_  # the seed decides, and nothing but the batches depends on it
    assert (abs(fits[0].elbo_ - fits[2].elbo_) > 1e-6) == ("batch_size" in options)
    for model in fits:
        assert model.elbo_ <= exact.elbo_ + 1e-6
        assert model.elbo_ == pytest.approx(exact.elbo_, abs=1.0)
        np.testing.assert_allclose(model.predict_proba(), exact.predict_proba(), atol=0.1)
        assert model.inference_ == form
