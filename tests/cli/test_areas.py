"""From two CSV files to relative risks on the command line, and one message with all faults."""

from __future__ import annotations

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
