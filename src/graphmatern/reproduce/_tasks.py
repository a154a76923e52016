"""Pieces of work whose results are kept on disk, so that none is done twice; run in several processes."""

from __future__ import annotations

import json
import multiprocessing
import os
import threading
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing.connection import wait
from typing import TYPE_CHECKING, Any

from tqdm import tqdm

from graphmatern import __version__
from graphmatern.io import replacing

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

__all__ = ["Outcome", "Task", "run_tasks", "write_json"]


@dataclass(frozen=True)
class Task:
    """One piece of work.

    Attributes
    ----------
    name : str
        Names its file.
    work : callable
        A function of a module, which other processes can import; returns what JSON can hold.
    arguments : mapping
        Its keyword arguments, which JSON can hold. A result is used again only where they are the same.
    """

    name: str
    work: Callable[..., dict[str, Any]]
    arguments: Mapping[str, Any]

    @property
    def identity(self) -> dict[str, Any]:
        """What a kept result must have been made from."""
        return {"work": self.work.__name__, "arguments": dict(self.arguments), "version": __version__}

    def path(self, folder: Path) -> Path:
        """File of the result."""
        return folder / f"{self.name}.json"


@dataclass(frozen=True)
class Outcome:
    """Results of some tasks.

    Attributes
    ----------
    results : dict
        By the name of the task.
    seconds : dict
        What every task took, when it was done, whether now or before.
    n_computed, n_kept : int
        How many were done now, and how many were found on disk.
    wall_seconds : float
        From the start of the first to the end of the last that were done now, processes starting included.
    """

    results: dict[str, dict[str, Any]]
    seconds: dict[str, float]
    n_computed: int
    n_kept: int
    wall_seconds: float


def write_json(path: Path, content: Any) -> None:
    """Write a JSON file whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_text(
            json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8"
        )


def _kept(task: Task, folder: Path) -> dict[str, Any] | None:
    """Read a task's result from disk; None where there is none made from the same arguments."""
    try:
        found = json.loads(task.path(folder).read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):  # a file that is not JSON was not written by us: do it again
        return None
    same = isinstance(found, dict) and found.get("identity") == json.loads(json.dumps(task.identity))
    return found if same else None


def _do(task: Task, folder: Path) -> dict[str, Any]:
    """Do a task and keep its result."""
    start = time.perf_counter()
    try:
        result = task.work(**task.arguments)
    except Exception as error:
        error.add_note(f"while doing {task.name}")
        raise
    # A task that knows better says what it took itself, data and spectra left out.
    seconds = result.pop("seconds", None) or time.perf_counter() - start
    kept = {"identity": task.identity, "seconds": round(seconds, 4), "result": result}
    write_json(task.path(folder), kept)
    return kept


def _prepare_process() -> None:
    """One thread per process, and none that outlives the process that started it."""
    import torch
    from threadpoolctl import threadpool_limits

    threadpool_limits(1)
    torch.set_num_threads(1)
    parent = multiprocessing.parent_process()
    assert parent is not None
    threading.Thread(target=_leave_with, args=(parent.sentinel,), daemon=True).start()


def _leave_with(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)


def run_tasks(tasks: Sequence[Task], folder: Path, *, processes: int = 2, label: str = "") -> Outcome:
    """Do the tasks that are not done yet.

    Parameters
    ----------
    tasks : sequence of Task
        What to do, the longest first.
    folder : Path
        Where results are kept; made where it is absent.
    processes : int
        How many processes work, with one thread each; 1 means this one.
    label : str
        Text at the progress bar.

    Returns
    -------
    Outcome
        A task that fails stops the others; what is done is kept.
    """
    folder.mkdir(parents=True, exist_ok=True)
    start = time.perf_counter()
    found = {task.name: _kept(task, folder) for task in tasks}
    left = [task for task in tasks if found[task.name] is None]
    with tqdm(total=len(tasks), initial=len(tasks) - len(left), desc=label, disable=None, leave=False) as bar:
        if processes == 1 or len(left) <= 1:
            for task in left:
                found[task.name] = _do(task, folder)
                bar.update()
        else:
            _share_out(left, folder, min(processes, len(left)), found, bar)
    done = {name: kept for name, kept in found.items() if kept is not None}
    return Outcome(
        results={name: kept["result"] for name, kept in done.items()},
        seconds={name: kept["seconds"] for name, kept in done.items()},
        n_computed=len(left),
        n_kept=len(tasks) - len(left),
        wall_seconds=time.perf_counter() - start,
    )


def _share_out(
    tasks: Sequence[Task], folder: Path, processes: int, found: dict[str, dict[str, Any] | None], bar: tqdm[Any]
) -> None:
    # Processes are spawned: threads of numerical libraries do not survive a fork.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, context, initializer=_prepare_process) as pool:
        running = {pool.submit(_do, task, folder): task for task in tasks}
        try:
            for future in as_completed(running):
                found[running[future].name] = future.result()
                bar.update()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
