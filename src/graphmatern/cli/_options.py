"""Options that several commands share, and the values they carry."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

__all__ = [
    "Contiguity",
    "Covariate",
    "Covariates",
    "Debug",
    "Distance",
    "EdgeId",
    "Exposure",
    "Fraction",
    "Geometry",
    "GraphFile",
    "GraphOptions",
    "Json",
    "LargestComponent",
    "Length",
    "Level",
    "ModelOptions",
    "Nodes",
    "Parallel",
    "Plot",
    "Quiet",
    "Road",
    "Seed",
    "Sensors",
    "Source",
    "Target",
    "Threads",
    "Tolerance",
    "Trials",
    "Weight",
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
Source = Annotated[str | None, typer.Option(help="Column with one end of an edge; guessed by default.")]
Target = Annotated[str | None, typer.Option(help="Column with the other end of an edge.")]
Weight = Annotated[str | None, typer.Option(help="Column of edge weights.")]
Length = Annotated[str | None, typer.Option(help="Column of edge lengths; weight = mean length / length.")]
EdgeId = Annotated[str | None, typer.Option("--edge-id", help="Column of edge names, for values on roads.")]
Geometry = Annotated[str | None, typer.Option(help="Column of WKT lines.")]
Nodes = Annotated[
    Path | None, typer.Option(help="Table of nodes: names, and longitude and latitude (or x and y) where known.")
]
Parallel = Annotated[
    str,
    typer.Option(
        help="Several edges between two nodes: sum, mean_length, first or error.", metavar="RULE", callback=underscored
    ),
]
LargestComponent = Annotated[bool, typer.Option("--largest-component", help="Keep the largest connected part only.")]
Sensors = Annotated[
    Path | None, typer.Option(help="Table of sensors on roads (name, road, distance), inserted as nodes.")
]
Road = Annotated[str | None, typer.Option(help="Column with the edge name of values that lie on edges.")]
Distance = Annotated[str | None, typer.Option(help="Column with the distance from the edge's source.")]
Fraction = Annotated[str | None, typer.Option(help="Column with the share of the edge, instead of the distance.")]
Covariates = Annotated[
    str | None, typer.Option(help="Columns of the table of nodes that the mean depends on, joined by commas.")
]
Features = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Table of what is known at every node: node names first, then numbers."),
]
Covariate = Annotated[
    list[str] | None,
    typer.Option("--covariate", metavar="COLUMN", help="Column of VALUES that the mean depends on; may be repeated."),
]
Exposure = Annotated[
    str | None,
    typer.Option(metavar="COLUMN", help="Column of VALUES with the exposure of each count, such as expected cases."),
]
Level = Annotated[float, typer.Option(help="Probability of the intervals.")]
Plot = Annotated[Path | None, typer.Option(help="Draw a map: .png, .pdf or .svg.", metavar="FILE")]
SnapLimit = Annotated[
    float | None,
    typer.Option(
        "--snap-limit",
        help="How far values with coordinates may lie from the nearest road, in m for degrees; half a road by default.",
    ),
]
Lines = Annotated[bool, typer.Option("--lines", help="In GeoJSON, write a line per edge, not a point per node.")]
Unit = Annotated[str, typer.Option(help="Unit of the values, such as mph, for maps and pages.")]
LengthUnit = Annotated[str | None, typer.Option("--length-unit", help="Unit of the edges' lengths, such as m.")]
Title = Annotated[str | None, typer.Option(help="Title of the page.")]
Areas = Annotated[
    Path | None, typer.Option(help="Outlines of the nodes, where these are areas: a GeoJSON file.", metavar="FILE")
]
AreaName = Annotated[
    str | None, typer.Option("--area-name", help="Property of the areas with the node names; guessed by default.")
]
Contiguity = Annotated[
    str, typer.Option(help="Areas are neighbours that share a point (queen) or a line (rook).", metavar="RULE")
]
Tolerance = Annotated[
    float, typer.Option(help="Width of gaps between the outlines of neighbours, in the unit of their coordinates.")
]
Trials = Annotated[
    str | None, typer.Option(metavar="COLUMN", help="Column of VALUES with the number of trials of binomial counts.")
]
Seed = Annotated[int, typer.Option(min=0, help="Random seed.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]
Threads = Annotated[int | None, typer.Option("--n-threads", min=1, help="Threads to use; all by default.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")]


@dataclass(frozen=True)
class GraphOptions:
    """How a graph is read."""

    path: Path
    source: str | None = None
    target: str | None = None
    weight: str | None = None
    length: str | None = None
    edge_id: str | None = None
    geometry: str | None = None
    nodes: Path | None = None
    parallel: str = "sum"
    largest_component: bool = False
    sensors: Path | None = None
    areas: Path | None = None
    area_name: str | None = None
    contiguity: str = "queen"
    tolerance: float = 0.0


@dataclass(frozen=True)
class ModelOptions:
    """What is fitted."""

    task: str = "auto"
    kernel: str = "matern"
    nu: float | None = None
    lengthscale: float | None = None
    laplacian: str = "auto"
    engine: str = "auto"
    eigenpairs: int | None = None
    likelihood: str | None = None
    mean: str = "constant"
    covariates: str | None = None
    features: Path | None = None
    n_threads: int | None = None
    seed: int = 0
    max_seconds: float | None = None
    integrate: bool | None = None
