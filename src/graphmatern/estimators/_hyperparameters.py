"""The distribution of the parameters, as a table in the caller's units; and integrated fits in model files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy.special import ndtri

from graphmatern.estimators._ranges import CORRELATION, Ranges, rule_of_thumb
from graphmatern.inference import Component, Integrated, weighted_quantiles
from graphmatern.kernels import current_label, part_named

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from graphmatern.graph import Graph, Spectrum
    from graphmatern.inference import Fit

    Floats = NDArray[np.float64]

__all__ = ["hyperparameter_draws", "hyperparameter_table", "integrated_from_state", "integrated_state", "table_lines"]

_LEVELS = np.array([0.025, 0.5, 0.975])
_STRATA = ndtri((np.arange(200) + 0.5) / 200)  # of a standard normal variable


def hyperparameter_draws(
    fit: Fit, graph: Graph, y_scale: float, spectrum: Spectrum | None = None
) -> tuple[dict[str, Floats], dict[str, float], Floats]:
    """Values of the parameters in the caller's units, those at the mode, and weights of the values.

    Parameters
    ----------
    fit : Fit
        The fit. If nothing was integrated over, values follow from the curvature at the mode, as if logarithms were
        normal.
    graph : Graph
        The graph, for the unit of lengths.
    y_scale : float
        The unit of the normalised values.
    spectrum : Spectrum, optional
        Eigenpairs of the Laplacian in use, from which ranges are measured; without them, a rule of thumb.
    """
    pairs = list(zip(fit.coordinates, fit.optimum.position, strict=True))
    mode = {one.label: float(one.value(np.array([x]))[0]) for one, x in pairs}
    drawn = fit.integrated is not None and bool(fit.integrated.draws)
    if fit.integrated is not None and drawn:
        values, weights = dict(fit.integrated.draws), fit.integrated.weights
    else:
        errors = fit.standard_errors()
        weights = np.full(len(_STRATA), 1.0 / len(_STRATA))
        values = {one.label: np.asarray(one.value(np.asarray(x + errors[one.label] * _STRATA))) for one, x in pairs}
    own: dict[str, float] = getattr(fit.kernel, "values", dict)()
    mode |= {label: own[label] for label in ("nu", "variance") if label in values and label in own}
    if not drawn and "variance" in values and "variance" in own:
        # An engine that moves something else in its stead.
        values["variance"] = own["variance"] * np.exp(errors["variance"] * _STRATA)
    named: dict[str, Floats] = {}
    named_mode: dict[str, float] = {}
    for label, numbers in values.items():
        path, _, word = label.rpartition(".")
        prefix = f"{path}." if path else ""
        here = mode[label]
        of_time = label.startswith("time.")  # a factor without the unit of the values
        if word in ("variance", "noise") and not of_time:
            name = shown_name(label)
            named[name], named_mode[name] = y_scale * np.sqrt(numbers), y_scale * float(np.sqrt(here))
        else:
            unit = y_scale if word == "scale" else 1.0
            named[label], named_mode[label] = unit * numbers, unit * here
        if word == "lengthscale" and graph.has_lengths and not of_time:
            own_words = [f"{prefix}nu", label] if drawn and f"{prefix}nu" in values else [label]
            found = _ranges(fit, graph, path, {one: np.append(values[one], mode[one]) for one in own_words}, spectrum)
            if found is not None:
                named[f"{prefix}range"], named_mode[f"{prefix}range"] = found[:-1], float(found[-1])
    return named, named_mode, weights


def shown_name(label: str) -> str:
    """The name under which users see a parameter: variances of the process are shown as ``sigma``."""
    path, dot, word = label.rpartition(".")
    return f"{path}{dot}sigma" if word == "variance" and not label.startswith("time.") else label


def _ranges(fit: Fit, graph: Graph, path: str, values: dict[str, Floats], spectrum: Spectrum | None) -> Floats | None:
    """Correlation ranges of a term of the kernel, in the unit of the edges; None where nothing is known of them."""
    if spectrum is None:
        return None if fit.normalized else rule_of_thumb(graph, next(reversed(values.values())))
    kernel = part_named(fit.kernel, path)
    known = np.flatnonzero(np.isfinite(np.stack(list(values.values()))).all(axis=0))
    measured = Ranges(graph, spectrum).of(kernel, {label.rpartition(".")[2]: x[known] for label, x in values.items()})
    if measured is None:
        return None
    found = np.full(len(next(iter(values.values()))), np.nan)
    found[known] = measured
    return found


def hyperparameter_table(
    fit: Fit, graph: Graph, y_scale: float = 1.0, spectrum: Spectrum | None = None
) -> pd.DataFrame:
    """Mode, mean, standard deviation and quantiles of every parameter that was learned."""
    values, mode, weights = hyperparameter_draws(fit, graph, y_scale, spectrum)
    rows = {}
    for name, numbers in values.items():
        mean = float(weights @ numbers)
        spread = float(np.sqrt(weights @ (numbers - mean) ** 2))
        low, median, high = weighted_quantiles(numbers, weights, _LEVELS)
        rows[name] = [mode[name], mean, spread, low, median, high]
    columns = ["mode", "mean", "sd", "2.5%", "50%", "97.5%"]
    table = pd.DataFrame.from_dict(rows, orient="index", columns=columns).rename_axis("parameter")
    table.attrs["range"] = "rule of thumb" if spectrum is None else "measured"
    return table


def table_lines(table: pd.DataFrame) -> list[str]:
    """The table as lines of a summary."""
    if table.empty:
        return []
    shown = table[["mode", "mean", "sd", "2.5%", "97.5%"]].map(lambda x: f"{x:.4g}").rename_axis(None)
    lines = ["parameters", *(f"  {line}" for line in shown.to_string().splitlines())]
    if any(name.endswith("range") for name in table.index):
        how = "" if table.attrs["range"] == "measured" else f", by a {table.attrs['range']}"
        lines.append(f"  range: the distance at which correlations have fallen to {CORRELATION:g}{how}")
    return lines


# ---------------------------------------------------------------------- model files
def integrated_state(integrated: Integrated | None) -> dict[str, Any] | None:
    """What is known of the parameters, for a model file."""
    if integrated is None:
        return None
    every = integrated.components
    return {
        "kernels": [one.kernel for one in every],
        "positions": np.stack([one.position for one in every]),
        "weights": np.array([one.weight for one in every]),
        "values": np.array([one.value for one in every]),
        "sites": None if every[0].sites is None else np.stack([np.stack(one.sites or []) for one in every]),
        "draws": dict(integrated.draws),
        "draw_weights": integrated.weights,
        "log_evidence": integrated.log_evidence,
        "effective": integrated.effective,
        "normalized": [one.normalized for one in every],
    }


def integrated_from_state(state: dict[str, Any] | None) -> Integrated | None:
    """Return what `integrated_state` was given, but for the mixture itself."""
    if state is None:
        return None
    components = []
    for place, kernel in enumerate(state["kernels"]):
        sites = None if state["sites"] is None else list(state["sites"][place])
        weight, value = float(state["weights"][place]), float(state["values"][place])
        normalized = state["normalized"][place] if "normalized" in state else None
        components.append(Component(kernel, state["positions"][place], weight, value, sites, normalized))
    draws = {current_label(components[0].kernel, name): values for name, values in state["draws"].items()}
    return Integrated(None, components, draws, state["draw_weights"], state["log_evidence"], state["effective"])
