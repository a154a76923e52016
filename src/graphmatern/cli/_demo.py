"""The demonstration: a city, predictions from a few sensors, kernels, draws from the prior."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console
from rich.table import Table
from tqdm import tqdm

from graphmatern.estimators import GraphGPRegressor
from graphmatern.graph import Graph, make_roads
from graphmatern.kernels import BoundKernel, Diffusion, InverseCosine, Matern, RandomWalk
from graphmatern.plotting import plot_field, plot_kernel

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.figure import Figure
    from numpy.typing import NDArray

__all__ = ["run_demo"]

_SENSORS = 300
_NOISE = 0.2  # standard deviation, in units of the field


def _kernels() -> dict[str, Matern | Diffusion | RandomWalk | InverseCosine]:
    return {
        "Matérn, ν = 3/2, κ = 15": Matern(nu=1.5, lengthscale=15.0),
        "Diffusion, κ = 8": Diffusion(lengthscale=8.0),
        "Random walk, 60 steps": RandomWalk(steps=60, laziness=0.5),
        "Inverse cosine": InverseCosine(),
    }


def run_demo(out: Path, seed: int) -> None:
    """Draw the pictures and print what they show.

    Parameters
    ----------
    out : Path
        Folder for the pictures; made where it is absent.
    seed : int
        Seed of the city, of the field and of the sensors.
    """
    console = Console()
    out.mkdir(parents=True, exist_ok=True)
    steps = tqdm(total=5, bar_format="{desc:<14}{bar:30} {n}/{total}", disable=None)

    steps.set_description("city")
    city = make_roads(2_000, seed=seed)
    steps.update()

    steps.set_description("prediction")
    truth, sensors, model = _learn_from_sensors(city, seed)
    _prediction_figure(city, truth, sensors, model).savefig(out / "prediction.png", dpi=150)
    steps.update()

    steps.set_description("spectra")
    bound = {title: kernel.on(city) for title, kernel in _kernels().items()}
    steps.update()

    steps.set_description("kernels")
    _kernel_figure(bound, _centre(city)).savefig(out / "kernels.png", dpi=150)
    steps.update()

    steps.set_description("prior samples")
    _sample_figure(city, seed).savefig(out / "prior_samples.png", dpi=150)
    steps.update()
    steps.close()

    console.print(_prediction_table(city, truth, sensors, model))
    console.print(_kernel_table(city, bound))
    console.print(f"Pictures: prediction.png, kernels.png, prior_samples.png in {out}/", soft_wrap=True)
    console.print(f"Try next: `graphmatern demo --seed {seed + 1}`, or the example in the README.", soft_wrap=True)


def _learn_from_sensors(city: Graph, seed: int) -> tuple[NDArray[np.float64], NDArray[np.int64], GraphGPRegressor]:
    """Draw a field, observe it at a few junctions with noise, and fit."""
    rng = np.random.default_rng(seed)
    truth = Matern(nu=2, lengthscale=20.0).on(city).sample(random_state=seed).numpy()[0]
    sensors = np.sort(rng.choice(city.n_nodes, _SENSORS, replace=False))
    y = truth[sensors] + _NOISE * rng.standard_normal(_SENSORS)
    return truth, sensors, GraphGPRegressor(city, verbose=False).fit(city.nodes[sensors], y)


def _prediction_figure(
    city: Graph, truth: NDArray[np.float64], sensors: NDArray[np.int64], model: GraphGPRegressor
) -> Figure:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(16, 5), layout="constrained")
    mean, std = model.predict(return_std=True)
    limits = (float(truth.min()), float(truth.max()))
    plot_field(city, truth, axes[0], label="value", limits=limits).set_title("the truth")
    plot_field(city, mean, axes[1], label="value", limits=limits).set_title(f"predicted from {_SENSORS} sensors")
    plot_field(city, std, axes[2], label="standard deviation", cmap="magma").set_title("how sure")
    assert city.positions is not None
    x, y = city.positions[sensors].T
    for ax in axes[1:]:
        ax.scatter(x, y, s=6, color="black", zorder=3, linewidths=0)
    return figure


def _prediction_table(
    city: Graph, truth: NDArray[np.float64], sensors: NDArray[np.int64], model: GraphGPRegressor
) -> Table:
    """Compare predictions at junctions without a sensor with the known truth."""
    hidden = np.setdiff1d(np.arange(city.n_nodes), sensors)
    mean, std = model.predict(city.nodes[hidden], return_std=True)
    error = np.abs(mean - truth[hidden])
    spread = float(np.sqrt(np.mean((truth[hidden] - truth[sensors].mean()) ** 2)))
    table = Table(title=f"{len(hidden):,} junctions predicted from {len(sensors)} sensors", title_justify="left")
    table.add_column("measure")
    table.add_column("value", justify="right")
    table.add_row("error of the sensors' mean", f"{spread:.3f}")
    table.add_row("error of the prediction", f"{float(np.sqrt(np.mean(error**2))):.3f}")
    for level, factor in ((50, 0.674), (95, 1.960)):
        table.add_row(f"truth inside {level} % intervals", f"{100 * float(np.mean(error < factor * std)):.1f} %")
    return table


def _centre(city: Graph) -> object:
    """Name of the junction nearest to the middle of the map."""
    assert city.positions is not None
    offset = city.positions - city.positions.mean(axis=0)
    return city.nodes[int(np.argmin((offset**2).sum(axis=1)))]


def _kernel_figure(bound: dict[str, BoundKernel], centre: object) -> Figure:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, 2, figsize=(11, 9), layout="constrained")
    for ax, (title, kernel) in zip(axes.flat, bound.items(), strict=True):
        plot_kernel(kernel, centre, ax).set_title(title)
    figure.suptitle("Covariance with the junction marked ×")
    return figure


def _sample_figure(city: Graph, seed: int) -> Figure:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, 2, figsize=(11, 9), layout="constrained")
    for ax, (nu, lengthscale) in zip(axes.flat, [(1, 4.0), (1, 20.0), (3, 4.0), (3, 20.0)], strict=True):
        draw = Matern(nu=nu, lengthscale=lengthscale).on(city).sample(random_state=seed).numpy()[0]
        plot_field(city, draw, ax, label="value", limits=(-3.0, 3.0), cmap="coolwarm")
        ax.set_title(f"ν = {nu}, κ = {lengthscale:g}")
    figure.suptitle("Draws from the Matérn prior, from the same random numbers")
    return figure


def _kernel_table(city: Graph, bound: dict[str, BoundKernel]) -> Table:
    """Table of what each kernel's parameters mean on this map."""
    table = Table(title=f"kernels on {city.n_nodes:,} junctions, {city.n_edges:,} roads", title_justify="left")
    table.add_column("kernel")
    for heading in ("corr. ½ at", "corr. ⅒ at", "var. from", "to"):
        table.add_column(heading, justify="right")
    for title, kernel in bound.items():
        found = kernel.range()
        variance = kernel.diag().detach().numpy()
        distances = [f"{d:,.0f} m" if np.isfinite(d) else "off the map" for d in (found.half, found.tenth)]
        table.add_row(title, *distances, f"{variance.min():.2f}", f"{variance.max():.2f}")
    return table
