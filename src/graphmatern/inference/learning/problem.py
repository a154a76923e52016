"""What goes into a fit, and what comes out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from graphmatern.inference.learning.optimize import Optimum, curvature
from graphmatern.inference.learning.parameters import PriorsAndBounds
from graphmatern.inference.weighted import weighted_quantiles

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    from graphmatern.graph import Graph
    from graphmatern.inference.features.matrix import FeatureMatrix
    from graphmatern.inference.learning.integrate import Integrated
    from graphmatern.inference.learning.journal import Journal
    from graphmatern.inference.learning.parameters import Coordinate, Objective
    from graphmatern.inference.observations import Observations
    from graphmatern.kernels import Kernel
    from graphmatern.likelihoods import Likelihood

    Floats = NDArray[np.float64]

__all__ = ["Fit", "Known", "Problem", "Search"]

_LEAST_CURVATURE = 1e-4  # in nats, per squared logarithm: less is not a peak, but rounding
_AS_WIDE = 0.9  # of the prior's 95 % interval: data that narrow it less than this say little
_UPDATES = 10  # of the sites, about, at one set of parameters


@dataclass(frozen=True)
class Search:
    """How to look for the best parameters.

    Attributes
    ----------
    optimizer : {"quasi-newton", "adam"} or None
        None keeps the starting values.
    max_iterations : int
        Iterations at most.
    learning_rate : float
        Step size of Adam.
    n_restarts : int
        Further starting points, drawn at random around the first.
    seed : int, optional
        Of those draws.
    progress : bool, optional
        Whether to show progress; by default, where the error stream is a terminal.
    journal : Journal, optional
        Where every evaluation is written down, for a search that may have to begin again.
    """

    optimizer: str | None = "quasi-newton"
    max_iterations: int = 200
    learning_rate: float = 0.1
    n_restarts: int = 0
    seed: int | None = None
    progress: bool | None = None
    journal: Journal | None = None


@dataclass(frozen=True, eq=False)
class Known:
    """Where an earlier fit to the same data ended: nothing is searched, and the outcome is that fit's.

    Attributes
    ----------
    optimum : Optimum
        Of the parameters.
    sites : list of ndarray, optional
        Natural parameters of the sites, unless these are Gaussian noise.
    integrated : Integrated, optional
        What was known of the parameters, its mixture yet to be made.
    """

    optimum: Optimum
    sites: list[Floats] | None = None
    integrated: Integrated | None = None


@dataclass(frozen=True, eq=False)
class Problem:
    """What to fit to what.

    Attributes
    ----------
    graph : Graph
        The graph.
    kernel : Kernel, optional
        With starting values; by default a Matérn kernel started from the data. It is not changed.
    likelihood : Likelihood
        Of each observation, with starting values. It is not changed.
    observations : Observations
        What was observed where.
    normalized : bool, optional
        Which Laplacian; by default the plain one, unless that makes no sense on the graph.
    rules : PriorsAndBounds
        What is known about the parameters.
    search : Search
        How to look for the best of them.
    relative_error : float
        Of the covariance, where the Markov engine approximates it.
    n_eigenpairs, n_threads : int, optional
        For engines that use them; their own choice by default.
    device, dtype : str
        Where the products of the moments engine are computed, and in which numbers.
    effect_precision : float
        Prior precision of the coefficients of linear effects; 0 for a flat prior, which Gaussian noise allows.
    max_seconds : float, optional
        What a fit may be predicted to take.
    compares : bool
        Whether to fit both Laplacians where that is cheap, if none was asked for, and to keep the better fit.
    settings : mapping
        Further options of single engines, such as the inducing nodes.
    in_variance : bool
        Whether the variance itself is to be moved by an engine that would rather move something else.
    integrate : bool or "auto"
        Whether to integrate over the parameters after the search; "auto" where that is worth it.
    features : FeatureMatrix, optional
        Features of all nodes, for kernels on these.
    """

    graph: Graph
    kernel: Kernel | None
    likelihood: Likelihood
    observations: Observations
    normalized: bool | None = False
    rules: PriorsAndBounds = field(default_factory=PriorsAndBounds)
    search: Search = field(default_factory=Search)
    n_eigenpairs: int | None = None
    relative_error: float = 1e-4
    n_threads: int | None = None
    device: str = "cpu"
    dtype: str = "float64"
    effect_precision: float = 0.0
    max_seconds: float | None = None
    compares: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)
    in_variance: bool = False
    integrate: bool | str = False
    features: FeatureMatrix | None = None

    @property
    def in_batches(self) -> bool:
        """Whether inducing nodes or eigenvectors are learned step by step, from batches or samples."""
        chosen = self.settings.get("batch_size") is not None or self.settings.get("n_samples") is not None
        return bool(self.settings.get("steps")) or chosen

    @property
    def exact(self) -> bool:
        """Whether the evidence is known exactly: with Gaussian noise, unless q is restricted to be diagonal."""
        return self.likelihood.gaussian and self.settings.get("covariance", "full") == "full"

    @property
    def updates(self) -> int:
        """How often sites are conditioned on at one set of parameters, about: once where they are Gaussian noise."""
        return 1 if self.likelihood.gaussian else _UPDATES * self.likelihood.n_latents


@dataclass(frozen=True, eq=False)
class Fit:
    """What was learned, whichever engine and likelihood were used.

    Attributes
    ----------
    engine, reason : str
        Name of the engine, and why it was used.
    normalized : bool
        Which Laplacian.
    kernel : Kernel
        With the learned parameters.
    likelihood : Likelihood
        With the learned parameters.
    posterior : Posterior or Mixture
        The latent processes given the observations.
    optimum : Optimum
        Where the optimiser stopped; its value includes the priors.
    coordinates : list of Coordinate
        What was learned.
    objective : callable
        What was minimised: negative log evidence and priors, with derivatives.
    jacobian : callable, optional
        Derivatives of the logarithms of the parameters named, in the coordinates the optimiser moved.
    information : callable, optional
        The Fisher information where the objective was last evaluated, priors included, where that is estimated.
    sites : list of ndarray, optional
        Natural parameters of the sites, unless these are Gaussian noise.
    settled : bool
        Whether the sites came to rest.
    n_clipped : int
        Updates in which negative sites were set to 0, the last resort.
    report : dict
        What else the engine has to say, such as ``prior_loss``.
    integrated : Integrated, optional
        What is known of the parameters, where they were integrated over.
    """

    engine: str
    reason: str
    normalized: bool
    kernel: Kernel
    likelihood: Likelihood
    posterior: Any
    optimum: Optimum
    coordinates: list[Coordinate]
    objective: Objective
    jacobian: Callable[[], Floats] | None = None
    information: Callable[[], Floats] | None = None
    sites: list[Floats] | None = None
    settled: bool = True
    n_clipped: int = 0
    report: dict[str, Any] = field(default_factory=dict)
    integrated: Integrated | None = None

    @property
    def log_evidence(self) -> float:
        """Log marginal likelihood of the normalised values, or its lower bound, without priors of the parameters."""
        pairs = zip(self.coordinates, self.optimum.position, strict=True)
        return -self.optimum.value + sum(one.prior.penalty(float(x))[0] for one, x in pairs if one.prior is not None)

    @property
    def converged(self) -> bool:
        """Whether optimiser and sites came to rest."""
        return self.optimum.converged and self.settled

    @property
    def gradient_norm(self) -> float:
        """Largest derivative at the end, of those that do not point out of the bounds."""
        gradient = self.optimum.gradient.copy()
        for place, one in enumerate(self.coordinates):
            at = self.optimum.position[place]
            if (at <= one.low and gradient[place] > 0) or (at >= one.high and gradient[place] < 0):
                gradient[place] = 0.0
        return float(np.abs(gradient).max(initial=0.0))

    @property
    def at_bounds(self) -> list[str]:
        """Parameters that ended at a bound."""
        pairs = zip(self.coordinates, self.optimum.position, strict=True)
        return [one.label for one, x in pairs if x <= one.low + 1e-6 or x >= one.high - 1e-6]

    @property
    def unlearned(self) -> list[str]:
        """Parameters of which the data say little: after integration they are about as uncertain as their priors."""
        if self.integrated is None:
            return []
        found, ends = [], np.array([0.025, 0.975])
        for one in self.coordinates:
            if one.prior is None or one.label not in self.integrated.draws:
                continue
            before = np.clip(one.prior.quantile(ends), one.low, one.high)
            after = weighted_quantiles(self.integrated.draws[one.label], self.integrated.weights, ends)
            if np.diff(np.log(after)) >= _AS_WIDE * np.diff(np.log(one.value(before))):
                found.append(one.label)
        return found

    def standard_errors(self) -> dict[str, float]:
        """Standard errors of the logarithms of what was learned, from the curvature.

        NaN, with a warning that names them, for parameters at a bound, which count as known there, and for those that
        some direction without positive curvature changes.
        """
        if not self.coordinates:
            return {}
        labels = [one.label for one in self.coordinates]
        inside = np.flatnonzero([label not in self.at_bounds for label in labels])
        if self.information is None:
            hessian = curvature(self.objective, self.optimum.position, along=inside)
        else:
            self.objective(self.optimum.position)
            hessian = self.information()[np.ix_(inside, inside)]
        jacobian = np.eye(len(labels)) if self.jacobian is None else self.jacobian()
        values, vectors = np.linalg.eigh(hessian)
        changes = (jacobian[:, inside] @ vectors) ** 2  # of each parameter, along each direction
        peaked = values > _LEAST_CURVATURE
        variances = changes[:, peaked] @ (1.0 / values[peaked])
        unknown = changes[:, ~peaked].sum(axis=1) > 1e-6
        at_bounds = np.setdiff1d(np.arange(len(labels)), inside)
        unknown[at_bounds] = True
        return dict(zip(labels, np.where(unknown, np.nan, np.sqrt(variances)).tolist(), strict=True))
