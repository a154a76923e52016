"""How sure class probabilities should be."""

from pathlib import Path

import numpy as np
import pytest

import graphmatern as gm
from graphmatern.inference import learned_temperature, tempered

CITY = gm.make_roads(300, seed=0)
EAST = np.asarray(CITY.positions)[:, 0]
LABELS = np.where(EAST.mean() > EAST, "west", "east")


def drawn(n: int, temperature: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Shares, and labels that are drawn from tempered ones."""
    rng = np.random.default_rng(seed)
    share = rng.dirichlet([0.8, 0.8, 0.8, 0.8], n)
    true = share ** (1.0 / temperature)
    true /= true.sum(axis=1, keepdims=True)
    return share, (rng.random((n, 1)) > np.cumsum(true, axis=1)[:, :-1]).sum(axis=1)


@pytest.mark.parametrize("temperature", [0.6, 1.7])
def test_the_temperature_of_the_labels_is_found(temperature: float) -> None:
    assert learned_temperature(*drawn(4000, temperature, seed=1)) == pytest.approx(temperature, rel=0.06)


def test_labels_from_the_model_itself_leave_it_at_one() -> None:
    found = [learned_temperature(*drawn(80, 1.0, seed)) for seed in range(60)]
    assert np.mean(np.array(found) == 1.0) > 0.9


def test_tempered_shares_keep_their_order_and_sum() -> None:
    share, _ = drawn(50, 1.0, seed=3)
    sharper = tempered(share, 0.5)
    np.testing.assert_allclose(sharper, share**2 / (share**2).sum(axis=1, keepdims=True), rtol=1e-12)
    assert (sharper.argsort(axis=1) == share.argsort(axis=1)).all()
    assert tempered(share, 1.0) is share
    assert tempered(np.array([[1.0, 0.0]]), 0.5).tolist() == [[1.0, 0.0]]


def test_labels_that_stand_alone_do_not_count() -> None:
    share, codes = drawn(400, 0.5, seed=4)
    with_gaps = np.vstack([share, np.full((3, 4), np.nan)])
    assert learned_temperature(with_gaps, np.concatenate([codes, [0, 1, 2]])) == learned_temperature(share, codes)


def test_a_cautious_kernel_is_made_surer_and_everything_follows(tmp_path: Path) -> None:
    """A prior variance that is held too low: every label left out is predicted, with little confidence."""
    kernel = gm.Matern(nu=1.5, lengthscale=15.0, variance=0.3, fixed=("nu", "variance"))
    seen = np.arange(0, CITY.n_nodes, 4)
    model = gm.GraphGPClassifier(CITY, kernel, integrate=False).fit(CITY.nodes[seen], LABELS[seen])
    rest = np.setdiff1d(np.arange(CITY.n_nodes), seen)
    codes = (model.classes_[1] == LABELS).astype(int)
    raw, share = model.posterior_.class_probabilities(rest), model.predict_proba(CITY.nodes[rest])
    own = np.arange(len(rest)), codes[rest]
    assert model.temperature_ < 0.8
    assert np.log(share[own]).mean() > np.log(raw[own]).mean() + 0.05
    np.testing.assert_array_equal(share.argmax(axis=1), raw.argmax(axis=1))
    assert f"temperature {model.temperature_:.2f}: surer" in model.summary()
    assert model.loo()["probability"].mean() > np.exp(np.log(raw[own]).mean())
    model.save(tmp_path / "model.gm")
    loaded = gm.load(tmp_path / "model.gm")
    assert loaded.temperature_ == model.temperature_
    np.testing.assert_allclose(loaded.predict_proba(CITY.nodes[rest]), share, rtol=1e-8)
    more = model.condition_on(CITY.nodes[rest[:3]], LABELS[rest[:3]])
    assert more.temperature_ == model.temperature_


def test_parameters_that_are_given_are_taken_as_they_are() -> None:
    kernel = gm.Matern(nu=1.5, lengthscale=15.0, variance=0.3)
    model = gm.GraphGPClassifier(CITY, kernel, optimizer=None).fit(CITY.nodes[::4], LABELS[::4])
    assert model.temperature_ == 1.0
    np.testing.assert_array_equal(model.predict_proba(), model.posterior_.class_probabilities(np.arange(CITY.n_nodes)))
