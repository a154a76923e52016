"""The demonstration's second half: handwritten digits, five labels per class."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.table import Table
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.neighbors import KNeighborsClassifier
from sklearn.semi_supervised import LabelSpreading

from graphmatern.estimators import GraphGPClassifier
from graphmatern.graph import Graph
from graphmatern.plotting import plot_classes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Integers = NDArray[np.int64]

__all__ = ["DRAWS", "Digits", "classify", "digits_figure", "digits_table", "read_digits", "score_baselines"]

DRAWS = 3  # times that labels are drawn
_LABELS = 5  # per class
_NEIGHBOURS = 7  # scikit-learn's default for label spreading


@dataclass(frozen=True)
class Digits:
    """Pictures of digits, the graph of their nearest neighbours, and what they show.

    Attributes
    ----------
    pictures : ndarray, shape (n, 64)
        Brightness of 8 × 8 pixels.
    graph : Graph
        Pictures joined with those most like them.
    targets : ndarray of int64, shape (n,)
        The digits.
    """

    pictures: Floats
    graph: Graph
    targets: Integers

    def draws(self, seed: int) -> Iterator[tuple[Integers, Integers]]:
        """Labelled and other pictures, several times."""
        for draw in range(DRAWS):
            rng = np.random.default_rng([seed, draw])
            groups = [np.flatnonzero(self.targets == digit) for digit in range(10)]
            labelled = np.sort(np.concatenate([rng.choice(group, _LABELS, replace=False) for group in groups]))
            yield labelled, np.setdiff1d(np.arange(len(self.targets)), labelled)


def read_digits() -> Digits:
    """Read the 1,797 digits that come with scikit-learn, and find their neighbours."""
    bunch = load_digits()
    graph = Graph.from_points(bunch.data, n_neighbors=_NEIGHBOURS)
    return Digits(bunch.data, graph, bunch.target.astype(np.int64))


def classify(digits: Digits, labelled: Integers) -> GraphGPClassifier:
    """Fit the graph's classifier with its default settings."""
    return GraphGPClassifier(digits.graph, verbose=False).fit(labelled, digits.targets[labelled])


def score_baselines(digits: Digits, seed: int) -> dict[str, float]:
    """Mean accuracy of scikit-learn's methods, each with the best of its settings *on the test digits*.

    No user could choose so well: a method that beats them beats them however they are tuned.
    """
    scores: dict[str, list[list[Any]]] = {"k nearest neighbours": [], "label spreading": []}
    for labelled, others in digits.draws(seed):
        known, truth = digits.targets[labelled], digits.targets[others]
        row = []
        for k in (1, 2, 3, 5):
            model = KNeighborsClassifier(k).fit(digits.pictures[labelled], known)
            row.append(np.mean(model.predict(digits.pictures[others]) == truth))
        scores["k nearest neighbours"].append(row)
        partly = np.full(len(digits.targets), -1)
        partly[labelled] = known
        row = []
        for k in (5, _NEIGHBOURS, 10, 15):
            for alpha in (0.2, 0.5, 0.8, 0.95):
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", ConvergenceWarning)
                    # Pictures without a label on their island divide 0 by 0.
                    warnings.simplefilter("ignore", RuntimeWarning)
                    spread = LabelSpreading(kernel="knn", n_neighbors=k, alpha=alpha, max_iter=300)
                    spread.fit(digits.pictures, partly)
                row.append(np.mean(spread.transduction_[others] == truth))
        scores["label spreading"].append(row)
    return {name: float(np.mean(rows, axis=0).max()) for name, rows in scores.items()}


def digits_table(scores: dict[str, float], n_others: int, confident: float) -> Table:
    """Accuracies on the digits without a label."""
    title = f"{n_others:,} digits from {10 * _LABELS} labels (mean of {DRAWS} draws)"
    table = Table(title=title, title_justify="left")
    table.add_column("method")
    table.add_column("accuracy", justify="right")
    for name, score in scores.items():
        table.add_row(name, f"{100 * score:.1f} %")
    table.add_row("... on the 90 % it is surest of", f"{100 * confident:.1f} %")
    return table


def digits_figure(digits: Digits, labelled: Integers, probabilities: Floats) -> Figure:
    """Classes and uncertainty on the map of neighbours; below, the digits that are least certain."""
    import matplotlib.pyplot as plt

    figure = plt.figure(figsize=(15, 9.5), layout="constrained")
    parts: Any = figure.subfigures(2, 1, height_ratios=[4, 1])
    above, below = parts
    nodes: Any = digits.graph.nodes[labelled]
    plot_classes(digits.graph, probabilities, range(10), above.subplots(1, 2), marked=nodes)
    doubtful = np.argsort(probabilities.max(axis=1))[:12]
    for ax, k in zip(below.subplots(1, len(doubtful)), doubtful, strict=True):
        ax.imshow(digits.pictures[k].reshape(8, 8), cmap="gray_r")
        first, second = np.argsort(-probabilities[k])[:2]
        words = f"{first} or {second}?\nit is {digits.targets[k]}"
        ax.text(0.5, -0.05, words, transform=ax.transAxes, ha="center", va="top", fontsize=9)
        ax.set_axis_off()
    below.suptitle("the twelve it is least sure of", fontsize="large")
    return figure
