"""Orderings: in which order to eliminate the nodes so that the factor stays sparse."""

from __future__ import annotations

import threading
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import maximum_bipartite_matching

from graphmatern._validation import FaultList, check_choice
from graphmatern.errors import InputError, ResourceError
from graphmatern.sparse import _pattern
from graphmatern.sparse._low_degrees import eliminate_low_degrees
from graphmatern.sparse._minimum_degree import minimum_degree
from graphmatern.sparse._pattern import relabel
from graphmatern.sparse._small import small_ordering
from graphmatern.sparse._symbolic import column_counts, elimination_tree, postorder

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Ints = NDArray[np.int32]
    Longs = NDArray[np.int64]

__all__ = ["Elimination", "check_ordering", "choose", "separator_size"]

_warnings_lock = threading.Lock()  # filters belong to all threads: whoever changes them waits for the others

_NAMES = ("auto", "metis", "minimum_degree", "natural")

# Above as many, compiled code for nodes of low degree is worth loading.
_MANY_NODES = 50_000
_LOW_DEGREE, _LOW_SHARE = 3, 0.1  # diagonal included

# Nested dissection takes about this many seconds per entry of the pattern.
_METIS_SECONDS = 1e-6
# What it may save: up to a third of the operations on grids, at 40 Gflop/s, in a large fit's eight factorisations,
# each with a selected inverse that takes half as long again. Where it saves most, on graphs without small separators,
# operations are so many that a small share decides.
_SECONDS_PER_FLOP_SAVED = 0.3 / 40e9 * 8 * 2.5


class Elimination(NamedTuple):
    """An ordering and what it costs."""

    name: str
    permutation: Ints  # (n,) node eliminated in each step; postordered
    parent: Ints  # (n,) elimination tree, in the order of elimination
    counts: Ints  # (n,) entries of each column of the factor

    @property
    def nnz(self) -> int:
        """Entries of the factor."""
        return int(self.counts.sum(dtype=np.int64))

    @property
    def flops(self) -> float:
        """Operations of the factorisation: the sum of the squared column counts."""
        count = self.counts.astype(np.float64)
        return float(count @ count)


def _eliminate(name: str, indptr: Longs, indices: Ints, order: Ints) -> Elimination:
    """Follow the elimination in the given order, rearranged so that the tree is postordered."""
    parent = elimination_tree(*relabel(indptr, indices, order))
    post = postorder(parent, np.full(len(parent), -1, np.int32))
    rank = np.empty(len(post) + 1, np.int32)
    rank[post] = np.arange(len(post), dtype=np.int32)
    rank[-1] = -1  # so that the parent of a root stays -1
    order = order[post]
    parent = rank[parent[post]]
    return Elimination(name, order, parent, column_counts(*relabel(indptr, indices, order), parent))


def _off_diagonal(indptr: Longs, indices: Ints) -> tuple[Ints, Ints]:
    """Rows and columns of the entries off the diagonal."""
    rows = np.repeat(np.arange(len(indptr) - 1, dtype=np.int32), np.diff(indptr))
    off = indices != rows
    if int(off.sum()) > _pattern.INT32_LIMIT:
        raise ResourceError(f"METIS cannot order {off.sum()} entries; use `ordering='minimum_degree'`.")
    return rows[off], indices[off]


def _call_metis(verb: str, rows: Ints, columns: Ints, n: int, *arguments: int) -> Any:
    """Call METIS on a graph (Karypis, Kumar 1998)."""
    starts = np.zeros(n + 1, np.int64)
    np.cumsum(np.bincount(rows, minlength=n), out=starts[1:])
    with _warnings_lock, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # deprecations within the wrapper
        import pymetis

        return getattr(pymetis, verb)(*arguments, xadj=starts.astype(np.int32), adjncy=columns)


def _metis(indptr: Longs, indices: Ints) -> Ints:
    """Return the nested dissection ordering of METIS."""
    rows, columns = _off_diagonal(indptr, indices)
    n = len(indptr) - 1
    if len(columns) == 0:
        return np.arange(n, dtype=np.int32)
    order, _ = _call_metis("nested_dissection", rows, columns, n)
    return np.asarray(order, dtype=np.int32)


def separator_size(indptr: Longs, indices: Ints) -> int:
    """How many nodes separate two halves of a graph: a good bisection's, the fewest that meet all edges between them.

    The last front of a nested dissection has about as many rows, and the whole takes some times its operations.
    """
    rows, columns = _off_diagonal(indptr, indices)
    n = len(indptr) - 1
    if len(columns) == 0:
        return 0
    half = np.asarray(_call_metis("part_graph", rows, columns, n, 2)[1])
    between = (half[rows] == 0) & (half[columns] == 1)
    (left, i), (right, j) = (np.unique(some[between], return_inverse=True) for some in (rows, columns))
    edges = csr_matrix((np.ones(len(i)), (i, j)), shape=(len(left), len(right)))
    # As many as there are edges without common ends (Kőnig 1931).
    return int(np.count_nonzero(maximum_bipartite_matching(edges) >= 0))


def _least_degrees(indptr: Longs, indices: Ints) -> Ints:
    """Return the minimum degree ordering; nodes of one or two neighbours come first where there are many of them."""
    n = len(indptr) - 1
    # From the corners of a grid, which are few, minimum degree does better than from anywhere else.
    if n > _MANY_NODES and np.count_nonzero(np.diff(indptr) <= _LOW_DEGREE) > _LOW_SHARE * n:
        order, n_done, left_indptr, left_indices = eliminate_low_degrees(indptr, indices)
        order[n_done:] = order[n_done:][minimum_degree(left_indptr, left_indices, 10.0)]
        return order
    return minimum_degree(indptr, indices, 10.0)


def _given(order: ArrayLike, n: int) -> Ints:
    """Check a permutation given by the caller."""
    array = np.asarray(order)
    faults = FaultList("no analysis was made")
    right = array.shape == (n,) and (array.dtype.kind in "iu" or n == 0)
    if not right or not np.array_equal(np.sort(array), np.arange(n)):
        received = f"an array of shape {array.shape} and type {array.dtype}"
        raise faults.raise_now("ordering", f"must be a permutation of 0 to {n - 1}", received, "Or give a name.")
    return array.astype(np.int32)


def check_ordering(ordering: str | ArrayLike, n: int) -> str | Ints:
    """Return the name of an ordering, or the permutation given by the caller; raise if it is neither."""
    if not isinstance(ordering, str):
        return _given(ordering, n)
    check_choice("ordering", ordering, _NAMES, InputError)
    return np.arange(n, dtype=np.int32) if ordering == "natural" else ordering


def choose(indptr: Longs, indices: Ints, ordering: str | Ints) -> Elimination:
    """Return the elimination for an ordering given by name, or as a permutation.

    ``"auto"`` takes the minimum degree ordering where nested dissection would take longer to find than it
    could save, and otherwise the one of the two with fewer operations.
    """
    if not isinstance(ordering, str):
        return _eliminate("given", indptr, indices, ordering)
    if ordering == "metis":
        return _eliminate("metis", indptr, indices, _metis(indptr, indices))
    order = small_ordering(indptr, indices) if len(indptr) > 1 else None
    if order is None:
        order = _least_degrees(indptr, indices)
    first = _eliminate("minimum_degree", indptr, indices, order)
    saving = first.flops * _SECONDS_PER_FLOP_SAVED
    too_large = len(indices) > _pattern.INT32_LIMIT  # for METIS
    if ordering == "minimum_degree" or too_large or saving < len(indices) * _METIS_SECONDS:
        return first
    second = _eliminate("metis", indptr, indices, _metis(indptr, indices))
    return min(first, second, key=lambda elimination: elimination.flops)
