"""Graphs as matrices: Matrix Market and NumPy's npz files, whose claims are checked before memory is set aside."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import scipy.sparse as sp

from graphmatern._validation import FaultList, abbreviate
from graphmatern.errors import InputError
from graphmatern.graph._table_files import check_archive

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

__all__ = ["read_matrix_market", "read_npz"]

_READABLE = "must be a readable file of this format"
_SPARE_NODES = 1_000_000  # nodes that a matrix may have without entries to show for them
_PARTS = {"format", "shape", "data"}  # of a matrix that scipy.sparse.save_npz wrote


def _first_words(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200].rstrip(".")


def read_matrix_market(path: Path, faults: FaultList) -> sp.coo_array | NDArray[np.float64]:
    """Read a matrix of weights from a Matrix Market file."""
    from scipy.io import mminfo, mmread

    try:
        rows, columns, entries, layout, field, _ = mminfo(path)
        claimed = rows * columns if layout == "array" else entries
        # The shortest entry is a digit and a line break; of a matrix without values, two digits.
        if field == "complex" or claimed > path.stat().st_size or max(rows, columns) > entries * 10 + _SPARE_NODES:
            received = f"{rows:,} rows, {columns:,} columns, {entries:,} entries, of type {field}"
            raise faults.raise_now("file", "must hold what its first lines say", received, "Write it anew.")
        matrix = mmread(path, spmatrix=False)
    except InputError:
        raise
    except (ValueError, TypeError, OSError, OverflowError, MemoryError, IndexError, KeyError, RuntimeError) as error:
        raise faults.raise_now("file", _READABLE, _first_words(error), "Write it anew.") from None
    return np.asarray(matrix, dtype=np.float64) if isinstance(matrix, np.ndarray) else sp.coo_array(matrix)


def _arrays(path: Path, faults: FaultList) -> dict[str, NDArray[Any]]:
    """Arrays of an npz file: numbers and texts only, none longer than what is stored."""
    found: dict[str, NDArray[Any]] = {}
    try:
        with check_archive(path, faults) as archive:
            for member in archive.infolist():
                with archive.open(member) as file:
                    version = np.lib.format.read_magic(file)
                    reader = (
                        np.lib.format.read_array_header_1_0
                        if version == (1, 0)
                        else np.lib.format.read_array_header_2_0
                    )
                    shape, _, dtype = reader(file)
                    size = dtype.itemsize * int(np.prod([int(side) for side in shape], dtype=object))
                    if dtype.hasobject or size > member.file_size:
                        received = f"{member.filename!r:.60} of shape {shape} and type {dtype}"
                        raise faults.raise_now("file", "must hold whole arrays of numbers", received, "Write it anew.")
                with archive.open(member) as file:
                    name = member.filename.removesuffix(".npy")
                    found[name] = np.lib.format.read_array(file, allow_pickle=False)
    except InputError:
        raise
    # Damaged archives raise whatever their parts' readers do: zlib.error, struct.error, SyntaxError, ...
    except Exception as error:  # noqa: BLE001
        raise faults.raise_now("file", _READABLE, _first_words(error), "Write it anew.") from None
    return found


def read_npz(path: Path, faults: FaultList) -> sp.coo_array | NDArray[np.float64] | pd.DataFrame:
    """Read a matrix that ``scipy.sparse.save_npz`` wrote, one called "adjacency", or the columns of an edge list."""
    arrays = _arrays(path, faults)
    if set(arrays) >= _PARTS:
        return _sparse_matrix(arrays, faults)
    if "adjacency" in arrays:
        return arrays["adjacency"]
    columns = {name: array for name, array in arrays.items() if array.ndim == 1}
    if len(columns) >= 2 and len({len(column) for column in columns.values()}) == 1:
        return pd.DataFrame(columns)
    rule = "must hold a matrix (of scipy.sparse.save_npz, or called 'adjacency') or columns of equal length"
    shapes = [f"{name} {array.shape}" for name, array in arrays.items()]
    raise faults.raise_now("file", rule, abbreviate(shapes) or "nothing", "See the guide for what an npz may hold.")


def _sparse_matrix(arrays: dict[str, NDArray[Any]], faults: FaultList) -> sp.coo_array:
    try:
        kind = arrays["format"].item()
        kind = kind.decode("ascii") if isinstance(kind, bytes) else str(kind)
        rows, columns = (int(side) for side in arrays["shape"].ravel())
        data = arrays["data"]
        if max(rows, columns) > 10 * data.size + _SPARE_NODES:
            raise ValueError(f"{rows:,} rows and {columns:,} columns for {data.size:,} entries")
        if kind == "coo":
            return sp.coo_array((data, (arrays["row"], arrays["col"])), shape=(rows, columns))
        if kind in ("csr", "csc"):
            make = sp.csr_array if kind == "csr" else sp.csc_array
            matrix = make((data, arrays["indices"], arrays["indptr"]), shape=(rows, columns))
            matrix.check_format(full_check=True)
            return sp.coo_array(matrix)
        raise ValueError(f"a sparse matrix of format {kind!r:.20}")
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, UnicodeError, OverflowError) as error:
        remedy = "Save it with scipy.sparse.save_npz in the format csr, csc or coo."
        raise faults.raise_now("file", _READABLE, _first_words(error), remedy) from None
