"""The two Laplacians of a weighted graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp

from graphmatern.sparse._pattern import with_diagonal

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["degrees", "laplacian_matrix", "largest_eigenvalue_bound", "sqrt_scaling"]


def degrees(weights: sp.csr_array) -> NDArray[np.float64]:
    """Sum of the weights at each node; shape (n_nodes,)."""
    return np.asarray(weights.sum(axis=1), dtype=np.float64).ravel()


def sqrt_scaling(
    degree: NDArray[np.float64], masses: NDArray[np.float64] | None, *, normalized: bool
) -> NDArray[np.float64] | None:
    """Return r with Laplacian = diag(1/r) (D − W) diag(1/r), or None where r is 1.

    The symmetric normalised Laplacian scales by r = D^(1/2), whatever the masses; otherwise node masses m scale by
    r = m^(1/2). Up to its norm, r is the null vector of a connected graph. Isolated nodes may have r = 0.
    """
    if normalized:
        return np.sqrt(degree)
    return None if masses is None else np.sqrt(masses)


def laplacian_matrix(
    weights: sp.csr_array, masses: NDArray[np.float64] | None = None, *, normalized: bool
) -> sp.csr_array:
    """Laplacian of a symmetric weight matrix; exactly symmetric.

    Parameters
    ----------
    weights : csr_array, shape (n_nodes, n_nodes)
        Symmetric weights with zero diagonal.
    masses : ndarray, shape (n_nodes,), optional
        Node masses.
    normalized : bool
        Whether to return D^(−1/2) (D − W) D^(−1/2) instead of A^(−1/2) (D − W) A^(−1/2).

    Returns
    -------
    csr_array, shape (n_nodes, n_nodes)
        With every diagonal entry stored, also those of isolated nodes.
    """
    degree = degrees(weights)
    scaling = sqrt_scaling(degree, masses, normalized=normalized)
    entries, diagonal = -weights.data, degree
    if scaling is not None:
        row = np.repeat(np.arange(weights.shape[0]), np.diff(weights.indptr))
        # r_i * r_j first: its rounding does not depend on the order of i and j.
        entries = entries / (scaling[row] * scaling[weights.indices])
        diagonal = (degree > 0).astype(np.float64) if normalized else degree / (scaling * scaling)
    narrow = len(entries) + len(diagonal) < 2**31
    indptr, indices, data = with_diagonal(
        weights.indptr.astype(np.int32 if narrow else np.int64, copy=False),
        weights.indices.astype(np.int32, copy=False),
        entries,
        diagonal,
    )
    return sp.csr_array((data, indices, indptr), shape=weights.shape)


def largest_eigenvalue_bound(laplacian: sp.csr_array) -> float:
    """Gershgorin's bound for the largest eigenvalue: the largest absolute row sum."""
    return float(np.max(abs(laplacian).sum(axis=1)))
