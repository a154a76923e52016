"""Points that fill the unit cube."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats.qmc import Halton

from graphmatern.inference.learning.halton import scrambled_halton


@pytest.mark.parametrize("d", [1, 2, 5, 9])
@pytest.mark.parametrize("seed", [0, 7])
def test_they_are_those_of_scipy(d: int, seed: int) -> None:
    np.testing.assert_array_equal(scrambled_halton(d, 250, seed), Halton(d, seed=seed).random(250))
