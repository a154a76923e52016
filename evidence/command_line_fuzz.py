"""Wrong graph, value and model files by the thousand: always clear words, in seconds and bounded memory.

Run through ``make evidence``; writes command_line_fuzz.md beside this file. The cases come from tests/fuzzing.py, each
from its number alone: ``python evidence/command_line_fuzz.py 17`` runs case 17 and shows what it says.
"""

from __future__ import annotations

import collections
import datetime as dt
import resource
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tqdm import tqdm

import graphmatern as gm

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from fuzzing import make_case, run_case

CASES = 10_000
SECONDS = 20  # that a case may take
MEMORY = 2 << 30  # bytes that a case may take beyond what the libraries have


class TooSlow(BaseException):
    """A case took longer than it may."""


def ring(*_: Any) -> None:
    """Stop a case."""
    raise TooSlow


def model_file() -> bytes:
    """A small model file, to be spoiled."""
    graph = gm.Graph.from_edges([("a", "b"), ("b", "c"), ("c", "d")], length=[1.0, 2.0, 3.0])
    estimator = gm.GraphGPRegressor(graph, gm.Matern(1.5, 2.0), noise=0.1, optimizer=None)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.gm"
        estimator.fit(["a", "d"], [1.0, 2.0]).save(path)
        return path.read_bytes()


def virtual_memory() -> int:
    """Bytes of address space in use."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    return pages * resource.getpagesize()


def main() -> None:
    """Run the cases; write the table."""
    chosen = [int(argument) for argument in sys.argv[1:]]
    model = model_file()
    signal.signal(signal.SIGALRM, ring)
    counts: dict[str, collections.Counter[int]] = collections.defaultdict(collections.Counter)
    faults, slowest = [], (0.0, 0)
    for number in tqdm(chosen or range(CASES), disable=None):
        if number == 200 and not chosen:  # by now the libraries are loaded
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            resource.setrlimit(resource.RLIMIT_AS, (virtual_memory() + MEMORY,) * 2)
        case = make_case(number, model)
        begun = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            signal.alarm(SECONDS)
            try:
                outcome = run_case(case, Path(folder))
            except TooSlow:
                faults.append(f"{number}: more than {SECONDS} s")
                continue
            finally:
                signal.alarm(0)
        slowest = max(slowest, (time.perf_counter() - begun, number))
        counts[case.kind][outcome.exit_code] += 1
        if chosen:
            print(number, case.kind, case.arguments, outcome, sep="\n  ")
        if outcome.fault:
            faults.append(f"{number}: {outcome.fault}")
    if chosen:
        return
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    lines = [
        "# Wrong files on the command line",
        "",
        f"`info`, `fit` and `predict` on {CASES:,} wrong files, made from the numbers 0 to {CASES - 1:,} by",
        f"`tests/fuzzing.py`; at most {SECONDS} s and {MEMORY >> 30} GiB of address space each. Right is: exit code 0",
        "and whole files, or code 1 or 3, a message of one block that begins with `graphmatern:`, no traceback, and no",
        f"file. Peak memory grew by {grown:.0f} MiB after the first 200 cases. Made by `make evidence` on",
        f"{dt.date.today().isoformat()}.",
        "",
        f"**{len(faults)} cases went wrong.**",
        "",
        "| what was spoiled | cases | code 0 | code 1 | code 3 |",
        "|---|---|---|---|---|",
    ]
    for kind, found in sorted(counts.items()):
        lines.append(f"| {kind} | {found.total():,} | {found[0]:,} | {found[1]:,} | {found[3]:,} |")
    lines += ["", *(f"- {fault}" for fault in faults[:50])]
    Path(__file__).with_suffix(".md").write_text("\n".join(lines).rstrip() + "\n")
    assert not faults, faults[:5]


if __name__ == "__main__":
    main()
