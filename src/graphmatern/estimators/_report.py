"""What an estimator's page says: its values, its words and its checks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy.special import ndtr

from graphmatern.inference import tempered
from graphmatern.likelihoods import Counts
from graphmatern.metrics import half_width
from graphmatern.plotting import UNSURE, colour_limits, find_layout
from graphmatern.report import (
    Content,
    Layer,
    class_checks,
    counted,
    number,
    number_checks,
    percent,
    range_check,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from graphmatern.estimators._base import GraphEstimator
    from graphmatern.graph import Graph

    Floats = NDArray[np.float64]

__all__ = ["classes_content", "field_content", "regression_content"]

_SCORES = (-3.0, -2.0, -1.3, -0.65, 0.0, 0.65, 1.3, 2.0, 3.0)  # of quantiles from which the page interpolates
_CELLS = 4_000_000  # times × nodes of a page: more would make it slow to open
_CHECKED = 5_000  # cells of a field at most that are left out
_SHOWN_CLASSES = 12  # whose probabilities have a layer of their own
_MEANINGS = {
    "sigma": "how much the values vary from place to place (standard deviation)",
    "noise": "how much a single observation is off (standard deviation)",
    "lengthscale": "how far similarity reaches, in edges",
    "range": "distance after which hardly any correlation is left",
    "mixing": "share of the variation that neighbours have in common",
    "nu": "how smooth the values are along the edges",
    "time.lengthscale": "for how long values stay similar",
    "df": "how heavy the tails of the noise are (degrees of freedom)",
    "dispersion": "how much counts vary beyond chance",
    "scale": "how much a single observation is off",
}


# ---------------------------------------------------------------------- words for every model
def _graph_words(graph: Graph, unit: str) -> str:
    parts = graph.n_components
    words = f"{counted(graph.n_nodes, 'node')} and {counted(graph.n_edges, 'edge')}"
    words += ", connected" if parts == 1 else f", in {parts:,} parts that are not connected"
    if graph.has_lengths and graph.n_edges:
        words += f"; an edge is {number(float(graph.edges['length'].mean()), unit)} long on average"
    return f"{words}."


def _search_words(model: GraphEstimator) -> str:
    fit = model._fit
    if fit.integrated is not None:
        return (
            f"Parameters were integrated over ({len(fit.integrated.components)} points around the best), so intervals "
            "include what is not known about them."
        )
    state = "converged" if fit.converged else "stopped early"
    steps = counted(fit.optimum.n_evaluations, "evaluation")
    return f"The most likely parameters were used; the search {state} after {steps}."


def _parameters(model: GraphEstimator, unit: str, length_unit: str) -> list[dict[str, str]]:
    """Rows of the table of parameters."""
    rows = []
    unknown = "kept" if model._fit_options["optimizer"] is None else "not known"
    for name, row in model.hyperparameters_.iterrows():
        word = str(name).rpartition(".")[2]
        own = unit if word in ("sigma", "noise", "scale") and model._unit != 1.0 else ""
        own = length_unit if word == "range" else own
        ends = [float(row["2.5%"]), float(row["97.5%"])]
        known = np.isfinite(ends).all()
        rows.append(
            {
                "name": str(name),
                "meaning": _MEANINGS.get(str(name), _MEANINGS.get(word, "")),
                "value": number(float(row["50%"] if known else row["mode"]), own),
                "interval": f"{number(ends[0])} to {number(ends[1], own)}" if known else unknown,
            }
        )
    return rows


def _warnings(model: GraphEstimator, unit_of_data: str) -> list[str]:
    found = []
    if not model._fit.converged:
        found.append("The search for the parameters stopped early; results may not be final.")
    if model._fit.at_bounds:
        found.append(f"At the edge of the allowed range: {', '.join(model._fit.at_bounds)}.")
    lost = float(model._fit.report.get("prior_loss_share", 0.0))
    if lost > 0.1:
        found.append(
            f"The eigenpairs used lose up to {percent(lost)} of the variance: predictions far from the data are "
            "overconfident."
        )
    blank = int((~model.informed_).sum())
    if blank:
        found.append(
            f"No {unit_of_data} reach {blank:,} of the nodes: they are in parts of the graph without any and "
            "show the prior."
        )
    return found


def _length_unit(graph: Graph, given: str | None) -> str:
    """The unit of lengths: as given, or metres where longitudes and latitudes agree with that."""
    if given is not None:
        return given
    layout = find_layout(graph)
    if not (layout.is_degrees and graph.has_lengths):
        return ""
    rows = graph.edges
    steps = (layout.places[graph.locate(rows["source"])] - layout.places[graph.locate(rows["target"])]) * 111_195.0
    straight = np.hypot(steps[:, 0] / layout.aspect, steps[:, 1])
    known = straight > 0
    if not known.any():
        return ""
    return "m" if 0.9 < float(np.quantile(rows["length"].to_numpy()[known] / straight[known], 0.1)) < 1.1 else ""


def _observed_means(nodes: NDArray[np.int64], values: Floats, n_nodes: int) -> Floats:
    """Mean of the values at each node, NaN where there are none; shape (n_nodes,)."""
    count = np.bincount(nodes, minlength=n_nodes)
    total = np.bincount(nodes, values, minlength=n_nodes)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def _common(model: GraphEstimator, options: dict[str, Any]) -> dict[str, Any]:
    """What every page has."""
    areas = options.get("areas")
    graph = model.graph if areas is None else model.graph.with_areas(areas)
    return {
        "graph": graph,
        "unit": options.get("unit", ""),
        "length_unit": _length_unit(graph, options.get("length_unit")),
    }


def _fitted_facts(model: Any, data: str, common: dict[str, Any], noise: str) -> list[tuple[str, str]]:
    return [
        ("Data", data),
        ("Graph", _graph_words(model.graph, common["length_unit"])),
        (
            "Model",
            (
                "A Gaussian process on the graph: the fewer edges lie between two nodes, the more alike they are. "
                f"Kernel {model.kernel_!r}."
            ),
        ),
        ("Noise", noise),
        ("Computed by", f"the {model.engine_} engine: {model.engine_reason_}."),
        ("Parameters", _search_words(model)),
    ]


# ---------------------------------------------------------------------- numbers
def _number_layers(model: Any, arrays: dict[str, Any], unit: str, observed: str) -> list[Layer]:
    """Layers of a prediction of numbers, at one time or at several; the colours are those of the model's pictures."""
    std, informed, limits = arrays["std"], model.informed_, model._limits()
    unsure = colour_limits(std[..., informed] if informed.any() else std, 0.0, 0.98)
    layers = [
        Layer(
            "mean",
            "Prediction",
            "predicted mean",
            "The mean of what is known about each place, given all observations.",
            "mean",
            limits=limits,
            unit=unit,
        ),
        Layer(
            "std",
            "Uncertainty",
            "± standard deviation",
            "How far off the prediction may be: the paler, the less certain.",
            "std",
            colours=UNSURE,
            limits=unsure,
            unit=unit,
        ),
        Layer(
            "exceedance",
            "Exceedance",
            "probability",
            "The probability that the value lies beyond the threshold; move the slider.",
            kind="share",
            colours=("plasma", "plasma"),
        ),
        Layer(
            "observed",
            "Observed",
            observed,
            "What was observed, in the colours of the prediction.",
            "observed",
            limits=limits,
            unit=unit,
            missing="not observed",
        ),
    ]
    residual = arrays.get("residual")
    if residual is not None and np.isfinite(residual).any():
        size = float(np.nanquantile(np.abs(residual), 0.98)) or 1.0
        layers.append(
            Layer(
                "residual",
                "Residual",
                "observed minus predicted by the others",
                "How far each observation lies from what all the others predict for it. Clusters of one colour are "
                "places that the model does not understand.",
                "residual",
                colours=("PuOr_r", "PuOr_r"),
                limits=(-size, size),
                unit=unit,
                missing="not observed",
            )
        )
    return layers


def _quality(y: Floats, predicted: Floats, unit: str) -> list[dict[str, str]]:
    """Figures on values that were left out."""
    known = np.isfinite(y) & np.isfinite(predicted)
    if known.sum() < 8:
        return []
    y, off = y[known], (y - predicted)[known]
    error = float(np.sqrt(np.mean(off**2)))
    found = [{"label": "typical error", "value": number(error, unit, 2), "note": "of values left out (RMSE)"}]
    total = float(((y - y.mean()) ** 2).sum())
    if total > 0:
        share = 1.0 - float((off**2).sum()) / total
        found.append(
            {"label": "of the variation explained", "value": f"{percent(share)}", "note": "in values left out (R²)"}
        )
    return found


def regression_content(model: Any, *, title: str | None, level: float, options: dict[str, Any]) -> Content:
    """The page of a regression, of its first replicate."""
    graph, unit = model.graph, options.get("unit", "")
    common = _common(model, options)
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
        {
            "label": "typical precision",
            "value": f"± {number(half, unit, 2)}",
            "note": f"half of a {percent(level)} interval",
        },
        *_quality(y / exposure, expected / exposure, unit),
    ]
    checks = number_checks(loo["pit"].to_numpy(), level)
    checks["range"] = range_check(model.kernel_, graph, normalized=model.normalized_, unit=common["length_unit"])
    facts = _fitted_facts(model, words, common, noise)
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
        layers=_number_layers(model, arrays, unit, what),
        arrays=arrays,
        level=level,
        scores=scores,
        threshold=None if data.exposure is None else model._reference_rate(),
        logarithmic=counts,
        figures=figures,
        facts=facts,
        parameters=_parameters(model, unit, common["length_unit"]),
        checks=checks,
        warnings=_warnings(model, "observations"),
        **common,
    )


# ---------------------------------------------------------------------- classes
def classes_content(model: Any, *, title: str | None, level: float, options: dict[str, Any]) -> Content:
    """The page of a classification."""
    graph = model.graph
    common = _common(model, options)
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
    layers = [
        Layer(
            "label",
            "Class",
            "most probable class",
            "The class that is most probable at each node.",
            "label",
            "classes",
            classes=names,
        ),
        Layer(
            "entropy",
            "Uncertainty",
            "uncertainty",
            "The entropy of the probabilities, as a share of the most there can be: pale nodes could be anything.",
            "entropy",
            "share",
            colours=UNSURE,
        ),
        Layer(
            "observed",
            "Labelled",
            "given label",
            "The labels from which all others were learned.",
            "observed",
            "classes",
            classes=names,
            missing="no label",
        ),
    ]
    for k, name in enumerate(names[:_SHOWN_CLASSES]):
        key = f"share.{k}"
        arrays[key] = share[:, k]
        words = f"How probable {name} is at each node."
        layers.append(
            Layer(
                key,
                f"Probability of {name}",
                f"probability of {name}",
                words,
                key,
                "share",
                colours=("cividis", "cividis"),
            )
        )
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
        facts=_fitted_facts(model, words, common, f"{model.likelihood_!r}"),
        parameters=_parameters(model, "", common["length_unit"]),
        checks=checks,
        warnings=_warnings(model, "labels"),
        **common,
    )


# ---------------------------------------------------------------------- fields over time
def field_content(model: Any, *, title: str | None, level: float, options: dict[str, Any]) -> Content:
    """The page of a field over time, at the times that were observed."""
    graph, unit = model.graph, options.get("unit", "")
    common = _common(model, options)
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
    first, last = _stamp(model.times_[0]), _stamp(model.times_[-1])
    words = (
        f"{cells:,} observations at {len(model.nodes_):,} of {graph.n_nodes:,} nodes and {len(model.times_):,} times, "
        f"from {first} to {last}; {percent(float(np.isnan(y).mean()))} of that table is missing."
    )
    half = half_width(level) * float(np.median(std))
    figures = [
        {"label": "nodes predicted", "value": f"{graph.n_nodes:,}", "note": f"from {len(model.nodes_):,} observed"},
        {"label": "times", "value": f"{len(model.times_):,}", "note": f"{first} to {last}"},
        {
            "label": "typical precision",
            "value": f"± {number(half, unit, 2)}",
            "note": f"half of a {percent(level)} interval",
        },
        *_quality(loo["y"].to_numpy(), loo["mean"].to_numpy(), unit),
    ]
    checks = number_checks(loo["pit"].to_numpy(), level)
    checks["range"] = range_check(model.kernel_, graph, normalized=model._fit.normalized, unit=common["length_unit"])
    facts = _fitted_facts(model, words, common, "Gaussian; the table below says how much.")
    facts.insert(3, ("Over time", f"{model.posterior_.mode.time.describe()}."))
    numbers = model._axis.numbers(times)
    return Content(
        kind="numbers",
        title=title or f"A field over {len(model.times_):,} times at {graph.n_nodes:,} nodes",
        subtitle=f"From {words}",
        layers=_number_layers(model, arrays, unit, "observed"),
        arrays=arrays,
        level=level,
        times=([float(one) for one in numbers], [_stamp(one) for one in times]),
        figures=figures,
        facts=facts,
        parameters=_parameters(model, unit, common["length_unit"]),
        checks=checks,
        warnings=_warnings(model, "observations"),
        notes=notes,
        **common,
    )


def _stamp(time: Any) -> str:
    """A time in words."""
    if isinstance(time, pd.Timestamp):
        return f"{time:%Y-%m-%d}" if time == time.normalize() else f"{time:%Y-%m-%d %H:%M}"
    return number(float(time), digits=6) if isinstance(time, int | float | np.number) else str(time)
