"""Graphs beyond one machine: the same model, with nodes spread over processes, on PETSc and MPI.

Every process runs the same script and holds some of the nodes::

    mpiexec -n 64 python -m graphmatern.distributed fit edges/ values.parquet --out model/

Optimisers, kernels, conjugate gradients and Lanczos quadrature are those of `graphmatern.GraphGPRegressor` with
``engine="moments"`` and many observations; only rows are multiplied and summed otherwise.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphmatern.distributed._graph import DistributedGraph as DistributedGraph
    from graphmatern.distributed._processes import Processes as Processes
    from graphmatern.distributed._processes import ending_together as ending_together
    from graphmatern.distributed._processes import world as world
    from graphmatern.distributed._regressor import GraphGPRegressor as GraphGPRegressor

_HOME = {
    "DistributedGraph": "_graph",
    "GraphGPRegressor": "_regressor",
    "Processes": "_processes",
    "ending_together": "_processes",
    "world": "_processes",
}

__all__ = ["DistributedGraph", "GraphGPRegressor", "Processes", "ending_together", "world"]


def __getattr__(name: str) -> Any:
    # When first used, so that what is wrong with the input is told before everything else is loaded.
    if name not in _HOME:
        raise AttributeError(f"module 'graphmatern.distributed' has no attribute {name!r}")
    return getattr(importlib.import_module(f"graphmatern.distributed.{_HOME[name]}"), name)
