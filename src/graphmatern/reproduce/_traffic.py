"""The traffic experiment: speeds at 75 sensors from those at 250 others."""

from __future__ import annotations

import time
import warnings
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from graphmatern import metrics
from graphmatern.datasets import load_traffic
from graphmatern.errors import NumericalWarning
from graphmatern.estimators import GraphGPRegressor
from graphmatern.reproduce._kernels import Protocol, learned_values, starting_kernels

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from graphmatern.datasets import Dataset
    from graphmatern.graph import Graph

    Floats = NDArray[np.float64]

__all__ = ["fit_traffic", "split_sensors", "traffic_data", "traffic_split"]

_N_TRAIN = 250
_NEIGHBOURS = range(1, 11)


@cache
def traffic_data(geometry: bool = False) -> Dataset:
    """Load the graph and the speeds, once per process."""
    return load_traffic(geometry=geometry)


def split_sensors(seed: int, n: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows of the training and of the test sensors."""
    order = np.random.default_rng(seed).permutation(n)
    return order[:_N_TRAIN], order[_N_TRAIN:]


def fit_traffic(
    graph: Graph, nodes: Any, y: Floats, method: str, normalized: bool, protocol: Protocol
) -> GraphGPRegressor:
    """Fit by the paper's protocol: zero mean, y standardised by the training data, noise learned."""
    by_paper = protocol.recipe == "paper"
    best: GraphGPRegressor | None = None
    for kernel in starting_kernels(method, protocol.walk_steps):
        model = GraphGPRegressor(
            graph,
            kernel,
            normalized=normalized,
            engine="spectral",
            n_eigenpairs=protocol.n_eigenpairs,
            mean="zero",
            noise=1.0 if by_paper else None,
            optimizer="adam" if by_paper else "lbfgs",
            max_iterations=protocol.adam_steps if by_paper else 200,
            learning_rate=protocol.adam_rate,
            integrate=False,  # the paper plugs in
            verbose=False,
        )
        with warnings.catch_warnings():
            # The paper's protocol: eigenpairs are left out, and Adam stops after its steps, converged or not.
            warnings.filterwarnings("ignore", "the eigenpairs used lose", NumericalWarning)
            if by_paper:
                warnings.filterwarnings("ignore", "the fit stopped early", NumericalWarning)
            model.fit(nodes, y)
        if best is None or model.log_marginal_likelihood_ > best.log_marginal_likelihood_:
            best = model
    assert best is not None
    return best


def traffic_split(method: str, laplacian: str, seed: int, protocol: dict[str, Any]) -> dict[str, Any]:
    """Scores of one method on one split, in miles per hour, and what was learned."""
    data = traffic_data()
    names, speeds = data.values.index, data.values.to_numpy()
    train, test = split_sensors(seed, len(speeds))
    settings = Protocol(**protocol)
    learned: dict[str, float] = {}
    if laplacian == "none":
        start = time.perf_counter()
        mean, std = _BASELINES[method](data.graph, names[train], speeds[train], names[test])
    else:
        normalized = laplacian == "normalized"
        data.graph.spectrum(settings.n_eigenpairs, normalized)  # computed once per process, and not counted
        start = time.perf_counter()
        model = fit_traffic(data.graph, names[train], speeds[train], method, normalized, settings)
        mean, std = model.predict(names[test], return_std=True, observation=True)
        learned = learned_values(model.kernel_) | {
            "noise": model.noise_,
            "log_marginal_likelihood": model.log_marginal_likelihood_,
            "n_evaluations": model.n_evaluations_,
        }
    seconds = time.perf_counter() - start
    return {"scores": metrics.regression_report(speeds[test], mean, std), "learned": learned, "seconds": seconds}


# ---------------------------------------------------------------------- baselines
def _training_mean(graph: Graph, nodes: Any, y: Floats, asked: Any) -> tuple[Floats, Floats]:  # noqa: ARG001
    return np.full(len(asked), y.mean()), np.full(len(asked), y.std(ddof=1))


def _nearest_sensors(graph: Graph, nodes: Any, y: Floats, asked: Any) -> tuple[Floats, Floats]:
    """Mean of the k nearest sensors by road; k and the spread by leaving out one sensor after the other."""
    distance = graph.distances(nodes)
    among = distance[:, graph.locate(nodes)].copy()
    np.fill_diagonal(among, np.inf)
    order = np.argsort(among, axis=0, kind="stable")
    errors = {k: metrics.rmse(y, y[order[:k]].mean(axis=0)) for k in _NEIGHBOURS}
    k = min(errors, key=errors.__getitem__)
    nearest = np.argsort(distance[:, graph.locate(asked)], axis=0, kind="stable")[:k]
    return y[nearest].mean(axis=0), np.full(len(asked), errors[k])


def _on_coordinates(graph: Graph, nodes: Any, y: Floats, asked: Any) -> tuple[Floats, Floats]:
    """Matérn process on the plane, which does not know the roads."""
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

    assert graph.positions is not None
    degrees = graph.positions - graph.positions.mean(axis=0)
    latitude = np.radians(graph.positions[:, 1].mean())
    kilometres = 111.2 * degrees * [np.cos(latitude), 1.0]
    kernel = ConstantKernel(1.0) * Matern(2.0, nu=1.5) + WhiteKernel(0.1, (1e-4, 1e2))
    model = GaussianProcessRegressor(kernel, normalize_y=True).fit(kilometres[graph.locate(nodes)], y)
    mean, std = model.predict(kilometres[graph.locate(asked)], return_std=True)
    return mean, std


_BASELINES = {"mean": _training_mean, "neighbours": _nearest_sensors, "euclidean": _on_coordinates}
