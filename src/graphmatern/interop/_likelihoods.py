"""Our likelihoods as GPyTorch likelihoods."""

from __future__ import annotations

from typing import Any

import gpytorch
import torch
from torch import distributions

from graphmatern import likelihoods
from graphmatern._validation import FaultList, abbreviate, described
from graphmatern.errors import LikelihoodError
from graphmatern.likelihoods import Categorical, Likelihood

__all__ = ["NodeLikelihood"]


class NodeLikelihood(gpytorch.likelihoods.Likelihood):  # type: ignore[misc]
    """A likelihood of graphmatern, usable in any GPyTorch ``ApproximateGP``: exact expectations, learnable parameters.

    Parameters
    ----------
    likelihood : Likelihood
        Any likelihood of `graphmatern.likelihoods`. Those with one latent process expect a multivariate normal, those
        with several a multitask one with as many tasks (``IndependentMultitaskVariationalStrategy``).

    Examples
    --------
    >>> import gpytorch, torch
    >>> import graphmatern as gm
    >>> likelihood = gm.interop.NodeLikelihood(gm.likelihoods.Poisson())
    >>> q = gpytorch.distributions.MultivariateNormal(torch.zeros(2), torch.eye(2))
    >>> likelihood.expected_log_prob(torch.tensor([0.0, 2.0]), q).shape
    torch.Size([2])

    Counts may have exposures; GPyTorch's objectives pass them on: ``elbo(model(x), y, exposure=hours)``.

    >>> likelihood.expected_log_prob(torch.tensor([0.0, 2.0]), q, exposure=torch.tensor([1.0, 24.0])).shape
    torch.Size([2])
    """

    def __init__(self, likelihood: Likelihood) -> None:
        super().__init__()
        if not isinstance(likelihood, Likelihood):
            faults = FaultList("no NodeLikelihood was made", LikelihoodError)
            remedy = "Use one of gm.likelihoods, such as Poisson(); GPyTorch's own need no NodeLikelihood."
            raise faults.raise_now("likelihood", "must be a graphmatern likelihood", described(likelihood), remedy)
        self.likelihood = likelihood

    def _marginals(self, function_dist: Any) -> tuple[torch.Tensor, torch.Tensor]:
        """Means and variances of the latent processes; shape (n_latents, n), in float64."""
        mean, variance = function_dist.mean, function_dist.variance
        latents = self.likelihood.n_latents
        tasks = mean.shape[-1] if isinstance(function_dist, gpytorch.distributions.MultitaskMultivariateNormal) else 1
        if tasks != latents or mean.ndim != (1 if latents == 1 else 2):
            faults = FaultList("no expectation", LikelihoodError)
            rule = f"must describe {latents} latent process{'' if latents == 1 else 'es'}, without other batches"
            remedy = "Use one task per latent process, for instance by IndependentMultitaskVariationalStrategy."
            raise faults.raise_now("function_dist", rule, f"a mean of shape {tuple(mean.shape)}", remedy)
        if latents == 1:
            return mean[None].double(), variance[None].double()
        return mean.mT.double(), variance.mT.double()

    def _raised(self, f: torch.Tensor, exposure: Any) -> torch.Tensor:
        """Latent values or means, shape (..., n), plus the logarithms of exposures, which only counts have."""
        if exposure is None:
            return f
        faults = FaultList("no expectation", LikelihoodError)
        if not isinstance(self.likelihood, likelihoods.Counts):
            remedy = "Leave it out, or use Poisson or NegativeBinomial."
            raise faults.raise_now("exposure", "must be left out except for counts", repr(self.likelihood), remedy)
        values = torch.as_tensor(exposure, dtype=f.dtype, device=f.device)
        if values.shape not in (torch.Size(), f.shape[-1:]):
            rule = f"must be one number, or one per observation, shape {tuple(f.shape[-1:])}"
            raise faults.raise_now("exposure", rule, f"shape {tuple(values.shape)}", "Align it with the observations.")
        bad = ~(values.isfinite() & (values > 0.0))
        if bad.any():
            received = abbreviate(values[bad].flatten()[:6].tolist(), int(bad.sum()))
            raise faults.raise_now("exposure", "must be positive", received, "Leave observations without exposure out.")
        return f + values.log()

    def _joined(self, observations: torch.Tensor, trials: Any) -> torch.Tensor:
        """Successes as our binomial likelihood takes them: joined with their trials, unless they are already."""
        if trials is None:
            return observations.double()
        if not isinstance(self.likelihood, likelihoods.Binomial):
            faults = FaultList("no expectation", LikelihoodError)
            remedy = "Leave it out, or use Binomial."
            raise faults.raise_now(
                "trials", "must be left out except for binomial counts", repr(self.likelihood), remedy
            )
        joined: torch.Tensor = likelihoods.join_trials(observations.double(), torch.as_tensor(trials).double())
        return joined

    def expected_log_prob(
        self,
        observations: torch.Tensor,
        function_dist: Any,
        *args: Any,
        exposure: torch.Tensor | None = None,
        trials: torch.Tensor | None = None,
    ) -> Any:
        """Expected log-likelihood of each observation, as our likelihood computes it; shape (n,).

        Parameters
        ----------
        observations : Tensor, shape (n,)
            Observations.
        function_dist : MultivariateNormal
            Of the latent processes at their nodes.
        *args
            Ignored, such as the inputs that GPyTorch passes to some likelihoods.
        exposure : Tensor, shape (n,) or (), optional
            Of counts: their rate is exposure · e^f.
        trials : Tensor, shape (n,) or (), optional
            Of binomial observations, which are then successes; otherwise observations are
            ``likelihoods.join_trials(successes, trials)``.
        """
        del args
        mean, variance = self._marginals(function_dist)
        y = self._joined(observations, trials)
        values = self.likelihood.expected_log_prob(y, self._raised(mean, exposure), variance)
        return values.to(function_dist.mean.dtype)

    def forward(
        self,
        function_samples: torch.Tensor,
        *args: Any,
        exposure: torch.Tensor | None = None,
        trials: torch.Tensor | None = None,
    ) -> distributions.Distribution:
        """Distribution of observations given latent values, with one task per class in the last dimension.

        That of a binomial likelihood is of successes, among ``trials``; of one by default.
        """
        del args
        own, f = self.likelihood, self._raised(function_samples, exposure)
        match own:
            case likelihoods.Gaussian():
                return distributions.Normal(f, own.noise.to(f).sqrt())
            case likelihoods.StudentT():
                return distributions.StudentT(own.df.to(f), f, own.scale.to(f))
            case likelihoods.Poisson():
                return distributions.Poisson(f.exp())
            case likelihoods.NegativeBinomial():
                # Odds of a further count: mean over shape, dispersion · e^f.
                return distributions.NegativeBinomial(1.0 / own.dispersion.to(f), logits=f + own.dispersion.to(f).log())
            case likelihoods.ZeroInflatedPoisson():
                shares = torch.stack([own.zeros, 1.0 - own.zeros]).to(f).expand(*f.shape, 2)
                rates = torch.stack([torch.zeros_like(f), f.exp()], dim=-1)
                kinds = distributions.Categorical(probs=shares)
                return distributions.MixtureSameFamily(kinds, distributions.Poisson(rates))
            case likelihoods.Binomial():
                count = torch.ones((), dtype=f.dtype, device=f.device) if trials is None else torch.as_tensor(trials)
                return distributions.Binomial(count.to(f), logits=f)
            case likelihoods.GammaNoise():
                shape = 1.0 / own.dispersion.to(f)
                return distributions.Gamma(shape.expand_as(f), shape * (-f).exp())
            case likelihoods.Bernoulli():
                codes = torch.ones((), dtype=f.dtype, device=f.device)
                return distributions.Bernoulli(logits=_logit(own, codes, f))
            case likelihoods.Softmax():
                return distributions.Categorical(logits=f)
            case Categorical():
                codes = torch.arange(own.n_classes, device=f.device)[:, None]
                values = torch.stack([own.log_prob(code.expand(f.shape[-2]), f.mT) for code in codes], dim=-1)
                return distributions.Categorical(logits=values)
        faults = FaultList("no distribution", LikelihoodError)
        raise faults.raise_now("likelihood", "must be one of graphmatern's", repr(own), "Write its `forward`.")

    def marginal(
        self,
        function_dist: Any,
        *args: Any,
        exposure: torch.Tensor | None = None,
        trials: torch.Tensor | None = None,
    ) -> Any:
        """Predictive distribution: exact for classes and Gaussian noise, else one per sample of f, as in GPyTorch."""
        own = self.likelihood
        if not isinstance(own, Categorical | likelihoods.Gaussian):
            beside = {} if trials is None else {"trials": trials}
            return super().marginal(function_dist, *args, exposure=exposure, **beside)
        self._raised(function_dist.mean, exposure)  # refuses any
        if isinstance(own, likelihoods.Gaussian):
            return distributions.Normal(function_dist.mean, (function_dist.variance + own.noise).sqrt())
        p = own.probabilities(*self._marginals(function_dist)).to(function_dist.mean.dtype)
        return distributions.Bernoulli(p[1]) if own.n_latents == 1 else distributions.Categorical(p.mT)

    def log_marginal(
        self,
        observations: torch.Tensor,
        function_dist: Any,
        *args: Any,
        exposure: torch.Tensor | None = None,
        trials: torch.Tensor | None = None,
    ) -> Any:
        """Log predictive density of each observation; shape (n,)."""
        own = self.likelihood
        if isinstance(own, likelihoods.Binomial):
            moments = self._marginals(function_dist)
            return own.predictive_log_prob(self._joined(observations, trials), *moments).to(function_dist.mean.dtype)
        if isinstance(own, Categorical | likelihoods.Gaussian):
            return self.marginal(function_dist, exposure=exposure).log_prob(observations)
        return super().log_marginal(observations, function_dist, *args, exposure=exposure)


def _logit(likelihood: likelihoods.Bernoulli, ones: torch.Tensor, f: torch.Tensor) -> torch.Tensor:
    """Log odds of class 1: log p(1 | f) − log p(0 | f)."""
    latent = f.unsqueeze(-2)
    return likelihood.log_prob(ones, latent) - likelihood.log_prob(1.0 - ones, latent)
