"""The paper's table and figures, from nothing, and the documentation's page about them.

Run through ``make evidence``, on a quiet machine if seconds are to mean anything; writes reproduction.md beside this
file, and what docs/guide/paper.rst shows. ``--repeats`` sets the number of splits, ``--shared`` says in the text that
other work ran at the same time.
"""

from __future__ import annotations

import argparse
import csv
import datetime as dt
import json
from pathlib import Path

import matplotlib as mpl
from PIL import Image

from graphmatern.reproduce import Options, reproduce
from graphmatern.reproduce._figures import FIGURES
from graphmatern.reproduce._table import table_rows

mpl.use("Agg")
ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "results"
DOCS = ROOT / "docs"


def main() -> None:
    """Make everything and copy what is shown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--shared", action="store_true")
    options = parser.parse_args()
    reproduce(["all"], RESULTS, Options(repeats=options.repeats))
    table = json.loads((RESULTS / "table1.json").read_text())
    (DOCS / "results").mkdir(exist_ok=True)
    for experiment in ("traffic", "cora"):
        with (DOCS / "results" / f"table1_{experiment}.csv").open("w", newline="") as stream:
            csv.writer(stream, lineterminator="\n").writerows(table_rows(table["cells"], experiment))
    (DOCS / "images" / "paper").mkdir(exist_ok=True)
    for name in FIGURES:
        picture = Image.open(RESULTS / f"{name}.png").convert("RGB")
        picture.thumbnail((1600, 1600))
        picture.quantize(256).save(DOCS / "images" / "paper" / f"{name}.png", optimize=True)
    environment = table["environment"]
    lines = [
        (RESULTS / "table1.md").read_text(),
        "## Figures",
        "",
        *(f"- {name}: {json.loads((RESULTS / f'{name}.json').read_text())['caption']}" for name in FIGURES),
        "",
        f"Made by `python evidence/reproduction.py` (part of `make evidence`) on {dt.date.today().isoformat()}: "
        f"{environment['processor']}, {environment['cores']} cores, Python {environment['python']}, "
        + ", ".join(f"{name} {version}" for name, version in environment["versions"].items())
        + ".",
    ]
    if options.shared:
        lines.append("The seconds were measured on a machine shared with other work, and are too long.")
    Path(__file__).with_suffix(".md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
