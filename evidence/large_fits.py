"""Large fits by stage, and what it takes to analyse grids and smoother processes; before and after, where asked.

Run by ``make evidence`` for the code as it is. ``--before FOLDER`` names another checkout, which is measured in turn
with this one, each time in a process of its own; ``--nodes`` may name several sizes.
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


def fit(size: int) -> dict[str, Any]:
    """Seconds of a fit and of all standard deviations, by stage; a tenth of the nodes is observed."""
    import importlib

    import graphmatern as gm
    from graphmatern.inference import MarkovPrecision

    weights = adjacency("roads", size)
    precision = MarkovPrecision(gm.Graph.from_adjacency(weights), 1)
    factor = precision.analysis.factorize_lower(precision.polynomial.lower(precision.coefficients(6.0, 1.0)))
    rng, n = np.random.default_rng(0), weights.shape[0]
    field = factor.solve_upper(rng.standard_normal(n))
    seen = np.sort(rng.choice(n, n // 10, replace=False))
    y = field[seen] / field.std() + 0.3 * rng.standard_normal(len(seen))
    del precision, factor
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
    """Load or make the compiled code."""
    import graphmatern as gm

    weights = gm.make_roads(140_000, seed=1).weights
    graph, nodes = gm.Graph.from_adjacency(weights), np.arange(0, 120_000, 10)
    options = {"engine": "markov", "integrate": False, "verbose": False}
    for nu in (1, 2):
        model = gm.GraphGPRegressor(graph, gm.Matern(nu, 3.0, fixed=("nu",)), **options)
        model.fit(nodes, np.sin(nodes / 50.0)).predict(return_std=True)


def measure(source: Path, job: str, what: str) -> dict[str, Any]:
    """Answer of a process that measures the code of some checkout."""
    command = [sys.executable, str(Path(__file__).resolve()), "--job", job, what]
    environment = {**os.environ, "PYTHONPATH": str(source.resolve() / "src")}
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)  # noqa: S603 - our own
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def fits_table(sources: dict[str, Path], size: int) -> list[str]:
    """Stages of a fit, a column for each checkout."""
    found = {label: measure(path, "fit", str(size)) for label, path in sources.items()}
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
    for name in SETUPS:
        for label, path in sources.items():
            one = measure(path, "setup", name)
            own = f"{one['wall']:.2f} | {one['cpu']:.2f} | {one['nnz']:.1f} | {one['flops']:.1f} | {one['numeric']:.2f}"
            lines.append(f"| {name} | {label} | {one['ordering']} | {own} |")
    return lines


def main() -> None:
    """Measure, or be measured."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--before", type=Path)
    parser.add_argument("--nodes", default="1000000")
    parser.add_argument("--job", nargs=2)
    options = parser.parse_args()
    if options.job:
        warm_up()
        job, what = options.job
        print(json.dumps(fit(int(what)) if job == "fit" else setup(what)))
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
    for size in options.nodes.split(","):
        lines += fits_table(sources, int(size))
        (FOLDER / "large_fits.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    lines += setups_table(sources)
    (FOLDER / "large_fits.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
