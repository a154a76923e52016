"""Arrays and words in one block of bytes, small enough to live in a page."""

from __future__ import annotations

import base64
import gzip
import json
import struct
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

__all__ = ["pack_block", "unpack_block"]

_KINDS = {"f4": "<f4", "u4": "<u4", "u2": "<u2", "u1": "<u1", "i1": "<i1"}
_MISSING = 65535  # code of NaN among numbers of 16 bits


def pack_block(words: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> str:
    """Pack words and arrays for the page's script, which unpacks them (``assets/data.js``).

    Parameters
    ----------
    words : mapping
        What JSON can hold. No number may be NaN or infinite.
    arrays : mapping of str to ndarray
        One-dimensional arrays of numbers are kept in 32 bits; those of two dimensions, times × nodes, in 16, by steps
        of 1/65534 of their range. Whole numbers keep their type.

    Returns
    -------
    str
        Base64 of a gzip file. Nothing in it can end a script or begin a tag.

    Examples
    --------
    >>> words, arrays = unpack_block(pack_block({"title": "</script>"}, {"mean": np.array([1.5, np.nan])}))
    >>> words["title"], arrays["mean"].tolist()
    ('</script>', [1.5, nan])
    """
    about: dict[str, dict[str, Any]] = {}
    parts: list[bytes] = []
    offset = 0
    for name, array in arrays.items():
        kind, numbers, extra = _stored(np.asarray(array))
        raw = np.ascontiguousarray(numbers, dtype=_KINDS[kind]).tobytes()
        raw += b"\0" * (-len(raw) % 8)  # a typed array must begin at a multiple of its item's size
        about[name] = {"type": kind, "offset": offset, "count": int(numbers.size), **extra}
        parts.append(raw)
        offset += len(raw)
    header = json.dumps({**words, "arrays": about}, ensure_ascii=False, allow_nan=False).encode()
    start = struct.pack("<II", len(header), 0) + header
    start += b"\0" * (-len(start) % 8)
    return base64.b64encode(gzip.compress(start + b"".join(parts), 9, mtime=0)).decode("ascii")


def _stored(array: NDArray[Any]) -> tuple[str, NDArray[Any], dict[str, Any]]:
    """Type, numbers, and what is needed to read them again."""
    if array.dtype == bool:
        return "u1", array.ravel().astype(np.uint8), {}
    if array.dtype.kind in "iu":
        kind = {1: "i1" if array.dtype.kind == "i" else "u1", 2: "u2"}.get(array.dtype.itemsize, "u4")
        return kind, array.ravel(), {}
    if array.ndim == 1:
        return "f4", array, {}
    known = array[np.isfinite(array)]
    low, high = (float(known.min()), float(known.max())) if known.size else (0.0, 1.0)
    step = (high - low) / (_MISSING - 1) or 1.0
    codes = np.where(np.isfinite(array), np.round((np.nan_to_num(array) - low) / step), _MISSING)
    return "u2", codes.ravel().astype(np.uint16), {"low": low, "step": step}


def unpack_block(text: str) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Read what `pack_block` packed, as the page does; for tests and other programs."""
    raw = gzip.decompress(base64.b64decode(text))
    (length,) = struct.unpack_from("<I", raw)
    words = json.loads(raw[8 : 8 + length])
    start = -(-(8 + length) // 8) * 8
    arrays = {}
    for name, one in words.pop("arrays").items():
        numbers = np.frombuffer(raw, _KINDS[one["type"]], one["count"], start + one["offset"])
        if "step" in one:
            numbers = np.where(numbers == _MISSING, np.nan, one["low"] + one["step"] * numbers)
        arrays[name] = numbers
    return words, arrays
