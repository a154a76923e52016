"""A field on 2,000 nodes × 2,000 times with 30 % of the cells missing, fitted on this machine.

Run it alone, on a quiet machine, with all its cores; other sizes for a trial:

    python evidence/field_large.py [n_nodes n_times]

Writes field_large.md beside this file where it runs at full size, else prints.
"""

from __future__ import annotations

import datetime as dt
import os
import resource
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
from threadpoolctl import threadpool_limits

import graphmatern as gm
from graphmatern.inference.field import TimeKernel
from graphmatern.kernels import Matern

FULL = (2000, 2000)
MISSING, NOISE, NU, LENGTHSCALE, TIME_LENGTHSCALE = 0.3, 0.3, 1.5, 5.0, 10.0


def simulate(n_nodes: int, n_times: int) -> tuple[gm.Graph, pd.DataFrame, np.ndarray]:
    """A road-like graph, a table with holes, and the field without noise."""
    from gpytorch.kernels import MaternKernel

    rng = np.random.default_rng(0)
    trials = (gm.make_roads(int(1.2 * n_nodes) + 60, seed=seed) for seed in range(20))
    graph = next(trial for trial in trials if trial.n_nodes >= n_nodes)
    graph = graph.subgraph(graph.nodes[:n_nodes])
    bound = Matern(NU, LENGTHSCALE).on(graph)
    kernel = TimeKernel(MaternKernel(nu=1.5))
    kernel.kernel.lengthscale = TIME_LENGTHSCALE
    size, turn = np.linalg.eigh(kernel.values(np.arange(float(n_times))))
    root = turn * np.sqrt(np.maximum(size, 0.0))
    weights = bound.weights().detach().numpy()
    field = (root @ rng.standard_normal((n_times, len(weights)))) * np.sqrt(weights) @ bound.spectrum.basis.T
    values = field + NOISE * rng.standard_normal(field.shape)
    values[rng.uniform(size=values.shape) < MISSING] = np.nan
    return graph, pd.DataFrame(values, index=np.arange(float(n_times)), columns=graph.nodes), field


def main(n_nodes: int, n_times: int) -> None:
    """Fit, predict, report."""
    graph, table, field = simulate(n_nodes, n_times)
    graph.spectrum()  # part of neither figure
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    model = gm.GraphFieldRegressor(graph, engine="iterative", n_draws=4, verbose=True)
    started, processor = time.perf_counter(), time.process_time()
    model.fit(table)
    seconds, processor = time.perf_counter() - started, time.process_time() - processor
    print(model.summary(), f"{seconds:.0f} s, {processor:.0f} s of processor time", flush=True)
    started = time.perf_counter()
    mean = model.predict_grid().to_numpy()
    mean_seconds = time.perf_counter() - started
    missing = table.isna().to_numpy()
    rmse = float(np.sqrt(np.mean((mean - field)[missing] ** 2)))
    rng = np.random.default_rng(1)
    rows, columns = np.nonzero(missing)
    chosen = rng.permutation(len(rows))[:5000]
    started, draws_processor = time.perf_counter(), time.process_time()
    few, std = model.predict(graph.nodes[columns[chosen]], table.index[rows[chosen]], return_std=True)
    std_seconds, draws_processor = time.perf_counter() - started, time.process_time() - draws_processor
    z = (few - field[rows[chosen], columns[chosen]]) / std
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    system = model.posterior_.system  # type: ignore[attr-defined]
    learned = {
        "nu": model.kernel_.values()["nu"],
        "lengthscale": model.kernel_.values()["lengthscale"],
        "time lengthscale": model.time_kernel_.lengthscale.item(),
        "noise": float(np.sqrt(model.noise_)) * model.y_scale_,
    }
    truth = dict(zip(learned, (NU, LENGTHSCALE, TIME_LENGTHSCALE, NOISE), strict=True))
    draws = f"{std_seconds:,.0f} s ({draws_processor:,.0f} s of processor time)"
    lines = [
        f"# {n_nodes:,} nodes × {n_times:,} times, {MISSING:.0%} of the cells missing",
        "",
        f"Made by `python evidence/field_large.py` on {dt.date.today().isoformat()}.",
        f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the end.",
        "",
        "| what | figure |",
        "|---|---|",
        f"| observed cells | {int((~missing).sum()):,} |",
        f"| fit: five parameters learned, conditioned | {seconds:,.0f} s ({processor:,.0f} s of processor time) |",
        f"| evaluations of likelihood and gradient on all cells | {model.n_evaluations_} |",
        f"| means of all {mean.size:,} cells | {mean_seconds:,.1f} s |",
        f"| standard deviations of 5,000 missing cells, {model.n_draws} draws | {draws} |",
        f"| peak memory (of which {before:.2f} GiB before the fit) | {peak:.2f} GiB |",
        f"| relative residual of solves | {model.tolerance:.0e} |",
        f"| conjugate gradient iterations of the last solve | {system.fill_in.iterations} |",
        f"| log marginal likelihood | {model.log_marginal_likelihood_:,.1f} |",
        f"| its standard error, from {system.options.n_probes} probes | {model.log_marginal_likelihood_error_:.1f} |",
        f"| RMSE of the field at missing cells (its standard deviation is {field.std():.2f}) | {rmse:.4f} |",
        f"| mean predicted standard deviation there | {std.mean():.4f} |",
        f"| coverage of 95 % intervals there | {np.mean(np.abs(z) < 1.96):.1%} |",
        *(f"| {name}, learned (true {truth[name]:g}) | {value:.4g} |" for name, value in learned.items()),
    ]
    text = "\n".join(lines) + "\n"
    print(text)
    if (n_nodes, n_times) == FULL:
        Path(__file__).with_suffix(".md").write_text(text)


if __name__ == "__main__":
    sizes = [int(argument) for argument in sys.argv[1:]]
    with threadpool_limits(os.cpu_count(), user_api="blas"):  # whatever the environment says
        main(*(sizes or FULL))
