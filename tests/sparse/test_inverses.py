"""Inverses of many small matrices, against LAPACK's."""

from __future__ import annotations

import numpy as np
import pytest

from graphmatern.sparse import small_inverses


@pytest.mark.parametrize("count", [0, 3, 1_003])  # few are LAPACK's; 1,003 are no multiple of what is done at once
@pytest.mark.parametrize("size", [1, 2, 9, 40])
def test_small_inverses(count: int, size: int) -> None:
    rng = np.random.default_rng(size)
    roots = rng.standard_normal((count, size, 2 * size + 1))
    matrices = roots @ roots.transpose(0, 2, 1)
    before = matrices.copy()
    found, expected = small_inverses(matrices), np.linalg.inv(matrices)
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=0.0, atol=1e-11 * np.abs(expected).max(initial=1.0))
    np.testing.assert_array_equal(matrices, before)
