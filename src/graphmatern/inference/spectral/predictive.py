"""A process given by eigenpairs, under sites, at any node.

f = Φ W^½ z with z ~ N(0, I), where sites change z in the span of a few directions only. Means and variances need no
directions where sites are neither negative nor far stronger than the prior: with K = Φ W Φₓᵀ at the n observed nodes
x and D² = diag(η), they follow from the factor of I + D Kₓₓ D in fewer than half the operations.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import scipy.linalg as la

from graphmatern.inference.dense import STRONG_SITE, cholesky_or_raise, precision_of_features
from graphmatern.inference.process import Predictive
from graphmatern.inference.spectral.covariances import weighted_products
from graphmatern.inference.threads import small_matrix_threads

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Longs = NDArray[np.int64]

__all__ = ["SeenDirections", "SpectralPredictive"]


class SeenDirections:
    """What the data can see of a process given by eigenpairs, whatever the precisions of the sites.

    Parameters
    ----------
    basis : ndarray, shape (n_nodes, n_eigenpairs)
        Eigenvectors on the nodes.
    weights : ndarray, shape (n_eigenpairs,)
        Variances of their coefficients.
    observed : ndarray of int64, shape (n,)
        Positions of the observed nodes.
    """

    def __init__(self, basis: Floats, weights: Floats, observed: Longs) -> None:
        self._basis, self._weights, self._observed = basis, weights, observed
        self.scale = np.sqrt(weights)
        self._latest: tuple[Longs, Floats, Floats | None] | None = None
        self._latest_covariances: tuple[Longs, Floats, Floats] | None = None

    @property
    def are_few(self) -> bool:
        """Whether the data see fewer directions than there are."""
        return len(self._observed) < len(self._weights)

    @cached_property
    def _split(self) -> tuple[Floats | None, Floats]:
        """Directions and root, made when they are first asked for: a fit needs neither."""
        scaled = self.scaled(self._observed)
        if not self.are_few:
            return None, scaled
        with small_matrix_threads(len(self._observed)):
            directions, upper = la.qr(scaled.T, mode="economic", check_finite=False)
        return np.asarray(directions, np.float64), np.asarray(upper.T, np.float64)

    @property
    def directions(self) -> Floats | None:
        """Orthonormal D with z = D u + (what the data do not see), (n_eigenpairs, r); None where they see all."""
        return self._split[0]

    @property
    def root(self) -> Floats:
        """Of the observed nodes: f = root u there; shape (n, r)."""
        return self._split[1]

    def _rows(self, nodes: Longs) -> Floats:
        """Rows of the basis; without a copy where these are all of them."""
        n = len(self._basis)
        return self._basis if len(nodes) == n and np.array_equal(nodes, np.arange(n)) else self._basis[nodes]

    def scaled(self, nodes: Longs) -> Floats:
        """Φ W^½ at some nodes; shape (n_nodes, n_eigenpairs)."""
        return np.asarray(self._basis[nodes] * self.scale)

    def times(self, nodes: Longs, z: Floats) -> Floats:
        """Φ W^½ z at some nodes; shape (n_nodes, k)."""
        coefficients = self.scale[:, None] * z
        if 4 * len(nodes) > len(self._basis):  # rather than to copy most of the basis
            return np.asarray((self._basis @ coefficients)[nodes])
        return np.asarray(self._basis[nodes] @ coefficients)

    def with_nodes(self, nodes: Longs) -> SeenDirections:
        """What data at further nodes can see as well."""
        return SeenDirections(self._basis, self._weights, np.concatenate([self._observed, nodes]))

    def image(self, nodes: Longs) -> tuple[Floats, Floats | None]:
        """Φ W^½ at some nodes in the directions that are seen, (n_nodes, r), and the variance that is not, (n_nodes,).

        The latest are remembered: several latent processes and verbs ask for the same.
        """
        if np.array_equal(nodes, self._observed):
            return self.root, None if self.directions is None else np.zeros(len(nodes))
        if self._latest is None or not np.array_equal(self._latest[0], nodes):
            image, unseen = self.scaled(nodes) if self.directions is None else np.empty(0), None
            if self.directions is not None:
                rows = self._rows(nodes)
                with small_matrix_threads(len(nodes)):
                    image = rows @ (self.scale[:, None] * self.directions)
                unseen = np.einsum("ij,ij,j->i", rows, rows, self._weights) - np.einsum("ij,ij->i", image, image)
            self._latest = nodes.copy(), image, None if unseen is None else np.maximum(unseen, 0.0)
        return self._latest[1], self._latest[2]

    @cached_property
    def covariance(self) -> Floats:
        """Prior covariance of the observed nodes; shape (n, n)."""
        with small_matrix_threads(len(self._observed)):
            lower = np.tril(weighted_products(self._basis[self._observed], self._weights))
        return np.asarray(lower + np.tril(lower, -1).T)

    def covariances(self, nodes: Longs) -> tuple[Floats, Floats]:
        """Prior covariances of some nodes with the observed ones, (n_nodes, n), and their variances, (n_nodes,).

        The latest are remembered, as `image` does.
        """
        if np.array_equal(nodes, self._observed):
            return self.covariance, np.diag(self.covariance)
        if self._latest_covariances is None or not np.array_equal(self._latest_covariances[0], nodes):
            rows = self._rows(nodes)
            with small_matrix_threads(len(nodes)):
                found = rows @ (self._weights[:, None] * self._basis[self._observed].T)
            self._latest_covariances = nodes.copy(), found, np.einsum("ij,ij,j->i", rows, rows, self._weights)
        return self._latest_covariances[1], self._latest_covariances[2]


class SpectralPredictive(Predictive):
    """The process under sites of given precisions.

    Parameters
    ----------
    seen : SeenDirections
        What the data can see.
    precision : ndarray, shape (n,)
        η.
    """

    def __init__(self, seen: SeenDirections, precision: Floats) -> None:
        self._seen, self._precision = seen, precision
        if precision.min(initial=0.0) < 0.0:
            _ = self._factor  # which may not exist

    @cached_property
    def _factor(self) -> Floats:
        with small_matrix_threads(len(self._precision)):
            return cholesky_or_raise(precision_of_features(self._seen.root, self._precision))

    def _half(self, image: Floats) -> Floats:
        """L⁻¹ imageᵀ, whose squares are variances; shape (r, n_nodes)."""
        with small_matrix_threads(len(self._precision)):
            return np.asarray(la.solve_triangular(self._factor, image.T, lower=True, check_finite=False))

    @cached_property
    def _inner_factor(self) -> Floats | None:
        """Cholesky factor of I + D Kₓₓ D; None where directions serve better, or exactly."""
        precision = self._precision
        if not self._seen.are_few or precision.min(initial=0.0) < 0.0:
            return None
        covariance = self._seen.covariance
        if (precision * np.diag(covariance)).max(initial=0.0) >= STRONG_SITE:
            return None
        root = np.sqrt(precision)
        inner = covariance * root * root[:, None]
        inner[np.diag_indices_from(inner)] += 1.0
        with small_matrix_threads(len(precision)):
            return cholesky_or_raise(inner)

    def means(self, nodes: Longs, potentials: Floats) -> Floats:
        """Means of f at some nodes; shape (n_nodes, k)."""
        if self._inner_factor is not None:
            root = np.sqrt(self._precision)[:, None]
            seen = root * (self._seen.covariance @ potentials)
            alpha = potentials - root * la.cho_solve((self._inner_factor, True), seen, check_finite=False)
            return np.asarray(self._seen.covariances(nodes)[0] @ alpha)
        inner = la.cho_solve((self._factor, True), self._seen.root.T @ potentials, check_finite=False)
        return np.asarray(self._seen.image(nodes)[0] @ inner)

    def variances(self, nodes: Longs) -> Floats:
        """Variances of f at some nodes; shape (n_nodes,)."""
        if self._inner_factor is not None:
            covariances, prior = self._seen.covariances(nodes)
            with small_matrix_threads(len(self._precision)):
                scaled = (covariances * np.sqrt(self._precision)).T  # in Fortran's order
                half = la.blas.dtrsm(1.0, self._inner_factor, scaled, lower=1, overwrite_b=1)
            return np.asarray(prior - np.einsum("ij,ij->j", half, half))
        image, unseen = self._seen.image(nodes)
        half = self._half(image)
        found = np.einsum("ij,ij->j", half, half)
        return np.asarray(found if unseen is None else unseen + found)

    def covariances(self, nodes: Longs) -> Floats:
        """Covariance of f at some nodes; shape (n_nodes, n_nodes)."""
        image, unseen = self._seen.image(nodes)
        half = self._half(image)
        found = half.T @ half
        if unseen is None:
            return np.asarray(found)
        scaled = self._seen.scaled(nodes)
        return np.asarray(found + scaled @ scaled.T - image @ image.T)

    def covariance_times(self, nodes: Longs, others: Longs, weights: Floats) -> Floats:
        """Covariances of f between some nodes and others, times weights; shape (n_nodes, k)."""
        z = self._seen.scaled(others).T @ weights
        directions = self._seen.directions
        if directions is None:
            return self._seen.times(nodes, la.cho_solve((self._factor, True), z, check_finite=False))
        u = directions.T @ z
        changed = la.cho_solve((self._factor, True), u, check_finite=False) - u
        return self._seen.times(nodes, z + directions @ changed)

    def with_sites(self, nodes: Longs, precision: Floats) -> SpectralPredictive:
        """The same process under further sites; see `Predictive.with_sites`."""
        return SpectralPredictive(self._seen.with_nodes(nodes), np.concatenate([self._precision, precision]))

    def edge_covariances(self, sources: Longs, targets: Longs) -> Floats:
        """Covariances of f between the ends of edges; shape (n_edges,)."""
        image, unseen = self._seen.image(sources)
        its_image, _ = self._seen.image(targets)
        found = np.einsum("ij,ij->j", self._half(image), self._half(its_image))
        if unseen is None:
            return np.asarray(found)
        scaled, other = self._seen.scaled(sources), self._seen.scaled(targets)
        return np.asarray(found + np.einsum("ij,ij->i", scaled, other) - np.einsum("ij,ij->i", image, its_image))

    def deviations(self, n_samples: int, nodes: Longs, rng: np.random.Generator) -> Floats:
        """Draws of f minus its mean; shape (n_samples, n_nodes)."""
        image, unseen = self._seen.image(nodes)
        white = rng.standard_normal((len(self._factor), n_samples))
        u = la.solve_triangular(self._factor, white, lower=True, trans=1, check_finite=False)
        if unseen is None or self._seen.directions is None:
            return np.asarray((image @ u).T)
        z = rng.standard_normal((len(self._seen.scale), n_samples))
        return np.asarray((self._seen.scaled(nodes) @ z + image @ (u - self._seen.directions.T @ z)).T)
