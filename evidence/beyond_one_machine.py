"""Graphs over several processes: the same answers, growth, the largest that fit, runs that are killed.

Run through ``make evidence`` after ``make mpi``, which writes beyond_one_machine.md beside this file; single parts by
name, such as ``python evidence/beyond_one_machine.py growth``. The file is written after every row, and parts that are
not run keep what they said. Where there is no MPI, nothing is done. Before the large ones, a trial of minutes::

    python evidence/beyond_one_machine.py growth --sizes 50000 --out /tmp/trial.md
    python evidence/beyond_one_machine.py largest --power-law 100000 --road-like 200000 --out /tmp/trial.md
"""

from __future__ import annotations

import argparse
import contextlib
import datetime as dt
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp

import graphmatern as gm
from graphmatern.errors import NumericalError
from graphmatern.inference import ENGINES, Observations, Problem
from graphmatern.inference.moments.engine import MomentsEngine
from graphmatern.inference.sites.gaussian import GaussianObjective
from graphmatern.likelihoods import Gaussian
from graphmatern.sparse import ChebyshevProducts

SETTINGS = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_mpi_yield_when_idle": "1",
    "OMP_NUM_THREADS": "1",
}
KINDS = {"power-law": True, "road-like": False}  # and which Laplacian suits them
WIDTH, DEGREE = 16, 6  # of the block and of the polynomial whose time is taken


# ---------------------------------------------------------------------- graphs in files
def edges_of(kind: str, n_nodes: int, seed: int = 0) -> pd.DataFrame:
    """Edges of a graph, about as many nodes as wanted."""
    rng = np.random.default_rng(seed)
    if kind == "power-law":
        expected = (np.arange(n_nodes) + 10.0) ** (-1.0 / 1.3)
        cumulated = np.cumsum(expected / expected.sum())
        drawn = np.minimum(np.searchsorted(cumulated, rng.random((2, 3 * n_nodes))), n_nodes - 1)
        # A ring through all nodes keeps the graph whole.
        ring = np.stack([np.arange(n_nodes), np.roll(np.arange(n_nodes), -1)])
        ends = np.sort(np.hstack([ring, drawn[:, drawn[0] != drawn[1]]]), axis=0)
        pairs = np.unique(ends[0] * np.int64(n_nodes) + ends[1])
        return pd.DataFrame({"source": pairs // n_nodes, "target": pairs % n_nodes})
    side = int(np.sqrt(n_nodes))
    place = np.arange(side * side).reshape(side, side)
    across, down = (
        np.stack([a.ravel(), b.ravel()]) for a, b in ((place[:, :-1], place[:, 1:]), (place[:-1], place[1:]))
    )
    kept = [across[:, rng.random(across.shape[1]) < 0.75], down[:, rng.random(down.shape[1]) < 0.75]]
    ends = np.hstack(kept)
    return pd.DataFrame({"source": ends[0], "target": ends[1], "length": 50.0 + rng.exponential(50.0, ends.shape[1])})


def write(folder: Path, kind: str, n_nodes: int, share: float = 0.1) -> dict[str, int]:
    """Edges in eight parts, and values of a smooth field with noise at some nodes."""
    edges = edges_of(kind, n_nodes)
    (folder / "edges").mkdir(parents=True, exist_ok=True)
    for number, part in enumerate(np.array_split(np.arange(len(edges)), 8)):
        edges.iloc[part].to_parquet(folder / "edges" / f"part-{number}.parquet", row_group_size=1_000_000)
    n = int(edges[["source", "target"]].to_numpy().max()) + 1
    weight = np.ones(len(edges)) if "length" not in edges else edges["length"].mean() / edges["length"]
    matrix = sp.coo_array((weight, (edges["source"], edges["target"])), shape=(n, n)).tocsr()
    matrix = sp.csr_array(matrix + matrix.T)
    degree = np.asarray(matrix.sum(axis=1)).ravel()
    known = np.flatnonzero(degree > 0)
    rng = np.random.default_rng(1)
    field = rng.standard_normal(n)
    for _ in range(8):  # a lazy walk smooths
        field = 0.5 * field + 0.5 * (matrix @ field) / np.maximum(degree, 1e-300)
    field /= field[known].std()
    seen = np.sort(rng.choice(known, int(share * len(known)), replace=False))
    values = 20.0 + 5.0 * (field[seen] + 0.3 * rng.standard_normal(len(seen)))
    pd.DataFrame({"node": seen, "value": values}).to_parquet(folder / "values.parquet")
    return {"nodes": len(known), "edges": len(edges), "values": len(seen)}


def kernel_of(kind: str) -> Any:
    """Where searches begin, and evaluations are compared: polynomials of a low degree, so that this takes minutes."""
    return gm.Diffusion(1.5 if kind == "power-law" else 1.0)


# ---------------------------------------------------------------------- what is measured, here or on all processes
def peak() -> float:
    """Peak memory of this process in GiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def timed(products: Any, n_here: int, keys: np.ndarray) -> dict[str, float]:
    """Seconds of a product with a block: wall and processor time, the least of three."""
    from graphmatern.sparse import signs_of

    block, coefficients = signs_of(keys, WIDTH, 0), np.ones(DEGREE + 1)
    del n_here
    found = []
    for _ in range(3):
        wall, cpu = time.perf_counter(), time.process_time()
        products.apply(coefficients, block)
        found.append(((time.perf_counter() - wall) / DEGREE, (time.process_time() - cpu) / DEGREE))
    return {"wall": min(one[0] for one in found), "cpu": min(one[1] for one in found)}


def evaluated(engine: Any, problem: Any) -> dict[str, Any]:
    """One evaluation, and its seconds."""
    objective = GaussianObjective(engine, problem)
    theta = np.concatenate([engine.start, objective.start])
    wall, cpu = time.perf_counter(), time.process_time()
    value, gradient = objective(theta)
    seconds = time.perf_counter() - wall, time.process_time() - cpu
    return {"value": value, "gradient": gradient.tolist(), "wall": seconds[0], "cpu": seconds[1]}


def solved(graph: Any) -> list[list[str]]:
    """Iterations and seconds of multigrid."""
    from graphmatern.distributed._multigrid import ShiftedSolver, preconditioners

    right, rows = graph.rows.signs(8, seed=0), []
    for name in preconditioners():
        solver = ShiftedSolver(graph, normalized=False, preconditioner=name)
        for lengthscale in (2.0, 10.0, 50.0):
            started = time.process_time()
            solver.shift_to(2.0 / lengthscale**2)
            try:
                solver.solve(right[:, :1])
            except NumericalError as error:
                rows.append([name, f"{lengthscale:g}", "", str(error).split(". ")[0], ""])
                continue
            first, solver.iterations = time.process_time() - started, 0
            started = time.process_time()
            solver.solve(right)
            each = (time.process_time() - started) / 8
            figures = f"{first - each:.2f}", f"{solver.iterations / 8:.0f}", f"{1e3 * each:.0f}"
            rows.append([name, f"{lengthscale:g}", *figures])
    return rows


def local(task: dict[str, Any]) -> dict[str, Any]:
    """What one process without MPI says."""
    folder = Path(task["folder"])
    edges = pd.concat([pd.read_parquet(part) for part in sorted((folder / "edges").iterdir())])
    started = time.perf_counter()
    graph = gm.Graph.from_edges(edges, length="length" if "length" in edges else None)
    found: dict[str, Any] = {"read": time.perf_counter() - started}
    values = pd.read_parquet(folder / "values.parquet")
    options: dict[str, Any] = {"normalized": KINDS[task["kind"]], "engine": "moments", "integrate": False}
    model = gm.GraphGPRegressor(graph, kernel_of(task["kind"]), noise=0.1, **options, n_threads=task.get("threads"))
    if "products" in task["parts"]:
        matrix = graph.laplacian(KINDS[task["kind"]])
        products = ChebyshevProducts(matrix, 0.0, float(abs(matrix).sum(axis=1).max()), task.get("threads"))
        found["products"] = timed(products, graph.n_nodes, np.arange(graph.n_nodes))
    if "evaluate" in task["parts"]:
        fixed = gm.GraphGPRegressor(graph, kernel_of(task["kind"]), noise=0.1, **options, optimizer=None)
        fixed.fit(values["node"], values["value"])
        found["means"] = pd.Series(fixed.predict(), index=[int(node) for node in graph.nodes]).sort_index().tolist()
        if "variances" in task["parts"]:
            table = fixed.predict_table()
            found["std"] = pd.Series(table["std"].to_numpy(), index=table.index.astype(int)).sort_index().tolist()
        found |= {"value": -fixed.log_marginal_likelihood_, "gradient": fixed._fit.optimum.gradient.tolist()}
    if "one" in task["parts"]:
        y = values["value"].to_numpy()
        observations = Observations(
            pd.Index(graph.nodes).get_indexer(values["node"]),
            ((y - y.mean()) / y.std())[:, None],
            np.ones((graph.n_nodes, 1)),
        )
        which = {"normalized": KINDS[task["kind"]], "n_threads": task.get("threads")}
        problem = Problem(graph, kernel_of(task["kind"]), Gaussian(0.1), observations, **which)
        found["evaluation"] = evaluated(MomentsEngine(problem, observations.groups), problem)
    if "fit" in task["parts"]:
        wall, cpu = time.perf_counter(), time.process_time()
        model.fit(values["node"], values["value"])
        seconds = time.perf_counter() - wall, time.process_time() - cpu
        learned = {**model.kernel_.values(), "noise": model.noise_}
        found["fit"] = {"learned": learned, "wall": seconds[0], "cpu": seconds[1], "evaluations": model.n_evaluations_}
    return {**found, "memory": [peak()]}


def spread(task: dict[str, Any]) -> dict[str, Any]:
    """What several processes say."""
    from graphmatern.distributed import DistributedGraph, GraphGPRegressor, world
    from graphmatern.distributed._operator import spread_operator
    from graphmatern.distributed._values import read_values

    processes, folder = world(), Path(task["folder"])
    started = time.perf_counter()
    graph = DistributedGraph.from_files(folder / "edges")
    found: dict[str, Any] = {"read": time.perf_counter() - started, "sizes": processes.gathered(graph.rows.n_here)}
    found["after reading"] = processes.gathered(peak())
    options: dict[str, Any] = {"normalized": KINDS[task["kind"]], "engine": task.get("engine", "moments"), "noise": 0.1}
    kernel = kernel_of(task["kind"])
    if options["engine"] == "multigrid":
        kernel = gm.Matern(1, 4.0, fixed=("nu",))
    if "products" in task["parts"]:
        operator = spread_operator(graph, KINDS[task["kind"]])
        own = timed(operator.products, graph.rows.n_here, graph.rows.keys)
        every = processes.gathered(own)
        found["products"] = {"wall": max(one["wall"] for one in every), "cpu": sum(one["cpu"] for one in every)}
        ghosts = len(graph.halo.ghosts)
        found["ghosts"] = processes.gathered(ghosts)
    if "evaluate" in task["parts"]:
        model = GraphGPRegressor(graph, kernel, **options, optimizer=None).fit_files(folder / "values.parquet")
        table = model.predict_table(return_std="variances" in task["parts"])
        every = pd.concat(processes.gathered(table)).sort_index()
        found["means"] = every["mean"].tolist()
        if "std" in every:
            found["std"], found["std_error"] = every["std"].tolist(), every["std_error"].tolist()
        found |= {"value": -model.log_marginal_likelihood_, "gradient": model._fit.optimum.gradient.tolist()}
    if "one" in task["parts"]:
        model = GraphGPRegressor(graph, kernel, **options, optimizer=None)
        values = read_values(graph, folder / "values.parquet")
        problem, name, _, _ = model._problem(values)
        engine = ENGINES[{"moments": "spread moments"}.get(name, name)].candidates(problem, problem.observations.groups)
        every = processes.gathered(evaluated(engine[0](), problem))
        found["evaluation"] = {**every[0], "cpu": sum(one["cpu"] for one in every)}
    if "multigrid" in task["parts"]:
        found["multigrid"] = solved(graph)
    if "fit" in task["parts"]:
        model = GraphGPRegressor(graph, kernel, **options)
        wall, cpu = time.perf_counter(), time.process_time()
        model.fit_files(folder / "values.parquet", checkpoint=task.get("checkpoint"))
        seconds = time.perf_counter() - wall, processes.total(time.process_time() - cpu)
        learned = {**model.kernel_.values(), "noise": model.noise_}
        found["fit"] = {"learned": learned, "wall": seconds[0], "cpu": seconds[1], "evaluations": model.n_evaluations_}
    found["memory"] = processes.gathered(peak())
    return found


class Watched:
    """Peak memory of a command and of all that it starts, process by process, in GiB."""

    def __init__(self) -> None:
        self._peaks: dict[int, float] = {}

    def look(self, pid: int) -> None:
        """Look at a process and its descendants."""
        with contextlib.suppress(OSError, ValueError, KeyError):
            status = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
            if status["Name"].strip().startswith("python"):
                self._peaks[pid] = int(status["VmHWM"].split()[0]) / 2**20
            for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
                self.look(int(child))

    @property
    def peaks(self) -> list[float]:
        """Of each process."""
        return [self._peaks[pid] for pid in sorted(self._peaks)]


class StoppedError(RuntimeError):
    """A run that took too long, or that failed."""

    def __init__(self, why: str, seconds: float, memory: list[float]) -> None:
        super().__init__(why)
        self.seconds, self.memory = seconds, memory


def run(n_processes: int, task: dict[str, Any], timeout: float = 3600.0) -> dict[str, Any]:
    """Run a task: on one process without MPI where ``n_processes`` is 0; `StoppedError` where it takes too long."""
    with tempfile.TemporaryDirectory() as folder:
        asked, told, said = (Path(folder) / name for name in ("task.json", "found.json", "said.txt"))
        asked.write_text(json.dumps(task))
        start = [] if n_processes == 0 else ["mpiexec", "-n", str(n_processes)]
        worker = "local" if n_processes == 0 else "spread"
        command = [*start, sys.executable, "-W", "ignore", __file__, worker, "--task", str(asked), "--told", str(told)]
        started, watched = time.perf_counter(), Watched()
        with said.open("w") as stream:
            running = subprocess.Popen(command, env={**os.environ, **SETTINGS}, stderr=stream)  # noqa: S603
            while running.poll() is None and time.perf_counter() - started < timeout:
                watched.look(running.pid)
                time.sleep(0.2)
            late = running.poll() is None
            if late:
                running.terminate()  # mpiexec ends its processes
                running.wait()
        seconds = time.perf_counter() - started
        if late or running.returncode != 0:
            told_why = [line for line in said.read_text().splitlines() if "rror" in line] or ["it was killed"]
            raise StoppedError(f"stopped after {seconds:.0f} s" if late else told_why[-1][:200], seconds, watched.peaks)
        found: dict[str, Any] = json.loads(told.read_text())
        return found


class Report:
    """The file of figures: written after every row, part by part; parts that are not run keep what they said."""

    def __init__(self, path: Path) -> None:
        self._path = path
        known = path.read_text() if path.exists() else ""
        self._parts: dict[str, list[str]] = {}
        for part in known.split("\n## ")[1:]:
            title, _, text = part.partition("\n")
            self._parts[title.strip()] = ["", *text.strip("\n").splitlines()]

    def begin(self, title: str, lines: list[str]) -> None:
        """Begin a part anew."""
        load = os.getloadavg()[0]
        when = f"{dt.date.today()}, {os.cpu_count()} processors, load {load:.1f} from other work at the start."
        self._parts[title], self._open = [], title
        for line in ["", when, *lines]:
            self.add(line, quiet=True)

    def add(self, line: str, *, quiet: bool = False) -> None:
        """Add a line, and write the file."""
        self._parts[self._open].append(line)
        text = "".join(f"\n## {title}\n" + "\n".join(lines).rstrip() + "\n" for title, lines in self._parts.items())
        self._path.write_text(f"# Beyond one machine\n{text}")
        if not quiet:
            print(line, flush=True)


# ---------------------------------------------------------------------- the proofs
def same(report: Report, n_nodes: int, counts: list[int], kinds: list[str], share: float) -> None:
    """Same probes, same answers."""
    report.begin(
        f"Same answers, {n_nodes:,} nodes",
        [
            "Relative differences from the local engine: evidence; gradient, relative to its largest entry; means,",
            "relative to the largest; learned parameters, the largest of all; standard deviations, in their stated",
            "standard errors (root mean square, and the largest).",
            "",
            "| graph | processes | evidence | gradient | means | learned | std | seconds of a fit: wall, processor |",
            "|---|---|---|---|---|---|---|---|",
        ],
    )
    for kind in kinds:
        with tempfile.TemporaryDirectory() as name:
            values = write(Path(name), kind, n_nodes, share)["values"]
            task = {"folder": name, "kind": kind, "parts": ["evaluate", "variances", "fit"]}
            reference = run(0, task)
            fit = reference["fit"]
            report.add(f"| {kind}, {values:,} values | local | | | | | | {fit['wall']:.0f}, {fit['cpu']:.0f} |")
            for count in counts:
                try:
                    report.add(f"| {kind} | {count} | {_differences(reference, run(count, task))} |")
                except StoppedError as error:
                    report.add(f"| {kind} | {count} | {error} | | | | | |")


def _differences(reference: dict[str, Any], found: dict[str, Any]) -> str:
    gradient, means = (np.array(reference[name]) for name in ("gradient", "means"))
    cells = [
        f"{abs(found['value'] / reference['value'] - 1.0):.0e}",
        f"{np.abs(np.array(found['gradient']) - gradient).max() / np.abs(gradient).max():.0e}",
        f"{np.abs(np.array(found['means']) - means).max() / np.abs(means).max():.0e}",
    ]
    pairs = zip(found["fit"]["learned"].values(), reference["fit"]["learned"].values(), strict=True)
    cells.append(f"{max(abs(ours / theirs - 1.0) for ours, theirs in pairs):.1e}")
    away = (np.array(found["std"]) - reference["std"]) / np.maximum(found["std_error"], 1e-12)
    cells.append(f"{np.sqrt(np.mean(away**2)):.2g}, {np.abs(away).max():.2g}")
    fit = found["fit"]
    return " | ".join([*cells, f"{fit['wall']:.0f}, {fit['cpu']:.0f}"])


def growth(report: Report, sizes: list[int], kinds: list[str], evaluated_up_to: int, timeout: float) -> None:
    """Products on one and two processes, and by the local engine with two threads."""
    report.begin(
        "Growth",
        [
            f"A product of the Laplacian with {WIDTH} columns, in milliseconds, the least of {DEGREE} thrice: wall",
            "and processor time, the latter of all together. An evaluation of evidence and gradient (`Diffusion`, a",
            "tenth of the nodes observed), in seconds. Efficiency: wall time on one process over twice that on two.",
            "Memory: the peak of each process in GiB, reading included, of which the interpreter and its libraries are",
            "about 0.4. Ghosts: nodes of others that a process needs for a product, relative to its own.",
            "",
            "| graph | nodes | edges | | product | efficient | evaluation | efficient | memory | ghosts | reading, s |",
            "|---|---|---|---|---|---|---|---|---|---|---|",
        ],
    )
    for size in sizes:
        for kind in kinds:
            with tempfile.TemporaryDirectory() as name:
                counts = write(Path(name), kind, size)
                parts = ["products", *(["one"] if size <= evaluated_up_to else [])]
                single: dict[str, float] = {}
                for count in (1, 2, 0):
                    who = "local engine, 2 threads" if count == 0 else f"{count} process{'es' if count > 1 else ''}"
                    head = f"| {kind} | {counts['nodes']:,} | {counts['edges']:,} | {who} |"
                    try:
                        found = run(count, {"folder": name, "kind": kind, "parts": parts, "threads": 2}, timeout)
                    except StoppedError as error:
                        report.add(f"{head} {error} | | | | {_listed(error.memory)} | | |")
                        continue
                    report.add(f"{head} {_grown(found, single, count)}")


def _listed(memory: list[float]) -> str:
    return ", ".join(f"{one:.2f}" for one in memory)


def _grown(found: dict[str, Any], single: dict[str, float], count: int) -> str:
    """The cells of a row; ``single`` keeps the times on one process."""
    cells = []
    for what, factor in (("products", 1e3), ("evaluation", 1.0)):
        own = found.get(what)
        if own is None:
            cells += ["", ""]
            continue
        if count == 1:
            single[what] = own["wall"]
        efficient = f"{single[what] / (2.0 * own['wall']):.0%}" if count == 2 and what in single else ""
        cells += [f"{factor * own['wall']:.3g}, {factor * own['cpu']:.3g}", efficient]
    pairs = zip(found.get("ghosts", []), found.get("sizes", []), strict=True)
    ghosts = ", ".join(f"{ghost / max(size, 1):.0%}" for ghost, size in pairs)
    return " | ".join([*cells, _listed(found["memory"]), ghosts, f"{found['read']:.0f}"]) + " |"


def largest(report: Report, sizes: dict[str, list[int]], engine: dict[str, str], timeout: float) -> None:
    """The largest graphs, fitted on two processes."""
    report.begin(
        "Large graphs, fitted on two processes",
        [
            "A fiftieth of the nodes observed; memory is the peak of each process in GiB. Where a fit was stopped",
            f"after {timeout / 60:.0f} minutes, evaluations are those that its checkpoint has.",
            "",
            "| graph | engine | nodes | edges | values | reading, s | fit: wall, processor, s | evaluations | memory |",
            "|---|---|---|---|---|---|---|---|---|",
        ],
    )
    for kind, wanted in sizes.items():
        for size in wanted:
            with tempfile.TemporaryDirectory() as name:
                counts = write(Path(name), kind, size, share=0.02)
                head = f"| {kind} | {engine[kind]} | {counts['nodes']:,} | {counts['edges']:,} | {counts['values']:,} |"
                checkpoint = Path(name) / "checkpoint.json"
                task = {"folder": name, "kind": kind, "parts": ["fit"], "engine": engine[kind]}
                try:
                    found = run(2, {**task, "checkpoint": str(checkpoint)}, timeout)
                except StoppedError as error:
                    known = checkpoint.read_text().count('"evaluation"') if checkpoint.exists() else 0
                    report.add(f"{head} | {error} | {known} | {_listed(error.memory)} |")
                    continue
                fit = found["fit"]
                seconds = f"{found['read']:.0f} | {fit['wall']:.0f}, {fit['cpu']:.0f}"
                report.add(f"{head} {seconds} | {fit['evaluations']} | {_listed(found['memory'])} |")


def multigrid(report: Report, n_nodes: int) -> None:
    """Solutions with M by the preconditioners that PETSc was built with."""
    report.begin(
        f"Multigrid, {n_nodes:,} road-like nodes",
        [
            "Solutions with M = 2ν/κ² + Δ, ν = 1, to a residual of 1e-10 by conjugate gradients, on one process:",
            "iterations and processor time for each of eight columns. Preparing is what a new κ costs.",
            "",
            "| preconditioner | κ | preparing, s | iterations | milliseconds |",
            "|---|---|---|---|---|",
        ],
    )
    with tempfile.TemporaryDirectory() as name:
        write(Path(name), "road-like", n_nodes)
        found = run(1, {"folder": name, "kind": "road-like", "parts": ["multigrid"]})
    for row in found["multigrid"]:
        report.add("| " + " | ".join(row) + " |")


def killed(report: Report, n_nodes: int) -> None:
    """Kill −9 of one process in the middle of a fit."""
    report.begin("Killed", [])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder, "power-law", n_nodes)
        options = ["--laplacian", "normalized", "--nu", "1.5", "--no-std", "--quiet"]
        module = [sys.executable, "-W", "ignore", "-m", "graphmatern.distributed", "fit"]
        paths = [str(folder / "edges"), str(folder / "values.parquet")]
        environment = {**os.environ, **SETTINGS}
        first = ["mpiexec", "-n", "2", *module, *paths, "--out", str(folder / "whole"), *options]
        subprocess.run(first, env=environment, check=True)  # noqa: S603
        second = [*first[: -len(options) - 1], str(folder / "again"), *options]
        running = subprocess.Popen(second, env=environment, stderr=subprocess.PIPE, text=True)  # noqa: S603
        checkpoint = folder / "again.checkpoint.json"
        while not (checkpoint.exists() and checkpoint.read_text().count('"what"') >= 6):
            time.sleep(0.02)
        children = ["pgrep", "-P", str(running.pid)]
        victim = subprocess.run(children, capture_output=True, text=True, check=True)  # noqa: S603
        started = time.perf_counter()
        os.kill(int(victim.stdout.split()[-1]), signal.SIGKILL)
        _, said = running.communicate()
        seconds, known = time.perf_counter() - started, checkpoint.read_text().count('"evaluation"')
        message = next((line for line in said.splitlines() if "signal" in line), said[:200])
        for line in (
            f"One of two processes was killed (−9) after {known} evaluations of a fit of {n_nodes:,} nodes: the job",
            f"ended {seconds:.1f} s later with exit status {running.returncode} and the words “{message.strip()}”;",
            f"there was {'a' if (folder / 'again').exists() else 'no'} folder of results.",
            "",
        ):
            report.add(line)
        for count in (3,):
            third = ["mpiexec", "-n", str(count), *second[3:]]
            subprocess.run(third, env=environment, check=True)  # noqa: S603
            ours, theirs = (json.loads((folder / out / "model.json").read_text()) for out in ("again", "whole"))
            pairs = [(ours["parameters"][key], theirs["parameters"][key]) for key in theirs["parameters"]]
            away = max(abs(a / b - 1.0) for a, b in [*pairs, (ours["noise"], theirs["noise"])])
            report.add(
                f"Started again on {count} processes, it went on from the checkpoint and finished; learned parameters "
                f"differ by {away:.0e}, relative, from those of a run that was left alone on two."
            )


def main() -> None:
    """Run what was asked for."""
    parts = ("same", "growth", "largest", "multigrid", "killed")
    parser = argparse.ArgumentParser()
    parser.add_argument("part", nargs="?", default="all", choices=("all", *parts, "local", "spread"))
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".md"))
    parser.add_argument("--nodes", type=int, default=50_000, help="of same answers; a tenth of it, of killed runs")
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--share", type=float, default=0.1, help="of the nodes that have a value")
    parser.add_argument("--kinds", nargs="+", default=list(KINDS))
    parser.add_argument("--sizes", type=int, nargs="+", default=[1_000_000, 4_000_000, 10_000_000])
    parser.add_argument("--evaluated", type=int, default=1_000_000, help="largest size with an evaluation")
    parser.add_argument("--power-law", type=int, nargs="*", default=[10_000_000])
    parser.add_argument("--road-like", type=int, nargs="*", default=[16_000_000])
    parser.add_argument("--road-engine", choices=("moments", "multigrid"), default="moments")
    parser.add_argument("--timeout", type=float, default=600.0, help="seconds of a single run of growth and largest")
    parser.add_argument("--task", type=Path)
    parser.add_argument("--told", type=Path)
    options = parser.parse_args()
    if options.part == "local":
        options.told.write_text(json.dumps(local(json.loads(options.task.read_text()))))
        return
    if options.part == "spread":
        from graphmatern.distributed import ending_together, world

        processes = world()
        with ending_together(processes):
            found = spread(json.loads(options.task.read_text()))
            if processes.is_first:
                options.told.write_text(json.dumps(found))
        return
    if shutil.which("mpiexec") is None:
        print("there is no mpiexec: run make mpi")
        return
    report = Report(options.out)
    sizes = {"power-law": options.power_law, "road-like": options.road_like}
    engine = {"power-law": "moments", "road-like": options.road_engine}
    proofs = {
        "same": lambda: same(report, options.nodes, options.processes, options.kinds, options.share),
        "growth": lambda: growth(report, options.sizes, options.kinds, options.evaluated, options.timeout),
        "largest": lambda: largest(report, sizes, engine, options.timeout),
        "multigrid": lambda: multigrid(report, 200_000),
        "killed": lambda: killed(report, options.nodes // 10),
    }
    for name in parts if options.part == "all" else [options.part]:
        proofs[name]()


if __name__ == "__main__":
    main()
