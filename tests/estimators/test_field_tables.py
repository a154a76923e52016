"""Tables of fields: every kind of bad table gets a clear error, good ones are read as they are meant."""

from __future__ import annotations

import datetime as dt
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pytest

import graphmatern as gm
from graphmatern._validation import FaultList
from graphmatern.errors import ResourceError, TableError
from graphmatern.estimators._field_data import read_field
from graphmatern.estimators._times import TimeAxis, read_times

GRAPH = gm.Graph.from_edges([("a", "b"), ("b", "c"), ("c", "d")])
DAYS = ["2024-01-01", "2024-01-02", "2024-01-03"]


def long_table(**columns: Any) -> pd.DataFrame:
    return pd.DataFrame({"node": ["a", "b", "c"], "time": DAYS, "value": [1.0, 2.0, 3.0]} | columns)


def wide_table(index: Any = (0.0, 1.0), columns: Any = ("a", "b")) -> pd.DataFrame:
    return pd.DataFrame(np.ones((len(index), len(columns))), index=list(index), columns=list(columns))


def read(*arguments: Any, **names: Any) -> Any:
    return read_field(GRAPH, *arguments, **({"node": "node", "time": "time", "value": "value"} | names))


BERLIN, NEW_YORK = ZoneInfo("Europe/Berlin"), ZoneInfo("America/New_York")
NOON = dt.datetime(2024, 1, 1, 12)
NOT_A_TABLE: list[Any] = ["a", "b"]

BAD: dict[str, tuple[tuple[Any, ...], str]] = {
    "duplicate cells": (
        (long_table(node=["a", "b", "a"], time=[DAYS[0], DAYS[0], DAYS[0]]),),
        r"at most one value per node and time; received the same cell again in row 2 \(as row 0\). Merge",
    ),
    "duplicate after blanks": (
        (long_table(node=["b", "a", "a"], time=[DAYS[0]] * 3, value=[np.nan, 1.0, 2.0]),),
        r"row 2 \(as row 1\)",
    ),
    "duplicate times": ((wide_table(index=[1.0, 1.0]),), r"`index` must hold each time once; received 1.0 twice"),
    "duplicate nodes": ((wide_table(columns=["a", "a"]),), r"`columns` must name each node once"),
    "unparsable time": (
        (long_table(time=[DAYS[0], "soon", DAYS[1]]),),
        r"`time` must be numbers, dates, or texts in ISO 8601 .* received 'soon' in row 1. Correct",
    ),
    "ambiguous time": ((long_table(time=["01/02/2024"] * 3),), r"ISO 8601"),
    "missing time": ((long_table(time=[DAYS[0], None, DAYS[1]]),), r"a time in every row; received none in row 1"),
    "infinite time": ((long_table(time=[0.0, np.inf, 1.0]),), r"`time` must be finite; received inf in row 1"),
    "mixed kinds": ((long_table(time=[DAYS[0], 3.0, DAYS[1]]),), r"all numbers or all dates"),
    "yes or no": ((long_table(time=[True, False, True]),), r"must be numbers, dates"),
    "zones mixed": (
        (long_table(time=["2024-01-01 00:00+01:00", "2024-01-01 01:00+02:00", "2024-01-01 02:00+01:00"]),),
        r"have the same time zone, or none; received \+01:00 in row 0, \+02:00 in row 1. Convert .* utc=True",
    ),
    "zones and none": (
        (long_table(time=["2024-01-01 00:00Z", "2024-01-01 01:00", "2024-01-01 02:00Z"]),),
        r"have the same time zone, or none; received \+00:00 in row 0, no zone in row 1",
    ),
    "zones of objects": (
        (["a", "b"], [NOON.replace(tzinfo=BERLIN), NOON.replace(tzinfo=NEW_YORK)], [1.0, 2.0]),
        r"Europe/Berlin in row 0, America/New_York in row 1",
    ),
    "unknown nodes": (
        (long_table(node=["a", "x", "y"]),),
        r"`node` must be names of nodes of the graph; received 'x', 'y'",
    ),
    "unknown columns": ((wide_table(columns=["a", "x"]),), r"`columns` must be names of nodes .* received 'x'"),
    "all missing": ((long_table(value=[np.nan] * 3),), r"must hold at least one value; received none"),
    "wide all missing": ((wide_table() * np.nan,), r"must hold at least one value"),
    "empty": ((long_table().iloc[:0],), r"must hold at least one value"),
    "infinite value": ((long_table(value=[1.0, np.inf, 2.0]),), r"`value` must hold finite numbers, or NaN .* row 1"),
    "text value": ((long_table(value=[1.0, "fast", 2.0]),), r"`value` must hold finite numbers"),
    "transposed": ((wide_table(index=["a", "b"], columns=[0.0, 1.0]),), r"received nodes as rows. Transpose it"),
    "column missing": ((long_table().rename(columns={"value": "speed"}),), r"Name them"),
    "column twice": ((pd.concat([long_table(), long_table()[["value"]]], axis=1),), r"must have each column once"),
    "no values": ((NOT_A_TABLE,), r"must be a DataFrame, or be given with `times` and `y`"),
    "both": ((long_table(), DAYS), r"must be None with a DataFrame"),
    "a clock's word": ((long_table(time=["now", "today", DAYS[0]]),), r"received 'now' in row 0, 'today' in row 1"),
    "a number too large": ((long_table(time=[10**400, 1, 2]),), r"`time` must be finite"),
    "levels": (
        (pd.DataFrame(np.ones((2, 1)), index=pd.MultiIndex.from_tuples([(0, 1), (0, 2)]), columns=["a"]),),
        r"`index` must be numbers, dates, .* received 2 levels",
    ),
    "other names": (
        (long_table().rename(columns={"node": "sensor", "time": "when", "value": "speed"}),),
        r"must have the columns 'node', 'time' and 'value', or .* received the columns 'sensor', 'when', 'speed'. Name",
    ),
    "transposed, one unknown": ((wide_table(index=["a", "x"], columns=[0.0, 1.0]),), r"received nodes as rows"),
    "two dimensions": ((["a", "b"], [0.0, 1.0], [[1.0], [2.0]]), r"`y` must have one dimension; .* shape \(2, 1\)"),
    "lengths": ((["a", "b"], [0.0], [1.0, 2.0]), r"one entry per node and time; received 2 nodes, 1 times, 2 values"),
    "one time": ((["a"], "2024-01-01", [1.0]), r"must be a sequence of times"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_tables(case: str) -> None:
    arguments, words = BAD[case]
    with pytest.raises(TableError, match=words):
        gm.GraphFieldRegressor(GRAPH).fit(*arguments)


def test_all_faults_are_reported_at_once() -> None:
    table = long_table(node=["a", "x", "b"], time=["soon", DAYS[0], DAYS[1]], value=[1.0, 2.0, "fast"])
    with pytest.raises(TableError) as caught:
        read(table)
    assert [fault.argument for fault in caught.value.faults] == ["node", "time", "value"]
    table = long_table(node=["a", "a", "x"], time=["soon", "soon", DAYS[0]])
    with pytest.raises(TableError, match=r"the same cell again in row 1 \(as row 0\)") as caught:
        read(table)
    assert [fault.argument for fault in caught.value.faults] == ["node", "time", "data"]
    with pytest.raises(TableError) as caught:
        read(wide_table(index=["soon", "soon"], columns=["a", "x"]) * np.nan)
    assert [fault.argument for fault in caught.value.faults] == ["columns", "index", "data", "index"]


def test_grids_too_large_are_refused() -> None:
    n = 20_000
    graph = gm.Graph.from_edges([(k, k + 1) for k in range(n - 1)])
    with pytest.raises(ResourceError, match="Round times to a common grid"):
        gm.GraphFieldRegressor(graph).fit(graph.nodes, np.arange(float(n)), np.ones(n))


def test_long_and_wide_tables_make_the_same_grid() -> None:
    long = long_table(node=["b", "a", "b"], time=[DAYS[1], DAYS[0], DAYS[0]])
    wide = pd.DataFrame({"b": [3.0, 1.0], "a": [2.0, np.nan], "d": [np.nan, np.nan]}, index=DAYS[:2])
    loose = iter(long["node"]), iter(long["time"]), iter(long["value"])
    for found in (read(long), read(wide), read(list(long["node"]), long["time"], long["value"]), read(*loose)):
        assert found.nodes.tolist() == [0, 1]
        np.testing.assert_array_equal(found.y, [[2.0, 3.0], [np.nan, 1.0]])
        assert found.times.tolist() == [pd.Timestamp(day) for day in DAYS[:2]]


TIMES: dict[str, tuple[Any, list[float]]] = {
    "numbers": ([3, 5.5], [3.0, 5.5]),
    "tensor-like": (np.array([1, 2], dtype=np.int8), [1.0, 2.0]),
    "texts": (["2024-01-01", "2024-01-02 12:00"], [0.0, 1.5]),
    "offsets": (["2024-01-01T00:00:00+02:00", "2024-01-01T12:00:00+02:00"], [0.0, 0.5]),
    "utc": (["2024-01-01T00:00Z", "2024-01-03T00:00Z"], [0.0, 2.0]),
    "spellings of utc": (["2024-01-01T00:00Z", "2024-01-02T00:00+00:00", "2024-01-03T00:00+0000"], [0.0, 1.0, 2.0]),
    "dates": ([dt.date(2024, 2, 28), dt.date(2024, 3, 1)], [0.0, 2.0]),
    "numpy": (np.array(["2024-01-01", "2024-01-02"], dtype="M8[D]"), [0.0, 1.0]),
    "periods": (pd.period_range("2024-01", periods=2, freq="M"), [0.0, 31.0]),
    # The clocks went forward that night: a day of 23 hours.
    "summer": (pd.DatetimeIndex(["2024-03-31", "2024-04-01"], tz="Europe/Berlin"), [0.0, 23 / 24]),
    "summer objects": (
        [dt.datetime(2024, 3, 31, tzinfo=BERLIN), dt.datetime(2024, 4, 1, tzinfo=BERLIN)],
        [0.0, 23 / 24],
    ),
    "far away": (np.array(["0001-01-01", "0001-01-02"], dtype="M8[s]"), [0.0, 1.0]),
}


@pytest.mark.parametrize("case", TIMES)
def test_times_become_numbers(case: str) -> None:
    values, expected = TIMES[case]
    faults = FaultList("", TableError)
    index = read_times(values, "times", faults)
    faults.raise_if_any()
    assert index is not None
    found = TimeAxis.of(index, "D").numbers(index)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_units_and_times_to_predict_at() -> None:
    index = read_times(["2024-01-01 00:00+01:00", "2024-01-01 06:00+01:00"], "times", FaultList("", TableError))
    assert index is not None
    axis = TimeAxis.of(index, "h")
    np.testing.assert_allclose(axis.numbers(axis.read(["2024-01-01 00:00Z", "2024-01-02 00:00Z"])), [1.0, 25.0])
    with pytest.raises(TableError, match="must be dates with a time zone, as those observed; received dates without"):
        axis.read(["2024-01-01"])
    with pytest.raises(TableError, match="received numbers"):
        axis.read([1.0])
    with pytest.raises(TableError, match="Put it in a list"):
        axis.read("2024-01-01")
    with pytest.raises(TableError, match="must be numbers, as those observed"):
        TimeAxis.of(pd.Index([0.0]), "D").read(["2024-01-01"])
