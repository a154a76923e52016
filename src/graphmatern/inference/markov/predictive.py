"""A process given by a sparse precision, under sites, at any node."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from graphmatern.inference.observations import sum_by_node
from graphmatern.inference.process import Predictive

if TYPE_CHECKING:
    from collections.abc import Callable

    import scipy.sparse as sp
    from numpy.typing import NDArray

    from graphmatern.inference.markov.precision import MarkovPrecision
    from graphmatern.sparse import Factor

    Floats = NDArray[np.float64]
    Longs = NDArray[np.int64]

__all__ = ["MarkovPredictive"]

_AT_ONCE = 32  # columns on the whole graph, which are large


class MarkovPredictive(Predictive):
    """Through the factor of P = Q + diag(Σ η at each node), which is made when it is first needed.

    Parameters
    ----------
    precision : MarkovPrecision
        Of the prior.
    coefficients : ndarray, shape (ν + 1,)
        Of Q in powers of the Laplacian.
    observed : ndarray of int64, shape (n,)
        Positions of the observed nodes.
    eta : ndarray, shape (n,)
        η.
    factor : Factor, optional
        Of P, where it is at hand.
    variance : ndarray, shape (n_nodes,), optional
        Diagonal of P⁻¹, likewise.
    """

    def __init__(
        self,
        precision: MarkovPrecision,
        coefficients: Floats,
        observed: Longs,
        eta: Floats,
        factor: Factor | None = None,
        variance: Floats | None = None,
    ) -> None:
        self._precision, self._coefficients, self._observed, self._eta = precision, coefficients, observed, eta
        if factor is not None:
            self._factor = factor
        if variance is not None:
            self._variance = variance

    @cached_property
    def _factor(self) -> Factor:
        n = self._precision.graph.n_nodes
        added = sum_by_node(self._observed, self._eta[:, None], n)[:, 0]
        lower = self._precision.polynomial.lower(self._coefficients, added)
        return self._precision.analysis.factorize_lower(lower)

    @cached_property
    def _variance(self) -> Floats:
        return self._factor.diagonal_of_inverse()

    @cached_property
    def _selected(self) -> sp.csc_array:
        """P⁻¹ on the pattern of P."""
        return self._factor.selected_inverse().to_csc()

    def means(self, nodes: Longs, potentials: Floats) -> Floats:
        """Means of f at some nodes; shape (n_nodes, k)."""
        right = sum_by_node(self._observed, potentials, self._precision.graph.n_nodes)
        return np.asarray(self._factor.solve(right)[nodes])

    def variances(self, nodes: Longs) -> Floats:
        """Variances of f at some nodes; shape (n_nodes,)."""
        return self._variance[nodes]

    def _in_blocks(
        self, solve: Callable[[Floats], Floats], nodes: Longs, columns: Callable[[slice], Floats], count: int
    ) -> Floats:
        """Solutions at some nodes, a few right-hand sides at a time; shape (n_nodes, count)."""
        found = np.empty((len(nodes), count))
        for start in range(0, count, _AT_ONCE):
            part = slice(start, min(start + _AT_ONCE, count))
            found[:, part] = solve(columns(part))[nodes]
        return found

    def covariances(self, nodes: Longs) -> Floats:
        """Covariance of f at some nodes; shape (n_nodes, n_nodes)."""
        n = self._precision.graph.n_nodes

        def units(part: slice) -> Floats:
            chosen = nodes[part]
            right = np.zeros((n, len(chosen)))
            right[chosen, np.arange(len(chosen))] = 1.0
            return right

        found = self._in_blocks(self._factor.solve, nodes, units, len(nodes))
        return 0.5 * (found + found.T)

    def covariance_times(self, nodes: Longs, others: Longs, weights: Floats) -> Floats:
        """Covariances of f between some nodes and others, times weights; shape (n_nodes, k)."""
        n = self._precision.graph.n_nodes

        def columns(part: slice) -> Floats:
            return sum_by_node(others, weights[:, part], n)

        return self._in_blocks(self._factor.solve, nodes, columns, weights.shape[1])

    def with_sites(self, nodes: Longs, precision: Floats) -> MarkovPredictive:
        """The same process under further sites, of the same pattern; see `Predictive.with_sites`."""
        observed, eta = np.concatenate([self._observed, nodes]), np.concatenate([self._eta, precision])
        return MarkovPredictive(self._precision, self._coefficients, observed, eta)

    def edge_covariances(self, sources: Longs, targets: Longs) -> Floats:
        """Covariances of f between the ends of edges, which the selected inverse has; shape (n_edges,)."""
        return np.asarray(self._selected[sources, targets]).ravel()

    def deviations(self, n_samples: int, nodes: Longs, rng: np.random.Generator) -> Floats:
        """Draws of f minus its mean, from the sparse factor; shape (n_samples, n_nodes)."""
        n = self._precision.graph.n_nodes

        def normal(part: slice) -> Floats:
            return rng.standard_normal((n, part.stop - part.start))

        return self._in_blocks(self._factor.solve_upper, nodes, normal, n_samples).T
