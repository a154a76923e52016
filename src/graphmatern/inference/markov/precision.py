"""The sparse precision of Matérn processes with integer smoothness.

With M = 2ν/κ² I + Δ the process on the nodes has precision Q = A^(1/2) M^ν A^(1/2) / a (A: node masses), which is
sparse. Observations y = f(x) + ε with noise variances r add Aᵀ R⁻¹ A, a diagonal.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from math import comb
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.autograd.function import once_differentiable

from graphmatern._validation import FaultList, as_numbers, check_flag, check_positive, check_whole, warn
from graphmatern.errors import KernelError, NumericalError, NumericalWarning, TableError
from graphmatern.graph import largest_eigenvalue_bound
from graphmatern.inference.markov.autograd import sparse_logdet
from graphmatern.sparse import MatrixPolynomial

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from graphmatern.graph import Graph
    from graphmatern.sparse import Analysis

    Floats = NDArray[np.float64]

__all__ = ["MarkovPrecision", "markov_precision"]

_MANY_NODES = 50_000  # for which two threads are worth it


class _Polynomial(torch.autograd.Function):
    """Values of a matrix polynomial as a function of its coefficients."""

    @staticmethod
    def forward(ctx: Any, coefficients: torch.Tensor, polynomial: MatrixPolynomial) -> torch.Tensor:
        ctx.polynomial = polynomial
        values = polynomial.values(coefficients.detach().cpu().numpy())
        return torch.from_numpy(values).to(coefficients.device)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        pulled = ctx.polynomial.pull_back(gradient.detach().cpu().numpy())
        return torch.from_numpy(pulled).to(gradient), None


def _scalar(value: torch.Tensor | float) -> torch.Tensor:
    """Return a number as a float64 tensor of shape (); in float32, M^ν is soon not positive definite."""
    return torch.as_tensor(value).to(torch.float64).reshape(())


class MarkovPrecision:
    """Precision matrices of Matérn processes of one integer smoothness on one graph.

    The pattern is analysed once; lengthscale and amplitude change values only.

    Parameters
    ----------
    graph : Graph
        The graph.
    nu : int
        Smoothness ν, at least 1.
    normalized : bool
        Which Laplacian.
    n_threads : int, optional
        Threads that factorise; one per processor by default.
    memory_limit : float, optional
        Bytes that powers and factors may take; most of what is available by default.

    Attributes
    ----------
    polynomial : MatrixPolynomial
        Of the Laplacian, up to Δ^ν, scaled by the node masses: Q and the posterior precision.
    shifted : MatrixPolynomial
        M itself, which gives log det Q = ν log det M − N log a + Σ log m. The same object where ν = 1.
    mean_diagonal : float
        Of the Laplacian.

    Raises
    ------
    ResourceError
        Where Δ^ν or its factor would not fit; nothing was formed.

    Examples
    --------
    >>> import graphmatern as gm
    >>> from graphmatern.inference import MarkovPrecision
    >>> precision = MarkovPrecision(gm.make_roads(200), nu=2)
    >>> lower = precision.polynomial.lower(precision.coefficients(lengthscale=3.0, amplitude=1.0))
    >>> factor = precision.analysis.factorize_lower(lower)
    >>> factor.diagonal_of_inverse().shape  # prior variances
    (187,)
    """

    def __init__(
        self,
        graph: Graph,
        nu: int,
        *,
        normalized: bool = False,
        n_threads: int | None = None,
        memory_limit: float | None = None,
    ) -> None:
        faults = FaultList("no precision was made", KernelError)
        # Beyond some thousand, binomial coefficients leave the range of numbers.
        check_whole("nu", nu, faults, minimum=1, maximum=1000, remedy="Other values of ν need the spectral engine.")
        faults.raise_if_any()
        normalized = check_flag("normalized", normalized, KernelError)
        self.graph = graph
        self.nu = int(nu)
        self.normalized = normalized
        self._laplacian = graph.laplacian(normalized)
        self._root_mass = None if graph.masses is None else np.sqrt(graph.masses)
        self._largest = largest_eigenvalue_bound(self._laplacian)
        self.mean_diagonal = float(self._laplacian.diagonal().mean())
        self._n_threads, self._memory_limit = n_threads, memory_limit
        if self.nu == 1 and self._root_mass is None:
            self.polynomial = self.shifted = self._powers(1, None)
        elif graph.n_nodes < _MANY_NODES:
            self.polynomial, self.shifted = self._powers(self.nu, self._root_mass), self._powers(1, None)
        else:  # orderings take one thread each
            with ThreadPoolExecutor(1) as pool:
                shifted = pool.submit(self._powers, 1, None)
                self.polynomial = self._powers(self.nu, self._root_mass)
                self.shifted = shifted.result()

    def _powers(self, degree: int, scaling: Floats | None) -> MatrixPolynomial:
        return MatrixPolynomial(
            self._laplacian,
            degree,
            scaling=scaling,
            n_threads=self._n_threads,
            memory_limit=self._memory_limit,
            check=False,  # a graph's Laplacian is what it must be
        )

    def next_polynomial(self) -> MatrixPolynomial:
        """Polynomials of the Laplacian up to Δ^(ν+1), scaled by the node masses like `polynomial`."""
        return self._powers(self.nu + 1, self._root_mass)

    @property
    def analysis(self) -> Analysis:
        """Analysis of the pattern of Q and of posterior precisions."""
        return self.polynomial.analysis

    def shift(self, lengthscale: float) -> float:
        """2ν/κ²."""
        return 2.0 * self.nu / lengthscale**2

    def coefficients(self, lengthscale: float, amplitude: float) -> Floats:
        """Coefficients of Q = M^ν / a in powers of Δ; shape (ν + 1,)."""
        faults = FaultList("no precision was made", KernelError)
        check_positive("lengthscale", lengthscale, faults, remedy="Lengthscales are positive.")
        check_positive("amplitude", amplitude, faults, remedy="Amplitudes are positive.")
        faults.raise_if_any()
        c, nu = self.shift(lengthscale), self.nu
        with np.errstate(over="ignore"):
            found = np.array([comb(nu, j) for j in range(nu + 1)]) * c ** np.arange(nu, -1.0, -1.0) / amplitude
        if not np.isfinite(found).all():
            raise NumericalError(
                f"the precision of a Matérn process with ν = {nu}, κ = {lengthscale:.4g} and amplitude {amplitude:.4g} "
                "overflows. Likely causes: (a) a lengthscale near 0: raise it, or use the "
                "spectral engine; (b) a variance near 0."
            )
        return np.asarray(found)

    def relative_error(self, lengthscale: float) -> float:
        """Estimated relative error of what is computed from Q: rounding times the condition number of M^ν."""
        return float(np.finfo(float).eps * (1.0 + self._largest / self.shift(lengthscale)) ** self.nu)

    def longest_lengthscale(self, relative_error: float = 1e-3) -> float:
        """Lengthscale at which `relative_error` is reached; beyond it, rounding takes over."""
        ratio = (relative_error / np.finfo(float).eps) ** (1.0 / self.nu)
        return float(np.sqrt(2.0 * self.nu * ratio / self._largest)) if self._largest > 0 else np.inf

    def warn_if_inaccurate(self, lengthscale: float) -> None:
        """Warn where the estimated relative error exceeds 1e-6, with the estimate."""
        error = self.relative_error(lengthscale)
        if error > 1e-6:
            warn(
                f"the precision of a Matérn process with ν = {self.nu}, κ = {lengthscale:.4g} is ill-conditioned on "
                f"this graph: results have an estimated relative error of {error:.0e}. Use a smaller ν, or the "
                "spectral engine",
                NumericalWarning,
            )

    def values(self, lengthscale: torch.Tensor, amplitude: torch.Tensor) -> torch.Tensor:
        """Values of Q on ``analysis.pattern``, differentiable in both; shape (nnz,).

        Parameters
        ----------
        lengthscale, amplitude : Tensor, shape ()
            κ and a.
        """
        lengthscale, amplitude = _scalar(lengthscale), _scalar(amplitude)
        self.coefficients(lengthscale.item(), amplitude.item())  # raises where they make no sense
        c, nu = 2.0 * self.nu / lengthscale**2, self.nu
        coefficients = torch.stack([comb(nu, j) * c ** (nu - j) / amplitude for j in range(nu + 1)])
        result: torch.Tensor = _Polynomial.apply(coefficients, self.polynomial)  # type: ignore[no-untyped-call]
        return result

    def shifted_values(self, lengthscale: torch.Tensor) -> torch.Tensor:
        """Values of M on ``shifted.analysis.pattern``, differentiable in κ; shape (nnz,)."""
        shift = 2.0 * self.nu / _scalar(lengthscale) ** 2
        coefficients = torch.stack([shift, torch.ones_like(shift)])
        result: torch.Tensor = _Polynomial.apply(coefficients, self.shifted)  # type: ignore[no-untyped-call]
        return result

    def logdet(self, lengthscale: torch.Tensor, amplitude: torch.Tensor) -> torch.Tensor:
        """Log det Q = ν log det M − N log a + Σ log m, differentiable in κ and a; shape ()."""
        mass = 0.0 if self.graph.masses is None else float(np.log(self.graph.masses).sum())
        lengthscale, amplitude = _scalar(lengthscale), _scalar(amplitude)
        self.coefficients(lengthscale.item(), amplitude.item())  # raises where they make no sense
        own = self.nu * sparse_logdet(self.shifted_values(lengthscale), self.shifted.analysis)
        return own - self.graph.n_nodes * torch.log(amplitude) + mass

    def observed(self, nodes: ArrayLike, noise: ArrayLike) -> Floats:
        """Diagonal of Aᵀ R⁻¹ A: what observations add to the precision of their nodes.

        Parameters
        ----------
        nodes : array_like of int, shape (n_observations,)
            Positions of the observed nodes (`Graph.locate`); repeats add up.
        noise : array_like, shape () or (n_observations,)
            Noise variances, above 0.

        Returns
        -------
        ndarray, shape (n_nodes,)
        """
        faults = FaultList("no posterior precision", TableError)
        variance = as_numbers(noise, "noise", faults, minimum=0.0, above=True, remedy="Noise variances are positive.")
        faults.raise_if_any()
        positions = np.asarray(nodes)
        n = self.graph.n_nodes
        inside = positions.dtype.kind in "iu" and bool(((positions >= 0) & (positions < n)).all())
        if positions.size and not (inside and positions.ndim == 1):
            rule = f"must be positions of nodes, whole numbers from 0 to {n - 1}"
            faults.add("nodes", rule, f"type {positions.dtype}, shape {positions.shape}", "Use `graph.locate(names)`.")
        if variance.shape not in ((), positions.shape):
            received = f"shape {variance.shape} for {positions.shape[0]} observations"
            faults.add("noise", "must be one number, or one for each observation", received, "Check the lengths.")
        faults.raise_if_any()
        positions = positions.astype(np.int64)
        added = np.zeros(n)
        np.add.at(added, positions, np.broadcast_to(1.0 / variance, positions.shape))
        return added

    def with_observations(self, values: torch.Tensor, added: torch.Tensor) -> torch.Tensor:
        """Values of Q + diag(added), differentiable in both; shape (nnz,)."""
        positions = torch.as_tensor(self.analysis.diagonal_positions.astype(np.int64))
        return values.index_add(0, positions, added.to(values))

    @cached_property
    def rank(self) -> NDArray[np.int64]:
        """Place of every node in the order of the factor; shape (n_nodes,)."""
        place = np.empty(self.graph.n_nodes, np.int64)
        place[self.analysis.permutation] = np.arange(len(place))
        return place

    def quadratic_form_matrices(self, f: Floats, shift: float, *, ordered: bool = False) -> tuple[Floats, Floats]:
        """fᵀ A^(1/2) M^k A^(1/2) f for k = ν − 1 and ν, by products with Δ.

        Parameters
        ----------
        f : ndarray, shape (n_nodes, k)
            Functions on the nodes.
        shift : float
            2ν/κ².
        ordered : bool
            Whether the rows of ``f`` are in the order of the factor.

        Returns
        -------
        lower, own : ndarray, shape (k, k)
        """
        if ordered and self.nu == 1:
            lower, mixed = self.polynomial.forms(f)
            return lower, mixed + shift * lower
        f = f[self.rank] if ordered else f
        images = [f if self._root_mass is None else self._root_mass[:, None] * f]
        while 2 * (len(images) - 1) < self.nu:
            images.append(self._laplacian @ images[-1] + shift * images[-1])
        lower, own = (_products(images[k // 2], images[k - k // 2]) for k in (self.nu - 1, self.nu))
        return lower, own


def _products(a: Floats, b: Floats) -> Floats:
    """AᵀB; BLAS is many times slower for single columns, for which it wakes its threads."""
    return np.asarray(a.T @ b) if a.shape[1] > 1 else np.einsum("ij,ik->jk", a, b)


def markov_precision(graph: Graph, nu: int, *, normalized: bool, n_threads: int | None = None) -> MarkovPrecision:
    """Return the `MarkovPrecision`, made once and kept with the graph."""
    key = ("precision", nu, normalized, n_threads)
    return graph.cached(key, lambda: MarkovPrecision(graph, nu, normalized=normalized, n_threads=n_threads))
