"""Tables and their cells, as Markdown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from harness.statistics import summarise

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["gigabytes", "number", "spread", "table"]


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = ["| " + " | ".join(row) + " |" for row in (heads, *rows)]
    return [lines[0], "|---" * len(heads) + "|", *lines[1:]]


def number(value: float | None, form: str = "{:.3g}") -> str:
    return "–" if value is None else form.format(value)


def spread(values: Sequence[float], form: str = "{:.3g}") -> str:
    summary = summarise(values)
    if summary is None:
        return "–"
    middle = form.format(summary.median)
    if summary.count == 1:
        return middle
    return f"{middle} ({form.format(summary.least)}–{form.format(summary.largest)})"


def gigabytes(runs: Sequence[dict[str, Any]]) -> str:
    return spread([run["peak_bytes"] / 1e9 for run in runs if "peak_bytes" in run][:1], "{:.2f}")
