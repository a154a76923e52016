"""Compiled code is kept on disk where that is possible, never stale, and never in the way."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given

import graphmatern
from graphmatern.sparse import _ahead, _compile, _pattern
from strategies import graphs

PACKAGE = Path(graphmatern.__file__).parent

PROGRAM = """
import warnings; warnings.simplefilter("error")
from graphmatern.sparse import _compile
from graphmatern.sparse._symbolic import children_lists
import numpy as np
children_lists(np.array([2, 2, -1], np.int32))
print(_compile.cache_directory(), sum(children_lists.stats.cache_hits.values()))
"""


def run(program: str, **environment: str) -> str:
    kept = {key: value for key, value in os.environ.items() if key not in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME")}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**kept, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the package, to be spoiled."""
    target = tmp_path / "site" / "graphmatern"
    for name in ("__init__.py", "errors.py", "_validation.py", "_progress.py"):
        target.mkdir(parents=True, exist_ok=True)
        shutil.copy(PACKAGE / name, target / name)
    shutil.copytree(PACKAGE / "sparse", target / "sparse", ignore=shutil.ignore_patterns("__pycache__"))
    return target


def test_code_is_found_again_and_never_stale(copy: Path) -> None:
    site = str(copy.parent)
    folder = str(copy / "sparse" / "__pycache__")
    assert run(PROGRAM, PYTHONPATH=site) == f"{folder} 0"
    assert run(PROGRAM, PYTHONPATH=site) == f"{folder} 1"
    # A change in any file of the package, not only in the function's own.
    with (copy / "sparse" / "_pattern.py").open("a", encoding="utf-8") as file:
        file.write("# changed\n")
    assert run(PROGRAM, PYTHONPATH=site) == f"{folder} 0"
    assert run(PROGRAM, PYTHONPATH=site) == f"{folder} 1"
    # Damaged files are compiled anew.
    for path in Path(folder).glob("_symbolic.children_lists*.nbc"):
        path.write_bytes(b"nonsense")
    assert run(PROGRAM, PYTHONPATH=site) == f"{folder} 0"


def test_a_read_only_install_uses_another_folder(copy: Path, tmp_path: Path) -> None:
    site = str(copy.parent)
    # A file in place of the folder: nothing can be written there, not even by the superuser.
    (copy / "sparse" / "__pycache__").write_text("")
    options = {"PYTHONPATH": site, "PYTHONDONTWRITEBYTECODE": "1"}
    home = tmp_path / "home"
    assert run(PROGRAM, HOME=str(home), **options) == f"{home}/.cache/graphmatern 0"
    assert run(PROGRAM, HOME=str(home), **options) == f"{home}/.cache/graphmatern 1"
    spare = tmp_path / "spare"
    spare.mkdir()
    nowhere = str(copy / "errors.py")  # a file: no folder can be made in it
    assert run(PROGRAM, HOME=nowhere, TMPDIR=str(spare), **options).startswith(f"{spare}/graphmatern-")
    chosen = tmp_path / "chosen"
    assert run(PROGRAM, HOME=nowhere, NUMBA_CACHE_DIR=str(chosen), **options) == f"{chosen}/graphmatern 0"


def test_without_any_writable_folder_code_is_compiled_anew(copy: Path) -> None:
    program = "import graphmatern.sparse._compile as c\n" + PROGRAM
    (copy / "sparse" / "_compile.py").write_text(
        (copy / "sparse" / "_compile.py")
        .read_text(encoding="utf-8")
        .replace("def _candidates() -> Iterator[Path]:\n", "def _candidates() -> Iterator[Path]:\n    return\n", 1),
        encoding="utf-8",
    )
    assert run(program, PYTHONPATH=str(copy.parent)) == "None 0"


def test_folders_that_others_can_write_to_are_not_used(tmp_path: Path) -> None:
    assert _compile._is_private_and_writable(tmp_path)
    tmp_path.chmod(0o777)
    assert not _compile._is_private_and_writable(tmp_path)


def test_importing_the_package_does_not_import_numba() -> None:
    program = "import sys, graphmatern; print('numba' in sys.modules)"
    assert run(program, PYTHONPATH=str(PACKAGE.parent)) == "False"


def test_layers() -> None:
    """The sparse package stands on errors, validation and the showing of progress alone."""
    below = ("graphmatern.sparse", "graphmatern.errors", "graphmatern._validation", "graphmatern._progress")
    for path in (PACKAGE / "sparse").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0
                names = [node.module or ""]
            for name in names:
                if name.split(".")[0] == "graphmatern":
                    assert name.startswith(below)


def test_compilation_is_announced_once(copy: Path) -> None:
    """Also where there is no terminal, unless progress is forbidden; never again when the code is found."""
    program = f"""
import io, os, sys; sys.stderr = io.StringIO()
from graphmatern import _progress
with _progress.showing(False if "QUIET" in os.environ else None):
    exec({PROGRAM!r})
    from graphmatern.sparse._symbolic import postorder
    postorder(np.array([2, 2, -1], np.int32), np.full(3, -1, np.int32))
print(sys.stderr.getvalue().count("compiling"))
"""
    site = str(copy.parent)
    assert run(program, PYTHONPATH=site).splitlines()[-1] == "1"
    assert run(program, PYTHONPATH=site).splitlines()[-1] == "0"
    shutil.rmtree(copy / "sparse" / "__pycache__")
    assert run(program, PYTHONPATH=site, QUIET="1").splitlines()[-1] == "0"


def test_a_second_process_compiles_what_a_fit_compiles() -> None:
    """Were it something else, its work would be wasted, and nobody would notice."""
    city = graphmatern.make_roads(60, seed=0)
    model = graphmatern.GraphGPRegressor(city, graphmatern.Matern(1, 3.0, fixed=("nu",)), engine="markov")
    model.set_params(integrate=False).fit(np.arange(0, 40, 4), np.sin(np.arange(10.0))).predict(return_std=True)
    for name, function, types in _ahead.functions_of(_ahead.LATE | _ahead.LAST):
        assert types in function.signatures, name


LATE = re.compile(r"^LATE = \{.*?^\}", re.DOTALL | re.MULTILINE)
TWO_PROCESSES = """
import numpy as np
from graphmatern.sparse._symbolic import children_lists, postorder
tree = np.array([2, 2, -1], np.int32)
children_lists(tree)
print(postorder(tree, np.full(3, -1, np.int32)).tolist(), sum(postorder.stats.cache_hits.values()))
"""


@pytest.mark.parametrize(
    ("program", "hits"), [(None, 1), ("raise SystemExit(1)", 0), ("print('_symbolic.postorder')", 0)]
)
def test_what_the_second_process_promised_is_found_or_compiled(copy: Path, program: str | None, hits: int) -> None:
    path = copy / "sparse" / "_ahead.py"
    text = LATE.sub('LATE = {"_symbolic.postorder": "I I"}', path.read_text(encoding="utf-8"))
    text = text.replace("available_threads() < 2", "False")
    if program is not None:
        text = re.sub(r"^_PROGRAM = .*$", f"_PROGRAM = {program!r}", text, flags=re.MULTILINE)
    path.write_text(text, encoding="utf-8")
    assert run(TWO_PROCESSES, PYTHONPATH=str(copy.parent)) == f"[0, 1, 2] {hits}"


def test_a_second_process_that_hangs_or_ends_is_not_waited_for() -> None:
    helper = _ahead.Helper([sys.executable, "-c", "import time; print('one', flush=True); time.sleep(600)"])
    assert helper.wait_for("one", 60.0)
    assert not helper.wait_for("two", 0.01)
    helper.end()
    assert not helper.wait_for("two", 600.0)


@given(graphs())
def test_components_and_diagonals(graph: graphmatern.Graph) -> None:
    weights, diagonal = graph.weights, np.arange(graph.n_nodes, dtype=float)
    pattern = weights.indptr.astype(np.int64), weights.indices.astype(np.int32)
    small, large = _pattern.connected(*pattern), _pattern._connected(*pattern)
    np.testing.assert_array_equal(small, large)
    assert small.dtype == large.dtype
    indptr, indices, values = _pattern.with_diagonal(*pattern, weights.data, diagonal)
    found = sp.csr_array((values, indices, indptr), shape=weights.shape)
    assert found.has_canonical_format
    assert found.nnz == weights.nnz + graph.n_nodes
    np.testing.assert_array_equal(found.toarray(), weights.toarray() + np.diag(diagonal))
