"""Graphs and values from files of every format: the same graph from each, columns guessed, hostile files refused."""

from __future__ import annotations

import io
import json
import tracemalloc
import zipfile
from typing import TYPE_CHECKING, Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import scipy.io
import scipy.sparse as sp

import graphmatern as gm
from graphmatern.errors import (
    DataNotFoundError,
    EdgeWarning,
    GraphError,
    GraphMaternError,
    InputError,
    MissingLibraryError,
    TableError,
    UnknownNodeError,
)
from graphmatern.io import (
    ValueColumns,
    insert_sensors,
    read_graph,
    read_values,
    write_node_table,
)

if TYPE_CHECKING:
    from pathlib import Path

ROADS = pd.DataFrame({"from": ["a", "b", "c"], "to": ["b", "c", "d"], "metres": [100.0, 300.0, 200.0]})
GRAPH = gm.Graph.from_edges(ROADS, source="from", target="to", length="metres")


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


# ---------------------------------------------------------------------- every format
def as_csv(path: Path) -> Path:
    ROADS.to_csv(path, index=False, sep="\t" if path.suffix == ".tsv" else ",")
    return path


def as_semicolons(path: Path) -> Path:
    ROADS.to_csv(path, index=False, sep=";", encoding="utf-8-sig")
    return path


def as_parquet(path: Path) -> Path:
    ROADS.to_parquet(path)
    return path


def as_excel(path: Path) -> Path:
    ROADS.to_excel(path, index=False)
    return path


def as_columns(path: Path) -> Path:
    ends = {name: ROADS[name].to_numpy().astype("U") for name in ("from", "to")}
    np.savez(path, allow_pickle=False, metres=ROADS["metres"].to_numpy(), **ends)
    return path


def as_graphml(path: Path) -> Path:
    graph: nx.Graph[str] = nx.Graph()
    for row in ROADS.itertuples(index=False):
        graph.add_edge(row[0], row[1], length=row[2])
    nx.write_graphml(graph, path)
    return path


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("roads.csv", as_csv),
        ("roads.TSV", lambda path: as_csv(path.with_suffix(".tsv"))),
        ("roads.txt", as_semicolons),
        ("roads.parquet", as_parquet),
        ("roads.xlsx", as_excel),
        ("roads.npz", as_columns),
        ("roads.graphml", as_graphml),
    ],
)
def test_every_format_gives_the_same_graph(tmp_path: Path, name: str, make: Any) -> None:
    found = read_graph(make(tmp_path / name)).graph
    assert found.nodes.tolist() == ["a", "b", "c", "d"]
    np.testing.assert_array_equal(found.weights.toarray(), GRAPH.weights.toarray())
    assert found.edges["length"].tolist() == [100.0, 300.0, 200.0]


def test_matrices_are_read(tmp_path: Path) -> None:
    weights = GRAPH.weights
    scipy.io.mmwrite(tmp_path / "w.mtx", sp.coo_array(weights))
    scipy.io.mmwrite(tmp_path / "dense.mtx", weights.toarray())
    for kind in ("csr", "csc", "coo"):
        sp.save_npz(tmp_path / f"{kind}.npz", weights.asformat(kind))
    np.savez(tmp_path / "adjacency.npz", adjacency=weights.toarray())
    for path in sorted(tmp_path.iterdir()):
        found = read_graph(path).graph
        np.testing.assert_allclose(found.weights.toarray(), weights.toarray(), rtol=1e-15)
        assert found.nodes.tolist() == [0, 1, 2, 3]


def geojson(lines: list[Any], **properties: list[Any]) -> str:
    features = []
    for row, line in enumerate(lines):
        kind = "LineString" if isinstance(line[0][0], float | int) else "MultiLineString"
        own = {name: values[row] for name, values in properties.items()}
        features.append({"type": "Feature", "geometry": {"type": kind, "coordinates": line}, "properties": own})
    return json.dumps({"type": "FeatureCollection", "features": features})


def test_roads_of_a_map_are_joined_at_their_ends(tmp_path: Path) -> None:
    lines: list[Any] = [[[0, 0], [0, 1]], [[0, 1], [1, 1], [1, 2]], [[[1, 2], [1, 3]], [[1, 3], [1, 4]]]]
    reading = read_graph(write(tmp_path / "roads.geojson", geojson(lines)))
    graph = reading.graph
    assert graph.nodes.tolist() == ["0 0", "0 1", "1 2", "1 3", "1 4"]
    assert graph.n_edges == 4
    assert graph.positions is not None
    assert graph.positions.tolist() == [[0, 0], [0, 1], [1, 2], [1, 3], [1, 4]]
    degree = np.pi / 180 * 6_371_008.8  # metres of a degree of latitude
    length = graph.edges["length"].to_numpy()
    np.testing.assert_allclose(length[[0, 2, 3]], degree, rtol=1e-12)
    np.testing.assert_allclose(length[1], degree * (1 + np.cos(np.radians(1.0))), rtol=1e-4)
    assert "metres, from longitude and latitude" in "".join(reading.notes)


def test_lines_in_metres_have_their_length(tmp_path: Path) -> None:
    text = "LINESTRING (1000 0, 1003 4)\n\nLINESTRING Z (1003 4 7, 1003 10 8)\n"
    graph = read_graph(write(tmp_path / "roads.wkt", text)).graph
    assert graph.edges["length"].tolist() == [5.0, 6.0]
    table = 'name,wkt\nr1,"LINESTRING (1000 0, 1003 4)"\nr2,"LINESTRING (1003 4, 1003 10)"\n'
    same = read_graph(write(tmp_path / "roads.csv", table)).graph
    assert same.nodes.tolist() == graph.nodes.tolist()
    assert same.edges["id"].tolist() == ["r1", "r2"]


def test_properties_of_lines_are_used(tmp_path: Path) -> None:
    lines = [[[0.0, 0.0], [1.0, 0.0]], [[1.0, 0.0], [2.0, 0.0]]]
    text = geojson(lines, u=["x", "y"], v=["y", "z"], length_m=[10, 30], road=[7, 8])
    graph = read_graph(write(tmp_path / "roads.geojson", text)).graph
    assert graph.nodes.tolist() == ["x", "y", "z"]
    assert graph.edges["length"].tolist() == [10, 30]
    assert graph.edges["id"].tolist() == [7, 8]


def test_directed_graphs_lose_their_directions(tmp_path: Path) -> None:
    graph: nx.MultiDiGraph[int] = nx.MultiDiGraph()
    graph.add_edge(1, 2, length=5.0)
    graph.add_edge(2, 1, length=5.0)
    graph.add_edge(2, 3, length=10.0)
    nx.set_node_attributes(graph, {1: 0.0, 2: 1.0, 3: 2.0}, "x")
    nx.set_node_attributes(graph, {1: 0.0, 2: 0.0, 3: 0.0}, "y")
    nx.write_graphml(graph, tmp_path / "city.graphml")
    reading = read_graph(tmp_path / "city.graphml")
    assert reading.graph.edges["length"].tolist() == [5.0, 10.0]
    assert reading.graph.positions is not None
    assert "directed" in reading.notes[0]


# ---------------------------------------------------------------------- guesses
@pytest.mark.parametrize(
    ("header", "row", "said"),
    [
        ("source,target", "a,b", "edges from 'source' to 'target', all of weight 1"),
        ("cited,citing", "a,b", "edges from 'cited' to 'citing', all of weight 1"),
        ("Length_km,To,From", "2,a,b", "edges from 'From' to 'To', length 'Length_km'"),
        ("id,u,v,weight", "7,a,b,2", "edges from 'u' to 'v', weight 'weight', id 'id'"),
        ("id,name", "a,b", "edges from 'id' to 'name', all of weight 1"),
        ("road,first,second,metres", "r,a,b,2", "edges from 'first' to 'second', length 'metres', id 'road'"),
    ],
)
def test_columns_of_edges_are_guessed(tmp_path: Path, header: str, row: str, said: str) -> None:
    reading = read_graph(write(tmp_path / "edges.csv", f"{header}\n{row}\n"))
    assert reading.notes == [said]
    assert sorted(reading.graph.nodes) == ["a", "b"]


def test_guesses_are_overridden(tmp_path: Path) -> None:
    path = write(tmp_path / "edges.csv", "source,target,other,length,w2\na,b,c,5,2\nb,c,d,6,3\n")
    reading = read_graph(path, target="other", weight="w2")
    assert reading.graph.nodes.tolist() == ["a", "c", "b", "d"]
    assert reading.graph.edges["weight"].tolist() == [2.0, 3.0]
    with pytest.raises(GraphError, match="must be a column of the table") as caught:
        read_graph(path, source="sauce", length="lenght")
    assert [fault.argument for fault in caught.value.faults] == ["source", "length"]


def test_a_table_of_nodes_gives_order_positions_and_isolated_nodes(tmp_path: Path) -> None:
    edges = write(tmp_path / "edges.csv", "from,to\n2,1\n")
    nodes = write(tmp_path / "nodes.csv", "kind,node,lon,lat\nx,1,5,6\ny,2,7,8\nz,3,9,10\n")
    reading = read_graph(edges, nodes=nodes)
    assert reading.graph.nodes.tolist() == [1, 2, 3]
    assert reading.graph.positions is not None
    assert reading.graph.positions.tolist() == [[5, 6], [7, 8], [9, 10]]
    assert reading.nodes is not None
    assert reading.nodes["kind"].tolist() == ["x", "y", "z"]


@pytest.mark.parametrize(
    ("text", "said", "places", "values"),
    [
        ("node,value\na,1\nc,2.5\n", "nodes from 'node', values from 'value'", [0, 2], [1.0, 2.5]),
        ("speed,sensor,place\n1,9,d\n2,8,b\n", "nodes from 'place', values from 'sensor'", [3, 1], [9.0, 8.0]),
        ("when,where,speed,x,y\nmon,a,5,1,2\ntue,a,,1,2\nwed,b,7,1,2\n", "nodes from 'where', ", [0, 1], [5.0, 7.0]),
        ("place,kind\na,red\nb,blue\n", "nodes from 'place', values from 'kind'", [0, 1], ["red", "blue"]),
    ],
)
def test_columns_of_values_are_guessed(tmp_path: Path, text: str, said: str, places: Any, values: Any) -> None:
    reading = read_values(write(tmp_path / "values.csv", text), GRAPH)
    assert reading.notes[0].startswith(said)
    assert reading.places.tolist() == places
    assert reading.values.tolist() == values


def test_numbers_name_nodes_however_they_are_written(tmp_path: Path) -> None:
    graph = gm.Graph.from_edges([(1, 2), (2, 3)])
    pd.DataFrame({"node": [1.0, 3.0], "value": [5.0, 6.0]}).to_parquet(tmp_path / "v.parquet")
    pd.DataFrame({"node": [1, 3], "value": [5, 6]}).to_excel(tmp_path / "v.xlsx", index=False)
    pd.DataFrame({"node": ["1", "3"], "value": ["5.0", "6"]}).to_csv(tmp_path / "v.csv", index=False)
    for path in sorted(tmp_path.iterdir()):
        reading = read_values(path, graph)
        assert reading.places.tolist() == [0, 2]
        assert reading.values.tolist() == [5.0, 6.0]


@pytest.mark.parametrize(
    ("text", "options", "words"),
    [
        ("place,speed\na,1\nb,fast\nc,3\nd,4\na,5\n", {}, "'fast' in row 2"),
        ("place,speed\na,1\nb,1e999\n", {}, "must hold numbers"),
        ("place,speed\na,1\nb,1e300\n", {}, "must hold numbers of at most 1e"),
        ("place,speed\nq,1\nr,2\n", {}, "must have a column of node names"),
        ("place,speed\na,1\nr,2\n", {}, "must be names of nodes of the graph"),
        ("place,speed\na,\nb,\n", {}, "at least one value"),
        ("place\na\n", {}, "must have a column of values"),
        ("place,one,two\na,x,y\n", {}, "Name it with --value"),
        ("place,speed\n", {}, "must have rows"),
        ("place,speed\na,1\n", {"value": "sped"}, "must be a column of the table"),
        ("place,speed,sd\na,1,-1\n", {"noise": "sd", "value": "speed"}, "positive standard deviations"),
        ("place,speed\na,1\n", {"distance": "speed"}, "--road with --distance"),
    ],
)
def test_wrong_values_are_refused(tmp_path: Path, text: str, options: dict[str, Any], words: str) -> None:
    path = write(tmp_path / "values.csv", text)
    with pytest.raises((TableError, UnknownNodeError), match=words):
        read_values(path, GRAPH, ValueColumns(**options))


def test_unknown_nodes_are_left_out_where_asked(tmp_path: Path) -> None:
    path = write(tmp_path / "values.csv", "place,speed,sd\na,1,0.5\nnowhere,2,0.5\nc,3,0.25\n")
    reading = read_values(path, GRAPH, ValueColumns(noise="sd", value="speed"), ignore_unknown=True)
    assert reading.values.tolist() == [1.0, 3.0]
    assert reading.noise is not None
    assert reading.noise.tolist() == [0.5, 0.25]
    assert "1 of 3 rows" in reading.notes[1]


# ---------------------------------------------------------------------- points on roads
STREETS = gm.Graph.from_edges(
    pd.DataFrame({"source": [1, 2], "target": [2, 3], "road": ["r1", "r2"], "m": [100.0, 50.0]}), length="m", id="road"
)


def test_values_on_roads_become_nodes(tmp_path: Path) -> None:
    text = "sensor,road,distance_m,speed\n71,r1,25,1\n72,r2,10,2\n71,r1,25,3\n73,r1,0,4\n74,r2,50,5\n75,r1,75,6\n"
    reading = read_values(write(tmp_path / "values.csv", text), STREETS)
    graph = reading.graph
    assert graph.nodes.tolist() == [1, 2, 3, 71, 72, 75]
    assert graph.nodes[reading.places].tolist() == [71, 72, 71, 1, 3, 75]
    assert reading.values.tolist() == [1, 2, 3, 4, 5, 6]
    points = pd.DataFrame({"road": ["r1", "r2", "r1"], "at": [25.0, 10.0, 75.0]}, index=[71, 72, 75])
    assert graph == STREETS.subdivide(points, edge="road", distance="at")


def test_sensors_without_names_are_called_by_their_place(tmp_path: Path) -> None:
    path = write(tmp_path / "values.csv", "segment,share,speed\nr1,0.5,7.5\nr2,0.1,8.5\n")
    graph = read_values(path, STREETS).graph
    assert graph.nodes.tolist() == [1, 2, 3, "r1 at 0.5", "r2 at 0.1"]


def test_a_table_of_sensors_is_inserted(tmp_path: Path) -> None:
    path = write(tmp_path / "sensors.csv", "sensor,road,distance\ns1,r1,25\ns2,r2,10\n")
    graph, notes = insert_sensors(path, STREETS)
    assert graph.nodes.tolist() == [1, 2, 3, "s1", "s2"]
    assert "2 new nodes" in notes[0]
    with pytest.raises(TableError, match="--road with --distance"):
        insert_sensors(write(tmp_path / "wrong.csv", "sensor,speed\ns1,5\n"), STREETS)
    with pytest.raises(TableError, match="ids of roads"):
        insert_sensors(write(tmp_path / "wrong.csv", "s,road,distance\ns1,r9,5\n"), STREETS, ValueColumns(road="road"))
    with pytest.raises(TableError, match="needs roads with lengths"):
        insert_sensors(write(tmp_path / "wrong.csv", "s,edge,distance\ns1,0,5\n"), gm.Graph.from_edges([("a", "b")]))


# ---------------------------------------------------------------------- files that mean harm
def bomb_graphml() -> bytes:
    entities = "".join(f'<!ENTITY l{k} "{f"&l{k - 1};" * 10}">' for k in range(1, 12))
    return f'<?xml version="1.0"?><!DOCTYPE g [<!ENTITY l0 "lol">{entities}]><graphml>&l11;</graphml>'.encode()


def zipped(**members: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def npy(shape: str, dtype: str = "<f8") -> bytes:
    header = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode()


def sparse_claim() -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, format=b"coo", shape=[10**12, 10**12], data=[1.0], row=[0], col=[1])
    return buffer.getvalue()


def wide_excel() -> bytes:
    buffer = io.BytesIO()
    pd.DataFrame({"source": ["a"], "target": ["b"]}).to_excel(buffer)
    sheet = b'<worksheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"><sheetData>'
    sheet += b"".join(b'<row r="%d"><c r="XFD%d"><v>1</v></c></row>' % (k, k) for k in range(1, 6000))
    sheet += b"</sheetData></worksheet>"
    changed = io.BytesIO()
    with zipfile.ZipFile(buffer) as old, zipfile.ZipFile(changed, "w", zipfile.ZIP_DEFLATED) as new:
        for member in old.namelist():
            new.writestr(member, sheet if member.endswith("sheet1.xml") else old.read(member))
    return changed.getvalue()


def zip_bomb() -> bytes:
    """An archive whose directory says that it unpacks to 40 GB, as that of a bomb would."""
    content = bytearray(zipped(**{"source.npy": npy("(1,)") + bytes(8)}))
    for signature, offset in ((b"PK\x01\x02", 24), (b"PK\x03\x04", 22)):
        place = content.index(signature) + offset
        content[place : place + 4] = (0xFFFFFFF0).to_bytes(4, "little")
    return bytes(content)


HARM: dict[str, tuple[str, Any]] = {
    "entity bomb": ("bomb.graphml", bomb_graphml()),
    "outside file": ("x.graphml", b'<!DOCTYPE g [<!ENTITY x SYSTEM "file:///etc/hostname">]><graphml>&x;</graphml>'),
    "deep xml": ("deep.graphml", b"<a>" * 50_000),
    "million columns": ("wide.csv", ",".join(f"c{k}" for k in range(10**6)).encode() + b"\n1\n"),
    "many columns": ("wide.csv", ",".join(f"c{k}" for k in range(10**5)).encode() + b"\n1\n"),
    "empty": ("empty.csv", b""),
    "blank": ("blank.csv", b"\n\n  \n"),
    "utf-16": ("a.csv", "source,target\na,b\n".encode("utf-16")),
    "neither utf-8 nor windows-1252": ("a.csv", b"source,target\n\xe9\x81,b\n"),
    "utf-8 by its mark, but not": ("a.csv", b"\xef\xbb\xbfsource,target\n\xe9,b\n"),
    "binary": ("a.csv", bytes(range(256))),
    "twin columns": ("a.csv", b"a,b,a\n1,2,3\n"),
    "unclosed quote": ("a.csv", b'source,target\n"a,b\nc,d\n'),
    "deep json": ("a.geojson", b"[" * 100_000),
    "json of numbers": ("a.geojson", b"17"),
    "odd features": ("a.geojson", b'{"features": [1, {"geometry": 3}, {"geometry": {"type": "LineString"}}]}'),
    "huge coordinates": (
        "a.geojson",
        geojson([[[0.0, 0.0], [1e400, 0.0]]]).replace("Infinity", "1e400").encode(),
    ),
    "matrix market claim": ("a.mtx", b"%%MatrixMarket matrix coordinate real general\n9 9 99999999999\n1 1 1\n"),
    "dense claim": ("a.mtx", b"%%MatrixMarket matrix array real general\n999999 999999\n1\n"),
    "rows claim": ("a.mtx", b"%%MatrixMarket matrix coordinate real general\n999999999999 999999999999 1\n1 2 1\n"),
    "complex": ("a.mtx", b"%%MatrixMarket matrix coordinate complex general\n2 2 1\n1 2 1 1\n"),
    "npz claim": ("a.npz", zipped(**{"source.npy": npy("(1000000000000,)")})),
    "npz objects": ("a.npz", zipped(**{"source.npy": npy("(1,)", "|O")})),
    "npz sparse claim": ("a.npz", sparse_claim()),
    "zip bomb": ("a.npz", zip_bomb()),
    "excel columns": ("a.xlsx", wide_excel()),
    "excel junk": ("a.xlsx", zipped(**{"xl/workbook.xml": b"<x/>"})),
    "parquet junk": ("a.parquet", b"PAR1" + bytes(100) + b"PAR1"),
    "unknown suffix": ("a.docx", b"x"),
    "no rows": ("a.csv", b"source,target\n"),
    "one column": ("a.csv", b"source\na\n"),
    "negative weight": ("a.csv", b"source,target,weight\na,b,-1\n"),
    "huge length": ("a.csv", b"source,target,length\na,b,1e308\nb,c,1e-300\n"),
    "wkt junk": ("a.wkt", b"POINT (1 2)\nLINESTRING (1 2\n"),
    "blanks for a line": ("a.wkt", b"LINESTRING" + b" " * 200_000 + b"x"),
}


@pytest.mark.parametrize("name", HARM)
def test_harmful_graph_files_are_refused(tmp_path: Path, name: str) -> None:
    file, content = HARM[name]
    path = write(tmp_path / file, content)
    tracemalloc.start()
    try:
        with pytest.raises(GraphMaternError) as caught:
            read_graph(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 10**9
    assert len(str(caught.value)) < 2000
    assert isinstance(caught.value, InputError | DataNotFoundError)


def test_a_parquet_file_of_equal_rows_does_not_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphmatern.tables.files._MOST_BYTES", 10**6)
    pd.DataFrame({"source": ["x" * 1000] * 10_000, "target": ["y"] * 10_000}).to_parquet(tmp_path / "equal.parquet")
    assert (tmp_path / "equal.parquet").stat().st_size < 10_000
    with pytest.raises(GraphError, match="must fit into memory"):
        read_graph(tmp_path / "equal.parquet")


def test_places_that_are_no_files_are_named(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "absent.csv", "a\0b.csv"):
        with pytest.raises(DataNotFoundError, match="give the path of"):
            read_graph(path)


@pytest.mark.parametrize("name", ["roads.parquet", "roads.xlsx", "roads.graphml"])
def test_missing_libraries_are_named(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import importlib

    path = {"roads.parquet": as_parquet, "roads.xlsx": as_excel, "roads.graphml": as_graphml}[name](tmp_path / name)
    known = importlib.import_module

    def without(module: str, *args: Any) -> Any:
        if module.partition(".")[0] in {"pyarrow", "openpyxl", "defusedxml"}:
            raise ImportError(module)
        return known(module, *args)

    monkeypatch.setattr(importlib, "import_module", without)
    with pytest.raises(MissingLibraryError, match=r"pip install 'graphmatern\[io\]'"):
        read_graph(path)


# ---------------------------------------------------------------------- outputs
def test_tables_of_nodes_are_written_in_every_format(tmp_path: Path) -> None:
    graph = gm.Graph.from_edges([(1, "b")], positions=[[0.5, 1.5], [2.0, 3.0]])
    table = pd.DataFrame({"mean": [0.1, np.nan], "informed": [True, False]}, index=graph.nodes)
    for suffix in (".csv", ".tsv", ".parquet", ".geojson"):
        write_node_table(table, tmp_path / f"out{suffix}", graph)
    assert (tmp_path / "out.csv").read_text() == "node,mean,informed\n1,0.1,True\nb,,False\n"
    assert (tmp_path / "out.tsv").read_text().splitlines()[1] == "1\t0.1\tTrue"
    assert pd.read_parquet(tmp_path / "out.parquet")["node"].tolist() == ["1", "b"]
    features = json.loads((tmp_path / "out.geojson").read_text())["features"]
    assert features[1] == {
        "type": "Feature",
        "geometry": {"type": "Point", "coordinates": [2.0, 3.0]},
        "properties": {"node": "b", "mean": None, "informed": False},
    }
    assert len(list(tmp_path.iterdir())) == 4
    with pytest.raises(InputError, match="must end in"):
        write_node_table(table, tmp_path / "out.xyz", graph)
    with pytest.raises(InputError, match="needs positions"):
        write_node_table(table.iloc[:2], tmp_path / "out.geojson", gm.Graph.from_edges([("a", "b")]))


def test_parallel_edges_are_treated_as_asked(tmp_path: Path) -> None:
    path = write(tmp_path / "edges.csv", "from,to,weight\na,b,1\nb,a,2\n")
    with pytest.warns(EdgeWarning):
        assert read_graph(path).graph.weights.max() == 3.0
    with pytest.raises(GraphError, match="must not repeat"):
        read_graph(path, parallel="error")
