"""Approximations of the posterior against long Markov chains, on a graph of 30 nodes; and what they do to Cora.

    python evidence/approximations.py [--seeds 10] [--steps 3000]

Every likelihood at fixed parameters, next to elliptical slice sampling (Murray, Adams and MacKay 2010): latent means in
standard deviations, ratios of standard deviations, class probabilities, at all nodes. Asked for: means within 0.1,
ratios within 10 %, probabilities within 0.02. "bound" is variational inference, "moments" and "classes" are expectation
propagation; Student-t noise is shown with both. Then accuracy, log loss and calibration on Cora, 140 labels, by
likelihood. Run through ``make evidence``; writes approximations.md beside this file.
"""

from __future__ import annotations

import argparse
import datetime as dt
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

import graphmatern as gm
from graphmatern.errors import NumericalWarning
from graphmatern.inference import Observations, Problem, Search, learn
from graphmatern.likelihoods import (
    Bernoulli,
    Categorical,
    Likelihood,
    MultinomialProbit,
    NegativeBinomial,
    Poisson,
    RobustMax,
    Softmax,
    StudentT,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

GRAPH = gm.make_roads(33, seed=4)
CHAINS, WARM_UP, OBSERVED = 128, 300, 25
EIGENPAIRS = 500


class VariationalStudentT(StudentT):
    """Student-t noise as it was fitted before: by the evidence lower bound."""

    approximation = "bound"


# Likelihood, prior variance, and how far one observation is moved.
CASES: list[tuple[Likelihood, float, float]] = [
    (Bernoulli(), 1.0, 0.0),
    (Bernoulli("logit"), 1.0, 0.0),
    (Poisson(), 1.0, 0.0),
    (NegativeBinomial(0.5), 1.0, 0.0),
    (StudentT(0.2, 4.0), 1.0, 1.0),
    (VariationalStudentT(0.2, 4.0), 1.0, 1.0),
    (StudentT(0.2, 4.0), 1.0, 8.0),
    (VariationalStudentT(0.2, 4.0), 1.0, 8.0),
    (Softmax(3), 1.0, 0.0),
    (Softmax(3), 16.0, 0.0),
    (RobustMax(3), 1.0, 0.0),
    (RobustMax(7), 1.0, 0.0),
    (MultinomialProbit(3), 1.0, 0.0),
    (MultinomialProbit(3), 16.0, 0.0),
    (MultinomialProbit(7), 16.0, 0.0),
]


def log_likelihood(likelihood: Likelihood, y: torch.Tensor, f: Floats) -> Floats:
    """Of chains (n_chains, n_latents, n_observed); shape (n_chains,)."""
    with torch.no_grad():
        return likelihood.log_prob(y, torch.from_numpy(f)).sum(dim=-1).numpy()


def class_probabilities(likelihood: Likelihood, f: Floats) -> Floats:
    """Averages over chains (n_chains, n_latents, n_nodes); shape (n_classes, n_nodes), or (0, n_nodes)."""
    if not isinstance(likelihood, Categorical):
        return np.zeros((0, f.shape[-1]))
    labels = [torch.full((f.shape[-1],), float(c)) for c in range(likelihood.n_classes)]
    with torch.no_grad():
        return np.stack([likelihood.log_prob(y, torch.from_numpy(f)).exp().mean(dim=0).numpy() for y in labels])


def elliptical_slices(
    likelihood: Likelihood, y: torch.Tensor, nodes: Any, root: Floats, rng: np.random.Generator, steps: int
) -> tuple[Floats, Floats, Floats, Floats]:
    """Posterior moments by many chains at once: mean, standard deviation, error of the mean, class probabilities."""
    shape = (CHAINS, likelihood.n_latents, len(root))
    f = rng.standard_normal(shape) @ root.T
    current = log_likelihood(likelihood, y, f[:, :, nodes])
    total, squares, shares, counted = np.zeros(shape), np.zeros(shape), 0.0 * class_probabilities(likelihood, f), 0
    for step in range(steps + WARM_UP):
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
            if step % 10 == 0:
                shares, counted = shares + class_probabilities(likelihood, f), counted + 1
    means = total / steps
    mean = means.mean(axis=0)
    deviation = np.sqrt((squares / steps).mean(axis=0) - mean**2)
    return mean, deviation, means.std(axis=0) / np.sqrt(CHAINS), shares / counted


def draw(likelihood: Likelihood, f: Floats, away: float, rng: np.random.Generator) -> Floats:
    """Observations given latent values (n, n_latents)."""
    if isinstance(likelihood, Bernoulli):
        y = f[:, 0] + rng.standard_normal(len(f)) > 0
    elif isinstance(likelihood, Categorical):
        noise = {Softmax: rng.gumbel(size=f.shape), MultinomialProbit: rng.standard_normal(f.shape)}
        y = (f + noise.get(type(likelihood), 0.0)).argmax(axis=1)
    else:
        y = likelihood.given(f[:, 0]).rvs(random_state=rng)  # type: ignore[operator]
    y = np.asarray(y, dtype=np.float64)
    y[3] += away
    return y


def against_chains(likelihood: Likelihood, variance: float, away: float, steps: int) -> str:
    """One line of the first table."""
    rng = np.random.default_rng(1)
    kernel = gm.Matern(nu=2, lengthscale=3.0, variance=variance)
    root = np.linalg.cholesky(kernel.on(GRAPH).matrix().detach().numpy() + 1e-10 * np.eye(GRAPH.n_nodes))
    nodes, every = rng.choice(GRAPH.n_nodes, OBSERVED, replace=False), np.arange(GRAPH.n_nodes)
    y = draw(likelihood, (root @ rng.standard_normal((GRAPH.n_nodes, likelihood.n_latents)))[nodes], away, rng)
    observed = Observations(nodes, y[:, None], np.zeros((GRAPH.n_nodes, 0)))
    q = learn(Problem(GRAPH, kernel, likelihood, observed, search=Search(None)), "spectral").posterior
    mean, deviation, error, shares = elliptical_slices(likelihood, torch.from_numpy(y), nodes, root, rng, steps)
    off = np.abs(q.latent_mean(every) - mean) / deviation
    ratio = np.sqrt(q.latent_variance(every)) / deviation
    probabilities = ""
    if isinstance(likelihood, Categorical):
        if isinstance(likelihood, MultinomialProbit):
            found = likelihood.joint_probabilities(q.latent_mean(every).T, q.class_covariance(every)).T
        else:
            moments = (torch.from_numpy(x) for x in (q.latent_mean(every), q.latent_variance(every)))
            found = likelihood.probabilities(*moments).numpy()
        wrong = np.abs(found - shares)
        probabilities = f"{wrong.max():.3f} (average {wrong.mean():.3f})"
    name = repr(likelihood).replace("VariationalStudentT", "StudentT")
    moved = f", one moved by {away:g}" if away else ""
    return (
        f"| {name}, prior variance {variance:g}{moved} | {likelihood.approximation} "
        f"| {ratio.min():.2f}–{ratio.max():.2f} "
        f"| {off.max():.3f} (average {off.mean():.3f}) | {(error / deviation).max():.3f} | {probabilities} |"
    )


def on_cora(seeds: int) -> list[str]:
    """Lines of the second table."""
    cora = gm.datasets.load_cora()
    graph, topics = cora.graph, cora.values
    lines = []
    words: tuple[Any, ...] = ("robustmax", "softmax", "probit")
    for normalized in (False, True):
        graph.spectrum(EIGENPAIRS, normalized)
        for word in words:
            scores, seconds = [], []
            for seed in range(seeds):
                order = graph.nodes[np.random.default_rng(seed).permutation(graph.n_nodes)]
                model = gm.GraphGPClassifier(
                    graph,
                    gm.Matern(3.0, 5.0),
                    likelihood=word,
                    inference="spectral",
                    normalized=normalized,
                    n_eigenpairs=EIGENPAIRS,
                )
                begin = time.perf_counter()
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", NumericalWarning)  # of fits ended early
                    model.fit(topics.loc[order[:140]])
                seconds.append(time.perf_counter() - begin)
                scores.append(list(model.evaluate(topics.loc[order[140:1140]]).values()))
            parts = " | ".join(f"{x.mean():.3f} ({x.std():.3f})" for x in np.array(scores).T)
            lines.append(f"| {word} | {'Δ̃' if normalized else 'Δ'} | {parts} | {np.mean(seconds):.1f} |")
            print(lines[-1], flush=True)
    return lines


def main() -> None:
    """Write both tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--steps", type=int, default=3000)
    arguments = parser.parse_args()
    lines = [
        "# Approximations of the posterior against long Markov chains",
        "",
        f"A road-like graph of {GRAPH.n_nodes} nodes, Matérn ν = 2, κ = 3, {OBSERVED} observations; {CHAINS} chains of",
        f"{arguments.steps:,} steps of elliptical slice sampling each, at fixed parameters. Over all nodes and latent",
        'processes; "moments" and "classes" are expectation propagation, "bound" is variational inference.',
        f"Made by `python evidence/approximations.py --seeds {arguments.seeds} --steps {arguments.steps}`",
        f"on {dt.date.today().isoformat()}.",
        "",
        "| likelihood | sites by | ratio of deviations | means off, in deviations | their error | probabilities off |",
        "|---|---|---|---|---|---|",
    ]
    for likelihood, variance, away in CASES:
        # Quadrature makes every step of the chains slow; fewer do.
        steps = arguments.steps // 4 if isinstance(likelihood, MultinomialProbit) else arguments.steps
        lines.append(against_chains(likelihood, variance, away, steps))
        print(lines[-1], flush=True)
    lines += [
        "",
        "## Topics of Cora's papers",
        "",
        f"{arguments.seeds} splits of 140 training and 1,000 test nodes, {EIGENPAIRS} eigenpairs, parameters learned;",
        "mean (standard deviation) over the splits. Seconds per fit mean something on a quiet machine only.",
        "",
        "| likelihood | Laplacian | accuracy | log loss | calibration error | seconds |",
        "|---|---|---|---|---|---|",
        *on_cora(arguments.seeds),
    ]
    Path(__file__).with_suffix(".md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
