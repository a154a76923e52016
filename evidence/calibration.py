"""Coverage of intervals over many simulated data sets, with the parameters plugged in and integrated over.

Everything is at its default: nothing of the truth is held or started from. Run through ``make evidence``, which writes
calibration.md beside this file; ``python evidence/calibration.py 500`` takes more simulations than the default.
"""

from __future__ import annotations

import datetime as dt
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import graphmatern as gm
from graphmatern.inference import Observations, Problem, with_default_priors
from graphmatern.likelihoods import Gaussian
from graphmatern.metrics import expected_calibration_error

SIMULATIONS = 60
SEED = 2027
SIZES = (10, 20, 50, 100)
LEVELS = (0.5, 0.9, 0.95)
KINDS = ("gaussian", "gaussian, Markov engine", "poisson", "student_t", "classes")
CITY = gm.make_roads(300, seed=0)


def draw_parameters(rng: np.random.Generator) -> dict[str, float]:
    """From the default priors, for values of variance about 1; ν is one of 1, 2, 3."""
    unit = Observations(np.arange(2), np.array([[-1.0], [1.0]]), np.ones((CITY.n_nodes, 1)))
    priors = with_default_priors(Problem(CITY, None, Gaussian(), unit)).rules.priors
    names = ("lengthscale", "variance", "noise")
    found = {name: float(np.exp(priors[name].quantile(rng.random(1)))[0]) for name in names}
    return found | {"nu": float(rng.integers(1, 4))}


def simulate(kind: str, n: int, rng: np.random.Generator) -> dict[str, list[float]]:
    """Shares of the unobserved nodes inside their intervals, or how well class probabilities are calibrated."""
    truth = draw_parameters(rng)
    kernel = gm.Matern(truth["nu"], truth["lengthscale"], truth["variance"])
    field = kernel.on(CITY).sample(random_state=int(rng.integers(2**31))).numpy()[0]
    places = rng.permutation(CITY.n_nodes)
    seen, unseen = places[:n], places[n:]
    noise = np.sqrt(truth["noise"])
    if kind == "classes":
        labels = np.digitize(field, np.quantile(field, [1 / 3, 2 / 3]))
        if len(set(labels[seen])) < 2:
            return {}
        return _classes(labels, seen, unseen)
    if kind == "poisson":
        field = field / np.sqrt(truth["variance"]) * min(np.sqrt(truth["variance"]), 1.5)  # rates stay below thousands
        y, process = rng.poisson(np.exp(1.0 + field)).astype(float), np.exp(1.0 + field)
    elif kind == "student_t":
        y, process = field + 0.7 * noise * rng.standard_t(4, len(field)), field
    else:
        y, process = field + noise * rng.standard_normal(len(field)), field
    likelihood: Any = kind if kind in ("poisson", "student_t") else "gaussian"
    engine = "markov" if "Markov" in kind else "spectral"
    found: dict[str, list[float]] = {}
    for label, integrate in (("plug-in", False), ("integrated", True)):
        model = gm.GraphGPRegressor(CITY, engine=engine, likelihood=likelihood, integrate=integrate, verbose=False)
        model.fit(CITY.nodes[seen], y[seen])
        names = CITY.nodes[unseen]
        above = {
            "process": model.exceedance(process[unseen], names).to_numpy(),
            "observation": model.exceedance(y[unseen], names, observation=True).to_numpy(),
        }
        if kind == "poisson":  # half of the probability of the same count
            more = model.exceedance(y[unseen] - 0.5, names, observation=True).to_numpy()
            above["observation"] = 0.5 * (above["observation"] + more)
        for what, share in above.items():
            for level in LEVELS:
                found[f"{label}|{what}|{level}"] = [float((np.abs(share - 0.5) <= 0.5 * level).mean())]
    return found


def _classes(labels: Any, seen: Any, unseen: Any) -> dict[str, list[float]]:
    """Calibration error of the class probabilities."""
    found = {}
    for label, integrate in (("plug-in", False), ("integrated", True)):
        model = gm.GraphGPClassifier(CITY, classes=[0, 1, 2], integrate=integrate, verbose=False)
        model.fit(CITY.nodes[seen], labels[seen])
        share = model.predict_proba(CITY.nodes[unseen])
        found[f"{label}|error"] = [float(expected_calibration_error(labels[unseen].tolist(), share, range(3)))]
        found[f"{label}|surplus"] = [float(share.max(axis=1).mean() - (share.argmax(axis=1) == labels[unseen]).mean())]
    return found


def main(simulations: int = SIMULATIONS, kinds: tuple[str, ...] = KINDS) -> None:
    """Simulate and write the table."""
    warnings.simplefilter("ignore")
    lines = [
        "# Coverage of intervals, parameters plugged in and integrated over",
        "",
        f"{simulations} simulations for each size on a road-like graph of {CITY.n_nodes} nodes. ν is 1, 2 or 3;",
        "lengthscale, variance and noise are drawn from the default priors, a field from the kernel, n noisy values;",
        "all other nodes are predicted, with every option at its default (a constant mean, normalised values, ν",
        "learned). Shares of the true process, and of new observations, inside their intervals, with standard errors",
        "over simulations. For classes (three, cut at the field's terciles): confidence minus accuracy, and the",
        "expected calibration error of single simulations.",
        f"Made by `make evidence` on {dt.date.today().isoformat()}, seed {SEED}.",
        "",
    ]
    for kind in kinds:
        lines += [f"## {kind}", ""]
        if kind == "classes":
            lines += ["| n | parameters | confidence − accuracy | calibration error |", "|---|---|---|---|"]
        else:
            heads = [f"{what} {level:.0%}" for what in ("process", "observation") for level in LEVELS]
            lines += [f"| n | parameters | {' | '.join(heads)} |", "|---|---|" + "---|" * len(heads)]
        for n in SIZES:
            rng = np.random.default_rng([SEED, n])
            rows: dict[str, list[float]] = {}
            for _ in range(simulations):
                for key, values in simulate(kind, n, rng).items():
                    rows.setdefault(key, []).extend(values)
            for label in ("plug-in", "integrated"):
                if kind == "classes":
                    keys, form = [f"{label}|surplus", f"{label}|error"], "{:+.3f} ± {:.3f}"
                else:
                    keys = [f"{label}|{what}|{level}" for what in ("process", "observation") for level in LEVELS]
                    form = "{:.1%} ± {:.1%}"
                cells = [form.format(np.mean(rows[k]), np.std(rows[k]) / np.sqrt(len(rows[k]))) for k in keys]
                lines.append(f"| {n} | {label} | {' | '.join(cells)} |")
                print(lines[-1], flush=True)
        lines.append("")
    text = "\n".join(lines)
    Path(__file__).with_suffix(".md").write_text(text)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else SIMULATIONS)
