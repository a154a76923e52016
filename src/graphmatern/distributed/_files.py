"""Results of all processes in one folder, which appears whole or not at all."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphmatern.errors import DataNotFoundError
from graphmatern.tables import required_library

if TYPE_CHECKING:
    import pandas as pd

    from graphmatern.distributed._processes import Processes

__all__ = ["check_folder", "write_results"]


def check_folder(processes: Processes, folder: str | Path) -> None:
    """Refuse a folder for results that is there already, or that cannot be made, before any work is done."""
    target = Path(folder).resolve()
    problem = None
    if processes.is_first:
        if target.exists():
            problem = f"{str(folder)!r} already exists; remove it, or choose another name"
        elif not target.parent.is_dir():
            problem = f"there is no folder {str(target.parent)!r}; make it first, or choose another place"
    problem = processes.from_first(problem)
    if problem is not None:
        error = DataNotFoundError(problem)
        error.said_together = True  # type: ignore[attr-defined]
        raise error


def write_results(processes: Processes, folder: str | Path, table: pd.DataFrame, learned: dict[str, Any]) -> None:
    """Write this process's part of a table, and, by the first, what was learned."""
    required_library("pyarrow", "writing Parquet files")
    check_folder(processes, folder)
    target = Path(folder).resolve()
    growing = target.with_name(f".{target.name}.unfinished")
    if processes.is_first:
        shutil.rmtree(growing, ignore_errors=True)  # of a run that was stopped here
        (growing / "predictions").mkdir(parents=True)
    processes.wait()
    table.to_parquet(growing / "predictions" / f"part-{processes.rank:05d}.parquet")
    if processes.is_first:
        (growing / "model.json").write_text(json.dumps(learned, indent=1, default=float) + "\n")
    processes.wait()
    if processes.is_first:
        growing.rename(target)
    processes.wait()
