"""What was to be reached, and how far the results are from it: the closing section of the report."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

from harness.running import seconds_of
from harness.splits import SPREADING, compared, our_form
from harness.statistics import largest_within
from harness.task import OURS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from harness.store import Store

__all__ = ["Aim", "aims_of", "by_peer", "figure", "fit_seconds", "same_likelihood", "series_of"]

NATS = 0.1  # how far from the best marginal likelihood a fit may stay
RECIPE = "the paper's recipe"

_SECONDS = {1_000_000: 3.5, 4_000_000: 15.0}  # of a fit on road-like graphs, by their nodes
_STARTS = {  # seconds of whole processes
    "import, lazily": ("import graphmatern", 0.3),
    "first sparse fit, nothing compiled": ("first Markov fit with an empty compilation cache, whole process", 10.0),
    "command line": ("`graphmatern fit` on traffic, from the start of the process to written files", 2.0),
}


@dataclass(frozen=True)
class Aim:
    """A figure that was to be reached: a ratio that should be large, or seconds that should be few.

    ``found`` is None where nothing was measured.
    """

    name: str
    text: str
    aim: float
    found: float | None
    detail: str = ""
    at_most: bool = False

    @property
    def reached(self) -> bool:
        """Whether it was reached."""
        if self.found is None:
            return False
        return self.found <= self.aim if self.at_most else self.found >= self.aim


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
    rules = {"traffic": _traffic, "cora": _cora, "scaling": _scaling, "start": _start}
    return [aim for section, rule in rules.items() if section in stores for aim in rule(stores[section])]


def _traffic(store: Store) -> list[Aim]:
    peers = by_peer(store)
    good = same_likelihood(peers)
    times = {peer: median([fit_seconds(run) for run in runs]) for peer, runs in peers.items() if good[peer]}
    ours = times.pop(OURS, None)
    text = "traffic fit to the same marginal likelihood: the best peer's seconds / ours"
    if ours is None or not times:
        return [Aim("traffic", text, 10.0, None)]
    best = min(times, key=times.__getitem__)
    return [Aim("traffic", text, 10.0, times[best] / ours, f"{best}: {times[best]:.3f} s; ours: {ours:.3f} s")]


def _cora(store: Store) -> list[Aim]:
    """Ratios on the splits that a peer finishes; later fits where it makes any, else first ones."""
    texts = {
        "cora_recipe": ("Cora fit on the same split: seconds of the paper's recipe / ours", 150.0),
        "cora_peer": ("Cora fit on the same splits, equally accurate there: the best peer's seconds / ours", 10.0),
    }
    chosen = our_form(store)
    ratios: dict[str, tuple[float, str]] = {}
    for one in compared(store):
        ratio = one.first if one.later is None else one.later
        if ratio is None or SPREADING in one.peer:
            continue
        name = "cora_recipe" if RECIPE in one.peer else "cora_peer"
        if name == "cora_peer" and (not one.equal or ratio > ratios.get(name, (ratio, ""))[0]):
            continue
        kind = "first" if one.later is None else "later"
        first = "" if one.later is None else f", {one.first:.3g} between first fits"
        ratios[name] = ratio, f"{one.peer}, {kind} fits{first}; {one.outcome}; next to {chosen}"
    return [
        Aim(name, text, aim, ratios[name][0], ratios[name][1]) if name in ratios else Aim(name, text, aim, None)
        for name, (text, aim) in texts.items()
    ]


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
    for size, cost in ours:
        if (aim := _SECONDS.get(int(size))) is not None:
            words = f"seconds of a fit and all standard deviations on {size:,.0f} road-like nodes"
            found.append(Aim(f"seconds_{size:.0f}", words, aim, cost, at_most=True))
    return found


def _start(store: Store) -> list[Aim]:
    found = []
    for record in store.records.values():
        what = record["case"]["what"]
        if record["case"]["peer"] == OURS and what in _STARTS and record["runs"]:
            text, aim = _STARTS[what]
            name = "start_" + what.split(",")[0].replace(" ", "_")
            found.append(Aim(name, f"{text}: seconds", aim, figure(record["runs"], "wall"), at_most=True))
    return found
