"""Features of nodes: Φ(x) = cov(f(x), v) for whitened coefficients v = B e of a process f(x) = U_x diag(w)^½ e.

Inducing nodes z have B = L⁻¹ U_z diag(w)^½ with K_zz = LLᵀ, so that v = L⁻¹ f(z); leading eigenvectors have the first
rows of the identity.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from graphmatern.inference.learning.parameters import pull_back

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Longs = NDArray[np.int64]

__all__ = ["NodeFeatures", "spread_out_nodes"]

_JITTER = 1e-10


class NodeFeatures:
    """Φ at given weights, differentiable in the kernel's parameters.

    Parameters
    ----------
    basis : Tensor, shape (n_nodes, n_eigenpairs)
        U.
    weights : Tensor, shape (n_eigenpairs,)
        w.
    inducing : ndarray of int64, shape (k,), or int
        Positions of inducing nodes, or a number of leading eigenvectors.
    free : sequence of Tensor
        The kernel's free parameters.
    """

    def __init__(
        self, basis: torch.Tensor, weights: torch.Tensor, inducing: Longs | int, free: Sequence[torch.Tensor]
    ) -> None:
        self._basis, self._free = basis, free
        # Weights may have vanished to rounding (diffusion); the derivative of √0 is infinite.
        self._scale = weights.clamp_min(torch.finfo(weights.dtype).tiny).sqrt()
        self._weights = weights
        self._mixing: torch.Tensor | None = None
        self.count = inducing if isinstance(inducing, int) else len(inducing)
        if not isinstance(inducing, int):
            own = basis[torch.as_tensor(inducing)] * self._scale
            covariance = own @ own.T + _JITTER * torch.eye(self.count, dtype=own.dtype)
            self._mixing = torch.linalg.solve_triangular(torch.linalg.cholesky(covariance), own, upper=False)

    def _node_features(self, nodes: Longs) -> torch.Tensor:
        return self._basis[torch.as_tensor(nodes)] * self._scale

    def _features(self, node_features: torch.Tensor) -> torch.Tensor:
        return node_features[:, : self.count] if self._mixing is None else node_features @ self._mixing.T

    def explained(self, nodes: Longs) -> tuple[torch.Tensor, torch.Tensor]:
        """Φ at some nodes, and the prior variance that it leaves; shapes (n_nodes, k) and (n_nodes,)."""
        every = self._node_features(nodes)
        features = self._features(every)
        residual = (every**2).sum(dim=-1) - (features**2).sum(dim=-1)
        return features, residual.clamp_min(0.0)  # rounding

    def left_over(self, nodes: Longs) -> Floats:
        """A root of the residual prior covariance; shape (n_nodes, n_eigenpairs) or fewer columns."""
        with torch.no_grad():
            every = self._node_features(nodes)
            if self._mixing is None:
                return every[:, self.count :].numpy()
            return (every - self._features(every) @ self._mixing).numpy()

    def pull_back(self, outputs: tuple[torch.Tensor, ...], cotangents: tuple[Floats, ...]) -> Floats:
        """Derivatives in the kernel's free parameters, from those in what `explained` returned; shape (n_free,)."""
        return pull_back(outputs, cotangents, self._free)


def spread_out_nodes(features: Floats, places: Longs, count: int) -> Longs:
    """Choose nodes that tell most about the others: each the one with the largest variance given those before it.

    Parameters
    ----------
    features : ndarray, shape (n, n_eigenpairs)
        Roots of the prior covariance of the nodes to choose from.
    places : ndarray of int64, shape (n,)
        Their positions, each once.
    count : int
        How many to choose.

    Returns
    -------
    ndarray of int64, shape (min(count, n),)
        Sorted.
    """
    if len(places) <= count:
        return places
    # Pivoted Cholesky factorisation of the covariance, one column at a time.
    left = np.einsum("ij,ij->i", features, features)
    columns, chosen = np.zeros((len(places), count)), np.zeros(count, dtype=np.int64)
    for k in range(count):
        pivot = int(np.argmax(left))
        if left[pivot] <= 1e-12 * features.shape[1]:
            return places[np.sort(chosen[:k])]  # the others follow from these
        column = features @ features[pivot] - columns[:, :k] @ columns[pivot, :k]
        columns[:, k] = column / np.sqrt(left[pivot])
        left = left - columns[:, k] ** 2
        left[pivot], chosen[k] = -np.inf, pivot
    return places[np.sort(chosen)]
