"""Medians with their spread, growth with the size, and what growth promises for larger sizes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Summary", "exponent", "largest_within", "predicted", "summarise"]


@dataclass(frozen=True)
class Summary:
    """Median of some figures, and the least and the largest of them."""

    median: float
    least: float
    largest: float
    count: int


def summarise(values: Sequence[float]) -> Summary | None:
    """Summary of figures; None where there are none."""
    kept = [value for value in values if math.isfinite(value)]
    if not kept:
        return None
    return Summary(median(kept), min(kept), max(kept), len(kept))


def exponent(points: Sequence[tuple[float, float]]) -> float | None:
    """Slope of log cost against log size, by least squares; None with fewer than two sizes."""
    logs = [(math.log(size), math.log(cost)) for size, cost in points if cost > 0.0]
    if len({x for x, _ in logs}) < 2:
        return None
    middle_x = sum(x for x, _ in logs) / len(logs)
    middle_y = sum(y for _, y in logs) / len(logs)
    return sum((x - middle_x) * (y - middle_y) for x, y in logs) / sum((x - middle_x) ** 2 for x, _ in logs)


def _last_slope(points: Sequence[tuple[float, float]]) -> tuple[float, float, float] | None:
    """Largest size, its cost, and the slope from the size before it, at least 1 and at most 3."""
    ordered = sorted(points)
    slope = exponent(ordered[-2:])
    if slope is None:
        return None
    return *ordered[-1], min(max(slope, 1.0), 3.0)


def predicted(points: Sequence[tuple[float, float]], size: float) -> float | None:
    """Cost at a size, continued from the two largest sizes that were measured."""
    last = _last_slope(points)
    if last is None:
        return None
    largest, cost, slope = last
    return cost * math.exp(slope * math.log(size / largest))


def largest_within(points: Sequence[tuple[float, float]], limit: float) -> float | None:
    """Size whose cost is ``limit``, continued from the two largest sizes that were measured."""
    last = _last_slope(points)
    if last is None:
        return None
    largest, cost, slope = last
    return largest * math.exp(math.log(limit / cost) / slope)
