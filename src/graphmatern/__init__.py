"""Gaussian processes on the nodes of a graph.

The public names below are loaded when first used, so that ``import graphmatern`` is quick.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0.dev0"

# Public name -> module that defines it.
_EXPORTS: dict[str, str] = {
    "Graph": "graphmatern.graph",
    "Spectrum": "graphmatern.graph",
    "make_roads": "graphmatern.graph",
}
_SUBMODULES = ("errors",)

if TYPE_CHECKING:
    from graphmatern import errors as errors
    from graphmatern.graph import Graph as Graph
    from graphmatern.graph import Spectrum as Spectrum
    from graphmatern.graph import make_roads as make_roads

__all__ = [*_EXPORTS, *_SUBMODULES, "__version__"]


def __getattr__(name: str) -> Any:
    if name in _EXPORTS:
        value = getattr(importlib.import_module(_EXPORTS[name]), name)
        globals()[name] = value
        return value
    if name in _SUBMODULES:
        return importlib.import_module(f"graphmatern.{name}")
    raise AttributeError(f"module 'graphmatern' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
