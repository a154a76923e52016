"""Processes given by a sparse precision Q = M^ν / a, M = 2ν/κ² I + Δ.

Under sites of precision η the process has precision P = Q + diag(Σ η at each node), of the pattern of Q; means and
variances come from its factor and selected inverse, and derivatives need P⁻¹ and M⁻¹ on the patterns of P and M only.
With few observations their covariance K_xx, by as many solves with Q, takes less.
"""

from __future__ import annotations

from functools import cached_property
from math import comb
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from graphmatern.inference.dense import CovarianceConditioned
from graphmatern.inference.markov.predictive import MarkovPredictive
from graphmatern.inference.observations import sum_by_node
from graphmatern.inference.process import Conditioned, DataForms, Process, Solution
from graphmatern.sparse import Factor, SelectedInverse

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from graphmatern.inference.markov.precision import MarkovPrecision
    from graphmatern.inference.observations import Group
    from graphmatern.sparse import MatrixPolynomial

    Floats = NDArray[np.float64]
    Longs = NDArray[np.int64]

__all__ = ["MarkovProcess", "Workspace"]


class Shifted(NamedTuple):
    """What evaluations need of M = shift I + Δ."""

    shift: float
    log_determinant: float
    trace: float  # of its inverse


class Workspace:
    """Memory of one factor and one selected inverse, which all evaluations use in turn.

    Of M only two numbers are kept, so that P uses the same memory where it has the same pattern.

    Parameters
    ----------
    precision : MarkovPrecision
        Patterns and their analysis.
    """

    def __init__(self, precision: MarkovPrecision) -> None:
        self.precision = precision
        self._kept: dict[str, tuple[Factor, SelectedInverse]] = {}
        self._shifted: Shifted | None = None  # as it was factorised last
        self.turn = 0  # counts how often the memory of P was written to

    def _refactor(
        self,
        which: str,
        polynomial: MatrixPolynomial,
        coefficients: Floats,
        extra: Floats | None = None,
        *,
        invert: bool = True,
    ) -> tuple[Factor, SelectedInverse]:
        analysis = polynomial.analysis
        if which not in self._kept:
            self._kept[which] = Factor(analysis), SelectedInverse(analysis)
        factor, inverse = self._kept[which]
        polynomial.lower(coefficients, extra, out=factor.lower_values, ordered=True)
        factor.update_lower()
        if invert:
            factor.selected_inverse(inverse)
        return factor, inverse

    def posterior(
        self, coefficients: Floats, added: Floats | None = None, *, invert: bool = True
    ) -> tuple[Factor, SelectedInverse]:
        """Factor and selected inverse of Q + diag(added), ``added`` in the order of the factor."""
        self.turn += 1
        return self._refactor("posterior", self.precision.polynomial, coefficients, added, invert=invert)

    def shifted(self, shift: float) -> Shifted:
        """Log det M and tr M⁻¹ for M = shift I + Δ; a new shift may overwrite what `posterior` gave."""
        if self._shifted is None or self._shifted.shift != shift:
            precision, coefficients = self.precision, np.array([shift, 1.0])
            if precision.shifted is precision.polynomial:
                factor, inverse = self.posterior(coefficients)
            else:
                factor, inverse = self._refactor("shifted", precision.shifted, coefficients)
            self._shifted = Shifted(shift, factor.logdet(), float(inverse.diagonal_ordered().sum()))
        return self._shifted

    def take_posterior(self) -> tuple[Factor, SelectedInverse]:
        """Hand over the memory of the last `posterior`, with what is in it."""
        return self._kept.pop("posterior")

    def release(self) -> None:
        """Give back all memory."""
        self._kept.clear()


class MarkovProcess(Process):
    """A process with given lengthscale κ and amplitude a.

    Parameters
    ----------
    workspace : Workspace
        Factors and selected inverses.
    groups : sequence of Group
        The observations.
    lengthscale, amplitude : float
        κ and a.
    chain : callable
        From derivatives in log κ and log a to those in the engine's coordinates.
    dense : bool
        Whether to go through K_xx.
    """

    def __init__(
        self,
        workspace: Workspace,
        groups: Sequence[Group],
        lengthscale: float,
        amplitude: float,
        chain: Callable[[Floats], Floats],
        *,
        dense: bool,
    ) -> None:
        self.workspace, self.groups = workspace, groups
        self.lengthscale, self.amplitude, self.chain = lengthscale, amplitude, chain
        self.precision = workspace.precision
        self.coefficients = self.precision.coefficients(lengthscale, amplitude)
        self._dense = dense
        self._solved: dict[int, SolvedCovariance] = {}
        self._latest: tuple[int, bytes, int] | None = None  # whose factor the workspace holds, and since which turn

    def condition(self, group: int, precision: Floats) -> Conditioned:
        """Put sites on a group; see `Process.condition`."""
        if not self._dense:
            self._latest = None
            found = SparseConditioned(self, self.groups[group], precision)
            self._latest = group, precision.tobytes(), self.workspace.turn
            return found
        if group not in self._solved:
            self._solved[group] = SolvedCovariance(self, self.groups[group].nodes)
        return SolvedConditioned(self.groups[group], precision, self._solved[group])

    def predictive(self, group: int, precision: Floats) -> MarkovPredictive:
        """Return the process at any node, from the last factor where it is the right one; see `Process.predictive`."""
        nodes = self.groups[group].nodes
        if self._latest == (group, precision.tobytes(), self.workspace.turn):
            self.workspace.turn += 1
            factor, inverse = self.workspace.take_posterior()
            variance = inverse.diagonal()
            return MarkovPredictive(self.precision, self.coefficients, nodes, precision, factor, variance)
        return MarkovPredictive(self.precision, self.coefficients, nodes, precision)

    def prior_logdet(self, shifted: Shifted) -> float:
        """Log det Q = ν log det M − N log a + Σ log m."""
        masses = self.precision.graph.masses
        own = self.precision.nu * shifted.log_determinant - self.precision.graph.n_nodes * np.log(self.amplitude)
        return float(own + (0.0 if masses is None else np.log(masses).sum()))


class _Fields(Solution):
    """Means on the whole graph as well, in the order of the factor; shape (n_nodes, k)."""

    def __init__(self, alpha: Floats, mean: Floats, full: Floats, process: MarkovProcess) -> None:
        super().__init__(alpha, mean)
        self._full, self._process = full, process

    @cached_property
    def forms(self) -> tuple[Floats, Floats]:
        """Forms fᵀ M^k f of the means for k = ν − 1 and ν; each of shape (k, k)."""
        precision = self._process.precision
        shift = precision.shift(self._process.lengthscale)
        forms = precision.quadratic_form_matrices(self._full, shift, ordered=True)
        del self._full  # large, and needed no more
        return forms


class SparseConditioned(Conditioned):
    """Through the factor and the selected inverse of P."""

    def __init__(self, process: MarkovProcess, group: Group, precision: Floats) -> None:
        super().__init__(group, precision)
        self._process = process
        self._places = process.precision.rank[group.nodes]  # neighbours lie close together in the factor's order
        self._n_nodes = process.precision.graph.n_nodes
        self._shifted = process.workspace.shifted(process.precision.shift(process.lengthscale))
        self._added = sum_by_node(self._places, precision[:, None], self._n_nodes)[:, 0]
        self._factor, self._selected = process.workspace.posterior(process.coefficients, self._added)
        self._log_determinant = float(self._factor.logdet() - process.prior_logdet(self._shifted))

    @property
    def log_determinant(self) -> float:
        """Log det (I + K diag(η)) = log det P − log det Q."""
        return self._log_determinant

    def solve(self, potentials: Floats) -> _Fields:
        """Means under the sites, for potentials of shape (n, k)."""
        full = sum_by_node(self._places, potentials, self._n_nodes)
        self._factor.solve_ordered(full)
        mean = full[self._places]
        return _Fields(potentials - self.precision[:, None] * mean, mean, full, self._process)

    def solve_data(self) -> DataForms:
        """Solve for the group's data; see `Conditioned.solve_data`."""
        data = self.group.data
        solution = self.solve(self.precision[:, None] * data)
        residual = data - solution.mean
        misfit = residual.T @ (self.precision[:, None] * residual)
        _ = self._used, self._trace  # while the factor is still ours
        # yᵀC⁻¹y = (y − m)ᵀR⁻¹(y − m) + mᵀQm: a sum, so that little is lost where the noise is small.
        return DataForms(misfit + solution.forms[1] / self._process.amplitude, misfit, solution)

    def variance(self) -> Floats:
        """Variances of f(x) under the sites; shape (n,)."""
        return np.asarray(self._selected.diagonal_ordered()[self._places])

    @cached_property
    def _used(self) -> float:
        return float(self._added @ self._selected.diagonal_ordered())

    def used(self) -> float:
        """Σ η var f(x)."""
        return self._used

    @cached_property
    def _trace(self) -> float:
        """Tr P⁻¹ M^(ν−1), node masses included."""
        nu, c = self._process.precision.nu, self._process.precision.shift(self._process.lengthscale)
        below = np.array([comb(nu - 1, j) * c ** (nu - 1 - j) for j in range(nu)])
        return float(below @ self._process.precision.polynomial.traces(self._selected, nu - 1))

    def gradient(self, solution: _Fields, weights: Floats, count: float = 1.0) -> Floats:
        """See `Conditioned.gradient`: αᵀ∂Kα = −mᵀ∂Qm, with m the means on the whole graph."""
        process, precision = self._process, self._process.precision
        nu, c, amplitude = precision.nu, precision.shift(process.lengthscale), process.amplitude
        # d/dc of Q is ν A^½ M^(ν−1) A^½ / a, and c = 2ν/κ² changes by −2c per log κ; Q itself is −∂Q/∂log a.
        rate = -2.0 * c * nu
        in_lengthscale = rate * count * (self._trace / amplitude - self._shifted.trace)
        lower, own = solution.forms
        in_lengthscale += rate * float(np.sum(weights * lower)) / amplitude
        in_amplitude = count * self._used - float(np.sum(weights * own)) / amplitude
        return process.chain(0.5 * np.array([in_lengthscale, in_amplitude]))


class SolvedCovariance:
    """K_xx for few observations: the solution of as many systems with Q.

    Parameters
    ----------
    process : MarkovProcess
        The process.
    nodes : ndarray of int64, shape (n,)
        Positions of the observed nodes; repeats are allowed.
    """

    def __init__(self, process: MarkovProcess, nodes: Longs) -> None:
        self._process = process
        distinct, self._place = np.unique(nodes, return_inverse=True)
        right = np.zeros((process.precision.graph.n_nodes, len(distinct)))
        right[distinct, np.arange(len(distinct))] = 1.0
        factor, _ = process.workspace.posterior(process.coefficients, invert=False)
        self._solved = factor.solve(right)
        covariance = self._solved[distinct]
        self._distinct = 0.5 * (covariance + covariance.T)
        self.matrix = self._distinct[np.ix_(self._place, self._place)]

    def pull_back(self, change: Floats) -> Floats:
        """Derivatives in the engine's coordinates, from those in K_xx, which changes by −K ∂Q K."""
        process, precision, n = self._process, self._process.precision, len(self._distinct)
        change = sum_by_node(self._place, sum_by_node(self._place, change, n).T, n)
        c = precision.shift(process.lengthscale)
        lower, _ = precision.quadratic_form_matrices(self._solved, c)
        in_lengthscale = 2.0 * c * precision.nu * float(np.sum(change * lower)) / process.amplitude
        return process.chain(np.array([in_lengthscale, float(np.sum(change * self._distinct))]))


class SolvedConditioned(CovarianceConditioned):
    """Through K_xx."""

    def __init__(self, group: Group, precision: Floats, solved: SolvedCovariance) -> None:
        self._solved = solved
        super().__init__(group, precision, solved.matrix)

    def pull_back(self, change: Floats) -> Floats:
        """Derivatives in the engine's coordinates, from those in K."""
        return self._solved.pull_back(change)
