"""Figures 1 and 2: prior variances on small graphs, and the kernel on meshes of the sphere."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from graphmatern.graph import Graph
from graphmatern.kernels import Matern
from graphmatern.plotting import plot_variance
from graphmatern.reproduce._sphere import LENGTHSCALE, convergence, mesh_kernel, sphere_kernel

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

__all__ = ["draw_sphere", "draw_variances", "sphere_study", "variances"]

_NU, _KAPPA = 1.5, 5.0


# ---------------------------------------------------------------------- figure 1
def small_graphs(seed: int) -> dict[str, Graph]:
    """Complete graph, star, and two random graphs of 20 nodes."""
    import networkx as nx

    found = {
        "complete graph": nx.complete_graph(20),
        "star": nx.star_graph(19),
        "random tree": nx.random_labeled_tree(20, seed=seed),
        "random graph": nx.connected_watts_strogatz_graph(20, 4, 0.5, seed=seed),
    }
    return {title: Graph.from_networkx(graph) for title, graph in found.items()}


def variances(seed: int) -> dict[str, Any]:
    """Prior variance of every node of the small graphs."""
    kernel = Matern(_NU, _KAPPA)
    return {"seed": seed} | {
        title: {"variance": kernel.on(graph).diag().detach().tolist(), "degree": graph.weights.sum(axis=1).tolist()}
        for title, graph in small_graphs(seed).items()
    }


def draw_variances(result: dict[str, Any]) -> Figure:
    """Figure 1."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 4, figsize=(13, 3.2), layout="constrained")
    kernel = Matern(_NU, _KAPPA)
    for ax, (title, graph) in zip(axes, small_graphs(result["seed"]).items(), strict=True):
        plot_variance(kernel.on(graph), ax).set_title(title)
    return figure


# ---------------------------------------------------------------------- figure 2
def sphere_study(rounds: list[int], drawn: list[int], degree: int) -> dict[str, Any]:
    """Error against mesh size, and the kernels of the meshes that are drawn."""
    found = convergence(rounds, [1.5, 2.0], degree)
    meshes = [mesh_kernel(number, 1.5, degree) for number in drawn]
    found["degree"] = degree
    found["drawn"] = [{"vertices": v.round(6).tolist(), "values": k.round(6).tolist()} for v, k in meshes]
    return found


def draw_sphere(result: dict[str, Any]) -> Figure:
    """Figure 2: kernels on three meshes, on the sphere, and the error."""
    import matplotlib.pyplot as plt
    from matplotlib.colors import Normalize
    from scipy.spatial import cKDTree

    degree = result["degree"]
    figure = plt.figure(figsize=(15, 3.0), layout="constrained")
    axes = figure.subplots(1, 5, width_ratios=[1, 1, 1, 1, 1.25])
    points, inside = _globe()
    truth = sphere_kernel(points[:, 2], 1.5, degree)
    norm = Normalize(min(0.0, float(truth.min())), 1.0)
    for ax, mesh in zip(axes, result["drawn"], strict=False):
        vertices, values = np.array(mesh["vertices"]), np.array(mesh["values"])
        # A value holds in the Voronoi cell of its vertex: where that vertex is the nearest.
        _show(ax, inside, values[cKDTree(vertices).query(points)[1]], norm)
        ax.set_title(f"mesh of {len(vertices):,} nodes, $k_{{3/2}}$")
    picture = _show(axes[3], inside, truth, norm)
    axes[3].set_title("sphere, $k_{1/2}$")
    bar = figure.colorbar(picture, ax=list(axes[:4]), label="covariance with the north pole", shrink=0.8, aspect=25)
    bar.outline.set_visible(False)
    _draw_errors(axes[4], result)
    return figure


def _globe(pixels: int = 500, elevation: float = 40.0) -> tuple[Floats, NDArray[np.bool_]]:
    """Points of the sphere seen at the pixels of a square picture, and which pixels see it."""
    across = np.linspace(-1.0, 1.0, pixels)
    x, y = np.meshgrid(across, across)
    inside = x**2 + y**2 < 1.0
    depth = np.sqrt(1.0 - x[inside] ** 2 - y[inside] ** 2)
    tilt = np.radians(elevation)
    up = np.array([0.0, -np.sin(tilt), np.cos(tilt)])
    towards = np.array([0.0, np.cos(tilt), np.sin(tilt)])
    right = np.cross(up, towards)
    return np.outer(x[inside], right) + np.outer(y[inside], up) + np.outer(depth, towards), inside


def _show(ax: Axes, inside: NDArray[np.bool_], values: Floats, norm: Any) -> Any:
    picture = np.full(inside.shape, np.nan)
    picture[inside] = values
    ax.set_axis_off()
    return ax.imshow(picture, origin="lower", cmap="viridis", norm=norm, interpolation="none")


def _draw_errors(ax: Axes, result: dict[str, Any]) -> None:
    size = np.array(result["mesh_size"])
    for (nu, errors), style in zip(result["errors"].items(), ("o-", "s--"), strict=True):
        order = result["orders"][nu][-1]
        ax.loglog(size, errors, style, label=f"$\\nu_g = {nu}$: order {order:.2f}", markersize=5)
    guide = np.array(result["errors"]["2"])[-1] * 0.5 * (size / size[-1]) ** 2
    ax.loglog(size, guide, ":", color="0.5", label="order 2")
    ax.set(xlabel="mean length of an edge (radius 1)", ylabel="largest error at a node")
    ax.set_xticks(size, labels=[f"{value:.2g}" for value in size], minor=False)
    ax.set_xticks([], minor=True)
    ax.legend(frameon=False, fontsize="small")
    ax.spines[["top", "right"]].set_visible(False)


VARIANCE_CAPTION = (
    f"Prior variance of a Matérn process (ν = 3/2, κ = {_KAPPA:g}, average variance 1) on four graphs of 20 nodes. All "
    "nodes of the complete graph are alike; the centre of the star varies least; elsewhere the variance follows the "
    "shape of the graph, not the degree alone."
)
SPHERE_CAPTION = (
    "Covariance with the north pole: the Matérn kernel k₃⸝₂ on three meshes (cotangent weights, vertex areas as "
    "masses; the value of a node fills its Voronoi cell) and the kernel k₁⸝₂ of the sphere from spherical harmonics "
    f"(κ = {LENGTHSCALE:g}, κ_g = √3 κ, both truncated at the same degree). Right: the error against the mesh size."
)
