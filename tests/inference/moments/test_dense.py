"""The moments engine against dense matrices: evidence, gradients, means, variances, covariances, leaving one out.

`evidence/moments_dense.py` does the same on graphs of a thousand nodes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import graphmatern as gm
from graphmatern.sparse._rows import SharedRows

if TYPE_CHECKING:
    from collections.abc import Callable
from moments_dense import GRAPHS, KERNELS, LAPLACIANS, LIKELIHOODS, gaussian_errors, likelihood_errors
from strategies import graphs

MADE = {name: make(120) for name, make in GRAPHS.items()}
EXACT = 1e-8

on_all = pytest.mark.parametrize("graph", MADE)


@on_all
@pytest.mark.parametrize(("kernel", "normalized"), LAPLACIANS)
def test_gaussian_noise(graph: str, kernel: str, normalized: bool) -> None:
    errors = gaussian_errors(MADE[graph], KERNELS[kernel][0], normalized, 30)
    assert max(errors.values()) < EXACT, errors


@on_all
@pytest.mark.parametrize(("kernel", "normalized"), LAPLACIANS)
def test_gaussian_noise_by_lanczos_method(
    graph: str, kernel: str, normalized: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, least in {"_HIGH_DEGREE": 8, "_MANY_ENTRIES": 0}.items():  # as on large graphs
        monkeypatch.setattr(f"graphmatern.sparse._products.{name}", least)
    errors = gaussian_errors(MADE[graph], KERNELS[kernel][0], normalized, 30)
    assert max(errors.values()) < EXACT, errors


def test_lanczos_method_takes_few_products_where_there_is_a_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    ends = rng.integers(0, 3_000, (30_000, 2))  # a random graph of twenty neighbours each
    edges, values = ends[ends[:, 0] != ends[:, 1]], rng.standard_normal(20)
    counted: list[str] = []

    def counting(name: str) -> Callable[..., Any]:
        own = getattr(SharedRows, name)

        def call(*arguments: Any) -> Any:
            counted.append(name)
            return own(*arguments)

        return call

    for name in ("combine", "project"):
        monkeypatch.setattr(SharedRows, name, counting(name))
    found, products = [], []
    for many in (10**9, 0):
        monkeypatch.setattr("graphmatern.sparse._products._MANY_ENTRIES", many)
        graph = gm.Graph.from_edges(edges)
        how: Any = {"engine": "moments", "normalized": False, "optimizer": None}
        model = gm.GraphGPRegressor(graph, gm.Matern(2.0, 20.0), noise=0.1, **how).fit(graph.nodes[:20], values)
        found.append(model.predict(graph.nodes[::100], return_cov=True))
        products.append(len(counted))
        counted.clear()
    assert 0 < products[1] < 0.5 * products[0]
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-9)


@on_all
@pytest.mark.parametrize("likelihood", LIKELIHOODS)
@pytest.mark.parametrize("normalized", [False, True])
def test_other_likelihoods(graph: str, likelihood: str, normalized: bool) -> None:
    errors = likelihood_errors(MADE[graph], KERNELS["Matérn"][0], normalized, LIKELIHOODS[likelihood], 30)
    assert max(errors.values()) < EXACT, errors


@pytest.mark.parametrize(("kernel", "normalized"), LAPLACIANS)
@settings(max_examples=5)
@given(graph=graphs(masses=True), seed=st.integers(0, 100))
def test_gaussian_noise_on_graphs_of_all_shapes(kernel: str, normalized: bool, graph: gm.Graph, seed: int) -> None:
    errors = gaussian_errors(graph, KERNELS[kernel][0], normalized, 6, seed, 0.3)
    assert max(errors.values()) < EXACT, errors


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
@settings(max_examples=5)
@given(graph=graphs(masses=True), normalized=st.booleans(), seed=st.integers(0, 100))
def test_other_likelihoods_on_graphs_of_all_shapes(
    likelihood: str, graph: gm.Graph, normalized: bool, seed: int
) -> None:
    errors = likelihood_errors(graph, KERNELS["Matérn"][0], normalized, LIKELIHOODS[likelihood], 6, seed)
    assert max(errors.values()) < EXACT, errors
