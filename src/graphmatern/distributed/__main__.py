"""The command of a graph that is spread over processes: ``mpiexec -n 4 python -m graphmatern.distributed fit …``."""

from __future__ import annotations

import argparse
import sys
import warnings
from pathlib import Path
from typing import Any, NoReturn

from graphmatern.distributed._processes import Processes, ending_together, world

__all__ = ["main"]


def _parser(processes: Processes) -> argparse.ArgumentParser:
    class Parser(argparse.ArgumentParser):
        """Says what is wrong once, not once for each process."""

        def _print_message(self, message: str, file: Any = None) -> None:
            if processes.is_first:
                super()._print_message(message, file)

        def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
            if message:
                self._print_message(message, sys.stderr)
            raise SystemExit(status)

    parser = Parser(
        prog="mpiexec -n K python -m graphmatern.distributed",
        description="Gaussian processes on graphs whose nodes are spread over processes.",
    )
    commands = parser.add_subparsers(dest="command", required=True)
    fit = commands.add_parser(
        "fit",
        help="learn from edges and values, and write predictions at all nodes",
        description=(
            "Learn from edges and values, and write model.json and predictions/part-*.parquet. A run that was stopped "
            "continues from its checkpoint (OUT.checkpoint.json) when it is started again, on any number of processes."
        ),
    )
    fit.add_argument("edges", type=Path, help="table of edges, or folder of such tables (CSV, TSV, Parquet)")
    fit.add_argument("values", type=Path, help="table of values at nodes, or folder of such tables")
    fit.add_argument("--out", type=Path, required=True, help="folder for the results; it must not exist yet")
    for name in ("source", "target", "weight", "length"):
        fit.add_argument(f"--{name}", help=f"column of the edges: {name}; guessed by default")
    fit.add_argument("--parallel", default="error", choices=("error", "sum", "mean_length", "first"),
                     help="what to do with rows that repeat a pair of nodes")  # fmt: skip
    fit.add_argument("--node", help="column of the values: names of nodes")
    fit.add_argument("--value", help="column of the values: the values")
    fit.add_argument("--noise-std", help="column of the values: standard deviations of their errors")
    fit.add_argument("--kernel", default="matern", choices=("matern", "diffusion"))
    fit.add_argument("--nu", type=float, help="smoothness, held fixed; learned by default")
    fit.add_argument("--lengthscale", type=float, help="lengthscale, held fixed; learned by default")
    fit.add_argument("--laplacian", default="auto", choices=("auto", "plain", "normalized"))
    fit.add_argument("--engine", default="auto", choices=("auto", "moments", "multigrid"))
    fit.add_argument("--mean", default="constant", choices=("constant", "zero"))
    fit.add_argument("--max-iterations", type=int, default=200)
    fit.add_argument("--no-std", action="store_true", help="write means without standard deviations")
    fit.add_argument("--quiet", action="store_true", help="print only errors")
    return parser


def _kernel(options: argparse.Namespace) -> Any:
    """The kernel asked for; what is given is kept, what is not is learned."""
    from graphmatern.kernels import Diffusion, Matern

    lengthscale = 5.0 if options.lengthscale is None else options.lengthscale
    held = () if options.lengthscale is None else ("lengthscale",)
    if options.kernel == "diffusion":
        return Diffusion(lengthscale, fixed=held)
    if options.nu is None and options.lengthscale is None:
        return None
    nu = 1.5 if options.nu is None else options.nu
    return Matern(nu, lengthscale, fixed=(*held, *(() if options.nu is None else ("nu",))))


def _fit(processes: Processes, options: argparse.Namespace) -> None:
    from graphmatern.distributed import DistributedGraph, GraphGPRegressor
    from graphmatern.distributed._checkpoint import Checkpoint
    from graphmatern.distributed._files import check_folder

    def say(text: str) -> None:
        if processes.is_first and not options.quiet:
            sys.stderr.write(f"{text}\n")
            sys.stderr.flush()

    check_folder(processes, options.out)
    out = options.out.resolve()
    checkpoint = out.with_name(f"{out.name}.checkpoint.json")
    say(f"reading {options.edges} on {processes.size} process{'es' if processes.size > 1 else ''}")
    columns = {name: getattr(options, name) for name in ("source", "target", "weight", "length")}
    graph = DistributedGraph.from_files(options.edges, **columns, parallel=options.parallel, processes=processes)
    say(f"{graph.n_nodes:,} nodes, {graph.n_edges:,} edges")
    if processes.is_first and checkpoint.exists():
        say(f"continuing from {checkpoint.name}")
    model = GraphGPRegressor(
        graph,
        _kernel(options),
        normalized={"auto": None, "plain": False, "normalized": True}[options.laplacian],
        engine=options.engine,
        mean=options.mean,
        max_iterations=options.max_iterations,
        verbose=False if options.quiet else None,
    )
    named = {"node": options.node, "value": options.value, "noise_std": options.noise_std}
    model.fit_files(options.values, **named, checkpoint=checkpoint)
    say(model.summary())
    say("predicting")
    model.write(options.out, return_std=not options.no_std)
    Checkpoint(processes, checkpoint).remove()
    say(f"{options.out}: model, and predictions at all nodes")


def main(arguments: list[str] | None = None) -> None:
    """Run the command."""
    processes = world()
    with ending_together(processes):
        options = _parser(processes).parse_args(arguments)
        with warnings.catch_warnings():
            warnings.simplefilter("default" if processes.is_first else "ignore")
            warnings.showwarning = _said  # type: ignore[assignment]
            _fit(processes, options)


def _said(message: Warning | str, *_where: Any) -> None:
    sys.stderr.write(f"warning: {message}\n")


if __name__ == "__main__":
    main()
