"""The spectral engine: Bayesian linear regression on eigenvectors.

f = Φ c with c ~ N(0, diag w), where Φ holds eigenvectors at the nodes and w = a Ψ(Λ). Per batch of n observations with
noise ρ R₀ an evaluation costs O(n² ℓ) in function space, O(ℓ³) in feature space from the stored Gram matrix
ΦᵀR₀⁻¹Φ, whichever is less, and O(ℓ) where that matrix is the identity: every node observed once with equal noise.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import scipy.linalg as la
import torch

from graphmatern.errors import NumericalError
from graphmatern.graph._laplacian import largest_eigenvalue_bound
from graphmatern.inference._observations import Moments
from graphmatern.sparse._blas import single_threaded_blas

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from graphmatern.graph import Graph
    from graphmatern.inference._observations import Batch
    from graphmatern.kernels import BoundKernel, Kernel

    Floats = NDArray[np.float64]

_SMALL_MATRIX = 400
_STEP = 1e-4  # for derivatives of the weights in the parameters, where some digits are enough

__all__ = ["SpectralEngine", "blas_threads", "cholesky", "prior_variance_lost"]


def cholesky(matrix: Floats) -> Floats:
    """Lower Cholesky factor; the matrix is overwritten."""
    try:
        return np.asarray(la.cholesky(matrix, lower=True, overwrite_a=True, check_finite=False))
    except la.LinAlgError:
        raise NumericalError(
            "the covariance of the observations is not positive definite. Likely causes: (a) a noise variance near 0 "
            "with repeated or strongly correlated nodes: raise it; (b) parameters that are not finite."
        ) from None


class _FunctionSpace:
    """One batch with fewer observations than eigenvectors: C = Φ diag(w) Φᵀ + ρ R₀, (n, n)."""

    def __init__(self, features: Floats, batch: Batch) -> None:
        self._features = np.asfortranarray(features)
        self._noise = batch.noise
        self._data = np.hstack([batch.y, batch.design])
        self.n_replicates = batch.n_replicates

    def evaluate(self, weights: Floats, rho: float) -> _Evaluation:
        features, n = self._features, len(self._noise)
        covariance = la.blas.dsyrk(1.0, features * np.sqrt(weights), lower=1)  # only the lower triangle is used
        covariance.reshape(-1, order="F")[:: n + 1] += rho * self._noise
        factor = cholesky(covariance)
        # With L⁻¹ two products of triangles take less time than the solution of as many systems.
        root, _ = la.lapack.dtrtri(factor, lower=1)
        whitened = la.blas.dtrmm(1.0, root, features, lower=1)
        white = la.solve_triangular(factor, self._data, lower=True, check_finite=False)
        images = whitened.T @ white
        leverage = np.einsum("ij,ij->j", whitened, whitened)
        log_determinant = 2.0 * float(np.log(np.diag(factor)).sum())
        used = float(weights @ leverage)
        return _Evaluation(
            log_determinant,
            white.T @ white,
            leverage,
            images,
            n,
            used,
            lambda: la.blas.dsyrk(1.0, whitened * np.sqrt(weights), trans=1, lower=1),
        )


class _FeatureSpace:
    """One batch with at least as many observations as eigenvectors: B = I + W^½ ΦᵀR⁻¹Φ W^½, (ℓ, ℓ)."""

    def __init__(self, features: Floats, batch: Batch) -> None:
        inverse_noise = 1.0 / batch.noise
        self._gram = features.T @ (inverse_noise[:, None] * features)
        off_diagonal = np.abs(self._gram - np.diag(np.diag(self._gram))).max(initial=0.0)
        self._is_diagonal = bool(off_diagonal < 1e-12 * np.diag(self._gram).max(initial=1.0))
        data = np.hstack([batch.y, batch.design])
        self._projected = features.T @ (inverse_noise[:, None] * data)
        self._forms = data.T @ (inverse_noise[:, None] * data)
        self._log_noise = float(np.log(batch.noise).sum())
        self._n = len(batch.noise)
        self.n_replicates = batch.n_replicates

    def evaluate(self, weights: Floats, rho: float) -> _Evaluation:
        root = np.sqrt(weights)
        right = root[:, None] * self._projected
        inverse_factor: Floats | None = None
        if self._is_diagonal:
            diagonal = 1.0 + weights * np.diag(self._gram) / rho
            inverse_diagonal, log_b = 1.0 / diagonal, float(np.log(diagonal).sum())
            inner = right / diagonal[:, None]
        else:
            b = (root[:, None] * self._gram) * root / rho
            b[np.arange(len(root)), np.arange(len(root))] += 1.0
            factor = cholesky(b)
            log_b = 2.0 * float(np.log(np.diag(factor)).sum())
            inverse_factor, _ = la.lapack.dtrtri(factor, lower=1)
            inverse_diagonal = np.einsum("ij,ij->j", inverse_factor, inverse_factor)
            inner = la.cho_solve((factor, True), right, check_finite=False)
        forms = (self._forms - right.T @ inner / rho) / rho
        log_determinant = self._n * np.log(rho) + self._log_noise + log_b
        # w φᵀC⁻¹φ = 1 − B⁻¹ and φᵀC⁻¹y = W^(−½) B⁻¹ W^½ ΦᵀR⁻¹y; both are finite where w vanishes.
        used = 1.0 - inverse_diagonal
        positive = weights > 0
        leverage = np.divide(used, weights, out=np.diag(self._gram) / rho, where=positive)
        images = np.divide(inner, rho * root[:, None], out=self._projected / rho, where=positive[:, None])
        return _Evaluation(
            log_determinant,
            forms,
            leverage,
            images,
            self._n,
            float(used.sum()),
            lambda: used if inverse_factor is None else _from_identity(inverse_factor),
        )


def _from_identity(inverse_factor: Floats) -> Floats:
    """I − B⁻¹, lower triangle, given the inverse of the factor of B."""
    found = -la.blas.dsyrk(1.0, inverse_factor, trans=1, lower=1)
    found[np.arange(len(found)), np.arange(len(found))] += 1.0
    return np.asarray(found)


class _Evaluation:
    """What one batch contributes at given weights and noise."""

    def __init__(
        self,
        log_determinant: float,
        forms: Floats,
        leverage: Floats,
        images: Floats,
        n: int,
        used: float,
        overlaps: Callable[[], Floats],
    ) -> None:
        self.log_determinant = log_determinant
        self.forms = forms  # [Y H]ᵀ C⁻¹ [Y H]
        self.leverage = leverage  # diagonal of ΦᵀC⁻¹Φ
        self.images = images  # Φᵀ C⁻¹ [Y H]
        self.n = n
        self.used = used  # tr C⁻¹ ΦWΦᵀ, so that tr C⁻¹R = n − used
        self._overlaps = overlaps  # W^½ ΦᵀC⁻¹Φ W^½: its lower triangle, or its diagonal where there is nothing else

    def information(self, slopes: Floats) -> Floats:
        """Fisher information ½ tr C⁻¹∂C C⁻¹∂C of one replicate.

        Parameters
        ----------
        slopes : ndarray, shape (n_eigenpairs, k)
            Derivatives of the logarithms of the weights in k parameters.

        Returns
        -------
        ndarray, shape (k + 1, k + 1)
            The logarithm of the noise variance comes last; with R = C − ΦWΦᵀ its derivatives follow from those of W.
        """
        overlaps = self._overlaps()
        every = np.column_stack([slopes, np.ones(len(slopes))])
        if overlaps.ndim == 1:
            own, images = overlaps, overlaps[:, None] ** 2 * every
        else:
            own, images = np.diag(overlaps), la.blas.dsymm(1.0, overlaps**2, np.asfortranarray(every), lower=1)
        found = every.T @ images
        found[:, -1] = every.T @ own - found[:, -1]
        found[-1, -1] = self.n - self.used - found[-1, -1]  # of n − 2 used + 1ᵀ(overlaps²)1
        found[-1] = found[:, -1]
        return np.asarray(0.5 * found)

    def weight_gradient(self, moments: Moments, n_replicates: int) -> Floats:
        """Derivative of −log p in the weights: C changes by φφᵀ, a form by −(φᵀC⁻¹·)(φᵀC⁻¹·)."""
        r, images = n_replicates, self.images
        total = r * self.leverage - np.einsum("sk,sk->s", images[:, :r], images[:, :r])
        if len(moments.cross):
            beta, covariance = moments.solve()
            y, h = images[:, :r].sum(axis=1), images[:, r:]
            fitted = h @ beta
            total += 2.0 * y * fitted - r * fitted**2 - r * np.einsum("si,ij,sj->s", h, covariance, h)
        return np.asarray(0.5 * total)


class SpectralEngine:
    """Exact inference for any kernel through eigenpairs.

    Parameters
    ----------
    graph : Graph
        The graph.
    kernel : Kernel
        Kernel whose parameters are moved; it is changed in place.
    batches : sequence of Batch
        The observations.
    normalized : bool
        Which Laplacian.
    n_eigenpairs : int, optional
        How many eigenpairs; all by default.
    """

    name = "spectral"

    def __init__(
        self,
        graph: Graph,
        kernel: Kernel,
        batches: Sequence[Batch],
        *,
        normalized: bool,
        n_eigenpairs: int | None = None,
    ) -> None:
        self.kernel = kernel
        self.bound = kernel.on(graph, normalized, n_eigenpairs)
        basis = self.bound.spectrum._basis
        self._batches = list(batches)
        self._terms = [
            (_FunctionSpace if len(batch.nodes) < basis.shape[1] else _FeatureSpace)(basis[batch.nodes], batch)
            for batch in batches
        ]
        self._n_covariates = batches[0].design.shape[1] if batches else 0
        self._free = [parameter for parameter in kernel.parameters() if parameter.requires_grad]
        self._last: tuple[Floats, Floats, list[_Evaluation]] | None = None

    @property
    def names(self) -> list[str]:
        """Names of the free parameters of the kernel, as the optimiser sees them."""
        return [name for name, parameter in self.kernel.named_parameters() if parameter.requires_grad]

    def position(self) -> Floats:
        """Unconstrained values of the free kernel parameters; shape (n_free,)."""
        return np.array([float(parameter.detach()) for parameter in self._free])

    def move(self, position: Floats) -> None:
        """Set the free kernel parameters."""
        with torch.no_grad():
            for parameter, value in zip(self._free, position, strict=True):
                parameter.fill_(float(value))

    def evaluate(self, position: Floats, log_noise: float) -> tuple[float, Floats, float]:
        """Negative log marginal likelihood and its derivatives.

        Parameters
        ----------
        position : ndarray, shape (n_free,)
            Unconstrained kernel parameters.
        log_noise : float
            Logarithm of the noise variance.

        Returns
        -------
        value : float
        gradient : ndarray, shape (n_free,)
        in_log_noise : float
        """
        self.move(position)
        weights = self.bound.weights()
        rho, w = float(np.exp(log_noise)), weights.detach().cpu().numpy()
        moments = Moments(self._n_covariates)
        found = [term.evaluate(w, rho) for term in self._terms]
        self._last = position, w, found
        for term, one in zip(self._terms, found, strict=True):
            moments.add(one.log_determinant, one.forms, term.n_replicates, one.n)
        in_weights = np.zeros(len(w))
        in_log_noise = 0.0
        for term, one in zip(self._terms, found, strict=True):
            in_weights += one.weight_gradient(moments, term.n_replicates)
            # With R = C − ΦWΦᵀ: vᵀRv = vᵀCv − Σ w (φᵀv)², v = C⁻¹y.
            in_forms = -(one.forms - (one.images * w[:, None]).T @ one.images)
            in_log_noise += moments.derivative(one.n - one.used, in_forms, term.n_replicates)
        gradient = np.zeros(len(self._free))
        if self._free:
            pulled = torch.autograd.grad(weights, self._free, torch.as_tensor(in_weights), allow_unused=True)
            gradient = np.array([0.0 if g is None else float(g) for g in pulled])
        return moments.negative_log_likelihood(), gradient, in_log_noise

    def information(self) -> Floats:
        """Fisher information where `evaluate` was last called, which stands for the Hessian.

        Returns
        -------
        ndarray, shape (n_free + 1, n_free + 1)
            The logarithm of the noise variance comes last. That coefficients of the mean are estimated is left out.
        """
        assert self._last is not None
        position, w, found = self._last
        slopes = np.zeros((len(w), len(position)))
        for place, step in enumerate(_STEP * np.eye(len(position))):
            self.move(position + step)
            with torch.no_grad():
                moved = self.bound.weights().cpu().numpy()
            both = (w > 0) & (moved > 0)
            slopes[both, place] = np.log(moved[both] / w[both]) / _STEP
        pairs = zip(self._terms, found, strict=True)
        return np.asarray(sum(term.n_replicates * one.information(slopes) for term, one in pairs))


@contextmanager
def blas_threads(n: int) -> Iterator[None]:
    """Hold BLAS and torch at one thread for matrices of n rows and columns that are small.

    Waking others takes longer than the work, and where another program has their core, waiting for them takes longest.
    """
    if n > _SMALL_MATRIX:
        yield
        return
    usual = torch.get_num_threads()
    with single_threaded_blas():
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(usual)


def prior_variance_lost(bound: BoundKernel) -> Floats:
    """Bound on the prior variance that eigenvectors left out would add at every node; shape (n_nodes,).

    At node i it is max Ψ over the eigenvalues left out, times a (1 − Σ u_s(i)²) / m_i: the eigenvectors of all
    eigenvalues together have squared entries that add up to 1. Zero where none is left out.
    """
    spectrum = bound.spectrum
    n = spectrum.n_nodes
    if spectrum.n_eigenpairs == n:
        return np.zeros(n)
    known = spectrum._eigenvalues
    beyond = np.linspace(known[-1], largest_eigenvalue_bound(bound.graph.laplacian(spectrum.normalized)), 65)
    norms = np.append(spectrum.squared_norms, np.zeros(len(beyond)))
    with torch.no_grad():
        # Of squared norm 0, these do not change the amplitude; Ψ need not fall everywhere, so look at all of it.
        weights = bound.kernel.spectral_weights(bound._tensor(np.append(known, beyond)), bound._tensor(norms), n)
    largest = float(weights[len(known) :].max())
    inverse_mass = 1.0 if bound.graph.masses is None else 1.0 / bound.graph.masses
    covered = np.einsum("is,is->i", spectrum._basis, spectrum._basis)
    return np.asarray(largest * np.maximum(inverse_mass - covered, 0.0))
