"""The demonstration: a city and handwritten digits, next to methods that do not use the graph."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from tqdm import tqdm

from graphmatern.cli import _demo_city as on_roads
from graphmatern.cli import _demo_digits as on_digits

if TYPE_CHECKING:
    from pathlib import Path

    from rich.table import Table

__all__ = ["run_demo"]


def run_demo(out: Path, seed: int) -> None:
    """Draw the pictures and print what they show.

    Parameters
    ----------
    out : Path
        Folder for the pictures; made where it is absent.
    seed : int
        Seed of the city, of its traffic, of the sensors and of the labels.
    """
    console = Console()
    out.mkdir(parents=True, exist_ok=True)
    steps: tqdm[Any]
    with tqdm(total=7 + on_digits.DRAWS, bar_format="{desc:<22}{bar:30} {n}/{total}", disable=None) as steps:
        tables = [_city(out, seed, steps), _digits(out, seed, steps)]
        steps.set_description("done")
    for table in tables:
        console.print(table)
        console.print()
    console.print(f"Pictures: city.png, prediction.png, kernels.png, digits.png in {out}/", soft_wrap=True)
    console.print(
        "Try next: your own network. `graphmatern fit roads.csv values.csv --out model.gm --predict map.csv` "
        "takes two tables; `graphmatern fit --help` says more, and the README has it in Python.",
        soft_wrap=True,
        highlight=False,
    )
    console.print(f"Explore the city: open {out / 'city.html'} in a browser.", soft_wrap=True)


def _city(out: Path, seed: int, steps: tqdm[Any]) -> Table:
    """Traffic in a city, by road and by straight-line distance."""
    steps.set_description("city")
    data = on_roads.measure_city(seed)
    steps.update()
    steps.set_description("GP on the roads")
    model = on_roads.fit_graph(data)
    by_road = model.predict(return_std=True)
    steps.update()
    steps.set_description("GP on the map")
    by_map = on_roads.fit_euclidean(data)
    steps.update()
    steps.set_description("pictures of the city")
    on_roads.city_figure(data, by_road, by_map).savefig(out / "city.png", dpi=120)
    on_roads.prediction_figure(data, by_road).savefig(out / "prediction.png", dpi=120)
    steps.update()
    on_roads.kernel_figure(data.city).savefig(out / "kernels.png", dpi=120)
    steps.update()
    steps.set_description("page about the city")
    model.report(out / "city.html", title="Traffic in a city", unit="vehicles per minute", length_unit="m")
    steps.update()
    return on_roads.city_table(data, {"GP on the map (scikit-learn)": by_map, "graph GP (GraphGPRegressor)": by_road})


def _digits(out: Path, seed: int, steps: tqdm[Any]) -> Table:
    """Handwritten digits, with and without the graph of their neighbours."""
    steps.set_description("digits")
    digits = on_digits.read_digits()
    scores = on_digits.score_baselines(digits, seed)
    steps.update()
    found, sure = [], []
    for labelled, others in digits.draws(seed):
        steps.set_description(f"GP on {len(labelled)} labels")
        probabilities = on_digits.classify(digits, labelled).predict_proba()
        right = probabilities.argmax(axis=1) == digits.targets  # classes are the digits, in order
        certain = np.argsort(-probabilities[others].max(axis=1))[: int(0.9 * len(others))]
        found.append(right[others].mean())
        sure.append(right[others[certain]].mean())
        if len(found) == 1:
            on_digits.digits_figure(digits, labelled, probabilities).savefig(out / "digits.png", dpi=120)
        steps.update()
    scores["graph GP (GraphGPClassifier)"] = float(np.mean(found))
    return on_digits.digits_table(scores, len(others), float(np.mean(sure)))
