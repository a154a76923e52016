"""A complete exact fit on a million road-like nodes: from the weight matrix to the last standard deviation.

    python benchmarks/million_nodes.py [--nu 1] [--points 1050000] [--out evidence/]

A field is drawn from a Matérn process (κ = 6, variance 1) with unit weights, a tenth of the nodes is observed with
noise of variance 0.09, and κ, variance and noise are learned again. Compiled code is warmed up on a small graph first.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import resource
import time
from pathlib import Path
from typing import Any

import numpy as np

import graphmatern as gm
from graphmatern.inference import MarkovPrecision
from graphmatern.sparse import Factor

ROOT = Path(__file__).resolve().parent.parent


def unit_roads(n_points: int) -> Any:
    weights = gm.make_roads(n_points, seed=0).weights
    weights.data = np.ones_like(weights.data)
    return weights


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nu", type=int, default=1)
    parser.add_argument("--points", type=int, default=1_050_000)
    parser.add_argument("--out", type=Path, default=ROOT / "evidence")
    options = parser.parse_args()
    small = gm.Graph.from_adjacency(unit_roads(3000))
    kernel = gm.Matern(options.nu, 3.0, fixed=("nu",))
    gm.GraphGPRegressor(small, kernel, engine="markov").fit(range(0, 2000, 3), np.sin(np.arange(0, 2000, 3)))

    matrix = unit_roads(options.points)
    graph = gm.Graph.from_adjacency(matrix)
    precision = MarkovPrecision(graph, options.nu)
    rng = np.random.default_rng(0)
    factor = precision.analysis.factorize_lower(precision.polynomial.lower(precision.coefficients(6.0, 1.0)))
    field = factor.solve_upper(rng.standard_normal(graph.n_nodes))
    field /= np.sqrt(factor.diagonal_of_inverse().mean())
    observed = np.sort(rng.choice(graph.n_nodes, graph.n_nodes // 10, replace=False))
    y = field[observed] + 0.3 * rng.standard_normal(len(observed))
    del factor, precision

    spent = {"factorisations": 0.0, "selected inverses": 0.0}

    def timed(name: str, function: Any) -> Any:
        def wrapper(*arguments: Any, **keywords: Any) -> Any:
            start = time.perf_counter()
            try:
                return function(*arguments, **keywords)
            finally:
                spent[name] += time.perf_counter() - start

        return wrapper

    Factor.update_lower = timed("factorisations", Factor.update_lower)  # type: ignore[method-assign]
    Factor.selected_inverse = timed("selected inverses", Factor.selected_inverse)  # type: ignore[method-assign]
    start = time.perf_counter()
    graph = gm.Graph.from_adjacency(matrix)
    model = gm.GraphGPRegressor(graph, kernel, engine="markov", verbose=False).fit(observed, y)
    fitted = time.perf_counter()
    mean, std = model.predict(return_std=True)
    end = time.perf_counter()
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    coverage = float(np.mean(np.abs(mean - field) < 1.96 * std))
    assert isinstance(model.kernel_, gm.Matern)
    found = {
        "date": dt.date.today().isoformat(),
        "nu": options.nu,
        "nodes": graph.n_nodes,
        "observations": len(observed),
        "seconds": end - start,
        "seconds for predictions": end - fitted,
        "evaluations": model.n_evaluations_,
        "share in factorisations and selected inverses": sum(spent.values()) / (end - start),
        "peak memory, GB (the generation of the data included)": memory / 1e9,
        "lengthscale (true 6)": model.kernel_.values()["lengthscale"],
        "noise (true 0.09)": model.noise_ * model.y_scale_**2,
        "variance (true 1)": model.kernel_.values()["variance"] * model.y_scale_**2,
        "coverage of 95 % intervals of the process": coverage,
    }
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / f"million_nodes_nu{options.nu}.json").write_text(json.dumps(found, indent=2) + "\n")
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
