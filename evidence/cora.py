"""Topics of Cora's papers from 140 of them: every form of inference, both Laplacians, next to label propagation.

    python evidence/cora.py [--seeds 10] [--forms spectral,markov,eigenvectors,inducing,diagonal,adam]

The paper's protocol: largest component, splits ``default_rng(seed).permutation(2485)`` over nodes in ascending paper
number, 140 training and 1,000 test nodes, robust-max, 500 eigenpairs. "diagonal" is the paper's setting, inducing nodes
at the training nodes and a diagonal covariance, fitted as the others are; "adam" is the same with 500 steps of Adam,
which is closer to how the paper fits it. Run through ``make evidence``; writes cora.md beside this
file. Seconds are of one fit, parameters included, without the spectrum, which all share; they mean something on a quiet
machine only.
"""

from __future__ import annotations

import argparse
import datetime as dt
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import spsolve

import graphmatern as gm
from graphmatern.errors import NumericalWarning
from graphmatern.metrics import classification_report

EIGENPAIRS = 500
# Form, kernels that it is run with, and its options.
FORMS: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "spectral": (("Matern", "Diffusion"), {"inference": "spectral"}),
    "markov": (("Matern",), {"inference": "markov"}),
    "eigenvectors": (("Matern", "Diffusion"), {"inference": "eigenvectors"}),
    "inducing": (("Matern", "Diffusion"), {"inference": "inducing"}),
    "diagonal": (("Matern", "Diffusion"), {"inference": "inducing", "covariance": "diagonal"}),
    "adam": (
        ("Matern", "Diffusion"),
        {"inference": "inducing", "covariance": "diagonal", "optimizer": "adam", "n_steps": 500},
    ),
}


def label_propagation(graph: gm.Graph, shown: Any, codes: Any, n_classes: int) -> Any:
    """Harmonic functions of the labels (Zhu, Ghahramani and Lafferty 2003), for every node; rows sum to 1."""
    hidden = np.setdiff1d(np.arange(graph.n_nodes), shown)
    laplacian = sp.csc_array(graph.laplacian())
    values = np.zeros((graph.n_nodes, n_classes))
    values[shown, codes] = 1.0
    values[hidden] = spsolve(laplacian[hidden][:, hidden], -(laplacian[hidden][:, shown] @ values[shown]))
    values = np.maximum(values, 1e-6)
    return values / values.sum(axis=1, keepdims=True)


def start(name: str, form: str) -> Any:
    """The kernel to begin with."""
    if name == "Diffusion":
        return gm.Diffusion(5.0)
    return gm.Matern(2, 5.0, fixed="nu") if form == "markov" else gm.Matern(3.0, 5.0)


def main() -> None:
    """Write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--forms", default=",".join(FORMS))
    arguments = parser.parse_args()
    cora = gm.datasets.load_cora()
    graph, topics = cora.graph, cora.values
    classes = sorted(set(topics))
    codes = np.array([classes.index(topic) for topic in topics])
    splits = [np.random.default_rng(seed).permutation(graph.n_nodes) for seed in range(arguments.seeds)]
    for normalized in (False, True):
        graph.spectrum(EIGENPAIRS, normalized)
    lines = [
        "# Topics of Cora's papers",
        "",
        f"{arguments.seeds} splits, 140 training and 1,000 test nodes, robust-max, {EIGENPAIRS} eigenpairs (the form",
        "markov uses the whole graph, with ν = 2). Mean (standard deviation) over the splits. Made by",
        f"`python evidence/cora.py --seeds {arguments.seeds} --forms {arguments.forms}`",
        f"on {dt.date.today().isoformat()}.",
        "",
        "| form | kernel | Laplacian | accuracy | ELBO | log loss | calibration error | seconds per fit |",
        "|---|---|---|---|---|---|---|---|",
    ]
    baseline = []
    for order in splits:
        share = label_propagation(graph, order[:140], codes[order[:140]], len(classes))[order[140:1140]]
        baseline.append(list(classification_report(codes[order[140:1140]].tolist(), share, range(7)).values()))
    lines.append(row("label propagation", "", "Δ", np.array(baseline), None, None))
    for form in arguments.forms.split(","):
        kernels, options = FORMS[form]
        for name in kernels:
            for normalized in (False, True):
                scores, bounds, seconds = [], [], []
                for order in splits:
                    train, test = graph.nodes[order[:140]], graph.nodes[order[140:1140]]
                    model = gm.GraphGPClassifier(
                        graph,
                        start(name, form),
                        normalized=normalized,
                        n_eigenpairs=EIGENPAIRS,
                        integrate=False,
                        random_state=0,
                        **options,
                    )
                    begin = time.perf_counter()
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore", NumericalWarning)  # of fits ended early
                        model.fit(topics.loc[train])
                    seconds.append(time.perf_counter() - begin)
                    bounds.append(model.elbo_)
                    scores.append(list(model.evaluate(topics.loc[test]).values()))
                lines.append(row(form, name, "Δ̃" if normalized else "Δ", np.array(scores), bounds, seconds))
                print(lines[-1], flush=True)
    Path(__file__).with_suffix(".md").write_text("\n".join(lines) + "\n")


def row(form: str, kernel: str, laplacian: str, scores: Any, bounds: Any, seconds: Any) -> str:
    """One line of the table."""
    accuracy, loss, calibration = (f"{x.mean():.3f} ({x.std():.3f})" for x in scores.T)
    bound = "" if bounds is None else f"{np.mean(bounds):.1f} ({np.std(bounds):.1f})"
    time_ = "" if seconds is None else f"{np.mean(seconds):.2f}"
    return f"| {form} | {kernel} | {laplacian} | {accuracy} | {bound} | {loss} | {calibration} | {time_} |"


if __name__ == "__main__":
    main()
