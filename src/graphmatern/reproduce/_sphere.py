"""The Matérn kernel on meshes of the sphere, and the sphere's own from spherical harmonics."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.spatial import ConvexHull

from graphmatern.graph import Graph
from graphmatern.kernels import Matern

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Floats = NDArray[np.float64]

__all__ = ["convergence", "icosphere", "mesh_kernel", "sphere_kernel"]

LENGTHSCALE = 0.5  # κ of the sphere's kernel; the radius is 1


def icosphere(rounds: int) -> tuple[Floats, NDArray[np.int64]]:
    """Vertices and triangles of a subdivided icosahedron on the unit sphere.

    The north pole is the middle of one of the icosahedron's edges: a vertex with six neighbours. At its twelve corners,
    with five, the error falls a little more slowly.

    Parameters
    ----------
    rounds : int
        How often every triangle is cut into four, at least once; 10 · 4^rounds + 2 vertices.

    Examples
    --------
    >>> vertices, triangles = icosphere(2)
    >>> len(vertices), len(triangles)
    (162, 320)
    """
    golden = (1.0 + np.sqrt(5.0)) / 2.0
    corner = np.array([[0.0, s, t * golden] for s in (-1.0, 1.0) for t in (-1.0, 1.0)])
    vertices = np.vstack([np.roll(corner, k, axis=1) for k in range(3)]) / np.hypot(1.0, golden)
    triangles = ConvexHull(vertices).simplices.astype(np.int64)
    for _ in range(rounds):
        ends = np.sort(np.stack([triangles, np.roll(triangles, -1, axis=1)], axis=2).reshape(-1, 2), axis=1)
        edges, place = np.unique(ends, axis=0, return_inverse=True)
        middle = vertices[edges].sum(axis=1)
        middle /= np.linalg.norm(middle, axis=1, keepdims=True)
        m = (len(vertices) + place).reshape(-1, 3)  # middles of the edges 01, 12, 20
        vertices = np.vstack([vertices, middle])
        a, b, c = triangles.T
        corners = [(a, m[:, 0], m[:, 2]), (m[:, 0], b, m[:, 1]), (m[:, 2], m[:, 1], c), tuple(m.T)]
        triangles = np.vstack([np.column_stack(corner) for corner in corners])
    return vertices, triangles


def mesh_kernel(rounds: int, nu: float, degree: int) -> tuple[Floats, Floats]:
    """Kernel k_ν(north pole, ·) of a mesh.

    Parameters
    ----------
    rounds : int
        See `icosphere`.
    nu : float
        Smoothness on the graph: that of the sphere and half its dimension.
    degree : int
        Largest degree ℓ of the spherical harmonics that are kept: (ℓ + 1)² eigenpairs.

    Returns
    -------
    vertices : ndarray, shape (n_nodes, 3)
    values : ndarray, shape (n_nodes,)
        With an average variance of 1.
    """
    vertices, triangles = icosphere(rounds)
    graph = Graph.from_mesh(vertices, triangles)
    # The same shift 2ν/κ² on both sides.
    lengthscale = LENGTHSCALE * np.sqrt(nu / (nu - 1.0))
    bound = Matern(nu, lengthscale).on(graph, n_eigenpairs=(degree + 1) ** 2)
    return vertices, bound.matrix(graph.nodes, [int(vertices[:, 2].argmax())]).detach().numpy()[:, 0]


def sphere_kernel(cosine: ArrayLike, nu: float, degree: int) -> Floats:
    """Kernel of the sphere with smoothness ν − 1, of unit variance, by the addition theorem.

    Parameters
    ----------
    cosine : array_like
        Cosine of the angle between the two points.
    nu : float
        Smoothness on the graph.
    degree : int
        Largest degree ℓ of the harmonics.

    Returns
    -------
    ndarray, shape as ``cosine``
    """
    order = np.arange(degree + 1)
    shift = 2.0 * (nu - 1.0) / LENGTHSCALE**2
    coefficients = (2 * order + 1) * (shift + order * (order + 1)) ** -nu
    return np.asarray(np.polynomial.legendre.legval(np.asarray(cosine), coefficients / coefficients.sum()))


def convergence(rounds: list[int], nus: list[float], degree: int) -> dict[str, Any]:
    """Largest error at the vertices against the number of vertices and the mesh size.

    Returns
    -------
    dict
        ``n_nodes``, ``mesh_size`` (mean length of an edge), and by ν ``errors`` and ``orders`` (slopes between
        neighbouring meshes in double logarithmic scale).
    """
    sizes, counts = [], []
    errors: dict[str, list[float]] = {f"{nu:g}": [] for nu in nus}
    for number in rounds:
        vertices, triangles = icosphere(number)
        sizes.append(
            float(np.linalg.norm(vertices[triangles] - vertices[np.roll(triangles, 1, axis=1)], axis=2).mean())
        )
        counts.append(len(vertices))
        for nu in nus:
            _, values = mesh_kernel(number, nu, degree)
            errors[f"{nu:g}"].append(float(np.abs(values - sphere_kernel(vertices[:, 2], nu, degree)).max()))
    orders = {nu: (np.diff(np.log(found)) / np.diff(np.log(sizes))).tolist() for nu, found in errors.items()}
    return {"n_nodes": counts, "mesh_size": sizes, "errors": errors, "orders": orders}
