"""Where to measure next, from a model file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from graphmatern._validation import FaultList, abbreviate
from graphmatern.cli._checks import Checks
from graphmatern.cli._console import writing
from graphmatern.cli._predict import check_wishes, is_classifier
from graphmatern.cli._reading import limited_threads
from graphmatern.errors import InputError, TableError
from graphmatern.io import replacing, write_node_table
from graphmatern.tables import NameMatcher, node_column, read_numbers, read_table, value_column

if TYPE_CHECKING:
    from pathlib import Path

    from graphmatern.cli._console import Console
    from graphmatern.graph import Graph

__all__ = ["PlaceOptions", "run_place"]


@dataclass(frozen=True)
class PlaceOptions:
    """What is chosen, and from what."""

    count: int | None
    criterion: str
    candidates: Path | None
    costs: Path | None
    budget: float | None
    existing: Path | None


def read_names(path: Path, graph: Graph) -> tuple[pd.DataFrame, Any, Any]:
    """A table that names nodes, its column of names, and the names as the graph has them."""
    table = read_table(path, TableError)
    faults, matcher = FaultList(f"{path.name} could not be used", TableError), NameMatcher(graph.nodes)
    column = node_column(table, matcher)
    if column is None:
        remedy = f"Nodes of the model are named {abbreviate(graph.nodes[:3].tolist(), graph.n_nodes)}."
        received = f"columns {abbreviate(map(str, table.columns))}"
        raise faults.raise_now("file", "must have a column of node names", received, remedy)
    codes = matcher.codes(table[column])
    if (codes < 0).any():
        unknown = table.loc[codes < 0, column].tolist()
        rule = f"must hold only names of nodes in column {str(column)!r}"
        raise faults.raise_now("file", rule, abbreviate(unknown), "Correct them, or leave these rows out.")
    return table, column, graph.nodes[codes]


def read_costs(path: Path, graph: Graph) -> pd.Series[float]:
    """Costs by node name: the last column of numbers beside the names."""
    table, column, names = read_names(path, graph)
    faults = FaultList(f"{path.name} could not be used", TableError)
    numbers = read_numbers(
        table[value_column(table, [column], faults)], "must be above 0", faults,
        remedy="Every sensor costs something.", minimum=0.0, above=True,
    )  # fmt: skip
    faults.raise_if_any()
    return pd.Series(numbers, index=names)


def run_place(
    path: Path,
    options: PlaceOptions,
    console: Console,
    *,
    out: Path | None,
    plot: Path | None,
    n_threads: int | None,
) -> None:
    """Choose nodes from a model file; see the command's help for the options."""
    from graphmatern.estimators import load

    checks = Checks("nothing was chosen")
    check_wishes(checks, None, out, plot, 0.95)
    if options.count is None and options.budget is None:
        checks.add("number", "must be given: say how many", "nothing", "Use -n 20, or --budget 100.")
    given = ((options.candidates, "table"), (options.costs, "table"), (options.existing, "table"))
    checks.files((path, "model"), *given)
    checks.raise_if_any()
    with console.listening(), console.steps(2) as begin, limited_threads(n_threads):
        begin("reading the model")
        model = load(path)
        begin("choosing")
        table = _suggest(model, options) if is_classifier(model) else _place(model, options)
        _say(table, console)
        if out is not None:
            with writing(out):
                write_node_table(table.set_index("node"), out, model.graph)
            console.say(f"{out}: {len(table)} nodes")
        if plot is not None:
            _draw(model, table, plot)
            console.say(f"{plot}: map")
    console.result |= {"model": str(path), "sensors": table.to_dict("records")}
    console.finish()


def _names(path: Path | None, graph: Graph) -> Any:
    return None if path is None else read_names(path, graph)[2]


def _place(model: Any, options: PlaceOptions) -> pd.DataFrame:
    from graphmatern.design import place_sensors

    candidates = _names(options.candidates, model.graph)
    costs = None if options.costs is None else read_costs(options.costs, model.graph)
    if candidates is None and costs is not None:
        candidates = costs.index
    return place_sensors(
        model,
        options.count,
        criterion=options.criterion,  # type: ignore[arg-type]
        candidates=candidates,
        existing=_names(options.existing, model.graph),
        costs=costs,
        budget=options.budget,
    )


def _suggest(model: Any, options: PlaceOptions) -> pd.DataFrame:
    idle = {"costs": options.costs, "budget": options.budget, "existing": options.existing}
    given = [name for name, value in idle.items() if value is not None]
    if given:
        faults = FaultList("nothing was chosen", InputError)
        raise faults.raise_now(given[0], "must be left out for a classifier", "a value", "All labels cost the same.")
    count = 1 if options.count is None else options.count
    found: pd.DataFrame = model.suggest(count, options.criterion, candidates=_names(options.candidates, model.graph))
    return found


def _say(table: pd.DataFrame, console: Console) -> None:
    """The first few rows, as a person reads them."""
    shown = table.head(10).copy()
    for name in shown.select_dtypes("float").columns:
        shown[name] = shown[name].map("{:.4g}".format)
    console.say(shown.to_string(index=False))
    if len(table) > len(shown):
        console.say(f"... {len(table) - len(shown)} more")
    if "mean_std" in table:
        before, after = table.attrs["mean_std"], float(table["mean_std"].iloc[-1])
        console.say(f"average standard deviation: {before:.4g} before, {after:.4g} after")
        console.result |= {"mean_std_before": before, "max_std_before": table.attrs["max_std"]}


def _draw(model: Any, table: pd.DataFrame, path: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    from graphmatern.plotting import plot_placement

    seen = model.graph.nodes[np.unique(model._data.nodes)]
    figure = plot_placement(model.graph, table, existing=seen)[0].figure
    try:
        with writing(path), replacing(path) as temporary:
            figure.savefig(temporary, format=path.suffix.lower()[1:], dpi=150)
    finally:
        plt.close(figure)
