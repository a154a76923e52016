"""A process given by a block precision, under sites, at any node."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from graphmatern.inference.markov.determinants import Determinants
from graphmatern.inference.markov.fractional import BlockField, prior_draws
from graphmatern.inference.observations import sum_by_node
from graphmatern.inference.process import Predictive

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from graphmatern.inference.markov.fractional import BlockPrecision
    from graphmatern.inference.markov.fractional_process import Sites
    from graphmatern.inference.markov.pencil import Pencil

    Floats = NDArray[np.float64]
    Longs = NDArray[np.int64]

__all__ = ["BlockPredictive"]

_AT_ONCE = 16  # columns on the whole graph, which are large


class BlockPredictive(Predictive):
    """Through the factor of a block matrix, which is made when it is first needed.

    Parameters
    ----------
    precision : BlockPrecision
        The Laplacian and its analysis.
    pencil : Pencil
        Of the prior.
    shift : float
        c.
    roots : ndarray, shape (n_nodes,)
        √(s/m), by which φ is multiplied.
    observed : ndarray of int64, shape (n,)
        Positions of the observed nodes.
    sites : Sites
        On φ.
    field : BlockField, optional
        g under these sites, where it is at hand.
    """

    def __init__(
        self,
        precision: BlockPrecision,
        pencil: Pencil,
        shift: float,
        roots: Floats,
        observed: Longs,
        sites: Sites,
        field: BlockField | None = None,
    ) -> None:
        self._precision, self._pencil, self._shift = precision, pencil, shift
        self._roots, self._observed, self._sites = roots, observed, sites
        if field is not None:
            self._field = field

    @cached_property
    def _field(self) -> BlockField:
        return BlockField(self._precision, self._pencil, self._shift, self._sites.reduced)

    def _solve(self, summed: Floats) -> Floats:
        """Means of φ for potentials of φ; shape (n_nodes, k)."""
        seen = self._field.outputs(self._field.solve(self._sites.share[:, None] * summed))
        return self._sites.means(seen, summed)

    def means(self, nodes: Longs, potentials: Floats) -> Floats:
        """Means of f at some nodes; shape (n_nodes, k)."""
        n, found = self._precision.graph.n_nodes, np.empty((len(nodes), potentials.shape[1]))
        for start in range(0, potentials.shape[1], _AT_ONCE):
            part = slice(start, start + _AT_ONCE)
            summed = self._roots[:, None] * sum_by_node(self._observed, potentials[:, part], n)
            found[:, part] = (self._roots[:, None] * self._solve(summed))[nodes]
        return found

    @cached_property
    def _variance(self) -> Floats:
        return self._roots**2 * self._sites.variances(self._field.output_variances())

    def variances(self, nodes: Longs) -> Floats:
        """Variances of f at some nodes; shape (n_nodes,)."""
        return self._variance[nodes]

    def covariances(self, nodes: Longs) -> Floats:
        """Covariance of f at some nodes; shape (n_nodes, n_nodes)."""
        n, found = self._precision.graph.n_nodes, np.empty((len(nodes), len(nodes)))
        for start in range(0, len(nodes), _AT_ONCE):
            chosen = nodes[start : start + _AT_ONCE]
            right = np.zeros((n, len(chosen)))
            right[chosen, np.arange(len(chosen))] = self._roots[chosen]
            found[:, start : start + _AT_ONCE] = (self._roots[:, None] * self._solve(right))[nodes]
        return 0.5 * (found + found.T)

    def edge_covariances(self, sources: Longs, targets: Longs) -> Floats:
        """Covariances of f between the ends of edges, which the selected inverse has; shape (n_edges,)."""
        seen, sites = self._field.output_covariances(sources, targets), self._sites
        found = sites.share[sources] * sites.share[targets] * seen
        found = found + np.where(sources == targets, sites.white * sites.share[sources], 0.0)
        return np.asarray(self._roots[sources] * self._roots[targets] * found)

    def deviations(self, n_samples: int, nodes: Longs, rng: np.random.Generator) -> Floats:
        """Draws of f minus its mean; shape (n_samples, n_nodes)."""
        found = np.empty((n_samples, len(nodes)))
        for start in range(0, n_samples, _AT_ONCE):
            count = min(_AT_ONCE, n_samples - start)
            draws = self._rough(count, rng) if self._pencil.power == 0 else self._smooth(count, rng)
            found[start : start + count] = (self._roots[:, None] * draws)[nodes].T
        return found

    def _rough(self, count: int, rng: np.random.Generator) -> Floats:
        """Draws of φ from the factor, which is one of Cholesky's, and white noise."""
        field, sites = self._field, self._sites
        n = self._precision.graph.n_nodes
        seen = field.outputs(field.draw(rng.standard_normal((n * self._pencil.size, count))))
        return sites.share[:, None] * seen + np.sqrt(sites.white * sites.share)[:, None] * rng.standard_normal(
            (n, count)
        )

    def _smooth(self, count: int, rng: np.random.Generator) -> Floats:
        """Draws of φ: prior draws conditioned on sites that are not negative, φ − B⁻¹(Dφ + √D z), and the rest."""
        field = self._without_negative
        prior = prior_draws(Determinants(self._precision), self._pencil, self._shift, count, rng)
        kept = np.maximum(field.added, 0.0)[:, None]
        noisy = kept * prior + np.sqrt(kept) * rng.standard_normal(prior.shape)
        return prior - field.outputs(field.solve_outputs(noisy)) + field.draw_low_rank(count, rng)

    @cached_property
    def _without_negative(self) -> BlockField:
        """The field, split so that negative sites are a correction of low rank."""
        field = self._field
        if field.is_split or not (field.added < 0.0).any():
            return field
        return BlockField(self._precision, self._pencil, self._shift, self._sites.reduced, split=True)
