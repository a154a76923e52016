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


@app.command()
def reproduce(
    targets: Annotated[list[str], typer.Argument(help="table1, figure1 … figure8, or all.")],
    repeats: Annotated[int, typer.Option(min=1, help="Random splits per cell of Table 1.")] = 10,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the first split.")] = 0,
    out: Annotated[Path, typer.Option(help="Folder for the results; finished work is kept.")] = Path("results"),
    quick: Annotated[bool, typer.Option("--quick", help="A trial run, not comparable with the paper.")] = False,
    recipe: Annotated[str, typer.Option(help="fast (ours), or paper: its optimiser and steps, for hours.")] = "fast",
    processes: Annotated[int, typer.Option(min=1, help="Processes at work.")] = 2,
) -> None:
    """Make the paper's table and figures again, beside the paper's own.

    Example: graphmatern reproduce all --out results
    """
    from graphmatern.reproduce import Options
    from graphmatern.reproduce import reproduce as run

    options = Options(repeats=repeats, seed=seed, quick=quick, recipe=recipe, processes=processes)
    run(targets, out, options, typer.echo)


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
