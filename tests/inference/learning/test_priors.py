"""Priors: densities against scipy's, derivatives, quantiles, and what is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import quad
from scipy.special import expit

import graphmatern as gm
from graphmatern.errors import KernelError
from graphmatern.inference import OfRoot

if TYPE_CHECKING:
    from pathlib import Path

X = np.linspace(-3.0, 2.5, 12)
# Log densities of the parameter itself by scipy, and |dθ/dx|.
CASES: dict[str, tuple[Any, Any, Any]] = {
    "log-normal": (gm.LogNormal(2.0, 0.7), stats.lognorm(0.7, scale=2.0).logpdf, np.exp),
    "half-normal": (gm.HalfNormal(0.5), stats.halfnorm(scale=0.5).logpdf, np.exp),
    "half-normal of a root": (
        OfRoot(gm.HalfNormal(0.5)),
        lambda v: stats.halfnorm(scale=0.5).logpdf(np.sqrt(v)) - np.log(2.0 * np.sqrt(v)),
        np.exp,
    ),
    "normal": (gm.Normal(0.5), None, None),
    "gamma": (gm.Gamma(2.0, 3.0), stats.gamma(2.0, scale=1 / 3.0).logpdf, np.exp),
    "beta": (gm.Beta(2.0, 0.5), stats.beta(2.0, 0.5).logpdf, expit),
    "pc of a lengthscale": (gm.PCPrior(below=0.5, probability=0.1), None, np.exp),
    "pc of a variance": (gm.PCPrior(above=2.0, probability=0.1), None, np.exp),
}


def cell(table: Any, row: Any, column: str) -> float:
    return float(table.loc[row, column])


@pytest.mark.parametrize("name", CASES)
def test_densities_are_those_of_the_coordinate(name: str) -> None:
    prior, log_density, back = CASES[name]
    value, slope, curvature = prior.log_density(X)
    step = 1e-4
    after, before = prior.log_density(X + step), prior.log_density(X - step)
    np.testing.assert_allclose(slope, (after[0] - before[0]) / (2 * step), rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(curvature, (after[1] - before[1]) / (2 * step), rtol=1e-5, atol=1e-7)
    assert prior.penalty(0.3) == pytest.approx(tuple(-one for one in prior.log_density(np.float64(0.3))[:2]))
    assert prior.curvature(0.3) == pytest.approx(-prior.log_density(np.float64(0.3))[2])
    if log_density is not None:
        theta = back(X)
        jacobian = theta * (1 - theta) if back is expit else theta
        np.testing.assert_allclose(value, log_density(theta) + np.log(jacobian), rtol=1e-10)


@pytest.mark.parametrize("name", CASES)
def test_quantiles_belong_to_the_density(name: str) -> None:
    prior = CASES[name][0]
    share = np.array([0.05, 0.5, 0.9])
    for level, x in zip(share, prior.quantile(share), strict=True):
        below, _ = quad(lambda z: float(np.exp(prior.log_density(np.float64(z))[0])), -60.0, x, limit=500)
        assert below == pytest.approx(level, abs=1e-6)


def test_pc_priors_say_what_they_were_told() -> None:
    short = gm.PCPrior(below=3.0, probability=0.05)
    assert np.exp(short.quantile(np.array([0.05])))[0] == pytest.approx(3.0)
    large = gm.PCPrior(above=2.0, probability=0.01)
    assert np.sqrt(np.exp(large.quantile(np.array([0.99]))))[0] == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: gm.HalfNormal(0.0), "scale"),
        (lambda: gm.Gamma(1.0, -1.0), "rate"),
        (lambda: gm.Beta(float("nan"), 1.0), "`a`"),
        (lambda: gm.PCPrior(), "only one of them"),
        (lambda: gm.PCPrior(below=1.0, above=1.0), "only one of them"),
        (lambda: gm.PCPrior(below=-1.0), "below"),
        (lambda: gm.PCPrior(above=1.0, probability=1.5), "probability"),
    ],
)
def test_nonsense_is_refused(make: Any, words: str) -> None:
    with pytest.raises(KernelError, match=words):
        make()


def test_priors_must_suit_their_parameters() -> None:
    city = gm.make_roads(30, seed=0)
    y = np.arange(len(city.nodes))
    for prior in (
        {"noise": gm.Beta(1.0, 1.0)},
        {"noise": gm.PCPrior(below=1.0)},
        {"lengthscale": gm.PCPrior(above=1.0)},
    ):
        with pytest.raises(KernelError, match="must suit"):
            gm.GraphGPRegressor(city, priors=prior).fit(city.nodes, y)
    walk = gm.GraphGPRegressor(city, gm.RandomWalk(4, 0.5), priors={"laziness": gm.LogNormal(0.5, 1.0)})
    with pytest.raises(KernelError, match="must suit"):
        walk.fit(city.nodes, y)


def test_every_prior_pulls_and_is_kept_in_a_file(tmp_path: Path) -> None:
    city = gm.make_roads(60, seed=0)
    y = gm.Matern(1, 3.0).on(city).sample(random_state=0).numpy()[0]
    priors = {
        "nu": gm.Gamma(4.0, 2.0),
        "lengthscale": gm.PCPrior(below=20.0, probability=0.01),
        "variance": gm.PCPrior(above=3.0, probability=0.05),
        "noise": gm.HalfNormal(0.01),
    }
    model = gm.GraphGPRegressor(city, priors=priors).fit(city.nodes[::2], y[::2])
    free = gm.GraphGPRegressor(city).fit(city.nodes[::2], y[::2])
    assert cell(model.hyperparameters_, "lengthscale", "50%") > 2.0 * cell(free.hyperparameters_, "lengthscale", "50%")
    model.save(tmp_path / "model.gm")
    again = gm.load(tmp_path / "model.gm")
    assert again.priors == priors
