"""Classification of a road-like graph from labels of some nodes, through the sparse precision.

    python benchmarks/large_classification.py [--nodes 200000] [--labels 20000] [--nu 1] [--out evidence/]

A latent function is drawn from a Matérn process of lengthscale 10 and variance 4; labels are drawn at random nodes with
probability Φ(f). Seconds are those of the fit, parameters included, and of the marginals of all nodes; memory is the
peak of the process. Run it on a quiet machine.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import platform
import resource
import time
from pathlib import Path

import numpy as np
from scipy.stats import norm

import graphmatern as gm
from graphmatern.inference import MarkovPrecision
from graphmatern.metrics import classification_report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=200_000)
    parser.add_argument("--labels", type=int, default=20_000)
    parser.add_argument("--nu", type=int, default=1)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    small = gm.make_roads(2000, seed=1)  # compiles
    kernel = gm.Matern(arguments.nu, 5.0, fixed="nu")
    options = {"likelihood": "bernoulli", "inference": "markov", "integrate": False}
    gm.GraphGPClassifier(small, kernel, **options).fit(small.nodes[:300], np.arange(300) % 2 == 0)

    graph = gm.make_roads(round(arguments.nodes * 1.07), seed=0)
    rng = np.random.default_rng(0)
    precision = MarkovPrecision(graph, arguments.nu)
    factor = precision.analysis.factorize_lower(precision.polynomial.lower(precision.coefficients(10.0, 1.0)))
    latent = factor.solve_upper(rng.standard_normal(graph.n_nodes))
    latent *= 2.0 / np.sqrt(factor.diagonal_of_inverse().mean())
    del factor
    chance = norm.cdf(latent)
    labels = rng.random(graph.n_nodes) < chance
    shown, hidden = np.split(rng.permutation(graph.n_nodes), [arguments.labels])
    start = time.perf_counter()
    model = gm.GraphGPClassifier(graph, kernel, **options).fit(graph.nodes[shown], labels[shown])
    fitted = time.perf_counter()
    share = model.predict_proba()
    predicted = time.perf_counter()
    found = {
        "nodes": graph.n_nodes,
        "labels": arguments.labels,
        "nu": arguments.nu,
        "seconds of the fit": round(fitted - start, 2),
        "seconds of all probabilities": round(predicted - fitted, 2),
        "peak memory in GB": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9, 2),
        "evaluations": model.n_evaluations_,
        "converged": model.converged_,
        "elbo": round(model.elbo_, 3),
        "kernel (10 and 4 were the truth)": repr(model.kernel_),
        "error of probabilities, root mean square": round(float(np.sqrt(np.mean((share[:, 1] - chance) ** 2))), 4),
        **{
            key: round(value, 4)
            for key, value in classification_report(labels[hidden].tolist(), share[hidden], [False, True]).items()
        },
        "machine": f"{platform.machine()}, {os.cpu_count()} processors",
        "date": dt.date.today().isoformat(),
    }
    print(json.dumps(found, indent=2))
    if arguments.out:
        (arguments.out / "large_classification.json").write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
