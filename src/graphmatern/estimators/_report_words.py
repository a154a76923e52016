"""Texts, figures and tables shared by the pages of all estimators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from graphmatern.plotting import find_layout
from graphmatern.report import counted, number, percent

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from graphmatern.estimators._base import GraphEstimator
    from graphmatern.graph import Graph

    Floats = NDArray[np.float64]

__all__ = [
    "common_content",
    "fitted_facts",
    "parameter_rows",
    "precision_figure",
    "quality_figures",
    "stamp",
    "warnings_of",
]

_MEANINGS = {
    "sigma": "how much the values vary from place to place (standard deviation)",
    "noise": "how far off a single observation is (standard deviation)",
    "lengthscale": "how far similarity reaches, in edges",
    "range": "distance beyond which hardly any correlation is left",
    "mixing": "share of the variation that neighbours have in common",
    "nu": "how smooth the values are along the edges",
    "time.lengthscale": "for how long values stay similar",
    "df": "how heavy the tails of the noise are (degrees of freedom)",
    "dispersion": "how much counts vary beyond chance",
    "scale": "how far off a single observation is",
}


def common_content(model: GraphEstimator, options: dict[str, Any]) -> dict[str, Any]:
    """What every page has."""
    areas = options.get("areas")
    graph = model.graph if areas is None else model.graph.with_areas(areas)
    return {
        "graph": graph,
        "unit": options.get("unit", ""),
        "length_unit": _length_unit(graph, options.get("length_unit")),
    }


def fitted_facts(model: Any, data: str, common: dict[str, Any], noise: str) -> list[tuple[str, str]]:
    """What a page says about its fit, each fact with its name."""
    return [
        ("Data", data),
        ("Graph", _graph_words(model.graph, common["length_unit"])),
        (
            "Model",
            (
                "A Gaussian process on the graph: the fewer edges between two nodes, the more alike they are. "
                f"Kernel {model.kernel_!r}."
            ),
        ),
        ("Noise", noise),
        ("Computed by", f"the {model.engine_} engine: {model.engine_reason_}."),
        ("Parameters", _search_words(model)),
    ]


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
            "account for their uncertainty."
        )
    state = "converged" if fit.converged else "stopped early"
    steps = counted(fit.optimum.n_evaluations, "evaluation")
    return f"The most likely parameters were used; the search {state} after {steps}."


def parameter_rows(model: GraphEstimator, unit: str, length_unit: str) -> list[dict[str, str]]:
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


def warnings_of(model: GraphEstimator, unit_of_data: str) -> list[str]:
    """Caveats for the reader of the page."""
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
            f"{blank:,} of the nodes are in parts of the graph without {unit_of_data} and show only the prior."
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


def precision_figure(half: float, unit: str, level: float) -> dict[str, str]:
    """Half the width of a typical interval."""
    note = f"half of a {percent(level)} interval"
    return {"label": "typical precision", "value": f"± {number(half, unit, 2)}", "note": note}


def quality_figures(y: Floats, predicted: Floats, unit: str) -> list[dict[str, str]]:
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


def stamp(time: Any) -> str:
    """A time in words."""
    if isinstance(time, pd.Timestamp):
        return f"{time:%Y-%m-%d}" if time == time.normalize() else f"{time:%Y-%m-%d %H:%M}"
    return number(float(time), digits=6) if isinstance(time, int | float | np.number) else str(time)
