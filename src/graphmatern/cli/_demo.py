"""The demonstration: predictions in a city, beside methods that do not know its roads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console
from tqdm import tqdm

from graphmatern.cli import _demo_city as on_roads

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["run_demo"]


def run_demo(out: Path, seed: int) -> None:
    """Draw the pictures and print what they show.

    Parameters
    ----------
    out : Path
        Folder for the pictures; made where it is absent.
    seed : int
        Seed of the city, of its traffic and of the sensors.
    """
    console = Console()
    out.mkdir(parents=True, exist_ok=True)
    steps = tqdm(total=5, bar_format="{desc:<22}{bar:30} {n}/{total}", disable=None)

    steps.set_description("city")
    data = on_roads.measure_city(seed)
    steps.update()
    steps.set_description("GP on the roads")
    by_road = on_roads.fit_graph(data)
    steps.update()
    steps.set_description("GP on the map")
    by_map = on_roads.fit_euclidean(data)
    steps.update()
    steps.set_description("pictures of the city")
    on_roads.city_figure(data, by_road, by_map).savefig(out / "city.png", dpi=150)
    steps.update()
    on_roads.kernel_figure(data.city).savefig(out / "kernels.png", dpi=150)
    steps.update()
    steps.close()

    fits = {"GP on the map (scikit-learn)": by_map, "graph GP (GraphGPRegressor)": by_road}
    console.print(on_roads.city_table(data, fits))
    console.print(f"Pictures: city.png, kernels.png in {out}/", soft_wrap=True)
    console.print(f"Try next: `graphmatern demo --seed {seed + 1}`, or the example in the README.", soft_wrap=True)
