"""The smallest eigenpairs of large sparse Laplacians.

Where the Laplacian can be factorised: block Krylov spaces of (Δ + s)^(−q), after Grimes, Lewis and Simon
(1994), with full reorthogonalisation in BLAS-3 and thick restarts (Stewart 2001). Powers q > 1 trade solves,
which are cheap here, for a smaller basis, which is not. Where fill-in forbids that: Chebyshev-filtered subspace
iteration (Zhou, Saad, Tiago and Chelikowsky 2006), which needs products with Δ only.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.linalg as la
import scipy.sparse as sp
from tqdm import tqdm

from graphmatern.errors import NumericalError, ResourceError
from graphmatern.graph._laplacian import largest_eigenvalue_bound
from graphmatern.sparse import analyze
from graphmatern.sparse._blas import single_threaded_blas

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from graphmatern.sparse import Analysis, Factor

    Floats = NDArray[np.float64]

__all__ = ["residual_norms", "smallest_eigenpairs"]

_BLOCK = 16  # columns handled together; also the multiplicity that needs no second look
_POWER = 8  # q: solves per vector of the basis
_TOLERANCE = 1e-10  # residual, relative to the largest eigenvalue
_KRYLOV_TOLERANCE = 1e-9  # residual of the operator's eigenpairs, relative to their eigenvalue
_SMALL_VECTORS = 2e6  # entries of the eigenvectors
_ROWS_AT_ONCE = 8192
_COLUMNS_AT_ONCE = 64
_RESTARTS = 40
_FACTOR_FLOPS_PER_ENTRY = 2e5  # above this, a solve costs more than the polynomial that replaces it


def smallest_eigenpairs(
    laplacian: sp.csr_array, null: Floats, n_eigenpairs: int, *, seed: int = 0, progress: bool | None = None
) -> tuple[Floats, Floats, Floats]:
    """Smallest eigenpairs of a Laplacian whose null space is known.

    Parameters
    ----------
    laplacian : csr_array, shape (n, n)
        Symmetric positive semi-definite.
    null : ndarray, shape (n, n_null)
        Orthonormal basis of the null space.
    n_eigenpairs : int
        How many, those of the null space included; well below n.
    seed : int
        Seed of the random starting block.
    progress : bool, optional
        Whether to show a progress bar; by default, where the error stream is a terminal.

    Returns
    -------
    values : ndarray, shape (n_eigenpairs,)
        Increasing.
    vectors : ndarray, shape (n, n_eigenpairs)
        Orthonormal.
    residuals : ndarray, shape (n_eigenpairs,)
        Norms of Δu − λu, at most 1e-9 times the largest eigenvalue.

    Raises
    ------
    NumericalError
        Where they do not converge.
    """
    wanted = n_eigenpairs - null.shape[1]
    if wanted <= 0:
        values, vectors = np.zeros(n_eigenpairs), np.array(null[:, :n_eigenpairs])
        return values, vectors, residual_norms(laplacian, values, vectors)
    rng = np.random.default_rng(seed)
    hidden = None if progress is None else not progress
    bar: tqdm[Any] = tqdm(total=wanted, desc="eigenpairs", disable=hidden, leave=False)
    scaled, unit = _in_unit(laplacian)
    # On small blocks of vectors the threads of BLAS wait for each other longer than they work.
    with bar, single_threaded_blas() if len(null) * wanted < _SMALL_VECTORS else nullcontext():
        analysis = _affordable_analysis(scaled)
        if analysis is None:
            values, vectors, residuals = _subspace_iteration(scaled, null, wanted, rng, bar)
        else:
            values, vectors, residuals = _shift_invert(scaled, analysis, null, wanted, rng, bar)
    every = np.empty((len(null), n_eigenpairs), order="F")
    every[:, : null.shape[1]], every[:, null.shape[1] :] = null, vectors
    own = residual_norms(scaled, np.zeros(null.shape[1]), null)
    return (
        np.concatenate([np.zeros(null.shape[1]), unit * values]),
        every,
        unit * np.concatenate([own, residuals]),
    )


def _affordable_analysis(laplacian: sp.csr_array) -> Analysis | None:
    """Analyse the pattern for factorisation, unless fill-in makes that the worse way."""
    matrix = sp.csc_array(laplacian)
    limit = _FACTOR_FLOPS_PER_ENTRY * matrix.nnz / 1e9  # seconds, at one Gflop/s
    try:
        return analyze(matrix, max_seconds=max(limit, 1.0), check=False)
    except ResourceError:
        return None


# ---------------------------------------------------------------------- shift and invert
def _shift_invert(
    laplacian: sp.csr_array, analysis: Analysis, null: Floats, wanted: int, rng: np.random.Generator, bar: tqdm[Any]
) -> tuple[Floats, Floats, Floats]:
    factor, shift = _choose_shift(analysis, sp.csc_array(laplacian).data, wanted + null.shape[1])
    # All is done in the order of the factor, and nodes are put back at the end.
    order = analysis.permutation
    laplacian, known = sp.csr_array(laplacian[order][:, order]), null[order]

    def apply(block: Floats) -> Floats:
        image = np.array(block, order="C")
        factor.solve_ordered(image, times=_POWER)
        image -= known @ (known.T @ image)
        return image

    krylov = _BlockKrylov(apply, known, wanted, rng)
    try:
        vectors = krylov.run(bar)
        for columns in _column_slices(wanted):
            vectors[:, columns] -= known @ (known.T @ vectors[:, columns])
        values, vectors = _rayleigh_ritz(laplacian, vectors)
        missed = krylov.probe(vectors, (values[-1] + shift) ** -_POWER)
        residuals = residual_norms(laplacian, values, vectors)
        good = not missed and residuals.max() <= 10 * _TOLERANCE
    except NumericalError:
        good = False
    if not good:
        # Eigenvalues of high multiplicity: a Krylov space holds a block's worth of each. A subspace has room for all.
        del krylov
        values, vectors, residuals = _subspace_iteration(laplacian, known, wanted, rng, bar, apply)
    found = np.empty((len(order), wanted), order="F")
    for column in range(wanted):
        found[order, column] = vectors[:, column]
    return values, found, residuals


def _choose_shift(analysis: Analysis, data: Floats, count: int) -> tuple[Factor, float]:
    """Factor of Δ + s with s near the eigenvalue whose rank is a third of the count.

    Σ (s / (λ + s))² counts the eigenvalues below s, smoothly; it is −s² d/ds tr (Δ + s)^(−1), which the
    selected inverse gives exactly. Larger shifts separate less, smaller ones leave fewer digits to (Δ + s)^(−q).
    """
    diagonal = analysis.diagonal_positions
    shift = float(data[diagonal].mean()) * count / analysis.n
    values = data.copy()

    def trace(s: float) -> float:
        np.copyto(values, data)
        values[diagonal] += s
        factor.update(values, check=False)
        return float(factor.selected_inverse(inverse).diagonal().sum())

    values[diagonal] += shift
    factor = analysis.factorize(values, check=False)
    inverse = factor.selected_inverse()
    target = max(count / 3.0, 1.0)
    direction = 0
    for _ in range(30):
        below = shift * (trace(shift) - trace(1.5 * shift)) / 0.5
        step = 1 if below < target else -1
        if step == -direction:
            break
        direction = step
        shift *= 3.0**step
    trace(shift)
    return factor, shift


class _BlockKrylov:
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
    """

    def __init__(self, apply: Callable[[Floats], Floats], known: Floats, wanted: int, rng: np.random.Generator) -> None:
        self._apply = apply
        self._known = known
        self._wanted = wanted
        self._rng = rng
        n = len(known)
        self._kept = wanted + 2 * _BLOCK
        capacity = max(2 * wanted, self._kept + 6 * _BLOCK) // _BLOCK * _BLOCK
        self._basis = np.empty((n, min(capacity, n - known.shape[1])), order="F")
        self._projected = np.zeros((self._basis.shape[1], self._basis.shape[1]))
        self._size = 0

    def run(self, bar: tqdm[Any]) -> Floats:
        """Return orthonormal vectors spanning the invariant subspace, shape (n, wanted)."""
        capacity = self._basis.shape[1]
        block = self._fresh(self._basis[:, :0], min(_BLOCK, capacity))
        coupling = np.zeros((block.shape[1], block.shape[1]))
        check_from = self._wanted + self._wanted // 2
        for _ in range(_RESTARTS):
            while self._size + block.shape[1] <= capacity:
                block, coupling = self._extend(block)
                full = self._size + block.shape[1] > capacity
                if not full and self._size < check_from:
                    continue
                values, rotation = la.eigh(self._projected[: self._size, : self._size], driver="evd")
                values, rotation = values[::-1], rotation[:, ::-1]
                tail = rotation[self._size - coupling.shape[1] : self._size, : self._wanted]
                error = np.linalg.norm(coupling @ tail, axis=0)
                converged = int((error <= _KRYLOV_TOLERANCE * values[: self._wanted]).sum())
                bar.update(converged - bar.n)
                if converged == self._wanted or self._size == len(self._basis) - self._known.shape[1]:
                    _rotate(self._basis, rotation[:, : self._wanted])
                    return self._basis[:, : self._wanted]
                check_from = self._size + max(2 * _BLOCK, (self._wanted - converged) // 4)
            # Thick restart: keep the leading Ritz vectors and go on from the last block.
            kept = min(self._kept, self._size)
            _rotate(self._basis, rotation[:, :kept])
            self._projected[:] = 0.0
            self._projected[np.arange(kept), np.arange(kept)] = values[:kept]
            self._size = kept
            check_from = kept + 2 * _BLOCK
        raise NumericalError(
            f"{converged} of {self._wanted} eigenpairs converged in {_RESTARTS} restarts. Likely causes: (a) weights "
            "that span many decades; (b) many nearly equal eigenvalues: ask for a few more or fewer."
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
        q, r = _orthonormal(image)
        # What is left of a direction that is used up is rounding, of the solves in the first place.
        lost = np.abs(np.diag(r)) <= 1e-9 * max(float(size.max()), np.finfo(float).tiny)
        if lost.any():
            r[lost] = 0.0
            q[:, lost] = self._fresh(np.hstack([basis, q[:, ~lost]]), int(lost.sum()))
        if np.abs(np.diag(r)).min() <= 1e-5 * float(size.max()):
            # Normalising made errors of orthogonality larger by as much.
            for vectors in (self._known, basis):
                q -= vectors @ (vectors.T @ q)
            q = _orthonormal(q)[0]
        return q, r

    def _fresh(self, basis: Floats, width: int) -> Floats:
        """Random orthonormal vectors, orthogonal to a basis and to the known vectors."""
        block = self._rng.standard_normal((len(self._known), width))
        for _ in range(2):
            block -= self._known @ (self._known.T @ block)
            block -= basis @ (basis.T @ block)
            block, _ = _orthonormal(block)
        return block

    def probe(self, vectors: Floats, least: float) -> bool:
        """Look for eigenvectors that were missed: a random block, orthogonal to all that were found.

        Parameters
        ----------
        vectors : ndarray, shape (n, n_found)
            What was found.
        least : float
            The operator's eigenvalue of the last of them.

        Returns
        -------
        bool
            Whether there are others with a larger eigenvalue.
        """
        block = self._fresh(vectors, min(_BLOCK, len(vectors) - vectors.shape[1] - self._known.shape[1]))
        for _ in range(2):
            image = self._apply(block)
            image -= vectors @ (vectors.T @ image)
            if la.eigvalsh(block.T @ image)[-1] > (1.0 + 1e-8) * least:
                return True
            block, _ = _orthonormal(image)
        return False


def _rotate(basis: Floats, rotation: Floats) -> None:
    """Replace vectors by combinations of them, in place, a slice of rows at a time."""
    width = rotation.shape[1]
    for start in range(0, len(basis), _ROWS_AT_ONCE):
        rows = slice(start, start + _ROWS_AT_ONCE)
        basis[rows, :width] = basis[rows, : len(rotation)] @ rotation


def _orthonormal(block: Floats) -> tuple[Floats, Floats]:
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


def _column_slices(width: int) -> list[slice]:
    return [slice(start, start + _COLUMNS_AT_ONCE) for start in range(0, width, _COLUMNS_AT_ONCE)]


def _rayleigh_ritz(laplacian: sp.csr_array, vectors: Floats) -> tuple[Floats, Floats]:
    """Turn orthonormal vectors into the best approximate eigenvectors in their span, increasing, in place."""
    width = vectors.shape[1]
    inner = np.empty((width, width))
    for columns in _column_slices(width):
        inner[:, columns] = vectors.T @ (laplacian @ vectors[:, columns])
    values, rotation = la.eigh(0.5 * (inner + inner.T), driver="evd")
    _rotate(vectors, rotation)
    return values, vectors


def _in_unit(laplacian: sp.csr_array) -> tuple[sp.csr_array, float]:
    """Return a Laplacian of norm at most 1 and what it was divided by, so that no square overflows or vanishes."""
    unit = largest_eigenvalue_bound(laplacian) or 1.0
    return sp.csr_array((laplacian.data / unit, laplacian.indices, laplacian.indptr), shape=laplacian.shape), unit


def residual_norms(laplacian: sp.csr_array, values: Floats, vectors: Floats) -> Floats:
    """Norms of Δu − λu, a few columns at a time; shape (n_eigenpairs,)."""
    scaled, unit = _in_unit(laplacian)
    parts = [
        np.linalg.norm(scaled @ vectors[:, columns] - vectors[:, columns] * (values[columns] / unit), axis=0)
        for columns in _column_slices(len(values))
    ]
    return np.asarray(unit * np.concatenate(parts))


# ---------------------------------------------------------------------- subspaces
def _subspace_iteration(
    laplacian: sp.csr_array,
    null: Floats,
    wanted: int,
    rng: np.random.Generator,
    bar: tqdm[Any],
    apply: Callable[[Floats], Floats] | None = None,
) -> tuple[Floats, Floats, Floats]:
    """Iterate on a subspace a little larger than wanted, of a Laplacian of norm at most 1.

    ``apply`` damps the unwanted part of the spectrum; without it, a Chebyshev polynomial does.
    """
    n = laplacian.shape[0]
    width = min(wanted + max(_BLOCK, wanted // 5), n - null.shape[1])
    vectors = rng.standard_normal((n, width))
    edge = 0.25
    for _ in range(10 * _RESTARTS):
        if apply is None:
            degree = int(np.clip(3.0 / np.sqrt(edge), 10, 400))
            vectors = _chebyshev_filter(laplacian, vectors, degree, edge, 1.0)
        else:
            vectors = np.hstack([apply(vectors[:, columns]) for columns in _column_slices(width)])
        # Twice, because filtered vectors are nearly parallel: what is left of the null space grows with their norming.
        for _ in range(2):
            vectors -= null @ (null.T @ vectors)
            vectors = _orthonormal(vectors)[0]
        values, vectors = _rayleigh_ritz(laplacian, np.array(vectors, order="F"))
        residual = residual_norms(laplacian, values[:wanted], vectors[:, :wanted])
        converged = int((residual <= _TOLERANCE).sum())
        bar.update(converged - bar.n)
        if converged == wanted:
            return values[:wanted], vectors[:, :wanted], residual
        # The last Ritz values lie above the wanted part: damp all beyond them. A margin, because an eigenvalue that
        # fills the rest of the subspace must itself not be damped.
        edge = min(edge, max(1.2 * float(values[-1]), 1e-12))
    raise NumericalError(
        f"{converged} of {wanted} eigenpairs converged. Likely causes: (a) weights that span many decades; "
        "(b) many nearly equal eigenvalues: ask for a few more or fewer."
    )


def _chebyshev_filter(laplacian: sp.csr_array, block: Floats, degree: int, edge: float, top: float) -> Floats:
    """Apply the Chebyshev polynomial that stays within ±1 on [edge, top], scaled to 1 at 0."""
    half, centre = 0.5 * (top - edge), 0.5 * (top + edge)
    scale = first = -half / centre
    before, current = block, (laplacian @ block - centre * block) * (scale / half)
    for _ in range(degree - 1):
        following = 1.0 / (2.0 / first - scale)
        product = laplacian @ current - centre * current
        before, current = current, (2.0 * following / half) * product - (scale * following) * before
        scale = following
    return np.asarray(current)
