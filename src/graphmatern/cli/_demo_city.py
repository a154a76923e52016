"""The demonstration's first half: a city whose map misleads, measured by a few hundred sensors."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.table import Table

from graphmatern.estimators import GraphGPRegressor
from graphmatern.graph import Graph, make_city
from graphmatern.kernels import Diffusion, InverseCosine, Matern, RandomWalk
from graphmatern.metrics import coverage, rmse
from graphmatern.plotting import UNSURE, plot_field, plot_kernel, plot_prediction

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = [
    "Measurements",
    "city_figure",
    "city_table",
    "fit_euclidean",
    "fit_graph",
    "kernel_figure",
    "measure_city",
    "prediction_figure",
]

_JUNCTIONS = 2_200  # drawn; about 2,000 stay
_SENSORS = 300
_CENTRES = 8  # shops, stations, a stadium: where traffic comes from
_REACH = 1_300.0  # metres by road at which the traffic of a centre has fallen to 60 %


@dataclass(frozen=True)
class Measurements:
    """A city, how busy its junctions truly are, and what the sensors say.

    Attributes
    ----------
    city : Graph
        The streets.
    truth : ndarray, shape (n_nodes,)
        Vehicles per minute.
    sensors : ndarray of int64, shape (n_sensors,)
        Junctions with a sensor.
    y : ndarray, shape (n_sensors,)
        What they measure, with noise.
    """

    city: Graph
    truth: Floats
    sensors: NDArray[np.int64]
    y: Floats

    @property
    def hidden(self) -> NDArray[np.int64]:
        """Junctions without a sensor."""
        return np.setdiff1d(np.arange(self.city.n_nodes), self.sensors)


def measure_city(seed: int) -> Measurements:
    """Make a city and its traffic, which spreads from a few centres along the roads.

    The traffic is not drawn from a Gaussian process: it falls with the distance by road.
    """
    rng = np.random.default_rng(seed)
    city = make_city(_JUNCTIONS, seed=seed)
    centres = rng.choice(city.n_nodes, _CENTRES, replace=False)
    by_road = city.distances(city.nodes[centres])
    shape = rng.uniform(0.5, 1.5, _CENTRES) @ np.exp(-0.5 * (by_road / _REACH) ** 2)
    truth = 5.0 + 10.0 * shape / shape.std()
    sensors = np.sort(rng.choice(city.n_nodes, _SENSORS, replace=False))
    return Measurements(city, truth, sensors, truth[sensors] + rng.standard_normal(_SENSORS))


def fit_graph(data: Measurements) -> GraphGPRegressor:
    """Learn from the sensors, by the roads."""
    return GraphGPRegressor(data.city, verbose=False).fit(data.city.nodes[data.sensors], data.y)


def fit_euclidean(data: Measurements) -> tuple[Floats, Floats]:
    """Mean and standard deviation at all junctions, by straight-line distance.

    scikit-learn's Gaussian process with the Matérn smoothness, lengthscale, variance and noise of largest marginal
    likelihood.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import ConstantKernel, WhiteKernel
    from sklearn.gaussian_process.kernels import Matern as EuclideanMatern

    assert data.city.positions is not None
    places = data.city.positions / 1_000.0
    fits = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a parameter at its bound does no harm
        for nu in (0.5, 1.5, 2.5):
            kernel = ConstantKernel() * EuclideanMatern(nu=nu) + WhiteKernel(0.1)
            model = GaussianProcessRegressor(kernel, normalize_y=True, n_restarts_optimizer=2, random_state=0)
            fits.append(model.fit(places[data.sensors], data.y))
    best = max(fits, key=lambda model: float(model.log_marginal_likelihood_value_))
    mean, std = best.predict(places, return_std=True)
    noise = best.kernel_.k2.noise_level * data.y.var()  # of an observation, not of the process
    return mean, np.sqrt(np.maximum(std**2 - noise, 1e-12))


def city_table(data: Measurements, fits: dict[str, tuple[Floats, Floats]]) -> Table:
    """Scores at the junctions without a sensor, against the truth."""
    hidden = data.hidden
    title = f"{len(hidden):,} junctions predicted from {len(data.sensors)} sensors"
    # evidence/integration_uses.md has the coverage of eight such cities.
    caption = "This traffic was not drawn from a Gaussian process; over eight seeds, 91–97 %."
    table = Table(title=title, title_justify="left", caption=caption, caption_justify="left")
    table.add_column("method")
    table.add_column("RMSE", justify="right")
    table.add_column("truth in 95 % intervals", justify="right")
    known = data.truth[hidden]
    table.add_row("mean of the sensors", f"{rmse(known, np.full(len(hidden), data.y.mean())):.2f}", "")
    for name, (mean, std) in fits.items():
        share = coverage(known, mean[hidden], std[hidden])
        table.add_row(name, f"{rmse(known, mean[hidden]):.2f}", f"{100 * share:.1f} %")
    return table


def city_figure(data: Measurements, graph_fit: tuple[Floats, Floats], plane_fit: tuple[Floats, Floats]) -> Figure:
    """Truth, predictions, uncertainty and errors of both methods."""
    import matplotlib.pyplot as plt

    city, truth = data.city, data.truth
    figure, axes = plt.subplots(2, 3, figsize=(17, 10), layout="constrained")
    limits = (float(truth.min()), float(truth.max()))
    errors = [np.abs(mean - truth) for mean, _ in (graph_fit, plane_fit)]
    worst = (0.0, float(np.quantile(np.concatenate(errors), 0.99)))
    unit = "vehicles per minute"
    sensors = city.nodes[data.sensors]
    panels: list[tuple[Floats, str, dict[str, Any]]] = [  # column by column
        (truth, "the truth", {"limits": limits}),
        (graph_fit[1], "graph GP: how sure (standard deviation; pale: uncertain)", {"cmap": UNSURE[0]}),
        (graph_fit[0], f"graph GP, from {len(sensors)} sensors (rings)", {"limits": limits, "marked": sensors}),
        (plane_fit[0], "GP by straight-line distance", {"limits": limits}),
        (errors[0], "graph GP: error", {"limits": worst, "cmap": "cividis"}),
        (errors[1], "GP by straight-line distance: error", {"limits": worst, "cmap": "cividis"}),
    ]
    for ax, (values, title, options) in zip(axes.T.flat, panels, strict=True):
        plot_field(city, values, ax, label=unit, **options).set_title(title)
    return figure


def prediction_figure(data: Measurements, graph_fit: tuple[Floats, Floats]) -> Figure:
    """Truth, prediction and uncertainty in a row."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(17, 5), layout="constrained")
    limits = (float(data.truth.min()), float(data.truth.max()))
    sensors, unit = data.city.nodes[data.sensors], "vehicles per minute"
    plot_field(data.city, data.truth, axes[0], label=unit, limits=limits).set_title("the truth")
    plot_prediction(data.city, *graph_fit, axes[1:], label=unit, limits=limits, marked=sensors)
    axes[1].set_title(f"predicted from {len(sensors)} sensors (rings)")
    axes[2].set_title("how sure (standard deviation)")
    return figure


def kernel_figure(city: Graph) -> Figure:
    """Covariance with one junction near the water, for each kind of kernel."""
    import matplotlib.pyplot as plt

    kernels = {
        "Matérn, ν = 3/2, κ = 15": Matern(nu=1.5, lengthscale=15.0),
        "Diffusion, κ = 8": Diffusion(lengthscale=8.0),
        "Random walk, 60 steps": RandomWalk(steps=60, laziness=0.5),
        "Inverse cosine": InverseCosine(),
    }
    assert city.positions is not None
    middle = city.positions.mean(axis=0) * [0.75, 1.0]
    node = city.nodes[int(((city.positions - middle) ** 2).sum(axis=1).argmin())]
    figure, axes = plt.subplots(2, 2, figsize=(12, 10), layout="constrained")
    for ax, (title, kernel) in zip(axes.flat, kernels.items(), strict=True):
        bound = kernel.on(city)
        half = bound.range().half
        reach = f"correlation ½ at {half:,.0f} m" if np.isfinite(half) else "correlation never below ½"
        plot_kernel(bound, node, ax).set_title(f"{title}: {reach}")
    figure.suptitle("Covariance with the junction marked ×: it stays on its side of the water")
    return figure
