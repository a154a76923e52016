"""Announcements of long steps, and progress bars: by default on terminals only."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["LONG", "announce", "bar", "duration", "hidden", "is_shown", "say", "showing"]

LONG = 10.0  # seconds from which a step is announced

_wanted: ContextVar[bool | None] = ContextVar("progress", default=None)


@contextmanager
def showing(progress: bool | None) -> Iterator[None]:
    """Show progress, or not, inside this context; None keeps the setting, which at first is: on terminals only."""
    token = _wanted.set(_wanted.get() if progress is None else progress)
    try:
        yield
    finally:
        _wanted.reset(token)


def hidden() -> bool | None:
    """Whether bars are hidden; None if that depends on the error stream, as for tqdm's ``disable``."""
    wanted = _wanted.get()
    return None if wanted is None else not wanted


def is_shown() -> bool:
    """Whether messages are shown: if not, predictions for them need not be made."""
    hide = hidden()
    return sys.stderr.isatty() if hide is None else not hide


def announce(step: str, seconds: float, memory: float) -> None:
    """Print the predicted time and memory of a step, on the error stream, if it is long.

    Parameters
    ----------
    step : str
        What is about to start.
    seconds, memory : float
        Predictions; memory in bytes.
    """
    if seconds > LONG:
        say(f"{step}: about {duration(seconds)}, {memory / 2**30:.2g} GiB")


def say(text: str, *, anywhere: bool = False) -> None:
    """Write a line to the error stream, if progress is shown.

    Parameters
    ----------
    text : str
        The line.
    anywhere : bool
        Whether to write it to files and pipes as well, unless progress was switched off.
    """
    if is_shown() or (anywhere and hidden() is None):
        from tqdm import tqdm

        # Through tqdm, which keeps clear of progress bars.
        tqdm.write(text, file=sys.stderr)


@contextmanager
def bar(step: str, total: int, seconds: float) -> Iterator[Callable[[int], None]]:
    """Show the progress of a step, on the error stream, if it is predicted to take long.

    Parameters
    ----------
    step : str
        What is being done.
    total : int
        Amount of work.
    seconds : float
        Prediction.

    Yields
    ------
    callable
        To be called, by any thread, with the amount of work just done.
    """
    if seconds <= LONG:
        yield lambda _more: None
        return
    from tqdm import tqdm

    lock = Lock()
    form = "{l_bar}{bar}| {elapsed}, about {remaining} left"
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
