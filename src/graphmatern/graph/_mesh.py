"""Graphs of triangle meshes: cotangent weights, vertex areas, intrinsic Delaunay flips."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from graphmatern._validation import FaultList, abbreviate, as_numbers, check_choice, name_rows, warn
from graphmatern.errors import EdgeWarning, GraphError
from graphmatern.graph._edge_rows import EdgeRows
from graphmatern.graph._names import NodeNames
from graphmatern.graph._parts import GraphParts, checked

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["parts_from_mesh"]


def parts_from_mesh(vertices: Any, triangles: Any, *, obtuse: str) -> GraphParts:
    """Parts of a mesh's graph; see `Graph.from_mesh`."""
    check_choice("obtuse", obtuse, ("error", "flip", "clip"), GraphError)
    faults = FaultList("no graph was made", GraphError)
    places = as_numbers(vertices, "vertices", faults)
    try:
        corners = np.asarray(triangles)
    except ValueError:
        corners = np.zeros(0)
    _check_shapes(places, corners, faults)
    faults.raise_if_any()
    corners = corners.astype(np.int64)
    # Edge k of a triangle joins its corners k and k + 1; corner k + 2 lies opposite.
    lengths = np.linalg.norm(places[np.roll(corners, -1, axis=1)] - places[corners], axis=2)
    areas = _triangle_areas(lengths)
    masses = np.zeros(len(places))
    np.add.at(masses, corners, areas[:, None] / 3.0)
    _check_areas(areas, lengths, masses, faults)
    faults.raise_if_any()
    twins = _twin_edges(corners)
    flipped, lengths = (corners, lengths) if obtuse == "error" else _delaunay_flips(corners, lengths, twins)
    rows = _cotangent_rows(flipped, lengths, len(places))
    negative = rows.weight < -1e-10 * np.abs(rows.weight).max(initial=0.0)
    if negative.any() and obtuse != "clip":
        on_boundary = _boundary_keys(corners, twins, len(places))
        helpless = np.isin(rows.pair_keys(len(places))[negative], on_boundary).all()
        pairs = list(zip(rows.source[negative].tolist(), rows.target[negative].tolist(), strict=True))
        remedy = "Use obtuse='flip', or a mesh whose angles opposite every edge add up to at most 180°."
        if helpless:
            remedy = "Edges on the boundary cannot be flipped: refine the mesh there, or drop them by obtuse='clip'."
        received = f"negative weights at edges {abbreviate(pairs)}"
        raise faults.raise_now("triangles", "must give cotangent weights of at least 0", received, remedy)
    if negative.any():
        warn(f"{int(negative.sum())} edges with negative weights dropped, on the boundary of the mesh", EdgeWarning)
    kept = np.flatnonzero(rows.weight > 1e-14 * rows.weight.max(initial=0.0))
    rows = replace(rows.take(kept), ids=None)
    names = NodeNames.default(len(places))
    return checked(GraphParts(rows.merge(len(places), "sum"), names, rows, places, masses))


def _check_shapes(places: NDArray[np.float64], corners: NDArray[Any], faults: FaultList) -> None:
    if places.ndim != 2 or places.shape[1] not in (2, 3):
        faults.add("vertices", "must have shape (n_nodes, 2 or 3)", f"shape {places.shape}", "One row per vertex.")
    whole = corners.dtype.kind in "iu" or (corners.dtype.kind == "f" and bool((corners == np.round(corners)).all()))
    if corners.ndim != 2 or corners.shape[1:] != (3,) or len(corners) == 0 or not whole:
        received = f"shape {corners.shape}, type {corners.dtype}"
        faults.add("triangles", "must be whole numbers of shape (n_triangles, 3)", received, "One row per triangle.")
    elif places.ndim == 2:
        bad = (corners < 0).any(axis=1) | (corners >= len(places)).any(axis=1)
        if bad.any():
            rule = f"must number vertices from 0 to {len(places) - 1}"
            faults.add("triangles", rule, f"others in {name_rows(np.flatnonzero(bad))}", "Count from 0.")


def _check_areas(
    areas: NDArray[np.float64], lengths: NDArray[np.float64], masses: NDArray[np.float64], faults: FaultList
) -> None:
    flat = areas <= 1e-14 * lengths.max(axis=1) ** 2
    if flat.any():
        received = f"none in {name_rows(np.flatnonzero(flat))}"
        faults.add("triangles", "must have an area", received, "Remove degenerate triangles.")
    unused = masses == 0
    if unused.any() and not flat.any():
        received = f"vertices {abbreviate(np.flatnonzero(unused))} that belong to none"
        faults.add("vertices", "must belong to a triangle", received, "Remove unused vertices.")


def _triangle_areas(lengths: NDArray[np.float64]) -> NDArray[np.float64]:
    """Areas from edge lengths (n_triangles, 3), by Kahan's stable form of Heron's formula."""
    c, b, a = np.sort(lengths, axis=1).T
    product = (a + (b + c)) * (c - (a - b)) * (c + (a - b)) * (a + (b - c))
    return np.asarray(0.25 * np.sqrt(np.maximum(product, 0.0)))


def _cotangents(lengths: NDArray[np.float64]) -> NDArray[np.float64]:
    """Cotangent of the angle opposite each edge; shape (n_triangles, 3)."""
    squares = lengths**2
    others = squares.sum(axis=1, keepdims=True) - 2.0 * squares
    return np.asarray(others / (4.0 * _triangle_areas(lengths)[:, None]))


def _cotangent_rows(corners: NDArray[np.int64], lengths: NDArray[np.float64], n_nodes: int) -> EdgeRows:
    """Edges with w_ij = (cot α + cot β) / 2 over the angles opposite edge ij, and their lengths."""
    start, end = corners.ravel(), np.roll(corners, -1, axis=1).ravel()
    kept = start != end  # flips may glue a vertex to itself
    low, high = np.minimum(start, end)[kept], np.maximum(start, end)[kept]
    keys, first, pair = np.unique(low * np.int64(n_nodes) + high, return_index=True, return_inverse=True)
    weight = np.zeros(len(keys))
    np.add.at(weight, pair, 0.5 * _cotangents(lengths).ravel()[kept])
    return EdgeRows(low[first], high[first], weight, lengths.ravel()[kept][first])


def _boundary_keys(corners: NDArray[np.int64], twins: NDArray[np.int64], n_nodes: int) -> NDArray[np.int64]:
    """Keys (see `EdgeRows.pair_keys`) of the edges of one triangle only."""
    start, end = corners.ravel()[twins < 0], np.roll(corners, -1, axis=1).ravel()[twins < 0]
    return EdgeRows(start, end, np.ones(len(start))).pair_keys(n_nodes)


def _twin_edges(corners: NDArray[np.int64]) -> NDArray[np.int64]:
    """Number of the same edge in the neighbouring triangle, −1 on the boundary; shape (3 n_triangles,)."""
    start, end = corners.ravel(), np.roll(corners, -1, axis=1).ravel()
    pairs = np.sort(np.column_stack([start, end]), axis=1)
    _, edge, count = np.unique(pairs, axis=0, return_inverse=True, return_counts=True)
    edge = edge.ravel()
    if (count > 2).any():
        shared = np.unique(pairs[count[edge] > 2], axis=0)
        faults = FaultList("no graph was made", GraphError)
        raise faults.raise_now(
            "triangles",
            "must meet at most two at an edge",
            f"more at edges {abbreviate(map(tuple, shared.tolist()))}",
            "Split the surface there.",
        )
    order = np.argsort(edge, kind="stable")
    twins = np.full(len(edge), -1, np.int64)
    same = np.flatnonzero(edge[order][1:] == edge[order][:-1])
    twins[order[same]], twins[order[same + 1]] = order[same + 1], order[same]
    return twins


def _delaunay_flips(
    corners: NDArray[np.int64], lengths: NDArray[np.float64], twins: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Flip edges until the angles opposite each add up to at most 180°.

    The triangulation changes, the surface does not: only edge lengths are used (Bobenko and
    Springborn 2007). Works on half-edges numbered 3 * triangle + corner.
    """
    corners, lengths, twins = _oriented(corners, lengths, twins)
    vertex, length, twin = corners.ravel().tolist(), lengths.ravel().tolist(), twins.tolist()
    pending = [edge for edge, other in enumerate(twin) if other > edge]
    while pending:
        edge = pending.pop()
        other = twin[edge]
        if other < 0 or edge // 3 == other // 3:
            continue
        if _opposite_cotangent(length, edge) + _opposite_cotangent(length, other) >= -1e-12:
            continue
        _flip(edge, other, vertex, length, twin)
        first, second = 3 * (edge // 3), 3 * (other // 3)
        pending.extend([first + 1, first + 2, second + 1, second + 2])
    return np.array(vertex).reshape(-1, 3), np.array(length).reshape(-1, 3)


def _oriented(
    corners: NDArray[np.int64], lengths: NDArray[np.float64], twins: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.int64]]:
    """Turn triangles over until neighbours run along their common edge in opposite directions."""
    start, twin = corners.ravel().tolist(), twins.tolist()
    turned: list[bool | None] = [None] * len(corners)
    consistent = True
    for root in range(len(corners)):
        if turned[root] is not None:
            continue
        turned[root] = False
        queue = [root]
        for triangle in queue:
            for edge in range(3 * triangle, 3 * triangle + 3):
                if twin[edge] < 0:
                    continue
                other = twin[edge] // 3
                wanted = turned[triangle] != (start[edge] == start[twin[edge]])
                if turned[other] is None:
                    turned[other] = wanted
                    queue.append(other)
                consistent &= turned[other] == wanted
    if not consistent:
        faults = FaultList("no graph was made", GraphError)
        received = "a surface with one side"
        raise faults.raise_now("triangles", "must be orientable for flips", received, "Use obtuse='error'.")
    over = np.array(turned, dtype=bool)
    corners, lengths = corners.copy(), lengths.copy()
    # (i, j, k) becomes (j, i, k): edge 0 stays, edges 1 and 2 change places.
    corners[over] = corners[over][:, [1, 0, 2]]
    lengths[over] = lengths[over][:, [0, 2, 1]]
    return corners, lengths, _twin_edges(corners)


def _opposite_cotangent(length: list[float], edge: int) -> float:
    a = length[edge]
    b, c = (length[3 * (edge // 3) + (edge + step) % 3] for step in (1, 2))
    area = float(_triangle_areas(np.array([[a, b, c]]))[0])
    return float((b * b + c * c - a * a) / (4.0 * area))


def _flip(edge: int, other: int, vertex: list[int], length: list[float], twin: list[int]) -> None:
    """Replace the diagonal i-j of the quadrilateral i-l-j-k by l-k, in place.

    Before: triangles (i, j, k) at `edge` and (j, i, l) at `other`. After: (l, k, i) and (k, l, j).
    """

    def following(half: int, step: int) -> int:
        return 3 * (half // 3) + (half + step) % 3

    jk, ki, il, lj = following(edge, 1), following(edge, 2), following(other, 1), following(other, 2)
    i, j, k, l = vertex[edge], vertex[jk], vertex[ki], vertex[lj]  # noqa: E741
    base, a, b = length[edge], length[ki], length[il]

    def angle_at_i(side: float, opposite: float) -> float:
        return float(np.arccos(np.clip((base**2 + side**2 - opposite**2) / (2 * base * side), -1.0, 1.0)))

    angle = angle_at_i(a, length[jk]) + angle_at_i(b, length[lj])
    diagonal = float(np.sqrt(max(a * a + b * b - 2 * a * b * np.cos(angle), 0.0)))
    first, second = 3 * (edge // 3), 3 * (other // 3)
    moved = {ki: first + 1, il: first + 2, lj: second + 1, jk: second + 2}
    outer = {new: (length[old], twin[old]) for old, new in moved.items()}
    vertex[first : first + 3] = [l, k, i]
    vertex[second : second + 3] = [k, l, j]
    length[first] = length[second] = diagonal
    twin[first], twin[second] = second, first
    for new, (side, neighbour) in outer.items():
        length[new] = side
        twin[new] = moved.get(neighbour, neighbour)
        if twin[new] >= 0:
            twin[twin[new]] = new
