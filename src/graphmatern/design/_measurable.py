"""What can be measured: a process, before or after data, as those who choose measurements see it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import torch

from graphmatern._validation import FaultList
from graphmatern.design._belief import Belief
from graphmatern.errors import KernelError
from graphmatern.inference import ENGINES, Mixture, Observations, Problem, Search, choose_engine
from graphmatern.likelihoods import Gaussian

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from graphmatern.graph import Graph
    from graphmatern.inference import Posterior, Predictive
    from graphmatern.kernels import BoundKernel, Kernel
    from graphmatern.likelihoods import Numeric

    Floats = NDArray[np.float64]
    Longs = NDArray[np.int64]

__all__ = ["HasMeasurable", "Measurable", "Version", "of_bound_kernel", "of_posterior", "of_prior"]


@dataclass(frozen=True, eq=False)
class Version:
    """The process at one set of parameters, in one replicate.

    Attributes
    ----------
    weight : float
        Of these parameters; all weights add up to 1.
    predictive : Predictive
        The process.
    noise : ndarray, shape () or (n_nodes,), optional
        Noise variance of a measurement at each node, as it looks on the scale of the process.
    observed : ndarray of int64, shape (n,)
        Positions of nodes that have sites.
    precision : ndarray, shape (n,)
        Of these sites.
    posterior : Posterior, optional
        To which the process belongs, with linear effects; none before any data.
    part : int
        Which of its parts.
    """

    weight: float
    predictive: Predictive
    noise: Floats | None
    observed: Longs
    precision: Floats
    posterior: Posterior | None = None
    part: int = 0

    def belief(self, nodes: Longs) -> Belief:
        """What is known of the process at some nodes, each once."""
        if self.posterior is None or not self.posterior.effects[0].count:
            return Belief(self.predictive, nodes, np.zeros((len(nodes), 0)), np.zeros((0, 0)))
        part = self.posterior.parts[self.part]
        information = self.posterior.effects[part.latent].information
        return Belief(self.predictive, nodes, self.posterior.sensitivity(part, nodes), information)


@dataclass(frozen=True, eq=False)
class Measurable:
    """A process on a graph that can be measured.

    Attributes
    ----------
    graph : Graph
        The graph.
    versions : list of Version
        One, or several where parameters were integrated over or replicates were observed at different nodes.
    unit : float
        Unit of the process in those of its measurements.
    """

    graph: Graph
    versions: list[Version]
    unit: float = 1.0

    @property
    def observed(self) -> Longs:
        """Positions of nodes with data, each once."""
        return np.unique(np.concatenate([one.observed for one in self.versions]))


class HasMeasurable(Protocol):
    """A model whose process can be measured."""

    def measurable(self) -> Measurable:
        """The process, given the data where there are some."""


def of_bound_kernel(bound: BoundKernel) -> Measurable:
    """A process before any data, from the eigenpairs of a bound kernel."""
    graph, spectrum = bound.graph, bound.spectrum
    count = None if spectrum.n_eigenpairs == graph.n_nodes else spectrum.n_eigenpairs
    return of_prior(graph, bound.kernel, engine="spectral", normalized=spectrum.normalized, n_eigenpairs=count)


def of_prior(
    graph: Graph, kernel: Kernel, *, noise: float | None = None, engine: str = "auto", **options: Any
) -> Measurable:
    """A process before any data.

    Parameters
    ----------
    graph : Graph
        The graph.
    kernel : Kernel
        At the parameters wanted.
    noise : float, optional
        Noise variance of measurements, where it is known.
    engine : str
        Name of the engine, or "auto".
    **options
        Of the `Problem`, such as ``normalized``.
    """
    if getattr(kernel, "chooses_nu", False):
        faults = FaultList("there is no process yet", KernelError)
        raise faults.raise_now(
            "kernel",
            "must have a smoothness if there are no data",
            repr(kernel),
            "Set nu=2, for instance, or fit first.",
        )
    # One site of precision 0, which says nothing.
    nothing = Observations(np.zeros(1, dtype=np.int64), np.zeros((1, 1)), np.zeros((graph.n_nodes, 0)))
    problem = Problem(graph, kernel, Gaussian(), nothing, search=Search(None), **options)
    name, _, normalized = choose_engine(problem, engine)
    problem = replace(problem, normalized=normalized)
    found = ENGINES[name].candidates(problem, nothing.groups)[0]()
    predictive = found.at(found.start).predictive(0, np.zeros(1))
    own = None if noise is None else np.asarray(noise, dtype=np.float64)
    version = Version(1.0, predictive, own, np.zeros(0, dtype=np.int64), np.zeros(0))
    return Measurable(graph, [version])


def of_posterior(
    graph: Graph, posterior: Posterior | Mixture, offset: Floats | float = 0.0, unit: float = 1.0
) -> Measurable:
    """A process given data.

    Parameters
    ----------
    graph : Graph
        The graph.
    posterior : Posterior or Mixture
        Of numbers, so that there is one latent process.
    offset : ndarray, shape (n_nodes,), or float
        Known part of the latent process.
    unit : float
        Unit of the process in those of its measurements.
    """
    if not isinstance(posterior, Mixture):
        return Measurable(graph, _numeric_versions(graph, posterior, offset), unit)
    versions = [
        replace(one, weight=float(weight) * one.weight)
        for weight, component in zip(posterior.weights, posterior.components, strict=True)
        for one in _numeric_versions(graph, component, offset)
    ]
    return Measurable(graph, versions, unit)


def _numeric_versions(graph: Graph, posterior: Posterior, offset: Floats | float) -> list[Version]:
    """The process in each group of replicates, weighted by their size."""
    return [
        Version(
            part.group.n_replicates / posterior.n_replicates,
            part.predictive,
            _noise(posterior, graph.n_nodes, part.group.columns, offset),
            part.group.nodes,
            part.precision,
            posterior,
            k,
        )
        for k, part in enumerate(posterior.parts)
    ]


def _noise(posterior: Posterior, n_nodes: int, replicates: Longs, offset: Floats | float) -> Floats:
    """Noise variance of a measurement at every node on the scale of the process; shape () or (n_nodes,).

    Gaussian noise is what it is. Under other likelihoods a measurement of mean g(η) and variance V at the most likely η
    counts as one of η with noise V / g'(η)²; for Poisson and negative binomial counts that is the Fisher information.
    """
    likelihood: Numeric = posterior.likelihood  # type: ignore[assignment]
    if likelihood.gaussian:
        return np.asarray(likelihood.values()["noise"], dtype=np.float64)
    eta = posterior.latent_mean(np.arange(n_nodes))[replicates].mean(axis=0) + offset
    step = 1e-4
    slope = (likelihood.response(eta + step) - likelihood.response(eta - step)) / (2.0 * step)
    with torch.no_grad():
        mean = torch.from_numpy(eta)[None]
        variance = likelihood.observation_moments(mean, torch.zeros_like(mean))[1].numpy()
    return np.asarray(variance / slope**2)
