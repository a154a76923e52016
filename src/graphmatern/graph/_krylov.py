"""Block Krylov spaces of a symmetric operator: its largest eigenpairs.

Full reorthogonalisation in BLAS-3 and thick restarts (Stewart 2001).
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.linalg as la
import scipy.sparse as sp

from graphmatern.errors import NumericalError
from graphmatern.graph._laplacian import largest_eigenvalue_bound
from graphmatern.sparse import single_threaded_blas

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray
    from tqdm import tqdm

    Floats = NDArray[np.float64]

__all__ = ["BlockKrylov", "column_slices", "in_unit", "orthonormal", "rayleigh_ritz", "residual_norms"]

_TOLERANCE = 1e-9  # residual of the operator's eigenpairs, relative to their eigenvalue
_ROUNDING = 1e-14  # the same, relative to the largest eigenvalue: less cannot be had
_RESTARTS = 40
_PATIENCE = 3  # restarts without any progress
_ROWS_AT_ONCE = 8192
_COLUMNS_AT_ONCE = 64
_SMALL_MATRIX = 3000  # rows of a projection whose decomposition threads of BLAS do not speed up reliably


class BlockKrylov:
    """Largest eigenpairs of a symmetric operator, orthogonal to known vectors.

    Parameters
    ----------
    apply : callable
        The operator, on blocks of shape (n, k).
    known : ndarray, shape (n, n_known)
        Vectors to stay orthogonal to.
    wanted : int
        Number of eigenpairs.
    rng : Generator
        Source of starting blocks.
    block : int
        Columns handled together; also the multiplicity that needs no second look.
    """

    def __init__(
        self, apply: Callable[[Floats], Floats], known: Floats, wanted: int, rng: np.random.Generator, block: int = 16
    ) -> None:
        self.block = block
        self._apply = apply
        self._known = known
        self._wanted = wanted
        self._rng = rng
        n = len(known)
        self._kept = wanted + 2 * self.block
        capacity = max(2 * wanted, self._kept + 6 * self.block) // self.block * self.block
        self._basis = np.empty((n, min(capacity, n - known.shape[1])), order="F")
        self._projected = np.zeros((self._basis.shape[1], self._basis.shape[1]))
        self._size = 0

    def run(self, bar: tqdm[Any]) -> Floats:
        """Return orthonormal vectors spanning the invariant subspace, shape (n, wanted)."""
        capacity = self._basis.shape[1]
        block = self._fresh(self._basis[:, :0], min(self.block, capacity))
        coupling = np.zeros((block.shape[1], block.shape[1]))
        check_from = self._wanted + self._wanted // 2
        best, idle = -1, 0
        for _ in range(_RESTARTS):
            while self._size + block.shape[1] <= capacity:
                block, coupling = self._extend(block)
                bar.set_postfix_str(f"{self._size:,} vectors")
                full = self._size + block.shape[1] > capacity
                if not full and self._size < check_from:
                    continue
                values, rotation = _decomposed(self._projected[: self._size, : self._size])
                tail = rotation[self._size - coupling.shape[1] : self._size, : self._wanted]
                error = np.linalg.norm(coupling @ tail, axis=0)
                enough = np.maximum(_TOLERANCE * values[: self._wanted], _ROUNDING * values[0])
                converged = int((error <= enough).sum())
                bar.update(converged - bar.n)
                if converged == self._wanted or self._size == len(self._basis) - self._known.shape[1]:
                    _rotate(self._basis, rotation[:, : self._wanted])
                    return self._basis[:, : self._wanted]
                check_from = self._size + max(2 * self.block, (self._wanted - converged) // 4)
            best, idle = max(best, converged), 0 if converged > best else idle + 1
            if idle == _PATIENCE:
                break
            # Thick restart: keep the leading Ritz vectors and go on from the last block.
            kept = min(self._kept, self._size)
            _rotate(self._basis, rotation[:, :kept])
            self._projected[:] = 0.0
            self._projected[np.arange(kept), np.arange(kept)] = values[:kept]
            self._size = kept
            check_from = kept + 2 * self.block
        raise NumericalError(
            f"{converged} of {self._wanted} eigenpairs converged. Likely causes: (a) weights that span "
            "many orders of magnitude; (b) many nearly equal eigenvalues: ask for a few more or fewer."
        )

    def _extend(self, block: Floats) -> tuple[Floats, Floats]:
        """Take a block into the basis; return the next one and what couples them."""
        first, width = self._size, block.shape[1]
        self._basis[:, first : first + width] = block
        self._size += width
        image = self._apply(block)
        basis = self._basis[:, : self._size]
        size = np.linalg.norm(image, axis=0)
        # In exact arithmetic an image overlaps with the last blocks only: those first, then all of them once.
        recent = basis[:, max(0, first - width) :]
        local = recent.T @ image
        image -= recent @ local
        inner = basis.T @ image
        image -= basis @ inner
        inner[max(0, first - width) :] += local
        self._projected[: self._size, first : self._size] = inner
        self._projected[first : self._size, : self._size] = inner.T
        own = inner[first:]
        self._projected[first : self._size, first : self._size] = 0.5 * (own + own.T)
        return self._next_block(image, size, basis)

    def _next_block(self, image: Floats, size: Floats, basis: Floats) -> tuple[Floats, Floats]:
        """Orthonormalise an image; directions that are used up are replaced by random ones."""
        q, r = orthonormal(image)
        # What is left of a direction that is used up is rounding, of the solves in the first place.
        lost = np.abs(np.diag(r)) <= 1e-9 * max(float(size.max()), np.finfo(float).tiny)
        if lost.any():
            r[lost] = 0.0
            q[:, lost] = self._fresh(np.hstack([basis, q[:, ~lost]]), int(lost.sum()))
        if np.abs(np.diag(r)).min() <= 1e-5 * float(size.max()):
            # Normalising made errors of orthogonality larger by as much.
            for vectors in (self._known, basis):
                q -= vectors @ (vectors.T @ q)
            q = orthonormal(q)[0]
        return q, r

    def _fresh(self, basis: Floats, width: int) -> Floats:
        """Random orthonormal vectors, orthogonal to a basis and to the known vectors."""
        block = self._rng.standard_normal((len(self._known), width))
        for _ in range(2):
            block -= self._known @ (self._known.T @ block)
            block -= basis @ (basis.T @ block)
            block, _ = orthonormal(block)
        return block

    def probe(self, vectors: Floats, least: float, steps: int = 2) -> bool:
        """Look for eigenvectors that were missed: a Krylov space of its own, orthogonal to all that were found.

        Parameters
        ----------
        vectors : ndarray, shape (n, n_found)
            What was found.
        least : float
            The operator's eigenvalue of the last of them.
        steps : int
            Blocks of that space; the less the operator separates eigenvalues, the more it takes.

        Returns
        -------
        bool
            Whether there are others with a larger eigenvalue.
        """
        n, found = vectors.shape
        width = min(self.block, (n - found - self._known.shape[1]) // steps)
        if width < 1:
            return False
        basis = np.empty((n, width * steps), order="F")
        projected = np.zeros((width * steps, width * steps))
        block = self._fresh(vectors, width)
        for size in range(width, width * steps + 1, width):
            basis[:, size - width : size] = block
            image = self._apply(block)
            image -= vectors @ (vectors.T @ image)
            inner = basis[:, :size].T @ image
            projected[:size, size - width : size] = inner
            projected[size - width : size, :size] = inner.T
            if la.eigvalsh(projected[:size, :size])[-1] > (1.0 + 1e-8) * least:
                return True
            image -= basis[:, :size] @ inner
            block, r = orthonormal(image)
            if np.abs(np.diag(r)).min() <= 1e-9 * max(float(np.abs(projected).max()), np.finfo(float).tiny):
                return False  # the space is exhausted
        return False


def _decomposed(matrix: Floats) -> tuple[Floats, Floats]:
    """Eigenpairs of a symmetric matrix, decreasing."""
    # While other programs run, threads of BLAS wait for each other a hundred times longer than they work here.
    with single_threaded_blas() if len(matrix) < _SMALL_MATRIX else nullcontext():
        values, rotation = la.eigh(matrix, driver="evd")
    return values[::-1], rotation[:, ::-1]


def _rotate(basis: Floats, rotation: Floats) -> None:
    """Replace vectors by combinations of them, in place, a slice of rows at a time."""
    width = rotation.shape[1]
    for start in range(0, len(basis), _ROWS_AT_ONCE):
        rows = slice(start, start + _ROWS_AT_ONCE)
        basis[rows, :width] = basis[rows, : len(rotation)] @ rotation


def orthonormal(block: Floats) -> tuple[Floats, Floats]:
    """QR decomposition of a tall block, by Cholesky factors of its Gram matrix, twice.

    That runs at the speed of matrix products; blocks it cannot handle go to Householder reflections.
    """
    q, total = np.ascontiguousarray(block), np.eye(block.shape[1])
    for _ in range(2):
        try:
            r = la.cholesky(q.T @ q, check_finite=False)
        except la.LinAlgError:
            return _householder(block)
        if np.diag(r).min() < 1e-7 * np.diag(r).max():
            return _householder(block)
        # q := q r^(−1), written as a solve with the transposed, column-major view of q.
        q = la.blas.dtrsm(1.0, r, q.T, trans_a=1).T
        total = r @ total
    return q, total


def _householder(block: Floats) -> tuple[Floats, Floats]:
    q, r = la.qr(block, mode="economic", check_finite=False)
    return np.asarray(q, dtype=np.float64), np.asarray(r, dtype=np.float64)


def column_slices(width: int) -> list[slice]:
    return [slice(start, start + _COLUMNS_AT_ONCE) for start in range(0, width, _COLUMNS_AT_ONCE)]


def rayleigh_ritz(laplacian: sp.csr_array, vectors: Floats) -> tuple[Floats, Floats]:
    """Turn orthonormal vectors into the best approximate eigenvectors in their span, increasing, in place."""
    width = vectors.shape[1]
    inner = np.empty((width, width))
    for columns in column_slices(width):
        inner[:, columns] = vectors.T @ (laplacian @ vectors[:, columns])
    values, rotation = _decomposed(0.5 * (inner + inner.T))
    _rotate(vectors, rotation[:, ::-1])
    return values[::-1], vectors


def in_unit(laplacian: sp.csr_array) -> tuple[sp.csr_array, float]:
    """Return a Laplacian of norm at most 1 and what it was divided by, so that no square overflows or vanishes."""
    unit = largest_eigenvalue_bound(laplacian) or 1.0
    return sp.csr_array((laplacian.data / unit, laplacian.indices, laplacian.indptr), shape=laplacian.shape), unit


def residual_norms(laplacian: sp.csr_array, values: Floats, vectors: Floats) -> Floats:
    """Norms of Δu − λu, a few columns at a time; shape (n_eigenpairs,)."""
    scaled, unit = in_unit(laplacian)
    parts = [
        np.linalg.norm(scaled @ vectors[:, columns] - vectors[:, columns] * (values[columns] / unit), axis=0)
        for columns in column_slices(len(values))
    ]
    return np.asarray(unit * np.concatenate(parts))
