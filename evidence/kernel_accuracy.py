"""Error of kernel matrices against 60-digit arithmetic, for extreme parameters and weights.

Run through ``make evidence``; writes kernel_accuracy.md beside this file.
"""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import mpmath
import numpy as np

import graphmatern as gm

mpmath.mp.dps = 60


def exact_kernel(graph: gm.Graph, nu: float, lengthscale: float) -> np.ndarray:
    """Matérn kernel by an eigendecomposition in 60 digits."""
    weights = graph.weights.toarray()
    n = len(weights)
    laplacian = mpmath.matrix(n, n)
    for i in range(n):
        for j in range(n):
            laplacian[i, j] = -mpmath.mpf(weights[i, j])
        laplacian[i, i] = sum(mpmath.mpf(w) for w in weights[i])
    eigenvalues, vectors = mpmath.eigsy(laplacian)
    shift = 2 * mpmath.mpf(nu) / mpmath.mpf(lengthscale) ** 2
    psi = [(shift + (value if k else 0)) ** -mpmath.mpf(nu) for k, value in enumerate(eigenvalues)]
    scale = n / sum(psi)
    result = np.empty((n, n))
    for i in range(n):
        for j in range(n):
            result[i, j] = float(scale * sum(vectors[i, k] * psi[k] * vectors[j, k] for k in range(n)))
    return result


def main() -> None:
    """Write the table."""
    rng = np.random.default_rng(0)
    base = gm.make_roads(60, seed=0)
    lines = [
        "# Accuracy of kernel matrices at extreme parameters",
        "",
        "Largest error of an entry of the Matérn kernel matrix (average variance 1) against 60 digits,",
        f"on a road-like graph of {base.n_nodes} nodes. Weights are scaled, or drawn log-uniformly over",
        f"12 decades. Made by `make evidence` on {dt.date.today().isoformat()}, seed 0.",
        "",
        "| weights | ν | κ = 0.001 | κ = 1 | κ = 1000 |",
        "|---|---|---|---|---|",
    ]
    for label in ("1e-6", "1", "1e6", "1e-6 to 1e6"):
        if "to" in label:
            weight = 10.0 ** rng.uniform(-6, 6, len(base.edges))
        else:
            weight = float(label) * base.edges["weight"].to_numpy()
        graph = gm.Graph.from_edges(base.edges, weight=weight)
        for nu in (0.1, 1.0, 10.0, 200.0):
            errors = []
            for lengthscale in (1e-3, 1.0, 1e3):
                found = gm.Matern(nu, lengthscale).on(graph).matrix().detach().numpy()
                errors.append(np.abs(found - exact_kernel(graph, nu, lengthscale)).max())
            lines.append(f"| {label} | {nu:g} | " + " | ".join(f"{error:.1e}" for error in errors) + " |")
    Path(__file__).with_suffix(".md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
