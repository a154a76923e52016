"""Reproducing the paper: work that is kept, the table, the figures."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import spearmanr
from typer.testing import CliRunner

import slow_tasks
from graphmatern.cli._app import app
from graphmatern.errors import InputError
from graphmatern.reproduce import Options, reproduce
from graphmatern.reproduce._figures_theory import small_graphs, variances
from graphmatern.reproduce._kernels import Protocol
from graphmatern.reproduce._machine import environment
from graphmatern.reproduce._paper import CELLS, PAPER_TABLE
from graphmatern.reproduce._sphere import convergence, icosphere, sphere_kernel
from graphmatern.reproduce._table import Spread, ranking_holds, table_json, table_markdown, table_tasks, z_score
from graphmatern.reproduce._tasks import Outcome, Task, run_tasks


# ---------------------------------------------------------------------- work that is kept
def times_done(log: Path) -> int:
    return len(log.read_text().splitlines()) if log.exists() else 0


@pytest.mark.parametrize("processes", [1, 2])
def test_finished_work_is_not_done_again(tmp_path: Path, processes: int) -> None:
    log, folder = tmp_path / "log", tmp_path / "cells"
    first = run_tasks(slow_tasks.tasks(log, 0.0, 4), folder, processes=processes)
    again = run_tasks(slow_tasks.tasks(log, 0.0, 5), folder, processes=processes)
    assert (first.n_computed, first.n_kept, again.n_computed, again.n_kept) == (4, 0, 1, 4)
    assert times_done(log) == 5
    assert again.results == {f"square-{k}": {"square": k**2} for k in range(5)}
    assert {name: again.seconds[name] for name in first.seconds} == first.seconds


def test_other_arguments_and_damaged_files_are_done_again(tmp_path: Path) -> None:
    log, folder = tmp_path / "log", tmp_path / "cells"
    run_tasks(slow_tasks.tasks(log, 0.0, 3), folder, processes=1)
    (folder / "square-0.json").write_text('{"identity"')
    (folder / "square-1.json").write_text("[1]\n")
    assert run_tasks(slow_tasks.tasks(log, 0.0, 3), folder, processes=1).n_computed == 2
    assert run_tasks(slow_tasks.tasks(log, 0.001, 3), folder, processes=1).n_computed == 3


def fail(number: int) -> dict[str, Any]:
    raise ZeroDivisionError(number)


def test_a_failure_names_the_task_and_keeps_what_is_done(tmp_path: Path) -> None:
    log = tmp_path / "log"
    todo = [*slow_tasks.tasks(log, 0.0, 2), Task("broken", fail, {"number": 3})]
    with pytest.raises(ZeroDivisionError) as caught:
        run_tasks(todo, tmp_path, processes=1)
    assert caught.value.__notes__ == ["while doing broken"]
    assert run_tasks(slow_tasks.tasks(log, 0.0, 2), tmp_path, processes=1).n_kept == 2


def test_killed_half_way_and_started_again(tmp_path: Path) -> None:
    log, folder = tmp_path / "log", tmp_path / "cells"
    pause = 0.25
    arguments = [sys.executable, slow_tasks.__file__, str(folder), str(log), str(pause)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(arguments, env=environment)
    try:
        end = time.monotonic() + 120
        while len(list(folder.glob("square-*.json"))) < 4:
            assert time.monotonic() < end, "the work did not begin"
            time.sleep(0.02)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    wait_until_gone(pids(log))
    kept = len(list(folder.glob("square-*.json")))
    begun = times_done(log)
    assert 4 <= kept < 16, "killed too late to show anything"
    assert begun - kept <= 2
    outcome = run_tasks(slow_tasks.tasks(log, pause), folder, processes=1)
    assert (outcome.n_kept, outcome.n_computed) == (kept, 16 - kept)
    assert times_done(log) == begun + 16 - kept
    assert outcome.results == {f"square-{k}": {"square": k**2} for k in range(16)}


def pids(log: Path) -> set[int]:
    return {int(line.split()[1]) for line in log.read_text().splitlines()}


def wait_until_gone(processes: set[int]) -> None:
    """Processes end with the one that started them, even where it was killed."""
    end = time.monotonic() + 30
    for pid in processes:
        while Path(f"/proc/{pid}").exists() and " Z " not in Path(f"/proc/{pid}/stat").read_text():
            assert time.monotonic() < end, "a process outlived the one that started it"
            time.sleep(0.02)


def test_nothing_that_names_the_machine_is_recorded() -> None:
    text = json.dumps(environment())
    assert os.uname().nodename not in text
    assert str(Path.home()) not in text
    assert "torch" in text


# ---------------------------------------------------------------------- the table
def invented_outcome(seeds: list[int]) -> Outcome:
    """Scores as in the paper, with a known spread."""
    results, seconds = {}, {}
    for task in table_tasks(seeds, Protocol()):
        cell = next(cell for cell in CELLS if task.name.startswith(f"{cell.name}-"))
        mean, sd = PAPER_TABLE.get(cell, (0.5, 0.1))
        score = mean + sd * (-1.0) ** task.arguments["seed"]
        scores = dict.fromkeys(
            ["rmse", "nlpd", "coverage_50", "coverage_95", "accuracy", "log_loss", "calibration_error"], score
        )
        results[task.name] = {"scores": scores, "learned": {"nu": 2.0}}
        seconds[task.name] = 0.25
    return Outcome(results, seconds, len(results), 0, 1.0)


def test_table_holds_every_cell_beside_the_papers() -> None:
    cells = table_json([0, 1, 2, 3], invented_outcome([0, 1, 2, 3]))
    assert len(cells) == len(CELLS)
    first = cells[0]
    assert first["values"] == pytest.approx([12.55, 11.17, 12.55, 11.17])
    assert first["mean"] == pytest.approx(11.86)
    assert first["sd"] == pytest.approx(0.69 * np.sqrt(4 / 3))
    assert first["paper"] == {"mean": 11.86, "sd": 0.69}
    assert first["z"] == pytest.approx(0.0, abs=1e-9)
    assert first["within_two_standard_errors_or_better"] is True
    assert first["seconds"]["values"] == [0.25] * 4
    assert first["nu"]["paper"] == {"mean": 1.8, "sd": 0.9}
    assert ranking_holds(cells)
    cells[0]["mean"], cells[2]["mean"] = 13.0, 11.0
    assert not ranking_holds(cells)
    text = table_markdown(cells)
    assert "| Δ | Matérn | 11.86 (0.80) | 11.86 (0.69) | +0.0 |" in text
    assert "training mean" in text


def test_z_score_combines_standard_errors() -> None:
    ours = Spread([1.0, 3.0])  # standard error 1
    assert z_score(ours, (0.0, 0.0)) == pytest.approx(2.0)
    assert z_score(ours, (0.0, np.sqrt(10.0))) == pytest.approx(2.0 / np.sqrt(2.0))
    assert z_score(Spread([1.0]), (0.0, 1.0)) is None


def test_options_are_checked() -> None:
    with pytest.raises(InputError, match=r"`recipe` must be 'fast' or 'paper'"):
        Options(recipe="slow")
    with pytest.raises(InputError, match="2 faults"):
        Options(repeats=0, processes=0)
    assert Options(repeats=5, seed=3).seeds == [3, 4, 5, 6, 7]
    assert len(Options(quick=True).seeds) == 2


def test_unknown_targets_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"`target` must be 'table1' or 'figure1'"):
        reproduce(["figure9"], tmp_path / "results", Options())
    assert not (tmp_path / "results").exists()


# ---------------------------------------------------------------------- figures 1 and 2
def test_variances_follow_the_shape_of_the_graph() -> None:
    found = variances(0)
    complete, star = (np.array(found[name]["variance"]) for name in ("complete graph", "star"))
    np.testing.assert_allclose(complete, 1.0, rtol=1e-10)
    assert star[0] < star[1:].min()
    assert all(graph.n_nodes == 20 and graph.n_components == 1 for graph in small_graphs(0).values())
    tree = found["random tree"]
    leaves = np.array(tree["variance"])[np.array(tree["degree"]) == 1]
    assert np.ptp(leaves) > 0.1, "nodes of equal degree can have different variances"


def test_mesh_kernels_converge_to_the_spheres_with_second_order() -> None:
    vertices, triangles = icosphere(3)
    assert (len(vertices), len(triangles)) == (642, 1280)
    np.testing.assert_allclose(np.linalg.norm(vertices, axis=1), 1.0)
    assert vertices[:, 2].max() == pytest.approx(1.0)
    assert len(np.unique(triangles)) == 642
    found = convergence([2, 3, 4], [2.0], degree=6)
    assert min(found["orders"]["2"]) > 1.8
    assert found["errors"]["2"][-1] < 0.01


def test_the_spheres_kernel_has_the_right_limit() -> None:
    # ν = 2 on the graph is ν = 1 on the sphere; for a short lengthscale that is nearly the plane's kernel, whose
    # correlation is x K₁(x) with x = √2 r / κ.
    from scipy.special import kv

    from graphmatern.reproduce import _sphere

    angle = np.array([0.02, 0.05, 0.1, 0.2])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_sphere, "LENGTHSCALE", 0.05)
        found = sphere_kernel(np.cos(angle), 2.0, degree=2000)
    x = np.sqrt(2.0) * angle / 0.05
    np.testing.assert_allclose(found, x * kv(1, x), atol=2e-3)


# ---------------------------------------------------------------------- with the real data
@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a trial run of all targets writes."""
    if not os.environ.get("GRAPHMATERN_DATA"):
        pytest.skip("GRAPHMATERN_DATA is not set: the real data sets are not at hand")
    out = tmp_path_factory.mktemp("results")
    found = CliRunner().invoke(
        app, ["reproduce", "all", "--quick", "--repeats", "1", "--processes", "1", "--out", str(out)]
    )
    assert found.exit_code == 0, found.output
    assert "A trial run" in found.output
    return out


@pytest.mark.data
def test_a_trial_run_writes_everything(results: Path) -> None:
    from graphmatern.reproduce._figures import FIGURES

    for name in FIGURES:
        assert (results / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert (results / f"{name}.pdf").read_bytes().startswith(b"%PDF")
        assert len(json.loads((results / f"{name}.json").read_text())["caption"]) > 50
    table = json.loads((results / "table1.json").read_text())
    assert table["options"]["quick"] is True
    assert table["environment"]["versions"]["numpy"] == np.__version__
    assert [len(cell["values"]) for cell in table["cells"]] == [1] * len(CELLS)
    scores = {(cell["experiment"], cell["laplacian"], cell["method"]): cell["mean"] for cell in table["cells"]}
    assert scores["traffic", "Δ", "Matérn"] < 14.5 < scores["traffic", "–", "training mean"]
    assert scores["cora", "Δ", "Matérn"] > 0.7 > scores["cora", "–", "nearest neighbours on the graph"]
    assert "Matérn" in (results / "table1.md").read_text()
    assert not list(results.rglob(".graphmatern-*"))


@pytest.mark.data
def test_a_second_run_computes_nothing_and_gives_the_same_table(results: Path) -> None:
    before = json.loads((results / "table1.json").read_text())
    texts: list[str] = []
    reproduce(["table1"], results, Options(quick=True, repeats=1), texts.append)
    after = json.loads((results / "table1.json").read_text())
    assert after["cells"] == before["cells"]
    assert after["run"]["splits_computed"] == 0
    assert "0 splits computed" in texts[0]


@pytest.fixture(scope="module")
def traffic(results: Path) -> dict[str, Any]:
    kept = json.loads((results / "cells" / "fast" / "figures3-4-traffic.json").read_text())
    result: dict[str, Any] = kept["result"]
    return result


@pytest.mark.data
def test_uncertainty_rises_with_the_distance_to_the_nearest_sensor(traffic: dict[str, Any]) -> None:
    distance, std = np.array(traffic["distance_to_nearest_sensor_m"]), np.array(traffic["std"])
    assert spearmanr(distance, std).pvalue < 1e-20
    # Near a sensor the other sensors around it decide; from 500 m on the distance does.
    far = distance > 500.0
    assert spearmanr(distance[far], std[far]).statistic > 0.5
    classes = np.digitize(distance, [500.0, 1000.0, 2000.0, 4000.0])
    assert (np.diff([std[classes == k].mean() for k in range(5)]) > 0.2).all()


@pytest.mark.data
def test_opposite_carriageways_differ(traffic: dict[str, Any]) -> None:
    pair = traffic["opposite_sensors"]
    assert pair["metres_across"] < 60.0
    assert pair["metres_by_road"] > 1000.0
    assert abs(np.subtract(*pair["mean_mph"])) > 15.0
