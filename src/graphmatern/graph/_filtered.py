"""The smallest eigenpairs of a Laplacian by products with it alone: no factor, so no fill-in.

Block Krylov spaces of a Chebyshev polynomial that grows below the wanted part's edge and stays within ±1 above (Zhou,
Saad, Tiago and Chelikowsky 2006; Fang and Saad 2012): products are cheap beside keeping a long basis orthogonal, which
the polynomial shortens. Where the edge lies is known from Lanczos quadrature with a few random vectors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.linalg as la

from graphmatern.errors import NumericalError
from graphmatern.graph._krylov import BlockKrylov, column_slices, orthonormal, rayleigh_ritz, residual_norms

if TYPE_CHECKING:
    from collections.abc import Callable

    import scipy.sparse as sp
    from numpy.typing import NDArray
    from tqdm import tqdm

    from graphmatern.sparse import ChebyshevFilter

    Floats = NDArray[np.float64]

__all__ = ["Outline", "filtered_eigenpairs", "outline", "subspace_iteration"]

_TOLERANCE = 1e-10  # residual, relative to the largest eigenvalue
_PROBES = 16  # random vectors that sketch the spectrum
_STEPS = (48, 72, 108, 160, 240, 360)  # after which a sketch may be good enough
_SETTLED = 0.1  # relative change of the number of eigenvalues below the edge from one to the next
_ROOM = 1.6  # eigenvalues below the edge, relative to those wanted
_RANGE = 2e4  # of the polynomial over the wanted eigenvalues: the more, the fewer digits are left to the last
_MOST_DEGREE = 2_000
_ATTEMPTS = 3
_MANY = 200  # eigenpairs from which on wide blocks pay
_ITERATIONS = 400
# Seconds of a product per entry of the matrix and vector, and of keeping a basis orthogonal per node and pair of its
# vectors; on one core of an AMD EPYC, by `Graph.spectrum(500)` of Barabási–Albert graphs of 20,000 and 30,000 nodes.
_PER_ENTRY, _PER_PAIR = 7e-10, 2e-10


@dataclass(frozen=True)
class Outline:
    """Where the wanted part of a spectrum lies, about; in the unit of the matrix.

    Attributes
    ----------
    bottom : float
        Smallest eigenvalue that is not known.
    edge : float
        Above the wanted eigenvalues, with some room.
    top : float
        Above all eigenvalues.
    """

    bottom: float
    edge: float
    top: float

    @property
    def degree(self) -> int:
        """Degree of the polynomial, from the range that it may have over the wanted eigenvalues."""
        slope = np.arccosh(1.0 + 2.0 * (self.edge - self.bottom) / (self.top - self.edge))
        return int(np.clip(np.arccosh(_RANGE) / slope, 2, _MOST_DEGREE))

    def seconds(self, n: int, nnz: int, wanted: int, n_threads: int) -> float:
        """About how long `filtered_eigenpairs` takes."""
        basis = min(2 * wanted + 4 * _block(wanted), n)
        return (_PER_ENTRY * nnz * self.degree * basis + _PER_PAIR * n * basis**2) / n_threads

    def wider(self, factor: float) -> Outline:
        """The same with the edge farther away."""
        edge = self.bottom + factor * (self.edge - self.bottom)
        return Outline(self.bottom, min(edge, 0.5 * (self.bottom + self.top)), self.top)


def _block(wanted: int) -> int:
    return 32 if wanted >= _MANY else 16


def outline(
    filtered: ChebyshevFilter,
    null: Floats,
    wanted: int,
    rng: np.random.Generator,
    enough: Callable[[Outline], bool] = lambda _: False,
) -> Outline:
    """Sketch a spectrum by Lanczos quadrature.

    Parameters
    ----------
    filtered : ChebyshevFilter
        A matrix of norm at most 1.
    null : ndarray, shape (n, n_null)
        Orthonormal basis of its null space, which does not count.
    wanted : int
        Eigenvalues that are to lie below the edge.
    rng : Generator
        Source of starting vectors.
    enough : callable
        Whether a first sketch, whose edge is too high rather than too low, will do.
    """
    n = filtered.n
    probes = min(_PROBES, n - null.shape[1])
    diagonal, beside = np.empty((_STEPS[-1], probes)), np.empty((_STEPS[-1], probes))
    current = rng.standard_normal((n, probes))
    current -= null @ (null.T @ current)
    current /= np.linalg.norm(current, axis=0)
    previous, beta = np.zeros((n, probes)), np.zeros(probes)
    found, last = None, 0.0
    target = min(_ROOM * wanted + 2.0, n - null.shape[1] - 1.0)
    for step in range(min(_STEPS[-1], n - null.shape[1])):
        image = filtered.product(current)
        image -= beta * previous
        alpha = np.einsum("ij,ij->j", image, current)
        image -= alpha * current
        image -= null @ (null.T @ image)
        beta = np.linalg.norm(image, axis=0)
        diagonal[step], beside[step] = alpha, beta
        previous, current = current, image / np.maximum(beta, np.finfo(float).tiny)
        exhausted = bool((beta <= 1e-10).any()) or step + 1 == n - null.shape[1]
        if step + 1 not in _STEPS and not exhausted:
            continue
        places, ranks, top = _quadrature(diagonal[: step + 1], beside[: step + 1], n - null.shape[1])
        edge = float(np.interp(target, ranks, places))
        # An eigenvalue that fills the whole wanted part must itself lie below the edge.
        edge = max(edge, float(places[0]) + 1e-4 * (top - float(places[0])))
        below = float(np.interp(last, places, ranks))
        last, found = edge, Outline(float(places[0]), edge, top)
        if exhausted or abs(below - target) <= _SETTLED * target or enough(found):
            break
    assert found is not None
    return found


def _quadrature(diagonal: Floats, beside: Floats, count: int) -> tuple[Floats, Floats, float]:
    """Eigenvalues' places, how many lie below each, and a bound above all, from Lanczos coefficients (steps, k)."""
    places, masses, top = [], [], 0.0
    for alpha, beta in zip(diagonal.T, beside.T, strict=True):
        values, vectors = la.eigh_tridiagonal(alpha, beta[:-1])
        places.append(values)
        masses.append(vectors[0] ** 2)
        top = max(top, float(values[-1] + beta[-1] * abs(vectors[-1, -1])))
    every, mass = np.concatenate(places), np.concatenate(masses) * (count / len(places))
    order = np.argsort(every)
    ranks = np.cumsum(mass[order]) - 0.5 * mass[order]
    # Gershgorin's bound is 1; a little is added to one that random vectors found.
    return np.maximum(every[order], 0.0), ranks, min(1.0, 1.01 * top)


def filtered_eigenpairs(
    laplacian: sp.csr_array,
    filtered: ChebyshevFilter,
    sketch: Outline,
    null: Floats,
    wanted: int,
    rng: np.random.Generator,
    bar: tqdm[Any],
) -> tuple[Floats, Floats, Floats]:
    """Smallest eigenpairs beyond the null space, of a Laplacian of norm at most 1.

    Parameters
    ----------
    laplacian : csr_array, shape (n, n)
        The Laplacian.
    filtered : ChebyshevFilter
        The same.
    sketch : Outline
        Where its eigenvalues lie.
    null : ndarray, shape (n, n_null)
        Orthonormal basis of its null space.
    wanted : int
        How many.
    rng : Generator
        Source of starting blocks.
    bar : tqdm
        Counts eigenpairs that have converged.

    Returns
    -------
    values, vectors, residuals : ndarray
        As `smallest_eigenpairs` returns them.
    """
    for attempt in range(_ATTEMPTS):
        plan = sketch.wider(1.5**attempt)
        try:
            found = _attempt(laplacian, filtered, plan, null, wanted, rng, bar)
        except NumericalError:
            found = None
        if found is not None:
            return found
    # Eigenvalues of high multiplicity: a Krylov space holds a block's worth of each. A subspace has room for all.
    return subspace_iteration(laplacian, filtered, null, wanted, rng, bar)


def _attempt(
    laplacian: sp.csr_array,
    filtered: ChebyshevFilter,
    plan: Outline,
    null: Floats,
    wanted: int,
    rng: np.random.Generator,
    bar: tqdm[Any],
) -> tuple[Floats, Floats, Floats] | None:
    """Eigenpairs by one polynomial; None where some lie beyond its edge, were missed, or are not accurate."""

    def apply(block: Floats) -> Floats:
        image = filtered.apply(block, plan.degree, plan.edge, plan.top, at=plan.bottom)
        image -= null @ (null.T @ image)
        return image

    krylov = BlockKrylov(apply, null, wanted, rng, _block(wanted))
    vectors = krylov.run(bar)
    for columns in column_slices(wanted):
        vectors[:, columns] -= null @ (null.T @ vectors[:, columns])
    values, vectors = rayleigh_ritz(laplacian, vectors)
    residuals = residual_norms(laplacian, values, vectors)
    if residuals.max() > 10 * _TOLERANCE or values[-1] >= plan.edge:
        return None
    scale = 2.0 / (plan.top - plan.edge)
    growth = plan.degree * np.arccosh(1.0 + scale * (plan.edge - np.array([plan.bottom, values[-1]])))
    least = float(np.cosh(growth[1]) / np.cosh(growth[0]))
    return None if krylov.probe(vectors, least, steps=6) else (values, vectors, residuals)


def subspace_iteration(
    laplacian: sp.csr_array,
    filtered: ChebyshevFilter,
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
    width = min(wanted + max(_block(wanted), wanted // 5), n - null.shape[1])
    vectors = rng.standard_normal((n, width))
    edge = 0.25
    for _ in range(_ITERATIONS):
        if apply is None:
            degree = int(np.clip(3.0 / np.sqrt(edge), 10, 400))
            vectors = filtered.apply(vectors, degree, edge, 1.0, at=0.0)
        else:
            vectors = np.hstack([apply(vectors[:, columns]) for columns in column_slices(width)])
        # Twice, because filtered vectors are nearly parallel: what is left of the null space grows with their norming.
        for _ in range(2):
            vectors -= null @ (null.T @ vectors)
            vectors = orthonormal(vectors)[0]
        values, vectors = rayleigh_ritz(laplacian, np.array(vectors, order="F"))
        residual = residual_norms(laplacian, values[:wanted], vectors[:, :wanted])
        converged = int((residual <= _TOLERANCE).sum())
        bar.update(converged - bar.n)
        if converged == wanted:
            return values[:wanted], vectors[:, :wanted], residual
        # The last Ritz values lie above the wanted part: damp all beyond them. A margin, because an eigenvalue that
        # fills the rest of the subspace must itself not be damped.
        edge = min(edge, max(1.2 * float(values[-1]), 1e-12))
    raise NumericalError(
        f"{converged} of {wanted} eigenpairs converged. Likely causes: (a) weights that span many orders of magnitude; "
        "(b) many nearly equal eigenvalues: ask for a few more or fewer."
    )
