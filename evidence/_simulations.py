"""Many small simulations, in parallel processes, that can be stopped at any time and resumed.

A study has cells, such as a likelihood and a number of observations. Every simulation of a cell has a number, which is
all that its random numbers depend on. Results are appended to a file as they come; what is in it is not done again.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import queue
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.stats import norm

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    import graphmatern as gm

__all__ = [
    "LEVELS",
    "Cell",
    "Row",
    "Study",
    "arguments",
    "coverage_cells",
    "inside",
    "mean_and_error",
    "run",
    "verdict",
]

LEVELS = (0.5, 0.9, 0.95)

Row = dict[str, Any]


class Cell(NamedTuple):
    """What is simulated, and how many observations there are."""

    kind: str
    n: int


class Study(NamedTuple):
    """What to simulate.

    Attributes
    ----------
    cells : sequence of Cell
        Each gets the same number of simulations, or the same time where time is short.
    simulate : callable
        From a cell and a number to a row of results; of a module, so that other processes find it.
    rehearsals : dict of str to callable
        For some kinds, what is to be done once, in one process, before the others begin: compiling.
    """

    cells: Sequence[Cell]
    simulate: Callable[[Cell, int], Row]
    rehearsals: dict[str, Callable[[], None]]


def arguments(description: str, *, simulations: int) -> argparse.Namespace:
    """How many simulations, in how many processes, for how long, and where the results go."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--simulations", type=int, default=simulations, help="of each cell, at most")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--seconds", type=float, default=1800.0, help="after which what there is is written")
    parser.add_argument("--kinds", nargs="*", help="only these")
    default = Path(__file__).parent
    parser.add_argument("--out", type=Path, default=default, help="folder of the table and of single results")
    return parser.parse_args()


def inside(
    model: gm.GraphGPRegressor, nodes: Any, process: np.ndarray, y: np.ndarray, chance: np.ndarray, *, counts: bool
) -> dict[str, float]:
    """Shares of the true process and of new observations at some nodes inside their 50, 90 and 95 % intervals.

    An interval's ends are quantiles, so what is above them decides. A count gets a random part (`chance`) of the
    probability of the same count, so that its share is uniform.
    """
    above = {
        "process": model.exceedance(process, nodes).to_numpy(),
        "observation": model.exceedance(y, nodes, observation=True).to_numpy(),
    }
    if counts:
        more = model.exceedance(y - 0.5, nodes, observation=True).to_numpy()
        above["observation"] = above["observation"] + chance * (more - above["observation"])
    return {
        f"{what}|{level}": float((np.abs(share - 0.5) <= 0.5 * level).mean())
        for what, share in above.items()
        for level in LEVELS
    }


def mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """Mean and its standard error over simulations."""
    return float(np.mean(values)), float(np.std(values, ddof=1) / np.sqrt(len(values)))


def coverage_cells(rows: Sequence[Row], prefix: str = "") -> tuple[list[str], list[float]]:
    """Shares with their errors as cells of a table, and how many errors each is from nominal."""
    texts, scores = [], []
    for what in ("process", "observation"):
        for level in LEVELS:
            mean, error = mean_and_error([row[f"{prefix}{what}|{level}"] for row in rows])
            texts.append(f"{mean:.1%} ± {error:.1%}")
            scores.append((mean - level) / max(error, 1e-9))
    return texts, scores


def verdict(scores: Sequence[float]) -> str:
    """How far the integrated rows are from nominal, given how many are compared."""
    far = np.abs(scores)
    allowed = float(norm.isf(0.5 * (1.0 - 0.95 ** (1.0 / len(far)))))
    return (
        f"Integrated: {int((far <= 2.0).sum())} of {len(far)} within two standard errors of nominal, the farthest "
        f"{far.max():.1f} away; of {len(far)} independent comparisons the farthest is within {allowed:.1f} in 95 % of "
        "cases."
    )


def _call(function: Callable[..., Any], *inputs: Any) -> tuple[Any, float]:
    """What a function returns, or the error it raises, and how long it took; in a worker."""
    start = time.perf_counter()
    try:
        found = function(*inputs)
    except Exception as error:  # noqa: BLE001
        found = {"error": f"{type(error).__name__}: {error}"}
    return found, time.perf_counter() - start


def _quiet() -> None:
    warnings.simplefilter("ignore")


def run(study: Study, path: Path, simulations: int, processes: int, seconds: float) -> list[Row]:
    """Simulate until there are enough simulations or time is over; returns all rows in the file.

    Parameters
    ----------
    study : Study
        What to simulate.
    path : Path
        File of results, one JSON object in a line.
    simulations : int
        Of each cell.
    processes : int
        How many work at a time.
    seconds : float
        After which what is still being simulated is given up.
    """
    end = time.monotonic() + seconds
    os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    done = {(row["kind"], row["n"], row["number"]) for row in rows}
    wanted = {cell: [k for k in range(simulations) if (*cell, k) not in done][::-1] for cell in study.cells}
    spent = dict.fromkeys(study.cells, 0.0)
    guess = dict.fromkeys(study.cells, 1.0)
    waiting = {kind for kind in study.rehearsals if any(wanted[cell] for cell in study.cells if cell.kind == kind)}
    answers: queue.Queue[tuple[Hashable, Any]] = queue.Queue()
    in_flight = 0
    with multiprocessing.get_context("spawn").Pool(processes, _quiet) as pool, path.open("a") as file:

        def submit(key: Hashable, function: Callable[..., Any], *inputs: Any) -> None:
            pool.apply_async(
                _call,
                (function, *inputs),
                callback=lambda answer: answers.put((key, answer)),
                error_callback=lambda error: answers.put((key, ({"error": repr(error)}, 0.0))),
            )

        for kind in waiting:
            submit(kind, study.rehearsals[kind])
            in_flight += 1
        while True:
            while in_flight < processes + 2:
                ready = [cell for cell in study.cells if wanted[cell] and cell.kind not in waiting]
                if not ready:
                    break
                cell = min(ready, key=lambda one: spent[one])
                number = wanted[cell].pop()
                spent[cell] += guess[cell]
                submit((cell, number), study.simulate, cell, number)
                in_flight += 1
            if not in_flight or time.monotonic() > end:
                break
            try:
                key, (found, took) = answers.get(timeout=max(0.01, end - time.monotonic()))
            except queue.Empty:
                break
            in_flight -= 1
            if isinstance(key, str):
                waiting.discard(key)
                continue
            cell, number = key  # type: ignore[misc]
            spent[cell] += took - guess[cell]
            guess[cell] = 0.8 * guess[cell] + 0.2 * took
            row = {"kind": cell.kind, "n": cell.n, "number": number, "seconds": round(took, 2), **found}
            rows.append(row)
            file.write(json.dumps(row) + "\n")
            file.flush()
            if len(rows) % 100 == 0:
                print(f"{len(rows)} simulations, {end - time.monotonic():.0f} s left", flush=True)
        pool.terminate()
        pool.join()
    return rows
