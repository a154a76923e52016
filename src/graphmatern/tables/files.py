"""Reading tables: CSV, TSV, Parquet and Excel files, none of which is trusted.

What a file claims about itself (lengths, numbers of rows and columns) is compared with its size before memory is set
aside for it.
"""

from __future__ import annotations

import csv
import io
import warnings
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from graphmatern._validation import FaultList, abbreviate, warn
from graphmatern.errors import DataNotFoundError, GraphError, GraphMaternWarning, InputError, MissingLibraryError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["TABLE_SUFFIXES", "check_archive", "existing_file", "first_words", "read_table", "required_library"]

TABLE_SUFFIXES = (".csv", ".tsv", ".tab", ".txt", ".parquet", ".pq", ".xlsx", ".xlsm")

_HEAD = 1 << 20  # bytes in which the first line of a text must end
_MOST_COLUMNS = 10_000
_MOST_CELLS = 20_000_000  # of a spreadsheet
_MOST_BYTES = 4 << 30  # of a table in memory, or of an archive unpacked
_SEPARATORS = (",", ";", "\t")
_READABLE = "must be a readable table"


def existing_file(path: str | Path, kinds: str) -> Path:
    """Return the path of a file that is there; raise with the kinds of files that are possible."""
    found = Path(path)
    try:
        is_file, is_folder = found.is_file(), found.is_dir()
    except ValueError:  # a null character in the name
        is_file = is_folder = False
    if not is_file:
        what = "is a folder" if is_folder else "is not a file" if found.exists() else "does not exist"
        raise DataNotFoundError(f"{str(path)!r} {what}; give the path of a {kinds} file")
    return found


def required_library(name: str, purpose: str) -> Any:
    """Import an optional library, or say how to get it."""
    import importlib

    try:
        return importlib.import_module(name)
    except ImportError:
        raise MissingLibraryError(
            f"{purpose} needs the library {name.partition('.')[0]}; install it with: pip install 'graphmatern[io]'"
        ) from None


def read_table(path: str | Path, error: type[InputError] = GraphError, notes: list[str] | None = None) -> pd.DataFrame:
    """Read a table, its format chosen by its suffix.

    Cells of CSV, TSV and Excel files are text, without surrounding blanks; only empty ones are missing.

    Parameters
    ----------
    path : str or Path
        CSV (separated by commas, semicolons or tabs), TSV, Parquet or Excel file. Text is encoded in UTF-8, or else
        taken for Windows-1252 (Latin-1).
    error : type of InputError
        The exception to raise where the file cannot be read.
    notes : list of str, optional
        Where to say what was guessed; a warning says it by default.

    Returns
    -------
    DataFrame
        With different column names.
    """
    file = existing_file(path, "CSV, TSV, Parquet or Excel")
    faults = FaultList(f"{file.name} was not read", error)
    said = [] if notes is None else notes
    suffix = file.suffix.lower()
    if suffix in {".parquet", ".pq"}:
        table = _read_parquet(file, faults)
    elif suffix in {".xlsx", ".xlsm"}:
        table = _read_excel(file, faults)
    elif suffix in TABLE_SUFFIXES:
        table = _read_text(file, faults, said)
    else:
        rule = f"must end in {', '.join(TABLE_SUFFIXES)}"
        raise faults.raise_now("file", rule, f"{file.name!r}", "Save the table in one of these formats.")
    _check_header(list(table.columns), faults)
    if notes is None:
        for note in said:
            warn(note, GraphMaternWarning)
    return table


def _check_header(names: list[Any], faults: FaultList) -> None:
    index = pd.Index([str(name) for name in names])
    if index.has_duplicates:
        twins = abbreviate(index[index.duplicated()].unique())
        raise faults.raise_now("file", "must have different column names", f"several called {twins}", "Rename them.")


def first_words(error: BaseException) -> str:
    """The first line of what another library's exception says, for a message of ours."""
    text = str(error).strip()
    if "does not match length of data" in text:  # pandas' words for it
        return "rows with more cells than the header has"
    return text.splitlines()[0][:200].rstrip(".") if text else f"an empty or unreadable file ({type(error).__name__})"


def _read_text(path: Path, faults: FaultList, notes: list[str]) -> pd.DataFrame:
    remedy = "Check that it has a header, and one row per line with as many fields."
    with path.open("rb") as file:
        head = file.read(_HEAD)
    for encoding in ("utf-8-sig",) if head.startswith(b"\xef\xbb\xbf") else ("utf-8", "cp1252"):
        header, separator = _header(head, encoding, path.suffix.lower(), faults)
        _check_header([name.strip() for name in header if name.strip()], faults)
        try:
            table = _parse_text(path, separator, encoding)
        except UnicodeDecodeError:
            continue
        except (ValueError, OSError, OverflowError, pd.errors.ParserWarning) as error:
            raise faults.raise_now("file", _READABLE, first_words(error), remedy) from None
        if encoding == "cp1252":
            notes.append(f"{path.name} is not encoded in UTF-8; it was read as Windows-1252 (Latin-1)")
        return table
    received = "bytes that are neither UTF-8 nor Windows-1252"
    raise faults.raise_now("file", _READABLE, received, "Save it as UTF-8.")


def _parse_text(path: Path, separator: str, encoding: str) -> pd.DataFrame:
    with warnings.catch_warnings():
        warnings.simplefilter("error", pd.errors.ParserWarning)
        # Text: a node may be called "NA" or "007", and both ends of an edge must be read alike.
        table = pd.read_csv(
            path,
            sep=separator,
            dtype=str,
            keep_default_na=False,
            na_values=[""],
            index_col=False,
            compression=None,
            encoding=encoding,
        )
    table.columns = [str(name).strip() for name in table.columns]
    stripped: pd.DataFrame = table.apply(lambda column: column.str.strip()).replace("", np.nan)
    return stripped


def _header(head: bytes, encoding: str, suffix: str, faults: FaultList) -> tuple[list[str], str]:
    """Column names of a text, and its separator."""
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise faults.raise_now("file", _READABLE, "text encoded in UTF-16", "Save it as UTF-8.")
    if b"\0" in head:
        raise faults.raise_now("file", _READABLE, "bytes that are not text", "Give a CSV, TSV, Parquet or Excel file.")
    text = head.decode(encoding, errors="replace").lstrip("\r\n")
    if not text.strip():
        raise faults.raise_now("file", _READABLE, "an empty file", "It needs a header and rows.")
    line = text.splitlines()[0]
    if len(head) == _HEAD and len(line) == len(text):
        received = f"a first line of more than {_HEAD:,} characters"
        raise faults.raise_now("file", _READABLE, received, "The first line must hold the column names.")
    separator = "\t" if suffix in {".tsv", ".tab"} else max(_SEPARATORS, key=line.count)
    try:
        names = next(csv.reader(io.StringIO(text), delimiter=separator))
    except (csv.Error, StopIteration) as error:
        raise faults.raise_now("file", _READABLE, first_words(error), "Check its first line.") from None
    if len(names) > _MOST_COLUMNS:
        raise faults.raise_now(
            "file", f"must have at most {_MOST_COLUMNS:,} columns", f"{len(names):,}", "Keep those that matter."
        )
    return names, separator


def _read_parquet(path: Path, faults: FaultList) -> pd.DataFrame:
    parquet = required_library("pyarrow.parquet", "reading a Parquet file")
    pa = required_library("pyarrow", "reading a Parquet file")

    batches = []
    size = 0
    try:
        with parquet.ParquetFile(path) as file:
            schema = file.schema_arrow
            _check_width(len(schema), faults)
            # In small steps: a few bytes can stand for any number of equal rows.
            for batch in file.iter_batches(batch_size=4096):
                size += batch.nbytes
                if size > _MOST_BYTES:
                    break
                batches.append(batch)
            if size <= _MOST_BYTES:
                return pd.DataFrame(pa.Table.from_batches(batches, schema=schema).to_pandas())
    except (pa.ArrowException, ValueError, OSError, TypeError, KeyError, OverflowError, AttributeError) as error:
        if isinstance(error, InputError):
            raise
        raise faults.raise_now("file", _READABLE, first_words(error), "Write the Parquet file again.") from None
    received = f"more than {_MOST_BYTES >> 30} GiB unpacked"
    raise faults.raise_now("file", "must fit into memory", received, "Keep the columns that matter.")


def _check_width(n_columns: int, faults: FaultList) -> None:
    if not 1 <= n_columns <= _MOST_COLUMNS:
        rule = f"must have 1 to {_MOST_COLUMNS:,} columns"
        raise faults.raise_now("file", rule, f"{n_columns:,}", "Keep those that matter.")


def check_archive(path: Path, faults: FaultList) -> zipfile.ZipFile:
    """Open a zip archive whose contents, unpacked, are of a bearable size."""
    try:
        archive = zipfile.ZipFile(path)
        total = sum(member.file_size for member in archive.infolist())
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError, EOFError) as error:
        raise faults.raise_now("file", "must be a readable archive", first_words(error), "Write it again.") from None
    if total > _MOST_BYTES:
        archive.close()
        received = f"{total:,} bytes unpacked"
        raise faults.raise_now("file", f"must unpack to at most {_MOST_BYTES:,} bytes", received, "Make it smaller.")
    return archive


def _read_excel(path: Path, faults: FaultList) -> pd.DataFrame:
    openpyxl = required_library("openpyxl", "reading an Excel file")
    required_library("defusedxml", "reading an Excel file")  # openpyxl then refuses XML with entities
    check_archive(path, faults).close()
    remedy = "Save the table on the first sheet, or as CSV."
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # about styles and extensions
            book = openpyxl.load_workbook(path, read_only=True, data_only=True)
            try:
                rows = list(_excel_rows(book.worksheets[0], faults))
            finally:
                book.close()
    except InputError:
        raise
    # openpyxl lets whatever goes wrong in its parsers through.
    except Exception as error:  # noqa: BLE001
        raise faults.raise_now("file", "must be a readable spreadsheet", first_words(error), remedy) from None
    rows = [row for row in rows if any(cell is not None for cell in row)]
    if not rows:
        raise faults.raise_now("file", _READABLE, "an empty first sheet", remedy)
    names = ["" if cell is None else cell for cell in rows[0]]
    while names and not names[-1]:
        names.pop()
    _check_width(len(names), faults)
    cells = [(row + [None] * len(names))[: len(names)] for row in rows[1:]]
    return pd.DataFrame(cells, columns=names, dtype=object)


def _excel_rows(sheet: Any, faults: FaultList) -> Iterator[list[str | None]]:
    """Rows of cells as text; a sheet can claim billions of empty ones."""
    count = 0
    for row in sheet.iter_rows(values_only=True):
        count += max(len(row), 1)
        if count > _MOST_CELLS:
            received = f"more than {_MOST_CELLS:,} cells"
            raise faults.raise_now("file", "must hold fewer cells", received, "Save the table as CSV.")
        yield [None if cell is None or str(cell).strip() == "" else _as_text(cell) for cell in row]


def _as_text(cell: Any) -> str:
    """Write a number as one would: Excel holds whole numbers as 12.0."""
    if isinstance(cell, float) and cell.is_integer() and abs(cell) < 2**53:
        return str(int(cell))
    return str(cell).strip()
