"""Every likelihood beside Markov chains, on 30 nodes with covariates and exposures, at given parameters.

Run through ``make evidence``, which writes likelihoods_mcmc.md beside this file. The latent processes η = Xb + f, with
normal coefficients b, are drawn by elliptical slice sampling (Murray, Adams and MacKay 2010), many chains at a time.
What is drawn from is the dense prior times the likelihood; the ellipses are those of our posterior, a little wider, so
that chains mix well (Nishihara, Murray and Adams 2014), which does not change where they end.
"""

from __future__ import annotations

import argparse
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

import graphmatern as gm
from graphmatern.inference import Observations, Problem, Search, learn
from graphmatern.likelihoods import (
    Bernoulli,
    Binomial,
    GammaNoise,
    Gaussian,
    MultinomialProbit,
    NegativeBinomial,
    Poisson,
    RobustMax,
    Softmax,
    StudentT,
    ZeroInflatedPoisson,
    join_trials,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

N, TAU = 30, 1.0  # nodes, and prior precision of the coefficients
KERNEL = gm.Matern(2.0, lengthscale=3.0, variance=0.8)
CHAINS, BURN, WIDER = 48, 100, 1.2


def truth(rng: np.random.Generator) -> tuple[gm.Graph, Floats, Floats, Floats]:
    """The graph, the design, log exposures, and the prior covariance of η, from dense matrices."""
    edges = [(i, i + 1) for i in range(N - 1)] + [(i, i + 7) for i in range(0, N - 7, 2)]
    graph = gm.Graph.from_edges(edges)
    design = np.column_stack([np.ones(N), rng.standard_normal(N)])
    values, vectors = np.linalg.eigh(graph.laplacian().toarray())
    spread = (2.0 * 2.0 / 3.0**2 + np.maximum(values, 0.0)) ** -2.0
    kernel = (vectors * spread) @ vectors.T
    kernel *= 0.8 * N / np.trace(kernel)
    return graph, design, np.log(rng.uniform(0.5, 6.0, N)), kernel + design @ design.T / TAU


def cases(rng: np.random.Generator, covariance: Floats, offset: Floats) -> dict[str, tuple[Any, Floats, Floats]]:
    """Likelihoods, observations drawn from them, and offsets."""
    root = np.linalg.cholesky(covariance + 1e-10 * np.eye(N))
    eta = root @ rng.standard_normal(N)
    classes = (root @ rng.standard_normal((N, 3))).argmax(axis=1).astype(np.float64)
    counts = rng.poisson(np.exp(eta + offset)).astype(np.float64)
    trials = rng.integers(1, 9, N).astype(np.float64)
    successes = rng.binomial(trials.astype(int), 1.0 / (1.0 + np.exp(-eta)))
    nothing = np.zeros(N)
    heavy = eta + 0.3 * rng.standard_t(4, N)
    return {
        "gaussian": (Gaussian(0.2), eta + np.sqrt(0.2) * rng.standard_normal(N), nothing),
        "student_t": (StudentT(0.3, 4.0), heavy, nothing),
        "poisson": (Poisson(), counts, offset),
        "negative_binomial": (NegativeBinomial(0.5), counts, offset),
        "zero_inflated_poisson": (ZeroInflatedPoisson(0.2), np.where(rng.random(N) < 0.2, 0.0, counts), offset),
        "binomial": (Binomial(), join_trials(successes.astype(np.float64), trials), nothing),
        "gamma": (GammaNoise(0.3), np.exp(eta) * rng.gamma(1.0 / 0.3, 0.3, N), nothing),
        "bernoulli, probit": (Bernoulli(), (eta + rng.standard_normal(N) > 0.0).astype(np.float64), nothing),
        "bernoulli, logit": (Bernoulli("logit"), (eta + rng.logistic(size=N) > 0.0).astype(np.float64), nothing),
        "probit, three classes": (MultinomialProbit(3), classes, nothing),
        "softmax, three classes": (Softmax(3), classes, nothing),
        "robustmax, three classes": (RobustMax(3), classes, nothing),
    }


def chains(case: tuple[Any, Floats, Floats], covariance: Floats, near: tuple[Floats, Floats], draws: int) -> Floats:
    """Means over each chain of η and η²; shape (2, n_chains, n_latents, n).

    Parameters
    ----------
    case : tuple
        Likelihood, observations, offsets.
    covariance : ndarray, shape (n, n)
        Of every latent process before the data.
    near : tuple of ndarray, shape (n_latents, n) and (n_latents, n, n)
        Means and covariances whose ellipses are followed.
    draws : int
        Of each chain.
    """
    likelihood, y, offset = case
    rng, shape = np.random.default_rng(1), (CHAINS, likelihood.n_latents, N)
    centre, root = near[0], np.linalg.cholesky(near[1] + 1e-10 * np.eye(N))
    prior, whiten = np.linalg.inv(covariance + 1e-10 * np.eye(N)), np.linalg.inv(root)
    observed = torch.from_numpy(y)

    def log_ratio(away: Floats) -> Floats:
        """Log density of what is drawn from, relative to the normal distribution of the ellipses."""
        f = centre + away
        with torch.no_grad():
            found: Floats = likelihood.log_prob(observed, torch.from_numpy(f + offset)).sum(-1).numpy()
        white = np.einsum("lij,slj->sli", whiten, away)
        return found - 0.5 * np.einsum("sli,ij,slj->s", f, prior, f) + 0.5 * np.einsum("sli,sli->s", white, white)

    def draw() -> Floats:
        return np.einsum("lij,slj->sli", root, rng.standard_normal(shape))

    f = draw()
    at, sums = log_ratio(f), np.zeros((2, *shape))
    for step in range(BURN + draws):
        other = draw()
        level = at - rng.exponential(size=CHAINS)
        angle = rng.uniform(0.0, 2.0 * np.pi, CHAINS)
        low, high = angle - 2.0 * np.pi, angle.copy()
        rows, moved = np.arange(CHAINS), f.copy()
        while len(rows):
            turn = angle[rows, None, None]
            tried = np.cos(turn) * f[rows] + np.sin(turn) * other[rows]
            value = log_ratio(tried)
            taken = value > level[rows]
            moved[rows[taken]], at[rows[taken]] = tried[taken], value[taken]
            rows = rows[~taken]
            low[rows] = np.where(angle[rows] < 0.0, angle[rows], low[rows])
            high[rows] = np.where(angle[rows] < 0.0, high[rows], angle[rows])
            angle[rows] = rng.uniform(low[rows], high[rows])
        f = moved
        if step >= BURN:
            sums += [centre + f, (centre + f) ** 2]
    return sums / draws


def compare(name: str, case: tuple[Any, Floats, Floats], setting: tuple[Any, ...], draws: int) -> str:
    """A row of the table: means and standard deviations of η at all nodes, of all latent processes."""
    likelihood, y, offset = case
    graph, design, _, covariance = setting
    seen = Observations(np.arange(N), y[:, None], design, offset=offset)
    problem = Problem(graph, KERNEL, likelihood, seen, effect_precision=TAU, search=Search(None))
    posterior = learn(problem, "spectral").posterior
    every = np.arange(N)
    ours, deviation = posterior.latent_mean(every), np.sqrt(posterior.latent_variance(every))
    spreads = np.stack([posterior.latent_covariance(every, row) for row in range(likelihood.n_latents)])
    began = time.process_time()
    sums = chains(case, covariance, (ours, WIDER * spreads), draws)
    seconds = time.process_time() - began
    mean, sd = sums[0].mean(axis=0), np.sqrt(sums[1].mean(axis=0) - sums[0].mean(axis=0) ** 2)
    error = sums[0].std(axis=0) / np.sqrt(CHAINS) / sd
    away, ratio = np.abs(ours - mean) / sd, deviation / sd
    form = {"bound": "variational"}.get(likelihood.approximation, "expectation propagation")
    kind = "exact" if likelihood.gaussian else form
    return (
        f"| {name} | {kind} | {away.max():.3f} | {np.median(away):.3f} | {error.max():.3f} | {ratio.min():.3f} | "
        f"{ratio.max():.3f} | {seconds:.1f} s |"
    )


def main() -> None:
    """Write the report."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--draws", type=int, default=1_000)
    options = parser.parse_args()
    rng = np.random.default_rng(3)
    setting = truth(rng)
    every = cases(rng, setting[3], setting[2])
    rows = []
    for name, case in every.items():
        rows.append(compare(name, case, setting, options.draws))
        print(rows[-1], flush=True)
    text = [
        "# Likelihoods beside Markov chains",
        "",
        f"Made by `make evidence` on {datetime.now(UTC):%Y-%m-%d}: {N} nodes, each observed once; a constant and a",
        "covariate with normal coefficients; exposures of counts; parameters given. Latent processes at all nodes:",
        f"differences of their means in posterior standard deviations, and ratios of these, beside {CHAINS} chains of",
        f"{options.draws:,} draws by elliptical slice sampling. The chains' own error is the largest standard error of",
        "a mean. Classes that are coupled by softmax or robustmax are approximated as if they were independent.",
        "",
        "| likelihood | ours | largest difference | median | chains' error | least ratio of sd | largest | took |",
        "|---|---|---|---|---|---|---|---|",
        *rows,
        "",
    ]
    Path(__file__).with_suffix(".md").write_text("\n".join(text))


if __name__ == "__main__":
    main()
