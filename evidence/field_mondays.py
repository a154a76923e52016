"""Speeds on 26 Mondays: a field over time next to one process per Monday, replicates, and plain means.

Run through ``make evidence``; needs the traffic data; writes field_mondays.md beside this file.
"""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import numpy as np
import pandas as pd
from gpytorch.kernels import ConstantKernel, Kernel, MaternKernel, ScaleKernel

import graphmatern as gm

SEEDS = range(3)
SCORES = ("rmse", "nlpd", "coverage_95")


def fields() -> dict[str, tuple[gm.Kernel | None, Kernel | None]]:
    """Kernels on the graph and on time, in weeks."""
    remembers = ConstantKernel() + ScaleKernel(MaternKernel(nu=0.5))  # what every Monday is like, and what changes
    # Without any lengthscale to speak of: what a sensor has for itself.
    own = gm.Matern(1.5, 5.0) + gm.Diffusion(1e-3, 0.3, fixed=("lengthscale",))
    return {
        "field, as it comes": (None, None),
        "field, time: constant + Matérn 1/2": (None, remembers),
        "field, the same, and sensors with a part of their own": (own, remembers),
    }


def predict_field(
    graph: gm.Graph, train: pd.DataFrame, hidden: pd.DataFrame, kernels: tuple[gm.Kernel | None, Kernel | None]
) -> tuple[np.ndarray, np.ndarray, gm.GraphFieldRegressor]:
    """Means and standard deviations of the hidden cells, in row order."""
    model = gm.GraphFieldRegressor(graph, *kernels, time_unit="W", n_draws=256).fit(train)
    rows, columns = np.nonzero(hidden.notna().to_numpy())
    mean, std = model.predict(hidden.columns[columns], hidden.index[rows], return_std=True, observation=True)
    return mean, std, model


def predict_days(graph: gm.Graph, train: pd.DataFrame, hidden: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """One process per Monday, each with parameters of its own."""
    means, stds = [], []
    for day in hidden.index:
        wanted = hidden.columns[hidden.loc[day].notna()]
        model = gm.GraphGPRegressor(graph).fit(train.loc[day])
        mean, std = model.predict(wanted, return_std=True, observation=True)
        means.append(mean)
        stds.append(std)
    return np.concatenate(means), np.concatenate(stds)


def predict_replicates(graph: gm.Graph, train: pd.DataFrame, hidden: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Independent Mondays that share the parameters."""
    model = gm.GraphGPRegressor(graph).fit(train.T)
    rows, columns = np.nonzero(hidden.notna().to_numpy())
    mean, std = model.predict(hidden.columns, return_std=True, observation=True)
    return mean.T[rows, columns], std.T[rows, columns]


def predict_sensor_means(train: pd.DataFrame, hidden: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of the same sensor on other Mondays."""
    columns = np.nonzero(hidden.notna().to_numpy())[1]
    names = hidden.columns[columns]
    spread = train.std() * np.sqrt(1 + 1 / train.notna().sum())
    return train.mean()[names].to_numpy(), np.maximum(spread[names].to_numpy(), 0.5)


def predict_nearest(graph: gm.Graph, train: pd.DataFrame, hidden: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """The nearest sensor along the roads, on the same Monday; its error is that among the sensors that are known."""
    known = train.columns
    distance = pd.DataFrame(graph.distances(known), index=known, columns=graph.nodes)
    own = distance[known].to_numpy().copy()
    np.fill_diagonal(own, np.inf)
    error = float(np.nanstd(train.to_numpy() - train[known[own.argmin(axis=1)]].to_numpy()))
    rows, columns = np.nonzero(hidden.notna().to_numpy())
    nearest = {name: distance[name].idxmin() for name in hidden.columns}
    mean = [train[nearest[hidden.columns[c]]].iloc[r] for r, c in zip(rows, columns, strict=True)]
    return np.array(mean), np.full(len(mean), error)


def split(table: pd.DataFrame, kind: str, seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Known and hidden cells: a fifth of all cells, or all cells of 30 sensors."""
    rng = np.random.default_rng(seed)
    if kind == "cells":
        is_hidden = rng.uniform(size=table.shape) < 0.2
        return table.mask(is_hidden), table.where(is_hidden)
    sensors = table.columns[rng.permutation(table.shape[1])[:30]]
    return table.drop(columns=sensors), table[sensors]


def main() -> None:
    """Write the tables."""
    data = gm.datasets.load_traffic_mondays()
    table, graph = data.values.T, data.graph
    summaries: list[str] = []
    lines = [
        "# 26 Mondays of traffic",
        "",
        f"Speeds (mph) at 325 sensors, 17:30, on 26 Mondays; means over {len(SEEDS)} random choices of what is hidden.",
        f"Made by `python evidence/field_mondays.py` on {dt.date.today().isoformat()}. Nearest sensors are predicted",
        "with the error found among the known sensors, sensor means with the sensor's own spread.",
    ]
    for kind, title in (("cells", "20 % of the cells hidden"), ("sensors", "All cells of 30 sensors hidden")):
        found: dict[str, list[dict[str, float]]] = {}
        for seed in SEEDS:
            train, hidden = split(table, kind, seed)
            truth = hidden.to_numpy()[hidden.notna().to_numpy()]
            predictions = {}
            for name, kernels in fields().items():
                *predictions[name], model = predict_field(graph, train, hidden, kernels)
                if seed == 0:
                    summaries += ["", f"{title}, {name}:", "```", model.summary(), "```"]
            predictions["one process per Monday"] = list(predict_days(graph, train, hidden))
            predictions["replicates, shared parameters"] = list(predict_replicates(graph, train, hidden))
            if kind == "cells":
                predictions["mean of the sensor"] = list(predict_sensor_means(train, hidden))
            else:
                predictions["nearest sensor, same Monday"] = list(predict_nearest(graph, train, hidden))
            for name, (mean, std) in predictions.items():
                found.setdefault(name, []).append(gm.metrics.regression_report(truth, mean, std))
                print(title, seed, name, {score: round(found[name][-1][score], 3) for score in SCORES}, flush=True)
        lines += ["", f"## {title}", "", "| model | RMSE | NLPD | coverage of 95 % |", "|---|---|---|---|"]
        for name, reports in found.items():
            rmse, nlpd, coverage = (np.mean([report[score] for report in reports]) for score in SCORES)
            lines.append(f"| {name} | {rmse:.2f} | {nlpd:.2f} | {100 * coverage:.1f} % |")
    Path(__file__).with_suffix(".md").write_text("\n".join([*lines, "", "## Fits (first choice)", *summaries]) + "\n")


if __name__ == "__main__":
    main()
