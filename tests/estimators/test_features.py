"""Features of the nodes on the estimators: whatever form they come in, and what is said when they are at fault."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

import graphmatern as gm
from graphmatern.errors import KernelError, TableError

if TYPE_CHECKING:
    from pathlib import Path

RNG = np.random.default_rng(5)
ROADS = gm.make_roads(80, seed=1)
N = ROADS.n_nodes
MEASURED = RNG.standard_normal((N, 2))
COUNTED = RNG.poisson(0.3, (N, 12)).astype(float)
SEEN = ROADS.nodes[::3]
Y = (MEASURED[:, 0] ** 2 + RNG.standard_normal(N) * 0.1)[::3]
KEPT = gm.Matern(1.5, 2.0, 0.5) + gm.RBFFeatures(0.5, 1.0, 0.7)
COUNTS = gm.Matern(1.5, 2.0, 0.5) + gm.CosineFeatures(0.5, 0.7)


def regressor(**options: Any) -> gm.GraphGPRegressor:
    return gm.GraphGPRegressor(
        ROADS, **{"kernel": KEPT, "features": MEASURED, "noise": 0.1, "optimizer": None, **options}
    )


def test_every_form_of_features_is_the_same() -> None:
    shuffled = RNG.permutation(N)
    forms = [
        COUNTED,
        COUNTED.tolist(),
        sp.csr_array(COUNTED),
        sp.coo_matrix(COUNTED),
        pd.DataFrame(COUNTED, index=ROADS.nodes).iloc[shuffled],
        pd.DataFrame(COUNTED, index=ROADS.nodes).astype(pd.SparseDtype(float, 0.0)).iloc[shuffled],
        sp.hstack([sp.csr_array(COUNTED), sp.csr_array((N, 99_988))]),
    ]
    found = [regressor(kernel=COUNTS, features=one).fit(SEEN, Y).predict(return_std=True) for one in forms]
    for mean, std in found[1:]:
        np.testing.assert_allclose(mean, found[0][0], atol=1e-12)
        np.testing.assert_allclose(std, found[0][1], atol=1e-12)


def test_more_features_than_nodes_are_as_exact() -> None:
    wide = sp.csr_array(sp.random_array((N, 3_000), density=0.01, rng=np.random.default_rng(3)))
    few = wide @ np.linalg.qr(wide.toarray().T)[0]  # the same inner products
    found = regressor(kernel=COUNTS, features=wide).fit(SEEN, Y)
    same = regressor(kernel=COUNTS, features=sp.csr_array(few)).fit(SEEN, Y)
    assert found.log_marginal_likelihood_ == pytest.approx(same.log_marginal_likelihood_, abs=1e-8)
    np.testing.assert_allclose(found.predict(return_std=True), same.predict(return_std=True), atol=1e-8)


def test_features_are_smoothed_alike_node_by_node_and_feature_by_feature(monkeypatch: pytest.MonkeyPatch) -> None:
    heavy = gm.Graph.from_adjacency(ROADS.weights, masses=RNG.uniform(0.5, 2.0, N))
    kernel = gm.Matern(1.5, 2.0, 0.5) + gm.CosineFeatures(1.3, 0.7, filter="diffusion")
    found = []
    for cost in (0.0, 1e9):
        monkeypatch.setattr("graphmatern.inference.features.smoothing._PER_NARROW", cost)
        model = gm.GraphGPRegressor(heavy, kernel, features=sp.csr_array(COUNTED), noise=0.1, optimizer=None)
        model.fit(np.arange(10), Y[:10])  # fewer nodes than features
        found.append([model.log_marginal_likelihood_, *model.predict()])
    np.testing.assert_allclose(found[0], found[1], atol=1e-9)


def test_units_of_measurements_do_not_matter() -> None:
    other = MEASURED * [3.0, 1e4] + [7.0, -2.0]
    constant = np.column_stack([other, np.full(N, 4.0)])
    mean = regressor().fit(SEEN, Y).predict()
    np.testing.assert_allclose(regressor(features=other).fit(SEEN, Y).predict(), mean, atol=1e-9)
    np.testing.assert_allclose(regressor(features=constant).fit(SEEN, Y).predict(), mean, atol=1e-9)


def test_missing_rows_are_listed() -> None:
    table = pd.DataFrame(MEASURED, index=ROADS.nodes)
    with pytest.raises(TableError, match=r"must have a row for every node.*none for 3, 7, 2 in all"):
        regressor(features=table.drop([3, 7])).fit(SEEN, Y)
    broken = table.copy()
    broken.iloc[4, 1] = np.nan
    for features in (broken, broken.to_numpy(), sp.csr_array(broken.to_numpy())):
        with pytest.raises(TableError, match=r"NaN or infinite for 4"):
            regressor(features=features).fit(SEEN, Y)
    with pytest.raises(TableError, match="several for 3"):
        regressor(features=pd.concat([table, table.loc[[3]]])).fit(SEEN, Y)
    with pytest.raises(TableError, match="other types in"):
        regressor(features=table.assign(kind="road")).fit(SEEN, Y)
    with pytest.raises(TableError, match=f"a row for each of the {N} nodes"):
        regressor(features=MEASURED[:-1]).fit(SEEN, Y)
    with pytest.raises(TableError, match="not constant"):
        regressor(features=np.ones((N, 2))).fit(SEEN, Y)


def test_kernels_and_features_go_together() -> None:
    with pytest.raises(KernelError, match="must be given for"):
        regressor(features=None).fit(SEEN, Y)
    with pytest.raises(KernelError, match="must have a term on features"):
        regressor(kernel=gm.Matern()).fit(SEEN, Y)
    with pytest.raises(KernelError, match="must be 'auto' or 'features'"):
        regressor(engine="markov").fit(SEEN, Y)
    with pytest.raises(KernelError, match=r"at most one gm.Interaction"):
        regressor(kernel=gm.RBFFeatures() + gm.Interaction()).fit(SEEN, Y)
    with pytest.raises(KernelError, match="must not scale"):
        regressor(kernel=2.0 * gm.RBFFeatures()).fit(SEEN, Y)
    with pytest.raises(KernelError, match="filter"):
        gm.CosineFeatures(filter="wavelet")
    with pytest.raises(KernelError, match="is no function of the Laplacian"):
        gm.CosineFeatures().on(ROADS).matrix()


@pytest.mark.parametrize("features", [sp.csr_array(COUNTED), pd.DataFrame(MEASURED, index=ROADS.nodes)])
def test_saved_models_predict_as_before(features: Any, tmp_path: Path) -> None:
    kernel = COUNTS if sp.issparse(features) else KEPT
    model = regressor(kernel=kernel, features=features).fit(SEEN, Y)
    model.save(tmp_path / "model.gm")
    again = gm.load(tmp_path / "model.gm")
    np.testing.assert_array_equal(again.predict(return_std=True), model.predict(return_std=True))
    assert repr(again.kernel_) == repr(model.kernel_)
    more = model.condition_on(ROADS.nodes[1:2], [0.5])
    whole = regressor(kernel=kernel, features=features).fit([*SEEN, ROADS.nodes[1]], [*Y, 0.5])
    scale = whole.y_scale_ / model.y_scale_
    assert scale == pytest.approx(1.0, abs=0.1)
    np.testing.assert_array_equal(again.condition_on(ROADS.nodes[1:2], [0.5]).predict(), more.predict())


def test_classes_are_learned_from_features_alone() -> None:
    # Words of class c are the four from 4c on; the graph says nothing.
    labels = RNG.integers(0, 3, N)
    words = RNG.poisson(np.where(np.arange(12) // 4 == labels[:, None], 1.2, 0.1)).astype(float)
    model = gm.GraphGPClassifier(ROADS, features=sp.csr_array(words), integrate=False).fit(SEEN, labels[::3])
    assert model.engine_ == "features"
    assert model.score(ROADS.nodes, labels) > 0.8
    shares = model.variance_shares_
    assert shares["features"] > 0.7
    assert shares.sum() == pytest.approx(1.0)
    assert f"variance  graph {shares['graph']:.0%}, features {shares['features']:.0%}" in model.summary()
    assert model.informed_.all()


def test_integrated_over_parameters(tmp_path: Path) -> None:
    kernel = gm.Matern(1.5, 2.0, 0.5, fixed=("nu", "lengthscale")) + gm.RBFFeatures(0.5, 1.0, 0.7, fixed=("bandwidth",))
    bounds = {"noise": (0.05, 1.0)}  # with less, rounding shows
    model = gm.GraphGPRegressor(ROADS, kernel, features=MEASURED, integrate=True, bounds=bounds).fit(SEEN, Y)
    assert model.hyperparameters_.index.tolist() == ["graph.sigma", "features.smoothing", "features.sigma", "noise"]
    assert "features.smoothing" in model.summary()
    assert set(model.variance_shares_.index) == {"graph", "features", "noise"}
    model.save(tmp_path / "model.gm")
    np.testing.assert_allclose(gm.load(tmp_path / "model.gm").predict(), model.predict(), atol=1e-8)
    assert model.sample(3, random_state=0).shape == (3, N)


def test_parameters_of_terms_have_priors_and_bounds_of_their_own() -> None:
    model = gm.GraphGPRegressor(
        ROADS, features=MEASURED, integrate=False,
        bounds={"variance": (0.5, 0.6), "features.variance": (0.2, 0.3)},
        priors={"graph.sigma": gm.LogNormal(0.75, 0.01), "features.smoothing": gm.LogNormal(0.7, 1e-3)},
    ).fit(SEEN, Y)  # fmt: skip
    found = model.hyperparameters_["mode"]
    assert 0.5 <= (found["graph.sigma"] / model.y_scale_) ** 2 <= 0.6
    assert 0.2 <= (found["features.sigma"] / model.y_scale_) ** 2 <= 0.3
    assert found["features.smoothing"] == pytest.approx(0.7, rel=0.01)
    with pytest.raises(gm.errors.InputError, match=r"'graph\.smoothing'"):
        gm.GraphGPRegressor(ROADS, features=MEASURED, bounds={"graph.smoothing": (1.0, 2.0)}).fit(SEEN, Y)
    both = {"features.sigma": gm.LogNormal(1.0, 1.0), "features.variance": gm.LogNormal(1.0, 1.0)}
    with pytest.raises(gm.errors.InputError, match=r"both 'features.sigma' and 'features.variance'"):
        gm.GraphGPRegressor(ROADS, features=MEASURED, priors=both).fit(SEEN, Y)


def test_earlier_files_call_parameters_by_their_places() -> None:
    kernel = gm.Matern(1.5, 2.0, 0.5, fixed=("nu", "lengthscale")) + gm.RBFFeatures(0.5, 1.0, 0.7, fixed=("bandwidth",))
    options: dict[str, Any] = {"features": MEASURED, "integrate": True, "bounds": {"noise": (0.05, 1.0)}}
    model = gm.GraphGPRegressor(ROADS, kernel, **options).fit(SEEN, Y)
    with pytest.warns(gm.errors.NumericalWarning, match="at a bound"):
        errors = model.standard_errors()
    state = model._state()
    drawn = state["integrated"]["draws"]
    for table in (drawn, state["standard_errors"]):
        for place, name in (("terms.0", "graph"), ("terms.1", "features")):
            for word in [label.rpartition(".")[2] for label in list(table) if label.startswith(f"{name}.")]:
                table[f"{place}.{word}"] = table.pop(f"{name}.{word}")
    assert "terms.0.variance" in drawn
    again = gm.GraphGPRegressor(ROADS, kernel, **options)
    again._restore(state)
    expected = model.hyperparameters_
    np.testing.assert_allclose(again.hyperparameters_.loc[expected.index], expected)
    assert again._standard_errors is not None
    assert again._standard_errors.keys() == errors.keys()


def test_bounds_and_priors_name_the_filter() -> None:
    model = gm.GraphGPRegressor(
        ROADS, features=MEASURED, bounds={"smoothing": (0.5, 0.6)}, priors={"bandwidth": gm.LogNormal(1.0, 0.1)},
        integrate=False,
    ).fit(SEEN, Y)  # fmt: skip
    assert 0.5 <= model.kernel_.terms[1].values()["smoothing"] <= 0.6 + 1e-9


@pytest.mark.data
def test_public_split_of_cora() -> None:
    cora = gm.datasets.load_cora(split="public", words=True)
    assert cora.features is not None
    assert cora.features.shape == (2708, 1433)
    assert cora.values["split"].value_counts().to_dict() == {"train": 140, "validation": 500, "test": 1000}
    train = cora.values.index[cora.values["split"] == "train"]
    test = cora.values.index[cora.values["split"] == "test"]
    model = gm.GraphGPClassifier(
        cora.graph, gm.CosineFeatures(4.7, 280.0), features=cora.features, optimizer=None
    ).fit(cora.values["topic"].loc[train])  # fmt: skip
    assert model.score(test, cora.values["topic"].loc[test]) > 0.82
