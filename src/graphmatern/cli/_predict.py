"""Predictions of a fitted model in a file and on a map."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from graphmatern.cli._checks import Checks
from graphmatern.cli._console import writing
from graphmatern.cli._reading import limited_threads
from graphmatern.io import check_output, check_target, replacing, write_node_table
from graphmatern.metrics import half_width
from graphmatern.plotting import known_positions

if TYPE_CHECKING:
    from pathlib import Path

    from graphmatern.cli._console import Console

__all__ = ["check_wishes", "is_classifier", "predictions", "run_predict", "write_outputs"]

_PICTURES = (".png", ".pdf", ".svg")


def is_classifier(model: Any) -> bool:
    """Whether a model predicts classes."""
    return hasattr(model, "predict_proba")


def predictions(model: Any, level: float) -> pd.DataFrame:
    """Predictions at every node, in a table indexed by node name.

    Parameters
    ----------
    model : GraphGPRegressor or GraphGPClassifier
        The fitted model.
    level : float
        Probability of the intervals.

    Returns
    -------
    DataFrame
        As ``predict_table`` gives it; for counts with exposures the probability of a relative risk above 1, and the
        relative risk where it is not the prediction itself; then whether the node has a value of its own, and its
        position where known.
    """
    table = model.predict_table() if is_classifier(model) else model.predict_table(level)
    if not is_classifier(model) and model._data.exposure is not None:
        risks = model.risk_table(level=level)
        if risks.attrs["reference"] != 1.0:
            table[["relative_risk", "relative_lower", "relative_upper"]] = risks[["mean", "lower", "upper"]]
        table["above_1"] = risks["above"]
    table["observed"] = np.isin(np.arange(model.graph.n_nodes), model._data.nodes)
    positions = known_positions(model.graph)
    if positions is not None:
        for name, column in zip("xyz", positions.T, strict=False):
            table[name] = column
    return pd.DataFrame(table)


def check_wishes(checks: Checks, model: Path | None, out: Path | None, plot: Path | None, level: float) -> None:
    """Note what cannot be written before any work is done."""
    with checks.collecting():
        half_width(level)
    if out is not None:
        with checks.collecting():
            check_output(out)
    if plot is not None and plot.suffix.lower() not in _PICTURES:
        checks.add("plot", f"must end in {', '.join(_PICTURES)}", repr(plot.name), "The ending chooses the format.")
    for path in (model, out, plot):
        if path is not None:
            with checks.collecting(), writing(path):
                check_target(path)


def draw(model: Any, path: Path, name: str) -> None:
    """Draw a map of the predictions and of their uncertainty; of counts with exposures, the relative risks."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    if not is_classifier(model) and model._data.exposure is not None:
        axes = model.plot_risks()
    else:
        axes = model.plot() if is_classifier(model) else model.plot(unit=name)
    figure = axes[0].figure
    try:
        with writing(path), replacing(path) as temporary:
            figure.savefig(temporary, format=path.suffix.lower()[1:], dpi=150)
    finally:
        plt.close(figure)


def write_outputs(
    model: Any,
    out: Path | None,
    plot: Path | None,
    level: float,
    console: Console,
    name: str = "",
    *,
    lines: bool = False,
) -> None:
    """Write the table and the map that were asked for, and say so."""
    if out is not None:
        table = predictions(model, level)
        with writing(out):
            write_node_table(table, out, model.graph, lines=lines)
        along = lines and out.suffix.lower() == ".geojson"
        where = f"along {len(model.graph.edges):,} edges" if along else f"at {len(table):,} nodes"
        console.say(f"{out}: predictions {where}")
        console.result["predictions"] = str(out)
    if plot is not None:
        draw(model, plot, name)
        console.say(f"{plot}: map")
        console.result["plot"] = str(plot)


def run_predict(
    path: Path,
    out: Path | None,
    plot: Path | None,
    level: float,
    lines: bool,
    n_threads: int | None,
    console: Console,
) -> None:
    """Predict from a model file; see the command's help for the options."""
    from graphmatern.estimators import load

    checks = Checks("nothing was predicted")
    check_wishes(checks, None, out, plot, level)
    if out is None and plot is None:
        remedy = "Use --out predictions.csv or --plot map.png."
        checks.add("output", "must be given: say what to write", "nothing", remedy)
    checks.files((path, "model"))
    checks.raise_if_any()
    with console.listening(), console.steps(2) as begin, limited_threads(n_threads):
        begin("reading the model")
        model = load(path)
        begin("predicting")
        write_outputs(model, out, plot, level, console, lines=lines)
    console.result |= {"model": str(path), "nodes": model.graph.n_nodes, "classifier": is_classifier(model)}
    console.finish()
