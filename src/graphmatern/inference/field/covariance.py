"""The covariance of a field on nodes × times: C = K_T ⊗ K_S + ρ I on the grid of observed nodes S and times T.

Fields are arrays of shape (n_times, n_nodes), so that (K_T ⊗ K_S) X is K_T X K_S. With K_T = V diag(d) Vᵀ and
K_S = Q diag(g) Qᵀ the covariance of a whole grid is diagonal in the modes Vᵀ X Q.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import scipy.linalg as la

from graphmatern.errors import NumericalError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Flags = NDArray[np.bool_]
    Longs = NDArray[np.int64]

__all__ = [
    "Derivatives",
    "FieldCovariance",
    "FieldGrid",
    "FormSum",
    "Modes",
    "ObservedBasis",
    "weight_derivatives",
]


@dataclass(frozen=True, eq=False)
class FieldGrid:
    """Observations on a grid.

    Attributes
    ----------
    nodes : ndarray of int64, shape (n_nodes,)
        Positions of the observed nodes in the graph, each once.
    times : ndarray, shape (n_times,)
        Observed times as numbers, increasing.
    y : ndarray, shape (n_times, n_nodes)
        Values, 0 where nothing was observed.
    observed : ndarray of bool, shape (n_times, n_nodes)
        Which cells were observed.
    """

    nodes: Longs
    times: Floats
    y: Floats
    observed: Flags

    @property
    def shape(self) -> tuple[int, int]:
        """Number of times and of nodes."""
        return self.y.shape[0], self.y.shape[1]

    @cached_property
    def n_observed(self) -> int:
        """Number of observed cells."""
        return int(self.observed.sum())

    @property
    def is_complete(self) -> bool:
        """Whether every cell was observed."""
        return self.n_observed == self.y.size

    def data(self, design: Floats) -> Floats:
        """The values and linear effects of the grid's nodes (n_nodes, p), 0 where nothing was observed.

        Returns
        -------
        ndarray, shape (1 + p, n_times, n_nodes)
        """
        return np.concatenate([self.y[None], self.observed * design.T[:, None, :]])


@dataclass(frozen=True, eq=False)
class FieldEffects:
    """Linear effects of the mean, the same at all times.

    Attributes
    ----------
    design : ndarray, shape (n_graph_nodes, p)
        At every node of the graph; a constant mean is a column of ones.
    precision : float
        Prior precision of their coefficients; 0 for a flat prior.
    """

    design: Floats
    precision: float = 0.0


class ObservedBasis:
    """Eigenvectors of the graph at the observed nodes, B, of which K_S = B diag(w) Bᵀ is made for many w.

    Parameters
    ----------
    basis : ndarray, shape (n_nodes, n_eigenpairs)
        B.
    """

    def __init__(self, basis: Floats) -> None:
        self.basis = basis
        n, count = basis.shape
        self._frame: Floats | None = None  # orthonormal columns that span B
        self._small = basis  # B in that frame
        self._is_orthonormal = False
        if n >= count:
            gram = basis.T @ basis
            self._is_orthonormal = bool(np.abs(gram - np.eye(count)).max() < 1e-12)
            if n > count and not self._is_orthonormal:
                self._frame, self._small = np.linalg.qr(basis)

    @property
    def n_nodes(self) -> int:
        """Number of observed nodes."""
        return len(self.basis)

    def kernel(self, weights: Floats) -> Floats:
        """K_S; shape (n_nodes, n_nodes)."""
        return np.asarray((self.basis * weights) @ self.basis.T)

    def eigenpairs(self, weights: Floats) -> tuple[Floats, Floats, Floats | None]:
        """Eigenvectors Q and eigenvalues g of K_S, its null space left out, and QᵀB (None for the identity)."""
        if self._is_orthonormal:
            return self.basis, weights, None
        g, rotation = la.eigh((self._small * weights) @ self._small.T, check_finite=False, driver="evd")
        vectors = rotation if self._frame is None else self._frame @ rotation
        return vectors, np.maximum(g, 0.0), rotation.T @ self._small


@dataclass(eq=False)
class Derivatives:
    """Derivatives of a number in time's covariance, in the weights of the eigenvectors, and in the noise variance.

    Attributes
    ----------
    in_time : ndarray, shape (n_times, n_times) or (2,)
        In K_T; or in what else describes time to the system, see `FieldCovariance`.
    in_weights : ndarray, shape (n_eigenpairs,)
    in_noise : float
    """

    in_time: Floats
    in_weights: Floats
    in_noise: float

    def add(self, other: Derivatives, factor: float = 1.0) -> None:
        """Add a multiple of others to these."""
        self.in_time = self.in_time + factor * other.in_time
        self.in_weights = self.in_weights + factor * other.in_weights
        self.in_noise += factor * other.in_noise


def weight_derivatives(in_nodes: Floats, link: Floats) -> Floats:
    """Diagonal of BᵀGB for derivatives G in K_S; ``link`` is B in the basis of G."""
    return np.asarray(np.einsum("ik,ik->k", link, in_nodes @ link))


class Modes:
    """The modes in which the covariance of the whole grid is diagonal, d_t g_s + ρ.

    Parameters
    ----------
    time : ndarray, shape (n_times, n_times)
        K_T.
    basis : ObservedBasis
        Eigenvectors at the observed nodes.
    weights : ndarray, shape (n_eigenpairs,)
        Their variances.
    rho : float
        Noise variance ρ.
    """

    def __init__(self, time: Floats, basis: ObservedBasis, weights: Floats, rho: float) -> None:
        d, self.time_vectors = la.eigh(time, check_finite=False, driver="evd")
        self.d = np.maximum(d, 0.0)
        self.node_vectors, self.g, self.link = basis.eigenpairs(weights)
        self.rho = rho
        self.n_null = basis.n_nodes - len(self.g)  # directions in which there is noise only
        self.variances = self.d[:, None] * self.g + rho
        if not (np.isfinite(self.variances).all() and rho > 0 and self.variances.min() > 0):
            raise NumericalError(
                "the covariance of the grid is not positive definite. Likely causes: (a) a noise variance near 0: "
                "raise it; (b) parameters that are not finite."
            )

    def log_determinant(self) -> float:
        """Log det C of the whole grid."""
        return float(np.log(self.variances).sum()) + self.n_null * len(self.d) * float(np.log(self.rho))

    def leave(self, modes: Floats) -> Floats:
        """V X Qᵀ; shape (..., n_times, n_nodes)."""
        return np.asarray((self.time_vectors @ modes) @ self.node_vectors.T)

    def solve(self, fields: Floats) -> tuple[Floats, Floats]:
        """C⁻¹ fields of the whole grid, and their modes."""
        return self._scale(fields, self._inverse, 1.0 / self.rho)

    def root(self, fields: Floats) -> Floats:
        """C^(1/2) fields of the whole grid."""
        return self._scale(fields, self._roots, float(np.sqrt(self.rho)))[0]

    @cached_property
    def _inverse(self) -> Floats:
        return np.asarray(1.0 / self.variances)

    @cached_property
    def _roots(self) -> Floats:
        return np.asarray(np.sqrt(self.variances))

    def _scale(self, fields: Floats, factors: Floats, noise: float) -> tuple[Floats, Floats]:
        """Multiply modes by factors, and by ``noise`` where there is noise only; returns the modes Vᵀ X Q as well."""
        entered = fields @ self.node_vectors
        modes = self.time_vectors.T @ entered
        modes *= factors
        if not self.n_null:
            return self.leave(modes), modes
        return (self.time_vectors @ modes - noise * entered) @ self.node_vectors.T + noise * fields, modes

    def inverse_diagonal(self) -> Floats:
        """Diagonal of C⁻¹ of the whole grid; shape (n_times, n_nodes)."""
        squares = self.node_vectors**2
        diagonal = (self.time_vectors**2 @ self._inverse) @ squares.T
        if self.n_null:
            diagonal = diagonal + (1.0 - squares.sum(axis=1)) / self.rho
        return np.asarray(diagonal)

    def trace_derivatives(self) -> Derivatives:
        """Derivatives of log det C of the whole grid, tr C⁻¹ ∂C."""
        shares = self._inverse
        in_time = (self.time_vectors * (shares @ self.g)) @ self.time_vectors.T
        in_nodes = self.d @ shares  # diagonal, in the modes
        in_weights = in_nodes.copy() if self.link is None else self.link.T**2 @ in_nodes
        return Derivatives(in_time, in_weights, float(shares.sum()) + self.n_null * len(self.d) / self.rho)


class FormSum:
    """Derivatives of Σ factor · ⟨X, C X⟩ over fields X that come a few at a time, as modes Vᵀ X Q.

    Parameters
    ----------
    modes : Modes
        The modes.
    """

    def __init__(self, modes: Modes) -> None:
        self._modes = modes
        n_times, n_modes = modes.variances.shape
        self._in_time = np.zeros((n_times, n_times))
        self._in_nodes = np.zeros(n_modes if modes.link is None else (n_modes, n_modes))
        self._in_noise = 0.0

    def add(self, fields: Floats, factors: Floats, norms: Floats) -> None:
        """Add fields, shape (k, n_times, n_modes), with factors, none negative, and squared norms of X, shape (k,)."""
        d, g = self._modes.d, self._modes.g
        roots = np.sqrt(factors)[:, None, None]
        # A matrix times its own transpose is half a product, and a diagonal hardly any.
        wide = np.swapaxes(fields * (roots * np.sqrt(g)), 0, 1).reshape(len(d), -1)
        self._in_time += wide @ wide.T
        tall = (fields * (roots * np.sqrt(d)[:, None])).reshape(-1, len(g))
        self._in_nodes += np.einsum("is,is->s", tall, tall) if self._modes.link is None else tall.T @ tall
        self._in_noise += float(factors @ norms)

    def derivatives(self, factor: float) -> Derivatives:
        """What was added, times a factor, in K_T, the weights and the noise variance."""
        turned = (self._modes.time_vectors @ self._in_time) @ self._modes.time_vectors.T
        link = self._modes.link
        in_weights = self._in_nodes if link is None else weight_derivatives(self._in_nodes, link)
        return Derivatives(factor * turned, factor * in_weights, factor * self._in_noise)


class FieldCovariance:
    """K_T, K_S and ρ at given parameters.

    Parameters
    ----------
    time : ndarray, shape (n_times, n_times) or (2,)
        K_T; for a state-space system, which needs no more, rate and variance of a Markov kernel.
    basis : ObservedBasis
        Eigenvectors at the observed nodes.
    weights : ndarray, shape (n_eigenpairs,)
        Their variances.
    rho : float
        Noise variance ρ.
    """

    def __init__(self, time: Floats, basis: ObservedBasis, weights: Floats, rho: float) -> None:
        self.time = time
        self.basis = basis
        self.weights = weights
        self.rho = rho

    @cached_property
    def nodes(self) -> Floats:
        """K_S; shape (n_nodes, n_nodes)."""
        return self.basis.kernel(self.weights)

    @cached_property
    def modes(self) -> Modes:
        """Where the covariance of the whole grid is diagonal."""
        return Modes(self.time, self.basis, self.weights, self.rho)

    def form_derivatives(self, fields: Floats, factors: Floats) -> Derivatives:
        """Derivatives of Σ factor · ⟨X, C X⟩ over some fields X of shape (k, n_times, n_nodes)."""
        in_time, in_nodes = np.zeros_like(self.time), np.zeros_like(self.nodes)
        for field, factor in zip(fields, factors, strict=True):
            in_time += factor * ((field @ self.nodes) @ field.T)
            in_nodes += factor * (field.T @ (self.time @ field))
        in_noise = float(np.einsum("k,kts,kts->", factors, fields, fields))
        return Derivatives(in_time, weight_derivatives(in_nodes, self.basis.basis), in_noise)
