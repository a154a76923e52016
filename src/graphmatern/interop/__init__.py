"""graphmatern's kernels, operators, likelihoods and strategies for use with other libraries."""

from graphmatern.interop._botorch import maximize_over_nodes, node_model, pathwise_samples, suggest_nodes
from graphmatern.interop._coregionalization import coregionalized_inputs, coregionalized_kernel
from graphmatern.interop._geopandas import from_geopandas, to_geopandas
from graphmatern.interop._likelihoods import NodeLikelihood
from graphmatern.interop._networks import from_osmnx, to_pyg
from graphmatern.interop._node_kernel import NodeKernel
from graphmatern.interop._sparse_operator import SparsePrecisionLinearOperator
from graphmatern.interop._strategies import EigenvectorStrategy, InducingNodeStrategy

__all__ = [
    "EigenvectorStrategy",
    "InducingNodeStrategy",
    "NodeKernel",
    "NodeLikelihood",
    "SparsePrecisionLinearOperator",
    "coregionalized_inputs",
    "coregionalized_kernel",
    "from_geopandas",
    "from_osmnx",
    "maximize_over_nodes",
    "node_model",
    "pathwise_samples",
    "suggest_nodes",
    "to_geopandas",
    "to_pyg",
]
