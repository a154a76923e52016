"""Estimators with scikit-learn's conventions and node names."""

from typing import TYPE_CHECKING, Any

from graphmatern.estimators._classifier import GraphGPClassifier
from graphmatern.estimators._files import load
from graphmatern.estimators._options import check_options, documented, rules_of, search_of, uses_normalized
from graphmatern.estimators._regressor import GraphGPRegressor

if TYPE_CHECKING:
    from graphmatern.estimators._field import GraphFieldRegressor as GraphFieldRegressor

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


def __getattr__(name: str) -> Any:
    if name == "GraphFieldRegressor":  # fields use GPyTorch, which no one else should wait for
        from graphmatern.estimators._field import GraphFieldRegressor

        return GraphFieldRegressor
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
