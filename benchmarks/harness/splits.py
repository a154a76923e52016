"""Classifiers next to ours, split by split: only where both have finished, first fits with first, later with later."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import mean, median
from typing import TYPE_CHECKING, Any

from harness.task import OURS

if TYPE_CHECKING:
    from harness.store import Store

__all__ = ["ACCURACY", "SPREADING", "Comparison", "compared", "our_form", "splits_of"]

ACCURACY = 0.01  # how far below ours an accuracy counts as equal
SPREADING = "label spreading"  # no Gaussian process: nothing is learned, nothing is calibrated

Run = dict[str, Any]


@dataclass(frozen=True)
class Comparison:
    """A peer and ours on the splits that both finish; ratios are medians of theirs / ours over these."""

    peer: str
    tried: int
    finished: int
    shared: int
    accuracy: float | None
    our_accuracy: float | None
    first: float | None
    later: float | None

    @property
    def equal(self) -> bool:
        """Whether it is as accurate as ours, on the same splits."""
        if self.accuracy is None or self.our_accuracy is None:
            return False
        return self.accuracy >= self.our_accuracy - ACCURACY

    @property
    def outcome(self) -> str:
        """How many splits it finished."""
        failed = self.tried - self.finished
        return f"{failed} of {self.tried} splits failed" if failed else f"{self.tried} of {self.tried}"


def splits_of(store: Store) -> dict[str, dict[int, Run | None]]:
    """The first run of every peer on every split; None where it failed."""
    found: dict[str, dict[int, Run | None]] = {}
    for record in store.records.values():
        runs = record["runs"]
        found.setdefault(record["case"]["peer"], {})[record["case"]["seed"]] = runs[0] if runs else None
    return found


def our_form(store: Store) -> str | None:
    """The quickest of our forms that finish every split and are as accurate as the best of them."""
    ours = {}
    for peer, splits in splits_of(store).items():
        runs = [run for run in splits.values() if run is not None]
        if peer.startswith(OURS) and len(runs) == len(splits):
            ours[peer] = mean(run["accuracy"] for run in runs), median(later_of(run) or run["fits"][0] for run in runs)
    if not ours:
        return None
    best = max(accuracy for accuracy, _ in ours.values())
    return min((peer for peer in ours if ours[peer][0] >= best - ACCURACY), key=lambda peer: ours[peer][1])


def later_of(run: Run) -> float | None:
    """Seconds of a fit that is not the first of its process."""
    return float(median(run["fits"][1:])) if len(run["fits"]) > 1 else None


def compared(store: Store) -> list[Comparison]:
    """Every peer next to `our_form`."""
    splits = splits_of(store)
    chosen = our_form(store)
    ours = splits.get(chosen, {}) if chosen else {}
    found = []
    for peer, own in splits.items():
        if peer.startswith(OURS):
            continue
        pairs = [(run, other) for seed, run in own.items() if run is not None and (other := ours.get(seed)) is not None]
        first = [run["fits"][0] / other["fits"][0] for run, other in pairs]
        later = [a / b for run, other in pairs if (a := later_of(run)) is not None and (b := later_of(other))]
        found.append(
            Comparison(
                peer,
                len(own),
                sum(run is not None for run in own.values()),
                len(pairs),
                mean(run["accuracy"] for run, _ in pairs) if pairs else None,
                mean(other["accuracy"] for _, other in pairs) if pairs else None,
                median(first) if first else None,
                median(later) if later else None,
            )
        )
    return found
