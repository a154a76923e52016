"""Hanging nodes: those with a single neighbour, such as the ends of blind alleys."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from graphmatern._validation import FaultList, check_whole
from graphmatern.errors import GraphError

if TYPE_CHECKING:
    import scipy.sparse as sp
    from numpy.typing import NDArray

__all__ = ["nodes_that_stay"]


def nodes_that_stay(weights: sp.csr_array, rounds: int | None) -> NDArray[np.int64]:
    """Positions of the nodes left when those that hang are removed; see `Graph.remove_hanging_nodes`."""
    if rounds is not None:
        faults = FaultList("no nodes were removed", GraphError)
        check_whole("rounds", rounds, faults, minimum=0, remedy="Leave it out to go on until none is left.")
        faults.raise_if_any()
    indptr, indices = weights.indptr, weights.indices
    neighbours = np.diff(indptr)
    present = np.ones(len(neighbours), dtype=bool)
    hanging = np.flatnonzero(neighbours == 1)
    done = 0
    while len(hanging) and (rounds is None or done < rounds):
        # The one neighbour that is left of each, found in its row of the matrix.
        row = np.repeat(hanging, np.diff(indptr)[hanging])
        column = indices[np.concatenate([np.arange(indptr[i], indptr[i + 1]) for i in hanging])]
        row, column = row[present[column]], column[present[column]]
        # Of two nodes joined only to each other, the first stays.
        leaving = ~((neighbours[column] == 1) & (row < column))
        present[row[leaving]] = False
        np.subtract.at(neighbours, column[leaving], 1)
        neighbours[row[leaving]] = 0
        touched = np.unique(column[leaving])
        hanging = touched[present[touched] & (neighbours[touched] == 1)]
        done += 1
    return np.flatnonzero(present)
