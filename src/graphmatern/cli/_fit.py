"""The command that learns a model from a graph and values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from graphmatern._validation import FaultList, abbreviate, check_choice
from graphmatern.cli._checks import Checks
from graphmatern.cli._console import writing
from graphmatern.cli._predict import check_wishes, is_classifier, write_outputs
from graphmatern.cli._reading import limited_threads, load_graph
from graphmatern.cli._report import check_page, write_report
from graphmatern.errors import InputError, TableError
from graphmatern.graph import PARALLEL_RULES
from graphmatern.io import check_output, read_values
from graphmatern.tables import NameMatcher, node_column, read_numbers, read_table, wanted_column

if TYPE_CHECKING:
    from pathlib import Path

    from graphmatern.cli._console import Console
    from graphmatern.cli._options import GraphOptions, ModelOptions
    from graphmatern.cli._report import PageOptions
    from graphmatern.io import GraphReading, ValueColumns, ValueReading
    from graphmatern.kernels import Kernel

__all__ = ["run_fit"]

#: Values of options; the library defines them where they are used, which takes long to import.
ENGINES = ("auto", "spectral", "markov", "moments", "features", "eigenvectors", "inducing")
LIKELIHOODS = (
    "gaussian", "student_t", "gamma", "poisson", "negative_binomial", "zero_inflated_poisson", "binomial", "auto",
    "probit", "robustmax", "softmax", "bernoulli",
)  # fmt: skip
_LAPLACIANS = {"auto": None, "plain": False, "normalized": True}
_TASKS = ("auto", "regression", "classification")
_KERNELS = ("matern", "diffusion", "random_walk", "inverse_cosine", "icar", "bym2", "leroux")
_COUNTS = ("poisson", "negative_binomial", "zero_inflated_poisson", "binomial")
_START_LENGTHSCALE = 5.0  # in edges: neither one node nor the whole graph


def run_fit(
    graph: Path,
    values: Path,
    options: GraphOptions,
    columns: ValueColumns,
    model: ModelOptions,
    console: Console,
    *,
    out: Path | None,
    predict: Path | None,
    plot: Path | None,
    areas: Path | None,
    page: PageOptions | None,
    unit: str,
    lines: bool,
    level: float,
    holdout: float,
    ignore_unknown: bool,
) -> None:
    """Learn from a graph and values, and write what was asked for; see the command's help for the options."""
    checks = Checks("nothing was fitted")
    check_wishes(checks, out, predict, plot, level)
    if page is not None:
        check_page(checks, page)
    if out is None and predict is None and plot is None and page is None and holdout == 0.0:
        wishes = "--out model.gm, --predict predictions.csv, --plot map.png or --report page.html"
        checks.add("output", "must be given: say what to write", "nothing", f"Use {wishes}.")
    checks.files((graph, "graph"), (values, "table"), (areas, "GeoJSON"), (model.features, "table"))
    checks.files((options.nodes, "table"), (options.sensors, "table"), (options.links, "table"))
    _check(checks, options, columns, model, holdout)
    checks.raise_if_any()
    with console.listening(), console.steps(4) as begin, limited_threads(model.n_threads):
        begin("reading the graph")
        reading = load_graph(graph, options, console, columns, areas, values)
        begin("reading the values")
        texts = {"auto": None, "regression": False, "classification": True}[model.task]
        counts = model.likelihood in _COUNTS
        data = read_values(values, reading.graph, columns, texts=texts, ignore_unknown=ignore_unknown, counts=counts)
        _say_values(data, values, model, console)
        _warn_of_parts(data, console)
        if predict is not None:
            check_output(predict, data.graph)
        kept, held = _split(data, holdout, model.seed)
        estimator = _estimator(reading, data, model, console)
        begin("learning")
        _fit(estimator, data, kept)
        console.say("")
        console.say(estimator.summary())
        if len(held):
            _score(estimator, data, held, console)
        begin("writing")
        if out is not None:
            with writing(out):
                estimator.save(out)
            console.say(f"{out}: model")
            console.result["model"] = str(out)
        write_outputs(estimator, predict, plot, level, console, unit or data.name, lines=lines)
        if page is not None:
            write_report(estimator, page, console)
    console.result |= _result(estimator, data, len(kept))
    console.finish()


def _check(checks: Checks, options: GraphOptions, columns: ValueColumns, model: ModelOptions, holdout: float) -> None:
    """Note what is wrong whatever the files hold."""
    choices = {
        "task": (model.task, _TASKS),
        "kernel": (model.kernel, _KERNELS),
        "laplacian": (model.laplacian, tuple(_LAPLACIANS)),
        "engine": (model.engine, ENGINES),
        "mean": (model.mean, ("constant", "zero")),
        "likelihood": (model.likelihood or LIKELIHOODS[0], LIKELIHOODS),
        "parallel": (options.parallel, PARALLEL_RULES),
        "contiguity": (options.contiguity, ("queen", "rook")),
    }
    for option, (chosen, possible) in choices.items():
        with checks.collecting():
            check_choice(option, chosen, possible, InputError)
    if not 0.0 <= holdout < 1.0:
        checks.add(
            "holdout", "must be a share from 0 to below 1", f"{holdout:g}", "For instance, 0.2 holds out a fifth."
        )
    remedies = {"nu": "Leave it out to learn it.", "lengthscale": "Leave it out to learn it."}
    numbers = {"nu": model.nu, "lengthscale": model.lengthscale, "max_seconds": model.max_seconds}
    for option, value in (numbers | {"snap-limit": columns.snap_limit}).items():
        if value is not None and not (np.isfinite(value) and value > 0):
            remedy = remedies.get(option, "Leave it out for the default.")
            checks.add(option, "must be a positive number", f"{value:g}", remedy)
    if (model.likelihood == "binomial") != (columns.trials is not None):
        received = f"{columns.trials or 'none'} for {model.likelihood or 'no likelihood'}"
        remedy = "Name the column with the number of trials, and use --likelihood binomial."
        checks.add("trials", "must be given if, and only if, the likelihood is binomial", received, remedy)
    if model.likelihood == "binomial" and holdout:
        checks.add(
            "holdout", "must be 0 for binomial counts", f"{holdout:g}", "The page of --report has leave-one-out scores."
        )


def _say_values(data: ValueReading, path: Path, model: ModelOptions, console: Console) -> None:
    known = len(np.unique(data.places))
    console.say(f"{path.name}: {len(data.places):,} values at {known:,} nodes of {data.graph.n_nodes:,}")
    for note in data.notes:
        console.note(note)
    if data.is_numeric:
        kind = "counts" if model.likelihood in _COUNTS else "numbers"
        console.note(f"the values are {kind}: regression")
        different = np.unique(data.values)
        few = len(different) <= 10 and len(different) < len(data.values) / 2 and (different % 1 == 0).all()
        if model.task == "auto" and model.likelihood is None and few:
            console.note(f"if {abbreviate(different.astype(int))} are names of classes, use --task classification")
        return
    classes = pd.unique(data.values)
    console.note(f"the values are {len(classes):,} classes: classification")
    if len(classes) > max(100, len(data.values) // 3):
        faults = FaultList("nothing was fitted", TableError)
        received = f"{len(classes):,} different ones among {len(data.values):,}"
        raise faults.raise_now(data.name, "must hold few classes", received, "Name another column with --value.")


def _warn_of_parts(data: ValueReading, console: Console) -> None:
    """Warn if a network is not connected, which is usually an accident of how it was drawn."""
    graph = data.graph
    reached = np.isin(graph.components, graph.components[data.places])
    count = int((~reached).sum())
    lost = f"{count:,} nodes are in parts without a value and keep the prior"
    if count == 1:
        lost = "1 node is in a part without a value and keeps the prior"
    # Islands among areas were named when the graph was made.
    named = 0 if graph.areas is None else len(graph.islands)
    parts = graph.n_components - named
    if parts <= 1:
        if not reached.all():
            console.note(lost)
        return
    beside = " beside islands" if named else ""
    words = f"the network is in {parts:,} parts{beside} that are not connected" + ("" if reached.all() else f"; {lost}")
    remedy = "Check the ends of its edges" if graph.areas is None else "Join them with --links or --tolerance"
    console.warn(f"{words}. {remedy}, or use --largest-component")


def _split(data: ValueReading, holdout: float, seed: int) -> tuple[Any, Any]:
    """Rows to learn from, and rows to be tested on."""
    rows = np.arange(len(data.places))
    n_held = round(holdout * len(rows))
    if n_held == 0:
        return rows, rows[:0]
    shuffled = np.random.default_rng(seed).permutation(rows)
    return np.sort(shuffled[n_held:]), np.sort(shuffled[:n_held])


def _kernel(model: ModelOptions) -> Kernel | None:
    """The kernel asked for; given parameters are kept, the others are learned."""
    from graphmatern.kernels import BYM2, ICAR, Diffusion, InverseCosine, Leroux, Matern, RandomWalk

    name = model.kernel
    if name == "matern" and model.nu is None and model.lengthscale is None:
        return None
    lengthscale = _START_LENGTHSCALE if model.lengthscale is None else model.lengthscale
    held = ("lengthscale",) if model.lengthscale is not None else ()
    if name == "matern":
        nu = 1.5 if model.nu is None else model.nu
        return Matern(nu, lengthscale, fixed=(*held, *(("nu",) if model.nu is not None else ())))
    if name == "diffusion":
        return Diffusion(lengthscale, fixed=held)
    others: dict[str, type[Kernel]] = {
        "random_walk": RandomWalk, "inverse_cosine": InverseCosine, "icar": ICAR, "bym2": BYM2, "leroux": Leroux
    }  # fmt: skip
    return others[name]()


def _covariates(reading: GraphReading, data: ValueReading, names: str) -> pd.DataFrame:
    """Columns of the table of nodes, as numbers, indexed by node name."""
    faults = FaultList("nothing was fitted", TableError)
    if reading.nodes is None or data.graph is not reading.graph:
        received = "no table of nodes" if reading.nodes is None else "new nodes on roads, which have none"
        remedy = "Give --nodes with these columns, and values at nodes."
        raise faults.raise_now("covariates", "must be known at every node", received, remedy)
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    chosen = [wanted_column(reading.nodes, name, "covariates", faults) for name in wanted]
    faults.raise_if_any()
    rule, remedy = "must hold numbers at every node, to be a covariate", "Correct or fill in these cells."
    numbers = {str(column): read_numbers(reading.nodes[column], rule, faults, remedy=remedy) for column in chosen}
    faults.raise_if_any()
    return pd.DataFrame(numbers, index=data.graph.nodes)


def _beside_features(kernel: Kernel | None) -> Kernel | None:
    """The kernel that was asked for, and one on features; None leaves both to the estimator."""
    from graphmatern.kernels import RBFFeatures

    return None if kernel is None else kernel + RBFFeatures()


def _features(data: ValueReading, path: Path) -> pd.DataFrame:
    """What is known at every node, as numbers, indexed by node name."""
    faults = FaultList("nothing was fitted", TableError)
    table = read_table(path, TableError)
    matcher = NameMatcher(data.graph.nodes)
    node = node_column(table, matcher)
    if node is None:
        received = f"columns {abbreviate(map(str, table.columns))}"
        raise faults.raise_now("features", "must have a column with names of nodes", received, "Add one.")
    codes = matcher.codes(table[node])
    known, rest = codes >= 0, [name for name in table.columns if name != node]
    rule, remedy = "must hold numbers, to be a feature", "Correct these cells, or remove the column."
    numbers = {str(name): read_numbers(table[name][known], rule, faults, remedy=remedy) for name in rest}
    faults.raise_if_any()
    return pd.DataFrame(numbers, index=data.graph.nodes[codes[known]])


def _estimator(reading: GraphReading, data: ValueReading, model: ModelOptions, console: Console) -> Any:
    """The estimator that suits the values, with the options that it knows."""
    import graphmatern as gm

    kind = gm.GraphGPRegressor if data.is_numeric else gm.GraphGPClassifier
    options: dict[str, Any] = {
        "kernel": _kernel(model),
        "normalized": _LAPLACIANS[model.laplacian],
        "n_eigenpairs": model.eigenpairs,
        "n_threads": model.n_threads,
        "max_seconds": model.max_seconds,
        "verbose": None if console.talks else False,
        "integrate": "auto" if model.integrate is None else model.integrate,
    }
    options["engine"] = model.engine
    if data.is_numeric:
        options["mean"] = model.mean
    if model.likelihood is not None:
        options["likelihood"] = model.likelihood
    if model.covariates is not None:
        options["covariates"] = _covariates(reading, data, model.covariates)
    if data.covariates is not None:
        both = [options["covariates"]] if "covariates" in options else []
        options["covariates"] = pd.concat([*both, data.covariates], axis=1)
    if model.features is not None:
        options["features"] = _features(data, model.features)
        options["kernel"] = _beside_features(options["kernel"])
    unknown = sorted(set(options) - set(kind._get_param_names()))
    if unknown:
        faults = FaultList("nothing was fitted", InputError)
        rule = f"must not be given for {'regression' if data.is_numeric else 'classification'}"
        raise faults.raise_now(unknown[0], rule, repr(getattr(model, unknown[0])), "Leave it out, or change --task.")
    return kind(data.graph, **options)


def _fit(estimator: Any, data: ValueReading, kept: Any) -> None:
    nodes = data.graph.nodes[data.places[kept]]
    beside: dict[str, Any] = {}
    if data.noise is not None:
        beside["noise_variance"] = data.noise[kept] ** 2
    if data.exposure is not None:
        beside["exposure"] = data.exposure[kept]
    if data.trials is not None:
        beside["trials"] = data.trials[kept]
    estimator.fit(nodes, data.values[kept], **beside)


def _score(estimator: Any, data: ValueReading, held: Any, console: Console) -> None:
    """Report how well the held-out values are predicted."""
    if is_classifier(estimator):
        seen = np.isin(data.values[held].astype(str), estimator.classes_.astype(str))
        if not seen.all():
            count = int((~seen).sum())
            words = "value has a class" if count == 1 else "values have classes"
            console.warn(f"{count:,} held-out {words} that no other value has: not scored")
        held = held[seen]
    beside = {} if data.exposure is None else {"exposure": data.exposure[held]}
    scores = estimator.evaluate(data.graph.nodes[data.places[held]], data.values[held], **beside) if len(held) else {}
    console.say(
        f"held out  {len(held):,} values: " + ", ".join(f"{name} {value:.4g}" for name, value in scores.items())
    )
    console.result["holdout"] = {"values": len(held), **scores}


def _result(estimator: Any, data: ValueReading, n_values: int) -> dict[str, Any]:
    found: dict[str, Any] = {
        "task": "classification" if is_classifier(estimator) else "regression",
        "value": data.name,
        "nodes": data.graph.n_nodes,
        "edges": data.graph.n_edges,
        "values": n_values,
        "summary": estimator.summary().splitlines(),
    }
    for name in ("engine_", "engine_reason_", "noise_", "y_mean_", "y_scale_", "log_marginal_likelihood_", "elbo_"):
        if hasattr(estimator, name):
            found[name.rstrip("_")] = getattr(estimator, name)
    if hasattr(estimator, "kernel_"):
        found["kernel"] = repr(estimator.kernel_)
    if np.isfinite(estimator.log_evidence_):
        found["log_evidence"] = estimator.log_evidence_
        found["hyperparameters"] = estimator.hyperparameters_.to_dict("index")
    if hasattr(estimator, "converged_"):
        found["converged"] = bool(estimator.converged_)
    return found
