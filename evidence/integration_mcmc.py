"""Integrated parameters against long Markov chains, on eight small problems.

The chains (NumPyro, in an environment of its own, mcmc/requirements.txt) are those of mcmc/sample.py, which knows the
formulas and nothing of this package. What they found is kept in a folder, and not sampled again. Run through ``make
evidence``, which writes integration_mcmc.md beside this file, or as

    python evidence/integration_mcmc.py --python .venv-mcmc/bin/python [--draws 2000] [--problems poisson binary]
"""

from __future__ import annotations

import argparse
import datetime as dt
import os
import subprocess
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import graphmatern as gm

ROOT = Path(__file__).parent.parent
KINDS = ("nu", "lengthscale", "variance")
OF_LIKELIHOOD = {
    "gaussian": ("noise",),
    "poisson": (),
    "negative_binomial": ("dispersion",),
    "binary": (),
    "student_t": ("scale", "df"),
    "classes": (),
}
SPREADS = {"nu": 1.0, "lengthscale": 1.3, "variance": 1.5, "noise": 1.7, "scale": 0.85, "df": 1.5, "dispersion": 1.5}
ASKED = {"means": 0.1, "sds": 0.1, "latent means": 0.05, "limits": 0.1, "probabilities": 0.02}


# ---------------------------------------------------------------------- the problems
def _city(n_nodes: int, seed: int, n: int, field_seed: int, kernel: gm.Matern, n_fields: int = 1) -> tuple[Any, ...]:
    graph = gm.make_roads(n_nodes, seed=seed)
    rng = np.random.default_rng(field_seed)
    fields = kernel.on(graph).sample(n_fields, random_state=field_seed).numpy()
    return graph, rng, np.sort(rng.permutation(graph.n_nodes)[:n]), fields


def gaussian(n: int) -> tuple[Any, ...]:
    """Noisy values of a field."""
    graph, rng, seen, fields = _city(100, 1, n, n, gm.Matern(1.5, 4.0))
    return "gaussian", graph, seen, 20.0 + 5.0 * (fields[0, seen] + 0.4 * rng.standard_normal(n)), None


def traffic() -> tuple[Any, ...]:
    """Speeds of 60 sensors; 200 eigenpairs, here and there."""
    data = gm.datasets.load_traffic()
    chosen = data.values.iloc[np.sort(np.random.default_rng(0).permutation(len(data.values))[:60])]
    return "gaussian", data.graph, data.graph.locate(chosen.index), chosen.to_numpy(), 200


def poisson() -> tuple[Any, ...]:
    """Counts."""
    graph, rng, seen, fields = _city(90, 2, 60, 5, gm.Matern(1.5, 4.0))
    return "poisson", graph, seen, rng.poisson(np.exp(1.0 + fields[0, seen])).astype(float), None


def negative_binomial() -> tuple[Any, ...]:
    """Overdispersed counts."""
    graph, rng, seen, fields = _city(90, 2, 70, 6, gm.Matern(1.5, 4.0))
    rate = np.exp(1.5 + fields[0, seen]) * rng.gamma(2.5, 1 / 2.5, len(seen))
    return "negative_binomial", graph, seen, rng.poisson(rate).astype(float), None


def binary() -> tuple[Any, ...]:
    """Two classes."""
    graph, rng, seen, fields = _city(90, 3, 60, 7, gm.Matern(1.5, 4.0, 2.0))
    return "binary", graph, seen, (fields[0, seen] + rng.standard_normal(len(seen)) > 0).astype(float), None


def student_t() -> tuple[Any, ...]:
    """Heavy tails, and a gross outlier."""
    graph, rng, seen, fields = _city(90, 4, 60, 8, gm.Matern(1.5, 4.0))
    y = fields[0, seen] + 0.3 * rng.standard_t(4, len(seen))
    y[7] += 12.0
    return "student_t", graph, seen, y, None


def classes() -> tuple[Any, ...]:
    """Seven classes."""
    graph, rng, seen, fields = _city(75, 5, 60, 9, gm.Matern(1.5, 4.0, 3.0), 7)
    labels = (fields + rng.standard_normal(fields.shape)).argmax(axis=0)
    return "classes", graph, seen, labels[seen].astype(float), None


PROBLEMS: dict[str, Any] = {
    "regression, n = 20": lambda: gaussian(20),
    "regression, n = 60": lambda: gaussian(60),
    "traffic, 60 sensors": traffic,
    "poisson": poisson,
    "negative binomial": negative_binomial,
    "binary": binary,
    "student-t, an outlier": student_t,
    "seven classes": classes,
}

# Draws of each of four chains, which give some thousand effective ones, and the acceptance that steps are adapted to.
CHAINS = {
    "regression, n = 20": (12_000, 0.95),
    "regression, n = 60": (14_000, 0.95),
    "traffic, 60 sensors": (20_000, 0.95),
    "poisson": (20_000, 0.99),
    "negative binomial": (110_000, 0.99),
    "binary": (18_000, 0.99),
    "student-t, an outlier": (30_000, 0.99),
    "seven classes": (25_000, 0.98),
}


def normalised(kind: str, y: Any) -> tuple[Any, float, float]:
    """Values as the model sees them, their origin and unit."""
    if kind == "gaussian":
        return (y - y.mean()) / y.std(), float(y.mean()), float(y.std())
    if kind == "student_t":
        centre = float(np.median(y))
        unit = float(1.4826 * np.median(np.abs(y - centre)))
        return (y - centre) / unit, centre, unit
    return y, 0.0, 1.0


def described(kind: str, graph: Any, seen: Any, y: Any, n_eigenpairs: int | None) -> dict[str, Any]:
    """The problem for the chains: eigenpairs, data and priors, the default ones as documented."""
    laplacian = graph.laplacian().toarray()
    values, vectors = np.linalg.eigh(laplacian)
    values, vectors = np.maximum(values[:n_eigenpairs], 0.0), vectors[:, :n_eigenpairs]
    edge = 1.0 / np.sqrt(np.diag(laplacian).mean() / (2.0 * graph.n_edges / graph.n_nodes))
    y, _, _ = normalised(kind, y)
    spread = 20.0 if kind in ("binary", "classes") else 1.0
    if kind == "student_t":
        spread = float((np.median(np.abs(y - np.median(y))) / 0.6745) ** 2)
    medians = {
        "nu": 1.5,
        "lengthscale": edge * graph.n_nodes**0.25,
        "variance": spread,
        "noise": 0.1 * spread,
        "scale": np.sqrt(0.1 * spread),
        "df": 8.0,
        "dispersion": 0.3,
    }
    names = (*KINDS, *OF_LIKELIHOOD[kind])
    return {
        "kind": kind,
        "n_nodes": graph.n_nodes,
        "eigenvalues": values,
        "basis": vectors,
        "nodes": seen,
        "y": y,
        "names": np.array(names),
        "medians": np.array([medians[name] for name in names]),
        "spreads": np.array([SPREADS[name] for name in names]),
        "constant": kind not in ("binary", "classes"),
        "level": np.log((y.sum() + 1.0) / len(y)) if kind in ("poisson", "negative_binomial") else 0.0,
        "effect_variance": 2.5**2 if kind in ("poisson", "negative_binomial") else 10.0**2,
        "n_latents": 7 if kind == "classes" else 1,
    }


# ---------------------------------------------------------------------- ours
def ours(kind: str, graph: Any, seen: Any, y: Any, n_eigenpairs: int | None) -> dict[str, Any]:
    """What the package says, in the units of the chains."""
    names = graph.nodes[seen]
    start = time.perf_counter()
    if kind in ("binary", "classes"):
        likelihood: Any = "bernoulli" if kind == "binary" else "auto"
        model: Any = gm.GraphGPClassifier(graph, likelihood=likelihood, normalized=False, integrate=True, verbose=False)
        model.fit(names, y.astype(int))
    else:
        likelihood = kind
        model = gm.GraphGPRegressor(
            graph, engine="spectral", likelihood=likelihood, n_eigenpairs=n_eigenpairs, integrate=True, verbose=False
        )
        model.fit(names, y)
    seconds = time.perf_counter() - start
    _, _, unit = normalised(kind, y)
    points = model.hyperparameter_points()
    points["variance"] = (points["sigma"] / unit) ** 2
    if "noise" in points:
        points["noise"] = (points["noise"] / unit) ** 2
    if "scale" in points:
        points["scale"] = points["scale"] / unit
    if "df" in points:
        points["df"] = points["df"] - 2.0
    every = np.arange(graph.n_nodes)
    found = {
        "points": np.log(points[[*KINDS, *OF_LIKELIHOOD[kind]]].to_numpy()),
        "weights": points["weight"].to_numpy(),
        "latent_mean": model.posterior_.latent_mean(every),
        "latent_sd": np.sqrt(model.posterior_.latent_variance(every)),
        "seconds": seconds,
    }
    if kind in ("binary", "classes"):
        return found | {"probabilities": model.predict_proba()}
    ends = [model.posterior_.quantile(every, share, observation=False) for share in (0.025, 0.975)]
    if kind in ("poisson", "negative_binomial"):
        ends = [np.log(end) for end in ends]
    return found | {"latent_low": ends[0], "latent_high": ends[1]}


# ---------------------------------------------------------------------- the comparison
def compared(chains: dict[str, Any], own: dict[str, Any], names: list[str]) -> tuple[dict[str, float], list[str]]:
    """Largest differences, and the parameters one by one."""
    draws, weights = chains["draws"], own["weights"]
    mean, sd = draws.mean(axis=0), draws.std(axis=0)
    own_mean = weights @ own["points"]
    own_sd = np.sqrt(weights @ (own["points"] - own_mean) ** 2)
    spread = chains["latent_sd"].reshape(-1)

    def away(what: str) -> Any:
        return np.abs(own[what].reshape(-1) - chains[what].reshape(-1)) / spread

    found = {
        "means": float(np.max(np.abs(own_mean - mean) / sd)),
        "sds": float(np.max(np.abs(own_sd / sd - 1.0))),
        "latent means": float(
            np.max(np.abs(own["latent_mean"].reshape(-1) - chains["latent_mean"].reshape(-1)) / spread)
        ),
        "latent sds": float(np.max(np.abs(own["latent_sd"].reshape(-1) / spread - 1.0))),
    }
    if "latent_low" in own:
        away = [
            np.abs(own[end].reshape(-1) - chains[end].reshape(-1)) / spread for end in ("latent_low", "latent_high")
        ]
        found["limits"] = float(np.max(away))
    if "probabilities" in own:
        found["probabilities"] = float(np.max(np.abs(own["probabilities"] - chains["probabilities"])))
    parts = zip(names, mean, sd, own_mean, own_sd, strict=True)
    return found, [f"{name} {m:.2f} ± {s:.2f} / {om:.2f} ± {os:.2f}" for name, m, s, om, os in parts]


def main() -> None:
    """Sample where needed, compare and write the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--python", default=str(ROOT / ".venv-mcmc" / "bin" / "python"))
    parser.add_argument("--draws", type=int, help="of each chain; by default as listed here")
    parser.add_argument("--problems", nargs="*", default=list(PROBLEMS))
    parser.add_argument("--folder", type=Path, default=ROOT / "results" / "mcmc", help="where chains are kept")
    parser.add_argument("--sample-only", action="store_true")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    warnings.simplefilter("ignore")
    columns = ("means", "sds", "latent means", "latent sds", "limits", "probabilities")
    rows, details = [], []
    for title in given.problems:
        kind, graph, seen, y, n_eigenpairs = PROBLEMS[title]()
        file = given.folder / f"{title.replace(' ', '').replace(',', '-').replace('=', '')}.npz"
        problem = described(kind, graph, seen, y, n_eigenpairs)
        if not file.exists():
            inputs = file.with_suffix(".problem.npz")
            np.savez(inputs, **problem)
            worker = Path(__file__).parent / "mcmc" / "sample.py"
            draws, accept = CHAINS[title]
            options = ["--draws", str(given.draws or draws), "--accept", str(accept)]
            command = [given.python, str(worker), str(inputs), str(file), *options]
            single = {"XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"}
            subprocess.run(command, check=True, env={**os.environ, **single})  # noqa: S603
        if given.sample_only:
            continue
        chains = dict(np.load(file))
        own = ours(kind, graph, seen, y, n_eigenpairs)
        found, lines = compared(chains, own, [str(name) for name in problem["names"]])
        texts = [f"{found[name]:.3f}" if name in found else "" for name in columns]
        marked = [
            f"**{text}**" if name in ASKED and name in found and found[name] > ASKED[name] else text
            for name, text in zip(columns, texts, strict=True)
        ]
        effective = 1.0 / np.sum(own["weights"] ** 2)
        quality = f"{float(chains['r_hat']):.4f} | {float(chains['ess_parameters']):.0f}, {float(chains['ess']):.0f}"
        rows.append(f"| {title} | {quality} | {effective:.0f} of {len(own['weights'])} | {' | '.join(marked)} |")
        details.append(f"* {title}: " + "; ".join(lines))
        print(rows[-1], details[-1], f"{own['seconds']:.1f} s", sep="\n", flush=True)
    if given.sample_only:
        return
    text = [
        "# Integrated parameters against long Markov chains",
        "",
        "Eight problems on graphs of 63 to 1,016 nodes, default priors. The chains are NumPyro's NUTS (four, from the",
        "formulas; Gaussian noise integrated out). The largest difference, over all parameters or nodes: of the means",
        "of the logarithms of the parameters, in standard deviations; of their standard deviations, relative; of",
        "latent means, in standard deviations; of latent standard deviations, relative; of the ends of 95 % intervals",
        "of the process, in standard deviations; of class probabilities. Asked for: "
        + ", ".join(f"{name} {value}" for name, value in ASKED.items())
        + "; what exceeds that is in bold.",
        f"Made by `python evidence/integration_mcmc.py` on {dt.date.today().isoformat()}.",
        "",
        f"| problem | R̂ | effective draws, parameters and all | effective points, ours | {' | '.join(columns)} |",
        "|---|---|---|---|" + "---|" * len(columns),
        *rows,
        "",
        "Logarithms of the parameters, mean ± standard deviation, chains / ours:",
        "",
        *details,
        "",
    ]
    (given.out / "integration_mcmc.md").write_text("\n".join(text))


if __name__ == "__main__":
    main()
