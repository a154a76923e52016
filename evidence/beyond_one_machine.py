"""Graphs over several processes: the same answers, growth, the largest that fit, runs that are killed.

Run through ``make evidence`` after ``make mpi``, which writes beyond_one_machine.md beside this file; single parts by
name, such as ``python evidence/beyond_one_machine.py same --nodes 50000``. Where there is no MPI, nothing is done.
"""

from __future__ import annotations

import argparse
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
from graphmatern.inference import ENGINES
from graphmatern.inference.sites.gaussian import GaussianObjective
from graphmatern.sparse import ChebyshevProducts

SETTINGS = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_mpi_yield_when_idle": "1",
    "OMP_NUM_THREADS": "1",
}
KINDS = {"power-law": True, "road-like": False}  # and which Laplacian suits them
WIDTH, DEGREE = 16, 12  # of the block and of the polynomial whose time is taken


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
        found["evaluation"] = evaluated(engine[0](), problem)
    if "fit" in task["parts"]:
        model = GraphGPRegressor(graph, kernel, **options)
        wall, cpu = time.perf_counter(), time.process_time()
        model.fit_files(folder / "values.parquet")
        seconds = time.perf_counter() - wall, processes.total(time.process_time() - cpu)
        learned = {**model.kernel_.values(), "noise": model.noise_}
        found["fit"] = {"learned": learned, "wall": seconds[0], "cpu": seconds[1], "evaluations": model.n_evaluations_}
    found["memory"] = processes.gathered(peak())
    return found


def run(n_processes: int, task: dict[str, Any], timeout: float = 3600.0) -> dict[str, Any]:
    """Run a task: on one process without MPI where ``n_processes`` is 0."""
    with tempfile.TemporaryDirectory() as folder:
        asked, told = Path(folder) / "task.json", Path(folder) / "found.json"
        asked.write_text(json.dumps(task))
        start = [] if n_processes == 0 else ["mpiexec", "-n", str(n_processes)]
        worker = "local" if n_processes == 0 else "spread"
        command = [*start, sys.executable, "-W", "ignore", __file__, worker, "--task", str(asked), "--told", str(told)]
        ended = subprocess.run(  # noqa: S603
            command, env={**os.environ, **SETTINGS}, timeout=timeout, capture_output=True, text=True, check=False
        )
        if ended.returncode != 0:
            raise RuntimeError(ended.stderr[-3000:])
        found: dict[str, Any] = json.loads(told.read_text())
        return found


# ---------------------------------------------------------------------- the proofs
def same(n_nodes: int, counts: list[int], parts: list[str], share: float) -> list[str]:
    """Same probes, same answers."""
    lines = [
        f"## Same answers, {n_nodes:,} nodes",
        "",
        "Relative differences from the local engine: evidence; gradient, relative to its largest entry; means,",
        "relative to the largest; learned parameters, the largest of all; standard deviations, in their stated",
        "standard errors (root mean square).",
        "",
        "| graph | processes | evidence | gradient | means | learned | std | seconds of a fit: wall, processor |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for kind in KINDS:
        with tempfile.TemporaryDirectory() as name:
            values = write(Path(name), kind, n_nodes, share)["values"]
            task = {"folder": name, "kind": kind, "parts": parts}
            reference = run(0, task)
            fit = reference.get("fit", {"wall": 0.0, "cpu": 0.0})
            lines.append(f"| {kind}, {values:,} values | local | | | | | | {fit['wall']:.0f}, {fit['cpu']:.0f} |")
            for count in counts:
                found = run(count, task)
                lines.append(f"| {kind} | {count} | {_differences(reference, found)} |")
                print(lines[-1], flush=True)
    return lines


def _differences(reference: dict[str, Any], found: dict[str, Any]) -> str:
    gradient, means = (np.array(reference[name]) for name in ("gradient", "means"))
    cells = [
        f"{abs(found['value'] / reference['value'] - 1.0):.0e}",
        f"{np.abs(np.array(found['gradient']) - gradient).max() / np.abs(gradient).max():.0e}",
        f"{np.abs(np.array(found['means']) - means).max() / np.abs(means).max():.0e}",
    ]
    if "fit" in found:
        pairs = zip(found["fit"]["learned"].values(), reference["fit"]["learned"].values(), strict=True)
        cells.append(f"{max(abs(ours / theirs - 1.0) for ours, theirs in pairs):.0e}")
    else:
        cells.append("")
    if "std" in found and "std" in reference:
        away = (np.array(found["std"]) - reference["std"]) / np.maximum(found["std_error"], 1e-12)
        cells.append(f"{np.sqrt(np.mean(away**2)):.0e}")
    else:
        cells.append("")
    fit = found.get("fit", {"wall": 0.0, "cpu": 0.0})
    return " | ".join([*cells, f"{fit['wall']:.0f}, {fit['cpu']:.0f}"])


def growth(sizes: list[int], kinds: list[str]) -> list[str]:
    """Products on one and two processes, and by the local engine with two threads."""
    lines = [
        "## Growth",
        "",
        f"A product of the Laplacian with {WIDTH} columns, in milliseconds, the least of three times {DEGREE}: wall,",
        "and processor time of all processes together. Efficiency: wall time on one process over twice that on two.",
        "Memory: the peak of each process in GiB, the interpreter and its libraries (about 0.4) included. Ghosts:",
        "nodes of others that a process needs for a product, relative to its own.",
        "",
        "| graph | nodes | edges | | product: wall, processor | efficiency | memory | ghosts | reading, s |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for kind in kinds:
        for size in sizes:
            with tempfile.TemporaryDirectory() as name:
                counts = write(Path(name), kind, size)
                task = {"folder": name, "kind": kind, "parts": ["products"]}
                single = 0.0
                for count in (1, 2, 0):
                    found = run(count, {**task, "threads": 2})
                    wall, cpu = (1e3 * found["products"][which] for which in ("wall", "cpu"))
                    single = wall if count == 1 else single
                    efficiency = f"{single / (2.0 * wall):.0%}" if count == 2 else ""
                    who = "local engine, 2 threads" if count == 0 else f"{count} process{'es' if count > 1 else ''}"
                    ghosts = [
                        f"{ghost / max(size, 1):.0%}"
                        for ghost, size in zip(found.get("ghosts", []), found.get("sizes", []), strict=True)
                    ]
                    memory = ", ".join(f"{one:.2f}" for one in found["memory"])
                    lines.append(
                        f"| {kind} | {counts['nodes']:,} | {counts['edges']:,} | {who} | {wall:.0f}, {cpu:.0f} | "
                        f"{efficiency} | {memory} | {', '.join(ghosts)} | {found['read']:.0f} |"
                    )
                    print(lines[-1], flush=True)
    return lines


def largest(sizes: dict[str, int], engine: dict[str, str]) -> list[str]:
    """The largest graphs, fitted on two processes."""
    lines = [
        "## Large graphs, fitted on two processes",
        "",
        "| graph | engine | nodes | edges | values | reading | fit: wall, processor, s | evaluations | memory, GiB |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for kind, size in sizes.items():
        with tempfile.TemporaryDirectory() as name:
            counts = write(Path(name), kind, size, share=0.02)
            found = run(2, {"folder": name, "kind": kind, "parts": ["fit"], "engine": engine[kind]})
            fit, memory = found["fit"], ", ".join(f"{one:.2f}" for one in found["memory"])
            lines.append(
                f"| {kind} | {engine[kind]} | {counts['nodes']:,} | {counts['edges']:,} | {counts['values']:,} | "
                f"{found['read']:.0f} | {fit['wall']:.0f}, {fit['cpu']:.0f} | {fit['evaluations']} | {memory} |"
            )
            print(lines[-1], flush=True)
    return lines


def killed(n_nodes: int) -> list[str]:
    """Kill −9 of one process in the middle of a fit."""
    lines = ["## Killed", ""]
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
        lines += [
            f"One of two processes was killed (−9) after {known} evaluations of a fit of {n_nodes:,} nodes: the job",
            f"ended {seconds:.1f} s later with exit status {running.returncode} and the words “{message.strip()}”;",
            f"there was {'a' if (folder / 'again').exists() else 'no'} folder of results.",
            "",
        ]
        for count in (3,):
            third = ["mpiexec", "-n", str(count), *second[3:]]
            subprocess.run(third, env=environment, check=True)  # noqa: S603
            ours, theirs = (json.loads((folder / out / "model.json").read_text()) for out in ("again", "whole"))
            pairs = [(ours["parameters"][key], theirs["parameters"][key]) for key in theirs["parameters"]]
            away = max(abs(a / b - 1.0) for a, b in [*pairs, (ours["noise"], theirs["noise"])])
            lines.append(
                f"Started again on {count} processes, it went on from the checkpoint and finished; learned parameters "
                f"differ by {away:.0e}, relative, from those of a run that was left alone on two."
            )
    return [*lines, ""]


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser()
    parser.add_argument(
        "part", nargs="?", default="all", choices=("all", "same", "growth", "largest", "killed", "local", "spread")
    )
    parser.add_argument("--nodes", type=int, default=50_000)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1_000_000, 4_000_000, 10_000_000])
    parser.add_argument("--kinds", nargs="+", default=list(KINDS))
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--share", type=float, default=0.1, help="of the nodes that have a value")
    parser.add_argument("--parts", nargs="+", default=["evaluate", "variances", "fit"])
    parser.add_argument("--largest", type=int, nargs=2, default=[20_000_000, 40_000_000], help="power-law, road-like")
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
    sizes = dict(zip(KINDS, options.largest, strict=True))
    proofs = {
        "same": lambda: same(options.nodes, options.processes, options.parts, options.share),
        "growth": lambda: growth(options.sizes, options.kinds),
        "largest": lambda: largest(sizes, {"power-law": "moments", "road-like": "multigrid"}),
        "killed": lambda: killed(options.nodes // 10),
    }
    chosen = list(proofs) if options.part == "all" else [options.part]
    lines = ["# Beyond one machine", "", f"{dt.date.today()}, {os.cpu_count()} processors.", ""]
    for name in chosen:
        lines += [*proofs[name](), ""]
    text = "\n".join(lines).rstrip() + "\n"
    if options.part == "all":
        (Path(__file__).parent / "beyond_one_machine.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
