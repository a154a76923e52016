"""Model files: one safetensors file with arrays, a JSON text in its header, and a checksum over every byte.

The file is an ordinary safetensors file. Its header's metadata are ``format``, ``version``, ``kind`` (what the file
holds), ``state`` (a JSON text) and ``sha256``: the checksum of the whole file in which these 64 digits are zeros.
Nothing in it is ever executed.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from graphmatern.errors import DataNotFoundError, ModelFileError
from graphmatern.io._atomic import replacing

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    Arrays = dict[str, NDArray[Any]]

__all__ = ["FORMAT", "VERSION", "count_values", "read_container", "write_container"]

FORMAT = "graphmatern model"
VERSION = 1

_NO_CHECKSUM = "0" * 64
_LONGEST_HEADER = 100_000_000  # bytes, as safetensors itself allows
_MOST_VALUES = 1_000_000  # of the header's JSON: numbers by the thousand belong into arrays
_CHUNK = 1 << 20
# Names of NumPy's types in safetensors files.
_TYPES = {
    "float64": "F64",
    "float32": "F32",
    "int64": "I64",
    "int32": "I32",
    "int16": "I16",
    "int8": "I8",
    "uint64": "U64",
    "uint32": "U32",
    "uint16": "U16",
    "uint8": "U8",
    "bool": "BOOL",
}


def write_container(path: str | Path, kind: str, state: Any, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write a model file, whole or not at all.

    Parameters
    ----------
    path : str or Path
        The file.
    kind : str
        What it holds, such as the name of an estimator.
    state : object
        Anything that JSON can say; `pack` makes it.
    arrays : mapping of str to ndarray
        Arrays of numbers or booleans, of any shape.
    """
    # Arrays of wide types first, so that each begins at a multiple of its type's size.
    order = sorted(arrays, key=lambda name: -arrays[name].dtype.itemsize)
    header: dict[str, Any] = {
        "__metadata__": {
            "format": FORMAT,
            "version": str(VERSION),
            "sha256": _NO_CHECKSUM,
            "kind": kind,
            "state": json.dumps(state),
        }
    }
    offset = 0
    for name in order:
        array = arrays[name]
        end = offset + array.nbytes
        header[name] = {
            "dtype": _TYPES[array.dtype.name],
            "shape": list(array.shape),
            "data_offsets": [offset, end],
        }
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode("ascii")
    text += b" " * (-len(text) % 8)
    if len(text) > _LONGEST_HEADER:
        raise ModelFileError(f"the description of the model has {len(text):,} bytes, more than a model file can hold")
    if count_values(text) > _MOST_VALUES:
        raise ModelFileError(
            f"the description of the model holds more than {_MOST_VALUES:,} values; use arrays instead of long lists"
        )
    digest = hashlib.sha256()
    with replacing(path) as temporary, temporary.open("r+b") as file:

        def put(content: bytes | memoryview) -> None:
            digest.update(content)
            file.write(content)

        put(len(text).to_bytes(8, "little"))
        put(text)
        for name in order:
            array = arrays[name]
            plain = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
            put(plain.reshape(-1).view(np.uint8).data)
        file.seek(8 + text.index(_NO_CHECKSUM.encode()))
        file.write(digest.hexdigest().encode())


def count_values(text: bytes) -> int:
    """Bound on the values of a JSON text from its commas and brackets, without building any."""
    return 1 + sum(text.count(sign) for sign in (b",", b"[", b"{"))


def read_container(path: str | Path) -> tuple[str, Any, Arrays]:
    """Read a model file whose every byte is as it was written.

    Parameters
    ----------
    path : str or Path
        The file.

    Returns
    -------
    kind : str
        What the file holds.
    state : object
        What was given to `write_container`.
    arrays : dict of str to ndarray
        The arrays.

    Raises
    ------
    ModelFileError
        Where the file is damaged, cut short, of another kind or format, or implausibly large.
    """
    path = Path(path)
    if not path.is_file():
        what = "is a folder, not a model file" if path.is_dir() else "does not exist"
        raise DataNotFoundError(f"{str(path)!r} {what}")
    with path.open("rb") as file:
        metadata = _checked_metadata(file, path)
    from safetensors import SafetensorError, safe_open

    try:
        state = json.loads(metadata["state"])
        with safe_open(path, framework="numpy") as tensors:
            arrays = {name: np.asarray(tensors.get_tensor(name)) for name in tensors.keys()}  # noqa: SIM118
    except (SafetensorError, KeyError, ValueError, TypeError, RecursionError, OverflowError) as error:
        raise ModelFileError(f"{str(path)!r} is not a model file written by graphmatern: {error}") from None
    return metadata["kind"], state, arrays


def _checked_metadata(file: BinaryIO, path: Path) -> dict[str, str]:
    """Metadata of the header, after the checksum has been compared."""
    foreign = ModelFileError(f"{str(path)!r} is not a model file; model files are made by `save` and end in .gm")
    first = file.read(8)
    length = int.from_bytes(first, "little")
    if len(first) < 8 or not 2 <= length <= _LONGEST_HEADER:
        raise foreign
    text = file.read(length)
    if count_values(text) > _MOST_VALUES:
        raise ModelFileError(
            f"{str(path)!r} was not read: its description holds more than {_MOST_VALUES:,} values, "
            "which no model file that graphmatern wrote does"
        )
    try:
        metadata = json.loads(text)["__metadata__"]
        given, version, name = metadata["sha256"], metadata["version"], metadata["format"]
        kind, state = metadata["kind"], metadata["state"]
        as_written = given.encode("ascii")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise foreign from None
    if name != FORMAT or not all(isinstance(item, str) for item in (version, kind, state)):
        raise foreign
    damaged = ModelFileError(
        f"{str(path)!r} is damaged: its contents do not agree with its checksum. Likely causes: (a) an incomplete copy "
        "or download; (b) a change by another program. Copy it again, or save the model again."
    )
    if len(as_written) != 64 or text.count(as_written) != 1:
        raise damaged
    digest = hashlib.sha256(first)
    digest.update(text.replace(as_written, _NO_CHECKSUM.encode()))
    while chunk := file.read(_CHUNK):
        digest.update(chunk)
    if digest.hexdigest() != given:
        raise damaged
    if version != str(VERSION):
        later = version.isdecimal() and int(version[:9]) > VERSION
        what = "was written by a later version of graphmatern" if later else "was not written by graphmatern"
        remedy = "update graphmatern, or save the model with this version" if later else "save the model again"
        raise ModelFileError(f"{str(path)!r} {what}: its format is {version!r:.20}, known is {VERSION}; {remedy}")
    return dict(metadata)
