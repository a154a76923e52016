"""Functions of matrices by Lanczos' method, against all eigenpairs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse.linalg import spsolve

from graphmatern.errors import NumericalError
from graphmatern.inference.moments.device import DeviceProducts
from graphmatern.sparse import ChebyshevProducts, KrylovRows, apply_functions

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

HIGH = 8.0
SHARP = np.array([0.1, 3.0, 50.0])


def matrix_of(n: int, seed: int) -> sp.csr_array[Any]:
    """The Laplacian of some random graph, scaled to eigenvalues from 0 to 8."""
    rng = np.random.default_rng(seed)
    weights = sp.random_array((n, n), density=min(1.0, 4.0 / n), rng=rng)
    weights = weights + weights.T
    laplacian: Any = sp.diags_array(weights.sum(axis=1)) - weights
    largest = np.linalg.eigvalsh(laplacian.toarray())[-1]
    return sp.csr_array(laplacian * (HIGH / max(largest, 1e-12)))


def filters(eigenvalues: Floats) -> Floats:
    return 1.0 / (1.0 + SHARP[:, None] * 0.5 * HIGH * (1.0 + eigenvalues))


def expected(matrix: sp.csr_array[Any], columns: Floats) -> Floats:
    values, vectors = np.linalg.eigh(matrix.toarray())
    return np.stack([(vectors / (1.0 + one * values)) @ vectors.T @ columns for one in SHARP])


def slowest(eigenvalues: Floats) -> Floats:
    return filters(eigenvalues)[-1:]


def applied(products: ChebyshevProducts, columns: Floats, most: int = 1000) -> Floats:
    return apply_functions(products, filters, slowest, columns, 1e-11, most)


@settings(max_examples=30, deadline=None)
@given(n=st.integers(1, 120), seed=st.integers(0, 10**6), width=st.integers(1, 70), n_threads=st.integers(1, 3))
def test_agrees_with_eigenpairs(n: int, seed: int, width: int, n_threads: int) -> None:
    matrix, rng = matrix_of(n, seed), np.random.default_rng(seed)
    columns = rng.standard_normal((n, width))
    columns[:, 0] = 1.0  # an eigenvector: its space is exhausted at once
    columns[:, width // 2] *= rng.integers(2)  # or nothing at all
    products = ChebyshevProducts(matrix, 0.0, HIGH, n_threads)
    truth = expected(matrix, columns)
    np.testing.assert_allclose(applied(products, columns), truth, rtol=0.0, atol=1e-10)
    kept = rng.standard_normal((4, n))
    rows = KrylovRows(products, width, lambda part: columns[:, part], lambda block: kept @ block, keep=bool(seed % 2))
    for tolerance in (1e-2, 1e-11):  # goes on, or begins anew
        rows.settle(slowest, tolerance, 1000)
    np.testing.assert_allclose(rows.of(filters), kept @ truth, rtol=0.0, atol=1e-9)


def test_long_after_vectors_have_lost_orthogonality() -> None:
    n = 4_000
    path = sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(n, n))
    # Some far eigenvalues are found within a few steps, and then again and again.
    matrix = sp.csr_array(path + sp.diags_array(np.where(np.arange(n) % 1000 == 0, 4_000.0, 0.0)))
    columns = np.random.default_rng(0).standard_normal((n, 3))
    products = ChebyshevProducts(matrix, 0.0, 4_010.0, 2)

    def solve(eigenvalues: Floats) -> Floats:
        return 1.0 / (1.0 + 200.0 * 2_005.0 * (1.0 + eigenvalues[None]))

    found = apply_functions(products, solve, solve, columns, 1e-11, 4_000)[0]
    truth = spsolve((sp.eye_array(n) + 200.0 * matrix).tocsc(), columns)
    assert np.linalg.norm(found - truth, axis=0).max() < 1e-9 * np.linalg.norm(columns, axis=0).min()


def test_on_a_device() -> None:
    matrix = matrix_of(90, 3)
    columns = np.random.default_rng(1).standard_normal((90, 5))
    products = DeviceProducts(matrix, 0.0, HIGH, torch.device("cpu"))
    np.testing.assert_allclose(applied(products, columns), expected(matrix, columns), rtol=0.0, atol=1e-10)


def test_says_when_it_does_not_settle() -> None:
    with pytest.raises(NumericalError, match=r"did not settle in 9 products.*normalized=True"):
        applied(ChebyshevProducts(matrix_of(100, 1), 0.0, HIGH), np.eye(100)[:, :2], most=9)
