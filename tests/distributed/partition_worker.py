"""How two processes share graphs; run under ``mpiexec``, the first process prints."""

import json
from typing import Any

import networkx as nx
import numpy as np
from scipy.sparse import csr_array

from graphmatern.distributed import _partition, world


def shared(graph: Any, seed: int) -> tuple[float, bool]:
    """Share of the edges between processes, and whether the order of nodes, a random one, is kept."""
    processes = world()
    order = np.random.default_rng(seed).permutation(len(graph))
    matrix = csr_array(nx.to_numpy_array(graph)[order][:, order])
    size = -(-len(graph) // processes.size)
    block = slice(size * processes.rank, min(size * (processes.rank + 1), len(graph)))
    homes = processes.joined(_partition.partition(processes, matrix[block]).astype(np.int8))
    edges = matrix.tocoo()
    cut = float(np.mean(homes[edges.coords[0]] != homes[edges.coords[1]]))
    return cut, bool((np.diff(homes) >= 0).all())


if __name__ == "__main__":
    grid = shared(nx.convert_node_labels_to_integers(nx.grid_2d_graph(30, 30)), 0)
    _partition._by_petsc = None  # type: ignore[assignment]  # nobody is to ask it
    hubs = shared(nx.star_graph(900), 1)
    if world().is_first:
        print(json.dumps({"grid": grid, "hubs": hubs}))
