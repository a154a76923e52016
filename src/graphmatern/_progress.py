"""Saying what takes long, before and while it does: on terminals, unless it was asked for or forbidden."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["LONG", "announce", "bar", "duration", "hidden", "is_shown", "say", "showing"]

LONG = 10.0  # seconds of a step that is announced

_wanted: ContextVar[bool | None] = ContextVar("progress", default=None)


@contextmanager
def showing(progress: bool | None) -> Iterator[None]:
    """Show progress or not while this lasts; None leaves it as it is, at first to whether there is a terminal."""
    token = _wanted.set(_wanted.get() if progress is None else progress)
    try:
        yield
    finally:
        _wanted.reset(token)


def hidden() -> bool | None:
    """Whether bars are hidden; None where that depends on the error stream, as tqdm's ``disable`` has it."""
    wanted = _wanted.get()
    return None if wanted is None else not wanted


def is_shown() -> bool:
    """Whether anyone sees what is said: predictions that nobody reads need not be made."""
    hide = hidden()
    return sys.stderr.isatty() if hide is None else not hide


def announce(step: str, seconds: float, memory: float) -> None:
    """Say what a step is predicted to take, on the error stream, if that is long.

    Parameters
    ----------
    step : str
        What is about to begin.
    seconds, memory : float
        Predictions; memory in bytes.
    """
    if seconds > LONG:
        say(f"{step}: about {duration(seconds)}, {memory / 2**30:.2g} GiB")


def say(text: str, *, anywhere: bool = False) -> None:
    """Write a line to the error stream, where progress is shown.

    Parameters
    ----------
    text : str
        The line.
    anywhere : bool
        Whether to write it into files and pipes as well, unless that is forbidden.
    """
    if is_shown() or (anywhere and hidden() is None):
        from tqdm import tqdm

        # Through tqdm, which moves bars that are there out of the way.
        tqdm.write(text, file=sys.stderr)


@contextmanager
def bar(step: str, total: int, seconds: float) -> Iterator[Callable[[int], None]]:
    """Show how far a step has come, on the error stream, if it is predicted to take long.

    Parameters
    ----------
    step : str
        What is done.
    total : int
        How much there is to do.
    seconds : float
        Prediction.

    Yields
    ------
    callable
        To be called with how much more was done, by any thread.
    """
    if seconds <= LONG:
        yield lambda _more: None
        return
    from tqdm import tqdm

    lock = Lock()
    form = "{l_bar}{bar}| {elapsed}, about {remaining} more"
    with tqdm(total=total, desc=step, disable=hidden(), leave=False, bar_format=form) as shown:

        def count(more: int) -> None:
            with lock:
                shown.update(more)

        yield count


def duration(seconds: float) -> str:
    """Seconds in readable units.

    Examples
    --------
    >>> duration(0.01), duration(42.0), duration(5000.0)
    ('below 0.1 s', '42 s', '83 min')
    """
    if seconds < 0.1:
        return "below 0.1 s"
    if seconds == float("inf"):
        return "out of reach"
    for size, unit in ((1.0, "s"), (60.0, "min"), (3600.0, "h"), (86400.0, "days")):
        if seconds < 100 * size or unit == "days":
            return f"{seconds / size:.1f} {unit}" if seconds < 10 * size else f"{seconds / size:,.0f} {unit}"
    raise AssertionError
