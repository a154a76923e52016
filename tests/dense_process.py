"""What every engine must compute, in dense float64 from the formulas, and the problems on which they are compared.

A process f ~ N(0, Q + E) on the nodes has sites exp(p f − ½ η f²) at observed nodes x. Exact engines have E = 0; with
inducing nodes or leading eigenvectors Q is the part of the prior that sites change, and E what they leave as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from scipy.linalg import null_space
from scipy.optimize import minimize
from scipy.stats import multivariate_normal

import graphmatern as gm
from graphmatern.inference import Observations
from graphmatern.kernels import FeatureKernel, ScaledKernel, SumKernel
from reference import (
    areal_kernel,
    dense_kernel,
    dense_spectrum,
    diffusion_psi,
    feature_kernel,
    inverse_cosine_psi,
    matern_psi,
    random_walk_psi,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from graphmatern.likelihoods import Likelihood

    Floats = NDArray[np.float64]
    Longs = NDArray[np.int64]

_JITTER = 1e-10  # that inducing nodes add to their covariance


# ---------------------------------------------------------------------- priors
@dataclass(frozen=True)
class DensePrior:
    """Q and E; each of shape (n_nodes, n_nodes)."""

    seen: Floats
    unseen: Floats


PriorOf = Callable[[gm.Graph, Any, bool], DensePrior]


def _psi_of(kernel: Any) -> Any:
    values = kernel.values()
    if isinstance(kernel, gm.Matern):
        return matern_psi(values["nu"], values["lengthscale"])
    if isinstance(kernel, gm.Diffusion):
        return diffusion_psi(values["lengthscale"])
    if isinstance(kernel, gm.RandomWalk):
        return random_walk_psi(kernel.steps, values["laziness"])
    return inverse_cosine_psi()


def covariance_of(graph: gm.Graph, kernel: Any, normalized: bool, n_eigenpairs: int | None = None) -> Floats:
    """K, from the kernel's parameters alone."""
    if isinstance(kernel, SumKernel):
        return np.asarray(sum(covariance_of(graph, one, normalized, n_eigenpairs) for one in kernel.terms))
    if isinstance(kernel, ScaledKernel):
        return kernel.factor * covariance_of(graph, kernel.kernel, normalized, n_eigenpairs)
    variance = kernel.values()["variance"]
    if isinstance(kernel, gm.ICAR | gm.BYM2 | gm.Leroux):
        assert not normalized
        return areal_kernel(graph, type(kernel).__name__, variance, kernel.values().get("mixing", 1.0))
    return dense_kernel(graph, _psi_of(kernel), variance=variance, normalized=normalized, n_eigenpairs=n_eigenpairs)


def exact(graph: gm.Graph, kernel: Any, normalized: bool) -> DensePrior:
    """All of the prior is seen."""
    covariance = covariance_of(graph, kernel, normalized)
    return DensePrior(covariance, np.zeros_like(covariance))


def on_features(features: Any) -> PriorOf:
    """Parts on the graph, on features, and their product."""

    def prior(graph: gm.Graph, kernel: Any, normalized: bool) -> DensePrior:
        terms = getattr(kernel, "terms", [kernel])
        on_graph, own, variances = np.zeros((graph.n_nodes,) * 2), np.zeros((graph.n_nodes,) * 2), [0.0, 0.0]
        for term in terms:
            variance = term.values()["variance"]
            if isinstance(term, FeatureKernel):
                own += variance * feature_kernel(graph, features, term, normalized=normalized)
                variances[1] += variance
            elif not isinstance(term, gm.Interaction):
                on_graph += covariance_of(graph, term, normalized)
                variances[0] += variance
        covariance = on_graph + own
        for term in terms:
            if isinstance(term, gm.Interaction):
                covariance = covariance + term.values()["variance"] * (on_graph / variances[0]) * (own / variances[1])
        return DensePrior(covariance, np.zeros_like(covariance))

    return prior


def truncated(count: int) -> PriorOf:
    """The first eigenpairs are all there is."""

    def prior(graph: gm.Graph, kernel: Any, normalized: bool) -> DensePrior:
        covariance = covariance_of(graph, kernel, normalized, count)
        return DensePrior(covariance, np.zeros_like(covariance))

    return prior


def by_inducing(nodes: Any = slice(None)) -> PriorOf:
    """Q = K_·z K_zz⁻¹ K_z·."""

    def prior(graph: gm.Graph, kernel: Any, normalized: bool) -> DensePrior:
        covariance = covariance_of(graph, kernel, normalized)
        own = covariance[nodes][:, nodes]
        seen = covariance[:, nodes] @ np.linalg.solve(own + _JITTER * np.eye(len(own)), covariance[nodes])
        return DensePrior(seen, covariance - seen)

    return prior


def by_eigenvectors(count: int) -> PriorOf:
    """Q = U_m W_m U_mᵀ."""

    def prior(graph: gm.Graph, kernel: Any, normalized: bool) -> DensePrior:
        covariance = covariance_of(graph, kernel, normalized)
        _, basis = dense_spectrum(graph, normalized=normalized)
        vectors = basis if graph.masses is None else basis * np.sqrt(graph.masses)[:, None]
        onto = basis[:, :count] @ vectors[:, :count].T * (1.0 if graph.masses is None else np.sqrt(graph.masses))
        seen = onto @ covariance
        return DensePrior(seen, covariance - seen)

    return prior


# ---------------------------------------------------------------------- the process under sites
class DenseSites:
    """The process under sites of precisions η at nodes x, by inverting what the formulas say."""

    def __init__(self, prior: DensePrior, nodes: Longs, precision: Floats) -> None:
        self.prior, self.nodes, self.precision = prior, nodes, precision
        self.block = prior.seen[np.ix_(nodes, nodes)]
        self._inner = np.eye(len(nodes)) + self.block * precision  # I + K_xx diag(η)

    @property
    def log_determinant(self) -> float:
        sign, value = np.linalg.slogdet(self._inner)
        assert sign > 0
        return float(value)

    def covariance_at_data(self) -> Floats:
        """S = (I + K_xx η)⁻¹ K_xx."""
        return np.asarray(np.linalg.solve(self._inner, self.block))

    def inverse(self) -> Floats:
        """C⁻¹ = η (I + K_xx η)⁻¹."""
        return np.asarray(self.precision[:, None] * np.linalg.inv(self._inner))

    def unexplained(self) -> Floats:
        return np.diag(self.prior.unseen)[self.nodes]

    def means(self, potentials: Floats) -> Floats:
        """At all nodes: K_·x (I + ηK_xx)⁻¹ p."""
        return np.asarray(self.prior.seen[:, self.nodes] @ np.linalg.solve(self._inner.T, potentials))

    def covariance(self) -> Floats:
        """At all nodes: Q − Q_·x C⁻¹ Q_x· + E."""
        cross = self.prior.seen[:, self.nodes]
        return np.asarray(self.prior.seen - cross @ self.inverse() @ cross.T + self.prior.unseen)

    def objective(self, alpha: Floats, weights: Floats, count: float) -> float:
        """½ [count · (log det (I + Kη) + Σ η E_xx) − tr(weights αᵀKα)]: what `Conditioned.gradient` differentiates."""
        lost = float(self.precision @ self.unexplained())
        return 0.5 * (count * (self.log_determinant + lost) - float(np.sum(weights * (alpha.T @ self.block @ alpha))))


class Stacked:
    """All replicates of all groups in one vector: y ~ N(Hb, C), b flat or N(0, 1/τ)."""

    def __init__(self, prior: DensePrior, observations: Observations, noise: float) -> None:
        rows = [
            (k, i) for k in range(observations.n_replicates) for i in np.flatnonzero(~np.isnan(observations.y[:, k]))
        ]
        self.replicate, place = np.array([k for k, _ in rows]), np.array([i for _, i in rows])
        self.nodes = observations.nodes[place]
        relative = np.ones(len(place)) if observations.noise is None else observations.noise[place]
        offset = np.zeros(len(place)) if observations.offset is None else observations.offset[place]
        self.y = np.array([observations.y[i, k] for k, i in rows]) - offset
        self.prior, self.design = prior, observations.node_design
        self.h, self.noise = observations.node_design[self.nodes], noise * relative
        together = self.replicate[:, None] == self.replicate
        self.c = together * prior.seen[np.ix_(self.nodes, self.nodes)] + np.diag(self.noise)

    def without(self, row: int) -> Stacked:
        """The same with one observation left out."""
        left = object.__new__(Stacked)
        kept = np.delete(np.arange(len(self.y)), row)
        left.prior, left.design = self.prior, self.design
        for name in ("replicate", "nodes", "y", "h", "noise"):
            setattr(left, name, getattr(self, name)[kept])
        left.c = self.c[np.ix_(kept, kept)]
        return left

    def log_evidence(self, effect_precision: float) -> float:
        """With flat effects ∫ N(y; Hb, C) db = N(Zᵀy; 0, ZᵀCZ) / |HᵀH|^½, Z orthonormal to H."""
        lost = 0.5 * float(np.diag(self.prior.unseen)[self.nodes] @ (1.0 / self.noise))
        if effect_precision:
            covariance = self.c + self.h @ self.h.T / effect_precision
            return float(multivariate_normal.logpdf(self.y, np.zeros(len(self.y)), covariance)) - lost
        z = null_space(self.h.T)
        found = multivariate_normal.logpdf(z.T @ self.y, np.zeros(z.shape[1]), z.T @ self.c @ z)
        return float(found - 0.5 * np.linalg.slogdet(self.h.T @ self.h)[1]) - lost

    def posterior(self, replicate: int, effect_precision: float) -> tuple[Floats, Floats, Floats, Floats]:
        """Mean and covariance of η at all nodes, and those of the coefficients."""
        inverse = np.linalg.inv(self.c)
        cross = self.prior.seen[:, self.nodes] * (self.replicate == replicate)
        spread = np.linalg.inv(effect_precision * np.eye(self.h.shape[1]) + self.h.T @ inverse @ self.h)
        b = spread @ self.h.T @ inverse @ self.y
        d = self.design - cross @ inverse @ self.h
        mean = self.design @ b + cross @ inverse @ (self.y - self.h @ b)
        own = self.prior.seen + self.prior.unseen - cross @ inverse @ cross.T
        return mean, own + d @ spread @ d.T, b, spread


def noise_sites(noise: Floats) -> Floats:
    """Gaussian noise, in relative variances."""
    return np.asarray(1.0 / (0.4 * noise))


def mixed_sites(prior: DensePrior, nodes: Longs, share: float, seed: int = 0) -> Floats:
    """Sites of which some are 0 and some negative: at a ``share`` of what the others and the prior bear."""
    rng = np.random.default_rng(seed)
    precision = rng.uniform(0.5, 3.0, len(nodes))
    precision[1::4] = 0.0
    negative = np.zeros(len(nodes))
    negative[2::4] = rng.uniform(0.5, 1.0, len(negative[2::4]))
    precision[2::4] = 0.0
    values, vectors = np.linalg.eigh(prior.seen[np.ix_(nodes, nodes)])
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    base = np.linalg.cholesky(np.eye(len(nodes)) + root.T @ (precision[:, None] * root))
    half = np.linalg.solve(base, root.T * np.sqrt(negative))
    most = np.linalg.norm(half, 2) ** 2 if negative.any() else 1.0
    return np.asarray(precision - share / most * negative)


# ---------------------------------------------------------------------- graphs and observations
def _weighted(n: int, seed: int) -> tuple[list[tuple[int, int]], Floats]:
    """Edges of a ring with chords, of unlike weights: no eigenvalue comes twice."""
    edges = [(i, (i + 1) % n) for i in range(n)] + [(i, (i + 3) % n) for i in range(0, n, 4)]
    return edges, np.random.default_rng(seed).uniform(0.3, 2.0, len(edges))


def _connected(masses: bool = False) -> gm.Graph:
    edges, weight = _weighted(12, 0)
    return gm.Graph.from_edges(
        edges, weight=weight, masses=np.random.default_rng(5).uniform(0.5, 2.0, 12) if masses else None
    )


def _in_pieces(masses: bool = False) -> gm.Graph:
    """Two components and two nodes alone."""
    edges, weight = _weighted(7, 1)
    edges = [*edges, (7, 8), (8, 9)]
    own = np.random.default_rng(6).uniform(0.5, 2.0, 12) if masses else None
    return gm.Graph.from_edges(edges, weight=[*weight, 0.7, 1.9], nodes=range(12), masses=own)


#: Graph, and whether its Laplacian is the normalised one.
GRAPHS: dict[str, tuple[gm.Graph, bool]] = {
    "connected": (_connected(), False),
    "masses": (_connected(masses=True), False),
    "pieces": (_in_pieces(), False),
    "normalised": (_connected(), True),
    "normalised pieces with masses": (_in_pieces(masses=True), True),
}


def _observations(graph: gm.Graph, nodes: Any, n_replicates: int = 1, unequal: bool = True) -> Observations:
    rng = np.random.default_rng(2)
    places = np.asarray(nodes, dtype=np.int64)
    design = np.column_stack([np.ones(graph.n_nodes), rng.standard_normal(graph.n_nodes)])
    y = rng.standard_normal((len(places), n_replicates))
    noise = rng.uniform(0.5, 2.0, len(places)) if unequal else None
    return Observations(places, y, design, noise, rng.standard_normal(len(places)))


def _with_holes(graph: gm.Graph) -> Observations:
    """Four replicates: two complete, one with holes, one without any value."""
    whole = _observations(graph, [0, 2, 5, 8, 9, 3, 4], 4)
    y = whole.y.copy()
    y[[1, 4], 2] = np.nan
    y[:, 3] = np.nan
    return Observations(whole.nodes, y, whole.node_design, whole.noise, whole.offset)


#: What is observed where: linear effects and offsets everywhere.
LAYOUTS: dict[str, Callable[[gm.Graph], Observations]] = {
    "few": lambda graph: _observations(graph, [7, 0, 3, 9, 5]),
    "repeats": lambda graph: _observations(graph, [4, 1, 4, 8, 6, 1]),
    "more than nodes": lambda graph: _observations(graph, [*range(graph.n_nodes), 2, 2, 6, 0, 3]),
    "every node once": lambda graph: _observations(graph, range(graph.n_nodes), unequal=False),
    "holes": _with_holes,
}


# ---------------------------------------------------------------------- comparing
def assert_close(found: Any, expected: Any, digits: float = 1e-9) -> None:
    """Equal to nine digits of the largest entry, or of 1, which is the size of the process."""
    scale = max(1.0, float(np.abs(expected).max(initial=0.0)))
    np.testing.assert_allclose(found, expected, rtol=0.0, atol=digits * scale)


def five_point_gradient(function: Callable[[Floats], Any], position: Floats, step: float = 4e-4) -> Floats:
    """Derivatives to about 1e-11 of the function's size; shape (n_coordinates, ...)."""
    rows = []
    for direction in step * np.eye(len(position)):
        near = function(position + direction) - function(position - direction)
        far = function(position + 2 * direction) - function(position - 2 * direction)
        rows.append((8.0 * near - far) / (12.0 * step))
    return np.array(rows)


# ---------------------------------------------------------------------- the best Gaussian
def largest_elbo(
    root: Any, left: Floats, offset: Floats, y: Floats, likelihood: Likelihood, *, diagonal: bool = False
) -> tuple[float, Floats, Floats]:
    """Maximise over q(v) = N(m, LLᵀ) with η = offset + root v, v ~ N(0, I): ELBO, means and variances of root v."""
    k = root.shape[1]
    c = likelihood.n_latents
    phi, target = torch.from_numpy(root), torch.from_numpy(y)
    shift, rest = torch.from_numpy(offset), torch.from_numpy(left)

    def pieces(flat: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        m, raw = flat[: c * k].reshape(c, k), flat[c * k :].reshape(c, k, -1)
        factor = torch.diag_embed(raw[:, :, 0]) if diagonal else torch.tril(raw)
        mean, variance = m @ phi.T, ((phi @ factor) ** 2).sum(dim=-1)
        log_det = 2.0 * torch.diagonal(factor, dim1=1, dim2=2).abs().log().sum()
        divergence = 0.5 * ((factor**2).sum() + (m**2).sum() - c * k - log_det)
        expected = likelihood.expected_log_prob(target, mean + shift, variance + rest).sum()
        return expected - divergence, mean, variance

    def negative(flat: Floats) -> tuple[float, Floats]:
        free = torch.from_numpy(flat.copy()).requires_grad_()
        value = -pieces(free)[0]
        (gradient,) = torch.autograd.grad(value, free)
        return value.item(), gradient.numpy()

    eye = np.ones((k, 1)) if diagonal else np.eye(k)
    start = np.concatenate([np.zeros(c * k), np.tile(eye.ravel(), c)])
    options: Any = {"maxiter": 20_000, "maxfun": 40_000, "maxcor": 50, "ftol": 1e-15, "gtol": 1e-8}
    found = minimize(negative, start, jac=True, method="L-BFGS-B", options=options)
    _, mean, variance = (part.detach().numpy() for part in pieces(torch.from_numpy(found.x)))
    return -float(found.fun), mean, variance
