"""Memory: bounded for every shape of tree, predicted, and reused."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from graphmatern.errors import ResourceError
from graphmatern.sparse import _analysis, _pattern, analyze, power_nnz, predict_cost
from graphs_zoo import KINDS, SHAPES, precision

#: Working memory may be this multiple of the entries of the panels.
MULTIPLE = 3.0


def orderings(n: int) -> dict[str, Any]:
    return {
        "minimum_degree": "minimum_degree",
        "metis": "metis",
        "natural": "natural",
        "reversed": np.arange(n)[::-1],
    }


@pytest.mark.parametrize("n_threads", [1, 2])
@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.usefixtures("eager_threads")
def test_working_memory_is_a_small_multiple_of_the_factor(kind: str, n_threads: int) -> None:
    for nu in (1, 2):
        if nu == 2 and kind in ("star", "wheel"):
            continue  # the square of a star is dense
        matrix = precision(SHAPES[kind](6000), nu)
        for name, ordering in orderings(matrix.shape[0]).items():
            if name == "natural" and kind == "star":
                continue  # the centre first: dense
            analysis = analyze(matrix, ordering=ordering, n_threads=n_threads)
            assert analysis.working_entries <= MULTIPLE * analysis.n_entries + 20_000, (nu, name)


@pytest.mark.parametrize("nu", [2, 3])
def test_bad_orderings(nu: int) -> None:
    """The ordering of Δ reused for its powers: without care, a hundred times the memory of the factor."""
    graph = KINDS["roads"](4000)
    bad = analyze(precision(graph, 1), ordering="minimum_degree").permutation
    matrix = precision(graph, nu)
    for n_threads in (1, 2):
        analysis = analyze(matrix, ordering=bad, n_threads=n_threads)
        assert analysis.working_entries <= MULTIPLE * analysis.n_entries


def test_binary_tree_below_a_clique() -> None:
    """Every subtree leaves an update matrix as large as the clique: without a bound, they would all wait."""
    r, n = 120, 1023
    clique = np.ones((n + r, n + r))
    clique[:n, :n] = SHAPES["binary_tree"](n).toarray() + np.eye(n)
    pattern = sp.csc_array(clique)
    pattern.data[:] = 0.1
    pattern.setdiag(200.0)
    order = np.concatenate([np.arange(n)[::-1], np.arange(n, n + r)])
    analysis = analyze(pattern, ordering=order, n_threads=1)
    assert analysis.working_entries <= MULTIPLE * analysis.n_entries
    factor = analysis.factorize(pattern.data)
    np.testing.assert_allclose(factor.diagonal_of_inverse(), np.diag(np.linalg.inv(pattern.toarray())), rtol=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_panels_are_not_much_larger_than_the_factor(kind: str) -> None:
    analysis = analyze(precision(KINDS[kind](3000), 2))
    assert analysis.n_entries <= 2.2 * analysis.nnz_factor


@pytest.mark.usefixtures("eager_threads")
def test_update_and_selected_inverse_allocate_nothing_the_second_time() -> None:
    matrix = precision(KINDS["grid"](2500), 2)
    analysis = analyze(matrix, n_threads=2)
    factor = analysis.factorize(matrix.data)
    inverse = factor.selected_inverse()
    values = inverse.on_pattern()
    panels, stack = factor._panels.ctypes.data, factor._work.stack.ctypes.data
    factor.update(matrix.data)
    factor.selected_inverse(out=inverse).trace(matrix.data)  # loads the compiled code
    tracemalloc.start()
    try:
        for _ in range(2):
            factor.update(matrix.data)
            assert factor.selected_inverse(out=inverse) is inverse
            inverse.on_pattern(out=values)
            inverse.trace(matrix.data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 100_000 < 8 * analysis.n_entries / 5
    assert (factor._panels.ctypes.data, factor._work.stack.ctypes.data) == (panels, stack)


def test_the_gate_names_what_would_be_needed() -> None:
    matrix = precision(KINDS["grid"](900), 2)
    cost = predict_cost(matrix)
    analysis = analyze(matrix)
    assert (cost.nnz_factor, cost.flops) == (analysis.nnz_factor, analysis.flops)
    assert isinstance(analysis.nnz_factor, int)
    assert isinstance(analysis.memory_bytes, int)
    with pytest.raises(ResourceError, match=f"{analysis.nnz_factor:,} entries.*operations.*memory.*limit is"):
        analyze(matrix, memory_limit=1000)
    with pytest.raises(ResourceError, match="max_seconds"):
        analyze(matrix, max_seconds=1e-9)
    # A limit between the first estimate and the exact figure is noticed as well.
    with pytest.raises(ResourceError):
        analyze(matrix, memory_limit=analysis.memory_bytes - 1)
    analyze(matrix, memory_limit=max(analysis.memory_bytes, cost.memory_bytes))


def test_counts_match_a_dense_factorisation() -> None:
    matrix = precision(KINDS["roads"](300), 2)
    analysis = analyze(matrix, ordering="minimum_degree")
    # With random positive values no entry cancels.
    pattern = matrix.copy()
    pattern.data = np.random.default_rng(0).random(matrix.nnz)
    dense = np.abs(pattern.toarray() + pattern.toarray().T) + 1000 * np.eye(matrix.shape[0])
    lower = np.linalg.cholesky(dense[np.ix_(analysis.permutation, analysis.permutation)])
    columns = (lower != 0).sum(0)
    assert analysis.nnz_factor <= columns.sum() + 1
    assert analysis.flops >= 0.9 * (columns.astype(float) ** 2).sum()


def test_a_dense_problem_is_refused_before_it_is_formed() -> None:
    graph = SHAPES["star"](200_000)
    pattern = sp.csc_array(graph + sp.eye_array(200_000))
    assert power_nnz(pattern, 1) == 3 * 200_000 - 2
    assert power_nnz(pattern, 2, limit=10**7) > 10**7


@pytest.mark.parametrize("kind", [*KINDS, "path", "star"])
def test_power_nnz_counts_exactly(kind: str) -> None:
    graph = {**KINDS, **SHAPES}[kind](300)
    pattern = sp.csc_array(graph + sp.eye_array(graph.shape[0]))
    power = sp.eye_array(graph.shape[0])
    for nu in range(4):
        assert power_nnz(pattern, nu) == power.nnz
        power = power @ pattern


def test_offsets_are_wide(monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = precision(KINDS["roads"](300), 1)
    analysis = analyze(matrix)
    structure = analysis._structure
    for array in (structure.panel, structure.offset, structure.row_start, structure.entry_start):
        assert array.dtype == np.int64
    assert analysis.lower_positions.dtype == np.int32
    expected = analysis.factorize(matrix.data).logdet()
    # Positions in the values become wide when they must.
    monkeypatch.setattr(_pattern, "INT32_LIMIT", matrix.shape[0])
    wide = analyze(matrix)
    assert wide.lower_positions.dtype == np.int64
    assert wide.factorize(matrix.data).logdet() == expected
    with pytest.raises(ResourceError, match="METIS cannot"):
        analyze(matrix, ordering="metis")
    monkeypatch.setattr(_pattern, "INT32_LIMIT", matrix.shape[0] - 1)
    with pytest.raises(ResourceError, match="rows exceeds"):
        analyze(matrix)
    monkeypatch.undo()
    monkeypatch.setattr(_analysis, "MAX_ENTRIES", 100)
    with pytest.raises(ResourceError, match="offsets"):
        analyze(matrix)


def test_offsets_beyond_two_to_the_31() -> None:
    """The layout of a factor of more than 2**31 entries, without its numbers."""
    from graphmatern.sparse._structure import make_plan

    width = 30_000  # four panels of 9e8 entries
    start = np.arange(5, dtype=np.int64) * width
    height = np.array([2 * width, 2 * width, 2 * width, width], np.int32)
    tree = np.array([1, 2, 3, -1], np.int32)
    child_start = np.array([0, 0, 1, 2, 3], np.int64)
    plan = make_plan(start, height, tree, child_start, np.array([0, 1, 2], np.int32), 7 * width**2, 1)
    assert plan.top_stack >= 2 * width**2 > 2**30
    assert plan.offset.min() >= 0
    assert plan.offset.max() + width**2 <= plan.top_stack
