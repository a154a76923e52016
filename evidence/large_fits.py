"""Large fits by stage, and what it takes to analyse grids and smoother processes; before and after, where asked.

Run by ``make evidence`` for the code as it is. ``--before FOLDER`` names another checkout, which is measured in turn
with this one, each time in a process of its own; ``--nodes`` may name sizes, or inputs that the benchmark wrote.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import subprocess
import sys
import threading
import time
from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import scipy.sparse as sp

FOLDER = Path(__file__).parent
STAGES = {  # of the fit: (module, owner, function)
    "check and copy the graph": ("graph._graph", "Graph", "from_adjacency"),
    "prediction of costs": ("inference.learning.learn", None, "predicted_cost"),
    "ordering and analysis": ("inference.markov.engine", "MarkovEngine", "__init__"),
    "fit of a part, beside it": ("inference.learning.learn", None, "rehearse"),
    "evaluations of the whole": ("inference.sites.gaussian", "GaussianObjective", "__call__"),
}
SETUPS = {  # (kind, nodes along a side or in all, ν)
    "grid 1000², ν = 1": ("grid", 1000, 1),
    "grid 700², ν = 2": ("grid", 700, 2),
    "roads 1,000,000, ν = 2": ("roads", 1_000_000, 2),
}


def adjacency(kind: str, size: int) -> sp.csr_array:
    """Unit weights."""
    import graphmatern as gm

    if kind == "grid":
        path = sp.diags_array([1.0, 1.0], offsets=[-1, 1], shape=(size, size))
        return sp.csr_array(sp.kron(path, sp.eye_array(size)) + sp.kron(sp.eye_array(size), path))
    weights = gm.make_roads(round(1.028 * size), seed=0).weights.copy()
    weights.data = np.ones_like(weights.data)
    return weights


def write_task(size: int, path: Path) -> None:
    """Weights, observed nodes and values: the benchmark's task, a Matérn field of which a tenth is seen with noise."""
    import graphmatern as gm
    from graphmatern.inference import MarkovPrecision

    weights = adjacency("roads", size)
    precision = MarkovPrecision(gm.Graph.from_adjacency(weights), 1)
    factor = precision.analysis.factorize_lower(precision.polynomial.lower(precision.coefficients(6.0, 1.0)))
    rng, n = np.random.default_rng(0), weights.shape[0]
    field = factor.solve_upper(rng.standard_normal(n))
    field /= np.sqrt(factor.diagonal_of_inverse().mean())
    seen = np.sort(rng.choice(n, n // 10, replace=False))
    y = field[seen] + 0.3 * rng.standard_normal(len(seen))
    parts = {"data": weights.data, "indices": weights.indices, "indptr": weights.indptr}
    np.savez(path, train=seen, y=(y - y.mean()) / y.std(), **parts)


def fit(task: str) -> dict[str, Any]:
    """Seconds of a fit and of all standard deviations, by stage."""
    import importlib

    import graphmatern as gm

    with np.load(task) as file:
        n = len(file["indptr"]) - 1
        weights = sp.csr_array((file["data"], file["indices"], file["indptr"]), shape=(n, n))
        seen, y = file["train"], file["y"]
    spent: dict[str, float] = defaultdict(float)
    local = threading.local()

    def timed(stage: str, function: Any) -> Any:
        @functools.wraps(function)
        def wrapper(*arguments: Any, **keywords: Any) -> Any:
            outermost, local.busy = not getattr(local, "busy", False), True
            start = time.perf_counter()
            try:
                return function(*arguments, **keywords)
            finally:
                if outermost:
                    local.busy = False
                    spent[stage] += time.perf_counter() - start

        return wrapper

    for stage, (module, name, function) in STAGES.items():
        owner = importlib.import_module(f"graphmatern.{module}")
        owner = owner if name is None else getattr(owner, name)
        found = vars(owner)[function]
        made = timed(stage, getattr(found, "__func__", found))
        setattr(owner, function, classmethod(made) if isinstance(found, classmethod) else made)

    def everything() -> Any:
        kernel, options = gm.Matern(1, 5.0, fixed=("nu",)), {"mean": "zero", "integrate": False, "verbose": False}
        model = gm.GraphGPRegressor(gm.Graph.from_adjacency(weights), kernel, engine="markov", **options)
        return model.fit(seen, y), model.predict(return_std=True)

    start, cpu = time.perf_counter(), time.process_time()
    model, _ = everything()
    wall, cpu = time.perf_counter() - start, time.process_time() - cpu
    return {"nodes": n, "stages": spent, "wall": wall, "cpu": cpu, "evaluations": model.n_evaluations_}


def setup(name: str) -> dict[str, Any]:
    """Seconds to form and analyse the precision, and of a factorisation with its selected inverse."""
    import graphmatern as gm
    from graphmatern.inference import MarkovPrecision

    kind, size, nu = SETUPS[name]
    graph = gm.Graph.from_adjacency(adjacency(kind, size))
    start, cpu = time.perf_counter(), time.process_time()
    precision = MarkovPrecision(graph, nu)
    wall, cpu = time.perf_counter() - start, time.process_time() - cpu
    analysis = precision.analysis
    lower = precision.polynomial.lower(precision.coefficients(5.0, 1.0))
    factor = analysis.factorize_lower(lower)
    inverse = factor.selected_inverse()
    numeric = time.process_time()
    factor.update_lower(lower)
    factor.selected_inverse(inverse)
    numeric = time.process_time() - numeric
    found = {"wall": wall, "cpu": cpu, "ordering": analysis.ordering, "numeric": numeric}
    return {**found, "nnz": analysis.nnz_factor / 1e6, "flops": analysis.flops / 1e9}


def warm_up() -> None:
    """Load or make the compiled code, that for large graphs included."""
    import graphmatern as gm

    graph = gm.Graph.from_adjacency(gm.make_roads(104_000, seed=1).weights)
    nodes = np.arange(0, graph.n_nodes, 10)
    kernel, options = gm.Matern(1, 3.0, fixed=("nu",)), {"engine": "markov", "integrate": False, "verbose": False}
    gm.GraphGPRegressor(graph, kernel, **options).fit(nodes, np.sin(nodes / 50.0)).predict(return_std=True)
    gm.inference.MarkovPrecision(graph, 2)


def measure(source: Path, job: str, what: str) -> dict[str, Any]:
    """Answer of a process that measures the code of some checkout."""
    command = [sys.executable, str(Path(__file__).resolve()), "--job", job, what]
    environment = {**os.environ, "PYTHONPATH": str(source.resolve() / "src")}
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)  # noqa: S603 - our own
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def fits_table(sources: dict[str, Path], task: str) -> list[str]:
    """Stages of a fit, a column for each checkout."""
    found = {label: measure(path, "fit", task) for label, path in sources.items()}
    first = next(iter(found.values()))
    lines = ["", f"## {first['nodes']:,} road nodes, ν = 1", ""]
    lines += [f"| seconds | {' | '.join(found)} |", "|---|" + "---|" * len(found)]
    for stage in STAGES:
        seconds = (f"{one['stages'].get(stage, 0.0):.2f}" for one in found.values())
        lines.append(f"| {stage} | {' | '.join(seconds)} |")
    for key, words in (("wall", "**all, standard deviations included**"), ("cpu", "processor time of all")):
        lines.append(f"| {words} | " + " | ".join(f"{one[key]:.2f}" for one in found.values()) + " |")
    lines.append("| evaluations | " + " | ".join(str(one["evaluations"]) for one in found.values()) + " |")
    return lines


def setups_table(sources: dict[str, Path]) -> list[str]:
    """Analyses, a row for each graph and checkout."""
    lines = ["", "## Forming and analysing precisions", ""]
    lines += ["| graph | code | ordering | analysis, s | processor, s | nnz(L), M | Gflop | numeric, processor s |"]
    lines += ["|---|---|---|---|---|---|---|---|"]
    found = {label: measure(path, "setup", "all") for label, path in sources.items()}
    for name in SETUPS:
        for label, every in found.items():
            one = every[name]
            own = f"{one['wall']:.2f} | {one['cpu']:.2f} | {one['nnz']:.1f} | {one['flops']:.1f} | {one['numeric']:.2f}"
            lines.append(f"| {name} | {label} | {one['ordering']} | {own} |")
    return lines


def main() -> None:
    """Measure, or be measured."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--before", type=Path)
    parser.add_argument("--nodes", default="1000000")
    parser.add_argument("--sections", default="fits,setups")
    parser.add_argument("--job", nargs=2)
    options = parser.parse_args()
    if options.job:
        warm_up()
        job, what = options.job
        print(json.dumps(fit(what) if job == "fit" else {name: setup(name) for name in SETUPS}))
        return
    sources = {} if options.before is None else {"before": options.before}
    sources["now"] = FOLDER.parent
    lines = [
        "# Large fits",
        "",
        f"Made by `python evidence/large_fits.py` on {datetime.now(UTC):%Y-%m-%d}, on two cores, other work running",
        "beside it: processor time, and columns beside each other, say more than seconds. A tenth of the nodes is",
        "observed; the graph is given as a CSR matrix, and all standard deviations are asked for. The fit of a part",
        "runs beside the analysis of the whole. Numeric: a factorisation of the posterior precision and its selected",
        "inverse.",
    ]
    for task in options.nodes.split(",") if "fits" in options.sections else ():
        if task.endswith(".npz"):
            lines += fits_table(sources, task)
        else:
            with TemporaryDirectory() as folder:  # one task for all: samples depend on orderings
                made = Path(folder) / "task.npz"
                write_task(int(task), made)
                lines += fits_table(sources, str(made))
        (FOLDER / "large_fits.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    if "setups" in options.sections:
        lines += setups_table(sources)
    (FOLDER / "large_fits.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
