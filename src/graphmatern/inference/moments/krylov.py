"""Many observations: conjugate gradients and Lanczos quadrature in data space, with covariances as products only.

With D² = diag(η) at the distinct observed nodes, everything follows from B = I + D K D, whose eigenvalues are at
least 1: means from solutions with B, log det B and the traces of its derivatives from probes z of ±1, which stay the
same at all parameters, so that the objective is smooth. The iterations that solve B u = z also give the Lanczos matrix
T of B from z, and zᵀ log(B) z ≈ n e₁ᵀ log(T) e₁ (Golub and Meurant 2010). Each probe gives an estimate of its own, so
standard errors are known.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from graphmatern.errors import NumericalError, ResourceError
from graphmatern.inference.moments.operator import coefficients_from_values
from graphmatern.inference.moments.predictive import KrylovPredictive
from graphmatern.inference.observations import sum_by_node
from graphmatern.inference.process import Conditioned, DataForms, Process, Solution

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from graphmatern.inference.moments.operator import LaplacianOperator
    from graphmatern.inference.moments.prior import PriorField
    from graphmatern.inference.moments.values import KernelValues
    from graphmatern.inference.observations import Group
    from graphmatern.sparse import Rows

    Floats = NDArray[np.float64]
    Longs = NDArray[np.int64]

__all__ = ["Accuracy", "KrylovConditioned", "KrylovProcess", "ProductProcess", "conjugate_gradients"]

_MOST_ITERATIONS = 1_000
_SEED = 20210414


@dataclass(frozen=True)
class Accuracy:
    """How exact what is computed with many observations is.

    Attributes
    ----------
    n_probes : int
        Probes for determinants and traces; where there are no more nodes than that, these are exact.
    kernel : float
        Error of K, relative in spectral norm.
    data, probes, information, predictions : float
        Residuals, relative. Those of the data enter derivatives as they are; those of probes are far below what single
        probes differ by, so that fits agree to six digits on any number of processes; and of the Fisher information no
        more than an idea is needed.
    n_informed : int
        Probes for the Fisher information.
    """

    n_probes: int = 16
    kernel: float = 1e-7
    data: float = 1e-6
    probes: float = 1e-5
    information: float = 1e-2
    predictions: float = 1e-9
    n_informed: int = 4

    def while_searching(self) -> Accuracy:
        """What is enough to tell about where an optimum is."""
        return replace(self, data=1e-4, probes=1e-3)


class Iterations(NamedTuple):
    """Solutions of B u = b for several columns, and the Lanczos coefficients met on the way.

    Attributes
    ----------
    solution : ndarray, shape (n, k)
        u.
    steps, ratios : ndarray, shape (n_iterations, k)
        α and β of conjugate gradients; NaN once a column has converged.
    """

    solution: Floats
    steps: Floats
    ratios: Floats


def conjugate_gradients(
    times: Callable[[Floats], Floats], columns: Floats, tolerance: float | Floats, rows: Rows
) -> Iterations:
    """Solve B u = b for every column of b at once, each with coefficients of its own.

    Parameters
    ----------
    times : callable
        Product of B, symmetric and positive definite, with columns.
    columns : ndarray, shape (n, k)
        b.
    tolerance : float or ndarray, shape (k,)
        Residual at which a column has converged, relative to b.
    rows : Rows
        Who holds which rows of the columns.

    Raises
    ------
    NumericalError
        Where a column does not converge.
    """
    solution = np.zeros_like(columns)
    size = rows.dots(columns, columns)
    enough = np.asarray(tolerance) ** 2 * size
    live = np.flatnonzero(size > enough)
    # Only columns that have not converged are worked on; they are copied when their number falls.
    size, enough, residual = size[live], enough[live], columns[:, live].copy()
    found, direction = np.zeros_like(residual), residual.copy()
    steps: list[Floats] = []
    ratios: list[Floats] = []
    while len(live):
        if len(steps) == _MOST_ITERATIONS:
            raise NumericalError(
                f"conjugate gradients did not converge in {_MOST_ITERATIONS:,} iterations. Likely causes: (a) very "
                'little noise: bound it, as with bounds={"noise": (1e-4, 10.0)}; (b) a lengthscale that spans the '
                "graph. engine='spectral' with a few hundred eigenpairs suits both."
            )
        image = times(direction)
        step = size / rows.dots(direction, image)
        found += step * direction
        image *= step
        residual -= image
        left = rows.dots(residual, residual)
        ratio = left / size
        for kept, new in ((steps, step), (ratios, ratio)):
            kept.append(np.full(columns.shape[1], np.nan))
            kept[-1][live] = new
        size = left
        direction *= ratio
        direction += residual
        going = size > enough
        if not going.all():
            solution[:, live[~going]] = found[:, ~going]
            live, size, enough = live[going], size[going], enough[going]
            found, residual, direction = found[:, going], residual[:, going], direction[:, going]
    shape = (len(steps), columns.shape[1])
    return Iterations(solution, np.reshape(steps, shape), np.reshape(ratios, shape))


def log_forms(iterations: Iterations, n: int) -> Floats:
    """Estimates of zᵀ log(B) z for probes z of squared length n; shape (k,)."""
    found = np.empty(iterations.steps.shape[1])
    for column, (steps, ratios) in enumerate(zip(iterations.steps.T, iterations.ratios.T, strict=True)):
        steps, ratios = steps[~np.isnan(steps)], ratios[~np.isnan(steps)]
        inner = ratios[:-1] / steps[:-1]
        diagonal = 1.0 / steps
        diagonal[1:] += inner
        matrix = np.diag(diagonal) + np.diag(np.sqrt(ratios[:-1]) / steps[:-1], 1)
        values, vectors = np.linalg.eigh(matrix, UPLO="U")
        found[column] = n * float(vectors[0] ** 2 @ np.log(np.maximum(values, 1e-300)))
    return found


class ProductProcess(Process):
    """A process whose covariance at the observations is known by its products: all that `KrylovConditioned` asks for.

    Attributes
    ----------
    rows : Rows
        Who holds which nodes.
    accuracy : Accuracy
        How exact it is to be.
    """

    accuracy: Accuracy

    @property
    @abstractmethod
    def rows(self) -> Rows:
        """Who holds which nodes."""

    @property
    @abstractmethod
    def n_free(self) -> int:
        """Free parameters of the kernel."""

    def roughly(self, share: float) -> ProductProcess:
        """The same, off by no more than a share of the average prior variance, where that is faster; no derivatives."""
        del share
        return self

    @abstractmethod
    def times(self, nodes: Longs, columns: Floats) -> Floats:
        """K between some nodes, each once, times columns; shape (n, k)."""

    @abstractmethod
    def changes(self, nodes: Longs, columns: Floats) -> Floats:
        """Derivatives of K in the free parameters, times columns; shape (n_free, n, k)."""

    @abstractmethod
    def slopes(self, nodes: Longs, left: Floats, right: Floats) -> Floats:
        """Forms uᵀ ∂K v of pairs of columns for all free parameters, over all nodes; shape (n_free, k)."""


class KrylovProcess(ProductProcess):
    """A process at given values of the kernel's function, for more observations than fit a dense matrix.

    Parameters
    ----------
    operator : LaplacianOperator
        Polynomials of the Laplacian.
    groups : sequence of Group
        The observations.
    values : KernelValues
        The kernel's function at the Chebyshev points.
    accuracy : Accuracy
        How exact it is to be.
    prior : callable
        Makes the process on all nodes, for predictions.
    """

    def __init__(
        self,
        operator: LaplacianOperator,
        groups: Sequence[Group],
        values: KernelValues,
        accuracy: Accuracy,
        prior: Callable[[], PriorField],
    ) -> None:
        self.operator, self.groups, self.accuracy = operator, groups, accuracy
        self._values, self._make_prior = values, prior
        self.degree = values.degree
        self.coefficients: Floats = coefficients_from_values(self.degree) @ values.numbers

    @property
    def rows(self) -> Rows:
        """Who holds which nodes."""
        return self.operator.rows

    def condition(self, group: int, precision: Floats) -> KrylovConditioned:
        """Put sites on a group; see `Process.condition`."""
        return KrylovConditioned(self, self.groups[group], precision)

    def roughly(self, share: float) -> KrylovProcess:
        """Fewer coefficients, in single precision."""
        twin = copy.copy(self)
        twin.operator, twin.coefficients = self.operator.single, self.operator.leading(self.coefficients, share)
        return twin

    @cached_property
    def _prior(self) -> PriorField:
        return self._make_prior()

    def predictive(self, group: int, precision: Floats) -> KrylovPredictive:
        """Return the process at any node; see `Process.predictive`."""
        return KrylovPredictive(self._prior, self.condition(group, precision))

    @cached_property
    def _derivatives(self) -> Floats:
        """Derivatives of the coefficients in the kernel's free parameters; shape (degree + 1, n_free)."""
        return np.asarray(coefficients_from_values(self.degree) @ self._values.derivatives)

    # ------------------------------------------------------------------ K between some nodes, each once
    @property
    def n_free(self) -> int:
        """Free parameters of the kernel."""
        return int(self._derivatives.shape[1])

    def times(self, nodes: Longs, columns: Floats) -> Floats:
        """K times columns; shape (n, k)."""
        return np.asarray(self.operator.between(nodes, self.coefficients[:, None], columns)[0])

    def changes(self, nodes: Longs, columns: Floats) -> Floats:
        """Derivatives of K in the free parameters, times columns; shape (n_free, n, k)."""
        return self.operator.between(nodes, self._derivatives, columns)

    def slopes(self, nodes: Longs, left: Floats, right: Floats) -> Floats:
        """Forms uᵀ ∂K v of pairs of columns for all free parameters, over all nodes; shape (n_free, k)."""
        return np.asarray(self._derivatives.T @ self.operator.forms(nodes, left, right, self.degree))


class KrylovConditioned(Conditioned):
    """Through products with K at the observations; all sites must be positive or zero."""

    def __init__(self, process: ProductProcess, group: Group, precision: Floats) -> None:
        super().__init__(group, precision)
        if (precision < 0.0).any():
            raise ResourceError(
                "sites that are negative need dense matrices, for which there are too many observations. Use "
                "engine='spectral' with a few hundred eigenpairs."
            )
        self._process, self.accuracy, self._rows = process, process.accuracy, process.rows
        self.nodes, self._place = np.unique(group.nodes, return_inverse=True)
        self._root = np.sqrt(self._sum(precision[:, None]))
        self._n_nodes = self._rows.total(len(self.nodes))
        self._complete = self._rows.total(int((self._root > 0.0).sum())) == self._n_nodes

    def roughly(self, share: float) -> KrylovConditioned:
        """The same under a process that is rough; see `ProductProcess.roughly`."""
        return KrylovConditioned(self._process.roughly(share), self.group, self.precision)

    @property
    def count(self) -> int:
        """Observations, whoever holds them."""
        return self._rows.total(len(self.precision))

    def log_precision(self) -> float:
        """Sum of log η over the observations, whoever holds them."""
        return self._rows.total(super().log_precision())

    def _sum(self, columns: Floats) -> Floats:
        """Sums over the observations of each node; shape (n_distinct, k)."""
        return sum_by_node(self._place, columns, len(self.nodes))

    def _times(self, columns: Floats) -> Floats:
        """B times columns."""
        return np.asarray(columns + self._root * self._process.times(self.nodes, self._root * columns))

    def solve_whitened(self, columns: Floats, tolerance: float | Floats) -> Floats:
        """Solve B u = b for columns b; shape (n_distinct, k)."""
        return conjugate_gradients(self._times, columns, tolerance, self._rows).solution

    @property
    def node_precision(self) -> Floats:
        """Sums of the precisions at each node; shape (n_distinct,)."""
        return np.asarray(self._root[:, 0] ** 2)

    @property
    def observed(self) -> Floats:
        """1 where a node has a site, else 0; shape (n_distinct, 1)."""
        return np.asarray(self._root > 0.0, dtype=np.float64)

    def whiten(self, potentials: Floats) -> Floats:
        """D⁻¹ times the sums of potentials at each node; shape (n_distinct, k)."""
        return self.over_root(self._sum(potentials))

    def over_root(self, columns: Floats) -> Floats:
        """D⁻¹ times columns, 0 where a node has no site; shape (n_distinct, k)."""
        return np.divide(columns, self._root, out=np.zeros(columns.shape), where=self._root > 0.0)

    def unwhiten(self, solved: Floats) -> Floats:
        """What K maps to the means of all nodes, D u; shape (n_distinct, k)."""
        return self._root * solved

    def _solution(self, potentials: Floats, whitened: Floats, solved: Floats) -> Solution:
        """Means from u, as D m = D K D u = b − u; where there is no site, by a product."""
        if self._complete:
            mean = (whitened - solved) / self._root
        else:
            mean = self._process.times(self.nodes, self._root * solved)
        mean = mean[self._place]
        return Solution(potentials - self.precision[:, None] * mean, mean)

    def solve(self, potentials: Floats) -> Solution:
        """Means under the sites, for potentials of shape (n, k)."""
        whitened = self.whiten(potentials)
        return self._solution(potentials, whitened, self.solve_whitened(whitened, self.accuracy.predictions))

    # ------------------------------------------------------------------ learning
    @property
    def exact(self) -> bool:
        """Whether there are so few nodes that determinants and traces need not be estimated."""
        return self._n_nodes <= self.accuracy.n_probes

    @cached_property
    def _probes(self) -> Floats:
        rows = self._rows
        if self.exact:
            return np.asarray(np.sqrt(self._n_nodes) * rows.units(rows.every(self.nodes))[self.nodes])
        return rows.signs(self.accuracy.n_probes, _SEED, at=self.nodes)  # more probes leave the first as they are

    @cached_property
    def _solved(self) -> tuple[Iterations, int, Floats, Floats]:
        """Solutions for the group's data and for the probes, which share the products."""
        potentials = self.precision[:, None] * self.group.data
        whitened = self.whiten(potentials)
        both = np.hstack([whitened, self._probes])
        tolerances = self.accuracy.data, self.accuracy.data if self.exact else self.accuracy.probes
        tolerance = np.repeat(tolerances, [whitened.shape[1], self._probes.shape[1]])
        return conjugate_gradients(self._times, both, tolerance, self._rows), whitened.shape[1], potentials, whitened

    @property
    def _solved_probes(self) -> Floats:
        return self._solved[0].solution[:, self._solved[1] :]

    @cached_property
    def log_determinants(self) -> Floats:
        """Estimates of the log-determinant, one from each probe; shape (n_probes,)."""
        iterations, count, _, _ = self._solved
        of_probes = Iterations(iterations.solution, iterations.steps[:, count:], iterations.ratios[:, count:])
        return log_forms(of_probes, self._n_nodes)

    @staticmethod
    def _mean(estimates: Floats) -> Floats:
        """Mean of what single probes say, which stand last; 0 where nothing was observed."""
        return np.asarray(estimates.sum(axis=-1) / max(estimates.shape[-1], 1))

    @property
    def log_determinant(self) -> float:
        """Log det (I + K_xx diag(η)), estimated."""
        return float(self._mean(self.log_determinants))

    def solve_data(self) -> DataForms:
        """Solve for the group's data and for the probes together."""
        iterations, count, potentials, whitened = self._solved
        solution = self._solution(potentials, whitened, iterations.solution[:, :count])
        alpha = solution.alpha
        both = np.stack([alpha.T @ (alpha / self.precision[:, None]), solution.mean.T @ alpha])
        misfit, fitted = self._rows.total(both)
        return DataForms(misfit + fitted, misfit, solution)

    @cached_property
    def _unused(self) -> Floats:
        """Estimates of tr B⁻¹ = n − used, one from each probe; shape (n_probes,)."""
        return self._rows.dots(self._probes, self._solved_probes)

    def used(self) -> float:
        """Σ η var f(x), estimated."""
        return self._n_nodes - float(self._mean(self._unused))

    def variance(self) -> Floats:
        """Not known without a dense matrix."""
        raise ResourceError(
            f"likelihoods other than Gaussian noise need the variances at all observations, which are too many "
            f"({self._n_nodes:,} nodes) without a dense matrix. Use engine='spectral' with a few hundred eigenpairs, "
            "or fewer observations."
        )

    def gradient(self, solution: Solution, weights: Floats, count: float = 1.0) -> Floats:
        """See `Conditioned.gradient`; traces are estimated by tr C⁻¹∂K ≈ zᵀB⁻¹ D ∂K D z."""
        sizes, vectors = np.linalg.eigh(weights)
        data = self._sum(solution.alpha) @ vectors
        left = np.hstack([self._root * self._solved_probes, data])
        right = np.hstack([self._root * self._probes, data])
        slopes = self._process.slopes(self.nodes, left, right)
        n_probes = self._probes.shape[1]
        self._traces = 0.5 * slopes[:, :n_probes]
        return np.asarray(count * self._mean(self._traces) - 0.5 * slopes[:, n_probes:] @ sizes)

    # ------------------------------------------------------------------ how good it is
    def information(self) -> Floats:
        """Fisher information of one replicate in the engine's coordinates and in −log η, from a few probes."""
        root = self._root
        some = slice(None if self.exact else self.accuracy.n_informed)
        probes, solved = self._probes[:, some], self._solved_probes[:, some]

        def changed(columns: Floats) -> Floats:
            """∂B times columns for every parameter of the kernel and for the noise; shape (p + 1, n, k)."""
            images = self._process.changes(self.nodes, root * columns)
            return np.concatenate([root * images, columns[None]])

        # ½ tr(B⁻¹ ∂ᵢB B⁻¹ ∂ⱼB) with ∂B = D ∂K D for the kernel; the noise is the identity, scaled by D⁻¹ on both sides.
        left, right = changed(solved), changed(probes)
        n, k = probes.shape
        flat = right.transpose(1, 0, 2).reshape(n, -1)
        images = self.solve_whitened(flat, self.accuracy.information).reshape(n, len(right), k)
        found = 0.5 * self._rows.total(np.einsum("ink,njk->ij", left, images)) / max(k, 1)
        found[-1, -1] += 0.5 * (self.count - self._n_nodes)  # repeats at a node tell of the noise alone
        return np.asarray(0.5 * (found + found.T))

    def deviations(self) -> tuple[Floats, Floats]:
        """What single probes say of one replicate, less their mean, after `gradient`; zero where nothing is estimated.

        Returns
        -------
        evidence : ndarray, shape (n_probes,)
            Of ½ log det.
        gradient : ndarray, shape (n_probes, n_free + 1)
            Of its derivatives in the kernel's free parameters and in −log η.
        """
        count = self.accuracy.n_probes
        if self.exact:
            return np.zeros(count), np.zeros((count, self._process.n_free + 1))
        found = np.column_stack([0.5 * self.log_determinants, self._traces.T, 0.5 * self._unused])
        found -= found.mean(axis=0)
        return found[:, 0], found[:, 1:]
