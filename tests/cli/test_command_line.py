"""The command line: two files in, predictions out, the same as from Python; clear words and codes when it fails."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import graphmatern as gm
from graphmatern.cli._app import app
from graphmatern.cli._console import EXIT_CODES, Console
from graphmatern.cli._help import EXAMPLES

DATA = Path(os.environ.get("GRAPHMATERN_DATA", "."))


def run(*arguments: object) -> Any:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def city(tmp_path: Path) -> Path:
    """A folder with the files of a small city."""
    graph = gm.make_roads(60, seed=3)
    edges = graph.edges[["source", "target", "length"]]
    edges.insert(0, "road", [f"r{k}" for k in range(len(edges))])
    edges.to_csv(tmp_path / "roads.csv", index=False)
    assert graph.positions is not None
    nodes = pd.DataFrame({"node": graph.nodes, "x": graph.positions[:, 0], "y": graph.positions[:, 1]})
    nodes["height"] = np.cos(np.arange(len(nodes)))
    nodes.to_csv(tmp_path / "nodes.csv", index=False)
    speeds = 50.0 + 10.0 * np.sin(4.0 * graph.positions[:, 0])
    table = pd.DataFrame({"node": graph.nodes, "speed": speeds, "sd": 0.5})[::2]
    table.to_csv(tmp_path / "speeds.csv", index=False)
    return tmp_path


# ---------------------------------------------------------------------- what comes out
def test_fit_and_predict_equal_the_library(city: Path) -> None:
    result = run("fit", city / "roads.csv", city / "speeds.csv", "--value", "speed", "--out", city / "m.gm")
    assert result.exit_code == 0, result.output
    assert "edges from 'source' to 'target', length 'length', id 'road'" in result.output
    assert "nodes from 'node', values from 'speed'" in result.output
    result = run("predict", city / "m.gm", "--out", city / "p.csv", "--level", "0.9")
    assert result.exit_code == 0, result.output
    graph = gm.Graph.from_edges(pd.read_csv(city / "roads.csv"), length="length", id="road")
    speeds = pd.read_csv(city / "speeds.csv").set_index("node")["speed"]
    expected = gm.GraphGPRegressor(graph).fit(speeds).predict_table(0.9)
    found = pd.read_csv(city / "p.csv").set_index("node")
    assert found.index.tolist() == expected.index.tolist()
    for column in expected:
        np.testing.assert_allclose(found[column].to_numpy(float), expected[column].to_numpy(float), rtol=1e-10)
    assert set(found.index[found["observed"]]) == set(speeds.index)


def test_one_go_and_two_steps_agree(city: Path) -> None:
    arguments = ["fit", city / "roads.csv", city / "speeds.csv", "--nodes", city / "nodes.csv", "--quiet"]
    result = run(*arguments, "--value", "speed", "--out", city / "m.gm", "--predict", city / "one.csv")
    assert (result.exit_code, result.output) == (0, "")
    assert run("predict", city / "m.gm", "--out", city / "two.csv", "-q").exit_code == 0
    assert (city / "one.csv").read_bytes() == (city / "two.csv").read_bytes()
    header = (city / "one.csv").read_text().splitlines()[0]
    assert header == "node,mean,std,lower,upper,observation_lower,observation_upper,informed,observed,x,y"


def test_options_reach_the_model(city: Path) -> None:
    base = ["fit", city / "roads.csv", city / "speeds.csv", "--value", "speed", "--json", "--out", city / "m.gm"]
    cases: list[tuple[list[Any], dict[str, Any]]] = [
        (["--engine", "markov", "--nu", "2"], {"engine": "markov"}),
        (["--kernel", "diffusion", "--lengthscale", "3"], {"kernel": "lengthscale=3, "}),
        (["--kernel", "random-walk"], {"kernel": "RandomWalk"}),
        (["--kernel", "random_walk"], {"kernel": "RandomWalk"}),
        (["--kernel", "inverse_cosine", "--eigenpairs", "20"], {"kernel": "InverseCosine"}),
        (["--nu", "0.5", "--laplacian", "normalized", "--mean", "zero"], {"kernel": "nu=0.5, "}),
        (["--noise-std", "sd"], {}),
        (["--likelihood", "student-t", "--nu", "1", "--lengthscale", "3"], {}),
        (["--nodes", city / "nodes.csv", "--covariates", "height, x"], {}),
        (["--holdout", "0.25", "--seed", "4"], {"values": 20}),
        (["--largest-component", "--n-threads", "1"], {}),
    ]
    for options, expected in cases:
        result = run(*base, *options)
        assert result.exit_code == 0, (options, result.output)
        found = json.loads(result.stdout)
        for key, value in expected.items():
            assert found[key] == value or str(value) in str(found[key]), (options, found)
        model = gm.load(city / "m.gm")
        assert np.isfinite(model.predict()).all()
        if "--noise-std" in options:
            np.testing.assert_array_equal(model._data.noise, 0.25)
        if "--likelihood" in options:
            assert model.likelihood == "student_t"
        if "--covariates" in options:
            assert list(model.covariates.columns) == ["height", "x"]
        if "--laplacian" in options:
            assert (model.normalized, model.mean) == (True, "zero")
        if "--holdout" in options:
            assert found["holdout"]["values"] == 7
            assert found["holdout"]["rmse"] > 0


def no_constants(name: str) -> None:
    raise AssertionError(f"{name} is not JSON")


def test_values_held_out_are_scored_by_the_model(city: Path) -> None:
    counts = np.random.default_rng(1).poisson(3.0, 60)
    table = pd.DataFrame({"node": range(60), "count": counts})
    graph = gm.Graph.from_edges(pd.read_csv(city / "roads.csv"), length="length", id="road")
    table = table[table["node"].isin(graph.nodes)]
    table.to_csv(city / "counts.csv", index=False)
    fixed = ["--nu", "1.5", "--lengthscale", "3", "--likelihood", "poisson", "--holdout", "0.3"]
    result = run("fit", city / "roads.csv", city / "counts.csv", *fixed, "--out", city / "m.gm", "--json")
    assert result.exit_code == 0, result.output
    rows = np.random.default_rng(0).permutation(len(table))[: round(0.3 * len(table))]
    held = table.iloc[np.sort(rows)]
    expected = gm.load(city / "m.gm").evaluate(held["node"].tolist(), held["count"].to_numpy(float))
    found = json.loads(result.stdout)["holdout"]
    assert found.pop("values") == len(held)
    assert found == pytest.approx(expected, rel=1e-9)


def test_classes_held_out_are_scored_by_their_probabilities(city: Path) -> None:
    table = pd.DataFrame({"node": range(40), "side": ["east"] * 20 + ["west"] * 19 + ["alone"]})
    table.to_csv(city / "sides.csv", index=False)
    fixed = ["--nu", "1.5", "--lengthscale", "3", "--likelihood", "softmax", "--ignore-unknown"]
    for seed in range(50):  # until the only one of its class is held out
        if 39 in np.random.default_rng(seed).permutation(40)[:12]:
            break
    options = [*fixed, "--holdout", "0.3", "--seed", seed, "--json"]
    result = run("fit", city / "roads.csv", city / "sides.csv", *options)
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert set(found["holdout"]) == {"values", "accuracy", "log_loss", "calibration_error"}
    assert found["holdout"]["values"] == 11
    assert "1 held-out value has a class that no other value has" in found["warnings"][0]


def test_json_has_null_where_there_is_no_number(city: Path) -> None:
    (city / "v.csv").write_text("node,speed\n0,1.5\n1,2.5\n2,3.5\n3,4.5\n")
    result = run("fit", city / "roads.csv", city / "v.csv", "--holdout", "0.25", "--nu", "1", "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout, parse_constant=no_constants)
    assert found["holdout"]["r2"] is None  # of one value

    console = Console(as_json=True)
    console.result = {"a": [np.inf, (float("nan"), 1.0)], "b": {"c": -np.inf}}
    with contextlib.redirect_stdout(io.StringIO()) as shown:
        console.finish()
    assert json.loads(shown.getvalue(), parse_constant=no_constants) == {"a": [None, [None, 1.0]], "b": {"c": None}}


def test_values_on_roads_are_predicted_there(city: Path) -> None:
    roads = pd.read_csv(city / "roads.csv")
    sensors = pd.DataFrame(
        {"sensor": ["s1", "s2", "s3"], "road": roads["road"][:3], "distance": roads["length"][:3] / 3}
    )
    sensors.to_csv(city / "sensors.csv", index=False)
    sensors.assign(speed=[1.5, 2.5, 4.0]).to_csv(city / "on_roads.csv", index=False)
    pd.DataFrame({"sensor": ["s1", "s2", "s3"], "speed": [1.5, 2.5, 4.0]}).to_csv(city / "by_name.csv", index=False)
    one = run("fit", city / "roads.csv", city / "on_roads.csv", "--predict", city / "one.csv")
    assert one.exit_code == 0, one.output
    assert "3 new nodes" in one.output
    two = run(
        "fit",
        city / "roads.csv",
        city / "by_name.csv",
        "--sensors",
        city / "sensors.csv",
        "--predict",
        city / "two.csv",
    )
    assert two.exit_code == 0, two.output
    assert (city / "one.csv").read_bytes() == (city / "two.csv").read_bytes()
    table = pd.read_csv(city / "one.csv").set_index("node")
    assert table.index[-3:].tolist() == ["s1", "s2", "s3"]
    assert table["observed"].sum() == 3


def test_info_describes_a_graph(city: Path) -> None:
    result = run("info", city / "roads.csv", "--nodes", city / "nodes.csv")
    assert result.exit_code == 0, result.output
    assert "sparse factors, smoothness 1 or 2 or 3" in result.output
    assert "--engine auto would choose the spectral engine" in result.output
    found = json.loads(run("info", city / "roads.csv", "--json").stdout)
    graph = gm.Graph.from_edges(pd.read_csv(city / "roads.csv"), length="length")
    assert (found["nodes"], found["edges"], found["components"]) == (graph.n_nodes, graph.n_edges, 1)
    assert found["costs"][1]["bytes"] > 0
    assert f"a fit to {graph.n_nodes} values" in result.output
    assert run("info", city / "roads.csv", "--quiet").output == ""


def test_info_of_a_small_graph_compiles_nothing(city: Path) -> None:
    program = "import sys; from graphmatern.cli._app import app; app(sys.argv[1:], standalone_mode=False); "
    program += "print('numba' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program, "info", city / "roads.csv"], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "False"
    assert done.stderr == ""


def test_info_says_what_would_take_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hubs = gm.Graph.from_networkx(nx.barabasi_albert_graph(4000, 10, seed=0))
    hubs.edges[["source", "target"]].to_csv(tmp_path / "hubs.csv", index=False)
    for module in ("engines", "markov.cost"):
        monkeypatch.setattr(f"graphmatern.inference.{module}.LONG", 1e-3)  # the hubs alone are too much
    result = run("info", tmp_path / "hubs.csv", "--observations", 60)
    assert result.exit_code == 0, result.output
    assert "a fit to 60 values" in result.output
    assert "fast" not in result.output
    assert "would choose the moments engine" in result.output
    found = json.loads(run("info", tmp_path / "hubs.csv", "--observations", 60, "--json").stdout)
    assert found["observations"] == 60
    assert [cost["engine"] for cost in found["costs"]] == ["spectral", "markov", "moments"]
    assert [cost["at_least"] for cost in found["costs"]] == [False, True, False]
    monkeypatch.setattr("graphmatern.cli._info._PATIENCE", 1e-4)
    result = run("info", tmp_path / "hubs.csv")
    assert "too long" in result.output
    assert "every engine would be slow" in result.output


def test_info_and_fit_agree(city: Path) -> None:
    """One prediction, one choice."""
    found = json.loads(run("info", city / "roads.csv", "--observations", 40, "--json").stdout)
    learned = json.loads(
        run("fit", city / "roads.csv", city / "speeds.csv", "--out", city / "model.gm", "--json").stdout
    )
    assert f"would choose the {learned['engine']} engine ({learned['engine_reason']})" in found["advice"][0]


def test_max_seconds_refuses_with_predictions(city: Path) -> None:
    command = ["fit", city / "roads.csv", city / "speeds.csv", "--out", city / "model.gm", "--max-seconds"]
    assert run(*command, "1000").exit_code == 0
    refused = run(*command, "1e-9")
    assert refused.exit_code == 1
    for words in ("spectral (all", "markov (sparse factors", "moments (", "raise max_seconds"):
        assert words in refused.stderr
    assert run(*command, "-1").exit_code == 2


def test_texts_are_classes(city: Path) -> None:
    nodes = pd.read_csv(city / "nodes.csv")
    side = np.where(nodes["x"] < nodes["x"].median(), "west", "east")
    pd.DataFrame({"node": nodes["node"], "side": side})[::2].to_csv(city / "sides.csv", index=False)
    base = ["fit", city / "roads.csv", city / "sides.csv"]
    options = ["--nu", "1.5", "--lengthscale", "3", "--likelihood", "softmax"]
    result = run(*base, *options, "--out", city / "m.gm", "--plot", city / "map.png")
    assert result.exit_code == 0, result.output
    assert "the values are 2 classes: classification" in result.output
    result = run("predict", city / "m.gm", "--out", city / "p.csv")
    assert result.exit_code == 0, result.output
    graph = gm.Graph.from_edges(pd.read_csv(city / "roads.csv"), length="length", id="road")
    kernel = gm.Matern(1.5, 3.0, fixed=("nu", "lengthscale"))
    expected = gm.GraphGPClassifier(graph, kernel, likelihood="softmax").fit(pd.Series(side, nodes["node"])[::2])
    found = pd.read_csv(city / "p.csv").set_index("node")
    probabilities = expected.predict_proba(found.index.tolist())
    np.testing.assert_allclose(found[["p(east)", "p(west)"]].to_numpy(), probabilities, rtol=1e-10)
    assert found["label"].tolist() == expected.predict(found.index.tolist()).tolist()
    result = run(*base, *options, "--out", city / "n.gm", "--nodes", city / "nodes.csv", "--covariates", "x")
    assert result.exit_code == 0, result.output
    assert "x" in gm.load(city / "n.gm").coefficients_.index.get_level_values(-1)


def test_pictures_and_maps_are_written(city: Path) -> None:
    base = ["fit", city / "roads.csv", city / "speeds.csv", "--value", "speed", "--nodes", city / "nodes.csv"]
    result = run(*base, "--plot", city / "map.png", "--predict", city / "p.geojson")
    assert result.exit_code == 0, result.output
    assert (city / "map.png").read_bytes().startswith(b"\x89PNG")
    features = json.loads((city / "p.geojson").read_text())["features"]
    assert features[0]["geometry"]["type"] == "Point"
    assert set(features[0]["properties"]) >= {"node", "mean", "std", "informed"}


def test_few_whole_numbers_raise_the_question_of_classes(city: Path) -> None:
    (city / "v.csv").write_text("node,kind\n" + "".join(f"{k},{k % 2}\n" for k in range(12)))
    result = run("fit", city / "roads.csv", city / "v.csv", "--holdout", "0.1")
    assert "if 0, 1 are names of classes, use --task classification" in result.output


# ---------------------------------------------------------------------- what goes wrong
CASES: dict[str, tuple[list[str], int, str]] = {
    "no such graph": (["info", "absent.csv"], 3, "does not exist"),
    "graph is a folder": (["info", "."], 3, "is a folder"),
    "no such column": (["info", "roads.csv", "--length", "metres"], 3, "must be a column of the table"),
    "values without nodes": (["fit", "roads.csv", "odd.csv", "--out", "m.gm"], 3, "column of node names"),
    "nothing to write": (["fit", "roads.csv", "speeds.csv"], 2, "say what to write"),
    "nothing to predict": (["predict", "m.gm"], 2, "say what to write"),
    "unknown option": (["fit", "roads.csv", "speeds.csv", "--ouch"], 2, "No such option"),
    "wrong kernel": (["fit", "roads.csv", "speeds.csv", "--out", "m.gm", "--kernel", "rbf"], 2, "'random_walk'"),
    "wrong smoothness": (["fit", "roads.csv", "speeds.csv", "--out", "m.gm", "--nu", "-1"], 2, "positive number"),
    "odd engine": (
        ["fit", "roads.csv", "speeds.csv", "--out", "m.gm", "--engine", "markov", "--kernel", "diffusion"],
        2,
        "must be Matérn",
    ),
    "no such folder": (["fit", "roads.csv", "speeds.csv", "--out", "absent/m.gm"], 4, "there is no folder"),
    "out is a folder": (["fit", "roads.csv", "speeds.csv", "--out", "."], 4, "is a folder"),
    "format of output": (["fit", "roads.csv", "speeds.csv", "--predict", "p.docx"], 2, "must end in"),
    "format of picture": (["fit", "roads.csv", "speeds.csv", "--plot", "p.docx"], 2, "must end in"),
    "map without positions": (["fit", "roads.csv", "speeds.csv", "--predict", "p.geojson"], 3, "needs positions"),
    "no model": (["predict", "speeds.csv", "--out", "p.csv"], 3, "is not a model file"),
    "no such model": (["predict", "absent.gm", "--out", "p.csv"], 3, "does not exist"),
    "wrong level": (["fit", "roads.csv", "speeds.csv", "--out", "m.gm", "--level", "95"], 2, "between 0 and 1"),
    "predicted into nowhere": (
        ["fit", "roads.csv", "speeds.csv", "--out", "m.gm", "--predict", "absent/p.csv"],
        4,
        "there is no folder",
    ),
    "wrong share": (["fit", "roads.csv", "speeds.csv", "--out", "m.gm", "--holdout", "2"], 2, "`holdout` must be"),
    "likelihood of classes": (
        ["fit", "roads.csv", "speeds.csv", "--out", "m.gm", "--likelihood", "softmax"],
        2,
        "`likelihood` must be 'gaussian' or",
    ),
    "wrong engine": (["fit", "roads.csv", "speeds.csv", "--out", "m.gm", "--engine", "x"], 2, "`engine` must be"),
    "wrong mean": (["fit", "roads.csv", "speeds.csv", "--out", "m.gm", "--mean", "x"], 2, "`mean` must be"),
    "wrong rule": (["info", "roads.csv", "--parallel", "x"], 2, "'mean_length'"),
    "wrong target": (["reproduce", "table9"], 2, "`target` must be"),
    "wrong recipe": (["reproduce", "table1", "--recipe", "x"], 2, "`recipe` must be"),
    "demo into a file": (["demo", "--out", "odd.csv"], 4, "is a file"),
    "reproduced into a file": (["reproduce", "table1", "--out", "odd.csv/results"], 4, "is a file"),
    "benchmark into a file": (["benchmark", "--report", "--out", "odd.csv"], 4, "is a file"),
    "covariates from nowhere": (
        ["fit", "roads.csv", "speeds.csv", "--out", "m.gm", "--covariates", "height"],
        3,
        "no table of nodes",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_failures_have_words_and_codes(
    city: Path, name: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    arguments, code, words = CASES[name]
    (city / "odd.csv").write_text("who,what\nx,1.5\ny,2.5\n")
    monkeypatch.chdir(city)
    before = files(city)
    result = run(*arguments)
    assert result.exit_code == code, result.output
    shown = re.sub(r"\s+", " ", re.sub(r"[│╭╮╰╯─]", "", result.stderr))
    assert words in shown
    assert "Traceback" not in result.output
    assert files(city) == before, "something was written"


def test_a_bug_is_reported_without_a_traceback_unless_asked(city: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object, **kwargs: object) -> None:
        raise ZeroDivisionError("oh")

    monkeypatch.setattr("graphmatern.cli._info.load_graph", fail)
    result = run("info", city / "roads.csv")
    assert result.exit_code == 1
    assert "ZeroDivisionError: oh" in result.stderr
    assert "Traceback" not in result.stderr
    assert "Traceback" in run("info", city / "roads.csv", "--debug").stderr


@pytest.mark.parametrize(
    ("error", "code"),
    [(KeyboardInterrupt(), 130), (MemoryError(), 1), (OSError(28, "full"), 4), (OSError(5, "broken"), 3)],
)
def test_interruptions_and_shortages_have_codes(
    city: Path, error: BaseException, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object, **kwargs: object) -> None:
        raise error

    monkeypatch.setattr("graphmatern.cli._info.load_graph", fail)
    result = run("info", city / "roads.csv")
    assert result.exit_code == code
    assert result.stderr.startswith("graphmatern: ")


def test_old_files_stay_when_writing_fails(city: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (city / "p.csv").write_text("old")

    def fail(*args: object, **kwargs: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pandas.DataFrame.to_csv", fail)
    result = run("fit", city / "roads.csv", city / "speeds.csv", "--value", "speed", "--predict", city / "p.csv")
    assert result.exit_code == 4
    assert "No space left" in result.stderr
    assert (city / "p.csv").read_text() == "old"
    assert files(city) == ["nodes.csv", "p.csv", "roads.csv", "speeds.csv"]


def test_warnings_are_lines_of_their_own(city: Path) -> None:
    (city / "twice.csv").write_text("from,to,length\n0,1,5\n1,0,7\n1,1,2\n")
    result = run("info", city / "twice.csv")
    assert "warning: 1 self-loop dropped" in result.stderr
    assert "warning: 1 of 2 edges repeats a pair" in result.stderr
    assert "their weights are added (--parallel sum)" in result.stderr
    assert json.loads(run("info", city / "twice.csv", "--json").stdout)["warnings"]


# ---------------------------------------------------------------------- help
@pytest.mark.parametrize("command", EXAMPLES)
def test_examples_of_the_help_work_when_pasted(command: str, tmp_path: Path) -> None:
    shown = run(command, "--help").output
    lines = [line.strip() for line in shown.partition("of four nodes:")[2].partition("Arguments")[0].splitlines()]
    lines = [line for line in lines if line.startswith(("printf", "graphmatern"))]
    assert lines == EXAMPLES[command]
    script = tmp_path / "graphmatern"
    script.write_text(f"#!{sys.executable}\nfrom graphmatern.cli import main\nmain()\n")
    script.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["sh", "-ec", "\n".join(lines)], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "[" not in done.stderr, "a progress bar where there is no terminal"


def test_progress_is_shown_on_terminals(city: Path) -> None:
    fcntl = pytest.importorskip("fcntl")
    import pty
    import struct
    import termios

    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
    code = "from graphmatern.cli import main; main()"
    command = [sys.executable, "-c", code, "info", str(city / "roads.csv")]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=theirs, text=True, check=True)
    os.close(theirs)
    shown = os.read(ours, 10_000).decode()
    os.close(ours)
    assert "reading the graph" in shown
    assert "predicting costs" in shown
    assert "reading the graph" not in done.stdout


def test_exit_codes_are_documented() -> None:
    shown = re.sub(r"\s+", " ", run("--help").output)
    assert "0 done; 1 the computation failed; 2 wrong use" in shown
    guide = (Path(__file__).parents[2] / "docs" / "guide" / "command_line.rst").read_text()
    known = re.findall(r"(\d+) [^;]+", EXIT_CODES.partition(":")[2])
    assert re.findall(r"^   \* - (\d+)$", guide, flags=re.MULTILINE) == known
    assert {str(code) for _, code, _ in CASES.values()} <= set(known)


# ---------------------------------------------------------------------- real data
@pytest.mark.data
def test_traffic_from_plain_files_equals_the_library(tmp_path: Path) -> None:
    folder = DATA / "traffic"
    result = run(
        "fit",
        folder / "edges.csv",
        folder / "speeds.csv",
        *("--nodes", folder / "nodes.csv", "--out", tmp_path / "m.gm"),
    )
    assert result.exit_code == 0, result.output
    assert run("predict", tmp_path / "m.gm", "--out", tmp_path / "p.csv").exit_code == 0
    data = gm.datasets.load_traffic()
    expected = gm.GraphGPRegressor(data.graph).fit(data.values).predict_table()
    found = pd.read_csv(tmp_path / "p.csv").set_index("node")
    for column in expected:
        np.testing.assert_allclose(found[column].to_numpy(float), expected[column].to_numpy(float), rtol=1e-10)


@pytest.mark.data
def test_cora_from_plain_files_equals_the_library(tmp_path: Path) -> None:
    folder = DATA / "cora"
    options = ["--nu", "2", "--lengthscale", "6", "--holdout", "0.95", "--out", tmp_path / "m.gm"]
    result = run("fit", folder / "citations.csv", folder / "topics.csv", *options)
    assert result.exit_code == 0, result.output
    assert run("predict", tmp_path / "m.gm", "--out", tmp_path / "p.csv").exit_code == 0
    topics = pd.read_csv(folder / "topics.csv").set_index("paper")["topic"]
    shuffled = np.random.default_rng(0).permutation(len(topics))
    kept = np.sort(shuffled[round(0.95 * len(topics)) :])
    kernel = gm.Matern(2, 6.0, fixed=("nu", "lengthscale"))
    model = gm.GraphGPClassifier(gm.Graph.from_edges(folder / "citations.csv"), kernel).fit(topics.iloc[kept])
    with pytest.warns(gm.errors.UninformedWarning):
        expected = model.predict_table()
    found = pd.read_csv(tmp_path / "p.csv").set_index("node")
    assert found["observed"].sum() == len(kept)
    shares = [column for column in expected if str(column).startswith("p(")]
    assert len(shares) == 7
    np.testing.assert_allclose(found[shares].to_numpy(), expected[shares].to_numpy(), rtol=0.0, atol=1e-10)


@pytest.mark.data
def test_the_session_of_the_guide_is_what_happens() -> None:
    from test_documents import agrees

    place = Path(__file__).parents[2] / "docs" / "session.py"
    spec = importlib.util.spec_from_file_location("session", place)
    assert spec is not None
    assert spec.loader is not None
    session = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(session)
    # Where the optimiser ends, and what the machine has, differ from one to the other.
    varying = r"\d+ evaluations?, largest\s+derivative \S+|(below )?[\d.]+ (s|min)\s{2,}|- an engine above needs .*"
    shown, played = (re.sub(varying, "", text) for text in (session.SESSION.read_text(), session.play(DATA)))
    assert agrees(shown, played)


# ---------------------------------------------------------------------- where to measure next
@pytest.fixture
def fitted(city: Path) -> Path:
    assert (
        run("fit", city / "roads.csv", city / "speeds.csv", "--value", "speed", "--out", city / "m.gm").exit_code == 0
    )
    return city


def test_place_equals_the_library(fitted: Path) -> None:
    model = gm.load(fitted / "m.gm")
    result = run("place", fitted / "m.gm", "-n", 4, "--out", fitted / "s.csv", "--plot", fitted / "s.png")
    assert result.exit_code == 0, result.output
    assert "average standard deviation" in result.output
    assert (fitted / "s.png").stat().st_size > 1000
    expected = gm.place_sensors(model, 4)
    found = pd.read_csv(fitted / "s.csv")
    assert list(found.columns) == list(expected.columns)
    assert found["node"].tolist() == expected["node"].tolist()
    np.testing.assert_allclose(found["gain"], expected["gain"])
    nodes = model.graph.nodes
    free = [name for name in nodes.tolist() if name not in set(model.loo()["node"])]
    costs = pd.DataFrame({"place": free[:12], "euros": [5.0, 1.0, 2.0] * 4})
    costs.to_csv(fitted / "costs.csv", index=False)
    pd.DataFrame({"node": free[12:13]}).to_csv(fitted / "there.csv", index=False)
    options = ["--costs", fitted / "costs.csv", "--budget", 7, "--existing", fitted / "there.csv", "--json"]
    result = run("place", fitted / "m.gm", "--criterion", "mutual-information", *options)
    assert result.exit_code == 0, result.output
    expected = gm.place_sensors(
        model, criterion="mutual_information", candidates=free[:12], costs=costs.set_index("place")["euros"], budget=7,
        existing=free[12:13],
    )  # fmt: skip
    rows = json.loads(result.output)["sensors"]
    assert [row["node"] for row in rows] == expected["node"].tolist()
    assert sum(row["cost"] for row in rows) <= 7


def test_place_of_a_classifier(city: Path) -> None:
    table = pd.read_csv(city / "speeds.csv")
    table["kind"] = np.where(table["speed"] > 50, "fast", "slow")
    table[["node", "kind"]].to_csv(city / "kinds.csv", index=False)
    assert run("fit", city / "roads.csv", city / "kinds.csv", "--out", city / "k.gm").exit_code == 0
    result = run("place", city / "k.gm", "-n", 3, "--criterion", "bald", "--out", city / "labels.geojson")
    assert result.exit_code == 3  # no positions
    result = run("place", city / "k.gm", "-n", 3, "--criterion", "bald", "--out", city / "labels.csv")
    assert result.exit_code == 0, result.output
    assert (
        pd.read_csv(city / "labels.csv")["node"].tolist() == gm.load(city / "k.gm").suggest(3, "bald")["node"].tolist()
    )
    assert run("place", city / "k.gm", "-n", 3, "--budget", 5).exit_code == 3


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ([], 2, "say how many"),
        (["-n", 1000], 3, "at most the number of candidates"),
        (["-n", 2, "--criterion", "entropie"], 2, "must be 'entropy'"),
        (["-n", 2, "--candidates", "strange.csv"], 3, "must hold only names of nodes"),
        (["-n", 2, "--candidates", "numbers.csv"], 3, "must have a column of node names"),
        (["-n", 2, "--costs", "negative.csv"], 3, "must be above 0"),
        (["-n", 2, "--budget", 0.5], 3, "cheapest candidate"),
        (["-n", 2, "--out", "s.doc"], 2, "must end in"),
    ],
)
def test_impossible_places(fitted: Path, arguments: list[Any], code: int, words: str) -> None:
    (fitted / "strange.csv").write_text("node\n1\nnowhere\n")
    (fitted / "numbers.csv").write_text("a,b\nx,y\nz,w\n")
    (fitted / "negative.csv").write_text("node,cost\n1,2.0\n3,-1.0\n")
    paths = [fitted / one if isinstance(one, str) and one.endswith((".csv", ".doc")) else one for one in arguments]
    result = run("place", fitted / "m.gm", *paths)
    assert result.exit_code == code, result.output
    assert words in result.output


def test_features_from_a_table(tmp_path: Path) -> None:
    roads, rng = gm.make_roads(60, seed=2), np.random.default_rng(0)
    roads.edges[["source", "target"]].to_csv(tmp_path / "edges.csv", index=False)
    height = rng.standard_normal(roads.n_nodes)
    pd.DataFrame({"node": roads.nodes, "height": height}).iloc[::-1].to_csv(tmp_path / "features.csv", index=False)
    values = pd.DataFrame({"node": roads.nodes, "speed": height**2 + 0.1 * rng.standard_normal(roads.n_nodes)})
    values.iloc[::2].to_csv(tmp_path / "values.csv", index=False)
    files = [str(tmp_path / name) for name in ("edges.csv", "values.csv")]
    options = ["--features", str(tmp_path / "features.csv"), "--out", str(tmp_path / "model.gm"), "--no-integrate"]
    result = CliRunner().invoke(app, ["fit", *files, *options])
    assert result.exit_code == 0, result.output
    model = gm.load(tmp_path / "model.gm")
    assert model.engine_ == "features"
    assert model.variance_shares_["features"] > 0.5


# ---------------------------------------------------------------------- files as people have them
def test_the_package_is_a_command() -> None:
    found = subprocess.run([sys.executable, "-m", "graphmatern", "--version"], capture_output=True, text=True)
    assert found.returncode == 0
    assert gm.__version__ in found.stdout


def test_summaries_of_commands_fit_on_a_line() -> None:
    shown = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "80"}).output.partition("Commands:")[2]
    assert "reproduce" in shown
    assert "..." not in shown


def test_sensors_may_be_points_of_a_map(city: Path) -> None:
    roads = pd.read_csv(city / "nodes.csv").head(20)
    table = roads[["x", "y"]].assign(sensor=[f"s{k}" for k in range(20)], speed=np.linspace(40.0, 60.0, 20))
    table.to_csv(city / "points.csv", index=False)
    points = [
        {
            "type": "Feature",
            "properties": {"sensor": row.sensor, "speed": row.speed, "remark": " "},
            "geometry": {"type": "Point", "coordinates": [row.x, row.y, 400.0]},
        }
        for row in table.itertuples()
    ]
    (city / "points.geojson").write_text(json.dumps({"type": "FeatureCollection", "features": points}))
    written = []
    for name in ("points.csv", "points.geojson"):
        options = ("--nodes", city / "nodes.csv", "--predict", city / f"{name}.out.csv")
        result = run("fit", city / "roads.csv", city / name, *options)
        assert result.exit_code == 0, result.output
        written.append((city / f"{name}.out.csv").read_text())
    assert written[0] == written[1]


@pytest.mark.parametrize("features", [[], [1], [{"properties": 3, "geometry": []}], [{"geometry": {"type": "Point"}}]])
def test_features_without_values_are_refused(city: Path, features: list[Any]) -> None:
    (city / "none.geojson").write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    result = run("fit", city / "roads.csv", city / "none.geojson", "--out", city / "m.gm")
    assert result.exit_code == 3
    assert "must hold values; received features without any" in result.stderr


def test_a_far_sensor_is_named_with_its_distance_and_option(city: Path) -> None:
    x, y = pd.read_csv(city / "nodes.csv").loc[0, ["x", "y"]]
    # The speeds could be names of nodes; but then there would be no values.
    (city / "far.csv").write_text(f"sensor,x,y,speed\nnear,{x},{y},50\nlost,99999.5,0.5,40\n")
    result = run("fit", city / "roads.csv", city / "far.csv", "--nodes", city / "nodes.csv", "--out", city / "m.gm")
    assert result.exit_code == 3
    assert re.search(r"`x and y` must lie within .* of an edge; received 'lost \([\d,]+ away\)'", result.stderr)
    assert "--snap-limit" in result.stderr


def test_all_faults_of_values_are_told_at_once(city: Path) -> None:
    (city / "places.csv").write_text("Von,Nach,Länge\nBahnhof,Markt,5\nMarkt,Rathaus,7\n")
    (city / "bad.csv").write_text("Ort,Tempo\nBahnhof,42.5\nRathhaus,33\nMarkt,k.A.\n")
    result = run("fit", city / "places.csv", city / "bad.csv", "--out", city / "m.gm")
    assert result.exit_code == 3
    assert "column 'Länge' is not used; if it holds lengths of the edges: --length 'Länge'" in result.stdout
    assert "received 'Rathhaus'" in result.stderr
    assert "Did you mean 'Rathaus'?" in result.stderr
    assert "received 'k.A.' in row 3" in result.stderr


def test_all_faults_of_options_are_told_at_once(city: Path) -> None:
    arguments = ["fit", city / "absent.csv", city / "speeds.csv", "--kernel", "rbf", "--engine", "x", "--nu", "-1"]
    arguments += ["--eigenpairs", "2.5", "--holdout", "2", "--predict", "p.docx", "--plot", city / "no" / "map.png"]
    arguments += ["--parallel", "x", "--likelihood", "y", "--mean", "z", "--max-seconds", "-3", "--seed", "-1"]
    result = run(*arguments)
    assert result.exit_code == 2
    assert "nothing was fitted: 13 faults" in result.stderr
    for words in ("'--eigenpairs'", "'--seed'", "does not exist", "there is no folder"):
        assert words in result.stderr
    for option in ("kernel", "engine", "nu", "holdout", "output", "parallel", "likelihood", "mean", "max_seconds"):
        assert f"`{option}` must" in result.stderr
    result = run("predict", city / "absent.gm", "--level", "95", "--n-threads", "0")
    assert result.exit_code == 2
    assert "nothing was predicted: 4 faults" in result.stderr
    result = run("demo", "--seed", "x", "--out")  # what cannot be told apart is told by itself
    assert result.exit_code == 2
    result = run("reproduce", "table1", "--repeats", "0", "--seed", "-1")
    assert result.exit_code == 2
    assert "2 faults" in result.stderr
    result = run("fit", city / "roads.csv", city / "speeds.csv", "--out", city / "m.gm", "--nodes", city / "no.csv")
    assert result.exit_code == 3
    result = run("fit", "--nu", "x")
    assert "Missing argument 'GRAPH'" in result.stderr
    assert "'--nu'" in result.stderr


def test_names_of_options_are_those_of_the_library() -> None:
    from graphmatern.cli._fit import ENGINES, LIKELIHOODS
    from graphmatern.estimators._classifier import _LIKELIHOODS
    from graphmatern.estimators._regression_problem import LIKELIHOODS as OF_NUMBERS
    from graphmatern.inference import ENGINES as KNOWN

    # Others may have been registered in the same process.
    own = [name for name, engine in KNOWN.items() if engine.__module__.startswith("graphmatern.inference.")]
    assert set(ENGINES) == {"auto", *own}
    assert set(LIKELIHOODS) == {"auto", *OF_NUMBERS, *_LIKELIHOODS}


def test_arguments_are_named_plainly() -> None:
    assert "fit [OPTIONS] GRAPH VALUES" in run("fit", "--help").output


def test_covariates_are_neither_nodes_nor_values(city: Path) -> None:
    table = pd.read_csv(city / "speeds.csv")
    table["sd"] = -1.0
    table.to_csv(city / "wrong.csv", index=False)
    arguments = ["fit", city / "roads.csv", city / "wrong.csv", "--out", city / "m.gm", "--value", "speed"]
    result = run(*arguments, "--covariate", "node", "--covariate", "speed", "--noise-std", "sd", "--exposure", "people")
    assert result.exit_code == 3
    assert "`covariate` must name another column than the one that names the nodes; received 'node'" in result.stderr
    assert "`covariate` must name another column than the one that holds the values; received 'speed'" in result.stderr
    assert "`sd` must hold positive standard deviations" in result.stderr
    assert "`exposure` must be a column of the table" in result.stderr


def test_counts_are_checked_with_all_else(city: Path) -> None:
    names = pd.read_csv(city / "speeds.csv")["node"].tolist()[:4]
    rows = zip([*names[:3], "nowhere"], [-1, 2.5, 3, 4], ["x", 1, 1, 1], strict=True)
    (city / "counts.csv").write_text("node,cases,people\n" + "".join(f"{a},{b},{c}\n" for a, b, c in rows))
    arguments = ["fit", city / "roads.csv", city / "counts.csv", "--out", city / "m.gm", "--likelihood", "poisson"]
    result = run(*arguments, "--exposure", "people", "--covariate", "nothing")
    assert result.exit_code == 3
    assert "counts.csv was not read: 4 faults" in result.stderr
    assert "received -1.0, 2.5 at" in result.stderr


def test_an_empty_end_is_named_by_column_and_row(city: Path) -> None:
    (city / "places.csv").write_text("Von,Nach\nBahnhof,Markt\nMarkt,\n")
    result = run("info", city / "places.csv")
    assert "`Nach` must name the target of every edge; received nothing in row 2." in result.stderr


def test_lines_are_counted_as_edges(city: Path) -> None:
    options = ("--value", "speed", "--nodes", city / "nodes.csv", "--predict", city / "map.geojson", "--lines")
    result = run("fit", city / "roads.csv", city / "speeds.csv", *options)
    assert re.search(r"predictions along \d+ edges", result.stdout), result.output
