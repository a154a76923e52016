"""scikit-learn's conventions: its own checks, cloning, searching, cross-validation, in one process and in two."""

from __future__ import annotations

import warnings
from typing import Any, Self

import numpy as np
import pandas as pd
import pytest
import sklearn
from scipy.spatial import cKDTree
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import graphmatern as gm

CITY = gm.make_roads(80, seed=1)
TRUTH = gm.Matern(2, 5.0).on(CITY).sample(random_state=1).numpy()[0]
needs_generator = pytest.mark.skipif(
    tuple(int(part) for part in sklearn.__version__.split(".")[:2]) < (1, 6),
    reason="scikit-learn lists its checks one by one from 1.6 on",
)


def failed_checks(estimator: Any) -> set[str]:
    """Names of scikit-learn's checks that an estimator does not pass."""
    from sklearn.utils.estimator_checks import estimator_checks_generator

    failed = set()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for one, check in estimator_checks_generator(estimator, legacy=True):
            try:
                check(one)
            except Exception as error:  # noqa: BLE001
                if type(error).__name__ != "SkipTest":
                    failed.add(check.func.__name__)
    return failed


FEATURES = "the check passes a matrix of features; nodes are a 1-D sequence of names"
INAPPLICABLE = {
    "check_fit_score_takes_y": FEATURES,
    "check_estimators_overwrite_params": FEATURES,
    "check_dont_overwrite_parameters": FEATURES,
    "check_estimators_fit_returns_self": FEATURES,
    "check_readonly_memmap_input": FEATURES,
    "check_n_features_in_after_fitting": FEATURES,
    "check_positive_only_tag_during_fit": FEATURES,
    "check_estimators_dtypes": FEATURES,
    "check_complex_data": FEATURES,
    "check_dtype_object": FEATURES,
    "check_estimators_empty_data_messages": FEATURES,
    "check_pipeline_consistency": FEATURES,
    "check_estimators_nan_inf": FEATURES,
    "check_estimator_sparse_tag": FEATURES,
    "check_estimator_sparse_array": FEATURES,
    "check_estimator_sparse_matrix": FEATURES,
    "check_estimators_pickle": FEATURES,
    "check_f_contiguous_array_estimator": FEATURES,
    "check_regressors_train": FEATURES,
    "check_regressor_data_not_an_array": FEATURES,
    "check_regressors_no_decision_function": FEATURES,
    "check_supervised_y_2d": FEATURES,
    "check_regressors_int": FEATURES,
    "check_methods_sample_order_invariance": FEATURES,
    "check_methods_subset_invariance": FEATURES,
    "check_fit2d_1sample": FEATURES,
    "check_fit2d_1feature": FEATURES,
    "check_dict_unchanged": FEATURES,
    "check_fit_idempotent": FEATURES,
    "check_fit_check_is_fitted": FEATURES,
    "check_n_features_in": FEATURES,
    "check_fit2d_predict1d": FEATURES,
    "check_requires_y_none": "a Series or DataFrame comes without y, so the message asks for one of these",
}


@needs_generator
def test_checks_that_pass_no_features_hold() -> None:
    assert failed_checks(gm.GraphGPRegressor(CITY, gm.Matern(1, 2.0))) <= set(INAPPLICABLE)


class OnPoints(gm.GraphGPRegressor):
    """The regressor with rows of features for nodes: the node nearest to the first two, so that the checks apply."""

    def _names(self, x: Any) -> Any:
        wide = np.column_stack([x, np.zeros(len(x))])[:, :2]
        # Squeezed into the city, whatever the features' scale.
        low, high = np.min(np.asarray(CITY.positions), axis=0), np.max(np.asarray(CITY.positions), axis=0)
        places = low + (high - low) * (0.5 + np.arctan(wide) / np.pi)
        return CITY.nodes[np.asarray(cKDTree(np.asarray(CITY.positions)).query(places)[1])]

    def fit(self, X: Any, y: Any = None) -> Self:  # type: ignore[override]
        from sklearn.utils.validation import validate_data

        X, y = validate_data(self, X, y, multi_output=True, y_numeric=True)
        return super().fit(self._names(X), y)

    def predict(self, X: Any) -> Any:  # type: ignore[override]
        from sklearn.utils.validation import validate_data

        self._require_fit()
        return super().predict(self._names(validate_data(self, X, reset=False)))

    def score(self, X: Any, y: Any = None, sample_weight: None = None) -> float:  # type: ignore[override]
        from sklearn.utils.validation import validate_data

        self._require_fit()
        return super().score(self._names(validate_data(self, X, reset=False)), y, sample_weight)


@needs_generator
def test_checks_hold_where_features_stand_for_nodes() -> None:
    adapted = OnPoints(CITY, gm.Matern(1, 2.0), max_iterations=20)
    assert failed_checks(adapted) == {
        # "The predictions must explain half of the variance": nothing here ties the target to the city.
        "check_regressors_train",
        # The kernel is not changed, but joblib's hash of a torch module is not that of its copy.
        "check_estimators_overwrite_params",
        # A column is one replicate, as a vector is, and nothing to warn about.
        "check_supervised_y_2d",
    }


def test_searching_and_validating() -> None:
    model = gm.GraphGPRegressor(CITY, gm.Matern(2, 3.0, fixed=("nu",)), noise=0.01, optimizer=None)
    names = np.asarray(CITY.nodes)
    grid = {"kernel__lengthscale": [0.01, 5.0], "noise": [0.01, 10.0]}
    alone = GridSearchCV(model, grid, cv=3, n_jobs=1).fit(names, TRUTH)
    both = GridSearchCV(model, grid, cv=3, n_jobs=2).fit(names, TRUTH)
    assert alone.best_params_ == both.best_params_ == {"kernel__lengthscale": 5.0, "noise": 0.01}
    np.testing.assert_allclose(alone.cv_results_["mean_test_score"], both.cv_results_["mean_test_score"], rtol=1e-9)
    scores = cross_val_score(model, names, TRUTH, cv=4)
    assert scores.shape == (4,)
    assert model.get_params()["kernel__lengthscale"] == 3.0


def test_names_of_any_kind_can_be_split() -> None:
    graph = gm.Graph.from_edges([((i, "a"), (i + 1, "a")) for i in range(30)])
    field = np.sin(np.arange(31) / 4.0)
    model = gm.GraphGPRegressor(graph, gm.Matern(2, 3.0), noise=0.01, optimizer=None)
    assert cross_val_score(model, list(graph.nodes), field, cv=3).shape == (3,)
    series = pd.Series(field, index=graph.nodes)
    assert clone(model).fit(series).score(list(graph.nodes), field) > 0.9


def test_clones_share_the_graph_and_nothing_else() -> None:
    model = gm.GraphGPRegressor(CITY, gm.Matern(2, 3.0), priors={"noise": gm.LogNormal(0.1, 1.0)})
    other = clone(model)
    assert other.graph is CITY
    assert other.kernel is not model.kernel
    other.set_params(kernel__lengthscale=9.0, kernel__nu=None)
    assert model.get_params()["kernel__lengthscale"] == 3.0
    assert other.get_params()["kernel__nu"] is None


def test_pipelines_pass_names_through() -> None:
    pipeline = make_pipeline(FunctionTransformer(validate=False), gm.GraphGPRegressor(CITY, gm.Matern(2, 3.0)))
    pipeline.fit(np.asarray(CITY.nodes), TRUTH)
    assert pipeline.score(np.asarray(CITY.nodes), TRUTH) > 0.8


def test_options_by_name() -> None:
    """Options of options are set through their names, the option itself before these, and all are known."""
    model = gm.GraphGPRegressor(CITY, gm.Matern(1, 2.0))
    assert model.get_params()["kernel__lengthscale"] == 2.0
    assert "kernel__lengthscale" not in model.get_params(deep=False)
    model.set_params(kernel__lengthscale=4.0, kernel=gm.Matern(2, 3.0), max_iterations=7)
    assert isinstance(model.kernel, gm.Matern)
    assert (model.kernel.values()["nu"], model.kernel.values()["lengthscale"], model.max_iterations) == (2.0, 4.0, 7)
    with pytest.raises(ValueError, match="'lenght' is no parameter of GraphGPRegressor"):
        model.set_params(lenght=1.0)
    assert repr(gm.GraphGPRegressor(CITY, mean="zero")) == f"GraphGPRegressor(graph={CITY!r}, mean='zero')"
