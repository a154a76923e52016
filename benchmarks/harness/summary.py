"""What the README shows of the results: seconds and quality next to what people use today, on their kind of graph."""

from __future__ import annotations

from statistics import mean, median
from typing import TYPE_CHECKING, Any

from harness.aims import by_peer, figure, fit_seconds, same_likelihood
from harness.running import seconds_of
from harness.splits import compared, our_form, splits_of
from harness.task import OURS
from harness.use_tables import grouped

if TYPE_CHECKING:
    from collections.abc import Mapping

    from harness.store import Store

__all__ = ["HEADS", "summary_rows"]

HEADS = ("your graph", OURS, "next to")
LIBRARIES = ("GeometricKernels", "GPflow", "GPJax", "scikit-learn")
_SIZES = (10_000, 1_000_000)
_NONE = "–"


def summary_rows(stores: Mapping[str, Store]) -> list[list[str]]:
    """A row for every use: what it is, ours, and the others with theirs, the quickest first."""
    makers = {
        "traffic": _traffic,
        "scaling": _scaling,
        "fractional": _fractional,
        "coverage": _coverage,
        "cora": _cora,
        "classes": _classes,
        "counts": _counts,
    }
    rows = [row for section, maker in makers.items() if section in stores for row in maker(stores[section])]
    return [row for row in rows if row[1] != _NONE]


def _seconds(value: float) -> str:
    return f"{value:.2g} s" if value < 10.0 else f"{value:.0f} s"


def _percent(share: float | None) -> str:
    return _NONE if share is None else f"{100.0 * share:.0f} %"


def _joined(others: Mapping[str, tuple[float, str]]) -> str:
    """Others in order of the number that comes first, each with its words."""
    ordered = sorted(others.items(), key=lambda item: item[1][0])
    return "; ".join(f"{name} {words}" for name, (_, words) in ordered) or _NONE


def _quickest(times: Mapping[str, float]) -> tuple[str, str]:
    """Our time, and every library's best variant."""
    others = {}
    for library in LIBRARIES:
        own = [value for name, value in times.items() if name.startswith(library)]
        if own:
            others[library] = (min(own), _seconds(min(own)))
    return _seconds(times[OURS]) if OURS in times else _NONE, _joined(others)


def _traffic(store: Store) -> list[list[str]]:
    """Eigenpairs and fit, of fits that reach the best likelihood."""
    peers = by_peer(store)
    good = same_likelihood(peers)
    times = {
        name: median([fit_seconds(run) for run in runs]) + (figure(runs, "spectrum") or 0.0)
        for name, runs in peers.items()
        if good[name]
    }
    return [["roads with sensors: San Jose, 1,016 nodes, 250 sensors", *_quickest(times)]]


def _exact(peers: Mapping[str, list[dict[str, Any]]]) -> tuple[str, str]:
    """Seconds of those that reach the best likelihood."""
    measured = {name: runs for name, runs in peers.items() if runs}
    good = same_likelihood(measured)
    return _quickest({name: median(map(seconds_of, runs)) for name, runs in measured.items() if good[name]})


def _scaling(store: Store) -> list[list[str]]:
    groups = grouped(store, "nodes")
    return [[f"roads, {n:,} nodes, a tenth observed, exactly", *_exact(groups[n,])] for n in _SIZES if (n,) in groups]


def _fractional(store: Store) -> list[list[str]]:
    """The largest graph on which another library has finished."""
    found = []
    for (nu, nodes), peers in grouped(store, "nu", "nodes").items():
        if any(runs for name, runs in peers.items() if name != OURS):
            found.append((nodes, nu, _exact(peers)))
    return [[f"roads, {nodes:,} nodes, smoothness learned, exactly", *cells] for nodes, _, cells in sorted(found)[-1:]]


def _coverage(store: Store) -> list[list[str]]:
    """Shares inside 95 % intervals, for all numbers of sensors; who is nearest to 95 % with the fewest comes first."""
    counts: list[str] = []
    shares: dict[str, list[float]] = {}
    for (observed,), peers in sorted(grouped(store, "observed").items()):
        if not peers.get(OURS):
            continue
        counts.append(str(observed))
        for name, runs in peers.items():
            library = next((one for one in (*LIBRARIES, OURS) if name.startswith(one)), None)
            if runs and library is not None and (library != OURS or name == OURS):
                shares.setdefault(library, []).append(mean(runs[0]["shares"]))
    if not counts:
        return []
    words = {name: ", ".join(f"{100.0 * one:.0f}" for one in own) + " %" for name, own in shares.items()}
    complete = {name: own for name, own in shares.items() if len(own) == len(counts) and name != OURS}
    others = {name: (abs(own[0] - 0.95), words[name]) for name, own in complete.items()}
    return [[f"truth inside 95 % intervals, {', '.join(counts)} sensors", words[OURS], _joined(others)]]


def _cora(store: Store) -> list[list[str]]:
    """First fits of a process, on the splits that a library finishes; ours on the same where these are not all."""
    chosen, splits = our_form(store), splits_of(store)
    if chosen is None:
        return []

    def words(peer: str) -> tuple[float, str]:
        runs = [run for run in splits[peer].values() if run is not None]
        seconds = median([run["fits"][0] + run["spectrum"] for run in runs])
        return seconds, f"{_seconds(seconds)}, {_percent(mean(run['accuracy'] for run in runs))} right"

    others: dict[str, tuple[float, str]] = {}
    for one in compared(store):
        library = next((name for name in LIBRARIES if one.peer.startswith(name)), None)
        if library is None or not one.shared:
            continue
        seconds, text = words(one.peer)
        if one.finished < one.tried:
            text += f" ({one.outcome}; ours on the others: {_percent(one.our_accuracy)})"
        others[library] = min(others.get(library, (seconds, text)), (seconds, text))
    name = "citations: Cora, 2,485 papers, 140 labels, Gaussian processes, first fit of a process"
    return [[name, words(chosen)[1], _joined(others)]]


_METHODS = {
    "scikit-learn, label spreading": "label spreading",
    "scikit-learn, nearest labels": "nearest labels",
    "graph convolutions (torch)": "graph convolutions",
}


def _classes(store: Store) -> list[list[str]]:
    """Time, accuracy and calibration error of defaults."""
    names = {"Cora": "citations: Cora", "points": "embeddings"}
    rows = []
    groups = grouped(store, "data")
    for data, title in names.items():
        peers = {name: runs for name, runs in groups.get((data,), {}).items() if runs}
        if OURS not in peers:
            continue
        cells = {}
        for name, runs in peers.items():
            seconds = median(map(seconds_of, runs))
            accuracy, error = (mean(run[key] for run in runs) for key in ("accuracy", "calibration"))
            cells[name] = seconds, f"{_seconds(seconds)}, {_percent(accuracy)} right, off by {_percent(error)}"
        size = peers[OURS][0]
        what = f"{title}, {size['nodes']:,} nodes, {size['labels']} labels, defaults (off by: calibration error)"
        others = {short: cells[name] for name, short in _METHODS.items() if name in cells}
        rows.append([what, cells[OURS][1], _joined(others)])
    return rows


def _counts(store: Store) -> list[list[str]]:
    """First fits of a process, compilation included, on both sides; of the largest map."""
    rows: list[list[str]] = []
    for (data, areas), peers in sorted(grouped(store, "data", "areas").items(), key=lambda item: item[0][1]):
        times = {name: median(map(seconds_of, runs)) for name, runs in peers.items() if runs}
        if OURS in times:
            others = {f"{name}:": (value, _seconds(value)) for name, value in times.items() if name != OURS}
            rows.append([f"counts by area: {data}, {areas:,} areas, BYM2", _seconds(times[OURS]), _joined(others)])
    return rows[-1:]
