"""The dense float64 reference: the formulas, written with loops where that is plainest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.linalg import expm
from scipy.sparse.csgraph import connected_components

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from graphmatern import Graph

Array = Any


def dense_laplacian(graph: Graph, *, normalized: bool) -> NDArray[np.float64]:
    """Build a Laplacian entry by entry from the weight matrix."""
    weights = graph.weights.toarray()
    n = len(weights)
    masses = np.ones(n) if graph.masses is None else graph.masses
    degrees = [sum(weights[i]) for i in range(n)]
    result = np.zeros((n, n))
    for i in range(n):
        for j in range(n):
            entry = (degrees[i] if i == j else 0.0) - weights[i, j]
            if not normalized:
                result[i, j] = entry / np.sqrt(masses[i] * masses[j])
            elif degrees[i] > 0 and degrees[j] > 0:
                result[i, j] = entry / np.sqrt(degrees[i] * degrees[j])
    return result


def dense_spectrum(graph: Graph, *, normalized: bool = False) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Eigenvalues, and eigenvectors divided by the roots of the node masses, by a full decomposition."""

    def decompose() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        eigenvalues, vectors = np.linalg.eigh(dense_laplacian(graph, normalized=normalized))
        eigenvalues = np.maximum(eigenvalues, 0.0)
        # As many eigenvalues are exactly 0 as there are components; rounding must not decide that.
        eigenvalues[: connected_components(graph.weights, directed=False)[0]] = 0.0
        if normalized:
            eigenvalues = np.minimum(eigenvalues, 2.0)
        return eigenvalues, vectors if graph.masses is None else vectors / np.sqrt(graph.masses)[:, None]

    return graph.cached(("dense reference", normalized), decompose)


def dense_kernel(
    graph: Graph,
    psi: Callable[[Array], Array],
    *,
    variance: float = 1.0,
    normalized: bool = False,
    n_eigenpairs: int | None = None,
) -> NDArray[np.float64]:
    """A^(−1/2) a Ψ(Δ) A^(−1/2) with average diagonal ``variance``, from all eigenpairs or the first few."""
    eigenvalues, basis = dense_spectrum(graph, normalized=normalized)
    kept = slice(n_eigenpairs)
    kernel = basis[:, kept] @ np.diag(psi(eigenvalues[kept])) @ basis[:, kept].T
    return np.asarray(kernel * variance * len(kernel) / np.trace(kernel))


def feature_kernel(graph: Graph, features: Array, kernel: Any, *, normalized: bool) -> NDArray[np.float64]:
    """A kernel on smoothed features z = A^(−1/2) Φ(Δ) A^(1/2) X at variance 1, entry by entry."""
    values, n = kernel.values(), graph.n_nodes
    laplacian, kappa = dense_laplacian(graph, normalized=normalized), values["smoothing"]
    smooth = np.eye(n)
    if kernel.filter == "matern":
        smooth = np.linalg.inv(np.eye(n) + kappa**2 / 2 * laplacian)
    elif kernel.filter == "diffusion":
        smooth = expm(-(kappa**2) / 2 * laplacian)
    root = np.ones(n) if graph.masses is None else np.sqrt(graph.masses)
    z = (smooth @ (root[:, None] * features)) / root[:, None]
    found, name = np.zeros((n, n)), type(kernel).__name__
    for i in range(n):
        for j in range(n):
            if name == "LinearFeatures":
                found[i, j] = z[i] @ z[j] / np.mean(np.sum(features**2, axis=1))
            elif name == "CosineFeatures":
                lengths = np.linalg.norm(z[i]) * np.linalg.norm(z[j])
                found[i, j] = z[i] @ z[j] / lengths if lengths > 0 else 0.0
            else:
                spread = np.mean(np.sum((features - features.mean(axis=0)) ** 2, axis=1))
                found[i, j] = np.exp(-np.sum((z[i] - z[j]) ** 2) / (2 * values["bandwidth"] ** 2 * spread))
    return found


def areal_kernel(graph: Graph, name: str, variance: float, mixing: float) -> NDArray[np.float64]:
    """ICAR, BYM2 and Leroux, the constraint of the first two written out component by component."""
    laplacian = dense_laplacian(graph, normalized=False)
    n = len(laplacian)
    if name == "Leroux":
        return np.asarray(variance * np.linalg.inv(mixing * laplacian + (1.0 - mixing) * np.eye(n)))
    _, component = connected_components(graph.weights, directed=False)
    structured = np.zeros((n, n))
    for number in range(component.max() + 1):
        own = np.flatnonzero(component == number)
        inverse = np.ones((1, 1))
        if len(own) > 1:
            # Functions that sum to zero: Z (ZᵀΔZ)⁻¹ Zᵀ with Z orthogonal to the constant.
            basis = np.linalg.qr(np.column_stack([np.ones(len(own)), np.eye(len(own))[:, 1:]]))[0][:, 1:]
            inner = basis.T @ laplacian[np.ix_(own, own)] @ basis
            inverse = basis @ np.linalg.solve(inner, basis.T)
            inverse /= np.exp(np.mean(np.log(np.diag(inverse))))
        structured[np.ix_(own, own)] = inverse
    return np.asarray(variance * ((1.0 - mixing) * np.eye(n) + mixing * structured))


def matern_psi(nu: float, lengthscale: float) -> Callable[[Array], Array]:
    return lambda lam: (1.0 + lam * lengthscale**2 / (2 * nu)) ** -nu  # up to a constant factor


def diffusion_psi(lengthscale: float) -> Callable[[Array], Array]:
    return lambda lam: np.exp(-(lengthscale**2) * lam / 2)


def random_walk_psi(steps: int, laziness: float) -> Callable[[Array], Array]:
    return lambda lam: (1 - (1 - laziness) * lam) ** steps


def inverse_cosine_psi() -> Callable[[Array], Array]:
    return lambda lam: np.cos(np.pi * lam / 4)
