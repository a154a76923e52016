"""Likelihoods: how observations depend on the latent process."""

from graphmatern.likelihoods._base import Likelihood
from graphmatern.likelihoods._classes import Bernoulli, Categorical, RobustMax, Softmax
from graphmatern.likelihoods._numbers import Gaussian, NegativeBinomial, Numeric, Poisson, StudentT

__all__ = [
    "Bernoulli",
    "Categorical",
    "Gaussian",
    "Likelihood",
    "NegativeBinomial",
    "Numeric",
    "Poisson",
    "RobustMax",
    "Softmax",
    "StudentT",
]
