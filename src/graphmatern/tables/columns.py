"""Finding out what the columns of a table mean, by their names and their entries.

A column whose name says what it holds is used, or what is wrong with it is told; it is not passed over.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, NamedTuple

from graphmatern._validation import FaultList, abbreviate
from graphmatern.tables.numbers import is_numeric, looks_like_numbers, to_numbers

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pandas as pd

    from graphmatern.tables.names import NameMatcher

__all__ = [
    "EdgeColumns",
    "PointColumns",
    "ValueColumns",
    "by_name",
    "edge_roles",
    "end_pair",
    "point_columns",
    "position_columns",
    "unused_columns",
    "value_column",
    "wanted_column",
]

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
    "noise": r"(^|[_\s])(sd|std|stdev|stderr|sigma|standard[_\s](deviation|error))([_\s(]|$)",
    "exposure": r"^(exposure|exposures|population)$",
    "count": r"(^|[_\s])(cases|count|counts|deaths|events|incidents|accidents|crimes|observed)([_\s(]|$)",
    "time": r"^(time|timestamp|date|datetime|day|week|month|year|hour)$",
}
# What columns beside the values mean, and what is said where they are not used.
_BESIDE = {
    "noise": "if it holds standard deviations of the values' errors: --noise-std {column}",
    "exposure": "if it holds exposures of counts: --exposure {column}",
    "time": "values of all times are taken together",
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
        near = get_close_matches(name, map(str, table.columns), n=1)
        remedy = f"Did you mean {near[0]!r}?" if near else "Name another."
        faults.add(option, "must be a column of the table", f"{name!r:.60}; there are {_names(table)}", remedy)
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
        roles.geometry = next(iter(by_name(_free(table, roles), "geometry")), None)
    if roles.length is None and roles.weight is None:
        _find_weighting(table, roles)
    if roles.id is None:
        _find_id(table, roles)
    rest = _free(table, roles)
    missing = [end for end in ("source", "target") if getattr(roles, end) is None]
    if guess_ends and (roles.geometry is None or len(missing) == 1):
        if len(rest) < len(missing) and roles.id is not None:  # no name says more than that an edge has two ends
            rest, roles.id = [column for column in table.columns if column == roles.id or column in rest], None
        for end, column in zip(missing, rest, strict=False):
            setattr(roles, end, column)
    if guess_ends and roles.length is None and roles.weight is None:
        for column in _free(table, roles):
            if is_numeric(table[column]):
                name = str(column)
                roles.notes.append(f"column {name!r} is not used; if it holds lengths of the edges: --length {name!r}")
    return roles


def _find_weighting(table: pd.DataFrame, roles: EdgeColumns) -> None:
    """Find the column of lengths, or else of weights; the others that are called so are noted."""
    roles.length = _of_numbers(table, by_name(_free(table, roles), "length"))
    if roles.length is None:
        roles.weight = _of_numbers(table, by_name(_free(table, roles), "weight"))
    used = roles.weight if roles.length is None else roles.length
    for column in [*by_name(_free(table, roles), "length"), *by_name(_free(table, roles), "weight")]:
        reason = "it is empty" if table[column].isna().all() else f"weights follow from {str(used)!r}"
        roles.notes.append(f"column {str(column)!r} is not used: {reason}")


def _find_id(table: pd.DataFrame, roles: EdgeColumns) -> None:
    """Find the column that names the edges; others that are called so but cannot are noted."""
    for column in by_name(_free(table, roles), "id"):
        if table[column].isna().any() or table[column].duplicated().any():
            roles.notes.append(f"column {str(column)!r} does not name the edges: some entries are empty or repeated")
        elif roles.id is None:
            roles.id = column


def _free(table: pd.DataFrame, roles: EdgeColumns) -> list[Any]:
    used = roles.used()
    return [column for column in table.columns if column not in used]


def _of_numbers(table: pd.DataFrame, columns: Iterable[Any]) -> Any:
    """The first column of numbers; where there is none, the first that is not empty, for its faults to be told."""
    known = [column for column in columns if table[column].notna().any()]
    return next((column for column in known if is_numeric(table[column])), next(iter(known), None))


def position_columns(table: pd.DataFrame) -> tuple[Any, Any] | None:
    """Columns of coordinates, found by their names; of several pairs, the first of numbers."""
    pairs = _pairs(table.columns, _PLACES)
    numeric = (pair for pair in pairs if all(is_numeric(table[name]) for name in pair))
    return next(numeric, next(iter(pairs), None))


# ---------------------------------------------------------------------- values
@dataclass(frozen=True)
class ValueColumns:
    """Columns that the caller named; the others are guessed.

    Attributes
    ----------
    node, value, noise : str, optional
        Node names, values, standard deviations of the values' errors.
    road, distance, fraction : str, optional
        For values at points on edges: the edge's id, and the distance from its source or the share of it.
    snap_limit : float, optional
        How far points given by coordinates may lie from the nearest edge; see `Graph.attach`.
    exposure : str, optional
        Exposures of counts; never guessed.
    covariates : sequence of str
        Covariates, one value per node; never guessed.
    trials : str, optional
        Trials of binomial counts; never guessed.
    """

    node: str | None = None
    value: str | None = None
    noise: str | None = None
    road: str | None = None
    distance: str | None = None
    fraction: str | None = None
    snap_limit: float | None = None
    exposure: str | None = None
    covariates: Sequence[str] = ()
    trials: str | None = None


class PointColumns(NamedTuple):
    """Columns that say where points lie: edge ids, and places along the edges, distances or shares of them."""

    road: Any
    along: Any
    is_distance: bool


def value_column(table: pd.DataFrame, used: list[Any], faults: FaultList, *, counts: bool = False) -> Any:
    """The last column of numbers, or the only one left; one with another meaning only where there is nothing else.

    Of counts, it is a column of whole numbers, if possible one that is called so.
    """
    free = [column for column in table.columns if column not in used]
    others = {*(position_columns(table) or ()), *(column for role in _BESIDE for column in by_name(free, role))}
    rest = [column for column in free if column not in others] or free
    if counts:
        numbers = [column for column in rest if looks_like_numbers(table[column])]
        whole = [column for column in numbers if not (to_numbers(table[column]) % 1 > 0).any()]
        rest = by_name(numbers, "count")[:1] or whole or rest
    for choice in ([c for c in rest if is_numeric(table[c])], [c for c in rest if looks_like_numbers(table[c])]):
        if choice:
            return choice[-1]
    if len(rest) != 1:
        received = f"columns {abbreviate(map(str, rest))}" if rest else "no other column"
        raise faults.raise_now("file", "must have a column of values", received, "Name it with --value.")
    return rest[0]


def unused_columns(table: pd.DataFrame, used: list[Any], known: Iterable[str] = ()) -> list[str]:
    """Say which columns have a name that means something beside values, and are not used; known roles are skipped."""
    free = [column for column in table.columns if column not in used]
    return [
        f"column {str(column)!r} is not used; {words.format(column=column)}"
        for role, words in _BESIDE.items()
        if role not in known
        for column in by_name(free, role)
    ]


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
    before = len(faults)
    road = wanted_column(table, columns.road, "road", faults)
    distance = wanted_column(table, columns.distance, "distance", faults)
    fraction = wanted_column(table, columns.fraction, "fraction", faults)
    if len(faults) > before:
        faults.raise_if_any()
    asked = columns.road is not None or columns.distance is not None or columns.fraction is not None
    free = [column for column in table.columns if column not in (*taken, road, distance, fraction)]
    if road is None:  # where most ids are known, the others are misspelt
        road = next((column for column in by_name(free, "road") if roads.share(table[column]) > 0.5), None)
    if distance is None and fraction is None:
        rest = [column for column in free if column != road]
        distance = _of_numbers(table, by_name(rest, "distance"))
        fraction = None if distance is not None else _of_numbers(table, by_name(rest, "fraction"))
    if road is None or (distance is None and fraction is None):
        if asked:
            received = f"columns {abbreviate(map(str, table.columns))}"
            remedy = "Name both: --road with --distance or --fraction."
            raise faults.raise_now("file", "must have columns of road ids and of distances", received, remedy)
        return None
    return PointColumns(road, fraction if distance is None else distance, distance is not None)
