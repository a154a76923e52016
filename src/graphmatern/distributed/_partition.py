"""Which process holds which nodes: few edges between them, and as much work for each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from graphmatern.distributed._processes import load_petsc
from graphmatern.distributed._rows import petsc_matrix

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from scipy.sparse import csr_array

    from graphmatern.distributed._processes import Processes

    Longs = NDArray[np.int64]

__all__ = ["partition"]

_FEW = 0.02  # share of the edges between processes that is not worth a search for less
_NODE = 4  # work that a node is by itself, in that of an entry: its rows of blocks are read, summed and written
_HUBS = 5.0  # mean squared degree over the square of the mean: beyond it PT-Scotch takes minutes, and finds little
_UNEVEN = 1.15  # work of the busiest process, relative to the average, that is not worth fewer edges between them


def partition(processes: Processes, own: csr_array[Any]) -> Longs:
    """Homes of this process's block of nodes; shape (n_block,).

    The order of the files is kept, in runs of equal work, where few edges leave these, and on graphs with hubs, which
    no partition keeps apart. Else PETSc partitions the graph (by ParMETIS or PT-Scotch, whichever it was built with),
    and that is taken if it serves better.

    Parameters
    ----------
    processes : Processes
        All of them.
    own : csr_array, shape (n_block, n_nodes)
        Rows of the weight matrix, a block for each process, in the order of keys.
    """
    if processes.size == 1:
        return np.zeros(own.shape[0], dtype=np.int64)
    work = np.diff(own.indptr) + _NODE
    total, before = processes.total(int(work.sum())), processes.before(int(work.sum()))
    in_order = np.minimum((before + np.cumsum(work) - 1) * processes.size // max(total, 1), processes.size - 1)
    cut = _cut(processes, own, in_order)
    if cut <= _FEW or _has_hubs(processes, np.diff(own.indptr)):
        return np.asarray(in_order, dtype=np.int64)
    found = _by_petsc(processes, own)
    if found is None:
        return np.asarray(in_order, dtype=np.int64)
    busiest = processes.total(np.bincount(found, weights=work, minlength=processes.size)).max() * processes.size / total
    better = busiest <= _UNEVEN and _cut(processes, own, found) < cut
    return np.asarray(found if better else in_order, dtype=np.int64)


def _has_hubs(processes: Processes, degree: Longs) -> bool:
    """Whether some nodes have many times the neighbours of others."""
    count, ends, squares = (
        processes.total(float(one)) for one in (len(degree), degree.sum(), np.square(degree, dtype=np.float64).sum())
    )
    return bool(squares * count > _HUBS * ends**2)


def _cut(processes: Processes, own: csr_array[Any], homes: Longs) -> float:
    """Share of the edges between processes, with these homes."""
    every = processes.joined(homes.astype(np.int32 if processes.size > 127 else np.int8))
    leaving = int((every[own.indices] != np.repeat(homes, np.diff(own.indptr))).sum())
    return float(processes.total(leaving) / max(processes.total(int(own.nnz)), 1))


def _by_petsc(processes: Processes, own: csr_array[Any]) -> Longs | None:
    """What PETSc's partitioner says; None where it was built with none."""
    PETSc = load_petsc()
    kinds = [kind for kind in ("parmetis", "ptscotch") if PETSc.Sys.hasExternalPackage(kind)]
    if not kinds:
        return None
    matrix = petsc_matrix(processes, own)
    adjacency = matrix.convert(PETSc.Mat.Type.MPIADJ)
    search = PETSc.MatPartitioning().create(comm=PETSc.COMM_WORLD)
    search.setAdjacency(adjacency)
    search.setType(kinds[0])
    homes = PETSc.IS()
    search.apply(homes)
    found = np.asarray(homes.getIndices(), dtype=np.int64)
    for thing in (search, adjacency, matrix, homes):
        thing.destroy()
    return found
