"""Sites on eigenvectors: any kernel, continuous smoothness.

The processes at the observed nodes are f = R z with z ~ N(0, I). In feature space R = Φ W^½, (n, ℓ); with fewer
observations than eigenvectors any R with R Rᵀ = K serves, (n, n). Under q, z has precision B = I + Rᵀ diag(η₂) R,
which is positive definite exactly where q exists, negative sites or not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import scipy.linalg as la
import torch

from graphmatern.errors import NotPositiveDefiniteError
from graphmatern.inference._sites import LatentPosterior, LatentPrior, Marginals

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from graphmatern.inference._sites import Sites
    from graphmatern.kernels import BoundKernel

    Floats = NDArray[np.float64]
    Longs = NDArray[np.int64]

__all__ = ["DensePrior", "SpectralPosterior", "SpectralPrior"]


def _factorise(root: Floats, second: Floats) -> Floats:
    """Cholesky factor of B = I + Rᵀ diag(η₂) R, lower; raises where negative sites outweigh the prior."""
    inner = root.T @ (second[:, None] * root)
    inner[np.diag_indices_from(inner)] += 1.0
    try:
        return np.asarray(la.cholesky(inner, lower=True, overwrite_a=True, check_finite=False))
    except la.LinAlgError:
        raise NotPositiveDefiniteError("negative sites outweigh the prior", -1) from None


def covariance_root(covariance: Floats) -> Floats:
    """R with R Rᵀ = K for a covariance that may be singular; shape (n, n)."""
    try:
        return np.asarray(la.cholesky(covariance, lower=True, check_finite=False))
    except la.LinAlgError:
        values, vectors = la.eigh(covariance, check_finite=False)
        return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))


class DensePrior(LatentPrior):
    """Processes given by a root of their covariance at the observations; what is differentiated is up to subclasses.

    Parameters
    ----------
    root : ndarray, shape (n, r)
        R.
    """

    def __init__(self, root: Floats) -> None:
        self._root = root

    def _halves(self, sites: Sites) -> Iterator[tuple[Floats, Floats]]:
        """For each process the factor L of B, and L⁻¹Rᵀ, whose columns' squares are the variances; (r, r), (r, n)."""
        for second in sites.second:
            factor = _factorise(self._root, second)
            yield factor, la.solve_triangular(factor, self._root.T, lower=True, check_finite=False)

    def marginals(self, sites: Sites) -> Marginals:
        """Marginals of q; see `LatentPrior.marginals`."""
        mean, variance = np.empty(sites.first.shape), np.empty(sites.first.shape)
        log_determinant = 0.0
        for c, (factor, half) in enumerate(self._halves(sites)):
            mean[c] = half.T @ (half @ sites.first[c])
            variance[c] = np.einsum("ij,ij->j", half, half)
            log_determinant += 2.0 * float(np.log(np.diag(factor)).sum())
        return Marginals(mean, variance, log_determinant)

    def covariance_gradient(self, sites: Sites, marginals: Marginals) -> Floats:
        """Derivative of KL(q ‖ p) in the prior covariance K at the observations, at fixed q; shape (n, n).

        It is ½ Σ (G − α αᵀ) over the processes, with G = K⁻¹ − K⁻¹SK⁻¹ = H − HSH, H = diag(η₂), α = K⁻¹m = η₁ − η₂m.
        """
        total = np.diag(sites.second.sum(axis=0))
        for c, (_, half) in enumerate(self._halves(sites)):
            scaled = half * sites.second[c]
            total -= scaled.T @ scaled
        alpha = sites.first - sites.second * marginals.mean
        total -= alpha.T @ alpha
        return 0.5 * total


class SpectralPrior(DensePrior):
    """Processes with a kernel on the eigenvectors of a graph; the coordinates are the kernel's free parameters.

    Parameters
    ----------
    bound : BoundKernel
        The kernel on the graph, at the parameters of interest.
    nodes : ndarray of int64, shape (n,)
        Positions of the observed nodes.
    """

    def __init__(self, bound: BoundKernel, nodes: Longs) -> None:
        self._free = [parameter for parameter in bound.kernel.parameters() if parameter.requires_grad]
        self._weights = bound.weights()
        self._features = bound.spectrum._basis[nodes]
        w = self._weights.detach().cpu().numpy()
        root = self._features * np.sqrt(w)
        self._in_function_space = len(nodes) < len(w)
        super().__init__(covariance_root(root @ root.T) if self._in_function_space else root)

    def gradient(self, sites: Sites, marginals: Marginals) -> Floats:
        """Derivative of KL(q ‖ p) in the kernel's free raw parameters at fixed q; shape (n_free,)."""
        if not self._free:
            return np.zeros(0)
        if self._in_function_space:
            change = self.covariance_gradient(sites, marginals)
            in_weights = np.einsum("is,is->s", self._features, change @ self._features)
        else:
            in_weights = self._weight_gradient(sites, marginals)
        pulled = torch.autograd.grad(
            self._weights, self._free, torch.as_tensor(in_weights), retain_graph=True, allow_unused=True
        )
        return np.array([0.0 if g is None else g.item() for g in pulled])

    def _weight_gradient(self, sites: Sites, marginals: Marginals) -> Floats:
        """Derivative in the weights without an (n, n) matrix: w φᵀGφ = 1 − (B⁻¹)_ss; shape (ℓ,)."""
        w = self._weights.detach().cpu().numpy()
        positive = w > 0
        total = np.zeros(len(w))
        for c, (factor, _) in enumerate(self._halves(sites)):
            inverse, _ = la.lapack.dtrtri(factor, lower=1)
            used = 1.0 - np.einsum("ij,ij->j", inverse, inverse)
            limit = sites.second[c] @ self._features**2  # where a weight vanishes
            total += np.divide(used, w, out=limit, where=positive)
            alpha = sites.first[c] - sites.second[c] * marginals.mean[c]
            total -= (alpha @ self._features) ** 2
        return 0.5 * total


class SpectralPosterior(LatentPosterior):
    """The processes under q at any nodes: f = Φ W^½ z, where data change z in the span of a few directions only.

    Parameters
    ----------
    bound : BoundKernel
        The kernel on the graph, at the learned parameters.
    nodes : ndarray of int64, shape (n,)
        Positions of the observed nodes.
    sites : Sites
        The sites.
    """

    def __init__(self, bound: BoundKernel, nodes: Longs, sites: Sites) -> None:
        self._basis = bound.spectrum._basis
        self._scale = np.sqrt(bound.weights().detach().cpu().numpy())
        scaled = self._basis[nodes] * self._scale
        if len(nodes) < len(self._scale):
            # z = D u + (what the data do not see), with D orthonormal and f = Tᵀ u at the observed nodes.
            self._directions, upper = la.qr(scaled.T, mode="economic", check_finite=False)
            root = upper.T
        else:
            self._directions, root = np.eye(len(self._scale)), scaled
        self._factors = [_factorise(root, second) for second in sites.second]
        right = [root.T @ first for first in sites.first]
        self._means = [
            la.cho_solve((factor, True), one, check_finite=False)
            for factor, one in zip(self._factors, right, strict=True)
        ]

    def _images(self, nodes: Longs) -> tuple[Floats, Floats]:
        """Φ W^½ at some nodes, and its image in the directions the data see; (n_nodes, ℓ), (n_nodes, r)."""
        scaled = self._basis[nodes] * self._scale
        return scaled, scaled @ self._directions

    def mean(self, nodes: Longs) -> Floats:
        """Means; shape (n_latents, n_nodes)."""
        _, image = self._images(nodes)
        return np.stack([image @ one for one in self._means])

    def variance(self, nodes: Longs) -> Floats:
        """Variances; shape (n_latents, n_nodes)."""
        scaled, image = self._images(nodes)
        unseen = np.einsum("ij,ij->i", scaled, scaled) - np.einsum("ij,ij->i", image, image)
        found = []
        for factor in self._factors:
            half = la.solve_triangular(factor, image.T, lower=True, check_finite=False)
            found.append(np.maximum(unseen, 0.0) + np.einsum("ij,ij->j", half, half))
        return np.stack(found)

    def covariance(self, nodes: Longs, latent: int = 0) -> Floats:
        """Covariance of one latent process; shape (n_nodes, n_nodes)."""
        scaled, image = self._images(nodes)
        half = la.solve_triangular(self._factors[latent], image.T, lower=True, check_finite=False)
        return np.asarray(scaled @ scaled.T - image @ image.T + half.T @ half)

    def sample(self, n_samples: int, nodes: Longs, rng: np.random.Generator) -> Floats:
        """Draws; shape (n_samples, n_latents, n_nodes)."""
        scaled, image = self._images(nodes)
        found = np.empty((n_samples, len(self._factors), len(nodes)))
        for c, (factor, mean) in enumerate(zip(self._factors, self._means, strict=True)):
            z = rng.standard_normal((len(self._scale), n_samples))
            white = rng.standard_normal((len(factor), n_samples))
            u = mean[:, None] + la.solve_triangular(factor, white, lower=True, trans=1, check_finite=False)
            found[:, c] = (scaled @ z + image @ (u - self._directions.T @ z)).T
        return found
