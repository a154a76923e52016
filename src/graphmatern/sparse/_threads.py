"""A few threads that share the work of one computation."""

from __future__ import annotations

import itertools
import threading
from queue import SimpleQueue
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import TracebackType

    Work = Callable[[int, int], None]
    Message = tuple[Work, Iterator[int], int] | None

__all__ = ["Crew"]


class Crew:
    """Threads that share tasks; the calling thread is the first of them.

    Threads start when they are first needed and end with the ``with`` block.  They help only while
    Python's global lock is released, as it is in compiled code.

    Examples
    --------
    >>> done = []
    >>> with Crew(2) as crew:
    ...     crew.run(3, lambda task, worker: done.append(task))
    >>> sorted(done)
    [0, 1, 2]
    """

    def __init__(self, n_threads: int) -> None:
        self.n_threads = n_threads
        self._inboxes: list[SimpleQueue[Message]] = []
        self._outbox: SimpleQueue[BaseException | None] = SimpleQueue()
        self._helpers: list[threading.Thread] = []

    def __enter__(self) -> Crew:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for inbox in self._inboxes:
            inbox.put(None)
        for helper in self._helpers:
            helper.join()

    def run(self, n_tasks: int, work: Work) -> None:
        """Call ``work(task, worker)`` once for each task, and return when all are done.

        Tasks are begun in order; ``worker`` tells the threads apart.
        """
        n_helpers = min(self.n_threads, n_tasks) - 1
        counter: Iterator[int] = itertools.count()
        if n_helpers < 1:
            _share(work, counter, n_tasks, 0)
            return
        while len(self._helpers) < n_helpers:
            self._add_helper()
        for inbox in self._inboxes[:n_helpers]:
            inbox.put((work, counter, n_tasks))
        error = _guard(work, counter, n_tasks, 0)
        for _ in range(n_helpers):
            error = self._outbox.get() or error
        if error is not None:
            raise error

    def _add_helper(self) -> None:
        worker = len(self._helpers) + 1
        inbox: SimpleQueue[Message] = SimpleQueue()

        def loop() -> None:
            while (message := inbox.get()) is not None:
                self._outbox.put(_guard(*message, worker))

        helper = threading.Thread(target=loop, name=f"graphmatern-{worker}", daemon=True)
        helper.start()
        self._inboxes.append(inbox)
        self._helpers.append(helper)


def _share(work: Work, counter: Iterator[int], n_tasks: int, worker: int) -> None:
    """Take tasks until none are left."""
    while (task := next(counter)) < n_tasks:
        work(task, worker)


def _guard(work: Work, counter: Iterator[int], n_tasks: int, worker: int) -> BaseException | None:
    """Take tasks until none are left; return the error that stopped this, if any."""
    try:
        _share(work, counter, n_tasks, worker)
    except BaseException as error:  # noqa: BLE001 - raised again by the calling thread
        return error
    return None
