"""A fit changes everything or nothing, and what a fitted model says depends on that fit alone."""

from __future__ import annotations

import copy
import pickle
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError

import graphmatern as gm
from field_reference import CITY as FIELD_CITY
from field_reference import wave_table
from graphmatern.errors import GraphMaternError, InputError, KernelError, NumericalWarning
from graphmatern.likelihoods import Gaussian, NegativeBinomial

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CITY = gm.make_roads(60, seed=1)
N = CITY.n_nodes
RNG = np.random.default_rng(0)
FIELD = gm.Matern(2, 6.0).on(CITY).sample(random_state=1).numpy()[0]
NAMES = CITY.nodes[::2]
Y = 5.0 + FIELD[::2] + 0.2 * RNG.standard_normal(len(NAMES))
COUNTS = RNG.poisson(np.exp(1.0 + 0.5 * FIELD[::2])).astype(float)
LABELS = np.digitize(FIELD, [-0.4, 0.4])[::2]
KERNEL = gm.Matern(2, 5.0, fixed=("nu",))


# ---------------------------------------------------------------------- fits that fail
def after_failures(model: Any, attempts: list[Callable[[], object]], look: Callable[[], Any]) -> None:
    """What a model says is the same after fits that fail, and it can still be copied."""
    before, state = look(), {name: id(value) for name, value in vars(model).items() if name.endswith("_")}
    for attempt in attempts:
        with pytest.raises(GraphMaternError):
            attempt()
        pd.testing.assert_frame_equal(look(), before, check_exact=True)
        assert {name: id(value) for name, value in vars(model).items() if name.endswith("_")} == state
    copied = pickle.loads(pickle.dumps(model))
    assert type(copied) is type(model)


@pytest.mark.parametrize("engine", ["spectral", "markov", "inducing", "eigenvectors"])
def test_regressors_survive_fits_that_fail(engine: Any) -> None:
    model = gm.GraphGPRegressor(CITY, KERNEL, engine=engine).fit(NAMES, Y)
    broken = gm.Matern(3, 1e9, fixed=("nu", "lengthscale"))

    def numerically() -> None:
        model.set_params(kernel=broken, engine="markov")
        model.fit(NAMES, 1000.0 * Y)

    attempts: list[Callable[[], object]] = [
        lambda: model.fit(["nowhere"], [1.0]),
        lambda: model.fit(NAMES, np.full(len(NAMES), np.nan)),
        lambda: model.fit(NAMES, Y, exposure=np.ones(len(NAMES))),
        lambda: model.set_params(likelihood="poisson").fit(NAMES, Y),
        lambda: model.set_params(likelihood="gaussian", covariates=np.ones(N)).fit(NAMES, Y),
        lambda: model.set_params(covariates=None, bounds={"kappa": (1.0, 2.0)}).fit(NAMES, Y),
        lambda: model.set_params(bounds=None, engine="fast").fit(NAMES, Y),
        numerically,
    ]
    after_failures(model, attempts, model.predict_table)


@pytest.mark.parametrize("form", ["spectral", "markov", "inducing", "eigenvectors"])
def test_classifiers_survive_fits_that_fail(form: Any, tmp_path: Path) -> None:
    model = gm.GraphGPClassifier(CITY, KERNEL, inference=form).fit(NAMES, LABELS)
    attempts: list[Callable[[], object]] = [
        lambda: model.fit(NAMES, ["only one"] * len(NAMES)),
        lambda: model.set_params(inference="inducing", inducing=["nowhere"]).fit(NAMES, LABELS),
        lambda: model.set_params(inducing=None, n_inducing=5, likelihood="bernoulli").fit(NAMES, LABELS),
        lambda: model.set_params(n_inducing=None, likelihood="robustmax", inference="no").fit(NAMES, LABELS),
    ]
    after_failures(model, attempts, model.predict_table)
    model.set_params(inference="inducing", n_inducing=7, covariance="diagonal")
    model.save(tmp_path / "model.gm")
    again = gm.load(tmp_path / "model.gm")
    np.testing.assert_allclose(again.predict_proba(), model.predict_proba(), atol=1e-12)
    assert again.inference_ == model.inference_ == form


def test_fields_survive_fits_that_fail() -> None:
    table = wave_table(8)
    model = gm.GraphFieldRegressor(FIELD_CITY, KERNEL, time_unit="h", engine="kronecker").fit(table)
    holes = 1000.0 * table
    holes.iloc[2, 3] = np.nan
    attempts: list[Callable[[], object]] = [
        lambda: model.fit(holes),  # whole grids only
        lambda: model.fit(table.rename(columns={table.columns[0]: "nowhere"})),
        lambda: model.set_params(time_unit="year").fit(table),
        lambda: model.set_params(time_unit="h", kernel=gm.RandomWalk(3, 0.1)).fit(table),
    ]
    after_failures(model, attempts, model.predict_grid)
    assert model.y_scale_ < 100.0


# ---------------------------------------------------------------------- options set after a fit
CLASSIFIERS: dict[str, dict[str, Any]] = {
    "spectral": {},
    "markov": {"inference": "markov"},
    "inducing": {"inference": "inducing", "n_inducing": 12},
    "diagonal": {"inference": "inducing", "n_inducing": 12, "covariance": "diagonal"},
    "eigenvectors": {"inference": "eigenvectors", "n_inducing": 12},
    "batches": {"inference": "inducing", "n_inducing": 12, "batch_size": 10, "n_steps": 30, "random_state": 0},
}
CHANGES: list[dict[str, Any]] = [
    {"inference": "eigenvectors", "n_inducing": 5},
    {"covariance": "diagonal"},
    {"likelihood": "softmax"},
    {"batch_size": 4},
    {"optimizer": "adam"},
    {"normalized": True},
    {"n_eigenpairs": 8},
    {"classes": ["a", "b"]},
    {"kernel": gm.RandomWalk(4, 0.6)},
    {"inducing": [0, 2]},
]


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_options_of_a_classifier_set_after_the_fit_are_for_the_next_one(name: str, tmp_path: Path) -> None:
    model = gm.GraphGPClassifier(CITY, KERNEL, **CLASSIFIERS[name]).fit(NAMES, LABELS)
    expected, summary = model.predict_proba(), model.summary()
    for change in CHANGES:
        usual = {option: model.get_params(deep=False)[option] for option in change}
        model.set_params(**change)
        np.testing.assert_array_equal(model.predict_proba(), expected)
        for again in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
            np.testing.assert_allclose(again.predict_proba(), expected, atol=1e-12)
            assert again.summary() == summary
            for option, value in change.items():
                assert type(again.get_params(deep=False)[option]) is type(value)
        model.save(tmp_path / "model.gm")
        np.testing.assert_allclose(gm.load(tmp_path / "model.gm").predict_proba(), expected, atol=1e-12)
        model.set_params(**usual)


@pytest.mark.parametrize("kind", ["regressor", "classifier", "field"])
def test_a_fit_on_another_graph_is_not_this_models(kind: str) -> None:
    other = gm.make_roads(60, seed=9)
    if kind == "field":
        model: Any = gm.GraphFieldRegressor(FIELD_CITY, KERNEL, time_unit="h", optimizer=None).fit(wave_table(4))
    elif kind == "regressor":
        model = gm.GraphGPRegressor(CITY, KERNEL, optimizer=None).fit(NAMES, Y)
    else:
        model = gm.GraphGPClassifier(CITY, KERNEL, optimizer=None).fit(NAMES, LABELS)
    own, model.graph = model.graph, other
    calls = [model.summary, model.standard_errors, lambda: model.save("nowhere.gm")]
    calls.append(model.predict_grid if kind == "field" else model.predict)
    for call in calls:
        with pytest.raises(NotFittedError, match="another graph"):
            call()
    model.graph = own
    assert model.summary()


# ---------------------------------------------------------------------- options without effect
IDLE: dict[str, tuple[dict[str, Any], str]] = {
    "inducing": ({"inducing": [0, 2]}, "unless inference is 'inducing'"),
    "n_inducing": ({"n_inducing": 5, "inference": "spectral"}, "unless inference is 'inducing'"),
    "covariance": ({"covariance": "diagonal", "inference": "markov"}, "unless inference is 'inducing'"),
    "batch_size": ({"batch_size": 5}, "unless inference is 'inducing'"),
    "restarts of steps": ({"inference": "inducing", "batch_size": 5, "n_restarts": 2}, "`n_restarts` must be 0"),
    "bounds of steps": (
        {"inference": "inducing", "optimizer": "adam", "bounds": {"lengthscale": (1.0, 2.0)}},
        "must be left out where steps are counted",
    ),
    "bounds of what is held": ({"bounds": {"nu": (1.0, 2.0)}}, "not held"),
    "priors of what is held": ({"priors": {"nu": gm.LogNormal(2.0, 1.0)}}, "not held"),
    "word": ({"optimizer": "sgd"}, "'quasi-newton'"),
}


@pytest.mark.parametrize("case", IDLE)
def test_options_without_effect_are_refused(case: str) -> None:
    options, words = IDLE[case]
    with pytest.raises(KernelError) as caught:
        gm.GraphGPClassifier(CITY, KERNEL, **options).fit(NAMES, LABELS)
    assert words in str(caught.value)


def test_bounds_of_held_parameters_are_refused_by_regressors() -> None:
    with pytest.raises(KernelError, match="not held"):
        gm.GraphGPRegressor(CITY, KERNEL, bounds={"nu": (1.0, 2.0)}).fit(NAMES, Y)
    held = NegativeBinomial(0.3, fixed=("dispersion",))
    with pytest.raises(KernelError, match="not held"):
        gm.GraphGPRegressor(CITY, KERNEL, likelihood=held, bounds={"dispersion": (0.1, 1.0)}).fit(NAMES, COUNTS)


@pytest.mark.parametrize("form", ["inducing", "eigenvectors"])
def test_bounds_and_priors_hold_with_inducing_nodes_and_eigenvectors(form: Any) -> None:
    bounded = gm.GraphGPClassifier(CITY, KERNEL, inference=form, n_inducing=20, bounds={"lengthscale": (1.0, 2.0)})
    bounded.fit(NAMES, LABELS)
    assert bounded.kernel_.values()["lengthscale"] == pytest.approx(2.0, rel=1e-6)
    assert bounded.at_bounds_ == ["lengthscale"]
    tight = gm.GraphGPRegressor(CITY, KERNEL, engine=form, priors={"lengthscale": gm.LogNormal(2.0, 0.01)})
    found: Any = tight.fit(NAMES, Y).kernel_
    assert found.values()["lengthscale"] == pytest.approx(2.0, rel=0.05)


def test_lbfgs_is_another_word_for_quasi_newton() -> None:
    one, other = (gm.GraphGPRegressor(CITY, KERNEL, optimizer=word).fit(NAMES, Y) for word in ("quasi-newton", "lbfgs"))
    assert repr(one.kernel_) == repr(other.kernel_)
    assert one.log_marginal_likelihood_ == other.log_marginal_likelihood_


# ---------------------------------------------------------------------- starts
@pytest.mark.parametrize("engine", ["spectral", "markov"])
@pytest.mark.parametrize("seed", range(4))
def test_a_bad_start_ends_where_a_good_one_does(engine: Any, seed: int) -> None:
    """Within 0.05 nats: a start is not a promise."""
    rng = np.random.default_rng(seed)
    truth = gm.Matern(2, 5.0).on(CITY).sample(random_state=seed).numpy()[0]
    y = truth[::2] + 0.3 * rng.standard_normal(len(NAMES))
    fits = []
    for lengthscale in (2.0, 100.0):
        kernel = gm.Matern(2, lengthscale, fixed=("nu",))
        fits.append(gm.GraphGPRegressor(CITY, kernel, engine=engine).fit(NAMES, y))
        assert not fits[-1].converged_ or fits[-1].gradient_norm_ < 1.0
    assert fits[1].log_marginal_likelihood_ == pytest.approx(fits[0].log_marginal_likelihood_, abs=0.05)


@pytest.mark.parametrize("engine", ["spectral", "markov"])
@pytest.mark.parametrize("max_iterations", [1, 2, 3, 5, 8])
def test_no_fit_has_converged_where_the_slope_is_large(engine: Any, max_iterations: int) -> None:
    kernel = gm.Matern(2, 100.0, 50.0, fixed=("nu",))
    model = gm.GraphGPRegressor(CITY, kernel, engine=engine, max_iterations=max_iterations, noise=1e-3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(NAMES, Y)
    assert not model.converged_ or model.gradient_norm_ < 1.0


def test_a_default_markov_fit_does_not_warn_of_a_smoothness_it_chose_itself() -> None:
    """Warnings are errors here; the same smoothness, asked for, is warned of."""
    path = gm.Graph.from_edges([(i, i + 1) for i in range(299)])
    smooth = gm.Matern(3, 60.0).on(path).sample(random_state=3).numpy()[0]
    y = smooth / smooth.std() + 0.05 * np.random.default_rng(3).standard_normal(300)
    model = gm.GraphGPRegressor(path, engine="markov").fit(path.nodes, y)
    assert model.converged_
    kernel = gm.Matern(3, 60.0, fixed=("nu",))
    asked = gm.GraphGPRegressor(path, kernel, engine="markov", optimizer=None, noise=model.noise_)
    with pytest.warns(NumericalWarning, match="ill-conditioned"):
        asked.fit(path.nodes, y)


# ---------------------------------------------------------------------- small things that were wrong
@pytest.mark.parametrize("engine", ["spectral", "markov"])
def test_one_observation_has_the_unit_of_its_value(engine: Any) -> None:
    stds = []
    for unit in (1e-3, 1.0, 1e6):
        model = gm.GraphGPRegressor(CITY, KERNEL, engine=engine, optimizer=None).fit([0], [4.0 * unit])
        assert model.y_scale_ == pytest.approx(4.0 * unit)
        stds.append(model.predict([30], return_std=True)[1][0] / unit)
    np.testing.assert_allclose(stds, stds[0], rtol=1e-9)
    nothing = gm.GraphGPRegressor(CITY, KERNEL, engine=engine, optimizer=None).fit([0], [0.0])
    assert nothing.y_scale_ == 1.0


@pytest.mark.parametrize(
    "dates",
    [
        np.array(["2020-01-01", "2021-06-01"], dtype="datetime64[D]"),
        np.array(["2020-01-01T12:30", "2021-06-01"], dtype="datetime64[ns]"),
        pd.DatetimeIndex(["2020-01-01", "2021-06-01"]),
        pd.DatetimeIndex(["2020-01-01", "2021-06-01"], tz="Europe/Berlin"),
    ],
    ids=["days", "nanoseconds", "index", "zone"],
)
def test_dates_stay_dates(dates: Any, tmp_path: Path) -> None:
    labels = dates[(FIELD[::2] > 0).astype(int)]
    model = gm.GraphGPClassifier(CITY, KERNEL, optimizer=None).fit(NAMES, labels)
    stamps = [pd.Timestamp(one) for one in dates]
    model.save(tmp_path / "dates.gm")
    for one in (model, copy.deepcopy(model), gm.load(tmp_path / "dates.gm")):
        assert one.classes_.tolist() == stamps
        assert all(isinstance(label, pd.Timestamp) for label in one.predict())
        assert one.score(NAMES, labels) > 0.8
        np.testing.assert_allclose(one.predict_proba(), model.predict_proba(), atol=1e-12)


def test_a_gaussian_likelihood_is_exact_regression() -> None:
    for options in ({}, {"optimizer": None, "normalize_y": False}):
        common: dict[str, Any] = {"kernel": KERNEL, "covariates": np.sin(np.arange(N)), **options}
        one = gm.GraphGPRegressor(CITY, likelihood=Gaussian(), **common).fit(NAMES, Y)
        other = gm.GraphGPRegressor(CITY, likelihood="gaussian", **common).fit(NAMES, Y)
        assert one.log_marginal_likelihood_ == pytest.approx(other.log_marginal_likelihood_, rel=1e-12)
        pd.testing.assert_frame_equal(one.predict_table(), other.predict_table(), rtol=1e-10)
        pd.testing.assert_frame_equal(one.coefficients_, other.coefficients_, rtol=1e-10)
        pd.testing.assert_frame_equal(one.loo(), other.loo(), rtol=1e-10)
    held = gm.GraphGPRegressor(CITY, KERNEL, likelihood=Gaussian(0.7, fixed=("noise",))).fit(NAMES, Y)
    assert held.noise_ == pytest.approx(0.7)


def test_faults_of_one_fit_are_reported_together() -> None:
    model = gm.GraphGPRegressor(CITY, likelihood="poisson")
    with pytest.raises(InputError) as caught:
        model.fit(NAMES[:3], [1.0, 2.0, -3.0], noise_variance=[1.0, 1.0, 1.0])
    assert {fault.argument for fault in caught.value.faults} == {"y", "noise_variance"}
