"""Products through torch, against those on the processor, which have their own reference."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import networkx as nx
import numpy as np
import pytest
import torch

import graphmatern as gm
from graphmatern.errors import GraphMaternError, InputError, ResourceError
from graphmatern.inference.moments.device import DeviceProducts
from graphmatern.sparse import ChebyshevProducts

if TYPE_CHECKING:
    from pathlib import Path

HUBS = gm.Graph.from_networkx(nx.barabasi_albert_graph(300, 4, seed=1))
MATRIX = HUBS.laplacian(normalized=True)
NODES = np.array([7, 0, 250, 33])
PRECISIONS = {"float64": 1e-12, "float32": 1e-5}

in_both = pytest.mark.parametrize("dtype", PRECISIONS)


def on_device(dtype: str) -> DeviceProducts:
    return DeviceProducts(MATRIX, 0.0, 2.0, torch.device("cpu"), getattr(torch, dtype))


@in_both
def test_every_verb_agrees_with_the_processor(dtype: str) -> None:
    rng = np.random.default_rng(0)
    host, device = ChebyshevProducts(MATRIX, 0.0, 2.0), on_device(dtype)
    degree = 20
    several, columns = rng.standard_normal((degree + 1, 3)), rng.standard_normal((HUBS.n_nodes, 40))
    left, right = rng.standard_normal((2, len(NODES), 40))
    probes = rng.choice([-1.0, 1.0], (HUBS.n_nodes, 6))
    weights = rng.uniform(0.5, 2.0, HUBS.n_nodes)
    verbs: dict[str, tuple[Any, ...]] = {
        "apply": (several[:, 0], columns),
        "polynomials": (several, columns),
        "row_squares": (NODES, several[:, 0], right),
        "between": (NODES, several, right),
        "forms": (NODES, left, right, degree),
        "moments": (NODES, degree),
        "traces": (None, degree, probes),
    }
    calls = [*verbs.items(), ("traces", (weights, degree, probes))]
    for verb, arguments in calls:
        before = [np.copy(one) for one in arguments if isinstance(one, np.ndarray)]
        expected, found = getattr(host, verb)(*arguments), getattr(device, verb)(*arguments)
        assert found.dtype == np.float64, verb
        scale = max(1.0, np.abs(expected).max())
        np.testing.assert_allclose(found, expected, rtol=0.0, atol=PRECISIONS[dtype] * scale, err_msg=verb)
        for one, was in zip((one for one in arguments if isinstance(one, np.ndarray)), before, strict=True):
            np.testing.assert_array_equal(one, was)


@in_both
def test_moments_go_on_from_lower_degrees(dtype: str) -> None:
    products, kept = on_device(dtype), {}  # type: ignore[var-annotated]
    expected = products.moments(NODES, 12)
    first = products.moments(NODES, 5, None, kept)
    np.testing.assert_array_equal(first, expected[:6])
    np.testing.assert_array_equal(products.moments(NODES, 12, first, kept), expected)


def test_blocks_are_gone_on_from_when_there_is_less_memory_than_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a device that pretends to be CUDA, whose memory runs short while moments are kept."""
    free = [2 * 5 * 300 * 8 * 3.0]  # three columns of a block
    products, kept = on_device("float64"), {}  # type: ignore[var-annotated]
    expected = on_device("float64").moments(NODES, 12)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (free[0], 1e9))
    monkeypatch.setattr(products, "_device", torch.device("cuda"))
    monkeypatch.setattr(products, "_rows", lambda nodes: torch.from_numpy(nodes))
    monkeypatch.setattr(products, "_zeros", lambda *shape: torch.zeros(shape, dtype=torch.float64))
    first = products.moments(NODES, 5, None, kept)
    assert sorted(kept) == [0, 3]
    free[0] /= 3.0
    # Products of fewer columns may be summed in another order, by a last digit.
    assert np.abs(products.moments(NODES, 12, first, kept) - expected).max() <= 4e-16


SPECTRUM = HUBS.spectrum(normalized=True)
VALUES = np.random.default_rng(1).standard_normal(300) @ (np.exp(-4.0 * SPECTRUM.eigenvalues) * SPECTRUM.eigenvectors).T
VALUES = VALUES / VALUES.std() + 0.1 * np.random.default_rng(2).standard_normal(300)
OPTIONS: dict[str, Any] = {"engine": "moments", "normalized": True}


def test_float32_changes_a_fit_by_as_much_as_it_says() -> None:
    """And it may be forced on the processor too, where it is the same fit in other numbers."""
    exact = gm.GraphGPRegressor(HUBS, **OPTIONS).fit(HUBS.nodes[:60], VALUES[:60])
    rough = gm.GraphGPRegressor(HUBS, dtype="float32", **OPTIONS).fit(HUBS.nodes[:60], VALUES[:60])
    assert rough.log_marginal_likelihood_ == pytest.approx(exact.log_marginal_likelihood_, abs=1e-3)
    np.testing.assert_allclose(rough.predict(HUBS.nodes), exact.predict(HUBS.nodes), atol=1e-3)
    auto = gm.GraphGPRegressor(HUBS, dtype="float32").fit(HUBS.nodes[:60], VALUES[:60])
    assert auto.engine_ == "moments"
    assert "float32 on cpu was requested" in auto.engine_reason_


def test_files_and_pickles_of_a_fit_on_a_device_need_no_device(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The fit is on a device that pretends to be CUDA; it is used on a machine without."""
    model = gm.GraphGPRegressor(HUBS, dtype="float32", **OPTIONS).fit(HUBS.nodes[:60], VALUES[:60])
    model.device = model._fit_options["device"] = "cuda"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    model.save(tmp_path / "device.gm")
    for again in (pickle.loads(pickle.dumps(model)), gm.load(tmp_path / "device.gm")):
        assert again.device == "cuda"
        np.testing.assert_allclose(again.predict(HUBS.nodes), model.predict(HUBS.nodes), atol=2e-4)
        more = again.condition_on(HUBS.nodes[100:103], VALUES[100:103])
        assert np.isfinite(more.predict(HUBS.nodes)).all()
        with pytest.raises(InputError, match="no such CUDA device"):
            again.fit(HUBS.nodes[:60], VALUES[:60])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"device": "cuda"}, "no such CUDA device"),
        ({"device": "gpu"}, "Use 'cpu' or 'cuda'"),
        ({"device": None}, "device"),
        ({"dtype": "float16"}, "dtype"),
        ({"dtype": "float32", "engine": "spectral"}, "Use engine='moments'"),
    ],
)
@pytest.mark.parametrize("estimator", [gm.GraphGPRegressor, gm.GraphGPClassifier])
def test_devices_that_are_not_there_are_refused(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], words: str, estimator: Any
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(InputError, match=words):
        estimator(HUBS, **options).fit(HUBS.nodes[:60], VALUES[:60] > 0)
    assert issubclass(InputError, GraphMaternError)


def test_a_device_without_room_is_refused_before_anything_is_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _device: (1_000, 1_000))
    with pytest.raises(ResourceError, match=r"on cuda, of .* free.*float32"):
        DeviceProducts(MATRIX, 0.0, 2.0, torch.device("cuda"))
