"""Probes that depend on nothing but numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from graphmatern.sparse import Rows, SplitRows, signs_of


@pytest.mark.parametrize("first", [0, 3, 60, 64, 130])
def test_probes_depend_on_their_numbers_alone(first: int) -> None:
    keys = np.array([5, 0, 123_456_789_012, 7])
    whole = signs_of(keys, 200, seed=3)
    assert set(np.unique(whole)) == {-1.0, 1.0}
    np.testing.assert_array_equal(signs_of(keys[1:3], 50, seed=3, first=first), whole[1:3, first : first + 50])
    assert not np.array_equal(signs_of(keys, 200, seed=4), whole)


def test_probes_are_independent_and_fair() -> None:
    signs = signs_of(np.arange(20_000), 70, seed=0)
    # Standard errors: of means 1/√20,000, of products of two columns the same; 70 and 2,415 of them.
    assert np.abs(signs.mean(axis=0)).max() < 4.5 / np.sqrt(20_000)
    products = signs.T @ signs / 20_000 - np.eye(70)
    assert np.abs(products).max() < 5.0 / np.sqrt(20_000)
    neighbours = (signs[1:] * signs[:-1]).mean(axis=0)
    assert np.abs(neighbours).max() < 4.5 / np.sqrt(20_000)


def test_all_rows_are_here() -> None:
    rows = Rows(4)
    block = np.arange(8.0).reshape(4, 2)
    np.testing.assert_array_equal(rows.taken(np.array([2, 0]), block), block[[2, 0]])
    np.testing.assert_array_equal(rows.units(np.array([1, 3])), np.eye(4)[:, [1, 3]])
    np.testing.assert_allclose(rows.dots(block, block), (block**2).sum(axis=0))
    assert rows.total(3) == 3
    assert rows.n_each == 4


@pytest.mark.parametrize("n", [2_500, 3_000])
@pytest.mark.parametrize("single", [False, True])
def test_a_product_in_two_parts_is_that_of_the_whole(n: int, single: bool) -> None:
    rng = np.random.default_rng(0)
    whole: Any = sp.random_array((3_000, 3_000), density=0.003, format="csr", rng=rng)
    kind = np.dtype("float32" if single else "float64")
    parts = SplitRows(whole[:n, :n], whole[:n, n:])
    parts = parts.single() if single else parts
    current: Any = rng.standard_normal((3_000, 5)).astype(kind)
    previous: Any = rng.standard_normal((n, 5)).astype(kind)
    totals: Any = rng.standard_normal((2, n, 5)).astype(kind)
    expected = 2.0 * (whole @ current)[:n] - previous
    added = totals + np.array([0.5, -3.0])[:, None, None] * expected
    parts.combine(current[:n], current[n:], previous, (2.0, 0.0, -1.0), totals, [0.5, -3.0])
    tolerance = 1e-5 if single else 1e-13
    np.testing.assert_allclose(previous, expected, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(totals, added, rtol=tolerance, atol=tolerance)
