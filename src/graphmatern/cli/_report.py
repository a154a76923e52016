"""The command that writes an interactive page about a model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from graphmatern.cli._checks import Checks
from graphmatern.cli._console import writing
from graphmatern.cli._reading import limited_threads
from graphmatern.graph import area_geometry
from graphmatern.io import check_target
from graphmatern.metrics import half_width

if TYPE_CHECKING:
    from pathlib import Path

    from graphmatern.cli._console import Console

__all__ = ["PageOptions", "check_page", "run_report", "write_report"]


@dataclass(frozen=True)
class PageOptions:
    """Title, units and other options of a page."""

    path: Path
    title: str | None = None
    unit: str = ""
    length_unit: str | None = None
    level: float = 0.95
    areas: Path | None = None
    area_name: str | None = None


def check_page(checks: Checks, page: PageOptions) -> None:
    """Note why a page cannot be written before any work is done."""
    if page.path.suffix.lower() not in (".html", ".htm"):
        checks.add("output", "must end in .html", repr(page.path.name), "Browsers open such files.")
    with checks.collecting(), writing(page.path):
        check_target(page.path)


def write_report(model: Any, page: PageOptions, console: Console) -> None:
    """Write the page, and say so."""
    areas: dict[Any, Any] | None = None
    if page.areas is not None:
        graph = model.graph.with_areas(page.areas, page.area_name)
        areas = {node: area_geometry(rings) for node, rings in zip(graph.nodes, graph.areas, strict=True) if rings}
    with writing(page.path):
        model.report(
            page.path,
            title=page.title,
            unit=page.unit,
            length_unit=page.length_unit,
            level=page.level,
            areas=areas,
        )
    size = page.path.stat().st_size / 1e6
    console.say(f"{page.path}: interactive page ({size:.1f} MB); open it in a browser")
    console.result["report"] = str(page.path)


def run_report(path: Path, page: PageOptions, n_threads: int | None, console: Console) -> None:
    """Write a page about the model in a file; see the command's help for the options."""
    from graphmatern.estimators import load

    checks = Checks("no page was written")
    with checks.collecting():
        half_width(page.level)
    check_page(checks, page)
    checks.files((path, "model"), (page.areas, "GeoJSON"))
    checks.raise_if_any()
    with console.listening(), console.steps(2) as begin, limited_threads(n_threads):
        begin("reading the model")
        model = load(path)
        begin("writing the page")
        write_report(model, page, console)
    console.result |= {"model": str(path), "nodes": model.graph.n_nodes}
    console.finish()
