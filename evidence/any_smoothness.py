"""Smoothnesses that are no integers, by the Markov engine: errors, traffic, recovery, a million nodes, rSPDE's grid.

Run through ``make evidence``; each section's table is kept beside this file as it is made, and any_smoothness.md has
all of them. Sections can be named on the command line.
"""

from __future__ import annotations

import datetime as dt
import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import graphmatern as gm
from graphmatern.datasets import load_traffic
from graphmatern.inference import Observations, Problem, Search
from graphmatern.inference.markov import determinants, fractional, fractional_process
from graphmatern.inference.markov.fractional_engine import FractionalEngine
from graphmatern.inference.markov.pencil import matern_pencil
from graphmatern.inference.markov.rational import terms_for
from graphmatern.inference.sites.gaussian import GaussianObjective
from graphmatern.likelihoods import Gaussian

SMOOTHNESSES = (0.3, 0.5, 0.75, 1.5, 2.5, 3.7)
LENGTHSCALES = (1.0, 3.0, 10.0, 50.0)
KAPPA, VARIANCE, NOISE = 6.0, 1.0, 0.05


def dense(graph: gm.Graph, nu: float, kappa: float, normalized: bool) -> Any:
    """The covariance from all eigenpairs."""
    values, vectors = np.linalg.eigh(graph.laplacian(normalized).toarray())
    psi = (1.0 + np.maximum(values, 0.0) * kappa**2 / (2.0 * nu)) ** -nu
    root = np.ones(graph.n_nodes) if graph.masses is None else np.sqrt(graph.masses)
    covariance = (vectors * psi) @ vectors.T / np.outer(root, root)
    return covariance * graph.n_nodes / np.trace(covariance)


def errors() -> list[str]:
    """Covariance and evidence against dense matrices."""
    roads = gm.make_roads(260, seed=4)
    masses = np.random.default_rng(1).uniform(0.5, 2.0, roads.n_nodes)
    weighed = gm.Graph.from_adjacency(roads.weights, masses=masses)
    rng = np.random.default_rng(0)
    nodes = rng.permutation(roads.n_nodes)[:120]
    y = rng.standard_normal((120, 1))
    lines = [
        f"Road-like graph of {roads.n_nodes} nodes, κ in {LENGTHSCALES}, both Laplacians, with and without masses;",
        "120 observations, noise 0.1. Largest over all of these: entries of the covariance relative to the standard",
        "deviations of both nodes, and evidence in nats per observation.",
        "",
        "| ν | stated error | fields | covariance | evidence |",
        "|---|---|---|---|---|",
    ]
    for nu in SMOOTHNESSES:
        for stated in (1e-4, 1e-6):
            worst, nats, fields = 0.0, 0.0, set()
            for kappa in LENGTHSCALES:
                for graph in (roads, weighed):
                    for normalized in (False, True):
                        observations = Observations(nodes, y, np.zeros((graph.n_nodes, 0)))
                        kernel = gm.Matern(nu, kappa, 1.0, fixed=("nu", "lengthscale", "variance"))
                        search = Search(optimizer=None)
                        problem = Problem(
                            graph, kernel, Gaussian(0.1), observations, normalized, relative_error=stated, search=search
                        )
                        engine = FractionalEngine(problem, observations.groups)
                        process = engine.at(engine.start)
                        found = process.predictive(0, np.zeros(120)).covariances(np.arange(graph.n_nodes))
                        exact = dense(graph, nu, kappa, normalized)
                        size = np.sqrt(np.outer(np.diag(exact), np.diag(exact)))
                        worst = max(worst, float(np.abs((found - exact) / size).max()))
                        inner = exact[np.ix_(nodes, nodes)] + 0.1 * np.eye(120)
                        value = 0.5 * (y[:, 0] @ np.linalg.solve(inner, y[:, 0]) + np.linalg.slogdet(inner)[1])
                        value += 60.0 * np.log(2.0 * np.pi)
                        own = GaussianObjective(engine, problem).value(np.log([0.1]))
                        nats = max(nats, abs(own - value) / 120.0)
                        fields.add(engine.report(engine.start)["n_fields"])
            span = f"{min(fields)} to {max(fields)}"
            lines.append(f"| {nu:g} | {stated:.0e} | {span} | {worst:.1e} | {nats:.1e} |")
    return lines


def traffic() -> list[str]:
    """The paper's traffic data, both engines."""
    data = load_traffic()
    graph, speeds = data.graph, data.values
    lines = [
        f"San Jose traffic, {graph.n_nodes:,} nodes, 250 of 325 sensors (`default_rng(0)`), zero mean, y standardised.",
        "",
        "| engine | ν | κ | variance | noise | −log marginal likelihood without constant |",
        "|---|---|---|---|---|---|",
    ]
    chosen = np.random.default_rng(0).permutation(len(speeds))[:250]
    train = speeds.iloc[chosen]
    every = {"spectral, 500 eigenpairs": 500, "spectral, all eigenpairs": graph.n_nodes, "markov": None}
    for name, pairs in every.items():
        kind = name.partition(",")[0]
        error = {"relative_error": 1e-6} if kind == "markov" else {}
        model = gm.GraphGPRegressor(
            graph, gm.Matern(1.5, 3.0), engine=kind, n_eigenpairs=pairs, mean="zero", integrate=False, **error
        )
        model.fit(train)
        values = model.kernel_.values()
        nats = -model.log_marginal_likelihood_ - 125.0 * np.log(2.0 * np.pi)
        numbers = f"{values['nu']:.4f} | {values['lengthscale']:.4f} | {values['variance']:.4f} | {model.noise_:.5f}"
        lines.append(f"| {name} | {numbers} | {nats:.4f} |")
    return lines


def simulate(graph: gm.Graph, nu: float, seed: int, share: float) -> tuple[Any, Any]:
    """Observed nodes and values of a field of given smoothness."""
    rng = np.random.default_rng(seed)
    precision = fractional.block_precision(graph, normalized=False)
    shift = 2.0 * nu / KAPPA**2
    ratio = 1.0 + precision.largest / shift
    pencil = matern_pencil(nu, terms_for(ratio, 1e-6), ratio)
    field = fractional.prior_draws(determinants.Determinants(precision), pencil, shift, 1, rng)[:, 0]
    field *= np.sqrt(VARIANCE / average_variance(graph, nu))
    nodes = np.sort(rng.choice(graph.n_nodes, int(share * graph.n_nodes), replace=False))
    return nodes, field[nodes] + np.sqrt(NOISE) * rng.standard_normal(len(nodes))


def average_variance(graph: gm.Graph, nu: float) -> float:
    """Average of 1/q over the nodes."""

    def compute() -> float:
        none = Observations(np.zeros(0, np.int64), np.zeros((0, 1)), np.zeros((graph.n_nodes, 0)))
        kernel = gm.Matern(nu, KAPPA, 1.0, fixed=("nu", "lengthscale"))
        problem = Problem(graph, kernel, Gaussian(0.1), none, False, search=Search(optimizer=None))
        engine = FractionalEngine(problem, none.groups)
        process = engine.at(engine.start)
        found = engine.average_variance(engine.start) / process.scale
        engine.release()
        return found

    return graph.cached(("evidence", nu), compute)


def recovery() -> list[str]:
    """Known parameters from simulated data."""
    graph = gm.make_roads(105_000, seed=0)
    lines = [
        f"Fields with κ = {KAPPA:g}, variance {VARIANCE:g}, noise {NOISE:g} on {graph.n_nodes:,} road-like nodes, 10 %",
        "observed; all parameters learned from `Matern(nu=1.2, lengthscale=3)`. In brackets z, the error of the",
        "logarithm over the standard error that the fit reports.",
        "",
        "| ν | seed | ν learned | κ | variance | noise | fields | evaluations | seconds |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    worst = 0.0
    for seed in range(3):
        for nu in (0.6, 1.5, 2.4):
            nodes, y = simulate(graph, nu, seed, 0.1)
            model = gm.GraphGPRegressor(
                graph,
                gm.Matern(1.2, 3.0),
                engine="markov",
                mean="zero",
                normalize_y=False,
                integrate=False,
                verbose=False,
            )
            begin = time.perf_counter()
            model.fit(graph.nodes[nodes], y)
            seconds = time.perf_counter() - begin
            sds, values = model.standard_errors(), model.kernel_.values() | {"noise": model.noise_}
            cells = []
            for name, truth in (("nu", nu), ("lengthscale", KAPPA), ("variance", VARIANCE), ("noise", NOISE)):
                z = float(np.log(values[name] / truth) / sds[name])
                worst = max(worst, abs(z))
                cells.append(f"{values[name]:.3f} ({z:+.2f})")
            fields = model._fit.report["n_fields"]
            cells += [str(fields), str(model.n_evaluations_), f"{seconds:.0f}"]
            lines.append(f"| {nu} | {seed} | {' | '.join(cells)} |")
            print(lines[-1], flush=True)
            keep("recovery", [*lines, "", f"Largest |z|: {worst:.2f}."])
    return [*lines, "", f"Largest |z|: {worst:.2f} of 36."]


class Clock:
    """Seconds spent in methods, counted from outside."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def watch(self, owner: Any, method: str, label: str) -> None:
        """Count the seconds of a method."""
        plain = getattr(owner, method)

        def timed(*arguments: Any, **options: Any) -> Any:
            begin = time.perf_counter()
            try:
                return plain(*arguments, **options)
            finally:
                self.seconds[label] = self.seconds.get(label, 0.0) + time.perf_counter() - begin

        setattr(owner, method, timed)


def growth(sizes: tuple[int, ...] = (10_000, 100_000, 1_050_000)) -> list[str]:
    """A million nodes, and how time grows with them."""
    from graphmatern.sparse import BlockFactor

    clock = Clock()
    clock.watch(BlockFactor, "update_blocks", "factor")
    clock.watch(BlockFactor, "selected_inverse", "inverse")
    clock.watch(determinants.Determinants, "of_pencil", "determinants")
    clock.watch(fractional_process.BlockField, "traces", "traces")
    lines = [
        "ν = 1.5, κ = 6, 10 % observed, ν free. The fit is a call of `fit`, everything included; evaluations on the",
        "whole graph; shares of the time in block factors, selected inverses, and log-determinants of the prior (which",
        "overlap with nothing). Memory: the largest that the process has had.",
        "",
        "| nodes | ν learned | fields | fit, s | evaluations | factor | inverse | determinants | traces | GiB |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for n in sizes:
        graph = gm.make_roads(n, seed=0)
        nodes, y = simulate(graph, 1.5, 0, 0.1)
        clock.seconds.clear()
        model = gm.GraphGPRegressor(
            graph, gm.Matern(1.2, 3.0), engine="markov", mean="zero", normalize_y=False, integrate=False, verbose=False
        )
        begin = time.perf_counter()
        model.fit(graph.nodes[nodes], y)
        seconds = time.perf_counter() - begin
        shares = [f"{clock.seconds.get(k, 0.0) / seconds:.0%}" for k in ("factor", "inverse", "determinants", "traces")]
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        nu, fields = model.kernel_.values()["nu"], model._fit.report.get("n_fields", "—")
        numbers = [f"{graph.n_nodes:,}", f"{nu:.3f}", str(fields), f"{seconds:.1f}", str(model.n_evaluations_)]
        lines.append(f"| {' | '.join([*numbers, *shares, f'{memory:.1f}'])} |")
        print(lines[-1], flush=True)
        keep("growth", lines)
    return lines


def interval() -> list[str]:
    """RSPDE's example: Matérn covariances on an interval, by m = 1 ... 4 fields."""
    n, kappa = 1001, 20.0
    lines = [
        "The operator κ² − d²/dx² (κ = 20) on [0, 1], 1,001 points, lumped masses, Neumann ends: the setting of",
        "rSPDE's tables, in which Matérn smoothness α − 1/2 is exponent ν_g = α. Errors of the covariance with the",
        "midpoint relative to the exact covariance of the same discretised operator: L2 norm and largest.",
        "",
        "| α | m | L2 | largest |",
        "|---|---|---|---|",
    ]
    step = 1.0 / (n - 1)
    weights = np.full(n - 1, 1.0 / step)
    masses = np.full(n, step)
    masses[[0, -1]] = 0.5 * step
    operator = np.diag(np.append(weights, 0.0) + np.append(0.0, weights)) - np.diag(weights, 1) - np.diag(weights, -1)
    operator /= np.sqrt(np.outer(masses, masses))
    values, vectors = np.linalg.eigh(operator)
    values = np.maximum(values, 0.0)
    ratio = 1.0 + values.max() / kappa**2
    middle = vectors[n // 2]
    for alpha in (0.8, 1.2, 1.5, 1.9, 2.4):
        exact = vectors @ ((1.0 + values / kappa**2) ** -alpha * middle)
        for m in (1, 2, 3, 4):
            found = vectors @ (matern_pencil(alpha, m, ratio).kernel(values / kappa**2)[0] * middle)
            change = found - exact
            lines.append(
                f"| {alpha} | {m} | {np.linalg.norm(change) / np.linalg.norm(exact):.1e} | "
                f"{np.abs(change).max() / np.abs(exact).max():.1e} |"
            )
    return lines


SECTIONS = {
    "errors": ("Against dense matrices", errors),
    "traffic": ("Traffic", traffic),
    "recovery": ("Recovery of known parameters", recovery),
    "growth": ("A million nodes", growth),
    "interval": ("rSPDE's interval", interval),
}
FOLDER = Path(__file__).with_suffix("")


def keep(name: str, lines: list[str]) -> None:
    """Store one section's lines, and write the page from all that there are."""
    kept_at = FOLDER.with_suffix(".json")
    kept = json.loads(kept_at.read_text()) if kept_at.exists() else {}
    kept[name] = {"date": dt.date.today().isoformat(), "lines": lines}
    kept_at.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n")
    text = ["# Any smoothness by the Markov engine", "", "Made by `make evidence`.", ""]
    for key, (title, _) in SECTIONS.items():
        if key in kept:
            text += [f"## {title}", "", f"On {kept[key]['date']}.", "", *kept[key]["lines"], ""]
    FOLDER.with_suffix(".md").write_text("\n".join(text))


def main() -> None:
    """Make the sections named, or all."""
    for name in sys.argv[1:] or SECTIONS:
        lines = SECTIONS[name][1]()
        keep(name, lines)
        print("\n".join(lines), flush=True)


if __name__ == "__main__":
    main()
