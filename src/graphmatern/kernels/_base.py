"""What every kernel can do; a kernel itself is a few parameters and one formula."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Self

import torch

from graphmatern._parameters import Parameter, Parameterized, positive
from graphmatern._validation import FaultList, abbreviate, check_flag, check_positive, described
from graphmatern.errors import KernelError

if TYPE_CHECKING:
    from graphmatern.graph import Graph, Spectrum
    from graphmatern.kernels._bound import BoundKernel

__all__ = ["Kernel", "ScaledKernel", "SpectralKernel", "SumKernel", "hold_variance"]


class Kernel(torch.nn.Module, ABC):
    """A covariance function on the nodes of any graph.

    A kernel is independent of a graph; `on` binds it to one. Kernels can be added, and multiplied by positive numbers.
    """

    @property
    @abstractmethod
    def requires_normalized(self) -> bool:
        """Whether the kernel is defined for the normalised Laplacian only."""

    @property
    def requires_plain(self) -> bool:
        """Whether the kernel is defined for the plain Laplacian only."""
        return False

    @property
    def intrinsic(self) -> bool:
        """Whether the kernel is scaled component by component, so that it is not a function of the Laplacian alone."""
        return False

    @property
    def uses_features(self) -> bool:
        """Whether the kernel needs features of the nodes."""
        return False

    @abstractmethod
    def spectral_weights(self, eigenvalues: torch.Tensor, squared_norms: torch.Tensor, n_nodes: int) -> torch.Tensor:
        """Variances a Ψ(λ) of the coefficients on the eigenvectors.

        Parameters
        ----------
        eigenvalues : Tensor, shape (n_eigenpairs,)
            Eigenvalues of a Laplacian.
        squared_norms : Tensor, shape (n_eigenpairs,)
            Squared norms of the eigenvectors on the nodes (`Spectrum.squared_norms`).
        n_nodes : int
            Number of nodes.

        Returns
        -------
        Tensor, shape (n_eigenpairs,)
            Scaled so that the prior variance, averaged over the nodes, is `variance`. Parameters that hold a batch of
            values, shape (..., 1), give shape (..., n_eigenpairs).
        """

    def forward(self, eigenvalues: torch.Tensor, squared_norms: torch.Tensor, n_nodes: int) -> torch.Tensor:
        """Same as `spectral_weights`: a module that is called, as ``torch.func.functional_call`` wants it."""
        return self.spectral_weights(eigenvalues, squared_norms, n_nodes)

    @abstractmethod
    def _check_laplacian(self, *, normalized: bool, faults: FaultList) -> None:
        """Note a fault where the kernel cannot be used with this Laplacian."""

    def check_laplacian(self, normalized: bool) -> None:
        """Raise where the kernel cannot be used with this Laplacian."""
        faults = FaultList(f"{type(self).__name__} was not bound to the graph", KernelError)
        self._check_laplacian(normalized=normalized, faults=faults)
        faults.raise_if_any()

    def on(self, graph: Graph, normalized: bool | None = None, n_eigenpairs: int | None = None) -> BoundKernel:
        """Bind the kernel to a graph.

        Parameters
        ----------
        graph : Graph
            The graph.
        normalized : bool, optional
            Which Laplacian; by default the normalised one only if the kernel requires it.
        n_eigenpairs : int, optional
            Number of smallest eigenpairs to use; all by default, which is exact.

        Returns
        -------
        BoundKernel

        Examples
        --------
        >>> import graphmatern as gm
        >>> graph = gm.Graph.from_edges([("a", "b"), ("b", "c")])
        >>> gm.Matern(nu=1.5, lengthscale=2.0).on(graph).matrix(["a"], ["a", "c"]).detach()
        tensor([[1.0698, 0.4554]], dtype=torch.float64)
        """
        from graphmatern.kernels._bound import BoundKernel

        normalized = self.choose_laplacian(graph, normalized)
        return BoundKernel(self, graph, self.spectrum_on(graph, n_eigenpairs, normalized))

    def spectrum_on(self, graph: Graph, n_eigenpairs: int | None, normalized: bool) -> Spectrum:
        """Eigenpairs on which `spectral_weights` is defined; by default those of the Laplacian."""
        return graph.spectrum(n_eigenpairs, normalized)

    def choose_laplacian(self, graph: Graph, normalized: bool | None) -> bool:
        """Whether the kernel goes with the normalised Laplacian of a graph; raises where it cannot be used with it."""
        from graphmatern.graph import Graph

        faults = FaultList(f"{type(self).__name__} was not bound to the graph", KernelError)
        if not isinstance(graph, Graph):
            remedy = "Make one with gm.Graph.from_edges, from_networkx or another constructor."
            raise faults.raise_now("graph", "must be a graphmatern Graph", described(graph), remedy)
        if normalized is None:
            normalized = self.requires_normalized
        normalized = check_flag("normalized", normalized, KernelError)
        self.check_laplacian(normalized)
        return normalized

    def __add__(self, other: object) -> SumKernel:
        if not isinstance(other, Kernel):
            return NotImplemented
        return SumKernel(self, other)

    def __radd__(self, other: object) -> Kernel:
        # Where sum() begins.
        return self if isinstance(other, int) and other == 0 else NotImplemented

    def __mul__(self, factor: object) -> ScaledKernel:
        if isinstance(factor, Kernel):
            return NotImplemented
        return ScaledKernel(self, factor)  # type: ignore[arg-type]

    __rmul__ = __mul__

    def __sklearn_clone__(self) -> Self:
        return copy.deepcopy(self)


class SpectralKernel(Parameterized, Kernel):
    """A kernel a Ψ(Δ) given by one nonnegative function Ψ of an eigenvalue.

    Subclasses declare their parameters as class attributes and define `log_psi`, or `psi` if Ψ may be 0.

    Attributes
    ----------
    variance : Tensor
        Prior variance of the process, averaged over the nodes of the graph it is bound to.
    """

    variance = Parameter(positive)
    _error = KernelError

    @property
    def requires_normalized(self) -> bool:
        """Whether the kernel is defined for the normalised Laplacian only."""
        return False

    def log_psi(self, eigenvalues: torch.Tensor) -> torch.Tensor:
        """Log Ψ(λ); shape as ``eigenvalues``."""
        return torch.log(self.psi(eigenvalues))

    def psi(self, eigenvalues: torch.Tensor) -> torch.Tensor:
        """Ψ(λ); shape as ``eigenvalues``."""
        return torch.exp(self.log_psi(eigenvalues))

    def _relative_psi(self, eigenvalues: torch.Tensor) -> torch.Tensor:
        """Ψ up to a constant factor, computed so that it neither overflows nor vanishes everywhere."""
        log_psi = self.log_psi(eigenvalues)
        return torch.exp(log_psi - log_psi.amax(dim=-1, keepdim=True).detach())

    def spectral_weights(self, eigenvalues: torch.Tensor, squared_norms: torch.Tensor, n_nodes: int) -> torch.Tensor:
        """Variances a Ψ(λ) of the coefficients on the eigenvectors; see `Kernel.spectral_weights`."""
        shape = self._relative_psi(eigenvalues)
        # a = σ² N / tr K₁: the average prior variance over the nodes is σ².
        return self.variance * (n_nodes / (shape @ squared_norms)[..., None]) * shape

    def _check_laplacian(self, *, normalized: bool, faults: FaultList) -> None:
        if self.requires_normalized and not normalized:
            rule = f"must be True for {type(self).__name__}, which needs eigenvalues in [0, 2]"
            faults.add("normalized", rule, "False", "Leave it out, or use Matern or Diffusion.")


class SumKernel(Kernel):
    """The sum of two or more kernels: the covariance of a sum of independent processes.

    Parameters
    ----------
    *kernels : Kernel
        The terms.

    Examples
    --------
    >>> import graphmatern as gm
    >>> gm.Matern(lengthscale=10.0) + 0.5 * gm.Diffusion(lengthscale=1.0)
    Matern(nu=1.5, lengthscale=10, variance=1) + 0.5 * Diffusion(lengthscale=1, variance=1)
    """

    def __init__(self, *kernels: Kernel) -> None:
        super().__init__()
        faults = FaultList("no sum was made", KernelError)
        if not kernels or not all(isinstance(kernel, Kernel) for kernel in kernels):
            received = abbreviate(type(kernel).__name__ for kernel in kernels) or "none"
            raise faults.raise_now("kernels", "must be one or more kernels", received, "Add kernels only.")
        flat: list[Kernel] = []
        for kernel in kernels:
            flat.extend(kernel.terms if isinstance(kernel, SumKernel) else [kernel])
        if len({kernel.intrinsic for kernel in flat}) > 1:
            received = abbreviate(type(kernel).__name__ for kernel in flat)
            rule = "must not join ICAR or BYM2, which are scaled component by component, with other kernels"
            raise faults.raise_now("kernels", rule, received, "Use Leroux or Matern in their place.")
        self._terms = torch.nn.ModuleList(flat)

    def __repr__(self) -> str:
        return " + ".join(repr(term) for term in self.terms)

    @property
    def terms(self) -> list[Kernel]:
        """The kernels that are added."""
        return list(self._terms)  # type: ignore[arg-type]

    @property
    def requires_normalized(self) -> bool:
        """Whether one of the terms needs the normalised Laplacian."""
        return any(term.requires_normalized for term in self.terms)

    @property
    def requires_plain(self) -> bool:
        """Whether one of the terms needs the plain Laplacian."""
        return any(term.requires_plain for term in self.terms)

    @property
    def intrinsic(self) -> bool:
        """Whether the terms are scaled component by component."""
        return self.terms[0].intrinsic

    @property
    def uses_features(self) -> bool:
        """Whether one of the terms needs features."""
        return any(term.uses_features for term in self.terms)

    def spectrum_on(self, graph: Graph, n_eigenpairs: int | None, normalized: bool) -> Spectrum:
        """Eigenpairs on which all terms are defined."""
        return self.terms[0].spectrum_on(graph, n_eigenpairs, normalized)

    def spectral_weights(self, eigenvalues: torch.Tensor, squared_norms: torch.Tensor, n_nodes: int) -> torch.Tensor:
        """Sum of the terms' weights; see `Kernel.spectral_weights`."""
        weights = [term.spectral_weights(eigenvalues, squared_norms, n_nodes) for term in self.terms]
        return torch.stack(torch.broadcast_tensors(*weights)).sum(dim=0)  # type: ignore[no-untyped-call]

    def _check_laplacian(self, *, normalized: bool, faults: FaultList) -> None:
        for term in self.terms:
            term._check_laplacian(normalized=normalized, faults=faults)


class ScaledKernel(Kernel):
    """A kernel times a positive number.

    Parameters
    ----------
    kernel : Kernel
        The kernel.
    factor : float
        The number; it is not learned (the kernel's variance is).

    Examples
    --------
    >>> import graphmatern as gm
    >>> graph = gm.Graph.from_edges([("a", "b")])
    >>> (4.0 * gm.Diffusion()).on(graph).diag().detach().numpy().round(6)
    array([4., 4.])
    """

    def __init__(self, kernel: Kernel, factor: float) -> None:
        super().__init__()
        faults = FaultList("no scaled kernel was made", KernelError)
        check_positive("factor", factor, faults, remedy="Multiply kernels by positive numbers.")
        if not isinstance(kernel, Kernel):
            faults.add("kernel", "must be a kernel", f"a {type(kernel).__name__}", "Multiply a kernel by a number.")
        faults.raise_if_any()
        self.factor = float(factor)
        self.kernel = kernel

    def __repr__(self) -> str:
        inner = f"({self.kernel!r})" if isinstance(self.kernel, SumKernel) else repr(self.kernel)
        return f"{self.factor:.6g} * {inner}"

    @property
    def requires_normalized(self) -> bool:
        """Whether the kernel needs the normalised Laplacian."""
        return self.kernel.requires_normalized

    @property
    def requires_plain(self) -> bool:
        """Whether the kernel needs the plain Laplacian."""
        return self.kernel.requires_plain

    @property
    def intrinsic(self) -> bool:
        """Whether the kernel is scaled component by component."""
        return self.kernel.intrinsic

    @property
    def uses_features(self) -> bool:
        """Whether the kernel needs features."""
        return self.kernel.uses_features

    def spectrum_on(self, graph: Graph, n_eigenpairs: int | None, normalized: bool) -> Spectrum:
        """Eigenpairs on which the kernel is defined."""
        return self.kernel.spectrum_on(graph, n_eigenpairs, normalized)

    def spectral_weights(self, eigenvalues: torch.Tensor, squared_norms: torch.Tensor, n_nodes: int) -> torch.Tensor:
        """Return the kernel's weights times the factor; see `Kernel.spectral_weights`."""
        return self.factor * self.kernel.spectral_weights(eigenvalues, squared_norms, n_nodes)

    def _check_laplacian(self, *, normalized: bool, faults: FaultList) -> None:
        self.kernel._check_laplacian(normalized=normalized, faults=faults)


def hold_variance(kernel: Kernel) -> None:
    """Fix the variance of a kernel (of its first term if it is a sum), for likelihoods that do not depend on it."""
    term = kernel.terms[0] if isinstance(kernel, SumKernel) else kernel
    raw = getattr(term, "raw_variance", None)
    if raw is not None:
        raw.requires_grad_(False)
