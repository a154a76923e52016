"""Tables of edges: which columns hold what, as a caller says or as their names do."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from graphmatern._validation import FaultList, abbreviate, warn
from graphmatern.errors import EdgeWarning
from graphmatern.tables.columns import by_name, end_pair
from graphmatern.tables.files import read_table
from graphmatern.tables.names import as_written
from graphmatern.tables.numbers import to_numbers, uses_decimal_commas

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["edge_columns", "table_column"]


def edge_columns(
    edges: Any, source: Any, target: Any, others: Mapping[str, Any], faults: FaultList
) -> tuple[pd.DataFrame | None, Any, Any]:
    """Return the table (if there is one) and the two columns of node names.

    Parameters
    ----------
    edges : DataFrame, path, mapping, array or sequence of pairs
        What the caller passed.
    source, target : hashable, optional
        Columns the caller named.
    others : mapping
        What the caller gave for weight, length, id and geometry: columns, or their names.
    faults : FaultList
        Where faults are noted.
    """
    is_file = isinstance(edges, str | Path)
    if is_file:
        edges = read_table(edges)
    if isinstance(edges, Mapping):
        try:
            edges = pd.DataFrame(edges)
        except ValueError as error:
            raise faults.raise_now("edges", "must have columns of equal length", str(error), "Check it.") from None
    if isinstance(edges, pd.DataFrame):
        used = [name for name in others.values() if isinstance(name, str)]
        names = _end_columns(edges, source, target, used, faults)
        if others["weight"] is None and others["length"] is None:
            _warn_of_unused(edges, [*names, *used])
        columns = [
            table_column(edges, name, end, faults) for name, end in zip(names, ("source", "target"), strict=True)
        ]
        if is_file and all(isinstance(column, pd.Series) for column in columns):
            columns = as_written(columns)
        return edges, *columns
    pairs = edges
    if not isinstance(edges, np.ndarray):
        try:
            pairs = list(edges)
        except (TypeError, NotImplementedError):
            pairs = [edges]
    if isinstance(pairs, np.ndarray) and pairs.ndim == 2 and pairs.shape[1] == 2:
        return None, pairs[:, 0], pairs[:, 1]
    if isinstance(pairs, list) and all(isinstance(pair, tuple | list) and len(pair) == 2 for pair in pairs):
        return None, [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    shape = f"an array of shape {pairs.shape}" if isinstance(pairs, np.ndarray) else abbreviate(pairs)
    raise faults.raise_now(
        "edges",
        "must be a DataFrame, the path of a table, an (n, 2) array or a sequence of pairs of node names",
        shape,
        "Pass weights or lengths by `weight=` or `length=`.",
    )


def _end_columns(
    table: pd.DataFrame, source: Any, target: Any, used: Sequence[str], faults: FaultList
) -> tuple[Any, Any]:
    """Names of the columns with the two ends of the edges."""
    free = [name for name in table.columns if name not in used and name not in (source, target)]
    if source is None and target is None and (pair := end_pair(free)) is not None:
        return pair
    if (source is None) + (target is None) == len(free):
        rest = iter(free)
        source = next(rest) if source is None else source
        target = next(rest) if target is None else target
    if source is None or target is None or source == target:
        remedy = "Name them: `source=` and `target=`."
        if table.shape[1] < 2:
            remedy = "Two columns are needed; the separator of the file may be another character."
        received = f"columns {abbreviate(table.columns)}"
        if source is not None and source == target:
            received = f"{source!r} for both"
        raise faults.raise_now("edges", "must have two columns of node names", received, remedy)
    return source, target


def _warn_of_unused(table: pd.DataFrame, used: Sequence[Any]) -> None:
    """Warn of columns that are called as lengths or weights would be, where neither are named."""
    free = [name for name in table.columns if name not in used]
    for role in ("length", "weight"):
        if columns := by_name(free, role):
            warn(
                f"the column {str(columns[0])!r} of `edges` is not used, and all edges have weight 1; pass "
                f"{role}={columns[0]!r} to use it, or drop it",
                EdgeWarning,
            )


def table_column(table: pd.DataFrame | None, name: Any, argument: str, faults: FaultList) -> Any:
    """Return a column by its name, or an array that was passed instead of a name."""
    if name is None or not isinstance(name, str | int | np.integer | tuple):
        return name
    if table is None or name not in table.columns:
        columns = "no table" if table is None else f"columns {abbreviate(table.columns)}"
        faults.add(argument, "must be a column of `edges`", f"{name!r} with {columns}", "Name one of the columns.")
        return None
    count = int(np.sum(np.asarray(table.columns == name)))
    if count > 1:
        faults.add(argument, "must name one column", f"{name!r}, which occurs {count} times", "Rename them.")
        return None
    column = table[name]
    if argument in ("weight", "length") and isinstance(column, pd.Series) and uses_decimal_commas(column):
        return to_numbers(column)
    return column
