"""Runs the tasks of a section, repeats interleaved, and keeps every answer at once."""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from harness.environments import Environments, UnavailableError
from harness.processes import ROOT, run_worker, time_command
from harness.statistics import predicted, summarise
from harness.store import NOT_RUN

if TYPE_CHECKING:
    from pathlib import Path

    from harness.store import Store
    from harness.task import Task

__all__ = ["Runner", "seconds_of"]


def seconds_of(run: dict[str, Any]) -> float:
    """What a run cost: its own account of the work, or else the life of its process."""
    return float(run.get("seconds", run["wall"]))


@dataclass
class Runner:
    """How tasks are run.

    Attributes
    ----------
    environments : Environments
        Of the libraries.
    inputs : Path
        Folder for what the workers read.
    limit : float
        Seconds for one process.
    patience : float
        A member of a series whose predicted cost is larger is not started.
    """

    environments: Environments
    inputs: Path
    limit: float = 300.0
    patience: float = 300.0
    memory: int = int(0.85 * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))

    def section(self, tasks: list[Task], store: Store) -> None:
        """Run what the store does not know yet."""
        self._retry(tasks, store)
        for repeat in range(max(task.repeats for task in tasks)):
            for task in tasks:
                if repeat >= task.repeats or len(store.runs(task.key)) > repeat or store.failure(task.key):
                    continue
                reason = self._hopeless(task, tasks, store)
                answer = {"error": NOT_RUN + reason} if reason else self.run(task)
                print(f"  {task.key}: {_words(answer)}", flush=True)
                store.add(task.key, {"peer": task.peer} | task.case, answer)

    def prepare(self, tasks: list[Task]) -> None:
        """Make the environments and inputs that tasks need."""
        for task in tasks:
            try:
                self.environments.python(task.environment)
                if task.needs:
                    self.input_file(task.needs)
                elif task.job.get("job") == "kernels":
                    self._make_matrix(task)
            except UnavailableError as error:
                print(f"  {task.environment}: {error}", flush=True)

    def _retry(self, tasks: list[Task], store: Store) -> None:
        """Forget tasks that were not started: the limits may be others now."""
        store.forget({task.key for task in tasks if (store.failure(task.key) or "").startswith(NOT_RUN)})

    def _hopeless(self, task: Task, tasks: list[Task], store: Store) -> str | None:
        """Why a member of a series need not be started, from smaller ones."""
        if not task.size or store.runs(task.key):
            return None
        smaller = [other for other in tasks if other.series == task.series and other.size < task.size]
        for other in smaller:
            failure = store.failure(other.key)
            if failure:
                return failure.removeprefix(NOT_RUN) if failure.startswith(NOT_RUN) else f"{other.size:,} nodes failed"
        costs = {other.size: summarise([seconds_of(run) for run in store.runs(other.key)]) for other in smaller}
        known = [(float(size), cost.median) for size, cost in costs.items() if cost]
        expected = predicted(known, task.size)
        if expected is not None and expected > self.patience:
            return f"about {expected:.0f} s at {task.size:,} nodes, predicted from smaller graphs"
        return None

    def run(self, task: Task) -> dict[str, Any]:
        """Run a task once."""
        try:
            python = self.environments.python(task.environment)
        except UnavailableError as error:
            return {"error": str(error)}
        own_code = task.environment in ("ours", "solvers")
        job = dict(task.job)
        if task.needs:
            try:
                job["input"] = str(self.input_file(task.needs))
            except UnavailableError as error:
                return {"error": str(error)}
        if not task.script:
            return self._command(python, task, own_code)
        if job["job"] == "kernels":
            job["folder"] = str(self.inputs)
            self._make_matrix(task)
        return run_worker(python, task.script, job, limit=self.limit, memory=self.memory, own_code=own_code)

    def _make_matrix(self, task: Task) -> None:
        """Have a matrix made by a process of its own, whose memory does not count."""
        job = task.job | {"folder": str(self.inputs), "solver": "none"}
        if not (self.inputs / "precision-{graph}-{n}-{nu}.npz".format(**job)).is_file():
            python = self.environments.python(task.environment)
            run_worker(python, task.script, job, limit=2 * self.limit, memory=self.memory, own_code=True)

    def _command(self, python: str, task: Task, own_code: bool) -> dict[str, Any]:
        """Time a command; it finds its input, and a folder that is empty, in the environment."""
        with tempfile.TemporaryDirectory() as folder:
            extra = {"BENCH_OUT": folder}
            if task.job.get("empty_cache"):
                extra["NUMBA_CACHE_DIR"] = folder
            if task.needs:
                extra["BENCH_INPUT"] = str(self.input_file(task.needs))
            return time_command(python, task.job["code"], own_code=own_code, extra=extra)

    def input_file(self, needs: dict[str, Any]) -> Path:
        """File with a graph and observations, made where it is not there yet."""
        name = "-".join(str(value) for value in needs.values())
        path = self.inputs / f"{name}.npz"
        if not path.is_file():
            python = self.environments.python("ours")
            job = needs | {"input": str(path)}
            answer = run_worker(python, "inputs.py", job, limit=4 * self.limit, memory=self.memory, own_code=True)
            if "error" in answer:
                raise UnavailableError(f"no input: {answer['error']}")
        return path


def inputs_folder() -> Path:
    """Where inputs are kept between runs; not part of the repository."""
    return ROOT / "build" / "bench-inputs"


def _words(answer: dict[str, Any]) -> str:
    if "error" in answer:
        return str(answer["error"])
    peak = f", {answer['peak_bytes'] / 1e9:.2f} GB" if "peak_bytes" in answer else ""
    return f"{seconds_of(answer):.2f} s{peak}"
