"""What every engine's fit has in common: what goes in, how parameters are moved, what comes out.

An engine is a function from a `FitProblem` to a `FittedEngine`; `graphmatern.inference._engines` lists them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from graphmatern._validation import warn
from graphmatern.errors import NumericalError, NumericalWarning
from graphmatern.inference._optimize import Optimum, curvature, find_minimum
from graphmatern.inference._rules import Parameter, Rules, with_priors

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from graphmatern.graph import Graph
    from graphmatern.inference._observations import Batch
    from graphmatern.inference._optimize import Hessian
    from graphmatern.inference._posterior import Posterior
    from graphmatern.inference._rules import Objective
    from graphmatern.kernels import Kernel

    Floats = NDArray[np.float64]

__all__ = [
    "START_LENGTHSCALES",
    "FitOptions",
    "FitProblem",
    "FittedEngine",
    "Learned",
    "minimise",
    "warn_of_lost_noise",
]

_START_NOISE = 0.1
START_LENGTHSCALES = (2.0, 8.0, 32.0)  # tried where the caller names none
_LEAST_CURVATURE = 1e-4  # in nats, per squared logarithm: less is no peak, but rounding
_RESTART_SPREAD = 1.5  # of the unconstrained coordinates: a factor of 4 or so either way


@dataclass(frozen=True)
class FitOptions:
    """How to fit.

    Attributes
    ----------
    normalized : bool
        Which Laplacian.
    noise : float, optional
        Noise variance to start from.
    learn_noise : bool
        Whether it is learned.
    optimizer : {"lbfgs", "adam"} or None
        None keeps the starting values.
    max_iterations : int
        Iterations at most.
    learning_rate : float
        Step size of Adam.
    tolerance : float
        Largest derivative at which L-BFGS may stop.
    n_restarts : int
        Further starting points, drawn at random around the first.
    seed : int, optional
        Of those draws.
    rules : Rules
        Bounds and priors of the parameters.
    progress : bool, optional
        Whether to show progress; by default, where the error stream is a terminal.
    known : Optimum, optional
        Where an earlier fit to the same data ended: nothing is searched, and the outcome is that fit's to the last bit.
    """

    normalized: bool
    noise: float | None = None
    learn_noise: bool = True
    optimizer: str | None = "lbfgs"
    max_iterations: int = 200
    learning_rate: float = 0.1
    tolerance: float = 1e-5
    n_restarts: int = 0
    seed: int | None = None
    rules: Rules = field(default_factory=Rules)
    progress: bool | None = None
    known: Optimum | None = None

    @property
    def log_noise(self) -> float:
        """Logarithm of the noise variance to start from."""
        return float(np.log(_START_NOISE if self.noise is None else self.noise))


@dataclass(frozen=True, eq=False)
class FitProblem:
    """What to fit to what.

    Attributes
    ----------
    graph : Graph
        The graph.
    kernel : Kernel, optional
        Kernel with starting values, which the fit may change; by default a Matérn kernel started from the data.
    batches : sequence of Batch
        The observations.
    node_design : ndarray, shape (n_nodes, n_covariates)
        Covariates at every node.
    n_eigenpairs : int, optional
        Eigenpairs of an engine that uses them; its own choice by default.
    n_threads : int, optional
        Threads of an engine that factorises.
    options : FitOptions
        How to fit.
    """

    graph: Graph
    kernel: Kernel | None
    batches: Sequence[Batch]
    node_design: Floats
    n_eigenpairs: int | None
    n_threads: int | None
    options: FitOptions


class Learned:
    """What a fit knows about the parameters it learned."""

    optimum: Optimum
    parameters: list[Parameter]
    objective: Objective
    jacobian: Callable[[], Floats] | None

    @property
    def log_marginal_likelihood(self) -> float:
        """Of the normalised values, the constant included, without the priors of the parameters."""
        pairs = zip(self.parameters, self.optimum.position, strict=True)
        return -self.optimum.value + sum(one.prior.penalty(float(x))[0] for one, x in pairs if one.prior is not None)

    @property
    def gradient_norm(self) -> float:
        """Largest derivative at the end, of those that do not point out of the bounds."""
        gradient = self.optimum.gradient.copy()
        for place, one in enumerate(self.parameters):
            at = self.optimum.position[place]
            if (at <= one.low and gradient[place] > 0) or (at >= one.high and gradient[place] < 0):
                gradient[place] = 0.0
        return float(np.abs(gradient).max(initial=0.0))

    @property
    def at_bounds(self) -> list[str]:
        """Parameters that ended at a bound."""
        pairs = zip(self.parameters, self.optimum.position, strict=True)
        return [one.label for one, x in pairs if x <= one.low + 1e-6 or x >= one.high - 1e-6]

    def standard_errors(self) -> dict[str, float]:
        """Standard errors of the logarithms of what was learned, from the curvature.

        NaN for parameters at a bound, which count as known there, and for those that some direction without positive
        curvature changes.
        """
        if not self.parameters:
            return {}
        labels = [one.label for one in self.parameters]
        inside = np.flatnonzero([label not in self.at_bounds for label in labels])
        hessian = curvature(self.objective, self.optimum.position)
        jacobian = np.eye(len(labels)) if self.jacobian is None else self.jacobian()
        values, vectors = np.linalg.eigh(hessian[np.ix_(inside, inside)])
        changes = (jacobian[:, inside] @ vectors) ** 2  # of each parameter, along each direction
        peaked = values > _LEAST_CURVATURE
        variances = changes[:, peaked] @ (1.0 / values[peaked])
        unknown = changes[:, ~peaked].sum(axis=1) > 1e-6
        unknown[np.setdiff1d(np.arange(len(labels)), inside)] = True
        return dict(zip(labels, np.where(unknown, np.nan, np.sqrt(variances)).tolist(), strict=True))


@dataclass(frozen=True, eq=False)
class FittedEngine(Learned):
    """What a fit returns, whichever engine it used.

    Attributes
    ----------
    engine : str
        Name of the engine.
    kernel : Kernel
        With the learned parameters.
    noise : float
        Learned noise variance.
    posterior : Posterior
        The process given the observations.
    optimum : Optimum
        Where the optimiser stopped; its value includes the priors.
    parameters : list of Parameter
        What was learned.
    objective : callable
        What was minimised.
    jacobian : callable
        Derivatives of the logarithms of the parameters named, in the coordinates the optimiser moved.
    prior_loss : ndarray, shape (n_nodes,), optional
        Bound on the prior variance that a truncated spectrum loses at every node.
    prior_loss_share : float
        Its share of the prior variance, over all nodes.
    """

    engine: str
    kernel: Kernel
    noise: float
    posterior: Posterior
    optimum: Optimum
    parameters: list[Parameter]
    objective: Objective
    jacobian: Callable[[], Floats] | None = None
    prior_loss: Floats | None = None
    prior_loss_share: float = 0.0


def warn_of_lost_noise(prior_variance: float, batches: Sequence[Batch], noise: float) -> None:
    """Warn where the noise is so small beside the prior variance that rounding shows, with an estimate."""
    least = noise * min((float(batch.noise.min()) for batch in batches if len(batch.noise)), default=np.inf)
    error = np.finfo(float).eps * prior_variance / least
    if error > 1e-6:
        warn(
            f"a noise variance of {least / prior_variance:.0e} times the prior variance is near what rounding leaves: "
            f"results have an estimated relative error of {error:.0e}. Use more noise, or bounds that keep it up",
            NumericalWarning,
        )


def _with_curvature_of_priors(hessian: Callable[[], Floats], parameters: list[Parameter]) -> Callable[[], Floats]:
    """Add to a guess of the likelihood's Hessian what log-normal priors contribute."""
    of_priors = np.diag([0.0 if one.prior is None else one.prior.spread**-2 for one in parameters])
    return lambda: hessian() + of_priors


def minimise(
    objective: Objective,
    start: Floats,
    parameters: list[Parameter],
    options: FitOptions,
    hessian: Hessian | None = None,
    first_step: float = 1.0,
    dear: float | None = None,
) -> tuple[Optimum, Objective]:
    """Find the best parameters from one or several starting points; returns the penalised objective as well.

    With a guess of the Hessian at the first start L-BFGS is replaced by BFGS; also where evaluations are dear:
    ``dear`` then says what it need not gain any more. The guess may also be a function that returns one of where the
    objective was last evaluated, without the priors.
    """
    penalised = with_priors(objective, parameters)
    if callable(hessian):
        hessian = _with_curvature_of_priors(hessian, parameters)
    bounds = [(one.low, one.high) for one in parameters]
    if options.known is not None:
        return options.known, penalised
    if options.optimizer is None or not parameters:
        value, gradient = penalised(start)
        return Optimum(start, value, gradient, 1, True, "parameters kept"), penalised
    starts = [start]
    rng = np.random.default_rng(options.seed)
    starts += [start + _RESTART_SPREAD * rng.standard_normal(len(start)) for _ in range(options.n_restarts)]
    best: Optimum | None = None
    count = 0
    for number, one in enumerate(starts):
        guess = hessian if number == 0 or callable(hessian) else None
        frugal = options.optimizer == "lbfgs" and (dear is not None or guess is not None)
        try:
            found = find_minimum(
                penalised,
                one,
                bounds,
                method="bfgs" if frugal else options.optimizer,
                max_iterations=options.max_iterations,
                learning_rate=options.learning_rate,
                tolerance=options.tolerance,
                hessian=guess,
                first_step=first_step,
                **({} if dear is None else {"to_gain": dear}),
                progress=options.progress,
            )
        except NumericalError:
            if number == 0:  # a random start may be nonsense, the first may not
                raise
            continue
        count += found.n_evaluations
        if best is None or found.value < best.value:
            best = found
    assert best is not None
    return Optimum(best.position, best.value, best.gradient, count, best.converged, best.message), penalised
