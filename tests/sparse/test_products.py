"""Chebyshev polynomials of sparse matrices, against dense polynomials."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from graphmatern.sparse import ChebyshevProducts, _products, cubed_diagonal

N, DEGREE = 90, 7
RNG = np.random.default_rng(0)
NODES = np.array([3, 80, 17, 41])


def _matrix() -> sp.csr_array:
    """Symmetric, with eigenvalues in [−1, 3], an empty row and one that is nearly full."""
    random = sp.random_array((N, N), density=0.04, rng=RNG).tolil()
    random[5, 10:85] = 0.1
    random[[20], :] = 0.0
    random[:, [20]] = 0.0
    matrix = sp.csr_array(random + random.T)
    values = np.linalg.eigvalsh(matrix.toarray())
    return sp.csr_array(matrix * (2.0 / np.abs(values).max()) + sp.eye_array(N))


MATRIX = _matrix()
SCALED = (MATRIX.toarray() - np.eye(N)) / 2.0
POLYNOMIALS = [np.eye(N), SCALED]
for _ in range(2, DEGREE + 1):
    POLYNOMIALS.append(2.0 * SCALED @ POLYNOMIALS[-1] - POLYNOMIALS[-2])
T = np.stack(POLYNOMIALS)  # (degree + 1, n, n)

in_threads = pytest.mark.parametrize("n_threads", [1, 3])
widths = pytest.mark.parametrize("width", [0, 1, 5, 70])  # 70 columns are more than a block


def products(n_threads: int) -> ChebyshevProducts:
    return ChebyshevProducts(MATRIX, -1.0, 3.0, n_threads)


def close(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(found, expected, rtol=0.0, atol=1e-12 * max(1.0, np.abs(expected).max(initial=0.0)))


def test_diagonals() -> None:
    close(products(1).diagonal, np.diag(SCALED))
    close(products(1).squared_diagonal, np.diag(SCALED @ SCALED))


def test_the_diagonal_of_the_third_power_counts_triangles_unless_there_are_too_many() -> None:
    matrix = sp.csr_array(SCALED)
    close(cubed_diagonal(matrix), np.diag(SCALED @ SCALED @ SCALED))
    assert cubed_diagonal(matrix, most=1.0) is None


@in_threads
@widths
def test_polynomials_on_all_nodes(n_threads: int, width: int) -> None:
    columns, several = RNG.standard_normal((N, width)), RNG.standard_normal((DEGREE + 1, 3))
    several[2, 1] = 0.0
    before = columns.copy()
    found = products(n_threads).polynomials(several, columns)
    assert found.shape == (3, N, width)
    for one, coefficients in zip(found, several.T, strict=True):
        expected = np.tensordot(coefficients, T, 1) @ columns
        close(one, expected)
        close(products(n_threads).apply(coefficients, columns), expected)
    close(products(n_threads).apply(several[:1, 0], columns), several[0, 0] * columns)  # a constant
    np.testing.assert_array_equal(columns, before)


@in_threads
@widths
def test_polynomials_between_some_nodes(n_threads: int, width: int) -> None:
    """Products, quadratic forms, and sums of squares of the rows of all nodes."""
    left, right = RNG.standard_normal((2, len(NODES), width))
    several = RNG.standard_normal((DEGREE + 1, 3))
    inner = T[:, NODES][:, :, NODES]
    made = products(n_threads)
    close(made.between(NODES, several, right), np.einsum("ks,kij,jc->sic", several, inner, right))
    close(made.forms(NODES, left, right, DEGREE), np.einsum("ic,kij,jc->kc", left, inner, right))
    images = np.tensordot(several[:, 0], T, 1)[:, NODES] @ right
    close(made.row_squares(NODES, several[:, 0], right), (images**2).sum(axis=1))


@in_threads
@pytest.mark.parametrize("count", [1, 4, 70])
def test_moments_go_on_from_lower_degrees(n_threads: int, count: int) -> None:
    nodes, made, kept = RNG.permutation(N)[:count], products(n_threads), {}  # type: ignore[var-annotated]
    expected = T[:, nodes][:, :, nodes]
    close(made.moments(nodes, DEGREE), expected)
    first = made.moments(nodes, 2, None, kept)
    close(first, expected[:3])
    then = made.moments(nodes, 4, first, kept)
    close(then, expected[:5])
    first[:] = np.nan  # what was kept is enough
    close(made.moments(nodes, DEGREE, then, kept), expected)


def test_moments_start_again_where_memory_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_products, "available_memory", lambda: 10)
    made, kept = products(1), {}  # type: ignore[var-annotated]
    first = made.moments(NODES, 3, None, kept)
    assert not kept
    close(made.moments(NODES, DEGREE, first, kept), T[:, NODES][:, :, NODES])


@in_threads
@pytest.mark.parametrize("degree", [0, 1, 2, 6, 7])
@pytest.mark.parametrize("weighted", [False, True])
def test_traces(n_threads: int, degree: int, weighted: bool) -> None:
    probes = RNG.choice([-1.0, 1.0], (N, 40))
    weights = RNG.uniform(0.5, 2.0, N) if weighted else None
    expected = np.einsum("ip,kij,jp->kp", probes * (1.0 if weights is None else weights[:, None]), T, probes)
    close(products(n_threads).traces(weights, degree, probes), expected[: degree + 1])


@pytest.mark.parametrize("kind", ["double", "single"])
def test_blocks_that_outgrow_the_cache(kind: str) -> None:
    n = 20_000
    ends = RNG.integers(0, n, (2, 3 * n))
    matrix = sp.csr_array((np.full(3 * n, 0.05), (ends[0], ends[1])), shape=(n, n))
    matrix = sp.csr_array(matrix + matrix.T)
    columns = RNG.standard_normal((n, 64))
    large = ChebyshevProducts(matrix, -1.0, 1.0, 2)
    found = (large.single if kind == "single" else large).apply(np.array([0.0, 0.0, 1.0]), columns)
    expected = 2.0 * (matrix @ (matrix @ columns)) - columns
    np.testing.assert_allclose(found, expected, rtol=0.0, atol=1e-12 if kind == "double" else 1e-5)
