"""Model files that earlier versions wrote: each is read, and predicts what that version predicted."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest

import graphmatern as gm

if TYPE_CHECKING:
    from collections.abc import Callable

FILES = sorted((Path(__file__).parents[1] / "models").glob("*.gm"))


def of_regressor(model: gm.GraphGPRegressor, recorded: dict[str, Any]) -> dict[str, Any]:
    nodes = recorded["nodes"]
    mean, std = model.predict(nodes, return_std=True)
    seen, noisy = model.predict(nodes, return_std=True, observation=True)
    table, coefficients = model.predict_table().loc[nodes], model.coefficients_
    return {
        "mean": mean, "std": std, "observation_mean": seen, "observation_std": noisy, "engine_": model.engine_,
        "likelihood": repr(model.likelihood_), "noise_": model.noise_,
        "log_marginal_likelihood_": model.log_marginal_likelihood_,
        "table": {str(column): table[column].to_numpy() for column in table.columns},
        "coefficients": {"mean": coefficients["mean"].to_numpy(), "std": coefficients["sd"].to_numpy()},
    }  # fmt: skip


def of_classifier(model: gm.GraphGPClassifier, recorded: dict[str, Any]) -> dict[str, Any]:
    mean, std = model.predict_latent(recorded["nodes"])
    return {
        "probabilities": model.predict_proba(recorded["nodes"]), "latent_mean": mean, "latent_std": std,
        "elbo_": model.elbo_, "classes": model.classes_.tolist(), "inference_": model.inference_,
    }  # fmt: skip


def of_field(model: gm.GraphFieldRegressor, recorded: dict[str, Any]) -> dict[str, Any]:
    times = pd.DatetimeIndex(recorded["times"])
    mean, std = model.predict(recorded["nodes"], times, return_std=True)
    noisy = model.predict(recorded["nodes"], times, return_std=True, observation=True)[1]
    parameters = {name: raw.detach().numpy() for name, raw in model.time_kernel_.named_parameters()}
    return {
        "mean": mean, "std": std, "observation_std": noisy, "time_parameters": parameters, "engine_": model.engine_,
        "noise_": model.noise_, "log_marginal_likelihood_": model.log_marginal_likelihood_,
    }  # fmt: skip


FOUND: dict[str, Callable[[Any, dict[str, Any]], dict[str, Any]]] = {
    "GraphGPRegressor": of_regressor,
    "GraphGPClassifier": of_classifier,
    "GraphFieldRegressor": of_field,
}


def compare(found: Any, recorded: Any, name: str) -> None:
    if isinstance(recorded, dict):
        for key, value in recorded.items():
            compare(found[key], value, f"{name} {key}")
    elif name == "likelihood":  # known noise is held, which earlier versions did not say
        assert found.replace(", fixed=('noise',)", "") == recorded
    elif isinstance(recorded, str) or (isinstance(recorded, list) and isinstance(recorded[0], str | bool)):
        assert list(found) == list(recorded), name
    else:
        # Written in full, computed again: six digits leave room for the order of sums only.
        np.testing.assert_allclose(found, recorded, rtol=1e-6, atol=1e-6, err_msg=name)


def test_there_are_files_of_every_kind() -> None:
    kinds = {json.loads(path.with_suffix(".json").read_text())["kind"] for path in FILES}
    assert kinds == set(FOUND)
    assert len(FILES) >= 19


def assert_as_recorded(model: Any, recorded: dict[str, Any]) -> None:
    assert type(model).__name__ == recorded["kind"]
    expected = recorded["expected"]
    found = FOUND[recorded["kind"]](model, expected)
    assert repr(model.kernel_) == expected["kernel"]
    for name in found.keys() & expected.keys():
        compare(found[name], expected[name], name)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_old_files_predict_as_they_did(path: Path) -> None:
    assert_as_recorded(gm.load(path), json.loads(path.with_suffix(".json").read_text()))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_old_models_can_be_copied_and_written_again(path: Path, tmp_path: Path) -> None:
    """From then on as models of this version, which predict the same."""
    recorded, model = json.loads(path.with_suffix(".json").read_text()), gm.load(path)
    assert_as_recorded(copy.deepcopy(model), recorded)
    model.save(tmp_path / "again.gm")
    assert_as_recorded(gm.load(tmp_path / "again.gm"), recorded)
