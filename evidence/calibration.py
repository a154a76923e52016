"""Coverage of intervals over many simulated data sets, with the parameters plugged in and integrated over.

Everything is at its default: nothing of the truth is held or started from. Run through ``make evidence``, which writes
calibration.md beside this file; with more processes and time, as in

    python evidence/calibration.py --simulations 500 --processes 16 --seconds 560 --out results

there are more simulations. Run again, it goes on where it stopped.
"""

from __future__ import annotations

import datetime as dt
from functools import partial
from typing import Any

import numpy as np
from _simulations import LEVELS, Cell, Row, Study, arguments, coverage_cells, inside, mean_and_error, run, verdict

import graphmatern as gm
from graphmatern.inference import Observations, Problem, with_default_priors
from graphmatern.likelihoods import Gaussian, MultinomialProbit, StudentT

SEED = 2027
SIZES = (10, 20, 50, 100)
ENGINES = {"gaussian, Markov engine": "markov", "gaussian, moments engine": "moments"}
KINDS = ("gaussian", *ENGINES, "poisson", "student_t", "classes")
N_CLASSES, N_BINS = 3, 10
LIKELIHOODS: dict[str, Any] = {"student_t": StudentT, "classes": partial(MultinomialProbit, N_CLASSES)}
CITY = gm.make_roads(300, seed=0)


# ---------------------------------------------------------------------- one simulation
def draw_parameters(kind: str, rng: np.random.Generator, normalized: bool = False) -> dict[str, float]:
    """From the default priors of the kind, for values of variance 1; ν is 1, 2 or 3 where the engine wants that."""
    unit = Observations(np.arange(2), np.array([[-1.0], [1.0]]), np.ones((CITY.n_nodes, 1)))
    likelihood = LIKELIHOODS.get(kind, Gaussian)()
    problem = Problem(CITY, None, likelihood, unit, normalized=normalized)
    priors = with_default_priors(problem).rules.priors
    names = ("nu", "lengthscale", "variance", "noise", "scale", "df")
    found = {name: float(np.exp(priors[name].quantile(rng.random(1)))[0]) for name in names}
    found["df"] += 2.0
    found["nu"] = float(np.clip(found["nu"], 0.05, 100.0))
    if ENGINES.get(kind) == "markov":
        whole = np.array([1.0, 2.0, 3.0])
        share = np.exp(priors["nu"].log_density(np.log(whole))[0])
        found["nu"] = float(rng.choice(whole, p=share / share.sum()))
    return found


def simulate(cell: Cell, number: int) -> Row:
    """Shares of the unobserved nodes inside their intervals, or how well class probabilities are calibrated."""
    kind, n = cell
    rng = np.random.default_rng([SEED, n, number])
    # The classifier compares both Laplacians, each as likely as the other before it has seen labels.
    normalized = kind == "classes" and bool(rng.random() < 0.5)
    truth = draw_parameters(kind, rng, normalized)
    kernel = gm.Matern(truth["nu"], truth["lengthscale"], truth["variance"]).on(CITY, normalized)
    seed = int(rng.integers(2**31))
    places = rng.permutation(CITY.n_nodes)
    seen, unseen = places[:n], places[n:]
    if kind == "classes":
        fields = kernel.sample(N_CLASSES, random_state=seed).numpy()
        return _classes((fields + rng.standard_normal(fields.shape)).argmax(axis=0), seen, unseen)
    field = kernel.sample(random_state=seed).numpy()[0]
    if kind == "poisson":
        process = np.exp(1.0 + field)
        y = rng.poisson(process).astype(float)
    elif kind == "student_t":
        y, process = field + truth["scale"] * rng.standard_t(truth["df"], len(field)), field
    else:
        y, process = field + np.sqrt(truth["noise"]) * rng.standard_normal(len(field)), field
    likelihood: Any = kind if kind in ("poisson", "student_t") else "gaussian"
    names, chance = CITY.nodes[unseen], rng.random(len(unseen))
    found: Row = {}
    for label, integrate in (("plug-in", False), ("integrated", True)):
        model = gm.GraphGPRegressor(
            CITY, engine=ENGINES.get(kind, "spectral"), likelihood=likelihood, integrate=integrate, verbose=False
        )
        model.fit(CITY.nodes[seen], y[seen])
        shares = inside(model, names, process[unseen], y[unseen], chance, counts=kind == "poisson")
        found |= {f"{label}|{name}": share for name, share in shares.items()}
    return found


def _classes(labels: Any, seen: Any, unseen: Any) -> Row:
    """Confidence, hits and counts of the predicted classes, in bins of confidence; and the Brier score."""
    found: Row = {}
    for label, integrate in (("plug-in", False), ("integrated", True)):
        model = gm.GraphGPClassifier(CITY, classes=list(range(N_CLASSES)), integrate=integrate, verbose=False)
        model.fit(CITY.nodes[seen], labels[seen])
        share = model.predict_proba(CITY.nodes[unseen])
        confidence, hit = share.max(axis=1), share.argmax(axis=1) == labels[unseen]
        place = np.minimum((confidence * N_BINS).astype(int), N_BINS - 1)
        sums = [np.bincount(place, w, N_BINS).tolist() for w in (confidence, hit.astype(float), np.ones(len(hit)))]
        found[f"{label}|bins"] = sums
        found[f"{label}|surplus"] = float(confidence.mean() - hit.mean())
        found[f"{label}|brier"] = float(((share - np.eye(N_CLASSES)[labels[unseen]]) ** 2).sum(axis=1).mean())
    return found


def compile_markov() -> None:
    """Fit once: what is compiled then is found by other processes."""
    for integrate in (False, True):
        model = gm.GraphGPRegressor(CITY, engine="markov", integrate=integrate, verbose=False)
        model.fit(CITY.nodes[:10], np.arange(10) % 3.0).exceedance(1.0)


# ---------------------------------------------------------------------- the tables
def _coverage_table(rows: list[Row], cells: list[Cell], scores: list[float]) -> list[str]:
    heads = [f"{what} {level:.0%}" for what in ("process", "observation") for level in LEVELS]
    lines = [f"| n | simulations | parameters | {' | '.join(heads)} |", "|---|---|---|" + "---|" * len(heads)]
    for cell in cells:
        own = [row for row in rows if (row["kind"], row["n"]) == cell and "error" not in row]
        if len(own) < 2:
            continue
        for label in ("plug-in", "integrated"):
            texts, far = coverage_cells(own, f"{label}|")
            if label == "integrated":
                scores += far
            lines.append(f"| {cell.n} | {len(own)} | {label} | {' | '.join(texts)} |")
    return lines


def _class_table(rows: list[Row], cells: list[Cell], scores: list[float]) -> list[str]:
    lines = [
        "| n | simulations | parameters | confidence − accuracy | calibration error, all simulations | Brier score |",
        "|---|---|---|---|---|---|",
    ]
    for cell in cells:
        own = [row for row in rows if (row["kind"], row["n"]) == cell and "error" not in row]
        if len(own) < 2:
            continue
        for label in ("plug-in", "integrated"):
            mean, error = mean_and_error([row[f"{label}|surplus"] for row in own])
            if label == "integrated":
                scores.append(mean / max(error, 1e-9))
            confidence, hits, counts = np.sum([row[f"{label}|bins"] for row in own], axis=0)
            pooled = np.abs(confidence - hits).sum() / counts.sum()
            brier, brier_error = mean_and_error([row[f"{label}|brier"] for row in own])
            texts = f"{mean:+.3f} ± {error:.3f} | {pooled:.3f} | {brier:.3f} ± {brier_error:.3f}"
            lines.append(f"| {cell.n} | {len(own)} | {label} | {texts} |")
    return lines


def table(rows: list[Row], kinds: tuple[str, ...] = KINDS) -> str:
    """The tables of all rows, as text."""
    lines = [
        "# Coverage of intervals, parameters plugged in and integrated over",
        "",
        f"Simulations on a road-like graph of {CITY.n_nodes} nodes. Parameters are drawn from the default priors (ν is",
        "1, 2 or 3 for the Markov engine), a field from the kernel, n observations from the likelihood; all other",
        "nodes are predicted, with every option at its default (a constant mean, normalised values, ν learned).",
        "Shares of the true process, and of new observations, inside their intervals, with standard errors over",
        "simulations; for counts the randomised probability integral transform decides. For classes (three, drawn",
        "from the model, on one Laplacian or the other, as the classifier compares both): confidence minus accuracy,",
        "and the expected calibration error, ten bins, of all simulations together.",
        "Of measurements (Gaussian, Student-t), shares are not nominal by construction: the default priors are centred",
        "on the variance of the very values that are fitted, while parameters here are drawn for a variance of 1. What",
        "is drawn in `simulation_based.py` has exactly the priors that are fitted.",
        f"Made by `python evidence/calibration.py` on {dt.date.today().isoformat()}, seed {SEED}.",
        "",
    ]
    for kind in kinds:
        cells = [Cell(kind, n) for n in SIZES]
        scores: list[float] = []
        made = (_class_table if kind == "classes" else _coverage_table)(rows, cells, scores)
        if not scores:
            continue
        lines += [f"## {kind}", "", *made, "", verdict(scores)]
        wrong = [row["error"] for row in rows if row["kind"] == kind and "error" in row]
        if wrong:
            lines.append(f"{len(wrong)} simulations ended with an error, such as: {wrong[0][:200]}")
        lines.append("")
    return "\n".join(lines)


def main() -> None:
    """Simulate and write the table."""
    given = arguments(__doc__ or "", simulations=60)
    kinds = tuple(given.kinds or KINDS)
    study = Study(
        [Cell(kind, n) for n in SIZES for kind in kinds], simulate, {"gaussian, Markov engine": compile_markov}
    )
    rows = run(study, given.out / "calibration.jsonl", given.simulations, given.processes, given.seconds)
    text = table(rows)
    (given.out / "calibration.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
