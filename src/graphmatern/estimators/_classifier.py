"""Classification of the nodes of a graph."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import pandas as pd
from sklearn.base import ClassifierMixin

from graphmatern._validation import (
    FaultList,
    abbreviate,
    check_choice,
    check_whole,
    note_choice,
    random_generator,
    warn,
)
from graphmatern.errors import KernelError, TableError, UninformedWarning
from graphmatern.estimators._base import GraphEstimator, reached_by
from graphmatern.estimators._files import SPECTRAL_ENGINES, spectrum_from_state, spectrum_state
from graphmatern.estimators._hyperparameters import integrated_from_state, integrated_state
from graphmatern.estimators._labels import LabelData, label_array, read_labels, stored_labels
from graphmatern.estimators._options import check_options, device_of, documented, rules_of, search_of, uses_normalized
from graphmatern.estimators._report import classes_content
from graphmatern.inference import ENGINES, Known, Observations, Optimum, Problem, eigenpairs_used, learn
from graphmatern.likelihoods import Bernoulli, Categorical, RobustMax, Softmax
from graphmatern.metrics import accuracy, classification_report
from graphmatern.plotting import plot_classes

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from graphmatern.graph import Graph
    from graphmatern.inference import Fit, Prior
    from graphmatern.kernels import Kernel
    from graphmatern.report import Content

    Floats = NDArray[np.float64]
    Longs = NDArray[np.int64]

__all__ = ["GraphGPClassifier"]

_LIKELIHOODS: dict[str, Callable[[int], Categorical]] = {
    "robustmax": RobustMax,
    "softmax": Softmax,
    "bernoulli": lambda _count: Bernoulli(),
}
_RESTRICTED = ("inducing", "eigenvectors")  # forms of inference that can learn step by step


@documented
class GraphGPClassifier(ClassifierMixin, GraphEstimator):  # type: ignore[misc]
    """Classification on a graph: labels of some nodes in, class probabilities of all nodes out.

    Parameters
    ----------
    <graph>
    kernel : Kernel, optional
        Kernel of every latent process, with starting values; fixed parameters are kept. By default a Matérn kernel
        whose starting values are chosen from the data.
    likelihood : {"robustmax", "softmax", "bernoulli"} or likelihood
        How labels depend on the latent processes, one for each class: the largest decides, but a label is wrong with
        probability 0.001; or with probabilities proportional to their exponentials. "bernoulli" is for two classes and
        has one process. A likelihood object sets what these names leave at their defaults.
    inference : {"auto", "spectral", "markov", "moments", "eigenvectors", "inducing"}
        How to compute. "spectral" (any kernel), "markov" (Matérn of integer smoothness; large road-like graphs) and
        "moments" (any kernel; large graphs of any other kind) find the best Gaussian approximation there is, by natural
        gradients; "auto" chooses one of them. "eigenvectors" and "inducing" restrict it to leading eigenvectors or
        inducing nodes, and can learn from batches.
    engine : str, optional
        Another word for ``inference``, as `GraphGPRegressor` has it; give one of the two.
    classes : sequence of hashable, optional
        All labels there are; by default those of a categorical Series, or those that occur. Classes without labelled
        nodes have a process like the others.
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
        Learned kernel. Robust-max does not see the scale of the processes: their variance is kept.
    likelihood_ : Likelihood
        Likelihood with its parameters.
    elbo_ : float
        Evidence lower bound at the parameters of `kernel_`: at most the log marginal likelihood of the labels.
    log_evidence_ : float
        The same with the parameters integrated out, for comparing models.
    hyperparameters_ : DataFrame
        What is known of the parameters: mode, mean, sd, 2.5%, 50% and 97.5%.
    inference_, engine_ : str
        Engine used, by either word.
    inference_reason_, engine_reason_ : str
        Why, in a sentence.
    converged_ : bool
        Whether the optimiser was satisfied.
    n_clipped_ : int
        Steps in which negative sites had to be set to 0, the last resort.
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
        likelihood: Literal["robustmax", "softmax", "bernoulli"] | Categorical = "robustmax",
        inference: str = "auto",
        engine: str | None = None,
        classes: Sequence[Any] | None = None,
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
        self.classes = classes
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
            rule = "must be left out where `inference` is given: it is another word for it"
            faults.add("engine", rule, f"{self.engine!r} and inference={self.inference!r}", "Give one of the two.")
        note_choice("inference" if self.engine is None else "engine", self._engine, ("auto", *ENGINES), faults)
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
                faults.add(given[0], rule, abbreviate(given), "They would have no effect.")
        elif self._in_steps and self.n_restarts:
            rule = "must be 0 where steps are counted (batch_size, optimizer='adam')"
            faults.add("n_restarts", rule, str(self.n_restarts), "Fit again with another random_state.")
        if self._in_steps and (self.bounds or self.priors):
            rule = "must be left out where steps are counted (batch_size, optimizer='adam')"
            faults.add("bounds", rule, "some", "Leave out `batch_size`, and use optimizer='quasi-newton'.")
        check_options(self, [], faults)

    @property
    def _engine(self) -> str:
        """The engine asked for, by either word."""
        return self.inference if self.engine is None else self.engine

    @property
    def _in_steps(self) -> bool:
        """Whether parameters and approximation move step by step, rather than to an optimum."""
        return self._engine in _RESTRICTED and (self.batch_size is not None or self.optimizer == "adam")

    def _make_likelihood(self, data: LabelData) -> Categorical:
        """The likelihood for these classes; raises where they do not suit it."""
        faults = FaultList("nothing was fitted", TableError)
        count = len(data.classes)
        if count < 2:
            remedy = "Name all classes there are in `classes`."
            raise faults.raise_now("y", "must hold labels of at least two classes", abbreviate(data.classes), remedy)
        if isinstance(self.likelihood, Categorical):
            likelihood = copy.deepcopy(self.likelihood)
            received = f"{count} classes and a likelihood of {likelihood.n_classes}"
        else:
            check_choice("likelihood", self.likelihood, tuple(_LIKELIHOODS), KernelError)
            likelihood = _LIKELIHOODS[self.likelihood](count)
            received = f"{count} classes"
        if likelihood.n_classes != count:
            rule = f"must hold labels of {likelihood.n_classes} classes for likelihood={self.likelihood!r}"
            raise faults.raise_now("y", rule, received, "Use likelihood='robustmax' or 'softmax'.")
        return likelihood

    def _problem(self, data: LabelData, **options: Any) -> Problem:
        """What is to be learned."""
        codes = np.asarray(data.codes, dtype=np.float64)[:, None]
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
                "observations": Observations(data.nodes, codes, np.zeros((self.graph.n_nodes, 0))),
                "normalized": uses_normalized(self),
                "rules": rules_of(self),
                "search": search_of(self),
                "n_eigenpairs": self.n_eigenpairs,
                "n_threads": self.n_threads,
                "device": device_of(self),
                "dtype": self.dtype,
                "max_seconds": self.max_seconds,
                "compares": True,
                "settings": settings,
                "integrate": self.integrate,
                **options,
            }
        )

    def _learn(self, data: LabelData) -> dict[str, Any]:
        """Learn from labels; returns every fitted attribute."""
        return self._attributes(data, learn(self._problem(data), self._engine))

    def _attributes(self, data: LabelData, fit: Fit, reason: str | None = None) -> dict[str, Any]:
        """Every fitted attribute."""
        return {
            "_data": data,
            "_fit": fit,
            "classes_": data.classes,
            "kernel_": fit.kernel,
            "likelihood_": fit.likelihood,
            "posterior_": fit.posterior,
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
            "informed_": reached_by(self.graph, data.nodes),
        }

    # ------------------------------------------------------------------ predictions
    def predict_latent(self, nodes: Any = None) -> tuple[Floats, Floats]:
        """Mean and standard deviation of the latent processes.

        Parameters
        ----------
        nodes : sequence of hashable, optional
            Node names; all nodes by default.

        Returns
        -------
        mean, std : ndarray, shape (n_names, n_latents)
            One column per class, in the order of `classes_`; for two classes and "bernoulli" one column, which grows
            with the probability of the second.
        """
        self._require_fit()
        places = self.graph.locate(nodes)
        return self.posterior_.latent_mean(places).T, np.sqrt(self.posterior_.latent_variance(places)).T

    def predict_proba(self, nodes: Any = None) -> Floats:
        """Probabilities of the classes, the uncertainty of the latent processes included.

        Parameters
        ----------
        nodes : sequence of hashable, optional
            Node names; all nodes by default.

        Returns
        -------
        ndarray, shape (n_names, n_classes)
            In the order of `classes_`. Where no labels reach a node's component, those of the prior, with a warning.
        """
        self._require_fit()
        places = self.graph.locate(nodes)
        self._warn_of_uninformed(places)
        return np.asarray(self.posterior_.class_probabilities(places))

    def _warn_of_uninformed(self, places: Longs) -> None:
        uninformed = ~self.informed_[places]
        if uninformed.any():
            names = abbreviate(self.graph.nodes[places[uninformed]].tolist())
            warn(f"no labels reach the components of nodes {names}: these predictions are the prior", UninformedWarning)

    def predict(self, nodes: Any = None) -> NDArray[Any]:
        """Most probable class of each node.

        Parameters
        ----------
        nodes : sequence of hashable, optional
            Node names; all nodes by default.

        Returns
        -------
        ndarray, shape (n_names,)
        """
        most = self.predict_proba(nodes).argmax(axis=1)
        return np.asarray(self.classes_[most])

    def predict_table(self) -> pd.DataFrame:
        """Predictions for every node, in a table indexed by node name.

        Returns
        -------
        DataFrame
            Columns label (most probable class), probability (of that class), entropy (in nats; log n_classes where
            nothing is known), informed (False where no labels reach the node's component), and one column ``p(...)``
            with the probability of each class.
        """
        share = self.predict_proba()
        table = pd.DataFrame(
            {
                "label": pd.Series(self.classes_[share.argmax(axis=1)], dtype=self.classes_.dtype).array,
                "probability": share.max(axis=1),
                "entropy": -np.sum(share * np.log(np.maximum(share, np.finfo(float).tiny)), axis=1),
                "informed": self.informed_,
            },
            index=self.graph.nodes,
        )
        for k, label in enumerate(self.classes_.tolist()):
            table[f"p({label})"] = share[:, k]
        return table

    def sample_latent(self, n_samples: int = 1, nodes: Any = None, random_state: int | None = None) -> Floats:
        """Draw latent functions from the approximate posterior.

        Parameters
        ----------
        n_samples : int
            How many.
        nodes : sequence of hashable, optional
            Node names; all nodes by default.
        random_state : int or Generator, optional
            Seed.

        Returns
        -------
        ndarray, shape (n_samples, n_latents, n_names)
        """
        self._require_fit()
        faults = FaultList("no samples", TableError)
        check_whole("n_samples", n_samples, faults, minimum=1, remedy="Draw at least one.")
        faults.raise_if_any()
        rng = random_generator(random_state, TableError)
        places = self.graph.locate(nodes)
        return np.asarray(self.posterior_.joint_samples(n_samples, places, rng))

    def loo(self) -> pd.DataFrame:
        """Leave-one-out predictions of the labels, by taking their sites out of the posterior.

        Returns
        -------
        DataFrame
            One row per label: node, label, probability (of that label given all others; the conditional predictive
            ordinate), log_density (its logarithm) and predicted (the most probable class).
        """
        self._require_fit()
        share = self.posterior_.left_out_classes()
        codes = self._data.codes
        own = np.maximum(share[np.arange(len(codes)), codes], np.finfo(float).tiny)
        return pd.DataFrame(
            {
                "node": self.graph.nodes[self._data.nodes],
                "label": self.classes_[codes],
                "probability": own,
                "log_density": np.log(own),
                "predicted": self.classes_[share.argmax(axis=1)],
            }
        )

    def score(self, nodes: Any, y: Any = None, sample_weight: None = None) -> float:
        """Share of labels that are predicted; None and NaN in ``y`` are passed over.

        Parameters
        ----------
        nodes : sequence of hashable, or Series
            Node names; or true labels indexed by node name.
        y : sequence of hashable, optional
            True labels.
        sample_weight : None
            Not supported.
        """
        self._require_fit()
        if sample_weight is not None:
            faults = FaultList("no score", TableError)
            raise faults.raise_now("sample_weight", "must be None", type(sample_weight).__name__, "Leave it out.")
        held_back = read_labels(self.graph, nodes, y, self.classes_)
        predicted = self.predict(self.graph.nodes[held_back.nodes])
        return accuracy(self.classes_[held_back.codes].tolist(), predicted.tolist())

    def evaluate(self, nodes: Any, y: Any = None) -> dict[str, float]:
        """Score predictions of held-back labels: accuracy, log loss, calibration error.

        Parameters
        ----------
        nodes : sequence of hashable, or Series
            Node names; or true labels indexed by node name.
        y : sequence of hashable, optional
            True labels; None and NaN are passed over.

        Returns
        -------
        dict
            See `metrics.classification_report`.
        """
        self._require_fit()
        held_back = read_labels(self.graph, nodes, y, self.classes_)
        share = self.predict_proba(self.graph.nodes[held_back.nodes])
        return classification_report(held_back.codes.tolist(), share, range(len(self.classes_)))

    def plot(self, axes: Sequence[Axes] | None = None, **options: Any) -> NDArray[Any]:
        """Draw the most probable classes and, beside them, how uncertain they are.

        Parameters
        ----------
        axes : sequence of two Axes, optional
            Where to draw; a new figure by default.
        **options
            As `plotting.plot_classes` takes them, such as ``cmap``.

        Returns
        -------
        ndarray of two Axes
            Labelled nodes have a ring.
        """
        share = self.predict_proba()
        marked = self.graph.nodes[np.unique(self._data.nodes)]
        return plot_classes(self.graph, share, self.classes_.tolist(), axes, marked=marked, **options)

    def _content(self, *, title: str | None, level: float, options: dict[str, Any]) -> Content:
        return classes_content(self, title=title, level=level, options=options)

    def summary(self) -> str:
        """Describe the fit in a few lines of text."""
        self._require_fit()
        count = np.bincount(self._data.codes, minlength=len(self.classes_))
        shares = ", ".join(f"{label} {n:,}" for label, n in zip(self.classes_.tolist(), count.tolist(), strict=True))
        return "\n".join(
            [
                f"{len(self._data.nodes):,} labels on {self.graph!r}",
                f"classes   {shares}",
                f"inference {self.inference_} ({self.inference_reason_})",
                f"kernel    {self.kernel_!r}",
                f"evidence lower bound {self.elbo_:.4f}",
                *self._fit_lines(),
            ]
        )

    # ------------------------------------------------------------------ model files
    def _state(self) -> dict[str, Any]:
        pairs = None
        if self.inference_ in SPECTRAL_ENGINES:
            count = eigenpairs_used(self.graph, self._fit_options["n_eigenpairs"])
            pairs = spectrum_state(self.graph, count, self._fit.normalized)
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
            "in_steps": "history" in self._fit.report,
            "standard_errors": self._standard_errors,
            "spectrum": pairs,
        }

    def _attributes_from(self, state: dict[str, Any]) -> dict[str, Any]:
        data = LabelData(state["nodes"], state["codes"], label_array(list(state["classes"])))
        spectrum_from_state(self.graph, state["spectrum"])
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
        inducing = state.get("inducing")
        settings["n_inducing" if isinstance(inducing, int) else "inducing"] = inducing
        problem = replace(problem, kernel=state["kernel_"], settings=settings)
        integrated = integrated_from_state(state.get("integrated"))
        known = Known(Optimum(**state["optimum"]), state["sites"], integrated)
        return self._attributes(data, learn(problem, state["inference_"], known), state["inference_reason_"])
