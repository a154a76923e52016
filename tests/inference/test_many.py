"""The evidence at many parameters at once, against one at a time, and what is done where that fails."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import graphmatern as gm
from graphmatern.errors import NumericalError
from graphmatern.inference import Observations, Problem, Search
from graphmatern.inference.learning.parameters import one_by_one, spread_parameters
from graphmatern.inference.sites.gaussian import GaussianObjective
from graphmatern.inference.sites.many import gaussian_forms
from graphmatern.inference.sites.marginals import Sites
from graphmatern.inference.sites.matching import MomentMatching
from graphmatern.inference.sites.objective import SiteObjective
from graphmatern.inference.spectral.covariances import SpannedCovariances
from graphmatern.inference.spectral.engine import SpectralEngine
from graphmatern.kernels import SpectralKernel
from graphmatern.likelihoods import Gaussian, Likelihood, NegativeBinomial, Poisson, StudentT
from site_cases import Y

if TYPE_CHECKING:
    import torch

    from graphmatern.inference.sites.marginals import LatentField

Floats = NDArray[np.float64]

CITY = gm.make_roads(40, seed=4)
OUTLIER = StudentT(0.4, 4.0), [[0.4, 0.1, 0.3, 4.0, -0.2, -1.3, 0.1, 0.6]]
BY_MATCHING = ["poisson", "negative_binomial", "gamma", "binomial", "probit", "logit", "student_t"]


def observe(likelihood: Likelihood, y: Any, kernel: gm.Kernel | None = None) -> Problem:
    nodes = np.random.default_rng(1).permutation(CITY.n_nodes)[: len(y)]
    nodes[1] = nodes[0]  # twice at one node
    observations = Observations(
        nodes, np.asarray(y, float)[:, None], np.ones((CITY.n_nodes, 1)), offset=np.linspace(-0.2, 0.3, len(y))
    )
    kernel = gm.Matern(1.5, 3.0, 1.2) if kernel is None else kernel
    return Problem(CITY, kernel, likelihood, observations, search=Search(None), effect_precision=0.5)


def site_objective(name: str) -> SiteObjective:
    likelihood, values = OUTLIER if name == "student_t" else Y[name]
    problem = observe(likelihood, values[0])
    return SiteObjective(SpectralEngine(problem, SiteObjective.groups(problem)), problem)


def scattered(objective: Any, start: Floats, count: int = 30) -> Floats:
    rng = np.random.default_rng(3)
    return np.concatenate([start, objective.start]) + 0.7 * rng.standard_normal(
        (count, len(start) + len(objective.start))
    )


def fixed_point(objective: SiteObjective, theta: Floats, start: Any) -> Any:
    """Sites and evidence of full expectation propagation next to some, one at a time and exact."""
    latent: LatentField = objective._field(theta)
    return MomentMatching(power=1.0).fit(latent, objective._observed, Sites(*start), tolerance=1e-13)


@pytest.mark.parametrize("name", BY_MATCHING)
def test_sites_are_found_together(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    objective = site_objective(name)
    thetas = scattered(objective, objective._engine.start)
    objective(np.concatenate([objective._engine.start, objective.start]))  # the mode comes first
    objective.value(thetas[0])
    singly: list[Floats] = []
    value = objective.value

    def counted(theta: Floats) -> float:
        singly.append(theta)
        return value(theta)

    monkeypatch.setattr(objective, "value", counted)
    found = objective.values(thetas)
    settled = objective.settled_at(thetas)
    assert len(singly) <= 6  # of sixty
    best = float(np.min(found))
    negative = unsettled = 0
    for theta, one, both in zip(thetas, found, settled, strict=True):
        if one > best + 15.0:
            continue  # hopeless: nobody asks for more digits
        assert both is not None
        expected = fixed_point(objective, theta, both[1])
        assert expected.converged
        assert one == pytest.approx(-expected.evidence, abs=0.06)  # a single one may stop 0.05 short
        negative += int((expected.sites.second < 0.0).any())
        if abs(both[0] + expected.evidence) > 1e-6:  # looked for singly, and not found in the updates allowed
            unsettled += 1
            continue
        for own, its in zip(both[1], expected.sites, strict=True):
            np.testing.assert_allclose(own, its, rtol=1e-4, atol=1e-4)
    assert unsettled <= (2 if name == "student_t" else 0)
    assert (negative > 0) == (name == "student_t")


@pytest.mark.parametrize("replicates", [1, 2])
@pytest.mark.parametrize("flat", [True, False])
def test_gaussian_noise_at_many_parameters(replicates: int, flat: bool) -> None:
    rng = np.random.default_rng(0)
    nodes = rng.permutation(CITY.n_nodes)[:12]
    observations = Observations(
        nodes, rng.standard_normal((12, replicates)), np.ones((CITY.n_nodes, 1)), noise=rng.uniform(0.5, 2.0, 12)
    )
    problem = Problem(
        CITY, gm.Matern(1.5, 3.0), Gaussian(0.1), observations, search=Search(None),
        effect_precision=0.0 if flat else 0.3,
    )  # fmt: skip
    objective = GaussianObjective(SpectralEngine(problem, problem.observations.groups), problem)
    thetas = scattered(objective, objective._engine.start)
    np.testing.assert_allclose(objective.values(thetas), one_by_one(objective.value, thetas), atol=1e-7)
    assert objective.values(thetas[:0]).shape == (0,)


def test_where_there_is_no_evidence_it_is_infinite() -> None:
    """Twice the same node without noise; the other parameters are not affected."""
    covariance = np.array([[[1.0, 1.0], [1.0, 1.0]], [[2.0, 0.5], [0.5, 2.0]]])
    data = np.array([[1.0], [-1.0]])
    determinants, forms = gaussian_forms(covariance, np.array([[-1e-9, -1e-9], [0.1, 0.1]]), data)
    assert determinants[0] == np.inf
    whole = covariance[1] + 0.1 * np.eye(2)
    assert determinants[1] == pytest.approx(np.linalg.slogdet(whole)[1])
    np.testing.assert_allclose(forms[1], data.T @ np.linalg.solve(whole, data))
    assert np.isfinite(forms).all()


@given(
    seed=st.integers(0, 20),
    n=st.integers(1, 20),
    noise=st.sampled_from([None, 1e-6, 1.0]),
    parameters=st.lists(st.tuples(st.floats(0.2, 20.0), st.floats(0.1, 100.0)), min_size=1, max_size=40),
)
def test_many_covariances(seed: int, n: int, noise: float | None, parameters: list[tuple[float, float]]) -> None:
    """More weights than there is room for matrices are served as well."""
    orthonormal, _ = np.linalg.qr(np.random.default_rng(seed).standard_normal((60, 60)))
    features, eigenvalues = np.asfortranarray(orthonormal[:n]), np.linspace(0.0, 5.0, 60)
    weights = np.stack([(1.0 + eigenvalues * k**2 / (2.0 * nu)) ** -nu for nu, k in parameters])
    levels = None if noise is None else np.full(len(weights), noise)
    for _ in range(2):  # the second time with what is left of the first
        found = SpannedCovariances(features).many(weights, levels)
        expected = np.stack([(features * own) @ features.T for own in weights])
        np.testing.assert_allclose(found, expected, rtol=0.0, atol=1e-8 * (1.0 if noise is None else noise) + 1e-13)


class _Scalar(SpectralKernel):
    """A kernel whose formula is for one value of each parameter."""

    lengthscale = gm.Matern.parameter("lengthscale")

    def __init__(self, lengthscale: float = 1.0, variance: float = 1.0) -> None:
        super().__init__(lengthscale=lengthscale, variance=variance, fixed=())

    def log_psi(self, eigenvalues: torch.Tensor) -> torch.Tensor:
        return -self.lengthscale.item() * eigenvalues


KERNELS: dict[str, gm.Kernel] = {
    "matern": gm.Matern(1.5, 3.0),
    "variance alone": gm.Matern(1.5, 3.0, fixed=("nu", "lengthscale")),
    "nothing": gm.Diffusion(2.0, fixed=("lengthscale", "variance")),
    "sum": gm.Matern(1.5, 3.0) + 0.5 * gm.Diffusion(1.0, fixed=("lengthscale", "variance")),
    "areal": gm.Leroux(1.0, 0.5),
    "intrinsic": gm.BYM2(1.0, 0.5),
    "scalar": _Scalar(2.0),
}


@pytest.mark.parametrize("name", list(KERNELS))
def test_prior_covariances_at_many_coordinates(name: str) -> None:
    problem = observe(Gaussian(), np.arange(6.0), KERNELS[name])
    engine = SpectralEngine(problem, problem.observations.groups)
    positions = engine.start + 0.3 * np.random.default_rng(0).standard_normal((5, len(engine.start)))
    (found,) = engine.covariances_at(positions) or [np.empty(0)]
    nodes = CITY.nodes[problem.observations.groups[0].nodes]
    for own, position in zip(found, positions, strict=True):
        expected = engine.kernel(position).on(CITY).matrix(nodes, nodes).detach().numpy()
        np.testing.assert_allclose(own, expected, atol=1e-11)
    assert engine.kernel(engine.start).on(CITY).weights().ndim == 1


def test_large_matrices_are_left_to_single_evaluations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphmatern.inference.spectral.engine._MANY_AT_ONCE", 5)
    problem = observe(Gaussian(), np.arange(6.0))
    engine = SpectralEngine(problem, problem.observations.groups)
    assert engine.covariances_at(engine.start[None]) is None
    objective = GaussianObjective(engine, problem)
    thetas = scattered(objective, engine.start, 3)
    np.testing.assert_allclose(objective.values(thetas), [objective.value(theta) for theta in thetas])


def test_parameters_are_what_they_were_after_being_spread() -> None:
    likelihood = StudentT(0.3, 4.0)
    raw = list(likelihood.parameters())
    with spread_parameters(raw, np.zeros((2, 3))):
        assert likelihood.scale.shape == (3,)
    assert likelihood.values() == {"scale": 0.3, "df": 4.0}


def test_one_by_one_survives_what_breaks_down() -> None:
    def value(x: Floats) -> float:
        if x[0] > 0.5:
            raise NumericalError("too large")
        return float(x[0])

    assert one_by_one(value, np.array([[0.0], [1.0]])).tolist() == [0.0, np.inf]


@pytest.mark.parametrize("likelihood", [Poisson(), NegativeBinomial(0.4), StudentT(0.3, 3.0)])
def test_fits_are_the_same_either_way(likelihood: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(2)
    y = rng.poisson(3.0, 15).astype(float)

    def fitted() -> gm.GraphGPRegressor:
        model = gm.GraphGPRegressor(CITY, likelihood=likelihood, integrate=True, engine="spectral", verbose=False)
        return model.fit(CITY.nodes[:15], y)

    together = fitted()
    monkeypatch.setattr(SpectralEngine, "covariances_at", lambda *_, **__: None)
    apart = fitted()
    assert together.log_evidence_ == pytest.approx(apart.log_evidence_, abs=0.02)
    spread = apart.hyperparameters_["sd"]
    away = (together.hyperparameters_["mean"] - apart.hyperparameters_["mean"]) / spread
    assert float(away.abs().max()) < 0.05
    mean, std = together.predict(return_std=True)
    other, _ = apart.predict(return_std=True)
    assert float(np.max(np.abs(mean - other) / std)) < 0.05
