"""What learning obeys: bounds, priors, restarts, an open smoothness, standard errors, starts from part of the graph."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.optimize import brentq

import graphmatern as gm
from graphmatern.errors import KernelError, NumericalError, NumericalWarning
from graphmatern.inference import MarkovPrecision, Observations, Optimum, PriorsAndBounds, Problem, Search
from graphmatern.inference.learning.optimize import curvature, find_minimum, settle
from graphmatern.inference.learning.parameters import Coordinate
from graphmatern.inference.learning.rehearsal import is_large, neighbourhood, part_of_graph, rehearse
from graphmatern.inference.learning.search import search_minimum
from graphmatern.inference.markov.engine import MarkovEngine
from graphmatern.inference.sites.gaussian import GaussianObjective
from graphmatern.likelihoods import Gaussian, Poisson
from reference import dense_kernel, matern_psi

CITY = gm.make_roads(80, seed=1)
RNG = np.random.default_rng(3)
TRUTH = gm.Matern(2, 5.0).on(CITY).sample(random_state=1).numpy()[0]
Y = TRUTH + 0.3 * RNG.standard_normal(len(TRUTH))
ENGINES: list[Any] = ["spectral", "markov"]


def fitted(engine: Any, kernel: gm.Kernel | None = None, **options: Any) -> gm.GraphGPRegressor:
    kernel = gm.Matern(2, 3.0, fixed=("nu",)) if kernel is None else kernel
    return gm.GraphGPRegressor(CITY, kernel, engine=engine, integrate=False, **options).fit(CITY.nodes, Y)


def values(model: gm.GraphGPRegressor) -> dict[str, float]:
    assert isinstance(model.kernel_, gm.Matern)
    return {**model.kernel_.values(), "noise": model.noise_}


def dense_negative_log_likelihood(model: gm.GraphGPRegressor, point: dict[str, float]) -> float:
    """−log p of the normalised values under a constant mean, from the formulas."""
    y = (Y - model.y_mean_) / model.y_scale_
    c = dense_kernel(CITY, matern_psi(point["nu"], point["lengthscale"]), variance=point["variance"])
    c = c + point["noise"] * np.eye(len(y))
    inverse, h = np.linalg.inv(c), np.ones(len(y))
    information, cross = h @ inverse @ h, h @ inverse @ y
    squares = y @ inverse @ y - cross**2 / information
    return float(0.5 * (np.linalg.slogdet(c)[1] + squares + np.log(information) + (len(y) - 1) * np.log(2 * np.pi)))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", ["lengthscale", "variance", "noise"])
def test_bounds_hold_and_are_reported(engine: Any, name: str) -> None:
    free = values(fitted(engine))
    limit = 0.5 * free[name]
    model = fitted(engine, bounds={name: (1e-3 * limit, limit)})
    assert values(model)[name] == pytest.approx(limit, rel=1e-6)
    assert model.at_bounds_ == [name]
    assert f"{name} ended at a bound" in model.summary()
    assert model.gradient_norm_ < 1e-2  # of what is free to move
    assert model.log_marginal_likelihood_ == pytest.approx(-dense_negative_log_likelihood(model, values(model)))


@pytest.mark.parametrize("name", ["lengthscale", "variance", "noise"])
def test_priors_pull_and_engines_agree_on_how_far(name: str) -> None:
    prior = gm.LogNormal(median=20.0 if name == "lengthscale" else 0.01, spread=0.3)
    spectral, markov = (fitted(engine, priors={name: prior}) for engine in ENGINES)
    assert values(spectral) == pytest.approx(values(markov), rel=2e-3)
    free = values(fitted("spectral"))[name]
    pulled = values(spectral)[name]
    assert min(free, prior.median) < pulled < max(free, prior.median)
    # The likelihood is reported without the prior, and the optimum is that of their product.
    point = values(spectral)
    assert spectral.log_marginal_likelihood_ == pytest.approx(-dense_negative_log_likelihood(spectral, point))

    def penalised(log_value: float) -> float:
        likelihood = dense_negative_log_likelihood(spectral, {**point, name: float(np.exp(log_value))})
        return likelihood + prior.penalty(log_value)[0]

    at, step = np.log(pulled), 1e-4
    assert abs(penalised(at + step) - penalised(at - step)) / (2 * step) < 1e-3


def test_a_prior_holds_what_the_data_do_not_say() -> None:
    model = gm.GraphGPRegressor(
        CITY, gm.Matern(1, 1.0, fixed=("nu",)), priors={"lengthscale": gm.LogNormal(7.0, 0.5)}, engine="markov"
    )
    model.fit([0, 1], [1.0, 1.1])
    assert values(model)["lengthscale"] == pytest.approx(7.0, rel=0.5)


def test_restarts_never_lose_and_can_be_repeated() -> None:
    truth = gm.Matern(1.5, 3.0).on(CITY).sample(random_state=0).numpy()[0]
    kernel = gm.Matern(1.5, 1e-3, 1e-3, fixed=("nu",))
    once = gm.GraphGPRegressor(CITY, kernel, noise=5.0, integrate=False).fit(CITY.nodes, truth)
    model = gm.GraphGPRegressor(CITY, kernel, noise=5.0, n_restarts=8, random_state=0, integrate=False)
    often = model.fit(CITY.nodes, truth)
    assert often.log_marginal_likelihood_ > once.log_marginal_likelihood_ - 1e-6
    again = model.fit(CITY.nodes, truth)
    assert again.log_marginal_likelihood_ == often.log_marginal_likelihood_


def test_restarts_leave_a_bad_start() -> None:
    """Two valleys, the deeper one on the other side."""

    def valleys(x: np.ndarray) -> tuple[float, np.ndarray]:
        a = x[0]
        return float((a * a - 1.0) ** 2 + 0.5 * a), np.array([4.0 * a * (a * a - 1.0) + 0.5])

    start, coordinates = np.array([1.2]), [Coordinate("x", -5.0, 5.0)]
    once = search_minimum(valleys, start, coordinates, Search())
    often = search_minimum(valleys, start, coordinates, Search(n_restarts=8, seed=1))
    assert once.position[0] > 0.0
    assert often.position[0] < 0.0
    assert often.value < once.value - 0.5
    assert often.n_evaluations > once.n_evaluations


@pytest.mark.parametrize("engine", ENGINES)
def test_an_open_smoothness_is_chosen(engine: Any) -> None:
    kernel = gm.Matern(nu=None, lengthscale=3.0)
    assert "nu=None" in repr(kernel)
    model = fitted(engine, kernel)
    nu = values(model)["nu"]
    assert isinstance(model.kernel_, gm.Matern)
    assert not model.kernel_.chooses_nu
    assert kernel.chooses_nu
    assert model.get_params()["kernel__nu"] is None
    if engine == "markov":
        likelihoods = {k: fitted(engine, gm.Matern(k, 3.0)).log_marginal_likelihood_ for k in (1, 2, 3)}
        assert nu == max(likelihoods, key=lambda k: likelihoods[k])
    else:
        assert model.log_marginal_likelihood_ > fitted(engine).log_marginal_likelihood_ - 1e-6
    with pytest.raises(KernelError, match="must not hold `nu`"):
        gm.Matern(nu=None, fixed=("nu",))
    kernel.nu = 2.0
    assert not kernel.chooses_nu


def test_bounds_and_priors_choose_among_smoothnesses() -> None:
    kernel = gm.Matern(nu=None, lengthscale=3.0)
    free = values(fitted("markov", kernel))["nu"]
    for nu in {1, 2, 3} - {free}:
        assert values(fitted("markov", kernel, bounds={"nu": (nu - 0.5, nu + 0.5)}))["nu"] == nu
        assert values(fitted("markov", kernel, priors={"nu": gm.LogNormal(nu, 0.01)}))["nu"] == nu
    assert 1.2 <= values(fitted("markov", kernel, bounds={"nu": (1.2, 1.8)}))["nu"] <= 1.8


def test_a_smoothness_that_breaks_down_is_passed_over() -> None:
    kernel = gm.Matern(nu=None, lengthscale=500.0, fixed=("lengthscale",))
    with pytest.raises(NumericalError):
        fitted("markov", gm.Matern(3, 500.0, fixed=("lengthscale",)))
    assert values(fitted("markov", kernel))["nu"] < 3  # without a warning: it was chosen with that in mind


def test_smoothnesses_that_would_take_long_are_not_tried() -> None:
    """The square of a star's Laplacian is dense: 4e8 entries, which are counted but never formed."""
    star = gm.Graph.from_edges([(0, i) for i in range(1, 20_000)])
    y = np.random.default_rng(0).standard_normal(30)
    model = gm.GraphGPRegressor(star, engine="markov", optimizer=None).fit(range(30), y)
    assert values(model)["nu"] == 1
    small = star.subgraph(range(400))
    asked = gm.GraphGPRegressor(small, gm.Matern(2), engine="markov", optimizer=None).fit(range(30), y)
    assert values(asked)["nu"] == 2


@pytest.mark.parametrize("start", [1e-9, 1e9])
def test_a_start_beyond_what_rounding_bears_is_moved(start: float) -> None:
    model = fitted("markov", gm.Matern(3, start, fixed=("nu",)), bounds={"lengthscale": (0.5, 1e3)})
    expected = fitted("markov", gm.Matern(3, 3.0, fixed=("nu",)))
    assert model.log_marginal_likelihood_ == pytest.approx(expected.log_marginal_likelihood_, abs=1e-4)
    with pytest.raises(KernelError, match="must allow lengthscales below"):
        fitted("markov", gm.Matern(3, fixed=("nu",)), bounds={"lengthscale": (1e6, 1e7)})


@pytest.mark.parametrize("method", ["lbfgs", "adam"])
def test_a_fit_that_ends_at_a_bound_has_not_stopped_early(method: Any) -> None:
    """Warnings are errors here."""
    model = fitted("spectral", bounds={"lengthscale": (1.0, 2.0)}, optimizer=method, max_iterations=400)
    assert model.converged_
    assert "lengthscale" in model.at_bounds_


@pytest.mark.parametrize("engine", ENGINES)
def test_standard_errors_are_those_of_the_dense_likelihood(engine: Any) -> None:
    model = fitted(engine)
    names = ["lengthscale", "variance", "noise"]
    point, step = values(model), 1e-3
    center = np.log([point[name] for name in names])

    def value(logs: np.ndarray) -> float:
        chosen = dict(zip(names, np.exp(logs).tolist(), strict=True))
        return dense_negative_log_likelihood(model, {**point, **chosen})

    steps = step * np.eye(3)
    hessian = np.array(
        [
            [
                (value(center + a + b) - value(center + a - b) - value(center - a + b) + value(center - a - b))
                / (4 * step**2)
                for b in steps
            ]
            for a in steps
        ]
    )
    expected = np.sqrt(np.diag(np.linalg.inv(hessian)))
    found = model.standard_errors()
    assert list(found) == names
    np.testing.assert_allclose(list(found.values()), expected, rtol=1e-3)


def search_whole(
    problem: Problem, engine: Any, known: None = None, hint: Any = None, to_gain: float | None = None
) -> tuple[Optimum, GaussianObjective, GaussianObjective]:
    """The optimum of a Gaussian problem, from the kernel's values or from a hint."""
    objective = GaussianObjective(engine, problem)
    start, hessian = (np.concatenate([engine.start, objective.start]), None) if hint is None else hint
    coordinates = [*engine.coordinates, *objective.coordinates]
    found = search_minimum(
        objective, start, coordinates, problem.search, hessian=hessian, to_gain=1e-7 if to_gain is None else to_gain
    )
    return found, objective, objective


def test_part_of_a_large_graph_gives_start_and_curvature() -> None:
    graph = gm.make_roads(30_000, seed=0)
    precision = MarkovPrecision(graph, 1)
    rng = np.random.default_rng(0)
    factor = precision.analysis.factorize_lower(precision.polynomial.lower(precision.coefficients(6.0, 1.0)))
    field = factor.solve_upper(rng.standard_normal(graph.n_nodes))
    observed = np.sort(rng.choice(graph.n_nodes, graph.n_nodes // 3, replace=False))
    y = field[observed] + 0.3 * field.std() * rng.standard_normal(len(observed))
    y = (y - y.mean()) / y.std()
    observations = Observations(observed, y[:, None], np.ones((graph.n_nodes, 1)))
    problem = Problem(graph, gm.Matern(1, 3.0, fixed=("nu",)), Gaussian(), observations)
    part = part_of_graph(problem)
    assert part is not None
    hint = rehearse(problem, part, MarkovEngine, 0, search_whole)
    assert hint is not None
    assert hint[1] is not None
    whole, objective, _ = search_whole(problem, MarkovEngine(problem, observations.groups, 1))
    quick, *_ = search_whole(problem, MarkovEngine(problem, observations.groups, 1), None, hint, 2e-4)
    assert quick.converged
    assert quick.n_evaluations < 0.7 * whole.n_evaluations
    assert quick.value == pytest.approx(whole.value, abs=1e-3)
    hessian = curvature(objective, whole.position)
    errors = np.sqrt(np.diag(np.linalg.inv(hessian)))
    assert (np.abs(quick.position - whole.position) < 0.05 * errors).all()
    # A part of 12,000 of 30,000 nodes knows the curvature to a third, and the optimum to a few of its own errors.
    np.testing.assert_allclose(np.diag(hint[1]), np.diag(hessian), rtol=0.33)
    assert (np.abs(hint[0] - whole.position) < 4.0 * np.sqrt(2.5) * errors).all()


def test_what_counts_as_large() -> None:
    """Gaussian noise on many nodes with nothing held or said about the variance."""
    n = 60_000
    path = gm.Graph.from_edges(np.column_stack([np.arange(n - 1), np.arange(1, n)]))
    observations = Observations(np.arange(9), np.ones((9, 1)), np.ones((n, 1)))
    rules = PriorsAndBounds(bounds={"variance": (0.1, 10.0)})
    free, held = gm.Matern(1, fixed=("nu",)), gm.Matern(1, fixed=("nu", "variance"))
    assert is_large(Problem(path, free, Gaussian(), observations))
    assert is_large(Problem(path, None, Gaussian(), observations))
    assert not is_large(Problem(path, held, Gaussian(), observations))
    assert not is_large(Problem(path, free, Poisson(), observations))
    assert not is_large(Problem(path, free, Gaussian(fixed=("noise",)), observations))
    assert not is_large(Problem(path, free, Gaussian(), observations, rules=rules))
    assert not is_large(Problem(path.subgraph(range(n - 1)), free, Gaussian(), observations))


def test_neighbourhoods_are_connected_and_as_large_as_asked() -> None:
    graph = gm.make_roads(2000, seed=0)
    found = neighbourhood(graph, np.array([100]), 300)
    assert len(found) == len(np.unique(found)) == 300
    assert graph.subgraph(graph.nodes[found]).n_components == 1
    lonely = gm.Graph.from_edges([("a", "b"), ("c", "d")])
    assert sorted(neighbourhood(lonely, np.array([0]), 10)) == [0, 1]


def rosenbrock(x: np.ndarray, steepness: float = 100.0) -> tuple[float, np.ndarray]:
    a, b = x
    value = (1 - a) ** 2 + steepness * (b - a * a) ** 2
    return float(value), np.array([-2 * (1 - a) - 4 * steepness * a * (b - a * a), 2 * steepness * (b - a * a)])


def test_quasi_newton_reaches_a_minimum_within_bounds() -> None:
    start, guess = np.array([-1.0, 1.0]), np.diag([500.0, 200.0])
    free = find_minimum(rosenbrock, start, [(-5, 5), (-5, 5)], method="bfgs", hessian=guess)
    assert free.converged
    np.testing.assert_allclose(free.position, [1.0, 1.0], atol=0.05)
    held = find_minimum(rosenbrock, start, [(-5, 0.5), (-5, 5)], method="bfgs", hessian=guess)
    np.testing.assert_allclose(held.position, [0.5, 0.25], atol=0.01)
    assert held.position[0] <= 0.5


def test_a_step_that_is_cut_short_in_one_direction_is_the_best_of_the_others() -> None:
    """Two parameters that can stand for each other, one of them bounded: the known curvature leads there at once."""
    model = np.array([[1.0, 0.99], [0.99, 1.0]])

    def bowl(x: np.ndarray) -> tuple[float, np.ndarray]:
        away = x - np.array([5.0, -4.0])
        return 0.5 * float(away @ model @ away), model @ away

    found = find_minimum(bowl, np.zeros(2), [(-9, 1), (-9, 9)], method="bfgs", hessian=model, longest_step=9.0)
    np.testing.assert_allclose(found.position, [1.0, -4.0 + 0.99 * 4.0], atol=1e-8)
    assert found.n_evaluations == 2


@pytest.mark.parametrize("start", [0.01, 0.1, 2.0])
def test_scoring_steps_of_variances_are_taken_in_the_variances(start: float) -> None:
    """Noise beside a process of variance 1, from 2,000 values: hardly any steps from noise that is far too small."""
    size, where = 2_000, [0.0]

    def noise(x: np.ndarray) -> tuple[float, np.ndarray]:
        where[0] = float(np.exp(x[0]))
        both = 1.0 + where[0]
        slope = 0.5 * size * where[0] * (1.0 / both - 1.3 / both**2)
        return 0.5 * size * (np.log(both) + 1.3 / both), np.array([slope])

    def information() -> np.ndarray:
        return np.array([[0.5 * size * (where[0] / (1.0 + where[0])) ** 2]])

    options: dict[str, Any] = {"method": "bfgs", "hessian": information, "to_gain": 5e-3}
    bounds = [(-12.0, 12.0)]
    found = find_minimum(noise, np.log([start]), bounds, variances=np.array([True]), **options)
    assert found.converged
    assert abs(np.exp(found.position[0]) - 0.3) < 0.01
    assert found.n_evaluations <= 6
    plain = find_minimum(noise, np.log([start]), bounds, **options)
    assert found.n_evaluations <= plain.n_evaluations


def test_past_steps_correct_an_information_that_is_off() -> None:
    """Twice the curvature halves every step of plain scoring: 11 evaluations to a hundredth of this."""
    size, asked = 1e4, [0]

    def bowl(x: np.ndarray) -> tuple[float, np.ndarray]:
        return 0.5 * size * float(x @ x), size * x

    def information() -> np.ndarray:
        asked[0] += 1
        return 2.0 * size * np.eye(1)

    found = find_minimum(bowl, np.array([0.4]), [(-5.0, 5.0)], method="bfgs", hessian=information, to_gain=1e-3)
    assert abs(found.position[0]) < 1e-3
    assert found.n_evaluations <= 4
    assert asked == [1]


def test_steps_that_get_nowhere_go_on_as_lbfgs() -> None:
    """In a steep, curved valley, from a guess of the curvature far too large, BFGS is given up and the end reached."""
    options: dict[str, Any] = {"method": "bfgs", "hessian": 1e5 * np.eye(2), "to_gain": 1e-9}
    start, bounds = np.array([-1.2, 1.0]), [(-5.0, 5.0), (-5.0, 5.0)]
    found = find_minimum(lambda x: rosenbrock(x, 1e4), start, bounds, **options)
    assert found.converged
    assert "CONVERGENCE" in found.message  # the words of L-BFGS
    np.testing.assert_allclose(found.position, [1.0, 1.0], atol=1e-3)
    short = find_minimum(lambda x: rosenbrock(x, 1e4), start, bounds, max_iterations=5, **options)
    assert not short.converged


@pytest.mark.parametrize("method", ["lbfgs", "bfgs", "adam"])
def test_nothing_has_converged_where_the_slope_is_large(method: str) -> None:
    """Not after few steps, and not where a wrong picture of the curvature promises nothing to gain."""
    start, bounds = np.array([-1.2, 1.0]), [(-5.0, 5.0), (-5.0, 5.0)]
    for steps in (1, 3, 10, 30):
        found = find_minimum(rosenbrock, start, bounds, method=method, max_iterations=steps)
        assert not found.converged or np.abs(found.gradient).max() < 1.0
    flat = find_minimum(rosenbrock, start, bounds, method="bfgs", hessian=lambda: 1e12 * np.eye(2))
    assert np.abs(flat.gradient).max() < 1.0


@pytest.mark.parametrize("method", ["lbfgs", "bfgs", "adam"])
def test_a_search_never_ends_where_the_objective_breaks_down(method: str) -> None:
    """It ends near the edge."""

    def cliff(x: np.ndarray) -> tuple[float, np.ndarray]:
        if x[0] > 0.7:
            raise gm.errors.NumericalError("there is no floor")
        return float(-3.0 * x[0] + 0.01 * x[0] ** 2), np.array([-3.0 + 0.02 * x[0]])

    found = find_minimum(cliff, np.array([-2.0]), [(-5.0, 5.0)], method=method)
    assert found.value == cliff(found.position)[0]
    assert 0.0 < found.position[0] <= 0.7


def test_a_random_start_that_breaks_down_is_passed_over() -> None:
    calls = []

    def fragile(x: np.ndarray) -> tuple[float, np.ndarray]:
        calls.append(x)
        if abs(x[0]) > 1.0 and len(calls) > 20:
            raise gm.errors.NumericalError("too far")
        return float(x @ x), 2 * x

    best = search_minimum(fragile, np.array([0.5]), [Coordinate("x", -9.0, 9.0)], Search(n_restarts=5, seed=1))
    assert abs(best.position[0]) < 1e-4


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "name in bounds": ({"bounds": {"kappa": (1.0, 2.0)}}, "`bounds` must name parameters"),
    "order of bounds": ({"bounds": {"noise": (2.0, 1.0)}}, "the smaller first"),
    "one bound": ({"bounds": {"noise": 2.0}}, "must be pairs"),
    "name in priors": ({"priors": {"kappa": gm.LogNormal(1.0, 1.0)}}, "`priors` must name parameters"),
    "no prior": ({"priors": {"noise": (1.0, 2.0)}}, "must be gm.LogNormal"),
    "restarts": ({"n_restarts": -1}, "`n_restarts` must be a whole number"),
    "seed": ({"n_restarts": 1, "random_state": -1}, "`random_state` must be a whole number"),
    "list of bounds": ({"bounds": [("noise", (0.1, 1.0))]}, "`bounds` must be a dictionary"),
    "number of priors": ({"priors": 0}, "`priors` must be a dictionary"),
    "text as bound": ({"bounds": {"noise": ("0.1", "1.0")}}, "must be pairs of positive numbers"),
    "kernel": ({"kernel": "matern"}, "`kernel` must be a kernel"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_options_are_refused(case: str) -> None:
    options, words = BAD[case]
    with pytest.raises(KernelError) as caught:
        gm.GraphGPRegressor(CITY, **options).fit([0, 1], [1.0, 2.0])
    assert words in str(caught.value)


def test_all_wrong_rules_are_reported_at_once() -> None:
    with pytest.raises(KernelError) as caught:
        gm.GraphGPRegressor(CITY, bounds={"kappa": (1.0, 2.0)}, priors={"noise": 3}).fit([0], [1.0])  # type: ignore[dict-item]
    assert len(caught.value.faults) == 2
    with pytest.raises(KernelError, match="`spread` must be a positive"):
        gm.LogNormal(1.0, 0.0)


def test_lost_variance_is_bounded_and_reported() -> None:
    graph = gm.make_roads(300, seed=0)
    kernel = gm.Matern(1.5, 4.0)
    with pytest.warns(NumericalWarning, match="variance starvation"):
        model = gm.GraphGPRegressor(graph, kernel, n_eigenpairs=40, optimizer=None).fit(graph.nodes[::5], Y[:57])
    # At equal amplitude, the full kernel has more variance at every node, by no more than the bound.
    cut, full = kernel.on(graph, n_eigenpairs=40), kernel.on(graph)
    amplitude = (cut.weights()[0] / full.weights()[0]).item()
    lost = amplitude * full.diag().detach().numpy() - cut.diag().detach().numpy()
    assert (lost <= model.prior_variance_lost_ + 1e-12).all()
    assert (lost >= -1e-12).all()
    assert "prior variance lost" in model.summary()
    everything = gm.GraphGPRegressor(graph, kernel, optimizer=None).fit(graph.nodes[::5], Y[:57])
    assert not everything.prior_variance_lost_.any()


def test_lost_variance_counts_masses_and_kernels_that_rise_again() -> None:
    base = gm.make_roads(150, seed=0)
    graph = gm.Graph.from_edges(
        base.edges, length="length", nodes=base.nodes, masses=np.random.default_rng(0).uniform(0.5, 2.0, base.n_nodes)
    )
    for kernel in (gm.Matern(1.0, 2.0), gm.RandomWalk(4, 0.0)):
        cut, full = kernel.on(graph, n_eigenpairs=60), kernel.on(graph)
        with pytest.warns(NumericalWarning, match="starvation"):
            model = gm.GraphGPRegressor(graph, kernel, n_eigenpairs=60, optimizer=None).fit(graph.nodes[:9], Y[:9])
        amplitude = (cut.weights()[0] / full.weights()[0]).item()
        lost = amplitude * full.diag().detach().numpy() - cut.diag().detach().numpy()
        assert (lost <= model.prior_variance_lost_ + 1e-12).all()


def test_the_last_step_leads_from_where_a_search_stopped_to_the_optimum() -> None:
    curved, there = np.array([[3.0, 1.0], [1.0, 2.0]]), np.array([0.4, -0.2])

    def bowl(x: Any) -> tuple[float, Any]:
        away = x - there
        return 0.5 * float(away @ curved @ away), curved @ away

    start = there + 0.01
    found = find_minimum(bowl, start, [(-5.0, 5.0)] * 2, method="bfgs", hessian=curved, to_gain=1.0)
    np.testing.assert_array_equal(found.position, start)
    np.testing.assert_allclose(found.ahead().position, there, atol=1e-12)
    assert found.ahead().value == found.value
    assert found.ahead().left is None


def skewed_bowl(x: Any) -> tuple[float, Any]:
    """Least at 0."""
    slanted = np.array([[1.0, 0.4], [0.2, 0.7]])
    along = slanted @ x
    return float(np.sum(np.exp(along) - along)), slanted.T @ (np.exp(along) - 1.0)


@pytest.mark.parametrize("high", [5.0, -0.3])
def test_searches_that_settle_end_at_one_place_wherever_they_began(high: float) -> None:
    """Also at a bound, and with curvatures that are off."""
    bounds = [(-5.0, 5.0), (-5.0, high)]
    least = brentq(lambda x: skewed_bowl(np.array([x, high]))[1][0], -5.0, 5.0) if high < 0.0 else 0.0
    for start, scale in (([0.1, -0.4], 0.7), ([-0.3, -0.5], 1.5)):
        guess = scale * curvature(skewed_bowl, np.array(start))
        found = find_minimum(skewed_bowl, np.array(start), bounds, method="bfgs", hessian=guess, to_gain=0.01)
        settled = settle(skewed_bowl, found, bounds)
        assert np.abs(found.position - [least, min(high, 0.0)]).max() > 1e-3
        assert found.n_evaluations < settled.n_evaluations <= found.n_evaluations + 6
        np.testing.assert_allclose(settled.ahead().position, [least, min(high, 0.0)], atol=1e-6)


def test_a_search_settles_no_further_than_derivatives_are_known() -> None:
    rng, start = np.random.default_rng(0), np.array([0.02, 0.02])

    def rough(x: Any) -> tuple[float, Any]:
        value, gradient = skewed_bowl(x)
        return value, gradient * (1.0 + 0.5 * rng.standard_normal(2)) + 1e-4 * rng.standard_normal(2)

    bounds = [(-5.0, 5.0)] * 2
    found = find_minimum(rough, start, bounds, method="bfgs", hessian=np.eye(2), to_gain=1.0)
    settled = settle(rough, found, bounds)
    assert settled.n_evaluations < found.n_evaluations + 6
    assert found.left is not None
    assert settled.left is not None
    assert np.abs(settled.left).max() <= np.abs(found.left).max()
    unknown = replace(found, left=None)
    assert settle(rough, unknown, bounds) is unknown
