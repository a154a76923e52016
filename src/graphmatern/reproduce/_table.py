"""Table 1: every cell over all splits, beside the paper's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from graphmatern.reproduce._cora import cora_split
from graphmatern.reproduce._paper import CELLS, LAPLACIANS, METHODS, PAPER_NU, PAPER_TABLE, Cell
from graphmatern.reproduce._tasks import Task
from graphmatern.reproduce._traffic import traffic_split

if TYPE_CHECKING:
    from collections.abc import Sequence

    from graphmatern.reproduce._kernels import Protocol
    from graphmatern.reproduce._tasks import Outcome

__all__ = ["ranking_holds", "table_json", "table_markdown", "table_rows", "table_tasks"]

_WORK = {"traffic": traffic_split, "cora": cora_split}
_SCORE = {"traffic": "rmse", "cora": "accuracy"}
_UNIT = {"traffic": "RMSE in mph", "cora": "accuracy"}
_SIDE_SCORES = {"traffic": ("nlpd", "coverage_50", "coverage_95"), "cora": ("log_loss", "calibration_error")}
_HEADINGS = {
    "nlpd": "NLPD",
    "coverage_50": "in 50 % interval",
    "coverage_95": "in 95 % interval",
    "log_loss": "log loss",
    "calibration_error": "calibration error",
}


def _task_name(cell: Cell, seed: int) -> str:
    return f"{cell.name}-{seed:03d}"


def table_tasks(seeds: Sequence[int], protocol: Protocol) -> list[Task]:
    """One task per cell and split: split by split, so that a run that was stopped has whole ones to show."""
    return [
        Task(
            _task_name(cell, seed),
            _WORK[cell.experiment],
            {"method": cell.method, "laplacian": cell.laplacian, "seed": seed, "protocol": protocol.as_arguments()},
        )
        for seed in seeds
        for cell in sorted(CELLS, key=lambda cell: cell.experiment != "cora")  # what takes longer first
    ]


@dataclass(frozen=True)
class Spread:
    """Values over the splits."""

    values: list[float]

    @property
    def mean(self) -> float:
        """Their mean."""
        return float(np.mean(self.values))

    @property
    def sd(self) -> float | None:
        """Their standard deviation; None where there is only one."""
        return float(np.std(self.values, ddof=1)) if len(self.values) > 1 else None

    def as_json(self) -> dict[str, Any]:
        """Return values, mean and standard deviation."""
        return {"values": self.values, "mean": self.mean, "sd": self.sd}

    def text(self, digits: int) -> str:
        """Mean, and the standard deviation in brackets."""
        return f"{self.mean:.{digits}f}" + (f" ({self.sd:.{digits}f})" if self.sd is not None else "")


def z_score(ours: Spread, paper: tuple[float, float], n_paper: int = 10) -> float | None:
    """Difference from the paper's mean in combined standard errors; None with a single split."""
    if ours.sd is None:
        return None
    return (ours.mean - paper[0]) / float(np.hypot(ours.sd / np.sqrt(len(ours.values)), paper[1] / np.sqrt(n_paper)))


def _cell_json(cell: Cell, seeds: Sequence[int], outcome: Outcome) -> dict[str, Any]:
    names = [_task_name(cell, seed) for seed in seeds]
    scores = {
        key: Spread([outcome.results[name]["scores"][key] for name in names])
        for key in (_SCORE[cell.experiment], *_SIDE_SCORES[cell.experiment])
    }
    main = scores.pop(_SCORE[cell.experiment])
    entry = {
        "experiment": cell.experiment,
        "method": METHODS[cell.method],
        "laplacian": LAPLACIANS[cell.laplacian],
        "score": _UNIT[cell.experiment],
        "seeds": list(seeds),
        **main.as_json(),
        "seconds": Spread([outcome.seconds[name] for name in names]).as_json(),
        "other_scores": {key: spread.as_json() for key, spread in scores.items()},
        "learned": [outcome.results[name]["learned"] for name in names],
    }
    if cell in PAPER_TABLE:
        paper = PAPER_TABLE[cell]
        z = z_score(main, paper)
        worse = None if z is None else (z if cell.experiment == "traffic" else -z)
        entry |= {
            "paper": {"mean": paper[0], "sd": paper[1]},
            "z": z,
            "within_two_standard_errors_or_better": None if worse is None else bool(worse <= 2.0),
        }
    if cell.method == "matern":
        nu = Spread([outcome.results[name]["learned"]["nu"] for name in names])
        mean, sd = PAPER_NU[cell.experiment]
        entry["nu"] = nu.as_json() | {"paper": {"mean": mean, "sd": sd}}
    return entry


def table_json(seeds: Sequence[int], outcome: Outcome) -> list[dict[str, Any]]:
    """Entries of ``table1.json``, one per cell, the baselines last."""
    return [_cell_json(cell, seeds, outcome) for cell in CELLS]


def ranking_holds(cells: list[dict[str, Any]]) -> bool:
    """Whether the kernels and Laplacians rank on traffic as in the paper."""
    mine = [cell["mean"] for cell in cells if cell["experiment"] == "traffic" and "paper" in cell]
    theirs = [cell["paper"]["mean"] for cell in cells if cell["experiment"] == "traffic" and "paper" in cell]
    return bool((np.argsort(mine, kind="stable") == np.argsort(theirs, kind="stable")).all())


def table_markdown(cells: list[dict[str, Any]]) -> str:
    """Draw the two columns of Table 1, each with its baselines."""
    return "\n\n".join(_column(cells, experiment) for experiment in ("traffic", "cora"))


def _spread_of(entry: dict[str, Any]) -> Spread:
    return Spread(entry["values"])


def table_rows(cells: list[dict[str, Any]], experiment: str) -> list[list[str]]:
    """Heading and rows of one column of Table 1, as text."""
    digits = 2 if experiment == "traffic" else 3
    side = _SIDE_SCORES[experiment]
    rows = [["Laplacian", "method", _UNIT[experiment], "paper", "z", *(_HEADINGS[key] for key in side), "ν", "s/fit"]]
    for cell in cells:
        if cell["experiment"] != experiment:
            continue
        paper = cell.get("paper")
        z = cell.get("z")
        row = [
            cell["laplacian"],
            cell["method"],
            _spread_of(cell).text(digits),
            f"{paper['mean']:.2f} ({paper['sd']:.2f})" if paper else "–",
            "–" if z is None else f"{z:+.1f}",
            *(_spread_of(cell["other_scores"][key]).text(2) for key in side),
            _spread_of(cell["nu"]).text(1) if "nu" in cell else "–",
            f"{cell['seconds']['mean']:.2f}",
        ]
        rows.append(row)
    return rows


def _column(cells: list[dict[str, Any]], experiment: str) -> str:
    titles = {"traffic": "Traffic (San Jose)", "cora": "Cora"}
    heading, *rows = table_rows(cells, experiment)
    rule = "|---|---|" + "---:|" * (len(heading) - 2)
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([f"**{titles[experiment]}**", "", "| " + " | ".join(heading) + " |", rule, *lines])
