"""Options that the estimators share: what they mean, and which values are allowed."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from graphmatern._validation import check_positive, check_whole, described, note_choice, note_flag
from graphmatern.graph import Graph
from graphmatern.inference import Normal, OfRoot, PCPrior, Prior, PriorsAndBounds, Search, mixing_prior
from graphmatern.kernels import BYM2, Kernel, parameter_label

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from graphmatern._validation import FaultList

__all__ = ["check_options", "device_of", "documented", "rules_of", "search_of", "uses_normalized"]

_Class = TypeVar("_Class", bound=type)

OPTIMIZERS = ("quasi-newton", "lbfgs", "adam")

_SHARED = {
    "graph": ("Graph", "The graph."),
    "normalized": (
        "bool, optional",
        (
            "Whether to use the normalised Laplacian. By default only if the kernel requires it, or on graphs of\n"
            "very unequal degrees that suit neither eigenpairs nor sparse factors (`GraphGPClassifier` compares both\n"
            "if that is cheap)."
        ),
    ),
    "n_eigenpairs": (
        "int, optional",
        "Number of eigenpairs, for engines that use them; by default all up to 3,000 nodes, and 500 beyond.",
    ),
    "features": (
        "DataFrame, array_like or scipy sparse matrix, shape (n_nodes, n_features), optional",
        (
            "What is known about each node, such as the words of a paper: a table indexed by node name, or rows in\n"
            "the order of the nodes. The process then has a part on features too, smoothed over the graph by a filter\n"
            "whose lengthscale is learned: by default `gm.CosineFeatures` if features are sparse or counts, else\n"
            "`gm.RBFFeatures`, beside a Matérn kernel. ``kernel`` can be any sum of kernels on the graph, on features\n"
            "(`gm.LinearFeatures` too) and `gm.Interaction`. Sparse features stay sparse, others are standardised.\n"
            "Smoothing is on the plain Laplacian unless ``normalized`` says otherwise or degrees are very unequal."
        ),
    ),
    "optimizer": (
        '{"quasi-newton", "adam"} or None',
        (
            "How to maximise the evidence: by Fisher scoring or BFGS, with L-BFGS if these fail; or by Adam. None\n"
            'keeps the starting values. "lbfgs" means the same as "quasi-newton". Free parameters of the kernel are\n'
            "starting values: typical ones are tried as well, and the search starts from the best."
        ),
    ),
    "max_iterations": ("int", "Largest number of iterations of the optimiser."),
    "learning_rate": ("float", "Step size of Adam, in logarithms of the parameters."),
    "n_restarts": (
        "int",
        "Additional random starting points around the first; the best optimum is kept.",
    ),
    "bounds": (
        "dict of str to (float, float), optional",
        'Smallest and largest values of learned parameters: ``{"lengthscale": (1.0, 50.0), "noise": (0.01, 1.0)}``.',
    ),
    "priors": (
        "dict of str to Prior, optional",
        (
            'Priors of learned parameters, such as ``{"lengthscale": gm.LogNormal(median=10.0, spread=1.0)}``: also\n'
            '`gm.HalfNormal`, `gm.Gamma`, `gm.Beta` (of shares) and `gm.PCPrior`; "sigma" is the square root of the\n'
            "variance. In a sum of kernels, ``variance`` names that of every term, ``features.variance`` that of one.\n"
            "Parameters that are integrated over have weak priors by default (see ``integrate``)."
        ),
    ),
    "integrate": (
        '"auto" or bool',
        (
            "Whether to integrate over the parameters, so that predictions and `hyperparameters_` account for their\n"
            "uncertainty: sets of parameters around the mode are weighted by how likely they are, and predictions are\n"
            'mixtures over some two dozen of them. "auto" does so up to 2,000 observations and 60,000 nodes (6,000\n'
            "with moments); with more observations the parameters are known well enough. Parameters without\n"
            "`priors` then have weak ones: log-normal, around ν = 1.5 (95 %: 0.2 to 11), around a lengthscale between\n"
            "one edge and the width of the graph (a factor of 13 either way), around the variance of the data (19),\n"
            "and a tenth of it for the noise (28). Nothing is integrated over if ``optimizer=None``."
        ),
    ),
    "random_state": ("int, optional", "Random seed."),
    "relative_error": (
        "float",
        (
            "Relative error of the covariance that the Markov engine may make if the smoothness is not an integer; it\n"
            "determines how many Markov fields are added up."
        ),
    ),
    "n_threads": ("int, optional", "Number of threads; by default one per processor."),
    "device": (
        "str",
        (
            'Where the moments engine computes its products: "cpu", or "cuda" for a GPU. Everything\n'
            "else, and every other engine, runs on the processor."
        ),
    ),
    "dtype": (
        '{"float64", "float32"}',
        "Precision of these products; float32 takes half the memory, with errors of about 1e-6 in the covariance.",
    ),
    "max_seconds": (
        "float, optional",
        (
            "Limit on the predicted time of a fit. The automatic choice considers only engines within it; if there is\n"
            "none, or the engine asked for exceeds it, the fit is refused with every engine's prediction\n"
            "(`errors.ResourceError`)."
        ),
    ),
    "verbose": (
        "bool, optional",
        "Whether to show progress and announce long steps; by default only on terminals.",
    ),
}


def documented(estimator: _Class) -> _Class:
    """Replace ``<name>`` lines in a class's docstring by the description of a shared option."""
    lines = []
    for line in (estimator.__doc__ or "").splitlines():
        word = line.strip()
        if word.startswith("<") and word.endswith(">"):
            name = word[1:-1]
            kind, text = _SHARED[name]
            indent = line[: len(line) - len(line.lstrip())]
            lines += [f"{indent}{name} : {kind}", textwrap.indent(text, indent + "    ")]
        else:
            lines.append(line)
    estimator.__doc__ = "\n".join(lines)
    return estimator


def check_options(estimator: Any, labels: Sequence[str], faults: FaultList, held: Iterable[str] = ()) -> None:
    """Check the options of a fit; all faults are reported at once.

    Parameters
    ----------
    estimator : GraphEstimator
        The estimator.
    labels : sequence of str
        Parameters beyond the kernel's, which bounds and priors may name.
    faults : FaultList
        Those found so far.
    held : iterable of str
        Those of them that are held.
    """
    if estimator.optimizer is not None:
        note_choice("optimizer", estimator.optimizer, OPTIMIZERS, faults)
    if getattr(estimator, "integrate", "auto") != "auto":
        note_flag("integrate", estimator.integrate, faults)
    for name in ("normalized", "verbose"):
        if getattr(estimator, name) is not None:
            note_flag(name, getattr(estimator, name), faults)
    _check_kinds(estimator, faults)
    check_whole("max_iterations", estimator.max_iterations, faults, minimum=1, remedy="Allow at least one.")
    if hasattr(estimator, "learning_rate"):
        check_positive("learning_rate", estimator.learning_rate, faults, remedy="0.1 is usual.")
    check_whole("n_restarts", estimator.n_restarts, faults, minimum=0, remedy="0 starts once.")
    if hasattr(estimator, "relative_error"):
        _check_error(estimator.relative_error, faults)
    if getattr(estimator, "max_seconds", None) is not None:
        check_positive("max_seconds", estimator.max_seconds, faults, remedy="Leave it out for no limit.")
    if estimator.random_state is not None:
        check_whole("random_state", estimator.random_state, faults, minimum=0, remedy="Leave it out for any.")
    for name, remedy in (
        ("n_eigenpairs", "Leave it out for the default."),
        ("n_threads", "Leave it out to use all processors."),
    ):
        if getattr(estimator, name, None) is not None:
            check_whole(name, getattr(estimator, name), faults, minimum=1, remedy=remedy)
    kernel = estimator.kernel
    if hasattr(estimator, "device"):
        _check_device(estimator, faults)
    faults.raise_if_any()
    named = {"nu": True, "lengthscale": True, "variance": True} if kernel is None else _free_names(kernel)
    _check_features(estimator, named, faults)
    idle = [word for word, free in named.items() if not free]
    _check_priors(estimator, faults)
    rules_of(estimator).check([*named, *labels], [*idle, *held], faults)
    faults.raise_if_any()


def _check_features(estimator: Any, named: dict[str, bool], faults: FaultList) -> None:
    """Note kernels on features without features, and the other way round; names of the default ones are added."""
    given, kernel = getattr(estimator, "features", None) is not None, estimator.kernel
    if given and kernel is None:
        named |= {f"graph.{word}": True for word in list(named)}
        named |= {name: True for word in ("smoothing", "bandwidth", "variance") for name in (word, f"features.{word}")}
    if kernel is None or kernel.uses_features == given:
        return
    if given:
        remedy = "Add one, as in gm.Matern() + gm.CosineFeatures(), or leave out `kernel` or `features`."
        faults.add("kernel", "must have a term on features if `features` are given", repr(kernel), remedy)
    else:
        rule = f"must be given for {kernel!r}"
        here = hasattr(estimator, "features")
        remedy = (
            "One row for each node." if here else f"{type(estimator).__name__} takes no features: leave out that term."
        )
        faults.add("features", rule, "none", remedy)


def _check_error(error: Any, faults: FaultList) -> None:
    """Refuse errors too small to be reached or too large to be useful."""
    known = len(faults)
    check_positive("relative_error", error, faults, remedy="1e-4 is usual.")
    if len(faults) == known and not 1e-12 <= error <= 0.1:
        faults.add("relative_error", "must be between 1e-12 and 0.1", repr(error), "1e-4 is usual.")


def _check_priors(estimator: Any, faults: FaultList) -> None:
    """Note two priors of one parameter, and priors of coefficients that do not exist."""
    priors = estimator.priors if isinstance(estimator.priors, Mapping) else {}
    for name in [str(name) for name in priors if str(name).endswith("sigma")]:
        other = name.removesuffix("sigma") + "variance"
        if other not in priors:
            continue
        received = f"both {name!r} and {other!r}"
        faults.add(
            "priors", "must name only one of these: they are the same parameter", received, "sigma² is the variance."
        )
    mixing = priors.get("mixing")
    if isinstance(mixing, PCPrior) and not _is_of_mixing(estimator, mixing):
        rule = "of mixing must be gm.PCPrior(below=...), a share, for BYM2 only"
        faults.add("priors", rule, f"{mixing!r} for {estimator.kernel!r}", "Use gm.Beta for other kernels.")
    if not hasattr(estimator, "covariates") and any(isinstance(prior, Normal) for prior in priors.values()):
        rule = f"must not be gm.Normal, which is for coefficients of covariates, for {type(estimator).__name__}"
        faults.add("priors", rule, repr(dict(priors)), "Use gm.LogNormal or others.")


def _check_kinds(estimator: Any, faults: FaultList) -> None:
    wanted = getattr(estimator, "graph_kind", Graph)
    if not isinstance(estimator.graph, wanted):
        remedy = "Make one with gm.Graph.from_edges, from_networkx or another constructor."
        if wanted is not Graph:
            remedy = f"Make one with a constructor of {wanted.__name__}."
        faults.add("graph", f"must be a graphmatern {wanted.__name__}", described(estimator.graph), remedy)
    kernel = estimator.kernel
    if kernel is not None and not isinstance(kernel, Kernel):
        remedy = "For instance gm.Matern(nu=1.5, lengthscale=3.0)."
        if isinstance(kernel, type) and issubclass(kernel, Kernel):
            remedy = f"Call the class: {kernel.__name__}()."
        faults.add("kernel", "must be a kernel of this package", f"{kernel!r:.60}", remedy)


def _check_device(estimator: Any, faults: FaultList) -> None:
    note_choice("dtype", estimator.dtype, ("float64", "float32"), faults)
    try:
        kind = torch.device(estimator.device).type
    except (RuntimeError, TypeError):
        faults.add("device", "must be a device name that torch knows", repr(estimator.device), "Use 'cpu' or 'cuda'.")
        return
    if not _is_there(torch.device(estimator.device)):
        remedy = "Leave it out, or use a CUDA build of torch on a machine that has one."
        faults.add("device", "must exist", f"{estimator.device!r}, and torch finds no such CUDA device", remedy)
    engine = getattr(estimator, "engine", None) or getattr(estimator, "inference", "auto")
    if (kind != "cpu" or estimator.dtype != "float64") and engine not in ("auto", "moments"):
        rule = "and `dtype` must keep their defaults for any engine but 'moments'"
        faults.add("device", rule, f"engine {engine!r}", "Use engine='moments'.")


def _is_there(device: torch.device) -> bool:
    return device.type != "cuda" or (torch.cuda.is_available() and (device.index or 0) < torch.cuda.device_count())


def device_of(estimator: Any) -> str:
    """Where to multiply: as asked for, or on the processor where a model was loaded without that device."""
    return estimator.device if _is_there(torch.device(estimator.device)) else "cpu"


def _free_names(kernel: Kernel) -> dict[str, bool]:
    """Names of a kernel's parameters, with their term and without, and whether any of that name is free."""
    found: dict[str, bool] = {}
    for path, raw in kernel.named_parameters():
        label = parameter_label(kernel, path)
        for name in {label, label.rpartition(".")[2]}:
            found[name] = found.get(name, False) or raw.requires_grad
    return found


def _is_of_mixing(estimator: Any, prior: PCPrior) -> bool:
    """Whether a prior that penalises complexity is one of BYM2's mixing, which is a share."""
    return isinstance(estimator.kernel, BYM2) and prior.below is not None and prior.below < 1.0


def rules_of(estimator: Any) -> PriorsAndBounds:
    """Bounds and priors of an estimator's parameters; priors of coefficients of the mean are left out."""
    bounds, priors = ({} if given is None else given for given in (estimator.bounds, estimator.priors))
    if not isinstance(priors, Mapping):  # for a message
        return PriorsAndBounds(bounds, priors)
    own = {name: prior for name, prior in priors.items() if not isinstance(prior, Normal)}
    for name in [name for name in own if str(name).rpartition(".")[2] == "sigma"]:
        prior = own.pop(name)
        known = isinstance(prior, Prior) and not isinstance(prior, PCPrior)  # which is of σ already
        own[name.removesuffix("sigma") + "variance"] = OfRoot(prior) if known else prior
    mixing = own.get("mixing")
    if isinstance(mixing, PCPrior) and _is_of_mixing(estimator, mixing):
        own["mixing"] = mixing_prior(estimator.graph, mixing)
    return PriorsAndBounds(bounds, own)


def search_of(estimator: Any) -> Search:
    """How an estimator looks for the best parameters."""
    optimizer = "quasi-newton" if estimator.optimizer == "lbfgs" else estimator.optimizer
    return Search(
        optimizer=optimizer,
        max_iterations=estimator.max_iterations,
        learning_rate=getattr(estimator, "learning_rate", 0.1),
        n_restarts=estimator.n_restarts,
        seed=estimator.random_state,
        progress=estimator.verbose,
    )


def uses_normalized(estimator: Any) -> bool | None:
    """Whether an estimator uses the normalised Laplacian: as asked for, or as its kernel requires; None if open."""
    if estimator.normalized is not None:
        return bool(estimator.normalized)
    if estimator.kernel is not None and estimator.kernel.requires_plain:
        return False
    return True if estimator.kernel is not None and estimator.kernel.requires_normalized else None
