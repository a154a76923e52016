"""Every number against dense linear algebra: all graphs, powers, orderings and numbers of threads."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmatern.sparse import Factor, analyze
from graphs_zoo import KINDS, SHAPES, precision

ORDERINGS = ("auto", "metis", "minimum_degree", "natural", "random")
TOLERANCE = 1e-9


@cache
def case(kind: str, nu: int, n: int = 1000) -> tuple[sp.csc_array, np.ndarray, float]:
    """A matrix, its dense inverse and its log-determinant."""
    matrix = precision({**KINDS, **SHAPES}[kind](n), nu)  # of condition number at most 1e8, see there
    dense = matrix.toarray()
    return matrix, np.linalg.inv(dense), float(np.linalg.slogdet(dense)[1])


def ordering_of(name: str, n: int) -> Any:
    return np.random.default_rng(3).permutation(n) if name == "random" else name


def check_factor(factor: Factor, matrix: sp.csc_array, inverse: np.ndarray, logdet: float) -> None:
    """Compare everything a factor can tell with the dense inverse."""
    n = matrix.shape[0]
    scale = np.sqrt(np.diag(inverse))
    assert factor.logdet() == pytest.approx(logdet, rel=TOLERANCE, abs=TOLERANCE)

    selected = factor.selected_inverse()
    entries = selected.to_csc().tocoo()
    assert entries.nnz >= 2 * factor.analysis.nnz_factor - n
    error = np.abs(entries.data - inverse[entries.row, entries.col]) / (scale[entries.row] * scale[entries.col])
    assert error.max(initial=0.0) < TOLERANCE
    np.testing.assert_allclose(selected.diagonal(), np.diag(inverse), rtol=TOLERANCE)
    columns = np.repeat(np.arange(n), np.diff(matrix.indptr))
    error = np.abs(selected.on_pattern() - inverse[matrix.indices, columns]) / (scale[matrix.indices] * scale[columns])
    assert error.max(initial=0.0) < TOLERANCE
    other = np.random.default_rng(0).random(n)
    values = matrix.data * (other[matrix.indices] + other[columns])
    expected = float(np.sum(inverse[matrix.indices, columns] * values))
    assert selected.trace(values) == pytest.approx(expected, rel=TOLERANCE)

    for shape in ((n,), (n, 5)):
        b = np.random.default_rng(1).standard_normal(shape)
        x = factor.solve(b)
        assert np.abs(x - inverse @ b).max(initial=0.0) <= TOLERANCE * np.abs(x).max(initial=1e-300)
        # P A Pᵀ = L Lᵀ: the two halves of the solution agree with the whole.
        np.testing.assert_allclose(factor.solve_upper(factor.solve_lower(b)), x, rtol=TOLERANCE, atol=1e-12)
        half = factor.solve_lower(b)
        np.testing.assert_allclose((half * half).sum(0), (b * x).sum(0), rtol=TOLERANCE)


@pytest.mark.parametrize("n_threads", [1, 2])
@pytest.mark.parametrize("nu", [1, 2, 3])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.usefixtures("eager_threads")
def test_all_entries_match_the_dense_inverse(kind: str, nu: int, n_threads: int) -> None:
    matrix, inverse, logdet = case(kind, nu)
    for name in ORDERINGS:
        if name in ("natural", "random") and nu > 1:
            continue  # almost dense
        analysis = analyze(matrix, ordering=ordering_of(name, matrix.shape[0]), n_threads=n_threads)
        check_factor(analysis.factorize(matrix.data), matrix, inverse, logdet)


@pytest.mark.parametrize("n_threads", [1, 3])
@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.usefixtures("eager_threads")
def test_shapes_of_trees(kind: str, n_threads: int) -> None:
    for nu in (1, 2):
        matrix, inverse, logdet = case(kind, nu, 200)
        for name in ORDERINGS:
            analysis = analyze(matrix, ordering=ordering_of(name, matrix.shape[0]), n_threads=n_threads)
            check_factor(analysis.factorize(matrix.data), matrix, inverse, logdet)


@pytest.mark.parametrize("kind", ["roads", "nearest_neighbours", "wheel"])
@pytest.mark.usefixtures("eager_threads", "tight_memory")
def test_detached_supernodes(kind: str) -> None:
    matrix, inverse, logdet = case(kind, 1 if kind == "wheel" else 2, 400)
    for n_threads in (1, 2):
        analysis = analyze(matrix, n_threads=n_threads)
        assert analysis._plan.detached.any()
        check_factor(analysis.factorize(matrix.data), matrix, inverse, logdet)


@pytest.mark.usefixtures("eager_threads")
def test_tasks_and_shared_fronts_are_exercised() -> None:
    plan = analyze(case("grid", 2)[0], n_threads=2)._plan
    assert len(plan.task_start) >= 2
    assert any(step.front >= 0 for step in plan.steps)


@st.composite
def positive_definite(draw: st.DrawFn) -> sp.csc_array:
    """A symmetric, strictly diagonally dominant matrix on a random graph, perhaps with isolated nodes."""
    n = draw(st.integers(1, 40))
    pairs = draw(st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, n - 1)), max_size=3 * n))
    weights = draw(st.lists(st.floats(-3, 3), min_size=len(pairs), max_size=len(pairs)))
    dense = np.zeros((n, n))
    pattern = np.eye(n, dtype=bool)
    for (i, j), weight in zip(pairs, weights, strict=True):
        if i != j:
            dense[i, j] = dense[j, i] = weight
            pattern[i, j] = pattern[j, i] = True
    extra = draw(st.floats(0.1, 2.0))
    dense[np.diag_indices(n)] = np.abs(dense).sum(1) + extra
    rows, columns = np.nonzero(pattern)
    return sp.coo_array((dense[rows, columns], (rows, columns)), shape=(n, n)).tocsc()


@settings(max_examples=60, deadline=None, derandomize=True)
@given(matrix=positive_definite(), n_threads=st.sampled_from([1, 2]), seed=st.integers(0, 5), data=st.data())
def test_random_matrices(matrix: sp.csc_array, n_threads: int, seed: int, data: st.DataObject) -> None:
    n = matrix.shape[0]
    name = data.draw(st.sampled_from(["auto", "metis", "minimum_degree", "natural", "given"]))
    ordering: Any = np.random.default_rng(seed).permutation(n) if name == "given" else name
    analysis = analyze(matrix, ordering=ordering, n_threads=n_threads)
    factor = analysis.factorize(matrix.data)
    dense = matrix.toarray()
    check_factor(factor, matrix, np.linalg.inv(dense), float(np.linalg.slogdet(dense)[1]))
    # The same memory again, for another matrix.
    factor.update(3.0 * matrix.data)
    assert factor.logdet() == pytest.approx(np.linalg.slogdet(3.0 * dense)[1], rel=1e-9, abs=1e-9)
    np.testing.assert_allclose(factor.diagonal_of_inverse(), np.diag(np.linalg.inv(3.0 * dense)), rtol=1e-9)


def test_samples_have_the_right_covariance() -> None:
    matrix, inverse, _ = case("roads", 1, 60)
    factor = analyze(matrix).factorize(matrix.data)
    root = factor.solve_upper(np.eye(matrix.shape[0]))
    np.testing.assert_allclose(root @ root.T, inverse, rtol=1e-9, atol=1e-11)


def test_right_hand_sides_in_any_layout() -> None:
    matrix, inverse, _ = case("roads", 1, 60)
    n = matrix.shape[0]
    factor = analyze(matrix).factorize(matrix.data)
    b = np.random.default_rng(0).standard_normal((2 * n, 150))
    for right in (b, b[:, :1], b[:, :64], b[:, :65]):
        np.testing.assert_allclose(factor.solve(right[:n]), inverse @ right[:n], rtol=1e-8, atol=1e-10)
    for right in (b[::2][:n], np.asfortranarray(b[:n]), b[:n, ::3], b[:n, 0], b[:n, :0]):
        before = right.copy()
        np.testing.assert_allclose(factor.solve(right), inverse @ right, rtol=1e-8, atol=1e-10)
        np.testing.assert_array_equal(right, before)
