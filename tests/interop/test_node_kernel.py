"""Our kernels inside GPyTorch models: the same numbers as the dense reference, and nothing of size N × N."""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import gpytorch
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from linear_operator.operators import (
    LowRankRootAddedDiagLinearOperator,
    LowRankRootLinearOperator,
    MatmulLinearOperator,
    RootLinearOperator,
)
from torch.utils._python_dispatch import TorchDispatchMode

import graphmatern as gm
from graphmatern.errors import KernelError
from graphmatern.interop import NodeKernel
from reference import dense_kernel, diffusion_psi, matern_psi
from strategies import graphs

GRAPH = gm.make_roads(80, seed=1)
NOISE = 0.05


class Regression(gpytorch.models.ExactGP):  # type: ignore[misc]
    def __init__(self, x: torch.Tensor, y: torch.Tensor, kernel: Any, batch_shape: torch.Size | None = None) -> None:
        likelihood = gpytorch.likelihoods.GaussianLikelihood(batch_shape=batch_shape or torch.Size())
        super().__init__(x, y, likelihood)
        self.mean_module = gpytorch.means.ConstantMean(batch_shape=batch_shape or torch.Size())
        self.covar_module = kernel
        self.double()
        self.likelihood.noise = NOISE

    def forward(self, x: torch.Tensor) -> gpytorch.distributions.MultivariateNormal:
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def train(model: Regression, steps: int = 15) -> None:
    """Move all parameters a little way; the log marginal likelihood must rise."""
    objective = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
    model.train()
    history = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = -objective(model(*model.train_inputs), model.train_targets).sum()
        loss.backward()
        assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters() if p.requires_grad)
        optimizer.step()
        history.append(loss.item())
    assert history[-1] < history[0] - 1e-3


def check_against_dense(model: Regression, covariance: Any, test: torch.Tensor) -> None:
    """Compare log marginal likelihood, predictive mean and covariance with dense formulas at the model's parameters.

    ``covariance(x, x')`` is the dense prior; one batch.
    """
    x, y = model.train_inputs[0].numpy(), model.train_targets.numpy()
    noise, offset = model.likelihood.noise.item(), model.mean_module.constant.item()
    k = covariance(x, x) + noise * np.eye(len(y))
    residual = y - offset
    expected = -0.5 * (residual @ np.linalg.solve(k, residual) + np.linalg.slogdet(k)[1] + len(y) * np.log(2 * np.pi))
    model.train()
    objective = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)
    found = objective(model(*model.train_inputs), model.train_targets).item() * len(y)
    assert found == pytest.approx(expected, rel=1e-8, abs=1e-8)
    model.eval()
    with torch.no_grad():
        prediction = model(test)
    cross = covariance(test.numpy(), x)
    np.testing.assert_allclose(prediction.mean, offset + cross @ np.linalg.solve(k, residual), atol=1e-8)
    posterior = covariance(test.numpy(), test.numpy()) - cross @ np.linalg.solve(k, cross.T)
    np.testing.assert_allclose(prediction.covariance_matrix, posterior, atol=1e-8)


def dense_nodes(kernel: NodeKernel) -> Any:
    """Dense covariance of a Matérn NodeKernel as a function of node positions."""
    values = [getattr(kernel, name).item() for name in ("nu", "lengthscale", "variance")]
    full = dense_kernel(GRAPH, matern_psi(*values[:2]), variance=values[2])
    return lambda a, b: full[np.ix_(a.astype(int), b.astype(int))]


def rbf(kernel: Any, a: Any, b: Any) -> Any:
    squares = ((a[:, None, :] - b[None, :, :]) ** 2).sum(axis=2)
    return np.exp(-0.5 * squares / kernel.lengthscale.item() ** 2)


def node_kernel(**options: Any) -> NodeKernel:
    return NodeKernel(GRAPH, gm.Matern(nu=1.7, lengthscale=2.5, variance=1.4), **options)


RNG = np.random.default_rng(7)
NODES = torch.as_tensor(RNG.permutation(GRAPH.n_nodes)[:40]).double()
FIELD = torch.tensor(GRAPH.spectrum().basis[:, 1:4].sum(axis=1) * GRAPH.n_nodes**0.5)
TARGETS = FIELD[NODES.long()] + 0.1 * torch.as_tensor(RNG.standard_normal(40))
TEST = torch.arange(GRAPH.n_nodes).double()[:, None]


def test_exact_gp_equals_the_dense_reference() -> None:
    kernel = node_kernel()
    model = Regression(NODES[:, None], TARGETS, kernel)
    check_against_dense(model, lambda a, b: dense_nodes(kernel)(a[:, 0], b[:, 0]), TEST)
    train(model)
    check_against_dense(model, lambda a, b: dense_nodes(kernel)(a[:, 0], b[:, 0]), TEST)


def test_integer_inputs_give_the_same_model() -> None:
    kernel = node_kernel()
    model = Regression(NODES[:, None].long(), TARGETS, kernel)
    check_against_dense(model, lambda a, b: dense_nodes(kernel)(a[:, 0], b[:, 0]), TEST.long())


def test_sum_with_a_euclidean_kernel_on_node_features() -> None:
    assert GRAPH.positions is not None
    features = torch.as_tensor(GRAPH.positions / GRAPH.positions.std())
    everything = torch.cat([TEST, features], dim=1)
    own, other = node_kernel(active_dims=[0]), gpytorch.kernels.RBFKernel(active_dims=[1, 2])
    model = Regression(everything[NODES.long()], TARGETS, own + other)

    def dense(a: Any, b: Any) -> Any:
        return dense_nodes(own)(a[:, 0], b[:, 0]) + rbf(other, a[:, 1:], b[:, 1:])

    check_against_dense(model, dense, everything)
    train(model)
    check_against_dense(model, dense, everything)


def test_product_with_a_time_kernel_at_scattered_pairs() -> None:
    """Coregionalisation: f(t) in R^N, observed at some nodes at some times."""
    rng = np.random.default_rng(11)
    pairs = torch.as_tensor(np.column_stack([rng.random(60) * 3.0, rng.integers(GRAPH.n_nodes, size=60)]))
    y = torch.as_tensor(np.sin(pairs[:, 0].numpy() * 2.0 + pairs[:, 1].numpy() / 9.0))
    own, other = node_kernel(active_dims=[1]), gpytorch.kernels.RBFKernel(active_dims=[0])
    model = Regression(pairs, y, own * other)
    test = torch.as_tensor(np.column_stack([rng.random(30) * 3.0, rng.integers(GRAPH.n_nodes, size=30)]))

    def dense(a: Any, b: Any) -> Any:
        return dense_nodes(own)(a[:, 1], b[:, 1]) * rbf(other, a[:, :1], b[:, :1])

    check_against_dense(model, dense, test)
    train(model)
    check_against_dense(model, dense, test)


def test_batch_of_models_with_their_own_parameters() -> None:
    batch = torch.Size([3])
    kernel = node_kernel(batch_shape=batch)
    y = torch.stack([TARGETS, 2.0 * TARGETS, TARGETS**2])
    model = Regression(NODES[:, None].expand(3, -1, 1), y, kernel, batch)
    kernel.lengthscale = torch.tensor([1.0, 2.0, 4.0])[:, None, None]
    train(model)
    assert len(set(kernel.lengthscale.flatten().tolist())) == 3
    model.eval()
    with torch.no_grad():
        prediction = model(TEST.expand(3, -1, 1))
    for i in range(3):
        single = Regression(NODES[:, None], y[i], node_kernel())
        for name in kernel.parameter_names:
            setattr(single.covar_module, name, getattr(kernel, name)[i])
        single.likelihood.noise = model.likelihood.noise[i].item()
        single.mean_module.constant.data.fill_(model.mean_module.constant[i].item())
        own = single.covar_module
        check_against_dense(single, lambda a, b, own=own: dense_nodes(own)(a[:, 0], b[:, 0]), TEST)
        with torch.no_grad():
            alone = single(TEST)
        np.testing.assert_allclose(prediction.mean[i], alone.mean, atol=1e-8)
        np.testing.assert_allclose(prediction.variance[i], alone.variance, atol=1e-8)


def test_truncated_kernel_in_feature_space() -> None:
    """Fewer eigenpairs than observations: Woodbury in training, features in prediction."""
    kernel = node_kernel(n_eigenpairs=12)
    model = Regression(NODES[:, None], TARGETS, kernel)
    spectrum = GRAPH.spectrum(12)

    def dense(a: Any, b: Any) -> Any:
        weights = matern_psi(kernel.nu.item(), kernel.lengthscale.item())(spectrum.eigenvalues)
        weights = weights * kernel.variance.item() * GRAPH.n_nodes / weights.sum()
        left, right = (spectrum.basis[x[:, 0].astype(int)] for x in (a, b))
        return (left * weights) @ right.T

    check_against_dense(model, dense, TEST)
    train(model)
    check_against_dense(model, dense, TEST)
    noisy = model.likelihood(model.train()(*model.train_inputs)).lazy_covariance_matrix.evaluate_kernel()
    assert isinstance(noisy, LowRankRootAddedDiagLinearOperator)


def test_scaled_kernel_predicts_alike() -> None:
    scaled = gpytorch.kernels.ScaleKernel(node_kernel(n_eigenpairs=12))
    model = Regression(NODES[:, None], TARGETS, scaled)
    scaled.outputscale = 2.0
    plain = node_kernel(n_eigenpairs=12)
    plain.variance = 2.8
    other = Regression(NODES[:, None], TARGETS, plain.double())
    plain.variance = 2.8
    with torch.no_grad():
        one, two = model.eval()(TEST), other.eval()(TEST)
    np.testing.assert_allclose(one.mean, two.mean, atol=1e-6)
    np.testing.assert_allclose(one.variance, two.variance, atol=1e-6)


def test_operators_are_of_low_rank() -> None:
    kernel = node_kernel(n_eigenpairs=10)
    few, many = TEST[:5], TEST
    assert type(kernel(many).evaluate_kernel()) is LowRankRootLinearOperator
    assert type(kernel(few).evaluate_kernel()) is RootLinearOperator
    assert type(kernel(few, many).evaluate_kernel()) is MatmulLinearOperator
    np.testing.assert_allclose(kernel(many, diag=True).detach(), kernel(many).to_dense().diagonal().detach(), rtol=1e-5)
    np.testing.assert_allclose(kernel(few, many).to_dense().detach(), kernel(many)[:5].to_dense().detach(), atol=1e-6)


class LargestTensor(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes the size of the largest tensor that any operation returns."""

    entries = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for item in result if isinstance(result, tuple | list) else [result]:
            if isinstance(item, torch.Tensor):
                self.entries = max(self.entries, item.numel())
        return result


def test_nothing_of_size_n_by_n_is_formed() -> None:
    graph = gm.make_roads(6000, seed=0)
    kernel = NodeKernel(graph, gm.Matern(nu=1.5, lengthscale=20.0), n_eigenpairs=30)
    every = kernel.inputs()
    x = every[::2]
    y = torch.tensor(graph.spectrum(30).basis[::2, 3]) * 50.0
    model = Regression(x, y, kernel)
    objective = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)
    # GPyTorch's own settings; BoTorch, where it has been imported, prefers dense matrices up to 4,096 rows.
    settings = gpytorch.settings.fast_computations(), gpytorch.settings.max_eager_kernel_size(512)
    with settings[0], settings[1], LargestTensor() as largest:  # type: ignore[no-untyped-call]
        (-objective(model.train()(x), y)).backward()
        with torch.no_grad():
            prediction = model.eval()(every)
            mean, variance = prediction.mean, prediction.variance
    assert largest.entries < 80 * graph.n_nodes
    assert (mean[::2] - y).abs().max() < 0.1
    assert (variance > 0).all()


class Sparse(gpytorch.models.ApproximateGP):  # type: ignore[misc]
    def __init__(self, inducing: torch.Tensor, kernel: Any) -> None:
        q = gpytorch.variational.CholeskyVariationalDistribution(len(inducing))
        super().__init__(
            gpytorch.variational.VariationalStrategy(
                self, inducing, q, learn_inducing_locations=False, jitter_val=1e-10
            )
        )
        self.mean_module = gpytorch.means.ZeroMean()
        self.covar_module = kernel
        self.double()

    def forward(self, x: torch.Tensor) -> gpytorch.distributions.MultivariateNormal:
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def test_approximate_gp_trains() -> None:
    labels = (TARGETS > 0).double()
    model, likelihood = Sparse(NODES[:15, None], node_kernel()), gpytorch.likelihoods.BernoulliLikelihood()
    objective = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=len(labels))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    history = []
    for _ in range(30):
        optimizer.zero_grad()
        loss = -objective(model(NODES[:, None]), labels)
        loss.backward()
        optimizer.step()
        history.append(loss.item())
    assert history[-1] < 0.8 * history[0]
    model.eval()
    with torch.no_grad():
        assert ((likelihood(model(NODES[:, None])).mean > 0.5) == (labels > 0.5)).double().mean() > 0.85


def test_state_dict_round_trip_copies_and_casts() -> None:
    kernel = node_kernel(lengthscale_prior=gpytorch.priors.GammaPrior(3.0, 1.0))
    kernel.lengthscale = 3.3
    kernel.nu = 0.9
    stream = io.BytesIO()
    torch.save(kernel.state_dict(), stream)
    stream.seek(0)
    other = node_kernel(lengthscale_prior=gpytorch.priors.GammaPrior(1.0, 1.0))
    other.load_state_dict(torch.load(stream, weights_only=True))
    assert other.lengthscale.item() == pytest.approx(3.3)
    total = sum(entry.numel() for entry in kernel.state_dict().values())
    assert total < 30  # no eigenvectors
    for twin in (copy.deepcopy(kernel), pickle.loads(pickle.dumps(kernel)), other):
        np.testing.assert_array_equal(twin(TEST).to_dense().detach(), kernel(TEST).to_dense().detach())
    before = kernel.double()(TEST).to_dense().detach()
    kernel.float().double()
    np.testing.assert_array_equal(kernel(TEST).to_dense().detach(), before)
    assert kernel.float()(TEST).to_dense().dtype == torch.float32


def test_constraints_and_priors_in_gpytorchs_ways() -> None:
    interval = gpytorch.constraints.Interval(0.5, 5.0)
    prior = gpytorch.priors.LogNormalPrior(0.0, 0.5)
    kernel = node_kernel(lengthscale_constraint=interval, variance_prior=prior).double()
    assert kernel.lengthscale.item() == pytest.approx(2.5)
    assert {name for name, *_ in kernel.named_priors()} == {"variance_prior"}
    assert kernel.raw_lengthscale_constraint is interval
    full = dense_kernel(GRAPH, matern_psi(kernel.nu.item(), kernel.lengthscale.item()), variance=kernel.variance.item())
    np.testing.assert_allclose(kernel(TEST).to_dense().detach(), full, atol=1e-10)
    kernel.sample_from_prior("variance_prior")
    kernel.raw_lengthscale.data.fill_(100.0)  # wherever an optimiser goes
    assert kernel.lengthscale.item() <= 5.0
    kernel.initialize(lengthscale=1.5, nu=torch.tensor(2.0))
    assert kernel.lengthscale.item() == pytest.approx(1.5)
    kernel.register_constraint("raw_nu", gpytorch.constraints.GreaterThan(1.0))
    kernel.nu = 1.25
    assert kernel.nu.item() == pytest.approx(1.25)
    with pytest.raises(KernelError, match=r"Interval\(5.000E-01, 5.000E\+00\); received 7"):
        kernel.lengthscale = 7.0
    with pytest.raises(KernelError, match="must be a positive number"):
        kernel.variance = -1.0


def test_fixed_parameters_are_held() -> None:
    kernel = NodeKernel(GRAPH, gm.Matern(nu=2.0, fixed=("nu",)))
    assert [name for name, p in kernel.named_parameters() if p.requires_grad] == ["raw_lengthscale", "raw_variance"]


def test_sums_and_multiples_of_our_kernels() -> None:
    own = gm.Matern(nu=1.5, lengthscale=2.0, variance=0.7) + 3.0 * gm.Diffusion(lengthscale=1.0, variance=0.2)
    kernel = NodeKernel(GRAPH, own).double()
    kernel.lengthscale_2 = 1.3
    full = dense_kernel(GRAPH, matern_psi(1.5, 2.0), variance=0.7) + dense_kernel(
        GRAPH, diffusion_psi(1.3), variance=0.6
    )
    np.testing.assert_allclose(kernel(TEST).to_dense().detach(), full, atol=1e-6)  # starting values were float32
    assert kernel.lengthscale is None
    walk = NodeKernel(GRAPH, gm.RandomWalk(steps=4, laziness=0.0)).double()
    walk(TEST).to_dense().sum().backward()
    assert all(p.grad.isfinite().all() for p in walk.parameters())


@given(graphs(max_nodes=10, masses=True), st.sampled_from([gm.Matern, gm.Diffusion, gm.RandomWalk, gm.InverseCosine]))
def test_any_kernel_on_any_graph(graph: gm.Graph, kind: Any) -> None:
    own = kind()
    kernel = NodeKernel(graph, own).double()
    x = kernel.inputs()
    np.testing.assert_allclose(kernel(x).to_dense().detach(), own.on(graph).matrix().detach(), atol=1e-6)


def test_weights_that_vanish_have_gradients() -> None:
    kernel = NodeKernel(GRAPH, gm.Diffusion(lengthscale=100.0))
    kernel(TEST, TEST).to_dense().sum().backward()
    assert all(p.grad.isfinite().all() for p in kernel.parameters())


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (torch.zeros(3, 2), "must have one column of node positions"),
        (torch.tensor([[0.5]]), "must hold node positions"),
        (torch.tensor([[-1]]), "must hold node positions"),
        (torch.tensor([[10_000]]), "received 10000"),
        (torch.tensor([[float("nan")]]), "must hold node positions"),
    ],
)
def test_inputs_that_are_no_nodes(x: torch.Tensor, message: str) -> None:
    with pytest.raises(KernelError, match=message):
        node_kernel()(x).to_dense()


def test_types_too_coarse_for_the_nodes() -> None:
    graph = gm.Graph.from_edges(np.column_stack([np.arange(3000), np.arange(1, 3001)]))
    kernel = NodeKernel(graph, n_eigenpairs=3)
    with pytest.raises(KernelError, match="holds whole numbers up to 3000"):
        kernel(torch.ones(2, 1, dtype=torch.float16)).to_dense()


def test_wrong_arguments() -> None:
    with pytest.raises(KernelError, match="must be a graphmatern kernel"):
        NodeKernel(GRAPH, gpytorch.kernels.RBFKernel())
    with pytest.raises(KernelError, match="lenghtscale_prior"):
        NodeKernel(GRAPH, lenghtscale_prior=gpytorch.priors.GammaPrior(3.0, 1.0))
    with pytest.raises(KernelError, match="must be a graphmatern Graph"):
        NodeKernel("roads")  # type: ignore[arg-type]
    with pytest.raises(KernelError, match="last_dim_is_batch"):
        node_kernel().forward(TEST, TEST, last_dim_is_batch=True)


# ---------------------------------------------------------------------- how they are shown
def test_kernels_are_shown_with_their_values_and_graph() -> None:
    kernel = NodeKernel(GRAPH, gm.Matern(nu=1.7, lengthscale=2.5, fixed=("nu",)), n_eigenpairs=12, active_dims=[1])
    kernel.lengthscale = 4.0
    shown = f"Matern(nu=1.7, lengthscale=4, variance=1, fixed=('nu',)) on {GRAPH!r}, 12 eigenpairs of its Laplacian"
    assert repr(kernel) == f"NodeKernel({shown}, active_dims=[1])"
    assert f"(base_kernel): {kernel!r}" in repr(gpytorch.kernels.ScaleKernel(kernel))
    assert repr(pickle.loads(pickle.dumps(kernel))) == repr(copy.deepcopy(kernel)) == repr(kernel)
    walk = NodeKernel(GRAPH, gm.RandomWalk(steps=4) + 2.0 * gm.Matern())
    assert "normalised Laplacian" in repr(walk)
    assert " + 2 * Matern(" in repr(walk)


def test_batches_and_odd_values_are_shown() -> None:
    kernel = node_kernel(batch_shape=torch.Size([3]))
    kernel.lengthscale = torch.tensor([1.0, 2.0, 4.0])[:, None, None]
    assert "batch_shape=(3,)" in repr(kernel)
    assert "lengthscale=[1.0, 2.0, 4.0]" in repr(kernel)
    assert "(10 in all)" in repr(node_kernel(batch_shape=torch.Size([10])))
    astray = node_kernel()
    astray.raw_variance.data.fill_(float("nan"))
    assert "variance=[nan]" in repr(astray)


def test_parameters_given_to_the_wrapper_are_sent_to_the_kernel() -> None:
    with pytest.raises(KernelError, match="Starting values belong to the kernel"):
        NodeKernel(GRAPH, nu=1.5)
