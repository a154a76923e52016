"""Columns whose names say what they hold are used, or their faults are told; numbers are read as they are written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import scipy.io
from hypothesis import given
from hypothesis import strategies as st

import graphmatern as gm
from graphmatern.errors import EdgeWarning, GraphError, GraphMaternWarning, TableError
from graphmatern.io import ValueColumns, insert_sensors, read_graph, read_values
from graphmatern.tables import looks_like_numbers, to_numbers, uses_decimal_commas

if TYPE_CHECKING:
    from pathlib import Path

PATH = gm.Graph.from_edges([("a", "b"), ("b", "c"), ("c", "d"), ("d", "e")])
STREETS = gm.Graph.from_edges([("a", "b"), ("b", "c")], length=[100.0, 50.0], id=["r1", "r2"])


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


# ---------------------------------------------------------------------- used, or told
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("source,target,weight\na,b,1\nb,c,nan\n", "`weight` must hold weights of at least 0; received 'nan' in row 2"),
        ("source,target,weight\na,b,1\nb,c,\n", "received nothing in row 2"),
        ("source,target,weight\na,b,1\nb,c,-1\n", "'-1' in row 2"),
        ("source,target,length_m\na,b,1\nb,c,12 m\n", "`length_m` must hold lengths above 0; received '12 m' in row 2"),
        ("source,target,km\na,b,0\nb,c,1\n", "'0' in row 1"),
        ("source,target,length\na,b,short\n", "--length"),
        ("source,target,length\na,b,1\nb,c,inf\n", "'inf' in row 2"),
        ('source,target,length\na,b,"1,234"\nb,c,"5,678"\n', "without separators: 1234.5"),
    ],
)
def test_wrong_weights_and_lengths_are_told(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(GraphError) as caught:
        read_graph(write(tmp_path / "edges.csv", text))
    assert words in str(caught.value)


def test_of_several_columns_the_one_of_numbers_is_used_and_the_others_named(tmp_path: Path) -> None:
    text = "source,target,length_unit,length,weight,name\na,b,m,2,7,x\nb,c,m,4,8,x\n"
    reading = read_graph(write(tmp_path / "edges.csv", text))
    assert reading.graph.edges["length"].tolist() == [2.0, 4.0]
    assert reading.notes[1:] == [
        "column 'length_unit' is not used: weights follow from 'length'",
        "column 'weight' is not used: weights follow from 'length'",
        "column 'name' does not name the edges: some entries are empty or repeated",
    ]
    empty = read_graph(write(tmp_path / "empty.csv", "source,target,weight\na,b,\nb,c,\n"))
    assert "column 'weight' is not used: it is empty" in empty.notes


def test_attributes_that_some_edges_lack_are_told(tmp_path: Path) -> None:
    graph: nx.Graph[str] = nx.Graph()
    graph.add_edge("a", "b", length=2.0)
    graph.add_edge("b", "c")
    nx.write_graphml(graph, tmp_path / "roads.graphml")
    with pytest.raises(GraphError, match="must have the attribute 'length' at every edge"):
        read_graph(tmp_path / "roads.graphml")


def test_wrong_positions_are_told(tmp_path: Path) -> None:
    edges = write(tmp_path / "edges.csv", "source,target\na,b\n")
    for cell, shown in (("north", "'north' in row 2"), ("", "nothing in row 2")):
        nodes = write(tmp_path / "nodes.csv", f"node,lon,lat\na,1,2\nb,3,{cell}\n")
        with pytest.raises(GraphError, match=f"`lat` must hold coordinates of every node; received {shown}"):
            read_graph(edges, nodes=nodes)


def test_positions_of_nodes_that_a_matrix_numbers_are_used(tmp_path: Path) -> None:
    scipy.io.mmwrite(tmp_path / "w.mtx", PATH.weights.tocoo())
    nodes = write(tmp_path / "nodes.csv", "node,x,y\n" + "".join(f"{k},{k},{-k}\n" for k in range(5)))
    reading = read_graph(tmp_path / "w.mtx", nodes=nodes)
    assert reading.graph.positions is not None
    assert reading.graph.positions.tolist() == [[k, -k] for k in range(5)]
    assert reading.notes[-1] == "nodes from 'node', positions 'x' and 'y'"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("sensor,road,distance,speed\ns,r1,25,1\nt,r2,far,2\n", "`distance` must say where .* received 'far' in row 2"),
        ("sensor,road,fraction,speed\ns,r1,0.5,1\nt,r2,,2\n", "`fraction` must say where .* received nothing in row 2"),
        ("sensor,road,distance,speed\ns,r1,25,1\nt,r2,5,1\nu,r9,10,2\n", "`road` must hold ids of roads"),
    ],
)
def test_wrong_places_on_roads_are_told(tmp_path: Path, text: str, words: str) -> None:
    path = write(tmp_path / "values.csv", text)
    for read in (read_values, insert_sensors):
        with pytest.raises(TableError, match=words):
            read(path, STREETS)


@pytest.mark.parametrize(
    ("names", "column", "words"),
    [
        (["0079", "0132"], "79,132", "Leading zeros were lost"),
        (["Hamburg", "Bremen"], "Hambrug,Bremne", "Did you mean 'Hamburg', 'Bremen'?"),
    ],
)
def test_a_table_without_any_name_is_refused_with_a_hint(
    tmp_path: Path, names: list[str], column: str, words: str
) -> None:
    rows = "".join(f"{name},{k}.5\n" for k, name in enumerate(column.split(",")))
    path = write(tmp_path / "values.csv", f"place,speed\n{rows}")
    with pytest.raises(TableError) as caught:
        read_values(path, gm.Graph.from_edges([tuple(names)]))
    assert "must have a column of node names" in str(caught.value)
    assert words in str(caught.value)


def test_a_misspelt_column_is_refused_with_the_one_that_was_meant(tmp_path: Path) -> None:
    path = write(tmp_path / "values.csv", "node,speed_mph,sd\na,1,0.5\n")
    with pytest.raises(TableError, match=r"received 'spede_mph'.*Did you mean 'speed_mph'\?"):
        read_values(path, PATH, ValueColumns(value="spede_mph"))
    with pytest.raises(TableError, match=r"received 'length'.*Name another\."):
        read_values(path, PATH, ValueColumns(value="length"))


def test_columns_beside_the_values_are_not_taken_for_them(tmp_path: Path) -> None:
    path = write(tmp_path / "values.csv", "node,speed,sd,time\na,1,0.5,3\nb,2,0.5,4\n")
    reading = read_values(path, PATH)
    assert (reading.name, reading.values.tolist()) == ("speed", [1.0, 2.0])
    assert "column 'sd' is not used; if it holds standard deviations" in reading.notes[1]
    assert reading.notes[1].endswith("--noise-std sd")
    assert "column 'time' is not used" in reading.notes[2]
    used = read_values(path, PATH, ValueColumns(noise="sd"))
    assert used.noise is not None
    assert used.noise.tolist() == [0.5, 0.5]
    only = read_values(write(tmp_path / "only.csv", "node,sd\na,0.5\n"), PATH)
    assert only.name == "sd"


def test_a_wrong_standard_deviation_is_told_where_there_is_a_value(tmp_path: Path) -> None:
    path = write(tmp_path / "values.csv", "node,speed,sd\na,1,0.5\nb,,\nc,3,about 1\n")
    with pytest.raises(TableError, match=r"`sd` must hold positive standard deviations .* received 'about 1' in row 3"):
        read_values(path, PATH, ValueColumns(value="speed", noise="sd"))


@pytest.mark.parametrize(
    "cells", [["20.5", "n/a", "n/a", "x"], ["1", "2", "n/a", "?"], ["1'200.5", "1'300.5", "1'400.5", "900"]]
)
def test_numbers_among_texts_are_not_classes(tmp_path: Path, cells: list[str]) -> None:
    text = "node,speed\n" + "".join(f"{node},{cell}\n" for node, cell in zip("abcd", cells, strict=True))
    path = write(tmp_path / "values.csv", text)
    with pytest.raises(TableError, match="--task classification"):
        read_values(path, PATH)
    assert read_values(path, PATH, texts=True).values.tolist() == cells


def test_weights_that_nobody_asked_for_are_mentioned() -> None:
    table = pd.DataFrame({"From": ["a", "b"], "To": ["b", "c"], "distance": [1.0, 2.0]})
    with pytest.warns(EdgeWarning, match="pass length='distance' to use it, or drop it"):
        graph = gm.Graph.from_edges(table)
    assert graph.weights.max() == 1.0
    assert gm.Graph.from_edges(table, length="distance").has_lengths


# ---------------------------------------------------------------------- decimal commas, encodings
def test_decimal_commas_are_read(tmp_path: Path) -> None:
    edges = write(tmp_path / "edges.csv", "source;target;length\nx,1;x,2;1.234,5\nx,2;x,3;20,25\nx,3;x,4;7\n")
    reading = read_graph(edges)
    assert reading.graph.edges["length"].tolist() == [1234.5, 20.25, 7.0]
    assert reading.graph.nodes[0] == "x,1"
    assert "decimal commas in 'length'" in reading.notes
    values = read_values(write(tmp_path / "values.csv", "node;speed\nx,1;3,5\nx,3;,5\n"), reading.graph)
    assert values.values.tolist() == [3.5, 0.5]
    assert "decimal commas in 'speed'" in values.notes
    errors = write(tmp_path / "errors.csv", "node;speed;sd\nx,1;3,5;0,5\nx,2;;\nx,3;4;1\n")
    found = read_values(errors, reading.graph, ValueColumns(value="speed", noise="sd")).noise
    assert found is not None
    assert found.tolist() == [0.5, 1.0]
    assert gm.Graph.from_edges(edges, length="length") == reading.graph


def test_a_slip_among_decimal_commas_is_told(tmp_path: Path) -> None:
    path = write(tmp_path / "values.csv", "node;speed\na;3,5\nb;4,5\nc;fast\n")
    with pytest.raises(TableError, match="received 'fast' in row 3"):
        read_values(path, PATH)


@pytest.mark.parametrize("cells", [["1,234", "12,500"], ["1,5", "2.5"]])
def test_numbers_that_may_mean_two_things_are_refused(tmp_path: Path, cells: list[str]) -> None:
    path = write(tmp_path / "values.csv", f"node;speed\na;{cells[0]}\nb;{cells[1]}\n")
    with pytest.raises(TableError, match=r"without separators: 1234\.5"):
        read_values(path, PATH)


@given(st.lists(st.floats(-1e6, 1e6).map(lambda x: round(x, 2)), min_size=1, max_size=5))
def test_commas_and_points_give_the_same_numbers(numbers: list[float]) -> None:
    column = pd.Series([f"{number:.2f}".replace(".", ",") for number in numbers])
    assert uses_decimal_commas(column)
    assert looks_like_numbers(column)
    np.testing.assert_array_equal(to_numbers(column), numbers)


def test_windows_encodings_are_read_and_mentioned(tmp_path: Path) -> None:
    edges = write(
        tmp_path / "edges.csv", "source;target;länge;length\nKöln;Ürzig;x;1,5\nÜrzig;Bonn;y;2\n".encode("cp1252")
    )
    reading = read_graph(edges)
    assert reading.graph.nodes.tolist() == ["Köln", "Ürzig", "Bonn"]
    assert "edges.csv is not encoded in UTF-8; it was read as Windows-1252 (Latin-1)" in reading.notes
    values: Any = read_values(write(tmp_path / "v.csv", "Ort,Wert\nKöln,1\n".encode("cp1252")), reading.graph)
    assert values.places.tolist() == [0]
    assert "Windows-1252" in values.notes[1]
    with pytest.warns(GraphMaternWarning, match="Windows-1252"):
        gm.Graph.from_edges(edges, length="length")
