"""Eigenvalues and eigenvectors of a graph's Laplacian."""

from __future__ import annotations

from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

import numpy as np
import scipy.linalg as la

from graphmatern._progress import announce
from graphmatern.errors import ResourceError
from graphmatern.graph._eigen import residual_norms, smallest_eigenpairs, smallest_eigenpairs_seconds

if TYPE_CHECKING:
    import scipy.sparse as sp
    from numpy.typing import NDArray

__all__ = ["Spectrum", "is_dense", "laplacian_spectrum", "spectrum_cost"]

_SMALL = 1500  # nodes up to which a dense decomposition is as quick as any
_MIDDLING = 3000  # nodes up to which it pays for fewer eigenpairs: 500 of Cora's 2,485 take 2.4 s, else 1.3 or 6.2 s
_MEMORY_LIMIT = 16 * 2**30  # bytes for eigenvectors and the work on them
_PER_CUBE = 5e-10  # seconds of a dense decomposition, per node cubed


class Spectrum:
    """The smallest eigenpairs Δ u = λ u of a graph's Laplacian. Immutable.

    Parameters
    ----------
    eigenvalues : ndarray, shape (n_eigenpairs,)
        Increasing; exactly 0 once per connected component, positive otherwise.
    eigenvectors : ndarray, shape (n_nodes, n_eigenpairs)
        Orthonormal columns. The first of the entries largest in absolute value is positive.
    normalized : bool
        Which Laplacian they belong to.
    masses : ndarray, shape (n_nodes,), optional
        Node masses of the graph.
    residuals : ndarray, shape (n_eigenpairs,)
        Norms of Δu − λu.

    Examples
    --------
    >>> import graphmatern as gm
    >>> spectrum = gm.Graph.from_edges([(0, 1)]).spectrum()
    >>> spectrum
    Spectrum(all 2 eigenpairs, from 0 to 2)
    >>> spectrum.eigenvalues
    array([0., 2.])
    """

    def __init__(
        self,
        eigenvalues: NDArray[np.float64],
        eigenvectors: NDArray[np.float64],
        normalized: bool,
        masses: NDArray[np.float64] | None,
        residuals: NDArray[np.float64],
    ) -> None:
        # Shared with torch, which wants writable memory; everybody else gets read-only views.
        self._eigenvalues = eigenvalues
        self._eigenvectors = eigenvectors
        self.normalized = normalized
        self.masses = masses
        self.residuals = _read_only(residuals)

    def __repr__(self) -> str:
        count, nodes = self.n_eigenpairs, self.n_nodes
        some = f"all {nodes:,} eigenpairs" if self.is_complete else f"{count:,} of {nodes:,} eigenpairs"
        ends = f", from {self._eigenvalues[0]:.4g} to {self._eigenvalues[-1]:.4g}" if count else ""
        return f"Spectrum({some}{ends}{', normalized' if self.normalized else ''})"

    @property
    def eigenvalues(self) -> NDArray[np.float64]:
        """Eigenvalues, increasing; shape (n_eigenpairs,)."""
        return _read_only(self._eigenvalues)

    @property
    def eigenvectors(self) -> NDArray[np.float64]:
        """Orthonormal eigenvectors; shape (n_nodes, n_eigenpairs)."""
        return _read_only(self._eigenvectors)

    @property
    def n_nodes(self) -> int:
        """Number of nodes of the graph."""
        return len(self._eigenvectors)

    @property
    def n_eigenpairs(self) -> int:
        """Number of eigenpairs kept."""
        return len(self._eigenvalues)

    @property
    def is_complete(self) -> bool:
        """Whether all eigenpairs are here."""
        return self.n_eigenpairs == self.n_nodes

    @cached_property
    def _basis(self) -> NDArray[np.float64]:
        if self.masses is None:
            return self._eigenvectors
        return self._eigenvectors / np.sqrt(self.masses)[:, None]

    @property
    def basis(self) -> NDArray[np.float64]:
        """Eigenvectors on the nodes, A^(−1/2) U; shape (n_nodes, n_eigenpairs).

        The kernel of the process on the nodes is ``basis @ diag(Ψ) @ basis.T``.
        """
        return _read_only(self._basis)

    @cached_property
    def squared_norms(self) -> NDArray[np.float64]:
        """Squared norms of the columns of `basis`, all 1 without masses; shape (n_eigenpairs,).

        tr(A^(−1/2) Ψ(Δ) A^(−1/2)) is the sum of Ψ(λ) times these.
        """
        if self.masses is None:
            return np.ones(self.n_eigenpairs)
        return np.asarray(np.einsum("ij,ij->j", self._basis, self._basis))

    def truncate(self, n_eigenpairs: int) -> Spectrum:
        """Keep the smallest eigenpairs only (views, no copies)."""
        if n_eigenpairs >= self.n_eigenpairs:
            return self
        kept = self._eigenvalues[:n_eigenpairs], self._eigenvectors[:, :n_eigenpairs]
        return Spectrum(*kept, self.normalized, self.masses, self.residuals[:n_eigenpairs])


def _read_only(array: NDArray[np.float64]) -> NDArray[np.float64]:
    view = array.view()
    view.flags.writeable = False
    return view


def _null_vector(laplacian: sp.csr_array, scaling: NDArray[np.float64] | None) -> NDArray[np.float64]:
    """Unit vector spanning the null space of a connected component's Laplacian; see `sqrt_scaling`."""
    vector = np.ones(laplacian.shape[0]) if scaling is None else scaling / scaling.max()
    return vector / np.linalg.norm(vector)


def _connectivity_bound(laplacian: sp.csr_array, scaling: NDArray[np.float64] | None) -> float:
    """Lower bound for the second eigenvalue of a connected component.

    Mohar (1991): λ₂ ≥ 4 w_min / (n · diameter) for D − W; the scaling r costs a factor of max(r²).
    """
    n = laplacian.shape[0]
    coo = laplacian.tocoo()
    off = coo.row != coo.col
    weight = -coo.data[off]
    if scaling is not None:
        relative = scaling / scaling.max()
        weight = weight * (relative[coo.row[off]] * relative[coo.col[off]])
    return float(4.0 * weight.min() / (n * (n - 1.0)))


def _component_eigenpairs(
    laplacian: sp.csr_array, scaling: NDArray[np.float64] | None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """All eigenpairs of one connected component, its null vector split off exactly.

    A Householder reflection H takes the null vector to the first axis; the rest of H Δ H is then
    decomposed by itself, so that no rounding mixes the null vector with slow eigenvectors.
    """
    n = laplacian.shape[0]
    if n == 1:
        return np.zeros(1), np.ones((1, 1))
    null = _null_vector(laplacian, scaling)
    axis = null.copy()
    axis[0] += np.copysign(1.0, axis[0])
    axis /= np.linalg.norm(axis)
    dense = laplacian.toarray()
    # H Δ H = Δ − 2 (a pᵀ + p aᵀ) with p = Δa − (aᵀΔa) a.
    product = dense @ axis
    product -= (axis @ product) * axis
    dense -= 2.0 * (np.outer(axis, product) + np.outer(product, axis))
    rest = dense[1:, 1:]
    # LAPACK's divide and conquer, as older SciPy calls it, stumbles over matrices of one row.
    driver: Literal["ev", "evd"] = "evd" if n > 2 else "ev"
    values, inner = la.eigh(rest, driver=driver, overwrite_a=True, check_finite=False)
    vectors = np.empty((n, n), order="F")
    vectors[:, 0] = null
    vectors[0, 1:] = 0.0
    vectors[1:, 1:] = inner
    vectors[:, 1:] -= np.outer(axis, 2.0 * (axis @ vectors[:, 1:]))
    # Rounding may push eigenvalues below what a connected graph can have.
    values = np.maximum(values, _connectivity_bound(laplacian, scaling))
    return np.concatenate([[0.0], values]), vectors


def _fix_signs(vectors: NDArray[np.float64]) -> None:
    """Make the first of the (nearly) largest entries of each column positive, in place."""
    for column in vectors.T:
        size = np.abs(column)
        if column[np.argmax(size >= (1.0 - 1e-6) * size.max())] < 0:
            np.negative(column, out=column)


def is_dense(size: int, n_eigenpairs: int) -> bool:
    """Whether all eigenpairs of a component of this size are computed to return some of them."""
    return size <= _SMALL or n_eigenpairs > size // (4 if size > _MIDDLING else 6)


def _some_eigenpairs(
    laplacian: sp.csr_array, scaling: NDArray[np.float64] | None, n_eigenpairs: int
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Smallest eigenpairs of one connected component, and their residuals."""
    n = laplacian.shape[0]
    if not is_dense(n, n_eigenpairs):
        null = _null_vector(laplacian, scaling)[:, None]
        values, vectors, residuals = smallest_eigenpairs(laplacian, null, n_eigenpairs)
        values[1:] = np.maximum(values[1:], _connectivity_bound(laplacian, scaling))
        return values, vectors, residuals
    _check_memory(n, n_eigenpairs, _dense_bytes(n))
    announce(f"all eigenpairs of {n:,} nodes", _PER_CUBE * n**3, _dense_bytes(n))
    # All are computed and some kept, so that those do not depend on how many were asked for.
    values, vectors = _component_eigenpairs(laplacian, scaling)
    values, vectors = values[:n_eigenpairs], vectors[:, :n_eigenpairs]
    return values, vectors, residual_norms(laplacian, values, vectors)


def _dense_bytes(n_nodes: int) -> int:
    return 4 * 8 * n_nodes**2


def spectrum_cost(
    laplacian: sp.csr_array,
    component: NDArray[np.int64],
    scaling: NDArray[np.float64] | None,
    n_eigenpairs: int,
) -> tuple[float, int]:
    """Seconds and bytes that `laplacian_spectrum` would take, about; its arguments."""
    seconds, memory = 0.0, 8 * laplacian.shape[0] * n_eigenpairs
    sizes = np.bincount(component)
    for number in np.flatnonzero(sizes > 1):
        size = int(sizes[number])
        if is_dense(size, n_eigenpairs):
            seconds += _PER_CUBE * size**3
            memory = max(memory, _dense_bytes(size))
            continue
        members = np.flatnonzero(component == number)
        own = None if scaling is None else scaling[members]
        part = laplacian if len(sizes) == 1 else laplacian[members][:, members]
        seconds += smallest_eigenpairs_seconds(part, _null_vector(part, own)[:, None], n_eigenpairs)
        memory = max(memory, 24 * size * n_eigenpairs)  # a basis of twice as many vectors, and the eigenvectors
    return seconds, memory


def _check_memory(n_nodes: int, n_eigenpairs: int, bytes_needed: int) -> None:
    if bytes_needed > _MEMORY_LIMIT:
        raise ResourceError(
            f"{min(n_eigenpairs, n_nodes):,} eigenpairs of {n_nodes:,} nodes would take {bytes_needed / 2**30:,.0f} "
            f"GiB, more than the {_MEMORY_LIMIT / 2**30:.0f} GiB allowed; ask for fewer (n_eigenpairs)"
        )


def laplacian_spectrum(
    laplacian: sp.csr_array,
    component: NDArray[np.int64],
    scaling: NDArray[np.float64] | None,
    masses: NDArray[np.float64] | None,
    *,
    normalized: bool,
    n_eigenpairs: int,
) -> Spectrum:
    """Smallest eigenpairs, computed for each connected component by itself.

    Parameters
    ----------
    laplacian : csr_array, shape (n_nodes, n_nodes)
        Either Laplacian.
    component : ndarray of int64, shape (n_nodes,)
        Component of every node, numbered from 0.
    scaling : ndarray, shape (n_nodes,), optional
        See `sqrt_scaling`.
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
    _check_memory(n, n_eigenpairs, 8 * n * n_eigenpairs)
    order = np.argsort(component, kind="stable")
    bounds = np.searchsorted(component[order], np.arange(component.max() + 2))
    if len(bounds) == 2:
        every, vectors, residuals = _some_eigenpairs(laplacian, scaling, n_eigenpairs)
    else:
        values: list[NDArray[np.float64]] = []
        blocks: list[tuple[NDArray[np.int64], NDArray[np.float64]]] = []
        for start, stop in pairwise(bounds):
            members = order[start:stop]
            own = None if scaling is None else scaling[members]
            block_values, block_vectors, block_residuals = _some_eigenpairs(
                laplacian[members][:, members], own, n_eigenpairs
            )
            values.append(np.stack([block_values, block_residuals]))
            blocks.append((members, block_vectors))
        every, residuals, vectors = _merge(values, blocks, n, n_eigenpairs)
    _fix_signs(vectors)
    return Spectrum(every, vectors, normalized, masses, residuals)


def _merge(
    values: list[NDArray[np.float64]],
    blocks: list[tuple[NDArray[np.int64], NDArray[np.float64]]],
    n_nodes: int,
    n_eigenpairs: int,
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Smallest of the components' eigenvalues, their residuals and vectors, which are zero outside their component."""
    every, residuals = np.concatenate(values, axis=1)
    ranks = np.argsort(every, kind="stable")[:n_eigenpairs]
    column_of = np.full(len(every), -1)
    column_of[ranks] = np.arange(len(ranks))
    vectors = np.zeros((n_nodes, len(ranks)), order="F")
    start = 0
    for members, block in blocks:
        columns = column_of[start : start + block.shape[1]]
        start += block.shape[1]
        kept = columns >= 0
        vectors[np.ix_(members, columns[kept])] = block[:, kept]
    return every[ranks], residuals[ranks], vectors
