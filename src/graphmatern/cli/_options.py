"""Options that several commands share, and groups of options that belong together."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from graphmatern.cli._console import Console

if TYPE_CHECKING:
    from graphmatern.io import ValueColumns

__all__ = [
    "AreaName",
    "Areas",
    "ConsoleOptions",
    "GraphFile",
    "GraphOptions",
    "LengthUnit",
    "Level",
    "Lines",
    "ModelFile",
    "ModelOptions",
    "Plot",
    "Threads",
    "Title",
    "Unit",
    "ValueOptions",
    "underscored",
]


def underscored(value: str | None) -> str | None:
    """Spell a name as the library does, however it was typed: random-walk is random_walk."""
    return None if value is None else value.replace("-", "_")


GraphFile = Annotated[
    Path,
    typer.Argument(
        metavar="GRAPH",
        help="Edge list (.csv .tsv .parquet .xlsx), .graphml, roads (.geojson .wkt), areas that border on each other "
        "(.geojson), matrix (.mtx .npz).",
    ),
]
ModelFile = Annotated[Path, typer.Argument(metavar="MODEL", help="Model file that `graphmatern fit` wrote.")]
Level = Annotated[float, typer.Option(help="Probability of the intervals.")]
Plot = Annotated[Path | None, typer.Option(help="Draw a map: .png, .pdf or .svg.", metavar="FILE")]
Lines = Annotated[bool, typer.Option("--lines", help="In GeoJSON, write a line per edge, not a point per node.")]
Unit = Annotated[str, typer.Option(help="Unit of the values, such as mph, for maps and pages.")]
LengthUnit = Annotated[str | None, typer.Option("--length-unit", help="Unit of the edges' lengths, such as m.")]
Title = Annotated[str | None, typer.Option(help="Title of the page.")]
Areas = Annotated[
    Path | None, typer.Option(help="Outlines of the nodes, if these are areas: a GeoJSON file.", metavar="FILE")
]
AreaName = Annotated[
    str | None, typer.Option("--area-name", help="Property of the areas that holds node names; guessed by default.")
]
Threads = Annotated[int | None, typer.Option("--n-threads", min=1, help="Threads to use; all by default.")]


@dataclass(frozen=True)
class ConsoleOptions:
    """What a command prints."""

    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")] = False
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")] = False
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False

    def console(self) -> Console:
        """The console that prints it."""
        return Console(quiet=self.quiet, as_json=self.as_json)


@dataclass(frozen=True)
class GraphOptions:
    """How a graph is read."""

    source: Annotated[str | None, typer.Option(help="Column with one end of an edge; guessed by default.")] = None
    target: Annotated[str | None, typer.Option(help="Column with the other end of an edge.")] = None
    weight: Annotated[str | None, typer.Option(help="Column of edge weights.")] = None
    length: Annotated[str | None, typer.Option(help="Column of edge lengths; weight = mean length / length.")] = None
    edge_id: Annotated[str | None, typer.Option("--edge-id", help="Column of edge names, for values on roads.")] = None
    geometry: Annotated[str | None, typer.Option(help="Column of WKT lines.")] = None
    nodes: Annotated[
        Path | None, typer.Option(help="Table of nodes: names, and longitude and latitude (or x and y) where known.")
    ] = None
    parallel: Annotated[
        str,
        typer.Option(
            help="What to do with several edges between two nodes: sum, mean_length, first or error.",
            metavar="RULE",
            callback=underscored,
        ),
    ] = "sum"
    largest_component: Annotated[
        bool, typer.Option("--largest-component", help="Keep only the largest connected part.")
    ] = False
    sensors: Annotated[
        Path | None, typer.Option(help="Table of sensors on roads (name, road, distance), inserted as nodes.")
    ] = None
    area_name: AreaName = None
    contiguity: Annotated[
        str, typer.Option(help="Areas are neighbours if they share a point (queen) or a line (rook).", metavar="RULE")
    ] = "queen"
    tolerance: Annotated[
        float, typer.Option(help="Width of gaps between the outlines of neighbours, in the unit of their coordinates.")
    ] = 0.0
    links: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Table with two columns: pairs of areas that are neighbours too, as by ferry."
        ),
    ] = None


@dataclass(frozen=True)
class ValueOptions:
    """Which column of a table of values is which."""

    node: Annotated[str | None, typer.Option(help="Column of VALUES with node names; guessed by default.")] = None
    value: Annotated[str | None, typer.Option(help="Column of VALUES with the values; guessed by default.")] = None
    noise: Annotated[
        str | None, typer.Option("--noise-std", help="Column with the standard deviation of each value's error.")
    ] = None
    road: Annotated[str | None, typer.Option(help="Column with the edge name of values that lie on edges.")] = None
    distance: Annotated[str | None, typer.Option(help="Column with the distance from the edge's source.")] = None
    fraction: Annotated[
        str | None, typer.Option(help="Column with the share of the edge, instead of the distance.")
    ] = None
    snap_limit: Annotated[
        float | None,
        typer.Option(
            "--snap-limit",
            help="Largest distance of values with coordinates from the nearest road, in m for degrees; half a road by "
            "default.",
        ),
    ] = None
    exposure: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN", help="Column of VALUES with the exposure of each count, such as expected cases."
        ),
    ] = None
    covariate: Annotated[
        list[str] | None,
        typer.Option(
            "--covariate", metavar="COLUMN", help="Column of VALUES that the mean depends on; may be repeated."
        ),
    ] = None
    trials: Annotated[
        str | None,
        typer.Option(metavar="COLUMN", help="Column of VALUES with the number of trials of binomial counts."),
    ] = None

    def columns(self) -> ValueColumns:
        """The same, as files are read by."""
        from graphmatern.io import ValueColumns

        given = dict(vars(self))
        return ValueColumns(covariates=tuple(given.pop("covariate") or ()), **given)


@dataclass(frozen=True)
class ModelOptions:
    """What is fitted."""

    task: Annotated[str, typer.Option(help="regression, classification, or auto: regression for numbers.")] = "auto"
    kernel: Annotated[
        str,
        typer.Option(
            help="matern, diffusion, random_walk, inverse_cosine; for areas bym2, icar or leroux.", callback=underscored
        ),
    ] = "matern"
    nu: Annotated[
        float | None, typer.Option(help="Smoothness of the Matérn kernel, held fixed; learned by default.")
    ] = None
    lengthscale: Annotated[float | None, typer.Option(help="Lengthscale, held fixed; learned by default.")] = None
    laplacian: Annotated[str, typer.Option(help="plain, normalized, or auto: whichever the kernel needs.")] = "auto"
    engine: Annotated[
        str, typer.Option(help="auto, spectral, markov, moments, features, eigenvectors or inducing.")
    ] = "auto"
    eigenpairs: Annotated[int | None, typer.Option(min=1, help="Eigenpairs of the spectral engine.")] = None
    max_seconds: Annotated[
        float | None,
        typer.Option("--max-seconds", help="Refuse a fit that is predicted to take longer; no limit by default."),
    ] = None
    likelihood: Annotated[
        str | None,
        typer.Option(
            help="For numbers gaussian, student_t or gamma (above 0); for counts poisson, negative_binomial, "
            "zero_inflated_poisson or binomial (with --trials); for classes robustmax, softmax or bernoulli.",
            callback=underscored,
        ),
    ] = None
    mean: Annotated[str, typer.Option(help="Mean of the process: constant or zero.")] = "constant"
    covariates: Annotated[
        str | None, typer.Option(help="Columns of the table of nodes that the mean depends on, separated by commas.")
    ] = None
    features: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Table of what is known about every node: node names first, then numbers."),
    ] = None
    integrate: Annotated[
        bool | None,
        typer.Option(
            "--integrate/--no-integrate",
            help="Integrate over the parameters or plug in the best ones; by default integrate up to 2,000 values.",
        ),
    ] = None
    seed: Annotated[int, typer.Option(min=0, help="Random seed.")] = 0
    n_threads: Threads = None
