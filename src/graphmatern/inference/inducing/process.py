"""Processes f = Φv + residual of which sites change the coefficients v ~ N(0, I) of a few features only.

With P = I + ΦᵀηΦ the coefficients have mean P⁻¹Φᵀp and covariance P⁻¹, or, where q is to be diagonal, the reciprocals
of the diagonal of P, which is where variances are best. What Φ leaves of the prior, the residual, stays in q as it is.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import scipy.linalg as la
import torch

from graphmatern.errors import NotPositiveDefiniteError
from graphmatern.inference.dense import cholesky_or_raise, precision_of_features
from graphmatern.inference.process import Conditioned, Predictive, Process, Solution

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from graphmatern.inference.inducing.features import NodeFeatures
    from graphmatern.inference.observations import Group

    Floats = NDArray[np.float64]
    Longs = NDArray[np.int64]

__all__ = ["FeaturePredictive", "FeatureProcess"]


class FeatureProcess(Process):
    """A process at given parameters.

    Parameters
    ----------
    features : NodeFeatures
        Φ at any node, differentiable in the kernel's parameters.
    groups : sequence of Group
        The observations.
    diagonal : bool
        Whether q has a diagonal covariance.
    """

    def __init__(self, features: NodeFeatures, groups: Sequence[Group], *, diagonal: bool) -> None:
        self.features, self.groups, self.diagonal = features, groups, diagonal
        self._known: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def at(self, group: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Φ at the observations, and residual prior variances; shapes (n, k) and (n,)."""
        if group not in self._known:
            self._known[group] = self.features.explained(self.groups[group].nodes)
        return self._known[group]

    def condition(self, group: int, precision: Floats) -> FeatureConditioned:
        """Put sites on a group; see `Process.condition`."""
        return FeatureConditioned(self, group, precision)

    def predictive(self, group: int, precision: Floats) -> FeaturePredictive:
        """Return the process at any node; see `Process.predictive`."""
        observed = self.at(group)[0].detach().numpy()
        return FeaturePredictive.under_sites(self.features, observed, precision, diagonal=self.diagonal)


class FeatureConditioned(Conditioned):
    """The coefficients under sites."""

    def __init__(self, process: FeatureProcess, group: int, precision: Floats) -> None:
        super().__init__(process.groups[group], precision)
        self._process = process
        self._tensors = process.at(group)
        self._features = self._tensors[0].detach().numpy()
        p = precision_of_features(self._features, precision)
        self._diagonal = np.diag(p).copy()  # before the factor takes its place
        self._factor = cholesky_or_raise(p)
        if process.diagonal and (self._diagonal <= 0.0).any():
            raise NotPositiveDefiniteError("negative sites outweigh the prior", -1)

    @property
    def log_determinant(self) -> float:
        """Log det (I + ΦΦᵀ diag(η)) = log det P."""
        return 2.0 * float(np.log(np.diag(self._factor)).sum())

    def solve(self, potentials: Floats) -> Solution:
        """Means under the sites, for potentials of shape (n, k)."""
        mean = self._features @ la.cho_solve((self._factor, True), self._features.T @ potentials, check_finite=False)
        return Solution(potentials - self.precision[:, None] * mean, mean)

    def variance(self) -> Floats:
        """Variances of Φv under the sites; shape (n,)."""
        if self._process.diagonal:
            return np.asarray(self._features**2 @ (1.0 / self._diagonal))
        half = la.blas.dtrsm(1.0, self._factor, self._features.T, lower=1)
        return np.asarray(np.einsum("ij,ij->j", half, half))

    def unexplained(self) -> Floats:
        """Residual prior variances; shape (n,)."""
        return self._tensors[1].detach().numpy()

    def covariance_divergence(self, variance: Floats) -> float:
        """What the covariance contributes to KL(q ‖ p)."""
        if self._process.diagonal:
            return 0.5 * float((1.0 / self._diagonal - 1.0 + np.log(self._diagonal)).sum())
        return super().covariance_divergence(variance)

    def gradient(self, solution: Solution, weights: Floats, count: float = 1.0) -> Floats:
        """See `Conditioned.gradient`; at fixed q its derivative in Φ is count · ηΦ cov(v) − α weights αᵀΦ."""
        scaled = self.precision[:, None] * self._features
        if self._process.diagonal:
            change = count * scaled / self._diagonal
        else:
            change = count * la.cho_solve((self._factor, True), scaled.T, check_finite=False).T
        change = change - solution.alpha @ (weights @ (solution.alpha.T @ self._features))
        return self._process.features.pull_back(self._tensors, (change, 0.5 * count * self.precision))


class FeaturePredictive(Predictive):
    """The process at any node, for given q over the coefficients.

    Parameters
    ----------
    features : NodeFeatures
        Φ at any node.
    root : ndarray, shape (k, k) or (k,)
        F with cov(v) = FFᵀ; its diagonal where that is all.
    mean : ndarray, shape (k,), optional
        Mean of the coefficients, where it does not follow from potentials.
    """

    def __init__(self, features: NodeFeatures, root: Floats, mean: Floats | None = None) -> None:
        self._features, self.root, self.mean = features, root, mean
        self._observed: tuple[Floats, Floats] | None = None

    @classmethod
    def under_sites(
        cls, features: NodeFeatures, observed: Floats, precision: Floats, *, diagonal: bool
    ) -> FeaturePredictive:
        """Return q under sites, given Φ at the observations."""
        p = precision_of_features(observed, precision)
        variances = 1.0 / np.diag(p)
        factor = cholesky_or_raise(p)
        inverse, _ = la.lapack.dtrtri(factor, lower=1)
        found = cls(features, np.sqrt(variances) if diagonal else inverse.T)
        found._observed = observed, factor
        return found

    @cached_property
    def _covariance(self) -> Floats:
        return np.diag(self.root**2) if self.root.ndim == 1 else self.root @ self.root.T

    def _at(self, nodes: Longs) -> tuple[Floats, Floats]:
        with torch.no_grad():
            features, residual = self._features.explained(nodes)
        return features.numpy(), residual.numpy()

    def means(self, nodes: Longs, potentials: Floats) -> Floats:
        """Means of f at some nodes; shape (n_nodes, k)."""
        features, _ = self._at(nodes)
        if self.mean is not None:
            return np.repeat((features @ self.mean)[:, None], potentials.shape[1], axis=1)
        assert self._observed is not None
        observed, factor = self._observed
        return np.asarray(features @ la.cho_solve((factor, True), observed.T @ potentials, check_finite=False))

    def variances(self, nodes: Longs) -> Floats:
        """Variances of f at some nodes; shape (n_nodes,)."""
        features, residual = self._at(nodes)
        spread = features * self.root if self.root.ndim == 1 else features @ self.root
        return np.asarray(residual + np.einsum("ij,ij->i", spread, spread))

    def unexplained(self, nodes: Longs) -> Floats:
        """Residual prior variances; shape (n_nodes,)."""
        return self._at(nodes)[1]

    def covariances(self, nodes: Longs) -> Floats:
        """Covariance of f at some nodes; shape (n_nodes, n_nodes)."""
        features, _ = self._at(nodes)
        left = self._features.left_over(nodes)
        return np.asarray(features @ self._covariance @ features.T + left @ left.T)

    def covariance_times(self, nodes: Longs, others: Longs, weights: Floats) -> Floats:
        """Covariances of f between some nodes and others, times weights; shape (n_nodes, k)."""
        n, both = len(nodes), np.concatenate([nodes, others])
        features, left = self._at(both)[0], self._features.left_over(both)
        own = features[:n] @ (self._covariance @ (features[n:].T @ weights))
        return np.asarray(own + left[:n] @ (left[n:].T @ weights))

    def deviations(self, n_samples: int, nodes: Longs, rng: np.random.Generator) -> Floats:
        """Draws of f minus its mean; shape (n_samples, n_nodes)."""
        features, _ = self._at(nodes)
        left = self._features.left_over(nodes)
        normal = rng.standard_normal((n_samples, features.shape[1]))
        v = normal * self.root if self.root.ndim == 1 else normal @ self.root.T
        # The residual prior: what is left of a prior draw without the features' part of it.
        return np.asarray(v @ features.T + rng.standard_normal((n_samples, left.shape[1])) @ left.T)
