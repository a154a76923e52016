"""A sample of the wrong files that ``make evidence`` tries by the thousand: always clear words, never a half result."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import graphmatern as gm
from fuzzing import make_case, run_case

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    graph = gm.Graph.from_edges([("a", "b"), ("b", "c"), ("c", "d")], length=[1.0, 2.0, 3.0])
    path = tmp_path_factory.mktemp("model") / "m.gm"
    estimator = gm.GraphGPRegressor(graph, gm.Matern(1.5, 2.0), noise=0.1, optimizer=None)
    estimator.fit(["a", "d"], [1.0, 2.0]).save(path)
    return path.read_bytes()


# The last is a matrix in which scipy's reader ended the process.
BLOCKS = [*(range(15 * k, 15 * (k + 1)) for k in range(8)), range(5352, 5353)]


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_wrong_files_are_refused_in_words(block: range, model: bytes, tmp_path: Path) -> None:
    for number in block:
        folder = tmp_path / str(number)
        folder.mkdir()
        case = make_case(number, model)
        outcome = run_case(case, folder)
        assert not outcome.fault, f"case {number} ({case.kind}, {case.arguments}): {outcome.fault}"
