"""The process given the observations: means, variances, covariances, samples, leave-one-out predictions.

The prediction at a node is hᵀβ + f with coefficients β under a flat prior (universal kriging): with m the means of f
given data columns y and H, the mean is hᵀβ̂ + m_y − m_H β̂ and the variance grows by dᵀ cov(β) d, d = h − m_H.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import scipy.linalg as la
import scipy.sparse as sp

from graphmatern.inference._observations import Moments, sum_by_node
from graphmatern.inference._spectral import cholesky

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from graphmatern.inference._observations import Batch
    from graphmatern.kernels import BoundKernel
    from graphmatern.sparse import Factor

    Floats = NDArray[np.float64]
    Longs = NDArray[np.int64]

# Share of the precision of an observation given all others; less is rounding.
_NOTHING_LEFT = 1e-10

__all__ = ["ConditionedBatch", "MarkovConditioned", "Posterior", "SpectralConditioned"]


class ConditionedBatch(ABC):
    """The latent process f given one batch, coefficients aside: what an engine must be able to say."""

    def __init__(self, batch: Batch, rho: float) -> None:
        self.batch = batch
        self.noise = rho * batch.noise
        self.data = np.hstack([batch.y, batch.design])

    @abstractmethod
    def log_determinant(self) -> float:
        """Log det C of the observations' covariance."""

    @abstractmethod
    def solve(self, data: Floats) -> Floats:
        """C⁻¹ data; shape (n, k)."""

    @abstractmethod
    def inverse_diagonal(self) -> Floats:
        """Diagonal of C⁻¹; shape (n,)."""

    @abstractmethod
    def means(self, nodes: Longs, data: Floats) -> Floats:
        """E[f | data] at some nodes for data columns of mean zero; shape (n_nodes, k)."""

    @abstractmethod
    def variances(self, nodes: Longs) -> Floats:
        """Variances of f at some nodes; shape (n_nodes,)."""

    @abstractmethod
    def covariances(self, nodes: Longs) -> Floats:
        """Covariance of f at some nodes; shape (n_nodes, n_nodes)."""

    @abstractmethod
    def edge_covariances(self, sources: Longs, targets: Longs) -> Floats:
        """Covariances of f between the ends of edges; shape (n_edges,)."""

    @abstractmethod
    def deviations(self, n_samples: int, nodes: Longs, rng: np.random.Generator) -> Floats:
        """Draws of f minus its mean; shape (n_samples, n_nodes)."""

    def forms(self) -> Floats:
        """[Y H]ᵀ C⁻¹ [Y H]."""
        return np.asarray(self.data.T @ self.solve(self.data))


class SpectralConditioned(ConditionedBatch):
    """Through eigenvectors: C = Φ diag(w) Φᵀ + R is factorised where n ≤ ℓ, else B = I + W^½ ΦᵀR⁻¹Φ W^½."""

    def __init__(self, bound: BoundKernel, batch: Batch, rho: float) -> None:
        super().__init__(batch, rho)
        self._basis = bound.spectrum._basis
        self._weights = bound.weights().detach().cpu().numpy()
        self._features = self._basis[batch.nodes]
        n, rank = self._features.shape
        root = np.sqrt(self._weights)
        if n <= rank:
            scaled = self._features * root
            self._factor = cholesky(scaled @ scaled.T + np.diag(self.noise))
        else:
            scaled = self._features * root / np.sqrt(self.noise)[:, None]
            inner = scaled.T @ scaled
            inner[np.arange(rank), np.arange(rank)] += 1.0
            self._inner = cholesky(inner)
            # Posterior covariance of the coefficients: VᵀV.
            self._root = la.solve_triangular(self._inner, np.diag(root), lower=True)
        self._in_function_space = n <= rank

    @cached_property
    def _reduction(self) -> Floats:
        """V in the posterior covariance of the coefficients in function space, W − VᵀV; shape (n, n_eigenpairs)."""
        return np.asarray(la.solve_triangular(self._factor, self._features * self._weights, lower=True))

    def log_determinant(self) -> float:
        """Log det C of the observations' covariance."""
        if self._in_function_space:
            return 2.0 * float(np.log(np.diag(self._factor)).sum())
        return 2.0 * float(np.log(np.diag(self._inner)).sum()) + float(np.log(self.noise).sum())

    def solve(self, data: Floats) -> Floats:
        """C⁻¹ data; shape (n, k)."""
        if self._in_function_space:
            return np.asarray(la.cho_solve((self._factor, True), data))
        scaled = data / self.noise[:, None]
        return np.asarray(
            scaled
            - (self._features @ (self._root.T @ (self._root @ (self._features.T @ scaled)))) / self.noise[:, None]
        )

    def inverse_diagonal(self) -> Floats:
        """Diagonal of C⁻¹; shape (n,)."""
        if self._in_function_space:
            inverse, _ = la.lapack.dtrtri(self._factor, lower=1)
            return np.asarray(np.einsum("ij,ij->j", inverse, inverse))
        images = self._root @ self._features.T
        return np.asarray(1.0 / self.noise - np.einsum("ij,ij->j", images, images) / self.noise**2)

    def means(self, nodes: Longs, data: Floats) -> Floats:
        """E[f | data] at some nodes for data columns of mean zero; shape (n_nodes, k)."""
        coefficients = self._weights[:, None] * (self._features.T @ self.solve(data))
        return np.asarray(self._basis[nodes] @ coefficients)

    def variances(self, nodes: Longs) -> Floats:
        """Variances of f at some nodes; shape (n_nodes,)."""
        basis = self._basis[nodes]
        if self._in_function_space:
            images = basis @ self._reduction.T
            found = basis**2 @ self._weights - np.einsum("ij,ij->i", images, images)
        else:
            images = basis @ self._root.T
            found = np.einsum("ij,ij->i", images, images)
        return np.asarray(np.maximum(found, 0.0))

    def covariances(self, nodes: Longs) -> Floats:
        """Covariance of f at some nodes; shape (n_nodes, n_nodes)."""
        basis = self._basis[nodes]
        if self._in_function_space:
            images = basis @ self._reduction.T
            return np.asarray((basis * self._weights) @ basis.T - images @ images.T)
        images = basis @ self._root.T
        return np.asarray(images @ images.T)

    def edge_covariances(self, sources: Longs, targets: Longs) -> Floats:
        """Covariances of f between the ends of edges; shape (n_edges,)."""
        first, second = self._basis[sources], self._basis[targets]
        if self._in_function_space:
            own = np.einsum("is,s,is->i", first, self._weights, second)
            return np.asarray(own - np.einsum("ij,ij->i", first @ self._reduction.T, second @ self._reduction.T))
        return np.asarray(np.einsum("ij,ij->i", first @ self._root.T, second @ self._root.T))

    def deviations(self, n_samples: int, nodes: Longs, rng: np.random.Generator) -> Floats:
        """Draws of f minus its mean, by pathwise conditioning; shape (n_samples, n_nodes)."""
        coefficients = np.sqrt(self._weights)[:, None] * rng.standard_normal((len(self._weights), n_samples))
        simulated = self._features @ coefficients
        simulated += np.sqrt(self.noise)[:, None] * rng.standard_normal(simulated.shape)
        return np.asarray((self._basis[nodes] @ coefficients - self.means(nodes, simulated)).T)


class MarkovConditioned(ConditionedBatch):
    """Through the sparse posterior precision P = Q + AᵀR⁻¹A.

    Parameters
    ----------
    batch : Batch
        The observations.
    rho : float
        Noise variance, relative to that of the batch.
    factor : Factor
        Of P.
    variance : ndarray, shape (n_nodes,)
        Diagonal of P⁻¹.
    prior_logdet : float
        Log det Q.
    """

    def __init__(self, batch: Batch, rho: float, factor: Factor, variance: Floats, prior_logdet: float) -> None:
        super().__init__(batch, rho)
        self._factor = factor
        self._variance = variance
        self._selected: sp.csc_array | None = None  # P⁻¹ on the pattern of P, once somebody asks for it
        self._log_determinant = float(factor.logdet() - prior_logdet + np.log(self.noise).sum())

    def _full_means(self, data: Floats) -> Floats:
        right = sum_by_node(self.batch.nodes, data / self.noise[:, None], len(self._variance))
        return self._factor.solve(right)

    def log_determinant(self) -> float:
        """Log det C of the observations' covariance."""
        return self._log_determinant

    def solve(self, data: Floats) -> Floats:
        """C⁻¹ data; shape (n, k)."""
        return np.asarray((data - self._full_means(data)[self.batch.nodes]) / self.noise[:, None])

    def inverse_diagonal(self) -> Floats:
        """Diagonal of C⁻¹; shape (n,)."""
        return np.asarray(1.0 / self.noise - self._variance[self.batch.nodes] / self.noise**2)

    def means(self, nodes: Longs, data: Floats) -> Floats:
        """E[f | data] at some nodes for data columns of mean zero; shape (n_nodes, k)."""
        return self._full_means(data)[nodes]

    def variances(self, nodes: Longs) -> Floats:
        """Variances of f at some nodes; shape (n_nodes,)."""
        return self._variance[nodes]

    def covariances(self, nodes: Longs) -> Floats:
        """Covariance of f at some nodes; shape (n_nodes, n_nodes)."""
        found = np.empty((len(nodes), len(nodes)))
        for start in range(0, len(nodes), 64):  # a few at a time: full columns are large
            chosen = nodes[start : start + 64]
            right = np.zeros((len(self._variance), len(chosen)))
            right[chosen, np.arange(len(chosen))] = 1.0
            found[:, start : start + 64] = self._factor.solve(right)[nodes]
        return 0.5 * (found + found.T)

    def edge_covariances(self, sources: Longs, targets: Longs) -> Floats:
        """Covariances of f between the ends of edges, where the selected inverse has them; shape (n_edges,)."""
        if self._selected is None:
            self._selected = self._factor.selected_inverse().to_csc()
        return np.asarray(self._selected[sources, targets]).ravel()

    def deviations(self, n_samples: int, nodes: Longs, rng: np.random.Generator) -> Floats:
        """Draws of f minus its mean, from the sparse factor; shape (n_samples, n_nodes)."""
        found = np.empty((n_samples, len(nodes)))
        for start in range(0, n_samples, 16):  # a few at a time: full fields are large
            count = min(16, n_samples - start)
            normal = rng.standard_normal((len(self._variance), count))
            found[start : start + count] = self._factor.solve_upper(normal)[nodes].T
        return found


class Posterior:
    """Predictions from all batches, which share the coefficients of the covariates.

    Parameters
    ----------
    batches : sequence of ConditionedBatch
        The process given each batch.
    design : ndarray, shape (n_nodes, n_covariates)
        Covariates at every node.
    """

    def __init__(self, batches: Sequence[ConditionedBatch], design: Floats) -> None:
        self._batches = list(batches)
        self._design = design
        moments = Moments(design.shape[1])
        for one in self._batches:
            moments.add(one.log_determinant(), one.forms(), one.batch.n_replicates, len(one.batch.nodes))
        self.moments = moments
        p = design.shape[1]
        self.coefficients, self.coefficient_covariance = moments.solve() if p else (np.zeros(0), np.zeros((0, 0)))

    @property
    def n_replicates(self) -> int:
        """Number of replicates."""
        return sum(one.batch.n_replicates for one in self._batches)

    def _each(self) -> Iterator[tuple[ConditionedBatch, Longs]]:
        return ((one, one.batch.columns) for one in self._batches)

    def _sensitivity(self, one: ConditionedBatch, nodes: Longs) -> Floats:
        """How predictions change with the coefficients, h − m_H; shape (n_nodes, n_covariates)."""
        return self._design[nodes] - one.means(nodes, one.batch.design)

    def mean(self, nodes: Longs) -> Floats:
        """Posterior means; shape (n_nodes, n_replicates)."""
        found = np.empty((len(nodes), self.n_replicates))
        for one, columns in self._each():
            residual = one.batch.y - (one.batch.design @ self.coefficients)[:, None]
            found[:, columns] = (self._design[nodes] @ self.coefficients)[:, None] + one.means(nodes, residual)
        return found

    def variance(self, nodes: Longs) -> Floats:
        """Posterior variances; shape (n_nodes, n_replicates)."""
        found = np.empty((len(nodes), self.n_replicates))
        for one, columns in self._each():
            own = one.variances(nodes)
            if self._design.shape[1]:
                d = self._sensitivity(one, nodes)
                own = own + np.einsum("ni,ij,nj->n", d, self.coefficient_covariance, d)
            found[:, columns] = own[:, None]
        return found

    def _holding(self, replicate: int) -> ConditionedBatch:
        """The batch to which a replicate belongs."""
        return next(one for one, columns in self._each() if replicate in columns)

    def covariance(self, nodes: Longs, replicate: int = 0) -> Floats:
        """Posterior covariance of one replicate; shape (n_nodes, n_nodes)."""
        one = self._holding(replicate)
        d = self._sensitivity(one, nodes)
        return np.asarray(one.covariances(nodes) + d @ self.coefficient_covariance @ d.T)

    def on_edges(self, sources: Longs, targets: Longs, shares: Floats) -> tuple[Floats, Floats]:
        """Means and variances of (1 − t) f(source) + t f(target), linear along the edge; shape (n, n_replicates)."""
        t = shares[:, None]
        mean = (1 - t) * self.mean(sources) + t * self.mean(targets)
        variance = np.empty_like(mean)
        for one, columns in self._each():
            ends = [one.variances(sources), one.edge_covariances(sources, targets), one.variances(targets)]
            own = (1 - shares) ** 2 * ends[0] + 2 * shares * (1 - shares) * ends[1] + shares**2 * ends[2]
            d = (1 - t) * self._sensitivity(one, sources) + t * self._sensitivity(one, targets)
            own = own + np.einsum("ni,ij,nj->n", d, self.coefficient_covariance, d)
            variance[:, columns] = np.maximum(own, 0.0)[:, None]
        return mean, variance

    def samples(
        self, n_samples: int, nodes: Longs, rng: np.random.Generator, replicate: int, size: int
    ) -> Iterator[Floats]:
        """Draws from the posterior of one replicate, ``size`` at a time; each of shape (up to size, n_nodes)."""
        one = self._holding(replicate)
        mean = self.mean(nodes)[:, replicate]
        p = self._design.shape[1]
        root = np.linalg.cholesky(self.coefficient_covariance) if p else np.zeros((0, 0))
        sensitivity = self._sensitivity(one, nodes)
        for start in range(0, n_samples, size):
            count = min(size, n_samples - start)
            found = mean + one.deviations(count, nodes, rng)
            if p:
                found += rng.standard_normal((count, p)) @ root.T @ sensitivity.T
            yield np.asarray(found)

    def leave_one_out(self) -> list[tuple[Longs, Floats, Floats]]:
        """Mean and variance of each observation given all others, per batch, coefficients integrated out.

        Returns
        -------
        list of (columns, means, variances)
            Means of shape (n, n_replicates), variances of shape (n,); NaN and infinite where an observation alone
            determines some coefficient. Batches without observations are left out.
        """
        found = []
        for one, columns in self._each():
            if not len(one.batch.nodes):
                continue
            solved = one.solve(one.batch.y - (one.batch.design @ self.coefficients)[:, None])
            diagonal = one.inverse_diagonal()
            if self._design.shape[1]:
                h = one.solve(one.batch.design)
                left = diagonal - np.einsum("ni,ij,nj->n", h, self.coefficient_covariance, h)
                diagonal = np.where(left > _NOTHING_LEFT * diagonal, left, np.nan)
            variances = np.where(np.isnan(diagonal), np.inf, 1.0 / diagonal)
            found.append((columns, one.batch.y - solved / diagonal[:, None], variances))
        return found
