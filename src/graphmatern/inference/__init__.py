"""Inference: engines and the differentiable pieces they are made of."""

from graphmatern.inference._autograd import sparse_logdet, sparse_solve
from graphmatern.inference._markov import MarkovPrecision

__all__ = ["MarkovPrecision", "sparse_logdet", "sparse_solve"]
