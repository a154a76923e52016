"""The spectra of a graph: computed once, and kept with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from graphmatern._validation import FaultList, check_flag, check_whole
from graphmatern.errors import GraphError
from graphmatern.graph._laplacian import sqrt_scaling
from graphmatern.graph._spectrum import Spectrum, is_dense, laplacian_spectrum, spectrum_cost

if TYPE_CHECKING:
    from graphmatern.graph._graph import Graph

__all__ = ["cost_of_spectrum", "keep_spectrum", "spectrum_of"]


def keep_spectrum(graph: Graph, spectrum: Spectrum) -> None:
    """Use eigenpairs that were computed earlier, wherever they are enough."""
    graph._cache[("kept spectrum", spectrum.normalized)] = spectrum


def spectrum_of(graph: Graph, n_eigenpairs: int | None, normalized: bool) -> Spectrum:
    """Smallest eigenpairs of a Laplacian; see `Graph.spectrum`."""
    wanted = graph.n_nodes if n_eigenpairs is None else n_eigenpairs
    faults = FaultList("no spectrum", GraphError)
    check_whole("n_eigenpairs", wanted, faults, minimum=1, remedy="Leave it out for all eigenpairs.")
    faults.raise_if_any()
    normalized = check_flag("normalized", normalized, GraphError)
    wanted = min(int(wanted), graph.n_nodes)
    kept = _kept(graph, wanted, normalized)
    if kept is not None:
        return kept.truncate(wanted)
    count = _computed_count(graph, wanted)

    def compute() -> Spectrum:
        return laplacian_spectrum(
            graph.laplacian(normalized),
            graph.components,
            sqrt_scaling(graph.degrees, graph.masses, normalized=normalized),
            graph.masses,
            normalized=normalized,
            n_eigenpairs=count,
        )

    return graph.cached(("spectrum", normalized, count), compute).truncate(wanted)


def cost_of_spectrum(graph: Graph, n_eigenpairs: int | None, normalized: bool) -> tuple[float, int]:
    """Seconds and bytes that `spectrum_of` is predicted to take; see `Graph.spectrum_cost`."""
    wanted = graph.n_nodes if n_eigenpairs is None else min(int(n_eigenpairs), graph.n_nodes)
    count = _computed_count(graph, wanted)
    if ("spectrum", normalized, count) in graph._cache or _kept(graph, wanted, normalized) is not None:
        return 0.0, 8 * graph.n_nodes * wanted

    def compute() -> tuple[float, int]:
        scaling = sqrt_scaling(graph.degrees, graph.masses, normalized=normalized)
        return spectrum_cost(graph.laplacian(normalized), graph.components, scaling, count)

    return graph.cached(("spectrum cost", normalized, count), compute)


def _kept(graph: Graph, wanted: int, normalized: bool) -> Spectrum | None:
    """Eigenpairs from earlier, where they are enough."""
    kept: Spectrum | None = graph._cache.get(("kept spectrum", normalized))
    return kept if kept is not None and kept.n_eigenpairs >= wanted else None


def _computed_count(graph: Graph, wanted: int) -> int:
    """How many eigenpairs to compute: all, where a full decomposition is made on the way, for any later number."""
    return graph.n_nodes if is_dense(int(np.bincount(graph.components).max()), wanted) else wanted
