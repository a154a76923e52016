"""The least an engine needs: one dense covariance matrix, differentiable in the kernel's parameters."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch

from graphmatern.inference import Engine, Predictive, Process
from graphmatern.inference.dense import CovarianceConditioned
from graphmatern.inference.learning.parameters import free_parameters, move_parameters
from graphmatern.inference.spectral.engine import starting_kernel


class ToyEngine(Engine):
    name: ClassVar[str] = "toy"

    def __init__(self, problem: Any, groups: Any) -> None:
        self.groups, self._kernel = groups, starting_kernel(problem)
        self._bound = self._kernel.on(problem.graph, problem.normalized)
        self._raw, self.coordinates, self.start = free_parameters(self._kernel, problem.rules)

    @classmethod
    def candidates(cls, problem: Any, groups: Any) -> Any:
        return [lambda: cls(problem, groups)]

    def at(self, position: Any) -> Process:
        move_parameters(self._raw, position)
        return ToyProcess(self._bound.matrix(), self._raw, self.groups)

    def kernel(self, position: Any) -> Any:
        move_parameters(self._raw, position)
        return self._kernel.__sklearn_clone__()


class ToyProcess(Process):
    def __init__(self, covariance: torch.Tensor, raw: Any, groups: Any) -> None:
        self.tensor, self.raw, self.groups = covariance, raw, groups

    def condition(self, group: int, precision: Any) -> ToyConditioned:
        return ToyConditioned(self, self.groups[group], precision)

    def predictive(self, group: int, precision: Any) -> ToyPredictive:
        return ToyPredictive(self.tensor.detach().numpy(), self.groups[group].nodes, precision)


class ToyConditioned(CovarianceConditioned):
    def __init__(self, process: ToyProcess, group: Any, precision: Any) -> None:
        self._process, self._block = process, process.tensor[np.ix_(group.nodes, group.nodes)]
        super().__init__(group, precision, self._block.detach().numpy())

    def pull_back(self, change: Any) -> Any:
        pulled = torch.autograd.grad(self._block, self._process.raw, torch.from_numpy(change), retain_graph=True)
        return np.array([one.item() for one in pulled])


class ToyPredictive(Predictive):
    def __init__(self, covariance: Any, observed: Any, precision: Any) -> None:
        seen = covariance[:, observed]
        inner = np.eye(len(observed)) + precision[:, None] * seen[observed]
        self._gain = np.linalg.solve(inner.T, seen.T).T  # K_·x (I + ηK_xx)⁻¹, which maps potentials to means
        self._covariance = covariance - self._gain @ (precision[:, None] * seen.T)

    def means(self, nodes: Any, potentials: Any) -> Any:
        return self._gain[nodes] @ potentials

    def variances(self, nodes: Any) -> Any:
        return np.diag(self._covariance)[nodes]

    def covariances(self, nodes: Any) -> Any:
        return self._covariance[np.ix_(nodes, nodes)]

    def deviations(self, n_samples: int, nodes: Any, rng: np.random.Generator) -> Any:
        return rng.multivariate_normal(np.zeros(len(nodes)), self.covariances(nodes), n_samples)
