"""Eigenvalues and eigenvectors of a graph's Laplacian."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import scipy.linalg as la

if TYPE_CHECKING:
    import scipy.sparse as sp
    from numpy.typing import NDArray

__all__ = ["Spectrum", "dense_spectrum"]


@dataclass(frozen=True, eq=False)
class Spectrum:
    """The smallest eigenpairs Δ u = λ u of a graph's Laplacian.

    Attributes
    ----------
    eigenvalues : ndarray, shape (n_eigenpairs,)
        Increasing; exactly 0 once per connected component, positive otherwise.
    eigenvectors : ndarray, shape (n_nodes, n_eigenpairs)
        Orthonormal columns. The first of the entries largest in absolute value is positive.
    normalized : bool
        Which Laplacian they belong to.
    masses : ndarray, shape (n_nodes,), optional
        Node masses of the graph.

    Examples
    --------
    >>> import graphmatern as gm
    >>> gm.Graph.from_edges([(0, 1)]).spectrum().eigenvalues
    array([0., 2.])
    """

    eigenvalues: NDArray[np.float64]
    eigenvectors: NDArray[np.float64]
    normalized: bool
    masses: NDArray[np.float64] | None = None

    @property
    def n_nodes(self) -> int:
        """Number of nodes of the graph."""
        return len(self.eigenvectors)

    @property
    def n_eigenpairs(self) -> int:
        """Number of eigenpairs kept."""
        return len(self.eigenvalues)

    @property
    def is_complete(self) -> bool:
        """Whether all eigenpairs are here."""
        return self.n_eigenpairs == self.n_nodes

    @cached_property
    def basis(self) -> NDArray[np.float64]:
        """Eigenvectors on the nodes, A^(−1/2) U; shape (n_nodes, n_eigenpairs).

        The kernel of the process on the nodes is ``basis @ diag(Ψ) @ basis.T``.
        """
        if self.masses is None:
            return self.eigenvectors
        return self.eigenvectors / np.sqrt(self.masses)[:, None]

    @cached_property
    def squared_norms(self) -> NDArray[np.float64]:
        """Squared norms of the columns of `basis`, all 1 without masses; shape (n_eigenpairs,).

        tr(A^(−1/2) Ψ(Δ) A^(−1/2)) is the sum of Ψ(λ) times these.
        """
        if self.masses is None:
            return np.ones(self.n_eigenpairs)
        return np.asarray(np.einsum("ij,ij->j", self.basis, self.basis))

    def truncate(self, n_eigenpairs: int) -> Spectrum:
        """Keep the smallest eigenpairs only (views, no copies)."""
        if n_eigenpairs >= self.n_eigenpairs:
            return self
        return Spectrum(
            self.eigenvalues[:n_eigenpairs], self.eigenvectors[:, :n_eigenpairs], self.normalized, self.masses
        )

    def residuals(self, laplacian: sp.csr_array) -> NDArray[np.float64]:
        """Norms of Δu − λu, one per eigenpair; shape (n_eigenpairs,)."""
        difference = laplacian @ self.eigenvectors - self.eigenvectors * self.eigenvalues
        return np.asarray(np.linalg.norm(difference, axis=0))


def _null_vector(laplacian: sp.csr_array, scaling: NDArray[np.float64] | None) -> NDArray[np.float64]:
    """Unit vector spanning the null space of a connected component's Laplacian diag(s)(D − W)diag(s)."""
    vector = np.ones(laplacian.shape[0]) if scaling is None else 1.0 / scaling
    return vector / np.linalg.norm(vector)


def _connectivity_bound(laplacian: sp.csr_array, scaling: NDArray[np.float64] | None) -> float:
    """Lower bound for the second eigenvalue of a connected component.

    Mohar (1991): λ₂ ≥ 4 w_min / (n · diameter) for D − W; the scaling s costs a factor of min(s²).
    """
    n = laplacian.shape[0]
    coo = laplacian.tocoo()
    off = coo.row != coo.col
    weight, least = -coo.data[off], 1.0
    if scaling is not None:
        weight = weight / (scaling[coo.row[off]] * scaling[coo.col[off]])
        least = float(scaling.min()) ** 2
    return float(4.0 * weight.min() / (n * (n - 1.0)) * least)


def _component_eigenpairs(
    laplacian: sp.csr_array, scaling: NDArray[np.float64] | None, n_eigenpairs: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Smallest eigenpairs of one connected component, its null vector split off exactly.

    A Householder reflection H takes the null vector to the first axis; the rest of H Δ H is then
    decomposed by itself, so that no rounding mixes the null vector with slow eigenvectors.
    """
    n = laplacian.shape[0]
    null = _null_vector(laplacian, scaling)
    if n == 1 or n_eigenpairs == 1:
        return np.zeros(1), null[:, None]
    axis = null.copy()
    axis[0] += np.copysign(1.0, axis[0])
    axis /= np.linalg.norm(axis)
    dense = laplacian.toarray()
    # H Δ H = Δ − 2 (a pᵀ + p aᵀ) with p = Δa − (aᵀΔa) a.
    product = dense @ axis
    product -= (axis @ product) * axis
    dense -= 2.0 * (np.outer(axis, product) + np.outer(product, axis))
    wanted = min(n_eigenpairs, n) - 1
    if wanted == n - 1:
        values, inner = la.eigh(dense[1:, 1:], driver="evd", overwrite_a=True, check_finite=False)
    else:
        values, inner = la.eigh(
            dense[1:, 1:], subset_by_index=(0, wanted - 1), overwrite_a=True, check_finite=False
        )
    vectors = np.empty((n, wanted + 1))
    vectors[:, 0] = null
    vectors[0, 1:] = 0.0
    vectors[1:, 1:] = inner
    vectors[:, 1:] -= np.outer(axis, 2.0 * (axis @ vectors[:, 1:]))
    # Rounding may push eigenvalues below what a connected graph can have.
    values = np.maximum(values, _connectivity_bound(laplacian, scaling))
    return np.concatenate([[0.0], values]), vectors


def _fix_signs(vectors: NDArray[np.float64]) -> None:
    """Make the first of the (nearly) largest entries of each column positive, in place."""
    size = np.abs(vectors)
    leading = np.argmax(size >= (1.0 - 1e-6) * size.max(axis=0), axis=0)
    vectors *= np.where(vectors[leading, np.arange(vectors.shape[1])] < 0, -1.0, 1.0)


def dense_spectrum(
    laplacian: sp.csr_array,
    component: NDArray[np.int64],
    scaling: NDArray[np.float64] | None,
    masses: NDArray[np.float64] | None,
    *,
    normalized: bool,
    n_eigenpairs: int,
) -> Spectrum:
    """Eigenpairs by dense decomposition of each connected component.

    Parameters
    ----------
    laplacian : csr_array, shape (n_nodes, n_nodes)
        Either Laplacian.
    component : ndarray of int64, shape (n_nodes,)
        Component of every node, numbered from 0.
    scaling : ndarray, shape (n_nodes,), optional
        See `inverse_sqrt_scaling`.
    masses : ndarray, shape (n_nodes,), optional
        Node masses.
    normalized : bool
        Which Laplacian it is.
    n_eigenpairs : int
        How many to return, at most ``n_nodes``.

    Returns
    -------
    Spectrum
        Deterministic up to rotations inside eigenspaces of dimension above one.
    """
    n = laplacian.shape[0]
    order = np.argsort(component, kind="stable")
    bounds = np.searchsorted(component[order], np.arange(component.max() + 2))
    values: list[NDArray[np.float64]] = []
    blocks: list[tuple[NDArray[np.int64], NDArray[np.float64]]] = []
    for start, stop in pairwise(bounds):
        members = order[start:stop]
        if len(members) == 1:
            pair_values, pair_vectors = np.zeros(1), np.ones((1, 1))
        else:
            block = laplacian[members][:, members] if len(members) < n else laplacian
            pair_values, pair_vectors = _component_eigenpairs(
                block, None if scaling is None else scaling[members], n_eigenpairs
            )
        values.append(pair_values)
        blocks.append((members, pair_vectors))
    every = np.concatenate(values)
    ranks = np.argsort(every, kind="stable")[:n_eigenpairs]
    column_of = np.full(len(every), -1)
    column_of[ranks] = np.arange(len(ranks))
    vectors = np.zeros((n, len(ranks)), order="F")
    start = 0
    for members, pair_vectors in blocks:
        columns = column_of[start : start + pair_vectors.shape[1]]
        start += pair_vectors.shape[1]
        kept = columns >= 0
        vectors[np.ix_(members, columns[kept])] = pair_vectors[:, kept]
    _fix_signs(vectors)
    return Spectrum(every[ranks], vectors, normalized, masses)
