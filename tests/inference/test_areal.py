"""Kernels of areas: scaling, islands and sums to zero against dense matrices with the constraint written out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit

import graphmatern as gm
from dense_process import exact, largest_elbo
from graphmatern.errors import KernelError
from graphmatern.graph import IntrinsicFactor, intrinsic_structure
from graphmatern.inference import mixing_prior
from graphmatern.likelihoods import NegativeBinomial, Poisson
from reference import areal_kernel, dense_laplacian
from strategies import graphs


def islands() -> gm.Graph:
    """A mainland, a chain of three, and a single area, with names."""
    edges = [(i, j) for i in range(9) for j in (i + 1, i + 3) if j < 9] + [(9, 10), (10, 11)]
    return gm.Graph.from_edges(edges, nodes=range(13))


@pytest.mark.parametrize("name", ["ICAR", "BYM2", "Leroux"])
@settings(max_examples=25)
@given(graph=graphs(), variance=st.floats(0.1, 5.0), mixing=st.floats(0.01, 0.99))
def test_matrices(name: str, graph: gm.Graph, variance: float, mixing: float) -> None:
    kernel = gm.ICAR(variance) if name == "ICAR" else getattr(gm, name)(variance, mixing)
    expected = areal_kernel(graph, name, variance, 1.0 if name == "ICAR" else mixing)
    found = kernel.on(graph).matrix().detach().numpy()
    np.testing.assert_allclose(found, expected, atol=1e-8 * np.abs(expected).max())


@settings(max_examples=25)
@given(graph=graphs(), seed=st.integers(0, 100))
def test_functions_that_sum_to_zero(graph: gm.Graph, seed: int) -> None:
    """Whatever is added to the precision, even nothing in a whole component."""
    rng = np.random.default_rng(seed)
    structure = intrinsic_structure(graph)
    added = rng.uniform(0.0, 2.0, graph.n_nodes) * (rng.random(graph.n_nodes) < 0.5)
    factor = IntrinsicFactor(structure, added[structure.analysis.permutation])
    precision = dense_laplacian(graph, normalized=False) + np.diag(added + structure.isolated)
    bases, log_determinant = [], 0.0
    for number in range(graph.n_components):
        own = np.flatnonzero(graph.components == number)
        start = np.eye(len(own)) if len(own) == 1 else np.linalg.svd(np.ones((1, len(own))))[2][1:].T
        basis = np.zeros((graph.n_nodes, start.shape[1]))
        basis[own] = start
        bases.append(basis)
        log_determinant += np.linalg.slogdet(basis.T @ precision @ basis)[1]
    basis = np.hstack(bases)
    covariance = basis @ np.linalg.solve(basis.T @ precision @ basis, basis.T)
    scale = max(1.0, np.abs(covariance).max())
    assert factor.log_determinant == pytest.approx(log_determinant, abs=1e-8)
    np.testing.assert_allclose(factor.solve(np.eye(graph.n_nodes)), covariance, atol=1e-8 * scale)
    np.testing.assert_allclose(factor.diagonal(), np.diag(covariance), atol=1e-8 * scale)


@pytest.mark.parametrize("engine", ["markov", "spectral"])
@pytest.mark.parametrize("likelihood", [Poisson(), NegativeBinomial(0.4)], ids=["poisson", "negative_binomial"])
def test_islands_against_the_best_gaussian(engine: Any, likelihood: Any) -> None:
    """Counts on islands, one of them without data, with a covariate and exposures."""
    graph, rng = islands(), np.random.default_rng(0)
    x = rng.standard_normal(13)
    observed = np.array([0, 1, 2, 4, 5, 6, 8, 12, 12])
    y, exposure = rng.poisson(3.0, len(observed)).astype(float), rng.uniform(0.5, 2.0, len(observed))
    kernel = gm.BYM2(0.8, 0.7)
    model = gm.GraphGPRegressor(
        graph, kernel, likelihood=likelihood, engine=engine, optimizer=None, covariates=x,
        priors={"(constant)": gm.Normal(2.0), "x0": gm.Normal(0.5)},
    ).fit(observed, y, exposure=exposure)  # fmt: skip
    design = np.column_stack([np.ones(13), x])
    prior = exact(graph, kernel, False).seen
    both = prior + design @ np.diag([4.0, 0.25]) @ design.T
    root = np.linalg.cholesky(both + 1e-13 * np.eye(13))
    elbo, mean, variance = largest_elbo(root[observed], np.zeros(len(observed)), np.log(exposure), y, likelihood)
    assert model.log_marginal_likelihood_ == pytest.approx(elbo, abs=1e-6)
    every = model.posterior_
    np.testing.assert_allclose(every.latent_mean(observed)[0], mean[0], atol=1e-5)
    np.testing.assert_allclose(every.latent_variance(observed)[0], variance[0], atol=1e-5)
    # An island without data has the prior around the mean of the others, and its areas sum to zero but for their own.
    far = np.array([9, 10, 11])
    assert np.ptp(every.latent_mean(far)[0] - model.coefficients_.loc["x0", "mean"] * x[far]) < 1e-8


def test_parts_cannot_be_joined_with_other_kernels_and_laplacians_are_plain() -> None:
    with pytest.raises(KernelError, match="scaled component by component"):
        gm.BYM2() + gm.Matern()
    both = gm.ICAR(2.0) + 0.5 * gm.BYM2()
    assert both.on(islands()).matrix().shape == (13, 13)
    with pytest.raises(KernelError, match="must be False for BYM2"):
        gm.BYM2().on(islands(), normalized=True)
    heavy = gm.Graph.from_edges([("a", "b")], masses=[1.0, 2.0])
    with pytest.raises(KernelError, match="no node masses"):
        gm.Leroux().on(heavy)
    with pytest.raises(KernelError, match="engine='moments'"):
        gm.GraphGPRegressor(islands(), gm.BYM2(), engine="moments", optimizer=None).fit([0, 1], [1.0, 2.0])


def test_scaling_factors() -> None:
    graph = islands()
    found = gm.BYM2.scaling_factors(graph)
    chain = np.diag(np.linalg.pinv(np.array([[1.0, -1.0, 0.0], [-1.0, 2.0, -1.0], [0.0, -1.0, 1.0]])))
    assert found[9] == found[11] == pytest.approx(np.exp(np.log(chain).mean()), rel=1e-12)
    assert found[12] == 1.0


def test_learned_alike_by_both_engines_and_kept_in_files(tmp_path: Any) -> None:
    rng = np.random.default_rng(3)
    edges = [(f"{i},{j}", f"{i + a},{j + b}") for i in range(7) for j in range(7) for a, b in ((0, 1), (1, 0))
             if i + a < 7 and j + b < 7]  # fmt: skip
    graph = gm.Graph.from_edges(edges)
    torch.manual_seed(0)
    truth = gm.BYM2(0.5, 0.8).on(graph).sample(random_state=1).numpy()[0]
    expected = pd.Series(rng.uniform(2.0, 9.0, graph.n_nodes), index=graph.nodes)
    cases = pd.Series(rng.poisson(expected * np.exp(truth)), index=graph.nodes)
    tables = {}
    for engine in ("markov", "spectral"):
        model = gm.GraphGPRegressor(graph, gm.BYM2(), likelihood="poisson", engine=engine)
        tables[engine] = model.fit(cases, exposure=expected).hyperparameters_
        again = _saved(model, tmp_path / "model.gm")
        np.testing.assert_allclose(again.predict(), model.predict(), rtol=1e-8)
    pd.testing.assert_frame_equal(tables["markov"], tables["spectral"], rtol=1e-3)
    assert set(tables["markov"].index) == {"mixing", "sigma"}


def _saved(model: Any, path: Any) -> Any:
    model.save(path)
    return gm.load(path)


def test_priors_of_coefficients() -> None:
    """Gaussian noise, where everything is known in closed form."""
    graph, rng = islands(), np.random.default_rng(0)
    x, y = rng.standard_normal(13), rng.standard_normal(13)
    model = gm.GraphGPRegressor(
        graph, gm.Leroux(0.8, 0.6), noise=0.3, optimizer=None, normalize_y=False, covariates=x,
        priors={"coefficients": gm.Normal(0.7), "x0": gm.Normal(0.2)},
    ).fit(range(13), y)  # fmt: skip
    design = np.column_stack([np.ones(13), x])
    noisy = np.linalg.inv(areal_kernel(graph, "Leroux", 0.8, 0.6) + 0.3 * np.eye(13))
    covariance = np.linalg.inv(design.T @ noisy @ design + np.diag([0.7**-2, 0.2**-2]))
    table = model.coefficients_
    np.testing.assert_allclose(table["mean"], covariance @ design.T @ noisy @ y, rtol=1e-8)
    np.testing.assert_allclose(table["sd"], np.sqrt(np.diag(covariance)), rtol=1e-8)
    np.testing.assert_allclose(table["97.5%"], table["mean"] + 1.959964 * table["sd"], rtol=1e-6)
    with pytest.raises(gm.errors.TableError, match="lanes"):
        gm.GraphGPRegressor(graph, gm.Leroux(), covariates=x, priors={"lanes": gm.Normal(1.0)}).fit(range(13), y)


def test_the_prior_of_mixing_that_penalises_complexity() -> None:
    """d = √(2 KL) from dense eigenvalues, an island included, is exponential; table and derivatives against it."""
    graph = islands()
    gamma = np.linalg.eigvalsh(areal_kernel(graph, "ICAR", 1.0, 1.0))

    def distance(rho: Any) -> Any:
        every = 1.0 + np.multiply.outer(rho, gamma - 1.0)
        return np.sqrt(np.sum(every - 1.0 - np.log(every), axis=-1))

    prior = mixing_prior(graph, gm.PCPrior(below=0.5, probability=2 / 3))
    rate = -np.log(1 / 3) / distance(0.5)
    x = np.linspace(-9.3, 11.0, 60)
    step = 1e-4
    rho = expit(np.stack([x - step, x + step]))
    slope = np.diff(distance(rho.ravel()).reshape(2, -1), axis=0)[0] / (2.0 * step)
    value, first, second = prior.log_density(x)
    np.testing.assert_allclose(value, np.log(rate * slope) - rate * distance(expit(x)), atol=2e-3)
    for order, derivative in enumerate((first, second)):
        after, before = (prior.log_density(x + s)[order] for s in (step, -step))
        np.testing.assert_allclose(derivative, (after - before) / (2.0 * step), atol=1e-5)
    shares = np.array([0.01, 0.3, 2 / 3, 0.9, 0.99])
    np.testing.assert_allclose(1.0 - np.exp(-rate * distance(expit(prior.quantile(shares)))), shares, atol=2e-4)
    y = np.random.default_rng(0).poisson(5.0, graph.n_nodes)
    options: dict[str, Any] = {"likelihood": "poisson", "priors": {"mixing": gm.PCPrior(below=0.5, probability=0.99)}}
    narrow: Any = gm.GraphGPRegressor(graph, gm.BYM2(), **options).fit(graph.nodes, y).hyperparameters_
    assert narrow.loc["mixing", "mean"] < 0.2
    share, above, large = gm.PCPrior(below=0.5), gm.PCPrior(above=0.5), gm.PCPrior(below=2.0)
    for kernel, wrong in ((gm.Leroux(), share), (gm.BYM2(), above), (gm.BYM2(), large)):
        with pytest.raises(KernelError, match=r"of mixing must be gm.PCPrior\(below="):
            gm.GraphGPRegressor(graph, kernel, likelihood="poisson", priors={"mixing": wrong}).fit(graph.nodes, y)
