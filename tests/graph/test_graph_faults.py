"""Every kind of bad graph gives one exception that lists all faults."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest

import graphmatern as gm
from graphmatern.errors import GraphError, InputError, TableError, UnknownNodeError

if TYPE_CHECKING:
    from collections.abc import Callable

NAN, INF = float("nan"), float("inf")
PAIRS = [("a", "b"), ("b", "c"), ("c", "d")]


def edges(pairs: Any = PAIRS, **options: Any) -> Callable[[], object]:
    return lambda: gm.Graph.from_edges(pairs, **options)


def adjacency(matrix: Any, **options: Any) -> Callable[[], object]:
    return lambda: gm.Graph.from_adjacency(matrix, **options)


def points(array: Any, **options: Any) -> Callable[[], object]:
    return lambda: gm.Graph.from_points(array, **options)


def mesh(vertices: Any, triangles: Any, **options: Any) -> Callable[[], object]:
    return lambda: gm.Graph.from_mesh(vertices, triangles, **options)


SQUARE = [[0, 0], [1, 0], [1, 1], [0, 1]]
# What is done, and (argument, words of the rule, words of what was received) for each fault expected.
TABLE: dict[str, tuple[Callable[[], object], list[tuple[str, str, str]]]] = {
    "negative weight": (edges(weight=[1.0, -2.0, 3.0]), [("weight", "at least 0", "-2.0 in row 1")]),
    "NaN weight": (edges(weight=[NAN, 1.0, 1.0]), [("weight", "finite", "nan in row 0")]),
    "infinite weight": (edges(weight=[1.0, 1.0, INF]), [("weight", "finite", "inf in row 2")]),
    "text for a weight": (edges(weight=["1", "heavy", "2"]), [("weight", "finite", "'heavy' in row 1")]),
    "zero length": (edges(length=[0.0, 1.0, 2.0]), [("length", "above 0", "0.0 in row 0")]),
    "NaN and negative length": (
        edges(length=[NAN, -1.0, 2.0]),
        [("length", "finite", "nan"), ("length", "above 0", "-1.0 in row 1")],
    ),
    "weight and length": (
        edges(weight=[1.0, 1.0, 1.0], length=[1.0, 1.0, 1.0]),
        [("length", "not be given with", "both")],
    ),
    "too few weights": (edges(weight=[1.0, 2.0]), [("weight", "one entry per edge (3)", "(2,)")]),
    "mean length without lengths": (
        edges(parallel="mean_length"),
        [("parallel", "without lengths", "no `length`")],
    ),
    "unknown names": (
        edges(nodes=["a", "b"]),
        [("source", "names of nodes", "'c'"), ("target", "names of nodes", "'c', 'd'")],
    ),
    "repeated node": (edges(nodes=["a", "b", "c", "d", "a"]), [("nodes", "unique", "'a'")]),
    "missing end": (edges([("a", None), ("a", "b")]), [("target", "name a node in every row", "row 0")]),
    "missing node name": (edges(nodes=["a", "b", "c", "d", NAN]), [("nodes", "None or NaN", "positions 4")]),
    "triples": (edges([("a", "b", 1.0)]), [("edges", "pairs of node names", "('a', 'b', 1.0)")]),
    "matrix of three columns": (edges(np.zeros((4, 3))), [("edges", "pairs", "shape (4, 3)")]),
    "no such column": (
        edges(pd.DataFrame({"source": ["a"], "target": ["b"]}), weight="w", length=None),
        [("weight", "column of `edges`", "'w'")],
    ),
    "one column": (edges(pd.DataFrame({"source": ["a"]})), [("edges", "two columns", "'source'")]),
    "nothing at all": (edges([]), [("nodes", "at least one node", "none")]),
    "several faults": (
        edges(weight=[NAN, -1.0, 1.0], nodes=["a", "b", "c", "c"], masses=[1.0]),
        [("weight", "finite", "nan"), ("weight", "at least 0", "-1.0"), ("nodes", "unique", "'c'")],
    ),
    "bad geometry": (
        edges(geometry=["POINT (0 0)", "LINESTRING (0 0, 1 1)", "LINESTRING (0 0, 1 nan)"]),
        [("geometry", "LINESTRING", "row 0: not a WKT LINESTRING")],
    ),
    "positions for too few": (
        edges(positions=[[0, 0]]),
        [("positions", "shape (4, n_dimensions)", "(1, 2)")],
    ),
    "position missing": (
        edges(positions={"a": (0, 0), "b": (1, 1), "c": (2, 2)}),
        [("positions", "every node", "'d'")],
    ),
    "position not finite": (
        edges([("a", "b")], positions=[[0, INF], [1, 1]]),
        [("positions", "finite", "inf in row 0, column 1")],
    ),
    "mass of zero": (edges(masses=[1.0, 0.0, 1.0, 1.0]), [("masses", "above 0", "0.0 in row 1")]),
    "repeated id": (edges(id=["r", "r", "s"]), [("id", "unique", "'r'")]),
    "not square": (adjacency(np.ones((2, 3))), [("adjacency", "square", "(2, 3)")]),
    "asymmetric": (adjacency([[0, 1], [2, 0]]), [("adjacency", "symmetric", "(0, 1)")]),
    "negative entry": (adjacency([[0, -1], [-1, 0]]), [("adjacency", "at least 0", "-1.0 in row 0, column 1")]),
    "NaN entry": (adjacency([[0, NAN], [NAN, 0]]), [("adjacency", "finite", "nan")]),
    "empty matrix": (adjacency(np.zeros((0, 0))), [("nodes", "at least one node", "none")]),
    "text matrix": (
        adjacency([["a", "b"], ["b", "a"]]),
        [("adjacency", "finite", "'a' in row 0, column 0")],
    ),
    "too few names": (adjacency(np.zeros((2, 2)), nodes=["a"]), [("nodes", "every row (2)", "1 names")]),
    "asymmetric and negative": (
        adjacency([[0, -1], [2, 0]]),
        [("adjacency", "at least 0", "-1.0 in row 0, column 1"), ("adjacency", "symmetric", "(0, 1)")],
    ),
    "too many neighbours": (points([[0.0], [1.0]], n_neighbors=2), [("n_neighbors", "from 1 to 1", "2")]),
    "NaN point": (points([[0.0], [NAN], [1.0]], n_neighbors=1), [("points", "finite", "nan in row 1, column 0")]),
    "flat list of points": (points([0.0, 1.0]), [("points", "shape (n_nodes, n_dimensions)", "(2,)")]),
    "bandwidth": (points([[0.0], [1.0]], n_neighbors=1, bandwidth=0.0), [("bandwidth", "positive", "0.0")]),
    "triangle out of range": (mesh(SQUARE, [[0, 1, 4]]), [("triangles", "from 0 to 3", "row 0")]),
    "flat triangle": (mesh([[0, 0], [1, 0], [2, 0]], [[0, 1, 2]]), [("triangles", "have an area", "row 0")]),
    "unused vertex": (mesh(SQUARE, [[0, 1, 2]]), [("vertices", "belong to a triangle", "vertices 3")]),
    "bad shapes": (
        mesh([0, 1], [[0, 1]]),
        [("vertices", "(n_nodes, 2 or 3)", "(2,)"), ("triangles", "(n_triangles, 3)", "(1, 2)")],
    ),
    "three triangles at an edge": (
        mesh([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1], [0, -1, 0]], [[0, 1, 2], [0, 1, 3], [0, 1, 4]]),
        [("triangles", "at most two at an edge", "(0, 1)")],
    ),
    "obtuse": (
        mesh([[0, 0], [4, 0], [2, 0.5], [2, -0.5]], [[0, 1, 2], [1, 0, 3]]),
        [("triangles", "cotangent weights of at least 0", "(0, 1)")],
    ),
    "networkx": (lambda: gm.Graph.from_networkx(nx.DiGraph()), [("graph", "undirected", "DiGraph")]),
    "not networkx": (lambda: gm.Graph.from_networkx([1, 2]), [("graph", "networkx", "list")]),  # type: ignore[arg-type]
    "few roads": (lambda: gm.make_roads(3), [("n", "at least 4", "3")]),
    "eigenpairs": (
        lambda: gm.Graph.from_edges(PAIRS).spectrum(0),
        [("n_eigenpairs", "whole number of at least 1", "0")],
    ),
}


@pytest.mark.parametrize("case", TABLE)
def test_bad_graphs(case: str) -> None:
    action, expected = TABLE[case]
    with pytest.raises(GraphError) as caught:
        action()
    faults = caught.value.faults
    for argument, rule, received in expected:
        assert any(
            fault.argument == argument and rule in fault.rule and received in fault.received for fault in faults
        ), f"no fault ({argument}, {rule}, {received}) in\n{caught.value}"
    assert len(faults) == len(expected), str(caught.value)
    assert all(fault.remedy.endswith(".") for fault in faults)
    assert isinstance(caught.value, ValueError)


def test_the_message_lists_all_faults() -> None:
    with pytest.raises(GraphError) as caught:
        gm.Graph.from_edges(PAIRS, weight=[NAN, -1.0, 1.0])
    text = str(caught.value)
    assert text.startswith("no graph was made: 2 faults\n  1. `weight` must hold finite numbers; received nan")
    assert "\n  2. `weight` must be at least 0; received -1.0 in row 1. " in text


def test_long_lists_are_shortened() -> None:
    with pytest.raises(UnknownNodeError) as caught:
        gm.Graph.from_edges(PAIRS).locate([f"x{i}" for i in range(1000)])
    assert "(1000 in all)" in str(caught.value)
    assert len(str(caught.value)) < 300
    assert isinstance(caught.value, KeyError)


def test_options_are_checked() -> None:
    with pytest.raises(InputError, match="'sum' or 'mean_length'"):
        gm.Graph.from_edges(PAIRS, parallel="add")  # type: ignore[arg-type]


ROAD = gm.Graph.from_edges([("a", "b"), ("b", "c")], length=[10.0, 20.0], id=["r1", "r2"])


def sensors(**columns: list[Any]) -> pd.DataFrame:
    return pd.DataFrame(columns, index=[f"s{i}" for i in range(len(next(iter(columns.values()))))])


@pytest.mark.parametrize(
    ("table", "options", "expected"),
    [
        (sensors(road=["r9"], at=[1.0]), {}, [("road", "ids of edges", "'r9'")]),
        (sensors(road=["r1"], at=[10.0]), {}, [("at", "above 0 and below", "10.0")]),
        (sensors(road=["r1"], at=[-1.0]), {}, [("at", "above 0 and below", "-1.0")]),
        (sensors(road=["r1"], at=[NAN]), {}, [("at", "finite", "nan")]),
        (sensors(road=["r1", "r1"], at=[2.0, 2.0]), {}, [("points", "lie apart", "'s0', 's1'")]),
        (sensors(road=["r1"], at=[2.0], n=["a"]), {"name": "n"}, [("name", "must be new", "'a'")]),
        (sensors(road=["r1"], at=[2.0]), {"distance": None}, [("distance", "must be given", "neither")]),
        (sensors(road=["r1"], at=[2.0]), {"edge": "street"}, [("edge", "column of `points`", "'street'")]),
        (
            sensors(road=["r9", "r1"], at=[1.0, 99.0]),
            {},
            [("road", "ids of edges", "'r9'"), ("at", "above 0 and below", "99.0")],
        ),
    ],
)
def test_bad_points_on_edges(
    table: pd.DataFrame, options: dict[str, Any], expected: list[tuple[str, str, str]]
) -> None:
    with pytest.raises(TableError) as caught:
        ROAD.subdivide(table, **{"edge": "road", "distance": "at", **options})
    found = [(fault.argument, fault.rule, fault.received) for fault in caught.value.faults]
    assert len(found) == len(expected), str(caught.value)
    for (argument, rule, received), fault in zip(expected, found, strict=True):
        assert fault[0] == argument
        assert rule in fault[1]
        assert received in fault[2]


@pytest.mark.parametrize(
    ("names", "asked", "hint"),
    [
        (["Rathaus", "Markt", "Dom", "Hafen", "Messe", "Oper"], "Rathhaus", r"Did you mean 'Rathaus'\?"),
        (["09000", "09001"], 9001, "Leading zeros were lost: keep the column as text"),
        ([1, 2], "2", "write 2, a int"),
        (["node 11", "node 12"], "node 13", r"named 'node 11', 'node 12'\.$"),  # another number is another node
    ],
)
def test_hints_for_names_that_are_nearly_right(names: list[object], asked: object, hint: str) -> None:
    graph = gm.Graph.from_edges([(names[k], names[k + 1]) for k in range(len(names) - 1)])
    with pytest.raises(UnknownNodeError, match=hint):
        graph.locate([asked])
