"""Roads that run side by side, such as opposite carriageways: on a map they are drawn apart."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import scipy

from graphmatern.plotting._layout import find_layout

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from graphmatern.graph import Graph

    Floats = NDArray[np.float64]

__all__ = ["carriageway_shifts"]

_MOST_EDGES = 20_000  # beyond, lines are too thin for this to be seen
_NEAR = 0.006  # of the map's extent: lines nearer than this would cover each other
_STREET = 0.35  # of a mean edge: further apart, they are different streets
_SAMPLES = 12  # per edge at most
_NEIGHBOURS = 8


def carriageway_shifts(graph: Graph) -> Floats | None:
    """Directions in which edges are moved so that neighbouring carriageways do not cover each other.

    Returns
    -------
    ndarray, shape (n_rows, 2), optional
        Unit vectors at right angles to the edges, as seen on the map, pointing away from the other carriageway; 0 for
        an edge that runs alone. None if there are no such edges, or the graph is not a map.
    """
    return graph.cached("carriageways", lambda: _find_shifts(graph))


def _find_shifts(graph: Graph) -> Floats | None:
    layout, rows = find_layout(graph), graph._rows
    if not layout.is_map or layout.depth is not None or not 1 < len(rows) <= _MOST_EDGES:
        return None
    stretch = np.array([1.0, layout.aspect])
    places = layout.places * stretch
    lines = [places[[s, t]] for s, t in zip(rows.source, rows.target, strict=True)]
    if rows.geometry is not None:
        lines = [own if line is None else line * stretch for own, line in zip(lines, rows.geometry, strict=True)]
    lengths = np.array([np.hypot(*np.diff(line, axis=0).T).sum() for line in lines])
    reach = min(_NEAR * float(np.ptp(places, axis=0).max()), _STREET * float(lengths.mean()))
    if not reach > 0:
        return None
    edge, points, along = _sampled(lines, lengths, reach)
    distance, near = scipy.spatial.cKDTree(points).query(
        points, k=min(_NEIGHBOURS, len(points)), distance_upper_bound=reach
    )
    near = np.minimum(near, len(points) - 1)
    offset = points[near] - points[:, None]
    across = np.column_stack([-along[:, 1], along[:, 0]])
    turn = np.einsum("ij,ikj->ik", along, along[near])
    beside = np.einsum("ij,ikj->ik", across, offset)
    company = np.isfinite(distance) & (edge[near] != edge[:, None]) & (np.abs(turn) > 0.9)
    on_top = distance < 1e-3 * reach
    company &= (np.abs(beside) > 0.5 * distance) | (on_top & _same_ends(rows.source, rows.target, edge, edge[near]))
    # Of lines on top of each other, opposite directions keep to their right, and equal ones part by their order.
    side = np.where(on_top, np.where(turn < 0, 1.0, np.sign(edge[near] - edge[:, None])), np.sign(beside))
    votes = np.where(company, side, 0.0)
    found = votes[np.arange(len(votes)), np.abs(votes).argmax(axis=1)]
    count = np.bincount(edge, minlength=len(rows))
    share = np.bincount(edge, found, minlength=len(rows)) / np.maximum(count, 1)
    chord = np.array([line[-1] - line[0] for line in lines])
    size = np.maximum(np.hypot(*chord.T), 1e-300)
    away = -np.sign(share)[:, None] * np.column_stack([-chord[:, 1], chord[:, 0]]) / size[:, None]
    away[np.abs(share) < 0.4] = 0.0
    return away if away.any() else None


def _sampled(lines: list[Floats], lengths: Floats, reach: float) -> tuple[NDArray[np.int64], Floats, Floats]:
    """Points along lines, the edges they are on, and the directions of these there."""
    edges, points, along = [], [], []
    for number, (line, length) in enumerate(zip(lines, lengths, strict=True)):
        count = int(np.clip(2.0 * length / reach, 1, _SAMPLES))
        steps = np.hypot(*np.diff(line, axis=0).T)
        arc = np.concatenate([[0.0], np.cumsum(steps)])
        at = (np.arange(count) + 0.5) / count * arc[-1]
        part = np.clip(np.searchsorted(arc, at, side="right") - 1, 0, len(steps) - 1)
        direction = np.diff(line, axis=0)[part] / np.maximum(steps[part], 1e-300)[:, None]
        points.append(line[part] + (at - arc[part])[:, None] * direction)
        along.append(direction)
        edges.append(np.full(count, number))
    return np.concatenate(edges), np.vstack(points), np.vstack(along)


def _same_ends(
    source: NDArray[np.int64], target: NDArray[np.int64], edge: NDArray[np.int64], other: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Whether edges join the same two nodes."""
    low, high = np.minimum(source, target), np.maximum(source, target)
    return np.asarray((low[edge][:, None] == low[other]) & (high[edge][:, None] == high[other]))
