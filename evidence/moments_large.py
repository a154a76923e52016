"""The moments engine on graphs that cannot be factorised: time, memory, recovered parameters, accuracy.

Run through ``make evidence``, which writes moments_large.md beside this file; single parts by name, such as
``python evidence/moments_large.py regression --observed 50000 --device cuda``.
"""

from __future__ import annotations

import argparse
import datetime as dt
import resource
import time
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import scipy.sparse as sp
from sklearn.metrics import log_loss
from sklearn.semi_supervised import LabelSpreading

import graphmatern as gm
from graphmatern.sparse import ChebyshevProducts

TRUTH = {"lengthscale": 4.0, "variance": 1.0, "noise": 0.1}


def power_law(n_nodes: int, n_edges: int, seed: int, exponent: float = 2.3) -> gm.Graph:
    """The largest component of a graph whose expected degrees follow a power law (Chung and Lu 2002)."""
    rng = np.random.default_rng(seed)
    expected = (np.arange(n_nodes) + 10.0) ** (-1.0 / (exponent - 1.0))
    cumulated = np.cumsum(expected / expected.sum())
    ends = np.minimum(np.searchsorted(cumulated, rng.random((2, n_edges))), n_nodes - 1)
    ends = ends[:, ends[0] != ends[1]]
    matrix = sp.coo_array((np.ones(ends.shape[1]), (ends[0], ends[1])), shape=(n_nodes, n_nodes)).tocsr()
    matrix = sp.csr_array(matrix + matrix.T)
    matrix.data[:] = 1.0
    labels = sp.csgraph.connected_components(matrix, directed=False)[1]
    kept = np.flatnonzero(labels == np.bincount(labels).argmax())
    return gm.Graph.from_adjacency(sp.csr_array(matrix[kept][:, kept]))


def draw(graph: gm.Graph, nu: float, lengthscale: float, count: int, seed: int) -> np.ndarray:
    """Draws of a Matérn process on the normalised Laplacian, of average variance about 1; shape (n_nodes, count)."""
    products = ChebyshevProducts(graph.laplacian(normalized=True), 0.0, 2.0)
    points = np.cos(np.pi * (np.arange(400) + 0.5) / 400)
    root = (2 * nu / lengthscale**2 + 1.0 + points) ** (-0.5 * nu)
    coefficients = 2.0 / 400 * np.cos(np.pi * np.outer(np.arange(200), np.arange(400) + 0.5) / 400) @ root
    coefficients[0] /= 2
    found = products.apply(coefficients, np.random.default_rng(seed).standard_normal((graph.n_nodes, count)))
    return np.asarray(found / np.sqrt((found**2).mean(axis=0)))


def peak() -> float:
    """Largest memory so far, in GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def regression(options: argparse.Namespace) -> list[str]:
    """Parameters recovered from observations of a process with known ones."""
    graph = power_law(options.nodes, options.edges, 0)
    lines = [
        (
            f"## Regression: {graph.n_nodes:,} nodes, {graph.n_edges:,} edges, {options.observed:,} observed, "
            f"{options.device} ({options.dtype})"
        ),
        "",
        "z is the error of a parameter's logarithm over its standard error, probes included. Variances are compared",
        f"with exact ones at {options.checked} nodes: root mean square and largest relative difference.",
        "",
        (
            "| seed | fit s | predict s | GB | evaluations | κ (z) | variance (z) | noise (z) | evidence ± | probes |"
            " coverage | variances rms, worst |"
        ),
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for seed in range(options.seeds):
        field = draw(graph, 2.0, TRUTH["lengthscale"], 1, seed)[:, 0]
        rng = np.random.default_rng(100 + seed)
        nodes = np.sort(rng.choice(graph.n_nodes, options.observed, replace=False))
        y = field[nodes] + np.sqrt(TRUTH["noise"]) * rng.standard_normal(len(nodes))
        kernel = gm.Matern(2.0, fixed=("nu",))
        where = {"device": options.device, "dtype": options.dtype, "verbose": True}  # says what is predicted
        model = gm.GraphGPRegressor(
            graph, kernel, engine="moments", normalized=True, normalize_y=False, integrate=False, **where
        )
        start = time.perf_counter()
        model.fit(graph.nodes[nodes], y)
        fitted = time.perf_counter()
        mean, std = model.predict(return_std=True)
        predicted = time.perf_counter()
        used = peak()
        hidden = np.setdiff1d(np.arange(graph.n_nodes), nodes)
        inside = np.abs(mean - field)[hidden] < 1.96 * std[hidden]
        few = rng.choice(graph.n_nodes, options.checked, replace=False)
        exact = model.predict(graph.nodes[few], return_std=True)[1] ** 2
        ratio = std[few] ** 2 / exact - 1.0
        errors, report = model.standard_errors(), model._fit.report
        learned = {**model.kernel_.values(), "noise": model.noise_}
        cells = []
        for name, true in TRUTH.items():
            both = np.hypot(errors[name], report.get("parameter_errors", {}).get(name, 0.0))
            z = np.log(learned[name] / true) / both
            cells.append(f"{learned[name]:.3g} ({f'{z:+.1f}' if np.isfinite(z) else 'no standard error'})")
        lines.append(
            f"| {seed} | {fitted - start:.1f} | {predicted - fitted:.1f} | {used:.2f} | "
            f"{model._fit.optimum.n_evaluations} | {' | '.join(cells)} | {report.get('evidence_error', 0.0):.1f} | "
            f"{report.get('probes', 0)} | {inside.mean():.3f} | "
            f"{np.sqrt((ratio**2).mean()):.1%}, {np.abs(ratio).max():.1%} |"
        )
        print(lines[-1], flush=True)
    return lines


def classes(options: argparse.Namespace) -> list[str]:
    """Default classifiers and regressors on social graphs, all in: choice of engine, fit, probabilities everywhere."""
    del options
    lines = ["## Social graphs, defaults, all in", "", "| what | seconds | peak GB | engine | figure |"]
    lines.append("|---|---|---|---|---|")
    for n_nodes, n_edges, n_labels in ((21_000, 102_000, 60), (210_000, 2_050_000, 200)):
        graph = power_law(n_nodes, n_edges, 1)
        scores = draw(graph, 2.0, 6.0, 3, 2)
        truth = scores.argmax(axis=1)
        labelled = np.random.default_rng(3).choice(graph.n_nodes, n_labels, replace=False)
        start = time.perf_counter()
        model = gm.GraphGPClassifier(graph).fit(graph.nodes[labelled], truth[labelled])
        probability = model.predict_proba()
        seconds = time.perf_counter() - start
        hidden = np.setdiff1d(np.arange(graph.n_nodes), labelled)
        right = (model.classes_[probability.argmax(axis=1)] == truth)[hidden].mean()
        loss = log_loss(truth[hidden], probability[hidden], labels=model.classes_)
        name = f"classifier, {graph.n_nodes:,} nodes, {graph.n_edges:,} edges, {n_labels} labels, 3 classes"
        figure = f"accuracy {right:.3f}, log loss {loss:.3f}"
        lines.append(f"| {name} | {seconds:.1f} | {peak():.2f} | {model._fit.engine} | {figure} |")
        print(lines[-1], flush=True)
    graph = gm.Graph.from_networkx(nx.barabasi_albert_graph(30_000, 10, seed=0))
    field = draw(graph, 2.0, 4.0, 1, 4)[:, 0]
    rng = np.random.default_rng(5)
    nodes = rng.choice(graph.n_nodes, 500, replace=False)
    start = time.perf_counter()
    model = gm.GraphGPRegressor(graph).fit(graph.nodes[nodes], field[nodes] + 0.3 * rng.standard_normal(500))
    fitted = time.perf_counter() - start
    mean, std = model.predict(return_std=True)
    seconds = time.perf_counter() - start
    inside = (np.abs(mean - field) < 1.96 * std).mean()
    name = f"regressor, Barabási–Albert, {graph.n_nodes:,} nodes, {graph.n_edges:,} edges, 500 observations"
    times = f"{seconds:.1f} (fit {fitted:.1f})"
    lines.append(f"| {name} | {times} | {peak():.2f} | {model.engine_} | coverage {inside:.3f} |")
    print(lines[-1], flush=True)
    return lines


def neighbours(options: argparse.Namespace) -> list[str]:
    """A nearest-neighbour graph of embeddings with few labels, beside label spreading."""
    del options
    rng = np.random.default_rng(0)
    centres = 0.55 * rng.standard_normal((10, 3, 50))  # each class has three clumps
    truth = rng.integers(0, 10, 60_000)
    points = centres[truth, rng.integers(0, 3, len(truth))] + rng.standard_normal((len(truth), 50))
    graph = gm.Graph.from_points(points, 15)
    labelled = np.concatenate([rng.choice(np.flatnonzero(truth == one), 10, replace=False) for one in range(10)])
    hidden = np.setdiff1d(np.arange(len(truth)), labelled)
    lines = [
        f"## Nearest neighbours: {len(truth):,} points in 50 dimensions, 15 neighbours, 10 classes, 100 labels",
        "",
        "| method | seconds | accuracy | log loss |",
        "|---|---|---|---|",
    ]

    def add(name: str, seconds: float, probability: np.ndarray) -> None:
        right = (probability.argmax(axis=1) == truth)[hidden].mean()
        loss = log_loss(truth[hidden], np.clip(probability, 1e-12, 1.0)[hidden] / probability[hidden].sum(1)[:, None])
        lines.append(f"| {name} | {seconds:.1f} | {right:.4f} | {loss:.3f} |")
        print(lines[-1], flush=True)

    start = time.perf_counter()
    model = gm.GraphGPClassifier(graph).fit(graph.nodes[labelled], truth[labelled])
    probability = model.predict_proba()
    add(f"graphmatern, defaults ({model._fit.engine}), after the graph", time.perf_counter() - start, probability)
    known = np.full(len(truth), -1)
    known[labelled] = truth[labelled]
    start = time.perf_counter()
    peer = LabelSpreading(kernel="knn", n_neighbors=15, alpha=0.2).fit(points, known)
    add("scikit-learn's label spreading, its graph included", time.perf_counter() - start, peer.label_distributions_)
    return lines


_ = gm.GraphGPClassifier, gm.GraphGPRegressor  # what they import, torch above all, is no part of any time below
PARTS: dict[str, Any] = {"classes": classes, "neighbours": neighbours, "regression": regression}

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("parts", nargs="*", default=list(PARTS))
    parser.add_argument("--nodes", type=int, default=1_350_000)
    parser.add_argument("--edges", type=int, default=3_080_000)
    parser.add_argument("--observed", type=int, default=1_000)
    parser.add_argument("--checked", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float64")
    chosen = parser.parse_args()
    found = ["# The moments engine on graphs that fill in", "", f"Made on {dt.date.today().isoformat()}.", ""]
    for part in chosen.parts:
        found += [*PARTS[part](chosen), ""]
    if chosen.parts == list(PARTS):
        Path(__file__).with_suffix(".md").write_text("\n".join(found))
