"""The Cora experiment: topics of 1,000 papers from those of 140 others."""

from __future__ import annotations

import time
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import splu

from graphmatern.datasets import load_cora
from graphmatern.reproduce._kernels import Protocol

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from graphmatern.datasets import Dataset
    from graphmatern.graph import Graph

    Floats = NDArray[np.float64]
    Codes = NDArray[np.int64]

__all__ = ["classification_scores", "cora_codes", "cora_data", "cora_split", "split_papers", "topic_probabilities"]

_N_TRAIN, _N_TEST = 140, 1000


@cache
def cora_data() -> Dataset:
    """Load the citations and topics, once per process."""
    return load_cora()


def split_papers(seed: int, n: int) -> tuple[Codes, Codes]:
    """Numbers of the training and of the test papers, in ascending order of paper numbers."""
    order = np.random.default_rng(seed).permutation(n)
    return order[:_N_TRAIN], order[_N_TRAIN : _N_TRAIN + _N_TEST]


def classification_scores(truth: Codes, probabilities: Floats, n_bins: int = 10) -> dict[str, float]:
    """Accuracy, log loss, and the mean gap between confidence and accuracy over classes of confidence."""
    chosen, confidence = probabilities.argmax(axis=1), probabilities.max(axis=1)
    right = chosen == truth
    of_truth = probabilities[np.arange(len(truth)), truth]
    bins = np.minimum((confidence * n_bins).astype(int), n_bins - 1)
    gaps = np.bincount(bins, right - confidence, n_bins)
    return {
        "accuracy": float(right.mean()),
        "log_loss": float(-np.log(np.maximum(of_truth, 1e-12)).mean()),
        "calibration_error": float(np.abs(gaps).sum() / len(truth)),
    }


@cache
def cora_codes() -> tuple[list[str], Codes]:
    """Names of the topics, and the number of every paper's."""
    topics, codes = np.unique(cora_data().values.to_numpy(), return_inverse=True)
    return [str(topic) for topic in topics], codes


def topic_probabilities(
    method: str, laplacian: str, train: Codes, protocol: Protocol
) -> tuple[Floats, dict[str, float]]:
    """Probabilities of the topics at every node, and what was learned."""
    graph = cora_data().graph
    topics, codes = cora_codes()
    return _BASELINES[method](graph, train, codes[train], len(topics)), {}


def cora_split(method: str, laplacian: str, seed: int, protocol: dict[str, Any]) -> dict[str, Any]:
    """Scores of one method on one split, and what was learned."""
    _, codes = cora_codes()
    train, test = split_papers(seed, len(codes))
    settings = Protocol(**protocol)
    if laplacian != "none":
        # Computed once per process, and not counted.
        cora_data().graph.spectrum(settings.n_eigenpairs, laplacian == "normalized")
    start = time.perf_counter()
    share, learned = topic_probabilities(method, laplacian, train, settings)
    seconds = time.perf_counter() - start
    return {"scores": classification_scores(codes[test], share[test]), "learned": learned, "seconds": seconds}


# ---------------------------------------------------------------------- baselines: probabilities at all nodes
def _propagated(graph: Graph, train: Codes, codes: Codes, n_classes: int) -> Floats:
    """Label propagation (Zhu and Ghahramani, 2002): every unlabelled node has the mean of its neighbours."""
    hidden = np.setdiff1d(np.arange(graph.n_nodes), train)
    laplacian = sp.csr_array(graph.laplacian())
    known = np.eye(n_classes)[codes]
    share = np.empty((graph.n_nodes, n_classes))
    share[train] = known
    share[hidden] = splu(sp.csc_matrix(laplacian[hidden][:, hidden])).solve(-(laplacian[hidden][:, train] @ known))
    return share


def _nearest_labels(graph: Graph, train: Codes, codes: Codes, n_classes: int) -> Floats:
    """The labelled nodes at the least number of citations vote; one vote is shared by all classes."""
    distance = graph.distances(graph.nodes[train])
    votes = (distance == distance.min(axis=0)).T @ np.eye(n_classes)[codes] + 1.0 / n_classes
    return np.asarray(votes / votes.sum(axis=1, keepdims=True))


_BASELINES = {"propagation": _propagated, "neighbours": _nearest_labels}
