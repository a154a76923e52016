"""Moments between nodes that have been asked for, kept with the graph: they depend on no kernel and no parameter."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from graphmatern.inference.moments.degrees import ample_degree
from graphmatern.inference.moments.operator import laplacian_operator

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from graphmatern.graph import Graph
    from graphmatern.inference.moments.operator import LaplacianOperator

    Floats = NDArray[np.float64]
    Longs = NDArray[np.int64]

__all__ = ["KeptMoments", "kept_moments"]

_ENTRIES = 2**26  # of moments between nodes: a few hundred nodes
_AT_ONCE = 64


def kept_moments(graph: Graph, normalized: bool) -> KeptMoments:
    """The moments of one of a graph's Laplacians that are kept with it."""
    return graph.cached(("kept moments", normalized), lambda: KeptMoments(laplacian_operator(graph, normalized)))


class KeptMoments:
    """A^(−½) T_k(S) A^(−½) between all pairs of some nodes, and on the diagonal at others.

    Parameters
    ----------
    operator : LaplacianOperator
        Polynomials of a Laplacian.
    """

    def __init__(self, operator: LaplacianOperator) -> None:
        self.operator = operator
        self._nodes: Longs = np.zeros(0, dtype=np.int64)  # in the order in which they came
        self._moments: Floats = np.zeros((0, 0, 0))
        self._single: Longs = np.zeros(0, dtype=np.int64)  # ascending
        self._diagonals: Floats = np.zeros((0, 0))

    def fits(self, count: int, degree: int) -> bool:
        """Whether moments between so many nodes can be kept."""
        return (ample_degree(degree) + 1) * count**2 <= _ENTRIES

    def knows(self, nodes: Longs, degree: int) -> bool:
        """Whether moments between nodes are there already, up to a degree."""
        return len(self._moments) > degree and bool(np.isin(nodes, self._nodes).all())

    def between(self, left: Longs, right: Longs, degree: int) -> Floats:
        """Moments between nodes, each once, up to a degree or higher; shape (degree + 1 or more, n_left, n_right)."""
        nodes = np.union1d(left, right)
        if not self.knows(nodes, degree):
            self._add(nodes, degree)
        order = np.argsort(self._nodes)
        places = [order[np.searchsorted(self._nodes, some, sorter=order)] for some in (left, right)]
        if all(np.array_equal(place, np.arange(len(self._nodes))) for place in places):
            return self._moments
        return self._moments[:, places[0][:, None], places[1]]

    def _add(self, nodes: Longs, degree: int) -> None:
        """Take in nodes; forget all others where there would be too many, or where the degree rises."""
        new = np.setdiff1d(nodes, self._nodes)
        if len(self._moments) <= degree or len(self._moments) * (len(self._nodes) + len(new)) ** 2 > _ENTRIES:
            new, self._nodes = nodes, nodes[:0]
            self._moments = np.zeros((ample_degree(degree) + 1, 0, 0))
        every, before = np.concatenate([self._nodes, new]), len(self._nodes)
        degree = len(self._moments) - 1
        found = np.empty((degree + 1, len(every), len(every)))
        found[:, :before, :before] = self._moments
        found[:, :, before:] = self.operator.products.moments(new, degree, at=every)
        masses = self.operator.graph.masses
        if masses is not None:
            found[:, :, before:] /= np.sqrt(masses[every][:, None] * masses[new])
        found[:, before:, :before] = found[:, :before, before:].transpose(0, 2, 1)
        self._nodes, self._moments = every, found

    def unknown(self, nodes: Longs, degree: int) -> int:
        """Of how many nodes diagonal moments would have to be computed."""
        return len(np.setdiff1d(nodes, self._single)) if len(self._diagonals) > degree else len(nodes)

    def diagonals(self, nodes: Longs, degree: int) -> Floats:
        """Diagonal moments of nodes, each once, up to a degree or higher; shape (degree + 1 or more, n)."""
        if len(self._diagonals) <= degree:
            self._single, self._diagonals = nodes[:0], np.zeros((ample_degree(degree) + 1, 0))
        new = np.setdiff1d(nodes, self._single)
        blocks = [self._diagonals]
        for start in range(0, len(new), _AT_ONCE):
            units = self.operator.rows.units(new[start : start + _AT_ONCE])
            blocks.append(self.operator.products.traces(None, len(self._diagonals) - 1, units))
        if len(new):
            masses = self.operator.graph.masses
            found = np.concatenate(blocks, axis=1)
            if masses is not None:
                found[:, len(self._single) :] /= masses[new]
            every = np.concatenate([self._single, new])
            order = np.argsort(every)
            self._single, self._diagonals = every[order], found[:, order]
        return self._diagonals[:, np.searchsorted(self._single, nodes)]
