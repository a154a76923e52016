"""Figures 5 to 8: topics of Cora's papers, as they are, as predicted, and where the two differ."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from graphmatern.plotting import CLASS_COLOURS
from graphmatern.reproduce._cora import cora_codes, cora_data, split_papers, topic_probabilities
from graphmatern.reproduce._kernels import Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from graphmatern.graph import Graph

    Floats = NDArray[np.float64]

__all__ = ["cora_map", "draw_cora_errors", "draw_cora_prediction", "draw_cora_triple", "draw_cora_truth"]

_WRONG, _RIGHT, _KNOWN = "#D55E00", "0.75", "black"


def cora_map(seed: int, protocol: dict[str, Any], rounds: int) -> dict[str, Any]:
    """Predictions of the Matérn kernel on Δ for every paper, and places on paper for all of them."""
    graph = cora_data().graph
    topics, codes = cora_codes()
    train, _ = split_papers(seed, len(codes))
    share, _ = topic_probabilities("matern", "plain", train, Protocol(**protocol))
    predicted = share.argmax(axis=1)
    hidden = np.setdiff1d(np.arange(len(codes)), train)
    return {
        "topics": topics,
        "truth": codes.tolist(),
        "predicted": predicted.tolist(),
        "train": train.tolist(),
        "accuracy_without_training_papers": float(np.mean(predicted[hidden] == codes[hidden])),
        "places": places_on_paper(graph, rounds).round(4).tolist(),
    }


def places_on_paper(graph: Graph, rounds: int) -> Floats:
    """Places in the plane that keep near what is few citations apart (t-SNE on shortest paths)."""
    from sklearn.manifold import TSNE

    # From the two smoothest eigenvectors, so that the outcome does not hang on chance.
    start = graph.spectrum(3, normalized=True).eigenvectors[:, 1:]
    start = 1e-4 * start / start.std(axis=0)
    engine = TSNE(2, perplexity=40.0, init=start, metric="precomputed", max_iter=rounds, random_state=0)
    return np.asarray(engine.fit_transform(graph.distances(graph.nodes)), dtype=np.float64)


# ---------------------------------------------------------------------- drawing
def _draw_nodes(ax: Axes, result: dict[str, Any], colours: Any, size: float, marked: Any = None) -> None:
    from matplotlib.collections import LineCollection

    places = np.array(result["places"])
    source, target = cora_data().graph.weights.nonzero()
    once = source < target
    lines = np.stack([places[source[once]], places[target[once]]], axis=1)
    thin = 0.15 * float(np.sqrt(size))
    ax.add_collection(LineCollection(list(lines), colors="0.85", linewidths=thin, zorder=1, rasterized=True))
    x, y = places.T
    ax.scatter(x, y, c=colours, s=size, linewidths=0, zorder=2)
    if marked is not None:
        ax.scatter(x[marked], y[marked], s=2.5 * size, facecolors="none", edgecolors="black", linewidths=0.7, zorder=3)
    ax.set_aspect(1.0)
    ax.set_axis_off()


def _truth(ax: Axes, result: dict[str, Any], size: float) -> None:
    _draw_nodes(ax, result, np.array(CLASS_COLOURS)[result["truth"]], size)


def _prediction(ax: Axes, result: dict[str, Any], size: float) -> None:
    _draw_nodes(ax, result, np.array(CLASS_COLOURS)[result["predicted"]], size, marked=result["train"])


def _errors(ax: Axes, result: dict[str, Any], size: float) -> None:
    wrong = np.array(result["truth"]) != np.array(result["predicted"])
    colours = np.where(wrong, _WRONG, _RIGHT).astype(object)
    colours[result["train"]] = _KNOWN
    _draw_nodes(ax, result, colours.tolist(), size)


def _legend(figure: Figure, names: dict[str, str], columns: int) -> None:
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], marker="o", linestyle="none", color=colour, label=name) for name, colour in names.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=columns, frameon=False)


def _topic_names(result: dict[str, Any]) -> dict[str, str]:
    names = [topic.replace("_", " ") for topic in result["topics"]]
    return dict(zip(names, CLASS_COLOURS, strict=False))


_ERROR_NAMES = {"predicted right": _RIGHT, "predicted wrong": _WRONG, "training paper": _KNOWN}


def draw_cora_triple(result: dict[str, Any]) -> Figure:
    """Figure 5: truth, prediction and errors side by side."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(15, 5.8), layout="constrained")
    for ax, draw, title in zip(axes, (_truth, _prediction, _errors), ("truth", "prediction", "errors"), strict=True):
        draw(ax, result, 7.0)
        ax.set_title(title)
    _legend(figure, _topic_names(result) | _ERROR_NAMES, 5)
    return figure


def _single(
    draw: Callable[[Axes, dict[str, Any], float], None], result: dict[str, Any], names: dict[str, str]
) -> Figure:
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots(figsize=(8, 8), layout="constrained")
    draw(ax, result, 14.0)
    _legend(figure, names, 4)
    return figure


def draw_cora_truth(result: dict[str, Any]) -> Figure:
    """Figure 6."""
    return _single(_truth, result, _topic_names(result))


def draw_cora_prediction(result: dict[str, Any]) -> Figure:
    """Figure 7."""
    return _single(_prediction, result, _topic_names(result))


def draw_cora_errors(result: dict[str, Any]) -> Figure:
    """Figure 8."""
    return _single(_errors, result, _ERROR_NAMES)


CAPTIONS = {
    "figure5": "Topics of Cora's papers: truth, prediction of a Matérn process on the citation graph from 140 labelled "
    "papers (rings), and errors; {accuracy:.1%} of the others are right. Papers a few citations apart are "
    "drawn near each other.",
    "figure6": "True topics of the 2,485 papers of Cora's largest component.",
    "figure7": "Topics predicted by a Matérn process on the citation graph from 140 labelled papers (rings).",
    "figure8": "Errors of the prediction, {wrong:,} of {hidden:,} papers: they occur where topics meet.",
}


def caption(name: str, result: dict[str, Any]) -> str:
    """Caption of a figure with its numbers."""
    hidden = len(result["truth"]) - len(result["train"])
    accuracy = result["accuracy_without_training_papers"]
    return CAPTIONS[name].format(accuracy=accuracy, hidden=hidden, wrong=round((1 - accuracy) * hidden))
