"""A kernel bound to a graph: its matrix, its diagonal, its action, its samples, its range."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch

from graphmatern._validation import FaultList, check_whole, random_generator
from graphmatern.errors import KernelError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from graphmatern.graph import Graph, Spectrum
    from graphmatern.kernels._base import Kernel

__all__ = ["BoundKernel", "CorrelationRange"]


@dataclass(frozen=True)
class CorrelationRange:
    """How a kernel's correlation decreases with distance along the graph.

    Attributes
    ----------
    table : DataFrame
        Per distance class: ``distance`` (mean), quartiles ``low``, ``median``, ``high`` of the correlation,
        number of ``pairs``.
    half, tenth : float
        Distance at which the median correlation first falls below 0.5 and 0.1; infinite if it never does.
    unit : {"length", "edges"}
        Whether distances are in the unit of the edges' lengths, or numbers of edges.
    """

    table: pd.DataFrame
    half: float
    tenth: float
    unit: str


class BoundKernel:
    """A kernel on the nodes of one graph. Made by `Kernel.on`.

    Nothing of size n_nodes × n_nodes is formed unless all nodes are requested. Results are float64 tensors
    on the kernel's device, differentiable in its parameters.

    Parameters
    ----------
    kernel : Kernel
        The kernel; changing its parameters changes what is computed here.
    graph : Graph
        The graph.
    spectrum : Spectrum
        Eigenpairs of one of its Laplacians.
    """

    def __init__(self, kernel: Kernel, graph: Graph, spectrum: Spectrum) -> None:
        self.kernel = kernel
        self.graph = graph
        self.spectrum = spectrum

    def __repr__(self) -> str:
        spectrum = self.spectrum
        which = "normalised " if spectrum.normalized else ""
        return f"{self.kernel!r} on {self.graph!r}, {spectrum.n_eigenpairs} eigenpairs of its {which}Laplacian"

    def _tensor(self, array: Any) -> torch.Tensor:
        """Return an array as a float64 tensor on the kernel's device."""
        device = next(self.kernel.parameters()).device
        return torch.as_tensor(array, dtype=torch.float64, device=device)

    def weights(self) -> torch.Tensor:
        """Variances a Ψ(λ) of the coefficients on the eigenvectors; shape (n_eigenpairs,)."""
        spectrum = self.spectrum
        return self.kernel.spectral_weights(
            self._tensor(spectrum._eigenvalues), self._tensor(spectrum.squared_norms), spectrum.n_nodes
        )

    def basis(self, nodes: Any = None) -> torch.Tensor:
        """Eigenvectors at some nodes, all by default; shape (n_names, n_eigenpairs)."""
        basis = self.spectrum._basis
        return self._tensor(basis if nodes is None else basis[self.graph.locate(nodes)])

    def matrix(self, a: Any = None, b: Any = None) -> torch.Tensor:
        """Covariances between two sets of nodes.

        Parameters
        ----------
        a : sequence of hashable, optional
            Node names; all nodes by default.
        b : sequence of hashable, optional
            Node names; those of `a` by default.

        Returns
        -------
        Tensor, shape (n_a, n_b)

        Examples
        --------
        >>> import graphmatern as gm
        >>> bound = gm.Diffusion(lengthscale=1.0).on(gm.Graph.from_edges([("a", "b"), ("b", "c")]))
        >>> bound.matrix(["a", "b"], ["c"]).shape
        torch.Size([2, 1])
        """
        left = self.basis(a)
        right = left if b is None else self.basis(b)
        return (left * self.weights()) @ right.T

    def diag(self, a: Any = None) -> torch.Tensor:
        """Prior variances of some nodes, all by default; shape (n_a,)."""
        return self.basis(a) ** 2 @ self.weights()

    def matvec(self, v: ArrayLike | torch.Tensor) -> torch.Tensor:
        """Product K v with the kernel matrix of all nodes, which is not formed.

        Parameters
        ----------
        v : array_like, Tensor or Series, shape (n_nodes,) or (n_nodes, n_columns)
            In node order, or by node name.

        Returns
        -------
        Tensor, shape as ``v``
        """
        vector = v.to(self.weights()) if isinstance(v, torch.Tensor) else self._tensor(self.graph.arrange(v))
        if vector.ndim not in (1, 2) or vector.shape[0] != self.graph.n_nodes:
            self.graph.arrange(vector)  # raises, saying what is wrong
        basis, weights = self.basis(), self.weights()
        coefficients = basis.T @ vector
        return basis @ (coefficients * (weights if vector.ndim == 1 else weights[:, None]))

    def sample(self, n_samples: int = 1, nodes: Any = None, random_state: int | None = None) -> torch.Tensor:
        """Draw functions from the prior, without gradients.

        Parameters
        ----------
        n_samples : int
            Number of draws.
        nodes : sequence of hashable, optional
            Node names; all nodes by default. The same seed gives the same functions at any nodes.
        random_state : int, optional
            Seed.

        Returns
        -------
        Tensor, shape (n_samples, n_names)
        """
        faults = FaultList("no samples", KernelError)
        check_whole("n_samples", n_samples, faults, minimum=1, remedy="Draw at least one.")
        faults.raise_if_any()
        rng = random_generator(random_state, KernelError)
        normal = self._tensor(rng.standard_normal((n_samples, self.spectrum.n_eigenpairs)))
        with torch.no_grad():
            return (normal * self.weights().sqrt()) @ self.basis(nodes).T

    def range(self, *, n_sources: int = 100, n_classes: int = 30, random_state: int | None = 0) -> CorrelationRange:
        """Correlation against distance along the graph, to show what a lengthscale means.

        Parameters
        ----------
        n_sources : int
            Number of random nodes from which distances and correlations to all others are taken.
        n_classes : int
            Number of distance classes, narrow at short distances (fewer if distances coincide).
        random_state : int, optional
            Seed for the choice of nodes.

        Returns
        -------
        CorrelationRange

        Examples
        --------
        >>> import graphmatern as gm
        >>> found = gm.Matern(lengthscale=3.0).on(gm.make_roads(500, seed=0)).range()
        >>> found.unit, 100 < found.half < 1000
        ('length', True)
        """
        faults = FaultList("no range", KernelError)
        check_whole("n_sources", n_sources, faults, minimum=1, remedy="Use at least one node.")
        check_whole("n_classes", n_classes, faults, minimum=1, remedy="Use at least one class.")
        faults.raise_if_any()
        graph = self.graph
        chosen = random_generator(random_state, KernelError).permutation(graph.n_nodes)[:n_sources]
        sources = graph.nodes[np.sort(chosen)]
        distance = graph.distances(sources)
        with torch.no_grad():
            scale = self.diag().sqrt()
            source_scale = scale[torch.as_tensor(graph.locate(sources))]
            correlation = self.matrix(sources, graph.nodes) / (source_scale[:, None] * scale)
        reachable = np.isfinite(distance) & (distance > 0)
        pairs = pd.DataFrame({"distance": distance[reachable], "correlation": correlation.cpu().numpy()[reachable]})
        table = _classes(pairs, n_classes)
        return CorrelationRange(
            table, _crossing(table, 0.5), _crossing(table, 0.1), "length" if graph.has_lengths else "edges"
        )


def _classes(pairs: pd.DataFrame, n_classes: int) -> pd.DataFrame:
    """Summarise correlations in distance classes."""
    if pairs["distance"].nunique() > n_classes:
        # Narrow classes near 0, where the correlation falls: neighbours are few, distant pairs many.
        levels = np.linspace(0.0, 1.0, n_classes + 1) ** 3
        label = pd.qcut(pairs["distance"], levels, labels=False, duplicates="drop")
    else:
        label = pairs["distance"]
    groups = pairs.groupby(label)
    return pd.DataFrame(
        {
            "distance": groups["distance"].mean(),
            "low": groups["correlation"].quantile(0.25),
            "median": groups["correlation"].median(),
            "high": groups["correlation"].quantile(0.75),
            "pairs": groups.size(),
        }
    ).reset_index(drop=True)


def _crossing(table: pd.DataFrame, level: float) -> float:
    """Distance at which the median correlation first falls below a level, by linear interpolation."""
    distance = np.concatenate([[0.0], table["distance"]])
    median = np.concatenate([[1.0], table["median"]])
    below = np.flatnonzero(median < level)
    if len(below) == 0:
        return float("inf")
    after = below[0]
    share = (median[after - 1] - level) / (median[after - 1] - median[after])
    return float(distance[after - 1] + share * (distance[after] - distance[after - 1]))
