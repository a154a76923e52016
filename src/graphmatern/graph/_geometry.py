"""Polylines of edges: reading them and cutting them at points along the way."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["cut_line", "parse_line", "point_along"]

# Blanks are never given back: a cell of a million of them is not tried in a million ways.
_WKT = re.compile(r"\s*+LINESTRING\s*+(?:ZM|Z|M)?\s*+\((.*)\)\s*$", re.IGNORECASE | re.DOTALL)


def parse_line(line: Any) -> NDArray[np.float64]:
    """Read a polyline from WKT text, a shapely line, or an array of coordinates.

    Parameters
    ----------
    line : str, object with ``coords``, or array_like of shape (n_points, 2 or more)
        Coordinates beyond the first two are dropped.

    Returns
    -------
    ndarray, shape (n_points, 2)

    Raises
    ------
    ValueError
        Where it is none of these, has fewer than two points, or holds a value that is not finite.

    Examples
    --------
    >>> parse_line("LINESTRING (0 0, 1.5 2)")
    array([[0. , 0. ],
           [1.5, 2. ]])
    """
    if isinstance(line, str):
        match = _WKT.match(line)
        if match is None:
            raise ValueError("not a WKT LINESTRING")
        points = np.array([point.split()[:2] for point in match[1].split(",")], dtype=np.float64)
    else:
        points = np.array(getattr(line, "coords", line), dtype=np.float64)
    if points.ndim != 2 or points.shape[0] < 2 or points.shape[1] < 2:
        raise ValueError("fewer than two points")
    if not np.isfinite(points).all():
        raise ValueError("a coordinate is not finite")
    return np.ascontiguousarray(points[:, :2])


def _arc_fractions(line: NDArray[np.float64]) -> NDArray[np.float64]:
    """Fraction of the line's length at each of its points."""
    steps = np.hypot(*np.diff(line, axis=0).T)
    arc = np.concatenate([[0.0], np.cumsum(steps)])
    return arc / arc[-1] if arc[-1] > 0 else np.linspace(0.0, 1.0, len(line))


def point_along(line: NDArray[np.float64], fractions: NDArray[np.float64]) -> NDArray[np.float64]:
    """Points at given fractions of a line's length; shape (n_fractions, 2)."""
    arc = _arc_fractions(line)
    return np.column_stack([np.interp(fractions, arc, line[:, axis]) for axis in (0, 1)])


def cut_line(line: NDArray[np.float64], fractions: NDArray[np.float64]) -> list[NDArray[np.float64]]:
    """Cut a line at increasing fractions of its length, into one piece more than there are cuts.

    Examples
    --------
    >>> cut_line(np.array([[0.0, 0.0], [4.0, 0.0]]), np.array([0.25]))[0]
    array([[0., 0.],
           [1., 0.]])
    """
    arc = _arc_fractions(line)
    bounds = np.concatenate([[0.0], fractions, [1.0]])
    ends = np.vstack([line[:1], point_along(line, fractions), line[-1:]])
    return [
        np.vstack([ends[k], line[(arc > bounds[k]) & (arc < bounds[k + 1])], ends[k + 1]])
        for k in range(len(bounds) - 1)
    ]
