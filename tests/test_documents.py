"""Every code block of the README and of the documentation runs, and prints what the page says it prints."""

from __future__ import annotations

import inspect
import re
import textwrap
from dataclasses import dataclass
from pathlib import Path

import matplotlib.pyplot as plt
import pytest

import graphmatern as gm
from graphmatern import inference

ROOT = Path(__file__).parents[1]
NUMBER = r"-?(?:\d[\d,]*\.?\d*(?:e[+-]?\d+)?|inf|nan)"


@dataclass(frozen=True)
class Block:
    """Code, and what the text block right after it says that it prints."""

    code: str
    output: str | None


# A block of code, drawn or not, with its options; then, perhaps, a block of text.
_INDENTED = r"((?:(?:   .*)?\n)+)"
_RST = re.compile(
    r"^\.\. (?:code-block:: python|plot::)\n(?:   :.*\n)*\n"
    + _INDENTED
    + r"(?:\.\. code-block:: text\n\n"
    + _INDENTED
    + ")?",
    flags=re.MULTILINE,
)


def code_blocks(path: Path) -> list[Block]:
    """Python blocks of a Markdown or reStructuredText file."""
    text = path.read_text() + "\n"
    if path.suffix == ".md":
        return [Block(code, None) for code in re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)]
    found = _RST.findall(text)
    assert len(found) == len(re.findall(r"^\.\. (?:code-block:: python|plot::$)", text, flags=re.MULTILINE)), path
    return [Block(textwrap.dedent(code), textwrap.dedent(output) or None) for code, output in found]


def agrees(expected: str, printed: str) -> bool:
    """Whether two texts agree but for white space, two per cent of every number, and what ``...`` stands for.

    Optimisers end a little differently on every machine.
    """
    words = " ".join(expected.split())
    pieces = re.split(rf"({NUMBER}|\.\.\.)", words)
    numbers = [piece for piece in pieces[1::2] if piece != "..."]
    # Numbers are matched whole: with the freedom to split them, telling two long pages apart would take years.
    holes = [".*?" if piece == "..." else f"((?>{NUMBER}))" for piece in pieces[1::2]]
    pattern = "".join(part for pair in zip(map(re.escape, pieces[::2]), [*holes, ""], strict=True) for part in pair)
    found = re.fullmatch(pattern, " ".join(printed.split()), flags=re.DOTALL)
    if found is None:
        return False
    pairs = [
        (float(a.replace(",", "")), float(b.replace(",", ""))) for a, b in zip(numbers, found.groups(), strict=True)
    ]
    return all(a == b or abs(a - b) <= 0.02 * abs(a) + 1e-12 for a, b in pairs)


def test_agreement_of_outputs() -> None:
    assert agrees("kernel Matern(nu=2.13)\n3 of 1,000 ...", "kernel  Matern(nu=2.1301)\n3 of 1,001 and more")
    assert not agrees("kernel Matern(nu=2.13)", "kernel Matern(nu=2.33)")
    assert not agrees("kernel 2", "kernels 2")
    assert not agrees("2 3", "2")
    assert not agrees("12-3.25,4 " * 200 + "end", "12-3.25,4 " * 200)  # without years of thought


PAGES = [
    path
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.rst"))]
    if not {"generated", "_build", "gallery"} & set(path.parts) and code_blocks(path)
]


@pytest.mark.parametrize("path", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_code_blocks_run(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    scope: dict[str, object] = {"__name__": "documentation"}
    printed = ""
    for block in code_blocks(path):
        exec(compile(block.code, str(path), "exec"), scope)
        output = capsys.readouterr().out
        printed += output
        if block.output is not None:
            assert agrees(block.output, output), f"{path} says\n{block.output}\nbut its code prints\n{output}"
    plt.close("all")
    assert printed


def test_the_reference_is_complete() -> None:
    listed = set(re.findall(r"^   ([\w.]+)$", (ROOT / "docs" / "api.rst").read_text(), flags=re.MULTILINE))
    modules = {name: module for name in gm.__all__ if inspect.ismodule(module := getattr(gm, name))}
    public = set(gm.__all__) - set(modules) - {"__version__"}
    for name in ("datasets", "distributed", "errors", "interop", "kernels", "likelihoods", "metrics", "plotting"):
        public |= {f"{name}.{member}" for member in modules[name].__all__ if member not in gm.__all__}
    own = [member for member in inference.__all__ if callable(getattr(inference, member))]
    public |= {f"inference.{member}" for member in own if member not in gm.__all__}
    assert public <= listed, f"not in docs/api.rst: {sorted(public - listed)}"


def test_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) < 85
