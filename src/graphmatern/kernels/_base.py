"""What every kernel can do; a kernel itself is a few parameters and one formula."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import torch

from graphmatern._validation import FaultList, abbreviate, check_flag, check_positive
from graphmatern.errors import KernelError
from graphmatern.kernels._parameters import KernelParameter, positive

if TYPE_CHECKING:
    from collections.abc import Iterable

    from graphmatern.graph import Graph
    from graphmatern.kernels._bound import BoundKernel

__all__ = ["Kernel", "ScaledKernel", "SpectralKernel", "SumKernel"]


class Kernel(torch.nn.Module, ABC):
    """A covariance function on the nodes of any graph.

    A kernel knows no graph; `on` binds it to one. Kernels can be added, and multiplied by positive numbers.
    """

    @property
    @abstractmethod
    def requires_normalized(self) -> bool:
        """Whether the kernel is defined for the normalised Laplacian only."""

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
            Scaled so that the prior variance, averaged over the nodes, is `variance`.
        """

    @abstractmethod
    def _check_laplacian(self, *, normalized: bool, faults: FaultList) -> None:
        """Note a fault where the kernel cannot be used with this Laplacian."""

    def on(self, graph: Graph, normalized: bool | None = None, n_eigenpairs: int | None = None) -> BoundKernel:
        """Bind the kernel to a graph.

        Parameters
        ----------
        graph : Graph
            The graph.
        normalized : bool, optional
            Which Laplacian; by default the normalised one only where the kernel requires it.
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
        from graphmatern.graph import Graph
        from graphmatern.kernels._bound import BoundKernel

        faults = FaultList(f"{type(self).__name__} was not bound to the graph", KernelError)
        if not isinstance(graph, Graph):
            remedy = "Make one with gm.Graph.from_edges, from_networkx or another constructor."
            raise faults.raise_now("graph", "must be a graphmatern Graph", f"a {type(graph).__name__}", remedy)
        if normalized is None:
            normalized = self.requires_normalized
        normalized = check_flag("normalized", normalized, KernelError)
        self._check_laplacian(normalized=normalized, faults=faults)
        faults.raise_if_any()
        return BoundKernel(self, graph, graph.spectrum(n_eigenpairs, normalized))

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


class SpectralKernel(Kernel):
    """A kernel a Ψ(Δ) given by one nonnegative function Ψ of an eigenvalue.

    Subclasses declare their parameters as class attributes and define `log_psi`, or `psi` where Ψ may be 0.

    Attributes
    ----------
    variance : Tensor
        Prior variance of the process, averaged over the nodes of the graph it is bound to.
    """

    variance = KernelParameter(positive)
    _settings: ClassVar[tuple[str, ...]] = ()  # constructor arguments that are not learnable

    def __init__(self, *, fixed: Iterable[str], **values: float) -> None:
        super().__init__()
        faults = FaultList(f"no {type(self).__name__} was made", KernelError)
        held = self._held(fixed, faults)
        numbers = {name: self._number(self._parameter(name), value, faults) for name, value in values.items()}
        self._check_settings(numbers, faults)
        faults.raise_if_any()
        for name, number in numbers.items():
            self._parameter(name).create(self, number, fixed=name in held)

    @classmethod
    def _held(cls, fixed: Any, faults: FaultList) -> set[str]:
        """Names of parameters to hold; others are noted."""
        try:
            held = {fixed} if isinstance(fixed, str) else set(fixed or ())
        except TypeError:
            held = {repr(fixed)}
        unknown = held - set(cls.parameter_names())
        if unknown:
            rule = f"must name parameters ({', '.join(cls.parameter_names())})"
            faults.add("fixed", rule, abbreviate(sorted(map(str, unknown))), "Correct or remove these names.")
        return held

    @property
    def requires_normalized(self) -> bool:
        """Whether the kernel is defined for the normalised Laplacian only."""
        return False

    @classmethod
    def parameter_names(cls) -> tuple[str, ...]:
        """Names of the parameters, `variance` last."""
        own = [name for name, value in vars(cls).items() if isinstance(value, KernelParameter)]
        return (*own, "variance")

    @classmethod
    def _parameter(cls, name: str) -> KernelParameter:
        parameter = getattr(cls, name)
        assert isinstance(parameter, KernelParameter)
        return parameter

    def _check_settings(self, numbers: dict[str, float], faults: FaultList) -> None:
        """Note faults beyond a parameter's own domain; nothing by default."""

    @staticmethod
    def _number(parameter: KernelParameter, value: Any, faults: FaultList) -> float:
        try:
            number = float("nan") if isinstance(value, bool | np.bool_ | str) else float(value)
        except (TypeError, ValueError, OverflowError, RuntimeError):
            number = float("nan")
        if not parameter.domain.contains(number):
            faults.add(parameter.name, parameter.domain.rule, repr(value), "Choose such a value.")
        return number

    def _check_parameter(self, parameter: KernelParameter, value: Any) -> float:
        faults = FaultList(f"the {type(self).__name__} was left as it was", KernelError)
        number = self._number(parameter, value, faults)
        self._check_settings({parameter.name: number}, faults)
        faults.raise_if_any()
        return number

    @property
    def fixed(self) -> tuple[str, ...]:
        """Names of the parameters that are held while others are learned."""
        return tuple(name for name in self.parameter_names() if not getattr(self, f"raw_{name}").requires_grad)

    def values(self) -> dict[str, float]:
        """Return the parameters as plain numbers, to 15 digits: what was set to 3 reads 3."""
        return {name: float(f"{getattr(self, name).item():.15g}") for name in self.parameter_names()}

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the constructor's arguments, as scikit-learn expects."""
        del deep
        settings = {name: getattr(self, name) for name in self._settings}
        return {**settings, **self.values(), "fixed": self.fixed}

    def set_params(self, **params: Any) -> Self:
        """Set constructor arguments, as scikit-learn expects; all are checked before any is set."""
        unknown = set(params) - set(self.get_params())
        if unknown:
            faults = FaultList(f"the {type(self).__name__} was left as it was", KernelError)
            rule = f"must be among {', '.join(self.get_params())}"
            raise faults.raise_now("params", rule, abbreviate(sorted(unknown)), "Correct these names.")
        try:
            fresh = type(self)(**{**self.get_params(), **params})
        except KernelError as error:
            raise KernelError(f"the {type(self).__name__} was left as it was", error.faults) from None
        for name in self._settings:
            self.__dict__[f"_{name}"] = getattr(fresh, name)
        for name in self.parameter_names():
            ours, theirs = getattr(self, f"raw_{name}"), getattr(fresh, f"raw_{name}")
            with torch.no_grad():
                ours.copy_(theirs)
            ours.requires_grad_(theirs.requires_grad)
        return self

    def log_psi(self, eigenvalues: torch.Tensor) -> torch.Tensor:
        """Log Ψ(λ); shape as ``eigenvalues``."""
        return torch.log(self.psi(eigenvalues))

    def psi(self, eigenvalues: torch.Tensor) -> torch.Tensor:
        """Ψ(λ); shape as ``eigenvalues``."""
        return torch.exp(self.log_psi(eigenvalues))

    def _relative_psi(self, eigenvalues: torch.Tensor) -> torch.Tensor:
        """Ψ up to a constant factor, computed so that it neither overflows nor vanishes everywhere."""
        log_psi = self.log_psi(eigenvalues)
        return torch.exp(log_psi - log_psi.max().detach())

    def spectral_weights(self, eigenvalues: torch.Tensor, squared_norms: torch.Tensor, n_nodes: int) -> torch.Tensor:
        """Variances a Ψ(λ) of the coefficients on the eigenvectors; see `Kernel.spectral_weights`."""
        shape = self._relative_psi(eigenvalues)
        # a = σ² N / tr K₁: the average prior variance over the nodes is σ².
        return self.variance * (n_nodes / (shape @ squared_norms)) * shape

    def _check_laplacian(self, *, normalized: bool, faults: FaultList) -> None:
        if self.requires_normalized and not normalized:
            rule = f"must be True for {type(self).__name__}, which needs eigenvalues in [0, 2]"
            faults.add("normalized", rule, "False", "Leave it out, or use Matern or Diffusion.")

    def extra_repr(self) -> str:
        """Describe settings and parameters for ``repr``."""
        settings = [f"{name}={getattr(self, name)!r}" for name in self._settings]
        numbers = [f"{name}={value:.6g}" for name, value in self.values().items()]
        held = [f"fixed={self.fixed!r}"] if self.fixed else []
        return ", ".join(settings + numbers + held)


class SumKernel(Kernel):
    """The sum of two or more kernels: the covariance of a sum of independent processes.

    Parameters
    ----------
    *kernels : Kernel
        The terms.

    Examples
    --------
    >>> import graphmatern as gm
    >>> both = gm.Matern(lengthscale=10.0) + gm.Diffusion(lengthscale=1.0)
    >>> len(both.terms)
    2
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
        self._terms = torch.nn.ModuleList(flat)

    @property
    def terms(self) -> list[Kernel]:
        """The kernels that are added."""
        return list(self._terms)  # type: ignore[arg-type]

    @property
    def requires_normalized(self) -> bool:
        """Whether one of the terms needs the normalised Laplacian."""
        return any(term.requires_normalized for term in self.terms)

    def spectral_weights(self, eigenvalues: torch.Tensor, squared_norms: torch.Tensor, n_nodes: int) -> torch.Tensor:
        """Sum of the terms' weights; see `Kernel.spectral_weights`."""
        weights = [term.spectral_weights(eigenvalues, squared_norms, n_nodes) for term in self.terms]
        return torch.stack(weights).sum(dim=0)

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

    @property
    def requires_normalized(self) -> bool:
        """Whether the kernel needs the normalised Laplacian."""
        return self.kernel.requires_normalized

    def spectral_weights(self, eigenvalues: torch.Tensor, squared_norms: torch.Tensor, n_nodes: int) -> torch.Tensor:
        """Return the kernel's weights times the factor; see `Kernel.spectral_weights`."""
        return self.factor * self.kernel.spectral_weights(eigenvalues, squared_norms, n_nodes)

    def _check_laplacian(self, *, normalized: bool, faults: FaultList) -> None:
        self.kernel._check_laplacian(normalized=normalized, faults=faults)

    def extra_repr(self) -> str:
        """Describe the factor for ``repr``."""
        return f"factor={self.factor:.6g}"
