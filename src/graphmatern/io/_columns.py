"""Finding out what the columns of a table mean, by their names and their entries."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from graphmatern._validation import FaultList, abbreviate

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from graphmatern.graph import Graph

__all__ = ["EdgeColumns", "NameMatcher", "edge_roles", "is_numeric", "node_column", "position_columns", "wanted_column"]

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
    "fraction": r"(^|[_\s])(fraction|share|relative)([_\s]|$)",
}


def by_name(columns: Iterable[Any], role: str) -> list[Any]:
    """Columns whose name says that they have a role."""
    return [column for column in columns if re.search(_WORDS[role], str(column).strip().lower())]


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
    if roles.source is None and roles.target is None:
        lower = {str(column).strip().lower(): column for column in free}
        pair = next((pair for pair in _ENDS if all(end in lower for end in pair)), None)
        if pair is not None:
            roles.source, roles.target = (lower[end] for end in pair)
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


def is_numeric(column: pd.Series[Any]) -> bool:
    """Whether every entry that is there reads as a number, and there is one."""
    known = column.dropna()
    if len(known) == 0 or known.dtype == bool:
        return False
    if pd.api.types.is_numeric_dtype(known.dtype):
        return True
    if any(isinstance(item, bool | np.bool_) for item in known):
        return False
    return bool(pd.to_numeric(known.astype(str), errors="coerce").notna().all())


def _numeric(table: pd.DataFrame, columns: Sequence[Any]) -> list[Any]:
    return [column for column in columns if is_numeric(table[column])]


def position_columns(table: pd.DataFrame) -> tuple[Any, ...] | None:
    """Columns of coordinates, found by their names."""
    lower = {str(column).strip().lower(): column for column in table.columns}
    for pair in _PLACES:
        if all(name in lower and is_numeric(table[lower[name]]) for name in pair):
            return tuple(lower[name] for name in pair)
    return None


class NameMatcher:
    """Looks names up by how they read: 7, 7.0 and "7" are one name, unless the graph has several of these.

    Parameters
    ----------
    names : pandas.Index
        What there is.
    """

    def __init__(self, names: pd.Index[Any]) -> None:
        self._texts = pd.Index([as_text(name) for name in names], dtype=object)
        self._names = names
        self._is_clear = not self._texts.has_duplicates

    def codes(self, column: Iterable[Any]) -> NDArray[np.int64]:
        """Positions of names, −1 where there is none; shape (n_entries,)."""
        entries = list(column)
        if self._is_clear:
            texts = pd.Index([as_text(entry) for entry in entries], dtype=object)
            return np.asarray(self._texts.get_indexer(texts), dtype=np.int64)
        exact = {name: place for place, name in enumerate(self._names)}
        return np.array([exact.get(entry, -1) for entry in entries], dtype=np.int64)


def as_text(entry: Any) -> str:
    """How a name reads; a whole number without a decimal point."""
    if isinstance(entry, float | np.floating) and np.isfinite(entry) and float(entry).is_integer():
        return str(int(entry))
    return str(entry).strip()


def node_column(table: pd.DataFrame, matcher: NameMatcher, taken: Sequence[Any] = ()) -> tuple[Any, float]:
    """Column most of whose entries are names, and the share of those; the first of equals."""
    best, share = None, 0.0
    for column in table.columns:
        if column in taken:
            continue
        known = table[column].dropna()
        found = float((matcher.codes(known) >= 0).mean()) if len(known) else 0.0
        if found > share:
            best, share = column, found
    return best, share


def edge_column(table: pd.DataFrame, graph: Graph) -> tuple[Any, float]:
    """Column most of whose entries are ids of edges, and the share of those."""
    return node_column(table, NameMatcher(graph._rows.identifiers))
