"""The field given the observed cells: means, variances, covariances and draws at any times and nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import scipy.linalg as la

from graphmatern.inference.effects import Effects, GaussianEvidence
from graphmatern.inference.field.state_space import StateSpace
from graphmatern.inference.field.systems import Cells
from graphmatern.inference.weighted import Normals, Weighted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from graphmatern.graph import Spectrum
    from graphmatern.inference.field.covariance import FieldEffects
    from graphmatern.inference.field.systems import FieldSystem
    from graphmatern.inference.field.time_kernel import TimeKernel

    Floats = NDArray[np.float64]
    Longs = NDArray[np.int64]
    Pairs = tuple[Longs, Longs]

__all__ = ["FieldMixture", "FieldPosterior", "gather_evidence"]


def gather_evidence(
    system: FieldSystem, effects: FieldEffects, log_determinant: float, *, in_fit: bool = False
) -> tuple[GaussianEvidence, Floats]:
    """Marginal likelihood of the observations, and C⁻¹ of values and effects; shape (1 + p, n_times, n_nodes)."""
    design = effects.design[system.grid.nodes]
    forms, solved = system.forms(system.grid.data(design), in_fit=in_fit)
    evidence = GaussianEvidence(Effects(design.shape[1], effects.precision))
    evidence.add(log_determinant, forms, 1, system.grid.n_observed)
    return evidence, solved


class FieldPosterior:
    """Predictions at cells: pairs of a time and a node, or all pairs of some times and some nodes.

    Coefficients β of linear effects h are integrated out (universal kriging): with d = h − HᵀC⁻¹k the mean is
    hᵀβ̂ + kᵀC⁻¹(y − Hβ̂) and the variance grows by dᵀ cov(β) d.

    Parameters
    ----------
    spectrum : Spectrum
        Eigenpairs of the graph.
    time : TimeKernel
        Kernel on time, with the parameters of ``system``.
    system : FieldSystem
        Equations of the observed cells.
    effects : FieldEffects
        Linear effects of the mean.

    Attributes
    ----------
    time : TimeKernel
        Kernel on time.
    coefficients, coefficient_covariance : ndarray, shape (p,) and (p, p)
        Mean and covariance of β.
    """

    def __init__(self, spectrum: Spectrum, time: TimeKernel, system: FieldSystem, *, effects: FieldEffects) -> None:
        self._basis = spectrum.basis
        self.time = time
        self.system = system
        self._weights = system.covariance.weights
        self._evidence, solved = gather_evidence(system, effects, 0.0)
        found = self._evidence.effects
        self._design, self._solved = effects.design, solved[1:]
        self.coefficients = found.mean if found.count else np.zeros(0)
        self.coefficient_covariance = found.covariance if found.count else np.zeros((0, 0))
        self._residual = solved[0] - np.tensordot(self.coefficients, self._solved, 1)

    def log_marginal_likelihood(self) -> tuple[float, float]:
        """Log marginal likelihood, the constant included, and its standard error, 0 where it is exact."""
        log_determinant, error = self.system.best_log_determinant()
        return -self._evidence.negative_log_likelihood() - 0.5 * log_determinant, 0.5 * error

    def cells(self, times: Floats, nodes: Longs, pairs: Pairs | None = None) -> Cells:
        """Describe cells: pairs of rows of ``times`` and ``nodes``, or all of them.

        Parameters
        ----------
        times : ndarray, shape (n_new_times,)
            Times, in the unit of the grid.
        nodes : ndarray of int64, shape (n_new_nodes,)
            Positions of nodes in the graph.
        pairs : tuple of ndarray of int64, optional
            Which pairs.
        """
        grid, basis = self.system.grid, self._basis
        wanted = basis[nodes]
        return Cells(
            self.time,
            times,
            grid.times,
            (wanted * self._weights) @ basis[grid.nodes].T,
            pairs,
            node_variance=wanted**2 @ self._weights,
            node_design=self._design[nodes],
        )

    def _sensitivity(self, cells: Cells) -> Floats:
        """How predictions change with the coefficients; shape (p, *cells.shape)."""
        return cells.design() - np.stack([self.system.project(cells, one) for one in self._solved])

    def mean(self, cells: Cells) -> Floats:
        """Posterior means; shape ``cells.shape``."""
        level = np.tensordot(self.coefficients, cells.design(), 1)
        return np.asarray(level + self.system.project(cells, self._residual))

    def variance(self, cells: Cells) -> Floats:
        """Posterior variances; shape ``cells.shape``."""
        variance = cells.prior_variance() - self.system.explained(cells)
        if len(self.coefficients):
            d = self._sensitivity(cells)
            variance = variance + np.einsum("i...,ij,j...->...", d, self.coefficient_covariance, d)
        return np.maximum(variance, 0.0)  # rounding may leave a little less

    # ------------------------------------------------------------------ what estimators ask, of this or of a mixture
    @property
    def mode(self) -> FieldPosterior:
        """The posterior at the mode of the parameters: there is no other."""
        return self

    @property
    def weights(self) -> Floats:
        """Of this, as of the components of a mixture; shape (1,)."""
        return np.ones(1)

    @property
    def components(self) -> list[FieldPosterior]:
        """The components: there is no other."""
        return [self]

    @property
    def noises(self) -> Floats:
        """Noise variances of the components; shape (1,)."""
        return np.array([self.system.covariance.rho])

    def means(self, times: Floats, nodes: Longs, pairs: Pairs | None = None) -> Floats:
        """Posterior means of some cells; arguments as of `cells`."""
        return self.mean(self.cells(times, nodes, pairs))

    def marginals(self, times: Floats, nodes: Longs, pairs: Pairs | None = None) -> Normals:
        """Distributions of some cells; arguments as of `cells`."""
        cells = self.cells(times, nodes, pairs)
        return Normals(self.weights, self.mean(cells)[None], self.variance(cells)[None])

    def covariance(self, times: Floats, nodes: Longs, pairs: Pairs) -> Floats:
        """Posterior covariance of some cells; shape (n_cells, n_cells)."""
        cells = self.cells(times, nodes, pairs)
        t, s = pairs
        between_nodes = (self._basis[nodes] * self._weights) @ self._basis[nodes].T
        covariance = self.time.values(times)[np.ix_(t, t)] * between_nodes[np.ix_(s, s)]
        observed = self.system.grid.observed
        for start in range(0, len(t), self.system.batch):
            part = slice(start, start + self.system.batch)
            crosses = cells.time[t[part], :, None] * cells.nodes[s[part], None, :] * observed
            for column, solved in enumerate(self.system.solve(crosses), start):
                covariance[:, column] -= self.system.project(cells, solved)
        if len(self.coefficients):
            d = self._sensitivity(cells)
            covariance += d.T @ self.coefficient_covariance @ d
        return np.asarray(0.5 * (covariance + covariance.T))

    def _paths(self, times: Floats) -> Callable[[np.random.Generator], Floats]:
        """Draw prior paths at increasing times, one for every eigenvector; shape (n_times, n_eigenpairs)."""
        count = len(self._weights)
        if isinstance(self.system, StateSpace):
            chain, scale = self.system.chain, float(np.sqrt(self.system.variance))
            return lambda rng: scale * chain.draw(times, count, rng)
        size, turn = la.eigh(self.time.values(times))
        root = turn * np.sqrt(np.maximum(size, 0.0))
        return lambda rng: np.asarray(root @ rng.standard_normal((len(times), count)))

    def sample(self, n_samples: int, times: Floats, nodes: Longs, rng: np.random.Generator) -> Floats:
        """Draws at all pairs, by pathwise conditioning; shape (n_samples, n_new_times, n_new_nodes)."""
        grid, basis = self.system.grid, self._basis
        cells = self.cells(times, nodes)
        n_old = len(grid.times)
        joined, place = np.unique(np.concatenate([grid.times, times]), return_inverse=True)
        draw = self._paths(joined)
        draws = np.empty((n_samples, len(times), len(nodes)))
        level = np.tensordot(self.coefficients, cells.design(), 1)
        for k in range(n_samples):
            paths = draw(rng)[place] * np.sqrt(self._weights)
            prior = paths[:n_old] @ basis[grid.nodes].T
            noise = np.sqrt(self.system.covariance.rho) * rng.standard_normal(grid.shape)
            drawn = self.system.solve(((prior + noise) * grid.observed)[None])[0]
            correction = self.system.project(cells, self._residual - drawn)
            draws[k] = level + paths[n_old:] @ basis[nodes].T + correction
        if len(self.coefficients):
            root = np.linalg.cholesky(self.coefficient_covariance)
            shift = rng.standard_normal((n_samples, len(root))) @ root.T
            draws += np.tensordot(shift, self._sensitivity(cells), 1)
        return draws


class FieldMixture(Weighted[FieldPosterior]):
    """A mixture of fields, one for each of some parameters, with the verbs of a single one.

    Parameters
    ----------
    makers : sequence of callable
        Return the posterior of each component; called when it is first needed.
    weights : ndarray, shape (n_components,)
        They add up to 1.
    mode : FieldPosterior
        At the mode of the parameters, for what is said about one.
    """

    def __init__(self, makers: Sequence[Callable[[], FieldPosterior]], weights: Floats, mode: FieldPosterior) -> None:
        super().__init__(makers, weights)
        self.mode = mode

    @property
    def noises(self) -> Floats:
        """Noise variances of the components; shape (n_components,)."""
        return np.concatenate([one.noises for one in self.components])

    def means(self, times: Floats, nodes: Longs, pairs: Pairs | None = None) -> Floats:
        """Posterior means of some cells; arguments as of `FieldPosterior.cells`."""
        return self._average([one.means(times, nodes, pairs) for one in self.components])

    def marginals(self, times: Floats, nodes: Longs, pairs: Pairs | None = None) -> Normals:
        """Distributions of some cells; arguments as of `FieldPosterior.cells`."""
        parts = [one.marginals(times, nodes, pairs) for one in self.components]
        return Normals(self.weights, np.stack([one.mean for one in parts]), np.stack([one.variance for one in parts]))

    def covariance(self, times: Floats, nodes: Longs, pairs: Pairs) -> Floats:
        """Posterior covariance of some cells; shape (n_cells, n_cells)."""
        means = [one.means(times, nodes, pairs) for one in self.components]
        return self._combined_covariance(means, [one.covariance(times, nodes, pairs) for one in self.components])

    def sample(self, n_samples: int, times: Floats, nodes: Longs, rng: np.random.Generator) -> Floats:
        """Draws at all pairs; shape (n_samples, n_new_times, n_new_nodes)."""
        return self._drawn(n_samples, rng, lambda one, count: one.sample(count, times, nodes, rng))
