"""Nodes to label next: scores against other ways to compute them, imagined labels against dense matrices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.linalg import block_diag
from scipy.stats import norm

import graphmatern as gm
from graphmatern.design._labels import CoupledLabels, IndependentLabels, Labels, entropy, labels_of
from graphmatern.errors import InputError, TableError
from graphmatern.likelihoods import Bernoulli, MultinomialProbit, RobustMax, Softmax

if TYPE_CHECKING:
    from graphmatern.inference import Posterior

Floats = NDArray[np.float64]

CITY = gm.make_roads(220, seed=1)
PLACE: Any = CITY.positions
SIDE = np.array(["west", "east"])[(PLACE[:, 0] > np.median(PLACE[:, 0])).astype(int)]
PART = np.array(["a", "b", "c"])[np.digitize(PLACE[:, 0], np.quantile(PLACE[:, 0], [1 / 3, 2 / 3]))]
SEEN = np.arange(0, CITY.n_nodes, 15)
EVERY = np.arange(CITY.n_nodes)
KERNEL = gm.Matern(2, 5.0, 3.0)
KINDS: list[Any] = [
    IndependentLabels(Bernoulli()),
    IndependentLabels(Softmax(3)),
    IndependentLabels(RobustMax(3)),
    CoupledLabels(MultinomialProbit(3)),
]
MODELS = [("bernoulli", SIDE), ("softmax", PART), ("probit", PART)]
all_models = pytest.mark.parametrize(("likelihood", "labels"), MODELS, ids=[name for name, _ in MODELS])
all_kinds = pytest.mark.parametrize("kind", KINDS, ids=[str(kind.likelihood) for kind in KINDS])


def classifier(labels: Any, **options: Any) -> gm.GraphGPClassifier:
    kept = {"optimizer": None, "integrate": False, "normalized": False, **options}
    return gm.GraphGPClassifier(CITY, KERNEL, **kept).fit(CITY.nodes[SEEN], labels[SEEN])


def moments_of(kind: Labels) -> tuple[Floats, Floats]:
    """Of processes at four nodes."""
    rng, count = np.random.default_rng(0), kind.likelihood.n_latents
    root = rng.normal(size=(4, count, count))
    covariance = root @ root.transpose(0, 2, 1) + 0.2 * np.eye(count)
    return rng.normal(size=(4, count)), covariance * (1.0 if isinstance(kind, CoupledLabels) else np.eye(count))


class Dense:
    """All processes at all nodes in one Gaussian, class by class."""

    def __init__(self, posterior: Posterior) -> None:
        n = CITY.n_nodes
        self.kind, self.count = labels_of(posterior), posterior.n_latents
        self.mean = posterior.latent_mean(EVERY).ravel()
        self.covariance = block_diag(*(part.predictive.covariances(EVERY) for part in posterior.parts))
        if posterior.coupled:
            # Sites given the levels have precisions diag(d), those on all classes diag(d) − d dᵀ / Σ d.
            d = np.stack([part.precision for part in posterior.parts])
            columns = np.zeros((self.count * n, len(SEEN)))
            for k, node in enumerate(posterior.parts[0].group.nodes):
                columns[np.arange(self.count) * n + node, k] = d[:, k]
            images = self.covariance @ columns
            self.covariance += images @ np.linalg.solve(np.diag(d.sum(axis=0)) - columns.T @ images, images.T)

    def at(self, nodes: Any) -> tuple[Floats, Floats]:
        places = np.asarray(nodes)[:, None] + CITY.n_nodes * np.arange(self.count)
        return self.mean[places], self.covariance[places[:, :, None], places[:, None, :]]

    def observe(self, node: int, precision: Floats, potential: Floats) -> None:
        places = node + CITY.n_nodes * np.arange(self.count)
        pick = np.eye(len(self.mean))[places]
        gain = np.linalg.inv(np.eye(len(self.mean)) + self.covariance @ pick.T @ precision @ pick)
        self.mean = gain @ (self.mean + self.covariance @ (pick.T @ potential))
        self.covariance = gain @ self.covariance


def components_of(model: Any) -> tuple[Floats, list[Dense]]:
    posterior = model.posterior_
    components = getattr(posterior, "components", [posterior])
    return np.asarray(getattr(posterior, "weights", [1.0])), [Dense(one) for one in components]


@all_kinds
def test_information_of_a_label(kind: Labels) -> None:
    """H[E p] − E H[p], by as many draws as it takes."""
    likelihood, (mean, covariance) = kind.likelihood, moments_of(kind)
    normal = np.random.default_rng(1).standard_normal((8_000, *mean.shape))
    f = mean + np.einsum("nij,knj->kni", np.linalg.cholesky(covariance), normal)
    values = torch.from_numpy(f.transpose(0, 2, 1).copy())
    codes = (torch.full((4,), float(c)).double() for c in range(likelihood.n_classes))
    p = torch.stack([likelihood.log_prob(code, values) for code in codes]).exp().numpy()
    average = p.mean(axis=1)
    np.testing.assert_allclose(kind.probabilities(mean, covariance), average.T, atol=0.02)
    expected = -(p * np.log(p)).sum(axis=0).mean(axis=0)
    np.testing.assert_allclose(kind.known_entropy(mean, covariance), expected, atol=0.02)


@pytest.mark.parametrize("kind", KINDS[:3], ids=[str(kind.likelihood) for kind in KINDS[:3]])
def test_sites_are_where_updates_rest(kind: Labels) -> None:
    mean, covariance = moments_of(kind)
    variance, labels = np.einsum("nii->ni", covariance), np.array([0, 1, 1, 0])
    precision, first = kind.sites(labels, mean, covariance)
    second = np.einsum("nii->ni", precision)
    spread = 1.0 / (1.0 / variance + second)
    centre = spread * (mean / variance + first)
    with torch.no_grad():
        own = (torch.from_numpy(one.T.copy()) for one in (centre, spread))
        at_rest = kind.likelihood.expectation(torch.from_numpy(labels.astype(float)), *own)
    target = np.maximum(-2.0 * at_rest.in_variance.numpy().T, 0.0)
    np.testing.assert_allclose(second, target, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(first, at_rest.in_mean.numpy().T + target * centre, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("n_classes", "rtol"), [(2, 1e-8), (3, 0.04)])
def test_coupled_sites_match_moments(n_classes: int, rtol: float) -> None:
    """Of two classes those of the truncated Gaussian; of three those of many draws, nearly."""
    kind = CoupledLabels(MultinomialProbit(n_classes))
    mean, covariance = (one[:1] for one in moments_of(kind))
    precision, potential = kind.sites(np.array([1]), mean, covariance)
    after = np.linalg.inv(np.linalg.inv(covariance[0]) + precision[0])
    centre = after @ (np.linalg.solve(covariance[0], mean[0]) + potential[0])
    if n_classes == 2:
        gap = np.array([-1.0, 1.0])
        column, total = covariance[0] @ gap, gap @ covariance[0] @ gap + 2.0
        z = gap @ mean[0] / np.sqrt(total)
        ratio = norm.pdf(z) / norm.cdf(z)
        expected = mean[0] + column * ratio / np.sqrt(total)
        spread = covariance[0] - np.outer(column, column) * ratio * (z + ratio) / total
    else:
        rng = np.random.default_rng(0)
        f = rng.multivariate_normal(mean[0], covariance[0], 400_000)
        f = f[(f + rng.standard_normal(f.shape)).argmax(axis=1) == 1]
        expected, spread = f.mean(axis=0), np.cov(f.T)
    scale = np.sqrt(np.diag(spread))
    np.testing.assert_allclose((centre - expected) / scale, 0.0, atol=rtol)
    np.testing.assert_allclose(after / np.outer(scale, scale), spread / np.outer(scale, scale), atol=rtol)


@pytest.mark.parametrize("likelihood", ["softmax", "probit"])
@pytest.mark.parametrize("engine", ["spectral", "markov"])
def test_one_label_is_where_the_score_is_largest(engine: str, likelihood: str) -> None:
    model = classifier(PART, likelihood=likelihood, engine=engine)
    expected = entropy(model.predict_proba())
    expected[SEEN] = -np.inf
    found = model.suggest(1)
    assert found["node"][0] == CITY.nodes[int(expected.argmax())]
    assert found["score"][0] == pytest.approx(expected.max())
    assert found["label"][0] == model.predict(found["node"])[0]
    assert found["probability"][0] == pytest.approx(model.predict_proba(found["node"]).max())
    best = np.argsort(-expected)[:5]
    assert model.suggest(5, batch=False)["node"].tolist() == CITY.nodes[best].tolist()
    _, (dense,) = components_of(model)
    told = entropy(model.predict_proba()) - dense.kind.known_entropy(*dense.at(EVERY))
    told[SEEN] = -np.inf
    found = model.suggest(1, "bald")
    assert found["node"][0] == CITY.nodes[int(told.argmax())]
    assert found["score"][0] == pytest.approx(told.max(), rel=1e-5)


def check_entropies(model: Any, n: int) -> None:
    """Each node is the best once those before it have their most probable labels, their sites held beside others'."""
    found = model.suggest(n)
    weights, dense = components_of(model)
    chosen: list[int] = []
    for node, score in zip(CITY.locate(found["node"]), found["score"], strict=True):
        share = sum(w * one.kind.probabilities(*one.at(EVERY)) for w, one in zip(weights, dense, strict=True))
        expected = entropy(np.asarray(share))
        expected[SEEN] = expected[chosen] = -np.inf
        assert node == expected.argmax()
        assert score == pytest.approx(expected.max(), rel=1e-5)
        chosen.append(int(node))
        for one in dense:
            sites = one.kind.sites(np.asarray(share)[[node]].argmax(axis=1), *one.at([node]))
            one.observe(node, *(site[0] for site in sites))


def check_variances(model: Any, n: int) -> None:
    """Each lowers the average variance most, those before it given; sites are those of labels expected now."""
    found = model.suggest(n, "variance")
    weights, dense = components_of(model)
    labels = model.predict_proba().argmax(axis=1)
    precisions = [one.kind.sites(labels, *one.at(EVERY))[0] for one in dense]
    chosen: list[int] = []
    for node, score in zip(CITY.locate(found["node"]), found["score"], strict=True):
        gain = np.zeros(CITY.n_nodes)
        for w, one, precision in zip(weights, dense, precisions, strict=True):
            for s in EVERY:
                column = one.covariance[:, s + CITY.n_nodes * np.arange(one.count)]
                own = np.linalg.inv(np.eye(one.count) + precision[s] @ one.at([s])[1][0]) @ precision[s]
                gain[s] += w * np.sum(column @ own * column) / CITY.n_nodes
        gain[SEEN] = gain[chosen] = -np.inf
        assert node == gain.argmax()
        assert score == pytest.approx(gain.max(), rel=1e-6)
        chosen.append(int(node))
        for one, precision in zip(dense, precisions, strict=True):
            one.observe(node, precision[node], np.zeros(one.count))


@all_models
@pytest.mark.parametrize("engine", ["spectral", "markov", "moments"])
def test_a_batch_against_one_dense_gaussian(engine: str, likelihood: str, labels: Any) -> None:
    model = classifier(labels, likelihood=likelihood, engine=engine)
    check_entropies(model, 3)
    check_variances(model, 3)


def test_many_candidates_are_sifted_by_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The best by themselves are among those kept."""
    model = classifier(PART)
    expected = model.suggest(3, "variance")
    monkeypatch.setattr("graphmatern.design._suggest._WIDE", 60)
    monkeypatch.setattr("graphmatern.design._suggest._PROBES", 256)
    assert model.suggest(3, "variance")["node"].tolist() == expected["node"].tolist()


@pytest.mark.parametrize("likelihood", ["bernoulli", "probit"])
@pytest.mark.parametrize("strategy", ["entropy", "bald", "variance"])
def test_batches_differ(strategy: Any, likelihood: Any) -> None:
    """Ten cliques without labels at a hub: a batch takes a node of each, the best by themselves are of the farthest."""
    edges: list[Any] = [("hub", (arm, 0)) for arm in range(10)]
    edges += [((arm, k), (arm, j)) for arm in range(10) for k in range(5) for j in range(k)]
    star = gm.Graph.from_edges(edges, weight=[0.02 * (arm + 1) for arm in range(10)] + [20.0] * 100)
    model = gm.GraphGPClassifier(
        star, gm.Matern(1, 3.0, 4.0), optimizer=None, likelihood=likelihood, integrate=False, classes=["x", "y"]
    ).fit(["hub"], ["x"])
    together = model.suggest(10, strategy)["node"]
    assert len({name[0] for name in together}) == 10
    assert len({name[0] for name in model.suggest(10, strategy, batch=False)["node"]}) < 10
    again = model.suggest(10, strategy)["node"]
    assert together.tolist() == again.tolist()


@pytest.mark.parametrize("likelihood", ["softmax", "probit"])
def test_of_a_mixture(likelihood: Any) -> None:
    model = gm.GraphGPClassifier(CITY, gm.Matern(1, 4.0), likelihood=likelihood, integrate=True, normalized=False)
    model.fit(CITY.nodes[SEEN], PART[SEEN])
    check_entropies(model, 2)
    check_variances(model, 2)
    found = model.suggest(4, "bald")
    assert found["node"].is_unique
    assert not found["node"].isin(CITY.nodes[SEEN]).any()
    more = model.condition_on(found["node"], PART[CITY.locate(found["node"])])
    assert more.score(CITY.nodes, PART) > 0.5
    assert len(more.loo()) == len(SEEN) + 4


@pytest.mark.parametrize("engine", ["spectral", "markov", "moments"])
def test_more_labels_without_learning_again(engine: str) -> None:
    model = classifier(PART, likelihood="softmax", engine=engine)
    more = np.array([3, 50, 101])
    found = model.condition_on(CITY.nodes[more], PART[more])
    both = np.concatenate([SEEN, more])
    fresh = gm.GraphGPClassifier(
        CITY, model.kernel_, optimizer=None, integrate=False, normalized=False, likelihood="softmax", engine=engine
    ).fit(CITY.nodes[both], PART[both])
    np.testing.assert_allclose(found.predict_proba(), fresh.predict_proba(), atol=1e-7)
    assert len(model.loo()) == len(SEEN)
    with pytest.raises(TableError, match="among 'a', 'b', 'c'"):
        model.condition_on(CITY.nodes[more], ["a", "d", "b"])


def test_impossible_suggestions() -> None:
    model = classifier(SIDE)
    with pytest.raises(InputError) as caught:
        model.suggest(3, "entropie", batch="yes", candidates=["nowhere", 1])  # type: ignore[arg-type]
    for part in ("`strategy`", "`batch`", "'nowhere'", "`n`", "from 1 to 1"):
        assert part in str(caught.value)
    assert set(model.suggest(2, candidates=[1, 2])["node"]) == {1, 2}
    with pytest.raises(InputError, match="at least one node"):
        model.suggest(1, candidates=[])
