"""Classification: labels of any type, forms of inference, odd data, files, scores."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import graphmatern as gm
from graphmatern import metrics
from graphmatern.errors import GraphMaternWarning, KernelError, NumericalWarning, TableError, UninformedWarning
from graphmatern.likelihoods import Bernoulli, RobustMax

if TYPE_CHECKING:
    from pathlib import Path

CITY = gm.make_roads(300, seed=2)
POSITIONS = np.asarray(CITY.positions)
WEST, SOUTH = (POSITIONS.mean(axis=0) > POSITIONS).T
QUARTER = np.array([("south" if s else "north") + ("west" if w else "east") for s, w in zip(SOUTH, WEST, strict=True)])
SHOWN = np.random.default_rng(0).permutation(CITY.n_nodes)[:60]
NAMES = CITY.nodes[SHOWN]
KINDS: tuple[Any, ...] = ("probit", "robustmax", "softmax")


def values(kernel: Any) -> dict[str, float]:
    found: dict[str, float] = kernel.values()
    return found


@pytest.mark.parametrize("likelihood", KINDS)
def test_learns_quarters_of_a_city(likelihood: Any) -> None:
    model = gm.GraphGPClassifier(CITY, likelihood=likelihood).fit(NAMES, QUARTER[SHOWN])
    assert model.classes_.tolist() == ["northeast", "northwest", "southeast", "southwest"]
    scores = model.evaluate(CITY.nodes, QUARTER)
    assert scores["accuracy"] > 0.85
    assert model.score(CITY.nodes, QUARTER) == scores["accuracy"]
    assert model.score(pd.Series(QUARTER, CITY.nodes)) == scores["accuracy"]
    assert scores["log_loss"] < 0.5
    assert model.converged_
    assert model.informed_.all()
    assert "4 labels" not in model.summary()
    assert "60 labels" in model.summary()
    share = model.predict_proba()
    np.testing.assert_allclose(share.sum(axis=1), 1.0, atol=1e-12)
    table = model.predict_table()
    assert (table["label"] == model.predict()).all()
    np.testing.assert_allclose(table["p(northeast)"], share[:, 0])
    assert ((table["entropy"] >= -1e-12) & (table["entropy"] <= np.log(4) + 1e-12)).all()
    mean, std = model.predict_latent(NAMES[:5])
    assert mean.shape == std.shape == (5, 4)
    assert (std > 0).all()
    draws = model.sample_latent(2000, NAMES[:2], random_state=0)
    np.testing.assert_allclose((draws.mean(axis=0).T - mean[:2]) / std[:2], 0.0, atol=0.15)
    left, _ = model.plot()
    assert "class" in left.get_title()
    plt.close("all")


def test_the_likelihood_that_suits_the_labels() -> None:
    """Coupled classes where that is affordable."""
    kernel, large = gm.Matern(nu=2, lengthscale=6.0), gm.make_roads(1_500, seed=0)
    few = gm.GraphGPClassifier(CITY, kernel, optimizer=None).fit(NAMES, QUARTER[SHOWN])
    many = gm.GraphGPClassifier(large, kernel, optimizer=None).fit(large.nodes[:1_001], np.arange(1_001) % 2)
    bound = gm.GraphGPClassifier(CITY, kernel, optimizer=None, inference="inducing").fit(NAMES, QUARTER[SHOWN])
    assert [type(model.likelihood_).__name__ for model in (few, many, bound)] == [
        "MultinomialProbit",
        "RobustMax",
        "RobustMax",
    ]
    assert "approximate log evidence" in few.summary()
    assert "evidence lower bound" in bound.summary()
    draws = few.sample_latent(4_000, CITY.nodes[:2], random_state=0)
    spread = few.posterior_.class_covariance(np.arange(2))
    np.testing.assert_allclose(np.cov(draws[:, :, 0].T), spread[0], atol=0.1)


def test_forms_of_inference_agree() -> None:
    """At the same parameters: sites on both engines, all eigenvectors, inducing nodes at all labels."""
    kernel = gm.Matern(nu=2, lengthscale=6.0, variance=2.0)
    shares: dict[tuple[str, str], tuple[Any, float]] = {}
    forms: tuple[Any, ...] = ("spectral", "markov", "eigenvectors", "inducing")
    for form in forms:
        for likelihood in KINDS:
            restricted = {"n_inducing": CITY.n_nodes} if form in ("eigenvectors", "inducing") else {}
            if restricted and likelihood == "probit":  # whose classes are coupled
                continue
            options = {"inference": form, "likelihood": likelihood, "optimizer": None, **restricted}
            model = gm.GraphGPClassifier(CITY, kernel, **options).fit(NAMES, QUARTER[SHOWN])
            assert model.inference_ == form
            shares[form, likelihood] = model.predict_proba(), model.elbo_
    for form, likelihood in shares:
        share, elbo = shares["spectral", likelihood]
        if form != "spectral":
            np.testing.assert_allclose(shares[form, likelihood][0], share, atol=1e-4)
            assert shares[form, likelihood][1] == pytest.approx(elbo, abs=1e-6)


def test_two_classes() -> None:
    west = WEST
    likelihoods: tuple[Any, ...] = ("bernoulli", Bernoulli("logit"), "robustmax", RobustMax(2, 0.01))
    for likelihood in likelihoods:
        model = gm.GraphGPClassifier(CITY, likelihood=likelihood).fit(NAMES, west[SHOWN])  # separable
        assert model.score(CITY.nodes, west) > 0.9
        assert model.classes_.tolist() == [False, True]
        assert model.predict().dtype == bool
    with pytest.raises(TableError, match="labels of 2 classes"):
        gm.GraphGPClassifier(CITY, likelihood="bernoulli").fit(NAMES, QUARTER[SHOWN])
    with pytest.raises(TableError, match="likelihood of 3"):
        gm.GraphGPClassifier(CITY, likelihood=RobustMax(3)).fit(NAMES, QUARTER[SHOWN])


def test_learning_raises_the_bound() -> None:
    kept = gm.GraphGPClassifier(CITY, gm.Matern(nu=1, lengthscale=1.0), optimizer=None).fit(NAMES, QUARTER[SHOWN])
    learned = gm.GraphGPClassifier(CITY, gm.Matern(nu=1, lengthscale=1.0)).fit(NAMES, QUARTER[SHOWN])
    fixed = gm.Matern(nu=1, lengthscale=1.0, fixed=("nu",))
    markov = gm.GraphGPClassifier(CITY, fixed, inference="markov").fit(NAMES, QUARTER[SHOWN])
    assert values(kept.kernel_)["lengthscale"] == 1.0
    assert learned.elbo_ > markov.elbo_ - 1e-6 > kept.elbo_
    blind = gm.GraphGPClassifier(CITY, gm.Matern(nu=1, lengthscale=1.0), likelihood="robustmax")
    assert values(blind.fit(NAMES, QUARTER[SHOWN]).kernel_)["variance"] == 1.0  # which robust-max does not see
    bounded = gm.GraphGPClassifier(CITY, bounds={"lengthscale": (1.0, 2.0)}).fit(NAMES, QUARTER[SHOWN])
    assert values(bounded.kernel_)["lengthscale"] <= 2.0 + 1e-9


def test_classes_that_do_not_occur() -> None:
    series = pd.Series(pd.Categorical(QUARTER[SHOWN], [*sorted(set(QUARTER)), "centre"]), NAMES)
    model = gm.GraphGPClassifier(CITY).fit(series)
    assert model.classes_.tolist() == [*sorted(set(QUARTER)), "centre"]
    share = model.predict_proba()
    assert (share[:, 4] > 0).all()
    assert (model.predict() != "centre").all()
    named = gm.GraphGPClassifier(CITY, classes=[*sorted(set(QUARTER)), "centre"]).fit(NAMES, QUARTER[SHOWN])
    np.testing.assert_allclose(named.predict_proba(), share, atol=1e-6)
    only = gm.GraphGPClassifier(CITY, classes=["a", "b"], optimizer=None).fit(NAMES[:3], ["a"] * 3)
    assert only.predict(NAMES[:3]).tolist() == ["a"] * 3


@pytest.mark.parametrize(
    "labels", [[3, 1], [("a", 1), ("b", 2)], ["x", 5], [pd.Timestamp("2020-01-01"), pd.Timestamp("2021-01-01")]]
)
def test_labels_of_any_type(labels: list[Any]) -> None:
    west = WEST
    y = [labels[int(flag)] for flag in west]
    model = gm.GraphGPClassifier(CITY, optimizer=None, kernel=gm.Matern(2, 6.0))
    model.fit(NAMES, [y[k] for k in SHOWN])
    assert sorted(map(str, model.classes_)) == sorted(map(str, labels))
    assert model.score(CITY.nodes, y) > 0.9
    assert set(model.predict().tolist()) <= set(labels)


def test_missing_labels_are_left_out() -> None:
    labels = list(QUARTER[SHOWN])
    kernel = gm.Matern(2, 6.0)
    whole = gm.GraphGPClassifier(CITY, kernel, optimizer=None).fit(NAMES[:50], labels[:50])
    for missing in (None, float("nan"), pd.NA):
        model = gm.GraphGPClassifier(CITY, kernel, optimizer=None).fit(NAMES, labels[:50] + [missing] * 10)
        np.testing.assert_allclose(model.predict_proba(), whole.predict_proba())
    with pytest.raises(TableError, match="at least one label"):
        gm.GraphGPClassifier(CITY).fit(NAMES, [None] * 60)


def test_minus_one_for_no_label_is_questioned() -> None:
    fit = gm.GraphGPClassifier(CITY, gm.Matern(2, 6.0), optimizer=None, integrate=False).fit
    with pytest.warns(GraphMaternWarning, match="most labels are -1, which is treated as a class"):
        fit(NAMES[:20], [-1] * 12 + [0, 1] * 4)
    fit(NAMES[:20], [-1] * 12 + [1] * 8)  # two classes, and three of which -1 is one: neither warns
    fit(NAMES[:20], [-1] * 8 + [0, 1] * 6)


def test_components_without_labels_have_the_prior() -> None:
    graph = gm.Graph.from_edges([(0, 1), (1, 2), (2, 3), (4, 5), (5, 6)], nodes=[*range(7), "alone"])
    model = gm.GraphGPClassifier(graph, gm.Matern(nu=1), optimizer=None).fit([0, 3], ["a", "b"])
    assert model.informed_.tolist() == [True] * 4 + [False] * 4
    with pytest.warns(UninformedWarning, match="4, 5"):
        share = model.predict_proba([4, 5])
    np.testing.assert_allclose(share, 0.5, atol=1e-9)
    model.predict([0, 1])  # silent
    with pytest.warns(UninformedWarning, match="alone"):
        assert not model.predict_table()["informed"].to_numpy()[-1]


def test_all_nodes_labelled_and_classes_with_one_member() -> None:
    path = gm.Graph.from_edges([(k, k + 1) for k in range(9)])
    y = ["a"] * 5 + ["b"] * 4 + ["c"]
    for likelihood in KINDS:
        model = gm.GraphGPClassifier(path, likelihood=likelihood).fit(range(10), y)
        assert model.score(range(10), y) >= 0.9
        assert np.isfinite(model.elbo_)
    twice = gm.GraphGPClassifier(path, gm.Matern(1), optimizer=None).fit([0, 0, 0, 9], ["a", "a", "b", "b"])
    share = twice.predict_proba([0])[0]
    assert share[0] > 0.5  # two votes against one


def test_faults_of_labels() -> None:
    model = gm.GraphGPClassifier(CITY)
    with pytest.raises(TableError, match=r"at least two classes.*'x'"):
        model.fit(NAMES, ["x"] * 60)
    with pytest.raises(TableError, match="60 labels"):
        model.fit(NAMES, ["x", "y"])
    with pytest.raises(TableError, match="one per node"):
        model.fit(["nowhere", *NAMES[1:]], ["x"])
    with pytest.raises(TableError, match="nowhere"):
        model.fit(["nowhere", *NAMES[1:]], list(QUARTER[SHOWN]))
    with pytest.raises(TableError, match="hashable"):
        model.fit(NAMES, [["a"]] * 60)
    with pytest.raises(TableError, match="must be given with `y`"):
        model.fit(NAMES)
    with pytest.raises(TableError, match="1-D sequence"):
        model.fit(NAMES, "labels")
    with pytest.raises(TableError, match="among 'a', 'b'"):
        gm.GraphGPClassifier(CITY, classes=["a", "b"]).fit(NAMES, QUARTER[SHOWN])
    with pytest.raises(NotFittedError):
        model.predict()
    for options in ({"inference": "exact"}, {"likelihood": "max"}, {"optimizer": "sgd"}):
        with pytest.raises(KernelError):
            gm.GraphGPClassifier(CITY, **options).fit(NAMES, QUARTER[SHOWN])  # type: ignore[arg-type]
    with pytest.raises(KernelError, match="must be Matérn"):
        gm.GraphGPClassifier(CITY, gm.Diffusion(), inference="markov").fit(NAMES, QUARTER[SHOWN])
    with pytest.warns(NumericalWarning, match="stopped early"):
        gm.GraphGPClassifier(CITY, max_iterations=1).fit(NAMES, QUARTER[SHOWN])


def test_scikit_learn_conventions() -> None:
    model = gm.GraphGPClassifier(CITY, gm.Matern(2, 6.0), optimizer=None)
    copied = clone(model)
    assert copied.get_params()["optimizer"] is None
    fitted = copied.fit(NAMES, QUARTER[SHOWN])
    assert fitted is copied
    assert not hasattr(model, "classes_")
    assert values(model.kernel)["lengthscale"] == 6.0
    with pytest.raises(TableError, match="sample_weight"):
        fitted.score(NAMES, QUARTER[SHOWN], sample_weight=np.ones(60))


@pytest.mark.parametrize(
    ("form", "covariance"),
    [
        ("spectral", "full"),
        ("markov", "full"),
        ("eigenvectors", "full"),
        ("inducing", "full"),
        ("inducing", "diagonal"),
    ],
)
def test_files_give_the_same_model(form: Any, covariance: Any, tmp_path: Path) -> None:
    kernel = gm.Matern(2, 6.0, fixed="nu")
    restricted: Any = {"covariance": covariance, "n_inducing": 30} if form in ("eigenvectors", "inducing") else {}
    model = gm.GraphGPClassifier(CITY, kernel, inference=form, **restricted)
    model.fit(NAMES, QUARTER[SHOWN])
    model.save(tmp_path / "model.gm")
    for again in (gm.load(tmp_path / "model.gm"), copy.deepcopy(model)):
        np.testing.assert_allclose(again.predict_proba(), model.predict_proba(), atol=1e-12)
        assert again.elbo_ == pytest.approx(model.elbo_, abs=1e-9)
        assert again.classes_.tolist() == model.classes_.tolist()
        assert again.summary() == model.summary()


def test_scores_of_classes() -> None:
    share = np.array([[0.7, 0.2, 0.1], [0.1, 0.8, 0.1], [0.3, 0.3, 0.4], [0.75, 0.15, 0.1]])
    y, classes = ["a", "b", "a", "b"], ["a", "b", "c"]
    assert metrics.accuracy(y, ["a", "b", "c", "a"]) == 0.5
    assert metrics.log_loss(y, share, classes) == pytest.approx(-np.log([0.7, 0.8, 0.3, 0.15]).mean())
    curve = metrics.reliability_curve(y, share, classes, n_bins=5)
    np.testing.assert_allclose(curve["confidence"], [0.4, (0.7 + 0.75) / 2, 0.8])
    np.testing.assert_allclose(curve["accuracy"], [0.0, 0.5, 1.0])
    np.testing.assert_allclose(curve["count"], [1, 2, 1])
    expected = (0.4 * 1 + abs(0.725 - 0.5) * 2 + 0.2 * 1) / 4
    assert metrics.expected_calibration_error(y, share, classes, n_bins=5) == pytest.approx(expected)
    report = metrics.classification_report(y, share, classes)
    assert report["accuracy"] == 0.5
    with pytest.raises(TableError, match="2 faults"):
        metrics.log_loss(["z"], share, classes)
    with pytest.raises(TableError, match="one prediction per label"):
        metrics.accuracy(["a"], [])


@pytest.mark.data
def test_cora() -> None:
    """The paper's split protocol, one seed: accuracy near 0.79."""
    cora = gm.datasets.load_cora()
    order = np.random.default_rng(0).permutation(cora.graph.n_nodes)
    train, test = (cora.graph.nodes[part] for part in (order[:140], order[140:1140]))
    kernel = gm.Matern(nu=2, lengthscale=5.0, fixed=("nu",))
    model = gm.GraphGPClassifier(cora.graph, kernel, inference="markov").fit(cora.values.loc[train])
    scores = model.evaluate(cora.values.loc[test])
    assert scores["accuracy"] > 0.76
    assert model.elbo_ > -270.0


def test_engine_is_another_word_for_inference() -> None:
    for engine in ("markov", "moments"):
        model = gm.GraphGPClassifier(CITY, engine=engine).fit(NAMES, QUARTER[SHOWN])
        assert model.engine_ == model.inference_ == engine
        assert model.engine_reason_ == model.inference_reason_
        assert model.engine_reason_.startswith("asked for")
    restricted = gm.GraphGPClassifier(CITY, engine="inducing", n_inducing=30).fit(NAMES, QUARTER[SHOWN])
    assert restricted.engine_ == "inducing"
    with pytest.raises(KernelError, match=r"`engine` must be left out if `inference` is given"):
        gm.GraphGPClassifier(CITY, engine="markov", inference="moments").fit(NAMES, QUARTER[SHOWN])
    with pytest.raises(KernelError, match="`engine` must be 'auto' or"):
        gm.GraphGPClassifier(CITY, engine="fast").fit(NAMES, QUARTER[SHOWN])


# ---------------------------------------------------------------------- covariates
@pytest.mark.parametrize("likelihood", ["bernoulli", "probit", "softmax"])
def test_covariates_are_recovered(likelihood: Any, tmp_path: Path) -> None:
    graph, rng = gm.make_roads(120, seed=3), np.random.default_rng(0)
    lanes = pd.Series(3.0 + 2.0 * rng.standard_normal(graph.n_nodes), graph.nodes, name="lanes")
    f = 0.5 * gm.Matern(2.0, lengthscale=4.0).on(graph).sample(random_state=2).numpy()[0]
    busy = np.where(f + 0.9 * (lanes - 3.0) + rng.standard_normal(graph.n_nodes) > 0.0, "busy", "calm")
    kernel = gm.Matern(2.0, lengthscale=4.0, fixed=("nu", "lengthscale"))
    options: dict[str, Any] = {"covariates": lanes, "mean": "constant", "integrate": False}
    model = gm.GraphGPClassifier(graph, kernel, likelihood=likelihood, classes=["calm", "busy"], **options)
    model.fit(graph.nodes[::2], busy[::2])
    table: Any = model.coefficients_
    if likelihood == "bernoulli":
        assert table.index.tolist() == ["(constant)", "lanes"]
        assert abs(table.loc["lanes", "mean"] - 0.9) < 3.0 * table.loc["lanes", "sd"] < 1.5
    else:  # only differences between classes are determined by the labels
        assert table.index.tolist() == [(c, x) for c in ("calm", "busy") for x in ("(constant)", "lanes")]
        assert table.loc[("busy", "lanes"), "mean"] - table.loc[("calm", "lanes"), "mean"] > 0.5
    plain = gm.GraphGPClassifier(graph, kernel, likelihood=likelihood, integrate=False).fit(graph.nodes[::2], busy[::2])
    assert model.score(graph.nodes[1::2], busy[1::2]) > plain.score(graph.nodes[1::2], busy[1::2]) + 0.05
    assert model.elbo_ > plain.elbo_
    assert "lanes" in model.summary()
    model.save(tmp_path / "model.gm")
    again = gm.load(tmp_path / "model.gm")
    np.testing.assert_allclose(again.predict_proba(), model.predict_proba(), atol=1e-7)
    pd.testing.assert_frame_equal(again.coefficients_, table, rtol=1e-5)
    assert len(model.suggest(2)) == 2
    more = model.condition_on(graph.nodes[1:2], busy[1:2])
    assert more.coefficients_.shape == table.shape


def test_priors_of_coefficients_of_classes() -> None:
    """A narrow prior leaves a coefficient where it was."""
    graph = gm.make_roads(40, seed=3)
    x = np.random.default_rng(1).standard_normal(graph.n_nodes)
    options: dict[str, Any] = {"likelihood": "bernoulli", "optimizer": None, "covariates": x}
    model = gm.GraphGPClassifier(graph, gm.Matern(1.0), priors={"x0": gm.Normal(1e-3)}, **options)
    found: Any = model.fit(graph.nodes, x > 0.0).coefficients_
    assert abs(found.loc["x0", "mean"]) < 1e-3
    assert found.loc["x0", "sd"] == pytest.approx(1e-3, rel=1e-2)
    with pytest.raises(gm.errors.InputError, match="where steps are counted"):
        gm.GraphGPClassifier(graph, inference="inducing", batch_size=5, covariates=x).fit(graph.nodes, x > 0.0)
    with pytest.raises(gm.errors.TableError, match="linearly dependent"):
        gm.GraphGPClassifier(graph, covariates=np.ones(graph.n_nodes), mean="constant").fit(graph.nodes, x > 0.0)
