"""Kernels against the dense reference, their gradients, their algebra, their samples."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from torch.func import functional_call

import graphmatern as gm
from graphmatern.errors import KernelError
from reference import dense_kernel, diffusion_psi, inverse_cosine_psi, matern_psi, random_walk_psi
from strategies import graphs

if TYPE_CHECKING:
    from collections.abc import Callable

    from graphmatern.kernels import SpectralKernel

# One list for all properties: kernel, its Ψ in the reference, the Laplacians it is defined for.
CASES: dict[str, tuple[Callable[[], SpectralKernel], Any, tuple[bool, ...]]] = {
    "matern": (lambda: gm.Matern(2.3, 1.7, 0.8), matern_psi(2.3, 1.7), (False, True)),
    "rough matern": (lambda: gm.Matern(0.4, 3.0, 2.0), matern_psi(0.4, 3.0), (False, True)),
    "diffusion": (lambda: gm.Diffusion(1.3, 1.5), diffusion_psi(1.3), (False, True)),
    "lazy walk": (lambda: gm.RandomWalk(3, 0.6, 0.7), random_walk_psi(3, 0.6), (True,)),
    "even walk": (lambda: gm.RandomWalk(4, 0.1, 0.7), random_walk_psi(4, 0.1), (True,)),
    "inverse cosine": (lambda: gm.InverseCosine(1.9), inverse_cosine_psi(), (True,)),
}
BOTH = [(name, normalized) for name, case in CASES.items() for normalized in case[2]]


def reference(name: str, graph: gm.Graph, normalized: bool) -> np.ndarray:
    make, psi, _ = CASES[name]
    return dense_kernel(graph, psi, variance=make().values()["variance"], normalized=normalized)


@pytest.mark.parametrize(("name", "normalized"), BOTH)
@settings(max_examples=40)
@given(graph=graphs(masses=True))
def test_kernel_equals_the_dense_reference(name: str, normalized: bool, graph: gm.Graph) -> None:
    bound = CASES[name][0]().on(graph, normalized)
    expected = reference(name, graph, normalized)
    found = bound.matrix().detach().numpy()
    scale = np.abs(expected).max()
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10 * scale)
    np.testing.assert_allclose(bound.diag().detach(), np.diag(expected), rtol=1e-10, atol=1e-10 * scale)
    # Any node sets, in any order, with repeats.
    a = [graph.nodes[-1], graph.nodes[0], graph.nodes[-1]]
    rows = graph.locate(a)
    np.testing.assert_allclose(bound.matrix(a).detach(), expected[np.ix_(rows, rows)], atol=1e-10 * scale)
    np.testing.assert_allclose(bound.matrix(a, graph.nodes).detach(), expected[rows], atol=1e-10 * scale)
    np.testing.assert_allclose(bound.diag(a).detach(), np.diag(expected)[rows], atol=1e-10 * scale)
    vectors = np.random.default_rng(0).standard_normal((graph.n_nodes, 2))
    np.testing.assert_allclose(bound.matvec(vectors).detach(), expected @ vectors, atol=1e-9 * scale)
    np.testing.assert_allclose(bound.matvec(vectors[:, 0]).detach(), expected @ vectors[:, 0], atol=1e-9 * scale)
    # Positive semi-definite, and the variance is the average over the nodes.
    assert np.linalg.eigvalsh(found).min() >= -1e-12 * scale
    assert found.diagonal().mean() == pytest.approx(bound.kernel.values()["variance"], rel=1e-12)  # type: ignore[operator]


@pytest.mark.parametrize(("name", "normalized"), BOTH)
@settings(max_examples=10)
@given(graph=graphs(max_nodes=6, masses=True))
def test_gradients_in_every_parameter(name: str, normalized: bool, graph: gm.Graph) -> None:
    kernel = CASES[name][0]()
    spectrum = graph.spectrum(normalized=normalized)
    inputs = (torch.tensor(spectrum.eigenvalues), torch.tensor(spectrum.squared_norms), graph.n_nodes)
    names, raw = zip(*kernel.named_parameters(), strict=True)

    class Weights(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.kernel = kernel

        def forward(self) -> torch.Tensor:
            return kernel.spectral_weights(*inputs)

    module = Weights()
    basis = torch.tensor(spectrum.basis)

    def matrix(*values: torch.Tensor) -> torch.Tensor:
        weights: torch.Tensor = functional_call(
            module, {f"kernel.{n}": v for n, v in zip(names, values, strict=True)}, ()
        )
        return (basis * weights) @ basis.T

    assert torch.autograd.gradcheck(matrix, tuple(p.detach().requires_grad_() for p in raw), atol=1e-7)


@pytest.mark.parametrize("count", [1, 3, 7])
def test_truncated_kernel_keeps_the_average_variance(count: int) -> None:
    graph = gm.make_roads(40, seed=0)
    bound = gm.Matern(1.5, 2.0, variance=2.5).on(graph, n_eigenpairs=count)
    assert bound.diag().mean().item() == pytest.approx(2.5, rel=1e-12)
    assert np.linalg.matrix_rank(bound.matrix().detach().numpy()) == count


def test_nothing_of_size_n_squared_for_few_nodes() -> None:
    graph = gm.make_roads(400, seed=0)
    bound = gm.Matern().on(graph, n_eigenpairs=5)
    assert bound.basis([0, 1]).shape == (2, 5)
    assert bound.matrix([0], [1, 2]).shape == (1, 2)


@pytest.mark.parametrize(("name", "normalized"), BOTH)
def test_prior_samples_have_the_kernels_moments(name: str, normalized: bool) -> None:
    graph = gm.Graph.from_edges([("a", "b"), ("b", "c"), ("c", "d"), ("d", "b")], weight=[1.0, 2.0, 0.5, 1.0])
    bound = CASES[name][0]().on(graph, normalized)
    n = 20_000
    draws = bound.sample(n, random_state=7).detach().numpy()
    assert draws.shape == (n, 4)
    covariance = bound.matrix().detach().numpy()
    variance = np.diag(covariance)
    # z-scores of sample means and covariances; at most 4.5 standard errors over 14 statistics (p < 1e-4).
    z_mean = draws.mean(axis=0) / np.sqrt(variance / n)
    standard_error = np.sqrt((np.outer(variance, variance) + covariance**2) / n)
    z_covariance = (draws.T @ draws / n - covariance) / standard_error
    assert np.abs(z_mean).max() < 4.5
    assert np.abs(z_covariance).max() < 4.5


def test_samples_are_the_same_functions_at_any_nodes() -> None:
    bound = gm.Matern().on(gm.make_roads(50, seed=0))
    everywhere = bound.sample(3, random_state=1)
    somewhere = bound.sample(3, [4, 2], random_state=1)
    torch.testing.assert_close(somewhere, everywhere[:, [4, 2]])
    assert not torch.equal(bound.sample(3, random_state=2), everywhere)


def test_sums_and_multiples() -> None:
    graph = gm.make_roads(30, seed=0)
    first, second = gm.Matern(1.5, 2.0, 0.5), gm.Diffusion(3.0, 2.0)
    total = (first + 3.0 * second + first * 0.5).on(graph).matrix()
    expected = 1.5 * first.on(graph).matrix() + 3.0 * second.on(graph).matrix()
    torch.testing.assert_close(total, expected, rtol=1e-13, atol=1e-13)
    walk = gm.RandomWalk() + first
    assert walk.requires_normalized
    assert (2.0 * walk).requires_normalized
    assert walk.on(graph).spectrum.normalized
    torch.autograd.backward(total.sum())
    assert first.raw_nu.grad is not None
    with pytest.raises(KernelError, match="`factor` must be a positive"):
        -1.0 * first
    with pytest.raises(TypeError):
        first + 1
    with pytest.raises(TypeError):
        first * second


def test_fixed_parameters_do_not_learn() -> None:
    kernel = gm.Matern(2.0, 3.0, fixed=("nu",))
    assert kernel.fixed == ("nu",)
    torch.autograd.backward(kernel.on(gm.make_roads(30)).diag()[0])
    assert kernel.raw_nu.grad is None
    assert kernel.raw_lengthscale.grad is not None


def test_parameters_read_and_write_as_numbers() -> None:
    kernel = gm.Matern(nu=2.5, lengthscale=3.0, variance=0.1)
    assert kernel.values() == pytest.approx({"nu": 2.5, "lengthscale": 3.0, "variance": 0.1}, rel=1e-15)
    kernel.lengthscale = 7.0
    assert kernel.lengthscale.item() == pytest.approx(7.0, rel=1e-15)
    with pytest.raises(KernelError, match=r"`lengthscale` must be a positive number, from 1e-100 to 1e100; received 0"):
        kernel.lengthscale = 0
    assert kernel.lengthscale.item() == pytest.approx(7.0, rel=1e-15)
    assert kernel.lengthscale.dtype == torch.float64


def test_scikit_learns_manners() -> None:
    kernel = gm.RandomWalk(steps=4, laziness=0.25, fixed=("variance",))
    twin = clone(kernel)
    assert twin is not kernel
    assert twin.get_params() == kernel.get_params()
    twin.set_params(steps=6, laziness=0.75)
    assert (twin.steps, twin.laziness.item()) == (6, pytest.approx(0.75))
    assert kernel.steps == 4
    with pytest.raises(KernelError, match=r"must be at least 1/2 if `steps` is odd"):
        kernel.set_params(steps=3)
    assert kernel.steps == 4
    with pytest.raises(KernelError, match="Correct these names"):
        kernel.set_params(stpes=3)


def test_state_dict_round_trip_and_copies() -> None:
    kernel = gm.Matern(2.5, 3.0)
    other = gm.Matern()
    other.load_state_dict(kernel.state_dict())
    assert other.values() == kernel.values()
    twin = copy.deepcopy(kernel)
    twin.nu = 1.0
    assert kernel.nu.item() == pytest.approx(2.5)


@pytest.mark.parametrize(
    ("action", "words"),
    [
        (lambda: gm.Matern(nu=0.0), "`nu` must be a positive number, from 1e-100 to 1e100; received 0.0"),
        (lambda: gm.Matern(lengthscale=float("inf")), "`lengthscale` must be a positive number"),
        (lambda: gm.Matern(variance=float("nan")), "1e100; received nan"),
        (lambda: gm.Matern(nu="1"), "1e100; received '1'"),  # type: ignore[arg-type]
        (lambda: gm.Diffusion(lengthscale=True), "received True"),
        (lambda: gm.Matern(fixed=("kappa",)), "(nu, lengthscale, variance); received 'kappa'"),
        (lambda: gm.RandomWalk(steps=0), "`steps` must be a whole number from 1 to 1000000000; received 0"),
        (lambda: gm.RandomWalk(steps=2.5), "`steps` must be a whole number"),  # type: ignore[arg-type]
        (lambda: gm.RandomWalk(laziness=1.0), "`laziness` must lie in [0, 1); received 1.0"),
        (lambda: gm.RandomWalk(steps=3, laziness=0.4), "must be at least 1/2 if `steps` is odd"),
        (lambda: gm.RandomWalk().on(gm.make_roads(10), normalized=False), "must be True for RandomWalk"),
        (lambda: gm.InverseCosine().on(gm.make_roads(10), normalized=False), "for InverseCosine"),
        (lambda: (gm.Matern() + gm.RandomWalk()).on(gm.make_roads(10), normalized=False), "for RandomWalk"),
        (lambda: gm.Matern().on(nx.path_graph(3)), "must be a graphmatern Graph; received a networkx Graph"),
        (lambda: gm.Matern().on(gm.make_roads(10), normalized="no"), "must be True or False"),  # type: ignore[arg-type]
        (lambda: gm.Matern().on(gm.make_roads(10)).sample(random_state=-1), "`random_state` must be"),
        (lambda: gm.kernels.SumKernel(gm.Matern(), 3), "must be one or more kernels"),  # type: ignore[arg-type]
        (lambda: gm.Matern().on(gm.make_roads(10)).sample(0), "`n_samples` must be a whole number"),
    ],
)  # fmt: skip
def test_bad_kernels(action: Callable[[], object], words: str) -> None:
    with pytest.raises(KernelError) as caught:
        action()
    assert words in str(caught.value)


def test_all_faults_of_a_kernel_at_once() -> None:
    with pytest.raises(KernelError) as caught:
        gm.Matern(nu=-1.0, lengthscale=0.0, variance=float("nan"), fixed=("mu",))
    assert len(caught.value.faults) == 4


def test_walk_of_no_laziness_is_exact() -> None:
    kernel = gm.RandomWalk(steps=2, laziness=0.0)
    assert kernel.laziness.item() == 0.0
    graph = gm.Graph.from_edges([("a", "b"), ("b", "c")])
    expected = dense_kernel(graph, random_walk_psi(2, 0.0), normalized=True)
    np.testing.assert_allclose(kernel.on(graph).matrix().detach(), expected, atol=1e-14)


@given(st.sampled_from(["matern", "diffusion"]), graphs())
def test_range_falls_with_distance(name: str, graph: gm.Graph) -> None:
    found = CASES[name][0]().on(graph).range()
    assert found.unit == "edges"
    assert (found.table["low"] <= found.table["median"]).all()
    assert (found.table["median"] <= 1.0 + 1e-12).all()
    assert found.half <= found.tenth


def test_range_is_in_the_unit_of_the_lengths() -> None:
    metres, kilometres = gm.make_roads(300, spacing=100.0), gm.make_roads(300, spacing=0.1)
    far, near = (gm.Matern(1.5, 4.0).on(graph).range() for graph in (metres, kilometres))
    assert far.unit == "length"
    assert far.half == pytest.approx(1000 * near.half, rel=1e-6)
    longer = gm.Matern(1.5, 8.0).on(metres).range()
    assert longer.half > far.half
    assert (np.diff(far.table["distance"]) > 0).all()


def test_range_of_a_path_is_the_correlation_itself() -> None:
    path = gm.Graph.from_edges([(i, i + 1) for i in range(60)], length=np.full(60, 2.0))
    bound = gm.Diffusion(3.0).on(path)
    found = bound.range(n_sources=61, n_classes=100)
    covariance = bound.matrix().detach().numpy()
    correlation = covariance / np.sqrt(np.outer(covariance.diagonal(), covariance.diagonal()))
    at_one_edge = np.median(np.concatenate([correlation.diagonal(1), correlation.diagonal(-1)]))
    assert found.table["distance"][0] == 2.0
    assert found.table["median"][0] == pytest.approx(at_one_edge, rel=1e-12)
    assert 2.0 < found.half < found.tenth < 20.0


def test_labels_align_and_numbers_keep_their_digits() -> None:
    graph = gm.Graph.from_edges([("a", "b"), ("b", "c")])
    bound = gm.Matern().on(graph)
    by_name = pd.Series([3.0, 1.0, 2.0], index=["c", "a", "b"])
    torch.testing.assert_close(bound.matvec(by_name), bound.matvec([1.0, 2.0, 3.0]))
    np.testing.assert_array_equal(gm.heat_flow(graph, by_name, 0.5), gm.heat_flow(graph, [1.0, 2.0, 3.0], 0.5))
    assert [gm.Matern(nu=nu).values()["nu"] for nu in (3, 5, 7, 0.1)] == [3.0, 5.0, 7.0, 0.1]
    total = sum([gm.Matern(), gm.Diffusion()])
    assert isinstance(total, gm.kernels.SumKernel)
    walk = gm.RandomWalk(2, 0.1)
    with pytest.raises(AttributeError):
        walk.steps = 3


def test_truncation_does_not_depend_on_history() -> None:
    def cycle() -> gm.Graph:
        return gm.Graph.from_networkx(nx.cycle_graph(6))

    first, second = cycle(), cycle()
    second.spectrum()
    matrices = [gm.Matern().on(graph, n_eigenpairs=2).matrix() for graph in (first, second)]
    assert torch.equal(*matrices)


def test_spectrum_cannot_be_changed() -> None:
    graph = gm.make_roads(20)
    for array in (graph.spectrum().eigenvectors, graph.spectrum().eigenvalues, graph.components, graph.weights.data):
        with pytest.raises(ValueError, match="read-only"):
            array[:] = 0
    weights = graph.weights
    weights.data = np.zeros_like(weights.data)
    assert graph.weights.data.min() > 0
