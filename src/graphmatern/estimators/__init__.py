"""Estimators with scikit-learn's conventions and node names."""

from graphmatern.estimators._classifier import GraphGPClassifier
from graphmatern.estimators._field import GraphFieldRegressor
from graphmatern.estimators._files import load
from graphmatern.estimators._options import check_options, documented, rules_of, search_of, uses_normalized
from graphmatern.estimators._regressor import GraphGPRegressor

__all__ = [
    "GraphFieldRegressor",
    "GraphGPClassifier",
    "GraphGPRegressor",
    "check_options",
    "documented",
    "load",
    "rules_of",
    "search_of",
    "uses_normalized",
]
