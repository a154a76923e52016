"""Classification of the nodes of a graph."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from graphmatern._validation import (
    FaultList,
    abbreviate,
    check_choice,
    check_whole,
    note_choice,
)
from graphmatern.errors import KernelError, TableError
from graphmatern.estimators._base import reached_by
from graphmatern.estimators._class_results import ClassificationResults
from graphmatern.estimators._covariates import read_covariates
from graphmatern.estimators._features import read_features
from graphmatern.estimators._files import SPECTRAL_ENGINES, spectrum_from_state, spectrum_state
from graphmatern.estimators._hyperparameters import integrated_from_state, integrated_state
from graphmatern.estimators._labels import LabelData, label_array, read_labels, stored_labels
from graphmatern.estimators._options import check_options, device_of, documented, rules_of, search_of, uses_normalized
from graphmatern.inference import (
    ENGINES,
    Known,
    Observations,
    Optimum,
    PriorsAndBounds,
    Problem,
    Search,
    eigenpairs_used,
    learn,
    update_weights,
    with_default_priors,
)
from graphmatern.likelihoods import Bernoulli, Categorical, MultinomialProbit, RobustMax, Softmax

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from graphmatern.estimators._covariates import Covariates
    from graphmatern.graph import Graph
    from graphmatern.inference import Fit, Prior
    from graphmatern.kernels import Kernel

    Floats = NDArray[np.float64]
    Longs = NDArray[np.int64]

__all__ = ["GraphGPClassifier"]

_LIKELIHOODS: dict[str, Callable[[int], Categorical]] = {
    "probit": MultinomialProbit,
    "robustmax": RobustMax,
    "softmax": Softmax,
    "bernoulli": lambda _count: Bernoulli(),
}
# Limits up to which classes are coupled by default: a fit takes n_classes factorisations of labels × labels at a time,
# and predictions n_classes matrices of labels × nodes.
_COUPLED_LABELS, _COUPLED_SIZE, _COUPLED_ENTRIES = 1000, 10_000, 10**8
_EFFECT_PRECISION = 0.16  # of coefficients: a standard deviation of 2.5, as is usual for probits and logits
_RESTRICTED = ("inducing", "eigenvectors")  # forms of inference that can learn step by step


@documented
class GraphGPClassifier(ClassificationResults):
    """Classification on a graph: from labels of some nodes to class probabilities of all of them.

    Parameters
    ----------
    <graph>
    kernel : Kernel, optional
        Kernel of every latent process, with starting values; fixed parameters are kept. By default a Matérn kernel
        whose starting values are chosen from the data.
    likelihood : {"auto", "probit", "softmax", "robustmax", "bernoulli"} or likelihood
        How labels depend on the latent processes, one for each class. "probit": the largest wins, after independent
        noise of variance 1; fitted by expectation propagation that keeps the correlation between classes, which gives
        the best-calibrated probabilities, for up to a thousand labels. "softmax": probabilities proportional to their
        exponentials; "robustmax": the largest wins, but a label is wrong with probability 0.001. These two are fitted
        by variational inference as if classes were independent, for any number of labels, and are overconfident.
        "bernoulli" is for two classes and has one process. "auto" is "probit", or "robustmax" if there are too many
        labels and for ``inference="inducing"`` and "eigenvectors". Pass a likelihood object to set its parameters.
    inference : {"auto", "spectral", "markov", "moments", "features", "eigenvectors", "inducing"}
        How to compute. "spectral" (any kernel), "markov" (Matérn; large road-like graphs) and "moments" (any kernel;
        large graphs of any other kind) agree with each other; "auto" chooses one of them. "features" is the
        only one that takes features, and is chosen if there are any. "eigenvectors" and "inducing" restrict the
        posterior to leading eigenvectors or inducing nodes, and can learn from batches.
    engine : str, optional
        The same as ``inference``, under the name that `GraphGPRegressor` uses; give one of the two.
    <features>
    classes : sequence of hashable, optional
        All possible labels; by default the categories of a categorical Series, or the labels that occur. Classes
        without labelled nodes have a process like the others.
    mean : {"zero", "constant"}
        Mean of every latent process; a constant is integrated out.
    covariates : DataFrame, Series or array_like, shape (n_nodes, n_covariates), optional
        Values at every node that enter the mean of every latent process linearly, with coefficients of its own that are
        integrated out (`coefficients_`): a table indexed by node name, or an array in the order of the nodes. With
        covariates, a constant mean is usually wanted. The prior of coefficients is normal with a standard deviation of
        2.5 in units of the covariate's standard deviation; change it with ``priors={"coefficients": gm.Normal(1.0)}``,
        or for a single covariate by its name, in units of f and of the covariate.
    <normalized>
    <n_eigenpairs>
    inducing : sequence of hashable, optional
        Names of the inducing nodes; by default the labelled nodes, or a spread-out choice of ``n_inducing``.
    n_inducing : int, optional
        Number of inducing nodes or eigenvectors; by default at most 500.
    covariance : {"full", "diagonal"}
        Of the approximation, for "eigenvectors" and "inducing".
    batch_size : int, optional
        Labels per step, for "eigenvectors" and "inducing"; all by default.
    n_steps : int
        Steps of Adam or on batches, for "eigenvectors" and "inducing".
    <optimizer>
    <max_iterations>
    <learning_rate>
    <n_restarts>
    <bounds>
    <priors>
    <integrate>
    <random_state>
    <relative_error>
    <n_threads>
    <device>
    <dtype>
    <max_seconds>
    <verbose>

    Attributes
    ----------
    classes_ : ndarray, shape (n_classes,)
        Labels, sorted where they can be.
    kernel_ : Kernel
        Learned kernel. Its variance is relative to the noise of "probit"; robust-max does not depend on the scale of
        the processes and leaves the variance unchanged.
    likelihood_ : Likelihood
        Likelihood with its parameters.
    elbo_ : float
        Approximation of the log marginal likelihood of the labels at the parameters of `kernel_`: expectation
        propagation's for "probit", otherwise the evidence lower bound.
    log_evidence_ : float
        The same with the parameters integrated out, for comparing models.
    hyperparameters_ : DataFrame
        What is known about the parameters: mode, mean, sd, 2.5%, 50% and 97.5%.
    inference_, engine_ : str
        Engine used, under both names.
    inference_reason_, engine_reason_ : str
        Why, in a sentence.
    coefficients_ : DataFrame
        Coefficients of the mean, class by class: mean, sd, 2.5%, 50% and 97.5%.
    converged_ : bool
        Whether the optimiser converged.
    n_clipped_ : int
        Steps in which negative sites had to be set to 0, as a last resort.
    informed_ : ndarray of bool, shape (n_nodes,)
        Whether labels reach the node's connected component.

    Examples
    --------
    >>> import graphmatern as gm
    >>> city = gm.make_roads(300, seed=0)
    >>> side = ["west" if x < city.positions[:, 0].mean() else "east" for x in city.positions[:, 0]]
    >>> model = gm.GraphGPClassifier(city).fit(city.nodes[::4], side[::4])
    >>> model.score(city.nodes, side) > 0.9
    True
    >>> model.predict_proba(city.nodes[:2]).shape
    (2, 2)
    """

    def __init__(
        self,
        graph: Graph,
        kernel: Kernel | None = None,
        *,
        likelihood: Literal["auto", "probit", "softmax", "robustmax", "bernoulli"] | Categorical = "auto",
        inference: str = "auto",
        engine: str | None = None,
        features: Any = None,
        classes: Sequence[Any] | None = None,
        mean: Literal["zero", "constant"] = "zero",
        covariates: Any = None,
        normalized: bool | None = None,
        n_eigenpairs: int | None = None,
        inducing: Sequence[Any] | None = None,
        n_inducing: int | None = None,
        covariance: Literal["full", "diagonal"] = "full",
        batch_size: int | None = None,
        n_steps: int = 500,
        optimizer: Literal["quasi-newton", "lbfgs", "adam"] | None = "quasi-newton",
        max_iterations: int = 100,
        learning_rate: float = 0.05,
        n_restarts: int = 0,
        bounds: Mapping[str, tuple[float, float]] | None = None,
        priors: Mapping[str, Prior] | None = None,
        integrate: Literal["auto"] | bool = "auto",
        random_state: int | None = None,
        relative_error: float = 1e-4,
        n_threads: int | None = None,
        device: str = "cpu",
        dtype: Literal["float64", "float32"] = "float64",
        max_seconds: float | None = None,
        verbose: bool | None = None,
    ) -> None:
        self.graph = graph
        self.kernel = kernel
        self.likelihood = likelihood
        self.inference = inference
        self.engine = engine
        self.features = features
        self.classes = classes
        self.mean = mean
        self.covariates = covariates
        self.normalized = normalized
        self.n_eigenpairs = n_eigenpairs
        self.inducing = inducing
        self.n_inducing = n_inducing
        self.covariance = covariance
        self.batch_size = batch_size
        self.n_steps = n_steps
        self.optimizer = optimizer
        self.max_iterations = max_iterations
        self.learning_rate = learning_rate
        self.n_restarts = n_restarts
        self.bounds = bounds
        self.priors = priors
        self.integrate = integrate
        self.random_state = random_state
        self.relative_error = relative_error
        self.n_threads = n_threads
        self.device = device
        self.dtype = dtype
        self.max_seconds = max_seconds
        self.verbose = verbose

    # ------------------------------------------------------------------ fitting
    def fit(self, nodes: Any, y: Any = None) -> Self:
        """Learn the kernel's parameters and condition on the labels.

        Parameters
        ----------
        nodes : sequence of hashable, or Series
            Names of the labelled nodes, in any order, repeats allowed; or the labels themselves, indexed by node name.
        y : sequence of hashable, optional
            Labels of any type; None and NaN mean not labelled.

        Returns
        -------
        self
        """
        self._check_options()
        data = read_labels(self.graph, nodes, y, self.classes)
        self._adopt(self._learn(data))
        self._warn_of_trouble()
        return self

    def _check_options(self) -> None:
        faults = FaultList("nothing was fitted", KernelError)
        if self.engine is not None and self.inference != "auto":
            rule = "must be left out if `inference` is given: they mean the same"
            faults.add("engine", rule, f"{self.engine!r} and inference={self.inference!r}", "Give one of the two.")
        note_choice("inference" if self.engine is None else "engine", self._engine, ("auto", *ENGINES), faults)
        note_choice("mean", self.mean, ("zero", "constant"), faults)
        if self._in_steps and (self.mean != "zero" or self.covariates is not None):
            rule = "must be left out where steps are counted (batch_size, optimizer='adam')"
            faults.add("covariates", rule, "some, or a constant mean", "Use optimizer='quasi-newton'.")
        note_choice("covariance", self.covariance, ("full", "diagonal"), faults)
        for name in ("batch_size", "n_inducing"):
            if getattr(self, name) is not None:
                check_whole(name, getattr(self, name), faults, minimum=1, remedy="Leave it out for the default.")
        check_whole("n_steps", self.n_steps, faults, minimum=1, remedy="Take at least one step.")
        if self._engine not in _RESTRICTED:
            idle = {"inducing": None, "n_inducing": None, "covariance": "full", "batch_size": None}
            given = [name for name, usual in idle.items() if getattr(self, name) != usual]
            if given:
                rule = "must be left out unless inference is 'inducing' or 'eigenvectors'"
                faults.add(given[0], rule, abbreviate(given), "They would have no effect otherwise.")
        elif self._in_steps and self.n_restarts:
            rule = "must be 0 where steps are counted (batch_size, optimizer='adam')"
            faults.add("n_restarts", rule, str(self.n_restarts), "Fit again with another random_state.")
        if self._in_steps and (self.bounds or self.priors):
            rule = "must be left out where steps are counted (batch_size, optimizer='adam')"
            faults.add("bounds", rule, "some", "Leave out `batch_size`, and use optimizer='quasi-newton'.")
        check_options(self, [], faults)

    @property
    def _engine(self) -> str:
        """The engine asked for, under either name."""
        return self.inference if self.engine is None else self.engine

    @property
    def _in_steps(self) -> bool:
        """Whether parameters and approximation move step by step, rather than to an optimum."""
        return self._engine in _RESTRICTED and (self.batch_size is not None or self.optimizer == "adam")

    def _make_likelihood(self, data: LabelData) -> Categorical:
        """The likelihood for these classes; raises if they do not suit it."""
        faults = FaultList("nothing was fitted", TableError)
        count = len(data.classes)
        if count < 2:
            remedy = "List all classes in `classes`."
            raise faults.raise_now("y", "must hold labels of at least two classes", abbreviate(data.classes), remedy)
        if isinstance(self.likelihood, Categorical):
            likelihood = copy.deepcopy(self.likelihood)
            received = f"{count} classes and a likelihood of {likelihood.n_classes}"
        else:
            check_choice("likelihood", self.likelihood, ("auto", *_LIKELIHOODS), KernelError)
            likelihood = _LIKELIHOODS[self._likelihood_for(data)](count)
            received = f"{count} classes"
        if likelihood.n_classes != count:
            rule = f"must hold labels of {likelihood.n_classes} classes for likelihood={self.likelihood!r}"
            raise faults.raise_now("y", rule, received, "Use likelihood='probit' or 'softmax'.")
        return likelihood

    def _likelihood_for(self, data: LabelData) -> str:
        """The name of the likelihood, with "auto" resolved."""
        if self.likelihood != "auto":
            return str(self.likelihood)
        n, count = len(data.nodes), len(data.classes)
        small = n <= _COUPLED_LABELS and n * count <= _COUPLED_SIZE and n * self.graph.n_nodes <= _COUPLED_ENTRIES
        return "probit" if small and self._engine not in _RESTRICTED else "robustmax"

    def _problem(self, data: LabelData, **options: Any) -> Problem:
        """What is to be learned."""
        codes = np.asarray(data.codes, dtype=np.float64)[:, None]
        covariates = self._read_covariates()
        covariates.check(data.nodes)
        settings = {
            "inducing": None if self.inducing is None else self.graph.locate(self.inducing),
            "n_inducing": self.n_inducing,
            "covariance": self.covariance,
            "batch_size": self.batch_size,
            "n_steps": self.n_steps,
            "steps": self._in_steps,
        }
        return Problem(
            **{
                "graph": self.graph,
                "kernel": self.kernel,
                "likelihood": self._make_likelihood(data),
                "observations": Observations(data.nodes, codes, covariates.design),
                "effect_precision": covariates.precision(_EFFECT_PRECISION),
                "normalized": uses_normalized(self),
                "rules": rules_of(self),
                "search": search_of(self),
                "n_eigenpairs": self.n_eigenpairs,
                "relative_error": self.relative_error,
                "n_threads": self.n_threads,
                "device": device_of(self),
                "dtype": self.dtype,
                "max_seconds": self.max_seconds,
                "compares": True,
                "settings": settings,
                "integrate": self.integrate,
                "features": read_features(self.graph, self.features),
                **options,
            }
        )

    def _read_covariates(self) -> Covariates:
        return read_covariates(self.graph, self.covariates, constant=self.mean == "constant", priors=self.priors)

    def _learn(self, data: LabelData) -> dict[str, Any]:
        """Learn from labels; returns every fitted attribute."""
        return self._attributes(data, learn(self._problem(data), self._engine))

    def _attributes(self, data: LabelData, fit: Fit, reason: str | None = None) -> dict[str, Any]:
        """Every fitted attribute."""
        return {
            "_data": data,
            "_fit": fit,
            "_covariates": self._read_covariates(),
            "classes_": data.classes,
            "kernel_": fit.kernel,
            "likelihood_": fit.likelihood,
            "posterior_": fit.posterior,
            "_temperature": None,
            "normalized_": fit.normalized,
            "elbo_": fit.log_evidence,
            "inference_": fit.engine,
            "inference_reason_": fit.reason if reason is None else reason,
            "engine_": fit.engine,
            "engine_reason_": fit.reason if reason is None else reason,
            "converged_": fit.converged,
            "n_clipped_": fit.n_clipped,
            "n_evaluations_": fit.optimum.n_evaluations,
            "at_bounds_": fit.at_bounds,
            "informed_": reached_by(self.graph, data.nodes, everywhere=fit.kernel.uses_features),
        }

    # ------------------------------------------------------------------ more labels
    def condition_on(self, nodes: Any, y: Any = None) -> Self:
        """Return a model with more labels and the same parameters, without refitting.

        Parameters
        ----------
        nodes : sequence of hashable, or Series
            Names of labelled nodes; or the labels themselves, indexed by node name.
        y : sequence of hashable, optional
            Labels, of classes that the model knows.
        """
        self._require_fit()
        had, more = self._data, read_labels(self.graph, nodes, y, self.classes_)
        places, codes = np.concatenate([had.nodes, more.nodes]), np.concatenate([had.codes, more.codes])
        joined, other = LabelData(places, codes, had.classes), type(self)(**self._fit_options)
        kept = {
            "kernel": self.kernel_,
            "likelihood": self.likelihood_,
            "normalized": self._fit.normalized,
            "rules": PriorsAndBounds(),
            "search": Search(None, progress=self.verbose),
        }
        problem = other._problem(joined, **kept)
        if self._fit.integrated is not None:  # in the coordinates in which it was learned
            problem = with_default_priors(replace(problem, rules=rules_of(other)))
        fit = learn(problem, self.inference_)
        if self._fit.integrated is not None:
            integrated = update_weights(problem, self.inference_, self._fit.integrated, fit.likelihood)
            fit = replace(fit, posterior=integrated.posterior, integrated=integrated)
        found = other._attributes(joined, fit, self.inference_reason_) | {"_temperature": self.temperature_}
        return other._adopt(found)

    # ------------------------------------------------------------------ model files
    def _state(self) -> dict[str, Any]:
        pairs, others = None, None
        if self.inference_ in SPECTRAL_ENGINES:
            count = eigenpairs_used(self.graph, self._fit_options["n_eigenpairs"])
            pairs = spectrum_state(self.graph, count, self._fit.normalized)
            if self._fit.integrated is not None and 0.0 < self._fit.integrated.share_normalized < 1.0:
                others = spectrum_state(self.graph, count, not self._fit.normalized)
        return {
            "nodes": self._data.nodes,
            "codes": self._data.codes,
            "classes": stored_labels(self.classes_),
            "inference_": self.inference_,
            "inference_reason_": self.inference_reason_,
            "normalized": self._fit.normalized,
            "kernel_": self.kernel_,
            "optimum": dict(vars(self._fit.optimum)),
            "sites": self._fit.sites,
            "integrated": integrated_state(self._fit.integrated),
            "inducing": self._fit.report.get("inducing"),
            "n_fields": self._fit.report.get("n_fields"),
            "in_steps": "history" in self._fit.report,
            "standard_errors": self._standard_errors,
            "temperature": self.temperature_,
            "spectrum": pairs,
            "other_spectrum": others,
        }

    def _attributes_from(self, state: dict[str, Any]) -> dict[str, Any]:
        data = LabelData(state["nodes"], state["codes"], label_array(list(state["classes"])))
        spectrum_from_state(self.graph, state["spectrum"])
        spectrum_from_state(self.graph, state.get("other_spectrum"))
        normalized = state.get("normalized", bool(uses_normalized(self)))
        problem = self._problem(data, kernel=state.get("kernel_"), normalized=normalized)
        settings = dict(problem.settings)
        if "fit" in state:  # of a file in which inducing nodes and eigenvectors had a form of their own
            plain = state["fit"]
            mean, elbo, converged, _ = plain["numbers"]
            assert mean == 0.0
            position = np.array([raw.item() for raw in plain["kernel"].parameters() if raw.requires_grad])
            state = state | {
                "kernel_": plain["kernel"],
                "sites": plain["q"],
                "inducing": plain["inducing"] if plain["inducing"] is not None else int(plain["q"][0].shape[1]),
                "optimum": vars(Optimum(position, -elbo, np.zeros(len(position)), 0, converged, "read from a file")),
            }
            state["in_steps"] = True
        settings["steps"] = state.get("in_steps", settings["steps"])
        settings["n_fields"] = state.get("n_fields")
        inducing = state.get("inducing")
        settings["n_inducing" if isinstance(inducing, int) else "inducing"] = inducing
        problem = replace(problem, kernel=state["kernel_"], settings=settings)
        integrated = integrated_from_state(state.get("integrated"))
        known = Known(Optimum(**state["optimum"]), state["sites"], integrated)
        found = self._attributes(data, learn(problem, state["inference_"], known), state["inference_reason_"])
        return found | {"_temperature": state.get("temperature", 1.0)}
