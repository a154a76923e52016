"""Simulation-based calibration (Talts et al. 2018): true parameters are where their posteriors say.

Parameters are drawn from fixed proper priors in the units of the values, data from the model, and a model with the same
priors is fitted (``normalize_y=False``). The share of the posterior below the true value is then uniform, for every
parameter, and intervals at nodes without a value cover what they say. Run through ``make evidence``, which writes
simulation_based.md beside this file, or like calibration.py:

    python evidence/simulation_based.py --simulations 500 --processes 16 --seconds 300 --out results
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import numpy as np
from _simulations import LEVELS, Cell, Row, Study, arguments, coverage_cells, inside, run, verdict
from scipy.stats import chi2, kstest

import graphmatern as gm

if TYPE_CHECKING:
    from graphmatern.inference import Prior

SEED = 2028
SIZES = (20, 80)
BINS = 10
KINDS = ("gaussian", "gaussian, Markov engine", "poisson", "negative_binomial", "student_t")
PRIORS: dict[str, Prior] = {
    "nu": gm.LogNormal(1.5, 0.6),
    "lengthscale": gm.Gamma(3.0, 0.5),
    "variance": gm.HalfNormal(2.0),
    "noise": gm.LogNormal(0.2, 0.8),
    "scale": gm.Gamma(4.0, 8.0),
    "df": gm.LogNormal(5.0, 0.8),  # of df − 2
    "dispersion": gm.Gamma(2.0, 4.0),
}
OF_LIKELIHOOD = {
    "gaussian": ("noise",),
    "poisson": (),
    "negative_binomial": ("dispersion",),
    "student_t": ("scale", "df"),
}
CITY = gm.make_roads(120, seed=3)


def simulate(cell: Cell, number: int) -> Row:
    """The share of the posterior below each true parameter, and of other nodes inside their intervals."""
    likelihood: Any = cell.kind.split(",")[0]
    markov = "Markov" in cell.kind
    rng = np.random.default_rng([SEED, cell.n, number])
    names = ("nu", "lengthscale", "variance", *OF_LIKELIHOOD[likelihood])
    truth = {name: float(np.exp(PRIORS[name].quantile(rng.random(1)))[0]) for name in names}
    if markov:
        whole = np.array([1.0, 2.0, 3.0])
        share = np.exp(PRIORS["nu"].log_density(np.log(whole))[0])
        truth["nu"] = float(rng.choice(whole, p=share / share.sum()))
    kernel = gm.Matern(truth["nu"], truth["lengthscale"], truth["variance"])
    field = kernel.on(CITY).sample(random_state=int(rng.integers(2**31))).numpy()[0]
    places = rng.permutation(CITY.n_nodes)
    seen, unseen = places[: cell.n], places[cell.n :]
    f = field
    if likelihood == "gaussian":
        f = 3.0 + field  # of a flat mean, any will do
        y = f + np.sqrt(truth["noise"]) * rng.standard_normal(CITY.n_nodes)
    elif likelihood == "student_t":
        truth["df"] += 2.0
        y = f + truth["scale"] * rng.standard_t(truth["df"], CITY.n_nodes)
    elif likelihood == "poisson":
        y = rng.poisson(np.exp(f)).astype(float)
    else:
        size = 1.0 / truth["dispersion"]
        y = rng.poisson(np.exp(f) * rng.gamma(size, 1.0 / size, CITY.n_nodes)).astype(float)
    model = gm.GraphGPRegressor(
        CITY,
        engine="markov" if markov else "spectral",
        likelihood=likelihood,
        mean="constant" if likelihood == "gaussian" else "zero",
        normalize_y=False,
        integrate=True,
        priors={name: PRIORS[name] for name in names},
        verbose=False,
    )
    points = model.fit(CITY.nodes[seen], y[seen]).hyperparameter_points()
    weights = points["weight"].to_numpy()
    if "sigma" in points:
        points["variance"] = points["sigma"] ** 2
    if "noise" in points:
        points["noise"] = points["noise"] ** 2
    found: Row = {"effective": float(1.0 / np.sum(weights**2))}
    for name in names:
        below = float(weights @ (points[name] < truth[name] * (1 - 1e-9)))
        equal = float(weights @ np.isclose(points[name], truth[name], rtol=1e-9))
        found[name] = below + rng.random() * equal
    counts = likelihood in ("poisson", "negative_binomial")
    process = np.exp(f) if counts else f
    return found | inside(model, CITY.nodes[unseen], process[unseen], y[unseen], rng.random(len(unseen)), counts=counts)


def compile_markov() -> None:
    """Fit once: what is compiled then is found by other processes."""
    gm.GraphGPRegressor(CITY, engine="markov", integrate=True, verbose=False).fit(CITY.nodes[:10], np.arange(10) % 3.0)


def _coverage(rows: list[Row]) -> list[str]:
    """Shares of the nodes without a value inside their intervals."""
    heads = [f"{what} {level:.0%}" for what in ("process", "observation") for level in LEVELS]
    lines = [
        "",
        "## Coverage",
        "",
        "The same simulations: shares of the true process and of new observations inside their intervals, at nodes",
        "without a value, with standard errors over simulations. Here they are nominal if all is well, as the priors",
        "that are fitted are the ones from which parameters are drawn.",
        "",
        f"| likelihood | n | simulations | {' | '.join(heads)} |",
        "|---|---|---|" + "---|" * len(heads),
    ]
    scores: list[float] = []
    for kind in KINDS:
        for n in SIZES:
            own = [row for row in rows if (row["kind"], row["n"]) == (kind, n) and "error" not in row]
            if len(own) >= 2:
                texts, far = coverage_cells(own)
                scores += far
                lines.append(f"| {kind} | {n} | {len(own)} | {' | '.join(texts)} |")
    return [*lines, "", verdict(scores)] if scores else []


def table(rows: list[Row]) -> str:
    """The table of all rows, as text."""
    lines = [
        "# Simulation-based calibration",
        "",
        f"Parameters drawn from {', '.join(f'{name}: {prior!r}' for name, prior in PRIORS.items())}",
        "(ν is 1, 2 or 3 on the Markov engine), values in their own units (`normalize_y=False`), n observations on a",
        f"road-like graph of {CITY.n_nodes} nodes. The share of the posterior below the true value is uniform if all",
        f"is well: its mean is 0.5 and a tenth lies in each tail; p-values of χ² with {BINS} bins and of Kolmogorov",
        "and Smirnov. Effective: as many independent draws know as much about the parameters as ours, median.",
        "Simulations of one number have the same prior quantiles of ν, lengthscale and variance for every likelihood,",
        "so rows of the same n share the luck of these draws.",
        f"Made by `python evidence/simulation_based.py` on {dt.date.today().isoformat()}, seed {SEED}.",
        "",
        "| likelihood | n | simulations | effective | parameter | mean | below 10 % | above 90 % | p, χ² | p, KS |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    least: list[float] = []
    for kind in KINDS:
        for n in SIZES:
            own = [row for row in rows if (row["kind"], row["n"]) == (kind, n) and "error" not in row]
            if len(own) < 2:
                continue
            effective = np.median([row["effective"] for row in own])
            for name in ("nu", "lengthscale", "variance", *OF_LIKELIHOOD[kind.split(",")[0]]):
                shares = np.clip([row[name] for row in own], 0.0, 1.0)
                counts = np.histogram(shares, BINS, (0.0, 1.0))[0]
                expected = len(shares) / BINS
                by_bins = float(chi2.sf(np.sum((counts - expected) ** 2 / expected), BINS - 1))
                by_ks = float(kstest(shares, "uniform").pvalue)
                least.append(by_ks)
                texts = [f"{shares.mean():.3f}", f"{(shares < 0.1).mean():.1%}", f"{(shares > 0.9).mean():.1%}"]
                cells = [
                    kind,
                    str(n),
                    str(len(own)),
                    f"{effective:.0f}",
                    name,
                    *texts,
                    f"{by_bins:.3f}",
                    f"{by_ks:.3f}",
                ]
                lines.append(f"| {' | '.join(cells)} |")
    if least:
        text = f"The least of {len(least)} p-values of KS is {min(least):.4f}, {min(1.0, len(least) * min(least)):.2f}"
        lines += ["", f"{text} with Bonferroni's correction."]
    lines += _coverage(rows)
    wrong = [row["error"] for row in rows if "error" in row]
    if wrong:
        lines.append(f"{len(wrong)} simulations ended with an error, such as: {wrong[0][:200]}")
    return "\n".join([*lines, ""])


def main() -> None:
    """Simulate and write the table."""
    given = arguments(__doc__ or "", simulations=200)
    cells = [Cell(kind, n) for n in SIZES for kind in given.kinds or KINDS]
    study = Study(cells, simulate, {"gaussian, Markov engine": compile_markov})
    rows = run(study, given.out / "simulation_based.jsonl", given.simulations, given.processes, given.seconds)
    text = table(rows)
    (given.out / "simulation_based.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
