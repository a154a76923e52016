"""Site inference against exact Gaussian posteriors, a dense maximiser of the ELBO, and finite differences."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

import graphmatern as gm
from graphmatern.errors import NotPositiveDefiniteError
from graphmatern.inference._fit_sites import SITE_ENGINES, SiteFit, SiteProblem
from graphmatern.inference._fitting import FitOptions
from graphmatern.inference._markov_engine import MarkovEngine
from graphmatern.inference._sites import LatentPosterior, LatentPrior, SiteObservations, Sites, fit_sites
from graphmatern.inference._sites_dense import DensePrior
from graphmatern.inference._sites_markov import MarkovPosterior, MarkovPrior, SolvedPrior
from graphmatern.inference._sites_spectral import SpectralPosterior, SpectralPrior
from graphmatern.likelihoods import (
    Bernoulli,
    Gaussian,
    Likelihood,
    NegativeBinomial,
    Poisson,
    RobustMax,
    Softmax,
    StudentT,
)
from reference import dense_kernel, matern_psi
from strategies import graphs

if TYPE_CHECKING:
    from numpy.typing import NDArray

Floats = Any
FORMS = ("spectral", "sparse", "solved")
NU, LENGTHSCALE, VARIANCE = 2, 2.5, 1.7


def observe(likelihood: Likelihood, nodes: Any, y: Any, offset: Any = None) -> SiteObservations:
    places = np.asarray(nodes, dtype=np.int64)
    shift = np.zeros(len(places)) if offset is None else np.asarray(offset, dtype=float)
    return SiteObservations(places, torch.tensor(np.asarray(y, dtype=float)), likelihood, shift)


def latent(
    form: str, graph: gm.Graph, nodes: NDArray[np.int64], lengthscale: float = LENGTHSCALE, variance: float = VARIANCE
) -> LatentPrior:
    """The same processes in each form."""
    if form == "spectral":
        return SpectralPrior(gm.Matern(NU, lengthscale, variance, fixed="nu").on(graph), nodes)
    engine = MarkovEngine(graph, NU, [], normalized=False)
    amplitude = variance / engine.average_variance(float(np.log(lengthscale)))
    return (MarkovPrior if form == "sparse" else SolvedPrior)(engine, nodes, lengthscale, amplitude)


def processes_under_q(form: str, graph: gm.Graph, nodes: NDArray[np.int64], sites: Sites) -> LatentPosterior:
    if form == "spectral":
        return SpectralPosterior(gm.Matern(NU, LENGTHSCALE, VARIANCE).on(graph), nodes, sites)
    engine = MarkovEngine(graph, NU, [], normalized=False)
    amplitude = VARIANCE / engine.average_variance(float(np.log(LENGTHSCALE)))
    return MarkovPosterior(engine.precision, nodes, sites, LENGTHSCALE, amplitude)


def dense_maximum(
    kernel: Floats, nodes: NDArray[np.int64], y: torch.Tensor, likelihood: Likelihood
) -> tuple[float, Floats, Floats]:
    """Largest ELBO over all Gaussians on the observed nodes, by brute force; marginals of (n_latents, n_distinct)."""
    distinct, place = np.unique(nodes, return_inverse=True)
    n, c = len(distinct), likelihood.n_latents
    root = torch.linalg.cholesky(torch.tensor(kernel[np.ix_(distinct, distinct)]))
    free = torch.cat([torch.zeros(c, n, 1), torch.eye(n).expand(c, n, n)], dim=2).to(torch.float64).requires_grad_()

    def pieces() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        m, factor = free[:, :, 0], torch.tril(free[:, :, 1:])  # whitened
        mean, spread = m @ root.T, root @ factor
        variance = (spread**2).sum(dim=2)
        log_det = 2.0 * torch.log(torch.diagonal(factor, dim1=1, dim2=2).abs()).sum()
        divergence = 0.5 * ((factor**2).sum() + (m**2).sum() - c * n - log_det)
        value = likelihood.expected_log_prob(y, mean[:, place], variance[:, place]).sum() - divergence
        return value, mean, variance

    optimizer = torch.optim.LBFGS(
        [free],
        max_iter=3000,
        history_size=50,
        tolerance_grad=1e-9,
        tolerance_change=1e-15,
        line_search_fn="strong_wolfe",
    )

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = -pieces()[0]
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    optimizer.step(closure)  # type: ignore[no-untyped-call]
    value, mean, variance = (x.detach() for x in pieces())
    return value.item(), mean.numpy(), variance.numpy()


@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=20)
@given(graph=graphs(masses=True), seed=st.integers(0, 100))
def test_gaussian_noise_is_exact_after_one_step(form: str, graph: gm.Graph, seed: int) -> None:
    rng = np.random.default_rng(seed)
    nodes = rng.integers(0, graph.n_nodes, 1 + graph.n_nodes)  # with repeats
    offset, y = rng.normal(size=len(nodes)), rng.normal(size=len(nodes))
    observed = observe(Gaussian(0.3), nodes, y, offset)
    start = Sites(np.ones((1, len(nodes))), np.full((1, len(nodes)), 0.1))
    found = fit_sites(latent(form, graph, nodes), observed, start, mean=0.7, max_iterations=1)
    kernel = dense_kernel(graph, matern_psi(NU, LENGTHSCALE), variance=VARIANCE)
    k, noise = kernel[np.ix_(nodes, nodes)], 0.3 * np.eye(len(nodes))
    residual = y - offset - 0.7
    exact = stats.multivariate_normal.logpdf(residual, np.zeros(len(nodes)), k + noise)
    assert found.elbo == pytest.approx(exact, abs=1e-8)
    every = np.arange(graph.n_nodes)
    posterior = processes_under_q(form, graph, nodes, found.sites)
    gain = np.linalg.solve(k + noise, kernel[nodes]).T
    covariance = kernel - gain @ kernel[nodes]
    np.testing.assert_allclose(posterior.mean(every)[0], gain @ residual, atol=1e-8)
    np.testing.assert_allclose(posterior.variance(every)[0], np.diag(covariance), atol=1e-8)
    np.testing.assert_allclose(posterior.covariance(every), covariance, atol=1e-8)


SMALL = gm.make_roads(55, seed=3)
# Likelihood and how its data are drawn, given latent functions (n_latents, n).
CASES: dict[str, tuple[Any, Any]] = {
    "probit": (Bernoulli, lambda f, rng: f[0] + 0.3 * rng.standard_normal(f.shape[1]) > 0),
    "logit": (lambda: Bernoulli("logit"), lambda f, rng: f[0] + 0.3 * rng.standard_normal(f.shape[1]) > 0),
    "poisson": (Poisson, lambda f, rng: rng.poisson(np.exp(f[0]))),
    "negative_binomial": (lambda: NegativeBinomial(0.3), lambda f, rng: rng.poisson(np.exp(f[0]) * rng.gamma(3) / 3)),
    "student_t": (lambda: StudentT(0.2, 3.0), lambda f, rng: f[0] + 0.2 * rng.standard_t(2.0, f.shape[1])),
    "softmax": (lambda: Softmax(3), lambda f, rng: f.argmax(axis=0)),
    "robustmax": (lambda: RobustMax(3), lambda f, rng: np.where(rng.random(f.shape[1]) < 0.9, f.argmax(axis=0), 0)),
}


def example(name: str, graph: gm.Graph = SMALL, n: int = 35, seed: int = 0) -> SiteObservations:
    make, draw = CASES[name]
    likelihood, rng = make(), np.random.default_rng(seed)
    f = gm.Matern(NU, LENGTHSCALE, VARIANCE).on(graph).sample(likelihood.n_latents, random_state=seed).numpy()
    nodes = rng.integers(0, graph.n_nodes, n)
    return observe(likelihood, nodes, draw(f[:, nodes], rng))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", CASES)
def test_equals_the_best_gaussian(name: str, form: str) -> None:
    """Each form equals brute force over all Gaussians; the ELBO never falls, and no negative site is clipped."""
    observed = example(name)
    found = fit_sites(latent(form, SMALL, observed.nodes), observed, observed.start())
    assert found.converged
    assert found.n_clipped == 0
    assert (np.diff(found.history) >= -1e-11 * (1 + abs(found.elbo))).all()
    kernel = dense_kernel(SMALL, matern_psi(NU, LENGTHSCALE), variance=VARIANCE)
    elbo, mean, variance = dense_maximum(kernel, observed.nodes, observed.y, observed.likelihood)
    if name == "robustmax":  # several maxima: brute force must not find a better one
        assert found.elbo >= elbo - 1e-5
    else:
        assert found.elbo == pytest.approx(elbo, abs=1e-5)
        place = np.unique(observed.nodes, return_inverse=True)[1]
        np.testing.assert_allclose(found.marginals.mean, mean[:, place], atol=2e-4)
        np.testing.assert_allclose(found.marginals.variance, variance[:, place], atol=2e-4)


@pytest.mark.parametrize("name", ["student_t", "robustmax"])
def test_negative_sites_are_part_of_the_optimum(name: str) -> None:
    observed = example(name, n=60)
    found = fit_sites(latent("spectral", SMALL, observed.nodes), observed, observed.start())
    assert found.converged
    assert (found.sites.second < -1e-3).any()
    assert found.n_clipped == 0


def test_sites_that_outweigh_the_prior_are_refused_and_recovered_from() -> None:
    observed = example("probit")
    impossible = Sites(np.zeros(observed.shape), np.full(observed.shape, -1e6))
    for form in FORMS:
        prior = latent(form, SMALL, observed.nodes)
        with pytest.raises(NotPositiveDefiniteError):
            prior.marginals(impossible)
        found = fit_sites(prior, observed, impossible)
        best = fit_sites(prior, observed, observed.start())
        assert found.elbo == pytest.approx(best.elbo, abs=1e-7)


@pytest.mark.parametrize("engine", SITE_ENGINES)
@pytest.mark.parametrize("name", CASES)
def test_gradient_of_the_converged_bound(name: str, engine: str) -> None:
    """Of the ELBO in every parameter: kernel, likelihood, mean."""
    observed = example(name, n=30)
    kernel = gm.Matern(NU, LENGTHSCALE, VARIANCE, fixed="nu" if engine == "markov" else ())
    options = FitOptions(normalized=False, optimizer=None)
    single = observed.likelihood.n_latents == 1
    found = SITE_ENGINES[engine](SiteProblem(SMALL, kernel, observed, options, mean=0.2 * single, learn_mean=single))
    theta = found.optimum.position
    labels = [one.label for one in found.parameters]
    assert ("variance" in labels) == (name != "robustmax")
    for k, step in enumerate(1e-4 * np.eye(len(theta))):
        numeric = (found.objective(theta + step)[0] - found.objective(theta - step)[0]) / 2e-4
        assert found.objective(theta)[1][k] == pytest.approx(numeric, rel=2e-4, abs=2e-5), labels[k]


def test_engines_learn_the_same() -> None:
    graph = gm.make_roads(300, seed=1)
    observed = example("probit", graph, n=150)
    fits: list[SiteFit] = []
    for engine, fit in SITE_ENGINES.items():
        kernel = gm.Matern(NU, 5.0, fixed="nu")
        fits.append(fit(SiteProblem(graph, kernel, observed, FitOptions(normalized=False))))
        assert fits[-1].engine == engine
        assert fits[-1].converged
    one, other = fits
    assert one.elbo == pytest.approx(other.elbo, abs=1e-6)
    for key, value in one.kernel.values().items():  # type: ignore[operator]
        assert other.kernel.values()[key] == pytest.approx(value, rel=1e-2)  # type: ignore[operator]
    every = np.arange(graph.n_nodes)
    for a, b in zip(one.latent_marginals(every), other.latent_marginals(every), strict=True):
        np.testing.assert_allclose(a, b, atol=2e-2)


@pytest.mark.parametrize("form", ["spectral", "sparse"])
def test_samples_have_the_moments_of_q(form: str) -> None:
    for name, n in (("student_t", 20), ("softmax", 90)):  # fewer and more observations than eigenvectors
        observed = example(name, n=n)
        found = fit_sites(latent(form, SMALL, observed.nodes), observed, observed.start())
        posterior = processes_under_q(form, SMALL, observed.nodes, found.sites)
        nodes = np.arange(0, SMALL.n_nodes, 3)
        draws = posterior.sample(20_000, nodes, np.random.default_rng(0))
        std = np.sqrt(posterior.variance(nodes))
        np.testing.assert_allclose(draws.mean(axis=0), posterior.mean(nodes), atol=0.05 * std.max())
        for c in range(len(std)):
            covariance = posterior.covariance(nodes, c)
            np.testing.assert_allclose(np.diag(covariance), std[c] ** 2, atol=1e-9)
            np.testing.assert_allclose(np.cov(draws[:, c].T), covariance, atol=0.05 * std.max() ** 2)


def test_exposures_are_offsets() -> None:
    """Counts over an exposure of 2 carry the same information as rates doubled."""
    observed = example("poisson")
    prior = latent("spectral", SMALL, observed.nodes)
    shifted = SiteObservations(observed.nodes, observed.y, observed.likelihood, np.full(len(observed.nodes), np.log(2)))
    one = fit_sites(prior, shifted, shifted.start())
    other = fit_sites(prior, observed, observed.start(), mean=float(np.log(2)))
    assert one.elbo == pytest.approx(other.elbo, abs=1e-7)


def test_extreme_counts_converge() -> None:
    nodes = np.arange(10)
    observed = observe(Poisson(), nodes, [0, 0, 0, 1e6, 1e6, 1e6, 3, 3, 3, 1e9])
    found = fit_sites(latent("spectral", SMALL, nodes), observed, observed.start())
    assert found.converged
    assert np.isfinite(found.elbo)


class Plain(DensePrior):
    def gradient(self, sites: Sites, marginals: Any) -> Any:
        return np.zeros(0)


@pytest.mark.parametrize(("strongest", "digits"), [(1.0, 1e-10), (1e9, 1e-6)])
def test_features_and_covariance_give_the_same_marginals(strongest: float, digits: float) -> None:
    rng = np.random.default_rng(21)
    features = rng.standard_normal((12, 12))  # square: both ways are open
    second = np.exp(rng.normal(0, 2, (3, 12)))
    second[:, 0] = strongest
    second[1, 3:5] = -0.05 / np.sum(features[3:5] ** 2, axis=1)
    sites = Sites(rng.standard_normal((3, 12)) * np.abs(second), second)
    covariance = features @ features.T
    ways = Plain(features), Plain(None, covariance)
    assert [way.in_function_space for way in ways] == [False, True]
    for way in ways:
        found = way.marginals(sites)
        for c in range(3):
            exact = np.linalg.inv(np.linalg.inv(covariance) + np.diag(second[c]))
            np.testing.assert_allclose(found.variance[c], np.diag(exact), rtol=digits)
            np.testing.assert_allclose(found.mean[c], exact @ sites.first[c], rtol=10 * digits, atol=digits)
        expected = sum(np.linalg.slogdet(np.eye(12) + covariance * one)[1] for one in second)
        assert found.log_determinant == pytest.approx(expected, rel=digits)
    gradients = [way.covariance_gradient(sites, way.marginals(sites)) for way in ways]
    np.testing.assert_allclose(gradients[0], gradients[1], rtol=10 * digits, atol=1e-9 * strongest)


@pytest.mark.data
def test_a_careful_beginning_finds_a_better_optimum() -> None:
    """From the first guess long steps give up observations that short ones bring to their side."""
    cora = gm.datasets.load_cora()
    nodes = np.random.default_rng(3).permutation(cora.graph.n_nodes)[:140]
    observed = observe(RobustMax(7), nodes, cora.values.astype("category").cat.codes.to_numpy()[nodes])
    prior = SpectralPrior(gm.Matern(6.0, 9.0).on(cora.graph, False, 500), nodes)
    careful, hasty = (fit_sites(prior, observed, start, tolerance=1e-8) for start in (None, observed.start()))
    assert careful.converged
    assert careful.elbo > hasty.elbo + 5.0
