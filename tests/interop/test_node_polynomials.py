"""NodeKernel on large graphs: the same numbers as through eigenpairs, which are never computed."""

from __future__ import annotations

import copy
import pickle
import tracemalloc
from typing import Any

import gpytorch
import numpy as np
import pytest
import torch
from botorch.acquisition import LogExpectedImprovement

import graphmatern as gm
from graphmatern.errors import KernelError, NumericalError, ResourceError
from graphmatern.inference import eigenpairs_used
from graphmatern.interop import EigenvectorStrategy, InducingNodeStrategy, NodeKernel
from graphmatern.interop._node_polynomials import NodePolynomials
from graphs_zoo import scale_free

KERNELS = {
    "matern": gm.Matern(nu=1.3, lengthscale=2.0, variance=1.4),
    "diffusion": gm.Diffusion(lengthscale=1.5, variance=0.7),
    "sum": gm.Matern(nu=0.8, lengthscale=1.0) + 2.0 * gm.Diffusion(lengthscale=2.0, variance=0.3),
    "walk": gm.RandomWalk(steps=4, laziness=0.5),
}
RNG = np.random.default_rng(3)
X1 = torch.as_tensor(RNG.permutation(300)[:40])[:, None]
X2 = torch.as_tensor(RNG.integers(0, 300, 25))[:, None]  # with repetitions


@pytest.fixture(params=["plain", "masses"])
def graph(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> gm.Graph:
    """300 nodes, which count as many."""
    monkeypatch.setattr("graphmatern.inference.spectral.engine.DENSE_NODES", 50)
    masses = 10.0 ** np.random.default_rng(1).uniform(-0.5, 0.5, 300) if request.param == "masses" else None
    adjacency = scale_free(300)
    rows, columns = adjacency.nonzero()
    once = rows < columns
    weights = np.random.default_rng(2).uniform(0.5, 2.0, once.sum())
    return gm.Graph.from_edges(
        list(zip(rows[once].tolist(), columns[once].tolist(), strict=True)),
        weight=weights,
        nodes=range(300),
        masses=masses,
    )


def pair(graph: gm.Graph, kernel: gm.kernels.Kernel, **options: Any) -> tuple[NodeKernel, NodeKernel]:
    """The kernel through polynomials, and through all eigenpairs."""
    both = []
    for count in (None, graph.n_nodes):
        one = NodeKernel(graph, kernel, n_eigenpairs=count, **options).double()
        if not options.get("batch_shape"):
            one.load_kernel(kernel)
        both.append(one)
    assert isinstance(both[0].basis, NodePolynomials)
    assert not isinstance(both[1].basis, NodePolynomials)
    return both[0], both[1]


def degree(kernel: NodeKernel) -> int:
    """Of the polynomial that stands for a kernel."""
    assert isinstance(kernel.basis, NodePolynomials)
    return kernel.basis.degree(kernel.spectral_weights())


def compare(found: NodeKernel, expected: NodeKernel, compute: Any) -> None:
    """Compare what both kernels give, and its derivatives in all parameters, to 1e-8."""
    values, gradients = [], []
    for kernel in (found, expected):
        kernel.zero_grad()
        value = compute(kernel)
        torch.manual_seed(0)
        (value * torch.randn(value.shape, dtype=value.dtype)).sum().backward()
        values.append(value.detach().numpy())
        gradients.append(np.array([p.grad.flatten().numpy() for p in kernel.parameters()]))
    np.testing.assert_allclose(values[0], values[1], atol=1e-8 * np.abs(values[1]).max())
    np.testing.assert_allclose(gradients[0], gradients[1], atol=1e-8 * np.abs(gradients[1]).max())


DEFINED = [(name, normalized) for name in KERNELS for normalized in (False, True) if normalized or name != "walk"]


@pytest.mark.parametrize(("name", "normalized"), DEFINED)
def test_covariances_and_their_gradients(graph: gm.Graph, name: str, normalized: bool) -> None:
    found, expected = pair(graph, KERNELS[name], normalized=normalized)
    for training in (True, False):  # from moments, and through columns
        found.train(training)
        compare(found, expected, lambda kernel: kernel(X1).to_dense())
        compare(found, expected, lambda kernel: kernel(X1, X2).to_dense())
        compare(found, expected, lambda kernel: kernel(X2[:3], X1).to_dense())
    compare(found, expected, lambda kernel: kernel(X2, diag=True))
    compare(found, expected, lambda kernel: kernel(X2, X1[:25], diag=True))


def test_columns_without_moments(graph: gm.Graph) -> None:
    """Straight from columns: nothing is known yet."""
    found, expected = pair(graph, KERNELS["matern"])
    found.eval()
    compare(found, expected, lambda kernel: kernel(X1, X2).to_dense())
    compare(found, expected, lambda kernel: kernel(X1[:2], X2).to_dense())


def test_too_many_nodes_to_keep_moments_between(graph: gm.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphmatern.inference.moments.kept._ENTRIES", 0)
    found, expected = pair(graph, KERNELS["matern"])
    compare(found, expected, lambda kernel: kernel(X1).to_dense())


def test_longer_lengthscales_raise_the_degree(graph: gm.Graph) -> None:
    found, expected = pair(graph, gm.Matern(nu=1.5, lengthscale=0.5))
    degrees = []
    for lengthscale in (0.5, 2.0, 8.0, 1.0, 16.0):
        for kernel in (found, expected):
            kernel.lengthscale = lengthscale
        degrees.append(degree(found))
        compare(found, expected, lambda kernel: kernel(X1).to_dense())
        compare(found, expected, lambda kernel: kernel(X2, diag=True))
        compare(found, expected, lambda kernel: kernel(X2, X1).to_dense())
    assert degrees[0] < degrees[1] < degrees[2] < degrees[4]
    found.lengthscale = 1e5
    with pytest.raises(NumericalError, match="lengthscale_constraint"):
        found(X1).to_dense()


def test_more_nodes_and_forgotten_ones(graph: gm.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    found, expected = pair(graph, KERNELS["matern"])
    # Room for most of the nodes, but not for all.
    monkeypatch.setattr("graphmatern.inference.moments.kept._ENTRIES", int(1.3 * degree(found)) * 37**2)
    for start in (0, 5, 20, 0, 40, 100):
        x = X1[torch.arange(start, start + 30) % 40]
        compare(found, expected, lambda kernel, x=x: kernel(x).to_dense())


def test_batches_of_kernels_and_of_nodes(graph: gm.Graph) -> None:
    found, expected = pair(graph, KERNELS["matern"], batch_shape=torch.Size([3]))
    for kernel in (found, expected):
        kernel.lengthscale = torch.tensor([0.5, 1.0, 2.0])[:, None, None]
    own = torch.stack([X1[:10], X1[10:20], X1[20:30]])
    apart = torch.stack([X1[5:12], X1[12:19], X2[:7]])
    for training in (True, False):
        found.train(training)
        for x1, x2 in [(X1[:10].expand(3, 10, 1), X2.expand(3, 25, 1)), (own, own), (own, apart), (X1, X2)]:
            compare(found, expected, lambda kernel, x1=x1, x2=x2: kernel(x1, x2).to_dense())
        compare(found, expected, lambda kernel: kernel(own, diag=True))
        compare(found, expected, lambda kernel: kernel(own[:, :7], apart, diag=True))
    plain = pair(graph, KERNELS["matern"])
    for x1, x2 in [(own, apart), (own, own), (X1[:, None], X1[:, None]), (X1[:, None], X2.expand(40, 25, 1))]:
        compare(*plain, lambda kernel, x1=x1, x2=x2: kernel(x1, x2).to_dense())
    compare(*plain, lambda kernel: kernel(own[None, :, :7], apart[:, None], diag=True))


class Regression(gpytorch.models.ExactGP):  # type: ignore[misc]
    def __init__(self, x: torch.Tensor, y: torch.Tensor, kernel: Any) -> None:
        super().__init__(x, y, gpytorch.likelihoods.GaussianLikelihood())
        self.mean_module, self.covar_module = gpytorch.means.ConstantMean(), kernel
        self.double()
        self.likelihood.noise = 0.05

    def forward(self, x: torch.Tensor) -> gpytorch.distributions.MultivariateNormal:
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


Y = torch.as_tensor(RNG.standard_normal(40))


@pytest.mark.parametrize("scaled", [False, True])
def test_exact_models_agree(graph: gm.Graph, scaled: bool) -> None:
    models = [
        Regression(X1.double(), Y, gpytorch.kernels.ScaleKernel(one) if scaled else one)
        for one in pair(graph, KERNELS["matern"])
    ]
    every = torch.arange(250).double()[:, None]  # few enough for exact variances
    results = []
    for model in models:
        objective = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
        for _ in range(5):
            optimizer.zero_grad()
            loss = -objective(model.train()(model.train_inputs[0]), Y)
            loss.backward()
            optimizer.step()
        with torch.no_grad():
            prediction = model.eval()(every)
            results.append([loss.detach(), prediction.mean, prediction.variance, prediction.covariance_matrix])
    for one, two in zip(*results, strict=True):
        np.testing.assert_allclose(one, two, atol=1e-8)


def test_inducing_nodes_need_no_eigenvectors_but_eigenvectors_do(graph: gm.Graph) -> None:
    def model(kernel: NodeKernel) -> Any:
        class Model(gpytorch.models.ApproximateGP):  # type: ignore[misc]
            def __init__(self) -> None:
                q = gpytorch.variational.CholeskyVariationalDistribution(15)
                super().__init__(InducingNodeStrategy(self, kernel, X1[:15], q, jitter_val=1e-10))
                self.mean_module, self.covar_module = gpytorch.means.ZeroMean(), kernel

            def forward(self, x: torch.Tensor) -> gpytorch.distributions.MultivariateNormal:
                return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

        made = Model().double()
        made.variational_strategy.variational_params_initialized.fill_(1)
        made.variational_strategy._variational_distribution.variational_mean.data = torch.linspace(-1, 1, 15).double()
        return made

    both = pair(graph, KERNELS["matern"])
    found, expected = (model(kernel)(X1) for kernel in both)
    np.testing.assert_allclose(found.mean.detach(), expected.mean.detach(), atol=1e-7)
    np.testing.assert_allclose(found.variance.detach(), expected.variance.detach(), atol=1e-7)
    with pytest.raises(KernelError, match="n_eigenpairs=500"):
        EigenvectorStrategy(None, both[0], gpytorch.variational.CholeskyVariationalDistribution(15))
    with pytest.raises(KernelError, match="`n_eigenpairs` must be given"):
        both[0].features(X1)


def test_copies_casts_and_looks(graph: gm.Graph) -> None:
    kernel, _ = pair(graph, KERNELS["matern"])
    before = kernel(X1, X2).to_dense().detach()
    for twin in (copy.deepcopy(kernel), pickle.loads(pickle.dumps(kernel))):
        np.testing.assert_allclose(twin(X1, X2).to_dense().detach(), before, rtol=1e-12)
    assert repr(kernel).endswith("edges), polynomials of its Laplacian)")
    single = kernel.float()(X1, X2).to_dense()
    assert single.dtype == torch.float32
    np.testing.assert_allclose(single.detach(), before, atol=1e-5)


def test_memory_is_counted(graph: gm.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, _ = pair(graph, KERNELS["matern"])
    monkeypatch.setattr("graphmatern.interop._node_polynomials.available_memory", lambda: 1000)
    with pytest.raises(ResourceError, match="Ask for variances only"):
        kernel.eval()(X1, X2).to_dense()


def test_estimated_variances_state_their_error(graph: gm.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    """Far better at training nodes, within the stated error elsewhere; gradients are exact."""
    found, expected = pair(graph, KERNELS["matern"])
    every = torch.arange(300)[:, None]
    monkeypatch.setattr("graphmatern.interop._node_polynomials._EXACT", 0)
    model = Regression(X1.double(), Y, found)
    with torch.no_grad():
        prediction = model.eval()(every.double())
        mean, variance = prediction.mean, prediction.variance
    basis = found.basis
    assert isinstance(basis, NodePolynomials)
    assert 0.0 < basis.variance_error < 0.05
    with torch.no_grad():
        exact = Regression(X1.double(), Y, expected).eval()(every.double())
    np.testing.assert_allclose(mean, exact.mean, atol=1e-8)
    np.testing.assert_allclose(variance[X1[:, 0]], exact.variance[X1[:, 0]], rtol=2e-3)
    prior = found(every, diag=True)
    relative = (prior / expected(every, diag=True) - 1.0).detach()
    assert relative.square().mean().sqrt() < 2.0 * basis.variance_error
    (prior[:5].sum()).backward()
    expected(every[:5], diag=True).sum().backward()
    gradients = [torch.cat([p.grad.flatten() for p in kernel.parameters()]).numpy() for kernel in (found, expected)]
    np.testing.assert_allclose(gradients[0], gradients[1], atol=1e-8 * np.abs(gradients[1]).max())


# ---------------------------------------------------------------------- a graph of some size
@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> gm.Graph:
    """Of a size where eigenpairs are not computed: to ask for them is a failure."""
    adjacency = scale_free(6000)
    graph = gm.Graph.from_adjacency(adjacency)
    assert eigenpairs_used(graph, None) is not None

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("eigenpairs were asked for")

    monkeypatch.setattr(gm.Graph, "spectrum", refuse)
    return graph


def test_nothing_of_size_n_by_n_on_large_graphs(large: gm.Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    seen = rng.permutation(large.n_nodes)[:30]
    monkeypatch.setattr("graphmatern.inference.moments.kept._ENTRIES", 2**20)
    tracemalloc.start()
    model = gm.interop.node_model(large, large.nodes[seen], rng.standard_normal(30), normalized=True)
    chosen = gm.interop.suggest_nodes(model)
    draws = gm.interop.pathwise_samples(model, 3, random_state=0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(chosen) == 1
    assert draws.shape == (3, large.n_nodes)
    assert peak < 0.3 * 8 * large.n_nodes**2
    # Each candidate as a batch of its own, as BoTorch has it.
    with torch.no_grad():
        scores = LogExpectedImprovement(model, best_f=1.0)(torch.arange(200).double()[:, None, None])
    together = model.posterior(torch.arange(200).double()[:, None])
    z = (together.mean - 1.0) / together.variance.sqrt()
    assert torch.corrcoef(torch.stack([scores, z[:, 0].detach()]))[0, 1] > 0.9
    fantasy = model.condition_on_observations(torch.tensor([[5.0]]).double(), torch.tensor([[1.0]]).double())
    assert fantasy.posterior(torch.tensor([[5.0]]).double()).variance < together.variance[5]


def test_draws_have_the_models_covariance(graph: gm.Graph) -> None:
    kernel, expected = pair(graph, KERNELS["matern"])
    draws = kernel.draw(20_000, np.random.default_rng(0)).numpy()
    covariance = expected(torch.arange(300)[:, None]).to_dense().detach().numpy()
    np.testing.assert_allclose(np.cov(draws.T), covariance, atol=0.06 * covariance.max())


def test_kernels_that_cannot_be_expressed_are_refused_before_the_fit(graph: gm.Graph) -> None:
    with pytest.raises(NumericalError, match="normalized=True"):
        gm.interop.node_model(graph, [0, 1, 2], [0.0, 1.0, 2.0], gm.Matern(nu=1.5, lengthscale=1e5))
