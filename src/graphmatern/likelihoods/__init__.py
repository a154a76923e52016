"""Likelihoods: how observations depend on the latent process."""

from typing import Any

from graphmatern._parameters import from_plain, to_plain
from graphmatern.likelihoods._base import Expectation, Likelihood
from graphmatern.likelihoods._classes import Bernoulli, Categorical, MultinomialProbit, RobustMax, Softmax, differences
from graphmatern.likelihoods._more_numbers import (
    Binomial,
    GammaNoise,
    ZeroInflatedPoisson,
    join_trials,
    split_trials,
)
from graphmatern.likelihoods._numbers import Counts, Gaussian, NegativeBinomial, Numeric, Poisson, StudentT
from graphmatern.likelihoods._orthant import Orthant, orthant
from graphmatern.likelihoods._quantiles import find_quantile

__all__ = [
    "Bernoulli",
    "Binomial",
    "Categorical",
    "Counts",
    "Expectation",
    "GammaNoise",
    "Gaussian",
    "Likelihood",
    "MultinomialProbit",
    "NegativeBinomial",
    "Numeric",
    "Orthant",
    "Poisson",
    "RobustMax",
    "Softmax",
    "StudentT",
    "ZeroInflatedPoisson",
    "differences",
    "find_quantile",
    "join_trials",
    "likelihood_from_plain",
    "likelihood_to_plain",
    "orthant",
    "split_trials",
]

_STORED: dict[str, type[Likelihood]] = {
    kind.__name__: kind
    for kind in (
        Bernoulli,
        MultinomialProbit,
        RobustMax,
        Softmax,
        Binomial,
        GammaNoise,
        Gaussian,
        NegativeBinomial,
        Poisson,
        StudentT,
        ZeroInflatedPoisson,
    )
}


def likelihood_to_plain(likelihood: Likelihood) -> dict[str, Any]:
    """Return a likelihood as texts, numbers and lists, for model files.

    Examples
    --------
    >>> likelihood_from_plain(likelihood_to_plain(StudentT(0.1, 3.0, fixed=("df",))))
    StudentT(scale=0.1, df=3, fixed=('df',))
    """
    return to_plain(likelihood, "likelihood", _STORED)


def likelihood_from_plain(plain: dict[str, Any]) -> Likelihood:
    """Return the likelihood that `likelihood_to_plain` was given."""
    likelihood: Likelihood = from_plain(plain, "likelihood", _STORED)
    return likelihood
