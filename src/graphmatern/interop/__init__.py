"""Our kernels, operators and strategies inside other people's models."""

from graphmatern.inference._node_kernel import NodeKernel

__all__ = ["NodeKernel"]
