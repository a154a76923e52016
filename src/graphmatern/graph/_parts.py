"""What a graph is made of, and what is made of that: some of its nodes, or the answer whether two are equal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from graphmatern._validation import FaultList
from graphmatern.errors import GraphError
from graphmatern.graph._laplacian import degrees
from graphmatern.graph._names import NodeNames

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from graphmatern.graph._edge_rows import EdgeRows

__all__ = ["GraphParts", "checked", "same_content"]


@dataclass(frozen=True, eq=False)
class GraphParts:
    """What a graph is made of, validated.

    Attributes
    ----------
    weights : csr_array, shape (n_nodes, n_nodes)
        Symmetric, sorted, zero diagonal.
    names : NodeNames
        Names of the nodes.
    rows : EdgeRows, optional
        The edge table; None where it follows from ``weights``.
    positions : ndarray, shape (n_nodes, n_dimensions), optional
        Coordinates of the nodes.
    masses : ndarray, shape (n_nodes,), optional
        Node masses; None means 1 for all.
    parallel : str
        How parallel rows were merged.
    areas : list, optional
        Outlines of the area of every node; see `Graph.areas`.
    """

    weights: sp.csr_array
    names: NodeNames
    rows: EdgeRows | None = None
    positions: NDArray[np.float64] | None = None
    masses: NDArray[np.float64] | None = None
    parallel: str = "sum"
    areas: list[list[NDArray[np.float64]]] | None = None

    def freeze(self) -> None:
        """Make the arrays read-only, so that sharing them is safe."""
        arrays = [self.weights.data, self.weights.indices, self.weights.indptr, self.positions, self.masses]
        if self.rows is not None:
            arrays += [self.rows.source, self.rows.target, self.rows.weight, self.rows.length]
            arrays += self.rows.geometry or []
        arrays += [ring for rings in self.areas or [] for ring in rings]
        for array in arrays:
            if array is not None:
                array.flags.writeable = False

    def take(self, kept: NDArray[np.int64]) -> GraphParts:
        """Return the parts of the graph of the nodes at these positions, in this order."""
        position = np.full(len(self.names), -1, np.int64)
        position[kept] = np.arange(len(kept))
        weights = sp.csr_array(self.weights[kept][:, kept])
        weights.sort_indices()
        return GraphParts(
            weights,
            NodeNames(self.names.index[kept]),
            None if self.rows is None else self.rows.restrict(position),
            None if self.positions is None else self.positions[kept],
            None if self.masses is None else self.masses[kept],
            self.parallel,
            None if self.areas is None else [self.areas[k] for k in kept],
        )


def checked(parts: GraphParts) -> GraphParts:
    """Return the parts of a graph whose weights, degrees and masses floating-point numbers can hold."""
    faults = FaultList("no graph was made", GraphError)
    with np.errstate(over="ignore"):
        degree = degrees(parts.weights)
        relative = degree if parts.masses is None else degree / parts.masses
    if not (np.isfinite(parts.weights.data).all() and np.isfinite(degree).all() and np.isfinite(relative).all()):
        weight = parts.weights.data
        received = f"weights from {weight.min(initial=np.inf):.3g} to {weight.max(initial=0.0):.3g}"
        faults.add(
            "weight", "and degrees must not overflow", received, "Change the unit of weights, lengths or masses."
        )
    faults.raise_if_any()
    return parts


def _equal(one: Any, other: Any) -> bool:
    return (one is None and other is None) or (one is not None and other is not None and np.array_equal(one, other))


def _same_areas(one: Any, other: Any) -> bool:
    if one is None or other is None:
        return one is other
    return all(
        len(mine) == len(theirs) and all(map(_equal, mine, theirs)) for mine, theirs in zip(one, other, strict=True)
    )


def same_content(one: GraphParts, rows: EdgeRows, other: GraphParts, other_rows: EdgeRows) -> bool:
    """Whether two graphs have the same nodes, weights, positions, masses, areas and edges, these in any order."""
    if not (
        one.names.equals(other.names)
        and _equal(one.weights.indptr, other.weights.indptr)
        and _equal(one.weights.indices, other.weights.indices)
        and _equal(one.weights.data, other.weights.data)
        and _equal(one.positions, other.positions)
        and _equal(one.masses, other.masses)
        and _same_areas(one.areas, other.areas)
        and len(rows) == len(other_rows)
    ):
        return False
    n_nodes = len(one.names)
    ours, theirs = (table.take(np.lexsort((table.weight, table.pair_keys(n_nodes)))) for table in (rows, other_rows))
    if not (
        _equal(ours.pair_keys(n_nodes), theirs.pair_keys(n_nodes))
        and _equal(ours.weight, theirs.weight)
        and _equal(ours.length, theirs.length)
        and (rows.ids is None) == (other_rows.ids is None)
        and (rows.ids is None or _equal(ours.ids, theirs.ids))
    ):
        return False
    if ours.geometry is None or theirs.geometry is None:
        return ours.geometry is theirs.geometry
    return all(_equal(a, b) for a, b in zip(ours.geometry, theirs.geometry, strict=True))
