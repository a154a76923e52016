"""Graphs beyond one machine: the same model, with nodes spread over processes, on PETSc and MPI.

Every process runs the same script and holds some of the nodes::

    mpiexec -n 64 python -m graphmatern.distributed fit edges/ values.parquet --out model/

Optimisers, kernels, conjugate gradients and Lanczos quadrature are those of `graphmatern.GraphGPRegressor` with
``engine="moments"`` and many observations; only rows are multiplied and summed otherwise.
"""

from graphmatern.distributed._graph import DistributedGraph
from graphmatern.distributed._processes import Processes, ending_together, world
from graphmatern.distributed._regressor import GraphGPRegressor

__all__ = ["DistributedGraph", "GraphGPRegressor", "Processes", "ending_together", "world"]
