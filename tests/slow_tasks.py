"""Work for other processes: it takes a while and leaves a trace of every time it was done."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

from graphmatern.reproduce._tasks import Task, run_tasks


def slow_square(number: int, log: str, pause: float) -> dict[str, Any]:
    """Square a number, slowly."""
    with Path(log).open("a") as stream:
        stream.write(f"{number} {os.getpid()}\n")
    time.sleep(pause)
    return {"square": number**2}


def tasks(log: Path, pause: float, count: int = 16) -> list[Task]:
    """Tasks that square the first whole numbers."""
    return [Task(f"square-{k}", slow_square, {"number": k, "log": str(log), "pause": pause}) for k in range(count)]


if __name__ == "__main__":
    run_tasks(tasks(Path(sys.argv[2]), float(sys.argv[3])), Path(sys.argv[1]), processes=2)
