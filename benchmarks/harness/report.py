"""RESULTS.md and the README's summary, made from the stored results alone."""

from __future__ import annotations

import tomllib
from statistics import median
from typing import TYPE_CHECKING, Any

from harness.aims import SPREADING, aims_of, by_peer, figure, fit_seconds, same_likelihood, series_of
from harness.processes import ROOT
from harness.running import seconds_of
from harness.sections import OURS, SECTIONS
from harness.statistics import exponent, largest_within, summarise
from harness.store import Store
from harness.summary import LIBRARIES, summary_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from harness.aims import Aim

__all__ = ["load_stores", "render", "write_readme", "write_report"]

NOTES = ROOT / "benchmarks" / "notes.toml"
BEGIN, END = "<!-- benchmark: made by `make bench` -->", "<!-- end of benchmark -->"
_SHOWN = ("graphmatern", "numpy", "scipy", "torch", "numba", "scikit-learn", "gpytorch", "geometric-kernels", "gpflow",
          "tensorflow", "gpjax", "jax", "cvxopt", "pypardiso", "mkl", "pyamg")  # fmt: skip


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
    lines = [BEGIN, *_table(["to fit", *LIBRARIES], summary_rows(load_stores(folder)))]
    readme.write_text(before + "\n".join(lines) + "\n" + END + after, encoding="utf-8")
    return readme


def render(stores: dict[str, Store], notes: dict[str, Any], plots: Sequence[str] = ()) -> str:
    """The whole report."""
    lines = ["# The benchmark", "", *_machine(stores), "", "## Aims", ""]
    aims = aims_of(stores)
    lines += _aims_table(aims)
    reasons = notes.get("aims", {})
    for aim in aims:
        if aim.found is not None and not aim.reached:
            reason = reasons.get(aim.name, "the reason is still to be found")
            lines += ["", f"**Not reached: {aim.text}**, because {reason.strip()}"]
    for section, store in stores.items():
        lines += ["", f"## {_TITLES[section]}", ""]
        if words := notes.get("sections", {}).get(section):
            lines += [words.strip(), ""]
        lines += _TABLES[section](store)
        failures = _failures(store)
        if failures:
            lines += ["", "Without a (further) figure:", "", *failures]
        if f"{section}.png" in plots:
            lines += ["", f"![{_TITLES[section]}](plots/{section}.png)"]
    return "\n".join([*lines, "", *_versions(stores)]) + "\n"


# ---------------------------------------------------------------------- pieces
def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = ["| " + " | ".join(row) + " |" for row in (heads, *rows)]
    return [lines[0], "|---" * len(heads) + "|", *lines[1:]]


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


def _aims_table(aims: Sequence[Aim]) -> list[str]:
    rows = []
    for aim in aims:
        form = "{:.0%}" if aim.aim < 1.0 else "{:.3g}"
        found = "not measured" if aim.found is None else form.format(aim.found)
        verdict = "reached" if aim.reached else "not measured" if aim.found is None else "not reached"
        rows.append([aim.text, found, form.format(aim.aim), verdict, aim.detail])
    return _table(["ours against the best of the others", "found", "aim", "", "details"], rows)


def _number(value: float | None, form: str = "{:.3g}") -> str:
    return "–" if value is None else form.format(value)


def _spread(values: Sequence[float], form: str = "{:.3g}") -> str:
    summary = summarise(values)
    if summary is None:
        return "–"
    middle = form.format(summary.median)
    if summary.count == 1:
        return middle
    return f"{middle} ({form.format(summary.least)}–{form.format(summary.largest)})"


def _gigabytes(runs: Sequence[dict[str, Any]]) -> str:
    return _spread([run["peak_bytes"] / 1e9 for run in runs if "peak_bytes" in run][:1], "{:.2f}")


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


# ---------------------------------------------------------------------- sections
def _traffic(store: Store) -> list[str]:
    peers = by_peer(store)
    good = same_likelihood(peers)
    ours = peers.get(OURS)
    rows = []
    for peer, runs in sorted(peers.items(), key=lambda item: median([fit_seconds(run) for run in item[1]])):
        fits, spectra = [fit_seconds(run) for run in runs], [run["spectrum"] for run in runs]
        ratio = None if not ours else median(fits) / median([fit_seconds(run) for run in ours])
        rows.append(
            [
                peer,
                _spread(fits),
                _spread([run["fits"][0] for run in runs]),
                _spread(spectra),
                _spread([a + b for a, b in zip(fits, spectra, strict=True)]),
                _number(figure(runs, "nll"), "{:.2f}") + ("" if good[peer] else ", **short of the best**"),
                _number(ratio, "{:.1f}"),
                _gigabytes(runs),
            ]
        )
    heads = ["library", "fit, s", "first fit of a process, s", "spectrum, s", "both, s"]
    return _table([*heads, "negative log likelihood, nats", "fit / ours", "memory, GB"], rows)


def _cora(store: Store) -> list[str]:
    rows = []
    peers = by_peer(store)
    for peer, runs in sorted(peers.items(), key=lambda item: median([fit_seconds(run) for run in item[1]])):
        mean = {name: sum(run[name] for run in runs) / len(runs) for name in ("accuracy", "log_loss", "calibration")}
        rows.append(
            [
                peer + (" – not a Gaussian process" if SPREADING in peer else ""),
                str(len(runs)),
                _spread([fit_seconds(run) for run in runs]),
                _spread([run["spectrum"] for run in runs]),
                f"{mean['accuracy']:.3f}",
                f"{mean['log_loss']:.3f}",
                f"{mean['calibration']:.3f}",
                _number(figure(runs, "elbo"), "{:.1f}"),
                _gigabytes(runs),
            ]
        )
    heads = ["library", "splits", "fit, s", "spectrum, s", "accuracy", "log loss", "calibration error", "ELBO"]
    return _table([*heads, "memory, GB"], rows)


def _scaling(store: Store) -> list[str]:
    limit = float(store.machine["limit_seconds"])
    costs = series_of(store, seconds_of)
    memory = series_of(store, lambda run: run["peak_bytes"] / 1e9)
    sizes = sorted({size for points in costs.values() for size, _ in points})
    lines = ["Seconds from the weights to all standard deviations (peak memory, GB):", ""]
    rows = []
    for peer, points in costs.items():
        known, held = dict(points), dict(memory[peer])
        rows.append([peer, *(f"{known[n]:.3g} ({held[n]:.2f})" if n in known else "–" for n in sizes)])
    lines += _table(["library", *(f"{size:,.0f} nodes" for size in sizes)], rows)
    rows = []
    for peer, points in costs.items():
        upper = [point for point in points if point[0] >= points[-1][0] / 100]
        reach = largest_within(points, limit)
        heavy = [point for point in memory[peer] if point[0] >= 10_000]
        rows.append(
            [
                peer,
                f"{points[-1][0]:,.0f}",
                _number(reach, "{:,.0f}"),
                _number(exponent(upper), "{:.2f}"),
                _number(exponent(heavy), "{:.2f}"),
            ]
        )
    reach_head = f"nodes in {limit:g} s, continued from the two largest"
    heads = ["library", "largest measured", reach_head, "exponent of time", "exponent of memory"]
    lines += [
        "",
        *_table(heads, rows),
        "",
        "Quality on the same graphs, against the true field at the nodes that were not observed:",
        "",
    ]
    return [*lines, *_scaling_quality(store, sizes)]


def _scaling_quality(store: Store, sizes: Sequence[float]) -> list[str]:
    rows = []
    for size in sizes:
        for record in store.records.values():
            if record["case"]["nodes"] == size and record["runs"]:
                run = record["runs"][0]
                row = [f"{size:,.0f}", record["case"]["peer"]]
                row += [f"{run[name]:.4f}" for name in ("rmse", "nlpd", "coverage")]
                rows.append([*row, _number(run.get("nll"), "{:.2f}"), _number(run.get("share"), "{:.0%}")])
    heads = ["nodes", "library", "RMSE", "NLPD", "coverage of 95 % intervals", "negative log likelihood"]
    return _table([*heads, "share in factors and selected inverses"], rows)


def _spectrum(store: Store) -> list[str]:
    rows = []
    for record in sorted(store.records.values(), key=lambda r: (r["case"]["nodes"], r["case"]["pairs"])):
        runs = record["runs"]
        if runs:
            row = [f"{record['case']['nodes']:,}", str(record["case"]["pairs"]), record["case"]["peer"]]
            row += [_spread([run["seconds"] for run in runs]), f"{figure(runs, 'residual'):.1e}", _gigabytes(runs)]
            rows.append(row)
    return _table(["nodes", "eigenpairs", "method", "seconds", "largest residual", "memory, GB"], rows)


def _sparse(store: Store) -> list[str]:
    rows = []
    for record in store.records.values():
        case, runs = record["case"], record["runs"]
        if not runs:
            continue
        row = [f"{case['graph']} {case['n']:,}", str(case["nu"]), case["peer"], str(case["threads"])]
        row += [_number(figure(runs, name)) for name in ("analysis", "numeric", "solve", "selected")]
        memory, entries = figure(runs, "memory"), figure(runs, "nnz_factor")
        row.append(_number(None if memory is None else memory / 1e9, "{:.2f}"))
        row.append(_number(None if entries is None else entries / 1e6, "{:.1f}"))
        rows.append([*row, _number(figure(runs, "residual"), "{:.0e}")])
    rows.sort(key=lambda row: (row[0], row[1]))
    heads = ["graph, points", "ν", "solver", "threads", "analysis, s", "numeric, s", "solve, s", "selected inverse, s"]
    return _table([*heads, "growth of memory, GB", "nnz(L), M", "residual"], rows)


def _throughput(store: Store) -> list[str]:
    rows = []
    for record in store.records.values():
        for run in record["runs"]:
            nodes, paths = record["case"]["nodes"], run["paths"]
            rate = paths / run["sampling"]
            values = [f"{nodes:,}", _number(run["predict"]), f"{nodes / run['predict']:.3g}", f"{paths:,}"]
            values += [_number(run["sampling"]), f"{rate:.3g}", f"{1000 / rate:.3g}"]
            rows.append([*values, f"{run['mean_z_squared']:.3f}", _gigabytes([run])])
    heads = ["nodes", "all means and deviations, s", "nodes/s", "paths drawn", "s", "paths/s", "s for 1,000 paths"]
    return _table([*heads, "mean z² of the paths' mean (1 is right)", "memory, GB"], rows)


def _start(store: Store) -> list[str]:
    peers: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for record in store.records.values():
        peers.setdefault(record["case"]["peer"], {})[record["case"]["what"]] = record["runs"]
    rows, others = [], []
    for peer, found in peers.items():
        size = figure(found.get("installed", []), "installed_bytes")
        walls = [_spread([run["wall"] for run in found.get(what, [])]) for what in ("import", "first")]
        rows.append([peer, *walls, _number(None if size is None else size / 1e9, "{:.2f}")])
        others += [
            f"- {peer}, {what}: {_spread([run['wall'] for run in runs])} s"
            for what, runs in found.items()
            if what not in ("import", "first", "installed") and runs
        ]
    heads = ["library", "import, s", "first traffic fit in a new process, s", "installed, GB"]
    return [*_table(heads, rows), "", *others]


def _quality(store: Store) -> list[str]:
    rows = []
    for peer, runs in by_peer(store).items():
        row = [peer, str(len(runs))]
        for name, form in (("rmse", "{:.3f}"), ("nlpd", "{:.4f}"), ("coverage", "{:.3f}"), ("nll", "{:.3f}")):
            row.append(form.format(sum(run[name] for run in runs) / len(runs)))
        rows.append(row)
    heads = ["library", "splits", "RMSE, mph", "NLPD", "coverage of 95 % intervals", "negative log likelihood"]
    return _table(heads, rows)


_TITLES = {
    "traffic": "1. Traffic: fit to the same marginal likelihood",
    "cora": "2. Cora: fit to the same accuracy",
    "scaling": "3. Scaling: fit and all standard deviations on road-like graphs",
    "spectrum": "4. Spectrum: smallest eigenpairs of road-like graphs",
    "sparse": "5. Sparse kernels",
    "throughput": "6. Prediction and sampling",
    "start": "7. Import, first answer, installed size",
    "quality": "8. Quality: scores on splits of the traffic data, mean",
    "growth": "Sparse kernels against the size",
    "shapes": "Sparse kernels on extreme shapes",
}
_TABLES: dict[str, Callable[[Store], list[str]]] = {
    "traffic": _traffic,
    "cora": _cora,
    "scaling": _scaling,
    "spectrum": _spectrum,
    "sparse": _sparse,
    "throughput": _throughput,
    "start": _start,
    "quality": _quality,
    "growth": _sparse,
    "shapes": _sparse,
}
