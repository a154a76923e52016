"""Matérn processes of any smoothness, through block precisions.

Derivatives are taken in (ν, log c, log s), c = 2ν/κ² being the shift and s = a c^(−ν) the scale of f = √(s/m_i) φ; the
engine chains them to its own coordinates.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from graphmatern.errors import NotPositiveDefiniteError
from graphmatern.inference.dense import CovarianceConditioned
from graphmatern.inference.markov.determinants import Determinants
from graphmatern.inference.markov.fractional import BlockField
from graphmatern.inference.markov.fractional_predictive import BlockPredictive
from graphmatern.inference.observations import sum_by_node
from graphmatern.inference.process import Conditioned, DataForms, Process, Solution

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from graphmatern.inference.markov.fractional import BlockPrecision
    from graphmatern.inference.markov.pencil import Pencil
    from graphmatern.inference.observations import Group
    from graphmatern.sparse import BlockFactor, BlockInverse

    Floats = NDArray[np.float64]
    Longs = NDArray[np.int64]

__all__ = ["BlockProcess", "BlockWorkspace", "Sites"]


class BlockWorkspace:
    """Memory of one block factor with its selected inverse, which all evaluations use in turn.

    Parameters
    ----------
    precision : BlockPrecision
        The Laplacian and its analysis.
    """

    def __init__(self, precision: BlockPrecision) -> None:
        self.precision = precision
        self.determinants = Determinants(precision)
        self._kept: tuple[BlockFactor, BlockInverse] | None = None
        self.turn = 0  # counts fields that were made

    def field(self, pencil: Pencil, shift: float, added: Floats, *, invert: bool = True) -> BlockField:
        """The field with sites; valid until the next call."""
        self.turn += 1
        memory = self._kept
        if memory is not None and memory[0].analysis is not self.precision.analysis(pencil.signs):
            memory = self._kept = None  # given back before more is taken
        found = BlockField(self.precision, pencil, shift, added, memory)
        if invert and found.factor is not None:
            self._kept = found.factor, found.inverse
        return found

    def hand_over(self) -> None:
        """Leave the memory of the last field to whoever has it."""
        self.turn += 1
        self._kept = None

    def release(self) -> None:
        """Give back all memory."""
        self._kept = None
        self.determinants.release()


class Sites:
    """Sites of f as sites of φ, and of wᵀg where white noise ε of variance v is integrated out, node by node.

    Parameters
    ----------
    precision : ndarray, shape (n_nodes,)
        D, sums over the observations of each node, times s / m.
    white : float
        v.

    Raises
    ------
    NotPositiveDefiniteError
        Where a negative site outweighs the white noise.
    """

    def __init__(self, precision: Floats, white: float) -> None:
        self.precision, self.white = precision, white
        self.share = 1.0 / (1.0 + white * precision)  # of φ that is not taken back by ε
        if not (self.share > 0.0).all():
            raise NotPositiveDefiniteError(
                "negative sites outweigh the prior: the precision is not positive definite.",
                int(np.argmin(self.share)),
            )

    @property
    def reduced(self) -> Floats:
        """δ = D / (1 + vD)."""
        return self.precision * self.share

    def means(self, seen: Floats, potentials: Floats) -> Floats:
        """Means of φ, from those of wᵀg and the potentials; shape (n_nodes, k)."""
        return self.share[:, None] * (seen + self.white * potentials)

    def variances(self, seen: Floats) -> Floats:
        """Variances of φ, from those of wᵀg; shape (n_nodes,)."""
        return self.white * self.share + self.share**2 * seen


class BlockProcess(Process):
    """A process of given pencil, shift and scale.

    Parameters
    ----------
    workspace : BlockWorkspace
        Factors and selected inverses.
    groups : sequence of Group
        The observations.
    pencil : Pencil
        Of the smoothness ν.
    shift, scale : float
        c and s.
    chain : callable
        From derivatives in ν, log c and log s to those in the engine's coordinates.
    dense : bool
        Whether to go through K_xx.
    """

    def __init__(
        self,
        workspace: BlockWorkspace,
        groups: Sequence[Group],
        pencil: Pencil,
        shift: float,
        scale: float,
        chain: Callable[[Floats], Floats],
        *,
        dense: bool,
    ) -> None:
        self.workspace, self.groups, self.pencil = workspace, groups, pencil
        self.shift, self.scale, self.chain = shift, scale, chain
        self.precision = workspace.precision
        self.roots = np.sqrt(scale) / self.precision.root_mass  # √(s/m)
        self._dense = dense
        self._solved: dict[int, BlockCovariance] = {}
        self._latest: tuple[int, bytes, int, BlockField] | None = None

    def sites(self, nodes: Longs, precision: Floats) -> Sites:
        """Sites of precision η at observed nodes, as sites of φ."""
        total = sum_by_node(nodes, precision[:, None], self.precision.graph.n_nodes)[:, 0]
        return Sites(self.roots**2 * total, self.pencil.white)

    @cached_property
    def prior_determinant(self) -> tuple[float, float, float]:
        """Log |det| of the prior precision of g, and its derivatives in ν and log c."""
        return self.workspace.determinants.of_pencil(self.pencil, self.shift)

    def condition(self, group: int, precision: Floats) -> Conditioned:
        """Put sites on a group; see `Process.condition`."""
        if not self._dense:
            self._latest = None
            found = BlockConditioned(self, self.groups[group], precision)
            self._latest = group, precision.tobytes(), self.workspace.turn, found.field
            return found
        if group not in self._solved:
            self._solved[group] = BlockCovariance(self, self.groups[group].nodes)
        return BlockSolvedConditioned(self.groups[group], precision, self._solved[group])

    def predictive(self, group: int, precision: Floats) -> BlockPredictive:
        """Return the process at any node, from the last factor where it is the right one; see `Process.predictive`."""
        nodes, field = self.groups[group].nodes, None
        sites = self.sites(nodes, precision)
        if self._latest is not None and self._latest[:3] == (group, precision.tobytes(), self.workspace.turn):
            field = self._latest[3]
            _ = field.inverse
            self.workspace.hand_over()
        return BlockPredictive(self.precision, self.pencil, self.shift, self.roots, nodes, sites, field)


class _Blocks(Solution):
    """Means of g on the whole graph as well; shape (n_nodes, p, k)."""

    def __init__(self, alpha: Floats, mean: Floats, full: Floats, seen: tuple[Floats, Floats]) -> None:
        super().__init__(alpha, mean)
        self.full = full
        self.residual, self.scaled_mean = seen  # of φ: what α sums up to at each node, and the mean


class BlockConditioned(Conditioned):
    """Through the factor and the selected inverse of a block matrix."""

    def __init__(self, process: BlockProcess, group: Group, precision: Floats) -> None:
        super().__init__(group, precision)
        self._process, self._n_nodes = process, process.precision.graph.n_nodes
        self._sites = process.sites(group.nodes, precision)
        prior = process.prior_determinant[0]
        self.field = process.workspace.field(process.pencil, process.shift, self._sites.reduced)
        self._log_determinant = self.field.logdet() - prior - float(np.log(self._sites.share).sum())

    @property
    def log_determinant(self) -> float:
        """Log det (I + K diag(η)), white noise included."""
        return self._log_determinant

    def solve(self, potentials: Floats) -> _Blocks:
        """Means under the sites, for potentials of shape (n, k)."""
        nodes, roots, sites = self.group.nodes, self._process.roots, self._sites
        summed = roots[:, None] * sum_by_node(nodes, potentials, self._n_nodes)
        full = self.field.solve(sites.share[:, None] * summed)
        scaled = sites.means(self.field.outputs(full), summed)
        mean = (roots[:, None] * scaled)[nodes]
        residual = summed - sites.precision[:, None] * scaled
        return _Blocks(potentials - self.precision[:, None] * mean, mean, full, (residual, scaled))

    def solve_data(self) -> DataForms:
        """Solve for the group's data; see `Conditioned.solve_data`."""
        data = self.group.data
        solution = self.solve(self.precision[:, None] * data)
        residual = data - solution.mean
        misfit = residual.T @ (self.precision[:, None] * residual)
        own = solution.mean.T @ (self.precision[:, None] * residual)
        _ = self._variances, self._traces  # while the factor is still ours
        return DataForms(misfit + 0.5 * (own + own.T), misfit, solution)

    @cached_property
    def _variances(self) -> Floats:
        """Variances of wᵀg; shape (n_nodes,)."""
        return self.field.output_variances()

    @cached_property
    def _traces(self) -> tuple[Floats, Floats, Floats]:
        return self.field.traces(self._sites.reduced)

    def variance(self) -> Floats:
        """Variances of f(x) under the sites; shape (n,)."""
        return np.asarray((self._process.roots**2 * self._sites.variances(self._variances))[self.group.nodes])

    def used(self) -> float:
        """Σ η var f(x)."""
        return float(self._sites.precision @ self._sites.variances(self._variances))

    def gradient(self, solution: _Blocks, weights: Floats, count: float = 1.0) -> Floats:
        """See `Conditioned.gradient`; αᵀKα = bᵀ(v + wᵀJ⁻¹w)b with b the residuals at the nodes, and g = J⁻¹wb."""
        determinant = count * self._determinant_slopes()
        forms = _form_slopes(self._process, solution.full, solution.residual, weights)
        forms[2] = float(np.sum(weights * (solution.residual.T @ solution.scaled_mean)))
        return self._process.chain(0.5 * (determinant - forms))

    def _determinant_slopes(self) -> Floats:
        """Derivatives of `log_determinant` in ν, log c and log s."""
        pencil, sites = self._process.pencil, self._sites
        _, prior_in_nu, prior_in_shift = self._process.prior_determinant
        plain, weighted, mixed = self._traces
        of_white = float(sites.reduced.sum() - (sites.reduced**2) @ self._variances)
        in_nu = float(np.sum(plain * pencil.constant_slope) + np.sum(mixed * pencil.linear_slope))
        in_nu += 2.0 * float(pencil.output_slope @ weighted @ pencil.output) + pencil.white_slope * of_white
        return np.array([in_nu - prior_in_nu, -np.sum(mixed * pencil.linear) - prior_in_shift, self.used()])


def _form_slopes(process: BlockProcess, full: Floats, residual: Floats, weights: Floats) -> Floats:
    """Derivatives of tr(weights bᵀ(v + wᵀJ⁻¹w)b) in ν and log c, for residuals b (n_nodes, k) and J⁻¹wb; 0 in log s."""
    pencil, n = process.pencil, len(residual)
    turned = full @ weights
    image = (process.precision.laplacian @ full.reshape(n, -1)).reshape(full.shape) / process.shift
    plain = np.einsum("nak,nbk->ab", turned, full)
    mixed = np.einsum("nak,nbk->ab", turned, image)
    in_nu = pencil.white_slope * float(np.sum(weights * (residual.T @ residual)))
    in_nu += 2.0 * float(np.einsum("a,nak,nk->", pencil.output_slope, turned, residual))
    in_nu -= float(np.sum(plain * pencil.constant_slope) + np.sum(mixed * pencil.linear_slope))
    return np.array([in_nu, float(np.sum(mixed * pencil.linear)), 0.0])


class BlockCovariance:
    """K_xx for few observations: the solution of as many systems with the prior precision.

    Parameters
    ----------
    process : BlockProcess
        The process.
    nodes : ndarray of int64, shape (n,)
        Positions of the observed nodes; repeats are allowed.
    """

    def __init__(self, process: BlockProcess, nodes: Longs) -> None:
        self._process = process
        self._nodes, self._place = np.unique(nodes, return_inverse=True)
        n = process.precision.graph.n_nodes
        self._right = np.zeros((n, len(self._nodes)))
        self._right[self._nodes, np.arange(len(self._nodes))] = 1.0
        field = process.workspace.field(process.pencil, process.shift, np.zeros(n), invert=False)
        self._solved = field.solve(self._right)
        covariance = field.outputs(self._solved)[self._nodes]
        covariance = 0.5 * (covariance + covariance.T)
        covariance[np.diag_indices_from(covariance)] += process.pencil.white
        roots = process.roots[self._nodes]
        self._distinct = roots[:, None] * covariance * roots
        self.matrix = self._distinct[np.ix_(self._place, self._place)]

    def pull_back(self, change: Floats) -> Floats:
        """Derivatives in the engine's coordinates, from those in K_xx."""
        n, roots = len(self._nodes), self._process.roots[self._nodes]
        change = sum_by_node(self._place, sum_by_node(self._place, change, n).T, n)
        slopes = _form_slopes(self._process, self._solved, self._right, roots[:, None] * change * roots)
        slopes[2] = float(np.sum(change * self._distinct))
        return self._process.chain(slopes)


class BlockSolvedConditioned(CovarianceConditioned):
    """Through K_xx."""

    def __init__(self, group: Group, precision: Floats, solved: BlockCovariance) -> None:
        self._solved = solved
        super().__init__(group, precision, solved.matrix)

    def pull_back(self, change: Floats) -> Floats:
        """Derivatives in the engine's coordinates, from those in K."""
        return self._solved.pull_back(change)
