"""What the tests of several processes run under ``mpiexec``: a folder in, what the first process found out."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import graphmatern as gm
from graphmatern.distributed import DistributedGraph, GraphGPRegressor, ending_together, world
from graphmatern.distributed._multigrid import ShiftedSolver
from graphmatern.inference import ENGINES
from graphmatern.inference.sites.gaussian import GaussianObjective


def evaluated(graph: DistributedGraph, case: dict[str, Any]) -> dict[str, Any]:
    """Evidence, gradient, and predictions at given parameters."""
    kernel = getattr(gm, case["kernel"])(**case["parameters"])
    model = GraphGPRegressor(
        graph, kernel, normalized=case["normalized"], engine=case["engine"], noise=0.1, optimizer=None
    )
    model.fit_files(Path(case["folder"]) / "values.csv")
    table = model.predict_table(return_std=case["std"])
    problem, name = model.problem(graph.names[model._values.places], model._values.y)
    engine = ENGINES[name].candidates(problem, problem.observations.groups)[0]()
    objective = GaussianObjective(engine, problem)
    value, gradient = objective(np.concatenate([engine.start, objective.start]))
    every = pd.concat(graph.processes.gathered(table))
    return {
        "value": value,
        "gradient": gradient.tolist(),
        "nodes": [str(node) for node in every.index],
        "columns": every.to_dict("list"),
        "sizes": graph.processes.gathered(graph.rows.n_here),
        "evidence": model.log_marginal_likelihood_,
    }


def residual(graph: DistributedGraph) -> float:
    """Of a solution by multigrid, relative."""
    solver = ShiftedSolver(graph, normalized=False)
    solver.shift_to(0.5)
    right = graph.rows.signs(1, seed=0)
    solved = solver.solve(right)
    there = graph.of_neighbours(solved[:, 0])
    image = graph.degrees * solved[:, 0] - np.add.reduceat(graph.weights.data * there, graph.weights.indptr[:-1])
    away = image + 0.5 * solved[:, 0] - right[:, 0]
    return float(np.sqrt(graph.rows.total(float(away @ away)) / graph.n_nodes))


def main() -> None:
    processes = world()
    with ending_together(processes):
        cases = json.loads(Path(sys.argv[1]).read_text())
        graphs: dict[str, DistributedGraph] = {}
        found = []
        for case in cases:
            if case["folder"] not in graphs:
                graphs[case["folder"]] = DistributedGraph.from_files(Path(case["folder"]) / "edges")
            found.append({**evaluated(graphs[case["folder"]], case), "residual": residual(graphs[case["folder"]])})
        if processes.is_first:
            Path(sys.argv[2]).write_text(json.dumps(found))


if __name__ == "__main__":
    main()
