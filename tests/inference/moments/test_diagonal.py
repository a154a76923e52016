"""Diagonals from probes, against dense ones: within the stated errors, and better than probes alone."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
import pytest
import torch

import graphmatern as gm
from dense_process import exact
from graphmatern.inference.moments.device import DeviceProducts
from graphmatern.inference.moments.diagonal import estimate_diagonal
from graphmatern.inference.moments.operator import LaplacianOperator
from graphmatern.sparse import ChebyshevProducts

EDGES = [*nx.barabasi_albert_graph(300, 3, seed=5).edges, (300, 301), (301, 302)]
MASSES = np.random.default_rng(0).uniform(0.5, 2.0, 306)


def graph(masses: bool) -> gm.Graph:
    """A piece with hubs, a small one, and three nodes alone."""
    return gm.Graph.from_edges(EDGES, nodes=range(306), masses=MASSES if masses else None)


@pytest.mark.parametrize("masses", [False, True])
@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize("lengthscale", [0.5, 3.0])
def test_estimates_keep_to_their_errors(masses: bool, normalized: bool, lengthscale: float) -> None:
    made = graph(masses)
    operator = LaplacianOperator(made, normalized=normalized)
    matrix = exact(made, gm.Matern(1.5, lengthscale), normalized).seen
    if masses:  # a function of the Laplacian itself
        matrix = np.sqrt(MASSES) * matrix * np.sqrt(MASSES)[:, None]
    truth, count = np.diag(matrix), [0]

    def times(columns: np.ndarray) -> np.ndarray:
        assert np.isin(columns, [-1.0, 1.0]).all()
        count[0] += columns.shape[1]
        return np.asarray(matrix @ columns)

    found = estimate_diagonal(operator, times)
    assert found.n_probes == count[0]
    assert found.n_probes in (64, 128, 192, 256)
    assert found.relative_error(operator.rows) <= 0.02 or found.n_probes == 256
    off = found.values - truth
    scores = off / np.maximum(found.errors, 1e-9 * truth)
    assert np.sqrt(np.mean(scores**2)) < 1.5
    assert np.abs(scores).max() < 6.0
    # What probes alone leave open, at the same number of them.
    alone = np.sqrt(((matrix**2).sum(axis=1) - truth**2) / found.n_probes)
    assert np.sqrt(np.mean((off / truth) ** 2)) < 0.8 * np.sqrt(np.mean((alone / truth) ** 2))


def test_nodes_alone_are_exact() -> None:
    made = graph(False)
    operator = LaplacianOperator(made, normalized=False)
    matrix = exact(made, gm.Matern(1.5, 2.0), False).seen
    found = estimate_diagonal(operator, lambda columns: np.asarray(matrix @ columns))
    np.testing.assert_allclose(found.values[303:], np.diag(matrix)[303:], rtol=1e-9)


@pytest.mark.parametrize("masses", [False, True])
def test_blocks_stay_on_their_device(masses: bool) -> None:
    """The same numbers, with torch; nothing of the size of a block comes back."""
    made, coefficients = graph(masses), np.array([1.0, -0.5, 0.2, -0.1, 0.05, 0.02])

    def on_device(matrix: Any, low: float, high: float) -> DeviceProducts:
        return DeviceProducts(matrix, low, high, torch.device("cpu"))

    found = []
    for products in (ChebyshevProducts, on_device):
        operator = LaplacianOperator(made, normalized=True, products=products)

        def times(block: Any, operator: LaplacianOperator = operator) -> Any:
            assert isinstance(block, torch.Tensor) == isinstance(operator.products, DeviceProducts)
            return operator.apply(coefficients, block)

        found.append(estimate_diagonal(operator, times))
    host, device = found
    np.testing.assert_allclose(device.values, host.values, rtol=1e-5)
    np.testing.assert_allclose(device.errors, host.errors, rtol=1e-3, atol=1e-6)


def test_more_probes_are_taken_where_they_are_affordable() -> None:
    made = graph(False)
    operator = LaplacianOperator(made, normalized=True)
    other = np.random.default_rng(1).standard_normal((306, 306)) / np.sqrt(306.0)  # nothing of the Laplacian's
    matrix = np.eye(306) + 0.1 * other @ other.T
    few, many = (
        estimate_diagonal(operator, lambda columns: np.asarray(matrix @ columns), affordable=count)
        for count in (0, 640)
    )
    assert few.n_probes < 256
    assert few.n_probes < many.n_probes <= 640
    assert many.relative_error(operator.rows) < 0.75 * few.relative_error(operator.rows)
