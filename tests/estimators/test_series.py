"""What is given per node as a Series goes by its index, and exposures go wherever counts are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

import graphmatern as gm
from graphmatern.errors import TableError

CITY = gm.Graph.from_edges([(f"n{i}", f"n{(i + 1) % 20}") for i in range(20)])
NODES = CITY.nodes[[3, 7, 1, 12, 18, 9, 5, 15]]
RNG = np.random.default_rng(0)
EXPOSURE = pd.Series(RNG.uniform(0.5, 4.0, len(NODES)), NODES)
COUNTS = pd.Series(RNG.poisson(3.0 * EXPOSURE), NODES).astype(float)
Y = pd.Series(RNG.standard_normal(len(NODES)), NODES)
NOISE = pd.Series(RNG.uniform(0.1, 1.0, len(NODES)), NODES)
KERNEL = gm.Matern(2, 2.0, 0.4, fixed=("nu",))


def counts(nodes: Any, y: Any = None, exposure: Any = None) -> gm.GraphGPRegressor:
    model = gm.GraphGPRegressor(CITY, KERNEL, likelihood="poisson", optimizer=None)
    return model.fit(nodes, y, exposure=exposure)


def regression(nodes: Any, y: Any = None, noise: Any = None) -> gm.GraphGPRegressor:
    return gm.GraphGPRegressor(CITY, KERNEL, optimizer=None).fit(nodes, y, noise_variance=noise)


SHUFFLED = np.random.default_rng(1).permutation(len(NODES))


def test_a_shuffled_series_is_put_in_order() -> None:
    expected = counts(COUNTS, exposure=EXPOSURE).predict()
    for nodes, y, exposure in (
        (COUNTS, None, EXPOSURE.iloc[SHUFFLED]),
        (COUNTS.iloc[SHUFFLED], None, EXPOSURE),
        (NODES, COUNTS.iloc[SHUFFLED], EXPOSURE.iloc[SHUFFLED]),
        (list(NODES), COUNTS.to_numpy(), EXPOSURE.iloc[SHUFFLED]),
        (pd.Series(NODES), COUNTS.iloc[SHUFFLED], EXPOSURE.to_numpy()),
        (NODES, COUNTS, EXPOSURE.reindex(CITY.nodes)),  # NaN where nothing was counted
    ):
        np.testing.assert_allclose(counts(nodes, y, exposure).predict(), expected, rtol=1e-9)
    expected = regression(Y, noise=NOISE).predict(return_std=True)
    for nodes, y, noise in (
        (Y, None, NOISE.iloc[SHUFFLED]),
        (NODES, Y.iloc[SHUFFLED], NOISE.to_numpy()),
        (list(NODES), Y.iloc[SHUFFLED], NOISE.iloc[SHUFFLED]),
    ):
        np.testing.assert_allclose(regression(nodes, y, noise).predict(return_std=True), expected, rtol=1e-9)
    labels = (Y > 0).rename("label")
    shares = [
        gm.GraphGPClassifier(CITY, KERNEL, optimizer=None).fit(NODES, one).predict_proba()
        for one in (labels, labels.iloc[SHUFFLED], labels.to_numpy())
    ]
    np.testing.assert_allclose(shares[1], shares[0], atol=1e-8)
    np.testing.assert_allclose(shares[2], shares[0], atol=1e-8)


def test_columns_of_one_table_share_its_index() -> None:
    """Whatever that index is: 0, 1, 2 and so on, or rows that were kept of more."""
    expected = counts(COUNTS, exposure=EXPOSURE).predict()
    table = pd.DataFrame({"node": NODES, "count": COUNTS.to_numpy(), "years": EXPOSURE.to_numpy()})
    for one in (table, table.iloc[SHUFFLED], table.set_index(np.arange(100, 108)), table.set_index(NODES[::-1])):
        np.testing.assert_allclose(counts(one["node"], one["count"], one["years"]).predict(), expected, rtol=1e-9)
    shuffled = table["years"].iloc[SHUFFLED]  # its index says where each belongs
    np.testing.assert_allclose(counts(table["node"], table["count"], shuffled).predict(), expected, rtol=1e-9)


def test_numbers_of_rows_go_by_position() -> None:
    expected = counts(COUNTS, exposure=EXPOSURE).predict()
    numbered = counts(NODES, COUNTS.reset_index(drop=True), EXPOSURE.reset_index(drop=True))
    np.testing.assert_allclose(numbered.predict(), expected, rtol=1e-12)


def test_an_index_of_something_else_is_an_error() -> None:
    other = pd.Series(np.ones(len(NODES)), [f"street {i}" for i in range(len(NODES))])
    with pytest.raises(TableError, match="`exposure` must have the index of the nodes"):
        counts(COUNTS, exposure=other)
    with pytest.raises(TableError, match="`y` must have the index of the nodes"):
        counts(NODES, other)
    with pytest.raises(TableError, match="`noise_variance` must have the index of the nodes"):
        regression(Y, noise=other)
    twice = pd.concat([NOISE, NOISE])
    with pytest.raises(TableError, match="each of them once"):
        regression(Y, noise=twice)
    with pytest.raises(TableError, match="`exposure` must hold finite numbers"):
        counts(COUNTS, exposure=EXPOSURE.iloc[:-1])  # one is missing
    renumbered = pd.Series(EXPOSURE.to_numpy(), np.arange(1, 1 + len(NODES)))
    with pytest.raises(TableError, match="`exposure` must have the index of the nodes"):
        counts(COUNTS, exposure=renumbered)


def test_numbers_that_could_be_names_or_rows_are_an_error() -> None:
    """Nodes 0, 1, 2 in another order, and a Series numbered 0, 1, 2: nobody knows what was meant."""
    ring = gm.Graph.from_edges([(i, (i + 1) % 6) for i in range(6)])
    y = pd.Series([1.0, 2.0, 3.0])
    model = gm.GraphGPRegressor(ring, KERNEL, optimizer=None)
    with pytest.raises(TableError, match=r"pass `.to_numpy\(\)` to go by position"):
        model.fit([2, 0, 1], y)
    expected = model.fit([0, 1, 2], [1.0, 2.0, 3.0]).predict()
    np.testing.assert_array_equal(model.fit([0, 1, 2], y).predict(), expected)  # both say the same
    np.testing.assert_array_equal(model.fit([4, 3, 5], y).predict(), model.fit([4, 3, 5], y.to_numpy()).predict())


# ---------------------------------------------------------------------- exposures
def test_scores_of_counts_need_their_exposures() -> None:
    model = counts(COUNTS, exposure=EXPOSURE)
    for score in (model.score, model.evaluate):
        with pytest.raises(TableError, match="`exposure` must be given"):
            score(COUNTS)
    by_series = model.evaluate(COUNTS, exposure=EXPOSURE.iloc[SHUFFLED])
    by_array = model.evaluate(NODES, COUNTS.to_numpy(), exposure=EXPOSURE.to_numpy())
    assert by_series == pytest.approx(by_array, rel=1e-12)
    mean = model.predict(NODES, exposure=EXPOSURE.iloc[SHUFFLED])
    assert by_series["rmse"] == pytest.approx(np.sqrt(np.mean((mean - COUNTS) ** 2)))
    spread = np.mean((COUNTS - COUNTS.mean()) ** 2)
    assert model.score(COUNTS, exposure=EXPOSURE) == pytest.approx(1.0 - by_series["rmse"] ** 2 / spread)
    without = counts(COUNTS)
    assert np.isfinite(without.score(COUNTS))


def test_predictions_are_rates_times_exposures() -> None:
    model = counts(COUNTS, exposure=EXPOSURE)
    rates, stds = model.predict(return_std=True)
    everywhere = pd.Series(RNG.uniform(0.5, 2.0, CITY.n_nodes), CITY.nodes)
    mean, std = model.predict(exposure=everywhere.iloc[::-1], return_std=True)
    np.testing.assert_allclose(mean, rates * everywhere, rtol=1e-10)
    np.testing.assert_allclose(std, stds * everywhere, rtol=1e-8)
    some = CITY.nodes[[4, 2]]
    np.testing.assert_allclose(model.predict(some, exposure=everywhere), mean[[4, 2]], rtol=1e-10)
    np.testing.assert_allclose(model.predict(some, exposure=3.0), 3.0 * rates[[4, 2]], rtol=1e-10)
    with pytest.raises(TableError, match="model is for counts"):
        regression(Y).predict(exposure=2.0)
    with pytest.raises(TableError, match="exposure"):
        model.predict(some, exposure=[1.0, 2.0, 3.0])
    with pytest.raises(TableError, match="exposure"):
        model.predict(some, exposure=[1.0, -2.0])
