"""What the README shows of the results: seconds and quality next to the libraries people use today."""

from __future__ import annotations

from statistics import mean, median
from typing import TYPE_CHECKING, Any

from harness.aims import by_peer, figure, fit_seconds, same_likelihood
from harness.running import seconds_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harness.store import Store

__all__ = ["LIBRARIES", "summary_rows"]

LIBRARIES = ("graphmatern", "GeometricKernels", "GPflow", "scikit-learn", "GPJax")
_SIZES = (10_000, 1_000_000)
_NONE = "–"


def summary_rows(stores: Mapping[str, Store]) -> list[list[str]]:
    """A row for every task: what it is, then the figures of every library's best variant."""
    rows = []
    if "traffic" in stores:
        rows.append(["traffic, 1,016 nodes, 250 sensors", *_traffic(stores["traffic"])])
    if "cora" in stores:
        rows.append(["citations, 2,485 papers, 140 labels", *_cora(stores["cora"])])
    if "scaling" in stores:
        rows += [[f"roads, {nodes:,} nodes, exactly", *_scaling(stores["scaling"], nodes)] for nodes in _SIZES]
    return [row for row in rows if any(cell != _NONE for cell in row[1:])]


def _of(library: str, names: Mapping[str, Any]) -> list[str]:
    """Variants of a library; label spreading and the paper's recipe are not a library's own way to fit."""
    return [name for name in names if name.startswith(library)]


def _seconds(value: float) -> str:
    return f"{value:.2g} s" if value < 10.0 else f"{value:.0f} s"


def _traffic(store: Store) -> list[str]:
    """Eigenpairs and fit, of the fastest variant that reaches the best likelihood."""
    peers = by_peer(store)
    good = same_likelihood(peers)
    cells = []
    for library in LIBRARIES:
        times = [
            median([fit_seconds(run) for run in peers[name]]) + (figure(peers[name], "spectrum") or 0.0)
            for name in _of(library, peers)
            if good[name]
        ]
        cells.append(_seconds(min(times)) if times else _NONE)
    return cells


def _cora(store: Store) -> list[str]:
    """Eigenpairs and fit, and accuracy, of the fastest variant that finishes on the most splits."""
    splits: dict[str, list[list[dict[str, Any]]]] = {}
    for record in store.records.values():
        splits.setdefault(record["case"]["peer"], []).append(record["runs"])
    cells = []
    for library in LIBRARIES:
        found = []
        for name in _of(library, splits):
            runs = [run for some in splits[name] for run in some]
            if runs:
                done = sum(bool(some) for some in splits[name])
                seconds = median([fit_seconds(run) + run["spectrum"] for run in runs])
                found.append((-done, seconds, len(splits[name]), mean(run["accuracy"] for run in runs)))
        if not found:
            cells.append(_NONE)
            continue
        minus_done, seconds, tried, accuracy = min(found)
        failures = f", fails on {tried + minus_done} of {tried} splits" if tried + minus_done else ""
        cells.append(f"{_seconds(seconds)}, {100 * accuracy:.0f} % right{failures}")
    return cells


def _scaling(store: Store, nodes: int) -> list[str]:
    """Seconds of the fastest variant that computes exactly: one that reaches the best likelihood."""
    here = {
        record["case"]["peer"]: record["runs"]
        for record in store.records.values()
        if record["case"]["nodes"] == nodes and record["runs"]
    }
    good = same_likelihood(here)
    cells = []
    for library in LIBRARIES:
        times = [median([seconds_of(run) for run in here[name]]) for name in _of(library, here) if good[name]]
        cells.append(_seconds(min(times)) if times else _NONE)
    return cells
