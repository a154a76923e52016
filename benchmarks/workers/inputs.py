"""Makes the files that all libraries read: graph, observations, truth. Runs in the project's own environment."""

from __future__ import annotations

import os
from pathlib import Path

import common
import numpy as np


def write(job, weights, **arrays):
    target = Path(job["input"])
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_suffix(f".{os.getpid()}.npz")
    np.savez(partial, indptr=weights.indptr, indices=weights.indices, data=weights.data, **arrays)
    partial.replace(target)
    return {"nodes": weights.shape[0]}


def traffic(job):
    """The paper's split: 250 sensors of 325, y standardised; parallel roads are summed."""
    import graphmatern as gm

    data = gm.datasets.load_traffic()
    names, speeds = data.values.index, data.values.to_numpy()
    order = np.random.default_rng(job["seed"]).permutation(len(speeds))
    train, test = order[:250], order[250:]
    mean, scale = speeds[train].mean(), speeds[train].std()
    return write(
        job,
        data.graph.weights.tocsr(),
        train=data.graph.locate(names[train]),
        y=(speeds[train] - mean) / scale,
        test=data.graph.locate(names[test]),
        test_y=speeds[test],
        y_mean=mean,
        y_scale=scale,
    )


def cora(job):
    """The paper's protocol: 140 papers of the largest component to learn from, 1,000 others to test on."""
    import graphmatern as gm

    data = gm.datasets.load_cora()
    labels = np.unique(data.values.loc[data.graph.nodes].to_numpy(), return_inverse=True)[1]
    order = np.random.default_rng(job["seed"]).permutation(data.graph.n_nodes)
    return write(job, data.graph.weights.tocsr(), labels=labels, train=order[:140], test=order[140:1140])


def roads(job):
    """A road-like graph with unit weights; a Matérn field (ν = 1, κ = 6, variance 1), a tenth of it seen with noise."""
    import graphmatern as gm
    from graphmatern.inference import MarkovPrecision

    weights = gm.make_roads(round(job["nodes"] * 1.028), seed=0).weights.tocsr()
    weights.data = np.ones_like(weights.data)
    graph = gm.Graph.from_adjacency(weights)
    precision = MarkovPrecision(graph, 1)
    factor = precision.analysis.factorize_lower(precision.polynomial.lower(precision.coefficients(6.0, 1.0)))
    rng = np.random.default_rng(0)
    field = factor.solve_upper(rng.standard_normal(graph.n_nodes))
    field /= np.sqrt(factor.diagonal_of_inverse().mean())
    train = np.sort(rng.choice(graph.n_nodes, graph.n_nodes // 10, replace=False))
    y = field[train] + 0.3 * rng.standard_normal(len(train))
    # Every library gets the same standardised values, and is judged in their units.
    return write(job, weights, train=train, y=(y - y.mean()) / y.std(), truth=(field - y.mean()) / y.std())


if __name__ == "__main__":
    common.run({"traffic": traffic, "cora": cora, "roads": roads})
