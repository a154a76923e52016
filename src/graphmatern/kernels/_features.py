"""Kernels on features X of the nodes, smoothed over the graph by a learned filter.

With z = Φ(Δ) X the smoothed features, every form here is a function of the inner products zᵀz′ alone, so whoever has
these (`graphmatern.inference.features`) has the kernel, and its derivative in the filter's lengthscale.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from graphmatern._parameters import Parameter, Parameterized, positive
from graphmatern._validation import FaultList, note_choice
from graphmatern.errors import KernelError
from graphmatern.kernels._base import Kernel, SumKernel

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["CosineFeatures", "FeatureKernel", "Interaction", "LinearFeatures", "RBFFeatures", "kernel_terms"]

_FILTERS = ("matern", "diffusion", "none")
_NOTHING = 1e-24  # a squared norm, relative to the average one, at which there are no features


class _WithFeatures(Parameterized, Kernel):
    """A kernel that is no function of the Laplacian alone."""

    variance = Parameter(positive)
    _error = KernelError

    @property
    def requires_normalized(self) -> bool:
        """Whether the kernel is defined for the normalised Laplacian only: no."""
        return False

    @property
    def uses_features(self) -> bool:
        """Whether the kernel needs features of the nodes: yes."""
        return True

    def spectral_weights(self, eigenvalues: torch.Tensor, squared_norms: torch.Tensor, n_nodes: int) -> torch.Tensor:
        """Raise: there are none."""
        del eigenvalues, squared_norms, n_nodes
        faults = FaultList(f"{type(self).__name__} is no function of the Laplacian", KernelError)
        remedy = "Give `features` to GraphGPRegressor or GraphGPClassifier, and leave the engine to them."
        raise faults.raise_now("features", "must be given", "none", remedy)

    def _check_laplacian(self, *, normalized: bool, faults: FaultList) -> None:
        """Both Laplacians can smooth."""


class FeatureKernel(_WithFeatures):
    """What kernels on smoothed features have in common: the filter; `between` is the one formula of each.

    Parameters
    ----------
    smoothing : float
        Lengthscale κ > 0 of the filter: features are averaged over about this many edges.
    variance : float
        Prior variance σ² > 0.
    filter : {"matern", "diffusion", "none"}
        Φ(λ) = (1 + κ²λ/2)⁻¹, exp(−κ²λ/2), or 1: the Matérn filter of smoothness 1 keeps more of a node's own features
        and reaches farther.
    fixed : iterable of str
        Parameters that are held fixed while the others are learned.
    """

    smoothing = Parameter(positive)
    _settings: ClassVar[tuple[str, ...]] = ("filter",)

    def __init__(
        self,
        smoothing: float = 2.0,
        variance: float = 1.0,
        filter: str = "matern",  # noqa: A002
        fixed: Iterable[str] = (),
    ) -> None:
        self._begin(filter, fixed, smoothing=smoothing, variance=variance)

    def _begin(self, kind: str, fixed: Iterable[str], **values: float) -> None:
        """Set the filter and all parameters; without a filter its lengthscale means nothing."""
        self.__dict__["_filter"] = kind
        held = {fixed} if isinstance(fixed, str) else set(fixed or ())
        super().__init__(fixed=held | {"smoothing"} if kind == "none" else held, **values)

    @property
    def filter(self) -> str:
        """Which function of the Laplacian smooths the features."""
        return str(self.__dict__["_filter"])

    def _check_settings(self, numbers: dict[str, float], faults: FaultList) -> None:
        del numbers
        note_choice("filter", self.__dict__["_filter"], _FILTERS, faults)

    def phi(self, eigenvalues: torch.Tensor, smoothing: float | None = None) -> torch.Tensor:
        """Φ(λ), 1 at λ = 0, for the kernel's own lengthscale or another; shape as ``eigenvalues``."""
        if self.filter == "none":
            return torch.ones_like(eigenvalues)
        exponent = 0.5 * (self.smoothing if smoothing is None else smoothing) ** 2 * eigenvalues
        return 1.0 / (1.0 + exponent) if self.filter == "matern" else torch.exp(-exponent)

    @abstractmethod
    def between(self, inner: torch.Tensor, left: torch.Tensor, right: torch.Tensor, spread: float) -> torch.Tensor:
        """The kernel at variance 1, from inner products.

        Parameters
        ----------
        inner : Tensor, shape (n, m)
            zᵀz′.
        left, right : Tensor, shapes (n,) and (m,)
            Squared norms zᵀz of both sides.
        spread : float
            Average squared norm of the features before smoothing, around their mean where the form takes differences.

        Returns
        -------
        Tensor, shape (n, m)
        """

    @abstractmethod
    def at(self, norms: torch.Tensor, spread: float) -> torch.Tensor:
        """The same at a node with itself, from squared norms; shape (n,)."""

    @property
    def takes_differences(self) -> bool:
        """Whether only differences of features matter."""
        return False


class LinearFeatures(FeatureKernel):
    """Linear in the smoothed features: σ² zᵀz′, relative to the average squared norm of the features.

    Parameters
    ----------
    smoothing : float
        Lengthscale κ > 0 of the filter: features are averaged over about this many edges.
    variance : float
        Prior variance σ² > 0 of a node whose smoothed features have the average size of features.
    filter : {"matern", "diffusion", "none"}
        Φ(λ) = (1 + κ²λ/2)⁻¹, exp(−κ²λ/2), or 1.
    fixed : iterable of str
        Parameters that are held fixed while the others are learned.

    Examples
    --------
    >>> import graphmatern as gm
    >>> gm.LinearFeatures(filter="none")
    LinearFeatures(filter='none', smoothing=2, variance=1, fixed=('smoothing',))
    """

    def between(self, inner: torch.Tensor, left: torch.Tensor, right: torch.Tensor, spread: float) -> torch.Tensor:
        """zᵀz′, relative; see `FeatureKernel.between`."""
        del left, right
        return inner / spread

    def at(self, norms: torch.Tensor, spread: float) -> torch.Tensor:
        """zᵀz, relative; shape (n,)."""
        return norms / spread


class CosineFeatures(FeatureKernel):
    """Cosine of the angle between smoothed features, σ² zᵀz′ / (‖z‖ ‖z′‖): for words and other counts.

    Parameters
    ----------
    smoothing : float
        Lengthscale κ > 0 of the filter: features are averaged over about this many edges.
    variance : float
        Prior variance σ² > 0.
    filter : {"matern", "diffusion", "none"}
        Φ(λ) = (1 + κ²λ/2)⁻¹, exp(−κ²λ/2), or 1.
    fixed : iterable of str
        Parameters that are held fixed while the others are learned.

    Notes
    -----
    Nodes without any features, smoothed or not, have covariance 0 with all others.

    Examples
    --------
    >>> import graphmatern as gm
    >>> gm.CosineFeatures(smoothing=3.0, fixed="smoothing")
    CosineFeatures(filter='matern', smoothing=3, variance=1, fixed=('smoothing',))
    """

    def between(self, inner: torch.Tensor, left: torch.Tensor, right: torch.Tensor, spread: float) -> torch.Tensor:
        """zᵀz′ / (‖z‖ ‖z′‖); see `FeatureKernel.between`."""
        return inner * _inverse_root(left, spread)[:, None] * _inverse_root(right, spread)

    def at(self, norms: torch.Tensor, spread: float) -> torch.Tensor:
        """1, or 0 without features; shape (n,)."""
        return (norms > _NOTHING * spread).to(norms.dtype)


def _inverse_root(norms: torch.Tensor, spread: float) -> torch.Tensor:
    """1 / ‖z‖, 0 without features; differentiable."""
    there = norms > _NOTHING * spread
    return torch.where(there, torch.where(there, norms, 1.0).rsqrt(), 0.0)


class RBFFeatures(FeatureKernel):
    """Falls with the distance between smoothed features, σ² exp(−‖z − z′‖² / (2 b² s)): for any smooth effect.

    Parameters
    ----------
    smoothing : float
        Lengthscale κ > 0 of the filter: features are averaged over about this many edges.
    bandwidth : float
        b > 0: distance between features over which covariances fall, relative to √s, with s the average squared
        distance of features from their mean, before smoothing.
    variance : float
        Prior variance σ² > 0.
    filter : {"matern", "diffusion", "none"}
        Φ(λ) = (1 + κ²λ/2)⁻¹, exp(−κ²λ/2), or 1.
    fixed : iterable of str
        Parameters that are held fixed while the others are learned.

    Examples
    --------
    >>> import graphmatern as gm
    >>> gm.RBFFeatures(bandwidth=0.5).values()
    {'bandwidth': 0.5, 'smoothing': 2.0, 'variance': 1.0}
    """

    bandwidth = Parameter(positive)

    def __init__(
        self,
        smoothing: float = 2.0,
        bandwidth: float = 1.0,
        variance: float = 1.0,
        filter: str = "matern",  # noqa: A002
        fixed: Iterable[str] = (),
    ) -> None:
        self._begin(filter, fixed, smoothing=smoothing, bandwidth=bandwidth, variance=variance)

    @property
    def takes_differences(self) -> bool:
        """Whether only differences of features matter: yes."""
        return True

    def between(self, inner: torch.Tensor, left: torch.Tensor, right: torch.Tensor, spread: float) -> torch.Tensor:
        """exp(−‖z − z′‖² / (2 b² s)); see `FeatureKernel.between`."""
        squared = (left[:, None] + right - 2.0 * inner).clamp_min(0.0)
        return torch.exp(-0.5 * squared / (self.bandwidth**2 * spread))

    def at(self, norms: torch.Tensor, spread: float) -> torch.Tensor:
        """1; shape (n,)."""
        del spread
        return torch.ones_like(norms)


class Interaction(_WithFeatures):
    """The product of the graph's and the features' kernels in the same sum: effects of features vary over the graph.

    With k_g and k_f the other terms of the sum at variance 1, its covariance is σ² k_g k_f; it shares their parameters.

    Parameters
    ----------
    variance : float
        Prior variance σ² > 0.
    fixed : iterable of str
        ``("variance",)`` holds it fixed.

    Examples
    --------
    >>> import graphmatern as gm
    >>> gm.Matern(lengthscale=5.0) + gm.RBFFeatures() + gm.Interaction(variance=0.5)  # doctest: +ELLIPSIS
    Matern(nu=1.5, lengthscale=5, variance=1) + RBFFeatures(...) + Interaction(variance=0.5)
    """

    def __init__(self, variance: float = 1.0, fixed: Iterable[str] = ()) -> None:
        super().__init__(variance=variance, fixed=fixed)


def kernel_terms(kernel: Kernel) -> tuple[list[Kernel], list[FeatureKernel], list[Interaction]]:
    """Terms of a kernel: those on the graph, those on features, and interactions; raises where they make no sense.

    Parameters
    ----------
    kernel : Kernel
        A sum, or a single term.
    """
    every: list[Any] = kernel.terms if isinstance(kernel, SumKernel) else [kernel]
    interactions = [one for one in every if isinstance(one, Interaction)]
    features = [one for one in every if isinstance(one, FeatureKernel)]
    graph = [one for one in every if not isinstance(one, _WithFeatures)]
    faults = FaultList("nothing was fitted", KernelError)
    if any(one.uses_features for one in graph):
        faults.add("kernel", "must not scale kernels on features", repr(kernel), "Set their variance instead.")
    if len(interactions) > 1 or (interactions and not (graph and features)):
        rule = "must have at most one gm.Interaction, with a kernel on the graph and one on features"
        faults.add("kernel", rule, repr(kernel), "For instance gm.Matern() + gm.CosineFeatures() + gm.Interaction().")
    if any(one.intrinsic for one in graph):
        rule = "must not be scaled component by component if there are features"
        faults.add("kernel", rule, repr(kernel), "Use gm.Leroux or gm.Matern in its place.")
    faults.raise_if_any()
    return graph, features, interactions
