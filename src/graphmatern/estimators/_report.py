"""Contents of an estimator's page: its values, its texts and its checks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy.special import ndtr

from graphmatern.estimators._report_layers import class_layers, number_layers
from graphmatern.estimators._report_words import (
    common_content,
    fitted_facts,
    parameter_rows,
    precision_figure,
    quality_figures,
    stamp,
    warnings_of,
)
from graphmatern.inference import tempered
from graphmatern.likelihoods import Counts
from graphmatern.metrics import half_width
from graphmatern.report import Content, class_checks, counted, number, number_checks, percent, range_check

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = ["classes_content", "field_content", "regression_content"]

_SCORES = (-3.0, -2.0, -1.3, -0.65, 0.0, 0.65, 1.3, 2.0, 3.0)  # of quantiles from which the page interpolates
_CELLS = 4_000_000  # times × nodes of a page: more would make it slow to open
_CHECKED = 5_000  # cells of a field at most that are left out


def _observed_means(nodes: NDArray[np.int64], values: Floats, n_nodes: int) -> Floats:
    """Mean of the values at each node, NaN where there are none; shape (n_nodes,)."""
    count = np.bincount(nodes, minlength=n_nodes)
    total = np.bincount(nodes, values, minlength=n_nodes)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def regression_content(model: Any, *, title: str | None, level: float, options: dict[str, Any]) -> Content:
    """The page of a regression, of its first replicate."""
    graph, unit = model.graph, options.get("unit", "")
    common = common_content(model, options)
    table = model.predict_table(level)
    data = model._data
    seen = ~np.isnan(data.y[:, 0])
    nodes, y = data.nodes[seen], data.y[seen, 0]
    counts = isinstance(model.likelihood_, Counts)
    rate = y if data.exposure is None else y / data.exposure[seen]
    loo = model.loo()
    loo = loo[loo["replicate"] == 0]
    expected = loo["mean"].to_numpy()
    exposure = 1.0 if data.exposure is None else data.exposure[seen]
    arrays: dict[str, Any] = {
        "mean": table["mean"].to_numpy(),
        "std": table["std"].to_numpy(),
        "observed": _observed_means(nodes, rate, graph.n_nodes),
        "residual": _observed_means(nodes, (y - expected) / exposure, graph.n_nodes),
        "informed": model.informed_,
    }
    scores: list[float] = []
    if not model._fit.likelihood.gaussian or model._fit.integrated is not None:
        arrays |= {"lower": table["lower"].to_numpy(), "upper": table["upper"].to_numpy()}
        scores = list(_SCORES)
        every = np.arange(graph.n_nodes)
        found = [
            model.posterior_.quantile(every, float(ndtr(z)), observation=False, offset=model._level) for z in scores
        ]
        arrays["quantiles"] = np.concatenate([model.y_mean_ + model.y_scale_ * one for one in found])
    what = "observed rate" if data.exposure is not None else "observed"
    if model._fit.likelihood.gaussian:
        row = model.hyperparameters_.index
        noise = "Gaussian; the table below says how much." if "noise" in row else "Gaussian, as given."
    else:
        noise = f"{model.likelihood_!r}"
    places = len(np.unique(nodes))
    words = f"{counted(len(y), 'observation')} at {places:,} of {counted(graph.n_nodes, 'node')}"
    if data.y.shape[1] > 1:
        words += f" (the first of {data.y.shape[1]} replicates)"
    own = unit if data.exposure is None else ""  # of counts with exposures, the unit is that of the rate
    words += f", from {number(float(y.min()))} to {number(float(y.max()), own)}; mean {number(float(y.mean()), own)}."
    half = 0.5 * float(np.median(table["upper"] - table["lower"]))
    figures = [
        {"label": "nodes predicted", "value": f"{graph.n_nodes:,}", "note": f"from {places:,} observed"},
        precision_figure(half, unit, level),
        *quality_figures(y / exposure, expected / exposure, unit),
    ]
    checks = number_checks(loo["pit"].to_numpy(), level)
    checks["range"] = range_check(model.kernel_, graph, normalized=model.normalized_, unit=common["length_unit"])
    facts = fitted_facts(model, words, common, noise)
    if counts or len(model._covariates.names) > 1:
        pairs = [
            f"{name} {number(row['mean'])} ± {number(row['sd'], digits=2)}"
            for name, row in model.coefficients_.iterrows()
        ]
        facts.insert(3, ("Mean", f"{'on the logarithmic scale: ' if counts else ''}{', '.join(pairs)}."))
    return Content(
        kind="numbers",
        title=title or f"Predictions at {counted(graph.n_nodes, 'node')}",
        subtitle=f"From {words[0].lower()}{words[1:]}",
        layers=number_layers(model, arrays, unit, what),
        arrays=arrays,
        level=level,
        scores=scores,
        threshold=None if data.exposure is None else model._reference_rate(),
        logarithmic=counts,
        figures=figures,
        facts=facts,
        parameters=parameter_rows(model, unit, common["length_unit"]),
        checks=checks,
        warnings=warnings_of(model, "observations"),
        **common,
    )


# ---------------------------------------------------------------------- classes
def classes_content(model: Any, *, title: str | None, level: float, options: dict[str, Any]) -> Content:
    """The page of a classification."""
    graph = model.graph
    common = common_content(model, options)
    share = model._shares(np.arange(graph.n_nodes))
    names = [str(one) for one in model.classes_.tolist()]
    count = len(names)
    entropy = -np.sum(share * np.log(np.maximum(share, np.finfo(float).tiny)), axis=1) / np.log(count)
    observed = np.full(graph.n_nodes, np.nan)
    observed[model._data.nodes] = model._data.codes
    arrays: dict[str, Any] = {
        "label": share.argmax(axis=1).astype(np.float64),
        "probability": share.max(axis=1),
        "entropy": entropy,
        "observed": observed,
        "shares": share.T.ravel(),
        "informed": model.informed_,
    }
    layers = class_layers(names, arrays, share)
    labelled = len(np.unique(model._data.nodes))
    codes = np.bincount(model._data.codes, minlength=count)
    listed = ", ".join(f"{name} {n:,}" for name, n in zip(names, codes.tolist(), strict=True))
    words = f"{len(model._data.nodes):,} labels at {labelled:,} of {graph.n_nodes:,} nodes: {listed}."
    left_out = tempered(model.posterior_.left_out_classes(), model.temperature_)
    right = float((left_out.argmax(axis=1) == model._data.codes).mean())
    figures = [
        {"label": "nodes classified", "value": f"{graph.n_nodes:,}", "note": f"from {labelled:,} labels"},
        {"label": "classes", "value": f"{count}", "note": ""},
        {"label": "right when left out", "value": f"{percent(right)}", "note": "each label predicted from the others"},
        {
            "label": "sure of its class",
            "value": f"{percent(float((share.max(axis=1) > 0.9).mean()))}",
            "note": "of nodes: more than 90 % probable",
        },
    ]
    checks = class_checks(model._data.codes, left_out)
    checks["range"] = range_check(model.kernel_, graph, normalized=model.normalized_, unit=common["length_unit"])
    return Content(
        kind="classes",
        title=title or f"Classes of {counted(graph.n_nodes, 'node')}",
        subtitle=f"From {words}",
        layers=layers,
        arrays=arrays,
        level=level,
        classes=names,
        figures=figures,
        facts=fitted_facts(model, words, common, f"{model.likelihood_!r}"),
        parameters=parameter_rows(model, "", common["length_unit"]),
        checks=checks,
        warnings=warnings_of(model, "labels"),
        **common,
    )


# ---------------------------------------------------------------------- fields over time
def field_content(model: Any, *, title: str | None, level: float, options: dict[str, Any]) -> Content:
    """The page of a field over time, at the times that were observed."""
    graph, unit = model.graph, options.get("unit", "")
    common = common_content(model, options)
    most = max(2, _CELLS // graph.n_nodes)
    chosen = np.arange(len(model.times_))
    notes = ""
    if len(chosen) > most:
        chosen = np.unique(np.linspace(0, len(chosen) - 1, most).astype(int))
        notes = f"{len(chosen):,} of {len(model.times_):,} times are shown."
    times = model.times_[chosen]
    mean, std = (one.to_numpy() for one in model.predict_grid(times=times, return_std=True))
    y = model._data.y
    observed = np.full(mean.shape, np.nan)
    observed[:, model._data.nodes] = y[chosen]
    residual = np.full(mean.shape, np.nan)
    loo = model.loo(n_cells=_CHECKED)
    row = pd.Index(times).get_indexer(pd.Index(loo["time"]))
    kept = row >= 0
    residual[row[kept], graph.locate(loo["node"])[kept]] = (loo["y"] - loo["mean"])[kept]
    arrays: dict[str, Any] = {
        "mean": mean,
        "std": std,
        "observed": observed,
        "residual": residual,
        "informed": model.informed_,
    }
    cells = int((~np.isnan(y)).sum())
    first, last = stamp(model.times_[0]), stamp(model.times_[-1])
    words = (
        f"{cells:,} observations at {len(model.nodes_):,} of {graph.n_nodes:,} nodes and {len(model.times_):,} times, "
        f"from {first} to {last}; {percent(float(np.isnan(y).mean()))} of that table is missing."
    )
    half = half_width(level) * float(np.median(std))
    figures = [
        {"label": "nodes predicted", "value": f"{graph.n_nodes:,}", "note": f"from {len(model.nodes_):,} observed"},
        {"label": "times", "value": f"{len(model.times_):,}", "note": f"{first} to {last}"},
        precision_figure(half, unit, level),
        *quality_figures(loo["y"].to_numpy(), loo["mean"].to_numpy(), unit),
    ]
    checks = number_checks(loo["pit"].to_numpy(), level)
    checks["range"] = range_check(model.kernel_, graph, normalized=model._fit.normalized, unit=common["length_unit"])
    facts = fitted_facts(model, words, common, "Gaussian; the table below says how much.")
    facts.insert(3, ("Over time", f"{model.posterior_.mode.time.describe()}."))
    numbers = model._axis.numbers(times)
    return Content(
        kind="numbers",
        title=title or f"A field over {len(model.times_):,} times at {graph.n_nodes:,} nodes",
        subtitle=f"From {words}",
        layers=number_layers(model, arrays, unit, "observed"),
        arrays=arrays,
        level=level,
        times=([float(one) for one in numbers], [stamp(one) for one in times]),
        figures=figures,
        facts=facts,
        parameters=parameter_rows(model, unit, common["length_unit"]),
        checks=checks,
        warnings=warnings_of(model, "observations"),
        notes=notes,
        **common,
    )
