"""Symbolic Cholesky factorisation: where the factor has entries, found without any arithmetic on values.

Column j of the factor L belongs to a *supernode*: consecutive columns with (nearly) the same rows, stored
as one dense panel.  The *front* of a supernode is the list of its columns followed by the rows below them.
The elimination tree says which supernode needs which: the parent of a supernode holds its first row below
the columns.

References
----------
* J. W. H. Liu, "The role of elimination trees in sparse factorization", SIAM J. Matrix Anal. Appl. 11 (1990)
  134–172.
* J. R. Gilbert, E. G. Ng, B. W. Peyton, "An efficient algorithm to compute row and column counts for sparse
  Cholesky factorization", SIAM J. Matrix Anal. Appl. 15 (1994) 1075–1091.
* C. Ashcraft, R. Grimes, "The influence of relaxed supernode partitions on the multifrontal method", ACM
  Trans. Math. Softw. 15 (1989) 291–309.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from graphmatern.sparse._compile import inline, jit

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int32]
    Longs = NDArray[np.int64]

__all__ = [
    "children_lists",
    "column_counts",
    "elimination_tree",
    "entry_positions",
    "postorder",
    "relative_rows",
    "row_lists",
    "supernodes",
]


@jit
def elimination_tree(indptr: Longs, indices: Ints) -> Ints:
    """Return the parent (n,) of each column, its first row below the diagonal of L; -1 for roots."""
    n = len(indptr) - 1
    parent = np.full(n, -1, np.int32)
    ancestor = np.full(n, -1, np.int32)  # shortcuts towards the root
    for k in range(n):
        for p in range(indptr[k], indptr[k + 1]):
            i = indices[p]
            while i != -1 and i < k:
                above = ancestor[i]
                ancestor[i] = k
                if above == -1:
                    parent[i] = k
                i = above
    return parent


@jit
def postorder(parent: Ints, first_child: Ints) -> Ints:
    """Return the nodes (n,) of a forest with every subtree before its root, and consecutive.

    ``first_child`` (n,) names the child whose subtree is to come first, or -1 where it does not matter.
    """
    n = len(parent)
    child = np.full(n, -1, np.int32)
    sibling = np.full(n, -1, np.int32)
    for j in range(n - 1, -1, -1):
        if parent[j] != -1:
            sibling[j] = child[parent[j]]
            child[parent[j]] = j
    for j in range(n):
        favourite = first_child[j]
        if favourite != -1 and child[j] != favourite:
            i = child[j]
            while sibling[i] != favourite:
                i = sibling[i]
            sibling[i] = sibling[favourite]
            sibling[favourite] = child[j]
            child[j] = favourite
    order = np.empty(n, np.int32)
    stack = np.empty(n, np.int32)
    k = 0
    for root in range(n):
        if parent[root] != -1:
            continue
        depth = 0
        stack[0] = root
        while depth >= 0:
            j = stack[depth]
            i = child[j]
            if i == -1:
                order[k] = j
                k += 1
                depth -= 1
            else:
                child[j] = sibling[i]
                depth += 1
                stack[depth] = i
    return order


@jit
def column_counts(indptr: Longs, indices: Ints, parent: Ints) -> Ints:
    """Return the number of entries (n,) in each column of L, diagonal included, for a postordered tree.

    Column j of L is the union of rows that reach j from below.  Each row is a subtree; counting its
    leaves, and subtracting what two neighbouring leaves share, gives all counts in almost linear time
    (Gilbert, Ng, Peyton).
    """
    n = len(parent)
    count = np.zeros(n, np.int32)
    first = np.full(n, -1, np.int32)  # first descendant
    latest = np.full(n, -1, np.int32)  # first descendant of the last leaf seen of row subtree i
    leaf = np.full(n, -1, np.int32)  # that leaf
    ancestor = np.arange(n).astype(np.int32)
    for k in range(n):
        j = k
        count[j] = 1 if first[j] == -1 else 0
        while j != -1 and first[j] == -1:
            first[j] = k
            j = parent[j]
    for j in range(n):
        if parent[j] != -1:
            count[parent[j]] -= 1
        for p in range(indptr[j], indptr[j + 1]):
            i = indices[p]
            if i <= j or first[j] <= latest[i]:
                continue
            latest[i] = first[j]
            previous = leaf[i]
            leaf[i] = j
            count[j] += 1
            if previous != -1:
                count[_find(ancestor, previous)] -= 1
        if parent[j] != -1:
            ancestor[j] = parent[j]
    for j in range(n):
        if parent[j] != -1:
            count[parent[j]] += count[j]
    return count


@inline
def _find(parent: Ints, node: int) -> int:
    """Return the root of ``node``, and let everything on the way point to it."""
    root = node
    while root != parent[root]:
        root = parent[root]
    while node != root:
        above = parent[node]
        parent[node] = root
        node = above
    return root


@inline
def _worth_merging(n_columns: int, n_rows: int, share: float) -> bool:
    """Decide whether a merged supernode may hold this share of zeros; small ones may hold a larger one."""
    if n_rows > 64 or n_columns > 48:
        return share < 0.03
    if n_columns <= 4:
        return share < 0.5
    if n_columns <= 16:
        return share < 0.25
    return share < 0.10


def _fundamental(parent: Ints, count: Ints) -> tuple[Ints, Ints]:
    """Group columns of exactly equal rows; return the supernode (n,) of each column, and their starts."""
    n = len(parent)
    n_children = np.bincount(parent[parent >= 0], minlength=n)
    begins = np.ones(n, np.bool_)
    begins[1:] = (parent[:-1] != np.arange(1, n)) | (count[:-1] != count[1:] + 1) | (n_children[1:] > 1)
    start = np.append(np.flatnonzero(begins), n).astype(np.int32)
    return np.cumsum(begins, dtype=np.int32) - np.int32(1), start


@jit
def _amalgamate(parent: Ints, width: Ints, height: Ints, unknowns: int) -> Ints:
    """Merge children into their parents where that costs few zeros; update ``width`` and ``height``.

    Small fronts are dominated by the handling of indices, so that a few operations on zeros are a good
    bargain. With several unknowns at each node, fronts are as many times larger.

    Returns the supernode (size,) into which each was merged, itself for those that remain.
    """
    size = len(parent)
    into = np.empty(size, np.int32)
    for s in range(size):
        into[s] = s
    zeros = np.zeros(size)
    for s in range(size - 1):
        p = parent[s]
        if p == -1:
            continue
        # The parent may grow by other children later, but is not merged upwards before its turn: p > s.
        new_zeros = np.int64(width[s]) * (width[s] + height[p] - height[s])
        n_columns = np.int64(width[s]) + width[p]
        n_rows = np.int64(width[s]) + height[p]
        entries = n_columns * float(n_rows) - 0.5 * n_columns * (n_columns - 1.0)
        total = zeros[s] + zeros[p] + new_zeros
        share = total / entries
        # A long list of rows: passing on its update matrix costs more than some operations on zeros.
        below = unknowns * float(height[s] - width[s])
        extra = unknowns * unknowns * unknowns * width[s] * (float(n_rows) * n_rows - float(height[s]) * height[s])
        saving = below > 64.0 and extra < 10.0 * below * below and share < 0.3
        if new_zeros == 0 or saving or _worth_merging(unknowns * n_columns, unknowns * n_rows, share):
            into[s] = p
            width[p] = n_columns
            height[p] = n_rows
            zeros[p] = total
    return into


@jit
def _heaviest_child(parent: Ints, width: Ints, height: Ints) -> Ints:
    """Return the child (size,) to visit first so that the update matrices waiting on the stack stay few.

    After Liu (1986): first the child whose subtree needs most memory beyond what it leaves behind.
    """
    size = len(parent)
    best = np.full(size, -1, np.int32)
    best_need = np.zeros(size)
    waiting = np.zeros(size)
    for s in range(size):
        update = float(height[s] - width[s])
        update *= update
        peak = max(waiting[s] + best_need[s], waiting[s] + update)
        p = parent[s]
        if p != -1:
            waiting[p] += update
            if peak - update > best_need[p] or best[p] == -1:
                best_need[p] = peak - update
                best[p] = s
    return best


def supernodes(parent: Ints, count: Ints, unknowns: int) -> tuple[Ints, Longs, Ints, Ints, Ints]:
    """Group the columns of a postordered tree into supernodes, with some number of unknowns at each node.

    Returns
    -------
    order : (n,)
        Columns in their final order, supernode after supernode.
    start : (size + 1,)
        First column of each supernode, in the new numbering.
    height : (size,)
        Length of each front: columns and rows below them.
    tree : (size,)
        Parent of each supernode, -1 for roots; the tree is postordered.
    supernode : (n,)
        Supernode of each column, in the new numbering.
    """
    # Only what goes from one supernode to the next is compiled: that takes longer than all the rest.
    fundamental, first = _fundamental(parent, count)
    tree = _mapped(fundamental, parent[first[1:] - 1])
    width, height = np.diff(first), count[first[:-1]]
    into = _amalgamate(tree, width, height, unknowns)
    return _renumber(fundamental, tree, width, height, into)


def _mapped(label: Ints, nodes: Ints) -> Ints:
    """Return the labels of nodes; -1 stays -1."""
    return np.where(nodes < 0, np.int32(-1), label[nodes])


def _renumber(
    fundamental: Ints, tree: Ints, width: Ints, height: Ints, into: Ints
) -> tuple[Ints, Longs, Ints, Ints, Ints]:
    """Give numbers in postorder to the supernodes that remain, and the columns along with them."""
    kept = np.flatnonzero(into == np.arange(len(into)))
    last = into  # each is merged into a later one, which may be merged itself
    while not np.array_equal(last, further := last[last]):
        last = further
    label = np.zeros(len(into), np.int32)
    label[kept] = np.arange(len(kept))
    label = label[last]
    kept_tree, kept_width, kept_height = _mapped(label, tree[kept]), width[kept], height[kept]
    post = postorder(kept_tree, _heaviest_child(kept_tree, kept_width, kept_height))
    rank = np.empty(len(post), np.int32)
    rank[post] = np.arange(len(post))
    widths = kept_width[post]
    start = np.concatenate([[0], np.cumsum(widths, dtype=np.int64)])
    order = children_lists(rank[label[fundamental]])[1]
    supernode = np.repeat(np.arange(len(post), dtype=np.int32), widths)
    return order, start, kept_height[post], _mapped(rank, kept_tree[post]), supernode


@jit
def row_lists(
    indptr: Longs, indices: Ints, permutation: Ints, start: Longs, height: Ints, tree: Ints, supernode: Ints
) -> tuple[Longs, Ints]:
    """Return the rows below the columns of each supernode, sorted: ``row_start`` (size + 1,) and ``rows``.

    Row i of L reaches the supernodes on the paths of the tree that lead from the entries of row i of
    the matrix up to i itself.  Taking the rows in turn fills all lists in sorted order.
    """
    n = len(permutation)
    size = len(height)
    label = np.empty(n, np.int32)
    for k in range(n):
        label[permutation[k]] = k
    row_start = np.zeros(size + 1, np.int64)
    for s in range(size):
        row_start[s + 1] = row_start[s] + height[s] - (start[s + 1] - start[s])
    rows = np.empty(row_start[size], np.int32)
    free = row_start[:-1].copy()
    seen = np.full(size, -1, np.int32)
    for i in range(n):
        seen[supernode[i]] = i
        node = permutation[i]
        for p in range(indptr[node], indptr[node + 1]):
            j = label[indices[p]]
            if j >= i:
                continue
            s = supernode[j]
            while seen[s] != i:
                seen[s] = i
                rows[free[s]] = i
                free[s] += 1
                s = tree[s]
    return row_start, rows


@jit
def relative_rows(start: Longs, tree: Ints, row_start: Longs, rows: Ints, child_start: Longs, child: Ints) -> Ints:
    """Return, for each entry of ``rows``, its position in the front of the parent supernode."""
    relative = np.empty(len(rows), np.int32)
    position = np.empty(start[-1], np.int32)
    for s in range(len(tree)):
        if child_start[s] == child_start[s + 1]:
            continue
        begin = start[s]
        end = start[s + 1]
        for j in range(begin, end):
            position[j] = j - begin
        for p in range(row_start[s], row_start[s + 1]):
            position[rows[p]] = end - begin + p - row_start[s]
        for k in range(child_start[s], child_start[s + 1]):
            c = child[k]
            for p in range(row_start[c], row_start[c + 1]):
                relative[p] = position[rows[p]]
    return relative


@jit
def children_lists(tree: Ints) -> tuple[Longs, Ints]:
    """Return the children of each supernode in ascending order: ``child_start`` (size + 1,) and ``child``."""
    size = len(tree)
    child_start = np.zeros(size + 1, np.int64)
    for s in range(size):
        if tree[s] != -1:
            child_start[tree[s] + 1] += 1
    for s in range(size):
        child_start[s + 1] += child_start[s]
    child = np.empty(child_start[size], np.int32)
    free = child_start[:-1].copy()
    for s in range(size):
        if tree[s] != -1:
            child[free[tree[s]]] = s
            free[tree[s]] += 1
    return child_start, child


@jit
def entry_positions(
    indptr: Longs,
    indices: Ints,
    origin: Longs,
    permutation: Ints,
    start: Longs,
    row_start: Longs,
    rows: Ints,
    source: NDArray[np.integer],
) -> tuple[Longs, Ints]:
    """Find where the entries of the matrix go in the panels.

    ``origin`` (n,) says where the values of each column of the pattern begin in the caller's array.

    Returns ``entry_start`` (n + 1,) and ``entry_row``: the entries ``entry_start[j]`` up to
    ``entry_start[j + 1]`` of column j of the permuted lower triangle have the values at ``source``
    (filled here) of the caller's array, and lie at the positions ``entry_row`` of their front.  The
    diagonal is the first entry of its column.
    """
    n = len(permutation)
    label = np.empty(n, np.int32)
    for k in range(n):
        label[permutation[k]] = k
    entry_start = np.zeros(n + 1, np.int64)
    entry_row = np.empty(len(source), np.int32)
    position = np.empty(n, np.int32)
    count = 0
    for s in range(len(start) - 1):
        begin = start[s]
        width = start[s + 1] - begin
        for j in range(begin, begin + width):
            position[j] = j - begin
        for p in range(row_start[s], row_start[s + 1]):
            position[rows[p]] = width + p - row_start[s]
        for j in range(begin, begin + width):
            node = permutation[j]
            first = count
            for p in range(indptr[node], indptr[node + 1]):
                i = label[indices[p]]
                if i >= j:
                    source[count] = origin[node] + p - indptr[node]
                    entry_row[count] = position[i]
                    if i == j:  # the diagonal comes first
                        source[count], source[first] = source[first], source[count]
                        entry_row[count], entry_row[first] = entry_row[first], entry_row[count]
                    count += 1
            entry_start[j + 1] = count
    return entry_start, entry_row
