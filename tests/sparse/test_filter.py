"""Chebyshev filters, against dense polynomials."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from graphmatern.sparse import ChebyshevFilter


@pytest.mark.parametrize("n_threads", [1, 3])
@pytest.mark.parametrize(("degree", "width"), [(1, 1), (2, 5), (9, 40)])
def test_filters_are_scaled_chebyshev_polynomials(n_threads: int, degree: int, width: int) -> None:
    rng = np.random.default_rng(0)
    random = sp.random_array((700, 700), density=0.02, rng=rng)
    matrix = sp.csr_array(random + random.T + sp.eye_array(700))
    values, vectors = np.linalg.eigh(matrix.toarray())
    low, high, at = values[20], values[-1] + 0.1, values[0]
    block = rng.standard_normal((700, width))
    chebyshev = np.polynomial.chebyshev.Chebyshev.basis(degree, domain=[low, high])
    expected = (vectors * (chebyshev(values) / chebyshev(at))) @ (vectors.T @ block)
    with ChebyshevFilter(matrix, n_threads) as filtered:
        np.testing.assert_allclose(filtered.apply(block, degree, low, high, at=at), expected, atol=1e-10)
        np.testing.assert_allclose(filtered.product(block), matrix.toarray() @ block, atol=1e-12)


def test_high_degrees_do_not_overflow() -> None:
    matrix = sp.csr_array(sp.diags_array(np.linspace(0.0, 1.0, 50)))
    with ChebyshevFilter(matrix) as filtered:
        image = filtered.apply(np.ones((50, 1)), 2_000, 0.5, 1.0, at=0.0)[:, 0]
    assert image[0] == pytest.approx(1.0)
    assert np.abs(image[25:]).max() < 1e-200
