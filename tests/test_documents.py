"""Every code block of the README and of the documentation runs."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def code_blocks(path: Path) -> list[str]:
    """Python blocks of a Markdown or reStructuredText file."""
    text = path.read_text()
    if path.suffix == ".md":
        return re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    found = re.findall(r"\.\. code-block:: python\n\n((?:(?:   .*)?\n)+)", text)
    return [textwrap.dedent(block) for block in found]


PAGES = [
    path
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.rst"))]
    if not {"generated", "_build", "gallery"} & set(path.parts) and code_blocks(path)
]


@pytest.mark.parametrize("path", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_code_blocks_run(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scope: dict[str, object] = {"__name__": "documentation"}
    for block in code_blocks(path):
        exec(compile(block, str(path), "exec"), scope)
    assert capsys.readouterr().out


def test_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) < 80
