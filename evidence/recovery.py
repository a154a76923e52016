"""Known parameters recovered from simulated data on a large graph, with the standard errors that the fit reports.

Run through ``make evidence``; writes recovery.md beside this file.
"""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import numpy as np

import graphmatern as gm
from graphmatern.inference import MarkovPrecision

LENGTHSCALE, VARIANCE, NOISE = 6.0, 4.0, 0.5
SEEDS = range(3)


def main() -> None:
    """Simulate, fit and write the table."""
    graph = gm.make_roads(105_000, seed=0)
    lines = [
        "# Recovery of known parameters",
        "",
        f"Fields with κ = {LENGTHSCALE:g}, variance {VARIANCE:g} and noise {NOISE:g} on a road-like graph of",
        f"{graph.n_nodes:,} nodes, of which a fifth is observed; parameters learned by `GraphGPRegressor` on the",
        "Markov engine, in the units of the data. z is the error of the logarithm over the standard error reported.",
        f"Made by `make evidence` on {dt.date.today().isoformat()}, seeds {', '.join(map(str, SEEDS))}.",
        "",
        "| ν | seed | κ (z) | variance (z) | noise (z) | evaluations |",
        "|---|---|---|---|---|---|",
    ]
    worst = 0.0
    for nu in (1, 2):
        precision = MarkovPrecision(graph, nu)
        factor = precision.analysis.factorize_lower(
            precision.polynomial.lower(precision.coefficients(LENGTHSCALE, 1.0))
        )
        scale = np.sqrt(VARIANCE / factor.diagonal_of_inverse().mean())
        for seed in SEEDS:
            rng = np.random.default_rng(seed)
            field = scale * factor.solve_upper(rng.standard_normal(graph.n_nodes))
            observed = np.sort(rng.choice(graph.n_nodes, graph.n_nodes // 5, replace=False))
            y = field[observed] + np.sqrt(NOISE) * rng.standard_normal(len(observed))
            kernel = gm.Matern(nu, 3.0, fixed=("nu",))
            model = gm.GraphGPRegressor(
                graph, kernel, engine="markov", mean="zero", normalize_y=False, integrate=False, verbose=False
            )
            model.fit(graph.nodes[observed], y)
            errors = model.standard_errors()
            assert isinstance(model.kernel_, gm.Matern)
            values = model.kernel_.values()
            cells = []
            for name, truth, found in (
                ("lengthscale", LENGTHSCALE, values["lengthscale"]),
                ("variance", VARIANCE, values["variance"]),
                ("noise", NOISE, model.noise_),
            ):
                z = float(np.log(found / truth) / errors[name])
                worst = max(worst, abs(z))
                cells.append(f"{found:.3f} ({z:+.2f})")
            lines.append(f"| {nu} | {seed} | {' | '.join(cells)} | {model.n_evaluations_} |")
    lines += ["", f"Largest |z|: {worst:.2f} of {2 * 3 * len(SEEDS)}."]
    text = "\n".join(lines) + "\n"
    Path(__file__).with_suffix(".md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
