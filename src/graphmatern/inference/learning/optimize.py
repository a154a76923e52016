"""Moving parameters to the maximum of the marginal likelihood."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy
from tqdm import tqdm

from graphmatern.errors import NumericalError

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Objective = Callable[[Floats], tuple[float, Floats]]
    Hessian = Floats | Callable[[], Floats]

__all__ = ["Optimum", "curvature", "find_minimum", "settle", "with_curvature"]

_FAR = 0.1  # nats to gain: closer than this, past steps describe the curvature better than the Fisher information
_ANEW = 0.3  # step, in any coordinate, after which the Fisher information may have changed
_LEAST_EXPECTED = 1e-4  # curvature in any direction, in nats per squared logarithm
_BFGS_STEPS = 60  # at most, before L-BFGS takes over
_NEAR = 0.1  # standard errors from the optimum
# Steps of coordinates that do not matter any more, and how many may be taken to get there.
_SETTLED, _SETTLING_STEPS = 1e-6, 6
# Derivatives that no optimum has unless its curvature is large, and that none has: whoever claims one is checked.
_STEEP, _STEEPER = 1.0, 30.0


@dataclass(frozen=True)
class Optimum:
    """Where an optimiser stopped.

    Attributes
    ----------
    position : ndarray, shape (n_parameters,)
        Unconstrained parameters.
    value : float
        Objective.
    gradient : ndarray, shape (n_parameters,)
        Its derivatives.
    n_evaluations : int
        Evaluations of the objective.
    converged : bool
        Whether the optimiser converged.
    message : str
        Why it stopped.
    hessian : ndarray, shape (n_parameters, n_parameters), optional
        What BFGS takes for the curvature there.
    left : ndarray, shape (n_parameters,), optional
        The step that BFGS would have taken next.
    """

    position: Floats
    value: float
    gradient: Floats
    n_evaluations: int
    converged: bool
    message: str
    hessian: Floats | None = None
    left: Floats | None = None

    def ahead(self) -> Optimum:
        """Where the step that is left leads; value and gradient stay those of the last evaluation."""
        return self if self.left is None else replace(self, position=self.position + self.left, left=None)


def find_minimum(
    objective: Objective,
    start: Floats,
    bounds: list[tuple[float, float]],
    *,
    method: str = "lbfgs",
    max_iterations: int = 200,
    learning_rate: float = 0.1,
    hessian: Hessian | None = None,
    tolerance: float = 1e-5,
    first_step: float = 1.0,
    to_gain: float = 2e-4,
    longest_step: float = 2.0,
    variances: NDArray[np.bool_] | None = None,
    progress: bool | None = None,
) -> Optimum:
    """Minimise a function of its value and gradient.

    Parameters
    ----------
    objective : callable
        Returns value and gradient.
    start : ndarray, shape (n_parameters,)
        Where to begin; moved into the bounds.
    bounds : list of (float, float)
        One pair per parameter.
    method : {"lbfgs", "bfgs", "adam"}
        The optimiser; "bfgs" for costly objectives: it needs few evaluations, and stops by what is left to gain.
    max_iterations : int
        Iterations at most.
    learning_rate : float
        Step size of Adam.
    hessian : ndarray, shape (n_parameters, n_parameters), or callable, optional
        A good guess of the curvature, positive definite, for "bfgs". Or a function that returns one of where the
        objective was last evaluated, such as the Fisher information; where that leads nowhere, L-BFGS goes on.
    tolerance : float
        Largest derivative at which L-BFGS may stop.
    first_step : float
        Longest first step in any direction without such a guess: that of the gradient itself may end at the bounds.
    to_gain : float
        BFGS stops where it expects to gain less than this. With 2e-4 nats to gain, parameters are within some
        hundredths of a standard error of the optimum.
    longest_step : float
        Longest step of BFGS in any direction: never more than a factor of e² at once by default.
    variances : ndarray of bool, shape (n_parameters,), optional
        Which parameters are logarithms of variances. The Fisher information describes variances themselves much
        further than their logarithms, and steps that follow it are taken in these.
    progress : bool, optional
        Whether to show a progress bar; by default, where the error stream is a terminal.

    Returns
    -------
    Optimum
        A point at which the objective breaks down numerically counts as bad, the more so the further it is away; the
        search never ends in one.
    """
    low, high = np.array(bounds).reshape(-1, 2).T
    start = np.clip(start, low, high)
    hidden = None if progress is None else not progress
    bar: tqdm[Any] = tqdm(desc="fit", unit=" evaluations", disable=hidden, leave=False)
    counted = _Counted(objective, bar)

    with bar:
        if method == "adam":
            return counted.that_worked(_adam(counted, start, low, high, max_iterations, learning_rate), low, high)
        at_start = counted(start)
        if method == "bfgs":
            trusted = hessian is not None and not callable(hessian)
            if hessian is None:
                size = float(np.abs(at_start[1]).max(initial=0.0)) / first_step
                hessian = max(1.0, size) * np.eye(len(start))
            steps = max_iterations if callable(hessian) else min(max_iterations, _BFGS_STEPS)
            where = start, at_start, low, high
            linear = variances if variances is not None and callable(hessian) else np.zeros(len(start), dtype=bool)
            optimum, model = _quasi_newton(counted, *where, hessian, steps, to_gain, longest_step, linear)
            optimum = counted.that_worked(optimum, low, high)
            # Where the curvature is large and known, so may derivatives be.
            bearable = np.clip(_NEAR * np.sqrt(np.maximum(np.diag(model), 0.0)), _STEEP, _STEEPER)
            steep = not trusted and _steepest(optimum.position, optimum.gradient / bearable, low, high) > 1.0
            if (optimum.converged and not steep) or (steps == max_iterations and not callable(hessian)):
                settled = optimum.converged and not steep
                return replace(optimum, n_evaluations=counted.count, converged=settled, hessian=model)
            # In a curved valley L-BFGS forgets what no longer holds.
            start, at_start = optimum.position, (optimum.value, optimum.gradient)
        size = max(1.0, float(np.abs(at_start[1]).max(initial=0.0)) / first_step)

        def scaled(position: Floats) -> tuple[float, Floats]:
            value, gradient = at_start if np.array_equal(position, first) else counted(position)
            return value / size, gradient / size

        first = start

        for _ in range(3):
            found = scipy.optimize.minimize(
                scaled,
                start,
                jac=True,
                method="L-BFGS-B",
                bounds=list(zip(low, high, strict=True)),
                options={"maxiter": max_iterations, "ftol": 1e-7 * tolerance, "gtol": tolerance / size},
            )
            # A line search may fail on a stale picture of the curvature: once more without it.
            if found.success or found.status != 2:
                break
            start = found.x
    # A line search that cannot improve on a flat optimum calls itself abnormal.
    gradient = size * found.jac
    steepest = _steepest(found.x, gradient, low, high)
    settled = steepest < 1e-2 or (bool(found.success) and steepest < _STEEP)
    optimum = Optimum(found.x, size * float(found.fun), gradient, counted.count, settled, str(found.message))
    return counted.that_worked(optimum, low, high)


class _Counted:
    """An objective that counts its evaluations, and that has a hill where it breaks down numerically."""

    def __init__(self, objective: Objective, bar: tqdm[Any]) -> None:
        self._objective, self._bar, self.count = objective, bar, 0
        self._last: tuple[Floats, float] | None = None
        self._best: tuple[Floats, float, Floats] | None = None
        self._broken: list[tuple[Floats, NumericalError]] = []

    def __call__(self, position: Floats) -> tuple[float, Floats]:
        self.count += 1
        try:
            value, gradient = self._objective(position)
        except NumericalError as error:
            if self._last is None:
                raise
            # A hill around the last point that worked makes the line search turn back.
            self._broken.append((position.copy(), error))
            away = position - self._last[0]
            return self._last[1] + 1e3 * float(away @ away), 2e3 * away
        self._last = position.copy(), value
        if self._best is None or value < self._best[1]:
            self._best = *self._last, gradient
        self._bar.update()
        self._bar.set_postfix_str(f"-log p = {value:.4f}")
        return value, gradient

    def that_worked(self, optimum: Optimum, low: Floats, high: Floats) -> Optimum:
        """The optimum, unless it lies on the hill: then the best point off it, as if there were a bound."""
        why = [error for position, error in self._broken if np.array_equal(position, optimum.position)]
        if self._best is None or not why:
            return optimum
        position, value, gradient = self._best
        settled = optimum.converged or _steepest(position, gradient, low, high) < 1e-2
        return Optimum(position, value, gradient, optimum.n_evaluations, settled, f"further on, {why[0]}")


def _held(position: Floats, gradient: Floats, low: Floats, high: Floats) -> NDArray[np.bool_]:
    """Which coordinates would leave the bounds downhill, and stay where they are."""
    return np.asarray(((position <= low) & (gradient > 0)) | ((position >= high) & (gradient < 0)))


def _steepest(position: Floats, gradient: Floats, low: Floats, high: Floats) -> float:
    """Largest derivative of those that do not point out of the bounds."""
    return float(np.abs(gradient[~_held(position, gradient, low, high)]).max(initial=0.0))


def _quasi_newton(
    objective: Objective,
    start: Floats,
    at_start: tuple[float, Floats],
    low: Floats,
    high: Floats,
    hessian: Hessian,
    steps: int,
    to_gain: float,
    longest_step: float,
    linear: NDArray[np.bool_],
) -> tuple[Optimum, Floats]:
    """BFGS within bounds from a guess of the Hessian, for costly objectives; the optimum and the Hessian there.

    Where the guess is a function, it is called again after every long step far from the minimum: Fisher scoring. Of
    parameters that are logarithms, ``linear`` says for which the objective is more nearly quadratic without them.
    """
    model = np.empty(0) if callable(hessian) else hessian
    position, count = start, 1
    value, gradient = at_start
    expected, at_once, moved = np.inf, True, np.inf
    for _ in range(steps):
        # A step that was too long has shown a curvature that the information does not know.
        if callable(hessian) and (not len(model) or (expected > _FAR and at_once and moved > _ANEW)):
            model = with_curvature(hessian())
        radius, at_once = longest_step, True
        while True:
            least, most = np.maximum(low - position, -radius), np.minimum(high - position, radius)
            step = _step_within(model, gradient, _relative(least, linear), _relative(most, linear))
            gain = -float(gradient @ step + 0.5 * step @ (model @ step))
            if at_once:
                expected = gain
            trial = np.clip(position + _in_logarithms(step, linear), low, high)
            if expected < to_gain:
                message, left = f"less than {to_gain:g} nats to gain", trial - position
                return Optimum(position, value, gradient, count, True, message, left=left), model
            count += 1
            trial_value, trial_gradient = objective(trial)
            if trial_value <= value - 1e-4 * gain or radius < 1e-6:
                break
            radius, at_once = 0.3 * float(np.abs(trial - position).max()), False
        model = _updated(model, trial - position, trial_gradient - gradient)
        moved = float(np.abs(trial - position).max())
        if trial_value > value:
            break
        position, value, gradient = trial, trial_value, trial_gradient
    else:
        expected = np.inf  # a picture of the curvature that needs so many steps is not to be trusted
    settled = expected < 1e-2 or _steepest(position, gradient, low, high) < 1e-2
    return Optimum(position, value, gradient, count, settled, f"not converged after {count} evaluations"), model


def _updated(model: Floats, step: Floats, change: Floats) -> Floats:
    """What BFGS makes of a Hessian after a step that changed the gradient."""
    along = float(step @ change)
    if along <= 1e-10 * float(np.linalg.norm(step) * np.linalg.norm(change)):
        return model
    image = model @ step
    return np.asarray(model + np.outer(change, change) / along - np.outer(image, image) / float(step @ image))


def settle(objective: Objective, optimum: Optimum, bounds: list[tuple[float, float]]) -> Optimum:
    """Go on from where BFGS stopped until what is left does not depend on where it began.

    Where a search stops as little is left to gain, parameters still depend on its way there, by some hundredths of
    their standard errors. Here the gradient alone decides: values are not known to so many digits.

    Parameters
    ----------
    objective : callable
        Value and gradient.
    optimum : Optimum
        What `find_minimum` found; where it says nothing of a step that is left, it is returned as it is.
    bounds : list of (float, float)
        One pair per parameter.

    Returns
    -------
    Optimum
        With a step left of less than 1e-6 in every coordinate, unless steps stopped becoming shorter before.
    """
    low, high = np.array(bounds).reshape(-1, 2).T
    for _ in range(_SETTLING_STEPS):
        if optimum.left is None or optimum.hessian is None or np.abs(optimum.left).max(initial=0.0) < _SETTLED:
            break
        position = np.clip(optimum.position + optimum.left, low, high)
        try:
            value, gradient = objective(position)
        except NumericalError:
            break
        model = _updated(optimum.hessian, position - optimum.position, gradient - optimum.gradient)
        left = _step_within(model, gradient, low - position, high - position)
        if np.abs(left).max() > np.abs(optimum.left).max():
            break  # derivatives are not known to so many digits
        count = optimum.n_evaluations + 1
        optimum = replace(
            optimum, position=position, value=value, gradient=gradient, n_evaluations=count, hessian=model, left=left
        )
    return optimum


def _step_within(model: Floats, gradient: Floats, low: Floats, high: Floats) -> Floats:
    """The step between bounds that a quadratic model, positive definite, expects to gain most; shape (n,).

    Where one parameter must not go as far as the model says, the others take that into account: of two that can stand
    for each other, cutting both short alike would lead nowhere.
    """
    step = -np.linalg.solve(model, gradient)
    if ((step >= low) & (step <= high)).all():
        return np.asarray(step)
    free, step = high > low, np.zeros_like(gradient)
    values, vectors = np.linalg.eigh(model[np.ix_(free, free)])
    roots = np.sqrt(np.maximum(values, 1e-12 * values[-1]))
    image = -(vectors.T @ gradient[free]) / roots
    step[free] = scipy.optimize.lsq_linear(roots[:, None] * vectors.T, image, (low[free], high[free]), method="bvls").x
    return np.asarray(np.clip(step, low, high))


def _in_logarithms(step: Floats, linear: NDArray[np.bool_]) -> Floats:
    """Steps of logarithms, from relative ones where ``linear``; those down to less than half are drawn out."""
    return np.where(linear, np.log1p(np.maximum(step, -0.5)) + 2.0 * np.minimum(step + 0.5, 0.0), step)


def _relative(step: Floats, linear: NDArray[np.bool_]) -> Floats:
    """The inverse of `_in_logarithms`."""
    half = -np.log(2.0)
    return np.where(linear, np.expm1(np.maximum(step, half)) + 0.5 * np.minimum(step - half, 0.0), step)


def with_curvature(hessian: Floats) -> Floats:
    """Give a Hessian some curvature in every direction: where data say nothing, steps stay finite."""
    values, vectors = np.linalg.eigh(hessian)
    return np.asarray((vectors * np.maximum(values, _LEAST_EXPECTED)) @ vectors.T)


def _adam(objective: Objective, start: Floats, low: Floats, high: Floats, steps: int, rate: float) -> Optimum:
    """Adam (Kingma and Ba 2015) for a fixed number of steps, as the paper uses it."""
    position = start.copy()
    first, second = np.zeros_like(start), np.zeros_like(start)
    value, gradient = objective(position)
    for step in range(1, steps + 1):
        first = 0.9 * first + 0.1 * gradient
        second = 0.999 * second + 0.001 * gradient**2
        scaled = (first / (1 - 0.9**step)) / (np.sqrt(second / (1 - 0.999**step)) + 1e-8)
        position = np.clip(position - rate * scaled, low, high)
        value, gradient = objective(position)
    settled = _steepest(position, gradient, low, high) < 1e-2
    return Optimum(position, value, gradient, steps + 1, settled, f"{steps} steps of Adam")


def curvature(
    objective: Objective, position: Floats, step: float = 1e-4, *, along: NDArray[np.int64] | None = None
) -> Floats:
    """Hessian by central differences of the gradient, symmetric.

    Parameters
    ----------
    objective : callable
        Value and gradient.
    position : ndarray, shape (n_parameters,)
        Where.
    step : float
        Size of the differences.
    along : ndarray of int64, shape (k,), optional
        Coordinates of interest; all by default.

    Returns
    -------
    ndarray, shape (k, k)
    """
    chosen = np.arange(len(position)) if along is None else along
    rows = []
    for direction in step * np.eye(len(position))[chosen]:
        after, before = objective(position + direction)[1], objective(position - direction)[1]
        rows.append((after - before)[chosen] / (2 * step))
    hessian = np.array(rows).reshape(len(chosen), len(chosen))
    return np.asarray(0.5 * (hessian + hessian.T))
