"""A search that is written down goes on from where it was stopped."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import graphmatern as gm
from graphmatern.errors import NumericalError
from graphmatern.inference import Observations, Problem, Search, learn
from graphmatern.inference.learning.journal import Journal
from graphmatern.likelihoods import Gaussian


class StoppedError(Exception):
    """As if somebody had pulled the plug."""


def fitted(journal: Journal | None, engine: str = "spectral") -> Any:
    graph = gm.make_roads(200, seed=0)
    rng = np.random.default_rng(0)
    nodes = rng.choice(graph.n_nodes, 80, replace=False)
    y = np.cumsum(rng.standard_normal(80))
    observations = Observations(nodes, ((y - y.mean()) / y.std())[:, None], np.ones((graph.n_nodes, 1)))
    search = Search(progress=False, journal=journal)
    return learn(Problem(graph, gm.Matern(1.5, 3.0), Gaussian(), observations, search=search), engine)


@pytest.mark.parametrize("after", [1, 4])
def test_a_search_goes_on_from_where_it_was_stopped(after: int) -> None:
    kept: list[str] = []

    def save(entries: list[dict[str, Any]]) -> None:
        kept.append(json.dumps(entries))
        if len(kept) == after:
            raise StoppedError

    with pytest.raises(StoppedError):
        fitted(Journal([], save))
    counted: list[int] = []
    again = fitted(Journal(json.loads(kept[-1]), lambda entries: counted.append(len(entries))))
    whole = fitted(None)
    assert counted[0] == after + 1  # nothing that was known is computed again
    np.testing.assert_array_equal(again.optimum.position, whole.optimum.position)
    assert again.optimum.n_evaluations == whole.optimum.n_evaluations
    assert again.log_evidence == whole.log_evidence


def test_a_finished_search_is_not_repeated() -> None:
    kept: list[list[dict[str, Any]]] = []
    whole = fitted(Journal([], lambda entries: kept.append(list(entries))))

    def refuse(entries: list[dict[str, Any]]) -> None:
        raise AssertionError("nothing new was asked for")

    again = fitted(Journal(kept[-1], refuse))
    np.testing.assert_array_equal(again.optimum.position, whole.optimum.position)
    nodes = np.arange(20)
    np.testing.assert_allclose(again.posterior.latent_mean(nodes), whole.posterior.latent_mean(nodes), rtol=1e-12)


def test_another_path_is_not_taken_for_this_one() -> None:
    journal = Journal([{"what": "evaluation", "at": [1.0, 2.0], "value": 0.0}] * 2, lambda _: None)
    assert journal.recall("evaluation", np.array([1.0, 2.0 + 1e-12])) is not None
    assert journal.recall("evaluation", np.array([1.0, 2.1])) is None
    assert journal.recall("evaluation", np.array([1.0, 2.0])) is None  # what came after is of no use


def test_breakdowns_are_remembered() -> None:
    failed = {"what": "evaluation", "at": None, "failed": "nothing converged"}
    entries: list[dict[str, Any]] = []
    fitted(Journal([], lambda found: entries.extend(found[len(entries) :])))
    failed["at"] = entries[0]["at"]
    with pytest.raises(NumericalError, match="nothing converged"):
        learn_first(failed)


def learn_first(entry: dict[str, Any]) -> None:
    """Evaluate where the search begins, with that entry known."""
    from graphmatern.inference.sites.recorded import RecordedObjective
    from graphmatern.inference.spectral.engine import SpectralEngine

    graph = gm.make_roads(200, seed=0)
    observations = Observations(np.arange(5), np.arange(5.0)[:, None], np.ones((graph.n_nodes, 1)))
    search = Search(journal=Journal([entry], lambda _: None))
    problem = Problem(graph, gm.Matern(1.5, 3.0), Gaussian(), observations, search=search)
    objective = RecordedObjective(SpectralEngine(problem, observations.groups), problem)
    objective(np.array(entry["at"]))
