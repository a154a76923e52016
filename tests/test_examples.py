"""Every example of the gallery runs, without warnings."""

from __future__ import annotations

import runpy
from pathlib import Path

import matplotlib.pyplot as plt
import pytest

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("plot_*.py"))


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, marks=pytest.mark.data if "gm.datasets." in path.read_text() else (), id=path.stem)
        for path in EXAMPLES
    ],
)
def test_examples_run(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[int] = []
    monkeypatch.setattr(plt, "show", lambda: drawn.extend(plt.get_fignums()))
    monkeypatch.setenv("GRAPHMATERN_NODES", "5000")
    runpy.run_path(str(path), run_name="example")
    assert drawn, "an example ends with plt.show()"
    for number in drawn:
        plt.figure(number).canvas.draw()
    plt.close("all")
