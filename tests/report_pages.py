"""Small models whose pages are looked at."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pandas as pd

import graphmatern as gm

HOSTILE = "<script>alert(1)</script>"
KEPT: dict[str, Any] = {"optimizer": None}


@functools.cache
def roads() -> gm.GraphGPRegressor:
    """A town of about 40 junctions, half of them measured."""
    town = gm.make_roads(45, seed=1)
    town = gm.Graph.from_edges(
        town.edges.assign(source=town.edges["source"].map("J{}".format), target=town.edges["target"].map("J{}".format)),
        length="length",
        positions={f"J{name}": place for name, place in zip(town.nodes, town.positions.tolist(), strict=True)},  # type: ignore[union-attr]
    )
    rng = np.random.default_rng(0)
    seen = np.sort(rng.choice(town.n_nodes, town.n_nodes // 2, replace=False))
    values = 50.0 + 0.02 * town.positions[seen, 0] + rng.standard_normal(len(seen))  # type: ignore[index]
    return gm.GraphGPRegressor(town, gm.Matern(1.5, 3.0), noise=0.1, **KEPT).fit(town.nodes[seen], values)


@functools.cache
def counts() -> tuple[gm.GraphGPRegressor, dict[str, Any]]:
    """Districts on a grid of squares, one of which has a hole; counts with exposures."""
    names = [f"D{row}{column}" for row in range(3) for column in range(3)]
    edges = [(f"D{r}{c}", f"D{r + dr}{c + dc}") for r in range(3) for c in range(3) for dr, dc in ((0, 1), (1, 0))
             if r + dr < 3 and c + dc < 3]  # fmt: skip
    graph = gm.Graph.from_edges(edges, nodes=names)
    areas: dict[str, Any] = {}
    for name in names:
        x, y = float(name[2]), float(name[1])
        ring = [[x, y], [x + 1, y], [x + 1, y + 1], [x, y + 1], [x, y]]
        areas[name] = {"type": "Polygon", "coordinates": [ring]}
    hole = [[1.4, 1.4], [1.6, 1.4], [1.6, 1.6], [1.4, 1.6], [1.4, 1.4]]
    areas["D11"]["coordinates"].append(hole)
    cases = np.array([1.0, 4.0, 9.0, 2.0, 5.0, 8.0, 0.0, 6.0, 12.0])
    exposure = np.array([2.0, 3.0, 4.0, 2.0, 4.0, 4.0, 1.0, 4.0, 5.0])
    model = gm.GraphGPRegressor(graph, gm.Matern(1.0, 1.5), likelihood="poisson", **KEPT)
    return model.fit(names, cases, exposure=exposure), areas


@functools.cache
def classes() -> gm.GraphGPClassifier:
    """Two rings of nodes without positions, joined by an edge; and a part without any label."""
    edges = [(f"{side}{k}", f"{side}{(k + 1) % 8}") for side in "ab" for k in range(8)]
    graph = gm.Graph.from_edges([*edges, ("a0", "b0"), ("lost", HOSTILE)])
    labels = {
        "a1": "red",
        "a4": "red",
        "b3": "blue",
        "b5": "blue",
        "a6": "red",
        "b7": "blue",
        "a0": "red",
        "b2": "green",
    }
    model = gm.GraphGPClassifier(graph, gm.Matern(1.5, 2.0), integrate=False, **KEPT)
    return model.fit(list(labels), list(labels.values()))


@functools.cache
def field() -> gm.GraphFieldRegressor:
    """Eight nodes on a line, a wave that runs along them, holes in the table."""
    line = gm.Graph.from_edges([(f"n{k}", f"n{k + 1}") for k in range(7)], positions=[[k, 0.2 * k] for k in range(8)])
    times = pd.date_range("2024-03-01 06:00", periods=5, freq="h")
    wave = np.sin(np.arange(8) / 2.0 + np.arange(5)[:, None])
    table = pd.DataFrame(10.0 + 3.0 * wave, index=times, columns=line.nodes)
    table.iloc[1, 2] = table.iloc[3, 5] = np.nan
    model = gm.GraphFieldRegressor(line, gm.Matern(1.5, 2.0), noise=0.05, **KEPT)
    return model.fit(table.drop(columns="n6"))
