"""The command that describes a graph, what each engine would cost on it, and what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from graphmatern.cli._reading import load_graph
from graphmatern.sparse import predict_cost
from graphmatern.sparse._resources import available_memory, format_bytes

if TYPE_CHECKING:
    from graphmatern.cli._console import Console
    from graphmatern.cli._options import GraphOptions
    from graphmatern.graph import Graph

__all__ = ["run_info"]

_MOST_ENTRIES = 50_000_000  # of a power of the Laplacian that is formed for a prediction


def run_info(options: GraphOptions, console: Console) -> None:
    """Describe a graph.

    Parameters
    ----------
    options : GraphOptions
        How it is read.
    console : Console
        Where to say it.
    """
    with console.listening(), console.steps(2) as begin:
        begin("reading the graph")
        graph = load_graph(options, console).graph
        begin("predicting costs")
        costs = [_spectral_cost(graph), *(_markov_cost(graph, nu) for nu in (1, 2))]
    console.say("")
    console.say(graph.summary())
    console.say("")
    console.say("engine                          memory     seconds (roughly)")
    for cost in costs:
        memory = "?" if cost["bytes"] is None else format_bytes(cost["bytes"])
        seconds = "?" if cost["seconds"] is None else f"{_rounded(cost['seconds'])} {cost['per']}"
        console.say(f"{cost['engine']:<30}  {memory:<9}  {seconds}")
    console.say("")
    advice = _advice(graph, costs)
    for line in advice:
        console.say(f"- {line}")
    sizes = np.sort(np.bincount(graph.components))[::-1]
    weights = graph.weights.data
    console.result |= {
        "nodes": graph.n_nodes,
        "edges": graph.n_edges,
        "components": len(sizes),
        "largest_component": int(sizes[0]),
        "isolated_nodes": int((np.diff(graph.weights.indptr) == 0).sum()),
        "degrees": _range(graph.degrees),
        "neighbours": _range(np.diff(graph.weights.indptr)),
        "weights": _range(weights) if len(weights) else None,
        "lengths": _range(np.asarray(graph._rows.length)) if graph.has_lengths and graph.n_edges else None,
        "positions": graph.positions is not None,
        "costs": costs,
        "advice": advice,
    }
    console.finish()


def _rounded(seconds: float) -> str:
    return "below 0.1" if seconds < 0.1 else f"{seconds:.1f}" if seconds < 10 else f"{seconds:,.0f}"


def _range(values: Any) -> dict[str, float]:
    return {"min": float(values.min()), "mean": float(values.mean()), "max": float(values.max())}


def _spectral_cost(graph: Graph) -> dict[str, Any]:
    """Memory of the eigenvectors; seconds of a dense decomposition, where it is one."""
    from graphmatern.inference._fit_spectral import eigenpairs_used

    n, some = graph.n_nodes, eigenpairs_used(graph, None)
    if some is None:
        return {
            "engine": f"spectral, all {n:,} eigenpairs",
            "bytes": 32 * n**2,
            "seconds": 10.0 * n**3 / 2e10,
            "per": "once",
        }
    return {"engine": f"spectral, {some} eigenpairs", "bytes": 24 * n * some, "seconds": None, "per": "once"}


def _markov_cost(graph: Graph, nu: int) -> dict[str, Any]:
    """Cost of factorising the precision of smoothness ν, from its pattern."""
    found: dict[str, Any] = {"engine": f"markov, smoothness {nu}", "bytes": None, "seconds": None, "per": "per step"}
    pattern = sp.csr_array(graph.weights + sp.eye_array(graph.n_nodes, format="csr"))
    neighbours = np.diff(pattern.indptr).astype(np.float64)
    if nu == 2:
        if (neighbours[pattern.indices]).sum() > _MOST_ENTRIES:
            return found
        pattern = sp.csr_array(pattern @ pattern)
    pattern.data[:] = 1.0
    cost = predict_cost(sp.csc_array(pattern))
    return found | {"bytes": int(cost.memory_bytes), "seconds": float(cost.seconds)}


def _advice(graph: Graph, costs: list[dict[str, Any]]) -> list[str]:
    from graphmatern.inference._engines import choose_engine
    from graphmatern.inference._fitting import FitOptions, FitProblem

    no_data = np.zeros((graph.n_nodes, 0))
    problem = FitProblem(graph, None, [], no_data, None, None, FitOptions(normalized=False))
    engine, reason = choose_engine(problem, "auto")
    found = [f"--engine auto would take the {engine} engine ({reason})"]
    memory = available_memory()
    if any(cost["bytes"] is not None and cost["bytes"] > memory for cost in costs):
        found.append(f"an engine above needs more than the {format_bytes(memory)} of memory that are free here")
    parts = graph.n_components
    if parts > 1:
        found.append(f"{parts:,} parts are not connected: where no value is, predictions are those of the prior")
        found.append("keep the largest part alone with --largest-component")
    weights = graph.weights.data
    if len(weights) and weights.max() > 1e6 * weights.min():
        found.append("weights span more than six decades: short edges make neighbours all but equal; check the lengths")
    if not graph.has_lengths and len(weights) and (weights == weights[0]).all():
        found.append("all edges have the same weight; lengths (--length) say more where they are known")
    if graph.positions is None:
        found.append("no positions are known: maps are drawn by springs; --nodes gives longitude and latitude")
    return found
