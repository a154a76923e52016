"""Learning from batches: natural gradients for q, Adam for the parameters.

In whitened coordinates the prior is N(0, I), and with features Φ of the observed nodes the natural gradient of the
ELBO needs only the derivatives g_m, g_v of the expected log-likelihoods in the marginals of q. A step of size ρ on a
batch that stands for `scale` times as many observations is

    P ← (1 − ρ) P + ρ (I + scale Φᵀ diag(−2 g_v) Φ),    m ← m + ρ P⁻¹ (scale Φᵀ g_m − m),

with q = N(m, P⁻¹); where q is to be diagonal, its variances are the reciprocals of the diagonal of P. Parameters of
kernel and likelihood follow the gradient of the ELBO at fixed q.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import numpy as np
import torch
from tqdm import trange

from graphmatern.errors import NumericalError
from graphmatern.inference.inducing.process import FeaturePredictive
from graphmatern.inference.learning.optimize import Optimum
from graphmatern.inference.learning.parameters import free_parameters, move_parameters
from graphmatern.inference.learning.problem import Fit
from graphmatern.inference.posterior import Part, Posterior
from graphmatern.inference.threads import small_matrix_threads

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from graphmatern.inference.inducing.engine import InducingEngine
    from graphmatern.inference.learning.problem import Known, Problem

    Floats = NDArray[np.float64]

__all__ = ["Coefficients", "Trainer", "train"]


class Coefficients:
    """q over the whitened coefficients of every latent process.

    Parameters
    ----------
    mean : Tensor, shape (n_latents, k)
        Means m.
    precision : Tensor, shape (n_latents, k, k)
        P, see the module's description.
    root : Tensor, shape (n_latents, k, k)
        Cholesky factor of P.
    diagonal : bool
        Whether the covariance of q is diagonal.

    Attributes
    ----------
    factor : Tensor, shape (n_latents, k, k) or (n_latents, k)
        Any F with covariance FFᵀ; its diagonal where the covariance is diagonal.
    log_determinant : float
        Of the covariances, summed.
    """

    def __init__(self, mean: torch.Tensor, precision: torch.Tensor, root: torch.Tensor, *, diagonal: bool) -> None:
        self.mean, self.precision, self.diagonal = mean, precision, diagonal
        if diagonal:
            variance = 1.0 / torch.diagonal(precision, dim1=-2, dim2=-1)
            self.factor = variance.sqrt()
            self.log_determinant = variance.log().sum().item()
        else:
            eye = torch.eye(precision.shape[-1], dtype=precision.dtype)
            self.factor = torch.linalg.solve_triangular(root, eye.expand_as(root), upper=False).mT
            self.log_determinant = -2.0 * torch.diagonal(root, dim1=-2, dim2=-1).log().sum().item()

    @classmethod
    def prior(cls, n_latents: int, count: int, *, diagonal: bool) -> Coefficients:
        """The prior, N(0, I)."""
        eye = torch.eye(count, dtype=torch.float64).repeat(n_latents, 1, 1)
        return cls(torch.zeros(n_latents, count, dtype=torch.float64), eye, eye, diagonal=diagonal)

    def moments(self, features: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Means and variances of Φv; each of shape (n_latents, n)."""
        spread = features * self.factor[:, None] if self.diagonal else features @ self.factor
        return self.mean @ features.T, (spread**2).sum(dim=-1)

    def divergence(self) -> float:
        """KL(q ‖ N(0, I)), summed over the latent processes."""
        squares = (self.factor**2).sum() + (self.mean**2).sum()
        return 0.5 * (squares.item() - self.mean.numel() - self.log_determinant)


class Trainer:
    """Observations, features and q, and the steps that move them.

    Of the problem's settings it knows ``batch_size``, ``n_samples`` (of f per observation, from which expectations are
    estimated; exact quadrature by default), ``n_steps`` and ``natural_rate``.

    Parameters
    ----------
    problem : Problem
        What to fit.
    engine : InducingEngine
        The prior.
    """

    def __init__(self, problem: Problem, engine: InducingEngine) -> None:
        (self._group,) = engine.groups  # one replicate
        self._engine = engine
        self.likelihood = copy.deepcopy(problem.likelihood)
        self.raw, self.coordinates, _ = free_parameters(self.likelihood, problem.rules)
        self._y, self._offset = torch.from_numpy(self._group.y[:, 0].copy()), torch.from_numpy(self._group.offset)
        settings = problem.settings
        self._n_samples = settings.get("n_samples")
        self.generator = torch.Generator().manual_seed(int(np.random.default_rng(problem.search.seed).integers(2**31)))
        diagonal = settings.get("covariance", "full") == "diagonal"
        self.q = Coefficients.prior(self.likelihood.n_latents, engine.features_now().count, diagonal=diagonal)
        self.n_clipped = 0

    def __len__(self) -> int:
        return len(self._y)

    def _features(self, rows: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
        """Φ of some observations, and their residual prior variances; shapes (n, k) and (n,)."""
        nodes = self._group.nodes if rows is None else self._group.nodes[rows.numpy()]
        return self._engine.features_now().explained(nodes)

    def _expected(
        self, rows: torch.Tensor | None, mean: torch.Tensor, variance: torch.Tensor, *, exact: bool
    ) -> torch.Tensor:
        """Expected log-likelihoods under marginals of q, or estimates of them; shape (n,)."""
        chosen = slice(None) if rows is None else rows
        y, centre = self._y[chosen], mean + self._offset[chosen]
        if self._n_samples is None or exact:
            return self.likelihood.expected_log_prob(y, centre, variance)
        normal = torch.randn((self._n_samples, *mean.shape), generator=self.generator, dtype=torch.float64)
        return self.likelihood.log_prob(y, centre + variance.clamp_min(1e-100).sqrt() * normal).mean(dim=0)

    def elbo(self, rows: torch.Tensor | None = None, *, exact: bool = False) -> torch.Tensor:
        """The ELBO, differentiable in the parameters; an unbiased estimate where a batch of rows is given."""
        features, residual = self._features(rows)
        mean, variance = self.q.moments(features)
        expected = self._expected(rows, mean, residual + variance, exact=exact)
        return (len(self) / len(expected)) * expected.sum() - self.q.divergence()

    @torch.no_grad()
    def natural_step(self, size: float, rows: torch.Tensor | None = None) -> Coefficients:
        """Return q after one step; it is not yet put in place."""
        features, residual = self._features(rows)
        mean, variance = self.q.moments(features)
        with torch.enable_grad():
            m, v = mean.requires_grad_(), (variance + residual).requires_grad_()
            in_mean, in_variance = torch.autograd.grad(self._expected(rows, m, v, exact=False).sum(), (m, v))
        scale = len(self) / len(features)
        precision, root = self._mixed_precision(size, features, -2.0 * scale * in_variance)
        gradient = scale * in_mean @ features - self.q.mean
        step = torch.cholesky_solve(gradient.unsqueeze(-1), root).squeeze(-1)
        return Coefficients(self.q.mean + size * step, precision, root, diagonal=self.q.diagonal)

    def _mixed_precision(
        self, size: float, features: torch.Tensor, sites: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """(1 − ρ) P + ρ (I + Φᵀ diag(sites) Φ) and its root; without negative sites where these would spoil it."""
        eye = torch.eye(features.shape[1], dtype=torch.float64)
        for kept in (sites, sites.clamp_min(0.0)):
            target = eye + (features.T * kept[:, None]) @ features
            precision = (1.0 - size) * self.q.precision + size * target
            root, failed = torch.linalg.cholesky_ex(precision)
            if not failed.any():
                return precision, root
            self.n_clipped += 1
        raise NumericalError(
            "the variational covariance is not positive definite. Likely causes: (a) parameters that are not finite; "
            "(b) observations far beyond what the likelihood allows; (c) too long a step: lower `natural_rate`."
        )

    def run(self, problem: Problem) -> list[float]:
        """Take the steps asked for; return the estimates of the ELBO."""
        search, settings = problem.search, problem.settings
        size = min(settings.get("batch_size") or len(self), len(self))
        n_steps, natural_rate = settings.get("n_steps", 500), min(settings.get("natural_rate", 0.1), 1.0)
        parameters = [*self._engine.raw, *self.raw]
        rate = search.learning_rate if search.optimizer is not None else None
        adam = torch.optim.Adam(parameters, lr=rate) if parameters and rate is not None else None
        history: list[float] = []
        order = torch.empty(0, dtype=torch.int64)
        hidden = None if search.progress is None else not search.progress
        bar = trange(n_steps, desc="fit", unit=" steps", disable=hidden, leave=False)
        for step in bar:
            if len(order) < size:  # every observation once per pass, in batches of equal size
                order = torch.randperm(len(self), generator=self.generator)
            rows, order = order[:size], order[size:]
            fall = 0.1 ** max(0.0, 2.0 * step / n_steps - 1.0)
            self.q = self.natural_step(natural_rate * fall, rows)
            value = self.elbo(rows)
            if adam is not None:
                for group in adam.param_groups:
                    group["lr"] = (rate or 0.0) * fall
                adam.zero_grad()
                (-value).backward()  # type: ignore[no-untyped-call]
                adam.step()
            history.append(value.item())
            bar.set_postfix_str(f"ELBO = {history[-1]:.4f}")
        return history


def train(problem: Problem, engine: InducingEngine, reason: str, known: Known | None = None) -> Fit:
    """Learn from batches, or take up what an earlier fit learned.

    Parameters
    ----------
    problem : Problem
        What to fit, with one replicate.
    engine : InducingEngine
        The prior.
    reason : str
        Why this engine is used.
    known : Known, optional
        Where an earlier fit ended: mean and root of q in place of sites.
    """
    trainer, history = Trainer(problem, engine), []
    with small_matrix_threads(engine.matrix_size):
        if known is None:
            history = trainer.run(problem)
            position = np.array([raw.item() for raw in (*engine.raw, *trainer.raw)])
            with torch.no_grad():
                elbo = trainer.elbo(exact=True).item()
            optimum = Optimum(position, -elbo, np.zeros(len(position)), len(history), True, "all steps taken")
            mean, root = trainer.q.mean.numpy(), trainer.q.factor.numpy()
        else:
            assert known.sites is not None
            optimum, (mean, root) = known.optimum, known.sites
            move_parameters([*engine.raw, *trainer.raw], optimum.position)
        own = optimum.position[: len(engine.raw)]
        features = engine.features(own)
    (group,) = engine.groups
    none = np.zeros(len(group.nodes))
    parts = [
        Part(FeaturePredictive(features, one, m), group, c, none, none[:, None])
        for c, (m, one) in enumerate(zip(mean, root, strict=True))
    ]
    posterior = Posterior(parts, problem.observations, copy.deepcopy(trainer.likelihood), problem.effect_precision)
    return Fit(
        engine.name,
        reason,
        bool(problem.normalized),
        engine.kernel(own),
        posterior.likelihood,
        posterior,
        optimum,
        [*engine.coordinates, *trainer.coordinates],
        lambda theta: (np.nan, np.full(len(theta), np.nan)),
        sites=[mean, root],
        n_clipped=trainer.n_clipped,
        report={"inducing": engine.inducing, "history": history},
    )
