"""Python values as JSON and arrays, and back: numbers, texts, containers, arrays, tables, graphs; never code."""

from __future__ import annotations

import datetime as dt
import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import scipy.sparse as sp

from graphmatern.errors import ModelFileError
from graphmatern.graph import Graph
from graphmatern.graph._build import parts_from_adjacency
from graphmatern.graph._edge_rows import PARALLEL_RULES, EdgeRows
from graphmatern.graph._parts import GraphParts, checked
from graphmatern.io._container import count_values

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    Arrays = dict[str, NDArray[Any]]

__all__ = ["Codec", "pack", "unpack"]

_LONGEST_RANGE = 2**28  # a few bytes must not ask for all memory
_VALUES_PER_ITEM = 100  # of a name, at most: a tuple of tuples has some


@dataclass(frozen=True)
class Codec:
    """How values of one type are taken apart into simpler ones, and put together again.

    Attributes
    ----------
    tag : str
        Its name in the file.
    type : type
        The type, subclasses included.
    take_apart : callable
        From a value to simpler ones that `pack` knows.
    put_together : callable
        Back again; whatever it is given, it must not execute it.
    """

    tag: str
    type: type
    take_apart: Callable[[Any], Any]
    put_together: Callable[[Any], Any]


def pack(value: Any, arrays: Arrays, codecs: Sequence[Codec] = ()) -> Any:
    """Return a value as what JSON can say; numbers by the thousand go to ``arrays``.

    Parameters
    ----------
    value : object
        None, numbers, texts, bytes, dates, tuples, lists, sets, dictionaries, arrays, pandas objects, graphs, and types
        with a codec.
    arrays : dict of str to ndarray
        Arrays are added to it.
    codecs : sequence of Codec
        Further types.

    Raises
    ------
    ModelFileError
        Naming the type that cannot be stored.

    Examples
    --------
    >>> arrays = {}
    >>> packed = pack({"names": ("a", 1), "y": np.arange(3.0)}, arrays)
    >>> unpack(packed, arrays)
    {'names': ('a', 1), 'y': array([0., 1., 2.])}
    """
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, np.generic) and not isinstance(value, np.datetime64 | np.timedelta64):
        return pack(value.item(), arrays, codecs)
    if type(value) is list:
        return [pack(item, arrays, codecs) for item in value]
    for codec in (*codecs, *_CODECS):
        if isinstance(value, codec.type):
            return {codec.tag: pack(codec.take_apart(value), arrays, codecs)}
    if isinstance(value, np.ndarray):
        return {"array": _store(value, arrays, codecs)}
    raise ModelFileError(
        f"{value!r:.60}, a {type(value).__name__}, cannot be stored in a model file; "
        "use names and options made of texts, numbers, dates and tuples of these"
    )


def _store(array: NDArray[Any], arrays: Arrays, codecs: Sequence[Codec]) -> Any:
    """Put an array among the others; those that hold no numbers become text, as bytes."""
    if array.dtype.kind in "Mm":
        return {"type": str(array.dtype), "of": _store(array.view(np.int64), arrays, codecs)}
    if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8 or array.dtype.name == "float16":
        packed = json.dumps([pack(item, arrays, codecs) for item in array.ravel().tolist()])
        return {"shape": list(array.shape), "of": _store(np.frombuffer(packed.encode(), np.uint8), arrays, codecs)}
    name = f"array{len(arrays)}"
    arrays[name] = array
    return name


def unpack(packed: Any, arrays: Arrays, codecs: Sequence[Codec] = ()) -> Any:
    """Return the value that `pack` was given.

    Parameters
    ----------
    packed : object
        What `pack` returned.
    arrays : dict of str to ndarray
        What it added to.
    codecs : sequence of Codec
        The same as then.

    Raises
    ------
    ModelFileError
        Where nothing of this kind could have come from `pack`.
    """
    if packed is None or isinstance(packed, bool | int | float | str):
        return packed
    if isinstance(packed, list):
        return [unpack(item, arrays, codecs) for item in packed]
    [(tag, content)] = packed.items()
    if tag == "array":
        return _fetch(content, arrays, codecs)
    for codec in (*codecs, *_CODECS):
        if codec.tag == tag:
            return codec.put_together(unpack(content, arrays, codecs))
    raise ModelFileError(f"the model file holds a {str(tag)!r:.60}, which this version does not know")


def _fetch(content: Any, arrays: Arrays, codecs: Sequence[Codec]) -> NDArray[Any]:
    if isinstance(content, str):
        return arrays[content]
    inner = _fetch(content["of"], arrays, codecs)
    if "type" in content:
        dtype = np.dtype(content["type"])
        if dtype.kind not in "Mm":
            raise ModelFileError(f"the model file holds numbers of the unknown type {str(dtype)!r:.60}")
        return inner.view(dtype)
    text, shape = inner.tobytes(), content["shape"]
    if not math.prod(shape) <= count_values(text) <= _VALUES_PER_ITEM * (1 + math.prod(shape)):
        raise ModelFileError(f"the model file holds far more or fewer values than its shape {str(shape)[:60]} says")
    items = [unpack(item, arrays, codecs) for item in json.loads(text)]
    found = np.empty(len(items), dtype=object)
    found[:] = items
    return found.reshape(shape)


# ---------------------------------------------------------------------- pandas
def _index_parts(index: pd.Index[Any]) -> list[Any]:
    """Kind, values and name of an index; texts stay texts, and a mixture stays a mixture."""
    if isinstance(index, pd.MultiIndex):
        return ["levels", [_objects(index.get_level_values(k)) for k in range(index.nlevels)], list(index.names)]
    if isinstance(index, pd.RangeIndex):
        return ["range", [index.start, index.stop, index.step], index.name]
    if isinstance(index, pd.DatetimeIndex) and index.tz is not None:
        return ["zone", [str(index.tz), index.tz_convert("UTC").tz_localize(None).to_numpy()], index.name]
    if isinstance(index.dtype, np.dtype) and index.dtype.kind in "biufMm":
        return ["numbers", index.to_numpy(), index.name]
    kind = "text" if index.dtype == "str" or isinstance(index.dtype, pd.StringDtype) else "objects"
    return [kind, _objects(index), index.name]


def _objects(values: Any) -> NDArray[Any]:
    items = list(values)
    found = np.empty(len(items), dtype=object)
    found[:] = items
    return found


def _index_from(parts: Any) -> pd.Index[Any]:
    kind, values, name = parts
    found: pd.Index[Any]
    if kind == "levels":
        found = pd.MultiIndex.from_arrays([list(level) for level in values], names=name)
    elif kind == "range":
        start, stop, step = (int(number) for number in values)
        found = pd.RangeIndex(start, stop, step, name=name)
        if len(found) > _LONGEST_RANGE:
            raise ModelFileError(f"the model file holds a range of {len(found):,} numbers, more than is plausible")
    elif kind == "zone":
        found = pd.DatetimeIndex(values[1]).tz_localize("UTC").tz_convert(values[0]).rename(name)
    elif kind == "text":
        found = pd.Index(list(values), name=name)
    elif kind == "objects":
        found = pd.Index(list(values), dtype=object, name=name, tupleize_cols=False)
    elif kind == "numbers":
        found = pd.Index(values, name=name)
    else:
        raise ModelFileError(f"the model file holds names of the unknown kind {kind!r:.60}")
    return found


def _series_parts(series: pd.Series[Any]) -> list[Any]:
    return [pd.Index(series.array), series.index, series.name]


def _series_from(parts: Any) -> pd.Series[Any]:
    values, index, name = parts
    found: pd.Series[Any] = pd.Series(values.array, index=index, name=name)
    return found


def _table_parts(table: pd.DataFrame) -> list[Any]:
    return [table.index, table.columns, [pd.Index(table.iloc[:, k].array) for k in range(table.shape[1])]]


def _table_from(parts: Any) -> pd.DataFrame:
    index, columns, values = parts
    table = pd.DataFrame({k: column.array for k, column in enumerate(values)}, index=index)
    table.columns = columns
    return table


# ---------------------------------------------------------------------- graphs
def _graph_parts(graph: Graph) -> dict[str, Any]:
    parts, weights = graph._parts, graph._parts.weights
    stored = {
        "weights": [weights.data, weights.indices, weights.indptr],
        "names": parts.names.index,
        "positions": parts.positions,
        "masses": parts.masses,
        "parallel": parts.parallel,
        "rows": None,
        "areas": None if parts.areas is None else _area_parts(parts.areas),
    }
    if parts.rows is not None:
        rows = parts.rows
        stored["rows"] = {
            "source": rows.source,
            "target": rows.target,
            "weight": rows.weight,
            "length": rows.length,
            "geometry": None if rows.geometry is None else _line_parts(rows.geometry),
            "ids": rows.ids,
            "weighting": rows.weighting,
        }
    return stored


def _line_parts(lines: Sequence[NDArray[np.float64] | None]) -> list[NDArray[Any]]:
    """All points of all polylines, and how many each has; −1 where there is none."""
    counts = np.array([-1 if line is None else len(line) for line in lines], dtype=np.int64)
    known = [line for line in lines if line is not None]
    return [np.concatenate(known) if known else np.zeros((0, 2)), counts]


def _lines_from(parts: Any) -> list[NDArray[np.float64] | None]:
    points, counts = parts
    ends = np.cumsum(np.maximum(counts, 0))
    if points.ndim != 2 or points.shape[1] != 2 or (len(ends) and ends[-1] != len(points)):
        raise ModelFileError("the model file's polylines do not fit together")
    lines = np.split(points, ends[:-1]) if len(ends) else []
    return [None if count < 0 else line for count, line in zip(counts, lines, strict=True)]


def _area_parts(areas: list[list[NDArray[np.float64]]]) -> list[Any]:
    """All outlines as lines, and how many each node has."""
    return [*_line_parts([ring for rings in areas for ring in rings]), np.array([len(rings) for rings in areas])]


def _areas_from(parts: Any, n_nodes: int) -> list[list[NDArray[np.float64]]]:
    points, lengths, counts = parts
    rings = _lines_from([points, lengths])
    fits = len(counts) == n_nodes and counts.min() >= 0 and counts.sum() == len(rings)
    if not fits or any(ring is None or len(ring) < 3 for ring in rings) or not np.isfinite(points).all():
        raise ModelFileError("the model file's areas do not fit together")
    ends = np.cumsum(counts)
    return [rings[end - count : end] for end, count in zip(ends, counts, strict=True)]  # type: ignore[misc]


def _graph_from(stored: Any) -> Graph:
    data, indices, indptr = (np.asarray(array) for array in stored["weights"])
    n = len(indptr) - 1
    if len(stored["names"]) != n:
        raise ModelFileError("the model file's node names do not fit its edges")
    weights = sp.csr_array((data.astype(np.float64), indices, indptr), shape=(n, n))
    weights.check_format(full_check=True)
    parts = parts_from_adjacency(weights, nodes=stored["names"], positions=stored["positions"], masses=stored["masses"])
    rows = None if stored["rows"] is None else _rows_from(stored["rows"], n)
    if stored["parallel"] not in PARALLEL_RULES:
        raise ModelFileError(f"the model file names the unknown rule {stored['parallel']!r:.60} for parallel edges")
    areas = None if stored.get("areas") is None else _areas_from(stored["areas"], n)
    whole = GraphParts(parts.weights, parts.names, rows, parts.positions, parts.masses, stored["parallel"], areas)
    return Graph._from_parts(checked(whole))


def _rows_from(stored: Any, n_nodes: int) -> EdgeRows:
    geometry = None if stored["geometry"] is None else _lines_from(stored["geometry"])
    source, target = (np.asarray(stored[end], dtype=np.int64) for end in ("source", "target"))
    rows = EdgeRows(source, target, stored["weight"], stored["length"], geometry, stored["ids"], stored["weighting"])
    columns = [source, target, rows.weight, rows.length, geometry, rows.ids]
    fits = all(column is None or len(column) == len(source) for column in columns)
    ends = np.concatenate([source, target])
    if not fits or (len(ends) and (ends.min() < 0 or ends.max() >= n_nodes)):
        raise ModelFileError("the model file's edges do not fit together")
    if rows.weighting not in ("unit", "weight", "length"):
        raise ModelFileError(f"the model file names the unknown weighting {rows.weighting!r:.60}")
    return rows


# ---------------------------------------------------------------------- sparse matrices
def _sparse_parts(matrix: Any) -> list[Any]:
    rows = sp.csr_array(matrix)
    rows.sum_duplicates()
    return [rows.data, rows.indices, rows.indptr, rows.shape[1]]


def _sparse_from(parts: Any) -> Any:
    data, indices, indptr, n_columns = parts
    if np.asarray(data).dtype.kind not in "biuf" or not isinstance(n_columns, int) or len(indptr) < 1:
        raise ModelFileError("the model file holds an invalid sparse matrix")
    found = sp.csr_array((data, indices, indptr), shape=(len(indptr) - 1, n_columns))
    found.check_format(full_check=True)
    return found


_CODECS = (
    Codec("tuple", tuple, list, tuple),
    Codec("dict", dict, lambda value: [list(pair) for pair in value.items()], dict),
    Codec("frozenset", frozenset, list, frozenset),
    Codec("bytes", bytes, bytes.hex, bytes.fromhex),
    Codec("complex", complex, lambda value: [value.real, value.imag], lambda pair: complex(*pair)),
    Codec("timestamp", pd.Timestamp, pd.Timestamp.isoformat, pd.Timestamp),
    Codec("time", dt.datetime, dt.datetime.isoformat, dt.datetime.fromisoformat),
    Codec("date", dt.date, dt.date.isoformat, dt.date.fromisoformat),
    Codec("graph", Graph, _graph_parts, _graph_from),
    Codec("sparse", sp.sparray, _sparse_parts, _sparse_from),
    Codec("sparse", sp.spmatrix, _sparse_parts, _sparse_from),
    Codec("index", pd.Index, _index_parts, _index_from),
    Codec("series", pd.Series, _series_parts, _series_from),
    Codec("table", pd.DataFrame, _table_parts, _table_from),
)
