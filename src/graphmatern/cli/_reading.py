"""Reading the graph that a command was given."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from graphmatern.io import GraphReading, ValueColumns, insert_sensors, read_graph

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from graphmatern.cli._console import Console
    from graphmatern.cli._options import GraphOptions

__all__ = ["limited_threads", "load_graph"]


def load_graph(
    path: Path,
    options: GraphOptions,
    console: Console,
    points: ValueColumns | None = None,
    areas: Path | None = None,
    values: Path | None = None,
) -> GraphReading:
    """Read a graph, insert its sensors, and say what was guessed; a table of values tells what areas are called."""
    reading = read_graph(
        path,
        source=options.source,
        target=options.target,
        weight=options.weight,
        length=options.length,
        id=options.edge_id,
        geometry=options.geometry,
        nodes=options.nodes,
        parallel=options.parallel,
        area_name=options.area_name,
        contiguity=options.contiguity,
        tolerance=options.tolerance,
        links=options.links,
        values=values,
    )
    if areas is not None:
        reading.graph = reading.graph.with_areas(areas, options.area_name)
    console.say(f"{path.name}: {reading.graph.n_nodes:,} nodes, {reading.graph.n_edges:,} edges")
    for note in reading.notes:
        console.note(note)
    if options.sensors is not None:
        graph, notes = insert_sensors(options.sensors, reading.graph, points)
        reading = GraphReading(graph, [*reading.notes, *notes], None)
        for note in notes:
            console.note(note)
    if options.largest_component and reading.graph.n_components > 1:
        whole = reading.graph
        graph = whole.largest_component()
        nodes = None if reading.nodes is None else reading.nodes.iloc[whole.locate(graph.nodes)]
        console.note(f"largest component: {graph.n_nodes:,} of {whole.n_nodes:,} nodes")
        reading = GraphReading(graph, reading.notes, nodes)
    return reading


@contextmanager
def limited_threads(n_threads: int | None) -> Iterator[None]:
    """Let the libraries beneath use so many threads at most."""
    if n_threads is None:
        yield
        return
    import torch
    from threadpoolctl import threadpool_limits

    before = torch.get_num_threads()
    torch.set_num_threads(n_threads)
    try:
        with threadpool_limits(n_threads):
            yield
    finally:
        torch.set_num_threads(before)
