"""The moments engine against dense matrices: evidence, gradients, means, variances, covariances, leaving one out.

`evidence/moments_dense.py` does the same on graphs of a thousand nodes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moments_dense import GRAPHS, KERNELS, LAPLACIANS, LIKELIHOODS, gaussian_errors, likelihood_errors
from strategies import graphs

if TYPE_CHECKING:
    import graphmatern as gm

MADE = {name: make(120) for name, make in GRAPHS.items()}
EXACT = 1e-8

on_all = pytest.mark.parametrize("graph", MADE)


@on_all
@pytest.mark.parametrize(("kernel", "normalized"), LAPLACIANS)
def test_gaussian_noise(graph: str, kernel: str, normalized: bool) -> None:
    errors = gaussian_errors(MADE[graph], KERNELS[kernel][0], normalized, 30)
    assert max(errors.values()) < EXACT, errors


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
