"""The figures: what each computes, draws and says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from graphmatern.io import replacing
from graphmatern.reproduce import _figures_cora as cora
from graphmatern.reproduce import _figures_theory as theory
from graphmatern.reproduce import _figures_traffic as traffic
from graphmatern.reproduce._machine import environment
from graphmatern.reproduce._tasks import Task, write_json

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from matplotlib.figure import Figure

    from graphmatern.reproduce._kernels import Protocol

__all__ = ["FIGURES", "draw_figure", "figure_tasks"]


@dataclass(frozen=True)
class FigurePlan:
    """How a figure is made.

    Attributes
    ----------
    task : callable
        Gives the task from seed, protocol and whether it is a trial; figures that share a task share its result.
    draw : callable
        Draws the result.
    caption : callable
        Describes it.
    facts : callable
        What of the result is worth a place in the figure's JSON file.
    """

    task: Callable[[int, Protocol, bool], Task]
    draw: Callable[[dict[str, Any]], Figure]
    caption: Callable[[dict[str, Any]], str]
    facts: Callable[[dict[str, Any]], dict[str, Any]]


def _variance_task(seed: int, protocol: Protocol, quick: bool) -> Task:  # noqa: ARG001
    return Task("figure1-variances", theory.variances, {"seed": seed})


def _sphere_task(seed: int, protocol: Protocol, quick: bool) -> Task:  # noqa: ARG001
    rounds, drawn, degree = ([1, 2, 3], [1, 2, 3], 5) if quick else ([2, 3, 4, 5], [2, 3, 4], 9)
    return Task("figure2-sphere", theory.sphere_study, {"rounds": rounds, "drawn": drawn, "degree": degree})


def _map_task(seed: int, protocol: Protocol, quick: bool) -> Task:  # noqa: ARG001
    return Task("figures3-4-traffic", traffic.traffic_map, {"seed": seed, "protocol": protocol.as_arguments()})


def _cora_task(seed: int, protocol: Protocol, quick: bool) -> Task:
    arguments = {"seed": seed, "protocol": protocol.as_arguments(), "rounds": 250 if quick else 1000}
    return Task("figures5-8-cora", cora.cora_map, arguments)


def _junction_caption(result: dict[str, Any]) -> str:
    pair = result["opposite_sensors"]
    slow, fast = sorted(pair["mean_mph"])
    return traffic.JUNCTION_CAPTION.format(
        metres=pair["metres_across"], slow=slow, fast=fast, around=pair["metres_by_road"] / 1000
    )


def _only(*keys: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda result: {key: result[key] for key in keys}


def _cora_plan(name: str, draw: Callable[[dict[str, Any]], Figure]) -> FigurePlan:
    return FigurePlan(
        _cora_task, draw, lambda result: cora.caption(name, result), _only("accuracy_without_training_papers")
    )


FIGURES = {
    "figure1": FigurePlan(_variance_task, theory.draw_variances, lambda _: theory.VARIANCE_CAPTION, dict),
    "figure2": FigurePlan(
        _sphere_task,
        theory.draw_sphere,
        lambda _: theory.SPHERE_CAPTION,
        _only("n_nodes", "mesh_size", "errors", "orders", "degree"),
    ),
    "figure3": FigurePlan(_map_task, traffic.draw_traffic, lambda _: traffic.MAP_CAPTION, _only("kernel")),
    "figure4": FigurePlan(_map_task, traffic.draw_junction, _junction_caption, _only("kernel", "opposite_sensors")),
    "figure5": _cora_plan("figure5", cora.draw_cora_triple),
    "figure6": _cora_plan("figure6", cora.draw_cora_truth),
    "figure7": _cora_plan("figure7", cora.draw_cora_prediction),
    "figure8": _cora_plan("figure8", cora.draw_cora_errors),
}


def figure_tasks(names: Sequence[str], seed: int, protocol: Protocol, *, quick: bool) -> dict[str, Task]:
    """Tasks of some figures, by figure; several figures may share one.

    Parameters
    ----------
    names : sequence of str
        Keys of ``FIGURES``.
    seed : int
        Seed of the split, and of random graphs.
    protocol : Protocol
        How fits are done.
    quick : bool
        Whether coarse meshes will do.
    """
    return {name: FIGURES[name].task(seed, protocol, quick) for name in names}


def draw_figure(name: str, out: Path, result: dict[str, Any], seconds: float) -> str:
    """Draw one figure: PNG, PDF, and JSON with its caption and numbers.

    Parameters
    ----------
    name : str
        Key of ``FIGURES``.
    out : Path
        Folder for the files.
    result : dict
        What its task returned.
    seconds : float
        What the task took.

    Returns
    -------
    str
        What was written, with the caption.
    """
    import matplotlib.pyplot as plt

    plan = FIGURES[name]
    caption = plan.caption(result)
    with plt.rc_context({"font.size": 10, "savefig.dpi": 200}):
        figure = plan.draw(result)
        for form in ("png", "pdf"):
            with replacing(out / f"{name}.{form}") as temporary:
                figure.savefig(temporary, format=form)
    plt.close(figure)
    content = {"caption": caption, "seconds": seconds, "environment": environment()}
    write_json(out / f"{name}.json", content | {"result": plan.facts(result)})
    return f"{name}.png, {name}.pdf: {caption}"
