"""All engines that are compared with the dense reference: a line each."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy.sparse import csr_array

import graphmatern as gm
from dense_process import PriorOf, by_eigenvectors, by_inducing, exact, on_features, truncated
from graphmatern.inference import Engine, FeatureMatrix, Observations, Problem, Search
from graphmatern.inference.features import graph_part, smoothing
from graphmatern.inference.features.engine import FeatureEngine
from graphmatern.inference.inducing.engine import EigenvectorEngine, InducingEngine
from graphmatern.inference.markov.engine import MarkovEngine
from graphmatern.inference.markov.fractional_engine import FractionalEngine
from graphmatern.inference.markov.process import MarkovProcess
from graphmatern.inference.moments.engine import MomentsEngine
from graphmatern.inference.moments.krylov import Accuracy
from graphmatern.inference.spectral.engine import SpectralEngine
from graphmatern.likelihoods import Gaussian, Likelihood, Poisson
from toy_engine import ToyEngine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Contender:
    """An engine, and the dense prior that it must agree with.

    Attributes
    ----------
    name : str
        For reports.
    make : callable
        The engine for a problem and its groups.
    kernel : Kernel
        On which it is tried.
    prior : callable
        Q and E at a kernel's parameters.
    likelihood : Likelihood
        Engines prepare for many updates of the sites unless this is Gaussian noise.
    any_sites : bool
        Whether sites may be zero and negative.
    variances : bool
        Whether variances at the observations are known, which likelihoods other than Gaussian noise need.
    options : dict
        Of the problem.
    plain : bool
        Whether it is for plain Laplacians without node masses only.
    costly : bool
        Whether it takes so long to set up that a sample of the cases must do.
    """

    name: str
    make: Callable[[Problem, Any], Engine]
    kernel: gm.Kernel = field(default_factory=lambda: gm.Matern(1.5, 1.4, 1.3))
    prior: PriorOf = exact
    likelihood: Likelihood = field(default_factory=Gaussian)
    any_sites: bool = True
    variances: bool = True
    options: dict[str, Any] = field(default_factory=dict)
    plain: bool = False
    costly: bool = False

    def __str__(self) -> str:
        return self.name

    @property
    def informs(self) -> bool:
        """Whether it knows the Fisher information, which is asked for with Gaussian noise only."""
        return self.likelihood.gaussian and bool(getattr(self.make, "has_information", False))

    def problem(self, graph: gm.Graph, normalized: bool, observations: Observations) -> Problem:
        return Problem(graph, self.kernel, self.likelihood, observations, normalized, **self.options)

    def engine(self, graph: gm.Graph, normalized: bool, observations: Observations) -> Engine:
        return self.make(self.problem(graph, normalized, observations), observations.groups)


class SolvedMarkovEngine(MarkovEngine):
    """Always through K_xx, which the engine itself chooses where observations are few."""

    def at(self, position: Floats) -> MarkovProcess:
        process = super().at(position)
        where = process.lengthscale, process.amplitude, process.chain
        return MarkovProcess(process.workspace, process.groups, *where, dense=True)


class SolvedFractionalEngine(FractionalEngine):
    """Always through K_xx, which the engine itself chooses where observations are few."""

    def __init__(self, problem: Problem, groups: Any) -> None:
        super().__init__(problem, groups)
        self._dense = True


class KrylovMomentsEngine(MomentsEngine):
    """Always by conjugate gradients, as with many observations; with so many probes that nothing is estimated."""

    most_dense = 0
    has_information = True
    accuracy = Accuracy(1_000, kernel=1e-11, data=1e-12, information=1e-8, predictions=1e-12)


def smooth(nu: int, kind: type[MarkovEngine] = MarkovEngine) -> Callable[[Problem, Any], Engine]:
    return lambda problem, groups: kind(problem, groups, nu)


def any_smoothness(
    nu: float, kind: type[FractionalEngine] = FractionalEngine, fixed: tuple[str, ...] = (), in_variance: bool = False
) -> Contender:
    """Of so small an approximation error that nothing of it is seen."""
    more = [f"{name} held" for name in fixed] + ["in the variance"] * in_variance
    more += ["solved"] * (kind is SolvedFractionalEngine)
    return Contender(
        ", ".join([f"markov {nu}", *more]),
        kind,
        gm.Matern(nu, 1.4, 1.3, fixed=fixed),
        options={"in_variance": in_variance, "relative_error": 1e-11},
        costly=nu > 3.0 or bool(more),
    )


def with_features(name: str, kernel: gm.Kernel, values: Any, *, by_products: bool = False) -> Contender:
    """Features beside the graph; ``by_products`` is how large graphs that fill in do it."""
    prior = on_features(values if isinstance(values, np.ndarray) else values.toarray())

    def make(problem: Problem, groups: Any) -> Engine:
        if not by_products:
            return FeatureEngine(problem, groups)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(smoothing, "sparse_cost", lambda *_: None)
            patch.setattr(graph_part, "eigenpairs_used", lambda *_: 500)
            return FeatureEngine(problem, groups)

    return Contender(name, make, kernel, prior, options={"features": FeatureMatrix(values), **_KEPT}, costly=True)


def areal(problem: Problem, groups: Any) -> Engine:
    return MarkovEngine.candidates(problem, groups)[0]()


_KEPT: dict[str, Any] = {"search": Search(optimizer=None)}
MATERN = {nu: gm.Matern(nu, 1.4, 1.3, fixed=("nu",)) for nu in (1, 2, 3)}
HELD = gm.Matern(2, 1.4, 1.3, fixed=("nu", "variance"))
INDUCING = [1, 4, 6, 9]
_RNG = np.random.default_rng(21)
MEASURED = _RNG.standard_normal((12, 3))
COUNTED = csr_array(_RNG.poisson(0.4, (12, 20)).astype(float))
ENGINES = [
    Contender("toy", ToyEngine),
    Contender("spectral", SpectralEngine, any_sites=False),
    Contender("spectral, many updates", SpectralEngine, likelihood=Poisson()),
    Contender("spectral, diffusion", SpectralEngine, gm.Diffusion(1.2, 0.8), likelihood=Poisson()),
    Contender("spectral, truncated", SpectralEngine, prior=truncated(6), any_sites=False, options={"n_eigenpairs": 6}),
    Contender("markov 1", smooth(1), MATERN[1]),
    Contender("markov 2", smooth(2), MATERN[2]),
    Contender("markov 3", smooth(3), MATERN[3]),
    Contender("markov 2, variance held", smooth(2), HELD),
    Contender("markov 2, in the variance", smooth(2), MATERN[2], options={"in_variance": True}),
    Contender("markov 1, solved", smooth(1, SolvedMarkovEngine), MATERN[1]),
    Contender("markov 2, solved", smooth(2, SolvedMarkovEngine), MATERN[2]),
    Contender("markov 3, solved", smooth(3, SolvedMarkovEngine), MATERN[3]),
    *(any_smoothness(nu) for nu in (0.6, 1.4, 2.6, 3.3)),
    any_smoothness(1.4, fixed=("nu", "lengthscale")),
    any_smoothness(0.7, fixed=("variance",)),
    any_smoothness(1.6, in_variance=True),
    any_smoothness(2.3, in_variance=True),
    any_smoothness(0.6, SolvedFractionalEngine),
    any_smoothness(2.4, SolvedFractionalEngine),
    Contender("spectral, areas", SpectralEngine, gm.BYM2(1.3, 0.7), likelihood=Poisson(), plain=True, costly=True),
    Contender("markov, intrinsic", areal, gm.ICAR(1.3), plain=True),
    Contender("markov, areas", areal, gm.BYM2(1.3, 0.7), plain=True),
    Contender("markov, Leroux", areal, gm.Leroux(1.3, 0.7), plain=True),
    Contender("moments, Leroux", MomentsEngine, gm.Leroux(1.3, 0.7), options=_KEPT, plain=True, costly=True),
    Contender("moments", MomentsEngine, options=_KEPT, costly=True),
    Contender(
        "moments, many observations",
        KrylovMomentsEngine,
        any_sites=False,
        variances=False,
        options=_KEPT,
    ),
    with_features("features, cosine", gm.Matern(1.5, 1.4, 1.3) + gm.CosineFeatures(1.2, 0.8), COUNTED),
    with_features("features, linear", gm.LinearFeatures(0.9, 1.1), MEASURED),
    with_features("features, alone", gm.CosineFeatures(0.9, 1.1, filter="none"), COUNTED),
    with_features(
        "features, interaction",
        gm.Diffusion(1.2, 0.8) + gm.RBFFeatures(0.7, 0.9, 1.1, filter="diffusion") + gm.Interaction(0.6),
        MEASURED,
    ),
    with_features(
        "features, products",
        gm.Matern(1.5, 1.4, 1.3) + gm.CosineFeatures(1.2, 0.8) + gm.Interaction(0.6),
        COUNTED,
        by_products=True,
    ),
    Contender("all nodes", InducingEngine, prior=by_inducing(), options={"settings": {"inducing": range(12)}}),
    Contender("four nodes", InducingEngine, prior=by_inducing(INDUCING), options={"settings": {"inducing": INDUCING}}),
    Contender("all eigenvectors", EigenvectorEngine),
    Contender("5 eigenvectors", EigenvectorEngine, prior=by_eigenvectors(5), options={"settings": {"n_inducing": 5}}),
]


_NOT_PLAIN = {"masses", "normalised", "normalised pieces with masses"}


def cases(contenders: list[Contender], *lists: Iterable[str]) -> list[Any]:
    """Each contender with every choice from the lists, for `pytest.mark.parametrize`; costly ones with some of them."""
    found = []
    for contender in contenders:
        every = [one for one in product(*lists) if not (contender.plain and set(one) & _NOT_PLAIN)]
        kept = every[:: 1 + len(every) // 4] if contender.costly else every
        found += [pytest.param(contender, *choice, id="-".join([contender.name, *choice])) for choice in kept]
    return found
