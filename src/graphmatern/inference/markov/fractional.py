"""Block precisions of Matérn processes of any smoothness on one graph, and what is computed with them.

A process f = √(a c^(−ν) / m_i) φ (m: node masses) is the output φ = wᵀg + ε of a field g with the precision J₀ ⊗ I +
J₁ ⊗ Δ/c of `pencil`, and white noise ε of variance v. Sites of precision D on φ are sites δ = D / (1 + vD) on wᵀg: the
white noise is integrated out node by node.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from graphmatern.errors import NotPositiveDefiniteError
from graphmatern.graph import largest_eigenvalue_bound
from graphmatern.inference.markov.precision import markov_precision
from graphmatern.sparse import BlockAnalysis, analyze

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from graphmatern.graph import Graph
    from graphmatern.inference.markov.determinants import Determinants
    from graphmatern.inference.markov.pencil import Pencil
    from graphmatern.sparse import Analysis, BlockFactor, BlockInverse

    Floats = NDArray[np.float64]
    Longs = NDArray[np.int64]

__all__ = ["BlockField", "BlockPrecision", "block_precision", "prior_draws"]

_MOST_SOLVED = 2**27  # entries of solutions for negative sites


class BlockPrecision:
    """The Laplacian of a graph and the analysis that all block matrices on it share.

    Parameters
    ----------
    graph : Graph
        The graph.
    normalized : bool
        Which Laplacian.
    n_threads : int, optional
        Threads that factorise; one per processor by default.
    """

    def __init__(self, graph: Graph, *, normalized: bool, n_threads: int | None = None) -> None:
        self.graph, self.normalized = graph, normalized
        self._n_threads = n_threads
        self.laplacian = graph.laplacian(normalized)
        self.largest = largest_eigenvalue_bound(self.laplacian)
        self.root_mass: Floats = np.ones(graph.n_nodes) if graph.masses is None else np.sqrt(graph.masses)
        self._analyses: dict[tuple[int, ...], BlockAnalysis] = {}

    @property
    def shifted(self) -> Any:
        """Polynomials cI + Δ, as the Markov engine of smoothness 1 has them."""
        return markov_precision(self.graph, 1, normalized=self.normalized, n_threads=self._n_threads).shifted

    @cached_property
    def base(self) -> Analysis:
        """Analysis of the Laplacian, in the order of `shifted`, with supernodes for blocks."""
        own = self.shifted.analysis
        return analyze(own.pattern, ordering=own.permutation, n_threads=own.n_threads, check=False, unknowns=6)

    @cached_property
    def values(self) -> Floats:
        """Lower triangle of the Laplacian, in the order of the factor."""
        return np.asarray(self.laplacian.data[self.base.lower_positions])

    def analysis(self, signs: tuple[int, ...]) -> BlockAnalysis:
        """Analysis of block matrices with given signs."""
        if signs not in self._analyses:
            self._analyses.clear()  # a search seldom comes back
            self._analyses[signs] = BlockAnalysis(self.base, signs)
        return self._analyses[signs]


def block_precision(graph: Graph, *, normalized: bool, n_threads: int | None = None) -> BlockPrecision:
    """Return the `BlockPrecision`, made once and kept with the graph."""
    key = ("block precision", normalized, n_threads)
    return graph.cached(key, lambda: BlockPrecision(graph, normalized=normalized, n_threads=n_threads))


class BlockField:
    """g with sites δ on its outputs: precision B = J₀ ⊗ I + J₁ ⊗ Δ/c + w wᵀ ⊗ diag(δ).

    A factorisation with the signs of `pencil` exists where all δ ≥ 0, in every order of the nodes, and often for some
    δ < 0. Where it does not, B is split into a part without negative sites and a correction of low rank.

    Parameters
    ----------
    precision : BlockPrecision
        The Laplacian.
    pencil : Pencil
        J₀, J₁, w, v.
    shift : float
        c.
    added : ndarray, shape (n_nodes,)
        δ, in the caller's order of the nodes.
    memory : (BlockFactor, BlockInverse), optional
        Of the same analysis, to be overwritten.
    split : bool
        Whether to split it in any case.

    Raises
    ------
    NotPositiveDefiniteError
        Where negative sites outweigh the prior.
    """

    def __init__(
        self,
        precision: BlockPrecision,
        pencil: Pencil,
        shift: float,
        added: Floats,
        memory: tuple[BlockFactor, BlockInverse] | None = None,
        *,
        split: bool = False,
    ) -> None:
        self.precision, self.pencil, self.shift, self.added = precision, pencil, shift, added
        self.analysis = precision.analysis(pencil.signs)
        self._order = precision.base.permutation
        self._low_rank: Floats | None = None  # V in B⁻¹ = (B without negative sites)⁻¹ + V Vᵀ
        self._extra = 0.0
        self.factor: BlockFactor | None = None if memory is None else memory[0]
        self._inverse: BlockInverse | None = None if memory is None else memory[1]
        negative = np.flatnonzero(added < 0.0)
        if not split:
            try:
                self._factorize(added)
            except NotPositiveDefiniteError:
                split = len(negative) > 0 and pencil.power > 0 and len(negative) * self.analysis.n <= _MOST_SOLVED
                if not split:
                    raise
        if split:
            self._factorize(np.maximum(added, 0.0))
            self._correct(negative)

    def _factorize(self, added: Floats) -> None:
        pencil, ordered = self.pencil, added[self._order]
        arguments = pencil.constant, pencil.linear / self.shift, pencil.output, self.precision.values, ordered
        if self.factor is None:
            self.factor = self.analysis.factorize(*arguments)
        else:
            self.factor.update_blocks(*arguments)

    def _correct(self, negative: Longs) -> None:
        root = np.sqrt(-self.added[negative])
        right = np.zeros((self.precision.graph.n_nodes, len(negative)))
        right[negative, np.arange(len(negative))] = root
        solved = self.solve_outputs(right)
        core = np.eye(len(negative)) - root[:, None] * (self.outputs(solved)[negative])
        core = 0.5 * (core + core.T)
        try:
            lower = np.linalg.cholesky(core)
        except np.linalg.LinAlgError as error:
            raise NotPositiveDefiniteError(
                "negative sites outweigh the prior: the precision is not positive definite. Likely causes: (a) a "
                "likelihood that is not log-concave, far from its optimum; (b) sites that were given.",
                int(negative[0]),
            ) from error
        self._extra = 2.0 * float(np.log(np.diag(lower)).sum())
        self._low_rank = np.linalg.solve(lower, solved.reshape(-1, len(negative)).T).T.reshape(solved.shape)

    # ------------------------------------------------------------------ solutions
    @property
    def is_split(self) -> bool:
        """Whether negative sites are a correction of low rank."""
        return self._low_rank is not None

    def solve_outputs(self, right: Floats) -> Floats:
        """B⁻¹ (w ⊗ right) for right (n_nodes, k), low rank left out; shape (n_nodes, p, k)."""
        assert self.factor is not None
        x = np.empty((self.analysis.n, right.shape[1]))
        x[self.analysis.places] = self.pencil.output[:, None] * right[self._order][:, None, :]
        self.factor.solve_ordered(x)
        return self._in_callers_order(x)

    def draw(self, normal: Floats) -> Floats:
        """Draws of g from standard normal numbers (p n_nodes, k), where all signs are positive; (n_nodes, p, k)."""
        assert self.factor is not None
        assert not self.analysis.has_signs
        return self._in_callers_order(self.factor.solve_upper_ordered(normal))

    def _in_callers_order(self, x: Floats) -> Floats:
        found = np.empty((len(self._order), self.pencil.size, x.shape[1]))
        found[self._order] = x[self.analysis.places]
        return found

    def solve(self, right: Floats) -> Floats:
        """B⁻¹ (w ⊗ right), for right (n_nodes, k); shape (n_nodes, p, k)."""
        found = self.solve_outputs(right)
        if self._low_rank is not None:
            found += self._low_rank @ (self.outputs(self._low_rank).T @ right)
        return found

    def outputs(self, blocks: Floats) -> Floats:
        """wᵀg for g (n_nodes, p, k); shape (n_nodes, k)."""
        return np.asarray(np.einsum("a,nak->nk", self.pencil.output, blocks))

    def logdet(self) -> float:
        """Log |det B|."""
        assert self.factor is not None
        return self.factor.logdet() + self._extra

    # ------------------------------------------------------------------ the selected inverse
    @cached_property
    def inverse(self) -> BlockInverse:
        """Entries of B⁻¹ on the pattern of its factor, low rank left out."""
        assert self.factor is not None
        return self.factor.selected_inverse(self._inverse)

    def output_variances(self) -> Floats:
        """Variances of wᵀg; shape (n_nodes,)."""
        found = np.empty(len(self._order))
        found[self._order] = self.inverse.output_diagonal(self.pencil.output)
        if self._low_rank is not None:
            found += np.sum(self.outputs(self._low_rank) ** 2, axis=1)
        return found

    def traces(self, weights: Floats) -> tuple[Floats, Floats, Floats]:
        """Σ_i Z_ii, Σ_i weights_i Z_ii and Σ_ij (Δ/c)_ij Z_ij for Z = B⁻¹; each of shape (p, p)."""
        pencil = self.pencil
        coupled = np.abs(pencil.linear) + np.abs(pencil.linear_slope)
        plain, weighted, mixed = self.inverse.traces(self.precision.values, weights[self._order], coupled)
        if self._low_rank is not None:
            v = self._low_rank
            plain += np.einsum("nak,nbk->ab", v, v)
            weighted += np.einsum("n,nak,nbk->ab", weights, v, v)
            mixed += self.forms(v)
        return plain, weighted, mixed / self.shift

    def forms(self, blocks: Floats) -> Floats:
        """Σ_k g_kᵀΔg_k for g (n_nodes, p, k); shape (p, p)."""
        n, p, k = blocks.shape
        image = (self.precision.laplacian @ blocks.reshape(n, p * k)).reshape(n, p, k)
        return np.asarray(np.einsum("nak,nbk->ab", blocks, image))

    def output_covariances(self, sources: Longs, targets: Longs) -> Floats:
        """Covariances of wᵀg between neighbours, or nodes and themselves; shape (n_pairs,)."""
        from scipy.sparse import csc_array

        analysis = self.precision.base
        lower = self.inverse.output_lower(self.pencil.output)
        values = np.empty(len(analysis.pattern.data))
        values[analysis.lower_positions] = lower
        values[analysis.mirror_positions] = lower
        pattern = analysis.pattern
        table = csc_array((values, pattern.indices, pattern.indptr), shape=pattern.shape)
        found = np.asarray(table[sources, targets]).ravel()
        if self._low_rank is not None:
            seen = self.outputs(self._low_rank)
            found = found + np.sum(seen[sources] * seen[targets], axis=1)
        return found

    def draw_low_rank(self, count: int, rng: np.random.Generator) -> Floats | float:
        """Draws of what negative sites add to wᵀg; shape (n_nodes, count)."""
        if self._low_rank is None:
            return 0.0
        return np.asarray(self.outputs(self._low_rank) @ rng.standard_normal((self._low_rank.shape[2], count)))


def prior_draws(
    determinants: Determinants, pencil: Pencil, shift: float, count: int, rng: np.random.Generator
) -> Floats:
    """Draws of φ, of covariance y^(−n) (k_0 + Σ_j k_j / (1 + τ_j l)), l = Δ/c, y = 1 + l; shape (n_nodes, count).

    For odd n they are y^(−(n+1)/2) times draws of covariance y k_j / (1 + τ_j l), and these (1 + τ_j l)⁻¹ times draws
    of covariance y (1 − τ_j + τ_j y).
    """
    assert pencil.zeros is not None
    laplacian = determinants.precision.laplacian
    n, odd = laplacian.shape[0], pencil.power % 2

    def lifted(x: Floats) -> Floats:  # y x
        return np.asarray(x + laplacian @ x / shift)

    def normal() -> Floats:
        return rng.standard_normal((n, count))

    def rough(own: float) -> Floats:  # covariance (I + Δ/own)⁻¹
        return np.asarray(determinants.factor(own).solve_upper(normal()) * np.sqrt(own))

    zeros = pencil.zeros
    found = np.sqrt(zeros.constant) * (lifted(rough(shift)) if odd else normal())
    for weight, rate in zip(zeros.weights, zeros.rates, strict=True):
        own = float(shift / rate)
        if odd:
            right = np.sqrt(max(1.0 - rate, 0.0)) * lifted(rough(shift)) + np.sqrt(rate) * lifted(normal())
            found += np.sqrt(weight) * own * determinants.factor(own).solve(right)
        else:
            found += np.sqrt(weight) * rough(own)
    factor = determinants.factor(shift)
    for _ in range((pencil.power + odd) // 2):
        found = shift * factor.solve(found)
    return np.asarray(found)
