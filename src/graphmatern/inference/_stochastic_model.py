"""A model of latent processes on nodes, a Gaussian q over whitened coefficients, and the steps that move it.

In whitened coordinates the prior is N(0, I), and with features Φ of the observed nodes the natural gradient of the
ELBO needs only the derivatives g_m, g_v of the expected log-likelihoods in the marginals of q. A step of size ρ on a
batch that stands for `scale` times as many observations is

    P ← (1 − ρ) P + ρ (I + scale Φᵀ diag(−2 g_v) Φ),    m ← m + ρ P⁻¹ (scale Φᵀ g_m − m),

with q = N(m, P⁻¹); where q is to be diagonal, its variances are the reciprocals of the diagonal of P, which is where
they are best. Parameters of kernel and likelihood follow the gradient of the ELBO at fixed q. Without batches P and m
are those of Gaussian sites at the observations, so that `fit_sites` finds the best q.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gpytorch
import numpy as np
import torch

from graphmatern.errors import NotPositiveDefiniteError, NumericalError
from graphmatern.inference._sites import Marginals, SiteObservations, fit_sites
from graphmatern.inference._sites_dense import DensePrior
from graphmatern.inference._strategies import EigenvectorStrategy, InducingNodeStrategy

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from graphmatern.inference._node_kernel import NodeKernel
    from graphmatern.inference._sites import Sites
    from graphmatern.likelihoods import Likelihood

    Floats = NDArray[np.float64]

__all__ = ["Coefficients", "NodeGP", "Trainer"]

_JITTER = 1e-10


class NodeGP(gpytorch.models.ApproximateGP):  # type: ignore[misc]
    """A GPyTorch model of latent processes on the nodes of a graph, with one kernel and a constant mean.

    Parameters
    ----------
    kernel : NodeKernel
        The kernel.
    n_latents : int
        Number of latent processes.
    inducing : Tensor, shape (n_inducing, 1), or int
        Positions of inducing nodes, or a number of eigenvectors.
    diagonal : bool
        Whether q has a diagonal covariance.
    """

    def __init__(
        self, kernel: NodeKernel, n_latents: int, inducing: torch.Tensor | int, *, diagonal: bool, constant: float
    ) -> None:
        count = inducing if isinstance(inducing, int) else len(inducing)
        kind = "MeanFieldVariationalDistribution" if diagonal else "CholeskyVariationalDistribution"
        q = getattr(gpytorch.variational, kind)(count, batch_shape=torch.Size([n_latents]))
        if isinstance(inducing, int):
            strategy: Any = EigenvectorStrategy(self, kernel, q)
        else:
            strategy = InducingNodeStrategy(self, kernel, inducing, q, jitter_val=_JITTER)
        super().__init__(strategy)
        self.covar_module = kernel
        self.mean_module = gpytorch.means.ConstantMean()
        self.double()
        self.mean_module.constant.data.fill_(constant)
        strategy.variational_params_initialized.fill_(1)

    def forward(self, x: torch.Tensor) -> gpytorch.distributions.MultivariateNormal:
        """Prior at nodes."""
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


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


class FeaturePrior(DensePrior):
    """Processes f = Φv + residual of which q changes the coefficients v ~ N(0, I) only; see `LatentPrior`.

    Sites act on Φv: P = I + Φᵀ diag(η₂) Φ and m = P⁻¹Φᵀη₁ = Φᵀ(η₁ − η₂ Φm).

    Parameters
    ----------
    features : ndarray, shape (n, k)
        Φ at the observations.
    residual : ndarray, shape (n,)
        Residual prior variances.
    diagonal : bool
        Whether q has a diagonal covariance.
    """

    def __init__(self, features: Floats, residual: Floats, *, diagonal: bool) -> None:
        super().__init__(features)
        self._features, self._squares, self._residual = features, features**2, residual
        self._diagonal = diagonal

    def _means(self, sites: Sites, explained: Floats) -> Floats:
        """Means of the coefficients, from those of Φv; shape (n_latents, k)."""
        return np.asarray((sites.first - sites.second * explained) @ self._features)

    def marginals(self, sites: Sites) -> Marginals:
        """Marginals of q; see `LatentPrior.marginals`."""
        full = super().marginals(sites)
        variance = full.variance
        part = 0.5 * (full.log_determinant - float(np.sum(sites.second * variance)))
        if self._diagonal:
            precision = 1.0 + sites.second @ self._squares
            if (precision <= 0.0).any():
                raise NotPositiveDefiniteError("negative sites outweigh the prior", -1)
            variance = (1.0 / precision) @ self._squares.T
            part = 0.5 * float((1.0 / precision - 1.0 + np.log(precision)).sum())
        return Marginals(full.mean, variance + self._residual, full.log_determinant, part)

    def gradient(self, sites: Sites, marginals: Marginals) -> Floats:
        """Nothing: parameters are differentiated through the features."""
        del sites, marginals
        return np.zeros(0)

    def coefficients(self, sites: Sites) -> Coefficients:
        """Return q over the coefficients."""
        mean = self._means(sites, super().marginals(sites).mean)
        eye = np.eye(self._features.shape[1])
        precision = torch.as_tensor(
            np.stack([eye + (self._features.T * second) @ self._features for second in sites.second])
        )
        root = torch.linalg.cholesky(precision)
        return Coefficients(torch.as_tensor(mean), precision, root, diagonal=self._diagonal)


class Trainer:
    """Observations, model and q, and the steps that move them.

    Parameters
    ----------
    model : NodeGP
        The model.
    likelihood : Likelihood
        Of each observation.
    x : Tensor, shape (n, 1)
        Positions of the observed nodes.
    y : Tensor, shape (n,)
        Observations.
    offset : Tensor, shape (n,)
        Known part of the latent mean.
    diagonal : bool
        Whether q has a diagonal covariance.
    n_samples : int, optional
        Samples of f per observation from which expectations are estimated; exact quadrature by default.
    generator : torch.Generator, optional
        For the samples.
    """

    def __init__(
        self,
        model: NodeGP,
        likelihood: Likelihood,
        x: torch.Tensor,
        y: torch.Tensor,
        offset: torch.Tensor,
        *,
        diagonal: bool,
        n_samples: int | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        self.model, self.likelihood = model, likelihood
        self._x, self._y, self._offset = x, y, offset
        self._n_samples, self._generator = n_samples, generator
        count = model.variational_strategy.inducing_points.shape[-2]
        self.q = Coefficients.prior(likelihood.n_latents, count, diagonal=diagonal)
        self.n_clipped = 0
        self.settled_elbo = -np.inf  # of the last `settle`
        self._sites: Sites | None = None
        self._best: tuple[float, Floats, Sites] | None = None
        modules = {"kernel": model.covar_module, "mean": model.mean_module, "likelihood": likelihood}
        self.parameters = {
            f"{place}.{name}": parameter
            for place, module in modules.items()
            for name, parameter in module.named_parameters()
            if parameter.requires_grad
        }

    def __len__(self) -> int:
        return len(self._y)

    def _features(self, rows: torch.Tensor | slice) -> tuple[torch.Tensor, torch.Tensor]:
        """Φ of some observations, and their residual prior variances; shapes (n, k) and (n,)."""
        x = self._x[rows]
        features = self.model.variational_strategy.features(x)
        residual = self.model.covar_module(x, diag=True) - (features**2).sum(dim=-1)
        return features, residual.clamp_min(0.0)  # rounding

    def _expected(
        self, rows: torch.Tensor | slice, mean: torch.Tensor, variance: torch.Tensor, *, exact: bool
    ) -> torch.Tensor:
        """Expected log-likelihoods under marginals of q, or estimates of them; shape (n,)."""
        y, centre = self._y[rows], mean + self._offset[rows] + self.model.mean_module.constant
        if self._n_samples is None or exact:
            return self.likelihood.expected_log_prob(y, centre, variance)
        shape = self._n_samples, *mean.shape
        normal = torch.randn(shape, generator=self._generator, dtype=torch.float64)
        return self.likelihood.log_prob(y, centre + variance.clamp_min(1e-100).sqrt() * normal).mean(dim=0)

    def elbo(self, rows: torch.Tensor | None = None, *, exact: bool = False) -> torch.Tensor:
        """The ELBO, differentiable in the parameters; an unbiased estimate where a batch of rows is given."""
        chosen = slice(None) if rows is None else rows
        features, residual = self._features(chosen)
        mean, variance = self.q.moments(features)
        expected = self._expected(chosen, mean, residual + variance, exact=exact)
        return (len(self) / len(expected)) * expected.sum() - self.q.divergence()

    @torch.no_grad()
    def natural_step(self, size: float, rows: torch.Tensor | None = None) -> Coefficients:
        """Return q after one step; it is not yet put in place."""
        chosen = slice(None) if rows is None else rows
        features, residual = self._features(chosen)
        mean, variance = self.q.moments(features)
        with torch.enable_grad():
            m, v = mean.requires_grad_(), (variance + residual).requires_grad_()
            in_mean, in_variance = torch.autograd.grad(self._expected(chosen, m, v, exact=False).sum(), (m, v))
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

    @torch.no_grad()
    def settle(self, tolerance: float = 1e-12, rival: float | None = None) -> bool:
        """Move q to the optimum at fixed parameters; return whether it came to rest there. See `fit_sites`."""
        features, residual = self._features(slice(None))
        prior = FeaturePrior(features.numpy(), residual.numpy(), diagonal=self.q.diagonal)
        places = self._x[:, 0].long().numpy()
        observed = SiteObservations(places, self._y, self.likelihood, self._offset.numpy())
        constant = self.model.mean_module.constant.item()
        start = self._sites
        if start is None and self.q.diagonal:
            # Diagonal covariances have several optima; the sites of the full one lead to the best we know.
            full = FeaturePrior(features.numpy(), residual.numpy(), diagonal=False)
            start = fit_sites(full, observed, mean=constant, tolerance=tolerance).sites
        state = fit_sites(prior, observed, start, mean=constant, tolerance=tolerance, rival=rival)
        self._sites, self.q = state.sites, prior.coefficients(state.sites)
        self.n_clipped += state.n_clipped
        self.settled_elbo = state.elbo
        return state.converged

    # ------------------------------------------------------------------ parameters
    def move(self, position: Floats) -> None:
        """Set the free parameters, unconstrained."""
        with torch.no_grad():
            for parameter, value in zip(self.parameters.values(), position, strict=True):
                parameter.fill_(float(value))

    def position(self) -> Floats:
        """Free parameters, unconstrained."""
        return np.array([parameter.detach().item() for parameter in self.parameters.values()])

    def bounds(self) -> list[tuple[float, float]]:
        """Where an optimiser may move the free parameters: far, but not to where all is rounding."""
        smoothness = float(np.log(0.05)), float(np.log(100.0))
        wide = [(value - 10.0, value + 10.0) for value in self.position()]
        return [smoothness if ".raw_nu" in name else bound for name, bound in zip(self.parameters, wide, strict=True)]

    def objective(self, position: Floats) -> tuple[float, Floats]:
        """Negative ELBO at the best q, and its derivatives.

        q may have several optima (diagonal covariances do): the search starts from the sites of the best point so far.
        """
        self.move(position)
        rival = None
        if self._best is not None:
            rival, _, self._sites = self._best
        self.settle(1e-9, rival)
        value = self.elbo()
        assert self._sites is not None
        if self._best is None or value.item() > self._best[0]:
            self._best = value.item(), position.copy(), self._sites
        gradient = torch.autograd.grad(value, list(self.parameters.values()))
        return -value.item(), -np.array([one.item() for one in gradient])

    def return_to_best(self) -> bool:
        """Set parameters and q to the best that `objective` met; return whether q is at rest there."""
        assert self._best is not None
        _, position, self._sites = self._best
        self.move(position)
        return self.settle()

    def write_back(self) -> None:
        """Give the GPyTorch model our q."""
        distribution = self.model.variational_strategy._variational_distribution
        with torch.no_grad():
            distribution.variational_mean.copy_(self.q.mean)
            if self.q.diagonal:
                distribution._variational_stddev.copy_(self.q.factor)
            else:
                covariance = self.q.factor @ self.q.factor.mT
                distribution.chol_variational_covar.copy_(torch.linalg.cholesky(covariance))
        self.model.eval()
