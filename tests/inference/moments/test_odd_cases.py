"""Odd graphs, few and many observations, extreme parameters: right answers, or typed errors that name the remedy."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import networkx as nx
import numpy as np
import pytest

import graphmatern as gm
from graphmatern.errors import NumericalError, ResourceError
from graphmatern.inference.moments import engine as moments_engine
from graphmatern.inference.moments.engine import MomentsEngine
from graphmatern.likelihoods import Gaussian

if TYPE_CHECKING:
    from pathlib import Path

HUBS = gm.Graph.from_networkx(nx.barabasi_albert_graph(400, 3, seed=3))
PIECES = gm.Graph.from_edges([(0, 1), (2, 3), (3, 4)], nodes=range(400))
ALONE = gm.Graph.from_edges([], nodes=range(400))
VALUES = np.random.default_rng(0).standard_normal(400)

few_and_many = pytest.mark.parametrize("most_dense", [4_000, 0])


def fit(graph: gm.Graph, count: int, kernel: gm.Kernel | None = None, **options: Any) -> gm.GraphGPRegressor:
    chosen: dict[str, Any] = {"engine": "moments", "normalized": True, **options}
    return gm.GraphGPRegressor(graph, kernel, **chosen).fit(graph.nodes[:count], VALUES[:count])


def assert_finite(model: gm.GraphGPRegressor) -> None:
    mean, std = model.predict(return_std=True)
    assert np.isfinite(mean).all()
    assert np.isfinite(std).all()
    assert (std >= 0.0).all()
    assert np.isfinite(model.sample(2, random_state=0)).all()
    assert np.isfinite(model.log_marginal_likelihood_)


@few_and_many
@pytest.mark.parametrize("graph", [PIECES, ALONE], ids=["pieces", "alone"])
@pytest.mark.parametrize("count", [1, 2, 150])
def test_graphs_in_pieces(monkeypatch: pytest.MonkeyPatch, most_dense: int, graph: gm.Graph, count: int) -> None:
    """Also where the data say nothing of some parameter."""
    monkeypatch.setattr(MomentsEngine, "most_dense", most_dense)
    model = fit(graph, count, gm.Matern(1.5, 2.0, fixed=("nu",)))
    assert_finite(model)
    if count > 1:
        assert len(model.loo()) == count


@few_and_many
@pytest.mark.parametrize("nu", [0.1, 100.0])
def test_extreme_parameters(monkeypatch: pytest.MonkeyPatch, most_dense: int, nu: float) -> None:
    monkeypatch.setattr(MomentsEngine, "most_dense", most_dense)
    assert_finite(fit(HUBS, 80, gm.Matern(nu, 1e-3), optimizer=None))
    with pytest.raises(NumericalError, match=r"too high a degree.*engine='markov'"):
        fit(HUBS, 80, gm.Matern(nu, 1e6), optimizer=None)


def test_all_nodes_observed_is_as_exact_as_eigenpairs() -> None:
    kernel = gm.Matern(1.5, 2.0)
    pairs = [fit(HUBS, 400, kernel, optimizer=None, engine=engine) for engine in ("moments", "spectral")]
    assert pairs[0].log_marginal_likelihood_ == pytest.approx(pairs[1].log_marginal_likelihood_, rel=1e-9)
    for found, expected in zip(*(model.predict(return_std=True) for model in pairs), strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-8)


def test_strong_sites_survive_a_file(tmp_path: Path) -> None:
    """Noise at its least magnifies whatever the coefficients of the mean get from other polynomials than the sites."""
    model = fit(HUBS, 80, gm.Matern(2.0, 8.0), noise=1e-6, optimizer=None)
    model.save(tmp_path / "strong.gm")
    exact = fit(HUBS, 80, gm.Matern(2.0, 8.0), noise=1e-6, optimizer=None, engine="spectral")
    for other in (gm.load(tmp_path / "strong.gm"), exact):
        for found, expected in zip(model.predict(return_std=True), other.predict(return_std=True), strict=True):
            np.testing.assert_allclose(found, expected, atol=1e-7)


def test_leaving_one_out_bears_strong_sites() -> None:
    """Where noise is a millionth of the variance, variances at the data must not be differences."""
    noise = Gaussian(1e-6, fixed=("noise",))
    pairs = [
        fit(HUBS, 80, gm.Matern(1.5, 2.0), optimizer=None, likelihood=noise, engine=engine).loo()
        for engine in ("moments", "spectral")
    ]
    np.testing.assert_allclose(pairs[0]["std"], pairs[1]["std"], rtol=0.01)
    np.testing.assert_allclose(pairs[0]["mean"], pairs[1]["mean"], atol=0.02)


def test_leaving_one_of_many_out_is_estimated(monkeypatch: pytest.MonkeyPatch) -> None:
    options: dict[str, Any] = {"optimizer": None, "likelihood": Gaussian(0.01, fixed=("noise",))}
    expected = fit(HUBS, 350, gm.Matern(1.5, 2.0), **options)
    monkeypatch.setattr(MomentsEngine, "most_dense", 0)
    found = fit(HUBS, 350, gm.Matern(1.5, 2.0), **options)
    np.testing.assert_allclose(found.loo()["std"], expected.loo()["std"], rtol=0.1)
    np.testing.assert_allclose(found.loo()["mean"], expected.loo()["mean"], atol=0.3)
    std, exact = (model.predict(return_std=True)[1] for model in (found, expected))
    # Estimated from at most 256 probes: at observed nodes, whose variances are far below the others', the worst of 350
    # is off by 13 % with this seed.
    np.testing.assert_allclose(std[:350], exact[:350], rtol=0.2)
    np.testing.assert_allclose(std[350:], exact[350:], rtol=0.1)


def test_summaries_state_what_probes_leave_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MomentsEngine, "most_dense", 0)
    text = fit(HUBS, 200, gm.Matern(1.5, 2.0)).summary()
    assert re.search(r"from (16|128) probes, which may have moved", text), text
    assert "noise" in text.split("moved")[1]


@few_and_many
def test_too_little_memory_is_said_beforehand(monkeypatch: pytest.MonkeyPatch, most_dense: int) -> None:
    monkeypatch.setattr(MomentsEngine, "most_dense", most_dense)
    monkeypatch.setattr(moments_engine, "available_memory", lambda: 10_000)
    with pytest.raises(ResourceError, match=r"80 observed nodes need about .* available.*engine='spectral'"):
        fit(HUBS, 80)
