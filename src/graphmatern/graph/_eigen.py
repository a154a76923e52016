"""The smallest eigenpairs of large sparse Laplacians.

Two ways, of which the one predicted to be faster is taken: block Krylov spaces of (Δ + s)^(−q), after Grimes, Lewis and
Simon (1994), where the Laplacian can be factorised (powers q > 1 trade solves, which are cheap there, for a smaller
basis, which is not); and, where fill-in makes that expensive, those of a polynomial of Δ (`_filtered`).
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from tqdm import tqdm

from graphmatern import _progress
from graphmatern.errors import NumericalError
from graphmatern.graph._filtered import filtered_eigenpairs, outline, subspace_iteration
from graphmatern.graph._krylov import BlockKrylov, column_slices, in_unit, rayleigh_ritz, residual_norms
from graphmatern.sparse import (
    ChebyshevFilter,
    analyze,
    available_memory,
    available_threads,
    early_cost,
    predict_cost,
    single_threaded_blas,
    small_cost,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from graphmatern.graph._filtered import Outline
    from graphmatern.sparse import Analysis, Cost, Factor

    Floats = NDArray[np.float64]

__all__ = ["residual_norms", "smallest_eigenpairs", "smallest_eigenpairs_seconds"]

_POWER = 8  # q: solves per vector of the basis
_TOLERANCE = 1e-10  # residual, relative to the largest eigenvalue
_SMALL_VECTORS = 2e6  # entries of the eigenvectors
_LONG = 10.0  # seconds of one factorisation, beyond which its cost need not be known any closer
_SOON = 1.0  # seconds that need not be compared with anything
_MODERATE = 5.0  # seconds that a prediction does not compare, as a sketch may have to be compiled first
# With factors, seconds per node and pair of eigenpairs; per entry of the factor, and per entry and eigenpair.
_PER_PAIR, _PER_ENTRY, _PER_SOLUTION = 1.3e-9, 7.5e-6, 2.2e-8


class _Way(NamedTuple):
    """How eigenpairs are computed, and about how long that takes: through factors unless there is a sketch."""

    seconds: float
    sketch: Outline | None = None


def smallest_eigenpairs(
    laplacian: sp.csr_array, null: Floats, n_eigenpairs: int, *, seed: int = 0
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
    scaled, unit = in_unit(laplacian)
    bar: tqdm[Any] = tqdm(total=wanted, desc="eigenpairs", disable=_progress.hidden(), leave=False)
    # On small blocks of vectors the threads of BLAS wait for each other longer than they work.
    small = len(null) * wanted < _SMALL_VECTORS
    with bar, single_threaded_blas() if small else nullcontext(), ChebyshevFilter(scaled) as filtered:
        way = _choose_way(scaled, filtered, null, wanted)
        step = f"{n_eigenpairs:,} eigenpairs of {len(null):,} nodes"
        _progress.announce(step, way.seconds, 24 * len(null) * n_eigenpairs)
        if way.sketch is None:
            values, vectors, residuals = _shift_invert(scaled, filtered, null, wanted, rng, bar)
        else:
            values, vectors, residuals = filtered_eigenpairs(scaled, filtered, way.sketch, null, wanted, rng, bar)
    every = np.empty((len(null), n_eigenpairs), order="F")
    every[:, : null.shape[1]], every[:, null.shape[1] :] = null, vectors
    own = residual_norms(scaled, np.zeros(null.shape[1]), null)
    return (
        np.concatenate([np.zeros(null.shape[1]), unit * values]),
        every,
        unit * np.concatenate([own, residuals]),
    )


def smallest_eigenpairs_seconds(laplacian: sp.csr_array, null: Floats, n_eigenpairs: int) -> float:
    """About how long `smallest_eigenpairs` takes; found out in a small part of that time."""
    wanted = n_eigenpairs - null.shape[1]
    if wanted <= 0:
        return 0.0
    scaled, _ = in_unit(laplacian)
    factorised = _factorised_seconds(scaled, wanted)
    if factorised <= _MODERATE:
        return factorised
    with ChebyshevFilter(scaled) as filtered:
        return _choose_way(scaled, filtered, null, wanted).seconds


def _choose_way(scaled: sp.csr_array, filtered: ChebyshevFilter, null: Floats, wanted: int) -> _Way:
    """Compare factors, whose fill-in is predicted, with polynomials, whose degree follows from a sketch."""
    n, threads = filtered.n, available_threads()
    factorised = _factorised_seconds(scaled, wanted)
    if factorised <= _SOON:
        return _Way(factorised)
    rng = np.random.default_rng(0)

    def seconds(sketch: Outline) -> float:
        return sketch.seconds(n, filtered.nnz, wanted, threads)

    sketch = outline(filtered, null, wanted, rng, lambda sketch: seconds(sketch) > factorised)
    return _Way(factorised) if factorised <= seconds(sketch) else _Way(seconds(sketch), sketch)


def _factorised_seconds(scaled: sp.csr_array, wanted: int) -> float:
    """About how long it takes through factors; infinite where these do not fit into memory, or are out of reach."""
    matrix = sp.csc_array(scaled)
    cost: Cost | None = small_cost(matrix)
    if cost is None and early_cost(matrix, enough=_LONG) is None:
        cost = predict_cost(matrix)
    if cost is None or cost.memory_bytes > 0.8 * available_memory():
        return np.inf
    return _PER_PAIR * len(scaled.indptr) * wanted**2 + (_PER_ENTRY + _PER_SOLUTION * wanted) * cost.nnz_factor


# ---------------------------------------------------------------------- shift and invert
def _shift_invert(
    laplacian: sp.csr_array,
    filtered: ChebyshevFilter,
    null: Floats,
    wanted: int,
    rng: np.random.Generator,
    bar: tqdm[Any],
) -> tuple[Floats, Floats, Floats]:
    analysis = analyze(sp.csc_array(laplacian), check=False)
    factor, shift = _choose_shift(analysis, sp.csc_array(laplacian).data, wanted + null.shape[1])
    # All is done in the order of the factor, and nodes are put back at the end.
    order = analysis.permutation
    laplacian, known = sp.csr_array(laplacian[order][:, order]), null[order]

    def apply(block: Floats) -> Floats:
        image = np.array(block, order="C")
        factor.solve_ordered(image, times=_POWER)
        image -= known @ (known.T @ image)
        return image

    krylov = BlockKrylov(apply, known, wanted, rng)
    try:
        vectors = krylov.run(bar)
        for columns in column_slices(wanted):
            vectors[:, columns] -= known @ (known.T @ vectors[:, columns])
        values, vectors = rayleigh_ritz(laplacian, vectors)
        missed = krylov.probe(vectors, (values[-1] + shift) ** -_POWER)
        residuals = residual_norms(laplacian, values, vectors)
        good = not missed and residuals.max() <= 10 * _TOLERANCE
    except NumericalError:
        good = False
    if not good:
        # Eigenvalues of high multiplicity: a Krylov space holds a block's worth of each. A subspace has room for all.
        del krylov
        values, vectors, residuals = subspace_iteration(laplacian, filtered, known, wanted, rng, bar, apply)
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
