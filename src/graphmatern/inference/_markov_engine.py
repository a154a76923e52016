"""The Markov engine: exact inference through the sparse precision, for Matérn kernels of integer smoothness.

With Q the prior precision, P = Q + AᵀR⁻¹A the posterior one and m = P⁻¹AᵀR⁻¹y, the covariance C of the observations has
log det C = log det P − log det Q + log det R and yᵀC⁻¹y = (y − Am)ᵀR⁻¹(y − Am) + mᵀQm. Derivatives need P⁻¹ and M⁻¹
on the patterns of P and M only: the selected inverses.
"""

from __future__ import annotations

from math import comb
from typing import TYPE_CHECKING

import numpy as np

from graphmatern.inference._markov import markov_precision
from graphmatern.inference._observations import Moments, sum_by_node
from graphmatern.inference._posterior import MarkovConditioned

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from graphmatern.graph import Graph
    from graphmatern.inference._observations import Batch
    from graphmatern.sparse import Factor, MatrixPolynomial, SelectedInverse

    Floats = NDArray[np.float64]

__all__ = ["MarkovEngine"]


class MarkovEngine:
    """Exact inference in the coordinates log κ and log a (amplitude), in which an evaluation needs no trace of Q⁻¹.

    Parameters
    ----------
    graph : Graph
        The graph.
    nu : int
        Smoothness.
    batches : sequence of Batch
        The observations.
    normalized : bool
        Which Laplacian.
    n_threads : int, optional
        Threads that factorise.
    """

    name = "markov"

    def __init__(
        self, graph: Graph, nu: int, batches: Sequence[Batch], *, normalized: bool, n_threads: int | None = None
    ) -> None:
        self.precision = markov_precision(graph, nu, normalized=normalized, n_threads=n_threads)
        self._batches = list(batches)
        self._data = [np.hstack([batch.y, batch.design]) for batch in batches]
        self._places = [self.precision.rank[batch.nodes] for batch in batches]
        self._n_covariates = batches[0].design.shape[1] if batches else 0
        # One factor and one selected inverse for every posterior precision in turn, and one of each for M.
        self._posterior: tuple[Factor, SelectedInverse] | None = None
        self._shifted: tuple[Factor, SelectedInverse] | None = None
        self._smoother: MatrixPolynomial | None = None
        # Where they were last computed: the shift of M, and the point of the posterior precision.
        self._shift: float | None = None
        self._point: tuple[float, ...] | None = None
        self._prior_logdet = 0.0

    def refactor(
        self,
        which: str,
        coefficients: Floats,
        extra: Floats | None = None,
        *,
        invert: bool = True,
        ordered: bool = False,
    ) -> tuple[Factor, SelectedInverse]:
        """Factorise in the memory of the last time; the selected inverse comes with it unless ``invert`` is False.

        ``ordered`` says that ``extra`` is in the order of the factor.
        """
        polynomial = self.precision.polynomial if which == "_posterior" else self.precision.shifted
        kept: tuple[Factor, SelectedInverse] | None = getattr(self, which)
        if kept is None:
            factor = polynomial.analysis.factorize_lower(polynomial.lower(coefficients, extra, ordered=ordered))
            kept = factor, factor.selected_inverse()
            setattr(self, which, kept)
            return kept
        factor, inverse = kept
        polynomial.lower(coefficients, extra, out=factor.lower_values, ordered=ordered)
        factor.update_lower()
        if invert:
            factor.selected_inverse(inverse)
        return kept

    def factor_of_shifted(self, c: float) -> tuple[Factor, SelectedInverse]:
        """Factor and selected inverse of M = c I + Δ, computed anew only where c is new."""
        if self._shifted is None or self._shift != c:
            self._shift = None
            self.refactor("_shifted", np.array([c, 1.0]))
            self._shift = c
        assert self._shifted is not None
        return self._shifted

    def evaluate(self, log_lengthscale: float, log_amplitude: float, log_noise: float) -> tuple[float, Floats]:
        """Negative log marginal likelihood and its gradient in (log κ, log a, log ρ).

        Returns
        -------
        value : float
        gradient : ndarray, shape (3,)
        """
        lengthscale, amplitude, rho = np.exp([log_lengthscale, log_amplitude, log_noise])
        precision = self.precision
        n = precision.graph.n_nodes
        self._point = None
        prior_logdet = self.prior_logdet(lengthscale, amplitude)
        coefficients = precision.coefficients(lengthscale, amplitude)

        moments = Moments(self._n_covariates)
        derivatives = []
        for batch, places, data in zip(self._batches, self._places, self._data, strict=True):
            # All in the order of the factor, in which neighbours lie close together in memory.
            inverse_noise = 1.0 / (rho * batch.noise)
            added = sum_by_node(places, inverse_noise[:, None], n)[:, 0]
            posterior, selected = self.refactor("_posterior", coefficients, added, ordered=True)
            mean = sum_by_node(places, inverse_noise[:, None] * data, n)
            posterior.solve_ordered(mean)
            residual = data - mean[places]
            misfit = residual.T @ (inverse_noise[:, None] * residual)
            log_determinant = posterior.logdet() - prior_logdet - float(np.log(inverse_noise).sum())
            used = float(added @ selected.diagonal_ordered())
            in_lengthscale, form_slopes = self.lengthscale_slopes(lengthscale, amplitude, selected, mean)
            # yᵀC⁻¹y = (y − m)ᵀR⁻¹(y − m) + mᵀQm: a sum, so that little is lost where the noise is small.
            forms = misfit - form_slopes[1]
            moments.add(log_determinant, forms, batch.n_replicates, len(batch.nodes))
            derivatives.append(
                (
                    batch.n_replicates,
                    (in_lengthscale, form_slopes[0]),
                    (used, form_slopes[1]),
                    (len(batch.nodes) - used, -misfit),
                )
            )
        gradient = np.zeros(3)
        for n_replicates, *parts in derivatives:
            gradient += [moments.derivative(*part, n_replicates) for part in parts]
        self._point, self._prior_logdet = (log_lengthscale, log_amplitude, log_noise), prior_logdet
        return moments.negative_log_likelihood(), gradient

    def prior_logdet(self, lengthscale: float, amplitude: float) -> float:
        """Log det Q = ν log det M − N log a + Σ log m."""
        precision = self.precision
        masses = precision.graph.masses
        factor, _ = self.factor_of_shifted(precision.shift(lengthscale))
        own = precision.nu * factor.logdet() - precision.graph.n_nodes * np.log(amplitude)
        return float(own + (0.0 if masses is None else np.log(masses).sum()))

    def lengthscale_slopes(
        self, lengthscale: float, amplitude: float, selected: SelectedInverse, mean: Floats
    ) -> tuple[float, tuple[Floats, Floats]]:
        """How a posterior changes with log κ at fixed observation precisions, and its forms with log a, too.

        Parameters
        ----------
        lengthscale, amplitude : float
            κ and a.
        selected : SelectedInverse
            Of the posterior precision P.
        mean : ndarray, shape (n_nodes, k)
            Functions f on the nodes, in the order of the factor.

        Returns
        -------
        in_lengthscale : float
            Derivative of log det P − log det Q in log κ.
        form_slopes : (ndarray, ndarray), each of shape (k, k)
            Derivatives of fᵀQf in log κ and log a.
        """
        precision = self.precision
        nu, c = precision.nu, precision.shift(lengthscale)
        _, inverse = self.factor_of_shifted(c)
        # d/dc of Q is ν A^½ M^(ν−1) A^½ / a, and c = 2ν/κ² changes by −2c per log κ.
        rate = -2.0 * c * nu
        below = np.array([comb(nu - 1, j) * c ** (nu - 1 - j) for j in range(nu)])
        trace = float(below @ precision.polynomial.traces(selected, nu - 1)) / amplitude
        lower_forms, own_forms = precision.quadratic_form_matrices(mean, c, ordered=True)
        slopes = rate * lower_forms / amplitude, -own_forms / amplitude
        return rate * (trace - float(inverse.diagonal_ordered().sum())), slopes

    def conditioned(self, point: Floats) -> list[MarkovConditioned]:
        """Return the process given each batch; what the last evaluation left behind is taken over, not computed again.

        Parameters
        ----------
        point : ndarray, shape (3,)
            Log κ, log a, log ρ.
        """
        if self._point != tuple(point.tolist()):
            self.evaluate(*point.tolist())
        precision = self.precision
        lengthscale, amplitude, rho = np.exp(point).tolist()
        precision.warn_if_inaccurate(lengthscale)
        found = []
        for batch in self._batches:
            if len(self._batches) == 1:
                assert self._posterior is not None
                factor, inverse = self._posterior
                variance = inverse.diagonal()
                self._posterior = self._point = None
            else:
                added = precision.observed(batch.nodes, rho * batch.noise)
                lower = precision.polynomial.lower(precision.coefficients(lengthscale, amplitude), added)
                factor = precision.analysis.factorize_lower(lower)
                variance = factor.diagonal_of_inverse()
            found.append(MarkovConditioned(batch, rho, factor, variance, self._prior_logdet))
        return found

    def release(self) -> None:
        """Give back the memory of factors and selected inverses."""
        self._posterior = self._shifted = self._smoother = self._shift = self._point = None

    def average_variance(self, log_lengthscale: float) -> float:
        """Average prior variance over the nodes at amplitude 1: tr(A^(−½) M^(−ν) A^(−½)) / N."""
        lengthscale = float(np.exp(log_lengthscale))
        if self.precision.shifted is self.precision.polynomial:  # ν = 1 and no masses: Q is M
            _, inverse = self.factor_of_shifted(self.precision.shift(lengthscale))
        else:
            self._point = None
            _, inverse = self.refactor("_posterior", self.precision.coefficients(lengthscale, 1.0))
        return float(inverse.diagonal_ordered().mean())

    def average_variance_slope(self, log_lengthscale: float) -> float:
        """Derivative of log `average_variance` in log κ.

        d/dc tr(A^(−½) M^(−ν) A^(−½)) = −ν tr(A^(−½) M^(−ν−1) A^(−½)): the average variance of the next smoothness, at
        the same shift c = 2ν/κ².
        """
        precision = self.precision
        nu, c = precision.nu, precision.shift(float(np.exp(log_lengthscale)))
        if self._smoother is None:
            self._smoother = precision.next_polynomial()
        lower = self._smoother.lower(np.array([comb(nu + 1, j) * c ** (nu + 1 - j) for j in range(nu + 2)]))
        smoother = float(self._smoother.analysis.factorize_lower(lower).diagonal_of_inverse().mean())
        return 2.0 * c * nu * smoother / self.average_variance(log_lengthscale)
