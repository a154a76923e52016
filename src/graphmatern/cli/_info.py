"""The command that describes a graph, what each engine would cost on it, and what to do."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from graphmatern.cli._reading import load_graph
from graphmatern.sparse import available_memory, format_bytes, least_cost, power_nnz

if TYPE_CHECKING:
    from graphmatern.cli._console import Console
    from graphmatern.cli._options import GraphOptions
    from graphmatern.graph import Graph
    from graphmatern.sparse import Cost

__all__ = ["run_info"]

_MOST_ENTRIES = 20_000_000  # of a power of the Laplacian that is formed for a prediction
_STEPS = 30  # evaluations of a fit
_PATIENCE = 600.0  # seconds of a fit, beyond which there should be a better way
_FEW = 50  # eigenpairs, where those of the default take too long
# Seconds per node and pair of eigenpairs; per entry of the factor, and per entry and eigenpair. From roads and hubs.
_PER_PAIR, _PER_ENTRY, _PER_SOLUTION = 1.3e-9, 7.5e-6, 2.2e-8


@dataclass(frozen=True)
class _EngineCost:
    """What an engine costs: bytes, seconds of one step, steps of a fit; ``at_least`` where it is only a lower bound."""

    engine: str
    bytes: int
    seconds: float
    steps: int = 1
    at_least: bool = False

    @property
    def fit_seconds(self) -> float:
        return self.seconds * self.steps

    @property
    def is_too_long(self) -> bool:
        return self.fit_seconds > _PATIENCE

    def words(self) -> str:
        bound = "> " if self.at_least else ""
        memory = format_bytes(self.bytes) if self.steps == 1 else f"{bound}{format_bytes(self.bytes)}"
        time = f"{bound}{_duration(self.seconds)} {'once' if self.steps == 1 else 'per step'}"
        if self.is_too_long:
            time += ": too long" if self.steps == 1 else f", {bound}{_duration(self.fit_seconds)} per fit: too long"
        return f"{self.engine:<30}  {memory:<12}  {time}"

    def as_dict(self) -> dict[str, Any]:
        return {
            "engine": self.engine,
            "bytes": self.bytes,
            "seconds": self.seconds,
            "per": "once" if self.steps == 1 else "per step",
            "fit_seconds": self.fit_seconds,
            "at_least": self.at_least,
            "too_long": self.is_too_long,
        }


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
        costs = _costs(graph)
    console.say("")
    console.say(graph.summary())
    console.say("")
    console.say("engine                          memory        time (roughly)")
    for cost in costs:
        console.say(cost.words())
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
        "costs": [cost.as_dict() for cost in costs],
        "advice": advice,
    }
    console.finish()


def _duration(seconds: float) -> str:
    if seconds < 0.1:
        return "below 0.1 s"
    for size, unit in ((1.0, "s"), (60.0, "min"), (3600.0, "h"), (86400.0, "days")):
        if seconds < 100 * size or unit == "days":
            return f"{seconds / size:.1f} {unit}" if seconds < 10 * size else f"{seconds / size:,.0f} {unit}"
    raise AssertionError


def _range(values: Any) -> dict[str, float]:
    return {"min": float(values.min()), "mean": float(values.mean()), "max": float(values.max())}


def _costs(graph: Graph) -> list[_EngineCost]:
    """What the engines cost, the spectral one first; nothing is computed that would itself take minutes."""
    pattern = sp.csr_array(graph.weights + sp.eye_array(graph.n_nodes, format="csr"))
    pattern.data[:] = 1.0
    first, at_least = _factor_cost(pattern)
    # A step factorises M and the posterior precision, with selected inverses of both, which take about as long again.
    one = _EngineCost("markov, smoothness 1", int(first.memory_bytes), 4.0 * first.seconds, _STEPS, at_least)
    two = replace(one, engine="markov, smoothness 2", at_least=True)  # its pattern contains that of smoothness 1
    if not one.is_too_long:
        count = power_nnz(pattern, 2, limit=_MOST_ENTRIES, check=False)
        if count > _MOST_ENTRIES:
            two = replace(two, bytes=8 * count)  # the lower triangle and its selected inverse
        else:
            second, more = _factor_cost(sp.csr_array(pattern @ pattern))
            seconds = 2.0 * (first.seconds + second.seconds)
            two = _EngineCost(two.engine, int(second.memory_bytes), seconds, _STEPS, more)
    spectral = _spectral_cost(graph, None, first, at_least)
    fewer = [_spectral_cost(graph, _FEW, first, at_least)] if spectral.is_too_long else []
    return [spectral, *fewer, one, two]


def _factor_cost(pattern: sp.csr_array) -> tuple[Cost, bool]:
    """Cost of a factorisation, and whether it is a lower bound, where that is too much already."""
    return least_cost(pattern, enough=_PATIENCE / 4.0 / _STEPS)


def _spectral_cost(graph: Graph, wanted: int | None, factor: Cost, at_least: bool) -> _EngineCost:
    """Memory and time of the eigenvectors: a dense decomposition, or Krylov spaces of the factorised Laplacian."""
    from graphmatern.inference import eigenpairs_used

    n, some = graph.n_nodes, eigenpairs_used(graph, wanted)
    if some is None:
        return _EngineCost(f"spectral, all {n:,} eigenpairs", 32 * n**2, 10.0 * n**3 / 2e10)
    seconds = _PER_PAIR * n * some**2 + (_PER_ENTRY + _PER_SOLUTION * some) * factor.nnz_factor
    return _EngineCost(f"spectral, {some} eigenpairs", 24 * n * some, seconds, at_least=at_least)


def _advice(graph: Graph, costs: list[_EngineCost]) -> list[str]:
    from graphmatern.inference import eigenpairs_used

    if costs[-2].is_too_long and eigenpairs_used(graph, None) is not None:
        found = ["the graph fills in: factorising its precision, as --engine markov does, would take too long"]
        if costs[0].is_too_long:
            found.append(f"fewer eigenpairs (--engine spectral --eigenpairs {_FEW}) take less time, and are less sharp")
    else:
        found = [_automatic(graph)]
    memory = available_memory()
    if any(cost.bytes > memory for cost in costs):
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


def _automatic(graph: Graph) -> str:
    """Which engine would be chosen, and why; only for graphs on which this is soon found out."""
    from graphmatern.inference import Observations, Problem, choose_engine
    from graphmatern.likelihoods import Gaussian

    nothing = Observations(np.zeros(0, dtype=np.int64), np.zeros((0, 1)), np.zeros((graph.n_nodes, 0)))
    problem = Problem(graph, None, Gaussian(), nothing)
    engine, reason, _ = choose_engine(problem, "auto")
    return f"--engine auto would take the {engine} engine ({reason})"
