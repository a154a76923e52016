"""Values at nodes that are spread over processes: read by some, sent to who holds the nodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from graphmatern._validation import FaultList, abbreviate
from graphmatern.distributed._reading import FileFaults, as_names, portions, read_numbers_of, read_portions
from graphmatern.errors import Fault, TableError
from graphmatern.tables import value_column, wanted_column

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd
    from numpy.typing import NDArray

    from graphmatern.distributed._graph import DistributedGraph
    from graphmatern.distributed._reading import Portion

    Floats = NDArray[np.float64]
    Longs = NDArray[np.int64]

__all__ = ["SpreadValues", "read_values", "values_of"]


@dataclass(frozen=True, eq=False)
class SpreadValues:
    """Values at this process's nodes.

    Attributes
    ----------
    places : ndarray of int64, shape (n,)
        Which of the nodes here.
    y : ndarray, shape (n,)
        Values.
    noise : ndarray, shape (n,), optional
        Known noise variances.
    rows : ndarray of int64, shape (n,)
        Where they stand among the values of all processes: ascending.
    """

    places: Longs
    y: Floats
    noise: Floats | None
    rows: Longs


def values_of(graph: DistributedGraph, names: Any, y: Any, noise: Any = None) -> SpreadValues:
    """Values given from Python: each process may give others, at nodes that any process holds."""
    processes = graph.processes
    import pandas as pd

    column = pd.Series(np.asarray(names))
    values = np.asarray(y, dtype=np.float64)
    (named,), _ = as_names(processes, [[column]], whole=graph.directory.names.dtype.kind == "i")
    keys = graph.directory.find(named)
    faults = FileFaults(processes, [], "nothing was fitted", TableError)
    _note_lengths(faults, column, values)
    for row in np.flatnonzero(keys < 0)[:5].tolist():
        received = f"{column.iloc[row]!r:.60}, value {row} of process {processes.rank}"
        faults.add_free(Fault("nodes", "must be nodes of the graph", received, "Check the names."))
    faults.raise_together()
    rows = processes.before(len(values)) + np.arange(len(values))
    return _sent(graph, keys, values, None if noise is None else np.asarray(noise, dtype=np.float64), rows)


def _note_lengths(faults: FileFaults, column: pd.Series[Any], values: Floats) -> None:
    if values.shape != (len(column),):
        received = f"shape {values.shape} for {len(column)} nodes"
        faults.add_free(Fault("y", "must have one value for each node", received, "One value for each name."))


def read_values(
    graph: DistributedGraph,
    path: str | Path,
    *,
    node: str | None = None,
    value: str | None = None,
    noise_std: str | None = None,
) -> SpreadValues:
    """Read values at nodes from a table, or from a folder of tables; rows without a value are not observed.

    Parameters
    ----------
    graph : DistributedGraph
        The graph.
    path : str or Path
        File or folder.
    node, value, noise_std : str, optional
        Columns of names, of values, and of the standard deviations of their errors. By default names are in the
        column ``node``, else in the first, and values in the last column of numbers.
    """
    processes = graph.processes
    files, mine = portions(processes, path, "values")
    faults = FileFaults(processes, files, "nothing was fitted", TableError)
    read = read_portions(files, mine, faults, TableError)
    names = _columns(graph, files, read, {"node": node, "value": value, "noise_std": noise_std}, faults)
    ends, places, y, noise = [], [], [], []
    for one, table in read:
        missing = [name for name in names if name is not None and name not in table.columns]
        if missing:
            rule = f"must have the column{'s' if len(missing) > 1 else ''} {', '.join(map(repr, missing))}"
            received = f"columns {abbreviate(map(str, table.columns))}"
            faults.add(one.file, 0, Fault("file", rule, received, "All parts must have the same columns."))
            continue
        observed = table[names[1]].notna().to_numpy()
        rows = np.flatnonzero(observed)
        given = table[observed]
        _note_nameless(given[names[0]], one, rows, faults)
        cells = one.file, one.rows(rows), faults
        y.append(read_numbers_of(given[names[1]], *cells, "must hold numbers"))
        if names[2] is not None:
            noise.append(read_numbers_of(given[names[2]], *cells, "must be above 0", minimum=0.0, above=True) ** 2)
        ends.append([given[names[0]]])
        places.append((np.full(len(rows), one.file), one.rows(rows)))
    faults.raise_together()
    named, _ = as_names(processes, ends, whole=graph.directory.names.dtype.kind == "i")
    keys = graph.directory.find(named[0])
    file, row = (np.concatenate([np.zeros(0, np.int64), *(pair[k] for pair in places)]) for k in (0, 1))
    unknown = np.flatnonzero(keys < 0)
    texts = np.concatenate([np.zeros(0, object), *(np.asarray(pair[0], dtype=object) for pair in ends)])
    shown = [f"{texts[at]!r:.60}" for at in unknown.tolist()]
    remedy = "Check the names, or add their edges."
    faults.add_rows(file[unknown], row[unknown], str(names[0]), "must name nodes of the graph", shown, remedy)
    faults.raise_together()
    values = np.concatenate([np.zeros(0), *y])
    known = np.concatenate([np.zeros(0), *noise]) if names[2] is not None else None
    return _sent(graph, keys, values, known, processes.before(len(values)) + np.arange(len(values)))


def _note_nameless(column: pd.Series[Any], one: Portion, rows: Longs, faults: FileFaults) -> None:
    empty = rows[np.flatnonzero(column.isna())]
    place = np.full(len(empty), one.file), one.rows(empty)
    faults.add_rows(*place, str(column.name), "must name a node", ["nothing"] * len(empty), "Complete these rows.")


def _columns(
    graph: DistributedGraph,
    files: list[Path],
    read: list[tuple[Portion, pd.DataFrame]],
    given: dict[str, str | None],
    faults: FileFaults,
) -> list[Any]:
    """Names of the columns of nodes, of values and of errors, as the first part says."""
    heads = graph.processes.gathered([table.head(1000) for _, table in read[:1]])
    head = next((part[0] for part in heads if part), None)
    if head is None:
        faults.raise_together()
    assert head is not None
    found = FaultList(f"{files[0].name} was not read", TableError)
    try:
        node, value, noise = (wanted_column(head, name, option, found) for option, name in given.items())
        found.raise_if_any()
        if node is None:
            called = [column for column in head.columns if str(column).strip().lower() in ("node", "name", "id")]
            node = called[0] if called else head.columns[0]
        if value is None:
            value = value_column(head, [node, *([] if noise is None else [noise])], found)
    except TableError as error:
        error.said_together = True  # type: ignore[attr-defined]
        raise
    return [node, value, noise]


def _sent(graph: DistributedGraph, keys: Longs, y: Floats, noise: Floats | None, rows: Longs) -> SpreadValues:
    """Send values to who holds their nodes."""
    arrays = [keys, y, rows, *([] if noise is None else [noise])]
    received, _ = graph.processes.send(arrays, graph.home_of(keys))
    order = np.argsort(received[2])
    own, y, rows = (one[order] for one in received[:3])
    places = np.searchsorted(graph.rows.keys, own)
    return SpreadValues(places, y, received[3][order] if noise is not None else None, rows)
