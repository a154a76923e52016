"""Bayesian optimisation over nodes with BoTorch."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import botorch
import gpytorch
import numpy as np
import pytest
import torch
from botorch.acquisition import LogExpectedImprovement, UpperConfidenceBound, qLogExpectedImprovement
from scipy.stats import norm, wilcoxon

import graphmatern as gm
from graphmatern.errors import InputError
from graphmatern.interop import (
    NodeKernel,
    maximize_over_nodes,
    node_model,
    pathwise_samples,
    suggest_nodes,
)
from reference import dense_kernel, matern_psi

GRAPH = gm.make_roads(120, seed=2)
N = GRAPH.n_nodes
RNG = np.random.default_rng(0)
FIELD = gm.Matern(nu=1.5, lengthscale=4.0, variance=3.0).on(GRAPH).sample(1, random_state=3)[0].numpy() + 10.0
SEEN = RNG.permutation(N)[:20]


def fitted(**options: Any) -> Any:
    return node_model(GRAPH, GRAPH.nodes[SEEN], FIELD[SEEN], **options)


def dense_posterior(model: Any) -> tuple[Any, Any]:
    """Mean and covariance at all nodes, in the unit of the observations, from dense formulas."""
    kernel = model.covar_module
    numbers = [getattr(kernel, name).item() for name in ("nu", "lengthscale", "variance")]
    prior = dense_kernel(GRAPH, matern_psi(*numbers[:2]), variance=numbers[2])
    centre, scale = FIELD[SEEN].mean(), FIELD[SEEN].std(ddof=1)
    y, offset = (FIELD[SEEN] - centre) / scale, model.mean_module.constant.item()
    noise = model.likelihood.noise.detach().expand(len(SEEN)).numpy()
    k = prior[np.ix_(SEEN, SEEN)] + np.diag(noise)
    mean = offset + prior[:, SEEN] @ np.linalg.solve(k, y - offset)
    covariance = prior - prior[:, SEEN] @ np.linalg.solve(k, prior[SEEN])
    return centre + scale * mean, scale**2 * covariance


def test_model_predicts_like_the_dense_reference() -> None:
    model = fitted()
    mean, covariance = dense_posterior(model)
    posterior = model.posterior(torch.arange(N).double()[:, None])
    np.testing.assert_allclose(posterior.mean[:, 0].detach(), mean, atol=1e-8)
    np.testing.assert_allclose(posterior.variance[:, 0].detach(), np.diag(covariance), atol=1e-8)
    before = fitted(fit=False).covar_module
    assert model.covar_module.lengthscale.item() != before.lengthscale.item()
    assert before.lengthscale.item() == pytest.approx(5.0)


def test_known_noise_and_kernels_are_kept() -> None:
    kernel = gm.Matern(nu=2.5, lengthscale=2.0, fixed=("nu", "lengthscale", "variance"))
    model = fitted(kernel=kernel, noise=0.3)
    np.testing.assert_allclose(model.likelihood.noise.detach(), 0.3 / FIELD[SEEN].var(ddof=1), rtol=1e-6)
    assert model.covar_module.lengthscale.item() == pytest.approx(2.0)


def test_expected_improvement_is_the_formula() -> None:
    model = fitted()
    mean, covariance = dense_posterior(model)
    deviation = np.sqrt(np.diag(covariance).clip(1e-14))
    z = (mean - FIELD[SEEN].max()) / deviation
    improvement = deviation * (z * norm.cdf(z) + norm.pdf(z))
    improvement[SEEN] = -np.inf
    assert list(suggest_nodes(model)) == [GRAPH.nodes[improvement.argmax()]]
    some = np.setdiff1d(np.arange(30, 60), SEEN)
    among = GRAPH.nodes[some]
    assert list(suggest_nodes(model, among=among)) == [GRAPH.nodes[some[improvement[some].argmax()]]]


def test_pathwise_samples_have_the_posterior_moments() -> None:
    model = fitted()
    mean, covariance = dense_posterior(model)
    draws = pathwise_samples(model, 20_000, random_state=0).numpy()
    error = np.sqrt(np.diag(covariance).max() / 20_000)
    np.testing.assert_allclose(draws.mean(axis=0), mean, atol=5 * error)
    np.testing.assert_allclose(np.cov(draws.T), covariance, atol=0.05 * np.diag(covariance).max())
    np.testing.assert_array_equal(pathwise_samples(model, 2, 5), pathwise_samples(model, 2, 5))


def test_thompson_chooses_the_best_of_each_draw() -> None:
    model = fitted()
    rng = np.random.default_rng(4)
    draws = pathwise_samples(model, 5, rng).numpy()
    draws[:, SEEN] = -np.inf
    chosen = GRAPH.locate(suggest_nodes(model, rule="thompson", n_nodes=5, random_state=np.random.default_rng(4)))
    assert chosen[0] == draws[0].argmax()
    assert len(set(chosen)) == 5
    assert not set(chosen) & set(SEEN)


def test_other_acquisition_functions_of_botorch() -> None:
    model, x = fitted(), torch.arange(4).double()[:, None, None]
    for acquisition in (LogExpectedImprovement(model, best_f=1.0), UpperConfidenceBound(model, beta=2.0)):
        assert acquisition(x).shape == (4,)
    sampler = botorch.sampling.SobolQMCNormalSampler(torch.Size([16]), seed=0)
    pairs = torch.tensor([[[1.0], [7.0]], [[3.0], [9.0]]]).double()
    assert qLogExpectedImprovement(model, best_f=1.0, sampler=sampler)(pairs).shape == (2,)
    fantasy = model.condition_on_observations(torch.tensor([[5.0]]).double(), torch.tensor([[11.0]]).double())
    assert (
        fantasy.posterior(torch.tensor([[5.0]]).double()).variance.item()
        < model.posterior(torch.tensor([[5.0]]).double()).variance.item()
    )


def search_length(rule: str, graph: gm.Graph, field: Any, seed: int, limit: int = 40) -> int:
    """Evaluations until a node of the top 3 % was found."""
    values = dict(zip(graph.nodes, field, strict=True))
    table = maximize_over_nodes(
        graph,
        values.__getitem__,
        n_evaluations=limit,
        n_start=5,
        rule=rule,  # type: ignore[arg-type]
        refit_every=10,
        target=np.quantile(field, 0.97),
        random_state=seed,
    )
    good = np.flatnonzero(table["value"] >= np.quantile(field, 0.97))
    return int(good[0]) + 1 if len(good) else limit + 1


def test_both_rules_beat_random_search() -> None:
    """A small version of the evidence: 8 fields, one-sided Wilcoxon signed-rank tests against random search."""
    counts: dict[str, list[int]] = {"expected_improvement": [], "thompson": [], "random": []}
    for seed in range(8):
        field = gm.Matern(nu=1.5, lengthscale=5.0).on(GRAPH).sample(1, random_state=seed)[0].numpy()
        order = np.random.default_rng(100 + seed).permutation(N)
        counts["random"].append(int(np.flatnonzero(field[order] >= np.quantile(field, 0.97))[0]) + 1)
        for rule in ("expected_improvement", "thompson"):
            counts[rule].append(search_length(rule, GRAPH, field, seed))
    for rule in ("expected_improvement", "thompson"):
        assert np.mean(counts[rule]) < np.mean(counts["random"])
        assert wilcoxon(counts[rule], counts["random"], alternative="less").pvalue < 0.1


def test_evaluations_are_distinct_and_reproducible() -> None:
    values = dict(zip(GRAPH.nodes, FIELD, strict=True))
    options: dict[str, Any] = {"n_evaluations": 14, "n_start": 6, "rule": "thompson", "n_eigenpairs": 30}
    tables = [maximize_over_nodes(GRAPH, values.__getitem__, random_state=1, **options) for _ in range(2)]
    assert tables[0].equals(tables[1])
    assert tables[0]["node"].is_unique
    assert list(tables[0].columns) == ["node", "value"]
    assert len(tables[0]) == 14


def test_wrong_arguments() -> None:
    with pytest.raises(InputError, match="at least two different values"):
        node_model(GRAPH, GRAPH.nodes[:3], [1.0, 1.0, 1.0])
    with pytest.raises(InputError, match="one value per node"):
        node_model(GRAPH, GRAPH.nodes[:3], [1.0, 2.0])
    model = fitted(fit=False)
    with pytest.raises(InputError, match="must be 1 for expected improvement"):
        suggest_nodes(model, n_nodes=2)
    with pytest.raises(InputError, match="'expected_improvement' or 'thompson'"):
        suggest_nodes(model, rule="best")  # type: ignore[arg-type]
    other = botorch.models.SingleTaskGP(torch.rand(4, 1).double(), torch.rand(4, 1).double())
    with pytest.raises(InputError, match="must have a NodeKernel"):
        suggest_nodes(other)
    with pytest.raises(InputError, match="2 faults"):
        maximize_over_nodes(GRAPH, float, n_start=1, n_evaluations=N + 1)


def test_without_botorch() -> None:
    code = (
        "import sys; sys.modules['botorch'] = None; import graphmatern as gm; "
        "gm.interop.node_model(gm.make_roads(20, seed=0), [0, 1], [0.0, 1.0])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.stderr.strip().endswith("pip install 'graphmatern[botorch]'")


def test_kernel_priors_are_gpytorchs() -> None:
    model = fitted(fit=False)
    names = {name for name, *_ in model.named_priors()}
    assert {"covar_module.lengthscale_prior", "covar_module.variance_prior"} <= names
    assert "covar_module.nu_prior" not in names
    assert isinstance(model.covar_module, NodeKernel)
    assert isinstance(model, gpytorch.models.ExactGP)
