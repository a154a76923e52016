"""Markov precisions and differentiable sparse algebra, against the dense reference."""

from __future__ import annotations

import copy
import pickle
from itertools import product
from typing import TYPE_CHECKING

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import graphmatern as gm
from graphmatern.errors import InputError, KernelError, NumericalWarning, ResourceError, TableError
from graphmatern.inference import MarkovPrecision, Observations, Problem, sparse_logdet, sparse_solve
from graphmatern.inference.markov.engine import MarkovEngine
from graphmatern.likelihoods import Gaussian
from graphmatern.sparse import MatrixPolynomial, analyze
from reference import dense_kernel, dense_laplacian, matern_psi
from strategies import graphs

if TYPE_CHECKING:
    from collections.abc import Callable

    from graphmatern.sparse import Analysis


def dense_precision(graph: gm.Graph, nu: int, lengthscale: float, amplitude: float, normalized: bool) -> np.ndarray:
    """A^(1/2) M^ν A^(1/2) / a."""
    shifted = dense_laplacian(graph, normalized=normalized) + 2 * nu / lengthscale**2 * np.eye(graph.n_nodes)
    root = np.ones(graph.n_nodes) if graph.masses is None else np.sqrt(graph.masses)
    return np.asarray(root[:, None] * np.linalg.matrix_power(shifted, nu) * root / amplitude)


def to_dense(values: np.ndarray, analysis: Analysis) -> np.ndarray:
    pattern = analysis.pattern.copy()
    pattern.data = np.asarray(values)
    return np.asarray(pattern.toarray())


def tensor(value: float) -> torch.Tensor:
    return torch.tensor(value, dtype=torch.float64, requires_grad=True)


@settings(max_examples=30)
@given(graph=graphs(masses=True), nu=st.integers(1, 3), normalized=st.booleans())
def test_precision_equals_the_dense_reference(graph: gm.Graph, nu: int, normalized: bool) -> None:
    lengthscale, amplitude = 1.7, 2.5
    precision = MarkovPrecision(graph, nu, normalized=normalized)
    expected = dense_precision(graph, nu, lengthscale, amplitude, normalized)
    scale = np.abs(expected).max()
    values = precision.values(tensor(lengthscale), tensor(amplitude)).detach().numpy()
    np.testing.assert_allclose(to_dense(values, precision.analysis), expected, atol=1e-12 * scale)
    shifted = precision.shifted_values(tensor(lengthscale)).detach().numpy()
    dense_shifted = dense_laplacian(graph, normalized=normalized) + 2 * nu / lengthscale**2 * np.eye(graph.n_nodes)
    np.testing.assert_allclose(to_dense(shifted, precision.shifted.analysis), dense_shifted, atol=1e-12 * scale)
    # The covariance is the kernel; its average variance is tr Q⁻¹ / N.
    lower = precision.polynomial.lower(precision.coefficients(lengthscale, amplitude))
    factor = precision.analysis.factorize_lower(lower)
    kernel = dense_kernel(graph, matern_psi(nu, lengthscale), normalized=normalized)
    variance = factor.diagonal_of_inverse()
    np.testing.assert_allclose(variance / variance.mean(), np.diag(kernel), rtol=1e-9)
    found = precision.logdet(tensor(lengthscale), tensor(amplitude)).item()
    assert found == pytest.approx(np.linalg.slogdet(expected)[1], rel=1e-9, abs=1e-9)
    # Traces with the selected inverse, and quadratic forms.
    inverse = np.linalg.inv(expected)
    root = np.ones(graph.n_nodes) if graph.masses is None else np.sqrt(graph.masses)
    laplacian = dense_laplacian(graph, normalized=normalized)
    powers = [root[:, None] * np.linalg.matrix_power(laplacian, j) * root for j in range(nu + 1)]
    traces = precision.polynomial.traces(factor.selected_inverse())
    np.testing.assert_allclose(traces, [np.trace(inverse @ power) for power in powers], rtol=1e-8, atol=1e-9)
    f = np.random.default_rng(0).standard_normal((graph.n_nodes, 2))
    weighted = root[:, None] * f
    forms = [weighted.T @ np.linalg.matrix_power(dense_shifted, k) @ weighted for k in (nu - 1, nu)]
    found_forms = precision.quadratic_form_matrices(f, precision.shift(lengthscale))
    np.testing.assert_allclose(found_forms, forms, rtol=1e-10, atol=1e-12 * scale)
    # The same in the order of the factor, in which evaluations work.
    selected = factor.selected_inverse()
    np.testing.assert_array_equal(precision.polynomial.traces(selected, nu - 1), traces[:nu])
    np.testing.assert_array_equal(selected.diagonal_ordered()[precision.rank], selected.diagonal())
    ordered = f[precision.analysis.permutation]
    found_forms = precision.quadratic_form_matrices(ordered, precision.shift(lengthscale), ordered=True)
    np.testing.assert_allclose(found_forms, forms, rtol=1e-10, atol=1e-12 * scale)
    for columns in (ordered, ordered[:, :1]):
        solved = np.array(columns, order="C")
        factor.solve_ordered(solved)
        np.testing.assert_allclose(solved[precision.rank], inverse @ f[:, : columns.shape[1]], rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize(("nu", "normalized"), list(product([1, 2, 3], [False, True])))
def test_posterior_precision_and_its_gradients(nu: int, normalized: bool) -> None:
    base = gm.make_roads(14, seed=3)
    graph = gm.Graph.from_edges(base.edges, length="length", masses=np.linspace(0.5, 1.5, base.n_nodes))
    precision = MarkovPrecision(graph, nu, normalized=normalized)
    nodes, noise = np.array([0, 2, 2, 3]), np.array([0.1, 0.2, 0.4, 1.0])
    added = precision.observed(nodes, noise)
    assert added[2] == pytest.approx(1 / 0.2 + 1 / 0.4)
    b = torch.tensor(np.random.default_rng(1).standard_normal((graph.n_nodes, 2)), requires_grad=True)

    def pieces(
        lengthscale: torch.Tensor, amplitude: torch.Tensor, extra: torch.Tensor, b: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        values = precision.with_observations(precision.values(lengthscale, amplitude), extra)
        analysis = precision.analysis
        return (
            precision.logdet(lengthscale, amplitude),
            sparse_logdet(values, analysis),
            sparse_solve(values, b, analysis),
            sparse_solve(values, b[:, 0], analysis),
        )

    inputs = (tensor(1.3), tensor(0.7), torch.tensor(added, requires_grad=True), b)
    assert torch.autograd.gradcheck(pieces, inputs, eps=1e-6, atol=1e-6, rtol=1e-6)
    expected = dense_precision(graph, nu, 1.3, 0.7, normalized) + np.diag(added)
    _, logdet, solution, one = pieces(*inputs)
    assert logdet.item() == pytest.approx(np.linalg.slogdet(expected)[1], rel=1e-10)
    np.testing.assert_allclose(solution.detach(), np.linalg.solve(expected, b.detach()), rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(one.detach(), solution.detach()[:, 0], rtol=1e-12)


def test_gradients_in_every_entry() -> None:
    matrix = MarkovPrecision(gm.make_roads(12, seed=1), 2)
    analysis = matrix.analysis
    values = matrix.values(tensor(2.0), tensor(1.0)).detach()
    lower, mirror = (torch.as_tensor(p.astype(np.int64)) for p in (analysis.lower_positions, analysis.mirror_positions))

    def symmetric(entries: torch.Tensor) -> torch.Tensor:
        return torch.zeros_like(values).index_put((lower,), entries).index_put((mirror,), entries)

    b = torch.linspace(-1, 1, analysis.n, dtype=torch.float64)
    entries = values[lower].requires_grad_()
    assert torch.autograd.gradcheck(lambda e: sparse_logdet(symmetric(e), analysis), (entries,), atol=1e-6)
    assert torch.autograd.gradcheck(lambda e: sparse_solve(symmetric(e), b, analysis), (entries,), atol=1e-6)


def test_lower_values_can_be_written_in_place() -> None:
    precision = MarkovPrecision(gm.make_roads(300, seed=0), 2)
    first, second = (precision.coefficients(kappa, 1.0) for kappa in (2.0, 5.0))
    factor = precision.analysis.factorize_lower(precision.polynomial.lower(first))
    buffer = factor.lower_values
    precision.polynomial.lower(second, out=buffer)
    factor.update_lower()
    fresh = precision.analysis.factorize(precision.polynomial.values(second))
    assert factor.lower_values is buffer
    assert factor.logdet() == pytest.approx(fresh.logdet(), rel=1e-14)
    buffer[:] = np.nan
    with pytest.raises(gm.errors.NotPositiveDefiniteError):
        factor.update_lower()


def test_what_cannot_be_done_is_refused() -> None:
    graph = gm.make_roads(30)
    for nu in (0, 1.5, "2", 10_000):
        with pytest.raises(KernelError, match="`nu` must be a whole number"):
            MarkovPrecision(graph, nu)  # type: ignore[arg-type]
    with pytest.raises(TableError, match="`noise` must be above 0"):
        MarkovPrecision(graph, 1).observed([0], 0.0)
    # The square of a star is dense: 4 million entries, counted before they are formed.
    star = gm.Graph.from_networkx(nx.star_graph(2000))
    with pytest.raises(ResourceError, match=r"power 2 of a matrix of 2,001 rows.*entries"):
        MarkovPrecision(star, 2, memory_limit=20e6)
    assert MarkovPrecision(star, 1, memory_limit=20e6).analysis.nnz_factor < 10_000


def test_polynomials_with_scaling() -> None:
    laplacian = gm.make_roads(40, seed=0).laplacian()
    scaling = np.linspace(1.0, 2.0, laplacian.shape[0])
    polynomial = MatrixPolynomial(laplacian, 3, scaling=scaling)
    coefficients = np.array([0.5, 1.0, -0.25, 2.0])
    dense = laplacian.toarray()
    expected = sum(c * np.linalg.matrix_power(dense, j) for j, c in enumerate(coefficients))
    expected = scaling[:, None] * expected * scaling
    found = to_dense(polynomial.values(coefficients), polynomial.analysis)
    np.testing.assert_allclose(found, expected, atol=1e-10 * np.abs(expected).max())
    assert analyze(polynomial.analysis.pattern).nnz_factor == polynomial.analysis.nnz_factor


def test_compiled_code_never_sees_a_wrong_buffer() -> None:
    matrix = gm.make_roads(40, seed=0).laplacian()
    polynomial = MatrixPolynomial(matrix, 2)
    coefficients = np.array([1.0, 2.0, 1.0])
    factor = polynomial.analysis.factorize_lower(polynomial.lower(coefficients))
    inverse = factor.selected_inverse()
    other = MatrixPolynomial(matrix, 2)
    before = factor.logdet()
    wrong: list[Callable[[], object]] = [
        lambda: inverse.diagonal(out=np.zeros(3)),
        lambda: inverse.diagonal(out=np.zeros(matrix.shape[0], dtype=np.int64)),
        lambda: inverse.on_pattern(out=np.zeros(3)),
        lambda: polynomial.lower(coefficients[:2]),
        lambda: polynomial.lower(coefficients, out=np.zeros(3)),
        lambda: polynomial.lower(coefficients, extra=np.zeros(matrix.shape[0] + 1)),
        lambda: other.traces(inverse),
        lambda: factor.update_lower(np.array([2.0])),
        lambda: MatrixPolynomial(matrix, 0),
        lambda: MatrixPolynomial(matrix, 1, scaling=np.ones(3)),
        lambda: MatrixPolynomial(sp.csc_array(np.array([[2.0, -1.0], [-0.3, 2.0]])), 1),
        lambda: MatrixPolynomial(sp.csc_array(np.array([[2.0, np.nan], [np.nan, 2.0]])), 1),
        lambda: analyze(matrix, n_threads=2.5),  # type: ignore[arg-type]
    ]
    for call in wrong:
        with pytest.raises(InputError):
            call()
    assert factor.logdet() == before  # a refused call changes nothing


def test_polynomials_sum_duplicates_and_copy() -> None:
    data, rows, start = np.array([2.0, -1.0, -0.5, -0.5, 2.0]), np.array([0, 1, 0, 0, 1]), np.array([0, 2, 5])
    matrix = sp.csc_array((data, rows, start), shape=(2, 2))
    polynomial = MatrixPolynomial(matrix, 1)
    found = to_dense(polynomial.values(np.array([0.0, 1.0])), polynomial.analysis)
    assert found.tolist() == [[2.0, -1.0], [-1.0, 2.0]]
    assert matrix.nnz == 5
    pattern = sp.csc_array(np.ones((4, 4)))
    analysis = analyze(pattern)
    pattern.indices[:] = 0
    assert analysis.pattern.toarray().tolist() == np.ones((4, 4)).tolist()


def test_copies_of_factors_stand_alone() -> None:
    precision = MarkovPrecision(gm.make_roads(60, seed=0), 1)
    lower = precision.polynomial.lower(precision.coefficients(2.0, 1.0))
    factor = precision.analysis.factorize_lower(lower)
    for twin in (copy.copy(factor), copy.deepcopy(factor), pickle.loads(pickle.dumps(factor))):
        expected = twin.logdet()
        factor.update_lower(10.0 * lower)
        assert twin.logdet() == expected
        factor.update_lower(lower)
        np.testing.assert_allclose(twin.solve(np.ones(twin.analysis.n)), factor.solve(np.ones(factor.analysis.n)))


def test_observations_must_be_positions() -> None:
    precision = MarkovPrecision(gm.make_roads(30), 1)
    for nodes in ([-1], [1.7], [10_000], np.arange(27) > 20, ["a"]):
        with pytest.raises(TableError, match="`nodes` must be positions of nodes"):
            precision.observed(nodes, 1.0)
    with pytest.raises(TableError, match="one for each observation"):
        precision.observed([0, 1], [1.0, 2.0, 3.0])


def test_precision_of_numbers() -> None:
    precision = MarkovPrecision(gm.make_roads(60, seed=0), 3)
    single = precision.values(torch.tensor(10.0), torch.tensor(1.0))
    assert single.dtype == torch.float64
    values = precision.values(tensor(2.0), tensor(1.0)).detach()
    whole = sparse_solve(values, torch.arange(precision.analysis.n), precision.analysis)
    assert whole.dtype == torch.float64
    for lengthscale, amplitude in ((0.0, 1.0), (-1.0, 1.0), (1.0, 0.0), (float("nan"), 1.0)):
        with pytest.raises(KernelError, match="must be a positive, finite number"):
            precision.coefficients(lengthscale, amplitude)


def test_ill_conditioning_is_said() -> None:
    graph = gm.make_roads(400, seed=0)
    precision = MarkovPrecision(graph, 3)
    exact = gm.Matern(3, 300.0).on(graph).diag().detach().numpy()
    variance = precision.analysis.factorize_lower(
        precision.polynomial.lower(precision.coefficients(300.0, 1.0))
    ).diagonal_of_inverse()
    error = np.abs(variance / variance.mean() / (exact / exact.mean()) - 1.0).max()
    assert error < precision.relative_error(300.0)
    with pytest.warns(NumericalWarning, match="estimated relative error"):
        precision.warn_if_inaccurate(300.0)
    assert precision.relative_error(precision.longest_lengthscale(1e-3)) == pytest.approx(1e-3, rel=0.01)
    precision.warn_if_inaccurate(2.0)  # silent


@pytest.mark.parametrize("columns", [1, 7, 16, 33])
def test_solves_in_the_order_of_the_factor(columns: int) -> None:
    precision = MarkovPrecision(gm.make_roads(200, seed=0), 1, n_threads=2)
    analysis = precision.analysis
    factor = analysis.factorize_lower(precision.polynomial.lower(precision.coefficients(2.0, 1.0)))
    b = np.random.default_rng(0).standard_normal((analysis.n, columns))
    x = np.ascontiguousarray(b[analysis.permutation])
    factor.solve_ordered(x, times=2)
    np.testing.assert_allclose(x, factor.solve(factor.solve(b))[analysis.permutation], rtol=1e-12, atol=1e-13)
    for wrong in (x[:-1], x[:, 0], np.asfortranarray(np.ones((analysis.n, 2))), x.astype(np.float32)):
        with pytest.raises(InputError):
            factor.solve_ordered(wrong)  # type: ignore[arg-type]


def test_prior_and_posterior_share_memory_without_harm() -> None:
    """What was asked of the prior at other parameters does not show in what is said of the posterior."""
    graph = gm.make_roads(150, seed=2)
    seen = np.arange(0, graph.n_nodes, 3)
    observations = Observations(seen, np.sin(seen)[:, None], np.zeros((graph.n_nodes, 0)))
    problem = Problem(graph, gm.Matern(1, 3.0), Gaussian(), observations, False)
    engine = MarkovEngine(problem, observations.groups, 1)
    precision = np.full(len(seen), 10.0)
    process = engine.at(engine.start)
    process.condition(0, precision)
    engine.average_variance(engine.start + 0.3)
    found = process.predictive(0, precision).variances(np.arange(graph.n_nodes))
    prior = dense_precision(graph, 1, process.lengthscale, process.amplitude, False)
    expected = np.diag(np.linalg.inv(prior + np.diag(np.isin(np.arange(graph.n_nodes), seen) * 10.0)))
    assert np.allclose(found, expected, rtol=1e-10)


def test_large_precisions_are_analysed_by_two_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = gm.make_roads(80, seed=1)
    alone = MarkovPrecision(graph, 3)
    monkeypatch.setattr("graphmatern.inference.markov.precision._MANY_NODES", 0)
    beside = MarkovPrecision(graph, 3)
    for one, other in ((alone.polynomial, beside.polynomial), (alone.shifted, beside.shifted)):
        assert np.array_equal(one.analysis.permutation, other.analysis.permutation)
        assert one.degree == other.degree
        coefficients = np.arange(1.0, one.degree + 2.0)
        assert np.array_equal(one.values(coefficients), other.values(coefficients))
