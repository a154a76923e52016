"""`graphmatern reproduce table1`, killed half way and started again, next to a run that was left alone.

Run through ``make evidence``; writes reproduction_killed.md beside this file.
"""

from __future__ import annotations

import datetime as dt
import json
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

REPEATS = 3
COMMAND = [sys.executable, "-c", "from graphmatern.cli import main; main()", "reproduce", "table1"]


def start(out: Path) -> subprocess.Popen[bytes]:
    """Start a run."""
    arguments = [*COMMAND, "--repeats", str(REPEATS), "--out", str(out)]
    return subprocess.Popen(arguments, stdout=subprocess.DEVNULL)  # noqa: S603


def finished(out: Path) -> dict[str, int]:
    """Results on disk, with the time at which each was written."""
    return {path.name: path.stat().st_mtime_ns for path in (out / "cells" / "fast").glob("*.json")}


def table(out: Path) -> dict[str, Any]:
    """Read the table of a run."""
    found: dict[str, Any] = json.loads((out / "table1.json").read_text())
    return found


def without_seconds(cells: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Leave out what no two runs share."""
    return [{key: value for key, value in cell.items() if key != "seconds"} for cell in cells]


def main() -> None:
    """Kill a run twice, at a third and at two thirds, and compare."""
    with tempfile.TemporaryDirectory() as folder:
        alone, killed = Path(folder) / "alone", Path(folder) / "killed"
        if start(alone).wait() != 0:
            raise SystemExit("the run that was left alone failed")
        total = len(finished(alone))
        kept: dict[str, int] = {}
        rows = []
        for share in (1 / 3, 2 / 3):
            run = start(killed)
            while len(finished(killed)) < share * total:
                time.sleep(0.01)
            run.send_signal(signal.SIGKILL)
            run.wait()
            time.sleep(3.0)  # its processes end with it
            now = finished(killed)
            again = sum(now[name] != written for name, written in kept.items())
            rows.append(f"| {share:.0%} | {len(now)} of {total} | {again} |")
            kept = now
        if start(killed).wait() != 0:
            raise SystemExit("the last run failed")
        now = finished(killed)
        again = sum(now[name] != written for name, written in kept.items())
        rows.append(f"| not killed | {len(now)} of {total} | {again} |")
        same = without_seconds(table(alone)["cells"]) == without_seconds(table(killed)["cells"])
        litter = len(list(killed.rglob(".graphmatern-*")))
    lines = [
        "# Killed and started again",
        "",
        f"`graphmatern reproduce table1 --repeats {REPEATS}`, ended by kill -9 at a third and at two thirds of its",
        "pieces of work, then left to finish; made by `make evidence` on " + dt.date.today().isoformat() + ".",
        "",
        "| killed at | pieces on disk | pieces of earlier runs done again |",
        "|---|---|---|",
        *rows,
        "",
        f"Table equal, to the last digit, to that of a run left alone: {'yes' if same else 'NO'}.",
        f"Temporary files left: {litter}.",
    ]
    Path(__file__).with_suffix(".md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
