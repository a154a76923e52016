"""What users do besides regression on roads: classes, counts by area, intervals, any smoothness."""

from __future__ import annotations

from typing import Any

from harness.peers import regression_peers
from harness.task import GEOMETRIC, OURS, Task

__all__ = ["classes", "counts", "coverage", "fractional"]

PLUGGED = f"{OURS}, parameters plugged in"
CHAINS = "NumPyro, NUTS"


def classes(mode: str) -> list[Task]:
    """A few labels on citation-like graphs and nearest-neighbour graphs; every library with its usual options."""
    seeds = {"quick": 1, "standard": 3, "full": 10}[mode]
    cases: list[tuple[dict[str, Any], dict[str, Any]]] = []
    if mode != "quick":
        cases += [({"data": "Cora", "seed": seed}, {"job": "cora", "seed": seed}) for seed in range(seeds)]
        few = range(1 if mode == "standard" else seeds)
        cases += [({"data": "digits", "seed": seed}, {"job": "digits", "seed": seed}) for seed in few]
    citations, points = (200, 200) if mode == "quick" else (20_000, 60_000)
    cases.append(({"data": "citations", "seed": 0}, {"job": "citations", "nodes": citations}))
    cases.append(({"data": "points", "seed": 0}, {"job": "points", "nodes": points}))
    job = {"job": "classes"}
    steps = 5 if mode == "quick" else 200
    peers: list[tuple[str, str, dict[str, Any]]] = [
        (OURS, "ours.py", job),
        ("scikit-learn, label spreading", "peer_classes.py", job | {"method": "spreading", "by": "accuracy"}),
        (
            "scikit-learn, label spreading, α by log loss",
            "peer_classes.py",
            job | {"method": "spreading", "by": "log_loss"},
        ),
        ("scikit-learn, label propagation", "peer_classes.py", job | {"method": "propagation"}),
        ("scikit-learn, nearest labels", "peer_classes.py", job | {"method": "neighbours"}),
        ("graph convolutions (torch)", "peer_classes.py", job | {"method": "convolutions", "steps": steps}),
    ]
    found = []
    for case, needs in cases:
        for peer, script, given in peers:
            if given.get("method") == "neighbours" and case["data"] in ("Cora", "citations"):
                continue  # there are no vectors
            found.append(Task(peer, "ours", script, given, case, needs))
    return found


def counts(mode: str) -> list[Task]:
    """Poisson counts with exposures and a covariate, BYM2 with the priors of Stan's case study."""
    areas = 60 if mode == "quick" else 2000
    draws = 20 if mode == "quick" else 1000
    cases: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"data": "generated map", "areas": areas}, {"job": "areas", "nodes": areas})
    ]
    if mode != "quick":
        cases.insert(0, ({"data": "Scotland", "areas": 56}, {"job": "scotland"}))
    chains = {"job": "counts", "chains": 4, "warm_up": draws, "draws": draws}
    found = []
    for case, needs in cases:
        found.append(Task(OURS, "ours", "ours.py", {"job": "counts"}, case, needs, repeats=1 if mode == "quick" else 3))
        found.append(Task(f"{CHAINS}, 4 chains of {draws:,}", "gpjax", "peer_numpyro.py", chains, case, needs))
    return found


def coverage(mode: str) -> list[Task]:
    """Fields with known parameters on road-like graphs; all simulations of a library in one process."""
    simulations = {"quick": 2, "standard": 24, "full": 100}[mode]
    job: dict[str, Any] = {"job": "coverage", "pairs": None}
    found = []
    for observed in (10,) if mode == "quick" else (10, 20, 50):
        needs = {"job": "simulations", "count": simulations, "observed": observed}
        case = {"observed": observed}
        own = [(OURS, "ours", "ours.py", job | {"integrate": "auto"})]
        own.append((PLUGGED, "ours", "ours.py", job | {"integrate": False}))
        # GPyTorch's L-BFGS ends in NaN on some of these few observations; Adam does not.
        others = [peer for peer in regression_peers(job, 1) if peer[0] not in (OURS, f"{GEOMETRIC}, L-BFGS")]
        found += [Task(p, e, s, j, case, needs) for p, e, s, j in (*own, *others)]
    return found


def fractional(mode: str) -> list[Task]:
    """Fit of all parameters, ν too, to fields of which the smoothness is no integer; then all standard deviations.

    With all eigenpairs other libraries take minutes at 10,000 nodes, whatever the smoothness, as in `scaling`: unless
    everything is asked for, one of them does so for one smoothness, so that the exact likelihood is known there.
    """
    sizes = {
        "quick": [300],
        "standard": [3000, 10_000, 100_000],
        "full": [1000, 3000, 10_000, 100_000, 1_000_000],
    }[mode]
    job: dict[str, Any] = {"job": "scaling", "pairs": None, "learn_nu": True}
    peers = [
        (f"{GEOMETRIC}, all eigenpairs", "geometric_kernels", "peer_geometric_kernels.py"),
        ("GPflow, our kernel, all eigenpairs", "gpflow", "peer_gpflow.py"),
        ("GPJax, all eigenpairs", "gpjax", "peer_gpjax.py"),
        ("scikit-learn, our kernel, all eigenpairs", "ours", "peer_scikit_learn.py"),
    ]
    found = []
    for nu in (1.3,) if mode == "quick" else (0.5, 1.3, 2.7):
        for size in sizes:
            needs, case = {"job": "rough", "nodes": size, "nu": nu}, {"nu": nu, "nodes": size}
            found.append(Task(OURS, "ours", "ours.py", {"job": "fractional"}, case, needs, size=size))
            for number, (peer, place, script) in enumerate(reversed(peers)):
                exact = number == 0 and size <= (10_000 if nu == 1.3 else 3000)
                if mode != "standard" or exact or (nu == 1.3 and size <= 3000):
                    found.append(Task(peer, place, script, job, case, needs, size=size))
    return found
