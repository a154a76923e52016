"""Sites on the sparse precision: Matérn kernels of integer smoothness, large graphs.

Under q a process has precision P = Q + diag(Σ η₂ at each node), of the pattern of Q: all processes share one symbolic
analysis and the memory of one factor. Marginals come from the selected inverse of P; with few observations, from their
prior covariance K_xx, which takes solves with Q.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from graphmatern.inference._observations import sum_by_node
from graphmatern.inference._sites import LatentPosterior, LatentPrior, Marginals
from graphmatern.inference._sites_dense import DensePrior

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from graphmatern.inference._markov import MarkovPrecision
    from graphmatern.inference._markov_engine import MarkovEngine
    from graphmatern.inference._sites import Sites
    from graphmatern.sparse import Factor

    Floats = NDArray[np.float64]
    Longs = NDArray[np.int64]

__all__ = ["MarkovPosterior", "MarkovPrior", "SolvedPrior", "markov_prior"]

_UPDATES = 10  # updates of the sites that one covariance at the observations serves, about


def markov_prior(
    engine: MarkovEngine, nodes: Longs, n_latents: int, lengthscale: float, amplitude: float
) -> LatentPrior:
    """Processes with given κ and a, in whichever form is cheaper for so many observations."""
    cost = engine.precision.analysis.cost
    n = len(np.unique(nodes))
    by_solves = 4.0 * n * cost.nnz_factor + _UPDATES * n_latents * 3.0 * n**3
    by_inverses = _UPDATES * n_latents * (3.0 * cost.flops + 20.0 * cost.nnz_factor)
    fits = n * engine.precision.graph.n_nodes < 2**26  # the solutions are dense
    form = SolvedPrior if fits and by_solves < by_inverses else MarkovPrior
    return form(engine, nodes, lengthscale, amplitude)


class MarkovPrior(LatentPrior):
    """Processes with a sparse precision; the coordinates are log κ and log a.

    Parameters
    ----------
    engine : MarkovEngine
        Factors and selected inverses.
    nodes : ndarray of int64, shape (n,)
        Positions of the observed nodes; repeats are allowed.
    lengthscale, amplitude : float
        κ and a.
    """

    def __init__(self, engine: MarkovEngine, nodes: Longs, lengthscale: float, amplitude: float) -> None:
        self._engine, self._nodes = engine, nodes
        self._lengthscale, self._amplitude = lengthscale, amplitude
        self._coefficients = engine.precision.coefficients(lengthscale, amplitude)
        self._prior_logdet = engine.prior_logdet(lengthscale, amplitude)

    def marginals(self, sites: Sites) -> Marginals:
        """Marginals of q; see `LatentPrior.marginals`."""
        mean, variance = np.empty(sites.first.shape), np.empty(sites.first.shape)
        log_determinant = 0.0
        right, added = _on_nodes(self._nodes, sites, self._engine.precision.graph.n_nodes)
        for c in range(len(mean)):
            factor, inverse = self._engine.refactor("_posterior", self._coefficients, added[c])
            mean[c] = factor.solve(right[c])[self._nodes]
            variance[c] = inverse.diagonal()[self._nodes]
            log_determinant += factor.logdet() - self._prior_logdet
        return Marginals(mean, variance, log_determinant)

    def gradient(self, sites: Sites, marginals: Marginals) -> Floats:
        """Derivative of KL(q ‖ p) in log κ and log a at fixed q; shape (2,)."""
        del marginals
        gradient = np.zeros(2)
        right, added = _on_nodes(self._nodes, sites, self._engine.precision.graph.n_nodes)
        for c in range(len(right)):
            factor, inverse = self._engine.refactor("_posterior", self._coefficients, added[c])
            mean = factor.solve(right[c])[self._engine.precision.analysis.permutation, None]
            in_lengthscale, forms = self._engine.lengthscale_slopes(self._lengthscale, self._amplitude, inverse, mean)
            in_amplitude = float(added[c] @ inverse.diagonal())  # tr(P⁻¹Q) = N − Σ η₂ v
            gradient += [in_lengthscale + forms[0].item(), in_amplitude + forms[1].item()]
        return 0.5 * gradient


def _on_nodes(nodes: Longs, sites: Sites, n_nodes: int) -> tuple[Floats, Floats]:
    """Sites added up by node; each of shape (n_latents, n_nodes)."""
    first, second = (np.ascontiguousarray(sum_by_node(nodes, one.T, n_nodes).T) for one in sites)
    return first, second


class SolvedPrior(DensePrior):
    """The same for few observations: their prior covariance is the solution of as many systems with Q.

    Parameters
    ----------
    engine : MarkovEngine
        Factors and selected inverses.
    nodes : ndarray of int64, shape (n,)
        Positions of the observed nodes; repeats are allowed.
    lengthscale, amplitude : float
        κ and a.
    """

    def __init__(self, engine: MarkovEngine, nodes: Longs, lengthscale: float, amplitude: float) -> None:
        self._engine = engine
        self._lengthscale, self._amplitude = lengthscale, amplitude
        distinct, self._place = np.unique(nodes, return_inverse=True)
        right = np.zeros((engine.precision.graph.n_nodes, len(distinct)))
        right[distinct, np.arange(len(distinct))] = 1.0
        factor, _ = engine.refactor("_posterior", engine.precision.coefficients(lengthscale, amplitude), invert=False)
        self._solved = factor.solve(right)
        covariance = self._solved[distinct]
        self._distinct = 0.5 * (covariance + covariance.T)
        super().__init__(None, self._distinct[np.ix_(self._place, self._place)])

    def gradient(self, sites: Sites, marginals: Marginals) -> Floats:
        """Derivative of KL(q ‖ p) in log κ and log a at fixed q: K_xx changes by −K ∂Q K; shape (2,)."""
        precision, n = self._engine.precision, len(self._distinct)
        change = self.covariance_gradient(sites, marginals)
        change = sum_by_node(self._place, sum_by_node(self._place, change, n).T, n)
        c = precision.shift(self._lengthscale)
        lower, _ = precision.quadratic_form_matrices(self._solved, c)
        in_lengthscale = 2.0 * c * precision.nu * float(np.sum(change * lower)) / self._amplitude
        return np.array([in_lengthscale, float(np.sum(change * self._distinct))])


class MarkovPosterior(LatentPosterior):
    """The processes under q at any nodes.

    Parameters
    ----------
    precision : MarkovPrecision
        Of the prior.
    nodes : ndarray of int64, shape (n,)
        Positions of the observed nodes.
    sites : Sites
        The sites.
    lengthscale, amplitude : float
        κ and a.
    """

    def __init__(
        self, precision: MarkovPrecision, nodes: Longs, sites: Sites, lengthscale: float, amplitude: float
    ) -> None:
        precision.warn_if_inaccurate(lengthscale)
        self._precision = precision
        self._coefficients = precision.coefficients(lengthscale, amplitude)
        right, self._added = _on_nodes(nodes, sites, precision.graph.n_nodes)
        means, variances = [], []
        for c in range(len(right)):
            factor = self._factor(c)
            means.append(factor.solve(right[c]))
            variances.append(factor.diagonal_of_inverse())
        self._mean, self._variance = np.stack(means), np.stack(variances)

    def _factor(self, latent: int) -> Factor:
        """Factor of the precision of one process; made when asked for, as each is large."""
        lower = self._precision.polynomial.lower(self._coefficients, self._added[latent])
        return self._precision.analysis.factorize_lower(lower)

    def mean(self, nodes: Longs) -> Floats:
        """Means; shape (n_latents, n_nodes)."""
        return self._mean[:, nodes]

    def variance(self, nodes: Longs) -> Floats:
        """Variances; shape (n_latents, n_nodes)."""
        return self._variance[:, nodes]

    def covariance(self, nodes: Longs, latent: int = 0) -> Floats:
        """Covariance of one latent process; shape (n_nodes, n_nodes)."""
        right = np.zeros((self._mean.shape[1], len(nodes)))
        right[nodes, np.arange(len(nodes))] = 1.0
        found = self._factor(latent).solve(right)[nodes]
        return 0.5 * (found + found.T)

    def sample(self, n_samples: int, nodes: Longs, rng: np.random.Generator) -> Floats:
        """Draws; shape (n_samples, n_latents, n_nodes)."""
        found = np.empty((n_samples, len(self._mean), len(nodes)))
        for c in range(len(self._mean)):
            factor = self._factor(c)
            for start in range(0, n_samples, 16):  # a few at a time: full fields are large
                count = min(16, n_samples - start)
                normal = rng.standard_normal((self._mean.shape[1], count))
                found[start : start + count, c] = factor.solve_upper(normal)[nodes].T
        return found + self.mean(nodes)
