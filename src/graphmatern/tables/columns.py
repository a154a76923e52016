"""Finding out what the columns of a table mean, by their names and their entries."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from graphmatern._validation import FaultList, abbreviate
from graphmatern.tables.numbers import is_numeric

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pandas as pd

__all__ = ["EdgeColumns", "by_name", "edge_roles", "end_pair", "position_columns", "wanted_column"]

_ENDS = (
    ("source", "target"),
    ("from", "to"),
    ("u", "v"),
    ("node1", "node2"),
    ("start", "end"),
    ("origin", "destination"),
    ("head", "tail"),
)
_PLACES = (("longitude", "latitude"), ("lon", "lat"), ("lng", "lat"), ("x", "y"), ("easting", "northing"))
_WORDS = {
    "length": r"(^|[_\s])(length|len|distance|dist|metres|meters|km|miles)([_\s(]|$)",
    "weight": r"(^|[_\s])(weight|weights|conductance|similarity|strength)([_\s(]|$)|^w$",
    "geometry": r"(^|[_\s])(geometry|geom|wkt|linestring)([_\s]|$)",
    "id": r"^(id|edge|edge_?id|road|road_?id|segment|segment_?id|link|link_?id|fid|osmid|name)$",
    "distance": r"(^|[_\s])(distance|dist|offset|position|metres|meters|km|at)([_\s(]|$)",
    "road": r"(^|[_\s])(road|edge|segment|link|street)([_\s]|$)",
    "fraction": r"(^|[_\s])(fraction|share|relative)([_\s]|$)",
}


def by_name(columns: Iterable[Any], role: str) -> list[Any]:
    """Columns whose name says that they have a role."""
    return [column for column in columns if re.search(_WORDS[role], str(column).strip().lower())]


def _pairs(columns: Iterable[Any], known: Sequence[tuple[str, str]]) -> list[tuple[Any, Any]]:
    """Pairs of columns whose names are a known pair, however they are capitalised; the best known first."""
    lower = {str(column).strip().lower(): column for column in columns}
    return [(lower[one], lower[other]) for one, other in known if one in lower and other in lower]


def end_pair(columns: Iterable[Any]) -> tuple[Any, Any] | None:
    """Columns whose names say that they hold the two ends of edges."""
    return next(iter(_pairs(columns, _ENDS)), None)


@dataclass
class EdgeColumns:
    """Which column of an edge list is what; None where there is none."""

    source: Any = None
    target: Any = None
    weight: Any = None
    length: Any = None
    id: Any = None
    geometry: Any = None
    notes: list[str] = field(default_factory=list)

    def used(self) -> list[Any]:
        """Columns with a role."""
        return [
            column
            for column in (self.source, self.target, self.weight, self.length, self.id, self.geometry)
            if column is not None
        ]


def wanted_column(table: pd.DataFrame, name: str | None, option: str, faults: FaultList) -> Any:
    """Return the column of that name; note a fault where there is none."""
    if name is None:
        return None
    matches = [column for column in table.columns if str(column) == name]
    if not matches:
        faults.add(option, "must be a column of the table", f"{name!r:.60}; there are {_names(table)}", "Name another.")
        return None
    return matches[0]


def _names(table: pd.DataFrame) -> str:
    return abbreviate(map(str, table.columns))


def edge_roles(
    table: pd.DataFrame, given: dict[str, str | None], faults: FaultList, *, guess_ends: bool = True
) -> EdgeColumns:
    """Guess the roles of an edge list's columns; those that the caller named are taken as they are.

    Parameters
    ----------
    table : DataFrame
        The edge list.
    given : dict
        Names of columns by role, as far as the caller knows them.
    faults : FaultList
        Where unknown columns are noted.
    guess_ends : bool
        Whether the first columns without another use hold the names of the nodes, where no name says so.
    """
    roles = EdgeColumns(**{role: wanted_column(table, name, role, faults) for role, name in given.items()})
    free = [column for column in table.columns if column not in roles.used()]
    if roles.source is None and roles.target is None and (pair := end_pair(free)) is not None:
        roles.source, roles.target = pair
    if roles.geometry is None:
        roles.geometry = _only(by_name(_free(table, roles), "geometry"))
    if roles.length is None and roles.weight is None:
        roles.length = _only(_numeric(table, by_name(_free(table, roles), "length")))
        weight = _only(_numeric(table, by_name(_free(table, roles), "weight")))
        if roles.length is None:
            roles.weight = weight
        elif weight is not None:
            roles.notes.append(f"column {str(weight)!r} is not used: weights follow from lengths")
    if roles.id is None:
        candidates = by_name(_free(table, roles), "id")
        roles.id = _only([c for c in candidates if not (table[c].isna().any() or table[c].duplicated().any())])
    rest = _free(table, roles)
    missing = [end for end in ("source", "target") if getattr(roles, end) is None]
    if guess_ends and (roles.geometry is None or len(missing) == 1):
        if len(rest) < len(missing) and roles.id is not None:  # no name says more than that an edge has two ends
            rest, roles.id = [column for column in table.columns if column == roles.id or column in rest], None
        for end, column in zip(missing, rest, strict=False):
            setattr(roles, end, column)
    return roles


def _free(table: pd.DataFrame, roles: EdgeColumns) -> list[Any]:
    used = roles.used()
    return [column for column in table.columns if column not in used]


def _only(columns: Sequence[Any]) -> Any:
    return columns[0] if columns else None


def _numeric(table: pd.DataFrame, columns: Sequence[Any]) -> list[Any]:
    return [column for column in columns if is_numeric(table[column])]


def position_columns(table: pd.DataFrame) -> tuple[Any, Any] | None:
    """Columns of coordinates, found by their names."""
    pairs = _pairs(table.columns, _PLACES)
    return next((pair for pair in pairs if all(is_numeric(table[name]) for name in pair)), None)
