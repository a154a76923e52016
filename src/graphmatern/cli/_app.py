"""Commands and their options; what they do is imported when they run, so that help is quick."""

from __future__ import annotations

import sys
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated

import typer

from graphmatern.errors import GraphMaternError

__all__ = ["app", "main"]

app = typer.Typer(
    name="graphmatern",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from graphmatern import __version__

        typer.echo(f"graphmatern {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and stop.")
    ] = False,
) -> None:
    """Gaussian processes on the nodes of a graph."""


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the pictures.")] = Path("demo"),
    seed: Annotated[int, typer.Option(min=0, help="Seed of the generated city.")] = 0,
) -> None:
    """Show what the library does on a generated city.

    Example: graphmatern demo --out demo
    """
    from graphmatern.cli._demo import run_demo

    run_demo(out, seed)


def main() -> None:
    """Run the command line; what goes wrong is told in a few words, with exit code 1."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without Greek letters shows question marks
    try:
        app()
    except (GraphMaternError, OSError) as error:
        typer.echo(f"graphmatern: {error}", err=True)
        raise SystemExit(1) from None
