"""Processes given by eigenpairs: f = Φ c with c ~ N(0, diag w), where Φ holds eigenvectors at the nodes and w = a Ψ(Λ).

For n observations and ℓ eigenpairs an evaluation costs O(n² ℓ) in function space, O(ℓ³) in feature space from the Gram
matrix ΦᵀηΦ, whichever is less, and O(ℓ) where that matrix is diagonal: every node observed once with equal noise.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import scipy.linalg as la

from graphmatern.errors import NumericalError
from graphmatern.inference.dense import CovarianceConditioned, cholesky_or_raise
from graphmatern.inference.learning.parameters import pull_back
from graphmatern.inference.process import Conditioned, DataForms, Process, Solution
from graphmatern.inference.spectral.covariances import (
    ACCURACY,
    ACCURACY_UNDER_SITES,
    SpannedCovariances,
    weighted_products,
)
from graphmatern.inference.spectral.predictive import SeenDirections, SpectralPredictive

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import torch
    from numpy.typing import NDArray

    from graphmatern.inference.observations import Group

    Floats = NDArray[np.float64]

__all__ = ["GroupBasis", "SpectralProcess"]


class GroupBasis:
    """Eigenvectors at the observations of one group, and products with them that serve many parameters.

    Parameters
    ----------
    features : ndarray, shape (n, n_eigenpairs)
        Φ.
    group : Group
        What was observed there.
    """

    def __init__(self, features: Floats, group: Group) -> None:
        self.features, self.group = np.asfortranarray(features), group

    @cached_property
    def covariances(self) -> SpannedCovariances:
        """Covariances of the process at the observations, for any weights."""
        return SpannedCovariances(self.features)

    @property
    def few_observations(self) -> bool:
        """Whether matrices of observations are smaller than those of eigenvectors; these are diagonal without any."""
        return bool(0 < self.features.shape[0] < self.features.shape[1])

    @cached_property
    def _of_noise(self) -> tuple[Floats, Floats, Floats]:
        """ΦᵀR₀⁻¹Φ (its diagonal where that is all), ΦᵀR₀⁻¹D and DᵀR₀⁻¹D for the group's relative noise variances R₀."""
        scaled = self.features.T / self.group.noise
        data = self.group.data
        return _slim(scaled @ self.features), scaled @ data, data.T @ (data / self.group.noise[:, None])

    def _level(self, precision: Floats) -> float | None:
        """The number c with η = c / R₀, where there is one."""
        levels = precision * self.group.noise
        level = float(levels[0]) if len(levels) else 1.0
        return level if np.abs(levels - level).max(initial=0.0) <= 1e-14 * abs(level) else None

    def gram(self, precision: Floats) -> Floats:
        """ΦᵀηΦ, shape (n_eigenpairs, n_eigenpairs), or its diagonal where there is nothing else."""
        level = self._level(precision)
        if level is None:
            return _slim(self.features.T @ (precision[:, None] * self.features))
        return level * self._of_noise[0]

    def project_data(self, precision: Floats) -> tuple[Floats, Floats]:
        """ΦᵀηD and DᵀηD for the group's data D; shapes (n_eigenpairs, k) and (k, k)."""
        level, data = self._level(precision), self.group.data
        if level is None:
            scaled = precision[:, None] * data
            return self.features.T @ scaled, data.T @ scaled
        return level * self._of_noise[1], level * self._of_noise[2]


def _slim(matrix: Floats) -> Floats:
    """Return the diagonal of a matrix that has nothing else, any other matrix as it is."""
    diagonal = np.diag(matrix)
    rest = np.abs(matrix - np.diag(diagonal)).max(initial=0.0)
    return np.asarray(diagonal if rest < 1e-12 * diagonal.max(initial=1.0) else matrix)


class SpectralProcess(Process):
    """A process at given weights of the eigenvectors.

    Parameters
    ----------
    basis : ndarray, shape (n_nodes, n_eigenpairs)
        Eigenvectors on the nodes.
    bases : sequence of GroupBasis
        The observations.
    weights : Tensor, shape (n_eigenpairs,)
        Variances of the coefficients, differentiable in ``free``.
    free : sequence of Tensor
        The kernel's free parameters.
    slopes : callable
        Derivatives of the logarithms of the weights in these; returns shape (n_eigenpairs, n_free).
    many : bool
        Whether sites will be updated many times.
    """

    def __init__(
        self,
        basis: Floats,
        bases: Sequence[GroupBasis],
        weights: torch.Tensor,
        free: Sequence[torch.Tensor],
        slopes: Callable[[], Floats],
        *,
        many: bool,
    ) -> None:
        self._basis, self._bases, self._weights, self._free = basis, bases, weights, free
        self.weights: Floats = weights.detach().cpu().numpy()
        self.slopes = slopes
        self._many = many
        self._seen: dict[int, SeenDirections] = {}
        self._covariances: dict[int, Floats] = {}

    def condition(self, group: int, precision: Floats) -> Conditioned:
        """Put sites on a group; see `Process.condition`."""
        basis = self._bases[group]
        if not basis.few_observations:
            return FeatureSpace(self, basis, precision)
        if not self._many:
            return FunctionSpace(self, basis, precision)
        if group not in self._covariances:
            lower = np.tril(self.covariance(basis, np.inf, ACCURACY_UNDER_SITES))
            self._covariances[group] = lower + np.tril(lower, -1).T
        return CovarianceSpace(self, basis, precision, self._covariances[group])

    def covariance(self, basis: GroupBasis, noise: float, accuracy: float) -> Floats:
        """Covariance at the observations, its lower triangle; see `SpannedCovariances.lower`."""
        if self._weights.requires_grad:
            # A search has too few evaluations for a space of weights to pay.
            return weighted_products(basis.features, self.weights)
        return basis.covariances.lower(self.weights, noise, accuracy)

    def predictive(self, group: int, precision: Floats) -> SpectralPredictive:
        """Return the process at any node; see `Process.predictive`."""
        if group not in self._seen:
            self._seen[group] = SeenDirections(self._basis, self.weights, self._bases[group].group.nodes)
        return SpectralPredictive(self._seen[group], precision)

    def pull_back(self, in_weights: Floats) -> Floats:
        """Derivatives in the kernel's free parameters, from those in the weights; shape (n_free,)."""
        return pull_back([self._weights], [in_weights], self._free)


class CovarianceSpace(CovarianceConditioned):
    """Fewer observations than eigenvectors, sites that are updated many times: through K_xx, which stays."""

    def __init__(self, process: SpectralProcess, basis: GroupBasis, precision: Floats, covariance: Floats) -> None:
        self._process, self._features = process, basis.features
        super().__init__(basis.group, precision, covariance)

    def pull_back(self, change: Floats) -> Floats:
        """Derivatives in the kernel's free parameters, from those in K."""
        return self._process.pull_back(np.einsum("is,is->s", self._features, change @ self._features))


@dataclass(frozen=True, eq=False)
class _Images:
    """ΦᵀC⁻¹D; shape (n_eigenpairs, k)."""

    images: Floats


class _WeightSpace(Conditioned):
    """What both spaces below have in common: derivatives through those in the weights.

    With φ a column of Φ, C changes with its weight by φφᵀ, and a form by −(φᵀC⁻¹·)(φᵀC⁻¹·).
    """

    _process: SpectralProcess
    _basis: GroupBasis
    _leverage: Floats  # diagonal of ΦᵀC⁻¹Φ

    def gradient(self, solution: _Images | Solution, weights: Floats, count: float = 1.0) -> Floats:
        """See `Conditioned.gradient`."""
        images = getattr(solution, "images", None)
        if images is None:
            images = self._basis.features.T @ solution.alpha  # type: ignore[union-attr]
        in_weights = count * self._leverage - np.einsum("sk,sk->s", images @ weights, images)
        return self._process.pull_back(0.5 * in_weights)

    def _overlaps(self) -> Floats:
        """W^½ ΦᵀC⁻¹Φ W^½: its lower triangle, or its diagonal where there is nothing else."""
        raise NotImplementedError

    def information(self) -> Floats:
        """Fisher information ½ tr C⁻¹∂C C⁻¹∂C; with R = C − ΦWΦᵀ those of the noise follow from those of W."""
        overlaps = self._overlaps()
        slopes = self._process.slopes()
        every = np.column_stack([slopes, np.ones(len(slopes))])
        if overlaps.ndim == 1:
            own, images = overlaps, overlaps[:, None] ** 2 * every
        else:
            own, images = np.diag(overlaps), la.blas.dsymm(1.0, overlaps**2, np.asfortranarray(every), lower=1)
        found = every.T @ images
        found[:, -1] = every.T @ own - found[:, -1]
        found[-1, -1] = len(self.precision) - self.used() - found[-1, -1]  # of n − 2 used + 1ᵀ(overlaps²)1
        found[-1] = found[:, -1]
        return np.asarray(0.5 * found)


class FunctionSpace(_WeightSpace):
    """Fewer observations than eigenvectors, all sites positive: C = Φ diag(w) Φᵀ + diag(1/η), (n, n)."""

    def __init__(self, process: SpectralProcess, basis: GroupBasis, precision: Floats) -> None:
        super().__init__(basis.group, precision)
        self._process, self._basis = process, basis
        noise = 1.0 / precision
        covariance = process.covariance(basis, float(noise.min()), ACCURACY)
        covariance.reshape(-1, order="F")[:: len(noise) + 1] += noise
        least = len(noise) * np.finfo(float).eps * float(np.diag(covariance).max(initial=0.0))
        # LAPACK itself, here and below: what SciPy puts around it takes as long as small matrices.
        self._factor, failed = la.lapack.dpotrf(covariance, lower=1, overwrite_a=1)
        # Where a pivot is rounding error, whether it is positive is luck.
        if failed or float(np.diag(self._factor).min(initial=np.inf)) ** 2 < least:
            raise NumericalError(
                "the covariance of the observations is not positive definite. Likely causes: (a) a noise variance near "
                "0 with repeated or strongly correlated nodes: raise it; (b) parameters that are not finite."
            )

    # What follows is for derivatives, and most of their cost.
    @cached_property
    def _root(self) -> Floats:
        # With L⁻¹ two products of triangles take less time than the solution of as many systems.
        return np.asarray(la.lapack.dtrtri(self._factor, lower=1)[0])

    @cached_property
    def _whitened(self) -> Floats:
        return np.asarray(la.blas.dtrmm(1.0, self._root, self._basis.features, lower=1))

    @cached_property
    def _leverage(self) -> Floats:  # type: ignore[override]
        return np.asarray(np.einsum("ij,ij->j", self._whitened, self._whitened))

    @property
    def log_determinant(self) -> float:
        """Log det (I + K diag(η))."""
        return 2.0 * float(np.log(np.diag(self._factor)).sum()) + float(np.log(self.precision).sum())

    def solve(self, potentials: Floats) -> Solution:
        """Means under the sites, for potentials of shape (n, k)."""
        data = potentials / self.precision[:, None]
        alpha = np.asarray(la.cho_solve((self._factor, True), data, check_finite=False))
        return Solution(alpha, data - alpha / self.precision[:, None])

    def variance(self) -> Floats:
        """Variances of f(x) under the sites: R − R C⁻¹ R; shape (n,)."""
        inverse_diagonal = np.einsum("ij,ij->j", self._root, self._root)
        return np.asarray((1.0 - inverse_diagonal / self.precision) / self.precision)

    def used(self) -> float:
        """Σ η var f(x) = tr C⁻¹ ΦWΦᵀ."""
        return float(self._process.weights @ self._leverage)

    def solve_data(self) -> DataForms:
        """Solve for the group's data; see `Conditioned.solve_data`."""
        white, _ = la.lapack.dtrtrs(self._factor, self.group.data, lower=1)
        alpha, _ = la.lapack.dtrtrs(self._factor, white, lower=1, trans=1)
        misfit = alpha.T @ (alpha / self.precision[:, None])
        return DataForms(white.T @ white, misfit, Solution(alpha, np.empty(0)))  # no means: the gradient needs none

    def _overlaps(self) -> Floats:
        return np.asarray(la.blas.dsyrk(1.0, self._whitened * np.sqrt(self._process.weights), trans=1, lower=1))


class FeatureSpace(_WeightSpace):
    """At least as many observations as eigenvectors: B = I + W^½ ΦᵀηΦ W^½, (ℓ, ℓ)."""

    def __init__(self, process: SpectralProcess, basis: GroupBasis, precision: Floats) -> None:
        super().__init__(basis.group, precision)
        self._process, self._basis = process, basis
        self._scale = np.sqrt(process.weights)
        gram = basis.gram(precision)
        self._factor: Floats | None = None  # of B, where that is not diagonal
        self._inverse_factor: Floats | None = None
        if gram.ndim == 1:
            self._diagonal = 1.0 + process.weights * gram
            self._used, self._log_determinant = 1.0 - 1.0 / self._diagonal, float(np.log(self._diagonal).sum())
        else:
            b = (self._scale[:, None] * gram) * self._scale
            b[np.diag_indices_from(b)] += 1.0
            self._factor = cholesky_or_raise(b)
            self._log_determinant = 2.0 * float(np.log(np.diag(self._factor)).sum())
            self._inverse_factor, _ = la.lapack.dtrtri(self._factor, lower=1)
            self._used = 1.0 - np.einsum("ij,ij->j", self._inverse_factor, self._inverse_factor)
        # w φᵀC⁻¹φ = 1 − B⁻¹, which is finite where w vanishes.
        positive = process.weights > 0
        limit = gram.copy() if gram.ndim == 1 else np.diag(gram).copy()
        self._leverage = np.divide(self._used, process.weights, out=limit, where=positive)

    @property
    def log_determinant(self) -> float:
        """Log det (I + K diag(η)) = log det B."""
        return self._log_determinant

    def _inner(self, projected: Floats) -> Floats:
        """B⁻¹ W^½ ΦᵀηD, given ΦᵀηD."""
        right = self._scale[:, None] * projected
        if self._factor is None:
            return np.asarray(right / self._diagonal[:, None])
        return np.asarray(la.cho_solve((self._factor, True), right, check_finite=False))

    def solve(self, potentials: Floats) -> Solution:
        """Means under the sites, for potentials of shape (n, k)."""
        features = self._basis.features
        mean = features @ (self._scale[:, None] * self._inner(features.T @ potentials))
        return Solution(potentials - self.precision[:, None] * mean, mean)

    def variance(self) -> Floats:
        """Variances of f(x) under the sites; shape (n,)."""
        scaled = self._scale[:, None] * self._basis.features.T
        if self._inverse_factor is None:
            half = scaled / np.sqrt(self._diagonal)[:, None]
        else:
            half = la.blas.dtrmm(1.0, self._inverse_factor, scaled, lower=1)
        return np.asarray(np.einsum("ij,ij->j", half, half))

    def used(self) -> float:
        """Σ η var f(x)."""
        return float(self._used.sum())

    def solve_data(self) -> DataForms:
        """Solve for the group's data; see `Conditioned.solve_data`."""
        projected, squares = self._basis.project_data(self.precision)
        inner = self._inner(projected)
        forms = squares - (self._scale[:, None] * projected).T @ inner
        # φᵀC⁻¹y = W^(−½) B⁻¹ W^½ ΦᵀR⁻¹y, which is finite where w vanishes.
        positive = (self._process.weights > 0)[:, None]
        return self._forms(forms, np.divide(inner, self._scale[:, None], out=projected.copy(), where=positive))

    def _forms(self, forms: Floats, images: Floats) -> DataForms:
        # With R = C − ΦWΦᵀ: vᵀRv = vᵀCv − Σ w (φᵀv)², v = C⁻¹y.
        misfit = forms - (images * self._process.weights[:, None]).T @ images
        return DataForms(forms, misfit, _Images(images))

    def _overlaps(self) -> Floats:
        if self._inverse_factor is None:
            return self._used
        found = -la.blas.dsyrk(1.0, self._inverse_factor, trans=1, lower=1)  # I − B⁻¹
        found[np.diag_indices_from(found)] += 1.0
        return np.asarray(found)
