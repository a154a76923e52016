"""The table of every section."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Any

from harness.aims import by_peer, figure, fit_seconds, same_likelihood, series_of
from harness.cells import gigabytes, number, spread, table
from harness.running import seconds_of
from harness.splits import SPREADING, compared, our_form, splits_of
from harness.statistics import exponent, largest_within
from harness.task import OURS
from harness.use_tables import classes, counts, coverage, fractional

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from harness.store import Store

__all__ = ["TABLES", "TITLES"]


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
                spread(fits),
                spread([run["fits"][0] for run in runs]),
                spread(spectra),
                spread([a + b for a, b in zip(fits, spectra, strict=True)]),
                number(figure(runs, "nll"), "{:.2f}") + ("" if good[peer] else ", **short of the best**"),
                number(ratio, "{:.1f}"),
                gigabytes(runs),
            ]
        )
    heads = ["library", "fit, s", "first fit of a process, s", "spectrum, s", "both, s"]
    return table([*heads, "negative log likelihood, nats", "fit / ours", "memory, GB"], rows)


def _cora(store: Store) -> list[str]:
    rows = []
    splits = splits_of(store)
    peers = by_peer(store)
    for peer, runs in sorted(peers.items(), key=lambda item: median([fit_seconds(run) for run in item[1]])):
        mean = {name: sum(run[name] for run in runs) / len(runs) for name in ("accuracy", "log_loss", "calibration")}
        tried = len(splits[peer])
        rows.append(
            [
                peer + (" – not a Gaussian process" if SPREADING in peer else ""),
                str(tried) if len(runs) == tried else f"{len(runs)} of {tried}",
                spread([run["fits"][0] for run in runs]),
                spread([value for run in runs for value in run["fits"][1:]]),
                spread([run["spectrum"] for run in runs]),
                f"{mean['accuracy']:.3f}",
                f"{mean['log_loss']:.3f}",
                f"{mean['calibration']:.3f}",
                number(figure(runs, "elbo"), "{:.1f}"),
                gigabytes(runs),
            ]
        )
    heads = ["library", "splits", "first fit of a process, s", "later fits, s", "spectrum, s", "accuracy", "log loss"]
    lines = table([*heads, "calibration error", "ELBO", "memory, GB"], rows)
    chosen = our_form(store)
    if chosen is None:
        return lines
    return [
        *lines,
        "",
        f"Split by split, next to {chosen}: on the splits that both finish, seconds of the other / ours (median over",
        "splits), and the accuracy of both.",
        "",
        *_split_by_split(store),
    ]


def _split_by_split(store: Store) -> list[str]:
    rows = [
        [one.peer, one.outcome, *(number(ratio) for ratio in (one.first, one.later))]
        + [number(accuracy, "{:.3f}") for accuracy in (one.accuracy, one.our_accuracy)]
        for one in sorted(compared(store), key=lambda one: one.first or 0.0)
    ]
    heads = ["library", "splits", "first fits, theirs / ours", "later fits, theirs / ours", "accuracy"]
    return table([*heads, "ours on the same splits"], rows)


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
    lines += table(["library", *(f"{size:,.0f} nodes" for size in sizes)], rows)
    rows = []
    for peer, points in costs.items():
        upper = [point for point in points if point[0] >= points[-1][0] / 100]
        reach = largest_within(points, limit)
        heavy = [point for point in memory[peer] if point[0] >= 10_000]
        rows.append(
            [
                peer,
                f"{points[-1][0]:,.0f}",
                number(reach, "{:,.0f}"),
                number(exponent(upper), "{:.2f}"),
                number(exponent(heavy), "{:.2f}"),
            ]
        )
    reach_head = f"nodes in {limit:g} s, continued from the two largest"
    heads = ["library", "largest measured", reach_head, "exponent of time", "exponent of memory"]
    lines += [
        "",
        *table(heads, rows),
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
                rows.append([*row, number(run.get("nll"), "{:.2f}"), number(run.get("share"), "{:.0%}")])
    heads = ["nodes", "library", "RMSE", "NLPD", "coverage of 95 % intervals", "negative log likelihood"]
    return table([*heads, "share in factors and selected inverses"], rows)


def _spectrum(store: Store) -> list[str]:
    rows = []
    for record in sorted(store.records.values(), key=lambda r: (r["case"]["nodes"], r["case"]["pairs"])):
        runs = record["runs"]
        if runs:
            row = [f"{record['case']['nodes']:,}", str(record["case"]["pairs"]), record["case"]["peer"]]
            row += [spread([run["seconds"] for run in runs]), f"{figure(runs, 'residual'):.1e}", gigabytes(runs)]
            rows.append(row)
    return table(["nodes", "eigenpairs", "method", "seconds", "largest residual", "memory, GB"], rows)


def _sparse(store: Store) -> list[str]:
    rows = []
    for record in store.records.values():
        case, runs = record["case"], record["runs"]
        if not runs:
            continue
        row = [f"{case['graph']} {case['n']:,}", str(case["nu"]), case["peer"], str(case["threads"])]
        row += [number(figure(runs, name)) for name in ("analysis", "numeric", "solve", "selected")]
        memory, entries = figure(runs, "memory"), figure(runs, "nnz_factor")
        row.append(number(None if memory is None else memory / 1e9, "{:.2f}"))
        row.append(number(None if entries is None else entries / 1e6, "{:.1f}"))
        rows.append([*row, number(figure(runs, "residual"), "{:.0e}")])
    rows.sort(key=lambda row: (row[0], row[1]))
    heads = ["graph, points", "ν", "solver", "threads", "analysis, s", "numeric, s", "solve, s", "selected inverse, s"]
    return table([*heads, "growth of memory, GB", "nnz(L), M", "residual"], rows)


def _throughput(store: Store) -> list[str]:
    rows = []
    for record in store.records.values():
        for run in record["runs"]:
            nodes, paths = record["case"]["nodes"], run["paths"]
            rate = paths / run["sampling"]
            values = [f"{nodes:,}", number(run["predict"]), f"{nodes / run['predict']:.3g}", f"{paths:,}"]
            values += [number(run["sampling"]), f"{rate:.3g}", f"{1000 / rate:.3g}"]
            rows.append([*values, f"{run['mean_z_squared']:.3f}", gigabytes([run])])
    heads = ["nodes", "all means and deviations, s", "nodes/s", "paths drawn", "s", "paths/s", "s for 1,000 paths"]
    return table([*heads, "mean z² of the paths' mean (1 is right)", "memory, GB"], rows)


def _start(store: Store) -> list[str]:
    peers: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for record in store.records.values():
        peers.setdefault(record["case"]["peer"], {})[record["case"]["what"]] = record["runs"]
    rows, others = [], []
    for peer, found in peers.items():
        size = figure(found.get("installed", []), "installed_bytes")
        walls = [spread([run["wall"] for run in found.get(what, [])]) for what in ("import", "first")]
        rows.append([peer, *walls, number(None if size is None else size / 1e9, "{:.2f}")])
        others += [
            f"- {peer}, {what}: {spread([run['wall'] for run in runs])} s"
            for what, runs in found.items()
            if what not in ("import", "first", "installed") and runs
        ]
    heads = ["library", "import, s", "first traffic fit in a new process, s", "installed, GB"]
    return [*table(heads, rows), "", *others]


def _quality(store: Store) -> list[str]:
    rows = []
    for peer, runs in by_peer(store).items():
        row = [peer, str(len(runs))]
        for name, form in (("rmse", "{:.3f}"), ("nlpd", "{:.4f}"), ("coverage", "{:.3f}"), ("nll", "{:.3f}")):
            row.append(form.format(sum(run[name] for run in runs) / len(runs)))
        rows.append(row)
    heads = ["library", "splits", "RMSE, mph", "NLPD", "coverage of 95 % intervals", "negative log likelihood"]
    return table(heads, rows)


def _growth(store: Store) -> list[str]:
    """Our kernels alone: what L is stored in, how much they work in, and how cost grows with the graph."""
    rows = []
    series: dict[tuple[str, int], dict[str, list[tuple[float, float]]]] = {}
    key = lambda r: (r["case"]["graph"], r["case"]["nu"], r["case"]["n"])  # noqa: E731
    for record in sorted(store.records.values(), key=key):
        case, runs = record["case"], record["runs"]
        if not runs:
            continue
        one = {name: figure(runs, name) or 0.0 for name in (*_PARTS, "nnz_factor", "entries", "working", "memory")}
        row = [case["graph"], str(case["nu"]), f"{int(figure(runs, 'nodes') or case['n']):,}"]
        row += [f"{one['nnz_factor'] / 1e6:.2f}", *(number(one[name]) for name in _PARTS)]
        row += [f"{one['entries'] / one['nnz_factor']:.2f}", f"{one['working'] / one['entries']:.2f}"]
        rows.append([*row, f"{one['memory'] / 1e9:.2f}", f"{one['memory'] / (8.0 * one['nnz_factor']):.1f}"])
        for name in (*_PARTS, "memory"):
            points = series.setdefault((case["graph"], case["nu"]), {}).setdefault(name, [])
            points.append((float(case["n"]), one[name]))
    heads = ["graph", "ν", "nodes", "nnz(L), M", "analysis, s", "numeric, s", "solve, s", "selected inverse, s"]
    lines = table([*heads, "panels / nnz(L)", "working / panels", "growth of memory, GB", "memory / factor"], rows)
    slopes = []
    for (graph, nu), parts in series.items():
        found = [(name, exponent([point for point in points if point[0] > 50_000])) for name, points in parts.items()]
        words = ", ".join(f"{_PARTS.get(name, name)} {slope:.2f}" for name, slope in found if slope is not None)
        if words:
            slopes.append(f"- {graph}, ν = {nu}: {words}")
    if slopes:
        lines += ["", "Exponents of growth with the nodes, from 50,000 on:", "", *slopes]
    return lines


_PARTS = {"analysis": "analysis", "numeric": "numeric", "solve": "solve", "selected": "selected inverse"}

TITLES = {
    "traffic": "Traffic: fit to the same marginal likelihood",
    "cora": "Cora: Gaussian processes, split by split",
    "classes": "Classes: defaults on citation-like and nearest-neighbour graphs",
    "counts": "Counts by area: BYM2 next to Markov chains",
    "coverage": "Coverage: 95 % intervals of simulated fields",
    "scaling": "Scaling: fit and all standard deviations on road-like graphs",
    "fractional": "Any smoothness: ν learned on road-like graphs",
    "spectrum": "Spectrum: smallest eigenpairs of road-like graphs",
    "sparse": "Sparse kernels",
    "throughput": "Prediction and sampling",
    "start": "First use: import, first answer, installed size",
    "quality": "Quality: scores on splits of the traffic data, mean",
    "growth": "Sparse kernels against the size",
    "shapes": "Sparse kernels on extreme shapes",
}
TABLES: dict[str, Callable[[Store], list[str]]] = {
    "traffic": _traffic,
    "cora": _cora,
    "classes": classes,
    "counts": counts,
    "coverage": coverage,
    "scaling": _scaling,
    "fractional": fractional,
    "spectrum": _spectrum,
    "sparse": _sparse,
    "throughput": _throughput,
    "start": _start,
    "quality": _quality,
    "growth": _growth,
    "shapes": _growth,
}
