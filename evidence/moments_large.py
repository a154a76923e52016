"""The moments engine on graphs that cannot be factorised: time, memory, recovered parameters, accuracy of variances.

Usage: python evidence/moments_large.py [regression | classes | neighbours] [--nodes N] [--observed n] [--seeds k]
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time

import numpy as np
import scipy.sparse as sp

import graphmatern as gm
from graphmatern.sparse import ChebyshevProducts


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
    k = np.arange(200)
    coefficients = 2.0 / 400 * np.cos(np.pi * np.outer(k, np.arange(400) + 0.5) / 400) @ root
    coefficients[0] /= 2
    found = products.apply(coefficients, np.random.default_rng(seed).standard_normal((graph.n_nodes, count)))
    return np.asarray(found / np.sqrt((found**2).mean(axis=0)))


def peak() -> float:
    """Largest memory so far, in GB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def regression(options: argparse.Namespace) -> None:
    """Parameters recovered from observations of a process with known ones."""
    truth = {"lengthscale": 4.0, "variance": 1.0, "noise": 0.1}
    graph = power_law(options.nodes, options.edges, 0)
    print(f"{graph.n_nodes:,} nodes, {graph.n_edges:,} edges", flush=True)
    for seed in range(options.seeds):
        field = draw(graph, 2.0, truth["lengthscale"], 1, seed)[:, 0]
        rng = np.random.default_rng(100 + seed)
        nodes = np.sort(rng.choice(graph.n_nodes, options.observed, replace=False))
        y = field[nodes] + np.sqrt(truth["noise"]) * rng.standard_normal(len(nodes))
        model = gm.GraphGPRegressor(
            graph,
            gm.Matern(2.0, fixed=("nu",)),
            engine="moments",
            normalized=True,
            normalize_y=False,
            verbose=options.verbose,
            **({"device": options.device} if options.device else {}),
        )
        start = time.perf_counter()
        model.fit(graph.nodes[nodes], y)
        fitted = time.perf_counter() - start
        mean, std = model.predict(return_std=True)
        predicted = time.perf_counter() - start - fitted
        hidden = np.setdiff1d(np.arange(graph.n_nodes), nodes)
        inside = np.abs(mean - field)[hidden] < 1.96 * std[hidden]
        few = rng.choice(graph.n_nodes, options.checked, replace=False)
        exact = model.predict(graph.nodes[few], return_std=True)[1] ** 2 if options.checked else np.ones(0)
        ratio = std[few] ** 2 / exact - 1.0
        fit = model._fit
        errors = np.sqrt(np.diag(np.linalg.inv(fit.hessian()))) if hasattr(fit, "hessian") else None
        figures = {
            "seed": seed,
            "fit_s": round(fitted, 1),
            "predict_s": round(predicted, 1),
            "peak_gb": round(peak(), 2),
            "evaluations": fit.optimum.n_evaluations,
            "learned": {"lengthscale": model.kernel_.lengthscale.item(), "variance": model.kernel_.variance.item(), "noise": model.noise_},
            "report": fit.report,
            "errors": None if errors is None else errors.tolist(),
            "rmse": float(np.sqrt(np.mean((mean - field)[hidden] ** 2))),
            "coverage": float(inside.mean()),
            "variance_rms": float(np.sqrt((ratio**2).mean())) if len(ratio) else None,
            "variance_worst": float(np.abs(ratio).max()) if len(ratio) else None,
        }
        print(json.dumps(figures, default=float), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["regression"])
    parser.add_argument("--nodes", type=int, default=1_400_000)
    parser.add_argument("--edges", type=int, default=3_100_000)
    parser.add_argument("--observed", type=int, default=1_000)
    parser.add_argument("--checked", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--device", default=None)
    parser.add_argument("--verbose", action="store_true", default=None)
    regression(parser.parse_args())
