"""Graphs as matrices: Matrix Market and NumPy's npz files, whose claims are checked before memory is set aside."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
import pandas as pd
import scipy.sparse as sp

from graphmatern._validation import FaultList, abbreviate
from graphmatern.errors import InputError
from graphmatern.tables import check_archive, first_words

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

__all__ = ["read_matrix_market", "read_npz"]

_READABLE = "must be a readable file of this format"
_SPARE_NODES = 1_000_000  # nodes that a matrix may have without entries to show for them
_PARTS = {"format", "shape", "data"}  # of a matrix that scipy.sparse.save_npz wrote


def read_matrix_market(path: Path, faults: FaultList) -> sp.coo_array:
    """Read a matrix of weights from a Matrix Market file.

    Not by ``scipy.io.mmread``: on damaged files it can end the whole process.
    """
    try:
        with path.open("rb") as file:
            words = file.readline(1000).decode("ascii").lower().split()
            line = file.readline(100_000)
            while line.startswith(b"%") or (line and not line.strip()):
                line = file.readline(100_000)
            sizes = [int(word) for word in line.split()]
            if len(words) != 5 or words[0] != "%%matrixmarket" or words[1] != "matrix":
                raise ValueError("no Matrix Market banner in the first line")
            layout, field, symmetry = words[2:]
            if field not in ("real", "integer", "pattern", "double") or symmetry not in ("general", "symmetric"):
                raise ValueError(f"a matrix of type {field!r:.20}, {symmetry!r:.20}")
            return _matrix_market_body(file, layout, field, symmetry, sizes, path.stat().st_size)
    except InputError:
        raise
    except (ValueError, TypeError, OSError, OverflowError, IndexError) as error:
        raise faults.raise_now("file", _READABLE, first_words(error), "Write it again.") from None


def _matrix_market_body(
    file: BinaryIO, layout: str, field: str, symmetry: str, sizes: list[int], n_bytes: int
) -> sp.coo_array:
    """Entries of a Matrix Market file, after its first lines."""
    is_list = layout == "coordinate"
    if layout not in ("coordinate", "array") or len(sizes) != (3 if is_list else 2) or min(sizes) < 0:
        raise ValueError(f"a layout {layout!r:.20} with sizes {sizes[:4]}")
    rows, columns = sizes[:2]
    expected = sizes[2] if is_list else rows * (rows + 1) // 2 if symmetry == "symmetric" else rows * columns
    # The shortest entry is a digit and a line break.
    if expected > n_bytes or max(rows, columns) > expected * 10 + _SPARE_NODES:
        raise ValueError(f"{rows:,} rows, {columns:,} columns and {expected:,} entries in {n_bytes:,} bytes")
    width = (2 if field == "pattern" else 3) if is_list else 1
    names = list(range(width))
    table = pd.read_csv(file, sep=r"\s+", header=None, names=names, comment="%", dtype=np.float64, index_col=False)
    numbers = table.to_numpy()
    if len(numbers) != expected or np.isnan(numbers).any():
        raise ValueError(f"{len(numbers):,} entries instead of {expected:,}, or entries without a number")
    if is_list:
        i, j = numbers[:, 0] - 1, numbers[:, 1] - 1
        data = np.ones(len(i)) if field == "pattern" else numbers[:, 2]
    elif symmetry == "symmetric":
        j, i = np.triu_indices(rows)  # the lower triangle, column by column
        data = numbers[:, 0]
    else:
        j, i = np.divmod(np.arange(expected), max(rows, 1))
        data = numbers[:, 0]
    inside = (i >= 0) & (i < rows) & (j >= 0) & (j < columns) & (i % 1 == 0) & (j % 1 == 0)
    if not inside.all():
        raise ValueError("places outside the matrix")
    i, j = i.astype(np.int64), j.astype(np.int64)
    if symmetry == "symmetric":
        off = i != j
        i, j, data = np.append(i, j[off]), np.append(j, i[off]), np.append(data, data[off])
    return sp.coo_array((data, (i, j)), shape=(rows, columns))


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
                        raise faults.raise_now("file", "must hold whole arrays of numbers", received, "Write it again.")
                with archive.open(member) as file:
                    name = member.filename.removesuffix(".npy")
                    found[name] = np.lib.format.read_array(file, allow_pickle=False)
    except InputError:
        raise
    # Damaged archives raise whatever their parts' readers do: zlib.error, struct.error, SyntaxError, ...
    except Exception as error:  # noqa: BLE001
        raise faults.raise_now("file", _READABLE, first_words(error), "Write it again.") from None
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
        raise faults.raise_now("file", _READABLE, first_words(error), remedy) from None
