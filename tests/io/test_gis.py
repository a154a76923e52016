"""Maps in and out: points brought to roads, lines that meet on the way, GeoDataFrames, lines with predictions."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import graphmatern as gm
from graphmatern.cli._app import app
from graphmatern.errors import GraphError, TableError
from graphmatern.io import edge_table, graph_from_lines, read_graph, read_values, write_node_table

if TYPE_CHECKING:
    from pathlib import Path

shapely = pytest.importorskip("shapely")
geopandas = pytest.importorskip("geopandas")

# Too far east for degrees.
ROADS = [
    "LINESTRING (1000 0, 1010 0, 1040 0)",
    "LINESTRING (1010 0, 1010 20)",
    "LINESTRING (1040 0, 1040 30, 1070 30)",
]


def town() -> gm.Graph:
    return graph_from_lines(ROADS).graph


# ---------------------------------------------------------------------- lines in
def test_lines_that_meet_on_the_way_are_joined() -> None:
    reading = graph_from_lines(ROADS, pd.DataFrame({"id": ["main", "side", "far"], "metres": [80.0, 40.0, 120.0]}))
    graph = reading.graph
    assert graph.n_components == 1
    assert graph.n_nodes == 5
    edges = graph.edges.set_index("id")
    assert edges["length"].to_dict() == {"main.1": 20.0, "main.2": 60.0, "side": 40.0, "far": 120.0}
    assert any("1 more" in note for note in reading.notes)
    assert graph_from_lines(ROADS[1:]).notes == graph_from_lines(ROADS[1:]).notes
    assert not any("cut" in note for note in graph_from_lines(ROADS[1:]).notes)


def test_a_crossing_without_a_common_point_is_a_bridge() -> None:
    bridge = graph_from_lines(["LINESTRING (0 0, 10 0)", "LINESTRING (5 -5, 5 5)"]).graph
    assert bridge.n_components == 2
    crossing = graph_from_lines(["LINESTRING (0 0, 5 0, 10 0)", "LINESTRING (5 -5, 5 0, 5 5)"]).graph
    assert (crossing.n_components, crossing.n_edges) == (1, 4)


def test_geodataframes_in_and_out() -> None:
    lines = [shapely.from_wkt(text) for text in ROADS]
    several = geopandas.GeoDataFrame({"name": ["a", "b"]}, geometry=[shapely.MultiLineString(lines[:2]), lines[2]])
    assert gm.interop.from_geopandas(several) == town()
    table = pd.DataFrame(
        {"mean": np.arange(5.0), "informed": [True] * 4 + [False], "label": list("uvwxy")}, town().nodes
    )
    edges = gm.interop.to_geopandas(town(), table)
    np.testing.assert_allclose(edges.length, town().edges["length"])
    ends = town().locate(edges["source"]), town().locate(edges["target"])
    np.testing.assert_allclose(edges["mean"], 0.5 * (ends[0] + ends[1]))
    np.testing.assert_array_equal(edges["informed"], (ends[0] < 4) & (ends[1] < 4))
    assert edges.crs is None
    nodes = gm.interop.to_geopandas(town(), table, of="nodes", crs="EPSG:2056")
    np.testing.assert_array_equal(np.column_stack([nodes.geometry.x, nodes.geometry.y]), town().positions)
    assert nodes.crs.to_epsg() == 2056
    for wrong in (geopandas.GeoSeries([shapely.Point(0, 0)]), pd.DataFrame({"a": [1]})):
        with pytest.raises(GraphError, match="lines"):
            gm.interop.from_geopandas(wrong)
    with pytest.raises(GraphError, match="positions"):
        gm.interop.to_geopandas(gm.Graph.from_edges([("a", "b")]))


# ---------------------------------------------------------------------- points to edges
@settings(max_examples=25)
@given(st.lists(st.tuples(st.floats(980, 1090), st.floats(-20, 60)), min_size=1, max_size=6, unique=True))
def test_points_go_to_the_nearest_edge(points: list[tuple[float, float]]) -> None:
    graph = town()
    table = pd.DataFrame(points, columns=["x", "y"], index=[f"p{k}" for k in range(len(points))])
    bigger, report = graph.attach(table, limit=1e9)
    lines = [shapely.LineString(line) for line in graph.edge_lines()]
    for name, (x, y) in zip(table.index, points, strict=True):
        nearest = min(line.distance(shapely.Point(x, y)) for line in lines)
        row = report.loc[name]
        np.testing.assert_allclose(row["moved"], nearest, atol=1e-9)
        line = lines[graph.edges["id"].tolist().index(row["edge"])]
        foot = line.interpolate(row["fraction"], normalized=True)
        np.testing.assert_allclose([row["x"], row["y"]], [foot.x, foot.y], atol=1e-8)
        place = np.asarray(bigger.positions)[bigger.locate([row["node"]])[0]]
        np.testing.assert_allclose(place, [foot.x, foot.y], atol=1e-6)
    np.testing.assert_allclose(bigger.edges["length"].sum(), graph.edges["length"].sum())


def test_points_too_far_are_refused_and_distances_are_metres_for_degrees() -> None:
    places = {"a": [8.5, 47.4], "b": [8.51, 47.4]}
    road = gm.Graph.from_edges([("a", "b")], length=[753.0], positions=places)
    sensors = pd.DataFrame({"longitude": [8.505, 8.503], "latitude": [47.4001, 47.42]}, index=["near", "lost"])
    with pytest.raises(TableError, match=r"lost \(2,224 m away\)"):
        road.attach(sensors)
    bigger, report = road.attach(sensors.iloc[:1])
    np.testing.assert_allclose(report["moved"], 11.12, atol=0.01)
    np.testing.assert_allclose(bigger.edges["length"], [376.5, 376.5], rtol=1e-3)
    shapes = geopandas.GeoDataFrame(index=["near"], geometry=[shapely.Point(8.505, 47.4001)])
    assert road.attach(shapes)[0] == bigger
    for wrong in ([1], pd.DataFrame({"speed": [1.0]})):
        with pytest.raises(TableError, match="points"):
            road.attach(wrong)
    with pytest.raises(GraphError, match="positions"):
        gm.Graph.from_edges([("a", "b")]).attach(sensors)


def test_points_on_one_spot_share_a_node_and_names_stay_apart() -> None:
    graph = gm.Graph.from_edges([("a", "b")], positions={"a": [0, 0], "b": [10, 0]})
    points = pd.DataFrame({"x": [5.0, 5.0, 10.0, 2.0], "y": [1.0, -1.0, 1.0, 0.0]}, index=["s", "t", "u", "a"])
    bigger, report = graph.attach(points)
    assert report["node"].tolist() == ["s", "s", "b", "a at 1"]
    assert set(bigger.nodes) == {"a", "b", "s", "a at 1"}


# ---------------------------------------------------------------------- files
@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    (tmp_path / "roads.wkt").write_text("\n".join([*ROADS, "LINESTRING (1500 500, 1510 500)"]))
    (tmp_path / "speeds.csv").write_text("sensor,x,y,speed\ns1,1005,1,50\ns2,1025,-2,40\ns3,1010,15,30\ns1,1005,1,52\n")
    return {"roads": tmp_path / "roads.wkt", "speeds": tmp_path / "speeds.csv", "folder": tmp_path}


def test_values_by_coordinates(files: dict[str, Path]) -> None:
    graph = read_graph(files["roads"]).graph
    reading = read_values(files["speeds"], graph, gm.io.ValueColumns(value="speed"))
    assert reading.graph.nodes[reading.places].tolist() == ["s1", "s2", "s3", "s1"]
    assert any("2 at most: s2" in note for note in reading.notes)
    with pytest.raises(TableError, match="s2"):
        read_values(files["speeds"], graph, gm.io.ValueColumns(value="speed", snap_limit=1.5))


def test_predictions_as_lines_and_a_warning_of_parts(files: dict[str, Path]) -> None:
    out = files["folder"] / "map.geojson"
    options = ["--value", "speed", "--nu", "1", "--no-integrate", "--predict", str(out), "--lines"]
    result = CliRunner().invoke(app, ["fit", str(files["roads"]), str(files["speeds"]), *options])
    assert result.exit_code == 0, result.output
    assert "2 parts that are not connected; 2 nodes" in result.output
    features = json.loads(out.read_text())["features"]
    assert {one["geometry"]["type"] for one in features} == {"LineString"}
    assert len(features) == 8  # five pieces of road, three of which a sensor cuts
    assert {"edge", "source", "target", "mean", "std", "informed"} <= set(features[0]["properties"])
    table = files["folder"] / "table.csv"
    model = files["folder"] / "model.gm"
    CliRunner().invoke(app, ["fit", str(files["roads"]), str(files["speeds"]), *options[:5], "--out", str(model)])
    assert CliRunner().invoke(app, ["predict", str(model), "--out", str(table)]).exit_code == 0
    assert pd.read_csv(table)[["x", "y"]].notna().all().all()


def test_geopackages_have_layers_of_edges_and_nodes(tmp_path: Path) -> None:
    graph = town()
    table = pd.DataFrame({"mean": np.arange(5.0), "label": list("uvwxy")}, graph.nodes)
    write_node_table(table, tmp_path / "town.gpkg", graph)
    for layer, expected in (("edges", edge_table(table, graph)["mean"]), ("nodes", table["mean"])):
        read: Any = geopandas.read_file(tmp_path / "town.gpkg", layer=layer)
        np.testing.assert_allclose(read["mean"], expected)
    assert list(tmp_path.iterdir()) == [tmp_path / "town.gpkg"]


def test_coordinates_are_written_where_only_geometry_is_known() -> None:
    from graphmatern.cli._predict import predictions

    graph = gm.Graph.from_edges([("a", "b")], geometry=["LINESTRING (0 0, 1 2, 3 0)"])
    model = gm.GraphGPRegressor(graph, gm.Matern(1.0), optimizer=None).fit(["a"], [1.0])
    assert predictions(model, 0.95)[["x", "y"]].to_numpy().tolist() == [[0.0, 0.0], [3.0, 0.0]]
