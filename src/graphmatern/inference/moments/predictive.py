"""A process given by moments, under sites, at any node: polynomials of the Laplacian applied to vectors."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.linalg as la

from graphmatern.inference.dense import root_of
from graphmatern.inference.moments.diagonal import Diagonal, estimate_diagonal
from graphmatern.inference.moments.prior import in_masses
from graphmatern.inference.observations import sum_by_node
from graphmatern.inference.process import Predictive

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from graphmatern.inference.dense import CovarianceConditioned
    from graphmatern.inference.moments.krylov import KrylovConditioned
    from graphmatern.inference.moments.prior import NodePrior, PriorField

    Floats = NDArray[np.float64]
    Longs = NDArray[np.int64]

__all__ = ["KrylovPredictive", "MomentPredictive"]

_AT_ONCE = 64
_SOLVED_NODES = 256  # posterior variances of so many nodes are solved for one by one
_PROBES, _SEED = 256, 12  # for the variances of many observed nodes
_ROUGHLY, _AT_DATA = 1e-3, 1e-4  # residuals, relative, of estimates
_SMALL = 1e-3  # error of what probes are multiplied with, relative to the average prior variance
_SECONDS, _MOST, _ITERATIONS = 8.0, 1_024, 15  # for estimates better than they must be: time, probes, and of each


class MomentPredictive(Predictive):
    """The process under sites of given precisions.

    Parameters
    ----------
    prior : NodePrior
        The process on all nodes.
    conditioned : CovarianceConditioned
        The process at the observations.
    """

    def __init__(self, prior: NodePrior, conditioned: CovarianceConditioned) -> None:
        self._prior, self._conditioned = prior, conditioned
        self._observed, self._place = np.unique(conditioned.group.nodes, return_inverse=True)

    def _spread(self, columns: Floats, nodes: Longs) -> Floats:
        """K between some nodes and the observations, times columns; shape (n_nodes, k)."""
        return self._prior.spread(self._observed, sum_by_node(self._place, columns, len(self._observed)), nodes)

    def means(self, nodes: Longs, potentials: Floats) -> Floats:
        """Means of f at some nodes; shape (n_nodes, k)."""
        solution, observed = self._conditioned.solve(potentials), np.isin(nodes, self._observed)
        # As the sites have it: strong ones magnify what other polynomials leave of the misfit.
        at_observed = np.empty((len(self._observed), potentials.shape[1]))
        at_observed[self._place] = solution.mean
        found = np.empty((len(nodes), potentials.shape[1]))
        found[observed] = at_observed[np.searchsorted(self._observed, nodes[observed])]
        if not observed.all():
            found[~observed] = self._spread(solution.alpha, nodes[~observed])
        return found

    def join(self, others: Sequence[Predictive]) -> None:
        """Share products; see `PriorField.join`."""
        self._prior.join([one._prior for one in others if isinstance(one, MomentPredictive)])

    @cached_property
    def _inverse_root(self) -> tuple[Floats, Floats]:
        """Roots R₊, R₋ with C⁻¹ = R₊R₊ᵀ − R₋R₋ᵀ, where sites may be negative; shapes (n, k)."""
        values, vectors = la.eigh(self._conditioned.inverse)
        keep = np.abs(values) > 1e-14 * np.abs(values).max(initial=1e-300)
        scaled = vectors * np.sqrt(np.abs(values))
        return scaled[:, keep & (values > 0)], scaled[:, keep & (values < 0)]

    @cached_property
    def _explained(self) -> Floats:
        """Prior minus posterior variance of all nodes, K_·x C⁻¹ K_x·; shape (n_nodes,)."""
        found = np.zeros(self._prior.n_nodes)
        for sign, root in zip((1.0, -1.0), self._inverse_root, strict=True):
            columns = sum_by_node(self._place, root, len(self._observed))
            found += sign * self._prior.row_squares(self._observed, columns)
        return found

    @cached_property
    def _at_observed(self) -> Floats:
        """Variances of the observed nodes, without the digits that subtraction costs; shape (n_distinct,)."""
        found = np.empty(len(self._observed))
        found[self._place] = self._conditioned.variance()
        return found

    def variances(self, nodes: Longs) -> Floats:
        """Variances of f at some nodes; shape (n_nodes,)."""
        found, observed = np.empty(len(nodes)), np.isin(nodes, self._observed)
        found[observed] = self._at_observed[np.searchsorted(self._observed, nodes[observed])]
        others = nodes[~observed]
        if len(others):
            explained = self._explained[others]  # first, as it keeps columns that prior variances are estimated with
            found[~observed] = np.maximum(self._prior.variances(others) - explained, 0.0)
        return found

    def variance_errors(self, nodes: Longs) -> Floats:
        """Standard errors of variances: those of the prior's, but for observed nodes; shape (n_nodes,)."""
        found, others = np.zeros(len(nodes)), ~np.isin(nodes, self._observed)
        found[others] = self._prior.variance_errors(nodes[others])
        return found

    def covariances(self, nodes: Longs) -> Floats:
        """Covariance of f at some nodes; shape (n_nodes, n_nodes)."""
        found = self._prior.between(nodes, nodes, keep=False)
        for sign, root in zip((-1.0, 1.0), self._inverse_root, strict=True):
            images = self._spread(root, nodes)
            found += sign * (images @ images.T)
        return 0.5 * (found + found.T)

    def covariance_times(self, nodes: Longs, others: Longs, weights: Floats) -> Floats:
        """Covariances of f between some nodes and others, times weights; shape (n_nodes, k)."""
        prior = self._prior.times(others, weights)
        explained = self._spread(self._conditioned.inverse @ prior[self._conditioned.group.nodes], nodes)
        return np.asarray(prior[nodes] - explained)

    def deviations(self, n_samples: int, nodes: Longs, rng: np.random.Generator) -> Floats:
        """Draws of f minus its mean: of the prior, moved to draws at the observations; shape (n_samples, n_nodes)."""
        found = np.empty((n_samples, len(nodes)))
        for start in range(0, n_samples, _AT_ONCE):
            count = min(_AT_ONCE, n_samples - start)
            prior = self._prior.draw(count, rng)
            correction = self._correction(prior[self._conditioned.group.nodes], rng)
            found[start : start + count] = (prior[nodes] - self._spread(correction, nodes)).T
        return found

    def _correction(self, prior: Floats, rng: np.random.Generator) -> Floats:
        """What takes draws of the prior at the observations to draws under the sites, as K_xx times this; (n, k)."""
        conditioned = self._conditioned
        eta, normal = conditioned.precision, rng.standard_normal(prior.shape)
        if (eta >= 0.0).all():
            # As if the sites were noisy observations of the draw itself.
            return np.asarray(conditioned.inverse @ prior + conditioned.solve(np.sqrt(eta)[:, None] * normal).alpha)
        covariance = conditioned.prior_covariance
        values, vectors = la.eigh(covariance)
        keep = values > 1e-10 * values[-1]
        posterior = covariance - covariance @ conditioned.inverse @ covariance
        drawn = root_of(0.5 * (posterior + posterior.T)) @ normal
        return np.asarray((vectors[:, keep] / values[keep]) @ (vectors[:, keep].T @ (prior - drawn)))


class KrylovPredictive(Predictive):
    """The process under sites at more nodes than fit a dense matrix.

    Parameters
    ----------
    prior : PriorField
        The process on all nodes.
    conditioned : KrylovConditioned
        The process at the observations.
    """

    def __init__(self, prior: PriorField, conditioned: KrylovConditioned) -> None:
        self._prior, self._conditioned = prior, conditioned
        self._exactly = conditioned.accuracy.predictions
        none = np.zeros((len(conditioned.nodes), 0))
        self._known = none, none  # columns b that were solved for, and solutions

    def _spread(self, solved: Floats, nodes: Longs) -> Floats:
        """K between some nodes and those observed, times D u; shape (n_nodes, k)."""
        return self._prior.spread(self._conditioned.nodes, self._conditioned.unwhiten(solved), nodes)

    def means(self, nodes: Longs, potentials: Floats) -> Floats:
        """Means of f at some nodes; shape (n_nodes, k)."""
        return self._spread(self._solved(self._conditioned.whiten(potentials)), nodes)

    def _solved(self, columns: Floats) -> Floats:
        """Solve B u = b for columns b, from what was solved before: means are asked for with combinations of others."""
        (known, solved), rows = self._known, self._prior.rows
        share = np.linalg.pinv(rows.total(known.T @ known), rcond=1e-14) @ rows.total(known.T @ columns)
        left = columns - known @ share
        sizes, enough = rows.dots(left, left), self._exactly**2 * rows.dots(columns, columns)
        new = sizes > enough
        found = solved @ share
        if new.any():
            found[:, new] += self._conditioned.solve_whitened(left[:, new], np.sqrt(enough[new] / sizes[new]))
            kept = slice(None if known.shape[1] < _AT_ONCE else 0)
            self._known = np.hstack([known[:, kept], columns]), np.hstack([solved[:, kept], found])
        return np.asarray(found)

    def _explained_by_data(self, covariances: Floats, tolerance: float) -> Floats:
        """Solve for covariances with the observed nodes: B⁻¹ D K_x·; shape (n_distinct, k)."""
        conditioned = self._conditioned
        return conditioned.solve_whitened(conditioned.unwhiten(covariances), tolerance)

    @cached_property
    def estimated_variances(self) -> Diagonal:
        """Variances of all nodes from probes."""
        operator, observed = self._prior.operator, self._conditioned.nodes
        masses, products = operator.graph.masses, operator.products
        root = 1.0 if masses is None else products.block(np.sqrt(masses)[:, None])

        prior, conditioned = self._prior.roughly(_SMALL), self._conditioned.roughly(_SMALL)
        sites = np.flatnonzero(conditioned.node_precision)

        def times(block: Any) -> Any:
            # Probes differ by far more than single precision, truncated polynomials and large residuals.
            image = prior.apply(root * block)
            solved = conditioned.solve_whitened(conditioned.unwhiten(products.taken(image, observed)), _ROUGHLY)
            image -= prior.apply(products.scattered(observed, conditioned.unwhiten(solved)))
            # At the data a small difference would be left of this: K − KD B⁻¹ DK = D⁻¹ B⁻¹ DK there.
            products.put(image, observed[sites], conditioned.over_root(solved)[sites])
            return root * image

        # No node is known better than by its own sites with all others given, where K⁻¹ is at its largest.
        precision = np.zeros(self._prior.n_nodes)
        precision[observed] = self._conditioned.node_precision / (1.0 if masses is None else masses[observed])
        least = 1.0 / (1.0 / max(self._prior.smallest, 1e-300) + precision)
        affordable = min(_SECONDS / products.seconds(1, _ITERATIONS * len(self._prior.coefficients)), _MOST)
        affordable = affordable if self._prior.rows.whole else 0.0
        return in_masses(estimate_diagonal(operator, times, least=least, affordable=affordable), operator)

    @cached_property
    def _estimated_at_observed(self) -> tuple[Floats, Floats]:
        """Variances of the observed nodes with sites from probes, as η S = I − B⁻¹, and their standard errors.

        Others are NaN; each of shape (n_distinct,).
        """
        conditioned, rows = self._conditioned, self._prior.rows
        root = conditioned.unwhiten(np.ones((len(conditioned.nodes), 1)))[:, 0]
        left, squares = np.zeros(len(root)), np.zeros(len(root))
        for first in range(0, _PROBES, _AT_ONCE):
            probes = rows.signs(_AT_ONCE, _SEED, first=first, at=conditioned.nodes)
            own = probes * conditioned.solve_whitened(probes, _AT_DATA)
            left += own.sum(axis=1)
            squares += np.einsum("ij,ij->i", own, own)
        errors = np.sqrt(np.maximum(squares - left**2 / _PROBES, 0.0) / (_PROBES * (_PROBES - 1)))
        # No site takes more than its own share: B⁻¹ is at least 1 / (1 + η K) on the diagonal, and at most 1.
        least = 1.0 / (1.0 + root**2 * np.maximum(self._prior.variances(conditioned.nodes), 0.0))
        left = np.clip(left / _PROBES, least, 1.0)
        unknown = np.full(len(root), np.nan)
        values, errors = (
            np.asarray(np.divide(one, root**2, out=unknown.copy(), where=root > 0.0)) for one in (1.0 - left, errors)
        )
        return values, errors

    def variances(self, nodes: Longs) -> Floats:
        """Variances of f at some nodes: one by one for few, else from probes; shape (n_nodes,)."""
        if self._are_many(nodes):
            return self._estimates(nodes)[0]
        every = self._prior.rows.every(nodes)
        found = np.empty(len(every))
        for start in range(0, len(every), _AT_ONCE):
            part = slice(start, start + _AT_ONCE)
            found[part] = np.diag(self._covariances(every[part]))
        return np.maximum(found, 0.0)[np.searchsorted(every, self._prior.rows.keys[nodes])]

    def variance_errors(self, nodes: Longs) -> Floats:
        """Standard errors of `variances`: 0 for few nodes; shape (n_nodes,)."""
        return self._estimates(nodes)[1] if self._are_many(nodes) else np.zeros(len(nodes))

    def _are_many(self, nodes: Longs) -> bool:
        return self._prior.rows.total(len(np.unique(nodes))) > _SOLVED_NODES

    def _estimates(self, nodes: Longs) -> tuple[Floats, Floats]:
        """Variances from probes, and their standard errors; each of shape (n_nodes,)."""
        if self._prior.rows.total(int((~np.isin(nodes, self._conditioned.nodes)).sum())):
            return self.estimated_variances.values[nodes], self.estimated_variances.errors[nodes]
        # Leaving one observation out asks for these, and magnifies their errors.
        places = np.searchsorted(self._conditioned.nodes, nodes)
        values, errors = (one[places] for one in self._estimated_at_observed)
        rest = np.isnan(values)
        if self._prior.rows.total(int(rest.sum())):
            values[rest], errors[rest] = (one[nodes[rest]] for one in self.estimated_variances[:2])
        return values, errors

    def covariances(self, nodes: Longs) -> Floats:
        """Covariance of f at some nodes; shape (n_nodes, n_nodes)."""
        return self._covariances(self._prior.rows.keys[nodes])

    def _covariances(self, keys: Longs) -> Floats:
        """Covariance of f at nodes, whoever holds them; shape (n_keys, n_keys)."""
        columns, rows = self._prior.columns(keys), self._prior.rows
        with_data = columns[self._conditioned.nodes]
        solved = self._explained_by_data(with_data, self._exactly)
        found = rows.taken(keys, columns) - rows.total(self._conditioned.unwhiten(with_data).T @ solved)
        return np.asarray(0.5 * (found + found.T))

    def total(self, found: Floats) -> Floats:
        """Sum over all observations; see `Predictive.total`."""
        return self._prior.rows.total(found)

    def covariance_times(self, nodes: Longs, others: Longs, weights: Floats) -> Floats:
        """Covariances of f between some nodes and others, times weights; shape (n_nodes, k)."""
        prior = self._prior.times(others, weights)
        solved = self._explained_by_data(prior[self._conditioned.nodes], self._exactly)
        return np.asarray(prior[nodes] - self._spread(solved, nodes))

    def deviations(self, n_samples: int, nodes: Longs, rng: np.random.Generator) -> Floats:
        """Draws of f minus its mean: of the prior, less what noisy observations of it say; (n_samples, n_nodes)."""
        found, conditioned = np.empty((n_samples, len(nodes))), self._conditioned
        for start in range(0, n_samples, _AT_ONCE):
            count = min(_AT_ONCE, n_samples - start)
            prior = self._prior.draw(count, rng)
            seen = conditioned.unwhiten(prior[conditioned.nodes])
            seen += conditioned.observed * rng.standard_normal(seen.shape)
            moved = self._spread(conditioned.solve_whitened(seen, self._exactly), nodes)
            found[start : start + count] = (prior[nodes] - moved).T
        return found
