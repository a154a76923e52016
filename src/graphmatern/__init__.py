"""Gaussian processes on the nodes of a graph.

The public names below are loaded when first used, so that ``import graphmatern`` is quick.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from graphmatern import datasets as datasets
    from graphmatern import distributed as distributed
    from graphmatern import errors as errors
    from graphmatern import graph as graph
    from graphmatern import interop as interop
    from graphmatern import io as io
    from graphmatern import kernels as kernels
    from graphmatern import likelihoods as likelihoods
    from graphmatern import metrics as metrics
    from graphmatern import plotting as plotting
    from graphmatern.design import place_sensors as place_sensors
    from graphmatern.design import remove_sensors as remove_sensors
    from graphmatern.estimators import GraphFieldRegressor as GraphFieldRegressor
    from graphmatern.estimators import GraphGPClassifier as GraphGPClassifier
    from graphmatern.estimators import GraphGPRegressor as GraphGPRegressor
    from graphmatern.estimators import load as load
    from graphmatern.graph import Graph as Graph
    from graphmatern.graph import Spectrum as Spectrum
    from graphmatern.graph import make_city as make_city
    from graphmatern.graph import make_roads as make_roads
    from graphmatern.inference import Beta as Beta
    from graphmatern.inference import Gamma as Gamma
    from graphmatern.inference import HalfNormal as HalfNormal
    from graphmatern.inference import LogNormal as LogNormal
    from graphmatern.inference import Normal as Normal
    from graphmatern.inference import PCPrior as PCPrior
    from graphmatern.kernels import BYM2 as BYM2
    from graphmatern.kernels import ICAR as ICAR
    from graphmatern.kernels import BoundKernel as BoundKernel
    from graphmatern.kernels import CosineFeatures as CosineFeatures
    from graphmatern.kernels import Diffusion as Diffusion
    from graphmatern.kernels import Interaction as Interaction
    from graphmatern.kernels import InverseCosine as InverseCosine
    from graphmatern.kernels import Kernel as Kernel
    from graphmatern.kernels import Leroux as Leroux
    from graphmatern.kernels import LinearFeatures as LinearFeatures
    from graphmatern.kernels import Matern as Matern
    from graphmatern.kernels import RandomWalk as RandomWalk
    from graphmatern.kernels import RBFFeatures as RBFFeatures
    from graphmatern.kernels import heat_flow as heat_flow

_SUBMODULES = (
    "datasets",
    "distributed",
    "errors",
    "graph",
    "io",
    "interop",
    "kernels",
    "likelihoods",
    "metrics",
    "plotting",
)
_EXPORTS = {
    "design": ("place_sensors", "remove_sensors"),
    "estimators": ("GraphFieldRegressor", "GraphGPClassifier", "GraphGPRegressor", "load"),
    "graph": ("Graph", "Spectrum", "make_city", "make_roads"),
    "inference": ("Beta", "Gamma", "HalfNormal", "LogNormal", "Normal", "PCPrior"),
    "kernels": (
        "BYM2",
        "BoundKernel",
        "CosineFeatures",
        "Diffusion",
        "ICAR",
        "Interaction",
        "InverseCosine",
        "Kernel",
        "Leroux",
        "LinearFeatures",
        "Matern",
        "RBFFeatures",
        "RandomWalk",
        "heat_flow",
    ),
}
_HOME = {name: f"graphmatern.{module}" for module, names in _EXPORTS.items() for name in names}

__all__ = [*_HOME, *_SUBMODULES, "__version__"]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(importlib.import_module(_HOME[name]), name)
    elif name in _SUBMODULES:
        value = importlib.import_module(f"graphmatern.{name}")
    else:
        raise AttributeError(f"module 'graphmatern' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
