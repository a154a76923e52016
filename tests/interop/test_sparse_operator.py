"""The sparse-precision operator: linear_operator's own contract, gradients, a dense twin, and no dense matrices."""

from __future__ import annotations

import pickle
import unittest
from typing import Any

import linear_operator
import numpy as np
import pytest
import torch
from linear_operator.operators import DiagLinearOperator, LinearOperator
from linear_operator.test.linear_operator_test_case import LinearOperatorTestCase

import graphmatern as gm
from graphmatern.inference import MarkovPrecision
from graphmatern.interop import SparsePrecisionLinearOperator
from graphmatern.sparse import analyze
from graphs_zoo import KINDS, precision
from reference import dense_laplacian

# linear_operator's slices of operators make sparse tensors in a way of which torch warns once.
pytestmark = pytest.mark.filterwarnings("ignore:Sparse invariant checks:UserWarning")

MATRIX = precision(KINDS["roads"](25), 1, condition=50.0)
ANALYSIS = analyze(MATRIX)


def dense(operator: SparsePrecisionLinearOperator) -> torch.Tensor:
    """The symmetric part of the values on the pattern, entry by entry."""
    pattern = operator.analysis.pattern
    total = torch.zeros(*operator.batch_shape, *pattern.shape, dtype=operator.dtype)
    for j in range(pattern.shape[1]):
        for p in range(pattern.indptr[j], pattern.indptr[j + 1]):
            unit = torch.zeros(pattern.shape, dtype=operator.dtype)
            unit[pattern.indices[p], j] = 1.0
            total = total + operator.values[..., p, None, None] * unit
    return 0.5 * (total + total.mT)


class _Contract(LinearOperatorTestCase):  # type: ignore[misc]
    """Exceptions to linear_operator's contract, each with its reason.

    - ``should_call_cg = False``: solutions and log-determinants are direct, so conjugate gradients, whose use the
      contract looks for, are never called.

    Everything else holds as the library states it, samples included.
    """

    seed = 0
    should_test_sample = True
    should_call_cg = False
    batch: tuple[int, ...] = ()

    def setUp(self) -> None:
        # BoTorch changes these preferences for the whole process where it is imported; the contract is about defaults.
        preferences = linear_operator.settings.fast_computations(True, True, True)
        preferences.__enter__()
        self.addCleanup(preferences.__exit__)
        super().setUp()

    def create_linear_op(self) -> SparsePrecisionLinearOperator:
        values = torch.tensor(MATRIX.data, dtype=torch.float32)
        scale = 1.0 + torch.arange(int(np.prod(self.batch)), dtype=torch.float32).reshape(*self.batch, 1) / 5.0
        return SparsePrecisionLinearOperator((values * scale).requires_grad_(), ANALYSIS)

    def evaluate_linear_op(self, linear_op: Any) -> torch.Tensor:
        return dense(linear_op)


class TestContract(_Contract, unittest.TestCase):
    pass


class TestBatchContract(_Contract, unittest.TestCase):
    batch = (2,)


class TestMultiBatchContract(_Contract, unittest.TestCase):
    batch = (2, 3)


del _Contract


def operator(batch: tuple[int, ...] = (), seed: int = 0) -> SparsePrecisionLinearOperator:
    rng = np.random.default_rng(seed)
    values = torch.tensor(MATRIX.data * rng.uniform(1.0, 2.0, (*batch, 1)), requires_grad=True)
    return SparsePrecisionLinearOperator(values, ANALYSIS)


@pytest.mark.parametrize("batch", [(), (2,), (2, 3)])
def test_agrees_with_a_dense_twin(batch: tuple[int, ...]) -> None:
    one, matrix = operator(batch), dense(operator(batch)).detach()
    rhs = torch.as_tensor(np.random.default_rng(1).standard_normal((*batch, one.shape[-1], 4)))
    np.testing.assert_allclose(one.solve(rhs).detach(), torch.linalg.solve(matrix, rhs), atol=1e-10)
    np.testing.assert_allclose(one.logdet().detach(), torch.logdet(matrix), atol=1e-10)
    form, log_determinant = one.inv_quad_logdet(rhs, logdet=True)
    np.testing.assert_allclose(form.detach(), (rhs * torch.linalg.solve(matrix, rhs)).sum(dim=(-1, -2)), atol=1e-10)
    np.testing.assert_allclose(log_determinant.detach(), torch.logdet(matrix), atol=1e-10)
    np.testing.assert_allclose(one.diagonal().detach(), torch.diagonal(matrix, dim1=-1, dim2=-2), atol=1e-12)


@pytest.mark.parametrize("batch", [(), (2,)])
def test_gradcheck(batch: tuple[int, ...]) -> None:
    rng = np.random.default_rng(2)
    n = ANALYSIS.n
    values = torch.tensor(MATRIX.data * rng.uniform(1.0, 1.2, (*batch, len(MATRIX.data))), requires_grad=True)
    rhs = torch.tensor(rng.standard_normal((*batch, n, 2)), requires_grad=True)
    left = torch.tensor(rng.standard_normal((*batch, 3, n)), requires_grad=True)

    def make(v: torch.Tensor) -> SparsePrecisionLinearOperator:
        return SparsePrecisionLinearOperator(v, ANALYSIS)

    check = torch.autograd.gradcheck
    assert check(lambda v, r: make(v).solve(r), (values, rhs))
    assert check(lambda v, r, x: make(v).solve(r, x), (values, rhs, left))
    assert check(lambda v: make(v).logdet(), (values,))
    assert check(lambda v, r: make(v).inv_quad_logdet(r, logdet=True), (values, rhs))
    assert check(lambda v, r: make(v).inv_quad_logdet(r, logdet=True, reduce_inv_quad=False), (values, rhs))
    assert check(lambda v, r: make(v) @ r, (values, rhs))
    assert check(lambda v: make(v).add_diagonal(torch.ones(n).double()).logdet(), (values,))
    assert check(lambda v: make(v).to_dense(), (values,))


def test_marginal_likelihood_of_a_markov_process() -> None:
    """From operators alone: log p(y) and its gradient, equal to the dense covariance's."""
    graph = gm.make_roads(60, seed=0)
    n = graph.n_nodes
    markov = MarkovPrecision(graph, nu=2)
    y = torch.as_tensor(np.random.default_rng(0).standard_normal(n))
    parameters = torch.tensor([2.0, 0.7, 0.3], dtype=torch.float64, requires_grad=True)
    laplacian = torch.as_tensor(dense_laplacian(graph, normalized=False))

    def sparse(p: torch.Tensor) -> Any:
        lengthscale, amplitude, noise = p
        q = SparsePrecisionLinearOperator.from_markov(markov, lengthscale, amplitude)
        posterior = q + DiagLinearOperator((1.0 / noise).expand(n))
        assert isinstance(posterior, SparsePrecisionLinearOperator)
        form, log_posterior = posterior.inv_quad_logdet((y / noise)[:, None], logdet=True)
        quadratic = y @ y / noise - form
        log_det = log_posterior - q.logdet() + n * torch.log(noise)
        return -0.5 * (quadratic + log_det + n * np.log(2 * np.pi))

    def full(p: torch.Tensor) -> Any:
        lengthscale, amplitude, noise = p
        eye = torch.eye(n).double()
        m = 4.0 / lengthscale**2 * eye + laplacian
        covariance = amplitude * torch.linalg.inv(m @ m) + noise * eye
        form = y @ torch.linalg.solve(covariance, y)
        return -0.5 * (form + torch.logdet(covariance) + n * np.log(2 * np.pi))

    ours, theirs = sparse(parameters), full(parameters)
    assert ours.item() == pytest.approx(theirs.item(), abs=1e-8)
    found = torch.autograd.grad(ours, parameters)[0]
    expected = torch.autograd.grad(theirs, parameters)[0]
    np.testing.assert_allclose(found, expected, rtol=1e-8)


def test_sums_and_multiples_stay_sparse() -> None:
    one = operator()
    kinds: list[Any] = [one + one, 2.0 * one, one * torch.tensor(3.0).double(), one.add_jitter(0.1)]
    kinds += [one + DiagLinearOperator(torch.ones(one.shape[-1]).double()), one.mT]
    assert all(isinstance(kind, SparsePrecisionLinearOperator) for kind in kinds)


def test_nothing_dense_on_a_large_graph() -> None:
    """20,000 nodes: a dense matrix would have 4e8 entries."""
    graph = gm.make_roads(20_000, seed=0)
    markov = MarkovPrecision(graph, nu=1)
    lengthscale = torch.tensor(5.0, dtype=torch.float64, requires_grad=True)
    q = SparsePrecisionLinearOperator.from_markov(markov, lengthscale, torch.tensor(1.0))
    b = torch.ones(q.shape[-1], 2, dtype=torch.float64)
    x = q.solve(b)
    np.testing.assert_allclose((q @ x).detach(), b, atol=1e-8)
    q.inv_quad_logdet(b, logdet=True)[1].backward()  # type: ignore[no-untyped-call]
    assert lengthscale.grad is not None
    assert lengthscale.grad.isfinite()


def test_entries_outside_the_pattern_are_zero() -> None:
    one = operator()
    i, j = torch.arange(one.shape[-1]), torch.zeros(one.shape[-1], dtype=torch.int64)
    np.testing.assert_allclose(one[i, j].detach(), dense(one)[:, 0].detach())


def test_pickle_with_a_factor() -> None:
    one = operator()
    one.logdet()
    other = pickle.loads(pickle.dumps(one.detach()))
    np.testing.assert_allclose(other.logdet(), one.logdet().detach())


def test_wrong_values() -> None:
    with pytest.raises(ValueError, match=r"values must be a tensor of shape \(\.\.\., "):
        SparsePrecisionLinearOperator(torch.ones(3), ANALYSIS)
    with pytest.raises(RuntimeError, match="does not fit"):
        operator().solve(torch.ones(3, 1).double())
    assert issubclass(SparsePrecisionLinearOperator, LinearOperator)
