"""A process given by eigenpairs, under sites, at any node.

f = Φ W^½ z with z ~ N(0, I), where sites change z in the span of a few directions only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import scipy.linalg as la

from graphmatern.inference.dense import cholesky_or_raise, precision_of_features
from graphmatern.inference.process import Predictive

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Longs = NDArray[np.int64]

__all__ = ["SpectralPredictive"]


class SpectralPredictive(Predictive):
    """The process under sites of given precisions.

    Parameters
    ----------
    basis : ndarray, shape (n_nodes, n_eigenpairs)
        Eigenvectors on the nodes.
    weights : ndarray, shape (n_eigenpairs,)
        Variances of their coefficients.
    observed : ndarray of int64, shape (n,)
        Positions of the observed nodes.
    precision : ndarray, shape (n,)
        η.
    """

    def __init__(self, basis: Floats, weights: Floats, observed: Longs, precision: Floats) -> None:
        self._basis, self._scale = basis, np.sqrt(weights)
        scaled = basis[observed] * self._scale
        self._directions: Floats | None = None  # orthonormal D with z = D u + (what the data do not see); or all
        self._root = scaled  # f = root u at the observed nodes
        if len(observed) < len(weights):
            directions, upper = la.qr(scaled.T, mode="economic", check_finite=False)
            self._directions, self._root = np.asarray(directions, np.float64), np.asarray(upper.T, np.float64)
        self._factor = cholesky_or_raise(precision_of_features(self._root, precision))

    def _images(self, nodes: Longs) -> tuple[Floats, Floats]:
        """Φ W^½ at some nodes, and its image in the directions the data see; (n_nodes, ℓ), (n_nodes, r)."""
        scaled = self._basis[nodes] * self._scale
        return scaled, scaled if self._directions is None else scaled @ self._directions

    def _half(self, image: Floats) -> Floats:
        """L⁻¹ imageᵀ, whose squares are variances; shape (r, n_nodes)."""
        return np.asarray(la.solve_triangular(self._factor, image.T, lower=True, check_finite=False))

    def means(self, nodes: Longs, potentials: Floats) -> Floats:
        """Means of f at some nodes; shape (n_nodes, k)."""
        _, image = self._images(nodes)
        inner = la.cho_solve((self._factor, True), self._root.T @ potentials, check_finite=False)
        return np.asarray(image @ inner)

    def variances(self, nodes: Longs) -> Floats:
        """Variances of f at some nodes; shape (n_nodes,)."""
        scaled, image = self._images(nodes)
        half = self._half(image)
        found = np.einsum("ij,ij->j", half, half)
        if self._directions is None:
            return np.asarray(found)
        unseen = np.einsum("ij,ij->i", scaled, scaled) - np.einsum("ij,ij->i", image, image)
        return np.asarray(np.maximum(unseen, 0.0) + found)

    def covariances(self, nodes: Longs) -> Floats:
        """Covariance of f at some nodes; shape (n_nodes, n_nodes)."""
        scaled, image = self._images(nodes)
        half = self._half(image)
        found = half.T @ half
        return np.asarray(found if self._directions is None else found + scaled @ scaled.T - image @ image.T)

    def edge_covariances(self, sources: Longs, targets: Longs) -> Floats:
        """Covariances of f between the ends of edges; shape (n_edges,)."""
        (scaled, image), (other, its_image) = self._images(sources), self._images(targets)
        found = np.einsum("ij,ij->j", self._half(image), self._half(its_image))
        if self._directions is None:
            return np.asarray(found)
        return np.asarray(found + np.einsum("ij,ij->i", scaled, other) - np.einsum("ij,ij->i", image, its_image))

    def deviations(self, n_samples: int, nodes: Longs, rng: np.random.Generator) -> Floats:
        """Draws of f minus its mean; shape (n_samples, n_nodes)."""
        scaled, image = self._images(nodes)
        white = rng.standard_normal((len(self._factor), n_samples))
        u = la.solve_triangular(self._factor, white, lower=True, trans=1, check_finite=False)
        if self._directions is None:
            return np.asarray((image @ u).T)
        z = rng.standard_normal((len(self._scale), n_samples))
        return np.asarray((scaled @ z + image @ (u - self._directions.T @ z)).T)
