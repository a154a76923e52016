"""Graphs for property tests: disconnected, isolated nodes, weights over decades, one node, odd names."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from graphmatern import Graph


@st.composite
def graphs(draw: st.DrawFn, *, max_nodes: int = 14, weight_decades: float = 1.0, masses: bool = False) -> Graph:
    """Graphs of 1 to ``max_nodes`` nodes with random names, edges and weights 10^(±decades)."""
    n = draw(st.integers(1, max_nodes))
    kind = draw(st.sampled_from(["int", "str", "tuple", "mixed"]))
    choices: dict[str, list[Any]] = {
        "int": list(range(n)),
        "str": [f"node {i}" for i in range(n)],
        "tuple": [(i, -i) for i in range(n)],
        "mixed": [i if i % 2 else str(i) for i in range(n)],
    }
    names = choices[kind]
    pairs = [(i, j) for i in range(n) for j in range(i)]
    chosen = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=3 * n)) if pairs else []
    exponents = draw(
        st.lists(
            st.floats(-weight_decades, weight_decades, allow_nan=False),
            min_size=len(chosen),
            max_size=len(chosen),
        )
    )
    node_masses = None
    if masses and draw(st.booleans()):
        node_masses = 10.0 ** np.array(draw(st.lists(st.floats(-0.5, 0.5), min_size=n, max_size=n)))
    edges = [(names[i], names[j]) for i, j in chosen]
    return Graph.from_edges(edges, weight=10.0 ** np.array(exponents), nodes=names, masses=node_masses)
