"""Results on disk: one JSON file per section, replaced as a whole after every run, so that work can be resumed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from graphmatern.io._atomic import replacing

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["NOT_RUN", "Store"]

NOT_RUN = "not run: "  # how the reason begins why a task was not started


class Store:
    """Results of one section.

    A record has ``runs`` (one answer per repeat), or ``failure``: why there are no (more) runs.
    """

    def __init__(self, folder: Path, section: str) -> None:
        self.path = folder / f"{section}.json"
        self.machine: dict[str, Any] = {}
        self.records: dict[str, dict[str, Any]] = {}
        if self.path.is_file():
            content = json.loads(self.path.read_text(encoding="utf-8"))
            self.machine, self.records = content["machine"], content["records"]

    def runs(self, key: str) -> list[dict[str, Any]]:
        """Answers that a task has given so far."""
        found: list[dict[str, Any]] = self.records.get(key, {}).get("runs", [])
        return found

    def failure(self, key: str) -> str | None:
        """Why a task ended without (further) answers."""
        return self.records.get(key, {}).get("failure")

    def failed(self, key: str) -> bool:
        """Whether a task was started and gave no (further) answer."""
        return not (self.failure(key) or NOT_RUN).startswith(NOT_RUN)

    def add(self, key: str, case: dict[str, Any], answer: dict[str, Any]) -> None:
        """Keep one answer; one with ``error`` in it ends the task."""
        record = self.records.setdefault(key, {"case": case, "runs": []})
        record["case"] = case
        if "error" in answer:
            record["failure"] = answer["error"]
            record["failed"] = {name: value for name, value in answer.items() if name != "error"}
        else:
            record["runs"].append(answer)
        self.save()

    def forget(self, keys: set[str]) -> None:
        """Drop what is known of tasks."""
        self.records = {key: record for key, record in self.records.items() if key not in keys}

    def save(self) -> None:
        """Write the file, whole or not at all."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(self.path) as temporary:
            content = {"machine": self.machine, "records": self.records}
            temporary.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n", encoding="utf-8")
