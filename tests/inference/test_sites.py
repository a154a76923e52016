"""Other likelihoods: converged sites against the best of all Gaussians, found by brute force."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import multivariate_normal

import graphmatern as gm
from contenders import Contender, cases
from dense_process import assert_close, exact, largest_elbo
from graphmatern.errors import NotPositiveDefiniteError
from graphmatern.inference import Observations, Problem
from graphmatern.inference.sites.marginals import LatentField, Sites
from graphmatern.inference.sites.updates import SiteLikelihood, fit_sites
from graphmatern.inference.spectral.engine import SpectralEngine
from graphmatern.likelihoods import (
    Bernoulli,
    Gaussian,
    Likelihood,
    Poisson,
    RobustMax,
    StudentT,
)
from site_cases import BY_SITES, GRAPH, TAU, Y, joined, objective_of, observe
from strategies import graphs

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]


@cache
def brute_force(number: int, name: str) -> tuple[float, Floats, Floats]:
    """The largest ELBO for the prior of a contender."""
    (likelihood, y), contender = Y[name], BY_SITES[number]
    prior = contender.prior(GRAPH, contender.kernel, False)
    covariance, left, _, offset = joined(prior, observe(y))
    values, vectors = np.linalg.eigh(covariance)
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    every = np.array(y).ravel()
    return largest_elbo(root[:, values > 1e-9], left, offset, every[~np.isnan(every)], likelihood)


def reference_of(contender: Contender) -> int:
    """Exact engines share what is found for the first of them."""
    first = next(k for k, one in enumerate(BY_SITES) if one.prior is contender.prior)
    return BY_SITES.index(contender) if contender.prior is not exact else first


#: Expectation propagation, of Student-t noise, has other optima (`test_matching`), unless q is restricted.
RESTRICTED = [one for one in BY_SITES if getattr(one.make, "restricts", False)]
BY_THE_BOUND = [*cases(BY_SITES, [name for name in Y if name != "student_t"]), *cases(RESTRICTED, ["student_t"])]


@pytest.mark.parametrize(("contender", "name"), BY_THE_BOUND)
def test_converged_sites_are_the_best_gaussian(contender: Contender, name: str) -> None:
    """Several replicates, a hole, offsets, and effects N(0, 1/τ) that the replicates share."""
    objective, theta = objective_of(contender, name)
    objective.finish()
    value, _ = objective(theta)
    elbo, mean, variance = brute_force(reference_of(contender), name)
    assert objective.settled
    assert objective.n_clipped == 0
    assert -value == pytest.approx(elbo, abs=1e-6)
    posterior = objective.posterior(theta)
    _, left, nodes, _ = joined(contender.prior(GRAPH, contender.kernel, False), observe(Y[name][1]))
    split = [8, 15]  # values of the first replicate, and of both
    for part in posterior.parts:
        c, k = part.latent, int(part.group.columns[0])
        rows = slice([0, *split][k], split[k])
        found_mean, found_variance = (one[c * 2 + k] for one in posterior.at_observations(part))
        np.testing.assert_array_equal(part.group.nodes, nodes[rows])
        # The ELBO is flat at its top: 1e-6 of it bears 1e-3 in the moments, brute force does better.
        np.testing.assert_allclose(found_mean, mean[c, rows], atol=2e-4)
        np.testing.assert_allclose(found_variance, variance[c, rows] + left[rows], atol=2e-4)


@pytest.mark.parametrize(("contender", "name"), cases(BY_SITES, [n for n in Y if n not in ("student_t", "softmax")]))
def test_moments_are_those_of_the_optimum(contender: Contender, name: str) -> None:
    """Where the ELBO is largest, sites are derivatives of its expectations, here of dense quadrature: to 1e-5."""
    objective, theta = objective_of(contender, name)
    objective.finish()
    posterior, (likelihood, values) = objective.posterior(theta), Y[name]
    every = np.array(values).ravel()
    y = torch.from_numpy(every[~np.isnan(every)])
    covariance, left, _, offset = joined(contender.prior(GRAPH, contender.kernel, False), observe(values))
    parts = sorted(posterior.parts, key=lambda part: int(part.group.columns[0]))
    pairs = [[one[int(part.group.columns[0])] for one in posterior.at_observations(part)] for part in parts]
    mean, variance = (np.concatenate(one) for one in zip(*pairs, strict=True))
    m, v = (torch.from_numpy(one).requires_grad_() for one in (mean + offset, variance))
    z, weights = map(torch.from_numpy, np.polynomial.hermite_e.hermegauss(150))
    expected = (weights / weights.sum()) @ likelihood.log_prob(y, (m + v.sqrt() * z[:, None])[:, None]).squeeze(1)
    in_mean, in_variance = (one.numpy() for one in torch.autograd.grad(expected.sum(), [m, v]))
    eta = -2.0 * in_variance
    spread = np.linalg.solve(np.eye(len(y)) + covariance * eta, covariance)
    np.testing.assert_allclose(mean, spread @ (in_mean + eta * mean), atol=1e-5)
    np.testing.assert_allclose(variance, np.diag(spread) + left, atol=1e-5)


@pytest.mark.parametrize(("contender", "name"), cases(BY_SITES, Y))
def test_gradient_of_the_converged_bound(contender: Contender, name: str) -> None:
    """In every parameter of kernel and likelihood, as if q stayed where it is."""
    objective, theta = objective_of(contender, name)
    objective.finish()
    _, gradient = objective(theta)
    for k, step in enumerate(1e-4 * np.eye(len(theta))):
        numeric = (objective(theta + step)[0] - objective(theta - step)[0]) / 2e-4
        # Sites are at rest to 1e-12 of the bound, and the gradient to about the root of that.
        assert gradient[k] == pytest.approx(numeric, rel=3e-5, abs=2e-6)


@pytest.mark.parametrize(("contender", "name"), cases(BY_SITES, ["poisson", "student_t", "softmax"]))
def test_leaving_one_out_takes_its_site_out(contender: Contender, name: str) -> None:
    """All other sites as they are, everything else computed again."""
    objective, theta = objective_of(contender, name)
    posterior = objective.posterior(theta)
    covariance, left, nodes, _ = joined(contender.prior(GRAPH, contender.kernel, False), observe(Y[name][1]))
    first, second = objective.sites()
    at = 0
    for part, mean, variance in posterior.leave_one_out():
        start = int(part.group.columns[0]) * 8  # the first replicate has 8 values
        for i in range(len(part.group.nodes)):
            row = start + i
            eta, potentials = second[part.latent].copy(), first[part.latent].copy()
            eta[row] = potentials[row] = 0.0
            spread = np.linalg.solve(np.eye(len(nodes)) + covariance * eta, covariance)
            assert_close([mean[i, 0], variance[i]], [(spread @ potentials)[row], spread[row, row] + left[row]], 1e-8)
            at += 1
    assert at == len(nodes) * posterior.n_latents


@pytest.mark.parametrize("contender", [one for one in BY_SITES if one.prior is exact and not one.costly], ids=str)
@settings(max_examples=10)
@given(graph=graphs(masses=True), seed=st.integers(0, 100))
def test_gaussian_noise_is_exact_after_one_step(contender: Contender, graph: gm.Graph, seed: int) -> None:
    """Sites of Gaussian noise are known, so one update from anywhere finds them."""
    rng = np.random.default_rng(seed)
    nodes = rng.integers(0, graph.n_nodes, 1 + graph.n_nodes)  # with repeats
    y, offset = rng.standard_normal(len(nodes)), rng.standard_normal(len(nodes))
    observations = Observations(nodes, y[:, None], np.ones((graph.n_nodes, 1)), offset=offset)
    engine = contender.make(contender.problem(graph, False, observations), observations.replicates)
    latent = LatentField(engine.at(engine.start), observations.replicates, TAU)
    observed = SiteLikelihood(torch.from_numpy(y), Gaussian(0.3), offset)
    start = Sites(np.ones((1, len(nodes))), np.full((1, len(nodes)), 0.1))
    found = fit_sites(latent, observed, start, max_iterations=1)
    k = contender.prior(graph, contender.kernel, False).seen[np.ix_(nodes, nodes)]
    covariance = k + 0.3 * np.eye(len(nodes)) + 1.0 / TAU
    expected = multivariate_normal.logpdf(y - offset, np.zeros(len(nodes)), covariance)
    assert found.elbo == pytest.approx(expected, rel=1e-8, abs=1e-8)


# ---------------------------------------------------------------------- the way to the optimum
CITY = gm.make_roads(55, seed=3)
KERNEL = gm.Matern(2, 2.5, 1.7)
DRAWN: dict[str, tuple[Any, Any]] = {
    "student_t": (lambda: StudentT(0.2, 3.0), lambda f, rng: f[0] + 0.2 * rng.standard_t(2.0, f.shape[1])),
    "robustmax": (lambda: RobustMax(3), lambda f, rng: np.where(rng.random(f.shape[1]) < 0.9, f.argmax(axis=0), 0)),
    "probit": (Bernoulli, lambda f, rng: f[0] + 0.3 * rng.standard_normal(f.shape[1]) > 0),
}


def drawn(name: str, n: int) -> tuple[LatentField, SiteLikelihood, Problem]:
    """Data drawn from the model on a small city."""
    make, draw = DRAWN[name]
    likelihood, rng = make(), np.random.default_rng(0)
    f = KERNEL.on(CITY).sample(likelihood.n_latents, random_state=0).numpy()
    nodes = rng.integers(0, CITY.n_nodes, n)
    y = np.asarray(draw(f[:, nodes], rng), dtype=np.float64)
    return on_city(likelihood, nodes, y)


def on_city(likelihood: Likelihood, nodes: Any, y: Any) -> tuple[LatentField, SiteLikelihood, Problem]:
    y = np.asarray(y, dtype=np.float64)
    observations = Observations(np.asarray(nodes), y[:, None], np.zeros((CITY.n_nodes, 0)))
    problem = Problem(CITY, KERNEL, likelihood, observations)
    engine = SpectralEngine(problem, observations.replicates)
    latent = LatentField(engine.at(engine.start), observations.replicates, 0.0)
    return latent, SiteLikelihood(torch.from_numpy(y), likelihood, np.zeros(len(y))), problem


@pytest.mark.parametrize("name", ["student_t", "robustmax"])
def test_negative_sites_are_part_of_the_optimum(name: str) -> None:
    latent, observed, _ = drawn(name, 60)
    found = fit_sites(latent, observed, observed.start())
    assert found.converged
    assert (found.sites.second < -1e-3).any()
    assert found.n_clipped == 0
    assert (np.diff(found.history) >= -1e-11 * (1 + abs(found.elbo))).all()  # the ELBO never falls


def test_brute_force_finds_no_better_optimum_of_a_likelihood_with_several() -> None:
    latent, observed, problem = drawn("robustmax", 35)
    found = fit_sites(latent, observed)
    k = KERNEL.on(CITY).matrix(CITY.nodes[problem.observations.nodes]).detach().numpy()
    values, vectors = np.linalg.eigh(k)
    root = (vectors * np.sqrt(np.maximum(values, 0.0)))[:, values > 1e-9]
    elbo, *_ = largest_elbo(root, np.zeros(35), np.zeros(35), observed.y.numpy(), observed.likelihood)
    assert found.elbo >= elbo - 1e-5


def test_impossible_sites_are_recovered_from() -> None:
    latent, observed, _ = drawn("probit", 35)
    impossible = Sites(np.zeros((1, 35)), np.full((1, 35), -1e6))
    with pytest.raises(NotPositiveDefiniteError):
        latent.marginals(impossible)
    best = fit_sites(latent, observed, observed.start())
    assert fit_sites(latent, observed, impossible).elbo == pytest.approx(best.elbo, abs=1e-7)


def test_extreme_counts_converge() -> None:
    latent, observed, _ = on_city(Poisson(), np.arange(10), [0, 0, 0, 1e6, 1e6, 1e6, 3, 3, 3, 1e9])
    found = fit_sites(latent, observed, observed.start())
    assert found.converged
    assert np.isfinite(found.elbo)


@pytest.mark.data
def test_a_careful_beginning_finds_a_better_optimum() -> None:
    """From the first guess long steps give up observations that short ones bring to their side."""
    cora = gm.datasets.load_cora()
    nodes = np.random.default_rng(3).permutation(cora.graph.n_nodes)[:140]
    y = cora.values.astype("category").cat.codes.to_numpy()[nodes].astype(np.float64)
    observations = Observations(nodes, y[:, None], np.zeros((cora.graph.n_nodes, 0)))
    problem = Problem(cora.graph, gm.Matern(6.0, 9.0), RobustMax(7), observations, n_eigenpairs=500)
    engine = SpectralEngine(problem, observations.replicates)
    latent = LatentField(engine.at(engine.start), observations.replicates, 0.0)
    observed = SiteLikelihood(torch.from_numpy(y), RobustMax(7), np.zeros(140))
    careful, hasty = (fit_sites(latent, observed, start, tolerance=1e-8) for start in (None, observed.start()))
    assert careful.converged
    assert careful.elbo > hasty.elbo + 5.0
