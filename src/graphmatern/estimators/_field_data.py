"""From a table of values at nodes and times to a grid with gaps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from graphmatern._validation import FaultList, abbreviate, as_numbers, name_rows
from graphmatern.errors import ResourceError, TableError
from graphmatern.estimators._times import read_times

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from graphmatern.graph import Graph

    Floats = NDArray[np.float64]
    Longs = NDArray[np.int64]

__all__ = ["FieldData", "read_field"]

_LARGEST_GRID = 2**28  # cells; with more, times are probably not on a common grid


@dataclass(frozen=True, eq=False)
class FieldData:
    """Observations on a grid, in the caller's units.

    Attributes
    ----------
    nodes : ndarray of int64, shape (n_nodes,)
        Positions of the observed nodes, increasing.
    times : Index, shape (n_times,)
        Observed times, increasing: numbers or dates.
    y : ndarray, shape (n_times, n_nodes)
        Values; NaN if not observed.
    """

    nodes: Longs
    times: pd.Index[Any]
    y: Floats

    def cells(self) -> tuple[Longs, Longs]:
        """Row and column of every observed cell."""
        rows, columns = np.nonzero(~np.isnan(self.y))
        return rows, columns

    def join(self, other: FieldData) -> FieldData:
        """Both together; cells observed twice are refused."""
        parts = []
        for one in (self, other):
            rows, columns = one.cells()
            parts.append((one.nodes[columns], one.times[rows], one.y[rows, columns]))
        (nodes, times, values), (more_nodes, more_times, more_values) = parts
        every_node, every_time = np.concatenate([nodes, more_nodes]), times.append(more_times)
        faults = FaultList("nothing was added", TableError)
        _note_repeated(every_node, every_time, None, faults)
        faults.raise_if_any()
        return _to_grid(every_node, every_time, np.append(values, more_values))


def _columns_of(data: Any, times: Any, y: Any, names: tuple[str, str, str], faults: FaultList) -> list[Any] | None:
    """Nodes, times and values, one row per observation, unchecked; None for a wide table."""
    if not isinstance(data, pd.DataFrame):
        if times is None or y is None:
            received = f"a {type(data).__name__}" + ("" if times is None else " and times") + " alone"
            remedy = "Pass a table, or nodes, times and values."
            raise faults.raise_now("data", "must be a DataFrame, or be given with `times` and `y`", received, remedy)
        return [column if hasattr(column, "__len__") else list(column) for column in (data, times, y)]
    if times is not None or y is not None:
        raise faults.raise_now("times", "must be None with a DataFrame", "both", "The table holds times and values.")
    counts = [int((data.columns == name).sum()) for name in names]
    if max(counts) > 1:
        repeated = abbreviate(name for name, count in zip(names, counts, strict=True) if count > 1)
        raise faults.raise_now("data", "must have each column once", f"{repeated} again", "Rename or drop one of them.")
    if sum(counts) == 3:
        return [data[name] for name in names]
    if sum(counts) == 2:
        rule = "must have the columns {!r}, {!r} and {!r}, or a row per time and a column per node".format(*names)
        received = f"the columns {abbreviate(data.columns)}"
        raise faults.raise_now("data", rule, received, "Name them: fit(table, value='speed').")
    return None


def read_field(
    graph: Graph, data: Any, times: Any = None, y: Any = None, *, node: str, time: str, value: str
) -> FieldData:
    """Check what was passed to ``fit``; every fault is reported at once.

    Parameters
    ----------
    graph : Graph
        The graph.
    data : DataFrame or sequence of hashable
        A long table with a row per observation; a wide one with a row per time and a column per node; or node names.
    times, y : sequence, optional
        Times and values, beside node names.
    node, time, value : str
        Columns of a long table.
    """
    faults = FaultList("nothing was read", TableError)
    columns = _columns_of(data, times, y, (node, time, value), faults)
    if columns is None:
        return _read_wide(graph, data, (node, time, value), faults)
    labels = (node, time, value) if isinstance(data, pd.DataFrame) else ("nodes", "times", "y")
    codes = _codes(graph, columns[0], labels[0], faults)
    stamps = read_times(columns[1], labels[1], faults)
    values = _values(columns[2], labels[2], faults)
    if values.ndim != 1:
        received = f"an array of shape {values.shape}"
        raise faults.raise_now(labels[2], "must have one dimension", received, "One row per observation.")
    if len(codes) != len(values) or (stamps is not None and len(stamps) != len(values)):
        received = "{} nodes, {} times, {} values".format(*(len(column) for column in columns))
        raise faults.raise_now(labels[2], "must have one entry per node and time", received, "One row per observation.")
    known = np.flatnonzero(~np.isnan(values))
    # Where some times are unreadable, equal ones are still seen to be equal.
    keys = stamps if stamps is not None else pd.Index([str(one) for one in columns[1]], dtype=object)
    if len(keys) == len(values):
        _note_repeated(codes[known], keys[known], known, faults)
    faults.raise_if_any()
    assert stamps is not None
    return _to_grid(codes[known], stamps[known], values[known])


def _note_repeated(codes: Longs, times: pd.Index[Any], rows: Longs | None, faults: FaultList) -> None:
    """Note cells that are named twice; ``rows`` are their numbers in the caller's table, None where it has none."""
    column, row = pd.factorize(codes)[0], pd.factorize(times)[0]
    place = row.astype(np.int64) * (1 + int(column.max(initial=0))) + column
    place = np.where(codes < 0, -1 - np.arange(len(codes)), place)  # nodes that are unknown equal no other
    order = np.argsort(place, kind="stable")
    again = np.flatnonzero(np.diff(place[order]) == 0)
    if len(again) == 0:
        return
    received = f"{len(again)} that were observed before"
    if rows is not None:
        shown = [f"row {rows[order[k + 1]]} (as row {rows[order[k]]})" for k in again[:5]]
        more = f", ... ({len(again)} in all)" if len(again) > 5 else ""
        received = f"the same cell again in {', '.join(shown)}{more}"
    remedy = "Merge them, such as by groupby([node, time]).mean()."
    faults.add("data", "must hold at most one value per node and time", received, remedy)


def _read_wide(graph: Graph, table: pd.DataFrame, named: tuple[str, str, str], faults: FaultList) -> FieldData:
    names = graph.names
    codes = np.asarray(names.codes(table.columns), dtype=np.int64)
    if len(codes) and (codes < 0).all():
        if table.index.nlevels == 1 and (names.codes(table.index) >= 0).any():
            remedy = "Transpose it: table.T."
            raise faults.raise_now("data", "must have a row per time and a column per node", "nodes as rows", remedy)
        rule = "must have the columns {!r}, {!r} and {!r}, or a row per time and a column per node".format(*named)
        remedy = f"Name them: fit(table, node='sensor', ...). Nodes are {abbreviate(graph.nodes)}."
        raise faults.raise_now("data", rule, f"the columns {abbreviate(table.columns)}", remedy)
    codes = _codes(graph, table.columns, "columns", faults)
    stamps = read_times(table.index, "index", faults)
    values = _values(table.to_numpy(), "data", faults)
    if table.columns.duplicated().any():
        received = abbreviate(table.columns[table.columns.duplicated()])
        faults.add("columns", "must name each node once", f"{received} twice", "Merge these columns.")
    if table.index.duplicated().any():
        received = abbreviate(table.index[table.index.duplicated()])
        faults.add("index", "must hold each time once", f"{received} twice", "Merge these rows, such as by their mean.")
    faults.raise_if_any()
    assert stamps is not None
    rows, columns = np.nonzero(~np.isnan(values))
    return _to_grid(codes[columns], stamps[rows], values[rows, columns])


def _codes(graph: Graph, names: Any, argument: str, faults: FaultList) -> Longs:
    """Positions of nodes; unknown names are noted."""
    try:
        codes = graph.names.codes(names)
    except TypeError as error:
        raise faults.raise_now(argument, "must be a 1-D sequence of node names", str(error), "Use a list.") from None
    if (codes < 0).any():
        unknown = pd.Index(list(names), dtype=object, tupleize_cols=False)[codes < 0]
        graph.names.note_unknown(unknown, argument, faults)
    return codes


def _values(values: Any, argument: str, faults: FaultList) -> Floats:
    """Values as numbers; NaN and None mean not observed, anything else that is not a number is noted."""
    array = np.asarray(values)
    blank = np.asarray(pd.isna(array), dtype=bool)
    ignored = FaultList("", TableError)
    numbers = as_numbers(values, argument, ignored)
    bad = ~np.isfinite(numbers) & ~blank if numbers.shape == blank.shape else np.ones(1, dtype=bool)
    if bad.any():
        rows = np.unique(np.argwhere(bad)[:, 0])
        received = f"other entries in {name_rows(rows)}"
        faults.add(argument, "must hold finite numbers, or NaN for what was not observed", received, "Correct them.")
    elif blank.all():
        faults.add(argument, "must hold at least one value", "none", "NaN means not observed.")
    return np.where(np.isfinite(numbers), numbers, np.nan)


def _to_grid(codes: Longs, times: pd.Index[Any], values: Floats) -> FieldData:
    """Sort observations, at least one and each cell once, into a grid of all their nodes and times."""
    nodes, column = np.unique(codes, return_inverse=True)
    distinct = times.unique().sort_values()
    row = np.asarray(distinct.get_indexer(times), dtype=np.int64)
    if len(distinct) * len(nodes) > _LARGEST_GRID:
        raise ResourceError(
            f"{len(distinct):,} times × {len(nodes):,} nodes make a grid of {len(distinct) * len(nodes):,} cells, for "
            f"{len(values):,} values. Round times to a common grid, or aggregate them."
        )
    y = np.full((len(distinct), len(nodes)), np.nan)
    y[row, column] = values
    return FieldData(nodes, distinct, y)
