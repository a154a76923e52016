"""Block matrices on the analysis of one pattern, against dense matrices; pivots of both signs."""

from __future__ import annotations

import numpy as np
import pytest

import graphmatern as gm
from graphmatern.errors import NotPositiveDefiniteError, ResourceError
from graphmatern.sparse import BlockAnalysis, analyze

#: Signs of the pivots, and coefficients of a quasi-definite pencil with those signs.
PENCILS = {
    "positive": ((1, 1), np.eye(2), np.array([[1.0, 0.3], [0.3, 0.5]])),
    "quasi-definite": (
        (-1, -1, 1),
        np.diag([-1.0, -1.0, 0.7]),
        np.array([[-0.2, 0, 0.4], [0, -0.6, 0.5], [0.4, 0.5, 1]]),
    ),
    "alternating": ((1, -1, 1), np.diag([1.0, -0.5, 0.8]), np.array([[0.3, 0.5, 0], [0.5, -0.1, 0.7], [0, 0.7, 0.9]])),
}


@pytest.mark.usefixtures("eager_threads")
@pytest.mark.parametrize("n_threads", [1, 2])
@pytest.mark.parametrize("size", [12, 330])
@pytest.mark.parametrize("name", PENCILS)
def test_against_dense(name: str, size: int, n_threads: int) -> None:
    signs, constant, linear = PENCILS[name]
    laplacian = gm.make_roads(size, seed=2).laplacian()
    n, p, rng = laplacian.shape[0], len(signs), np.random.default_rng(0)
    base = analyze(laplacian, n_threads=n_threads, unknowns=p)
    values, output = laplacian.data[base.lower_positions], np.zeros(p)
    output[-1] = 1.3
    added = np.where(rng.random(n) < 0.3, rng.exponential(2.0, n), 0.0)
    blocks = BlockAnalysis(base, signs)
    factor = blocks.factorize(constant, linear, output, values, added)
    ordered = laplacian.toarray()[np.ix_(base.permutation, base.permutation)]
    dense = np.kron(constant, np.eye(n)) + np.kron(linear, ordered) + np.kron(np.outer(output, output), np.diag(added))
    inverse = np.linalg.inv(dense)
    places = blocks.places.T.ravel()  # of unknown a of node j, at a n + j
    assert factor.logdet() == pytest.approx(np.linalg.slogdet(dense)[1], abs=1e-9)
    for k in (1, 40):
        right = rng.standard_normal((n * p, k))
        x = np.empty_like(right)
        x[places] = right
        factor.solve_ordered(x)
        np.testing.assert_allclose(x[places], inverse @ right, atol=1e-9)
    selected = factor.selected_inverse()
    z = inverse.reshape(p, n, p, n)
    plain, weighted, mixed = selected.traces(values, added, np.ones((p, p)))
    np.testing.assert_allclose(plain, np.einsum("ajbj->ab", z), atol=1e-8)
    np.testing.assert_allclose(weighted, np.einsum("j,ajbj->ab", added, z), atol=1e-8)
    np.testing.assert_allclose(mixed, np.einsum("ij,aibj->ab", ordered, z), atol=1e-8)
    seen = np.einsum("a,aibj,b->ij", output, z, output)
    np.testing.assert_allclose(selected.output_diagonal(output), np.diag(seen), atol=1e-10)
    rank = np.argsort(base.permutation)
    pattern = base.pattern
    columns = np.repeat(np.arange(n), np.diff(pattern.indptr))[base.lower_positions]
    rows = pattern.indices[base.lower_positions]
    np.testing.assert_allclose(selected.output_lower(output), seen[rank[rows], rank[columns]], atol=1e-10)
    # Again, in the same memory.
    factor.update_blocks(constant, linear, output, values, 2.0 * added)
    more = dense + np.kron(np.outer(output, output), np.diag(added))
    assert factor.logdet() == pytest.approx(np.linalg.slogdet(more)[1], abs=1e-9)


def test_pivots_of_the_wrong_sign_are_refused() -> None:
    signs, constant, linear = PENCILS["quasi-definite"]
    laplacian = gm.make_roads(30, seed=2).laplacian()
    base = analyze(laplacian)
    values, output = laplacian.data[base.lower_positions], np.array([0.0, 0.0, 1.0])
    with pytest.raises(NotPositiveDefiniteError, match="wrong sign"):
        BlockAnalysis(base, signs).factorize(-constant, linear, output, values, np.zeros(base.n))
    with pytest.raises(ResourceError):
        BlockAnalysis(base, (1,) * 9, memory_limit=1e4)
