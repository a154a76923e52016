"""Where the nodes of a graph lie on paper."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import scipy
import scipy.sparse as sp

from graphmatern.graph import centres_of

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from graphmatern.graph import Graph

    Floats = NDArray[np.float64]

__all__ = ["DEGREE", "Layout", "find_layout", "known_positions", "map_scale"]

DEGREE = 111_195.0  # metres of a degree of latitude

_SMALL = 150  # nodes of a component up to which all its distances are kept, by springs (Kamada and Kawai)
_PIVOTS = 60  # nodes from which distances are measured in larger ones
_STEPS = 60  # rounds in which nodes that lie on top of each other are moved apart


@dataclass(frozen=True)
class Layout:
    """Places of the nodes in the plane.

    Attributes
    ----------
    places : ndarray, shape (n_nodes, 2)
        Coordinates.
    is_map : bool
        Whether these are the graph's own positions, rather than a computed layout.
    depth : ndarray, shape (n_nodes,), optional
        How near the viewer a node is, where positions have three dimensions.
    """

    places: Floats
    is_map: bool
    depth: Floats | None = None

    @property
    def is_degrees(self) -> bool:
        """Whether the places look like longitudes and latitudes of a region."""
        low, high = self.places.min(axis=0), self.places.max(axis=0)
        in_range = max(-low[0], high[0]) <= 180 and max(-low[1], high[1]) <= 90
        far = np.abs(self.places).min(axis=0).max() > 10
        return bool(self.is_map and self.depth is None and in_range and (high - low).max() < 15 and far)

    @property
    def aspect(self) -> float:
        """How much longer a unit upwards is than one rightwards: degrees of longitude shrink towards the poles."""
        return float(1.0 / np.cos(np.radians(self.places[:, 1].mean()))) if self.is_degrees else 1.0

    @property
    def note(self) -> str:
        """A note about places that are not the graph's own positions."""
        if self.is_map:
            return "" if self.depth is None else "Seen from above and to the side."
        return "There is no map: nodes are placed so that neighbours are near each other."


def find_layout(graph: Graph) -> Layout:
    """Positions in the plane, computed once and kept with the graph.

    One or two dimensions are shown as they are, three from a point above and to the side. Positions in more dimensions
    mean nothing on paper: such a graph, like one without positions, is laid out so that distances along its edges
    are kept as far as the plane allows, component by component.
    """
    return graph.cached("layout", lambda: _find_layout(graph))


def known_positions(graph: Graph) -> Floats | None:
    """The graph's positions, or those on the map of its edges' lines or its areas; None where there is no map."""
    if graph.positions is not None:
        return graph.positions
    drawn = graph.areas is not None or _ends_of_geometry(graph) is not None
    return find_layout(graph).places if drawn else None


def map_scale(graph: Graph) -> float | None:
    """How long one unit of the coordinates is, in the unit of the edges' lengths; None if it is unknown.

    The straightest edges are as long as their ends are apart, up to a power of ten between the two units.
    """
    layout, rows = find_layout(graph), graph._rows
    if not layout.is_map or layout.depth is not None or layout.is_degrees or rows.length is None or not len(rows):
        return None
    straight = np.hypot(*(layout.places[rows.source] - layout.places[rows.target]).T)
    known = straight > 0
    if not known.any():
        return None
    ratio = float(np.quantile(rows.length[known] / straight[known], 0.1))
    power = 10.0 ** np.round(np.log10(ratio))
    return float(power) if abs(ratio / power - 1.0) < 0.05 else None


def _find_layout(graph: Graph) -> Layout:
    positions = graph.positions if graph.positions is not None else _ends_of_geometry(graph)
    if graph.areas is not None and (positions is None or positions.shape[1] != 2):
        centres = centres_of(graph.areas)  # those without an area are not drawn: anywhere will do
        return Layout(np.where(np.isnan(centres), np.nanmean(centres, axis=0), centres), is_map=True)
    if positions is not None and positions.shape[1] == 1:
        return Layout(np.column_stack([positions[:, 0], np.zeros(graph.n_nodes)]), is_map=True)
    if positions is not None and positions.shape[1] == 2:
        return Layout(positions, is_map=True)
    if positions is not None and positions.shape[1] == 3:
        turned = positions @ _view().T
        return Layout(turned[:, :2], is_map=True, depth=turned[:, 2])
    labels = graph.components
    order = np.argsort(labels, kind="stable")
    members = np.split(order, np.cumsum(np.bincount(labels))[:-1])
    placed = [_place_component(graph.subgraph(graph.nodes[nodes])) for nodes in members]
    places = np.empty((graph.n_nodes, 2))
    for nodes, own in zip(members, _pack(placed), strict=True):
        places[nodes] = own
    return Layout(places, is_map=False)


def _ends_of_geometry(graph: Graph) -> Floats | None:
    """Positions from the ends of the edges' polylines, where these reach every node."""
    rows = graph._rows
    if rows.geometry is None:
        return None
    places = np.full((graph.n_nodes, 2), np.nan)
    for source, target, line in zip(rows.source, rows.target, rows.geometry, strict=True):
        if line is not None:
            places[source], places[target] = line[0], line[-1]
    return None if np.isnan(places).any() else places


def _view(azimuth: float = -60.0, elevation: float = 30.0) -> Floats:
    """Rotation to coordinates rightwards, upwards and towards the viewer."""
    a, e = np.radians(azimuth), np.radians(elevation)
    towards = np.array([np.cos(e) * np.cos(a), np.cos(e) * np.sin(a), np.sin(e)])
    right = np.array([-np.sin(a), np.cos(a), 0.0])
    return np.stack([right, np.cross(towards, right), towards])


def _place_component(graph: Graph) -> Floats:
    """Lay out a connected graph, with a mean distance of about one between neighbours."""
    n = graph.n_nodes
    if n <= 2:
        return np.column_stack([np.arange(n, dtype=np.float64), np.zeros(n)])
    places = _springs(graph) if n <= _SMALL else _spread(_from_pivots(graph), graph)
    rows = graph._rows
    typical = np.hypot(*(places[rows.source] - places[rows.target]).T).mean()
    return np.asarray((places - places.mean(axis=0)) / (typical or 1.0))


def _springs(graph: Graph) -> Floats:
    from networkx import kamada_kawai_layout

    distance = graph.distances(graph.nodes)
    named = dict(zip(graph.nodes, (dict(zip(graph.nodes, row, strict=True)) for row in distance), strict=True))
    start = dict(zip(graph.nodes, _from_pivots(graph) + 1e-3 * _ring(graph.n_nodes), strict=True))
    placed = kamada_kawai_layout(graph.to_networkx(), dist=named, pos=start)
    return np.array([placed[node] for node in graph.nodes])


def _ring(n: int) -> Floats:
    angle = 2.0 * np.pi * np.arange(n) / n
    return np.column_stack([np.cos(angle), np.sin(angle)])


def _from_pivots(graph: Graph) -> Floats:
    """Classical scaling of the distances to a few nodes that lie far apart (pivot MDS; Brandes and Pich, 2006)."""
    count = min(_PIVOTS, graph.n_nodes)
    found = np.empty((count, graph.n_nodes))
    pivot, nearest = 0, np.full(graph.n_nodes, np.inf)
    for k in range(count):
        found[k] = graph.distances([graph.nodes[pivot]])[0]
        nearest = np.minimum(nearest, found[k])
        pivot = int(nearest.argmax())
    squared = found.T**2
    centred = squared - squared.mean(axis=0) - squared.mean(axis=1, keepdims=True) + squared.mean()
    _, vectors = np.linalg.eigh(centred.T @ centred)
    return np.asarray(centred @ vectors[:, :-3:-1] / np.sqrt(len(squared)))


def _spread(places: Floats, graph: Graph) -> Floats:
    """Move nodes apart that lie on top of each other, while edges hold them together.

    Springs as in Fruchterman and Reingold (1991): neighbours attract each other, and near nodes repel each other,
    found by a tree. The step shrinks to nothing over the rounds.
    """
    n = len(places)
    extent = np.sqrt(np.prod(np.maximum(np.ptp(places, axis=0), 1e-12)))
    places = places * (np.sqrt(n) / extent)  # now one node has an area of about one
    places = places + 0.1 * np.random.default_rng(0).standard_normal(places.shape)
    joined = sp.csr_array((np.ones(graph.weights.nnz), graph.weights.indices, graph.weights.indptr), shape=(n, n))
    neighbours: Floats = joined.sum(axis=1)
    for step in np.linspace(0.6, 0.0, _STEPS, endpoint=False):
        pairs = scipy.spatial.cKDTree(places).query_pairs(2.0, output_type="ndarray")
        apart = places[pairs[:, 0]] - places[pairs[:, 1]]
        push = apart / np.maximum((apart**2).sum(axis=1), 1e-3)[:, None]
        force = (joined @ places - neighbours[:, None] * places) / np.sqrt(neighbours)[:, None]
        for axis in (0, 1):
            force[:, axis] += np.bincount(pairs[:, 0], push[:, axis], n) - np.bincount(pairs[:, 1], push[:, axis], n)
        size = np.maximum(np.hypot(*force.T), 1e-12)
        places = places + force * (np.minimum(size, step) / size)[:, None]
    return places


def _pack(parts: list[Floats]) -> list[Floats]:
    """Set components next to each other on shelves, the largest first."""
    sizes = np.array([np.ptp(part, axis=0) + 1.5 for part in parts])
    width = max(float(sizes[:, 0].max()), 1.2 * float(np.sqrt(np.prod(sizes, axis=1).sum())))
    placed = [np.empty((0, 2))] * len(parts)
    x = y = shelf = 0.0
    for k in np.argsort(-sizes[:, 1], kind="stable"):
        if x > 0 and x + sizes[k, 0] > width:
            x, y, shelf = 0.0, y - shelf, 0.0
        low, high = parts[k].min(axis=0), parts[k].max(axis=0)
        placed[k] = parts[k] + np.array([x - low[0], y - high[1]])
        x, shelf = x + sizes[k, 0], max(shelf, sizes[k, 1])
    return placed
