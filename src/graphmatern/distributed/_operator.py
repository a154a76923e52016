"""The Laplacian of a graph that is spread over processes, as a source of Chebyshev polynomials."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from graphmatern.distributed._rows import SpreadProducts
from graphmatern.inference.moments.operator import LaplacianOperator

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from graphmatern.distributed._graph import DistributedGraph

    Floats = NDArray[np.float64]

__all__ = ["SpreadOperator", "spread_operator"]

_AT_ONCE = 64


def spread_operator(graph: DistributedGraph, normalized: bool) -> SpreadOperator:
    """The operator of one of a graph's Laplacians, made once."""
    found: SpreadOperator = graph.cached(("operator", normalized), lambda: SpreadOperator(graph, normalized))
    return found


class SpreadOperator(LaplacianOperator):
    """Chebyshev polynomials of a Laplacian whose rows are spread over processes.

    Parameters
    ----------
    graph : DistributedGraph
        The graph.
    normalized : bool
        Which Laplacian.
    """

    def __init__(self, graph: DistributedGraph, normalized: bool) -> None:
        self.graph: Any = graph
        self.normalized = normalized
        self.high = graph.largest_eigenvalue(normalized)
        self.products = SpreadProducts(graph.rows, graph.halo, graph.laplacian(normalized), 0.0, self.high)
        self._begin()

    def _exact(self, degree: int) -> tuple[Floats, Floats]:
        """Traces from all columns of the identity: there are few nodes."""
        total = np.zeros(degree + 1)
        for start in range(0, self.rows.n, _AT_ONCE):
            units = self.rows.units(np.arange(start, min(start + _AT_ONCE, self.rows.n)))
            total += self.products.traces(None, degree, units).sum(axis=1)
        return total, np.zeros((degree + 1, 1))
