"""Graphs of areas: who borders on whom, what becomes of islands, and what rides along for maps."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import graphmatern as gm
from graphmatern.errors import EdgeWarning, GraphError, TableError
from graphmatern.io import read_graph, write_node_table

if TYPE_CHECKING:
    from pathlib import Path

shapely = pytest.importorskip("shapely")


def board(rows: int, columns: int, *, gap: float = 0.0) -> dict[str, Any]:
    """Squares in rows and columns, each narrower by a gap."""
    return {f"{i}-{j}": shapely.box(j, i, j + 1 - gap, i + 1 - gap) for i in range(rows) for j in range(columns)}


def pairs(graph: gm.Graph) -> set[frozenset[Any]]:
    return {frozenset(pair) for pair in zip(graph.edges["source"], graph.edges["target"], strict=True)}


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 5), st.integers(1, 5), st.randoms(use_true_random=False))
def test_squares_have_the_neighbours_of_a_king_and_of_a_rook(rows: int, columns: int, random: Any) -> None:
    squares = list(board(rows, columns).items())
    random.shuffle(squares)
    places = [(i, j) for i in range(rows) for j in range(columns)]
    for contiguity, reach in (("queen", 2), ("rook", 1)):
        expected = {
            frozenset([f"{a}-{b}", f"{c}-{d}"])
            for a, b in places
            for c, d in places
            if max(abs(a - c), abs(b - d)) == 1 and abs(a - c) + abs(b - d) <= reach
        }
        graph = gm.Graph.from_polygons(dict(squares), contiguity=contiguity)  # type: ignore[arg-type]
        assert pairs(graph) == expected
        assert graph.nodes.tolist() == [name for name, _ in squares]
        assert (graph.weights.data == 1.0).all()


def test_gaps_are_bridged_only_where_asked() -> None:
    squares = board(2, 3, gap=1e-3)
    with pytest.warns(EdgeWarning, match=r"6 of 6 areas border on no other: '0-0', .*`links`.*`tolerance`"):
        apart = gm.Graph.from_polygons(squares)
    assert apart.islands.tolist() == list(squares)
    assert pairs(gm.Graph.from_polygons(squares, tolerance=2e-3)) == pairs(gm.Graph.from_polygons(board(2, 3)))
    rook = gm.Graph.from_polygons(squares, tolerance=2e-3, contiguity="rook")
    assert pairs(rook) == pairs(gm.Graph.from_polygons(board(2, 3), contiguity="rook"))


def test_islands_have_names_and_ferries_join_them() -> None:
    areas = {**board(1, 2), "isle": shapely.box(9, 9, 10, 10), "skerry": shapely.box(20, 9, 21, 10)}
    with pytest.warns(EdgeWarning, match=r"2 of 4 areas border on no other: 'isle', 'skerry'"):
        graph = gm.Graph.from_polygons(areas)
    assert graph.islands.tolist() == ["isle", "skerry"]
    with pytest.warns(EdgeWarning, match=r"1 of 4 .*'skerry'"):
        joined = gm.Graph.from_polygons(areas, links=[("isle", "0-1"), ("0-0", "0-1")])
    assert pairs(joined) == {frozenset(["0-0", "0-1"]), frozenset(["isle", "0-1"])}


def test_holes_enclaves_pieces_and_outlines_that_cross_themselves() -> None:
    ring = shapely.Polygon([(0, 0), (3, 0), (3, 3), (0, 3)], [[(1, 1), (1, 2), (2, 2), (2, 1)]])
    far = shapely.MultiPolygon([shapely.box(5, 0, 6, 1), shapely.box(3, 1, 4, 2)])
    bow_tie = shapely.Polygon([(6, 0), (7, 1), (7, 0), (6, 1)])
    areas = {"ring": ring, "enclave": shapely.box(1, 1, 2, 2), "pieces": far, "bow": bow_tie}
    graph = gm.Graph.from_polygons(areas)
    assert pairs(graph) == {frozenset(p) for p in [("ring", "enclave"), ("ring", "pieces"), ("pieces", "bow")]}
    assert graph.areas is not None
    outer, hole = graph.areas[0]
    assert len(graph.areas[2]) == 2
    area = [0.5 * float(np.sum(r[:, 0] * np.roll(r[:, 1], -1) - np.roll(r[:, 0], -1) * r[:, 1])) for r in (outer, hole)]
    np.testing.assert_allclose(area, [9.0, -1.0])
    assert graph.positions is not None
    np.testing.assert_allclose(graph.positions[:2], 1.5)


def test_files_tables_and_lists_give_one_graph(tmp_path: Path) -> None:
    geopandas = pytest.importorskip("geopandas")
    squares = board(2, 2)
    expected = gm.Graph.from_polygons(squares)
    table = geopandas.GeoDataFrame({"code": [f"c{k}" for k in range(4)], "kind": "x"}, geometry=list(squares.values()))
    assert gm.Graph.from_polygons(table.set_axis(list(squares))) == expected
    assert gm.Graph.from_polygons(table, nodes="code").nodes.tolist() == ["c0", "c1", "c2", "c3"]
    assert gm.Graph.from_polygons(list(squares.values()), nodes=list(squares)) == expected
    wkt = {name: shape.wkt for name, shape in squares.items()}
    assert gm.Graph.from_polygons(pd.Series(wkt)) == expected
    file = tmp_path / "areas.geojson"
    file.write_text(table.assign(name=list(squares)).to_json(drop_id=True))
    reading = read_graph(file)
    assert reading.graph == expected
    assert read_graph(file, area_name="code").graph.nodes.tolist() == ["c0", "c1", "c2", "c3"]
    # What rides along is written back, and survives a model file.
    write_node_table(pd.DataFrame({"mean": range(4)}, index=expected.nodes), tmp_path / "out.geojson", expected)
    written = json.loads((tmp_path / "out.geojson").read_text())["features"]
    assert gm.Graph.from_polygons([one["geometry"] for one in written], nodes=list(squares)) == expected
    assert [shape.area for shape in gm.interop.to_geopandas(expected, of="nodes").geometry] == [1.0] * 4
    model = gm.GraphGPRegressor(expected, gm.BYM2(), optimizer=None).fit(["0-0", "1-1"], [1.0, 2.0])
    model.save(tmp_path / "model.gm")
    assert gm.load(tmp_path / "model.gm").graph == expected
    assert expected.subgraph(["1-1", "0-0"]).areas == [expected.areas[3], expected.areas[0]]  # type: ignore[index]


def test_every_fault_is_told_at_once() -> None:
    square = shapely.box(0, 0, 1, 1)
    with pytest.raises(GraphError) as error:
        gm.Graph.from_polygons(
            {"a": square, "b": shapely.Point(0, 0), "c": None, "d": shapely.Polygon()},
            contiguity="bishop",  # type: ignore[arg-type]
            tolerance=-1.0,
            links=[("a", "z"), ("a", "a")],
        )
    assert {fault.argument for fault in error.value.faults} == {"contiguity", "tolerance", "areas", "links"}
    for name in ("'b: ", "'c: ", "'d: "):
        assert name in str(error.value)
    with pytest.raises(GraphError, match=r"must be unique.*dissolve"):
        gm.Graph.from_polygons([square, square], nodes=["a", "a"])
    with pytest.raises(GraphError, match="name every area"):
        gm.Graph.from_polygons([square, square], nodes=["a"])
    with pytest.raises(GraphError, match="must be pairs"):
        gm.Graph.from_polygons([square], links=["ab"])
    with pytest.raises(GraphError, match="at least one polygon"):
        gm.Graph.from_polygons([])
    with pytest.raises(GraphError, match="GeoDataFrame"):
        gm.Graph.from_polygons(3)


def test_areas_are_given_to_a_graph_that_has_none(tmp_path: Path) -> None:
    geopandas = pytest.importorskip("geopandas")
    squares = board(1, 3)
    graph = gm.Graph.from_edges([("0-0", "0-1"), ("0-1", "0-2")])
    table = geopandas.GeoDataFrame({"code": list(squares)}, geometry=list(squares.values()))
    assert graph.with_areas(table, "code") == graph.with_areas(squares)
    (tmp_path / "areas.geojson").write_text(table.to_json())
    assert graph.with_areas(tmp_path / "areas.geojson") == graph.with_areas(squares)
    some = graph.with_areas({"0-1": squares["0-1"]})
    assert some.positions is None
    assert [len(rings) for rings in some.areas or []] == [0, 1, 0]
    with pytest.raises(TableError, match="must be a column"):
        graph.with_areas(table, "nonsense")
