"""Likelihoods: how observations depend on the latent process."""

from typing import Any

from graphmatern._parameters import from_plain, to_plain
from graphmatern.likelihoods._base import Expectation, Likelihood
from graphmatern.likelihoods._classes import Bernoulli, Categorical, MultinomialProbit, RobustMax, Softmax, differences
from graphmatern.likelihoods._numbers import Counts, Gaussian, NegativeBinomial, Numeric, Poisson, StudentT
from graphmatern.likelihoods._orthant import Orthant, orthant
from graphmatern.likelihoods._quantiles import find_quantile

__all__ = [
    "Bernoulli",
    "Categorical",
    "Counts",
    "Expectation",
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
    "differences",
    "find_quantile",
    "likelihood_from_plain",
    "likelihood_to_plain",
    "orthant",
]

_STORED: dict[str, type[Likelihood]] = {
    kind.__name__: kind
    for kind in (Bernoulli, MultinomialProbit, RobustMax, Softmax, Gaussian, NegativeBinomial, Poisson, StudentT)
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
