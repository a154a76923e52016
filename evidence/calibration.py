"""Coverage of predictive intervals over many simulated data sets, at the true parameters and after learning them.

Run through ``make evidence``; writes calibration.md beside this file.
"""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import binom

import graphmatern as gm
from graphmatern.metrics import half_width

SIMULATIONS = 1000
SEED = 2027
LEVELS = (0.5, 0.9, 0.95)


def simulate(number: int, city: gm.Graph, rng: np.random.Generator) -> list[tuple[str, float, float]]:
    """Standardised errors of f and of a new observation at one random node, at true and at learned parameters."""
    nu = int(rng.integers(1, 4))
    lengthscale = float(np.exp(rng.uniform(np.log(2.0), np.log(20.0))))
    variance = float(np.exp(rng.uniform(np.log(0.3), np.log(3.0))))
    noise = float(np.exp(rng.uniform(np.log(0.02), np.log(0.5))))
    kernel = gm.Matern(nu, lengthscale, variance, fixed=("nu",))
    field = kernel.on(city).sample(random_state=int(rng.integers(2**31))).numpy()[0]
    places = rng.permutation(city.n_nodes)
    observed, node = places[:80], places[80]
    y = field[observed] + np.sqrt(noise) * rng.standard_normal(80)
    new = field[node] + np.sqrt(noise) * rng.standard_normal()
    engine: Any = "spectral" if number % 2 else "markov"
    found = []
    for label, optimizer in (("true", None), ("learned", "quasi-newton")):
        model = gm.GraphGPRegressor(
            city, kernel, engine=engine, noise=noise, mean="zero", normalize_y=False, optimizer=optimizer, verbose=False
        )
        model.fit(city.nodes[observed], y)
        mean, std = model.predict([city.nodes[node]], return_std=True)
        _, noisy = model.predict([city.nodes[node]], return_std=True, observation=True)
        found.append((label, float((field[node] - mean[0]) / std[0]), float((new - mean[0]) / noisy[0])))
    return found


def main() -> None:
    """Simulate and write the table."""
    rng = np.random.default_rng(SEED)
    city = gm.make_roads(300, seed=0)
    outcomes = [simulate(number, city, rng) for number in range(SIMULATIONS)]
    lines = [
        "# Coverage of predictive intervals",
        "",
        f"{SIMULATIONS} simulations on a road-like graph of {city.n_nodes} nodes: ν in 1, 2, 3, κ in 2 … 20, variance",
        "in 0.3 … 3 and noise in 0.02 … 0.5 are drawn at random, a field from the prior, 80 noisy values; one random",
        "node without data is predicted. Odd simulations use the spectral engine, even ones the Markov engine. The",
        "last column is the p-value of the two-sided binomial test that the coverage is the nominal one.",
        f"Made by `make evidence` on {dt.date.today().isoformat()}, seed {SEED}.",
        "",
        "| parameters | of | level | coverage | p |",
        "|---|---|---|---|---|",
    ]
    for place, label in ((0, "true"), (1, "learned")):
        for what, column in (("the process", 1), ("a new observation", 2)):
            z = np.abs([outcome[place][column] for outcome in outcomes])
            for level in LEVELS:
                inside = int((z <= half_width(level)).sum())
                tail = min(binom.cdf(inside, SIMULATIONS, level), binom.sf(inside - 1, SIMULATIONS, level))
                lines.append(
                    f"| {label} | {what} | {level:.0%} | {inside / SIMULATIONS:.1%} | {min(1.0, 2 * tail):.2f} |"
                )
    text = "\n".join(lines) + "\n"
    Path(__file__).with_suffix(".md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
