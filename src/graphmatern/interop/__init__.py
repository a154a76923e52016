"""Our kernels, operators, likelihoods and strategies inside other people's models."""

from graphmatern.inference._node_kernel import NodeKernel
from graphmatern.inference._strategies import EigenvectorStrategy, InducingNodeStrategy
from graphmatern.interop._botorch import maximize_over_nodes, node_model, pathwise_samples, suggest_nodes
from graphmatern.interop._likelihoods import NodeLikelihood
from graphmatern.interop._sparse_operator import SparsePrecisionLinearOperator

__all__ = [
    "EigenvectorStrategy",
    "InducingNodeStrategy",
    "NodeKernel",
    "NodeLikelihood",
    "SparsePrecisionLinearOperator",
    "maximize_over_nodes",
    "node_model",
    "pathwise_samples",
    "suggest_nodes",
]
