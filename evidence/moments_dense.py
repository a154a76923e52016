"""The moments engine against dense matrices on graphs of 1,000 nodes, for every kernel, Laplacian and likelihood.

Run through ``make evidence``; writes moments_dense.md beside this file.
"""

from __future__ import annotations

import datetime as dt
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from moments_dense import GRAPHS, KERNELS, LAPLACIANS, LIKELIHOODS, gaussian_errors, likelihood_errors

NODES, OBSERVED = 1_000, 60
COLUMNS = ("evidence", "gradient", "mean", "variance", "covariance", "leave one out")


def _row(words: list[str], errors: dict[str, float]) -> str:
    return "| " + " | ".join([*words, *(f"{errors[name]:.0e}" for name in COLUMNS)]) + " |"


def main() -> None:
    """Write the tables."""
    head = "| " + " | ".join(COLUMNS) + " |"
    rule = "|---" * len(COLUMNS) + "|"
    noise, others, worst = [], [], 0.0
    for title, make in GRAPHS.items():
        graph = make(NODES)
        for kernel, normalized in LAPLACIANS:
            errors = gaussian_errors(graph, KERNELS[kernel][0], normalized, OBSERVED)
            worst = max(worst, *errors.values())
            noise.append(_row([title, kernel, "normalised" if normalized else "plain"], errors))
        for name, likelihood in LIKELIHOODS.items():
            for normalized in (False, True):
                errors = likelihood_errors(graph, KERNELS["Matérn"][0], normalized, likelihood, OBSERVED)
                worst = max(worst, *errors.values())
                others.append(_row([title, name, "normalised" if normalized else "plain"], errors))
    lines = [
        "# The moments engine beside dense matrices",
        "",
        "Largest differences, relative to the largest entry or to 1 where that is larger, on graphs of",
        f"{NODES:,} nodes with {OBSERVED} observations at random nodes. The largest of all is {worst:.0e}.",
        "Gradients are in every parameter. Made by `make evidence` on " + dt.date.today().isoformat() + ", seed 0.",
        "",
        "## Gaussian noise",
        "",
        "Two replicates of which one has a hole, unequal noise, a covariate with a flat prior: against one normal",
        "distribution, made of all eigenpairs; its gradients by differences of fourth order.",
        "",
        "| graph | kernel | Laplacian " + head,
        "|---|---|---" + rule,
        *noise,
        "",
        "## Other likelihoods",
        "",
        "A Matérn kernel: against the same sites on a dense covariance matrix.",
        "",
        "| graph | likelihood | Laplacian " + head,
        "|---|---|---" + rule,
        *others,
        "",
    ]
    Path(__file__).with_suffix(".md").write_text("\n".join(lines), encoding="utf-8")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
