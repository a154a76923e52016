"""Sensor placement against a dense greedy choice, written from the formulas."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import graphmatern as gm
from graphmatern.design import _belief
from graphmatern.design._criteria import squared_columns
from graphmatern.design._measurable import of_prior
from graphmatern.errors import InputError, NumericalWarning, ResourceError, TableError
from graphmatern.inference import further_sites
from strategies import graphs

CITY = gm.make_roads(260, seed=3)
N = CITY.n_nodes
KERNEL = gm.Matern(2, 3.0, 1.4)
PRIOR = KERNEL.on(CITY).matrix().detach().numpy()
RNG = np.random.default_rng(5)
NOISE = RNG.uniform(0.05, 0.6, N)
CRITERIA = ["entropy", "mutual_information", "variance"]


def condition(covariance: Any, nodes: Any, noise: Any) -> Any:
    """The covariance given noisy measurements."""
    nodes = np.asarray(nodes, dtype=int)
    cross = covariance[:, nodes]
    return covariance - cross @ np.linalg.solve(cross[nodes] + np.diag(np.broadcast_to(noise, nodes.shape)), cross.T)


def dense_gains(covariance: Any, criterion: str, chosen: Any, candidates: Any, targets: Any, noise: Any) -> Any:
    """Gains of all candidates, one by one; ``noise`` per node."""
    known = condition(covariance, chosen, noise[chosen])
    found = []
    for s in candidates:
        if criterion == "entropy":
            found.append(0.5 * np.log(1.0 + known[s, s] / noise[s]))
        elif criterion == "variance":
            after = condition(known, [s], noise[[s]])
            found.append((np.diag(known) - np.diag(after))[targets].mean())
        else:
            others = [b for b in candidates if b != s and b not in chosen]
            given_others = condition(covariance, others, noise[others])
            found.append(0.5 * np.log((known[s, s] + noise[s]) / (given_others[s, s] + noise[s])))
    return np.array(found)


def dense_choice(
    covariances: Any, weights: Any, criterion: str, n: int, candidates: Any, targets: Any, noise: Any, costs: Any,
    budget: float,
) -> tuple[list[int], Any, Any]:  # fmt: skip
    """Greedy choice, with gains and remaining standard deviations (mean, largest)."""
    chosen: list[int] = []
    gains, spread = [], []
    for _ in range(n):
        every = [
            dense_gains(c, criterion, chosen, candidates, targets, r) for c, r in zip(covariances, noise, strict=True)
        ]
        gain = np.tensordot(weights, every, axes=1)
        score = gain / costs
        score[np.isin(candidates, chosen) | (costs > budget)] = -np.inf
        if np.isinf(score).all():
            break
        best = int(np.argmax(score))
        budget -= costs[best]
        chosen.append(int(candidates[best]))
        gains.append(gain[best])
        variance = sum(
            w * np.diag(condition(c, chosen, r[chosen])) for w, c, r in zip(weights, covariances, noise, strict=True)
        )
        deviation = np.sqrt(variance[targets])
        spread.append((deviation.mean(), deviation.max()))
    return chosen, np.array(gains), np.array(spread)


def assert_same(table: pd.DataFrame, expected: Any, unit: float = 1.0, squared: bool = False) -> None:
    chosen, gains, spread = expected
    assert CITY.locate(table["node"]).tolist() == chosen
    np.testing.assert_allclose(table["gain"], gains * (unit**2 if squared else 1.0), rtol=1e-8)
    np.testing.assert_allclose(table[["mean_std", "max_std"]], unit * spread, rtol=1e-8)
    assert table["order"].tolist() == list(range(1, len(chosen) + 1))


@pytest.mark.parametrize("engine", ["spectral", "markov", "moments"])
@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize("case", ["plain", "costs", "existing"])
def test_same_choice_as_a_dense_one(engine: str, criterion: Any, case: str) -> None:
    candidates, targets, costs, budget = np.arange(N), np.arange(N), np.ones(N), np.inf
    prior, noise = PRIOR, np.full(N, 0.3)
    options: dict[str, Any] = {"noise": 0.3}
    if case != "plain":
        candidates = np.sort(RNG.permutation(N)[:60]) if case == "costs" else RNG.permutation(N)[:70]
        targets = np.arange(0, N, 3)
        costs = RNG.uniform(0.5, 4.0, len(candidates))
        noise = NOISE
        budget = 9.0 if case == "costs" else np.inf
        options = {
            "candidates": CITY.nodes[candidates],
            "targets": CITY.nodes[targets],
            "costs": pd.Series(costs, CITY.nodes[candidates]),
            "noise": pd.Series(NOISE, CITY.nodes),
            "budget": None if case == "existing" else budget,
        }
    if case == "existing":
        there = np.array([4, 90, 17])
        prior = condition(PRIOR, there, NOISE[there])
        options["existing"] = CITY.nodes[there]
    elif case == "plain" and criterion == "mutual_information":
        candidates = np.arange(0, N, 4)  # the reference conditions on all others of each
        options["candidates"] = CITY.nodes[candidates]
        costs = np.ones(len(candidates))
    model = gm.GraphGPRegressor(CITY, KERNEL, engine=engine)
    table = gm.place_sensors(model, 5, criterion=criterion, **options)
    expected = dense_choice([prior], [1.0], criterion, 5, candidates, targets, [noise], costs, budget)
    assert_same(table, expected)
    places = [candidates.tolist().index(one) for one in expected[0]]
    np.testing.assert_allclose(table["cost"], costs[places])
    assert table.attrs["error"] == 0.0
    deviation = np.sqrt(np.diag(prior)[targets])
    np.testing.assert_allclose([table.attrs["mean_std"], table.attrs["max_std"]], [deviation.mean(), deviation.max()])


@pytest.fixture(scope="module")
def fitted() -> dict[str, gm.GraphGPRegressor]:
    rng = np.random.default_rng(1)
    field = np.linalg.cholesky(PRIOR + 1e-9 * np.eye(N)) @ rng.standard_normal(N)
    nodes = rng.permutation(N)[:40]
    y = 30.0 + 7.0 * (field[nodes] + 0.5 * rng.standard_normal(40))
    options: dict[str, Any] = {
        "kernel": gm.Matern(2, 3.0, 1.0, fixed=("nu",)),
        "bounds": {"noise": (0.1, 1.0)},
        "covariates": pd.Series(RNG.normal(size=N), CITY.nodes),
    }
    found = {
        engine: gm.GraphGPRegressor(CITY, engine=engine, integrate=False, **options).fit(CITY.nodes[nodes], y)
        for engine in ("spectral", "markov")
    }
    found["mixture"] = gm.GraphGPRegressor(CITY, engine="markov", integrate=True, **options).fit(CITY.nodes[nodes], y)
    return found


@pytest.mark.parametrize("engine", ["spectral", "markov"])
@pytest.mark.parametrize("criterion", CRITERIA)
def test_given_data_and_unknown_coefficients(fitted: Any, engine: str, criterion: Any) -> None:
    """The mean and a covariate are integrated out; a measurement tells of them as well."""
    model = fitted[engine]
    covariance = model.predict(return_cov=True)[1]
    noise = np.full(N, model.noise_ * model.y_scale_**2)
    candidates = np.setdiff1d(np.arange(N), CITY.locate(model.loo()["node"]))[::4]
    expected = dense_choice(
        [covariance], [1.0], criterion, 4, candidates, np.arange(N), [noise], np.ones(len(candidates)), np.inf
    )
    table = gm.place_sensors(model, 4, criterion=criterion, candidates=CITY.nodes[candidates])
    assert_same(table, expected)
    assert table.attrs["mean_std"] == pytest.approx(model.predict(return_std=True)[1].mean())


def test_nodes_with_data_are_no_candidates_unless_named(fitted: Any) -> None:
    model = fitted["markov"]
    seen = model.loo()["node"].tolist()
    assert not gm.place_sensors(model, 20)["node"].isin(seen).any()
    assert gm.place_sensors(model, 1, candidates=seen[:3])["node"][0] in seen[:3]
    assert not gm.place_sensors(model, 20, existing=[CITY.nodes[0]])["node"].isin([CITY.nodes[0]]).any()


@pytest.mark.parametrize("criterion", CRITERIA)
def test_parameters_that_were_integrated_over_are_averaged_over(fitted: Any, criterion: Any) -> None:
    model = fitted["mixture"]
    mixture, every, unit = model.posterior_, np.arange(N), model.y_scale_
    covariances = [one.latent_covariance(every) for one in mixture.components]
    noise = [np.full(N, one.likelihood.noise.item()) for one in mixture.components]
    candidates = np.setdiff1d(every, CITY.locate(model.loo()["node"]))[::8]
    expected = dense_choice(
        covariances, mixture.weights, criterion, 2, candidates, every, noise, np.ones(len(candidates)), np.inf
    )
    table = gm.place_sensors(model, 2, criterion=criterion, candidates=CITY.nodes[candidates])
    assert_same(table, expected, unit, criterion == "variance")


def test_replicates_that_miss_different_values_are_averaged_over() -> None:
    y = RNG.normal(size=(30, 3))
    y[:10, 1] = np.nan
    model = gm.GraphGPRegressor(CITY, KERNEL, noise=0.2, optimizer=None, mean="zero", normalize_y=False)
    model.fit(CITY.nodes[:30], y)
    whole, part = condition(PRIOR, np.arange(30), 0.2), condition(PRIOR, np.arange(10, 30), 0.2)
    noise = [np.full(N, 0.2)] * 2
    candidates = np.arange(30, N, 5)
    expected = dense_choice(
        [whole, part], [2 / 3, 1 / 3], "variance", 3, candidates, np.arange(N), noise, np.ones(len(candidates)), np.inf
    )
    assert_same(gm.place_sensors(model, 3, criterion="variance", candidates=CITY.nodes[candidates]), expected)


def test_counts_are_as_noisy_as_their_rate_says() -> None:
    counts = RNG.poisson(4.0, 50)
    model = gm.GraphGPRegressor(CITY, gm.Matern(1, 3.0, 0.5), likelihood="poisson", optimizer=None)
    model.fit(CITY.nodes[:50], counts)
    rate = np.exp(model.posterior_.latent_mean(np.arange(N))[0] + model._level)
    covariance = model.posterior_.latent_covariance(np.arange(N))
    candidates = np.arange(50, N)
    expected = dense_choice(
        [covariance], [1.0], "entropy", 3, candidates, np.arange(N), [1.0 / rate], np.ones(len(candidates)), np.inf
    )
    assert_same(gm.place_sensors(model, 3), expected)


@pytest.mark.parametrize("engine", ["spectral", "markov", "moments", "inducing", "eigenvectors"])
def test_many_measurements_are_handed_to_the_engine(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns beside a covariance begin afresh when they fill their room: nothing changes."""
    settle, calls = _belief.Belief._settle, []
    options = {"n_inducing": 40} if engine in ("inducing", "eigenvectors") else {}
    kernel = KERNEL if engine != "eigenvectors" else gm.Diffusion(1.5)
    measurable = of_prior(CITY, kernel, noise=0.2, engine=engine, settings=options, normalized=False)
    monkeypatch.setattr(type(gm.GraphGPRegressor(CITY)), "measurable", lambda _self: measurable)
    model = gm.GraphGPRegressor(CITY)
    whole = gm.place_sensors(model, 20, criterion="variance")
    monkeypatch.setattr(_belief, "_COLUMN_BYTES", 0)

    def counted(self: Any) -> None:
        calls.append(1)
        settle(self)

    monkeypatch.setattr(_belief.Belief, "_settle", counted)
    again = gm.place_sensors(model, 20, criterion="variance")
    assert len(calls) == 1
    pd.testing.assert_frame_equal(whole, again, rtol=1e-8)
    covariance = measurable.versions[0].predictive.covariances(np.arange(N))
    left = condition(covariance, CITY.locate(whole["node"]), 0.2)
    assert again["mean_std"].iloc[-1] == pytest.approx(np.sqrt(np.diag(left)).mean(), rel=1e-8)


@pytest.mark.parametrize("engine", ["spectral", "markov", "moments"])
def test_squares_of_columns_from_variances_alone(engine: str) -> None:
    belief = of_prior(CITY, KERNEL, noise=0.2, engine=engine).versions[0].belief(np.arange(N))
    candidates, targets = np.arange(0, N, 2), np.arange(5, N, 3)
    belief = belief.under(np.array([3, 60]), np.array([0.1, 0.4]))
    exact, none = squared_columns(belief, candidates, targets)
    found, error = squared_columns(belief, candidates, targets, few=0)
    np.testing.assert_allclose(exact, (belief.times(candidates, np.eye(len(candidates)))[targets] ** 2).sum(axis=0))
    assert none == 0.0
    np.testing.assert_allclose(found, exact, rtol=1e-9)
    assert np.abs(found / exact - 1.0).max() < error < 1e-5  # the order below bounds it


def test_squares_of_columns_with_coefficients(fitted: Any) -> None:
    version = fitted["markov"].measurable().versions[0]
    belief, every = version.belief(np.arange(N)), np.arange(N)
    exact = (belief.times(every, np.eye(N)) ** 2).sum(axis=0)
    np.testing.assert_allclose(squared_columns(belief, every, every, few=0)[0], exact, rtol=1e-8)


def test_estimated_variances_are_put_right() -> None:
    """An engine that errs by 3 % in all variances, but not in columns."""
    measurable = of_prior(CITY, KERNEL, noise=0.2, engine="markov")
    predictive: Any = measurable.versions[0].predictive
    predictive._variance = predictive._variance * np.random.default_rng(0).uniform(0.97, 1.03, N)

    class Estimated:
        def measurable(self) -> Any:
            return measurable

    table = gm.place_sensors(Estimated(), 8)
    chosen, expected = CITY.locate(table["node"]).tolist(), []
    for k, node in enumerate(chosen):
        expected.append(dense_gains(PRIOR, "entropy", chosen[:k], [node], np.arange(N), np.full(N, 0.2))[0])
    np.testing.assert_allclose(table["gain"], expected, rtol=1e-5)
    exact = gm.place_sensors(KERNEL.on(CITY), 8, noise=0.2)
    assert table["gain"].sum() > 0.995 * exact["gain"].sum()


@pytest.mark.parametrize("criterion", ["entropy", "variance"])
@pytest.mark.parametrize("engine", ["spectral", "markov"])
def test_sensors_that_could_go(fitted: Any, engine: str, criterion: Any) -> None:
    """The loss of each is what it would gain, were it placed last; of data that were seen and of those to come."""
    there = np.arange(0, N, 12)
    prior = gm.GraphGPRegressor(CITY, KERNEL, engine=engine)
    table = gm.remove_sensors(prior, 4, criterion=criterion, sensors=CITY.nodes[there], noise=NOISE[there])
    left = there.tolist()
    for node, loss, mean_std in zip(CITY.locate(table["node"]), table["loss"], table["mean_std"], strict=True):
        losses = []
        for s in left:
            others = [one for one in left if one != s]
            losses.append(dense_gains(PRIOR, criterion, others, [s], np.arange(N), NOISE)[0])
        assert node == left[int(np.argmin(losses))]
        assert loss == pytest.approx(min(losses), rel=1e-8)
        left.remove(node)
        assert mean_std == pytest.approx(np.sqrt(np.diag(condition(PRIOR, left, NOISE[left]))).mean(), rel=1e-8)
    model = fitted[engine]
    gone = gm.remove_sensors(model, 2, criterion=criterion, targets=CITY.nodes[:50])
    seen = model.loo()
    kept = seen[~seen["node"].isin(gone["node"])]
    values, unit = model.kernel_.values(), model.y_scale_**2
    kernel = gm.Matern(2, values["lengthscale"], values["variance"] * unit)
    short = gm.GraphGPRegressor(
        CITY, kernel, engine=engine, noise=model.noise_ * unit, optimizer=None, normalize_y=False,
        covariates=model.covariates,
    ).fit(kept["node"], kept["y"])  # fmt: skip
    std = short.predict(CITY.nodes[:50], return_std=True)[1]
    np.testing.assert_allclose(gone[["mean_std", "max_std"]].iloc[-1], [std.mean(), std.max()], rtol=1e-7)


@settings(max_examples=20, deadline=None)
@given(graph=graphs(), seed=st.integers(0, 10**6))
def test_information_adds_up(graph: gm.Graph, seed: int) -> None:
    """Gains never grow, and their sum is the information of all measurements, ½ log det(I + R⁻¹C)."""
    rng = np.random.default_rng(seed)
    noise, n = rng.uniform(0.1, 1.0, graph.n_nodes), int(rng.integers(1, graph.n_nodes + 1))
    bound = gm.Matern(1.5, 2.0).on(graph)
    table = gm.place_sensors(bound, n, noise=noise)
    places = graph.locate(table["node"])
    covariance = bound.matrix().detach().numpy()[np.ix_(places, places)]
    total = 0.5 * np.linalg.slogdet(np.eye(n) + covariance / noise[places])[1]
    assert table["gain"].sum() == pytest.approx(total, rel=1e-9)
    assert (table["gain"].diff().dropna() <= 1e-12).all()
    assert (table["mean_std"].diff().dropna() <= 1e-12).all()
    assert table["node"].is_unique


def test_a_budget_alone() -> None:
    bound = KERNEL.on(CITY)
    table = gm.place_sensors(bound, noise=0.1, budget=3.5)
    assert len(table) == 3
    pd.testing.assert_frame_equal(table, gm.place_sensors(bound, 3, noise=0.1))
    costs = {name: 1.0 + k % 3 for k, name in enumerate(CITY.nodes.tolist())}
    table = gm.place_sensors(bound, 50, noise=0.1, costs=costs, budget=20.0)
    assert 18.0 < table["cost"].sum() <= 20.0


def test_a_single_better_sensor_is_told_of() -> None:
    path = gm.Graph.from_edges([("a", "b")], weight=[1e-9])
    kernel = gm.Matern(1, 1.0)
    with pytest.warns(NumericalWarning, match="a single sensor at node 'b' gains more"):
        table = gm.place_sensors(
            kernel.on(path), 2, noise={"a": 10.0, "b": 0.01}, costs={"a": 0.01, "b": 1.0}, budget=1.0
        )
    assert table["node"].tolist() == ["a"]


# ---------------------------------------------------------------------- impossible wishes
def test_all_that_is_wrong_is_told_at_once() -> None:
    bound = KERNEL.on(CITY)
    with pytest.raises(TableError) as caught:
        gm.place_sensors(
            bound, 9, candidates=["nowhere", 1, 2, 2], existing=["there"], costs={1: 0.0, 2: -1.0}, budget=-2.0,
            noise=-0.1, targets="all",
        )  # fmt: skip
    message = str(caught.value)
    for part in (
        "'nowhere'",
        "each node once",
        "'there'",
        "number of candidates",
        "above 0",
        "budget",
        "a single string",
    ):
        assert part in message
    for argument in ("candidates", "existing", "n", "costs", "budget", "noise", "targets"):
        assert f"`{argument}`" in message


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n": N + 1}, f"at most the number of candidates, {N}"),
        ({"n": 0}, "whole number of at least 1"),
        ({"n": True}, "whole number of at least 1"),
        ({}, "must be given if there is no budget"),
        ({"n": 1, "noise": None}, "must be given if the model has none"),
        ({"n": 1, "costs": np.full(N, 5.0), "budget": 4.0}, "cheapest candidate, which costs 5"),
        ({"n": 1, "budget": 0.5}, "cheapest candidate, which costs 1"),
        ({"n": 1, "costs": {CITY.nodes[0]: 1.0}}, "entry for every candidate"),
        ({"n": 1, "costs": [1.0, 2.0]}, "one for each of"),
        ({"n": 1, "targets": []}, "at least one node"),
        ({"n": 1, "criterion": "entropie"}, "must be 'entropy' or 'mutual_information' or 'variance'"),
    ],
)
def test_impossible_wishes(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        gm.place_sensors(KERNEL.on(CITY), **{"noise": 0.1, **options})


def test_what_cannot_be_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    classifier = gm.GraphGPClassifier(CITY).fit(CITY.nodes[:4], ["a", "b", "a", "b"])
    with pytest.raises(TableError, match="a classifier has `suggest`"):
        gm.place_sensors(classifier, 2)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="must be given if the model is not fitted"):
        gm.place_sensors(gm.GraphGPRegressor(CITY), 2)
    with pytest.raises(InputError, match="must be given if the model has none"):
        gm.place_sensors(gm.GraphGPRegressor(CITY, KERNEL), 2)
    with pytest.raises(InputError, match="must have a smoothness if there are no data"):
        gm.place_sensors(gm.GraphGPRegressor(CITY, gm.Matern(None, 2.0), noise=0.1), 2)
    monkeypatch.setattr(further_sites, "_MOST", 100)
    model = gm.GraphGPRegressor(CITY, gm.Matern(1, 2.0), noise=0.1, engine="moments")
    with pytest.raises(ResourceError, match="engine='markov'"):
        gm.place_sensors(model, 2, criterion="mutual_information")


def test_all_of_some_sensors_may_go_where_others_stay(fitted: Any) -> None:
    some = fitted["markov"].loo()["node"].unique()[:2]
    gone = gm.remove_sensors(fitted["markov"], 2, sensors=some)
    assert set(gone["node"]) == set(some)


def test_impossible_removals(fitted: Any) -> None:
    bound = KERNEL.on(CITY)
    with pytest.raises(TableError, match="must be given if the model has no data"):
        gm.remove_sensors(bound, 1, noise=0.1)
    with pytest.raises(TableError, match="whole number from 1 to 2"):
        gm.remove_sensors(bound, 3, sensors=CITY.nodes[:3], noise=0.1)
    with pytest.raises(TableError, match="at least two, of which one stays"):
        gm.remove_sensors(gm.GraphGPRegressor(CITY, KERNEL, optimizer=None).fit(CITY.nodes[:1], [1.0]))
    unseen = np.setdiff1d(CITY.nodes, fitted["markov"].loo()["node"])[:2]
    with pytest.raises(TableError) as caught:
        gm.remove_sensors(fitted["markov"], 1, sensors=unseen, noise=0.1)
    assert "must be nodes with data" in str(caught.value)
    assert "must be left out if the model has data" in str(caught.value)
