"""Commands and their options; their code is imported when they run, so that help is quick."""

from __future__ import annotations

import gc
import sys
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated

import typer

from graphmatern.cli._checks import Command, checking
from graphmatern.cli._console import EXIT_CODES, check_folder, reported
from graphmatern.cli._help import FIT, INFO, PLACE, PREDICT, REPORT
from graphmatern.cli._options import (
    AreaName,
    Areas,
    ConsoleOptions,
    GraphFile,
    GraphOptions,
    LengthUnit,
    Level,
    Lines,
    ModelFile,
    ModelOptions,
    Plot,
    Threads,
    Title,
    Unit,
    ValueOptions,
    underscored,
)
from graphmatern.cli._spread import spread

__all__ = ["app", "main"]

app = typer.Typer(
    name="graphmatern",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    epilog=EXIT_CODES,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from graphmatern import __version__

        typer.echo(f"graphmatern {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Gaussian processes on the nodes of a graph."""


@app.command(cls=Command)
@reported
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the pictures.")] = Path("demo"),
    seed: Annotated[int, typer.Option(min=0, help="Seed of the city and of the labels.")] = 0,
) -> None:
    """Try the library on a generated city and handwritten digits.

    Example: graphmatern demo --out demo
    """
    check_folder(out)
    from graphmatern.cli._demo import run_demo

    run_demo(out, seed)


@app.command(cls=Command)
@reported
def reproduce(
    targets: Annotated[list[str], typer.Argument(help="table1, figure1 … figure8, or all.")],
    repeats: Annotated[int, typer.Option(min=1, help="Random splits per cell of Table 1.")] = 10,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the first split.")] = 0,
    out: Annotated[Path, typer.Option(help="Folder for the results; finished work is kept.")] = Path("results"),
    quick: Annotated[bool, typer.Option("--quick", help="A trial run, not comparable with the paper.")] = False,
    recipe: Annotated[
        str, typer.Option(help="fast (ours), or paper: its optimiser and steps, which take hours.")
    ] = "fast",
    processes: Annotated[int, typer.Option(min=1, help="Number of processes.")] = 2,
) -> None:
    """Reproduce the paper's table and figures, beside its own.

    Example: graphmatern reproduce all --out results
    """
    check_folder(out)
    from graphmatern.reproduce import Options
    from graphmatern.reproduce import reproduce as run

    options = Options(repeats=repeats, seed=seed, quick=quick, recipe=recipe, processes=processes)
    run(targets, out, options, typer.echo)


@app.command(cls=Command)
@reported
def benchmark(
    sections: Annotated[list[str] | None, typer.Argument(help="traffic, cora, scaling, …; all by default.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Tiny sizes, to check that it works.")] = False,
    full: Annotated[bool, typer.Option("--full", help="All sizes and repeats; takes hours.")] = False,
    without_peers: Annotated[bool, typer.Option("--without-peers", help="Only this library.")] = False,
    redo: Annotated[bool, typer.Option("--redo", help="Repeat measurements already made.")] = False,
    report: Annotated[bool, typer.Option("--report", help="Only write the report, from stored results.")] = False,
    out: Annotated[Path | None, typer.Option(help="Folder for results, report and plots.")] = None,
) -> None:
    """Compare this library with others, from a checkout.

    Needs the project's own benchmarks folder and a quiet machine.

    Example: graphmatern benchmark traffic --quick --without-peers
    """
    if out is not None:
        check_folder(out)
    from graphmatern.cli._benchmark import run_benchmark

    flags = {"quick": quick, "full": full, "without-peers": without_peers, "redo": redo, "report": report}
    raise typer.Exit(run_benchmark(sections or [], [name for name, wanted in flags.items() if wanted], out))


@app.command(cls=Command, help=INFO)
@reported
@spread
def info(
    graph: GraphFile,
    *,
    options: GraphOptions,
    observations: Annotated[
        int | None, typer.Option(min=1, help="Number of values to assume for a fit; up to 500 by default.")
    ] = None,
    output: ConsoleOptions,
) -> None:
    """Describe a graph; see `INFO`."""
    from graphmatern.cli._info import run_info

    run_info(graph, options, output.console(), observations)


@app.command(cls=Command, help=FIT)
@checking
@reported
@spread
def fit(
    graph: GraphFile,
    values: Annotated[
        Path,
        typer.Argument(metavar="VALUES", help="Table of nodes and values (.csv .tsv .parquet .xlsx .geojson)."),
    ],
    *,
    out: Annotated[Path | None, typer.Option(help="Model file to write, usually ending in .gm.")] = None,
    predict: Annotated[
        Path | None,
        typer.Option(
            help="Write predictions at every node as well: .csv, .tsv, .parquet, .geojson or .gpkg.", metavar="FILE"
        ),
    ] = None,
    lines: Lines = False,
    plot: Plot = None,
    report: Annotated[
        Path | None, typer.Option(help="Write an interactive page as well: .html.", metavar="FILE")
    ] = None,
    unit: Unit = "",
    length_unit: LengthUnit = None,
    title: Title = None,
    options: GraphOptions,
    areas: Areas = None,
    columns: ValueOptions,
    ignore_unknown: Annotated[
        bool, typer.Option("--ignore-unknown", help="Leave out rows that name no node of the graph.")
    ] = False,
    model: ModelOptions,
    holdout: Annotated[float, typer.Option(help="Share of the values to hold out for testing predictions.")] = 0.0,
    level: Level = 0.95,
    output: ConsoleOptions,
) -> None:
    """Learn a model; see `FIT`."""
    from graphmatern.cli._fit import run_fit
    from graphmatern.cli._report import PageOptions

    run_fit(
        graph,
        values,
        options,
        columns.columns(),
        model,
        output.console(),
        out=out,
        predict=predict,
        plot=plot,
        areas=areas,
        page=None if report is None else PageOptions(report, title, unit, length_unit, level),
        unit=unit,
        lines=lines,
        level=level,
        holdout=holdout,
        ignore_unknown=ignore_unknown,
    )


@app.command(cls=Command, help=PREDICT)
@checking
@reported
@spread
def predict(
    model: ModelFile,
    *,
    out: Annotated[
        Path | None,
        typer.Option(help="Predictions at every node: .csv, .tsv, .parquet, .geojson or .gpkg.", metavar="FILE"),
    ] = None,
    lines: Lines = False,
    plot: Plot = None,
    level: Level = 0.95,
    n_threads: Threads = None,
    output: ConsoleOptions,
) -> None:
    """Predict from a model file; see `PREDICT`."""
    from graphmatern.cli._predict import run_predict

    run_predict(model, out, plot, level, lines, n_threads, output.console())


@app.command(cls=Command, help=REPORT)
@checking
@reported
@spread
def report(
    model: ModelFile,
    *,
    out: Annotated[Path, typer.Option(help="The page to write: .html.", metavar="FILE")] = Path("report.html"),
    title: Title = None,
    unit: Unit = "",
    length_unit: LengthUnit = None,
    areas: Areas = None,
    area_name: AreaName = None,
    level: Level = 0.95,
    n_threads: Threads = None,
    output: ConsoleOptions,
) -> None:
    """Write an interactive page; see `REPORT`."""
    from graphmatern.cli._report import PageOptions, run_report

    page = PageOptions(out, title, unit, length_unit, level, areas, area_name)
    run_report(model, page, n_threads, output.console())


@app.command(cls=Command, help=PLACE)
@checking
@reported
@spread
def place(
    model: ModelFile,
    *,
    n: Annotated[
        int | None,
        typer.Option("-n", "--number", min=1, help="How many nodes; by default as many as the budget allows."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Chosen nodes: .csv, .tsv, .parquet or .geojson; printed by default.", metavar="FILE"),
    ] = None,
    plot: Plot = None,
    criterion: Annotated[
        str,
        typer.Option(
            help="entropy, mutual_information or variance; for a classifier entropy, bald or variance.",
            callback=underscored,
        ),
    ] = "entropy",
    candidates: Annotated[
        Path | None,
        typer.Option(help="Table of nodes to choose from; all nodes without data by default.", metavar="FILE"),
    ] = None,
    costs: Annotated[
        Path | None,
        typer.Option(help="Table of nodes and costs; nodes are then chosen by gain per cost.", metavar="FILE"),
    ] = None,
    budget: Annotated[float | None, typer.Option(help="Total cost allowed.")] = None,
    existing: Annotated[
        Path | None, typer.Option(help="Table of nodes that will be measured anyway.", metavar="FILE")
    ] = None,
    n_threads: Threads = None,
    output: ConsoleOptions,
) -> None:
    """Choose where to measure next; see `PLACE`."""
    from graphmatern.cli._place import PlaceOptions, run_place

    options = PlaceOptions(n, criterion, candidates, costs, budget, existing)
    run_place(model, options, output.console(), out=out, plot=plot, n_threads=n_threads)


def main() -> None:
    """Run the command line; errors are reported in a few words."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without Greek letters shows question marks
    # Imports make a million objects that stay: to look for garbage among them again and again took a fifth of the time.
    gc.set_threshold(100_000, 50, 100)
    app()
