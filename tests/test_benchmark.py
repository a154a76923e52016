"""The benchmark's harness: statistics, resuming, limits, aims, report. Nothing here measures."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphmatern.cli._benchmark import run_benchmark
from graphmatern.errors import DataNotFoundError
from harness.aims import aims_of
from harness.environments import Environments, UnavailableError
from harness.processes import run_worker, without_paths
from harness.report import BEGIN, END, load_stores, render, write_readme, write_report
from harness.running import Runner
from harness.sections import SECTIONS, check_sections, tasks_of
from harness.splits import compared, our_form
from harness.statistics import exponent, largest_within, predicted, summarise
from harness.store import Store
from harness.summary import summary_rows
from harness.task import Task

ROOT = Path(__file__).parents[1]
MACHINE = {
    "date": "2026-01-01", "mode": "standard", "cores": 2, "processor": "a processor", "memory_gib": 8.0,
    "system": "Linux x86_64", "python": "3.11", "limit_seconds": 300.0, "minutes": 1.0,
    "versions": {"ours": {"graphmatern": "0.1", "numpy": "2.0"}, "gpflow": "cannot be installed: no wheel"},
}  # fmt: skip


# ---------------------------------------------------------------------- statistics
def test_summaries_have_median_and_spread() -> None:
    summary = summarise([3.0, 1.0, 2.0, float("nan")])
    assert summary is not None
    assert (summary.median, summary.least, summary.largest, summary.count) == (2.0, 1.0, 3.0, 3)
    assert summarise([]) is None


def test_exponents_are_those_of_power_laws() -> None:
    points = [(n, 3e-4 * n**1.7) for n in (100.0, 1000.0, 5000.0)]
    slope = exponent(points)
    assert slope == pytest.approx(1.7)
    sizes, costs = np.log(points).T
    assert slope == pytest.approx(np.polyfit(sizes, costs, 1)[0])
    assert exponent(points[:1]) is None
    assert predicted(points, 20_000.0) == pytest.approx(3e-4 * 20_000**1.7)
    assert largest_within(points, 300.0) == pytest.approx((300.0 / 3e-4) ** (1 / 1.7))


def test_predictions_use_the_largest_sizes_and_sane_slopes() -> None:
    flat = [(100.0, 1.0), (1000.0, 0.9), (10_000.0, 9.0)]
    assert predicted(flat, 100_000.0) == pytest.approx(90.0)
    assert predicted(flat[:2], 10_000.0) == pytest.approx(9.0)  # nothing gets cheaper with its size
    assert predicted(flat[:1], 1000.0) is None


# ---------------------------------------------------------------------- sections
def test_unknown_sections_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"no section 'trafic'.*traffic, cora"):
        check_sections(["traffic", "trafic"])
    assert check_sections([]) == list(SECTIONS)
    assert check_sections(["cora"]) == ["cora"]


def test_the_command_refuses_unknown_sections() -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "run.py"), "--section", "trafic"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "there is no section 'trafic'" in done.stderr


@pytest.mark.parametrize("section", SECTIONS)
@pytest.mark.parametrize("mode", ["quick", "standard", "full"])
def test_every_task_has_a_key_of_its_own_and_a_worker(section: str, mode: str) -> None:
    tasks = tasks_of(section, mode, peers=True)
    assert len({task.key for task in tasks}) == len(tasks)
    for task in tasks:
        assert not task.script or (ROOT / "benchmarks" / "workers" / task.script).is_file()
        assert (
            task.environment == "ours" or (ROOT / "benchmarks" / "requirements" / f"{task.environment}.txt").is_file()
        )
    alone = tasks_of(section, mode, peers=False)
    assert alone
    assert {task.environment for task in alone} == {"ours"}


def test_requirements_are_pinned() -> None:
    for file in (ROOT / "benchmarks" / "requirements").glob("*.txt"):
        lines = [line for line in file.read_text().splitlines() if not line.startswith(("#", "--"))]
        assert lines
        assert all("==" in line and "+" not in line and "/" not in line for line in lines), file.name


# ---------------------------------------------------------------------- running
class Answers(Runner):
    """A runner whose answers are known."""

    def __init__(self, folder: Path, cost: float = 1.0, **options: Any) -> None:
        super().__init__(Environments(folder), folder, **options)
        self.cost = cost
        self.ran: list[str] = []
        self.fails: set[str] = set()

    def run(self, task: Task) -> dict[str, Any]:
        """Cost grows with the square of the size."""
        self.ran.append(f"{task.peer}{task.size or ''}")
        if self.ran[-1] in self.fails:
            return {"error": "more than 300 s"}
        return {"seconds": self.cost * max(task.size, 1) ** 2, "wall": 0.0}


def tasks_named(*names: str, repeats: int = 1) -> list[Task]:
    return [Task(name, "ours", "ours.py", {}, {"split": 0}, repeats=repeats) for name in names]


def test_repeats_are_interleaved_and_resumed(tmp_path: Path) -> None:
    runner = Answers(tmp_path)
    runner.section(tasks_named("a", "b", repeats=2), Store(tmp_path, "x"))
    assert runner.ran == ["a", "b", "a", "b"]
    again = Answers(tmp_path)
    again.section(tasks_named("a", "c", "b", repeats=3), Store(tmp_path, "x"))
    assert again.ran == ["c", "c", "a", "c", "b"]
    store = Store(tmp_path, "x")
    assert [len(store.runs(task.key)) for task in tasks_named("a", "b", "c")] == [3, 3, 3]


def test_failures_end_a_task_and_are_kept(tmp_path: Path) -> None:
    runner = Answers(tmp_path)
    runner.fails = {"a"}
    runner.section(tasks_named("a", "b", repeats=2), Store(tmp_path, "x"))
    assert runner.ran == ["a", "b", "b"]
    assert Store(tmp_path, "x").failure(tasks_named("a")[0].key) == "more than 300 s"


def sized(*sizes: int) -> list[Task]:
    return [Task("a", "ours", "ours.py", {}, {"nodes": size}, size=size) for size in sizes]


def test_hopeless_sizes_are_not_started_until_patience_grows(tmp_path: Path) -> None:
    runner = Answers(tmp_path, cost=1e-4, patience=100.0)
    tasks = sized(100, 1000, 10_000, 100_000)
    runner.section(tasks, Store(tmp_path, "x"))
    assert runner.ran == ["a100", "a1000"]
    store = Store(tmp_path, "x")
    assert "about 10000 s at 10,000 nodes" in str(store.failure(tasks[2].key))
    assert store.failure(tasks[3].key) == store.failure(tasks[2].key)
    patient = Answers(tmp_path, cost=1e-4, patience=20_000.0)
    patient.section(tasks, store)
    assert patient.ran == ["a10000"]
    assert store.failure(tasks[2].key) is None


def test_after_a_failure_larger_sizes_are_not_started(tmp_path: Path) -> None:
    runner = Answers(tmp_path, cost=1e-9)
    runner.fails = {"a1000"}
    store = Store(tmp_path, "x")
    runner.section(sized(100, 1000, 10_000), store)
    assert runner.ran == ["a100", "a1000"]
    assert store.failure(sized(10_000)[0].key) == "not run: 1,000 nodes failed"


def test_a_library_that_cannot_be_installed_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_self: Environments, name: str) -> str:
        raise UnavailableError(f"cannot be installed: no wheel of {name}")

    monkeypatch.setattr(Environments, "_made", refuse)
    runner = Runner(Environments(tmp_path), tmp_path)
    store = Store(tmp_path, "x")
    task = Task("GPflow", "gpflow", "peer_gpflow.py", {"job": "traffic"})
    runner.section([task], store)
    assert store.failure(task.key) == "cannot be installed: no wheel of gpflow"


# ---------------------------------------------------------------------- processes
@pytest.fixture
def worker(tmp_path: Path) -> Path:
    file = tmp_path / "worker.py"
    file.write_text(
        "import json, sys, time\n"
        "job = json.loads(sys.argv[1])\n"
        "if job['do'] == 'sleep': time.sleep(60)\n"
        "if job['do'] == 'eat': kept = bytearray(300_000_000); time.sleep(60)\n"
        "if job['do'] == 'fail': raise RuntimeError('no /some/secret/place here')\n"
        "print('chatter'); print('RESULT ' + json.dumps({'seconds': 1.5}))\n"
    )
    return file


def run(worker: Path, do: str, **limits: Any) -> dict[str, Any]:
    options = {"limit": 30.0, "memory": 8_000_000_000} | limits
    return run_worker(sys.executable, str(worker), {"do": do}, own_code=False, **options)


def test_workers_answer_or_are_ended(worker: Path) -> None:
    answer = run(worker, "answer")
    assert answer["seconds"] == 1.5
    assert answer["wall"] > 0.0
    assert run(worker, "sleep", limit=0.5)["error"] == "more than 0.5 s"
    eaten = run(worker, "eat", memory=200_000_000)
    assert eaten["error"] == "out of memory"
    assert eaten["peak_bytes"] > 200_000_000
    failed = run(worker, "fail")["error"]
    assert "RuntimeError: no …" in failed
    assert "secret" not in failed


def test_places_of_the_machine_are_left_out() -> None:
    assert without_paths("see https://host.example/a/b and /home/user/x.txt") == "see … and …"
    assert without_paths("2 s / 3 s") == "2 s / 3 s"


# ---------------------------------------------------------------------- report
def traffic_run(seconds: float, nll: float) -> dict[str, Any]:
    scores = {"rmse": 12.0, "nlpd": 4.0, "coverage": 0.95}
    return {"fits": [9.0, seconds, seconds], "spectrum": 0.5, "nll": nll, "peak_bytes": 5e8, "wall": 3.0, **scores}


def keep(store: Store, peer: str, runs: list[dict[str, Any]], **case: Any) -> None:
    for answer in runs:
        store.add(f"{peer} | {json.dumps(case)}", {"peer": peer} | case, answer)


@pytest.fixture
def results(tmp_path: Path) -> Path:
    traffic = Store(tmp_path / "results", "traffic")
    traffic.machine = MACHINE
    keep(traffic, "graphmatern", [traffic_run(0.05, 59.1), traffic_run(0.07, 59.1), traffic_run(0.06, 59.1)], pairs=500)
    keep(traffic, "fast but wrong", [traffic_run(0.1, 61.0)], pairs=500)
    keep(traffic, "right", [traffic_run(0.9, 59.15)], pairs=500)
    keep(traffic, "GPflow", [{"error": "cannot be installed: no wheel"}], pairs=500)
    scaling = Store(tmp_path / "results", "scaling")
    scaling.machine = MACHINE
    scores = {"rmse": 0.3, "nlpd": 0.2, "coverage": 0.95, "nll": 10.0, "peak_bytes": 1e9, "wall": 1.0}
    for nodes in (1000, 1_000_000):
        keep(scaling, "graphmatern", [{"seconds": 2e-5 * nodes, "share": 0.75, **scores}], nodes=nodes)
    for nodes in (1000, 3000):
        keep(scaling, "right", [{"seconds": 3e-9 * nodes**3, **scores}], nodes=nodes)
    return tmp_path


def test_aims_count_only_fits_of_equal_likelihood(results: Path) -> None:
    aims = {aim.name: aim for aim in aims_of(load_stores(results))}
    assert aims["traffic"].found == pytest.approx(0.9 / 0.06)
    assert aims["traffic"].reached
    assert aims["traffic"].detail.startswith("right: 0.900 s")
    reach = (300.0 / 3e-9) ** (1 / 3)
    assert aims["scaling"].found == pytest.approx(1_000_000 / reach)
    assert aims["scaling"].reached
    assert aims["seconds_1000000"].found == 20.0
    assert not aims["seconds_1000000"].reached


def test_the_report_shows_failures_reasons_and_versions(results: Path) -> None:
    notes = {"aims": {"seconds_1000000": "roads are\nlong."}, "sections": {"traffic": "About the traffic."}}
    text = render(load_stores(results), notes, ["scaling.png"])
    tables, short = text.split("## Not reached")
    assert "on 1,000,000 road-like nodes: 20, where at most 3.5 was the aim. Why: roads are long." in short
    assert " aim" not in tables
    assert "the best peer's seconds / ours" not in short  # that one was reached
    assert "About the traffic." in text
    assert "| fast but wrong |" in text
    assert "61.00, **short of the best**" in text
    assert "GPflow (pairs 500): cannot be installed: no wheel" in text
    assert "0.06 (0.05–0.07)" in text
    assert "(plots/scaling.png)" in text
    assert "- ours: graphmatern 0.1, numpy 2.0" in text
    assert "reason is still to be found" not in text


def test_report_and_pictures_are_made_from_stored_results(results: Path) -> None:
    target = write_report(results)
    assert target.read_text().startswith("# The benchmark")
    for name in ("traffic", "scaling"):
        assert (results / "plots" / f"{name}.png").read_bytes().startswith(b"\x89PNG")


def test_the_readme_gets_the_summary_between_its_marks(results: Path) -> None:
    readme = results / "README.md"
    readme.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    write_readme(results, readme)
    text = readme.read_text()
    assert "old" not in text
    assert "250 sensors | 0.56 s | – |" in text  # eigenpairs and fit
    assert "| roads, 1,000,000 nodes, a tenth observed, exactly | 20 s | – |" in text
    assert "reached" not in text
    assert text.startswith("before\n")
    assert text.endswith("\nafter\n")
    write_readme(results, readme)
    assert readme.read_text() == text
    readme.write_text("no marks")
    with pytest.raises(ValueError, match="lacks the lines"):
        write_readme(results, readme)


def test_the_summary_leaves_out_fits_short_of_the_best(results: Path) -> None:
    stores = load_stores(results)
    keep(stores["traffic"], "GPflow, L-BFGS", [traffic_run(0.1, 61.0)], pairs=500)
    keep(stores["traffic"], "scikit-learn, L-BFGS", [traffic_run(1.0, 59.1)], pairs=500)
    assert summary_rows(stores)[0][1:] == ["0.56 s", "scikit-learn 1.5 s"]


# ---------------------------------------------------------------------- split by split
def class_run(fits: list[float], accuracy: float) -> dict[str, Any]:
    scores = {"accuracy": accuracy, "log_loss": 0.7, "calibration": 0.05}
    return {"fits": fits, "spectrum": 0.5, "peak_bytes": 5e8, "wall": 1.0, **scores}


@pytest.fixture
def cora(tmp_path: Path) -> Store:
    """Ours is better on the splits that the other does not finish."""
    store = Store(tmp_path / "results", "cora")
    store.machine = MACHINE
    for seed, accuracy in enumerate([0.78, 0.81, 0.82]):
        keep(store, "graphmatern, one form", [class_run([4.0, 1.0], accuracy)], seed=seed)
        keep(store, "graphmatern, slow form", [class_run([9.0, 8.0], accuracy)], seed=seed)
        keep(store, "scikit-learn", [class_run([6.0, 5.0 + seed], 0.7)], seed=seed)
    keep(store, "GPflow", [class_run([12.0, 10.0], 0.78)], seed=0)
    keep(store, "GPflow", [{"error": "no"}], seed=1)
    keep(store, "GPflow", [{"error": "no"}], seed=2)
    keep(store, "the paper's recipe", [class_run([80.0], 0.78)], seed=0)
    keep(store, "label spreading", [class_run([0.1, 0.1], 0.9)], seed=0)
    return store


def test_ratios_are_those_of_the_splits_that_both_finish(cora: Store) -> None:
    assert our_form(cora) == "graphmatern, one form"
    found = {one.peer: one for one in compared(cora)}
    assert set(found) == {"scikit-learn", "GPflow", "the paper's recipe", "label spreading"}
    gpflow = found["GPflow"]
    assert (gpflow.first, gpflow.later) == (3.0, 10.0)  # first fits with first, later with later
    assert (gpflow.accuracy, gpflow.our_accuracy, gpflow.equal) == (0.78, 0.78, True)
    assert gpflow.outcome == "2 of 3 splits failed"
    assert found["scikit-learn"].later == 6.0
    assert found["scikit-learn"].our_accuracy == pytest.approx((0.78 + 0.81 + 0.82) / 3)
    assert not found["scikit-learn"].equal
    assert (found["the paper's recipe"].first, found["the paper's recipe"].later) == (20.0, None)


def test_cora_in_report_aims_and_summary_rests_on_the_same_splits(cora: Store) -> None:
    aims = {aim.name: aim for aim in aims_of({"cora": cora})}
    assert aims["cora_peer"].found == 10.0  # GPflow's: label spreading is no Gaussian process, others are less accurate
    assert "2 of 3 splits failed" in aims["cora_peer"].detail
    assert aims["cora_recipe"].found == 20.0
    text = render({"cora": cora}, {})
    assert "| GPflow | 2 of 3 splits failed | 3 | 10 | 0.780 | 0.780 |" in text
    assert "| GPflow | 1 of 3 | 12 | 10 |" in text
    [row] = summary_rows({"cora": cora})
    assert row[1] == "4.5 s, 80 % right"  # first fits of a process, with the spectrum
    assert "GPflow 12 s, 78 % right (2 of 3 splits failed; ours on the others: 78 %)" in row[2]


# ---------------------------------------------------------------------- the other uses
def use_stores(folder: Path) -> dict[str, Store]:
    """Made-up results of classes, counts, coverage and any smoothness."""
    stores = {name: Store(folder / "results", name) for name in ("classes", "counts", "coverage", "fractional")}
    for store in stores.values():
        store.machine = MACHINE
    base = {"peak_bytes": 5e8, "wall": 9.0}
    sizes = {"nodes": 2485, "labels": 140, "classes": 7, "log_loss": 0.6}
    for seed in (0, 1):
        own = base | sizes | {"seconds": 4.0, "accuracy": 0.8, "calibration": 0.03}
        keep(stores["classes"], "graphmatern", [own], data="Cora", seed=seed)
        other = own | {"seconds": 1.0, "choice": 0.9, "accuracy": 0.76 + 0.02 * seed, "calibration": 0.13}
        keep(stores["classes"], "scikit-learn, label spreading", [other], data="Cora", seed=seed)
    areas = {"data": "Scotland", "areas": 2}
    keep(stores["counts"], "graphmatern", [base | {
        "seconds": 2.0, "later": 0.2, "parameters": [0.5, 1.0], "risks": [1.0, 2.0]}], **areas)  # fmt: skip
    keep(stores["counts"], "NumPyro, NUTS", [base | {
        "seconds": 20.0, "parameters": [0.4, 1.0], "parameters_sd": [0.4, 0.1], "risks": [1.0, 2.1],
        "risks_sd": [0.1, 0.2], "ess": 500.0, "r_hat": 1.01, "divergences": 0}], **areas)  # fmt: skip
    shares = base | {"shares": [0.9, 1.0], "widths": [2.0, 4.0], "nlpds": [1.0, 3.0], "fits": [0.5, 0.7], "tried": 2}
    keep(stores["coverage"], "graphmatern", [shares], observed=10)
    keep(stores["coverage"], "GPflow, L-BFGS", [shares | {"shares": [0.8, 0.9], "tried": 3}], observed=10)
    smooth = base | {"seconds": 0.4, "nu": 1.3, "nll": 10.25, "rmse": 0.5, "nlpd": 1.0, "coverage": 0.95}
    for nodes in (3000, 100_000):
        keep(stores["fractional"], "graphmatern", [smooth], nu=1.3, nodes=nodes)
    keep(stores["fractional"], "GPflow, all", [smooth | {"seconds": 6.0, "nll": 10.2}], nu=1.3, nodes=3000)
    keep(stores["fractional"], "GPJax, all", [{"error": "out of memory"}], nu=1.3, nodes=100_000)
    return stores


def test_tables_of_the_other_uses(tmp_path: Path) -> None:
    text = render(use_stores(tmp_path), {})
    assert "Cora: 2,485 nodes, 140 labels, 7 classes | scikit-learn, label spreading | 2 | 1 (1–1) | 0.9" in text
    assert "| 0.770 | 0.600 | 0.130 |" in text  # means over splits
    assert "| NumPyro, NUTS | 20 | – | 500 | 25 | 0.250 | 0.500 | 1.010 | 0 |" in text  # our means in its deviations
    assert "| 10 | graphmatern | 2 | 95.0% ± 5.0% | 3.00 | 2.000 | 2 | 0.6 |" in text
    assert "| 10 | GPflow, L-BFGS | 2, 1 failed | 85.0%" in text
    assert "| 1.3 | 3,000 | graphmatern | 0.4 | 1.300 | 10.25 | +0.050 |" in text
    assert "| 1.3 | 100,000 | graphmatern | 0.4 | 1.300 | 10.25 | – |" in text  # nothing exact to compare with
    assert "GPJax, all (nu 1.3, nodes 100000): out of memory" in text


def test_the_summary_of_the_other_uses(tmp_path: Path) -> None:
    rows = [row[1:] for row in summary_rows(use_stores(tmp_path))]
    assert rows == [
        ["0.4 s", "GPflow 6 s"],
        ["95 %", "GPflow 85 %"],
        ["4 s, 80 % right, off by 3 %", "label spreading 1 s, 77 % right, off by 13 %"],
        ["2 s", "NumPyro, NUTS: 20 s"],
    ]


def test_growth_has_storage_and_exponents(tmp_path: Path) -> None:
    store = Store(tmp_path / "results", "growth")
    store.machine = MACHINE
    for n in (100_000, 1_000_000):
        run = {"nodes": n, "nnz_factor": 5.0 * n, "entries": 10.0 * n, "working": 2.0 * n, "memory": 80.0 * n}
        run |= {"analysis": 1e-6 * n, "numeric": 1e-9 * n**1.5, "solve": 1e-8 * n, "selected": 1e-8 * n}
        keep(store, "graphmatern", [run | {"wall": 1.0}], graph="roads", n=n, nu=1, threads=2)
    text = render({"growth": store}, {})
    assert "| roads | 1 | 100,000 | 0.50 | 0.1 | 0.0316 | 0.001 | 0.001 | 2.00 | 0.20 | 0.01 | 2.0 |" in text
    assert "roads, ν = 1: analysis 1.00, numeric 1.50, solve 1.00, selected inverse 1.00, memory 1.00" in text


def test_an_installed_package_says_where_the_benchmark_is(tmp_path: Path) -> None:
    with pytest.raises(DataNotFoundError, match="make bench"):
        run_benchmark([], [], None, checkout=tmp_path)
    assert run_benchmark(["nonsense"], ["quick"], tmp_path) == 2


def test_a_section_runs_from_the_command(tmp_path: Path) -> None:
    assert run_benchmark(["scaling"], ["quick", "without-peers"], tmp_path) == 0
    content = json.loads((tmp_path / "results" / "scaling.json").read_text())
    assert content["machine"]["mode"] == "quick"
    assert all(record["runs"] for record in content["records"].values())
    assert "graphmatern" in (tmp_path / "RESULTS.md").read_text()
