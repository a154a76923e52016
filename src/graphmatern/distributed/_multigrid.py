"""Matérn processes of integer smoothness through solutions by algebraic multigrid, for road-like graphs.

K = a M^(−ν) with M = 2ν/κ² I + Δ: every product with K is ν solutions with M, by conjugate gradients that PETSc
preconditions with multigrid, in a number of iterations that hardly depends on κ or on the size of the graph, where
polynomials would need a degree in proportion to κ. All else is as with polynomials: conjugate gradients and Lanczos
quadrature in data space, from the same probes.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from graphmatern.distributed._operator import spread_operator
from graphmatern.distributed._processes import load_petsc
from graphmatern.distributed._rows import petsc_matrix
from graphmatern.errors import NumericalError
from graphmatern.inference import Engine
from graphmatern.inference.learning.parameters import free_parameters, move_parameters
from graphmatern.inference.moments.diagonal import Diagonal, estimate_diagonal
from graphmatern.inference.moments.engine import probe_errors
from graphmatern.inference.moments.krylov import Accuracy, KrylovConditioned, ProductProcess
from graphmatern.inference.moments.predictive import KrylovPredictive
from graphmatern.inference.moments.prior import PriorField
from graphmatern.inference.spectral.engine import starting_kernel, typical_starts

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Self

    from numpy.typing import NDArray

    from graphmatern.distributed._graph import DistributedGraph
    from graphmatern.distributed._operator import SpreadOperator
    from graphmatern.inference import Conditioned, Problem
    from graphmatern.inference.observations import Group
    from graphmatern.kernels import Kernel
    from graphmatern.sparse import Rows

    Floats = NDArray[np.float64]
    Longs = NDArray[np.int64]

__all__ = ["MultigridEngine", "ShiftedSolver", "preconditioners"]

_PROBES, _SEED = 32, 20210413  # for the average of the prior variances
_RESIDUAL = 1e-10  # of solutions, relative
_MOST_ITERATIONS = 500


def preconditioners() -> list[str]:
    """Algebraic multigrid methods that PETSc was built with, the best first: hypre's if it is there, and its own.

    At 200,000 road-like nodes hypre takes 5 to 9 iterations for lengthscales of 2 to 50, GAMG 10 to 100.
    """
    return [*(["hypre"] if load_petsc().Sys.hasExternalPackage("hypre") else []), "gamg"]


class ShiftedSolver:
    """Solutions with M = c I + Δ for one c after the other.

    Parameters
    ----------
    graph : DistributedGraph
        The graph.
    normalized : bool
        Which Laplacian.
    preconditioner : str, optional
        One of `preconditioners`; the first by default.
    """

    def __init__(self, graph: DistributedGraph, normalized: bool, preconditioner: str | None = None) -> None:
        PETSc = load_petsc()
        self.rows = graph.rows
        self._matrix = petsc_matrix(graph.processes, graph.laplacian(normalized))
        self._shift = 0.0
        self._solver = PETSc.KSP().create(comm=PETSc.COMM_WORLD)
        self._solver.setType(PETSc.KSP.Type.CG)
        self._solver.setTolerances(rtol=_RESIDUAL, atol=0.0, divtol=1e10, max_it=_MOST_ITERATIONS)
        self._solver.getPC().setType(preconditioner or preconditioners()[0])
        self._right, self._left = self._matrix.createVecs()
        self.iterations = 0

    def shift_to(self, shift: float) -> None:
        """Make ready for M = shift · I + Δ."""
        if shift != self._shift:
            self._matrix.shift(shift - self._shift)
            self._shift = shift
            self._solver.setOperators(self._matrix)

    def solve(self, columns: Floats) -> Floats:
        """M⁻¹ times columns; shape (n_here, k)."""
        found = np.empty_like(columns)
        for k in range(columns.shape[1]):
            self._right.setArray(columns[:, k])
            self._solver.solve(self._right, self._left)
            self.iterations += int(self._solver.getIterationNumber())
            if self._solver.getConvergedReason() <= 0:
                raise NumericalError(
                    f"multigrid did not converge in {_MOST_ITERATIONS} iterations. Likely causes: (a) a lengthscale "
                    "that spans the graph many times over: bound it; (b) weights over many orders of magnitude."
                )
            found[:, k] = self._left.getArray()
        return found

    def power(self, columns: Floats, times: int) -> Floats:
        """M^(−times) columns; shape (n_here, k)."""
        for _ in range(times):
            columns = self.solve(columns)
        return columns


class _Field:
    """K = a M^(−ν) at given parameters, with derivatives in log κ and log σ².

    Parameters
    ----------
    solver : ShiftedSolver
        Solutions with M.
    values : dict
        The kernel's parameters.
    """

    def __init__(self, solver: ShiftedSolver, values: dict[str, float]) -> None:
        self.solver, self.rows = solver, solver.rows
        self.nu = round(values["nu"])
        self.shift = 2.0 * self.nu / values["lengthscale"] ** 2
        self._variance = values["variance"]
        solver.shift_to(self.shift)

    @cached_property
    def _traces(self) -> tuple[Floats, Floats]:
        """Estimates of tr M^(−ν) and of tr M^(−ν−1), one from each probe."""
        powers = [self.rows.signs(_PROBES, _SEED)]
        for _ in range((self.nu + 2) // 2):  # forms of M^(−i−j) are inner products of M^(−i) z and M^(−j) z
            powers.append(self.solver.solve(powers[-1]))
        lower, upper = ((n // 2, n - n // 2) for n in (self.nu, self.nu + 1))
        return self.rows.dots(powers[lower[0]], powers[lower[1]]), self.rows.dots(powers[upper[0]], powers[upper[1]])

    @property
    def amplitude(self) -> float:
        """A = σ² N / tr M^(−ν)."""
        return float(self._variance * self.rows.n / self._traces[0].mean())

    @property
    def variance_error(self) -> float:
        """Relative standard error of the average prior variance."""
        own = self._traces[0]
        return float(own.std(ddof=1) / np.sqrt(len(own)) / own.mean())

    def slope_of_amplitude(self) -> float:
        """Derivative of log a in log κ."""
        lower, upper = (one.mean() for one in self._traces)
        return float(-2.0 * self.shift * self.nu * upper / lower)

    def apply(self, columns: Floats) -> Floats:
        """K times columns; shape (n_here, k)."""
        self.solver.shift_to(self.shift)
        return self.amplitude * self.solver.power(columns, self.nu)

    def both(self, columns: Floats) -> tuple[Floats, Floats]:
        """K times columns, and its derivative in log κ."""
        image = self.apply(columns)
        further = 2.0 * self.shift * self.nu * self.solver.solve(image)
        return image, further + self.slope_of_amplitude() * image


class _SolvedPrior(PriorField):
    """The process on all nodes, before any data."""

    def __init__(self, operator: SpreadOperator, field: _Field) -> None:
        super().__init__(operator, np.zeros(1), np.zeros(1))
        self._field = field

    def apply(self, columns: Floats) -> Floats:
        """K times columns; shape (n_nodes, k)."""
        return self._field.apply(columns)

    def roughly(self, share: float) -> PriorField:
        """The same: solutions are no faster."""
        del share
        return self

    @property
    def smallest(self) -> float:
        """A lower bound on K's eigenvalues."""
        field = self._field
        return float(field.amplitude * (field.shift + self.operator.high) ** -field.nu)

    def kept_columns(self, nodes: Longs) -> None:
        """None: columns are solved for when they are needed."""
        del nodes

    @cached_property
    def estimated_variances(self) -> Diagonal:
        """Prior variances of all nodes from probes."""
        return estimate_diagonal(self.operator, self.apply)


class SolvedProcess(ProductProcess):
    """A process through solutions with M; what `KrylovConditioned` asks of it."""

    def __init__(self, engine: MultigridEngine, field: _Field) -> None:
        self._engine, self._field = engine, field
        self.groups, self.accuracy = engine.groups, engine.accuracy

    @property
    def rows(self) -> Rows:
        """Who holds which nodes."""
        return self._field.rows

    @property
    def n_free(self) -> int:
        """Free parameters of the kernel."""
        return len(self._engine.coordinates)

    def _spread(self, nodes: Longs, columns: Floats) -> Floats:
        full = np.zeros((self.rows.n_here, columns.shape[1]))
        full[nodes] = columns
        return full

    def times(self, nodes: Longs, columns: Floats) -> Floats:
        """K between some nodes, times columns; shape (n, k)."""
        return self._field.apply(self._spread(nodes, columns))[nodes]

    def changes(self, nodes: Longs, columns: Floats) -> Floats:
        """Derivatives of K, times columns; shape (n_free, n, k)."""
        image, slope = self._field.both(self._spread(nodes, columns))
        by_name = {"lengthscale": slope[nodes], "variance": image[nodes]}
        return np.stack([by_name[one.label] for one in self._engine.coordinates]).reshape(self.n_free, *columns.shape)

    def slopes(self, nodes: Longs, left: Floats, right: Floats) -> Floats:
        """Forms uᵀ ∂K v of pairs of columns, over all nodes; shape (n_free, k)."""
        return np.stack([self.rows.dots(left, one) for one in self.changes(nodes, right)]).reshape(self.n_free, -1)

    def condition(self, group: int, precision: Floats) -> KrylovConditioned:
        """Put sites on a group; see `Process.condition`."""
        return KrylovConditioned(self, self.groups[group], precision)

    def predictive(self, group: int, precision: Floats) -> KrylovPredictive:
        """Return the process at any node; see `Process.predictive`."""
        prior = _SolvedPrior(self._engine.operator, self._field)
        return KrylovPredictive(prior, self.condition(group, precision))


class MultigridEngine(Engine):
    """Matérn kernels of integer smoothness on a road-like graph that is spread over processes.

    Parameters
    ----------
    problem : Problem
        What to fit; the kernel's ν is held at an integer.
    groups : list of Group
        The observations of this process's nodes.
    """

    name: ClassVar[str] = "multigrid"
    accuracy: Accuracy = Accuracy()
    has_information = estimates = True
    to_gain = 2e-4

    def __init__(self, problem: Problem, groups: list[Group]) -> None:
        graph: Any = problem.graph
        self.groups, self._problem, self._graph = groups, problem, graph
        self._kernel = starting_kernel(problem)
        self._raw, self.coordinates, self.start = free_parameters(self._kernel, problem.rules)
        self._errors: dict[str, Any] = {}

    @cached_property
    def solver(self) -> ShiftedSolver:
        """Solutions with M."""
        normalized = bool(self._problem.normalized)
        found: ShiftedSolver = self._graph.cached(
            ("solver", normalized), lambda: ShiftedSolver(self._graph, normalized)
        )
        return found

    @cached_property
    def operator(self) -> SpreadOperator:
        """Products with the Laplacian, for estimates of variances."""
        return spread_operator(self._graph, bool(self._problem.normalized))

    @classmethod
    def candidates(cls, problem: Problem, groups: list[Group]) -> Sequence[Callable[[], Self]]:
        """The engine itself."""
        return [lambda: cls(problem, groups)]

    def kernel(self, position: Floats) -> Kernel:
        """Return the kernel at some coordinates, a copy."""
        move_parameters(self._raw, position)
        return copy.deepcopy(self._kernel)

    def _field(self, position: Floats) -> _Field:
        move_parameters(self._raw, position)
        values: dict[str, float] = self._kernel.values()  # type: ignore[operator]
        return _Field(self.solver, values)

    def at(self, position: Floats) -> SolvedProcess:
        """Return the process at some coordinates."""
        return SolvedProcess(self, self._field(position))

    def other_starts(self) -> list[Floats]:
        """Typical lengthscales."""
        return typical_starts(self.coordinates, self.start)

    def refine(self, conditioned: Callable[[], Sequence[tuple[Conditioned, int]]]) -> bool:
        """More probes where these move the optimum by much of what the data leave open."""
        many = [(one, r) for one, r in conditioned() if isinstance(one, KrylovConditioned)]
        self._errors, self.accuracy, again = probe_errors(self._problem, self.coordinates, self.accuracy, many)
        return again

    def refinement(self) -> dict[str, Any]:
        """What `refine` changed."""
        return {"n_probes": self.accuracy.n_probes, "errors": self._errors}

    def refine_as(self, refinement: dict[str, Any]) -> None:
        """Be as an engine was that returned this from `refinement`."""
        self._errors = refinement["errors"]
        self.accuracy = replace(self.accuracy, n_probes=refinement["n_probes"])

    def report(self, position: Floats) -> dict[str, Any]:
        """Standard errors of what is estimated."""
        return {"variance_error": self._field(position).variance_error, **self._errors}
