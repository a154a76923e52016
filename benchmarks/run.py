"""The benchmark: graphmatern next to other libraries, on one machine, in one run.

    python benchmarks/run.py [--section traffic …] [--quick | --full] [--without-peers] [--redo] [--report]

Every library has an environment of its own (made from `benchmarks/requirements` the first time) and every run a process
of its own. Repeats are interleaved; what is known already is not measured again unless --redo is given, so that an
interrupted run goes on where it was. Results lie in OUT/results as JSON; OUT/RESULTS.md and OUT/plots are made from
them. Run it on a quiet machine.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from pathlib import Path

from harness.environments import Environments
from harness.machine import describe
from harness.processes import ROOT
from harness.report import write_readme, write_report
from harness.running import Runner, inputs_folder
from harness.sections import SECTIONS, check_sections, tasks_of
from harness.store import Store
from harness.task import OURS

QUICK = ROOT / "build" / "bench-quick"


def options_of(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--section", nargs="+", default=[], metavar="NAME", help=f"of {', '.join(SECTIONS)}")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="tiny sizes, to see that it works; for no comparison")
    size.add_argument("--full", action="store_true", help="all sizes and repeats, every peer up to its limit")
    parser.add_argument("--without-peers", action="store_true", help="graphmatern alone, no environments made")
    parser.add_argument("--redo", action="store_true", help="measure again what is known already")
    parser.add_argument("--report", action="store_true", help="measure nothing, make the report from what is known")
    parser.add_argument("--readme", action="store_true", help="put the summary into README.md as well")
    parser.add_argument("--prepare", action="store_true", help="only make the environments and the inputs")
    parser.add_argument("--out", type=Path, help="folder; by default benchmarks, with --quick build/bench-quick")
    parser.add_argument("--environments", type=Path, default=ROOT, help="where the environments lie or are made")
    parser.add_argument("--inputs", type=Path, default=inputs_folder(), help="where generated graphs are kept")
    parser.add_argument("--limit", type=float, default=300.0, help="seconds for one run")
    parser.add_argument("--patience", type=float, help="do not start runs predicted to take longer (100; --full: 300)")
    options = parser.parse_args(arguments)
    try:
        options.section = check_sections(options.section)
    except ValueError as error:
        parser.error(str(error))
    options.mode = "quick" if options.quick else "full" if options.full else "standard"
    options.out = (options.out or (QUICK if options.quick else ROOT / "benchmarks")).resolve()
    if options.patience is None:
        options.patience = options.limit if options.full else 100.0
    return options


def main(arguments: list[str] | None = None) -> int:
    options = options_of(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the worker of the moment is ended as well
    environments = Environments(options.environments.resolve())
    runner = Runner(environments, options.inputs.resolve(), options.limit, options.patience)
    failed: list[str] = []  # of our own; what other libraries cannot do is a result
    for section in [] if options.report else options.section:
        tasks = tasks_of(section, options.mode, not options.without_peers)
        start = time.perf_counter()
        print(f"{section}: {len(tasks)} tasks", flush=True)
        if options.prepare:
            runner.prepare(tasks)
            continue
        store = Store(options.out / "results", section)
        if options.redo:  # with peers, everything: a report is not to mix what was measured on different days
            store.forget({task.key for task in tasks} if options.without_peers else set(store.records))
        used = {task.environment for task in tasks} | {"ours"}
        store.machine = describe(environments, used, options.mode, options.limit)
        runner.section(tasks, store)
        store.machine["minutes"] = round((time.perf_counter() - start) / 60.0, 1)
        store.save()
        print(f"{section}: {store.machine['minutes']} minutes", flush=True)
        failed += [task.key for task in tasks if task.peer.startswith(OURS) and store.failed(task.key)]
    if not options.prepare:
        print("written:", write_report(options.out))
    if options.readme:
        print("written:", write_readme(options.out, ROOT / "README.md"))
    if failed:
        print("failed:", *failed, sep="\n  ", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
