"""What engines are predicted to take, and which is chosen."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import networkx as nx
import numpy as np
import pytest

import graphmatern as gm
from graphmatern.errors import InputError, ResourceError
from graphmatern.inference import EngineCost, Observations, Problem, choose_engine, engines, predict_costs
from graphmatern.inference.markov import cost as markov_cost
from graphmatern.likelihoods import Gaussian, Poisson
from graphmatern.sparse import _products

CITY = gm.make_roads(200, seed=0)
VALUES = np.sin(np.arange(CITY.n_nodes) / 9.0)


def problem(graph: gm.Graph, observed: int, kernel: gm.Kernel | None = None, **options: Any) -> Problem:
    values = Observations(np.arange(observed), np.zeros((observed, 1)), np.zeros((graph.n_nodes, 0)))
    return Problem(graph, kernel, Gaussian(), values, **options)


def pretend(monkeypatch: pytest.MonkeyPatch, **seconds: float) -> None:
    """Let engines be predicted to take so many seconds."""
    costs = {name: lambda _, n=name, s=s: EngineCost(n, "something", s, 2.0**20) for name, s in seconds.items()}
    monkeypatch.setattr(engines, "_COSTS", costs)


def test_every_engine_that_can_serve_is_predicted() -> None:
    hubs = gm.Graph.from_networkx(nx.barabasi_albert_graph(4_000, 5, seed=0))
    few, many = predict_costs(problem(hubs, 100)), predict_costs(problem(hubs, 1_000))
    assert [cost.engine for cost in few] == ["spectral", "markov", "moments"]
    for less, more in zip(few, many, strict=True):
        assert 0.0 < less.seconds <= more.seconds
        assert 0.0 < less.memory <= more.memory
    assert few[2].seconds < many[2].seconds
    assert "500 eigenpairs" in str(few[0])
    unserved = predict_costs(problem(hubs, 100, gm.Diffusion(3.0)))
    assert [cost.engine for cost in unserved] == ["spectral", "moments"]  # no sparse precision


def test_blocks_that_are_not_kept_take_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = problem(CITY, 50)
    kept = engines._moments_cost(asked).memory
    monkeypatch.setattr(_products, "available_memory", lambda: 10)
    assert kept - engines._moments_cost(asked).memory == 2 * 16 * CITY.n_nodes * 50


def test_the_choice_knows_what_a_likelihood_costs() -> None:
    """Dense matrices of 1,800 rows are nothing for one Gaussian fit, and minutes where sites are updated."""
    graph = gm.make_roads(1_800, seed=0)
    once = problem(graph, graph.n_nodes, gm.Matern(1.0))
    assert choose_engine(once, "auto").engine == "spectral"  # where eigenvectors make everything diagonal
    twice = replace(once.observations, nodes=np.zeros(graph.n_nodes, np.int64))
    assert choose_engine(replace(once, observations=twice), "auto").engine == "markov"
    for kernel, words in (
        (gm.Matern(1.0), "integer smoothness"),
        (gm.Matern(1.5), "smoothness of any value"),
        (gm.BYM2(), "a kernel of areas"),
        (gm.Leroux(), "a kernel of areas"),
    ):
        choice = choose_engine(replace(once, kernel=kernel, likelihood=Poisson()), "auto")
        assert choice.engine == "markov"
        assert words in choice.reason
    unserved = choose_engine(replace(once, kernel=gm.Diffusion(3.0), likelihood=Poisson()), "auto")
    assert (unserved.engine, " min" in unserved.reason) == ("spectral", True)
    assert choose_engine(problem(CITY, 100, gm.BYM2()), "auto").reason.endswith("all eigenpairs are cheap")
    # A large map is never left to leading eigenpairs: its kernel has sparse factors.
    grid = gm.Graph.from_networkx(nx.grid_2d_graph(60, 60))
    large = choose_engine(replace(problem(grid, 3_600, gm.BYM2()), likelihood=Poisson()), "auto")
    assert (large.engine, "a kernel of areas" in large.reason) == ("markov", True)


def test_eigenpairs_that_are_known_cost_nothing() -> None:
    graph = gm.make_roads(2_000, seed=1)
    before = predict_costs(problem(graph, 50))[0]
    graph.spectrum()
    assert predict_costs(problem(graph, 50))[0].seconds < before.seconds / 10


def test_a_limit_picks_an_engine_that_keeps_within_it(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, spectral=90.0, markov=20.0, moments=30.0)
    assert choose_engine(problem(CITY, 50), "auto").engine == "spectral"
    assert choose_engine(problem(CITY, 50, max_seconds=200.0), "auto").engine == "spectral"
    chosen = choose_engine(problem(CITY, 50, max_seconds=50.0), "auto")
    assert chosen.engine == "markov"
    assert "max_seconds=50" in chosen.reason
    model = gm.GraphGPRegressor(CITY, max_seconds=50.0).fit(CITY.nodes[::2], VALUES[::2])
    assert model.engine_ == "markov"


def test_a_limit_that_nothing_keeps_within_is_refused_with_every_prediction(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, spectral=90.0, markov=20.0, moments=30.0)
    for estimator in (gm.GraphGPRegressor, gm.GraphGPClassifier):
        labels = VALUES[::2] if estimator is gm.GraphGPRegressor else VALUES[::2] > 0
        with pytest.raises(ResourceError) as error:
            estimator(CITY, max_seconds=5.0).fit(CITY.nodes[::2], labels)
        for words in ("spectral (something) about 90 s", "markov", "20 s", "moments", "30 s", "raise max_seconds"):
            assert words in str(error.value)
    with pytest.raises(ResourceError, match=r"engine='spectral' is predicted to exceed.*Use engine='markov'"):
        choose_engine(problem(CITY, 50, max_seconds=25.0), "spectral")
    limits: tuple[Any, ...] = (0.0, -1.0, "long")
    for limit in limits:
        with pytest.raises(InputError, match="max_seconds"):
            gm.GraphGPRegressor(CITY, max_seconds=limit).fit(CITY.nodes[::2], VALUES[::2])


def test_memory_counts_too(monkeypatch: pytest.MonkeyPatch) -> None:
    costs = {"spectral": lambda _: EngineCost("spectral", "something", 1.0, 1e18)}
    monkeypatch.setattr(engines, "_COSTS", costs)
    with pytest.raises(ResourceError, match="free memory"):
        choose_engine(problem(CITY, 50, max_seconds=5.0), "auto")


def test_a_long_fit_is_announced(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    pretend(monkeypatch, spectral=90.0)
    model = gm.GraphGPRegressor(CITY, verbose=True).fit(CITY.nodes[::2], VALUES[::2])
    assert "fit with something: about 90 s, 0.00098 GiB" in capsys.readouterr().err

    def never(*_: Any) -> None:
        raise AssertionError("a prediction was made that nobody sees")

    monkeypatch.setattr("graphmatern.inference.learning.learn.predicted_cost", never)
    model.set_params(verbose=False).fit(CITY.nodes[::2], VALUES[::2])
    assert capsys.readouterr().err == ""


def test_one_bisection_rules_factors_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of a graph of hubs is ordered where a lower bound is too long already."""

    def never(*_: Any, **__: Any) -> None:
        raise AssertionError("something was ordered")

    monkeypatch.setattr(markov_cost, "early_cost", never)
    hubs = gm.Graph.from_networkx(nx.barabasi_albert_graph(6_000, 8, seed=0))
    for kernel in (None, gm.Matern(1.5)):
        found = choose_engine(replace(problem(hubs, 50, kernel), likelihood=Poisson()), "auto")
        assert found.engine == "moments"
        assert "fill in" in found.reason


@pytest.mark.parametrize(("seconds", "compared"), [(0.9, True), (1.1, False)])
def test_both_laplacians_are_fitted_where_moments_are_cheap(
    monkeypatch: pytest.MonkeyPatch, seconds: float, compared: bool
) -> None:
    pretend(monkeypatch, moments=seconds)
    hubs = gm.Graph.from_networkx(nx.barabasi_albert_graph(60, 2, seed=0))
    model = gm.GraphGPClassifier(hubs, engine="moments").fit(hubs.nodes[:12], np.arange(12) % 2)
    assert ("Laplacian has more evidence" in model.engine_reason_) == compared
