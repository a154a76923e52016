"""The demonstration: a city, kernels seen from one junction, draws from the prior."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console
from rich.table import Table
from tqdm import tqdm

from graphmatern.graph import Graph, make_roads
from graphmatern.kernels import BoundKernel, Diffusion, InverseCosine, Matern, RandomWalk
from graphmatern.plotting import plot_field, plot_kernel

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.figure import Figure

__all__ = ["run_demo"]


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
        Seed of the city and of the draws.
    """
    console = Console()
    out.mkdir(parents=True, exist_ok=True)
    steps = tqdm(total=4, desc="city", bar_format="{desc:<14}{bar:30} {n}/{total}", disable=None)

    city = make_roads(2_000, seed=seed)
    centre = _centre(city)
    steps.update()

    steps.set_description("spectra")
    bound = {title: kernel.on(city) for title, kernel in _kernels().items()}
    steps.update()

    steps.set_description("kernels")
    kernel_picture = out / "kernels.png"
    _kernel_figure(bound, centre).savefig(kernel_picture, dpi=150)
    steps.update()

    steps.set_description("prior samples")
    sample_picture = out / "prior_samples.png"
    _sample_figure(city, seed).savefig(sample_picture, dpi=150)
    steps.update()
    steps.close()

    console.print(_summary(city, bound))
    console.print(f"Pictures: {kernel_picture}, {sample_picture}", soft_wrap=True)
    console.print(f"Try next: `graphmatern demo --seed {seed + 1}`, or the example in the README.", soft_wrap=True)


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
        draw = Matern(nu=nu, lengthscale=lengthscale).on(city).sample(random_state=seed).detach().numpy()[0]
        plot_field(city, draw, ax, label="value", limits=(-3.0, 3.0), cmap="coolwarm")
        ax.set_title(f"ν = {nu}, κ = {lengthscale:g}")
    figure.suptitle("Draws from the Matérn prior, from the same random numbers")
    return figure


def _summary(city: Graph, bound: dict[str, BoundKernel]) -> Table:
    """Table of what each kernel's parameters mean on this map."""
    table = Table(title=f"{city.n_nodes:,} junctions, {city.n_edges:,} roads", title_justify="left")
    table.add_column("kernel")
    for heading in ("corr. ½ at", "corr. ⅒ at", "var. from", "to"):
        table.add_column(heading, justify="right")
    for title, kernel in bound.items():
        found = kernel.range()
        variance = kernel.diag().detach().numpy()
        distances = [f"{d:,.0f} m" if np.isfinite(d) else "off the map" for d in (found.half, found.tenth)]
        table.add_row(title, *distances, f"{variance.min():.2f}", f"{variance.max():.2f}")
    return table
