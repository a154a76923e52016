"""Commands and their options; what they do is imported when they run, so that help is quick."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["main"]

app = typer.Typer(
    name="graphmatern",
    help="Gaussian processes on the nodes of a graph.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,
    rich_markup_mode=None,
)


@app.callback()
def _common() -> None:
    """Gaussian processes on the nodes of a graph."""


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the pictures.")] = Path("demo"),
    seed: Annotated[int, typer.Option(help="Seed of the generated city.")] = 0,
) -> None:
    """Show what the library does on a generated city.

    Example: graphmatern demo --out demo
    """
    from graphmatern.cli._demo import run_demo

    run_demo(out, seed)


def main() -> None:
    """Run the command line."""
    app()
