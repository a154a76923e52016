"""Reading tables that lie in several files, each process some of them; what is wrong is said once, by file and row."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from graphmatern._validation import FaultList
from graphmatern.errors import DataNotFoundError, Fault, GraphMaternError, InputError
from graphmatern.tables import TABLE_SUFFIXES, as_written, read_table, required_library, to_numbers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from graphmatern.distributed._processes import Processes

    Floats = NDArray[np.float64]
    Longs = NDArray[np.int64]

__all__ = ["FileFaults", "Portion", "as_names", "portions", "read_numbers_of", "read_portions"]

_SHOWN = 5  # faults of one kind that are spelt out
_PARQUET = (".parquet", ".pq")


@dataclass(frozen=True)
class Portion:
    """A part of a table that one process reads.

    Attributes
    ----------
    file : int
        Number of the file.
    group : int, optional
        Row group of a Parquet file; None for the whole of any other.
    first : int
        Rows of the file that come before.
    size : int
        Rows, or bytes where these are not known.
    """

    file: int
    group: int | None
    first: int
    size: int

    def rows(self, places: Longs) -> Longs:
        """Rows of the file, from 1 on, by places in this portion."""
        return self.first + places + 1


class FileFaults:
    """Faults of files, with the rows they stand in, collected over all processes.

    Parameters
    ----------
    processes : Processes
        All of them.
    files : sequence of Path
        The files.
    subject : str
        What is being made or done.
    error : type of InputError
        What to raise.
    """

    def __init__(self, processes: Processes, files: Sequence[Path], subject: str, error: type[InputError]) -> None:
        self._processes, self._files, self._subject, self._error = processes, files, subject, error
        self._found: list[tuple[int, int, Fault]] = []  # file, row from 1 on (0 for the file itself), what

    def add(self, file: int, row: int, fault: Fault) -> None:
        """Note a fault of a row, counted from 1; row 0 means the whole file."""
        self._found.append((file, row, fault))

    def add_free(self, fault: Fault) -> None:
        """Note a fault of no file."""
        self._found.append((-1, 0, fault))

    def add_rows(self, files: Longs, rows: Longs, argument: str, rule: str, received: Sequence[str], how: str) -> None:
        """Note a fault that several rows have."""
        for file, row, what in zip(files.tolist(), rows.tolist(), received, strict=True):
            self.add(file, row, Fault(argument, rule, what, how))

    def raise_together(self) -> None:
        """Raise on all processes what any of them found, the same everywhere: by file, then by row."""
        every = [fault for part in self._processes.gathered(self._found) for fault in part]
        self._found = []
        if not every:
            return
        every.sort(key=lambda one: (one[0], one[1], one[2].argument))
        kinds: dict[tuple[str, str], list[tuple[int, int, Fault]]] = {}
        for one in every:
            kinds.setdefault((one[2].argument, one[2].rule), []).append(one)
        faults = FaultList(self._subject, self._error)
        for (argument, rule), some in kinds.items():
            shown = [fault.received + self._place(file, row) for file, row, fault in some[:_SHOWN]]
            more = "" if len(some) <= _SHOWN else f", ... ({len(some)} in all)"
            faults.add(argument, rule, ", ".join(shown) + more, some[0][2].remedy)
        try:
            faults.raise_if_any()
        except InputError as error:
            error.said_together = True  # type: ignore[attr-defined]
            raise

    def _place(self, file: int, row: int) -> str:
        return "" if file < 0 else f" in {self._files[file].name}" + (f", row {row:,}" if row else "")


def portions(processes: Processes, path: str | Path, what: str) -> tuple[list[Path], list[Portion]]:
    """The files that a path stands for, by name, and the portions of them that this process reads.

    Portions of one process follow each other, so that rows keep their order over all files.
    """
    found: tuple[list[Path], list[Portion]] | GraphMaternError
    if processes.is_first:
        try:
            found = _listed(Path(path), what)
        except GraphMaternError as error:
            found = error
    else:
        found = [], []
    found = processes.from_first(found)
    if isinstance(found, GraphMaternError):
        found.said_together = True  # type: ignore[attr-defined]
        raise found
    files, every = found
    ends = np.cumsum([one.size for one in every])
    middle = ends - 0.5 * np.array([one.size for one in every])
    owner = np.minimum((middle * processes.size / max(ends[-1], 1)).astype(int), processes.size - 1)
    return files, [one for one, who in zip(every, owner.tolist(), strict=True) if who == processes.rank]


def _listed(path: Path, what: str) -> tuple[list[Path], list[Portion]]:
    if path.is_dir():
        files = sorted(one for one in path.iterdir() if one.suffix.lower() in TABLE_SUFFIXES and one.is_file())
        if not files:
            raise DataNotFoundError(f"{str(path)!r} holds no table ({', '.join(TABLE_SUFFIXES)}) with {what}")
    elif path.is_file():
        files = [path]
    else:
        raise DataNotFoundError(f"{str(path)!r} does not exist: give a file with {what}, or a folder of such files")
    every: list[Portion] = []
    for number, file in enumerate(files):
        if file.suffix.lower() in _PARQUET:
            every += _row_groups(file, number)
        else:
            every.append(Portion(number, None, 0, max(file.stat().st_size, 1)))
    return files, every


def _row_groups(file: Path, number: int) -> list[Portion]:
    parquet = required_library("pyarrow.parquet", "reading a Parquet file")
    try:
        with parquet.ParquetFile(file) as opened:
            meta = opened.metadata
            sizes = [meta.row_group(k).num_rows for k in range(meta.num_row_groups)]
    except (OSError, ValueError):  # whoever reads it says what is wrong
        return [Portion(number, None, 0, 1)]
    if sum(sizes) == 0:
        return [Portion(number, None, 0, 1)]
    # A row takes about as much as a line of text.
    return [Portion(number, k, int(sum(sizes[:k])), 16 * sizes[k]) for k in range(len(sizes)) if sizes[k]]


def read_portions(
    files: Sequence[Path], mine: Sequence[Portion], faults: FileFaults, error: type[InputError]
) -> list[tuple[Portion, pd.DataFrame]]:
    """Read the portions of this process; what cannot be read is noted."""
    found = []
    for one in mine:
        file = files[one.file]
        try:
            if one.group is None:
                table = read_table(file, error, [])
            else:
                parquet = required_library("pyarrow.parquet", "reading a Parquet file")
                with parquet.ParquetFile(file) as opened:
                    table = opened.read_row_group(one.group).to_pandas()
        except InputError as wrong:
            for fault in wrong.faults:
                faults.add(one.file, 0, fault)
            continue
        except OSError as wrong:
            faults.add(one.file, 0, Fault("file", "must be readable", str(wrong), "Write it again."))
            continue
        if len(table) == 0:
            remedy = "Remove it, or write it again."
            faults.add(one.file, 0, Fault("file", "must have rows", "only a header", remedy))
            continue
        found.append((one, table))
    return found


def read_numbers_of(
    column: pd.Series[Any],
    file: int,
    rows: Longs,
    faults: FileFaults,
    rule: str,
    *,
    minimum: float = -np.inf,
    above: bool = False,
) -> Floats:
    """A column as numbers; those that break a rule are noted, with their rows in the file; empty ones too."""
    numbers = to_numbers(column)
    with np.errstate(invalid="ignore"):
        good = np.isfinite(numbers) & ((numbers > minimum) if above else (numbers >= minimum))
    bad = np.flatnonzero(~good)
    if len(bad):
        cells = [repr(column.iloc[row])[:40] if pd.notna(column.iloc[row]) else "nothing" for row in bad]
        place = np.full(len(bad), file), rows[bad]
        faults.add_rows(*place, str(column.name), rule, cells, "Correct these cells, or remove their rows.")
    return numbers


def as_names(
    processes: Processes, columns: Sequence[Sequence[Any]], *, whole: bool | None = None
) -> tuple[list[NDArray[Any]], bool]:
    """Names in columns of several portions, of one kind everywhere: whole numbers where all are, else text.

    Parameters
    ----------
    processes : Processes
        All of them.
    columns : sequence of sequence of Series
        For each portion its columns of names, none of them missing.
    whole : bool, optional
        Whether they are to be whole numbers, where that is known; what is none then becomes −1, which is no name.

    Returns
    -------
    names : list of ndarray
        One array for each of the columns, all portions one after the other.
    whole : bool
        Whether they are whole numbers.
    """
    written = [
        list(some) if all(_is_whole(c) for c in some) else as_written([_text(c) for c in some]) for some in columns
    ]
    here = all(_is_whole(column) for some in written for column in some)
    if whole is None:
        whole = processes.total(int(here)) == processes.size
    n_columns = max(processes.gathered(max((len(some) for some in columns), default=0)))
    kind: Any = np.int64 if whole else object
    found = []
    for k in range(n_columns):
        parts = [_of_kind(some[k], whole) for some in written]
        found.append(np.concatenate([np.zeros(0, dtype=kind), *parts]).astype(kind))
    return found, whole


def _is_whole(column: Any) -> bool:
    return pd.api.types.is_integer_dtype(column.dtype)


def _text(column: pd.Series[Any]) -> pd.Series[Any]:
    if pd.api.types.is_float_dtype(column.dtype) and (column % 1 == 0).all():
        column = column.astype(np.int64)
    return column.astype(str)


def _of_kind(column: Any, whole: bool) -> NDArray[Any]:
    if not whole:
        return np.asarray(column.astype(str), dtype=object)
    if _is_whole(column):
        return np.asarray(column, dtype=np.int64)
    numbers = pd.to_numeric(column, errors="coerce")
    return np.asarray(numbers.where(numbers % 1 == 0, np.nan).fillna(np.iinfo(np.int64).min), dtype=np.int64)
