"""The moments engine: any kernel on any graph, exact to a truncation error that is known before it is made.

With S a Laplacian scaled to [−1, 1], K_xx = Σ_k c_k T_k(S)[x, x]: the moments T_k(S)[x, x] at the observed nodes depend
on no parameter and are computed once, by sparse products; then every kernel is a sum of n × n matrices. Over all
parameters of a kernel these sums need only a few dozen combinations of moments, which are what is kept.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import scipy
import torch
from numpy.polynomial import chebyshev

from graphmatern._validation import FaultList, warn
from graphmatern.errors import KernelError, NumericalError, NumericalWarning, ResourceError
from graphmatern.inference.learning.optimize import with_curvature
from graphmatern.inference.learning.parameters import free_parameters, move_parameters
from graphmatern.inference.learning.rehearsal import part_of_observations
from graphmatern.inference.moments.degrees import (
    FIRST_DEGREE,
    MOST_DEGREE,
    TOLERANCE,
    ample_degree,
    first_below,
    rough_degree,
    rough_error,
    truncation_errors,
)
from graphmatern.inference.moments.krylov import Accuracy, KrylovConditioned, KrylovProcess
from graphmatern.inference.moments.operator import coefficients_from_values, laplacian_operator
from graphmatern.inference.moments.prior import PriorField
from graphmatern.inference.moments.process import MomentProcess, ObservedNodes
from graphmatern.inference.moments.values import KernelValues
from graphmatern.inference.process import Engine
from graphmatern.inference.spectral.engine import starting_kernel, typical_starts
from graphmatern.sparse import available_memory, format_bytes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from graphmatern.inference.learning.parameters import Coordinate
    from graphmatern.inference.learning.problem import Problem
    from graphmatern.inference.moments.operator import LaplacianOperator
    from graphmatern.inference.observations import Group
    from graphmatern.inference.process import Conditioned
    from graphmatern.kernels import Kernel

    Floats = NDArray[np.float64]

__all__ = ["MomentsEngine", "dense_bytes", "probe_errors"]

_TOLERANCE_OF_PREDICTIONS = 1e-12  # less than of K, as leaving one observation out magnifies errors
# While a search is under way, kernels need not be exact; see `rough_error`.
_WHILE_SEARCHING, _WITH_MANY = 1e-3, 1e-4
_SAVED, _MORE_EVALUATIONS = 30, 5  # degrees that this saves, about, and evaluations that it adds
_PER_FLOP = 1e-10  # seconds
_PART = 200  # of many observed nodes, which are fitted first
_NUMBERS_OF_PROBES = (24, 32, 48, 64, 96, 128)
_MOST_PROBES = _NUMBERS_OF_PROBES[-1]
_ITERATIONS = 25  # of conjugate gradients, about
_ROUGH, _FINE = 0.5, 0.35  # errors of an optimum due to probes, relative to the data's: too large, and aimed at
_SOON = 3.0  # seconds of products for a start that may not be needed
_BUDGET = 600.0  # seconds of products, beyond which degrees are not raised
_FEW_DEGREES = 64  # up to here all combinations are kept
_SAMPLES = 600  # parameters from which the combinations that are kept are found
_KEPT = 1e-13  # relative size of those that are not
_LAST = 4  # coefficients that must have become small
_SETTLED_ROUGHLY = 1e-6  # error of Lanczos' method while degrees are rough
_MOMENTS, _COMBINATIONS = 200, 60  # that are kept, about
_SEED = 7


def dense_bytes(count: int) -> float:
    """About what moments between some observed nodes take, and the combinations of them that are kept."""
    return 8.0 * (_MOMENTS + _COMBINATIONS) * count**2


class MomentsEngine(Engine):
    """Exact inference for any kernel; its coordinates are the kernel's free parameters, unconstrained.

    Parameters
    ----------
    problem : Problem
        What to fit.
    groups : list of Group
        The observations.
    """

    name: ClassVar[str] = "moments"
    #: Observed nodes between which the covariance is kept; with more, it is a matter of products.
    most_dense: ClassVar[int] = 4_000
    #: How exact these are.
    accuracy: Accuracy = Accuracy()

    def __init__(self, problem: Problem, groups: list[Group]) -> None:
        self.groups, self._problem = groups, problem
        if problem.kernel is not None and problem.kernel.intrinsic:
            faults = FaultList("nothing was fitted", KernelError)
            rule = "must be a function of the Laplacian for engine='moments', without a jump at 0"
            remedy = "Use engine='markov' or 'spectral', or gm.Leroux."
            raise faults.raise_now("kernel", rule, repr(problem.kernel), remedy)
        self._kernel = starting_kernel(problem)
        self._kernel.check_laplacian(bool(problem.normalized))
        self._raw, self.coordinates, self.start = free_parameters(self._kernel, problem.rules)
        self._operator = self._make_operator(problem)
        self._observed = ObservedNodes(groups)
        self.has_information = self.estimates = self._many = self._are_many()
        self._tolerance = self.accuracy.kernel if self._many else TOLERANCE
        # Further away, moments of higher degrees are needed, perhaps for nothing.
        self.longest_step = 2.0 if self._many else 0.7
        # An evidence that probes move by nats is not worth more evaluations; what is left is settled by derivatives.
        self.to_gain = 1e-3 if self._many else 1e-7
        self._errors: dict[str, Any] = {}
        self._information: Floats | None = None
        self._check_size()
        self._degree = 0
        self._roughest = FIRST_DEGREE  # the highest degree that a rough search has had
        self._per_degree = self._operator.products.seconds(self._n_columns, 1)
        self._roughly = False
        self._most_degree = int(np.clip(_BUDGET / self._per_degree, FIRST_DEGREE, MOST_DEGREE))
        if problem.search.optimizer is not None:
            self.coordinates = [self._bounded(place, one) for place, one in enumerate(self.coordinates)]

    @staticmethod
    def _make_operator(problem: Problem) -> LaplacianOperator:
        """What multiplies with the Laplacian."""
        return laplacian_operator(
            problem.graph, bool(problem.normalized), problem.n_threads, problem.device, problem.dtype
        )

    def _are_many(self) -> bool:
        """Whether there are too many observed nodes for a dense matrix."""
        return len(self._observed.nodes) > self.most_dense

    @property
    def _n_columns(self) -> int:
        """How many columns go through a polynomial: of every observed node once, or of every iteration."""
        return self.accuracy.n_probes * _ITERATIONS if self._many else len(self._observed.nodes)

    def _bounded(self, place: int, coordinate: Coordinate) -> Coordinate:
        """Bound a lengthscale by what polynomials of the highest degree can express."""
        if not coordinate.label.endswith("lengthscale"):
            return coordinate
        position = self.start.copy()
        for other, one in enumerate(self.coordinates):
            if one.label.rpartition(".")[2] == "nu":
                position[other] = max(position[other], 0.0)  # rougher processes are refused one by one

        def fits(value: float) -> bool:
            position[place] = value
            move_parameters(self._raw, position)
            return self._truncation(self._most_degree) <= self._tolerance

        low, high = coordinate.low, coordinate.high
        if not fits(low):
            raise ResourceError(
                f"polynomials of degree {self._most_degree:,} cannot express this kernel on this graph, whose "
                f"Laplacian has eigenvalues up to {self._operator.high:.3g}. Use normalized=True, engine='markov' on "
                "road-like graphs, or engine='spectral' with a few hundred eigenpairs."
            )
        for _ in range(40):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if fits(middle) else (low, middle)
        move_parameters(self._raw, self.start)
        return replace(coordinate, high=min(coordinate.high, low))

    @classmethod
    def rehearsal(cls, problem: Problem) -> Problem | None:
        """Some of many observations."""
        many = len(np.unique(problem.observations.nodes)) > cls.most_dense
        return part_of_observations(problem, _PART) if many else None

    @classmethod
    def candidates(cls, problem: Problem, groups: list[Group]) -> Sequence[Callable[[], Self]]:
        """The engine itself."""
        return [lambda: cls(problem, groups)]

    def _check_size(self) -> None:
        """Refuse what there is no memory for, and likelihoods that need the variances of too many observations."""
        count = len(self._observed.nodes)
        if self._many and not self._problem.exact:
            raise ResourceError(
                "likelihoods other than Gaussian noise need dense matrices between the observed nodes, here "
                f"{count:,}; engine='moments' makes them for up to {self.most_dense:,}. Use engine='spectral' with "
                "a few hundred eigenpairs, engine='markov' if the graph does not fill in, or fewer observations."
            )
        n, width = (
            self._problem.graph.n_nodes,
            self.accuracy.n_probes + sum(group.data.shape[1] for group in self.groups),
        )
        needed = 8 * (6 * count * width + 8 * n * 32) if self._many else dense_bytes(count)
        if needed > 0.8 * available_memory():
            raise ResourceError(
                f"moments of {count:,} observed nodes need about {format_bytes(needed)} of memory, of "
                f"{format_bytes(available_memory())} available. Use fewer observations, engine='markov' if the "
                "graph does not fill in, or engine='spectral' with a few hundred eigenpairs."
            )

    # ------------------------------------------------------------------ degrees
    def _values(self, degree: int) -> torch.Tensor:
        """W at the Chebyshev points of a degree, where the kernel's parameters are, differentiable in them."""
        points = torch.as_tensor(self._operator.eigenvalues(degree))
        norms = torch.as_tensor(self._operator.squared_norms(degree))
        return self._kernel.spectral_weights(points, norms, self._problem.graph.n_nodes)

    def _tail(self, most: int) -> Floats:
        """Largest error of a polynomial of each degree up to ``most``, relative to the largest value; (most + 1,)."""
        return truncation_errors(self._kernel.spectral_weights, self._operator, most)

    def _truncation(self, degree: int) -> float:
        """Largest error of the interpolating polynomial, relative to the largest value of the kernel's function."""
        return float(self._tail(degree)[-1])

    def needed_degree(self, most: int = MOST_DEGREE, tolerance: float | None = None) -> int | None:
        """Degree at which the kernel, as it is, is accurate enough; None where it would be absurd."""
        return first_below(self._tail(most), self._tolerance if tolerance is None else tolerance)

    def _function(self) -> Callable[[Floats], Floats]:
        """The kernel's function, as it is, of eigenvalues of S, shape (m,) → (1, m); relative to its largest value.

        Through Chebyshev points: what kernels that are summed up are each relative to depends on all eigenvalues.
        """
        degree = ample_degree(self.needed_degree() or MOST_DEGREE)
        with torch.no_grad():
            values = self._values(degree).numpy()
        coefficients = coefficients_from_values(degree) @ (values / np.abs(values).max())
        return lambda eigenvalues: chebyshev.chebval(eigenvalues, coefficients)[None]

    @property
    def _settled(self) -> float:
        """How exact Lanczos' method must be."""
        return _SETTLED_ROUGHLY if self._roughly else self._tolerance

    def _is_accurate(self) -> bool:
        """Whether the degree that there is suffices for the kernel as it is."""
        if self._observed.by_lanczos and not self._observed.serves(self._function(), self._settled):
            return False
        if self._roughly:
            rough = rough_error(self._kernel.spectral_weights, self._operator, self._degree)
            # A search must not end where no degree is enough any more.
            return rough <= _WHILE_SEARCHING and self.needed_degree(self._most_degree) is not None
        return self._truncation(self._degree) <= self._tolerance

    def _extend(self, position: Floats) -> None:
        """Raise the degree until the kernel at a position is accurate; refuse where that takes too long."""
        if not self._many and self._degree and self._is_accurate():
            return
        degree = self.needed_degree(self._most_degree)
        if degree is None:
            raise NumericalError(
                f"the kernel {self._kernel!r} needs polynomials of too high a degree on this graph. Likely causes: "
                "(a) a long lengthscale: bound it; (b) weights or degrees over many orders of magnitude: use "
                "normalized=True; (c) a road-like graph: use engine='markov'."
            )
        if self._many:
            if self._roughly:
                # Lowered only to where it is exact: an objective that jumps with the degree leads a search astray.
                self._roughest = self._rough(degree, self._roughest)
                degree = min(degree, self._roughest)
            self._degree = degree
            return
        degree = self._rough(degree) if self._roughly else ample_degree(degree, self._most_degree)
        self._degree = max(self._degree, degree)
        self._observed.make(self._operator, self._degree, self._combinations(position), self._function(), self._settled)

    def _rough(self, most: int, least: int = FIRST_DEGREE) -> int:
        """Degree that is enough while a search is under way."""
        tolerance = _WHILE_SEARCHING if not self._many else _WITH_MANY
        return max(least, rough_degree(self._kernel.spectral_weights, self._operator, most, tolerance))

    def begin_roughly(self) -> None:
        """Let kernels be rough until `refine`, where products take longer than the evaluations that this adds."""
        if self._many:
            count = self._operator.rows.total(len(self._observed.nodes))
            self.rough = self._roughly = count > self.accuracy.n_probes
            return
        evaluation = 3.0 * _PER_FLOP * self._problem.updates * float(self.matrix_size) ** 3
        self._roughly = _SAVED * self._per_degree > _MORE_EVALUATIONS * evaluation

    def release(self) -> None:
        """Give back what moments of higher degrees would go on from."""
        self._observed.release()

    def _combinations(self, position: Floats) -> Floats:
        """Orthonormal directions in which the values at the Chebyshev points vary; shape (degree + 1, n_kept)."""
        if self._degree <= _FEW_DEGREES:
            return np.eye(self._degree + 1)
        low = np.maximum([one.low for one in self.coordinates], -8.0)
        high = np.minimum([one.high for one in self.coordinates], 8.0)
        rng = np.random.default_rng(_SEED)
        columns = []
        for sample in [position, *(low + (high - low) * rng.random((_SAMPLES, len(low))))]:
            move_parameters(self._raw, sample)
            with torch.no_grad():
                values = self._values(self._degree).numpy()
            if np.isfinite(values).all():
                columns.append(values / np.abs(values).max())
        move_parameters(self._raw, position)
        found = np.stack(columns, axis=1)
        # Only kernels that polynomials of this degree express; the kernel as it is comes first, and is one of them.
        last = np.abs(scipy.fft.dct(found, axis=0)[-_LAST:]).max(axis=0) / self._degree
        found = found[:, (last < (1e-2 if self._roughly else 1e-6)) | (np.arange(len(last)) == 0)]
        left, sizes, _ = np.linalg.svd(found, full_matrices=False)
        return np.asarray(left[:, sizes > _KEPT * sizes[0]])

    # ------------------------------------------------------------------ the process
    def at(self, position: Floats) -> MomentProcess | KrylovProcess:
        """Return the process at some coordinates."""
        move_parameters(self._raw, position)
        self._extend(position)
        values, here = KernelValues(self._values(self._degree), self._raw), position.copy()

        def prior() -> PriorField:
            return self._prior(here)

        if self._many:
            how = self._operator, self.accuracy
            operator, accuracy = (how[0].single, how[1].while_searching()) if self._roughly else how
            return KrylovProcess(operator, self.groups, values, accuracy, prior)
        return MomentProcess(self._observed, self.groups, values, prior)

    def _prior(self, position: Floats) -> PriorField:
        """The process on all nodes, by polynomials of no higher degree than it needs."""
        move_parameters(self._raw, position)
        tolerance = self._tolerance if self._many else _TOLERANCE_OF_PREDICTIONS
        degree = self.needed_degree(tolerance=tolerance) or self._degree
        with torch.no_grad():
            values = self._values(degree).numpy()
        both = np.stack([values, np.sqrt(np.maximum(values, 0.0))], axis=1)
        return PriorField(self._operator, *(coefficients_from_values(degree) @ both).T)

    def kernel(self, position: Floats) -> Kernel:
        """Return the kernel at some coordinates, a copy."""
        move_parameters(self._raw, position)
        return copy.deepcopy(self._kernel)

    def other_starts(self) -> list[Floats]:
        """Typical lengthscales, but for those whose polynomials alone would take long."""
        starts: list[Floats] = []
        for start in typical_starts(self.coordinates, self.start):
            move_parameters(self._raw, start)
            degree = self.needed_degree(self._most_degree)
            degree = self._rough(degree) if degree and self._roughly else degree
            if degree and (not starts or self._per_degree * degree < _SOON):
                starts.append(start)
        return starts

    def average_variance(self, position: Floats) -> float:
        """Average prior variance over the nodes."""
        move_parameters(self._raw, position)
        with torch.no_grad():
            values = self._values(self._degree or FIRST_DEGREE).numpy()
        traces, _ = self._operator.traces(self._degree or FIRST_DEGREE)
        return float(traces @ (coefficients_from_values(len(values) - 1) @ values)) / self._problem.graph.n_nodes

    def report(self, position: Floats) -> dict[str, Any]:
        """Degree, truncation error, and the relative standard error of the variance, an average over nodes."""
        move_parameters(self._raw, position)
        with torch.no_grad():
            values = self._values(self._degree).numpy()
        error = self._truncation(self._degree)
        traces, deviations = self._operator.traces(self._degree)
        coefficients = coefficients_from_values(self._degree) @ values
        single = coefficients @ deviations / float(coefficients @ traces)
        count = single.shape[0]
        spread = float(single.std(ddof=1) / np.sqrt(count)) if count > 1 else 0.0
        self._warn_of_noise(error * float(np.abs(values).max()))
        return {"degree": self._degree, "truncation_error": error, "variance_error": spread, **self._errors}

    def refine(self, conditioned: Callable[[], Sequence[tuple[Conditioned, int]]]) -> bool:
        """Exact kernels from here on; more probes where these move the optimum by much of what the data leave open."""
        again = False
        if self._many:
            many = [(one, r) for one, r in conditioned() if isinstance(one, KrylovConditioned)]
            if self._roughly:  # and later on: no more than an idea is needed
                self._information = information_of(many)
            where = self._problem, self.coordinates, self.accuracy
            self._errors, self.accuracy, again = probe_errors(*where, many, self._information)
        if self._roughly and not again:
            self.rough = self._roughly = False
            return True
        return again

    def refinement(self) -> dict[str, Any]:
        """What `refine` changed."""
        return {"roughly": self._roughly, "n_probes": self.accuracy.n_probes, "errors": self._errors}

    def refine_as(self, refinement: dict[str, Any]) -> None:
        """Be as an engine was that returned this from `refinement`."""
        self._roughly, self._errors = refinement["roughly"], refinement["errors"]
        self.rough = self._many and self._roughly
        self.accuracy = replace(self.accuracy, n_probes=refinement["n_probes"])

    def _warn_of_noise(self, absolute: float) -> None:
        noise = getattr(self._problem.likelihood, "noise", None)
        if noise is not None and absolute > 1e-2 * float(noise.item()):
            warn(
                f"polynomials of degree {self._degree} leave an error of up to {absolute:.1e} in the covariance, which "
                "is not small compared with the noise",
                NumericalWarning,
            )


def information_of(many: Sequence[tuple[KrylovConditioned, int]]) -> Floats:
    """Fisher information of several groups, each with its replicates, together."""
    return np.asarray(sum(r * one.information() for one, r in many))


def probe_errors(
    problem: Problem,
    coordinates: Sequence[Coordinate],
    accuracy: Accuracy,
    many: Sequence[tuple[KrylovConditioned, int]],
    information: Floats | None = None,
) -> tuple[dict[str, Any], Accuracy, bool]:
    """Errors of an optimum that are due to probes, and whether there should be more of these.

    Parameters
    ----------
    problem : Problem
        What was fitted.
    coordinates : sequence of Coordinate
        Of the kernel.
    accuracy : Accuracy
        With how many probes.
    many : sequence of (KrylovConditioned, int)
        Groups at the optimum, after their gradients, and the replicates of each.
    information : ndarray, shape (n_coordinates + 1, n_coordinates + 1), optional
        Fisher information of all groups together, the noise last, where it is known.

    Returns
    -------
    errors : dict
        For a report.
    accuracy : Accuracy
        With as many probes as there should be.
    again : bool
        Whether these are more.
    """
    learned = [] if "noise" in problem.likelihood.fixed else ["noise"]
    labels = [*(one.label for one in coordinates), *learned]
    count, size = accuracy.n_probes, len(labels)
    # Groups share their probes, so that errors add up before they are squared.
    pairs = [(r, *one.deviations()) for one, r in many]
    of_evidence = np.asarray(sum(r * own for r, own, _ in pairs))
    of_gradient = np.asarray(sum(r * own for r, _, own in pairs))[:, :size]
    errors: dict[str, Any] = {"probes": count, "evidence_error": float(of_evidence.std(ddof=1) / np.sqrt(count))}
    if problem.search.optimizer is None or not labels:
        return errors, accuracy, False
    information = information_of(many) if information is None else information
    covariance = np.linalg.inv(with_curvature(information[:size, :size]))
    moved = covariance @ (of_gradient.T @ of_gradient / (count * (count - 1))) @ covariance
    own_errors, known = np.sqrt(np.diag(moved)), np.sqrt(np.diag(covariance))
    errors["parameter_errors"] = dict(zip(labels, map(float, own_errors), strict=True))
    share = float((own_errors / known).max())
    if share <= _ROUGH or count >= _MOST_PROBES:
        return errors, accuracy, False
    # Few numbers to choose from: rounding, which differs between processes, must not decide on one probe more.
    more = next(number for number in _NUMBERS_OF_PROBES if number >= min(count * (share / _FINE) ** 2, _MOST_PROBES))
    return errors, replace(accuracy, n_probes=more), True
