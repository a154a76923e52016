"""What learning obeys: bounds, priors, restarts, an open smoothness, standard errors, starts from part of the graph."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import graphmatern as gm
from graphmatern.errors import KernelError, NumericalError, NumericalWarning
from graphmatern.inference import MarkovPrecision, _fit_markov, _optimize
from graphmatern.inference._fitting import FitOptions, minimise
from graphmatern.inference._optimize import find_minimum
from graphmatern.inference._rules import Parameter
from reference import dense_kernel, matern_psi

CITY = gm.make_roads(80, seed=1)
RNG = np.random.default_rng(3)
TRUTH = gm.Matern(2, 5.0).on(CITY).sample(random_state=1).numpy()[0]
Y = TRUTH + 0.3 * RNG.standard_normal(len(TRUTH))
ENGINES: list[Any] = ["spectral", "markov"]


def fitted(engine: Any, kernel: gm.Kernel | None = None, **options: Any) -> gm.GraphGPRegressor:
    kernel = gm.Matern(2, 3.0, fixed=("nu",)) if kernel is None else kernel
    return gm.GraphGPRegressor(CITY, kernel, engine=engine, **options).fit(CITY.nodes, Y)


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


def test_restarts_leave_a_bad_start() -> None:
    """From here one run ends in an explanation by noise alone; another finds the field."""
    truth = gm.Matern(1.5, 3.0).on(CITY).sample(random_state=0).numpy()[0]
    kernel = gm.Matern(1.5, 1e-3, 1e-3, fixed=("nu",))
    once = gm.GraphGPRegressor(CITY, kernel, noise=5.0).fit(CITY.nodes, truth)
    model = gm.GraphGPRegressor(CITY, kernel, noise=5.0, n_restarts=8, random_state=0)
    often = model.fit(CITY.nodes, truth)
    assert often.log_marginal_likelihood_ > once.log_marginal_likelihood_ + 1.0
    assert often.n_evaluations_ > once.n_evaluations_
    again = model.fit(CITY.nodes, truth)
    assert again.log_marginal_likelihood_ == often.log_marginal_likelihood_


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
    with pytest.raises(KernelError, match="must include a whole number"):
        fitted("markov", kernel, bounds={"nu": (1.2, 1.8)})


def test_a_smoothness_that_breaks_down_is_passed_over() -> None:
    kernel = gm.Matern(nu=None, lengthscale=500.0, fixed=("lengthscale",))
    with pytest.raises(NumericalError):
        fitted("markov", gm.Matern(3, 500.0, fixed=("lengthscale",)))
    with pytest.warns(NumericalWarning, match="ill-conditioned"):
        assert values(fitted("markov", kernel))["nu"] < 3


def test_smoothnesses_that_would_take_long_are_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """The square of a star's Laplacian is dense."""
    star = gm.Graph.from_edges([(0, i) for i in range(1, 400)])
    y = np.random.default_rng(0).standard_normal(30)
    monkeypatch.setattr(_fit_markov, "_OPEN_SECONDS", 1e-4)
    model = gm.GraphGPRegressor(star, engine="markov", optimizer=None).fit(range(30), y)
    assert values(model)["nu"] == 1
    asked = gm.GraphGPRegressor(star, gm.Matern(2), engine="markov", optimizer=None).fit(range(30), y)
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


def test_part_of_a_large_graph_gives_start_and_curvature(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = gm.make_roads(6000, seed=0)
    precision = MarkovPrecision(graph, 1)
    rng = np.random.default_rng(0)
    factor = precision.analysis.factorize_lower(precision.polynomial.lower(precision.coefficients(6.0, 1.0)))
    field = factor.solve_upper(rng.standard_normal(graph.n_nodes))
    observed = np.sort(rng.choice(graph.n_nodes, graph.n_nodes // 3, replace=False))
    y = field[observed] + 0.3 * field.std() * rng.standard_normal(len(observed))
    kernel = gm.Matern(1, 3.0, fixed=("nu",))
    whole = gm.GraphGPRegressor(graph, kernel, engine="markov").fit(observed, y)
    monkeypatch.setattr(_fit_markov, "_LARGE", 1000)
    monkeypatch.setattr(_fit_markov, "_PART_NODES", (2000, 2000))
    monkeypatch.setattr(_fit_markov, "_PART_OBSERVATIONS", 100)
    quick = gm.GraphGPRegressor(graph, kernel, engine="markov").fit(observed, y)
    assert quick.converged_
    assert quick.n_evaluations_ < 0.7 * whole.n_evaluations_
    assert quick.log_marginal_likelihood_ == pytest.approx(whole.log_marginal_likelihood_, abs=1e-3)
    errors = whole.standard_errors()
    for name, error in errors.items():
        assert abs(np.log(values(quick)[name] / values(whole)[name])) < 0.05 * error


def test_neighbourhoods_are_connected_and_as_large_as_asked() -> None:
    graph = gm.make_roads(2000, seed=0)
    found = _fit_markov._neighbourhood(graph, np.array([100]), 300)
    assert len(found) == len(np.unique(found)) == 300
    assert graph.subgraph(graph.nodes[found]).n_components == 1
    lonely = gm.Graph.from_edges([("a", "b"), ("c", "d")])
    assert sorted(_fit_markov._neighbourhood(lonely, np.array([0]), 10)) == [0, 1]


def rosenbrock(x: np.ndarray) -> tuple[float, np.ndarray]:
    a, b = x
    value = (1 - a) ** 2 + 100 * (b - a * a) ** 2
    return float(value), np.array([-2 * (1 - a) - 400 * a * (b - a * a), 200 * (b - a * a)])


def test_quasi_newton_reaches_a_minimum_within_bounds() -> None:
    start, guess = np.array([-1.0, 1.0]), np.diag([500.0, 200.0])
    free = find_minimum(rosenbrock, start, [(-5, 5), (-5, 5)], method="bfgs", hessian=guess)
    assert free.converged
    np.testing.assert_allclose(free.position, [1.0, 1.0], atol=0.05)
    held = find_minimum(rosenbrock, start, [(-5, 0.5), (-5, 5)], method="bfgs", hessian=guess)
    np.testing.assert_allclose(held.position, [0.5, 0.25], atol=0.01)
    assert held.position[0] <= 0.5


def test_steps_that_get_nowhere_go_on_as_lbfgs(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a curved valley, from a guess of the curvature far too large, BFGS is given up and the end reached."""
    monkeypatch.setattr(_optimize, "_BFGS_STEPS", 5)
    options: dict[str, Any] = {"method": "bfgs", "hessian": 1e5 * np.eye(2), "to_gain": 1e-9}
    found = find_minimum(rosenbrock, np.array([-1.2, 1.0]), [(-5, 5), (-5, 5)], **options)
    assert found.converged
    np.testing.assert_allclose(found.position, [1.0, 1.0], atol=1e-3)
    short = find_minimum(rosenbrock, np.array([-1.2, 1.0]), [(-5, 5), (-5, 5)], max_iterations=5, **options)
    assert not short.converged


def test_a_random_start_that_breaks_down_is_passed_over() -> None:
    calls = []

    def fragile(x: np.ndarray) -> tuple[float, np.ndarray]:
        calls.append(x)
        if abs(x[0]) > 1.0 and len(calls) > 20:
            raise gm.errors.NumericalError("too far")
        return float(x @ x), 2 * x

    options = FitOptions(normalized=False, n_restarts=5, seed=1)
    best, _ = minimise(fragile, np.array([0.5]), [Parameter("x", -9.0, 9.0)], options)
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
