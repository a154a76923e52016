"""Correlation ranges in the table of parameters, against dense correlations of all pairs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphmatern as gm
from reference import dense_kernel, matern_psi

CITY = gm.make_roads(200, seed=2)


def modes(graph: gm.Graph, nu: float, lengthscale: float, **options: Any) -> dict[str, float]:
    """Parameters of a fit that has no choice, by name."""
    kernel, bounds = gm.Matern(nu, lengthscale, fixed=("nu",)), {"lengthscale": (0.999 * lengthscale, lengthscale)}
    model = gm.GraphGPRegressor(graph, kernel, bounds=bounds, integrate=False, **options)
    table = model.fit(graph.nodes[::9], np.sin(np.arange(len(graph.nodes[::9])))).hyperparameters_
    assert table.attrs["range"] == "measured"
    return {str(name): float(value) for name, value in table["mode"].items()}


def dense_range(nu: float, lengthscale: float) -> float:
    """Where correlations of all pairs, averaged over those as far apart, fall below 0.13."""
    covariance = dense_kernel(CITY, matern_psi(nu, lengthscale))
    scale = np.sqrt(np.diag(covariance))
    apart, correlation = CITY.distances(CITY.nodes).ravel(), (covariance / np.outer(scale, scale)).ravel()
    order = np.argsort(apart)
    order = order[np.isfinite(apart[order]) & (apart[order] > 0)]
    classes = np.array_split(order, 60)
    average = np.array([correlation[own].mean() for own in classes])
    return float(apart[classes[int(np.argmax(average < 0.13))]].mean())


@pytest.mark.parametrize(("nu", "lengthscale"), [(1.0, 2.0), (2.0, 4.0), (1.5, 8.0)])
def test_it_is_where_correlations_of_all_pairs_fall(nu: float, lengthscale: float) -> None:
    assert modes(CITY, nu, lengthscale)["range"] == pytest.approx(dense_range(nu, lengthscale), rel=0.15)


@pytest.mark.parametrize("engine", ["spectral", "markov"])
def test_a_path_has_the_range_of_its_correlations(engine: str) -> None:
    """On a long path with equal edges, correlations of ν = 1 fall by a constant factor from node to node."""
    n = 400
    path = gm.Graph.from_edges([(k, k + 1) for k in range(n - 1)], length=[5.0] * (n - 1))
    c = 2.0 / 6.0**2
    decay = 1.0 + 0.5 * c - np.sqrt(c + 0.25 * c**2)  # the root of x² − (2 + c) x + 1 below 1
    expected = 5.0 * np.log(0.13) / np.log(decay)
    assert modes(path, 1.0, 6.0, engine=engine)["range"] == pytest.approx(expected, rel=0.1)


def test_it_is_finite() -> None:
    assert 0.0 < modes(CITY, 2.0, 1e4)["range"] <= CITY.distances(CITY.nodes).max()
    assert "range" in modes(CITY, 2.0, 3.0, normalized=True)


def test_large_graphs_have_a_rule_of_thumb() -> None:
    city = gm.make_roads(1_500, seed=0)
    model = gm.GraphGPRegressor(city, gm.Matern(1, 3.0, fixed=("nu",)), engine="markov", integrate=False)
    model.fit(city.nodes[::30], np.sin(np.arange(len(city.nodes[::30]))))
    table = model.hyperparameters_
    assert table.attrs["range"] == "rule of thumb"
    ratio = float(table["mode"]["range"]) / float(table["mode"]["lengthscale"])
    assert ratio == pytest.approx(1.2 * city.edges["length"].mean())
