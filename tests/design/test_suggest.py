"""Nodes to label next: scores against other ways to compute them, imagined labels against dense matrices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import graphmatern as gm
from graphmatern.design._suggest import imagined_sites, label_information
from graphmatern.errors import InputError, TableError
from graphmatern.likelihoods import Bernoulli, RobustMax, Softmax

CITY = gm.make_roads(220, seed=1)
PLACE: Any = CITY.positions
SIDE = np.array(["west", "east"])[(PLACE[:, 0] > np.median(PLACE[:, 0])).astype(int)]
PART = np.array(["a", "b", "c"])[np.digitize(PLACE[:, 0], np.quantile(PLACE[:, 0], [1 / 3, 2 / 3]))]
SEEN = np.arange(0, CITY.n_nodes, 15)
KERNEL = gm.Matern(2, 5.0, 3.0)


def classifier(labels: Any, **options: Any) -> gm.GraphGPClassifier:
    kept = {"optimizer": None, "integrate": False, "normalized": False, **options}
    return gm.GraphGPClassifier(CITY, KERNEL, **kept).fit(CITY.nodes[SEEN], labels[SEEN])


@pytest.mark.parametrize("likelihood", [Bernoulli(), Softmax(3), RobustMax(3)], ids=str)
def test_information_of_a_label(likelihood: Any) -> None:
    """H[E p] − E H[p], by as many draws as it takes."""
    rng, count = np.random.default_rng(0), likelihood.n_latents
    mean, variance = rng.normal(size=(count, 4)), rng.uniform(0.2, 2.0, (count, 4))
    f = torch.from_numpy(mean + np.sqrt(variance) * rng.standard_normal((200_000, count, 4)))
    classes = range(likelihood.n_classes)
    p = torch.stack([likelihood.log_prob(torch.full((4,), float(c)).double(), f) for c in classes]).exp().numpy()
    average = p.mean(axis=1)
    expected = -(average * np.log(average)).sum(axis=0) + (p * np.log(p)).sum(axis=0).mean(axis=0)
    np.testing.assert_allclose(label_information(likelihood, mean, variance), expected, atol=0.01)


@pytest.mark.parametrize("likelihood", [Bernoulli(), Softmax(3), RobustMax(3)], ids=str)
def test_imagined_sites_are_where_updates_rest(likelihood: Any) -> None:
    rng, count = np.random.default_rng(1), likelihood.n_latents
    mean, variance = rng.normal(size=(count, 3)), rng.uniform(0.2, 2.0, (count, 3))
    labels = np.array([0, 1, 1])
    first, second = imagined_sites(likelihood, labels, mean, variance)
    spread = 1.0 / (1.0 / variance + second)
    centre = spread * (mean / variance + first)
    with torch.no_grad():
        at_rest = likelihood.expectation(
            torch.from_numpy(labels.astype(float)), *map(torch.from_numpy, (centre, spread))
        )
    target = np.maximum(-2.0 * at_rest.in_variance.numpy(), 0.0)
    np.testing.assert_allclose(second, target, atol=1e-5)
    np.testing.assert_allclose(first, at_rest.in_mean.numpy() + target * centre, atol=1e-5)


@pytest.mark.parametrize("engine", ["spectral", "markov"])
def test_one_label_is_where_the_score_is_largest(engine: str) -> None:
    model = classifier(PART, likelihood="softmax", engine=engine)
    share = model.predict_proba()
    entropy = -(share * np.log(share)).sum(axis=1)
    entropy[SEEN] = -np.inf
    found = model.suggest(1)
    assert found["node"][0] == CITY.nodes[int(entropy.argmax())]
    assert found["score"][0] == pytest.approx(entropy.max())
    assert found["label"][0] == model.predict(found["node"])[0]
    assert found["probability"][0] == pytest.approx(model.predict_proba(found["node"]).max())
    best = np.argsort(-entropy)[:5]
    assert model.suggest(5, batch=False)["node"].tolist() == CITY.nodes[best].tolist()
    mean, std = model.predict_latent()
    told = label_information(model.likelihood_, mean.T, std.T**2)
    told[SEEN] = -np.inf
    assert model.suggest(1, "bald")["node"][0] == CITY.nodes[int(told.argmax())]


@pytest.mark.parametrize("engine", ["spectral", "markov"])
def test_a_batch_is_chosen_as_if_labels_were_known(engine: str) -> None:
    """Entropy: the second node is the best once the first has its most probable label, its site held beside others'."""
    model = classifier(SIDE, likelihood="bernoulli", engine=engine)
    found = model.suggest(2)
    first = CITY.locate(found["node"])[0]
    every = np.arange(CITY.n_nodes)
    posterior = model.posterior_
    mean, covariance = posterior.latent_mean(every)[0], posterior.latent_covariance(every)
    code = int(np.flatnonzero(model.classes_ == found["label"][0])[0])
    p, eta = (
        one[0, 0]
        for one in imagined_sites(
            model.likelihood_, np.array([code]), mean[first].reshape(1, 1), covariance[first, first].reshape(1, 1)
        )
    )
    precision = np.linalg.inv(covariance + 1e-10 * np.eye(len(covariance)))
    added = np.zeros(len(every))
    added[first] = eta
    after = np.linalg.inv(precision + np.diag(added))
    moved = after @ (precision @ mean + p * (every == first))
    share = model.likelihood_.probabilities(
        torch.from_numpy(moved[None]), torch.from_numpy(np.diag(after)[None].copy())
    )
    entropy = -(share * share.log()).sum(dim=0).numpy()
    entropy[SEEN] = entropy[first] = -np.inf
    assert CITY.locate(found["node"])[1] == entropy.argmax()
    assert found["score"][1] == pytest.approx(entropy.max(), rel=1e-5)


@pytest.mark.parametrize("engine", ["spectral", "markov"])
def test_variances_of_all_nodes(engine: str) -> None:
    """Each lowers the average variance most, those before it given."""
    model = classifier(SIDE, likelihood="bernoulli", engine=engine)
    found = model.suggest(3, "variance")
    every = np.arange(CITY.n_nodes)
    covariance, mean = model.posterior_.latent_covariance(every), model.posterior_.latent_mean(every)
    labels = model.predict_proba().argmax(axis=1)
    _, eta = imagined_sites(model.likelihood_, labels, mean, np.diag(covariance)[None].copy())
    chosen: list[int] = []
    for node, score in zip(CITY.locate(found["node"]), found["score"], strict=True):
        gain = (covariance**2).mean(axis=0) / (np.diag(covariance) + 1.0 / eta[0])
        gain[SEEN] = gain[chosen] = -np.inf
        assert node == gain.argmax()
        assert score == pytest.approx(gain.max())
        chosen.append(int(node))
        column = covariance[:, node]
        covariance = covariance - np.outer(column, column) / (column[node] + 1.0 / eta[0, node])


@pytest.mark.parametrize("strategy", ["entropy", "bald", "variance"])
def test_batches_differ(strategy: Any) -> None:
    """Ten arms without labels, of five nodes each: a batch takes one of each arm, the best by themselves do not."""
    edges: list[Any] = [("hub", (arm, 0)) for arm in range(10)]
    edges += [((arm, k), (arm, k + 1)) for arm in range(10) for k in range(4)]
    star = gm.Graph.from_edges(edges, weight=[0.02 * (arm + 1) for arm in range(10)] + [20.0] * 40)
    model = gm.GraphGPClassifier(
        star, gm.Matern(1, 3.0, 4.0), optimizer=None, likelihood="bernoulli", integrate=False, classes=["x", "y"]
    ).fit(["hub"], ["x"])
    together = model.suggest(10, strategy)["node"]
    assert len({name[0] for name in together}) == 10
    assert len({name[0] for name in model.suggest(10, strategy, batch=False)["node"]}) < 10
    again = model.suggest(10, strategy)["node"]
    assert together.tolist() == again.tolist()


def test_of_a_mixture() -> None:
    model = gm.GraphGPClassifier(CITY, gm.Matern(1, 4.0), likelihood="softmax", integrate=True, normalized=False)
    model.fit(CITY.nodes[SEEN], PART[SEEN])
    share = model.predict_proba()
    entropy = -(share * np.log(share)).sum(axis=1)
    entropy[SEEN] = -np.inf
    for strategy in ("entropy", "bald", "variance"):
        found = model.suggest(4, strategy)
        assert found["node"].is_unique
        assert not found["node"].isin(CITY.nodes[SEEN]).any()
    assert model.suggest(4)["node"][0] == CITY.nodes[int(entropy.argmax())]
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
