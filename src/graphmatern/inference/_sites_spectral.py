"""Sites on eigenvectors: any kernel, continuous smoothness.

The processes at the observed nodes have the features R = Φ W^½, (n, ℓ); with fewer observations than eigenvectors,
their covariance R Rᵀ serves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import scipy.linalg as la
import torch

from graphmatern.inference._sites import LatentPosterior
from graphmatern.inference._sites_dense import DensePrior, cholesky_or_raise, precision_of_features

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from graphmatern.inference._sites import Marginals, Sites
    from graphmatern.kernels import BoundKernel

    Floats = NDArray[np.float64]
    Longs = NDArray[np.int64]

__all__ = ["SpectralPosterior", "SpectralPrior"]


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
        super().__init__(self._features * np.sqrt(w))

    def gradient(self, sites: Sites, marginals: Marginals) -> Floats:
        """Derivative of KL(q ‖ p) in the kernel's free raw parameters at fixed q; shape (n_free,)."""
        if not self._free:
            return np.zeros(0)
        if self.in_function_space:
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
        root = self._features * np.sqrt(w)
        for c, second in enumerate(sites.second):
            inverse, _ = la.lapack.dtrtri(cholesky_or_raise(precision_of_features(root, second)), lower=1)
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
        self._factors = [cholesky_or_raise(precision_of_features(root, second)) for second in sites.second]
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
