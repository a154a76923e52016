"""What `graphmatern reproduce` does: tasks first, then tables and pictures from their results."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from graphmatern._validation import FaultList, check_choice, check_whole
from graphmatern.errors import InputError
from graphmatern.io import replacing
from graphmatern.reproduce._figures import FIGURES, draw_figure, figure_tasks
from graphmatern.reproduce._kernels import Protocol
from graphmatern.reproduce._machine import environment
from graphmatern.reproduce._table import ranking_holds, table_json, table_markdown, table_tasks
from graphmatern.reproduce._tasks import run_tasks, write_json

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from graphmatern.reproduce._tasks import Outcome

__all__ = ["TARGETS", "Options", "reproduce"]

TARGETS = ("table1", *FIGURES, "all")
_QUICK = Protocol(n_eigenpairs=100, adam_steps=20, adam_rate=0.1, max_iterations=0, walk_steps=(64,))


@dataclass(frozen=True)
class Options:
    """Options of a reproduction.

    Attributes
    ----------
    repeats : int
        Random splits per cell of Table 1.
    seed : int
        Seed of the first split; the others follow.
    quick : bool
        A trial run: two splits, 100 eigenpairs, nothing learned on Cora, coarse meshes.
    recipe : {"fast", "paper"}
        Our optimisers, or the paper's.
    processes : int
        Processes at work.
    """

    repeats: int = 10
    seed: int = 0
    quick: bool = False
    recipe: str = "fast"
    processes: int = 2

    def __post_init__(self) -> None:
        check_choice("recipe", self.recipe, ("fast", "paper"), InputError)
        faults = FaultList("nothing was reproduced", InputError)
        check_whole("repeats", self.repeats, faults, minimum=1, remedy="The paper has 10.")
        check_whole("seed", self.seed, faults, minimum=0, remedy="0 is usual.")
        check_whole("processes", self.processes, faults, minimum=1, remedy="2 suit a laptop.")
        faults.raise_if_any()

    @property
    def seeds(self) -> list[int]:
        """Seeds of the splits."""
        count = min(self.repeats, 2) if self.quick else self.repeats
        return list(range(self.seed, self.seed + count))

    @property
    def protocol(self) -> Protocol:
        """How cells are computed."""
        base = _QUICK if self.quick else Protocol()
        return replace(base, recipe=self.recipe)


def reproduce(targets: Sequence[str], out: Path, options: Options, report: Callable[[str], None] = print) -> None:
    """Make tables and figures of the paper.

    Parameters
    ----------
    targets : sequence of str
        From ``TARGETS``.
    out : Path
        Folder for the results; made where it is absent. What is finished there is not done again.
    options : Options
        Splits, recipe, processes.
    report : callable
        Receives text for the user.
    """
    for target in targets:
        check_choice("target", target, TARGETS, InputError)
    out.mkdir(parents=True, exist_ok=True)
    wanted = [name for name in TARGETS[:-1] if name in targets or "all" in targets]
    if "table1" in wanted:
        _make_table(out, options, report)
    _make_figures([name for name in wanted if name in FIGURES], out, options, report)


def _make_table(out: Path, options: Options, report: Callable[[str], None]) -> None:
    folder = out / "cells" / options.recipe
    outcome = run_tasks(
        table_tasks(options.seeds, options.protocol), folder, processes=options.processes, label="Table 1"
    )
    cells = table_json(options.seeds, outcome)
    content = {
        "options": _options_json(options),
        "environment": environment(),
        "run": _run_json(outcome),
        "traffic_ranks_as_in_the_paper": ranking_holds(cells),
        "cells": cells,
    }
    write_json(out / "table1.json", content)
    text = _page(cells, options, outcome)
    with replacing(out / "table1.md") as temporary:
        temporary.write_text(text, encoding="utf-8")
    report(text)


def _make_figures(names: Sequence[str], out: Path, options: Options, report: Callable[[str], None]) -> None:
    tasks = figure_tasks(names, options.seed, options.protocol, quick=options.quick)
    distinct = list({task.name: task for task in reversed(tasks.values())}.values())  # those of Cora take longest
    folder = out / "cells" / options.recipe
    outcome = run_tasks(distinct, folder, processes=options.processes, label="figures")
    for name, task in tasks.items():
        report(draw_figure(name, out, outcome.results[task.name], outcome.seconds[task.name]))


def _options_json(options: Options) -> dict[str, Any]:
    return {
        "seeds": options.seeds,
        "quick": options.quick,
        "processes": options.processes,
        **options.protocol.as_arguments(),
    }


def _run_json(outcome: Outcome) -> dict[str, Any]:
    return {
        "splits_computed": outcome.n_computed,
        "splits_kept_from_before": outcome.n_kept,
        "wall_seconds": round(outcome.wall_seconds, 2),
        "seconds_of_all_fits": round(sum(outcome.seconds.values()), 2),
    }


def _page(cells: list[dict[str, Any]], options: Options, outcome: Outcome) -> str:
    protocol = options.protocol
    failed = [f"{cell['experiment']} {cell['laplacian']} {cell['method']}" for cell in cells if _is_worse(cell)]
    legend = (
        f"Mean (standard deviation) over {len(options.seeds)} random splits, {protocol.n_eigenpairs} eigenpairs, "
        f"recipe “{protocol.recipe}”. z: difference from the paper's mean in combined standard errors. Learned: κ, ν, "
        "σ² (not on Cora: robust-max does not see it) and the noise; "
        f"for the random walk α by gradient and p, the most likely of {', '.join(map(str, protocol.walk_steps))}."
    )
    verdict = (
        f"Kernels and Laplacians rank on traffic as in the paper: {'yes' if ranking_holds(cells) else 'no'}. "
        f"Worse than the paper by more than two standard errors: {', '.join(failed) or 'none'}."
    )
    cost = (
        f"{outcome.n_computed} splits computed in {outcome.wall_seconds:.1f} s by {options.processes} processes, "
        f"{outcome.n_kept} kept from before; all fits together took {sum(outcome.seconds.values()):.1f} s."
    )
    paragraphs = ["# Table 1, reproduced", table_markdown(cells), legend, verdict, cost]
    if options.quick:
        paragraphs.insert(1, "A trial run (`--quick`): not comparable with the paper.")
    return "\n\n".join(paragraphs) + "\n"


def _is_worse(cell: dict[str, Any]) -> bool:
    return cell.get("within_two_standard_errors_or_better") is False
