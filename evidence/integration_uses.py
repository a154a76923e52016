"""Integrated parameters where they are used: the demo's city, traffic, what they cost, and data that say little.

    python evidence/integration_uses.py [city] [traffic] [cost] [little]

Run through ``make evidence``; traffic and a part of cost need the data sets. Writes its parts of integration_uses.md
beside this file.
"""

from __future__ import annotations

import os
import sys
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import graphmatern as gm
from graphmatern.cli._demo_city import measure_city
from graphmatern.inference import MarkovPrecision

if TYPE_CHECKING:
    from collections.abc import Callable

PAGE = Path(__file__).with_suffix(".md")
WAYS = {"plugged in": False, "integrated": True}


def scores(model: Any, nodes: Any, truth: Any, *, observation: bool) -> list[float]:
    """Coverage of 95 % intervals, NLPD and CRPS at some nodes."""
    table = model.predict_table().loc[list(nodes)]
    low, high = ("observation_lower", "observation_upper") if observation else ("lower", "upper")
    inside = float(((table[low] <= truth) & (truth <= table[high])).mean())
    if not observation:
        return [inside]
    found = model.evaluate(nodes, truth)
    return [inside, found["nlpd"], found["crps"]]


def city() -> list[str]:
    """Coverage of the demo's city, whose traffic is not drawn from a Gaussian process."""
    rows = []
    for seed in range(8):
        data = measure_city(seed)
        row = []
        for integrate in WAYS.values():
            model = gm.GraphGPRegressor(data.city, integrate=integrate, verbose=False)
            model.fit(data.city.nodes[data.sensors], data.y)
            row += scores(model, data.city.nodes[data.hidden], data.truth[data.hidden], observation=False)
        rows.append(row)
        print(seed, row, flush=True)
    means = np.mean(rows, axis=0)
    each = ", ".join(f"{100 * one:.1f}" for _, one in rows)
    return [
        "About 2,000 junctions, 300 sensors, eight seeds. Share of junctions without a sensor whose truth lies in the",
        f"95 % interval of the process: plugged in {100 * means[0]:.1f} %, integrated {100 * means[1]:.1f} % ({each}).",
    ]


def traffic() -> list[str]:
    """The paper's ten splits of the speeds."""
    data = gm.datasets.load_traffic()
    found: dict[str, list[list[float]]] = {way: [] for way in WAYS}
    for seed in range(10):
        order = np.random.default_rng(seed).permutation(len(data.values))
        train, test = data.values.iloc[order[:250]], data.values.iloc[order[250:]]
        for way, integrate in WAYS.items():
            model = gm.GraphGPRegressor(data.graph, integrate=integrate, verbose=False).fit(train)
            found[way].append(scores(model, test.index, test.to_numpy(), observation=True))
        print(seed, {way: rows[-1] for way, rows in found.items()}, flush=True)
    lines = ["| 250 of 325 sensors, ten splits | coverage of 95 % | NLPD | CRPS |", "|---|---|---|---|"]
    for way, rows in found.items():
        inside, nlpd, crps = np.mean(rows, axis=0)
        lines.append(f"| {way} | {100 * inside:.1f} % | {nlpd:.3f} | {crps:.3f} |")
    return lines


def timed(fit: Callable[[], Any], predict: Callable[[Any], Any]) -> tuple[float, float, float]:
    """Processor seconds of a fit, wall seconds of it, and processor seconds of predictions everywhere."""
    start, wall = time.process_time(), time.perf_counter()
    model = fit()
    middle, seconds = time.process_time(), time.perf_counter() - wall
    predict(model)
    return middle - start, seconds, time.process_time() - middle


def cost() -> list[str]:
    """Seconds with and without, the second fit of each kind in one process."""
    data = gm.datasets.load_traffic()
    cora = gm.datasets.load_cora()
    labelled = cora.values.groupby(cora.values).sample(20, random_state=0)
    roads = gm.make_roads(1_000_000, seed=0)
    precision = MarkovPrecision(roads, 1)
    factor = precision.analysis.factorize_lower(precision.polynomial.lower(precision.coefficients(6.0, 1.0)))
    rng = np.random.default_rng(0)
    truth = factor.solve_upper(rng.standard_normal(roads.n_nodes)) / np.sqrt(factor.diagonal_of_inverse().mean())
    seen = np.sort(rng.choice(roads.n_nodes, 100_000, replace=False))
    noisy = truth[seen] + 0.3 * rng.standard_normal(len(seen))
    train = data.values.iloc[np.random.default_rng(0).permutation(len(data.values))[:250]]

    def on_traffic(integrate: bool) -> Any:
        return gm.GraphGPRegressor(data.graph, integrate=integrate, verbose=False).fit(train)

    def on_cora(integrate: bool) -> Any:
        return gm.GraphGPClassifier(cora.graph, integrate=integrate, verbose=False).fit(labelled)

    def on_roads(integrate: bool) -> Any:
        kernel = gm.Matern(nu=1, fixed=("nu",))
        return gm.GraphGPRegressor(roads, kernel, integrate=integrate, verbose=False).fit(roads.nodes[seen], noisy)

    lines = [
        "| | processor s, plugged in | integrated | ratio | wall s, plugged in | integrated | predictions |",
        "|---|---|---|---|---|---|---|",
    ]
    problems: dict[str, tuple[Callable[[bool], Any], Callable[[Any], Any]]] = {
        "traffic, 250 sensors": (on_traffic, lambda model: model.predict(return_std=True)),
        "Cora, 140 labels": (on_cora, lambda model: model.predict_proba()),
        f"roads, {roads.n_nodes:,} nodes": (on_roads, lambda model: model.predict(return_std=True)),
    }
    for name, (fit, predict) in problems.items():
        found = []
        for integrate in (False, True):
            if roads.n_nodes >= 500_000 and fit is on_roads:
                found.append(timed(lambda: fit(integrate), predict))  # noqa: B023
                continue
            timed(lambda: fit(integrate), predict)  # noqa: B023
            found.append(timed(lambda: fit(integrate), predict))  # noqa: B023
        (own, wall, _), (both, longer, predicted) = found
        lines.append(
            f"| {name} | {own:.2f} | {both:.2f} | {both / own:.1f} | {wall:.2f} | {longer:.2f} | {predicted:.2f} |"
        )
        print(lines[-1], flush=True)
    return [*lines, "", f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the end."]


def little() -> list[str]:
    """Three values, constant values, counts that are all zero, a part of the graph without data."""
    graph = gm.make_roads(100, seed=1)
    lines = []

    def line(what: str, model: Any, nodes: Any) -> None:
        table = model.predict_table().loc[list(nodes)]
        assert np.isfinite(table.to_numpy(float)).all()
        low, high = float(table["lower"].mean()), float(table["upper"].mean())
        nu = model.hyperparameters_.loc["nu"]
        lines.append(
            f"* {what}: 95 % interval at other nodes {low:.3g} to {high:.3g} on average; ν {nu['2.5%']:.2g} to "
            f"{nu['97.5%']:.2g}; at a bound: {', '.join(model.at_bounds_) or 'nothing'}."
        )

    options: dict[str, Any] = {"integrate": True, "verbose": False}
    line("three values 1, 2, 4", gm.GraphGPRegressor(graph, **options).fit([0, 5, 9], [1.0, 2.0, 4.0]), [20, 40])
    same = gm.GraphGPRegressor(graph, **options).fit([0, 5, 9, 12], [3.0] * 4)
    line("four values, all 3", same, [20, 40])
    counts = gm.GraphGPRegressor(graph, likelihood="poisson", **options)
    line("five counts 3, 5, 4, 2, 6", counts.fit(list(range(5)), [3, 5, 4, 2, 6]), [20, 40])
    counts = gm.GraphGPRegressor(graph, likelihood="poisson", **options)
    line("twenty counts of zero", counts.fit(list(range(20)), [0] * 20), [0, 40])
    return lines


def main() -> None:
    """Write the parts that were asked for."""
    warnings.simplefilter("ignore")
    parts: dict[str, tuple[str, Callable[[], list[str]]]] = {
        "city": ("The demo's city", city),
        "traffic": ("Traffic", traffic),
        "cost": ("What it costs", cost),
        "little": ("Data that say little", little),
    }
    text = PAGE.read_text() if PAGE.exists() else "# Integrated parameters in use\n"
    known = {part.split("\n", 1)[0]: part.split("\n", 1)[1].strip() for part in text.split("\n## ")[1:]}
    for name in sys.argv[1:] or parts:
        title, make = parts[name]
        known[title] = "\n".join(make())
    sections = [f"## {title}\n\n{known[title]}\n" for title, _ in parts.values() if title in known]
    PAGE.write_text("\n".join(["# Integrated parameters in use\n", *sections]))


if __name__ == "__main__":
    main()
