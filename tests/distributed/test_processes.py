"""The same answers on any number of processes, the same errors, and runs that end together and can go on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest

import graphmatern as gm
from graphmatern.inference import Observations, Problem
from graphmatern.inference.moments.engine import MomentsEngine
from graphmatern.inference.sites.gaussian import GaussianObjective
from graphmatern.likelihoods import Gaussian
from mpi_settings import SETTINGS

if TYPE_CHECKING:
    from collections.abc import Callable

    Launch = Callable[..., subprocess.CompletedProcess[str]]

HERE = Path(__file__).parent


class ManyObservations(MomentsEngine):
    """However few there are."""

    most_dense = 0


def write_case(folder: Path, edges: pd.DataFrame, n_values: int) -> None:
    (folder / "edges").mkdir(parents=True)
    for number, part in enumerate(np.array_split(np.arange(len(edges)), 3)):
        edges.iloc[part].to_csv(folder / "edges" / f"part-{number}.csv", index=False)
    rng = np.random.default_rng(1)
    nodes = rng.choice(pd.unique(edges.iloc[:, :2].to_numpy().ravel()), n_values, replace=False)
    values = np.round(rng.standard_normal(n_values), 3)
    pd.DataFrame({"node": nodes, "value": values}).to_csv(folder / "values.csv", index=False)


def roads() -> pd.DataFrame:
    table: pd.DataFrame = gm.make_roads(2_300, seed=0).edges[["source", "target", "length"]]
    return table


def scale_free() -> pd.DataFrame:
    """With a small component, so that nothing is taken for granted."""
    edges = pd.DataFrame(list(nx.barabasi_albert_graph(300, 2, seed=0).edges), columns=["u", "v"])
    return pd.concat([edges, pd.DataFrame({"u": [900, 901], "v": [902, 902]})], ignore_index=True)


CASES: list[dict[str, Any]] = [
    {"folder": "road", "kernel": "Diffusion", "parameters": {"lengthscale": 0.8, "variance": 0.8}, "normalized": False,
     "engine": "moments", "std": False},
    {"folder": "power", "kernel": "Diffusion", "parameters": {"lengthscale": 1.0, "variance": 1.3}, "normalized": True,
     "engine": "moments", "std": True},
]  # fmt: skip


def on_one_machine(case: dict[str, Any]) -> dict[str, Any]:
    """What the same model says without any of this."""
    folder = Path(case["folder"])
    edges = pd.concat([pd.read_csv(part) for part in sorted((folder / "edges").iterdir())])
    graph = gm.Graph.from_edges(edges, length="length" if "length" in edges else None)
    values = pd.read_csv(folder / "values.csv")
    y = ((values["value"] - values["value"].mean()) / values["value"].std(ddof=0)).to_numpy()
    kernel = getattr(gm, case["kernel"])(**case["parameters"])
    places = pd.Index(graph.nodes).get_indexer(values["node"])
    observations = Observations(places, y[:, None], np.ones((graph.n_nodes, 1)))
    problem = Problem(graph, kernel, Gaussian(0.1), observations, normalized=case["normalized"])
    engine = ManyObservations(problem, observations.groups)
    objective = GaussianObjective(engine, problem)
    theta = np.concatenate([engine.start, objective.start])
    value, gradient = objective(theta)
    nodes, posterior = np.arange(graph.n_nodes), objective.posterior(theta)
    scale = values["value"].std(ddof=0)
    mean = values["value"].mean() + scale * posterior.latent_mean(nodes)[0]
    std = scale * np.sqrt(posterior.latent_variance(nodes)[0]) if case["std"] else None
    return {
        "value": value,
        "gradient": gradient,
        "nodes": [str(node) for node in graph.nodes],
        "mean": mean,
        "std": std,
    }


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("cases")
    write_case(folder / "road", roads(), 300)
    write_case(folder / "power", scale_free(), 80)
    return [{**case, "folder": str(folder / case["folder"])} for case in CASES]


def test_two_processes_agree_with_one_machine(launch: Launch, cases: list[dict[str, Any]], tmp_path: Path) -> None:
    asked, told = tmp_path / "cases.json", tmp_path / "found.json"
    asked.write_text(json.dumps(cases))
    ended = launch(2, str(HERE / "worker.py"), str(asked), str(told))
    assert ended.returncode == 0, ended.stderr
    for case, found in zip(cases, json.loads(told.read_text()), strict=True):
        reference = on_one_machine(case)
        assert min(found["sizes"]) > 0.3 * sum(found["sizes"])  # both have some of the work
        assert found["residual"] < 1e-8
        table = pd.DataFrame(found["columns"], index=found["nodes"]).loc[reference["nodes"]]
        tolerance = 1e-8
        assert found["value"] == pytest.approx(reference["value"], rel=tolerance)
        largest = np.abs(reference["gradient"]).max()
        np.testing.assert_allclose(found["gradient"], reference["gradient"], atol=tolerance * largest)
        np.testing.assert_allclose(table["mean"], reference["mean"], atol=tolerance * np.abs(reference["mean"]).max())
        assert table["informed"].sum() >= 300
        if case["std"]:
            # One machine knows more about the diagonal beforehand, and takes as many probes as it can afford.
            away = (table["std"] - reference["std"]) / (table["std_error"] + 1e-6)
            assert np.sqrt((away**2).mean()) < 1.5
            assert np.abs(away).max() < 6.0


def test_multigrid_agrees_with_polynomials(launch: Launch, cases: list[dict[str, Any]], tmp_path: Path) -> None:
    """The average of the prior variances is estimated in two ways; all else is the same."""
    kernel = {"kernel": "Matern", "parameters": {"nu": 2, "lengthscale": 2.0, "fixed": ["nu"]}, "normalized": False}
    case = {**cases[0], **kernel, "engine": "multigrid"}
    asked, told = tmp_path / "cases.json", tmp_path / "found.json"
    asked.write_text(json.dumps([case]))
    ended = launch(1, str(HERE / "worker.py"), str(asked), str(told))
    assert ended.returncode == 0, ended.stderr
    (found,), reference = json.loads(told.read_text()), on_one_machine(case)
    assert found["value"] == pytest.approx(reference["value"], rel=2e-3)
    np.testing.assert_allclose(found["gradient"], reference["gradient"], rtol=2e-2)
    table = pd.DataFrame(found["columns"], index=found["nodes"]).loc[reference["nodes"]]
    np.testing.assert_allclose(table["mean"], reference["mean"], atol=1e-2 * np.abs(reference["mean"]).max())


# ---------------------------------------------------------------------- bad input
def bad_input(folder: Path) -> None:
    def case(name: str, parts: dict[str, str], values: str = "node,value\n1,2.0\n") -> None:
        (folder / name / "edges").mkdir(parents=True)
        for file, text in parts.items():
            (folder / name / "edges" / file).write_text(text)
        (folder / name / "values.csv").write_text(values)

    good = {"a.csv": "source,target,weight\n1,2,1.0\n2,3,1.0\n", "b.csv": "source,target,weight\n3,4,1.0\n4,5,2.0\n"}
    case("good", good)
    case("unknown", good, "node,value\n1,2.0\n77,1.0\n")
    case("repeated", {**good, "b.csv": "source,target,weight\n3,4,1.0\n2,1,2.0\n"})
    case("empty", {**good, "b.csv": "source,target,weight\n"})
    case("nothing", {**good, "b.csv": ""})
    case("column", {**good, "b.csv": "source,target\n3,4\n"})
    case("negative", {**good, "b.csv": "source,target,weight\n3,4,1.0\n4,5,-2.0\n"})
    case("nameless", {**good, "a.csv": "source,target,weight\n1,2,1.0\n,3,1.0\n"})
    case("words", {**good, "b.csv": "source,target,weight\n3,four,1.0\n"}, "node,value\nfour,2.0\n1,x\n")


SAID = {
    "good": [""],
    "unknown": ["`node` must name nodes of the graph", "77", "values.csv, row 2"],
    "repeated": ["must not repeat a pair of nodes", "a.csv, row 1", "b.csv, row 2", "parallel="],
    "empty": ["must have rows", "b.csv", "only a header"],
    "nothing": ["b.csv", "an empty file"],
    "column": ["must have the column 'weight'", "b.csv"],
    "negative": ["`weight` must be at least 0", "'-2.0' in b.csv, row 2"],
    "nameless": ["`source` must name a node", "a.csv, row 2"],
    "words": ["`value` must hold numbers", "'x' in values.csv, row 2"],
}


@pytest.mark.parametrize("n_processes", [1, 3])
def test_bad_input_is_told_by_file_and_row(launch: Launch, n_processes: int, tmp_path: Path) -> None:
    bad_input(tmp_path / "bad")
    ended = launch(n_processes, str(HERE / "faulty_worker.py"), str(tmp_path / "bad"), str(tmp_path / "said.json"))
    assert ended.returncode == 0, ended.stderr
    said = json.loads((tmp_path / "said.json").read_text())
    assert set(said) == set(SAID)
    for name, words in SAID.items():
        for word in words:
            assert word in said[name], name
    assert said["good"] == ""


# ---------------------------------------------------------------------- runs that are stopped
def command(out: Path, folder: Path) -> list[str]:
    options = [
        "--kernel",
        "diffusion",
        "--lengthscale",
        "1",
        "--laplacian",
        "normalized",
        "--no-std",
        "--out",
        str(out),
    ]
    return ["-m", "graphmatern.distributed", "fit", str(folder / "edges"), str(folder / "values.csv"), *options]


def test_a_killed_run_ends_and_goes_on(launch: Launch, tmp_path: Path) -> None:
    write_case(tmp_path, scale_free(), 200)
    whole = launch(1, *command(tmp_path / "whole", tmp_path))
    assert whole.returncode == 0, whole.stderr
    assert not (tmp_path / "whole.checkpoint.json").exists()
    killed, checkpoint = tmp_path / "killed", tmp_path / "killed.checkpoint.json"
    environment = {**os.environ, **SETTINGS}
    arguments = ["mpiexec", "-n", "2", sys.executable, *command(killed, tmp_path)]
    running = subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True, env=environment)
    while running.poll() is None and not (checkpoint.exists() and checkpoint.read_text().count('"what"') >= 3):
        time.sleep(0.05)
    assert running.poll() is None, "the run ended before it could be killed: give it more to do"
    victims = subprocess.run(["pgrep", "-P", str(running.pid)], capture_output=True, text=True, check=False)
    os.kill(int(victims.stdout.split()[-1]), signal.SIGKILL)
    _, said = running.communicate(timeout=60)
    assert running.returncode != 0
    assert "signal 9" in said
    assert not killed.exists()
    assert checkpoint.exists()
    again = launch(1, *command(killed, tmp_path))
    assert again.returncode == 0, again.stderr
    assert "continuing from killed.checkpoint.json" in again.stderr
    first, second = (json.loads((folder / "model.json").read_text()) for folder in (tmp_path / "whole", killed))
    for name, value in first["parameters"].items():
        assert second["parameters"][name] == pytest.approx(value, rel=1e-5)
    assert second["noise"] == pytest.approx(first["noise"], rel=1e-5)
    tables = [pd.read_parquet(folder / "predictions") for folder in (tmp_path / "whole", killed)]
    np.testing.assert_allclose(tables[1].loc[tables[0].index, "mean"], tables[0]["mean"], atol=1e-4)
    assert len(tables[0]) == 303


def test_a_failing_process_ends_the_run(launch: Launch, tmp_path: Path) -> None:
    script = tmp_path / "failing.py"
    script.write_text(
        "from graphmatern.distributed._processes import ending_together, world\n"
        "processes = world()\n"
        "with ending_together(processes):\n"
        "    if processes.rank == 1:\n"
        "        raise ValueError('the disk is full')\n"
        "    processes.wait()\n"
    )
    ended = launch(2, str(script), timeout=60.0)
    assert ended.returncode != 0
    assert "process 1 of 2" in ended.stderr
    assert "the disk is full" in ended.stderr


def test_wrong_options_are_told_once(launch: Launch, tmp_path: Path) -> None:
    write_case(tmp_path, scale_free(), 20)
    ended = launch(2, *command(tmp_path, tmp_path))  # a folder that is there
    assert ended.returncode != 0
    assert ended.stderr.count("already exists") == 1


def test_graphs_are_partitioned_unless_they_have_hubs(launch: Launch) -> None:
    """A grid whose nodes come in a random order is cut well; a star cannot be, and keeps its order."""
    ended = launch(2, str(Path(__file__).parent / "partition_worker.py"))
    assert ended.returncode == 0, ended.stderr
    (cut, in_order), (_, star_in_order) = json.loads(ended.stdout).values()
    assert cut < 0.1
    assert not in_order
    assert star_in_order
