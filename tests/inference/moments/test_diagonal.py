"""Diagonals from probes, against dense ones: within the stated errors, and better than probes alone."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest

import graphmatern as gm
from dense_process import exact
from graphmatern.inference.moments.diagonal import estimate_diagonal
from graphmatern.inference.moments.operator import LaplacianOperator

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
