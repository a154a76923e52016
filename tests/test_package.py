"""The package as a whole: layers, lazy imports, versions, the command line."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import graphmatern as gm

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "graphmatern"
# Each layer imports only from those before it (DESIGN: layers).
LAYERS = [
    {"errors", "_progress"},
    {"_validation"},
    {"metrics"},
    {"sparse"},
    {"tables"},
    {"graph"},
    {"io", "datasets"},
    {"_parameters"},
    {"kernels", "likelihoods"},
    {"inference"},
    {"plotting"},
    {"design"},
    {"report"},
    {"estimators"},
    {"interop", "reproduce", "distributed"},
    {"cli"},
    {"__main__"},
]
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}


def imported_layers(path: Path) -> set[str]:
    """Layers that a module imports, those only for type checkers left out."""
    tree = ast.parse(path.read_text())
    typing_only = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for inner in ast.walk(node)
    }
    found = set()
    for node in ast.walk(tree):
        if id(node) in typing_only:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    layers = {name.split(".")[1] for name in found if name.startswith("graphmatern.")}
    return layers - {"__version__"}


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_layers_import_downwards_only(path: Path) -> None:
    layer = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    if layer == "__init__":
        assert imported_layers(path) == set()
        return
    assert layer in RANK, f"{layer} has no place in the layers"
    for other in imported_layers(path):
        assert RANK[other] < RANK[layer] or other == layer, f"{layer} must not import {other}"


def test_importing_the_package_is_light() -> None:
    code = (
        "import sys, graphmatern; "
        "heavy = {'torch', 'matplotlib', 'numba', 'pandas', 'scipy', 'sklearn'} & set(sys.modules); "
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_help_does_not_load_torch() -> None:
    code = (
        "import sys; from graphmatern.cli._app import app; "
        "assert not {'torch', 'matplotlib', 'pandas'} & set(sys.modules), 'heavy import'"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_small_fit_waits_for_nothing_it_does_not_use() -> None:
    code = """
import sys, numpy as np, graphmatern as gm
city = gm.make_roads(80, seed=0)
model = gm.GraphGPRegressor(city).fit(city.nodes, np.sin(np.arange(len(city.nodes))))
model.predict_table()
heavy = {'numba', 'gpytorch', 'sympy', 'matplotlib', 'networkx', 'geopandas', 'sklearn'} & set(sys.modules)
heavy |= {'scipy.stats', 'scipy.interpolate'} & set(sys.modules)
assert model.engine_ == 'spectral' and not heavy, heavy
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_public_names_are_there() -> None:
    for name in gm.__all__:
        assert getattr(gm, name) is not None
        assert name in dir(gm)
    with pytest.raises(AttributeError, match="no attribute 'Grpah'"):
        _ = gm.Grpah


def test_versions_agree() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == gm.__version__


def test_constraints_pin_every_requirement() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = project["dependencies"] + extras["io"] + extras["dev"] + extras["docs"]
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    pins = {line.split("==")[0].lower().replace("_", "-"): line for line in lines}
    assert all("==" in line and "+" not in line for line in lines)
    for requirement in wanted:
        name = requirement.split(">=")[0].lower().replace("_", "-")
        assert name in pins, f"{name} is not pinned"


def test_the_minimum_versions_tested_are_those_promised() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = (ROOT / "tests" / "minimum-constraints.txt").read_text().splitlines()
    tested = dict(line.lower().split("==") for line in lines if "==" in line)
    for requirement in project["dependencies"] + project["optional-dependencies"]["io"]:
        name, promised = requirement.lower().split(">=")
        assert f"{tested.get(name)}.".startswith(f"{promised}."), f"{requirement}: tested with {tested.get(name)}"


def run_cli(*arguments: str) -> subprocess.CompletedProcess[str]:
    code = "from graphmatern.cli import main; main()"
    return subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)


def test_command_line_errors_are_short(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    for arguments in (["demo", "--out", str(blocked)], ["demo", "--seed", "-1"], ["nonsense"]):
        result = run_cli(*arguments)
        assert result.returncode != 0
        assert "Traceback" not in result.stderr
        assert result.stderr
    assert run_cli("--version").stdout.strip() == f"graphmatern {gm.__version__}"
