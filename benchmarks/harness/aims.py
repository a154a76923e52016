"""The aims of the benchmark, and how far the results reach."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

from harness.running import seconds_of
from harness.sections import OURS
from harness.statistics import largest_within

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from harness.store import Store

__all__ = ["Aim", "aims_of", "by_peer", "figure", "fit_seconds", "same_likelihood", "series_of"]

NATS = 0.1  # how far from the best marginal likelihood a fit may stay
ACCURACY = 0.01  # how far below ours an accuracy counts as equal
SPREADING = "label spreading"  # no Gaussian process: nothing is learned, nothing is calibrated

_MILLION = 1_000_000


@dataclass(frozen=True)
class Aim:
    """A ratio (or share) with the figure it was to reach; ``found`` is None where nothing was measured."""

    name: str
    text: str
    aim: float
    found: float | None
    detail: str = ""

    @property
    def reached(self) -> bool:
        """Whether it was reached."""
        return self.found is not None and self.found >= self.aim


def by_peer(store: Store) -> dict[str, list[dict[str, Any]]]:
    """Runs of all cases of every peer that has any."""
    found: dict[str, list[dict[str, Any]]] = {}
    for record in store.records.values():
        if record["runs"]:
            found.setdefault(record["case"]["peer"], []).extend(record["runs"])
    return found


def figure(runs: list[dict[str, Any]], name: str) -> float | None:
    """Median of one figure."""
    values = [run[name] for run in runs if run.get(name) is not None]
    return median(values) if values else None


def fit_seconds(run: dict[str, Any]) -> float:
    """Seconds of a fit that is not the first of its process, where there was a second one."""
    return float(median(run["fits"][1:] or run["fits"]))


def same_likelihood(peers: Mapping[str, list[dict[str, Any]]]) -> dict[str, bool]:
    """Whether a peer's fit is within a tenth of a nat of the best one."""
    losses = {peer: figure(runs, "nll") for peer, runs in peers.items()}
    best = min((loss for loss in losses.values() if loss is not None), default=0.0)
    return {peer: loss is not None and loss <= best + NATS for peer, loss in losses.items()}


def series_of(store: Store, value: Callable[[dict[str, Any]], float]) -> dict[str, list[tuple[float, float]]]:
    """Median cost against the number of nodes, for every peer."""
    found: dict[str, list[tuple[float, float]]] = {}
    for record in store.records.values():
        if record["runs"]:
            point = (float(record["case"]["nodes"]), median([value(run) for run in record["runs"]]))
            found.setdefault(record["case"]["peer"], []).append(point)
    return {peer: sorted(points) for peer, points in found.items()}


def aims_of(stores: Mapping[str, Store]) -> list[Aim]:
    """All aims for which there are results."""
    rules = {"traffic": _traffic, "cora": _cora, "scaling": _scaling}
    return [aim for section, rule in rules.items() if section in stores for aim in rule(stores[section])]


def _traffic(store: Store) -> list[Aim]:
    peers = by_peer(store)
    good = same_likelihood(peers)
    times = {peer: median([fit_seconds(run) for run in runs]) for peer, runs in peers.items() if good[peer]}
    ours = times.pop(OURS, None)
    text = "traffic fit to the same marginal likelihood: the best peer's seconds / ours"
    if ours is None or not times:
        return [Aim("traffic", text, 20.0, None)]
    best = min(times, key=times.__getitem__)
    found = [Aim("traffic", text, 20.0, times[best] / ours, f"{best}: {times[best]:.3f} s; ours: {ours:.3f} s")]
    adam = next((peer for peer in peers if "Adam" in peer), None)
    if adam is not None:
        seconds = median([fit_seconds(run) for run in peers[adam]])
        words = "traffic fit: seconds of GeometricKernels with 200 Adam steps / ours"
        found.append(Aim("traffic_adam", words, 20.0, seconds / ours, f"{seconds:.3f} s; ours: {ours:.3f} s"))
    return found


def _cora(store: Store) -> list[Aim]:
    peers = by_peer(store)
    times = {peer: median([fit_seconds(run) for run in runs]) for peer, runs in peers.items()}
    accuracy = {peer: sum(run["accuracy"] for run in runs) / len(runs) for peer, runs in peers.items()}
    ours = [peer for peer in peers if peer.startswith(OURS)]
    recipe_text = "Cora fit: seconds of the paper's recipe / ours"
    peer_text = "Cora fit to the same accuracy: the best Gaussian-process peer's seconds / ours"
    if not ours:
        return [Aim("cora_recipe", recipe_text, 100.0, None), Aim("cora_peer", peer_text, 10.0, None)]
    best_accuracy = max(accuracy[peer] for peer in ours)
    chosen = min((p for p in ours if accuracy[p] >= best_accuracy - ACCURACY), key=times.__getitem__)
    recipe = next((peer for peer in peers if "recipe" in peer), None)
    ratio = None if recipe is None else times[recipe] / times[chosen]
    found = [Aim("cora_recipe", recipe_text, 100.0, ratio, f"{chosen}: {times[chosen]:.2f} s")]
    others = [p for p in peers if p not in ours and p != recipe and SPREADING not in p]
    equal = [p for p in others if accuracy[p] >= accuracy[chosen] - ACCURACY]
    if not equal:
        words = "no Gaussian-process peer but the paper's recipe is as accurate" if others else ""
        return [*found, Aim("cora_peer", peer_text, 10.0, ratio if others else None, words)]
    best = min(equal, key=times.__getitem__)
    words = f"{best}: {times[best]:.2f} s"
    return [*found, Aim("cora_peer", peer_text, 10.0, times[best] / times[chosen], words)]


def _scaling(store: Store) -> list[Aim]:
    limit = float(store.machine.get("limit_seconds", 300.0))
    costs = series_of(store, seconds_of)
    text = f"largest graph fitted within {limit / 60.0:g} minutes: our nodes / the best peer's"
    ours = costs.pop(OURS, [])
    reach = {peer: largest_within(points, limit) or points[-1][0] for peer, points in costs.items()}
    own = max((size for size, cost in ours if cost <= limit), default=None)
    found = []
    if own is None or not reach:
        found.append(Aim("scaling", text, 20.0, None))
    else:
        best = max(reach, key=reach.__getitem__)
        words = f"{best}: {reach[best]:,.0f}, continued from its two largest graphs; ours: {own:,.0f}, measured"
        found.append(Aim("scaling", text, 20.0, own / reach[best], words))
    ours_measured = [record for record in store.records.values() if _is_ours(record)]
    # The aim is about a million nodes; where fewer were tried, about the most of them.
    largest = max((one for one in ours_measured if _nodes(one) <= _MILLION), key=_nodes, default=None)
    if largest is not None:
        share = figure(largest["runs"], "share")
        words = "share of the time in numeric factorisations and selected inverses"
        found.append(Aim("share", words, 0.7, share, f"{_nodes(largest):,} nodes"))
    return found


def _is_ours(record: dict[str, Any]) -> bool:
    return bool(record["runs"]) and record["case"]["peer"] == OURS


def _nodes(record: dict[str, Any]) -> int:
    return int(record["case"]["nodes"])
