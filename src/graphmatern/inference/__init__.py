"""Inference: engines and the differentiable pieces they are made of."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from graphmatern.inference._autograd import sparse_logdet, sparse_solve
from graphmatern.inference._markov import MarkovPrecision
from graphmatern.inference._rules import LogNormal

if TYPE_CHECKING:
    from graphmatern.inference._stochastic import StochasticFit as StochasticFit
    from graphmatern.inference._stochastic import fit_stochastic as fit_stochastic

__all__ = ["LogNormal", "MarkovPrecision", "StochasticFit", "fit_stochastic", "sparse_logdet", "sparse_solve"]


def __getattr__(name: str) -> Any:
    # GPyTorch takes a second or two to import.
    if name in ("StochasticFit", "fit_stochastic"):
        return getattr(importlib.import_module("graphmatern.inference._stochastic"), name)
    raise AttributeError(f"module 'graphmatern.inference' has no attribute {name!r}")
