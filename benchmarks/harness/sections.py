"""What is measured: the tasks of every section in three sizes, ``quick``, ``standard`` and ``full``."""

from __future__ import annotations

from typing import Any

from harness.peers import regression_peers
from harness.task import GEOMETRIC, OURS, Task
from harness.uses import classes, counts, coverage, fractional

__all__ = ["SECTIONS", "check_sections", "tasks_of"]


def traffic(mode: str) -> list[Task]:
    """Fit to the traffic data: 250 sensors, 500 eigenpairs."""
    pairs = 100 if mode == "quick" else 500
    inner = 1 if mode == "quick" else 3
    repeats = {"quick": 1, "standard": 3, "full": 5}[mode]
    needs = {"job": "traffic", "seed": 0}
    job = {"job": "traffic", "pairs": pairs}
    peers = regression_peers(job, inner)
    return [Task(p, e, s, j, {"pairs": pairs}, needs, repeats=repeats) for p, e, s, j in peers]


def quality(mode: str) -> list[Task]:
    """Scores on other splits of the traffic data; those of graphs with a known truth stand with the scaling."""
    seeds = range({"quick": 2, "standard": 3, "full": 5}[mode])
    job = {"job": "traffic", "pairs": 100 if mode == "quick" else 500}
    peers = [(p, e, s, j | {"inner": 1}) for p, e, s, j in regression_peers(job, 1, adam=False)]
    return [
        Task(p, e, s, j, {"seed": seed}, {"job": "traffic", "seed": seed}) for seed in seeds for p, e, s, j in peers
    ]


def cora(mode: str) -> list[Task]:
    """Classification of 1,000 papers from 140."""
    steps = {"quick": 3, "standard": 20_000, "full": 20_000}[mode]
    pairs = 100 if mode == "quick" else 500
    job = {"job": "cora", "pairs": pairs, "inner": 2}
    adam = {"name": "adam", "rate": 0.05, "steps": min(steps, 400)}
    forms = ("spectral", "markov", "eigenvectors", "inducing")
    peers = [
        (
            f"{OURS}, {form} form",
            "ours",
            "ours.py",
            job | {"inference": form, "pairs": None if form == "markov" else pairs},
        )
        for form in forms
    ]
    natural = job | {"recipe": "natural", "steps": min(steps, 300)}
    peers += [
        (f"{GEOMETRIC}, 400 Adam steps", "geometric_kernels", "peer_geometric_kernels.py", job | {"optimizer": adam}),
        ("GPflow, natural gradients", "gpflow", "peer_gpflow.py", natural),
        ("scikit-learn, one Laplace approximation per class", "ours", "peer_scikit_learn.py", job),
        ("label spreading (scikit-learn)", "ours", "peer_scikit_learn.py", job | {"job": "spreading"}),
    ]
    seeds = {"quick": range(1), "standard": range(3), "full": range(10)}[mode]
    found = [Task(p, e, s, j, {"seed": seed}, {"job": "cora", "seed": seed}) for seed in seeds for p, e, s, j in peers]
    paper = job | {"recipe": "paper", "steps": steps}
    needs = {"job": "cora", "seed": 0}
    recipe = "the paper's recipe (GPflow, 20,000 Adam steps)"
    return [*found, Task(recipe, "gpflow", "peer_gpflow.py", paper, {"seed": 0}, needs)]


def scaling(mode: str) -> list[Task]:
    """Fit and all standard deviations on road-like graphs, a tenth of the nodes observed."""
    sizes = {
        "quick": [300, 1000],
        "standard": [1000, 3000, 10_000, 30_000, 100_000, 300_000, 1_000_000, 4_000_000],
        "full": [1000, 3000, 10_000, 30_000, 100_000, 300_000, 1_000_000, 4_000_000],
    }[mode]
    job: dict[str, Any] = {"job": "scaling", "pairs": None}
    peers = [
        (OURS, "ours", "ours.py", job),
        (f"{GEOMETRIC}, all eigenpairs", "geometric_kernels", "peer_geometric_kernels.py", job),
        (f"{GEOMETRIC}, 500 eigenpairs", "geometric_kernels", "peer_geometric_kernels.py", job | {"pairs": 500}),
        ("GPflow, our kernel, all eigenpairs", "gpflow", "peer_gpflow.py", job),
        ("GPJax, all eigenpairs", "gpjax", "peer_gpjax.py", job),
        ("scikit-learn, our kernel, all eigenpairs", "ours", "peer_scikit_learn.py", job),
    ]
    found = []
    for size in sizes:
        for peer, place, script, given in peers:
            if given["pairs"] is not None and size <= given["pairs"]:
                continue
            if mode == "standard" and peer.startswith("GPJax") and size > 3000:
                continue  # out of memory after minutes
            largest = 1_000_000 if peer == OURS else 1000 if mode == "standard" else 3000
            repeats = 3 if size <= largest and mode != "quick" else 1
            needs = {"job": "roads", "nodes": size}
            found.append(Task(peer, place, script, given, {"nodes": size}, needs, size=size, repeats=repeats))
    return found


def spectrum(mode: str) -> list[Task]:
    """Smallest eigenpairs of road-like graphs."""
    cases = {
        "quick": [(1000, 20)],
        "standard": [(10_000, 100), (10_000, 500), (10_000, 1000), (100_000, 100), (100_000, 500)],
        "full": [(n, pairs) for n in (10_000, 100_000) for pairs in (100, 500, 1000)],
    }[mode]
    found = []
    for n, pairs in cases:
        needs, case = {"job": "roads", "nodes": n}, {"nodes": n, "pairs": pairs}
        repeats = 3 if n <= 10_000 and (pairs <= 100 or mode == "full") and mode != "quick" else 1
        methods = [
            (OURS, "ours", "ours.py", "spectrum"),
            ("SciPy's ARPACK, shift and invert", "ours", "ours.py", "eigsh"),
            ("LOBPCG with pyamg", "solvers", "sparse.py", "lobpcg"),
        ]
        for peer, place, script, job in methods[: 3 if pairs <= 100 and (n <= 10_000 or mode == "full") else 2]:
            found.append(Task(peer, place, script, {"job": job, "pairs": pairs}, case, needs, repeats=repeats))
    return found


_SOLVERS = [
    ("graphmatern", "ours", 2, "auto"),
    ("graphmatern", "ours", 1, "auto"),
    ("CHOLMOD", "cholmod", 1, "auto"),
    ("CHOLMOD, our ordering", "cholmod", 1, "ours"),
    ("PARDISO", "pardiso", 2, "auto"),
    ("PARDISO", "pardiso", 1, "auto"),
    ("SuperLU", "superlu", 1, "auto"),
    ("conjugate gradients with pyamg", "pyamg", 1, "auto"),
]


def _kernel_task(peer: str, solver: str, threads: int, ordering: str, graph: str, n: int, nu: int) -> Task:
    case = {"graph": graph, "n": n, "nu": nu, "threads": threads}
    job = case | {"job": "kernels", "solver": solver, "ordering": ordering, "repeats": 3}
    return Task(peer, "solvers", "sparse.py", job, case)


def sparse(mode: str) -> list[Task]:
    """Analysis, factorisation, solve and selected inverse of posterior precisions."""
    cases = [("roads", 1_050_000, 1), ("roads", 1_050_000, 2), ("grid", 1_000_000, 1), ("knn", 20_000, 1)]
    cases += [("scale_free", 10_000, 1), ("scale_free", 10_000, 2)]
    if mode == "full":
        cases += [("roads", 1_050_000, 3), ("grid", 1_000_000, 2)]
    solvers = _SOLVERS
    if mode == "quick":
        cases = [("roads", 5000, 1), ("knn", 500, 1)]
    elif mode == "standard":
        solvers = [solver for solver in _SOLVERS if solver[:3] not in {("PARDISO", "pardiso", 1)}]
    slow = {("superlu", "knn", 1), ("superlu", "scale_free", 2), ("pyamg", "roads", 2)}  # minutes for a known answer
    return [
        _kernel_task(*solver, *case)
        for case in cases
        for solver in solvers
        if mode != "standard" or (solver[1], case[0], case[2]) not in slow
    ]


def growth(mode: str) -> list[Task]:
    """Our factorisation against the size of road-like graphs."""
    sizes = [5000, 10_000] if mode == "quick" else [10_500, 105_000, 1_050_000]
    cases = [(n, nu) for nu in (1, 2) for n in sizes]
    if mode != "quick":
        cases += [(4_200_000, nu) for nu in ((1, 2) if mode == "full" else (1,))]
    return [_kernel_task("graphmatern", "ours", 2, "auto", "roads", n, nu) for n, nu in cases]


def shapes(mode: str) -> list[Task]:
    """Our factorisation on graphs whose elimination trees are extreme."""
    n = 10_000 if mode == "quick" else 1_000_000
    cases = [(name, 1) for name in ("path", "star", "comb", "tree", "ladder")]
    cases += [(name, 2) for name in ("path", "tree", "ladder")]
    return [_kernel_task("graphmatern", "ours", 2, "auto", name, n, nu) for name, nu in cases]


def throughput(mode: str) -> list[Task]:
    """Predictions and posterior paths of a large graph."""
    nodes, paths = {"quick": (1000, 20), "standard": (1_000_000, 100), "full": (1_000_000, 1000)}[mode]
    needs, case = {"job": "roads", "nodes": nodes}, {"nodes": nodes, "paths": paths}
    return [Task(OURS, "ours", "ours.py", {"job": "throughput", "paths": paths}, case, needs)]


_PACKAGES = {
    OURS: ("ours", ["graphmatern"], "import graphmatern.estimators, graphmatern.kernels"),
    GEOMETRIC: (
        "geometric_kernels",
        ["geometric_kernels", "gpytorch"],
        "import geometric_kernels.torch, geometric_kernels.kernels, geometric_kernels.frontends.gpytorch",
    ),
    "GPflow": ("gpflow", ["gpflow", "tensorflow", "tf_keras"], "import gpflow"),
    "GPJax": ("gpjax", ["gpjax"], "import gpjax"),
    "scikit-learn": ("ours", ["scikit-learn"], "import sklearn.gaussian_process"),
}


def start(mode: str) -> list[Task]:
    """Import, first answer, and size of the installation."""
    repeats = 1 if mode == "quick" else 5
    job = {"job": "traffic", "pairs": 100 if mode == "quick" else 500, "inner": 1}
    needs = {"job": "traffic", "seed": 0}
    found = [Task("Python alone", "ours", "", {"code": "pass"}, {"what": "import"}, repeats=repeats)]
    workers = {peer.split(",")[0]: (script, given) for peer, _, script, given in regression_peers(job, 1, adam=False)}
    for peer, (place, packages, code) in _PACKAGES.items():
        script, given = workers[peer]
        found.append(Task(peer, place, "", {"code": code}, {"what": "import"}, repeats=repeats))
        first = given | {"inner": 1}
        found.append(Task(peer, place, script, first, {"what": "first"}, needs, repeats=min(repeats, 2)))
        size = {"job": "installation", "packages": packages}
        found.append(Task(peer, place, script, size, {"what": "installed"}))
    found.append(Task(OURS, "ours", "", {"code": "import graphmatern"}, {"what": "import, lazily"}, repeats=repeats))
    compiled = {"code": _COMPILE, "empty_cache": True}
    found.append(Task(OURS, "ours", "", compiled, {"what": "first sparse fit, nothing compiled"}))
    found.append(Task(OURS, "ours", "", {"code": _COMPILE}, {"what": "first sparse fit, compiled before"}))
    command = {"what": "command line"}
    found.append(Task(OURS, "ours", "", {"code": _COMMAND}, command, {"job": "traffic_tables"}, repeats=repeats))
    return found


_COMPILE = """
import graphmatern as gm, numpy as np
city = gm.make_roads(2000, seed=0)
nodes = np.arange(0, 1800, 9)
model = gm.GraphGPRegressor(city, gm.Matern(1, 3.0, fixed=("nu",)), engine="markov", integrate=False, verbose=False)
model.fit(nodes, np.sin(nodes)).predict()
"""

_COMMAND = """
import os, sys
from graphmatern.cli import main
folder = os.path.dirname(os.environ["BENCH_INPUT"])
tables = [os.path.join(folder, f"traffic-{name}.csv") for name in ("roads", "speeds")]
options = ["--length", "length", "--quiet"]
files = ["--out", os.path.join(os.environ["BENCH_OUT"], "model.gm")]
files += ["--predict", os.path.join(os.environ["BENCH_OUT"], "everywhere.csv")]
sys.argv = ["graphmatern", "fit", *tables, *options, *files]
main()
"""

SECTIONS = {
    "traffic": traffic,
    "cora": cora,
    "classes": classes,
    "counts": counts,
    "coverage": coverage,
    "scaling": scaling,
    "fractional": fractional,
    "spectrum": spectrum,
    "sparse": sparse,
    "throughput": throughput,
    "start": start,
    "quality": quality,
    "growth": growth,
    "shapes": shapes,
}


def check_sections(names: list[str]) -> list[str]:
    """Sections that were asked for, all of the report by default; ValueError for names that are none."""
    unknown = [name for name in names if name not in SECTIONS]
    if unknown:
        raise ValueError(f"there is no section {', '.join(map(repr, unknown))}; choose from {', '.join(SECTIONS)}")
    return names or list(SECTIONS)


def tasks_of(section: str, mode: str, peers: bool) -> list[Task]:
    """Tasks of a section; without peers only those that need no environment but ours."""
    found = SECTIONS[section](mode)
    if not peers:
        found = [task for task in found if task.peer.startswith(OURS)]
        # The sparse kernels are measured next to their peers; alone they need none of those.
        found = [Task(**(vars(task) | {"environment": "ours"})) for task in found]
    return found
