"""Wrong input: a typed error that says what is wrong, or the right answer."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from graphmatern.errors import InputError, NotPositiveDefiniteError, NumericalError
from graphmatern.sparse import analyze
from graphs_zoo import KINDS, SHAPES, precision


@pytest.fixture
def matrix() -> sp.csc_array:
    return precision(KINDS["roads"](200), 1)


def position(matrix: sp.csc_array, i: int, j: int) -> int:
    return int(matrix.indptr[j] + np.flatnonzero(matrix.indices[matrix.indptr[j] : matrix.indptr[j + 1]] == i)[0])


def first_pair(matrix: sp.csc_array) -> tuple[int, int]:
    entries = matrix.tocoo()
    k = int(np.flatnonzero(entries.row > entries.col)[0])
    return int(entries.row[k]), int(entries.col[k])


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("where", ["lower", "upper", "both", "diagonal"])
def test_values_that_are_not_finite(matrix: sp.csc_array, bad: float, where: str) -> None:
    analysis = analyze(matrix)
    i, j = first_pair(matrix)
    places = {"lower": [(i, j)], "upper": [(j, i)], "both": [(i, j), (j, i)], "diagonal": [(i, i)]}[where]
    values = matrix.data.copy()
    for place in places:
        values[position(matrix, *place)] = bad
    with pytest.raises(InputError, match="must be finite"):
        analysis.factorize(values)


def test_asymmetric_values(matrix: sp.csc_array) -> None:
    analysis = analyze(matrix)
    i, j = first_pair(matrix)
    for place in ((i, j), (j, i)):
        values = matrix.data.copy()
        values[position(matrix, *place)] += 1e-3
        with pytest.raises(InputError, match=rf"must be symmetric.*\({i}, {j}\)|\({j}, {i}\)"):
            analysis.factorize(values)
        analysis.factorize(values, check=False)
        values[position(matrix, *place)] = matrix.data[position(matrix, *place)] + 1e-14
        analysis.factorize(values)  # rounding is not asymmetry
    # Nor is rounding in an entry that is zero but for it.
    values = matrix.data.copy()
    values[position(matrix, i, j)] = 0.0
    values[position(matrix, j, i)] = 1e-15
    analysis.factorize(values)


def test_indefinite_matrices(matrix: sp.csc_array) -> None:
    analysis = analyze(matrix)
    for node in (0, 57, matrix.shape[0] - 1):
        values = matrix.data.copy()
        values[position(matrix, node, node)] = -5.0
        with pytest.raises(NotPositiveDefiniteError, match=r"\(a\).*\(b\).*\(c\)") as caught:
            analysis.factorize(values)
        assert caught.value.column == node


def test_the_column_is_in_the_callers_ordering() -> None:
    matrix = sp.csc_array(sp.diags_array(np.ones(50)))
    matrix.data[31] = -1.0
    with pytest.raises(NotPositiveDefiniteError) as caught:
        analyze(matrix).factorize(matrix.data)
    assert caught.value.column == 31


@pytest.mark.parametrize("kind", [*KINDS, *SHAPES])
def test_singular_laplacians(kind: str) -> None:
    graph = {**KINDS, **SHAPES}[kind](500)
    for weights in (1.0, 0.1, 1 / 3):
        laplacian = sp.csc_array(sp.diags_array(np.asarray(graph.sum(1)).ravel()) - graph) * weights
        laplacian.sort_indices()
        with pytest.raises(NotPositiveDefiniteError):
            analyze(laplacian).factorize(laplacian.data)


@pytest.mark.parametrize("n_threads", [1, 2])
@pytest.mark.usefixtures("eager_threads")
def test_a_failed_update_can_be_recovered_from(n_threads: int) -> None:
    matrix = precision(KINDS["grid"](400), 2)
    analysis = analyze(matrix, n_threads=n_threads)
    factor = analysis.factorize(matrix.data)
    expected = factor.logdet()
    with pytest.raises(NotPositiveDefiniteError):
        factor.update(-matrix.data)
    for use in (
        factor.logdet,
        factor.selected_inverse,
        factor.diagonal_of_inverse,
        lambda: factor.solve(np.ones(400)),
    ):
        with pytest.raises(NumericalError, match="last update failed"):
            use()
    factor.update(matrix.data)
    assert factor.logdet() == expected


def test_patterns_at_fault() -> None:
    with pytest.raises(InputError, match="sparse"):
        analyze(np.eye(3))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="square"):
        analyze(sp.csc_array((2, 3)))
    one_way = sp.csc_array(np.array([[1.0, 1.0], [0.0, 1.0]]))
    with pytest.raises(InputError, match="symmetric"):
        analyze(one_way)
    hollow = sp.csc_array(np.array([[1.0, 1.0], [1.0, 0.0]]))
    with pytest.raises(InputError, match=r"diagonal.*\(1, 1\)"):
        analyze(hollow)
    eye = sp.eye_array(4, format="csc")
    with pytest.raises(InputError, match="minimum_degree"):
        analyze(eye, ordering="amd")
    for ordering in ([0, 1, 2], [0, 1, 2, 2], [0.0, 1.0, 2.0, 3.0], [[0, 1, 2, 3]]):
        with pytest.raises(InputError, match="permutation"):
            analyze(eye, ordering=ordering)
    with pytest.raises(InputError, match="n_threads"):
        analyze(eye, n_threads=0)


def test_formats_of_the_pattern() -> None:
    matrix = precision(KINDS["roads"](100), 1)
    expected = analyze(matrix).factorize(matrix.data).logdet()
    shuffled = matrix.copy()
    for j in range(matrix.shape[0]):
        a, b = matrix.indptr[j : j + 2]
        shuffled.indices[a:b] = matrix.indices[a:b][::-1]
    shuffled.has_sorted_indices = False
    repeated = sp.coo_array(matrix)
    repeated = sp.coo_array(
        (np.tile(repeated.data, 2), (np.tile(repeated.row, 2), np.tile(repeated.col, 2))), shape=matrix.shape
    )
    before = shuffled.indices.copy()
    for pattern in (
        matrix.tocsr(),
        matrix.tocoo(),
        sp.csc_matrix(matrix),
        shuffled,
        repeated,
        matrix.astype(bool),
    ):
        analysis = analyze(pattern)
        np.testing.assert_array_equal(analysis.pattern.indices, matrix.indices)
        np.testing.assert_array_equal(analysis.pattern.indptr, matrix.indptr)
        assert analysis.factorize(matrix.data).logdet() == pytest.approx(expected)
    np.testing.assert_array_equal(shuffled.indices, before)


def test_values_and_right_hand_sides_of_wrong_shape(matrix: sp.csc_array) -> None:
    analysis = analyze(matrix)
    for values in (matrix.data[:-1], matrix.data[None], matrix.data.astype(complex), ["a"]):
        with pytest.raises(InputError, match="values"):
            analysis.factorize(values)
    factor = analysis.factorize(matrix.data.astype(np.float32).astype(np.float64))
    n = matrix.shape[0]
    for b in (np.ones(n + 1), np.ones((2, n)), np.ones((n, 2, 2)), np.ones(n, complex)):
        with pytest.raises(InputError, match="`b`"):
            factor.solve(b)
    other = analyze(matrix).factorize(matrix.data)
    with pytest.raises(InputError, match="same analysis"):
        factor.selected_inverse(out=other.selected_inverse())


def test_empty_and_tiny_matrices() -> None:
    empty = sp.csc_array((0, 0))
    for ordering in ("auto", "metis", "minimum_degree", "natural"):
        factor = analyze(empty, ordering=ordering).factorize(empty.data)
        assert factor.logdet() == 0.0
        assert factor.solve(np.empty(0)).shape == (0,)
        assert factor.solve(np.empty((0, 3))).shape == (0, 3)
        assert factor.diagonal_of_inverse().shape == (0,)
        assert factor.selected_inverse().to_csc().shape == (0, 0)
        one = sp.csc_array([[4.0]])
        factor = analyze(one, ordering=ordering).factorize(one.data)
        assert factor.logdet() == pytest.approx(np.log(4.0))
        assert factor.solve([2.0]) == pytest.approx([0.5])
        assert factor.diagonal_of_inverse() == pytest.approx([0.25])
        diagonal = sp.csc_array(sp.diags_array(np.arange(1.0, 6.0)))
        factor = analyze(diagonal, ordering=ordering).factorize(diagonal.data)
        assert factor.diagonal_of_inverse() == pytest.approx(1 / np.arange(1.0, 6.0))


def test_the_square_of_a_star_is_dense_and_right() -> None:
    matrix = precision(SHAPES["star"](300), 2)
    assert matrix.nnz == 300 * 300
    factor = analyze(matrix).factorize(matrix.data)
    np.testing.assert_allclose(factor.diagonal_of_inverse(), np.diag(np.linalg.inv(matrix.toarray())), rtol=1e-9)


def test_positions_let_a_caller_write_values(matrix: sp.csc_array) -> None:
    analysis = analyze(matrix)
    columns = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    np.testing.assert_array_equal(matrix.indices[analysis.diagonal_positions], np.arange(matrix.shape[0]))
    np.testing.assert_array_equal(columns[analysis.diagonal_positions], np.arange(matrix.shape[0]))
    lower, mirror = analysis.lower_positions, analysis.mirror_positions
    np.testing.assert_array_equal(matrix.indices[lower], columns[mirror])
    np.testing.assert_array_equal(columns[lower], matrix.indices[mirror])
    assert len(np.union1d(lower, mirror)) == matrix.nnz
