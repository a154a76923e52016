"""Commands and their options; what they do is imported when they run, so that help is quick."""

from __future__ import annotations

import gc
import sys
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated

import typer

from graphmatern.cli._console import EXIT_CODES, Console, check_folder, reported
from graphmatern.cli._help import FIT, INFO, PLACE, PREDICT, REPORT
from graphmatern.cli._options import (
    AreaName,
    Areas,
    Contiguity,
    Covariate,
    Covariates,
    Debug,
    Distance,
    EdgeId,
    Exposure,
    Features,
    Fraction,
    Geometry,
    GraphFile,
    GraphOptions,
    Json,
    LargestComponent,
    Length,
    LengthUnit,
    Level,
    Lines,
    ModelOptions,
    Nodes,
    Parallel,
    Plot,
    Quiet,
    Road,
    Seed,
    Sensors,
    SnapLimit,
    Source,
    Target,
    Threads,
    Title,
    Tolerance,
    Trials,
    Unit,
    Weight,
    underscored,
)

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


@app.command()
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


@app.command()
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
    processes: Annotated[int, typer.Option(min=1, help="Processes at work.")] = 2,
) -> None:
    """Reproduce the paper's table and figures, next to its own.

    Example: graphmatern reproduce all --out results
    """
    check_folder(out)
    from graphmatern.reproduce import Options
    from graphmatern.reproduce import reproduce as run

    options = Options(repeats=repeats, seed=seed, quick=quick, recipe=recipe, processes=processes)
    run(targets, out, options, typer.echo)


@app.command()
@reported
def benchmark(
    sections: Annotated[list[str] | None, typer.Argument(help="traffic, cora, scaling, …; all by default.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Tiny sizes, to check that it works.")] = False,
    full: Annotated[bool, typer.Option("--full", help="All sizes and repeats; takes hours.")] = False,
    without_peers: Annotated[bool, typer.Option("--without-peers", help="This library alone.")] = False,
    redo: Annotated[bool, typer.Option("--redo", help="Measure again what has been measured.")] = False,
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


@app.command(help=INFO)
@reported
def info(
    graph: GraphFile,
    source: Source = None,
    target: Target = None,
    weight: Weight = None,
    length: Length = None,
    edge_id: EdgeId = None,
    geometry: Geometry = None,
    nodes: Nodes = None,
    parallel: Parallel = "sum",
    largest_component: LargestComponent = False,
    sensors: Sensors = None,
    area_name: AreaName = None,
    contiguity: Contiguity = "queen",
    tolerance: Tolerance = 0.0,
    observations: Annotated[
        int | None, typer.Option(min=1, help="Number of values that a fit would have; up to 500 by default.")
    ] = None,
    as_json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Describe a graph; see `INFO`."""
    del debug
    from graphmatern.cli._info import run_info

    options = GraphOptions(
        graph,
        source,
        target,
        weight,
        length,
        edge_id,
        geometry,
        nodes,
        parallel,
        largest_component,
        sensors,
        area_name=area_name,
        contiguity=contiguity,
        tolerance=tolerance,
    )
    run_info(options, Console(quiet=quiet, as_json=as_json), observations)


@app.command(help=FIT)
@reported
def fit(
    graph: GraphFile,
    values: Annotated[
        Path,
        typer.Argument(metavar="VALUES", help="Table of nodes and values (.csv .tsv .parquet .xlsx .geojson)."),
    ],
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
    source: Source = None,
    target: Target = None,
    weight: Weight = None,
    length: Length = None,
    edge_id: EdgeId = None,
    geometry: Geometry = None,
    nodes: Nodes = None,
    parallel: Parallel = "sum",
    largest_component: LargestComponent = False,
    sensors: Sensors = None,
    areas: Areas = None,
    area_name: AreaName = None,
    contiguity: Contiguity = "queen",
    tolerance: Tolerance = 0.0,
    node: Annotated[str | None, typer.Option(help="Column of VALUES with node names; guessed by default.")] = None,
    value: Annotated[str | None, typer.Option(help="Column of VALUES with the values; guessed by default.")] = None,
    noise_std: Annotated[
        str | None, typer.Option("--noise-std", help="Column with the standard deviation of each value's error.")
    ] = None,
    road: Road = None,
    distance: Distance = None,
    fraction: Fraction = None,
    snap_limit: SnapLimit = None,
    ignore_unknown: Annotated[
        bool, typer.Option("--ignore-unknown", help="Leave out rows that name no node of the graph.")
    ] = False,
    task: Annotated[str, typer.Option(help="regression, classification, or auto: numbers or not.")] = "auto",
    kernel: Annotated[
        str,
        typer.Option(
            help="matern, diffusion, random_walk, inverse_cosine; for areas bym2, icar or leroux.", callback=underscored
        ),
    ] = "matern",
    nu: Annotated[
        float | None, typer.Option(help="Smoothness of the Matérn kernel, held fixed; learned by default.")
    ] = None,
    lengthscale: Annotated[float | None, typer.Option(help="Lengthscale, held fixed; learned by default.")] = None,
    laplacian: Annotated[str, typer.Option(help="plain, normalized, or auto: whichever the kernel needs.")] = "auto",
    engine: Annotated[
        str, typer.Option(help="auto, spectral, markov, moments, features, eigenvectors or inducing.")
    ] = "auto",
    eigenpairs: Annotated[int | None, typer.Option(min=1, help="Eigenpairs of the spectral engine.")] = None,
    max_seconds: Annotated[
        float | None,
        typer.Option("--max-seconds", help="Longest predicted time of a fit; no limit by default."),
    ] = None,
    likelihood: Annotated[
        str | None,
        typer.Option(
            help="For numbers gaussian, student_t or gamma (above 0); for counts poisson, negative_binomial, "
            "zero_inflated_poisson or binomial (with --trials); for classes robustmax, softmax or bernoulli.",
            callback=underscored,
        ),
    ] = None,
    mean: Annotated[str, typer.Option(help="Mean of the process: constant or zero.")] = "constant",
    covariates: Covariates = None,
    features: Features = None,
    covariate: Covariate = None,
    exposure: Exposure = None,
    trials: Trials = None,
    integrate: Annotated[
        bool | None,
        typer.Option(
            "--integrate/--no-integrate",
            help="Integrate over the parameters, or plug in the best; by default integrate up to 2,000 values.",
        ),
    ] = None,
    holdout: Annotated[float, typer.Option(help="Share of the values to hold out and test predictions on.")] = 0.0,
    level: Level = 0.95,
    seed: Seed = 0,
    n_threads: Threads = None,
    as_json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Learn a model; see `FIT`."""
    del debug
    if out is None and predict is None and plot is None and report is None and holdout == 0.0:
        raise typer.BadParameter(
            "say what to write: --out model.gm, --predict predictions.csv, --plot map.png or --report page.html"
        )
    from graphmatern.cli._fit import run_fit
    from graphmatern.cli._report import PageOptions
    from graphmatern.io import ValueColumns

    run_fit(
        GraphOptions(
            graph,
            source,
            target,
            weight,
            length,
            edge_id,
            geometry,
            nodes,
            parallel,
            largest_component,
            sensors,
            areas,
            area_name,
            contiguity,
            tolerance,
        ),
        values,
        ValueColumns(
            node,
            value,
            noise_std,
            road,
            distance,
            fraction,
            snap_limit,
            exposure=exposure,
            covariates=tuple(covariate or ()),
            trials=trials,
        ),
        ModelOptions(
            task,
            kernel,
            nu,
            lengthscale,
            laplacian,
            engine,
            eigenpairs,
            likelihood,
            mean,
            covariates,
            features,
            n_threads,
            seed,
            max_seconds,
            integrate,
        ),
        Console(quiet=quiet, as_json=as_json),
        out=out,
        predict=predict,
        plot=plot,
        page=None if report is None else PageOptions(report, title, unit, length_unit, level),
        unit=unit,
        lines=lines,
        level=level,
        holdout=holdout,
        ignore_unknown=ignore_unknown,
    )


@app.command(help=PREDICT)
@reported
def predict(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="Model file that `graphmatern fit` wrote.")],
    out: Annotated[
        Path | None,
        typer.Option(help="Predictions at every node: .csv, .tsv, .parquet, .geojson or .gpkg.", metavar="FILE"),
    ] = None,
    lines: Lines = False,
    plot: Plot = None,
    level: Level = 0.95,
    n_threads: Threads = None,
    as_json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Predict from a model file; see `PREDICT`."""
    del debug
    if out is None and plot is None:
        raise typer.BadParameter("say what to write: --out predictions.csv or --plot map.png")
    from graphmatern.cli._predict import run_predict

    run_predict(model, out, plot, level, lines, n_threads, Console(quiet=quiet, as_json=as_json))


@app.command(help=REPORT)
@reported
def report(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="Model file that `graphmatern fit` wrote.")],
    out: Annotated[Path, typer.Option(help="The page to write: .html.", metavar="FILE")] = Path("report.html"),
    title: Title = None,
    unit: Unit = "",
    length_unit: LengthUnit = None,
    areas: Areas = None,
    area_name: AreaName = None,
    level: Level = 0.95,
    n_threads: Threads = None,
    as_json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Write an interactive page; see `REPORT`."""
    del debug
    from graphmatern.cli._report import PageOptions, run_report

    page = PageOptions(out, title, unit, length_unit, level, areas, area_name)
    run_report(model, page, n_threads, Console(quiet=quiet, as_json=as_json))


@app.command(help=PLACE)
@reported
def place(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="Model file that `graphmatern fit` wrote.")],
    n: Annotated[
        int | None,
        typer.Option("-n", "--number", min=1, help="How many; as many as the budget allows by default."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Chosen nodes: .csv, .tsv, .parquet or .geojson; printed by default.", metavar="FILE"),
    ] = None,
    plot: Plot = None,
    criterion: Annotated[
        str,
        typer.Option(
            help="entropy, mutual_information or variance; of a classifier entropy, bald or variance.",
            callback=underscored,
        ),
    ] = "entropy",
    candidates: Annotated[
        Path | None,
        typer.Option(help="Table of nodes to choose from; all nodes without data by default.", metavar="FILE"),
    ] = None,
    costs: Annotated[
        Path | None, typer.Option(help="Table of nodes and costs: chosen by gain per cost.", metavar="FILE")
    ] = None,
    budget: Annotated[float | None, typer.Option(help="Total cost allowed.")] = None,
    existing: Annotated[
        Path | None, typer.Option(help="Table of nodes that will be measured anyway.", metavar="FILE")
    ] = None,
    n_threads: Threads = None,
    as_json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> None:
    """Choose where to measure next; see `PLACE`."""
    del debug
    if n is None and budget is None:
        raise typer.BadParameter("say how many: -n 20, or what they may cost: --budget 100")
    from graphmatern.cli._place import PlaceOptions, run_place

    options = PlaceOptions(n, criterion, candidates, costs, budget, existing)
    run_place(model, options, Console(quiet=quiet, as_json=as_json), out=out, plot=plot, n_threads=n_threads)


def main() -> None:
    """Run the command line; errors are reported in a few words."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without Greek letters shows question marks
    # Imports make a million objects that stay: to look for garbage among them again and again took a fifth of the time.
    gc.set_threshold(100_000, 50, 100)
    app()
