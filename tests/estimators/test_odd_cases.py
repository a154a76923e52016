"""Odd data and extreme parameters, tabulated: each has a right answer, or an error or warning that explains."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest

import graphmatern as gm
from graphmatern.errors import GraphMaternError, KernelError, NumericalError, NumericalWarning, TableError
from reference import dense_kernel, matern_psi

if TYPE_CHECKING:
    from collections.abc import Callable

CITY = gm.make_roads(60, seed=1)
NODES = np.asarray(CITY.nodes)
RNG = np.random.default_rng(8)
FIELD = gm.Matern(1, 4.0).on(CITY).sample(random_state=2).numpy()[0]
ONE = gm.Graph.from_adjacency(np.zeros((1, 1)))
LONELY = gm.Graph.from_adjacency(np.zeros((3, 3)))
Model = gm.GraphGPRegressor


def fit(engine: Any, nodes: Any, y: Any, *, graph: Any = CITY, kernel: Any = None, **options: Any) -> Model:
    kernel = gm.Matern(1, 3.0, fixed=("nu",)) if kernel is None else kernel
    return gm.GraphGPRegressor(graph, kernel, engine=engine, **options).fit(nodes, y)


def constant_values(engine: Any) -> None:
    model = fit(engine, NODES[:10], np.full(10, 4.0))
    np.testing.assert_allclose(model.predict(), 4.0, atol=1e-6)
    assert model.y_scale_ == 4.0  # its size, as nothing else is known of its unit


def one_observation(engine: Any) -> None:
    model = fit(engine, [0], [7.0])
    mean, std = model.predict(return_std=True)
    np.testing.assert_allclose(mean, 7.0)  # the mean is all that one value tells
    assert np.isfinite(std).all()


def two_equal_observations_of_one_node(engine: Any) -> None:
    model = fit(engine, [0, 0], [3.0, 3.0], optimizer=None)
    assert model.predict([0])[0] == pytest.approx(3.0)


def every_node_observed(engine: Any) -> None:
    model = fit(engine, NODES, FIELD)
    assert model.score(NODES, FIELD) > 0.95


def more_values_than_nodes(engine: Any) -> None:
    many = np.repeat(NODES, 30)
    noisy = np.repeat(FIELD, 30) + 0.5 * RNG.standard_normal(len(many))
    model = fit(engine, many, noisy)
    means = pd.Series(noisy).groupby(many).mean().to_numpy()
    # With thirty values each, the prediction is hardly anything but their mean.
    assert np.abs(model.predict() - means).max() < 0.2
    assert np.sqrt(model.noise_) * model.y_scale_ == pytest.approx(0.5, rel=0.1)


def noise_towards_zero(engine: Any) -> None:
    places = NODES[::2]
    model = fit(engine, places, FIELD[::2], kernel=gm.Matern(1, 4.0), noise=1e-9, optimizer=None)
    np.testing.assert_allclose(model.predict(places), FIELD[::2], atol=1e-5)  # interpolation
    _, std = model.predict(places, return_std=True)
    assert std.max() < 1e-3
    # Against the limit itself, with no noise at all.
    y = (FIELD[::2] - model.y_mean_) / model.y_scale_
    covariance = dense_kernel(CITY, matern_psi(1, 4.0))
    inverse = np.linalg.inv(covariance[np.ix_(places, places)])
    beta = inverse.sum(axis=0) @ y / inverse.sum()
    expected = beta + covariance[:, places] @ inverse @ (y - beta)
    np.testing.assert_allclose(model.predict(), model.y_mean_ + model.y_scale_ * expected, atol=1e-5)


def likelihood_with_little_noise(engine: Any) -> None:
    """Against the dense covariance, which is well conditioned."""
    y = FIELD[::2] / FIELD[::2].std()
    model = fit(
        engine, NODES[::2], y, kernel=gm.Matern(1, 4.0), noise=1e-8, optimizer=None, mean="zero", normalize_y=False
    )
    covariance = dense_kernel(CITY, matern_psi(1, 4.0))[np.ix_(NODES[::2], NODES[::2])] + 1e-8 * np.eye(len(y))
    squares = y @ np.linalg.solve(covariance, y)
    expected = -0.5 * (np.linalg.slogdet(covariance)[1] + squares + len(y) * np.log(2 * np.pi))
    assert model.log_marginal_likelihood_ == pytest.approx(expected, abs=1e-10)


def noise_towards_infinity(engine: Any) -> None:
    model = fit(engine, NODES, FIELD, noise=1e8, optimizer=None)
    np.testing.assert_allclose(model.predict(), FIELD.mean(), atol=1e-5)


def learned_without_noise(engine: Any) -> None:
    model = fit(engine, NODES[::2], FIELD[::2])
    assert model.noise_ < 0.5
    assert np.isfinite(model.predict(return_std=True)[1]).all()


def huge_values(engine: Any) -> None:
    small, large = (fit(engine, NODES, factor * FIELD) for factor in (1.0, 1e150))
    np.testing.assert_allclose(large.predict(), 1e150 * small.predict(), rtol=1e-3)


def any_unit(engine: Any) -> None:
    """Predictions scale with y, down to the smallest numbers and up to the largest."""
    expected = fit(engine, NODES[::2], FIELD[::2]).predict()
    for unit in (1e-250, 1e-20, 1e-13, 1e20, 1e250):
        np.testing.assert_allclose(fit(engine, NODES[::2], unit * FIELD[::2]).predict() / unit, expected, rtol=1e-3)


def constant_of_any_size(engine: Any) -> None:
    for constant in (1e-200, 0.1, -1e20, 1e200):
        model = fit(engine, NODES[:23], np.full(23, constant))
        np.testing.assert_allclose(model.predict(), constant, rtol=1e-12)


def one_observation_left_out(engine: Any) -> None:
    """Without it nothing is known of the mean: no prediction, rather than an arbitrary one."""
    table = fit(engine, [0], [4.0], optimizer=None).loo()
    assert np.isnan(table["mean"][0])
    assert table["std"][0] == np.inf


def replicate_without_values(engine: Any) -> None:
    y = np.column_stack([np.full(20, np.nan), FIELD[:20], np.where(np.arange(20) < 5, np.nan, FIELD[:20])])
    model = fit(engine, NODES[:20], y, optimizer=None)
    alone = fit(engine, NODES[:20], y[:, 1:], optimizer=None)
    np.testing.assert_allclose(model.predict()[:, 1:], alone.predict(), rtol=1e-10)
    assert model.log_marginal_likelihood_ == pytest.approx(alone.log_marginal_likelihood_, rel=1e-12)
    table = model.loo()
    assert table["replicate"].tolist() == [1] * 20 + [2] * 15
    np.testing.assert_allclose(table["mean"], alone.loo()["mean"], rtol=1e-10)
    assert np.isfinite(model.sample(3, random_state=0)).all()


def nothing_to_learn_from(engine: Any) -> None:
    """One value has no peak in its likelihood: no standard error can be named."""
    model = fit(engine, [0], [4.0], integrate=False)
    with pytest.warns(NumericalWarning, match=r"lengthscale \((no peak|at a bound)\)"):
        errors = model.standard_errors()
    assert np.isnan(list(errors.values())).all()


def large_offset(engine: Any) -> None:
    model = fit(engine, NODES, 1e9 + FIELD)
    np.testing.assert_allclose(model.predict() - 1e9, fit(engine, NODES, FIELD).predict(), atol=1e-3)


def integers_and_booleans(engine: Any) -> None:
    by_bool = fit(engine, NODES[:4], [True, False, True, True], optimizer=None)
    by_int = fit(engine, NODES[:4], [1, 0, 1, 1], optimizer=None)
    np.testing.assert_allclose(by_bool.predict(), by_int.predict(), rtol=1e-12)


def graph_of_one_node(engine: Any) -> None:
    model = fit(engine, [0, 0, 0], [1.0, 2.0, 3.0], graph=ONE)
    assert model.predict()[0] == pytest.approx(2.0, abs=1e-6)


def graph_without_edges(engine: Any) -> None:
    model = fit(engine, [0, 1], [1.0, 3.0], graph=LONELY, optimizer=None)
    assert model.predict_table()["informed"].tolist() == [True, True, False]
    assert model.predict([2])[0] == pytest.approx(2.0)


def longest_lengthscale(engine: Any) -> None:
    """The kernel is nearly constant over the component, which the constant mean takes over."""
    kernel = gm.Matern(1, 1e4, fixed=("nu", "lengthscale"))
    found = fit(engine, NODES[:20], FIELD[:20], kernel=kernel, optimizer=None, noise=0.5)
    assert found.predict().std() < found.y_scale_


def shortest_lengthscale(engine: Any) -> None:
    found = fit(engine, NODES[:20], FIELD[:20], kernel=gm.Matern(1, 1e-3), optimizer=None, noise=0.5)
    np.testing.assert_allclose(found.predict(NODES[20:]), FIELD[:20].mean(), atol=1e-4)


ANSWERS: list[Callable[[Any], None]] = [
    constant_values, one_observation, two_equal_observations_of_one_node, every_node_observed,
    more_values_than_nodes, noise_towards_zero, likelihood_with_little_noise, noise_towards_infinity,
    learned_without_noise, huge_values, any_unit, constant_of_any_size, one_observation_left_out,
    replicate_without_values, nothing_to_learn_from, large_offset, integers_and_booleans, graph_of_one_node,
    graph_without_edges, longest_lengthscale, shortest_lengthscale,
]  # fmt: skip


@pytest.mark.parametrize("engine", ["spectral", "markov"])
@pytest.mark.parametrize("case", ANSWERS, ids=lambda case: case.__name__)
def test_odd_cases_have_right_answers(case: Callable[[Any], None], engine: str) -> None:
    case(engine)


ERRORS: dict[str, tuple[Callable[[Any], object], type[GraphMaternError], str]] = {
    "infinity": (lambda e: fit(e, [0, 1], [1.0, np.inf]), TableError, "`y` must hold numbers"),
    "minus infinity": (lambda e: fit(e, [0, 1], [1.0, -np.inf]), TableError, "`y` must hold numbers"),
    "complex": (lambda e: fit(e, [0, 1], [1.0, 1j]), TableError, "`y`"),
    "unknown node": (lambda e: fit(e, ["x"], [1.0]), TableError, "`nodes` must be names of nodes"),
    "empty": (lambda e: fit(e, [], []), TableError, "at least one value"),
    "all NaN": (lambda e: fit(e, [0], [np.nan]), TableError, "at least one value"),
    "three dimensions": (lambda e: fit(e, [0], np.zeros((1, 1, 1))), TableError, "must have shape"),
    "no nodes": (lambda e: fit(e, None, [1.0]), TableError, "`nodes` must be a 1-D sequence"),
    "negative noise": (lambda e: fit(e, [0], [1.0], noise=-1.0), KernelError, "`noise` must be a positive"),
    "noise that is no number": (lambda e: fit(e, [0], [1.0], noise="low"), KernelError, "`noise` must be a positive"),
    "no graph": (lambda e: fit(e, [0], [1.0], graph="city"), KernelError, "`graph` must be"),
    "eigenpairs": (
        lambda e: fit("spectral", [0], [1.0], n_eigenpairs=0),
        GraphMaternError,
        "`n_eigenpairs` must be a whole number",
    ),
    "predicted elsewhere": (lambda e: fit(e, [0], [1.0]).predict(["x"]), GraphMaternError, "'x'"),
    "table of names": (lambda e: fit(e, [[0, 1]], [[1.0, 2.0]]), GraphMaternError, "`nodes`"),
}


@pytest.mark.parametrize("engine", ["spectral", "markov"])
@pytest.mark.parametrize("case", ERRORS)
def test_wrong_input_is_explained(case: str, engine: str) -> None:
    attempt, kind, words = ERRORS[case]
    with pytest.raises(kind) as caught:
        attempt(engine)
    assert words in str(caught.value)


def test_extreme_conditioning_is_warned_of_with_an_estimate() -> None:
    kernel = gm.Matern(3, 70.0)
    with pytest.warns(NumericalWarning, match="estimated relative error"):
        fit("markov", NODES[:20], FIELD[:20], kernel=kernel, optimizer=None, noise=0.5)
    # The spectral engine has the same model without the loss.
    assert np.isfinite(
        fit("spectral", NODES[:20], FIELD[:20], kernel=kernel, optimizer=None, noise=0.5).predict()
    ).all()


def test_impossible_conditioning_is_an_error_with_causes() -> None:
    kernel = gm.Matern(3, 1e9)
    with pytest.raises(GraphMaternError, match=r"[Ll]ikely causes"):
        fit("markov", NODES[:20], FIELD[:20], kernel=kernel, optimizer=None, noise=0.5)


@pytest.mark.parametrize("engine", ["spectral", "markov"])
def test_noise_near_rounding_is_warned_of_with_an_estimate(engine: str) -> None:
    with pytest.warns(NumericalWarning, match=r"1e-13 times the prior variance.* estimated relative error of 2e-03"):
        fit(engine, NODES[:20], FIELD[:20], noise=1e-13, optimizer=None)


def test_lengthscales_beyond_the_range_of_numbers_are_an_error_with_causes() -> None:
    with pytest.raises(NumericalError, match=r"overflows. Likely causes"):
        fit("markov", NODES[:20], FIELD[:20], kernel=gm.Matern(3, 1e-90), optimizer=None)


def test_weights_over_many_decades() -> None:
    weights = 10.0 ** np.random.default_rng(0).uniform(-6, 6, 30)
    graph = gm.Graph.from_edges([(i, i + 1) for i in range(30)], weight=weights)
    values = np.sin(np.arange(31) / 3.0)
    for engine in ("spectral", "markov"):
        model = fit(engine, graph.nodes[::2], values[::2], graph=graph, kernel=gm.Matern(1, 1.0), optimizer=None)
        assert np.isfinite(model.predict(return_std=True)).all()


def test_slips_of_the_pen_are_named() -> None:
    kind: Any = gm.BYM2
    with pytest.raises(TableError, match=r"received inf in row 1, 'soon' in row 2\. Correct"):
        gm.GraphGPRegressor(CITY).fit([0, 1, 2], pd.Series([1.0, np.inf, "soon"]))
    with pytest.raises(TableError, match=r"received 'soon' in row 1, column 1\. Correct"):
        gm.GraphGPRegressor(CITY).fit(CITY.nodes[:2], pd.DataFrame([[1.0, 2.0], [None, "soon"]]))
    with pytest.raises(KernelError, match=r"must be a kernel of this package.*Call the class: BYM2\(\)"):
        gm.GraphGPRegressor(CITY, kind).fit([0, 1], [1.0, 2.0])
    with pytest.raises(KernelError) as caught:
        gm.GraphGPRegressor(CITY, priors={"phi": gm.Beta(0.5, 0.5)}).fit([0, 1], [1.0, 2.0])
    assert len(caught.value.faults) == 1  # an unknown name, of which nothing else can be said


def test_cautions_name_parameters_as_tables_do() -> None:
    parts = gm.Graph.from_edges([(i, i + 1) for i in range(6)])
    model = gm.GraphGPRegressor(parts, gm.BYM2(), likelihood="poisson").fit(range(7), [0] * 7, exposure=[1.0] * 7)
    [line] = [line for line in model.summary().splitlines() if "the data say little about" in line]
    assert "sigma" in line
    assert "variance" not in line
