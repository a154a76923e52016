"""A graph whose rows are spread over processes."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import coo_array, csr_array
from scipy.sparse.csgraph import connected_components

from graphmatern._validation import check_choice
from graphmatern.distributed._edges import EdgeReader, Edges, merged_edges, without_loops
from graphmatern.distributed._halo import Halo
from graphmatern.distributed._names import NameDirectory, block_bounds
from graphmatern.distributed._partition import partition
from graphmatern.distributed._processes import world
from graphmatern.distributed._rows import SpreadRows
from graphmatern.errors import GraphError
from graphmatern.graph import PARALLEL_RULES

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from graphmatern.distributed._processes import Processes

    Floats = NDArray[np.float64]
    Longs = NDArray[np.int64]

__all__ = ["DistributedGraph"]


class DistributedGraph:
    """A weighted undirected graph whose nodes are spread over processes; made by `from_files`.

    Attributes
    ----------
    n_nodes, n_edges : int
        Nodes and distinct pairs, over all processes.
    names : ndarray, shape (n_here,)
        Names of this process's nodes: whole numbers or text.
    rows : SpreadRows
        Which nodes these are.
    weights : csr_array, shape (n_here, n_nodes)
        Rows of the weight matrix; columns are numbered as the processes hold them, one after the other.
    degrees : ndarray, shape (n_here,)
        Sums of weights.
    components : ndarray of int64, shape (n_here,)
        Connected components of this process's nodes, numbered here; `SpreadRows.across` knows which go on elsewhere.
    masses : None
        Always None: node masses are not supported.

    Examples
    --------
    Under ``mpiexec -n 4 python script.py``, from a folder of tables with columns ``source`` and ``target``::

        from graphmatern.distributed import DistributedGraph, GraphGPRegressor

        graph = DistributedGraph.from_files("edges/")
        model = GraphGPRegressor(graph).fit_files("values.parquet")
    """

    masses = None

    def __init__(
        self,
        processes: Processes,
        directory: NameDirectory,
        names: NDArray[Any],
        rows: SpreadRows,
        weights: csr_array[Any],
        homes: _Homes,
    ) -> None:
        self.processes, self.names, self.rows, self.weights = processes, names, rows, weights
        self.directory, self._homes = directory, homes
        self.n_nodes = rows.n
        self.n_edges = int(processes.total(int(weights.nnz))) // 2
        self.degrees: Floats = np.asarray(weights.sum(axis=1), dtype=np.float64).ravel()
        self._cache: dict[Any, Any] = {}

    # ------------------------------------------------------------------ making one
    @classmethod
    def from_files(
        cls,
        path: str | Path,
        *,
        source: str | None = None,
        target: str | None = None,
        weight: str | None = None,
        length: str | None = None,
        parallel: str = "error",
        processes: Processes | None = None,
    ) -> DistributedGraph:
        """Read the edges from a table, or from a folder of tables, each process a part.

        Parameters
        ----------
        path : str or Path
            CSV, TSV, Parquet or Excel file, or a folder of such files. Row groups of Parquet files are read by
            different processes, other files are read whole by one.
        source, target, weight, length : str, optional
            Columns; by default they are found by their names, as `Graph.from_edges` and the command line do.
        parallel : {"error", "sum", "mean_length", "first"}
            What to do with rows that join the same two nodes. An edge that appears in two parts was usually written
            twice by mistake, so it is refused unless you say what it means.
        processes : Processes, optional
            The processes to use; all by default.

        Returns
        -------
        DistributedGraph

        Raises
        ------
        GraphError
            Listing every fault with its file and row; the same on all processes.
        """
        check_choice("parallel", parallel, PARALLEL_RULES, GraphError)
        processes = world() if processes is None else processes
        given = {"source": source, "target": target, "weight": weight, "length": length}
        reader = EdgeReader(processes, path, given)
        names, places, edges, weighting = reader.read()
        directory = NameDirectory(processes, names, places)
        del names, places
        ends = np.split(directory.take_keys(), 2)
        edges = Edges(ends[0], ends[1], edges.weight, edges.row)
        del ends
        edges = without_loops(processes, edges)
        if weighting == "length" and parallel != "mean_length":
            mean = processes.total(float(edges.weight.sum())) / max(processes.total(len(edges.row)), 1)
            edges = Edges(edges.source, edges.target, mean / edges.weight, edges.row)
        bounds = block_bounds(directory.n_nodes, processes.size)
        merged = merged_edges(processes, edges, bounds, weighting, parallel, reader)
        return cls._arranged(processes, directory, merged, bounds)

    @classmethod
    def _arranged(
        cls, processes: Processes, directory: NameDirectory, merged: Edges, bounds: Longs
    ) -> DistributedGraph:
        """Send every node to the process that is to hold it."""
        low, high = bounds[processes.rank : processes.rank + 2].tolist()
        own = csr_array(
            (merged.weight, merged.target, np.searchsorted(merged.source, np.arange(low, high + 1))),
            shape=(high - low, directory.n_nodes),
        )
        homes = partition(processes, own)
        # Keys, and with them neighbours, go to their new homes; numbers there follow the processes, then the keys.
        (keys,), _ = processes.send([np.arange(low, high)], homes)
        rows = SpreadRows(processes, np.sort(keys))
        graph_homes = _Homes(processes, bounds, homes)
        counts = np.diff(own.indptr)
        entries = [np.repeat(np.arange(low, high), counts), merged.target, merged.weight]
        received = processes.send(entries, np.repeat(homes, counts))[0]
        del entries, own, counts
        order = np.lexsort((received[1], received[0]))
        for place, column in enumerate(received):
            received[place] = column[order]
        source, target, weight = received
        del received, order, column
        columns = graph_homes.numbers(target, rows)
        pointers = np.searchsorted(source, np.append(rows.keys, np.iinfo(np.int64).max))
        weights = csr_array((weight, columns, pointers), shape=(rows.n_here, rows.n))
        weights.sort_indices()
        (known, names), _ = processes.send([directory.numbers, directory.names], graph_homes.of(directory.numbers))
        named = names[np.argsort(known)]
        return cls(processes, directory, named, rows, weights, graph_homes)

    # ------------------------------------------------------------------ who holds what
    def home_of(self, keys: Longs) -> Longs:
        """Processes that hold nodes; shape (n,)."""
        return self._homes.of(keys)

    def cached(self, key: Any, make: Any) -> Any:
        """What was made before for a key, or is made now."""
        if key not in self._cache:
            self._cache[key] = make()
        return self._cache[key]

    @cached_property
    def first(self) -> int:
        """Number of the column that stands for the first node here."""
        return self.processes.before(self.rows.n_here)

    # ------------------------------------------------------------------ matrices
    def laplacian(self, normalized: bool = False) -> csr_array[Any]:
        """Rows of a Laplacian that are here; shape (n_here, n_nodes)."""
        if not normalized:
            return csr_array(self._diagonal(self.degrees) - self.weights)
        with np.errstate(divide="ignore"):
            root = np.where(self.degrees > 0, 1.0 / np.sqrt(self.degrees), 0.0)
        scaled = self.weights.copy()
        scaled.data *= np.repeat(root, np.diff(scaled.indptr)) * self.of_neighbours(root)
        return csr_array(self._diagonal((self.degrees > 0).astype(float)) - scaled)

    def _diagonal(self, values: Floats) -> csr_array[Any]:
        """A diagonal matrix's rows that are here; shape (n_here, n_nodes)."""
        n = self.rows.n_here
        return csr_array((values, self.first + np.arange(n), np.arange(n + 1)), shape=self.weights.shape)

    @cached_property
    def halo(self) -> Halo:
        """Fetches what belongs to neighbours that other processes hold."""
        low = self.first
        columns = np.unique(self.weights.indices)
        ghosts = columns[(columns < low) | (columns >= low + self.rows.n_here)].astype(np.int64)
        return Halo(self.processes, self.rows.n_here, ghosts)

    def of_neighbours(self, values: Floats) -> Floats:
        """Numbers of the nodes in the columns of `weights`, from those of every process's own; shape (nnz_here,)."""
        fetched = self.halo.fetch(values[:, None])[:, 0]
        low = self.first
        columns = self.weights.indices
        here = (columns >= low) & (columns < low + self.rows.n_here)
        found = np.empty(len(columns))
        found[here] = values[columns[here] - low]
        found[~here] = fetched[np.searchsorted(self.halo.ghosts, columns[~here])]
        return found

    def largest_eigenvalue(self, normalized: bool) -> float:
        """A close upper bound on the eigenvalues of a Laplacian, as `LaplacianOperator` has for a graph."""
        own = float(np.asarray(abs(self.laplacian(normalized)).sum(axis=1)).max(initial=0.0))
        bound = float(self.processes.largest(own))
        if normalized:
            return min(bound, 2.0) or 1.0
        if self.n_edges:
            pairs = np.repeat(self.degrees, np.diff(self.weights.indptr)) + self.of_neighbours(self.degrees)
            bound = min(bound, float(self.processes.largest(float(pairs.max(initial=0.0)))))
        return bound or 1.0

    # ------------------------------------------------------------------ connected components
    @cached_property
    def components(self) -> Longs:
        """Connected components of this process's nodes; shape (n_here,)."""
        low = self.first
        n, processes = self.rows.n_here, self.processes
        count, label = connected_components(self.weights[:, low : low + n], directed=False) if n else (0, np.zeros(0))
        start = processes.before(int(count))
        mine = start + label.astype(np.int64)
        theirs = self.of_neighbours(mine.astype(np.float64)).astype(np.int64)
        ours = np.repeat(mine, np.diff(self.weights.indptr))
        cut = ours < theirs
        pairs = np.unique(np.stack([ours[cut], theirs[cut]], axis=1), axis=0)
        # What is left is small: components that go on elsewhere, and which of them touch.
        every = processes.joined(pairs.reshape(-1, 2))
        nodes, place = np.unique(every, return_inverse=True)
        one, other = place.reshape(-1, 2).T
        groups, group = connected_components(
            coo_array((np.ones(len(one)), (one, other)), shape=(len(nodes), len(nodes))), directed=False
        )
        here = (nodes >= start) & (nodes < start + count)
        # Components of this process that meet elsewhere become one.
        joined = np.arange(count)
        first = np.full(groups, -1)
        for node, own in zip((nodes[here] - start).tolist(), group[here].tolist(), strict=True):
            first[own] = node if first[own] < 0 else first[own]
            joined[node] = first[own]
        kept, renamed = np.unique(joined, return_inverse=True)
        used = np.flatnonzero(first >= 0)
        self.rows.share(np.searchsorted(kept, first[used]), used, int(groups))
        return np.asarray(renamed[label.astype(np.int64)], dtype=np.int64)

    def reached_by(self, places: Longs) -> NDArray[np.bool_]:
        """Whether each node shares its connected component with one of some nodes of any process; (n_here,)."""
        components = self.components
        seen = np.zeros((int(components.max(initial=-1)) + 1, 1))
        seen[components[places]] = 1.0
        return np.asarray(self.rows.across(seen)[components, 0] > 0.0)


class _Homes:
    """Who holds which node, known to the processes by blocks of keys."""

    def __init__(self, processes: Processes, bounds: Longs, homes: Longs) -> None:
        self._processes, self._bounds, self._own = processes, bounds, homes

    def _ask(self, keys: Longs, answers: Longs) -> Longs:
        distinct, place = np.unique(keys, return_inverse=True)
        blocks = np.searchsorted(self._bounds, distinct, side="right") - 1
        (asked,), sent = self._processes.send([distinct], blocks)
        low = self._bounds[self._processes.rank]
        return np.asarray(sent.answer(answers[asked - low]), dtype=np.int64)[place]

    def of(self, keys: Longs) -> Longs:
        return self._ask(keys, self._own)

    def numbers(self, keys: Longs, rows: SpreadRows) -> Longs:
        """Numbers of nodes in the order in which the processes hold them."""
        low = self._bounds[self._processes.rank]
        first = self._processes.before(rows.n_here)
        blocks = np.searchsorted(self._bounds, rows.keys, side="right") - 1
        (known, number), _ = self._processes.send([rows.keys, first + np.arange(rows.n_here)], blocks)
        answers = np.empty(len(self._own), dtype=np.int64)
        answers[known - low] = number
        return self._ask(keys, answers)
