"""From two CSV files to relative risks on the command line, and one message with all faults."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import graphmatern as gm
from graphmatern.cli._app import app

if TYPE_CHECKING:
    from pathlib import Path

DISTRICTS = [f"district {k}" for k in range(12)]


def run(*arguments: object) -> Any:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    edges = [(i, j) for i in range(12) for j in (i + 1, i + 4) if j < 12]
    neighbours = pd.DataFrame([(DISTRICTS[i], DISTRICTS[j]) for i, j in edges], columns=["source", "target"])
    neighbours.to_csv(tmp_path / "neighbours.csv", index=False)
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"district": DISTRICTS, "observed": rng.poisson(4.0, 12), "expected": 4.0, "farms": 1.5})
    table["farms"] = rng.standard_normal(12).round(2)
    table.to_csv(tmp_path / "cases.csv", index=False)
    return tmp_path


OPTIONS = ("--likelihood", "poisson", "--exposure", "expected", "--covariate", "farms", "--kernel", "bym2")


def test_risks_equal_the_library(folder: Path) -> None:
    result = run("fit", folder / "neighbours.csv", folder / "cases.csv", *OPTIONS, "--predict", folder / "risks.csv")
    assert result.exit_code == 0, result.output
    assert "nodes from 'district', values from 'observed'" in result.output
    found = pd.read_csv(folder / "risks.csv", index_col="node")
    table = pd.read_csv(folder / "cases.csv", index_col="district")
    graph = gm.Graph.from_edges(pd.read_csv(folder / "neighbours.csv"), source="source", target="target")
    model = gm.GraphGPRegressor(graph, gm.BYM2(), likelihood="poisson", covariates=table[["farms"]])
    model.fit(table["observed"], exposure=table["expected"])
    np.testing.assert_allclose(found["mean"], model.predict(), rtol=1e-6)
    held = run("fit", folder / "neighbours.csv", folder / "cases.csv", *OPTIONS, "--holdout", 0.25, "--json")
    assert held.exit_code == 0, held.output
    assert '"nlpd"' in held.output


def test_all_faults_at_once(folder: Path) -> None:
    table = pd.read_csv(folder / "cases.csv")
    table["observed"] = table["observed"].astype(float)
    table.loc[1, "observed"], table.loc[2, "observed"] = -3.0, 1.5
    table.loc[3, ["observed", "expected"]] = [4, 0.0]
    table.loc[4, "farms"] = np.nan
    table.loc[5, "district"] = "Atlantis"
    table.to_csv(folder / "bad.csv", index=False)
    result = run("fit", folder / "neighbours.csv", folder / "bad.csv", *OPTIONS, "--out", folder / "m.gm")
    assert result.exit_code == 3, result.output
    said = " ".join(result.output.split())
    for words in (
        "`observed` must hold counts, whole numbers of at least 0; received -3.0, 1.5 at 'district 1', 'district 2'",
        "`expected` must be above 0 where 'observed' is; received 0 at 'district 3'",
        "`farms` must hold numbers, to be a covariate",
        "Atlantis",
        "none for 'district 5'",
    ):
        assert words in said, said
    wrong = run(
        "fit", folder / "neighbours.csv", folder / "bad.csv", "--exposure", "E", "--covariate", "x", "--out", "m.gm"
    )
    assert "`exposure` must be a column of the table; received 'E'" in " ".join(wrong.output.split())
    assert "`covariate` must be a column of the table; received 'x'" in " ".join(wrong.output.split())


def test_areas_are_a_graph_and_are_drawn(folder: Path) -> None:
    pytest.importorskip("shapely")
    shapes = [[[k % 4, k // 4], [k % 4 + 1, k // 4], [k % 4 + 1, k // 4 + 1], [k % 4, k // 4 + 1]] for k in range(12)]
    features = [
        {"type": "Feature", "properties": {"name": name}, "geometry": {"type": "Polygon", "coordinates": [shape]}}
        for name, shape in zip(DISTRICTS, shapes, strict=True)
    ]
    (folder / "map.geojson").write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    wanted = ["--no-integrate", "--predict", folder / "risks.geojson", "--plot", folder / "map.png"]
    rook = run("fit", folder / "map.geojson", folder / "cases.csv", *OPTIONS, "--contiguity", "rook", *wanted)
    assert rook.exit_code == 0, rook.output
    assert "12 nodes, 17 edges" in rook.output
    assert "those that share a line are neighbours" in rook.output
    written = json.loads((folder / "risks.geojson").read_text())["features"]
    assert {one["geometry"]["type"] for one in written} == {"Polygon"}
    assert (folder / "map.png").stat().st_size > 5_000
    files = (
        "fit",
        folder / "neighbours.csv",
        folder / "cases.csv",
        *OPTIONS,
        "--no-integrate",
        "--out",
        folder / "m.gm",
    )
    outlines = run(*files, "--areas", folder / "map.geojson")
    assert outlines.exit_code == 0, outlines.output
    areas = gm.load(folder / "m.gm").graph.areas
    assert areas is not None
    assert [len(rings) for rings in areas] == [1] * 12


def outlines(folder: Path, gap: int) -> None:
    """Twelve squares in rows of four; the last few lie a gap away."""
    features = []
    for k, name in enumerate(DISTRICTS):
        x, y = k % 4 + (0 if k < 10 else gap * (k - 8)), k // 4
        ring = [[x, y], [x + 1, y], [x + 1, y + 1], [x, y + 1]]
        shape = {"type": "Polygon", "coordinates": [ring]}
        features.append({"type": "Feature", "properties": {"name": name}, "geometry": shape})
    (folder / "map.geojson").write_text(json.dumps({"type": "FeatureCollection", "features": features}))


@pytest.mark.parametrize("header", ["from,to\n", ""])
def test_links_join_islands(folder: Path, header: str) -> None:
    pytest.importorskip("shapely")
    outlines(folder, 10)
    files = ["fit", folder / "map.geojson", folder / "cases.csv", *OPTIONS, "--no-integrate", "--out", folder / "m.gm"]
    apart = run(*files)
    assert apart.exit_code == 0, apart.output
    assert apart.stderr.count("warning:") == 1
    assert "2 of 12 areas border on no other" in apart.stderr
    assert "join such areas through --links" in apart.stderr
    (folder / "ferries.csv").write_text(f"{header}district 10,district 9\ndistrict 10,district 11\n")
    joined = run(*files, "--links", folder / "ferries.csv")
    assert joined.exit_code == 0, joined.output
    assert joined.stderr == ""
    assert "2 links beside" in joined.output
    assert gm.load(folder / "m.gm").graph.n_components == 1
    (folder / "ferries.csv").write_text("from,to\ndistrict 10,Atlantis\n")
    result = run(*files, "--links", folder / "ferries.csv")
    assert result.exit_code == 3
    assert "Atlantis" in result.stderr
    (folder / "ferries.csv").write_text("from\ndistrict 10\n")
    assert "must have two columns of names" in run(*files, "--links", folder / "ferries.csv").stderr
    result = run("info", folder / "neighbours.csv", "--links", folder / "ferries.csv")
    assert "`links` must be left out" in result.stderr


def test_islands_without_a_value_are_noted(folder: Path) -> None:
    pytest.importorskip("shapely")
    outlines(folder, 10)
    table = pd.read_csv(folder / "cases.csv", index_col="district")
    table.loc["district 11", "observed"] = np.nan
    table.to_csv(folder / "cases.csv")
    result = run("fit", folder / "map.geojson", folder / "cases.csv", *OPTIONS, "--no-integrate", "--out", folder / "m")
    assert result.exit_code == 0, result.output
    assert result.stderr.count("warning:") == 1
    assert "1 node is in a part without a value and keeps the prior" in result.stdout


def test_successes_among_trials(folder: Path) -> None:
    table = pd.read_csv(folder / "cases.csv").assign(people=12)
    table.to_csv(folder / "cases.csv", index=False)
    files = ("fit", folder / "neighbours.csv", folder / "cases.csv", "--kernel", "bym2", "--value", "observed")
    wanted = ("--likelihood", "binomial", "--no-integrate", "--predict", folder / "shares.csv")
    done = run(*files, *wanted, "--trials", "people")
    assert done.exit_code == 0, done.output
    found = pd.read_csv(folder / "shares.csv", index_col="node")["mean"]
    graph = gm.Graph.from_edges(pd.read_csv(folder / "neighbours.csv"), source="source", target="target")
    model = gm.GraphGPRegressor(graph, gm.BYM2(), likelihood="binomial", integrate=False)
    model.fit(table["district"], table["observed"], trials=table["people"])
    np.testing.assert_allclose(found, model.predict(), rtol=1e-6)
    without = run(*files, *wanted)
    assert "`trials` must be given if, and only if" in " ".join(without.output.split())
    table = table.astype({"observed": float})
    table.loc[0, "people"], table.loc[1, "people"], table.loc[2, "people"] = 0, 2, 5
    table.loc[1, "observed"], table.loc[2, "observed"] = 7, 2.5
    table.to_csv(folder / "cases.csv", index=False)
    said = " ".join(run(*files, *wanted, "--trials", "people").output.split())
    for words in (
        "whole numbers of at least 0; received 2.5",
        "whole and at least 1",
        "more at 'district 0', 'district 1'",
    ):
        assert words in said, said


def test_names_and_counts_are_found_by_what_the_files_share(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    names = [f"Kreis {k}" for k in range(12)]
    features = []
    for k, name in enumerate(names):
        x, y = k % 4, k // 4
        ring = [[x, y], [x + 1, y], [x + 1, y + 1], [x, y + 1], [x, y]]
        properties = {"OBJECTID": k + 1, "AGS": f"{9000 + k:05d}", "GEN": name}
        geometry = {"type": "Polygon", "coordinates": [ring]}
        features.append({"type": "Feature", "properties": properties, "geometry": geometry})
    (tmp_path / "map.geojson").write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    people = rng.integers(20_000, 90_000, 12)
    cases = rng.poisson(1e-4 * people)
    table = pd.DataFrame({"Kreis": names, "cases": cases, "population": people, "smoking": rng.uniform(10, 30, 12)})
    table.to_csv(tmp_path / "cases.csv", index=False)
    options = ("--likelihood", "poisson", "--exposure", "population", "--kernel", "bym2")
    result = run("fit", tmp_path / "map.geojson", tmp_path / "cases.csv", *options, "--predict", tmp_path / "risks.csv")
    assert result.exit_code == 0, result.output
    assert "areas named by 'GEN', such as 'Kreis 0'" in result.stdout
    assert "nodes from 'Kreis', values from 'cases'" in result.stdout
    assert "not used" not in result.stdout
    found = pd.read_csv(tmp_path / "risks.csv")
    np.testing.assert_allclose(found["relative_risk"], found["mean"] * people.sum() / cases.sum())
    assert found["above_1"].between(0.0, 1.0).all()
    # A table that uses the codes instead, in which a count is wrong.
    wrong = table.assign(Kreis=[f"{9000 + k:05d}" for k in range(12)], cases=cases + 0.5)
    wrong.to_csv(tmp_path / "codes.csv", index=False)
    result = run("fit", tmp_path / "map.geojson", tmp_path / "codes.csv", *options, "--out", tmp_path / "m.gm")
    assert "areas named by 'AGS'" in result.stdout
    assert "`cases` must hold counts" in result.stderr
