"""The command that describes a graph, what each engine would cost on it, and gives advice."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from graphmatern._progress import duration
from graphmatern.cli._reading import load_graph
from graphmatern.sparse import available_memory, format_bytes

if TYPE_CHECKING:
    from pathlib import Path

    from graphmatern.cli._console import Console
    from graphmatern.cli._options import GraphOptions
    from graphmatern.graph import Graph
    from graphmatern.inference import EngineCost

__all__ = ["run_info"]

_OBSERVATIONS = 500  # values that a fit is predicted for, unless told how many
_PATIENCE = 600.0  # seconds of a fit, beyond which there should be a better way


def run_info(path: Path, options: GraphOptions, console: Console, observations: int | None = None) -> None:
    """Describe a graph.

    Parameters
    ----------
    path : Path
        Its file.
    options : GraphOptions
        How it is read.
    console : Console
        Where to say it.
    observations : int, optional
        How many values a fit would have; as many as there are nodes, up to 500, by default.
    """
    with console.listening(), console.steps(2) as begin:
        begin("reading the graph")
        graph = load_graph(path, options, console).graph
        begin("predicting costs")
        count = min(graph.n_nodes, _OBSERVATIONS) if observations is None else observations
        costs, choice = _predictions(graph, count)
    console.say("")
    console.say(graph.summary())
    console.say("")
    console.say(f"a fit to {count:,} values, roughly:")
    console.say(f"{'engine':<10}{'memory':<12}{'time':<22}method")
    for cost in costs:
        console.say(_words(cost))
    console.say("")
    advice = [choice, *_advice(graph, costs)]
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
        "observations": count,
        "costs": [_as_dict(cost) for cost in costs],
        "advice": advice,
    }
    console.finish()


def _words(cost: EngineCost) -> str:
    bound = "> " if cost.at_least else ""
    memory = "too much" if np.isinf(cost.memory) else f"{bound}{format_bytes(cost.memory)}"
    time = f"{bound}{duration(cost.seconds)}{': too long' if _is_too_long(cost) else ''}"
    return f"{cost.engine:<10}{memory:<12}{time:<22}{cost.method}"


def _is_too_long(cost: EngineCost) -> bool:
    return cost.seconds > _PATIENCE


def _as_dict(cost: EngineCost) -> dict[str, Any]:
    return {
        "engine": cost.engine,
        "method": cost.method,
        "bytes": cost.memory,
        "seconds": cost.seconds,
        "at_least": cost.at_least,
        "too_long": _is_too_long(cost),
    }


def _range(values: Any) -> dict[str, float]:
    return {"min": float(values.min()), "mean": float(values.mean()), "max": float(values.max())}


def _predictions(graph: Graph, count: int) -> tuple[list[EngineCost], str]:
    """What a fit would cost with each engine, and which it would use, by the same rules as a fit."""
    from graphmatern.inference import Observations, Problem, choose_engine, predict_costs
    from graphmatern.likelihoods import Gaussian

    nodes = np.arange(count, dtype=np.int64) * max(1, graph.n_nodes // count) % graph.n_nodes
    values = Observations(nodes, np.zeros((count, 1)), np.zeros((graph.n_nodes, 0)))
    problem = Problem(graph, None, Gaussian(), values, normalized=None)
    engine, reason, normalized = choose_engine(problem, "auto")
    costs = predict_costs(replace(problem, normalized=normalized))
    return costs, f"--engine auto would choose the {engine} engine ({reason})"


def _advice(graph: Graph, costs: list[EngineCost]) -> list[str]:
    found = []
    if all(_is_too_long(cost) for cost in costs):
        found.append("every engine would be slow: try fewer eigenpairs (--engine spectral --eigenpairs 50)")
    memory = available_memory()
    if any(cost.memory > memory for cost in costs):
        found.append(f"an engine above needs more than the {format_bytes(memory)} of memory that is free")
    parts = graph.n_components
    if parts > 1:
        found.append(f"the graph has {parts:,} parts that are not connected: those without a value keep the prior")
        found.append("--largest-component keeps only the largest part")
    weights = graph.weights.data
    if len(weights) and weights.max() > 1e6 * weights.min():
        found.append(
            "weights span more than six orders of magnitude: very short edges make neighbours nearly equal; "
            "check the lengths"
        )
    if not graph.has_lengths and graph.areas is None and len(weights) and (weights == weights[0]).all():
        found.append("all edges have the same weight; if their lengths are known, use them (--length)")
    if graph.positions is None:
        found.append("no positions are known, so maps use a computed layout; give longitude and latitude with --nodes")
    return found
