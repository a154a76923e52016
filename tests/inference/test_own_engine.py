"""An engine of one's own, registered and used through the estimators; the contract suite has it in its list."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest

import graphmatern as gm
from graphmatern.errors import KernelError
from graphmatern.inference import ENGINES, register_engine
from toy_engine import ToyEngine

if TYPE_CHECKING:
    from collections.abc import Iterator

CITY = gm.make_roads(60, seed=1)
RNG = np.random.default_rng(0)
FIELD = gm.Matern(2, 6.0).on(CITY).sample(2, random_state=1).numpy()
NAMES = CITY.nodes[::2]
Y = 5.0 + FIELD[0, ::2] + 0.2 * RNG.standard_normal(len(NAMES))
KERNEL = gm.Matern(2, 5.0, fixed=("nu",))


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    register_engine(ToyEngine)
    yield
    del ENGINES["toy"]


def both(**options: Any) -> Iterator[gm.GraphGPRegressor]:
    for engine in ("toy", "spectral"):
        yield gm.GraphGPRegressor(CITY, KERNEL, engine=engine, **options)


def test_it_learns_and_predicts_like_the_others() -> None:
    toy, spectral = (model.fit(NAMES, Y) for model in both(integrate=False))
    assert toy.engine_ == "toy"
    assert toy.engine_reason_ == "asked for"
    assert toy.converged_
    assert toy.log_marginal_likelihood_ == pytest.approx(spectral.log_marginal_likelihood_, abs=1e-5)
    pd.testing.assert_frame_equal(toy.predict_table(), spectral.predict_table(), rtol=1e-2)
    assert "toy" in toy.summary()
    errors = spectral.standard_errors()
    assert toy.standard_errors() == pytest.approx(errors, rel=1e-2)


def test_it_is_integrated_like_the_others() -> None:
    toy, spectral = (model.fit(NAMES, Y) for model in both())
    assert toy.log_evidence_ == pytest.approx(spectral.log_evidence_, abs=0.15)  # other points
    pd.testing.assert_frame_equal(toy.predict_table(), spectral.predict_table(), rtol=0.05, atol=0.05)


def test_everything_follows_from_the_seam() -> None:
    """At the same parameters: leave-one-out, samples, edges, scores, more data, covariates and replicates."""
    y = np.column_stack([Y, FIELD[1, ::2]])
    y[3:6, 1] = np.nan
    options: dict[str, Any] = {"optimizer": None, "noise": 0.1, "covariates": np.sin(np.arange(CITY.n_nodes))}
    toy, spectral = (model.fit(NAMES, y) for model in both(**options))
    np.testing.assert_allclose(toy.predict(return_std=True), spectral.predict(return_std=True), rtol=1e-8)
    pd.testing.assert_frame_equal(toy.loo(), spectral.loo(), rtol=1e-8)
    pd.testing.assert_frame_equal(toy.coefficients_, spectral.coefficients_, rtol=1e-8)
    points = pd.DataFrame({"edge": CITY.edges["id"].to_numpy()[:5], "t": np.linspace(0.0, 1.0, 5)})
    on_edges = [model.predict_on_edges(points, fraction="t", return_std=True) for model in (toy, spectral)]
    np.testing.assert_allclose(on_edges[0], on_edges[1], rtol=1e-8)
    assert toy.evaluate(NAMES, y) == pytest.approx(spectral.evaluate(NAMES, y), rel=1e-8)
    more = [model.condition_on([1], [[3.0, 2.0]]).predict() for model in (toy, spectral)]
    np.testing.assert_allclose(more[0], more[1], rtol=1e-8)
    n, nodes = 5000, CITY.nodes[:6]
    draws = toy.sample(n, nodes, random_state=0)
    mean, covariance = toy.predict(nodes, return_cov=True)
    mean, variance = mean[:, 0], np.diag(covariance)
    # The largest of 6 + 21 z-scores exceeds 4.5 once in 5,000 runs; the seed is fixed.
    assert np.abs((draws.mean(axis=0) - mean) / np.sqrt(variance / n)).max() < 4.5
    error = np.sqrt((np.outer(variance, variance) + covariance**2) / n)
    assert np.abs((np.cov(draws.T, bias=True) - covariance) / error).max() < 4.5


@pytest.mark.parametrize("likelihood", ["poisson", "student_t"])
def test_other_likelihoods_follow_too(likelihood: Any) -> None:
    y = RNG.poisson(np.exp(1.0 + FIELD[0, ::2])) if likelihood == "poisson" else Y
    toy, spectral = (model.fit(NAMES, y) for model in both(likelihood=likelihood, optimizer=None))
    assert toy.log_marginal_likelihood_ == pytest.approx(spectral.log_marginal_likelihood_, abs=1e-6)
    np.testing.assert_allclose(toy.predict(), spectral.predict(), rtol=1e-4)


def test_classification_follows_too() -> None:
    labels = np.digitize(FIELD[0, ::2], [-0.4, 0.4])
    shares = [
        gm.GraphGPClassifier(CITY, KERNEL, inference=form, likelihood="softmax", optimizer=None)
        .fit(NAMES, labels)
        .predict_proba()
        for form in ("toy", "spectral")
    ]
    np.testing.assert_allclose(shares[0], shares[1], atol=1e-5)


def test_engines_that_are_not_registered_are_refused() -> None:
    with pytest.raises(KernelError, match="'toy'"):  # named among those there are
        gm.GraphGPRegressor(CITY, engine="toys").fit(NAMES, Y)
