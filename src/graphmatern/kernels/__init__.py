"""Kernels on the nodes of a graph."""

from graphmatern.kernels._areal import BYM2, ICAR, ArealKernel, Leroux
from graphmatern.kernels._base import Kernel, ScaledKernel, SpectralKernel, SumKernel, hold_variance
from graphmatern.kernels._bound import BoundKernel, CorrelationRange
from graphmatern.kernels._features import (
    CosineFeatures,
    FeatureKernel,
    Interaction,
    LinearFeatures,
    RBFFeatures,
    kernel_terms,
)
from graphmatern.kernels._heat import heat_flow
from graphmatern.kernels._names import current_label, parameter_label, part_named, term_names
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
    "CosineFeatures",
    "Diffusion",
    "FeatureKernel",
    "Interaction",
    "InverseCosine",
    "Kernel",
    "Leroux",
    "LinearFeatures",
    "Matern",
    "RBFFeatures",
    "RandomWalk",
    "ScaledKernel",
    "SpectralKernel",
    "SumKernel",
    "current_label",
    "heat_flow",
    "hold_variance",
    "kernel_from_plain",
    "kernel_terms",
    "kernel_to_plain",
    "parameter_label",
    "part_named",
    "term_names",
]
