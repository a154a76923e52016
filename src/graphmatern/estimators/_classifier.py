"""Classification of the nodes of a graph."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
import pandas as pd
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import NotFittedError

from graphmatern._validation import FaultList, abbreviate, check_choice, check_whole, random_generator, warn
from graphmatern.errors import KernelError, NumericalWarning, TableError, UninformedWarning
from graphmatern.estimators._common import check_fit_options, reached_by, rules_of, uses_normalized
from graphmatern.estimators._files import Savable, spectrum_from_state, spectrum_state
from graphmatern.estimators._labels import LabelData, label_array, read_labels
from graphmatern.inference._engines import choose_engine
from graphmatern.inference._fit_sites import SITE_ENGINES, SiteFit, SiteProblem, hold_variance
from graphmatern.inference._fit_spectral import eigenpairs_used
from graphmatern.inference._fitting import FitOptions
from graphmatern.inference._optimize import Optimum
from graphmatern.inference._sites import SiteObservations, Sites
from graphmatern.kernels import Matern
from graphmatern.likelihoods import Bernoulli, Categorical, RobustMax, Softmax
from graphmatern.metrics import accuracy, classification_report
from graphmatern.plotting import plot_classes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from graphmatern.graph import Graph
    from graphmatern.inference import StochasticFit
    from graphmatern.inference._rules import LogNormal
    from graphmatern.kernels import Kernel

    Floats = NDArray[np.float64]
    Longs = NDArray[np.int64]

__all__ = ["GraphGPClassifier"]

_LIKELIHOODS = ("robustmax", "softmax", "bernoulli")
_FORMS = ("auto", "spectral", "markov", "eigenvectors", "inducing")
_NODES_AT_ONCE = 4096


class GraphGPClassifier(Savable, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Classification on a graph: labels of some nodes in, class probabilities of all nodes out.

    Parameters
    ----------
    graph : Graph
        The graph.
    kernel : Kernel, optional
        Kernel of every latent process, with starting values; fixed parameters are kept. By default a Matérn kernel
        whose starting values are chosen from the data.
    likelihood : {"robustmax", "softmax", "bernoulli"} or likelihood
        How labels depend on the latent processes, one for each class: the largest decides, but a label is wrong with
        probability 0.001; or with probabilities proportional to their exponentials. "bernoulli" is for two classes and
        has one process. A likelihood object sets what these names leave at their defaults.
    inference : {"auto", "spectral", "markov", "eigenvectors", "inducing"}
        How to compute. "spectral" (any kernel) and "markov" (Matérn of integer smoothness; large graphs) find the best
        Gaussian approximation there is, by natural gradients; "auto" chooses one of them. "eigenvectors" and "inducing"
        restrict it to leading eigenvectors or inducing nodes, and can learn from batches.
    classes : sequence of hashable, optional
        All labels there are; by default those of a categorical Series, or those that occur. Classes without labelled
        nodes have a process like the others.
    normalized : bool, optional
        Which Laplacian; by default the normalised one only where the kernel requires it.
    n_eigenpairs : int, optional
        Eigenpairs that are used; all by default, up to 3,000 nodes, beyond that 500.
    inducing : sequence of hashable, optional
        Names of the inducing nodes; by default the labelled nodes, or a spread-out choice of ``n_inducing``.
    n_inducing : int, optional
        Number of inducing nodes or eigenvectors; by default at most 500.
    covariance : {"full", "diagonal"}
        Of the approximation, for "eigenvectors" and "inducing".
    batch_size : int, optional
        Labels per step, for "eigenvectors" and "inducing"; all by default.
    n_steps : int
        Steps of Adam or on batches.
    optimizer : {"lbfgs", "adam"} or None
        What maximises the evidence lower bound; None keeps the starting values.
    max_iterations : int
        Iterations of the optimiser at most.
    learning_rate : float
        Step size of Adam, in logarithms of the parameters.
    n_restarts : int
        Further starting points, drawn at random around the first; the best optimum is kept.
    bounds : dict of str to (float, float), optional
        Least and largest value of parameters.
    priors : dict of str to LogNormal, optional
        Priors of parameters.
    random_state : int, optional
        Seed of restarts and batches.
    n_threads : int, optional
        Threads that factorise.
    verbose : bool, optional
        Whether to show progress; by default, where the error stream is a terminal.

    Attributes
    ----------
    classes_ : ndarray, shape (n_classes,)
        Labels, sorted where they can be.
    kernel_ : Kernel
        Learned kernel. Robust-max does not see the scale of the processes: their variance is kept.
    likelihood_ : Likelihood
        Likelihood with its parameters.
    elbo_ : float
        Evidence lower bound: at most the log marginal likelihood of the labels.
    inference_ : str
        Form of inference used.
    inference_reason_ : str
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
        inference: Literal["auto", "spectral", "markov", "eigenvectors", "inducing"] = "auto",
        classes: Sequence[Any] | None = None,
        normalized: bool | None = None,
        n_eigenpairs: int | None = None,
        inducing: Sequence[Any] | None = None,
        n_inducing: int | None = None,
        covariance: Literal["full", "diagonal"] = "full",
        batch_size: int | None = None,
        n_steps: int = 500,
        optimizer: Literal["lbfgs", "adam"] | None = "lbfgs",
        max_iterations: int = 100,
        learning_rate: float = 0.05,
        n_restarts: int = 0,
        bounds: Mapping[str, tuple[float, float]] | None = None,
        priors: Mapping[str, LogNormal] | None = None,
        random_state: int | None = None,
        n_threads: int | None = None,
        verbose: bool | None = None,
    ) -> None:
        self.graph = graph
        self.kernel = kernel
        self.likelihood = likelihood
        self.inference = inference
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
        self.random_state = random_state
        self.n_threads = n_threads
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
        check_choice("inference", self.inference, _FORMS, KernelError)
        check_fit_options(self, [], FaultList("nothing was fitted", KernelError))
        data = read_labels(self.graph, nodes, y, self.classes)
        likelihood = self._make_likelihood(data)
        kernel = copy.deepcopy(self.kernel)
        self.inference_: str = self.inference
        if self.inference in ("eigenvectors", "inducing"):
            self.inference_reason_ = "asked for"
            fitted: SiteFit | StochasticFit = self._fit_stochastic(data, kernel, likelihood)
        else:
            problem = self._problem(data, kernel, likelihood)
            self.inference_, self.inference_reason_ = choose_engine(problem, self.inference)
            fitted = SITE_ENGINES[self.inference_](problem)
        self._adopt(data, fitted)
        self._warn_of_trouble()
        return self

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
            check_choice("likelihood", self.likelihood, _LIKELIHOODS, KernelError)
            made = {"softmax": Softmax, "robustmax": RobustMax}.get(self.likelihood)
            likelihood = Bernoulli() if made is None else made(count)
            received = f"{count} classes"
        if likelihood.n_classes != count:
            rule = f"must hold labels of {likelihood.n_classes} classes for likelihood={self.likelihood!r}"
            raise faults.raise_now("y", rule, received, "Use likelihood='robustmax' or 'softmax'.")
        return likelihood

    def _problem(
        self,
        data: LabelData,
        kernel: Kernel | None,
        likelihood: Categorical,
        known: Optimum | None = None,
        start: Sites | None = None,
    ) -> SiteProblem:
        observed = SiteObservations(
            data.nodes, torch.as_tensor(data.codes, dtype=torch.float64), likelihood, np.zeros(len(data.nodes))
        )
        options = FitOptions(
            normalized=uses_normalized(self),
            optimizer=self.optimizer,
            max_iterations=self.max_iterations,
            learning_rate=self.learning_rate,
            n_restarts=self.n_restarts,
            seed=self.random_state,
            rules=rules_of(self),
            progress=self.verbose,
            known=known,
        )
        return SiteProblem(
            graph=self.graph,
            kernel=kernel,
            observed=observed,
            options=options,
            n_eigenpairs=self.n_eigenpairs,
            n_threads=self.n_threads,
            start=start,
        )

    def _fit_stochastic(self, data: LabelData, kernel: Kernel | None, likelihood: Categorical) -> StochasticFit:
        from graphmatern.inference import fit_stochastic

        if self.bounds or self.priors:
            faults = FaultList("nothing was fitted", KernelError)
            rule = f"must be left out for inference={self.inference!r}"
            raise faults.raise_now("bounds", rule, "some", "Use 'spectral' or 'markov'.")
        kernel = Matern(1.5, 8.0) if kernel is None else kernel
        if likelihood.scale_invariant:
            hold_variance(kernel)
        return fit_stochastic(
            self.graph,
            kernel,
            likelihood,
            data.nodes,
            data.codes,
            form=self.inference,  # type: ignore[arg-type]
            inducing=None if self.inducing is None else self.graph.locate(self.inducing),
            n_inducing=self.n_inducing,
            covariance=self.covariance,
            normalized=uses_normalized(self),
            n_eigenpairs=eigenpairs_used(self.graph, self.n_eigenpairs),
            optimizer=self.optimizer,
            batch_size=self.batch_size,
            n_steps=self.n_steps,
            learning_rate=self.learning_rate,
            max_iterations=self.max_iterations,
            random_state=self.random_state,
            progress=self.verbose,
        )

    def _adopt(self, data: LabelData, fitted: SiteFit | StochasticFit) -> None:
        self._data, self._fitted = data, fitted
        self.classes_ = data.classes
        self.kernel_ = fitted.kernel
        self.likelihood_ = fitted.likelihood
        self.elbo_ = fitted.elbo
        self.converged_ = fitted.converged
        self.n_clipped_ = fitted.n_clipped
        self.informed_ = reached_by(self.graph, data.nodes)

    def _warn_of_trouble(self) -> None:
        if not self.converged_:
            warn("the fit stopped early; raise max_iterations or change the start", NumericalWarning)
        if self.n_clipped_ and isinstance(self._fitted, SiteFit):
            warn(
                f"negative sites were set to 0 in {self.n_clipped_} steps: the approximation is not the best Gaussian",
                NumericalWarning,
            )

    def _require_fit(self) -> None:
        if not hasattr(self, "_fitted"):
            raise NotFittedError(f"this {type(self).__name__} is not fitted yet: call `fit` first")

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
        mean, variance = self._fitted.latent_marginals(self.graph.locate(nodes))
        return mean.T.copy(), np.sqrt(variance).T

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
        mean, variance = self._fitted.latent_marginals(places)
        likelihood, blocks = self.likelihood_, []
        assert isinstance(likelihood, Categorical)
        with torch.no_grad():
            for start in range(0, max(1, len(places)), _NODES_AT_ONCE):
                part = slice(start, start + _NODES_AT_ONCE)
                moments = (torch.from_numpy(np.ascontiguousarray(x[:, part])) for x in (mean, variance))
                blocks.append(likelihood.probabilities(*moments).numpy())
        found = np.concatenate(blocks, axis=1).T
        return np.asarray(found / found.sum(axis=1, keepdims=True))

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
        return self._fitted.sample(n_samples, self.graph.locate(nodes), rng)

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

    def plot(self, axes: Sequence[Axes] | None = None) -> NDArray[Any]:
        """Draw the most probable classes and, beside them, how uncertain they are.

        Parameters
        ----------
        axes : sequence of two Axes, optional
            Where to draw; a new figure by default.

        Returns
        -------
        ndarray of two Axes
            Labelled nodes have a ring.
        """
        share = self.predict_proba()
        marked = self.graph.nodes[np.unique(self._data.nodes)]
        return plot_classes(self.graph, share, self.classes_.tolist(), axes, marked=marked)

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
                f"evidence lower bound {self.elbo_:.4f} ({'converged' if self.converged_ else 'stopped early'})",
                *([f"negative sites were set to 0 in {self.n_clipped_} steps"] if self.n_clipped_ else []),
            ]
        )

    # ------------------------------------------------------------------ model files
    def _state(self) -> dict[str, Any]:
        fitted = self._fitted
        pairs = None
        if self.inference_ != "markov":
            count = eigenpairs_used(self.graph, self.n_eigenpairs)
            pairs = spectrum_state(self.graph, count, uses_normalized(self))
        state = {
            "nodes": self._data.nodes,
            "codes": self._data.codes,
            "classes": list(self.classes_.tolist()),
            "inference_": self.inference_,
            "inference_reason_": self.inference_reason_,
            "spectrum": pairs,
        }
        if not isinstance(fitted, SiteFit):
            return state | {"fit": fitted.plain()}
        sites = fitted.state.sites
        return state | {"kernel_": self.kernel_, "optimum": dict(vars(fitted.optimum)), "sites": [*sites]}

    def _restore(self, state: dict[str, Any]) -> None:
        data = LabelData(state["nodes"], state["codes"], label_array(state["classes"]))
        self.inference_, self.inference_reason_ = state["inference_"], state["inference_reason_"]
        spectrum_from_state(self.graph, state["spectrum"])
        if "fit" in state:
            from graphmatern.inference import StochasticFit

            self._adopt(data, StochasticFit.from_plain(self.graph, state["fit"]))
            return
        problem = self._problem(
            data, state["kernel_"], self._make_likelihood(data), Optimum(**state["optimum"]), Sites(*state["sites"])
        )
        self._adopt(data, SITE_ENGINES[self.inference_](problem))
