"""A process with parts on the graph and on features, at given parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from graphmatern.inference.moments.predictive import MomentPredictive
from graphmatern.inference.moments.process import NodeProcess
from graphmatern.kernels import ScaledKernel, SumKernel

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from graphmatern.inference.features.observed import ObservedFeatures
    from graphmatern.inference.features.prior import JointPrior
    from graphmatern.inference.moments.process import NodeConditioned, ObservedNodes
    from graphmatern.inference.observations import Group
    from graphmatern.kernels import FeatureKernel, Interaction, Kernel

    Floats = NDArray[np.float64]
    Longs = NDArray[np.int64]

__all__ = ["FeatureProcess", "JointPredictive", "Terms", "variance_of"]


def variance_of(kernel: Kernel) -> torch.Tensor:
    """Average prior variance of a kernel on the graph, differentiable; shape ()."""
    if isinstance(kernel, SumKernel):
        return torch.stack([variance_of(term) for term in kernel.terms]).sum()
    if isinstance(kernel, ScaledKernel):
        return kernel.factor * variance_of(kernel.kernel)
    found: torch.Tensor = kernel.variance  # type: ignore[assignment]
    return found


class Terms:
    """Covariances between observed nodes of the parts of a process, differentiable.

    Parameters
    ----------
    graph : Tensor, shape (n, n), optional
        The part on the graph, and the kernel it comes from.
    graph_kernels : sequence of Kernel
        Its terms.
    features : sequence of ObservedFeatures
        Parts on features.
    interactions : sequence of Interaction
        At most one.
    """

    def __init__(
        self,
        graph: torch.Tensor | None,
        graph_kernels: Sequence[Kernel],
        features: Sequence[ObservedFeatures],
        interactions: Sequence[Interaction],
    ) -> None:
        self.parts: dict[str, torch.Tensor] = {} if graph is None else {"graph": graph}
        own = []
        for one in features:
            kernel: FeatureKernel = one.kernel
            inner = one.inner()
            norms = torch.diagonal(inner)
            own.append(kernel.variance * kernel.between(inner, norms, norms, one.spread))
        if own:
            self.parts["features"] = torch.stack(own).sum(dim=0) if len(own) > 1 else own[0]
        for product in interactions:
            assert graph is not None
            average = torch.stack([variance_of(kernel) for kernel in graph_kernels]).sum()
            average = average * torch.stack([part.kernel.variance for part in features]).sum()
            self.parts["interaction"] = (product.variance / average) * graph * self.parts["features"]
        self.covariance = torch.stack(list(self.parts.values())).sum(dim=0)


class FeatureProcess(NodeProcess):
    """The process at given parameters.

    Parameters
    ----------
    observed : ObservedNodes
        The observed nodes.
    groups : sequence of Group
        The observations.
    terms : Terms
        Its parts between the observed nodes.
    free : sequence of Tensor
        The kernel's free parameters, unconstrained.
    pull_back : callable, optional
        Derivatives in the parameters of the part on the graph, where these do not come by themselves.
    places : ndarray of int64
        Where its parameters stand among all.
    prior : callable
        Makes the process on all nodes.
    """

    def __init__(
        self,
        observed: ObservedNodes,
        groups: Sequence[Group],
        terms: Terms,
        free: Sequence[torch.Tensor],
        pull_back: Callable[[Floats], Floats] | None,
        places: Longs,
        prior: Callable[[], JointPrior],
    ) -> None:
        covariance = terms.covariance.detach().numpy()
        super().__init__(observed, groups, 0.5 * (covariance + covariance.T), prior)
        self._terms, self._free, self._pull_back, self._places = terms, list(free), pull_back, places

    def pull_back_nodes(self, change: Floats) -> Floats:
        """Derivatives in the kernel's free parameters: through features, and through the part on the graph."""
        found = np.zeros(len(self._free))
        inputs = list(self._free)
        if self._pull_back is not None:
            inputs.append(self._terms.parts["graph"])
        if not inputs:
            return found
        symmetric = torch.from_numpy(0.5 * (change + change.T))
        with torch.enable_grad():
            total = (self._terms.covariance * symmetric).sum()  # see `pull_back` of learning.parameters
        pulled = torch.autograd.grad(total, inputs, retain_graph=True, allow_unused=True)
        for place, one in enumerate(pulled[: len(found)]):
            found[place] = 0.0 if one is None else one.item()
        if self._pull_back is not None:
            found[self._places] += self._pull_back(pulled[-1].numpy())
        return found

    def predictive(self, group: int, precision: Floats) -> JointPredictive:
        """Return the process at any node; see `Process.predictive`."""
        place = self.observed.places[group]
        parts = {name: one.detach().numpy()[np.ix_(place, place)] for name, one in self._terms.parts.items()}
        return JointPredictive(self.prior, self.condition(group, precision), parts)


class JointPredictive(MomentPredictive):
    """The process under sites, which also knows what its parts contribute.

    Parameters
    ----------
    prior : NodePrior
        The process on all nodes.
    conditioned : NodeConditioned
        The process at the observations.
    parts : dict of str to ndarray, each of shape (n, n)
        Covariances of the parts at the observations.
    """

    def __init__(self, prior: object, conditioned: NodeConditioned, parts: dict[str, Floats]) -> None:
        super().__init__(prior, conditioned)  # type: ignore[arg-type]
        self._parts = parts

    def part_variances(self, potentials: Floats) -> dict[str, float]:
        """How much each part varies over the observations, given the data: expected, by name.

        Parameters
        ----------
        potentials : ndarray, shape (n, k)
            Of the sites; an average over the columns is returned.
        """
        alpha, inverse = self._conditioned.solve(potentials).alpha, self._conditioned.inverse
        found = {}
        for name, covariance in self._parts.items():
            mean = covariance @ alpha
            left = covariance - covariance @ inverse @ covariance
            found[name] = float(mean.var(axis=0).mean() + np.diag(left).mean() - left.mean())
        return found
