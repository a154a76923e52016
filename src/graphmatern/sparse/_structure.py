"""Everything that the numeric kernels need to know about a pattern, and where their working memory lies.

Working memory is a stack of *update matrices*: what the subtree of a supernode subtracts from the entries
among the rows R of its front, |R| × |R|, lower triangle used.  A supernode takes those of its children and
leaves its own.  The selected inverse runs the same film backwards: a supernode takes the block of the
inverse among its rows R from the same place, and leaves a block for each child.  One plan therefore serves
both:

* Two stacks grow towards each other, one for even and one for odd depths of the tree, so that a supernode
  never writes where its children's matrices lie, and nothing is moved.
* Waiting matrices are bounded by a part of the size of the factor.  A supernode whose matrix would exceed it
  is *detached*: its matrix is added at once to the panels of its ancestors (and, in the selected inverse,
  read back from them) by searching for the rows, and does not wait on the stack.  Since R is a clique of the
  filled graph, one matrix is never larger than twice the factor.  So the working memory is a small multiple
  of the factor for every shape of tree: paths, stars, combs, or the trees of bad orderings.
* With several threads, *tasks* are runs of complete subtrees, each of which runs in the stack of the thread
  that takes it; the matrices of their roots wait in a place of their own.  The remaining supernodes, the
  *top* of the tree, follow one after the other.  Where tasks would need too much memory there are none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from graphmatern.sparse._compile import inline, jit

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ints = NDArray[np.int32]
    Longs = NDArray[np.int64]
    Flags = NDArray[np.bool_]
    Floats = NDArray[np.float64]

__all__ = ["Plan", "Step", "Structure", "make_plan", "work_of_supernodes"]

#: Fronts of at most this many rows are handled by loops, larger ones by BLAS.
SMALL_FRONT = 28

#: Waiting update matrices may take this part of the entries of the panels (and a few more, for tiny
#: matrices).
WAITING_SHARE = 0.5
_WAITING_MINIMUM = 4096

#: Less work than this, in operations, is not shared among threads: starting them would take longer.
PARALLEL_MINIMUM = 1e7
#: All threads work together on fronts of more work than this.
FRONT_MINIMUM = 2e7


class Structure(NamedTuple):
    """Supernodes of the factor and the plan of working memory, as the kernels see them."""

    start: Longs  # (size + 1,) first column of each supernode
    height: Ints  # (size,) rows of its front
    sign: NDArray[np.int8]  # (n,) of each pivot: 1, or −1 in factorisations L S Lᵀ of quasi-definite matrices
    supernode: Ints  # (n,) supernode of each column
    row_start: Longs  # (size + 1,) into rows
    rows: Ints  # rows of each front below its columns
    relative: Ints  # their positions in the front of the parent
    child_start: Longs  # (size + 1,) into child
    child: Ints  # children of each supernode
    panel: Longs  # (size + 1,) offset of each panel, columns of `height` entries, in the factor
    entry_start: Longs  # (n + 1,) into source and entry_row
    source: NDArray[np.integer]  # position in the caller's values of each entry of the permuted lower triangle
    entry_row: Ints  # its position in the front
    offset: Longs  # (size,) place of each update matrix in the working memory
    in_task: Flags  # (size,) the place is relative to the stack of the thread
    detached: Flags  # (size,) the update matrix does not wait


class Step(NamedTuple):
    """Part of the top of the tree: runs of supernodes, or one large front shared by all threads."""

    starts: Longs
    ends: Longs
    front: int  # -1 for runs


class Plan(NamedTuple):
    """How the working memory is laid out and the supernodes are shared among threads."""

    offset: Longs
    in_task: Flags
    detached: Flags
    task_start: Longs  # (n_tasks,) first supernode of each task, largest task first
    task_end: Longs
    steps: list[Step]  # the supernodes that are in no task, in ascending order
    waiting: int  # entries for the roots of tasks
    top_stack: int  # entries for the top of the tree
    task_stack: int  # entries for each thread that works on tasks


@jit
def work_of_supernodes(start: Longs, height: Ints) -> Floats:
    """Return a rough count of operations (size,) for each supernode, index handling included."""
    work = np.empty(len(height))
    for s in range(len(height)):
        width = float(start[s + 1] - start[s])
        below = height[s] - width
        flops = width * width * width / 3.0 + width * width * below + width * below * below
        work[s] = flops + 3.0 * height[s] * height[s] + 200.0
    return work


@inline
def _stack_run(
    first: int,
    last: int,
    structure: tuple[Longs, Ints, Longs, Ints],
    even: Flags,
    root: Flags,
    budget: float,
    offset: Longs,
    detached: Flags,
    tops: Longs,
) -> int:
    """Place the update matrices of supernodes ``first`` to ``last - 1``; return the extent needed.

    The odd stack grows downwards from the end; its offsets are written as negative numbers, to be
    shifted by the caller.  ``tops`` (2,) holds the present extent of the stacks.  Matrices of roots of
    tasks lie elsewhere.
    """
    start, height, child_start, child = structure
    peak = 0
    for s in range(first, last):
        below = height[s] - (start[s + 1] - start[s])
        need = np.int64(below) * below
        mine = 0 if even[s] else 1
        if not root[s]:
            tops[mine] += need
            offset[s] = tops[0] - need if mine == 0 else -tops[1]
        peak = max(peak, tops[0] + tops[1])
        for k in range(child_start[s], child_start[s + 1]):
            c = child[k]
            # Children of another run are roots of tasks, and are not on this stack.
            if not detached[c] and not root[c]:
                below = height[c] - (start[c + 1] - start[c])
                tops[1 - mine] -= np.int64(below) * below
        if not root[s] and need > 0 and tops[0] + tops[1] > budget:
            detached[s] = True
            tops[mine] -= need
    return peak


@jit
def _choose_tasks(tree: Ints, work: Floats, n_threads: int) -> tuple[Longs, Longs]:
    """Return the runs of supernodes, as starts and ends in ascending order, that threads may work on at once.

    A run consists of complete subtrees, each of them a small part of all the work, and is itself
    neither too large nor too small.
    """
    size = len(tree)
    below = work.copy()
    total = 0.0
    for s in range(size):
        total += work[s]
        if tree[s] != -1:
            below[tree[s]] += below[s]
    largest = total / (6.0 * n_threads)
    smallest = total / (100.0 * n_threads)
    starts = np.empty(size, np.int64)
    ends = np.empty(size, np.int64)
    count = 0
    s = 0
    while s < size:
        if below[s] > largest:
            s += 1
            continue
        first = s
        inside = 0.0
        end = s
        while s < size and below[s] <= largest:
            inside += work[s]
            s += 1
            if tree[s - 1] == -1 or below[tree[s - 1]] > largest:
                end = s  # a complete subtree ends here
                if inside > largest:
                    break
        s = end
        if inside >= smallest:
            starts[count] = first
            ends[count] = end
            count += 1
    return starts[:count].copy(), ends[:count].copy()


@inline
def _place_roots(start: Longs, height: Ints, tree: Ints, in_task: Flags, root: Flags, offset: Longs) -> int:
    """Find the roots of tasks and place their update matrices one after the other; return their extent."""
    extent = 0
    for s in range(len(tree)):
        if in_task[s] and tree[s] != -1 and not in_task[tree[s]]:
            root[s] = True
            below = height[s] - (start[s + 1] - start[s])
            offset[s] = extent
            extent += np.int64(below) * below
    return extent


@jit
def _lay_out(
    structure: tuple[Longs, Ints, Longs, Ints],
    tree: Ints,
    task_start: Longs,
    task_end: Longs,
    budget: float,
    even: Flags,
    root: Flags,
    in_task: Flags,
    offset: Longs,
    detached: Flags,
    tops: Longs,
    sizes: Longs,
) -> None:
    """Fill in what `_place` returns, offsets within their stacks; ``sizes`` are not rounded."""
    # Nothing but loops over numbers: what NumPy would do in a line takes seconds to compile.
    start, height, _, _ = structure
    size, tasks = len(height), len(task_start)
    for s in range(size - 1, -1, -1):
        even[s] = True if tree[s] == -1 else not even[tree[s]]
    sizes[0] = _place_roots(start, height, tree, in_task, root, offset)
    first = 0
    for t in range(2 * tasks + 1):  # the tasks, then the runs between them
        if t <= tasks:
            tops[0] = tops[1] = 0
        if t < tasks:
            kind, begin, end = 2, task_start[t], task_end[t]
        else:
            last = t == 2 * tasks
            kind, begin, end = 1, first, size if last else task_start[t - tasks]
            first = 0 if last else task_end[t - tasks]
        peak = _stack_run(begin, end, structure, even, root, budget, offset, detached, tops)
        sizes[kind] = max(sizes[kind], peak)
        if t == tasks - 1:
            for s in range(size):
                sizes[3] += detached[s]  # so far, those in tasks


def _place(
    structure: tuple[Longs, Ints, Longs, Ints], tree: Ints, task_start: Longs, task_end: Longs, budget: float
) -> tuple[Longs, Flags, Flags, Longs]:
    """Return ``offset``, ``in_task``, ``detached``, (waiting, top_stack, task_stack, detached in tasks)."""
    even, root, in_task, detached = np.zeros((4, len(tree)), np.bool_)
    offset, tops, sizes = np.zeros(len(tree), np.int64), np.zeros(2, np.int64), np.zeros(4, np.int64)
    for a, b in zip(task_start, task_end, strict=True):
        in_task[a:b] = True
    _lay_out(structure, tree, task_start, task_end, budget, even, root, in_task, offset, detached, tops, sizes)
    sizes[:3] = (sizes[:3] + 7) // 8 * 8  # stacks begin at multiples of 64 bytes
    odd = ~even
    offset[in_task & ~root & odd] += sizes[2]
    offset[~in_task] += sizes[0]
    offset[~in_task & odd] += sizes[1]
    return offset, in_task & ~root, detached, sizes  # the place of a root does not depend on the thread


def _steps(in_task: Flags, work: Floats, n_threads: int) -> list[Step]:
    """Return the parts of the top of the tree, in ascending order."""
    size = len(work)
    large = np.flatnonzero((work > FRONT_MINIMUM) & ~in_task) if n_threads > 1 else np.empty(0, np.int64)
    inside = np.flatnonzero(np.diff(np.concatenate([[True], in_task, [True]]).astype(np.int8)))
    starts, ends = inside[0::2], inside[1::2]  # runs of the top, large fronts included
    steps = []
    first = 0
    for front in [*large.tolist(), size]:
        # Cut the runs between the previous large front and this one.
        a, b = np.maximum(starts, first), np.minimum(ends, front)
        kept = a < b
        if kept.any():
            steps.append(Step(a[kept], b[kept], -1))
        if front < size:
            steps.append(Step(starts[:0], ends[:0], front))
        first = front + 1
    return steps


def make_plan(
    start: Longs, height: Ints, tree: Ints, child_start: Longs, child: Ints, n_entries: int, n_threads: int
) -> Plan:
    """Lay out the working memory for a factor whose panels have ``n_entries`` in all."""
    budget = WAITING_SHARE * n_entries + _WAITING_MINIMUM
    nothing = np.empty(0, np.int64)
    task_start, task_end = nothing, nothing
    work = work_of_supernodes(start, height)
    if n_threads > 1 and work.sum() > PARALLEL_MINIMUM:
        task_start, task_end = _choose_tasks(tree, work, n_threads)
        if len(task_start) < 2:
            task_start, task_end = nothing, nothing
    placed = _place((start, height, child_start, child), tree, task_start, task_end, budget)
    waiting, _, task_stack, n_detached = placed[-1]
    if len(task_start) and (n_detached > 0 or waiting + n_threads * task_stack > 2 * budget):
        # A detached supernode writes to ancestors that other threads might be writing to.
        task_start, task_end = nothing, nothing
        placed = _place((start, height, child_start, child), tree, task_start, task_end, budget)
    offset, in_task, detached, sizes = placed
    taken = np.zeros(len(height), np.bool_)
    for a, b in zip(task_start, task_end, strict=True):
        taken[a:b] = True
    load = np.array([-work[a:b].sum() for a, b in zip(task_start, task_end, strict=True)])
    largest_first = np.argsort(load, kind="stable")
    return Plan(
        offset,
        in_task,
        detached,
        task_start[largest_first],
        task_end[largest_first],
        _steps(taken, work, n_threads),
        int(sizes[0]),
        int(sizes[1]),
        int(sizes[2]),
    )
