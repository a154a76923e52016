"""A graph in words: for `print`, and for notebooks."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

import numpy as np

from graphmatern._validation import abbreviate

if TYPE_CHECKING:
    from graphmatern.graph._graph import Graph

__all__ = ["as_html", "describe"]

_SHOWN_NAMES = 5  # nodes that a notebook names


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def describe(graph: Graph) -> str:
    """Text of `Graph.summary`."""
    return "\n".join(f"{name:<13}{words}" if name else words for name, words in _facts(graph))


def as_html(graph: Graph) -> str:
    """Small table for notebooks: what `describe` says, and the names of the first nodes."""
    (_, title), *facts = _facts(graph)
    rows = "".join(
        f"<tr><th style='text-align:left'>{name}</th><td style='text-align:left'>{escape(words)}</td></tr>"
        for name, words in [*facts, ("nodes", abbreviate(graph.nodes[:_SHOWN_NAMES], graph.n_nodes))]
    )
    return f"<div><b>Graph</b>: {title}<table>{rows}</table></div>"


def _facts(graph: Graph) -> list[tuple[str, str]]:
    """What there is to say about a graph, each with its name; the first, its size, has none."""
    sizes = np.sort(np.bincount(graph.components))[::-1]
    neighbours = np.diff(graph.weights.indptr)
    isolated = int((neighbours == 0).sum())
    facts = [
        ("", f"{_count(graph.n_nodes, 'node')}, {_count(graph.n_edges, 'edge')}"),
        ("components", f"{len(sizes):,} (largest {_count(sizes[0], 'node')}; {_count(isolated, 'isolated node')})"),
        ("neighbours", f"{neighbours.min()} to {neighbours.max()}, mean {neighbours.mean():.2f}"),
    ]
    if graph.n_edges:
        weight = graph.weights.data
        facts.append(("weights", f"{weight.min():.4g} to {weight.max():.4g}, median {np.median(weight):.4g}"))
    table = graph._rows
    if table.length is not None and len(table):
        length = table.length
        facts.append(("lengths", f"{length.min():.4g} to {length.max():.4g}, total {length.sum():.6g}"))
    if len(table) > graph.n_edges:
        facts.append(("edge table", f"{len(table):,} rows, parallel edges included"))
    if graph.masses is not None:
        facts.append(("node masses", f"{graph.masses.min():.4g} to {graph.masses.max():.4g}"))
    if graph.areas is not None:
        facts.append(("areas", f"outlines of {_count(sum(map(bool, graph.areas)), 'node')}"))
    if graph.positions is not None:
        facts.append(("positions", f"{graph.positions.shape[1]}-dimensional"))
    return facts
