"""The latent processes given the observations, at any node.

The prediction at a node is η = hᵀb + f with coefficients b that are integrated out: with m and M the means of f for the
sites' potentials p and for ηH, the mean of η is hᵀb̂ + m − M b̂ and its variance that of f plus dᵀ cov(b) d, d = h − M.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Self

import numpy as np
from scipy.linalg import solve_triangular

from graphmatern.inference.effects import Effects

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from graphmatern.inference.observations import Group, Observations
    from graphmatern.inference.process import Predictive

    Floats = NDArray[np.float64]
    Longs = NDArray[np.int64]

__all__ = ["NODES_AT_ONCE", "Latents", "Part"]

NODES_AT_ONCE = 4096
# Share of the precision of an observation given all others; less is rounding.
_NOTHING_LEFT = 1e-10
_ENTRIES_AT_ONCE = 2**24  # of what predictions of coupled classes hold, each class times labels times nodes


@dataclass(frozen=True, eq=False)
class Part:
    """One latent process given one group of observations.

    Attributes
    ----------
    predictive : Predictive
        The process under sites.
    group : Group
        The observations.
    latent : int
        Which latent process.
    precision : ndarray, shape (n,)
        Precisions η of the sites.
    potentials : ndarray, shape (n, n_replicates)
        Potentials p of the sites, one column per replicate of the group.
    """

    predictive: Predictive
    group: Group
    latent: int
    precision: Floats
    potentials: Floats

    def effect_means(self, nodes: Longs) -> Floats:
        """M at some nodes; shape (n_nodes, n_effects)."""
        if not self.group.design.shape[1]:
            return np.zeros((len(nodes), 0))
        return self.predictive.means(nodes, self.precision[:, None] * self.group.design)


class Latents:
    """Latent processes, one for each class or one for each replicate.

    Parameters
    ----------
    parts : sequence of Part
        The processes, group by group.
    observations : Observations
        What was observed where.
    effect_precision : float
        Prior precision of the coefficients; 0 for a flat prior.
    levels : ndarray, shape (n, n), optional
        Of classes that are coupled: L, where LLᵀ is the information on the levels of the observations that they share
        (`graphmatern.inference.sites.classes`). The parts hold sites given that these are at their means.
    """

    def __init__(
        self,
        parts: Sequence[Part],
        observations: Observations,
        effect_precision: float,
        levels: Floats | None = None,
    ) -> None:
        self.parts, self._levels = list(parts), levels
        self._observations, self._effect_precision = observations, effect_precision
        self._memory: dict[str, tuple[Longs, Floats]] = {}
        self._given: Floats | None = None
        self.n_latents = 1 + max(part.latent for part in self.parts)
        self.n_replicates = observations.n_replicates

    # ------------------------------------------------------------------ linear effects
    def given(self, design: Floats) -> Self:
        """The same posterior, to be asked of nodes with these linear effects instead of the nodes' own.

        Parameters
        ----------
        design : ndarray, shape (n_nodes, n_effects)
            A row for each of the nodes that will be asked for.
        """
        other = copy.copy(self)
        other.effects = self.effects
        other._given, other._memory = design, {}
        return other

    def _design(self, nodes: Longs) -> Floats:
        """Linear effects h at some nodes; shape (n_nodes, n_effects)."""
        return self._observations.node_design[nodes] if self._given is None else self._given

    def where_seen(self, group: Group) -> Self:
        """What to ask of a group's observations, which may have linear effects of their own."""
        own = self._observations.own_design is not None or self._given is not None
        return self.given(group.design) if own else self

    @cached_property
    def effects(self) -> list[Effects]:
        """Coefficients of the linear effects, for each latent process."""
        found = [Effects(self._observations.n_effects, self._effect_precision) for _ in range(self.n_latents)]
        if not self._observations.n_effects:
            return found
        for part in self.parts:
            group = part.group
            columns = np.hstack([part.potentials, part.precision[:, None] * group.design])
            means = part.predictive.means(group.nodes, columns)
            alpha = columns - part.precision[:, None] * means
            r = group.n_replicates
            forms = part.predictive.total(group.design.T @ alpha)
            found[part.latent].add(r * forms[:, r:], forms[:, :r].sum(axis=1))
        return found

    @property
    def coefficients(self) -> Floats:
        """Means of the coefficients; shape (n_latents, n_effects)."""
        return np.stack([one.mean if one.count else np.zeros(0) for one in self.effects])

    @property
    def coefficient_covariance(self) -> Floats:
        """Covariances of the coefficients; shape (n_latents, n_effects, n_effects)."""
        return np.stack([one.covariance if one.count else np.zeros((0, 0)) for one in self.effects])

    def sensitivity(self, part: Part, nodes: Longs) -> Floats:
        """How predictions change with the coefficients, h − M; shape (n_nodes, n_effects)."""
        return self._design(nodes) - part.effect_means(nodes)

    # ------------------------------------------------------------------ latent processes
    def _rows(self, part: Part) -> Longs:
        """Where a part's processes stand among all, latent processes first, then replicates."""
        return part.latent * self.n_replicates + part.group.columns

    def _remembered(self, what: str, nodes: Longs, find: Callable[[Longs], Floats]) -> Floats:
        """What was last found for the same nodes, or is found now: tables ask for the same thing several times."""
        known = self._memory.get(what)
        if known is None or not np.array_equal(known[0], nodes):
            known = self._memory[what] = nodes.copy(), find(nodes)
        return known[1].copy()

    def latent_mean(self, nodes: Longs) -> Floats:
        """Means of η; shape (n_latents · n_replicates, n_nodes)."""
        return self._remembered("mean", nodes, self._find_mean)

    def latent_variance(self, nodes: Longs) -> Floats:
        """Variances of η; shape (n_latents · n_replicates, n_nodes)."""
        return self._remembered("variance", nodes, self._find_variance)

    def latent_skewness(self, nodes: Longs) -> Floats | None:
        """Skewness of η, shape (n_latents · n_replicates, n_nodes); None where marginals are normal."""
        del nodes
        return None

    def _find_mean(self, nodes: Longs) -> Floats:
        found = np.empty((self.n_latents * self.n_replicates, len(nodes)))
        for part in self.parts:
            effects, level = self.effects[part.latent], np.zeros(len(nodes))
            if effects.count:
                level = self._design(nodes) @ effects.mean
            found[self._rows(part)] = (level[:, None] + part.predictive.means(nodes, self._less_effects(part))).T
        return found

    def _less_effects(self, part: Part) -> Floats:
        """Potentials of a part's process alone, the linear effects at their means; shape (n, n_replicates)."""
        effects = self.effects[part.latent]
        if not effects.count:
            return part.potentials
        return part.potentials - (part.precision * (part.group.design @ effects.mean))[:, None]

    def _find_variance(self, nodes: Longs) -> Floats:
        found = np.empty((self.n_latents * self.n_replicates, len(nodes)))
        for part in self.parts:
            own = self._variance_given_levels(part, nodes)
            if self._levels is not None:
                half = self._by_levels(part, nodes)
                own = own + np.einsum("kn,kn->n", half, half)
            found[self._rows(part)] = own
        return found

    def _variance_given_levels(self, part: Part, nodes: Longs) -> Floats:
        """Variances of the process of a part, but for what is due to levels of coupled classes; shape (n_nodes,)."""
        found = part.predictive.variances(nodes)
        if self._observations.n_effects:
            d = self.sensitivity(part, nodes)
            found = found + np.einsum("ni,ij,nj->n", d, self.effects[part.latent].covariance, d)
        return found

    def part_variances(self) -> dict[str, float]:
        """How much each part of the processes varies over the observations, where they have parts; see `shares`."""
        found: dict[str, float] = {}
        for part in self.parts:
            find = getattr(part.predictive, "part_variances", None)
            if find is None:
                return {}
            for name, variance in find(self._less_effects(part)).items():
                found[name] = found.get(name, 0.0) + variance / len(self.parts)
        return found

    def _holding(self, row: int) -> Part:
        """The part to which a process belongs."""
        return next(part for part in self.parts if row in self._rows(part))

    def latent_covariance(self, nodes: Longs, row: int = 0) -> Floats:
        """Covariance of one process; shape (n_nodes, n_nodes)."""
        part = self._holding(row)
        found = part.predictive.covariances(nodes)
        if self._observations.n_effects:
            d = self.sensitivity(part, nodes)
            found = found + d @ self.effects[part.latent].covariance @ d.T
        if self._levels is not None:
            half = self._by_levels(part, nodes)
            found = found + half.T @ half
        return np.asarray(found)

    def latent_samples(self, n_samples: int, nodes: Longs, rng: np.random.Generator, row: int = 0) -> Floats:
        """Draws of one process; shape (n_samples, n_nodes)."""
        found = self._own_samples(n_samples, nodes, rng, row)
        if self._levels is not None:
            normal = rng.standard_normal((n_samples, len(self._levels)))
            found += normal @ self._by_levels(self._holding(row), nodes)
        return found

    def _own_samples(self, n_samples: int, nodes: Longs, rng: np.random.Generator, row: int) -> Floats:
        """Draws of one process, given the mean levels of coupled classes; shape (n_samples, n_nodes)."""
        part = self._holding(row)
        found = self.latent_mean(nodes)[row] + part.predictive.deviations(n_samples, nodes, rng)
        if self._observations.n_effects:
            root = np.linalg.cholesky(self.effects[part.latent].covariance)
            found += rng.standard_normal((n_samples, len(root))) @ root.T @ self.sensitivity(part, nodes).T
        return np.asarray(found)

    def on_edges(self, sources: Longs, targets: Longs, shares: Floats) -> tuple[Floats, Floats]:
        """Means and variances of (1 − t) η(source) + t η(target), linear along the edge; shape (n_processes, n)."""
        t = shares
        mean = (1 - t) * self.latent_mean(sources) + t * self.latent_mean(targets)
        variance = np.empty_like(mean)
        for part in self.parts:
            ends, between = part.predictive.variances, part.predictive.edge_covariances(sources, targets)
            own = (1 - t) ** 2 * ends(sources) + 2 * t * (1 - t) * between + t**2 * ends(targets)
            if self._observations.n_effects:
                d = (1 - t)[:, None] * self.sensitivity(part, sources) + t[:, None] * self.sensitivity(part, targets)
                own = own + np.einsum("ni,ij,nj->n", d, self.effects[part.latent].covariance, d)
            variance[self._rows(part)] = np.maximum(own, 0.0)
        return mean, variance

    def at_observations(self, part: Part) -> tuple[Floats, Floats]:
        """Means and variances of η at a part's observations; each of shape (n_latents · n_replicates, n)."""
        own = self.where_seen(part.group)
        return own.latent_mean(part.group.nodes), own.latent_variance(part.group.nodes)

    def leave_one_out(self) -> Iterator[tuple[Part, Floats, Floats]]:
        """Processes at each observation given all others, by taking its site out of the posterior, part by part.

        Yields
        ------
        part : Part
        mean : ndarray, shape (n, n_replicates)
        variance : ndarray, shape (n,)
            NaN and infinite where an observation alone determines some coefficient. Groups without observations are
            left out.
        """
        for part in self.parts:
            nodes = part.group.nodes
            if not len(nodes):
                continue
            rows = self._rows(part)
            own, unreached = self.where_seen(part.group), part.predictive.unexplained(nodes)
            mean, variance = own.latent_mean(nodes)[rows].T, own.latent_variance(nodes)[rows[0]] - unreached
            left = 1.0 - part.precision * variance
            left = np.where(left > _NOTHING_LEFT, left, np.nan)
            yield (
                part,
                (mean - variance[:, None] * part.potentials) / left[:, None],
                np.where(np.isnan(left), np.inf, variance / left + unreached),
            )

    # ------------------------------------------------------------------ classes that are coupled
    def _by_levels(self, part: Part, nodes: Longs) -> Floats:
        """L⁻¹Mᵀ with M how the mean of a process falls with the levels: MᵀA⁻¹M is due to these; (n, n_nodes)."""
        assert self._levels is not None
        # L⁻¹ is applied to what the means are linear in, which is smaller.
        columns = np.asarray(solve_triangular(self._levels, np.diag(part.precision), lower=True)).T
        effects, level = self.effects[part.latent], np.zeros((len(nodes), len(columns)))
        if effects.count:
            design = part.group.design
            alpha = columns - part.precision[:, None] * part.predictive.means(part.group.nodes, columns)
            coefficients = effects.covariance @ (design.T @ alpha)
            columns = columns - part.precision[:, None] * (design @ coefficients)
            level = self._design(nodes) @ coefficients
        return np.asarray((level + part.predictive.means(nodes, columns)).T)

    @property
    def coupled(self) -> bool:
        """Whether the latent processes are correlated with each other."""
        return self._levels is not None

    def class_covariance(self, nodes: Longs) -> Floats:
        """Covariances between the latent processes at each node; shape (n_nodes, n_latents, n_latents)."""
        found = np.zeros((len(nodes), self.n_latents, self.n_latents))
        if self._levels is not None:
            halves = np.stack([self._by_levels(part, nodes) for part in self.parts], axis=-1)
            found += halves.transpose(1, 2, 0) @ halves.transpose(1, 0, 2)
        for part in self.parts:
            found[:, part.latent, part.latent] += self._variance_given_levels(part, nodes)
        return found

    def class_moments(self, nodes: Longs) -> Iterator[tuple[Floats, Floats]]:
        """Means of the latent processes and covariances between them, some nodes at a time, in their order.

        Yields
        ------
        mean : ndarray, shape (n, n_latents)
        covariance : ndarray, shape (n, n_latents, n_latents)
        """
        if self._levels is not None:
            size = max(1, _ENTRIES_AT_ONCE // (len(self._levels) * self.n_latents))
            for start in range(0, len(nodes), size):
                some = nodes[start : start + size]
                yield self.latent_mean(some).T, self.class_covariance(some)
            return
        mean, variance = self.latent_mean(nodes).T, self.latent_variance(nodes).T
        for start in range(0, len(nodes), NODES_AT_ONCE):
            part = slice(start, start + NODES_AT_ONCE)
            yield mean[part], variance[part, :, None] * np.eye(self.n_latents)

    def beside(self, nodes: Longs, latent: int) -> Floats:
        """B_c of one latent process c: effects and levels add B_cᵀB_d to the covariances of processes c and d.

        Beside these, processes are independent, with the covariances of their `Part.predictive`.

        Returns
        -------
        ndarray, shape (n_latents · n_effects + n_levels, n_nodes)
        """
        part, count = self._holding(latent * self.n_replicates), self._observations.n_effects
        found = np.zeros((self.n_latents * count, len(nodes)))
        if count:
            root = np.linalg.cholesky(self.effects[latent].covariance)
            found[latent * count : (latent + 1) * count] = (self.sensitivity(part, nodes) @ root).T
        if self._levels is not None:
            found = np.vstack([found, self._by_levels(part, nodes)])
        return found

    def joint_samples(self, n_samples: int, nodes: Longs, rng: np.random.Generator) -> Floats:
        """Draws of all latent processes, of the first replicate; shape (n_samples, n_latents, n_nodes)."""
        rows = range(0, self.n_latents * self.n_replicates, self.n_replicates)
        found = np.stack([self._own_samples(n_samples, nodes, rng, row) for row in rows], axis=1)
        if self._levels is not None:
            normal = rng.standard_normal((n_samples, len(self._levels)))
            for part in self.parts:
                found[:, part.latent] += normal @ self._by_levels(part, nodes)
        return found
