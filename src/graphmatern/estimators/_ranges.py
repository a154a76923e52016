"""The range of a process: how far correlations reach along the edges, for many sets of parameters at once."""

from __future__ import annotations

import copy
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from graphmatern.inference import many_weights

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from graphmatern.graph import Graph, Spectrum

    Floats = NDArray[np.float64]
    Longs = NDArray[np.int64]

__all__ = ["CORRELATION", "Ranges", "rule_of_thumb"]

#: Correlation at the range, as in the literature on Matérn fields (Lindgren, Rue and Lindström 2011).
CORRELATION = 0.13
_CENTRES, _OTHERS, _CLASSES = 24, 40, 16  # nodes from which is measured, partners of each, classes of distances
_PER_LENGTHSCALE = 1.2  # mean edges, about, on road-like graphs


def rule_of_thumb(graph: Graph, lengthscales: Floats) -> Floats:
    """The range of kernels on the plain Laplacian, about; shape as ``lengthscales``."""
    return _PER_LENGTHSCALE * float(graph.edges["length"].mean()) * lengthscales


class Ranges:
    """Where correlations, averaged over pairs of nodes at the same distance, fall below 0.13.

    Pairs are those of a few nodes, spread at random, with others near and far; correlations follow from the eigenpairs.

    Parameters
    ----------
    graph : Graph
        The graph.
    spectrum : Spectrum
        Eigenpairs of the Laplacian in use.
    """

    def __init__(self, graph: Graph, spectrum: Spectrum) -> None:
        self._graph, self._spectrum = graph, spectrum

    @cached_property
    def _pairs(self) -> tuple[Longs, Longs, Floats]:
        """Two nodes each, and the distance between them, the nearest first."""
        graph = self._graph
        centres = np.sort(np.random.default_rng(0).permutation(graph.n_nodes)[:_CENTRES])
        distances = graph.distances(graph.nodes[centres])
        first, second = [], []
        for centre, own in zip(centres, distances, strict=True):
            reached = np.flatnonzero(np.isfinite(own) & (own > 0.0))
            order = reached[np.argsort(own[reached], kind="stable")]
            if len(order):
                places = np.unique(np.geomspace(1, len(order), _OTHERS).astype(np.int64) - 1)
                second.append(order[places])
                first.append(np.full(len(places), centre))
        if not first:
            return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64), np.zeros(0)
        a, b = np.concatenate(first), np.concatenate(second)
        apart = distances[np.searchsorted(centres, a), b]
        order = np.argsort(apart, kind="stable")
        return a[order], b[order], apart[order]

    def of(self, kernel: Any, values: Mapping[str, Floats]) -> Floats | None:
        """Ranges of a kernel at some parameters, in the unit of the edges; None where no two nodes are connected.

        Where correlations stay above 0.13 on the whole graph, the longest distance that was looked at.

        Parameters
        ----------
        kernel : SpectralKernel
            The kernel.
        values : mapping of str to ndarray, each of shape (n,)
            Some of its parameters, by name.

        Returns
        -------
        ndarray, shape (n,)
        """
        first, second, apart = self._pairs
        if not len(apart):
            return None
        weights = self._weights(kernel, values)
        basis = self._spectrum.basis
        nodes, place = np.unique(np.concatenate([first, second]), return_inverse=True)
        deviations = np.sqrt(basis[nodes] ** 2 @ weights)[place]
        scale = deviations[: len(first)] * deviations[len(first) :]
        correlations = ((basis[first] * basis[second]) @ weights) / scale
        groups = np.array_split(np.arange(len(apart)), min(_CLASSES, len(apart)))
        distance = np.array([0.0, *(apart[own].mean() for own in groups)])
        average = np.stack([np.ones(weights.shape[1]), *(correlations[own].mean(axis=0) for own in groups)])
        return _crossings(distance, average)

    def _weights(self, kernel: Any, values: Mapping[str, Floats]) -> Floats:
        """Variances on the eigenvectors; shape (n_eigenpairs, n)."""
        spectrum, own = self._spectrum, copy.deepcopy(kernel)
        eigenvalues, norms = (torch.tensor(x) for x in (spectrum.eigenvalues, spectrum.squared_norms))
        raw = [getattr(own, f"raw_{name}") for name in values]
        free = [own.parameter(name).domain.free_values(np.asarray(column)) for name, column in values.items()]
        found = many_weights(
            lambda: own.spectral_weights(eigenvalues, norms, spectrum.n_nodes), raw, np.stack(free, axis=1)
        )
        return found.T


def _crossings(distance: Floats, average: Floats) -> Floats:
    """Where each column of averages, of shape (n_classes, n), first falls below 0.13; shape (n,)."""
    below = average < CORRELATION
    place = np.where(below.any(axis=0), below.argmax(axis=0), len(distance))
    after = np.minimum(place, len(distance) - 1)
    columns = np.arange(average.shape[1])
    high, low = average[after - 1, columns], average[after, columns]
    share = np.where(place < len(distance), (high - CORRELATION) / np.maximum(high - low, 1e-300), 1.0)
    return np.asarray(distance[after - 1] + share * (distance[after] - distance[after - 1]))
