"""Results of a fitted classification: classes, probabilities, tables, samples, scores, pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd

from graphmatern._validation import (
    FaultList,
    abbreviate,
    check_whole,
    note_choice,
    note_flag,
    random_generator,
    warn,
)
from graphmatern.design import STRATEGIES, read_nodes, suggest_labels
from graphmatern.errors import TableError, UninformedWarning
from graphmatern.estimators._base import GraphEstimator
from graphmatern.estimators._labels import LabelData, read_labels
from graphmatern.estimators._report import classes_content
from graphmatern.inference import learned_temperature, tempered
from graphmatern.metrics import accuracy, classification_report
from graphmatern.plotting import plot_classes
from graphmatern.report import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from graphmatern.estimators._covariates import Covariates
    from graphmatern.likelihoods import Likelihood
    from graphmatern.report import Content

    Floats = NDArray[np.float64]
    Longs = NDArray[np.int64]

__all__ = ["ClassificationResults"]


class ClassificationResults(GraphEstimator):
    """Predictions of a fitted classification."""

    _estimator_type = "classifier"

    posterior_: Any
    classes_: NDArray[Any]
    kernel_: Any
    likelihood_: Likelihood
    elbo_: float
    inference_: str
    inference_reason_: str
    _data: LabelData
    _covariates: Covariates
    _temperature: float | None

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
        """Probabilities of the classes, including the uncertainty of the latent processes.

        They are calibrated by leave-one-out predictions of the labels; see `temperature_`.

        Parameters
        ----------
        nodes : sequence of hashable, optional
            Node names; all nodes by default.

        Returns
        -------
        ndarray, shape (n_names, n_classes)
            In the order of `classes_`. In components without labels they are the prior's, with a warning.
        """
        self._require_fit()
        places = self.graph.locate(nodes)
        self._warn_of_uninformed(places)
        return self._shares(places)

    @property
    def temperature_(self) -> float:
        """Temperature T of the class probabilities, which are those of the posterior to the power 1 / T, normalised.

        Below 1, probabilities are surer than the model alone would make them, above 1 less sure. T is the value that
        predicts the labels best, each from all others. It is 1 unless another value is clearly better, and also if no
        parameter was learned, or after learning from batches, for which leave-one-out predictions are not available.
        """
        self._require_fit()
        if self._temperature is None:
            learned = self._fit_options["optimizer"] is not None and "history" not in self._fit.report
            codes = self._data.codes
            self._temperature = learned_temperature(self.posterior_.left_out_classes(), codes) if learned else 1.0
        return self._temperature

    def _shares(self, places: Longs) -> Floats:
        """Class probabilities; shape (n_places, n_classes)."""
        return tempered(np.asarray(self.posterior_.class_probabilities(places)), self.temperature_)

    def _warn_of_uninformed(self, places: Longs) -> None:
        uninformed = ~self.informed_[places]
        if uninformed.any():
            names = abbreviate(self.graph.nodes[places[uninformed]].tolist())
            warn(
                f"the components of nodes {names} have no labels: these predictions are the prior's", UninformedWarning
            )

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
            Columns label (most probable class), probability (of that class), entropy (in nats; log n_classes if nothing
            is known), informed (False if the node's component has no labels), and one column ``p(...)`` with the
            probability of each class.
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
        """Leave-one-out predictions of the labels, computed by removing their sites from the posterior.

        Returns
        -------
        DataFrame
            One row per label: node, label, probability (of that label given all others; the conditional predictive
            ordinate), log_density (its logarithm) and predicted (the most probable class).
        """
        self._require_fit()
        share = tempered(self.posterior_.left_out_classes(), self.temperature_)
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

    def suggest(
        self,
        n: int = 1,
        strategy: Literal["entropy", "bald", "variance"] = "entropy",
        batch: bool = True,
        *,
        candidates: Any = None,
        random_state: int | None = 0,
    ) -> pd.DataFrame:
        """Suggest nodes to label next.

        Parameters
        ----------
        n : int
            How many.
        strategy : {"entropy", "bald", "variance"}
            "entropy" chooses nodes whose label is most uncertain; "bald" those whose label would say most about the
            latent processes, which skips labels that stay uncertain however much is known (Houlsby et al. 2011;
            robust-max has none of these); "variance" those whose label would most lower the average variance over all
            nodes, summed over the processes.
        batch : bool
            Whether the nodes will be labelled together and should differ: each is chosen as if those before it were
            labelled, with the most probable labels or, for "bald", labels drawn from the predictions. Otherwise the n
            nodes that are best individually.
        candidates : sequence of hashable, optional
            Names of nodes to choose from; by default all without a label.
        random_state : int, optional
            Seed of labels drawn.

        Returns
        -------
        DataFrame
            One row per node: node, order (from 1), score given the nodes before it (in nats; for "variance" the
            decrease), and the label currently expected with its probability. `condition_on` adds the labels.

        Examples
        --------
        >>> import graphmatern as gm
        >>> city = gm.make_roads(300, seed=0)
        >>> side = ["west" if x < city.positions[:, 0].mean() else "east" for x in city.positions[:, 0]]
        >>> model = gm.GraphGPClassifier(city).fit(city.nodes[::30], side[::30])
        >>> list(model.suggest(5)["order"])
        [1, 2, 3, 4, 5]
        """
        self._require_fit()
        faults = FaultList("nothing was suggested", TableError)
        note_choice("strategy", strategy, STRATEGIES, faults)
        note_flag("batch", batch, faults)
        labelled = np.unique(self._data.nodes)
        every = np.setdiff1d(np.arange(self.graph.n_nodes), labelled)
        places = every if candidates is None else read_nodes(self.graph, candidates, "candidates", faults)
        check_whole("n", n, faults, minimum=1, maximum=max(1, len(places)), remedy="At most all candidates.")
        if not len(places) and not faults:
            faults.add("candidates", "must hold at least one node", "none", "Name some; all other nodes have labels.")
        faults.raise_if_any()
        seed = int(random_generator(random_state, TableError).integers(2**31))
        found = suggest_labels(self.posterior_, self.graph.n_nodes, places, n, strategy, batch=batch, seed=seed)
        share = self._shares(found.nodes)
        return pd.DataFrame(
            {
                "node": self.graph.nodes[found.nodes],
                "order": np.arange(1, n + 1),
                "score": found.scores,
                "label": self.classes_[share.argmax(axis=1)],
                "probability": share.max(axis=1),
            }
        )

    def score(self, nodes: Any, y: Any = None, sample_weight: None = None) -> float:
        """Share of labels predicted correctly; None and NaN in ``y`` are skipped.

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
        """Score predictions of held-out labels: accuracy, log loss, calibration error.

        Parameters
        ----------
        nodes : sequence of hashable, or Series
            Node names; or true labels indexed by node name.
        y : sequence of hashable, optional
            True labels; None and NaN are skipped.

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
        """Draw the most probable classes and, next to them, how uncertain they are.

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

    @property
    def coefficients_(self) -> pd.DataFrame:
        """Coefficients of the mean of every latent process; a row per class and covariate, "(constant)" first.

        Mean, sd, 2.5%, 50% and 97.5%. A likelihood with one process for two classes has one row per covariate; positive
        coefficients raise the probability of the second class.
        """
        self._require_fit()
        every = getattr(self.posterior_, "components", [self.posterior_])
        weights = getattr(self.posterior_, "weights", np.ones(1))
        tables = []
        for latent in range(self.posterior_.n_latents):
            means = np.stack([one.coefficients[latent] for one in every])
            covariances = np.stack([one.coefficient_covariance[latent] for one in every])
            tables.append(self._covariates.in_user_units(weights, means, covariances, 0.0, 1.0))
        if len(tables) == 1:
            return tables[0]
        return pd.concat(tables, keys=list(self.classes_), names=["class", "covariate"])

    def _temperature_lines(self) -> list[str]:
        if self.temperature_ == 1.0:
            return []
        words = "surer" if self.temperature_ < 1.0 else "less sure"
        return [
            f"temperature {self.temperature_:.2f}: {words} than the model alone, as leave-one-out predictions warrant"
        ]

    def summary(self) -> str:
        """Describe the fit in a few lines of text."""
        self._require_fit()
        count = np.bincount(self._data.codes, minlength=len(self.classes_))
        evidence = "approximate log evidence" if self.likelihood_.approximation != "bound" else "evidence lower bound"
        shares = ", ".join(f"{label} {n:,}" for label, n in zip(self.classes_.tolist(), count.tolist(), strict=True))
        effects = []
        if self._covariates.names:
            rows = self.coefficients_.iterrows()
            words = [
                f"{' '.join(map(str, key)) if isinstance(key, tuple) else key} {row['mean']:.4g} ± {row['sd']:.2g}"
                for key, row in rows
            ]
            effects = [f"mean      {', '.join(words)}"]
        return "\n".join(
            [
                f"{counted(len(self._data.nodes), 'label')} on {self.graph!r}",
                f"classes   {shares}",
                f"inference {self.inference_} ({self.inference_reason_})",
                f"kernel    {self.kernel_!r}",
                f"likelihood {self.likelihood_!r}",
                *self._temperature_lines(),
                f"{evidence} {self.elbo_:.4f}",
                *self._share_lines(),
                *self._fit_lines(),
                *effects,
            ]
        )
