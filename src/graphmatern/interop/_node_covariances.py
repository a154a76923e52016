"""Covariances between nodes for GPyTorch: through eigenvectors, or through polynomials of the Laplacian."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import torch
from gpytorch.models.exact_prediction_strategies import DefaultPredictionStrategy, LinearPredictionStrategy
from linear_operator.operators import LowRankRootLinearOperator, MatmulLinearOperator, RootLinearOperator

from graphmatern._validation import FaultList, abbreviate
from graphmatern.errors import KernelError

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

    from graphmatern.graph import Graph, Spectrum

    #: A kernel's function at given parameters: `Kernel.spectral_weights`, shape (*batch, 1, n_eigenvalues).
    Weights = Callable[[torch.Tensor, torch.Tensor, int], torch.Tensor]

__all__ = ["NodeBasis", "NodeCovariances"]


class NodeCovariances(ABC):
    """How covariances between nodes are computed. Shared by copies of a kernel, absent from state dicts.

    Parameters
    ----------
    graph : Graph
        The graph.
    """

    strategy: type[DefaultPredictionStrategy] = DefaultPredictionStrategy

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    def __deepcopy__(self, memo: dict[int, Any]) -> NodeCovariances:
        del memo
        return self

    @property
    @abstractmethod
    def spectrum(self) -> Spectrum:
        """Eigenpairs that are used; raises where there are none."""

    @property
    @abstractmethod
    def description(self) -> str:
        """What is used of the graph."""

    @abstractmethod
    def between(self, weights: Weights, x1: torch.Tensor, x2: torch.Tensor, like: torch.Tensor, training: bool) -> Any:
        """Covariances, shape (..., n1, n2).

        Parameters
        ----------
        weights : callable
            The kernel's function.
        x1, x2 : Tensor, shape (..., n, 1)
            Node positions.
        like : Tensor
            Of the type and on the device of the result.
        training : bool
            Whether the same nodes will come again with other parameters.
        """

    @abstractmethod
    def diagonal(self, weights: Weights, x1: torch.Tensor, x2: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
        """Covariances of pairs of nodes, shape (..., n); arguments as in `between`."""

    @abstractmethod
    def draw(self, weights: Weights, n_samples: int, rng: np.random.Generator, like: torch.Tensor) -> torch.Tensor:
        """Draws of the process on all nodes; shape (n_samples, n_nodes)."""

    def prediction_strategy(self, n_train: int) -> type[DefaultPredictionStrategy]:
        """How GPyTorch is to predict from so many observations."""
        del n_train
        return self.strategy

    def positions(self, x: torch.Tensor) -> torch.Tensor:
        """Check node positions, whole numbers of any type with shape (..., n, 1); return int64, shape (..., n)."""
        faults = FaultList("no covariance", KernelError)
        if x.shape[-1] != 1:
            remedy = "Name the column of node positions with active_dims."
            raise faults.raise_now("x", "must have one column of node positions", f"shape {tuple(x.shape)}", remedy)
        n_nodes, places = self.graph.n_nodes, x.detach().squeeze(-1)
        if places.is_floating_point() and n_nodes - 1 > 2.0 / torch.finfo(places.dtype).eps:
            rule = f"must be of a type that holds whole numbers up to {n_nodes - 1}"
            raise faults.raise_now("x", rule, str(places.dtype), "Use integers, float32 or float64.")
        whole = places.long()
        bad = (whole != places) | (whole < 0) | (whole >= n_nodes)
        if bad.any():
            rule = f"must hold node positions, whole numbers from 0 to {n_nodes - 1}"
            received = abbreviate(places[bad].flatten()[:6].tolist(), int(bad.sum()))
            raise faults.raise_now("x", rule, received, "Use `graph.locate(names)`, or active_dims for other columns.")
        return whole


class NodeBasis(NodeCovariances):
    """Through eigenvectors: covariances of low rank, (U_x diag(w)^(1/2)) (U_x′ diag(w)^(1/2))ᵀ.

    Parameters
    ----------
    graph : Graph
        The graph.
    spectrum : Spectrum
        The eigenpairs to use.
    """

    def __init__(self, graph: Graph, spectrum: Spectrum) -> None:
        super().__init__(graph)
        self._spectrum = spectrum
        self._tensors: dict[tuple[torch.dtype, torch.device], torch.Tensor] = {}

    @property
    def spectrum(self) -> Spectrum:
        """Eigenpairs of one of the graph's Laplacians."""
        return self._spectrum

    @property
    def description(self) -> str:
        """How many eigenpairs, of which Laplacian."""
        which = "normalised " if self.spectrum.normalized else ""
        return f"{self.spectrum.n_eigenpairs} eigenpairs of its {which}Laplacian"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_tensors": {}}

    def like(self, tensor: torch.Tensor) -> torch.Tensor:
        """Eigenvectors on the nodes, of the type and on the device of a tensor; shape (n_nodes, n_eigenpairs)."""
        key = tensor.dtype, tensor.device
        if key not in self._tensors:
            # From the float64 original each time: a model cast to float32 and back has lost nothing here.
            self._tensors[key] = torch.tensor(self.spectrum.basis).to(tensor.device, tensor.dtype)
        return self._tensors[key]

    def weights(self, weights: Weights, like: torch.Tensor) -> torch.Tensor:
        """Variances of the coefficients, computed in float64; shape (*batch, 1, n_eigenpairs)."""
        eigenvalues = torch.tensor(self.spectrum.eigenvalues, device=like.device)
        squared_norms = torch.as_tensor(self.spectrum.squared_norms, device=like.device)
        return weights(eigenvalues, squared_norms, self.graph.n_nodes).to(like.dtype)

    def features(self, weights: Weights, x: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
        """U_x diag(w)^(1/2); shape (..., n, n_eigenpairs)."""
        variances = self.weights(weights, like)
        # Weights may have vanished to rounding (diffusion); the derivative of √0 is infinite.
        root = variances.clamp_min(torch.finfo(variances.dtype).tiny).sqrt()
        return self.like(variances)[self.positions(x)] * root

    def between(self, weights: Weights, x1: torch.Tensor, x2: torch.Tensor, like: torch.Tensor, training: bool) -> Any:
        """Covariances as a linear operator of low rank; see `NodeCovariances.between`."""
        del training
        left = self.features(weights, x1, like)
        if x1.shape == x2.shape and torch.equal(x1, x2):
            # Of full rank there is nothing to save: GPyTorch then works with the n × n covariance of the inputs.
            few = left.shape[-1] < left.shape[-2]
            return LowRankRootLinearOperator(left) if few else RootLinearOperator(left)
        return MatmulLinearOperator(left, self.features(weights, x2, like).mT)

    def diagonal(self, weights: Weights, x1: torch.Tensor, x2: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
        """Covariances of pairs of nodes, shape (..., n)."""
        left = self.features(weights, x1, like)
        same = x1.shape == x2.shape and torch.equal(x1, x2)
        return (left * (left if same else self.features(weights, x2, like))).sum(dim=-1)

    def draw(self, weights: Weights, n_samples: int, rng: np.random.Generator, like: torch.Tensor) -> torch.Tensor:
        """Draws of the process on all nodes; shape (n_samples, n_nodes)."""
        features = self.features(weights, torch.arange(self.graph.n_nodes)[:, None], like)
        return torch.as_tensor(rng.standard_normal((n_samples, features.shape[-1]))).to(features) @ features.mT

    def prediction_strategy(self, n_train: int) -> type[DefaultPredictionStrategy]:
        """Predict in the space of the eigenvectors where there are fewer of these than observations."""
        return LinearPredictionStrategy if self.spectrum.n_eigenpairs < n_train else self.strategy
