"""Regression with counts and outliers: predictions in the units of y, exposures, files, faults."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pytest

import graphmatern as gm
from graphmatern.errors import KernelError, TableError
from graphmatern.likelihoods import Gaussian, NegativeBinomial, StudentT

if TYPE_CHECKING:
    from pathlib import Path

CITY = gm.make_roads(350, seed=5)
LATENT = gm.Matern(nu=2, lengthscale=8.0, variance=0.6).on(CITY).sample(random_state=1).numpy()[0]
RATE = np.exp(1.5 + LATENT)
RNG = np.random.default_rng(0)
COUNTS = RNG.poisson(RATE).astype(float)
SHOWN = RNG.permutation(CITY.n_nodes)[:180]
HIDDEN = np.setdiff1d(np.arange(CITY.n_nodes), SHOWN)
KERNEL = gm.Matern(nu=2, lengthscale=5.0, fixed="nu")


@pytest.fixture(scope="module", params=["spectral", "markov"])
def poisson(request: Any) -> gm.GraphGPRegressor:
    model = gm.GraphGPRegressor(CITY, KERNEL, likelihood="poisson", engine=request.param)
    return model.fit(CITY.nodes[SHOWN], COUNTS[SHOWN])


def test_counts(poisson: gm.GraphGPRegressor) -> None:
    mean, std = poisson.predict(return_std=True)
    assert np.corrcoef(np.log(mean[HIDDEN]), np.log(RATE[HIDDEN]))[0, 1] > 0.6
    assert (mean > 0).all()
    noisy = poisson.predict(return_std=True, observation=True)[1]
    np.testing.assert_allclose(noisy**2, std**2 + mean, rtol=1e-9)
    table = poisson.predict_table()
    assert (table["lower"] > 0).all()
    inside = (table["lower"] <= RATE) & (table["upper"] >= RATE)
    assert inside.mean() > 0.85
    whole = table[["observation_lower", "observation_upper"]].to_numpy()
    assert (whole == np.round(whole)).all()
    scores = poisson.evaluate(CITY.nodes[HIDDEN], COUNTS[HIDDEN])
    assert 0.9 < scores["coverage_95"] <= 1.0
    assert scores["nlpd"] < 3.5
    assert poisson.score(CITY.nodes[HIDDEN], COUNTS[HIDDEN]) > 0.2
    assert (poisson.y_mean_, poisson.y_scale_) == (0.0, 1.0)
    assert np.isnan(poisson.noise_)
    assert "Poisson" in poisson.summary()
    assert "evidence lower bound" in poisson.summary()
    covariance = poisson.predict(CITY.nodes[:6], return_cov=True)[1]
    np.testing.assert_allclose(np.diag(covariance), std[:6] ** 2, rtol=1e-8)
    draws = poisson.sample(20_000, CITY.nodes[:6], random_state=0)
    np.testing.assert_allclose(draws.mean(axis=0), mean[:6], rtol=0.03)
    np.testing.assert_allclose(np.cov(draws.T), covariance, atol=0.1 * covariance.max())


def test_engines_agree_on_counts() -> None:
    fits = [
        gm.GraphGPRegressor(CITY, KERNEL, likelihood="poisson", engine=engine).fit(CITY.nodes[SHOWN], COUNTS[SHOWN])
        for engine in ("spectral", "markov")
    ]
    assert fits[0].log_marginal_likelihood_ == pytest.approx(fits[1].log_marginal_likelihood_, abs=1e-5)
    np.testing.assert_allclose(fits[0].predict(), fits[1].predict(), rtol=1e-2)


def test_leaving_one_out_of_counts(poisson: gm.GraphGPRegressor) -> None:
    """The site's removal is close to a fit without the observation."""
    left_out, engine = poisson.loo(), cast("Any", poisson.engine_)
    assert len(left_out) == len(SHOWN)
    for k in (0, 7, 30):
        kept = np.delete(SHOWN, k)
        other = gm.GraphGPRegressor(CITY, poisson.kernel_, likelihood="poisson", engine=engine, optimizer=None)
        other.fit(CITY.nodes[kept], COUNTS[kept])
        mean = other.predict([CITY.nodes[SHOWN[k]]])[0]
        assert left_out["mean"][k] == pytest.approx(mean, rel=0.05)


def test_exposures_divide_out() -> None:
    exposure = np.random.default_rng(2).uniform(0.5, 4.0, len(SHOWN))
    counts = np.random.default_rng(3).poisson(RATE[SHOWN] * exposure)
    model = gm.GraphGPRegressor(CITY, KERNEL, likelihood="poisson").fit(CITY.nodes[SHOWN], counts, exposure=exposure)
    assert np.corrcoef(np.log(model.predict()), np.log(RATE))[0, 1] > 0.75
    doubled = gm.GraphGPRegressor(CITY, KERNEL, likelihood="poisson")
    doubled.fit(CITY.nodes[SHOWN], counts, exposure=2.0 * exposure)
    np.testing.assert_allclose(doubled.predict(), model.predict() / 2.0, rtol=1e-3)


def test_counts_that_vary_more() -> None:
    counts = np.random.default_rng(4).negative_binomial(2.0, 2.0 / (2.0 + RATE)).astype(float)
    names = CITY.nodes
    wide = gm.GraphGPRegressor(CITY, KERNEL, likelihood="negative_binomial").fit(names, counts)
    narrow = gm.GraphGPRegressor(CITY, KERNEL, likelihood="poisson").fit(names, counts)
    dispersion = wide.likelihood_.values()["dispersion"]
    assert 0.25 < dispersion < 1.0  # 0.5 was the truth
    assert wide.log_marginal_likelihood_ > narrow.log_marginal_likelihood_ + 5.0
    held = NegativeBinomial(0.5, fixed=("dispersion",))
    model = gm.GraphGPRegressor(CITY, KERNEL, likelihood=held).fit(names, counts)
    assert model.likelihood_.values()["dispersion"] == pytest.approx(0.5)
    bounded = gm.GraphGPRegressor(CITY, KERNEL, likelihood="negative_binomial", bounds={"dispersion": (0.01, 0.1)})
    assert bounded.fit(names, counts).likelihood_.values()["dispersion"] == pytest.approx(0.1)


def test_outliers() -> None:
    rng = np.random.default_rng(6)
    truth = 50.0 + 10.0 * LATENT
    y = truth + rng.normal(0.0, 1.0, len(truth))
    y[rng.permutation(len(y))[:30]] += rng.choice([-60.0, 60.0], 30)
    errors = {}
    for likelihood in ("gaussian", "student_t"):
        model = gm.GraphGPRegressor(CITY, KERNEL, likelihood=likelihood).fit(CITY.nodes[SHOWN], y[SHOWN])
        mean, std = model.predict(return_std=True)
        errors[likelihood] = np.sqrt(np.mean((mean - truth) ** 2))
    assert errors["student_t"] < 0.8 * errors["gaussian"]
    assert isinstance(model.likelihood_, StudentT)
    assert np.mean(np.abs(mean - truth) < 1.96 * std) > 0.85
    noisy = model.predict(return_std=True, observation=True)[1]
    assert (noisy > std).all()
    plugged = gm.GraphGPRegressor(CITY, KERNEL, likelihood="student_t", integrate=False).fit(
        CITY.nodes[SHOWN], y[SHOWN]
    )
    std, noisy = (plugged.predict(return_std=True, observation=which)[1] for which in (False, True))
    np.testing.assert_allclose(noisy**2, std**2 + plugged.y_scale_**2 * plugged.noise_, rtol=1e-6)
    assert (model.predict_table()["observation_lower"] < model.predict_table()["lower"]).all()


def test_gaussian_likelihood_equals_exact_regression() -> None:
    y = 3.0 + 2.0 * LATENT[SHOWN] + np.random.default_rng(8).normal(0, 0.3, len(SHOWN))
    options: dict[str, Any] = {"kernel": KERNEL, "mean": "zero"}
    exact = gm.GraphGPRegressor(CITY, **options).fit(CITY.nodes[SHOWN], y)
    sites = gm.GraphGPRegressor(CITY, likelihood=Gaussian(), **options).fit(CITY.nodes[SHOWN], y)
    assert sites.log_marginal_likelihood_ == pytest.approx(exact.log_marginal_likelihood_, abs=1e-6)
    assert sites.noise_ == pytest.approx(exact.noise_, rel=1e-3)
    for one, other in zip(sites.predict(return_std=True), exact.predict(return_std=True), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-3)
    np.testing.assert_allclose(sites.loo()["mean"], exact.loo()["mean"], rtol=1e-3)
    np.testing.assert_allclose(sites.loo()["std"], exact.loo()["std"], rtol=1e-3)


def test_more_counts_without_learning(poisson: gm.GraphGPRegressor) -> None:
    more = poisson.condition_on(CITY.nodes[HIDDEN[:40]], COUNTS[HIDDEN[:40]])
    assert repr(more.kernel_) == repr(poisson.kernel_)
    assert more.likelihood == "poisson"
    assert more.predict(return_std=True)[1].mean() < poisson.predict(return_std=True)[1].mean()


def test_files_of_counts(poisson: gm.GraphGPRegressor, tmp_path: Path) -> None:
    poisson.save(tmp_path / "counts.gm")
    again = gm.load(tmp_path / "counts.gm")
    np.testing.assert_allclose(again.predict(), poisson.predict(), rtol=1e-12)
    assert again.log_marginal_likelihood_ == pytest.approx(poisson.log_marginal_likelihood_, abs=1e-9)
    wide = gm.GraphGPRegressor(CITY, KERNEL, likelihood=NegativeBinomial(0.3, fixed=("dispersion",)))
    wide.fit(CITY.nodes[SHOWN], COUNTS[SHOWN]).save(tmp_path / "wide.gm")
    assert gm.load(tmp_path / "wide.gm").likelihood_.values() == wide.likelihood_.values()


def test_faults() -> None:
    names = CITY.nodes[:3]
    with pytest.raises(TableError, match="counts"):
        gm.GraphGPRegressor(CITY, likelihood="poisson").fit(names, [1.0, -1.0, 0.5])
    with pytest.raises(TableError, match="left out unless `y` holds counts"):
        gm.GraphGPRegressor(CITY).fit(names, [1.0, 2.0, 3.0], exposure=[1.0, 1.0, 1.0])
    with pytest.raises(TableError, match="2 faults"):
        gm.GraphGPRegressor(CITY, likelihood="poisson").fit(names, [1.0, 2.0, -3.0], noise_variance=[1.0, 1.0, 1.0])
    with pytest.raises(TableError, match="exposure"):
        gm.GraphGPRegressor(CITY, likelihood="poisson").fit(names, [1.0, 2.0, 3.0], exposure=[1.0, 0.0, 1.0])
    with pytest.raises(KernelError, match="student_t"):
        gm.GraphGPRegressor(CITY, likelihood="cauchy").fit(names, [1.0, 2.0, 3.0])  # type: ignore[arg-type]


def test_counts_are_fitted_from_any_start() -> None:
    # On the way the optimiser tries a mean of -5, whose sites are all but nothing; E e^f is then beyond 1e40 elsewhere.
    city = gm.make_city(500, seed=5)
    log_rate = gm.Matern(nu=2, lengthscale=12.0).on(city).sample(random_state=5).numpy()[0]
    rng = np.random.default_rng(5)
    nodes = np.sort(rng.choice(city.n_nodes, 150, replace=False))
    years = rng.integers(1, 11, 150)
    counts = rng.poisson(np.exp(0.2 + 0.8 * log_rate[nodes]) * years)
    bounds = []
    for lengthscale in (5.0, 12.0):
        kernel = gm.Matern(nu=2, lengthscale=lengthscale, fixed=("nu",))
        model = gm.GraphGPRegressor(city, kernel, likelihood="poisson").fit(nodes, counts, exposure=years)
        bounds.append(model.log_marginal_likelihood_)
    assert bounds[0] == pytest.approx(bounds[1], abs=1e-3)


# ---------------------------------------------------------------------- every likelihood, everything else
TOWN = gm.make_roads(110, seed=5)


def simulated(likelihood: str) -> tuple[np.ndarray, Any]:
    """Two replicates with holes whose latent mean has a slope of 0.8 in a covariate, and the covariate."""
    rng = np.random.default_rng(12)
    x = rng.standard_normal(TOWN.n_nodes)
    f = gm.Matern(nu=2, lengthscale=6.0, variance=0.3).on(TOWN).sample(2, random_state=2).numpy()
    eta = 1.0 + 0.8 * x + f
    y = {
        "gaussian": lambda: eta + 0.3 * rng.standard_normal(eta.shape),
        "student_t": lambda: eta + 0.3 * rng.standard_t(3.0, eta.shape),
        "poisson": lambda: rng.poisson(np.exp(eta)),
        "negative_binomial": lambda: rng.negative_binomial(4.0, 4.0 / (4.0 + np.exp(eta))),
    }[likelihood]().astype(float)
    y[0, ::7] = np.nan
    y[1, 1::5] = np.nan
    return y.T, x


@pytest.mark.parametrize("engine", ["spectral", "markov"])
@pytest.mark.parametrize("likelihood", ["gaussian", "student_t", "poisson", "negative_binomial"])
def test_covariates_and_replicates_with_every_likelihood(likelihood: Any, engine: Any, tmp_path: Path) -> None:
    y, x = simulated(likelihood)
    model = gm.GraphGPRegressor(TOWN, KERNEL, likelihood=likelihood, engine=engine, covariates=x).fit(TOWN.nodes, y)
    mean, std = model.predict(return_std=True)
    assert mean.shape == std.shape == y.shape
    table: Any = model.coefficients_
    assert list(table.index) == ["(constant)", "x0"]
    assert model.posterior_.coefficients.shape == (1, 2)
    assert model.posterior_.coefficient_covariance.shape == (1, 2, 2)
    assert abs(table.loc["x0", "mean"] - 0.8) < 4.0 * table.loc["x0", "sd"]
    assert table.loc["x0", "sd"] < 0.15
    assert abs(table.loc["(constant)", "mean"] - 1.0) < 4.0 * table.loc["(constant)", "sd"]
    left_out = model.loo()
    assert left_out["replicate"].tolist() == np.repeat([0, 1], (~np.isnan(y)).sum(axis=0)).tolist()
    assert np.isfinite(left_out[["mean", "std"]].to_numpy()).all()
    scores = model.evaluate(TOWN.nodes[:30], y[:30])
    assert scores["coverage_95"] > 0.85
    model.save(tmp_path / "model.gm")
    np.testing.assert_allclose(gm.load(tmp_path / "model.gm").predict(), mean, rtol=1e-9)


def test_the_constant_of_counts_is_integrated() -> None:
    """N(0, 10²) around a level from the data: far from all data, predictions know that they do not know it."""
    pieces = gm.Graph.from_edges([(i, i + 1) for i in range(9)], nodes=[*range(10), "alone"])
    kernel = gm.Matern(1, 1.0, 0.01, fixed=("nu", "lengthscale", "variance"))
    many = gm.GraphGPRegressor(pieces, kernel, likelihood="poisson").fit(range(10), np.full(10, 400.0))
    few = gm.GraphGPRegressor(pieces, kernel, likelihood="poisson").fit([0], [1.0])
    row: Any = many.coefficients_.loc["(constant)"]
    unsure: Any = few.coefficients_.loc["(constant)"]
    assert row["mean"] == pytest.approx(np.log(400.0), abs=0.02)
    assert 0.5 / np.sqrt(4000.0) < row["sd"] < 0.1
    assert unsure["sd"] > 0.8  # one count of 1 says little
    zero = gm.GraphGPRegressor(pieces, kernel, likelihood="poisson", mean="zero").fit(range(10), np.full(10, 400.0))
    assert zero.coefficients_.empty
    assert zero.posterior_.coefficients.shape == (1, 0)
    variance = zero.posterior_.latent_variance(np.array([10]))[0, 0]
    assert zero.predict(["alone"])[0] == pytest.approx(np.exp(0.5 * variance))


@pytest.mark.parametrize("noise", [1.0, 1e-2, 1e-4, 1e-6])
def test_intervals_under_gaussian_noise_are_exact(noise: float) -> None:
    model = gm.GraphGPRegressor(CITY, KERNEL, noise=noise, optimizer=None).fit(CITY.nodes[:9], np.sin(np.arange(9.0)))
    table = model.predict_table(0.9)
    for name, observation in (("", False), ("observation_", True)):
        mean, std = model.predict(return_std=True, observation=observation)
        np.testing.assert_allclose(table[f"{name}upper"], mean + 1.6448536269514722 * std, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(table[f"{name}lower"], mean - 1.6448536269514722 * std, rtol=1e-9, atol=1e-9)
    places, y = np.arange(4), np.zeros(4)
    mean, variance = (one[0] for one in model.posterior_.moments(places, observation=True))
    expected = -0.5 * (np.log(2 * np.pi * variance) + (y - mean) ** 2 / variance)
    np.testing.assert_allclose(model.posterior_.log_density(places, y), expected, rtol=1e-9)


@pytest.mark.parametrize("engine", ["spectral", "markov", "moments"])
def test_one_gross_outlier_does_no_harm(engine: Any) -> None:
    """1000 among 90 values of standard deviation 0.7 changes neither the units nor the predictions."""
    rng = np.random.default_rng(2)
    truth = 0.7 * LATENT / LATENT.std()
    nodes = rng.choice(CITY.n_nodes, 90, replace=False)
    y = truth[nodes] + 0.1 * rng.standard_normal(90)
    spoilt = y.copy()
    spoilt[7] = 1000.0
    clean, gross = (
        gm.GraphGPRegressor(CITY, KERNEL, likelihood="student_t", engine=engine).fit(CITY.nodes[nodes], values)
        for values in (y, spoilt)
    )
    assert gross.y_mean_ == pytest.approx(clean.y_mean_, abs=0.1)
    assert gross.y_scale_ == pytest.approx(clean.y_scale_, rel=0.1)
    (mean, std), other = gross.predict(return_std=True), clean.predict()
    others = np.setdiff1d(np.arange(CITY.n_nodes), nodes[7])
    assert np.sqrt(np.mean((mean - other)[others] ** 2)) < 0.1
    assert np.sqrt(np.mean((mean - truth) ** 2)) < 0.6
    assert std.max() < 2.0
    assert "approximate log evidence" in gross.summary()


def test_robust_units_where_most_values_are_alike() -> None:
    model = gm.GraphGPRegressor(CITY, KERNEL, likelihood="student_t", optimizer=None)
    model.fit(CITY.nodes[:9], [2.0] * 6 + [1.0, 5.0, 3.0])
    assert model.y_mean_ == 2.0
    assert model.y_scale_ == pytest.approx(np.std([2.0] * 6 + [1.0, 5.0, 3.0]))
