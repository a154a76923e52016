"""Inference: engines and the differentiable pieces they are made of."""

from graphmatern.inference._autograd import sparse_logdet, sparse_solve
from graphmatern.inference._markov import MarkovPrecision
from graphmatern.inference._rules import LogNormal

__all__ = ["LogNormal", "MarkovPrecision", "sparse_logdet", "sparse_solve"]
