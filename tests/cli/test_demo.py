"""The demonstration, and the city it is about."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import matplotlib.pyplot as plt
import numpy as np
import pytest
from typer.testing import CliRunner

import graphmatern as gm
from graphmatern.cli._app import app
from graphmatern.graph._generators import _offset

if TYPE_CHECKING:
    from pathlib import Path


def score(output: str, method: str) -> float:
    """First number after the name of a method in the tables."""
    found = re.search(re.escape(method) + r"\D*([\d.]+)", output)
    assert found is not None, output
    return float(found[1])


def test_demo_draws_and_the_graph_wins(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["demo", "--out", str(tmp_path / "pictures")])
    assert result.exit_code == 0, result.output
    pictures = sorted(path.name for path in (tmp_path / "pictures").iterdir())
    assert pictures == ["city.html", "city.png", "digits.png", "kernels.png", "prediction.png"]
    assert "junctions predicted from 300" in result.output
    assert score(result.output, "graph GP (GraphGPRegressor)") < 0.85 * score(
        result.output, "GP on the map (scikit-learn)"
    )
    best = score(result.output, "graph GP (GraphGPClassifier)")
    assert best > score(result.output, "label spreading") + 1.0
    assert best > score(result.output, "k nearest neighbours") + 1.0
    assert "Try next" in result.output.splitlines()[-2]
    assert str(tmp_path / "pictures" / "city.html") in result.output.splitlines()[-1]
    plt.close("all")


@pytest.mark.parametrize("seed", range(10))
def test_cities_are_connected_and_their_rivers_have_few_bridges(seed: int) -> None:
    city = gm.make_city(400, seed=seed, bridges=1)
    assert city.n_components == 1
    assert city.positions is not None
    assert city.nodes.tolist() == list(range(city.n_nodes))
    rng = np.random.default_rng(seed)  # the same numbers as in the generator
    side = 100.0 * np.sqrt(400)
    rng.random((400, 2))
    streets = city.edges[~city.edges["id"].astype(str).str.startswith("motorway")]
    apart = np.linalg.norm(city.positions[streets["source"]] - city.positions[streets["target"]], axis=1)
    np.testing.assert_allclose(streets["length"], apart)
    for axis in (0, 1):
        river = (axis, rng.uniform(0.4, 0.6) * side, rng.uniform(0.0, 2.0 * np.pi))
        bank = _offset(city.positions, river, side) > 0
        assert np.sum(bank[streets["source"]] != bank[streets["target"]]) <= 1
    motorways = city.edges.drop(streets.index)
    assert len(motorways) >= 2
    apart = np.linalg.norm(city.positions[motorways["source"]] - city.positions[motorways["target"]], axis=1)
    np.testing.assert_allclose(motorways["length"], apart / 4.0)


def test_cities_are_reproducible_and_checked() -> None:
    assert gm.make_city(200, seed=1) == gm.make_city(200, seed=1)
    assert gm.make_city(200, seed=1) != gm.make_city(200, seed=2)
    with pytest.raises(gm.errors.GraphError) as caught:
        gm.make_city(10, seed=-1, bridges=0, motorway_speed=0.0)
    assert len(caught.value.faults) == 4
