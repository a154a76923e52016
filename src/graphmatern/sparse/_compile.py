"""The ``jit`` decorator of this package: numba, imported when it is needed, and a disk cache that never goes stale.

Much can be done without compiled code, so numba, whose import takes longer than a small fit, waits until the first
compiled function is called.

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
import threading
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["cache_directory", "inline", "inner", "intrinsic", "jit", "source_stamp"]

Function = TypeVar("Function", bound="Callable[..., Any]")

_PACKAGE = Path(__file__).parent
# Sums may be reordered and multiply-adds fused; NaN and infinity keep their meaning.
_OPTIONS: dict[str, Any] = {
    "nogil": True,
    "boundscheck": False,
    "error_model": "numpy",
    "fastmath": {"reassoc", "contract", "nsz", "arcp"},
}
# Of parts of other functions: never called from Python, so there is no need to make that possible.
_PART: dict[str, Any] = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}


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


class _Later:
    """A function that numba takes over when it is first called, or when one that calls it is.

    Parameters
    ----------
    function : callable
        As it was written.
    make : callable
        Makes of it what numba compiles.
    """

    _lock = threading.RLock()

    def __init__(self, function: Callable[..., Any], make: Callable[[Any], Any]) -> None:
        self._function, self._make = function, make
        self._made: Any = None
        self.__doc__, self.__name__, self.__module__ = function.__doc__, function.__name__, function.__module__
        self.__wrapped__ = function

    def _take_over(self) -> Any:
        with self._lock:
            if self._made is None:
                # Numba must see what it made in place of functions that still wait; those it finds as attributes of
                # a module show it their ``_numba_type_``.
                names = self._function.__globals__
                self._made = self._make(self._function)
                for name, value in list(names.items()):
                    if isinstance(value, _Later):
                        names[name] = value._take_over()
        return self._made

    def __call__(self, *arguments: Any) -> Any:
        return self._take_over()(*arguments)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._take_over(), name)


def _kept(function: Any) -> Any:
    """Return the function as numba has it, with a cache on disk."""
    import numba

    compiled: Any = numba.njit(**_OPTIONS)(function)
    # Only functions of this package: the key of the cache is the content of its files.
    if function.__module__.startswith(__package__ or "") and cache_directory() is not None:
        with contextlib.suppress(Exception):  # numba's internals may change: then without a cache
            from graphmatern.sparse._cache import Cache

            compiled._cache = Cache(compiled.py_func)
    return compiled


def _part(function: Any, *, forceinline: bool = False) -> Any:
    """Return the function as numba has it, to be compiled with what calls it."""
    import numba

    return numba.njit(**_OPTIONS, **_PART, forceinline=forceinline)(function)


def _intrinsic(function: Any) -> Any:
    from numba.extending import intrinsic

    return intrinsic(function)


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
    return _Later(function, _kept)  # type: ignore[return-value]


def inner(function: Function) -> Function:
    """Compile ``function`` for other compiled functions, not to be called from Python: a third of the work is saved."""
    return _Later(function, _part)  # type: ignore[return-value]


def inline(function: Function) -> Function:
    """Compile ``function`` into each of its callers: for the parts of an inner loop.

    A call that passes ten arrays costs as much as eliminating a small column.
    """
    return _Later(function, partial(_part, forceinline=True))  # type: ignore[return-value]


def intrinsic(function: Callable[..., Any]) -> Any:
    """As numba's decorator of this name."""
    return _Later(function, _intrinsic)
