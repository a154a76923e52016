"""RESULTS.md and the README's summary, made from the stored results alone."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING, Any

from harness.aims import aims_of
from harness.cells import table
from harness.processes import ROOT
from harness.sections import SECTIONS
from harness.store import Store
from harness.summary import HEADS, summary_rows
from harness.tables import TABLES, TITLES

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from harness.aims import Aim

__all__ = ["load_stores", "render", "write_readme", "write_report"]

NOTES = ROOT / "benchmarks" / "notes.toml"
BEGIN, END = "<!-- benchmark: made by `make bench` -->", "<!-- end of benchmark -->"
_SHOWN = ("graphmatern", "numpy", "scipy", "torch", "numba", "scikit-learn", "gpytorch", "geometric-kernels", "gpflow",
          "tensorflow", "gpjax", "numpyro", "jax", "cvxopt", "pypardiso", "mkl", "pyamg")  # fmt: skip


def load_stores(folder: Path) -> dict[str, Store]:
    """Results of all sections that have any."""
    stores = {section: Store(folder / "results", section) for section in SECTIONS}
    return {section: store for section, store in stores.items() if store.records}


def write_report(folder: Path) -> Path:
    """Make the plots and RESULTS.md from the stored results."""
    from harness.plots import draw

    stores = load_stores(folder)
    folder.mkdir(parents=True, exist_ok=True)
    plots = draw(stores, folder / "plots")
    notes = tomllib.loads(NOTES.read_text(encoding="utf-8"))
    target = folder / "RESULTS.md"
    target.write_text(render(stores, notes, plots), encoding="utf-8")
    return target


def write_readme(folder: Path, readme: Path) -> Path:
    """Replace the summary between the marks of the README."""
    text = readme.read_text(encoding="utf-8")
    if BEGIN not in text or END not in text:
        raise ValueError(f"README.md lacks the lines {BEGIN!r} and {END!r} between which the summary belongs")
    before, rest = text.split(BEGIN)
    after = rest.split(END)[1]
    lines = [BEGIN, *table(HEADS, summary_rows(load_stores(folder)))]
    readme.write_text(before + "\n".join(lines) + "\n" + END + after, encoding="utf-8")
    return readme


def render(stores: dict[str, Store], notes: dict[str, Any], plots: Sequence[str] = ()) -> str:
    """The whole report."""
    lines = ["# The benchmark", "", *_machine(stores)]
    for place, (section, store) in enumerate(stores.items(), 1):
        title = f"{place}. {TITLES[section]}"
        lines += ["", f"## {title}", ""]
        if words := notes.get("sections", {}).get(section):
            lines += [words.strip(), ""]
        lines += TABLES[section](store)
        failures = _failures(store)
        if failures:
            lines += ["", "Without a (further) figure:", "", *failures]
        if f"{section}.png" in plots:
            lines += ["", f"![{title}](plots/{section}.png)"]
    lines += _not_reached(aims_of(stores), notes.get("aims", {}))
    return "\n".join([*lines, "", *_versions(stores)]) + "\n"


def _not_reached(aims: Sequence[Aim], reasons: dict[str, str]) -> list[str]:
    """What falls short of its aim, and why."""
    short = [aim for aim in aims if aim.found is not None and not aim.reached]
    if not short:
        return []
    lines = ["", "## Not reached", ""]
    for aim in short:
        reason = " ".join(reasons.get(aim.name, "the reason is still to be found.").split())
        detail = f" ({aim.detail})" if aim.detail else ""
        word = "at most" if aim.at_most else "at least"
        lines.append(f"- {aim.text}: {aim.found:.3g}, where {word} {aim.aim:.3g} was the aim{detail}. Why: {reason}")
    return lines


# ---------------------------------------------------------------------- pieces
def _machine(stores: dict[str, Store]) -> list[str]:
    if not stores:
        return ["Nothing has been measured yet."]
    machines = [store.machine for store in stores.values()]
    first = machines[0]
    dates = sorted({machine["date"] for machine in machines})
    modes = sorted({machine["mode"] for machine in machines})
    minutes = sum(machine.get("minutes", 0.0) for machine in machines)
    words = (
        f"Made by `make bench` ({', '.join(modes)}) from `results/*.json`; do not edit. {' and '.join(dates)}, "
        f"{first['cores']} cores of {first['processor']}, {first['memory_gib']} GiB, {first['system']}, "
        f"Python {first['python']}. {minutes:.0f} minutes of measurements."
    )
    manner = (
        "Every run has a process of its own and all cores; repeats are interleaved. Figures are medians, in brackets "
        "the least and the largest. Memory is the peak of the process, libraries included. "
        f"A run may take {first['limit_seconds']:g} s."
    )
    lines = [words, "", manner]
    if "quick" in modes:
        lines += ["", "**Tiny sizes, to see that it works: these figures mean nothing.**"]
    return lines


def _failures(store: Store) -> list[str]:
    found = []
    for record in store.records.values():
        if record.get("failure"):
            case = ", ".join(f"{name} {value}" for name, value in record["case"].items() if name != "peer")
            found.append(f"- {record['case']['peer']} ({case}): {record['failure']}")
    return sorted(found)


def _versions(stores: dict[str, Store]) -> list[str]:
    merged: dict[str, dict[str, str] | str] = {}
    for store in stores.values():
        merged |= store.machine.get("versions", {})
    lines = ["## Versions", ""]
    for name, versions in sorted(merged.items()):
        if isinstance(versions, str):
            lines.append(f"- {name}: {versions}")
            continue
        lower = {package.lower().replace("_", "-"): version for package, version in versions.items()}
        shown = [f"{package} {lower[package]}" for package in _SHOWN if package in lower]
        lines.append(f"- {name}: {', '.join(shown)}")
    return lines
