"""The real data sets, where they are at hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pytest

import graphmatern as gm
from graphmatern import datasets
from graphmatern.errors import DataNotFoundError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.data
def test_traffic() -> None:
    data = datasets.load_traffic()
    assert (data.graph.n_nodes, data.graph.n_edges, len(data.graph.edges)) == (1016, 1172, 1173)
    assert len(data.values) == 325
    assert data.values.mean() == pytest.approx(51.27, abs=0.005)
    assert data.values.std(ddof=0) == pytest.approx(17.10, abs=0.01)
    assert data.graph.n_components == 1
    length = data.graph.edges["length"]
    np.testing.assert_allclose(data.graph.edges["weight"], length.mean() / length)
    assert "PeMS" in data.description
    assert "ODbL" in data.description


@pytest.mark.data
def test_parallel_road_of_the_traffic_graph() -> None:
    summed, first = datasets.load_traffic().graph, datasets.load_traffic(parallel="first").graph
    difference = (summed.weights - first.weights).tocoo()
    difference.eliminate_zeros()
    assert sorted(summed.nodes[difference.coords[0]]) == [123, 606]


@pytest.mark.data
def test_traffic_raw_becomes_the_papers_graph() -> None:
    data = datasets.load_traffic_raw()
    assert (data.graph.n_nodes, len(data.graph.edges)) == (691, 848)
    assert len(data.graph.edges) - data.graph.n_edges == 11
    assert isinstance(data.values, pd.DataFrame)
    cut = data.graph.subdivide(data.values, edge="road", distance="distance_m", position=("longitude", "latitude"))
    assert (cut.n_nodes, len(cut.edges), cut.n_edges) == (1016, 1173, 1172)
    assert cut.edges["length"].sum() == pytest.approx(data.graph.edges["length"].sum(), rel=1e-12)
    pieces = cut.edges.assign(road=[name[0] if isinstance(name, tuple) else name for name in cut.edges["id"]])
    pieces["end"] = pieces.groupby("road")["length"].cumsum()
    at_sensors = pieces.set_index("target")["end"].loc[data.values.index]
    np.testing.assert_allclose(at_sensors, data.values["distance_m"], rtol=1e-9)
    # Lengths agree with the paper's graph up to the map projection.
    theirs = datasets.load_traffic().graph
    ours, paper = np.sort(cut.edges["length"]), np.sort(theirs.edges["length"])
    assert np.abs(ours - paper).max() < 24.0


@pytest.mark.data
def test_traffic_mondays() -> None:
    data = datasets.load_traffic_mondays()
    assert data.values.shape == (325, 26)
    single = datasets.load_traffic()
    first = data.values[pd.Timestamp("2017-01-02 17:30")]
    pd.testing.assert_series_equal(first, single.values, check_names=False)  # type: ignore[arg-type]


@pytest.mark.data
def test_cora() -> None:
    data = datasets.load_cora()
    assert (data.graph.n_nodes, data.graph.n_edges) == (2485, 5069)
    assert (np.diff(np.asarray(data.graph.nodes)) > 0).all()
    assert data.values.index.equals(data.graph.nodes)
    assert data.values.nunique() == 7
    everything = datasets.load_cora(largest_component=False)
    assert (everything.graph.n_nodes, everything.graph.n_edges) == (2708, 5278)


@pytest.mark.data
def test_traffic_with_geometry() -> None:
    data, paper = datasets.load_traffic(geometry=True), datasets.load_traffic()
    assert data.graph.edges["geometry"].notna().all()
    assert (data.graph.n_nodes, len(data.graph.edges)) == (1016, 1173)
    np.testing.assert_array_equal(data.values.to_numpy(), paper.values.to_numpy())
    assert set(data.values.index) <= set(data.graph.nodes)


def test_an_incomplete_local_copy_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "cora").mkdir()
    monkeypatch.setenv("GRAPHMATERN_DATA", str(tmp_path))
    with pytest.raises(DataNotFoundError, match=r"no citations\.csv, no topics\.csv in.*complete the folder"):
        datasets.load_cora()


@pytest.mark.data
def test_counts_by_area() -> None:
    lips, accidents = datasets.load_scotland(), datasets.load_nyc()
    assert (lips.graph.n_nodes, lips.graph.n_components, len(lips.values)) == (56, 1, 56)
    assert (accidents.graph.n_nodes, accidents.graph.n_edges) == (1921, 5461)
    assert list(lips.values.columns) == ["observed", "expected", "aff"]
    assert lips.graph.nodes.equals(lips.values.index)
    assert float(gm.BYM2.scaling_factors(lips.graph).iloc[0]) == pytest.approx(0.4853175, abs=1e-6)


def test_counts_by_area_are_not_downloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GRAPHMATERN_DATA", raising=False)
    with pytest.raises(DataNotFoundError, match=r"scotland\.csv, scotland_neighbours\.csv"):
        datasets.load_scotland()
