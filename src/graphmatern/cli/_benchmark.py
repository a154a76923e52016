"""The benchmark lives in the repository, next to the requirements of the libraries it compares with."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from graphmatern.errors import DataNotFoundError

__all__ = ["run_benchmark"]

_CHECKOUT = Path(__file__).resolve().parents[3]


def run_benchmark(sections: list[str], flags: list[str], out: Path | None, checkout: Path = _CHECKOUT) -> int:
    """Run the checkout's benchmark and return its exit code.

    Parameters
    ----------
    sections : list of str
        What to measure; everything where empty.
    flags : list of str
        Options without a value.
    out : Path or None
        Folder for the results.
    checkout : Path
        Root of the repository.

    Raises
    ------
    DataNotFoundError
        Where the package was installed without its repository.
    """
    script = checkout / "benchmarks" / "run.py"
    if not script.is_file():
        raise DataNotFoundError(
            "the benchmark is part of the project's repository, not of the installed package; "
            "get the repository, and there run `make bench` (or `make bench BENCH=--quick` to try it)"
        )
    arguments = [f"--{flag}" for flag in flags]
    if sections:
        arguments += ["--section", *sections]
    if out is not None:
        arguments += ["--out", str(out)]
    return subprocess.run([sys.executable, str(script), *arguments], check=False).returncode  # noqa: S603 - our own
