"""Compilation in two processes: while this one compiles what a fit needs first, another compiles what it needs last.

Numba compiles one function at a time, whatever the number of threads, so half of the work is given to a second
interpreter. It writes to the same cache on disk and says so; a function it has promised is waited for. Whatever
goes wrong there (no second processor, no cache, a process that fails or hangs) only means that this process compiles
the function itself.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import subprocess
import sys
import threading
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphmatern.sparse._resources import available_threads

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["LAST", "LATE", "Helper", "begin", "functions_of", "is_helper", "wait_for"]

# Functions of about half of all compilation, with their arguments: S is the structure of a factor, capital letters
# else are arrays; see `_types`. A test compares them with what a fit compiles.
LATE = {
    "_numeric.factorize_runs": "S I L L n b b F F F F R L",
    "_selected.invert_runs": "S L L n F F F F R L",
}
# What a fit needs after those: compiled here rather than wait for the second process.
LAST = {
    "_solve.lower_many": "S F M F R",
    "_solve.upper_many": "S F M F R",
    "_powers._traces": "S F M F n",
    "_powers._forms": "S F F F F",
    "_solve.lower_one": "S F F F",
    "_solve.upper_one": "S F F F",
}
# Where one of these is missing, the late ones will be needed.
_EARLY = ("_minimum_degree", "_pattern.breadth_first", "_symbolic")
_PATIENCE = 120.0  # seconds for one function
_PROGRAM = "from graphmatern.sparse._ahead import work; work()"


def _types(letters: str) -> tuple[Any, ...]:
    """Numba's types of arguments that are given as letters."""
    from numba import boolean, float64, int8, int32, int64, types

    from graphmatern.sparse._structure import Structure

    longs, ints, flags = int64[::1], int32[::1], boolean[::1]
    kinds = {
        "I": ints, "L": longs, "F": float64[::1], "M": float64[:, ::1], "n": int64, "f": float64, "b": boolean,
        "R": types.Array(int64, 1, "C", readonly=True),
    }  # fmt: skip
    fields = {"Longs": longs, "Ints": ints, "Flags": flags, "NDArray[np.int8]": int8[::1], "NDArray[np.integer]": ints}
    tree = [fields[kind.__forward_arg__] for kind in Structure.__annotations__.values()]
    kinds["S"] = types.NamedTuple(tree, Structure)  # type: ignore[no-untyped-call]
    return tuple(kinds[letter] for letter in letters.split())


def functions_of(needed: dict[str, str]) -> Iterator[tuple[str, Any, tuple[Any, ...]]]:
    """Yield name, function and types of arguments of what is needed."""
    for name, letters in needed.items():
        module, function = name.split(".")
        yield name, getattr(import_module(f"{__package__}.{module}"), function), _types(letters)


class Helper:
    """The second process, seen from the first.

    Parameters
    ----------
    command : list of str
        Starts it.
    """

    def __init__(self, command: list[str]) -> None:
        path = os.pathsep.join(str(Path(entry).resolve()) for entry in sys.path)
        self._process = subprocess.Popen(  # noqa: S603 - this interpreter, with our own program
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "PYTHONPATH": path},
        )
        self._done: set[str] = set()
        self._ended = False
        self._news = threading.Condition()
        threading.Thread(target=self._listen, daemon=True).start()
        atexit.register(self.end)

    def _listen(self) -> None:
        assert self._process.stdout is not None
        with contextlib.suppress(OSError, ValueError), self._process.stdout as lines:
            for line in lines:
                with self._news:
                    self._done.add(line.strip())
                    self._news.notify_all()
        with self._news:
            self._ended = True
            self._news.notify_all()
        self._process.wait()

    def wait_for(self, name: str, patience: float) -> bool:
        """Wait until a function is there; False where it will not come."""
        with self._news:
            self._news.wait_for(lambda: self._ended or name in self._done, patience)
            return name in self._done

    def end(self) -> None:
        """End it; what it has not finished is compiled where it is needed."""
        with contextlib.suppress(OSError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait(5.0)


_helper: Helper | None = None
_begun = False
_meanwhile: Iterator[tuple[str, Any, tuple[Any, ...]]] = iter(())
is_helper = False


def begin(name: str) -> None:
    """Start the second process, once, if the function that was not found in the cache says that all will be needed."""
    global _helper, _begun, _meanwhile
    if _begun or is_helper or not name.startswith(_EARLY):
        return
    _begun = True
    # An interpreter that is embedded in another program has that program's name.
    if available_threads() < 2 or not Path(sys.executable or "").name.startswith("python"):
        return
    with contextlib.suppress(OSError):
        _helper = Helper([sys.executable, "-c", _PROGRAM])
        _meanwhile = functions_of(LAST)


def wait_for(name: str) -> bool:
    """Wait for a function that the second process is to compile; whether it did."""
    if _helper is None or name not in LATE:
        return False
    while not _helper.wait_for(name, 0.0) and (following := next(_meanwhile, None)):
        _, function, types = following
        if types not in function.signatures:
            function.compile(types)
    found = _helper.wait_for(name, _PATIENCE)
    if not found:
        _helper.end()
    return found


def _forget() -> None:
    """In a forked process nothing is heard of the second one."""
    global _helper
    _helper = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def work() -> None:
    """Compile what is needed late, and say so: the second process."""
    global is_helper
    is_helper = True
    for name, function, types in functions_of(LATE):
        function.compile(types)
        print(name, flush=True)
