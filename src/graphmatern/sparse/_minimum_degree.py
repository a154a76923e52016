"""Approximate minimum degree ordering.

The ordering of P. R. Amestoy, T. A. Davis and I. S. Duff, "An approximate minimum degree ordering
algorithm", SIAM J. Matrix Anal. Appl. 17 (1996) 886–905, written from the paper.  Gaussian elimination of a
symmetric matrix is followed on a *quotient graph*: an eliminated node (pivot) becomes an *element*, the
clique of its neighbours, which is stored as one list.  Nodes not yet eliminated are *variables*; their
lists hold elements first, then those variables that no element already connects them to.  The quotient
graph never needs more room than the matrix.

What makes it fast: an element whose variables all lie in the new one is absorbed by it; variables with
equal lists are merged into one of larger weight, found by hashing; a variable with no neighbour outside the
new element is eliminated with it; and degrees are bounds from above that cost one pass over the lists, not
exact counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from graphmatern.sparse._compile import inline, inner, jit

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int32]
    Longs = NDArray[np.int64]

__all__ = ["minimum_degree"]


class _Quotient(NamedTuple):
    """The quotient graph; index i is a node, be it variable, element or gone."""

    lists: Ints  # all adjacency lists, with gaps
    start: Longs  # position of the list of i
    length: Ints  # its length
    n_elements: Ints  # how many of a variable's entries are elements
    weight: Ints  # original nodes merged into i; 0: gone; negative: in the element being made
    degree: Ints  # bound on a variable's degree; weight of an element's variables
    stamp: Longs  # 0: gone; else last mark
    head: Ints  # first variable of a given degree
    following: Ints  # next variable of the same degree, or of the same hash
    preceding: Ints  # previous variable of the same degree, or the hash
    bucket: Ints  # first variable of a given hash
    member: Ints  # next of the original nodes merged into the same variable
    last_member: Ints


@inline
def _link(graph: _Quotient, i: int, degree: int) -> None:
    """Enter variable i into the list of its degree."""
    first = graph.head[degree]
    graph.following[i] = first
    graph.preceding[i] = -1
    if first != -1:
        graph.preceding[first] = i
    graph.head[degree] = i
    graph.degree[i] = degree


@inline
def _unlink(graph: _Quotient, i: int) -> None:
    """Take variable i from the list of its degree."""
    after = graph.following[i]
    before = graph.preceding[i]
    if after != -1:
        graph.preceding[after] = before
    if before != -1:
        graph.following[before] = after
    else:
        graph.head[graph.degree[i]] = after


@inline
def _merge(graph: _Quotient, i: int, into: int) -> None:
    """Make i one of the nodes that ``into`` stands for."""
    graph.weight[i] = 0
    graph.stamp[i] = 0
    graph.member[graph.last_member[into]] = i
    graph.last_member[into] = graph.last_member[i]


@inner
def _collect_garbage(graph: _Quotient, end: int) -> int:
    """Close the gaps between the lists; return the new end."""
    lists, start = graph.lists, graph.start
    for i in range(len(start)):
        if graph.stamp[i] != 0 and graph.length[i] > 0:
            # The first entry gives way to a sign that list i begins here.
            first = lists[start[i]]
            lists[start[i]] = -(i + 1)
            start[i] = first
    read = 0
    write = 0
    while read < end:
        entry = lists[read]
        if entry >= 0:
            read += 1
            continue
        i = -entry - 1
        lists[write] = start[i]
        start[i] = write
        for k in range(1, graph.length[i]):
            lists[write + k] = lists[read + k]
        write += graph.length[i]
        read += graph.length[i]
    return write


@inline
def _make_element(graph: _Quotient, pivot: int, end: int) -> tuple[int, int]:
    """Turn the pivot into an element: the union of its variables and those of its elements, which it absorbs.

    Returns the weight of the element and the new end of the lists.
    """
    lists, weight = graph.lists, graph.weight
    n_elements = graph.n_elements[pivot]
    begin = graph.start[pivot]
    weight[pivot] = -weight[pivot]
    write = end if n_elements > 0 else begin
    first = write
    total = 0
    for k in range(n_elements + 1):
        if k == n_elements:
            source = pivot
            read = begin + n_elements
            count = graph.length[pivot] - n_elements
        else:
            source = lists[begin + k]
            read = graph.start[source]
            count = graph.length[source] if graph.stamp[source] != 0 else 0
            graph.stamp[source] = 0
        for position in range(read, read + count):
            i = lists[position]
            if weight[i] > 0:
                total += weight[i]
                weight[i] = -weight[i]
                lists[write] = i
                write += 1
                _unlink(graph, i)
    graph.start[pivot] = first
    graph.length[pivot] = write - first
    graph.degree[pivot] = total
    return total, write if n_elements > 0 else end


@inline
def _measure_elements(graph: _Quotient, pivot: int, mark: int) -> None:
    """Set ``stamp[e] - mark`` to the weight of element e outside the new one, for all elements next to it."""
    lists, stamp = graph.lists, graph.stamp
    begin = graph.start[pivot]
    for position in range(begin, begin + graph.length[pivot]):
        i = lists[position]
        weight = -graph.weight[i]
        for k in range(graph.start[i], graph.start[i] + graph.n_elements[i]):
            e = lists[k]
            if stamp[e] >= mark:
                stamp[e] -= weight
            elif stamp[e] != 0:
                stamp[e] = graph.degree[e] + mark - weight


@inline
def _update_variable(graph: _Quotient, i: int, pivot: int, mark: int) -> bool:
    """Tidy the list of variable i, bound its degree outside the new element and enter it into a hash bucket.

    Returns False if the degree is zero: i can then be eliminated with the pivot.
    """
    lists, stamp = graph.lists, graph.stamp
    begin = graph.start[i]
    write = begin
    degree = 0
    total = 0  # of the entries, a hash of the list
    for k in range(begin, begin + graph.n_elements[i]):
        e = lists[k]
        if stamp[e] == 0:
            continue
        outside = stamp[e] - mark
        if outside > 0:
            degree += outside
            total += e
            lists[write] = e
            write += 1
        else:
            stamp[e] = 0  # lies inside the new element: absorbed
    variables = begin + graph.n_elements[i]
    n_elements = write - begin
    for k in range(variables, begin + graph.length[i]):
        j = lists[k]
        if graph.weight[j] > 0:
            degree += graph.weight[j]
            total += j
            lists[write] = j
            write += 1
    if degree == 0:
        return False
    # The new element comes first.  There is room: i has lost the pivot, or an element that the pivot
    # absorbed.
    lists[write] = lists[begin + n_elements]
    lists[begin + n_elements] = lists[begin]
    lists[begin] = pivot
    graph.n_elements[i] = n_elements + 1
    graph.length[i] = write - begin + 1
    graph.degree[i] = min(graph.degree[i], degree)
    slot = total % len(graph.bucket)
    graph.following[i] = graph.bucket[slot]
    graph.bucket[slot] = i
    graph.preceding[i] = slot
    return True


@inline
def _equal_lists(graph: _Quotient, i: int, j: int, mark: int) -> bool:
    """Tell whether j has the list of i, whose entries are stamped with ``mark``."""
    if graph.length[j] != graph.length[i] or graph.n_elements[j] != graph.n_elements[i]:
        return False
    begin = graph.start[j]
    k = begin + 1  # the first entry is the new element, for both
    end = begin + graph.length[j]
    while k < end and graph.stamp[graph.lists[k]] == mark:
        k += 1
    return k == end


@inline
def _merge_equal_variables(graph: _Quotient, pivot: int, mark: int) -> int:
    """Merge those variables of the new element whose lists are equal; return the next unused mark."""
    begin = graph.start[pivot]
    for position in range(begin, begin + graph.length[pivot]):
        i = graph.lists[position]
        if graph.weight[i] == 0:
            continue
        slot = graph.preceding[i]
        i = graph.bucket[slot]
        graph.bucket[slot] = -1
        while i != -1 and graph.following[i] != -1:
            for k in range(graph.start[i] + 1, graph.start[i] + graph.length[i]):
                graph.stamp[graph.lists[k]] = mark
            last = i
            j = graph.following[i]
            while j != -1:
                after = graph.following[j]
                if _equal_lists(graph, i, j, mark):
                    graph.weight[i] += graph.weight[j]
                    _merge(graph, j, i)
                    graph.following[last] = after
                else:
                    last = j
                j = after
            mark += 1
            i = graph.following[i]
    return mark


@inline
def _finish_element(graph: _Quotient, pivot: int, total: int, n_left: int, smallest: int) -> int:
    """Keep only living variables in the new element and enter them into their degree lists.

    Returns a bound from below on the smallest degree.
    """
    begin = graph.start[pivot]
    write = begin
    for position in range(begin, begin + graph.length[pivot]):
        i = graph.lists[position]
        weight = -graph.weight[i]
        if weight > 0:
            graph.weight[i] = weight
            degree = min(graph.degree[i] + total - weight, n_left - weight)
            _link(graph, i, degree)
            smallest = min(smallest, degree)
            graph.lists[write] = i
            write += 1
    graph.length[pivot] = write - begin
    if write == begin:
        graph.stamp[pivot] = 0
    return smallest


@inner
def _quotient_graph(indptr: Longs, indices: Ints, dense: float) -> tuple[_Quotient, int, int]:
    """Return the graph before any elimination, the end of its lists, and the number of dense nodes."""
    n = len(indptr) - 1
    nnz = indptr[n]
    graph = _Quotient(
        np.empty(nnz + nnz // 5 + 2 * n + 1, np.int32),
        np.empty(n, np.int64),
        np.empty(n, np.int32),
        np.zeros(n, np.int32),
        np.ones(n, np.int32),
        np.empty(n, np.int32),
        np.ones(n, np.int64),
        np.full(n + 1, -1, np.int32),
        np.full(n, -1, np.int32),
        np.full(n, -1, np.int32),
        np.full(n, -1, np.int32),
        np.full(n, -1, np.int32),
        np.arange(n).astype(np.int32),
    )
    end = 0
    n_dense = 0
    for j in range(n):
        graph.start[j] = end
        for p in range(indptr[j], indptr[j + 1]):
            if indices[p] != j:
                graph.lists[end] = indices[p]
                end += 1
        degree = end - graph.start[j]
        graph.length[j] = degree
        if degree > dense:
            graph.weight[j] = 0
            graph.stamp[j] = 0
            n_dense += 1
        else:
            _link(graph, j, degree)
    return graph, end, n_dense


@inner
def _eliminate(graph: _Quotient, end: int, n_left: int, order: Ints) -> int:
    """Eliminate all variables, writing them to ``order``; return how many were written."""
    mark = 2
    largest = 0
    smallest = 0
    n_done = 0
    while n_left > 0:
        while graph.head[smallest] == -1:
            smallest += 1
        pivot = graph.head[smallest]
        _unlink(graph, pivot)
        if graph.n_elements[pivot] > 0 and end + smallest >= len(graph.lists):
            end = _collect_garbage(graph, end)
        n_left -= graph.weight[pivot]
        total, end = _make_element(graph, pivot, end)
        _measure_elements(graph, pivot, mark)
        begin = graph.start[pivot]
        for position in range(begin, begin + graph.length[pivot]):
            i = graph.lists[position]
            if not _update_variable(graph, i, pivot, mark):
                n_left += graph.weight[i]  # negative
                total += graph.weight[i]
                _merge(graph, i, pivot)
        graph.degree[pivot] = total
        largest = max(largest, total)
        # No stamp of _measure_elements is as large as the next mark.
        mark = _merge_equal_variables(graph, pivot, mark + largest + 1) + largest + 1
        smallest = _finish_element(graph, pivot, total, n_left, smallest)
        node = pivot
        while node != -1:
            order[n_done] = node
            n_done += 1
            node = graph.member[node]
    return n_done


@jit
def minimum_degree(indptr: Longs, indices: Ints, dense_factor: float = 10.0) -> Ints:
    """Return an elimination order (n,) of small fill for a symmetric pattern.

    Nodes with more than ``max(16, dense_factor * sqrt(n))`` neighbours come last: they would fill the graph
    whenever they were eliminated, and their long lists would be searched again and again before.

    Examples
    --------
    A star: the leaves come first.

    >>> import numpy as np
    >>> indptr, indices = np.array([0, 4, 6, 8, 10]), np.array([0, 1, 2, 3, 0, 1, 0, 2, 0, 3], np.int32)
    >>> bool(minimum_degree(indptr, indices)[-1] in (0, 1, 2, 3))
    True
    """
    n = len(indptr) - 1
    dense = max(16.0, dense_factor * np.sqrt(n))
    graph, end, n_dense = _quotient_graph(indptr, indices, dense)
    set_aside = graph.weight == 0
    order = np.empty(n, np.int32)
    n_done = _eliminate(graph, end, n - n_dense, order)
    for i in range(n):
        if set_aside[i]:
            order[n_done] = i
            n_done += 1
    return order
