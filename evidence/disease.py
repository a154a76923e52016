"""Counts by area: published posteriors of BYM2, a Markov chain of our own, islands, and 72,000 areas.

    python evidence/disease.py [--areas 72000] [--draws 1500]

Scotland's lip cancer and New York's accidents with the priors of the case study "Spatial models in Stan" (Morris), next
to its posterior means and standard deviations; the log-risk of every Scottish district next to Hamiltonian Monte Carlo;
Scotland without its ferries, three components of which one is a single district, next to dense matrices with the
constraint written out; and a generated map. Needs the real data: GRAPHMATERN_DATA names the folder above ``disease``.
Run through ``make evidence``; writes disease.md beside this file.
"""

from __future__ import annotations

import argparse
import datetime as dt
import os
import resource
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.linalg import null_space
from scipy.spatial import Delaunay

import graphmatern as gm
from graphmatern.graph import IntrinsicFactor, intrinsic_structure

PRIORS: dict[str, Any] = {"coefficients": gm.Normal(1.0), "sigma": gm.HalfNormal(1.0), "mixing": gm.Beta(0.5, 0.5)}
PUBLISHED = {
    "Scotland": {"b0": (-0.217, 0.129), "b1": (0.365, 0.134), "sigma": (0.514, 0.0885), "rho": (0.878, 0.144)},
    "New York": {"b0": (-6.61, 0.0232), "sigma": (1.18, 0.0335), "rho": (0.540, 0.040)},
}
SECONDS = {"Scotland": 4.9, "New York": 54.3}
SCALING = 0.4853175
FERRIES = [("Okney", "Caithness"), ("WesternIsles", None)]  # None: all of its links


def scotland(folder: Path, *, ferries: bool = True) -> tuple[gm.Graph, pd.DataFrame]:
    """The districts, with or without the links over water."""
    table = pd.read_csv(folder / "scotland.csv").set_index("district")
    edges = pd.read_csv(folder / "scotland_neighbours.csv")
    if not ferries:
        for one, other in FERRIES:
            ends = [set(pair) for pair in edges[["source", "target"]].to_numpy()]
            edges = edges[[not (one in pair and (other is None or other in pair)) for pair in ends]]
    return gm.Graph.from_edges(edges, source="source", target="target", nodes=table.index), table


def new_york(folder: Path) -> tuple[gm.Graph, pd.DataFrame]:
    """The census tracts."""
    table = pd.read_csv(folder / "nyc.csv").set_index("tract")
    edges = pd.read_csv(folder / "nyc_neighbours.csv")
    return gm.Graph.from_edges(edges, source="source", target="target", nodes=table.index), table


def fit(name: str, folder: Path) -> tuple[gm.GraphGPRegressor, float, float]:
    """A fit as a user would make it, with its tables; seconds by the clock and of the processor, of the second run."""
    graph, table = scotland(folder) if name == "Scotland" else new_york(folder)
    model, wall, own = None, 0.0, 0.0
    for _ in range(2):  # the first also loads compiled code
        wall, own = time.perf_counter(), time.process_time()
        options: dict[str, Any] = {"likelihood": "poisson", "priors": PRIORS}
        if name == "Scotland":
            model = gm.GraphGPRegressor(graph, gm.BYM2(), covariates=table[["aff"]] / 10.0, **options)
            model.fit(table["observed"], exposure=table["expected"])
        else:
            model = gm.GraphGPRegressor(graph, gm.BYM2(), **options)
            model.fit(table["events_2001"], exposure=table["population_2001"].clip(lower=10))
        model.risk_table()
        wall, own = time.perf_counter() - wall, time.process_time() - own
    assert model is not None
    return model, wall, own


def compare(name: str, model: gm.GraphGPRegressor) -> list[str]:
    """A row per parameter: published, ours, difference in standard deviations, ratio of these."""
    coefficients, parameters = model.coefficients_, model.hyperparameters_
    ours = {f"b{k}": row for k, (_, row) in enumerate(coefficients.iterrows())}
    ours |= {"sigma": parameters.loc["sigma"], "rho": parameters.loc["mixing"]}
    rows = []
    for word, (mean, sd) in PUBLISHED[name].items():
        found = ours[word]
        digit = 10.0 ** (np.floor(np.log10(abs(mean))) - 2.0)
        rows.append(
            f"| {name} | {word} | {mean:g} ({sd:g}) | {found['mean']:.4f} ({found['sd']:.4f}) | "
            f"{(found['mean'] - mean) / sd:+.3f} | ± {0.5 * digit / sd:.3f} | {found['sd'] / sd:.3f} |"
        )
    return rows


# ---------------------------------------------------------------------- a Markov chain
class Chains:
    """Hamiltonian Monte Carlo for BYM2 with the published priors, many chains at a time.

    Coordinates are b, log σ, logit ρ, θ and z, with φ = V z and VVᵀ the scaled covariance of the ICAR process.
    """

    def __init__(self, graph: gm.Graph, y: Any, exposure: Any, design: Any, n_chains: int, seed: int) -> None:
        laplacian = graph.laplacian().toarray()
        values, vectors = np.linalg.eigh(laplacian)
        inverse = vectors[:, 1:] / np.sqrt(values[1:])
        self.root = inverse / np.sqrt(np.exp(np.mean(np.log((inverse**2).sum(axis=1)))))
        self.y, self.exposure, self.design = y, exposure, design
        self.p, self.n = design.shape[1], len(y)
        self.rng = np.random.default_rng(seed)
        size = self.p + 2 + self.n + self.root.shape[1]
        self.at = 0.1 * self.rng.standard_normal((n_chains, size))
        self.scale, self.step = np.ones(size), 0.1

    def parts(self, x: Any) -> tuple[Any, ...]:
        """B, log σ, logit ρ, θ and z, a row per chain."""
        p, n = self.p, self.n
        return x[:, :p], x[:, p : p + 1], x[:, p + 1 : p + 2], x[:, p + 2 : p + 2 + n], x[:, p + 2 + n :]

    def latent(self, x: Any) -> Any:
        """η, without the exposure; shape (n_chains, n)."""
        b, s, r, theta, z = self.parts(x)
        rho = 1.0 / (1.0 + np.exp(-r))
        return b @ self.design.T + np.exp(s) * (np.sqrt(1.0 - rho) * theta + np.sqrt(rho) * (z @ self.root.T))

    def density(self, x: Any) -> tuple[Any, Any]:
        """Log density and its gradient."""
        b, s, r, theta, z = self.parts(np.clip(x, -50.0, 50.0))  # a step too long leads nowhere, and is refused
        rho, sigma, phi = 1.0 / (1.0 + np.exp(-r)), np.exp(s), z @ self.root.T
        left, right = np.sqrt(1.0 - rho), np.sqrt(rho)
        field = sigma * (left * theta + right * phi)
        eta = b @ self.design.T + field
        with np.errstate(over="ignore", invalid="ignore"):
            rate = self.exposure * np.exp(eta)
            value = (self.y * eta - rate).sum(axis=1) - 0.5 * ((theta**2).sum(axis=1) + (z**2).sum(axis=1))
            value = (
                value - 0.5 * (b**2).sum(axis=1) + (s - 0.5 * sigma**2 + 0.5 * np.log(rho * (1.0 - rho) + 1e-300))[:, 0]
            )
            residual = self.y - rate
            in_r = (residual * sigma * 0.5 * ((1.0 - rho) * right * phi - rho * left * theta)).sum(axis=1)
            gradient = np.hstack(
                [
                    residual @ self.design - b,
                    ((residual * field).sum(axis=1) + 1.0)[:, None] - sigma**2,
                    in_r[:, None] + 0.5 - rho,
                    sigma * left * residual - theta,
                    sigma * right * (residual @ self.root) - z,
                ]
            )
        return value, gradient

    def move(self, length: int) -> float:
        """One trajectory of every chain; returns the average acceptance."""
        momentum = self.rng.standard_normal(self.at.shape)
        x = self.at.copy()
        value, gradient = self.density(x)
        before = value - 0.5 * (momentum**2).sum(axis=1)
        step = self.step * self.rng.uniform(0.8, 1.2)
        for _ in range(length):
            momentum = momentum + 0.5 * step * self.scale * gradient
            x = x + step * self.scale * momentum
            value, gradient = self.density(x)
            momentum = momentum + 0.5 * step * self.scale * gradient
        change = value - 0.5 * (momentum**2).sum(axis=1) - before
        accept = np.where(np.isfinite(change), np.exp(np.minimum(change, 0.0)), 0.0)
        taken = self.rng.random(len(accept)) < accept
        self.at[taken] = x[taken]
        return float(accept.mean())

    def run(self, warm_up: int, draws: int) -> Any:
        """Draws of all chains; shape (draws, n_chains, size)."""
        for number in range(warm_up):
            accepted = self.move(int(self.rng.integers(5, 16)))
            self.step *= float(np.exp(0.5 * (accepted - 0.8) / np.sqrt(1.0 + number / 20.0)))
            if number in (warm_up // 3, 2 * warm_up // 3):
                self.scale = self.at.std(axis=0)
        return np.stack([(self.move(int(self.rng.integers(8, 25))), self.at.copy())[1] for _ in range(draws)])


def chain_section(folder: Path, model: gm.GraphGPRegressor, draws: int) -> list[str]:
    """The log-risk of every district beside a chain's."""
    graph, table = scotland(folder)
    design = np.column_stack([np.ones(len(table)), table["aff"] / 10.0])
    began, own = time.perf_counter(), time.process_time()
    chains = Chains(graph, table["observed"].to_numpy(float), table["expected"].to_numpy(), design, 64, 0)
    found = chains.run(600, draws)
    wall, own = time.perf_counter() - began, time.process_time() - own
    flat = found.reshape(-1, found.shape[-1])
    latent = chains.latent(flat).reshape(draws, 64, -1)
    mean, sd = latent.mean(axis=(0, 1)), latent.std(axis=(0, 1))
    error = latent.mean(axis=0).std(axis=0) / np.sqrt(64) / sd  # of the mean over chains, which are independent
    places = np.arange(graph.n_nodes)
    ours = model.posterior_.latent_mean(places)[0] + model._level
    our_sd = np.sqrt(model.posterior_.latent_variance(places)[0])
    b, s, r, *_ = chains.parts(flat)
    rho, sigma = 1.0 / (1.0 + np.exp(-r[:, 0])), np.exp(s[:, 0])
    coefficients, parameters = model.coefficients_, model.hyperparameters_
    rows = []
    pairs = [
        ("b0", b[:, 0], coefficients.iloc[0]), ("b1", b[:, 1], coefficients.iloc[1]),
        ("sigma", sigma, parameters.loc["sigma"]), ("rho", rho, parameters.loc["mixing"]),
    ]  # fmt: skip
    for word, values, row in pairs:
        away = (row["mean"] - values.mean()) / values.std()
        rows.append(
            f"| {word} | {values.mean():.4f} ({values.std():.4f}) | {row['mean']:.4f} ({row['sd']:.4f}) | "
            f"{away:+.3f} | {row['sd'] / values.std():.3f} |"
        )
    away, ratio = np.abs(ours - mean) / sd, our_sd / sd
    return [
        "## Scotland beside a Markov chain of our own",
        "",
        f"64 chains of {draws:,} draws, {wall:.1f} s by the clock ({own:.1f} s of the processor).",
        f"Log-risk of the 56 districts: means differ by at most {away.max():.3f} standard deviations",
        f"(median {np.median(away):.3f}; the chain's own error is up to {error.max():.3f}), ratios of these",
        f"lie between {ratio.min():.3f} and {ratio.max():.3f}.",
        "",
        "| | chain | ours | difference / sd | ratio of sd |",
        "|---|---|---|---|---|",
        *rows,
        "",
    ]


# ---------------------------------------------------------------------- islands
def island_section(folder: Path) -> list[str]:
    """Scotland without ferries beside dense matrices, at fixed parameters, by both engines."""
    graph, table = scotland(folder, ferries=False)
    n, variance, mixing = graph.n_nodes, 0.3, 0.8
    structured = np.zeros((n, n))
    for number in range(graph.n_components):
        own = np.flatnonzero(graph.components == number)
        inverse = np.ones((1, 1))
        if len(own) > 1:
            basis = null_space(np.ones((1, len(own))))
            inner = basis.T @ graph.laplacian().toarray()[np.ix_(own, own)] @ basis
            inverse = basis @ np.linalg.solve(inner, basis.T)
            inverse /= np.exp(np.mean(np.log(np.diag(inverse))))
        structured[np.ix_(own, own)] = inverse
    design = np.column_stack([np.ones(n), table["aff"] / 10.0])
    own_part, shared = variance * (1.0 - mixing) * np.eye(n), variance * mixing * structured
    prior = own_part + shared
    rows = []
    for engine in ("markov", "spectral"):
        model = gm.GraphGPRegressor(
            graph, gm.BYM2(variance, mixing), likelihood="poisson", engine=engine, optimizer=None,
            covariates=table[["aff"]] / 10.0, priors={"coefficients": gm.Normal(1.0)},
        )  # fmt: skip
        model.fit(table["observed"], exposure=table["expected"])
        [part] = model.posterior_.parts
        # The same sites on dense matrices, effects included.
        whole = prior + design @ design.T
        weights = np.linalg.inv(whole + np.diag(1.0 / part.precision))
        target = part.potentials[:, 0] / part.precision
        mean, covariance = whole @ weights @ target, whole - whole @ weights @ whole
        every = np.arange(n)
        parts = model.area_parts()
        errors = {
            "prior": np.abs(gm.BYM2(variance, mixing).on(graph).matrix().detach().numpy() - prior).max(),
            "mean": np.abs(model.posterior_.latent_mean(every)[0] - mean).max(),
            "covariance": np.abs(model.posterior_.latent_covariance(every) - covariance).max(),
            "structured": np.abs(parts["structured"] - shared @ weights @ target).max(),
            "unstructured": np.abs(parts["unstructured"] - own_part @ weights @ target).max(),
            "coefficients": np.abs(model.coefficients_["mean"] - design.T @ weights @ target).max(),
            "their sd": np.abs(model.coefficients_["sd"] ** 2 - np.diag(np.eye(2) - design.T @ weights @ design)).max(),
            "sums": np.abs(np.bincount(graph.components, parts["structured"])[: graph.n_components - 1]).max(),
        }
        rows.append(f"| {engine} | " + " | ".join(f"{error:.0e}" for error in errors.values()) + " |")
    head = [
        "prior",
        "mean",
        "covariance",
        "structured",
        "unstructured",
        "coefficients",
        "their variances",
        "sums to zero",
    ]
    sizes = sorted(np.bincount(graph.components).tolist(), reverse=True)
    return [
        "## Islands",
        "",
        f"Scotland without the ferries of Orkney and the Western Isles: components of {sizes} districts. Largest",
        "differences from dense matrices with the constraint written out, under the same sites.",
        "",
        "| engine | " + " | ".join(head) + " |",
        "|---" * (len(head) + 1) + "|",
        *rows,
        "",
    ]


# ---------------------------------------------------------------------- many areas
def large_section(n: int) -> list[str]:
    """A generated map, Poisson counts, two covariates, everything at its default."""
    rng = np.random.default_rng(0)
    points = rng.random((n, 2))
    corners = Delaunay(points).simplices
    edges = np.unique(np.sort(np.vstack([corners[:, [0, 1]], corners[:, [1, 2]], corners[:, [0, 2]]]), axis=1), axis=0)
    lengths = np.hypot(*(points[edges[:, 0]] - points[edges[:, 1]]).T)
    edges = edges[lengths < np.quantile(lengths, 0.98)]
    graph = gm.Graph.from_edges(edges, nodes=range(n))
    structure = intrinsic_structure(graph)
    shared = IntrinsicFactor(structure).draw(1, rng)[:, 0] / np.sqrt(structure.scale)
    x, exposure = rng.standard_normal((n, 2)), rng.gamma(2.0, 3.0, n)
    field = 0.6 * (np.sqrt(0.3) * rng.standard_normal(n) + np.sqrt(0.7) * shared)
    cases = rng.poisson(exposure * np.exp(-0.2 + x @ [0.3, -0.15] + field))
    began, own = time.perf_counter(), time.process_time()
    before = resource.getrusage(resource.RUSAGE_SELF)
    fresh = gm.Graph.from_edges(edges, nodes=range(n))
    model = gm.GraphGPRegressor(fresh, gm.BYM2(), likelihood="poisson", covariates=x, n_threads=1)
    model.fit(fresh.nodes, cases, exposure=exposure)
    model.risk_table()
    coefficients = model.coefficients_
    wall, own = time.perf_counter() - began, time.process_time() - own
    after = resource.getrusage(resource.RUSAGE_SELF)
    memory, waits, taken = (
        after.ru_maxrss / 2**20, after.ru_nvcsw - before.ru_nvcsw, after.ru_nivcsw - before.ru_nivcsw
    )  # fmt: skip
    values = model.kernel_.values()  # type: ignore[operator]
    found = ", ".join(f"{row['mean']:.4f} ({row['sd']:.4f})" for _, row in coefficients.iterrows())
    return [
        f"## {n:,} areas",
        "",
        f"Generated contiguity ({graph.n_edges:,} borders), Poisson, two covariates, BYM2, on one thread, the rest",
        "at its default:",
        f"{wall:.1f} s by the clock from edges to the table of risks ({own:.1f} s of the processor),",
        f"{memory:.2f} GB at most. It waited {waits:,} times, for a lock or a file, and was interrupted",
        f"{taken:,} times by other work (load {os.getloadavg()[0]:.0f} on {os.cpu_count()} processors), which is where",
        "the rest went.",
        f"Engine {model.engine_}, {model.n_evaluations_} evaluations. Coefficients",
        f"{found}; the truth was −0.2, 0.3, −0.15.",
        f"Variance {values['variance']:.3f} (0.36), mixing {values['mixing']:.3f} (0.7).",
        "",
    ]


def main() -> None:
    """Write the report."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--areas", type=int, default=72_000)
    parser.add_argument("--draws", type=int, default=1_500)
    wishes = parser.parse_args()
    folder = Path(os.environ["GRAPHMATERN_DATA"]) / "disease"
    rows, times, models = [], [], {}
    for name in PUBLISHED:
        models[name], wall, own = fit(name, folder)
        rows += compare(name, models[name])
        times.append(f"| {name} | {SECONDS[name]} s | {wall:.2f} s | {own:.2f} s | {models[name].engine_} |")
    factor = float(gm.BYM2.scaling_factors(scotland(folder)[0]).iloc[0])
    lines = [
        "# Counts by area",
        "",
        "Made by `make evidence` on " + dt.date.today().isoformat() + ". Published: posterior means and standard",
        "deviations of the case study (four chains of 1,000 draws; Scotland's have a Monte Carlo error of about 0.003",
        "in b0, b1 and sigma and 0.006 in rho). Figures are printed to three digits, so that published means are only",
        "known to half a unit of the last one, here in standard deviations. New York's Monte Carlo error is not",
        "published; that of Scotland's rho is 0.04 standard deviations.",
        "",
        "| data | | published | ours | difference / sd | known to | ratio of sd |",
        "|---|---|---|---|---|---|---|",
        *rows,
        "",
        f"Scaling factor of Scotland: {factor:.7f}, published {SCALING}; difference {abs(factor - SCALING):.1e}.",
        "",
        f"Load on {os.cpu_count()} processors at the end: {os.getloadavg()[0]:.1f}; other work stretches the clock.",
        "",
        "| data | Stan | ours, by the clock | of the processor | engine |",
        "|---|---|---|---|---|",
        *times,
        "",
        *chain_section(folder, models["Scotland"], wishes.draws),
        *island_section(folder),
        *large_section(wishes.areas),
    ]
    Path(__file__).with_suffix(".md").write_text("\n".join(lines), encoding="utf-8")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
