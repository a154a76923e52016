"""OSMnx, PyTorch Geometric, networkx: there and back; coregionalisation's own helpers."""

from __future__ import annotations

from typing import Any

import gpytorch
import networkx as nx
import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from shapely import LineString
from torch_geometric.data import Data

import graphmatern as gm
from graphmatern.errors import EdgeWarning, GraphError, KernelError, TableError, UnknownNodeError
from graphmatern.interop import coregionalized_inputs, coregionalized_kernel, from_osmnx, to_pyg
from reference import dense_kernel, matern_psi
from strategies import graphs


def streets() -> Any:
    """A street network as OSMnx has it: both directions, a one-way street, curves, two streets between two corners."""
    network: Any = nx.MultiDiGraph(crs="epsg:32632")
    corners = {101: (0.0, 0.0), 102: (100.0, 0.0), 103: (100.0, 80.0), 104: (0.0, 80.0)}
    for name, (x, y) in corners.items():
        network.add_node(name, x=x, y=y, street_count=3)

    def both(u: int, v: int, **data: Any) -> None:
        line = data.pop("line", None)
        forth = {} if line is None else {"geometry": LineString(line)}
        back = {} if line is None else {"geometry": LineString(line[::-1])}
        network.add_edge(u, v, reversed=False, **data, **forth)
        network.add_edge(v, u, reversed=True, **data, **back)

    both(101, 102, osmid=1, length=100.0)
    both(102, 103, osmid=[2, 3], length=110.0, line=[(100.0, 0.0), (130.0, 40.0), (100.0, 80.0)])
    both(102, 103, osmid=4, length=80.0)
    network.add_edge(103, 104, osmid=5, length=100.0, oneway=True)
    return network


def test_osmnx_streets_are_counted_once_with_their_geometry() -> None:
    with pytest.warns(EdgeWarning, match="1 of 4 edges repeats a pair of nodes"):
        graph = from_osmnx(streets())
    assert (graph.n_nodes, graph.n_edges, len(graph.edges)) == (4, 3, 4)
    assert list(graph.nodes) == [101, 102, 103, 104]
    assert graph.positions is not None
    np.testing.assert_array_equal(graph.positions[1], [100.0, 0.0])
    assert sorted(graph.edges["length"]) == [80.0, 100.0, 100.0, 110.0]
    curved = graph.edges.loc[graph.edges["length"] == 110.0, "geometry"].iloc[0]
    np.testing.assert_array_equal(curved, [[100.0, 0.0], [130.0, 40.0], [100.0, 80.0]])
    mean = graph.edges["length"].mean()
    assert graph.weights[1, 2] == pytest.approx(mean / 80.0 + mean / 110.0)
    undirected: Any = nx.MultiGraph(streets())
    with pytest.warns(EdgeWarning, match="1 of 4 edges"):
        assert from_osmnx(undirected, parallel="first").n_edges == 3


def test_predictions_go_back_to_the_streets() -> None:
    network = streets()
    network.remove_edges_from([(102, 103, 1), (103, 102, 1)])  # the straight one of two
    graph = from_osmnx(network)
    model = gm.GraphGPRegressor(graph, gm.Matern(nu=1), optimizer=None, noise=0.1)
    table = model.fit([101, 103], [3.0, 5.0]).predict_table()
    nx.set_node_attributes(network, table.to_dict("index"))
    assert network.nodes[104]["mean"] == pytest.approx(table.loc[104, "mean"])
    out = graph.to_networkx(attributes=table)
    assert out.nodes[104]["std"] == pytest.approx(table.loc[104, "std"])
    assert out.nodes[102]["pos"] == (100.0, 0.0)
    lines = [data["geometry"] for *_, data in out.edges(data=True) if "geometry" in data]
    assert len(lines) == 1


def test_osmnx_networks_that_lack_something() -> None:
    network = streets()
    del network.nodes[104]["x"]
    for *_, data in network.edges(data=True):
        data.pop("length")
    with pytest.raises(GraphError, match="2 faults") as raised:
        from_osmnx(network)
    assert "nodes without: 104" in str(raised.value)
    with pytest.raises(GraphError, match="must be a networkx MultiDiGraph; received a dict"):
        from_osmnx({})  # type: ignore[arg-type]


def test_lengths_of_other_networks_are_used_or_mentioned() -> None:
    with pytest.raises(GraphError, match=r"to_undirected.*graphmatern\.interop\.from_osmnx"):
        gm.Graph.from_networkx(streets())
    network: Any = nx.MultiGraph(nx.path_graph(3))
    nx.set_edge_attributes(network, {(0, 1, 0): 5.0, (1, 2, 0): 20.0}, "length")
    with pytest.warns(EdgeWarning, match="'length', which is not used: all weights are 1; pass length='length'"):
        assert gm.Graph.from_networkx(network).weights.max() == 1.0
    assert gm.Graph.from_networkx(network, weight=None).weights.max() == 1.0
    assert gm.Graph.from_networkx(network, length="length").weights[0, 1] == 2.5
    nx.set_edge_attributes(network, values=3.0, name="weight")  # type: ignore[call-overload]
    both = gm.Graph.from_networkx(network)
    assert both.edges[["weight", "length"]].to_numpy().tolist() == [[3.0, 5.0], [3.0, 20.0]]
    assert both.distances([0]).tolist() == [[0.0, 5.0, 25.0]]
    network.edges[0, 1, 0].pop("length")
    with pytest.warns(EdgeWarning, match="not used: 'weight' is"):
        gm.Graph.from_networkx(network)


def test_graphs_come_back_from_networkx_with_weights_and_lengths() -> None:
    for graph in (gm.make_roads(30, seed=1), gm.Graph.from_points(np.random.default_rng(0).random((20, 2)), 3)):
        again = gm.Graph.from_networkx(graph.to_networkx())
        np.testing.assert_array_equal(again.weights.toarray(), graph.weights.toarray())
        assert sorted(again.edges["length"]) == sorted(graph.edges["length"])


@given(graphs(max_nodes=10))
def test_pyg_round_trip(graph: gm.Graph) -> None:
    data = to_pyg(graph)
    assert isinstance(data, Data)
    assert data.validate()
    assert data.is_undirected()
    again = gm.Graph.from_pyg(data, nodes=data.node_names)
    assert list(again.nodes) == list(graph.nodes)
    np.testing.assert_array_equal(again.weights.toarray(), graph.weights.toarray())


def test_pyg_keeps_positions_and_takes_attributes() -> None:
    graph = gm.make_roads(40, seed=0)
    table = pd.DataFrame({"mean": 1.5, "informed": True}, index=graph.nodes[:5])
    data = to_pyg(graph, attributes=table)
    again = gm.Graph.from_pyg(data, nodes=data.node_names)
    np.testing.assert_array_equal(again.positions, graph.positions)
    assert data.mean.shape == (graph.n_nodes,)
    assert data.mean[:5].eq(1.5).all()
    assert data.mean[5:].isnan().all()
    assert data.informed[0] == 1.0
    with pytest.raises(UnknownNodeError):
        to_pyg(graph, attributes=pd.DataFrame({"mean": [1.0]}, index=["nowhere"]))
    with pytest.raises(TableError, match="2 faults"):
        to_pyg(graph, attributes=pd.DataFrame({"kind": ["a"], "pos": [1.0]}, index=graph.nodes[:1]))


def test_without_pyg(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "torch_geometric.data", None)
    with pytest.raises(ImportError, match=r"graphmatern\[pyg\]"):
        to_pyg(gm.make_roads(10, seed=0))


# ---------------------------------------------------------------------- coregionalisation
GRAPH = gm.make_roads(50, seed=1)


class Model(gpytorch.models.ExactGP):  # type: ignore[misc]
    def __init__(self, x: torch.Tensor, y: torch.Tensor, kernel: Any) -> None:
        super().__init__(x, y, gpytorch.likelihoods.GaussianLikelihood())
        self.mean_module, self.covar_module = gpytorch.means.ZeroMean(), kernel
        self.double()

    def forward(self, x: torch.Tensor) -> gpytorch.distributions.MultivariateNormal:
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


@pytest.mark.parametrize("n_inputs", [1, 2])
def test_coregionalisation_equals_the_dense_reference(n_inputs: int) -> None:
    rng = np.random.default_rng(0)
    x = rng.random(40) if n_inputs == 1 else rng.random((40, n_inputs))
    places = rng.integers(GRAPH.n_nodes, size=40)
    y = np.sin(5.0 * x.reshape(40, -1)[:, 0]) + places / GRAPH.n_nodes
    own = gm.Matern(nu=1.5, lengthscale=2.0, variance=1.0)
    kernel = coregionalized_kernel(GRAPH, gpytorch.kernels.RBFKernel(), own, n_inputs=n_inputs)
    model = Model(coregionalized_inputs(GRAPH, x, GRAPH.nodes[places]), torch.as_tensor(y), kernel)
    # New inputs at every node.
    fresh = np.full((GRAPH.n_nodes, n_inputs), 0.35)
    test = coregionalized_inputs(GRAPH, fresh, GRAPH.nodes)
    with torch.no_grad():
        found = model.eval()(test)
    scale = kernel.kernels[0].lengthscale.item()
    nu, lengthscale, variance = (getattr(kernel.kernels[1], name).item() for name in ("nu", "lengthscale", "variance"))
    full = dense_kernel(GRAPH, matern_psi(nu, lengthscale), variance=variance)
    inputs = x.reshape(40, -1)

    def dense(a: Any, i: Any, b: Any, j: Any) -> Any:
        squares = ((a[:, None] - b[None]) ** 2).sum(axis=2)
        return np.exp(-0.5 * squares / scale**2) * full[np.ix_(i, j)]

    every = np.arange(GRAPH.n_nodes)
    k = dense(inputs, places, inputs, places) + model.likelihood.noise.item() * np.eye(40)
    cross = dense(fresh, every, inputs, places)
    np.testing.assert_allclose(found.mean, cross @ np.linalg.solve(k, y), atol=1e-8)
    posterior = dense(fresh, every, fresh, every) - cross @ np.linalg.solve(k, cross.T)
    np.testing.assert_allclose(found.variance, np.diag(posterior), atol=1e-8)


def test_coregionalisation_with_wrong_arguments() -> None:
    with pytest.raises(KernelError, match="2 faults"):
        coregionalized_kernel(GRAPH, gm.Matern(), n_inputs=0)
    with pytest.raises(TableError, match="one row per node"):
        coregionalized_inputs(GRAPH, [0.0, 1.0], GRAPH.nodes[:3])
    given_dims = gpytorch.kernels.RBFKernel(active_dims=[1])
    assert coregionalized_kernel(GRAPH, given_dims, n_inputs=2).kernels[0].active_dims.tolist() == [1]
    assert coregionalized_kernel(GRAPH).kernels[0].active_dims.tolist() == [0]
