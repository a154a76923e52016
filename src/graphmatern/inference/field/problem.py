"""What is to be learned of a field, and how an optimiser sees it."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from gpytorch.kernels import MaternKernel

from graphmatern.inference.field.markov_time import markov_order
from graphmatern.inference.field.objective import FieldObjective
from graphmatern.inference.field.time_kernel import TimeKernel
from graphmatern.inference.field.time_priors import time_priors
from graphmatern.inference.learning.default_priors import variance_of, weak_priors
from graphmatern.inference.learning.parameters import (
    START_LENGTHSCALES,
    Coordinate,
    PriorsAndBounds,
    free_parameters,
    move_parameters,
)
from graphmatern.inference.learning.problem import Search
from graphmatern.inference.process import Family
from graphmatern.inference.spectral.engine import eigenpairs_used
from graphmatern.kernels import Matern

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from graphmatern.graph import Graph
    from graphmatern.inference.field.covariance import FieldEffects, FieldGrid
    from graphmatern.inference.field.fill_in import IterativeOptions
    from graphmatern.inference.field.time_kernel import FreeNumber
    from graphmatern.inference.learning.priors import Prior
    from graphmatern.kernels import BoundKernel, Kernel

    Floats = NDArray[np.float64]

__all__ = ["START_GAPS", "FieldModel", "FieldProblem", "median_gap", "order_of", "time_kernel_of"]

#: Lengthscales in time that are tried, in units of the median gap between times.
START_GAPS = (1.0, 5.0, 25.0)
_START_NOISE = 0.1
_FIT_TOLERANCE = 1e-4  # of solves in a fit to a costly grid
_DEFAULT_ORDER = 1  # derivatives of the process behind the default kernel on time


@dataclass(frozen=True, eq=False)
class FieldProblem:
    """What to fit to what.

    Attributes
    ----------
    graph : Graph
        The graph.
    kernel : Kernel, optional
        Kernel on the graph with starting values; by default Matérn, started from the data. It is not changed.
    time_kernel : gpytorch.kernels.Kernel, optional
        Kernel on time with starting values; by default Matérn 3/2, started from the data. It is not changed.
    grid : FieldGrid
        The observations.
    effects : FieldEffects
        Linear effects of the mean.
    normalized : bool
        Which Laplacian.
    n_eigenpairs : int, optional
        Eigenpairs of the graph; all of a graph of moderate size by default.
    method : {"kronecker", "dense", "state-space", "iterative"}
        How to solve.
    iterative : IterativeOptions
        Accuracy of the iterative method.
    noise : float, optional
        Noise variance to start from; 0.1 by default.
    rules : PriorsAndBounds
        What is known about the parameters of ``kernel`` and the noise. What ``time_kernel`` knows of its own counts.
    search : Search
        How to look for the best of them.
    integrate : bool or "auto"
        Whether to integrate over the parameters after the search; "auto" where that is worth it.
    """

    graph: Graph
    kernel: Kernel | None
    time_kernel: Any
    grid: FieldGrid
    effects: FieldEffects
    normalized: bool
    n_eigenpairs: int | None
    method: str
    iterative: IterativeOptions
    noise: float | None = None
    rules: PriorsAndBounds = field(default_factory=PriorsAndBounds)
    search: Search = field(default_factory=Search)
    integrate: bool | str = False


@dataclass(frozen=True, eq=False)
class FieldModel(Family):
    """The kernels, whose parameters the objectives on the whole grid and on parts of it move.

    Attributes
    ----------
    problem : FieldProblem
        What to fit.
    bound, time : BoundKernel, TimeKernel
        Kernels on the graph and on time.
    coordinates : list of Coordinate
        What is learned of the kernels: on the graph, then on time.
    noise : Coordinate
        What is learned last.
    start : ndarray, shape (n_coordinates + 1,)
        The kernels' own values, and the noise.
    n_graph : int
        How many coordinates belong to the kernel on the graph.
    costly : bool
        Whether every evaluation counts; else steps that trust no part of the grid are safer.
    """

    problem: FieldProblem
    bound: BoundKernel
    time: TimeKernel
    coordinates: list[Coordinate]
    noise: Coordinate
    start: Floats
    n_graph: int
    costly: bool

    @property
    def every(self) -> list[Coordinate]:
        """All that is learned: graph, time, noise."""
        return [*self.coordinates, self.noise]

    @property
    def matrix_size(self) -> int:
        """Rows of the largest dense matrix that is factorised often."""
        grid = self.problem.grid
        return grid.n_observed if self.problem.method == "dense" else max(grid.shape)

    def kernel(self, position: Floats) -> Kernel:
        """Return the kernel on the graph at some coordinates, a copy."""
        kernel = copy.deepcopy(self.bound.kernel)
        raw = [parameter for parameter in kernel.parameters() if parameter.requires_grad]
        move_parameters(raw, position[: self.n_graph])
        return kernel

    @classmethod
    def of(cls, problem: FieldProblem, *, costly: bool) -> FieldModel:
        """The kernels of a problem, with their starting values; all parameters have priors if it is to integrate."""
        kernel = Matern(1.5, START_LENGTHSCALES[0]) if problem.kernel is None else copy.deepcopy(problem.kernel)
        if isinstance(kernel, Matern):
            kernel.set_params(nu=kernel.values()["nu"])  # from here on it has a value
        count = eigenpairs_used(problem.graph, problem.n_eigenpairs)
        bound = kernel.on(problem.graph, problem.normalized, count)
        time, rules = time_kernel_of(problem), problem.rules
        of_time: list[Prior] | None = None
        if problem.integrate:
            spread = variance_of(problem.grid.y[problem.grid.observed], bool(problem.effects.design.shape[1]))
            priors = weak_priors(problem.graph, problem.normalized, rules, spread)
            rules = PriorsAndBounds(rules.bounds, priors)
            of_time = time_priors(time, median_gap(problem.grid.times), float(np.ptp(problem.grid.times)))
        _, on_graph, own = free_parameters(kernel, rules)
        in_time = _time_coordinates(time, of_time)
        log_noise = np.log(_START_NOISE if problem.noise is None else problem.noise)
        start = np.concatenate([own, time.position(), [log_noise]])
        noise = rules.coordinate("noise")
        return cls(problem, bound, time, [*on_graph, *in_time], noise, start, len(own), costly)

    def objective(self, part: FieldGrid, method: str) -> FieldObjective:
        """The objective on a part of the grid."""
        problem = self.problem
        options = replace(problem.iterative, fit_tolerance=_FIT_TOLERANCE) if self.costly else problem.iterative
        return FieldObjective(
            self.bound,
            self.time,
            part,
            effects=problem.effects,
            method=method,
            options=options,
            noise=self.noise,
            time_priors=not problem.integrate,
        )


def _time_coordinates(time: TimeKernel, priors: Sequence[Prior] | None) -> list[Coordinate]:
    """How an optimiser sees the parameters of a kernel on time."""
    numbers = time.free_numbers()
    every = [None] * len(numbers) if priors is None else priors

    def values(number: FreeNumber) -> Callable[[Floats], Floats]:
        return lambda x: number.value(torch.from_numpy(np.array(x, dtype=np.float64))).detach().numpy()

    return [
        Coordinate(one.label, *bounds, prior, values(one))
        for one, bounds, prior in zip(numbers, time.bounds(), every, strict=True)
    ]


def time_kernel_of(problem: FieldProblem) -> TimeKernel:
    """The caller's kernel on time, or the default one."""
    return TimeKernel(_default_time_kernel(problem.grid) if problem.time_kernel is None else problem.time_kernel)


def _default_time_kernel(grid: FieldGrid) -> MaternKernel:
    kernel = MaternKernel(nu=_DEFAULT_ORDER + 0.5).double()
    kernel.lengthscale = START_GAPS[1] * median_gap(grid.times)
    return kernel


def order_of(time_kernel: Any) -> int | None:
    """`markov_order` of a caller's kernel on time, or of the default one."""
    return _DEFAULT_ORDER if time_kernel is None else markov_order(time_kernel)


def median_gap(times: Floats) -> float:
    """Median difference of successive times, 1 where there is only one time."""
    return float(np.median(np.diff(times))) if len(times) > 1 else 1.0
