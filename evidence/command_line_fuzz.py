"""Wrong graph, value and model files by the thousand: always clear words, in seconds and bounded memory.

Run through ``make evidence``; writes command_line_fuzz.md beside this file. The cases come from tests/fuzzing.py, each
from its number alone: ``python evidence/command_line_fuzz.py 17`` runs case 17 and shows what it says.
"""

from __future__ import annotations

import collections
import datetime as dt
import os
import resource
import signal
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import graphmatern as gm

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from fuzzing import make_case, run_case

CASES = 10_000
SECONDS = 20  # that a case may take
MEMORY = 2 << 30  # bytes that a case may take beyond what the libraries have
WARM = 200  # cases of a process after which the libraries are loaded


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


def run_block(numbers: list[int]) -> tuple[dict[str, collections.Counter[int]], list[str], float]:
    """Run some cases; return exit codes by kind, faults, and the MiB by which memory has grown."""
    model = model_file()
    signal.signal(signal.SIGALRM, ring)
    counts: dict[str, collections.Counter[int]] = collections.defaultdict(collections.Counter)
    faults = []
    before = 0
    for place, number in enumerate(numbers):
        if place == WARM:  # by now the libraries are loaded
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            resource.setrlimit(resource.RLIMIT_AS, (virtual_memory() + MEMORY,) * 2)
        case = make_case(number, model)
        with tempfile.TemporaryDirectory() as folder:
            signal.alarm(SECONDS if place >= WARM else 0)
            try:
                outcome = run_case(case, Path(folder))
            except TooSlow:
                faults.append(f"{number}: more than {SECONDS} s")
                continue
            finally:
                signal.alarm(0)
        counts[case.kind][outcome.exit_code] += 1
        if outcome.fault:
            faults.append(f"{number}: {outcome.fault}")
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    return dict(counts), faults, grown


def show(numbers: list[int]) -> None:
    """Print what becomes of some cases."""
    model = model_file()
    for number in numbers:
        case = make_case(number, model)
        with tempfile.TemporaryDirectory() as folder:
            print(number, case.kind, case.arguments, run_case(case, Path(folder)), sep="\n  ")


def main() -> None:
    """Run the cases; write the table."""
    if len(sys.argv) > 1:
        show([int(argument) for argument in sys.argv[1:]])
        return
    jobs = int(os.environ.get("JOBS", "2"))
    counts: dict[str, collections.Counter[int]] = collections.defaultdict(collections.Counter)
    faults: list[str] = []
    grown = 0.0
    with ProcessPoolExecutor(jobs) as pool:
        for some, wrong, more in pool.map(run_block, [list(range(k, CASES, jobs)) for k in range(jobs)]):
            for kind, found in some.items():
                counts[kind] += found
            faults += wrong
            grown = max(grown, more)
    lines = [
        "# Wrong files on the command line",
        "",
        f"`info`, `fit` and `predict` on {CASES:,} wrong files, made from the numbers 0 to {CASES - 1:,} by",
        f"`tests/fuzzing.py`; at most {SECONDS} s and {MEMORY >> 30} GiB of address space each. Right is: exit code 0",
        "and whole files, or code 1 or 3, a message of one block that begins with `graphmatern:`, no traceback, and no",
        f"file. Peak memory grew by {grown:.0f} MiB after the first {WARM} cases of a process. Made by `make evidence`",
        f"on {dt.date.today().isoformat()}.",
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
