"""Tables of classes, counts by area, coverage and any smoothness."""

from __future__ import annotations

from math import sqrt
from statistics import mean, median, stdev
from typing import TYPE_CHECKING, Any

from harness.aims import figure
from harness.cells import gigabytes, number, spread, table
from harness.running import seconds_of
from harness.task import OURS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from harness.store import Store

__all__ = ["CLASS_DATA", "classes", "counts", "coverage", "fractional", "grouped", "mean_and_error"]

CLASS_DATA = {"Cora": "Cora", "digits": "digits", "citations": "citation-like", "points": "nearest neighbours"}

Runs = list[dict[str, Any]]


def grouped(store: Store, *names: str) -> dict[tuple[Any, ...], dict[str, Runs]]:
    """Runs by what their cases have in common, then by peer; peers without a run have an empty list."""
    found: dict[tuple[Any, ...], dict[str, Runs]] = {}
    for record in store.records.values():
        case = record["case"]
        group = found.setdefault(tuple(case[name] for name in names), {})
        group.setdefault(case["peer"], []).extend(record["runs"])
    return dict(sorted(found.items()))


def mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """Mean, and its standard error."""
    return mean(values), stdev(values) / sqrt(len(values)) if len(values) > 1 else float("nan")


def classes(store: Store) -> list[str]:
    """Seconds from the graph to all probabilities, and how good these are."""
    rows = []
    groups = grouped(store, "data")
    for data, title in CLASS_DATA.items():
        for peer, runs in groups.get((data,), {}).items():
            if not runs:
                continue
            size = f"{title}: {runs[0]['nodes']:,} nodes, {runs[0]['labels']} labels, {runs[0]['classes']} classes"
            row = [size, peer, str(len(runs)), spread([run["seconds"] for run in runs])]
            row.append(spread([run["choice"] for run in runs if "choice" in run]))
            row += [f"{mean(run[name] for run in runs):.3f}" for name in ("accuracy", "log_loss", "calibration")]
            rows.append([*row, gigabytes(runs)])
    heads = ["graph", "method", "splits", "seconds", "of which choosing by cross-validation", "accuracy", "log loss"]
    return table([*heads, "calibration error", "memory, GB"], rows)


def counts(store: Store) -> list[str]:
    """Seconds, effective draws, and how far our means are from the chains'."""
    rows = []
    for (data, areas), peers in grouped(store, "data", "areas").items():
        ours = peers.get(OURS, [])
        for peer, runs in peers.items():
            if not runs:
                continue
            chain = peer != OURS
            ess = figure(runs, "ess")
            seconds = [seconds_of(run) for run in runs]
            row = [f"{data}, {areas:,} areas", peer, spread(seconds)]
            row.append(spread([run["later"] for run in runs if "later" in run]))
            row += [number(ess, "{:.0f}"), number(ess / median(seconds) if ess else None)]
            row += _differences(ours, runs) if chain and ours else ["–", "–"]
            row += [number(figure(runs, "r_hat"), "{:.3f}"), number(figure(runs, "divergences"), "{:.0f}")]
            rows.append([*row, gigabytes(runs)])
    heads = [
        "data",
        "method",
        "first fit of a process, s",
        "later fits, s",
        "effective draws, least",
        "per second",
    ]
    heads += ["our parameters: largest difference of means / sd", "our risks: largest difference of means / sd"]
    return table([*heads, "R-hat, largest", "divergences", "memory, GB"], rows)


def _differences(ours: Runs, chain: Runs) -> list[str]:
    """Largest distances of our means from a chain's, in its standard deviations: of parameters, of risks."""
    own, other = ours[0], chain[0]
    cells = []
    for name in ("parameters", "risks"):
        pairs = zip(own[name], other[name], other[f"{name}_sd"], strict=True)
        cells.append(f"{max(abs(a - b) / sd for a, b, sd in pairs):.3f}")
    return cells


def coverage(store: Store) -> list[str]:
    """Shares of the hidden nodes inside their intervals, with the standard error over simulations."""
    rows = []
    for (observed,), peers in grouped(store, "observed").items():
        for peer, runs in peers.items():
            for run in runs[:1]:
                share, error = mean_and_error(run["shares"])
                done, tried = len(run["shares"]), run["tried"]
                row = [str(observed), peer, str(done) if done == tried else f"{done}, {tried - done} failed"]
                row += [f"{share:.1%} ± {error:.1%}", f"{mean(run['widths']):.2f}", f"{median(run['nlpds']):.3f}"]
                row += [f"{mean(run['nlpds']):.3g}", number(median(run["fits"])), gigabytes(runs)]
                rows.append(row)
    heads = ["observations", "library", "simulations", "inside 95 % intervals", "mean width", "NLPD, median"]
    return table([*heads, "NLPD, mean", "seconds of a fit, with predictions", "memory, GB"], rows)


def fractional(store: Store) -> list[str]:
    """Seconds, likelihood next to the exact one, learned smoothness and coverage."""
    rows = []
    for (nu, nodes), peers in grouped(store, "nu", "nodes").items():
        exact = [loss for peer, runs in peers.items() if peer != OURS and (loss := figure(runs, "nll")) is not None]
        for peer, runs in peers.items():
            if not runs:
                continue
            loss = figure(runs, "nll")
            above = loss - min(exact) if exact and loss is not None else None
            row = [f"{nu:g}", f"{nodes:,}", peer, spread([seconds_of(run) for run in runs])]
            row += [number(figure(runs, "nu"), "{:.3f}"), number(loss, "{:.2f}"), number(above, "{:+.3f}")]
            row += [f"{figure(runs, name):.3f}" for name in ("rmse", "nlpd", "coverage")]
            rows.append([*row, gigabytes(runs)])
    heads = [
        "true ν",
        "nodes",
        "library",
        "seconds",
        "learned ν",
        "negative log likelihood",
        "above the exact one",
    ]
    return table([*heads, "RMSE", "NLPD", "coverage of 95 % intervals", "memory, GB"], rows)
