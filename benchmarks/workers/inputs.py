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


def rough(job):
    """As `roads`, with a smoothness that is no integer; drawn by polynomials of Δ, not by an engine under test."""
    import graphmatern as gm
    from graphmatern.sparse import ChebyshevProducts

    weights = gm.make_roads(round(job["nodes"] * 1.028), seed=0).weights.tocsr()
    weights.data = np.ones_like(weights.data)
    laplacian = gm.Graph.from_adjacency(weights).laplacian()
    largest, degree = 2.0 * float(weights.sum(axis=1).max()), 600
    points = np.cos(np.pi * (np.arange(2 * degree) + 0.5) / (2 * degree))
    root = (2.0 * job["nu"] / 36.0 + 0.5 * largest * (1.0 + points)) ** (-0.5 * job["nu"])
    coefficients = np.cos(np.outer(np.arange(degree), np.arccos(points))) @ root / degree
    coefficients[0] /= 2.0
    rng = np.random.default_rng(0)
    n = weights.shape[0]
    field = ChebyshevProducts(laplacian, 0.0, largest).apply(coefficients, rng.standard_normal((n, 1)))[:, 0]
    field /= np.sqrt(np.mean(field**2))
    train = np.sort(rng.choice(n, n // 10, replace=False))
    y = field[train] + 0.3 * rng.standard_normal(len(train))
    return write(job, weights, train=train, y=(y - y.mean()) / y.std(), truth=(field - y.mean()) / y.std())


def simulations(job):
    """Road-like graphs of 300 nodes, each with a field; parameters are drawn from given distributions."""
    import graphmatern as gm

    found = {}
    for number in range(job["count"]):
        rng = np.random.default_rng([2026, job["observed"], number])
        graph = gm.make_roads(308, seed=number)
        spread = rng.standard_normal(4)
        nu, lengthscale = 1.5 * np.exp(0.5 * spread[0]), 5.0 * np.exp(0.7 * spread[1])
        variance, noise = np.exp(0.5 * spread[2]), 0.1 * np.exp(1.0 * spread[3])
        field = gm.Matern(nu, lengthscale, variance).on(graph).sample(random_state=number).numpy()[0]
        train = np.sort(rng.choice(graph.n_nodes, job["observed"], replace=False))
        y = field[train] + np.sqrt(noise) * rng.standard_normal(len(train))
        weights = graph.weights.tocsr()
        one = {"indptr": weights.indptr, "indices": weights.indices, "data": weights.data, "train": train}
        one |= {"y": (y - y.mean()) / y.std(), "truth": (field - y.mean()) / y.std()}
        found |= {f"{number}/{name}": value for name, value in one.items()}
    return write(job, weights, count=job["count"], **found)


def digits(job):
    """scikit-learn's handwritten digits, the graph of 10 nearest neighbours, 5 labels of each."""
    from sklearn.datasets import load_digits

    points, labels = load_digits(return_X_y=True)
    return _points(job, points, labels, 10, 5, np.random.default_rng(job["seed"]))


def points(job):
    """Points in 50 dimensions, ten classes of three clumps each, 15 neighbours, 10 labels of each class."""
    rng = np.random.default_rng(0)
    centres = 0.55 * rng.standard_normal((10, 3, 50))
    labels = rng.integers(0, 10, job["nodes"])
    drawn = centres[labels, rng.integers(0, 3, len(labels))] + rng.standard_normal((len(labels), 50))
    return _points(job, drawn, labels, 15, 10 if job["nodes"] > 1000 else 2, rng)


def _points(job, points, labels, n_neighbours, n_labels, rng):
    import graphmatern as gm

    weights = gm.Graph.from_points(points, n_neighbours).weights.tocsr()
    chosen = [rng.choice(np.flatnonzero(labels == one), n_labels, replace=False) for one in np.unique(labels)]
    return write(job, weights, labels=labels, train=np.concatenate(chosen), points=points)


def citations(job):
    """Communities with a topic each, degrees of a power law: four of five citations stay within the topic.

    Seven topics of six communities; half of all citations stay within the community. Twenty labels of each topic.
    """
    import scipy.sparse as sp

    n, n_topics, n_communities = job["nodes"], 7, 6
    rng = np.random.default_rng(0)
    community = rng.integers(0, n_topics * n_communities, n)
    topic = community // n_communities
    strength = rng.pareto(2.5, n) + 1.0
    citing = rng.choice(n, 3 * n, p=strength / strength.sum())
    cited = np.empty_like(citing)
    kind = rng.choice(3, len(citing), p=[0.5, 0.3, 0.2])  # within the community, the topic, anywhere
    for wanted, groups in ((0, community), (1, topic), (2, np.zeros(n, int))):
        for group in np.unique(groups):
            own = np.flatnonzero((kind == wanted) & (groups[citing] == group))
            members = np.flatnonzero(groups == group)
            weight = strength[members] / strength[members].sum()
            cited[own] = rng.choice(members, len(own), p=weight)
    kept = citing != cited
    ones = np.ones(kept.sum())
    weights = sp.coo_array((ones, (citing[kept], cited[kept])), shape=(n, n)).tocsr()
    weights = sp.csr_array(weights + weights.T)
    weights.data[:] = 1.0
    part = sp.csgraph.connected_components(weights, directed=False)[1]
    largest = np.flatnonzero(part == np.bincount(part).argmax())
    weights, topic = sp.csr_array(weights[largest][:, largest]), topic[largest]
    chosen = [rng.choice(np.flatnonzero(topic == one), min(20, n // 50), replace=False) for one in range(n_topics)]
    return write(job, weights, labels=topic, train=np.concatenate(chosen))


def scotland(job):
    """Lip cancer in 56 districts: observed and expected cases, and the share of people who work outdoors."""
    import graphmatern as gm

    data = gm.datasets.load_scotland()
    table = data.values.loc[data.graph.nodes]
    return _areas(job, data.graph, table["observed"], table["expected"], table["aff"] / 10.0)


def areas(job):
    """A generated map: BYM2 with variance 0.36 and mixing 0.7, one covariate, about six expected cases each."""
    from scipy.spatial import Delaunay

    import graphmatern as gm
    from graphmatern.graph import IntrinsicFactor, intrinsic_structure

    rng = np.random.default_rng(0)
    points = rng.random((job["nodes"], 2))
    corners = Delaunay(points).simplices
    edges = np.unique(np.sort(np.vstack([corners[:, [0, 1]], corners[:, [1, 2]], corners[:, [0, 2]]]), axis=1), axis=0)
    lengths = np.hypot(*(points[edges[:, 0]] - points[edges[:, 1]]).T)
    graph = gm.Graph.from_edges(edges[lengths < np.quantile(lengths, 0.98)], nodes=range(job["nodes"]))
    if graph.n_components > 1:
        graph = graph.largest_component()
    n = graph.n_nodes
    structure = intrinsic_structure(graph)
    shared = IntrinsicFactor(structure).draw(1, rng)[:, 0] / np.sqrt(structure.scale)
    x, exposure = rng.standard_normal(n), rng.gamma(2.0, 3.0, n)
    field = 0.6 * (np.sqrt(0.3) * rng.standard_normal(n) + np.sqrt(0.7) * shared)
    return _areas(job, graph, rng.poisson(exposure * np.exp(-0.2 + 0.3 * x + field)), exposure, x)


def _areas(job, graph, cases, exposure, covariate):
    import graphmatern as gm

    scale = float(gm.BYM2.scaling_factors(graph).iloc[0])
    given = {"cases": cases, "exposure": exposure, "covariate": covariate}
    return write(
        job, graph.weights.tocsr(), scale=scale, **{name: np.asarray(one, float) for name, one in given.items()}
    )


def traffic_tables(job):
    """The traffic data as a user has them: two tables beside the file."""
    import graphmatern as gm

    data = gm.datasets.load_traffic()
    folder = Path(job["input"]).parent
    folder.mkdir(parents=True, exist_ok=True)
    data.graph.edges[["source", "target", "length"]].to_csv(folder / "traffic-roads.csv", index=False)
    data.values.rename("speed").rename_axis("node").to_csv(folder / "traffic-speeds.csv")
    return write(job, data.graph.weights.tocsr())


if __name__ == "__main__":
    jobs = (traffic, cora, roads, rough, simulations, digits, points, citations, scotland, areas, traffic_tables)
    common.run({one.__name__: one for one in jobs})
