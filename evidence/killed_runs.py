"""Kill -9 at random moments of `graphmatern fit` and `predict`: no half file under a target's name, no lasting litter.

Run through ``make evidence``; writes killed_runs.md beside this file. Commands run in forks of one process in which the
libraries are loaded, so that most of a run is reading, learning and writing. Half of the kills come at a random moment
of the run, half at a random moment after a temporary file has appeared.
"""

from __future__ import annotations

import datetime as dt
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from typer.testing import CliRunner

import graphmatern as gm
from graphmatern.cli._app import app

if TYPE_CHECKING:
    from collections.abc import Callable

KILLS = 100
SEED = 0


def start(arguments: list[str]) -> int:
    """Run a command in a fork; return its process id."""
    child = os.fork()
    if child == 0:
        sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: PTH123, SIM115
        os._exit(CliRunner().invoke(app, arguments).exit_code)
    return child


def finish(arguments: list[str]) -> float:
    """Run a command to its end; return its seconds."""
    begun = time.perf_counter()
    _, status = os.waitpid(start(arguments), 0)
    assert os.waitstatus_to_exitcode(status) == 0, arguments
    return time.perf_counter() - begun


def litter(folder: Path) -> list[Path]:
    """Temporary files of writers, dead or alive."""
    return list(folder.glob(".graphmatern-*"))


def kill(arguments: list[str], folder: Path, seconds: float, rng: random.Random, *, while_writing: bool) -> bool:
    """Kill a command on its way; return whether it was still running."""
    child = start(arguments)
    if while_writing:
        while not litter(folder):
            done, _ = os.waitpid(child, os.WNOHANG)
            if done:
                return False
        time.sleep(rng.uniform(0.0, 0.01))
    else:
        time.sleep(rng.uniform(0.0, seconds))
    done, status = os.waitpid(child, os.WNOHANG)
    if done:
        return False
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


def make_city(folder: Path) -> None:
    """Write the files of a city of some 2,000 junctions, so that writing takes its time."""
    graph = gm.make_roads(2_000, seed=0)
    graph.edges[["source", "target", "length"]].to_csv(folder / "roads.csv", index=False)
    speeds = np.random.default_rng(0).normal(50.0, 10.0, graph.n_nodes)
    pd.DataFrame({"node": graph.nodes, "speed": speeds})[::3].to_csv(folder / "speeds.csv", index=False)


def whole_or_old(path: Path, new: bytes, is_same: Callable[[bytes, bytes], bool]) -> str:
    """What is found under a target's name: the old file, the new one, none; anything else is an error."""
    if not path.exists():
        return "none"
    content = path.read_bytes()
    if content == b"old":
        return "old"
    assert is_same(content, new), f"{path.name} is neither the old file nor the new one"
    return "new"


def main() -> None:
    """Kill, look, run again, look again; write the table."""
    rng = random.Random(SEED)  # noqa: S311
    rows: dict[tuple[str, str], dict[str, int]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_city(folder)
        model, table = folder / "model.gm", folder / "predictions.csv"
        kept = ["--nu", "1", "--lengthscale", "8", "--engine", "markov", "--n-threads", "1", "--quiet"]
        fit = ["fit", str(folder / "roads.csv"), str(folder / "speeds.csv"), *kept]
        fit += ["--out", str(model), "--predict", str(table)]
        predict = ["predict", str(model), "--out", str(table), "--n-threads", "1", "--quiet"]
        for arguments in (fit, predict):  # loads what forks would load each by itself
            assert CliRunner().invoke(app, arguments).exit_code == 0
        seconds = {"fit": finish(fit), "predict": finish(predict)}
        reference = {path: path.read_bytes() for path in (model, table)}
        files = sorted(path.name for path in folder.iterdir())
        done = 0
        while done < KILLS:
            command, arguments = ("fit", fit) if done % 2 else ("predict", predict)
            while_writing = done % 4 < 2
            targets = [model, table] if command == "fit" else [table]
            had = rng.random() < 0.5
            for path in targets:
                path.write_bytes(b"old") if had else path.unlink(missing_ok=True)
            if not kill(arguments, folder, seconds[command], rng, while_writing=while_writing):
                continue  # it was too quick; another try
            done += 1
            row = rows.setdefault((command, "writing" if while_writing else "any time"), {})
            row["kills"] = row.get("kills", 0) + 1
            for path in targets:
                state = whole_or_old(path, reference[path], bytes.__eq__)
                assert state != ("none" if had else "old")
                row[state] = row.get(state, 0) + 1
            row["litter"] = row.get("litter", 0) + bool(litter(folder))
            model.write_bytes(reference[model])
            finish(fit if command == "fit" else predict)
            assert sorted(path.name for path in folder.iterdir()) == files, "litter stayed"
            assert all(path.read_bytes() == content for path, content in reference.items())
    lines = [
        "# Killed runs of the command line",
        "",
        f"`kill -9` of `graphmatern fit` and `predict` on a city of 2,000 junctions, {KILLS} times, seed {SEED}; half",
        "at a random moment, half within 10 ms of the appearance of a temporary file. Under a target's name there was",
        "always the old file, none where there had been none, or the whole new one, equal to the last byte; after the",
        f"next run no other file was left in the folder. Made by `make evidence` on {dt.date.today().isoformat()}.",
        "",
        "| command | killed | kills | old file | no file | whole new file | with a temporary file left behind |",
        "|---|---|---|---|---|---|---|",
    ]
    for (command, when), row in sorted(rows.items()):
        cells = [str(row.get(key, 0)) for key in ("kills", "old", "none", "new", "litter")]
        lines.append(f"| {command} | {when} | " + " | ".join(cells) + " |")
    Path(__file__).with_suffix(".md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
