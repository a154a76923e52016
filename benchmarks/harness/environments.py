"""Virtual environments of the other libraries, whose pins conflict with ours and with each other's."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import venv
from typing import TYPE_CHECKING

from harness.processes import ROOT, environment, without_paths

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Environments", "UnavailableError"]

REQUIREMENTS = ROOT / "benchmarks" / "requirements"
_LIST = """
import json
from importlib.metadata import distributions
print(json.dumps({package.name: package.version for package in distributions()}))
"""


class UnavailableError(Exception):
    """An environment could not be made."""


class Environments:
    """Makes environments when they are first asked for, in ``folder``/.venv-bench-NAME."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._found: dict[str, str | UnavailableError] = {"ours": sys.executable}

    def python(self, name: str) -> str:
        """Interpreter of an environment; `UnavailableError` says why there is none."""
        if name not in self._found:
            try:
                self._found[name] = self._made(name)
            except UnavailableError as error:
                self._found[name] = error
        found = self._found[name]
        if isinstance(found, UnavailableError):
            raise found
        return found

    def _made(self, name: str) -> str:
        wanted = REQUIREMENTS / f"{name}.txt"
        place = self.folder / f".venv-bench-{name}"
        python, ready = place / "bin" / "python", place / ".ready"
        digest = hashlib.sha256(wanted.read_bytes()).hexdigest()
        if not ready.is_file() or ready.read_text() != digest:
            print(f"making the environment of {name} ...", flush=True)
            venv.create(place, with_pip=True, clear=True)
            command = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", "-r", str(wanted)]
            done = subprocess.run(command, env=environment(False), capture_output=True, text=True, check=False)
            if done.returncode:
                lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or ["pip failed"]
                raise UnavailableError(f"cannot be installed: {without_paths(lines[0])[:200]}")
            ready.write_text(digest)
        return str(python)

    def versions(self, name: str) -> dict[str, str]:
        """Version of every package in an environment."""
        command = [self.python(name), "-c", _LIST]
        output = subprocess.run(command, env=environment(name == "ours"), capture_output=True, text=True, check=True)
        found: dict[str, str] = json.loads(output.stdout)
        return dict(sorted(found.items()))
