"""Gaussian processes on the nodes of a graph.

The public names below are loaded when first used, so that ``import graphmatern`` is quick.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0.dev0"

# Public name -> module that defines it.
_EXPORTS: dict[str, str] = {}
_SUBMODULES = ("errors",)

if TYPE_CHECKING:
    from graphmatern import errors as errors

__all__ = [*_EXPORTS, *_SUBMODULES, "__version__"]  # noqa: PLE0604


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
