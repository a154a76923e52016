"""Numba's cache of compiled functions, in the folder and with the key of `graphmatern.sparse._compile`."""

from __future__ import annotations

import contextlib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numba.core import caching

from graphmatern._progress import say
from graphmatern.sparse import _ahead
from graphmatern.sparse._compile import cache_directory, source_stamp

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Cache"]


@cache
def _say_what_is_happening() -> None:
    """Say once why nothing seems to happen: compilation takes a while."""
    kept = f"it is kept in {cache_directory()}"
    say(f"compiling sparse linear algebra: ten to thirty seconds, only this once ({kept})", anywhere=True)


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


class Cache(caching.FunctionCache):
    """Numba's cache of one function, for which every failure is a miss."""

    _impl_class = _Implementation

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)  # type: ignore[no-untyped-call]
        self._name = f"{function.__module__.rpartition('.')[2]}.{function.__name__}"

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        found = self._find(sig, target_context)
        if found is None:
            _say_what_is_happening()
            _ahead.begin(self._name)
            if _ahead.wait_for(self._name):
                found = self._find(sig, target_context)
        return found

    def _find(self, sig: Any, target_context: Any) -> Any:
        try:
            return super().load_overload(sig, target_context)  # type: ignore[no-untyped-call]
        except Exception:  # noqa: BLE001 - a damaged file may raise anything when it is unpickled
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        if _ahead.is_helper and self._name not in _ahead.LATE:
            return  # two processes that number a function's variants at the same time would mix them up
        try:
            super().save_overload(sig, data)  # type: ignore[no-untyped-call]
        except OSError:
            pass
        except Exception:  # noqa: BLE001 - a damaged index: begin a new one
            with contextlib.suppress(Exception):
                Path(self._cache_file._index_path).unlink(missing_ok=True)
                super().save_overload(sig, data)  # type: ignore[no-untyped-call]
