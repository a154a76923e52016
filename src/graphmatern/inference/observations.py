"""What was observed where: nodes, values, noise, offsets and linear effects, as the engines see them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Longs = NDArray[np.int64]

__all__ = ["Group", "Observations", "sum_by_node"]


@dataclass(frozen=True, eq=False)
class Group:
    """Replicates observed at the same places.

    Attributes
    ----------
    nodes : ndarray of int64, shape (n,)
        Positions of the observed nodes; repeats are allowed.
    y : ndarray, shape (n, n_replicates)
        Values, without missing ones.
    noise : ndarray, shape (n,)
        Noise variances relative to the noise parameter of a Gaussian likelihood.
    offset : ndarray, shape (n,)
        Known part of the latent mean.
    design : ndarray, shape (n, n_effects)
        Linear effects.
    columns : ndarray of int64, shape (n_replicates,)
        Which replicates these are.
    """

    nodes: Longs
    y: Floats
    noise: Floats
    offset: Floats
    design: Floats
    columns: Longs

    @property
    def n_replicates(self) -> int:
        """Number of replicates."""
        return int(self.y.shape[1])

    @cached_property
    def data(self) -> Floats:
        """Values less offsets, and linear effects, side by side; shape (n, n_replicates + n_effects)."""
        return np.hstack([self.y - self.offset[:, None], self.design])


@dataclass(frozen=True, eq=False)
class Observations:
    """All that was observed, in the units in which the processes have a variance near 1.

    Attributes
    ----------
    nodes : ndarray of int64, shape (n,)
        Positions of the observed nodes; repeats are allowed.
    y : ndarray, shape (n, n_replicates)
        Values, or codes of classes; NaN where a replicate was not observed.
    node_design : ndarray, shape (n_nodes, n_effects)
        Linear effects at every node of the graph; a constant mean is a column of ones.
    noise : ndarray, shape (n,), optional
        Known noise variances, or their ratios; equal by default.
    offset : ndarray, shape (n,), optional
        Known part of the latent mean, such as the logarithm of an exposure; 0 by default.
    own_design : ndarray, shape (n, n_effects), optional
        Linear effects of every observation, where these are not those of its node.
    """

    nodes: Longs
    y: Floats
    node_design: Floats
    noise: Floats | None = None
    offset: Floats | None = None
    own_design: Floats | None = None

    @property
    def n_effects(self) -> int:
        """Number of linear effects."""
        return int(self.node_design.shape[1])

    @property
    def n_replicates(self) -> int:
        """Number of replicates."""
        return int(self.y.shape[1])

    @cached_property
    def count(self) -> int:
        """Number of values observed, over all replicates."""
        return int((~np.isnan(self.y)).sum())

    def _group(self, rows: Longs, columns: Longs) -> Group:
        noise = np.ones(len(rows)) if self.noise is None else self.noise[rows]
        offset = np.zeros(len(rows)) if self.offset is None else self.offset[rows]
        nodes = self.nodes[rows]
        design = self.node_design[nodes] if self.own_design is None else self.own_design[rows]
        return Group(nodes, self.y[np.ix_(rows, columns)], noise, offset, design, columns)

    def take(self, rows: Longs) -> Observations:
        """Some of the observations."""
        noise, offset, design = (
            None if one is None else one[rows] for one in (self.noise, self.offset, self.own_design)
        )
        return Observations(self.nodes[rows], self.y[rows], self.node_design, noise, offset, design)

    @cached_property
    def groups(self) -> list[Group]:
        """Replicates observed at the same places, together: with Gaussian noise they share all factorisations."""
        observed = ~np.isnan(self.y)
        if observed.all():
            return [self._group(np.arange(len(self.y)), np.arange(self.n_replicates))]
        patterns, label = np.unique(observed, axis=1, return_inverse=True)
        label = label.ravel()
        return [
            self._group(np.flatnonzero(patterns[:, k]), np.flatnonzero(label == k)) for k in range(patterns.shape[1])
        ]

    @cached_property
    def replicates(self) -> list[Group]:
        """Every replicate by itself: with other likelihoods each has sites of its own."""
        every = range(self.n_replicates)
        return [self._group(np.flatnonzero(~np.isnan(self.y[:, k])), np.array([k])) for k in every]


def sum_by_node(nodes: Longs, values: Floats, n_nodes: int) -> Floats:
    """Add up rows of values that belong to the same node; shape (n_nodes, k)."""
    total = np.zeros((n_nodes, values.shape[1]))
    if len(nodes):  # counts of nothing are whole numbers, not sums
        for k, column in enumerate(values.T):
            total[:, k] = np.bincount(nodes, weights=column, minlength=n_nodes)
    return total
