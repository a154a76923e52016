"""Kernels of areas that border on each other, as used in disease mapping."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from graphmatern._parameters import Parameter, half_open_unit
from graphmatern._validation import FaultList
from graphmatern.errors import KernelError
from graphmatern.graph import intrinsic_spectrum, intrinsic_structure
from graphmatern.kernels._base import SpectralKernel

if TYPE_CHECKING:
    from collections.abc import Iterable

    from graphmatern.graph import Graph, Spectrum

__all__ = ["BYM2", "ICAR", "ArealKernel", "Leroux"]


class ArealKernel(SpectralKernel):
    """A kernel of areas: a function of the plain Laplacian, on graphs without node masses."""

    @property
    def requires_plain(self) -> bool:
        """True: these models are defined on the plain Laplacian."""
        return True

    def choose_laplacian(self, graph: Graph, normalized: bool | None) -> bool:
        """Return False, the plain Laplacian; raises where another was asked for, or the graph has node masses."""
        found = super().choose_laplacian(graph, normalized)
        if graph.masses is not None:
            faults = FaultList(f"{type(self).__name__} was not bound to the graph", KernelError)
            remedy = "Make the graph without masses, or use Matern."
            raise faults.raise_now("graph", f"must have no node masses for {type(self).__name__}", "some", remedy)
        return found

    def _check_laplacian(self, *, normalized: bool, faults: FaultList) -> None:
        if normalized:
            rule = f"must be False for {type(self).__name__}, which is a function of D − W"
            faults.add("normalized", rule, "True", "Leave it out, or use Matern or Diffusion.")

    def spectral_weights(self, eigenvalues: torch.Tensor, squared_norms: torch.Tensor, n_nodes: int) -> torch.Tensor:
        """Variances σ² Ψ(λ) of the coefficients on the eigenvectors; see `Kernel.spectral_weights`."""
        del squared_norms, n_nodes
        return self.variance * self.psi(eigenvalues)


class _Intrinsic(ArealKernel):
    """A kernel with an intrinsic part, scaled component by component, in which 1/λ counts as 0 for λ = 0."""

    @property
    def intrinsic(self) -> bool:
        """True: the kernel is scaled component by component, which takes the graph."""
        return True

    def spectrum_on(self, graph: Graph, n_eigenpairs: int | None, normalized: bool) -> Spectrum:
        """Eigenpairs of the Laplacian scaled component by component."""
        del normalized
        return intrinsic_spectrum(graph, n_eigenpairs)

    @staticmethod
    def scaling_factors(graph: Graph) -> Any:
        """Geometric mean of the marginal variances of an unscaled ICAR process, in the component of every node.

        Parameters
        ----------
        graph : Graph
            The graph.

        Returns
        -------
        Series
            Indexed by node name; 1 at isolated nodes.

        Examples
        --------
        >>> import graphmatern as gm
        >>> graph = gm.Graph.from_edges([("a", "b"), ("b", "c")])
        >>> round(float(gm.BYM2.scaling_factors(graph)["a"]), 6)
        0.409337
        """
        import pandas as pd

        return pd.Series(intrinsic_structure(graph).scale, index=graph.nodes, name="scaling_factor")


def _reciprocal(eigenvalues: torch.Tensor) -> torch.Tensor:
    """1/λ, and 0 for λ = 0."""
    positive = eigenvalues > 0
    return torch.where(positive, 1.0 / torch.where(positive, eigenvalues, 1.0), 0.0)


class ICAR(_Intrinsic):
    """Intrinsic conditional autoregression: neighbours differ by Gaussian steps; Ψ(λ) = 1/(sλ), and 0 for λ = 0.

    In every connected component the process sums to zero, exactly, and is divided by s, the geometric mean of its
    marginal variances there, so that `variance` means the same on every map; an isolated area has variance
    `variance` (Sørbye and Rue 2014; Freni-Sterrantino, Ventrucci and Rue 2018).

    Parameters
    ----------
    variance : float
        σ² > 0, the geometric mean of the prior variances in every component; not the average variance.
    fixed : iterable of str
        ``("variance",)`` holds it fixed.

    Examples
    --------
    >>> import graphmatern as gm
    >>> graph = gm.Graph.from_edges([("a", "b"), ("b", "c")])
    >>> variances = gm.ICAR().on(graph).diag().detach()
    >>> round(variances.log().mean().exp().item(), 6)
    1.0
    """

    def __init__(self, variance: float = 1.0, fixed: Iterable[str] = ()) -> None:
        super().__init__(variance=variance, fixed=fixed)

    def psi(self, eigenvalues: torch.Tensor) -> torch.Tensor:
        """1/λ of the scaled Laplacian, 0 for λ = 0; shape as ``eigenvalues``."""
        return _reciprocal(eigenvalues)


class BYM2(_Intrinsic):
    """Besag, York and Mollié's model in the form of Riebler et al. (2016): a shared part, and one of each area.

    f = σ (√(1 − ρ) θ + √ρ φ) with θ independent from area to area and φ a scaled `ICAR` process:
    Ψ(λ) = (1 − ρ) + ρ/(sλ), and 1 − ρ for λ = 0. An isolated area has variance σ².

    Parameters
    ----------
    variance : float
        σ² > 0: about the prior variance of every area, whatever the map.
    mixing : float
        ρ in [0, 1): the fraction of the variance that is shared with neighbours.
    fixed : iterable of str
        Parameters that are held fixed while the others are learned.

    Examples
    --------
    >>> import graphmatern as gm
    >>> graph = gm.Graph.from_edges([("a", "b"), ("b", "c")])
    >>> gm.BYM2(variance=2.0, mixing=0.0).on(graph).matrix().detach().numpy().round(6) + 0.0
    array([[2., 0., 0.],
           [0., 2., 0.],
           [0., 0., 2.]])
    """

    mixing = Parameter(half_open_unit)

    def __init__(self, variance: float = 1.0, mixing: float = 0.5, fixed: Iterable[str] = ()) -> None:
        super().__init__(mixing=mixing, variance=variance, fixed=fixed)

    def psi(self, eigenvalues: torch.Tensor) -> torch.Tensor:
        """(1 − ρ) + ρ/λ of the scaled Laplacian; shape as ``eigenvalues``."""
        return (1.0 - self.mixing) + self.mixing * _reciprocal(eigenvalues)


class Leroux(ArealKernel):
    """Leroux, Lei and Breslow's conditional autoregression, Ψ(λ) = 1/(ρλ + 1 − ρ).

    Parameters
    ----------
    variance : float
        τ² > 0 in the literature, the conditional variance of an area with one neighbour; neither the average variance
        nor a geometric mean.
    mixing : float
        ρ in [0, 1): 0 for independent areas, near 1 for an intrinsic process.
    fixed : iterable of str
        Parameters that are held fixed while the others are learned.

    Examples
    --------
    >>> import graphmatern as gm
    >>> gm.Leroux(mixing=0.9)
    Leroux(mixing=0.9, variance=1)
    """

    mixing = Parameter(half_open_unit)

    def __init__(self, variance: float = 1.0, mixing: float = 0.5, fixed: Iterable[str] = ()) -> None:
        super().__init__(mixing=mixing, variance=variance, fixed=fixed)

    def log_psi(self, eigenvalues: torch.Tensor) -> torch.Tensor:
        """−log(ρλ + 1 − ρ); shape as ``eigenvalues``."""
        return -torch.log(self.mixing * eigenvalues + (1.0 - self.mixing))
