"""The best Gaussian approximation against long Markov chains (elliptical slice sampling), on a graph of about 50 nodes.

Run through ``make evidence``; writes variational_mcmc.md beside this file. Asked for: posterior means within 0.1
standard deviations, variances within 15 %.
"""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

import graphmatern as gm
from graphmatern.inference import Observations, Problem, Search, learn
from graphmatern.likelihoods import Bernoulli, Likelihood, Poisson, Softmax

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

GRAPH = gm.make_roads(58, seed=4)
KERNEL = gm.Matern(nu=2, lengthscale=3.0, variance=1.0)
CHAINS, STEPS, WARM_UP = 128, 4_000, 500


def log_likelihood(likelihood: Likelihood, y: torch.Tensor, f: Floats) -> Floats:
    """Of chains (n_chains, n_latents, n_observed); shape (n_chains,)."""
    with torch.no_grad():
        return likelihood.log_prob(y, torch.from_numpy(f)).sum(dim=-1).numpy()


def elliptical_slices(
    likelihood: Likelihood, y: torch.Tensor, nodes: Any, root: Floats, rng: np.random.Generator
) -> tuple[Floats, Floats, Floats]:
    """Posterior moments by many chains at once (Murray, Adams and MacKay 2010); mean, variance, error of the mean."""
    shape = (CHAINS, likelihood.n_latents, len(root))
    f = rng.standard_normal(shape) @ root.T
    current = log_likelihood(likelihood, y, f[:, :, nodes])
    total, squares = np.zeros(shape), np.zeros(shape)
    for step in range(STEPS + WARM_UP):
        other = rng.standard_normal(shape) @ root.T
        level = current + np.log(rng.random(CHAINS))
        angle = rng.uniform(0, 2 * np.pi, CHAINS)
        low, high = angle - 2 * np.pi, angle.copy()
        waiting = np.arange(CHAINS)
        proposed, value = f.copy(), current.copy()
        while len(waiting):
            a = angle[waiting, None, None]
            proposed[waiting] = f[waiting] * np.cos(a) + other[waiting] * np.sin(a)
            value[waiting] = log_likelihood(likelihood, y, proposed[waiting][:, :, nodes])
            waiting = waiting[value[waiting] <= level[waiting]]
            below = angle[waiting] < 0
            low[waiting] = np.where(below, angle[waiting], low[waiting])
            high[waiting] = np.where(below, high[waiting], angle[waiting])
            angle[waiting] = rng.uniform(low[waiting], high[waiting])
        f, current = proposed, value
        if step >= WARM_UP:
            total += f
            squares += f**2
    means = total / STEPS
    mean = means.mean(axis=0)
    return mean, (squares / STEPS).mean(axis=0) - mean**2, means.std(axis=0) / np.sqrt(CHAINS)


def main() -> None:
    """Write the table."""
    covariance = KERNEL.on(GRAPH).matrix().detach().numpy()
    root = np.linalg.cholesky(covariance + 1e-10 * np.eye(GRAPH.n_nodes))
    rng = np.random.default_rng(0)
    every = np.arange(GRAPH.n_nodes)
    lines = [
        "# The best Gaussian approximation against long Markov chains",
        "",
        f"A road-like graph of {GRAPH.n_nodes} nodes, {KERNEL!r}, 40 observations; {CHAINS} chains of {STEPS:,}",
        "steps of elliptical slice sampling each. Largest and average difference over all nodes and latent processes.",
        f"Made by `python evidence/variational_mcmc.py` on {dt.date.today().isoformat()}, seed 0.",
        "",
        "| likelihood | means, in standard deviations | their Monte-Carlo error | variances, largest | on average |",
        "|---|---|---|---|---|",
    ]
    for likelihood in (Bernoulli(), Bernoulli("logit"), Poisson(), Softmax(3)):
        f = root @ rng.standard_normal((GRAPH.n_nodes, likelihood.n_latents))
        nodes = rng.choice(GRAPH.n_nodes, 40, replace=False)
        if isinstance(likelihood, Poisson):
            y = rng.poisson(np.exp(f[nodes, 0]))
        elif likelihood.n_latents == 1:
            y = f[nodes, 0] + 0.5 * rng.standard_normal(40) > 0
        else:
            y = (f[nodes] + rng.gumbel(size=(40, 3))).argmax(axis=1)
        values = np.asarray(y, dtype=np.float64)
        observed = Observations(nodes, values[:, None], np.zeros((GRAPH.n_nodes, 0)))
        q = learn(Problem(GRAPH, KERNEL, likelihood, observed, search=Search(None)), "spectral").posterior
        mean, variance, error = elliptical_slices(likelihood, torch.from_numpy(values), nodes, root, rng)
        away = np.abs(q.latent_mean(every) - mean) / np.sqrt(variance)
        ratio = np.abs(q.latent_variance(every) / variance - 1.0)
        name = repr(likelihood)
        lines.append(
            f"| {name} | {away.max():.3f} (average {away.mean():.3f}) | {(error / np.sqrt(variance)).max():.3f} | "
            f"{ratio.max():.1%} | {ratio.mean():.1%} |"
        )
        print(lines[-1], flush=True)
    Path(__file__).with_suffix(".md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
