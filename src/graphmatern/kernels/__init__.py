"""Kernels on the nodes of a graph."""

from graphmatern.kernels._areal import BYM2, ICAR, ArealKernel, Leroux
from graphmatern.kernels._base import Kernel, ScaledKernel, SpectralKernel, SumKernel, hold_variance
from graphmatern.kernels._bound import BoundKernel, CorrelationRange
from graphmatern.kernels._heat import heat_flow
from graphmatern.kernels._spectral import (
    Diffusion,
    InverseCosine,
    Matern,
    RandomWalk,
    kernel_from_plain,
    kernel_to_plain,
)

__all__ = [
    "BYM2",
    "ICAR",
    "ArealKernel",
    "BoundKernel",
    "CorrelationRange",
    "Diffusion",
    "InverseCosine",
    "Kernel",
    "Leroux",
    "Matern",
    "RandomWalk",
    "ScaledKernel",
    "SpectralKernel",
    "SumKernel",
    "heat_flow",
    "hold_variance",
    "kernel_from_plain",
    "kernel_to_plain",
]
