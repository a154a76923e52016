"""A first-time user's ten minutes at the terminal, played for the documentation.

``python docs/session.py`` writes docs/guide/session.txt. It needs the real data sets (GRAPHMATERN_DATA); a test plays
it again and compares.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import tempfile
import textwrap
from pathlib import Path

from typer.testing import CliRunner

from graphmatern.cli._app import app

FILES = ("traffic/edges.csv", "traffic/nodes.csv", "traffic/speeds.csv", "traffic_raw/roads.csv")
FILES += ("traffic_raw/intersections.csv", "traffic_raw/sensors.csv", "cora/citations.csv", "cora/topics.csv")
SESSION = Path(__file__).parent / "guide" / "session.txt"

# Lines that begin with # are said, the others typed.
STEPS = """
# Two files: the roads of a city, and the speed of the traffic at some places.
head -n 3 edges.csv speeds.csv
# What is this graph like?
graphmatern info edges.csv
# Learn, and predict the speed everywhere. Columns are guessed.
graphmatern fit edges.csv speeds.csv --out san-jose.gm --predict speeds-everywhere.csv
head -n 3 speeds-everywhere.csv
# How good is that? Hold out a fifth of the values.
graphmatern fit edges.csv speeds.csv --holdout 0.2
# A mistake: what does it say?
graphmatern fit edges.csv speeds.csv --value speed --out san-jose.gm
# With positions of the nodes, predictions can be drawn, and opened in a GIS.
graphmatern fit edges.csv speeds.csv --nodes nodes.csv --out san-jose.gm
graphmatern predict san-jose.gm --out speeds.geojson --plot speeds.png
# Sensors that lie on roads, given by road and distance, become nodes.
head -n 2 sensors.csv
graphmatern fit roads.csv speeds.csv --sensors sensors.csv --nodes intersections.csv --out roads.gm
# Texts are classes: papers that cite each other, and the topics of a tenth of them.
graphmatern fit citations.csv topics.csv --largest-component --ignore-unknown --holdout 0.9 --out topics.gm
graphmatern predict topics.gm --out topics-everywhere.csv
head -n 2 topics-everywhere.csv
# Nothing but what is there at the end.
ls
"""


def fitted(text: str) -> list[str]:
    """A line as a terminal of 100 columns shows it; rows of tables are cut instead."""
    if len(text) <= 100:
        return [text]
    return [f"{text[:99]}…"] if " " not in text else textwrap.wrap(text, 100, subsequent_indent="  ")


def play(data: Path) -> str:
    """Type every line in an empty folder; return what a terminal would show."""
    shown = []
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        for name in FILES:
            shutil.copy(data / name, folder)
        os.chdir(folder)
        try:
            for line in STEPS.strip().splitlines():
                if line.startswith("#"):
                    shown.append(f"\n{line}")
                    continue
                shown.append(f"$ {line}")
                words = shlex.split(line)
                if words[0] == "graphmatern":
                    output = CliRunner().invoke(app, words[1:], prog_name="graphmatern").output
                else:
                    output = subprocess.run(words, capture_output=True, text=True, check=True).stdout  # noqa: S603
                told = [text for text in output.rstrip().splitlines() if not text.startswith("compiling")]  # once
                shown += [line for text in told for line in fitted(text)]
        finally:
            os.chdir(before)
    return "\n".join(shown).strip() + "\n"


if __name__ == "__main__":
    SESSION.write_text(play(Path(os.environ["GRAPHMATERN_DATA"])))
