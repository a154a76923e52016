"""The rows of an edge table, by node position, and how they become a weight matrix."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import scipy.sparse as sp

from graphmatern._validation import warn
from graphmatern.errors import EdgeWarning

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["PARALLEL_RULES", "EdgeRows", "canonical", "mean_over_length", "rows_of_matrix", "warn_of_loops"]

PARALLEL_RULES = ("sum", "mean_length", "first", "error")


def mean_over_length(length: NDArray[np.float64]) -> NDArray[np.float64]:
    """Weights of edges from their lengths: the mean length divided by each length."""
    return length.mean() / length if len(length) else length


def warn_of_loops(count: int) -> None:
    """Warn that so many self-loops were dropped, if any were."""
    if count:
        warn(
            f"{count} self-loop{'s' if count > 1 else ''} dropped: self-loops do not change a Laplacian",
            EdgeWarning,
        )


@dataclass(frozen=True, eq=False)
class EdgeRows:
    """Edges as they were given, parallel ones included, self-loops excluded.

    Attributes
    ----------
    source, target : ndarray of int64, shape (n_rows,)
        Positions of the end nodes.
    weight : ndarray, shape (n_rows,)
        Weight of each row by itself, before parallel rows are merged.
    length : ndarray, shape (n_rows,), optional
        Lengths, where known.
    geometry : list of ndarray (n_points, 2), optional
        Polylines from source to target, where known; None for a row without one.
    ids : pandas.Index, optional
        Names of the rows; their numbers where None.
    weighting : {"unit", "weight", "length"}
        Where the weights come from: repeats of unweighted rows mean nothing, and weights that follow from lengths
        do so again when an edge is cut.
    """

    source: NDArray[np.int64]
    target: NDArray[np.int64]
    weight: NDArray[np.float64]
    length: NDArray[np.float64] | None = None
    geometry: Sequence[NDArray[np.float64] | None] | None = None
    ids: pd.Index[Any] | None = None
    weighting: str = "weight"

    def __len__(self) -> int:
        return len(self.source)

    def take(self, rows: NDArray[np.int64]) -> EdgeRows:
        """Return the rows at these positions, in this order."""
        if len(rows) == len(self) and (rows == np.arange(len(rows))).all():
            return self
        return EdgeRows(
            self.source[rows],
            self.target[rows],
            self.weight[rows],
            None if self.length is None else self.length[rows],
            None if self.geometry is None else [self.geometry[row] for row in rows],
            # A row keeps its number when others are dropped: sensors refer to it.
            self.identifiers[rows],
            self.weighting,
        )

    @property
    def identifiers(self) -> pd.Index[Any]:
        """Names of the rows, or their numbers."""
        return pd.RangeIndex(len(self)) if self.ids is None else self.ids

    def table(self, nodes: pd.Index[Any]) -> pd.DataFrame:
        """Return the rows with the names of their ends; see `Graph.edges`."""
        table = pd.DataFrame(
            {
                "id": self.identifiers,
                "source": nodes[self.source],
                "target": nodes[self.target],
                "weight": self.weight,
            }
        )
        if self.length is not None:
            table["length"] = self.length
        if self.geometry is not None:
            table["geometry"] = pd.Series(list[Any](self.geometry), dtype=object)
        return table

    def restrict(self, position: NDArray[np.int64]) -> EdgeRows:
        """Keep the rows between kept nodes and renumber their ends.

        Parameters
        ----------
        position : ndarray of int64, shape (n_nodes,)
            New position of every node, −1 where it is dropped.
        """
        kept = self.take(np.flatnonzero((position[self.source] >= 0) & (position[self.target] >= 0)))
        return replace(kept, source=position[kept.source], target=position[kept.target])

    def without_loops(self) -> EdgeRows:
        """Drop edges from a node to itself, with a warning that counts them."""
        loops = self.source == self.target
        warn_of_loops(int(loops.sum()))
        return self.take(np.flatnonzero(~loops)) if loops.any() else self

    def pair_keys(self, n_nodes: int) -> NDArray[np.int64]:
        """One number per row, equal for rows that join the same two nodes."""
        low, high = np.minimum(self.source, self.target), np.maximum(self.source, self.target)
        return low * np.int64(n_nodes) + high

    def merge(self, n_nodes: int, parallel: str) -> sp.csr_array:
        """Merge parallel rows into a symmetric weight matrix.

        Parameters
        ----------
        n_nodes : int
            Number of nodes.
        parallel : {"sum", "mean_length", "first"}
            What becomes of rows that join the same two nodes.

        Returns
        -------
        csr_array, shape (n_nodes, n_nodes)
            Exactly symmetric, sorted, without explicit zeros.
        """
        keys, first, pair = np.unique(self.pair_keys(n_nodes), return_index=True, return_inverse=True)
        if len(keys) == len(self) or self.weighting == "unit" or parallel == "first":
            weight = self.weight[first]
        elif parallel == "mean_length" and self.length is not None:
            pair_length = np.bincount(pair, self.length) / np.bincount(pair)
            weight = self.length.mean() / pair_length
        else:
            weight = np.asarray(np.bincount(pair, self.weight), dtype=np.float64)
        low, high = np.divmod(keys, max(n_nodes, 1))
        positive = weight > 0
        low, high, weight = low[positive], high[positive], weight[positive]
        both = sp.coo_array(
            (np.tile(weight, 2), (np.concatenate([low, high]), np.concatenate([high, low]))),
            shape=(n_nodes, n_nodes),
        ).tocsr()
        return canonical(both)

    def _count_repeated(self, n_nodes: int) -> int:
        """Count the rows that repeat another in every respect: ends, and length or weight."""
        size = self.weight if self.length is None else self.length
        return len(self) - len(np.unique(np.column_stack([self.pair_keys(n_nodes), size.view(np.int64)]), axis=0))

    def warn_of_parallel(self, n_nodes: int, parallel: str) -> None:
        """Count the rows that repeat a pair of nodes, and say what becomes of them."""
        _, first = np.unique(self.pair_keys(n_nodes), return_index=True)
        extra = len(self) - len(first)
        if extra == 0:
            return
        treatment = {
            "sum": "their weights are added",
            "mean_length": "their lengths are averaged",
            "first": "the first of each pair is kept",
        }[parallel]
        repeat = "repeats" if extra == 1 else "repeat"
        text = f"{extra} of {len(self)} edges {repeat} a pair of nodes; {treatment} (parallel={parallel!r})"
        if extra == len(first) and parallel == "sum":
            text += ". Every pair appears twice: if each edge was listed in both directions, use parallel='first'"
        elif parallel == "sum" and (same := self._count_repeated(n_nodes)):
            also = "It has" if extra == 1 else f"{same} of these have"
            what = "weight" if self.length is None else "length"
            text += f". {also} the same {what} as well: if an edge was listed twice, use parallel='first'"
        warn(text, EdgeWarning)


def canonical(matrix: sp.csr_array) -> sp.csr_array:
    """Return a matrix with sorted indices in 32 bits, where they fit, so that equal graphs have equal bytes."""
    matrix.sort_indices()
    if max(matrix.shape[0], matrix.nnz) < 2**31:
        matrix.indices = matrix.indices.astype(np.int32, copy=False)
        matrix.indptr = matrix.indptr.astype(np.int32, copy=False)
    return matrix


def rows_of_matrix(weights: sp.csr_array) -> EdgeRows:
    """Return the distinct pairs of a symmetric weight matrix as edge rows."""
    upper = sp.triu(weights, k=1).tocoo()
    return EdgeRows(upper.row.astype(np.int64), upper.col.astype(np.int64), upper.data)
