"""Which engine is fastest where: one fit through each, over nodes, mean degree and observations.

Run through ``make evidence``, which writes engine_grid.csv beside this file; ``docs/pictures/engines.py`` draws it.
Seconds are those of one processor, in which other work on the machine does not count. Fits that are predicted to take
longer than 15 s are not made; their prediction is written down instead.
"""

from __future__ import annotations

import csv
import time
from pathlib import Path

import networkx as nx
import numpy as np

import graphmatern as gm
from graphmatern.errors import GraphMaternError
from graphmatern.inference import Observations, Problem, predict_costs
from graphmatern.likelihoods import Gaussian

NODES, NEIGHBOURS, OBSERVED = (1_000, 3_000, 10_000), (0, 6, 20), (50, 300)
ENGINES = ("spectral", "markov", "moments")
KERNEL = gm.Matern(1.0, fixed=("nu",))  # which all three can serve
LONGEST = 15.0  # predicted seconds


def make(n: int, neighbours: int) -> gm.Graph:
    """Roads, or a graph that grows by preferential attachment."""
    if not neighbours:
        return gm.make_roads(n, seed=0)
    return gm.Graph.from_networkx(nx.barabasi_albert_graph(n, neighbours // 2, seed=0))


def measured(n: int, neighbours: int, observed: int, engine: str) -> tuple[gm.Graph, float, bool]:
    """Seconds of one fit and of predictions at all nodes, and whether these were measured rather than predicted."""
    graph = make(n, neighbours)
    rng = np.random.default_rng(1)
    nodes = np.sort(rng.choice(graph.n_nodes, observed, replace=False))
    y = rng.standard_normal(observed) + np.cos(nodes / 100.0)
    seen = Observations(nodes, y[:, None], np.zeros((graph.n_nodes, 0)))
    every = graph.n_nodes if engine == "spectral" else None
    problem = Problem(graph, KERNEL, Gaussian(), seen, normalized=bool(neighbours), n_eigenpairs=every, n_threads=1)
    (cost,) = (one for one in predict_costs(problem) if one.engine == engine)
    if cost.at_least or not cost.fits(LONGEST):
        return graph, max(cost.seconds, LONGEST), False
    options = {"normalized": bool(neighbours), "n_eigenpairs": every, "integrate": False, "n_threads": 1}
    model = gm.GraphGPRegressor(graph, KERNEL, engine=engine, **options)
    start = time.process_time()
    try:
        model.fit(graph.nodes[nodes], y).predict(return_std=True)
    except GraphMaternError:
        return graph, np.inf, False
    return graph, time.process_time() - start, True


if __name__ == "__main__":
    for engine in ENGINES:  # compiles what is compiled
        measured(300, 0, 50, engine)
    with Path(__file__).with_suffix(".csv").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["graph", "nodes", "mean_degree", "observed", "engine", "seconds", "measured"])
        for n in NODES:
            for neighbours in NEIGHBOURS:
                for observed in OBSERVED:
                    for engine in ENGINES:
                        graph, seconds, done = measured(n, neighbours, observed, engine)
                        degree = 2.0 * graph.n_edges / graph.n_nodes
                        kind = "hubs" if neighbours else "roads"
                        row = [kind, graph.n_nodes, f"{degree:.1f}", observed, engine, f"{seconds:.2f}", done]
                        table.writerow(row)
                        file.flush()
                        print(*row, flush=True)
