"""A process on all nodes that has a part on the graph and parts on features, before any data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from graphmatern.inference.dense import root_of
from graphmatern.inference.moments.prior import NodePrior
from graphmatern.inference.observations import sum_by_node
from graphmatern.kernels import RBFFeatures

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from graphmatern.inference.features.graph_part import EigenPrior
    from graphmatern.inference.features.smoothing import Smoother
    from graphmatern.inference.moments.prior import PriorField
    from graphmatern.kernels import FeatureKernel

    Floats = NDArray[np.float64]
    Longs = NDArray[np.int64]

__all__ = ["FeaturePart", "JointPrior"]

_KEPT_FEATURES = 2**27  # entries of smoothed features that are kept, over all that share products
_KEPT_ENTRIES = 2**27  # of covariances between all nodes and those observed
_AT_ONCE = 64
_NODES_AT_ONCE = 512
_DENSE_NODES = 3_000  # up to so many nodes, draws come from the covariance itself
_WAVES = 1_024  # random cosines that stand for a kernel that falls with distance
_PRODUCTS = 64  # pairs of draws whose products add up to one of an interaction


class FeaturePart:
    """One kernel on smoothed features, at given parameters, on all nodes.

    Parameters
    ----------
    smoother : Smoother
        Polynomials of the Laplacian, and the features.
    kernel : FeatureKernel
        A copy, whose parameters stay.
    """

    def __init__(self, smoother: Smoother, kernel: FeatureKernel) -> None:
        self.smoother, self.kernel = smoother, kernel
        self.smoothing = float(kernel.smoothing.item())
        self.variance = float(kernel.variance.item())
        self._spread = smoother.matrix.spread(kernel.takes_differences)
        self._family: list[FeaturePart] = [self]
        self._norms: Floats | None = None
        self._kept: Floats | None = None

    def join(self, others: Sequence[FeaturePart]) -> None:
        """Smooth together with parts of other parameters: each product then serves all of them."""
        family = [self, *(one for one in others if one is not self)]
        for one in family:
            one._family = family

    # ------------------------------------------------------------------ smoothed features
    def _rows(self, nodes: Longs) -> Floats:
        """Smoothed features of some nodes, each once; shape (n, p)."""
        if self._kept is not None:
            return np.asarray(self._kept[nodes])
        return np.asarray(self.smoother.rows(nodes, [self.smoothing])[0])

    def _column_blocks(self) -> Iterator[tuple[slice, Floats]]:
        """Smoothed features of all nodes, of all members, some at a time; each of shape (n_members, n_nodes, k)."""
        smoothings, matrix = [one.smoothing for one in self._family], self.smoother.matrix
        p = matrix.n_features
        width = max(32, self.smoother.width // len(self._family))
        for start in range(0, p, width):
            stop = min(start + width, p)
            yield slice(start, stop), self.smoother.smooth(matrix.block(start, stop), smoothings)

    def _keep(self) -> None:
        """Keep smoothed features of all nodes, for the whole family, where these are few enough."""
        n, p = self.smoother.n_nodes, self.smoother.matrix.n_features
        if self._kept is not None or n * p * len(self._family) > _KEPT_FEATURES:
            return
        every = [np.empty((n, p)) for _ in self._family]
        if p <= n:
            for part, found in self._column_blocks():
                for own, one in zip(every, found, strict=True):
                    own[:, part] = one
        else:
            every = list(self.smoother.rows(np.arange(n), [one.smoothing for one in self._family]))
        for one, own in zip(self._family, every, strict=True):
            one._kept, one._norms = own, np.einsum("ij,ij->i", own, own)

    def inner(self, nodes: Longs) -> Floats:
        """zᵀz′ between all nodes and some, each once, and norms on the way; shape (n_nodes, n)."""
        self._keep()
        if self._kept is not None:
            return np.asarray(self._kept @ self._kept[nodes].T)
        n, p = self.smoother.n_nodes, self.smoother.matrix.n_features
        found, norms = np.zeros((n, len(nodes))), np.zeros(n)
        if p <= n:
            alone, self._family = self._family, [self]  # what others want to know of their features is not known here
            for _, (block,) in self._column_blocks():
                found += block @ block[nodes].T
                norms += np.einsum("ij,ij->i", block, block)
            self._family = alone
        else:
            wanted = self._rows(nodes).T
            for start in range(0, n, self.smoother.width):
                part = np.arange(start, min(start + self.smoother.width, n))
                block = self._rows(part)
                found[part] = block @ wanted
                norms[part] = np.einsum("ij,ij->i", block, block)
        self._norms = norms
        return found

    def norms(self, nodes: Longs) -> Floats:
        """|z|² of some nodes; shape (n,)."""
        if self._norms is None and len(nodes) <= _NODES_AT_ONCE:
            distinct, place = np.unique(nodes, return_inverse=True)
            rows = self._rows(distinct)
            return np.asarray(np.einsum("ij,ij->i", rows, rows)[place])
        if self._norms is None:
            self.inner(np.zeros(0, dtype=np.int64))
        assert self._norms is not None
        return self._norms[nodes]

    # ------------------------------------------------------------------ the kernel, at variance 1
    def unit_columns(self, nodes: Longs) -> Floats:
        """The kernel between all nodes and some, each once; shape (n_nodes, n)."""
        inner = self.inner(nodes)
        every = self.norms(np.arange(len(inner)))
        return self._unit(inner, every, every[nodes])

    def unit_between(self, left: Longs, right: Longs) -> Floats:
        """The kernel between some nodes and others, each once; shape (n_left, n_right)."""
        first, second = self._rows(left), self._rows(right)
        norms = (np.einsum("ij,ij->i", one, one) for one in (first, second))
        return self._unit(first @ second.T, *norms)

    def _unit(self, inner: Floats, left: Floats, right: Floats) -> Floats:
        with torch.no_grad():
            first, second, third = (torch.from_numpy(np.ascontiguousarray(one)) for one in (inner, left, right))
            return np.asarray(self.kernel.between(first, second, third, self._spread).numpy())

    def unit_variances(self, nodes: Longs) -> Floats:
        """The kernel of nodes with themselves; shape (n,)."""
        with torch.no_grad():
            return np.asarray(self.kernel.at(torch.from_numpy(self.norms(nodes)), self._spread).numpy())

    def draw_unit(self, count: int, rng: np.random.Generator) -> Floats:
        """Draws at variance 1: z times random numbers, or many random cosines of it; shape (n_nodes, count)."""
        if not self.kernel.takes_differences:
            scores = self._times(rng.standard_normal((self.smoother.matrix.n_features, count)))
            every = self.norms(np.arange(self.smoother.n_nodes))
            with torch.no_grad():
                scale = self.kernel.at(torch.from_numpy(every), self._spread).numpy()
            return np.asarray(scores * np.sqrt(scale / np.maximum(every, 1e-300))[:, None])
        assert isinstance(self.kernel, RBFFeatures)
        width = float(self.kernel.bandwidth.item()) * np.sqrt(self._spread)
        found = np.zeros((self.smoother.n_nodes, count))
        for _ in range(0, _WAVES, _AT_ONCE):
            waves = self._times(rng.standard_normal((self.smoother.matrix.n_features, _AT_ONCE)) / width)
            waves = np.cos(waves + 2.0 * np.pi * rng.random(_AT_ONCE))
            found += waves @ rng.standard_normal((_AT_ONCE, count))
        return np.asarray(found * np.sqrt(2.0 / _WAVES))

    def _times(self, columns: Floats) -> Floats:
        """Z times columns at all nodes; shape (n_nodes, k)."""
        if self._kept is not None:
            return np.asarray(self._kept @ columns)
        return np.asarray(self.smoother.smooth(self.smoother.matrix.times(columns), [self.smoothing])[0])


class JointPrior(NodePrior):
    """K = K_g + Σ σ² k_f + σ² (K_g / σ_g²) ∘ (Σ σ² k_f / Σ σ²) on all nodes.

    Parameters
    ----------
    graph : PriorField or EigenPrior, optional
        The part on the graph.
    parts : sequence of FeaturePart
        Parts on features.
    interaction, graph_variance : float
        σ² of the interaction, and σ_g².
    n_nodes : int
        Number of nodes.
    """

    def __init__(
        self,
        graph: PriorField | EigenPrior | None,
        parts: Sequence[FeaturePart],
        *,
        interaction: float,
        graph_variance: float,
        n_nodes: int,
    ) -> None:
        self.graph, self.parts, self.n_nodes = graph, list(parts), n_nodes
        self._interaction, self._graph_variance = interaction, graph_variance
        self._total = sum(part.variance for part in self.parts)
        self._cross: tuple[bytes, Floats] | None = None
        self._root: Floats | None = None

    def join(self, others: Sequence[Any]) -> None:
        """Share products with processes of other parameters; see `PriorField.join`."""
        own = [one for one in others if isinstance(one, JointPrior)]
        if self.graph is not None:
            self.graph.join([one.graph for one in own])  # type: ignore[misc]
        for place, part in enumerate(self.parts):
            part.join([one.parts[place] for one in own])

    def _combined(self, graph: Floats | float, features: Floats | float) -> Floats:
        """K from its two parts, of the same shape."""
        found = graph + features
        if self._interaction:
            found = found + (self._interaction / self._graph_variance / self._total) * graph * features
        return np.asarray(found)

    def columns(self, nodes: Longs) -> Floats:
        """K between all nodes and some, each once; shape (n_nodes, n)."""
        found = np.empty((self.n_nodes, len(nodes)))
        features = [part.unit_columns(nodes) for part in self.parts]
        known = None if self.graph is None else self.graph.kept_columns(nodes)
        for start in range(0, len(nodes), _AT_ONCE):
            part = slice(start, start + _AT_ONCE)
            graph: Floats | float = 0.0
            if self.graph is not None:
                graph = self.graph.columns(nodes[part]) if known is None else known[:, part]
            own = sum(one.variance * unit[:, part] for one, unit in zip(self.parts, features, strict=True))
            found[:, part] = self._combined(graph, own)
        return found

    def _kept(self, nodes: Longs) -> Floats:
        """The same, kept for the observed nodes unless there are too many."""
        key = nodes.tobytes()
        if self._cross is not None and self._cross[0] == key:
            return self._cross[1]
        found = self.columns(nodes)
        if found.size <= _KEPT_ENTRIES:
            self._cross = key, found
        return found

    def spread(self, nodes: Longs, columns: Floats, at: Longs) -> Floats:
        """K between nodes ``at`` and some, each once, times columns; shape (n_at, k)."""
        return np.asarray(self._kept(nodes)[at] @ columns)

    def row_squares(self, nodes: Longs, columns: Floats) -> Floats:
        """Sums of the squares of the rows of K between all nodes and some, each once, times columns; (n_nodes,)."""
        known, found = self._kept(nodes), np.zeros(self.n_nodes)
        for start in range(0, columns.shape[1], _AT_ONCE):
            images = known @ columns[:, start : start + _AT_ONCE]
            found += np.einsum("ij,ij->i", images, images)
        return found

    def times(self, nodes: Longs, weights: Floats) -> Floats:
        """K between all nodes and some, repeats allowed, times weights; shape (n_nodes, k)."""
        distinct, place = np.unique(nodes, return_inverse=True)
        summed = sum_by_node(place, weights, len(distinct))
        found = np.zeros((self.n_nodes, weights.shape[1]))
        for start in range(0, len(distinct), _NODES_AT_ONCE):
            part = slice(start, start + _NODES_AT_ONCE)
            found += self.columns(distinct[part]) @ summed[part]
        return found

    def between(self, left: Longs, right: Longs, *, keep: bool) -> Floats:
        """K between some nodes and others; shape (n_left, n_right)."""
        (first, at_left), (second, at_right) = (np.unique(one, return_inverse=True) for one in (left, right))
        graph = 0.0 if self.graph is None else self.graph.between(first, second, keep=keep)
        features = sum(one.variance * one.unit_between(first, second) for one in self.parts)
        return self._combined(graph, features)[np.ix_(at_left, at_right)]

    def variances(self, nodes: Longs) -> Floats:
        """Prior variances of some nodes; shape (n,)."""
        graph = 0.0 if self.graph is None else self.graph.variances(nodes)
        return self._combined(graph, sum(one.variance * one.unit_variances(nodes) for one in self.parts))

    def variance_errors(self, nodes: Longs) -> Floats:
        """Standard errors of `variances`: those of the graph's part; shape (n,)."""
        if self.graph is None:
            return np.zeros(len(nodes))
        errors = self.graph.variance_errors(nodes)
        if not self._interaction or not errors.any():
            return errors
        features = sum(one.variance * one.unit_variances(nodes) for one in self.parts)
        return np.asarray(errors * (1.0 + self._interaction / self._graph_variance / self._total * features))

    def draw(self, count: int, rng: np.random.Generator) -> Floats:
        """Draws of the process; shape (n_nodes, count).

        On large graphs what is not linear in the features, or a product, is a sum of many random functions with the
        right covariance: nearly normal.
        """
        if self.n_nodes <= _DENSE_NODES:
            if self._root is None:
                every = np.arange(self.n_nodes)
                self._root = root_of(self.between(every, every, keep=False))
            return np.asarray(self._root @ rng.standard_normal((self.n_nodes, count)))
        found = np.zeros((self.n_nodes, count)) if self.graph is None else self.graph.draw(count, rng)
        for part in self.parts:
            found += np.sqrt(part.variance) * part.draw_unit(count, rng)
        if self._interaction and self.graph is not None:
            scale = np.sqrt(self._interaction / self._graph_variance / self._total / _PRODUCTS)
            for column in range(count):
                features = sum(np.sqrt(one.variance) * one.draw_unit(_PRODUCTS, rng) for one in self.parts)
                found[:, column] += scale * np.einsum("ij,ij->i", self.graph.draw(_PRODUCTS, rng), features)
        return found
