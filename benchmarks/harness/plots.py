"""Pictures of the stored results."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from harness.aims import by_peer, fit_seconds, series_of
from harness.running import seconds_of
from harness.task import OURS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

    from harness.store import Store

__all__ = ["draw"]

OWN, OTHERS = "#c2410c", ["#1d4ed8", "#60a5fa", "#047857", "#7c3aed", "#57534e", "#0e7490", "#a16207"]


def draw(stores: Mapping[str, Store], folder: Path) -> list[str]:
    """Draw what there are results for; names of the files."""
    import matplotlib as mpl

    mpl.use("Agg")
    makers = {"traffic": _traffic, "cora": _cora, "scaling": _scaling, "spectrum": _spectrum, "sparse": _sparse}
    drawn = []
    for section, maker in makers.items():
        if section in stores and any(record["runs"] for record in stores[section].records.values()):
            folder.mkdir(parents=True, exist_ok=True)
            picture = maker(stores[section])
            picture.savefig(folder / f"{section}.png", dpi=130, metadata={"Software": None})
            drawn.append(f"{section}.png")
    return drawn


def _colours(peers: list[str]) -> dict[str, str]:
    others = sorted({peer.split(":")[0] for peer in peers if not peer.startswith(OURS)})
    palette = {peer: OTHERS[index % len(OTHERS)] for index, peer in enumerate(others)}
    return {peer: palette.get(peer.split(":")[0], OWN) for peer in peers}


def _plain_ticks(axis: Axis) -> None:
    """Ticks 1, 2, 5, 10, ... of a logarithmic axis, as numbers."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    low, high = axis.get_view_interval()
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high < 200.0 * low else (1.0,), numticks=12))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}" if value >= 1.0 else f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def _new(width: float, height: float) -> Figure:
    from matplotlib.figure import Figure as NewFigure

    return NewFigure(figsize=(width, height), layout="constrained")


def _bars(times: Mapping[str, float], label: str) -> Figure:
    picture = _new(8.0, 0.6 + 0.42 * len(times))
    axes = picture.subplots()
    peers = sorted(times, key=times.__getitem__, reverse=True)
    colours = _colours(peers)
    axes.barh(peers, [times[peer] for peer in peers], color=[colours[peer] for peer in peers])
    for row, peer in enumerate(peers):
        axes.annotate(f" {times[peer]:.3g} s", (times[peer], row), va="center", fontsize=9)
    axes.set_xscale("log")
    low, high = min(times.values()), max(times.values())
    axes.set_xlim(low / 3.0, high * 4.0)
    _plain_ticks(axes.xaxis)
    axes.set_xlabel(label)
    axes.spines[["top", "right"]].set_visible(False)
    return picture


def _traffic(store: Store) -> Figure:
    times = {peer: median([fit_seconds(run) for run in runs]) for peer, runs in by_peer(store).items()}
    return _bars(times, "seconds of a fit, spectrum excluded")


def _cora(store: Store) -> Figure:
    picture = _new(8.0, 4.2)
    axes = picture.subplots()
    peers = by_peer(store)
    colours = _colours(list(peers))
    marks = iter("osD^vP*Xh<>")
    for peer, runs in peers.items():
        seconds = median([fit_seconds(run) for run in runs])
        accuracy = sum(run["accuracy"] for run in runs) / len(runs)
        axes.plot(seconds, accuracy, next(marks), color=colours[peer], label=peer, markersize=8)
    axes.set_xscale("log")
    _plain_ticks(axes.xaxis)
    axes.set_xlabel("seconds of a fit, spectrum excluded")
    axes.set_ylabel("accuracy")
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    picture.legend(fontsize=8, frameon=False, loc="outside right upper")
    return picture


def _scaling(store: Store) -> Figure:
    picture = _new(10.0, 4.4)
    times, memory = picture.subplots(1, 2)
    limit = float(store.machine["limit_seconds"])
    colours = _colours([record["case"]["peer"] for record in store.records.values()])
    series = {times: series_of(store, seconds_of), memory: series_of(store, lambda run: run["peak_bytes"] / 1e9)}
    for axes, curves in series.items():
        for peer, points in curves.items():
            own = peer == OURS
            style = {"linewidth": 2.6 if own else 1.4, "zorder": 3 if own else 2}
            label = peer if axes is times else None
            axes.plot(*zip(*points, strict=True), "o-", color=colours[peer], label=label, markersize=5, **style)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel("nodes")
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    for axis in (times.xaxis, times.yaxis, memory.xaxis, memory.yaxis):
        _plain_ticks(axis)
    times.axhline(limit, color="grey", linewidth=0.8, linestyle="--")
    times.annotate(f"{limit / 60:g} minutes", (1.0, limit), xycoords=("axes fraction", "data"), ha="right", va="bottom")
    times.set_title("seconds: fit and all standard deviations", fontsize=10)
    memory.set_title("peak memory, GB", fontsize=10)
    picture.legend(fontsize=8, frameon=False, ncols=2, loc="outside lower center")
    return picture


def _spectrum(store: Store) -> Figure:
    times = {}
    for record in store.records.values():
        case = record["case"]
        if record["runs"]:
            name = f"{case['peer']}: {case['pairs']:,} pairs, {case['nodes']:,} nodes"
            times[name] = median([seconds_of(run) for run in record["runs"]])
    return _bars(times, "seconds")


def _sparse(store: Store) -> Figure:
    """Numeric factorisation per matrix; conjugate gradients have none and stand in the table only."""
    found: dict[str, dict[str, float]] = {}
    for record in store.records.values():
        case = record["case"]
        if record["runs"] and "numeric" in record["runs"][0]:
            solver = f"{case['peer']}, {case['threads']} thread{'s' if case['threads'] > 1 else ''}"
            matrix = f"{case['graph']}\n{case['n']:,}\nν = {case['nu']}"
            found.setdefault(solver, {})[matrix] = median([run["numeric"] for run in record["runs"]])
    picture = _new(9.0, 4.2)
    axes = picture.subplots()
    matrices = list(dict.fromkeys(matrix for row in found.values() for matrix in row))
    colours = _colours(list(found))
    width = 0.8 / len(found)
    for index, (solver, row) in enumerate(found.items()):
        places = [matrices.index(matrix) + (index - len(found) / 2) * width for matrix in row]
        own = solver.startswith(OURS) and "1 thread" in solver
        axes.bar(places, list(row.values()), width, label=solver, color=colours[solver], alpha=0.5 if own else 1.0)
    axes.set_yscale("log")
    axes.set_xticks(range(len(matrices)), matrices, fontsize=8)
    _plain_ticks(axes.yaxis)
    axes.set_ylabel("seconds, numeric factorisation")
    axes.spines[["top", "right"]].set_visible(False)
    picture.legend(fontsize=8, frameon=False, loc="outside right upper")
    return picture
