"""Starting processes that work together, where that is possible."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from mpi_settings import SETTINGS

if TYPE_CHECKING:
    from collections.abc import Callable

    Launch = Callable[..., subprocess.CompletedProcess[str]]


def _missing() -> str | None:
    if shutil.which("mpiexec") is None:
        return "there is no mpiexec: run `make mpi`"
    for library in ("mpi4py", "petsc4py"):
        if importlib.util.find_spec(library) is None:
            return f"there is no {library}: run `make mpi`"
    return None


@pytest.fixture(scope="session")
def launch() -> Launch:
    """Run Python on some processes; skips where there is no MPI, and fails where that is required."""
    reason = _missing()
    if reason is not None:
        if os.environ.get("GRAPHMATERN_REQUIRE_MPI"):
            pytest.fail(reason)
        pytest.skip(reason)

    def run(n_processes: int, *arguments: str, timeout: float = 500.0) -> subprocess.CompletedProcess[str]:
        command = ["mpiexec", "-n", str(n_processes), sys.executable, *arguments]
        environment = {**os.environ, **SETTINGS}
        return subprocess.run(command, capture_output=True, text=True, timeout=timeout, env=environment, check=False)

    return run
