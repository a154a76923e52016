"""The Cora experiment: topics of 1,000 papers from those of 140 others."""

from __future__ import annotations

import time
import warnings
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import splu

from graphmatern import metrics
from graphmatern.datasets import load_cora
from graphmatern.errors import NumericalWarning
from graphmatern.estimators import GraphGPClassifier
from graphmatern.reproduce._kernels import Protocol, learned_values, starting_kernels

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from graphmatern.datasets import Dataset
    from graphmatern.graph import Graph

    Floats = NDArray[np.float64]
    Codes = NDArray[np.int64]

__all__ = ["cora_codes", "cora_data", "cora_split", "split_papers", "topic_probabilities"]

_N_TRAIN, _N_TEST = 140, 1000
_EPSILON = 1e-3


@cache
def cora_data() -> Dataset:
    """Load the citations and topics, once per process."""
    return load_cora()


def split_papers(seed: int, n: int) -> tuple[Codes, Codes]:
    """Numbers of the training and of the test papers, in ascending order of paper numbers."""
    order = np.random.default_rng(seed).permutation(n)
    return order[:_N_TRAIN], order[_N_TRAIN : _N_TRAIN + _N_TEST]


@cache
def cora_codes() -> tuple[list[str], Codes]:
    """Names of the topics, and the number of every paper's."""
    topics, codes = np.unique(cora_data().values.to_numpy(), return_inverse=True)
    return [str(topic) for topic in topics], codes


def fit_cora(
    graph: Graph, nodes: Any, topics: Any, method: str, normalized: bool, protocol: Protocol
) -> GraphGPClassifier:
    """Fit by the paper's protocol: robust-max with ε = 0.001, one process per topic with shared parameters."""
    by_paper = protocol.recipe == "paper"
    forms: dict[str, Any] = {"inference": "spectral", "max_iterations": protocol.max_iterations}
    if protocol.max_iterations == 0:
        forms = {"inference": "spectral", "optimizer": None}
    if by_paper:
        forms = {
            "inference": "inducing",
            "covariance": "diagonal",
            "optimizer": "adam",
            "n_steps": protocol.adam_steps,
            "learning_rate": protocol.adam_rate,
        }
    best: GraphGPClassifier | None = None
    for kernel in starting_kernels(method, protocol.walk_steps):
        model = GraphGPClassifier(
            graph,
            kernel,
            likelihood="robustmax",
            classes=cora_codes()[0],
            normalized=normalized,
            n_eigenpairs=protocol.n_eigenpairs,
            integrate=False,  # the paper plugs in
            random_state=0,
            verbose=False,
            **forms,
        )
        with warnings.catch_warnings():
            if by_paper:  # Adam stops after its steps, converged or not
                warnings.filterwarnings("ignore", "the fit stopped early", NumericalWarning)
            model.fit(nodes, topics)
        if best is None or model.elbo_ > best.elbo_:
            best = model
    assert best is not None
    return best


def topic_probabilities(
    method: str, laplacian: str, train: Codes, protocol: Protocol
) -> tuple[Floats, dict[str, float]]:
    """Probabilities of the topics at every node, and what was learned."""
    graph = cora_data().graph
    topics, codes = cora_codes()
    if laplacian == "none":
        return _BASELINES[method](graph, train, codes[train], len(topics)), {}
    names = [topics[code] for code in codes[train]]
    model = fit_cora(graph, graph.nodes[train], names, method, laplacian == "normalized", protocol)
    return model.predict_proba(), learned_values(model.kernel_) | {"elbo": model.elbo_}


def cora_split(method: str, laplacian: str, seed: int, protocol: dict[str, Any]) -> dict[str, Any]:
    """Scores of one method on one split, and what was learned."""
    topics, codes = cora_codes()
    train, test = split_papers(seed, len(codes))
    settings = Protocol(**protocol)
    if laplacian != "none":
        # Computed once per process, and not counted.
        cora_data().graph.spectrum(settings.n_eigenpairs, laplacian == "normalized")
    start = time.perf_counter()
    share, learned = topic_probabilities(method, laplacian, train, settings)
    seconds = time.perf_counter() - start
    truth = [topics[code] for code in codes[test]]
    scores = metrics.classification_report(truth, share[test], topics)
    return {"scores": scores, "learned": learned, "seconds": seconds}


# ---------------------------------------------------------------------- baselines: probabilities at all nodes
def _propagated(graph: Graph, train: Codes, codes: Codes, n_classes: int) -> Floats:
    """Label propagation (Zhu and Ghahramani, 2002): every unlabelled node has the mean of its neighbours."""
    hidden = np.setdiff1d(np.arange(graph.n_nodes), train)
    laplacian = sp.csr_array(graph.laplacian())
    known = np.eye(n_classes)[codes]
    share = np.empty((graph.n_nodes, n_classes))
    share[train] = known
    share[hidden] = splu(sp.csc_matrix(laplacian[hidden][:, hidden])).solve(-(laplacian[hidden][:, train] @ known))
    # Labels are wrong with the same small probability as under robust-max, so that no probability is 0.
    return (1.0 - _EPSILON) * share + _EPSILON / n_classes


def _nearest_labels(graph: Graph, train: Codes, codes: Codes, n_classes: int) -> Floats:
    """The labelled nodes at the least number of citations vote; one vote is shared by all classes."""
    distance = graph.distances(graph.nodes[train])
    votes = (distance == distance.min(axis=0)).T @ np.eye(n_classes)[codes] + 1.0 / n_classes
    return np.asarray(votes / votes.sum(axis=1, keepdims=True))


_BASELINES = {"propagation": _propagated, "neighbours": _nearest_labels}
