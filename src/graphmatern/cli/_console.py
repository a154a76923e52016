"""What the commands print, and their exit codes."""

from __future__ import annotations

import errno
import functools
import json
import math
import os
import re
import sys
import traceback
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from graphmatern._progress import showing
from graphmatern.errors import (
    DataNotFoundError,
    GraphMaternError,
    GraphMaternWarning,
    InputError,
    MissingLibraryError,
    ModelFileError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

__all__ = ["EXIT_CODES", "Console", "OutputFileError", "UseError", "check_folder", "reported", "writing"]

FAILED, USE, INPUT, OUTPUT, LIBRARY, INTERRUPTED = 1, 2, 3, 4, 5, 130
EXIT_CODES = (
    "Exit codes: 0 done; 1 the computation failed; 2 wrong use of the command; 3 an input is missing or wrong; "
    "4 a file could not be written; 5 an optional library is missing; 130 interrupted."
)

# Options whose values are right or wrong whatever the files hold, under the library's names too.
_OPTIONS = {"engine", "holdout", "inference", "kernel", "laplacian", "lengthscale", "level", "likelihood"}
_OPTIONS |= {
    "criterion",
    "strategy",
    "max_seconds",
    "mean",
    "n_eigenpairs",
    "nu",
    "output",
    "parallel",
    "plot",
    "recipe",
    "target",
    "task",
}
_WRITE_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EFBIG}

_Command = TypeVar("_Command", bound="Callable[..., None]")


class OutputFileError(GraphMaternError, OSError):
    """A file could not be written."""


class UseError(InputError):
    """Options are wrong, whatever the files hold."""


class Console:
    """Where a command prints: notes and results for people, or one JSON object at the end for programs.

    Parameters
    ----------
    quiet : bool
        Whether to print only errors.
    as_json : bool
        Whether to print one JSON object instead of text.
    """

    def __init__(self, *, quiet: bool = False, as_json: bool = False) -> None:
        self.talks = not (quiet or as_json)
        self._as_json = as_json
        self._bar: Any = None
        self.result: dict[str, Any] = {"notes": [], "warnings": []}

    def say(self, text: str) -> None:
        """Print a line of results."""
        if self.talks:
            self._print(text)

    def _print(self, text: str, *, error: bool = False) -> None:
        if self._bar is not None:
            self._bar.clear()  # the line goes where the bar was, and the bar below it
        typer.echo(text, err=error)
        if self._bar is not None:
            self._bar.refresh()

    def note(self, text: str) -> None:
        """Print what was guessed or done."""
        self.result["notes"].append(text)
        self.say(f"  {text}")

    def warn(self, text: str) -> None:
        """Print a warning on the error stream, once."""
        if text in self.result["warnings"]:
            return
        self.result["warnings"].append(text)
        if self.talks:
            self._print(f"warning: {text}", error=True)

    def finish(self) -> None:
        """Print the JSON object, where one was asked for."""
        if self._as_json:
            typer.echo(json.dumps(_for_json(self.result), indent=2, default=str, allow_nan=False))

    @contextmanager
    def steps(self, total: int) -> Iterator[Callable[[str], None]]:
        """Show a bar that advances with every step, on terminals only; yields what announces the next step."""
        from tqdm import tqdm

        shown = self.talks and sys.stderr.isatty()
        layout = "{desc:<22}{bar:24} {n}/{total} [{elapsed}]"
        bar = tqdm(total=total, bar_format=layout, disable=not shown, leave=False, file=sys.stderr)
        self._bar = bar if shown else None
        begun = False

        def begin(name: str) -> None:
            nonlocal begun
            if begun:
                bar.update()
            begun = True
            bar.set_description(name)

        try:
            yield begin
        finally:
            bar.close()
            self._bar = None

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Show the library's warnings as lines of their own, and hide those of other libraries."""
        with showing(None if self.talks else False), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.simplefilter("always", GraphMaternWarning)
            warnings.showwarning = lambda message, *_, **__: self.warn(_with_options(str(message)))
            yield


def _with_options(text: str) -> str:
    """The library's message with arguments spelled as options: --parallel first for parallel='first'."""
    text = re.sub(r"\b(contiguity|engine|likelihood|parallel)='(\w+)'", r"--\1 \2", text)
    return re.sub(r"(through|with) `(links|tolerance)`", r"\1 --\2", text)


def _for_json(value: Any) -> Any:
    """The same, with null for what JSON cannot express: NaN and infinities."""
    if isinstance(value, dict):
        return {key: _for_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_for_json(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Distinguish errors of writing a file from errors of reading one."""
    try:
        yield
    except GraphMaternError:
        raise
    except OSError as error:
        reason = error.strerror or str(error)
        raise OutputFileError(f"{str(path)!r} was not written: {reason}") from None


def check_folder(path: Path) -> None:
    """Refuse a folder that cannot be created or written to, before any work is done."""
    with writing(path):
        place = path.resolve()
        while not place.exists():
            place = place.parent
        if not place.is_dir():
            raise NotADirectoryError(f"{str(place)!r} is a file; give the name of a folder")
        if not os.access(place, os.W_OK):
            raise PermissionError(f"the folder {str(place)!r} cannot be written to; choose another place")


def _code(error: BaseException) -> int:
    if isinstance(error, OutputFileError) or (isinstance(error, OSError) and error.errno in _WRITE_ERRORS):
        return OUTPUT
    if isinstance(error, MissingLibraryError):
        return LIBRARY
    if isinstance(error, UseError):
        return USE
    if isinstance(error, InputError) and all(fault.argument in _OPTIONS for fault in error.faults):
        return USE
    if isinstance(error, InputError | DataNotFoundError | ModelFileError):
        return INPUT
    return INPUT if isinstance(error, OSError) else FAILED


def _words(error: BaseException) -> str:
    if isinstance(error, GraphMaternError):
        return _with_options(str(error))
    if isinstance(error, OSError):
        name = "" if error.filename is None else f"{str(error.filename)!r}: "
        return f"{name}{error.strerror or error}"
    if isinstance(error, MemoryError):
        return "there is not enough memory; use a smaller graph, fewer eigenpairs (--eigenpairs) or another --engine"
    return (
        f"something went wrong inside graphmatern ({type(error).__name__}: {str(error)[:300]}). "
        "Run the command again with --debug and report what it shows"
    )


def reported(command: _Command) -> _Command:
    """Turn exceptions of a command into a short message and an exit code; with --debug, the traceback comes first."""

    @functools.wraps(command)
    def run(*args: Any, **kwargs: Any) -> None:
        try:
            command(*args, **kwargs)
        except KeyboardInterrupt:
            typer.echo("graphmatern: interrupted; files that were not finished are unchanged", err=True)
            raise typer.Exit(INTERRUPTED) from None
        except BrokenPipeError:  # the reader of the output has closed it
            sys.stderr.close()
            raise typer.Exit(0) from None
        except (typer.Exit, typer.Abort, typer.BadParameter):
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, the user gets words and not a traceback
            if kwargs.get("debug"):
                traceback.print_exc()
            typer.echo(f"graphmatern: {_words(error)}", err=True)
            raise typer.Exit(_code(error)) from None

    return run  # type: ignore[return-value]
