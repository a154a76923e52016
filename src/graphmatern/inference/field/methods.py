"""Which method to solve with, and what each costs in time and memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from graphmatern._validation import FaultList
from graphmatern.errors import KernelError, ResourceError
from graphmatern.inference.field.state_space import kept_steps, state_space_memory
from graphmatern.sparse import available_memory, format_bytes

if TYPE_CHECKING:
    from graphmatern.inference.field.covariance import FieldGrid

__all__ = ["choose_method", "default_probes", "seconds"]

_FEW_CELLS = 3000  # observed cells up to which a dense evaluation takes about a second (evidence/field_methods.md)


def choose_method(grid: FieldGrid, wanted: str, order: int | None = None) -> tuple[str, str]:
    """Name of the method to use, and the reason in a sentence.

    Parameters
    ----------
    grid : FieldGrid
        The observations.
    wanted : {"auto", "kronecker", "dense", "state-space", "iterative"}
        What the caller asked for.
    order : int, optional
        `markov_order` of the kernel on time.
    """
    times, nodes = grid.shape
    n, missing = grid.n_observed, 1.0 - grid.n_observed / grid.y.size
    faults = FaultList("nothing was fitted", KernelError)
    if wanted == "kronecker" and not grid.is_complete:
        received = f"{missing:.1%} of {times:,} × {nodes:,} cells missing"
        raise faults.raise_now("engine", "can be 'kronecker' only for complete grids", received, "Use 'auto'.")
    if wanted == "state-space" and order is None:
        rule = "can be 'state-space' only for a Matérn `time_kernel` with nu 0.5, 1.5 or 2.5, scaled or not"
        raise faults.raise_now("engine", rule, "another time kernel", "Use 'auto'.")
    method = wanted
    if grid.is_complete and wanted in ("auto", "iterative"):
        method = "kronecker"
    elif wanted == "auto":
        method = "dense" if n <= _FEW_CELLS else "iterative"
    if wanted == "auto" and order is not None:
        # Exact numbers are worth twice the time of estimates; other exact ones are left for a clear gain only.
        worth = 2.0 if method == "iterative" else 0.5
        if seconds("state-space", grid, order) < worth * seconds(method, grid):
            method = "state-space"
    if method == "dense":
        reason = f"{n:,} cells with gaps: one Cholesky factor, exact"
        needed = 8 * 4 * n**2
    elif method == "kronecker":
        reason = f"all {times:,} × {nodes:,} cells are observed: Kronecker algebra, exact"
        needed = 8 * (4 * times**2 + 4 * nodes**2 + 8 * grid.y.size)
    elif method == "state-space":
        assert order is not None
        reason = f"{times:,} times of {nodes:,} nodes, Matérn in time: a Kalman filter, exact"
        needed = 8 * state_space_memory(times, nodes, order)
    else:
        reason = f"{n:,} of {times:,} × {nodes:,} cells: the others are filled in by conjugate gradients"
        needed = 8 * (6 * times**2 + 4 * nodes**2 + 40 * grid.y.size)
    if wanted == method:
        reason = "asked for"
    if needed > 0.8 * available_memory():
        raise ResourceError(
            f"{times:,} times × {nodes:,} nodes need about {format_bytes(needed)} of memory with the method "
            f"{method!r}, of {format_bytes(available_memory())} available. Round times to a common grid, "
            "aggregate them, or leave nodes out."
        )
    return method, reason


def seconds(method: str, grid: FieldGrid, order: int = 0) -> float:
    """About how long an evaluation with its gradient takes: operations times constants measured on one core.

    See evidence/field_methods.py, which writes these beside what it measures.

    Parameters
    ----------
    method : {"kronecker", "dense", "state-space", "iterative"}
        Which.
    grid : FieldGrid
        The observations.
    order : {0, 1, 2}
        Derivatives in the states of the state-space method.
    """
    times, nodes = (float(number) for number in grid.shape)
    n = float(grid.n_observed)
    if method == "kronecker":
        return 3e-10 * (times**3 + nodes**3)
    if method == "dense":
        return 3e-8 * n**2 + 4e-11 * n**3
    if method == "state-space":
        states = (order + 1) * grid.shape[1]
        again = 1.0 if kept_steps(*grid.shape, states) == grid.shape[0] else 2.0  # what is not kept is made again
        return again * (1.5e-4 * times + (2.7e-8 * times + 1.4e-10 * n) * states**2)
    return 8e-10 * times**3 + 1e-9 * default_probes(grid) * times * nodes * (times + nodes)


def default_probes(grid: FieldGrid) -> int:
    """Probes for the log-determinant: the more cells, the smaller its relative error, and the slower a probe."""
    return int(np.clip(2_000_000 // max(grid.y.size, 1), 4, 32))
