"""Where to measure next: exactness against a dense choice, a million nodes, traffic sensors, labels of Cora.

    python evidence/placement.py [dense] [million] [traffic] [cora]

Run through ``make evidence``; traffic and cora need the data sets. Writes its parts of placement.md beside this file.
"""

from __future__ import annotations

import datetime as dt
import os
import resource
import sys
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

import graphmatern as gm
from graphmatern.errors import NumericalWarning

if TYPE_CHECKING:
    from collections.abc import Callable

PAGE = Path(__file__).with_suffix(".md")
CRITERIA = ("entropy", "mutual_information", "variance")


def load() -> str:
    """The machine, and how busy it was."""
    return f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the end"


# ---------------------------------------------------------------------- a dense choice
def given(covariance: Any, nodes: Any, noise: Any) -> Any:
    """The covariance given noisy measurements."""
    if not len(nodes):
        return covariance
    cross = covariance[:, nodes]
    return covariance - cross @ np.linalg.solve(cross[nodes] + np.diag(noise[nodes]), cross.T)


def dense_choice(
    prior: Any, criterion: str, n: int, candidates: Any, noise: Any, costs: Any
) -> tuple[list[int], list[float]]:
    """Greedy choice with dense matrices, by gain per cost."""
    chosen: list[int] = []
    gains = []
    for _ in range(n):
        now = given(prior, chosen, noise)
        own = np.diag(now)[candidates]
        r = noise[candidates]
        if criterion == "entropy":
            gain = 0.5 * np.log(1.0 + own / r)
        elif criterion == "variance":
            gain = (now[:, candidates] ** 2).sum(axis=0) / (own + r) / len(prior)
        else:
            left = np.flatnonzero(~np.isin(candidates, chosen))
            block = prior[np.ix_(candidates[left], candidates[left])] + np.diag(r[left])
            gain = np.full(len(candidates), -np.inf)
            gain[left] = 0.5 * np.log((own + r)[left] * np.diag(np.linalg.inv(block)))
        score = np.where(np.isin(candidates, chosen), -np.inf, gain / costs)
        best = int(np.argmax(score))
        chosen.append(int(candidates[best]))
        gains.append(float(gain[best]))
    return chosen, gains


def dense() -> list[str]:
    """All criteria with candidates, costs, existing sensors and unequal noise, on both exact engines."""
    graph, rng = gm.make_roads(2150, seed=1), np.random.default_rng(0)
    n, kernel = graph.n_nodes, gm.Matern(2, 5.0, 1.3)
    prior = kernel.on(graph).matrix().detach().numpy()
    candidates, there = np.sort(rng.permutation(n)[:1500]), rng.permutation(n)[:20]
    noise, costs = rng.uniform(0.05, 0.5, n), rng.uniform(1.0, 5.0, 1500)
    lines = [
        (
            f"Road-like graph of {n:,} nodes, Matérn ν = 2; 1,500 candidates with unequal noise and costs, 20 existing "
            "sensors; 15 sensors by gain per cost."
        ),
        "",
        "| criterion | engine | same nodes | largest relative difference of gains | seconds |",
        "|---|---|---|---|---|",
    ]
    base = given(prior, there, noise)
    for criterion in CRITERIA:
        nodes, gains = dense_choice(base, criterion, 15, candidates, noise, costs)
        for engine in ("spectral", "markov"):
            model = gm.GraphGPRegressor(graph, kernel, engine=engine)
            begin = time.perf_counter()
            table = gm.place_sensors(
                model,
                15,
                criterion=criterion,  # type: ignore[arg-type]
                candidates=graph.nodes[candidates],
                costs=pd.Series(costs, graph.nodes[candidates]),
                existing=graph.nodes[there],
                noise=pd.Series(noise, graph.nodes),
            )
            took = time.perf_counter() - begin
            same = sum(a == b for a, b in zip(graph.locate(table["node"]).tolist(), nodes, strict=True))
            error = float(np.abs(table["gain"] / gains - 1.0).max())
            lines.append(f"| {criterion} | {engine} | {same} of 15 | {error:.0e} | {took:.2f} |")
    return [*lines, "", f"{load()}."]


# ---------------------------------------------------------------------- a million nodes
def million() -> list[str]:
    """1,000 sensors by entropy, 100 by average variance."""
    graph = gm.make_roads(1_030_000, seed=0)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    model = gm.GraphGPRegressor(graph, gm.Matern(1, 6.0), noise=0.1, engine="markov")
    lines = [
        (
            f"Road-like graph of {graph.n_nodes:,} nodes, Matérn ν = 1, κ = 6, noise 0.1, before any data; all nodes "
            f"are candidates and targets. Peak memory includes {before:.2f} GiB for the graph."
        ),
        "",
        (
            "| criterion | sensors | seconds | processor seconds | peak memory, GiB | mean sd before | after | largest "
            "sd before | after | relative error of gains |"
        ),
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for criterion, n in (("entropy", 1000), ("variance", 100)):
        begin, spent = time.perf_counter(), time.process_time()
        table = gm.place_sensors(model, n, criterion=criterion)  # type: ignore[arg-type]
        took, spent = time.perf_counter() - begin, time.process_time() - spent
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        start, last = table.attrs, table.iloc[-1]
        error = f"at most {start['error']:.0e}" if start["error"] else "rounding"
        lines.append(
            f"| {criterion} | {n:,} | {took:.0f} | {spent:.0f} | {peak:.2f} | {start['mean_std']:.5f} | "
            f"{last['mean_std']:.5f} | {start['max_std']:.3f} | {last['max_std']:.3f} | {error} |"
        )
        print(lines[-1], flush=True)
    return [*lines, "", f"{load()}."]


# ---------------------------------------------------------------------- traffic
def traffic() -> list[str]:
    """Sensors chosen with parameters of other Mondays, against random choices."""
    data = gm.datasets.load_traffic_mondays()
    graph, sensors = data.graph, data.values.index
    past, future = data.values.iloc[:, :13], data.values.iloc[:, 13:]
    learned = gm.GraphGPRegressor(graph, integrate=False).fit(past)
    unit = learned.y_scale_**2
    kernel = learned.kernel_.__sklearn_clone__()
    kernel.variance = kernel.values()["variance"] * unit
    noise = learned.noise_ * unit

    def error(chosen: Any) -> float:
        """RMSE at all other sensors on the 13 later Mondays, from the chosen ones."""
        model = gm.GraphGPRegressor(
            graph, kernel, noise=noise, optimizer=None, normalize_y=False, engine="spectral", integrate=False
        ).fit(future.loc[chosen])
        others = sensors.difference(chosen)
        return float(np.sqrt(np.nanmean((model.predict(others) - future.loc[others].to_numpy()) ** 2)))

    rng = np.random.default_rng(0)
    random = np.array([error(sensors[rng.permutation(len(sensors))[:50]]) for _ in range(200)])
    low, middle, high = np.quantile(random, [0.05, 0.5, 0.95])
    lines = [
        (
            f"Parameters from 13 Mondays ({learned.kernel_!r}, noise {learned.noise_:.3f}, normalised); 50 of "
            f"{len(sensors)} sensors chosen before the other 13 Mondays are seen, on which the remaining ones are "
            f"predicted. 200 random choices have an RMSE of {middle:.2f} (median; 5 % to 95 %: {low:.2f} to {high:.2f}"
            f"; best {random.min():.2f})."
        ),
        "",
        "| criterion | RMSE, mph | random choices that are better |",
        "|---|---|---|",
    ]
    bound = kernel.on(graph, normalized=learned.normalized_)
    for criterion in CRITERIA:
        table = gm.place_sensors(bound, 50, criterion=criterion, candidates=sensors, targets=sensors, noise=noise)  # type: ignore[arg-type]
        own = error(pd.Index(table["node"]))
        lines.append(f"| {criterion} | {own:.2f} | {100 * np.mean(random < own):.1f} % |")
    return lines


# ---------------------------------------------------------------------- Cora
def cora(seeds: int = 10) -> list[str]:
    """Accuracy against the number of labels, for each strategy."""
    data = gm.datasets.load_cora()
    graph, topics = data.graph, data.values
    truth = topics.loc[graph.nodes].to_numpy()
    classes, codes = np.unique(truth, return_inverse=True)
    sizes = list(range(14, 141, 14))
    strategies = ("random", "entropy", "bald")
    found = {strategy: np.zeros((seeds, len(sizes))) for strategy in strategies}

    def fit(nodes: Any) -> gm.GraphGPClassifier:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NumericalWarning)
            model = gm.GraphGPClassifier(
                graph, gm.Matern(3.0, 5.0), normalized=False, n_eigenpairs=500, integrate=False, classes=classes
            )
            return model.fit(graph.nodes[nodes], truth[nodes])

    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        order = rng.permutation(graph.n_nodes)
        start = np.concatenate([order[codes[order] == c][:2] for c in range(len(classes))])
        begin = fit(start)
        for strategy in strategies:
            model, nodes = begin, start
            for k, size in enumerate(sizes):
                if k:
                    free = np.setdiff1d(order, nodes)
                    new = rng.permutation(free)[:14]
                    if strategy != "random":
                        new = graph.locate(model.suggest(14, strategy)["node"])  # type: ignore[arg-type]
                    nodes = np.concatenate([nodes, new])
                    # At 70 labels the parameters are learned again.
                    model = fit(nodes) if size == 70 else model.condition_on(graph.nodes[new], truth[new])
                rest = np.setdiff1d(np.arange(graph.n_nodes), nodes)
                found[strategy][seed, k] = model.score(graph.nodes[rest], truth[rest])
            print(seed, strategy, np.round(found[strategy][seed], 3).tolist(), flush=True)
    lines = [
        (
            f"Largest component, {graph.n_nodes:,} papers, 7 topics, robust-max, plain Laplacian, 500 eigenpairs. "
            "Two papers of each topic to begin with, then batches of 14; parameters learned at 14 and at 70 labels. "
            f"Accuracy at all papers without a label, mean over {seeds} seeds (in brackets, the standard error of the "
            "difference to random)."
        ),
        "",
        f"| labels | {' | '.join(strategies)} |",
        f"|---|{'---|' * len(strategies)}",
    ]
    for k, size in enumerate(sizes):
        cells = [f"{found['random'][:, k].mean():.3f}"]
        for strategy in strategies[1:]:
            away = found[strategy][:, k] - found["random"][:, k]
            cells.append(f"{found[strategy][:, k].mean():.3f} ({away.std(ddof=1) / np.sqrt(seeds):.3f})")
        lines.append(f"| {size} | {' | '.join(cells)} |")
    return lines


PARTS: dict[str, tuple[str, Callable[[], list[str]]]] = {
    "dense": ("The same choice as with dense matrices", dense),
    "million": ("A million nodes", million),
    "traffic": ("50 of 325 traffic sensors", traffic),
    "cora": ("Labels of Cora", cora),
}


def main() -> None:
    """Run the parts that were named, or all."""
    wanted = sys.argv[1:] or list(PARTS)
    known: dict[str, str] = {}
    if PAGE.exists():  # parts that are not run again stay
        for part in PAGE.read_text().split("\n## ")[1:]:
            title, _, text = part.partition("\n")
            known[title] = text.strip("\n")
    for name in wanted:
        title, run = PARTS[name]
        stamp = f"Made by `python evidence/placement.py {name}` on {dt.date.today()}."
        known[title] = "\n".join([stamp, "", *run()])
        pages = [f"## {title}\n\n{known[title]}\n" for title, _ in PARTS.values() if title in known]
        PAGE.write_text("\n".join(["# Where to measure next\n", *pages]))
        print(known[title])


if __name__ == "__main__":
    main()
