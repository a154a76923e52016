"""Time and memory of `graphmatern.sparse` next to CHOLMOD, SuperLU and PARDISO.

    python benchmarks/sparse_kernels.py --section table|growth|shapes --out evidence/ [--quick] [--redo]

Every row is measured in a process of its own (minimum of several runs), in an environment that holds the
peers, made in ``.venv-bench`` the first time.  Results are kept in ``OUT/sparse_kernels.json`` after each
row, so that an interrupted run goes on where it was; ``OUT/sparse_kernels_SECTION.md`` shows them.
Graphs are generated, and kept in a temporary folder between rows.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import tempfile
import time
import venv
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
PEERS = ["cvxopt==1.3.3", "pypardiso==0.4.7"]
OURS = ["numpy", "scipy", "numba", "pymetis", "threadpoolctl"]
TIMEOUT = 240  # seconds for one row

# ---------------------------------------------------------------- graphs


def adjacency(i: np.ndarray, j: np.ndarray, n: int) -> Any:
    import scipy.sparse as sp

    one_way = sp.coo_array((np.ones(len(i)), (i, j)), shape=(n, n)).tocsr()
    both = sp.csr_array(one_way + one_way.T)
    both.data[:] = 1.0
    return both


def largest_component(graph: Any) -> Any:
    from scipy.sparse.csgraph import connected_components

    _, label = connected_components(graph, directed=False)
    kept = np.flatnonzero(label == np.bincount(label).argmax())
    return graph[kept][:, kept].tocsr()


def roads(n: int) -> Any:
    """Gabriel graph of random points with 30 % of the edges missing: planar, of mean degree about 2.8."""
    from scipy.spatial import Delaunay

    rng = np.random.default_rng(0)
    points = rng.random((n, 2))
    triangles = Delaunay(points).simplices
    edges, across = [], []
    for a, b, opposite in ((0, 1, 2), (1, 2, 0), (2, 0, 1)):
        p, q, r = (points[triangles[:, corner]] for corner in (a, b, opposite))
        obtuse = ((p - r) * (q - r)).sum(1) < 0
        low = np.minimum(triangles[:, a], triangles[:, b]).astype(np.int64)
        high = np.maximum(triangles[:, a], triangles[:, b])
        edges.append(low * n + high)
        across.append(edges[-1][obtuse])
    kept = np.setdiff1d(np.unique(np.concatenate(edges)), np.unique(np.concatenate(across)))
    kept = kept[rng.random(len(kept)) < 0.7]
    return largest_component(adjacency(kept // n, kept % n, n))


def grid(n: int) -> Any:
    side = round(n**0.5)
    label = np.arange(side * side).reshape(side, side)
    i = np.concatenate([label[:, :-1].ravel(), label[:-1].ravel()])
    j = np.concatenate([label[:, 1:].ravel(), label[1:].ravel()])
    return adjacency(i, j, side * side)


def knn(n: int) -> Any:
    from scipy.spatial import cKDTree

    points = np.random.default_rng(0).random((n, 5))
    near = cKDTree(points).query(points, 11)[1][:, 1:]
    return largest_component(adjacency(np.repeat(np.arange(n), 10), near.ravel(), n))


def scale_free(n: int) -> Any:
    rng = np.random.default_rng(0)
    targets, ends, pairs = [0, 1], [], []
    for v in range(2, n):
        pairs += [(v, t) for t in targets]
        ends += [*targets, v, v]
        chosen: set[int] = set()
        while len(chosen) < 2:
            chosen.add(ends[rng.integers(len(ends))])
        targets = list(chosen)
    i, j = np.array(pairs).T
    return adjacency(i, j, n)


def path(n: int) -> Any:
    return adjacency(np.arange(n - 1), np.arange(1, n), n)


def star(n: int) -> Any:
    return adjacency(np.zeros(n - 1, int), np.arange(1, n), n)


def comb(n: int) -> Any:
    half = np.arange(n // 2)
    return adjacency(np.concatenate([half[:-1], half]), np.concatenate([half[1:], half + n // 2]), n)


def tree(n: int) -> Any:
    return adjacency(np.arange(1, n), (np.arange(1, n) - 1) // 2, n)


def ladder(n: int) -> Any:
    half = np.arange(n // 2)
    i = np.concatenate([half[:-1], half[:-1] + n // 2, half])
    j = np.concatenate([half[1:], half[1:] + n // 2, half + n // 2])
    return adjacency(i, j, n)


GRAPHS = {f.__name__: f for f in (roads, grid, knn, scale_free, path, star, comb, tree, ladder)}


def precision(name: str, n: int, nu: int) -> Any:
    """Return (2ν/κ² I + Δ)^ν + diag(1/noise at 30 % of the nodes), κ = 5; kept on disk between rows."""
    import scipy.sparse as sp

    folder = Path(tempfile.gettempdir()) / "graphmatern-bench"
    folder.mkdir(exist_ok=True)
    file = folder / f"{name}-{n}-{nu}.npz"
    if file.exists():
        return sp.csc_array(sp.load_npz(file))
    graph = GRAPHS[name](n)
    n = graph.shape[0]
    degree = np.asarray(graph.sum(1)).ravel()
    base = sp.csc_array(sp.diags_array(degree + 2 * nu / 25.0) - graph)
    power = base
    for _ in range(nu - 1):
        power = sp.csc_array(power @ base)
    observed = np.random.default_rng(1).random(n) < 0.3
    power = sp.csc_array((power + power.T) * 0.5 + sp.diags_array(observed * 10.0))
    power.sort_indices()
    partial = file.with_suffix(f".{os.getpid()}.npz")
    sp.save_npz(partial, power, compressed=False)
    partial.rename(file)
    return power


# ---------------------------------------------------------------- solvers, each run in its own process


def best(repeats: int, function: Any) -> float:
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        function()
        times.append(time.perf_counter() - begin)
    return min(times)


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def measure_ours(matrix: Any, repeats: int, n_threads: int, ordering: str) -> dict[str, Any]:
    import scipy.sparse as sp

    from graphmatern.sparse import analyze

    # Load the compiled code, all paths of it, before anything is timed.
    warm = sp.csc_array(sp.diags_array([1.0, 4.0, 1.0], offsets=[-40, 0, 40], shape=(4000, 4000)))
    for matrix_to_warm in (warm, sp.csc_array(np.eye(600) * 600 + 1.0)):
        matrix_to_warm.sort_indices()
        factor = analyze(matrix_to_warm, n_threads=n_threads).factorize(matrix_to_warm.data)
        factor.selected_inverse().on_pattern()
        factor.solve(np.ones(matrix_to_warm.shape[0]))
        factor.solve(np.ones((matrix_to_warm.shape[0], 8)))
    values = np.ascontiguousarray(matrix.data)
    before = peak_bytes()
    begin = time.perf_counter()
    analysis = analyze(matrix, n_threads=n_threads, ordering=ordering)
    analysis_seconds = time.perf_counter() - begin
    factor = analysis.factorize(values)
    inverse = factor.selected_inverse()
    b = np.ones(analysis.n)
    return {
        "ordering": analysis.ordering,
        "nnz_factor": analysis.nnz_factor,
        "entries": analysis.n_entries,
        "working": analysis.working_entries,
        "flops": analysis.flops,
        "predicted": analysis.predicted_seconds,
        "predicted_bytes": analysis.memory_bytes,
        "analysis": analysis_seconds,
        "numeric": best(repeats, lambda: factor.update(values, check=False)),
        "numeric_checked": best(repeats, lambda: factor.update(values)),
        "solve": best(repeats, lambda: factor.solve(b)),
        "selected": best(repeats, lambda: factor.selected_inverse(out=inverse)),
        "memory": peak_bytes() - before,
        "residual": float(np.abs(matrix @ factor.solve(b) - b).max()),
    }


def measure_cholmod(matrix: Any, repeats: int, _n_threads: int, ordering: str) -> dict[str, Any]:
    import cvxopt
    import scipy.sparse as sp
    from cvxopt import cholmod

    order = None
    if ordering == "ours":
        from graphmatern.sparse import analyze

        order = cvxopt.matrix(analyze(matrix, n_threads=1).permutation.astype(np.int64))
    lower = sp.coo_array(sp.tril(matrix))
    before = peak_bytes()
    rows, columns = lower.row.astype(np.int64), lower.col.astype(np.int64)
    given = cvxopt.spmatrix(lower.data, rows, columns, matrix.shape)
    cholmod.options["supernodal"] = 2
    begin = time.perf_counter()
    factor = cholmod.symbolic(given) if order is None else cholmod.symbolic(given, order)
    analysis_seconds = time.perf_counter() - begin
    numeric = best(repeats, lambda: cholmod.numeric(given, factor))
    b = cvxopt.matrix(1.0, (matrix.shape[0], 1))
    solution = +b
    cholmod.solve(factor, solution)
    residual = float(np.abs(matrix @ np.array(solution).ravel() - 1.0).max())
    solve = best(repeats, lambda: cholmod.solve(factor, +b))
    return {
        "analysis": analysis_seconds,
        "numeric": numeric,
        "solve": solve,
        "memory": peak_bytes() - before,
        "residual": residual,
    }


def measure_superlu(matrix: Any, repeats: int, _n_threads: int, _ordering: str) -> dict[str, Any]:
    import scipy.sparse as sp
    from scipy.sparse.linalg import splu

    given = sp.csc_matrix(matrix)
    before = peak_bytes()
    kept: list[Any] = [None]

    def factorize() -> None:
        kept[0] = None
        options = {"SymmetricMode": True}
        kept[0] = splu(given, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options=options)

    numeric = best(1 if matrix.shape[0] > 100_000 else repeats, factorize)
    b = np.ones(matrix.shape[0])
    solve = best(repeats, lambda: kept[0].solve(b))
    residual = float(np.abs(matrix @ kept[0].solve(b) - b).max())
    # Analysis and numeric factorisation are one call.
    return {"numeric": numeric, "solve": solve, "memory": peak_bytes() - before, "residual": residual}


def measure_pardiso(matrix: Any, repeats: int, _n_threads: int, _ordering: str) -> dict[str, Any]:
    import scipy.sparse as sp
    from pypardiso import PyPardisoSolver

    upper = sp.csr_matrix(sp.triu(matrix, format="csr"))
    upper.sort_indices()
    before = peak_bytes()
    solver = PyPardisoSolver(mtype=2)
    b = np.ones((matrix.shape[0], 1))

    def phase(number: int, right: np.ndarray) -> Any:
        solver.set_phase(number)
        return solver._call_pardiso(upper, right)

    nothing = np.zeros((matrix.shape[0], 1))
    begin = time.perf_counter()
    phase(11, nothing)
    analysis_seconds = time.perf_counter() - begin
    numeric = best(repeats, lambda: phase(22, nothing))
    solve = best(repeats, lambda: phase(33, b))
    residual = float(np.abs(matrix @ np.asarray(phase(33, b)).ravel() - 1.0).max())
    return {
        "analysis": analysis_seconds,
        "numeric": numeric,
        "solve": solve,
        "memory": peak_bytes() - before,
        "residual": residual,
    }


MEASURES = {
    "ours": measure_ours,
    "cholmod": measure_cholmod,
    "superlu": measure_superlu,
    "pardiso": measure_pardiso,
}

# ---------------------------------------------------------------- rows

TABLE = [
    ("roads", 1_050_000, 1),
    ("roads", 1_050_000, 2),
    ("roads", 1_050_000, 3),
    ("grid", 1_000_000, 1),
    ("grid", 1_000_000, 2),
    ("knn", 20_000, 1),
    ("scale_free", 10_000, 1),
    ("scale_free", 10_000, 2),
]


def rows_of(section: str, quick: bool) -> list[dict[str, Any]]:
    shrink = 20 if quick else 1
    if section == "table":
        solvers = [
            ("ours", 1, "auto"), ("ours", 2, "auto"), ("cholmod", 1, "auto"), ("cholmod", 1, "ours"),
            ("pardiso", 1, "auto"), ("pardiso", 2, "auto"), ("superlu", 1, "auto"),
        ]  # fmt: skip
        return [
            {"graph": g, "n": n // shrink, "nu": nu, "solver": s, "threads": t, "ordering": o}
            for g, n, nu in TABLE
            for s, t, o in solvers
        ]
    if section == "growth":
        cases = [("roads", n, nu) for nu in (1, 2) for n in (10_500, 105_000, 1_050_000, 4_200_000)]
    else:
        cases = [(g, 1_000_000, 1) for g in ("path", "star", "comb", "tree", "ladder")]
        cases += [(g, 1_000_000, 2) for g in ("path", "tree", "ladder")]
    return [
        {"graph": g, "n": n // shrink, "nu": nu, "solver": "ours", "threads": 2, "ordering": "auto"}
        for g, n, nu in cases
    ]


def key_of(row: dict[str, Any]) -> str:
    return "{graph} {n} nu={nu} {solver} threads={threads} ordering={ordering}".format(**row)


def run_row(row: dict[str, Any], python: str, repeats: int) -> dict[str, Any]:
    """Measure one row in a process of its own."""
    threads = str(row["threads"])
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "src"),
        "MKL_NUM_THREADS": threads,
        "OMP_NUM_THREADS": threads,
    }
    command = [python, __file__, "--row", json.dumps(row), "--repeats", str(repeats)]
    try:
        # The memory that making the matrix takes is not to be counted: that is another process.
        subprocess.run([*command, "--prepare"], env=environment, check=True, timeout=TIMEOUT)
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=TIMEOUT)
    except subprocess.TimeoutExpired:
        return {"error": f"more than {TIMEOUT} s"}
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        return {"error": lines[-1][:200]}
    return dict(json.loads(done.stdout.splitlines()[-1]))


def environment_with_peers() -> str:
    """Return a Python that has the peers, installed next to the project the first time."""
    folder = ROOT / ".venv-bench"
    python = folder / "bin" / "python"
    if not (folder / ".ready").exists():
        venv.create(folder, with_pip=True)
        constraints = str(ROOT / "constraints.txt")
        subprocess.run([python, "-m", "pip", "install", "-q", "-c", constraints, *OURS, *PEERS], check=True)
        (folder / ".ready").touch()
    return str(python)


# ---------------------------------------------------------------- reports


def cell(value: float | None, form: str = "{:.3f}") -> str:
    return "–" if value is None else form.format(value)


def table_report(results: dict[str, Any], rows: list[dict[str, Any]]) -> list[str]:
    lines = [
        "Seconds (minimum of several); SuperLU has no separate analysis. Memory: growth of the peak, GB.",
        "",
        "| graph | ν | solver | threads | analysis | numeric | solve | selected inv. | memory | nnz(L), M |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        r = results.get(key_of(row), {})
        name = row["solver"] + (", our ordering" if row["ordering"] == "ours" else "")
        head = f"| {row['graph']} {row['n']:,} | {row['nu']} | {name} | {row['threads']} "
        if "error" in r:
            lines.append(head + f"| {r['error']} |" + " |" * 5)
            continue
        memory = cell(None if "memory" not in r else r["memory"] / 1e9, "{:.2f}")
        entries = cell(None if "nnz_factor" not in r else r["nnz_factor"] / 1e6, "{:.1f}")
        times = " | ".join(cell(r.get(k)) for k in ("analysis", "numeric", "solve", "selected"))
        lines.append(head + f"| {times} | {memory} | {entries} |")
    return lines


def plain_report(results: dict[str, Any], rows: list[dict[str, Any]]) -> list[str]:
    heads = [
        "graph", "ν", "nodes", "nnz(L), M", "analysis", "numeric", "solve", "selected inverse",
        "panels / nnz(L)", "working / panels", "peak, GB", "peak / factor",
    ]  # fmt: skip
    lines = [
        "Seconds, two threads. Panels: what L is stored in. Peak: growth of the peak memory, with analysis,",
        "factor, selected inverse and working memory; the factor has 8 bytes per entry of L.",
        "",
        "| " + " | ".join(heads) + " |",
        "|---" * len(heads) + "|",
    ]
    for row in rows:
        r = results.get(key_of(row))
        if r is None or "error" in r:
            lines.append(f"| {row['graph']} | {row['nu']} | {row['n']:,} | {(r or {}).get('error', '')} |" + " |" * 8)
            continue
        times = " | ".join(cell(r[k]) for k in ("analysis", "numeric", "solve", "selected"))
        lines.append(
            f"| {row['graph']} | {row['nu']} | {row['n']:,} | {r['nnz_factor'] / 1e6:.2f} | {times} "
            f"| {r['entries'] / r['nnz_factor']:.2f} | {r['working'] / max(1, r['entries']):.2f} "
            f"| {r['memory'] / 1e9:.2f} | {r['memory'] / (8 * r['nnz_factor']):.1f} |"
        )
    return lines


def fitted_exponents(results: dict[str, Any], rows: list[dict[str, Any]]) -> list[str]:
    lines = ["", "Fitted exponents (slope of log time, or memory, against log n):", ""]
    for nu in sorted({row["nu"] for row in rows}):
        known = [(row["n"], results[key_of(row)]) for row in rows if row["nu"] == nu and key_of(row) in results]
        known = [(n, r) for n, r in known if "error" not in r]
        if len(known) < 2:
            continue
        slopes = []
        for name in ("analysis", "numeric", "solve", "selected", "memory"):
            # The peak does not grow measurably for small graphs.
            points = [(n, r[name]) for n, r in known if r[name] > 0 and (name != "memory" or n > 50_000)]
            if len(points) > 1:
                slopes.append(f"{name} {np.polyfit(*np.log(points).T, 1)[0]:.2f}")
        lines.append(f"- ν = {nu}: " + ", ".join(slopes))
    return lines


def write_report(section: str, results: dict[str, Any], rows: list[dict[str, Any]], out: Path, quick: bool) -> Path:
    lines = [f"# Sparse kernels: {section}", ""]
    machine = f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}"
    lines.append(f"{time.strftime('%Y-%m-%d')}, {machine}.")
    command = f"python benchmarks/sparse_kernels.py --section {section}{' --quick' if quick else ''}"
    lines += [f"Command: `{command}`.", ""]
    if section == "table":
        lines += table_report(results, rows)
    else:
        lines += plain_report(results, rows)
        if section == "growth":
            lines += fitted_exponents(results, rows)
    file = out / f"sparse_kernels_{section}{'_quick' if quick else ''}.md"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--section", choices=["table", "growth", "shapes"], default="table")
    parser.add_argument("--out", type=Path, default=ROOT / "evidence")
    parser.add_argument("--quick", action="store_true", help="graphs a twentieth of the size")
    parser.add_argument("--redo", action="store_true", help="measure rows again that are already there")
    parser.add_argument("--only", default="", help="measure only rows whose name contains this text")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--python", help="a Python that has the peers; by default one is made in .venv-bench")
    parser.add_argument("--row", help=argparse.SUPPRESS)
    parser.add_argument("--prepare", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.row:
        row = json.loads(options.row)
        matrix = precision(row["graph"], row["n"], row["nu"])
        if options.prepare:
            return
        measure = MEASURES[row["solver"]]
        print(json.dumps(measure(matrix, options.repeats, row["threads"], row["ordering"])))
        return
    python = options.python or environment_with_peers()
    options.out.mkdir(parents=True, exist_ok=True)
    store = options.out / "sparse_kernels.json"
    results = json.loads(store.read_text(encoding="utf-8")) if store.exists() else {}
    rows = rows_of(options.section, options.quick)
    for row in rows:
        key = key_of(row)
        if options.only not in key or (key in results and not options.redo):
            continue
        print(key, "...", flush=True)
        results[key] = run_row(row, python, options.repeats)
        print("   ", results[key], flush=True)
        store.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    print("written:", write_report(options.section, results, rows, options.out, options.quick))


if __name__ == "__main__":
    main()
