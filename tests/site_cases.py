"""What sites are tested on: observations under every likelihood, with replicates, a hole, offsets and effects."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from contenders import ENGINES, MATERN, Contender
from dense_process import GRAPHS, DensePrior
from graphmatern.inference import Observations
from graphmatern.inference.sites.objective import SiteObjective
from graphmatern.likelihoods import (
    Bernoulli,
    Binomial,
    GammaNoise,
    Likelihood,
    NegativeBinomial,
    Poisson,
    Softmax,
    StudentT,
    ZeroInflatedPoisson,
    join_trials,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

TAU = 0.3  # prior precision of the linear effects
GRAPH, _ = GRAPHS["masses"]
NODES = np.array([7, 0, 3, 9, 5, 0, 11, 2])
# Two replicates, one with a hole, and what they are observed to be, by likelihood.
Y: dict[str, tuple[Likelihood, list[list[float]]]] = {
    "poisson": (Poisson(), [[3, 0, 1, 7, 2, 0, 12, 4], [1, 1, 0, 3, 5, 2, 4, np.nan]]),
    "negative_binomial": (NegativeBinomial(0.4), [[3, 0, 1, 7, 2, 0, 12, 4], [1, 1, 0, 3, 5, 2, 4, np.nan]]),
    "zero_inflated_poisson": (
        ZeroInflatedPoisson(0.3),
        [[3, 0, 1, 7, 2, 0, 12, 4], [1, 1, 0, 3, 5, 2, 4, np.nan]],
    ),
    "gamma": (GammaNoise(0.4), [[3, 0.2, 1, 7, 2, 0.5, 12, 4], [1, 1, 0.1, 3, 5, 2, 4, np.nan]]),
    "binomial": (
        Binomial(),
        [
            [join_trials(s, 6) for s in (3, 0, 1, 6, 2, 0, 5, 4)],
            [*(join_trials(s, 7) for s in (1, 1, 0, 3, 5, 2, 4)), np.nan],
        ],
    ),
    "probit": (Bernoulli(), [[1, 0, 1, 1, 0, 0, 1, 1], [0, 0, 1, 0, 1, 1, 0, np.nan]]),
    "logit": (Bernoulli("logit"), [[1, 0, 1, 1, 0, 0, 1, 1], [0, 0, 1, 0, 1, 1, 0, np.nan]]),
    "student_t": (
        StudentT(0.3, 3.0),
        [[0.4, -1.0, 0.3, 9.0, -0.2, -1.3, 0.1, 0.6], [1, 0, 0.3, -2, 0.5, 8, 0.2, np.nan]],
    ),
    "softmax": (Softmax(3), [[0, 2, 1, 1, 0, 2, 1, 0], [2, 2, 1, 0, 1, 2, 0, np.nan]]),
}
#: On one kernel, so that they can be compared with one brute-force optimum each.
BY_SITES = [
    replace(one, kernel=MATERN[2])
    for one in ENGINES
    if one.any_sites
    and not one.plain
    and one.name.split(",")[0] not in ("markov 1", "markov 3")
    and "held" not in one.name
]


def observe(y: list[list[float]]) -> Observations:
    rng = np.random.default_rng(2)
    design = np.column_stack([np.ones(GRAPH.n_nodes), rng.standard_normal(GRAPH.n_nodes)])
    offset = 0.3 * rng.standard_normal(len(NODES))
    own = design[NODES] + 0.4 * rng.standard_normal((len(NODES), 2)) * [0.0, 1.0]  # not those of the nodes
    return Observations(NODES, np.array(y).T, design, offset=offset, own_design=own)


def objective_of(contender: Contender, name: str, **options: Any) -> tuple[SiteObjective, Floats]:
    """The ELBO as a function of the parameters, and where it is looked at."""
    likelihood, y = Y[name]
    problem = replace(
        contender.problem(GRAPH, False, observe(y)), likelihood=likelihood, effect_precision=TAU, **options
    )
    engine = contender.make(problem, SiteObjective.groups(problem))
    objective = SiteObjective(engine, problem)
    return objective, np.concatenate([engine.start, objective.start])


def joined(prior: DensePrior, observations: Observations) -> tuple[Floats, Floats, NDArray[np.int64], Floats]:
    """Prior covariance of η at all observations, replicate by replicate, residual variances, nodes and offsets."""
    groups = observations.replicates
    nodes = np.concatenate([group.nodes for group in groups])
    replicate = np.repeat(np.arange(len(groups)), [len(group.nodes) for group in groups])
    h = np.concatenate([group.design for group in groups])
    together = replicate[:, None] == replicate
    covariance = together * prior.seen[np.ix_(nodes, nodes)] + h @ h.T / TAU
    return covariance, np.diag(prior.unseen)[nodes], nodes, np.concatenate([group.offset for group in groups])
