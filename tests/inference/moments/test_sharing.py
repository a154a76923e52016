"""What saves products: rough kernels on the way, traces that go on, one pass for all parts of a mixture."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
import pytest
import torch

import graphmatern as gm
from graphmatern.inference import Mixture
from graphmatern.inference.moments import operator as operators
from graphmatern.inference.moments import predictive, prior
from graphmatern.inference.moments.degrees import MOST_DEGREE, first_below, rough_degree, rough_error, truncation_errors
from graphmatern.inference.moments.engine import MomentsEngine
from graphmatern.inference.moments.operator import LaplacianOperator, coefficients_from_values
from graphmatern.sparse import ChebyshevProducts

EDGES = [*nx.barabasi_albert_graph(400, 3, seed=5).edges, (400, 401), (401, 402)]
MASSES = np.random.default_rng(0).uniform(0.5, 2.0, 406)
RNG = np.random.default_rng(1)
SEEN = np.sort(RNG.choice(400, 40, replace=False))


def graph(masses: bool = False) -> gm.Graph:
    """A piece with hubs, a small one, and three nodes alone."""
    return gm.Graph.from_edges(EDGES, nodes=range(406), masses=MASSES if masses else None)


def field() -> np.ndarray:
    """A sample by a Cholesky factor: eigenvectors of repeated eigenvalues differ from one processor to another."""
    covariance = gm.Matern(2.0, 4.0).on(graph(), normalized=True).matrix().detach().numpy()
    root = np.linalg.cholesky(covariance + 1e-9 * np.eye(406))
    return np.asarray(root @ np.random.default_rng(2).standard_normal(406))


# ---------------------------------------------------------------------- degrees
@pytest.mark.parametrize("kernel", [gm.Matern(1.5, 9.0), gm.Matern(0.7, 3.0)])
@pytest.mark.parametrize("normalized", [False, True])
def test_rough_degrees_are_lower_and_keep_to_their_error(kernel: Any, normalized: bool) -> None:
    operator = LaplacianOperator(graph(), normalized=normalized)
    exact = first_below(truncation_errors(kernel.spectral_weights, operator, MOST_DEGREE), 1e-10)
    assert exact is not None
    degree = rough_degree(kernel.spectral_weights, operator, exact, 1e-3)
    assert degree < 0.7 * exact
    assert rough_error(kernel.spectral_weights, operator, degree) <= 1e-3
    # Eigenvalues of the polynomial against those of the kernel, relative to these or to that of the average.
    spectrum = operator.graph.spectrum(normalized=normalized)
    known, points = spectrum.eigenvalues, np.append(operator.eigenvalues(degree), spectrum.eigenvalues.mean())
    norms = np.append(spectrum.squared_norms, np.zeros(len(points)))
    with torch.no_grad():
        every = kernel.spectral_weights(torch.as_tensor(np.append(known, points)), torch.as_tensor(norms), 406).numpy()
    exactly, values, typical = np.split(every, [len(known), len(every) - 1])
    angles = np.arccos(np.clip(2.0 * known / operator.high - 1.0, -1.0, 1.0))
    found = np.cos(np.outer(angles, np.arange(degree + 1))) @ (coefficients_from_values(degree) @ values)
    assert (np.abs(found - exactly) / (exactly + typical)).max() < 1.1e-3


@pytest.mark.parametrize("likelihood", ["gaussian", "student_t"])
def test_rough_searches_end_where_exact_ones_do(likelihood: str, monkeypatch: pytest.MonkeyPatch) -> None:
    y = field()[SEEN] + 0.2 * np.random.default_rng(3).standard_normal(len(SEEN))
    made: list[Any] = []
    options = {"likelihood": likelihood, "normalized": True, "integrate": False}

    def forced(self: MomentsEngine) -> None:
        self._roughly = True
        made.append(self)

    for way in (forced, lambda self: None):
        monkeypatch.setattr(MomentsEngine, "begin_roughly", way)
        model = gm.GraphGPRegressor(graph(), engine="moments", **options).fit(SEEN, y)  # type: ignore[arg-type]
        made.append(model)
    engine, rough, exact = made
    assert not engine._roughly
    assert rough._fit.report["truncation_error"] <= 1e-10
    assert rough.log_marginal_likelihood_ == pytest.approx(exact.log_marginal_likelihood_, abs=1e-4)


# ---------------------------------------------------------------------- traces
@pytest.mark.parametrize("masses", [False, True])
@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize("kernel", [gm.Matern(1.5, 4.0), gm.Diffusion(5.0)])
def test_estimated_traces_keep_to_their_errors(
    masses: bool, normalized: bool, kernel: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    exact = LaplacianOperator(graph(masses), normalized=normalized).traces(96)[0]
    monkeypatch.setattr(operators, "_EXACT_NODES", 0)
    operator = LaplacianOperator(graph(masses), normalized=normalized)
    operator.traces(20)  # from where it goes on
    traces, deviations = operator.traces(96)
    again = LaplacianOperator(graph(masses), normalized=normalized).traces(96)[0]
    np.testing.assert_allclose(traces, again, atol=1e-3)
    np.testing.assert_allclose(traces[:2], exact[:2], rtol=1e-5, atol=1e-4)
    x = torch.as_tensor(operator.eigenvalues(96))
    values = kernel.spectral_weights(x, torch.ones_like(x), 1).detach().numpy()
    coefficients = coefficients_from_values(96) @ values
    error = (coefficients @ deviations).std(ddof=1) / np.sqrt(deviations.shape[1])
    off = coefficients @ (traces - exact)
    assert abs(off) < 4.0 * error + 1e-5 * (coefficients @ exact)
    assert error < 0.06 * (coefficients @ exact)


# ---------------------------------------------------------------------- mixtures
def mixture(masses: bool = False) -> Mixture:
    y = field()[SEEN] + 0.2 * np.random.default_rng(3).standard_normal(len(SEEN))
    options: dict[str, Any] = {"engine": "moments", "normalized": True, "integrate": True}
    posterior = gm.GraphGPRegressor(graph(masses), gm.Matern(1.5, fixed=("nu",)), **options).fit(SEEN, y).posterior_
    assert isinstance(posterior, Mixture)
    return posterior


@pytest.mark.parametrize("masses", [False, True])
def test_parts_of_a_mixture_share_products(masses: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prior, "_EXACT_NODES", 100)  # the variances of more nodes are estimated
    together, nodes = mixture(masses), np.arange(406)
    assert len(together.components) > 4
    passes = []
    polynomials = ChebyshevProducts.polynomials

    def counted(self: ChebyshevProducts, coefficients: np.ndarray, columns: np.ndarray) -> np.ndarray:
        if coefficients.shape[1] != 3:  # controls of probes
            passes.append(coefficients.shape[1])
        return polynomials(self, coefficients, columns)

    monkeypatch.setattr(ChebyshevProducts, "polynomials", counted)
    mean, variance = together.moments(nodes)
    assert set(passes) == {len(together.components)}
    assert len(passes) <= 1 + 1_024 // 64
    # Each part by itself says the same; estimates may differ by a round of probes.
    monkeypatch.setattr(predictive.MomentPredictive, "join", lambda self, others: None)
    alone = mixture(masses)
    for one, other in zip(together.components, alone.components, strict=True):
        np.testing.assert_allclose(one.latent_mean(nodes), other.latent_mean(nodes), atol=1e-9)
        np.testing.assert_allclose(one.latent_variance(nodes), other.latent_variance(nodes), rtol=0.15)
        few = nodes[::9]
        np.testing.assert_allclose(one.latent_variance(few), other.latent_variance(few), atol=1e-9)
    np.testing.assert_allclose(alone.moments(nodes)[0], mean, atol=1e-9)
    assert (variance > 0.0).all()


def test_parts_share_the_products_of_a_few_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    together = mixture()
    parts = [component.parts[0].predictive for component in together.components]
    few, ones, passes = np.setdiff1d(np.arange(400), SEEN)[:50], np.ones((1, 1)), []
    polynomials = ChebyshevProducts.polynomials

    def counted(self: ChebyshevProducts, coefficients: np.ndarray, columns: np.ndarray) -> np.ndarray:
        passes.append(columns.shape[1])
        return polynomials(self, coefficients, columns)

    for part in parts:
        part.means(few, np.ones((len(SEEN), 1)))  # columns of the observed nodes
        part.variances(np.arange(3))
    monkeypatch.setattr(ChebyshevProducts, "polynomials", counted)
    for part in parts:
        variances = part.variances(few)
        column = part.covariance_times(few, few[:1], ones)
        np.testing.assert_allclose(column[0, 0], variances[0], rtol=1e-8)
        np.testing.assert_allclose(column[:, 0], part.covariances(few)[:, 0], atol=1e-9)
    assert passes.count(1) == 1
    assert passes.count(50) == 1 + len(parts)  # covariances are asked for one by one


def test_tables_state_the_errors_of_estimated_deviations(monkeypatch: pytest.MonkeyPatch) -> None:
    y, made = np.round(np.exp(field()[SEEN])), []
    options: dict[str, Any] = {"engine": "moments", "normalized": True, "likelihood": "poisson", "integrate": False}
    for most in (100, 4_000):
        monkeypatch.setattr(prior, "_EXACT_NODES", most)
        model = gm.GraphGPRegressor(graph(), gm.Matern(1.5, fixed=("nu",)), **options).fit(SEEN, y)
        made.append(model.predict_table())
    estimated, exact = made
    assert "std_error" not in exact
    error, off = estimated["std_error"], estimated["std"] - exact["std"]
    np.testing.assert_array_equal(error.iloc[SEEN], 0.0)
    np.testing.assert_allclose(off.iloc[SEEN], 0.0, atol=1e-9)
    hidden = np.setdiff1d(np.arange(400), SEEN)
    scores = (off / error).iloc[hidden]
    assert np.sqrt(np.mean(scores**2)) < 1.5
    assert scores.abs().max() < 6.0
    assert (error / exact["std"]).max() < 0.1
