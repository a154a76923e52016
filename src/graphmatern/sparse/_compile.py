"""The ``jit`` decorator of this package: numba, with a disk cache that neither raises nor goes stale.

Numba's own ``cache=True`` raises on import when the package lies in a read-only folder and there is no
writable home directory, and it looks only at the file a function is defined in: a compiled function goes
on using the old version of a helper that was changed in another file.  The cache used here

* lies in the first writable folder of: ``NUMBA_CACHE_DIR``, ``__pycache__`` of this package, the user's cache
  folder, a private folder in the temporary directory; without any of these, functions are compiled anew
  in every process;
* is keyed on the content of *all* sources of this package;
* treats every error of reading or writing as a miss.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numba
from numba.core import caching

from graphmatern._progress import say

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["cache_directory", "inline", "jit"]

Function = TypeVar("Function", bound="Callable[..., Any]")

_PACKAGE = Path(__file__).parent
# Sums may be reordered and multiply-adds fused; NaN and infinity keep their meaning.
_OPTIONS: dict[str, Any] = {
    "nogil": True,
    "boundscheck": False,
    "error_model": "numpy",
    "fastmath": {"reassoc", "contract", "nsz", "arcp"},
}


def _candidates() -> Iterator[Path]:
    """Yield the folders in which compiled code may be kept, best first."""
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    if chosen:
        yield Path(chosen) / "graphmatern"
    yield _PACKAGE / "__pycache__"
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA")
    else:
        base = os.environ.get("XDG_CACHE_HOME")
    with contextlib.suppress(RuntimeError):  # no home directory
        yield (Path(base) if base else Path.home() / ".cache") / "graphmatern"
    with contextlib.suppress(OSError):  # no temporary directory
        user = os.getuid() if hasattr(os, "getuid") else 0
        yield Path(tempfile.gettempdir()) / f"graphmatern-{user}"


def _is_private_and_writable(folder: Path) -> bool:
    """Whether we, and no one else, can write to ``folder``, which is created if necessary."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.stat()
        if hasattr(os, "getuid") and (status.st_uid != os.getuid() or status.st_mode & 0o002):
            return False
        with tempfile.TemporaryFile(dir=folder):
            return True
    except OSError:
        return False


@cache
def cache_directory() -> Path | None:
    """Return the folder in which compiled code is kept, or None where there is no writable one."""
    return next((folder for folder in _candidates() if _is_private_and_writable(folder)), None)


@cache
def source_stamp() -> str:
    """Return a hash of the sources of this package."""
    digest = hashlib.sha256()
    for path in sorted(_PACKAGE.glob("*.py")):
        digest.update(path.name.encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


@cache
def _say_what_is_happening() -> None:
    """Say once why nothing seems to happen: compilation of everything takes about half a minute."""
    say(f"compiling sparse linear algebra, up to half a minute, once: it is kept in {cache_directory()}")


class _Locator(caching._CacheLocator):
    """Where numba finds the cache of one function."""

    def __init__(self, function: Callable[..., Any], file: str) -> None:
        self._py_file = file
        self._line = function.__code__.co_firstlineno

    def get_cache_path(self) -> str:
        return str(cache_directory())

    def get_source_stamp(self) -> str:
        return source_stamp()

    def get_disambiguator(self) -> str:
        return str(self._line)

    @classmethod
    def from_function(cls, py_func: Callable[..., Any], py_file: str) -> _Locator:
        return cls(py_func, py_file)


class _Implementation(caching.CompileResultCacheImpl):
    _locator_classes: list[type[object]] = [_Locator]  # noqa: RUF012 - as numba declares it


class _Cache(caching.FunctionCache):
    """Numba's cache of one function, for which every failure is a miss."""

    _impl_class = _Implementation

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            found = super().load_overload(sig, target_context)  # type: ignore[no-untyped-call]
        except Exception:  # noqa: BLE001 - a damaged file may raise anything when it is unpickled
            found = None
        if found is None:
            _say_what_is_happening()
        return found

    def save_overload(self, sig: Any, data: Any) -> None:
        try:
            super().save_overload(sig, data)  # type: ignore[no-untyped-call]
        except OSError:
            pass
        except Exception:  # noqa: BLE001 - a damaged index: begin a new one
            with contextlib.suppress(Exception):
                Path(self._cache_file._index_path).unlink(missing_ok=True)
                super().save_overload(sig, data)  # type: ignore[no-untyped-call]


def jit(function: Function) -> Function:
    """Compile ``function`` with numba: no GIL, no bounds checks, kept on disk between processes.

    Examples
    --------
    >>> @jit
    ... def twice(x):
    ...     return 2 * x
    >>> twice(21)
    42
    """
    compiled: Any = numba.njit(**_OPTIONS)(function)
    # Only functions of this package: the key of the cache is the content of its files.
    if function.__module__.startswith(__package__ or "") and cache_directory() is not None:
        with contextlib.suppress(Exception):  # numba's internals may change: then without a cache
            compiled._cache = _Cache(compiled.py_func)  # type: ignore[no-untyped-call]
    return compiled


def inline(function: Function) -> Function:
    """Compile ``function`` into each of its callers: for the parts of an inner loop.

    A call that passes ten arrays costs as much as eliminating a small column.
    """
    return numba.njit(**_OPTIONS, forceinline=True)(function)
