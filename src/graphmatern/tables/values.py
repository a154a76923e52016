"""Columns of values, at nodes or at points on edges."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from graphmatern._validation import FaultList, abbreviate
from graphmatern.tables.columns import by_name, position_columns, wanted_column
from graphmatern.tables.numbers import is_numeric, share_of_numbers

if TYPE_CHECKING:
    import pandas as pd

    from graphmatern.tables.names import NameMatcher

__all__ = ["NEARLY", "PointColumns", "ValueColumns", "point_columns", "value_column"]

NEARLY = 0.8  # share of numbers from which what is not a number is a slip of the pen


@dataclass(frozen=True)
class ValueColumns:
    """Columns that the caller named; the others are guessed.

    Attributes
    ----------
    node, value, noise : str, optional
        Node names, values, standard deviations of the values' errors.
    road, distance, fraction : str, optional
        For values at points on edges: the edge's id, and the distance from its source or the share of it.
    """

    node: str | None = None
    value: str | None = None
    noise: str | None = None
    road: str | None = None
    distance: str | None = None
    fraction: str | None = None


class PointColumns(NamedTuple):
    """Columns that say where points lie: edge ids, and places along the edges, distances or shares of them."""

    road: Any
    along: Any
    is_distance: bool


def value_column(table: pd.DataFrame, used: list[Any], faults: FaultList) -> Any:
    """The last column of numbers, or the only one left; coordinates only where there is nothing else."""
    places = position_columns(table) or ()
    rest = [column for column in table.columns if column not in used and column not in places]
    rest = rest or [column for column in table.columns if column not in used]
    numeric = [column for column in rest if share_of_numbers(table[column]) >= NEARLY]
    if numeric:
        return numeric[-1]
    if len(rest) != 1:
        received = f"columns {abbreviate(map(str, rest))}" if rest else "no other column"
        raise faults.raise_now("file", "must have a column of values", received, "Name it with --value.")
    return rest[0]


def point_columns(
    table: pd.DataFrame, roads: NameMatcher, columns: ValueColumns, taken: list[Any], faults: FaultList
) -> PointColumns | None:
    """Find the columns that place values on edges; None where values lie at nodes.

    Parameters
    ----------
    table : DataFrame
        The table.
    roads : NameMatcher
        Ids of the edges.
    columns : ValueColumns
        What the caller named.
    taken : list
        Columns with another use.
    faults : FaultList
        Where faults are noted.
    """
    road = wanted_column(table, columns.road, "road", faults)
    distance = wanted_column(table, columns.distance, "distance", faults)
    fraction = wanted_column(table, columns.fraction, "fraction", faults)
    faults.raise_if_any()
    asked = columns.road is not None or columns.distance is not None or columns.fraction is not None
    free = [column for column in table.columns if column not in (*taken, road, distance, fraction)]
    if road is None:
        road = next((column for column in by_name(free, "road") if roads.share(table[column]) == 1.0), None)
    if distance is None and fraction is None:
        numeric = [column for column in free if column != road and is_numeric(table[column])]
        distance = next(iter(by_name(numeric, "distance")), None)
        fraction = None if distance is not None else next(iter(by_name(numeric, "fraction")), None)
    if road is None or (distance is None and fraction is None):
        if asked:
            received = f"columns {abbreviate(map(str, table.columns))}"
            remedy = "Name both: --road with --distance or --fraction."
            raise faults.raise_now("file", "must have columns of road ids and of distances", received, remedy)
        return None
    return PointColumns(road, fraction if distance is None else distance, distance is not None)
