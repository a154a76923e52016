"""Edges in several files: read by all processes, merged where their nodes belong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from graphmatern._validation import FaultList, warn
from graphmatern.distributed._reading import FileFaults, as_names, portions, read_numbers_of, read_portions
from graphmatern.errors import EdgeWarning, Fault, GraphError
from graphmatern.tables import edge_roles

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd
    from numpy.typing import NDArray

    from graphmatern.distributed._processes import Processes

    Floats = NDArray[np.float64]
    Longs = NDArray[np.int64]

__all__ = ["EdgeReader", "Edges", "merged_edges", "without_loops"]

_MOST_FAULTS = 1_000  # of one process that are counted


@dataclass(frozen=True, eq=False)
class Edges:
    """Rows of edge tables that this process has read, or that were sent to it.

    Attributes
    ----------
    source, target : ndarray of int64
        Keys of the ends.
    weight : ndarray
        Weights or lengths; 1 where there are none.
    row : ndarray of int64
        Numbers of the rows over all files.
    """

    source: Longs
    target: Longs
    weight: Floats
    row: Longs


def without_loops(processes: Processes, edges: Edges) -> Edges:
    """Drop edges from a node to itself, with a warning that counts them."""
    keep = edges.source != edges.target
    count = int(processes.total(int((~keep).sum())))
    if count and processes.is_first:
        warn(f"{count} self-loop{'s' if count > 1 else ''} dropped: self-loops do not change a Laplacian", EdgeWarning)
    return Edges(edges.source[keep], edges.target[keep], edges.weight[keep], edges.row[keep])


def merged_edges(
    processes: Processes, edges: Edges, bounds: Longs, weighting: str, parallel: str, reader: EdgeReader
) -> Edges:
    """Both directions of every distinct pair, at the block of its first end, sorted."""
    ends = edges.source, edges.target
    to = np.searchsorted(bounds, np.concatenate(ends), side="right") - 1
    both = [np.concatenate(ends), np.concatenate(ends[::-1]), np.tile(edges.weight, 2), np.tile(edges.row, 2)]
    received = processes.send(both, to)[0]
    del both, to  # this is where a run needs most memory
    order = np.lexsort(
        (received[3], received[1], received[0])
    )  # as the files have them: sums do not depend on who reads
    for place, column in enumerate(received):
        received[place] = column[order]
    source, target, weight, row = received
    del received, order, column
    new = np.ones(len(source), dtype=bool)
    new[1:] = (source[1:] != source[:-1]) | (target[1:] != target[:-1])
    repeated = np.flatnonzero(~new & (source < target))
    count = int(processes.total(len(repeated)))
    if count and parallel == "error":
        first = np.maximum.accumulate(np.where(new, np.arange(len(new)), 0))[repeated]
        reader.refuse_repeats(row[repeated], row[first])
    starts = np.flatnonzero(new)
    if weighting == "unit" or parallel == "first" or not count:
        values = weight[starts] if weighting != "unit" else np.ones(len(starts))
    else:
        values = np.add.reduceat(weight, starts) if len(starts) else np.zeros(0)
    if parallel == "mean_length" and weighting == "length":
        mean = processes.total(float(edges.weight.sum())) / max(processes.total(len(edges.row)), 1)
        summed = np.add.reduceat(weight, starts) if len(starts) else values
        values = mean * np.diff(np.append(starts, len(weight))) / summed
    keep = values > 0.0
    return Edges(source[starts][keep], target[starts][keep], values[keep], row[starts][keep])


class EdgeReader:
    """Reads this process's part of the edges."""

    def __init__(self, processes: Processes, path: str | Path, given: dict[str, str | None]) -> None:
        self._processes, self._given = processes, given
        self.files, self._mine = portions(processes, path, "edges")
        self._faults = FileFaults(processes, self.files, "no graph was made", GraphError)

    def read(self) -> tuple[NDArray[Any], Longs, Edges, str]:
        """Names of all ends, where they stand over all files, the rows, and where their weights come from."""
        processes, faults = self._processes, self._faults
        read = read_portions(self.files, self._mine, faults, GraphError)
        columns, weighting = self._columns(read)
        kept, ends, numbers = [], [], []
        for one, table in read:
            missing = [name for name in columns if name is not None and name not in table.columns]
            if missing:
                rule = f"must have the column{'s' if len(missing) > 1 else ''} {', '.join(map(repr, missing))}"
                received = f"columns {', '.join(map(repr, map(str, table.columns)))}"
                faults.add(one.file, 0, Fault("file", rule, received, "All parts must have the same columns."))
                continue
            pair = [table[name] for name in columns[:2]]
            for column in pair:
                empty = np.flatnonzero(column.isna())
                place = np.full(len(empty), one.file), one.rows(empty)
                what = ["nothing"] * len(empty)
                faults.add_rows(*place, str(column.name), "must name a node", what, "Complete or remove these rows.")
            kept.append((one, len(table)))
            ends.append(pair)
            if columns[2] is None:
                numbers.append(np.ones(len(table)))
            else:
                above = weighting == "length"
                rule = "must be above 0" if above else "must be at least 0"
                cells = table[columns[2]], one.file, one.rows(np.arange(len(table)))
                numbers.append(read_numbers_of(*cells, faults, rule, minimum=0.0, above=above))
        faults.raise_together()
        (sources, targets), _ = as_names(processes, ends)
        row, self._kept = self._numbered(kept)
        edges = Edges(row, row, np.concatenate([np.zeros(0), *numbers]), row)
        return np.concatenate([sources, targets]), np.concatenate([2 * row, 2 * row + 1]), edges, weighting

    def _columns(self, read: list[tuple[Any, pd.DataFrame]]) -> tuple[list[Any], str]:
        """Names of the columns of both ends and of the weights, as the first part says."""
        heads = self._processes.gathered([table.head(1000) for _, table in read[:1]])
        head = next((part[0] for part in heads if part), None)
        if head is None:
            self._faults.raise_together()
        assert head is not None

        found = FaultList("no graph was made", GraphError)
        try:
            roles = edge_roles(head, dict(self._given), found)
            if roles.source is None or roles.target is None:
                received = f"columns {', '.join(map(repr, map(str, head.columns)))} in {self.files[0].name}"
                found.add("edges", "must have two columns of node names", received, "Name them: source and target.")
            found.raise_if_any()
        except GraphError as error:
            error.said_together = True  # type: ignore[attr-defined]
            raise
        if self._given["weight"] is not None and self._given["length"] is not None:
            roles.weight = None
        weighting = "length" if roles.length is not None else "weight" if roles.weight is not None else "unit"
        return [roles.source, roles.target, roles.length if roles.length is not None else roles.weight], weighting

    def _numbered(self, kept: list[tuple[Any, int]]) -> tuple[Longs, list[tuple[int, int, int]]]:
        """Numbers of rows over all files, and which files they stand in: of all processes, portion by portion."""
        sizes = [count for _, count in kept]
        start = self._processes.before(int(sum(sizes)))
        starts = start + np.concatenate([[0], np.cumsum(sizes)])[:-1].astype(np.int64)
        here = [(int(s), one.file, one.first) for s, (one, _) in zip(starts, kept, strict=True)]
        every = sorted(entry for part in self._processes.gathered(here) for entry in part)
        return start + np.arange(int(sum(sizes)), dtype=np.int64), every

    def place(self, row: int) -> tuple[int, int]:
        """File and row there, from 1 on, of a row over all files."""
        at = int(np.searchsorted([entry[0] for entry in self._kept], row, side="right")) - 1
        start, file, first = self._kept[at]
        return file, first + row - start + 1

    def refuse_repeats(self, rows: Longs, before: Longs) -> None:
        """Raise, with the places of rows that repeat a pair of nodes."""
        for row, earlier in zip(rows[:_MOST_FAULTS].tolist(), before[:_MOST_FAULTS].tolist(), strict=True):
            file, here = self.place(row)
            other, there = self.place(earlier)
            received = f"the pair of {self.files[other].name}, row {there:,}, again"
            remedy = "Remove them, or say what they mean: parallel='first', 'sum' or 'mean_length'."
            self._faults.add(file, here, Fault("edges", "must not repeat a pair of nodes", received, remedy))
        self._faults.raise_together()
