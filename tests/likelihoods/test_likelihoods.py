"""Likelihoods against scipy's distributions, expectations against adaptive integration, derivatives, extremes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats
from sklearn.base import clone

import graphmatern as gm
from graphmatern._validation import FaultList
from graphmatern.errors import LikelihoodError
from graphmatern.likelihoods import (
    Bernoulli,
    Binomial,
    Categorical,
    GammaNoise,
    Gaussian,
    Likelihood,
    NegativeBinomial,
    Numeric,
    Poisson,
    RobustMax,
    Softmax,
    StudentT,
    ZeroInflatedPoisson,
    join_trials,
)

if TYPE_CHECKING:
    from collections.abc import Callable

# Likelihood, and log p(y | f) for one latent value from another library.
ONE_LATENT: dict[str, tuple[Callable[[], Likelihood], Callable[[Any, Any], Any], list[float]]] = {
    "gaussian": (lambda: Gaussian(0.3), lambda y, f: stats.norm.logpdf(y, f, np.sqrt(0.3)), [-1.2, 0.4]),
    "student_t": (lambda: StudentT(0.5, 3.0), lambda y, f: stats.t.logpdf(y, 3.0, f, 0.5), [-4.0, 0.4]),
    "poisson": (Poisson, lambda y, f: stats.poisson.logpmf(y, np.exp(f)), [0.0, 7.0]),
    "negative_binomial": (
        lambda: NegativeBinomial(0.4),
        lambda y, f: stats.nbinom.logpmf(y, 2.5, 2.5 / (2.5 + np.exp(f))),
        [0.0, 7.0],
    ),
    "zero_inflated_poisson": (
        lambda: ZeroInflatedPoisson(0.3),
        lambda y, f: np.log(0.7) + stats.poisson.logpmf(y, np.exp(f)) if y else np.log(0.3 + 0.7 * np.exp(-np.exp(f))),
        [0.0, 7.0],
    ),
    "gamma": (lambda: GammaNoise(0.4), lambda y, f: stats.gamma.logpdf(y, 2.5, scale=np.exp(f) / 2.5), [0.4, 7.0]),
    "binomial": (
        Binomial,
        lambda y, f: stats.binom.logpmf(y % 2.0**26, y // 2.0**26, 1.0 / (1.0 + np.exp(-f))),
        [join_trials(0.0, 3.0), join_trials(5.0, 9.0)],
    ),
    "probit": (Bernoulli, lambda y, f: stats.norm.logcdf((2 * y - 1) * f), [0.0, 1.0]),
    "logit": (lambda: Bernoulli("logit"), lambda y, f: -np.logaddexp(0.0, -(2 * y - 1) * f), [0.0, 1.0]),
}
EVERY: dict[str, Callable[[], Likelihood]] = {
    **{name: case[0] for name, case in ONE_LATENT.items()},
    "robustmax": lambda: RobustMax(4),
    "softmax": lambda: Softmax(4),
}


def tensor(values: Any) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def targets(likelihood: Likelihood, n: int, rng: np.random.Generator) -> torch.Tensor:
    if isinstance(likelihood, Categorical):
        return tensor(rng.integers(0, likelihood.n_classes, n))
    if isinstance(likelihood, Binomial):
        return tensor(join_trials(rng.integers(0, 5, n), rng.integers(5, 9, n)))
    return tensor(rng.integers(0, 5, n) + (0.5 if isinstance(likelihood, GammaNoise) else 0.0))


def marginals(likelihood: Likelihood, n: int, rng: np.random.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    shape = (likelihood.n_latents, n)
    return tensor(rng.normal(0, 1.5, shape)), tensor(rng.uniform(0.05, 2.0, shape))


@pytest.mark.parametrize("name", ONE_LATENT)
def test_formula_and_expectation(name: str) -> None:
    make, reference, values = ONE_LATENT[name]
    likelihood = make()
    for y in values:
        for mean, variance in ((0.3, 0.01), (-1.0, 1.0), (1.5, 2.0)):
            f = tensor([[mean]])
            found = likelihood.log_prob(tensor([y]), f).item()
            assert found == pytest.approx(reference(y, mean), rel=1e-12, abs=1e-12)
            expected, _ = integrate.quad(
                lambda x, y=y, m=mean, v=variance: reference(y, m + np.sqrt(v) * x) * stats.norm.pdf(x),
                -12,
                12,
                epsabs=1e-12,
                limit=500,
            )
            found = likelihood.expected_log_prob(tensor([y]), f, tensor([[variance]])).item()
            # Heavy tails are not polynomials: 32 points give four digits, elsewhere six.
            assert found == pytest.approx(expected, rel=3e-4 if name == "student_t" else 2e-6)


def test_robustmax_against_samples_and_adaptive_integration() -> None:
    rng = np.random.default_rng(0)
    likelihood = RobustMax(4, epsilon=0.02)
    mean, variance = marginals(likelihood, 5, rng)
    m, s = mean.numpy(), np.sqrt(variance.numpy())
    draws = m + s * rng.standard_normal((200_000, 4, 5))
    probabilities = likelihood.probabilities(mean, variance).numpy()
    np.testing.assert_allclose(probabilities.sum(axis=0), 1.0, atol=1e-12)
    for c in range(4):
        share = (draws.argmax(axis=1) == c).mean(axis=0)
        np.testing.assert_allclose(probabilities[c], 0.98 * share + 0.02 / 3 * (1 - share), atol=5e-3)
        for i in range(5):
            others = [k for k in range(4) if k != c]

            def density(x: float, c: int = c, i: int = i, others: list[int] = others) -> float:
                product = np.prod([stats.norm.cdf(x, m[k, i], s[k, i]) for k in others])
                return float(stats.norm.pdf(x, m[c, i], s[c, i]) * product)

            exact, _ = integrate.quad(density, m[c, i] - 9 * s[c, i], m[c, i] + 9 * s[c, i], epsabs=1e-12)
            label = torch.full((5,), c)
            value = likelihood.expected_log_prob(label, mean, variance)[i].item()
            assert value == pytest.approx(exact * np.log(0.98) + (1 - exact) * np.log(0.02 / 3), abs=1e-9)
            assert probabilities[c, i] == pytest.approx(0.98 * exact + 0.02 / 3 * (1 - exact), abs=1e-10)
    picked = likelihood.log_prob(torch.zeros(5), tensor(draws[:1000])).numpy()
    right = draws[:1000].argmax(axis=1) == 0
    np.testing.assert_allclose(picked, np.where(right, np.log(0.98), np.log(0.02 / 3)))


def test_softmax_expectation_is_the_tensor_product_rule() -> None:
    rng = np.random.default_rng(1)
    likelihood = Softmax(3)
    mean, variance = marginals(likelihood, 4, rng)
    nodes, weights = np.polynomial.hermite_e.hermegauss(16)
    weights = weights / weights.sum()
    m, s = mean.numpy(), np.sqrt(variance.numpy())
    grid = np.stack(np.meshgrid(nodes, nodes, nodes, indexing="ij")).reshape(3, 1, -1)
    weight = np.prod(np.stack(np.meshgrid(weights, weights, weights, indexing="ij")).reshape(3, -1), axis=0)
    f = m[:, :, None] + s[:, :, None] * grid
    log_sum = np.logaddexp.reduce(f, axis=0)
    np.testing.assert_allclose(likelihood.expected_log_sum(mean, variance).numpy(), log_sum @ weight, atol=1e-8)
    probabilities = np.exp(f - log_sum) @ weight
    np.testing.assert_allclose(likelihood.probabilities(mean, variance).numpy(), probabilities, atol=1e-7)
    draws = tensor(m + s * rng.standard_normal((100_000, 3, 4)))
    label = tensor([0, 1, 2, 1])
    sampled = likelihood.log_prob(label, draws).mean(dim=0).numpy()
    np.testing.assert_allclose(likelihood.expected_log_prob(label, mean, variance).numpy(), sampled, atol=0.02)


@pytest.mark.parametrize("name", EVERY)
def test_derivatives(name: str) -> None:
    """Gradcheck in mean and variance and in every learnable parameter; the blockwise derivatives are the same."""
    rng = np.random.default_rng(2)
    likelihood = EVERY[name]()
    y = targets(likelihood, 4, rng)
    mean, variance = (x.requires_grad_() for x in marginals(likelihood, 4, rng))
    raw = list(likelihood.parameters())

    def value(m: torch.Tensor, v: torch.Tensor, *theta: torch.Tensor) -> torch.Tensor:
        names = [key for key, _ in likelihood.named_parameters()]
        state = dict(zip(names, theta, strict=True))
        inner = {f"inner.{key}": value for key, value in state.items()}
        found: torch.Tensor = torch.func.functional_call(_Expected(likelihood), inner, (y, m, v))
        return found

    theta = tuple(p.detach().clone().requires_grad_() for p in raw)
    assert torch.autograd.gradcheck(value, (mean, variance, *theta), atol=1e-6)
    direct = torch.autograd.grad(likelihood.expected_log_prob(y, mean, variance).sum(), (mean, variance))
    found = likelihood.expectation(y, mean, variance)
    torch.testing.assert_close(found.in_mean, direct[0])
    torch.testing.assert_close(found.in_variance, direct[1])
    assert not found.value.requires_grad


class _Expected(torch.nn.Module):
    def __init__(self, inner: Likelihood) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, y: torch.Tensor, m: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return self.inner.expected_log_prob(y, m, v)


def test_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    for make in EVERY.values():
        likelihood = make()
        y, (mean, variance) = targets(likelihood, 7, rng), marginals(likelihood, 7, rng)
        whole = likelihood.expectation(y, mean, variance)
        monkeypatch.setattr("graphmatern.likelihoods._base.entries_at_once", 1)
        for one, other in zip(whole, likelihood.expectation(y, mean, variance), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-7, atol=1e-7)
        monkeypatch.undo()


@pytest.mark.parametrize("name", EVERY)
@settings(max_examples=25)
@given(data=st.data())
def test_extreme_marginals_stay_finite(name: str, data: st.DataObject) -> None:
    likelihood = EVERY[name]()
    shape = (likelihood.n_latents, 3)
    size = int(np.prod(shape))
    extremes = st.one_of(st.sampled_from([-1e3, 0.0, 1e3]), st.floats(-1e3, 1e3))
    spreads = st.one_of(st.sampled_from([0.0, -12.0, 4.0]), st.floats(-12.0, 4.0))
    mean = tensor(data.draw(st.lists(extremes, min_size=size, max_size=size))).reshape(shape)
    variance = 10.0 ** tensor(data.draw(st.lists(spreads, min_size=size, max_size=size))).reshape(shape)
    y = tensor([0.0, 1.0, 1.0])
    if isinstance(likelihood, Binomial | GammaNoise):
        y = targets(likelihood, 3, np.random.default_rng(0))
    for part in likelihood.expectation(y, mean, variance):
        assert torch.isfinite(part).all()
    if isinstance(likelihood, Categorical):
        p = likelihood.probabilities(mean, variance)
        assert torch.isfinite(p).all()
        torch.testing.assert_close(p.sum(dim=0), torch.ones(3, dtype=torch.float64))
        assert (p >= 0).all()
    elif isinstance(likelihood, Numeric):
        for part in (*likelihood.response_moments(mean, variance), *likelihood.observation_moments(mean, variance)):
            assert torch.isfinite(part).all()


@pytest.mark.parametrize("name", ["gaussian", "student_t", "poisson", "negative_binomial"])
def test_predictions_of_numbers_against_samples(name: str) -> None:
    rng = np.random.default_rng(4)
    likelihood = EVERY[name]()
    if isinstance(likelihood, StudentT):
        likelihood.df = 9.0  # so that the variance of a sample is not itself an outlier
    assert isinstance(likelihood, Numeric)
    m, v = np.array([0.5, 1.5]), np.array([0.3, 0.1])
    f = m + np.sqrt(v) * rng.standard_normal((400_000, 2))
    y = likelihood.draw(f, rng)
    g = likelihood.response(f)
    mean, variance = tensor(m[None]), tensor(v[None])
    centre, spread = (x.detach().numpy() for x in likelihood.response_moments(mean, variance))
    np.testing.assert_allclose(g.mean(axis=0), centre, rtol=0.01)
    np.testing.assert_allclose(g.var(axis=0), spread, rtol=0.03)
    centre, spread = (x.detach().numpy() for x in likelihood.observation_moments(mean, variance))
    np.testing.assert_allclose(y.mean(axis=0), centre, rtol=0.01)
    np.testing.assert_allclose(y.var(axis=0), spread, rtol=0.03)
    for level in (0.025, 0.5, 0.975):
        found = likelihood.observation_quantile(level, m, v)
        share_below = (y < found).mean(axis=0), (y <= found).mean(axis=0)
        assert (share_below[0] <= level + 3e-3).all()
        assert (share_below[1] >= level - 3e-3).all()


def test_classes_of_two_and_many() -> None:
    mean, variance = tensor([[0.7, -2.0]]), tensor([[0.5, 1.5]])
    rng = np.random.default_rng(5)
    f = mean.numpy()[0] + np.sqrt(variance.numpy()[0]) * rng.standard_normal((400_000, 2))
    for likelihood, link in ((Bernoulli(), stats.norm.cdf), (Bernoulli("logit"), lambda x: 1 / (1 + np.exp(-x)))):
        p = likelihood.probabilities(mean, variance).numpy()
        np.testing.assert_allclose(p[1], link(f).mean(axis=0), atol=2e-3)
        np.testing.assert_allclose(p.sum(axis=0), 1.0, atol=1e-12)


def test_parameters_are_learnable_and_checked() -> None:
    likelihood = StudentT(0.5, 3.0, fixed=("df",))
    assert [p.requires_grad for p in likelihood.parameters()] == [True, False]
    assert likelihood.values() == {"scale": 0.5, "df": 3.0}
    assert repr(likelihood) == "StudentT(scale=0.5, df=3, fixed=('df',))"
    assert clone(likelihood).values() == likelihood.values()
    assert likelihood.set_params(df=5.0).df.item() == pytest.approx(5.0)
    with pytest.raises(LikelihoodError, match="2 faults"):
        StudentT(-1.0, 1.0)
    with pytest.raises(LikelihoodError, match="between 0 and 1"):
        RobustMax(3, epsilon=1.0)
    with pytest.raises(LikelihoodError, match="whole number"):
        Softmax(1)
    with pytest.raises(LikelihoodError, match="'probit' or 'logit'"):
        Bernoulli("tanh")  # type: ignore[arg-type]
    assert RobustMax(3).set_params(epsilon=0.1).epsilon == 0.1
    assert gm.likelihoods.Poisson is Poisson


def test_impossible_observations_are_faults() -> None:
    for likelihood, y in ((Poisson(), [1.0, -1.0, 0.5]), (RobustMax(3), [0.0, 3.0, 0.5]), (Bernoulli(), [2.0])):
        faults = FaultList("nothing was fitted")
        likelihood.note_faults(np.array(y), faults)
        assert len(faults) == 1
    faults = FaultList("nothing was fitted")
    Gaussian().note_faults(np.array([-1.5]), faults)
    assert len(faults) == 0


@pytest.mark.parametrize("power", [1.0, 0.5])
def test_derivatives_of_the_marginals_of_student_t(power: float) -> None:
    """In closed form as by differentiation, also with a gross outlier and next to Gaussian noise."""
    y, mean = torch.tensor([0.3, -2.0, 1e3, 0.0]).double(), torch.tensor([[0.1, 0.4, -1.0, 0.0]]).double()
    variance = torch.tensor([[0.5, 1e-4, 2.0, 30.0]]).double()
    for likelihood in (StudentT(0.3, 4.0), StudentT(0.05, 2.1), StudentT(2.0, 500.0)):
        found = likelihood.marginal(y, mean, variance, power)
        expected = Likelihood.marginal(likelihood, y, mean, variance, power)
        for own, its in zip(found, expected, strict=True):
            torch.testing.assert_close(own, its, rtol=1e-9, atol=1e-12)
