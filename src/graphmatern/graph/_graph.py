"""The graph: named nodes, weighted undirected edges, and what follows from them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

import numpy as np
import pandas as pd
import scipy.sparse as sp

from graphmatern._validation import FaultList, abbreviate, check_flag
from graphmatern.errors import GraphError
from graphmatern.graph import (
    _areas,
    _attach,
    _build,
    _contiguity,
    _convert,
    _describe,
    _kept_spectra,
    _mesh,
    _points,
    _subdivide,
)
from graphmatern.graph._edge_rows import EdgeRows, rows_of_matrix
from graphmatern.graph._hanging import nodes_that_stay
from graphmatern.graph._laplacian import degrees, laplacian_matrix
from graphmatern.graph._parts import same_content
from graphmatern.graph._paths import path_lengths
from graphmatern.sparse._pattern import connected

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable
    from pathlib import Path

    import networkx as nx
    from numpy.typing import ArrayLike, NDArray

    from graphmatern.graph._names import NodeNames
    from graphmatern.graph._parts import GraphParts
    from graphmatern.graph._spectrum import Spectrum

__all__ = ["Graph"]

_T = TypeVar("_T")
ParallelRule = Literal["sum", "mean_length", "first", "error"]


class Graph:
    """A weighted undirected graph with named nodes. Immutable.

    Make one with `from_edges`, `from_adjacency`, `from_networkx`, `from_points`, `from_polygons`, `from_mesh` or
    `from_pyg`. Graphs are compared by content; copies, even deep ones, share all data.

    Examples
    --------
    >>> import graphmatern as gm
    >>> graph = gm.Graph.from_edges([("home", "shop"), ("shop", "work")], length=[300.0, 700.0])
    >>> graph
    Graph(3 nodes, 2 edges)
    >>> graph.laplacian().toarray().round(2)
    array([[ 1.67, -1.67,  0.  ],
           [-1.67,  2.38, -0.71],
           [ 0.  , -0.71,  0.71]])
    """

    __slots__ = ("_cache", "_parts")

    _parts: GraphParts
    _cache: dict[Any, Any]

    def __init__(self, *args: object, **kwargs: object) -> None:
        del args, kwargs
        raise TypeError("make a graph with Graph.from_edges or another of the constructors that begin with from_")

    @classmethod
    def _from_parts(cls, parts: GraphParts) -> Self:
        graph = object.__new__(cls)
        graph._parts = parts
        graph._cache = {}
        parts.freeze()
        return graph

    # ------------------------------------------------------------------ making graphs
    @classmethod
    def from_edges(
        cls,
        edges: pd.DataFrame | str | Path | ArrayLike | Any,
        *,
        source: Hashable | None = None,
        target: Hashable | None = None,
        weight: str | ArrayLike | None = None,
        length: str | ArrayLike | None = None,
        id: str | ArrayLike | None = None,  # noqa: A002
        geometry: str | Any | None = None,
        nodes: Any = None,
        positions: Any = None,
        masses: Any = None,
        parallel: ParallelRule = "sum",
    ) -> Self:
        """Make a graph from a list of edges.

        Parameters
        ----------
        edges : DataFrame, path, array_like of shape (n_rows, 2), or sequence of pairs
            The edges; a path must be that of a CSV, TSV, Parquet or Excel file.
        source, target : hashable, optional
            Columns of node names; by default those called "source" and "target" (or "from" and "to", "u" and "v",
            "node1" and "node2"), otherwise the only two that have no other use. Names in CSV files are text, unless
            all of them are whole numbers.
        weight : str or array_like, shape (n_rows,), optional
            Column of weights, or the weights: finite, at least 0 (0 means no edge). Without weights and
            lengths every edge has weight 1, and repeated pairs count once.
        length : str or array_like, shape (n_rows,), optional
            Column of lengths, or the lengths, above 0. The weight is then the mean length over all rows
            divided by the edge's length.
        id : str or array_like, shape (n_rows,), optional
            Names of the edges, for `subdivide`; row numbers by default.
        geometry : str or sequence of lines, optional
            Column of polylines from source to target: WKT, shapely lines or coordinates.
        nodes : sequence of hashable, optional
            All node names, in the order wanted; needed for isolated nodes. By default the names in
            `edges` in order of first appearance.
        positions : DataFrame, mapping or array_like of shape (n_nodes, n_dimensions), optional
            Coordinates by node name, or in the order of `nodes`.
        masses : Series, mapping or array_like of shape (n_nodes,), optional
            Positive node masses, 1 by default.
        parallel : {"sum", "mean_length", "first", "error"}
            What to do with several rows that join the same two nodes (in either direction), if there are
            weights or lengths: add the weights; average the lengths (the paper's rule); keep the first row;
            or raise an exception. All but the last issue a warning.

        Returns
        -------
        Graph

        Raises
        ------
        GraphError
            Listing everything that is wrong.

        Examples
        --------
        >>> import graphmatern as gm, pandas as pd
        >>> roads = pd.DataFrame({"from": ["a", "b"], "to": ["b", "c"], "metres": [100.0, 300.0]})
        >>> gm.Graph.from_edges(roads, source="from", target="to", length="metres").edges
           id source target    weight  length
        0   0      a      b  2.000000   100.0
        1   1      b      c  0.666667   300.0
        """
        return cls._from_parts(
            _build.parts_from_edges(
                edges,
                source=source,
                target=target,
                weight=weight,
                length=length,
                id=id,
                geometry=geometry,
                nodes=nodes,
                positions=positions,
                masses=masses,
                parallel=parallel,
            )
        )

    @classmethod
    def from_adjacency(cls, adjacency: Any, *, nodes: Any = None, positions: Any = None, masses: Any = None) -> Self:
        """Make a graph from a symmetric matrix of weights.

        Parameters
        ----------
        adjacency : scipy sparse matrix, array_like or DataFrame, shape (n_nodes, n_nodes)
            Weights, at least 0; 0 means no edge. The index of a table names the nodes.
        nodes : sequence of hashable, optional
            Node names in the order of the rows; 0, 1, ... by default.
        positions, masses
            As in `from_edges`.

        Returns
        -------
        Graph

        Examples
        --------
        >>> import graphmatern as gm
        >>> gm.Graph.from_adjacency([[0, 2], [2, 0]], nodes=["left", "right"])
        Graph(2 nodes, 1 edge)
        """
        return cls._from_parts(_build.parts_from_adjacency(adjacency, nodes=nodes, positions=positions, masses=masses))

    @classmethod
    def from_networkx(
        cls,
        graph: nx.Graph[Any],
        *,
        weight: str | None = "weight",
        length: str | None = None,
        geometry: str | None = None,
        position: str | tuple[str, ...] | None = None,
        masses: Any = None,
        parallel: ParallelRule = "sum",
    ) -> Self:
        """Make a graph from a networkx Graph or MultiGraph.

        Parameters
        ----------
        graph : networkx.Graph or networkx.MultiGraph
            Directed graphs are refused: call their ``to_undirected()`` first, or `interop.from_osmnx` for streets.
        weight : str, optional
            Edge attribute with the weight. If no edge has the default one, or with None, all weights are 1.
        length : str, optional
            Edge attribute with the length, from which the weights follow. Lengths called "length" next to weights are
            kept with the edges; without weights they cause a warning, since they are not used unless named here.
        geometry : str, optional
            Edge attribute with the polyline, for edges that have it.
        position : str or tuple of str, optional
            Node attribute(s) with the coordinates; by default "pos", or "x" and "y", if every node has
            them.
        masses, parallel
            As in `from_edges`.

        Returns
        -------
        Graph

        Examples
        --------
        >>> import graphmatern as gm, networkx as nx
        >>> gm.Graph.from_networkx(nx.cycle_graph(5))
        Graph(5 nodes, 5 edges)
        """
        return cls._from_parts(
            _convert.parts_from_networkx(
                graph,
                weight=weight,
                length=length,
                geometry=geometry,
                position=position,
                masses=masses,
                parallel=parallel,
            )
        )

    @classmethod
    def from_points(
        cls,
        points: ArrayLike,
        n_neighbors: int = 10,
        *,
        weights: Literal["gaussian", "unit"] = "gaussian",
        bandwidth: float | None = None,
        nodes: Any = None,
    ) -> Self:
        """Make the graph of k nearest neighbours of points in Euclidean space.

        Two points are joined if either is among the other's nearest neighbours.

        Parameters
        ----------
        points : array_like or DataFrame, shape (n_nodes, n_dimensions)
            The points; they become the nodes' positions, and their distances the lengths of the edges. The index
            of a table names the nodes.
        n_neighbors : int
            Neighbours of each point, itself not counted.
        weights : {"gaussian", "unit"}
            exp(−distance² / (2 bandwidth²)), or 1.
        bandwidth : float, optional
            By default the mean distance to the furthest of the neighbours.
        nodes : sequence of hashable, optional
            Names of the points; 0, 1, ... by default.

        Returns
        -------
        Graph

        Examples
        --------
        >>> import graphmatern as gm, numpy as np
        >>> gm.Graph.from_points(np.random.default_rng(0).random((50, 2)), n_neighbors=4)
        Graph(50 nodes, 124 edges)
        """
        return cls._from_parts(
            _points.parts_from_points(
                points, n_neighbors=n_neighbors, weights=weights, bandwidth=bandwidth, nodes=nodes
            )
        )

    @classmethod
    def from_polygons(
        cls,
        areas: Any,
        *,
        contiguity: Literal["queen", "rook"] = "queen",
        tolerance: float = 0.0,
        nodes: Any = None,
        links: Any = None,
    ) -> Self:
        """Make the graph of neighbouring areas, such as districts, from their outlines.

        Parameters
        ----------
        areas : GeoDataFrame, GeoSeries, path, mapping or sequence
            Polygons: a GeoDataFrame or GeoSeries, whose index names the areas; the path of a GeoJSON file; a mapping
            from names, or a sequence, of shapely polygons, GeoJSON geometries, WKT or coordinates.
        contiguity : {"queen", "rook"}
            Whether areas are neighbours if they share a single point, or only if they share a line.
        tolerance : float
            Width of gaps to be bridged, in the unit of the coordinates, if outlines were drawn one by one. A common
            line must then be at least ten times as long.
        nodes : str or sequence of hashable, optional
            Column of the GeoDataFrame, or property of the file, with the names; or the names. By default a property of
            the file that distinguishes its areas, such as "name" or "id"; 0, 1, ... for a sequence.
        links : sequence of pairs, optional
            Names of areas that are neighbours in any case, for instance because a ferry joins them.

        Returns
        -------
        Graph
            Every edge has weight 1. The nodes' positions are the centres of the areas, which are kept for maps (see
            `areas`). Areas without neighbours are named in a warning, and are `islands`.

        Raises
        ------
        GraphError
            Listing everything that is wrong.

        Examples
        --------
        >>> import graphmatern as gm, shapely
        >>> chessboard = {f"{c}{r}": shapely.box(k, r, k + 1, r + 1) for k, c in enumerate("abc") for r in (1, 2)}
        >>> gm.Graph.from_polygons(chessboard)
        Graph(6 nodes, 11 edges)
        >>> gm.Graph.from_polygons(chessboard, contiguity="rook")
        Graph(6 nodes, 7 edges)
        """
        return cls._from_parts(
            _contiguity.parts_from_polygons(areas, contiguity=contiguity, tolerance=tolerance, nodes=nodes, links=links)
        )

    @classmethod
    def from_mesh(
        cls, vertices: ArrayLike, triangles: ArrayLike, *, obtuse: Literal["error", "flip", "clip"] = "error"
    ) -> Self:
        """Make the graph of a triangle mesh: cotangent weights, vertex areas as node masses.

        Parameters
        ----------
        vertices : array_like, shape (n_nodes, 2 or 3)
            Coordinates.
        triangles : array_like of int, shape (n_triangles, 3)
            Rows of `vertices` at the corners of each triangle.
        obtuse : {"error", "flip", "clip"}
            What to do if obtuse triangles make a weight negative: raise; flip edges until the mesh is
            intrinsically Delaunay (the surface stays the same); or flip, and drop the edges on the boundary
            that are still negative, with a warning.

        Returns
        -------
        Graph

        Examples
        --------
        >>> import graphmatern as gm
        >>> square = gm.Graph.from_mesh([[0, 0], [1, 0], [1, 1], [0, 1]], [[0, 1, 2], [0, 2, 3]])
        >>> square.masses.round(3).tolist()
        [0.333, 0.167, 0.333, 0.167]
        """
        return cls._from_parts(_mesh.parts_from_mesh(vertices, triangles, obtuse=obtuse))

    @classmethod
    def from_pyg(cls, data: Any, *, weight: str | None = None, nodes: Any = None) -> Self:
        """Make a graph from a PyTorch Geometric ``Data`` object.

        Parameters
        ----------
        data : torch_geometric.data.Data
            An undirected graph: every edge in both directions with equal weights, or in one direction only.
        weight : str, optional
            Attribute with the edge weights; by default ``edge_weight`` if present, otherwise all weights are 1.
        nodes : sequence of hashable, optional
            Node names; 0, 1, ... by default.

        Returns
        -------
        Graph
        """
        return cls._from_parts(_convert.parts_from_pyg(data, weight=weight, nodes=nodes))

    # ------------------------------------------------------------------ what it is
    @property
    def nodes(self) -> pd.Index[Any]:
        """Names of the nodes, in node order."""
        return self._parts.names.index

    @property
    def n_nodes(self) -> int:
        """Number of nodes."""
        return len(self._parts.names)

    @property
    def n_edges(self) -> int:
        """Number of distinct pairs of nodes that are joined."""
        return int(self._parts.weights.nnz) // 2

    @property
    def weights(self) -> sp.csr_array:
        """Symmetric weight matrix W, of read-only arrays; shape (n_nodes, n_nodes)."""
        shared = self._parts.weights
        return sp.csr_array((shared.data, shared.indices, shared.indptr), shape=shared.shape)

    @property
    def degrees(self) -> NDArray[np.float64]:
        """Sum of the weights at each node; shape (n_nodes,)."""
        return degrees(self.weights)

    @property
    def positions(self) -> NDArray[np.float64] | None:
        """Coordinates of the nodes, if known; shape (n_nodes, n_dimensions)."""
        return self._parts.positions

    @property
    def masses(self) -> NDArray[np.float64] | None:
        """Node masses; None means 1 everywhere. Shape (n_nodes,)."""
        return self._parts.masses

    @property
    def areas(self) -> list[list[NDArray[np.float64]]] | None:
        """Outlines of the area of every node, if nodes are areas, for maps: arrays of shape (n_points, 2).

        Outer rings are counter-clockwise, holes clockwise; a node without an area has none.
        """
        return self._parts.areas

    @property
    def islands(self) -> pd.Index[Any]:
        """Names of the nodes without neighbours."""
        alone: pd.Index[Any] = self.nodes[np.diff(self._parts.weights.indptr) == 0]
        return alone

    @property
    def has_lengths(self) -> bool:
        """Whether the edges have lengths."""
        return self._rows.length is not None

    @property
    def _rows(self) -> EdgeRows:
        if self._parts.rows is not None:
            return self._parts.rows
        return self.cached("rows", lambda: rows_of_matrix(self.weights))

    @property
    def edges(self) -> pd.DataFrame:
        """The edges as given, parallel ones included, in a fresh table.

        Columns: id, source, target, weight (of this row alone) and, if known, length and geometry
        (polylines of shape (n_points, 2)).
        """
        return self._rows.table(self.nodes)

    def edge_lines(self) -> list[NDArray[np.float64]]:
        """Polylines of the rows of `edges`, of shape (n_points, 2): their geometry, or straight between their ends.

        Raises
        ------
        GraphError
            If neither geometry nor positions are known.

        Examples
        --------
        >>> import graphmatern as gm
        >>> gm.Graph.from_edges([("a", "b")], positions={"a": [0, 0], "b": [3, 4]}).edge_lines()[0].tolist()
        [[0.0, 0.0], [3.0, 4.0]]
        """
        return _attach.edge_lines(self._rows, self.positions)

    @property
    def is_geographic(self) -> bool:
        """Whether positions, or the ends of the edges' lines, can be longitudes and latitudes."""
        if self.positions is not None:
            return self.positions.shape[1] == 2 and _attach.are_degrees(self.positions)
        geometry = self._rows.geometry
        return geometry is not None and all(line is None or _attach.are_degrees(line) for line in geometry)

    @property
    def names(self) -> NodeNames:
        """Node names and their positions; see `locate`."""
        return self._parts.names

    def locate(self, nodes: Any = None) -> NDArray[np.int64]:
        """Positions of nodes in the node order, by name; of all nodes if None. Shape (n_names,).

        Raises
        ------
        UnknownNodeError
            Listing every name that is not a node.

        Examples
        --------
        >>> import graphmatern as gm
        >>> gm.Graph.from_edges([("a", "b"), ("b", "c")]).locate(["c", "a"])
        array([2, 0])
        """
        return np.arange(self.n_nodes) if nodes is None else self._parts.names.positions(nodes)

    def arrange(self, values: Any, *, missing: bool = False) -> NDArray[np.float64]:
        """Arrange values in node order.

        Parameters
        ----------
        values : array_like, tensor, Series, DataFrame or mapping
            Arrays are taken to be in node order; the others are looked up by node name.
        missing : bool
            Whether NaN is allowed; nodes absent from a Series or mapping are then NaN.

        Returns
        -------
        ndarray, shape (n_nodes,) or (n_nodes, n_columns)

        Examples
        --------
        >>> import graphmatern as gm
        >>> gm.Graph.from_edges([("a", "b"), ("b", "c")]).arrange({"c": 3.0, "a": 1.0, "b": 2.0})
        array([1., 2., 3.])
        """
        return _build.arranged(values, self._parts.names, missing=missing)

    # ------------------------------------------------------------------ what follows from it
    def cached(self, key: Any, compute: Callable[[], _T]) -> _T:
        """Return what was computed under a key before, or compute it now and keep it with the graph."""
        if key not in self._cache:
            self._cache[key] = compute()
        value: _T = self._cache[key]
        return value

    def laplacian(self, normalized: bool = False) -> sp.csr_array:
        """Laplacian Δ = A^(−1/2) (D − W) A^(−1/2), or D^(−1/2) (D − W) D^(−1/2) if ``normalized``.

        Returns
        -------
        csr_array, shape (n_nodes, n_nodes)
            Exactly symmetric; the row of an isolated node is zero. A fresh copy, which may be changed.
        """
        return laplacian_matrix(self.weights, self.masses, normalized=check_flag("normalized", normalized, GraphError))

    def spectrum(self, n_eigenpairs: int | None = None, normalized: bool = False) -> Spectrum:
        """Smallest eigenpairs of a Laplacian; computed once and kept with the graph.

        Parameters
        ----------
        n_eigenpairs : int, optional
            How many; all by default.
        normalized : bool
            Which Laplacian.

        Returns
        -------
        Spectrum

        Notes
        -----
        Each connected component is decomposed separately, and its null vector is exact: there are as many
        eigenvalues equal to 0 as there are components. Others are accurate to about 1e-15 times the largest
        eigenvalue; if weights span many orders of magnitude, small ones have few correct digits. Components of at most
        1,500 nodes, and larger ones if more than a quarter of their eigenpairs is wanted, are decomposed densely;
        others by block Krylov spaces of the factorised Laplacian or of a polynomial of it, whichever is predicted to be
        faster (`spectrum_cost`). `Spectrum.residuals` measures the errors.
        """
        return _kept_spectra.spectrum_of(self, n_eigenpairs, normalized)

    def spectrum_cost(self, n_eigenpairs: int | None = None, normalized: bool = False) -> tuple[float, int]:
        """Seconds and bytes that `spectrum` is predicted to take; zero if it is already known.

        Parameters
        ----------
        n_eigenpairs : int, optional
            How many; all by default.
        normalized : bool
            Which Laplacian.

        Examples
        --------
        >>> import graphmatern as gm
        >>> seconds, memory = gm.make_roads(300, seed=0).spectrum_cost()
        >>> seconds < 1.0
        True
        """
        return _kept_spectra.cost_of_spectrum(self, n_eigenpairs, normalized)

    def keep_spectrum(self, spectrum: Spectrum) -> None:
        """Use eigenpairs that were computed earlier, whenever they suffice."""
        _kept_spectra.keep_spectrum(self, spectrum)

    @property
    def components(self) -> NDArray[np.int64]:
        """Number of the connected component of every node; shape (n_nodes,)."""

        def compute() -> NDArray[np.int64]:
            labels = connected(self.weights.indptr.astype(np.int64), self.weights.indices.astype(np.int32))
            labels.flags.writeable = False
            return labels

        return self.cached("components", compute)

    @property
    def n_components(self) -> int:
        """Number of connected components."""
        return int(self.components.max()) + 1

    def distances(self, sources: Any) -> NDArray[np.float64]:
        """Shortest-path distances from some nodes to all, infinite between components.

        Parameters
        ----------
        sources : sequence of hashable
            Node names.

        Returns
        -------
        ndarray, shape (n_sources, n_nodes)
            In the unit of the edges' lengths; numbers of edges if lengths are unknown.
        """
        return path_lengths(self.weights, self._rows, self.locate(sources))

    # ------------------------------------------------------------------ graphs from this graph
    def subgraph(self, nodes: Any) -> Self:
        """Keep some nodes, in the order given, and the edges between them with their weights.

        Examples
        --------
        >>> import graphmatern as gm
        >>> gm.Graph.from_edges([("a", "b"), ("b", "c")]).subgraph(["c", "b"]).nodes.tolist()
        ['c', 'b']
        """
        kept = self.locate(nodes)
        repeated = pd.Index(kept).duplicated()
        if len(kept) == 0 or repeated.any():
            faults = FaultList("no graph was made", GraphError)
            names = abbreviate(self.nodes[kept[repeated]]) if len(kept) else "none"
            raise faults.raise_now("nodes", "must be at least one name, without repetitions", names, "Change the list.")
        return self._from_parts(self._parts.take(kept))

    def with_areas(self, areas: Any, name: str | None = None) -> Self:
        """Return the graph with outlines of its nodes, if these are areas; maps and pages then draw them.

        Parameters
        ----------
        areas : GeoDataFrame, GeoSeries, Series, mapping or path
            By node name: shapely polygons, GeoJSON geometries, WKT, or coordinates of shape (n_points, 2). Nodes that
            are absent have no area; names that are not nodes are refused. Or the path of a GeoJSON file; areas in it
            that are not nodes are left out.
        name : str, optional
            Column of a GeoDataFrame with the node names, instead of its index; or property of a file, by default the
            one that names the most nodes.

        Returns
        -------
        Graph
            If it had no positions and every node has an area, positions are the centres of the areas.

        Examples
        --------
        >>> import graphmatern as gm
        >>> graph = gm.Graph.from_edges([("west", "east")])
        >>> areas = {"west": [(0, 0), (1, 0), (1, 1)], "east": "POLYGON ((1 0, 2 0, 1 1, 1 0))"}
        >>> graph.with_areas(areas).positions.round(2).tolist()
        [[0.67, 0.33], [1.33, 0.33]]
        """
        found = _areas.read_areas(areas, self._parts.names, name)
        positions = self.positions
        if positions is None and all(found):
            positions = _areas.centres_of(found)
        return self._from_parts(replace(self._parts, positions=positions, areas=found))

    def largest_component(self) -> Self:
        """Keep the connected component with the most nodes (the first of equals), in node order."""
        sizes = np.bincount(self.components)
        return self._from_parts(self._parts.take(np.flatnonzero(self.components == sizes.argmax())))

    def remove_hanging_nodes(self, rounds: int | None = None) -> Self:
        """Remove nodes with a single neighbour, round after round.

        Parameters
        ----------
        rounds : int, optional
            How often; by default until none is left.

        Returns
        -------
        Graph
            A tree shrinks to its centre; the graph never becomes empty.

        Examples
        --------
        >>> import graphmatern as gm
        >>> path = gm.Graph.from_edges([(i, i + 1) for i in range(6)])
        >>> path.remove_hanging_nodes(rounds=2).nodes.tolist()
        [2, 3, 4]
        """
        return self._from_parts(self._parts.take(nodes_that_stay(self.weights, rounds)))

    def subdivide(
        self,
        points: pd.DataFrame,
        *,
        edge: str = "edge",
        distance: str | None = None,
        fraction: str | None = None,
        name: str | None = None,
        position: tuple[str, ...] | None = None,
    ) -> Self:
        """Insert nodes that lie on edges, such as sensors on roads.

        Parameters
        ----------
        points : DataFrame
            One row per new node.
        edge : str
            Column with the id of the edge the point lies on (see `edges`).
        distance : str, optional
            Column with the distance from the edge's source, in the unit of the edges' lengths.
        fraction : str, optional
            Column with the share of the edge between its source and the point, instead of `distance`.
        name : str, optional
            Column with the new nodes' names; the table's index by default.
        position : tuple of str, optional
            Columns with the coordinates; by default they are taken from the edge's geometry, else from
            the straight line between its ends.

        Returns
        -------
        Graph
            The old nodes, then the new ones. An edge is cut before parallel edges are merged, and weights
            follow from the pieces: mean length over length if weights came from lengths, otherwise inversely
            proportional to the piece's share (resistances in series). The mean is that of the new, shorter
            edges; a kernel's lengthscale is in units of these, so the same number reaches less far than before.

        Raises
        ------
        TableError
            Listing every point that names no edge, lies at or beyond an end of its edge or on top of
            another point, or has the name of an existing node.

        Examples
        --------
        >>> import graphmatern as gm, pandas as pd
        >>> road = gm.Graph.from_edges([("a", "b")], length=[100.0])
        >>> sensors = pd.DataFrame({"road": [0], "at": [25.0]}, index=["s1"])
        >>> road.subdivide(sensors, edge="road", distance="at").edges["length"].tolist()
        [25.0, 75.0]
        """
        return self._from_parts(
            _subdivide.parts_subdivided(
                self._parts,
                self._rows,
                points,
                edge=edge,
                distance=distance,
                fraction=fraction,
                name=name,
                position=position,
            )
        )

    def attach(
        self, points: Any, *, x: str | None = None, y: str | None = None, limit: float | None = None
    ) -> tuple[Self, pd.DataFrame]:
        """Insert points given by coordinates, such as sensors by longitude and latitude, on the nearest edges.

        Parameters
        ----------
        points : DataFrame or GeoDataFrame
            One row per point; the index names them. Coordinates in the system of the graph's positions.
        x, y : str, optional
            Columns of coordinates; found by their names, such as "longitude" and "latitude", or from the geometry.
        limit : float, optional
            How far a point may lie from its edge: metres if coordinates are degrees, otherwise in their unit. By
            default half of a mean edge.

        Returns
        -------
        graph : Graph
            With the points as nodes. A point at an end of its edge becomes the node there, and points at the same
            place share a node.
        report : DataFrame
            For each point: ``node`` (its name in the graph), ``edge``, ``fraction`` of the edge before it, ``moved``
            (how far it was moved), and ``x``, ``y`` (where to).

        Raises
        ------
        TableError
            Listing the points that are too far from any edge.

        Examples
        --------
        >>> import graphmatern as gm, pandas as pd
        >>> road = gm.Graph.from_edges([("a", "b")], length=[100.0], positions={"a": [500, 0], "b": [600, 0]})
        >>> sensors = pd.DataFrame({"x": [525.0, 600.0], "y": [3.0, -4.0]}, index=["s1", "s2"])
        >>> bigger, report = road.attach(sensors)
        >>> report[["node", "fraction", "moved"]]
           node  fraction  moved
        s1   s1      0.25    3.0
        s2    b      1.00    4.0
        """
        return _attach.attach(self, points, x=x, y=y, limit=limit)

    def locate_on_edges(
        self, points: Any, *, edge: str = "edge", distance: str | None = None, fraction: str | None = None
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
        """Find points that lie on edges, without inserting them.

        Parameters
        ----------
        points : DataFrame
            One row per point.
        edge : str
            Column with the id of the edge (see `edges`).
        distance, fraction : str, optional
            Column with the distance from the edge's source, or with that distance as a share of the edge; one of
            the two.

        Returns
        -------
        source, target : ndarray of int64, shape (n_points,)
            Positions of the ends.
        share : ndarray, shape (n_points,)
            0 at the source, 1 at the target.

        Examples
        --------
        >>> import graphmatern as gm
        >>> road = gm.Graph.from_edges([("a", "b")], length=[100.0])
        >>> road.locate_on_edges({"edge": [0], "at": [25.0]}, distance="at")
        (array([0]), array([1]), array([0.25]))
        """
        return _subdivide.places_on_edges(self._rows, points, edge=edge, distance=distance, fraction=fraction)

    def to_networkx(self, attributes: pd.DataFrame | None = None) -> nx.Graph[Any]:
        """Return the graph as a networkx Graph, or as a MultiGraph if it has parallel edges.

        Parameters
        ----------
        attributes : DataFrame, optional
            Table indexed by node name; each column becomes a node attribute.

        Returns
        -------
        networkx.Graph or networkx.MultiGraph
            Edges have a weight and, if known, id, length and geometry; nodes have ``pos``.

        Examples
        --------
        >>> import graphmatern as gm
        >>> gm.Graph.from_edges([("a", "b")]).to_networkx().edges["a", "b"]
        {'weight': 1.0}
        """
        return _convert.to_networkx(self._parts, self._rows, attributes)

    def summary(self) -> str:
        """Describe the graph in a few lines of text."""
        return _describe.describe(self)

    # ------------------------------------------------------------------ Python's protocols
    def __repr__(self) -> str:
        nodes, edges = self.n_nodes, self.n_edges
        return f"Graph({nodes} node{'' if nodes == 1 else 's'}, {edges} edge{'' if edges == 1 else 's'})"

    def _repr_html_(self) -> str:
        return _describe.as_html(self)

    def __len__(self) -> int:
        return self.n_nodes

    def __contains__(self, node: object) -> bool:
        try:
            return node in self.nodes
        except TypeError:
            return False

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Graph):
            return NotImplemented
        return self is other or same_content(self._parts, self._rows, other._parts, other._rows)

    def __hash__(self) -> int:
        return self.cached(
            "hash", lambda: hash((self.n_nodes, self.weights.indices.tobytes(), self.weights.data.tobytes()))
        )

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        del memo
        return self

    def __getstate__(self) -> GraphParts:
        return self._parts  # what can be computed again is not worth its bytes

    def __setstate__(self, parts: GraphParts) -> None:
        self._parts = parts
        self._cache = {}
        parts.freeze()
