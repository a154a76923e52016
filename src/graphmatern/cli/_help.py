"""The help texts of the commands; every example works when pasted into a shell."""

from __future__ import annotations

__all__ = ["EXAMPLES", "FIT", "INFO", "PLACE", "PREDICT", "REPORT"]

_ROADS = r"printf 'from,to,metres\na,b,100\nb,c,300\nc,d,200\n' > roads.csv"
_SPEEDS = r"printf 'place,speed\na,52.0\nb,47.5\nd,31.0\n' > speeds.csv"

# Lines of shell per command.
EXAMPLES = {
    "info": [_ROADS, "graphmatern info roads.csv"],
    "fit": [
        _ROADS,
        _SPEEDS,
        "graphmatern fit roads.csv speeds.csv --out model.gm --predict predictions.csv",
    ],
    "predict": [
        _ROADS,
        _SPEEDS,
        "graphmatern fit roads.csv speeds.csv --out model.gm",
        "graphmatern predict model.gm --out predictions.csv",
    ],
    "place": [
        _ROADS,
        _SPEEDS,
        "graphmatern fit roads.csv speeds.csv --out model.gm",
        "graphmatern place model.gm -n 1 --out sensors.csv",
    ],
    "report": [
        _ROADS,
        _SPEEDS,
        "graphmatern fit roads.csv speeds.csv --out model.gm",
        "graphmatern report model.gm --out page.html --unit mph",
    ],
}


def _with_example(text: str, command: str) -> str:
    # The backspace keeps the lines of the paragraph as they are.
    return f"{text}\n\n\b\nExample, on a graph of four nodes:\n" + "\n".join(f"  {line}" for line in EXAMPLES[command])


INFO = _with_example(
    "Describe a graph, and what a fit on it would cost.\n\n"
    "Prints size, connected parts and weights, predicted time and memory of a fit with each engine, and advice.",
    "info",
)
FIT = _with_example(
    "Learn a model from a graph and values at some of its nodes.\n\n"
    "Columns are guessed from their names and entries; what was guessed is printed and can be overridden. Numbers "
    "mean regression, texts mean classification. Values may lie on edges: give the edge's name (--road) and the "
    "distance from its source (--distance), or a table of sensors (--sensors).",
    "fit",
)
PREDICT = _with_example(
    "Predict at every node, with uncertainty, from a model file.\n\n"
    "Columns: mean, std, an interval for the process and one for a new observation, whether the node is connected to "
    "any data (informed), and whether it has a value of its own (observed); for a classifier, the most probable class "
    "and the probability of each.",
    "predict",
)
PLACE = _with_example(
    "Choose where to measure next, from a model file.\n\n"
    "Nodes are chosen one after the other, each the best given the model's data and those before it. Columns: node, "
    "order, gain, cost, and the standard deviation that remains on average (mean_std) and at most (max_std); for a "
    "classifier, the score and the expected label.",
    "place",
)

REPORT = _with_example(
    "Write an interactive page about a model, as one HTML file.\n\n"
    "It has a map to explore, a table of all nodes, the model in plain words, and how far to trust it. "
    "It opens in any browser, needs no server and loads nothing.",
    "report",
)
