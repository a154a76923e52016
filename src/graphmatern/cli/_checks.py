"""Checks of a command's options: everything that is wrong at once, before any work is done."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import typer
from typer.core import TyperCommand

from graphmatern.cli._console import OutputFileError, UseError
from graphmatern.errors import DataNotFoundError, Fault, InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

__all__ = ["Checks", "Command", "checking"]

_Function = TypeVar("_Function", bound="Callable[..., None]")

_unread: ContextVar[tuple[Any, ...]] = ContextVar("unread", default=())  # options of the command that is running


@dataclass(frozen=True)
class _Said(Fault):
    """A fault with a message of its own."""

    def __str__(self) -> str:
        return self.rule


class Command(TyperCommand):
    """A command that reads on after an option that cannot be read, and reports all of them together.

    A function that is `checking` adds what else is wrong.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the options; those at fault have their defaults until all have been read."""
        found: list[Any] = []
        try:
            while True:
                try:
                    rest = super().parse_args(ctx, list(args))
                except typer.BadParameter as error:
                    parameter: Any = error.param
                    if parameter is None or any(parameter is one.param for one in found):
                        raise
                    found.append(error)
                    parameter.process_value = partial(_default, parameter)
                else:
                    break
        finally:
            for one in found:
                del one.param.process_value
        ctx.meta[__name__] = found
        return rest

    def invoke(self, ctx: Any) -> Any:
        """Run it, unless there are faults that it would not report itself."""
        found = ctx.meta[__name__]
        alone = any(one.param.required for one in found) or not getattr(self.callback, "checks", False)
        if found and alone and len(found) > 1:
            ctx.fail(f"{len(found)} faults" + "".join(f"\n  {k}. {_words(one)}" for k, one in enumerate(found, 1)))
        if found and alone:
            raise found[0]
        token = _unread.set(tuple(found))
        try:
            return super().invoke(ctx)
        finally:
            _unread.reset(token)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Arguments by their names alone, as every version of typer should show them."""
        return [piece.strip("{}") for piece in super().collect_usage_pieces(ctx)]


def checking(command: _Function) -> _Function:
    """Mark a command whose function makes `Checks` before it does anything."""
    command.checks = True  # type: ignore[attr-defined]
    return command


def _default(parameter: Any, ctx: Any, _value: Any) -> Any:
    return parameter.get_default(ctx)


def _words(error: Any) -> str:
    return str(error.format_message())


class Checks:
    """Faults of a command's options, those that could not be read among them.

    Parameters
    ----------
    subject : str
        What was not done because of them.
    """

    def __init__(self, subject: str) -> None:
        self._subject = subject
        self._faults: list[Fault] = [_Said("", _words(error), "", "") for error in _unread.get()]
        self._others: list[Exception] = []

    def add(self, argument: str, rule: str, received: str, remedy: str) -> None:
        """Note one fault."""
        self._faults.append(Fault(argument, rule, received, remedy))

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """Note what is raised here, instead of raising it."""
        try:
            yield
        except InputError as error:
            self._faults += error.faults
        except (OutputFileError, DataNotFoundError) as error:
            self._others.append(error)

    def files(self, *given: tuple[Path | None, str]) -> None:
        """Note which of the files that were given, with the kinds they should be of, are not there."""
        from graphmatern.tables import existing_file

        for path, kind in given:
            if path is not None:
                with self.collecting():
                    existing_file(path, kind)

    def raise_if_any(self) -> None:
        """Raise one exception with all that was found."""
        words = [str(error) for error in self._others]
        if self._faults:
            raise UseError(self._subject, [*self._faults, *(_Said("", f"{text}.", "", "") for text in words)])
        if self._others:
            raise type(self._others[0])("\n  ".join(words))
