"""The smallest eigenpairs of a road-like graph: `Graph.spectrum` next to SciPy's ARPACK in shift-invert mode.

    python benchmarks/large_spectrum.py [--nodes 100000] [--pairs 200] [--repeats 3] [--out evidence/]

Both run interleaved, each time in a process of its own; the minimum over the repeats is reported. Memory is the peak
of the process beyond what it held before the call, as a multiple of the eigenvectors themselves.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import platform
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def measure(method: str, n_points: int, n_pairs: int) -> dict[str, Any]:
    """Compute once in this process; compiled code is warmed up on a small graph first."""
    from scipy.sparse.linalg import eigsh

    import graphmatern as gm

    gm.make_roads(4000, seed=1).spectrum(20)
    graph = gm.make_roads(n_points, seed=0)
    laplacian = graph.laplacian()
    before, start = peak(), time.perf_counter()
    if method == "graphmatern":
        spectrum = graph.spectrum(n_pairs)
        values, vectors = spectrum.eigenvalues, spectrum.eigenvectors
    else:
        # The same small shift keeps the singular Laplacian invertible.
        values, vectors = eigsh(laplacian, k=n_pairs, sigma=-1e-5, which="LM")
        order = np.argsort(values)
        values, vectors = values[order], vectors[:, order]
    seconds = time.perf_counter() - start
    memory = (peak() - before) / (8 * graph.n_nodes * n_pairs)
    residual = float(np.linalg.norm(laplacian @ vectors - vectors * values, axis=0).max())
    return {
        "nodes": graph.n_nodes,
        "seconds": seconds,
        "memory": memory,
        "residual": residual,
        "values": values.tolist(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=103_000, help="points drawn; about 97 % of them are nodes")
    parser.add_argument("--pairs", type=int, default=200)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path, default=ROOT / "evidence")
    parser.add_argument("--method", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.method:
        print(json.dumps(measure(options.method, options.nodes, options.pairs)))
        return
    runs: dict[str, list[dict[str, Any]]] = {"graphmatern": [], "eigsh": []}
    for _ in range(options.repeats):
        for method, found in runs.items():
            command = [sys.executable, __file__, "--method", method]
            command += ["--nodes", str(options.nodes), "--pairs", str(options.pairs)]
            output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            found.append(json.loads(output.splitlines()[-1]))
            print(method, f"{found[-1]['seconds']:.2f} s", flush=True)
    ours, theirs = (np.array(found[0]["values"]) for found in runs.values())
    best = {method: min(run["seconds"] for run in found) for method, found in runs.items()}
    lines = [
        "# Smallest eigenpairs of a road-like graph",
        "",
        f"{options.pairs} eigenpairs of {runs['eigsh'][0]['nodes']:,} nodes, minimum of {options.repeats} interleaved",
        f"runs, each in its own process, on {platform.machine()}, {dt.date.today().isoformat()}.",
        "",
        "| method | seconds | peak memory / eigenvectors | largest residual |",
        "|---|---|---|---|",
    ]
    for method, found in runs.items():
        memory, residual = (max(run[key] for run in found) for key in ("memory", "residual"))
        lines.append(f"| {method} | {best[method]:.2f} | {memory:.1f} | {residual:.1e} |")
    ratio, difference = best["eigsh"] / best["graphmatern"], np.abs(ours - theirs).max()
    lines += ["", f"Ratio of times {ratio:.1f}. Eigenvalues agree to {difference:.1e}: none is missing."]
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "large_spectrum.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
