"""One thing to be measured."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

__all__ = ["GEOMETRIC", "OURS", "Task"]

OURS = "graphmatern"
GEOMETRIC = "GeometricKernels + GPyTorch"


@dataclass(frozen=True)
class Task:
    """One thing to be measured, several times.

    Attributes
    ----------
    peer : str
        Library, and how it is used.
    environment, script : str
        Where and by which worker it is measured; script "" means a command (`job["code"]`).
    job : dict
        The worker's argument.
    case : dict
        What distinguishes the task from others of the same peer.
    needs : dict
        The input file, as an argument of `workers/inputs.py`; empty for none.
    size : int
        Nodes, where tasks of one peer form a series in which the cost of the next is predicted; else 0.
    repeats : int
        Processes to run.
    """

    peer: str
    environment: str
    script: str
    job: dict[str, Any]
    case: dict[str, Any] = field(default_factory=dict)
    needs: dict[str, Any] = field(default_factory=dict)
    size: int = 0
    repeats: int = 1

    @property
    def key(self) -> str:
        """Name under which results are kept."""
        return f"{self.peer} | {json.dumps(self.case, sort_keys=True)}"

    @property
    def series(self) -> tuple[str, str]:
        """What tasks share that differ in size only."""
        return self.peer, json.dumps({k: v for k, v in self.case.items() if k != "nodes"}, sort_keys=True)
